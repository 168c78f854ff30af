"""Linear regression with unknown noise: y ~ N(X beta, sigma^2 I), beta flat, sigma ~ C+(0, 2.5) (half-Cauchy).

The coordinates are (beta, u), u = log sigma. The sum of squares is exactly ``S = S0 + |R (beta - b)|^2``, where X = Q R, b is
the least-squares solution and S0 its residual sum of squares. The cost therefore does not depend on n. With G = R'R, f =
e^{-2u} G (beta - b) and s = e^{-2u} S, and with h = u - log 2.5, for which the half-Cauchy and the Jacobian of the logarithm
together are -log(2 cosh h) (see ``eight_schools``), ::

    L = -n u - s/2 - log(2 cosh h)
    dL/dbeta = -f                    dL/du = -n + s - tanh h
    beta beta: -e^{-2u} G            beta u: 2 f                     u u: -2 s - sech^2 h
    beta beta u: 2 e^{-2u} G         beta u u: -4 f                  u u u: 4 s + 2 sech^2 h tanh h

The Fisher metric has beta beta: e^{-2u} G, beta u: 0, u u: 2 n, plus minus the Hessian of the prior, sech^2 h, at u u.

The data are the rows of R, those of G, a row of b and a row [n, S0, 0, ...], with at least two columns.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit
from refhmc.core.arguments import flag
from refhmc.errors import ShapeError
from refhmc.models.base import Model
from refhmc.models.datasets import posteriordb, posteriordb_reference
from refhmc.models.densities import log_normal
from refhmc.models.eight_schools import half_cauchy, sech_squared
from refhmc.models.generated import GeneratedQuantities, frozen
from refhmc.models.inputs import design, finite, given_together, rows_of
from refhmc.models.networks.likelihoods import Gaussian
from refhmc.models.recipe import recreatable
from refhmc.models.split import functions_of_a_part, with_share

SCALE = 2.5
LOG_SCALE = math.log(SCALE)


@jit
def misfit(q: np.ndarray, data: np.ndarray, precision: float, out: np.ndarray) -> float:
    """Write out[:d] = -f and return s, using R, which is much better conditioned than G."""
    d = q.shape[0] - 1
    b = data[2 * d]
    total = data[2 * d + 1, 1]
    for i in range(d):
        row = 0.0
        for j in range(i, d):
            row += data[i, j] * (q[j] - b[j])
        out[i] = row
        total += row * row
    for j in range(d - 1, -1, -1):  # multiply by R' in place: entry j needs the first j only
        row = 0.0
        for i in range(j + 1):
            row += data[i, j] * out[i]
        out[j] = -precision * row
    return precision * total


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    d = q.shape[0] - 1
    b, u = data[2 * d], q[d]
    total = data[2 * d + 1, 1]
    for i in range(d):
        row = 0.0
        for j in range(i, d):
            row += data[i, j] * (q[j] - b[j])
        total += row * row
    precision = np.exp(-2 * u)
    prior, _ = half_cauchy(u - LOG_SCALE, 1 / (SCALE * SCALE * precision))
    return -data[2 * d + 1, 0] * u - 0.5 * precision * total + prior


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    d = q.shape[0] - 1
    n, u = data[2 * d + 1, 0], q[d]
    precision = np.exp(-2 * u)
    s = misfit(q, data, precision, out)
    prior, slope = half_cauchy(u - LOG_SCALE, 1 / (SCALE * SCALE * precision))
    out[d] = s - n + slope
    return -n * u - 0.5 * s + prior


@jit
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    d = q.shape[0] - 1
    precision = np.exp(-2 * q[d])
    s = misfit(q, data, precision, out[d])
    for i in range(d):
        out[d, i] *= -2
        out[i, d] = out[d, i]
        for j in range(d):
            out[i, j] = -precision * data[d + i, j]
    out[d, d] = -2 * s - sech_squared(q[d] - LOG_SCALE)


@jit
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    d = q.shape[0] - 1
    precision, h = np.exp(-2 * q[d]), q[d] - LOG_SCALE
    s = misfit(q, data, precision, out)
    out[d] = M[d, d] * (4 * s + 2 * sech_squared(h) * np.tanh(h))
    for i in range(d):
        out[d] += 4 * out[i] * (M[i, d] + M[d, i])
        out[i] *= 4 * M[d, d]
        for j in range(d):
            g = 2 * precision * data[d + i, j]
            out[d] += g * M[i, j]
            out[i] += g * (M[j, d] + M[d, j])


@jit
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    d = q.shape[0] - 1
    precision = np.exp(-2 * q[d])
    out[:] = 0.0
    for i in range(d):
        for j in range(d):
            out[i, j] = precision * data[d + i, j]
    out[d, d] = 2 * data[2 * d + 1, 0] + sech_squared(q[d] - LOG_SCALE)


@jit
def fisher_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    d = q.shape[0] - 1
    precision, h = np.exp(-2 * q[d]), q[d] - LOG_SCALE
    out[:] = 0.0
    out[d] = -2 * M[d, d] * sech_squared(h) * np.tanh(h)
    for i in range(d):
        for j in range(d):
            out[d] -= 2 * precision * data[d + i, j] * M[i, j]


@jit
def log_prior(q: np.ndarray, out: np.ndarray) -> float:
    """Return the log prior in q, and write its gradient."""
    u = q[q.shape[0] - 1]
    out[:] = 0.0
    value, out[q.shape[0] - 1] = half_cauchy(u - LOG_SCALE, np.exp(2 * u) / (SCALE * SCALE))
    return value


part_log_density, part_value_and_gradient = functions_of_a_part(log_density, value_and_gradient, log_prior)


def share_of(X: np.ndarray, y: np.ndarray, before: float, rows: np.ndarray, share: float) -> Model:
    """Return the regression of some of the rows, with a ``share`` of the previous share of the log prior."""
    X, y, share = X[rows], y[rows], before * share
    return Model(
        X.shape[1] + 1,
        part_log_density,
        value_and_gradient=part_value_and_gradient,
        data=with_share(sums_of(X, y), share),
        names=names_of(X),
        constrain=constrain,
        name="linear regression",
        n_rows=len(y),
        part=functools.partial(share_of, X, y, share),
        outputs=outputs,
        likelihood=likelihood,
    )


def names_of(X: np.ndarray) -> list[str]:
    return [f"beta[{j}]" for j in range(X.shape[1])] + ["log_sigma"]


def sums_of(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the data of the model; if there are several least-squares solutions, with that of least norm."""
    n, d = X.shape
    R = np.linalg.qr(X, mode="r")
    b = np.linalg.lstsq(X, y)[0]
    data = np.zeros((2 * d + 2, max(d, 2)))
    data[: len(R), :d] = R
    data[d : 2 * d, :d] = np.transpose(R) @ R
    data[2 * d, :d] = b
    data[2 * d + 1, :2] = n, float(np.sum((y - X @ b) ** 2))
    return data


def constrain(q: np.ndarray) -> dict:
    return {"beta": q[..., :-1], "sigma": np.exp(q[..., -1])}


def outputs(q: np.ndarray, X: ArrayLike, intercept: bool = False) -> np.ndarray:
    """Return x . beta, of shape (n, 1)."""
    return rows_of(X, len(q) - 1, intercept) @ q[:-1, None]


def likelihood(q: np.ndarray) -> Gaussian:
    """Return the distribution N(x . beta, sigma^2)."""
    return Gaussian(math.exp(-2 * q[-1]))


def log_likelihood(values: dict, X: np.ndarray, y: np.ndarray) -> dict:
    return {"y": log_normal(y, values["beta"] @ X.T, values["sigma"][..., None])}


def posterior_predictive(values: dict, rng: np.random.Generator, X: np.ndarray) -> dict:
    mean = values["beta"] @ X.T
    return {"y": mean + values["sigma"][..., None] * rng.standard_normal(mean.shape)}


@recreatable
def LinearRegression(
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    *,
    inputs: Sequence[str] | None = None,
    intercept: bool = False,
) -> Model:
    """Return a linear regression with unknown noise.

    The model is ::

        y ~ N(X beta, sigma^2 I),      beta flat,      sigma ~ C+(0, 2.5)

    with a half-Cauchy prior of sigma. The variables are ``beta`` of shape (d,) and ``sigma``. The model has all derivatives and
    the Fisher metric.

    Parameters
    ----------
    X : array_like of shape (n, d), optional
        Inputs, used without change. Lists and data frames are accepted. The columns of a data frame name the coefficients.
        Defaults to those of ``kidiq-kidscore_interaction`` in posteriordb: a column of ones, the mother's schooling, her IQ and
        their product, in their own units. The scales of these coefficients differ by a factor of 100, and their correlations
        reach 0.99.
    y : array_like of shape (n,), optional
        Observations, to be given together with `X`. Defaults to the test scores of the children.
    inputs : sequence of str, optional
        Names of the columns of `X`, for the result. Defaults to those of a data frame.
    intercept : bool, default False
        Whether to add an intercept, the first entry of ``beta``, to the given inputs.

    Returns
    -------
    Model
        The model. For the default data, ``reference`` has the moments of the published draws.

    Raises
    ------
    ValueError
        If only one argument is given, entries are not finite, columns of `X` are not independent, or `y` is fitted exactly.
    refhmc.errors.ShapeError
        If the shapes do not fit.

    References
    ----------
    M. Magnusson et al., posteriordb, posterior kidiq-kidscore_interaction.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.LinearRegression([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], [0.1, 1.2, 1.9])
    >>> model.reference_names
    ['beta[0]', 'beta[1]', 'sigma']
    """
    flag("intercept", intercept)
    reference = None
    if not given_together(X=X, y=y):
        inputs, intercept = ["intercept", "mom_hs", "mom_iq", "mom_hs:mom_iq"], False
        name = "kidiq-kidscore_interaction"
        kids = posteriordb(name)["data"]
        y, school, iq = (np.array(kids[key], dtype=float) for key in ("kid_score", "mom_hs", "mom_iq"))
        X = np.column_stack([np.ones(len(y)), school, iq, school * iq])
        reference = posteriordb_reference(name, [f"beta[{j}]" for j in range(1, 5)] + ["sigma"])
    (X, inputs), y = design(X, inputs, intercept), frozen(finite("y", y))
    X = frozen(X)
    if X.shape[1] == 0 or y.shape != X.shape[:1]:
        raise ShapeError(f"X must have shape (n, d) and y (n,); got {X.shape} and {y.shape}.")
    n, d = X.shape
    if n <= d or np.linalg.matrix_rank(X) < d:
        raise ValueError("X must have more rows than columns, and independent columns, because beta has a flat prior.")
    data = sums_of(X, y)
    b, S0 = data[2 * d, :d], float(data[2 * d + 1, 1])
    if 1e-20 * float(y @ y) >= S0:
        raise ValueError("y must not be fitted exactly by X: the posterior would be unbounded at sigma = 0.")
    return Model(
        d + 1,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        hessian_contraction=hessian_contraction,
        fisher=fisher,
        fisher_contraction=fisher_contraction,
        data=data,
        names=names_of(X),
        constrain=constrain,
        name="linear regression",
        reference=reference,
        initial=np.append(b, 0.5 * math.log(S0 / n)),
        n_rows=n,
        part=functools.partial(share_of, X, y, 1.0),
        outputs=functools.partial(outputs, intercept=intercept),
        likelihood=likelihood,
        dims={"beta": "coefficient", "y": "observation", "X": ("observation", "coefficient")},
        coords=None if inputs is None else {"coefficient": inputs},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, X=X, y=y),
            posterior_predictive=functools.partial(posterior_predictive, X=X),
            observed_data={"y": y},
            constant_data={"X": X},
        ),
    )
