"""Models of constrained values: the user's functions, and the chain rule of the transforms around them.

Each function of the coordinates exists twice, from one source (:func:`in_coordinates`): as Python, around the user's
functions, and for Numba, around the compiled functions. The core uses the second if it compiles, and otherwise the first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.compiled import jit_anew
from refhmc.core.named_axes import dims_of
from refhmc.core.point import copy_row
from refhmc.errors import ModelError
from refhmc.models.base import Model, arguments_for
from refhmc.models.binding.adapters import compiled_alone, contract
from refhmc.models.binding.functions import Functions, argument_count, check_arguments, without_data
from refhmc.models.binding.packing import as_named, gather, taker
from refhmc.models.binding.returned import as_array, as_float, copy_array
from refhmc.numerics.constraining import (
    ROWS,
    contraction_in_u,
    forward,
    gradient_in_u,
    hessian_in_u,
    pushed,
    tensor_contraction_in_u,
    tensor_in_u,
)
from refhmc.parameters.coordinates import Coordinates

# Options of refhmc.Model that are rejected: those that follow from the parameters, and those of models of coordinates.
FOLLOW = ("dim", "names", "constrain", "parents")
NOT_USED = (
    *("fisher_derivative", "hessian_diagonal", "diagonal_contraction", "fisher_bands", "fisher_levels", "scratch_rows"),
    *("bordered_fisher", "bordered_contraction", "fisher_border"),
    *("log_density_change", "conditionals", "on_arrays", "n_rows", "part"),
)


# Functions that the chain rule requires next to another one.
REQUIRES = {"hessian_contraction": "hessian", "third_derivative": "hessian", "fisher_contraction": "fisher"}
ARRAYS = ("hessian", "third_derivative", "fisher")  # these return arrays; the others return entries by name


class FunctionsOfValues(NamedTuple):
    """The user's functions of the values, None if one is not given."""

    log_density: Callable
    gradient: Callable
    value_and_gradient: Callable | None = None
    hessian: Callable | None = None
    third_derivative: Callable | None = None
    hessian_contraction: Callable | None = None
    fisher: Callable | None = None
    fisher_contraction: Callable | None = None


class ParametersModel(Model):
    """A model created by :meth:`refhmc.Parameters.model`; its attribute ``parameters`` has the parameters."""

    def __init__(
        self, parameters: Coordinates, functions: FunctionsOfValues, data: object, options: Mapping[str, Any]
    ) -> None:
        for key, function in functions._asdict().items():
            if not callable(function) and (function is not None or key in ("log_density", "gradient")):
                raise ModelError(f"{key} must be a function of (values, data); got {type(function).__name__}.")
        for key, needed in REQUIRES.items():
            if getattr(functions, key) is not None and getattr(functions, needed) is None:
                raise ModelError(
                    f"{key} must be given together with {needed}, which the chain rule requires; got no {needed}."
                )
        for key in options:
            if key in (*FOLLOW, *NOT_USED):
                why = (
                    "it follows from the parameters" if key in FOLLOW else "a model of named parameters does not use it"
                )
                raise ModelError(f"{key} is not an option of Parameters.model, because {why}. Remove {key}.")
        self.parameters, self._given, self._options = parameters, functions, dict(options)
        if argument_count(functions.log_density) == 1:
            functions = FunctionsOfValues(**without_data(functions._asdict(), data, "values"))
        check_arguments(functions._asdict(), "values")
        self.functions_of_values = functions
        initial = options.get("initial")
        if isinstance(initial, Mapping):
            options = {**options, "initial": parameters.unconstrain(initial, "initial")}
        texts = in_coordinates(as_python(parameters, functions), parameters)
        given = {**options, "dims": {**dims_of(options.get("dims")), **parameters.dims}}
        for name in dims_of(options.get("dims")):
            if name in parameters.supports:
                raise ModelError(
                    f"dims must not contain the parameter {name!r}. Give its dims with its support: {name}=...(..., dims=...)."
                )
        given |= {
            "names": parameters.names,
            "constrain": parameters.constrain,
            "parents": parameters.parents_of_coordinates,
        }
        super().__init__(parameters.dim, **texts, data=data, **given)
        self.unconstrain = parameters.unconstrain

    def __reduce__(self) -> tuple[Callable, tuple]:
        return ParametersModel, (self.parameters, self._given, self.data, self._options)

    def _how_to_give(self, derivatives: Sequence[str]) -> str:
        keys = ["fisher_contraction" if key == "fisher_derivative" else key for key in derivatives]
        known = FunctionsOfValues._fields
        if not set(keys) <= set(known):
            return self._without(derivatives)
        needed = [REQUIRES[key] for key in keys if key in REQUIRES and not self.has(REQUIRES[key])]
        return (
            f"give parameters.model(..., {arguments_for(list(dict.fromkeys([*needed, *keys])), known)}. Write functions of "
            "the values, with derivatives by the values, as for the gradient; refhmc transforms them to the coordinates"
        )

    @property
    def to_compile(self) -> Functions:
        return Functions(**in_coordinates(for_numba(self.parameters, self.functions_of_values), self.parameters))


class OfValues(NamedTuple):
    """Functions of the values with a common signature: derivatives are written flat to ``out``, which contains zeros."""

    read: Callable  # x (1, count) -> values
    log_density: Callable  # (values, data) -> float
    value_and_gradient: Callable  # (x, x, data, out) -> float, each x (1, count) for one of the user's functions
    gradient: Callable  # (values, data, out)
    hessian: Any  # (values, data, out), or None
    hessian_contraction: Any  # (values, data, M, out), or None
    fisher: Any  # as hessian
    fisher_contraction: Any  # as hessian_contraction


def in_coordinates(of_values: OfValues, parameters: Coordinates) -> dict[str, Callable]:
    """Return the functions of ``(q, data)``, ``(q, data, out)`` and ``(q, data, M, out)`` for :class:`refhmc.Model`."""
    read, density, both, slope, curvature, contraction, metric, metric_contraction = of_values
    segments, n, d = parameters.segments, parameters.count, parameters.dim

    def log_density(q: np.ndarray, data: object) -> float:
        x, rows = np.zeros((1, n)), np.zeros((ROWS, d))
        log_jacobian = forward(q, segments, x[0], rows)
        return density(read(x), data) + log_jacobian

    def value_and_gradient(q: np.ndarray, data: object, out: np.ndarray) -> float:
        room, rows = np.zeros((4, n)), np.zeros((ROWS, d))  # room: the values, two copies, g
        log_jacobian = forward(q, segments, room[0], rows)
        copy_row(room[1], room[0])
        copy_row(room[2], room[0])
        value = both(room[1:2], room[2:3], data, room[3])
        gradient_in_u(room[3], segments, room[0], rows, out)
        return value + log_jacobian

    def gradient(q: np.ndarray, data: object, out: np.ndarray) -> None:
        x, g, rows = np.zeros((1, n)), np.zeros(n), np.zeros((ROWS, d))
        forward(q, segments, x[0], rows)
        slope(read(x.copy()), data, g)
        gradient_in_u(g, segments, x[0], rows, out)

    def hessian(q: np.ndarray, data: object, out: np.ndarray) -> None:
        x, g, H, rows = np.zeros((1, n)), np.zeros(n), np.zeros((n, n)), np.zeros((ROWS, d))
        forward(q, segments, x[0], rows)
        slope(read(x.copy()), data, g)
        curvature(read(x.copy()), data, H)
        hessian_in_u(H, g, segments, x[0], rows, out)

    def hessian_contraction(q: np.ndarray, data: object, M: np.ndarray, out: np.ndarray) -> None:
        x, g, H, rows = np.zeros((1, n)), np.zeros(n), np.zeros((n, n)), np.zeros((ROWS, d))
        forward(q, segments, x[0], rows)
        slope(read(x.copy()), data, g)
        curvature(read(x.copy()), data, H)
        T, symmetric = np.zeros(n), 0.5 * (M + M.T)
        MX, N = pushed(symmetric, segments, x[0], rows)
        contraction(read(x.copy()), data, N, T)
        contraction_in_u(T, H, g, symmetric, MX, segments, x[0], rows, out)

    def fisher(q: np.ndarray, data: object, out: np.ndarray) -> None:
        x, G, rows = np.zeros((1, n)), np.zeros((n, n)), np.zeros((ROWS, d))
        forward(q, segments, x[0], rows)
        metric(read(x.copy()), data, G)
        tensor_in_u(G, segments, x[0], rows, out)

    def fisher_contraction(q: np.ndarray, data: object, M: np.ndarray, out: np.ndarray) -> None:
        x, G, T, rows = np.zeros((1, n)), np.zeros((n, n)), np.zeros(n), np.zeros((ROWS, d))
        forward(q, segments, x[0], rows)
        metric(read(x.copy()), data, G)
        MX, N = pushed(0.5 * (M + M.T), segments, x[0], rows)
        metric_contraction(read(x.copy()), data, N, T)
        tensor_contraction_in_u(T, G, MX, segments, x[0], rows, out)

    texts: dict[str, Callable] = {
        "log_density": log_density,
        "gradient": gradient,
        "value_and_gradient": value_and_gradient,
    }
    further: dict[str, Callable] = {
        "hessian": hessian,
        "hessian_contraction": hessian_contraction,
        "fisher": fisher,
        "fisher_contraction": fisher_contraction,
    }
    given = (curvature, contraction, metric, metric_contraction)
    return texts | {key: text for (key, text), f in zip(further.items(), given, strict=True) if f is not None}


# ------------------------------------------------------------------------------------------------- functions as Python


def as_python(parameters: Coordinates, given: FunctionsOfValues) -> OfValues:
    """Return the user's functions as Python, with checks of what they return."""
    Values, n = parameters.Values, parameters.count
    names, shapes = parameters.Values._fields, parameters.shapes
    places = [slice(first, first + math.prod(shape)) for first, shape in zip(parameters.at, shapes, strict=True)]
    layout = list(zip(places, shapes, strict=True))

    def read(x: np.ndarray) -> tuple:
        return Values(*(x[0, at].reshape(shape) if shape else float(x[0, at.start]) for at, shape in layout))

    def log_density(values: tuple, data: object) -> float:
        return as_float(given.log_density(values, data), "log_density")

    def derivative(key: str, before_out: int) -> Any:
        function = getattr(given, key)
        if function is None:
            return None
        if argument_count(function) > before_out:
            return lambda *arguments: function(*arguments)
        if key in ARRAYS:

            def write_array(values: tuple, data: object, out: np.ndarray) -> None:
                out[:] = as_array(function(values, data), out.shape, key)

            return write_array

        def write_entries(*arguments: Any) -> None:
            *before, out = arguments
            entries = function(*before)
            if not isinstance(entries, tuple | list) or len(entries) != len(names):
                raise ModelError(
                    f"{key} must return a tuple with one entry for each of {', '.join(names)}; it returned "
                    + (
                        f"{len(entries)} entries."
                        if isinstance(entries, tuple | list)
                        else f"{type(entries).__name__}."
                    )
                )
            for name, at, shape, entry in zip(names, places, shapes, entries, strict=True):
                out[at] = as_array(entry, shape, f"{key}, as its entry for {name},").ravel()

        return write_entries

    gradient = derivative("gradient", 2)

    def value_and_gradient(x: np.ndarray, again: np.ndarray, data: object, out: np.ndarray) -> float:
        if given.value_and_gradient is not None:
            return as_float(given.value_and_gradient(read(x), data, out), "value_and_gradient")
        gradient(read(x), data, out)
        return log_density(read(again), data)

    tensor, contraction = derivative("third_derivative", 2), derivative("hessian_contraction", 3)
    if contraction is None and tensor is not None:

        def contraction(values: tuple, data: object, M: np.ndarray, out: np.ndarray) -> None:
            T = np.zeros((n, n, n))
            tensor(values, data, T)
            out[:] = np.einsum("ab,abc->c", M, T)

    fisher = derivative("fisher", 2), derivative("fisher_contraction", 3)
    return OfValues(read, log_density, value_and_gradient, gradient, derivative("hessian", 2), contraction, *fisher)


# ------------------------------------------------------------------------------------------------- compiled functions


def for_numba(parameters: Coordinates, given: FunctionsOfValues) -> OfValues:
    """Return the user's functions for Numba, not compiled yet."""
    n, names, shapes = parameters.count, parameters.Values._fields, parameters.shapes
    takers = tuple(taker(first, shape, np.float64) for first, shape in zip(parameters.at, shapes, strict=True))
    read = as_named(parameters.Values, gather(takers))

    density = compiled_alone(given.log_density)

    def derivative(key: str, before_out: int) -> Any:
        function = getattr(given, key)
        if function is None:
            return None
        f = compiled_alone(function)
        if argument_count(function) > before_out:
            return f
        if key in ARRAYS:
            return jit_anew(lambda values, data, out: copy_array(out, f(values, data)))
        write = write_entries(key, names, tuple(parameters.at), shapes)
        if before_out == 3:
            return jit_anew(lambda values, data, M, out: write(f(values, data, M), out))
        return jit_anew(lambda values, data, out: write(f(values, data), out))

    gradient = derivative("gradient", 2)
    if given.value_and_gradient is not None:
        both = compiled_alone(given.value_and_gradient)
        value_and_gradient = jit_anew(lambda x, again, data, out: both(read(x), data, out))
    else:

        @jit_anew
        def value_and_gradient(x: np.ndarray, again: np.ndarray, data: object, out: np.ndarray) -> float:
            gradient(read(x), data, out)
            return density(read(again), data)

    tensor, contraction = derivative("third_derivative", 2), derivative("hessian_contraction", 3)
    if contraction is None and tensor is not None:

        @jit_anew
        def contraction(values: tuple, data: object, M: np.ndarray, out: np.ndarray) -> None:
            T = np.zeros((n, n, n))
            tensor(values, data, T)
            contract(M, T, out)

    fisher = derivative("fisher", 2), derivative("fisher_contraction", 3)
    return OfValues(read, density, value_and_gradient, gradient, derivative("hessian", 2), contraction, *fisher)


@functools.lru_cache(maxsize=256)
def write_entries(key: str, names: tuple[str, ...], firsts: tuple[int, ...], shapes: tuple[tuple, ...]) -> Callable:
    """Return ``(entries, out)``, which writes the entries of a tuple to their places in one row."""
    first, shape = firsts[0], shapes[0]
    size = math.prod(shape)
    message = f"{key} must return an array of shape {shape} for {names[0]}; it returned another shape."
    if shape == ():

        @jit_anew
        def write_one(entry: float, out: np.ndarray) -> None:
            out[first] = entry

    else:

        @jit_anew
        def write_one(entry: np.ndarray, out: np.ndarray) -> None:
            if entry.shape != shape:
                raise ModelError(message)
            for i in range(size):
                out[first + i] = entry.flat[i]

    others = write_entries(key, names[1:], firsts[1:], shapes[1:]) if len(names) > 1 else write_none(key)

    @jit_anew
    def write(entries: tuple, out: np.ndarray) -> None:
        write_one(entries[0], out)
        others(entries[1:], out)

    return write


@functools.lru_cache(maxsize=256)
def write_none(key: str) -> Callable:
    """Return the end of the recursion of :func:`write_entries`, after the last entry."""
    message = f"{key} must return a tuple with one entry for each parameter; it returned more."

    @jit_anew
    def write(entries: tuple, out: np.ndarray) -> None:
        if len(entries) > 0:
            raise ModelError(message)

    return write
