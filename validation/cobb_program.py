"""The chain of the program of Cobb et al. (2019), as published: where it goes on from, and what it records. Not to be used.

hamiltorch from 6904bbf (October 2019) to c0e4886, the versions of the paper's time:

**After a rejection** the position is not put back: the next trajectory starts, with a fresh momentum, where the rejected one
ended. (Its authors mended that in d799e83.) Only where the log density, or a Riemannian energy, is not finite does the chain
go back, to the last position recorded.

**Recorded** are all L positions of an accepted trajectory, and nothing for a rejected one.

**The explicit scheme** compares 2 H at both ends: it accepts with probability min(1, exp(2 (H0 - H))).

From a rejected end, at a density that the target hardly ever has, the next trajectory keeps that energy and is accepted: the
recorded v go down to -80, where the funnel's standard deviation of v is 3. The second rule by itself is biased, too.

The program computes in single precision, and its range decides when the chain goes back. Here the precision is double, and a
trajectory fails where single precision overflows: in exp(-v), |v| > 88.7, or in the energy. (Where the momentum is NaN and the
log density is not, the program accepts, and here the trajectory fails. Nor does this text try an overflowing gradient of the
Riemannian energy again with other jitter, ten times, as the program does.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types as nb

from refhmc.compile.compiled import entry, jit_part
from refhmc.core import types
from refhmc.core.point import GRADIENT, LOG_DENSITY, Q, as_point, copy_row
from refhmc.core.randomness import fill_normals
from refhmc.core.types import as_dynamics, as_model, as_work
from refhmc.dynamics.assemble import make_dynamics
from refhmc.integrators.step import integrator_step

LARGEST, HIGHEST = float(np.finfo(np.float32).max), math.log(float(np.finfo(np.float32).max))
ACCEPTED, FAILED, ROWS, EVALUATIONS = range(4)


class Rule(NamedTuple):
    """``restores``: after a rejection the chain goes on from where it was. ``whole``: recorded are all positions of an accepted
    trajectory and none for a rejected one; else where the chain is after every transition. ``weight`` of H in the decision.
    """

    restores: bool = True
    whole: bool = False
    weight: float = 1.0


@jit_part
def put(z, q, model):
    point, f = as_point(z), as_model(model)
    copy_row(point.q, q)
    point.log_density[0] = f.value_and_gradient(point.q, f.data, point.gradient)


@entry(
    lambda: nb.void(
        types.DYNAMICS,
        types.MODEL,
        nb.npy_rng,
        types.MATRIX,
        types.WORK,
        types.MATRIX,
        types.MATRIX,
        nb.float64,
        nb.int64,
        nb.int64,
        nb.boolean,
        nb.boolean,
        nb.float64,
        types.MATRIX,
        types.INTEGERS,
    ),
    "the loop of the program of Cobb et al.",
)
def run(dynamics, model, rng, z, work, own, scratch, eps, n_steps, draws, restores, whole, weight, recorded, counts):
    """``draws`` transitions from the point ``z``; positions into rows of ``recorded``, what happened into ``counts``."""
    _, _, _, _, counters, status = as_work(work)
    dyn, point, rows, d = as_dynamics(dynamics), as_point(z), 0, z.shape[1]
    normals, start, last = scratch[0], scratch[1], scratch[2]
    copy_row(last, point.q)
    for _ in range(draws):
        counters.metrics = status.failure = 0
        copy_row(start, point.q)
        fill_normals(rng, normals)
        H0 = dyn.refresh(model, dyn.metric, z, normals, True, work)
        H, done, failed = H0, 0, not abs(H0) < LARGEST
        while done < n_steps and not failed:
            H = integrator_step(dynamics, model, z, eps, work, own, True)
            failed = not (abs(H) < LARGEST and abs(point.q[0]) < HIGHEST)
            for i in range(d):
                recorded[rows + done, i] = point.q[i]
            done += 1
        accepted = not failed and math.log(1 - rng.random()) <= weight * (H0 - H)
        counts[ACCEPTED] += accepted
        counts[FAILED] += failed
        counts[EVALUATIONS] += counters.metrics
        if failed or (not accepted and restores):
            put(z, start if restores else last, model)
        if whole and accepted:
            rows += n_steps
        elif not whole:
            copy_row(recorded[rows], point.q)
            rows += 1
        if rows > 0:
            copy_row(last, recorded[rows - 1])
    counts[ROWS] = rows


class Chain(NamedTuple):
    """``recorded`` (n, d); shares of the transitions that were accepted, and that failed; evaluations of the metric in one."""

    recorded: np.ndarray
    acceptance: float
    failed: float
    evaluations: float


def chain(model, kernel, rule: Rule, start, draws: int, seed) -> Chain:
    """``draws`` transitions with the metric, integrator, step and number of steps of ``kernel``, an HMC, by ``rule``."""
    dynamics = make_dynamics(model, kernel.metric, kernel.integrator)
    dynamics.compile(model.name)
    z = np.zeros((dynamics.point_rows, model.dim))
    z[Q] = start
    z[LOG_DENSITY, 0], z[GRADIENT] = model.core.value_and_gradient(np.array(start, dtype=float))
    recorded = np.zeros(((draws if rule.whole else 1) * kernel.n_steps + draws, model.dim))
    counts = np.zeros(4, np.int64)
    pointers, work, own = dynamics.pointers, dynamics.work(), dynamics.own()
    scratch = np.zeros((3, model.dim))
    rng = np.random.default_rng(seed)
    sizes = (kernel.step_size, kernel.n_steps, draws)
    run(pointers, dynamics.model, rng, z, work, own, scratch, *sizes, *rule, recorded, counts)
    accepted, failed, rows, evaluations = (int(count) for count in counts)
    return Chain(recorded[:rows], accepted / draws, failed / draws, evaluations / draws)
