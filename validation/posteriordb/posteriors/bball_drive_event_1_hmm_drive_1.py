"""A hidden Markov model of basketball drives, with normal 1/speed u and hoop distance v in two states.

    u_t ~ N(phi_{s_t}, tau^2),  v_t ~ N(lambda_{s_t}, rho^2),      P(s_t = k | s_{t-1} = j) = theta_jk
    theta_j ~ Dirichlet(alpha_j),      phi_1 < phi_2, the same for lambda,      first ~ N(0, 1), second ~ N(3, 1)

Source: player tracking data from imadmali/bball-hmm.
Licence: BSD-3-Clause (model and database).
"""

import refhmc
from validation.posteriordb.hidden_markov import increasing, log_likelihood

NAME = "bball_drive_event_1-hmm_drive_1"


def in_numpyro(data):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    u, v, alpha = (jnp.asarray(data[key], dtype=float) for key in ("u", "v", "alpha"))
    u, v = u[:, None], v[:, None]

    def chain():
        theta = jnp.stack([numpyro.sample(f"theta{k + 1}", dist.Dirichlet(alpha[k])) for k in range(2)])
        phi, lam = increasing("phi", positive=False), increasing("lambda", positive=False)
        prior = dist.Normal(jnp.array([0.0, 3.0]), 1)
        numpyro.factor("prior", prior.log_prob(phi).sum() + prior.log_prob(lam).sum())
        numpyro.factor(
            "uv",
            log_likelihood(
                dist.Normal(phi, data["tau"]).log_prob(u) + dist.Normal(lam, data["rho"]).log_prob(v), theta
            ),
        )

    return chain


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
