"""Symmetry and definiteness of a metric: at ordinary, simple, tiny and far points, and on lines between them.

The least eigenvalue is that of G with its diagonal scaled to one, so that coordinates of different units do not hide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from refhmc.check.derivatives.examination import ROUNDING, least_eigenvalue
from refhmc.check.derivatives.points import ascending, short
from refhmc.check.derivatives.slopes import noise_along
from refhmc.check.judging import Cases, Measured, failed, judged, simplest
from refhmc.check.metrics.examination import MetricExamination
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive


def symmetric(s: MetricExamination) -> Cases:
    """Yield the asymmetry of G at all points."""
    s.need("G")
    for q in [*s.ordinary, *s.asymmetric, *s.simple]:
        G = s.at("G")(q)
        if not np.isfinite(G).all():
            continue
        # A G computed from eigenvectors has errors of the size of its largest entry.
        off, noise = np.abs(G - G.T), s.epsilon("G") * np.abs(G).max()
        if off.max() > ROUNDING * len(q) * noise:
            measured = noise_along(s.at("G"), q, 1e-3 * s.frame.scales, s.epsilon("G"))
            noise = noise + np.where(np.isfinite(measured), measured, 0.0)
        ratio = off / (ROUNDING * len(q) * noise + np.finfo(float).tiny)
        i, j = map(int, np.unravel_index(int(np.argmax(ratio)), G.shape))
        case = f"G = {s.call('G', q)}; G[{i}, {j}], G[{j}, {i}]  # {G[i, j]:.9g}, {G[j, i]:.9g}"
        yield Measured(ratio.max(), 1.0, case)
    return "in units of rounding and measured noise"


def positive_definite(s: MetricExamination) -> Row:
    """Check that G is positive at ordinary, simple, tiny and far points, and at minima on lines."""
    s.need()
    least, singular, unknown = [], [], []
    near = [*s.ordinary, *s.asymmetric, *s.simple, *_tiny(s)]
    for q in near:
        G = s.mass(q)
        if not np.isfinite(G).all():
            unknown.append(q)
            continue
        value, rounding = least_eigenvalue(G, s.unit)
        if value < -rounding:
            q = simplest(q, lambda q: s.good(q) and least_eigenvalue(s.mass(q), s.unit)[0] < 0)
            return _not_positive(s, q, value, rounding, "least eigenvalue with a unit diagonal")
        if value <= rounding:
            singular.append(q)
        else:
            least.append(value)
    fault = next(_faults(s, unknown, singular), None)
    if fault is not None:
        return fault
    fault, far = _far(s)
    if fault is not None:
        return fault
    if not least:
        raise Inconclusive("singular to rounding wherever it is finite")
    if singular or unknown:
        example = s.call(s.main, (singular or unknown)[0])
        raise Inconclusive(f"{len(singular)} points singular to rounding, {len(unknown)} not finite, e.g. {example}")
    basis = f"least eigenvalue with a unit diagonal, {len(near)} points" + far
    return judged(min(least), ROUNDING * s.dim * s.unit, basis, relation=">")


def _not_positive(s: MetricExamination, q: np.ndarray, value: float, tolerance: float, basis: str) -> Row:
    smallest = float(np.linalg.eigvalsh(s.mass(q))[0])
    case = f"np.linalg.eigvalsh({s.call(s.main, q)})[0]  # {smallest:.9g}"
    return failed(basis, case, value, tolerance, relation=">")


def _tiny(s: MetricExamination) -> list[np.ndarray]:
    rng = np.random.default_rng([s.seed, 2])
    found = [short(size * rng.standard_normal(s.dim)) for size in (1e-3, 1e-8, 1e-15, 1e-100)]
    return [q for q in found if s.within(q)]


def _faults(s: MetricExamination, unknown: list[np.ndarray], singular: list[np.ndarray]) -> Iterator[Row]:
    """Yield faults at single points that differ from their surroundings, and zeros on lines."""
    for q in (q for q in unknown if _bounded_around(s, q)):
        s.found.append("the metric is not finite at a point, but around it: 0/0 or an overflow (x coth(ax) at x = 0?)")
        simple = simplest(q, lambda q: s.within(q) and not np.isfinite(s.mass(q)).all())
        yield failed("not finite, although it is finite around this point", s.call(s.main, simple))
    for q in (q for q in singular if _resolved_around(s, q)):
        s.found.append(
            "the metric has an eigenvalue of zero at a simple point: a lower bound on the eigenvalues is missing"
        )
        smallest = float(np.linalg.eigvalsh(s.mass(q))[0])
        yield _not_positive(s, q, smallest, 0.0, "singular at one point, not around it")
    yield from _zeros_on_lines(s)


def _bounded_around(s: MetricExamination, q: np.ndarray) -> bool:
    rng = np.random.default_rng([s.seed, 3])
    sizes = []
    for gap in (1e-2, 1e-4, 1e-6, 1e-8):
        around = [s.mass(q + gap * rng.standard_normal(len(q))) for _ in range(3)]
        finite = [float(np.abs(G).max()) for G in around if np.isfinite(G).all()]
        sizes.append(np.median(finite) if finite else np.inf)
    return bool(np.isfinite(sizes).all() and sizes[-1] <= 100 * sizes[0])


def _resolved_around(s: MetricExamination, q: np.ndarray) -> bool:
    """Return whether the metric is clearly positive definite at distance 1e-4 scales, so that a zero at q is isolated."""
    rng = np.random.default_rng([s.seed, 3])
    for _ in range(3):
        G = s.mass(q + 1e-4 * s.frame.scales * rng.standard_normal(len(q)))
        if not np.isfinite(G).all():
            return False
        value, rounding = least_eigenvalue(G, s.unit)
        if value <= 1e3 * rounding:
            return False
    return True


def _zeros_on_lines(s: MetricExamination) -> Iterator[Row]:
    """Yield lines between ordinary points on which the least eigenvalue becomes negative or zero."""
    from scipy.optimize import minimize_scalar

    for a, b in pairwise([*s.ordinary[:2], *s.asymmetric[:2]]):

        def relative(t: float, a: np.ndarray = a, b: np.ndarray = b) -> float:
            q = a + t * (b - a)
            G = s.mass(q) if s.within(q) else np.full((1, 1), np.nan)
            return least_eigenvalue(G, s.unit)[0] if np.isfinite(G).all() else np.inf

        t = np.linspace(-0.25, 1.25, 21)
        values = np.array([relative(x) for x in t])
        i = int(np.argmin(values))
        if not np.isfinite(values).any():
            continue
        best, at = values[i], t[i]
        if 0 < i < len(t) - 1 and np.isfinite(values[i - 1 : i + 2]).all() and best < 0.1:
            found = minimize_scalar(relative, bounds=(t[i - 1], t[i + 1]), method="bounded", options={"xatol": 1e-13})
            best, at = (float(found.fun), float(found.x)) if found.fun < best else (best, at)
        q, rounding = a + at * (b - a), ROUNDING * len(a) * s.unit
        ordinary = float(np.median(values[np.isfinite(values)]))
        if best < -rounding or (best <= rounding and ordinary > 1e6 * rounding and _resolved_around(s, q)):
            s.found.append("an eigenvalue of the metric passes through zero: it has no lower bound")
            yield _not_positive(s, q, best, rounding, "least eigenvalue on a line")


def _far(s: MetricExamination) -> tuple[Row | None, str]:
    """Check far points, where only a clearly negative eigenvalue counts, since correct code overflows there too."""
    rng, lost, seen = np.random.default_rng([s.seed, 4]), 0, 0
    for size in (10.0, 100.0, 1000.0):
        for z in (rng.standard_normal(s.dim), ascending(s.dim, rng)):
            q = short(s.frame.centre + size * s.frame.scales * z)
            if not s.within(q):
                continue
            G, seen = s.mass(q), seen + 1
            if not np.isfinite(G).all():
                lost += 1
                continue
            value, rounding = least_eigenvalue(G, s.unit)
            lost += value <= rounding
            if value < -max(1e-6, rounding):
                return _not_positive(s, q, value, rounding, "least eigenvalue far out"), ""
    return None, f"; far out: {seen - lost} of {seen} resolved"
