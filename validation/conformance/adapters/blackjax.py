"""BlackJAX: integrators as steps, sampling algorithms as kernels."""

from __future__ import annotations

import functools

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import integrators, metrics

import refhmc.check as rc
from validation.conformance.adapters.jax_targets import TARGETS
from validation.conformance.subjects import Subject

PACKAGES = ("jax", "blackjax")
SECONDS = 40  # of processor time per subject


class Chains:
    """Sampling algorithm of BlackJAX as batched chains with a state."""

    def __init__(self, make, target):
        algorithm = make(TARGETS[target])
        self._init = jax.jit(jax.vmap(algorithm.init))
        self._step = jax.jit(jax.vmap(lambda key, state: algorithm.step(key, state)[0]))

    def init(self, rng, q):
        return self._init(jnp.asarray(q))

    def step(self, rng, state):
        return self._step(jax.random.split(jax.random.key(int(rng.integers(2**32))), len(state.logdensity)), state)

    def read(self, state):
        return np.asarray(state.position)


def kernel(name, call, make, target):
    """Return a sampling algorithm, ``make(log_density)``, as a subject on one target."""

    def examine():
        return rc.sampler(Chains(make, target), target, seconds=SECONDS, batched=True, chains=2048, name=name)

    return Subject(f"{name}, {target}", call, examine, (Chains,))


def ones(target):
    return jnp.ones(rc.targets.from_name(target).dim)


SUBJECTS = [
    kernel(
        f"blackjax.{name}",
        f"blackjax.{name}(log_density, step_size={step}, inverse_mass_matrix=ones, num_integration_steps=3)",
        functools.partial(
            getattr(blackjax, name), step_size=step, inverse_mass_matrix=ones(target), num_integration_steps=3
        ),
        target,
    )
    for name in ("hmc", "mhmc")
    for target, step in (("gaussian", 0.5), ("quartic-1", 1.0))
]
