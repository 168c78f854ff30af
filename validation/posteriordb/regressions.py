"""Regressions with flat, normal or half-Student priors, as named parameters and as NumPyro models.

Linear regression of y on the columns of X, with b = (beta - m) / c entry by entry, r = y - X beta and
t(sigma) = -(nu + 1)/2 log(1 + (sigma/a)^2 / nu), which is -(sigma/a)^2 / 2 for infinite nu::

    L = -n log sigma - r'r / (2 sigma^2) - b'b / 2 + t(sigma)
    dL/dbeta = X'r / sigma^2 - b / c      dL/dsigma = -n / sigma + r'r / sigma^3 + t'(sigma)

Logistic regression with y = 1 or 0, s = 2 y - 1 and e = alpha + X beta: L = sum log expit(s e), dL/de = s expit(-s e).
A flat prior has infinite c or a.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import refhmc
from refhmc.parameters import Positive, Real

Design = Callable[[dict[str, Any]], tuple[np.ndarray, np.ndarray]]  # data -> X, y
FLAT = (np.inf, np.inf)  # nu and a of the prior of sigma
HALF_CAUCHY = (1.0, 2.5)


def columns(*parts: Any) -> np.ndarray:
    """Return the matrix with a column of ones and the given columns."""
    parts = [np.asarray(part, dtype=float) for part in parts]
    return np.column_stack([np.ones(len(parts[0])), *parts])


def log_density(values, data):
    X, y, mean, scale, nu, a = data
    r, b, z = y - X @ values.beta, (values.beta - mean) / scale, values.sigma / a
    tail = -0.5 * z * z if np.isinf(nu) else -0.5 * (nu + 1) * np.log1p(z * z / nu)
    return -len(y) * np.log(values.sigma) - 0.5 * r @ r / values.sigma**2 - 0.5 * b @ b + tail


def value_and_gradient(values, data, out):
    X, y, mean, scale, nu, a = data
    r, b, z = y - X @ values.beta, (values.beta - mean) / scale, values.sigma / a
    tail = -0.5 * z * z if np.isinf(nu) else -0.5 * (nu + 1) * np.log1p(z * z / nu)
    slope = -z / a if np.isinf(nu) else -(nu + 1) * z / (a * (nu + z * z))
    square = r @ r
    out[:-1] = r @ X / values.sigma**2 - b / scale
    out[-1] = -len(y) / values.sigma + square / values.sigma**3 + slope
    return -len(y) * np.log(values.sigma) - 0.5 * square / values.sigma**2 - 0.5 * b @ b + tail


def gradient(values, data, out):
    X, y, mean, scale, nu, a = data
    r, z = y - X @ values.beta, values.sigma / a
    slope = -z / a if np.isinf(nu) else -(nu + 1) * z / (a * (nu + z * z))
    out[:-1] = r @ X / values.sigma**2 - (values.beta - mean) / scale**2
    out[-1] = -len(y) / values.sigma + r @ r / values.sigma**3 + slope


def linear(
    design: Design, sigma: tuple[float, float] = FLAT, prior: Callable[[dict], tuple] | None = None
) -> tuple[Callable, Callable]:
    """Return ``model`` and ``in_numpyro`` of a linear regression.

    ``prior(data)`` returns mean and standard deviation of the coefficients, numbers or arrays. Flat by default.
    """

    def parts(data):
        X, y = (np.ascontiguousarray(part, dtype=float) for part in design(data))
        mean, scale = (np.broadcast_to(v, X.shape[1]).astype(float) for v in (prior(data) if prior else (0.0, np.inf)))
        return X, y, mean, scale

    def model(data):
        X, y, mean, scale = parts(data)
        parameters = refhmc.Parameters(beta=Real(shape=X.shape[1]), sigma=Positive(), parents={})
        options = {"data": (X, y, mean, scale, *sigma), "value_and_gradient": value_and_gradient}
        return parameters.model(log_density, gradient, **options)

    def in_numpyro(data):
        import numpyro
        import numpyro.distributions as dist

        X, y, mean, scale = parts(data)
        flat = dist.ImproperUniform(dist.constraints.real_vector, (), (X.shape[1],))
        coefficients = flat if np.isinf(scale).all() else dist.Normal(mean, scale).to_event(1)

        def regression():
            beta = numpyro.sample("beta", coefficients)
            noise = numpyro.sample("sigma", dist.ImproperUniform(dist.constraints.positive, (), ()))
            if np.isfinite(sigma[1]):
                law = dist.Normal(0, sigma[1]) if np.isinf(sigma[0]) else dist.StudentT(sigma[0], 0, sigma[1])
                numpyro.factor("prior", law.log_prob(noise))
            numpyro.sample("y", dist.Normal(X @ beta, noise), obs=y)

        return regression

    return model, in_numpyro


def logistic_log_density(values, data):
    X, sign = data
    return -np.sum(np.logaddexp(0.0, -sign * (values.alpha + X @ values.beta)))


def logistic_value_and_gradient(values, data, out):
    X, sign = data
    e = sign * (values.alpha + X @ values.beta)
    slope = sign / (1 + np.exp(e))
    out[0] = np.sum(slope)
    out[1:] = slope @ X
    return -np.sum(np.logaddexp(0.0, -e))


def logistic_gradient(values, data, out):
    X, sign = data
    slope = sign / (1 + np.exp(sign * (values.alpha + X @ values.beta)))
    out[0] = np.sum(slope)
    out[1:] = slope @ X


def logistic(design: Design) -> tuple[Callable, Callable]:
    """Return ``model`` and ``in_numpyro`` of a logistic regression with flat priors; X has no column of ones."""

    def parts(data):
        X, y = design(data)
        return np.column_stack(X).astype(float), np.asarray(y, dtype=float)

    def model(data):
        X, y = parts(data)
        parameters = refhmc.Parameters(alpha=Real(), beta=Real(shape=X.shape[1]), parents={})
        options = {"data": (X, 2 * y - 1), "value_and_gradient": logistic_value_and_gradient}
        return parameters.model(logistic_log_density, logistic_gradient, **options)

    def in_numpyro(data):
        import numpyro
        import numpyro.distributions as dist

        X, y = parts(data)

        def regression():
            alpha = numpyro.sample("alpha", dist.ImproperUniform(dist.constraints.real, (), ()))
            beta = numpyro.sample("beta", dist.ImproperUniform(dist.constraints.real_vector, (), (X.shape[1],)))
            numpyro.sample("y", dist.BernoulliLogits(alpha + X @ beta), obs=y)

        return regression

    return model, in_numpyro


def election(data: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return X and y of the National Election Study: ideology, race, three age groups, education, gender and income."""
    ages = (data["age_discrete"] == k for k in (2, 3, 4))
    return columns(data["real_ideo"], data["race_adj"], *ages, data["educ1"], data["gender"], data["income"]), data[
        "partyid7"
    ]
