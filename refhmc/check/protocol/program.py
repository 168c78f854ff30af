"""A foreign program that answers requests: started once, asked line by line, with a limited wait.

It is written to and read from directly. A watchdog thread ends the program when an answer is overdue, so that a wait in a
write or a read ends on every system. Another thread keeps the last lines of its standard error, each cut to
``WIDTH`` characters. A program that writes more than ``MOST_BYTES`` without an answer is ended. A program that
stopped is started again for the next request, but an operation at which it stopped twice is not requested any more. ``stops``
has descriptions.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from refhmc.check.protocol import messages as protocol
from refhmc.check.protocol.messages import FAILED, VERSION, Rejection

MOST_STOPS = 2  # per operation
LAST_LINES, WIDTH = 20, 200
MOST_BYTES = 2**26
SECONDS_TO_END = 2.0


class ProgramStopped(RuntimeError):
    """The program crashed, ended, or did not answer in time."""


class CannotStart(ValueError):
    """The program does not exist or cannot be started."""


class Program:
    """``command`` as the user wrote it, or as a list; ``seconds`` is the longest wait for an answer.

    A context manager; leaving it ends the program and its child processes.
    """

    def __init__(self, command: str | list[str], seconds: float = 10.0) -> None:
        self.words = shlex.split(command, posix=os.name != "nt") if isinstance(command, str) else list(command)
        if os.name == "nt":  # quotes are kept there
            self.words = [word.strip('"') for word in self.words]
        if not self.words:
            raise CannotStart("The command must not be empty.")
        self.seconds = seconds
        self.stops: list[str] = []
        self.requests = 0
        self._stopped_at: collections.Counter[str] = collections.Counter()
        self._process: Any = None
        self._lock = threading.Lock()
        self._deadline = math.inf
        self._late = False

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def ask(self, op: str, **fields: Any) -> dict:
        """Return the answer to a request; Rejection for an error answer, ProgramStopped if there is none."""
        if not self._lock.acquire(timeout=self.seconds):
            raise ProgramStopped("another request is still waiting for its answer")
        try:
            if self._stopped_at[op] >= MOST_STOPS:
                raise ProgramStopped(f"{op!r} is not requested again after the program stopped {MOST_STOPS} times")
            if self._process is None:
                self._start()
            self.requests += 1
            self._deadline = time.monotonic() + self.seconds
            request = protocol.line({"v": VERSION, "id": self.requests, "op": op, **fields})
            try:
                self._process.stdin.write(request.encode())
                self._process.stdin.flush()
            except OSError:
                raise self._stopped(op) from None
            answer = self._answer(self.requests, op)
        finally:
            self._deadline = math.inf
            self._lock.release()
        refused = answer.get("error")
        if refused is not None:
            refused = refused if isinstance(refused, dict) else {"message": refused}
            raise Rejection(
                str(refused.get("code", FAILED))[:WIDTH], str(refused.get("message", ""))[: protocol.MESSAGE]
            )
        return answer

    def _answer(self, identity: int, op: str) -> dict:
        """Return the line with that id; other lines (a greeting, a log, a late answer) are skipped."""
        read = 0
        for text in iter(lambda: self._process.stdout.readline(MOST_BYTES), b""):
            with contextlib.suppress(Rejection):
                answer = protocol.parse(text.decode("utf-8", "replace"))
                if answer.get("id") == identity or (answer.get("id") is None and "error" in answer):
                    return answer
            self._heard.append(text[: 4 * WIDTH])
            read += len(text)
            if read >= MOST_BYTES:
                _kill(self._process)
                raise self._stopped(op, f"{read} bytes without an answer to {op!r}")
        raise self._stopped(op)

    def _start(self) -> None:
        own_group: Any = {"start_new_session": True} if os.name != "nt" else {}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            self._process = subprocess.Popen(self.words, **pipes, **own_group)
        except OSError as error:
            raise CannotStart(f"Cannot start {self.words[0]}: {error.strerror or error}.") from None
        self._late = False
        self._said: collections.deque[bytes] = collections.deque(maxlen=LAST_LINES)
        self._heard: collections.deque[bytes] = collections.deque(maxlen=LAST_LINES)  # output that is not an answer
        self._listener = _thread(_listen, self._process.stderr, self._said)
        self._ended = threading.Event()
        self._watchman = _thread(self._watch, self._process, self._ended)

    def _watch(self, process: subprocess.Popen, ended: threading.Event) -> None:
        """End the program when its answer is overdue."""
        while not ended.wait(min(0.1, self.seconds / 4)):
            if time.monotonic() > self._deadline:
                self._late = True
                _kill(process)
                return

    def _stopped(self, op: str, why: str = "") -> ProgramStopped:
        """Clean up after the program and describe how it ended, with its last output."""
        self._stopped_at[op] += 1
        late, process = self._late, self._process
        if not late:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_END)
        status = process.returncode
        self._end()
        what = (
            f"no answer to {op!r} within {self.seconds:g} s" if late else why or f"it ended during the request {op!r}"
        )
        if status is not None:
            what += f", with status {status}" + (f" ({signal.Signals(-status).name})" if _is_signal(status) else "")
        said = "".join(
            f"\n    {_cut(text.decode('utf-8', 'replace').rstrip())}" for text in [*self._heard, *self._said]
        )
        self.stops.append(what + (f"; its last output:{said}" if said else ""))
        return ProgramStopped(what)

    def _end(self) -> None:
        process, self._process = self._process, None
        self._ended.set()
        _kill(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_END)
        for thread in (self._watchman, self._listener):
            thread.join(SECONDS_TO_END)
        for stream in (process.stdin, process.stdout, process.stderr):
            with contextlib.suppress(OSError):
                stream.close()

    def close(self) -> None:
        """Close the input of the program so that it ends by itself, or end it."""
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_END)
            self._end()


def _thread(job: Callable, *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=job, args=arguments, daemon=True, name=f"refhmc{job.__name__}")
    thread.start()
    return thread


def _listen(stream: Any, said: collections.deque) -> None:
    """Keep the last lines of ``stream``."""
    with contextlib.suppress(OSError, ValueError):
        for text in iter(lambda: stream.readline(2**16), b""):
            said.append(text[: 4 * WIDTH])


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _is_signal(status: int) -> bool:
    return status < 0 and -status in set(signal.Signals)


def _kill(process: subprocess.Popen) -> None:
    """End the program and its child processes."""
    if os.name == "nt":
        with contextlib.suppress(OSError):
            subprocess.run(["taskkill", "/T", "/F", "/PID", str(process.pid)], check=False, capture_output=True)
    else:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        process.kill()
