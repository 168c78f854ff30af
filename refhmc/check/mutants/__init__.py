"""Planted bugs and their corrected counterparts, written as foreign code, on which the conformance kit is tested.

There is one file per area, which ends with its ``PAIRS``. The tests run them: the wrong code must FAIL in a row that is
expected to find it, the right code must not FAIL over 20 seeds. Pairs in ``NOT_FOUND`` are bugs that no row finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Pair(NamedTuple):
    """A bug with its ``id``, a description ``what``, and the code with and without it.

    ``wrong(seed)`` and ``right(seed)`` return the :class:`refhmc.check.Report` of the same check; at least one of the rows
    named in ``expected`` must FAIL for the wrong one. ``severity`` is the severity of that failure.
    """

    id: str
    what: str
    wrong: Callable
    right: Callable
    expected: tuple[str, ...]
    severity: str = "wrong distribution"
