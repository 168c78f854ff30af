"""Checks of the values that a user's functions return, and the words for their errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from refhmc.compile.compiled import jit_anew
from refhmc.errors import EvaluationError, ModelError, ShapeError


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


def in_words(error: ArithmeticError) -> str:
    """Return the reason that a model gives, or the kind of arithmetic error: compiled code continues with inf or NaN."""
    return str(error) if isinstance(error, EvaluationError) else f"{type(error).__name__}: {error}"


def as_float(value: object, what: str) -> float:
    """Return `value` as a float, or raise :class:`ModelError` unless it is a real scalar."""
    if isinstance(value, float):
        return value
    array = np.asarray(value)
    if value is None or array.shape != () or array.dtype.kind not in "fiub":
        kind = f"{type(value).__name__}" + (f" of shape {array.shape}, {array.dtype}" if array.shape else "")
        raise ModelError(f"{what} must return a real number; it returned {kind}.")
    return float(array)


def as_array(value: object, shape: tuple, what: str) -> np.ndarray:
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
