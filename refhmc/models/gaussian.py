"""The Gaussian N(mu, S) in any dimension, with precision P = S^-1.

The log density and its derivatives are ::

    L(x) = -1/2 (x - mu)' P (x - mu)      dL/dx = -P (x - mu)      hessian = -P      third = 0

The Fisher metric is P. Every metric that depends on the curvature is therefore constant.

The data are a row of mu and the rows of P. For a diagonal S they are two rows, mu and the diagonal of P, with functions of
their own.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
import scipy.linalg
from numpy import typing as npt

from refhmc.compile.compiled import jit, jit_sum
from refhmc.core.arguments import array_of_numbers
from refhmc.errors import MetricError, ShapeError
from refhmc.models.base import Model
from refhmc.models.on_arrays import ArrayImplementation, in_dtype_of, where_finite
from refhmc.models.recipe import recreatable
from refhmc.models.reference import Reference
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, namespace


class GaussianOnArrays(ArrayImplementation):
    """The array implementation. ``mean`` is (d,), and ``precision`` is P, (d, d), or its diagonal, (d,)."""

    name = "gaussian"

    def __init__(self, mean: np.ndarray, precision: np.ndarray, xp: ModuleType = np) -> None:
        self.dim, self.mean, self.precision = len(mean), xp.asarray(mean), xp.asarray(precision)

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        mean, P = in_dtype_of(q, self.mean, self.precision)
        step = mean - q
        gradient = P * step if P.ndim == 1 else batched.rows_times(step, P)
        return -0.5 * batched.dot(step, gradient), gradient

    def fisher(self, q: Array) -> Array:
        (P,) = in_dtype_of(q, self.precision)
        return where_finite(q, batched.diagonal_matrix(P) if P.ndim == 1 else P, 2)

    def hessian(self, q: Array) -> Array:
        return -self.fisher(q)

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        return where_finite(q, namespace(q).zeros_like(q), 1)

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        return self.hessian_contraction(q, M)


# ----------------------------------------------------------------------------------------------------------- dense


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    d = q.shape[0]
    out[:] = 0.0
    for j in range(1, d + 1 - d % 2, 2):  # two rows of P (they are also its columns) for each pass over out
        x, y = data[0, j - 1] - q[j - 1], data[0, j] - q[j]
        for i in range(d):
            out[i] += data[j, i] * x + data[j + 1, i] * y
    if d % 2 == 1:
        for i in range(d):
            out[i] += data[d, i] * (data[0, d - 1] - q[d - 1])
    return 0.5 * form(q, data[0], out)


@jit_sum
def form(q: np.ndarray, mean: np.ndarray, gradient: np.ndarray) -> float:
    """Return (q - mean)' gradient."""
    total = 0.0
    for i in range(q.shape[0]):
        total += (q[i] - mean[i]) * gradient[i]
    return total


@jit_sum
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    mean = data[0]
    total = 0.0
    for j in range(q.shape[0]):
        row, part = data[1 + j], 0.0
        for i in range(q.shape[0]):
            part += row[i] * (q[i] - mean[i])
        total += part * (q[j] - mean[j])
    return -0.5 * total


@jit
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    for i in range(q.shape[0]):
        for j in range(q.shape[0]):
            out[i, j] = -data[1 + i, j]


@jit
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    for i in range(q.shape[0]):
        for j in range(q.shape[0]):
            out[i, j] = data[1 + i, j]


# -------------------------------------------------------------------------------------------------------- diagonal


@jit_sum
def diagonal_log_density(q: np.ndarray, data: np.ndarray) -> float:
    mean, precision = data[0], data[1]
    total = 0.0
    for i in range(q.shape[0]):
        total += precision[i] * (q[i] - mean[i]) * (q[i] - mean[i])
    return -0.5 * total


@jit_sum
def diagonal_value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    mean, precision = data[0], data[1]
    total = 0.0
    for i in range(q.shape[0]):
        step = q[i] - mean[i]
        out[i] = -precision[i] * step
        total += out[i] * step
    return 0.5 * total


@jit
def diagonal_hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    for i in range(q.shape[0]):
        out[i, i] = -data[1, i]


@jit
def diagonal_fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    for i in range(q.shape[0]):
        out[i, i] = data[1, i]


# ------------------------------------------------------------------------------------------------------------ both


@jit
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0


def draw(rng: np.random.Generator, n_draws: int, mean: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return (n_draws, d) independent draws. ``factor`` is the lower Cholesky factor of S, or the roots of its diagonal."""
    z = rng.standard_normal((n_draws, len(mean)))
    return mean + (z * factor if factor.ndim == 1 else z @ factor.T)


DENSE: dict[str, Any] = {
    "log_density": log_density,
    "value_and_gradient": value_and_gradient,
    "hessian": hessian,
    "fisher": fisher,
}
DIAGONAL: dict[str, Any] = {
    "log_density": diagonal_log_density,
    "value_and_gradient": diagonal_value_and_gradient,
    "hessian": diagonal_hessian,
    "fisher": diagonal_fisher,
}


@recreatable
def Gaussian(mean: npt.ArrayLike, covariance: npt.ArrayLike, *, name: str = "gaussian") -> Model:
    """Return a Gaussian model, x ~ N(mean, covariance).

    With the precision P, the inverse of the covariance, ::

        L(x) = -1/2 (x - mean)' P (x - mean)

    The Fisher metric is P. The variable is ``x``, of shape (d,).

    Parameters
    ----------
    mean : array_like of shape (d,) or float
        Mean; a number stands for all coordinates.
    covariance : array_like of shape (d, d)
        Covariance matrix, symmetric and positive definite.
    name : str, default "gaussian"
        Name in messages and results.

    Returns
    -------
    Model
        The model, with exact moments and draws in ``reference``.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not fit.
    refhmc.errors.MetricError
        If the covariance is not finite, symmetric and positive definite.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian(0.0, [[1.0, 0.5], [0.5, 2.0]])
    >>> model.dim, model.gradient([0.0, 0.0]).tolist()
    (2, [0.0, 0.0])
    """
    mean, S = array_of_numbers("mean", mean), array_of_numbers("covariance", covariance)
    if S.ndim != 2 or S.shape[0] != S.shape[1] or S.shape[0] < 1:
        raise ShapeError(f"covariance must have shape (d, d); got {S.shape}.")
    d = len(S)
    if mean.shape not in ((), (d,)):
        raise ShapeError(f"mean must be a number or have shape ({d},), as the covariance; got {mean.shape}.")
    mean = np.full(d, mean)
    if not (np.isfinite(S).all() and np.isfinite(mean).all()):
        raise MetricError("mean and covariance must be finite; one has NaN or infinite entries.")
    asymmetry = np.abs(S - S.T).max()
    if asymmetry > 1e-10 * np.abs(S).max():
        raise MetricError(
            f"covariance must be symmetric; got one that differs from its transpose by up to {asymmetry:.3g}."
        )
    variance = np.diag(S).copy()
    diagonal = np.array_equal(S, np.diag(variance))
    least = variance.min() if diagonal else np.linalg.eigvalsh(S)[0]
    if not least > 0:
        raise MetricError(f"covariance must be positive definite; got one whose least eigenvalue is {least:.6g}.")
    if diagonal:
        factor, precision = np.sqrt(variance), 1 / variance
    else:
        factor = np.linalg.cholesky(S)
        precision = scipy.linalg.cho_solve((factor, True), np.eye(d))
        precision = (precision + precision.T) / 2
    return Model(
        d,
        **(DIAGONAL if diagonal else DENSE),
        hessian_contraction=hessian_contraction,
        fisher_contraction=hessian_contraction,  # zero as well
        data=np.vstack([mean, precision]),
        names=[f"x[{i}]" for i in range(d)],
        name=name,
        reference=Reference(
            source="closed form",
            mean=mean,
            variance=variance,
            draw=functools.partial(draw, mean=mean, factor=factor),
        ),
        on_arrays=functools.partial(GaussianOnArrays, mean, precision),
    )
