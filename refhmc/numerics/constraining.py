"""Constraining transforms of whole positions: x(u) for numbers, simplexes, ordered vectors and correlations, to third order.

The coordinates u of a position and its constrained values x are cut into *segments*. In a segment each value depends on the
coordinates up to its own:

    stick-breaking      x_k = r_k h(u_k),   r_{k+1} = r_k c(u_k),   r_1 = 1,   and a last value x_{m+1} = r_{m+1}
        simplex of K    v = u_k - log(K - k),  h = expit(v),  c = 1 - h,  m = K - 1
        row of a Cholesky factor of a correlation matrix   h = tanh u_k,  c = sech u_k
    ordered             x_1 = u_1,   x_k = x_{k-1} + e^{u_k}
    coordinate by coordinate: the line, half-lines, intervals (:mod:`refhmc.numerics.transforms`)

**Derivatives.** Let a_k, a'_k, a''_k be those of x_k by its own coordinate, of order one, two, three. A later value l > k has

    d^n x_l / du_k^n = e_k^(n) y_l        e^(n) = c^(n) / c,  y = x   for stick-breaking;   e^(n) = e^{u_k},  y = 1   if ordered

and a mixed derivative of stick-breaking is the product of the factors of its coordinates: x_l,jk = e_j e_k y_l and
x_k,jk = e_j a_k for j < k < l. If ordered, it is zero. For F = sum_l g_l x_l with constant g therefore

    D_k = dF/du_k = a_k g_k + e_k s_k,    s_k = sum_{l>k} g_l y_l        D'_k, D''_k similarly: the derivatives of F by u_k
    alone F_jk = e_j D_k      F_ijk = e_i e_j D_k      F_jjk = e'_j D_k      F_jkk = e_j D'_k           for i < j < k

**Log-Jacobian.** log|det dx/du| is a sum of functions of one coordinate each, since dx/du is triangular (without a last value):
log h' and the logarithms of c, once for each later coordinate.

**Chain rule.** Let L have the derivatives g, H, T in x, X = dx/du, M symmetric, and J the log-Jacobian. Then L + J has in u

    gradient     X'g + J'
    hessian      X'HX + F_jk + J''
    contraction  X'(t + H b) + 2 sum_i F_ik(W_i) + sum_ij M_ij F_ijk + M_kk J'''_k
                 t_c = sum_ab N_ab T_abc,   N = X M X',   b_a = sum_ij M_ij x_a,ij,   W = H X M, whose column i is W_i

where F_ik(W_i) has W_i instead of g. A metric G is transformed as a tensor, X'GX. Its contraction only has X't and the sum of
F_ik(W_i), with G instead of H. With p_k = sum_{i<k} M_ik e_i and q_k = sum_{j<k} (M_jj e'_j + 2 e_j p_j) the sums
over pairs of coordinates are, in time O(m^2),

    b_k = y_k q_k + 2 a_k p_k + M_kk a'_k
    sum_ij M_ij F_ijk = M_kk D''_k + 2 p_k D'_k + q_k D_k
                        + sum_{j>k} (2 M_jk e'_k D_j + e_k M_jj D'_j + 2 e_k (p_j - M_jk e_k) D_j)

All formulas avoid differences of nearly equal numbers, so that the relative precision is kept far out in the tails.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from refhmc.compile.compiled import jit, jit_allocating, jit_part
from refhmc.numerics.linalg import dot
from refhmc.numerics.transforms import half_line, interval, interval_log_jacobian

# A segment is a row of a table: its kind, its first coordinate, its number of coordinates, its first value, and two numbers:
# the ends of an interval, or the bound of a half-line and the sign of its direction.
LINE, HALF_LINE, INTERVAL, ORDERED, SIMPLEX, CORRELATION = range(6)
KIND, COORDINATE, LENGTH, VALUE, FIRST, SECOND = range(6)


class Transform(NamedTuple):
    """The ``segments``, the values x (n,), and the derivatives of each coordinate, (d,).

    These are a, a', a''; e, e', e'', which are not set for segments that are transformed coordinate by coordinate; and the
    three derivatives of the log-Jacobian.
    """

    segments: np.ndarray
    x: np.ndarray
    own: np.ndarray
    own2: np.ndarray
    own3: np.ndarray
    later: np.ndarray
    later2: np.ndarray
    later3: np.ndarray
    jacobian: np.ndarray
    jacobian2: np.ndarray
    jacobian3: np.ndarray


ROWS = len(Transform._fields) - 2


@jit_part
def transform(segments: np.ndarray, x: np.ndarray, rows: np.ndarray) -> Transform:
    """Return the transform with the values in ``x`` (n,) and the derivatives in ``rows`` (ROWS, d)."""
    return Transform(segments, x, rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7], rows[8])


@jit_part
def segment(t: Transform, r: int) -> tuple[int, int, int, int]:
    """Return the kind of segment r, its first coordinate, its number of coordinates, and its first value."""
    row = t.segments[r]
    return int(row[KIND]), int(row[COORDINATE]), int(row[LENGTH]), int(row[VALUE])


# ---------------------------------------------------------------------------------------------------- the transforms


@jit
def forward(u: np.ndarray, segments: np.ndarray, x: np.ndarray, rows: np.ndarray) -> float:
    """Return log|det dx/du| at u (d,), and write the values to x (n,) and the derivatives to rows (ROWS, d).

    Both arrays must hold zeros; :func:`transform` reads the rows.
    """
    t, log_jacobian = transform(segments, x, rows), 0.0
    for r in range(t.segments.shape[0]):
        kind, i, m, k = segment(t, r)
        first, second = t.segments[r, FIRST], t.segments[r, SECOND]
        if kind == LINE:
            line(u, i, m, k, t)
        elif kind == HALF_LINE:
            log_jacobian += half_lines(u, i, m, k, first, second, t)
        elif kind == INTERVAL:
            log_jacobian += intervals(u, i, m, k, first, second, t)
        elif kind == ORDERED:
            log_jacobian += ordered(u, i, m, k, t)
        elif kind == SIMPLEX:
            log_jacobian += simplex(u, i, m, k, t)
        else:
            log_jacobian += correlation_row(u, i, m, k, t)
    return log_jacobian


@jit_part
def line(u: np.ndarray, i: int, m: int, k: int, t: Transform) -> None:
    """Transform coordinates on the line."""
    for j in range(m):
        t.x[k + j] = u[i + j]
        t.own[i + j] = 1.0


@jit_part
def half_lines(u: np.ndarray, i: int, m: int, k: int, bound: float, sign: float, t: Transform) -> float:
    """Transform coordinates on half-lines, and return their log-Jacobian."""
    total = 0.0
    for j in range(i, i + m):
        t.x[k + j - i], t.own[j], t.own2[j], t.own3[j] = half_line(u[j], bound, sign)
        t.jacobian[j] = 1.0
        total += u[j]
    return total


@jit_part
def intervals(u: np.ndarray, i: int, m: int, k: int, lower: float, upper: float, t: Transform) -> float:
    """Transform coordinates on intervals, and return their log-Jacobian."""
    total = 0.0
    for j in range(i, i + m):
        t.x[k + j - i], t.own[j], t.own2[j], t.own3[j] = interval(u[j], lower, upper)
        value, t.jacobian[j], t.jacobian2[j], t.jacobian3[j] = interval_log_jacobian(u[j], lower, upper)
        total += value
    return total


@jit_part
def ordered(u: np.ndarray, i: int, m: int, k: int, t: Transform) -> float:
    """Transform an ordered vector, and return its log-Jacobian."""
    last, total = u[i], 0.0
    t.x[k], t.own[i], t.later[i] = u[i], 1.0, 1.0
    for j in range(1, m):
        gap = np.exp(u[i + j])
        last += gap
        total += u[i + j]
        t.x[k + j], t.jacobian[i + j] = last, 1.0
        t.own[i + j] = t.own2[i + j] = t.own3[i + j] = gap
        t.later[i + j] = t.later2[i + j] = t.later3[i + j] = gap
    return total


@jit_part
def simplex(u: np.ndarray, i: int, m: int, k: int, t: Transform) -> float:
    """Transform a simplex, and return its log-Jacobian."""
    rest, total = 1.0, 0.0
    for j in range(m):
        after = m - j  # values after this one
        v = u[i + j] - np.log(after)
        e = after * np.exp(-u[i + j]) if v >= 0 else np.exp(u[i + j]) / after  # e^-|v|
        more, less, log_more = 1 / (1 + e), e / (1 + e), -np.log1p(e)
        z, w = (more, less) if v >= 0 else (less, more)
        log_z, log_w = (log_more, log_more - v) if v >= 0 else (log_more + v, log_more)
        slope, tilt, curve = z * w, -np.tanh(v / 2), 1 - 6 * z * w
        t.x[k + j] = rest * z
        t.own[i + j], t.own2[i + j], t.own3[i + j] = rest * slope, rest * slope * tilt, rest * slope * curve
        t.later[i + j], t.later2[i + j], t.later3[i + j] = -z, -z * tilt, -z * curve
        t.jacobian[i + j] = w - after * z
        t.jacobian2[i + j], t.jacobian3[i + j] = -(1 + after) * slope, -(1 + after) * slope * tilt
        total += log_z + after * log_w
        rest *= w
    t.x[k + m] = rest
    return total


@jit_part
def correlation_row(u: np.ndarray, i: int, m: int, k: int, t: Transform) -> float:
    """Transform a row of the Cholesky factor of a correlation matrix, and return its log-Jacobian."""
    rest, total = 1.0, 0.0
    for j in range(m):
        v, power = u[i + j], m + 1 - j
        e = np.exp(-abs(v))
        w, sech = np.tanh(v), 2 * e / (1 + e * e)
        squared = sech * sech
        slope = rest * squared
        t.x[k + j] = rest * w
        t.own[i + j], t.own2[i + j], t.own3[i + j] = slope, -2 * slope * w, slope * (6 * w * w - 2)
        t.later[i + j], t.later2[i + j], t.later3[i + j] = -w, w * w - squared, w * (5 * squared - w * w)
        t.jacobian[i + j], t.jacobian2[i + j] = -power * w, -power * squared
        t.jacobian3[i + j] = 2 * power * w * squared
        total += power * (np.log(2.0) - abs(v) - np.log1p(e * e))
        rest *= sech
    t.x[k + m] = rest
    return total


# ---------------------------------------------------------------------------------------------------- the chain rule


@jit_part
def pull(g: np.ndarray, own: np.ndarray, later: np.ndarray, t: Transform, out: np.ndarray) -> None:
    """Set out (d,) to D_k = a_k g_k + e_k s_k, for g (n,): X'g; with the derivatives of order two or three, D' or D''."""
    for r in range(t.segments.shape[0]):
        kind, i, m, k = segment(t, r)
        if kind < ORDERED:
            for j in range(m):
                out[i + j] = own[i + j] * g[k + j]
        else:
            s = 0.0 if kind == ORDERED else g[k + m] * t.x[k + m]
            for j in range(m - 1, -1, -1):
                out[i + j] = own[i + j] * g[k + j] + later[i + j] * s
                s += g[k + j] if kind == ORDERED else g[k + j] * t.x[k + j]


@jit_part
def push(v: np.ndarray, t: Transform, out: np.ndarray) -> None:
    """Set out (n,) to X v, for v (d,). Values outside all segments do not change."""
    for r in range(t.segments.shape[0]):
        kind, i, m, k = segment(t, r)
        if kind < ORDERED:
            for j in range(m):
                out[k + j] = t.own[i + j] * v[i + j]
        else:
            before = 0.0
            for j in range(m):
                y = 1.0 if kind == ORDERED else t.x[k + j]
                out[k + j] = t.own[i + j] * v[i + j] + before * y
                before += t.later[i + j] * v[i + j]
            if kind != ORDERED:
                out[k + m] = before * t.x[k + m]


@jit_allocating
def values_at(u: np.ndarray, segments: np.ndarray, n: int) -> np.ndarray:
    """Return the values (rows, n) at each row of u (rows, d)."""
    x, room = np.zeros((u.shape[0], n)), np.zeros((ROWS, u.shape[1]))
    for row in range(u.shape[0]):
        forward(u[row], segments, x[row], room)
    return x


@jit
def gradient_in_u(g: np.ndarray, segments: np.ndarray, x: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Set out (d,) to the gradient in u, from that in x (n,)."""
    t = transform(segments, x, rows)
    pull(g, t.own, t.later, t, out)
    for k in range(out.shape[0]):
        out[k] += t.jacobian[k]


@jit_allocating
def tensor_in_u(G: np.ndarray, segments: np.ndarray, x: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
    """Set out (d, d) to X'GX, from a symmetric G (n, n): a metric in u from one in x."""
    write_tensor(G, segments, x, rows, np.empty((x.shape[0], out.shape[0])), out)


@jit
def write_tensor(
    G: np.ndarray, segments: np.ndarray, x: np.ndarray, rows: np.ndarray, GX: np.ndarray, out: np.ndarray
) -> None:
    """Write X'GX to ``out``, with ``GX`` as workspace."""
    t = transform(segments, x, rows)
    for a in range(G.shape[0]):
        pull(G[a], t.own, t.later, t, GX[a])
    for k in range(out.shape[0]):
        pull(GX[:, k], t.own, t.later, t, out[k])


@jit_allocating
def hessian_in_u(
    H: np.ndarray, g: np.ndarray, segments: np.ndarray, x: np.ndarray, rows: np.ndarray, out: np.ndarray
) -> None:
    """Set out (d, d) to the Hessian in u, from Hessian (n, n) and gradient (n,) in x."""
    d = out.shape[0]
    write_hessian(H, g, segments, x, rows, np.empty((x.shape[0], d)), np.empty(d), out)


@jit
def write_hessian(
    H: np.ndarray,
    g: np.ndarray,
    segments: np.ndarray,
    x: np.ndarray,
    rows: np.ndarray,
    HX: np.ndarray,
    D: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write the Hessian in u to ``out``, with ``HX`` and ``D`` as workspaces."""
    t, d = transform(segments, x, rows), out.shape[0]
    write_tensor(H, segments, x, rows, HX, out)
    pull(g, t.own2, t.later2, t, D)
    for k in range(d):
        out[k, k] += D[k] + t.jacobian2[k]
    pull(g, t.own, t.later, t, D)
    for r in range(t.segments.shape[0]):
        kind, i, m, _ = segment(t, r)
        if kind > ORDERED:
            for k in range(i, i + m):
                for j in range(i, k):
                    out[j, k] += t.later[j] * D[k]
                    out[k, j] += t.later[j] * D[k]


@jit_allocating
def pushed(M: np.ndarray, segments: np.ndarray, x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return M X' (d, n) and N = X M X' (n, n), for a symmetric M (d, d)."""
    MX, N = np.zeros((M.shape[0], x.shape[0])), np.zeros((x.shape[0], x.shape[0]))
    write_pushed(M, segments, x, rows, MX, N)
    return MX, N


@jit
def write_pushed(
    M: np.ndarray, segments: np.ndarray, x: np.ndarray, rows: np.ndarray, MX: np.ndarray, N: np.ndarray
) -> None:
    """Write M X' and N = X M X'."""
    t = transform(segments, x, rows)
    for i in range(M.shape[0]):
        push(M[i], t, MX[i])
    for a in range(N.shape[0]):
        push(MX[:, a], t, N[a])


@jit_allocating
def contraction_in_u(
    T: np.ndarray,
    H: np.ndarray,
    g: np.ndarray,
    M: np.ndarray,
    MX: np.ndarray,
    segments: np.ndarray,
    x: np.ndarray,
    rows: np.ndarray,
    out: np.ndarray,
) -> None:
    """Set out (d,) to sum_ij M_ij d hessian_ij / du, for a symmetric M (d, d).

    The inputs are T_c = sum_ab N_ab dH_ab / dx_c (n,), the Hessian H (n, n) and the gradient g (n,) in x. N and ``MX`` are
    those of :func:`pushed`.
    """
    D, p, room = np.empty((3, M.shape[0])), np.zeros(M.shape[0]), np.zeros((3, x.shape[0]))
    write_contraction(T, H, g, M, MX, segments, x, rows, D, p, room, out)


@jit
def write_contraction(
    T: np.ndarray,
    H: np.ndarray,
    g: np.ndarray,
    M: np.ndarray,
    MX: np.ndarray,
    segments: np.ndarray,
    x: np.ndarray,
    rows: np.ndarray,
    derivatives: np.ndarray,
    p: np.ndarray,
    room: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write the contraction in u to ``out``, with ``derivatives``, ``p`` and ``room`` as workspaces."""
    t = transform(segments, x, rows)
    D, D2, D3 = derivatives[0], derivatives[1], derivatives[2]
    b, along, W = room[0], room[1], room[2]
    d, n = M.shape[0], g.shape[0]
    clear_unused(H, segments)
    pull(g, t.own, t.later, t, D)
    pull(g, t.own2, t.later2, t, D2)
    pull(g, t.own3, t.later3, t, D3)
    second_derivative(M, t, p, b)
    for c in range(n):
        along[c] = T[c]
    for a in range(n):
        for c in range(n):
            along[c] += b[a] * H[a, c]
    pull(along, t.own, t.later, t, out)
    for k in range(d):
        out[k] += M[k, k] * (D3[k] + t.jacobian3[k])
    add_curvature(H, MX, t, W, out)
    for r in range(t.segments.shape[0]):
        kind, i, m, _ = segment(t, r)
        if kind > ORDERED:
            add_mixed(M, i, m, t, p, D, D2, out)


@jit_allocating
def tensor_contraction_in_u(
    T: np.ndarray,
    G: np.ndarray,
    MX: np.ndarray,
    segments: np.ndarray,
    x: np.ndarray,
    rows: np.ndarray,
    out: np.ndarray,
) -> None:
    """Set out (d,) to sum_ij M_ij d(X'GX)_ij / du, from T_c = sum_ab N_ab dG_ab / dx_c (n,) and G (n, n).

    N and ``MX`` are those of :func:`pushed`.
    """
    write_tensor_contraction(T, G, MX, segments, x, rows, np.empty(x.shape[0]), out)


@jit
def write_tensor_contraction(
    T: np.ndarray,
    G: np.ndarray,
    MX: np.ndarray,
    segments: np.ndarray,
    x: np.ndarray,
    rows: np.ndarray,
    W: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write the contraction of a tensor in u to ``out``, with ``W`` as workspace."""
    t = transform(segments, x, rows)
    pull(T, t.own, t.later, t, out)
    clear_unused(G, segments)
    add_curvature(G, MX, t, W, out)


@jit
def clear_unused(H: np.ndarray, segments: np.ndarray) -> None:
    """Set the rows and columns (n, n) of values outside all segments to zero."""
    for a in range(H.shape[0]):
        used = 0
        for r in range(segments.shape[0]):
            kind, k = segments[r, KIND], segments[r, VALUE]
            used += k <= a < k + segments[r, LENGTH] + (kind > ORDERED)
        if used == 0:
            for c in range(H.shape[0]):
                H[a, c] = H[c, a] = 0.0


@jit
def second_derivative(M: np.ndarray, t: Transform, p: np.ndarray, b: np.ndarray) -> None:
    """Compute p_k and b_a; both arrays must hold zeros."""
    for r in range(t.segments.shape[0]):
        kind, i, m, k = segment(t, r)
        q = 0.0
        for j in range(i, i + m):
            b[k + j - i] = M[j, j] * t.own2[j]
            if kind > ORDERED:
                for c in range(i, j):
                    p[j] += M[c, j] * t.later[c]
            if kind >= ORDERED:
                y = 1.0 if kind == ORDERED else t.x[k + j - i]
                b[k + j - i] += y * q + 2 * t.own[j] * p[j]
                q += M[j, j] * t.later2[j] + 2 * t.later[j] * p[j]
        if kind > ORDERED:
            b[k + m] = t.x[k + m] * q


@jit
def add_curvature(H: np.ndarray, MX: np.ndarray, t: Transform, W: np.ndarray, out: np.ndarray) -> None:
    """Add 2 sum_i F_ik(W_i), W = H X M, to out_k; ``W`` (n,) is workspace for one column."""
    for r in range(t.segments.shape[0]):
        kind, i, m, k = segment(t, r)
        if kind < ORDERED:
            for j in range(m):
                out[i + j] += 2 * t.own2[i + j] * dot(MX[i + j], H[k + j])
        else:
            add_curvature_of_vector(H, MX, kind, i, m, k, t, W, out)


@jit
def add_curvature_of_vector(
    H: np.ndarray, MX: np.ndarray, kind: int, i: int, m: int, k: int, t: Transform, W: np.ndarray, out: np.ndarray
) -> None:
    """Add the same over the coordinates of a segment that is not transformed coordinate by coordinate."""
    for j in range(m):
        for a in range(m if kind == ORDERED else m + 1):
            W[a] = dot(MX[i + j], H[k + a])
        s = 0.0 if kind == ORDERED else W[m] * t.x[k + m]
        for c in range(m - 1, j, -1):
            if kind > ORDERED:
                out[i + c] += 2 * t.later[i + j] * (t.own[i + c] * W[c] + t.later[i + c] * s)
            s += W[c] if kind == ORDERED else W[c] * t.x[k + c]
        out[i + j] += 2 * (t.own2[i + j] * W[j] + t.later2[i + j] * s)
        if kind > ORDERED:
            D = t.own[i + j] * W[j] + t.later[i + j] * s
            for c in range(j):
                out[i + c] += 2 * t.later[i + c] * D


@jit
def add_mixed(
    M: np.ndarray, i: int, m: int, t: Transform, p: np.ndarray, D: np.ndarray, D2: np.ndarray, out: np.ndarray
) -> None:
    """Add sum_ij M_ij F_ijk without i = j = k to out_k, over the coordinates of a stick."""
    q = 0.0
    for k in range(i, i + m):
        total = 2 * p[k] * D2[k] + q * D[k]
        q += M[k, k] * t.later2[k] + 2 * t.later[k] * p[k]
        for j in range(k + 1, i + m):
            total += t.later[k] * (M[j, j] * D2[j] + 2 * (p[j] - M[j, k] * t.later[k]) * D[j])
            total += 2 * M[j, k] * t.later2[k] * D[j]
        out[k] += total
