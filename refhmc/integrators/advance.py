"""One step of whichever integrator: the leapfrog's own text where that is the one, else through its pointer.

A step may be composed of several of the same symmetric method, with sizes c_1 eps, c_2 eps, ... that add up to eps: order
4 from order 2 (:class:`refhmc.integrators.Yoshida`, :class:`refhmc.integrators.Suzuki`).
"""

from __future__ import annotations

import math

from refhmc.core import sample_stats as S
from refhmc.core.compiled import jit, jit_inline
from refhmc.core.point import POINT_ROWS, P, Q, copy_point
from refhmc.core.types import (
    CHECK_REVERSAL,
    FAILURE,
    FIRST_SUBSTEP,
    INTEGRATOR_ROWS,
    ITERATIONS,
    N_GRADIENTS,
    N_SUBSTEPS,
    REVERSAL,
    TOLERANCE,
)
from refhmc.integrators.leapfrog import leapfrog
from refhmc.integrators.solver import copy_rows, largest_change, moved

# Rows of ``vecs`` for the check, after those of the methods: where a step began, the point at its end.
START, END = INTEGRATOR_ROWS + 12, INTEGRATOR_ROWS + 14


@jit
def substeps(dynamics, model, z, eps, vecs, mats):
    """The step through its pointer, once for each part of the composition; NaN as soon as one has no energy."""
    notes = dynamics[4]
    energy = math.nan
    for k in range(int(notes[N_SUBSTEPS])):
        part = notes[FIRST_SUBSTEP + k] * eps
        if notes[CHECK_REVERSAL] > 0:
            energy = checked_step(dynamics, model, z, part, vecs, mats)
        else:
            energy = dynamics[2](model, dynamics[3], z, part, vecs, mats, notes)
        if not math.isfinite(energy):
            break
    return energy


@jit
def checked_step(dynamics, model, z, eps, vecs, mats):
    """A step z -> z' that is used only if the step back from z' returns to z.

    An implicit equation may have several solutions, and the way back may find another one than it came from. Two signs say that
    a step which returns lies near one that does not: the way back misses z by more than a tolerance (the map multiplies the
    solver's error), or the two ways took different numbers of iterations (at the solution both contract alike). Then
    the step is made once more, from where the way back ended, and has to return to z', as it would if the chain stood at z'.
    """
    _, _, step, geometry, notes = dynamics
    start, end = vecs[START : START + 2], vecs[END : END + POINT_ROWS]
    copy_rows(start, z[Q : P + 1])
    before = notes[ITERATIONS]
    energy = step(model, geometry, z, eps, vecs, mats, notes)
    if not math.isfinite(energy):
        return energy
    there = notes[ITERATIONS] - before
    copy_point(end, z)
    returns = goes_to(start, dynamics, model, z, -eps, vecs, mats)
    back = notes[ITERATIONS] - before - there
    if returns and (max(there, back) > 1.25 * min(there, back) + 2 or moved(z[Q : P + 1], start, notes[TOLERANCE])):
        returns = goes_to(end[Q : P + 1], dynamics, model, z, eps, vecs, mats)
    copy_point(z, end)
    if not returns:
        notes[FAILURE] = S.NOT_REVERSIBLE
        return math.nan
    return energy


@jit
def goes_to(target, dynamics, model, z, eps, vecs, mats):
    """Move ``z`` by a step of ``eps``; whether it arrives at the (q, p) of ``target`` to within the reversal threshold."""
    _, _, step, geometry, notes = dynamics
    energy = step(model, geometry, z, eps, vecs, mats, notes)
    arrives = math.isfinite(energy) and not moved(z[Q : P + 1], target, notes[CHECK_REVERSAL])
    if arrives:
        notes[REVERSAL] = max(notes[REVERSAL], largest_change(z[Q : P + 1], target))
    return arrives


@jit_inline
def advance(dynamics, model, z, eps, vecs, mats):
    """Move the point ``z`` by one step of signed size ``eps``; returns the energy there."""
    if dynamics[0] == 1:
        energy = leapfrog(model, z, eps, vecs, mats)
        dynamics[4][N_GRADIENTS] += 1
    else:
        energy = substeps(dynamics, model, z, eps, vecs, mats)
    return energy
