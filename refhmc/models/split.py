"""A model as the sum of parts, each on its own share of the data.

With the data in M parts and the prior divided among them, ::

    L = sum_m L_m        L_m(q) = log p(q) / M + log p(y_m | q)          U_m = -L_m

(Cobb and Jalaian 2021, eq. 6; Neal 1995). Each L_m is a model of its own. Integrators that follow one part after another
(:mod:`refhmc.integrators.symmetric_split`) need only one of them at a time.

:mod:`refhmc.core.split_data` describes how the data of the parts are stored for the compiled functions.
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit_anew
from refhmc.core.arguments import whole_number
from refhmc.core.point import add_row
from refhmc.core.split_data import HEAD, number_of_parts, part_of


@functools.lru_cache(maxsize=64)
def by_kind(functions: tuple) -> Callable:
    """Return the function (k, q, data, out) that calls the k-th of the functions (q, data, out) -> L."""
    first = functions[0]
    if len(functions) == 1:
        return jit_anew(lambda k, q, data, out: first(q, data, out))
    others = by_kind(functions[1:])

    def one(k: int, q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        return first(q, data, out) if k == 0 else others(k - 1, q, data, out)

    return jit_anew(one)


@functools.lru_cache(maxsize=64)
def of_part(functions: tuple) -> Callable:
    """Return the function (q, part, out) that calls the function of the part on its data."""
    chosen = by_kind(functions)

    def value(q: np.ndarray, part: np.ndarray, out: np.ndarray) -> float:
        own = part[HEAD:].reshape((int(part[1, 0]), int(part[2, 0])))
        return chosen(int(-part[0, 0]), q, own, out)

    return jit_anew(value)


@functools.lru_cache(maxsize=64)
def sum_of_gradients(functions: tuple) -> Callable:
    """Return ``value_and_gradient`` of a split model and of its parts."""
    one = of_part(functions)

    def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        if data[0, 0] <= 0:
            return one(q, data, out)
        total, partial = 0.0, np.empty_like(out)
        out[:] = 0.0
        for m in range(number_of_parts(data)):
            total += one(q, part_of(data, m), partial)
            add_row(out, partial)
        return total

    return jit_anew(value_and_gradient)


@functools.lru_cache(maxsize=64)
def sum_of_densities(changes: tuple) -> Callable:
    """Return ``log_density`` of a split model and of its parts, from their ``changes`` (:mod:`refhmc.core.types`)."""

    def density_by(change: Callable) -> Callable:
        return jit_anew(lambda q, data, out: change(q, data, -1, 0.0, 0.0))

    one = of_part(tuple(map(density_by, changes)))

    def log_density(q: np.ndarray, data: np.ndarray) -> float:
        if data[0, 0] <= 0:
            return one(q, data, q)
        total = 0.0
        for m in range(number_of_parts(data)):
            total += one(q, part_of(data, m), q)
        return total

    return jit_anew(log_density)


def functions_of_a_part(log_density: Callable, value_and_gradient: Callable, prior: Callable) -> tuple[Callable, ...]:
    """Return ``log_density`` and ``value_and_gradient`` of the model with a share s of its log prior.

    The log density is ::

        L_m(q) = L(q; y_m) - (1 - s) log p(q)

    ``prior(q, out)`` returns log p(q) and writes its gradient. The last row of the data of a part begins with s; the others are
    those of the whole model on the rows of the part. In the module of the model the functions must have the names
    ``part_log_density`` and ``part_value_and_gradient``, by which they are pickled.
    """

    def part_value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        left_out, slope = 1 - data[-1, 0], np.zeros_like(out)
        L, log_prior = value_and_gradient(q, data[:-1], out), prior(q, slope)
        if not np.isfinite(log_prior):  # -inf, and so is L
            return L
        for i in range(q.shape[0]):
            out[i] -= left_out * slope[i]
        return L - left_out * log_prior

    def part_log_density(q: np.ndarray, data: np.ndarray) -> float:
        L, log_prior = log_density(q, data[:-1]), prior(q, np.zeros_like(q))
        return L - (1 - data[-1, 0]) * log_prior if np.isfinite(log_prior) else L

    functions = (part_log_density, part_value_and_gradient)
    for each in functions:
        each.__module__, each.__qualname__ = prior.__module__, each.__name__
    return jit_anew(part_log_density), jit_anew(part_value_and_gradient)


def with_share(data: np.ndarray, share: float) -> np.ndarray:
    """Return the data of a part whose functions are those of :func:`functions_of_a_part`."""
    return np.vstack([data, np.full((1, data.shape[1]), share)])


def shares(n: int, M: int, order: str | ArrayLike, what: str) -> list[np.ndarray]:
    """Return the rows 0, ..., n - 1 in M parts whose sizes differ by at most one.

    ``order`` is "given", "random" (always the same), or an array of all rows.
    """
    M = whole_number("M (the number of parts)", M)
    if n < M:
        raise ValueError(f"M must be at most {n}, because {what} has {n} rows of data; got {M} parts.")
    if isinstance(order, str):
        if order not in ("given", "random"):
            raise ValueError(f"order must be 'given', 'random' or an array of rows; got {order!r}.")
        rows = np.arange(n) if order == "given" else np.random.default_rng(0).permutation(n)
    else:
        rows = np.asarray(order)
        if rows.dtype.kind not in "iu" or not np.array_equal(np.sort(rows, axis=None), np.arange(n)) or rows.ndim != 1:
            raise ValueError(f"order must have each of the rows 0, ..., {n - 1} once; got {reprlib.repr(order)}.")
    return np.array_split(rows, M)
