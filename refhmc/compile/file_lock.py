"""A lock on a file for one process at a time; the operating system releases it when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import sys
import time
import weakref
from typing import IO

from refhmc.compile.regular_files import open_regular

FAR = 1 << 30  # the byte that Windows locks, after the text, which others may read
PAUSE = 0.01  # seconds between two checks of a lock that another process holds


class HeldError(Exception):
    """Raised if another process holds the lock; the message identifies the process."""


class FileLock:
    """A lock on ``path``, held from ``acquire`` to ``release``; meanwhile the file contains the name of the holder."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def acquire(self, patience: float = 0.0) -> OSError | None:
        """Take the lock, waiting up to `patience` seconds for another process.

        Returns None, or the error of a file system without locks, where the lock has no effect. Raises HeldError if another
        process still holds it, or UnsafeFileError if ``path`` is a link.
        """
        reason, deadline = None, time.monotonic() + patience
        while True:
            file = open_regular(self.path, "a+b")
            try:
                _lock(file)
            except (BlockingIOError, PermissionError):
                file.seek(0)
                holder = file.read(200).decode(errors="replace") or "another process"
                file.close()
                if time.monotonic() >= deadline:
                    raise HeldError(holder) from None
                time.sleep(PAUSE)
                continue
            except OSError as error:
                reason = error
            if _is_at(file, self.path):
                break
            file.close()  # its last holder has removed it
        file.truncate(0)
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {started}".encode())
        file.flush()
        self._file = file
        _held.add(self)
        return reason

    def release(self) -> None:
        """Release the lock, and remove the file."""
        file, self._file = self._file, None
        if file is None:
            return
        _held.discard(self)
        windows = sys.platform == "win32"  # Windows cannot remove an open file; other systems can
        if not windows:
            self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            _unlock(file)
        file.close()
        if windows:
            with contextlib.suppress(OSError):
                self.path.unlink()

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        """Lock immediately, or raise PermissionError."""
        os.lseek(file.fileno(), FAR, os.SEEK_SET)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

    def _unlock(file: IO[bytes]) -> None:
        os.lseek(file.fileno(), FAR, os.SEEK_SET)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        """Lock immediately, or raise BlockingIOError."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


def _is_at(file: IO[bytes], path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget() -> None:
    """Drop the locks in a forked process: they belong to its parent."""
    for lock in list(_held):
        if lock._file is not None:
            lock._file.close()
        lock._file = None
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
