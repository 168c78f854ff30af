"""Whether a metric is symmetric and positive definite: at ordinary, simple, tiny and far places, and on lines between them.

The least eigenvalue is that of G with its diagonal scaled to one, so that coordinates of different units do not hide it.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from refhmc.check.derivatives.points import ascending, short
from refhmc.check.derivatives.slopes import noise_along
from refhmc.check.judging import simplest
from refhmc.check.metrics.examination import ROUNDING, MetricExamination
from refhmc.check.report import FAIL, WRONG_LAW, Row, judged
from refhmc.check.subject.foreign import Inconclusive


def symmetric(s: MetricExamination) -> Row:
    """G = G' to rounding, at all the places."""
    s.need("G")
    assert s.frame is not None
    worst, tolerance, case = 0.0, 1.0, ""
    for q in [*s.ordinary, *s.asymmetric, *s.simple]:
        G = s.at("G")(q)
        if not np.isfinite(G).all():
            continue
        # A G made from eigenvectors has errors of the size of its largest entry, not of each.
        off, noise = np.abs(G - G.T), s.epsilon("G") * np.abs(G).max()
        if off.max() > ROUNDING * len(q) * noise:
            measured = noise_along(s.at("G"), q, 1e-3 * s.frame.scales, s.epsilon("G"))
            noise = noise + np.where(np.isfinite(measured), measured, 0.0)
        ratio = off / (ROUNDING * len(q) * noise + np.finfo(float).tiny)
        if not ratio.max() <= worst:
            i, j = map(int, np.unravel_index(int(np.argmax(ratio)), G.shape))
            worst = float(ratio.max())
            case = f"G = {s.call('G', q)}; G[{i}, {j}], G[{j}, {i}]  # {G[i, j]:.9g}, {G[j, i]:.9g}"
    return judged(
        "symmetric", worst, tolerance, "in units of rounding and measured noise", severity=WRONG_LAW, case=case
    )


def _least_eigenvalue(G: np.ndarray, epsilon: float) -> tuple[float, float]:
    """The least eigenvalue of G with its diagonal scaled to one, and what rounding makes of a zero; (-1, .) for a
    diagonal that is not positive."""
    rounding = ROUNDING * len(G) * epsilon
    diagonal = np.diag(G)
    if not np.all(diagonal > 0):
        return (-1.0 if np.any(diagonal < -rounding * np.abs(G).max()) else 0.0), rounding
    root = np.sqrt(diagonal)
    scaled = G / np.outer(root, root)
    return float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[0]), rounding


def positive_definite(s: MetricExamination) -> Row:
    """Positive everywhere on R^d: at ordinary, simple, tiny and far places, and where lines come nearest to zero."""
    s.need()
    name, epsilon = "positive definite", s.epsilon("G", "H")
    key = "G" if "G" in s.functions else "H"
    near = [*s.ordinary, *s.asymmetric, *s.simple, *_tiny(s)]
    least, singular, unknown = [], [], []
    for q in near:
        G = s.mass(q)
        if not np.isfinite(G).all():
            unknown.append(q)
            continue
        value, rounding = _least_eigenvalue(G, epsilon)
        if value < -rounding:
            q = simplest(q, lambda q: s.good(q) and _least_eigenvalue(s.mass(q), epsilon)[0] < 0)
            smallest = float(np.linalg.eigvalsh(s.mass(q))[0])
            case = f"np.linalg.eigvalsh({s.call(key, q)})[0]  # {smallest:.9g}"
            return Row(name, FAIL, value, rounding, "least eigenvalue with a unit diagonal", WRONG_LAW, case, ">")
        if value <= rounding:
            singular.append(q)
        else:
            least.append((value, float(np.linalg.eigvalsh(G)[0])))
    for q in unknown:
        row = _hole(s, name, key, q)
        if row is not None:
            return row
    for q in singular:
        row = _sudden_zero(s, name, key, q)
        if row is not None:
            return row
    row = _zero_on_lines(s, name, key)
    if row is not None:
        return row
    row, far = _far(s, name, key)
    if row is not None:
        return row
    if not least:
        raise Inconclusive("singular to rounding wherever it is finite")
    if singular or unknown:
        one = (singular or unknown)[0]
        raise Inconclusive(
            f"{len(singular)} places singular to rounding, {len(unknown)} not finite, e.g. {s.call(key, one)}"
        )
    basis = f"least eigenvalue with a unit diagonal, {len(near)} places" + far
    return judged(
        name, min(v for v, _ in least), ROUNDING * (s.dim or 1) * epsilon, basis, relation=">", severity=WRONG_LAW
    )


def _tiny(s: MetricExamination) -> list[np.ndarray]:
    rng = np.random.default_rng([s.seed, 2])
    found = [short(size * rng.standard_normal(s.dim or 1)) for size in (1e-3, 1e-8, 1e-15, 1e-100)]
    return [q for q in found if s.within(q)]


def _hole(s: MetricExamination, name: str, key: str, q: np.ndarray) -> Row | None:
    """Not finite at q, although it stays bounded around it."""
    rng = np.random.default_rng([s.seed, 3])
    sizes = []
    for gap in (1e-2, 1e-4, 1e-6, 1e-8):
        around = [s.mass(q + gap * rng.standard_normal(len(q))) for _ in range(3)]
        finite = [float(np.abs(G).max()) for G in around if np.isfinite(G).all()]
        sizes.append(np.median(finite) if finite else np.inf)
    if not np.isfinite(sizes).all() or sizes[-1] > 100 * sizes[0]:
        return None
    simple = simplest(q, lambda q: s.within(q) and not np.isfinite(s.mass(q)).all())
    s.found.append("the metric is not finite where its surroundings are: 0/0 or an overflow (x coth(ax) at x = 0?)")
    return Row(name, FAIL, basis="not finite, though it is all around", severity=WRONG_LAW, case=s.call(key, simple))


def _resolved_around(s: MetricExamination, q: np.ndarray) -> bool:
    """Whether the metric is clearly positive definite a ten-thousandth of a scale away: a zero at q is then q's own."""
    assert s.frame is not None
    rng, epsilon = np.random.default_rng([s.seed, 3]), s.epsilon("G", "H")
    for _ in range(3):
        G = s.mass(q + 1e-4 * s.frame.scales * rng.standard_normal(len(q)))
        if not np.isfinite(G).all():
            return False
        value, rounding = _least_eigenvalue(G, epsilon)
        if value <= 1e3 * rounding:
            return False
    return True


def _sudden_zero(s: MetricExamination, name: str, key: str, q: np.ndarray) -> Row | None:
    """Singular at q, and not around it."""
    if not _resolved_around(s, q):
        return None
    smallest = float(np.linalg.eigvalsh(s.mass(q))[0])
    s.found.append("the metric has an eigenvalue of zero at a simple place: a floor under the eigenvalues is missing")
    case = f"np.linalg.eigvalsh({s.call(key, q)})[0]  # {smallest:.3g}"
    return Row(name, FAIL, smallest, 0.0, "singular at one place, not around it", WRONG_LAW, case, ">")


def _zero_on_lines(s: MetricExamination, name: str, key: str) -> Row | None:
    """Along lines between ordinary places: where the least eigenvalue is nearest zero, is it negative, or gone?"""
    from scipy.optimize import minimize_scalar

    epsilon = s.epsilon("G", "H")
    test_points = [*s.ordinary[:2], *s.asymmetric[:2]]
    for a, b in pairwise(test_points):

        def relative(t, a=a, b=b):
            q = a + t * (b - a)
            G = s.mass(q) if s.within(q) else np.full((1, 1), np.nan)
            return _least_eigenvalue(G, epsilon)[0] if np.isfinite(G).all() else np.inf

        t = np.linspace(-0.25, 1.25, 21)
        values = np.array([relative(x) for x in t])
        i = int(np.argmin(values))
        if not np.isfinite(values).any():
            continue
        best, at = values[i], t[i]
        if 0 < i < len(t) - 1 and np.isfinite(values[i - 1 : i + 2]).all() and best < 0.1:
            found = minimize_scalar(relative, bounds=(t[i - 1], t[i + 1]), method="bounded", options={"xatol": 1e-13})
            best, at = (float(found.fun), float(found.x)) if found.fun < best else (best, at)
        q, rounding = a + at * (b - a), ROUNDING * len(a) * epsilon
        ordinary = float(np.median(values[np.isfinite(values)]))
        if best < -rounding or (best <= rounding and ordinary > 1e6 * rounding and _resolved_around(s, q)):
            smallest = float(np.linalg.eigvalsh(s.mass(q))[0])
            case = f"np.linalg.eigvalsh({s.call(key, q)})[0]  # {smallest:.3g}"
            s.found.append("an eigenvalue of the metric passes through zero: it has no floor")
            return Row(name, FAIL, best, rounding, "least eigenvalue on a line", WRONG_LAW, case, ">")
    return None


def _far(s: MetricExamination, name: str, key: str) -> tuple[Row | None, str]:
    """Far out only a clearly negative eigenvalue counts: there is overflow and underflow in correct code too."""
    assert s.frame is not None
    rng, lost, seen = np.random.default_rng([s.seed, 4]), 0, 0
    for size in (10.0, 100.0, 1000.0):
        for z in (rng.standard_normal(s.dim), ascending(s.dim or 1, rng)):
            q = short(s.frame.centre + size * s.frame.scales * z)
            if not s.within(q):
                continue
            G, seen = s.mass(q), seen + 1
            if not np.isfinite(G).all():
                lost += 1
                continue
            value, rounding = _least_eigenvalue(G, s.epsilon("G", "H"))
            lost += value <= rounding
            if value < -max(1e-6, rounding):
                case = f"np.linalg.eigvalsh({s.call(key, q)})[0]  # {float(np.linalg.eigvalsh(G)[0]):.3g}"
                return Row(name, FAIL, value, rounding, "least eigenvalue far out", WRONG_LAW, case, ">"), ""
    return None, f"; far out {seen - lost} of {seen} resolved"
