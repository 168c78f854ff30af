"""One step of any integrator.

A step may be composed of several of the same symmetric method, with sizes c_1 eps, c_2 eps, ... that add up to eps: order
4 from order 2 (:mod:`refhmc.integrators.composition`).

**The reverse step** of an implicit step z -> z' has to arrive at z. Since z is known, the solve need not be followed to its
end. For the midpoint rule let m = (z + z')/2, h = (z' - z)/2 and g(u) = eps/2 (f(m + u) - f(m)). In terms of u, the
midpoint's distance from m, the two iterations are

    forward:   u <- g(u)   from u = -h,          reverse:   u <- -g(u)   from u = h.

If f is linear, each iterate of one is the mirror image of that of the other. In general both iterations have the derivative
J = eps/2 Df(m) at their end, up to sign. The forward iteration has shown, down to the tolerance, how fast the powers of J
decrease. Only the beginning of the reverse iteration may differ. It is therefore stopped early if these conditions hold: no
iterate was farther from z than the first; two iterations have reduced the distance to a quarter; and at this rate it is as long
as the forward iteration, of which twice the length is within the iterations allowed. This is the criterion of
:mod:`refhmc.numerics.fixed_point`, "a known end". If it does not hold, the reverse iteration continues, and its end decides.

The assumption is that the last rate continues. Then the reverse iteration converges to z within the iterations allowed, and
the full reverse step would confirm the step. The accepted steps, and so the draws, are then those of a check that is always
followed to its end. This assumption is not proved but was measured. The full check rejected 10,421 of 185,813 solved steps near
the edge of solvability, with tolerances 1e-4 to 1e-12. The early stop was used for 44,365, and the full check
rejected none of these. Each part of the criterion is needed. There are 319 errors without the condition that no iterate is
farther from z than the first, 583 without the number of iterations and its bound, and 51 with a half instead of a quarter
in two iterations. (``tests/integrators/test_reversibility.py`` repeats the comparison.)

The reverse steps of other methods are followed to the end. Anderson's acceleration is not a function of one iterate, and does
not keep mirror images. In a test 1 of 473 early stops was wrong. The generalised leapfrog ends with an explicit step that
multiplies the solver's error. In a test 15 of 1,531 were wrong.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.compile.compiled import jit, jit_part
from refhmc.core import sample_stats as S
from refhmc.core.point import P, Q, copy_point
from refhmc.core.types import as_dynamics, as_work
from refhmc.integrators.base import CHECK
from refhmc.numerics.fixed_point import ALIKE, copy_rows, largest_change, moved

rows = CHECK.rows


@jit_part
def integrator_step(
    dynamics: tuple, model: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray, needs_energy: bool
) -> float:
    """Move the point ``z`` by one step of signed size ``eps``; return the energy there.

    A composition makes one step for each part. The energy is NaN as soon as one part has no energy. Unless ``needs_energy``,
    a split, for which the energy has a cost of its own, only returns a number that is finite if the momentum is.
    """
    options, status = as_work(work).options, as_work(work).status
    if options.spares_energy > 0:  # a step has no such argument, so that users' integrators need not know of it
        status.energy_spared = not needs_energy
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
    status.energy_spared = False
    return energy


@jit
def checked_step(dynamics: tuple, model: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make a step z -> z' that is used only if the reverse step from z' returns to z.

    An implicit equation may have several solutions, and the reverse step may find another one. A step that returns may lie
    near one that does not. There are two signs of this: the reverse step misses z by more than a tolerance (the map
    multiplies the solver's error), or the two solves took different numbers of iterations (at the solution both contract in
    the same way). In these cases the step is made once more, from the end of the reverse step, and has to return to z', as
    if the chain were at z'. Plain iteration may stop the reverse step early, as the module's docstring explains.
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
    """Move ``z`` by a step of ``eps``; return whether it arrives at the (q, p) of ``target`` within the reversal tolerance."""
    dyn = as_dynamics(dynamics)
    _, _, options, _, _, status = as_work(work)
    energy = dyn.step(model, dyn.metric, z, eps, work, own)
    arrives = math.isfinite(energy) and not moved(z[Q : P + 1], target, options.reversal_tolerance)
    if arrives:
        status.reversal_error = max(status.reversal_error, largest_change(z[Q : P + 1], target))
    return arrives
