"""The chains of a run on their way: what each has drawn at any moment, and the threads that draw."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core.records import (
    DIVERGENCES,
    DRAWS_DONE,
    FIRST,
    GRADIENTS,
    N_CONTROL,
    STEP_SIZE,
    STOP,
    WARMUP_DIVERGENCES,
)
from refhmc.errors import CheckpointError, CheckpointWarning
from refhmc.sampling.chain_run import ChainRun, ChainTask, run_chain
from refhmc.sampling.keeper import Keeper
from refhmc.sampling.memory import Memory
from refhmc.sampling.progress import Progress, ProgressReport
from refhmc.sampling.time_left import ENOUGH, QUIET

if TYPE_CHECKING:
    from refhmc.sampling.chain import Plan
    from refhmc.sampling.checkpoint import Checkpoint
    from refhmc.sampling.store import Store

# Seconds after which a chain that was asked to stop, and does not come back from its model, is reported and left behind.
SILENT, GRACE = 10.0, 30.0


class Drawing:
    """Chains on their way. ``control`` (chains, N_CONTROL): their counters; ``keepers``: what is kept of each; ``finished``:
    what came back; ``memory``: the arrays they fill, without a store;
    ``stopped_by``: "interrupt", "time", "stop", "error" or nothing; ``workers``: how many run at a time.

    Raises CheckpointError if what a checkpoint has of a chain is damaged, or longer than the run.
    """

    def __init__(
        self,
        tasks: list[ChainTask],
        plan: Plan,
        workers: int,
        checkpoint: Checkpoint | None = None,
        store: Store | None = None,
        *,
        recover: bool = False,
    ) -> None:
        self.tasks, self.plan, self.workers = tasks, plan, workers
        self.threads: dict[int, int] = {}  # of this process, by the chain that they draw
        self._said = False
        self.control = np.zeros((len(tasks), N_CONTROL), np.int64)
        if recover and checkpoint is not None:
            for task in tasks:
                discard_if_damaged(task, plan, checkpoint, store)
        one = tasks[0]
        self.memory = (
            None
            if store is not None
            else Memory(one.kernel, len(tasks), one.model.dim, plan.n_stats, one.first, one.total)
        )
        self.keepers = [Keeper(task, plan, checkpoint, store, self.memory) for task in tasks]
        for k, keeper in enumerate(self.keepers):
            if keeper.saved is not None:
                self.control[k, DRAWS_DONE:] = keeper.saved.control[DRAWS_DONE:]
        self.finished: dict[int, ChainRun] = {}
        self.stopped_by, self.stopped_at = "", 0.0
        learns_length = any(len(block.length_windows) for block in plan.blocks)
        quiet = tasks[0].tune + ENOUGH if learns_length else QUIET
        self.progress = Progress(len(tasks), tasks[0].tune, tasks[0].total, workers, quiet)

    def runs(self) -> list[ChainRun]:
        """Each chain as it came back or, of one that has not, what it has drawn so far."""
        return [self.finished.get(k) or self.so_far(k) for k in range(len(self.tasks))]

    def so_far(self, chain: int, **known: Any) -> ChainRun:
        keeper, control = self.keepers[chain], self.control[chain].copy()
        rows, tune = keeper.made(int(control[DRAWS_DONE])), self.tasks[chain].tune
        start = keeper.start_of_draws(tune)
        return ChainRun(rows, tune, start, control, **known)

    def stop(self, why: str) -> None:
        """Every chain stops, those of this process within an evaluation of the model."""
        if not self.stopped_by:
            self.stopped_by, self.stopped_at = why, time.monotonic()
        self.control[:, STOP] = 1

    def take(self, chain: int, run: ChainRun) -> None:
        """Keep what a chain has brought back; nothing of one that was left behind."""
        if chain in self.finished:
            return
        if isinstance(run.error, KeyboardInterrupt):  # Ctrl-C reached the chain's process, or its Python functions
            self.stop("interrupt")
            run = run._replace(error=None)
        self.finished[chain] = run

    def leave_behind(self, chain: int) -> None:
        """Of a chain that does not come back, copies of what it has drawn."""
        if chain not in self.finished:
            run = self.so_far(chain, left_behind=True, error_position=self.position_of_call(chain))
            self.finished[chain] = run._replace(rows=run.rows.copied())

    def position_of_call(self, chain: int) -> np.ndarray | None:
        """Return the position of the last call that a chain made of a model that runs as Python, else None."""
        return self.tasks[chain].model.core.last_position.get(self.threads.get(chain, 0))

    def say_who_hangs(self) -> list[str]:
        """Return, once, what to say of chains that have not come back from their model ``SILENT`` seconds after a stop."""
        if self._said or not self.stopped_by or time.monotonic() < self.stopped_at + SILENT:
            return []
        self._said = True
        chains = sorted(self.threads.keys() - self.finished.keys())
        return [f"{hanging(k, self.position_of_call(k), SILENT)} {WHAT_NEXT}" for k in chains]

    @property
    def overdue(self) -> bool:
        """Whether what was asked to stop has had time enough."""
        return bool(self.stopped_by) and time.monotonic() > self.stopped_at + GRACE

    def report(self, finished: bool) -> ProgressReport:
        columns = DRAWS_DONE, DIVERGENCES, WARMUP_DIVERGENCES, GRADIENTS, FIRST
        done, divergences, of_warmup, gradients, first = (self.control[:, column].copy() for column in columns)
        step_size = self.control.view(float)[:, STEP_SIZE]
        step_size = np.where(step_size > 0, step_size, np.nan)
        return self.progress.report(done, divergences, of_warmup, gradients, step_size, first, finished)


WHAT_NEXT = (
    f"A call in a thread cannot be stopped from outside. The run waits until {GRACE:g} s after the stop and then returns what "
    "was drawn, without this chain's thread."
)


def hanging(chain: int, position: np.ndarray | None, seconds: float) -> str:
    """Return the sentences that name a chain which does not come back, and where it is."""
    where = "" if position is None else f" The call is at q = {np.array2string(position, precision=6, threshold=8)}."
    return f"Chain {chain} did not come back from a call of the model within {seconds:g} s after it was asked to stop.{where}"


def discard_if_damaged(task: ChainTask, plan: Plan, checkpoint: Checkpoint, store: Store | None) -> None:
    """Read all that was saved of a chain; where that cannot be, say so and remove it, so that the chain is drawn again.

    It begins from its start and its own stream, so that it will be what it was.
    """
    try:
        keeper = Keeper(task, plan, checkpoint, store)
        if store is not None and keeper.saved is not None:
            store.check(task.chain, keeper.stored, whole=True)
    except CheckpointError as error:
        warnings.warn(f"Chain {task.chain} is drawn again from its start: {error}", CheckpointWarning, stacklevel=5)
        if store is not None:  # before the state, without which nothing would say that chunks are damaged
            store.discard(task.chain)
        checkpoint.discard(task.chain)


def draw_in_threads(drawing: Drawing, workers: int) -> None:
    """Run the chains, ``workers`` at a time, each in a thread of this process, until all have ended or were left behind.

    The threads are daemons: one that does not come back from its model does not keep the process from ending.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for k in range(len(drawing.tasks)):
        waiting.put(k)

    def work() -> None:
        while not drawing.stopped_by:
            try:
                k = waiting.get_nowait()
            except queue.Empty:
                return
            drawing.threads[k] = threading.get_ident()
            drawing.take(k, run_chain(drawing.tasks[k], drawing.plan, drawing.keepers[k], drawing.control[k]))

    threads = [threading.Thread(target=work, name=f"refhmc-chain-{k}", daemon=True) for k in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not drawing.overdue:
            thread.join(1.0)
    if drawing.overdue:
        not_begun = {waiting.get_nowait() for _ in range(waiting.qsize())}
        for k in set(range(len(drawing.tasks))) - not_begun:
            drawing.leave_behind(k)
