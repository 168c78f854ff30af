"""Dual averaging of the step size (Hoffman and Gelman 2014, sec. 3.2.1).

With acceptance statistic a_m at iteration m = 1, 2, ...:

    h_m = (1 - 1/(m + t0)) h_{m-1} + (target - a_m) / (m + t0)
    log eps_m = mu - sqrt(m)/gamma h_m
    log eps_bar_m = m^-kappa log eps_m + (1 - m^-kappa) log eps_bar_{m-1}

with gamma = 0.05, t0 = 10, kappa = 0.75 and mu = log(10 eps_0), started anew after each change of the metric from the step
size that :mod:`refhmc.adaptation.step_size` finds. A step size eps_0 from a result is not sought: mu = log eps_0, and m
begins at 50, as if so many iterations had met the target, so that few more keep near it. After warm-up the step is
eps_bar. The size of the jumps of discontinuous
HMC is adapted to its no-flip rate by the same recursion.

The iterations of an implicit integrator's solver grow with the step. Of the steps whose acceptance is at least 0.95, the one
with the fewest iterations for a unit of time is the largest, to which dual averaging goes: so on heart and banana with Fisher
and on the funnel with SoftAbs. From half of it to one and a half no step tried gave more than 6 % more effective draws an
iteration (``validation/benchmarks/results/riemannian_step.md``). So there is no second criterion, and the
target takes a step at which solvers hardly fail: 0.98 (of 4,000 draws two seeds lost 37 and 45 of banana's at 0.95, 4 and 15 at
0.98; 16 and 16 of the funnel's, 3 and 0). For 1,000 gradients the least effective sample size is as it was on heart and banana,
and 0.60 and 0.67 for 0.70 and 0.78 on the funnel.
"""

from __future__ import annotations

import math
from typing import Any

from refhmc.core.compiled import jit
from refhmc.core.records import REAL, record_type

GAMMA, T0, KAPPA = 0.05, 10.0, 0.75
KNOWN = 50.0  # iterations that a step size from a result stands for
TARGET, RIEMANNIAN_TARGET = 0.8, 0.98

DUAL = record_type({"log_step": REAL, "log_step_bar": REAL, "h_bar": REAL, "mu": REAL, "count": REAL})


def target_acceptance(kernel: Any, metric: Any) -> float:
    """What dual averaging aims at: the kernel's own, or for None that of the metric's kind."""
    if kernel.target_accept is not None:
        return kernel.target_accept
    return RIEMANNIAN_TARGET if metric.position_dependent else TARGET


@jit
def restart_dual_averaging(dual: Any, step_size: float) -> None:
    """Begin at ``step_size``, aiming at ten times it at first."""
    dual.log_step = dual.log_step_bar = math.log(step_size)
    dual.mu = math.log(10.0 * step_size)
    dual.h_bar = dual.count = 0.0


def continue_dual_averaging(dual: Any, step_size: float) -> None:
    """Begin at a ``step_size`` that is known, and aim at it."""
    dual.log_step = dual.log_step_bar = dual.mu = math.log(step_size)
    dual.h_bar, dual.count = 0.0, KNOWN


@jit
def update_dual_averaging(dual: Any, acceptance: float, target: float) -> None:
    """One step of the recursion above; the new step size is exp(``dual.log_step``)."""
    dual.count += 1
    m = dual.count
    weight = 1.0 / (m + T0)
    dual.h_bar = (1 - weight) * dual.h_bar + weight * (target - acceptance)
    dual.log_step = dual.mu - math.sqrt(m) / GAMMA * dual.h_bar
    eta = m**-KAPPA
    dual.log_step_bar = eta * dual.log_step + (1 - eta) * dual.log_step_bar
