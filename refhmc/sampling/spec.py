"""The arguments of a run as one record, which is checked once and which every later stage takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from refhmc.adaptation.adapted import Adapted
from refhmc.backends import Arrays, Numba
from refhmc.kernels.options import AnyKernel
from refhmc.models.base import Model
from refhmc.sampling.chains.initialization import Initvals
from refhmc.sampling.checks.seed import Seed
from refhmc.sampling.progress import ProgressReport
from refhmc.sampling.results.generated_quantities import GroupChoice
from refhmc.sampling.storage.files import StrPath
from refhmc.sampling.until import Until


class RunSpec(NamedTuple):
    """Arguments of :func:`refhmc.sample` and :func:`refhmc.resume`, and what follows from them.

    ``recover`` draws chains with damaged files again, and ``force`` continues a checkpoint of other code. The other fields
    with defaults are set by :func:`refhmc.sampling.checks.arguments.checked`. ``workers`` chains run at a time. With a
    stopping rule ``until``, ``draws`` is the largest number of draws, and ``first_check`` that of the first check.
    ``start_origin`` is the attribute ``starts`` of the result: "initvals", "model", "uniform" or "warmup". ``learned`` holds
    what the chains of an earlier result adapted, or None. ``folder`` holds the chains' states, or is None.
    """

    model: Model
    kernel: AnyKernel
    draws: int
    tune: int
    chains: int
    cores: int | None
    random_seed: Seed | None
    initvals: Initvals | None
    init: str
    progressbar: bool | Callable[[ProgressReport], None]
    save_warmup: bool
    executor: object
    backend: Numba | Arrays
    checkpoint: StrPath | None
    store: StrPath | None
    max_seconds: float | None
    until: Until | None
    raw: bool
    preflight: bool
    warmup: object
    generate: GroupChoice | None
    recover: bool = False
    force: bool = False
    first_check: int = 0
    workers: int = 1
    entropy: int = 0
    start_origin: str = ""
    learned: list[Adapted] | None = None
    folder: StrPath | None = None

    @property
    def kept_warmup(self) -> int:
        """Iterations of warm-up that are kept per chain."""
        return self.tune if self.save_warmup else 0

    @property
    def fuse(self) -> bool:
        """Whether the kernel, the integrator, the metric and the model are compiled as one function."""
        return isinstance(self.backend, Numba) and bool(self.backend.fuse)
