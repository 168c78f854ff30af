"""Points at which a function on R^d is examined.

Every coordinate has ten bits, so that it is the same number in float32 (and the line to paste is short). Points are

    centre + scale * z       z normal; small, ordinary, growing in size and sign from coordinate to coordinate, or large

with a centre where the function is finite (improved by parabolas along the coordinates). The scale is the length on which the
function bends there (``width_along`` in ``derivatives/slopes.py``). Points without finite values are moved towards the centre.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.derivatives.slopes import width_along

BITS = 10
GENERIC_DIM = 3  # for functions that accept any dimension
LARGEST_TRIED = 64
GAIN = 30.0  # gain required to move the centre along a coordinate, which need not be the mode


class Frame(NamedTuple):
    """Bulk of a function: ``centre`` and ``scales``, (d,)."""

    centre: np.ndarray
    scales: np.ndarray


def short(q: Any) -> np.ndarray:
    """Return ``q`` rounded to ten bits per coordinate."""
    mantissa, exponent = np.frexp(np.asarray(q, dtype=float))
    return np.ldexp(np.round(mantissa * 2.0**BITS) / 2.0**BITS, exponent)


def as_points(points: Any, dim: int) -> np.ndarray:
    """Return the caller's ``points`` (n, d), (d,) or None, as (n, d); ValueError for another shape."""
    if points is None:
        return np.zeros((0, dim))
    array = np.atleast_2d(np.asarray(points, dtype=float))
    if array.ndim != 2 or array.shape[1] != dim:
        raise ValueError(f"points must have shape (n, {dim}); got {np.shape(points)}.")
    return array


def inside_test(support: Any) -> Callable[[np.ndarray], bool]:
    """Return ``support``, None, a function q -> bool or a pair (low, high), as a function."""
    if support is None:
        return lambda q: True
    if callable(support):
        return lambda q: bool(np.all(support(np.array(q))))
    low, high = (np.asarray(x, dtype=float) for x in support)
    return lambda q: bool(np.all(q > low) and np.all(q < high))


def candidates(dim: int, support: Any, points: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield starting points: the caller's, simple ones, some inside the box, random ones of many sizes."""
    yield from points
    if support is not None and not callable(support):
        yield from (in_box(support, dim, rng.uniform(-1, 1, dim)) for _ in range(10))
    yield np.zeros(dim)
    yield np.full(dim, 0.5)
    yield np.ones(dim)
    for size in (1.0, 0.1, 10.0, 0.01, 100.0, 1000.0):
        for _ in range(20):
            yield short(size * rng.standard_normal(dim))
            yield short(size * np.abs(rng.standard_normal(dim)))
            yield short(size * rng.uniform(0.05, 0.95, dim) / dim)


def in_box(support: Any, dim: int, z: np.ndarray) -> np.ndarray:
    """Return a point within (low, high), from ``z`` in (-1, 1)^d."""
    low, high = (np.broadcast_to(np.asarray(x, dtype=float), (dim,)) for x in support)
    lowest, highest = np.isfinite(low), np.isfinite(high)
    middle = np.where(lowest & highest, 0.0, z * 2)
    middle = np.where(lowest & ~highest, np.where(lowest, low, 0) + np.exp(2 * z), middle)
    middle = np.where(~lowest & highest, np.where(highest, high, 0) - np.exp(2 * z), middle)
    both = lowest & highest
    half = 0.5 * np.where(both, high, 1.0) - 0.5 * np.where(both, low, -1.0)
    return short(np.where(both, np.where(both, low, 0) + half * (1 + 0.9 * z), middle))


def find_frame(f: Callable, dim: int, support: Any, points: np.ndarray, rng: np.random.Generator) -> Frame | None:
    """Return centre and scales of a scalar function ``f`` (NaN if undefined); None if it is finite nowhere."""
    inside = inside_test(support)
    centre = next((q for q in candidates(dim, support, points, rng) if inside(q) and np.isfinite(f(q))), None)
    if centre is None:
        return None
    scales = np.ones(dim)
    for _ in range(2):
        for k, unit in enumerate(np.eye(dim)):
            scales[k] = width_along(f, centre, unit, start=scales[k])
            w, here = scales[k], f(centre)
            ahead, behind = f(centre + w * unit), f(centre - w * unit)
            bend = ahead - 2 * here + behind
            if bend < 0 and np.isfinite(bend):
                moved = short(centre + unit * np.clip(w * (behind - ahead) / (2 * bend), -100 * w, 100 * w))
                if inside(moved) and f(moved) > here + GAIN:
                    centre = moved
    return Frame(short(centre), scales)


def place(frame: Frame, z: np.ndarray, good: Callable[[np.ndarray], bool]) -> np.ndarray | None:
    """Return centre + scales * z, moved towards the centre until it is ``good``; None if that takes too long."""
    for _ in range(12):
        q = short(frame.centre + frame.scales * z)
        if good(q):
            return q
        z = 0.5 * z
    return None


def ascending(dim: int, rng: np.random.Generator) -> np.ndarray:
    """Return coordinates of different sizes and mixed signs, from 0.3 to 2.2."""
    sizes = np.linspace(0.3, 2.2, dim) * rng.uniform(0.9, 1.1, dim)
    return rng.permutation(sizes) * np.where(np.arange(dim) % 2, -1.0, 1.0)


def infer_dim(
    answers: Callable[[int], Sequence[tuple[int, ...]] | None], tried: Sequence[int] = range(1, LARGEST_TRIED + 1)
) -> int | None:
    """Return the dimension of functions that do not define it, or None.

    ``answers(d)`` is None if they do not accept (d,), else the shapes of answers that should be (d,), (d, d) ...
    A function that accepts (almost) any d is examined in three dimensions. Otherwise the largest possible d is used, since
    a length of one is often broadcast.
    """
    possible = []
    for d in tried:
        shapes = answers(d)
        if shapes is not None and all(shape == (d,) * len(shape) for shape in shapes):
            possible.append(d)
    if not possible:
        return None
    if len(possible) > len(tried) // 4:
        return next((d for d in possible if d >= GENERIC_DIM), possible[-1])
    return possible[-1]
