"""Euclidean metrics: a constant mass matrix M, stored as its inverse (the covariance it should imitate).

v = M^-1 p          velocity
p ~ N(0, M)         momentum; with M^-1 = L L', p = L^-T z has covariance (L L')^-1 = M
K = 1/2 p' M^-1 p   kinetic energy (log det M is constant and dropped)

In addition to its diagonal a metric may have some directions (:mod:`refhmc.metrics.low_rank`). The compiled code is the same
for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from refhmc._deprecated import warn_of_old_name
from refhmc.compile.compiled import jit, jit_inline
from refhmc.core.arguments import array_of_numbers, one_of
from refhmc.core.point import as_point, put_copies
from refhmc.core.protocols import Model
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
    ArrayModel,
    HamiltonianOnArrays,
    log_density_at_metric,
)
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot, solve_lower_transposed, symmetric_times

diagonal, shared = EUCLIDEAN.views, SHARED.views
# A dense metric also has M^-1 and its lower Cholesky factor; a diagonal one has no matrices.
DENSE = Layout("", "M_inverse L", after=EUCLIDEAN)
dense = DENSE.views
# A metric of low rank has lambda - 1 and lambda^-1/2 - 1 of its directions, their number, and then one row per direction.
LOW_RANK = Layout("spread shrink rank", after=SHARED)
low_rank, FIRST_DIRECTION = LOW_RANK.views, LOW_RANK.n_vectors

# Values of ``learn_from``.
DRAWS, GRADIENTS_TOO = "draws", "draws and gradients"


class Euclidean:
    """Base class of the constant metrics, also for metrics of your own.

    A metric that warm-up learns is a dataclass. ``learned_values`` has the name of its argument for M^-1.
    """

    position_dependent = False
    learned_values: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple:
        """Names of the model's functions that the metric reads; None for none."""
        return (None, None)

    @property
    def geometry(self) -> tuple:
        """Compiled functions of the metric: factorise, inverse product, velocity and force, momentum draw."""
        return factorise, inverse_product, velocity_and_force, draw

    @property
    def refresh(self) -> Callable:
        """Compiled function that draws a momentum and returns the energy."""
        return refresh

    def inverse_mass(self, dim: int) -> np.ndarray:
        """Return M^-1.

        Parameters
        ----------
        dim : int
            Dimension d of the model.

        Returns
        -------
        ndarray, shape (d,) or (d, d)
            The diagonal of M^-1 if it is diagonal, or the whole matrix.

        Raises
        ------
        refhmc.errors.ShapeError
            If the values of the metric do not fit the dimension.
        refhmc.errors.MetricError
            If the values of the metric are not symmetric, positive definite and finite. The message has the least entry or
            eigenvalue.
        """
        raise NotImplementedError

    def stacks(self, model: Model, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the workspaces of the metric for a model, with M^-1 and its factor.

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
        d, inverse_mass = model.dim, self.inverse_mass(model.dim)
        vecs = np.zeros(((EUCLIDEAN if leapfrog else SHARED).n_vectors, d))
        mats = np.zeros((0, d, d))
        if inverse_mass.ndim == 2:
            mats = np.stack([inverse_mass, np.linalg.cholesky(inverse_mass)])
            inverse_mass = np.diag(inverse_mass)
        vecs[0], vecs[1] = inverse_mass, 1 / np.sqrt(inverse_mass)
        return vecs, mats

    def from_rows(self, vectors: np.ndarray, matrices: np.ndarray) -> Self:
        """Return this metric with the values that warm-up has learned.

        A metric with more than one name in ``learned_values`` overrides it.

        Parameters
        ----------
        vectors : ndarray, shape (k, d)
            Rows of the metric. The first is the diagonal of M^-1.
        matrices : ndarray, shape (m, d, d)
            Matrices of the metric. The first is M^-1 if the metric is dense.

        Returns
        -------
        Euclidean
            The same metric with these values, which are copied.
        """
        (name,) = self.learned_values
        learned: Self = replace(self, **{name: (matrices if self.is_dense else vectors)[0].copy()})  # type: ignore
        return learned

    def options(self) -> dict[str, float]:
        """Return the options of the compiled functions.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {}

    def on_arrays(self, model: ArrayModel) -> HamiltonianOnArrays:
        """Return the Hamiltonian of a model on arrays (..., d).

        Parameters
        ----------
        model : object
            The functions of a model on arrays, as ``refhmc.array_api.ModelOnArrays`` has them.

        Returns
        -------
        HamiltonianOnArrays
            The Hamiltonian, its derivatives and the momentum draw.
        """
        return EuclideanOnArrays(model, self)


@dataclass(frozen=True)
class Identity(Euclidean):
    """The identity as mass matrix, which is never adapted.

    The Hamiltonian is ``H(q, p) = -L(q) + 1/2 p'p``, and the momentum has the distribution N(0, I).

    See Also
    --------
    Diagonal : One scale per coordinate.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.metrics.Identity().inverse_mass(2)
    array([1., 1.])
    """

    name = "identity"
    is_dense = False
    learns = NOTHING

    def inverse_mass(self, dim: int) -> np.ndarray:
        return np.ones(dim)


@dataclass(frozen=True, eq=False)
class Diagonal(Euclidean):
    """Diagonal mass matrix, M^-1 = diag(variances).

    The velocity, the momentum from standard normals z and the kinetic energy are::

        v_i = s_i^2 p_i,      p_i = z_i / s_i,      K = 1/2 sum_i s_i^2 p_i^2,      s_i^2 the variances

    Parameters
    ----------
    variances : float or array_like, shape (d,), optional
        Variances of the coordinates; a scalar is the variance of all. By default they are adapted in warm-up, starting from 1.
    learn_from : {"draws", "draws and gradients"}, default "draws"
        How warm-up estimates the variances: from the variances of the draws, or as ``sqrt(var q / var dL/dq)``. The latter is
        exact for a Gaussian with independent coordinates after a few draws.
    regularization : {"stan"}, optional
        Shrink the estimate towards 1e-3 as Stan does, whatever the scale of the coordinates. By default the shrinkage is
        relative to each coordinate's own scale.

    Raises
    ------
    ValueError
        If `learn_from` or `regularization` is not one of these values, or if `regularization` is given although the metric
        learns from gradients.
    refhmc.errors.MetricError, refhmc.errors.ShapeError
        If `variances` are not positive and finite, or do not fit the model; raised by `refhmc.sample`.

    See Also
    --------
    Dense : All covariances.
    LowRank : A diagonal and the directions that need more.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.metrics.Diagonal([1.0, 4.0]).inverse_mass(2)
    array([1., 4.])
    """

    name = "diagonal"
    variances: ArrayLike | None = None
    learn_from: str = DRAWS
    regularization: str | None = None
    is_dense = False
    learned_values = ("variances",)

    def __post_init__(self) -> None:
        check_estimator(self)

    @property
    def learns(self) -> int:
        """How warm-up learns the metric, as a code of `refhmc.metrics.base`."""
        if self.variances is not None:
            return NOTHING
        return AS_STAN if self.regularization else {DRAWS: FROM_DRAWS, GRADIENTS_TOO: FROM_GRADIENTS}[self.learn_from]

    def from_rows(self, vectors: np.ndarray, matrices: np.ndarray) -> Self:
        return replace(super().from_rows(vectors, matrices), learn_from=DRAWS, regularization=None)

    def inverse_mass(self, dim: int) -> np.ndarray:
        if self.variances is None:
            return np.ones(dim)
        variances = array_of_numbers("variances", self.variances, MetricError)
        if variances.shape not in ((), (dim,)):
            raise ShapeError(
                f"variances must have shape ({dim},); got {variances.shape}. Give one variance per coordinate of the model."
            )
        if not np.all(np.isfinite(variances)) or not np.all(variances > 0):
            raise MetricError(f"variances must be positive and finite; got a least value of {np.min(variances)}.")
        return np.broadcast_to(variances, (dim,)).copy()


@dataclass(frozen=True, eq=False)
class Dense(Euclidean):
    """Dense mass matrix, M^-1 = covariance.

    With the Cholesky factor L of the covariance C, the velocity, the momentum from standard normals z and the kinetic energy
    are::

        v = C p,      p = L'^-1 z,      K = 1/2 p' C p,      C = L L'

    Parameters
    ----------
    covariance : array_like, shape (d, d), optional
        Covariance of the coordinates. By default it is adapted in warm-up, starting from the identity.
    learn_from : {"draws", "draws and gradients"}, default "draws"
        How warm-up estimates the matrix: as the covariance of the draws, shrunk towards 1/1000 of their variances, or as the
        matrix of least Fisher divergence. The latter is exact for any Gaussian with fewer dimensions than half the number of
        draws, if its condition number, after scaling, is at most 1e12.
    regularization : {"stan"}, optional
        Shrink the covariance of the draws towards 1/1000 of the identity, as Stan does.

    Raises
    ------
    ValueError
        If `learn_from` or `regularization` is not one of these values, or if `regularization` is given although the metric
        learns from gradients.
    refhmc.errors.MetricError, refhmc.errors.ShapeError
        If `covariance` is not symmetric and positive definite, or does not fit the model; raised by `refhmc.sample`.

    See Also
    --------
    Diagonal : Variances only.
    LowRank : A diagonal and the directions that need more.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.metrics.Dense([[1.0, 0.5], [0.5, 1.0]]).inverse_mass(2)
    array([[1. , 0.5],
           [0.5, 1. ]])
    """

    name = "dense"
    covariance: ArrayLike | None = None
    learn_from: str = DRAWS
    regularization: str | None = None
    is_dense = True
    learned_values = ("covariance",)

    def __post_init__(self) -> None:
        check_estimator(self)

    @property
    def learns(self) -> int:
        """How warm-up learns the metric, as a code of `refhmc.metrics.base`."""
        if self.covariance is not None:
            return NOTHING
        return AS_STAN if self.regularization else {DRAWS: FROM_DRAWS, GRADIENTS_TOO: FROM_PAIRS}[self.learn_from]

    def from_rows(self, vectors: np.ndarray, matrices: np.ndarray) -> Self:
        return replace(super().from_rows(vectors, matrices), learn_from=DRAWS, regularization=None)

    def inverse_mass(self, dim: int) -> np.ndarray:
        if self.covariance is None:
            return np.eye(dim)
        covariance = array_of_numbers("covariance", self.covariance, MetricError)
        if covariance.shape != (dim, dim):
            raise ShapeError(f"covariance must have shape ({dim}, {dim}); got {covariance.shape}.")
        if not np.all(np.isfinite(covariance)):
            raise MetricError("covariance must be finite; got entries that are not finite.")
        asymmetry = np.abs(covariance - covariance.T).max()
        if asymmetry > 1e-10 * np.abs(covariance).max():
            raise MetricError(
                f"covariance must be symmetric; got a matrix that differs from its transpose by up to {asymmetry:.3g}."
            )
        covariance = 0.5 * (covariance + covariance.T)
        if not is_positive(covariance):
            least = np.linalg.eigvalsh(covariance)[0]
            raise MetricError(
                f"covariance must be positive definite; got a matrix whose least eigenvalue is {least:.6g}."
            )
        return covariance


def is_plain(metric: Any) -> bool:
    """Return whether a metric is constant, and its rows and compiled functions are those of ``Euclidean``."""
    parts = "stacks", "geometry", "refresh", "leapfrog"
    return isinstance(metric, Euclidean) and all(
        getattr(type(metric), part, None) is getattr(Euclidean, part, None) for part in parts
    )


def is_diagonal(metric: Any) -> bool:
    """Return whether a metric is constant and has no more than the diagonal of M^-1."""
    return is_plain(metric) and not metric.is_dense


def is_positive(covariance: np.ndarray) -> bool:
    """Return whether the correlations are positive definite, a test that widely different scales do not disturb."""
    with np.errstate(all="ignore"):
        roots = np.sqrt(np.diag(covariance))
        correlation = covariance / roots / roots[:, None]
    return bool(np.all(np.isfinite(correlation)) and np.linalg.eigvalsh(correlation)[0] > 0)


def check_estimator(metric: Diagonal | Dense) -> None:
    """Raise ValueError unless ``learn_from`` and ``regularization`` name an estimator; accept "draws as Stan", its old name."""
    if metric.learn_from == "draws as Stan":
        warn_of_old_name('learn_from="draws as Stan"', 'regularization="stan"', stacklevel=5)
        object.__setattr__(metric, "learn_from", DRAWS)
        object.__setattr__(metric, "regularization", "stan")
    one_of("learn_from", metric.learn_from, (DRAWS, GRADIENTS_TOO))
    if metric.regularization is not None:
        one_of("regularization", metric.regularization, ("stan",))
        if metric.learn_from != DRAWS:
            raise ValueError(
                f"regularization='stan' needs learn_from={DRAWS!r}; got learn_from={metric.learn_from!r}. "
                "Remove one of the two."
            )


class EuclideanOnArrays(HamiltonianOnArrays):
    """The Hamiltonian on arrays (..., d); W = M^-1 is (d,), a diagonal, or (d, d)."""

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
    def root(self, q: Array) -> Array:
        """Return L'^-1, upper, with L L' = W.

        It is computed once. Solving L' p = z for all chains together would make the last digits of one depend on the others.
        """
        xp, W = batched.namespace(q), self.inverse_mass(q)
        return xp.linalg.solve(batched.transpose(batched.cholesky(W)), xp.eye(q.shape[-1], dtype=W.dtype))

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        W = self.inverse_mass(q)
        return normals / W**0.5 if W.ndim == 1 else batched.times(self.root(q), normals)


@jit_inline
def rank_of(work: tuple) -> int:
    """Return how many directions the metric has in addition to its diagonal; 0 if it has no rows for them."""
    return int(low_rank(work).rank[0]) if as_work(work).vecs.shape[0] >= FIRST_DIRECTION else 0


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = M^-1 p."""
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
    """Return H of the point ``z``, and set its velocity from its momentum."""
    point = as_point(z)
    inverse_product(point.p, work, point.velocity)
    return -point.log_density[0] + 0.5 * dot(point.p, point.velocity)


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, M) from standard normals."""
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
    """Make a momentum from standard normals for the point ``z``, if ``draws`` is True, set its velocity and return H."""
    if draws:
        draw(normals, work, as_point(z).p)
    put_copies(z)
    return energy(z, work)


# For the integrators that take any metric: only the gradient depends on the position.
@jit
def factorise(model: tuple, work: tuple) -> bool:
    """Drop the constant log det M."""
    as_work(work).cache.log_det_weight = 0.0
    return True


@jit
def velocity_and_force(
    model: tuple, p: np.ndarray, phi: float, tau: float, work: tuple, v: np.ndarray, dH_dq: np.ndarray
) -> None:
    """Compute v = M^-1 p, and phi dphi/dq = -phi dL/dq."""
    inverse_product(p, work, v)
    if phi != 0:
        log_density_at_metric(model, work)
    gradient = shared(work).gradient
    for i in range(p.shape[0]):
        dH_dq[i] = -phi * gradient[i] if phi != 0 else 0.0
