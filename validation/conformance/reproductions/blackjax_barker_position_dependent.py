"""BlackJAX: Barker's proposal with a mass matrix 1 + q^2 on exp(-q^4 / 4), next to a constant one."""

import math

import blackjax
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
CHAINS, DRAWS, BURN_IN = 2000, 1000, 100


def log_density(q):
    return -0.25 * jnp.sum(q**4)


def mean_square(algorithm, key):
    def chain(key):
        def step(state, key):
            state = algorithm.step(key, state)[0]
            return state, state.position[0] ** 2

        return jax.lax.scan(step, algorithm.init(jnp.zeros(1)), jax.random.split(key, BURN_IN + DRAWS))[1][
            BURN_IN:
        ].mean()

    return jax.jit(jax.vmap(chain))(jax.random.split(key, CHAINS))


expected = 2 * math.gamma(0.75) / math.gamma(0.25)
print(f"E q^2 expected                          {expected:.5f}")
for step in (1.0, 0.5):
    for label, metric in (("constant", jnp.ones(1)), ("1 + q^2", lambda q: 1 + q**2)):
        means = mean_square(blackjax.barker(log_density, step, metric), jax.random.key(1))
        got, error = float(means.mean()), float(means.std()) / math.sqrt(CHAINS)
        print(
            f"E q^2 obtained, step {step}, metric {label:8s}  {got:.5f} +- {error:.5f} (z = {(got - expected) / error:.1f})"
        )
