"""A user's functions before the first draw: what they return, and that they leave position and data alone.

The kernels give them copies of the position, so that one that writes to it cannot move a chain. What it then returns is
seldom what was meant, though, and data are shared by all chains: such a function is refused.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core.binding import DERIVATIVES, FULL_TENSOR, argument_count, as_array, as_float, named
from refhmc.core.named_axes import SAMPLES, check_axes, check_storable
from refhmc.errors import ModelError
from refhmc.models.base import Model

if TYPE_CHECKING:
    from refhmc.sampling.chain import Plan

NEARBY = 1e-3  # how far the second position is from the start, relative to it
SPREAD = 0.25  # how far those that ``constrain`` is tried at are


def check_functions(model: Model, plan: Plan, q: np.ndarray) -> None:
    """Raise ModelError unless the functions that a run's ``plan`` reads return what they should, and change no argument.

    At ``q`` (d,), and near it: a function that rounds or bounds its position may leave the start as it is.
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
        with contextlib.suppress(ArithmeticError):  # said again by the check of the start
            log_density, gradient = model._functions["log_density"], model._functions["gradient"]
            as_float(log_density(q.copy(), model.data), "log_density")
            if argument_count(gradient) == 2:
                as_array(gradient(q.copy(), model.data), (model.dim,), "gradient")
        if np.isfinite(model.log_density(near)):
            for key, call in calls.items():
                _check_arguments_kept(model, key, call, near)


def _calls(model: Model, plan: Plan) -> Iterator[tuple[str, Any]]:
    """Each function by its name, as ``call(q)`` with the position itself."""
    core, d, data = model.core, model.dim, model.core.data
    yield "log_density", lambda q: core.as_given("log_density")(q, data)
    both = model._functions["value_and_gradient"] is not None and core.why_python is None
    keys = ["value_and_gradient" if both else "gradient"]
    for block in plan.blocks:
        keys += [key for key in block.dynamics.metric.reads if key is not None]
    for key in dict.fromkeys(keys):
        if key in FULL_TENSOR and model._functions[key] is None:
            key = FULL_TENSOR[key]
        if model._functions[key] is None:
            continue
        before_out, axes = DERIVATIVES.get(key, (2, 1))
        M = (np.eye(d),) if before_out == 3 else ()
        yield key, functools.partial(_call, key, core.as_given(key), data, M, (d,) * axes)


def _check_in_place(model: Model, keys: Iterable[str], q: np.ndarray) -> None:
    """Raise ModelError for one of the derivatives ``keys`` that has room for ``out``, and returns its answer."""
    for key in keys:
        (before_out, axes), function = DERIVATIVES[key], model._functions[key]
        if function is None or argument_count(function) <= before_out:
            continue
        out = np.zeros((model.dim,) * axes)
        with contextlib.suppress(ArithmeticError):  # said again by the check of the start
            returned = function(q.copy(), model.data, *([np.eye(model.dim)] * (before_out - 2)), out)
            if (
                returned is not None and not out.any() and np.any(np.asarray(returned))
            ):  # zero may be the gradient there
                raise ModelError(
                    f"{key} takes one argument more than a function that returns its answer: the last is the array that it "
                    f"writes it into, and it left that at zero and returned {type(returned).__name__}. Leave the argument out "
                    "(log_density has data if another function has), or write to it: out[:] = ..."
                )


def _call(key: str, function: Callable, data: np.ndarray, M: tuple, shape: tuple, q: np.ndarray) -> None:
    with named(key, shape):
        function(q, data, *M, np.zeros(shape))


def _check_arguments_kept(model: Model, key: str, call: Callable, q: np.ndarray) -> None:
    argument, packed, given = q.copy(), model.core.data.tobytes(), _arrays_of(model.data)
    call(argument)
    if not np.array_equal(argument, q, equal_nan=True):
        raise ModelError(f"{key} changed its argument q in place; work on a copy: q = q.copy()")
    if model.core.data.tobytes() != packed or any(a.tobytes() != before for a, before in given):
        raise ModelError(f"{key} changed its data in place, which all chains share; work on a copy")


def _arrays_of(data: Any) -> list[tuple[np.ndarray, bytes]]:
    """The arrays in data that are one, or a tuple, list or dictionary of them, with what they hold."""
    if isinstance(data, np.ndarray):
        return [] if data.dtype.hasobject else [(data, data.tobytes())]
    parts = data.values() if isinstance(data, Mapping) else data if isinstance(data, tuple | list) else ()
    return [found for part in parts for found in _arrays_of(part)]


def check_variables(model: Model, q: np.ndarray) -> None:
    """Raise ModelError unless ``constrain`` gives named numbers of one shape for each of many positions, and keeps them.

    It is tried on a stack (2, 3, d): ``q`` and five positions around it where the density is positive, else ``q`` again.
    """
    rng = np.random.default_rng(20261123)
    stack = np.tile(q, (2, 3, 1))
    with np.errstate(all="ignore"):
        for index in list(np.ndindex(2, 3))[1:]:
            near = q + SPREAD * np.maximum(1.0, np.abs(q)) * rng.standard_normal(model.dim)
            if np.isfinite(_value(model, near)):
                stack[index] = near
        values = _constrained(model, stack)
    for name, value in values.items():
        if not isinstance(name, str):
            raise ModelError(f"constrain: the names of variables must be strings, got {name!r}")
        check_storable("constrain", name)
        if name in SAMPLES:
            raise ModelError(f"a variable cannot be called {name!r}: that is the name of an axis of the result")
        if value.dtype.kind not in "fiubc":
            raise ModelError(f"constrain: {name!r} must be numbers, it is {value.dtype}")
    check_axes("the posterior", {name: value.shape[2:] for name, value in values.items()}, model.dims, model.coords)


def _value(model: Model, q: np.ndarray) -> float:
    try:
        return model.log_density(q)
    except Exception:  # of the user's function, at a position that is ours
        return np.nan


def _constrained(model: Model, stack: np.ndarray) -> dict[str, np.ndarray]:
    """``model.constrain(stack)``, compared with the positions one by one."""
    rows = stack.reshape(-1, model.dim)
    if model._constrain is not None:
        argument = rows[0].copy()
        returned = _called(model, argument)
        if not isinstance(returned, Mapping):
            raise ModelError(
                f"constrain must return a dictionary of named values, it returned {type(returned).__name__}"
            )
        if not np.array_equal(argument, rows[0], equal_nan=True):
            raise ModelError("constrain changed its argument q in place; work on a copy: q = q.copy()")
        singles = [{name: np.asarray(value) for name, value in _called(model, row.copy()).items()} for row in rows]
        for row, single in zip(rows, singles, strict=True):
            if single.keys() != singles[0].keys():
                raise ModelError(
                    f"constrain: other names at q = {row} than at {rows[0]}: {list(single)}, {list(singles[0])}"
                )
            for name, value in single.items():
                if value.shape != singles[0][name].shape:
                    raise ModelError(
                        f"constrain: {name!r} has the shape {value.shape} at q = {row}, {singles[0][name].shape} at {rows[0]}"
                    )
    try:
        return model.constrain(stack)
    except Exception as error:
        raise ModelError(
            f"constrain raised {type(error).__name__} on an array {rows.shape} of positions: {error}"
        ) from error


def _called(model: Model, q: np.ndarray) -> Any:
    at = q.copy()
    try:
        return model._constrain(q)
    except Exception as error:
        raise ModelError(f"constrain raised {type(error).__name__} at q = {at}: {error}") from error
