"""Budgets in processor seconds, so that the power of a check does not depend on the load of the machine.

A budget of s seconds ends when this process and its children have used s seconds of processor time since its start, or after
5 s seconds of wall-clock time, whichever comes first. The second limit ends a subject that waits or sleeps.

On Linux the time of running children and their descendants is read from ``/proc`` ten times per second. On other systems the
time of a child counts when it has ended and was waited for; until then only the wall clock limits it.
"""

from __future__ import annotations

import math
import os
import pathlib
import threading
import time
from collections.abc import Iterator

CLOCK_SECONDS = 5.0  # wall-clock seconds per second of a budget
POLL_SECONDS = 0.1  # wall-clock seconds between two readings of the children's time


class _Children:
    """Processor time of the children; it never decreases, even if a child disappears without being waited for."""

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
    """Return the processor seconds of the running descendants, including their ended children; 0 without /proc."""
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
    """Processor and wall-clock time since creation."""

    __slots__ = ("_clock", "_processor")

    def __init__(self) -> None:
        self._processor, self._clock = processor_seconds(), time.monotonic()

    @property
    def clock(self) -> float:
        """Wall-clock seconds."""
        return time.monotonic() - self._clock

    @property
    def processor(self) -> float:
        """Processor seconds of this process and its children."""
        return processor_seconds() - self._processor

    def spent(self) -> float:
        """Return the processor seconds, or a fifth of the wall-clock seconds if that is more."""
        return max(self.processor, self.clock / CLOCK_SECONDS)


class Budget(Stopwatch):
    """Budget of ``seconds``, counted from creation; infinite by default."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__()
        self.seconds = math.inf if seconds is None else seconds

    def left(self) -> float:
        """Return the remaining seconds; negative if more were spent."""
        return self.seconds - self.spent() if self.seconds < math.inf else math.inf

    def over(self) -> bool:
        """Return whether the budget is spent."""
        return self.left() <= 0
