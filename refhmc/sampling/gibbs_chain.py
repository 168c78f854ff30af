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
import math
from typing import NamedTuple

import numpy as np
from numba import types as nb

from refhmc.core import compiled, types
from refhmc.core import sample_stats as S
from refhmc.core.compiled import Entry, jit
from refhmc.core.point import GRADIENT, LOG_DENSITY, Q
from refhmc.core.randomness import fill_normals
from refhmc.core.types import DIVERGENCES, DRAWS_DONE, GRADIENTS, N_CONTROL, PAUSE, SETTLED, STATE, STOP
from refhmc.errors import CheckpointError, ShapeError
from refhmc.models.conditionals import Conditional, conditional_of
from refhmc.sampling.chain import (
    ADAPT_STEP,
    ADAPTATION,
    ITERATION,
    TUNE,
    Chain,
    Plan,
    adapt,
    begin_step_size,
    close_notes,
    make_plan,
    open_notes,
    stay,
)

compiled.silence_experimental()
BLOCK = nb.Tuple(
    (
        types.TRANSITION,
        types.DYNAMICS,
        types.MODEL,
        types.WORKSPACE,
        ADAPTATION,
        types.VECTOR,
        types.VECTOR,
        types.MATRIX_OF_INTEGERS,
        types.VECTOR,
        types.INTEGERS,
        types.CONDITION,
    )
)


@jit
def take_turn(block, q, randomness, stats, control):
    """One transition of a block from the full position ``q``, which it changes; False if it was stopped."""
    transition, dynamics, model, workspace, adaptation, normals, settings, windows, plan, indices, condition = block
    points, _, vecs, mats, _ = workspace
    dual, counters, notes = adaptation[3], adaptation[4], dynamics[4]
    state = points[STATE]
    condition(q, model[3])
    for i in range(indices.shape[0]):
        state[Q, i] = q[indices[i]]
    state[LOG_DENSITY, 0] = model[0](state[Q], model[3], state[GRADIENT])
    control[GRADIENTS] += 1
    notes[SETTLED] = 0.0
    if counters[ITERATION] == 0 and plan[ADAPT_STEP]:
        begin_step_size(dynamics, model, workspace, randomness, dual, normals, settings, control)
    fill_normals(randomness[0], normals)
    open_notes(notes, control)
    H0 = dynamics[1](model, dynamics[3], state, normals, vecs, mats, notes)
    if math.isfinite(H0):
        outcome = transition(dynamics, model, workspace, randomness, H0, settings, stats, control)
    else:
        outcome = stay(state, notes, settings, stats)
    if outcome == S.INTERRUPTED:
        return False
    stats[S.OUTCOME] = outcome
    close_notes(notes, stats, control)
    for i in range(indices.shape[0]):
        q[indices[i]] = state[Q, i]
    if counters[ITERATION] < plan[TUNE]:
        adapt(dynamics, model, workspace, randomness, adaptation, normals, settings, windows, plan, stats, control)
    counters[ITERATION] += 1
    return True


def run_blocks(blocks, joint, q, slope, randomness, draws, stats, control):
    """Fill ``draws`` and ``stats``, one row a draw, from the full position ``q`` on; returns how many were made."""
    value_and_gradient, _, _, data = joint
    for k in range(draws.shape[0]):
        if control[STOP] or control[PAUSE]:
            return k
        stats[k] = 0.0
        diverging = False
        for b in range(len(blocks)):
            row = stats[k, b * S.N_STATS : (b + 1) * S.N_STATS]
            if not take_turn(blocks[b], q, randomness, row, control):
                return k
            diverging = diverging or row[S.DIVERGING] > 0
        # A conditional's log density lacks what does not depend on the block.
        lp = value_and_gradient(q, data, slope)
        control[GRADIENTS] += 1
        for b in range(len(blocks)):
            stats[k, b * S.N_STATS + S.LP] = lp
        for i in range(q.shape[0]):
            draws[k, i] = q[i]
        control[DRAWS_DONE] += 1
        control[DIVERGENCES] += int(diverging)
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
            types.INTEGERS,
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
    def metric(self):
        """What the start is checked for: the blocks' metrics (:func:`refhmc.sampling.initialization.check_metric`)."""
        return tuple((block.conditional.indices, block.plan.metric) for block in self.blocks)

    def chain(self, model, rng: np.random.Generator) -> GibbsChain:
        return GibbsChain(model, self, rng)

    def compile(self, model_name: str, title: str) -> None:
        """Compile, or load from the cache, all that the run will call."""
        compiled.compile_pointer(self.joint[0], types.VALUE_AND_GRADIENT.signature, f"the model {model_name}")
        for name, (_, _, condition), plan in self.blocks:
            plan.compile(f"{model_name}, block {name}", f"the kernel of block {name}", alone=False)
            compiled.compile_pointer(condition, types.CONDITION.signature, f"the condition of block {name}")
        loop_for(len(self.blocks)).compile()


def make_gibbs_plan(model, kernel, tune: int) -> GibbsPlan:
    """Raises what :func:`refhmc.sampling.chain.make_plan` does for each block, ValueError for blocks that are no partition."""
    blocks = []
    for name, indices, each in zip(kernel.names, kernel.indices(model), kernel.kernels, strict=True):
        conditional = conditional_of(model, indices)
        blocks.append(Block(name, conditional, make_plan(conditional.model, each, tune)))
    return GibbsPlan(blocks, model.core.tuple)


class GibbsChain:
    """The full position and the blocks' chains; used as :class:`refhmc.sampling.chain.Chain` is."""

    def __init__(self, model, plan: GibbsPlan, rng: np.random.Generator):
        self.model, self.plan, self.rng = model, plan, rng
        self.chains = [Chain(block.conditional.model, block.plan, rng) for block in plan.blocks]
        # The conditionals' data hold the other blocks' values: each chain has its own.
        self.data = [chain.plan.dynamics.model[3].copy() for chain in self.chains]
        self.position, self.slope = np.zeros(model.dim), np.zeros(model.dim)

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
            self.slope,
            (self.rng, np.zeros(0), np.zeros(1, np.int64)),
            draws,
            stats,
            np.zeros(N_CONTROL, np.int64) if control is None else control,
        )

    def _block(self, k: int) -> tuple:
        chain, (_, conditional, plan) = self.chains[k], self.plan.blocks[k]
        return (
            plan.transition,
            (*plan.dynamics.pointers, chain.notes),
            (*plan.dynamics.model[:3], self.data[k]),
            chain.workspace,
            (chain.mean, chain.scatter, chain.gradient_scatter, chain.dual, chain.counters),
            chain.normals,
            chain.settings,
            plan.windows,
            plan.options,
            conditional.indices,
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
