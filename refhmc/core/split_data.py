"""The layout of the parts of a split model (:mod:`refhmc.models.split`) in the single data array that crosses a pointer.

The array is one column: a table, followed by the parts::

    entry 0                 M
    entry 1 + m             where part m starts, m = 0, ..., M - 1; then the end
    part m                  -k, the shape of its data, their numbers          k: index of the part's functions, 0, 1, ...

A slice with one part serves the same functions as the data of that part alone.

An order of the parts is stored in rows (k, d), with d numbers per row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refhmc.compile.compiled import jit, jit_inline

HEAD = 3  # header entries of a part


@jit
def number_of_parts(data: np.ndarray) -> int:
    return int(data[0, 0])


@jit_inline
def part_of(data: np.ndarray, m: int) -> np.ndarray:
    """Return part m."""
    return data[int(data[1 + m, 0]) : int(data[2 + m, 0])]


def rows_of_order(order: Sequence[int], d: int) -> np.ndarray:
    """Return rows (k, d) with the order of the parts."""
    M = len(order)
    rows = np.zeros(-(-M // d) * d)
    rows[:M] = order
    return rows.reshape(-1, d)


@jit
def nth_part(rows: np.ndarray, k: int) -> int:
    """Return the k-th part in that order, k = 0, ..., M - 1."""
    return int(rows[k // rows.shape[1], k % rows.shape[1]])


def stacked(parts: list[np.ndarray], kinds: list[int]) -> np.ndarray:
    """Return the column of a table and the parts' data."""
    M = len(parts)
    starts = M + 2 + np.concatenate([[0], np.cumsum([HEAD + part.size for part in parts])])
    heads = [[-float(kind), *part.shape] for kind, part in zip(kinds, parts, strict=True)]
    numbers = [number for head, part in zip(heads, parts, strict=True) for number in (head, part.ravel())]
    return np.concatenate([[M], starts, *numbers])[:, None]
