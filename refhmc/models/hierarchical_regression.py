"""Two hierarchical regressions, centred and non-centred: varying intercepts, and the horseshoe.

**Varying intercepts** (Gelman and Hill 2006), by default the radon model of Minnesota::

    y_n ~ N(alpha_g[n] + x_n'beta, sigma_y),    alpha_j ~ N(mu, sigma_alpha),    mu, beta_k ~ N(0, 10)
    sigma_alpha, sigma_y ~ N+(0, 1)

**Horseshoe** (Carvalho, Polson and Scott 2010)::

    y_n ~ N(x_n'beta, sigma),    beta_j ~ N(0, tau lambda_j),    lambda_j ~ C+(0, 1),    tau ~ C+(0, tau_0)
    sigma ~ C+(0, 1)

N has standard deviations as second arguments. N+ and C+ are the half-normal and the half-Cauchy distribution. All priors are
proper. Both models have the form ::

    y ~ N(A theta, e^2u I),    theta_i ~ N(theta_J or 0, e^2k_i) for i < J,    theta_i ~ N(0, 10^2) for i >= J

with variances as second arguments. For varying intercepts, theta = (alpha, mu, beta), J is the number of groups, and
k_i = t = log sigma_alpha. For the horseshoe, theta = beta and k_i = l_i + t, l = log lambda, t = log tau. The coordinates are
(theta, l, t, u), centred, or (z, l, t, u), non-centred, with theta_i = e^k_i z_i for i < J and theta_i = z_i otherwise. (In the
non-centred form alpha_j = mu + theta_j, so that the column of A for mu is one instead of zero.)

Derivatives are given for k. As k is linear in (l, t), the derivative by l_i is that by k_i, and the one by t is their sum.

With h = t - log s, a half-normal or half-Cauchy of scale s and the Jacobian of the logarithm together are psi(h)::

    half-normal   psi = h - e^2h / 2        psi' = 1 - e^2h     psi'' = -2 e^2h      psi''' = -4 e^2h
    half-Cauchy   psi = -log(2 cosh h)      psi' = -tanh h      psi'' = -sech^2 h    psi''' = 2 sech^2 h tanh h

The mean of -psi'' under the prior is 2 or 1/2. With A = Q R, G = A'A, b a least-squares solution and S_0 its residual sum of
squares, S = |y - A theta|^2 = S_0 + |R (theta - b)|^2 and r = A'(y - A theta) = -R'R (theta - b). The cost therefore does not
depend on the number n of observations.

**Centred.** With f = e^-2u, P_i = e^-2k_i, c = B theta (c_i = theta_i - theta_J, or theta_i for the horseshoe), and D the
diagonal matrix with 1/100 for i >= J and 0 otherwise, ::

    L = -n u - f S/2 - sum_i (k_i + P_i c_i^2 / 2) - theta'D theta/2 + sum psi
    theta: f r - B'P c - D theta             k_i: P_i c_i^2 - 1              u: f S - n
    theta theta: -f G - B'P B - D            theta k_i: 2 P_i c_i B_i        theta u: -2 f r
    k_i k_i: -2 P_i c_i^2                    u u: -2 f S
    third    theta theta k_i: 2 P_i B_i B_i'    theta k_i k_i: -4 P_i c_i B_i    k_i k_i k_i: 4 P_i c_i^2
             theta theta u: 2 f G               theta u u: 4 f r                 u u u: 4 f S

The Fisher metric is the mean of minus this Hessian: over y given q in the terms of the likelihood, over theta given the scales
in the terms of their prior, as for the funnel, and over the prior of the scales in psi''::

    theta theta: f G + B'P B + D,     k_i k_i: 2,     u u: 2 n,     plus 2 or 1/2 for each scale

The block of the scales is constant, and that of theta depends on the scales only. The metric is therefore hierarchical: the
scales have level 0, and theta has level 1.

**Non-centred.** Let w_i = e^k_i for i < J and w_i = 1 otherwise. The derivatives of theta_i are z: w_i, k: theta_i, zk: w_i,
kk: theta_i, zkk: w_i and kkk: theta_i. With V = dtheta/d(z, k), and D_i = 1 for i < J, ::

    L = -n u - f S/2 - z'D z/2 + sum psi
    first: f V'r - D z      second: -f V'G V + f sum_i r_i theta_i'' - D      with u: -2 f V'r      u u: -2 f S
    third, contracted with a symmetric M, where m_i = sum(M theta_i''):
        f sum_i (-(G m)_i V_i - 2 theta_i'' M V'G_i + r_i d(m_i)) + 2 f (V'G V - sum_i r_i theta_i'') 2 M_u + 4 f V'r M_uu
        in u: 2 f sum(M (V'G V - sum_i r_i theta_i'')) + 8 f M_u'V'r + 4 f S M_uu

The Fisher metric is f V'G V + D, 2 n at u u, and 2 or 1/2 for each scale. It is not hierarchical.

The data are the rows of R, those of G, a row of b, a row [n, S_0, J, number of scales without u, 1 if centred, 1 if theta_J is
the mean of a centred form, 1 for half-Cauchys], a row of log s and a row of D.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_allocating
from refhmc.core.arguments import flag, positive
from refhmc.errors import ShapeError
from refhmc.models.base import Model
from refhmc.models.datasets import load_json
from refhmc.models.densities import log_normal
from refhmc.models.eight_schools import half_cauchy, sech_squared
from refhmc.models.generated import GeneratedQuantities, frozen
from refhmc.models.inputs import counts, design, given_together, in_rows, vector
from refhmc.models.on_arrays import ArrayImplementation, blocks, in_dtype_of, where_finite
from refhmc.models.recipe import recreatable
from refhmc.models.recommended import Recommended
from refhmc.models.reference import Reference
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, namespace

FUNNEL = "the centred form is a funnel in the scales, which HMC with Fisher and BlockLeapfrog follows"
LOCAL = "the scales have heavy tails, which the centred form with HMC, Fisher and BlockLeapfrog follows"
BLOCKS = (("integrator", "block-leapfrog"),)
DATA_SEED = 20261127

# ------------------------------------------------------------------------------------------ implementation on arrays


class RegressionOnArrays(ArrayImplementation):
    """The array implementation. Positions (..., K + m + 1) are (theta or z, m scales, u).

    Matrices and contractions are computed in x = (theta or z, k, u) = E q, with E called ``expand``.
    """

    def __init__(self, data: np.ndarray, name: str, xp: ModuleType = np) -> None:
        K = (len(data) - 4) // 2
        self.n, self.S_0 = map(float, data[2 * K + 1, :2])
        self.J, self.m, centred, mean, cauchy = map(int, data[2 * K + 1, 2:7])
        self.name, self.K, self.dim, self.centred, self.cauchy = name, K, K + self.m + 1, bool(centred), bool(cauchy)
        if centred:
            self.fisher_levels = levels(K, self.m)
        expand, B = np.zeros((K + self.J + 1, self.dim)), np.eye(self.J, K)
        expand[:K, :K], expand[-1, -1] = np.eye(K), 1.0
        expand[K:-1, K:-1] = np.hstack([np.eye(self.J)[:, : self.m - 1], np.ones((self.J, 1))])
        if mean:
            B[:, self.J] = -1.0
        arrays = data[:K, :K], data[K : 2 * K, :K], data[2 * K, :K], data[-2, : self.m + 1], data[-1, :K], expand, B
        self.constants = tuple(map(xp.asarray, arrays))

    def psi(self, h: Array) -> tuple:
        """Return psi and its first three derivatives."""
        xp = namespace(h)
        if not self.cauchy:
            e = xp.exp(2 * h)
            return h - 0.5 * e, 1 - e, -2 * e, -4 * e
        e, tanh = xp.exp(-2 * xp.abs(h)), xp.tanh(h)
        square = 4 * e / (1 + e) ** 2
        return -(xp.abs(h) + xp.log1p(e)), -tanh, -square, 2 * square * tanh

    def read(self, q: Array) -> tuple:
        """Return f; w, theta, r and S; and P and c of the prior."""
        xp, K = namespace(q), self.K
        R, _, b, _, _, expand, B = in_dtype_of(q, *self.constants)
        k, w = batched.rows_times(q, batched.transpose(expand[K:-1, :])), xp.ones_like(q[..., :K])
        if not self.centred:
            w = xp.concat([xp.exp(k), w[..., self.J :]], axis=-1)
        misfit = batched.rows_times(w * q[..., :K] - b, batched.transpose(R))
        S = self.S_0 + batched.dot(misfit, misfit)[..., None]
        c = batched.rows_times(q[..., :K], batched.transpose(B))
        return xp.exp(-2 * q[..., -1:]), w, w * q[..., :K], -batched.rows_times(misfit, R), S, xp.exp(-2 * k), c, k

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        xp, (f, w, theta, r, S, P, c, k), z = namespace(q), self.read(q), q[..., : self.K]
        _, _, _, log_s, D, expand, B = in_dtype_of(q, *self.constants)
        psi, slope, _, _ = self.psi(q[..., self.K :] - log_s)
        L = xp.sum(psi, axis=-1) - (self.n * q[..., -1:] + 0.5 * f * S)[..., 0] - 0.5 * xp.sum(D * z * z, axis=-1)
        along_z, along_k = f * w * r - D * z, f * (theta * r)[..., : self.J]
        if self.centred:
            L = L - xp.sum(k + 0.5 * P * c * c, axis=-1)
            along_z, along_k = along_z - batched.rows_times(P * c, B), P * c * c - 1
        gradient = batched.rows_times(xp.concat([along_z, along_k, f * S - self.n], axis=-1), expand)
        return L, gradient + xp.concat([0 * z, slope], axis=-1)

    def jacobian(self, w: Array, theta: Array) -> Array:
        """Return V = dtheta/d(z, k), (..., K, K + J); its columns for k are zero in the centred form."""
        along_k = 0 * theta if self.centred else theta
        return namespace(w).concat(
            [batched.diagonal_matrix(w), batched.diagonal_matrix(along_k)[..., : self.J]], axis=-1
        )

    def second(self, q: Array, expected: bool) -> Array:
        """Return the Hessian, or its mean."""
        xp, J, (f, w, theta, r, S, P, c, _) = namespace(q), self.J, self.read(q)
        _, G, _, log_s, D, expand, B = in_dtype_of(q, *self.constants)
        V, h, zero = self.jacobian(w, theta), q[..., self.K :] - log_s, 0 * theta
        fS = self.n + 0 * f if expected else f * S
        if expected:
            r = zero
        if self.centred:
            cross, square = (0 * c, 2 + 0 * c) if expected else (2 * P * c, 2 * P * c * c)
            zz = batched.transpose(B) @ (P[..., None] * B)
            prior = blocks(-zz, batched.transpose(B) * cross[..., None, :], -batched.diagonal_matrix(square))
        else:
            zk, kk = batched.diagonal_matrix(f * r * w)[..., :J], batched.diagonal_matrix((f * r * theta)[..., :J])
            prior = blocks(batched.diagonal_matrix(zero), zk, kk)
        scaled = f[..., None] ** 0.5 * V  # before the product, whose entries may overflow
        A = prior - batched.transpose(scaled) @ (G @ scaled)
        along_u = -2 * f * batched.times(batched.transpose(V), r)
        whole = batched.transpose(expand) @ blocks(A, along_u[..., None], -2 * fS[..., None]) @ expand
        bend = xp.full_like(h, -0.5 if self.cauchy else -2.0) if expected else self.psi(h)[2]
        return where_finite(q, whole + batched.diagonal_matrix(xp.concat([zero - D, bend], axis=-1)), 2)

    def hessian(self, q: Array) -> Array:
        return self.second(q, False)

    def fisher(self, q: Array) -> Array:
        return -self.second(q, True)

    def contracted(self, M: Array, w: Array, theta: Array) -> tuple:
        """Return the entries of N = M_x + M_x' that the contractions need, M_x in x, and the rows of N V'G.

        They are N without u, N_u and M_uu; w_i (N V'G)_i + theta_i (N V'G)_k_i, (..., K), and (N V'G)_k_i. The rows for k are
        zero in the centred form and for i >= J.
        """
        xp, K = namespace(M), self.K
        _, G, _, _, _, expand, _ = in_dtype_of(M, *self.constants)
        M = expand @ M @ batched.transpose(expand)
        N = M + batched.transpose(M)
        rows = N[..., :-1, :-1] @ batched.transpose(self.jacobian(w, theta)) @ G
        along_k = self.padded(0 if self.centred else 1, xp.linalg.diagonal(rows[..., K:, : self.J]), w)
        both = w * xp.linalg.diagonal(rows[..., :K, :]) + theta * along_k
        return N[..., :-1, :-1], N[..., :-1, -1], M[..., -1, -1, None], both, along_k

    def padded(self, factor: int, x: Array, like: Array) -> Array:
        """Return factor x with zeros for i >= J."""
        return namespace(x).concat([factor * x, 0 * like[..., self.J :]], axis=-1)

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        xp, K, J, (f, w, theta, r, S, P, c, _) = namespace(q), self.K, self.J, self.read(q)
        _, G, _, log_s, _, expand, B = in_dtype_of(q, *self.constants)
        N, N_u, M_uu, both, along_k = self.contracted(M, w, theta)
        here = 0 if self.centred else 1
        zk, kk = xp.linalg.diagonal(N[..., :J, K:]), 0.5 * xp.linalg.diagonal(N[..., K:, K:])
        m = self.padded(here, w[..., :J] * zk + theta[..., :J] * kk, w)
        moved = batched.times(self.jacobian(w, theta), N_u)
        e = batched.rows_times(2 * moved - m, G)
        along_z = f * w * (e - along_k + r * (self.padded(here, kk - 2 * N_u[..., K:], w) + 4 * M_uu))
        along_k = here * f * (theta * e - both + r * (m - 2 * moved + 4 * theta * M_uu))[..., :J]
        along_u = f * xp.sum(both + r * (4 * moved - 2 * m), axis=-1, keepdims=True) + 4 * f * S * M_uu
        if self.centred:
            zz, zk = 0.5 * xp.sum((B @ N[..., :K, :K]) * B, axis=-1), xp.linalg.diagonal(B @ N[..., :K, K:])
            along_z = along_z + batched.rows_times(2 * P * (zk - 2 * c * kk), B)
            along_k = 2 * P * (zz - 2 * c * (zk - c * kk))
        total = batched.rows_times(xp.concat([along_z, along_k, along_u], axis=-1), expand)
        prior = self.psi(q[..., K:] - log_s)[3] * xp.linalg.diagonal(M)[..., K:]
        return where_finite(q, total + xp.concat([0 * theta, prior], axis=-1), 1)

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        xp, K, (f, w, theta, _, _, P, _, _) = namespace(q), self.K, self.read(q)
        _, _, _, _, _, expand, B = in_dtype_of(q, *self.constants)
        N, _, _, both, along_k = self.contracted(M, w, theta)
        along_z, along_u = f * w * along_k, -f * xp.sum(both, axis=-1, keepdims=True)
        if self.centred:
            along_k = -P * xp.sum((B @ N[..., :K, :K]) * B, axis=-1)
        else:
            along_k = (f * both)[..., : self.J]
        total = batched.rows_times(xp.concat([along_z, along_k, along_u], axis=-1), expand)
        return where_finite(q, total, 1)


# -------------------------------------------------------------------------------------------- compiled implementation


@jit
def sizes(data: np.ndarray) -> tuple[int, int, int, bool, bool]:
    """Return K, J, the number of scales without u, and whether the form is centred and theta_J is the mean."""
    K = (data.shape[0] - 4) // 2
    head = data[2 * K + 1]
    return K, int(head[2]), int(head[3]), head[4] > 0, head[5] > 0


@jit
def log_scale(q: np.ndarray, i: int, K: int, m: int) -> float:
    """Return k_i."""
    return q[K + i] + q[K + m - 1] if m > 1 else q[K]


@jit
def add(out: np.ndarray, i: int, K: int, m: int, value: float) -> None:
    """Add a derivative by k_i to those by the scales."""
    out[K + m - 1] += value
    if m > 1:
        out[K + i] += value


@jit
def add_both(out: np.ndarray, row: int, i: int, K: int, m: int, value: float) -> None:
    """Add a second derivative by coordinate ``row`` and k_i, on both sides of the diagonal."""
    add(out[row], i, K, m, value)
    add(out[:, row], i, K, m, value)


@jit
def psi(h: float, cauchy: bool) -> tuple[float, float, float, float]:
    """Return psi and its first three derivatives."""
    e = np.exp(2 * h)
    if cauchy:
        value, slope = half_cauchy(h, e)
        square = sech_squared(h)
        return value, slope, -square, -2 * square * slope
    return h - 0.5 * e, 1 - e, -2 * e, -4 * e


@jit
def misfit(data: np.ndarray, out: np.ndarray) -> float:
    """Replace out = theta - b by r, and return S."""
    K = (data.shape[0] - 4) // 2
    S = data[2 * K + 1, 1] + 0.0 * out[0]
    for i in range(K):
        row = 0.0 * out[0]
        for j in range(i, K):
            row += data[i, j] * out[j]
        out[i] = row
        S += row * row
    for j in range(K - 1, -1, -1):  # multiply by -R' in place: entry j needs the first j only
        row = 0.0 * out[0]
        for i in range(j + 1):
            row -= data[i, j] * out[i]
        out[j] = row
    return S


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    K, J, m, centred, mean = sizes(data)
    U, n = K + m, data[2 * K + 1, 0]
    f = np.exp(-2 * q[U])
    for i in range(K):
        w = np.exp(log_scale(q, i, K, m)) if i < J and not centred else 1.0
        out[i] = w * q[i] - data[2 * K, i]
    S = misfit(data, out)
    L = -n * q[U] - 0.5 * f * S
    for i in range(K):
        out[i] *= f
    for i in range(K, U):
        out[i] = 0.0
    out[U] = f * S - n
    for i in range(J):
        k = log_scale(q, i, K, m)
        if centred:
            P, c = np.exp(-2 * k), q[i] - q[J] if mean else q[i]
            out[i] -= P * c
            if mean:
                out[J] += P * c
            add(out, i, K, m, P * c * c - 1)
            L -= k + 0.5 * P * c * c
        else:
            out[i] *= np.exp(k)
            add(out, i, K, m, q[i] * out[i])
    for i in range(K):
        L -= 0.5 * data[2 * K + 3, i] * q[i] * q[i]
        out[i] -= data[2 * K + 3, i] * q[i]
    for c in range(m + 1):
        value, slope, _, _ = psi(q[K + c] - data[2 * K + 2, c], data[2 * K + 1, 6] > 0)
        L += value
        out[K + c] += slope
    return L


@jit_allocating
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    return value_and_gradient(q, data, np.empty_like(q))


@jit_allocating
def regression(q: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return w, theta, r and S."""
    K, J, m, centred, _ = sizes(data)
    w, theta, r = np.ones_like(q[:K]), np.empty_like(q[:K]), np.empty_like(q[:K])
    for i in range(K):
        if i < J and not centred:
            w[i] = np.exp(log_scale(q, i, K, m))
        theta[i] = w[i] * q[i]
        r[i] = theta[i] - data[2 * K, i]
    return w, theta, r, misfit(data, r)


@jit_allocating
def second(q: np.ndarray, data: np.ndarray, expected: bool, out: np.ndarray) -> None:
    """Write the Hessian, or its mean."""
    K, J, m, centred, mean = sizes(data)
    U, G, f = K + m, data[K : 2 * K], np.exp(-2 * q[K + m])
    w, theta, r, S = regression(q, data)
    if expected:
        r[:] = 0.0
    out[:] = 0.0
    out[U, U] = -2 * data[2 * K + 1, 0] if expected else -2 * f * S
    for i in range(K):
        out[i, U] = out[U, i] = -2 * f * w[i] * r[i]
        for j in range(K):
            out[i, j] -= f * w[i] * w[j] * G[i, j]
        out[i, i] -= data[2 * K + 3, i]
    for i in range(J):
        if centred:
            P, c = np.exp(-2 * log_scale(q, i, K, m)), q[i] - q[J] if mean else q[i]
            add_both(out, i, i, K, m, 0.0 if expected else 2 * P * c)
            out[i, i] -= P
            if mean:
                add_both(out, J, i, K, m, 0.0 if expected else -2 * P * c)
                out[J, J] -= P
                out[i, J] += P
                out[J, i] += P
            kk = -2.0 if expected else -2 * P * c * c
        else:
            add_both(out, i, i, K, m, f * r[i] * w[i])
            add_both(out, U, i, K, m, -2 * f * r[i] * theta[i])
            kk = f * r[i] * theta[i]
            for j in range(K):
                add_both(out, j, i, K, m, -f * w[j] * G[i, j] * theta[i])
            for j in range(J):
                add(out[U - 1], j, K, m, -f * theta[i] * G[i, j] * theta[j])
                if m > 1:
                    add(out[K + i], j, K, m, -f * theta[i] * G[i, j] * theta[j])
        add(out[U - 1], i, K, m, kk)
        if m > 1:
            add(out[K + i], i, K, m, kk)
    cauchy = data[2 * K + 1, 6] > 0
    for c in range(m + 1):
        mean_of_second = -0.5 if cauchy else -2.0
        _, _, at_h, _ = psi(q[K + c] - data[2 * K + 2, c], cauchy)
        out[K + c, K + c] += mean_of_second if expected else at_h


@jit_allocating
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    second(q, data, False, out)


@jit_allocating
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    second(q, data, True, out)
    for i in range(q.shape[0]):
        for j in range(q.shape[0]):
            out[i, j] = -out[i, j]


@jit
def with_scale(M: np.ndarray, row: int, i: int, K: int, m: int) -> float:
    """Return M_row,k_i + M_k_i,row."""
    both = M[row, K + m - 1] + M[K + m - 1, row]
    return both + M[row, K + i] + M[K + i, row] if m > 1 else both


@jit
def of_scales(M: np.ndarray, i: int, j: int, K: int, m: int) -> float:
    """Return M_k_i,k_j + M_k_j,k_i."""
    both = with_scale(M, K + m - 1, j, K, m)
    return both + with_scale(M, K + i, j, K, m) if m > 1 else both


@jit_allocating
def contracted(w: np.ndarray, theta: np.ndarray, data: np.ndarray, M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return w_i (N V'G)_i + theta_i (N V'G)_k_i and (N V'G)_k_i for each i, with N = M + M'."""
    K, J, m, centred, _ = sizes(data)
    both, along_k = np.zeros_like(w), np.zeros_like(w)
    effects = 0 if centred else J
    for i in range(K):
        along_z = 0.0 * w[0]
        for j in range(K):
            g = data[K + i, j]
            along_z += g * w[j] * (M[i, j] + M[j, i])
            if j < effects:
                along_z += g * theta[j] * with_scale(M, i, j, K, m)
            if i < effects:
                along_k[i] += g * w[j] * with_scale(M, j, i, K, m)
            if i < effects and j < effects:
                along_k[i] += g * theta[j] * of_scales(M, i, j, K, m)
        both[i] = w[i] * along_z + theta[i] * along_k[i]
    return both, along_k


@jit_allocating
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    K, J, m, centred, mean = sizes(data)
    U, f = K + m, np.exp(-2 * q[K + m])
    w, theta, r, S = regression(q, data)
    both, along_k = contracted(w, theta, data, M)
    bent, moved, effects = np.zeros_like(w), np.zeros_like(w), 0 if centred else J
    for i in range(K):
        moved[i] = w[i] * (M[i, U] + M[U, i])
        if i < effects:
            moved[i] += theta[i] * with_scale(M, U, i, K, m)
            bent[i] = w[i] * with_scale(M, i, i, K, m) + 0.5 * theta[i] * of_scales(M, i, i, K, m)
    out[:] = 0.0
    out[U] = 4 * f * S * M[U, U]
    for i in range(K):
        e = 0.0 * f
        for j in range(K):
            e += data[K + i, j] * (2 * moved[j] - bent[j])
        out[U] += f * (both[i] + r[i] * (4 * moved[i] - 2 * bent[i]))
        out[i] += f * w[i] * (e - along_k[i] + 4 * r[i] * M[U, U])
        if i < effects:
            kk, uk = 0.5 * of_scales(M, i, i, K, m), with_scale(M, U, i, K, m)
            out[i] += f * w[i] * r[i] * (kk - 2 * uk)
            by_k = theta[i] * e - both[i] + r[i] * (bent[i] - 2 * moved[i] + 4 * theta[i] * M[U, U])
            add(out, i, K, m, f * by_k)
        elif i < J:
            P, c = np.exp(-2 * log_scale(q, i, K, m)), q[i] - q[J] if mean else q[i]
            zz, zk, kk = M[i, i], with_scale(M, i, i, K, m), 0.5 * of_scales(M, i, i, K, m)
            if mean:
                zz += M[J, J] - M[i, J] - M[J, i]
                zk -= with_scale(M, J, i, K, m)
                out[J] -= 2 * P * (zk - 2 * c * kk)
            out[i] += 2 * P * (zk - 2 * c * kk)
            add(out, i, K, m, 2 * P * (zz - 2 * c * (zk - c * kk)))
    for c in range(m + 1):
        _, _, _, third = psi(q[K + c] - data[2 * K + 2, c], data[2 * K + 1, 6] > 0)
        out[K + c] += third * M[K + c, K + c]


@jit_allocating
def fisher_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    K, J, m, centred, mean = sizes(data)
    f = np.exp(-2 * q[K + m])
    w, theta, _, _ = regression(q, data)
    both, along_k = contracted(w, theta, data, M)
    out[:] = 0.0
    for i in range(K):
        out[K + m] -= f * both[i]
        out[i] = f * w[i] * along_k[i]
        if i < J and not centred:
            add(out, i, K, m, f * both[i])
        elif i < J:
            zz = M[i, i] + M[J, J] - M[i, J] - M[J, i] if mean else M[i, i]
            add(out, i, K, m, -2 * np.exp(-2 * log_scale(q, i, K, m)) * zz)


# ------------------------------------------------------------------------------------------------------ both models


def levels(K: int, m: int) -> np.ndarray:
    """Return the levels of the centred Fisher metric: 0 for the scales, 1 for theta."""
    return np.repeat([1, 0], [K, m + 1])


def data_of(
    A: np.ndarray, y: np.ndarray, J: int, log_s: np.ndarray, centred: bool, mean: bool, cauchy: bool
) -> np.ndarray:
    """Return the data of the functions."""
    (n, K), b, R = A.shape, np.linalg.lstsq(A, y)[0], np.zeros((A.shape[1], A.shape[1]))
    rows = np.linalg.qr(A, mode="r")
    R[: len(rows)] = rows
    header = [n, float(np.sum((y - A @ b) ** 2)), J, len(log_s) - 1, centred, mean, cauchy]
    D = np.where(np.arange(K) < J, 0.0 if centred else 1.0, 0.01)
    return in_rows(*R, *(R.T @ R), b, header, log_s, D)


def model_of(data: np.ndarray, K: int, names: list[str], title: str, centred: bool, **options: object) -> Model:
    """Return the model of the data, whose name is the title and the form."""
    name = f"{title}, centred" if centred else title
    return Model(
        len(names),
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        hessian_contraction=hessian_contraction,
        fisher=fisher,
        fisher_contraction=fisher_contraction,
        fisher_levels=levels(K, len(names) - K - 1) if centred else None,
        data=frozen(data),
        names=names,
        name=name,
        on_arrays=functools.partial(RegressionOnArrays, data, name),
        **options,
    )


# ------------------------------------------------------------------------------------------------ varying intercepts


def intercepts_constrain(q: np.ndarray, J: int, centred: bool) -> dict:
    mu, scale = q[..., J], np.exp(q[..., -2])
    alpha = q[..., :J] if centred else mu[..., None] + scale[..., None] * q[..., :J]
    return {"alpha": alpha, "mu": mu, "beta": q[..., J + 1 : -2], "sigma_alpha": scale, "sigma_y": np.exp(q[..., -1])}


def intercepts_mean(values: dict, group: np.ndarray, X: np.ndarray) -> np.ndarray:
    return values["alpha"][..., group] + values["beta"] @ X.T


def intercepts_log_likelihood(values: dict, y: np.ndarray, group: np.ndarray, X: np.ndarray) -> dict:
    return {"y": log_normal(y, intercepts_mean(values, group, X), values["sigma_y"][..., None])}


def intercepts_predictive(values: dict, rng: np.random.Generator, group: np.ndarray, X: np.ndarray) -> dict:
    return {"y": rng.normal(intercepts_mean(values, group, X), values["sigma_y"][..., None])}


def intercepts_prior(rng: np.random.Generator, J: int, p: int) -> dict:
    mu, beta, (scale, noise) = rng.normal(0.0, 10.0), rng.normal(0.0, 10.0, p), np.abs(rng.standard_normal(2))
    return {"alpha": rng.normal(mu, scale, J), "mu": mu, "beta": beta, "sigma_alpha": scale, "sigma_y": noise}


@recreatable
def VaryingIntercepts(
    centered: bool = False,
    *,
    y: ArrayLike | None = None,
    group: ArrayLike | None = None,
    X: ArrayLike | None = None,
    inputs: Sequence[str] | None = None,
) -> Model:
    """Return a linear regression whose intercept varies by group.

    The model is ::

        y_n ~ N(alpha_g[n] + x_n'beta, sigma_y),   alpha_j ~ N(mu, sigma_alpha),   mu, beta_k ~ N(0, 10)
        sigma_alpha, sigma_y ~ N+(0, 1)

    with standard deviations as second arguments and half-normal priors of both scales. The variables are ``alpha`` of shape
    (J,), ``mu``, ``beta`` of shape (p,), ``sigma_alpha`` and ``sigma_y``. The dimension is J + p + 3. The model has all
    derivatives and a Fisher metric. In the centred form, the metric is hierarchical: `BlockLeapfrog` works with `Fisher`.

    Parameters
    ----------
    centered : bool, default False
        Whether the coordinates are alpha itself. The posterior of the variables is the same but harder to sample. Otherwise
        they are z with alpha_j = mu + sigma_alpha z_j.
    y : array_like of shape (n,), optional
        Observations. Defaults to the log radon levels of 919 homes in the 85 counties of Minnesota.
    group : array_like of int of shape (n,), optional
        Group of each observation, from 0 to J - 1, to be given together with `y`. Defaults to the county.
    X : array_like of shape (n, p), optional
        Inputs, to be given together with `y`. Defaults to the log uranium reading of the county, and 0 if the measurement was
        in the basement, else 1.
    inputs : sequence of str, optional
        Names of the columns of `X`, for the result. Defaults to those of a data frame.

    Returns
    -------
    Model
        The model. For the default data, ``reference`` has the moments of the posterior by numerical integration.

    Raises
    ------
    ValueError
        If only some of the data are given, values are not finite, or groups are not whole numbers of at least 0.
    refhmc.errors.ShapeError
        If the shapes do not fit.

    See Also
    --------
    EightSchools : The same hierarchy with known standard deviations of the observations.

    References
    ----------
    A. Gelman and J. Hill (2006), Data analysis using regression and multilevel/hierarchical models, chapter 12.
    M. Magnusson et al., posteriordb, posterior radon_mn-radon_hierarchical_intercept_centered.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.VaryingIntercepts(y=[1.0, 1.2, 0.3], group=[0, 0, 1], X=[[0.0], [1.0], [0.0]])
    >>> model.reference_names
    ['alpha[0]', 'alpha[1]', 'mu', 'beta[0]', 'sigma_alpha', 'sigma_y']
    """
    flag("centered", centered)
    reference, dims = None, {"alpha": "group"}
    if not given_together(y=y, group=group, X=X):
        radon = load_json("radon_mn")
        county = np.array(radon["county"])
        y, group, X = (
            radon["log_radon"],
            county,
            np.transpose([np.array(radon["log_uppm"])[county], radon["floor_measure"]]),
        )
        inputs, dims = ["log_uppm", "floor"], {"alpha": "county"}
        mean, variance = np.array(radon["mean"]), np.array(radon["variance"])
        reference = Reference("numerical integration over both scales", mean, variance)
    y = vector("y", y)
    at, (X, inputs) = counts("group", group, len(y)).astype(int), design(X, inputs)
    X = frozen(X)
    if len(X) != len(y):
        raise ShapeError(f"X must have shape ({len(y)}, p), one row per observation; got {X.shape}.")
    J, p = int(at.max()) + 1, X.shape[1]
    A = np.column_stack([np.eye(J)[at], np.full(len(y), 0.0 if centered else 1.0), X])
    effect = "alpha" if centered else "alpha_raw"
    return model_of(
        data_of(A, y, J, np.zeros(2), centered, mean=centered, cauchy=False),
        J + 1 + p,
        [*indexed(effect, J), "mu", *indexed("beta", p), "log_sigma_alpha", "log_sigma_y"],
        "varying intercepts",
        centered,
        parents={"alpha": ("mu", "log_sigma_alpha")} if centered else {},
        constrain=functools.partial(intercepts_constrain, J=J, centred=centered),
        reference=reference,
        recommended=Recommended(why=FUNNEL) if centered else None,
        dims={**dims, "beta": "coefficient", "y": "observation", "X": ("observation", "coefficient")},
        coords=None if inputs is None else {"coefficient": inputs},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(intercepts_log_likelihood, y=y, group=at, X=X),
            posterior_predictive=functools.partial(intercepts_predictive, group=at, X=X),
            prior=functools.partial(intercepts_prior, J=J, p=p),
            observed_data={"y": y},
            constant_data={"group": at, "X": X},
        ),
    )


# --------------------------------------------------------------------------------------------------------- horseshoe


def simulate(n: int = 200, d: int = 100, seed: int = DATA_SEED) -> tuple[np.ndarray, np.ndarray]:
    """Return X (n, d) and y (n,) with sigma = 1 and beta = (4, -3, 2, -1.5, 1, -0.75, 0.5, -0.25, 0, ..., 0)."""
    rng = np.random.default_rng(seed)
    X, noise = rng.standard_normal((n, d)), rng.standard_normal(n)
    return X, X[:, :8] @ np.array([4.0, -3.0, 2.0, -1.5, 1.0, -0.75, 0.5, -0.25])[:d] + noise


def horseshoe_constrain(q: np.ndarray, d: int, centred: bool) -> dict:
    local, tau, sigma = np.exp(q[..., d:-2]), np.exp(q[..., -2]), np.exp(q[..., -1])
    beta = q[..., :d] if centred else q[..., :d] * local * tau[..., None]
    return {"beta": beta, "lambda": local, "tau": tau, "sigma": sigma}


def horseshoe_log_likelihood(values: dict, X: np.ndarray, y: np.ndarray) -> dict:
    return {"y": log_normal(y, values["beta"] @ X.T, values["sigma"][..., None])}


def horseshoe_predictive(values: dict, rng: np.random.Generator, X: np.ndarray) -> dict:
    return {"y": rng.normal(values["beta"] @ X.T, values["sigma"][..., None])}


def horseshoe_prior(rng: np.random.Generator, d: int, tau_0: float) -> dict:
    local, (tau, sigma) = np.abs(rng.standard_cauchy(d)), np.abs(rng.standard_cauchy(2)) * [tau_0, 1.0]
    return {"beta": rng.normal(0.0, tau * local), "lambda": local, "tau": tau, "sigma": sigma}


@recreatable
def Horseshoe(
    centered: bool = True,
    *,
    X: ArrayLike | None = None,
    y: ArrayLike | None = None,
    global_scale: float = 1.0,
    inputs: Sequence[str] | None = None,
) -> Model:
    """Return a linear regression with a horseshoe prior.

    The model is ::

        y_n ~ N(x_n'beta, sigma),   beta_j ~ N(0, tau lambda_j),   lambda_j ~ C+(0, 1),   tau ~ C+(0, tau_0),   sigma ~ C+(0, 1)

    with standard deviations as second arguments and half-Cauchy priors of all scales. The variables are ``beta`` and
    ``lambda`` of shape (d,), ``tau`` and ``sigma``. The dimension is 2d + 2. The model has all derivatives and a Fisher metric.
    In the centred form, the metric is hierarchical: `BlockLeapfrog` works with `Fisher`. The model's default kernel is ``HMC``
    with both.

    Parameters
    ----------
    centered : bool, default True
        Whether the coordinates are beta itself. Otherwise they are z with beta_j = tau lambda_j z_j. The posterior of the
        variables is the same. `NUTS` diverges in both forms, and with 1,000 draws R-hat can be 1.5 in the second.
    X : array_like of shape (n, d), optional
        Inputs, used without change. Defaults to simulated data, ``refhmc.models.hierarchical_regression.simulate()``: 200
        observations and 100 standard normal inputs, 8 of which have a coefficient other than zero.
    y : array_like of shape (n,), optional
        Observations, to be given together with `X`.
    global_scale : float, default 1.0
        Scale tau_0 of the prior of tau.
    inputs : sequence of str, optional
        Names of the columns of `X`, for the result. Defaults to those of a data frame.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    ValueError
        If only one of `X` and `y` is given, values are not finite, or `global_scale` is not positive.
    refhmc.errors.ShapeError
        If the shapes do not fit.

    References
    ----------
    C. M. Carvalho, N. G. Polson and J. G. Scott (2010), The horseshoe estimator for sparse signals.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Horseshoe(X=[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], y=[2.0, 0.1, 1.9])
    >>> model.reference_names
    ['beta[0]', 'beta[1]', 'lambda[0]', 'lambda[1]', 'tau', 'sigma']
    """
    flag("centered", centered)
    tau_0 = positive("global_scale", global_scale)
    if not given_together(X=X, y=y):
        X, y = simulate()
    (X, inputs), y = design(X, inputs), vector("y", y)
    X = frozen(X)
    if X.shape[1] == 0 or len(X) != len(y):
        raise ShapeError(f"X must have shape (n, d) and y (n,); got {X.shape} and {y.shape}.")
    d = X.shape[1]
    log_s = np.append(np.zeros(d), [math.log(tau_0), 0.0])
    return model_of(
        data_of(X, y, d, log_s, centered, mean=False, cauchy=True),
        d,
        [*indexed("beta" if centered else "beta_raw", d), *indexed("log_lambda", d), "log_tau", "log_sigma"],
        "horseshoe",
        centered,
        parents={"beta": ("log_lambda", "log_tau")} if centered else {},
        constrain=functools.partial(horseshoe_constrain, d=d, centred=centered),
        recommended=Recommended("hmc", "fisher", FUNNEL, BLOCKS) if centered else Recommended(why=LOCAL),
        dims={
            **{"beta": "coefficient", "lambda": "coefficient"},
            **{"y": "observation", "X": ("observation", "coefficient")},
        },
        coords=None if inputs is None else {"coefficient": inputs},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(horseshoe_log_likelihood, X=X, y=y),
            posterior_predictive=functools.partial(horseshoe_predictive, X=X),
            prior=functools.partial(horseshoe_prior, d=d, tau_0=tau_0),
            observed_data={"y": y},
            constant_data={"X": X},
        ),
    )


def indexed(name: str, n: int) -> list[str]:
    return [f"{name}[{i}]" for i in range(n)]
