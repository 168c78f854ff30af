"""The chains of a run, each in a thread of its own or as a task of an executor, and what they have drawn at any moment."""

from __future__ import annotations

import concurrent.futures
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core.linear_algebra import one_thread
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
from refhmc.sampling.chain_run import ChainRun, Rows, make_rows, run_chain
from refhmc.sampling.progress import Progress
from refhmc.sampling.time_left import ENOUGH, QUIET

if TYPE_CHECKING:
    from refhmc.sampling.chain import Plan
    from refhmc.sampling.progress import _Silent

WATCH_EVERY = 0.05  # seconds between two looks at the chains' counters


@dataclass
class Drawing:
    """Chains on their way: ``tasks`` are the arguments of :func:`refhmc.sampling.chain_run.run_chain`, ``control``
    (chains, N_CONTROL) their counters, ``rows`` where they write, ``finished`` what came back, ``stopped_by``
    "interrupt", "time" or nothing. ``plan``: what all the chains of this process need. ``progress``: of chains in threads."""

    tasks: list[dict[str, Any]]
    plan: Plan
    control: np.ndarray = field(init=False)
    rows: list[Rows] = field(default_factory=list)
    finished: dict[int, ChainRun] = field(default_factory=dict)
    stopped_by: str = ""
    progress: Progress | None = None

    def __post_init__(self) -> None:
        self.control = np.zeros((len(self.tasks), N_CONTROL), np.int64)

    def runs(self) -> list[ChainRun]:
        """Each chain as it came back or, of one that has not, the draws that it has made so far."""
        return [self.finished[k] if k in self.finished else self._so_far(k) for k in range(len(self.tasks))]

    def stop(self, why: str) -> None:
        """Every chain of this process stops after the transition that it is in."""
        self.stopped_by = why
        self.control[:, STOP] = 1

    def make_rows(self) -> None:
        """Rows for all chains, which can be read while the chains write them."""
        names = ("draws", "tune", "keep_warmup")
        for task in self.tasks:
            self.rows.append(make_rows(task["model"].dim, self.plan.n_stats, *(task[name] for name in names)))

    def take(self, chain: int, future: Any) -> None:
        """Wait for a chain and keep what it brings back. An exception of the task is the chain's own."""
        try:
            run = future.result()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            given_up = isinstance(error, concurrent.futures.CancelledError | concurrent.futures.BrokenExecutor)
            interrupted = given_up and self.stopped_by == "interrupt"  # not begun, or ended with its process
            run = self._so_far(chain)._replace(error=None if interrupted else error)
        if isinstance(run.error, KeyboardInterrupt):  # Ctrl-C reached the chain's process, or its Python functions
            self.stopped_by = "interrupt"
            run = run._replace(error=None)
        self.finished[chain] = run

    def _so_far(self, chain: int) -> ChainRun:
        task, control = self.tasks[chain], self.control[chain]
        dim, keep = task["model"].dim, task["keep_warmup"]
        rows = self.rows[chain] if self.rows else make_rows(dim, self.plan.n_stats, 0, 0, keep)
        start = rows.draws[rows.kept - 1] if rows.kept else np.full(dim, np.nan)
        return ChainRun(*rows.after(int(control[DRAWS_DONE]), keep), start, control, None, None, [])


def draw_in_threads(drawing: Drawing, workers: int, display: _Silent, max_seconds: float | None) -> None:
    """Run the chains in threads and watch them.

    Ctrl-C and the time limit stop them; a second Ctrl-C, and whatever ``display`` raises, is raised. The chains are waited
    for, except after a second Ctrl-C.
    """
    control = drawing.control
    tune, draws = (drawing.tasks[0][name] for name in ("tune", "draws"))
    learns_length = any(len(block.length_windows) for block in drawing.plan.blocks)
    quiet = tune + ENOUGH if learns_length else QUIET
    progress = drawing.progress = Progress(len(control), tune, tune + draws, workers, quiet)

    def report(finished: bool) -> None:
        columns = DRAWS_DONE, DIVERGENCES, WARMUP_DIVERGENCES, GRADIENTS, FIRST
        done, divergences, of_warmup, gradients, first = (control[:, column].copy() for column in columns)
        step_size = control.view(float)[:, STEP_SIZE]
        step_size = np.where(step_size > 0, step_size, np.nan)
        display.report(progress.report(done, divergences, of_warmup, gradients, step_size, first, finished))

    drawing.make_rows()
    pool = concurrent.futures.ThreadPoolExecutor(workers, thread_name_prefix="refhmc-chain")
    futures: list[concurrent.futures.Future] = []
    patient = True
    try:
        for k, task in enumerate(drawing.tasks):
            futures.append(pool.submit(run_chain, **task, control=control[k], rows=drawing.rows[k], plan=drawing.plan))
        waiting = set(futures)
        while waiting:
            try:
                waiting = concurrent.futures.wait(waiting, timeout=WATCH_EVERY).not_done
                if max_seconds is not None and not drawing.stopped_by and progress.seconds > max_seconds:
                    drawing.stop("time")
                report(finished=not waiting)
            except KeyboardInterrupt:
                if drawing.stopped_by == "interrupt":  # the second one
                    raise
                drawing.stop("interrupt")
    except BaseException as error:
        patient = not isinstance(error, KeyboardInterrupt)
        drawing.stopped_by = drawing.stopped_by or "error"
        raise
    finally:
        control[:, STOP] = 1
        pool.shutdown(wait=patient, cancel_futures=True)
        for k, future in enumerate(futures):
            if future.done() and not future.cancelled():
                drawing.take(k, future)


def run_in_worker(**task: Any) -> Any:
    """:func:`run_chain` in another process, which has the number of threads of linear algebra that it has here: one."""
    with one_thread():
        return run_chain(**task)


def draw_in_executor(drawing: Drawing, executor: Any) -> None:
    """Each chain as one task of ``executor``; one that raises does not touch the others.

    After Ctrl-C, tasks that have not begun are cancelled, and those that run are waited for: chains in threads of this
    process stop, others go on to their end. A second Ctrl-C is raised at once.
    """
    shared = isinstance(executor, concurrent.futures.ThreadPoolExecutor)
    if shared:
        drawing.make_rows()
    futures: list[Any] = []

    def take_all() -> None:
        for k, future in enumerate(futures):
            if k not in drawing.finished:
                drawing.take(k, future)

    try:
        for k, task in enumerate(drawing.tasks):
            more = {"control": drawing.control[k], "rows": drawing.rows[k], "plan": drawing.plan} if shared else {}
            futures.append(executor.submit(run_chain if shared else run_in_worker, **task, **more))
        take_all()
    except KeyboardInterrupt:
        drawing.stop("interrupt")
        for future in futures:
            with contextlib.suppress(AttributeError):  # not every executor's tasks can be cancelled
                future.cancel()
        take_all()
    finally:
        drawing.control[:, STOP] = 1
