"""Integrators: one step (q, p) -> (q', p') of Hamilton's equations, and the properties that each one claims.

``order`` is the order of the method. ``symplectic`` and ``reversible`` are properties of the map (q, p) -> (q', p'), for the
implicit methods to the solver's tolerance. ``exact`` is True if a chain that accepts on its energy error keeps the target.
``exact_in_nuts``, if defined, is True if NUTS keeps the target although ``exact`` is False. ``cost`` is the number of
evaluations of (dH/dp, dH/dq) per step, or of gradients for the leapfrog; None if the solver or the number of parts decides.

The ``tolerance`` of an implicit method is the largest change of a coordinate in the last iteration (in absolute terms, as in
the papers). A solve that has not converged after ``max_iterations`` is never used: the transition is rejected with the
outcome ``solver_failed``. ``solver`` is "fixed point" or "anderson" (:mod:`refhmc.numerics.fixed_point`).
If q is of size s, p is of size 1/s, so that a tolerance that is loose for one of them is strict for the other. The midpoint
rule and the projection solve for both together. The generalised leapfrog solves for q alone. At s = 1e-4 most of its steps do
not return and are rejected, so that coordinates should be scaled to order one for it.

At steps near the local time scale a solve may converge from z to z', while the solve from z' fails or converges to another
point. A chain that uses such steps is biased. With ``reversibility_check=True``, the default, each step is followed by its
reverse step. If this does not return to within 100 tolerances, the step is rejected with the outcome ``not_reversible``. The
check adds a third to a half to the cost of the midpoint rule with plain iteration, since a reverse step that must converge is
stopped early (:mod:`refhmc.integrators.step`). It doubles the cost of the other methods. Anderson's acceleration then has at
most 25 iterations: in longer solves, convergence depended on the last digits of the start. Near the edge of solvability, 20,920
of 20,923 accepted steps were also accepted from their ends (``tests/integrators/test_reversibility.py``). Except for such rare
steps, a chain is exact to the tolerance. With ``reversibility_check=False``, as in the papers, ``exact`` is False and the
result has a warning.
"""

from __future__ import annotations

from refhmc.core.registry import registry
from refhmc.integrators.block_leapfrog import BlockLeapfrog as BlockLeapfrog
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
from refhmc.integrators.splitting import BCSS as BCSS
from refhmc.integrators.splitting import McLachlan as McLachlan
from refhmc.integrators.splitting import Omelyan as Omelyan
from refhmc.integrators.symmetric_split import SymmetricSplit as SymmetricSplit

INTEGRATORS = registry(globals())
__all__ = [each.__name__ for each in INTEGRATORS.values()]
