"""Budgets in processor seconds, so that the power of a check does not depend on what else the machine does.

A budget of s seconds ends when this process and its children have used s seconds of processor time since it began, or when
five times s have passed by the clock, whichever comes first. The second limit ends a subject that waits or sleeps.

On Linux the time of running children, and of theirs, is read from ``/proc`` ten times a second. On other systems the time of a
child counts when the child has ended and was waited for; until then only the clock limits it.
"""

from __future__ import annotations

import math
import os
import pathlib
import threading
import time
from collections.abc import Iterator

CLOCK_SECONDS = 5.0  # by the clock for each second of a budget
POLL_SECONDS = 0.1  # by the clock between two looks at the children


class _Children:
    """The processor time of the children; it never falls, also when a child vanishes that nobody waited for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = self._last = 0.0
        self._next = -math.inf

    def seconds(self) -> float:
        now = time.monotonic()
        if now >= self._next:
            with self._lock:
                found = _ended_children() + _running_children()
                self._total += max(0.0, found - self._last)
                self._last, self._next = found, now + POLL_SECONDS
        return self._total


def _ended_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _running_children() -> float:
    """Return the processor seconds of the descendants that run, ended ones of theirs included; 0 without /proc."""
    if not os.path.isdir("/proc/self/task"):
        return 0.0
    ticks, waiting = 0, list(_children_of("self"))
    while waiting:
        pid = waiting.pop()
        try:
            fields = pathlib.Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        ticks += sum(int(x) for x in fields[11:15])  # utime, stime, cutime, cstime
        waiting += _children_of(pid)
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else 0.0


def _children_of(pid: str) -> Iterator[str]:
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            yield from pathlib.Path("/proc", pid, "task", task, "children").read_text().split()
    except OSError:  # it, or the thread, has ended
        return


_children = _Children()


def processor_seconds() -> float:
    """Return the processor time of this process and its children so far."""
    return time.process_time() + _children.seconds()


class Stopwatch:
    """The time since it was made, by the processor and by the clock."""

    __slots__ = ("_clock", "_processor")

    def __init__(self) -> None:
        self._processor, self._clock = processor_seconds(), time.monotonic()

    @property
    def clock(self) -> float:
        """Seconds by the clock."""
        return time.monotonic() - self._clock

    @property
    def processor(self) -> float:
        """Processor seconds of this process and its children."""
        return processor_seconds() - self._processor

    def spent(self) -> float:
        """Return the processor seconds, or a fifth of the seconds by the clock if that is more."""
        return max(self.processor, self.clock / CLOCK_SECONDS)


class Budget(Stopwatch):
    """So many ``seconds``, counted from now; infinitely many by default."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__()
        self.seconds = math.inf if seconds is None else seconds

    def left(self) -> float:
        """Return how many seconds are left; negative once more than all were spent."""
        return self.seconds - self.spent() if self.seconds < math.inf else math.inf

    def over(self) -> bool:
        """Return whether nothing is left."""
        return self.left() <= 0
