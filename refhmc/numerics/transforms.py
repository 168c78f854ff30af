"""Maps x(u) from the real line onto a constrained set, with their derivatives and log-Jacobians to third order.

Half-line   x = bound + sign e^u          every derivative is sign e^u; log|x'| = u. With bound 0 it is u = log x.
Interval    x = a + (b - a) p,  p = expit(u),  m = 1 - p = expit(-u),  t = m - p = -tanh(u/2):

    p' = p m      p'' = p m t      p''' = p m (1 - 6 p m)
    J = log(b - a) + log p + log m      J' = t      J'' = -2 p m      J''' = -2 p m t

    p, m and t are computed separately, so that none is a difference of nearly equal numbers.
Ordered     x_1 = u_1,  x_k = x_{k-1} + e^{u_k}: a half-line for each gap x_k - x_{k-1}, log-Jacobian sum_{k>1} u_k.
            x is linear in x_1 and the gaps: a model written in these needs the half-line's derivatives only.

**Chain rule.** Let L have the derivatives g, H, T in x, and let x_i = x_i(u_i) for each i, with derivatives a_i, b_i,
c_i of order one, two and three. Then, with d the Kronecker delta, in u

    gradient_i  = a_i g_i
    hessian_ij  = a_i a_j H_ij + d_ij b_i g_i
    third_ijk   = a_i a_j a_k T_ijk + d_ij b_i a_k H_ik + d_ik b_i a_j H_ij + d_jk b_j a_i H_ij + d_ijk c_i g_i
    sum_ij M_ij third_ijk = a_k sum_ij (M_ij a_i a_j) T_ijk
                            + a_k sum_i M_ii b_i H_ik + b_k sum_i (M_ik + M_ki) a_i H_ik + M_kk c_k g_k

The compiled functions are for use in models; those named ``*_forward`` and ``*_inverse`` are NumPy and broadcast.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from refhmc.compile.compiled import jit

Reals = TypeVar("Reals", float, np.ndarray)

# --------------------------------------------------------------------------------------------- the logistic function


@jit
def expit(u: float) -> float:
    """Return 1 / (1 + e^-u), to full relative precision in both tails."""
    if u.real >= 0:
        return 1 / (1 + np.exp(-u))
    e = np.exp(u)
    return e / (1 + e)


@jit
def softplus(u: float) -> float:
    """Return log(1 + e^u) = -log expit(-u), without overflow."""
    if u.real >= 0:
        return u + np.log1p(np.exp(-u))
    return np.log1p(np.exp(u))


# ----------------------------------------------------------------------------------------------------------- half-line


@jit
def half_line(u: float, bound: float = 0.0, sign: float = 1.0) -> tuple[float, float, float, float]:
    """Return x, x', x'', x''' of x = bound + sign e^u."""
    e = sign * np.exp(u)
    return bound + e, e, e, e


@jit
def half_line_log_jacobian(u: float) -> tuple[float, float, float, float]:
    """Return log|x'| = u and its three derivatives."""
    return u, 1.0, 0.0, 0.0


def half_line_forward(u: np.ndarray, bound: float = 0.0, sign: float = 1.0) -> float | np.ndarray:
    """Return x > bound (sign 1) or x < bound (sign -1) from u."""
    return bound + sign * np.exp(u)


def half_line_inverse(x: np.ndarray, bound: float | np.ndarray = 0.0, sign: float | np.ndarray = 1.0) -> np.ndarray:
    """Return u from x."""
    return np.log(sign * (x - bound))


# ------------------------------------------------------------------------------------------------------------ interval


@jit
def interval(u: float, lower: float = 0.0, upper: float = 1.0) -> tuple[float, float, float, float]:
    """Return x, x', x'', x''' of x = lower + (upper - lower) expit(u)."""
    width = upper - lower
    p = expit(u)
    slope = width * p * expit(-u)
    return lower + width * p, slope, -slope * np.tanh(u / 2), slope * (1 - 6 * p * expit(-u))


@jit
def interval_log_jacobian(u: float, lower: float = 0.0, upper: float = 1.0) -> tuple[float, float, float, float]:
    """Return log|x'| and its three derivatives."""
    t = -np.tanh(u / 2)
    pm = expit(u) * expit(-u)
    return np.log(upper - lower) - softplus(u) - softplus(-u), t, -2 * pm, -2 * pm * t


def interval_forward(u: np.ndarray, lower: float = 0.0, upper: float = 1.0) -> float | np.ndarray:
    """Return x in (lower, upper) from u."""
    return lower + (upper - lower) * np.exp(-np.logaddexp(0.0, -u))


def interval_inverse(x: Reals, lower: float = 0.0, upper: float = 1.0) -> Reals:
    """Return u from x."""
    return np.log(x - lower) - np.log(upper - x)


# ------------------------------------------------------------------------------------------------------------- ordered


def ordered_forward(u: np.ndarray) -> np.ndarray:
    """Return increasing x (..., k) from u (..., k)."""
    return np.cumsum(np.concatenate([u[..., :1], np.exp(u[..., 1:])], axis=-1), axis=-1)


def ordered_inverse(x: np.ndarray) -> np.ndarray:
    """Return u (..., k) from increasing x (..., k)."""
    return np.concatenate([x[..., :1], np.log(np.diff(x, axis=-1))], axis=-1)


@jit
def ordered_log_jacobian(u: np.ndarray) -> float:
    """Return sum_{k>1} u_k, which is linear with the gradient (0, 1, ..., 1)."""
    total = 0.0 * u[0]
    for k in range(1, u.shape[0]):
        total += u[k]
    return total


# ---------------------------------------------------------------------------------------------------------- chain rule


@jit
def chain_hessian(H: np.ndarray, g: tuple[float, ...], a: tuple[float, ...], b: tuple[float, ...]) -> None:
    """Set H to the Hessian in u, from the Hessian and gradient in x; a, b, c here and below are tuples or vectors."""
    for i in range(H.shape[0]):
        for j in range(H.shape[0]):
            H[i, j] *= a[i] * a[j]
        H[i, i] += b[i] * g[i]


@jit
def chain_contraction(
    out: np.ndarray,
    M: np.ndarray,
    H: np.ndarray,
    g: tuple[float, ...],
    a: tuple[float, ...],
    b: tuple[float, ...],
    c: tuple[float, ...],
) -> None:
    """Set out to sum_ij M_ij third_ij. in u, from out_k = sum_ij (M_ij a_i a_j) T_ijk in x."""
    d = out.shape[0]
    for k in range(d):
        total = a[k] * out[k] + M[k, k] * c[k] * g[k]
        for i in range(d):
            total += (a[k] * M[i, i] * b[i] + b[k] * (M[i, k] + M[k, i]) * a[i]) * H[i, k]
        out[k] = total
