"""What a check says: one row a property, and from all rows a verdict.

A row has one of four statuses, the number that was measured, the tolerance it was held against and where that came from.
A FAIL carries the smallest failing input that was found, as a line of Python to paste, and how grave it is:

    wrong law       a chain built on it does not have the law it should
    inefficient     the law is right; the code does less well, or other than, what it says
    misconduct      it raised, hung, changed its input, or answered in another shape: it could not be judged there

A report is a value: nothing in it changes after it was made.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

PASS, FAIL, INCONCLUSIVE, NOT_RUN = "PASS", "FAIL", "INCONCLUSIVE", "NOT RUN"
WRONG_LAW, INEFFICIENT, MISCONDUCT = "wrong law", "inefficient", "misconduct"

CONDUCT = "inputs left alone"  # the row every report ends with
# What must hold before anything can be judged: to pass these alone is not to be right.
PRECONDITIONS = frozenset({CONDUCT, "answers", "deterministic given randomness", "leap reversible"})

VERDICTS = {
    WRONG_LAW: "WRONG LAW: a chain built on it does not have the law it should.",
    MISCONDUCT: "MISCONDUCT: it raised, hung, changed its input or answered in another shape; see the rows.",
    INEFFICIENT: "EXACT BUT INEFFICIENT: a chain built on it has the right law; it is not what it says it is.",
}


class ConformanceError(AssertionError):
    """Raised by :meth:`Report.assert_ok`; the message is the printed report."""


class Row(NamedTuple):
    """One property: ``number`` is what was measured, ``relation`` how it stands to ``tolerance`` where it passes.

    ``basis`` says where the tolerance came from, or why the row was not run or has no answer. ``case`` is the smallest
    failing input as Python text. ``severity`` is what a FAIL means; it is kept on every row.
    """

    name: str
    status: str
    number: float | None = None
    tolerance: float | None = None
    basis: str = ""
    severity: str = WRONG_LAW
    case: str = ""
    relation: str = "<="

    def __str__(self) -> str:
        measured = "" if self.number is None else f"{self.number:.3g}"
        if self.tolerance is not None and self.number is not None:
            opposite = {"<=": ">", ">=": "<", "<": ">=", ">": "<="}
            passes = holds(self.number, self.relation, self.tolerance)
            measured += f" {self.relation if passes else opposite.get(self.relation, '>')} {self.tolerance:.3g}"
        basis = f"({self.basis})" if self.basis else ""
        return f"  {self.name:<28s} {self.status:<12s} {' '.join(x for x in (measured, basis) if x)}".rstrip()


def holds(number: float, relation: str, tolerance: float) -> bool:
    """Whether ``number relation tolerance``; never for NaN."""
    return {
        "<=": number <= tolerance,
        "<": number < tolerance,
        ">=": number >= tolerance,
        ">": number > tolerance,
    }[relation]


def judged(name: str, number: float, tolerance: float, basis: str = "", *, relation: str = "<=", **more: Any) -> Row:
    """A row that passes if ``number relation tolerance``; NaN fails."""
    status = PASS if holds(number, relation, tolerance) else FAIL
    if status == PASS:
        more.pop("case", None)
    return Row(name, status, float(number), float(tolerance), basis, relation=relation, **more)


def not_run(name: str, why: str) -> Row:
    """A row that was not run, and why."""
    return Row(name, NOT_RUN, basis=why)


def inconclusive(name: str, why: str, number: float | None = None) -> Row:
    """A row that has no answer, and why."""
    return Row(name, INCONCLUSIVE, number, basis=why)


class Report(NamedTuple):
    """What one check found; printing it shows the table, the smallest case, the diagnosis and the verdict.

    ``check`` is its name ("integrator"), ``subject`` what was examined, ``settings`` what it was given, ``notes`` what was
    detected (conventions, precision), ``diagnosis`` what the pattern of rows is typical of, ``false_alarm`` the chance that a
    correct subject fails, in words.
    """

    check: str
    subject: str
    settings: dict
    seed: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    diagnosis: tuple[str, ...] = ()
    false_alarm: str = "deterministic checks: a correct subject passes whatever the seed"

    @property
    def ok(self) -> bool:
        """No row failed, and something was found right (that it answers, and leaves its inputs alone, is not enough)."""
        return not self.failures and any(row.status == PASS and row.name not in PRECONDITIONS for row in self.rows)

    @property
    def failures(self) -> list[Row]:
        """The rows that failed."""
        return [row for row in self.rows if row.status == FAIL]

    @property
    def inconclusive(self) -> list[Row]:
        """The rows without an answer."""
        return [row for row in self.rows if row.status == INCONCLUSIVE]

    @property
    def not_run(self) -> list[Row]:
        """The rows that were not run."""
        return [row for row in self.rows if row.status == NOT_RUN]

    def row(self, name: str) -> Row:
        """The row of that name; KeyError if there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no row {name!r}; there are: {', '.join(row.name for row in self.rows)}")

    @property
    def severity(self) -> str | None:
        """The gravest of the failures, None where there are none."""
        found = {row.severity for row in self.failures}
        return next((s for s in (WRONG_LAW, MISCONDUCT, INEFFICIENT) if s in found), None)

    @property
    def verdict(self) -> str:
        """One line: what the rows come to."""
        of_law = {row.status for row in self.rows if row.severity == WRONG_LAW and row.name not in PRECONDITIONS}
        if self.severity == INEFFICIENT and PASS not in of_law and INCONCLUSIVE in of_law:
            return "INEFFICIENT: it is not what it says it is; whether its law is right could not be decided."
        if self.severity is not None:
            return VERDICTS[self.severity]
        if not self.ok:
            return "INCONCLUSIVE: nothing could be decided."
        parts = [
            f"{len(r)} {what}" for r, what in ((self.inconclusive, "without an answer"), (self.not_run, "not run")) if r
        ]
        passed = sum(row.status == PASS for row in self.rows)
        return f"PASS: {passed} rows" + (f" ({', '.join(parts)})." if parts else ".")

    def __str__(self) -> str:
        settings = "  ".join(f"{key} {_short(value)}" for key, value in self.settings.items())
        lines = [f"refhmc check.{self.check}  {self.subject}  {settings}  seed {self.seed}"]
        lines += [str(row) for row in self.rows]
        lines += [f"  note: {note}" for note in self.notes]
        cases = list(dict.fromkeys(row.case for row in self.failures if row.case))
        lines += [f"  smallest case: {case}" for case in cases[:4]]
        lines += [f"  likely: {text}" for text in self.diagnosis]
        lines += [f"  false alarm: {self.false_alarm}", f"VERDICT: {self.verdict}"]
        return "\n".join(lines)

    def to_json(self) -> str:
        """The report as one JSON object; numbers that are not finite are strings."""
        plain = {
            **self._asdict(),
            "rows": [row._asdict() for row in self.rows],
            "ok": self.ok,
            "severity": self.severity,
            "verdict": self.verdict,
        }
        return json.dumps(_jsonable(plain))

    def assert_ok(self) -> None:
        """Raise :class:`ConformanceError` with the printed report unless :attr:`ok`."""
        if not self.ok:
            raise ConformanceError("\n" + str(self))


def _short(value) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _jsonable(value):
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return _jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
