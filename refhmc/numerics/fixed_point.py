"""Solving x = f(x) by fixed-point iteration, plain or with Anderson's acceleration.

**Fixed point**: x_{k+1} = f(x_k) until every coordinate changes by at most the tolerance, max_i |x_{k+1,i} - x_{k,i}| <= delta
(Brofos and Lederman 2021, Algorithm 1), or by its last bits, if a double of that size cannot resolve the tolerance. The iterate
returned is the last f(x).

**Anderson** (1965; Walker and Ni 2011), memory m: with residuals r_j = f(x_j) - x_j,

    x_{k+1} = f(x_k) - sum_j gamma_j (f(x_{j+1}) - f(x_j)),    gamma = argmin | r_k - sum_j gamma_j (r_{j+1} - r_j) |

over the last m differences: a secant method. It saves a third of the evaluations if few directions converge slowly
(the banana: 7 instead of 10), a twentieth on the funnel or a logistic regression, and costs some arithmetic each time.

The start is a function of the point and the step alone. A solve ends in one of three ways: converged, not converged after
``max_iterations``, or an iterate at which the equation cannot be evaluated (an iterate or a metric that overflows, a metric
that is not positive definite). Its result is used in the first case only; the others are noted in ``status.failure``.

An ``equation(model, metric, z, eps, work, own, x, image)`` writes f(x) to ``image``, or returns False if x has no image;
``x`` and ``image`` are (k, d), k at most 2.

**A known end.** The reverse step of an implicit step has to arrive at a known point x*. The only question is whether it
does, and after how many iterations. With e_k = max_i |x_k,i - x*_i| and E_k = max(e_k, e_{k-1}), since q and p may alternate,
plain iteration is stopped after k >= 2 iterations as *bound to arrive* if

    e_1, ..., e_k <= e_0,          E_k <= E_{k-2} / 4,
    n = k + log(E_k / delta) / log(1 / rho),  rho^2 = E_k / E_{k-2},  differs from n' by a quarter and 2 at most,
    2 max(n, n') <= max_iterations,

where n' is the number of iterations of the forward step. *If* two iterations continue to reduce E by rho^2 or more, E is below
delta after n iterations. :mod:`refhmc.integrators.step` explains why this is expected of a reverse step, and how often it was
found false.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

import numpy as np

from refhmc.compile.compiled import invariant, jit, jit_part, jit_template
from refhmc.core import sample_stats as S
from refhmc.core.types import as_work

LAST_BITS = 4 * np.finfo(float).eps
MAX_MEMORY = 5
HISTORY_ROWS = 4 + 4 * MAX_MEMORY
ALIKE = 1.25  # forward and reverse iterations are similar if the larger number is at most this times the other, plus 2
SPANNED = 1e-10  # of the square of a difference: if less is left after projecting out the others, it is rounding


class Outcome(enum.IntEnum):
    """Outcome of a solve.

    FAILED: an iterate cannot be evaluated, or is not finite. BOUND_TO_ARRIVE: stopped on the way to a known end.
    """

    CONVERGED = 0
    MAX_ITERATIONS = 1
    FAILED = 2
    BOUND_TO_ARRIVE = 3


@jit_template
def fixed_point(
    equation: Callable,
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    x: np.ndarray,
    image: np.ndarray,
    history: np.ndarray,
    end: np.ndarray | None = None,
) -> Outcome:
    """Solve x = f(x) from ``x`` on, in place; return the outcome, and note the reason of a failure.

    ``end`` is the point where the iteration arrives if this is a reverse step (``status.iterations_there`` is not 0), None
    if it is not known.

    An iterate is not a state of the trajectory: if it overflows, the solve has failed. A metric that is finite and not positive
    definite there still counts as a divergence, since a smaller step does not remove it.
    """
    _, _, options, cache, counters, status = as_work(work)
    outcome, cache.pairs = Outcome.MAX_ITERATIONS, 0
    if end is not None:
        first = last = pair = pair_before = largest_change(x, end)
    for n in range(options.max_iterations):
        if not equation(model, metric, z, eps, work, own, x, image):
            if retreat(x, history, options.anderson_memory, cache, counters, status):
                continue
            outcome = Outcome.FAILED
            break
        counters.iterations += 1
        if not moved(image, x, options.tolerance):
            invariant(not not_finite(image))
            status.residual = max(status.residual, largest_change(image, x))
            copy_rows(x, image)
            outcome = Outcome.CONVERGED
            break
        if options.anderson_memory == 0:
            copy_rows(x, image)
        else:
            accelerate(x, image, history, n, options.anderson_memory, cache)
        if not_finite(x):
            outcome = Outcome.FAILED
            break
        if end is not None and status.iterations_there > 0:
            distance = largest_change(x, end)
            now = max(distance, last)
            if distance > first:
                status.iterations_there = 0
            elif n > 0 and is_bound_to_arrive(n + 1, now, pair_before, status.iterations_there, options):
                outcome, status.bound_to_arrive = Outcome.BOUND_TO_ARRIVE, 1
                break
            pair_before, pair, last = pair, now, distance
    if (outcome == Outcome.MAX_ITERATIONS or outcome == Outcome.FAILED) and status.failure != S.DIVERGED:
        status.failure = S.SOLVER_FAILED
    return outcome


@jit_part
def retreat(
    x: np.ndarray, history: np.ndarray, memory: int, cache: np.record, counters: np.record, status: np.record
) -> bool:
    """Return whether an iterate without an image was an extrapolation; ``x`` is then the plain iterate before it."""
    if memory == 0 or cache.pairs == 0:
        return False
    counters.iterations += 1
    cache.pairs = status.failure = 0
    copy_rows(x, history[2 : 2 + x.shape[0]])
    return True


@jit_part
def is_bound_to_arrive(k: int, now: float, before: float, there: int, options: np.record) -> bool:
    """Return the criterion of a known end, from k, E_k, E_{k-2} and the iterations of the forward step."""
    if not now <= before / 4:
        return False
    back = float(k)
    if now > options.tolerance:
        back += 2 * math.log(now / options.tolerance) / math.log(before / now)
    least, most = min(back, there), max(back, there)
    return most <= ALIKE * least + 2 and 2 * most <= options.max_iterations


@jit_part
def moved(image: np.ndarray, x: np.ndarray, tolerance: float) -> int:
    """Return how many coordinates have changed by more than the tolerance and their last bits, or are not numbers."""
    count = 0
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            limit = LAST_BITS * abs(x[row, i])
            limit = tolerance if tolerance > limit else limit
            count += not abs(image[row, i] - x[row, i]) <= limit
    return count


@jit_part
def largest_change(image: np.ndarray, x: np.ndarray) -> float:
    """Return max_i |image_i - x_i|."""
    largest = 0.0
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            largest = max(largest, abs(image[row, i] - x[row, i]))
    return largest


@jit_part
def not_finite(x: np.ndarray) -> bool:
    """Return whether a number is not finite, from which the iteration cannot recover."""
    count = 0
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            count += not abs(x[row, i]) < np.inf
    return count > 0


@jit_part
def copy_rows(target: np.ndarray, source: np.ndarray) -> None:
    """Copy rows."""
    for row in range(source.shape[0]):
        for i in range(source.shape[1]):
            target[row, i] = source[row, i]


@jit_part
def inner(a: np.ndarray, b: np.ndarray) -> float:
    """Return the sum of the products of all entries."""
    total = 0.0
    for row in range(a.shape[0]):
        for i in range(a.shape[1]):
            total += a[row, i] * b[row, i]
    return total


@jit_part
def subtract(target: np.ndarray, scale: float, source: np.ndarray) -> None:
    """Set target <- target - scale source."""
    for row in range(target.shape[0]):
        for i in range(target.shape[1]):
            target[row, i] -= scale * source[row, i]


@jit
def accelerate(x: np.ndarray, image: np.ndarray, history: np.ndarray, n: int, memory: int, cache: np.record) -> None:
    """Write the next iterate to ``x``.

    A pair is a difference of residuals with the corresponding difference of images. Each new one is made orthogonal to the
    stored ones, and of length one, by combinations of whole pairs, so that the least squares problem is a projection. The
    pairs are dropped, and a plain step is made, if the residual has grown tenfold, or if a new difference is in the span of
    the stored ones up to rounding.
    """
    k, pairs = x.shape[0], cache.pairs
    residual, last_image = history[0:k], history[2 : 2 + k]
    if n == 0:
        pairs = 0
    else:
        slot = 4 + 4 * (pairs % memory)
        dr, df = history[slot : slot + k], history[slot + 2 : slot + 2 + k]
        before = inner(residual, residual)
        for row in range(k):
            for i in range(x.shape[1]):
                now = image[row, i] - x[row, i]
                dr[row, i] = now - residual[row, i]
                df[row, i] = image[row, i] - last_image[row, i]
                residual[row, i] = now
        sane = inner(residual, residual) < 100 * before
        size = inner(dr, dr)
        for j in range(min(pairs, memory)):
            if j != pairs % memory:
                other = 4 + 4 * j
                share = inner(history[other : other + k], dr)
                subtract(dr, share, history[other : other + k])
                subtract(df, share, history[other + 2 : other + 2 + k])
        left = inner(dr, dr)
        if sane and left > SPANNED * size:
            for row in range(k):
                for i in range(x.shape[1]):
                    dr[row, i] /= left**0.5
                    df[row, i] /= left**0.5
            pairs += 1
        else:
            pairs = 0
    for row in range(k):
        for i in range(x.shape[1]):
            residual[row, i] = image[row, i] - x[row, i]
            last_image[row, i] = image[row, i]
    copy_rows(x, image)
    for j in range(min(pairs, memory)):
        slot = 4 + 4 * j
        subtract(x, inner(history[slot : slot + k], residual), history[slot + 2 : slot + 2 + k])
    cache.pairs = pairs
