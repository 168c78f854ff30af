"""The arguments of a run, checked once, as one record that every later stage takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from refhmc.backends import Arrays, Numba
from refhmc.models.base import Model
from refhmc.sampling.progress import ProgressReport


class RunSpec(NamedTuple):
    """Checked arguments of a run.

    ``start_origin`` is the attribute ``starts`` of the result: "initvals", "model", "uniform" or "warmup". ``learned`` holds
    what the chains of an earlier result adapted, or None. ``workers`` chains run at a time. ``folder`` holds the chains'
    states, or is None. ``recover`` draws chains with damaged files again, and ``force`` continues a checkpoint of other code.
    """

    model: Model
    kernel: Any
    draws: int
    tune: int
    chains: int
    workers: int
    entropy: int
    initvals: Any
    init: str
    start_origin: str
    learned: Any
    progressbar: bool | Callable[[ProgressReport], None]
    save_warmup: bool
    executor: Any
    backend: Numba | Arrays
    folder: Any
    store: Any
    max_seconds: float | None
    raw: bool
    preflight: bool
    generate: Any
    recover: bool
    force: bool

    @property
    def kept_warmup(self) -> int:
        """Iterations of warm-up that are kept per chain."""
        return self.tune if self.save_warmup else 0

    @property
    def fuse(self) -> bool:
        """Whether the kernel, the integrator, the metric and the model are compiled as one function."""
        return isinstance(self.backend, Numba) and bool(self.backend.fuse)
