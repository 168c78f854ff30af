"""A user's function in the form that Numba can compile: its source, with the plain functions that it calls compiled, too.

Numba compiles a function that calls others only if these are compiled. Here, plain functions among the globals and closure
cells of a function, or in the user's modules that it names, are replaced by compiled ones, recursively. Functions
that Numba supports, such as ``np.sum``, are kept. A ``functools.partial`` becomes a function that reads the bound values.
Objects with ``__call__`` and bound methods have state that compiled code cannot see; they run as Python.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from refhmc.compile.compiled import jit_anew
from refhmc.compile.fingerprint import package_of
from refhmc.compile.numba_internals import Dispatcher, NumbaError, UnsupportedError, cpu_target


class WithoutData:
    """A function of the position alone, ``f(q)``, ``f(q, out)``, ``f(q, M)`` or ``f(q, M, out)``, called like the others."""

    def __init__(self, function: Callable) -> None:
        self.function = function

    def __call__(self, q: np.ndarray, data: object, *rest: np.ndarray) -> Any:
        return self.function(q, *rest)


def compilable(function: Callable) -> Callable:
    """Return `function` for :func:`jit_anew`, or compiled. Raises Numba's UnsupportedError unless it is a plain function."""
    if hasattr(function, "py_func"):
        return function
    if isinstance(function, functools.partial):
        return _bound(function)
    if not isinstance(function, types.FunctionType):
        raise UnsupportedError(f"{_kind(function)} is not a plain function")
    return with_compiled_callees(function)


def _kind(function: object) -> str:
    return (
        "a bound method" if isinstance(function, types.MethodType) else f"an object of class {type(function).__name__}"
    )


def with_compiled_callees(function: types.FunctionType) -> types.FunctionType:
    """Return the same source calling compiled functions, or the function itself if it calls none."""
    done: dict[int, Dispatcher] = {}
    text, calls = _copy(function)
    for put, callee in calls:
        put(_compiled(callee, done))
    return text if calls else function


def _compiled(callee: types.FunctionType, done: dict[int, Dispatcher]) -> Dispatcher:
    """Return the compiled function; `done` has those compiled before, by ``id`` of the original."""
    if id(callee) not in done:
        text, calls = _copy(callee)
        # Before its callees, because it may be recursive.
        done[id(callee)] = numba.njit(nogil=True, error_model="numpy")(text)
        for put, each in calls:
            put(_compiled(each, done))
    return done[id(callee)]


def _copy(function: types.FunctionType) -> tuple[types.FunctionType, list[tuple[Callable, types.FunctionType]]]:
    """Return a copy with its own globals and cells, and each plain callee with a function that replaces it."""
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


def _is_module_of_user(value: object) -> bool:
    return isinstance(value, types.ModuleType) and package_of(value.__name__) is None


def _copy_of_module(module: types.ModuleType, code: types.CodeType, calls: list, done: dict) -> types.ModuleType:
    """Return a copy of a module, adding its callees to `calls` as :func:`_copy` does; `done` has earlier copies by ``id``."""
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
    """Return the names of globals and attributes in the code and in nested functions."""
    within = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return sorted({*code.co_names, *(name for each in within for name in _names_in(each))})


def _is_plain(value: object) -> bool:
    """Return whether a value is a Python function that Numba does not support itself."""
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
    """Return ``partial(f, *first, **named)`` as a function of the remaining arguments, with bound values in its closure."""
    f: Any = compilable(given.func)
    f = f if hasattr(f, "py_func") else jit_anew(f)
    text = f.py_func
    if text.__code__.co_kwonlyargcount:
        raise UnsupportedError(f"{text.__name__} has arguments by keyword alone")
    names = text.__code__.co_varnames[: text.__code__.co_argcount]
    values = dict(zip(names, given.args, strict=False)) | given.keywords
    left = [name for name in names if name not in values]
    # exec is the only way to a function with these argument names.
    scope: dict[str, Any] = {"f": f, **{f"bound_{name}": value for name, value in values.items()}}
    arguments = ", ".join(f"bound_{name}" if name in values else name for name in names)
    exec(f"def text({', '.join(left)}):\n    return f({arguments})", scope)
    return scope["text"]
