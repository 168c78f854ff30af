"""An ARMA(1, 1) series of 200 simulated observations, with errors e_t and e_0 = 0.

    e_1 = y_1 - mu - phi mu,      e_t = y_t - mu - phi y_{t-1} - theta e_{t-1},      e_t ~ N(0, sigma^2)
    mu ~ N(0, 10^2),      phi, theta ~ N(0, 2^2),      sigma ~ C+(0, 2.5)

The derivatives of e_t follow by the same recursion.

Source: simulated, from stan-dev/stat_comp_benchmarks.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

import refhmc
from refhmc.parameters import Positive, Real

NAME = "arma-arma11"
WHY_NOT = "from a start with theta above 1, chains need up to 100,000 gradients until they restart where Pathfinder would start"


def log_density(values, y):
    mu, phi, theta, sigma = values
    e = y[0] - mu - phi * mu
    total = e * e
    for t in range(1, len(y)):
        e = y[t] - mu - phi * y[t - 1] - theta * e
        total += e * e
    prior = -(mu**2) / 200 - (phi**2 + theta**2) / 8 - np.log1p((sigma / 2.5) ** 2)
    return prior - len(y) * np.log(sigma) - 0.5 * total / sigma**2


def gradient(values, y):
    mu, phi, theta, sigma = values
    e, by_mu, by_phi, by_theta = y[0] - mu - phi * mu, -1 - phi, -mu, 0.0
    total, g_mu, g_phi, g_theta = e * e, e * by_mu, e * by_phi, 0.0
    for t in range(1, len(y)):
        by_mu, by_phi, by_theta = -1 - theta * by_mu, -y[t - 1] - theta * by_phi, -e - theta * by_theta
        e = y[t] - mu - phi * y[t - 1] - theta * e
        total += e * e
        g_mu += e * by_mu
        g_phi += e * by_phi
        g_theta += e * by_theta
    v = sigma**2
    of_sigma = (total / v - len(y)) / sigma - 2 * sigma / (6.25 + v)
    return -g_mu / v - mu / 100, -g_phi / v - phi / 4, -g_theta / v - theta / 4, of_sigma


def model(data):
    parameters = refhmc.Parameters(mu=Real(), phi=Real(), theta=Real(), sigma=Positive(), parents={})
    return parameters.model(log_density, gradient, data=data["y"])


def in_numpyro(data):
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    y = jnp.asarray(data["y"])

    def series():
        mu, sigma = numpyro.sample("mu", dist.Normal(0, 10)), numpyro.sample("sigma", dist.HalfCauchy(2.5))
        phi, theta = (numpyro.sample(name, dist.Normal(0, 2)) for name in ("phi", "theta"))

        def step(e, both):
            e = both[1] - mu - phi * both[0] - theta * e
            return e, e

        first = y[0] - mu - phi * mu
        later = jax.lax.scan(step, first, jnp.stack([y[:-1], y[1:]], axis=1))[1]
        errors = jnp.concatenate([first[None], later])
        numpyro.factor("errors", dist.Normal(0, sigma).log_prob(errors).sum())

    return series
