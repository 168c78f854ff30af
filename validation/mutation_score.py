"""The mutation score of the conformance kit: every planted bug of ``refhmc/check/mutants``, and where it was found.

Of each pair: the bug runs once, its correct twin over 20 seeds (``--others N``: those that are not of the plan, P01 to P25,
over N; with 3 a run takes eleven minutes on two cores; ``--areas``: of these files alone, the rest as the last run found them;
``--missing``: only bugs that the last run did not have; ``--ids``: those and these bugs).
Score: the share of bugs that FAIL in a row that was named for
them beforehand, with the severity they have; wrong FAILs: of the twins, out of 20 times as many runs.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import multiprocessing
import os
import pkgutil
import time
from concurrent.futures import ProcessPoolExecutor

from refhmc.check import mutants
from refhmc.check.selftest import PLANNED
from validation.common import RESULTS, markdown, write_results

SEEDS = 20


def areas() -> list[str]:
    """The files of ``refhmc/check/mutants``."""
    return sorted(module.name for module in pkgutil.iter_modules(mutants.__path__))


def pairs_of(area: str) -> list[mutants.Pair]:
    """Return the bugs of one area with their counterparts."""
    return importlib.import_module(f"refhmc.check.mutants.{area}").PAIRS


def examined(area: str, others: int, known: dict[tuple[str, str], dict]) -> list[dict]:
    """Return the rows of one area, including ``known`` ones; one process, since bugs share correct counterparts."""
    found = []
    for pair in pairs_of(area):
        row = known.get((area, pair.id)) or examine(area, pair, SEEDS if pair.id[:3] in PLANNED else others)
        found.append(row | {"what": pair.what})
        print(f"{area} {pair.id}: {row['found by']}", flush=True)
    return found


def examine(area: str, pair, seeds: int) -> dict:
    """One row of the table."""
    begin = time.perf_counter()
    report = pair.wrong(0)
    seconds = time.perf_counter() - begin
    failed = [row for row in report.rows if row.status == "FAIL"]
    found = [row for row in failed if row.name in pair.expected]
    begin = time.perf_counter()
    wrong = sum(bool(pair.right(seed).failures) for seed in range(seeds))
    return {
        "bug": pair.id,
        "area": area,
        "what": pair.what,
        "check": f"check.{report.check}",
        "found by": ", ".join(row.name for row in found) or "NOT FOUND",
        "also failed": ", ".join(row.name for row in failed if row not in found),
        "verdict": report.severity or "none",
        "as it should": bool(found) and report.severity == pair.severity,
        "twin's runs": seeds,
        "twin's wrong FAILs": wrong,
        "seconds": seconds,
        "seconds of a twin": (time.perf_counter() - begin) / seeds,
    }


def last_rows() -> dict[str, list[dict]]:
    """Return the rows of the last run by area."""
    path = RESULTS / "mutation_score.json"
    found: dict[str, list[dict]] = {}
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []:
        found.setdefault(row["area"], []).append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--others", type=int, default=SEEDS, help="seeds of the twins that are not of the plan")
    parser.add_argument("--areas", nargs="+", choices=areas(), default=areas(), metavar="AREA", help="only these")
    parser.add_argument("--missing", action="store_true", help="only bugs without a row in the last run")
    parser.add_argument("--ids", nargs="+", metavar="ID", help="these bugs, and those without a row in the last run")
    options = parser.parse_args()
    last = last_rows()
    known = {(row["area"], row["bug"]): row for rows in last.values() for row in rows}
    if options.ids:
        known = {key: row for key, row in known.items() if key[1] not in options.ids}
    elif not options.missing:
        known = {}
    job = functools.partial(examined, others=options.others, known=known)
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        longest_first = sorted(options.areas, key=("orbits", "integrators").__contains__, reverse=True)
        by_area = last | dict(zip(longest_first, pool.map(job, longest_first), strict=True))
    rows = [row for area in areas() for row in by_area.get(area, [])]
    killed, wrong = sum(row["as it should"] for row in rows), sum(row["twin's wrong FAILs"] for row in rows)
    runs = sum(row["twin's runs"] for row in rows)
    summary = {"bugs": len(rows), "found": killed, "runs of twins": runs, "wrong FAILs": wrong}
    shown = ("bug", "what", "check", "found by", "verdict", "twin's runs", "twin's wrong FAILs", "seconds")
    table = [[row[key] if key != "seconds" else f"{row[key]:.2f}" for key in shown] for row in rows]
    said = f"{killed} of {len(rows)} found where they should be; {wrong} wrong FAILs in {runs} runs of twins."
    text = f"{said}\n\n{markdown(shown, table)}"
    print(text)
    write_results(
        "mutation_score",
        "Planted bugs, and where the conformance kit found them",
        text,
        {"summary": summary, "rows": rows},
    )


if __name__ == "__main__":
    main()
