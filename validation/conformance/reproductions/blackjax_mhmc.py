"""BlackJAX: multinomial HMC on exp(-q^4 / 4), next to HMC, on independent chains that start at the mode."""

import math

import blackjax
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
CHAINS, DRAWS, BURN_IN = 4000, 2000, 100


def log_density(q):
    return -0.25 * jnp.sum(q**4)


def mean_squares(algorithm, key):
    def chain(key):
        def step(state, key):
            state = algorithm.step(key, state)[0]
            return state, state.position[0] ** 2

        keys = jax.random.split(key, BURN_IN + DRAWS)
        return jax.lax.scan(step, algorithm.init(jnp.zeros(1), key), keys)[1][BURN_IN:].mean()

    return jax.jit(jax.vmap(chain))(jax.random.split(key, CHAINS))


expected = 2 * math.gamma(0.75) / math.gamma(0.25)
print(f"E q^2 expected         {expected:.5f}")
for name in ("hmc", "mhmc", "dhmc", "dmhmc"):
    random = {"integration_steps_fn": lambda key: jax.random.randint(key, (), 2, 4)}
    options = random if name[0] == "d" else {"num_integration_steps": 3}
    algorithm = getattr(blackjax, name)(log_density, step_size=1.0, inverse_mass_matrix=jnp.ones(1), **options)
    means = mean_squares(algorithm, jax.random.key(1))
    obtained, error = float(means.mean()), float(means.std()) / math.sqrt(CHAINS)
    print(f"E q^2 obtained, {name:5s}  {obtained:.5f} +- {error:.5f} (z = {(obtained - expected) / error:.1f})")
