"""How refhmc compiles: the one place that knows Numba's options, cache and experimental corners.

Three ideas:

* ``jit`` marks a function of the core. It is compiled when first needed and kept on disk
  (:mod:`refhmc.core.compile_cache`).
* ``entry(signature)`` marks a function that Python calls: one explicit signature, so that the core is
  compiled once per installation whatever the model. Models arrive as Numba *first-class functions*
  (typed pointers), see :mod:`refhmc.core.types`.
* ``plain(f)`` gives the same text back as ordinary Python, all the way down: to run it on complex or
  multi-precision numbers, to step through it, or to put another function in the place of one it calls.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import types as python_types
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numba
from numba import types as nb
from numba.core import cgutils, imputils
from numba.core.errors import NumbaExperimentalFeatureWarning
from numba.core.typing import templates
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from refhmc.core.compile_cache import CompiledCode
from refhmc.core.linking import Last, Part, SelfContained, Whole

# Numba counts references to arrays with calls that cost as much as a small model. Core functions own no array:
# without the runtime (``_nrt``) they cannot allocate, and there is nothing to count.
# What is not said here about sums, inlining and the runtime a function would take from the one for which it is first compiled.
OPTIONS = {"nogil": True, "error_model": "numpy", "fastmath": False, "forceinline": False, "_nrt": True}
CORE = {**OPTIONS, "_nrt": False}
# Sums may be reordered, so that they run in vector registers: the same order on every run, NaN and inf kept.
REORDERED_SUMS: dict[str, Any] = {"fastmath": {"reassoc", "nsz"}}


def _kept_njit(function: Callable, *bound: Any, pipeline_class: Any = SelfContained, **options: Any) -> Any:
    """Numba's ``njit`` with the cache of :mod:`refhmc.core.compile_cache` in the place of its own."""
    dispatcher = numba.njit(pipeline_class=pipeline_class, **options)(function)
    if not numba.config.DISABLE_JIT:
        cache = CompiledCode(function, _announce_once, *bound, part=pipeline_class is Part)
        compile_or_load = dispatcher.compile

        def compile_in_turn(signature: Any) -> Any:
            with cache.turn():
                return compile_or_load(signature)

        dispatcher._cache, dispatcher.compile = cache, compile_in_turn
    return dispatcher


def _with_part(whole: Any, make_part: Callable) -> Any:
    """A dispatcher whose function is compiled as a part (:mod:`refhmc.core.linking`) where compiled code calls it.

    Also where the whole is there already: LLVM changes a text when it makes object code of it, and what callers copy must not
    depend on what was compiled before them. What the whole was declared to return, the part returns.
    """
    if numba.config.DISABLE_JIT:
        return whole

    @functools.cache
    def part() -> Any:
        made = make_part()
        made._compiling_counter = whole._compiling_counter  # of calls to itself, which find the function by it
        return made

    def get_call_template(arguments: Any, keywords: Any) -> Any:
        _, types = whole._compiler.fold_argument_types(arguments, keywords)
        if tuple(types) in whole.overloads:
            part().compile(whole.overloads[tuple(types)].signature)
        return part().get_call_template(arguments, keywords)

    def get_overload(types: Any) -> Any:
        return part().overloads[tuple(types)].entry_point

    whole.get_call_template, whole.get_overload, whole.part = get_call_template, get_overload, part
    return whole


def returned_type(dispatcher: Any) -> Any:
    """What the last version that was compiled returns; None where none was."""
    part = getattr(dispatcher, "part", None)
    versions = [*dispatcher.overloads.values(), *(part().overloads.values() if part else ())]
    return versions[-1].signature.return_type if versions else None


def forget(dispatcher: Any, signature: Any) -> None:
    """Do not keep what was compiled for a signature."""
    if isinstance(getattr(dispatcher, "_cache", None), CompiledCode):
        dispatcher._cache.forget(signature, dispatcher.targetctx.codegen())


def _core_njit(function: Callable, **options: Any) -> Any:
    """A function that is kept, and as a part where the core calls it."""
    options = {**CORE, **options}
    return _with_part(_kept_njit(function, **options), lambda: _kept_njit(function, pipeline_class=Part, **options))


def jit(function: Callable) -> Any:
    """A function of the compiled core: cached, compiled on first use, allocates nothing."""
    return _core_njit(function)


def jit_sum(function: Callable) -> Any:
    """As :func:`jit`, for sums over long vectors, whose terms may be added in another (fixed) order."""
    return _core_njit(function, **REORDERED_SUMS)


def jit_products(function: Callable) -> Any:
    """As :func:`jit_sum`, and a product may be rounded together with the sum it goes into: for matrix products.

    (Not for what is compiled in more than one place and must come out the same: LLVM decides anew in each.)
    """
    return _core_njit(function, fastmath={*REORDERED_SUMS["fastmath"], "contract"})


def jit_part(function: Callable) -> Any:
    """As :func:`jit`, always copied into its caller by LLVM: a part of one, written down by itself."""
    return _core_njit(function, forceinline=True)


def jit_part_sum(function: Callable) -> Any:
    """As :func:`jit_sum`, always copied into its caller by LLVM."""
    return _core_njit(function, forceinline=True, **REORDERED_SUMS)


def jit_template(function: Callable) -> Any:
    """As :func:`jit_part`, for a function that takes a compiled one as an argument: not kept by itself, its callers are."""
    return numba.njit(**{**CORE, "forceinline": True})(function)


def jit_bound(function: Callable, known: Sequence, identity: str | None) -> Any:
    """As :func:`jit`, for a function that closes over compiled ones, ``known``, and is compiled as a whole with all that it
    calls; ``identity`` says which they are (None: not kept)."""
    if identity is None:
        return numba.njit(pipeline_class=Whole, **CORE)(function)
    # Numba numbers the functions of a process; of two that were kept by different ones, the numbers may be the same.
    function.__qualname__ += f".{identity[:24]}"
    return _kept_njit(function, identity, known, pipeline_class=Whole, **CORE)


def jit_of_user(function: Callable, known: Sequence, identity: str | None, *, importable: bool = False) -> Any:
    """As :func:`jit_anew`, for a function that closes over a user's, ``known``; kept, if they have an ``identity``, and if what
    runs as Python in them is ``importable`` (:class:`refhmc.core.compile_cache.CompiledCode`)."""
    if identity is None or numba.config.DISABLE_JIT:
        return jit_anew(function)
    function.__qualname__ += f".{identity[:24]}"  # as in :func:`jit_bound`
    whole = _kept_njit(function, identity, known, importable, **OPTIONS)
    made = _with_part(whole, lambda: numba.njit(pipeline_class=Part, **OPTIONS)(function))
    made.identity = identity
    return made


def of_width(d: int, axes: int = 1) -> Any:
    """A compiled function that gives its argument back as an array whose last axis, or two, are known to have d entries."""
    if numba.config.DISABLE_JIT:
        return lambda array: array

    @intrinsic
    def known(_: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
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

    def borrowed(array: Any) -> Any:
        """The array."""
        return array

else:

    @intrinsic
    def borrowed(_: Any, array: Any) -> Any:
        """The array, whose references are not counted: what is called with it pays nothing for them.

        For compiled code that owns the array and uses it afterwards.
        """

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            there = make_array(array)(context, builder, arguments[0])
            there.meminfo = cgutils.get_null_value(there.meminfo.type)
            there.parent = cgutils.get_null_value(there.parent.type)
            return there._getvalue()

        return array(array), generate


def reshaped(vector: Any, shape: tuple[int, ...]) -> Any:
    """A vector's numbers, one after another, as an array of that shape."""
    return vector.reshape(shape)


if numba.config.DISABLE_JIT:
    shaped = reshaped
else:

    @intrinsic
    def shaped(_: Any, vector: Any, shape: Any) -> Any:
        """:func:`reshaped` of a contiguous vector without a look at the strides, which takes longer than a small model;
        references are not counted, as those of :func:`borrowed`."""
        if vector.layout != "C":
            return None
        kind = nb.Array(vector.dtype, len(shape), "C")

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
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
    """The modules that tell Numba what a call or an attribute stands for, as ``overload`` and ``lower_builtin`` do: compiled
    code may come from there though no name leads there. (An ``intrinsic`` is called by its own name.)"""
    typed, lowered = templates.builtin_registry, imputils.builtin_registry
    told = [getattr(each, "_overload_func", each) for each in (*typed.functions, *typed.attributes)]
    lists = (lowered.functions, lowered.getattrs, lowered.setattrs, lowered.casts, lowered.constants)
    modules = {each.__module__ for each in (*told, *(entry[0] for each in lists for entry in each))}
    return modules - {None}  # that of some of Numba's own, made by exec


def jit_inline(function: Callable) -> Any:
    """As :func:`jit`, copied into its caller before types are inferred: for what depends on the caller's types."""
    return _kept_njit(function, inline="always", **CORE)


def jit_allocating(function: Callable) -> Any:
    """As :func:`jit`, for the few functions that need arrays of their own."""
    return _kept_njit(function, **OPTIONS)


def jit_calling_python(function: Callable) -> Any:
    """As :func:`jit`, for a function that takes the interpreter's lock and calls back into Python."""
    return _kept_njit(function, error_model="numpy", fastmath=False)


def jit_anew(function: Callable) -> Any:
    """For what each process compiles for itself: a user's function, and what is made of one."""
    whole, part = (numba.njit(pipeline_class=each, **OPTIONS) for each in (SelfContained, Part))
    return _with_part(whole(function), lambda: part(function))


if numba.config.DISABLE_JIT:

    def invariant(holds: bool) -> None:
        """Assert what the text relies on; in compiled code, nothing."""
        assert holds

else:

    @numba.njit(**{**CORE, "forceinline": True})
    def invariant(holds: bool) -> None:
        """Assert what the text relies on, where it is plain Python (``NUMBA_DISABLE_JIT=1``); in compiled code, nothing."""


def silence_experimental() -> None:
    """First-class functions are marked experimental in the Numba range we pin; we rely on them by design.

    Numba warns whenever they are typed, so the filter is put back before each such moment: the caller may have reset
    the filters since, and ``-W error`` must not turn this into an exception.
    """
    warnings.filterwarnings("ignore", category=NumbaExperimentalFeatureWarning)


class Compilation(NamedTuple):
    """One thing compiled, or loaded from the cache, in this process."""

    title: str
    seconds: float
    from_cache: bool


log: list[Compilation] = []
announce: list[Callable[[str], None]] = []  # called with a title before each compilation that misses the cache
_compile_lock = threading.RLock()


_unannounced: str | None = None  # the title of what is compiled now, until it is known not to be in the cache


def _announce_once() -> None:
    """Called at each miss of the cache, of which one compilation has many."""
    global _unannounced
    title, _unannounced = _unannounced, None
    if title is not None:
        for listener in list(announce):
            listener(title)


@contextlib.contextmanager
def logged(title: str) -> Iterator[None]:
    """Around a compilation, which is announced and noted in ``log`` under this title."""
    global _unannounced
    with _compile_lock:
        silence_experimental()
        _unannounced = title
        begin = time.perf_counter()
        try:
            yield
            log.append(Compilation(title, time.perf_counter() - begin, _unannounced is not None))
        finally:
            _unannounced = None


def compile_pointer(function: Any, signature: Any, title: str) -> None:
    """Compile a :func:`jit` function for the signature of the pointer it will be passed as, saying so."""
    if not numba.config.DISABLE_JIT and not function.overloads:
        with logged(title):
            function.compile(signature)


class Entry:
    """A compiled function that Python calls, compiled (or loaded from the cache) at its first call."""

    def __init__(self, function: Callable, signature: Callable[[], object], title: str) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.title = title
        self.signature = signature
        self._compiled: Callable | None = None

    @property
    def dispatcher(self) -> Any:
        """Numba's, with the one compiled version."""
        self.compile()
        return self._dispatcher

    def compile(self) -> Callable:
        """Compile now, or load from the cache; recorded in ``refhmc.core.compiled.log``."""
        with _compile_lock:
            if self._compiled is None:
                with logged(self.title):
                    self._dispatcher = dispatcher = _kept_njit(self.py_func, pipeline_class=Last, **CORE)
                    # The one compiled version itself: the dispatcher would look at every argument's type first.
                    self._compiled = dispatcher if numba.config.DISABLE_JIT else dispatcher.compile(self.signature())
        return self._compiled

    def __call__(self, *args: Any) -> Any:
        compiled = self._compiled or self.compile()
        silence_experimental()
        return compiled(*args)


def entry(signature: Callable[[], object], title: str) -> Callable[[Callable], Entry]:
    """Decorator for the functions Python calls; ``signature()`` gives the Numba signature when it is needed."""
    return lambda function: Entry(function, signature, title)


def plain(function: Callable, **replace: Callable) -> Callable:
    """The same text as ordinary Python: every compiled function it calls is made plain too.

    ``replace`` puts other functions in the place of globals of that name, anywhere below: a test counts
    the random decisions of NUTS by replacing ``flip``.
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
