"""Functions of a model on arrays of positions (..., d), as the array backend needs them (:mod:`refhmc.array_api`).

They are either the compiled functions, called for each position (:class:`ModelOnArrays`, for every model, on NumPy), or an
array implementation, which :meth:`refhmc.Model.on_arrays` returns (:class:`ArrayImplementation`, for some models, on any
namespace of the array API, with the data there). Any object with these methods can be used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types as nb

from refhmc.compile.compiled import compile_pointer, entry, jit
from refhmc.core import types
from refhmc.errors import MissingDerivativeError, ShapeError
from refhmc.numerics.batched import Array, namespace, transpose

if TYPE_CHECKING:
    from refhmc.models.base import Model

# Constructors of the models that have an array implementation, and the models composed of these.
WITH_TEXT = (
    "Gaussian",
    "Banana",
    "Funnel",
    "LogisticRegression",
    "EightSchools",
    "StochasticVolatility",
    "SoftmaxRegression",
    "MLP",
    "CNN",
    "Model.split of these",
)


class ArrayImplementation:
    """The base class of array implementations. A model defines ``value_and_gradient`` and the derivatives that it has.

    Positions q have shape (..., d) and are not written to; results have the dtype of q. Positions do not affect each other. If
    one is not finite, its log density is NaN or -inf, its gradient is arbitrary, and its matrices and contractions are NaN.

    ``parts`` holds the array implementations of the parts of a split model.
    """

    name = "model"
    dim: int
    discontinuous = ()
    parts: Sequence[ArrayImplementation] = ()

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
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
        raise NotImplementedError

    def log_density(self, q: Array) -> Array:
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
        return self.value_and_gradient(q)[0]

    def gradient(self, q: Array) -> Array:
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
        return self.value_and_gradient(q)[1]

    def hessian(self, q: Array) -> Array:
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
        raise self._missing("hessian")

    def hessian_contraction(self, q: Array, M: Array) -> Array:
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
        raise self._missing("hessian_contraction")

    def fisher(self, q: Array) -> Array:
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
        raise self._missing("fisher")

    def fisher_contraction(self, q: Array, M: Array) -> Array:
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
        raise self._missing("fisher_contraction")

    def fisher_bands(self, q: Array) -> Array:
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
        raise self._missing("fisher_bands")

    def has(self, derivative: str) -> bool:
        """Return whether the implementation has a function.

        Parameters
        ----------
        derivative : str
            Name of a method.

        Returns
        -------
        bool
            Whether the class defines it.
        """
        return getattr(type(self), derivative) is not getattr(ArrayImplementation, derivative)

    def _missing(self, derivative: str) -> MissingDerivativeError:
        """Return the error of a derivative that the implementation lacks."""
        return MissingDerivativeError(f"The array implementation of {self.name!r} has no {derivative}.")


class SumOnArrays(ArrayImplementation):
    """The array implementation of a split model, L = sum_m L_m, from those of its parts."""

    def __init__(self, parts: Sequence[ArrayImplementation]) -> None:
        self.name, self.dim, self.parts = "a split model", parts[0].dim, tuple(parts)

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        L, gradient = self.parts[0].value_and_gradient(q)
        for part in self.parts[1:]:
            more, slope = part.value_and_gradient(q)
            L, gradient = L + more, gradient + slope
        return L, gradient


def keep_what_is_freed() -> None:
    """Make the process keep freed memory of up to 31 MB at a time instead of returning it to the system.

    The GNU C library returns freed arrays until a larger one has been freed. Each new array is then mapped again when it is
    written to, which can double the time of an evaluation. On other systems this function has no effect.
    """
    np.empty(31 * 2**20, dtype=np.uint8)


def in_dtype_of(q: Array, *data: Array) -> tuple:
    """Return the arrays of the data of a model in the precision of a position."""
    return tuple(namespace(q).astype(x, q.dtype, copy=False) for x in data)


def where_finite(q: Array, x: Array, axes: int) -> Array:
    """Return x if the position is finite, else NaN. ``axes`` counts the axes of x after the leading ones."""
    xp = namespace(q)
    finite = xp.all(xp.isfinite(q), axis=-1)
    return xp.where(finite[(..., *(None,) * axes)], x, xp.nan)


def matrix(rows: Sequence[Sequence[Array]]) -> Array:
    """Return a matrix (..., n, m) from its entries, arrays of shape (...) or numbers."""
    arrays = [x for row in rows for x in row if hasattr(x, "dtype")]
    xp = namespace(arrays[0])
    like = xp.zeros_like(xp.broadcast_arrays(*arrays)[0])
    return xp.stack([xp.stack([x + like for x in row], axis=-1) for row in rows], axis=-2)


def blocks(A: Array, B: Array, C: Array) -> Array:
    """Return [A, B; B', C] from blocks with the same leading axes."""
    xp = namespace(A)
    return xp.concat([xp.concat([A, B], axis=-1), xp.concat([transpose(B), C], axis=-1)], axis=-2)


@jit
def is_finite(q: Any) -> bool:
    infinite = 0
    for i in range(q.shape[0]):
        infinite += not math.isfinite(q[i])
    return infinite == 0


@entry(
    lambda: nb.void(types.VALUE_AND_GRADIENT, types.MATRIX, types.DATA, types.VECTOR, types.MATRIX),
    "log densities of many positions",
)
def fill_values(value_and_gradient: Any, q: Any, data: Any, values: Any, gradients: Any) -> None:
    """Compute L and dL/dq of each row of ``q``; rows that are not finite are skipped."""
    for k in range(q.shape[0]):
        if is_finite(q[k]):
            values[k] = value_and_gradient(q[k], data, gradients[k])


@entry(lambda: nb.void(types.METRIC_OF_MODEL, types.MATRIX, types.DATA, types.STACK), "matrices of many positions")
def fill_matrices(matrix: Any, q: Any, data: Any, out: Any) -> None:
    """Compute the Fisher metric or the Hessian of each row; rows that are not finite are skipped."""
    for k in range(q.shape[0]):
        if is_finite(q[k]):
            out[k] = 0.0
            matrix(q[k], data, out[k])


@entry(
    lambda: nb.void(types.CONTRACTION, types.MATRIX, types.DATA, types.STACK, types.MATRIX), "traces of many positions"
)
def fill_traces(hessian_contraction: Any, q: Any, data: Any, M: Any, out: Any) -> None:
    """Compute the contraction of each row with its own M; rows that are not finite are skipped."""
    for k in range(q.shape[0]):
        if is_finite(q[k]):
            out[k] = 0.0
            hessian_contraction(q[k], data, M[k], out[k])


@entry(
    lambda: nb.void(types.CHANGE, types.MATRIX, types.DATA, nb.int64[::1], types.MATRIX, types.VECTOR),
    "changes of the log density of many positions",
)
def fill_changes(change: Any, q: Any, data: Any, j: Any, target: Any, changes: Any) -> None:
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
        return None if self.model._functions["log_density_change"] is None else self._changes

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
        return self._traces(("hessian", "hessian_contraction"), q, M)

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
        return self._traces(("fisher", "fisher_contraction"), q, M)

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

    def _traces(self, keys: tuple, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        rows, matrices = self._rows(q), np.array(M, dtype=float)
        if matrices.shape != (*q.shape, self.dim):
            raise ShapeError(f"M must have shape {(*q.shape, self.dim)} in {keys[1]}; got {matrices.shape}.")
        f = self._reading(keys)
        compile_pointer(
            f.hessian_contraction, types.CONTRACTION.signature, f"the third derivative of the model {self.model.name}"
        )
        out = np.full(rows.shape, np.nan)
        fill_traces(f.hessian_contraction, rows, f.data, matrices.reshape(len(rows), self.dim, self.dim), out)
        return out.reshape(q.shape)

    def _reading(self, keys: tuple) -> types.Model:
        return types.Model(*self.model.core.tuple_reading(keys, "an array implementation"))

    def _rows(self, q: np.ndarray) -> np.ndarray:
        rows = np.array(q, dtype=float, order="C")  # a copy
        if rows.shape[-1:] != (self.dim,):
            raise ShapeError(f"q must have shape (..., {self.dim}) for {self.model.name!r}; got {rows.shape}.")
        return rows.reshape(-1, self.dim)
