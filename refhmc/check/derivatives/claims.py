"""Comparison of a claimed derivative with its function, at one point and along several directions.

For a function f with numbers or tensors as values, a unit for each entry, and a claim C[..., k] = df/dq_k, along direction u

    |C u - df(u)| <= error of the differences + 64 (measured noise of C + its unit of rounding) |u| + tier * size

where size is the larger of |df(u)| and unit / w, w the length on which f bends along u. A difference below ``tier`` of
that does not affect f over its own scale. If the differences are not accurate to a tenth of the size, a point decides nothing.
At a kink the claim must lie between the two one-sided slopes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.derivatives.slopes import NOISE_MARGIN, noise_along, slope_along, width_along
from refhmc.check.judging import failed, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive

ALL_COORDINATES = 16  # up to this dimension, each coordinate; beyond, some of them and dense directions
COARSE = 1e-6  # tier at which a derivative is wrong
BASIS = f"error of the differences + 64 x noise of the claim + {COARSE:.0e} of the scale"


class Claim(NamedTuple):
    """Claimed values along each direction (last axis), the differences, the tolerance, and the size.

    ``wrong`` and ``decided`` have the shape of ``value``; ``own`` is the tier-independent part of the tolerance.
    """

    q: np.ndarray
    directions: np.ndarray
    value: np.ndarray
    truth: np.ndarray
    own: np.ndarray
    size: np.ndarray
    decided: np.ndarray
    kinks: np.ndarray
    noise: np.ndarray

    def excess(self, tier: float = COARSE) -> np.ndarray:
        """Return |claim - truth| over the tolerance; 0 where undecided, infinite where the claim is not finite."""
        with np.errstate(all="ignore"):
            ratio = np.abs(self.value - self.truth) / (self.own + tier * self.size)
        ratio = np.where(np.isfinite(self.value), ratio, np.inf)
        return np.where(self.decided, ratio, 0.0)


def directions_at(dim: int, scales: np.ndarray, rng: np.random.Generator, smooth: Any = None) -> np.ndarray:
    """Return every coordinate, or in many dimensions eight and eight dense directions in units of ``scales``: (K, d).

    ``smooth`` (d,) is False at coordinates that must not be moved.
    """
    smooth = np.ones(dim, dtype=bool) if smooth is None else smooth
    among = np.flatnonzero(smooth)
    if len(among) <= ALL_COORDINATES:
        return np.eye(dim)[among]
    chosen = np.sort(rng.choice(among, 8, replace=False))
    dense = rng.choice([-1.0, 1.0], (8, dim)) * scales * smooth / np.sqrt(len(among))
    return np.concatenate([np.eye(dim)[chosen], dense])


def claim_at(
    f: Callable,
    claimed: Callable,
    q: np.ndarray,
    directions: np.ndarray,
    scales: np.ndarray,
    *,
    start: float = 1.0,
    unit: Any = 1.0,
    epsilon: float = 2.0**-52,
    claim_epsilon: float = 2.0**-52,
    least: Any = 0.0,
    growth: float = 2.0**24,
    beside: np.ndarray | None = None,
) -> Claim:
    """Return the claim at q along ``directions`` (K, d); initial lengths are ``scales`` (d,), along dense ones ``start``.

    ``least`` is the least size of f's terms, ``growth`` limits its widths relative to ``starts``. The noise of the claim
    is measured at ``beside`` if that is given, since a claim that is only wrong at q is noise on a grid around it.
    """
    starts = np.where(np.count_nonzero(directions, axis=1) == 1, np.abs(directions) @ scales, start)
    value = np.asarray(np.real(claimed(q)), dtype=float)
    widths = np.array([width_along(f, q, u, unit, w, growth) for u, w in zip(directions, starts, strict=True)])
    # One direction that moves every coordinate by about its own width, for the noise of both.
    weights = np.abs(directions) * widths[:, None]
    every = np.where(np.arange(len(q)) % 2, -1.0, 1.0) * np.where(weights > 0, weights, np.inf).min(axis=0)
    every = np.where((weights > 0).any(axis=0), every, 0.0)
    every = np.clip(every, -100 * np.maximum(1.0, np.abs(q)), 100 * np.maximum(1.0, np.abs(q))) / np.sqrt(len(q))
    noise_f = noise_along(f, q, every, epsilon, least)
    noise = noise_along(lambda x: np.real(claimed(x)), q if beside is None else beside, every, claim_epsilon)
    noise = np.where(np.isfinite(noise), noise, claim_epsilon * np.abs(value))
    columns = []
    for u, w, start in zip(directions, widths, starts, strict=True):
        slope = slope_along(f, q, u, w, noise_f, start)
        size = np.maximum(np.abs(slope.value), unit / w)
        said = value @ u
        truth, decided = slope.value, slope.error <= 0.1 * size
        if slope.kink:
            low, high = np.minimum(slope.left, slope.right), np.maximum(slope.left, slope.right)
            truth, decided = np.clip(said, low, high), np.isfinite(low) & np.isfinite(high) & np.isfinite(said)
        error = np.where(np.isfinite(slope.error), slope.error, 0.0) * (not slope.kink)
        own = error + NOISE_MARGIN * (noise @ np.abs(u) + claim_epsilon * (np.abs(value) @ np.abs(u)))
        if slope.kink:  # one-sided slopes are only accurate to h f''
            own = own + 1e-3 * size
        columns.append((said, truth, own, size, decided, np.full(said.shape, slope.kink), noise @ np.abs(u)))
    return Claim(q, directions, *(np.stack(c, axis=-1) for c in zip(*columns, strict=True)))


def row_of(claims: Sequence[Claim], case: Callable[[Claim, tuple[int, ...]], str], said: str = "") -> Row:
    """Return the row of a claim at several points, for the entry with the largest excess; the last index is the direction.

    Raises Inconclusive if no point decides.
    """
    if not any(c.decided.any() for c in claims):
        raise Inconclusive(f"at none of {len(claims)} points do differences resolve the derivative")
    claim = max(claims, key=lambda c: c.excess().max())
    excess = claim.excess()
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), excess.shape))
    size = max(float(claim.size[index]), 1e-300)
    number, tolerance = np.inf, COARSE
    if np.isfinite(claim.value[index]):
        number = float(np.abs(claim.value[index] - claim.truth[index]) / size)
        tolerance = float((claim.own[index] + COARSE * claim.size[index]) / size)
    basis = f"{BASIS}; {len(claims)} points" + (f"; {said}" if said else "")
    if excess[index] <= 1.0:
        return passed(basis, number, tolerance)
    return failed(basis, case(claim, index), number, tolerance)
