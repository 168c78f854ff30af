"""The split of Shahbaba, Lan, Johnson and Neal (2014): a Gaussian part solved exactly, and kicks by the rest.

With U = -L, its minimum m and a positive definite J, the Hessian of U there (any m and J are valid, and only decide the step),

    H = H_0 + U_1       H_0 = U_0(q) + 1/2 p' M^-1 p,    U_0 = 1/2 (q - m)' J (q - m),    U_1 = U - U_0

one step of size eps is their Algorithm 1:

    p <- p - eps/2 dU_1/dq;     (q, p) <- the flow of H_0 for the time eps;     p <- p - eps/2 dU_1/dq

The flow is a rotation. Let T have columns with T' M T = 1 and T' J T = diag(omega^2), and x = T^-1 (q - m), s = T' p. Then

    x <- x cos(omega eps) + s sin(omega eps) / omega,        s <- s cos(omega eps) - x omega sin(omega eps)

and J (q - m) is omega^2 x in these coordinates. The method is symplectic, reversible (under p -> -p), explicit and of order 2,
with one gradient per step. On the Gaussian itself dU_1/dq = 0 and a step of any size is exact. Otherwise U_1 limits the step,
and its curvature is small where the density is close to normal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit
from refhmc.core.point import as_point
from refhmc.core.protocols import Model
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics.base import NOTHING, ConstantMetric, Metric
from refhmc.metrics.euclidean import EuclideanOnArrays, inverse_product, is_plain
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

# These rows are followed by d rows with the columns of T and d rows with those of T^-T = M T.
GAUSSIAN = Layout("mean omega away x s")
gaussian, N_GAUSSIAN = GAUSSIAN.rows, GAUSSIAN.n_vectors
LEAST_DECREMENT = 1e-8  # largest increase of L that a Newton step from the mode may still predict


@dataclass(frozen=True, eq=False)
class GaussianSplit:
    """Split of the density into a Gaussian part, which is solved exactly, and a rest.

    With U = -L, a mean m and a precision J, the Hamiltonian is split as::

        H = H_0 + U_1,    H_0 = U_0(q) + 1/2 p' M^-1 p,    U_0 = 1/2 (q - m)' J (q - m),    U_1 = U - U_0

    and one step of size eps is::

        p <- p - eps/2 dU_1/dq
        (q, p) <- the flow of H_0 for the time eps
        p <- p - eps/2 dU_1/dq

    The method is of order 2, symplectic, reversible under p -> -p, explicit and exact, with one gradient per step. Any mean and
    precision are valid, and only decide which step sizes are possible. On the Gaussian itself a step of any size is exact.

    Parameters
    ----------
    mean : array_like, shape (d,)
        Mean m, best the mode of the density.
    precision : array_like, shape (d, d)
        Precision J, best minus the Hessian at the mode. Symmetric and positive definite.

    Raises
    ------
    refhmc.errors.ShapeError
        If `mean` and `precision` do not fit together, or do not fit the model when the integrator is used.
    refhmc.errors.MetricError
        If `precision` is not symmetric and positive definite, if a value is not finite, or if the metric is not
        ``Identity()``, ``Diagonal(variances)`` or ``Dense(covariance)``.

    Notes
    -----
    The metric must be constant and not adapted. It is the identity by default.

    References
    ----------
    Shahbaba, Lan, Johnson and Neal (2014), Split Hamiltonian Monte Carlo, Algorithm 1.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([1.0, -1.0], [[1.0, 0.5], [0.5, 2.0]])
    >>> method = refhmc.integrators.GaussianSplit.at_mode(model)
    >>> path = refhmc.integrate(refhmc.Hamiltonian(model), method, [0.0, 0.0], [1.0, 0.0], step_size=3.0, n_steps=5)
    >>> bool(abs(path.energy - path.energy[0]).max() < 1e-6)
    True
    """

    name = "gaussian-split"
    mean: ArrayLike
    precision: ArrayLike

    order = 2
    symplectic = True
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    cost = 1
    layout = GAUSSIAN
    constant_metric = True
    fixed_metric = True

    def __post_init__(self) -> None:
        mean, J = np.asarray(self.mean, dtype=float), np.asarray(self.precision, dtype=float)
        if mean.ndim != 1 or J.shape != (len(mean), len(mean)):
            raise ShapeError(f"mean and precision must have shapes (d,) and (d, d); got {mean.shape} and {J.shape}.")
        if not (np.isfinite(mean).all() and np.isfinite(J).all()):
            raise MetricError("mean and precision must be finite; got entries that are not finite.")
        if np.abs(J - J.T).max() > 1e-10 * np.abs(J).max():
            raise MetricError("precision must be symmetric; got a matrix that differs from its transpose.")
        least = np.linalg.eigvalsh(J)[0]
        if not least > 0:
            raise MetricError(
                f"precision must be positive definite; got a matrix whose least eigenvalue is {least:.6g}."
            )

    @classmethod
    def at_mode(cls, model: Model, start: ArrayLike | None = None) -> GaussianSplit:
        """Return the split at the mode of a model's density.

        The mode is found by SciPy's trust-region Newton method.

        Parameters
        ----------
        model : Model
            The model, with a Hessian.
        start : array_like, shape (d,), optional
            Start of the search. Defaults to the model's initial position, or to zero if it has none.

        Returns
        -------
        GaussianSplit
            The split with the mode as mean, and minus the Hessian there as precision.

        Raises
        ------
        refhmc.errors.MissingDerivativeError
            If the model has no Hessian.
        ValueError
            If no mode with a negative definite Hessian was found.
        """
        import scipy.optimize

        if start is None:
            start = np.zeros(model.dim) if model.initial is None or callable(model.initial) else model.initial
        found = scipy.optimize.minimize(
            lambda q: -model.log_density(q),
            start,
            method="trust-exact",
            jac=lambda q: -model.gradient(q),
            hess=lambda q: -model.hessian(q),
            options={"gtol": 1e-8},
        )
        J, g = -model.hessian(found.x), model.gradient(found.x)
        least = np.linalg.eigvalsh(J)[0] if np.isfinite(J).all() else math.nan
        if not (least > 0 and 0.5 * g @ np.linalg.solve(J, g) < LEAST_DECREMENT):
            raise ValueError(
                f"No mode of {model.name!r} was found from start = "
                f"{np.array2string(np.asarray(start), precision=4, threshold=8)}. At the end of the search the gradient has "
                f"size {np.linalg.norm(g):.3g}, and minus the Hessian has the least eigenvalue {least:.3g}. Give another start."
            )
        return cls(found.x, 0.5 * (J + J.T))

    def pointer(self, metric: Metric) -> Callable:
        """Return the compiled step.

        Parameters
        ----------
        metric : object
            The metric.

        Returns
        -------
        callable
            The step for this metric.
        """
        return gaussian_split

    def rows_for(self, model: Model, metric: ConstantMetric) -> np.ndarray:
        """Return the initial rows of the integrator.

        Parameters
        ----------
        model : Model
            The model.
        metric : Euclidean
            The metric: ``Identity()``, ``Diagonal(variances)``, ``Dense(covariance)`` or a user's with given values.

        Returns
        -------
        ndarray, shape (k, d)
            The rows.

        Raises
        ------
        refhmc.errors.ShapeError
            If the model has another dimension than the mean.
        refhmc.errors.MetricError
            If the metric is another one, or adapted.
        """
        d = model.dim
        if np.shape(self.mean) != (d,):
            raise ShapeError(f"mean must have shape ({d},) for model {model.name!r}; got {np.shape(self.mean)}.")
        if metric.learns != NOTHING or not is_plain(metric):
            raise MetricError(
                f"metric must not be adapted for GaussianSplit; got {type(metric).__name__}. Use Identity(), "
                "Diagonal(variances) or Dense(covariance)."
            )
        omega, T, dual = modes(metric.inverse_mass(d), np.asarray(self.precision, dtype=float))
        own = np.zeros((N_GAUSSIAN + 2 * d, d))
        own[0], own[1], own[N_GAUSSIAN:] = self.mean, omega, np.vstack([T.T, dual.T])
        return own

    def options(self) -> dict[str, float]:
        """Return the options of the compiled functions.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {}

    def on_arrays(self) -> Callable:
        """Return the step on arrays.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return partial(step, mean=self.mean, precision=self.precision)


def modes(W: Array, J: Array) -> tuple[Array, Array, Array]:
    """Return omega (d,), and T and T^-T (d, d), for W = M^-1, given by its diagonal (d,) or as a matrix.

    With W = L L' and L' J L = V omega^2 V', T = L V and T^-T = L'^-1 V.
    """
    xp = batched.namespace(J)
    L = batched.diagonal_matrix(W**0.5) if W.ndim == 1 else batched.cholesky(W)
    squares, V = batched.eigh(batched.transpose(L) @ J @ L)
    return squares**0.5, L @ V, xp.linalg.solve(batched.transpose(L), V)


def step(H: EuclideanOnArrays, q: Array, p: Array, eps: Array, mean: Array, precision: Array) -> tuple[Array, Array]:
    """Make one step of the Gaussian split on arrays.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d)
        Momenta.
    eps : float or array, shape (..., 1)
        Step size.
    mean : array, shape (d,)
        Mean of the Gaussian part.
    precision : array, shape (d, d)
        Precision of the Gaussian part.

    Returns
    -------
    q : array, shape (..., d)
        Positions after the step.
    p : array, shape (..., d)
        Momenta after the step.
    """
    xp = batched.namespace(q)
    keep = getattr(H.model, "keep", lambda name, compute: compute())  # the same in all steps of a run
    m, omega, T, dual = keep(
        "gaussian modes", lambda: (xp.asarray(mean), *modes(H.inverse_mass(q), xp.asarray(precision)))
    )
    p = p + eps / 2 * H.model.gradient(q)
    x = batched.times(batched.transpose(dual), q - m)
    s = batched.times(batched.transpose(T), p) + eps / 2 * omega**2 * x
    cos, sin = xp.cos(omega * eps), xp.sin(omega * eps)
    x, s = x * cos + s * sin / omega, s * cos - x * omega * sin
    q = m + batched.times(T, x)
    p = batched.times(dual, s + eps / 2 * omega**2 * x)
    return q, p + eps / 2 * H.model.gradient(q)


@jit
def gaussian_split(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make one step of the point ``z`` in place and return H there."""
    as_work(work).counters.gradients += 1
    f, point, w, d = as_model(model), as_point(z), gaussian(own), z.shape[1]
    for i in range(d):
        point.p[i] += 0.5 * eps * point.gradient[i]
        w.away[i] = point.q[i] - w.mean[i]
    for k in range(d):
        omega = w.omega[k]
        cos, sin = math.cos(omega * eps), math.sin(omega * eps)
        x = dot(own[N_GAUSSIAN + d + k], w.away)
        s = dot(own[N_GAUSSIAN + k], point.p) + 0.5 * eps * omega * omega * x
        w.x[k] = x * cos + s * sin / omega
        w.s[k] = s * cos - x * omega * sin + 0.5 * eps * omega * omega * w.x[k]
    for i in range(d):
        point.q[i], point.p[i] = w.mean[i], 0.0
    for k in range(d):
        for i in range(d):
            point.q[i] += w.x[k] * own[N_GAUSSIAN + k, i]
            point.p[i] += w.s[k] * own[N_GAUSSIAN + d + k, i]
    log_density = f.value_and_gradient(point.q, f.data, point.gradient)
    for i in range(d):
        point.p[i] += 0.5 * eps * point.gradient[i]
    inverse_product(point.p, work, point.velocity)
    point.log_density[0] = log_density
    return 0.5 * dot(point.p, point.velocity) - log_density
