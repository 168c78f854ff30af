"""A mixture of two normal distributions, 1,000 simulated observations, well separated.

    y_i ~ theta N(mu_1, sigma_1^2) + (1 - theta) N(mu_2, sigma_2^2),      mu_1 < mu_2
    mu_k ~ N(0, 2^2),      sigma_k ~ N+(0, 2^2),      theta ~ Beta(5, 5)

As a formula of mu_1, log(mu_2 - mu_1), log sigma_1, log sigma_2 and logit theta.

Source: simulated, from stan-dev/stat_comp_benchmarks.
Licence: BSD-3-Clause (model and database).
"""

import numpy as np

import refhmc

NAME = "low_dim_gauss_mix-low_dim_gauss_mix"


def constrain(q):
    mu = np.stack([q[..., 0], q[..., 0] + np.exp(q[..., 1])], axis=-1)
    return {"mu": mu, "sigma": np.exp(q[..., 2:4]), "theta": 1 / (1 + np.exp(-q[..., 4]))}


def model(data):
    import sympy
    from sympy import exp, log

    coordinates = m, log_gap, u, v, w = sympy.symbols("mu_1 log_gap log_sigma_1 log_sigma_2 logit_theta")
    y, (i, n) = sympy.IndexedBase("y"), sympy.symbols("i n", integer=True)
    second = m + exp(log_gap)
    log_theta, log_rest = -log(1 + exp(-w)), -log(1 + exp(w))
    one = log_theta - u - ((y[i] - m) * exp(-u)) ** 2 / 2
    two = log_rest - v - ((y[i] - second) * exp(-v)) ** 2 / 2
    prior = -(m**2 + second**2 + exp(2 * u) + exp(2 * v)) / 8 + 5 * (log_theta + log_rest)
    L = sympy.Sum(log(exp(one) + exp(two)), (i, 0, n - 1)) + prior + log_gap + u + v
    return refhmc.from_sympy(L, coordinates, data={"y": data["y"]}, constrain=constrain)


def in_numpyro(data):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    def mixture():
        mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.ordered_vector, (), (2,)))
        numpyro.factor("prior", dist.Normal(0, 2).log_prob(mu).sum())
        sigma = numpyro.sample("sigma", dist.HalfNormal(2).expand([2]).to_event(1))
        theta = numpyro.sample("theta", dist.Beta(5, 5))
        weights = dist.Categorical(probs=jnp.stack([theta, 1 - theta]))
        numpyro.sample("y", dist.MixtureSameFamily(weights, dist.Normal(mu, sigma)), obs=data["y"])

    return mixture
