"""Run a chain: through a whole run in this thread, or for some seconds as a task of an executor."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from refhmc.core.records import CONTROL, one
from refhmc.sampling.chains.chain import Plan
from refhmc.sampling.chains.live_chain import LiveChain
from refhmc.sampling.chains.task import ChainRun, ChainTask, Saved
from refhmc.sampling.storage.append_only import Rows
from refhmc.sampling.storage.chain_storage import ChainStorage

SEGMENT = 2**26  # most bytes of rows in a segment
LONGEST_ITERATION = 10.0  # initial limit in seconds for one iteration of a segment
PAUSE_EVERY = 0.5  # seconds between two states kept for a checkpoint


def run_chain(task: ChainTask, plan: Plan, storage: ChainStorage, control: np.record) -> ChainRun:
    """Run one chain in this thread, from its start or saved state to its last draw; exceptions of the model are returned.

    With files on disk, the loop pauses after an iteration twice per second. It keeps the state there and writes it every few
    seconds. A stop may interrupt an iteration; the state before that iteration is then recomputed from the last state kept.
    """
    live = LiveChain(task, plan, control)
    saved, error, position = storage.saved, None, None
    try:
        if live.begin(saved):
            control.first = live.done
            saved = live.saved() if storage.on_disk else None
            with pausing(control) if storage.on_disk else contextlib.nullcontext():
                while live.done < task.total and not control.stop:
                    if storage.make_room(live.done):
                        saved = live.saved()
                        storage.save(saved)
                    rows = storage.rows  # which may end after this task
                    whole = live.advance(rows.between(rows.first, min(rows.end, task.total)))
                    control.pause = 0
                    # Full rows are no reason to save, because they may occur every few milliseconds.
                    occasion = not whole or live.done >= task.total
                    # A stop may have interrupted the search for a step size at the end of a warm-up iteration.
                    if storage.on_disk and occasion and not control.stop:
                        saved = live.saved()
                        storage.save(saved)
            if live.done < storage.task.total and not control.stop:  # another task may continue from here
                storage.saved = live.saved()
    except BaseException as caught:  # the caller raises it with the draws attached
        error, position = caught, task.model.core.last_position.get(threading.get_ident())
    made = int(control.draws_done)
    run = live.brought_back(storage.made(made), error, position)
    try:
        if saved is not None and storage.on_disk:
            if saved.done < made:
                # If the model raises now, the older state stays.
                with contextlib.suppress(Exception):
                    saved = live.saved_after(made, saved)
            storage.close(saved)
    except BaseException as caught:
        run = run._replace(error=error or caught)
    return run._replace(rows=storage.made(made), unsaved=storage.unsaved)


class Segment(NamedTuple):
    """Some iterations of a chain, as an executor returns them.

    ``run`` has the rows of these iterations only, ``saved`` the state after them (None if there is none yet). They took
    ``seconds``; ``beside`` is the time for restoring and saving the chain.
    """

    run: ChainRun
    saved: Saved | None
    seconds: float
    beside: float


def run_segment(
    task: ChainTask,
    plan: Plan,
    saved: Saved | None,
    seconds: float,
    control: np.record | None = None,
    patience: float = LONGEST_ITERATION,
) -> Segment:
    """Advance a chain from a saved state for about `seconds`, and return the new state.

    The last iteration may take `patience` seconds more; otherwise it is abandoned and repeated by the next segment. So a
    segment returns after ``seconds + patience`` and one evaluation of the model at most. `control` holds counters that the
    chain shares with its run in this process; then `patience` does not apply.
    """
    begin = time.perf_counter()
    shared = control is not None
    control = one(CONTROL)[0] if control is None else control
    live = LiveChain(task, plan, control)
    error, position, before, sampled = None, None, saved, 0.0
    first = max(task.first, saved.done if saved else 0)
    n = min(max(task.total - first, 0), max(1, SEGMENT // (8 * (task.model.dim + plan.n_stats))))
    rows = Rows(first, np.zeros((n, task.model.dim)), np.zeros((n, plan.n_stats)))
    try:
        with after(None if shared else seconds + patience, partial(control.__setitem__, "stop", 1)):
            if live.begin(saved):
                before, since = live.saved(), time.perf_counter()
                with after(seconds, partial(control.__setitem__, "pause", 1)):
                    live.advance(rows)
                if live.done == before.done:  # at least one iteration, if the time was too short for the first
                    control.pause = 0
                    not_kept = Rows(live.done + 1, rows.draws[:0], rows.stats[:0])
                    live.advance(not_kept if live.done < first else rows.between(first, first + 1))
                sampled = time.perf_counter() - since
                paused = not control.stop
                control.pause = 0
                if paused:
                    before = live.saved()
    except BaseException as caught:
        error, position = caught, task.model.core.last_position.get(threading.get_ident())
    made = int(control.draws_done)
    run = live.brought_back(rows.between(first, max(made, first)), error, position)
    if before is not None and before.done < made:
        with contextlib.suppress(Exception):
            before = live.saved_after(made, before)
    return Segment(run, before, sampled, time.perf_counter() - begin - sampled)


@contextlib.contextmanager
def after(seconds: float | None, ask: Callable[[], None]) -> Iterator[None]:
    """Call ``ask()`` after `seconds`, once; never if they are None, or after the context is left."""
    if seconds is None:
        yield
        return
    alarm = threading.Timer(seconds, ask)
    alarm.daemon = True
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()
        alarm.join()


@contextlib.contextmanager
def pausing(control: np.record) -> Iterator[None]:
    """Ask the chain every half second to return from compiled code after its present draw."""
    over = threading.Event()

    def ask() -> None:
        while not over.wait(PAUSE_EVERY):
            control.pause = 1

    asking = threading.Thread(target=ask, name="refhmc-pause", daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
        control.pause = 0
