"""Derivatives of functions without a known formula: complex step, and Ridders' extrapolation of differences.

    complex step    f'(x) = Im f(x + ih) / h,   h = 1e-30: to rounding, if f is analytic and accepts complex numbers
    Ridders         central differences of widths w, w/2, w/4, ... extrapolated to width zero, at the width at which the
                    extrapolates differ least; that difference estimates the error
    noise           of a function, from its differences of high order, to which a smooth function contributes little

Squire and Trapp (1998); Ridders (1982); Hamming (1973); More and Wild (2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

COMPLEX_STEP = 1e-30


class Derivative(NamedTuple):
    """``value`` like f's, an estimate of its largest absolute ``error``, and the ``route``: "complex step" or "Ridders"."""

    value: np.ndarray
    error: float
    route: str


def ridders(
    f: Callable[[float], np.ndarray], width: float = 0.2, levels: int = 15, scale: float | np.ndarray = 1.0
) -> Derivative:
    """Return df/dt at 0, f : R -> R^m; NaN if f is never finite.

    Errors are compared in units of ``scale``, (m,) or a number.
    """

    def quotient(w: float) -> np.ndarray:
        return (np.asarray(f(0.5 * w), dtype=float) - np.asarray(f(-0.5 * w), dtype=float)) / w

    def error_of(value: np.ndarray, apart: np.ndarray, w: float) -> float:
        return float((apart / scale).max(initial=0.0))

    def enough(value: np.ndarray, error: np.ndarray) -> bool:
        return bool(error <= 1e-12 * np.abs(value / scale).max(initial=0.0))

    value, error = extrapolated(quotient, width * 0.5 ** np.arange(levels), error_of, enough)
    return Derivative(value, float(error), "Ridders")


def extrapolated(
    quotient: Callable, widths: np.ndarray, error_of: Callable, enough: Callable = lambda value, error: False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best extrapolate of ``quotient(w)`` to w = 0 in Ridders' table, for ``widths`` that halve, and its error.

    ``error_of(value, apart, w)`` is the error of an extrapolate, an array or one number, from its distance ``apart`` from its
    two parents. The search ends when ``enough(value, error)``. Both are NaN and infinite if the quotient is never finite.
    """
    best, least = np.asarray(np.nan), np.asarray(np.inf)
    previous: list[np.ndarray] = []
    for w in widths:
        row = [quotient(w)]
        if not np.isfinite(row[0]).all():  # too wide: outside f's domain
            previous = []
            continue
        for n, older in enumerate(previous):
            row.append(row[n] + (row[n] - older) / (4 ** (n + 1) - 1))
            error = error_of(row[-1], np.maximum(np.abs(row[-1] - row[n]), np.abs(row[-1] - older)), w)
            best, least = np.where(error < least, row[-1], best), np.where(error < least, error, least)
        if enough(best, least):
            break
        previous = row
    return best, least


def noise_of(values: np.ndarray, *orders: int) -> np.ndarray:
    """Return the standard deviation of the errors of a smooth function from its ``values`` on an even grid (axis 0).

    That is the least of the estimates from differences of these ``orders``.
    """
    squares = [np.mean(np.diff(values, n, axis=0) ** 2, axis=0) / math.comb(2 * n, n) for n in orders]
    return np.sqrt(np.min(squares, axis=0))


def complex_step(
    f: Callable[[np.ndarray], ArrayLike], x: np.ndarray, u: np.ndarray, here: np.ndarray
) -> np.ndarray | None:
    """Return the derivative of f along u, or None if f does not accept complex numbers; ``here`` is f(x)."""
    try:
        with np.errstate(all="ignore"):
            value = np.asarray(f(x + 1j * COMPLEX_STEP * u))
    except Exception:  # f does not accept complex numbers, or compares them
        return None
    if value.dtype.kind != "c" or not np.isfinite(value).all():
        return None
    if np.any(np.abs(value.real - here) > 1e-9 * (np.abs(here) + np.abs(here).max(initial=0.0))):
        return None
    return value.imag / COMPLEX_STEP


def along(f: Callable[[np.ndarray], ArrayLike], x: np.ndarray, u: np.ndarray, width: float = 0.2) -> Derivative:
    """Return d/dt f(x + t u) at t = 0, by complex step if that agrees with differences to 1e-4, otherwise by Ridders.

    (The comparison detects functions that accept a complex number and drop its imaginary part or its sign.)
    """
    x, u = np.asarray(x, dtype=float), np.asarray(u, dtype=float)
    here = np.asarray(f(x), dtype=float)
    exact = complex_step(f, x, u, here)
    if exact is not None:
        h = 1e-6 * max(1.0, np.abs(x).max(initial=0.0)) / max(np.abs(u).max(initial=0.0), 1e-300)
        rough = (np.asarray(f(x + h * u), dtype=float) - np.asarray(f(x - h * u), dtype=float)) / (2 * h)
        size = np.abs(rough).max(initial=0.0) + np.abs(exact).max(initial=0.0)
        blur = 1e-15 * np.abs(here).max(initial=0.0) / h  # rounding of the difference itself
        if np.abs(rough - exact).max(initial=0.0) <= 1e-4 * size + 10 * blur + 1e-12:
            return Derivative(exact, float(1e-14 * np.abs(exact).max(initial=0.0)), "complex step")
    return ridders(lambda t: np.asarray(f(x + t * u), dtype=float), width)


def jacobian(f: Callable[[np.ndarray], ArrayLike], x: np.ndarray, width: float = 0.2) -> Derivative:
    """Return [..., k] = df/dx_k, column by column with :func:`along`; the route is that of the worst column."""
    x = np.asarray(x, dtype=float)
    columns = [along(f, x, u, width) for u in np.eye(len(x))]
    value = np.stack([c.value for c in columns], axis=-1)
    route = "Ridders" if any(c.route == "Ridders" for c in columns) else "complex step"
    return Derivative(value, max(c.error for c in columns), route)
