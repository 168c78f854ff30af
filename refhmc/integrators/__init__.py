"""Integrators: one step (q, p) -> (q', p') of Hamilton's equations, and what each promises.

``order``: of the method. ``symplectic``, ``reversible``: of the map (q, p) -> (q', p'), for the implicit ones to the solver's
tolerance. ``exact``: whether a chain made with it, and accepted on its energy error, keeps the target. ``exact_in_nuts``, if it
is there: whether NUTS keeps the target all the same. ``cost``:
evaluations of (dH/dp, dH/dq) a step, None where the solver or the number of parts decides; the leapfrog's are gradients.

An implicit method's ``tolerance`` is the largest change of a coordinate in the last iteration (in absolute terms, as in
the papers). A solve that has not converged after ``max_iterations`` is never used: the transition is rejected with the
outcome ``solver_failed``. ``solver``: "fixed point", or "anderson" (:mod:`refhmc.numerics.fixed_point`).
Where q is of size s, p is of size 1/s, so that a tolerance that is loose for one of them is strict for the other. The midpoint
rule and the projection solve for both at once. The generalised leapfrog solves for q alone: at s = 1e-4 most of its steps do
not return, and are rejected; scale the coordinates to order one for it.

At steps near the local time scale a solve may converge from z to z', and from z' not, or to another point than z. A chain
that uses such steps is biased. ``reversibility_check=True``, the default, takes every step back and rejects, with the
outcome ``not_reversible``, a step that does not return to within 100 tolerances. That costs the midpoint rule with plain
iteration a third to a half more, since a way back that is bound to arrive is broken off
(:mod:`refhmc.integrators.step`), and doubles the cost of the others. Anderson's acceleration is then given at most 25
iterations: in those that took more, whether a solve converged depended on the last digits of its start. Near the edge of
solvability, of 20,923 steps that were used, 20,920 were used from their end too
(``tests/integrators/test_reversibility.py``): such rare steps aside, a chain is exact to the tolerance. With
``reversibility_check=False``, as in the papers, ``exact`` is False and the result says so.
"""

from __future__ import annotations

from refhmc.core.registry import registry
from refhmc.integrators.composition import Suzuki as Suzuki
from refhmc.integrators.composition import Yoshida as Yoshida
from refhmc.integrators.explicit_tao import ExplicitTao as ExplicitTao
from refhmc.integrators.gaussian_split import GaussianSplit as GaussianSplit
from refhmc.integrators.generalized_leapfrog import GeneralizedLeapfrog as GeneralizedLeapfrog
from refhmc.integrators.implicit_midpoint import ImplicitMidpoint as ImplicitMidpoint
from refhmc.integrators.leapfrog import Leapfrog as Leapfrog
from refhmc.integrators.naive_split import NaiveSplit as NaiveSplit
from refhmc.integrators.projected_tao import ProjectedTao as ProjectedTao
from refhmc.integrators.randomized_split import RandomizedSplit as RandomizedSplit
from refhmc.integrators.symmetric_split import SymmetricSplit as SymmetricSplit

INTEGRATORS = registry(globals())
__all__ = [each.__name__ for each in INTEGRATORS.values()]
