"""The chains of a compiled run while they are drawn: their draws so far, and the threads that run them."""

from __future__ import annotations

import queue
import threading
import warnings
from typing import Any

import numpy as np

from refhmc.core.failures import Failure, merged
from refhmc.core.records import CONTROL, set_counts
from refhmc.errors import CheckpointError, CheckpointWarning, _see
from refhmc.sampling.chains import engine
from refhmc.sampling.chains.chain import Plan
from refhmc.sampling.chains.chain_run import run_chain
from refhmc.sampling.chains.engine import Stoppable
from refhmc.sampling.chains.task import ChainRun, ChainTask
from refhmc.sampling.progress import Progress, ProgressReport
from refhmc.sampling.spec import RunSpec
from refhmc.sampling.storage.chain_storage import ChainStorage, Checkpointed, TooFewDrawsError
from refhmc.sampling.storage.checkpoint import Checkpoint
from refhmc.sampling.storage.in_memory import InMemory, Memory
from refhmc.sampling.storage.store import Store
from refhmc.sampling.storage.stored import Stored

GRACE = 30.0  # seconds after which a chain that was asked to stop, but does not return from its model, is left behind


class ChainPool(Stoppable):
    """Chains of a run while they are drawn.

    ``control`` (chains,) holds their counters, ``storages`` the rows of each chain, ``finished`` the runs that ended,
    ``memory`` the arrays that they fill (without a store).

    Raises CheckpointError if the saved files of a chain are damaged, or hold more draws than the run.
    """

    def __init__(
        self, spec: RunSpec, tasks: list[ChainTask], plan: Plan, checkpoint: Checkpoint | None, store: Store | None
    ) -> None:
        super().__init__()
        self.spec, self.tasks, self.plan, self.workers = spec, tasks, plan, spec.workers
        self.checkpoint, self.store = checkpoint, store
        self.threads: dict[int, int] = {}  # threads of this process, by chain
        self.control = np.zeros(len(tasks), CONTROL).view(np.recarray)
        one, n = tasks[0], len(tasks) if store is None else 0
        self.memory = Memory(one.kernel, n, one.model.dim, plan.n_stats, one.first, one.total)
        self.storages: list[ChainStorage] = []
        for task in tasks:
            try:
                storage = self._storage(task)
            except CheckpointError as error:
                if not spec.recover or checkpoint is None or isinstance(error, TooFewDrawsError):
                    raise
                self._discard(task.chain, checkpoint, error)
                storage = self._storage(task)
            self.storages.append(storage)
            if storage.saved is not None:
                set_counts(self.control[task.chain], storage.saved.control)
                self.control[task.chain].first = storage.saved.done
        self.finished: dict[int, ChainRun] = {}
        self.failures: list[tuple[Failure, ...]] = [() for _ in tasks]
        self.progress = Progress(len(tasks), tasks[0].tune, tasks[0].total, self.workers)

    def _storage(self, task: ChainTask) -> ChainStorage:
        if self.checkpoint is None:
            return InMemory(task, self.memory)
        if self.store is None:
            return Checkpointed(task, self.plan, self.memory, self.checkpoint)
        storage = Stored(task, self.plan, self.checkpoint, self.store)
        if self.spec.recover:
            self.store.check(task.chain, storage.stored, whole=True)
        return storage

    def _discard(self, chain: int, checkpoint: Checkpoint, error: CheckpointError) -> None:
        """Remove the damaged files of a chain, with a warning.

        It is drawn again from its start and its own random stream, so that the draws are the same.
        """
        text = (
            f"Chain {chain} is drawn again from its start, because its files cannot be used: {error} The new draws equal "
            f"the lost ones if the model is unchanged. Check the disk if this happens again. {_see('checkpoints')}"
        )
        warnings.warn(text, CheckpointWarning, stacklevel=6)
        if self.store is not None:  # before the state: without it, nothing would mark the chunks as damaged
            self.store.discard(chain)
        checkpoint.discard(chain)

    def set_draws(self, draws: int) -> None:
        """Let the chains end after so many draws, from where they are."""
        self.tasks = [task._replace(draws=draws) for task in self.tasks]
        self.progress.total = self.tasks[0].total
        self.finished.clear()

    def runs(self) -> list[ChainRun]:
        """Return the run of each chain, complete or with the draws so far."""
        return [self.finished.get(k) or self.so_far(k) for k in range(len(self.tasks))]

    def so_far(self, chain: int, **known: Any) -> ChainRun:
        storage, control = self.storages[chain], self.control[chain].copy()
        rows = storage.made(int(control.draws_done))
        return ChainRun(rows, self.tasks[chain].tune, storage.start_of_draws(), control, **known)

    def stop(self, why: str) -> None:
        """Ask every chain to stop; those of this process stop within one evaluation of the model."""
        super().stop(why)
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
        if not self.is_silent():
            return []
        chains = sorted(self.threads.keys() - self.finished.keys())
        more = (
            f"A call in a thread cannot be stopped from outside, so the run waits until {GRACE:g} s after the stop and then "
            f"returns the draws without this thread. Check why the model does not return there. {_see('review-interrupted')}"
        )
        return [f"{hanging_at(k, self.position_of_call(k), engine.SILENT)} {more}" for k in chains]

    @property
    def overdue(self) -> bool:
        """Whether the time that chains have to stop is over."""
        return self.seconds_since_stop > GRACE

    def report(self, finished: bool) -> ProgressReport:
        now = self.control.copy()
        counts = now.draws_done, now.divergences, now.warmup_divergences, now.gradients
        step_size = np.where(now.step_size > 0, now.step_size, np.nan)
        return self.progress.report(*counts, step_size, now.first, finished)


def hanging_at(chain: int, position: np.ndarray | None, seconds: float) -> str:
    """Return the sentence about a chain that does not return, with its position."""
    where = "" if position is None else f" at q = {np.array2string(position, precision=6, threshold=8)}"
    return (
        f"Chain {chain} did not return from a call of the model{where} within {seconds:g} s after it was asked to stop."
    )


def draw_in_threads(pool: ChainPool) -> None:
    """Run the chains, ``pool.workers`` at a time, each in a thread of this process, until all have ended or were left behind.

    They continue from where they are to ``pool.tasks[k].total``.

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
            run = run_chain(pool.tasks[k], pool.plan, pool.storages[k], pool.control[k])
            pool.failures[k] = merged(pool.failures[k], run.failures)
            pool.take(k, run._replace(failures=pool.failures[k]))

    threads = [threading.Thread(target=work, name=f"refhmc-chain-{k}", daemon=True) for k in range(pool.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not pool.overdue:
            thread.join(1.0)
    if pool.overdue:
        not_begun = {waiting.get_nowait() for _ in range(waiting.qsize())}
        for k in set(range(len(pool.tasks))) - not_begun:
            pool.leave_behind(k)
