"""Metrics: the mass matrix of the kinetic energy, constant (Euclidean) or a function of the position.

Each says which of the model's functions it reads (``reads``, for the pointers ``metric`` and ``trace`` of
:mod:`refhmc.core.types`), its four pointers (``geometry``), and the rows it needs (``layout``).

A Euclidean metric is given by the covariance it should imitate, M^-1: variances for :class:`Diagonal`, a matrix for
:class:`Dense`; left out, it is learned in warm-up (:mod:`refhmc.adaptation`). :class:`Tridiagonal` is given by M itself.
"""

from __future__ import annotations

from refhmc.metrics.diagonal_outer_product_softabs import DiagonalOuterProductSoftAbs
from refhmc.metrics.diagonal_softabs import DiagonalSoftAbs
from refhmc.metrics.euclidean import Dense, Diagonal, Identity
from refhmc.metrics.fisher import Fisher
from refhmc.metrics.outer_product_softabs import OuterProductSoftAbs
from refhmc.metrics.softabs import SoftAbs
from refhmc.metrics.tridiagonal import Tridiagonal

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
