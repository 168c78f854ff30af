"""Euclidean metrics: a constant mass matrix M, stored as its inverse (the covariance it should imitate).

v = M^-1 p          velocity
p ~ N(0, M)         momentum; with M^-1 = L L', p = L^-T z has covariance (L L')^-1 = M
K = 1/2 p' M^-1 p   kinetic energy (log det M is constant and dropped)

Beside its diagonal a metric may have some directions (:mod:`refhmc.metrics.low_rank`); compiled code is one for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core.arguments import array_of_numbers, one_of
from refhmc.core.compiled import jit, jit_inline
from refhmc.core.point import as_point
from refhmc.core.records import Layout
from refhmc.core.types import as_work
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics.base import (
    AS_STAN,
    EUCLIDEAN,
    FROM_DRAWS,
    FROM_GRADIENTS,
    FROM_PAIRS,
    NOTHING,
    SHARED,
    HamiltonianOnArrays,
    log_density_at_metric,
    put_copies,
)
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot, solve_lower_transposed, symmetric_times

diagonal, shared = EUCLIDEAN.views, SHARED.views
# A dense metric has M^-1 and its lower Cholesky factor besides; the matrices of a diagonal one are none.
DENSE = Layout("", "M_inverse L", after=EUCLIDEAN)
dense = DENSE.views
# One of low rank has lambda - 1 and lambda^-1/2 - 1 of its directions, how many they are, and then themselves, a row each.
LOW_RANK = Layout("spread shrink rank", after=SHARED)
low_rank, FIRST_DIRECTION = LOW_RANK.views, LOW_RANK.n_vectors

# What ``learn_from`` may say.
DRAWS, GRADIENTS_TOO, STAN = "draws", "draws and gradients", "draws as Stan"


class Euclidean:
    """What the constant metrics have in common."""

    position_dependent = False

    @property
    def reads(self) -> tuple:
        return (None, None)

    @property
    def geometry(self) -> tuple:
        return factorise, inverse_product, velocity_and_force, draw

    @property
    def refresh(self) -> Any:
        return refresh

    def inverse_mass(self, dim: int) -> np.ndarray:
        """M^-1, its diagonal (dim,) or all of it (dim, dim)."""
        raise NotImplementedError

    def stacks(self, model: Any, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        """``vecs`` and ``mats``: M^-1 and its factor in their rows."""
        d, inverse_mass = model.dim, self.inverse_mass(model.dim)
        vecs = np.zeros(((EUCLIDEAN if leapfrog else SHARED).n_vectors, d))
        mats = np.zeros((0, d, d))
        if inverse_mass.ndim == 2:
            mats = np.stack([inverse_mass, np.linalg.cholesky(inverse_mass)])
            inverse_mass = np.diag(inverse_mass)
        vecs[0], vecs[1] = inverse_mass, 1 / np.sqrt(inverse_mass)
        return vecs, mats

    def options(self) -> dict[str, float]:
        return {}

    def on_arrays(self, model: Any) -> HamiltonianOnArrays:
        """The Hamiltonian on arrays (..., d)."""
        return EuclideanOnArrays(model, self)


@dataclass(frozen=True)
class Identity(Euclidean):
    """M = I, never adapted."""

    name = "identity"
    is_dense = False
    learns = NOTHING

    def inverse_mass(self, dim: int) -> np.ndarray:
        return np.ones(dim)


@dataclass(frozen=True, eq=False)
class Diagonal(Euclidean):
    """M^-1 = diag(variances). ``None``: adapted in warm-up from 1. A scalar stands for all coordinates.

    ``learn_from`` says what it is adapted from: "draws" (their variances), "draws as Stan" (the same, shrunk towards 10^-3
    whatever their scale), or "draws and gradients", sqrt(var q / var dL/dq), which is exact for a Gaussian with independent
    coordinates after a few draws (:mod:`refhmc.adaptation.welford`).
    """

    name = "diagonal"
    variances: Any = None
    learn_from: str = DRAWS
    is_dense = False

    def __post_init__(self) -> None:
        check_learn_from(self.learn_from)

    @property
    def learns(self) -> int:
        if self.variances is not None:
            return NOTHING
        return {DRAWS: FROM_DRAWS, STAN: AS_STAN, GRADIENTS_TOO: FROM_GRADIENTS}[self.learn_from]

    def inverse_mass(self, dim: int) -> np.ndarray:
        """The diagonal, (dim,). Raises ShapeError, or MetricError naming the least entry."""
        if self.variances is None:
            return np.ones(dim)
        variances = array_of_numbers("variances", self.variances, MetricError)
        if variances.shape not in ((), (dim,)):
            raise ShapeError(f"variances: expected ({dim},), got {variances.shape}")
        if not np.all(np.isfinite(variances)) or not np.all(variances > 0):
            raise MetricError(f"variances must be positive and finite; the least is {np.min(variances)}")
        return np.broadcast_to(variances, (dim,)).copy()


@dataclass(frozen=True, eq=False)
class Dense(Euclidean):
    """M^-1 = covariance. ``None``: adapted in warm-up from the identity.

    ``learn_from``: "draws", their covariance, shrunk by 1/1000 of their own variances (:mod:`refhmc.adaptation.welford`);
    "draws as Stan", shrunk by 1/1000 of the identity; or "draws and gradients", the matrix of least Fisher divergence
    (:mod:`refhmc.adaptation.fisher_divergence`), which is exact for any Gaussian of fewer dimensions than half of the draws
    whose condition, beside its scales, is 10^12 at most.
    """

    name = "dense"
    covariance: Any = None
    learn_from: str = DRAWS
    is_dense = True

    def __post_init__(self) -> None:
        check_learn_from(self.learn_from)

    @property
    def learns(self) -> int:
        if self.covariance is not None:
            return NOTHING
        return {DRAWS: FROM_DRAWS, STAN: AS_STAN, GRADIENTS_TOO: FROM_PAIRS}[self.learn_from]

    def inverse_mass(self, dim: int) -> np.ndarray:
        """The matrix, (dim, dim). Raises ShapeError, or MetricError naming asymmetry or the least eigenvalue."""
        if self.covariance is None:
            return np.eye(dim)
        covariance = array_of_numbers("covariance", self.covariance, MetricError)
        if covariance.shape != (dim, dim):
            raise ShapeError(f"covariance: expected ({dim}, {dim}), got {covariance.shape}")
        if not np.all(np.isfinite(covariance)):
            raise MetricError("covariance has entries that are not finite")
        asymmetry = np.abs(covariance - covariance.T).max()
        if asymmetry > 1e-10 * np.abs(covariance).max():
            raise MetricError(f"covariance is not symmetric: it differs from its transpose by up to {asymmetry:.3g}")
        covariance = 0.5 * (covariance + covariance.T)
        if not is_positive(covariance):
            least = np.linalg.eigvalsh(covariance)[0]
            raise MetricError(f"covariance is not positive definite: its least eigenvalue is {least:.6g}")
        return covariance


def is_positive(covariance: np.ndarray) -> bool:
    """Whether the correlations are positive definite, which scales far apart do not hide."""
    with np.errstate(all="ignore"):
        roots = np.sqrt(np.diag(covariance))
        correlation = covariance / roots / roots[:, None]
    return bool(np.all(np.isfinite(correlation)) and np.linalg.eigvalsh(correlation)[0] > 0)


def check_learn_from(word: str) -> None:
    one_of("learn_from", word, (DRAWS, STAN, GRADIENTS_TOO))


class EuclideanOnArrays(HamiltonianOnArrays):
    """On arrays (..., d); W = M^-1 is (d,), a diagonal, or (d, d)."""

    @batched.kept
    def inverse_mass(self, q: Array) -> Array:
        return batched.namespace(q).asarray(self.metric.inverse_mass(q.shape[-1]), dtype=q.dtype)

    def mass(self, q: Array) -> Array:
        W = self.inverse_mass(q)
        M = batched.diagonal_matrix(1 / W) if W.ndim == 1 else batched.namespace(q).linalg.inv(W)
        return batched.namespace(q).broadcast_to(M, (*q.shape, q.shape[-1]))

    def inverse_product(self, q: Array, p: Array) -> Array:
        W = self.inverse_mass(q)
        return W * p if W.ndim == 1 else batched.times(W, p)

    def half_log_det(self, q: Array) -> Array:
        return 0.0 * q[..., 0]  # a constant, dropped

    def potential_force(self, q: Array) -> Array:
        return self.model.gradient(q)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        return 0.0 * p

    @batched.kept
    def factor(self, q: Array) -> Array:
        """L', upper, with L L' = W"""
        return batched.transpose(batched.cholesky(self.inverse_mass(q)))

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        W = self.inverse_mass(q)
        return normals / W**0.5 if W.ndim == 1 else batched.solve(self.factor(q), normals)


@jit_inline
def rank_of(work: tuple) -> int:
    """How many directions the metric has beside its diagonal; none where it has no rows for them."""
    return int(low_rank(work).rank[0]) if as_work(work).vecs.shape[0] >= FIRST_DIRECTION else 0


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """out = M^-1 p"""
    if as_work(work).mats.shape[0] == 0:
        inverse_mass, vecs = diagonal(work).inverse_mass, as_work(work).vecs
        for i in range(p.shape[0]):
            out[i] = inverse_mass[i] * p[i]
        for k in range(rank_of(work)):
            v = vecs[FIRST_DIRECTION + k]
            along = low_rank(work).spread[k] * dot(v, p)
            for i in range(p.shape[0]):
                out[i] += along * v[i]
    else:
        symmetric_times(dense(work).M_inverse, p, out)


@jit
def energy(z: np.ndarray, work: tuple) -> float:
    """H of the point ``z``, whose velocity is set from its momentum."""
    point = as_point(z)
    inverse_product(point.p, work, point.velocity)
    return -point.log_density[0] + 0.5 * dot(point.p, point.velocity)


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """p ~ N(0, M) from standard normals."""
    if as_work(work).mats.shape[0] == 0:
        root, vecs = diagonal(work).root, as_work(work).vecs
        for i in range(p.shape[0]):
            p[i] = normals[i] * root[i]
        for k in range(rank_of(work)):  # one after another: v_j . p is not changed by the others
            v = vecs[FIRST_DIRECTION + k]
            along = low_rank(work).shrink[k] * dot(v, p)
            for i in range(p.shape[0]):
                p[i] += along * root[i] ** 2 * v[i]
    else:
        for i in range(p.shape[0]):
            p[i] = normals[i]
        solve_lower_transposed(dense(work).L, p)


@jit
def refresh(model: tuple, metric: tuple, z: np.ndarray, normals: np.ndarray, draws: bool, work: tuple) -> float:
    """A momentum made from standard normals, unless it ``draws`` none, with its velocity, into the point ``z``; returns H."""
    if draws:
        draw(normals, work, as_point(z).p)
    put_copies(z)
    return energy(z, work)


# For the integrators that take any metric: nothing depends on the position but the gradient.
@jit
def factorise(model: Any, work: np.ndarray) -> Any:
    as_work(work).cache.log_det_weight = 0.0
    return True


@jit
def velocity_and_force(
    model: Any, p: np.ndarray, phi: Any, tau: Any, work: np.ndarray, v: np.ndarray, dH_dq: Any
) -> None:
    inverse_product(p, work, v)
    if phi != 0:
        log_density_at_metric(model, work)
    gradient = shared(work).gradient
    for i in range(p.shape[0]):
        dH_dq[i] = -phi * gradient[i] if phi != 0 else 0.0
