"""The solution of dx/dt = f(t, x) at given times, by an explicit Runge-Kutta method that chooses its steps.

A step of the pair of order 8(5, 3) (:mod:`refhmc.numerics.dormand_prince`) has an error e, relative to the tolerance:
1 for tolerance (1 + max(|x_i|, |y_i|)) in the root mean square over all components. It is accepted if e <= 1, and the next
step is (Hairer, Norsett and Wanner 1993, sec. II.4)

    h min(6, max(1/3, 0.8 e^(-1/8)))            not longer after a rejection; the first ones grow faster

Steps do not stop at the given times: each step has a polynomial between its ends. The code is compiled, allocates nothing and
holds no lock, so that threads can solve in parallel. It is for equations that are not stiff; for stiff ones, steps are many and
short.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from refhmc.compile.compiled import jit_part, jit_template, shaped
from refhmc.core.point import copy_row
from refhmc.numerics.dormand_prince import COLUMNS, allowed, at, between, step

SOLVED, TOO_MANY_STEPS, VANISHING_STEP, NOT_FINITE = range(4)
SCRATCH_ROWS = COLUMNS + 2
# With 0.9 one in five steps is rejected, with 0.8 one in seven, which saves 5 to 8 % of the evaluations on nine systems.
SAFETY = 0.8
# The first step is short for states or sensitivities that start at zero: steps grow fast until an error is above rounding.
AT_FIRST, ROUNDING = 50.0, 1e-6
EPS = float(np.finfo(float).eps)


def in_words(outcome: int, t: float, max_steps: int) -> str:
    """Return why the solution was not found."""
    return {
        TOO_MANY_STEPS: f"more than {max_steps} steps from one time to the next, at t = {t:.6g}. Increase max_steps, or use "
        "solver='lsoda' for stiff equations",
        VANISHING_STEP: f"the step size went to zero at t = {t:.6g}, where the solution may end",
        NOT_FINITE: f"the right-hand side is not finite at t = {t:.6g}",
    }[outcome]


@jit_part
def factor(error: float) -> float:
    """Return the factor for the next step after that error: 0.8 e^(-1/8), at least 1/3; roots are faster than a power."""
    return max(1 / 3, SAFETY / math.sqrt(math.sqrt(math.sqrt(error))))


@jit_part
def size_of(v: np.ndarray, u: np.ndarray, tolerance: float) -> float:
    """Return the root mean square, relative to the error that is allowed for the state u."""
    total = 0.0
    for i in range(u.shape[0]):
        total += (v[i] / allowed(tolerance, u[i], u[i])) ** 2
    return (total / u.shape[0]) ** 0.5


@jit_template
def first_step(
    equations: Callable,
    u: np.ndarray,
    t: float,
    span: float,
    tolerance: float,
    work: np.ndarray,
    x: np.ndarray,
    f: np.ndarray,
) -> float:
    """Return a step for which Euler's method has an error of about 0.01 (Hairer, Norsett and Wanner 1993, sec. II.4).

    It is NaN or inf if ``f``, the slope at u, is not finite.
    """
    size, speed = size_of(u, u, tolerance), size_of(f, u, tolerance)
    if not speed < np.inf:
        return speed
    h = 0.01 * size / speed if size > 1e-5 and speed > 1e-5 else 1e-6
    h = min(h, span)
    for i in range(u.shape[0]):
        x[i] = u[i] + h * f[i]
    equations(x, t + h, work)
    for i in range(u.shape[0]):
        x[i] = work[i] - f[i]
    bend = size_of(x, u, tolerance) / h
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
    scratch: np.ndarray,
    reached: np.ndarray,
) -> int:
    """Integrate ``u`` from ``start`` to ``end``, in place, and write its values at ``times`` between them to rows of ``path``.

    ``equations(u, t, work)`` writes f(t, u) to the head of ``work``; ``scratch`` has
    SCRATCH_ROWS numbers per unknown. Return the outcome;
    ``reached`` (1,) is the last time of the solver. ``max_steps`` limits the steps from one of the times to the next, including
    rejected ones.
    """
    n, t, seen, steps, grow = u.shape[0], start, 0, 0, AT_FIRST
    reached[0] = start
    while seen < times.shape[0] and times[seen] <= t:
        copy_row(path[seen], u)
        seen += 1
    if not t < end:
        return SOLVED
    rows = shaped(scratch[n * COLUMNS : n * SCRATCH_ROWS], (2, n))
    K, y, x = shaped(scratch[: n * COLUMNS], (n, COLUMNS)), rows[0], rows[1]
    equations(u, t, work)
    for i in range(n):
        K[i, 0], K[i, 1], y[i] = u[i], work[i], work[i]
    h = first_step(equations, u, t, end - t, tolerance, work, x, y)
    if not h < np.inf:
        return NOT_FINITE
    while t < end:
        if steps == max_steps:
            return TOO_MANY_STEPS
        if not h > 10 * EPS * max(abs(t), abs(t + h)):
            return VANISHING_STEP
        last = t + 1.01 * h >= end
        if last:
            h = end - t
        error = step(equations, t, h, tolerance, work, K, y)
        steps += 1
        if not error <= 1.0:
            grow = 1.0
            h *= factor(error) if error < np.inf else 0.1
            continue
        after = end if last else t + h
        if seen < times.shape[0] and times[seen] <= after:
            steps = 0
            if times[seen] < after:
                between(equations, t, h, work, K, x)
            while seen < times.shape[0] and times[seen] < after:
                at((times[seen] - t) / h, h, K, path[seen])
                seen += 1
        t = reached[0] = after
        for i in range(n):
            K[i, 0], K[i, 1] = y[i], K[i, 13]
        while seen < times.shape[0] and times[seen] <= t:
            copy_row(path[seen], y)
            seen += 1
        h *= min(grow, factor(error)) if error > 0.0 else grow
        grow = AT_FIRST if grow == AT_FIRST and error <= ROUNDING else 6.0
    copy_row(u, y)
    return SOLVED
