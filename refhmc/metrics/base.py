"""What every metric offers the integrators: the Hamiltonian at a point, whatever the mass matrix.

    H(q, p) = phi(q) + tau(q, p),      phi = -L(q) + 1/2 log det G(q),      tau = 1/2 p' G(q)^-1 p

    dq/dt =  dH/dp = G^-1 p
    dp/dt = -dH/dq,   dphi/dq_k = -dL/dq_k + 1/2 tr(G^-1 dG/dq_k),   dtau/dq_k = -1/2 v' dG/dq_k v,   v = G^-1 p

Girolami and Calderhead (2011), eqs. 13-16; the sign of dL/dq is that of the errata to Brofos and Lederman's eq. 3.

A metric is *settled* at one position at a time, ``vecs[HERE]``: factorised there, with all that depends on the position
alone kept until the next one. Nothing is done twice at the same position: the last evaluation of a step is the first
one of the next. What is kept is a function of the position only, so it never shows in the draws.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core import sample_stats as S
from refhmc.core.compiled import jit, jit_part
from refhmc.core.point import GRADIENT, LOG_DENSITY, VELOCITY, P, Q, copy_row
from refhmc.core.types import (
    ALPHA,
    FAILURE,
    GRADIENT_HERE,
    HAS_MORE,
    HAS_VALUE,
    HERE,
    LOG_DENSITY_HERE,
    LOG_DET_WEIGHT,
    METRIC_CONDITION,
    N_FIELDS,
    N_GRADIENTS,
    N_METRICS,
    SCALES,
    SETTLED,
)
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

# What warm-up learns a metric from.
NOTHING, FROM_DRAWS, FROM_GRADIENTS = range(3)


class Riemannian:
    """What the metrics that are functions of the position have in common: ``geometry``, their four pointers, and ``n_vecs`` and
    ``n_mats``, how many rows of ``vecs`` and of ``mats`` they need."""

    position_dependent = True
    is_dense = True
    learns = NOTHING
    reads: tuple[str | None, str | None]
    geometry: tuple
    n_vecs: int
    n_mats: int

    def matrices(self, model) -> int:
        """How many of ``mats`` it needs for a model."""
        return self.n_mats

    def options(self) -> dict[int, float]:
        return {ALPHA: self.alpha} if hasattr(self, "alpha") else {}


def check_alpha(alpha) -> None:
    if not (isinstance(alpha, int | float) and 0 < alpha < float("inf")):
        raise ValueError(f"alpha must be positive and finite, got {alpha!r}")


@dataclass(frozen=True)
class HamiltonianOnArrays:
    """H on arrays of positions and momenta (..., d); each metric's text says the methods without a body.

    ``model`` has ``log_density``, ``gradient`` and what the metric reads on such arrays: a
    :class:`refhmc.models.on_arrays.ModelOnArrays` on NumPy, else of any namespace of the array API.
    """

    model: Any
    metric: Any

    @abstractmethod
    def mass(self, q: Array) -> Array:
        """G(q), (..., d, d)"""

    @abstractmethod
    def inverse_product(self, q: Array, p: Array) -> Array:
        """v = G(q)^-1 p = dH/dp"""

    @abstractmethod
    def half_log_det(self, q: Array) -> Array:
        """1/2 log det G(q), (...)"""

    @abstractmethod
    def potential_force(self, q: Array) -> Array:
        """-dphi/dq"""

    @abstractmethod
    def kinetic_force(self, q: Array, p: Array) -> Array:
        """-dtau/dq"""

    @abstractmethod
    def draw_momentum(self, q: Array, normals: Array) -> Array:
        """p ~ N(0, G(q)) from standard normals (..., d)"""

    def energy(self, q: Array, p: Array) -> Array:
        """H = phi + tau, (...)"""
        tau = 0.5 * batched.dot(p, self.inverse_product(q, p))
        return -self.model.log_density(q) + self.half_log_det(q) + tau

    def velocity_and_force(self, q: Array, p: Array) -> tuple[Array, Array]:
        """dH/dp and -dH/dq"""
        return self.inverse_product(q, p), self.potential_force(q) + self.kinetic_force(q, p)

    def vector_field(self, z: Array) -> Array:
        """dz/dt of z = (q, p), (..., 2d)"""
        return batched.join(*self.velocity_and_force(*batched.split(z)))


@jit_part
def settle(model, geometry, q, vecs, mats, notes):
    """Factorise the metric at ``q``, unless that is where it stands; False if it cannot be, with the reason noted.

    DIVERGED: the metric is finite and not positive definite (the metric's own ``settle`` says so). NAN: it is not finite, or
    rounding hides whether it is positive.
    """
    if notes[SETTLED] != 0:
        i = 0
        while i < q.shape[0] and q[i] == vecs[HERE, i]:
            i += 1
        if i == q.shape[0]:
            if notes[SETTLED] < 0:
                notes[FAILURE] = -notes[SETTLED]
            return notes[SETTLED] > 0
    copy_row(vecs[HERE], q)
    notes[HAS_VALUE] = notes[HAS_MORE] = 0
    notes[N_METRICS] += 1
    settled = geometry[0](model, vecs, mats, notes)
    if not settled and notes[FAILURE] == 0:
        notes[FAILURE] = S.NAN
    notes[SETTLED] = 1 if settled else -notes[FAILURE]
    return settled


@jit_part
def value_here(model, vecs, notes):
    """L at the settled position, with its gradient in ``vecs[GRADIENT_HERE]``."""
    if notes[HAS_VALUE] == 0:
        value_and_gradient, _, _, data = model
        notes[LOG_DENSITY_HERE] = value_and_gradient(vecs[HERE], data, vecs[GRADIENT_HERE])
        notes[HAS_VALUE] = 1
        notes[N_GRADIENTS] += 1
    return notes[LOG_DENSITY_HERE]


@jit_part
def field(model, geometry, p, phi, tau, vecs, mats, notes, velocity, slope):
    """dH/dp = G^-1 p, and phi dphi/dq + tau dtau/dq, at the settled position."""
    notes[N_FIELDS] += 1
    geometry[2](model, p, phi, tau, vecs, mats, notes, velocity, slope)


@jit_part
def half_log_det(vecs, notes):
    """1/2 log det G at the settled position; only energies need it, the forces do not.

    One logarithm for a product of many scales, taken before it can leave the range of a double.
    """
    total, product = 0.0, 1.0
    if notes[LOG_DET_WEIGHT] != 0:
        for i in range(vecs.shape[1]):
            scale = vecs[SCALES, i]
            if 1e-140 < scale < 1e140:
                product *= scale
                if not 1e-140 < product < 1e140:
                    total += np.log(product)
                    product = 1.0
            else:
                total += np.log(scale)
        total += np.log(product)
    return notes[LOG_DET_WEIGHT] * total


@jit
def energy(model, geometry, z, vecs, mats, notes):
    """H of the point ``z``, whose other rows are set from its position and momentum; NaN if there is none."""
    if not settle(model, geometry, z[Q], vecs, mats, notes):
        return math.nan
    log_density = value_here(model, vecs, notes)
    z[LOG_DENSITY, 0] = log_density
    copy_row(z[GRADIENT], vecs[GRADIENT_HERE])
    geometry[1](z[P], vecs, mats, notes, z[VELOCITY])
    H = -log_density + half_log_det(vecs, notes) + 0.5 * dot(z[P], z[VELOCITY])
    if not math.isfinite(H) and notes[FAILURE] == 0:
        notes[FAILURE] = S.NAN
    return H


@jit_part
def condition(vecs):
    """The ratio of the extreme scales: eigenvalues of G, of ``Fisher`` the pivots of its factorisation."""
    least = largest = vecs[SCALES, 0]
    for i in range(vecs.shape[1]):
        least = min(least, vecs[SCALES, i])
        largest = max(largest, vecs[SCALES, i])
    return largest / least


@jit
def refresh(model, geometry, z, normals, vecs, mats, notes):
    """A momentum made from standard normals into the point ``z``; returns H there. Copies start on the diagonal."""
    if not settle(model, geometry, z[Q], vecs, mats, notes):
        return math.nan
    notes[METRIC_CONDITION] = condition(vecs)
    geometry[3](normals, vecs, mats, notes, z[P])
    put_copies(z)
    return energy(model, geometry, z, vecs, mats, notes)


@jit_part
def put_copies(z):
    """In an extended phase space (:mod:`refhmc.integrators.explicit_tao`) set the copies to the point itself."""
    for row in range(LOG_DENSITY + 1, z.shape[0]):
        copy_row(z[row], z[row - LOG_DENSITY - 1])
