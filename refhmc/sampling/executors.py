"""Chains as tasks of an executor, some seconds of one at a time: state in, state out.

Each chain has one segment under way (:func:`refhmc.sampling.chain_run.run_segment`), which comes back with its rows and the
state that the next one begins from. So progress, a time limit, Ctrl-C, checkpoints and a worker that is lost come from one
mechanism: nothing needs to reach a segment that is under way, and one that does not come back is run again elsewhere.

How long a segment is: so that what it costs beside sampling, to send it, to make the model anew and to bring back its rows, is
a fiftieth of it, as far as that can be had between one second and half a minute.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pickle
import queue
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.core.linear_algebra import one_thread
from refhmc.core.records import DRAWS_DONE, FIRST
from refhmc.errors import SamplingError, WorkerDied
from refhmc.sampling.chain import Plan, make_plan
from refhmc.sampling.chain_run import ChainTask, Segment, run_segment
from refhmc.sampling.checkpoint import Saved
from refhmc.sampling.drawing import Drawing

LEAST, MOST, SHARE = 1.0, 30.0, 0.02  # seconds of a segment; what its own cost may be of it
TRIES = 2
LOOK_EVERY = 0.05  # seconds between two looks at executors whose tasks do not say when they have ended

# Of runs in this process: the counters of their chains, which segments in its threads share; and what a worker needs of a run,
# kept from one segment to the next.
_counters: dict[str, np.ndarray] = {}
_plans: dict[str, tuple[ChainTask, Plan]] = {}
KEPT_PLANS = 4


class Sent(NamedTuple):
    """A segment under way; ``tries``: how often it was sent before, ``at`` when."""

    chain: int
    future: Any
    seconds: float
    at: float
    tries: int


def work_on(task: ChainTask, run: str, process: int, saved: Saved | None, seconds: float, tries: int) -> Segment:
    """What is sent: a segment of the chain, with one thread of linear algebra, as in threads. ``run`` and ``process`` say which
    run of which process it belongs to, ``tries`` makes a task that is sent again another one."""
    known = _plans.get(run)
    if known is None:
        while len(_plans) >= KEPT_PLANS:
            _plans.pop(next(iter(_plans)), None)
        known = _plans[run] = task, make_plan(task.model, task.kernel, task.tune, task.fuse)
    kept, plan = known
    control = _counters[run][task.chain] if process == os.getpid() and run in _counters else None
    with one_thread():
        return run_segment(task._replace(model=kept.model, kernel=kept.kernel), plan, saved, seconds, control)


def as_submit(executor: Any) -> Callable:
    """Its ``submit``, or ``apply_async`` as the pools of ``multiprocessing`` and Ray have it."""
    if callable(getattr(executor, "submit", None)):
        return executor.submit
    return lambda function, *arguments: executor.apply_async(function, arguments)


def is_executor(value: Any) -> bool:
    """Whether it takes tasks."""
    return callable(getattr(value, "submit", None)) or callable(getattr(value, "apply_async", None))


def draw_in_executor(drawing: Drawing, executor: Any, max_seconds: float | None = None) -> None:
    """Run the chains by ``executor``: one that takes tasks, or a function that gives one, asked again where that one broke.

    A segment whose worker is lost is run again; a chain that loses it twice ends, with :class:`refhmc.errors.WorkerDied`, and
    the others go on. After a stop segments that have not begun are cancelled, and those that run are waited for.
    """
    run, process, begun = uuid.uuid4().hex, os.getpid(), time.monotonic()
    _counters[run], _plans[run] = drawing.control, (drawing.tasks[0], drawing.plan)
    submit = as_submit(executor if is_executor(executor) else executor())
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    under_way: dict[int, Sent] = {}
    states: dict[int, Saved | None] = {k: keeper.saved for k, keeper in enumerate(drawing.keepers)}
    seconds = dict.fromkeys(states, LEAST)

    def left() -> float:
        return np.inf if max_seconds is None else max(0.0, max_seconds - (time.monotonic() - begun))

    def send(chain: int, tries: int = 0) -> None:
        nonlocal submit
        lasts, task = min(seconds[chain], left()), drawing.tasks[chain]
        try:
            try:
                future = submit(work_on, task, run, process, states[chain], lasts, tries)
            except concurrent.futures.BrokenExecutor:
                if is_executor(executor):
                    raise
                submit = as_submit(executor())
                future = submit(work_on, task, run, process, states[chain], lasts, tries)
        except Exception as error:
            lose(chain, tries, error)
            return
        under_way[chain] = Sent(chain, future, lasts, time.monotonic(), tries)
        if callable(getattr(future, "add_done_callback", None)):
            future.add_done_callback(lambda _: ended.put(chain))

    def lose(chain: int, tries: int, error: BaseException) -> None:
        """A segment did not come back."""
        given_up = isinstance(error, concurrent.futures.CancelledError | concurrent.futures.BrokenExecutor)
        if drawing.stopped_by and given_up:  # not begun, or ended with its process
            drawing.finished[chain] = drawing.so_far(chain)
        elif tries + 1 < TRIES and not isinstance(error, pickle.PicklingError):
            send(chain, tries + 1)
        else:
            drawing.finished[chain] = drawing.so_far(chain, error=died(drawing.tasks[chain], drawing, error))

    def take(sent: Sent) -> None:
        chain = sent.chain
        try:
            segment = result_of(sent.future)
        except KeyboardInterrupt:
            drawing.stop("interrupt")
            drawing.finished[chain] = drawing.so_far(chain)
            return
        except BaseException as error:
            lose(chain, sent.tries, error)
            return
        keeper, made = drawing.keepers[chain], segment.run
        keeper.add(made.rows)
        if segment.saved is not None:
            states[chain] = segment.saved
        first = drawing.control[chain, FIRST]
        drawing.control[chain, DRAWS_DONE:] = made.control[DRAWS_DONE:]
        drawing.control[chain, FIRST] = first
        failures[chain] = merged(failures.get(chain, ()), made.failures)
        over = made.error is not None or made.control[DRAWS_DONE] >= drawing.tasks[chain].total
        if over or drawing.stopped_by or not left():
            if not over and not drawing.stopped_by:
                drawing.stop("time")
            if segment.saved is not None and keeper.on_disk:
                keeper.close(segment.saved)
            done = int(made.control[DRAWS_DONE])
            run_of_chain = made._replace(rows=keeper.made(done), control=drawing.control[chain].copy())
            whole = run_of_chain._replace(failures=failures[chain], unsaved=keeper.unsaved or keeper.unstored)
            drawing.take(chain, whole)
            return
        if segment.saved is not None:
            keeper.save(segment.saved)
        overhead = time.monotonic() - sent.at - segment.seconds
        seconds[chain] = min(max(overhead / SHARE, LEAST), MOST)
        send(chain)

    failures: dict[int, tuple] = {}
    try:
        for k, state in states.items():
            drawing.control[k, FIRST] = state.done if state else 0
            send(k)
        while under_way:
            if not drawing.stopped_by and not left():
                drawing.stop("time")
            if drawing.stopped_by:
                for sent in under_way.values():
                    if callable(getattr(sent.future, "cancel", None)):
                        sent.future.cancel()
            with contextlib.suppress(queue.Empty):
                ended.get(timeout=LOOK_EVERY)
            for sent in [each for each in under_way.values() if has_ended(each.future)]:
                del under_way[sent.chain]
                take(sent)
            if drawing.overdue:
                return
    finally:
        del _counters[run]
        _plans.pop(run, None)


def has_ended(future: Any) -> bool:
    return future.done() if hasattr(future, "done") else future.ready()


def result_of(future: Any) -> Segment:
    return future.result() if hasattr(future, "result") else future.get()


def merged(one: tuple, other: tuple) -> tuple:
    """What the model said in two parts of a chain, together."""
    found = {each.message: each for each in one}
    for each in other:
        before = found.get(each.message)
        if before is not None:
            each.first, each.count = before.first, before.count + each.count
            each.iterations[:0] = before.iterations
        found[each.message] = each
    return tuple(found.values())


def died(task: ChainTask, drawing: Drawing, error: BaseException) -> Exception:
    """What to say of a chain whose segment was lost: that it cannot be sent, or that its worker died."""
    if "pickl" in f"{type(error).__name__} {error}":
        said = SamplingError(
            f"model {task.model.name!r} cannot be sent to the executor's workers ({error}): define it in a module that "
            "they can import, or sample without executor, in threads"
        )
        said.__cause__ = error
        return said
    last = int(drawing.control[task.chain, DRAWS_DONE])
    lost = WorkerDied(
        f"the worker of chain {task.chain} was lost {TRIES} times in the segment after iteration {last}: "
        f"{type(error).__name__}: {error}",
        chain=task.chain,
        last_iteration=last,
    )
    lost.__cause__ = error
    return lost
