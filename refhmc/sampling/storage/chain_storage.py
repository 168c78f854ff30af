"""Storage of one chain's rows: in memory, in a checkpoint's folder, in a store.

Without a store, rows are in the result's own arrays (:mod:`refhmc.sampling.storage.in_memory`) and in the checkpoint, if there
is one. With a store, memory holds the rows of one chunk. Full chunks go to the store, and the checkpoint's rows start again. If
the disk cannot be written, the rows stay in memory, which grows, and writing is tried again later.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from refhmc.errors import CheckpointError
from refhmc.sampling.storage.append_only import Rows
from refhmc.sampling.storage.in_memory import RowsOfChain
from refhmc.sampling.storage.saved_state import check_saved

if TYPE_CHECKING:
    from refhmc.sampling.chains.chain import Plan
    from refhmc.sampling.chains.chain_run import ChainTask
    from refhmc.sampling.storage.checkpoint import Checkpoint, Saved
    from refhmc.sampling.storage.in_memory import Memory
    from refhmc.sampling.storage.store import Store

STORE_EVERY = 10.0  # seconds after which a partial chunk is written, so that readers see it
TRY_AGAIN = 3.0  # seconds before another attempt to write to a store


class Keeper:
    """Rows of one chain.

    ``rows`` are those in memory, including space for the next ones. ``saved`` is the chain's state from an earlier session.
    ``unsaved`` and ``unstored`` are the reasons why checkpoint and store are older than the draws, or "". `memory` holds the
    arrays of all chains; without it, a run without a store keeps its rows here.

    Raises CheckpointError if the saved files are damaged.
    """

    def __init__(
        self,
        task: ChainTask,
        plan: Plan,
        checkpoint: Checkpoint | None = None,
        store: Store | None = None,
        memory: Memory | None = None,
    ) -> None:
        self.task, self.checkpoint, self.store, self.memory = task, checkpoint, store, memory
        self.unsaved = self.unstored = ""
        self._try_at, self._stored_at = 0.0, time.monotonic()
        self.saved: Saved | None = None
        there: Rows | None = None
        if checkpoint is not None and (found := checkpoint.load(task.chain, task.model.dim, plan.n_stats)):
            self.saved, there = found
        done = self.saved.done if self.saved else 0
        if done > task.total:
            text = (
                f"draws must be at least {done - task.tune}, the number of draws of chain {task.chain} in the checkpoint; got "
                f"{task.draws}."
            )
            raise CheckpointError(text)
        if self.saved is not None:
            begin = max(task.first, done) if there is None else there.first
            if begin < task.first or (begin > task.first and store is None):
                raise CheckpointError(
                    f"The rows of chain {task.chain} must start at iteration {task.first}; got {begin}."
                )
            check_saved(self.saved, there, task, plan, same_code=not checkpoint.forced)  # type: ignore[union-attr]
        first = max(task.first, done if there is None else there.first) if store else task.first
        if memory is not None:
            self.rows = memory.none(task.chain, first)
            if there is not None:
                self.add(there)
            return
        room = store.end_of_chunk(first) - first if store else task.total - first
        room = max(room, 0 if there is None else len(there.draws))
        self.rows = Rows(first, np.zeros((room, task.model.dim)), np.zeros((room, plan.n_stats)))
        if there is not None:
            at = self.rows.between(there.first, there.end)
            at.draws[:], at.stats[:] = there.draws, there.stats
        if store is not None and self.saved is not None:
            store.check(task.chain, self.stored)

    @property
    def stored(self) -> int:
        """Number of iterations that are in a store, or whose rows are not kept."""
        return min(self.rows.first, self.saved.done) if self.saved is not None else 0

    @property
    def on_disk(self) -> bool:
        return self.checkpoint is not None

    def made(self, done: int) -> Rows:
        """Return the rows in memory after `done` iterations; with a ``memory``, that holds their statistics."""
        if self.memory is not None:
            chain, first = self.task.chain, self.task.first
            with self.memory.lock(chain):
                rows = self.rows
                if done > rows.first:
                    self.memory.take(chain, rows.between(rows.first, done))
                if done == self.task.total and len(rows.draws):
                    self.rows = self.memory.none(chain, done)
            return Rows(first, self.memory.q[chain, : max(done - first, 0)], np.zeros((0, self.memory.n_stats)))
        return self.rows.between(self.rows.first, max(done, self.rows.first))

    def add(self, rows: Rows) -> None:
        """Append rows that another worker drew."""
        at = rows.first
        while at < rows.end:
            if at == self.rows.end:
                self._move_on(at)
            end = min(self.rows.end, rows.end)
            here, there = self.rows.between(at, end), rows.between(at, end)
            here.draws[:], here.stats[:] = there.draws, there.stats
            at = end

    def make_room(self, done: int) -> bool:
        """Make space for more rows if they are full after `done` iterations; return whether the state should be saved."""
        full = done == self.rows.end < self.task.total
        if full:
            self._move_on(done)
        return full and self.store is not None

    def _move_on(self, done: int) -> None:
        if self.memory is not None:
            with self.memory.lock(self.task.chain):
                self.memory.take(self.task.chain, self.rows)
                self.rows = self.memory.window(self.task.chain, done, self.rows.stats)
        elif not self._write(done):
            room = min(2 * len(self.rows.draws) + 1, self.task.total - self.rows.first)
            draws, stats = (np.zeros((room, each.shape[1])) for each in self.rows[1:])
            draws[: len(self.rows.draws)], stats[: len(self.rows.stats)] = self.rows.draws, self.rows.stats
            self.rows = Rows(self.rows.first, draws, stats)

    def _write(self, done: int, *, now: bool = False) -> bool:
        """Write the rows in memory to the store and start a new chunk; return whether that was done."""
        if not now and time.monotonic() < self._try_at:
            return False
        try:
            self.store.write(self.task.chain, self.made(done))  # type: ignore[union-attr]
        except OSError as failed:
            self.unstored = f"{type(failed).__name__}: {failed}"
            self._try_at = time.monotonic() + TRY_AGAIN
            return False
        room = self.store.end_of_chunk(done) - done  # type: ignore[union-attr]
        same = room == len(self.rows.draws)
        self._stored_at = time.monotonic()
        self.rows = Rows(done, *(each if same else np.zeros((room, each.shape[1])) for each in self.rows[1:]))
        self.unstored = ""
        return True

    def save(self, saved: Saved, *, now: bool = False) -> None:
        """Write the chain if it is time; failures are recorded only, because a full disk may have space later."""
        if self.store is not None and time.monotonic() > self._stored_at + STORE_EVERY and saved.done > self.rows.first:
            self._write(saved.done)
        try:
            if self.checkpoint is not None and self.checkpoint.save(
                self.task.chain, saved, self._not_stored(saved.done), now=now
            ):
                self.unsaved = ""
        except OSError as failed:
            self.unsaved = f"{type(failed).__name__}: {failed}"

    def _not_stored(self, done: int) -> Rows | RowsOfChain:
        """Return the rows that a checkpoint must hold."""
        rows = self.made(done)
        return rows if self.memory is None else RowsOfChain(self.memory, self.task.chain, self.task.first)

    def close(self, saved: Saved) -> None:
        """Write all rows and the state."""
        if self.store is not None and saved.done > self.rows.first:
            self._write(saved.done, now=True)
        self.save(saved, now=True)

    def start_of_draws(self, tune: int) -> np.ndarray:
        """Return the position after warm-up, or NaN if it is unknown here."""
        rows = self.rows if self.memory is None else self.made(0)._replace(draws=self.memory.q[self.task.chain])
        if rows.first < tune <= rows.end and len(rows.draws):
            return rows.draws[tune - 1 - rows.first]
        return np.full(self.task.model.dim, np.nan) if self.saved is None else self.saved.start_of_draws
