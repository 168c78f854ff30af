"""Golden vectors: questions with answers to 36 digits, to hold code in any language against.

Each record (a line of JSON in ``refhmc/vectors``, format in its README) has exact inputs, an answer ``out`` from
multi-precision arithmetic, and for each field of it a tolerance: what correct code in double precision may be off by,
derived from the record's own sensitivity to rounding. Where an equation is solved iteratively, ``gain`` times the solver's
tolerance is added. An answer agrees if for every number

    |given - out| <= tol + gain * solver_tolerance

Counts and names must be equal; a record with decisions (accept, turn back) states by which margin the closest one was made, and
is left out where the precision at hand could tip it.
"""

from __future__ import annotations

import argparse
import importlib.resources
import json
import math
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.operations import ADAPTATION, BUILT_ON
from refhmc.check.report import FAIL, INEFFICIENT, MISCONDUCT, PASS, WRONG_LAW, Report, Row, not_run

FILES = ("models", "networks", "metrics", "forces", "steps", "splits", "discontinuous", "transitions", "adaptation")
NOT_INPUTS = {"v", "id", "op", "target", "args", "out", "tol", "gain", "H", "margin"}
UNITS = {"float64": 1.0, "float32": 2.0**29}  # rounding units in those of float64
EXACT_ZERO = 1e-14  # in units of double precision's tolerances
SAFE_MARGIN = 10.0
BASIS = "in units of the records' tolerances, 64 simulated roundings"


class Record(NamedTuple):
    """``args`` and ``inputs`` with real numbers as floats and arrays; ``out`` rounded to float64, ``exact`` the digits.

    ``tol`` and ``gain`` by field (``gain`` is empty where nothing is solved); ``energy`` is H at the end, with the constants
    of the target's text; ``margin`` None where nothing is decided.
    """

    id: str
    op: str
    target: str
    args: dict
    inputs: dict
    out: dict
    exact: dict
    tol: dict
    gain: dict
    energy: float | None
    margin: float | None


class Target(NamedTuple):
    """A log density in words, its coordinates' names and its data; ``fisher`` says what its Fisher metric is, if it has one."""

    name: str
    dim: int
    coordinates: list
    log_density: str
    data: dict
    fisher: str


def lines(op: str | None = None, target: str | None = None, *, id: str | None = None) -> Iterator[dict]:
    """The records as they stand in the files, those withdrawn left out; filtered by operation, target or id."""
    withdrawn = {row["id"] for row in _rows("ERRATA")}
    for file in FILES:
        for row in _rows(file):
            found = op in (None, row["op"]) and target in (None, row["target"]) and id in (None, row["id"])
            if found and row["id"] not in withdrawn:
                yield row


def records(op: str | None = None, target: str | None = None, *, id: str | None = None) -> Iterator[Record]:
    """The records, ready for NumPy; filtered by operation ("grad"), target ("funnel") or id ("grad/funnel/0007")."""
    for row in lines(op, target, id=id):
        yield Record(
            row["id"],
            row["op"],
            row["target"],
            {key: _numeric(value) for key, value in row["args"].items()},
            {key: _numeric(value) for key, value in row.items() if key not in NOT_INPUTS},
            {key: _answer(value) for key, value in row["out"].items()},
            row["out"],
            row["tol"],
            row.get("gain", {}),
            float(row["H"]) if "H" in row else None,
            row.get("margin"),
        )


def targets() -> dict[str, Target]:
    """What the records' targets are, by name."""
    return {
        row["target"]: Target(
            row["target"],
            row["dim"],
            row["coordinates"],
            row["log_density"],
            {key: _numeric(value) for key, value in row["data"].items()},
            row.get("fisher", ""),
        )
        for row in _rows("targets")
    }


def _rows(file: str) -> Iterator[dict]:
    path = importlib.resources.files("refhmc") / "vectors" / f"{file}.jsonl"
    with path.open("r", encoding="utf-8") as stream:
        rows = (json.loads(text) for text in stream)
        yield from (row for row in rows if "id" in row)


def _numeric(value: Any) -> Any:
    """Hex strings as floats, lists of numbers as arrays (of rows that differ in length, a list of those); else as it is."""
    if isinstance(value, str):
        return _real(value) if "0x" in value else value
    if isinstance(value, list) and len({len(row) for row in value if isinstance(row, list)}) > 1:
        return [_numeric(row) for row in value]
    return np.array(_real(value)) if isinstance(value, list) else value


def _answer(value: Any) -> Any:
    """Decimal strings as a float or an array; counts and lists with names as they are."""
    if isinstance(value, str):
        return float(value)
    if isinstance(value, list) and value and _is_decimal(value):
        return np.array(value, dtype=float)
    return value


def _is_decimal(value: Any) -> bool:
    """Whether nested lists hold decimal strings only."""
    if isinstance(value, list):
        return all(map(_is_decimal, value))
    return isinstance(value, str) and value[-1:].isdigit()


# ---------------------------------------------------------------------------------------------------------- compare


class Finding(NamedTuple):
    """One record's comparison: the worst error in units of its tolerance, the field, and what was wrong with the form."""

    id: str
    error: float
    field: str
    fault: str = ""


def compare(
    results: Any,
    *,
    op: str | None = None,
    target: str | None = None,
    precision: str = "float64",
    solver_tolerance: float = 0.0,
    name: str | None = None,
) -> Report:
    """Hold someone's answers against the records, those of one operation or target if given.

    ``results`` is a path, or an iterable of lines or dicts, each ``{"id": ..., "out": {field: numbers}}`` (or the fields
    beside the id); numbers are JSON numbers, or strings, decimal or C99 hex. Only what is given is compared. One row for each
    operation and target; its ``case`` is the id of the worst record.

    ``precision``: "float32" for code that computes in it. ``solver_tolerance``: how far its implicit solver may leave its
    unknowns from the solution. Raises OSError for a file that cannot be read, ValueError for options that cannot be.
    """
    if precision not in UNITS:
        raise ValueError(f"precision must be one of {', '.join(UNITS)}, got {precision!r}")
    if not 0 <= solver_tolerance < math.inf:
        raise ValueError(f"solver_tolerance must be finite and not negative, got {solver_tolerance!r}")
    given, notes = _read(results)
    groups: dict[tuple, list[Record]] = {}
    for record in records(op, target):
        groups.setdefault((record.op, record.target), []).append(record)
    if not groups:
        raise ValueError(f"there are no records with op {op!r} and target {target!r}")
    ids = {record.id for group in groups.values() for record in group}
    known = ids if op is target is None else {row["id"] for row in lines()}
    strange = [key for key in given if key not in known]
    if strange:
        notes.append(f"{len(strange)} ids that no record has, the first {strange[0]!r}")
    rows = [
        _row(f"{kind}/{subject}", [r for r in group if r.id in given], len(group), given, precision, solver_tolerance)
        for (kind, subject), group in groups.items()
    ]
    settings = {"precision": precision, "solver_tolerance": solver_tolerance}
    settings |= {key: value for key, value in (("op", op), ("target", target)) if value is not None}
    label = name or (str(results) if isinstance(results, str | pathlib.Path) else "results")
    return Report("golden_vectors", label, settings, 0, tuple(rows), tuple(notes), _diagnosis(rows))


def _read(results: Any) -> tuple[dict, list[str]]:
    """Answers by id, and notes on lines that are none."""
    if isinstance(results, str | pathlib.Path):
        with open(results, encoding="utf-8", errors="replace") as stream:
            return _read(list(stream))
    given, other, refused = {}, 0, 0
    for item in results:
        row = _parsed(item)
        if not isinstance(row, dict) or not isinstance(row.get("id"), str):
            other += bool(row is not None)
        elif "error" in row:
            refused += 1
        else:
            out = row.get("out")
            given[row["id"]] = out if isinstance(out, dict) else {k: v for k, v in row.items() if k not in ("v", "id")}
    texts = ((other, "lines that are no answers"), (refused, "questions answered with an error"))
    return given, [f"{count} {text}" for count, text in texts if count]


def _parsed(item: Any) -> Any:
    """A line as JSON; None for an empty one, False for one that is none."""
    if not isinstance(item, str | bytes):
        return item
    if not item.strip():
        return None
    try:
        return json.loads(item)
    except ValueError:
        return False


def _row(
    name: str, answered: Sequence[Record], total: int, given: dict, precision: str, solver_tolerance: float
) -> Row:
    found = [_examine(r, given[r.id], UNITS[precision], solver_tolerance) for r in answered]
    judged = [f for f in found if f is not None]
    if not judged:
        why = "its decisions are too close for this precision" if found else f"no answer to any of its {total} records"
        return not_run(name, why)
    worst = max(judged, key=lambda f: f.error)
    count = f"{len(judged)} of {total} records"
    severity = INEFFICIENT if name.split("/")[0] in ADAPTATION else WRONG_LAW
    if worst.fault:
        basis = f"{worst.field}: {worst.fault}; {count}"
        severity = MISCONDUCT if math.isinf(worst.error) else severity
        return Row(name, FAIL, None, None, basis, severity, worst.id)
    status = PASS if worst.error <= 1 else FAIL
    basis = f"{worst.field}; {count}; {BASIS}"
    return Row(name, status, worst.error, 1.0, basis, severity, "" if status == PASS else worst.id)


def _examine(record: Record, out: dict, unit: float, solver_tolerance: float) -> Finding | None:
    """None where nothing was given, or a decision could fall otherwise at this precision."""
    # An exact zero (the energy error of a draw that stays) may come out as the rounding of what it is the difference of.
    tol = {
        key: unit * (t or EXACT_ZERO) + record.gain.get(key, 0.0) * solver_tolerance for key, t in record.tol.items()
    }
    if record.margin is not None and record.margin <= SAFE_MARGIN * max(tol.values()):
        return None
    found = [_field(record.id, key, value, out[key], tol.get(key)) for key, value in record.out.items() if key in out]
    return max(found, key=lambda f: f.error, default=None)


def _field(id: str, key: str, want: Any, got: Any, tol: float | None) -> Finding:
    """One field: numbers to ``tol``, counts and names exactly where that is None."""
    if tol is None:
        same = _plain(got) == _plain(want)
        return Finding(
            id, 0.0 if same else 1e300, key, "" if same else f"{_plain(got)!r:.60} where {want!r:.60} is right"
        )
    try:
        value = np.array(_real(got), dtype=float)
    except (TypeError, ValueError) as error:
        return Finding(id, math.inf, key, f"cannot be read as numbers ({str(error)[:60]})")
    if value.shape != np.shape(want):
        return Finding(id, math.inf, key, f"has the shape {value.shape} where {np.shape(want)} is right")
    if not np.isfinite(value).all():
        return Finding(id, 1e300, key, "is not finite")
    return Finding(id, float(np.max(np.abs(value - want), initial=0.0)) / tol, key)


def _real(value: Any) -> Any:
    """Numbers and strings in nested lists as floats; whole numbers stay."""
    if isinstance(value, str):
        return float.fromhex(value) if "0x" in value.lower() else float(value)
    if isinstance(value, list | tuple):
        return [_real(item) for item in value]
    if isinstance(value, int):
        return value
    return _real(value.tolist()) if hasattr(value, "tolist") else float(value)


def _plain(value: Any) -> Any:
    """Counts and names in nested lists, whichever way they are written: 3, 3.0, "3", True for 1."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    try:
        number = _real(value)
    except (TypeError, ValueError):
        return value
    return int(number) if math.isfinite(number) and number == int(number) else number


def _diagnosis(rows: Sequence[Row]) -> tuple[str, ...]:
    """What the failures are typical of."""
    failed = [row for row in rows if row.status == FAIL and row.severity != MISCONDUCT]
    numbers = [row.number for row in failed if row.number is not None]
    if not failed:
        return ()
    texts = []
    if len(numbers) == len(failed) and max(numbers) < 16 * UNITS["float32"]:
        low = "about as far off as single precision would be: a float32 number or constant on the way? (precision='float32')"
        texts.append("a little beyond rounding: a formula that loses digits" if max(numbers) < 1e5 else low)
    kinds = {row.name.split("/")[0] for row in failed}
    passed = {row.name.split("/")[0] for row in rows if row.status == PASS} - kinds
    chain = [kind for kind in BUILT_ON if kind in kinds]
    if chain and passed:
        texts.append(f"the first to fail is {chain[0]}; look there before what is built on it")
    return tuple(texts)


# ----------------------------------------------------------------------------------------------------- command line

USAGE = 2
NO_ANSWER = 3


def add_vectors_command(subparsers: Any) -> None:
    """Add ``refhmc vectors`` to the command line."""
    text = "list the golden vectors, write them out, or check a file of results against them"
    command = subparsers.add_parser("vectors", help=text, description=text)
    command.add_argument("action", nargs="?", choices=["summary", "list", "check", "export"], default="summary")
    command.add_argument("file", nargs="?", metavar="FILE", help="check: JSON lines of results, - for stdin")
    command.add_argument("--op", help="only this operation: grad, step, ...")
    command.add_argument("--target", help="only this target: funnel, banana, ...")
    command.add_argument("--list", action="store_true", dest="ids", help="the same as the action list")
    command.add_argument("--questions", action="store_true", help="export: leave the answers out")
    command.add_argument(
        "--precision", choices=list(UNITS), default="float64", help="check: what the results were computed in"
    )
    command.add_argument("--solver-tolerance", type=float, default=0.0, help="check: that of an implicit integrator")
    command.add_argument("--json", action="store_true", help="check: the report as JSON")
    command.set_defaults(run=run_vectors)


def run_vectors(options: argparse.Namespace) -> int:
    """``refhmc vectors``. Exit status: 0 done or all pass, 1 a row fails, 2 usage, 3 nothing could be decided."""
    action = "list" if options.ids else options.action
    if (action == "check") != (options.file is not None):
        return _usage("check needs a FILE of results" if action == "check" else f"{action} takes no FILE")
    chosen = list(lines(options.op, options.target))
    if not chosen:
        return _usage(f"there are no records with op {options.op!r} and target {options.target!r}")
    if action == "check":
        return _check_file(options)
    if action == "summary":
        counts: dict[tuple, int] = {}
        for row in chosen:
            counts[row["op"], row["target"]] = counts.get((row["op"], row["target"]), 0) + 1
        print("\n".join(f"{op:18s} {target:24s} {count:4d}" for (op, target), count in counts.items()))
        print(f"{len(chosen)} records")
        return 0
    answers = ("out", "tol", "gain", "H", "margin") if options.questions else ()
    for row in chosen:
        shown = {key: value for key, value in row.items() if key not in answers}
        print(row["id"] if action == "list" else json.dumps(shown, separators=(",", ":")))
    return 0


def _check_file(options: argparse.Namespace) -> int:
    source: str | Iterable[str] = sys.stdin if options.file == "-" else options.file
    try:
        report = compare(
            source,
            op=options.op,
            target=options.target,
            precision=options.precision,
            solver_tolerance=options.solver_tolerance,
        )
    except (OSError, ValueError) as error:
        return _usage(str(error))
    print(report.to_json() if options.json else report)
    if report.failures:
        return 1
    return 0 if report.ok else NO_ANSWER


def _usage(text: str) -> int:
    print(f"refhmc vectors: {text}", file=sys.stderr)
    return USAGE
