"""The mutation score of the conformance kit: every planted bug of ``tests/mutants``, and where it was found.

Of each pair: the bug runs once, its correct twin over 20 seeds. Score: the share of bugs that FAIL in a row that was named for
them beforehand, with the severity they have; wrong FAILs: of the twins, out of 20 times as many runs.
"""

from __future__ import annotations

import importlib
import pathlib
import pkgutil
import sys
import time

from validation.common import markdown, write_results

TESTS = pathlib.Path(__file__).parents[1] / "tests"
SEEDS = 20


def pairs() -> list[tuple[str, object]]:
    """(area, pair) of every file of ``tests/mutants``."""
    sys.path.insert(0, str(TESTS))
    import mutants

    areas = sorted(module.name for module in pkgutil.iter_modules(mutants.__path__))
    return [(area, pair) for area in areas for pair in importlib.import_module(f"mutants.{area}").PAIRS]


def examine(area: str, pair) -> dict:
    """One row of the table."""
    begin = time.perf_counter()
    report = pair.wrong(0)
    seconds = time.perf_counter() - begin
    failed = [row for row in report.rows if row.status == "FAIL"]
    found = [row for row in failed if row.name in pair.expected]
    begin = time.perf_counter()
    wrong = sum(bool(pair.right(seed).failures) for seed in range(SEEDS))
    return {
        "bug": pair.id,
        "area": area,
        "what": pair.what,
        "check": f"check.{report.check}",
        "found by": ", ".join(row.name for row in found) or "NOT FOUND",
        "also failed": ", ".join(row.name for row in failed if row not in found),
        "verdict": report.severity or "none",
        "as it should": bool(found) and report.severity == pair.severity,
        "twin's wrong FAILs": wrong,
        "seconds": seconds,
        "seconds of a twin": (time.perf_counter() - begin) / SEEDS,
    }


def main() -> None:
    rows = [examine(area, pair) for area, pair in pairs()]
    killed, wrong = sum(row["as it should"] for row in rows), sum(row["twin's wrong FAILs"] for row in rows)
    summary = {"bugs": len(rows), "found": killed, "runs of twins": SEEDS * len(rows), "wrong FAILs": wrong}
    shown = ("bug", "what", "check", "found by", "verdict", "twin's wrong FAILs", "seconds")
    table = [[row[key] if key != "seconds" else f"{row[key]:.2f}" for key in shown] for row in rows]
    said = (
        f"{killed} of {len(rows)} found where they should be; {wrong} wrong FAILs in {SEEDS * len(rows)} runs of twins."
    )
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
