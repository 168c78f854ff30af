"""Metrics: the mass matrix of the kinetic energy, constant (Euclidean) or a function of the position.

A Euclidean metric is given by the covariance it should imitate, M^-1: variances for :class:`Diagonal`, a matrix for
:class:`Dense`; left out, it is learned in warm-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.errors import MetricError, ShapeError


@dataclass(frozen=True)
class Identity:
    """M = I, never adapted."""

    is_dense = False
    adapts = False

    def inverse_mass(self, dim: int) -> np.ndarray:
        return np.ones(dim)


@dataclass(frozen=True, eq=False)
class Diagonal:
    """M^-1 = diag(variances). ``None``: adapted in warm-up from 1. A scalar stands for all coordinates."""

    variances: Any = None
    is_dense = False

    @property
    def adapts(self) -> bool:
        return self.variances is None

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
    def adapts(self) -> bool:
        return self.covariance is None

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
