"""A constant tridiagonal mass matrix M, given by its bands: all operations cost O(d).

    M = L D L',   L unit lower with l_1 ... l_{d-1} below its diagonal:
    D_0 = a_0,   l_i = b_{i-1} / D_{i-1},   D_i = a_i - l_i b_{i-1}

(a the diagonal of M, b the entries next to it). With L y = p solved from above,

    v = M^-1 p = L^-T D^-1 y,     p' M^-1 p = sum y_i^2 / D_i,     p = L D^1/2 z ~ N(0, M) from standard normals z

The precision matrix of an autoregression has this form. M therefore imitates the precision of the target, as a Euclidean
metric given by M^-1 imitates its covariance. Constant means constant during a transition. With bands from the model
(``fisher_bands``) M is computed again at the start of each transition. It then comes from values that the transition itself
does not change, such as the parameters of a conditional in Gibbs sampling. (log det M is then constant too, and dropped.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_products, plain
from refhmc.core import sample_stats as S
from refhmc.core.arguments import array_of_numbers
from refhmc.core.point import as_point, put_copies
from refhmc.core.protocols import Model
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics.base import NOTHING, SHARED, ArrayModel, HamiltonianOnArrays, log_density_at_metric
from refhmc.metrics.euclidean import Euclidean
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

# ``r`` is 1/D, ``l`` has l_0 = 0; ``bands`` is a, b, (2, d). They replace the two rows of a Euclidean metric.
BANDED = Layout("r l", "bands")
views, shared = BANDED.views, SHARED.views


@dataclass(frozen=True, eq=False)
class Tridiagonal(Euclidean):
    """Tridiagonal mass matrix M, given by M itself and not by its inverse.

    With diagonal a, off-diagonal b and standard normals z, M and its operations are::

        M = L D L',    D_0 = a_0,    l_i = b_{i-1} / D_{i-1},    D_i = a_i - l_i b_{i-1}
        v = M^-1 p = L'^-1 D^-1 L^-1 p,    p = L D^(1/2) z

    A momentum, a velocity and a leapfrog step cost O(d). The metric is never adapted. The precision matrix of an autoregression
    has this form.

    Parameters
    ----------
    diagonal : array_like, shape (d,), optional
        Diagonal of M. By default the model defines both bands. Only some conditionals of refhmc's models do, such as that of
        ``x`` in ``StochasticVolatility``.
    off_diagonal : array_like, shape (d - 1,), optional
        Entries of M next to its diagonal. Give both bands or neither.

    Raises
    ------
    ValueError
        If only one of the bands is given.
    refhmc.errors.ShapeError, refhmc.errors.MetricError
        If the bands do not fit the model, or if M is not positive definite; raised by `refhmc.sample`.

    See Also
    --------
    Dense : Any matrix, given by M^-1.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 4.0]])
    >>> H = refhmc.Hamiltonian(model, refhmc.metrics.Tridiagonal([2.0, 2.0], [1.0]))
    >>> H.mass().round(3)
    array([[2., 1.],
           [1., 2.]])
    """

    name = "tridiagonal"
    diagonal: ArrayLike | None = None
    off_diagonal: ArrayLike | None = None
    is_dense = False
    learns = NOTHING

    def __post_init__(self) -> None:
        if (self.diagonal is None) != (self.off_diagonal is None):
            raise ValueError(
                "diagonal and off_diagonal must both be given, or neither; got only one. Give the other, too."
            )

    @property
    def reads(self) -> tuple:
        return ("fisher_bands", None) if self.diagonal is None else (None, None)

    @property
    def geometry(self) -> tuple:
        return factorise, inverse_product, velocity_and_force, draw

    @property
    def refresh(self) -> Callable:
        return refresh

    @property
    def leapfrog(self) -> Callable:
        """Compiled step of the leapfrog on this metric."""
        return leapfrog

    def stacks(self, model: Model, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        vecs, mats = np.zeros((SHARED.n_vectors, model.dim)), self.bands(model.dim)[None]
        plain(factorise_bands)(mats[0], vecs[0], vecs[1])
        return vecs, mats

    def options(self) -> dict[str, float]:
        return {"reads_bands": self.diagonal is None}

    def bands(self, dim: int) -> np.ndarray:
        """Return both bands of M.

        Parameters
        ----------
        dim : int
            Dimension d of the model.

        Returns
        -------
        ndarray, shape (2, d)
            The diagonal, and the off-diagonal with a 0 at its end. If the model defines the bands, those of the identity.

        Raises
        ------
        refhmc.errors.ShapeError
            If the bands do not fit the dimension.
        refhmc.errors.MetricError
            If an entry is not finite, or if M is not positive definite. The message has the least eigenvalue.
        """
        bands = np.zeros((2, dim))
        if self.diagonal is None:
            bands[0] = 1.0
            return bands
        diagonal = array_of_numbers("diagonal", self.diagonal, MetricError)
        beside = array_of_numbers("off_diagonal", self.off_diagonal, MetricError)
        for name, band, n in (("diagonal", diagonal, dim), ("off_diagonal", beside, dim - 1)):
            if band.shape != (n,):
                raise ShapeError(f"{name} must have shape ({n},); got {band.shape}.")
            if not np.isfinite(band).all():
                raise MetricError(f"{name} must be finite; got entries that are not finite.")
        from scipy.linalg import eigvalsh_tridiagonal

        least = eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(0, 0))[0]
        if not least > 0:
            raise MetricError(
                "diagonal and off_diagonal must make a positive definite matrix; got one whose least eigenvalue is "
                f"{least:.6g}."
            )
        bands[0], bands[1, : dim - 1] = diagonal, beside
        return bands

    def on_arrays(self, model: ArrayModel) -> HamiltonianOnArrays:
        return TridiagonalOnArrays(model, self)


class TridiagonalOnArrays(HamiltonianOnArrays):
    """The Hamiltonian on arrays (..., d), with M = L D L', L of ones with l below them.

    D_i = a_i - l_i b_{i-1},    l_i = b_{i-1} / D_{i-1}
    """

    def bands(self, q: Array) -> tuple[Array, Array]:
        """Return the diagonal a and the off-diagonal b, (..., d) or (d,), with a 0 at the end of b."""
        xp, reads = batched.namespace(q), self.metric.diagonal is None
        bands = self.model.fisher_bands(q) if reads else xp.asarray(self.metric.bands(q.shape[-1]), dtype=q.dtype)
        return bands[..., 0, :], bands[..., 1, :]

    def mass(self, q: Array) -> Array:
        xp, d, (a, b) = batched.namespace(q), q.shape[-1], self.bands(q)
        i, j = xp.arange(d)[:, None], xp.arange(d)
        beside = xp.where(j == i + 1, b[..., :, None], 0.0 * b[..., :, None])
        M = batched.diagonal_matrix(a) + beside + batched.transpose(beside)
        return xp.broadcast_to(M, (*q.shape, d))

    @batched.once
    def factors(self, q: Array) -> tuple[Array, Array]:
        """Return D and l, with l_1 = 0; NaN if M is not positive definite."""
        xp, (a, b) = batched.namespace(q), self.bands(q)
        D, below = [a[..., 0]], [0.0 * a[..., 0]]
        for i in range(1, q.shape[-1]):
            below.append(b[..., i - 1] / D[-1])
            D.append(a[..., i] - below[-1] * b[..., i - 1])
        pivots = xp.stack(D, axis=-1)
        positive = xp.all(pivots > 0, axis=-1)[..., None]
        return xp.where(positive, pivots, xp.nan), xp.stack(below, axis=-1)

    def inverse_product(self, q: Array, p: Array) -> Array:
        xp, d, (D, below) = batched.namespace(q), q.shape[-1], self.factors(q)
        y = [p[..., 0]]
        for i in range(1, d):
            y.append(p[..., i] - below[..., i] * y[-1])
        z = xp.stack(y, axis=-1) / D
        x = [z[..., d - 1]]
        for i in range(d - 2, -1, -1):
            x.append(z[..., i] - below[..., i + 1] * x[-1])
        return xp.flip(xp.stack(x, axis=-1), axis=-1)

    def half_log_det(self, q: Array) -> Array:
        return 0.0 * q[..., 0]  # a constant, dropped

    def potential_force(self, q: Array) -> Array:
        return self.model.gradient(q)

    def kinetic_force(self, q: Array, p: Array) -> Array:
        return 0.0 * p

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        xp, (D, below) = batched.namespace(q), self.factors(q)
        x = D**0.5 * normals
        return x + below * xp.concat([0.0 * x[..., :1], x[..., :-1]], axis=-1)


@jit
def factorise_bands(bands: np.ndarray, r: np.ndarray, l: np.ndarray) -> bool:  # noqa: E741
    """Compute 1/D and l from the bands (2, d); return False if M is not positive definite."""
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
def make_bands(model: tuple, q: np.ndarray, work: tuple) -> bool:
    """Compute and factorise the model's bands at ``q``, if the metric reads them.

    Return False if they are not positive definite.
    """
    _, _, options, _, counters, _ = as_work(work)
    if options.reads_bands == 0:
        return True
    f, w = as_model(model), views(work)
    f.metric(q, f.data, w.bands)
    counters.metrics += 1
    return factorise_bands(w.bands, w.r, w.l)


@jit_products
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """Set out = M^-1 p."""
    w = views(work)
    r, l = w.r, w.l  # noqa: E741
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
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """Draw p ~ N(0, M) from standard normals."""
    w = views(work)
    before = 0.0
    for i in range(p.shape[0]):
        scaled = normals[i] / math.sqrt(w.r[i])
        p[i] = scaled + w.l[i] * before
        before = scaled


@jit
def energy(z: np.ndarray, work: tuple) -> float:
    """Return H of the point ``z``, and set its velocity from its momentum."""
    point = as_point(z)
    inverse_product(point.p, work, point.velocity)
    return -point.log_density[0] + 0.5 * dot(point.p, point.velocity)


@jit
def refresh(model: tuple, metric: tuple, z: np.ndarray, normals: np.ndarray, draws: bool, work: tuple) -> float:
    """Make a momentum from standard normals for the point ``z``, if ``draws`` is True, set its velocity and return H."""
    point = as_point(z)
    if not make_bands(model, point.q, work):
        as_work(work).status.failure = S.DIVERGED
        return math.nan
    if draws:
        draw(normals, work, point.p)
    put_copies(z)
    return energy(z, work)


@jit_products
def leapfrog(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make one leapfrog step (:mod:`refhmc.integrators.leapfrog`) of the point ``z`` in place and return H there.

    Each kick is made in the same pass as the solution with L, and the drift in the pass of the solution with L'.
    """
    as_work(work).counters.gradients += 1
    f, w, point = as_model(model), views(work), as_point(z)
    r, l, half, d = w.r, w.l, 0.5 * eps, z.shape[1]  # noqa: E741
    q, p, v, gradient = point.q, point.p, point.velocity, point.gradient
    y = 0.0
    for i in range(d):
        p[i] += half * gradient[i]
        y = p[i] - l[i] * y
        v[i] = y
    back = below = 0.0
    for i in range(d - 1, -1, -1):
        back = v[i] * r[i] - below * back
        below = l[i]
        q[i] += eps * back
    log_density = f.value_and_gradient(q, f.data, gradient)
    point.log_density[0] = log_density
    y = twice_kinetic = 0.0
    for i in range(d):
        p[i] += half * gradient[i]
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
def factorise(model: tuple, work: tuple) -> bool:
    """Compute the model's bands, if the metric reads them."""
    as_work(work).cache.log_det_weight = 0.0
    return make_bands(model, shared(work).position, work)


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
