"""The statistics of a draw: their rows in the core, their names, types and definitions.

Each kernel fills one row of float64 per draw; :func:`named` converts the rows to typed arrays. H is the energy. H0 is its
value at the start of the transition, with the momentum just drawn. "Leaves" are the states that leapfrog steps arrived at.

==========================  ======================================================================================
lp                          log density of the draw (unconstrained space, up to a constant). SGD, SGLD, SGHMC: on request
energy                      H of the draw, with the momentum it was selected with; H0 if the proposal was rejected (inf if H0
                            is not finite)
energy_error                energy - H0 (0 if rejected). MAMS and MCLMC: with the log Jacobian in H; MCLMC: the sum over the
                            steps of the draw
max_energy_error            the energy error of largest magnitude along the trajectory, signed; inf if a state has no energy
                            (NaN, density zero, no metric). A step that a solver rejects reaches no state
acceptance_rate             HMC, DHMC, GHMC, MAMS: min(1, exp(H0 - H)) of the proposal, 0 if it is not finite. DRHMC: the same
                            of the first stage, also if a later one was accepted. MALT: with the sum of the steps' errors for
                            H - H0, which is also ``energy - H0``. NUTS: the plain average of
                            min(1, exp(H0 - H)) over *all* leaves, including those of rejected subtrees (as in Stan).
                            WALNUTS: the average of min(1, exp(H - H')) over macro steps, H' after one step of their length.
                            GIST: as HMC, without the ratio of the probabilities of L. AutoStep: as HMC, for the first trial
diverging                   an energy was not finite, a metric not positive definite, or the energies of one trajectory
                            differed by more than 1,000. WALNUTS: also a macro step that exceeded ``max_error`` at every level.
                            MAMS, MCLMC: also a turn by delta > 12. SGD, SGLD, SGHMC: a position or a minibatch's density was
                            not finite
step_size                   the step size of the draw (SGD, SGLD, SGHMC: of the last update); step_size_nom: before jitter
exploring                   SGLD, SGHMC with an exploration: the last update had no noise; discard such a draw
n_steps                     integrator steps, macro steps of WALNUTS, or updates; int_time: n_steps * step_size. GIST, AutoStep:
                            those in both directions of time, and of all trials
chosen_steps                GIST: the number of steps L that was drawn
is_reversible               GIST, AutoStep: the tuning parameter that was drawn is possible at the other end
n_micro_steps               WALNUTS: integrator steps in its macro steps, without trials and reversibility checks
n_halvings                  WALNUTS: the largest number of halvings of the step in a macro step of the trajectory
tree_depth                  NUTS, WALNUTS: doublings whose new subtree was valid (Stan's count, not PyMC's)
reached_max_treedepth       NUTS, WALNUTS: the trajectory had not ended at ``max_treedepth``
index_in_trajectory         position of the draw on the trajectory, in signed steps from its start (0: not moved)
is_accepted                 NUTS, WALNUTS: the draw is not the starting point. MCLMC: a step was made. Other kernels: the
                            proposal was accepted
outcome                     how the transition ended, see ``OUTCOMES``
stage                       DRHMC: the stage whose proposal was accepted, from 1 on; 0 if all were rejected
slice_variable              GHMC with a ``slice_shift``: Neal's u after the transition, in [-1, 1]
solver_iterations           implicit methods: iterations of all solves of the transition, including failed ones
solver_residual             largest change of a coordinate in the last iteration of a converged solve
solver_failed               a solve did not converge (outcome solver_failed) or the step did not reverse (not_reversible)
reversibility_error         implicit methods, unless ``reversibility_check=False``: the largest difference of a coordinate after
                            a step and its complete reverse step, over the steps that passed (0 if there is none: a reverse step
                            may be stopped when it is certain to arrive)
metric_cond                 metrics that depend on the position: condition number of G at the start of the transition, where
                            the momentum is drawn. Fisher: a lower bound, the ratio of the extreme pivots of G = L D L'
n_gradient_evaluations      DHMC, WALNUTS, and metrics that depend on the position: evaluations of the gradient, of the metric
n_metric_evaluations        (Fisher or Hessian), and of the contraction with its derivative in the transition. SGD, SGLD, SGHMC:
n_contraction_evaluations   gradients of one minibatch
no_flip_rate                DHMC: share of the moves of discontinuous coordinates that were not reflected (1 without any)
no_flip_probability         DHMC: average over those moves of min(1, exp(change of log density)), which has the same expectation
                            and less noise; warm-up adapts to it
n_density_evaluations       DHMC: evaluations of the log density or of its change, including those with the gradient
inverse_temperature         Tempered, for each temperature from the first reference on: b
replica                     Tempered, the same: number of the replica there, after the swaps
log_ratio, next_log_ratio   Tempered, for each pair of neighbours: log density of the target minus that of the reference, at
                            their positions before the swaps
==========================  ======================================================================================

``diverging`` is two-sided: it depends on the *range* of energies over the trajectory, not on the end from which the trajectory
was started. A one-sided test of H - H0 > 1,000, as in Stan, is not reversible.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.records import REAL, record_type

FLOATS = (
    *("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "step_size", "step_size_nom", "int_time"),
    *("solver_residual", "reversibility_error", "metric_cond", "no_flip_rate", "no_flip_probability"),
    *("slice_variable", "inverse_temperature", "log_ratio", "next_log_ratio"),
)
COUNTS = (
    *("n_steps", "tree_depth", "index_in_trajectory", "outcome", "solver_iterations", "n_gradient_evaluations"),
    *("n_metric_evaluations", "n_contraction_evaluations", "n_density_evaluations", "stage", "n_micro_steps"),
    *("n_halvings", "chosen_steps", "replica"),
)
FLAGS = ("diverging", "reached_max_treedepth", "is_accepted", "solver_failed", "exploring", "is_reversible")
# A row of the core: all values as float64.
STATS = record_type(dict.fromkeys((*FLOATS, *COUNTS, *FLAGS), REAL))
N_STATS = len(STATS.names or ())
PLACE = {name: place for place, name in enumerate(STATS.names or ())}
KIND: dict[str, type] = {
    **dict.fromkeys(FLOATS, float),
    **dict.fromkeys(COUNTS, np.int64),
    **dict.fromkeys(FLAGS, bool),
}

OUTCOMES = ("accepted", "rejected", "diverged", "solver_failed", "not_reversible", "nan", "interrupted")
ACCEPTED, REJECTED, DIVERGED, SOLVER_FAILED, NOT_REVERSIBLE, NAN, INTERRUPTED = range(7)

# A trajectory ends if its energies differ by more than this.
MAX_ENERGY_SPREAD = 1000.0


@jit
def reason(status: np.record) -> int:
    """Return why a step gave no energy: the outcome recorded for it, or NAN."""
    return status.failure if status.failure != 0 else NAN


@jit
def is_divergence(outcome: int) -> bool:
    """Return whether an outcome counts as a divergence; failures of a solver are counted separately."""
    return outcome in (DIVERGED, NAN)


@jit
def error_without_energy(H: float, H0: float, worst: float, outcome: int) -> float:
    """Return ``max_energy_error`` of a trajectory that ended with H not finite; ``worst`` is that of earlier states."""
    if not is_divergence(outcome):
        return worst
    return H - H0 if H < 0 else np.inf  # H is inf, -inf or NaN


def met_no_metric(rows: np.ndarray | Mapping[str, np.ndarray]) -> np.ndarray:
    """Return whether a transition diverged because the metric could not be factorised.

    ``rows`` are records of statistics, or an object with these names. (With a metric, the energy error is finite or the
    outcome NAN.)
    """
    return (rows["outcome"] == DIVERGED) & ~np.isfinite(rows["max_energy_error"])


def named(rows: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return typed arrays by name from the core's rows (..., N_STATS): float64, int64 or bool."""
    return {name: rows[..., PLACE[name]].astype(KIND[name]) for name in names}
