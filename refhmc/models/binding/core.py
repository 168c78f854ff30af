"""The functions of a model as the compiled core calls them: typed pointers and one matrix of data."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable

import numba
import numpy as np

from refhmc.compile.compiled import silence_experimental
from refhmc.core import types
from refhmc.errors import PythonModelWarning, _see
from refhmc.models.binding import adapters, trampolines
from refhmc.models.binding.adapters import CANNOT_COMPILE, SameParts, compiled_user_function, is_own
from refhmc.models.binding.functions import DERIVATIVES, FULL_TENSOR, Functions, argument_count, made
from refhmc.models.binding.packing import pack
from refhmc.models.binding.python_functions import PythonFunctions
from refhmc.models.binding.returned import first_words, named
from refhmc.models.binding.trampolines import data_for_trampolines, no_change, no_contraction, no_metric


class Core(PythonFunctions):
    """A model's functions in the core's protocol; kernels take ``tuple``.

    Parameters
    ----------
    functions : Functions
        The functions of the model.
    data : object
        The data as the model has them.
    dim : int
        Number of coordinates.
    name : str
        Name of the model in messages.
    to_compile : Functions, optional
        The functions that Numba compiles. Defaults to `functions`.
    in_python : str, default ""
        Why the functions must run as Python, if they must.
    scratch_rows : int, default 0
        Number of rows that follow the data in the copy of each chain.

    Attributes
    ----------
    data : ndarray
        The data as one matrix.
    own : bool
        Whether the functions are refhmc's own, which need no adapter.
    why_python : str or None
        Why the functions run as Python, or None if they are compiled.
    tuple : tuple
        Data and pointers of a model without further derivatives (:mod:`refhmc.core.types`).
    """

    def __init__(
        self,
        functions: Functions,
        data: object,
        *,
        dim: int,
        name: str,
        to_compile: Functions | None = None,
        in_python: str = "",
        scratch_rows: int = 0,
    ) -> None:
        silence_experimental()
        super().__init__(functions, data, dim)
        self.name, self.scratch_rows = name, scratch_rows
        self.to_compile = functions if to_compile is None else to_compile
        self.why_python: str | None = in_python or None
        self._unpack: Callable | None = None
        self._adapted: dict[str | tuple[str, str], Callable] = {}
        as_written = self.to_compile.log_density is functions.log_density
        self.own = not in_python and as_written and is_own(functions.log_density)
        # An array shared by another process may be read-only, which is a different type for Numba.
        if self.own:
            self.data = np.require(np.zeros((1, 0)) if data is None else data, requirements="W")
        elif not in_python:
            packed = pack(data)
            if packed is None:
                self.why_python = f"data of type {type(data).__name__} cannot be passed to compiled code"
            else:
                self.data, self._unpack = np.require(packed[0], requirements="W"), packed[1]
            if numba.config.DISABLE_JIT:
                self.why_python = "NUMBA_DISABLE_JIT is set"
        self._log_density, value_and_gradient = self._hot_functions()
        if self.why_python is not None:
            if not numba.config.DISABLE_JIT and not in_python:
                self._warn("as Python", self.why_python, stacklevel=5)
            self.data = data_for_trampolines(self)
        self.tuple = (self.data, value_and_gradient, no_metric, no_contraction, no_change)
        self._tuples: dict[tuple, tuple] = {(None, None): self.tuple}

    def _warn(self, runs: str, why: str, stacklevel: int = 3) -> None:
        warnings.warn(
            f"Model {self.name!r} runs {runs} ({why}). The draws are the same, but each call costs a few microseconds more. "
            "Write the functions so that Numba compiles them, or give a reason with in_python=... to silence this warning. "
            f"{_see('python-models')}",
            PythonModelWarning,
            stacklevel=stacklevel,
        )

    # -- tuples of pointers -------------------------------------------------------------------------------------

    @property
    def has_diagonals(self) -> bool:
        """Whether there is a compiled function for the diagonal of the Hessian."""
        return self.own and self.functions.hessian_diagonal is not None

    def tuple_reading(self, reads: tuple[str | None, str | None]) -> tuple:
        """Return ``tuple`` with these two derivatives, None for one that is not needed.

        If one of them cannot be compiled, all are called as Python.
        """
        if reads not in self._tuples:
            self._tuples[reads] = self._make_tuple(*reads)
        return self._tuples[reads]

    def _make_tuple(self, metric: str | None, hessian_contraction: str | None) -> tuple:
        data, value_and_gradient, _, _, _ = self.tuple
        if self.why_python is None:
            try:
                first = no_metric if metric is None else self.pointer(metric)
                second = no_contraction if hessian_contraction is None else self.pointer(hessian_contraction)
                return (data, value_and_gradient, first, second, no_change)
            except CANNOT_COMPILE as error:
                why = f"Numba could not compile {metric} or {hessian_contraction}: {first_words(error)}"
                self._warn("as Python on this metric", why)
        data = data_for_trampolines(self, metric, hessian_contraction)
        value_and_gradient = trampolines.python_value_and_gradient
        return (data, value_and_gradient, trampolines.python_metric, trampolines.python_contraction, no_change)

    @functools.cached_property
    def tuple_for_changes(self) -> tuple:
        """``tuple`` with the change of the log density for DHMC."""
        data, value_and_gradient, _, _, _ = self.tuple
        if self.why_python is None:
            try:
                return (data, value_and_gradient, no_metric, no_contraction, self._compiled_change())
            except CANNOT_COMPILE as error:
                why = f"Numba could not compile log_density_change: {first_words(error)}"
                self._warn("as Python in DHMC", why)
        value_and_gradient = trampolines.python_value_and_gradient
        return (data_for_trampolines(self), value_and_gradient, no_metric, no_contraction, trampolines.python_change)

    def with_room(self, pointers: tuple) -> tuple:
        """Return a model's tuple for one chain, with its own data followed by ``scratch_rows`` rows, if there are any."""
        if not (self.own and self.scratch_rows):
            return pointers
        data = np.vstack([pointers[0], np.zeros((self.scratch_rows, pointers[0].shape[1]))])
        return (data, *pointers[1:])

    # -- compiled functions -------------------------------------------------------------------------------------

    def _hot_functions(self) -> tuple[Callable, Callable]:
        """Return the log density, and the log density with the gradient."""
        log_density, both = self.functions.log_density, self.functions.value_and_gradient
        if self.own:
            return log_density, both or adapters.both(made(log_density), made(self.functions.gradient))
        if self.why_python is None:
            try:
                compiled = self._compiled("log_density")
                if both is not None:
                    return compiled, adapters.on_a_copy(self._compiled("value_and_gradient"), contracts=False)
                return compiled, adapters.both_on_copies(compiled, self._compiled("gradient"))
            except CANNOT_COMPILE as error:
                self.why_python = f"Numba could not compile its log density and gradient: {first_words(error)}"
        return lambda q, data: self.python_log_density(q), trampolines.python_value_and_gradient

    def _compiled(self, key: str) -> Callable:
        """Return a user's function, compiled; it may overwrite its position."""
        if ("compiled", key) not in self._adapted:
            function = SameParts(getattr(self.to_compile, key))
            self._adapted[("compiled", key)] = compiled_user_function(key, function, self._unpack)
        return self._adapted[("compiled", key)]

    def pointer(self, key: str) -> Callable:
        """Return a compiled derivative that does not change its arguments. Raises NumbaError."""
        function = getattr(self.functions, key)
        if function is not None and self.own:
            return made(function)
        if ("pointer", key) not in self._adapted:
            if function is None:
                adapted = adapters.contracted(self.pointer(FULL_TENSOR[key]))
            else:
                adapted = adapters.on_a_copy(self._compiled(key), contracts=DERIVATIVES[key][0] == 3)
            self._adapted[("pointer", key)] = adapted
        return self._adapted[("pointer", key)]

    def _compiled_change(self) -> Callable:
        function = self.functions.log_density_change
        if function is not None:
            unpack = None if self.own else self._unpack
            adapted = adapters.change_from_function(SameParts(function), unpack, argument_count(function) == 4)
        elif self.own:
            adapted = adapters.change_from_density(made(self._log_density))
        else:
            adapted = adapters.change_from_density(adapters.density_on_a_copy(self._log_density))
        if not numba.config.DISABLE_JIT:
            adapted.compile(types.CHANGE.signature)
        return adapted

    def in_place(self, key: str) -> Callable:
        """Return ``f(q, data, [M,] out)`` for a derivative, compiled if possible; a user's may overwrite q and M."""
        if self.own:
            return getattr(self.functions, key)
        if key not in self._adapted:
            self._adapted[key] = super().in_place(key)
            if self.why_python is None:
                with contextlib.suppress(*CANNOT_COMPILE):
                    self._adapted[key] = self._compiled(key)
        return self._adapted[key]

    def as_given(self, key: str) -> Callable:
        """Return the user's function ``f(q, data, ...)`` in the core's protocol, given q itself, which it may overwrite."""
        if key == "log_density":
            return self._log_density
        return self._compiled(key) if key == "value_and_gradient" else self.in_place(key)

    # -- evaluation ---------------------------------------------------------------------------------------------

    def log_density(self, q: np.ndarray) -> float:
        """Return the log density at q (d,)."""
        return self._log_density(q.copy(), self.data)

    def value_and_gradient(self, q: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the log density and the gradient at q (d,)."""
        out = np.zeros(self.dim)
        with named("gradient", out.shape):
            return float(self.tuple[1](q, self.data, out)), out

    def log_density_change(self, q: np.ndarray, j: int, new_value: float) -> float:
        """Return L(q with q[j] = new_value) - L(q). `q` may be modified, and is restored."""
        data, _, _, _, change = self.tuple_for_changes
        full = self.functions.log_density_change is None
        return float(change(q, data, j, float(new_value), self.log_density(q) if full else 0.0))
