"""Storage of one chain in a store.

Memory holds the rows of one chunk. Full chunks go to the store, and the checkpoint in the store holds the rows of the partial
one. If the disk cannot be written, the rows stay in memory, which grows, and writing is tried again later.
"""

from __future__ import annotations

import time

import numpy as np

from refhmc.sampling.chains.chain import Plan
from refhmc.sampling.chains.task import ChainTask, Saved
from refhmc.sampling.storage.append_only import Rows
from refhmc.sampling.storage.chain_storage import load
from refhmc.sampling.storage.checkpoint import Checkpoint
from refhmc.sampling.storage.store import Store

STORE_EVERY = 10.0  # seconds after which a partial chunk is written, so that readers see it
TRY_AGAIN = 3.0  # seconds before another attempt to write to a store


class Stored:
    """Storage of one chain in a store (:class:`refhmc.sampling.storage.chain_storage.ChainStorage`).

    Raises CheckpointError if the saved files are damaged.
    """

    on_disk = True

    def __init__(self, task: ChainTask, plan: Plan, checkpoint: Checkpoint, store: Store) -> None:
        self.task, self.checkpoint, self.store = task, checkpoint, store
        self._not_saved = self._not_stored = ""
        self._try_at, self._stored_at = 0.0, time.monotonic()
        self.saved, rows = load(task, plan, checkpoint, partial=True)
        done = self.saved.done if self.saved is not None else 0
        first = max(task.first, done if rows is None else rows.first)
        room = max(store.end_of_chunk(first) - first, 0 if rows is None else len(rows.draws))
        self.rows = Rows(first, np.zeros((room, task.model.dim)), np.zeros((room, plan.n_stats)))
        if rows is not None:
            at = self.rows.between(rows.first, rows.end)
            at.draws[:], at.stats[:] = rows.draws, rows.stats
        if self.saved is not None:
            store.check(task.chain, self.stored)

    @property
    def stored(self) -> int:
        """Number of iterations that are in the store, or whose rows are not kept."""
        return min(self.rows.first, self.saved.done) if self.saved is not None else 0

    @property
    def unsaved(self) -> str:
        return self._not_saved or self._not_stored

    def made(self, done: int) -> Rows:
        """Return the rows of `done` iterations that are in memory."""
        return self.rows.between(self.rows.first, max(done, self.rows.first))

    def make_room(self, done: int) -> bool:
        if not done == self.rows.end < self.task.total:
            return False
        if not self._write(done):
            room = min(2 * len(self.rows.draws) + 1, self.task.total - self.rows.first)
            draws, stats = (np.zeros((room, each.shape[1])) for each in self.rows[1:])
            draws[: len(self.rows.draws)], stats[: len(self.rows.stats)] = self.rows.draws, self.rows.stats
            self.rows = Rows(self.rows.first, draws, stats)
        return True

    def _write(self, done: int, *, now: bool = False) -> bool:
        """Write the rows in memory to the store and start a new chunk; return whether that was done."""
        if not now and time.monotonic() < self._try_at:
            return False
        try:
            self.store.write(self.task.chain, self.made(done))
        except OSError as failed:
            self._not_stored = f"{type(failed).__name__}: {failed}"
            self._try_at = time.monotonic() + TRY_AGAIN
            return False
        room = self.store.end_of_chunk(done) - done
        same = room == len(self.rows.draws)
        self._stored_at = time.monotonic()
        self.rows = Rows(done, *(each if same else np.zeros((room, each.shape[1])) for each in self.rows[1:]))
        self._not_stored = ""
        return True

    def save(self, saved: Saved, *, now: bool = False) -> None:
        """Write the chain if it is time; failures are recorded only, because a full disk may have space later."""
        if time.monotonic() > self._stored_at + STORE_EVERY and saved.done > self.rows.first:
            self._write(saved.done)
        try:
            if self.checkpoint.save(self.task.chain, saved, self.made(saved.done), now=now):
                self._not_saved = ""
        except OSError as failed:
            self._not_saved = f"{type(failed).__name__}: {failed}"

    def close(self, saved: Saved) -> None:
        if saved.done > self.rows.first:
            self._write(saved.done, now=True)
        self.save(saved, now=True)

    def start_of_draws(self) -> np.ndarray:
        tune = self.task.tune
        if self.rows.first < tune <= self.rows.end and len(self.rows.draws):
            return self.rows.draws[tune - 1 - self.rows.first]
        return np.full(self.task.model.dim, np.nan) if self.saved is None else self.saved.start_of_draws
