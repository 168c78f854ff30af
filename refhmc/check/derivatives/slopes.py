"""Derivatives of foreign functions with reliable errors, from function values only.

At x along u, with unit(f) a significant change of f:

    width    w such that the second differences over w are between 0.1 and 1 unit: the scale on which f bends
    noise    of f itself: sixth differences on grids of spacing h = 2^-12, 2^-20, 2^-30 w. A smooth f leaves (h/w)^6,
             rounding its standard deviation times 12!^(1/2) / 6!. The largest counts (``numerics/differences.py``).
             It shows float32 inside float64 answers, and cancellation, which the rounding unit does not.
    slope    Ridders' extrapolated central differences from w down. The error of each extrapolate is its distance from its
             two parents, plus noise / h; the least one is used, and multiplied by MARGIN. Far smaller widths
             must then agree; otherwise narrower ones are tried, so that no narrow feature at x is missed.
    kink     the second difference over h is the same, to 5 %, at three small h; both one-sided slopes are returned

If f accepts complex numbers, and Im f(x + ihu)/h agrees within that error with a slope that is already accurate to 1e-8, the
error is reduced a hundredfold, not more: |z| or a dropped imaginary part may hide below the error of the differences.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.own import differences

HALVED = 0.5 ** np.arange(9)
FIRST = 0.83  # of the width: not a multiple of a likely period
MARGIN = 8.0  # on the estimated error, which is the least of some fifty
NOISE_MARGIN = 64.0  # allowed error in standard deviations of the measured noise
FINE = 2.0**-14  # the widths that must agree, in units of the first
SHARPENED = 1e-8  # required accuracy of the differences before a complex step may improve them


class Slope(NamedTuple):
    """df/dt, with the shape of f's answer, and a bound on its ``error``; ``left`` and ``right`` slopes at a ``kink``."""

    value: np.ndarray
    error: np.ndarray
    kink: bool
    left: np.ndarray
    right: np.ndarray


def width_along(
    f: Callable, x: np.ndarray, u: np.ndarray, unit: Any = 1.0, start: float = 1.0, growth: float = 2.0**24
) -> float:
    """Return the length along u on which f bends by 0.1 to 1 unit, to a factor four; at most ``growth`` max(start, |x|).

    It grows from ``start`` while f changes like a polynomial, not into a region where f has levelled off.
    """
    most = growth * max(start, float(np.abs(x).max(initial=0.0)) if growth > 16 else 0.0)
    here = f(x)

    def look(w: float) -> tuple[Any, Any]:
        """Return the largest of three second differences, and the first differences."""
        values = [f(x + s * w * u) for s in (-1.0, -0.5, 0.5, 1.0)]
        seconds = (values[3] - 2 * here + values[0], values[3] - 2 * values[2] + here, values[0] - 2 * values[1] + here)
        largest = [float((np.abs(second) / unit).max(initial=0.0)) for second in seconds]
        bend = max(largest) if np.isfinite(largest).all() else np.inf
        return bend, np.abs(values[3] - here) + np.abs(values[0] - here)

    w = start
    bend, change = look(w)
    if bend > 1.0:
        while bend > 1.0 and w > 1e-13 * start:
            w *= 0.25
            bend, _ = look(w)
        return w
    while bend < 0.1 and 4 * w <= most:
        bend, wider = look(4 * w)
        level = 1e-12 * np.abs(here)
        goes_on = (wider <= level) | ((wider > 2 * change) & (wider < 20 * change))
        if bend > 1.0 or not np.all(goes_on):
            break
        w, change = 4 * w, wider
    return w


FINE_GRID = 2.0**-20  # spacing at which noise is measured, in units of the length on which f bends
COARSEST = 2.0**-20  # largest step of rounding, in units of |f|; those of float32 are below 2^-23


def noise_along(f: Callable, x: np.ndarray, u: np.ndarray, epsilon: float, least: Any = 0.0) -> np.ndarray:
    """Return the standard deviation of f's errors near x; u has the length on which f bends.

    At least ``epsilon`` of |f|, and of ``least``. Infinite if f is not finite on any grid.
    """
    here = np.abs(np.asarray(f(x), dtype=float))

    def on_grid(h: Any) -> np.ndarray:
        return np.array([f(x + i * h * u) for i in range(-3, 5)], dtype=float)

    found, still = np.full(here.shape, -1.0), np.zeros(here.shape, dtype=bool)
    for h in (2.0**-12, FINE_GRID, 2.0**-30):
        values = on_grid(h)
        if not np.isfinite(values).all():
            continue
        found = np.maximum(found, differences.noise_of(values, 6))
        still = (values == values[0]).all(axis=0) if h == FINE_GRID else still
    found = np.where(found < 0, np.inf, found)
    if still.any():
        found = np.maximum(found, 0.5 * _granularity(on_grid, still, here))
    return np.maximum(found, epsilon * np.maximum(here, least))


def _granularity(on_grid: Callable, still: np.ndarray, here: np.ndarray) -> np.ndarray:
    """Return the least step of values that are constant on a fine grid since they are rounded to a coarser type; else 0.

    (The differences of such steps may all be equal, and do not show it.)
    """
    found, h = np.zeros(here.shape), FINE_GRID
    still = still & (on_grid(1.0) != on_grid(0.0)).any(axis=0)
    while still.any() and h < 1:
        h *= 4
        steps = np.abs(np.diff(on_grid(h), axis=0))
        least = np.where(steps > 0, steps, np.inf).min(axis=0)
        found = np.where(still & (least <= COARSEST * here), least, found)
        still = still & (least == np.inf)
    return found


def slope_along(
    f: Callable, x: np.ndarray, u: np.ndarray, width: float, noise: Any, start: float | None = None
) -> Slope:
    """Return d/dt f(x + tu) at t = 0; NaN with an infinite error if f is not finite at any width.

    ``start``, if it is less than the width, is a length at which f is examined too before the width is accepted.
    """
    here = np.asarray(f(x), dtype=float)
    found, disagrees = _slope_from(f, x, u, width, noise, here, start)
    for narrower in (2.0**-8 * width, 2.0**-16 * width):
        if not disagrees:
            break
        again, disagrees = _slope_from(f, x, u, narrower, noise, here, None)
        better = again.error < found.error
        value = np.where(better, again.value, found.value)
        found = again._replace(value=value, error=np.where(better, again.error, found.error))
    best, error = found.value, found.error
    if not found.kink and np.all(error <= SHARPENED * np.abs(best)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a dropped imaginary part
            sharp = differences.complex_step(lambda z: np.atleast_1d(f(z)), x, u, np.atleast_1d(here))
        sharp = None if sharp is None else sharp.reshape(here.shape)
        if sharp is not None and np.all(np.abs(sharp - best) <= error):
            found = found._replace(value=sharp, error=error / 100)
    return found


def _slope_from(
    f: Callable, x: np.ndarray, u: np.ndarray, width: Any, noise: Any, here: Any, start: Any
) -> tuple[Slope, bool]:
    """Return the extrapolated slope from one width, and whether finer widths disagree with it."""
    lost = 2.0**-52 * float(np.abs(x).max(initial=0.0)) / max(float(np.abs(u).max(initial=0.0)), 1e-300)

    def central(h: float) -> np.ndarray:
        return (np.asarray(f(x + h * u), dtype=float) - np.asarray(f(x - h * u), dtype=float)) / (2 * h)

    def error_of(value: np.ndarray, apart: np.ndarray, h: float) -> np.ndarray:
        return apart + 2 * (noise + lost * np.abs(value)) / h

    best, error = differences.extrapolated(central, FIRST * width * HALVED, error_of)
    if not np.isfinite(best).all():
        nothing = np.full(here.shape, np.nan)
        return Slope(nothing, np.full(here.shape, np.inf), False, nothing, nothing), True
    return _at_fine_widths(f, x, u, width, noise, lost, here, best, MARGIN * error, start)


def _at_fine_widths(
    f: Callable,
    x: np.ndarray,
    u: np.ndarray,
    width: Any,
    noise: Any,
    lost: Any,
    here: Any,
    best: Any,
    error: Any,
    start: Any,
) -> tuple[Slope, bool]:
    """Return the slope, its error increased by finer widths, one-sided slopes at the finest; and whether they disagree."""
    jumps, disagrees = [], False
    more = () if start is None or width <= start else (start / 256,)
    for h in (*more, 16 * FINE * width, 4 * FINE * width, FINE * width):
        ahead, behind = (np.asarray(f(x + s * h * u), dtype=float) for s in (1, -1))
        blur = MARGIN * (noise + lost * np.abs(best)) / h
        jump = (ahead - 2 * here + behind) / h
        central = (ahead - behind) / (2 * h)
        if not np.isfinite(central).all():
            nothing = np.full(here.shape, np.nan)
            return Slope(best, np.full(here.shape, np.inf), False, nothing, nothing), True
        jumps.append(jump)
        # A smooth f leaves its third derivative times h^2 / 6, at most of the order of h/w times the jump.
        off = np.abs(central - best) - blur - np.abs(jump) - 16 * FINE * np.abs(best) * (h / width)
        disagrees = disagrees or bool(np.any(off > error + 1e-6 * np.abs(best)))
        error = np.where(off > error, 2 * np.abs(central - best), error)
    # (The measured noise is of no use here: a kink at x is noise on the grid that measures it.)
    middle = np.median(jumps[-3:], axis=0)
    steady = np.max(np.abs(np.array(jumps[-3:]) - middle), axis=0) <= 0.05 * np.abs(middle)
    kink = bool(
        np.any(steady & (np.abs(middle) * FINE * width > 2.0**-44 * np.maximum(np.abs(here), width * np.abs(best))))
    )
    return Slope(best, error, kink, (here - behind) / h, (ahead - here) / h), disagrees and not kink


def second_along(f: Callable, x: np.ndarray, u: np.ndarray, width: float, noise: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return d^2/dt^2 f(x + tu) at t = 0 and a bound on its error, by extrapolated second differences."""
    here = np.asarray(f(x), dtype=float)

    def bend(h: float) -> np.ndarray:
        return (np.asarray(f(x + h * u), dtype=float) - 2 * here + np.asarray(f(x - h * u), dtype=float)) / h**2

    best, error = differences.extrapolated(
        bend, FIRST * width * HALVED, lambda value, apart, h: apart + 8 * noise / h**2
    )
    return best, MARGIN * error
