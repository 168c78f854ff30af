"""A hidden Markov model with two states and 100 observations with standard deviation 1.

    y_t ~ N(mu_{s_t}, 1),      P(s_t = k | s_{t-1} = j) = theta_jk
    theta_j uniform on the simplex,      0 < mu_1 < mu_2, mu_1 ~ N(3, 1), mu_2 ~ N(10, 1)

Source: imadmali/bball-hmm.
Licence: BSD-3-Clause (model and database).
"""

import refhmc
from validation.posteriordb.hidden_markov import increasing, log_likelihood

NAME = "hmm_example-hmm_example"


def in_numpyro(data):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    y = jnp.asarray(data["y"])

    def chain():
        theta = jnp.stack([numpyro.sample(name, dist.Dirichlet(jnp.ones(2))) for name in ("theta1", "theta2")])
        mu = increasing("mu")
        numpyro.factor("prior", dist.Normal(jnp.array([3.0, 10.0]), 1).log_prob(mu).sum())
        numpyro.factor("y", log_likelihood(dist.Normal(mu, 1).log_prob(y[:, None]), theta))

    return chain


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
