"""The statistics of a draw: their rows in the core, their names, types and definitions.

Each kernel fills one row of float64 per draw; :func:`named` turns the rows into typed arrays. H is the energy, H0 the
energy at the start of the transition (with the momentum just drawn), "leaves" the states a leapfrog step arrived at.

========================  ======================================================================================
lp                        log density of the draw (unconstrained space, up to a constant)
energy                    H of the draw, with the momentum it was selected with; H0 when the proposal was rejected (inf where
                          H0 is not finite)
energy_error              energy - H0 (0 when rejected)
max_energy_error          the energy error of largest magnitude along the trajectory, signed; inf where a state has no energy
                          (NaN, density zero, no metric). A step that a solver rejects reaches no state
acceptance_rate           HMC, DHMC: min(1, exp(H0 - H)) of the proposal, 0 if it is not finite. NUTS: the plain average of
                          min(1, exp(H0 - H)) over *all* leaves, those of rejected subtrees included (as in Stan)
diverging                 an energy was not finite, a metric not positive definite, or the energies of one trajectory
                          spread over more than 1,000
step_size                 the step the draw was made with; step_size_nom: before jitter
n_steps                   integrator steps made; int_time: n_steps * step_size
tree_depth                NUTS: doublings whose new subtree was kept as valid (Stan's count, not PyMC's)
reached_max_treedepth     NUTS: the trajectory was still going on at ``max_treedepth``
index_in_trajectory       position of the draw on the trajectory, in signed steps from its start (0: not moved)
is_accepted               HMC, DHMC: the proposal was accepted. NUTS: the draw is not the starting point
outcome                   how the transition ended, see ``OUTCOMES``
solver_iterations         implicit methods: iterations of all the solves of the transition, those that failed included
solver_residual           largest change of a coordinate in the last iteration of a solve that converged
solver_failed             a solve did not converge (outcome solver_failed) or the step did not reverse (not_reversible)
reversibility_error       implicit methods, unless ``reversibility_check=False``: the largest difference of a coordinate after
                          a step and back, of the steps that passed
metric_cond               metrics that depend on the position: condition number of G where the transition started, from which
                          the momentum was drawn. Fisher: a lower bound, the ratio of the extreme pivots of G = L D L'
n_gradient_evaluations    DHMC, and metrics that depend on the position: evaluations of the gradient, of the metric (Fisher or
n_metric_evaluations      Hessian), and of the contraction with its derivative in the transition
n_trace_evaluations
no_flip_rate              DHMC: share of the moves of discontinuous coordinates that were not turned back (1 without any)
no_flip_probability       DHMC: average over those moves of min(1, exp(change of log density)), which has the same expectation
                          and less noise; warm-up adapts to it
n_density_evaluations     DHMC: evaluations of the log density or of its change, those with the gradient included
========================  ======================================================================================

``diverging`` is two-sided in the *spread* of energies over the trajectory and never looks at which end the trajectory
was started from: a one-sided test of H - H0 > 1,000, as Stan's, is not reversible.
"""

from __future__ import annotations

import numpy as np

from refhmc.core.compiled import jit
from refhmc.core.types import FAILURE

(
    LP,
    ENERGY,
    ENERGY_ERROR,
    MAX_ENERGY_ERROR,
    ACCEPTANCE_RATE,
    DIVERGING,
    STEP_SIZE,
    STEP_SIZE_NOM,
    N_STEPS,
    INT_TIME,
    TREE_DEPTH,
    REACHED_MAX_TREEDEPTH,
    INDEX_IN_TRAJECTORY,
    IS_ACCEPTED,
    OUTCOME,
    SOLVER_ITERATIONS,
    SOLVER_RESIDUAL,
    SOLVER_FAILED_FLAG,
    REVERSIBILITY_ERROR,
    N_GRADIENT_EVALUATIONS,
    N_METRIC_EVALUATIONS,
    N_TRACE_EVALUATIONS,
    NO_FLIP_RATE,
    NO_FLIP_PROBABILITY,
    N_DENSITY_EVALUATIONS,
    METRIC_COND,
) = range(26)
N_STATS = 26

FLOATS = {
    "lp": LP,
    "energy": ENERGY,
    "energy_error": ENERGY_ERROR,
    "max_energy_error": MAX_ENERGY_ERROR,
    "acceptance_rate": ACCEPTANCE_RATE,
    "step_size": STEP_SIZE,
    "step_size_nom": STEP_SIZE_NOM,
    "int_time": INT_TIME,
    "solver_residual": SOLVER_RESIDUAL,
    "no_flip_rate": NO_FLIP_RATE,
    "no_flip_probability": NO_FLIP_PROBABILITY,
    "reversibility_error": REVERSIBILITY_ERROR,
    "metric_cond": METRIC_COND,
}
COUNTS = {
    "n_steps": N_STEPS,
    "tree_depth": TREE_DEPTH,
    "index_in_trajectory": INDEX_IN_TRAJECTORY,
    "outcome": OUTCOME,
    "solver_iterations": SOLVER_ITERATIONS,
    "n_gradient_evaluations": N_GRADIENT_EVALUATIONS,
    "n_metric_evaluations": N_METRIC_EVALUATIONS,
    "n_trace_evaluations": N_TRACE_EVALUATIONS,
    "n_density_evaluations": N_DENSITY_EVALUATIONS,
}
FLAGS = {
    "diverging": DIVERGING,
    "reached_max_treedepth": REACHED_MAX_TREEDEPTH,
    "is_accepted": IS_ACCEPTED,
    "solver_failed": SOLVER_FAILED_FLAG,
}

OUTCOMES = ("accepted", "rejected", "diverged", "solver_failed", "not_reversible", "nan", "interrupted")
ACCEPTED, REJECTED, DIVERGED, SOLVER_FAILED, NOT_REVERSIBLE, NAN, INTERRUPTED = range(7)

# Energies of one trajectory that lie further apart than this end it.
MAX_ENERGY_SPREAD = 1000.0


@jit
def reason(notes):
    """Why a step gave no energy: the outcome noted for it, or NAN."""
    return int(notes[FAILURE]) if notes[FAILURE] != 0 else NAN


@jit
def is_divergence(outcome):
    """Whether an outcome counts as a divergence; the failures of a solver are counted by themselves."""
    return outcome in (DIVERGED, NAN)


@jit
def error_without_energy(H, H0, worst, outcome):
    """``max_energy_error`` of a trajectory that ended where H is not finite; ``worst`` is that of its states before."""
    if not is_divergence(outcome):
        return worst
    return H - H0 if H < 0 else np.inf  # H is inf, -inf or NaN


def named(rows: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Typed arrays by name from the core's rows (..., N_STATS): float64, int64 or bool."""
    typed = {}
    for name in names:
        if name in FLOATS:
            typed[name] = np.array(rows[..., FLOATS[name]])
        elif name in COUNTS:
            typed[name] = rows[..., COUNTS[name]].astype(np.int64)
        else:
            typed[name] = rows[..., FLAGS[name]].astype(bool)
    return typed
