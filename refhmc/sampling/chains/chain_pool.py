"""The chains of a compiled run while they are drawn: their draws so far, and the threads that run them."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from typing import Any

import numpy as np

from refhmc.core.records import CONTROL, set_counts
from refhmc.errors import CheckpointError, CheckpointWarning, _see
from refhmc.sampling.chains.chain import Plan
from refhmc.sampling.chains.chain_run import run_chain
from refhmc.sampling.chains.engine import SILENT
from refhmc.sampling.chains.task import ChainRun, ChainTask
from refhmc.sampling.progress import Progress, ProgressReport
from refhmc.sampling.results.from_chains import hanging
from refhmc.sampling.storage.chain_storage import ChainStorage, load
from refhmc.sampling.storage.checkpoint import Checkpoint
from refhmc.sampling.storage.checkpointed import Checkpointed
from refhmc.sampling.storage.in_memory import InMemory, Memory
from refhmc.sampling.storage.store import Store
from refhmc.sampling.storage.stored import Stored

GRACE = 30.0  # seconds after which a chain that was asked to stop, but does not return from its model, is left behind


class ChainPool:
    """Chains of a run while they are drawn.

    ``control`` (chains,) holds their counters, ``storages`` the rows of each chain, ``finished`` the runs that ended,
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
        self.control = np.zeros(len(tasks), CONTROL).view(np.recarray)
        if recover and checkpoint is not None:
            for task in tasks:
                discard_if_damaged(task, plan, checkpoint, store)
        one = tasks[0]
        self.memory = (
            None
            if store is not None
            else Memory(one.kernel, len(tasks), one.model.dim, plan.n_stats, one.first, one.total)
        )
        self.storages = [self._storage(task, checkpoint, store) for task in tasks]
        for k, storage in enumerate(self.storages):
            if storage.saved is not None:
                set_counts(self.control[k], storage.saved.control)
                self.control[k].first = storage.saved.done
        self.finished: dict[int, ChainRun] = {}
        self.stopped_by, self.stopped_at = "", 0.0
        self.progress = Progress(len(tasks), tasks[0].tune, tasks[0].total, workers)

    def _storage(self, task: ChainTask, checkpoint: Checkpoint | None, store: Store | None) -> ChainStorage:
        if checkpoint is None:
            assert self.memory is not None
            return InMemory(task, self.memory)
        if store is not None:
            return Stored(task, self.plan, checkpoint, store)
        assert self.memory is not None
        return Checkpointed(task, self.plan, self.memory, checkpoint)

    def runs(self) -> list[ChainRun]:
        """Return the run of each chain, complete or with the draws so far."""
        return [self.finished.get(k) or self.so_far(k) for k in range(len(self.tasks))]

    def so_far(self, chain: int, **known: Any) -> ChainRun:
        storage, control = self.storages[chain], self.control[chain].copy()
        rows = storage.made(int(control.draws_done))
        return ChainRun(rows, self.tasks[chain].tune, storage.start_of_draws(), control, **known)

    def stop(self, why: str) -> None:
        """Ask every chain to stop; those of this process stop within one evaluation of the model."""
        if not self.stopped_by:
            self.stopped_by, self.stopped_at = why, time.monotonic()
        self.control.stop = 1

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

    def hanging(self) -> list[str]:
        """Return, once, the warnings about chains that have not returned from their model ``SILENT`` seconds after a stop."""
        if self._said or not self.stopped_by or time.monotonic() < self.stopped_at + SILENT:
            return []
        self._said = True
        chains = sorted(self.threads.keys() - self.finished.keys())
        more = (
            f"A call in a thread cannot be stopped from outside, so the run waits until {GRACE:g} s after the stop and then "
            f"returns the draws without this thread. Check why the model does not return there. {_see('review-interrupted')}"
        )
        return [f"{hanging(k, self.position_of_call(k), SILENT)} {more}" for k in chains]

    @property
    def overdue(self) -> bool:
        """Whether the time that chains have to stop is over."""
        return bool(self.stopped_by) and time.monotonic() > self.stopped_at + GRACE

    def report(self, finished: bool) -> ProgressReport:
        now = self.control.copy()
        counts = now.draws_done, now.divergences, now.warmup_divergences, now.gradients
        step_size = np.where(now.step_size > 0, now.step_size, np.nan)
        return self.progress.report(*counts, step_size, now.first, finished)


def discard_if_damaged(task: ChainTask, plan: Plan, checkpoint: Checkpoint, store: Store | None) -> None:
    """Read the saved files of a chain; if they are damaged, warn and remove them, so that the chain is drawn again.

    It is drawn from its start and its own random stream, so that the draws are the same.
    """
    try:
        if store is None:
            load(task, plan, checkpoint)
        else:
            storage = Stored(task, plan, checkpoint, store)
            if storage.saved is not None:
                store.check(task.chain, storage.stored, whole=True)
    except CheckpointError as error:
        text = (
            f"Chain {task.chain} is drawn again from its start, because its files cannot be used: {error} The new draws equal "
            f"the lost ones if the model is unchanged. Check the disk if this happens again. {_see('checkpoints')}"
        )
        warnings.warn(text, CheckpointWarning, stacklevel=6)
        if store is not None:  # before the state: without it, nothing would mark the chunks as damaged
            store.discard(task.chain)
        checkpoint.discard(task.chain)


def draw_in_threads(pool: ChainPool, workers: int) -> None:
    """Run the chains, `workers` at a time, each in a thread of this process, until all have ended or were left behind.

    The threads are daemons, so that one that does not return from its model cannot keep the process from ending.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for k in range(len(pool.tasks)):
        waiting.put(k)

    def work() -> None:
        while not pool.stopped_by:
            try:
                k = waiting.get_nowait()
            except queue.Empty:
                return
            pool.threads[k] = threading.get_ident()
            pool.take(k, run_chain(pool.tasks[k], pool.plan, pool.storages[k], pool.control[k]))

    threads = [threading.Thread(target=work, name=f"refhmc-chain-{k}", daemon=True) for k in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not pool.overdue:
            thread.join(1.0)
    if pool.overdue:
        not_begun = {waiting.get_nowait() for _ in range(waiting.qsize())}
        for k in set(range(len(pool.tasks))) - not_begun:
            pool.leave_behind(k)
