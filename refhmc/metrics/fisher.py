"""The Fisher metric: G(q) = E[-d^2 log p(y | q)] + prior precision, as the model gives it.

    G = L D L' (L unit lower),     v = L^-T D^-1 L^-1 p,     1/2 log det G = 1/2 sum_i log D_i,     p = L D^1/2 z ~ N(0, G)
    dphi/dq_k + dtau/dq_k = -dL/dq_k + tr(M dG/dq_k),     M = 1/2 (G^-1 - v v')

so that one contraction of the model's, O(n d^2) for a regression, gives the whole force. Girolami and Calderhead (2011).

``mats``: G, L, G^-1, M. ``vecs``: 1/D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refhmc.core import sample_stats as S
from refhmc.core.compiled import jit
from refhmc.core.point import copy_row
from refhmc.core.types import FAILURE, GRADIENT_HERE, HAS_MORE, HERE, LOG_DET_WEIGHT, METRIC_ROWS, N_TRACES, SCALES
from refhmc.metrics.base import HamiltonianOnArrays, Riemannian, value_here
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import factorise, invert_factorised, is_indefinite, solve_factorised


@dataclass(frozen=True)
class Fisher(Riemannian):
    """G(q) = Fisher information plus prior precision, as the model gives it."""

    reads = ("fisher", "fisher_trace")

    def on_arrays(self, model: Any) -> HamiltonianOnArrays:
        """The Hamiltonian on arrays (..., d)."""
        return FisherOnArrays(model, self)


class FisherOnArrays(HamiltonianOnArrays):
    """On arrays (..., d); C = L D^1/2 is the Cholesky factor of G."""

    def mass(self, q: Array) -> Array:
        return self.model.fisher(q)

    def factor(self, q: Array) -> Array:
        return batched.cholesky(self.mass(q))

    def inverse_product(self, q: Array, p: Array) -> Array:
        C = self.factor(q)
        return batched.solve(C.mT, batched.solve(C, p))

    def half_log_det(self, q: Array) -> Array:
        xp = batched.namespace(q)
        return xp.sum(xp.log(xp.linalg.diagonal(self.factor(q))), axis=-1)

    def potential_force(self, q: Array) -> Array:
        inverse_C = batched.namespace(q).linalg.inv(self.factor(q))
        return self.model.gradient(q) - self.model.fisher_trace(q, 0.5 * inverse_C.mT @ inverse_C)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        v = self.inverse_product(q, p)
        return self.model.fisher_trace(q, 0.5 * batched.outer(v, v))

    def velocity_and_force(self, q: Array, p: Array) -> tuple[Array, Array]:
        inverse_C = batched.namespace(q).linalg.inv(self.factor(q))
        v = batched.times(inverse_C.mT, batched.times(inverse_C, p))
        M = 0.5 * (inverse_C.mT @ inverse_C - batched.outer(v, v))
        return v, self.model.gradient(q) - self.model.fisher_trace(q, M)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        return batched.times(self.factor(q), normals)


G, L, INVERSE, M = range(4)
N_MATS = 4
N_VECS = METRIC_ROWS


@jit
def settle(model, vecs, mats, notes):
    """G at ``vecs[HERE]`` and its factors; False, with DIVERGED noted if G is indefinite, if it has none."""
    _, fisher, _, data = model
    fisher(vecs[HERE], data, mats[G])
    notes[LOG_DET_WEIGHT] = -0.5
    if factorise(mats[G], mats[L], vecs[SCALES]):
        return True
    if is_indefinite(mats[G], mats[L], vecs[SCALES]):
        notes[FAILURE] = S.DIVERGED
    return False


@jit
def velocity(p, vecs, mats, notes, out):
    """out = G^-1 p"""
    copy_row(out, p)
    solve_factorised(mats[L], vecs[SCALES], out)


@jit
def field(model, p, phi, tau, vecs, mats, notes, v, slope):
    """v = G^-1 p, and phi dphi/dq + tau dtau/dq by one contraction."""
    _, _, fisher_trace, data = model
    d = p.shape[0]
    velocity(p, vecs, mats, notes, v)
    if phi != 0 and notes[HAS_MORE] == 0:
        invert_factorised(mats[L], vecs[SCALES], mats[INVERSE])
        notes[HAS_MORE] = 1
    for i in range(d):
        scaled = -0.5 * tau * v[i]
        for j in range(d):
            mats[M, i, j] = scaled * v[j] + (0.5 * phi * mats[INVERSE, i, j] if phi != 0 else 0.0)
    fisher_trace(vecs[HERE], data, mats[M], slope)
    notes[N_TRACES] += 1
    if phi != 0:
        value_here(model, vecs, notes)
        for i in range(d):
            slope[i] -= phi * vecs[GRADIENT_HERE, i]


@jit
def draw(normals, vecs, mats, notes, p):
    """p ~ N(0, G) from standard normals."""
    for i in range(p.shape[0]):
        p[i] = normals[i] / vecs[SCALES, i] ** 0.5
    for i in range(p.shape[0] - 1, -1, -1):
        for j in range(i):
            p[i] += mats[L, i, j] * p[j]


Fisher.geometry = (settle, velocity, field, draw)
Fisher.n_vecs, Fisher.n_mats = N_VECS, N_MATS
