"""Log densities in JAX of targets of :mod:`refhmc.check.targets`, by the names of the latter."""

from __future__ import annotations

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)


def funnel(q):
    v, x = q[0], q[1:]
    return -v * v / 18 + 0.5 * len(x) * v - 0.5 * jnp.exp(v) * jnp.sum(x * x)


def gaussian(q):
    x = q - jnp.array([0.5, -1.0])
    return -0.5 * x @ jnp.linalg.solve(jnp.array([[1.0, 0.5], [0.5, 2.0]]), x)


def quartic(q):
    return -0.25 * jnp.sum(q**4)


def banana(q):
    return -12.5 * (1 - q[0] - q[1] ** 2) ** 2 - 0.125 * jnp.sum(q**2)


TARGETS = {"funnel-3": funnel, "gaussian": gaussian, "quartic-1": quartic, "quartic-2": quartic, "banana": banana}
