"""The constructor call that creates one of the built-in models: its name and literal arguments.

A saved run stores it, so that :func:`refhmc.resume` needs no ``model``. A folder may come from an untrusted source. A recipe
can therefore only call a constructor of :mod:`refhmc.models` with numbers, strings and lists of them.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np
from numpy.typing import ArrayLike

from refhmc.models.base import Model
from refhmc.models.inputs import columns_of

MOST_NUMBERS = 100_000  # in the arguments of a model that a run stores
LARGEST = 1_000_000  # largest whole number in a recipe, which may be a number of coordinates
P = ParamSpec("P")


def recreatable(constructor: Callable[P, Model]) -> Callable[P, Model]:
    """Record the call in each model that the constructor returns."""

    @functools.wraps(constructor)
    def make(*args: P.args, **kwargs: P.kwargs) -> Model:
        model = constructor(*args, **kwargs)
        signature = inspect.signature(constructor)
        given = signature.bind(*args, **kwargs).arguments
        if "inputs" in signature.parameters and given.get("inputs") is None and (names := columns_of(given.get("X"))):
            given["inputs"] = names  # a recipe has the numbers of a data frame only
        numbers = sum(_size(value) for value in given.values())
        model.made_by = (constructor.__name__, given) if numbers <= MOST_NUMBERS else None
        return model

    return make


def recipe_of(model: Model) -> dict[str, object] | None:
    """Return ``{"constructor": name, "arguments": {...}}`` of plain values, or None if the call is not known."""
    if model.made_by is None:
        return None
    name, given = model.made_by
    try:
        return {"constructor": name, "arguments": {key: _plain(value) for key, value in given.items()}}
    except TypeError:
        return None


def model_of_recipe(recipe: object) -> Model:
    """Return the model of a recipe. Raises ValueError if refhmc cannot have written the recipe."""
    from refhmc import models

    if not isinstance(recipe, dict) or recipe.keys() != {"constructor", "arguments"}:
        raise ValueError("a recipe must have the keys constructor and arguments")
    name, arguments = recipe["constructor"], recipe["arguments"]
    constructor: Any = getattr(models, name) if isinstance(name, str) and name in models.__all__ else None
    if not hasattr(constructor, "__wrapped__") or not isinstance(arguments, dict):
        raise ValueError(f"{name!r:.100} is not a constructor of refhmc.models that can resume a run")
    for value in arguments.values():
        _check(value)
    inspect.signature(constructor).bind(**arguments)
    model: Model = constructor(**arguments)
    return model


def _size(value: ArrayLike) -> float:
    try:
        return float(np.size(value))
    except (TypeError, ValueError):  # rows of different lengths
        return math.inf


def _plain(value: object) -> object:
    """Return the value as JSON stores it. Raises TypeError for anything but numbers, strings and arrays of them."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biufU":
        raise TypeError(f"{type(value).__name__} is not a number, a string, or an array of these")
    return array.tolist()


def _check(value: object, depth: int = 0) -> None:
    """Raise ValueError if :func:`_plain` cannot have returned the value, or if a whole number is too large."""
    if type(value) is list and depth < 9:
        for each in value:
            _check(each, depth + 1)
    elif value is not None and type(value) not in (bool, int, float, str):
        raise ValueError(f"{value!r:.100} is not a number, a string or a list")
    elif depth == 0 and type(value) is int and abs(value) > LARGEST:
        raise ValueError(f"a whole number must be at most {LARGEST}; got {value}")
