"""What the kernels' options have in common: step size, target acceptance, metric, integrator."""

from __future__ import annotations

import math

from refhmc.dynamics import resolve


def check_options(kernel) -> None:
    """Raise ValueError or TypeError, with the name and the value, for an option that cannot be."""
    step_size = kernel.step_size
    if step_size is not None and not (step_size > 0 and math.isfinite(step_size)):
        raise ValueError(f"step_size must be positive and finite, got {step_size!r}")
    target = kernel.target_accept
    if target is not None and not 0 < target < 1:
        raise ValueError(f"target_accept must lie between 0 and 1, got {target!r}")
    resolve(kernel.metric, kernel.integrator)


def solver_statistics(kernel) -> tuple[str, ...]:
    """Names of the statistics that the kernel's metric and integrator add to its own."""
    metric, integrator = resolve(kernel.metric, kernel.integrator)
    names: tuple[str, ...] = ()
    if integrator.implicit:
        names += ("solver_iterations", "solver_residual", "solver_failed")
        if integrator.reversibility_check:
            names += ("reversibility_error",)
    if metric.position_dependent:
        names += ("metric_cond", "n_gradient_evaluations", "n_metric_evaluations", "n_trace_evaluations")
    return names
