"""BlackJAX: its leapfrog and implicit midpoint as integrators, its HMC and NUTS as kernels."""

from __future__ import annotations

import functools

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import integrators, metrics

import refhmc.check as rc
from validation.peers import write_reports

jax.config.update("jax_enable_x64", True)


def log_density(q):
    """A quartic well with a coupling: nothing about it is Gaussian."""
    return -0.25 * jnp.sum(q**4) - 0.5 * jnp.sum(q[1:] * q[:-1]) ** 2


def energy(q, p):
    return float(-log_density(jnp.asarray(q)) + 0.5 * np.sum(np.asarray(p) ** 2))


def integrator(make, **options):
    """One of BlackJAX's integrators as ``step(q, p, eps)``."""
    metric = metrics.default_metric(jnp.ones(3))
    step = jax.jit(make(log_density, metric.kinetic_energy, **options))

    def one(q, p, eps):
        q, p = jnp.asarray(q), jnp.asarray(p)
        value, gradient = jax.value_and_grad(log_density)(q)
        state = step(integrators.IntegratorState(q, p, value, gradient), eps)
        return state.position, state.momentum

    return one


def kernel(target, make, **options):
    """A BlackJAX algorithm on a target of the kit's, as ``kernel(rng, q)`` for an array of chains."""
    algorithm = make(TARGETS[target], **options)

    @jax.jit
    def several(keys, q):
        return jax.vmap(lambda key, x: algorithm.step(key, algorithm.init(x))[0].position)(keys, q)

    def called(rng, q):
        return np.asarray(several(jax.random.split(jax.random.key(int(rng.integers(2**32))), len(q)), jnp.asarray(q)))

    return called


def funnel(q):
    """The kit's funnel: v ~ N(0, 9), x ~ N(0, exp(-v))."""
    v, x = q[0], q[1:]
    return -v * v / 18 + 0.5 * len(x) * v - 0.5 * jnp.exp(v) * jnp.sum(x * x)


def gaussian(q):
    """The kit's: N((0.5, -1), [[1, 0.5], [0.5, 2]])."""
    x = q - jnp.array([0.5, -1.0])
    return -0.5 * x @ jnp.linalg.solve(jnp.array([[1.0, 0.5], [0.5, 2.0]]), x)


TARGETS = {"funnel": funnel, "gaussian": gaussian}


def main() -> None:
    precise = functools.partial(integrators.solve_fixed_point_iteration, convergence_tol=1e-12, max_iters=200)
    check = functools.partial(rc.integrator, H=energy, dim=3, eps=0.1)
    reports = [
        check(integrator(integrators.velocity_verlet), name="blackjax velocity_verlet"),
        check(integrator(integrators.mclachlan), name="blackjax mclachlan"),
        check(
            integrator(integrators.implicit_midpoint, solver=precise),
            name="blackjax implicit_midpoint",
            tolerance=1e-12,
        ),
    ]
    for target, step_size in (("gaussian", 0.5), ("funnel", 0.2)):
        dim = rc.targets.from_name(target).dim
        common = {"step_size": step_size, "inverse_mass_matrix": jnp.ones(dim)}
        for name, make, options in (
            ("hmc", blackjax.hmc, {"num_integration_steps": 8}),
            ("nuts", blackjax.nuts, {"max_num_doublings": 6}),
        ):
            chains = kernel(target, make, **common, **options)
            reports.append(rc.sampler(chains, target=target, batched=True, name=f"blackjax {name}", seconds=60))
    write_reports("blackjax", ("jax", "blackjax"), reports)


if __name__ == "__main__":
    main()
