"""SoftAbs of the squared gradient: G = diag(f(g_i^2)), g = dL/dq, f(x) = x coth(alpha x); Betancourt (2013), app. A.3.

    v_i = p_i / f_i,      1/2 log det G = 1/2 sum_i log f_i,      p_i = f_i^1/2 z_i
    dphi/dq + dtau/dq = -g + H m,      m_i = g_i f'(g_i^2) (1/f_i - v_i^2),      H the Hessian of L

O(d^2), and no third derivative. ``mats``: the Hessian, read in the force only. ``vecs``: f, m, Hm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from refhmc.core.compiled import jit
from refhmc.core.types import ALPHA, GRADIENT_HERE, HAS_MORE, HERE, LOG_DET_WEIGHT, METRIC_ROWS, SCALES
from refhmc.metrics.base import HamiltonianOnArrays, Riemannian, check_alpha, value_here
from refhmc.metrics.softabs_function import soft, soft_derivative, softabs, softabs_derivative
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import symmetric_times


@dataclass(frozen=True)
class DiagonalOuterProductSoftAbs(Riemannian):
    """SoftAbs of the squares of the gradient."""

    alpha: float = 1.0
    is_dense = False
    reads = ("hessian", None)

    def __post_init__(self):
        check_alpha(self.alpha)

    def on_arrays(self, model: Any) -> HamiltonianOnArrays:
        """The Hamiltonian on arrays (..., d)."""
        return DiagonalOuterProductSoftAbsOnArrays(model, self)


class DiagonalOuterProductSoftAbsOnArrays(HamiltonianOnArrays):
    """On arrays (..., d)."""

    def eigenvalues(self, q: Array) -> Array:
        """f(g_i^2), (..., d)"""
        return softabs(self.model.gradient(q) ** 2, self.metric.alpha)

    def weighted(self, q: Array, w: Array) -> Array:
        """H m with m_i = g_i f'(g_i^2) w_i"""
        g = self.model.gradient(q)
        return batched.times(self.model.hessian(q), g * softabs_derivative(g**2, self.metric.alpha) * w)

    def mass(self, q: Array) -> Array:
        return batched.diagonal_matrix(self.eigenvalues(q))

    def inverse_product(self, q: Array, p: Array) -> Array:
        return p / self.eigenvalues(q)

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        return 0.5 * xp.sum(xp.log(self.eigenvalues(q)), axis=-1)

    def potential_force(self, q: Array) -> Array:
        return self.model.gradient(q) - self.weighted(q, 1 / self.eigenvalues(q))

    def kinetic_force(self, q: Array, p: Array) -> Array:
        return self.weighted(q, self.inverse_product(q, p) ** 2)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        return self.eigenvalues(q) ** 0.5 * normals


F = SCALES
WEIGHT, PRODUCT = METRIC_ROWS, METRIC_ROWS + 1
N_VECS = METRIC_ROWS + 2
N_MATS = 1


@jit
def settle(model, vecs, mats, notes):
    """g and f at ``vecs[HERE]``; False if it is not finite."""
    value_here(model, vecs, notes)
    finite = True
    for i in range(vecs.shape[1]):
        vecs[F, i] = soft(vecs[GRADIENT_HERE, i] ** 2, notes[ALPHA])
        finite = finite and math.isfinite(vecs[F, i])
    notes[LOG_DET_WEIGHT] = 0.5
    return finite


@jit
def velocity(p, vecs, mats, notes, out):
    """out = G^-1 p"""
    for i in range(p.shape[0]):
        out[i] = p[i] / vecs[F, i]


@jit
def field(model, p, phi, tau, vecs, mats, notes, v, slope):
    """v = G^-1 p, and phi dphi/dq + tau dtau/dq from a product with the Hessian."""
    _, hessian, _, data = model
    g, f, m = vecs[GRADIENT_HERE], vecs[F], vecs[WEIGHT]
    if notes[HAS_MORE] == 0:
        hessian(vecs[HERE], data, mats[0])
        notes[HAS_MORE] = 1
    for i in range(p.shape[0]):
        v[i] = p[i] / f[i]
        m[i] = g[i] * soft_derivative(g[i] ** 2, notes[ALPHA]) * (phi / f[i] - tau * v[i] * v[i])
    symmetric_times(mats[0], m, vecs[PRODUCT])
    for i in range(p.shape[0]):
        slope[i] = vecs[PRODUCT, i] - phi * g[i]


@jit
def draw(normals, vecs, mats, notes, p):
    """p ~ N(0, G) from standard normals."""
    for i in range(p.shape[0]):
        p[i] = vecs[F, i] ** 0.5 * normals[i]


DiagonalOuterProductSoftAbs.geometry = (settle, velocity, field, draw)
DiagonalOuterProductSoftAbs.n_vecs, DiagonalOuterProductSoftAbs.n_mats = N_VECS, N_MATS
