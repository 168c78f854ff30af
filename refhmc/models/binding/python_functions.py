"""The functions of a model called as Python, with checks of what they return and a log of the positions where they fail."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import numpy as np

from refhmc.core.failures import FailureLog
from refhmc.models.binding.functions import DERIVATIVES, SOURCE, Functions, argument_count
from refhmc.models.binding.returned import as_array, as_float, in_words, named


class PythonFunctions:
    """A model's functions as Python; if one raises an ArithmeticError, the log density is -inf and derivatives are NaN."""

    def __init__(self, functions: Functions, given_data: object, dim: int) -> None:
        self.functions, self.given_data, self.dim = functions, given_data, dim
        self.data = np.zeros((1, 1))  # the data of the functions in the core's protocol
        self.last_position: dict[int, np.ndarray] = {}  # by thread, for the report of an exception
        self._failures: dict[int, FailureLog] = {}  # by thread

    def failures(self) -> FailureLog:
        """Return the failures of this thread's evaluations; :meth:`begin_failures` starts a new log."""
        return self._failures.get(threading.get_ident()) or self.begin_failures()

    def begin_failures(self, control: np.record | None = None) -> FailureLog:
        """Start an empty log of failures for this thread, whose iterations `control` counts."""
        self._failures[threading.get_ident()] = log = FailureLog(control)
        return log

    def in_place(self, key: str) -> Callable:
        """Return ``f(q, data, [M,] out)`` for a derivative; it may overwrite q and M."""
        function: Callable = getattr(self.functions, key)
        before_out, _ = DERIVATIVES[key]
        in_place = argument_count(function) > before_out

        def call(q: np.ndarray, data: np.ndarray, *rest: np.ndarray) -> None:
            *M, out = rest
            try:
                if in_place:
                    out[:] = 0.0
                    function(q, self.given_data, *M, out)
                else:
                    out[:] = as_array(function(q, self.given_data, *M), out.shape, key)
            except ArithmeticError as error:
                self.failures().record(q, in_words(error))
                out[:] = np.nan

        return call

    def derivative(self, key: str, q: np.ndarray, *M: np.ndarray) -> np.ndarray:
        """Return a derivative, which the model must have, at q (d,), contracted with M (d, d) if it takes it."""
        if getattr(self.functions, key) is None:
            return self._from_source(key, q, *M)
        out = np.zeros((self.dim,) * DERIVATIVES[key][1])
        with named(key, out.shape):
            self.in_place(key)(q.copy(), self.data, *(m.copy() for m in M), out)
        return out

    def _from_source(self, key: str, q: np.ndarray, *M: np.ndarray) -> np.ndarray:
        """Return a contraction from the full tensor, or the full tensor from contractions with unit matrices."""
        if M:
            return np.einsum("ij,ijk->k", M[0], self.derivative(SOURCE[key], q))
        out = np.empty((self.dim,) * 3)
        for i, j in itertools.combinations_with_replacement(range(self.dim), 2):
            unit = np.zeros((self.dim, self.dim))
            unit[i, j] = 1.0
            out[i, j] = out[j, i] = self.derivative(SOURCE[key], q, unit)
        return out

    def python_log_density(self, q: np.ndarray) -> float:
        """Return the log density at q, which the function may overwrite."""
        try:
            return as_float(self.functions.log_density(q, self.given_data), "log_density")
        except ArithmeticError as error:
            self.failures().record(q, in_words(error))
            return -np.inf

    # -- called by trampolines ----------------------------------------------------------------------------------

    def called_value_and_gradient(self, q: np.ndarray, out: np.ndarray) -> float:
        """Write the gradient to `out` and return the log density."""
        self.last_position[threading.get_ident()] = q.copy()
        both = self.functions.value_and_gradient
        if both is None:
            self.in_place("gradient")(q.copy(), self.data, out)
            return self.python_log_density(q.copy())
        out[:] = 0.0
        try:
            return as_float(both(q.copy(), self.given_data, out), "value_and_gradient")
        except ArithmeticError as error:
            self.failures().record(q, in_words(error))
            out[:] = np.nan
            return -np.inf

    def called_derivative(self, key: int, q: np.ndarray, out: np.ndarray, *M: np.ndarray) -> None:
        """Write a derivative to `out`; `key` is its index in ``DERIVATIVES``."""
        self.last_position[threading.get_ident()] = q.copy()
        out[...] = self.derivative(list(DERIVATIVES)[key], q, *M)

    def called_change(self, q: np.ndarray, j: int, new_value: float, present: float) -> float:
        """Return the change of the log density, in the core's protocol."""
        self.last_position[threading.get_ident()] = q.copy()
        function = self.functions.log_density_change
        if function is None:
            q = q.copy()
            if j >= 0:
                q[j] = new_value
            return self.python_log_density(q) - present
        data = (self.given_data,) if argument_count(function) == 4 else ()
        return as_float(function(q.copy(), *data, j, new_value), "log_density_change")
