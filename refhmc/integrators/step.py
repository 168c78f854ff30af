"""One step of whichever integrator: the leapfrog's own text where that is the one, else through its pointer.

A step may be composed of several of the same symmetric method, with sizes c_1 eps, c_2 eps, ... that add up to eps: order
4 from order 2 (:mod:`refhmc.integrators.composition`).
"""

from __future__ import annotations

import math

from refhmc.core import sample_stats as S
from refhmc.core.compiled import jit, jit_inline
from refhmc.core.point import P, Q, copy_point
from refhmc.core.types import INLINED, as_dynamics, as_work
from refhmc.integrators.base import CHECK
from refhmc.integrators.leapfrog import leapfrog
from refhmc.numerics.fixed_point import copy_rows, largest_change, moved

rows = CHECK.rows


@jit
def composition_step(dynamics, model, z, eps, work, own):
    """The step through its pointer, once for each part of the composition; NaN as soon as one has no energy."""
    options = as_work(work).options
    energy = math.nan
    for k in range(options.n_substeps):
        part = options.substeps[k] * eps
        if options.reversal_tolerance > 0:
            energy = checked_step(dynamics, model, z, part, work, own)
        else:
            dyn = as_dynamics(dynamics)
            energy = dyn.step(model, dyn.metric, z, part, work, own)
        if not math.isfinite(energy):
            break
    return energy


@jit
def checked_step(dynamics, model, z, eps, work, own):
    """A step z -> z' that is used only if the step back from z' returns to z.

    An implicit equation may have several solutions, and the way back may find another one than it came from. Two signs say that
    a step which returns lies near one that does not: the way back misses z by more than a tolerance (the map multiplies the
    solver's error), or the two ways took different numbers of iterations (at the solution both contract alike). Then
    the step is made once more, from where the way back ended, and has to return to z', as it would if the chain stood at z'.
    """
    dyn, w = as_dynamics(dynamics), rows(own)
    _, _, options, _, counters, status = as_work(work)
    copy_rows(w.start, z[Q : P + 1])
    before = counters.iterations
    energy = dyn.step(model, dyn.metric, z, eps, work, own)
    if not math.isfinite(energy):
        return energy
    there = counters.iterations - before
    copy_point(w.end, z)
    returns = goes_to(w.start, dynamics, model, z, -eps, work, own)
    back = counters.iterations - before - there
    if returns and (max(there, back) > 1.25 * min(there, back) + 2 or moved(z[Q : P + 1], w.start, options.tolerance)):
        returns = goes_to(w.end[Q : P + 1], dynamics, model, z, eps, work, own)
    copy_point(z, w.end)
    if not returns:
        status.failure = S.NOT_REVERSIBLE
        return math.nan
    return energy


@jit
def goes_to(target, dynamics, model, z, eps, work, own):
    """Move ``z`` by a step of ``eps``; whether it arrives at the (q, p) of ``target`` to within the reversal threshold."""
    dyn = as_dynamics(dynamics)
    _, _, options, _, _, status = as_work(work)
    energy = dyn.step(model, dyn.metric, z, eps, work, own)
    arrives = math.isfinite(energy) and not moved(z[Q : P + 1], target, options.reversal_tolerance)
    if arrives:
        status.reversal_error = max(status.reversal_error, largest_change(z[Q : P + 1], target))
    return arrives


@jit_inline
def integrator_step(dynamics, model, z, eps, work, own):
    """Move the point ``z`` by one step of signed size ``eps``; returns the energy there."""
    if dynamics[0] == INLINED:
        energy = leapfrog(model, z, eps, work)
        as_work(work).counters.gradients += 1
    else:
        energy = composition_step(dynamics, model, z, eps, work, own)
    return energy
