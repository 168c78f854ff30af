"""The solution of dx/dt = f(t, x) at given times, by an explicit Runge-Kutta method that chooses its steps.

A step of the pair of order 8(5, 3) (:mod:`refhmc.numerics.dormand_prince`) has an error e, relative to the tolerance:
1 for tolerance (1 + max(|x_i|, |y_i|)) in the root mean square over all components. It is accepted if e <= 1, and the next
step is (Hairer, Norsett and Wanner 1993, sec. II.4)

    h min(6, max(1/3, 0.9 e^(-1/8)))            not longer where the step before was rejected

Steps do not stop at the given times: between its ends each step has a polynomial. All is compiled, allocates nothing and holds
no lock: threads solve side by side. For equations that are not stiff; where they are, steps are many and short.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from refhmc.core.compiled import jit_part, jit_template
from refhmc.core.point import copy_row
from refhmc.numerics.dormand_prince import SLOPES, TERMS, at, between, error_of, slope, step

SOLVED, TOO_MANY_STEPS, VANISHING_STEP, NOT_FINITE = range(4)
ROOM = SLOPES + TERMS + 3
EPS = float(np.finfo(float).eps)


def in_words(outcome: int, t: float, max_steps: int) -> str:
    """Why there is no solution."""
    return {
        TOO_MANY_STEPS: f"more than {max_steps} steps from one time to the next, at t = {t:.6g}: raise max_steps, or "
        "solver='lsoda' where the equations are stiff",
        VANISHING_STEP: f"the step went to zero at t = {t:.6g}: the solution may end there",
        NOT_FINITE: f"the right-hand side is not finite at t = {t:.6g}",
    }[outcome]


@jit_part
def set_scale(u: np.ndarray, y: np.ndarray, tolerance: float, scale: np.ndarray) -> None:
    """The error that is allowed in each component."""
    for i in range(u.shape[0]):
        scale[i] = tolerance * (1.0 + max(abs(u[i]), abs(y[i])))


@jit_part
def mean_square(x: np.ndarray, scale: np.ndarray) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        total += (x[i] / scale[i]) ** 2
    return total / x.shape[0]


@jit_template
def first_step(
    equations: Callable,
    u: np.ndarray,
    t: float,
    span: float,
    work: np.ndarray,
    K: np.ndarray,
    y: np.ndarray,
    scale: np.ndarray,
) -> float:
    """A step of which Euler's method would make an error of about 0.01 (Hairer, Norsett and Wanner 1993, sec. II.4)."""
    size, speed = mean_square(u, scale) ** 0.5, mean_square(K[0], scale) ** 0.5
    h = 0.01 * size / speed if size > 1e-5 and speed > 1e-5 else 1e-6
    h = min(h, span)
    for i in range(u.shape[0]):
        y[i] = u[i] + h * K[0, i]
    slope(equations, y, t + h, work, K[1])
    for i in range(u.shape[0]):
        K[1, i] -= K[0, i]
    bend = mean_square(K[1], scale) ** 0.5 / h
    largest = max(speed, bend)
    other = (0.01 / largest) ** 0.125 if largest > 1e-15 else max(1e-6, 1e-3 * h)
    return min(100 * h, other, span)


@jit_template
def integrate(
    equations: Callable,
    u: np.ndarray,
    start: float,
    end: float,
    times: np.ndarray,
    path: np.ndarray,
    tolerance: float,
    max_steps: int,
    work: np.ndarray,
    room: np.ndarray,
    reached: np.ndarray,
) -> int:
    """``u`` from ``start`` to ``end``, in place, and its values at ``times``, which lie between them, as rows of ``path``.

    ``equations(u, t, work)`` writes f(t, u) into the head of ``work``; ``room`` has ROOM rows as long as ``u``.
    The outcome; ``reached`` (1,) is the time where the solver was at the end. ``max_steps``: from one of the times to the next,
    rejected ones too.
    """
    n, t, seen, steps, grow = u.shape[0], start, 0, 0, 6.0
    reached[0] = start
    K, F, y, x, scale = room[:SLOPES], room[SLOPES : SLOPES + TERMS], room[ROOM - 3], room[ROOM - 2], room[ROOM - 1]
    while seen < times.shape[0] and times[seen] <= t:
        copy_row(path[seen], u)
        seen += 1
    if not t < end:
        return SOLVED
    slope(equations, u, t, work, K[0])
    set_scale(u, u, tolerance, scale)
    if not mean_square(K[0], scale) < np.inf:
        return NOT_FINITE
    h = first_step(equations, u, t, end - t, work, K, y, scale)
    while t < end:
        if steps == max_steps:
            return TOO_MANY_STEPS
        if not h > 10 * EPS * max(abs(t), abs(t + h)):
            return VANISHING_STEP
        last = t + 1.01 * h >= end
        if last:
            h = end - t
        step(equations, u, t, h, work, K, y)
        set_scale(u, y, tolerance, scale)
        error = error_of(h, K, scale)
        steps += 1
        if not error <= 1.0:
            grow = 1.0
            h *= max(1 / 3, 0.9 * error**-0.125) if error < np.inf else 0.1
            continue
        after = end if last else t + h
        if seen < times.shape[0] and times[seen] <= after:
            steps = 0
            if times[seen] < after:
                between(equations, u, t, h, work, K, y, x, F)
            while seen < times.shape[0] and times[seen] < after:
                at((times[seen] - t) / h, u, F, path[seen])
                seen += 1
        t = reached[0] = after
        for i in range(n):
            u[i] = y[i]
            K[0, i] = K[12, i]
        while seen < times.shape[0] and times[seen] <= t:
            copy_row(path[seen], u)
            seen += 1
        h *= min(grow, max(1 / 3, 0.9 * error**-0.125)) if error > 0.0 else grow
        grow = 6.0
    return SOLVED
