"""One chain of a run, from its seed or its checkpoint to its last draw."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from refhmc.adaptation.adapted import Adapted, adapted_of, begin_from
from refhmc.core.failures import Failure, FailureLog
from refhmc.core.records import DRAWS_DONE, FIRST, N_CONTROL, PAUSE, STOP
from refhmc.errors import CheckpointError
from refhmc.models.base import Model
from refhmc.sampling.chain import Chain, Plan, make_plan
from refhmc.sampling.checkpoint import Checkpoint, Saved
from refhmc.sampling.initialization import pathfinder_start, random_start

CHUNK = 256  # draws at a time in warm-up that is written over
PAUSE_EVERY = 0.5  # seconds between two states that are kept for a checkpoint
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
    lengths: tuple[tuple[str, float], ...] = ()  # trajectory lengths that warm-up learned: block, length
    adapted: dict[str, Adapted] | None = None  # of each block, where warm-up came to its end
    no_pathfinder: str = ""  # why the chain did not begin where Pathfinder, asked for, would have it


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
    kept = tune if keep_warmup or 8 * tune * dim <= SMALL_WARMUP else 0
    return Rows(np.zeros((kept + draws, dim)), np.zeros((kept + draws, n_stats)), tune - kept, kept)


def chain_generator(entropy: int, chain: int, *child: int) -> np.random.Generator:
    """The generator of chain k: PCG64(SeedSequence(entropy, spawn_key=(k,))), whatever else is run; that of Pathfinder, its
    first child: spawn_key=(k, 0)."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(chain, *child))))


def run_chain(
    model: Model,
    kernel: Any,
    chain: int,
    entropy: int,
    start: np.ndarray | None,
    draws: int,
    tune: int,
    keep_warmup: bool,
    checkpoint: Checkpoint | None = None,
    control: np.ndarray | None = None,
    rows: Rows | None = None,
    fuse: bool = False,
    plan: Plan | None = None,
    adapted: Adapted | None = None,
    init: str = "uniform",
) -> ChainRun:
    """One chain from its seed, or its checkpoint, to its last draw. The model's exceptions are carried back. ``plan``: that of
    the run, where the chain is in the run's process. ``adapted``: what its warm-up begins from. ``init``: as ``sample`` has it.

    With a checkpoint the loop pauses twice a second, after a draw; the state there is kept, and is written every few seconds.
    A stop may come in the middle of a draw: then the state after the draw before it is made anew from the one kept last.
    """
    control = np.zeros(N_CONTROL, np.int64) if control is None else control
    rng = chain_generator(entropy, chain)
    plan = make_plan(model, kernel, tune, fuse) if plan is None else plan
    state = Chain(model, plan, rng)
    total = tune + draws
    rows = make_rows(model.dim, plan.n_stats, draws, tune, keep_warmup) if rows is None else rows
    dropped, kept = rows.dropped, rows.kept
    scratch = np.zeros((CHUNK, model.dim)), np.zeros((CHUNK, plan.n_stats))
    start_of_draws, done, unsaved, no_pathfinder = np.full(model.dim, np.nan), 0, "", ""
    saved: Saved | None = None
    error: BaseException | None = None

    def begin() -> bool:
        """Put the chain at its start; False if a stop came before that was found. Then nothing may be saved."""
        nonlocal start_of_draws, no_pathfinder
        q = random_start(model, plan, rng, chain) if start is None else start
        if init == "pathfinder":
            child = chain_generator(entropy, chain, 0)
            found, no_pathfinder = pathfinder_start(model, plan, q, child, chain, control)
            if found is None:
                return False
            q = found
        state.start(q)
        if adapted is not None:
            begin_from(state.blocks[0], adapted)
        if tune == 0:
            start_of_draws = state.position.copy()
        return True

    def run_on(end: int, control: np.ndarray) -> bool:
        """Make draws until there are ``end``; False if a pause or a stop came before."""
        nonlocal done, start_of_draws
        while done < end:
            limit = end if done >= dropped else min(end, dropped, done + CHUNK)
            at = slice(done - dropped, limit - dropped)
            draws, stats = (rows.draws[at], rows.stats[at]) if done >= dropped else (x[: limit - done] for x in scratch)
            done += state.run(draws, stats, control)
            if done == tune:
                start_of_draws = state.position.copy()
            if done < limit:
                return False
        return True

    def keep(control: np.ndarray) -> Saved:
        n = max(done - dropped, 0)
        kept = state.to_bytes(), done, rows.draws[:n], rows.stats[:n], start_of_draws, control.copy()
        return Saved(*kept, no_pathfinder)

    def save(checkpoint: Checkpoint, saved: Saved, now: bool = False) -> None:
        """The chain goes on where a file cannot be written: a disk that is full may have room at the next try."""
        nonlocal unsaved
        try:
            checkpoint.save(chain, saved, now=now)
            unsaved = ""
        except OSError as failed:
            unsaved = f"{type(failed).__name__}: {failed}"

    def run_and_save(checkpoint: Checkpoint) -> None:
        nonlocal saved
        saved = keep(control)
        with pausing(control):
            while not run_on(total, control) and not control[STOP]:
                control[PAUSE] = 0
                saved = keep(control)
                save(checkpoint, saved)
        if done == total:
            saved = keep(control)

    def return_to(end: int, saved: Saved) -> Saved:
        """The state after the ``end``-th iteration, less than a second from the one kept."""
        nonlocal done
        control = saved.control.copy()
        control[[STOP, PAUSE]] = 0
        model.core.begin_failures(control)
        state.restore(saved.state)
        done = saved.done
        run_on(end, control)
        return keep(control)

    failures, error_position = FailureLog(), None
    with contextlib.ExitStack() as held:
        try:
            there = None
            if checkpoint is not None:
                held.enter_context(checkpoint.writing(chain))
                there = checkpoint.load(chain)
            if there is not None:
                restore(state, there, checkpoint.path(chain))  # type: ignore[union-attr]
                done, start_of_draws, no_pathfinder = there.done, there.start_of_draws, there.no_pathfinder
                control[DRAWS_DONE:] = there.control[DRAWS_DONE:]
                control[FIRST] = done
                rows.draws[: len(there.draws)], rows.stats[: len(there.stats)] = there.draws, there.stats
            if there is not None or begin():
                failures = model.core.begin_failures(control)  # the tries for a start do not count
                if checkpoint is None:
                    run_on(total, control)
                else:
                    run_and_save(checkpoint)
        except BaseException as caught:  # carried to the caller, who raises it with the draws attached
            error, error_position = caught, model.core.last_position.get(threading.get_ident())
            done = int(control[DRAWS_DONE])
        made = done
        if checkpoint is not None and saved is not None:
            if saved.done < made:
                # Should the model raise where it did not before, the older state stays.
                with contextlib.suppress(Exception):
                    saved = return_to(made, saved)
            save(checkpoint, saved, now=True)
    if kept and made >= tune:
        start_of_draws = rows.draws[tune - 1]
    return ChainRun(
        *rows.after(made, keep_warmup),
        start_of_draws,
        control,
        error,
        error_position,
        list(failures.found.values()),
        unsaved,
        state.lengths(),
        {block.plan.name: adapted_of(block) for block in state.blocks} if made >= tune else None,
        no_pathfinder,
    )


def restore(state: Any, saved: Saved, path: Any) -> None:
    """Take on a chain's saved state. Raises CheckpointError with the file's name if it is not this model's and kernel's."""
    try:
        state.restore(saved.state)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error


@contextlib.contextmanager
def pausing(control: np.ndarray) -> Iterator[None]:
    """Ask the chain, every half second, to come out of the core after its present draw."""
    over = threading.Event()

    def ask() -> None:
        while not over.wait(PAUSE_EVERY):
            control[PAUSE] = 1

    asking = threading.Thread(target=ask, name="refhmc-pause", daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
        control[PAUSE] = 0
