"""Kernels of JAX with keys and states, without adapters: how they are recognised, called and read.

JAX is not among the test requirements: these tests are skipped where it is not installed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import refhmc.check as rc

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


class State(NamedTuple):
    position: Any
    log_density: Any


class Algorithm(NamedTuple):
    """The form of an algorithm in BlackJAX."""

    init: Any
    step: Any


def log_density(q):
    return -0.5 * jnp.sum(q**2)


def random_walk(scale=1.0):
    """Return Metropolis' algorithm for the density of ``log_density``, with proposals of width ``scale`` in its test."""

    def init(position, rng_key=None):
        return State(position, log_density(position))

    def step(rng_key, state):
        one, other = jax.random.split(rng_key)
        position = state.position + jax.random.normal(one, state.position.shape)
        new = State(position, log_density(position))
        drop = (new.log_density - state.log_density) / scale**2
        accepted = jnp.log(jax.random.uniform(other)) < drop
        return jax.tree.map(lambda x, y: jnp.where(accepted, x, y), new, state), {"accepted": accepted}

    return Algorithm(init, step)


@pytest.mark.parametrize("scale", [1.0, 1.3])
def test_object_with_init_and_step_is_vmapped(scale):
    report = rc.sampler(random_walk(scale), "normal-2", draws=2000)
    assert "called with JAX keys as one chain, under vmap; the position is state.position" in report.notes
    assert report.severity == (None if scale == 1.0 else "wrong distribution"), str(report)
