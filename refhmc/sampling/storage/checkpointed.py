"""Storage of one chain in memory and in a checkpoint."""

from __future__ import annotations

from refhmc.sampling.chains.chain import Plan
from refhmc.sampling.chains.task import ChainTask, Saved
from refhmc.sampling.storage.chain_storage import add, load
from refhmc.sampling.storage.checkpoint import Checkpoint
from refhmc.sampling.storage.in_memory import InMemory, Memory


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
