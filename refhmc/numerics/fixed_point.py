"""Solving x = f(x) by fixed-point iteration, plain or with Anderson's acceleration.

**Fixed point**: x_{k+1} = f(x_k) until every coordinate changes by at most the tolerance, max_i |x_{k+1,i} - x_{k,i}| <= delta
(Brofos and Lederman 2021, Algorithm 1), or by its last bits, where the tolerance lies below what a double at that
size can express. The iterate returned is the last f(x).

**Anderson** (1965; Walker and Ni 2011), memory m: with residuals r_j = f(x_j) - x_j,

    x_{k+1} = f(x_k) - sum_j gamma_j (f(x_{j+1}) - f(x_j)),    gamma = argmin | r_k - sum_j gamma_j (r_{j+1} - r_j) |

over the last m differences: a secant method. It spares a third of the evaluations where few directions converge slowly
(the banana: 7 instead of 10), a twentieth on the funnel or a logistic regression, and costs some arithmetic each time.

The start is a function of the point and the step alone. A solve ends in one of three ways: converged, not converged after
``max_iterations``, or an iterate at which the equation cannot be evaluated (an iterate or a metric that overflows, a metric
that is not positive definite). Its result is used in the first case only; the others are noted in ``status.failure``.

An ``equation(model, metric, z, eps, work, own, x, image)`` puts f(x) into ``image``, or returns False where x has none;
``x`` and ``image`` are (k, d), k at most 2.
"""

from __future__ import annotations

import enum

import numpy as np

from refhmc.core import sample_stats as S
from refhmc.core.compiled import invariant, jit, jit_part, jit_template
from refhmc.core.types import as_work

LAST_BITS = 4 * np.finfo(float).eps
MAX_MEMORY = 5
HISTORY_ROWS = 4 + 4 * MAX_MEMORY
SPANNED = 1e-10  # of the square of a difference: less left across the others is rounding


class Outcome(enum.IntEnum):
    """Of a solve. FAILED: an iterate that cannot be evaluated, or is not finite."""

    CONVERGED = 0
    MAX_ITERATIONS = 1
    FAILED = 2


@jit_template
def fixed_point(equation, model, metric, z, eps, work, own, x, image, history):
    """Solve x = f(x) from ``x`` on, in place; the outcome, with the reason noted where it is not CONVERGED.

    An iterate is not a state of the trajectory: where it overflows, it is the solve that failed. A metric that is finite and
    not positive definite there stays a divergence, since no smaller step mends it.
    """
    _, _, options, cache, counters, status = as_work(work)
    outcome, cache.pairs = Outcome.MAX_ITERATIONS, 0
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
    if outcome != Outcome.CONVERGED and status.failure != S.DIVERGED:
        status.failure = S.SOLVER_FAILED
    return outcome


@jit_part
def retreat(x, history, memory, cache, counters, status):
    """Whether an iterate without an image was an extrapolation: then ``x`` is the plain one before it."""
    if memory == 0 or cache.pairs == 0:
        return False
    counters.iterations += 1
    cache.pairs = status.failure = 0
    copy_rows(x, history[2 : 2 + x.shape[0]])
    return True


@jit_part
def moved(image, x, tolerance):
    """How many coordinates have changed by more than the tolerance and their last bits, or are not numbers."""
    count = 0
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            limit = LAST_BITS * abs(x[row, i])
            limit = tolerance if tolerance > limit else limit
            count += not abs(image[row, i] - x[row, i]) <= limit
    return count


@jit_part
def largest_change(image, x):
    """max_i |image_i - x_i|"""
    largest = 0.0
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            largest = max(largest, abs(image[row, i] - x[row, i]))
    return largest


@jit_part
def not_finite(x):
    """Whether there is a number that is not finite: the iteration will not come back from there."""
    count = 0
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            count += not abs(x[row, i]) < np.inf
    return count > 0


@jit_part
def copy_rows(target, source):
    for row in range(source.shape[0]):
        for i in range(source.shape[1]):
            target[row, i] = source[row, i]


@jit_part
def inner(a, b):
    """sum of the products of all entries"""
    total = 0.0
    for row in range(a.shape[0]):
        for i in range(a.shape[1]):
            total += a[row, i] * b[row, i]
    return total


@jit_part
def subtract(target, scale, source):
    """target <- target - scale source"""
    for row in range(target.shape[0]):
        for i in range(target.shape[1]):
            target[row, i] -= scale * source[row, i]


@jit
def accelerate(x, image, history, n, memory, cache):
    """The next iterate into ``x``.

    A pair is a difference of residuals with the difference of images that belongs to it. Each new one is made
    orthogonal to those kept, and of length one, by combinations of whole pairs: the least squares then is a projection.
    The pairs are dropped, and a plain step made, where the residual has grown tenfold, or a new difference lies in the
    span of those kept but for rounding.
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
