"""What a check says: one row a property, and from all rows a verdict.

A row has one of four statuses, the number that was measured, the tolerance it was held against and where that came from.
A FAIL carries the smallest failing input that was found, as a line of Python to paste, and how grave it is:

    wrong law       a chain built on it does not have the law it should
    inefficient     the law is right; the code does less well, or other than, what it says
    misconduct      it raised, hung, changed its input, or answered in another shape: it could not be judged there

A report as a whole is PASS, FAIL or INCONCLUSIVE. It is PASS only if nothing failed and at least one row passed that is about
what was asked: the law (transition, orbit, sampler, batch, randomness), the map (integrator) or the function (model, metric).
Those rows are ``DECISIVE``; where one of ``OPEN`` has no answer there is no PASS. That a kernel answers, and leaves its inputs
alone, says nothing of its law.

A report is a value: nothing in it changes after it was made.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

PASS, FAIL, INCONCLUSIVE, NOT_RUN = "PASS", "FAIL", "INCONCLUSIVE", "NOT RUN"
WRONG_LAW, INEFFICIENT, MISCONDUCT = "wrong law", "inefficient", "misconduct"

SCHEMA_VERSION = 1  # of to_json; a change that a reader must know of has the next number

CONDUCT = "inputs left alone"  # the row every report ends with
# What must hold before anything can be judged: to pass these alone is not to be right.
PRECONDITIONS = frozenset(
    {
        CONDUCT,
        "answers",
        "deterministic given randomness",
        "leap reversible",
        "conduct of the kernel",
        "conduct of the fit",
    }
)
# By check, the rows about the law, the map or the function. Of a check that is not here: all but the preconditions.
DECISIVE: dict[str, frozenset[str]] = {
    check: frozenset(names.split("; "))
    for check, names in {
        "transition": "detailed balance; stationarity",
        "orbit": "invariance; invariance at large steps; invariance across a wall; invariance, sampled",
        "sampler": "stationarity (e-value); law of the draws (KS/AD)",
        "batch": "alone equals batch; order of chains; divergent neighbour; streams independent; decisions independent",
        "randomness": "one use of each number",
        "integrator": "reversible; symplectic; volume; order; small step; elapsed time; energy; shadow energy; invariants",
        "model": "gradient; gradient at asymmetric points; gradient at large points; gradient precision; hessian; "
        "third derivative; trace; metric; metric derivative; metric trace; support; change; normaliser; exact draws",
        "metric": "positive definite; derivative; derivative at asymmetric points; derivative at degenerate points; log det; "
        "inverse product; kinetic energy; energy; velocity; force; momentum law",
        "minibatch": "mean over batches; sum of the parts; sum of the potentials; gradients of the parts; "
        "stationary law as eps -> 0",
        "sbc": "ranks; ranks that see the data",
    }.items()
}
# By check, rows that are open questions as long as they have no answer, whatever else has passed.
OPEN: dict[str, frozenset[str]] = {"adaptation": frozenset({"frozen after warm-up"})}

VERDICTS = {
    WRONG_LAW: "WRONG LAW: a chain built on it does not have the law it should.",
    MISCONDUCT: "MISCONDUCT: it raised, hung, changed its input or answered in another shape; see the rows.",
    INEFFICIENT: "EXACT BUT INEFFICIENT: a chain built on it has the right law; it is not what it says it is.",
}


class ConformanceError(AssertionError):
    """Raised by :meth:`Report.assert_ok`; the message is the printed report."""


class InconclusiveError(ConformanceError):
    """Nothing failed, but the report is no PASS: raised by :meth:`Report.assert_ok` in place of its base class."""


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
    def status(self) -> str:
        """FAIL if a row failed, PASS if none did and a row that :meth:`decides` passed, else INCONCLUSIVE."""
        if self.failures:
            return FAIL
        return PASS if self._decided and not self._open else INCONCLUSIVE

    @property
    def ok(self) -> bool:
        """Whether the status is PASS."""
        return self.status == PASS

    def decides(self, row: Row) -> bool:
        """Whether ``row`` is about the law, the map or the function that this check is about."""
        if self.check in DECISIVE:
            return row.name in DECISIVE[self.check]
        return row.name not in PRECONDITIONS

    @property
    def _decided(self) -> bool:
        return any(row.status == PASS and self.decides(row) for row in self.rows)

    @property
    def _open(self) -> bool:
        return any(row.status == INCONCLUSIVE and row.name in OPEN.get(self.check, ()) for row in self.rows)

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
        """What the rows come to; those without an answer are named."""
        open_rows = (
            f" Without an answer: {', '.join(row.name for row in self.inconclusive)}." if self.inconclusive else ""
        )
        if self.severity == INEFFICIENT and not self._decided:
            said = "INEFFICIENT: it is not what it says it is; whether its law is right could not be decided."
        elif self.severity is not None:
            said = VERDICTS[self.severity]
        elif self.ok:
            passed, left = sum(row.status == PASS for row in self.rows), len(self.not_run)
            said = f"PASS: {passed} rows" + (f" ({left} not run)." if left else ".")
        elif self._decided:
            said = "INCONCLUSIVE: nothing failed, and what has to be answered is not."
        else:
            said = "INCONCLUSIVE: nothing failed, and no row that could decide has passed."
        return said + open_rows

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
        """The report as one JSON object; numbers that are not finite are strings.

        ``status`` is "PASS", "FAIL" or "INCONCLUSIVE", ``decides`` of a row what :meth:`decides` says, ``schema_version`` the
        version of this form, ``kit_version`` that of refhmc.
        """
        from refhmc import __version__

        plain = {
            "schema_version": SCHEMA_VERSION,
            "kit_version": __version__,
            **self._asdict(),
            "rows": [{**row._asdict(), "decides": self.decides(row)} for row in self.rows],
            "status": self.status,
            "ok": self.ok,
            "severity": self.severity,
            "verdict": self.verdict,
        }
        return json.dumps(_jsonable(plain))

    def assert_ok(self, strict: bool = False) -> None:
        """Raise :class:`ConformanceError` with the printed report where a row failed, :class:`InconclusiveError` where the
        status is INCONCLUSIVE; with ``strict`` also where a single row is.
        """
        if self.failures:
            raise ConformanceError("\n" + str(self))
        if not self.ok or (strict and self.inconclusive):
            raise InconclusiveError("\n" + str(self))


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if hasattr(value, "tolist"):
        return _jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
