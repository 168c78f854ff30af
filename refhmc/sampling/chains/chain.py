"""One Markov chain: its state as plain data, and the compiled loop that advances the state from draw to draw.

A draw is the position after one turn of each block of the kernel (:mod:`refhmc.kernels.blocks`), on its conditional
(:mod:`refhmc.models.conditionals`). Each block has its own workspace, settings, metric and adaptation. All blocks draw from one
generator, in the order of their turns, the randomness of their kernels (:mod:`refhmc.core.randomness`). A block of all
coordinates is *alone*: its state is the chain's position.

The loop runs in *chunks*. It takes the chain's state, updates it, and writes draws and statistics into arrays of the caller.
Nothing else carries over from one chunk to the next. So a run that is interrupted anywhere, written to disk and resumed is bit
for bit the uninterrupted run, also in warm-up.
"""

from __future__ import annotations

import functools
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types as nb

from refhmc.adaptation.dual_averaging import DUAL, target_acceptance
from refhmc.adaptation.fisher_divergence import earlier_than
from refhmc.adaptation.from_pairs import HISTORY, begin_learning, learn_if_due, put_levels
from refhmc.adaptation.hierarchy import FEWEST
from refhmc.adaptation.length import (
    DEFAULT_JITTER,
    LEARNER,
    N_LENGTHS,
    RECORDING,
    SLOWNESS,
    WATCHED_ROWS,
    adapt_length,
    begin_length,
    hmc_recording,
    length_windows,
    slowness_of,
)
from refhmc.adaptation.warmup import ADAPTATION, PLAN, PROGRESS, adapt, as_adaptation, begin_step_size
from refhmc.adaptation.windows import schedule_array
from refhmc.compile.compiled import Entry, compile_pointer, entry, jit, jit_part
from refhmc.compile.parallel import helpers_for
from refhmc.core import sample_stats as S
from refhmc.core import types
from refhmc.core.hierarchy import blocks_of, coordinates_of, variable_of
from refhmc.core.point import GRADIENT, LOG_DENSITY, Q, as_point, copy_row
from refhmc.core.records import CACHE, CONTROL, COUNTERS, SETTINGS, STATUS, one, records
from refhmc.core.types import N_POINTS, as_model, as_points, as_work, as_workspace
from refhmc.dynamics.assemble import (
    Dynamics,
    make_discontinuous_dynamics,
    make_dynamics,
    make_microcanonical_dynamics,
    make_minibatch_dynamics,
)
from refhmc.dynamics.fuse import functions_to_fuse, fused_transition, transition_with
from refhmc.errors import CheckpointError, MetricError
from refhmc.integrators.defaults import default_metric
from refhmc.integrators.leapfrog import leapfrog_diagonal
from refhmc.kernels.blocks import indices_of, is_tempered, kernels_of
from refhmc.kernels.hmc import HMC
from refhmc.kernels.nuts import INTERVAL_ROWS, NUTS
from refhmc.kernels.options import AnyKernel, Kernel
from refhmc.kernels.tempered import (
    LADDER,
    Ladder,
    Tempered,
    draw_from_reference,
    learn_ladder,
    set_log_density,
    swap_neighbours,
)
from refhmc.metrics import Diagonal, Hierarchical
from refhmc.metrics.base import AS_STAN, FROM_DRAWS, FROM_PAIRS, NOTHING, Metric
from refhmc.metrics.hierarchical import identity
from refhmc.metrics.low_rank import LARGEST
from refhmc.models.conditionals import Conditional, conditional_of
from refhmc.models.tempering import tempered
from refhmc.sampling.storage.checkpoint import read_arrays

if TYPE_CHECKING:
    from refhmc.models.base import Model

# A block as the loops receive it.
BLOCK = nb.Tuple((types.SETTINGS, types.TRANSITION, types.DYNAMICS, types.MODEL, types.WORKSPACE, ADAPTATION, LEARNER))


@jit
def reset_counters(counters: np.record, status: np.record, control: np.record) -> None:
    """Add the counts of a search for a step size to those of the run, before a transition."""
    control.gradients += counters.gradients
    control.metrics += counters.metrics
    control.contractions += counters.contractions
    control.densities += counters.densities
    counters.iterations = counters.gradients = counters.metrics = counters.contractions = 0
    counters.fields = counters.densities = 0
    status.failure = 0
    status.residual = status.reversal_error = 0.0


@jit
def record_counters(counters: np.record, status: np.record, stats: np.record, control: np.record) -> None:
    """Write the counts of a transition into the statistics of its draw."""
    stats.solver_iterations = counters.iterations
    stats.solver_residual = status.residual
    stats.solver_failed = status.failure == S.SOLVER_FAILED or status.failure == S.NOT_REVERSIBLE
    stats.reversibility_error = status.reversal_error
    stats.metric_cond = status.condition
    stats.n_gradient_evaluations = counters.gradients
    stats.n_metric_evaluations = counters.metrics
    stats.n_contraction_evaluations = counters.contractions
    reset_counters(counters, status, control)


@jit
def count_draw(control: np.record, adaptation: tuple, diverging: bool) -> None:
    """Count an iteration and its divergence, separately in warm-up."""
    learned = as_adaptation(adaptation)
    control.draws_done += 1
    if learned.progress.iteration <= learned.plan.tune:
        control.warmup_divergences += int(diverging)
    else:
        control.divergences += int(diverging)


@jit_part
def take_turn(
    settings: np.record,
    transition: Callable,
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    adaptation: tuple,
    learner: tuple,
    randomness: tuple,
    stats: np.record,
    control: np.record,
) -> bool:
    """Make one transition of a block and adapt to it in warm-up; return False if it was stopped.

    (The parts of ``BLOCK`` are separate arguments, because copying the tuple would take 80 ns per draw.)
    """
    _, _, _, _, counters, status = as_work(as_workspace(workspace).work)
    learned = as_adaptation(adaptation)
    progress, plan = learned.progress, learned.plan
    # No result holds the size of the jumps.
    sought = not progress.given or (plan.tune > 0 and dynamics[0] == types.JUMPING)
    starts = progress.iteration == 0 and sought
    if (starts or progress.restart) and plan.adapt_step:
        progress.restart = 0
        begin_step_size(dynamics, model, workspace, randomness, adaptation, settings, control)
        if control.stop:
            return False
    reset_counters(counters, status, control)
    outcome = transition(dynamics, model, workspace, randomness, settings, stats, control)
    if outcome == S.INTERRUPTED:
        return False
    stats.outcome = outcome
    record_counters(counters, status, stats, control)
    if progress.iteration < plan.tune:
        adapt(dynamics, model, workspace, randomness, adaptation, settings, stats, control)
        if learner[3].shape[0] > 0:
            adapt_length(learner, as_workspace(workspace).tree, progress.iteration, settings)
    progress.iteration += 1
    return True


@entry(
    lambda: nb.int64(
        BLOCK,
        types.RANDOMNESS,
        types.MATRIX,
        types.MATRIX,
        nb.Array(types.STATS_ROW, 1, "C"),
        types.CONTROL,
    ),
    "the sampling loop",
)
def run_draws(
    block: tuple, randomness: tuple, draws: np.ndarray, rows: np.ndarray, stats: np.ndarray, control: np.record
) -> int:
    """Fill `draws` and `rows`, one row per draw, from the state of a block that is alone; return the number of draws.

    There are fewer draws than rows after a stop or a pause, or if a metric is due to be adapted. `stats` are views of the same
    rows by name.
    """
    settings, transition, dynamics, model, workspace, adaptation, learner = block
    state = as_point(as_points(as_workspace(workspace).points).state)
    for k in range(draws.shape[0]):
        if control.stop or control.pause:
            return k
        rows[k] = 0.0
        parts = settings, transition, dynamics, model, workspace, adaptation, learner
        if not take_turn(*parts, randomness, stats[k], control):
            return k
        copy_row(draws[k], state.q)
        count_draw(control, adaptation, stats[k].diverging > 0)
        control.step_size = settings.step_size
        if as_adaptation(adaptation).progress.due:
            return k + 1
    return draws.shape[0]


def run_blocks(
    blocks: tuple[tuple, ...],
    joint: tuple,
    q: np.ndarray,
    gradient: np.ndarray,
    randomness: tuple,
    draws: np.ndarray,
    rows: np.ndarray,
    stats: np.ndarray,
    control: np.record,
) -> int:
    """Do the same for several blocks, starting from the full position `q`; `stats` is (draw, block)."""
    f = as_model(joint)
    for k in range(draws.shape[0]):
        if control.stop or control.pause:
            return k
        rows[k] = 0.0
        diverging = False
        for b in range(len(blocks)):
            if not take_turn_from(blocks[b], q, randomness, stats[k, b], control):
                return k
            diverging = diverging or stats[k, b].diverging > 0
        # A conditional's log density lacks the terms that do not depend on the block.
        lp = f.value_and_gradient(q, f.data, gradient)
        control.gradients += 1
        for b in range(len(blocks)):
            stats[k, b].lp = lp
        copy_row(draws[k], q)
        count_draw(control, blocks[0][2][5], diverging)
    return draws.shape[0]


@jit
def take_turn_from(part: tuple, q: np.ndarray, randomness: tuple, stats: np.record, control: np.record) -> bool:
    """Take a block's turn, which changes the full position `q`; return False if it was stopped."""
    indices, condition, block = part
    settings, transition, dynamics, model, workspace, adaptation, learner = block
    points, _, _, _, work = as_workspace(workspace)
    f, state = as_model(model), as_point(as_points(points).state)
    condition(q, f.data)
    for i in range(indices.shape[0]):
        state.q[i] = q[indices[i]]
    state.log_density[0] = f.value_and_gradient(state.q, f.data, state.gradient)
    control.gradients += 1
    as_work(work).cache.factorised = 0
    if not take_turn(settings, transition, dynamics, model, workspace, adaptation, learner, randomness, stats, control):
        return False
    for i in range(indices.shape[0]):
        q[indices[i]] = state.q[i]
    return True


@jit
def start_between(
    joint: tuple, ladder: tuple, q: np.ndarray, gradient: np.ndarray, randomness: tuple, control: np.record
) -> None:
    """Move the replicas at 0 < b < 1 to draws from the reference before warm-up, unless their density is not finite.

    Replicas that start at one point are in one mode at first.
    """
    f, replicas, target = as_model(joint), ladder[0], ladder[7].target
    for b in range(1, replicas.shape[0] - 1):
        if b == target:
            continue
        draw_from_reference(randomness[0], replicas[b], q)
        finite = math.isfinite(f.value_and_gradient(q, f.data, gradient))
        control.gradients += 1
        for i in range(q.shape[0]):
            finite = finite and math.isfinite(gradient[i])
        if not finite:
            for i in range(q.shape[0]):
                replicas[b, i] = replicas[target, i]


def run_replicas(
    rungs: tuple[tuple, ...],
    joint: tuple,
    ladder: tuple,
    q: np.ndarray,
    gradient: np.ndarray,
    randomness: tuple,
    draws: np.ndarray,
    rows: np.ndarray,
    stats: np.ndarray,
    control: np.record,
) -> int:
    """Do the same for replicas at several temperatures, which swap their positions; `q` and `gradient` are workspace."""
    f, replicas, target, learned = as_model(joint), ladder[0], ladder[7].target, len(rungs) > ladder[7].target
    for k in range(draws.shape[0]):
        if control.stop or control.pause:
            return k
        rows[k] = 0.0
        if ladder[7].iteration == 0 and ladder[6].shape[0] > 0:
            start_between(joint, ladder, q, gradient, randomness, control)
        for end in range(0, len(rungs) + 1, len(rungs)):
            if end == 0 or learned:
                draw_from_reference(randomness[0], replicas[end], q)
                set_log_density(ladder, end, f.value_and_gradient(q, f.data, gradient))
                control.gradients += 1
        for b in range(len(rungs) - 1 if learned else len(rungs)):
            if not take_turn_from(rungs[b], replicas[b + 1], randomness, stats[k, b], control):
                return k
            points = as_workspace(rungs[b][2][4]).points
            set_log_density(ladder, b + 1, as_point(as_points(points).state).log_density[0])
        swap_neighbours(ladder, randomness, stats[k])
        learn_ladder(ladder)
        for i in range(q.shape[0]):
            draws[k, i] = replicas[target, i]
        count_draw(control, rungs[target - 1][2][5], stats[k, target - 1].diverging > 0)
    return draws.shape[0]


@functools.cache
def loop_for(n_blocks: int, replicas: bool = False) -> Entry:
    """Return :func:`run_blocks`, or :func:`run_replicas`, compiled for a number of blocks."""
    return Entry(
        run_replicas if replicas else run_blocks,
        lambda: nb.int64(
            nb.UniTuple(nb.Tuple((types.INTEGERS, types.CONDITION, BLOCK)), n_blocks),
            types.MODEL,
            *([LADDER] if replicas else []),
            types.VECTOR,
            types.VECTOR,
            types.RANDOMNESS,
            types.MATRIX,
            types.MATRIX,
            nb.Array(types.STATS_ROW, 2, "C"),
            types.CONTROL,
        ),
        f"the sampling loop for {n_blocks} {'temperatures' if replicas else 'blocks'}",
    )


class BlockPlan(NamedTuple):
    """Fixed part of a block: conditional, pointers, schedule and options.

    With ``learns_length`` or ``learns_jitter``, warm-up or an earlier result sets the trajectory length or its jitter. With
    ``hierarchical``, the same block on a hierarchical metric, warm-up may change to that, and back.
    """

    name: str
    kernel: str
    conditional: Conditional
    alone: bool
    transition: Callable
    dynamics: Dynamics
    windows: np.ndarray
    length_windows: np.ndarray
    warmup: np.recarray
    settings: np.recarray
    max_depth: int
    learns_length: bool
    learns_jitter: bool
    minibatches: bool
    hierarchical: HierarchicalPlan | None = None
    keeps_momentum: bool = False

    @property
    def chooses_length(self) -> bool:
        """Whether the kernel ends its trajectories by itself, as NUTS does."""
        return self.max_depth > 0 and self.settings[0].trajectory_length == 0

    def compile(self, model_name: str) -> None:
        """Compile, or load from the cache, everything that the block's turn calls."""
        of_block = f", block {self.name}" if self.name else ""
        self.dynamics.compile(model_name + of_block)
        compile_pointer(self.transition, types.TRANSITION.signature, f"the kernel {self.kernel}{of_block}")
        compile_pointer(self.conditional.condition, types.CONDITION.signature, f"the condition{of_block}")

    def pointers(self) -> tuple:
        """Return the conditional, ``types.MODEL``, for one chain, with its own copy of data that change."""
        pointers = self.dynamics.model
        if self.dynamics.metric.position_dependent:
            pointers = self.conditional.model.core.with_room(pointers)
        return pointers if self.alone else (pointers[0].copy(), *pointers[1:])

    def pointers_at(self, q: np.ndarray) -> tuple:
        """Do the same, conditional on the other coordinates of the full position `q`."""
        pointers = self.pointers()
        if not self.alone:
            self.conditional.condition(q, pointers[0])
        return pointers


@dataclass(frozen=True, eq=False)
class HierarchicalPlan:
    """A block's dynamics on a hierarchical metric, and how the hierarchy is searched for; made when they are needed."""

    model: Model
    kernel: Any
    transition: Callable

    @functools.cached_property
    def dynamics(self) -> Dynamics:
        """The dynamics, with rows for a learned metric, which has hyperparameters."""
        made = make_dynamics(self.model, identity(self.model.dim), self.kernel.integrator)
        made.options[0].hyperparameters = 1
        return made

    @property
    def target(self) -> float:
        """The target acceptance."""
        return target_acceptance(self.kernel, self.dynamics.metric)

    @functools.cached_property
    def earlier(self) -> np.ndarray | None:
        """Whether coordinate j may be a parent of i, (d, d), or None. Raises ValueError for unknown names of ``blocks``."""
        blocks = getattr(self.kernel.metric, "blocks", None)
        # In the eight schools, the scale of mu depends on tau, and both are without parents.
        compare, by = (np.less_equal, blocks_of(self.model)) if blocks is None else (np.less, blocks)
        place = None if by is None else places(self.model, by)
        return None if place is None else compare.outer(place, place)

    @functools.cached_property
    def variables(self) -> np.ndarray:
        """Numbers of the variables of the coordinates, (d,)."""
        return np.unique([variable_of(name) for name in self.model.names], return_inverse=True)[1]


class Plan(NamedTuple):
    """Fixed part of a run of a kernel on a model, ``joint``; ``tempered`` is the kernel if its blocks are replicas."""

    blocks: tuple[BlockPlan, ...]
    joint: tuple
    tempered: Tempered | None = None

    @property
    def n_stats(self) -> int:
        return len(self.blocks) * S.N_STATS

    def compile(self, model_name: str) -> None:
        """Compile, or load from the cache, everything that the run calls."""
        loop = run_draws if self.blocks[0].alone else loop_for(len(self.blocks), self.tempered is not None)
        steps = [(block.dynamics.pointers[2], types.STEP.signature) for block in self.blocks]
        transitions = [(block.transition, types.TRANSITION.signature) for block in self.blocks]
        with helpers_for([*steps, *transitions, (loop, None)]):
            compile_pointer(self.joint[1], types.VALUE_AND_GRADIENT.signature, f"the model {model_name}")
            for block in self.blocks:
                block.compile(model_name)
            loop.compile()


def make_plan(model: Model, kernel: AnyKernel, tune: int, fuse: bool = False) -> Plan:
    """Resolve a kernel's defaults for a model.

    Raises the errors of :func:`refhmc.dynamics.assemble.make_dynamics`, ValueError if the blocks are not a partition, and
    ModelError or ShapeError if the kernel cannot be fused.
    """
    if is_tempered(kernel):
        ladder: Any = kernel
        blocks = tuple(make_block(model, *each, tempered(model), tune, fuse) for each in kernels_of(kernel).items())
        Ladder(ladder, model.dim, tune)  # raises the errors of the reference
        return Plan(blocks, model.core.tuple, ladder)
    kernels, parts = kernels_of(kernel).items(), [conditional_of(model, i) for i in indices_of(model, kernel)]
    blocks = tuple(make_block(model, *each, part, tune, fuse) for each, part in zip(kernels, parts, strict=True))
    return Plan(blocks, blocks[0].dynamics.model if blocks[0].alone else model.core.tuple)


def make_block(joint: Model, name: str, kernel: Any, conditional: Conditional, tune: int, fuse: bool) -> BlockPlan:
    model = conditional.model
    adapt_to_flips, jump_target = False, 0.0
    jumping, minibatches = getattr(kernel, "jumping", False), getattr(kernel, "minibatches", False)
    if jumping:
        dynamics = make_discontinuous_dynamics(model, kernel.metric)
    elif minibatches:
        dynamics = make_minibatch_dynamics(model, kernel.metric)
    elif getattr(kernel, "microcanonical", False):
        dynamics = make_microcanonical_dynamics(model, metric_of_block(kernel, model is joint, name), kernel.integrator)
    else:
        dynamics = make_dynamics(model, metric_of_block(kernel, model is joint, name), kernel.integrator)
    metric, keeps_momentum = dynamics.metric, getattr(kernel, "keeps_momentum", False)
    if keeps_momentum and metric.position_dependent and model is not joint:
        raise ValueError(
            f"The metric of block {name!r} must be constant for {type(kernel).__name__}, which keeps its momentum while other "
            f"blocks move; got {type(metric).__name__}. Use Diagonal() or Dense()."
        )
    target = target_acceptance(kernel, metric)
    if jumping and len(model.discontinuous) == model.dim:
        target, adapt_to_flips = kernel.target_no_flip, True
    elif jumping and len(model.discontinuous):
        jump_target = kernel.target_no_flip
    adapt_step = kernel.step_size is None
    warmup, settings = one(PLAN), kernel.settings()
    warmup[0] = (tune, adapt_step, metric.learns, target, adapt_to_flips, jump_target)
    learns_length = getattr(kernel, "learns_length", False)
    lengths = length_windows(tune if learns_length else 0)
    learns_jitter = learns_length and kernel.length_jitter is None
    if len(lengths) and learns_jitter:
        settings["length_jitter"] = DEFAULT_JITTER
    transition, title = kernel.transition, type(kernel).__name__
    if len(lengths):
        transition = RECORDING.get(transition, hmc_recording)
    hierarchical = hierarchical_plan(model, kernel, transition) if model is joint else None
    if fuse:
        functions = functions_to_fuse(model, dynamics)
        transition = fused_transition(transition, dynamics.pointers, functions, model.dim)
        title += f" fused with the model {model.name}"
    elif dynamics.pointers[2] is leapfrog_diagonal and not minibatches:
        transition = transition_with(transition, dynamics.pointers)
    first_step = 1.0 if adapt_step else float(kernel.step_size)
    begin = one(SETTINGS)
    for each, value in {**settings, "step_size": first_step, "jump_size": first_step}.items():
        begin[each] = value
    return BlockPlan(
        name,
        title,
        conditional,
        model is joint,
        transition,
        dynamics,
        schedule_array(tune, metric.learns),
        lengths,
        warmup,
        begin,
        int(settings.get("max_depth", 0)),
        learns_length,
        learns_jitter,
        minibatches,
        hierarchical,
        keeps_momentum,
    )


def hierarchical_plan(model: Model, kernel: Any, transition: Callable) -> HierarchicalPlan | None:
    """Return the alternative for a kernel whose metric is "auto" or ``Hierarchical()``; None for other kernels.

    There is none for dimensions in which too few draws would be kept. Raises ValueError for unknown names of ``blocks``.
    """
    metric, integrator = kernel.metric, kernel.integrator
    learns = isinstance(metric, Hierarchical) and metric.learns != NOTHING
    is_auto = metric is None and integrator is None and isinstance(kernel, HMC | NUTS)
    if not (learns or is_auto) or model.dim * FEWEST > LARGEST:
        return None
    if learns:
        places(model, metric.blocks or ())  # raises the ValueError now, and not in a window
    return HierarchicalPlan(model, kernel, transition)


def places(model: Model, blocks: Sequence[Sequence[str]]) -> np.ndarray:
    """Return the first block of each coordinate, (d,); variables that no block names belong to the last one."""
    place = np.full(model.dim, len(blocks) - 1)
    for k, block in reversed(list(enumerate(blocks))):
        for name in block:
            place[coordinates_of(model, name)] = k
    return place


def metric_of_block(kernel: Kernel, alone: bool, name: str) -> Metric:
    """Return the kernel's metric, with ``Diagonal()`` for "auto" if there are several blocks.

    The conditional of a block, and so its gradient, changes with every turn. Raises ValueError for a metric that is adapted
    from gradients.
    """
    metric, integrator = kernel.metric, kernel.integrator
    if alone:
        return metric
    if metric is None:
        default = default_metric(getattr(integrator, "base", integrator))
        return default if default.learns != FROM_PAIRS else Diagonal()
    if getattr(metric, "learns", 0) == FROM_PAIRS:
        raise ValueError(
            f"The metric of block {name!r} must not be adapted from gradients, because its conditional changes with the other "
            f"blocks; got {type(metric).__name__}. Use Diagonal() or Dense()."
        )
    return metric


class BlockState:
    """A block's state, as plain arrays, and its workspace."""

    # The arrays of the state; everything else is workspace. (The cache describes the metric's workspace, and the next draw adds
    # up the counts.)
    ARRAYS = (
        *("state", "vecs", "mats", "cache", "counters", "status", "mean", "scatter", "gradient_scatter", "kept"),
        *("kept_gradients", "history", "dual", "jump_dual", "progress", "settings"),
        *("length", "length_moments", "length_sums"),
    )

    def __init__(self, plan: BlockPlan) -> None:
        d, dynamics = plan.conditional.model.dim, plan.dynamics
        learns = dynamics.metric.learns
        dense = dynamics.metric.is_dense and learns in (FROM_DRAWS, AS_STAN)
        windows = plan.windows[plan.windows[:, 0] != 0, 1:] if learns == FROM_PAIRS else ()
        used = [stop - earlier_than(start, stop, d) for start, stop in windows]
        n_kept = min(max(used, default=0), LARGEST // d)
        self.plan = plan
        self.points = np.zeros((N_POINTS, dynamics.point_rows, d))
        depth = max(plan.max_depth, int(plan.settings[0].max_stages))
        path, tree = (N_LENGTHS + 1, WATCHED_ROWS, d), (depth + 1, INTERVAL_ROWS, d)
        self.tree = np.zeros(path if len(plan.length_windows) else tree)
        self.normals, self.own = np.zeros(d), dynamics.own()
        self.pointers = plan.pointers()
        self.vecs, self.mats, self.options = dynamics.vecs.copy(), dynamics.mats.copy(), dynamics.options
        self.cache, self.counters, self.status = one(CACHE), one(COUNTERS), one(STATUS)
        self.mean, self.scatter = np.zeros((2, d)), np.zeros((d if dense else 1, d))
        self.gradient_scatter = np.zeros((1, d))
        self.kept, self.kept_gradients = np.zeros((n_kept, d)), np.zeros((n_kept, d))
        self.history = np.zeros((len(plan.windows) if n_kept else 0, len(HISTORY)))
        self.dual, self.jump_dual, self.progress = one(DUAL), one(DUAL), one(PROGRESS)
        self.settings = plan.settings.copy()
        self.dynamics, self.transition, self.warmup = dynamics, plan.transition, plan.warmup.copy()
        sets_the_scale = dynamics.metric.learns != NOTHING or dynamics.metric.position_dependent
        learner = begin_length(d, self.settings, plan.length_windows, sets_the_scale)
        self.length, self.length_moments, self.length_sums = learner

    @property
    def state(self) -> np.ndarray:
        return self.points[0]

    def change_metric(self, hierarchical: bool) -> None:
        """Change to the hierarchical metric, or back to the one of the plan."""
        if hierarchical == bool(self.progress[0].hierarchical):
            return
        to = self.plan.hierarchical
        assert to is not None
        of = to if hierarchical else self.plan
        of.dynamics.compile(self.plan.conditional.model.name)
        self.dynamics, self.transition = of.dynamics, of.transition
        self.vecs, self.mats, self.options = of.dynamics.vecs.copy(), of.dynamics.mats.copy(), of.dynamics.options
        self.own, self.cache = of.dynamics.own(), one(CACHE)
        self.warmup[0].target = to.target if hierarchical else self.plan.warmup[0].target
        self.progress[0].hierarchical = hierarchical

    def start(self, q: np.ndarray) -> None:
        """Set the position, log density and gradient."""
        self.state[Q] = q
        model = self.plan.conditional.model
        self.state[LOG_DENSITY, 0], self.state[GRADIENT] = model.core.value_and_gradient(q)
        if len(self.kept):
            begin_learning(self)
        if len(self.length_moments) and self.dynamics.metric.learns == NOTHING:
            self.length_moments[SLOWNESS] = slowness_of(self.dynamics.metric, model, q)

    @property
    def work(self) -> tuple:
        return self.vecs, self.mats, self.options[0], self.cache[0], self.counters[0], self.status[0]

    @property
    def workspace(self) -> tuple:
        return self.points, self.tree, self.normals, self.own, self.work

    @property
    def adaptation(self) -> tuple:
        arrays = self.mean, self.scatter, self.gradient_scatter, self.kept, self.kept_gradients
        return (*arrays, self.dual[0], self.jump_dual[0], self.progress[0], self.warmup[0], self.plan.windows)

    @property
    def in_loop(self) -> tuple:
        """The block as ``BLOCK``."""
        return (
            *(self.settings[0], self.transition, self.dynamics.pointers, self.pointers),
            *(self.workspace, self.adaptation, self.learner),
        )

    @property
    def learner(self) -> tuple:
        """The adaptation of the length as ``LEARNER``."""
        return self.length[0], self.length_moments, self.length_sums, self.plan.length_windows


class Chain:
    """State of a chain: the full position, the states of the blocks, and a generator."""

    def __init__(self, model: Model, plan: Plan, rng: np.random.Generator) -> None:
        self.model, self.plan, self.rng = model, plan, rng
        self.blocks = [BlockState(block) for block in plan.blocks]
        self.alone = plan.blocks[0].alone
        self.position = self.blocks[0].state[Q] if self.alone else np.zeros(model.dim)
        self.ladder: Ladder | None = None
        if plan.tempered is not None:
            self.ladder = Ladder(plan.tempered, model.dim, int(plan.blocks[0].warmup[0].tune))
            self.position = self.ladder.position
        self.gradient = np.zeros(model.dim)

    def start(self, q: np.ndarray) -> None:
        """Set the position."""
        self.position[:] = q
        if self.alone:
            self.blocks[0].start(q)
        if self.ladder is not None:
            self.ladder.start(q)

    def run(self, draws: np.ndarray, stats: np.ndarray, control: np.record | None = None) -> int:
        """Make ``len(draws)`` more draws; return their number, which is smaller if ``control`` requests a stop or a pause.

        After a pause the chain can continue. A stop may interrupt a draw, so that a chain can only continue from a saved state.
        """
        randomness, run = (
            (self.rng, np.zeros(0), np.zeros(1, np.int64)),
            one(CONTROL)[0] if control is None else control,
        )
        if self.alone:
            done, by_name, block = 0, records(stats, S.STATS), self.blocks[0]
            dynamics, in_loop = block.dynamics, block.in_loop
            while True:
                at = slice(done, None)
                done += run_draws(in_loop, randomness, draws[at], stats[at], by_name[at], run)
                if not learn_if_due(block):
                    return done
                if block.dynamics is not dynamics:  # the metric has become hierarchical, or no longer is
                    dynamics, in_loop = block.dynamics, block.in_loop
        blocks, n = tuple(block.in_loop for block in self.blocks), len(self.blocks)
        conditionals = [block.plan.conditional for block in self.blocks]
        parts = tuple((c.indices, c.condition, block) for c, block in zip(conditionals, blocks, strict=True))
        by_name = records(stats.reshape(len(stats), n, S.N_STATS), S.STATS)
        rows = randomness, draws, stats, by_name, run
        if self.ladder is not None:
            q = np.zeros_like(self.gradient)
            return loop_for(n, True)(parts, self.plan.joint, self.ladder.in_loop, q, self.gradient, *rows)
        return loop_for(n)(parts, self.plan.joint, self.position, self.gradient, *rows)

    def lengths(self) -> tuple[tuple[str, float], ...]:
        """Return name and present trajectory length of each block whose length is adapted or comes from a result."""
        known = (b for b in self.blocks if len(b.plan.length_windows) or (b.plan.learns_length and b.progress.given[0]))
        return tuple((b.plan.name, float(b.length.length[0])) for b in known)

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of the state by name."""
        blocks = enumerate(self.blocks)
        of_blocks = {f"{name}{k or ''}": getattr(block, name) for k, block in blocks for name in block.ARRAYS}
        of_ladder = {} if self.ladder is None else {name: getattr(self.ladder, name) for name in Ladder.ARRAYS}
        return {**of_blocks, **of_ladder, "position": self.position}

    def to_bytes(self) -> bytes:
        """Return the state as an ``.npz`` archive without pickles: arrays, and the generator's state as JSON."""
        buffer = io.BytesIO()
        np.savez(buffer, generator=np.array(json.dumps(self.rng.bit_generator.state)), **self.arrays())
        return buffer.getvalue()

    def restore(self, saved: bytes) -> Chain:
        """Restore a saved state; :mod:`refhmc.sampling.storage.saved_state` checks its values.

        Raises CheckpointError, with the name of the field, unless its arrays have the shapes and types of this model and
        kernel.
        """
        try:
            arrays = read_arrays(io.BytesIO(saved))
            generator = json.loads(str(arrays.pop("generator")))
        except Exception as error:
            raise CheckpointError(f"The saved chain state cannot be read: {type(error).__name__}: {error}.") from error
        if self.blocks[0].plan.hierarchical is not None:
            progress = arrays.get("progress", np.zeros(0))
            self.blocks[0].change_metric(progress.dtype == PROGRESS and bool(progress["hierarchical"].all()))
        own = self.arrays()
        if arrays.keys() != own.keys():
            odd = ", ".join(sorted(arrays.keys() ^ own.keys()))
            raise CheckpointError(f"The saved chain state must have the fields of this kernel; it differs in {odd}.")
        for name, array in own.items():
            there = arrays[name]
            if array.shape != there.shape or array.dtype != there.dtype:
                found = f"{there.dtype.str} of shape {there.shape}"
                expected = f"{array.dtype.str} of shape {array.shape}"
                raise CheckpointError(f"The saved field {name!r} of the state must be {expected}; got {found}.")
            array[...] = there
        if self.blocks[0].plan.hierarchical is not None and self.blocks[0].progress[0].hierarchical:
            try:
                put_levels(self.blocks[0])
            except (ValueError, MetricError) as error:
                raise CheckpointError(f"The saved metric is not a hierarchical one: {error}") from error
        if self.alone and not np.array_equal(arrays["state"][Q], arrays["position"], equal_nan=True):
            raise CheckpointError("The saved position must equal that of the saved state.")
        try:
            self.rng.bit_generator.state = state_of_generator(generator)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"The saved generator must be a state of PCG64 ({error}).") from None
        return self


def state_of_generator(saved: dict[str, Any]) -> dict[str, Any]:
    """Return a saved state of PCG64 after a check of its ranges; raises KeyError, TypeError or ValueError."""
    limits = {"state": 2**128, "inc": 2**128, "has_uint32": 2, "uinteger": 2**32}
    numbers = {**saved["state"], "has_uint32": saved["has_uint32"], "uinteger": saved["uinteger"]}
    if saved["bit_generator"] != "PCG64" or numbers.keys() != limits.keys():
        raise ValueError("unknown fields")
    for name, limit in limits.items():
        if type(numbers[name]) is not int or not 0 <= numbers[name] < limit:
            raise ValueError(f"{name} is {numbers[name]!r}")
    if not numbers["inc"] % 2:
        raise ValueError("inc is even")
    return saved
