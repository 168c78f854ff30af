"""A hidden Markov model of basketball drives, with exponential 1/speed u and hoop distance v in two states.

    u_t ~ Exp(phi_{s_t}),  v_t ~ Exp(lambda_{s_t}),      P(s_t = k | s_{t-1} = j) = theta_jk
    theta_j ~ Dirichlet(alpha_j),      0 < phi_1 < phi_2, the same for lambda,      first ~ N(0, 1), second ~ N(3, 1)

Source: player tracking data from imadmali/bball-hmm.
Licence: BSD-3-Clause (model and database).
"""

import refhmc
from validation.posteriordb.hidden_markov import increasing, log_likelihood

NAME = "bball_drive_event_0-hmm_drive_0"
HARD = (
    "A second mode has another distance in one state (lambda_steps[1] near 1 in place of -3): of 32 chains 3 were there "
    "after warm-up. Two of them changed to the first mode later, where their metric is wrong and nine of ten transitions "
    "are rejected."
)


def in_numpyro(data):
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    u, v, alpha = (jnp.asarray(data[key], dtype=float) for key in ("u", "v", "alpha"))
    u, v = u[:, None], v[:, None]

    def chain():
        theta = jnp.stack([numpyro.sample(f"theta{k + 1}", dist.Dirichlet(alpha[k])) for k in range(2)])
        phi, lam = increasing("phi"), increasing("lambda")
        prior = dist.Normal(jnp.array([0.0, 3.0]), 1)
        numpyro.factor("prior", prior.log_prob(phi).sum() + prior.log_prob(lam).sum())
        numpyro.factor(
            "uv", log_likelihood(dist.Exponential(phi).log_prob(u) + dist.Exponential(lam).log_prob(v), theta)
        )

    return chain


def model(data):
    return refhmc.from_numpyro(in_numpyro(data))
