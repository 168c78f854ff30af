"""Linear algebra with one thread: several would wait for each other in parallel chains, and sums depend on their number."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator

try:
    import threadpoolctl
except ImportError:  # the libraries then keep their threads, and the last digits may depend on the number of processors
    threadpoolctl = None

from refhmc.core.signals import held_back

_lock = threading.Lock()
_users = [0]  # active blocks in all threads of the process
_limits: list[tuple[Callable, int]] = []  # setter and original number of threads of each library
_modules = [0]  # number of loaded modules at the last limit


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit NumPy's and SciPy's libraries to one thread in this process, until the last such block is left.

    The number of BLAS threads belongs to the process. A block that restored it alone would change the rounding of chains in
    another block. The number of OpenMP threads belongs to the thread, and each block restores it.
    """
    if threadpoolctl is None:
        yield
        return
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
                # threadpoolctl may let only one Python thread set OpenBLAS's number, which need not leave last.
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
    """Return the controller of the loaded libraries.

    The search takes milliseconds, so that it is repeated only after modules, which may load libraries, were imported.
    """
    return threadpoolctl.ThreadpoolController()
