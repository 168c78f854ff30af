"""BlackJAX: the momentum of generalised HMC after ``init``, and after many transitions."""

import blackjax
import jax
import jax.numpy as jnp

SCALE, CHAINS = 5.0, 20_000


def log_density(q):
    return -0.5 * jnp.sum(q**2)


algorithm = blackjax.ghmc(log_density, step_size=0.1, momentum_inverse_scale=SCALE * jnp.ones(1), alpha=0.1, delta=0.1)
keys = jax.random.split(jax.random.key(1), CHAINS)
states = jax.vmap(algorithm.init)(jax.random.normal(jax.random.key(2), (CHAINS, 1)), keys)
step = jax.jit(jax.vmap(lambda key, state: algorithm.step(key, state)[0]))
print(f"Standard deviation of the momentum expected:     {1 / SCALE:.4f}")
print(f"Obtained after init, {CHAINS} chains:             {float(states.momentum.std()):.4f} (error 0.5 %)")
for n in (1, 10, 100):
    later = states
    for i in range(n):
        later = step(jax.random.split(jax.random.key(1000 + i), CHAINS), later)
    print(f"Obtained after {n:3d} transitions:                  {float(later.momentum.std()):.4f}")
