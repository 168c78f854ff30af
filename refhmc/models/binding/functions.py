"""The functions of a model: their names, and the numbers of arguments that they may have."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.user_text import WithoutData
from refhmc.errors import ModelError

# The full derivative from which a missing contraction is computed.
FULL_TENSOR = {"hessian_contraction": "third_derivative", "fisher_contraction": "fisher_derivative"}
# The function from which a derivative is computed if the model does not have it.
SOURCE = {"gradient": "value_and_gradient", **FULL_TENSOR, **{full: key for key, full in FULL_TENSOR.items()}}
# name -> (number of arguments before ``out``, number of axes of the result)
DERIVATIVES = {
    "gradient": (2, 1),
    "hessian": (2, 2),
    "third_derivative": (2, 3),
    "hessian_contraction": (3, 1),
    "fisher": (2, 2),
    "fisher_derivative": (2, 3),
    "fisher_contraction": (3, 1),
}


class Functions(NamedTuple):
    """The functions of a model; only the log density, and one of the next two, must be given (:class:`refhmc.Model`)."""

    log_density: Callable
    value_and_gradient: Callable | None
    gradient: Callable | None
    hessian: Callable | None = None
    third_derivative: Callable | None = None
    hessian_contraction: Callable | None = None
    fisher: Callable | None = None
    fisher_derivative: Callable | None = None
    fisher_contraction: Callable | None = None
    hessian_diagonal: Callable | None = None
    diagonal_contraction: Callable | None = None
    log_density_change: Callable | None = None
    fisher_bands: Callable | None = None
    bordered_fisher: Callable | None = None
    bordered_contraction: Callable | None = None

    def has(self, key: str) -> bool:
        """Return whether a function is given, or the one from which it is computed."""
        source = SOURCE.get(key)
        return getattr(self, key) is not None or (source is not None and getattr(self, source) is not None)


def argument_count(function: Callable) -> int:
    """Return the number of positional arguments without default, data included, of a plain or compiled function."""
    if isinstance(function, WithoutData):
        return argument_count(function.function) + 1
    parameters = inspect.signature(getattr(function, "py_func", function)).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in positional)


def check_arguments(functions: Mapping[str, Callable | None], first: str = "q") -> None:
    """Raise ModelError for a function that cannot be called with one of its valid numbers of arguments.

    `first` is the name of the first argument.
    """
    lengths: dict[str, tuple[int, ...]] = {"log_density": (2,), "value_and_gradient": (3,)}
    lengths |= {key: (before_out, before_out + 1) for key, (before_out, _) in DERIVATIVES.items()}
    for key, function in functions.items():
        if function is None or key not in lengths or any(takes(function, count) for count in lengths[key]):
            continue
        alone, derivative = isinstance(function, WithoutData), key in DERIVATIVES
        names = [first, *([] if alone else ["data"]), *(["M"] if derivative and lengths[key][0] == 3 else [])]
        forms = [names] * (key != "value_and_gradient") + [[*names, "out"]] * (key != "log_density")
        allowed = " or ".join(f"({', '.join(form)})" for form in forms)
        because = "" if key == "log_density" else f", because log_density takes ({', '.join(names[: 2 - alone])})"
        count = argument_count(function) - alone
        raise ModelError(f"{key} must take {allowed}{because}; it takes {count} arguments without default.")


def takes(function: Callable, count: int) -> bool:
    """Return whether a function can be called with `count` positional arguments."""
    if isinstance(function, WithoutData):
        return takes(function.function, count - 1)
    try:
        inspect.signature(getattr(function, "py_func", function)).bind(*range(count))
    except TypeError:
        return False
    return True


def without_data(functions: Mapping[str, Callable | None], data: object, first: str = "q") -> dict[str, Any]:
    """Return the functions of a model without data in the form of those that take data. Raises ModelError."""
    if data is not None:
        raise ModelError(
            f"data is given, but log_density takes {first} only. "
            f"Write log_density({first}, data); arguments with a default and *args do not count."
        )
    for key, function in functions.items():
        if function is not None and "data" in inspect.signature(getattr(function, "py_func", function)).parameters:
            raise ModelError(
                f"{key} must take the same arguments as log_density, which takes {first} only; it takes data. "
                "Give data to all functions or to none."
            )
    kept = ("log_density_change",)  # its number of arguments shows whether it takes data
    return {key: f if f is None or key in kept else WithoutData(f) for key, f in functions.items()}


class Deferred:
    """A function of a model created at its first use: ``make()`` returns it, in the core's protocol."""

    def __init__(self, make: Callable[[], Callable]) -> None:
        self.make = make

    @functools.cached_property
    def made(self) -> Callable:
        return self.make()

    def __call__(self, *arguments: np.ndarray) -> float | np.ndarray | None:
        return self.made(*arguments)


def made(function: Any) -> Callable:
    return function.made if isinstance(function, Deferred) else function
