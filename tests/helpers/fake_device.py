"""A device without a GPU: modules ``cupy`` and ``array_api_compat.cupy`` whose arrays are NumPy's in a box that is as closed
as a GPU's memory.

An array of the box has what CuPy's ndarray has and this project may use: operators, in-place writing, indices, ``.get()``. It
has no ``.mT`` (CuPy before 14) and no loop over its rows; NumPy's functions do not take it, ``__array__`` raises TypeError as
CuPy's does, and so does an operand that is a ``numpy.ndarray``. ``linalg.solve`` does not broadcast, as CuPy's. The numbers
are NumPy's, so that a run on the device must be the run on NumPy bit for bit.

:data:`count` has how often Python waited for the device (``synchronisations``: bool(), int(), nonzero, an index that is a
mask), what was sent (``to_device``: arrays; ``pinned``: those of them that lay in page-locked memory; ``to_host``: ``.get()``),
and ``launches``, operations on arrays.

Streams are as careless as CUDA's. An array that is sent on a stream beside the default one may be read on the default one only
after that has waited for an event recorded there since; and its memory, once it is let go, is taken by what is sent there next,
which must have waited for an event recorded after the last that was read of it. What a GPU would not notice raises
RuntimeError here. ``ahead`` counts arrays that were sent beside operations still under way.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import pathlib
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections import Counter
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np

count: Counter = Counter()
ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
    "matmul",
)
POOL = 2**20  # bytes that CuPy keeps for later arrays
SCALARS = (bool, int, float, complex, np.generic)


def inside(x):
    """The NumPy array of an argument; TypeError for one that lies on the host."""
    if isinstance(x, ndarray):
        return x.host
    if isinstance(x, np.ndarray):
        raise TypeError(f"Unsupported type {type(x)}")
    if isinstance(x, tuple | list):
        return type(x)(inside(each) for each in x)
    return x


def boxed(x):
    """Arrays, and NumPy's scalars, which are arrays on a device, in the box."""
    if isinstance(x, np.ndarray | np.generic):
        return ndarray(np.asarray(x))
    if isinstance(x, tuple | list):
        return tuple(boxed(each) for each in x)
    return x


def waits(x):
    """Python wants to know a number that is on the device."""
    count["synchronisations"] += 1
    return x


def index(key):
    """The key of an indexing; a mask is waited for."""
    for each in key if isinstance(key, tuple) else (key,):
        if isinstance(each, ndarray) and each.dtype == bool:
            waits(each)
    return inside(key)


class ndarray:
    """``sent``: where it is, or is a view of, an array that was sent on another stream, its :class:`Sent`."""

    __slots__ = ("sent", "values")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values, sent=None):
        self.values, self.sent = values, sent

    @property
    def host(self):
        """The values, read on the current stream."""
        if self.sent is not None:
            self.sent.read()
        return self.values

    shape = property(lambda self: self.values.shape)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)
    dtype = property(lambda self: self.values.dtype)
    nbytes = property(lambda self: self.values.nbytes)
    T = property(lambda self: ndarray(self.host.T))

    def get(self):
        count["to_host"] += 1
        return self.host.copy()

    def item(self):
        return waits(self).host.item()

    def __array__(self, *arguments, **keywords):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_function__(self, function, *_):
        raise TypeError(f"numpy.{function.__name__} was given an array of the device")

    def __array_ufunc__(self, ufunc, method, *inputs, **keywords):
        if method == "__call__" and all(isinstance(x, ndarray | np.generic) for x in inputs) and len(inputs) == 2:
            count["launches"] += 1  # a NumPy scalar beside an array of the device
            return boxed(ufunc(*map(inside, inputs)))
        raise TypeError(f"numpy.{ufunc.__name__} was given an array of the device")

    def __iter__(self):
        raise TypeError("a loop over the rows of an array of the device")

    def __len__(self):
        return len(self.values)

    def __bool__(self):
        return bool(waits(self).host)

    def __int__(self):
        return int(waits(self).host)

    def __float__(self):
        return float(waits(self).host)

    def __repr__(self):
        return f"device {self.host!r}"

    def __getitem__(self, key):
        count["launches"] += 1
        return viewing(boxed(self.host[index(key)]), [self])

    def __setitem__(self, key, value):
        if not isinstance(value, (ndarray, *SCALARS)):
            raise TypeError(f"Unsupported type {type(value)}")
        count["launches"] += 1
        self.host[index(key)] = inside(value)

    def astype(self, dtype, copy=True):
        return viewing(ndarray(self.host.astype(dtype, copy=copy)), [self])

    def copy(self):
        return ndarray(self.host.copy())

    def sum(self):
        return boxed(self.host.sum())


def _operator(name, function, swapped=False):
    def apply(self, other):
        if not isinstance(other, (ndarray, *SCALARS)):
            raise TypeError(f"Unsupported type {type(other)}")
        count["launches"] += 1
        x, y = (inside(other), self.host) if swapped else (self.host, inside(other))
        return boxed(function(x, y))

    apply.__name__ = name
    return apply


def _alone(function):
    def apply(self):
        count["launches"] += 1
        return boxed(function(self.host))

    return apply


for _name in ARITHMETIC:
    _function = getattr(operator, f"__{_name}__")
    setattr(ndarray, f"__{_name}__", _operator(_name, _function))
    setattr(ndarray, f"__r{_name}__", _operator(_name, _function, swapped=True))
for _name in ("lt", "le", "eq", "ne", "gt", "ge"):
    setattr(ndarray, f"__{_name}__", _operator(_name, getattr(operator, _name)))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(ndarray, f"__{_name}__", _alone(getattr(operator, _name)))


def _function_on_device(function):
    def apply(*arguments, **keywords):
        count["launches"] += 1
        if function in (np.nonzero, np.unique):
            waits(None)
        found = boxed(function(*map(inside, arguments), **{name: inside(x) for name, x in keywords.items()}))
        return viewing(found, arguments)

    return apply


def viewing(found, arguments):
    """An answer that shares its memory with an argument that was sent."""
    for x in arguments:
        both = isinstance(x, ndarray) and isinstance(found, ndarray)
        if both and x.sent is not None and np.may_share_memory(found.values, x.values):
            found.sent = x.sent
    return found


def asarray(x, dtype=None, copy=None):
    if isinstance(x, ndarray):
        return viewing(ndarray(np.asarray(x.host, dtype=dtype, copy=copy)), [x])
    count["to_device"] += 1
    count["pinned"] += isinstance(x, np.ndarray) and is_pinned(x)
    values = np.array(inside(x) if isinstance(x, tuple | list) else x, dtype=dtype)
    return ndarray(values, None if Stream.current is Stream.null else Sent(Stream.current))


# ------------------------------------------------------------------------------------- streams, page-locked memory


class Event:
    """``at``: operations of the default stream, or arrays sent on another, before it was recorded"""

    def __init__(self, stream):
        self.stream, self.at = stream, stream.now()


class Stream:
    """``sent``: arrays sent on it; ``knows``: up to which operation of each other stream it has waited; ``freed``: the last
    operation that read memory which is free again."""

    def __init__(self, null=False, non_blocking=False):
        if not (null or non_blocking):
            raise RuntimeError("a stream that waits for the default stream overlaps with nothing")
        self.sent, self.knows, self.freed = 0, {}, 0

    def now(self):
        return count["launches"] if self is Stream.null else self.sent

    def record(self):
        return Event(self)

    def wait_event(self, event):
        self.knows[event.stream] = max(self.knows.get(event.stream, 0), event.at)

    def __enter__(self):
        self.before, Stream.current = Stream.current, self
        return self

    def __exit__(self, *_):
        Stream.current = self.before


Stream.null = Stream.current = Stream(null=True)


class Sent:
    """Memory of a stream, from its pool."""

    def __init__(self, stream):
        known = stream.knows.get(Stream.null, 0)
        self.stream, self.at, self.last_read = stream, stream.sent + 1, 0
        if stream.freed > known:
            raise RuntimeError("sent into memory that another stream may still read")
        count["ahead"] += known < Stream.null.now()
        stream.sent += 1

    def read(self):
        if Stream.current is not self.stream:
            if Stream.current.knows.get(self.stream, 0) < self.at:
                raise RuntimeError("read before it is known to be there")
            self.last_read = count["launches"]

    def __del__(self):
        self.stream.freed = max(self.stream.freed, self.last_read)


class Device(contextlib.nullcontext):
    id = 0


class CUDARuntimeError(RuntimeError):
    __module__ = "cupy_backends.cuda.api.runtime"


class OutOfMemoryError(MemoryError):
    __module__ = "cupy.cuda.memory"


class PinnedMemory:
    """``most``: bytes that the system gives at a time"""

    most = 2**30

    def __init__(self, size):
        if size > self.most:
            raise CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
        self.size = size


class PinnedMemoryPointer(bytearray):
    """As memory of the host, which NumPy takes as a buffer."""

    there: ClassVar[weakref.WeakSet] = weakref.WeakSet()
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __init__(self, memory, offset):
        super().__init__(memory.size - offset)
        self.there.add(self)


def is_pinned(x):
    """As CuPy asks: by its address. Rows that are not one after another are copied before they are sent."""
    begins = (np.frombuffer(memory, np.uint8) for memory in PinnedMemoryPointer.there)
    ranges = [(each.ctypes.data, each.ctypes.data + each.size) for each in begins]
    return x.flags.c_contiguous and any(a <= x.ctypes.data < b for a, b in ranges)


def _solve(A, b):
    if A.shape[:-1] != b.shape[:-1]:  # as CuPy 14.2's
        raise ValueError("a must have (..., M, M) shape and b must have (..., M, K) for multidimensional b")
    return boxed(np.linalg.solve(A.host, b.host))


NAMES = {
    "constants": "bool int8 int16 int32 int64 uint8 uint64 float32 float64 inf nan pi e newaxis",
    "functions": """abs add all any arange argmax argmin argsort astype atan2 broadcast_arrays broadcast_to ceil clip concat
        copysign cos cosh cumulative_prod cumulative_sum divide empty equal exp expand_dims expm1 eye flip floor full full_like
        isfinite isinf isnan linspace log log1p logaddexp logical_and logical_not logical_or matmul matrix_transpose max maximum
        mean min minimum moveaxis multiply nonzero ones ones_like permute_dims pow prod reshape roll round sign signbit sin sinh
        sort sqrt square squeeze stack subtract sum take take_along_axis tan tanh tril triu unique vecdot where zeros
        zeros_like""",
    "linalg": "cholesky diagonal eigh inv matmul matrix_transpose qr slogdet svd trace vecdot",
}
CONSTANTS, FUNCTIONS, LINALG = (names.split() for names in NAMES.values())


class ElementwiseKernel:
    """A kernel in C for int64 arguments and one float64 result, compiled for the CPU; it is one launch."""

    def __init__(self, in_params, out_params, operation, name):
        inputs = [each.split()[1] for each in in_params.split(",")]
        assert in_params == ", ".join(f"int64 {each}" for each in inputs)
        kind, self.out = out_params.split()
        assert kind == "float64"
        loads = "".join(f"const long long {each} = in_{each}[i]; " for each in inputs)
        code = f"""
            static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {{
                return ((unsigned __int128)a * b) >> 64;
            }}
            void {name}(long long n, {", ".join(f"const long long *in_{each}" for each in inputs)}, double *out) {{
                for (long long i = 0; i < n; ++i) {{ {loads} double {self.out}; {operation} out[i] = {self.out}; }}
            }}"""
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder) / "kernel.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=code, text=True, check=True)
            self.function = getattr(ctypes.CDLL(str(library)), name)

    def __call__(self, *arguments):
        count["launches"] += 1
        given = [np.asarray(inside(each)) for each in arguments]
        assert all(each.dtype == np.int64 for each in given)
        given = [np.ascontiguousarray(each) for each in np.broadcast_arrays(*given)]
        out = np.empty(given[0].shape)
        self.function(ctypes.c_longlong(out.size), *(ctypes.c_void_p(each.ctypes.data) for each in (*given, out)))
        return ndarray(out)


def fuse(function):
    """A function whose operations are one launch; it must not wait, read or send numbers."""

    @functools.wraps(function)
    def apply(*arguments):
        before = Counter(count)
        found = function(*arguments)
        after = Counter(count)
        if {name: after[name] - before[name] for name in after if name != "launches" and after[name] != before[name]}:
            raise TypeError("Cannot convert to Python scalar in cupy.fuse")
        count["launches"] = before["launches"] + 1
        return found

    return apply


def modules():
    """``cupy`` and ``array_api_compat.cupy``, by their names; the device is "FakeDevice", with 1 GiB free."""
    cupy, xp = ModuleType("cupy"), ModuleType("array_api_compat.cupy")
    for module in (cupy, xp):
        for name in CONSTANTS:
            setattr(module, name, getattr(np, name))
        for name in FUNCTIONS:
            setattr(module, name, _function_on_device(getattr(np, name)))
        module.linalg = SimpleNamespace(
            solve=_solve, **{name: _function_on_device(getattr(np.linalg, name)) for name in LINALG}
        )
        module.asarray, module.ndarray, module.__version__ = asarray, ndarray, "0.0"
    runtime = SimpleNamespace(
        getDeviceCount=lambda: 1,
        memGetInfo=lambda: (2**30, 2**31),
        getDeviceProperties=lambda k: {"name": b"FakeDevice"},
        runtimeGetVersion=lambda: 13000,
        CUDARuntimeError=CUDARuntimeError,
    )
    cupy.cuda = SimpleNamespace(
        runtime=runtime,
        Device=Device,
        Stream=Stream,
        get_current_stream=lambda: Stream.current,
        PinnedMemory=PinnedMemory,
        PinnedMemoryPointer=PinnedMemoryPointer,
    )
    cupy.get_default_memory_pool = lambda: SimpleNamespace(free_bytes=lambda: POOL)
    cupy.fuse = xp.fuse = fuse
    if shutil.which("cc"):
        cupy.ElementwiseKernel = xp.ElementwiseKernel = ElementwiseKernel
    return {"cupy": cupy, "array_api_compat.cupy": xp}


def install(monkeypatch):
    """Put the modules where ``import`` finds them, and begin to count."""
    import array_api_compat

    found = modules()
    for name, module in found.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(array_api_compat, "cupy", found["array_api_compat.cupy"], raising=False)
    count.clear()
    Stream.null = Stream.current = Stream(null=True)
    return found["cupy"]
