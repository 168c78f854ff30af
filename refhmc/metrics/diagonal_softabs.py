"""The diagonal SoftAbs metric: G = diag(f(H_ii)), f(x) = x coth(alpha x); Betancourt (2013), appendix A.1.

    v_i = p_i / f_i,      1/2 log det G = 1/2 sum_i log f_i,      p_i = f_i^1/2 z_i
    dphi/dq_k + dtau/dq_k = -dL/dq_k + sum_i m_i dH_ii/dq_k,      m_i = 1/2 f'(H_ii) (1/f_i - v_i^2)

O(d) beside the model's own cost, where the model gives the diagonal of its Hessian and its derivative by themselves
(``hessian_diagonal``, ``diagonal_trace``); then ``mats`` is empty. Otherwise they are read off the full Hessian and the
trace with a diagonal matrix, in ``mats[0]``.

``vecs``: f, the diagonal H_ii, 1/f, f', m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core.compiled import jit
from refhmc.core.types import ALPHA, GRADIENT_HERE, HAS_MORE, HERE, LOG_DET_WEIGHT, METRIC_ROWS, N_TRACES, SCALES
from refhmc.metrics.base import HamiltonianOnArrays, Riemannian, check_alpha, value_here
from refhmc.metrics.softabs_function import soft_all, soft_derivatives, softabs, softabs_derivative
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@dataclass(frozen=True)
class DiagonalSoftAbs(Riemannian):
    """SoftAbs of the Hessian's diagonal alone, O(d) beside the model."""

    alpha: float = 1e6
    is_dense = False
    reads = ("hessian", "trace")
    reads_diagonals = True  # of both, from a model that gives them by themselves

    def __post_init__(self):
        check_alpha(self.alpha)

    def matrices(self, model) -> int:
        return 0 if model.has_diagonals else 1

    def on_arrays(self, model: Any) -> HamiltonianOnArrays:
        """The Hamiltonian on arrays (..., d)."""
        return DiagonalSoftAbsOnArrays(model, self)


class DiagonalSoftAbsOnArrays(HamiltonianOnArrays):
    """On arrays (..., d), from the full Hessian's diagonal."""

    def diagonal(self, q: Array) -> Array:
        """H_ii, (..., d)"""
        return batched.namespace(q).linalg.diagonal(self.model.hessian(q))

    def eigenvalues(self, q: Array) -> Array:
        """f_i, (..., d)"""
        return softabs(self.diagonal(q), self.metric.alpha)

    def mass(self, q: Array) -> Array:
        return batched.diagonal_matrix(self.eigenvalues(q))

    def inverse_product(self, q: Array, p: Array) -> Array:
        return p / self.eigenvalues(q)

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        return 0.5 * xp.sum(xp.log(self.eigenvalues(q)), axis=-1)

    def potential_force(self, q: Array) -> Array:
        m = 0.5 * softabs_derivative(self.diagonal(q), self.metric.alpha) / self.eigenvalues(q)
        return self.model.gradient(q) - self.model.trace(q, batched.diagonal_matrix(m))

    def kinetic_force(self, q: Array, p: Array) -> Array:
        v = self.inverse_product(q, p)
        m = -0.5 * softabs_derivative(self.diagonal(q), self.metric.alpha) * v**2
        return -self.model.trace(q, batched.diagonal_matrix(m))

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        return self.eigenvalues(q) ** 0.5 * normals


F = SCALES
DIAGONAL, INVERSE, SLOPES, WEIGHT = range(METRIC_ROWS, METRIC_ROWS + 4)
N_VECS = METRIC_ROWS + 4


@jit
def settle(model, vecs, mats, notes):
    """The diagonal of H at ``vecs[HERE]``, and f; False if it is not finite."""
    _, hessian, _, data = model
    d = vecs.shape[1]
    if mats.shape[0] == 0:
        hessian(vecs[HERE], data, vecs[DIAGONAL : DIAGONAL + 1])
    else:
        hessian(vecs[HERE], data, mats[0])
        for i in range(d):
            vecs[DIAGONAL, i] = mats[0, i, i]
    soft_all(vecs[DIAGONAL], notes[ALPHA], vecs[F])
    notes[LOG_DET_WEIGHT] = 0.5
    not_finite = 0
    for i in range(d):
        not_finite += not vecs[F, i] < np.inf
        vecs[INVERSE, i] = 1 / vecs[F, i]
    return not_finite == 0


@jit
def velocity(p, vecs, mats, notes, out):
    """out = G^-1 p"""
    for i in range(p.shape[0]):
        out[i] = p[i] * vecs[INVERSE, i]


@jit
def field(model, p, phi, tau, vecs, mats, notes, v, slope):
    """v = G^-1 p, and phi dphi/dq + tau dtau/dq by one contraction with a diagonal matrix."""
    _, _, trace, data = model
    d = p.shape[0]
    if notes[HAS_MORE] == 0:
        soft_derivatives(vecs[DIAGONAL], notes[ALPHA], vecs[SLOPES])
        notes[HAS_MORE] = 1
    for i in range(d):
        v[i] = p[i] * vecs[INVERSE, i]
        vecs[WEIGHT, i] = 0.5 * vecs[SLOPES, i] * (phi * vecs[INVERSE, i] - tau * v[i] * v[i])
    if mats.shape[0] == 0:
        trace(vecs[HERE], data, vecs[WEIGHT : WEIGHT + 1], slope)
    else:
        for i in range(d):
            for j in range(d):
                mats[0, i, j] = 0.0
            mats[0, i, i] = vecs[WEIGHT, i]
        trace(vecs[HERE], data, mats[0], slope)
    notes[N_TRACES] += 1
    if phi != 0:
        value_here(model, vecs, notes)
        for i in range(d):
            slope[i] -= phi * vecs[GRADIENT_HERE, i]


@jit
def draw(normals, vecs, mats, notes, p):
    """p ~ N(0, G) from standard normals."""
    for i in range(p.shape[0]):
        p[i] = vecs[F, i] ** 0.5 * normals[i]


DiagonalSoftAbs.geometry = (settle, velocity, field, draw)
DiagonalSoftAbs.n_vecs = N_VECS
