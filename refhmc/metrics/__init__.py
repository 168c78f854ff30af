"""Metrics: the mass matrix of the kinetic energy, constant (Euclidean) or a function of the position.

A Euclidean metric is given by the covariance it should imitate, M^-1: variances for :class:`Diagonal`, a matrix for
:class:`Dense`; left out, it is learned in warm-up (:mod:`refhmc.adaptation`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.errors import MetricError, ShapeError

# What warm-up learns a metric from.
NOTHING, FROM_DRAWS, FROM_GRADIENTS = range(3)


@dataclass(frozen=True)
class Identity:
    """M = I, never adapted."""

    is_dense = False
    learns = NOTHING

    def inverse_mass(self, dim: int) -> np.ndarray:
        return np.ones(dim)


@dataclass(frozen=True, eq=False)
class Diagonal:
    """M^-1 = diag(variances). ``None``: adapted in warm-up from 1. A scalar stands for all coordinates.

    ``learn_from`` says what it is adapted from: "draws" (Stan's estimate, their variances), or "draws and gradients",
    sqrt(var q / var dL/dq), which is exact for a Gaussian with independent coordinates after a few draws.
    """

    variances: Any = None
    learn_from: str = "draws"
    is_dense = False

    def __post_init__(self):
        if self.learn_from not in ("draws", "draws and gradients"):
            raise ValueError(f"learn_from must be 'draws' or 'draws and gradients', got {self.learn_from!r}")

    @property
    def learns(self) -> int:
        if self.variances is not None:
            return NOTHING
        return FROM_DRAWS if self.learn_from == "draws" else FROM_GRADIENTS

    def inverse_mass(self, dim: int) -> np.ndarray:
        """The diagonal, (dim,). Raises ShapeError, or MetricError naming the least entry."""
        if self.variances is None:
            return np.ones(dim)
        variances = np.asarray(self.variances, dtype=float)
        if variances.shape not in ((), (dim,)):
            raise ShapeError(f"variances: expected ({dim},), got {variances.shape}")
        if not np.all(np.isfinite(variances)) or not np.all(variances > 0):
            raise MetricError(f"variances must be positive and finite; the least is {np.min(variances)}")
        return np.broadcast_to(variances, (dim,)).copy()


@dataclass(frozen=True, eq=False)
class Dense:
    """M^-1 = covariance. ``None``: adapted in warm-up from the identity."""

    covariance: Any = None
    is_dense = True

    @property
    def learns(self) -> int:
        return FROM_DRAWS if self.covariance is None else NOTHING

    def inverse_mass(self, dim: int) -> np.ndarray:
        """The matrix, (dim, dim). Raises ShapeError, or MetricError naming asymmetry or the least eigenvalue."""
        if self.covariance is None:
            return np.eye(dim)
        covariance = np.array(self.covariance, dtype=float)
        if covariance.shape != (dim, dim):
            raise ShapeError(f"covariance: expected ({dim}, {dim}), got {covariance.shape}")
        if not np.all(np.isfinite(covariance)):
            raise MetricError("covariance has entries that are not finite")
        asymmetry = np.abs(covariance - covariance.T).max()
        if asymmetry > 1e-10 * np.abs(covariance).max():
            raise MetricError(f"covariance is not symmetric: it differs from its transpose by up to {asymmetry:.3g}")
        least = np.linalg.eigvalsh(covariance)[0]
        if not least > 0:
            raise MetricError(f"covariance is not positive definite: its least eigenvalue is {least:.6g}")
        return 0.5 * (covariance + covariance.T)


__all__ = ["Dense", "Diagonal", "Identity"]
