"""A Gaussian process at 11 points with the noise variance sigma.

    y ~ N(0, K + sigma I),      K_ij = alpha^2 exp(-(x_i - x_j)^2 / (2 rho^2))
    rho ~ Gamma(25, rate 4),      alpha ~ N+(0, 2^2),      sigma ~ N+(0, 1)

Source: simulated, from stan-dev/stat_comp_benchmarks.
Licence: BSD-3-Clause (model and database).
"""

import refhmc

NAME = "gp_pois_regr-gp_regr"


def in_numpyro(data):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    square = jnp.asarray((data["x"][:, None] - data["x"]) ** 2.0)

    def process():
        rho, alpha = numpyro.sample("rho", dist.Gamma(25, 4)), numpyro.sample("alpha", dist.HalfNormal(2))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        K = alpha**2 * jnp.exp(-0.5 * square / rho**2) + sigma * jnp.eye(len(square))
        numpyro.sample("y", dist.MultivariateNormal(0, covariance_matrix=K), obs=data["y"])

    return process


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
