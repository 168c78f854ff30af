"""BlackJAX: the scale of Barker's proposal for an inverse mass matrix, next to that of HMC."""

import blackjax
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
variances = jnp.array([1e-4, 1.0])  # of a normal target; as inverse mass matrix of HMC they make its scales equal


def log_density(q):
    return -0.5 * jnp.sum(q**2 / variances)


def jumps(algorithm):
    """Root mean square of one proposal from the mode, in standard deviations of each coordinate."""

    def one(key):
        info = algorithm.step(key, algorithm.init(jnp.zeros(2)))[1]
        return info.proposal.position

    proposals = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), 100_000))
    return jnp.sqrt((proposals**2).mean(0) / variances)


print("Expected: both coordinates jump by the same number of standard deviations if inverse_mass_matrix=variances.")
print("Obtained, hmc,    inverse_mass_matrix=variances:     ", jumps(blackjax.hmc(log_density, 0.1, variances, 1)))
print("Obtained, barker, inverse_mass_matrix=variances:     ", jumps(blackjax.barker(log_density, 0.1, variances)))
print("Obtained, barker, inverse_mass_matrix=1 / variances: ", jumps(blackjax.barker(log_density, 0.1, 1 / variances)))
