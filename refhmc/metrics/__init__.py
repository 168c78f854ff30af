"""Metrics: the mass matrix of the kinetic energy, constant (Euclidean) or a function of the position.

Each says which of the model's functions it reads (``reads``, for the pointers ``metric`` and ``trace`` of
:mod:`refhmc.core.types`), its four pointers (``geometry``), and how many rows of the workspaces it needs.

A Euclidean metric is given by the covariance it should imitate, M^-1: variances for :class:`Diagonal`, a matrix for
:class:`Dense`; left out, it is learned in warm-up (:mod:`refhmc.adaptation`). :class:`Tridiagonal` is given by M itself.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core.types import ALPHA, AS_PUBLISHED, READS_BANDS
from refhmc.errors import MetricError, ShapeError

# What warm-up learns a metric from.
NOTHING, FROM_DRAWS, FROM_GRADIENTS = range(3)


class _Euclidean:
    """What the constant metrics have in common."""

    position_dependent = False

    @property
    def reads(self) -> tuple:
        return (None, None)

    @property
    def geometry(self) -> tuple:
        from refhmc.metrics import euclidean as e

        return e.settle, e.velocity, e.field, e.draw

    def options(self) -> dict[int, float]:
        return {}


@dataclass(frozen=True)
class Identity(_Euclidean):
    """M = I, never adapted."""

    is_dense = False
    learns = NOTHING

    def inverse_mass(self, dim: int) -> np.ndarray:
        return np.ones(dim)


@dataclass(frozen=True, eq=False)
class Diagonal(_Euclidean):
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
class Dense(_Euclidean):
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


@dataclass(frozen=True, eq=False)
class Tridiagonal(_Euclidean):
    """M itself, not its inverse, with ``diagonal`` (d,) and ``off_diagonal`` (d - 1,): :mod:`refhmc.metrics.tridiagonal`.

    Never adapted; a draw, a velocity and a leapfrog step cost O(d). ``None``: the bands that the model gives, which only
    some conditionals of refhmc's own models do, such as that of x in ``StochasticVolatility``.
    """

    diagonal: Any = None
    off_diagonal: Any = None
    is_dense = False
    learns = NOTHING

    def __post_init__(self):
        if (self.diagonal is None) != (self.off_diagonal is None):
            raise ValueError("give both diagonal and off_diagonal, or neither")

    @property
    def reads(self) -> tuple:
        return ("fisher_bands", None) if self.diagonal is None else (None, None)

    @property
    def geometry(self) -> tuple:
        from refhmc.metrics import tridiagonal as t

        return t.settle, t.velocity, t.field, t.draw

    def options(self) -> dict[int, float]:
        return {READS_BANDS: float(self.diagonal is None)}

    def bands(self, dim: int) -> np.ndarray:
        """Both bands, (2, dim), the second ending in 0. Raises ShapeError, or MetricError naming the least eigenvalue."""
        bands = np.zeros((2, dim))
        if self.diagonal is None:
            bands[0] = 1.0
            return bands
        diagonal, beside = np.asarray(self.diagonal, dtype=float), np.asarray(self.off_diagonal, dtype=float)
        for name, band, n in (("diagonal", diagonal, dim), ("off_diagonal", beside, dim - 1)):
            if band.shape != (n,):
                raise ShapeError(f"{name}: expected ({n},), got {band.shape}")
            if not np.isfinite(band).all():
                raise MetricError(f"{name} has entries that are not finite")
        from scipy.linalg import eigvalsh_tridiagonal

        least = eigvalsh_tridiagonal(diagonal, beside, select="i", select_range=(0, 0))[0]
        if not least > 0:
            raise MetricError(f"the tridiagonal metric is not positive definite: its least eigenvalue is {least:.6g}")
        bands[0], bands[1, : dim - 1] = diagonal, beside
        return bands


class _Riemannian:
    """What the metrics that are functions of the position have in common."""

    position_dependent = True
    is_dense = True
    learns = NOTHING
    module: str
    reads: tuple[str | None, str | None]

    @property
    def text(self):
        """The module with the mathematics, imported when it is needed."""
        return importlib.import_module(f"refhmc.metrics.{self.module}")

    @property
    def geometry(self) -> tuple:
        return self.text.settle, self.text.velocity, self.text.field, self.text.draw

    def rows(self, model) -> int:
        """How many rows of ``vecs`` it needs; ``matrices``: how many of ``mats``."""
        return self.text.N_VECS

    def matrices(self, model) -> int:
        return self.text.N_MATS

    def options(self) -> dict[int, float]:
        return {ALPHA: self.alpha} if hasattr(self, "alpha") else {}


@dataclass(frozen=True)
class Fisher(_Riemannian):
    """G(q) = Fisher information plus prior precision, as the model gives it: :mod:`refhmc.metrics.fisher`."""

    module = "fisher"
    reads = ("fisher", "fisher_trace")


@dataclass(frozen=True)
class SoftAbs(_Riemannian):
    """The Hessian with its eigenvalues' absolute values smoothed over a width 1/alpha: :mod:`refhmc.metrics.softabs`.

    Raises ValueError unless alpha is positive and finite.
    """

    alpha: float = 1e6
    module = "softabs"
    reads = ("hessian", "trace")

    def __post_init__(self):
        _check_alpha(self.alpha)


@dataclass(frozen=True)
class DiagonalSoftAbs(_Riemannian):
    """SoftAbs of the Hessian's diagonal alone, O(d) beside the model: :mod:`refhmc.metrics.diagonal_softabs`."""

    alpha: float = 1e6
    is_dense = False
    module = "diagonal_softabs"
    reads = ("hessian", "trace")

    def __post_init__(self):
        _check_alpha(self.alpha)

    def matrices(self, model) -> int:
        return 0 if model.has_diagonals else 1


@dataclass(frozen=True)
class OuterProductSoftAbs(_Riemannian):
    """SoftAbs of the gradient's outer product g g': :mod:`refhmc.metrics.outer_product_softabs`.

    ``as_published=True``: the formula printed in Betancourt's appendix A.2, which is not SoftAbs(g g').
    """

    alpha: float = 1.0
    as_published: bool = False
    module = "outer_product_softabs"
    reads = ("hessian", None)

    def __post_init__(self):
        _check_alpha(self.alpha)

    def options(self) -> dict[int, float]:
        return {ALPHA: self.alpha, AS_PUBLISHED: float(self.as_published)}


@dataclass(frozen=True)
class DiagonalOuterProductSoftAbs(_Riemannian):
    """SoftAbs of the squares of the gradient: :mod:`refhmc.metrics.diagonal_outer_product_softabs`."""

    alpha: float = 1.0
    is_dense = False
    module = "diagonal_outer_product_softabs"
    reads = ("hessian", None)

    def __post_init__(self):
        _check_alpha(self.alpha)


def _check_alpha(alpha) -> None:
    if not (isinstance(alpha, int | float) and 0 < alpha < float("inf")):
        raise ValueError(f"alpha must be positive and finite, got {alpha!r}")


METRICS = (
    Identity,
    Diagonal,
    Dense,
    Tridiagonal,
    Fisher,
    SoftAbs,
    DiagonalSoftAbs,
    OuterProductSoftAbs,
    DiagonalOuterProductSoftAbs,
)

__all__ = [metric.__name__ for metric in METRICS]
