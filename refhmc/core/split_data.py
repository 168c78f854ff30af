"""How the parts of a split model (:mod:`refhmc.models.split`) lie in the one array of data that crosses a pointer.

A column of numbers: a table and then, one under another, its parts.

    entry 0                 M
    entry 1 + m             where part m begins, m = 0, ..., M - 1; then where all ends
    part m                  -k, the shape of its data, their numbers          k: which function the part has, 0, 1, ...

A slice that is one part serves the same functions as the data of that part alone.
"""

from __future__ import annotations

import numpy as np

from refhmc.core.compiled import jit, jit_inline

HEAD = 3  # entries of a part before its numbers


@jit
def number_of_parts(data: np.ndarray) -> int:
    return int(data[0, 0])


@jit_inline
def part_of(data: np.ndarray, m: int) -> np.ndarray:
    """Part m."""
    return data[int(data[1 + m, 0]) : int(data[2 + m, 0])]


def stacked(parts: list[np.ndarray], kinds: list[int]) -> np.ndarray:
    """The column of a table and the parts' data."""
    M = len(parts)
    starts = M + 2 + np.concatenate([[0], np.cumsum([HEAD + part.size for part in parts])])
    heads = [[-float(kind), *part.shape] for kind, part in zip(kinds, parts, strict=True)]
    numbers = [number for head, part in zip(heads, parts, strict=True) for number in (head, part.ravel())]
    return np.concatenate([[M], starts, *numbers])[:, None]
