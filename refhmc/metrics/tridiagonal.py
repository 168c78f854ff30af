"""A constant tridiagonal mass matrix M, given by its bands: everything costs O(d).

    M = L D L',   L unit lower with l_1 ... l_{d-1} below its diagonal:
    D_0 = a_0,   l_i = b_{i-1} / D_{i-1},   D_i = a_i - l_i b_{i-1}

(a the diagonal of M, b what stands beside it). With L y = p solved from above,

    v = M^-1 p = L^-T D^-1 y,     p' M^-1 p = sum y_i^2 / D_i,     p = L D^1/2 z ~ N(0, M) from standard normals z

The precision matrix of an autoregression is of this form, so that M imitates the precision of the target where a Euclidean
metric given by M^-1 imitates its covariance. Constant means constant during a transition: with bands that the model gives
(``fisher_bands``) M is made anew at the start of each, from values that the transition itself does not change, as the
parameters of a conditional are in Gibbs sampling. (log det M is then constant too, and dropped.)

``vecs[0]`` is 1/D, ``vecs[1]`` is l with l_0 = 0; ``mats[0]``, (2, d), holds a and b.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core import sample_stats as S
from refhmc.core.compiled import jit, jit_products
from refhmc.core.point import GRADIENT, LOG_DENSITY, VELOCITY, P, Q
from refhmc.core.types import FAILURE, GRADIENT_HERE, HERE, LOG_DET_WEIGHT, N_GRADIENTS, N_METRICS, READS_BANDS
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics.base import NOTHING, HamiltonianOnArrays, put_copies, value_here
from refhmc.metrics.euclidean import Euclidean
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot


@dataclass(frozen=True, eq=False)
class Tridiagonal(Euclidean):
    """M itself, not its inverse, with ``diagonal`` (d,) and ``off_diagonal`` (d - 1,): :mod:`refhmc.metrics.tridiagonal`.

    Never adapted; a draw, a velocity and a leapfrog step cost O(d). ``None``: the bands that the model gives, which only
    some conditionals of refhmc's own models do, such as that of x in ``StochasticVolatility``.
    """

    diagonal: Any = None
    off_diagonal: Any = None
    is_dense = False
    learns = NOTHING

    def __post_init__(self):
        if (self.diagonal is None) != (self.off_diagonal is None):
            raise ValueError("give both diagonal and off_diagonal, or neither")

    @property
    def reads(self) -> tuple:
        return ("fisher_bands", None) if self.diagonal is None else (None, None)

    @property
    def geometry(self) -> tuple:
        return settle, velocity, field, draw

    def options(self) -> dict[int, float]:
        return {READS_BANDS: float(self.diagonal is None)}

    def bands(self, dim: int) -> np.ndarray:
        """Both bands, (2, dim), the second ending in 0. Raises ShapeError, or MetricError naming the least eigenvalue."""
        bands = np.zeros((2, dim))
        if self.diagonal is None:
            bands[0] = 1.0
            return bands
        diagonal, beside = np.asarray(self.diagonal, dtype=float), np.asarray(self.off_diagonal, dtype=float)
        for name, band, n in (("diagonal", diagonal, dim), ("off_diagonal", beside, dim - 1)):
            if band.shape != (n,):
                raise ShapeError(f"{name}: expected ({n},), got {band.shape}")
            if not np.isfinite(band).all():
                raise MetricError(f"{name} has entries that are not finite")
        from scipy.linalg import eigvalsh_tridiagonal

        least = eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(0, 0))[0]
        if not least > 0:
            raise MetricError(f"the tridiagonal metric is not positive definite: its least eigenvalue is {least:.6g}")
        bands[0], bands[1, : dim - 1] = diagonal, beside
        return bands

    def on_arrays(self, model: Any) -> HamiltonianOnArrays:
        """The Hamiltonian on arrays (..., d)."""
        return TridiagonalOnArrays(model, self)


class TridiagonalOnArrays(HamiltonianOnArrays):
    """On arrays (..., d), with M in full: L D^1/2 is its Cholesky factor C."""

    def mass(self, q: Array) -> Array:
        xp, d = batched.namespace(q), q.shape[-1]
        reads = self.metric.diagonal is None
        bands = self.model.fisher_bands(q) if reads else xp.asarray(self.metric.bands(d), dtype=q.dtype)
        i, j = xp.arange(d)[:, None], xp.arange(d)
        a, b = bands[..., 0, :], bands[..., 1, :]
        beside = xp.where(j == i + 1, b[..., :, None], 0.0 * b[..., :, None])
        M = batched.diagonal_matrix(a) + beside + beside.mT
        return xp.broadcast_to(M, (*q.shape, d))

    def inverse_product(self, q: Array, p: Array) -> Array:
        C = batched.cholesky(self.mass(q))
        return batched.solve(C.mT, batched.solve(C, p))

    def half_log_det(self, q: Array) -> Array:
        return 0.0 * q[..., 0]  # a constant, dropped

    def potential_force(self, q: Array) -> Array:
        return self.model.gradient(q)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        return 0.0 * p

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        return batched.times(batched.cholesky(self.mass(q)), normals)


@jit
def factorise_bands(bands, vecs):
    """1/D and l from the bands (2, d); False if M is not positive definite."""
    r, l = vecs[0], vecs[1]  # noqa: E741
    pivot = bands[0, 0]
    l[0] = 0.0
    for i in range(r.shape[0]):
        if i > 0:
            l[i] = bands[1, i - 1] * r[i - 1]
            pivot = bands[0, i] - l[i] * bands[1, i - 1]
        if not 0 < pivot < math.inf:  # also a NaN
            return False
        r[i] = 1 / pivot
    return True


@jit
def make_bands(model, q, vecs, mats, notes):
    """The model's bands at ``q``, factorised, where the metric reads them; False if they are not positive definite."""
    if notes[READS_BANDS] == 0:
        return True
    _, fisher_bands, _, data = model
    fisher_bands(q, data, mats[0])
    notes[N_METRICS] += 1
    return factorise_bands(mats[0], vecs)


@jit_products
def velocity(p, vecs, mats, notes, out):
    """out = M^-1 p"""
    r, l = vecs[0], vecs[1]  # noqa: E741
    y = 0.0
    for i in range(p.shape[0]):
        y = p[i] - l[i] * y
        out[i] = y
    v = below = 0.0
    for i in range(p.shape[0] - 1, -1, -1):
        v = out[i] * r[i] - below * v
        below = l[i]
        out[i] = v


@jit
def draw(normals, vecs, mats, notes, p):
    """p ~ N(0, M) from standard normals."""
    before = 0.0
    for i in range(p.shape[0]):
        scaled = normals[i] / math.sqrt(vecs[0, i])
        p[i] = scaled + vecs[1, i] * before
        before = scaled


@jit
def energy(z, vecs, mats, notes):
    """H of the point ``z``, whose velocity is set from its momentum."""
    velocity(z[P], vecs, mats, notes, z[VELOCITY])
    return -z[LOG_DENSITY, 0] + 0.5 * dot(z[P], z[VELOCITY])


@jit
def refresh(model, geometry, z, normals, vecs, mats, notes):
    """A momentum made from standard normals, with its velocity, into the point ``z``; returns H there."""
    if not make_bands(model, z[Q], vecs, mats, notes):
        notes[FAILURE] = S.DIVERGED
        return math.nan
    draw(normals, vecs, mats, notes, z[P])
    put_copies(z)
    return energy(z, vecs, mats, notes)


@jit_products
def leapfrog(model, geometry, z, eps, vecs, mats, notes):
    """One leapfrog step (:mod:`refhmc.integrators.leapfrog`) of the point ``z`` in place; returns H there.

    Each kick is made in the same pass as the solution with L, and the drift in that with L'.
    """
    notes[N_GRADIENTS] += 1
    value_and_gradient, _, _, data = model
    r, l, half, d = vecs[0], vecs[1], 0.5 * eps, z.shape[1]  # noqa: E741
    p, v = z[P], z[VELOCITY]
    y = 0.0
    for i in range(d):
        p[i] += half * z[GRADIENT, i]
        y = p[i] - l[i] * y
        v[i] = y
    back = below = 0.0
    for i in range(d - 1, -1, -1):
        back = v[i] * r[i] - below * back
        below = l[i]
        z[Q, i] += eps * back
    log_density = value_and_gradient(z[Q], data, z[GRADIENT])
    z[LOG_DENSITY, 0] = log_density
    y = twice_kinetic = 0.0
    for i in range(d):
        p[i] += half * z[GRADIENT, i]
        y = p[i] - l[i] * y
        twice_kinetic += y * y * r[i]
        v[i] = y
    back = below = 0.0
    for i in range(d - 1, -1, -1):
        back = v[i] * r[i] - below * back
        below = l[i]
        v[i] = back
    return 0.5 * twice_kinetic - log_density


# For the integrators that take any metric.
@jit
def settle(model, vecs, mats, notes):
    notes[LOG_DET_WEIGHT] = 0.0
    return make_bands(model, vecs[HERE], vecs, mats, notes)


@jit
def field(model, p, phi, tau, vecs, mats, notes, v, slope):
    velocity(p, vecs, mats, notes, v)
    if phi != 0:
        value_here(model, vecs, notes)
    for i in range(p.shape[0]):
        slope[i] = -phi * vecs[GRADIENT_HERE, i] if phi != 0 else 0.0
