"""The interface of every metric to the integrators: the Hamiltonian at a point, for any mass matrix.

    H(q, p) = phi(q) + tau(q, p),      phi = -L(q) + 1/2 log det G(q),      tau = 1/2 p' G(q)^-1 p

    dq/dt =  dH/dp = G^-1 p
    dp/dt = -dH/dq,   dphi/dq_k = -dL/dq_k + 1/2 tr(G^-1 dG/dq_k),   dtau/dq_k = -1/2 v' dG/dq_k v,   v = G^-1 p

Girolami and Calderhead (2011), eqs. 13-16; the sign of dL/dq is that of the errata to Brofos and Lederman's eq. 3.

A metric is factorised at one position at a time, its ``position``. All results that depend on the position alone are kept until
the next one, so that nothing is computed twice at the same position: the last evaluation of a step is the first one of the
next. These results are functions of the position only, so that the draws do not depend on whether they were kept.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from refhmc.compile.compiled import invariant, jit, jit_part
from refhmc.core import sample_stats as S
from refhmc.core.point import as_point, copy_row, put_copies
from refhmc.core.protocols import Model
from refhmc.core.records import Layout
from refhmc.core.types import as_metric, as_model, as_work
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

# How warm-up learns a metric: not at all; from the draws of a window, shrunk by their own scales, or as in Stan;
# from variances of draws and gradients; from the draws and gradients themselves, which are kept.
NOTHING, FROM_DRAWS, AS_STAN, FROM_GRADIENTS, FROM_PAIRS = range(5)


class Metric(Protocol):
    """Protocol of a metric, refhmc's or a user's (``docs/how_to_add.md``).

    ``reads`` has the model's functions for the pointers ``metric`` and ``hessian_contraction``. ``geometry`` has the four
    compiled functions of :mod:`refhmc.core.types`, and ``refresh`` is the compiled momentum draw. ``stacks`` returns
    ``vecs`` and ``mats`` for a model; ``leapfrog`` is True if the integrator needs only M^-1. ``options`` returns entries
    of the record of that name.
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
    def refresh(self) -> Callable: ...
    def stacks(self, model: Model, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]: ...
    def options(self) -> dict[str, float]: ...


class ArrayModel(Protocol):
    """Functions of a model on arrays of positions (..., d), which metrics and integrators call.

    :mod:`refhmc.models.on_arrays` describes them. A function that the model lacks raises
    :class:`refhmc.errors.MissingDerivativeError`.
    """

    @property
    def dim(self) -> int: ...
    @property
    def discontinuous(self) -> Collection[int]: ...
    @property
    def fisher_levels(self) -> np.ndarray | None: ...
    @property
    def parts(self) -> Sequence[ArrayModel]: ...
    def value_and_gradient(self, q: Array) -> tuple[Array, Array]: ...
    def log_density(self, q: Array) -> Array: ...
    def gradient(self, q: Array) -> Array: ...
    def hessian(self, q: Array) -> Array: ...
    def hessian_contraction(self, q: Array, M: Array) -> Array: ...
    def fisher(self, q: Array) -> Array: ...
    def fisher_contraction(self, q: Array, M: Array) -> Array: ...
    def fisher_bands(self, q: Array) -> Array: ...


class ArrayMetric(Metric, Protocol):
    """Protocol of a metric that also has an implementation on arrays."""

    def on_arrays(self, model: ArrayModel) -> HamiltonianOnArrays: ...


class ConstantMetric(ArrayMetric, Protocol):
    """Protocol of a metric that does not depend on the position, given by M^-1."""

    def inverse_mass(self, dim: int) -> np.ndarray: ...


class Riemannian:
    """Base class of the metrics that depend on the position, also for metrics of your own.

    Subclasses define ``geometry``, their four compiled functions, and ``layout``, the rows that they need.
    """

    position_dependent = True
    is_dense = True
    learns = NOTHING
    reads: tuple[str | None, str | None]
    layout: Layout

    @property
    def geometry(self) -> tuple:
        """Compiled functions of the metric: factorise, inverse product, velocity and force, momentum draw."""
        raise NotImplementedError

    @property
    def refresh(self) -> Callable:
        """Compiled function that draws a momentum and returns the energy."""
        return refresh

    def stacks(self, model: Model, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return zeroed workspaces of the metric for a model.

        Parameters
        ----------
        model : Model
            The model.
        leapfrog : bool
            Whether the integrator needs only M^-1.

        Returns
        -------
        vecs : ndarray, shape (k, d)
            Rows of the metric.
        mats : ndarray, shape (m, d, d)
            Matrices of the metric.
        """
        return np.zeros((self.layout.n_vectors, model.dim)), np.zeros((self.n_matrices(model), model.dim, model.dim))

    def n_matrices(self, model: Model) -> int:
        """Return how many matrices the metric needs for a model.

        Parameters
        ----------
        model : Model
            The model.

        Returns
        -------
        int
            Number of matrices.
        """
        return self.layout.n_matrices

    def options(self) -> dict[str, float]:
        """Return the options of the compiled functions.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {"alpha": self.alpha} if hasattr(self, "alpha") else {}


@dataclass(frozen=True)
class HamiltonianOnArrays:
    """The Hamiltonian of a metric on arrays of positions and momenta (..., d).

    For a metric G, the Hamiltonian and its parts are::

        H(q, p) = phi(q) + tau(q, p),      phi = -L(q) + 1/2 log det G(q),      tau = 1/2 p' G(q)^-1 p

    Each metric has a subclass, which its ``on_arrays`` returns. Constants are dropped.

    Parameters
    ----------
    model : object
        The functions of a model on arrays: ``log_density``, ``gradient`` and those that the metric reads. For example a
        :class:`refhmc.array_api.ModelOnArrays` on NumPy.
    metric : object
        A metric of `refhmc.metrics`.

    See Also
    --------
    refhmc.array_api.hamiltonian : Returns this for a model and a metric.

    References
    ----------
    Girolami and Calderhead (2011), equations 13 to 16. The sign of dL/dq is that of the erratum to equation 3 of Brofos and
    Lederman (2021).

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 4.0]])
    >>> H = refhmc.array_api.hamiltonian(model, refhmc.metrics.SoftAbs())
    >>> H.mass(np.zeros((3, 2))).shape
    (3, 2, 2)
    """

    model: Any  # an ArrayModel, or one with more functions
    metric: Any  # the metric of the subclass
    # (q) -> whether G(q) is finite and not positive definite, (...); None if the metric cannot be indefinite
    indefinite: ClassVar[Callable | None] = None

    @abstractmethod
    def mass(self, q: Array) -> Array:
        """Return the mass matrices.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (..., d, d)
            G(q).
        """

    @abstractmethod
    def inverse_product(self, q: Array, p: Array) -> Array:
        """Return the velocities, dH/dp.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        p : array, shape (..., d)
            Momenta.

        Returns
        -------
        array, shape (..., d)
            The velocities G(q)^-1 p.
        """

    @abstractmethod
    def half_log_det(self, q: Array) -> Array:
        """Return half the logarithm of the determinant of the mass matrix.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (...)
            1/2 log det G(q).
        """

    def scales(self, q: Array) -> Array:
        """Return the numbers from which the condition number of G is computed.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (..., k)
            Eigenvalues of G; for ``Fisher`` the pivots of its factorisation.
        """
        raise NotImplementedError

    def condition(self, q: Array) -> Array:
        """Return the ratio of the largest to the least of the scales.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (...)
            The condition number of G; for ``Fisher`` a lower bound.
        """
        xp, scales = batched.namespace(q), self.scales(q)
        return xp.max(scales, axis=-1) / xp.min(scales, axis=-1)

    @abstractmethod
    def potential_force(self, q: Array) -> Array:
        """Return the force of the potential phi.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (..., d)
            The derivative -dphi/dq.
        """

    @abstractmethod
    def kinetic_force(self, q: Array, p: Array) -> Array:
        """Return the force of the kinetic energy tau.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        p : array, shape (..., d)
            Momenta.

        Returns
        -------
        array, shape (..., d)
            The derivative -dtau/dq.
        """

    @abstractmethod
    def draw_momentum(self, q: Array, normals: Array) -> Array:
        """Draw momenta p ~ N(0, G(q)) from standard normals.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        normals : array, shape (..., d)
            Standard normal random numbers.

        Returns
        -------
        array, shape (..., d)
            Momenta.
        """

    def energy(self, q: Array, p: Array) -> Array:
        """Return the energies.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        p : array, shape (..., d)
            Momenta.

        Returns
        -------
        array, shape (...)
            H = phi + tau.
        """
        tau = 0.5 * batched.dot(p, self.inverse_product(q, p))
        return -self.model.log_density(q) + self.half_log_det(q) + tau

    def velocity_and_force(self, q: Array, p: Array) -> tuple[Array, Array]:
        """Return velocities and forces.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        p : array, shape (..., d)
            Momenta.

        Returns
        -------
        velocity : array, shape (..., d)
            The derivative dH/dp.
        force : array, shape (..., d)
            The derivative -dH/dq.
        """
        return self.inverse_product(q, p), self.potential_force(q) + self.kinetic_force(q, p)

    def vector_field(self, z: Array) -> Array:
        """Return the time derivative of a point of phase space.

        Parameters
        ----------
        z : array, shape (..., 2d)
            Positions and momenta, z = (q, p).

        Returns
        -------
        array, shape (..., 2d)
            The derivative (dH/dp, -dH/dq).
        """
        return batched.join(*self.velocity_and_force(*batched.split(z)))


# The rows that all metrics share. A Euclidean metric has the first two: the diagonal of M^-1, and one over its root.
# The metric is factorised at ``position``; ``gradient`` is dL/dq there; 1/2 log det G = log_det_weight sum_i log scales_i.
EUCLIDEAN = Layout("inverse_mass root")
SHARED = Layout("position gradient scales", after=EUCLIDEAN)
views = SHARED.views
# A metric with ``hyperparameters`` also has the row ``ignored``: 1 for coordinates that NUTS's U-turn criterion leaves out.
HIERARCHY = Layout("ignored", after=SHARED)


def put_hyperparameters(vecs: np.ndarray, hyperparameters: np.ndarray) -> None:
    """Write the row ``ignored`` for a mask of the hyperparameters; without any, no coordinate is ignored."""
    vecs[int(HIERARCHY.vectors["ignored"]), : len(hyperparameters)] = hyperparameters.any() & ~hyperparameters


def for_model(metric: Metric, model: Model) -> Metric:
    """Return the metric with the compiled functions for a model, of which a metric may have several."""
    return metric.for_model(model) if hasattr(metric, "for_model") else metric


def hyperparameters_of(metric: Metric, model: Model) -> np.ndarray | None:
    """Return the mask of the coordinates on which the masses of others depend; None if there are none."""
    found = metric.hyperparameters(model) if hasattr(metric, "hyperparameters") else None
    return found if found is not None and found.any() else None


@jit_part
def factorise(model: tuple, metric: tuple, q: np.ndarray, work: tuple) -> bool:
    """Factorise the metric at ``q``, unless it is already factorised there; return False, and note the reason, if this fails.

    DIVERGED: the metric is finite and not positive definite (the metric's own ``factorise`` notes this). NAN: it is not
    finite, or rounding hides whether it is positive definite.
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
    """Return L at the metric's position, and write its gradient to ``gradient``."""
    vecs, mats, _, cache, counters, _ = as_work(work)
    invariant(cache.factorised >= 0)
    if cache.has_log_density == 0:
        f, at = as_model(model), views(work)
        cache.log_density = f.value_and_gradient(at.position, f.data, at.gradient)
        cache.has_log_density = 1
        counters.gradients += 1
    return cache.log_density


@jit_part
def keep_gradient(z: np.ndarray, work: tuple) -> None:
    """Store L and its gradient, which the point ``z`` at the metric's position already has, so that they are not evaluated."""
    cache, point = as_work(work).cache, as_point(z)
    if cache.has_log_density == 0:
        copy_row(views(work).gradient, point.gradient)
        cache.log_density = point.log_density[0]
        cache.has_log_density = 1


@jit_part
def move_last_level(q: np.ndarray, work: tuple) -> None:
    """Move the metric to ``q``, which differs from its position in coordinates that G does not depend on."""
    copy_row(views(work).position, q)
    as_work(work).cache.has_log_density = 0


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
    """Compute dH/dp = G^-1 p, and phi dphi/dq + tau dtau/dq, at the metric's position."""
    as_work(work).counters.fields += 1
    as_metric(metric).velocity_and_force(model, p, phi, tau, work, velocity, dH_dq)


@jit_part
def half_log_det(work: tuple) -> float:
    """Return 1/2 log det G at the metric's position; energies need it, but forces do not.

    One logarithm is taken of a product of many scales, before the product can leave the range of a double.
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
    """Return H = phi + tau of the point ``z``, and set its other rows from its position and momentum.

    The energy is NaN if the metric cannot be factorised.
    """
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
    """Return the ratio of the extreme scales: eigenvalues of G, or for ``Fisher`` the pivots of its factorisation."""
    least = largest = scales[0]
    for i in range(scales.shape[0]):
        least = min(least, scales[i])
        largest = max(largest, scales[i])
    return largest / least


@jit
def refresh(model: tuple, metric: tuple, z: np.ndarray, normals: np.ndarray, draws: bool, work: tuple) -> float:
    """Make a momentum from standard normals for the point ``z``, if ``draws`` is True, and return H there.

    The point already has its log density and gradient, which are not evaluated again. The copies of an extended phase space
    start on the diagonal.
    """
    point = as_point(z)
    if not factorise(model, metric, point.q, work):
        return math.nan
    keep_gradient(z, work)
    as_work(work).status.condition = condition(views(work).scales)
    if draws:
        as_metric(metric).draw(normals, work, point.p)
    put_copies(z)
    return energy(model, metric, z, work)
