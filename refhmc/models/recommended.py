"""The kernel that a model is meant for, in words: models stand below kernels and know none."""

from __future__ import annotations

from typing import Any, NamedTuple


class Recommended(NamedTuple):
    """``kernel`` and ``metric`` as on the command line, "hmc" and "softabs", or "" for the defaults; ``why``, one clause;
    ``options`` of the kernel and ``metric_options`` of its metric, pairs of a name and a value.

    With neither, ``why`` says what keeps the default from being right, and no other is known that costs as little.
    """

    kernel: str = ""
    metric: str = ""
    why: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    metric_options: tuple[tuple[str, Any], ...] = ()
