"""What every metric offers the integrators: the Hamiltonian at a point, whatever the mass matrix.

    H(q, p) = phi(q) + tau(q, p),      phi = -L(q) + 1/2 log det G(q),      tau = 1/2 p' G(q)^-1 p

    dq/dt =  dH/dp = G^-1 p
    dp/dt = -dH/dq,   dphi/dq_k = -dL/dq_k + 1/2 tr(G^-1 dG/dq_k),   dtau/dq_k = -1/2 v' dG/dq_k v,   v = G^-1 p

Girolami and Calderhead (2011), eqs. 13-16; the sign of dL/dq is that of the errata to Brofos and Lederman's eq. 3.

A metric is factorised at one position at a time, its ``position``, with all that depends on the position alone kept until the
next one. Nothing is done twice at the same position: the last evaluation of a step is the first one of the next. What is
kept is a function of the position only, so it never shows in the draws.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from refhmc.core import sample_stats as S
from refhmc.core.compiled import invariant, jit, jit_part
from refhmc.core.point import POINT_ROWS, as_point, copy_row
from refhmc.core.records import Layout
from refhmc.core.types import as_metric, as_model, as_work
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

if TYPE_CHECKING:
    from refhmc.models.base import Model

# What warm-up learns a metric from: nothing; the draws of a window, shrunk by their own scales, or as Stan does;
# variances of draws and of gradients; the draws and gradients themselves, which are kept.
NOTHING, FROM_DRAWS, AS_STAN, FROM_GRADIENTS, FROM_PAIRS = range(5)


class Metric(Protocol):
    """What refhmc asks of a metric, its own or somebody else's (``docs/how_to_add.md``).

    ``reads``: the model's functions for the pointers ``metric`` and ``hessian_contraction``. ``geometry``: the four compiled functions of
    :mod:`refhmc.core.types`, and ``refresh`` its compiled momentum draw. ``stacks``: ``vecs`` and ``mats`` for a model;
    ``leapfrog`` says that the integrator asks it for no more than M^-1. ``options``: entries of the record of that name.
    """

    position_dependent: bool
    is_dense: bool

    @property
    def learns(self) -> int: ...
    @property
    def reads(self) -> tuple[str | None, str | None]: ...
    @property
    def geometry(self) -> tuple: ...
    @property
    def refresh(self) -> Any: ...
    def stacks(self, model: Any, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]: ...
    def options(self) -> dict[str, float]: ...


class Riemannian:
    """What the metrics that are functions of the position have in common: ``geometry``, their four pointers, and ``layout``,
    the rows that they need. One of your own may begin with it, too."""

    position_dependent = True
    is_dense = True
    learns = NOTHING
    reads: tuple[str | None, str | None]
    layout: Layout

    @property
    def geometry(self) -> tuple:
        raise NotImplementedError

    @property
    def refresh(self) -> Any:
        return refresh

    def stacks(self, model: Any, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        """``vecs`` and ``mats``, zeros."""
        return np.zeros((self.layout.n_vectors, model.dim)), np.zeros((self.n_matrices(model), model.dim, model.dim))

    def n_matrices(self, model: Model) -> int:
        """How many matrices it needs for a model."""
        return self.layout.n_matrices

    def options(self) -> dict[str, float]:
        return {"alpha": self.alpha} if hasattr(self, "alpha") else {}


@dataclass(frozen=True)
class HamiltonianOnArrays:
    """H on arrays of positions and momenta (..., d); each metric's text says the methods without a body.

    ``model`` has ``log_density``, ``gradient`` and what the metric reads on such arrays: a
    :class:`refhmc.models.on_arrays.ModelOnArrays` on NumPy, else of any namespace of the array API.
    """

    model: Any
    metric: Any
    indefinite: ClassVar[Any] = (
        None  # of a metric that can be: (q) -> whether G(q) is finite and not positive definite, (...)
    )

    @abstractmethod
    def mass(self, q: Array) -> Array:
        """G(q), (..., d, d)"""

    @abstractmethod
    def inverse_product(self, q: Array, p: Array) -> Array:
        """v = G(q)^-1 p = dH/dp"""

    @abstractmethod
    def half_log_det(self, q: Array) -> Array:
        """1/2 log det G(q), (...)"""

    def scales(self, q: Array) -> Array:
        """What the condition number of G is read from, (..., k): eigenvalues, or the pivots of ``Fisher``"""
        raise NotImplementedError

    def condition(self, q: Array) -> Array:
        """The ratio of the extreme scales, (...)"""
        xp, scales = batched.namespace(q), self.scales(q)
        return xp.max(scales, axis=-1) / xp.min(scales, axis=-1)

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


# The rows that all metrics share. A Euclidean metric has the first two: the diagonal of M^-1, and one over its root.
# ``position`` is where the metric is factorised, ``gradient`` dL/dq there, 1/2 log det G = log_det_weight sum_i log scales_i.
EUCLIDEAN = Layout("inverse_mass root")
SHARED = Layout("position gradient scales", after=EUCLIDEAN)
views = SHARED.views


@jit_part
def factorise(model: tuple, metric: tuple, q: np.ndarray, work: tuple) -> bool:
    """Factorise the metric at ``q``, unless that is where it stands; False if it cannot be, with the reason noted.

    DIVERGED: the metric is finite and not positive definite (the metric's own ``factorise`` says so). NAN: it is not finite, or
    rounding hides whether it is positive.
    """
    vecs, mats, _, cache, counters, status = as_work(work)
    position = views(work).position
    if cache.factorised != 0:
        i = 0
        while i < q.shape[0] and q[i] == position[i]:
            i += 1
        if i == q.shape[0]:
            if cache.factorised < 0:
                status.failure = -cache.factorised
            return cache.factorised > 0
    copy_row(position, q)
    cache.factorised = cache.has_log_density = cache.has_force = 0
    counters.metrics += 1
    factorised = as_metric(metric).factorise(model, work)
    if not factorised and status.failure == 0:
        status.failure = S.NAN
    cache.factorised = 1 if factorised else -status.failure
    return factorised


@jit_part
def log_density_at_metric(model: tuple, work: tuple) -> float:
    """L at the metric's position, with its gradient in ``gradient``."""
    vecs, mats, _, cache, counters, _ = as_work(work)
    invariant(cache.factorised >= 0)
    if cache.has_log_density == 0:
        f, at = as_model(model), views(work)
        cache.log_density = f.value_and_gradient(at.position, f.data, at.gradient)
        cache.has_log_density = 1
        counters.gradients += 1
    return cache.log_density


@jit_part
def velocity_and_force(
    model: tuple,
    metric: tuple,
    p: np.ndarray,
    phi: float,
    tau: float,
    work: tuple,
    velocity: np.ndarray,
    dH_dq: np.ndarray,
) -> None:
    """dH/dp = G^-1 p, and phi dphi/dq + tau dtau/dq, at the metric's position."""
    as_work(work).counters.fields += 1
    as_metric(metric).velocity_and_force(model, p, phi, tau, work, velocity, dH_dq)


@jit_part
def half_log_det(work: tuple) -> float:
    """1/2 log det G at the metric's position; only energies need it, the forces do not.

    One logarithm for a product of many scales, taken before it can leave the range of a double.
    """
    vecs, mats, _, cache, _, _ = as_work(work)
    scales = views(work).scales
    total, product = 0.0, 1.0
    if cache.log_det_weight != 0:
        for i in range(scales.shape[0]):
            scale = scales[i]
            if 1e-140 < scale < 1e140:
                product *= scale
                if not 1e-140 < product < 1e140:
                    total += np.log(product)
                    product = 1.0
            else:
                total += np.log(scale)
        total += np.log(product)
    return cache.log_det_weight * total


@jit
def energy(model: tuple, metric: tuple, z: np.ndarray, work: tuple) -> float:
    """H = phi + tau of the point ``z``, whose other rows are set from its position and momentum; NaN if there is none."""
    point, status = as_point(z), as_work(work).status
    if not factorise(model, metric, point.q, work):
        return math.nan
    log_density = log_density_at_metric(model, work)
    point.log_density[0] = log_density
    copy_row(point.gradient, views(work).gradient)
    as_metric(metric).inverse_product(point.p, work, point.velocity)
    H = -log_density + half_log_det(work) + 0.5 * dot(point.p, point.velocity)
    if not math.isfinite(H) and status.failure == 0:
        status.failure = S.NAN
    return H


@jit_part
def condition(scales: np.ndarray) -> float:
    """The ratio of the extreme scales: eigenvalues of G, of ``Fisher`` the pivots of its factorisation."""
    least = largest = scales[0]
    for i in range(scales.shape[0]):
        least = min(least, scales[i])
        largest = max(largest, scales[i])
    return largest / least


@jit
def refresh(model: tuple, metric: tuple, z: np.ndarray, normals: np.ndarray, draws: bool, work: tuple) -> float:
    """A momentum made from standard normals into the point ``z``, unless it ``draws`` none; returns H there.

    Copies start on the diagonal.
    """
    point = as_point(z)
    if not factorise(model, metric, point.q, work):
        return math.nan
    as_work(work).status.condition = condition(views(work).scales)
    if draws:
        as_metric(metric).draw(normals, work, point.p)
    put_copies(z)
    return energy(model, metric, z, work)


@jit_part
def put_copies(z: np.ndarray) -> None:
    """In an extended phase space (:mod:`refhmc.integrators.explicit_tao`) set the copies to the point itself."""
    for row in range(POINT_ROWS, z.shape[0]):
        copy_row(z[row], z[row - POINT_ROWS])
