"""SIGTERM handled like Ctrl-C, so that batch systems, containers and ``kill`` end a run and keep its draws."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt in the main thread, and restore the previous handler afterwards.

    The caller's own handler is called first. Nothing changes in other threads, in which Python cannot set handlers, or if
    SIGTERM is ignored or its handler was not set by Python.
    """
    before = signal.getsignal(signal.SIGTERM)
    elsewhere = threading.current_thread() is not threading.main_thread()
    if elsewhere or before in (None, signal.SIG_IGN):
        yield
        return

    process = os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
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
    """Return ``step()``; if Ctrl-C ends it, call ``interrupted()`` and return ``instead()``, by default the step again.

    ``interrupted()`` marks the run, and raises KeyboardInterrupt if it was marked before, so that a second Ctrl-C ends it.
    """
    try:
        return step()
    except KeyboardInterrupt:
        interrupted()
    return (step if instead is None else instead)()
