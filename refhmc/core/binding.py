"""From a model's functions to the four pointers of the compiled core (:mod:`refhmc.core.types`).

refhmc's own models are there already: their functions follow the in-place protocol on one matrix of data. A user's
functions are adapted: compiled with Numba where that works, and otherwise called back as Python by two *trampolines*,
so that one set of compiled kernels serves both. What is compiled of a user's functions is shared by all that are the same part
for part (:mod:`refhmc.core.identity`), in this process and, where all their parts can be looked into, in later ones. (Numba's
own cache would not know that something they call was edited.)
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import types as nb
from numba.core.errors import NumbaError, UnsupportedBytecodeError

from refhmc.core import types
from refhmc.core.compiled import (
    forget,
    jit,
    jit_anew,
    jit_calling_python,
    jit_of_user,
    logged,
    returned_type,
    silence_experimental,
)
from refhmc.core.failures import FailureLog
from refhmc.core.identity import identity_of, identity_with
from refhmc.core.user_text import WithoutData, compilable
from refhmc.errors import EvaluationError, ModelError, PythonModelWarning, ShapeError

if TYPE_CHECKING:
    from refhmc.models.base import Model

shared = functools.lru_cache(maxsize=256)  # what is made of compiled functions, once for the same functions
CANNOT_COMPILE = (NumbaError, UnsupportedBytecodeError)
NUMERIC = (nb.Number, nb.Boolean, nb.Array, nb.Sequence)
# What a contraction can be made from, where the model has it not.
FULL_TENSOR = {"hessian_contraction": "third_derivative", "fisher_contraction": "fisher_derivative"}
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


def argument_count(function: Any) -> int:
    """Number of positional arguments without a default of a plain or Numba-compiled function, the data among them."""
    if isinstance(function, WithoutData):
        return argument_count(function.function) + 1
    parameters = inspect.signature(getattr(function, "py_func", function)).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in positional)


def check_arguments(functions: Mapping[str, Any], first: str = "q") -> None:
    """Raise ModelError for a function, by its name, that can be called with neither of the numbers of arguments that it may
    be; ``first``: what the first one is called."""
    lengths: dict[str, tuple[int, ...]] = {"log_density": (2,), "value_and_gradient": (3,)}
    lengths |= {key: (before_out, before_out + 1) for key, (before_out, _) in DERIVATIVES.items()}
    for key, function in functions.items():
        if function is None or key not in lengths or any(takes(function, count) for count in lengths[key]):
            continue
        alone, derivative = isinstance(function, WithoutData), key in DERIVATIVES
        names = [first, *([] if alone else ["data"]), *(["M"] if derivative and lengths[key][0] == 3 else [])]
        forms = [names] * (key != "value_and_gradient") + [[*names, "out"]] * (key != "log_density")
        said = " or ".join(f"({', '.join(form)})" for form in forms)
        beside = "" if key == "log_density" else f", as log_density takes ({', '.join(names[: 2 - alone])})"
        count = argument_count(function) - alone
        raise ModelError(f"{key} must take {said}{beside}; it takes {count}, those with a default not counted")


def takes(function: Any, count: int) -> bool:
    """Whether it can be called with so many positional arguments."""
    if isinstance(function, WithoutData):
        return takes(function.function, count - 1)
    try:
        inspect.signature(getattr(function, "py_func", function)).bind(*range(count))
    except TypeError:
        return False
    return True


class Deferred:
    """A function of a model's that is made when it is first called for: ``make()`` gives it, in the core's protocol."""

    def __init__(self, make: Callable[[], Callable]) -> None:
        self.make = make

    @functools.cached_property
    def made(self) -> Callable:
        return self.make()

    def __call__(self, *arguments: Any) -> Any:
        return self.made(*arguments)


def made(function: Any) -> Any:
    return function.made if isinstance(function, Deferred) else function


# ---------------------------------------------------------------------------------------------- data in one matrix


def pack(data: Any) -> tuple[np.ndarray, Callable] | None:
    """One float64 matrix that holds ``data``, and the compiled function that takes it out again.

    None, numbers, arrays and tuples (named or not) of numbers and arrays can be packed; integers keep their bits and their
    kind, and masks are masks. For anything else the answer is None.
    """
    if data is None:
        return np.zeros((1, 0)), _no_data
    if isinstance(data, np.ndarray | list) or np.isscalar(data):
        part = _as_part(data)
        return None if part is None else (part[0].reshape(1, -1), taker(0, *part[1:]))
    if isinstance(data, tuple) and data:
        parts = [part for part in map(_as_part, data) if part is not None]
        if len(parts) < len(data):
            return None
        stops = np.cumsum([part[0].size for part in parts], dtype=int)
        takers = tuple(taker(int(stop) - part[0].size, *part[1:]) for stop, part in zip(stops, parts, strict=True))
        unpack = as_named(type(data), gather(takers)) if hasattr(data, "_fields") else gather(takers)
        return np.concatenate([p[0] for p in parts]).reshape(1, -1), unpack
    return None


@jit_anew
def _no_data(packed: Any) -> Any:
    return None


def _as_part(value: Any) -> tuple[np.ndarray, tuple, type] | None:
    array = np.asarray(value)
    if array.dtype.kind in "iub" and array.ndim <= 3:
        kind = np.dtype(f"{array.dtype.kind}{array.dtype.itemsize}").type  # of those of one size NumPy has several
        return np.ascontiguousarray(array, dtype=np.int64).ravel().view(np.float64), array.shape, kind
    if array.dtype.kind == "f" and array.ndim <= 3:
        return np.ascontiguousarray(array, dtype=np.float64).ravel(), array.shape, np.float64
    return None


@shared
def taker(start: int, shape: tuple, kind: type) -> Callable:
    """The compiled function that takes an array of that kind, or a number where the shape is (), out of the packed data."""
    stop = start + int(np.prod(shape, dtype=int))
    if kind is np.bool_:  # as an integer array a mask would be indices
        if shape == ():
            return jit_anew(lambda packed: packed[0, start:stop].view(np.int64)[0] != 0)
        return jit_anew(lambda packed: packed[0, start:stop].view(np.int64).reshape(shape) != 0)
    if kind is np.int64:
        if shape == ():
            return jit_anew(lambda packed: packed[0, start:stop].view(np.int64)[0])
        return jit_anew(lambda packed: packed[0, start:stop].view(np.int64).reshape(shape))
    if kind is not np.float64:
        if shape == ():
            return jit_anew(lambda packed: packed[0, start:stop].view(np.int64).astype(kind)[0])
        return jit_anew(lambda packed: packed[0, start:stop].view(np.int64).astype(kind).reshape(shape))
    if shape == ():
        return jit_anew(lambda packed: packed[0, start])
    if len(shape) == 1:
        return jit_anew(lambda packed: packed[0, start:stop])
    return jit_anew(lambda packed: packed[0, start:stop].reshape(shape))


@shared
def gather(takers: tuple[Callable, ...]) -> Callable:
    """The compiled function that has the tuple of what these take."""
    first = takers[0]
    if len(takers) == 1:
        return jit_anew(lambda packed: (first(packed),))
    rest = gather(takers[1:])
    return jit_anew(lambda packed: (first(packed),) + rest(packed))


@shared
def as_named(cls: type, gathered: Callable) -> Callable:
    """The same as a named tuple of that class."""
    return jit_anew(lambda packed: cls(*gathered(packed)))


# ----------------------------------------------------------------------------------------------- compiled functions


def _is_core(function: Callable | None) -> bool:
    """refhmc's own: compiled, in place, reading the packed data directly. (The kit's are written as a user would.)"""
    text = getattr(function, "py_func", function)
    module = getattr(text, "__module__", None) or ""
    ours = module.startswith("refhmc.") and not module.startswith("refhmc.check.") and module != "refhmc.core.binding"
    return ours and not isinstance(function, WithoutData)


@jit_anew
def copy_array(out: np.ndarray, x: np.ndarray) -> None:
    """out <- x, of one shape. (For ``out[:] = x`` Numba compiles a message about shapes, which takes longer than the rest.)"""
    if x.shape != out.shape:
        raise ShapeError("an array of another shape was returned")
    for i in range(out.size):
        out.flat[i] = x.flat[i]


@contextlib.contextmanager
def named(key: str, shape: tuple) -> Iterator[None]:
    """Say whose array :func:`copy_array` refuses."""
    try:
        yield
    except ShapeError as error:
        raise ModelError(f"{key} must return real numbers of shape {shape}: {error}") from None


class _SamePart:
    """A function that equals those which are the same as it part for part."""

    def __init__(self, function: Callable) -> None:
        self.function, self.identity = function, identity_of((function,))
        self._parts: Any = self.identity or object()

    def __hash__(self) -> int:
        return hash(self._parts)

    def __eq__(self, other: Any) -> bool:
        return self._parts == other._parts


def compiled_alone(function: Any) -> Any:
    """A user's function, with what it calls, for the caller's types. One of the position alone takes data, too."""
    if not isinstance(function, WithoutData):
        text = compilable(function)
        return text if hasattr(text, "py_func") else jit_anew(text)
    f: Any = compiled_alone(function.function)
    forms: dict[int, Callable] = {
        1: lambda q, data: f(q),
        2: lambda q, data, x: f(q, x),
        3: lambda q, data, M, out: f(q, M, out),
    }
    return jit_anew(forms[argument_count(function.function)])


def kept(text: Any, *functions: Any) -> Any:
    """``text``, which closes over compiled ``functions``, compiled, and kept where it is known which they are."""
    return jit_of_user(text, functions, identity_with(text, functions))


def _compile_user_function(key: str, function: Callable, unpack: Any) -> Callable:
    """:func:`_compiled_user_function`, or what it made of a function that is the same."""
    return _compiled_user_function(key, _SamePart(function), unpack)


@shared
def _compiled_user_function(key: str, same: _SamePart, unpack: Any) -> Callable:
    """The user's ``f(q, data)`` or ``f(q, data, out)`` in the core's protocol; raises NumbaError if it cannot be.

    It is handed q itself, which it may spoil: :func:`_on_a_copy`. ``out`` holds zeros.
    """
    text: Any
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

        def text(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> Any:
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
            returned = returned_type(f)  # None where the compiled code was there
            if isinstance(returned, NUMERIC) and getattr(returned, "ndim", 0) != axes:
                forget(adapted, signature)
                raise ModelError(f"{key} must return an array of {axes} axes, it returns {returned}")
    return adapted


@shared
def _on_a_copy(function: Callable, contracts: bool) -> Callable:
    """A user's derivative in the core's protocol that works on copies of the position, and of M if it ``contracts``."""
    if contracts:
        return kept(lambda q, data, M, out: function(q.copy(), data, M.copy(), out), function)
    return kept(lambda q, data, out: function(q.copy(), data, out), function)


@shared
def _contract(third_derivative: Callable) -> Callable:
    """``hessian_contraction`` from the full tensor: out[k] = sum_ij M[i, j] T[i, j, k]."""

    def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
        d = q.shape[0]
        T = np.zeros((d, d, d))
        third_derivative(q, data, T)
        out[:] = 0.0
        for i in range(d):
            for j in range(d):
                for k in range(d):
                    out[k] += M[i, j] * T[i, j, k]

    return kept(hessian_contraction, third_derivative)


@shared
def _both(log_density: Callable, gradient: Callable) -> Callable:
    """refhmc's own two functions in one."""

    def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        gradient(q, data, out)
        return log_density(q, data)

    return kept(value_and_gradient, log_density, gradient)


@shared
def _both_on_copies(log_density: Callable, gradient: Callable) -> Callable:
    """A user's two functions in one, each on a copy of the position."""

    def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> Any:
        copy_array(out, q)
        value = log_density(out, data)
        gradient(q.copy(), data, out)
        return value

    return kept(value_and_gradient, log_density, gradient)


@shared
def _density_on_a_copy(log_density: Callable) -> Callable:
    """A user's log density on a copy of the position."""
    return kept(lambda q, data: log_density(q.copy(), data), log_density)


@shared
def _change_from_function(same: _SamePart, unpack: Any, takes_data: bool) -> Any:
    """``log_density_change`` in the core's protocol."""
    f: Any = compiled_alone(same.function)
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
def _change_from_density(log_density: Any) -> Any:
    """The same from the full density, in its core form; j = -1 asks for the density at q itself less the one given."""

    def change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, present: Any) -> Any:
        if j < 0:
            return log_density(q, data) - present
        before = q[j]
        q[j] = new_value
        difference = log_density(q, data) - present
        q[j] = before
        return difference

    return kept(change, log_density)


# ---------------------------------------------------------------------------------------- trampolines into Python

_python_models: weakref.WeakValueDictionary[int, Core] = weakref.WeakValueDictionary()
_handles = itertools.count()
_handles_lock = threading.Lock()


def _call_value_and_gradient(handle: float, q: np.ndarray, out: np.ndarray) -> float:
    core = _python_models[int(handle)]
    core.last_position[threading.get_ident()] = q.copy()
    both = core.model._functions["value_and_gradient"]
    if both is None:
        core.in_place("gradient")(q.copy(), core.data, out)
        return core.python_log_density(q.copy())
    out[:] = 0.0
    try:
        return as_float(both(q.copy(), core.model.data, out), "value_and_gradient")
    except ArithmeticError as error:
        core.failures().record(q, in_words(error))
        out[:] = np.nan
        return -np.inf


@jit_calling_python
def python_value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    handle = data[0, 0]
    with numba.objmode(value="float64"):
        value = _call_value_and_gradient(handle, q, out)
    return value


def _call_metric(handle: Any, key: Any, q: np.ndarray, out: np.ndarray) -> None:
    _python_models[int(handle)].model_derivative(int(key), q, out)


@jit_calling_python
def python_metric(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    handle, key = data[0, 0], data[0, 1]
    with numba.objmode():
        _call_metric(handle, key, q, out)


def _call_trace(handle: Any, key: Any, q: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    _python_models[int(handle)].model_derivative(int(key), q, out, M)


@jit_calling_python
def python_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    handle, key = data[0, 0], data[0, 2]
    with numba.objmode():
        _call_trace(handle, key, q, M, out)


def _call_change(handle: Any, q: np.ndarray, j: int, new_value: float, present: Any) -> Any:
    core = _python_models[int(handle)]
    core.last_position[threading.get_ident()] = q.copy()
    return core.python_change(q, j, new_value, present)


@jit_calling_python
def python_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, present: Any) -> Any:
    handle = data[0, 0]
    with numba.objmode(change="float64"):
        change = _call_change(handle, q, j, new_value, present)
    return change


@jit
def no_metric(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    raise NotImplementedError("this model has no metric")


@jit
def no_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    raise NotImplementedError("this model has no contraction")


@jit
def no_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, log_density: Callable) -> Any:
    if q.shape[0] > 0:  # always; Numba takes the type from what is returned
        raise NotImplementedError("the change of this model's log density is not bound")
    return log_density


# ------------------------------------------------------------------------------------------------------- the model


class Core:
    """A model's functions in the core's protocol. ``tuple`` is what the kernels take."""

    def __init__(self, model: Model) -> None:
        silence_experimental()
        self.model = model
        self.why_python: str | None = None
        self.last_position: dict[int, np.ndarray] = {}  # of each thread, for the report of an exception
        self._failures: dict[int, FailureLog] = {}  # of each thread
        self.data = np.zeros((1, 1))
        self._unpack: Callable | None = None
        self._adapted: dict[Any, Callable] = {}
        functions = model._functions
        as_written = model.to_compile("log_density") is functions["log_density"]
        self.own = not model.in_python and as_written and _is_core(functions["log_density"])
        own_data = model.data if model.data is not None else np.zeros((1, 0))
        packed = (own_data, None) if self.own else (self.data, None) if model.in_python else pack(model.data)
        if packed is None:
            self.why_python = f"data of type {type(model.data).__name__} cannot be passed to compiled code"
        else:
            # An array that another process has shared may be read-only, which is another type to Numba.
            self.data, self._unpack = np.require(packed[0], requirements="W"), packed[1]
        if numba.config.DISABLE_JIT and not self.own:
            self.why_python = "NUMBA_DISABLE_JIT is set"
        if model.in_python:
            self.why_python = model.in_python
        self._log_density, value_and_gradient = self._hot_functions()
        if self.why_python is not None:
            if not numba.config.DISABLE_JIT and not model.in_python:
                warnings.warn(
                    f"model {model.name!r} runs as Python ({self.why_python}). The draws are the same; each call costs "
                    "a few microseconds more.",
                    PythonModelWarning,
                    stacklevel=4,
                )
            with _handles_lock:
                handle = next(_handles)
            _python_models[handle] = self
            self.data = np.array([[float(handle)]])
        self.tuple = (self.data, value_and_gradient, no_metric, no_contraction, no_change)
        self._tuples: dict[tuple, tuple] = {(None, None): self.tuple}

    def words_at(self, q: np.ndarray) -> str:
        """ ": " and why the model could not be evaluated at ``q``, where it says so; else nothing."""
        return self.failures().words_at(q) or self.model.words_at(q)

    def tuple_for(self, metric: Any) -> tuple:
        """``tuple`` with the derivatives that a metric reads. Raises MissingDerivativeError for one that is not there.

        If one of them cannot be compiled, all are called as Python.
        """
        reads = metric.reads
        if self.model.has_diagonals and getattr(metric, "reads_diagonals", False):
            reads = ("hessian_diagonal", "diagonal_contraction")
        return self.tuple_reading(reads, f"the metric {type(metric).__name__}")

    def tuple_reading(self, reads: tuple, needed_by: str) -> tuple:
        """``tuple`` with those two derivatives, None for one that is not wanted."""
        if reads not in self._tuples:
            for key in reads:
                if key is not None:
                    self.model.require(key, needed_by)
            self._tuples[reads] = self._make_tuple(*reads)
        return self._tuples[reads]

    def with_room(self, pointers: tuple) -> tuple:
        """A model's tuple for one chain: with data of its own and the model's ``room`` after them, if it asks for any."""
        if not (self.own and self.model.room):
            return pointers
        data = np.vstack([pointers[0], np.zeros((self.model.room, pointers[0].shape[1]))])
        return (data, *pointers[1:])

    def _make_tuple(self, metric: str, hessian_contraction: str | None) -> tuple:
        data, value_and_gradient, _, _, _ = self.tuple
        if self.why_python is None:
            try:
                pointers = (
                    self._pointer(metric),
                    no_contraction if hessian_contraction is None else self._pointer(hessian_contraction),
                )
                return (data, value_and_gradient, *pointers, no_change)
            except CANNOT_COMPILE as error:
                warnings.warn(
                    f"model {self.model.name!r} runs as Python on this metric (Numba could not compile {metric} "
                    f"or {hessian_contraction}: "
                    f"{first_words(error)}). The draws are the same; each call costs a few microseconds more.",
                    PythonModelWarning,
                    stacklevel=2,
                )
        keys = list(DERIVATIVES)
        codes = [float(keys.index(key)) if key is not None else -1.0 for key in (metric, hessian_contraction)]
        data = self.data_for_trampolines(*codes)
        return (data, python_value_and_gradient, python_metric, python_contraction, no_change)

    def data_for_trampolines(self, metric: float = -1.0, hessian_contraction: float = -1.0) -> np.ndarray:
        """What the trampolines read in the place of the model's data; they do not keep the model alive."""
        with _handles_lock:
            handle = next(_handles)
        _python_models[handle] = self
        return np.array([[float(handle), metric, hessian_contraction]])

    @functools.cached_property
    def tuple_for_changes(self) -> tuple:
        """``tuple`` with the change of the log density, which DHMC asks for."""
        data, value_and_gradient, _, _, _ = self.tuple
        if self.why_python is None:
            try:
                return (data, value_and_gradient, no_metric, no_contraction, self._compiled_change())
            except CANNOT_COMPILE as error:
                warnings.warn(
                    f"model {self.model.name!r} runs as Python in DHMC (Numba could not compile log_density_change: "
                    f"{first_words(error)}). The draws are the same; each call costs a few microseconds more.",
                    PythonModelWarning,
                    stacklevel=2,
                )
        with _handles_lock:
            handle = next(_handles)
        _python_models[handle] = self
        return (np.array([[float(handle)]]), python_value_and_gradient, no_metric, no_contraction, python_change)

    def _compiled_change(self) -> Callable:
        function = self.model._functions["log_density_change"]
        if function is None:
            adapted = _change_from_density(
                made(self._log_density) if self.own else _density_on_a_copy(self._log_density)
            )
        else:
            unpack = None if self.own else self._unpack
            adapted = _change_from_function(_SamePart(function), unpack, argument_count(function) == 4)
        if not numba.config.DISABLE_JIT:
            adapted.compile(types.CHANGE.signature)
        return adapted

    def python_change(self, q: np.ndarray, j: int, new_value: float, present: float) -> float:
        """The change in the core's protocol, from the user's Python."""
        function = self.model._functions["log_density_change"]
        if function is None:
            q = q.copy()
            if j >= 0:
                q[j] = new_value
            return self.python_log_density(q) - present
        data = (self.model.data,) if argument_count(function) == 4 else ()
        return as_float(function(q.copy(), *data, j, new_value), "log_density_change")

    def log_density_change(self, q: np.ndarray, j: int, new_value: float) -> float:
        """L(q with q[j] = new_value) - L(q); ``q`` may be written to, and is as it was afterwards."""
        data, _, _, _, change = self.tuple_for_changes
        full = self.model._functions["log_density_change"] is None
        return float(change(q, data, j, float(new_value), self.log_density(q) if full else 0.0))

    def _pointer(self, key: str) -> Callable:
        function = self.model._functions[key]
        if function is None:  # a trace by way of the full tensor
            full = FULL_TENSOR[key]
            if ("tensor", key) not in self._adapted:
                self._adapted[("tensor", key)] = _contract(self._pointer(full))
            return self._adapted[("tensor", key)]
        if self.own:
            return made(function)
        if ("pointer", key) not in self._adapted:
            self._adapted[("pointer", key)] = _on_a_copy(self._compiled(key), contracts=DERIVATIVES[key][0] == 3)
        return self._adapted[("pointer", key)]

    def _compiled(self, key: str) -> Callable:
        """A user's derivative, compiled; it may spoil its position."""
        if ("compiled", key) not in self._adapted:
            text = self.model.to_compile(key)
            self._adapted[("compiled", key)] = _compile_user_function(key, text, self._unpack)
        return self._adapted[("compiled", key)]

    def _hot_functions(self) -> tuple[Callable, Callable]:
        functions = self.model._functions
        log_density, gradient, both = (functions[k] for k in ("log_density", "gradient", "value_and_gradient"))
        if self.own:
            return log_density, both or _both(made(log_density), made(gradient))
        if self.why_python is None:
            try:
                text = self.model.to_compile("log_density")
                compiled = _compile_user_function("log_density", text, self._unpack)
                if both is not None:
                    return compiled, _on_a_copy(self._compiled("value_and_gradient"), contracts=False)
                return compiled, _both_on_copies(compiled, self._compiled("gradient"))
            except CANNOT_COMPILE as error:
                self.why_python = f"Numba could not compile its log density and gradient: {first_words(error)}"
        return lambda q, data: self.python_log_density(q), python_value_and_gradient

    def python_log_density(self, q: np.ndarray) -> float:
        try:
            return as_float(self.model._functions["log_density"](q, self.model.data), "log_density")
        except ArithmeticError as error:
            self.failures().record(q, in_words(error))
            return -np.inf

    def as_given(self, key: str) -> Callable:
        """The user's function ``f(q, data, ...)`` in the core's protocol, given q itself, which it may spoil."""
        if key == "log_density":
            return self._log_density
        return self._compiled(key) if key == "value_and_gradient" else self.in_place(key)

    def failures(self) -> FailureLog:
        """What this thread's evaluations failed with; :meth:`begin_failures` begins it anew."""
        return self._failures.get(threading.get_ident()) or self.begin_failures()

    def begin_failures(self, control: np.ndarray | None = None) -> FailureLog:
        """An empty log of failures for this thread, whose iterations ``control`` counts."""
        self._failures[threading.get_ident()] = log = FailureLog(control)
        return log

    def log_density(self, q: np.ndarray) -> float:
        return self._log_density(q.copy(), self.data)

    def value_and_gradient(self, q: np.ndarray) -> tuple[float, np.ndarray]:
        out = np.zeros(self.model.dim)
        with named("gradient", out.shape):
            return float(self.tuple[1](q, self.data, out)), out

    def model_derivative(self, key: int, q: np.ndarray, out: np.ndarray, *M: np.ndarray) -> None:
        """A derivative called back from the compiled core, by its place in ``DERIVATIVES``."""
        self.last_position[threading.get_ident()] = q.copy()
        out[...] = self.model._derivative(list(DERIVATIVES)[key], q, *M)

    def in_place(self, key: str) -> Callable:
        """``f(q, data, [M,] out)`` for the derivative named ``key``, compiled if it can be; a user's may spoil q and M."""
        function = self.model._functions[key]
        if self.own:
            return function
        if key not in self._adapted:
            self._adapted[key] = self._python_in_place(key, function)
            if self.why_python is None:
                with contextlib.suppress(*CANNOT_COMPILE):
                    self._adapted[key] = self._compiled(key)
        return self._adapted[key]

    def _python_in_place(self, key: str, function: Callable) -> Callable:
        before_out, axes = DERIVATIVES[key]
        in_place = argument_count(function) > before_out

        def call(q: np.ndarray, data: np.ndarray, *rest: Any) -> None:
            *M, out = rest
            try:
                if in_place:
                    out[:] = 0.0
                    function(q, self.model.data, *M, out)
                else:
                    out[:] = as_array(function(q, self.model.data, *M), out.shape, key)
            except ArithmeticError as error:
                self.failures().record(q, in_words(error))
                out[:] = np.nan

        return call


def in_words(error: ArithmeticError) -> str:
    """The reason that a model gives, or the kind of arithmetic that failed: compiled code goes on there with inf or NaN."""
    return str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}"


def as_float(value: Any, what: str) -> float:
    """``value`` as a float, if it is a real scalar; else :class:`ModelError` with the returned type."""
    if isinstance(value, float):
        return value
    array = np.asarray(value)
    if value is None or array.shape != () or array.dtype.kind not in "fiub":
        kind = f"{type(value).__name__}" + (f" of shape {array.shape}, {array.dtype}" if array.shape else "")
        raise ModelError(f"{what} must return a real number, it returned {kind}")
    return float(array)


def as_array(value: Any, shape: tuple, what: str) -> np.ndarray:
    """``value`` as a float array of that shape; else :class:`ModelError` with what was returned."""
    array = np.asarray(value) if value is not None else np.asarray(None)
    if array.dtype.kind not in "fiub" or array.shape != shape:
        raise ModelError(
            f"{what} must return real numbers of shape {shape}, it returned "
            f"{type(value).__name__} of shape {array.shape}, {array.dtype}"
        )
    return array.astype(float)


def first_words(error: Exception) -> str:
    """The line of Numba's message that tells what it could not compile."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Failed in nopython", "During", "File", "<source"))]
    return (telling or lines or [type(error).__name__])[0][:160]
