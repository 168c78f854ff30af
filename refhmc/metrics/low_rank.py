"""A metric of low rank beside a diagonal, O(d k) a product, with scales s and k orthonormal directions u_j:

    M^-1 = S (I + U (Lambda - I) U') S,     S = diag(s),   U = (u_1, ..., u_k),   Lambda = diag(lambda)
    p = S^-1 (z + sum_j (lambda_j^-1/2 - 1) u_j (u_j . z)),     z standard normal: its covariance is M

since I + U (Lambda - I) U' has the inverse I + U (Lambda^-1 - I) U' and the root I + U (Lambda^1/2 - I) U'. What is kept
are the rows v_j = S u_j, so that M^-1 = S^2 + sum_j (lambda_j - 1) v_j v_j'. With k = 0 it is the diagonal metric, at its cost,
and with k = d a dense one. The compiled text is that of :mod:`refhmc.metrics.euclidean`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core.arguments import array_of_numbers
from refhmc.core.compiled import plain
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics.base import FROM_PAIRS, NOTHING, HamiltonianOnArrays
from refhmc.metrics.euclidean import FIRST_DIRECTION, LOW_RANK, Diagonal, Euclidean, EuclideanOnArrays
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

ROWS = plain(LOW_RANK.rows)
LARGEST = 2_000_000  # numbers that the directions of one metric, or the draws that it is learned from, take at most


@dataclass(frozen=True, eq=False)
class LowRank(Euclidean):
    """M^-1 = S (I + U (Lambda - I) U') S: ``variances`` s^2 (d,), ``directions`` (k, d), orthonormal rows u_j, and their
    ``eigenvalues`` lambda_j (k,).

    ``None``: adapted in warm-up from draws and gradients, the directions and how many there are
    (:mod:`refhmc.adaptation.fisher_divergence`). That is ``metric="auto"``, the default of NUTS and HMC.
    """

    name = "low-rank"
    variances: Any = None
    directions: Any = None
    eigenvalues: Any = None
    is_dense = False

    @property
    def learns(self) -> int:
        return FROM_PAIRS if self.variances is None else NOTHING

    def inverse_mass(self, dim: int) -> np.ndarray:
        """M^-1, (dim, dim), or its diagonal (dim,) where there are no directions."""
        s2, (V, eigenvalues) = self.scales(dim), self.low_rank(dim)
        return s2 if len(V) == 0 else np.diag(s2) + (V.T * (eigenvalues - 1)) @ V

    def scales(self, dim: int) -> np.ndarray:
        """s^2, (dim,). Raises ShapeError, or MetricError naming the least entry."""
        return Diagonal(self.variances).inverse_mass(dim)

    def low_rank(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows v_j = S u_j (k, dim), and lambda (k,). Raises ShapeError, or MetricError for directions that are not
        orthonormal or eigenvalues that are not positive."""
        if self.directions is None and self.eigenvalues is None:
            return np.zeros((0, dim)), np.zeros(0)
        if self.variances is None or self.directions is None or self.eigenvalues is None:
            raise ValueError("LowRank: give variances, directions and eigenvalues, or none of them")
        U = array_of_numbers("directions", self.directions, MetricError)
        eigenvalues = array_of_numbers("eigenvalues", self.eigenvalues, MetricError)
        if U.ndim != 2 or U.shape[1] != dim or eigenvalues.shape != U.shape[:1]:
            raise ShapeError(
                f"directions, eigenvalues: expected (k, {dim}) and (k,), got {U.shape} and {eigenvalues.shape}"
            )
        off = np.abs(U @ U.T - np.eye(len(U))).max(initial=0.0)
        if not off < 1e-8:
            raise MetricError(f"directions must be orthonormal rows; their products are off by up to {off:.3g}")
        if not (np.all(np.isfinite(eigenvalues)) and np.all(eigenvalues > 0)):
            raise MetricError(f"eigenvalues must be positive and finite; the least is {np.min(eigenvalues)}")
        return U * np.sqrt(self.scales(dim)), eigenvalues

    def most_directions(self, dim: int) -> int:
        """Rows for as many directions as can be learned."""
        return min(dim, LARGEST // dim) if self.learns else len(self.low_rank(dim)[1])

    def stacks(self, model: Any, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        d = model.dim
        V, eigenvalues = self.low_rank(d)
        vecs = np.zeros((FIRST_DIRECTION + max(self.most_directions(d), len(V)), d))
        put_low_rank(vecs, self.scales(d), V, eigenvalues)
        return vecs, np.zeros((0, d, d))

    def on_arrays(self, model: Any) -> HamiltonianOnArrays:
        return LowRankOnArrays(model, self)


def put_low_rank(vecs: np.ndarray, variances: np.ndarray, V: np.ndarray, eigenvalues: np.ndarray) -> None:
    """Write a metric of low rank into its rows ``vecs``."""
    k, rows = len(eigenvalues), ROWS(vecs)
    rows.inverse_mass[:], rows.root[:] = variances, 1 / np.sqrt(variances)
    rows.spread[:k], rows.shrink[:k], rows.rank[0] = eigenvalues - 1, eigenvalues**-0.5 - 1, k
    vecs[FIRST_DIRECTION : FIRST_DIRECTION + k] = V


class LowRankOnArrays(EuclideanOnArrays):
    """On arrays (..., d): s^2 (d,), and V, whose columns are v_j, (d, k)."""

    @batched.kept
    def parts(self, q: Array) -> tuple[Array, Array, Array]:
        xp, d = batched.namespace(q), q.shape[-1]
        V, eigenvalues = self.metric.low_rank(d)
        parts = self.metric.scales(d), np.ascontiguousarray(V.T), eigenvalues
        return tuple(xp.asarray(part, dtype=q.dtype) for part in parts)  # type: ignore[return-value]

    def inverse_product(self, q: Array, p: Array) -> Array:
        s2, V, eigenvalues = self.parts(q)
        return s2 * p + ((p @ V) * (eigenvalues - 1)) @ batched.transpose(V)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        s2, V, eigenvalues = self.parts(q)
        y = normals / s2**0.5
        return y + ((y @ V) * (eigenvalues**-0.5 - 1)) @ batched.transpose(V) / s2
