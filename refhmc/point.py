"""A point of phase space, with all that the next step needs to know there.

A point is a (5, d) matrix: position, momentum, gradient of the log density, velocity M^-1 p, and in the first column of
the last row the log density itself. A trajectory can so be taken up again at either end without evaluating the model twice.
"""

from __future__ import annotations

from refhmc.compiled import jit

Q, P, GRADIENT, VELOCITY, LOG_DENSITY = range(5)
POINT_ROWS = 5


@jit
def copy_state(target, source):
    """Position, gradient and log density of a point; the momentum is not part of a chain's state."""
    for i in range(source.shape[1]):
        target[Q, i] = source[Q, i]
        target[GRADIENT, i] = source[GRADIENT, i]
    target[LOG_DENSITY, 0] = source[LOG_DENSITY, 0]


@jit
def copy_point(target, source):
    """All rows of a point."""
    for row in range(source.shape[0]):
        for i in range(source.shape[1]):
            target[row, i] = source[row, i]
