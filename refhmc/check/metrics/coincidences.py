"""Points at which a derivative by divided differences needs care.

A metric G = Q f(L) Q' with an even f, such as SoftAbs of a Hessian Q L Q', has the derivative

    dG = Q (J * Q' dH Q) Q',    J_ij = (f_i - f_j) / (l_i - l_j)

For l_i = l_j the quotient is 0/0 and is replaced by its limit f'(l_i). For l_i = -l_j it is 0, since f_i = f_j. Points of
the first kind are found by a simplex search, those of the second on lines, where the sum l_i + l_j changes its sign. If no
Hessian is given, f_i = f_j is searched instead, in the eigenvalues of G.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
import scipy.optimize

from refhmc.check.metrics.examination import MetricExamination

SAME = 1e-9  # eigenvalues with a smaller relative difference are equal
LINES, STEPS = 16, 16  # number of lines to search, and of points on each


def gap(s: MetricExamination, q: np.ndarray) -> float:
    """Return the least relative gap between eigenvalues of G or of the Hessian."""
    gaps = [np.inf]
    for key in ("G", "hessian"):
        values = _eigenvalues(s, key, q) if key in s.functions else np.zeros(1)
        if len(values) > 1 and np.isfinite(values).all():
            gaps.append(float(np.diff(values).min()))
    return min(gaps)


def equal_eigenvalues(s: MetricExamination) -> list[np.ndarray]:
    """Return simple points where two eigenvalues are equal, and points from a simplex search if those are too few."""
    equal = [q for q in s.simple if s.good(q) and gap(s, q) <= SAME]
    if len(equal) >= 2:
        return equal
    options = {"maxfev": 300, "xatol": 1e-14, "fatol": 1e-16}

    def objective(q: np.ndarray) -> float:
        return min(gap(s, q), 1e3) if s.good(q) else 1e3

    ends = (
        scipy.optimize.minimize(objective, start, method="Nelder-Mead", options=options) for start in s.test_points(3)
    )
    return equal + [np.asarray(end.x) for end in ends if end.fun <= SAME]


def opposite_eigenvalues(s: MetricExamination, most: int = 4) -> list[np.ndarray]:
    """Return at most ``most`` points where two eigenvalues of the Hessian are l and -l, from lines between test points."""
    rng = np.random.default_rng([s.seed, 7])
    places = [q for q in (*s.test_points(8), *s.simple) if s.good(q)]
    cross = _sign_changes if "hessian" in s.functions else _touching
    found: list[np.ndarray] = []
    for _ in range(LINES if len(places) > 1 else 0):
        a, b = (places[k] for k in rng.choice(len(places), 2, replace=False))
        start, way = a - 0.5 * (b - a), 2.0 * (b - a)
        found += [q for t in cross(s, start, way) if s.good(q := start + t * way)][:1]
        if len(found) == most:
            break
    return found


def _eigenvalues(s: MetricExamination, key: str, q: np.ndarray) -> np.ndarray:
    """Return the ascending eigenvalues in units of the largest; NaN if the matrix is not finite."""
    T = s.at(key)(q)
    if not np.isfinite(T).all():
        return np.full(len(T), np.nan)
    values = np.linalg.eigvalsh(0.5 * (T + T.T))
    return values / max(np.abs(values).max(), 1e-300)


def _sign_changes(s: MetricExamination, start: np.ndarray, way: np.ndarray) -> Iterator[float]:
    """Yield the t at which two eigenvalues of the Hessian at start + t way are opposite and not zero."""

    def eigenvalues(t: float) -> np.ndarray:
        return _eigenvalues(s, "hessian", start + t * way)

    grid = np.linspace(0.0, 1.0, STEPS)
    on_grid = np.array([eigenvalues(t) for t in grid])
    for i, j in combinations(range(s.dim), 2):
        sums = on_grid[:, i] + on_grid[:, j]
        for k in np.flatnonzero(sums[:-1] * sums[1:] < 0):
            if np.abs(on_grid[k : k + 2, i]).min() < 1e-3:
                continue

            def total(t: float, i: int = i, j: int = j) -> float:
                values = eigenvalues(t)
                return float(values[i] + values[j])

            yield scipy.optimize.brentq(total, grid[k], grid[k + 1], xtol=1e-16, rtol=1e-15)


def _touching(s: MetricExamination, start: np.ndarray, way: np.ndarray) -> Iterator[float]:
    """Yield the t at which two eigenvalues of G at start + t way meet like |t - t_0|, by secants from one side."""
    grid = np.linspace(0.0, 1.0, STEPS)
    gaps = np.diff([_eigenvalues(s, "G", start + t * way) for t in grid], axis=1)
    for i in range(s.dim - 1):

        def between(t: float, i: int = i) -> float:
            return float(np.diff(_eigenvalues(s, "G", start + t * way))[i])

        for k in range(1, STEPS - 1):
            if gaps[k, i] < min(gaps[k - 1, i], gaps[k + 1, i]) and gaps[k - 1, i] > 1e-6:
                t = _secant(between, grid[k - 1], grid[k])
                if t is not None and _crosses(between, t):
                    yield t


def _crosses(between: Callable[[float], float], t: float, h: float = 1e-4) -> bool:
    """Return whether the function grows linearly on both sides of its zero t, so that it crosses instead of touching."""
    ratios = [between(t + sign * h) / max(between(t + 0.5 * sign * h), 1e-300) for sign in (1.0, -1.0)]
    return all(1.8 < ratio < 2.2 for ratio in ratios)


def _secant(between: Callable[[float], float], a: float, b: float) -> float | None:
    """Return the zero of a function that is positive on both sides of it; None if the steps do not converge."""
    at_a, at_b = between(a), between(b)
    for _ in range(30):
        if not (np.isfinite([at_a, at_b]).all() and 0 < b < 1):
            return None
        if at_b <= 1e-14:
            return b
        # Beyond the zero the gap grows again and counts as negative.
        candidates = [b - at_b * (b - a) / (sign * at_b - at_a) * sign for sign in (1.0, -1.0) if sign * at_b != at_a]
        values = [between(t) for t in candidates]
        k = int(np.argmin(np.nan_to_num(values, nan=np.inf)))
        if not values[k] < at_b:
            return b if at_b <= SAME else None
        a, at_a, b, at_b = b, at_b, candidates[k], values[k]
    return None
