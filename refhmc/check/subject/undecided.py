"""Uniform numbers that stay undecided until they are compared.

A comparison ``f(u) < t`` of a uniform number u splits the interval of u at the t with f(u) = t. This
works for f made of ``log``, ``exp``, ``sqrt`` and similar functions of NumPy or :mod:`math`, and of sums and products with
constants. ``int(f(u))`` and ``math.floor(f(u))`` are decided by comparisons too. All other operations, such as ``float(u)``,
read the number.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

MOST_FLOORS = 64  # int(x) is decided by comparisons if x lies between at most this many integers


class Questions(Protocol):
    """Questions of an undecided number: the part of its interval in which it lies, or its value."""

    def split(self, kind: str, log_p: tuple[float, ...]) -> int: ...

    def value(self, lo: float, hi: float) -> float: ...


class Interval:
    """A uniform number with lo <= u < hi, and its ``value`` after it was read."""

    def __init__(self, answers: Questions) -> None:
        self.answers, self.lo, self.hi = answers, 0.0, 1.0
        self.value: float | None = None

    def below(self, t: float) -> bool:
        if self.value is not None:
            return self.value < t
        if not t > self.lo:  # NaN too
            return False
        if t >= self.hi:
            return True
        width = self.hi - self.lo
        yes = self.answers.split("uniform", (log((t - self.lo) / width), log((self.hi - t) / width))) == 0
        self.lo, self.hi = (self.lo, t) if yes else (t, self.hi)
        return yes

    def read(self) -> float:
        if self.value is None:
            self.value = self.answers.value(self.lo, self.hi)
        return self.value


def log(x: float) -> float:
    """Return log x, and -inf for x <= 0."""
    return math.log(x) if x > 0 else -math.inf


def _log1p(x: float) -> float:
    return math.log1p(x) if x > -1 else -math.inf


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 709 else math.inf


def _same(x: Any) -> Any:
    return x


# Increasing functions of NumPy and of math, by name: the function and its inverse.
INCREASING: dict[str, tuple[Callable, Callable]] = {
    "log": (log, _exp),
    "log2": (lambda x: log(x) / math.log(2.0), lambda t: _exp(t * math.log(2.0))),
    "log10": (lambda x: log(x) / math.log(10.0), lambda t: _exp(t * math.log(10.0))),
    "log1p": (_log1p, _expm1),
    "exp": (_exp, log),
    "expm1": (_expm1, _log1p),
    "sqrt": (lambda x: math.sqrt(max(x, 0.0)), lambda t: t * t if t > 0 else -math.inf),
}


class Uncertain:
    """f(u) for a uniform number u and a monotone f; comparing and reading it are questions."""

    __slots__ = ("backward", "forward", "interval", "rising")

    def __init__(
        self, interval: Interval, forward: Callable = _same, backward: Callable = _same, rising: bool = True
    ) -> None:
        self.interval, self.forward, self.backward, self.rising = interval, forward, backward, rising

    def _then(self, f: Callable, inverse: Callable, rising: bool = True) -> Uncertain:
        before, back = self.forward, self.backward
        return Uncertain(self.interval, lambda u: f(before(u)), lambda t: back(inverse(t)), self.rising is rising)

    def _compared(self, other: Any, less: bool) -> Any:
        other = np.asarray(float(other) if isinstance(other, Uncertain) else other, dtype=float)
        if other.ndim:
            return np.reshape([self._compared(t, less) for t in other.flat], other.shape)
        t = float(other)
        if math.isnan(t):
            return False
        return self.interval.below(self.backward(t)) is (self.rising is less)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, True)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, False)

    __le__, __ge__ = __lt__, __gt__  # equality has probability zero

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __float__(self) -> float:
        return float(self.forward(self.interval.read()))

    def __floor__(self) -> int:
        lo, hi = sorted((self.forward(self.interval.lo), self.forward(self.interval.hi)))
        if self.interval.value is not None or not hi - lo <= MOST_FLOORS:
            return math.floor(float(self))
        k = math.floor(lo)
        while k + 1 <= hi and not self < k + 1:
            k += 1
        return k

    def __int__(self) -> int:
        return -(-self).__floor__() if self < 0 else self.__floor__()

    __trunc__ = __int__

    def __neg__(self) -> Uncertain:
        return self._then(lambda x: -x, lambda t: -t, False)

    def __add__(self, c: Any) -> Any:
        c = _number(c)
        return float(self) + c if np.ndim(c) else self._then(lambda x: x + c, lambda t: t - c)

    __radd__ = __add__

    def __sub__(self, c: Any) -> Any:
        return self + (-_number(c))

    def __rsub__(self, c: Any) -> Any:
        return -self + c

    def __mul__(self, c: Any) -> Any:
        c = _number(c)
        if np.ndim(c) or c == 0 or not math.isfinite(c):
            return float(self) * c
        return self._then(lambda x: x * c, lambda t: t / c, c > 0)

    __rmul__ = __mul__

    def __truediv__(self, c: Any) -> Any:
        c = _number(c)
        if np.ndim(c) or c == 0 or not math.isfinite(c):
            return float(self) / c
        return self._then(lambda x: x / c, lambda t: t * c, c > 0)

    def __rtruediv__(self, c: Any) -> Any:
        return c / float(self)

    def __pow__(self, c: Any) -> Any:
        return float(self) ** c

    def _increasing(self, name: str) -> Uncertain:
        return self._then(*INCREASING[name])

    # NumPy calls these on the elements of an array of objects.
    def log(self) -> Uncertain:
        return self._increasing("log")

    def exp(self) -> Uncertain:
        return self._increasing("exp")

    def log1p(self) -> Uncertain:
        return self._increasing("log1p")

    def sqrt(self) -> Uncertain:
        return self._increasing("sqrt")

    def __array_ufunc__(self, ufunc: np.ufunc, method: Any, *inputs: Any, **options: Any) -> Any:
        known = _UFUNCS.get(ufunc)
        if known is not None and method == "__call__" and not options:
            return known(*inputs)
        plain = [float(x) if isinstance(x, Uncertain) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **options)


def _number(c: Any) -> Any:
    return float(c) if isinstance(c, Uncertain) or np.ndim(c) == 0 else np.asarray(c, dtype=float)


def _either_way(method: str, mirrored: str) -> Callable:
    def called(a: Any, b: Any) -> Any:
        return getattr(a, method)(b) if isinstance(a, Uncertain) else getattr(b, mirrored)(a)

    return called


_UFUNCS: dict[np.ufunc, Callable] = {
    **{getattr(np, name): functools.partial(lambda name, x: x._increasing(name), name) for name in INCREASING},
    np.negative: Uncertain.__neg__,
    np.less: _either_way("__lt__", "__gt__"),
    np.less_equal: _either_way("__lt__", "__gt__"),
    np.greater: _either_way("__gt__", "__lt__"),
    np.greater_equal: _either_way("__gt__", "__lt__"),
    np.add: _either_way("__add__", "__radd__"),
    np.subtract: _either_way("__sub__", "__rsub__"),
    np.multiply: _either_way("__mul__", "__rmul__"),
    np.divide: _either_way("__truediv__", "__rtruediv__"),
}


# ------------------------------------------------------------------------------------------------- functions of math


def _taking(name: str, plain: Callable) -> Callable:
    """Return ``math.name`` in a version that leaves an :class:`Uncertain` number undecided."""

    @functools.wraps(plain)
    def function(x: Any, *more: Any) -> Any:
        return x._increasing(name) if type(x) is Uncertain and not more else plain(x, *more)

    return function


_TAKING = {getattr(math, name): _taking(name, getattr(math, name)) for name in INCREASING}
_LOCK = threading.Lock()
_users = 0


def names_from_math(function: Callable) -> list[tuple[dict, str, Callable]]:
    """Return the names in the module of ``function`` that ``from math import ...`` bound: module, name and value."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = function if hasattr(function, "__globals__") else type(function).__call__
    namespace = getattr(owner, "__globals__", {})
    return [(namespace, name, value) for name, value in namespace.items() if _is_from_math(value)]


def _is_from_math(value: Any) -> bool:
    return isinstance(value, types.BuiltinFunctionType) and value in _TAKING


@contextlib.contextmanager
def undecided_in_math(names: Sequence[tuple[dict, str, Callable]] = ()) -> Iterator[None]:
    """Make ``math.log`` and similar functions accept an :class:`Uncertain` number without reading it, then restore them.

    A kernel that compares ``math.log(u)`` would otherwise cost a bisection for each number. ``names`` are those of
    :func:`names_from_math`. Other arguments are passed on, so that code in other threads is not affected.
    """
    global _users
    with _LOCK:
        _users += 1
        if _users == 1:
            for plain, taking in _TAKING.items():
                setattr(math, plain.__name__, taking)
    for namespace, name, plain in names:
        namespace[name] = _TAKING[plain]
    try:
        yield
    finally:
        for namespace, name, plain in names:
            namespace[name] = plain
        with _LOCK:
            _users -= 1
            if not _users:
                for plain in _TAKING:
                    setattr(math, plain.__name__, plain)
