"""Counts at 11 points with a Gaussian process as the logarithm of their rate.

    k_i ~ Poisson(e^{f_i}),      f = L z,  L L' = K + 1e-10 I,      K_ij = alpha^2 exp(-(x_i - x_j)^2 / (2 rho^2))
    z ~ N(0, I),      rho ~ Gamma(25, rate 4),      alpha ~ N+(0, 2^2)

Source: simulated, from stan-dev/stat_comp_benchmarks.
Licence: BSD-3-Clause (model and database).
"""

import refhmc

NAME = "gp_pois_regr-gp_pois_regr"
WHY_NOT = "chance in part: the median of twelve seeds is 1.83 per 1,000 gradients"
HARD = (
    "The likelihood curves more where alpha is large. One chain of 48 came to alpha above 5 after warm-up, rejected nine of "
    "ten transitions there, and stayed for half of its draws."
)


def in_numpyro(data):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    square = jnp.asarray((data["x"][:, None] - data["x"]) ** 2.0)

    def process():
        rho, alpha = numpyro.sample("rho", dist.Gamma(25, 4)), numpyro.sample("alpha", dist.HalfNormal(2))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([len(square)]).to_event(1))
        K = alpha**2 * jnp.exp(-0.5 * square / rho**2) + 1e-10 * jnp.eye(len(square))
        f = numpyro.deterministic("f", jnp.linalg.cholesky(K) @ z)
        numpyro.sample("k", dist.Poisson(jnp.exp(f)), obs=data["k"])

    return process


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
