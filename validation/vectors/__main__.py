"""The command line, see the package's text. Exit status: 0 all as stored, or answered, 1 something is not, 2 usage."""

from __future__ import annotations

import argparse
import json
import sys
import time

import mpmath

from validation.vectors import cases, files, records

FILES = tuple(cases.MAKERS)


def main(arguments: list[str] | None = None) -> int:
    """Make, append, compare."""
    parser = argparse.ArgumentParser(prog="python -m validation.vectors", description="Golden vectors.")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(FILES)}; default: all")
    parser.add_argument("--target", help="only this target's records")
    parser.add_argument("--missing", action="store_true", help="make only records that are not stored yet")
    parser.add_argument(
        "--check", metavar="SHARE", type=share, help="compare a random share (5%% or 0.05) with new ones"
    )
    parser.add_argument("--sample", metavar="SHARE", type=share, dest="check", help="the same")
    parser.add_argument(
        "--answer",
        action="store_true",
        help="read records without answers from standard input, print them with answers",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--digits", type=int, default=records.DIGITS, help="working precision of the comparison")
    options = parser.parse_args(arguments)
    chosen = options.files or FILES
    unknown = [name for name in chosen if name not in FILES]
    if unknown:
        parser.error(f"no file {unknown[0]!r}; there are: {', '.join(FILES)}")
    if options.answer:
        return answer(sys.stdin)
    if options.check is not None:
        return compare(chosen, options)
    return make(chosen, options)


def share(text: str) -> float:
    """5% or 0.05"""
    value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"a share lies between 0 and 1, got {text}")
    return value


def make(chosen, options) -> int:
    """Append what is missing; say what differs. A stored record is compared as it stands, case list or not."""
    different, added, started = [], 0, time.perf_counter()
    known = files.stored("targets")
    for record in files.target_records():
        if record["id"] not in known:
            files.append("targets", record)
        elif record != known[record["id"]]:
            different.append(record["id"])
    for file in chosen:
        stored = files.stored(file)
        for case in cases.of_file(file, options.target):
            old = stored.get(case["id"])
            if old is None:
                files.append(file, json.loads(records.line(records.made(case))))
                added += 1
            elif not options.missing and old != json.loads(records.line(records.made(case))):
                different.append(case["id"])
    report(different, f"{added} added", started)
    return 1 if different else 0


def compare(chosen, options) -> int:
    """A share of the stored records, each from its own inputs."""
    out = files.withdrawn()
    all_records = [r for f in chosen for r in files.stored(f).values() if r["id"] not in out]
    wanted = [r for r in all_records if options.target in (None, r["target"])]
    if not wanted:
        print("no such records", file=sys.stderr)
        return 2
    started, picked = time.perf_counter(), files.sample(wanted, options.check, options.seed)
    different = [r["id"] for r in picked if not records.agrees(r, options.digits)]
    report(different, f"{len(picked)} of {len(wanted)} made anew at {options.digits} digits", started)
    return 1 if different else 0


def answer(lines) -> int:
    """Inputs in the records' own words, a JSON object a line, to whole records; a line's error in its place."""
    failed = 0
    for number, text in enumerate(filter(str.strip, lines), 1):
        try:
            record = {"v": records.FORMAT_VERSION, "id": f"line {number}", "args": {}, **json.loads(text)}
            out = records.made(record)
        except Exception as wrong:
            failed, out = failed + 1, {"line": number, "error": f"{type(wrong).__name__}: {wrong}"}
        print(records.line(out), flush=True)
    return 1 if failed else 0


def report(different: list[str], what: str, started: float) -> None:
    seconds = time.perf_counter() - started
    print(
        f"{what} in {seconds:.0f} s with mpmath {mpmath.__version__} ({mpmath.libmp.BACKEND}); {len(different)} differ"
    )
    for name in different:
        print(f"  differs: {name}")


if __name__ == "__main__":
    sys.exit(main())
