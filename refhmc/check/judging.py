"""From measurements to rows: find the worst case of a property and judge it.

A row is a function of its examination. It returns one or several objects :class:`~refhmc.check.report.Row`, or it yields cases

    error    in some unit      allowed    in the same unit      case    as Python text, or a function that finds one

and returns its basis in words. The case with the largest error / allowed is judged, and simplified if it fails.
The name and the default severity of a row are in the table of its check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Mapping
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.report import FAIL, PASS, Row, holds
from refhmc.check.subject.foreign import Inconclusive, OutOfTime


class Measured(NamedTuple):
    """One case: its error, the allowed error, and the case itself, which is evaluated only if it fails."""

    error: float
    allowed: float
    case: str | Callable[[], str] = ""

    @property
    def ratio(self) -> float:
        """The ratio error / allowed; infinite for NaN, and for any error if none is allowed."""
        if self.error == 0:
            return 0.0
        ratio = float(self.error) / float(self.allowed) if self.allowed else math.inf
        return math.inf if math.isnan(ratio) else ratio


Cases = Generator[Measured, None, str]  # what a row yields and returns


def causes(failed: Collection[str], typical: Mapping[str, str]) -> list[str]:
    """Return the sentences of ``typical`` on the rows that ``failed``, each once."""
    return list(dict.fromkeys(text for row, text in typical.items() if row in failed))


def worst_of(cases: Cases) -> Row:
    """Return the row of the worst case; raise Inconclusive if there are no cases."""
    basis = ""

    def seen() -> Generator[Measured, None, None]:
        nonlocal basis
        basis = yield from cases

    found = max(seen(), key=lambda case: case.ratio, default=None)
    if found is None:
        raise Inconclusive("no finite answer")
    return judged(found.error, found.allowed, basis, found.case)


def judged(
    number: float,
    tolerance: float,
    basis: str,
    case: str | Callable[[], str] = "",
    *,
    relation: str = "<=",
    severity: str = "",
) -> Row:
    """Return a row that passes if ``number relation tolerance``; NaN fails."""
    measured: dict[str, Any] = {"number": float(number), "tolerance": float(tolerance), "relation": relation}
    if holds(number, relation, tolerance):
        return passed(basis, **measured)
    return failed(basis, case if isinstance(case, str) else case(), severity=severity, **measured)


def passed(basis: str = "", number: float | None = None, tolerance: float | None = None, relation: str = "<=") -> Row:
    """Return a row that passes."""
    return Row("", PASS, number, tolerance, basis, "", relation=relation)


def failed(
    basis: str,
    case: str = "",
    number: float | None = None,
    tolerance: float | None = None,
    *,
    relation: str = "<=",
    severity: str = "",
) -> Row:
    """Return a row that fails; an empty `severity` means that of the check's table."""
    return Row("", FAIL, number, tolerance, basis, severity, case, relation)


def simplest(q: np.ndarray, fails: Callable[[np.ndarray], bool], most: int = 60) -> np.ndarray:
    """Return a simpler point that still fails; coordinates become 0, 1, -1, an integer, or have two digits."""
    q, tries = np.array(q, dtype=float), 0

    def still(new: np.ndarray) -> bool:
        nonlocal tries
        tries += 1
        try:
            return tries <= most and fails(new)
        except (Exception, OutOfTime):  # a different failure from the one to show
            return False

    for new in (np.zeros_like(q), np.ones_like(q), np.round(q)):
        if still(new):
            q = new
            break
    for k in range(len(q)):
        for value in (0.0, 1.0, -1.0, 2.0, np.round(q[k]), float(f"{q[k]:.1e}")):
            if value == q[k]:  # already as simple as possible
                break
            new = q.copy()
            new[k] = value
            if abs(value) <= max(2.0, abs(q[k])) and still(new):
                q = new
                break
    return q
