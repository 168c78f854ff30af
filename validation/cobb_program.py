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

from refhmc.core import types
from refhmc.core.compiled import entry, jit_part
from refhmc.core.point import GRADIENT, LOG_DENSITY, Q, copy_row
from refhmc.core.randomness import fill_normals
from refhmc.core.types import FAILURE, N_METRICS, N_TRACES
from refhmc.dynamics.assemble import make_dynamics
from refhmc.integrators.advance import advance

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
    copy_row(z[Q], q)
    z[LOG_DENSITY, 0] = model[0](z[Q], model[3], z[GRADIENT])


@entry(
    lambda: nb.void(
        types.DYNAMICS,
        types.MODEL,
        nb.npy_rng,
        types.MATRIX,
        types.MATRIX,
        types.STACK,
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
def run(dynamics, model, rng, z, vecs, mats, scratch, eps, n_steps, draws, restores, whole, weight, recorded, counts):
    """``draws`` transitions from the point ``z``; positions into rows of ``recorded``, what happened into ``counts``."""
    notes, rows, d = dynamics[4], 0, z.shape[1]
    normals, start, last = scratch[0], scratch[1], scratch[2]
    copy_row(last, z[Q])
    for _ in range(draws):
        for index in range(FAILURE, N_TRACES + 1):
            notes[index] = 0.0
        copy_row(start, z[Q])
        fill_normals(rng, normals)
        H0 = dynamics[1](model, dynamics[3], z, normals, vecs, mats, notes)
        H, done, failed = H0, 0, not abs(H0) < LARGEST
        while done < n_steps and not failed:
            H = advance(dynamics, model, z, eps, vecs, mats)
            failed = not (abs(H) < LARGEST and abs(z[Q, 0]) < HIGHEST)
            for i in range(d):
                recorded[rows + done, i] = z[Q, i]
            done += 1
        accepted = not failed and math.log(1 - rng.random()) <= weight * (H0 - H)
        counts[ACCEPTED] += accepted
        counts[FAILED] += failed
        counts[EVALUATIONS] += int(notes[N_METRICS])
        if failed or (not accepted and restores):
            put(z, start if restores else last, model)
        if whole and accepted:
            rows += n_steps
        elif not whole:
            copy_row(recorded[rows], z[Q])
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
    pointers = (*dynamics.pointers, dynamics.notes)
    scratch = np.zeros((3, model.dim))
    rng = np.random.default_rng(seed)
    sizes = (kernel.step_size, kernel.n_steps, draws)
    run(pointers, dynamics.model, rng, z, dynamics.vecs, dynamics.mats, scratch, *sizes, *rule, recorded, counts)
    accepted, failed, rows, evaluations = (int(count) for count in counts)
    return Chain(recorded[:rows], accepted / draws, failed / draws, evaluations / draws)
