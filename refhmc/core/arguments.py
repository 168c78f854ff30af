"""Checks of numbers and flags given by a caller; an error names the argument and the value.

A count is a whole number, 3 or 3.0, but neither True nor "3". A number is a real Python number, or an array without axes.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from refhmc.core.data import from_table


def is_number(x: object) -> TypeGuard[float]:
    """Return whether `x` is one real number, nan and inf included; True and False are not numbers."""
    if not isinstance(x, numbers.Real) and not hasattr(x, "__array__"):
        return False
    array = np.asarray(x)
    return array.ndim == 0 and array.dtype.kind in "iuf"


def whole_number(name: str, n: object, least: int = 1, most: int | None = None, error: type = ValueError) -> int:
    """Return `n` as an int; raise `error` unless it is a whole number between `least` and `most`."""
    if not is_number(n) or not least <= n <= (math.inf if most is None else most) or n % 1:
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise error(f"{name} must be a whole number {limits}; got {n!r}.")
    return int(n)


def positive(name: str, x: object) -> float:
    """Return `x` as a float; raise ValueError unless it is positive and finite."""
    if not is_number(x) or not 0 < x < math.inf:
        raise ValueError(f"{name} must be positive and finite; got {x!r}.")
    return float(x)


def share(name: str, x: object) -> float:
    """Return `x` as a float; raise ValueError unless it lies in [0, 1)."""
    if not is_number(x) or not 0 <= x < 1:
        raise ValueError(f"{name} must lie in [0, 1); got {x!r}.")
    return float(x)


def flag(name: str, value: object) -> bool:
    """Return `value` as a bool; raise TypeError unless it is True or False, or 1 or 0."""
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise TypeError(f"{name} must be True or False; got {value!r}.")
    return bool(value)


def array_of_numbers(what: str, x: object, error: type = ValueError) -> np.ndarray:
    """Return ``x``, which may be a list or a table, as an array of float64.

    Raises ``error`` if it does not hold numbers, or holds complex ones or masked entries.
    """
    refuse_masked(what, x, error)
    x = from_table(what, x, error)
    refuse_complex(what, x, error)
    try:
        if np.asarray(x).dtype.kind in "US":
            raise TypeError("these are strings")
        return np.asarray(x, dtype=float)
    except (TypeError, ValueError) as reason:
        raise error(f"{what} must be real numbers; got {_short(x)} ({reason}).") from reason


def refuse_complex(what: str, x: object, error: type = ValueError) -> None:
    """Raise `error` for complex numbers, whose imaginary parts NumPy drops with only a warning."""
    try:
        kind = np.asarray(x).dtype.kind
    except (TypeError, ValueError):  # not an array: the caller reports it
        return
    if kind == "c":
        raise error(f"{what} must be real numbers; got complex numbers, {_short(x)}. Use .real if that is intended.")


def refuse_masked(what: str, x: object, error: type = ValueError) -> None:
    """Raise `error` if an array, also inside mappings and sequences, has masked entries: NumPy drops the mask."""
    where = masked_in(what, x)
    if where:
        raise error(
            f"{where} must not be masked, because masks are ignored. Remove the entry, or replace it by a number (.filled())."
        )


def masked_in(what: str, x: object) -> str:
    """Return the place of the first masked entry, as :func:`not_finite_in`, or an empty string."""
    if isinstance(x, np.ma.MaskedArray):
        wrong = np.argwhere(np.ma.getmaskarray(x))
        if not len(wrong):
            return ""
        return f"{what}[{', '.join(map(str, wrong[0]))}]" if x.ndim else what
    if isinstance(x, Mapping):
        return next(filter(None, (masked_in(f"{what}[{key!r}]", each) for key, each in x.items())), "")
    if isinstance(x, tuple | list):
        holders = np.ma.MaskedArray | Mapping | tuple | list
        some = ((i, each) for i, each in enumerate(x) if isinstance(each, holders))
        return next(filter(None, (masked_in(f"{what}[{i}]", each) for i, each in some)), "")
    return ""


def _short(x: object) -> str:
    text = repr(x)
    return text if len(text) <= 60 else f"{text[:57]}..."


def not_finite_in(what: str, data: object) -> str:
    """Return the place of the first number that is not finite, ``data['y'][3] is nan``, or an empty string.

    `data` may be an array, or mappings and sequences of arrays.
    """
    if isinstance(data, Mapping):
        return next(filter(None, (not_finite_in(f"{what}[{key!r}]", each) for key, each in data.items())), "")
    if isinstance(data, tuple | list):
        names = getattr(data, "_fields", None)
        labels = (f"{what}.{name}" for name in names) if names else (f"{what}[{i}]" for i in range(len(data)))
        return next(filter(None, map(not_finite_in, labels, data)), "")
    if not isinstance(data, np.ndarray | float) or np.asarray(data).dtype.kind not in "fc":
        return ""
    wrong = np.argwhere(~np.isfinite(data))
    if len(wrong) == 0:
        return ""
    where = ", ".join(map(str, wrong[0]))
    return f"{what}{f'[{where}]' if where else ''} is {np.asarray(data)[tuple(wrong[0])]}"


def with_finite_numbers(data: Any) -> Any:
    """Return `data` with the median of the finite numbers of an array, or 1, instead of those that are not finite."""
    if isinstance(data, Mapping):
        return {key: with_finite_numbers(each) for key, each in data.items()}
    if isinstance(data, tuple | list):
        entries = [with_finite_numbers(each) for each in data]
        return type(data)(*entries) if hasattr(data, "_fields") else type(data)(entries)
    if not not_finite_in("", data):
        return data
    finite = np.isfinite(data)
    replaced = np.where(finite, data, np.median(data[finite]) if np.any(finite) else 1.0)
    return replaced.astype(data.dtype) if isinstance(data, np.ndarray) else float(replaced)


def one_of(name: str, word: object, words: Sequence[str]) -> str:
    """Return `word`; raise ValueError unless it is one of `words`."""
    if not isinstance(word, str) or word not in words:
        *first, last = map(repr, words)
        raise ValueError(f"{name} must be {', '.join(first)} or {last}; got {word!r}.")
    return word
