"""BlackJAX: implicit midpoint at a step whose equation the solver does not solve, and what the integrator returns."""

import jax
import jax.numpy as jnp
from blackjax.mcmc import integrators, metrics

jax.config.update("jax_enable_x64", True)


def log_density(q):
    return -0.25 * jnp.sum(q**4)


def report(*arguments):
    """Solve as by default, and print what the solver reports."""
    q, aux, info = integrators.solve_fixed_point_iteration(*arguments)
    print(
        f"  solver: success {bool(info.success)}, last change {float(info.norm):.1e} after {int(info.iters)} iterations"
    )
    return q, aux, info


metric = metrics.default_metric(jnp.ones(1))
start = integrators.new_integrator_state(log_density, jnp.array([1.5]), jnp.array([0.5]))
energy = float(metric.kinetic_energy(start.momentum) - start.logdensity)
print("Expected: a step that is not solved is reported, or has values that are not finite.")
for eps in (0.2, 0.9):
    print(f"step {eps}:")
    end = integrators.implicit_midpoint(log_density, metric.kinetic_energy, solver=report)(start, eps)
    flipped = end._replace(momentum=-end.momentum)
    back = integrators.implicit_midpoint(log_density, metric.kinetic_energy)(flipped, eps)
    error = float(jnp.abs(back.position - start.position)[0])
    change = float(metric.kinetic_energy(end.momentum) - end.logdensity) - energy
    print(
        f"  obtained: q = {float(end.position[0]):.4f}, energy change {change:.2f}, error of the reverse step {error:.1e}"
    )
