"""A diagonal metric with scales s and k additional orthonormal directions u_j, O(d k) per product.

::

    M^-1 = S (I + U (Lambda - I) U') S,     S = diag(s),   U = (u_1, ..., u_k),   Lambda = diag(lambda)
    p = S^-1 (z + sum_j (lambda_j^-1/2 - 1) u_j (u_j . z)),     z standard normal: its covariance is M

since I + U (Lambda - I) U' has the inverse I + U (Lambda^-1 - I) U' and the root I + U (Lambda^1/2 - I) U'. The rows
v_j = S u_j are stored, so that M^-1 = S^2 + sum_j (lambda_j - 1) v_j v_j'. With k = 0 it is the diagonal metric, at its cost,
and with k = d a dense one. The compiled implementation is that of :mod:`refhmc.metrics.euclidean`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import plain
from refhmc.core.arguments import array_of_numbers
from refhmc.core.protocols import Model
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics.base import FROM_PAIRS, NOTHING, ArrayModel, HamiltonianOnArrays
from refhmc.metrics.euclidean import FIRST_DIRECTION, LOW_RANK, Diagonal, Euclidean, EuclideanOnArrays
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

ROWS = plain(LOW_RANK.rows)
LARGEST = 2_000_000  # limit of the numbers stored for the directions of a metric, or for the draws it is learned from


@dataclass(frozen=True, eq=False)
class LowRank(Euclidean):
    """Diagonal mass matrix with additional directions, the default of NUTS and HMC.

    With scales s and k orthonormal directions u_j with eigenvalues lambda_j, the inverse mass matrix and the momentum from
    standard normals z are::

        M^-1 = S (I + U (Lambda - I) U') S,    S = diag(s),    U = (u_1, ..., u_k),    Lambda = diag(lambda)
        p = S^-1 (z + sum_j (lambda_j^(-1/2) - 1) u_j (u_j . z))

    A product costs O(d k). With k = 0 it is the diagonal metric, with k = d a dense one. Without values the metric starts
    diagonal, and warm-up learns scales, directions and their number from draws and gradients, by the least Fisher divergence.

    Parameters
    ----------
    variances : float or array_like, shape (d,), optional
        Variances s^2 of the coordinates; a scalar is the variance of all. By default the metric is adapted in warm-up.
    directions : array_like, shape (k, d), optional
        Orthonormal rows u_j. Needs `variances` and `eigenvalues`.
    eigenvalues : array_like, shape (k,), optional
        Eigenvalues lambda_j of the directions, positive.

    Raises
    ------
    ValueError
        If `directions` or `eigenvalues` is given without the other values; raised by `refhmc.sample`, like the following.
    refhmc.errors.ShapeError
        If the values do not fit the model.
    refhmc.errors.MetricError
        If the rows of `directions` are not orthonormal, or if `variances` or `eigenvalues` are not positive and finite.

    See Also
    --------
    Diagonal : The same without directions.
    Dense : All covariances.

    References
    ----------
    Seyboldt, Carlson and Carpenter (2026), whose program nutpie has the idea of learning from draws and gradients.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.metrics.LowRank([1.0, 4.0], [[0.6, 0.8]], [3.0]).inverse_mass(2).round(2)
    array([[1.72, 1.92],
           [1.92, 9.12]])
    """

    name = "low-rank"
    variances: ArrayLike | None = None
    directions: ArrayLike | None = None
    eigenvalues: ArrayLike | None = None
    is_dense = False
    learned_values = "variances", "directions", "eigenvalues"

    @property
    def learns(self) -> int:
        """How warm-up learns the metric, as a code of `refhmc.metrics.base`."""
        return FROM_PAIRS if self.variances is None else NOTHING

    def inverse_mass(self, dim: int) -> np.ndarray:
        s2, (V, eigenvalues) = self.scales(dim), self.low_rank(dim)
        return s2 if len(V) == 0 else np.diag(s2) + (V.T * (eigenvalues - 1)) @ V

    def scales(self, dim: int) -> np.ndarray:
        """Return the variances of the coordinates.

        Parameters
        ----------
        dim : int
            Dimension d of the model.

        Returns
        -------
        ndarray, shape (d,)
            The variances s^2.

        Raises
        ------
        refhmc.errors.ShapeError, refhmc.errors.MetricError
            If the variances do not fit the dimension, or are not positive and finite.
        """
        return Diagonal(self.variances).inverse_mass(dim)

    def low_rank(self, dim: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scaled directions and their eigenvalues.

        Parameters
        ----------
        dim : int
            Dimension d of the model.

        Returns
        -------
        rows : ndarray, shape (k, d)
            The rows v_j = S u_j.
        eigenvalues : ndarray, shape (k,)
            The eigenvalues lambda_j.

        Raises
        ------
        ValueError
            If only some of the three values are given.
        refhmc.errors.ShapeError, refhmc.errors.MetricError
            If the values do not fit the dimension, if the directions are not orthonormal, or if the eigenvalues are not
            positive.
        """
        if self.directions is None and self.eigenvalues is None:
            return np.zeros((0, dim)), np.zeros(0)
        if self.variances is None or self.directions is None or self.eigenvalues is None:
            raise ValueError("variances, directions and eigenvalues must all be given, or none of them; got only some.")
        U = array_of_numbers("directions", self.directions, MetricError)
        eigenvalues = array_of_numbers("eigenvalues", self.eigenvalues, MetricError)
        if U.ndim != 2 or U.shape[1] != dim or eigenvalues.shape != U.shape[:1]:
            raise ShapeError(
                f"directions and eigenvalues must have shapes (k, {dim}) and (k,); got {U.shape} and {eigenvalues.shape}."
            )
        off = np.abs(U @ U.T - np.eye(len(U))).max(initial=0.0)
        if not off < 1e-8:
            raise MetricError(
                f"directions must be orthonormal rows; got rows whose products differ from 0 or 1 by up to {off:.3g}."
            )
        if not (np.all(np.isfinite(eigenvalues)) and np.all(eigenvalues > 0)):
            raise MetricError(f"eigenvalues must be positive and finite; got a least value of {np.min(eigenvalues)}.")
        return U * np.sqrt(self.scales(dim)), eigenvalues

    def most_directions(self, dim: int) -> int:
        """Return the largest number of directions that the metric can have.

        Parameters
        ----------
        dim : int
            Dimension d of the model.

        Returns
        -------
        int
            Number of directions for which there are rows.
        """
        return min(dim, LARGEST // dim) if self.learns else len(self.low_rank(dim)[1])

    def stacks(self, model: Model, leapfrog: bool) -> tuple[np.ndarray, np.ndarray]:
        d = model.dim
        V, eigenvalues = self.low_rank(d)
        vecs = np.zeros((FIRST_DIRECTION + max(self.most_directions(d), len(V)), d))
        put_low_rank(vecs, self.scales(d), V, eigenvalues)
        return vecs, np.zeros((0, d, d))

    def from_rows(self, vectors: np.ndarray, matrices: np.ndarray) -> Self:
        rows = ROWS(vectors)
        k = int(rows.rank[0])
        U = vectors[FIRST_DIRECTION : FIRST_DIRECTION + k] * rows.root
        return replace(self, variances=rows.inverse_mass.copy(), directions=U, eigenvalues=1 + rows.spread[:k])

    def on_arrays(self, model: ArrayModel) -> HamiltonianOnArrays:
        return LowRankOnArrays(model, self)


def put_low_rank(vecs: np.ndarray, variances: np.ndarray, V: np.ndarray, eigenvalues: np.ndarray) -> None:
    """Write a metric of low rank into its rows ``vecs``."""
    k, rows = len(eigenvalues), ROWS(vecs)
    rows.inverse_mass[:], rows.root[:] = variances, 1 / np.sqrt(variances)
    rows.spread[:k], rows.shrink[:k], rows.rank[0] = eigenvalues - 1, eigenvalues**-0.5 - 1, k
    vecs[FIRST_DIRECTION : FIRST_DIRECTION + k] = V


class LowRankOnArrays(EuclideanOnArrays):
    """The Hamiltonian on arrays (..., d), with s^2 (d,), and V, whose columns are v_j, (d, k)."""

    @batched.kept
    def parts(self, q: Array) -> tuple[Array, Array, Array]:
        """Return s^2, V and lambda."""
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
