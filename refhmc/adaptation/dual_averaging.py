"""Dual averaging of the step size (Hoffman and Gelman 2014, sec. 3.2.1).

With acceptance statistic a_m at iteration m = 1, 2, ...:

    h_m = (1 - 1/(m + t0)) h_{m-1} + (target - a_m) / (m + t0)
    log eps_m = mu - sqrt(m)/gamma h_m
    log eps_bar_m = m^-kappa log eps_m + (1 - m^-kappa) log eps_bar_{m-1}

with gamma = 0.05, t0 = 10, kappa = 0.75 and mu = log(10 eps_0), started anew after each change of the metric from the step
size that :mod:`refhmc.adaptation.step_size` finds. After warm-up the step is eps_bar. The size of the jumps of discontinuous
HMC is adapted to its no-flip rate by the same recursion.
"""

from __future__ import annotations

import math

from refhmc.core.compiled import jit

GAMMA, T0, KAPPA = 0.05, 10.0, 0.75

# Entries of the state of dual averaging.
LOG_STEP, LOG_STEP_BAR, H_BAR, MU, COUNT = range(5)
N_DUAL = 5


@jit
def restart_dual_averaging(dual, step_size):
    """Begin at ``step_size``, aiming at ten times it at first."""
    dual[LOG_STEP] = dual[LOG_STEP_BAR] = math.log(step_size)
    dual[MU] = math.log(10.0 * step_size)
    dual[H_BAR] = dual[COUNT] = 0.0


@jit
def update_dual_averaging(dual, acceptance, target):
    """One step of the recursion above; the new step size is exp(dual[LOG_STEP])."""
    dual[COUNT] += 1
    m = dual[COUNT]
    weight = 1.0 / (m + T0)
    dual[H_BAR] = (1 - weight) * dual[H_BAR] + weight * (target - acceptance)
    dual[LOG_STEP] = dual[MU] - math.sqrt(m) / GAMMA * dual[H_BAR]
    eta = m**-KAPPA
    dual[LOG_STEP_BAR] = eta * dual[LOG_STEP] + (1 - eta) * dual[LOG_STEP_BAR]
