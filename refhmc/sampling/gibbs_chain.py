"""A chain of :class:`refhmc.Gibbs`: one full position, and for each block a chain of its own that lends it its parts.

A block's chain (:class:`refhmc.sampling.chain.Chain`) brings workspace, settings, metric and adaptation; its model is the
block's conditional, whose data are rewritten from the full position before each of its turns. All blocks draw from one
generator, in the order of their turns: for each the randomness of its own kernel (:mod:`refhmc.core.randomness`). With one
block of all coordinates the draws are bit for bit those of its kernel alone.
"""

from __future__ import annotations

import functools
import io
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numba
import numpy as np
from numba import types as nb

from refhmc.adaptation.warmup import ADAPTATION, adapt, as_adaptation, begin_step_size
from refhmc.core import compiled, types
from refhmc.core import sample_stats as S
from refhmc.core.compiled import Entry, jit
from refhmc.core.point import as_point
from refhmc.core.records import records
from refhmc.core.types import as_model, as_points, as_work, as_workspace
from refhmc.errors import CheckpointError, ShapeError
from refhmc.models.conditionals import Conditional, conditional_of
from refhmc.sampling.chain import Chain, Plan, control_record, make_plan, record_counters, reset_counters

if TYPE_CHECKING:
    from refhmc.models.base import Model

compiled.silence_experimental()
BLOCK = nb.Tuple(
    (
        types.INTEGERS,
        types.TRANSITION,
        types.DYNAMICS,
        types.MODEL,
        types.WORKSPACE,
        ADAPTATION,
        types.SETTINGS,
        types.CONDITION,
    )
)
ROWS_OF_BLOCKS = nb.Array(numba.from_dtype(S.STATS), 2, "C")


@jit
def take_turn(block: tuple, q: np.ndarray, randomness: tuple, stats: Any, control: Any) -> bool:
    """One transition of a block from the full position ``q``, which it changes; False if it was stopped."""
    indices, transition, dynamics, model, workspace, adaptation, settings, condition = block
    points, _, _, _, _, work = as_workspace(workspace)
    _, _, _, cache, counters, status = as_work(work)
    f, state, learned = as_model(model), as_point(as_points(points).state), as_adaptation(adaptation)
    condition(q, f.data)
    for i in range(indices.shape[0]):
        state.q[i] = q[indices[i]]
    state.log_density[0] = f.value_and_gradient(state.q, f.data, state.gradient)
    control.gradients += 1
    cache.factorised = 0
    if learned.progress.iteration == 0 and learned.plan.adapt_step:
        begin_step_size(dynamics, model, workspace, randomness, adaptation, settings, control)
    reset_counters(counters, status, control)
    outcome = transition(dynamics, model, workspace, randomness, settings, stats, control)
    if outcome == S.INTERRUPTED:
        return False
    stats.outcome = outcome
    record_counters(counters, status, stats, control)
    for i in range(indices.shape[0]):
        q[indices[i]] = state.q[i]
    if learned.progress.iteration < learned.plan.tune:
        adapt(dynamics, model, workspace, randomness, adaptation, settings, stats, control)
    learned.progress.iteration += 1
    return True


def run_blocks(
    blocks: tuple[tuple, tuple],
    joint: tuple,
    q: np.ndarray,
    gradient: np.ndarray,
    randomness: tuple,
    draws: np.ndarray,
    rows: np.ndarray,
    stats: np.ndarray,
    control: Any,
) -> int:
    """Fill ``draws`` and ``rows``, one row a draw, from the full position ``q`` on; returns how many were made.

    ``stats`` (draw, block) are the same rows by name.
    """
    f = as_model(joint)
    for k in range(draws.shape[0]):
        if control.stop or control.pause:
            return k
        rows[k] = 0.0
        diverging = False
        for b in range(len(blocks)):
            if not take_turn(blocks[b], q, randomness, stats[k, b], control):
                return k
            diverging = diverging or stats[k, b].diverging > 0
        # A conditional's log density lacks what does not depend on the block.
        lp = f.value_and_gradient(q, f.data, gradient)
        control.gradients += 1
        for b in range(len(blocks)):
            stats[k, b].lp = lp
        for i in range(q.shape[0]):
            draws[k, i] = q[i]
        control.draws_done += 1
        control.divergences += int(diverging)
    return draws.shape[0]


@functools.cache
def loop_for(n_blocks: int) -> Entry:
    """The loop, compiled once for each number of blocks."""
    return Entry(
        run_blocks,
        lambda: nb.int64(
            nb.UniTuple(BLOCK, n_blocks),
            types.MODEL,
            types.VECTOR,
            types.VECTOR,
            types.RANDOMNESS,
            types.MATRIX,
            types.MATRIX,
            ROWS_OF_BLOCKS,
            types.CONTROL,
        ),
        f"the Gibbs loop for {n_blocks} blocks",
    )


class Block(NamedTuple):
    """A block's name, its conditional and the plan of its kernel on that."""

    name: str
    conditional: Conditional
    plan: Plan


class GibbsPlan(NamedTuple):
    """What a run needs beside the chain's state."""

    blocks: list[Block]
    joint: tuple

    @property
    def n_stats(self) -> int:
        return len(self.blocks) * S.N_STATS

    @property
    def metric(self) -> Any:
        """What the start is checked for: the blocks' metrics (:func:`refhmc.sampling.initialization.check_metric`)."""
        return tuple((block.conditional.indices, block.plan.metric) for block in self.blocks)

    def chain(self, model: Model, rng: np.random.Generator) -> GibbsChain:
        return GibbsChain(model, self, rng)

    def compile(self, model_name: str, title: str) -> None:
        """Compile, or load from the cache, all that the run will call."""
        compiled.compile_pointer(self.joint[1], types.VALUE_AND_GRADIENT.signature, f"the model {model_name}")
        for name, (_, _, condition), plan in self.blocks:
            plan.compile(f"{model_name}, block {name}", f"the kernel of block {name}", alone=False)
            compiled.compile_pointer(condition, types.CONDITION.signature, f"the condition of block {name}")
        loop_for(len(self.blocks)).compile()


def make_gibbs_plan(model: Model, kernel: Any, tune: int) -> GibbsPlan:
    """Raises what :func:`refhmc.sampling.chain.make_plan` does for each block, ValueError for blocks that are no partition."""
    blocks = []
    for name, indices, each in zip(kernel.names, kernel.indices(model), kernel.kernels, strict=True):
        conditional = conditional_of(model, indices)
        blocks.append(Block(name, conditional, make_plan(conditional.model, each, tune)))
    return GibbsPlan(blocks, model.core.tuple)


class GibbsChain:
    """The full position and the blocks' chains; used as :class:`refhmc.sampling.chain.Chain` is."""

    def __init__(self, model: Model, plan: GibbsPlan, rng: np.random.Generator) -> None:
        self.model, self.plan, self.rng = model, plan, rng
        self.chains = [Chain(block.conditional.model, block.plan, rng) for block in plan.blocks]
        # The conditionals' data hold the other blocks' values: each chain has its own.
        self.data = [chain.plan.dynamics.model[0].copy() for chain in self.chains]
        self.position, self.gradient = np.zeros(model.dim), np.zeros(model.dim)

    def start(self, q: np.ndarray) -> None:
        """Put the chain at ``q``."""
        self.position[:] = q

    def run(self, draws: np.ndarray, stats: np.ndarray, control: np.ndarray | None = None) -> int:
        """Make ``len(draws)`` more draws; returns how many were made, as :meth:`refhmc.sampling.chain.Chain.run` does."""
        for name, array, columns in (("draws", draws, self.model.dim), ("stats", stats, self.plan.n_stats)):
            if array.shape != (len(draws), columns) or array.dtype != float or not array.flags.c_contiguous:
                raise ShapeError(f"{name}: expected a contiguous float64 array ({len(draws)}, {columns})")
        blocks = tuple(self._block(k) for k in range(len(self.chains)))
        return loop_for(len(blocks))(
            blocks,
            self.plan.joint,
            self.position,
            self.gradient,
            (self.rng, np.zeros(0), np.zeros(1, np.int64)),
            draws,
            stats,
            records(stats.reshape(len(stats), len(blocks), S.N_STATS), S.STATS),
            control_record(control),
        )

    def _block(self, k: int) -> tuple:
        chain, (_, conditional, plan) = self.chains[k], self.plan.blocks[k]
        return (
            conditional.indices,
            plan.transition,
            plan.dynamics.pointers,
            (self.data[k], *plan.dynamics.model[1:]),
            chain.workspace,
            chain.adaptation,
            chain.settings[0],
            conditional.condition,
        )

    def to_bytes(self) -> bytes:
        """The state as an ``.npz`` archive (no pickle): position, the blocks' states, the bit generator's as JSON."""
        buffer = io.BytesIO()
        arrays = {f"{k}_{name}": getattr(c, name) for k, c in enumerate(self.chains) for name in c.STATE_ARRAYS}
        generator = np.array(json.dumps(self.rng.bit_generator.state))
        np.savez(buffer, position=self.position, generator=generator, **arrays)
        return buffer.getvalue()

    def restore(self, saved: bytes) -> GibbsChain:
        """Take on a saved state. Raises CheckpointError if it does not belong to this model and kernel."""
        try:
            with np.load(io.BytesIO(saved), allow_pickle=False) as archive:
                position, generator = archive["position"], json.loads(str(archive["generator"]))
                states = [{n: archive[f"{k}_{n}"] for n in c.STATE_ARRAYS} for k, c in enumerate(self.chains)]
        except Exception as error:
            raise CheckpointError(f"the saved chain state cannot be read: {error}") from error
        if position.shape != self.position.shape:
            raise CheckpointError(f"saved position: expected shape {self.position.shape}, got {position.shape}")
        for chain, arrays in zip(self.chains, states, strict=True):
            chain.take_on(arrays)
        self.position[:] = position
        self.rng.bit_generator.state = generator
        return self
