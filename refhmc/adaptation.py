"""Warm-up: the schedule of windows, dual averaging of the step size, Welford's estimate of the covariance.

**Schedule** (Stan's): 75 iterations of step size alone, then windows of 25, 50, 100, ... in which the metric is learned
(the last one stretched to fit; for 151 to 199 iterations that is the first, where Stan has a second one of 1 to 49
draws), then 50 of step size alone. Below 150 iterations the parts are 15 %, 75 % and 10 %;
below 20 only the step size is adapted.

**Dual averaging** (Hoffman and Gelman 2014, sec. 3.2.1), with acceptance statistic a_m at iteration m = 1, 2, ...:

    h_m = (1 - 1/(m + t0)) h_{m-1} + (target - a_m) / (m + t0)
    log eps_m = mu - sqrt(m)/gamma h_m
    log eps_bar_m = m^-kappa log eps_m + (1 - m^-kappa) log eps_bar_{m-1}

with gamma = 0.05, t0 = 10, kappa = 0.75 and mu = log(10 eps_0), started anew after each change of the metric from a
step size found by doubling or halving until the acceptance of a single step crosses 0.8. After warm-up the step is
eps_bar. The size of the jumps of discontinuous HMC is adapted to its no-flip rate by the same recursion.

**Covariance** (Welford): with n draws of a window, shrunk towards 1/1000 of the identity,
n/(n + 5) C + 5/(n + 5) 10^-3 I.

**From gradients** (``Diagonal(learn_from="draws and gradients")``, the idea of
nutpie): M^-1_ii = sqrt(var q_i / var dL/dq_i), the diagonal that brings the Fisher divergence between the scaled target
and a standard normal to its minimum. For independent normals var q = s^2 and var dL/dq = s^-2 over *any* two draws or
more, so it needs no shrinkage. The windows are the same, but dual averaging goes on through them without starting anew,
since the metric hardly moves at their ends; the realised acceptance is then nearer to its target.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.compiled import jit
from refhmc.integrators.advance import advance
from refhmc.integrators.discontinuous import density_change
from refhmc.linalg import cholesky
from refhmc.metrics.laplace import JUMPS, SCALE, scale_jumps
from refhmc.point import Q, copy_point
from refhmc.randomness import fill_normals
from refhmc.types import CANDIDATE, FAILURE, N_DISCONTINUOUS, SEARCH_FAILED, SET_JUMP_SIZE, SET_STEP_SIZE, STATE

GAMMA, T0, KAPPA = 0.05, 10.0, 0.75
SHRINK_COUNT, SHRINK_TO = 5.0, 1e-3
FIRST_FAST, FIRST_WINDOW, LAST_FAST = 75, 25, 50
SEARCH_TARGET, MAX_DOUBLINGS = 0.8, 100
JUMP_SEARCH_TARGET = 0.5  # a start beside the support's end has half of its jumps turned back, however short they are


def warmup_schedule(tune: int) -> list[tuple[str, int, int]]:
    """Phases ``(kind, start, stop)`` covering 0 .. tune: "fast" adapts the step size, "slow" the metric as well.

    Each slow phase ends with a new metric. Defined for every ``tune >= 0``.
    """
    if tune < 20:
        return [("fast", 0, tune)] if tune else []
    first, window, last = FIRST_FAST, FIRST_WINDOW, LAST_FAST
    if tune < first + window + last:
        first, last = int(0.15 * tune), int(0.1 * tune)
        window = tune - first - last
    phases = [("fast", 0, first)]
    start, end_slow = first, tune - last
    while start < end_slow:
        stop = start + window
        if stop + 2 * window > end_slow:  # the next, doubled, would not fit
            stop = end_slow
        phases.append(("slow", start, stop))
        start, window = stop, 2 * window
    phases.append(("fast", end_slow, tune))
    return phases


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


@jit
def search_step_size(dynamics, model, workspace, randomness, normals, start, control):
    """Double or halve the step until the acceptance of a single one crosses 0.8, with a fresh momentum each time."""
    points, _, vecs, mats, _ = workspace
    z, eps, direction = points[CANDIDATE], start, 0
    for _ in range(MAX_DOUBLINGS):
        copy_point(z, points[STATE])
        fill_normals(randomness[0], normals)
        H0 = dynamics[1](model, dynamics[3], z, normals, vecs, mats, dynamics[4])
        H = advance(dynamics, model, z, eps, vecs, mats)
        dynamics[4][FAILURE] = 0
        drop = H0 - H
        wanted = 1 if math.isfinite(drop) and drop > math.log(SEARCH_TARGET) else -1
        if direction == 0:
            direction = wanted
        elif wanted != direction:
            return eps
        eps *= 2.0 if direction == 1 else 0.5
    control[SEARCH_FAILED] += 1
    return start


@jit
def search_jump_size(dynamics, model, z, vecs, start, control):
    """Double or halve the jumps of the discontinuous coordinates, from the point ``z`` one at a time and both ways, until
    the average of min(1, exp(change of log density)) crosses 1/2."""
    notes, jump, direction = dynamics[4], start, 0
    for _ in range(MAX_DOUBLINGS):
        total = 0.0
        for j in range(vecs.shape[1]):
            if vecs[JUMPS, j] != 0:
                for sign in (-1, 1):
                    change = density_change(model, z, j, z[Q, j] + sign * jump * vecs[SCALE, j], vecs, notes)
                    total += math.exp(min(change, 0.0)) if not math.isnan(change) else 0.0
        wanted = 1 if total >= 2 * JUMP_SEARCH_TARGET * notes[N_DISCONTINUOUS] else -1
        if direction == 0:
            direction = wanted
        elif wanted != direction:
            return jump
        jump *= 2.0 if direction == 1 else 0.5
    control[SEARCH_FAILED] += direction == 1
    return start


@jit
def set_jump_size(settings, vecs):
    """The masses of the discontinuous coordinates for the step and the jump size in ``settings``."""
    scale_jumps(vecs, settings[SET_JUMP_SIZE] / settings[SET_STEP_SIZE])


@jit
def update_welford(mean, scatter, q, count):
    """Running mean and scatter; ``count`` includes ``q``. ``scatter`` has one row (the diagonal) or d.

    mean_n = mean_{n-1} + (q - mean_{n-1}) / n,    scatter_n = scatter_{n-1} + (1 - 1/n) (q - mean_{n-1})(q - mean_{n-1})'
    """
    d, share = q.shape[0], 1.0 / count
    if scatter.shape[0] == d and d > 1:
        for i in range(d):
            scaled = (1 - share) * (q[i] - mean[i])
            for j in range(d):
                scatter[i, j] += scaled * (q[j] - mean[j])
    else:
        for i in range(d):
            scatter[0, i] += (1 - share) * (q[i] - mean[i]) ** 2
    for i in range(d):
        mean[i] += share * (q[i] - mean[i])


@jit
def learn_from_gradients(scatter, gradient_scatter, vecs):
    """vecs[0] = sqrt(var q / var dL/dq); a coordinate in which either has not moved keeps what it had."""
    for i in range(scatter.shape[1]):
        ratio = math.sqrt(scatter[0, i] / gradient_scatter[0, i])
        if 1e-20 < ratio < 1e20:  # also False for a NaN
            vecs[0, i] = ratio
            vecs[1, i] = 1 / math.sqrt(ratio)


@jit
def learn_metric(scatter, count, vecs, mats):
    """The regularised (co)variance of a window becomes M^-1."""
    keep = count / (count + SHRINK_COUNT)
    add = SHRINK_TO * SHRINK_COUNT / (count + SHRINK_COUNT)
    d = scatter.shape[1]
    if count >= 2:
        if mats.shape[0] == 0:
            for i in range(d):
                vecs[0, i] = keep * scatter[0, i] / (count - 1) + add
                vecs[1, i] = 1 / math.sqrt(vecs[0, i])
        else:
            for i in range(d):
                for j in range(d):
                    mats[0, i, j] = keep * scatter[i, j] / (count - 1)
                mats[0, i, i] += add
                vecs[0, i] = mats[0, i, i]
                vecs[1, i] = 1 / math.sqrt(vecs[0, i])
            cholesky(mats[0], mats[1])


def schedule_array(tune: int, adapts_metric: bool) -> np.ndarray:
    """(k, 3) integers for the core: learns the metric (1) or not, start, stop."""
    phases = warmup_schedule(tune) if adapts_metric else ([("fast", 0, tune)] if tune else [])
    return np.array([(kind == "slow", start, stop) for kind, start, stop in phases], dtype=np.int64).reshape(-1, 3)
