"""Equivariance of a transition under a linear change of units, for ``check.transition`` and ``check.orbit``.

A transition on the density pi'(y) = pi(A^-1 y) with inverse mass A M^-1 A', from (A q, A'^-1 p) and on the same random numbers,
must end at A q', where q' is the end from (q, p). Here M = 1. The distribution may be right without it.

    diagonal A    every a_i is a power of two, so that both computations have the same rounding errors
    dense A       the same times a shear, for a kernel that takes an inverse mass matrix; only rounding differs
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


def changes(d: int, dense: bool) -> list[np.ndarray]:
    """Return the diagonal of A, shape (d,), and with ``dense`` a matrix A too, each row of which adds the coordinate before."""
    a = 2.0 ** np.resize(POWERS, d)
    return [a, a[:, None] * (np.eye(d) + np.eye(d, k=-1))] if dense else [a]


def times(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return A x for the diagonal, or the matrix, ``a``."""
    return a * x if a.ndim == 1 else a @ x


def inverse(a: np.ndarray) -> np.ndarray:
    """Return A^-1 in the form of ``a``."""
    return 1 / a if a.ndim == 1 else np.linalg.inv(a)


def made(make: Callable | None, log_density: Callable | None, gradient: Callable | None, a: np.ndarray) -> Callable:
    """Return ``make``'s transition for pi' and its inverse mass; NotApplicable without a density and its gradient."""
    if make is None or log_density is None or gradient is None:
        raise NotApplicable("needs make(log_density, gradient, inverse_mass), a log density and its gradient")
    density, slope, back = log_density, gradient, inverse(a)
    return make(lambda y: density(times(back, y)), lambda y: times(back.T, slope(times(back, y))), times(a, a.T))


def equivariant(ends: Iterable[tuple[np.ndarray, np.ndarray, str]], a: np.ndarray) -> Row:
    """Judge pairs of ends (q', y') with their calls: y' must be A q'."""
    apart, runs, back = [], 0, inverse(a)
    for end, other, case in ends:
        runs += 1
        gap = float(np.abs(times(back, other) - end).max() / (1 + np.abs(end).max()))
        if not gap <= 1e-6:
            apart.append((case, gap))
    change = "a change of units by powers of two" if a.ndim == 1 else "a linear change of coordinates"
    basis = f"ends of {runs} transitions that differ after {change}; rounding"
    if not runs:
        raise NotApplicable("there was no transition to compare")
    if not apart:
        return passed(basis, 0.0, 0.0)
    if len(apart) < FEW:
        raise Inconclusive(f"{len(apart)} of {runs} ends differ, perhaps by rounding")
    return failed(basis, f"{apart[0][0]}  # a={a.tolist()}", len(apart), 0.0)
