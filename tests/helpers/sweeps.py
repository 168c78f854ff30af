"""Sweeps: the same assertion over many cases, of which a few represent the others in the default run.

`python -m pytest -m "sweep and not slow"` runs those that the default run leaves out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def representatives(cases: Iterable[Any], keep: Collection[Any]) -> list:
    """``cases`` for ``parametrize``: those of ``keep`` as they are, the others marked ``sweep``."""
    cases = list(cases)
    assert all(case in cases for case in keep), keep
    return [case if case in keep else swept(case) for case in cases]


def every(n: int, cases: Iterable[Any]) -> list:
    """``cases`` for ``parametrize``; every ``n``-th stays."""
    return [case if k % n == 0 else swept(case) for k, case in enumerate(cases)]


def one_in(n: int, first: Iterable[Any], second: Iterable[Any]) -> list:
    """All pairs for ``parametrize``; those on every ``n``-th diagonal stay, so that each value stays with several others."""
    second = list(second)
    pairs = [((a, b), (i + j) % n) for i, a in enumerate(first) for j, b in enumerate(second)]
    return [pair if diagonal == 0 else swept(*pair) for pair, diagonal in pairs]


def swept(*values: Any) -> Any:
    """One case, marked ``sweep``."""
    values = values[0] if len(values) == 1 and isinstance(values[0], tuple) else values
    return pytest.param(*values, marks=pytest.mark.sweep)
