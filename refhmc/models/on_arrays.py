"""A model's functions on arrays of positions (..., d): what the texts on arrays (:mod:`refhmc.array_api`) ask of a model.

Either its compiled functions, called for each position (:class:`ModelOnArrays`, of every model, on NumPy); or its own text on
arrays (:class:`TextOnArrays`, of some models, on any namespace of the array API, with the model's data there):
:meth:`refhmc.Model.on_arrays`. Any object with these methods serves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types as nb

from refhmc.core import types
from refhmc.core.compiled import compile_pointer, entry, jit
from refhmc.errors import MissingDerivativeError, ShapeError
from refhmc.numerics.batched import Array, namespace, transpose

if TYPE_CHECKING:
    from refhmc.models.base import Model

# The models that have a text of their own, by their constructors; and the models made of them.
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


class TextOnArrays:
    """A model's text on arrays; each model says ``value_and_gradient`` and those of the other functions that it has.

    Positions q are (..., d), nothing is written to them, and the dtype of the answers is theirs. No position touches another.
    Where one is not finite its log density is NaN or -inf, its gradient anything, and its matrices and traces are NaN.

    ``parts``: the texts of a split model's parts.
    """

    name = "model"
    dim: int
    discontinuous = ()
    parts: Sequence[TextOnArrays] = ()

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        """L(q), (...), and dL/dq, (..., d)"""
        raise NotImplementedError

    def log_density(self, q: Array) -> Array:
        """L(q), (...)"""
        return self.value_and_gradient(q)[0]

    def gradient(self, q: Array) -> Array:
        """dL/dq, (..., d)"""
        return self.value_and_gradient(q)[1]

    def hessian(self, q: Array) -> Array:
        """Second derivatives of L, (..., d, d)"""
        raise self.missing("hessian")

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        """sum_ij M_ij d hessian_ij / dq, (..., d), for M (..., d, d)"""
        raise self.missing("hessian_contraction")

    def fisher(self, q: Array) -> Array:
        """Fisher information plus prior precision, (..., d, d)"""
        raise self.missing("fisher")

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        """sum_ij M_ij d fisher_ij / dq, (..., d), for M (..., d, d)"""
        raise self.missing("fisher_contraction")

    def fisher_bands(self, q: Array) -> Array:
        """Diagonal and off-diagonal of a tridiagonal ``fisher``, (..., 2, d), the second ending in 0"""
        raise self.missing("fisher_bands")

    def has(self, derivative: str) -> bool:
        """Whether the text has that function."""
        return getattr(type(self), derivative) is not getattr(TextOnArrays, derivative)

    def missing(self, derivative: str) -> MissingDerivativeError:
        return MissingDerivativeError(f"the text on arrays of {self.name!r} has no {derivative}")


class SumOnArrays(TextOnArrays):
    """A split model, L = sum_m L_m, from the texts of its parts."""

    def __init__(self, parts: Sequence[TextOnArrays]) -> None:
        self.name, self.dim, self.parts = "a split model", parts[0].dim, tuple(parts)

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        L, gradient = self.parts[0].value_and_gradient(q)
        for part in self.parts[1:]:
            more, slope = part.value_and_gradient(q)
            L, gradient = L + more, gradient + slope
        return L, gradient


def keep_what_is_freed() -> None:
    """Have the process keep memory that is freed, up to 31 MB at a time, and not give it back to the system.

    The GNU C library gives arrays back as long as it has not seen a larger one freed. Each new array is then mapped afresh
    when it is written to: 1.5 ms for a gradient of 10,401 weights on 400 rows, .7 ms without; the Hessians of 1,000 funnels
    in ten dimensions 3.0 ms, .5 without. Elsewhere this does nothing.
    """
    np.empty(31 * 2**20, dtype=np.uint8)


def in_dtype_of(q: Array, *data: Array) -> tuple:
    """The arrays of a model's data in the precision of a position."""
    return tuple(namespace(q).astype(x, q.dtype, copy=False) for x in data)


def where_finite(q: Array, x: Array, axes: int) -> Array:
    """x, of that many ``axes`` after the leading ones, where the position is finite; else NaN."""
    xp = namespace(q)
    finite = xp.all(xp.isfinite(q), axis=-1)
    return xp.where(finite[(..., *(None,) * axes)], x, xp.nan)


def matrix(rows: Sequence[Sequence[Array]]) -> Array:
    """(..., n, m) from its entries, arrays (...) or, beside such, numbers."""
    arrays = [x for row in rows for x in row if hasattr(x, "dtype")]
    xp = namespace(arrays[0])
    like = xp.zeros_like(xp.broadcast_arrays(*arrays)[0])
    return xp.stack([xp.stack([x + like for x in row], axis=-1) for row in rows], axis=-2)


def blocks(A: Array, B: Array, C: Array) -> Array:
    """[A, B; B', C] of blocks with the same leading axes."""
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
    """L and dL/dq of each row of ``q``; rows that are not finite are left alone."""
    for k in range(q.shape[0]):
        if is_finite(q[k]):
            values[k] = value_and_gradient(q[k], data, gradients[k])


@entry(lambda: nb.void(types.METRIC_OF_MODEL, types.MATRIX, types.DATA, types.STACK), "matrices of many positions")
def fill_matrices(matrix: Any, q: Any, data: Any, out: Any) -> None:
    """Fisher metrics, or Hessians, likewise."""
    for k in range(q.shape[0]):
        if is_finite(q[k]):
            out[k] = 0.0
            matrix(q[k], data, out[k])


@entry(
    lambda: nb.void(types.CONTRACTION, types.MATRIX, types.DATA, types.STACK, types.MATRIX), "traces of many positions"
)
def fill_traces(hessian_contraction: Any, q: Any, data: Any, M: Any, out: Any) -> None:
    """Contractions with the M of each, likewise."""
    for k in range(q.shape[0]):
        if is_finite(q[k]):
            out[k] = 0.0
            hessian_contraction(q[k], data, M[k], out[k])


@entry(
    lambda: nb.void(types.CHANGE, types.MATRIX, types.DATA, nb.int64[::1], types.MATRIX, types.VECTOR),
    "changes of the log density of many positions",
)
def fill_changes(change: Any, q: Any, data: Any, j: Any, target: Any, changes: Any) -> None:
    """Of each row's coordinate j to its place in the target, likewise."""
    for k in range(q.shape[0]):
        if is_finite(q[k]) and math.isfinite(target[k, j[k]]):
            changes[k] = change(q[k], data, j[k], target[k, j[k]], 0.0)


class ModelOnArrays:
    """``ModelOnArrays(model)``, on NumPy arrays (..., d). Where a position is not finite, all is NaN.

    Raises ShapeError on other shapes, MissingDerivativeError for a derivative that the model lacks.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.dim, self.discontinuous = model, model.dim, model.discontinuous

    @property
    def parts(self) -> list[ModelOnArrays]:
        """Those of a split model."""
        return [ModelOnArrays(part) for part in getattr(self.model, "parts", ())]

    def value_and_gradient(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """L(q), (...), and dL/dq, (..., d)"""
        return self._values(q)

    def log_density(self, q: np.ndarray) -> np.ndarray:
        """L(q), (...)"""
        return self._values(q)[0]

    def gradient(self, q: np.ndarray) -> np.ndarray:
        """dL/dq, (..., d)"""
        return self._values(q)[1]

    @property
    def log_density_change(self) -> Callable | None:
        """(q, j, target) -> L(q with target_j for q_j) - L(q), (...), for a coordinate j (...) of each; None where the model
        has L alone."""
        return None if self.model._functions["log_density_change"] is None else self._changes

    def hessian(self, q: np.ndarray) -> np.ndarray:
        """Second derivatives of L, (..., d, d)"""
        return self._matrices("hessian", q, self.dim)

    def hessian_contraction(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """sum_ij M_ij d hessian_ij / dq, (..., d), for M (..., d, d)"""
        return self._traces(("hessian", "hessian_contraction"), q, M)

    def fisher(self, q: np.ndarray) -> np.ndarray:
        """Fisher information plus prior precision, (..., d, d)"""
        return self._matrices("fisher", q, self.dim)

    def fisher_contraction(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """sum_ij M_ij d fisher_ij / dq, (..., d), for M (..., d, d)"""
        return self._traces(("fisher", "fisher_contraction"), q, M)

    def fisher_bands(self, q: np.ndarray) -> np.ndarray:
        """Diagonal and off-diagonal of a tridiagonal ``fisher``, (..., 2, d), the second ending in 0"""
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
            raise ShapeError(f"M of {keys[1]}: expected {(*q.shape, self.dim)}, got {matrices.shape}")
        f = self._reading(keys)
        compile_pointer(
            f.hessian_contraction, types.CONTRACTION.signature, f"the third derivative of the model {self.model.name}"
        )
        out = np.full(rows.shape, np.nan)
        fill_traces(f.hessian_contraction, rows, f.data, matrices.reshape(len(rows), self.dim, self.dim), out)
        return out.reshape(q.shape)

    def _reading(self, keys: tuple) -> types.Model:
        return types.Model(*self.model.core.tuple_reading(keys, "a text on arrays"))

    def _rows(self, q: np.ndarray) -> np.ndarray:
        rows = np.array(q, dtype=float, order="C")  # a copy
        if rows.shape[-1:] != (self.dim,):
            raise ShapeError(f"positions of {self.model.name!r}: expected (..., {self.dim}), got {rows.shape}")
        return rows.reshape(-1, self.dim)
