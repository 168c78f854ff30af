"""Dual averaging of the step size (Hoffman and Gelman 2014, sec. 3.2.1).

With acceptance statistic a_m at iteration m = 1, 2, ...:

    h_m = (1 - 1/(m + t0)) h_{m-1} + (target - a_m) / (m + t0)
    log eps_m = mu - sqrt(m)/gamma h_m
    log eps_bar_m = m^-kappa log eps_m + (1 - m^-kappa) log eps_bar_{m-1}

with gamma = 0.05, t0 = 10, kappa = 0.75 and mu = log(10 eps_0). It restarts after each change of the metric, from the step
size that :mod:`refhmc.adaptation.step_size` finds. A step size eps_0 from a result is not searched for: mu = log eps_0, and m
starts at 50, as if that many iterations had met the target, so that a few more stay near it. After warm-up the step size is
eps_bar. The size of the jumps of discontinuous HMC is adapted to its no-flip rate by the same recursion.

**If the metric is learned from draws and gradients, gamma is 0.3 from iteration 75 on**, mu = log eps_bar, and m continues from
50; a later restart has mu = log eps_0. Near the optimum eps* the recursion has a_m = target - s log(eps_m / eps*) + noise with
standard deviation sigma, so that

    var(log eps_m) ~ g sigma^2 / (s (2 - g s)),      g = sqrt(m) / (gamma (m + t0))

For NUTS on four regressions s was near 0.6 and sigma 0.2. With gamma = 0.05 the standard deviation of log eps is then 0.37
after 100 iterations and 0.17 after 800 (measured 0.3 to 0.4 and 0.15 to 0.2). With gamma = 0.3 it is 0.11 and 0.06 (measured
0.05 to 0.2 and 0.04 to 0.1). The larger fluctuations made trajectories at the end of warm-up up to 27 % longer than those of
the draws, and eps_bar, which averages logarithms, too small: the acceptance of the draws was 0.82 for a target of 0.8. A
metric from draws and gradients changes often, but after iteration 75 by little, or the step size is searched for again. With
all other metrics gamma stays 0.05, as in Stan.

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
AIM = 10.0  # mu is the logarithm of this times the first step size
SETTLES, SETTLED_GAMMA = 75, 0.3  # iteration from which on gamma has this value, with metrics from draws and gradients
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
def restart_dual_averaging(dual: np.record, step_size: float, aim: float = AIM) -> None:
    """Start at ``step_size``, with ``aim`` times that value as the first aim."""
    dual.log_step = dual.log_step_bar = math.log(step_size)
    dual.mu = math.log(aim * step_size)
    dual.h_bar = dual.count = 0.0


@jit
def continue_dual_averaging(dual: np.record, step_size: float) -> None:
    """Start at a known ``step_size``, and aim at it."""
    dual.log_step = dual.log_step_bar = dual.mu = math.log(step_size)
    dual.h_bar, dual.count = 0.0, KNOWN


@jit
def update_dual_averaging(dual: Any, acceptance: float, target: float, gamma: float = GAMMA) -> None:
    """Make one step of the recursion above; the new step size is exp(``dual.log_step``)."""
    dual.count += 1
    m = dual.count
    weight = 1.0 / (m + T0)
    dual.h_bar = (1 - weight) * dual.h_bar + weight * (target - acceptance)
    dual.log_step = dual.mu - math.sqrt(m) / gamma * dual.h_bar
    eta = m**-KAPPA
    dual.log_step_bar = eta * dual.log_step + (1 - eta) * dual.log_step_bar
