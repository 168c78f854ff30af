"""Small dense linear algebra for the core: plain loops, no allocation, the same text on complex numbers."""

from __future__ import annotations

from refhmc.compiled import jit, jit_sum


@jit_sum
def dot(x, y):
    """sum_i x[i] y[i]"""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@jit
def symmetric_times(A, x, out):
    """out = A x for a symmetric A, summed row by row (A[j] is also column j)."""
    d = x.shape[0]
    for i in range(d):
        out[i] = A[0, i] * x[0]
    for j in range(1, d):
        for i in range(d):
            out[i] += A[j, i] * x[j]


@jit
def cholesky(A, L):
    """Lower L with L L' = A (only A's lower triangle is read); False, with L unfinished, if A is not positive.

    On a complex symmetric A (a complex step through this text) it is the factor without conjugation.
    """
    d = A.shape[0]
    for i in range(d):
        for j in range(i + 1):
            total = A[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            if i > j:
                L[i, j] = total / L[j, j]
            elif total.real > 0:
                L[i, i] = total**0.5
            else:  # also a NaN
                return False
        for j in range(i + 1, d):
            L[i, j] = 0.0
    return True


@jit
def solve_lower(L, x):
    """x <- L^-1 x in place."""
    d = x.shape[0]
    for i in range(d):
        total = x[i]
        for k in range(i):
            total -= L[i, k] * x[k]
        x[i] = total / L[i, i]


@jit
def solve_lower_transposed(L, x):
    """x <- L^-T x in place."""
    d = x.shape[0]
    for i in range(d - 1, -1, -1):
        x[i] = x[i] / L[i, i]
        for k in range(i):
            x[k] -= L[i, k] * x[i]
