"""Metrics: the mass matrix of the kinetic energy, constant (Euclidean) or a function of the position.

A metric declares which of the model's functions it reads (``reads``, for the pointers ``metric`` and ``hessian_contraction`` of
:mod:`refhmc.core.types`), its four compiled functions (``geometry``), and the rows it needs (``layout``).

A Euclidean metric is given by the covariance it should imitate, M^-1: variances for :class:`Diagonal`, a matrix for
:class:`Dense`. If it is not given, it is learned in warm-up (:mod:`refhmc.adaptation`). :class:`Tridiagonal` is given by M
itself.
"""

from __future__ import annotations

from refhmc.core.registry import registry
from refhmc.metrics.diagonal_outer_product_softabs import DiagonalOuterProductSoftAbs as DiagonalOuterProductSoftAbs
from refhmc.metrics.diagonal_softabs import DiagonalSoftAbs as DiagonalSoftAbs
from refhmc.metrics.euclidean import Dense as Dense
from refhmc.metrics.euclidean import Diagonal as Diagonal
from refhmc.metrics.euclidean import Identity as Identity
from refhmc.metrics.fisher import Fisher as Fisher
from refhmc.metrics.hierarchical import Hierarchical as Hierarchical
from refhmc.metrics.low_rank import LowRank as LowRank
from refhmc.metrics.outer_product_softabs import OuterProductSoftAbs as OuterProductSoftAbs
from refhmc.metrics.softabs import SoftAbs as SoftAbs
from refhmc.metrics.tridiagonal import Tridiagonal as Tridiagonal

METRICS = registry(globals())
__all__ = [each.__name__ for each in METRICS.values()]
