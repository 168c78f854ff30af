"""Log price of 5,000 diamonds on 24 columns with large and almost collinear entries, which are centred.

    y_i ~ N(a + (x_i - mean x)'b, sigma^2),      b_k ~ N(0, 1), a ~ t_3(8, 10), sigma ~ t_3+(0, 10)

The sums of squares and products have all that the density needs of the data. With X centred, r'r = (b - m)'G(b - m) +
n (a - mean y)^2 + S, where G = X'X, m is the least-squares solution and S its residual sum of squares.

Source: Wickham (2016), ggplot2, by brms.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

import refhmc
from refhmc.parameters import Positive, Real

NAME = "diamonds-diamonds"


def log_density(values, data):
    b, a, sigma = values
    R, m, n, mean, least = data
    e = R @ (b - m)
    square = e @ e + n * (a - mean) ** 2 + least
    prior = -0.5 * b @ b - 2 * np.log1p((a - 8) ** 2 / 300) - 2 * np.log1p(sigma**2 / 300)
    return prior - n * np.log(sigma) - 0.5 * square / sigma**2


def gradient(values, data):
    b, a, sigma = values
    R, m, n, mean, least = data
    e = R @ (b - m)
    square = e @ e + n * (a - mean) ** 2 + least
    of_a = -n * (a - mean) / sigma**2 - 4 * (a - 8) / (300 + (a - 8) ** 2)
    return -(e @ R) / sigma**2 - b, of_a, square / sigma**3 - n / sigma - 4 * sigma / (300 + sigma**2)


def model(data):
    X, y = data["X"][:, 1:] - data["X"][:, 1:].mean(axis=0), data["Y"]
    R, m = np.linalg.qr(X, mode="r"), np.linalg.lstsq(X, y, rcond=None)[0]
    least = np.sum((y - y.mean() - X @ m) ** 2)
    parameters = refhmc.Parameters(b=Real(shape=X.shape[1]), Intercept=Real(), sigma=Positive(), parents={})
    return parameters.model(log_density, gradient, data=(R, m, float(len(y)), float(y.mean()), float(least)))


def in_numpyro(data):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    X, y = jnp.asarray(data["X"][:, 1:] - data["X"][:, 1:].mean(axis=0)), jnp.asarray(data["Y"])

    def regression():
        b = numpyro.sample("b", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
        a = numpyro.sample("Intercept", dist.StudentT(3, 8, 10))
        sigma = numpyro.sample("sigma", dist.ImproperUniform(dist.constraints.positive, (), ()))
        numpyro.factor("prior", dist.StudentT(3, 0, 10).log_prob(sigma))
        numpyro.sample("y", dist.Normal(a + X @ b, sigma), obs=y)

    return regression
