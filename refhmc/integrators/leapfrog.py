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

from refhmc.core.compiled import jit, jit_inline, jit_sum
from refhmc.core.point import GRADIENT, LOG_DENSITY, VELOCITY, P, Q
from refhmc.core.types import FIRST_SUBSTEP, N_GRADIENTS, N_SUBSTEPS
from refhmc.metrics import Tridiagonal, tridiagonal
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot, symmetric_times


@dataclass(frozen=True)
class Leapfrog:
    """The leapfrog on a Euclidean metric. ``cost``: gradients a step."""

    order = 2
    symplectic = True
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    cost = 1

    def pointer(self, metric):
        """The compiled step for that metric."""
        if isinstance(metric, Tridiagonal):
            return tridiagonal.leapfrog
        return leapfrog_dense if metric.is_dense else leapfrog_diagonal

    def options(self) -> dict[int, float]:
        return {N_SUBSTEPS: 1, FIRST_SUBSTEP: 1.0}

    def on_arrays(self) -> Callable:
        """Its step on arrays, (H, q, p, eps) -> (q', p')."""
        return step


def step(H: Any, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
    """One step on arrays (..., d)"""
    p = p + eps / 2 * H.model.gradient(q)
    q = q + eps * H.inverse_product(q, p)
    return q, p + eps / 2 * H.model.gradient(q)


@jit_inline
def leapfrog(model, z, eps, vecs, mats):
    """One leapfrog step of the point ``z`` in place, M^-1 = diag(vecs[0]); returns H there."""
    value_and_gradient, _, _, data = model
    for i in range(z.shape[1]):
        p = z[P, i] + 0.5 * eps * z[GRADIENT, i]
        z[P, i] = p
        z[Q, i] += eps * vecs[0, i] * p
    log_density = value_and_gradient(z[Q], data, z[GRADIENT])
    z[LOG_DENSITY, 0] = log_density
    return 0.5 * last_kick(z, 0.5 * eps, vecs) - log_density


@jit_sum
def last_kick(z, half_eps, vecs):
    """p <- p + eps/2 dL/dq and v = M^-1 p; returns p . v."""
    total = 0.0
    for i in range(z.shape[1]):
        p = z[P, i] + half_eps * z[GRADIENT, i]
        v = vecs[0, i] * p
        z[P, i] = p
        z[VELOCITY, i] = v
        total += p * v
    return total


@jit
def leapfrog_diagonal(model, geometry, z, eps, vecs, mats, notes):
    """:func:`leapfrog` to be called through a pointer."""
    notes[N_GRADIENTS] += 1
    return leapfrog(model, z, eps, vecs, mats)


@jit
def leapfrog_dense(model, geometry, z, eps, vecs, mats, notes):
    """The same step with the dense M^-1 = mats[0]."""
    notes[N_GRADIENTS] += 1
    value_and_gradient, _, _, data = model
    for i in range(z.shape[1]):
        z[P, i] += 0.5 * eps * z[GRADIENT, i]
    symmetric_times(mats[0], z[P], z[VELOCITY])
    for i in range(z.shape[1]):
        z[Q, i] += eps * z[VELOCITY, i]
    log_density = value_and_gradient(z[Q], data, z[GRADIENT])
    for i in range(z.shape[1]):
        z[P, i] += 0.5 * eps * z[GRADIENT, i]
    symmetric_times(mats[0], z[P], z[VELOCITY])
    z[LOG_DENSITY, 0] = log_density
    return -log_density + 0.5 * dot(z[P], z[VELOCITY])
