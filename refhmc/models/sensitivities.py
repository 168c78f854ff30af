"""Forward sensitivities: the derivatives of the solution of an ODE by its parameters, to third order.

The equation is dx/dt = f(t, x, theta) with x (n,) and theta (p,). Write J (n, n + p) for the derivatives of f by
z = (x, theta), H (n, n + p, n + p) and K (n, n + p, n + p, n + p) for the second and third ones, and ::

    S_ia = dx_i / dtheta_a      W_iab = d^2 x_i / dtheta_a dtheta_b      V_iabc = d^3 x_i / dtheta_a dtheta_b dtheta_c

Differentiation along theta_a moves z by Z_a = (S_a, e_a), a second one along theta_b moves Z_a by (W_ab, 0), and so on::

    dS_ia/dt   = sum_j J_ij Z_ja                                  = sum_k J_ik S_ka + J_i,n+a
    dW_iab/dt  = sum_jl H_ijl Z_ja Z_lb + sum_k J_ik W_kab,       j, l, m over z, k over x
    dV_iabc/dt = sum_jlm K_ijlm Z_ja Z_lb Z_mc + sum_jk H_ijk (Z_ja W_kbc + Z_jb W_kac + Z_jc W_kab) + sum_k J_ik V_kabc

These equations are linear in the highest order. They are integrated together with the state (Girolami and Calderhead 2011,
sec. 10). W and V are symmetric in the parameters, so only the pairs a <= b and the triples a <= b <= c are stored. ``u``
holds x, then S, W and V row by row. Orders 0 to 3 are its first n, n (1 + p), n (1 + p + p(p+1)/2) and
n (1 + p + p(p+1)/2 + p(p+1)(p+2)/6) numbers.

The same sums are the derivatives by theta of any function of (t, x(theta), theta): of the observed quantity, and of the state
after an event x -> e(t, x, theta) at a fixed time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from refhmc.compile.compiled import jit_inline, jit_part, shaped


@jit_part
def work_length(k: int, n: int, p: int, length: int) -> int:
    """Return the length of ``work`` for k numbers, given the length of ``u``."""
    m = n + p
    third = k * m**3 if length > n * (1 + p + p * (p + 1) // 2) else 0
    return length // n * k + p + k * m + k * m * m + third


def n_unknowns(n: int, p: int, order: int) -> int:
    """Return the length of ``u``."""
    return n * sum((1, p, p * (p + 1) // 2, p * (p + 1) * (p + 2) // 6)[: order + 1])


@jit_part
def first_order(n: int, p: int, J: np.ndarray, S: np.ndarray, dS: np.ndarray) -> None:
    """Write dS/dt, with J (n, n + p), S and dS (n, p)."""
    for i in range(dS.shape[0]):
        for a in range(p):
            total = J[i, n + a]
            for k in range(n):
                total += J[i, k] * S[k, a]
            dS[i, a] = total


@jit_part
def second_order(n: int, p: int, J: np.ndarray, H: np.ndarray, S: np.ndarray, W: np.ndarray, dW: np.ndarray) -> None:
    """Write dW/dt for the pairs a <= b, with H (n, n + p, n + p), W and dW (n, p(p+1)/2)."""
    for i in range(dW.shape[0]):
        pair = 0
        for a in range(p):
            for b in range(a, p):
                total = H[i, n + a, n + b]
                for k in range(n):
                    curved = H[i, n + a, k]
                    for j in range(n):
                        curved += H[i, j, k] * S[j, a]
                    total += J[i, k] * W[k, pair] + curved * S[k, b] + H[i, k, n + b] * S[k, a]
                dW[i, pair] = total
                pair += 1


@jit_part
def pair_of(p: int, a: int, b: int) -> int:
    """Return the place in W of a pair of parameters."""
    low, high = min(a, b), max(a, b)
    return low * p - low * (low - 1) // 2 + high - low


@jit_part
def along(n: int, S: np.ndarray, j: int, a: int) -> float:
    """Return Z_ja."""
    return S[j, a] if j < n else 1.0 * (j - n == a) + 0.0 * S[0, 0]


@jit_part
def third_order(
    n: int,
    p: int,
    J: np.ndarray,
    H: np.ndarray,
    K: np.ndarray,
    S: np.ndarray,
    W: np.ndarray,
    V: np.ndarray,
    dV: np.ndarray,
) -> None:
    """Write dV/dt for the triples a <= b <= c, with K (n, n + p, n + p, n + p), V and dV (n, p(p+1)(p+2)/6)."""
    m = n + p
    for i in range(dV.shape[0]):
        triple = 0
        for a in range(p):
            for b in range(a, p):
                for c in range(b, p):
                    total = 0.0 * S[0, 0]
                    for k in range(n):
                        total += J[i, k] * V[k, triple]
                    for j in range(m):
                        za, zb, zc = along(n, S, j, a), along(n, S, j, b), along(n, S, j, c)
                        for k in range(n):
                            crossed = (
                                za * W[k, pair_of(p, b, c)] + zb * W[k, pair_of(p, a, c)] + zc * W[k, pair_of(p, a, b)]
                            )
                            total += H[i, j, k] * crossed
                        if za != 0:
                            for h in range(m):
                                for k in range(m):
                                    total += K[i, j, h, k] * za * along(n, S, h, b) * along(n, S, k, c)
                    dV[i, triple] = total
                    triple += 1


@jit_inline
def along_path(
    f: Callable,
    jacobian: Callable,
    hessian: Callable,
    third: Callable,
    k: int,
    n: int,
    p: int,
    u: np.ndarray,
    t: float,
    work: np.ndarray,
) -> None:
    """Write f(t, x, theta) (k,) and its derivatives by theta along x(theta) into the head of ``work``, to the order of ``u``.

    The functions write into their last argument: ``f(t, x, theta, out)``, ``jacobian(t, x, theta, J)``,
    ``hessian(t, x, theta, H)``, ``third(t, x, theta, K)``. ``work`` is one array, because a call from Python pays for each
    argument. It holds the result, theta, J, H and K.
    """
    length, m = u.shape[0], n + p
    at = length // n * k
    x, out, theta = u[:n], work[:at], work[at : at + p]
    f(t, x, theta, out[:k])
    if length > n:
        J = shaped(work[at + p : at + p + k * m], (k, m))
        J[:] = 0.0
        jacobian(t, x, theta, J)
        S = shaped(u[n : n + n * p], (n, p))
        first_order(n, p, J, S, shaped(out[k : k + k * p], (k, p)))
        if length > n + n * p:
            H = shaped(work[at + p + k * m : at + p + k * m + k * m * m], (k, m, m))
            H[:] = 0.0
            hessian(t, x, theta, H)
            n_pairs = p * (p + 1) // 2
            first, past = 1 + p, 1 + p + n_pairs
            W = shaped(u[n * first : n * past], (n, n_pairs))
            second_order(n, p, J, H, S, W, shaped(out[k * first : k * past], (k, n_pairs)))
            if length > n * past:
                K = shaped(work[at + p + k * m + k * m * m :], (k, m, m, m))
                K[:] = 0.0
                third(t, x, theta, K)
                n_triples = p * (p + 1) * (p + 2) // 6
                V = shaped(u[n * past :], (n, n_triples))
                third_order(n, p, J, H, K, S, W, V, shaped(out[k * past :], (k, n_triples)))


def work_for(u: np.ndarray, theta: np.ndarray, n: int, k: int | None = None) -> np.ndarray:
    """Return the argument ``work``, including theta, for a function of ``k`` numbers, by default the number of states."""
    p, k = len(theta), n if k is None else k
    at = len(u) // n * k
    work = np.zeros(work_length(k, n, p, len(u)), dtype=u.dtype)
    work[at : at + p] = theta
    return work
