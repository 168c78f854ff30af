"""States along a trajectory of HMC that warm-up uses: the proposals that trajectories of other lengths would have made.

A trajectory of length l has n(l) = round(l / eps) steps, at least one and at most 1,024, where eps is the step size before
jitter. Consider the lengths l_k = l_last 2^((k - K + 1)/4), k < K, four per octave over five octaves. The position after
n(l_k) steps is kept with its acceptance min(1, exp(H0 - H)), which is 0 if the trajectory ended before because of a non-finite
energy. Nothing is kept for lengths that the trajectory was not meant to reach.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.compiled import jit, jit_inline
from refhmc.core.point import copy_row

N_LENGTHS, AN_OCTAVE = 20, 4
MAX_STEPS = 1024  # when a trajectory length is given and the step size is tiny


class Watched(NamedTuple):
    """A length's position (d,), and in the first columns its acceptance and its number of steps (0 if not reached)."""

    q: Any
    acceptance: Any
    n_steps: Any


WATCHED_ROWS = len(Watched._fields)


@jit_inline
def as_watched(rows: np.ndarray) -> Watched:
    """Return named views of the rows of a length."""
    return Watched(rows[0], rows[1], rows[2])


@jit
def watched_length(longest: float, k: int) -> float:
    """Return l_k; the last one is ``longest``."""
    return longest * 2.0 ** ((k - N_LENGTHS + 1) / AN_OCTAVE)


@jit
def steps_of(length: float, step_size: float) -> int:
    """Return the number of steps of a trajectory of a given length."""
    return int(min(max(round(length / step_size), 1), MAX_STEPS))


@jit
def watch_start(path: np.ndarray, q: np.ndarray) -> None:
    """Mark all lengths as not reached, and write the start into the last row of ``path`` (K + 1, 3, d)."""
    path[:, 1:, 0] = 0.0
    copy_row(path[N_LENGTHS, 0], q)


@jit
def watch(path: np.ndarray, settings: Any, q: np.ndarray, drop: float, done: int, k: int) -> int:
    """Keep the position after ``done`` steps, with H0 - H = ``drop``, for the lengths from the k-th on that it has reached.

    Return the first length that needs more steps.
    """
    while k < N_LENGTHS and steps_of(watched_length(settings.longest, k), settings.step_size) <= done:
        there = as_watched(path[k])
        copy_row(there.q, q)
        there.acceptance[0] = math.exp(min(drop, 0.0)) if math.isfinite(drop) else 0.0
        there.n_steps[0] = steps_of(watched_length(settings.longest, k), settings.step_size)
        k += 1
    return k
