"""SIGTERM as Ctrl-C: what batch systems, containers and ``kill`` send ends a run as its user would. One after the last draw
gives the result, too."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """While it is entered, SIGTERM raises KeyboardInterrupt in the main thread; the handler there was is put back after.

    A handler of the caller's own is called first. SIGTERM stays as it is in other threads, where Python lets nobody set
    handlers, where it is ignored, and where its handler is not Python's.
    """
    before = signal.getsignal(signal.SIGTERM)
    elsewhere = threading.current_thread() is not threading.main_thread()
    if elsewhere or before in (None, signal.SIG_IGN):
        yield
        return

    process = os.getpid()

    def interrupt(number: int, frame: Any) -> None:
        if os.getpid() != process:  # a child made by fork, such as a worker, ends as it would have
            signal.signal(number, before)
            signal.raise_signal(number)
            return
        if callable(before):
            before(number, frame)
        raise KeyboardInterrupt("SIGTERM")

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def past_ctrl_c(step: Callable[[], T], interrupted: Callable[[], None], instead: Callable[[], T] | None = None) -> T:
    """``step()``; where Ctrl-C ends it, ``instead()``, by default the step again, after ``interrupted()``.

    That marks the run, and raises KeyboardInterrupt if it was marked before: a second Ctrl-C ends everything.
    """
    try:
        return step()
    except KeyboardInterrupt:
        interrupted()
    return (step if instead is None else instead)()
