"""One Markov chain: its state as plain data, and the compiled loop that takes the state from draw to draw.

The loop runs in *chunks*: chain state in, chain state out, draws and statistics into arrays of the caller. Nothing else
carries over from one chunk to the next, so that a run cut anywhere, in warm-up too, written to disk and taken up again is
bit for bit the unbroken run.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import types as nb

from refhmc.adaptation.dual_averaging import (
    LOG_STEP,
    LOG_STEP_BAR,
    N_DUAL,
    restart_dual_averaging,
    update_dual_averaging,
)
from refhmc.adaptation.step_size import search_jump_size, search_step_size, set_jump_size
from refhmc.adaptation.welford import learn_from_gradients, learn_metric, update_welford
from refhmc.adaptation.windows import schedule_array
from refhmc.core import sample_stats as S
from refhmc.core import types
from refhmc.core.compiled import compile_pointer, entry, jit
from refhmc.core.point import GRADIENT, LOG_DENSITY, Q
from refhmc.core.randomness import fill_normals
from refhmc.core.types import (
    DENSITIES,
    DIVERGENCES,
    DRAWS_DONE,
    FAILURE,
    GRADIENTS,
    ITERATIONS,
    JUMPING,
    METRIC_CONDITION,
    METRICS,
    N_CONTROL,
    N_DENSITIES,
    N_DISCONTINUOUS,
    N_GRADIENTS,
    N_METRICS,
    N_POINTS,
    N_SETTINGS,
    N_TOTALS,
    N_TRACES,
    PAUSE,
    RESIDUAL,
    REVERSAL,
    SET_JUMP_SIZE,
    SET_MAX_DEPTH,
    SET_STEP_SIZE,
    STATE,
    STOP,
    TRACES,
)
from refhmc.dynamics.assemble import Dynamics, make_discontinuous_dynamics, make_dynamics
from refhmc.errors import CheckpointError, ShapeError
from refhmc.kernels.dhmc import DHMC
from refhmc.kernels.gibbs import Gibbs
from refhmc.kernels.nuts import INTERVAL_ROWS
from refhmc.metrics.base import FROM_DRAWS, FROM_GRADIENTS, NOTHING
from refhmc.metrics.laplace import take_scales

# Entries of ``counters``.
ITERATION, IN_WINDOW = range(2)
# Entries of ``plan``: length of warm-up, whether the step and the metric are adapted, target of the statistic that the step
# is adapted to and which that is, and the target no-flip rate where the jumps of DHMC are adapted apart from it (or 0).
TUNE, ADAPT_STEP, ADAPT_METRIC, TARGET, STATISTIC, JUMP_TARGET = range(6)

# Welford's mean and scatter of the position and, where the metric learns from them, of the gradient; dual averaging of the
# step size and, after it, of the jump size.
ADAPTATION = nb.Tuple((types.MATRIX, types.MATRIX, types.MATRIX, types.VECTOR, types.INTEGERS))


@jit
def adapt(dynamics, model, workspace, randomness, adaptation, normals, settings, windows, plan, stats, control):
    """What warm-up learns from one draw: the step size from its statistics, the metric from its position."""
    points, _, vecs, mats, _ = workspace
    mean, scatter, gradient_scatter, dual, counters = adaptation
    iteration = counters[ITERATION]
    if plan[ADAPT_STEP]:
        update_dual_averaging(dual, stats[int(plan[STATISTIC])], plan[TARGET])
        if plan[JUMP_TARGET] > 0:
            update_dual_averaging(dual[N_DUAL:], stats[S.NO_FLIP_PROBABILITY], plan[JUMP_TARGET])
        take_sizes(dynamics, dual, LOG_STEP, settings, vecs)
    for k in range(windows.shape[0]):
        learns, start, stop = windows[k, 0], windows[k, 1], windows[k, 2]
        if not (learns and start <= iteration < stop):
            continue
        counters[IN_WINDOW] += 1
        update_welford(mean[0], scatter, points[STATE, Q], counters[IN_WINDOW])
        if plan[ADAPT_METRIC] == FROM_GRADIENTS:
            update_welford(mean[1], gradient_scatter, points[STATE, GRADIENT], counters[IN_WINDOW])
        if iteration == stop - 1:
            if plan[ADAPT_METRIC] == FROM_GRADIENTS:
                learn_from_gradients(scatter, gradient_scatter, vecs)
            else:
                learn_metric(scatter, counters[IN_WINDOW], vecs, mats)
                if dynamics[0] == JUMPING:
                    take_scales(vecs)
                    set_jump_size(settings, vecs)
            mean[:], scatter[:], gradient_scatter[:] = 0.0, 0.0, 0.0
            counters[IN_WINDOW] = 0
            if plan[ADAPT_STEP] and plan[ADAPT_METRIC] == FROM_DRAWS:
                begin_step_size(dynamics, model, workspace, randomness, dual, normals, settings, control)
    if plan[ADAPT_STEP] and iteration == plan[TUNE] - 1:
        take_sizes(dynamics, dual, LOG_STEP_BAR, settings, vecs)


@jit
def take_sizes(dynamics, dual, which, settings, vecs):
    """The step size, and that of the jumps where they are adapted apart from it, out of dual averaging."""
    settings[SET_STEP_SIZE] = math.exp(dual[which])
    if dynamics[0] == JUMPING:
        apart = jumps_apart(dynamics, vecs)
        settings[SET_JUMP_SIZE] = math.exp(dual[N_DUAL + which]) if apart else settings[SET_STEP_SIZE]
        set_jump_size(settings, vecs)


@jit
def jumps_apart(dynamics, vecs):
    """Whether some coordinates of DHMC jump and some do not."""
    return 0 < dynamics[4][N_DISCONTINUOUS] < vecs.shape[1]


@jit
def open_notes(notes, control):
    """Before a transition: what came before it, a search for a step size, goes into the run's counts."""
    control[GRADIENTS] += int(notes[N_GRADIENTS])
    control[METRICS] += int(notes[N_METRICS])
    control[TRACES] += int(notes[N_TRACES])
    control[DENSITIES] += int(notes[N_DENSITIES])
    notes[N_DENSITIES] = 0.0
    for index in range(FAILURE, N_TRACES + 1):
        notes[index] = 0.0


@jit
def close_notes(notes, stats, control):
    """After a transition: what its solves and evaluations came to, as statistics of the draw."""
    stats[S.SOLVER_ITERATIONS] = notes[ITERATIONS]
    stats[S.SOLVER_RESIDUAL] = notes[RESIDUAL]
    stats[S.SOLVER_FAILED_FLAG] = notes[FAILURE] == S.SOLVER_FAILED or notes[FAILURE] == S.NOT_REVERSIBLE
    stats[S.REVERSIBILITY_ERROR] = notes[REVERSAL]
    stats[S.METRIC_COND] = notes[METRIC_CONDITION]
    stats[S.N_GRADIENT_EVALUATIONS] = notes[N_GRADIENTS]
    stats[S.N_METRIC_EVALUATIONS] = notes[N_METRICS]
    stats[S.N_TRACE_EVALUATIONS] = notes[N_TRACES]
    open_notes(notes, control)


@jit
def stay(state, notes, settings, stats):
    """The statistics of a transition that cannot begin, since the state has no finite energy H0; the outcome."""
    outcome = S.reason(notes)
    stats[S.LP] = state[LOG_DENSITY, 0]
    stats[S.ENERGY] = stats[S.MAX_ENERGY_ERROR] = math.inf
    stats[S.DIVERGING] = S.is_divergence(outcome)
    stats[S.STEP_SIZE] = stats[S.STEP_SIZE_NOM] = settings[SET_STEP_SIZE]
    return outcome


@jit
def begin_step_size(dynamics, model, workspace, randomness, dual, normals, settings, control):
    """A first step size for the metric as it is now, and dual averaging from there."""
    points, _, vecs, _, _ = workspace
    start = settings[SET_STEP_SIZE]
    jumping = dynamics[0] == JUMPING and dynamics[4][N_DISCONTINUOUS] > 0
    if jumping:
        jump = search_jump_size(dynamics, model, points[STATE], vecs, settings[SET_JUMP_SIZE], control)
        settings[SET_JUMP_SIZE] = jump
        set_jump_size(settings, vecs)
        restart_dual_averaging(dual[N_DUAL:], jump)
    if jumping and not jumps_apart(dynamics, vecs):
        eps = settings[SET_JUMP_SIZE]
    else:
        eps = search_step_size(dynamics, model, workspace, randomness, normals, start, control)
    settings[SET_STEP_SIZE] = eps
    restart_dual_averaging(dual, eps)
    if jumping:
        set_jump_size(settings, vecs)


@entry(
    lambda: nb.int64(
        types.TRANSITION,
        types.DYNAMICS,
        types.MODEL,
        types.WORKSPACE,
        types.RANDOMNESS,
        ADAPTATION,
        types.VECTOR,
        types.VECTOR,
        types.MATRIX_OF_INTEGERS,
        types.VECTOR,
        types.MATRIX,
        types.MATRIX,
        types.INTEGERS,
    ),
    "the sampling loop",
)
def run_draws(
    transition,
    dynamics,
    model,
    workspace,
    randomness,
    adaptation,
    normals,
    settings,
    windows,
    plan,
    draws,
    stats,
    control,
):
    """Fill ``draws`` and ``stats``, one row a draw, from the chain's state on; returns how many were made."""
    points, _, vecs, mats, _ = workspace
    dual, counters, notes = adaptation[3], adaptation[4], dynamics[4]
    for k in range(draws.shape[0]):
        if control[STOP] or control[PAUSE]:
            return k
        iteration = counters[ITERATION]
        if iteration == 0 and plan[ADAPT_STEP]:
            begin_step_size(dynamics, model, workspace, randomness, dual, normals, settings, control)
        fill_normals(randomness[0], normals)
        open_notes(notes, control)
        H0 = dynamics[1](model, dynamics[3], points[STATE], normals, vecs, mats, notes)
        stats[k] = 0.0
        if math.isfinite(H0):
            outcome = transition(dynamics, model, workspace, randomness, H0, settings, stats[k], control)
        else:
            outcome = stay(points[STATE], notes, settings, stats[k])
        if outcome == S.INTERRUPTED:
            return k
        stats[k, S.OUTCOME] = outcome
        close_notes(notes, stats[k], control)
        for i in range(draws.shape[1]):
            draws[k, i] = points[STATE, Q, i]
        if iteration < plan[TUNE]:
            adapt(
                dynamics,
                model,
                workspace,
                randomness,
                adaptation,
                normals,
                settings,
                windows,
                plan,
                stats[k],
                control,
            )
        counters[ITERATION] += 1
        control[DRAWS_DONE] += 1
        control[DIVERGENCES] += int(stats[k, S.DIVERGING])
    return draws.shape[0]


@dataclass(frozen=True)
class Plan:
    """What a run of a kernel on a model needs beside the chain's state: pointers, schedule, options."""

    transition: Callable
    dynamics: Dynamics
    windows: np.ndarray
    options: np.ndarray
    initial_step_size: float
    settings: dict
    max_depth: int
    n_stats = S.N_STATS

    @property
    def metric(self):
        return self.dynamics.metric

    def chain(self, model, rng: np.random.Generator) -> Chain:
        return Chain(model, self, rng)

    def compile(self, model_name: str, title: str, alone: bool = True) -> None:
        """Compile, or load from the cache, all that the run will call. ``alone``: in the loop of one kernel."""
        self.dynamics.compile(model_name)
        compile_pointer(self.transition, types.TRANSITION.signature, title)
        if alone:
            run_draws.compile()


def make_plan(model, kernel, tune: int):
    """Resolve a kernel's defaults for a model. Raises what :func:`refhmc.dynamics.assemble.make_dynamics` does.

    A :class:`Plan`, or for Gibbs sampling a :class:`refhmc.sampling.gibbs_chain.GibbsPlan`, which is used in the same way.
    """
    if isinstance(kernel, Gibbs):
        from refhmc.sampling.gibbs_chain import make_gibbs_plan

        return make_gibbs_plan(model, kernel, tune)
    statistic, jump_target = S.ACCEPTANCE_RATE, 0.0
    if isinstance(kernel, DHMC):
        dynamics = make_discontinuous_dynamics(model, kernel.metric)
    else:
        dynamics = make_dynamics(model, kernel.metric, kernel.integrator)
    metric = dynamics.metric
    target = kernel.target_accept
    if target is None:
        target = 0.95 if metric.position_dependent else 0.8
    if isinstance(kernel, DHMC) and len(model.discontinuous) == model.dim:
        target, statistic = kernel.target_no_flip, S.NO_FLIP_PROBABILITY
    elif isinstance(kernel, DHMC) and len(model.discontinuous):
        jump_target = kernel.target_no_flip
    adapt_step = kernel.step_size is None
    options = np.array([tune, adapt_step, metric.learns, target, statistic, jump_target], dtype=float)
    settings = kernel.settings()
    return Plan(
        kernel.transition,
        dynamics,
        schedule_array(tune, metric.learns != NOTHING),
        options,
        1.0 if adapt_step else float(kernel.step_size),
        settings,
        int(settings.get(SET_MAX_DEPTH, 0)),
    )


class Chain:
    """A chain's state (plain arrays and a generator) with the scratch space it works in."""

    # The arrays that are the state; everything else is scratch. (The notes say what the metric's workspaces hold, and have
    # counts that the next draw takes over.)
    STATE_ARRAYS = (
        *("state", "vecs", "mats", "notes", "mean", "scatter", "gradient_scatter", "dual", "counters", "settings"),
    )

    def __init__(self, model, plan: Plan, rng: np.random.Generator):
        d, dynamics = model.dim, plan.dynamics
        dense = dynamics.metric.is_dense and dynamics.metric.learns != NOTHING
        self.model, self.plan, self.rng = model, plan, rng
        self.points = np.zeros((N_POINTS, dynamics.point_rows, d))
        self.tree = np.zeros((plan.max_depth + 1, INTERVAL_ROWS, d))
        self.totals, self.normals = np.zeros(N_TOTALS), np.zeros(d)
        self.pointers = dynamics.model
        if dynamics.metric.position_dependent:
            self.pointers = model.core.with_room(dynamics.model)
        self.vecs, self.mats, self.notes = dynamics.vecs.copy(), dynamics.mats.copy(), dynamics.notes.copy()
        self.mean, self.scatter = np.zeros((2, d)), np.zeros((d if dense else 1, d))
        self.gradient_scatter = np.zeros((1, d))
        self.dual, self.counters = np.zeros(2 * N_DUAL), np.zeros(2, np.int64)
        self.settings = np.zeros(N_SETTINGS)
        for index, value in plan.settings.items():
            self.settings[index] = value
        self.settings[SET_STEP_SIZE] = self.settings[SET_JUMP_SIZE] = plan.initial_step_size

    @property
    def state(self) -> np.ndarray:
        return self.points[STATE]

    @property
    def position(self) -> np.ndarray:
        return self.state[Q]

    def start(self, q: np.ndarray) -> None:
        """Put the chain at ``q``, with its log density and gradient."""
        self.state[Q] = q
        self.state[LOG_DENSITY, 0], self.state[GRADIENT] = self.model.core.value_and_gradient(q)

    @property
    def workspace(self) -> tuple:
        return (self.points, self.tree, self.vecs, self.mats, self.totals)

    def run(self, draws: np.ndarray, stats: np.ndarray, control: np.ndarray | None = None) -> int:
        """Make ``len(draws)`` more draws; returns how many were made: fewer when ``control[STOP]`` or ``[PAUSE]`` was set.

        After a pause the chain can go on. After a stop the generator may stand in the middle of a draw: continue from a saved
        state instead.
        """
        for name, array, columns in (("draws", draws, self.model.dim), ("stats", stats, S.N_STATS)):
            if array.shape != (len(draws), columns) or array.dtype != float or not array.flags.c_contiguous:
                raise ShapeError(f"{name}: expected a contiguous float64 array ({len(draws)}, {columns})")
        no_tape, cursor = np.zeros(0), np.zeros(1, np.int64)
        return run_draws(
            self.plan.transition,
            (*self.plan.dynamics.pointers, self.notes),
            self.pointers,
            self.workspace,
            (self.rng, no_tape, cursor),
            (self.mean, self.scatter, self.gradient_scatter, self.dual, self.counters),
            self.normals,
            self.settings,
            self.plan.windows,
            self.plan.options,
            draws,
            stats,
            np.zeros(N_CONTROL, np.int64) if control is None else control,
        )

    def to_bytes(self) -> bytes:
        """The state as an ``.npz`` archive (no pickle): arrays, and the bit generator's state as JSON."""
        buffer = io.BytesIO()
        generator = json.dumps(self.rng.bit_generator.state)
        np.savez(buffer, generator=np.array(generator), **{name: getattr(self, name) for name in self.STATE_ARRAYS})
        return buffer.getvalue()

    def restore(self, saved: bytes) -> Chain:
        """Take on a saved state. Raises CheckpointError if it does not belong to this model and kernel."""
        try:
            with np.load(io.BytesIO(saved), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in self.STATE_ARRAYS}
                generator = json.loads(str(archive["generator"]))
        except Exception as error:
            raise CheckpointError(f"the saved chain state cannot be read: {error}") from error
        self.take_on(arrays)
        self.rng.bit_generator.state = generator
        return self

    def take_on(self, arrays: dict[str, np.ndarray]) -> None:
        """The saved ``STATE_ARRAYS``. Raises CheckpointError if they do not belong to this model and kernel."""
        for name, array in arrays.items():
            own = getattr(self, name)
            if own.shape != array.shape or own.dtype != array.dtype:
                raise CheckpointError(f"saved {name}: expected shape {own.shape}, got {array.shape}")
            own[...] = array
