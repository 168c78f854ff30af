"""Report of a check: one row per property, and a verdict that follows from all rows.

A row has one of four statuses, the measured number, the tolerance and the origin of the tolerance. A FAIL carries the smallest
failing input that was found, as a line of Python to paste, and a severity:

    wrong distribution  a chain built on the code does not have the stated stationary distribution
    inefficient         the distribution is right, but the code does less well than it claims, or does something else
    call failed         the code raised, hung, changed its input, or answered in another shape: it could not be judged there

A report is PASS, FAIL or INCONCLUSIVE. It is PASS only if no row failed and at least one decisive row passed. Decisive rows
(``DECISIVE``) are about the distribution (transition, orbit, grid, sampler, batch, randomness), the map (integrator, leap) or
the function (model, metric). A row in ``OPEN`` without an answer prevents a PASS. A kernel that answers and leaves its inputs
alone has not shown anything about its distribution.

Reports are immutable.
"""

from __future__ import annotations

import json
import math
import operator
from typing import Any, NamedTuple

PASS, FAIL, INCONCLUSIVE, NOT_RUN = "PASS", "FAIL", "INCONCLUSIVE", "NOT RUN"
# Old names of rows, which :meth:`Report.row` still accepts.
OLD_ROWS = {
    "momentum law": "momentum distribution",  # old name
    "law of the draws (KS/AD)": "distribution (KS/AD)",  # old name
    "stationary law as eps -> 0": "stationary as eps -> 0",  # old name
}
WRONG_DISTRIBUTION, INEFFICIENT, CALL_FAILED = "wrong distribution", "inefficient", "call failed"

SCHEMA_VERSION = 3  # of to_json; increases with every change that a reader has to know

CONDUCT = "inputs left alone"  # the last row of every report
# Conditions for judging anything: passing only these does not show that the code is right.
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
# Rows about the distribution, the map or the function, by check. Other checks: all rows except the preconditions.
DECISIVE: dict[str, frozenset[str]] = {
    check: frozenset(names.split("; "))
    for check, names in {
        "transition": "detailed balance; stationarity",
        "orbit": "invariance; invariance at large steps; invariance across a wall; invariance, sampled; kept momentum",
        "leap": "reverse defined; same choice; reversible; declared Jacobian",
        "grid": "irreducible; aperiodic; invariance",
        "coupling": "first margin; second margin",
        "tempering": "stationary; log Z",
        "stopping": "effective sample size; R-hat; standard error",
        "sampler": "stationarity (e-value); distribution (KS/AD)",
        "batch": "alone equals batch; order of chains; divergent neighbour; streams independent; decisions independent",
        "randomness": "one use of each number; key reuse",
        "integrator": "reversible; symplectic; volume; order; small step; elapsed time; energy; shadow energy; invariants",
        "model": "gradient; gradient at asymmetric points; gradient at large points; gradient precision; hessian; "
        "third derivative; trace; metric; metric derivative; metric trace; support; change; normaliser; exact draws",
        "metric": "positive definite; derivative; derivative at asymmetric points; derivative at degenerate points; log det; "
        "inverse product; kinetic energy; energy; velocity; force; momentum distribution",
        "minibatch": "mean over batches; sum of the parts; sum of the potentials; gradients of the parts; "
        "stationary as eps -> 0",
        "sbc": "ranks; ranks that see the data",
        "transition_with_data": "stationarity; ranks",
    }.items()
}
# Rows that prevent a PASS while they have no answer, by check.
OPEN: dict[str, frozenset[str]] = {
    "adaptation": frozenset({"frozen after warm-up"}),
    "transition_with_data": frozenset({"ranks"}),
}

VERDICTS = {
    WRONG_DISTRIBUTION: "FAIL (wrong distribution): a chain built on it does not have the stated stationary distribution.",
    INEFFICIENT: "FAIL (not the claimed method; the draws would still be right).",
}


class ConformanceError(AssertionError):
    """Report with a failure, raised by :meth:`Report.assert_ok`; the message is the printed report."""


class InconclusiveError(ConformanceError):
    """Report without a failure that is not a PASS either, raised by :meth:`Report.assert_ok`."""


class Row(NamedTuple):
    """Result for one property.

    Parameters
    ----------
    name : str
        Name of the property. Names are stable, so that programs can read them.
    status : str
        "PASS", "FAIL", "INCONCLUSIVE" or "NOT RUN".
    number : float or None
        Measured number.
    tolerance : float or None
        Tolerance that `number` is compared with.
    basis : str
        Origin of the tolerance, or the reason why the row has no answer or was not run.
    severity : str
        Meaning of a FAIL: "wrong distribution", "inefficient" or "call failed". Rows that pass have it too.
    case : str
        Smallest failing input as Python text.
    relation : str
        Relation of `number` to `tolerance` in a row that passes: "<=", "<", ">=" or ">".

    Examples
    --------
    >>> print(refhmc.check.Row("reversible", "PASS", 3e-16, 4e-14, "64 ulp"))
      reversible                   PASS         3e-16 <= 4e-14 (64 ulp)
    """

    name: str
    status: str
    number: float | None = None
    tolerance: float | None = None
    basis: str = ""
    severity: str = WRONG_DISTRIBUTION
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


RELATIONS = {"<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}


def holds(number: float, relation: str, tolerance: float) -> bool:
    """Return whether ``number relation tolerance`` is true; it never is for NaN."""
    return RELATIONS[relation](number, tolerance)


def not_run(name: str, why: str) -> Row:
    """Return a row that was not run, with the reason."""
    return Row(name, NOT_RUN, basis=why)


def inconclusive(name: str, why: str, number: float | None = None) -> Row:
    """Return a row without an answer, with the reason."""
    return Row(name, INCONCLUSIVE, number, basis=why)


class Report(NamedTuple):
    """Result of one check.

    Printing it shows the table of rows, the smallest failing cases, the diagnosis, the false-alarm rate and the verdict. A
    report is PASS only if no row failed and at least one decisive row passed (see :meth:`decides`).

    Parameters
    ----------
    check : str
        Name of the check, such as "integrator".
    subject : str
        Name of the examined code.
    settings : dict
        Settings that the check used.
    seed : int
        Seed of all random numbers of the check.
    rows : tuple of Row
        One row per property.
    notes : tuple of str
        Properties that were detected, such as conventions and precision.
    diagnosis : tuple of str
        Faults that the pattern of rows is typical of.
    false_alarm : str
        Chance that correct code fails, in words.

    Examples
    --------
    >>> report = refhmc.check.model(lambda q: -0.5 * q @ q, lambda q: -q, dim=2)
    >>> report.ok, report.status, report.failures
    (True, 'PASS', [])
    >>> report.row("gradient").status
    'PASS'
    """

    check: str
    subject: str
    settings: dict
    seed: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    diagnosis: tuple[str, ...] = ()
    false_alarm: str = "deterministic checks: correct code passes with every seed"

    @property
    def status(self) -> str:
        """Status of the report: "PASS", "FAIL" or "INCONCLUSIVE"."""
        if self.failures:
            return FAIL
        return PASS if self._decided and not self._open else INCONCLUSIVE

    @property
    def ok(self) -> bool:
        """Whether :attr:`status` is "PASS"."""
        return self.status == PASS

    def decides(self, row: Row) -> bool:
        """Return whether a row is about the distribution, the map or the function that this check examines.

        Parameters
        ----------
        row : Row
            Row of this report.

        Returns
        -------
        bool
            Whether a PASS of this row suffices for a PASS of the report if no row failed.
        """
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
        """Rows with status "FAIL"."""
        return [row for row in self.rows if row.status == FAIL]

    @property
    def inconclusive(self) -> list[Row]:
        """Rows with status "INCONCLUSIVE"."""
        return [row for row in self.rows if row.status == INCONCLUSIVE]

    @property
    def not_run(self) -> list[Row]:
        """Rows with status "NOT RUN"."""
        return [row for row in self.rows if row.status == NOT_RUN]

    def row(self, name: str) -> Row:
        """Return the row of a given name.

        Parameters
        ----------
        name : str
            Name of a row.

        Returns
        -------
        Row
            The first row of that name.

        Raises
        ------
        KeyError
            If there is no such row; the message lists the names.
        """
        if name in OLD_ROWS:
            from refhmc.check.own import warn_of_old_name

            warn_of_old_name(f"Row {name!r}", repr(OLD_ROWS[name]))
            name = OLD_ROWS[name]
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(
            f"name must be a row of this report; got {name!r}. Rows: {', '.join(row.name for row in self.rows)}."
        )

    @property
    def severity(self) -> str | None:
        """Worst severity of the failures, or None if no row failed."""
        found = {row.severity for row in self.failures}
        return next((s for s in (WRONG_DISTRIBUTION, CALL_FAILED, INEFFICIENT) if s in found), None)

    @property
    def verdict(self) -> str:
        """Conclusion from all rows in one or two sentences; it names rows without an answer."""
        open_rows = (
            f" Without an answer: {', '.join(row.name for row in self.inconclusive)}." if self.inconclusive else ""
        )
        if self.severity == INEFFICIENT and not self._decided:
            said = "FAIL (not the claimed method; whether the draws would be right could not be decided)."
        elif self.severity == CALL_FAILED:
            row = next(row for row in self.failures if row.severity == CALL_FAILED)
            said = f"FAIL (a call did not work): {row.name}: {row.basis}."
        elif self.severity is not None:
            said = VERDICTS[self.severity]
        elif self.ok:
            passed, left = sum(row.status == PASS for row in self.rows), len(self.not_run)
            said = f"PASS: {passed} rows" + (f" ({left} not run)." if left else ".")
        elif self._decided:
            said = "INCONCLUSIVE: no check failed, but a required check could not be decided."
        else:
            said = "INCONCLUSIVE: no check failed, but no decisive row passed."
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

    def explain(self) -> str:
        """Return the report in words: what is wrong, the smallest case, the likely cause, and where to read about it.

        Returns
        -------
        str
            The verdict and, for a FAIL, up to four lines: the most serious failed row with what must hold, the smallest case
            with the expected and the obtained value, the likely cause, and a section of the book.

        Examples
        --------
        >>> def leapfrog(q, p, eps, n):  # the position moves by half a step
        ...     for _ in range(n):
        ...         p = p - eps / 2 * q
        ...         q = q + eps / 2 * p
        ...         p = p - eps / 2 * q
        ...     return q, p
        >>> report = refhmc.check.integrator(leapfrog, lambda q, p: (q @ q + p @ p) / 2, dim=1)
        >>> print(report.explain().splitlines()[-2])
        Likely cause: the drift uses eps/2 instead of eps.
        """
        from refhmc.check.explanation import explain

        return explain(self)

    def to_json(self) -> str:
        """Return the report as a JSON object.

        It has the fields of the report, and ``status``, ``ok``, ``severity`` and ``verdict``. ``schema_version`` is the
        version of this format and ``kit_version`` the version of refhmc. Each row has the field ``decides`` (see
        :meth:`decides`). Numbers that are not finite are strings.

        Returns
        -------
        str
            The JSON, on one line.
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
        """Raise an error with the printed report unless the status is PASS.

        Parameters
        ----------
        strict : bool, default False
            Whether to reject a report in which any row is INCONCLUSIVE, even if the status is PASS.

        Raises
        ------
        ConformanceError
            If a row failed.
        InconclusiveError
            If no row failed and the status is INCONCLUSIVE, or `strict` and a row is.
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
