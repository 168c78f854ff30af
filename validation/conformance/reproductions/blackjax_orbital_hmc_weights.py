"""BlackJAX: weights of orbital_hmc on the standard normal distribution in JAX's default precision, float32."""

import blackjax
import jax
import jax.numpy as jnp


def log_density(q):
    return -0.5 * jnp.sum(q**2)


print("Expected: 6 weights, all near 1/6, since the step of 0.01 hardly changes the energy.")
for dim in (10, 50, 100, 200):
    algorithm = blackjax.orbital_hmc(log_density, step_size=0.01, inverse_mass_matrix=jnp.ones(dim), period=6)
    state = algorithm.init(jax.random.normal(jax.random.key(0), (dim,)))
    print(f"Obtained, dimension {dim:3d}:", jax.jit(algorithm.step)(jax.random.key(1), state)[0].weights)
