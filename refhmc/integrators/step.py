"""One step of whichever integrator.

A step may be composed of several of the same symmetric method, with sizes c_1 eps, c_2 eps, ... that add up to eps: order
4 from order 2 (:mod:`refhmc.integrators.composition`).

**The way back** of an implicit step z -> z' has to arrive at z, which is known, so that it need not be followed to the end. For
the midpoint rule let m = (z + z')/2, h = (z' - z)/2 and g(u) = eps/2 (f(m + u) - f(m)). In terms of u, the midpoint's distance
from m, the two ways are

    there:   u <- g(u)   from u = -h,          back:   u <- -g(u)   from u = h.

If f is linear, each iterate of the one is the mirror image of that of the other. In general both ways have the derivative
J = eps/2 Df(m) at their end, up to sign. The way there has shown, down to the tolerance, how fast the powers of J decrease;
what may differ is how the way back begins. It is therefore broken off as soon as no iterate was farther from z than the first,
two iterations have brought it to a quarter of its distance, at this rate it is as long as the way there, and twice that is
within the iterations allowed: the criterion of :mod:`refhmc.numerics.fixed_point`, "a known end". Where it does not hold, the
way back goes on from where it is, and the step is judged by where that ends.

Assumed is that the rate last seen goes on. Then the way back converges to z within the iterations allowed, and the step is one
that the full way back confirms; the steps that are used, and so the draws, are then those of a check that always goes to the
end. Not assumed but counted: of 185,813 solved steps near the edge of solvability, tolerances 1e-4 to 1e-12, the full check
refused 10,421; 44,365 ways back were broken off, and the full check refused none of these. Each part of the criterion is
needed: 319 without the condition that no iterate is farther from z than the first, 583 without the number of iterations and
its bound, 51 with a half for the quarter in two iterations.
(``tests/integrators/test_reversibility.py`` repeats the comparison.)

The ways back of other methods are followed to the end. Anderson's acceleration is no function of one iterate, and mirror images
are not kept: 1 of 473 was wrong. The generalised leapfrog ends with an explicit step that multiplies the solver's error: 15 of
1,531.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.core import sample_stats as S
from refhmc.core.compiled import jit, jit_part
from refhmc.core.point import P, Q, copy_point
from refhmc.core.types import as_dynamics, as_work
from refhmc.integrators.base import CHECK
from refhmc.numerics.fixed_point import ALIKE, copy_rows, largest_change, moved

rows = CHECK.rows


@jit_part
def integrator_step(dynamics: tuple, model: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Move the point ``z`` by one step of signed size ``eps``; returns the energy there.

    One step for each part of a composition; NaN as soon as one has no energy.
    """
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
def checked_step(dynamics: tuple, model: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """A step z -> z' that is used only if the step back from z' returns to z.

    An implicit equation may have several solutions, and the way back may find another one than it came from. Two signs say that
    a step which returns lies near one that does not: the way back misses z by more than a tolerance (the map multiplies the
    solver's error), or the two ways took different numbers of iterations (at the solution both contract alike). Then
    the step is made once more, from where the way back ended, and has to return to z', as it would if the chain stood at z'.
    Plain iteration may break the way back off, as the text above says.
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
    status.iterations_there, status.bound_to_arrive = 0 if options.anderson_memory > 0 else there, 0
    returns = goes_to(w.start, dynamics, model, z, -eps, work, own)
    status.iterations_there = 0
    back = counters.iterations - before - there
    if returns and (max(there, back) > ALIKE * min(there, back) + 2 or moved(z[Q : P + 1], w.start, options.tolerance)):
        returns = goes_to(w.end[Q : P + 1], dynamics, model, z, eps, work, own)
    returns = returns or status.bound_to_arrive > 0
    copy_point(z, w.end)
    if not returns:
        status.failure = S.NOT_REVERSIBLE
        return math.nan
    return energy


@jit
def goes_to(
    target: np.ndarray, dynamics: tuple, model: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray
) -> bool:
    """Move ``z`` by a step of ``eps``; whether it arrives at the (q, p) of ``target`` to within the reversal threshold."""
    dyn = as_dynamics(dynamics)
    _, _, options, _, _, status = as_work(work)
    energy = dyn.step(model, dyn.metric, z, eps, work, own)
    arrives = math.isfinite(energy) and not moved(z[Q : P + 1], target, options.reversal_tolerance)
    if arrives:
        status.reversal_error = max(status.reversal_error, largest_change(z[Q : P + 1], target))
    return arrives
