"""One thread of linear algebra: several wait for each other where chains are threads, and sums depend on their number."""

from __future__ import annotations

import functools
import sys
from contextlib import AbstractContextManager

import threadpoolctl


def one_thread() -> AbstractContextManager:
    """While it is entered, NumPy's and SciPy's libraries have one thread in this process."""
    return controller(len(sys.modules)).limit(limits=1)


@functools.lru_cache(maxsize=1)
def controller(modules: int) -> threadpoolctl.ThreadpoolController:
    """Of the libraries that are loaded. To look for them takes milliseconds: that is done again only where modules, which load
    them, were imported since."""
    return threadpoolctl.ThreadpoolController()
