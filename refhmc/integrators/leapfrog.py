"""The leapfrog (Störmer-Verlet, kick-drift-kick) step on a Euclidean metric.

With H(q, p) = -L(q) + 1/2 p' M^-1 p, one step of size eps is

    p <- p + eps/2 dL/dq(q)
    q <- q + eps M^-1 p
    p <- p + eps/2 dL/dq(q)

Order 2, symplectic, reversible (under p -> -p), explicit; one gradient a step, since the last kick's gradient
is the next one's first. Eqs. 10-12 of Gram-Hansen's notes with their erratum (the gradient of the second kick is
taken at the new position); Neal (2011), sec. 2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core.compiled import jit, jit_part, jit_part_sum
from refhmc.core.point import as_point
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.metrics.euclidean import diagonal, inverse_product, rank_of
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

NO_ROWS = Layout("")


@dataclass(frozen=True)
class Leapfrog:
    """The leapfrog on a Euclidean metric. ``cost``: gradients a step."""

    name = "leapfrog"
    order = 2
    symplectic = True
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    cost = 1
    layout = NO_ROWS
    constant_metric = True

    def pointer(self, metric: Any) -> Callable:
        """The compiled step for that metric."""
        own = getattr(metric, "leapfrog", None)
        if own is not None:
            return own
        return leapfrog_by_products if metric.is_dense else leapfrog_diagonal

    def options(self) -> dict[str, float]:
        return {}

    def on_arrays(self) -> Callable:
        """Its step on arrays, (H, q, p, eps) -> (q', p')."""
        return step


def step(H: Any, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
    """One step on arrays (..., d)"""
    p = p + eps / 2 * H.model.gradient(q)
    q = q + eps * H.inverse_product(q, p)
    return q, p + eps / 2 * H.model.gradient(q)


@jit
def leapfrog_by_products(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """The same step on a dense metric, or one of low rank."""
    as_work(work).counters.gradients += 1
    f, point = as_model(model), as_point(z)
    for i in range(z.shape[1]):
        point.p[i] += 0.5 * eps * point.gradient[i]
    inverse_product(point.p, work, point.velocity)
    for i in range(z.shape[1]):
        point.q[i] += eps * point.velocity[i]
    log_density = f.value_and_gradient(point.q, f.data, point.gradient)
    for i in range(z.shape[1]):
        point.p[i] += 0.5 * eps * point.gradient[i]
    inverse_product(point.p, work, point.velocity)
    point.log_density[0] = log_density
    return -log_density + 0.5 * dot(point.p, point.velocity)


@jit_part
def leapfrog_diagonal(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """One leapfrog step of the point ``z`` in place on a diagonal metric, or one of low rank; returns H there."""
    if rank_of(work) > 0:
        return leapfrog_by_products(model, metric, z, eps, work, own)
    as_work(work).counters.gradients += 1
    f, point, inverse_mass = as_model(model), as_point(z), diagonal(work).inverse_mass
    for i in range(z.shape[1]):
        p = point.p[i] + 0.5 * eps * point.gradient[i]
        point.p[i] = p
        point.q[i] += eps * inverse_mass[i] * p
    log_density = f.value_and_gradient(point.q, f.data, point.gradient)
    point.log_density[0] = log_density
    return 0.5 * last_kick(z, 0.5 * eps, inverse_mass) - log_density


@jit_part_sum
def last_kick(z: np.ndarray, half_eps: float, inverse_mass: np.ndarray) -> float:
    """p <- p + eps/2 dL/dq and v = M^-1 p; returns p . v."""
    point, total = as_point(z), 0.0
    for i in range(z.shape[1]):
        p = point.p[i] + half_eps * point.gradient[i]
        v = inverse_mass[i] * p
        point.p[i] = p
        point.velocity[i] = v
        total += p * v
    return total
