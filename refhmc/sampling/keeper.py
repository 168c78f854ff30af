"""What is kept of one chain: its rows in memory, in a checkpoint's folder, in a store.

Without a store they are in memory, in the result's own arrays (:mod:`refhmc.sampling.memory`), and a checkpoint has them too.
With one, memory holds those of a chunk of the store: when they are full they go there, and what lies behind them in the
checkpoint begins anew. Where the disk refuses, the rows stay in memory, which grows, and each later occasion tries again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from refhmc.errors import CheckpointError
from refhmc.sampling.journal import Rows
from refhmc.sampling.memory import RowsOfChain
from refhmc.sampling.saved_state import check_saved

if TYPE_CHECKING:
    from refhmc.sampling.chain import Plan
    from refhmc.sampling.chain_run import ChainTask
    from refhmc.sampling.checkpoint import Checkpoint, Saved
    from refhmc.sampling.memory import Memory
    from refhmc.sampling.store import Store

STORE_EVERY = 10.0  # seconds after which what does not fill a chunk goes to the store, to be read there
TRY_AGAIN = 3.0  # seconds after which a store that could not be written is tried again


class Keeper:
    """The rows of one chain. ``rows``: those in memory, room for what is to come included; ``saved``: where an earlier session
    has left the chain; ``unsaved``, ``unstored``: why checkpoint and store are older than what was drawn, or nothing.

    ``memory``: the arrays of all chains, without which a run without a store keeps its rows as they come.

    Raises CheckpointError if what was saved is damaged.
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
            text = f"chain {task.chain} of the checkpoint has {done - task.tune} draws, asked for {task.draws}"
            raise CheckpointError(text)
        if self.saved is not None:
            begin = max(task.first, done) if there is None else there.first
            if begin < task.first or (begin > task.first and store is None):
                raise CheckpointError(
                    f"the rows of chain {task.chain} begin at iteration {begin}, expected {task.first}"
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
        """How many iterations a store has, or the rows of which nobody asked for."""
        return min(self.rows.first, self.saved.done) if self.saved is not None else 0

    @property
    def on_disk(self) -> bool:
        return self.checkpoint is not None

    def made(self, done: int) -> Rows:
        """The rows in memory after ``done`` iterations; where there is a ``memory``, it has their statistics."""
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
        """Take rows that were made elsewhere, the next ones."""
        at = rows.first
        while at < rows.end:
            if at == self.rows.end:
                self._move_on(at)
            end = min(self.rows.end, rows.end)
            here, there = self.rows.between(at, end), rows.between(at, end)
            here.draws[:], here.stats[:] = there.draws, there.stats
            at = end

    def make_room(self, done: int) -> bool:
        """Where the rows are full after ``done`` iterations, write them to the store, or take more; whether this is an occasion
        to write the state."""
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
        """Write the rows in memory to the store, which then is where memory goes on from; whether that was done."""
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
        """Write the chain, if it is time. It goes on where that fails: a full disk may have room at the next try."""
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
        """The rows that a checkpoint has to have."""
        rows = self.made(done)
        return rows if self.memory is None else RowsOfChain(self.memory, self.task.chain, self.task.first)

    def close(self, saved: Saved) -> None:
        """Write all that was made: rows and state."""
        if self.store is not None and saved.done > self.rows.first:
            self._write(saved.done, now=True)
        self.save(saved, now=True)

    def start_of_draws(self, tune: int) -> np.ndarray:
        """Where the chain stood after warm-up, as far as that is known here."""
        rows = self.rows if self.memory is None else self.made(0)._replace(draws=self.memory.q[self.task.chain])
        if rows.first < tune <= rows.end and len(rows.draws):
            return rows.draws[tune - 1 - rows.first]
        return np.full(self.task.model.dim, np.nan) if self.saved is None else self.saved.start_of_draws
