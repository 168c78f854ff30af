"""Golden vectors: inputs and answers with 36 digits, for testing code in any language.

Each record (one JSON object per line in ``refhmc/vectors``, format in its README) has exact inputs, an answer ``out`` from
multi-precision arithmetic, and a tolerance per field. The tolerance is the largest error of correct code in double precision,
derived from the record's own sensitivity to rounding. If an equation is solved iteratively, ``gain`` times the tolerance of the
solver is added. An answer agrees if for every number::

    |given - out| <= tol + gain * solver_tolerance

Counts and names must be equal. A record with decisions (accept, U-turn) has the margin of the closest decision. It is left out
if rounding in the given precision could change that decision.
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
from refhmc.check.report import CALL_FAILED, FAIL, INEFFICIENT, PASS, WRONG_DISTRIBUTION, Report, Row, not_run

__all__ = ["Finding", "Record", "Target", "compare", "lines", "records", "targets"]

FILES = ("models", "networks", "metrics", "forces", "steps", "splits", "discontinuous", "transitions", "adaptation")
NOT_INPUTS = {"v", "id", "op", "target", "args", "out", "tol", "gain", "H", "margin"}
UNITS = {"float64": 1.0, "float32": 2.0**29}  # rounding units in those of float64
EXACT_ZERO = 1e-14  # in units of double precision's tolerances
SAFE_MARGIN = 10.0
BASIS = "in units of the records' tolerances, 64 simulated roundings"


class Record(NamedTuple):
    """One golden vector.

    Parameters
    ----------
    id : str
        Identifier, such as "grad/funnel/0007".
    op : str
        Operation, such as "grad".
    target : str
        Name of the target (see :func:`targets`).
    args : dict
        Arguments of the operation; numbers are floats or arrays.
    inputs : dict
        Inputs by name, as floats and arrays.
    out : dict
        Answers by field, rounded to float64.
    exact : dict
        Answers by field as decimal strings with all digits.
    tol : dict
        Tolerance by field.
    gain : dict
        Factor of the solver's tolerance by field; empty if no equation is solved.
    energy : float or None
        H at the end, with the constants of the target's formula.
    margin : float or None
        Margin of the closest decision, or None if there are no decisions.
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
    """Description of a target of the golden vectors.

    Parameters
    ----------
    name : str
        Name of the target.
    dim : int
        Dimension.
    coordinates : list of str
        Names of the coordinates.
    log_density : str
        Formula of the log density.
    data : dict
        Data of the formula.
    fisher : str
        Formula of the Fisher metric, or an empty string.
    """

    name: str
    dim: int
    coordinates: list
    log_density: str
    data: dict
    fisher: str


def lines(op: str | None = None, target: str | None = None, *, id: str | None = None) -> Iterator[dict]:
    """Yield the records unchanged from the files, without withdrawn ones.

    Parameters
    ----------
    op : str, optional
        Only records of this operation.
    target : str, optional
        Only records of this target.
    id : str, optional
        Only the record with this identifier.

    Yields
    ------
    dict
        A record as parsed from JSON; inputs are C99 hexadecimal strings.
    """
    withdrawn = {row["id"] for row in _rows("ERRATA")}
    for file in FILES:
        for row in _rows(file):
            found = op in (None, row["op"]) and target in (None, row["target"]) and id in (None, row["id"])
            if found and row["id"] not in withdrawn:
                yield row


def records(op: str | None = None, target: str | None = None, *, id: str | None = None) -> Iterator[Record]:
    """Yield the records with inputs and answers as NumPy arrays.

    Parameters
    ----------
    op : str, optional
        Only records of this operation, such as "grad".
    target : str, optional
        Only records of this target, such as "funnel".
    id : str, optional
        Only the record with this identifier, such as "grad/funnel/0007".

    Yields
    ------
    Record
        A record.

    Examples
    --------
    >>> record = next(refhmc.check.golden_vectors.records("grad", "funnel"))
    >>> record.op, record.target, record.inputs["q"].shape, record.out["grad"].shape
    ('grad', 'funnel', (4,), (4,))
    """
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
    """Return the targets of the records by name.

    Returns
    -------
    dict of str to Target
        Formulas and data of the targets.

    Examples
    --------
    >>> refhmc.check.golden_vectors.targets()["funnel"].dim
    4
    """
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
    """Return hexadecimal strings as floats and lists of numbers as arrays; other values are unchanged."""
    if isinstance(value, str):
        return _real(value) if "0x" in value else value
    if isinstance(value, list) and len({len(row) for row in value if isinstance(row, list)}) > 1:
        return [_numeric(row) for row in value]
    return np.array(_real(value)) if isinstance(value, list) else value


def _answer(value: Any) -> Any:
    """Return decimal strings as a float or an array; counts and lists of names are unchanged."""
    if isinstance(value, str):
        return float(value)
    if isinstance(value, list) and value and _is_decimal(value):
        return np.array(value, dtype=float)
    return value


def _is_decimal(value: Any) -> bool:
    """Return whether nested lists contain only decimal strings."""
    if isinstance(value, list):
        return all(map(_is_decimal, value))
    return isinstance(value, str) and value[-1:].isdigit()


# ---------------------------------------------------------------------------------------------------------- compare


class Finding(NamedTuple):
    """Comparison of one record.

    Parameters
    ----------
    id : str
        Identifier of the record.
    error : float
        Largest error in units of its tolerance.
    field : str
        Field with the largest error.
    fault : str
        Fault in the form of the answer, or an empty string.
    """

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
    """Compare results with the golden vectors.

    The report has one row per operation and target. Its number is the largest error in units of the record's tolerance, and its
    ``case`` the id of the worst record. A correct implementation in the stated precision passes all records; only given
    records and fields are compared.

    Parameters
    ----------
    results : path or iterable of str or dict
        Lines of JSON or dicts of the form ``{"id": ..., "out": {field: numbers}}``; fields may also be next to ``id``.
        Numbers are JSON numbers, or decimal or C99 hexadecimal strings.
    op : str, optional
        Only records of this operation.
    target : str, optional
        Only records of this target.
    precision : {"float64", "float32"}, default "float64"
        Precision in which the results were computed.
    solver_tolerance : float, default 0.0
        Largest distance of an implicit solver's result from the solution.
    name : str, optional
        Name of the subject in the report.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If an option is invalid or there are no such records.

    Examples
    --------
    >>> import numpy as np
    >>> gv = refhmc.check.golden_vectors
    >>> def gradient(q):  # of the funnel: v ~ N(0, 9), x_i | v ~ N(0, exp(-v))
    ...     v, x = q[0], q[1:]
    ...     dv = -v / 9 + len(x) / 2 - np.exp(v) * (x @ x) / 2
    ...     return [dv, *(-np.exp(v) * x)]
    >>> results = [{"id": r.id, "grad": gradient(r.inputs["q"])} for r in gv.records("grad", "funnel")]
    >>> gv.compare(results, op="grad", target="funnel").ok
    True
    """
    if precision not in UNITS:
        raise ValueError(f"precision must be one of {', '.join(UNITS)}; got {precision!r}.")
    if not 0 <= solver_tolerance < math.inf:
        raise ValueError(f"solver_tolerance must be finite and not negative; got {solver_tolerance!r}.")
    given, notes = _read(results)
    groups: dict[tuple, list[Record]] = {}
    for record in records(op, target):
        groups.setdefault((record.op, record.target), []).append(record)
    if not groups:
        raise ValueError(f"op and target must name existing records; got {op!r} and {target!r}.")
    ids = {record.id for group in groups.values() for record in group}
    known = ids if op is target is None else {row["id"] for row in lines()}
    strange = [key for key in given if key not in known]
    if strange:
        notes.append(f"{len(strange)} ids do not belong to any record; first: {strange[0]!r}")
    rows = [
        _row(f"{kind}/{subject}", [r for r in group if r.id in given], len(group), given, precision, solver_tolerance)
        for (kind, subject), group in groups.items()
    ]
    settings = {"precision": precision, "solver_tolerance": solver_tolerance}
    settings |= {key: value for key, value in (("op", op), ("target", target)) if value is not None}
    label = name or (str(results) if isinstance(results, str | pathlib.Path) else "results")
    return Report("golden_vectors", label, settings, 0, tuple(rows), tuple(notes), _diagnosis(rows))


def _read(results: Any) -> tuple[dict, list[str]]:
    """Return the answers by id, and notes on invalid lines."""
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
    texts = ((other, "lines are not answers"), (refused, "questions were answered with an error"))
    return given, [f"{count} {text}" for count, text in texts if count]


def _parsed(item: Any) -> Any:
    """Return a line as JSON; None for an empty line, False for invalid JSON."""
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
    severity = INEFFICIENT if name.split("/")[0] in ADAPTATION else WRONG_DISTRIBUTION
    if worst.fault:
        basis = f"{worst.field}: {worst.fault}; {count}"
        severity = CALL_FAILED if math.isinf(worst.error) else severity
        return Row(name, FAIL, None, None, basis, severity, worst.id)
    status = PASS if worst.error <= 1 else FAIL
    basis = f"{worst.field}; {count}; {BASIS}"
    return Row(name, status, worst.error, 1.0, basis, severity, "" if status == PASS else worst.id)


def _examine(record: Record, out: dict, unit: float, solver_tolerance: float) -> Finding | None:
    """Return the worst field, or None if nothing was given or rounding could change a decision."""
    # An exact zero (the energy error of a chain that stays) may come out as the rounding error of a difference.
    tol = {
        key: unit * (t or EXACT_ZERO) + record.gain.get(key, 0.0) * solver_tolerance for key, t in record.tol.items()
    }
    if record.margin is not None and record.margin <= SAFE_MARGIN * max(tol.values()):
        return None
    found = [_field(record.id, key, value, out[key], tol.get(key)) for key, value in record.out.items() if key in out]
    return max(found, key=lambda f: f.error, default=None)


def _field(id: str, key: str, want: Any, got: Any, tol: float | None) -> Finding:
    """Compare one field: numbers with tolerance ``tol``, counts and names exactly if that is None."""
    if tol is None:
        same = _plain(got) == _plain(want)
        return Finding(id, 0.0 if same else 1e300, key, "" if same else f"{_plain(got)!r:.60} instead of {want!r:.60}")
    try:
        value = np.array(_real(got), dtype=float)
    except (TypeError, ValueError) as error:
        return Finding(id, math.inf, key, f"cannot be read as numbers ({str(error)[:60]})")
    if value.shape != np.shape(want):
        return Finding(id, math.inf, key, f"has shape {value.shape} instead of {np.shape(want)}")
    if not np.isfinite(value).all():
        return Finding(id, 1e300, key, "is not finite")
    return Finding(id, float(np.max(np.abs(value - want), initial=0.0)) / tol, key)


def _real(value: Any) -> Any:
    """Return numbers and strings in nested lists as floats; integers are unchanged."""
    if isinstance(value, str):
        return float.fromhex(value) if "0x" in value.lower() else float(value)
    if isinstance(value, list | tuple):
        return [_real(item) for item in value]
    if isinstance(value, int):
        return value
    return _real(value.tolist()) if hasattr(value, "tolist") else float(value)


def _plain(value: Any) -> Any:
    """Return counts and names in nested lists in one form: 3, 3.0 and "3" are equal, and True is 1."""
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
    """Return the causes that the failures are typical of."""
    failed = [row for row in rows if row.status == FAIL and row.severity != CALL_FAILED]
    numbers = [row.number for row in failed if row.number is not None]
    if not failed:
        return ()
    texts = []
    if len(numbers) == len(failed) and max(numbers) < 16 * UNITS["float32"]:
        low = "an error of single precision: use of a float32 number or constant? (see precision='float32')"
        texts.append("an error slightly above rounding: a formula that loses digits" if max(numbers) < 1e5 else low)
    kinds = {row.name.split("/")[0] for row in failed}
    passed = {row.name.split("/")[0] for row in rows if row.status == PASS} - kinds
    chain = [kind for kind in BUILT_ON if kind in kinds]
    if chain and passed:
        texts.append(f"the first operation to fail is {chain[0]}; check it before those that depend on it")
    return tuple(texts)


# ----------------------------------------------------------------------------------------------------- command line

USAGE = 2
NO_ANSWER = 3


def add_vectors_command(subparsers: Any) -> None:
    """Add the command ``refhmc vectors`` to the command line.

    Parameters
    ----------
    subparsers : argparse subparsers
        Object returned by ``ArgumentParser.add_subparsers``.
    """
    text = "List the golden vectors, export them, or compare a file of results with them."
    command = subparsers.add_parser("vectors", help=text, description=text)
    command.add_argument("action", nargs="?", choices=["summary", "list", "check", "export"], default="summary")
    command.add_argument("file", nargs="?", metavar="FILE", help="for check: JSON lines of results (- for stdin)")
    command.add_argument("--op", help="use only this operation: grad, step, ...")
    command.add_argument("--target", help="use only this target: funnel, banana, ...")
    command.add_argument("--list", action="store_true", dest="ids", help="same as the action list")
    command.add_argument("--questions", action="store_true", help="for export: omit the answers")
    command.add_argument(
        "--precision", choices=list(UNITS), default="float64", help="for check: precision of the results"
    )
    command.add_argument("--solver-tolerance", type=float, default=0.0, help="for check: tolerance of implicit solvers")
    command.add_argument("--json", action="store_true", help="for check: print the report as JSON")
    command.set_defaults(run=run_vectors)


def run_vectors(options: argparse.Namespace) -> int:
    """Run the command ``refhmc vectors``.

    Parameters
    ----------
    options : argparse.Namespace
        Parsed options.

    Returns
    -------
    int
        Exit status: 0 if done or all rows passed, 1 if a row failed, 2 for wrong usage, 3 if nothing could be decided.
    """
    action = "list" if options.ids else options.action
    if (action == "check") != (options.file is not None):
        return _usage("check needs a FILE of results." if action == "check" else f"{action} takes no FILE.")
    chosen = list(lines(options.op, options.target))
    if not chosen:
        return _usage(f"op and target must name existing records; got {options.op!r} and {options.target!r}.")
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
