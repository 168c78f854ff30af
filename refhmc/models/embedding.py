"""Integer parameters as piecewise-constant continuous ones.

An integer N with probabilities pi(n) is embedded in the line by an increasing sequence a_n. N = n if a_n < x <= a_{n+1}, and
the density of x is ::

    pi(x) = sum_n pi(n) / (a_{n+1} - a_n) 1(a_n < x <= a_{n+1})

so that each cell has the mass pi(n) (Gram-Hansen's notes, eq. 15, after Nishimura, Dunson and Lu 2020). Either a_n = n, or
a_n = log n, which suits a scale such as a population size. (The notes print a_n = log(a_n).) A support that begins below 1
is shifted to begin at 1 for the logarithm: a_n = log(n + shift).

Borders are rounded logarithms of ``math.log``. A position at a border is in the cell below it. The cells of large integers
are narrower than the spacing of floating-point numbers: from 2^52 for a_n = n, from about 5e13 for a_n = log n.

In a model written for Numba, take the two compiled functions from the embedding once::

    embedding = Embedding(range(10, 500), a="log n")
    to_integer, log_width = embedding.to_integer, embedding.log_width

    def log_density(q, data):
        n = to_integer(q[0])
        if n < 10 or n >= 500:
            return -np.inf
        return log_prior(n) + log_likelihood(n, data) - log_width(n)
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_anew

FARTHEST = 2**62  # stands for integers that do not fit into 64 bits
ROUNDING = 1e-13  # exceeds the relative error of exp(log n) up to 2^62


@jit
def whole(y: float) -> int:
    """Return ceil(y) as an integer within +-2^62; NaN counts as smaller than everything."""
    if not y > -FARTHEST:
        return -FARTHEST
    if y > FARTHEST:
        return FARTHEST
    return math.ceil(y)


@jit
def linear_integer(x: float) -> int:
    """Return n with n < x <= n + 1."""
    return whole(x) - 1


@jit
def log_integer(x: float, shift: int) -> int:
    """Return n with log(n + shift) < x <= log(n + shift + 1), with logarithms as in :meth:`Embedding.border`."""
    y = math.exp(x)
    m = whole(y)
    if abs(m - 0.5 - y) >= 0.5 - ROUNDING * y:
        # Near an integer n, exp(log n) may be rounded to either side of it, so x is compared with the border itself.
        if 0 < m < FARTHEST and x > math.log(m):
            m += 1
        elif m > 1 and x <= math.log(m - 1):
            m -= 1
    return m - 1 - shift


@jit
def log_log_width(n: int, shift: int) -> float:
    """Return the log of log(n + shift + 1) - log(n + shift), the width of the cell of n."""
    return math.log(math.log1p(1.0 / (n + shift)))


@functools.cache
def with_shift(shift: int) -> tuple[Callable, Callable]:
    """Return :func:`log_integer` and :func:`log_log_width` as compiled functions of one number."""
    return (
        jit_anew(lambda x: log_integer(x, shift)),
        jit_anew(lambda n: log_log_width(n, shift)),
    )


@jit
def no_log_width(n: int) -> float:
    return 0.0


class Embedding:
    """The embedding of an integer with a given support in the line.

    An integer n is represented by the cell a_n < x <= a_{n+1}, with a_n = n or a_n = log n::

        pi(x) = sum_n pi(n) / (a_{n+1} - a_n) 1(a_n < x <= a_{n+1})

    Parameters
    ----------
    support : range or sequence of int
        Consecutive integers in increasing order, or ``(lowest, None)`` for all integers from `lowest`.
    a : {"n", "log n"}, default "n"
        The sequence of borders. "log n" suits a scale, such as a population size.

    Attributes
    ----------
    lowest : int
        Least integer of the support.
    highest : int or None
        Largest integer of the support, None if there is none.
    to_integer : callable
        Compiled function ``x -> n`` of one number. A position outside the support gives an integer outside it.
    log_width : callable
        Compiled function ``n -> log(a_{n+1} - a_n)`` of one number.

    Raises
    ------
    ValueError
        If the support is empty or not consecutive, or `a` is neither "n" nor "log n".

    References
    ----------
    A. Nishimura, D. B. Dunson and J. Lu (2020), Discontinuous Hamiltonian Monte Carlo for discrete parameters and discontinuous
    likelihoods.

    Examples
    --------
    >>> import refhmc
    >>> embedding = refhmc.Embedding(range(1, 6), a="log n")
    >>> x = embedding.embed([1, 3])
    >>> embedding.integers(x).tolist(), embedding.to_integer(x[1])
    ([1, 3], 3)
    """

    def __init__(self, support: Iterable, a: str = "n") -> None:
        if a not in ("n", "log n"):
            raise ValueError(f"a must be 'n' or 'log n'; got {a!r}.")
        self.lowest, self.highest = _ends(support)
        self.a = a
        self.shift = max(0, 1 - self.lowest) if a == "log n" else 0
        functions: tuple[Callable, Callable] = (linear_integer, no_log_width) if a == "n" else with_shift(self.shift)
        self.to_integer, self.log_width = functions

    def __repr__(self) -> str:
        high = "..." if self.highest is None else self.highest
        return f"Embedding({self.lowest} to {high}, a={self.a!r})"

    def __reduce__(self) -> tuple[type, tuple[tuple | range, str]]:
        support = (self.lowest, None) if self.highest is None else range(self.lowest, self.highest + 1)
        return Embedding, (support, self.a)

    def contains(self, n: np.ndarray) -> np.ndarray:
        """Return whether integers are in the support.

        Parameters
        ----------
        n : array_like of int
            Integers.

        Returns
        -------
        ndarray of bool
            Whether each is in the support, with the shape of `n`.
        """
        n = np.asarray(n)
        return (n >= self.lowest) & ((self.highest is None) | (n <= (self.highest or 0)))

    def border(self, n: ArrayLike) -> np.ndarray:
        """Return a_n, the lower end of the cell of n.

        The border itself belongs to the cell below.

        Parameters
        ----------
        n : array_like of int
            Integers.

        Returns
        -------
        ndarray
            Borders, with the shape of `n`.
        """
        n = np.asarray(n, dtype=float)
        if self.a == "n":
            return n
        m = n + self.shift  # by the logarithm of log_integer, because that of NumPy may differ in the last bit
        logs = np.array([math.log(each) if each > 0 else np.log(each) for each in m.ravel()])
        return logs.reshape(m.shape)

    def embed(self, n: ArrayLike) -> np.ndarray:
        """Return the middle of the cell of each integer, for example as a starting point.

        Parameters
        ----------
        n : array_like of int
            Integers of the support.

        Returns
        -------
        ndarray
            Positions, with the shape of `n`.

        Raises
        ------
        ValueError
            If an entry is not an integer of the support, or is so large that its cell is narrower than the rounding error.
        """
        n = np.asarray(n)
        whole_numbers = n.astype(float) == np.floor(n.astype(float))
        wrong = np.atleast_1d(~(whole_numbers & self.contains(n)))
        if wrong.any():
            high = "without end" if self.highest is None else f"to {self.highest}"
            raise ValueError(
                f"n must be in the support, integers from {self.lowest} {high}; got {np.atleast_1d(n)[wrong].flat[0]}."
            )
        x = 0.5 * (self.border(n) + self.border(n + 1))
        lost = np.atleast_1d(self.integers(x) != n)
        if lost.any():
            first = np.atleast_1d(n)[lost].flat[0]
            raise ValueError(
                f"n must be smaller than {first} with a_n = {self.a}: the cell of {first} is narrower than the rounding "
                "error of a position."
            )
        return x

    def integers(self, x: ArrayLike) -> np.ndarray:
        """Return the integers of positions, for example in ``constrain``.

        Parameters
        ----------
        x : array_like
            Positions.

        Returns
        -------
        ndarray of int64
            Integers, with the shape of `x`. Positions outside the support give integers outside it.
        """
        x = np.asarray(x, dtype=float)
        # ``to_integer`` is compiled for each shift in each process; the function that it calls is cached.
        one = self.to_integer if self.a == "n" else lambda value: log_integer(value, self.shift)
        return np.array([one(value) for value in x.ravel()], dtype=np.int64).reshape(x.shape)

    def draw_position(self, rng: np.random.Generator, n: np.ndarray) -> np.ndarray:
        """Return a uniform position in the cell of each integer.

        If n is a draw from pi(n), the result is a draw from pi(x).

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of random numbers.
        n : array_like of int
            Integers of the support.

        Returns
        -------
        ndarray
            Positions, with the shape of `n`.

        Examples
        --------
        >>> import numpy as np
        >>> import refhmc
        >>> embedding = refhmc.Embedding(range(10))
        >>> embedding.integers(embedding.draw_position(np.random.default_rng(1), [2, 7])).tolist()
        [2, 7]
        """
        low, high = self.border(n), self.border(np.asarray(n) + 1)
        return high - (high - low) * rng.random(np.shape(n))


def _ends(support: Iterable) -> tuple[int, int | None]:
    try:
        numbers = list(support) if not isinstance(support, range) else support
        if len(numbers) == 2 and numbers[1] is None:
            return int(numbers[0]), None
        consecutive = len(numbers) > 0 and all(int(n) == n for n in (numbers[0], numbers[-1]))
        if consecutive and not (isinstance(numbers, range) and numbers.step == 1):
            consecutive = all(int(b) == b and b - a == 1 for a, b in itertools.pairwise(numbers))
    except (TypeError, ValueError):
        raise ValueError(f"support must be a range or consecutive integers; got {support!r}.") from None
    if not consecutive:
        raise ValueError(f"support must be consecutive integers, at least one; got {support!r}.")
    return int(numbers[0]), int(numbers[-1])
