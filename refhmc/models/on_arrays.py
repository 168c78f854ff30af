"""Array implementations of models, for arrays of positions (..., d) in any namespace of the array API.

:meth:`refhmc.Model.on_arrays` returns one, with the data of the model in the namespace, for the models that have one. For
every other model, :class:`refhmc.array_api.ModelOnArrays` calls the compiled functions. Any object with these methods can be
used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refhmc.errors import MissingDerivativeError
from refhmc.numerics.batched import Array, namespace, transpose

# Constructors of the models that have an array implementation, and the models composed of these.
WITH_TEXT = (
    "Gaussian",
    "Banana",
    "Funnel",
    "LogisticRegression",
    "EightSchools",
    "VaryingIntercepts",
    "Horseshoe",
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
    fisher_levels: np.ndarray | None = None
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
