"""Eight schools (Rubin 1981), with the priors of posteriordb.

With u = log tau, the model is ::

    y_j ~ N(theta_j, s_j),   theta_j ~ N(mu, tau),   mu ~ N(0, 5),   tau ~ C+(0, 5) (half-Cauchy)

In h = u - log 5, the half-Cauchy and the Jacobian of the logarithm together have the log density -log(2 cosh h). Its
derivatives are -tanh h, -sech^2 h and 2 sech^2 h tanh h.

**Non-centred**, q = (e, mu, u): theta_j = mu + tau e_j, e_j ~ N(0, 1). With w_j = 1 / s_j^2 and r_j = w_j (y_j - theta_j), ::

    L = -sum_j (y_j - theta_j)^2 w_j / 2 - |e|^2/2 - mu^2/50 - log(2 cosh h)
    e_j: tau r_j - e_j                  mu: sum_j r_j - mu/25             u: tau sum_j r_j e_j - tanh h
    e_j e_j: -tau^2 w_j - 1             e_j mu: -tau w_j                  e_j u: g_j = tau (r_j - tau w_j e_j)
    mu mu: -sum_j w_j - 1/25            mu u: -tau sum_j w_j e_j          u u: sum_j g_j e_j - sech^2 h
    third: d/dmu and d/du of these;     d/dmu: e_j u: -tau w_j            u u: -tau sum_j w_j e_j
    d/du:  e_j e_j: -2 tau^2 w_j        e_j mu: -tau w_j                  e_j u: g_j - 2 tau^2 w_j e_j
           mu u: -tau sum_j w_j e_j     u u: sum_j (g_j - 2 tau^2 w_j e_j) e_j + 2 sech^2 h tanh h

The Fisher metric is sum_j w_j J_j J_j' with J_j = d theta_j / dq = (tau at e_j, 1 at mu, tau e_j at u), plus 1 for each e_j,
1/25 for mu, and 1/2 for u. The 1/2 is the mean of sech^2 h under the half-Cauchy prior. (sech^2 h itself vanishes as tau -> 0,
and the metric would become singular.)

**Centred**, q = (theta, mu, u). With p = 1/tau^2, c_j = theta_j - mu, C = sum_j c_j, Q = sum_j c_j^2 and J schools, ::

    L = -sum_j (y_j - theta_j)^2 w_j / 2 - J u - p Q/2 - mu^2/50 - log(2 cosh h)
    theta_j: (y_j - theta_j) w_j - p c_j      mu: p C - mu/25                 u: -J + p Q - tanh h
    theta_j theta_j: -w_j - p                 theta_j mu: p                   theta_j u: 2 p c_j
    mu mu: -J p - 1/25                        mu u: -2 p C                    u u: -2 p Q - sech^2 h
    d/du of these: theta_j theta_j: 2 p       theta_j mu: -2 p                theta_j u: -4 p c_j
                   mu mu: 2 J p               mu u: 4 p C                     u u: 4 p Q + 2 sech^2 h tanh h
    third derivatives without a u are zero

The Fisher metric is w_j for theta_j, plus the mean of minus the Hessian of the prior over theta given mu and tau, as for
the funnel: theta_j theta_j: w_j + p, theta_j mu: -p, mu mu: J p + 1/25, u u: 2 J + 1/2.

The data are a row of y and a row of 1/s^2. For a split model, rows 0 and 1 are zero for schools outside the part, row 2 is
the part's share of the prior, and row 3 is 1 for the centred parametrisation.
"""

from __future__ import annotations

import functools
import math
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_allocating
from refhmc.core.arguments import flag
from refhmc.models.base import Model
from refhmc.models.datasets import posteriordb, posteriordb_reference
from refhmc.models.densities import log_normal
from refhmc.models.generated import GeneratedQuantities, frozen
from refhmc.models.inputs import given_together, vectors
from refhmc.models.on_arrays import ArrayImplementation, blocks, in_dtype_of, matrix, where_finite
from refhmc.models.recipe import recreatable
from refhmc.models.recommended import Recommended
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, namespace
from refhmc.numerics.transforms import expit

FUNNEL = Recommended(
    "hmc",
    "fisher",
    "the centred form is a funnel in log_tau, so that no constant metric fits it",
    (("integrator", "block-leapfrog"),),
)

SMALLER_STEPS = Recommended("nuts", "", "at 0.8 one draw in 2,000 diverges", (("target_accept", 0.95),))

LOG_SCALE = math.log(5.0)
SCHOOLS = (
    "Choate",
    "Deerfield",
    "Phillips Andover",
    "Phillips Exeter",
    "Hotchkiss",
    "Lawrenceville",
    "St. Paul's",
    "Mt. Hermon",
)

# --------------------------------------------------------------------------------------------------- texts on arrays


class Schools(ArrayImplementation):
    """The common part of both array implementations: y and w (J,), positions (..., J + 2). Sums are over the schools."""

    def __init__(self, y: np.ndarray, w: np.ndarray, xp: ModuleType = np) -> None:
        self.J, self.dim, self.y, self.w = len(y), len(y) + 2, xp.asarray(y), xp.asarray(w)

    def read(self, q: Array) -> tuple:
        """Return y, w, the first J coordinates, and mu and u with an axis for the schools."""
        return *in_dtype_of(q, self.y, self.w), q[..., : self.J], q[..., self.J : self.J + 1], q[..., self.J + 1 :]

    def prior(self, u: Array) -> tuple[Array, Array]:
        """Return -log(2 cosh h) and -tanh h."""
        xp, h = namespace(u), u - LOG_SCALE
        return -(xp.abs(h) + xp.log1p(xp.exp(-2 * xp.abs(h)))), -xp.tanh(h)

    def prior_curvature(self, u: Array) -> tuple[Array, Array]:
        """Return sech^2 h and 2 sech^2 h tanh h."""
        xp, h = namespace(u), u - LOG_SCALE
        e = xp.exp(-2 * xp.abs(h))
        square = 4 * e / (1 + e) ** 2
        return square, 2 * square * xp.tanh(h)

    def entries(self, M: Array) -> tuple:
        """Return the entries of M that the contractions need.

        They are M_jj and twice the symmetric parts of M_j,mu and M_j,u, of shape (..., J), then M_mu,mu, M_mu,u and M_uu, of
        shape (..., 1).
        """
        xp, J = namespace(M), self.J
        both = M + batched.transpose(M)
        corner = [M[..., J, J, None], both[..., J, J + 1, None], M[..., J + 1, J + 1, None]]
        return xp.linalg.diagonal(M)[..., :J], both[..., :J, J], both[..., :J, J + 1], *corner

    def arrow(self, q: Array, diagonal: Array, borders: list[Array], corner: list[list[Array]]) -> Array:
        """Return the symmetric matrix with a diagonal (..., J), two further columns (..., J) and a corner."""
        xp = namespace(q)
        like = xp.zeros_like(q[..., : self.J])
        A = batched.diagonal_matrix(diagonal + like)
        return where_finite(q, blocks(A, xp.stack([each + like for each in borders], axis=-1), matrix(corner)), 2)


class NonCentredOnArrays(Schools):
    """The array implementation for q = (e, mu, u)."""

    name = "eight schools"

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        xp, (y, w, e, mu, u) = namespace(q), self.read(q)
        tau, (prior, slope) = xp.exp(u), self.prior(u)
        residual = y - mu - tau * e
        r = w * residual
        L = (prior - mu * mu / 50)[..., 0] - 0.5 * (batched.dot(residual, r) + batched.dot(e, e))
        along_mu = batched.dot(residual, w)[..., None] - mu / 25
        along_u = tau * batched.dot(r, e)[..., None] + slope
        return L, xp.concat([tau * r - e, along_mu, along_u], axis=-1)

    def hessian(self, q: Array) -> Array:
        xp, (y, w, e, mu, u) = namespace(q), self.read(q)
        tau, (square, _) = xp.exp(u), self.prior_curvature(u)
        g, b = tau * w * (y - mu - 2 * tau * e), -tau * w
        mu_mu, mu_u = -xp.sum(w) - 1 / 25, xp.sum(b * e, axis=-1)
        u_u = xp.sum(g * e, axis=-1) - square[..., 0]
        return self.arrow(q, -tau * tau * w - 1, [b, g], [[mu_mu, mu_u], [mu_u, u_u]])

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        xp, (y, w, e, mu, u) = namespace(q), self.read(q)
        tau, (_, bend) = xp.exp(u), self.prior_curvature(u)
        M_jj, e_mu, e_u, _, mu_u, M_uu = self.entries(M)
        g, b, c = tau * w * (y - mu - 4 * tau * e), -tau * w, -2 * tau * tau * w
        along_mu = xp.sum(b * (e_u + e * M_uu), axis=-1, keepdims=True)
        sums = c * M_jj + b * (e_mu + e * mu_u) + g * (e_u + e * M_uu)
        along_u = xp.sum(sums, axis=-1, keepdims=True) + bend * M_uu
        return where_finite(q, xp.concat([c * e_u + b * mu_u + g * M_uu, along_mu, along_u], axis=-1), 1)

    def fisher(self, q: Array) -> Array:
        xp, (_, w, e, _, u) = namespace(q), self.read(q)
        tau = xp.exp(u)
        b, c = tau * w, tau * tau * w
        mu_u, u_u = xp.sum(b * e, axis=-1), xp.sum(c * e * e, axis=-1) + 0.5
        return self.arrow(q, c + 1, [b, c * e], [[xp.sum(w) + 1 / 25, mu_u], [mu_u, u_u]])

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        xp, (_, w, e, _, u) = namespace(q), self.read(q)
        M_jj, e_mu, e_u, _, mu_u, M_uu = self.entries(M)
        b, c = xp.exp(u) * w, xp.exp(2 * u) * w
        along_u = xp.sum(b * (e_mu + e * mu_u) + 2 * c * (M_jj + e * (e_u + e * M_uu)), axis=-1, keepdims=True)
        along_e = c * (e_u + 2 * e * M_uu) + b * mu_u
        return where_finite(q, xp.concat([along_e, xp.zeros_like(u), along_u], axis=-1), 1)


class CentredOnArrays(Schools):
    """The array implementation for q = (theta, mu, u)."""

    name = "eight schools, centred"

    def __init__(self, y: np.ndarray, w: np.ndarray, xp: ModuleType = np) -> None:
        super().__init__(y, w, xp)
        self.fisher_levels = centred_levels(self.J)

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        xp, (y, w, theta, mu, u) = namespace(q), self.read(q)
        p, (prior, slope) = xp.exp(-2 * u), self.prior(u)
        residual, c = y - theta, theta - mu
        r, pc = w * residual, p * c
        pQ = batched.dot(pc, c)[..., None]
        L = (prior - self.J * u - mu * mu / 50 - 0.5 * pQ)[..., 0] - 0.5 * batched.dot(residual, r)
        along_mu = xp.sum(pc, axis=-1, keepdims=True) - mu / 25
        return L, xp.concat([r - pc, along_mu, pQ - self.J + slope], axis=-1)

    def hessian(self, q: Array) -> Array:
        xp, (_, w, theta, mu, u) = namespace(q), self.read(q)
        p, (square, _), c = xp.exp(-2 * u), self.prior_curvature(u), theta - mu
        pc = p * c
        mu_u, pQ = -2 * xp.sum(pc, axis=-1), xp.sum(pc * c, axis=-1)
        corner = [[-self.J * p[..., 0] - 1 / 25, mu_u], [mu_u, -2 * pQ - square[..., 0]]]
        return self.arrow(q, -w - p, [p, 2 * pc], corner)

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        xp, (_, _, theta, mu, u) = namespace(q), self.read(q)
        p, (_, bend), c = xp.exp(-2 * u), self.prior_curvature(u), theta - mu
        M_jj, e_mu, e_u, mu_mu, mu_u, M_uu = self.entries(M)
        along_theta = 2 * p * (e_u - mu_u - 2 * c * M_uu)
        along_mu = -xp.sum(along_theta, axis=-1, keepdims=True)
        sums = M_jj - e_mu + mu_mu - 2 * c * (e_u - mu_u - c * M_uu)
        along_u = 2 * p * xp.sum(sums, axis=-1, keepdims=True) + bend * M_uu
        return where_finite(q, xp.concat([along_theta, along_mu, along_u], axis=-1), 1)

    def fisher(self, q: Array) -> Array:
        xp, (_, w, _, _, u) = namespace(q), self.read(q)
        p = xp.exp(-2 * u)
        corner = [[self.J * p[..., 0] + 1 / 25, 0.0], [0.0, 2 * self.J + 0.5]]
        return self.arrow(q, w + p, [-p, xp.zeros_like(p)], corner)

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        xp, (_, _, theta, mu, u) = namespace(q), self.read(q)
        M_jj, e_mu, _, mu_mu, _, _ = self.entries(M)
        along_u = 2 * xp.exp(-2 * u) * xp.sum(e_mu - M_jj - mu_mu, axis=-1, keepdims=True)
        return where_finite(q, xp.concat([0 * theta, 0 * mu, along_u], axis=-1), 1)


# ----------------------------------------------------------------------------------------------------- compiled twins


@jit
def half_cauchy(h: float, e: float) -> tuple[float, float]:
    """Return -log(2 cosh h) and its slope -tanh h, given also e = e^(2h), which may have overflowed."""
    if h.real > 0:
        return -h - np.log1p(1 / e), (1 / e - 1) / (1 + 1 / e)
    return h - np.log1p(e), (1 - e) / (1 + e)


@jit
def sech_squared(h: float) -> float:
    return 4 * expit(2 * h) * expit(-2 * h)


# ----------------------------------------------------------------------------------------------------- non-centred


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    J = data.shape[1]
    mu, u = q[J], q[J + 1]
    tau = np.exp(u)
    prior, _ = half_cauchy(u - LOG_SCALE, tau * tau / 25)
    total = 0.0
    for j in range(J):
        residual = data[0, j] - mu - tau * q[j]
        total += residual * residual * data[1, j] + q[j] * q[j]
    return -0.5 * total - mu * mu / 50 + prior


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    J = data.shape[1]
    mu, u = q[J], q[J + 1]
    tau = np.exp(u)
    prior, slope = half_cauchy(u - LOG_SCALE, tau * tau / 25)
    total = sum_r = sum_re = 0.0
    for j in range(J):
        e = q[j]
        residual = data[0, j] - mu - tau * e
        r = residual * data[1, j]
        total += residual * r + e * e
        sum_r += r
        sum_re += r * e
        out[j] = tau * r - e
    out[J] = sum_r - mu / 25
    out[J + 1] = tau * sum_re + slope
    return -0.5 * total - mu * mu / 50 + prior


@jit
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    J = data.shape[1]
    tau = np.exp(q[J + 1])
    out[:] = 0.0
    out[J, J] = -1 / 25
    out[J + 1, J + 1] = -sech_squared(q[J + 1] - LOG_SCALE)
    for j in range(J):
        e, w = q[j], data[1, j]
        g = tau * w * (data[0, j] - q[J] - 2 * tau * e)
        out[j, j] = -tau * tau * w - 1
        out[j, J] = out[J, j] = -tau * w
        out[j, J + 1] = out[J + 1, j] = g
        out[J, J] -= w
        out[J, J + 1] -= tau * w * e
        out[J + 1, J + 1] += g * e
    out[J + 1, J] = out[J, J + 1]


@jit
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    J = data.shape[1]
    U = J + 1
    tau, h = np.exp(q[U]), q[U] - LOG_SCALE
    out[J] = 0.0
    out[U] = 2 * M[U, U] * sech_squared(h) * np.tanh(h)
    mu_u = M[J, U] + M[U, J]
    for j in range(J):
        e, w = q[j], data[1, j]
        g = tau * w * (data[0, j] - q[J] - 4 * tau * e)
        e_mu, e_u = M[j, J] + M[J, j], M[j, U] + M[U, j]
        out[j] = -2 * tau * tau * w * e_u - tau * w * mu_u + g * M[U, U]
        out[J] -= tau * w * (e_u + e * M[U, U])
        out[U] += -2 * tau * tau * w * M[j, j] - tau * w * (e_mu + e * mu_u) + g * (e_u + e * M[U, U])


@jit
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    J = data.shape[1]
    U = J + 1
    tau = np.exp(q[U])
    out[:] = 0.0
    out[J, J], out[U, U] = 1 / 25, 0.5
    for j in range(J):
        e, w = q[j], data[1, j]
        out[j, j] = tau * tau * w + 1
        out[j, J] = out[J, j] = tau * w
        out[j, U] = out[U, j] = tau * tau * w * e
        out[J, J] += w
        out[J, U] += tau * w * e
        out[U, U] += tau * tau * w * e * e
    out[U, J] = out[J, U]


@jit
def fisher_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    J = data.shape[1]
    U = J + 1
    tau = np.exp(q[U])
    out[J] = out[U] = 0.0
    mu_u = M[J, U] + M[U, J]
    for j in range(J):
        e, w = q[j], data[1, j]
        e_mu, e_u = M[j, J] + M[J, j], M[j, U] + M[U, j]
        out[j] = tau * tau * w * (e_u + 2 * e * M[U, U]) + tau * w * mu_u
        out[U] += tau * w * (e_mu + e * mu_u) + 2 * tau * tau * w * (M[j, j] + e * e_u + e * e * M[U, U])


# --------------------------------------------------------------------------------------------------------- centred


@jit
def centred_log_density(q: np.ndarray, data: np.ndarray) -> float:
    J = data.shape[1]
    mu, u = q[J], q[J + 1]
    p = np.exp(-2 * u)
    prior, _ = half_cauchy(u - LOG_SCALE, 1 / (25 * p))
    misfit = Q = 0.0
    for j in range(J):
        residual, c = data[0, j] - q[j], q[j] - mu
        misfit += residual * residual * data[1, j]
        Q += c * c
    return -0.5 * (misfit + p * Q) - J * u - mu * mu / 50 + prior


@jit
def centred_value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    J = data.shape[1]
    mu, u = q[J], q[J + 1]
    p = np.exp(-2 * u)
    prior, slope = half_cauchy(u - LOG_SCALE, 1 / (25 * p))
    misfit = C = Q = 0.0
    for j in range(J):
        residual, c = data[0, j] - q[j], q[j] - mu
        r = residual * data[1, j]
        misfit += residual * r
        C += c
        Q += c * c
        out[j] = r - p * c
    out[J] = p * C - mu / 25
    out[J + 1] = p * Q - J + slope
    return -0.5 * (misfit + p * Q) - J * u - mu * mu / 50 + prior


@jit
def centred_hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    J = data.shape[1]
    U = J + 1
    p = np.exp(-2 * q[U])
    out[:] = 0.0
    out[J, J] = -J * p - 1 / 25
    out[U, U] = -sech_squared(q[U] - LOG_SCALE)
    for j in range(J):
        c = q[j] - q[J]
        out[j, j] = -data[1, j] - p
        out[j, J] = out[J, j] = p
        out[j, U] = out[U, j] = 2 * p * c
        out[J, U] -= 2 * p * c
        out[U, U] -= 2 * p * c * c
    out[U, J] = out[J, U]


@jit
def centred_hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    J = data.shape[1]
    U = J + 1
    p, h = np.exp(-2 * q[U]), q[U] - LOG_SCALE
    mu_u = M[J, U] + M[U, J]
    out[J] = 2 * J * p * mu_u
    out[U] = 2 * M[U, U] * sech_squared(h) * np.tanh(h) + 2 * J * p * M[J, J]
    for j in range(J):
        c = q[j] - q[J]
        e_mu, e_u = M[j, J] + M[J, j], M[j, U] + M[U, j]
        out[j] = 2 * p * (e_u - mu_u - 2 * c * M[U, U])
        out[J] += 2 * p * (2 * c * M[U, U] - e_u)
        out[U] += 2 * p * (M[j, j] - e_mu - 2 * c * (e_u - mu_u) + 2 * c * c * M[U, U])


@jit
def centred_fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    J = data.shape[1]
    p = np.exp(-2 * q[J + 1])
    out[:] = 0.0
    out[J, J] = J * p + 1 / 25
    out[J + 1, J + 1] = 2 * J + 0.5
    for j in range(J):
        out[j, j] = data[1, j] + p
        out[j, J] = out[J, j] = -p


@jit
def centred_fisher_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    J = data.shape[1]
    p = np.exp(-2 * q[J + 1])
    out[:] = 0.0
    total = -J * M[J, J]
    for j in range(J):
        total += M[j, J] + M[J, j] - M[j, j]
    out[J + 1] = 2 * p * total


# ------------------------------------------------------------------------------------------------------------ parts


@jit
def log_prior(q: np.ndarray, out: np.ndarray) -> float:
    """Return the log prior in the non-centred coordinates, and write its gradient."""
    J = q.shape[0] - 2
    mu, u = q[J], q[J + 1]
    value, out[J + 1] = half_cauchy(u - LOG_SCALE, np.exp(2 * u) / 25)
    for j in range(J):
        value -= 0.5 * q[j] * q[j]
        out[j] = -q[j]
    out[J] = -mu / 25
    return value - mu * mu / 50


@jit
def centred_log_prior(q: np.ndarray, out: np.ndarray) -> float:
    """Return the log prior in the centred coordinates, and write its gradient."""
    J = q.shape[0] - 2
    mu, u = q[J], q[J + 1]
    p = np.exp(-2 * u)
    value, slope = half_cauchy(u - LOG_SCALE, 1 / (25 * p))
    C = Q = 0.0
    for j in range(J):
        c = q[j] - mu
        C += c
        Q += c * c
        out[j] = -p * c
    out[J] = p * C - mu / 25
    out[J + 1] = p * Q - J + slope
    return value - 0.5 * p * Q - J * u - mu * mu / 50


@jit
def part_value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    """Return a share of the log prior and the log likelihood of some of the schools."""
    J, share, centred = data.shape[1], data[2, 0], data[3, 0] > 0
    total = share * (centred_log_prior(q, out) if centred else log_prior(q, out))
    for i in range(J + 2):
        out[i] *= share
    mu, tau = q[J], np.exp(q[J + 1])
    for j in range(J):
        if data[1, j] > 0:
            residual = data[0, j] - (q[j] if centred else mu + tau * q[j])
            r = residual * data[1, j]
            total -= 0.5 * residual * r
            if centred:
                out[j] += r
            else:
                out[j] += tau * r
                out[J] += r
                out[J + 1] += tau * r * q[j]
    return total


@jit_allocating
def part_log_density(q: np.ndarray, data: np.ndarray) -> float:
    return part_value_and_gradient(q, data, np.empty_like(q))


def share_of(whole: np.ndarray, centered: bool, at: np.ndarray, before: float, rows: np.ndarray, share: float) -> Model:
    """Return the model of some of the schools ``at``, with a ``share`` of the log prior of all schools."""
    at, share, data = at[rows], before * share, np.zeros((4, whole.shape[1]))
    data[:2, at] = whole[:, at]
    data[2], data[3] = share, centered
    return Model(
        whole.shape[1] + 2,
        part_log_density,
        value_and_gradient=part_value_and_gradient,
        data=data,
        names=names_of(whole.shape[1], centered),
        constrain=centred_constrain if centered else constrain,
        name="eight schools, centred" if centered else "eight schools",
        n_rows=len(at),
        part=functools.partial(share_of, whole, centered, at, share),
    )


# ----------------------------------------------------------------------------------------------------- constructor


def centred_levels(J: int) -> np.ndarray:
    """Return the levels of the Fisher metric: 0 for u, 1 for theta and mu."""
    return np.r_[np.ones(J + 1, int), 0]


def names_of(J: int, centered: bool) -> list[str]:
    effect = "theta" if centered else "theta_raw"
    return [f"{effect}[{j}]" for j in range(J)] + ["mu", "log_tau"]


def constrain(q: np.ndarray) -> dict:
    mu, tau = q[..., -2], np.exp(q[..., -1])
    return {"theta": mu[..., None] + tau[..., None] * q[..., :-2], "mu": mu, "tau": tau}


def centred_constrain(q: np.ndarray) -> dict:
    return {"theta": q[..., :-2], "mu": q[..., -2], "tau": np.exp(q[..., -1])}


def log_likelihood(values: dict, y: np.ndarray, sigma: np.ndarray) -> dict:
    return {"y": log_normal(y, values["theta"], sigma)}


def posterior_predictive(values: dict, rng: np.random.Generator, sigma: np.ndarray) -> dict:
    return {"y": rng.normal(values["theta"], sigma)}


def prior(rng: np.random.Generator, J: int) -> dict:
    mu, tau = rng.normal(0.0, 5.0), 5.0 * abs(rng.standard_cauchy())
    return {"theta": rng.normal(mu, tau, J), "mu": mu, "tau": tau}


NON_CENTRED: dict[str, Any] = {
    "log_density": log_density,
    "value_and_gradient": value_and_gradient,
    "hessian": hessian,
    "hessian_contraction": hessian_contraction,
    "fisher": fisher,
    "fisher_contraction": fisher_contraction,
}
CENTRED: dict[str, Any] = {
    "log_density": centred_log_density,
    "value_and_gradient": centred_value_and_gradient,
    "hessian": centred_hessian,
    "hessian_contraction": centred_hessian_contraction,
    "fisher": centred_fisher,
    "fisher_contraction": centred_fisher_contraction,
}


@recreatable
def EightSchools(centered: bool = False, *, y: ArrayLike | None = None, sigma: ArrayLike | None = None) -> Model:
    """Return the hierarchical model of eight schools.

    The model is ::

        y_j ~ N(theta_j, sigma_j),   theta_j ~ N(mu, tau),   mu ~ N(0, 5),   tau ~ C+(0, 5)

    with standard deviations as second arguments and a half-Cauchy prior of tau. The variables are ``theta`` of shape (J,),
    ``mu`` and ``tau``; the dimension is J + 2. The model has all derivatives and a Fisher metric.

    Parameters
    ----------
    centered : bool, default False
        Whether the coordinates are theta itself. The posterior of the variables is the same but much harder to sample.
        Otherwise they are e with theta_j = mu + tau e_j.
    y : array_like of shape (J,), optional
        Observed effects. Defaults to those of the eight schools.
    sigma : array_like of shape (J,), optional
        Standard deviations of the effects, to be given together with `y`.

    Returns
    -------
    Model
        The model. For the default data, ``reference`` has the moments of the published draws.

    Raises
    ------
    ValueError
        If only one of `y` and `sigma` is given, or their values are not finite and positive.
    refhmc.errors.ShapeError
        If `y` and `sigma` are not vectors of the same length.

    References
    ----------
    D. B. Rubin (1981), Estimation in parallel randomized experiments.
    M. Magnusson et al., posteriordb, posterior eight_schools-eight_schools_noncentered.

    Examples
    --------
    >>> import refhmc
    >>> result = refhmc.sample(refhmc.models.EightSchools(), random_seed=1, progressbar=False, raw=True)
    >>> result.posterior["theta"].shape
    (4, 1000, 8)
    """
    name = "eight_schools-eight_schools_noncentered"
    flag("centered", centered)
    reference, coords = None, None
    if not given_together(y=y, sigma=sigma):
        coords = {"school": SCHOOLS}
        schools = posteriordb(name)["data"]
        y, sigma = schools["y"], schools["sigma"]
        reference = posteriordb_reference(name, [f"theta[{j}]" for j in range(1, 9)] + ["mu", "tau"])
    y, sigma = vectors(y=y, sigma=sigma)
    if not (sigma > 0).all():
        raise ValueError(f"sigma must be positive; got {sigma.min()}.")
    data = frozen(np.array([y, sigma**-2]))
    return Model(
        len(y) + 2,
        **(CENTRED if centered else NON_CENTRED),
        fisher_levels=centred_levels(len(y)) if centered else None,
        parents={"theta": ["mu", "log_tau"]} if centered else {},
        data=data,
        names=names_of(len(y), centered),
        constrain=centred_constrain if centered else constrain,
        name="eight schools, centred" if centered else "eight schools",
        reference=reference,
        n_rows=len(y),
        part=functools.partial(share_of, data, centered, np.arange(len(y)), 1.0),
        recommended=FUNNEL if centered else SMALLER_STEPS,
        on_arrays=functools.partial(CentredOnArrays if centered else NonCentredOnArrays, y, sigma**-2),
        dims={"theta": "school", "y": "school", "sigma": "school"},
        coords=coords,
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, y=y, sigma=sigma),
            posterior_predictive=functools.partial(posterior_predictive, sigma=sigma),
            prior=functools.partial(prior, J=len(y)),
            observed_data={"y": y},
            constant_data={"sigma": sigma},
        ),
    )
