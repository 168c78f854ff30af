"""Compilation in parallel processes, which fill the cache that this process reads.

Numba compiles one function at a time in a process. While this process compiles a list of functions from its beginning, helper
processes compile it from its end. The locks of the cache (:mod:`refhmc.compile.compile_cache`) ensure that each function is
compiled once: a process that needs a function on which another works waits, and loads it.

Helpers only save time. This process compiles everything that they have not cached, and ends them afterwards. They compile
functions of refhmc only, and never import the user's code. The environment variable ``REFHMC_COMPILE_PROCESSES`` limits the
number of processes; 1 means no helpers.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import multiprocessing.spawn
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import numba

from refhmc.compile.compile_cache import cache_directory
from refhmc.compile.compiled import Entry, is_cached
from refhmc.compile.file_lock import FileLock, HeldError
from refhmc.compile.numba_internals import Signature, dumps

MOST = 4  # processes, because a run rarely compiles more than four large functions
FEWEST = 2  # functions for which a helper is started, which takes a second of CPU time
HELPER = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    "from refhmc.compile.parallel import compile_jobs; compile_jobs()"
)
WITHOUT_WINDOW = getattr(subprocess, "CREATE_NO_WINDOW", 0)  # on Windows


@contextlib.contextmanager
def helpers_for(functions: Sequence[tuple[Callable, Signature | None]]) -> Iterator[None]:
    """Context in which helpers compile those functions, given with their signatures, that are not cached."""
    most, directory = processes() - 1, cache_directory()
    if numba.config.DISABLE_JIT or most < 1 or directory is None:
        yield
        return
    jobs = [job for job in itertools.starmap(job_of, functions) if job is not None][::-1]
    n = min(most, len(jobs)) if len(jobs) >= FEWEST else 0
    with contextlib.ExitStack() as running:
        with contextlib.suppress(HeldError, OSError):  # no helpers if another process has some, or if they cannot start
            if n:
                lock = FileLock(directory / "helpers.lock")
                lock.acquire()
                running.callback(lock.release)
            for k in range(n):
                running.callback(end, start(jobs[k::n]))
        yield


def processes() -> int:
    """Return the largest number of processes that compile: ``REFHMC_COMPILE_PROCESSES``, or the cores, at most four."""
    wanted = os.environ.get("REFHMC_COMPILE_PROCESSES", "")
    if wanted.isdecimal():
        return int(wanted)
    if getattr(sys, "frozen", False):  # an application, whose executable is not an interpreter
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST)


def job_of(function: Callable, signature: Signature | None) -> tuple | None:
    """Return module, name and signature of a function of refhmc, or None if a helper cannot find it or it is cached."""
    text = getattr(function, "py_func", None)
    name, module = getattr(text, "__qualname__", ""), getattr(text, "__module__", None) or ""
    found = getattr(sys.modules.get(module), name, None)
    if found is not function or module.partition(".")[0] != "refhmc" or is_cached(function, signature):
        return None
    return module, name, signature


def start(jobs: list[tuple]) -> subprocess.Popen:
    """Start a process that compiles `jobs`. Raises OSError."""
    interpreter = multiprocessing.spawn.get_executable()
    helper = subprocess.Popen(
        [os.fsdecode(interpreter or ""), "-P", "-c", HELPER],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        creationflags=WITHOUT_WINDOW,
    )
    assert helper.stdin is not None
    try:
        helper.stdin.write(pickle.dumps(sys.path) + dumps(jobs))
        helper.stdin.close()
    except OSError:
        end(helper)
        raise
    return helper


def end(helper: subprocess.Popen) -> None:
    """End a helper; the operating system releases its locks."""
    helper.kill()
    helper.wait()


def compile_jobs() -> None:
    """Compile the functions whose names and signatures arrive through standard input."""
    for module, name, signature in pickle.load(sys.stdin.buffer):
        function = getattr(importlib.import_module(module), name)
        if isinstance(function, Entry):
            function.compile()
        else:
            function.compile(signature)
