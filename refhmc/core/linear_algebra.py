"""One thread of linear algebra: several wait for each other where chains are threads, and sums depend on their number."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator

import threadpoolctl

from refhmc.core.signals import held_back

_lock = threading.Lock()
_users = [0]  # blocks that are entered now, in all threads of the process
_limits: list[tuple[Callable, int]] = []  # what sets a library's threads, and how many it is to have again
_modules = [0]  # how many were loaded when libraries were limited last


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit NumPy's and SciPy's libraries to one thread in this process until the last of all such blocks is left.

    The number of threads of a BLAS belongs to the process. A block that restored it by itself would change the rounding of
    chains that still run in another block. OpenMP's number belongs to the thread, and each block restores it.
    """
    libraries = controller(len(sys.modules))
    with held_back():
        openmp = libraries.select(user_api="openmp").limit(limits=1)
        _enter(libraries)
    try:
        yield
    finally:
        with held_back():
            _leave()
            openmp.restore_original_limits()


def _enter(libraries: threadpoolctl.ThreadpoolController) -> None:
    with _lock:
        if not _users[0] or _modules[0] != len(sys.modules):  # a module may have loaded a library
            _modules[0] = len(sys.modules)
            for library in libraries.select(user_api="blas").lib_controllers:
                # Where threadpoolctl lets one Python thread set OpenBLAS's number, it is not the last one to leave.
                set_threads = getattr(library, "_real_set_num_threads", library.set_num_threads)
                _limits.append((set_threads, library.num_threads))
                set_threads(1)
        _users[0] += 1


def _leave() -> None:
    with _lock:
        _users[0] -= 1
        while _limits and not _users[0]:
            set_threads, number = _limits.pop()
            set_threads(number)


@functools.lru_cache(maxsize=1)
def controller(modules: int) -> threadpoolctl.ThreadpoolController:
    """Return the controller of the libraries that are loaded.

    To look for them takes milliseconds, so this is repeated only after modules, which load them, were imported.
    """
    return threadpoolctl.ThreadpoolController()
