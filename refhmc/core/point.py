"""A point of phase space, with everything that the next step needs there.

A point is a (5, d) matrix: position, momentum, gradient of the log density, and velocity M^-1 p. The log density itself is
in the first column of the last row. A trajectory can therefore be continued at either end without evaluating the model
twice. In an extended phase space (:mod:`refhmc.integrators.explicit_tao`), two more rows contain the copies of position and
momentum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from refhmc.compile.compiled import jit, jit_inline, jit_part


class Point(NamedTuple):
    """Rows (d,) of a point; the log density is ``log_density[0]``."""

    q: np.ndarray
    p: np.ndarray
    gradient: np.ndarray
    velocity: np.ndarray
    log_density: np.ndarray


POINT_ROWS = len(Point._fields)
Q, P, GRADIENT, VELOCITY, LOG_DENSITY = range(POINT_ROWS)
COPY_Q, COPY_P = POINT_ROWS, POINT_ROWS + 1
EXTENDED_ROWS = POINT_ROWS + 2


@jit_inline
def as_point(z: np.ndarray) -> Point:
    return Point(z[0], z[1], z[2], z[3], z[4])


# One row at a time: LLVM does not vectorise a loop over several rows, because many pairs might overlap.
@jit_inline
def copy_row(target: np.ndarray, source: np.ndarray) -> None:
    """Target <- source."""
    for i in range(source.shape[0]):
        target[i] = source[i]


@jit_inline
def add_row(target: np.ndarray, source: np.ndarray) -> None:
    """Target <- target + source."""
    for i in range(source.shape[0]):
        target[i] += source[i]


@jit_inline
def swap_rows(x: np.ndarray, y: np.ndarray) -> None:
    """X <-> y."""
    for i in range(x.shape[0]):
        x[i], y[i] = y[i], x[i]


@jit
def copy_state(target: np.ndarray, source: np.ndarray) -> None:
    """Copy position, gradient and log density of a point; the momentum is not part of a chain's state."""
    copy_row(target[Q], source[Q])
    copy_row(target[GRADIENT], source[GRADIENT])
    target[LOG_DENSITY, 0] = source[LOG_DENSITY, 0]


@jit
def copy_point(target: np.ndarray, source: np.ndarray) -> None:
    """Copy all rows of a point."""
    for row in range(LOG_DENSITY):
        copy_row(target[row], source[row])
    target[LOG_DENSITY, 0] = source[LOG_DENSITY, 0]
    for row in range(POINT_ROWS, source.shape[0]):
        copy_row(target[row], source[row])


@jit_part
def put_copies(z: np.ndarray) -> None:
    """Set the copies of an extended phase space (:mod:`refhmc.integrators.explicit_tao`) to the point itself."""
    for row in range(POINT_ROWS, z.shape[0]):
        copy_row(z[row], z[row - POINT_ROWS])
