"""One chain of a run, from its seed or its checkpoint to its last draw."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from refhmc.chain import make_plan
from refhmc.checkpoint import Checkpoint, Saved
from refhmc.errors import CheckpointError
from refhmc.failures import Failure, FailureLog
from refhmc.model import Model
from refhmc.starts import random_start
from refhmc.types import DRAWS_DONE, N_CONTROL, STOP

CHUNK = 256  # draws at a time in warm-up that is written over, and between looks at a checkpoint
SMALL_WARMUP = 2**26  # bytes of warm-up draws that are worth keeping until the end of the run


class ChainRun(NamedTuple):
    """What one chain brings back: plain arrays, so that it can come from another process."""

    draws: np.ndarray
    stats: np.ndarray
    warmup_draws: np.ndarray
    warmup_stats: np.ndarray
    start: np.ndarray  # the position after warm-up
    control: np.ndarray
    error: BaseException | None
    error_position: np.ndarray | None
    failures: list[Failure]  # of this session, where the chain comes from a checkpoint
    unsaved: str = ""  # why the checkpoint at the end could not be written


class Rows(NamedTuple):
    """Where a chain writes its iterations, a row each: ``dropped`` of warm-up are not kept, then ``kept`` are, then the draws.

    Whoever made the rows can read those that are written, whatever becomes of the chain.
    """

    draws: np.ndarray
    stats: np.ndarray
    dropped: int
    kept: int

    def after(self, done: int, keep_warmup: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Draws and statistics, and those of warm-up if it is asked for, after ``done`` iterations."""
        warm, n = min(done, self.kept) if keep_warmup else 0, max(done - self.dropped, self.kept)
        return self.draws[self.kept : n], self.stats[self.kept : n], self.draws[:warm], self.stats[:warm]


def make_rows(dim: int, n_stats: int, draws: int, tune: int, keep_warmup: bool) -> Rows:
    """Rows for a chain. Warm-up that nobody asked for is written over if it would need much memory."""
    # A call into the core costs a millisecond: the whole run is one, unless warm-up would need much memory that nobody
    # wants kept, or there is a checkpoint to write now and then.
    kept = tune if keep_warmup or 8 * tune * dim <= SMALL_WARMUP else 0
    return Rows(np.zeros((kept + draws, dim)), np.zeros((kept + draws, n_stats)), tune - kept, kept)


def chain_generator(entropy: int, chain: int) -> np.random.Generator:
    """The generator of chain k: PCG64(SeedSequence(entropy, spawn_key=(k,))), whatever else is run."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(chain,))))


def run_chain(
    model: Model,
    kernel,
    chain: int,
    entropy: int,
    start: np.ndarray | None,
    draws: int,
    tune: int,
    keep_warmup: bool,
    checkpoint: Checkpoint | None = None,
    control: np.ndarray | None = None,
    rows: Rows | None = None,
) -> ChainRun:
    """One chain from its seed, or its checkpoint, to its last draw. The model's exceptions are carried back."""
    control = np.zeros(N_CONTROL, np.int64) if control is None else control
    rng = chain_generator(entropy, chain)
    plan = make_plan(model, kernel, tune)
    state = plan.chain(model, rng)
    total = tune + draws
    rows = make_rows(model.dim, plan.n_stats, draws, tune, keep_warmup) if rows is None else rows
    dropped, kept = rows.dropped, rows.kept
    start_of_draws, done, saved, error, unsaved = np.full(model.dim, np.nan), 0, None, None, ""

    def save(now: bool = False) -> None:
        """The chain goes on where a file cannot be written: a disk that is full may have room at the next try."""
        nonlocal unsaved
        assert checkpoint is not None
        assert saved is not None
        try:
            checkpoint.save(chain, saved, now=now)
            unsaved = ""
        except OSError as failed:
            unsaved = f"{type(failed).__name__}: {failed}"

    def run_to_the_end() -> None:
        """Chunk after chunk from where the state stands, until the last draw or a stop."""
        nonlocal done, saved, start_of_draws
        scratch = np.zeros((CHUNK, model.dim)), np.zeros((CHUNK, plan.n_stats))
        while done < total:
            limit = total if done >= dropped else dropped
            size = limit - done if checkpoint is None and done >= dropped else min(CHUNK, limit - done)
            at = slice(done - dropped, done - dropped + size)
            target = (rows.draws[at], rows.stats[at]) if done >= dropped else (scratch[0][:size], scratch[1][:size])
            made = state.run(*target, control)
            done += made
            if done == tune:
                start_of_draws = state.position.copy()
            if made < size:
                return
            if checkpoint is not None:
                n = max(done - dropped, 0)
                saved = Saved(state.to_bytes(), done, rows.draws[:n], rows.stats[:n], start_of_draws, control.copy())
                save()

    failures = FailureLog()
    try:
        there = checkpoint.load(chain) if checkpoint is not None else None
        if there is None:
            state.start(random_start(model, rng, chain, plan.metric) if start is None else start)
        else:
            if there.done > total:
                raise CheckpointError(
                    f"chain {chain} of the checkpoint has {there.done - tune} draws, asked for {draws}"
                )
            state.restore(there.state)
            done, start_of_draws = there.done, there.start_of_draws
            control[STOP + 1 :] = there.control[STOP + 1 :]
            rows.draws[: len(there.draws)], rows.stats[: len(there.stats)] = there.draws, there.stats
        if tune == 0 and there is None:
            start_of_draws = state.position.copy()
        failures = model.core.begin_failures(control)  # the tries for a start do not count
        run_to_the_end()
    except BaseException as caught:  # carried to the caller, who raises it with the draws attached
        error = caught
        done = int(control[DRAWS_DONE])
    if checkpoint is not None and saved is not None:
        save(now=True)
    if kept and done >= tune:
        start_of_draws = rows.draws[tune - 1]
    return ChainRun(
        *rows.after(done, keep_warmup),
        start_of_draws,
        control,
        error,
        None if error is None else model.core.last_position.get(threading.get_ident()),
        list(failures.found.values()),
        unsaved,
    )
