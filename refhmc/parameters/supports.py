"""Supports: the sets that parameters belong to, each with its coordinates and the reference measure of its density.

::

    support                  values                              coordinates u                    density with respect to
    Real()                   x                                   x                                dx
    Positive()               x > 0                               log x                            dx
    Above(a), Below(b)       x > a,  x < b                       log |x - bound|                  dx
    Interval(a, b)           a < x < b                           logit of (x - a) / (b - a)       dx
    Ordered(n)               x_1 < ... < x_n                     x_1, log (x_k - x_{k-1})         dx_1 ... dx_n
    Simplex(n)               x_k > 0, sum_k x_k = 1              n - 1, by stick breaking         dx_1 ... dx_{n-1}
    CholeskyCorrelation(n)   L, of a correlation matrix L L'     n (n - 1) / 2, row by row        prod_{j<i} dL_ij

The maps x(u) and the reference measures are those of the Stan Reference Manual 2.35, chapter Constraint Transforms.
:mod:`refhmc.numerics.constraining` has their derivatives. A density of the correlation matrix R = L L' becomes one of L
through the factor ``|dR/dL| = prod_i L_ii^(n - i)``, i = 2, ..., n. Therefore det(R)^(eta - 1), which is LKJ(eta), becomes ::

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
ROUNDING = 1e-8  # tolerance for the sum of a simplex and for the length of a row


@dataclass(frozen=True, kw_only=True)
class Support:
    """Base class of the supports.

    One entry of a support is a number, or an array whose axes come after those of `shape`.

    Parameters
    ----------
    shape : int or tuple of int, default ()
        How many of these parameters there are: the shape in front of the axes of one entry.
    dims : str or tuple of str, default ()
        Name of each axis of the values.

    Raises
    ------
    refhmc.errors.ShapeError
        If `shape` is not a shape, or `dims` does not have one name per axis.
    refhmc.errors.ModelError
        If `dims` does not consist of different names.
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
            raise ModelError(f"{self._name}: dims must be a name or a tuple of names, one per axis; got {self.dims!r}.")
        object.__setattr__(self, "dims", tuple(dims))
        if dims and len(dims) != len(self.value_shape):
            raise ShapeError(
                f"{self._name}: dims must have one name for each of the {len(self.value_shape)} axes of the shape "
                f"{self.value_shape}; got {self.dims!r}."
            )
        if len(set(dims)) < len(dims):
            raise ModelError(f"{self._name}: dims must be different names; got {self.dims!r}.")

    @property
    def _name(self) -> str:
        return type(self).__name__

    @property
    def event(self) -> tuple[int, ...]:
        """The shape of one entry."""
        return ()

    @property
    def value_shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return self.shape + self.event

    @property
    def value_count(self) -> int:
        """The number of values."""
        return math.prod(self.value_shape)

    @property
    def coordinate_count(self) -> int:
        """The number of coordinates."""
        return self.value_count

    def coordinate_name(self, name: str) -> str:
        """Return the name of the coordinates of a parameter.

        Parameters
        ----------
        name : str
            Name of the parameter.

        Returns
        -------
        str
            Name of its coordinates.
        """
        return f"{name}_raw"

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        """Yield the segments of the transform, from a first coordinate and a first value on.

        Parameters
        ----------
        coordinate : int
            Index of the first coordinate.
        value : int
            Index of the first value.

        Yields
        ------
        tuple
            Rows of the table of :mod:`refhmc.numerics.constraining`.
        """
        raise NotImplementedError

    def outside(self, x: np.ndarray) -> str:
        """Return why values are outside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``.

        Returns
        -------
        str
            Message, or an empty string.
        """
        return ""

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return the coordinates of values inside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``, inside the support.

        Returns
        -------
        ndarray of shape (coordinate_count,)
            Coordinates.
        """
        return x.ravel()


@dataclass(frozen=True)
class Real(Support):
    """A real number, with coordinate u = x and a density with respect to dx.

    Parameters
    ----------
    shape : int or tuple of int, default ()
        How many of these parameters there are: the shape in front of the axes of one entry.
    dims : str or tuple of str, default ()
        Name of each axis of the values.

    Raises
    ------
    refhmc.errors.ShapeError
        If `shape` is not a shape, or `dims` does not have one name per axis.
    refhmc.errors.ModelError
        If `dims` does not consist of different names.


    Examples
    --------
    >>> import refhmc
    >>> refhmc.parameters.Real(shape=8, dims="school").value_shape
    (8,)
    """

    def coordinate_name(self, name: str) -> str:
        """Return the name of the coordinates, which is that of the parameter.

        Parameters
        ----------
        name : str
            Name of the parameter.

        Returns
        -------
        str
            Name of its coordinates.
        """
        return name

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        """Yield the segments of the transform, from a first coordinate and a first value on.

        Parameters
        ----------
        coordinate : int
            Index of the first coordinate.
        value : int
            Index of the first value.

        Yields
        ------
        tuple
            Rows of the table of :mod:`refhmc.numerics.constraining`.
        """
        yield LINE, coordinate, self.value_count, value, 0.0, 0.0


class _HalfLine(Support):
    """x = bound + sign e^u."""

    def _bound_and_sign(self) -> tuple[float, float]:
        return 0.0, 1.0

    def coordinate_name(self, name: str) -> str:
        """Return the name of the coordinates, ``log_`` followed by that of the parameter.

        Parameters
        ----------
        name : str
            Name of the parameter.

        Returns
        -------
        str
            Name of its coordinates.
        """
        return f"log_{name}"

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        """Yield the segments of the transform, from a first coordinate and a first value on.

        Parameters
        ----------
        coordinate : int
            Index of the first coordinate.
        value : int
            Index of the first value.

        Yields
        ------
        tuple
            Rows of the table of :mod:`refhmc.numerics.constraining`.
        """
        yield HALF_LINE, coordinate, self.value_count, value, *self._bound_and_sign()

    def outside(self, x: np.ndarray) -> str:
        """Return why values are outside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``.

        Returns
        -------
        str
            Message, or an empty string.
        """
        bound, sign = self._bound_and_sign()
        return "" if (sign * (x - bound) > 0).all() else f"must be {'above' if sign > 0 else 'below'} {bound:g}"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return the coordinates of values inside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``, inside the support.

        Returns
        -------
        ndarray of shape (coordinate_count,)
            Coordinates.
        """
        return half_line_inverse(x.ravel(), *self._bound_and_sign())


@dataclass(frozen=True)
class Positive(_HalfLine):
    """A number above zero, with coordinate u = log x and a density with respect to dx.

    Parameters
    ----------
    shape : int or tuple of int, default ()
        How many of these parameters there are: the shape in front of the axes of one entry.
    dims : str or tuple of str, default ()
        Name of each axis of the values.

    Raises
    ------
    refhmc.errors.ShapeError
        If `shape` is not a shape, or `dims` does not have one name per axis.
    refhmc.errors.ModelError
        If `dims` does not consist of different names.


    Examples
    --------
    >>> import refhmc
    >>> refhmc.Parameters(tau=refhmc.parameters.Positive()).unconstrain({"tau": 1.0}).tolist()
    [0.0]
    """


@dataclass(frozen=True)
class Above(_HalfLine):
    """A number above a bound, with coordinate u = log(x - lower) and a density with respect to dx.

    Parameters
    ----------
    lower : float
        The bound.
    shape : int or tuple of int, default ()
        How many of these parameters there are: the shape in front of the axes of one entry.
    dims : str or tuple of str, default ()
        Name of each axis of the values.

    Raises
    ------
    refhmc.errors.ShapeError
        If `shape` is not a shape, or `dims` does not have one name per axis.
    refhmc.errors.ModelError
        If `dims` does not consist of different names, or if `lower` is not finite.


    Examples
    --------
    >>> import refhmc
    >>> refhmc.Parameters(x=refhmc.parameters.Above(2)).unconstrain({"x": 3.0}).tolist()
    [0.0]
    """

    lower: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lower", _bound("Above: lower", self.lower))

    def _bound_and_sign(self) -> tuple[float, float]:
        return self.lower, 1.0


@dataclass(frozen=True)
class Below(_HalfLine):
    """A number below a bound, with coordinate u = log(upper - x) and a density with respect to dx.

    Parameters
    ----------
    upper : float
        The bound.
    shape : int or tuple of int, default ()
        How many of these parameters there are: the shape in front of the axes of one entry.
    dims : str or tuple of str, default ()
        Name of each axis of the values.

    Raises
    ------
    refhmc.errors.ShapeError
        If `shape` is not a shape, or `dims` does not have one name per axis.
    refhmc.errors.ModelError
        If `dims` does not consist of different names, or if `upper` is not finite.


    Examples
    --------
    >>> import refhmc
    >>> refhmc.Parameters(x=refhmc.parameters.Below(2)).unconstrain({"x": 1.0}).tolist()
    [0.0]
    """

    upper: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "upper", _bound("Below: upper", self.upper))

    def _bound_and_sign(self) -> tuple[float, float]:
        return self.upper, -1.0


@dataclass(frozen=True)
class Interval(Support):
    """A number between two bounds, with a density with respect to dx.

    The coordinate is the scaled logit ::

        u = log(x - lower) - log(upper - x)

    Parameters
    ----------
    lower : float
        The lower bound.
    upper : float
        The upper bound.
    shape : int or tuple of int, default ()
        How many of these parameters there are: the shape in front of the axes of one entry.
    dims : str or tuple of str, default ()
        Name of each axis of the values.

    Raises
    ------
    refhmc.errors.ShapeError
        If `shape` is not a shape, or `dims` does not have one name per axis.
    refhmc.errors.ModelError
        If `dims` does not consist of different names, or if the bounds are not finite or not in order.


    Examples
    --------
    >>> import refhmc
    >>> refhmc.Parameters(p=refhmc.parameters.Interval(0, 1)).unconstrain({"p": 0.5}).tolist()
    [0.0]
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lower", _bound("Interval: lower", self.lower))
        object.__setattr__(self, "upper", _bound("Interval: upper", self.upper))
        if not self.lower < self.upper or not math.isfinite(self.upper - self.lower):
            raise ModelError(f"Interval: lower must be below upper; got Interval({self.lower:g}, {self.upper:g}).")

    def coordinate_name(self, name: str) -> str:
        """Return the name of the coordinates, ``logit_`` followed by that of the parameter.

        Parameters
        ----------
        name : str
            Name of the parameter.

        Returns
        -------
        str
            Name of its coordinates.
        """
        return f"logit_{name}"

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        """Yield the segments of the transform, from a first coordinate and a first value on.

        Parameters
        ----------
        coordinate : int
            Index of the first coordinate.
        value : int
            Index of the first value.

        Yields
        ------
        tuple
            Rows of the table of :mod:`refhmc.numerics.constraining`.
        """
        yield INTERVAL, coordinate, self.value_count, value, self.lower, self.upper

    def outside(self, x: np.ndarray) -> str:
        """Return why values are outside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``.

        Returns
        -------
        str
            Message, or an empty string.
        """
        inside = ((x > self.lower) & (x < self.upper)).all()
        return "" if inside else f"must be between {self.lower:g} and {self.upper:g}"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return the coordinates of values inside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``, inside the support.

        Returns
        -------
        ndarray of shape (coordinate_count,)
            Coordinates.
        """
        return interval_inverse(x.ravel(), self.lower, self.upper)


@dataclass(frozen=True)
class Ordered(Support):
    """An increasing sequence of n numbers, with a density with respect to dx_1 ... dx_n.

    The coordinates are ::

        u = (x_1, log(x_2 - x_1), ..., log(x_n - x_{n-1}))

    Parameters
    ----------
    n : int
        Number of entries.
    shape : int or tuple of int, default ()
        How many of these parameters there are: the shape in front of the axes of one entry.
    dims : str or tuple of str, default ()
        Name of each axis of the values.

    Raises
    ------
    refhmc.errors.ShapeError
        If `shape` is not a shape, or `dims` does not have one name per axis, or if `n` is not a positive integer.
    refhmc.errors.ModelError
        If `dims` does not consist of different names.


    Examples
    --------
    >>> import refhmc
    >>> refhmc.Parameters(cut=refhmc.parameters.Ordered(2)).unconstrain({"cut": [0.5, 1.5]}).tolist()
    [0.5, 0.0]
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole_number("Ordered: n", self.n, error=ShapeError))
        super().__post_init__()

    @property
    def event(self) -> tuple[int, ...]:
        """The shape of one entry, (n,)."""
        return (self.n,)

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        """Yield the segments of the transform, from a first coordinate and a first value on.

        Parameters
        ----------
        coordinate : int
            Index of the first coordinate.
        value : int
            Index of the first value.

        Yields
        ------
        tuple
            Rows of the table of :mod:`refhmc.numerics.constraining`.
        """
        for first in range(0, self.value_count, self.n):
            yield ORDERED, coordinate + first, self.n, value + first, 0.0, 0.0

    def outside(self, x: np.ndarray) -> str:
        """Return why values are outside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``.

        Returns
        -------
        str
            Message, or an empty string.
        """
        return "" if (np.diff(x, axis=-1) > 0).all() else "must increase along the last axis"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return the coordinates of values inside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``, inside the support.

        Returns
        -------
        ndarray of shape (coordinate_count,)
            Coordinates.
        """
        return ordered_inverse(x).ravel()


@dataclass(frozen=True)
class Simplex(Support):
    """A vector of n positive numbers with sum one.

    The n - 1 coordinates are those of Stan's stick-breaking transform ::

        x_k = (1 - x_1 - ... - x_{k-1}) z_k,     z_k = 1 / (1 + exp(-u_k + log(n - k))),     k < n

    The density is with respect to the first n - 1 values, as in Stan. That of the Dirichlet distribution is
    prod_k x_k^(alpha_k - 1). Derivatives are with respect to all n values, each treated as free.

    Parameters
    ----------
    n : int
        Number of entries.
    shape : int or tuple of int, default ()
        How many of these parameters there are: the shape in front of the axes of one entry.
    dims : str or tuple of str, default ()
        Name of each axis of the values.

    Raises
    ------
    refhmc.errors.ShapeError
        If `shape` is not a shape, or `dims` does not have one name per axis, or if `n` is not a positive integer.
    refhmc.errors.ModelError
        If `dims` does not consist of different names.

    References
    ----------
    Stan Reference Manual 2.35, chapter Constraint Transforms.


    Examples
    --------
    >>> import refhmc
    >>> refhmc.Parameters(w=refhmc.parameters.Simplex(2)).unconstrain({"w": [0.5, 0.5]}).tolist()
    [0.0]
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole_number("Simplex: n", self.n, error=ShapeError))
        super().__post_init__()

    @property
    def event(self) -> tuple[int, ...]:
        """The shape of one entry, (n,)."""
        return (self.n,)

    @property
    def coordinate_count(self) -> int:
        """The number of coordinates, n - 1 per entry."""
        return math.prod(self.shape) * (self.n - 1)

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        """Yield the segments of the transform, from a first coordinate and a first value on.

        Parameters
        ----------
        coordinate : int
            Index of the first coordinate.
        value : int
            Index of the first value.

        Yields
        ------
        tuple
            Rows of the table of :mod:`refhmc.numerics.constraining`.
        """
        for each in range(math.prod(self.shape)):
            yield SIMPLEX, coordinate + each * (self.n - 1), self.n - 1, value + each * self.n, 0.0, 0.0

    def outside(self, x: np.ndarray) -> str:
        """Return why values are outside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``.

        Returns
        -------
        str
            Message, or an empty string.
        """
        if not (x > 0).all():
            return "must be positive"
        sums = x.sum(axis=-1)
        return "" if (abs(sums - 1) < ROUNDING).all() else f"must sum to one along the last axis, not to {sums}"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return the coordinates of values inside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``, inside the support.

        Returns
        -------
        ndarray of shape (coordinate_count,)
            Coordinates.
        """
        after = np.cumsum(x[..., ::-1], axis=-1)[..., -2::-1]  # the sum of the later entries
        return (np.log(x[..., :-1]) - np.log(after) + np.log(np.arange(self.n - 1, 0, -1))).ravel()


@dataclass(frozen=True)
class CholeskyCorrelation(Support):
    """The lower Cholesky factor L (n, n) of a correlation matrix L L'.

    Entries above the diagonal are zero, and each row has length one. With z = tanh(u), row i of L follows from i - 1 of the
    n (n - 1) / 2 coordinates ::

        L_ij = z_ij sqrt(1 - L_i1^2 - ... - L_i,j-1^2),     j < i

    The density is with respect to the entries below the diagonal, as in Stan. That of LKJ(eta) is prod_i L_ii^(n - i + 2 eta
    - 2), i = 2, ..., n. Derivatives are with respect to the lower triangle with its diagonal, each entry treated as free.
    Derivatives with respect to entries above the diagonal are ignored.

    Parameters
    ----------
    n : int
        Number of rows.
    shape : int or tuple of int, default ()
        How many of these parameters there are: the shape in front of the axes of one entry.
    dims : str or tuple of str, default ()
        Name of each axis of the values.

    Raises
    ------
    refhmc.errors.ShapeError
        If `shape` is not a shape, or `dims` does not have one name per axis, or if `n` is not a positive integer.
    refhmc.errors.ModelError
        If `dims` does not consist of different names.

    References
    ----------
    Stan Reference Manual 2.35, chapter Constraint Transforms.


    Examples
    --------
    >>> import refhmc
    >>> refhmc.Parameters(L=refhmc.parameters.CholeskyCorrelation(3)).dim
    3
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", whole_number("CholeskyCorrelation: n", self.n, error=ShapeError))
        super().__post_init__()

    @property
    def event(self) -> tuple[int, ...]:
        """The shape of one entry, (n, n)."""
        return (self.n, self.n)

    @property
    def coordinate_count(self) -> int:
        """The number of coordinates, n (n - 1) / 2 per entry."""
        return math.prod(self.shape) * self.n * (self.n - 1) // 2

    def segments(self, coordinate: int, value: int) -> Iterator[Segment]:
        """Yield the segments of the transform, from a first coordinate and a first value on.

        Parameters
        ----------
        coordinate : int
            Index of the first coordinate.
        value : int
            Index of the first value.

        Yields
        ------
        tuple
            Rows of the table of :mod:`refhmc.numerics.constraining`.
        """
        for _ in range(math.prod(self.shape)):
            for row in range(self.n):
                yield CORRELATION, coordinate, row, value, 0.0, 0.0
                coordinate, value = coordinate + row, value + self.n

    def outside(self, x: np.ndarray) -> str:
        """Return why values are outside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``.

        Returns
        -------
        str
            Message, or an empty string.
        """
        if (np.triu(x, 1) != 0).any():
            return "must be zero above the diagonal"
        if not (np.diagonal(x, axis1=-2, axis2=-1) > 0).all():
            return "must be positive on the diagonal"
        lengths = np.sqrt(np.sum(x * x, axis=-1))
        return "" if (abs(lengths - 1) < ROUNDING).all() else f"must have rows of length one, not {lengths}"

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Return the coordinates of values inside the support.

        Parameters
        ----------
        x : ndarray
            Values of the shape ``value_shape``, inside the support.

        Returns
        -------
        ndarray of shape (coordinate_count,)
            Coordinates.
        """
        after = np.sqrt(np.cumsum((x * x)[..., ::-1], axis=-1)[..., ::-1])  # the norm of each entry and the later ones
        rows, columns = np.tril_indices(self.n, -1)  # sinh u = tanh u / sech u
        return np.arcsinh(x[..., rows, columns] / after[..., rows, columns + 1]).ravel()


def _bound(what: str, value: object) -> float:
    if not is_number(value) or not math.isfinite(value):
        raise ModelError(
            f"{what} must be a finite number; got {value!r}. Use Above, Below or Real for infinite bounds."
        )
    return float(value)
