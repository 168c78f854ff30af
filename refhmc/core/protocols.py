"""Protocols of objects that packages receive from packages above them, for signatures without an import upward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike


class Model(Protocol):
    """The part of :class:`refhmc.Model` that metrics, integrators and kernels read."""

    name: str
    dim: int
    names: list[str]
    initial: np.ndarray | Callable[[np.random.Generator], ArrayLike] | None
    discontinuous: np.ndarray
    fisher_levels: np.ndarray | None
    fisher_border: int | None
    parents: dict[str, tuple[str, ...]] | None

    @property
    def has_diagonals(self) -> bool: ...
    def log_density(self, q: np.ndarray) -> float: ...
    def gradient(self, q: np.ndarray) -> np.ndarray: ...
    def hessian(self, q: np.ndarray) -> np.ndarray: ...
    def constrain(self, q: np.ndarray) -> dict[str, np.ndarray]: ...
