"""Compiled functions in the protocol of the core, built from a user's functions.

Code that is compiled from a user's functions is shared by all functions that are equal part for part
(:mod:`refhmc.compile.identity`). It is shared in this process and, if all parts can be inspected, in later ones. (Numba's own
cache does not notice edits of their callees.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types as nb

from refhmc.compile.compiled import forget, jit_anew, jit_of_user, logged, returned_type, silence_experimental
from refhmc.compile.identity import identity_of, identity_with
from refhmc.compile.numba_internals import Dispatcher, NumbaError, UnsupportedBytecodeError
from refhmc.compile.user_text import WithoutData, compilable
from refhmc.core import types
from refhmc.errors import ModelError
from refhmc.models.binding.functions import DERIVATIVES, argument_count
from refhmc.models.binding.packing import shared
from refhmc.models.binding.returned import copy_array

CANNOT_COMPILE = (NumbaError, UnsupportedBytecodeError)
NUMERIC = (nb.Number, nb.Boolean, nb.Array, nb.Sequence)


def is_own(function: Callable | None) -> bool:
    """Return whether a function is of refhmc: compiled, in place, on packed data; those of ``refhmc.check`` are not."""
    text = getattr(function, "py_func", function)
    module = getattr(text, "__module__", None) or ""
    elsewhere = ("refhmc.check.", "refhmc.models.binding.")  # functions of a user, and adapters of these
    return module.startswith("refhmc.") and not module.startswith(elsewhere) and not isinstance(function, WithoutData)


class SameParts:
    """A function that equals those with the same parts."""

    def __init__(self, function: Callable) -> None:
        self.function, self.identity = function, identity_of((function,))
        self._parts: object = self.identity or object()

    def __hash__(self) -> int:
        return hash(self._parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameParts) and self._parts == other._parts


def compiled_alone(function: Callable) -> Callable:
    """Return a user's function, with its callees, for the caller's types; one of the position alone also takes data."""
    if not isinstance(function, WithoutData):
        text = compilable(function)
        return text if hasattr(text, "py_func") else jit_anew(text)
    f = compiled_alone(function.function)
    forms: dict[int, Callable] = {
        1: lambda q, data: f(q),
        2: lambda q, data, x: f(q, x),
        3: lambda q, data, M, out: f(q, M, out),
    }
    return jit_anew(forms[argument_count(function.function)])


def kept(text: Callable, *functions: Callable) -> Dispatcher:
    """Return `text`, whose closure contains compiled `functions`, compiled, and cached if their identity is known."""
    return jit_of_user(text, functions, identity_with(text, functions))


@shared
def compiled_user_function(key: str, same: SameParts, unpack: Callable) -> Callable:
    """Return the user's ``f(q, data)`` or ``f(q, data, out)`` in the core's protocol. Raises NumbaError.

    It gets q itself, which it may overwrite: :func:`on_a_copy`. ``out`` contains zeros.
    """
    text: Callable
    function = same.function
    silence_experimental()
    f: Any = compiled_alone(function)
    identity = None if same.identity is None else identity_of((same.identity, unpack))
    if key == "log_density":
        adapted = jit_of_user(lambda q, data: f(q, unpack(data)), (f, unpack), identity)
        with logged("the log density of a user's model"):
            adapted.compile(nb.float64(types.VECTOR, types.DATA))
        return adapted
    before_out, axes = (2, 1) if key == "value_and_gradient" else DERIVATIVES[key]
    in_place = argument_count(function) > before_out
    out = {1: types.VECTOR, 2: types.MATRIX, 3: types.STACK}[axes]
    arguments = (types.VECTOR, types.DATA, *([types.MATRIX] if before_out == 3 else []), out)
    if before_out == 3 and in_place:

        def text(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
            out[:] = 0.0
            f(q, unpack(data), M, out)

    elif before_out == 3:

        def text(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
            copy_array(out, f(q, unpack(data), M))

    elif in_place:

        def text(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
            out[:] = 0.0
            return f(q, unpack(data), out)

    else:

        def text(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
            copy_array(out, f(q, unpack(data)))

    adapted = jit_of_user(text, (f, unpack), identity)
    signature = (nb.float64 if key == "value_and_gradient" else nb.void)(*arguments)
    try:
        with logged(f"the {key} of a user's model"):
            adapted.compile(signature)
    finally:
        if not in_place:
            returned = returned_type(f)  # None if loaded from the cache
            if isinstance(returned, NUMERIC) and getattr(returned, "ndim", 0) != axes:
                forget(adapted, signature)
                raise ModelError(f"{key} must return an array of {axes} axes; it returns {returned}.")
    return adapted


@shared
def on_a_copy(function: Callable, contracts: bool) -> Callable:
    """Return a user's derivative in the core's protocol on copies of the position, and of M if it `contracts`."""
    if contracts:
        return kept(lambda q, data, M, out: function(q.copy(), data, M.copy(), out), function)
    return kept(lambda q, data, out: function(q.copy(), data, out), function)


@jit_anew
def contract(M: np.ndarray, T: np.ndarray, out: np.ndarray) -> None:
    """Add sum_ab M_ab T_abc to out_c."""
    for a in range(T.shape[0]):
        for b in range(T.shape[0]):
            for c in range(T.shape[0]):
                out[c] += M[a, b] * T[a, b, c]


@shared
def contracted(third_derivative: Callable) -> Callable:
    """Return ``hessian_contraction`` from the full tensor: out[k] = sum_ij M[i, j] T[i, j, k]."""

    def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
        d = q.shape[0]
        T = np.zeros((d, d, d))
        third_derivative(q, data, T)
        out[:] = 0.0
        contract(M, T, out)

    return kept(hessian_contraction, third_derivative)


@shared
def both(log_density: Callable, gradient: Callable) -> Callable:
    """Return two functions of a built-in model as one."""

    def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        gradient(q, data, out)
        return log_density(q, data)

    return kept(value_and_gradient, log_density, gradient)


@shared
def both_on_copies(log_density: Callable, gradient: Callable) -> Callable:
    """Return two functions of a user as one, each on a copy of the position."""

    def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        copy_array(out, q)
        value = log_density(out, data)
        gradient(q.copy(), data, out)
        return value

    return kept(value_and_gradient, log_density, gradient)


@shared
def density_on_a_copy(log_density: Callable) -> Callable:
    """Return a user's log density on a copy of the position."""
    return kept(lambda q, data: log_density(q.copy(), data), log_density)


@shared
def change_from_function(same: SameParts, unpack: Any, takes_data: bool) -> Dispatcher:
    """Return ``log_density_change`` in the core's protocol."""
    f = compiled_alone(same.function)
    if unpack is None and takes_data:

        def change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, log_density: float) -> float:
            return f(q, data, j, new_value)

    elif takes_data:

        def change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, log_density: float) -> float:
            return f(q.copy(), unpack(data), j, new_value)

    else:

        def change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, log_density: float) -> float:
            return f(q.copy(), j, new_value)

    identity = None if same.identity is None else identity_of((same.identity, unpack))
    return jit_of_user(change, (f, unpack), identity)


@shared
def change_from_density(log_density: Callable) -> Dispatcher:
    """Return the same from the full density; j = -1 selects the density at q itself minus the given one."""

    def change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, present: float) -> float:
        if j < 0:
            return log_density(q, data) - present
        before = q[j]
        q[j] = new_value
        difference = log_density(q, data) - present
        q[j] = before
        return difference

    return kept(change, log_density)
