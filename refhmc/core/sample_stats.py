"""The statistics of a draw: their rows in the core, their names, types and definitions.

Each kernel fills one row of float64 per draw; :func:`named` turns the rows into typed arrays. H is the energy, H0 the
energy at the start of the transition (with the momentum just drawn), "leaves" the states a leapfrog step arrived at.

========================  ======================================================================================
lp                        log density of the draw (unconstrained space, up to a constant). SGD, SGLD, SGHMC: if asked for
energy                    H of the draw, with the momentum it was selected with; H0 when the proposal was rejected (inf where
                          H0 is not finite)
energy_error              energy - H0 (0 when rejected)
max_energy_error          the energy error of largest magnitude along the trajectory, signed; inf where a state has no energy
                          (NaN, density zero, no metric). A step that a solver rejects reaches no state
acceptance_rate           HMC, DHMC: min(1, exp(H0 - H)) of the proposal, 0 if it is not finite. NUTS: the plain average of
                          min(1, exp(H0 - H)) over *all* leaves, those of rejected subtrees included (as in Stan)
diverging                 an energy was not finite, a metric not positive definite, or the energies of one trajectory
                          spread over more than 1,000. SGD, SGLD, SGHMC: a position, or a minibatch's density, was not finite
step_size                 the step the draw was made with (SGD, SGLD, SGHMC: the last update's); step_size_nom: before jitter
exploring                 SGLD, SGHMC with an exploration: the last update had no noise; such a draw is to be left out
n_steps                   integrator steps, or updates, made; int_time: n_steps * step_size
tree_depth                NUTS: doublings whose new subtree was kept as valid (Stan's count, not PyMC's)
reached_max_treedepth     NUTS: the trajectory was still going on at ``max_treedepth``
index_in_trajectory       position of the draw on the trajectory, in signed steps from its start (0: not moved)
is_accepted               HMC, DHMC: the proposal was accepted. NUTS: the draw is not the starting point
outcome                   how the transition ended, see ``OUTCOMES``
solver_iterations         implicit methods: iterations of all the solves of the transition, those that failed included
solver_residual           largest change of a coordinate in the last iteration of a solve that converged
solver_failed             a solve did not converge (outcome solver_failed) or the step did not reverse (not_reversible)
reversibility_error       implicit methods, unless ``reversibility_check=False``: the largest difference of a coordinate after
                          a step and back, of the steps that passed and were taken all the way back (0 if none was: a way back
                          may be broken off once it is bound to arrive)
metric_cond               metrics that depend on the position: condition number of G where the transition started, from which
                          the momentum was drawn. Fisher: a lower bound, the ratio of the extreme pivots of G = L D L'
n_gradient_evaluations    DHMC, and metrics that depend on the position: evaluations of the gradient, of the metric (Fisher or
n_metric_evaluations      Hessian), and of the contraction with its derivative in the transition. SGD, SGLD, SGHMC: gradients
n_contraction_evaluations       of one minibatch
no_flip_rate              DHMC: share of the moves of discontinuous coordinates that were not turned back (1 without any)
no_flip_probability       DHMC: average over those moves of min(1, exp(change of log density)), which has the same expectation
                          and less noise; warm-up adapts to it
n_density_evaluations     DHMC: evaluations of the log density or of its change, those with the gradient included
========================  ======================================================================================

``diverging`` is two-sided in the *spread* of energies over the trajectory and never looks at which end the trajectory
was started from: a one-sided test of H - H0 > 1,000, as Stan's, is not reversible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.core.compiled import jit
from refhmc.core.records import REAL, record_type

FLOATS = (
    *("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "step_size", "step_size_nom", "int_time"),
    *("solver_residual", "reversibility_error", "metric_cond", "no_flip_rate", "no_flip_probability"),
)
COUNTS = (
    *("n_steps", "tree_depth", "index_in_trajectory", "outcome", "solver_iterations", "n_gradient_evaluations"),
    *("n_metric_evaluations", "n_contraction_evaluations", "n_density_evaluations"),
)
FLAGS = ("diverging", "reached_max_treedepth", "is_accepted", "solver_failed", "exploring")
# A row of the core: all of them as float64.
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

# Energies of one trajectory that lie further apart than this end it.
MAX_ENERGY_SPREAD = 1000.0


@jit
def reason(status: Any) -> int:
    """Why a step gave no energy: the outcome noted for it, or NAN."""
    return status.failure if status.failure != 0 else NAN


@jit
def is_divergence(outcome: int) -> bool:
    """Whether an outcome counts as a divergence; the failures of a solver are counted by themselves."""
    return outcome in (DIVERGED, NAN)


@jit
def error_without_energy(H: float, H0: float, worst: float, outcome: int) -> float:
    """``max_energy_error`` of a trajectory that ended where H is not finite; ``worst`` is that of its states before."""
    if not is_divergence(outcome):
        return worst
    return H - H0 if H < 0 else np.inf  # H is inf, -inf or NaN


def met_no_metric(rows: Any) -> Any:
    """Of records of statistics, or any object with these names: whether the transition diverged where the metric could not be
    factorised. (Where it could, either the energy error is finite or the outcome is NAN.)"""
    return (rows["outcome"] == DIVERGED) & ~np.isfinite(rows["max_energy_error"])


def named(rows: np.ndarray, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Typed arrays by name from the core's rows (..., N_STATS): float64, int64 or bool."""
    return {name: rows[..., PLACE[name]].astype(KIND[name]) for name in names}
