"""Mutation score of the conformance kit: where it finds the bugs planted in ``refhmc/check/mutants``, and its false alarms.

Each bug is examined once. It counts as found if a row fails that its pair names, with the severity that the pair names. Its
correct counterpart is examined with seeds 0, 1, ..., N - 1; any FAIL of it is a false alarm.

A run examines the bugs that have no row with N seeds yet. The file is written after each bug, so that a run can be stopped.

    python -m validation.mutation_score                   what is missing
    python -m validation.mutation_score --again           all
    python -m validation.mutation_score --areas orbits    only the bugs of ``mutants/orbits.py``
    python -m validation.mutation_score --ids M12 T14     these again, and what is missing

The areas whose names begin with ``jax`` need JAX, and are left out without it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import pkgutil
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from refhmc.check import mutants
from validation import judging
from validation.common import RESULTS, markdown, write_results

SEEDS = 20
SHOWN = ("bug", "what", "check", "found by", "verdict", "runs of the counterpart", "false alarms", "seconds")


def areas() -> list[str]:
    """Return the names of the files of ``refhmc/check/mutants`` that can be imported."""
    names = sorted(module.name for module in pkgutil.iter_modules(mutants.__path__))
    return [name for name in names if not name.startswith("jax") or importlib.util.find_spec("jax")]


def pairs_of(area: str) -> list[mutants.Pair]:
    """Return the bugs of one area with their counterparts."""
    return importlib.import_module(f"refhmc.check.mutants.{area}").PAIRS


def examine(area: str, bug: str, seeds: int) -> dict:
    """Return the row of one bug."""
    pair = next(pair for pair in pairs_of(area) if pair.id == bug)
    begin = time.process_time()
    report = pair.wrong(0)
    seconds = time.process_time() - begin
    failed = [row for row in report.rows if row.status == "FAIL"]
    found = [row for row in failed if row.name in pair.expected]
    begin = time.process_time()
    alarms = [seed for seed in range(seeds) if pair.right(seed).failures]
    return {
        "bug": pair.id,
        "area": area,
        "what": pair.what,
        "check": f"check.{report.check}",
        "found by": ", ".join(row.name for row in found) or "NOT FOUND",
        "also failed": ", ".join(row.name for row in failed if row not in found),
        "verdict": report.severity or "none",
        "as it should": bool(found) and report.severity == pair.severity,
        "runs of the counterpart": seeds,
        "false alarms": len(alarms),
        "seconds": seconds,
        "seconds of the counterpart": (time.process_time() - begin) / seeds,
    }


def recorded() -> dict[tuple[str, str], dict]:
    """Return the recorded rows by area and bug."""
    path = RESULTS / "mutation_score.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return {(row["area"], row["bug"]): row for row in rows}


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    bugs, found, runs, alarms = data["summary"].values()
    return judging.line(
        "Found",
        f"the conformance kit finds {found} of {bugs} bugs, with {alarms} false alarms in {runs} runs of their correct "
        "counterparts.",
    )


def write(rows: list[dict]) -> str:
    """Write the table of these rows and return its first line."""
    found, alarms, runs = (
        sum(row[key] for row in rows) for key in ("as it should", "false alarms", "runs of the counterpart")
    )
    summary = {"bugs": len(rows), "found": found, "runs of counterparts": runs, "false alarms": alarms}
    without = sum(len(pairs_of(area)) for area in areas()) - len(rows)
    table = [[row[key] if key != "seconds" else f"{row[key]:.2f}" for key in SHOWN] for row in rows]
    write_results(
        "mutation_score",
        "Planted bugs, and where the conformance kit finds them",
        f"{without} planted bugs have no row yet. Seconds are processor time until the report on the bug.\n\n"
        + markdown(SHOWN, table),
        {"summary": summary, "rows": rows},
        opening,
    )
    return opening({"summary": summary})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds of each counterpart")
    parser.add_argument("--areas", nargs="+", choices=areas(), default=areas(), metavar="AREA", help="only these")
    parser.add_argument("--again", action="store_true", help="also bugs that have a row")
    parser.add_argument("--ids", nargs="+", default=(), metavar="ID", help="these again")
    options = parser.parse_args()
    known = recorded()
    planted = {area: [pair.id for pair in pairs_of(area)] for area in options.areas}
    known = {key: row for key, row in known.items() if key[0] not in planted or key[1] in planted[key[0]]}
    jobs = [
        (area, bug)
        for area, bugs in planted.items()
        for bug in bugs
        if options.again
        or bug in options.ids
        or known.get((area, bug), {}).get("runs of the counterpart", 0) < options.seeds
    ]
    jobs.sort(key=lambda job: -known.get(job, {}).get("seconds of the counterpart", 1e9))  # the longest first
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(examine, *job, options.seeds): job for job in jobs}
        for future in as_completed(futures):
            known[futures[future]] = row = future.result()
            print(f"{row['area']} {row['bug']}: {row['found by']}; {row['false alarms']} false alarms", flush=True)
            write([known[key] for key in sorted(known)])
    print(write([known[key] for key in sorted(known)]))


if __name__ == "__main__":
    main()
