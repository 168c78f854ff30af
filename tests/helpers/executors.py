"""Executors whose workers are not what they should be, and models that end the process they are in."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import os
import pickle
import queue
import signal
import types

import numpy as np
import threadpoolctl

import refhmc
from refhmc.sampling.chains import executors


@contextlib.contextmanager
def as_process(kept, name):
    """What this process knows as the worker ``name`` of another one does."""
    before = executors._kept, executors._names
    executors._kept, executors._names = kept, {os.getpid(): name}
    try:
        yield
    finally:
        executors._kept, executors._names = before


class Workers:
    """Workers that are simulated, each with a memory of its own, and the clock by which they work.

    Each task takes ``lasts`` seconds of that clock. ``own_queues``: a task goes to a worker in turn, and waits there, as in
    Ray's pool; else it waits for the first that is free. ``gone_at``: (worker, time); from then on it says nothing, or
    with ``says_so`` that it is dead, of each of its tasks. ``deadly``: a chain that ends the worker that takes it, with all
    that were given to others, as in a ``ProcessPoolExecutor``; new ones are there at once. ``busy``: from when to when they
    are given tasks of others. ``tells``: futures say whether they have begun.
    """

    def __init__(
        self, n, lasts, *, own_queues=False, gone_at=(), says_so=False, deadly=-1, busy=(0.0, 0.0), tells=False
    ):
        self.now, self.lasts, self.tells, self.busy = 0.0, lasts, tells, busy
        self.says_so, self.deadly = says_so, deadly
        self.gone_at = dict(gone_at)
        self.queues = [[] for _ in range(n)] if own_queues else [[]] * n
        self.under_way, self.kept = [None] * n, [{} for _ in range(n)]
        self.jobs, self.models, self.bounced, self.bytes = [], 0, 0, []

    def submit(self, function, job, *shared):
        future = concurrent.futures.Future()
        buffers = []
        text = pickle.dumps((job._replace(process=-1), *shared), protocol=5, buffer_callback=buffers.append)
        message = text, [bytes(each.raw()) for each in buffers]  # arrays arrive read-only, as Ray has it
        self.bytes.append(len(text) + sum(map(len, message[1])))
        self.queues[len(self.jobs) % len(self.queues)].append((future, function, message))
        self.jobs.append(job)
        self.models += len(shared)
        return future

    def copies(self):
        """How many segments were sent again, other than those that came back for want of the model."""
        sent = [(job.chain, job.turn) for job in self.jobs]
        return len(sent) - len(set(sent)) - self.bounced

    def time(self):
        """For ``executors.time``."""
        return types.SimpleNamespace(monotonic=lambda: self.now, perf_counter=lambda: self.now)

    def queue(self):
        """For ``executors.queue``: of numbers of tasks that have ended; to wait for one lets time pass."""

        class SimpleQueue(collections.deque):
            def put(inbox, number):
                inbox.append(number)

            def get_nowait(inbox):
                if not inbox:
                    raise queue.Empty
                return inbox.popleft()

            def get(inbox, timeout):
                if not inbox:
                    self.go_on()
                return inbox.get_nowait()

        return types.SimpleNamespace(SimpleQueue=SimpleQueue, Empty=queue.Empty)

    def go_on(self):
        """By half a second."""
        self.now += 0.5
        for worker, waiting in enumerate(self.queues):
            if self.now >= self.gone_at.get(worker, np.inf):
                if self.says_so:
                    self.lose(worker)
                continue
            if self.under_way[worker] is not None and self.now >= self.under_way[worker][0]:
                _, future, answer = self.under_way[worker]
                self.under_way[worker] = None
                self.bounced += answer.lacks_model
                future.set_result(answer)
            if self.under_way[worker] is None and waiting and not self.busy[0] <= self.now < self.busy[1]:
                future, function, message = waiting.pop(0)
                if self.tells:
                    future.set_running_or_notify_cancel()
                job, *shared = pickle.loads(message[0], buffers=message[1])
                if job.chain == self.deadly:
                    waiting.append((future, function, message))
                    for each in range(len(self.queues)):
                        self.lose(each)
                    return
                with as_process(self.kept[worker], str(worker)):
                    answer = function(job, *shared)
                self.under_way[worker] = self.now + (0 if answer.lacks_model else self.lasts), future, answer

    def lose(self, worker):
        """All that it was given."""
        lost = [future for future, _, _ in self.queues[worker]]
        if self.under_way[worker] is not None:
            lost.append(self.under_way[worker][1])
        self.queues[worker].clear()
        self.under_way[worker] = None
        self.kept[worker].clear()
        for future in lost:
            future.set_exception(OSError("the worker is dead"))


class Losing(concurrent.futures.Executor):
    """An executor that runs tasks at once and ends those for which ``is_lost(number, job)`` is true with ``error``."""

    def __init__(self, is_lost, error):
        self.is_lost, self.error, self.sent = is_lost, error, 0

    def submit(self, function, job, /, *shared):
        future = concurrent.futures.Future()
        self.sent += 1
        if self.is_lost(self.sent, job):
            future.set_exception(self.error)
            return future
        try:
            future.set_result(function(job, *shared))
        except BaseException as error:
            future.set_exception(error)
        return future


class Sent:
    """A normal density that knows whether it is a copy that was sent somewhere."""

    sent = False

    def __getstate__(self):
        return {"mark": self.mark}

    def __setstate__(self, state):
        self.__init__(state["mark"])
        self.sent = True

    def __init__(self, mark=""):
        self.mark, self.calls = str(mark), 0

    def __call__(self, q, data):
        self.calls += 1
        if self.sent:
            self.there()
        return -0.5 * float(q @ q)

    def gradient(self, q, data):
        return -q

    def model(self):
        return refhmc.Model(2, self, self.gradient, in_python="a test")


class Dying(Sent):
    """Kills its process at the 500th evaluation there, once in all, and leaves the file ``mark``."""

    def there(self):
        if self.calls == 500:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)


class OneThread(Sent):
    """Cannot be evaluated where linear algebra has several threads."""

    def there(self):
        several = [each for each in threadpoolctl.threadpool_info() if each["num_threads"] != 1]
        if several:
            raise RuntimeError(f"{several}")


def threads_of_linear_algebra():
    """In the process where this is called."""
    return [each["num_threads"] for each in threadpoolctl.threadpool_info()]
