"""Checks of a user's functions before the first draw: their return values, and that they do not change position or data.

Kernels pass copies of the position, so that a function that writes to it cannot move a chain. But its value is then seldom what
was intended, and data are shared by all chains. So such a function is rejected.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core import named_axes
from refhmc.errors import ModelError
from refhmc.models.base import Model
from refhmc.models.binding.functions import DERIVATIVES, FULL_TENSOR, argument_count
from refhmc.models.binding.returned import as_array, as_float, named

if TYPE_CHECKING:
    from refhmc.sampling.chains.chain import Plan

NEARBY = 1e-3  # relative distance of the second position from the start
SPREAD = 0.25  # relative distance of the positions for ``constrain``


def check_functions(model: Model, plan: Plan, q: np.ndarray) -> None:
    """Raise ModelError unless the functions that a run's `plan` reads return valid values and change no argument.

    They are called at `q` (d,) and near it, because a function that rounds or clips its position may not change the start.
    """
    parts = getattr(model, "parts", ())
    for part in parts[:1] if getattr(model, "made_alike", False) else parts:
        check_functions(part, plan, q)
    if model.core.own:
        return
    with np.errstate(all="ignore"):
        rng = np.random.default_rng(20261122)
        near = q + NEARBY * np.maximum(1.0, np.abs(q)) * rng.standard_normal(model.dim)
        near[model.discontinuous] = q[model.discontinuous]
        calls = dict(_calls(model, plan))
        _check_in_place(model, {"gradient", *DERIVATIVES.keys() & calls.keys()}, q)
        for key, call in calls.items():
            _check_arguments_kept(model, key, call, q)
        with contextlib.suppress(ArithmeticError):  # the check of the start reports this
            log_density, gradient = model.functions.log_density, model.functions.gradient
            as_float(log_density(q.copy(), model.data), "log_density")
            if gradient is not None and argument_count(gradient) == 2:
                as_array(gradient(q.copy(), model.data), (model.dim,), "gradient")
        if np.isfinite(model.log_density(near)):
            for key, call in calls.items():
                _check_arguments_kept(model, key, call, near)


def _calls(model: Model, plan: Plan) -> Iterator[tuple[str, Any]]:
    """Yield the name of each function and a call of it with the position itself."""
    core, d, data = model.core, model.dim, model.core.data
    yield "log_density", lambda q: core.as_given("log_density")(q, data)
    both = model.functions.value_and_gradient is not None and core.why_python is None
    keys = ["value_and_gradient" if both else "gradient"]
    for block in plan.blocks:
        keys += [key for key in block.dynamics.metric.reads if key is not None]
    for key in dict.fromkeys(keys):
        if key in FULL_TENSOR and getattr(model.functions, key) is None:
            key = FULL_TENSOR[key]
        if getattr(model.functions, key) is None:
            continue
        before_out, axes = DERIVATIVES.get(key, (2, 1))
        M = (np.eye(d),) if before_out == 3 else ()
        yield key, functools.partial(_call, key, core.as_given(key), data, M, (d,) * axes)


def _check_in_place(model: Model, keys: Iterable[str], q: np.ndarray) -> None:
    """Raise ModelError if one of the derivatives `keys` has an argument ``out`` but returns its value."""
    for key in keys:
        (before_out, axes), function = DERIVATIVES[key], getattr(model.functions, key)
        if function is None or argument_count(function) <= before_out:
            continue
        out = np.zeros((model.dim,) * axes)
        with contextlib.suppress(ArithmeticError):  # the check of the start reports this
            returned = function(q.copy(), model.data, *([np.eye(model.dim)] * (before_out - 2)), out)
            if (
                returned is not None and not out.any() and np.any(np.asarray(returned))
            ):  # zero may be the gradient there
                raise ModelError(
                    f"{key} must write its value into its last argument, out, which was not changed; it returned "
                    f"{type(returned).__name__}. Write out[:] = ..., or remove the argument and return the value (log_density "
                    "must take data if another function does)."
                )


def _call(key: str, function: Callable, data: np.ndarray, M: tuple, shape: tuple, q: np.ndarray) -> None:
    with named(key, shape):
        function(q, data, *M, np.zeros(shape))


def _check_arguments_kept(model: Model, key: str, call: Callable, q: np.ndarray) -> None:
    argument, packed, given = q.copy(), model.core.data.tobytes(), _arrays_of(model.data)
    call(argument)
    if not np.array_equal(argument, q, equal_nan=True):
        raise ModelError(f"{key} must not change its argument q in place. Work on a copy: q = q.copy().")
    if model.core.data.tobytes() != packed or any(a.tobytes() != before for a, before in given):
        raise ModelError(f"{key} must not change its data in place, because all chains share them. Work on a copy.")


def _arrays_of(data: Any) -> list[tuple[np.ndarray, bytes]]:
    """Return the arrays in data (an array, or a tuple, list or dictionary of data) with their bytes."""
    if isinstance(data, np.ndarray):
        return [] if data.dtype.hasobject else [(data, data.tobytes())]
    parts = data.values() if isinstance(data, Mapping) else data if isinstance(data, tuple | list) else ()
    return [found for part in parts for found in _arrays_of(part)]


def check_variables(model: Model, q: np.ndarray) -> None:
    """Raise ModelError unless ``constrain`` returns named numbers of one shape for each position and does not change them.

    It is called with a stack (2, 3, d) of `q` and five positions around it, or `q` itself if the density there is zero.
    """
    rng = np.random.default_rng(20261123)
    stack = np.tile(q, (2, 3, 1))
    with np.errstate(all="ignore"):
        for index in list(np.ndindex(2, 3))[1:]:
            near = q + SPREAD * np.maximum(1.0, np.abs(q)) * rng.standard_normal(model.dim)
            if np.isfinite(_value(model, near)):
                stack[index] = near
        values = _constrained(model, stack)
    named_axes.check_variables("constrain", values)
    named_axes.check_axes(
        "the posterior", {name: value.shape[2:] for name, value in values.items()}, model.dims, model.coords
    )


def _value(model: Model, q: np.ndarray) -> float:
    try:
        return model.log_density(q)
    except Exception:  # the user did not choose this position
        return np.nan


def _constrained(model: Model, stack: np.ndarray) -> dict[str, np.ndarray]:
    """Return ``model.constrain(stack)`` after a comparison with single positions."""
    rows = stack.reshape(-1, model.dim)
    if model._constrain is not None:
        argument = rows[0].copy()
        returned = _called(model, argument)
        if not isinstance(returned, Mapping):
            raise ModelError(f"constrain must return a dictionary of named values; got {type(returned).__name__}.")
        if not np.array_equal(argument, rows[0], equal_nan=True):
            raise ModelError("constrain must not change its argument q in place. Work on a copy: q = q.copy().")
        singles = [{name: np.asarray(value) for name, value in _called(model, row.copy()).items()} for row in rows]
        for row, single in zip(rows, singles, strict=True):
            if single.keys() != singles[0].keys():
                raise ModelError(
                    f"constrain must return the same names at each position; got {list(single)} at q = {row} and "
                    f"{list(singles[0])} at q = {rows[0]}."
                )
            for name, value in single.items():
                if value.shape != singles[0][name].shape:
                    raise ModelError(
                        f"constrain must return {name!r} with one shape; got {value.shape} at q = {row} and "
                        f"{singles[0][name].shape} at q = {rows[0]}."
                    )
    try:
        return model.constrain(stack)
    except Exception as error:
        raise ModelError(
            f"constrain raised {type(error).__name__} for positions of shape {rows.shape}: {error}. Use q[..., i] for "
            "coordinates."
        ) from error


def _called(model: Model, q: np.ndarray) -> Any:
    at = q.copy()
    try:
        return model._constrain(q)
    except Exception as error:
        raise ModelError(f"constrain raised {type(error).__name__} at q = {at}: {error}.") from error
