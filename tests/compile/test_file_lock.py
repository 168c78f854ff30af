"""A lock held by one process rejects another with the holder's name, and is released however the holder ends."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading

import pytest

from refhmc.compile import file_lock
from refhmc.compile.file_lock import FileLock, HeldError

HOLDER = """
import pathlib, sys
from refhmc.compile.file_lock import FileLock
lock = FileLock(pathlib.Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock until its input is closed or it is killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "lock")], env=environment, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"held"
        yield process
        process.kill()


@pytest.mark.parametrize("end", ["in order", "killed"])
def test_second_process_is_rejected_until_the_first_ends(end, holder, tmp_path):
    lock = FileLock(tmp_path / "lock")
    for _ in range(3):
        with pytest.raises(HeldError, match=f"^process {holder.pid} on .* since "):
            lock.acquire()
    if end == "killed":
        holder.kill()
        holder.wait()
        assert (tmp_path / "lock").exists()  # and is in nobody's way
    else:
        holder.communicate()
        assert not (tmp_path / "lock").exists()
    with lock:
        assert str(os.getpid()) in (tmp_path / "lock").read_text()
    assert list(tmp_path.iterdir()) == []


def test_two_locks_of_one_process_exclude_each_other(tmp_path):
    one, other = (FileLock(tmp_path / "lock") for _ in range(2))
    with one, pytest.raises(HeldError, match=f"process {os.getpid()} "):
        other.acquire()
    with other, pytest.raises(HeldError):
        one.acquire()
    one.release()  # which does not hold it: nothing happens


def test_lock_whose_file_was_removed_is_taken_again(tmp_path, monkeypatch):
    """The holder releases it between opening and locking: the locked file is no longer the one at the path."""
    first, path = FileLock(tmp_path / "lock"), tmp_path / "lock"
    first.acquire()
    lock, tries = file_lock._lock, []

    def slowly(file):
        if not tries:
            first.release()
        tries.append(path.exists())
        lock(file)

    monkeypatch.setattr(file_lock, "_lock", slowly)
    with FileLock(path):
        assert path.exists()
        with pytest.raises(HeldError):
            FileLock(path).acquire()
    assert tries[:2] == [False, True]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    lock = FileLock(tmp_path / "lock")
    lock.acquire()
    child_waits, parent_tells = os.pipe()
    parent_waits, child_tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(parent_tells)
        os.write(child_tells, b".")
        os.read(child_waits, 1)
        os._exit(0 if lock._file is None else 1)
    os.read(parent_waits, 1)
    lock._file.close()  # as if this process had been killed
    lock._file = None
    with FileLock(tmp_path / "lock"):
        pass
    os.close(parent_tells)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_waiting_process_gets_the_released_lock(holder, tmp_path):
    lock = FileLock(tmp_path / "lock")
    with pytest.raises(HeldError):
        lock.acquire(patience=0.05)
    ending = threading.Timer(0.05, holder.stdin.close)
    ending.start()
    lock.acquire(patience=60.0)
    assert holder.wait() == 0
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_file_system_without_locks_is_reported(tmp_path, monkeypatch):
    def none(file):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(file_lock, "_lock", none)
    lock = FileLock(tmp_path / "lock")
    assert "Operation not supported" in str(lock.acquire())
    lock.release()
    assert list(tmp_path.iterdir()) == []
