"""Ctrl-C and SIGTERM, delayed where they must not interrupt.

Python raises KeyboardInterrupt between any two instructions of the main thread. In code that takes a lock, such as
``threading.Event.wait`` or Zarr's, the lock can remain taken, and the next user waits forever.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

MOST = 2  # signals that one block delays; the next one interrupts it


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delay signals that arrive in the block until it ends. Has no effect outside the main thread.

    A third signal interrupts the block, so that an unresponsive disk cannot block the process.
    """
    handlers: dict[int, Callable] = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {n: h for n in (signal.SIGINT, signal.SIGTERM) if callable(h := signal.getsignal(n))}
    came: list[tuple[int, FrameType | None]] = []
    process = os.getpid()

    def keep(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process:  # a child made by fork, such as a worker that its pool terminates
            handlers[number](number, frame)
            return
        came.append((number, frame))
        if len(came) > MOST:
            raise KeyboardInterrupt(signal.Signals(number).name)

    try:
        with contextlib.ExitStack() as back:
            for number, handler in handlers.items():
                back.callback(signal.signal, number, handler)
                signal.signal(number, keep)
            yield
    finally:
        if came:
            handlers[came[0][0]](*came[0])
