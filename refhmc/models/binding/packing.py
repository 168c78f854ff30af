"""Data in one float64 matrix, which is what the compiled core passes to a model, and functions that unpack them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from refhmc.compile.compiled import jit_anew

shared = functools.lru_cache(maxsize=256)  # created once for the same arguments


def pack(data: object) -> tuple[np.ndarray, Callable] | None:
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
def _no_data(packed: np.ndarray) -> None:
    return None


def _as_part(value: object) -> tuple[np.ndarray, tuple, type] | None:
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
