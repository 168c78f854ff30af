"""How the parts of a split model (:mod:`refhmc.models.split`) lie in the one array of data that crosses a pointer.

A column of numbers: a table and then, one under another, its parts.

    entry 0                 M
    entry 1 + m             where part m begins, m = 0, ..., M - 1; then where all ends
    part m                  -k, the shape of its data, their numbers          k: which function the part has, 0, 1, ...

A slice that is one part serves the same functions as the data of that part alone.

An order of the parts lies in rows (k, d), d numbers to a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refhmc.core.compiled import jit, jit_inline
from refhmc.core.randomness import uniform

HEAD = 3  # entries of a part before its numbers


@jit
def number_of_parts(data: np.ndarray) -> int:
    return int(data[0, 0])


@jit_inline
def part_of(data: np.ndarray, m: int) -> np.ndarray:
    """Part m."""
    return data[int(data[1 + m, 0]) : int(data[2 + m, 0])]


def rows_of_order(order: Sequence[int], d: int) -> np.ndarray:
    """Rows (k, d) with the order of the parts."""
    M = len(order)
    rows = np.zeros(-(-M // d) * d)
    rows[:M] = order
    return rows.reshape(-1, d)


@jit
def nth_part(rows: np.ndarray, k: int) -> int:
    """Which part is the k-th, k = 0, ..., M - 1, in that order."""
    return int(rows[k // rows.shape[1], k % rows.shape[1]])


@jit
def draw_order(randomness: tuple, M: int, rows: np.ndarray) -> None:
    """A uniform permutation of M parts (Fisher and Yates), one uniform for each k = M - 1, ..., 1: entry floor(u (k + 1))
    changes places with entry k."""
    d = rows.shape[1]
    for k in range(M):
        rows[k // d, k % d] = k
    for k in range(M - 1, 0, -1):
        j = min(int(uniform(randomness) * (k + 1)), k)
        rows[j // d, j % d], rows[k // d, k % d] = rows[k // d, k % d], rows[j // d, j % d]


def stacked(parts: list[np.ndarray], kinds: list[int]) -> np.ndarray:
    """The column of a table and the parts' data."""
    M = len(parts)
    starts = M + 2 + np.concatenate([[0], np.cumsum([HEAD + part.size for part in parts])])
    heads = [[-float(kind), *part.shape] for kind, part in zip(kinds, parts, strict=True)]
    numbers = [number for head, part in zip(heads, parts, strict=True) for number in (head, part.ravel())]
    return np.concatenate([[M], starts, *numbers])[:, None]
