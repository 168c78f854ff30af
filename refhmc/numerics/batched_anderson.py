"""Anderson's acceleration of a fixed-point iteration for many rows, the counterpart of the compiled ``accelerate``.

See :func:`refhmc.numerics.fixed_point.accelerate`. Each row has its own pairs of differences, and drops them depending on its
own residual, so that no row depends on another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from refhmc.numerics.batched import Array, dot, namespace
from refhmc.numerics.fixed_point import SPANNED


class History(NamedTuple):
    """Stored values of each row (..., k): its number of ``pairs`` (..., 1), the last residual and image, and the pairs.

    ``differences`` are those of residuals, orthonormal, and ``changes`` the corresponding ones of images.
    """

    pairs: Array
    residual: Array
    image: Array
    differences: tuple
    changes: tuple

    def in_use(self, slot: int) -> Array:
        """Return which rows have a pair in the slot, (..., 1)."""
        return self.pairs > slot

    def of_rows(self, take: Callable) -> History:
        """Return the history of some rows; ``take`` selects them from an array."""
        parts = [tuple(map(take, part)) if isinstance(part, tuple) else take(part) for part in self]
        return History(*parts)


def accelerated(
    x: Array, image: Array, exists: Array, history: History | None, memory: int
) -> tuple[Array, History, Array]:
    """Return the next iterate of x (..., k) with that image, the history, and the rows that went back, (...).

    A row without an image (``exists`` is False) goes back to the plain iterate before it if it was an extrapolation.
    """
    xp, residual = namespace(x), image - x
    if history is None:
        none, slots = xp.zeros_like(x), (xp.zeros_like(x),) * memory
        return image, History(none[..., :1], residual, image, slots, slots), ~exists & False
    goes_back = ~exists[..., None] & (history.pairs > 0)
    change, difference = image - history.image, residual - history.residual
    sane = square(residual) < 100 * square(history.residual)
    size, slot = square(difference), history.pairs % memory
    for j in range(memory):
        kept = history.in_use(j) & (slot != j)
        share = xp.where(kept, inner(history.differences[j], difference), 0.0 * size)
        difference = xp.where(kept, difference - share * history.differences[j], difference)
        change = xp.where(kept, change - share * history.changes[j], change)
    left = square(difference)
    good = sane & (left > SPANNED * size)
    length = xp.sqrt(xp.where(good, left, xp.ones_like(left)))
    put = [good & (slot == j) for j in range(memory)]
    following = History(
        xp.where(good, history.pairs + 1, 0.0 * history.pairs),
        xp.where(goes_back, history.residual, residual),
        xp.where(goes_back, history.image, image),
        tuple(xp.where(here, difference / length, old) for here, old in zip(put, history.differences, strict=True)),
        tuple(xp.where(here, change / length, old) for here, old in zip(put, history.changes, strict=True)),
    )
    x = image
    for j in range(memory):
        share = inner(following.differences[j], residual)
        x = xp.where(following.in_use(j), x - share * following.changes[j], x)
    return xp.where(goes_back, history.image, x), following, goes_back[..., 0]


def inner(a: Array, b: Array) -> Array:
    """Return a'b, (..., 1)."""
    return dot(a, b)[..., None]


def square(a: Array) -> Array:
    """Return a'a, (..., 1)."""
    return inner(a, a)
