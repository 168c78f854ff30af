"""One Markov chain: its state as plain data, and the compiled loop that takes the state from draw to draw.

The loop runs in *chunks*: chain state in, chain state out, draws and statistics into arrays of the caller. Nothing else
carries over from one chunk to the next, so that a run cut anywhere, in warm-up too, written to disk and taken up again is
bit for bit the unbroken run.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import types as nb

from refhmc.adaptation.dual_averaging import DUAL
from refhmc.adaptation.warmup import ADAPTATION, PLAN, PROGRESS, adapt, as_adaptation, begin_step_size
from refhmc.adaptation.windows import schedule_array
from refhmc.core import sample_stats as S
from refhmc.core import types
from refhmc.core.compiled import compile_pointer, entry, jit
from refhmc.core.point import GRADIENT, LOG_DENSITY, Q, as_point, copy_row
from refhmc.core.records import CACHE, CONTROL, COUNTERS, N_CONTROL, SETTINGS, STATUS, TRAJECTORY, one, records
from refhmc.core.types import N_POINTS, as_points, as_work, as_workspace
from refhmc.dynamics.assemble import Dynamics, make_discontinuous_dynamics, make_dynamics
from refhmc.errors import CheckpointError, ShapeError
from refhmc.kernels.gibbs import Gibbs
from refhmc.kernels.nuts import INTERVAL_ROWS
from refhmc.metrics.base import NOTHING

if TYPE_CHECKING:
    from refhmc.models.base import Model

ROWS_OF_STATS = nb.Array(numba.from_dtype(S.STATS), 1, "C")


@jit
def reset_counters(counters: Any, status: Any, control: Any) -> None:
    """Before a transition: what came before it, a search for a step size, goes into the run's counts."""
    control.gradients += counters.gradients
    control.metrics += counters.metrics
    control.traces += counters.traces
    control.densities += counters.densities
    counters.iterations = counters.gradients = counters.metrics = counters.traces = 0
    counters.fields = counters.densities = 0
    status.failure = 0
    status.residual = status.reversal_error = 0.0


@jit
def record_counters(counters: Any, status: Any, stats: Any, control: Any) -> None:
    """After a transition: what its solves and evaluations came to, as statistics of the draw."""
    stats.solver_iterations = counters.iterations
    stats.solver_residual = status.residual
    stats.solver_failed = status.failure == S.SOLVER_FAILED or status.failure == S.NOT_REVERSIBLE
    stats.reversibility_error = status.reversal_error
    stats.metric_cond = status.condition
    stats.n_gradient_evaluations = counters.gradients
    stats.n_metric_evaluations = counters.metrics
    stats.n_trace_evaluations = counters.traces
    reset_counters(counters, status, control)


@entry(
    lambda: nb.int64(
        types.TRANSITION,
        types.DYNAMICS,
        types.MODEL,
        types.WORKSPACE,
        types.RANDOMNESS,
        ADAPTATION,
        types.SETTINGS,
        types.MATRIX,
        types.MATRIX,
        ROWS_OF_STATS,
        types.CONTROL,
    ),
    "the sampling loop",
)
def run_draws(
    transition: Callable,
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    adaptation: tuple,
    settings: Any,
    draws: np.ndarray,
    rows: np.ndarray,
    stats: np.ndarray,
    control: Any,
) -> int:
    """Fill ``draws`` and ``rows``, one row a draw, from the chain's state on; returns how many were made.

    ``stats`` are the same rows by name.
    """
    points, _, _, _, _, work = as_workspace(workspace)
    _, _, _, _, counters, status = as_work(work)
    state, learned = as_point(as_points(points).state), as_adaptation(adaptation)
    progress, plan = learned.progress, learned.plan
    for k in range(draws.shape[0]):
        if control.stop or control.pause:
            return k
        iteration = progress.iteration
        if iteration == 0 and plan.adapt_step:
            begin_step_size(dynamics, model, workspace, randomness, adaptation, settings, control)
        reset_counters(counters, status, control)
        rows[k] = 0.0
        outcome = transition(dynamics, model, workspace, randomness, settings, stats[k], control)
        if outcome == S.INTERRUPTED:
            return k
        stats[k].outcome = outcome
        record_counters(counters, status, stats[k], control)
        copy_row(draws[k], state.q)
        if iteration < plan.tune:
            adapt(dynamics, model, workspace, randomness, adaptation, settings, stats[k], control)
        progress.iteration += 1
        control.draws_done += 1
        control.divergences += int(stats[k].diverging)
    return draws.shape[0]


def control_record(control: np.ndarray | None) -> np.record:
    """A chain's row of ``control``, (N_CONTROL,) integers, as compiled code takes it."""
    row = np.zeros(N_CONTROL, np.int64) if control is None else control
    return row.view(CONTROL).view(np.recarray)[0]


@dataclass(frozen=True)
class Plan:
    """What a run of a kernel on a model needs beside the chain's state: pointers, schedule, options."""

    transition: Callable
    dynamics: Dynamics
    windows: np.ndarray
    warmup: np.recarray
    initial_step_size: float
    settings: dict
    max_depth: int
    n_stats = S.N_STATS

    @property
    def metric(self) -> Any:
        return self.dynamics.metric

    def chain(self, model: Model, rng: np.random.Generator) -> Chain:
        return Chain(model, self, rng)

    def compile(self, model_name: str, title: str, alone: bool = True) -> None:
        """Compile, or load from the cache, all that the run will call. ``alone``: in the loop of one kernel."""
        self.dynamics.compile(model_name)
        compile_pointer(self.transition, types.TRANSITION.signature, title)
        if alone:
            run_draws.compile()


def make_plan(model: Model, kernel: Any, tune: int) -> Any:
    """Resolve a kernel's defaults for a model. Raises what :func:`refhmc.dynamics.assemble.make_dynamics` does.

    A :class:`Plan`, or for Gibbs sampling a :class:`refhmc.sampling.gibbs_chain.GibbsPlan`, which is used in the same way.
    """
    if isinstance(kernel, Gibbs):
        from refhmc.sampling.gibbs_chain import make_gibbs_plan

        return make_gibbs_plan(model, kernel, tune)
    adapt_to_flips, jump_target = False, 0.0
    jumping = getattr(kernel, "jumping", False)
    if jumping:
        dynamics = make_discontinuous_dynamics(model, kernel.metric)
    else:
        dynamics = make_dynamics(model, kernel.metric, kernel.integrator)
    metric = dynamics.metric
    target = kernel.target_accept
    if target is None:
        target = 0.95 if metric.position_dependent else 0.8
    if jumping and len(model.discontinuous) == model.dim:
        target, adapt_to_flips = kernel.target_no_flip, True
    elif jumping and len(model.discontinuous):
        jump_target = kernel.target_no_flip
    adapt_step = kernel.step_size is None
    warmup, settings = one(PLAN), kernel.settings()
    warmup[0] = (tune, adapt_step, metric.learns, target, adapt_to_flips, jump_target)
    return Plan(
        kernel.transition,
        dynamics,
        schedule_array(tune, metric.learns != NOTHING),
        warmup,
        1.0 if adapt_step else float(kernel.step_size),
        settings,
        int(settings.get("max_depth", 0)),
    )


class Chain:
    """A chain's state (plain arrays and a generator) with the scratch space it works in."""

    # The arrays that are the state; everything else is scratch. (The cache says what the metric's work holds, and counts are
    # taken over by the next draw.)
    STATE_ARRAYS = (
        *("state", "vecs", "mats", "cache", "counters", "status", "mean", "scatter", "gradient_scatter", "dual"),
        *("jump_dual", "progress", "settings"),
    )

    def __init__(self, model: Model, plan: Plan, rng: np.random.Generator) -> None:
        d, dynamics = model.dim, plan.dynamics
        dense = dynamics.metric.is_dense and dynamics.metric.learns != NOTHING
        self.model, self.plan, self.rng = model, plan, rng
        self.points = np.zeros((N_POINTS, dynamics.point_rows, d))
        self.tree = np.zeros((plan.max_depth + 1, INTERVAL_ROWS, d))
        self.normals, self.own, self.trajectory = np.zeros(d), np.zeros((dynamics.own_rows, d)), one(TRAJECTORY)
        self.pointers = dynamics.model
        if dynamics.metric.position_dependent:
            self.pointers = model.core.with_room(dynamics.model)
        self.vecs, self.mats, self.options = dynamics.vecs.copy(), dynamics.mats.copy(), dynamics.options
        self.cache, self.counters, self.status = one(CACHE), one(COUNTERS), one(STATUS)
        self.mean, self.scatter = np.zeros((2, d)), np.zeros((d if dense else 1, d))
        self.gradient_scatter = np.zeros((1, d))
        self.dual, self.jump_dual, self.progress = one(DUAL), one(DUAL), one(PROGRESS)
        self.settings = one(SETTINGS)
        for name, value in plan.settings.items():
            self.settings[name] = value
        self.settings.step_size = self.settings.jump_size = plan.initial_step_size

    @property
    def state(self) -> np.ndarray:
        return self.points[0]

    @property
    def position(self) -> np.ndarray:
        return self.state[Q]

    def start(self, q: np.ndarray) -> None:
        """Put the chain at ``q``, with its log density and gradient."""
        self.state[Q] = q
        self.state[LOG_DENSITY, 0], self.state[GRADIENT] = self.model.core.value_and_gradient(q)

    @property
    def work(self) -> tuple:
        return self.vecs, self.mats, self.options[0], self.cache[0], self.counters[0], self.status[0]

    @property
    def workspace(self) -> tuple:
        return self.points, self.tree, self.normals, self.own, self.trajectory[0], self.work

    @property
    def adaptation(self) -> tuple:
        arrays = self.mean, self.scatter, self.gradient_scatter
        return (*arrays, self.dual[0], self.jump_dual[0], self.progress[0], self.plan.warmup[0], self.plan.windows)

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
            self.plan.dynamics.pointers,
            self.pointers,
            self.workspace,
            (self.rng, no_tape, cursor),
            self.adaptation,
            self.settings[0],
            draws,
            stats,
            records(stats, S.STATS),
            control_record(control),
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
