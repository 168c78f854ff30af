"""A sampler of JAX with keys and states under the conformance kit, as its author wrote it.

    python validation/clients/client_jax_keys.py                    # no row fails: exit status 0
    python validation/clients/client_jax_keys.py --bug key-twice    # or stale-density: exit status 1; the report names the bug

Algorithms of BlackJAX have this form, and can be passed to the checks in its place.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import refhmc.check as rc

jax.config.update("jax_enable_x64", True)


class State(NamedTuple):
    position: Any
    log_density: Any


class Algorithm(NamedTuple):
    init: Any
    step: Any


def random_walk(bug: str = "") -> Algorithm:
    """Return Metropolis' random walk on the standard normal distribution."""

    def log_density(q):
        return -0.5 * jnp.sum(q**2)

    def init(position):
        return State(position, log_density(position))

    def step(rng_key, state):
        of_proposal, of_decision = jax.random.split(rng_key)
        if bug == "key-twice":
            of_decision = of_proposal
        position = state.position + 1.5 * jax.random.normal(of_proposal, state.position.shape)
        proposal = State(position, log_density(position))
        u = jax.random.uniform(of_decision)
        accepted = jnp.log(u) < proposal.log_density - state.log_density
        new = jax.tree.map(lambda x, y: jnp.where(accepted, x, y), proposal, state)
        if bug == "stale-density":
            new = new._replace(log_density=proposal.log_density)
        return new, {"accepted": accepted}

    return Algorithm(init, step)


def checks(bug: str = "") -> dict:
    """Return functions that make the reports, by name."""
    algorithm = random_walk(bug)
    return {
        "sampler": lambda: rc.sampler(algorithm, target="normal-2", draws=8000, seconds=120),
        "randomness": lambda: rc.randomness(algorithm, dim=2),
        "batch": lambda: rc.batch(algorithm, dim=2),
    }


if __name__ == "__main__":
    found = [check() for check in checks(sys.argv[2] if sys.argv[1:2] == ["--bug"] else "").values()]
    print(*found, sep="\n\n")
    sys.exit(any(report.failures for report in found))
