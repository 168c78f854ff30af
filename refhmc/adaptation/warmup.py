"""Learning from one draw of warm-up: the step size from its statistics, the metric from its position and gradient."""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numba import types as nb

from refhmc.adaptation.dual_averaging import (
    AIM,
    DUAL,
    GAMMA,
    SETTLED_GAMMA,
    SETTLES,
    continue_dual_averaging,
    restart_dual_averaging,
    update_dual_averaging,
)
from refhmc.adaptation.step_size import search_jump_size, search_step_size, set_jump_size
from refhmc.adaptation.welford import learn_from_gradients, learn_metric, update_welford
from refhmc.compile.compiled import jit, jit_inline
from refhmc.core import types
from refhmc.core.point import as_point, copy_row
from refhmc.core.records import REAL, WHOLE, record_type
from refhmc.core.types import JUMPING, as_points, as_work, as_workspace
from refhmc.metrics.base import AS_STAN, FROM_GRADIENTS, FROM_PAIRS
from refhmc.metrics.laplace import take_scales

# Length of warm-up, whether the step is adapted, how the metric learns, the target of the statistic that the step is
# adapted to and whether that is the no-flip rate, and the target no-flip rate if the jumps of DHMC are adapted apart (or 0).
PLAN = record_type(
    {"tune": WHOLE, "adapt_step": WHOLE, "learns": WHOLE, "target": REAL, "adapt_to_flips": WHOLE, "jump_target": REAL}
)
# ``due``: the window, from 1 on, whose metric must be learned before the next transition, outside the loop; ``restart``: the
# step size must be searched for again there. ``steps`` and ``divergences``: those of the trajectories since the metric was last
# learned. ``given``: warm-up started with a metric, and does not learn another from its first draws. ``hierarchical``: the
# chain has changed to a hierarchical metric. ``from_draws``: the scales are those of the draws.
PROGRESS = record_type(
    {
        "iteration": WHOLE,
        "in_window": WHOLE,
        "due": WHOLE,
        "restart": WHOLE,
        "steps": REAL,
        "given": WHOLE,
        "hierarchical": WHOLE,
        "divergences": WHOLE,
        "from_draws": WHOLE,
    }
)


class Adaptation(NamedTuple):
    """State of the adaptation of a chain.

    It has Welford's mean and scatter of the position and, if the metric learns from them, of the gradient. It also has the
    last positions and gradients, if they are kept, with iteration i in row i mod n. Then follow dual averaging of the step
    size and of the jump size, the progress of warm-up, its plan, and its windows, rows (learns the metric, start, stop).
    """

    mean: np.ndarray
    scatter: np.ndarray
    gradient_scatter: np.ndarray
    kept: np.ndarray
    kept_gradients: np.ndarray
    dual: np.record
    jump_dual: np.record
    progress: np.record
    plan: np.record
    windows: np.ndarray


ADAPTATION = nb.Tuple(
    (
        *(types.MATRIX, types.MATRIX, types.MATRIX, types.MATRIX, types.MATRIX),
        *(numba.from_dtype(DUAL), numba.from_dtype(DUAL), numba.from_dtype(PROGRESS)),
        *(numba.from_dtype(PLAN), types.MATRIX_OF_INTEGERS),
    )
)


@jit_inline
def as_adaptation(adaptation: tuple) -> Adaptation:
    """Return the adaptation with named fields."""
    mean, scatter, gradient_scatter, kept, kept_gradients, dual, jump_dual, progress, plan, windows = adaptation
    return Adaptation(mean, scatter, gradient_scatter, kept, kept_gradients, dual, jump_dual, progress, plan, windows)


@jit
def adapt(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    adaptation: tuple,
    settings: np.record,
    stats: np.record,
    control: np.record,
) -> None:
    """Adapt after a draw of warm-up."""
    mean, scatter, gradient_scatter, kept, kept_gradients, dual, jump_dual, progress, plan, windows = adaptation
    points, _, _, _, work = as_workspace(workspace)
    state = as_point(as_points(points).state)
    if plan.adapt_step:
        statistic = stats.no_flip_probability if plan.adapt_to_flips else stats.acceptance_rate
        settled = has_settled(progress.iteration, plan)
        if settled and progress.iteration == SETTLES:
            continue_dual_averaging(dual, math.exp(dual.log_step_bar))
        update_dual_averaging(dual, statistic, plan.target, SETTLED_GAMMA if settled else GAMMA)
        if plan.jump_target > 0:
            update_dual_averaging(jump_dual, stats.no_flip_probability, plan.jump_target)
        take_sizes(dynamics, dual.log_step, jump_dual.log_step, settings, work)
    if kept.shape[0] > 0:
        row = progress.iteration % kept.shape[0]
        copy_row(kept[row], state.q)
        copy_row(kept_gradients[row], state.gradient)
        progress.steps += stats.n_steps
        progress.divergences += stats.diverging != 0
    for k in range(windows.shape[0]):
        learns, start, stop = windows[k, 0], windows[k, 1], windows[k, 2]
        if plan.learns == FROM_PAIRS:
            if learns and progress.iteration == stop - 1:
                progress.due = k + 1
            continue
        if not (learns and start <= progress.iteration < stop):
            continue
        progress.in_window += 1
        update_welford(mean[0], scatter, state.q, progress.in_window)
        if plan.learns == FROM_GRADIENTS:
            update_welford(mean[1], gradient_scatter, state.gradient, progress.in_window)
        if progress.iteration == stop - 1:
            if plan.learns == FROM_GRADIENTS:
                learn_from_gradients(scatter, gradient_scatter, work)
            else:
                learn_metric(scatter, progress.in_window, plan.learns == AS_STAN, work)
                if dynamics[0] == JUMPING:
                    take_scales(work)
                    set_jump_size(settings, work)
            mean[:], scatter[:], gradient_scatter[:] = 0.0, 0.0, 0.0
            progress.in_window = 0
            settings.keep_momentum = 0  # the next one is drawn for the new metric
            if plan.adapt_step and plan.learns != FROM_GRADIENTS:
                begin_step_size(dynamics, model, workspace, randomness, adaptation, settings, control)
    if plan.adapt_step and progress.iteration == plan.tune - 1:
        take_sizes(dynamics, dual.log_step_bar, jump_dual.log_step_bar, settings, work)


@jit
def has_settled(iteration: int, plan: np.record) -> bool:
    """Return whether dual averaging has the larger gamma of later iterations."""
    return iteration >= SETTLES and plan.learns == FROM_PAIRS


@jit
def take_sizes(dynamics: tuple, log_step: float, log_jump: float, settings: np.record, work: tuple) -> None:
    """Set the step size, and the jump size if it is adapted separately, from dual averaging."""
    settings.step_size = math.exp(log_step)
    if dynamics[0] == JUMPING:
        settings.jump_size = math.exp(log_jump) if jumps_apart(work) else settings.step_size
        set_jump_size(settings, work)


@jit
def jumps_apart(work: tuple) -> bool:
    """Return whether some coordinates of DHMC are discontinuous and some are not."""
    return 0 < as_work(work).options.n_discontinuous < as_work(work).vecs.shape[1]


@jit
def begin_step_size(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    adaptation: tuple,
    settings: np.record,
    control: np.record,
) -> None:
    """Search a first step size for the present metric, and restart dual averaging from it."""
    points, _, _, _, work = as_workspace(workspace)
    start, learned = settings.step_size, as_adaptation(adaptation)
    jumping = dynamics[0] == JUMPING and as_work(work).options.n_discontinuous > 0
    if jumping:
        jump = search_jump_size(model, as_points(points).state, work, settings.jump_size, control)
        settings.jump_size = jump
        set_jump_size(settings, work)
        restart_dual_averaging(learned.jump_dual, jump)
    if jumping and not jumps_apart(work):
        eps = settings.jump_size
    else:
        eps = search_step_size(dynamics, model, workspace, randomness, start, control)
    settings.step_size = eps
    restart_dual_averaging(learned.dual, eps, 1.0 if has_settled(learned.progress.iteration, learned.plan) else AIM)
    if jumping:
        set_jump_size(settings, work)
