"""The compiled functions of any model on NumPy arrays of positions (..., d), called for one position after another."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import types as nb

from refhmc.compile.compiled import compile_pointer, entry, jit
from refhmc.core import types
from refhmc.errors import ShapeError
from refhmc.models.base import Model


@jit
def is_finite(q: np.ndarray) -> bool:
    infinite = 0
    for i in range(q.shape[0]):
        infinite += not math.isfinite(q[i])
    return infinite == 0


@entry(
    lambda: nb.void(types.VALUE_AND_GRADIENT, types.MATRIX, types.DATA, types.VECTOR, types.MATRIX),
    "log densities of many positions",
)
def fill_values(
    value_and_gradient: Callable, q: np.ndarray, data: np.ndarray, values: np.ndarray, gradients: np.ndarray
) -> None:
    """Compute L and dL/dq of each row of ``q``; rows that are not finite are skipped."""
    for k in range(q.shape[0]):
        if is_finite(q[k]):
            values[k] = value_and_gradient(q[k], data, gradients[k])


@entry(lambda: nb.void(types.METRIC_OF_MODEL, types.MATRIX, types.DATA, types.STACK), "matrices of many positions")
def fill_matrices(matrix: Callable, q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Compute the Fisher metric or the Hessian of each row; rows that are not finite are skipped."""
    for k in range(q.shape[0]):
        if is_finite(q[k]):
            out[k] = 0.0
            matrix(q[k], data, out[k])


@entry(
    lambda: nb.void(types.CONTRACTION, types.MATRIX, types.DATA, types.STACK, types.MATRIX),
    "contractions of many positions",
)
def fill_contractions(
    hessian_contraction: Callable, q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray
) -> None:
    """Compute the contraction of each row with its own M; rows that are not finite are skipped."""
    for k in range(q.shape[0]):
        if is_finite(q[k]):
            out[k] = 0.0
            hessian_contraction(q[k], data, M[k], out[k])


@entry(
    lambda: nb.void(types.CHANGE, types.MATRIX, types.DATA, nb.int64[::1], types.MATRIX, types.VECTOR),
    "changes of the log density of many positions",
)
def fill_changes(
    change: Callable, q: np.ndarray, data: np.ndarray, j: np.ndarray, target: np.ndarray, changes: np.ndarray
) -> None:
    """Compute the change of L if coordinate j of each row moves to the target; rows that are not finite are skipped."""
    for k in range(q.shape[0]):
        if is_finite(q[k]) and math.isfinite(target[k, j[k]]):
            changes[k] = change(q[k], data, j[k], target[k, j[k]], 0.0)


class ModelOnArrays:
    """The compiled functions of a model on NumPy arrays (..., d).

    Results are NaN for positions that are not finite.

    Parameters
    ----------
    model : Model
        The model.

    Raises
    ------
    refhmc.errors.ShapeError
        By a method, for arrays of other shapes.
    refhmc.errors.MissingDerivativeError
        By a method, for a derivative that the model lacks.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> model = refhmc.array_api.ModelOnArrays(refhmc.models.Funnel(2))
    >>> model.gradient(np.zeros((5, 3))).shape
    (5, 3)
    """

    def __init__(self, model: Model) -> None:
        self.model, self.dim, self.discontinuous = model, model.dim, model.discontinuous
        self.fisher_levels = model.fisher_levels

    @property
    def parts(self) -> list[ModelOnArrays]:
        """The parts of a split model."""
        return [ModelOnArrays(part) for part in getattr(self.model, "parts", ())]

    def value_and_gradient(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return L(q) and its gradient.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        tuple of array
            L(q), shape (...), and dL/dq, shape (..., d).
        """
        return self._values(q)

    def log_density(self, q: np.ndarray) -> np.ndarray:
        """Return L(q).

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (...)
            The log density.
        """
        return self._values(q)[0]

    def gradient(self, q: np.ndarray) -> np.ndarray:
        """Return the gradient dL/dq.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (..., d)
            The gradient.
        """
        return self._values(q)[1]

    @property
    def log_density_change(self) -> Callable | None:
        """The function (q, j, target) to L(q with q_j = target_j) - L(q), or None if the model only has L.

        ``j`` of shape (...) is the coordinate of each position.
        """
        return None if self.model.functions.log_density_change is None else self._changes

    def hessian(self, q: np.ndarray) -> np.ndarray:
        """Return the second derivatives of L.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (..., d, d)
            The Hessian.
        """
        return self._matrices("hessian", q, self.dim)

    def hessian_contraction(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """Return sum_ij M_ij d hessian_ij / dq.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        M : array, shape (..., d, d)
            Matrices to contract with.

        Returns
        -------
        array, shape (..., d)
            The contraction.
        """
        return self._contractions(("hessian", "hessian_contraction"), q, M)

    def fisher(self, q: np.ndarray) -> np.ndarray:
        """Return the Fisher information plus the prior precision.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (..., d, d)
            The matrices.
        """
        return self._matrices("fisher", q, self.dim)

    def fisher_contraction(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """Return sum_ij M_ij d fisher_ij / dq.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.
        M : array, shape (..., d, d)
            Matrices to contract with.

        Returns
        -------
        array, shape (..., d)
            The contraction.
        """
        return self._contractions(("fisher", "fisher_contraction"), q, M)

    def fisher_bands(self, q: np.ndarray) -> np.ndarray:
        """Return the diagonal and the off-diagonal of a tridiagonal `fisher`.

        Parameters
        ----------
        q : array, shape (..., d)
            Positions.

        Returns
        -------
        array, shape (..., 2, d)
            The two bands; the second ends in 0.
        """
        return self._matrices("fisher_bands", q, 2)

    def _values(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = self._rows(q)
        f = self._reading((None, None))
        compile_pointer(f.value_and_gradient, types.VALUE_AND_GRADIENT.signature, f"the model {self.model.name}")
        values, gradients = np.full(len(rows), np.nan), np.full(rows.shape, np.nan)
        fill_values(f.value_and_gradient, rows, f.data, values, gradients)
        return values.reshape(q.shape[:-1]), gradients.reshape(q.shape)

    def _changes(self, q: np.ndarray, j: np.ndarray, target: np.ndarray) -> np.ndarray:
        rows, f = self._rows(q), types.Model(*self.model.core.tuple_for_changes)
        compile_pointer(f.change, types.CHANGE.signature, f"the change of the model {self.model.name}")
        changes, number = np.full(len(rows), np.nan), np.broadcast_to(j, q.shape[:-1]).astype(np.int64).ravel()
        fill_changes(f.change, rows, f.data, number, self._rows(target), changes)
        return changes.reshape(q.shape[:-1])

    def _matrices(self, key: str, q: np.ndarray, n_rows: int) -> np.ndarray:
        rows = self._rows(q)
        f = self._reading((key, None))
        compile_pointer(f.metric, types.METRIC_OF_MODEL.signature, f"the metric of the model {self.model.name}")
        out = np.full((len(rows), n_rows, self.dim), np.nan)
        fill_matrices(f.metric, rows, f.data, out)
        return out.reshape(*q.shape[:-1], n_rows, self.dim)

    def _contractions(self, keys: tuple, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        rows, matrices = self._rows(q), np.array(M, dtype=float)
        if matrices.shape != (*q.shape, self.dim):
            raise ShapeError(f"M must have shape {(*q.shape, self.dim)} in {keys[1]}; got {matrices.shape}.")
        f = self._reading(keys)
        compile_pointer(
            f.hessian_contraction, types.CONTRACTION.signature, f"the third derivative of the model {self.model.name}"
        )
        out = np.full(rows.shape, np.nan)
        fill_contractions(f.hessian_contraction, rows, f.data, matrices.reshape(len(rows), self.dim, self.dim), out)
        return out.reshape(q.shape)

    def _reading(self, keys: tuple[str | None, str | None]) -> types.Model:
        self.model.require([key for key in keys if key is not None], "an array implementation")
        return types.Model(*self.model.core.tuple_reading(keys))

    def _rows(self, q: np.ndarray) -> np.ndarray:
        rows = np.array(q, dtype=float, order="C")  # a copy
        if rows.shape[-1:] != (self.dim,):
            raise ShapeError(f"q must have shape (..., {self.dim}) for {self.model.name!r}; got {rows.shape}.")
        return rows.reshape(-1, self.dim)
