"""Chains as tasks of an executor, in segments of some seconds.

Each chain has one segment in flight (:func:`refhmc.sampling.chains.chain_run.run_segment`). It returns with its rows and the
state from which the next segment starts. Progress, time limits, Ctrl-C, checkpoints and lost workers all rely on this: nothing
needs to reach a segment in flight, and a segment that does not return is run again elsewhere.

**Length of a segment.** The overhead of a segment (sending it, restoring the chain and returning its rows) should be a fiftieth
of its sampling time, within one second and half a minute. Waiting for a worker does not count as overhead: the time to send and
return a segment is taken to be the shortest of the run.

**What is sent.** The chain's state, and what this chain alone needs. Each worker keeps what all chains of the run share, above
all the model. A worker without the model answers with its own name, and the segment is sent again. It is sent with the model if
fewer models are in flight than workers have asked for one. So the model is sent about once per worker, not once per segment.
It is never sent to threads of this process.

**Lost segments.** An executor may raise an exception for a lost segment, or stay silent: if a worker of
``multiprocessing.Pool`` is killed, its task is lost without notice. Only a timeout can detect this, and it may be wrong. But a
segment from a given state yields the same draws wherever and however often it is run. So an overdue segment is sent a second
time, and the first answer counts: a wrong timeout costs work, but never changes draws. The chain ends only if the second
segment is also overdue.

If an executor reports twice that a segment is lost, another chain may be the cause. A process that dies ends all tasks of a
``ProcessPoolExecutor``, and Ray's ``Pool`` keeps giving tasks, in turn, to a dead worker. So the chain is set aside until no
other segment is in flight, and then continues alone. If its segment is again lost twice, the chain ends.

A segment is overdue when its clock exceeds

    bound = HEARTBEAT + 2 (seconds requested + seconds allowed for an iteration + longest delay seen in a worker).

A worker abandons an iteration that takes longer than allowed (ten seconds, and twice as long the next time), so this bound does
not depend on the model. The clock is reset when the segment is sent, and whenever a segment that was sent before it returns.
Then waiting behind the run's own segments, however many they are, never counts as a loss. To see this, let each worker take its
tasks in the order in which they were sent, from a shared queue or its own. While a segment waits, the worker that will take it
(for a shared queue, every worker) runs a segment that was sent earlier. That one returns within its time and resets the clock.
The segment itself, once taken, also returns within such a time. (The factor 2 is there because some executors report a task as
running when it is only next in a worker's queue.)

A segment may wait longer behind tasks of other programs. A future that reports that it has not started has no clock, provided
that futures of this executor have been seen to run. Otherwise HEARTBEAT applies to a segment that was overtaken by a later one.
As long as no segment returns, or if a worker may have to compile, SILENCE replaces HEARTBEAT. A segment that has started in a
thread of this process has no clock, because it cannot be lost alone.
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
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from refhmc.core.failures import merged
from refhmc.core.linear_algebra import one_thread
from refhmc.core.records import set_counts
from refhmc.errors import SamplingError, WorkerDied
from refhmc.kernels.options import AnyKernel
from refhmc.models.base import Model
from refhmc.sampling.chains.chain import Plan, make_plan
from refhmc.sampling.chains.chain_pool import ChainPool
from refhmc.sampling.chains.chain_run import LONGEST_ITERATION, Segment, run_segment
from refhmc.sampling.chains.task import ChainTask, Saved
from refhmc.sampling.checks.main_guard import without_guard
from refhmc.sampling.storage.chain_storage import add

LEAST, MOST, SHARE = 1.0, 30.0, 0.02  # seconds of a segment; share of its overhead
TRIES = 2
HEARTBEAT = 30.0  # seconds that a segment may be late while others return
SILENCE = 300.0  # the same if none returns, or if a worker may have to compile
BOUNCES = 2  # after more returns for lack of the model, a segment always carries it
LOOK_EVERY = 0.05  # seconds between checks for a stop, and of futures without callbacks
CLOCKS_EVERY = 0.5  # seconds between checks of the clocks
KEPT_RUNS = 4  # runs whose model a worker keeps

Shared = tuple[Model, AnyKernel, int, bool]  # shared by all chains of a run: model, kernel, tune, fuse

_kept: dict[str, tuple[Shared, Plan]] = {}  # in a worker: runs of other processes
_names: dict[int, str] = {}


class OfThisProcess:
    """Run whose chains may be in threads of its own process; they then share its counters, ``control``, and its plan.

    Each segment starts only once there, because a copy of a late segment would write to the same counters.
    """

    def __init__(self, pool: ChainPool) -> None:
        task = pool.tasks[0]
        self.control, self.plan = pool.control, pool.plan
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
    """Segment as it is sent: ``turn`` counts the segments of its chain, ``number`` all segments sent, copies included.

    ``run`` and ``process`` identify the run; ``task`` has no model and kernel. Other fields are those of ``run_segment``.
    """

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
    """Answer of a worker: the segment, or None, for lack of the model or because it was started before.

    ``worker`` names the process; ``seconds`` is the time that it spent on the job.
    """

    worker: str
    segment: Segment | None
    seconds: float
    lacks_model: bool = False


@dataclasses.dataclass
class Sent:
    """Segment in flight: its job was sent ``tries`` times before, now at the time ``at``; its clock was reset at ``since``.

    ``begun`` is set when its future reports that it runs, ``late`` when a copy was sent.
    """

    job: Job
    future: Any
    tries: int
    with_model: bool
    at: float
    since: float
    begun: bool = False
    late: bool = False


def work_on(job: Job, shared: Shared | None = None) -> Answer:
    """Run a segment in a worker, with one thread of linear algebra."""
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


def is_executor(value: object) -> bool:
    """Whether `value` has a method ``submit`` or ``apply_async``."""
    return callable(getattr(value, "submit", None)) or callable(getattr(value, "apply_async", None))


class Promise(concurrent.futures.Future):
    """Future of a pool's task, which can neither be cancelled nor report that it runs.

    (A result for a cancelled future would raise in the pool's own thread and end it.)
    """

    running = None  # type: ignore[assignment]

    def cancel(self) -> bool:
        return False


def as_submit(executor: Any) -> Callable:
    """Return its ``submit``, or one based on ``apply_async`` for the pools of ``multiprocessing`` and Ray."""
    if callable(getattr(executor, "submit", None)):
        return executor.submit

    def submit(function: Callable, *arguments: object) -> Promise:
        future = Promise()
        executor.apply_async(function, arguments, callback=future.set_result, error_callback=future.set_exception)
        return future

    return submit


@contextlib.contextmanager
def in_executor(pool: ChainPool) -> Iterator[Callable[[], None]]:
    """Run the chains by the run's executor, or by that which a function returns; it is called again if its executor breaks.

    The context is a function that runs all chains to their ends, ``pool.tasks[k].total``, from where they are.

    A segment whose worker is lost is run again. If it is lost twice, its chain continues alone after the others, and if it is
    lost twice again, the chain ends with :class:`refhmc.errors.WorkerDied`. After a stop, segments that have not started are
    cancelled; the others complete.
    """
    run = RunByExecutor(pool)
    _here[run.name] = OfThisProcess(pool)
    try:
        yield run.draw
    finally:
        del _here[run.name]


class RunByExecutor:
    """The segments in flight and the states of the chains of a run."""

    def __init__(self, pool: ChainPool) -> None:
        executor: Any = pool.spec.executor
        self.pool, self.executor, self.max_seconds = pool, executor, pool.spec.max_seconds
        self.name, self.begun_at = uuid.uuid4().hex, time.monotonic()
        self.taken = executor if is_executor(executor) else executor()
        self.submit = as_submit(self.taken)
        self.ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.under_way: dict[int, Sent] = {}  # by number, that is in the order of sending
        self.to_look_at: dict[int, Sent] = {}  # segments whose futures have no callbacks
        chains = range(len(pool.tasks))
        self.states: list[Saved | None] = [storage.saved for storage in pool.storages]
        self.turns, self.bounces = [0 for _ in chains], [0 for _ in chains]
        self.seconds, self.patience = [LEAST for _ in chains], [LONGEST_ITERATION for _ in chains]
        self.sent = self.models_sent = self.models_under_way = 0
        self.aside: list[int] = []  # chains that wait to continue alone
        self.alone: set[int] = set()  # chains that have continued alone
        self.asking: set[str] = set()  # workers without the model
        self.quickest = np.inf  # seconds to send a segment and return it
        self.longest_delay = 0.0  # seconds that a worker took beyond those requested
        self.says_when_it_runs = self.has_answered = False
        self.earliest_back, self.latest_back = np.inf, -1  # numbers: since the last check of the clocks, and of all

    def left(self) -> float:
        if self.max_seconds is None:
            return np.inf
        return max(0.0, self.max_seconds - (time.monotonic() - self.begun_at))

    def draw(self) -> None:
        pool, cancelled, look_at = self.pool, False, 0.0
        for chain, state in enumerate(self.states):
            pool.control[chain].first = state.done if state else 0
            self.send(chain)
        while len(pool.finished) < len(pool.tasks):
            if not pool.stopped_by and not self.left():
                pool.stop("time")
            if pool.stopped_by and not cancelled:
                cancelled = True
                self.cancel()
            if self.aside and all(sent.late for sent in self.under_way.values()):
                self.go_on_alone()
            for number in self.come_back():
                self.take(self.under_way.pop(number))
            if pool.overdue:
                return
            if time.monotonic() > look_at and not pool.stopped_by:
                self.look_at_clocks()
                look_at = time.monotonic() + CLOCKS_EVERY

    # ------------------------------------------------------------------------------------------------ there and back

    def send(self, chain: int, tries: int = 0) -> None:
        """Send the chain's next segment, or the same one again after `tries` losses."""
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
        sent = Sent(job, future, tries, with_model, now, now)
        self.under_way[job.number] = sent
        self.models_under_way += with_model
        self.models_sent += with_model
        if callable(getattr(future, "add_done_callback", None)):
            future.add_done_callback(lambda _: self.ended.put(job.number))
        else:
            self.to_look_at[job.number] = sent

    def job(self, chain: int) -> Job:
        state, task = self.states[chain], self.pool.tasks[chain]
        without: dict[str, Any] = {"model": None, "kernel": None}
        if state is not None:  # it includes the start
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
        """Return the numbers of segments that have ended, after a short wait for the first."""
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
        """Cancel segments that have not started."""
        for sent in list(self.under_way.values()):
            if callable(getattr(sent.future, "cancel", None)):
                sent.future.cancel()
        for chain in self.aside:
            self.pool.finished[chain] = self.pool.so_far(chain)
        self.aside.clear()

    def take(self, sent: Sent) -> None:
        chain, now = sent.job.chain, time.monotonic()
        self.models_under_way -= sent.with_model
        self.earliest_back = min(self.earliest_back, sent.job.number)
        self.latest_back = max(self.latest_back, sent.job.number)
        if chain in self.pool.finished or sent.job.turn != self.turns[chain]:
            return  # the other copy returned first
        try:
            answer: Answer = sent.future.result()
        except KeyboardInterrupt:
            self.pool.stop("interrupt")
            self.pool.finished[chain] = self.pool.so_far(chain)
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
            delay = segment.seconds + segment.beside - sent.job.seconds - sent.job.patience
            self.longest_delay = max(self.longest_delay, delay)
            self.keep(chain, segment)
        elif answer.lacks_model and not sent.late:
            self.asking.add(answer.worker)
            self.bounces[chain] += 1
            self.send(chain, sent.tries)

    def keep(self, chain: int, segment: Segment) -> None:
        """Keep the draws of a segment; send the next one unless the chain is complete or stopped."""
        pool, storage, made = self.pool, self.pool.storages[chain], segment.run
        self.turns[chain] += 1
        self.bounces[chain] = 0
        add(storage, made.rows)
        before, done = self.states[chain], int(made.control.draws_done)
        if segment.saved is not None:
            self.states[chain] = segment.saved
        made.control.first = pool.control[chain].first
        set_counts(pool.control[chain], made.control)
        if done == (before.done if before else 0):  # an iteration was abandoned and is repeated
            self.patience[chain] *= 2
        else:
            pool.failures[chain] = merged(pool.failures[chain], made.failures)
        over = made.error is not None or done >= pool.tasks[chain].total
        if over or pool.stopped_by or not self.left():
            if not over and not pool.stopped_by:
                pool.stop("time")
            if segment.saved is not None and storage.on_disk:
                storage.close(segment.saved)
            whole = made._replace(rows=storage.made(done), control=pool.control[chain].copy())
            unsaved = storage.unsaved
            pool.take(chain, whole._replace(failures=pool.failures[chain], unsaved=unsaved))
            return
        if segment.saved is not None:
            storage.save(segment.saved)
        self.seconds[chain] = min(max((self.quickest + segment.beside) / SHARE, LEAST), MOST)
        self.send(chain)

    # ---------------------------------------------------------------------------------------------------------- loss

    def look_at_clocks(self) -> None:
        """Treat overdue segments as lost."""
        now, here = time.monotonic(), _here[self.name]
        for sent in list(self.under_way.values()):
            if sent.job.number > self.earliest_back:
                sent.since = now
            if not sent.begun and callable(getattr(sent.future, "running", None)) and sent.future.running():
                self.says_when_it_runs = sent.begun = True
                sent.since = now
            at_work = (sent.job.chain, sent.job.turn) in here.begun
            waits = self.says_when_it_runs and not sent.begun
            if not (at_work or waits or sent.late) and now > sent.since + self.bound(sent):
                sent.late = True
                self.models_under_way -= sent.with_model
                sent.with_model = False
                text = f"no answer within {now - sent.since:.0f} s for {sent.job.seconds:.3g} s of sampling"
                self.lose(sent.job.chain, sent.tries, TimeoutError(text))
        self.earliest_back = np.inf

    def bound(self, sent: Sent) -> float:
        """Return the seconds after which a segment counts as lost; see the module's docstring."""
        others_come_back = sent.begun or sent.job.number < self.latest_back
        silence = HEARTBEAT if others_come_back and not sent.with_model else SILENCE
        return silence + 2 * (sent.job.seconds + sent.job.patience + self.longest_delay)

    def go_on_alone(self) -> None:
        """Continue the first of the chains that were set aside."""
        chain = self.aside.pop(0)
        self.alone.add(chain)
        self.send(chain)

    def lose(self, chain: int, tries: int, error: BaseException) -> None:
        """Handle a segment that did not return."""
        pool = self.pool
        unguarded = ""
        if isinstance(error, (concurrent.futures.BrokenExecutor, TimeoutError)) and not self.has_answered:
            unguarded = without_guard(self.taken)
        if pool.stopped_by:  # not started, or ended with its process
            pool.finished[chain] = pool.so_far(chain)
        elif unguarded:  # no worker can start
            lost = WorkerDied(unguarded, chain=chain, last_iteration=int(pool.control[chain].draws_done))
            lost.__cause__ = error
            pool.finished[chain] = pool.so_far(chain, error=lost)
        elif tries + 1 < TRIES and not isinstance(error, pickle.PicklingError):
            self.send(chain, tries + 1)
        elif chain not in self.alone and not isinstance(error, (pickle.PicklingError, TimeoutError)):
            self.aside.append(chain)
        else:
            pool.finished[chain] = pool.so_far(chain, error=died(pool.tasks[chain], pool, error))


def died(task: ChainTask, pool: ChainPool, error: BaseException) -> Exception:
    """Return the error of a chain whose segment was lost: it cannot be pickled, or its worker died."""
    if "pickl" in f"{type(error).__name__} {error}":
        unsent = SamplingError(
            f"Model {task.model.name!r} cannot be sent to the executor's workers ({error}). Define it in a module that the "
            "workers can import, or sample without executor."
        )
        unsent.__cause__ = error
        return unsent
    last = int(pool.control[task.chain].draws_done)
    lost = WorkerDied(
        f"The worker of chain {task.chain} was lost {TRIES} times in the segment after iteration {last}: "
        f"{type(error).__name__}: {error}. Check the memory and the logs of the workers.",
        chain=task.chain,
        last_iteration=last,
    )
    lost.__cause__ = error
    return lost
