"""The chains of a run while they are drawn: their draws so far, and the threads that run them."""

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
from refhmc.errors import CheckpointError, CheckpointWarning, _see
from refhmc.sampling.chains.chain_run import ChainRun, ChainTask, run_chain
from refhmc.sampling.progress import Progress, ProgressReport
from refhmc.sampling.storage.chain_storage import Keeper
from refhmc.sampling.storage.in_memory import Memory
from refhmc.sampling.time_left import ENOUGH, QUIET

if TYPE_CHECKING:
    from refhmc.sampling.chains.chain import Plan
    from refhmc.sampling.storage.checkpoint import Checkpoint
    from refhmc.sampling.storage.store import Store

# Seconds after which a chain that was asked to stop, but does not return from its model, is reported, and is left behind.
SILENT, GRACE = 10.0, 30.0


class Drawing:
    """Chains of a run while they are drawn.

    ``control`` (chains, N_CONTROL) holds their counters, ``keepers`` the rows of each chain, ``finished`` the runs that ended,
    ``memory`` the arrays that they fill (without a store). ``stopped_by`` is "interrupt", "time", "stop", "error" or "".
    ``workers`` chains run at a time.

    Raises CheckpointError if the saved files of a chain are damaged, or hold more draws than the run.
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
        self.threads: dict[int, int] = {}  # threads of this process, by chain
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
        """Return the run of each chain, complete or with the draws so far."""
        return [self.finished.get(k) or self.so_far(k) for k in range(len(self.tasks))]

    def so_far(self, chain: int, **known: Any) -> ChainRun:
        keeper, control = self.keepers[chain], self.control[chain].copy()
        rows, tune = keeper.made(int(control[DRAWS_DONE])), self.tasks[chain].tune
        start = keeper.start_of_draws(tune)
        return ChainRun(rows, tune, start, control, **known)

    def stop(self, why: str) -> None:
        """Ask every chain to stop; those of this process stop within one evaluation of the model."""
        if not self.stopped_by:
            self.stopped_by, self.stopped_at = why, time.monotonic()
        self.control[:, STOP] = 1

    def take(self, chain: int, run: ChainRun) -> None:
        """Keep the run that a chain returned, unless it was left behind."""
        if chain in self.finished:
            return
        if isinstance(run.error, KeyboardInterrupt):  # Ctrl-C reached the chain's process, or its Python functions
            self.stop("interrupt")
            run = run._replace(error=None)
        self.finished[chain] = run

    def leave_behind(self, chain: int) -> None:
        """Keep copies of the draws of a chain that does not return."""
        if chain not in self.finished:
            run = self.so_far(chain, left_behind=True, error_position=self.position_of_call(chain))
            self.finished[chain] = run._replace(rows=run.rows.copied())

    def position_of_call(self, chain: int) -> np.ndarray | None:
        """Return the position of the last call that a chain made of a model that runs as Python, else None."""
        return self.tasks[chain].model.core.last_position.get(self.threads.get(chain, 0))

    def say_who_hangs(self) -> list[str]:
        """Return, once, the warnings about chains that have not returned from their model ``SILENT`` seconds after a stop."""
        if self._said or not self.stopped_by or time.monotonic() < self.stopped_at + SILENT:
            return []
        self._said = True
        chains = sorted(self.threads.keys() - self.finished.keys())
        return [f"{hanging(k, self.position_of_call(k), SILENT)} {WHAT_NEXT}" for k in chains]

    @property
    def overdue(self) -> bool:
        """Whether the time that chains have to stop is over."""
        return bool(self.stopped_by) and time.monotonic() > self.stopped_at + GRACE

    def report(self, finished: bool) -> ProgressReport:
        columns = DRAWS_DONE, DIVERGENCES, WARMUP_DIVERGENCES, GRADIENTS, FIRST
        done, divergences, of_warmup, gradients, first = (self.control[:, column].copy() for column in columns)
        step_size = self.control.view(float)[:, STEP_SIZE]
        step_size = np.where(step_size > 0, step_size, np.nan)
        return self.progress.report(done, divergences, of_warmup, gradients, step_size, first, finished)


WHAT_NEXT = (
    f"A call in a thread cannot be stopped from outside, so the run waits until {GRACE:g} s after the stop and then returns "
    f"the draws without this thread. Check why the model does not return there. {_see('review-interrupted')}"
)


def hanging(chain: int, position: np.ndarray | None, seconds: float) -> str:
    """Return the sentence about a chain that does not return, with its position."""
    where = "" if position is None else f" at q = {np.array2string(position, precision=6, threshold=8)}"
    return (
        f"Chain {chain} did not return from a call of the model{where} within {seconds:g} s after it was asked to stop."
    )


def discard_if_damaged(task: ChainTask, plan: Plan, checkpoint: Checkpoint, store: Store | None) -> None:
    """Read the saved files of a chain; if they are damaged, warn and remove them, so that the chain is drawn again.

    It is drawn from its start and its own random stream, so that the draws are the same.
    """
    try:
        keeper = Keeper(task, plan, checkpoint, store)
        if store is not None and keeper.saved is not None:
            store.check(task.chain, keeper.stored, whole=True)
    except CheckpointError as error:
        text = (
            f"Chain {task.chain} is drawn again from its start, because its files cannot be used: {error} The new draws equal "
            f"the lost ones if the model is unchanged. Check the disk if this happens again. {_see('checkpoints')}"
        )
        warnings.warn(text, CheckpointWarning, stacklevel=5)
        if store is not None:  # before the state: without it, nothing would mark the chunks as damaged
            store.discard(task.chain)
        checkpoint.discard(task.chain)


def draw_in_threads(drawing: Drawing, workers: int) -> None:
    """Run the chains, `workers` at a time, each in a thread of this process, until all have ended or were left behind.

    The threads are daemons, so that one that does not return from its model cannot keep the process from ending.
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
