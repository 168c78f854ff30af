"""Equivariance of a transition under a change of units, for ``check.transition`` and ``check.orbit``.

With A = diag(a), a transition on the density pi'(y) = pi(A^-1 y) with inverse mass A M^-1 A, from (A q, A^-1 p) and on the same
random numbers, must end at A q', where q' is the end from (q, p). Here M = 1 and every a_i is a power of two, so that both
computations have the same rounding errors, and a correct tree has the same states. The distribution may be right without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from refhmc.check.judging import failed, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable

POWERS = (3, -2, 1, -3, 2, -1)  # of two, one per coordinate
FEW = 3  # number of different ends that is a failure; fewer may be due to rounding
RUNS = 100


def factors(d: int) -> np.ndarray:
    """Return the diagonal of A."""
    return 2.0 ** np.resize(POWERS, d)


def made(make: Callable | None, log_density: Callable | None, gradient: Callable | None, a: np.ndarray) -> Callable:
    """Return ``make``'s transition for pi' and its inverse mass; NotApplicable without a density and its gradient."""
    if make is None or log_density is None or gradient is None:
        raise NotApplicable("needs make(log_density, gradient, inverse_mass), a log density and its gradient")
    density, slope = log_density, gradient
    return make(lambda y: density(y / a), lambda y: slope(y / a) / a, a * a)


def equivariant(ends: Iterable[tuple[np.ndarray, np.ndarray, str]], a: np.ndarray) -> Row:
    """Judge pairs of ends (q', y') with their calls: y' must be A q'."""
    apart, runs = [], 0
    for end, other, case in ends:
        runs += 1
        gap = float(np.abs(other / a - end).max() / (1 + np.abs(end).max()))
        if not gap <= 1e-6:
            apart.append((case, gap))
    basis = f"ends of {runs} transitions that differ after a change of units by powers of two; rounding"
    if not runs:
        raise NotApplicable("there was no transition to compare")
    if not apart:
        return passed(basis, 0.0, 0.0)
    if len(apart) < FEW:
        raise Inconclusive(f"{len(apart)} of {runs} ends differ, perhaps by rounding")
    return failed(basis, f"{apart[0][0]}  # a={a.tolist()}", len(apart), 0.0)
