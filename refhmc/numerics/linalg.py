"""Small dense linear algebra for the core: plain loops, no allocation, valid for complex numbers too."""

from __future__ import annotations

import math

import numpy as np

from refhmc.compile.compiled import jit, jit_sum

EPSILON = 2.0**-52


@jit_sum
def dot(x: np.ndarray, y: np.ndarray) -> float:
    """Return sum_i x[i] y[i]."""
    total = 0.0
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@jit_sum
def total(x: np.ndarray) -> float:
    """Return sum_i x[i]."""
    result = 0.0
    for i in range(x.shape[0]):
        result += x[i]
    return result


@jit
def symmetric_times(A: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """Set out = A x for a symmetric A, summed row by row (A[j] is also column j)."""
    d = x.shape[0]
    for i in range(d):
        out[i] = A[0, i] * x[0]
    for j in range(1, d):
        for i in range(d):
            out[i] += A[j, i] * x[j]


@jit_sum
def cholesky(A: np.ndarray, L: np.ndarray) -> bool:
    """Compute the lower L with L L' = A (only A's lower triangle is read).

    Return False, with L unfinished, if A is not positive definite. For a complex symmetric A (a complex step) L is the factor
    without conjugation.
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
def solve_lower(L: np.ndarray, x: np.ndarray) -> None:
    """Set x <- L^-1 x in place."""
    d = x.shape[0]
    for i in range(d):
        total = x[i]
        for k in range(i):
            total -= L[i, k] * x[k]
        x[i] = total / L[i, i]


@jit
def solve_lower_transposed(L: np.ndarray, x: np.ndarray) -> None:
    """Set x <- L^-T x in place."""
    d = x.shape[0]
    for i in range(d - 1, -1, -1):
        x[i] = x[i] / L[i, i]
        for k in range(i):
            x[k] -= L[i, k] * x[i]


# G = L D L' with a unit lower L, and r = 1/D: one division per row and no root, so that small systems are cheap. The
# diagonal of L is not stored, and its upper triangle is not used. Row i of L begins where that of G does, and zeros are
# skipped. If most rows are short, as for effects that depend on their hyperparameters only, the cost is O(d^2).


@jit
def first_entry(row: np.ndarray, i: int) -> int:
    """Return the index of the first entry of ``row[:i]`` that is not zero, or i."""
    for j in range(i):
        if row[j] != 0:
            return j
    return i


@jit_sum
def eliminate(G: np.ndarray, L: np.ndarray, r: np.ndarray, i: int, start: int) -> float:
    """Compute row i of L from column ``start``, before which it is zero, and return the pivot."""
    for j in range(start, i):
        total = G[i, j]
        for k in range(start, j):
            total -= L[i, k] * L[j, k]
        L[i, j] = total  # L D at this point
    pivot = G[i, i]
    for k in range(start, i):
        scaled = L[i, k] * r[k]
        pivot -= L[i, k] * scaled
        L[i, k] = scaled
    return pivot


@jit_sum
def factorise_ldl(G: np.ndarray, L: np.ndarray, r: np.ndarray) -> bool:
    """Compute G = L diag(1/r) L' (only G's lower triangle is read).

    Return False, with the factors unfinished, if G is not positive definite or not finite.
    """
    for i in range(G.shape[0]):
        start = first_entry(G[i], i)
        L[i, :start] = 0.0
        pivot = eliminate(G, L, r, i, start) if start > 0 else eliminate(G, L, r, i, 0)  # LLVM specialises full rows
        if not 0 < pivot.real < math.inf:  # also a NaN
            return False
        r[i] = 1 / pivot
    return True


@jit
def is_indefinite(G: np.ndarray, L: np.ndarray, r: np.ndarray) -> bool:
    """Return whether a G that :func:`factorise_ldl` rejected is finite, with a failing pivot that is more than rounding."""
    d = G.shape[0]
    for i in range(d):
        pivot, size = G[i, i], abs(G[i, i])
        for k in range(i):
            pivot -= L[i, k] * L[i, k] / r[k]
        if not pivot.real > 0:
            return math.isfinite(pivot.real) and not abs(pivot.real) <= 4 * d * EPSILON * size
    return False


@jit_sum
def solve_ldl(L: np.ndarray, r: np.ndarray, x: np.ndarray) -> None:
    """Set x <- G^-1 x in place."""
    d = x.shape[0]
    if d == 2:
        last = (x[1] - L[1, 0] * x[0]) * r[1]
        x[0] = x[0] * r[0] - L[1, 0] * last
        x[1] = last
        return
    for i in range(d):
        total = x[i]
        for k in range(i):
            total -= L[i, k] * x[k]
        x[i] = total
    for i in range(d):
        x[i] *= r[i]
    for i in range(d - 1, -1, -1):
        for k in range(i):
            x[k] -= L[i, k] * x[i]


@jit_sum
def subtract_multiple(target: np.ndarray, c: float, source: np.ndarray) -> None:
    """Set target <- target - c source."""
    for i in range(target.shape[0]):
        target[i] -= c * source[i]


@jit_sum
def subtract_four(target: np.ndarray, c0: float, c1: float, c2: float, c3: float, rows: np.ndarray) -> None:
    """Set target <- target - c0 rows[0] - ... - c3 rows[3]."""
    r0, r1, r2, r3 = rows[0], rows[1], rows[2], rows[3]
    for i in range(target.shape[0]):
        target[i] -= c0 * r0[i] + c1 * r1[i] + c2 * r2[i] + c3 * r3[i]


@jit
def invert_ldl(L: np.ndarray, r: np.ndarray, out: np.ndarray) -> None:
    """Set out = G^-1 = T' diag(r) T with T = L^-1, by rows.

    Row i of T, which ends at i, is e_i - sum_k<i L[i, k] T[k]. Then diag(r) T is solved for from below: multiples of the
    rows under row k are subtracted from it, left of the diagonal only, since the result is symmetric.
    """
    d = L.shape[0]
    if d == 2:
        out[1, 1] = r[1]
        out[0, 1] = out[1, 0] = -L[1, 0] * r[1]
        out[0, 0] = r[0] - L[1, 0] * out[1, 0]
        return
    out[:] = 0.0
    for i in range(d):
        out[i, i] = 1.0
        start = first_entry(L[i], i)
        for k in range(start - start % 4, i - 3, 4):
            subtract_four(out[i, : k + 4], L[i, k], L[i, k + 1], L[i, k + 2], L[i, k + 3], out[k : k + 4])
        for k in range(max(i - i % 4, start), i):
            subtract_multiple(out[i, : k + 1], L[i, k], out[k, : k + 1])
    for i in range(d):
        for j in range(i + 1):
            out[i, j] *= r[i]
    for k in range(d - 2, -1, -1):
        row = out[k, : k + 1]
        for i in range(k + 1, d - 3, 4):
            if L[i, k] == 0 and L[i + 1, k] == 0 and L[i + 2, k] == 0 and L[i + 3, k] == 0:
                continue
            subtract_four(row, L[i, k], L[i + 1, k], L[i + 2, k], L[i + 3, k], out[i : i + 4])
        for i in range(d - (d - k - 1) % 4, d):
            if L[i, k] != 0:
                subtract_multiple(row, L[i, k], out[i, : k + 1])
    for i in range(d):
        for j in range(i):
            out[j, i] = out[i, j]
