"""Posteriors of posteriordb: ``python -m validation.posteriordb --posteriordb FOLDER [--only NAME ...]
[--sampler refhmc,nutpie] [--seeds 3] [--more] [--timeout 900] [--peers /path/to/python] [--shared]``.

FOLDER is a copy of https://github.com/stan-dev/posteriordb, which may also be named by the variable POSTERIORDB. Each sampler
runs on each posterior in a process of its own, with a time limit. Results that were not selected are kept. ``--more`` keeps the
recorded runs of the selected ones, too, and adds the seeds that are missing, except where a sampler has failed.
``--shared``: other programs use the machine, so that the process is not pinned to a core and its seconds are not recorded.
``--references NAME ...`` makes the long runs for posteriors without reference draws. ``--page`` only writes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from refhmc import diagnostics
from validation.benchmarks import common
from validation.benchmarks.explicit import merged, read_cells, versions_of
from validation.benchmarks.samplers import RESULT_MARK
from validation.posteriordb import database, page, samplers
from validation.posteriordb.posteriors import all_posteriors

ENOUGH = 300.0  # seconds of sampling after which no further seed is taken
RECORDED, PARTIAL = (database.RESULTS / f"{page.NAME}.{end}" for end in ("json", "partial.json"))
SHORT = 300  # characters of a message that are kept


def say(**found: Any) -> None:
    print(RESULT_MARK + json.dumps(found), flush=True)


def measure(name: str, sampler: str, seeds: list[int], folder: str) -> None:
    """Run a sampler on a posterior, and print a line for each seed."""
    posterior = all_posteriors()[name]
    kind, reference = database.reference_of(folder, posterior)
    in_stan = database.in_stan(folder, name) if sampler == "stan" else {}
    begin = time.process_time()
    run = samplers.SAMPLERS[sampler](posterior, database.data_of(folder, name), **in_stan)
    say(prepared=time.process_time() - begin, reference=kind)
    spent = 0.0
    for seed in seeds:
        begin = time.process_time()
        finish = run(seed)
        seconds = time.process_time() - begin
        found, values = finish()
        numbers = database.entries(values if in_stan else database.parameters_of(folder, posterior, values))
        sizes, draws = diagnostics.ess(np.stack(list(numbers.values()), axis=-1)), np.asarray(found.draws)
        scores = {row.name: database.z_scores(row, numbers[row.name]) for row in reference}
        say(
            seed=seed,
            seconds=seconds if found.seconds is None else found.seconds,
            gradients=found.gradients,
            draw_gradients=found.draw_gradients,
            draws=draws.shape[0] * draws.shape[1],
            ess=float(sizes.min()),
            ess_of=list(numbers)[int(sizes.argmin())],
            r_hat=float(diagnostics.rhat(draws).max()),
            divergences=found.divergences,
            warnings=found.warnings,
            z={key: [round(z, 2) for z in each] for key, each in scores.items()},
        )
        spent += seconds
        if spent > ENOUGH:
            break


def cell_of(name: str, sampler: str, seeds: list[int], options: argparse.Namespace) -> dict[str, Any]:
    """Return the runs of a sampler on a posterior from a process of its own, or why there are none."""
    interpreter = options.peers if sampler in samplers.PEERS else sys.executable
    command = [
        interpreter,
        "-W",
        "ignore",
        "-m",
        "validation.posteriordb",
        "--measure",
        name,
        sampler,
        *map(str, seeds),
    ]
    command += ["--posteriordb", os.path.abspath(options.posteriordb)]
    command += ["--shared"] if options.shared else []
    cell: dict[str, Any] = {"runs": [], "why": ""}
    begin = time.time()
    try:
        done = subprocess.run(
            command, cwd=common.ROOT, env=common.environment(), capture_output=True, text=True, timeout=options.timeout
        )
        output, error = done.stdout, (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        output, error = (late.stdout or b"").decode(), f"no result in {options.timeout:.0f} s"
    for line in output.splitlines():
        if line.startswith(RESULT_MARK):
            found = json.loads(line[len(RESULT_MARK) :])
            if "seed" in found:
                found["warnings"] = [text[:SHORT] for text in found["warnings"] or []]
                cell["runs"].append(found)
            else:
                cell |= found
    return cell | {"why": error[:SHORT], "took": time.time() - begin, "shared": options.shared}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--posteriordb", default=os.environ.get("POSTERIORDB"), metavar="FOLDER")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="words in the names of posteriors")
    parser.add_argument("--sampler", default="refhmc", help=f"names with commas: {', '.join(samplers.SAMPLERS)}")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default 3)")
    parser.add_argument("--more", action="store_true", help="keep the recorded runs and add the seeds that are missing")
    parser.add_argument(
        "--timeout", type=float, default=900.0, help="seconds for a sampler on a posterior (default 900)"
    )
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="interpreter that has the peers")
    parser.add_argument("--shared", action="store_true", help="other programs use the machine: record no seconds")
    parser.add_argument("--references", nargs="+", metavar="NAME", help="make the long runs of these posteriors")
    parser.add_argument("--page", action="store_true", help="write the page from the recorded results")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.page and not options.posteriordb:
        parser.error("--posteriordb FOLDER must name a copy of https://github.com/stan-dev/posteriordb.")
    if options.measure:
        if not options.shared:
            common.pin_to_one_core()
        name, sampler, *seeds = options.measure
        return measure(name, sampler, list(map(int, seeds)), options.posteriordb)
    posteriors = all_posteriors()
    if options.references:
        for name in options.references:
            database.store_long_run(options.posteriordb, posteriors[name])
        return None
    chosen = [name for name in posteriors if not options.only or any(word in name for word in options.only)]
    cells = merged(*(read_cells(path) for path in (RECORDED, PARTIAL) if path.exists()))
    database.RESULTS.mkdir(exist_ok=True)
    for sampler in options.sampler.split(","):
        for name in [] if options.page else chosen:
            old = cells.get(name, {}).get(sampler) if options.more else None
            runs = old["runs"] if old else []
            seeds = sorted({*range(1, options.seeds + 1)} - {run["seed"] for run in runs})
            if not seeds or (old and old["why"]):
                continue
            cell = cell_of(name, sampler, seeds, options)
            cell["runs"] = runs + cell["runs"]
            cells.setdefault(name, {})[sampler] = cell
            print(f"{name}, {sampler}: {page.summary(cell)} ({cell['took']:.0f} s)", file=sys.stderr, flush=True)
            PARTIAL.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    about = common.machine(["refhmc"])
    about["versions"] |= versions_of(options.peers)
    text = page.text_of(cells, posteriors)
    common.report(page.NAME, "Posteriors of posteriordb", text, {"cells": cells}, about, database.RESULTS)
    PARTIAL.unlink(missing_ok=True)
    return None


if __name__ == "__main__":
    main()
