"""The first step size, and the first size of the jumps of discontinuous HMC, for a metric: doubled or halved until the
acceptance of a single step, or move, crosses its target (Hoffman and Gelman 2014, Algorithm 4, with 0.8 for their 1/2)."""

from __future__ import annotations

import math

from refhmc.core.compiled import jit
from refhmc.core.point import Q, copy_point
from refhmc.core.randomness import fill_normals
from refhmc.core.types import CANDIDATE, FAILURE, N_DISCONTINUOUS, SEARCH_FAILED, SET_JUMP_SIZE, SET_STEP_SIZE, STATE
from refhmc.integrators.advance import advance
from refhmc.integrators.discontinuous import density_change
from refhmc.metrics.laplace import JUMPS, SCALE, scale_jumps

SEARCH_TARGET, MAX_DOUBLINGS = 0.8, 100
JUMP_SEARCH_TARGET = 0.5  # a start beside the support's end has half of its jumps turned back, however short they are


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
