"""The eigendecomposition of a symmetric matrix, for the core: A = sum_k values[k] v_k v_k'.

Hessians are often *graded*: A_ij ~ s_i s_j with scales s_i that differ by many powers of ten. The entries of A then determine
the small eigenvalues to nearly full relative accuracy, but a textbook method, which reduces A to a tridiagonal matrix, keeps
only |error| ~ epsilon |A|. Jacobi's rotations keep the relative accuracy but are slow. The algorithm is therefore:

1. A = Q T Q', T tridiagonal, by Householder's reflections;
2. T = S diag S' by implicit QL steps with Wilkinson's shift: V = Q S are eigenvectors up to epsilon |A|;
3. B = V' A V from the *original* A: nearly diagonal. An orthogonal V, however inaccurate, does not change the eigenvalues;
4. Jacobi's rotations on B until |B_ij| <= tolerance sqrt|B_ii B_jj|: few are needed.

If the smallest |eigenvalue| is not small, 1 and 2 are accurate enough, and 3 and 4 are skipped. Steps 1 and 2 may neglect
anything below epsilon |A|. If A is a multiple of I except for a few rows (a funnel's Hessian), as many reflections are enough.
Small matrices start with step 4.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.compile.compiled import jit, jit_sum
from refhmc.numerics.linalg import EPSILON

LARGEST = 2.0**1000  # a larger sum of entries is treated as infinite
GRADED = 2.0**-7  # smallest / largest |eigenvalue| below which steps 3 and 4 are done; above it: 5e-14 relative error
TWICE = 2.0**-60  # below this the first V is too inaccurate for one round of steps 3 and 4; a second one is enough
TOLERANCE = 2.0**-48  # of step 4: neglected entries change an eigenvalue by less than d times this, relatively
NOTHING = 2.0**-150  # an entry below this part of |A| is zero: the eigenvalue zero has no relative accuracy to keep
SMALL = 4  # up to this d Jacobi's rotations alone are the fastest


@jit
def eigen(A: np.ndarray, values: np.ndarray, vectors: np.ndarray, work: np.ndarray) -> bool:
    """Compute values[k] and unit vectors[k] (a row) with A = sum_k values[k] vectors[k] vectors[k]', in no special order.

    A is symmetric and is not modified; ``work`` has at least 2 d + 3 rows of length d. Return False, with undefined values and
    vectors, if A is not finite or its entries add up to more than 2^1000.
    """
    d = A.shape[0]
    return eigen_with(A, values, vectors, work[:d], work[d : 2 * d], work[2 * d :])


@jit
def eigen_with(
    A: np.ndarray, values: np.ndarray, vectors: np.ndarray, B: np.ndarray, C: np.ndarray, rows: np.ndarray
) -> bool:
    """Compute the same as :func:`eigen`, with separate workspaces.

    These are two d x d matrices other than A, and three rows of length d.
    """
    d = A.shape[0]
    if d == 2:
        return eigen_2(A, values, vectors)
    size, start = most_coupled(A)
    if not size < LARGEST:  # also a NaN
        return False
    if d == 1:
        values[0] = A[0, 0]
        vectors[0, 0] = 1.0
        return True
    # A power of two: scaling is exact, and squares neither overflow nor lose significant digits.
    exponent = min(-math.frexp(size)[1], 1000)
    scale = math.ldexp(1.0, exponent)
    if d <= SMALL:
        scaled(A, scale, 0, B)
        identity(vectors)
        if not jacobi(B, values, vectors):
            return False
    else:
        scaled(A, scale, start, C)
        off_diagonal, beta = rows[0], rows[1]
        tridiagonal(C, EPSILON * scale * size, values, off_diagonal, beta, rows[2])
        reflections(C, beta, vectors)
        finished = ql(values, off_diagonal, vectors)
        for k in range(d):
            vectors[k, 0], vectors[k, start] = vectors[k, start], vectors[k, 0]
        if not finished or spread(values, GRADED):
            for _ in range(2):
                products(vectors, A, scale, False, C)
                products(C, vectors, 1.0, True, B)
                if not jacobi(B, values, vectors):
                    return False
                if not spread(values, TWICE):
                    break
    for k in range(d):
        values[k] = math.ldexp(values[k], -exponent)
    return True


@jit
def eigen_2(A: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> bool:
    """Decompose a matrix with d = 2 by one rotation."""
    a, b, c = A[0, 0], A[1, 0], A[1, 1]
    if not abs(a) + abs(b) + abs(c) < LARGEST:
        return False
    t, cosine, sine = rotation(a, b, c)
    values[0] = a - t * b
    values[1] = c + t * b
    vectors[0, 0], vectors[0, 1] = cosine, -sine
    vectors[1, 0], vectors[1, 1] = sine, cosine
    return True


@jit
def rotation(a: float, b: float, c: float) -> tuple[float, float, float]:
    """Return t = tan, cos, sin of the angle below 45 degrees that makes [[a, b], [b, c]] diagonal: a - t b, c + t b."""
    if b == 0.0:
        return 0.0, 1.0, 0.0
    half = (c - a) / (2 * b)
    t = math.copysign(1.0, half) / (abs(half) + math.sqrt(1.0 + half * half))
    cosine = 1.0 / math.sqrt(1.0 + t * t)
    return t, cosine, t * cosine


@jit_sum
def most_coupled(A: np.ndarray) -> tuple[float, int]:
    """Return sum_ij |A_ij|, and the row with the largest sum off the diagonal, the best start for the reflections."""
    d = A.shape[0]
    size, largest, start = 0.0, -1.0, 0
    for i in range(d):
        row = A[i]
        total = 0.0
        for j in range(d):
            total += abs(row[j])
        size += total
        coupling = total - abs(row[i])
        if coupling > largest:
            largest, start = coupling, i
    return size, start


@jit
def identity(V: np.ndarray) -> None:
    """Set V to the identity."""
    for i in range(V.shape[0]):
        row = V[i]
        for j in range(V.shape[1]):
            row[j] = 0.0
        row[i] = 1.0


@jit
def scaled(A: np.ndarray, scale: float, start: int, out: np.ndarray) -> None:
    """Set out = scale A with coordinates 0 and start exchanged."""
    d = A.shape[0]
    for i in range(d):
        source = A[i]
        if i == 0:
            source = A[start]
        elif i == start:
            source = A[0]
        row = out[i]
        for j in range(d):
            row[j] = scale * source[j]
        row[0], row[start] = row[start], row[0]


@jit_sum
def tridiagonal(
    A: np.ndarray, nothing: float, diagonal: np.ndarray, off_diagonal: np.ndarray, beta: np.ndarray, p: np.ndarray
) -> None:
    """Compute A = Q T Q' by reflections I - beta_k u u', u in A[k, k+1:]; a row below ``nothing`` is zero."""
    d = A.shape[0]
    for k in range(d - 1):
        u = A[k, k + 1 :]
        n = d - 1 - k
        diagonal[k] = A[k, k]
        first = u[0]
        tail = 0.0
        for j in range(1, n):
            tail += u[j] * u[j]
        beta[k] = 0.0
        off_diagonal[k] = first
        if tail <= nothing * nothing:
            continue
        norm = math.sqrt(first * first + tail)
        off_diagonal[k] = -math.copysign(norm, first)
        u[0] = first - off_diagonal[k]
        beta[k] = 1.0 / (norm * (norm + abs(first)))
        # (I - beta u u') A (I - beta u u') = A - u p' - p u', p = beta (A u - u beta u'A u / 2)
        product = 0.0
        for i in range(n):
            row = A[k + 1 + i, k + 1 :]
            total = 0.0
            for j in range(n):
                total += row[j] * u[j]
            p[i] = beta[k] * total
            product += p[i] * u[i]
        for i in range(n):
            p[i] -= 0.5 * beta[k] * product * u[i]
        for i in range(n):
            row = A[k + 1 + i, k + 1 :]
            for j in range(n):
                row[j] -= u[i] * p[j] + p[i] * u[j]
    diagonal[d - 1] = A[d - 1, d - 1]
    off_diagonal[d - 1] = 0.0


@jit_sum
def reflections(U: np.ndarray, beta: np.ndarray, V: np.ndarray) -> None:
    """Set V = Q', the product of the reflections, each from the right: V <- V - (V u) beta u'."""
    d = V.shape[0]
    identity(V)
    for k in range(d - 2, -1, -1):
        if beta[k] != 0.0:
            u = U[k, k + 1 :]
            n = d - 1 - k
            for i in range(n):
                row = V[k + 1 + i, k + 1 :]
                total = 0.0
                for j in range(n):
                    total += row[j] * u[j]
                total *= beta[k]
                for j in range(n):
                    row[j] -= total * u[j]


@jit
def rotate(x: np.ndarray, y: np.ndarray, cosine: float, sine: float) -> None:
    """Set (x, y) <- (cos x - sin y, sin x + cos y)."""
    for j in range(x.shape[0]):
        a, b = x[j], y[j]
        x[j] = cosine * a - sine * b
        y[j] = sine * a + cosine * b


@jit
def ql(diagonal: np.ndarray, off_diagonal: np.ndarray, V: np.ndarray) -> bool:
    """Make implicit QL steps on the tridiagonal T, and apply their rotations to the rows of V.

    Return False if the steps do not end.
    """
    d = diagonal.shape[0]
    first, steps = 0, 0
    while first < d:
        last = first
        while last < d - 1 and abs(off_diagonal[last]) > EPSILON * (abs(diagonal[last]) + abs(diagonal[last + 1])):
            last += 1
        if last == first:
            first += 1
        elif last == first + 1:
            e = off_diagonal[first]
            t, cosine, sine = rotation(diagonal[first], e, diagonal[last])
            diagonal[first] -= t * e
            diagonal[last] += t * e
            off_diagonal[first] = 0.0
            rotate(V[first], V[last], cosine, sine)
            first += 2
        elif steps == 30 * d:
            return False
        else:
            ql_step(diagonal, off_diagonal, V, first, last)
            steps += 1
    return True


@jit
def ql_step(diagonal: np.ndarray, off_diagonal: np.ndarray, V: np.ndarray, first: int, last: int) -> None:
    """Make one step on the rows first ... last, shifted by the eigenvalue of the first 2 x 2 block nearer diagonal[first]."""
    e = off_diagonal[first]
    half = (diagonal[first + 1] - diagonal[first]) / (2 * e)
    g = diagonal[last] - diagonal[first] + e / (half + math.copysign(math.sqrt(1.0 + half * half), half))
    sine, cosine, p = 1.0, 1.0, 0.0
    for i in range(last - 1, first - 1, -1):
        f = sine * off_diagonal[i]
        b = cosine * off_diagonal[i]
        r = math.sqrt(f * f + g * g)
        off_diagonal[i + 1] = r
        if r == 0.0:  # T splits here
            diagonal[i + 1] -= p
            off_diagonal[last] = 0.0
            return
        inverse = 1.0 / r
        sine = f * inverse
        cosine = g * inverse
        g = diagonal[i + 1] - p
        r = (diagonal[i] - g) * sine + 2 * cosine * b
        p = sine * r
        diagonal[i + 1] = g + p
        g = cosine * r - b
        rotate(V[i], V[i + 1], cosine, sine)
    diagonal[first] -= p
    off_diagonal[first] = g
    off_diagonal[last] = 0.0


@jit_sum
def products(X: np.ndarray, Y: np.ndarray, scale: float, lower: bool, out: np.ndarray) -> None:
    """Set out[i, j] = scale X[i] . Y[j]; with ``lower`` for j <= i only, and out[j, i] equal to it. Two by two, for speed."""
    d = X.shape[0]
    for i in range(0, d, 2):
        i1 = min(i + 1, d - 1)
        x0, x1 = X[i], X[i1]
        for j in range(0, i1 + 1 if lower else d, 2):
            j1 = min(j + 1, d - 1)
            y0, y1 = Y[j], Y[j1]
            a, b, c, e = 0.0, 0.0, 0.0, 0.0
            for k in range(d):
                a += x0[k] * y0[k]
                b += x0[k] * y1[k]
                c += x1[k] * y0[k]
                e += x1[k] * y1[k]
            out[i, j], out[i, j1], out[i1, j], out[i1, j1] = scale * a, scale * b, scale * c, scale * e
    if lower:
        for i in range(d):
            for j in range(i):
                out[j, i] = out[i, j]


@jit
def spread(values: np.ndarray, part: float) -> bool:
    """Return whether the smallest |value| is below this part of the largest."""
    smallest, largest = math.inf, 0.0
    for k in range(values.shape[0]):
        smallest = min(smallest, abs(values[k]))
        largest = max(largest, abs(values[k]))
    return smallest < part * largest


@jit
def jacobi(B: np.ndarray, values: np.ndarray, V: np.ndarray) -> bool:
    """Apply Jacobi's rotations to B, in cyclic order, and to the rows of V, until B is diagonal.

    Return False if it never is.
    """
    d = B.shape[0]
    for k in range(d):
        values[k] = B[k, k]
    for _ in range(60):
        done = True
        for p in range(d - 1):
            x = B[p]
            for q in range(p + 1, d):
                b = x[q]
                if abs(b) > NOTHING and b * b > TOLERANCE * TOLERANCE * abs(values[p] * values[q]):
                    done = False
                    y = B[q]
                    t, cosine, sine = rotation(values[p], b, values[q])
                    values[p] -= t * b
                    values[q] += t * b
                    rotate(x, y, cosine, sine)
                    x[q] = 0.0
                    y[p] = 0.0
                    for j in range(d):
                        B[j, p] = x[j]
                        B[j, q] = y[j]
                    rotate(V[p], V[q], cosine, sine)
        if done:
            return True
    return False
