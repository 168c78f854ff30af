"""One step of whichever integrator: the leapfrog's own text where that is the one, else through its pointer.

A step may be composed of several of the same symmetric method, with sizes c_1 eps, c_2 eps, ... that add up to eps: order
4 from order 2 (:class:`refhmc.integrators.Yoshida`, :class:`refhmc.integrators.Suzuki`).
"""

from __future__ import annotations

import math

from refhmc import sample_stats as S
from refhmc.compiled import jit, jit_inline
from refhmc.integrators.leapfrog import leapfrog
from refhmc.integrators.solver import copy_rows, largest_change, moved
from refhmc.point import POINT_ROWS, P, Q, copy_point
from refhmc.types import CHECK_REVERSAL, FAILURE, FIRST_SUBSTEP, INTEGRATOR_ROWS, N_GRADIENTS, N_SUBSTEPS, REVERSAL

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
    """A step that is used only if the step back from its end returns to its start.

    An implicit equation may have several solutions, and the way back may find another one than it came from.
    """
    _, _, step, geometry, notes = dynamics
    start, end = vecs[START : START + 2], vecs[END : END + POINT_ROWS]
    copy_rows(start, z[Q : P + 1])
    energy = step(model, geometry, z, eps, vecs, mats, notes)
    if not math.isfinite(energy):
        return energy
    copy_point(end, z)
    back = step(model, geometry, z, -eps, vecs, mats, notes)
    returned = not moved(z[Q : P + 1], start, notes[CHECK_REVERSAL])
    error = largest_change(z[Q : P + 1], start)
    copy_point(z, end)
    if not (math.isfinite(back) and returned):
        notes[FAILURE] = S.NOT_REVERSIBLE
        return math.nan
    notes[REVERSAL] = max(notes[REVERSAL], error)
    return energy


@jit_inline
def advance(dynamics, model, z, eps, vecs, mats):
    """Move the point ``z`` by one step of signed size ``eps``; returns the energy there."""
    if dynamics[0] == 1:
        energy = leapfrog(model, z, eps, vecs, mats)
        dynamics[4][N_GRADIENTS] += 1
    else:
        energy = substeps(dynamics, model, z, eps, vecs, mats)
    return energy
