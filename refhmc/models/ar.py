"""Autoregression of order K, conditional on the first K values (``arK`` of posteriordb).

The model is ::

    y_t ~ N(alpha + sum_k beta_k y_{t-k}, sigma),  t = K+1..T;   alpha, beta_k ~ N(0, 10);   sigma ~ C+(2.5)

Given its first values, the series is a linear regression of y_t on X_t = (1, y_{t-1}, ..., y_{t-K}), with coefficients
b = (alpha, beta) and coordinates q = (b, log sigma). Let L0 and F0 be the log density and the Fisher metric of
:mod:`refhmc.models.linear_regression`, whose sigma has the same prior. Then ::

    L = L0 - b'b/200        dL/db = dL0/db - b/100        bb: hess L0 - I/100        F = F0 + I/100 at bb

and all third derivatives are those of L0. The Fisher metric takes the regressors as given: it is the information of the
conditional likelihood.

In the log likelihood and in predictive draws, each value is conditional on the observed values before it.

The data are those of the linear regression.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit
from refhmc.core.arguments import whole_number
from refhmc.models import linear_regression
from refhmc.models.base import Model
from refhmc.models.datasets import posteriordb, posteriordb_reference
from refhmc.models.densities import log_normal
from refhmc.models.generated import GeneratedQuantities, frozen
from refhmc.models.inputs import vector
from refhmc.models.recipe import recreatable
from refhmc.models.split import functions_of_a_part, with_share

PRIOR_PRECISION = 0.01
flat_log_density = linear_regression.log_density
flat_value_and_gradient = linear_regression.value_and_gradient
flat_hessian = linear_regression.hessian
flat_fisher = linear_regression.fisher
flat_log_prior = linear_regression.log_prior


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    total = flat_log_density(q, data)
    for i in range(q.shape[0] - 1):
        total -= 0.5 * PRIOR_PRECISION * q[i] * q[i]
    return total


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    total = flat_value_and_gradient(q, data, out)
    for i in range(q.shape[0] - 1):
        total -= 0.5 * PRIOR_PRECISION * q[i] * q[i]
        out[i] -= PRIOR_PRECISION * q[i]
    return total


@jit
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    flat_hessian(q, data, out)
    for i in range(q.shape[0] - 1):
        out[i, i] -= PRIOR_PRECISION


@jit
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    flat_fisher(q, data, out)
    for i in range(q.shape[0] - 1):
        out[i, i] += PRIOR_PRECISION


@jit
def log_prior(q: np.ndarray, out: np.ndarray) -> float:
    """Return the log prior in q, and write its gradient."""
    total = flat_log_prior(q, out)
    for i in range(q.shape[0] - 1):
        total -= 0.5 * PRIOR_PRECISION * q[i] * q[i]
        out[i] -= PRIOR_PRECISION * q[i]
    return total


part_log_density, part_value_and_gradient = functions_of_a_part(log_density, value_and_gradient, log_prior)


def share_of(X: np.ndarray, y: np.ndarray, before: float, rows: np.ndarray, share: float) -> Model:
    """Return the model of some of the times, each given those before it, with a ``share`` of the previous prior share."""
    X, y, share = X[rows], y[rows], before * share
    return Model(
        X.shape[1] + 1,
        part_log_density,
        value_and_gradient=part_value_and_gradient,
        data=with_share(linear_regression.sums_of(X, y), share),
        names=names_of(X.shape[1] - 1),
        constrain=constrain,
        name="ar",
        n_rows=len(y),
        part=functools.partial(share_of, X, y, share),
    )


def names_of(K: int) -> list[str]:
    return ["alpha", *(f"beta[{k}]" for k in range(K)), "log_sigma"]


def constrain(q: np.ndarray) -> dict:
    return {"alpha": q[..., 0], "beta": q[..., 1:-1], "sigma": np.exp(q[..., -1])}


def design(y: np.ndarray, K: int) -> np.ndarray:
    """Return X, of shape (T - K, K + 1)."""
    return np.column_stack([np.ones(len(y) - K)] + [y[K - k : len(y) - k] for k in range(1, K + 1)])


def mean_of(values: dict, X: np.ndarray) -> np.ndarray:
    """Return alpha + sum_k beta_k y_{t-k}."""
    return values["alpha"][..., None] + values["beta"] @ X[:, 1:].T


def log_likelihood(values: dict, X: np.ndarray, y: np.ndarray) -> dict:
    return {"y": log_normal(y, mean_of(values, X), values["sigma"][..., None])}


def posterior_predictive(values: dict, rng: np.random.Generator, X: np.ndarray) -> dict:
    mean = mean_of(values, X)
    return {"y": mean + values["sigma"][..., None] * rng.standard_normal(mean.shape)}


def prior(rng: np.random.Generator, K: int) -> dict:
    alpha, *beta = rng.normal(0.0, PRIOR_PRECISION**-0.5, K + 1)
    return {"alpha": alpha, "beta": np.array(beta), "sigma": linear_regression.SCALE * abs(rng.standard_cauchy())}


@recreatable
def AR(y: ArrayLike | None = None, K: int | None = None) -> Model:
    """Return an autoregression of order K.

    The model is ::

        y_t ~ N(alpha + sum_k beta_k y_{t-k}, sigma),  t = K+1..T;   alpha, beta_k ~ N(0, 10);   sigma ~ C+(2.5)

    conditional on the first K values, with standard deviations as second arguments and a half-Cauchy prior of sigma. The
    variables are ``alpha``, ``beta`` of shape (K,) and ``sigma``.

    Parameters
    ----------
    y : array_like of shape (T,), optional
        The series. Defaults to that of ``arK-arK`` in posteriordb.
    K : int, optional
        Order, less than T. Defaults to 5.

    Returns
    -------
    Model
        The model. For the default data, ``reference`` has the moments of the published draws.

    Raises
    ------
    ValueError
        If `K` is not positive, or not 5 for the default data, or `y` is not finite.
    refhmc.errors.ShapeError
        If `y` is not a vector of more than `K` values.

    References
    ----------
    M. Magnusson et al., posteriordb, posterior arK-arK.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.AR([0.1, 0.4, 0.2, 0.5, 0.3], K=1).names
    ['alpha', 'beta[0]', 'log_sigma']
    """
    reference = None
    if y is None:
        if K not in (None, 5):
            raise ValueError(f"K must be 5 for the default data; got {K}. Give y as well.")
        y = posteriordb("arK-arK")["data"]["y"]
        reference = posteriordb_reference("arK-arK", ["alpha", *(f"beta[{k}]" for k in range(1, 6)), "sigma"])
    K = whole_number("K", 5 if K is None else K)
    y = vector("y", y, K + 1)
    X, after = frozen(design(y, K)), frozen(y[K:])
    return Model(
        K + 2,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        hessian_contraction=linear_regression.hessian_contraction,
        fisher=fisher,
        fisher_contraction=linear_regression.fisher_contraction,
        data=linear_regression.sums_of(X, after),  # the design may be singular: the priors are proper
        names=names_of(K),
        constrain=constrain,
        name="ar",
        reference=reference,
        n_rows=len(X),
        part=functools.partial(share_of, X, after, 1.0),
        dims={"beta": "lag", "y": "time", "y_before": "time_before"},
        coords={"lag": range(1, K + 1), "time": range(K, len(y)), "time_before": range(K)},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, X=X, y=after),
            posterior_predictive=functools.partial(posterior_predictive, X=X),
            prior=functools.partial(prior, K=K),
            observed_data={"y": after},
            constant_data={"y_before": y[:K]},
        ),
    )
