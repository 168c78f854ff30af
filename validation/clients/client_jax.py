"""A JAX sampler held against refhmc: density, gradient, leapfrog and one transition, in a page.

    python validation/clients/client_jax.py                     # every row without FAIL: exit status 0
    python validation/clients/client_jax.py --bug half-drift    # or gradient, always-accept: 1, and the report says which

Put your own functions in place of the four below. Their arrays may stay JAX's: the kit converts what goes in and comes out.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp

import refhmc.check as rc

jax.config.update("jax_enable_x64", True)  # in single precision rows about rounding are judged as such


def sampler(bug: str = "") -> tuple:
    """(log density, gradient, step, transition) of a quartic well with a coupling."""

    def log_density(q):
        return -0.25 * jnp.sum(q**4) - 0.5 * jnp.sum((q[1:] * q[:-1]) ** 2)

    slope = jax.grad(log_density)
    gradient = jax.jit(lambda q: (1.01 if bug == "gradient" else 1.0) * slope(q))

    @jax.jit
    def leapfrog(q, p, eps):
        p = p + 0.5 * eps * slope(q)
        q = q + (0.5 if bug == "half-drift" else 1.0) * eps * p
        return q, p + 0.5 * eps * slope(q)

    @jax.jit
    def transition(q, p0, u):
        """A long step from (q, p0), accepted if u < exp(H - H'). (Of several steps there may be several ways back to find.)"""
        there = leapfrog(q, p0, 1.2)
        energy = lambda z: 0.5 * jnp.sum(z[1] ** 2) - log_density(z[0])  # noqa: E731
        accept = jnp.log(u) < energy((q, p0)) - energy(there)
        return jnp.where(accept | (bug == "always-accept"), there[0], q)

    return log_density, gradient, leapfrog, transition


def checks(bug: str = "", seconds: float | None = 60.0) -> dict:
    """Name -> function that makes the report."""
    log_density, gradient, leapfrog, transition = sampler(bug)
    energy = jax.jit(lambda q, p: 0.5 * jnp.sum(p**2) - log_density(q))
    return {
        "density": lambda: rc.model(log_density, gradient, dim=3),
        "integrator": lambda: rc.integrator(leapfrog, H=energy, dim=3, eps=0.1, seconds=seconds),
        "transition": lambda: rc.transition(transition, energy, dim=3, seconds=seconds),
    }


if __name__ == "__main__":
    found = [check() for check in checks(sys.argv[2] if sys.argv[1:2] == ["--bug"] else "").values()]
    print(*found, sep="\n\n")
    sys.exit(any(report.failures for report in found))
