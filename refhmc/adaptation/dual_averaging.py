"""Dual averaging of the step size (Hoffman and Gelman 2014, sec. 3.2.1).

With acceptance statistic a_m at iteration m = 1, 2, ...:

    h_m = (1 - 1/(m + t0)) h_{m-1} + (target - a_m) / (m + t0)
    log eps_m = mu - sqrt(m)/gamma h_m
    log eps_bar_m = m^-kappa log eps_m + (1 - m^-kappa) log eps_bar_{m-1}

with gamma = 0.05, t0 = 10, kappa = 0.75 and mu = log(10 eps_0). It restarts after each change of the metric, from the step
size that :mod:`refhmc.adaptation.step_size` finds. A step size eps_0 from a result is not searched for: mu = log eps_0, and m
starts at 50, as if that many iterations had met the target, so that a few more stay near it. After warm-up the step size is
eps_bar. The size of the jumps of discontinuous HMC is adapted to its no-flip rate by the same recursion.

The iterations of an implicit integrator's solver grow with the step size. Among the step sizes whose acceptance is at least
0.95, the largest needs the fewest iterations per unit of time, and dual averaging converges to it. This was found for heart
and banana with Fisher and for the funnel with SoftAbs. Step sizes from half to one and a half times that value gave at most
6 % more effective draws per iteration (``validation/benchmarks/results/riemannian_step.md``). There is therefore no second
criterion, and the default target is one at which solvers hardly fail, 0.98. An explicit integrator on a metric that depends on
the position has the target 0.9: in funnels with learned metrics, 0.8 gave between none and a third more effective draws per
gradient, and several times as many divergences.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.records import REAL, record_type
from refhmc.integrators.defaults import resolve

if TYPE_CHECKING:
    from refhmc.kernels.options import Kernel
    from refhmc.metrics.base import Metric

GAMMA, T0, KAPPA = 0.05, 10.0, 0.75
KNOWN = 50.0  # number of iterations that a step size from a result counts for
TARGET, EXPLICIT_TARGET, RIEMANNIAN_TARGET = 0.8, 0.9, 0.98

DUAL = record_type({"log_step": REAL, "log_step_bar": REAL, "h_bar": REAL, "mu": REAL, "count": REAL})


def target_acceptance(kernel: Kernel, metric: Metric) -> float:
    """Return the target of dual averaging: the kernel's own, or for None that of the metric and the integrator."""
    if kernel.target_accept is not None:
        return kernel.target_accept
    if not metric.position_dependent:
        return TARGET
    integrator = resolve(metric, kernel.integrator)[1]
    return EXPLICIT_TARGET if integrator.exact and not integrator.implicit else RIEMANNIAN_TARGET


@jit
def restart_dual_averaging(dual: np.record, step_size: float) -> None:
    """Start at ``step_size``, with ten times that value as the first aim."""
    dual.log_step = dual.log_step_bar = math.log(step_size)
    dual.mu = math.log(10.0 * step_size)
    dual.h_bar = dual.count = 0.0


def continue_dual_averaging(dual: np.record, step_size: float) -> None:
    """Start at a known ``step_size``, and aim at it."""
    dual.log_step = dual.log_step_bar = dual.mu = math.log(step_size)
    dual.h_bar, dual.count = 0.0, KNOWN


@jit
def update_dual_averaging(dual: Any, acceptance: float, target: float) -> None:
    """Make one step of the recursion above; the new step size is exp(``dual.log_step``)."""
    dual.count += 1
    m = dual.count
    weight = 1.0 / (m + T0)
    dual.h_bar = (1 - weight) * dual.h_bar + weight * (target - acceptance)
    dual.log_step = dual.mu - math.sqrt(m) / GAMMA * dual.h_bar
    eta = m**-KAPPA
    dual.log_step_bar = eta * dual.log_step + (1 - eta) * dual.log_step_bar
