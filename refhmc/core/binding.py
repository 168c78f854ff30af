"""From a model's functions to the four pointers of the compiled core (:mod:`refhmc.core.types`).

The functions of built-in models already follow the in-place protocol, with data in one matrix. A user's functions are
adapted. They are compiled with Numba if possible, and otherwise called back as Python by *trampolines*, so that one set of
compiled kernels serves both. Code compiled from a user's functions is shared by all functions that are equal part for part
(:mod:`refhmc.compile.identity`). It is shared in this process and, if all parts can be inspected, in later ones. (Numba's own
cache does not notice edits of their callees.)
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

from refhmc.compile.compiled import (
    forget,
    jit,
    jit_anew,
    jit_calling_python,
    jit_of_user,
    logged,
    returned_type,
    silence_experimental,
)
from refhmc.compile.identity import identity_of, identity_with
from refhmc.compile.numba_internals import NumbaError, UnsupportedBytecodeError
from refhmc.compile.user_text import WithoutData, compilable
from refhmc.core import types
from refhmc.core.failures import FailureLog
from refhmc.errors import EvaluationError, ModelError, PythonModelWarning, ShapeError, _see

if TYPE_CHECKING:
    from refhmc.models.base import Model

shared = functools.lru_cache(maxsize=256)  # created once for the same compiled functions
CANNOT_COMPILE = (NumbaError, UnsupportedBytecodeError)
NUMERIC = (nb.Number, nb.Boolean, nb.Array, nb.Sequence)
# The full derivative from which a missing contraction is computed.
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
    """Return the number of positional arguments without default, data included, of a plain or compiled function."""
    if isinstance(function, WithoutData):
        return argument_count(function.function) + 1
    parameters = inspect.signature(getattr(function, "py_func", function)).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return sum(p.default is p.empty for p in positional)


def check_arguments(functions: Mapping[str, Any], first: str = "q") -> None:
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


def takes(function: Any, count: int) -> bool:
    """Return whether a function can be called with `count` positional arguments."""
    if isinstance(function, WithoutData):
        return takes(function.function, count - 1)
    try:
        inspect.signature(getattr(function, "py_func", function)).bind(*range(count))
    except TypeError:
        return False
    return True


class Deferred:
    """A function of a model created at its first use: ``make()`` returns it, in the core's protocol."""

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
    """Return `data` as one float64 matrix, and the compiled function that unpacks it.

    None, numbers, arrays, and tuples (named or not) of numbers and arrays can be packed. Integers keep their bits and type,
    and masks remain masks. Returns None for anything else.
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
        kind = np.dtype(f"{array.dtype.kind}{array.dtype.itemsize}").type  # NumPy has several types of one size
        return np.ascontiguousarray(array, dtype=np.int64).ravel().view(np.float64), array.shape, kind
    if array.dtype.kind == "f" and array.ndim <= 3:
        return np.ascontiguousarray(array, dtype=np.float64).ravel(), array.shape, np.float64
    return None


@shared
def taker(start: int, shape: tuple, kind: type) -> Callable:
    """Return the compiled function that takes an array, or a number if the shape is (), out of the packed data."""
    stop = start + int(np.prod(shape, dtype=int))
    if kind is np.bool_:  # an integer array would index instead of mask
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
    """Return the compiled function that returns a tuple of the results of `takers`."""
    first = takers[0]
    if len(takers) == 1:
        return jit_anew(lambda packed: (first(packed),))
    rest = gather(takers[1:])
    return jit_anew(lambda packed: (first(packed),) + rest(packed))


@shared
def as_named(cls: type, gathered: Callable) -> Callable:
    """Return the same as a named tuple of this class."""
    return jit_anew(lambda packed: cls(*gathered(packed)))


# ----------------------------------------------------------------------------------------------- compiled functions


def _is_core(function: Callable | None) -> bool:
    """Return whether a function is refhmc's own: compiled, in place, on packed data; those of ``refhmc.check`` are not."""
    text = getattr(function, "py_func", function)
    module = getattr(text, "__module__", None) or ""
    ours = module.startswith("refhmc.") and not module.startswith("refhmc.check.") and module != "refhmc.core.binding"
    return ours and not isinstance(function, WithoutData)


@jit_anew
def copy_array(out: np.ndarray, x: np.ndarray) -> None:
    """Copy x to out, of equal shapes; for ``out[:] = x``, Numba compiles a message about shapes, which takes longer."""
    if x.shape != out.shape:
        raise ShapeError("it returned an array of another shape")
    for i in range(out.size):
        out.flat[i] = x.flat[i]


@contextlib.contextmanager
def named(key: str, shape: tuple) -> Iterator[None]:
    """Name the derivative whose array :func:`copy_array` rejects."""
    try:
        yield
    except ShapeError as error:
        raise ModelError(f"{key} must return real numbers of shape {shape}; {error}.") from None


class _SamePart:
    """A function that equals those with the same parts."""

    def __init__(self, function: Callable) -> None:
        self.function, self.identity = function, identity_of((function,))
        self._parts: Any = self.identity or object()

    def __hash__(self) -> int:
        return hash(self._parts)

    def __eq__(self, other: Any) -> bool:
        return self._parts == other._parts


def compiled_alone(function: Any) -> Any:
    """Return a user's function, with its callees, for the caller's types; one of the position alone also takes data."""
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
    """Return `text`, whose closure contains compiled `functions`, compiled, and cached if their identity is known."""
    return jit_of_user(text, functions, identity_with(text, functions))


def _compile_user_function(key: str, function: Callable, unpack: Any) -> Callable:
    """Return :func:`_compiled_user_function`, or its result for an equal function."""
    return _compiled_user_function(key, _SamePart(function), unpack)


@shared
def _compiled_user_function(key: str, same: _SamePart, unpack: Any) -> Callable:
    """Return the user's ``f(q, data)`` or ``f(q, data, out)`` in the core's protocol. Raises NumbaError.

    It gets q itself, which it may overwrite: :func:`_on_a_copy`. ``out`` contains zeros.
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
            returned = returned_type(f)  # None if loaded from the cache
            if isinstance(returned, NUMERIC) and getattr(returned, "ndim", 0) != axes:
                forget(adapted, signature)
                raise ModelError(f"{key} must return an array of {axes} axes; it returns {returned}.")
    return adapted


@shared
def _on_a_copy(function: Callable, contracts: bool) -> Callable:
    """Return a user's derivative in the core's protocol on copies of the position, and of M if it `contracts`."""
    if contracts:
        return kept(lambda q, data, M, out: function(q.copy(), data, M.copy(), out), function)
    return kept(lambda q, data, out: function(q.copy(), data, out), function)


@shared
def _contract(third_derivative: Callable) -> Callable:
    """Return ``hessian_contraction`` from the full tensor: out[k] = sum_ij M[i, j] T[i, j, k]."""

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
    """Return two functions of a built-in model as one."""

    def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        gradient(q, data, out)
        return log_density(q, data)

    return kept(value_and_gradient, log_density, gradient)


@shared
def _both_on_copies(log_density: Callable, gradient: Callable) -> Callable:
    """Return two functions of a user as one, each on a copy of the position."""

    def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> Any:
        copy_array(out, q)
        value = log_density(out, data)
        gradient(q.copy(), data, out)
        return value

    return kept(value_and_gradient, log_density, gradient)


@shared
def _density_on_a_copy(log_density: Callable) -> Callable:
    """Return a user's log density on a copy of the position."""
    return kept(lambda q, data: log_density(q.copy(), data), log_density)


@shared
def _change_from_function(same: _SamePart, unpack: Any, takes_data: bool) -> Any:
    """Return ``log_density_change`` in the core's protocol."""
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
    """Return the same from the full density; j = -1 selects the density at q itself minus the given one."""

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
    raise NotImplementedError("This model has no metric.")


@jit
def no_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    raise NotImplementedError("This model has no contraction.")


@jit
def no_change(q: np.ndarray, data: np.ndarray, j: int, new_value: float, log_density: Callable) -> Any:
    if q.shape[0] > 0:  # always true; the return below gives Numba the type
        raise NotImplementedError("This model has no change of the log density.")
    return log_density


# ------------------------------------------------------------------------------------------------------- the model


class Core:
    """A model's functions in the core's protocol; kernels take ``tuple``."""

    def __init__(self, model: Model) -> None:
        silence_experimental()
        self.model = model
        self.why_python: str | None = None
        self.last_position: dict[int, np.ndarray] = {}  # by thread, for the report of an exception
        self._failures: dict[int, FailureLog] = {}  # by thread
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
            # An array shared by another process may be read-only, which is a different type for Numba.
            self.data, self._unpack = np.require(packed[0], requirements="W"), packed[1]
        if numba.config.DISABLE_JIT and not self.own:
            self.why_python = "NUMBA_DISABLE_JIT is set"
        if model.in_python:
            self.why_python = model.in_python
        self._log_density, value_and_gradient = self._hot_functions()
        if self.why_python is not None:
            if not numba.config.DISABLE_JIT and not model.in_python:
                warnings.warn(
                    f"Model {model.name!r} runs as Python ({self.why_python}). The draws are the same, but each call costs a "
                    "few microseconds more. Write the functions so that Numba compiles them, or give a reason with "
                    f"in_python=... to silence this warning. {_see('python-models')}",
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
        """Return ": " and why the model could not be evaluated at `q`, or an empty string."""
        return self.failures().words_at(q) or self.model.words_at(q)

    def tuple_for(self, metric: Any) -> tuple:
        """Return ``tuple`` with the derivatives that a metric needs. Raises MissingDerivativeError.

        If one of them cannot be compiled, all are called as Python.
        """
        reads = metric.reads
        if self.model.has_diagonals and getattr(metric, "reads_diagonals", False):
            reads = ("hessian_diagonal", "diagonal_contraction")
        return self.tuple_reading(reads, f"the metric {type(metric).__name__}")

    def tuple_reading(self, reads: tuple, needed_by: str) -> tuple:
        """Return ``tuple`` with these two derivatives, None for one that is not needed."""
        if reads not in self._tuples:
            for key in reads:
                if key is not None:
                    self.model.require(key, needed_by)
            self._tuples[reads] = self._make_tuple(*reads)
        return self._tuples[reads]

    def with_room(self, pointers: tuple) -> tuple:
        """Return a model's tuple for one chain, with its own data followed by the model's ``room``, if there is any."""
        if not (self.own and self.model.scratch_rows):
            return pointers
        data = np.vstack([pointers[0], np.zeros((self.model.scratch_rows, pointers[0].shape[1]))])
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
                    f"Model {self.model.name!r} runs as Python on this metric (Numba could not compile {metric} "
                    f"or {hessian_contraction}: {first_words(error)}). The draws are the same, but each call costs a few "
                    "microseconds more. Write the functions so that Numba compiles them, or give a reason with "
                    f"in_python=... to silence this warning. {_see('python-models')}",
                    PythonModelWarning,
                    stacklevel=2,
                )
        keys = list(DERIVATIVES)
        codes = [float(keys.index(key)) if key is not None else -1.0 for key in (metric, hessian_contraction)]
        data = self.data_for_trampolines(*codes)
        return (data, python_value_and_gradient, python_metric, python_contraction, no_change)

    def data_for_trampolines(self, metric: float = -1.0, hessian_contraction: float = -1.0) -> np.ndarray:
        """Return what trampolines read instead of the model's data; it does not keep the model alive."""
        with _handles_lock:
            handle = next(_handles)
        _python_models[handle] = self
        return np.array([[float(handle), metric, hessian_contraction]])

    @functools.cached_property
    def tuple_for_changes(self) -> tuple:
        """``tuple`` with the change of the log density for DHMC."""
        data, value_and_gradient, _, _, _ = self.tuple
        if self.why_python is None:
            try:
                return (data, value_and_gradient, no_metric, no_contraction, self._compiled_change())
            except CANNOT_COMPILE as error:
                warnings.warn(
                    f"Model {self.model.name!r} runs as Python in DHMC (Numba could not compile log_density_change: "
                    f"{first_words(error)}). The draws are the same, but each call costs a few microseconds more. Write the "
                    "function so that Numba compiles it, or give a reason with in_python=... to silence this warning. "
                    f"{_see('python-models')}",
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
        """Return the change in the core's protocol, from the user's Python."""
        function = self.model._functions["log_density_change"]
        if function is None:
            q = q.copy()
            if j >= 0:
                q[j] = new_value
            return self.python_log_density(q) - present
        data = (self.model.data,) if argument_count(function) == 4 else ()
        return as_float(function(q.copy(), *data, j, new_value), "log_density_change")

    def log_density_change(self, q: np.ndarray, j: int, new_value: float) -> float:
        """Return L(q with q[j] = new_value) - L(q). `q` may be modified, and is restored."""
        data, _, _, _, change = self.tuple_for_changes
        full = self.model._functions["log_density_change"] is None
        return float(change(q, data, j, float(new_value), self.log_density(q) if full else 0.0))

    def _pointer(self, key: str) -> Callable:
        function = self.model._functions[key]
        if function is None:  # contract the full tensor
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
        """Return a user's derivative, compiled; it may overwrite its position."""
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
        """Return the user's function ``f(q, data, ...)`` in the core's protocol, given q itself, which it may overwrite."""
        if key == "log_density":
            return self._log_density
        return self._compiled(key) if key == "value_and_gradient" else self.in_place(key)

    def failures(self) -> FailureLog:
        """Return the failures of this thread's evaluations; :meth:`begin_failures` starts a new log."""
        return self._failures.get(threading.get_ident()) or self.begin_failures()

    def begin_failures(self, control: np.ndarray | None = None) -> FailureLog:
        """Start an empty log of failures for this thread, whose iterations `control` counts."""
        self._failures[threading.get_ident()] = log = FailureLog(control)
        return log

    def log_density(self, q: np.ndarray) -> float:
        return self._log_density(q.copy(), self.data)

    def value_and_gradient(self, q: np.ndarray) -> tuple[float, np.ndarray]:
        out = np.zeros(self.model.dim)
        with named("gradient", out.shape):
            return float(self.tuple[1](q, self.data, out)), out

    def model_derivative(self, key: int, q: np.ndarray, out: np.ndarray, *M: np.ndarray) -> None:
        """Evaluate a derivative called back from the compiled core, by its index in ``DERIVATIVES``."""
        self.last_position[threading.get_ident()] = q.copy()
        out[...] = self.model._derivative(list(DERIVATIVES)[key], q, *M)

    def in_place(self, key: str) -> Callable:
        """Return ``f(q, data, [M,] out)`` for a derivative, compiled if possible; a user's may overwrite q and M."""
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
    """Return the reason that a model gives, or the kind of arithmetic error: compiled code continues with inf or NaN."""
    return str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}"


def as_float(value: Any, what: str) -> float:
    """Return `value` as a float, or raise :class:`ModelError` unless it is a real scalar."""
    if isinstance(value, float):
        return value
    array = np.asarray(value)
    if value is None or array.shape != () or array.dtype.kind not in "fiub":
        kind = f"{type(value).__name__}" + (f" of shape {array.shape}, {array.dtype}" if array.shape else "")
        raise ModelError(f"{what} must return a real number; it returned {kind}.")
    return float(array)


def as_array(value: Any, shape: tuple, what: str) -> np.ndarray:
    """Return `value` as a float array of this shape, or raise :class:`ModelError`."""
    array = np.asarray(value) if value is not None else np.asarray(None)
    if array.dtype.kind not in "fiub" or array.shape != shape:
        raise ModelError(
            f"{what} must return real numbers of shape {shape}; it returned "
            f"{type(value).__name__} of shape {array.shape}, {array.dtype}."
        )
    return array.astype(float)


def first_words(error: Exception) -> str:
    """Return the line of Numba's message that describes what it could not compile."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Failed in nopython", "During", "File", "<source"))]
    return (telling or lines or [type(error).__name__])[0][:160]
