"""How refhmc compiles: the only module that deals with Numba's options, cache and experimental features.

* ``jit`` marks a function of the core. It is compiled when first needed and cached on disk
  (:mod:`refhmc.compile.compile_cache`).
* ``entry(signature)`` marks a function that Python calls. It has one explicit signature, so that the core is compiled once per
  installation, whatever the model. Models are passed as Numba *first-class functions* (typed pointers), see
  :mod:`refhmc.core.types`.
* ``plain(f)`` returns the same source as ordinary Python, including all callees. Use it to run with complex or multi-precision
  numbers, to step through the code, or to replace a callee.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import time
import types as python_types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types as nb
from numba.extending import intrinsic

from refhmc.compile.compile_cache import CompiledCode
from refhmc.compile.linking import Last, Part, SelfContained, Whole
from refhmc.compile.numba_internals import (
    CPUContext,
    Dispatcher,
    NumbaExperimentalFeatureWarning,
    Signature,
    cgutils,
    imputils,
    ir,
    make_array,
    populate_array,
    templates,
)

# Numba's reference counting of arrays costs as much as a small model. Core functions own no arrays:
# without the runtime (``_nrt``), they cannot allocate, and nothing is counted.
# All options are explicit, because a function inherits missing ones from its first caller.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": False, "forceinline": False, "_nrt": True}
CORE = {**OPTIONS, "_nrt": False}
# Sums may be reordered for vector registers: the order is the same in every run, and NaN and inf are kept.
REORDERED_SUMS: dict[str, Any] = {"fastmath": {"reassoc", "nsz"}}


def _kept_njit(
    function: Callable, *bound: Any, pipeline_class: type[SelfContained] = SelfContained, **options: Any
) -> Dispatcher:
    """Return Numba's ``njit`` with the cache of :mod:`refhmc.compile.compile_cache` instead of its own."""
    dispatcher = numba.njit(pipeline_class=pipeline_class, **options)(function)
    if not numba.config.DISABLE_JIT:
        cache = CompiledCode(function, _announce_once, *bound, part=pipeline_class is Part)
        compile_or_load = dispatcher.compile

        def compile_in_turn(signature: Signature | tuple) -> Callable:
            with cache.turn():
                return compile_or_load(signature)

        dispatcher._cache, dispatcher.compile = cache, compile_in_turn
    return dispatcher


def _with_part(whole: Any, make_part: Callable[[], Dispatcher]) -> Dispatcher:
    """Return a dispatcher whose function is compiled as a part (:mod:`refhmc.compile.linking`) for compiled callers.

    This holds even if the whole function is already compiled. LLVM changes code when it generates object code, and what
    callers copy must not depend on earlier compilations. The part has the declared return type of the whole.
    """
    if numba.config.DISABLE_JIT:
        return whole

    @functools.cache
    def part() -> Dispatcher:
        made = make_part()
        made._compiling_counter = whole._compiling_counter  # recursive calls find the function by it
        return made

    def get_call_template(arguments: tuple, keywords: dict[str, nb.Type]) -> tuple:
        _, types = whole._compiler.fold_argument_types(arguments, keywords)
        if tuple(types) in whole.overloads:
            part().compile(whole.overloads[tuple(types)].signature)
        return part().get_call_template(arguments, keywords)

    def get_overload(types: Sequence[nb.Type]) -> Callable:
        return part().overloads[tuple(types)].entry_point

    whole.get_call_template, whole.get_overload, whole.part = get_call_template, get_overload, part
    return whole


def returned_type(dispatcher: Dispatcher) -> nb.Type | None:
    """Return the return type of the last compiled version, or None if there is none."""
    part = getattr(dispatcher, "part", None)
    versions = [*dispatcher.overloads.values(), *(part().overloads.values() if part else ())]
    return versions[-1].signature.return_type if versions else None


def forget(dispatcher: Any, signature: Signature) -> None:
    """Remove the cached code of a signature."""
    if isinstance(getattr(dispatcher, "_cache", None), CompiledCode):
        dispatcher._cache.forget(signature, dispatcher.targetctx.codegen())


def is_cached(function: Any, signature: Signature | None) -> bool:
    """Return whether code of the signature is compiled or cached, or cannot be cached; an Entry has its own signature."""
    if isinstance(function, Entry):
        function, signature = function._dispatcher, function.signature()
    if function.overloads or not isinstance(function._cache, CompiledCode):
        return True
    path = function._cache.path(signature, function.targetctx.codegen())
    return path is None or path.exists()


def _core_njit(function: Callable, **options: Any) -> Dispatcher:
    """Return a cached function, compiled as a part for callers in the core."""
    options = {**CORE, **options}
    return _with_part(_kept_njit(function, **options), lambda: _kept_njit(function, pipeline_class=Part, **options))


def jit(function: Callable) -> Dispatcher:
    """Return a function of the compiled core: cached, compiled at first use, without allocations."""
    return _core_njit(function)


def jit_sum(function: Callable) -> Dispatcher:
    """Return a function as :func:`jit`, for sums over long vectors, whose terms may be added in another (fixed) order."""
    return _core_njit(function, **REORDERED_SUMS)


def jit_products(function: Callable) -> Dispatcher:
    """Return a function as :func:`jit_sum` that may fuse products with sums: for matrix products.

    (Not for code that is compiled in several places and must agree: LLVM decides separately in each.)
    """
    return _core_njit(function, fastmath={*REORDERED_SUMS["fastmath"], "contract"})


def jit_part(function: Callable) -> Dispatcher:
    """Return a function as :func:`jit` that LLVM always inlines: a section of one, written separately."""
    return _core_njit(function, forceinline=True)


def jit_part_sum(function: Callable) -> Dispatcher:
    """Return a function as :func:`jit_sum` that LLVM always inlines."""
    return _core_njit(function, forceinline=True, **REORDERED_SUMS)


def jit_template(function: Callable) -> Dispatcher:
    """Return a function as :func:`jit_part` that takes a compiled function as argument; only its callers are cached."""
    return numba.njit(**{**CORE, "forceinline": True})(function)


def jit_bound(function: Callable, known: Sequence, identity: str | None) -> Dispatcher:
    """Return a function as :func:`jit`, whose closure has compiled functions, `known`, compiled with all its callees.

    `identity` identifies these functions; if it is None, the code is not cached.
    """
    if identity is None:
        return numba.njit(pipeline_class=Whole, **CORE)(function)
    # Numba numbers the functions of a process; functions cached by different processes may share a number.
    function.__qualname__ += f".{identity[:24]}"
    return _kept_njit(function, identity, known, pipeline_class=Whole, **CORE)


def jit_of_user(function: Callable, known: Sequence, identity: str | None, *, importable: bool = False) -> Dispatcher:
    """Return a function as :func:`jit_anew`, whose closure has a user's functions, `known`.

    It is cached if they have an `identity`, and if what runs as Python in them is `importable`
    (:class:`refhmc.compile.compile_cache.CompiledCode`).
    """
    if identity is None or numba.config.DISABLE_JIT:
        return jit_anew(function)
    function.__qualname__ += f".{identity[:24]}"  # as in :func:`jit_bound`
    whole = _kept_njit(function, identity, known, importable, **OPTIONS)
    made: Any = _with_part(whole, lambda: numba.njit(pipeline_class=Part, **OPTIONS)(function))
    made.identity = identity
    return made


def of_width(d: int, axes: int = 1) -> Callable[[np.ndarray], np.ndarray]:
    """Return a compiled identity function that declares the last axis, or the last two, to have d entries."""
    if numba.config.DISABLE_JIT:
        return lambda array: array

    @intrinsic
    def known(_: object, array: nb.Array) -> tuple[Signature, Callable]:
        def generate(
            context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
        ) -> ir.Value:
            there = make_array(array)(context, builder, arguments[0])
            shape, strides = (cgutils.unpack_tuple(builder, each, array.ndim) for each in (there.shape, there.strides))
            for k in range(1, axes + 1):
                shape[-k] = context.get_constant(nb.intp, d)
            for k in range(1, min(axes + 1, array.ndim) + 1):
                strides[-k] = context.get_constant(nb.intp, 8 * d ** (k - 1))
            there.shape, there.strides = cgutils.pack_array(builder, shape), cgutils.pack_array(builder, strides)
            return there._getvalue()

        return array(array), generate

    return known


if numba.config.DISABLE_JIT:

    def borrowed(array: np.ndarray) -> np.ndarray:
        """Return the array."""
        return array

else:

    @intrinsic
    def borrowed(_: object, array: nb.Array) -> tuple[Signature, Callable]:
        """Return the array without reference counting, for compiled code that owns it and uses it afterwards."""

        def generate(
            context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
        ) -> ir.Value:
            there = make_array(array)(context, builder, arguments[0])
            there.meminfo = cgutils.get_null_value(there.meminfo.type)
            there.parent = cgutils.get_null_value(there.parent.type)
            return there._getvalue()

        return array(array), generate


def reshaped(vector: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the entries of a vector as an array of this shape."""
    return vector.reshape(shape)


if numba.config.DISABLE_JIT:
    shaped = reshaped
else:

    @intrinsic
    def shaped(_: object, vector: nb.Array, shape: nb.BaseTuple) -> tuple[Signature, Callable] | None:
        """Return :func:`reshaped` of a contiguous vector without checking strides and without reference counting."""
        if vector.layout != "C":
            return None
        kind = nb.Array(vector.dtype, len(shape), "C")

        def generate(
            context: CPUContext, builder: ir.IRBuilder, signature: Signature, arguments: Sequence[ir.Value]
        ) -> ir.Value:
            there, made = make_array(vector)(context, builder, arguments[0]), make_array(kind)(context, builder)
            lengths = cgutils.unpack_tuple(builder, arguments[1], len(shape))
            strides = [context.get_constant(nb.intp, vector.dtype.bitwidth // 8)][: len(lengths)]
            for length in lengths[:0:-1]:
                strides.insert(0, builder.mul(strides[0], length))
            populate_array(made, there.data, lengths, strides, there.itemsize, None)
            return made._getvalue()

        return kind(vector, nb.UniTuple(nb.intp, len(shape)) if len(shape) else shape), generate

    shaped.py_func = reshaped  # type: ignore[attr-defined]


def extenders() -> set[str]:
    """Return the modules that extend Numba by ``overload``, ``lower_builtin`` and the like.

    Compiled code may come from there although no name leads there. (An ``intrinsic`` is called by its own name.)
    """
    typed, lowered = templates.builtin_registry, imputils.builtin_registry
    overloads = [getattr(each, "_overload_func", each) for each in (*typed.functions, *typed.attributes)]
    lists = (lowered.functions, lowered.getattrs, lowered.setattrs, lowered.casts, lowered.constants)
    modules = {each.__module__ for each in (*overloads, *(entry[0] for each in lists for entry in each))}
    return modules - {None}  # some of Numba's own, created by exec


def jit_inline(function: Callable) -> Dispatcher:
    """Return a function as :func:`jit`, inlined before type inference: for code that depends on the caller's types."""
    return _kept_njit(function, inline="always", **CORE)


def jit_allocating(function: Callable) -> Dispatcher:
    """Return a function as :func:`jit`, for the few functions that allocate arrays."""
    return _kept_njit(function, **OPTIONS)


def jit_calling_python(function: Callable) -> Dispatcher:
    """Return a function as :func:`jit` that takes the GIL and calls back into Python."""
    return _kept_njit(function, error_model="numpy", fastmath=False)


def jit_anew(function: Callable) -> Dispatcher:
    """Return a function that each process compiles for itself: a user's function, and what is derived from it."""
    whole, part = (numba.njit(pipeline_class=each, **OPTIONS) for each in (SelfContained, Part))
    return _with_part(whole(function), lambda: part(function))


if numba.config.DISABLE_JIT:

    def invariant(holds: bool) -> None:
        """Assert an invariant; do nothing in compiled code."""
        assert holds

else:

    @numba.njit(**{**CORE, "forceinline": True})
    def invariant(holds: bool) -> None:
        """Assert an invariant in plain Python (``NUMBA_DISABLE_JIT=1``); do nothing in compiled code."""


def silence_experimental() -> None:
    """Filter Numba's warning that first-class functions are experimental; refhmc relies on them.

    Numba warns whenever they are typed. The filter is set again before each such moment, because the caller may have reset
    the filters, and ``-W error`` must not turn the warning into an exception.
    """
    warnings.filterwarnings("ignore", category=NumbaExperimentalFeatureWarning)


class Compilation(NamedTuple):
    """One function compiled, or loaded from the cache, in this process."""

    title: str
    seconds: float
    from_cache: bool


log: list[Compilation] = []
announce: list[Callable[[str], None]] = []  # called with a title before each compilation that misses the cache
_compile_lock = threading.RLock()


_unannounced: str | None = None  # title of the present compilation, until it misses the cache


def _announce_once() -> None:
    """Notify the listeners at the first cache miss of a compilation, which may have many."""
    global _unannounced
    title, _unannounced = _unannounced, None
    if title is not None:
        for listener in list(announce):
            listener(title)


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Context in which Python rarely collects garbage: Numba makes millions of objects, few of them in reference cycles.

    This saves a tenth of the compile time.
    """
    usual = gc.get_threshold()
    gc.set_threshold(50_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@contextlib.contextmanager
def logged(title: str) -> Iterator[None]:
    """Context of a compilation, which is announced and recorded in ``log`` with this title."""
    global _unannounced
    with _compile_lock, few_collections():
        silence_experimental()
        _unannounced = title
        begin = time.perf_counter()
        try:
            yield
            log.append(Compilation(title, time.perf_counter() - begin, _unannounced is not None))
        finally:
            _unannounced = None


def compile_pointer(function: Any, signature: Signature, title: str) -> None:
    """Compile a :func:`jit` function for the signature of its pointer, and log it."""
    if not numba.config.DISABLE_JIT and not function.overloads:
        with logged(title):
            function.compile(signature)


class Entry:
    """A compiled function called by Python, compiled (or loaded from the cache) at its first call."""

    def __init__(self, function: Callable, signature: Callable[[], Signature], title: str) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.title = title
        self.signature = signature
        self._compiled: Callable | None = None

    @functools.cached_property
    def _dispatcher(self) -> Any:
        return _kept_njit(self.py_func, pipeline_class=Last, **CORE)

    @property
    def dispatcher(self) -> Any:
        """Numba's dispatcher, with one compiled version."""
        self.compile()
        return self._dispatcher

    def compile(self) -> Callable:
        """Compile now, or load from the cache, and record it in ``refhmc.compile.compiled.log``."""
        with _compile_lock:
            if self._compiled is None:
                with logged(self.title):
                    # The compiled version itself, because the dispatcher would check all argument types.
                    whole = self._dispatcher
                    self._compiled = whole if numba.config.DISABLE_JIT else whole.compile(self.signature())
        return self._compiled

    def __call__(self, *args: Any) -> Any:
        compiled = self._compiled or self.compile()
        silence_experimental()
        return compiled(*args)


def entry(signature: Callable[[], Signature], title: str) -> Callable[[Callable], Entry]:
    """Decorate a function that Python calls; ``signature()`` returns the Numba signature when it is needed."""
    return lambda function: Entry(function, signature, title)


def plain(function: Callable, **replace: Callable) -> Callable:
    """Return the same source as ordinary Python; all compiled callees become plain, too.

    `replace` substitutes globals by name at any depth: a test counts the random decisions of NUTS by replacing ``flip``.
    """
    done: dict[int, Callable] = {}

    def convert(value: Any) -> Any:
        inner = getattr(value, "py_func", None)
        if inner is None:
            return value
        if id(value) not in done:
            names = {**inner.__globals__}
            copy = python_types.FunctionType(
                inner.__code__, names, inner.__name__, inner.__defaults__, inner.__closure__
            )
            done[id(value)] = copy
            for name in inner.__code__.co_names:
                if name in replace:
                    names[name] = replace[name]
                elif name in names:
                    names[name] = convert(names[name])
        return done[id(value)]

    return convert(function) if hasattr(function, "py_func") else function
