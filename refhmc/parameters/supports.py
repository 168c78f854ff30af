"""Supports: the sets that parameters live in, each with the density's reference measure and the coordinates that it gets.

    support                  values                              coordinates u                    density with respect to
    Real()                   x                                   x                                dx
    Positive()               x > 0                               log x                            dx
    Above(a), Below(b)       x > a,  x < b                       log |x - bound|                  dx
    Interval(a, b)           a < x < b                           logit of (x - a) / (b - a)       dx
    Ordered(n)               x_1 < ... < x_n                     x_1, log (x_k - x_{k-1})         dx_1 ... dx_n
    Simplex(n)               x_k > 0, sum_k x_k = 1              n - 1, by breaking a stick       dx_1 ... dx_{n-1}
    CholeskyCorrelation(n)   L, of a correlation matrix L L'     n (n - 1) / 2, row by row        prod_{j<i} dL_ij

The maps x(u) and the reference measures are those of the Stan Reference Manual 2.35, chapter Constraint Transforms;
:mod:`refhmc.numerics.constraining` has their derivatives. A density of the correlation matrix R = L L' becomes one of L by the
factor |dR/dL| = prod_i L_ii^(n - i), i = 2, ..., n. So det(R)^(eta - 1), which is LKJ(eta), is

    prod_{i=2}^n L_ii^(n - i + 2 eta - 2)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core.arguments import is_number, whole_number
from refhmc.errors import ModelError, ShapeError
from refhmc.numerics.constraining import CORRELATION, HALF_LINE, INTERVAL, LINE, ORDERED, SIMPLEX
from refhmc.numerics.transforms import half_line_inverse, interval_inverse, ordered_inverse

Segment = tuple[int, int, int, int, float, float]  # a row of the table of refhmc.numerics.constraining
ROUNDING = 1e-8  # by which the sum of a simplex, or the length of a row, may differ from one


@dataclass(frozen=True, kw_only=True)
class Support:
    """What all supports have: ``shape``, of how many of them there are, a number or a tuple; ``dims``, a name for each axis of
    the values. An entry of the support itself is one number, or it has axes of its own, which come after those of ``shape``.

    Raises ShapeError for a shape that is none and for names that are not as many as axes, ModelError for what is no name.
    """

    shape: Any = ()
    dims: Any = ()

    def __post_init__(self) -> None:
        shape = self.shape if isinstance(self.shape, tuple | list) else (self.shape,)
        object.__setattr__(
            self, "shape", tuple(whole_number(f"{self._name}: shape", n, error=ShapeError) for n in shape)
        )
        dims = (self.dims,) if isinstance(self.dims, str) else () if self.dims is None else self.dims
        if not isinstance(dims, tuple | list) or not all(isinstance(name, str) and name for name in dims):
            raise ModelError(
                f"{self._name}: dims must be a name, or a tuple of names, one for each axis, got {self.dims!r}"
            )
        object.__setattr__(self, "dims", tuple(dims))
        if dims and len(dims) != len(self.value_shape):
            raise ShapeError(
                f"{self._name}: dims must be {len(self.value_shape)} names, one for each axis of the values' shape "
                f"{self.value_shape}, got {self.dims!r}"
            )
        if len(set(dims)) < len(dims):
            raise ModelError(f"{self._name}: dims must be different names, got {self.dims!r}")

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def event(self) -> tuple[int, ...]:
        """The axes of one entry."""
        return ()

    @property
    def value_shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return self.shape + self.event

    @property
    def value_count(self) -> int:
        """How many values."""
        return math.prod(self.value_shape)

    @property
    def coordinate_count(self) -> int:
        """How many coordinates."""
        return self.value_count

    def coordinate_name(self, name: str) -> str:
        """What the coordinates of a parameter of that name are called."""
        return f"{name}_raw"

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        """The segments from that first coordinate and first value on."""
        raise NotImplementedError

    def outside(self, x: np.ndarray) -> str:
        """What is wrong with values of ``value_shape``, in words; empty where they are in the support."""
        return ""

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """The coordinates, flat, of values in the support."""
        return x.ravel()


@dataclass(frozen=True)
class Real(Support):
    """Any real number."""

    def coordinate_name(self, name: str) -> str:
        return name

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        yield LINE, coordinate, self.value_count, value, 0.0, 0.0


class _HalfLine(Support):
    """x = bound + sign e^u."""

    def _bound_and_sign(self) -> tuple[float, float]:
        return 0.0, 1.0

    def coordinate_name(self, name: str) -> str:
        return f"log_{name}"

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        yield HALF_LINE, coordinate, self.value_count, value, *self._bound_and_sign()

    def outside(self, x: np.ndarray) -> str:
        bound, sign = self._bound_and_sign()
        return "" if (sign * (x - bound) > 0).all() else f"must be {'above' if sign > 0 else 'below'} {bound:g}"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        return half_line_inverse(x.ravel(), *self._bound_and_sign())


@dataclass(frozen=True)
class Positive(_HalfLine):
    """A number above zero: u = log x."""


@dataclass(frozen=True)
class Above(_HalfLine):
    """A number above ``lower``: u = log(x - lower). Raises ModelError for a bound that is not finite."""

    lower: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lower", _bound("Above: lower", self.lower))

    def _bound_and_sign(self) -> tuple[float, float]:
        return self.lower, 1.0


@dataclass(frozen=True)
class Below(_HalfLine):
    """A number below ``upper``: u = log(upper - x). Raises ModelError for a bound that is not finite."""

    upper: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "upper", _bound("Below: upper", self.upper))

    def _bound_and_sign(self) -> tuple[float, float]:
        return self.upper, -1.0


@dataclass(frozen=True)
class Interval(Support):
    """A number between ``lower`` and ``upper``: u = log(x - lower) - log(upper - x).

    Raises ModelError for bounds that are not finite, or not in order.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lower", _bound("Interval: lower", self.lower))
        object.__setattr__(self, "upper", _bound("Interval: upper", self.upper))
        if not self.lower < self.upper or not math.isfinite(self.upper - self.lower):
            raise ModelError(f"Interval: lower must be below upper, got Interval({self.lower:g}, {self.upper:g})")

    def coordinate_name(self, name: str) -> str:
        return f"logit_{name}"

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        yield INTERVAL, coordinate, self.value_count, value, self.lower, self.upper

    def outside(self, x: np.ndarray) -> str:
        inside = ((x > self.lower) & (x < self.upper)).all()
        return "" if inside else f"must be between {self.lower:g} and {self.upper:g}"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        return interval_inverse(x.ravel(), self.lower, self.upper)


@dataclass(frozen=True)
class Ordered(Support):
    """``n`` numbers, each above the one before it: u = (x_1, log(x_2 - x_1), ...)."""

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole_number("Ordered: n", self.n, error=ShapeError))
        super().__post_init__()

    @property
    def event(self) -> tuple[int, ...]:
        return (self.n,)

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        for first in range(0, self.value_count, self.n):
            yield ORDERED, coordinate + first, self.n, value + first, 0.0, 0.0

    def outside(self, x: np.ndarray) -> str:
        return "" if (np.diff(x, axis=-1) > 0).all() else "must increase along the last axis"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        return ordered_inverse(x).ravel()


@dataclass(frozen=True)
class Simplex(Support):
    """``n`` positive numbers whose sum is one.

    The density is with respect to the first n - 1 of them, as Stan's: that of the Dirichlet distribution is
    prod_k x_k^(alpha_k - 1). Derivatives are by all n values, each as if it were free.
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole_number("Simplex: n", self.n, error=ShapeError))
        super().__post_init__()

    @property
    def event(self) -> tuple[int, ...]:
        return (self.n,)

    @property
    def coordinate_count(self) -> int:
        return math.prod(self.shape) * (self.n - 1)

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        for each in range(math.prod(self.shape)):
            yield SIMPLEX, coordinate + each * (self.n - 1), self.n - 1, value + each * self.n, 0.0, 0.0

    def outside(self, x: np.ndarray) -> str:
        if not (x > 0).all():
            return "must be positive"
        sums = x.sum(axis=-1)
        return "" if (abs(sums - 1) < ROUNDING).all() else f"must sum to one along the last axis, not to {sums}"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        after = np.cumsum(x[..., ::-1], axis=-1)[..., -2::-1]  # the sum of those after each
        return (np.log(x[..., :-1]) - np.log(after) + np.log(np.arange(self.n - 1, 0, -1))).ravel()


@dataclass(frozen=True)
class CholeskyCorrelation(Support):
    """The lower Cholesky factor L (n, n) of a correlation matrix L L', with zeros above the diagonal.

    The density is with respect to the entries below the diagonal, as Stan's: that of LKJ(eta) is
    prod_i L_ii^(n - i + 2 eta - 2), i = 2, ..., n. Derivatives are by the lower triangle with its diagonal, each entry as if it
    were free; those by entries above the diagonal are not read.
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole_number("CholeskyCorrelation: n", self.n, error=ShapeError))
        super().__post_init__()

    @property
    def event(self) -> tuple[int, ...]:
        return (self.n, self.n)

    @property
    def coordinate_count(self) -> int:
        return math.prod(self.shape) * self.n * (self.n - 1) // 2

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        for _ in range(math.prod(self.shape)):
            for row in range(self.n):
                yield CORRELATION, coordinate, row, value, 0.0, 0.0
                coordinate, value = coordinate + row, value + self.n

    def outside(self, x: np.ndarray) -> str:
        if (np.triu(x, 1) != 0).any():
            return "must be zero above the diagonal"
        if not (np.diagonal(x, axis1=-2, axis2=-1) > 0).all():
            return "must be positive on the diagonal"
        lengths = np.sqrt(np.sum(x * x, axis=-1))
        return "" if (abs(lengths - 1) < ROUNDING).all() else f"must have rows of length one, not {lengths}"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        after = np.sqrt(
            np.cumsum((x * x)[..., ::-1], axis=-1)[..., ::-1]
        )  # the length of each entry and those after it
        rows, columns = np.tril_indices(self.n, -1)  # sinh u = tanh u / sech u
        return np.arcsinh(x[..., rows, columns] / after[..., rows, columns + 1]).ravel()


def _bound(what: str, value: Any) -> float:
    if not is_number(value) or not math.isfinite(value):
        raise ModelError(f"{what} must be a finite number, got {value!r}; Above, Below and Real have no second bound")
    return float(value)
