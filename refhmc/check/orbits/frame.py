"""Where a target lives: a dimension, a place of finite density, and how wide it is there, for ``check.orbit``.

With f(q) = -H(q, 0): coordinate by coordinate uphill from the best place that was tried, and w_k such that f falls within

    0.15 <= f(c) - min(f(c + w_k e_k), f(c - w_k e_k)) <= 2 nats

Momenta: 1/sqrt(2 (H(c, e_k) - H(c, 0))), their standard deviations for a quadratic kinetic energy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refhmc.check.orbits.shapes import Leap
from refhmc.check.subject.foreign import DIMENSIONS, Inconclusive
from refhmc.check.subject.shapes import first_working

Energy = Callable[[np.ndarray, np.ndarray], float]


def is_pair(point: Any) -> bool:
    """Whether a point is (q, p)."""
    return isinstance(point, tuple) and len(point) == 2 and np.ndim(point[0]) == 1


def dimension(energy: Energy, leap: Leap, eps: float | None, points: Sequence, known: Any) -> int:
    """Of the points; else what the target says (``known``); else the first in which energy and leap answer."""
    if points:
        return len(np.atleast_1d(np.asarray(points[0][0] if is_pair(points[0]) else points[0])))
    if isinstance(known, (int, np.integer)):
        return int(known)

    def works(d: int) -> None:
        q, p = 0.1 * np.ones(d), 0.2 * np.ones(d)
        energy(q, p)
        leap.ahead(q, p, eps)

    return first_working(DIMENSIONS, works, leap.foreign)[0]


def centre_and_scale(
    energy: Energy, d: int, points: Sequence, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A place where the density is finite, and in which range it falls by half a nat to each side."""

    def f(q: np.ndarray) -> float:
        return -energy(q, np.zeros(d))

    given = [np.asarray(x[0] if is_pair(x) else x, dtype=float) for x in points]
    tried = [
        *given,
        np.zeros(d),
        np.full(d, 0.5),
        *(s * rng.standard_normal(d) for s in (1, 1, 1, 3, 10, 100)),
        *(s * np.abs(rng.standard_normal(d)) for s in (1, 1, 10)),
    ]
    finite = [(f(q), tuple(q)) for q in tried if math.isfinite(f(q))]
    if not finite:
        raise Inconclusive("the target is finite nowhere it was tried: give points")
    centre = np.array(max(finite)[1])
    scale = np.ones(d)
    for _ in range(3):
        for k, e in enumerate(np.eye(d)):
            best = f(centre)
            for step in (scale[k], -scale[k], 3 * scale[k], -3 * scale[k], 0.3 * scale[k], -0.3 * scale[k]):
                value = f(centre + step * e)
                if value > best + 1e-9:
                    centre, best = centre + step * e, value
            width = scale[k]
            for _ in range(40):
                fall = best - min(f(centre + width * e), f(centre - width * e))
                if fall > 2 or not math.isfinite(fall):
                    width *= 0.6
                elif fall < 0.15 and width < 1e4:
                    width *= 1.6
                else:
                    break
            scale[k] = width
    return centre, scale


def momentum_scale(energy: Energy, centre: np.ndarray) -> np.ndarray:
    """How large momenta are at ``centre``, (d,); 1 where the energy does not grow with them."""
    momentum = np.ones(len(centre))
    for k, unit in enumerate(np.eye(len(centre))):
        kinetic = energy(centre, unit) - energy(centre, 0 * unit)
        momentum[k] = 1 / math.sqrt(2 * kinetic) if math.isfinite(kinetic) and kinetic > 0 else 1.0
    return momentum
