"""A model's functions on arrays of positions (..., d): its compiled ones, called for each of them.

What the texts on arrays (:mod:`refhmc.arrays`) ask of a model; any object with these methods serves them, for instance one
written in another namespace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.core.binding import DERIVATIVES
from refhmc.models.base import Model


class ModelOnArrays:
    """``ModelOnArrays(model)``, on NumPy arrays. Where a position is not finite, all is NaN.

    Raises MissingDerivativeError for a derivative that the model lacks.
    """

    def __init__(self, model: Model):
        self.model, self.dim, self.discontinuous = model, model.dim, model.discontinuous

    def log_density(self, q: np.ndarray) -> np.ndarray:
        """L(q), (...)"""
        rows = q.reshape(-1, self.dim)
        L = [self.model.log_density(row) if np.isfinite(row).all() else np.nan for row in rows]
        return np.array(L).reshape(q.shape[:-1])

    def gradient(self, q: np.ndarray) -> np.ndarray:
        """dL/dq, (..., d)"""
        return self._each("gradient", q)

    def hessian(self, q: np.ndarray) -> np.ndarray:
        """Second derivatives of L, (..., d, d)"""
        return self._each("hessian", q)

    def trace(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """sum_ij M_ij d hessian_ij / dq, (..., d)"""
        return self._each("trace", q, M)

    def fisher(self, q: np.ndarray) -> np.ndarray:
        """Fisher information plus prior precision, (..., d, d)"""
        return self._each("fisher", q)

    def fisher_trace(self, q: np.ndarray, M: np.ndarray) -> np.ndarray:
        """sum_ij M_ij d fisher_ij / dq, (..., d)"""
        return self._each("fisher_trace", q, M)

    def fisher_bands(self, q: np.ndarray) -> np.ndarray:
        """Diagonal and off-diagonal of a tridiagonal ``fisher``, (..., 2, d), the second ending in 0"""
        return self._fill(self.model._functions["fisher_bands"], (2, self.dim), q)

    def _each(self, key: str, q: np.ndarray, *M: np.ndarray) -> np.ndarray:
        model = self.model
        model.require(key, f"ModelOnArrays.{key}()")
        if model._functions[key] is not None:
            function = model.core.in_place(key)
        else:  # a trace by way of the full tensor

            def function(q: np.ndarray, data: Any, M: np.ndarray, out: np.ndarray) -> None:
                out[:] = model._derivative(key, q, M)

        return self._fill(function, (self.dim,) * DERIVATIVES[key][1], q, *M)

    def _fill(self, function: Callable, shape: tuple, q: np.ndarray, *M: np.ndarray) -> np.ndarray:
        rows = np.array(q).reshape(-1, self.dim)  # copies: the function may write to them
        matrices = [np.array(m).reshape(-1, self.dim, self.dim) for m in M]
        answers, data = np.zeros((len(rows), *shape)), self.model.core.data
        for k, row in enumerate(rows):
            if np.isfinite(row).all():
                function(row, data, *(m[k] for m in matrices), answers[k])
            else:
                answers[k] = np.nan
        return answers.reshape(*q.shape[:-1], *shape)
