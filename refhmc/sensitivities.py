"""Forward sensitivities: the derivatives of an ODE's solution with respect to its parameters, to second order.

    dx/dt = f(t, x, theta)       x (n,),  theta (p,)

Write J (n, n + p) for the derivatives of f with respect to z = (x, theta), H (n, n + p, n + p) for its second ones, and

    S_ia = dx_i / dtheta_a           W_iab = d^2 x_i / dtheta_a dtheta_b

Differentiating the equation along theta_a moves z by Z_a = (S_a, e_a), and once more along theta_b Z_a by (W_ab, 0). So

    dS_ia/dt  = sum_j J_ij Z_ja                                  = sum_k J_ik S_ka + J_i,n+a
    dW_iab/dt = sum_jl H_ijl Z_ja Z_lb + sum_k J_ik W_kab,       j, l over z, k over x

which are linear in the highest order, and integrated with the state (Girolami and Calderhead 2011, sec. 10). W is
symmetric in a and b: only the p(p+1)/2 pairs a <= b are carried. ``u`` holds x, then S and W row by row; orders 0, 1 and 2
are its first n, n (1 + p) and n (1 + p + p(p+1)/2) numbers.
"""

from __future__ import annotations

import numpy as np

from refhmc.compiled import jit_inline, jit_part


def n_unknowns(n: int, p: int, order: int) -> int:
    """The length of ``u``."""
    return n * (1, 1 + p, 1 + p + p * (p + 1) // 2)[order]


@jit_part
def first_order(n, p, J, S, dS):
    """dS/dt: J (n, n + p), S and dS (n, p)."""
    for i in range(n):
        for a in range(p):
            total = J[i, n + a]
            for k in range(n):
                total += J[i, k] * S[k, a]
            dS[i, a] = total


@jit_part
def second_order(n, p, J, H, S, W, dW):
    """dW/dt of the pairs a <= b: H (n, n + p, n + p), W and dW (n, p(p+1)/2)."""
    for i in range(n):
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


@jit_inline
def augmented(rhs, jacobian, hessian, n, p, u, t, work):
    """du/dt into the head of ``work``, for as many orders as ``u`` is long.

    The functions write into their last argument: ``rhs(t, x, theta, f)``, ``jacobian(t, x, theta, J)``,
    ``hessian(t, x, theta, H)``. ``work`` holds du/dt, theta, J and H one after the other (a call from Python pays for
    every array).
    """
    at, m = u.shape[0], n + p
    x, out, theta = u[:n], work[:at], work[at : at + p]
    rhs(t, x, theta, out[:n])
    if at > n:
        J = work[at + p : at + p + n * m].reshape((n, m))
        J[:] = 0.0
        jacobian(t, x, theta, J)
        S = u[n : n + n * p].reshape((n, p))
        first_order(n, p, J, S, out[n : n + n * p].reshape((n, p)))
        if at > n + n * p:
            H = work[at + p + n * m :].reshape((n, m, m))
            H[:] = 0.0
            hessian(t, x, theta, H)
            n_pairs = p * (p + 1) // 2
            second_order(n, p, J, H, S, u[n + n * p :].reshape((n, n_pairs)), out[n + n * p :].reshape((n, n_pairs)))


def work_for(u, theta, n):
    """The argument ``work``, with theta in its place."""
    m = n + len(theta)
    work = np.zeros(len(u) + len(theta) + n * m + n * m * m, dtype=u.dtype)
    work[len(u) : len(u) + len(theta)] = theta
    return work
