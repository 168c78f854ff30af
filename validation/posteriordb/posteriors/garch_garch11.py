"""A GARCH(1, 1) series of 200 simulated observations, with known sigma_1.

    y_t ~ N(mu, sigma_t^2),      sigma_t^2 = alpha_0 + alpha_1 (y_{t-1} - mu)^2 + beta_1 sigma_{t-1}^2
    p(mu, alpha_0, alpha_1, beta_1) constant on alpha_0 > 0, 0 < alpha_1 < 1, 0 < beta_1 < 1 - alpha_1

Source: simulated, from stan-dev/stat_comp_benchmarks.
Licence: BSD-3-Clause (model and database).
"""

import refhmc

NAME = "garch-garch11"


def in_numpyro(data):
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    y, first = jnp.asarray(data["y"]), data["sigma1"] ** 2

    def series():
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
        alpha0 = numpyro.sample("alpha0", dist.ImproperUniform(dist.constraints.positive, (), ()))
        alpha1 = numpyro.sample("alpha1", dist.Uniform(0, 1))
        # not ImproperUniform: with a support that depends on alpha1, NumPyro 0.22 returns wrong values of beta1
        beta1 = numpyro.sample("beta1", dist.Uniform(0, 1 - alpha1))
        numpyro.factor("flat", jnp.log1p(-alpha1))

        def step(variance, before):
            variance = alpha0 + alpha1 * (before - mu) ** 2 + beta1 * variance
            return variance, variance

        later = jax.lax.scan(step, jnp.asarray(first), y[:-1])[1]
        variances = jnp.concatenate([jnp.array([first]), later])
        numpyro.sample("y", dist.Normal(mu, jnp.sqrt(variances)), obs=y)

    return series


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
