"""Planted bugs and their correct twins, written as foreign code: what the conformance kit is proven on.

One file an area; each ends with its ``PAIRS``. The tests run them: the wrong one must FAIL in a row that is
expected to find it, the right one must not FAIL over 20 seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Pair(NamedTuple):
    """A bug: its ``id`` (P01 ... of the plan, or a name of its own), ``what`` is wrong, and the two to examine.

    ``wrong(seed)`` and ``right(seed)`` return the :class:`refhmc.check.Report` of the same check; at least one of the rows
    named in ``expected`` must FAIL for the wrong one. ``severity`` is what that failure must be called.
    """

    id: str
    what: str
    wrong: Callable
    right: Callable
    expected: tuple[str, ...]
    severity: str = "wrong law"
