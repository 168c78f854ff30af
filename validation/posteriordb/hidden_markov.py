"""Hidden Markov models in jax.numpy: the forward algorithm, with a flat weight of the first state.

g_1k = e_1k,      g_tk = e_tk + log sum_j exp(g_{t-1,j} + log theta_jk),      L = log sum_k exp(g_Tk)
"""

from __future__ import annotations

from typing import Any


def log_likelihood(e: Any, theta: Any) -> Any:
    """Return L for log densities e (T, K) of the observations in each state, and transition probabilities theta (K, K)."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    log_theta = jnp.log(theta)

    def step(g, of_states):
        return of_states + logsumexp(g[:, None] + log_theta, axis=0), None

    return logsumexp(jax.lax.scan(step, e[0], e[1:])[0])


def increasing(name: str, positive: bool = True) -> Any:
    """Sample two increasing numbers with a flat prior, as partial sums of positive numbers or after a real one."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    if not positive:
        return numpyro.sample(name, dist.ImproperUniform(dist.constraints.ordered_vector, (), (2,)))
    support = dist.constraints.independent(dist.constraints.positive, 1)
    steps = numpyro.sample(f"{name}_steps", dist.ImproperUniform(support, (), (2,)))
    return numpyro.deterministic(name, jnp.cumsum(steps))
