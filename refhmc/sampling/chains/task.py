"""The task of one chain, its outcome and its state: records of plain data, which can be sent to another process."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from refhmc.adaptation.adapted import Adapted
from refhmc.core.failures import Failure
from refhmc.kernels.options import AnyKernel
from refhmc.models.base import Model
from refhmc.sampling.storage.append_only import Rows


class ChainTask(NamedTuple):
    """Description of one chain's work; picklable if its model is.

    ``adapted`` is what its warm-up starts from, ``init`` the argument of ``sample``. ``free_start`` marks a default start,
    which may be replaced (:mod:`refhmc.sampling.chains.far_start`).
    """

    model: Model
    kernel: AnyKernel
    chain: int
    entropy: int
    start: np.ndarray | None
    draws: int
    tune: int
    keep_warmup: bool = False
    fuse: bool = False
    init: str = "uniform"
    adapted: Adapted | None = None
    free_start: bool = False

    @property
    def first(self) -> int:
        """First iteration whose row is kept."""
        return 0 if self.keep_warmup else self.tune

    @property
    def total(self) -> int:
        return self.tune + self.draws


class ChainRun(NamedTuple):
    """Outcome of one chain as plain arrays, so that it can come from another process."""

    rows: Rows  # iterations in memory
    tune: int
    start: np.ndarray  # the position after warm-up
    control: np.record
    error: BaseException | None = None
    error_position: np.ndarray | None = None
    failures: tuple[Failure, ...] = ()  # of this session, if the chain comes from a checkpoint
    unsaved: str = ""  # why the files on disk are older than the rows
    lengths: tuple[tuple[str, float], ...] = ()  # trajectory lengths adapted by warm-up: block, length
    adapted: dict[str, Adapted] | None = None  # of each block, if warm-up is complete
    no_pathfinder: str = ""  # why Pathfinder was requested but gave no start
    left_behind: bool = False  # it did not return from a call of the model

    @property
    def warm(self) -> int:
        """Number of rows that belong to warm-up."""
        return min(max(self.tune - self.rows.first, 0), len(self.rows.draws))

    @property
    def draws(self) -> np.ndarray:
        return self.rows.draws[self.warm :]

    @property
    def stats(self) -> np.ndarray:
        return self.rows.stats[self.warm :]


class Saved(NamedTuple):
    """Chain between two iterations, as plain data from which it can continue."""

    state: bytes
    done: int  # iterations, warm-up included
    start_of_draws: np.ndarray  # position after warm-up; NaN before
    control: np.record
    no_pathfinder: str = ""  # why Pathfinder was requested but gave no start


def chain_generator(entropy: int, chain: int, *child: int) -> np.random.Generator:
    """Return the generator of chain k, PCG64(SeedSequence(entropy, spawn_key=(k,))); with a child, spawn_key=(k, child).

    Pathfinder uses the child 0.
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(chain, *child))))
