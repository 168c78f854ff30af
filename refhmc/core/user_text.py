"""A user's function as Numba can compile it: its text, with the plain functions that it calls compiled too.

Numba compiles a function that calls others only where these have been compiled. Here a plain function among a function's
globals and closure cells, or in the user's modules that it names, gets a compiled one in its place, and so on down; what Numba
knows by itself, such as ``np.sum``, stays. A ``functools.partial`` becomes a function that reads the values it binds. Objects
with ``__call__`` and bound methods carry state that compiled code cannot see: they run as Python.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numba
from numba.core.errors import NumbaError, UnsupportedError
from numba.core.registry import cpu_target

from refhmc.core.compiled import jit_anew
from refhmc.core.fingerprint import package_of


class WithoutData:
    """A function of the position alone, ``f(q)``, ``f(q, out)``, ``f(q, M)`` or ``f(q, M, out)``, called as others are."""

    def __init__(self, function: Callable) -> None:
        self.function = function

    def __call__(self, q: Any, data: Any, *rest: Any) -> Any:
        return self.function(q, *rest)


def compilable(function: Any) -> Any:
    """``function`` for :func:`jit_anew`, or compiled. Raises Numba's UnsupportedError for what is no function of its own."""
    if hasattr(function, "py_func"):
        return function
    if isinstance(function, functools.partial):
        return _bound(function)
    if not isinstance(function, types.FunctionType):
        raise UnsupportedError(f"{_kind(function)} is not a plain function")
    return with_compiled_callees(function)


def _kind(function: Any) -> str:
    return (
        "a bound method" if isinstance(function, types.MethodType) else f"an object of class {type(function).__name__}"
    )


def with_compiled_callees(function: types.FunctionType) -> types.FunctionType:
    """The same text, calling compiled functions in the place of plain ones; the function itself where it calls none."""
    done: dict[int, Any] = {}
    text, calls = _copy(function)
    for put, callee in calls:
        put(_compiled(callee, done))
    return text if calls else function


def _compiled(callee: types.FunctionType, done: dict[int, Any]) -> Any:
    """``done``: what was compiled in the place of which function, by its ``id``."""
    if id(callee) not in done:
        text, calls = _copy(callee)
        # Before its callees are looked at, of which it may be one.
        done[id(callee)] = numba.njit(nogil=True, error_model="numpy")(text)
        for put, each in calls:
            put(_compiled(each, done))
    return done[id(callee)]


def _copy(function: types.FunctionType) -> tuple[types.FunctionType, list[tuple[Callable, types.FunctionType]]]:
    """The text with names and cells of its own, and each plain function that it calls, with what puts another in its place."""
    names: dict[str, Any] = dict(function.__globals__)
    cells = list(function.__closure__ or ())
    calls: list[tuple[Callable, types.FunctionType]] = []
    modules: dict[int, types.ModuleType] = {}
    for name in _names_in(function.__code__):
        if _is_plain(names.get(name)):
            calls.append((functools.partial(names.__setitem__, name), names[name]))
        elif _is_module_of_user(names.get(name)):
            names[name] = _copy_of_module(names[name], function.__code__, calls, modules)
    for i, cell in enumerate(cells):
        if _is_plain(_content(cell)):
            cells[i] = types.CellType()
            calls.append((functools.partial(setattr, cells[i], "cell_contents"), _content(cell)))
        elif _is_module_of_user(_content(cell)):
            cells[i] = types.CellType(_copy_of_module(cell.cell_contents, function.__code__, calls, modules))
    text = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, tuple(cells))
    text.__kwdefaults__, text.__module__ = function.__kwdefaults__, function.__module__
    return text, calls


def _is_module_of_user(value: Any) -> bool:
    return isinstance(value, types.ModuleType) and package_of(value.__name__) is None


def _copy_of_module(module: types.ModuleType, code: types.CodeType, calls: list, done: dict) -> types.ModuleType:
    """With what the text calls of it put into ``calls``, as :func:`_copy` does; ``done``: the copies by the modules' ``id``."""
    if id(module) in done:
        return done[id(module)]
    copy = done[id(module)] = types.ModuleType(module.__name__)
    copy.__dict__.update(vars(module))
    for name in _names_in(code):
        value: Any = vars(module).get(name)
        if _is_plain(value):
            calls.append((functools.partial(setattr, copy, name), value))
        elif _is_module_of_user(value):
            setattr(copy, name, _copy_of_module(value, code, calls, done))
    return copy


def _names_in(code: types.CodeType) -> list[str]:
    """Names of globals and attributes in the text and in the functions written within it."""
    within = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return sorted({*code.co_names, *(name for each in within for name in _names_in(each))})


def _is_plain(value: Any) -> bool:
    """Whether it is a function in Python that Numba does not know."""
    if not isinstance(value, types.FunctionType):
        return False
    try:
        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(value) is None
    except (NumbaError, ValueError):
        return True


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _bound(given: functools.partial) -> Callable:
    """``partial(f, *first, **named)`` as a function of what is left, its values read from the closure."""
    f: Any = compilable(given.func)
    f = f if hasattr(f, "py_func") else jit_anew(f)
    text = f.py_func
    if text.__code__.co_kwonlyargcount:
        raise UnsupportedError(f"{text.__name__} has arguments by keyword alone")
    names = text.__code__.co_varnames[: text.__code__.co_argcount]
    values = dict(zip(names, given.args, strict=False)) | given.keywords
    left = [name for name in names if name not in values]
    # The one way to a function with so many arguments of these names.
    scope: dict[str, Any] = {"f": f, **{f"bound_{name}": value for name, value in values.items()}}
    arguments = ", ".join(f"bound_{name}" if name in values else name for name in names)
    exec(f"def text({', '.join(left)}):\n    return f({arguments})", scope)
    return scope["text"]
