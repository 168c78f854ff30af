"""Chains as tasks of an executor, some seconds of one at a time: state in, state out.

Each chain has one segment under way (:func:`refhmc.sampling.chain_run.run_segment`), which comes back with its rows and the
state that the next one begins from. So progress, a time limit, Ctrl-C, checkpoints and a worker that is lost come from one
mechanism: nothing needs to reach a segment that is under way, and one that does not come back is run again elsewhere.

**How long a segment is.** So that what it costs beside sampling, to send it, to make the chain and to bring back its rows, is
a fiftieth of it, as far as that can be had between one second and half a minute. The time that it waits for a worker is no
cost: to send and to bring back is taken to be as quick as it was once in the run.

**What is sent.** The chain's state, and what the chain alone needs. What all chains of the run need, the model above all, is
kept by each worker. One that does not have it answers with its own name, and the segment is sent again: with the model, if
fewer models are on their way than workers have asked for one. So the model is sent about once a worker, not once a segment.
Where workers are threads of this process it is never sent.

**When a segment is lost.** An executor says so by an exception, or says nothing: a worker of ``multiprocessing.Pool`` that is
killed takes its task with it. Of a silent executor only time can tell, and time is no proof. But a segment from a given
state is the beginning of the same draws wherever and however often it is run. So one that is overdue is sent a second time,
and the first that comes back counts: to be mistaken costs work and never draws. Only if the second is overdue, too, is the
chain ended.

Where an executor says twice that a segment is lost, another chain may be the cause: a process that dies ends all tasks of a
``ProcessPoolExecutor``, and Ray's ``Pool`` goes on giving tasks, in turn, to a worker that is dead. So the chain is set aside
until no other is under way, and goes on alone. If alone, too, its segment is lost twice, the chain is ended.

A segment is overdue when its clock says more than

    bound = HEARTBEAT + 2 (seconds asked for + seconds that an iteration may take + the longest delay seen in a worker).

A worker gives up an iteration that takes longer than it may, ten seconds, and twice that the next time; so this bound does not
depend on the model. The clock is set to zero when the segment is sent, and whenever one that was sent before it comes back.
Then to wait behind the run's own segments is never taken for loss, however many they are. For let each worker take its tasks
in the order in which they were sent, from one queue or from a queue of its own. While a segment waits, the worker that will
take it (of one queue, every worker) runs one that was sent before it. That one comes back within the time it may take, and
sets the clock to zero. The segment itself, once taken, comes back within such a time, too. (Twice, since to some executors a
task runs when it is the next of a worker.)

Behind tasks of others it may wait for longer. A future that by its own word has not begun has no clock, if futures of this
executor have been seen to run. Where there is no such word, HEARTBEAT is for a segment which one that was sent later has
overtaken; as long as all are silent, and where a worker may have to compile, SILENCE takes its place. A segment that has
begun in a thread of this process has no clock: it cannot be lost alone.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import os
import pickle
import queue
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.core.linear_algebra import one_thread
from refhmc.core.records import DRAWS_DONE, FIRST
from refhmc.errors import SamplingError, WorkerDied
from refhmc.sampling.chain import Plan, make_plan
from refhmc.sampling.chain_run import LONGEST_ITERATION, ChainTask, Segment, run_segment
from refhmc.sampling.checkpoint import Saved
from refhmc.sampling.drawing import Drawing
from refhmc.sampling.main_guard import without_guard

LEAST, MOST, SHARE = 1.0, 30.0, 0.02  # seconds of a segment; what its own cost may be of it
TRIES = 2
HEARTBEAT = 30.0  # seconds that a segment may be late where others come back
SILENCE = 300.0  # the same where none does, or a worker may have to compile
BOUNCES = 2  # after so many returns without the model a segment takes it along in any case
LOOK_EVERY = 0.05  # seconds between two looks at a stop, and at futures that do not say when they have ended
CLOCKS_EVERY = 0.5  # seconds between two looks at the clocks
KEPT_RUNS = 4  # whose model a worker keeps

Shared = tuple[Any, Any, int, bool]  # what all chains of a run need: model, kernel, tune, fuse

_kept: dict[str, tuple[Shared, Plan]] = {}  # by a worker: of runs of other processes
_names: dict[int, str] = {}


class OfThisProcess:
    """A run whose chains may be in threads of its own process: then they share its counters, ``control``, and its plan.

    Each segment begins there once: a copy of one that was late would write to the same counters.
    """

    def __init__(self, drawing: Drawing) -> None:
        task = drawing.tasks[0]
        self.control, self.plan = drawing.control, drawing.plan
        self.shared: Shared = task.model, task.kernel, task.tune, task.fuse
        self.begun: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def begin(self, chain: int, turn: int) -> bool:
        with self._lock:
            there = (chain, turn) in self.begun
            self.begun.add((chain, turn))
            return not there


_here: dict[str, OfThisProcess] = {}


class Job(NamedTuple):
    """A segment as it is sent. ``run``, ``process``: which run of which process; ``turn``: which segment of its chain;
    ``number`` makes one that is sent again another task; ``task`` is without model and kernel; else as in ``run_segment``."""

    run: str
    process: int
    turn: int
    number: int
    task: ChainTask
    saved: Saved | None
    seconds: float
    patience: float

    @property
    def chain(self) -> int:
        return self.task.chain


class Answer(NamedTuple):
    """What comes back: the segment, or nothing; ``lacks_model``: why nothing. ``worker``: the process it comes from;
    ``seconds``: how long it had the job."""

    worker: str
    segment: Segment | None
    seconds: float
    lacks_model: bool = False


@dataclasses.dataclass
class Sent:
    """A segment under way; ``tries``: how often it was sent before; ``at``: when; ``since``: when its clock was at zero;
    ``begun``: its future said that it runs; ``late``: another was sent in its place."""

    number: int
    chain: int
    turn: int
    future: Any
    seconds: float
    patience: float
    tries: int
    with_model: bool
    at: float
    since: float
    begun: bool = False
    late: bool = False


def work_on(job: Job, shared: Shared | None = None) -> Answer:
    """What is sent: a segment of the chain, with one thread of linear algebra, as in threads."""
    begin, process = time.perf_counter(), os.getpid()
    here = _here.get(job.run) if job.process == process else None
    worker = _names.setdefault(process, uuid.uuid4().hex)
    control = None
    if here is not None:
        if not here.begin(job.chain, job.turn):
            return Answer(worker, None, 0.0)
        shared, plan, control = here.shared, here.plan, here.control[job.chain]
    else:
        known = _kept.get(job.run)
        if known is None:
            if shared is None:
                return Answer(worker, None, 0.0, lacks_model=True)
            for run in list(_kept)[: 1 - KEPT_RUNS]:
                _kept.pop(run, None)
            with one_thread():
                known = _kept[job.run] = shared, make_plan(*shared)
        shared, plan = known
    task = job.task._replace(model=shared[0], kernel=shared[1])
    try:
        with one_thread():
            segment = run_segment(task, plan, job.saved, job.seconds, control, job.patience)
    except BaseException:
        if here is not None:
            here.begun.discard((job.chain, job.turn))
        raise
    return Answer(worker, segment, time.perf_counter() - begin)


def is_executor(value: Any) -> bool:
    """Whether it takes tasks."""
    return callable(getattr(value, "submit", None)) or callable(getattr(value, "apply_async", None))


class Promise(concurrent.futures.Future):
    """Of a pool, whose task cannot be taken back, and does not say that it has begun. (A result for a future that was
    cancelled would be an error in the pool's own thread, and end it.)"""

    running = None  # type: ignore[assignment]

    def cancel(self) -> bool:
        return False


def as_submit(executor: Any) -> Callable:
    """Its ``submit``, or one by ``apply_async``, as the pools of ``multiprocessing`` and Ray have it."""
    if callable(getattr(executor, "submit", None)):
        return executor.submit

    def submit(function: Callable, *arguments: Any) -> Promise:
        future = Promise()
        executor.apply_async(function, arguments, callback=future.set_result, error_callback=future.set_exception)
        return future

    return submit


def draw_in_executor(drawing: Drawing, executor: Any, max_seconds: float | None = None) -> None:
    """Run the chains by ``executor``: one that takes tasks, or a function that gives one, asked again where that one broke.

    A segment whose worker is lost is run again; a chain that loses it twice goes on when the others have ended, and if it is
    lost twice again ends, with :class:`refhmc.errors.WorkerDied`. After a stop segments that have not begun are cancelled, and
    those that run are waited for.
    """
    run = RunByExecutor(drawing, executor, max_seconds)
    _here[run.name] = OfThisProcess(drawing)
    try:
        run.draw()
    finally:
        del _here[run.name]


class RunByExecutor:
    """The segments of a run that are under way, and where its chains stand."""

    def __init__(self, drawing: Drawing, executor: Any, max_seconds: float | None) -> None:
        self.drawing, self.executor, self.max_seconds = drawing, executor, max_seconds
        self.name, self.begun_at = uuid.uuid4().hex, time.monotonic()
        self.taken = executor if is_executor(executor) else executor()
        self.submit = as_submit(self.taken)
        self.ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.under_way: dict[int, Sent] = {}  # by number: in the order in which they were sent
        self.to_look_at: dict[int, Sent] = {}  # those whose futures do not say when they have ended
        chains = range(len(drawing.tasks))
        self.states: list[Saved | None] = [keeper.saved for keeper in drawing.keepers]
        self.turns, self.bounces = [0 for _ in chains], [0 for _ in chains]
        self.seconds, self.patience = [LEAST for _ in chains], [LONGEST_ITERATION for _ in chains]
        self.failures: list[tuple] = [() for _ in chains]
        self.sent = self.models_sent = self.models_under_way = 0
        self.aside: list[int] = []  # chains that wait to go on alone
        self.alone: set[int] = set()  # chains that have begun to
        self.asking: set[str] = set()  # workers that do not have the model
        self.quickest = np.inf  # seconds to send a segment and to bring it back
        self.longest_delay = 0.0  # seconds that a worker took beyond those it was given
        self.says_when_it_runs = self.has_answered = False
        self.earliest_back, self.latest_back = np.inf, -1  # numbers: since the last look at the clocks, and of all

    def left(self) -> float:
        if self.max_seconds is None:
            return np.inf
        return max(0.0, self.max_seconds - (time.monotonic() - self.begun_at))

    def draw(self) -> None:
        drawing, cancelled, look_at = self.drawing, False, 0.0
        for chain, state in enumerate(self.states):
            drawing.control[chain, FIRST] = state.done if state else 0
            self.send(chain)
        while len(drawing.finished) < len(drawing.tasks):
            if not drawing.stopped_by and not self.left():
                drawing.stop("time")
            if drawing.stopped_by and not cancelled:
                cancelled = True
                self.cancel()
            if self.aside and all(sent.late for sent in self.under_way.values()):
                self.go_on_alone()
            for number in self.come_back():
                self.take(self.under_way.pop(number))
            if drawing.overdue:
                return
            if time.monotonic() > look_at and not drawing.stopped_by:
                self.look_at_clocks()
                look_at = time.monotonic() + CLOCKS_EVERY

    # ------------------------------------------------------------------------------------------------ there and back

    def send(self, chain: int, tries: int = 0) -> None:
        """Send the chain's next segment, or the same one again."""
        with_model = bool(
            self.asking
            and self.bounces[chain]
            and (self.models_under_way < len(self.asking) or self.bounces[chain] > BOUNCES)
        )
        job = self.job(chain)
        arguments = (job, _here[self.name].shared) if with_model else (job,)
        now = time.monotonic()
        try:
            try:
                future = self.submit(work_on, *arguments)
            except concurrent.futures.BrokenExecutor:
                if is_executor(self.executor):
                    raise
                self.submit = as_submit(self.executor())
                future = self.submit(work_on, *arguments)
        except Exception as error:
            self.lose(chain, tries, error)
            return
        sent = Sent(job.number, chain, job.turn, future, job.seconds, job.patience, tries, with_model, now, now)
        self.under_way[sent.number] = sent
        self.models_under_way += with_model
        self.models_sent += with_model
        if callable(getattr(future, "add_done_callback", None)):
            future.add_done_callback(lambda _: self.ended.put(sent.number))
        else:
            self.to_look_at[sent.number] = sent

    def job(self, chain: int) -> Job:
        state, task = self.states[chain], self.drawing.tasks[chain]
        without: dict[str, Any] = {"model": None, "kernel": None}
        if state is not None:  # which has what it began from
            without |= {"start": None, "adapted": None}
        self.sent += 1
        return Job(
            self.name,
            os.getpid(),
            self.turns[chain],
            self.sent,
            task._replace(**without),
            state,
            min(self.seconds[chain], self.left()),
            self.patience[chain],
        )

    def come_back(self) -> list[int]:
        """The numbers of those that have ended; waits a little for the first."""
        numbers = []
        with contextlib.suppress(queue.Empty):
            numbers.append(self.ended.get(timeout=LOOK_EVERY))
            while True:
                numbers.append(self.ended.get_nowait())
        for number in [number for number, sent in self.to_look_at.items() if sent.future.done()]:
            del self.to_look_at[number]
            numbers.append(number)
        return numbers

    def cancel(self) -> None:
        """What has not begun."""
        for sent in list(self.under_way.values()):
            if callable(getattr(sent.future, "cancel", None)):
                sent.future.cancel()
        for chain in self.aside:
            self.drawing.finished[chain] = self.drawing.so_far(chain)
        self.aside.clear()

    def take(self, sent: Sent) -> None:
        chain, now = sent.chain, time.monotonic()
        self.models_under_way -= sent.with_model
        self.earliest_back = min(self.earliest_back, sent.number)
        self.latest_back = max(self.latest_back, sent.number)
        if chain in self.drawing.finished or sent.turn != self.turns[chain]:
            return  # the other copy was here before
        try:
            answer: Answer = sent.future.result()
        except KeyboardInterrupt:
            self.drawing.stop("interrupt")
            self.drawing.finished[chain] = self.drawing.so_far(chain)
            return
        except BaseException as error:
            if not sent.late:
                self.lose(chain, sent.tries, error)
            return
        self.has_answered = True
        if answer.segment is not None:
            self.asking.discard(answer.worker)
            segment = answer.segment
            self.quickest = min(self.quickest, now - sent.at - answer.seconds)
            delay = segment.seconds + segment.beside - sent.seconds - sent.patience
            self.longest_delay = max(self.longest_delay, delay)
            self.keep(chain, segment)
        elif answer.lacks_model and not sent.late:
            self.asking.add(answer.worker)
            self.bounces[chain] += 1
            self.send(chain, sent.tries)

    def keep(self, chain: int, segment: Segment) -> None:
        """Keep what a segment has drawn; send the next one, unless the chain is at its end or at that of a stop."""
        drawing, keeper, made = self.drawing, self.drawing.keepers[chain], segment.run
        self.turns[chain] += 1
        self.bounces[chain] = 0
        keeper.add(made.rows)
        before, done = self.states[chain], int(made.control[DRAWS_DONE])
        if segment.saved is not None:
            self.states[chain] = segment.saved
        first = drawing.control[chain, FIRST]
        drawing.control[chain, DRAWS_DONE:] = made.control[DRAWS_DONE:]
        drawing.control[chain, FIRST] = first
        if done == (before.done if before else 0):  # an iteration was given up, and comes again
            self.patience[chain] *= 2
        else:
            self.failures[chain] = merged(self.failures[chain], made.failures)
        over = made.error is not None or done >= drawing.tasks[chain].total
        if over or drawing.stopped_by or not self.left():
            if not over and not drawing.stopped_by:
                drawing.stop("time")
            if segment.saved is not None and keeper.on_disk:
                keeper.close(segment.saved)
            whole = made._replace(rows=keeper.made(done), control=drawing.control[chain].copy())
            unsaved = keeper.unsaved or keeper.unstored
            drawing.take(chain, whole._replace(failures=self.failures[chain], unsaved=unsaved))
            return
        if segment.saved is not None:
            keeper.save(segment.saved)
        self.seconds[chain] = min(max((self.quickest + segment.beside) / SHARE, LEAST), MOST)
        self.send(chain)

    # ---------------------------------------------------------------------------------------------------------- loss

    def look_at_clocks(self) -> None:
        """Lose what is overdue."""
        now, here = time.monotonic(), _here[self.name]
        for sent in list(self.under_way.values()):
            if sent.number > self.earliest_back:
                sent.since = now
            if not sent.begun and callable(getattr(sent.future, "running", None)) and sent.future.running():
                self.says_when_it_runs = sent.begun = True
                sent.since = now
            at_work = (sent.chain, sent.turn) in here.begun
            waits = self.says_when_it_runs and not sent.begun
            if not (at_work or waits or sent.late) and now > sent.since + self.bound(sent):
                sent.late = True
                self.models_under_way -= sent.with_model
                sent.with_model = False
                text = (
                    f"nothing came back for {now - sent.since:.0f} s, with {sent.seconds:.3g} s of sampling asked for"
                )
                self.lose(sent.chain, sent.tries, TimeoutError(text))
        self.earliest_back = np.inf

    def bound(self, sent: Sent) -> float:
        """Seconds after which its clock says that a segment is lost: see the text of the module."""
        others_come_back = sent.begun or sent.number < self.latest_back
        silence = HEARTBEAT if others_come_back and not sent.with_model else SILENCE
        return silence + 2 * (sent.seconds + sent.patience + self.longest_delay)

    def go_on_alone(self) -> None:
        """The first of the chains that are set aside goes on."""
        chain = self.aside.pop(0)
        self.alone.add(chain)
        self.send(chain)

    def lose(self, chain: int, tries: int, error: BaseException) -> None:
        """A segment did not come back."""
        drawing = self.drawing
        unguarded = ""
        if isinstance(error, (concurrent.futures.BrokenExecutor, TimeoutError)) and not self.has_answered:
            unguarded = without_guard(self.taken)
        if drawing.stopped_by:  # not begun, or ended with its process
            drawing.finished[chain] = drawing.so_far(chain)
        elif unguarded:  # no worker will ever come up
            told = WorkerDied(unguarded, chain=chain, last_iteration=int(drawing.control[chain, DRAWS_DONE]))
            told.__cause__ = error
            drawing.finished[chain] = drawing.so_far(chain, error=told)
        elif tries + 1 < TRIES and not isinstance(error, pickle.PicklingError):
            self.send(chain, tries + 1)
        elif chain not in self.alone and not isinstance(error, (pickle.PicklingError, TimeoutError)):
            self.aside.append(chain)
        else:
            drawing.finished[chain] = drawing.so_far(chain, error=died(drawing.tasks[chain], drawing, error))


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
