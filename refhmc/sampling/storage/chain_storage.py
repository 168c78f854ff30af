"""Storage of one chain's rows: the protocol of the classes for memory, checkpoints and stores, and what they share."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from refhmc.errors import CheckpointError
from refhmc.sampling.chains.chain import Plan
from refhmc.sampling.chains.task import ChainTask, Saved
from refhmc.sampling.storage.append_only import Rows
from refhmc.sampling.storage.checkpoint import Checkpoint
from refhmc.sampling.storage.in_memory import InMemory, Memory
from refhmc.sampling.storage.saved_state import check_saved


class ChainStorage(Protocol):
    """Storage of the rows of one chain.

    ``task`` is that of the whole chain. ``rows`` are those in memory, including space for the next ones. ``saved`` is the
    state from which the chain continues, of an earlier session or an earlier part of this run, and ``unsaved`` the reason why
    files on disk are older than the draws, or "".
    """

    task: ChainTask
    rows: Rows
    saved: Saved | None

    @property
    def on_disk(self) -> bool: ...

    @property
    def unsaved(self) -> str: ...

    def made(self, done: int) -> Rows:
        """Return the rows in memory after `done` iterations."""

    def make_room(self, done: int) -> bool:
        """Make space for more rows if they are full after `done` iterations; return whether the state should be saved."""

    def save(self, saved: Saved, *, now: bool = False) -> None:
        """Write the chain to disk if it is time."""

    def close(self, saved: Saved) -> None:
        """Write all rows and the state."""

    def start_of_draws(self) -> np.ndarray:
        """Return the position after warm-up, or NaN if it is unknown here."""


def add(storage: ChainStorage, rows: Rows) -> None:
    """Append rows that another worker or an earlier session drew."""
    at = rows.first
    while at < rows.end:
        storage.make_room(at)
        end = min(storage.rows.end, rows.end)
        here, there = storage.rows.between(at, end), rows.between(at, end)
        here.draws[:], here.stats[:] = there.draws, there.stats
        at = end


class TooFewDrawsError(CheckpointError):
    """The run asks for fewer draws than are saved; the files are not damaged."""


def load(
    task: ChainTask, plan: Plan, checkpoint: Checkpoint, *, partial: bool = False
) -> tuple[Saved | None, Rows | None]:
    """Return the saved state and rows of a chain, or None; `partial` allows rows from a later iteration on, as in a store.

    Raises CheckpointError if they are damaged, do not fit the run, or hold more draws than it.
    """
    found = checkpoint.load(task.chain, task.model.dim, plan.n_stats)
    if not found:
        return None, None
    saved, rows = found
    if saved.done > task.total:
        raise TooFewDrawsError(
            f"draws must be at least {saved.done - task.tune}, the number of draws of chain {task.chain} in the checkpoint; "
            f"got {task.draws}."
        )
    begin = max(task.first, saved.done) if rows is None else rows.first
    if begin < task.first or (begin > task.first and not partial):
        raise CheckpointError(f"The rows of chain {task.chain} must start at iteration {task.first}; got {begin}.")
    check_saved(saved, rows, task, plan, same_code=not checkpoint.forced)
    return saved, rows


class Checkpointed(InMemory):
    """Storage in a :class:`Memory` whose rows, and the chain's state, are also written to a checkpoint.

    Raises CheckpointError if the saved files are damaged.
    """

    on_disk = True

    def __init__(self, task: ChainTask, plan: Plan, memory: Memory, checkpoint: Checkpoint) -> None:
        super().__init__(task, memory)
        self.checkpoint = checkpoint
        self.saved, rows = load(task, plan, checkpoint)
        if rows is not None:
            add(self, rows)

    def save(self, saved: Saved, *, now: bool = False) -> None:
        """Write the chain if it is time; failures are recorded only, because a full disk may have space later."""
        self.made(saved.done)
        try:
            if self.checkpoint.save(self.task.chain, saved, self, now=now):
                self.unsaved = ""
        except OSError as failed:
            self.unsaved = f"{type(failed).__name__}: {failed}"

    def close(self, saved: Saved) -> None:
        self.save(saved, now=True)
