"""Stochastic volatility: a series whose log variance is a hidden autoregression.

The model is ::

    y_t ~ N(0, beta^2 e^{x_t}),   x_t ~ N(phi x_{t-1}, sigma^2),   x_1 ~ N(0, sigma^2 / (1 - phi^2)),      t = 1 ... T
    p(beta) ~ 1/beta,   sigma^2 ~ Inv-chi^2(nu, s^2) with nu = 10, s^2 = 0.05,   (phi + 1)/2 ~ Beta(20, 1.5)

(Brofos and Lederman 2021, eqs. 16-17, after Girolami and Calderhead 2011). The coordinates are ::

    q = (x_1, ..., x_T, u, g, a),     u = log beta,   g = log sigma,   a = atanh phi

Including Jacobians, the log prior of u is flat, that of g is -nu g - nu s^2 e^{-2g}/2, and that of a is
20 log(1 + phi) + 1.5 log(1 - phi). Write w_t = y_t^2 e^{-x_t - 2u}, W for their sum, s = 1 - phi^2 = dphi/da, and sigma^-2 K
for the precision of x. K is tridiagonal, with 1 at both ends of the diagonal, 1 + phi^2 between, and -phi off the diagonal.
K' and K'' are its derivatives in phi. Then ::

    Q = x'K x = A - 2 phi B + phi^2 C,     A = sum_1^T x_t^2,   B = sum_2^T x_t x_{t-1},   C = sum_2^{T-1} x_t^2

    L = -T u - sum x_t / 2 - W/2 - (T + nu) g - e^{-2g} (Q + nu s^2) / 2 + 20.5 log(1 + phi) + 2 log(1 - phi)

With D = B - phi C, R = Q + nu s^2 and e = e^{-2g}, ::

    gradient    x: w/2 - 1/2 - e K x      u: W - T      g: e R - T - nu      a: 20.5 (1 - phi) - 2 (1 + phi) + e s D
    hessian     xx: -w/2 - e K   xu: -w   xg: 2 e K x   xa: -e s K'x
                uu: -2W   gg: -2 e R   ga: -2 e s D   aa: -22.5 s - e (2 phi s D + s^2 C)
    third       xxx: w/2   xxu: w   xuu: 2w   uuu: 4W
                xxg: 2 e K   xxa: -e s K'   xgg: -4 e K x   xga: 2 e s K'x   xaa: e (2 phi s K'x - s^2 K''x)
                ggg: 4 e R   gga: 4 e s D   gaa: 2 e (2 phi s D + s^2 C)
                aaa: 45 phi s + e (6 phi s^2 C - 2 s (1 - 3 phi^2) D)

(w stands for a diagonal matrix where a matrix is needed).

The Fisher metric is the mean of minus this Hessian: over y given q, where w_t has the mean 1, over x given (g, a), and over the
prior of (g, a) in the entries of these two. With E phi = 37/43 and E s = 4 * 20 * 1.5 / (21.5 * 22.5), ::

    xx: I/2 + e K    xu: 1    uu: 2T    gg: 2T + 2 nu    ga: 2 E phi    aa: 2 - 2 E s + (T + 20.5) E s    others: 0

It is hierarchical: the block of (g, a) is constant and has level 0, and the block of (x, u) depends on (g, a) only and has
level 1. Without the mean over the prior, the entries aa and ga would depend on a itself, so that a could have no level. It is
also tridiagonal except for the row and column of u, so that a step costs O(T) (:mod:`refhmc.metrics.bordered`).

Both conditionals for Gibbs sampling are hand-written, too:

**x given (u, g, a)** has the constant metric e K + I/2 (prior precision, and the information of one y_t about its x_t). It is
tridiagonal, and :class:`refhmc.metrics.Tridiagonal` uses it.

**(u, g, a) given x** needs x only through W e^{2u}, A, B, C. Its Fisher metric, over y and x, with the Hessian of the prior::

    G = [2T, 0, 0;   0, 2T + 2 nu s^2 e, 2 phi;   0, 2 phi, 2 phi^2 + (T - 1) s + 21.5 s]

Rows of the data:

- joint model: y^2
- conditional of x: y^2, y^2 e^{-2u}, (phi, e)
- conditional of the parameters: (W e^{2u}, A, B, C, T), y^2
- part on some of the times: y^2, 1 at these times and 0 elsewhere, (share of the prior)
"""

from __future__ import annotations

import functools
from types import ModuleType

import numpy as np
from numpy.typing import ArrayLike

from refhmc.compile.compiled import jit, jit_allocating, jit_sum
from refhmc.models.base import Model
from refhmc.models.conditionals import Conditional
from refhmc.models.densities import log_normal
from refhmc.models.generated import GeneratedQuantities, frozen
from refhmc.models.inputs import vector
from refhmc.models.on_arrays import ArrayImplementation, blocks, in_dtype_of, matrix, where_finite
from refhmc.models.recipe import recreatable
from refhmc.models.recommended import Recommended
from refhmc.models.split import with_share
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, namespace
from refhmc.numerics.transforms import expit, softplus

PATH = "path and parameters depend strongly on each other, and the precision of the path depends on the parameters"

NU, SCALE = 10.0, 0.05
PRIOR_UP, PRIOR_DOWN = (
    20.5,
    2.0,
)  # coefficients of log(1 + phi) and log(1 - phi), including the root of 1 - phi^2 from x_1
TRUTH = {"beta": 0.65, "sigma": 0.15, "phi": 0.98}
DATA_SEED = 20211
MEAN_PHI, MEAN_S = 37 / 43, 4 * 20 * 1.5 / (21.5 * 22.5)  # over the prior

# ---------------------------------------------------------------------------------------------------- text on arrays


class StochasticVolatilityOnArrays(ArrayImplementation):
    """The array implementation. ``y_squared`` is (T,); positions (x_1, ..., x_T, u, g, a) have shape (..., T + 3).

    In the gradient, K x comes from the innovations d_1 = s x_1, d_t = x_t - phi x_{t-1}, without a loop over time::

        (K x)_t = d_t - phi d_{t+1},  d_{T+1} = 0     Q = x_1 d_1 + sum_2^T d_t^2     D = phi x_1^2 + sum_2^T x_{t-1} d_t
    """

    name = "stochastic-volatility"

    def __init__(self, y_squared: np.ndarray, xp: ModuleType = np) -> None:
        self.T, self.dim, self.y_squared = len(y_squared), len(y_squared) + 3, xp.asarray(y_squared)
        self.fisher_levels = levels(self.T)

    def read(self, q: Array) -> tuple:
        """Return y^2 and x, (..., T), and u, g, a, (..., 1)."""
        T = self.T
        return *in_dtype_of(q, self.y_squared), q[..., :T], q[..., T : T + 1], q[..., T + 1 : T + 2], q[..., T + 2 :]

    def map_of_phi(self, a: Array) -> tuple:
        """Return phi, s = 1 - phi^2, the terms of L in a alone, and their slope 41 / (1 + e^2a) - 4 / (1 + e^-2a)."""
        xp = namespace(a)
        b, up = xp.exp(-2 * xp.abs(a)), xp.astype(a > 0, a.dtype)
        prior = -(PRIOR_UP + PRIOR_DOWN) * xp.log1p(b) - 2 * xp.abs(a) * (PRIOR_UP + (PRIOR_DOWN - PRIOR_UP) * up)
        less, more = (b * up + 1 - up) / (1 + b), (b * (1 - up) + up) / (1 + b)
        return xp.tanh(a), 4 * b / (1 + b) ** 2, prior, 2 * PRIOR_UP * less - 2 * PRIOR_DOWN * more

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        xp, T, (y_squared, x, u, g, a) = namespace(q), self.T, self.read(q)
        phi, s, prior, slope = self.map_of_phi(a)
        e = xp.exp(-2 * g)
        w = y_squared * xp.exp(-2 * u - x)
        W = xp.sum(w, axis=-1, keepdims=True)
        first, before, d = x[..., :1], x[..., :-1], x[..., 1:] - phi * x[..., :-1]
        R = s * first * first + batched.dot(d, d)[..., None] + NU * SCALE
        D = phi * first * first + batched.dot(before, d)[..., None]
        terms = prior - T * u - 0.5 * (W + xp.sum(x, axis=-1, keepdims=True)) - (T + NU) * g - 0.5 * e * R
        d = xp.concat([s * first, d, xp.zeros_like(first)], axis=-1)
        along_x = 0.5 * w - 0.5 - e * (d[..., :-1] - phi * d[..., 1:])
        return terms[..., 0], xp.concat([along_x, W - T, e * R - T - NU, slope + e * s * D], axis=-1)

    def inner(self, x: Array) -> Array:
        """Return 1 for t = 2 ... T - 1, else 0."""
        xp = namespace(x)
        t = xp.arange(self.T)
        return xp.astype((t > 0) & (t < self.T - 1), x.dtype)

    def neighbours(self, x: Array) -> Array:
        """Return x_{t-1} + x_{t+1}, without the terms outside 1 ... T."""
        xp, none = namespace(x), namespace(x).zeros_like(x[..., :1])
        return xp.concat([none, x[..., :-1]], axis=-1) + xp.concat([x[..., 1:], none], axis=-1)

    def products(self, x: Array, phi: Array) -> tuple:
        """Return K x, K'x and K''x."""
        inner, beside = self.inner(x) * x, self.neighbours(x)
        return x + phi * (phi * inner - beside), 2 * phi * inner - beside, 2 * inner

    def shared(self, q: Array) -> tuple:
        """Return w, K x, K'x, K''x; phi, s and e; W, R, D and C."""
        xp, (y_squared, x, u, g, a) = namespace(q), self.read(q)
        phi, s, _, _ = self.map_of_phi(a)
        w = y_squared * xp.exp(-2 * u - x)
        k, slope, curvature = self.products(x, phi)
        forms = [batched.dot(x, each)[..., None] for each in (k, slope, curvature)]  # Q, Q' = -2 D, Q'' = 2 C
        sums = xp.sum(w, axis=-1, keepdims=True), forms[0] + NU * SCALE, -0.5 * forms[1], 0.5 * forms[2]
        return w, k, slope, curvature, phi, s, xp.exp(-2 * g), *sums

    def hessian(self, q: Array) -> Array:
        xp, T = namespace(q), self.T
        w, k, slope, _, phi, s, e, W, R, D, C = self.shared(q)
        beside = xp.eye(T, k=1, dtype=q.dtype) + xp.eye(T, k=-1, dtype=q.dtype)
        diagonal = -0.5 * w - e * (1 + phi * phi * self.inner(w))
        A = batched.diagonal_matrix(diagonal) + (e * phi)[..., None] * beside
        B = xp.stack([-w, 2 * e * k, -e * s * slope], axis=-1)
        ga, aa = -2 * e * s * D, -(PRIOR_UP + PRIOR_DOWN) * s - e * (2 * phi * s * D + s * s * C)
        uu, gg, ga, aa = (each[..., 0] for each in (-2 * W, -2 * e * R, ga, aa))
        return where_finite(q, blocks(A, B, matrix([[uu, 0.0, 0.0], [0.0, gg, ga], [0.0, ga, aa]])), 2)

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        xp, T = namespace(q), self.T
        w, k, slope, curvature, phi, s, e, W, R, D, C = self.shared(q)
        both, inner = M + batched.transpose(M), self.inner(w)
        M_tt, (u, g, a) = xp.linalg.diagonal(M)[..., :T], (both[..., :T, T + i] for i in range(3))
        beside = xp.linalg.diagonal(both, offset=1)[..., : T - 1]  # M_t,t+1 + M_t+1,t
        M_uu, M_gg, M_aa, M_ga = (
            M[..., T, T, None],
            M[..., T + 1, T + 1, None],
            M[..., -1, -1, None],
            both[..., -2, -1:],
        )
        bend = 2 * phi * s * slope - s * s * curvature
        gga, gaa = 4 * e * s * D, 2 * e * (2 * phi * s * D + s * s * C)
        aaa = 2 * (PRIOR_UP + PRIOR_DOWN) * phi * s + e * (6 * phi * s * s * C - 2 * s * (1 - 3 * phi * phi) * D)
        K_g, K_a = self.products(g, phi)[0], self.products(a, phi)[1]
        along_x = w * (0.5 * M_tt + u + 2 * M_uu) + e * (
            2 * M_ga * s * slope - 4 * M_gg * k + M_aa * bend + 2 * K_g - s * K_a
        )
        along_u = 4 * M_uu * W + xp.sum(w * (M_tt + 2 * u), axis=-1, keepdims=True)
        all_beside = xp.sum(beside, axis=-1, keepdims=True)
        sums_g = 2 * (1 + phi * phi * inner) * M_tt + 2 * s * slope * a - 4 * k * g
        along_g = e * (xp.sum(sums_g, axis=-1, keepdims=True) - 2 * phi * all_beside)
        sums_a = 2 * s * slope * g + bend * a - 2 * s * phi * inner * M_tt
        along_a = e * (xp.sum(sums_a, axis=-1, keepdims=True) + s * all_beside)
        along_g = along_g + M_gg * 4 * e * R + M_ga * gga + M_aa * gaa
        along_a = along_a + M_gg * gga + M_ga * gaa + M_aa * aaa
        return where_finite(q, xp.concat([along_x, along_u, along_g, along_a], axis=-1), 1)

    def fisher(self, q: Array) -> Array:
        xp, T, (_, x, _, g, a) = namespace(q), self.T, self.read(q)
        phi, e, one = xp.tanh(a), xp.exp(-2 * g), xp.ones_like(x)
        beside = xp.eye(T, k=1, dtype=q.dtype) + xp.eye(T, k=-1, dtype=q.dtype)
        A = batched.diagonal_matrix(0.5 + e * (1 + phi * phi * self.inner(x))) - (e * phi)[..., None] * beside
        like = 0 * g[..., 0]
        gg, ga, aa = (like + each for each in mean_information(T))
        corner = matrix([[2.0 * T + like, 0.0, 0.0], [0.0, gg, ga], [0.0, ga, aa]])
        return where_finite(q, blocks(A, xp.stack([one, 0 * one, 0 * one], axis=-1), corner), 2)

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        xp, T, (_, x, _, g, a) = namespace(q), self.T, self.read(q)
        (phi, s, _, _), e, inner = self.map_of_phi(a), xp.exp(-2 * g), self.inner(x)
        M_tt = xp.linalg.diagonal(M)[..., :T]
        beside = xp.linalg.diagonal(M + batched.transpose(M), offset=1)[..., : T - 1]
        all_beside = xp.sum(beside, axis=-1, keepdims=True)
        along_g = -2 * e * (xp.sum((1 + phi * phi * inner) * M_tt, axis=-1, keepdims=True) - phi * all_beside)
        along_a = e * s * (xp.sum(2 * phi * inner * M_tt, axis=-1, keepdims=True) - all_beside)
        return where_finite(q, xp.concat([0 * q[..., : T + 1], along_g, along_a], axis=-1), 1)


# ----------------------------------------------------------------------------------------------------- compiled twins


@jit
def map_of_phi(a: float) -> tuple[float, float, float]:
    """Return phi, 1 - phi^2 and the log prior of a with the root of 1 - phi^2, without cancellation."""
    return np.tanh(a), 4 * expit(2 * a) * expit(-2 * a), -PRIOR_UP * softplus(-2 * a) - PRIOR_DOWN * softplus(2 * a)


@jit
def prior_slope(a: float) -> float:
    """Return d/da of 20.5 log(1 + phi) + 2 log(1 - phi)."""
    return 2 * PRIOR_UP * expit(-2 * a) - 2 * PRIOR_DOWN * expit(2 * a)


@jit_sum
def quadratics(x: np.ndarray) -> tuple[float, float, float]:
    """Return A, B and C."""
    T = x.shape[0]
    A = x[0] * x[0]
    B = C = 0.0 * x[0]
    for t in range(1, T):
        A += x[t] * x[t]
        B += x[t] * x[t - 1]
    for t in range(1, T - 1):
        C += x[t] * x[t]
    return A, B, C


@jit
def precision_times(x: np.ndarray, t: int, phi: float) -> float:
    """Write (K x)_t."""
    T = x.shape[0]
    total = x[t] if t == 0 or t == T - 1 else (1 + phi * phi) * x[t]
    if t > 0:
        total -= phi * x[t - 1]
    if t < T - 1:
        total -= phi * x[t + 1]
    return total


@jit
def slope_times(x: np.ndarray, t: int, phi: float) -> float:
    """Write (K'x)_t."""
    T = x.shape[0]
    total = 0.0 * x[t] if t == 0 or t == T - 1 else 2 * phi * x[t]
    if t > 0:
        total -= x[t - 1]
    if t < T - 1:
        total -= x[t + 1]
    return total


@jit
def curvature_times(x: np.ndarray, t: int) -> float:
    """Write (K''x)_t."""
    return 0.0 * x[t] if t == 0 or t == x.shape[0] - 1 else 2 * x[t]


# ---------------------------------------------------------------------------------------------------------- x given the rest


@jit_sum
def latent_value_and_gradient(
    x: np.ndarray, scaled: np.ndarray, phi: float, e: float, out: np.ndarray
) -> tuple[float, float, float]:
    """Return the terms of L that depend on x, with W and Q, and write their gradient; ``scaled`` is y^2 e^{-2u}."""
    T = x.shape[0]
    W = levels = Q = 0.0 * x[0] + 0.0 * phi + 0.0 * scaled[0]
    inner = 1 + phi * phi
    for t in range(T):
        w = scaled[t] * np.exp(-x[t])
        out[t] = 0.5 * w - 0.5
        W += w
        levels += x[t]
    for t in range(1, T - 1):
        k = inner * x[t] - phi * (x[t - 1] + x[t + 1])
        out[t] -= e * k
        Q += x[t] * k
    first, last = x[0] - phi * x[1], x[T - 1] - phi * x[T - 2]
    out[0] -= e * first
    out[T - 1] -= e * last
    Q += x[0] * first + x[T - 1] * last
    return -0.5 * (levels + W + e * Q), W, Q


@jit
def x_value_and_gradient(x: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    return latent_value_and_gradient(x, data[1], data[2, 0], data[2, 1], out)[0]


@jit_allocating
def x_log_density(x: np.ndarray, data: np.ndarray) -> float:
    return x_value_and_gradient(x, data, np.empty_like(x))


@jit
def x_hessian(x: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    T = x.shape[0]
    phi, e = data[2, 0], data[2, 1]
    for t in range(T):
        out[t, t] = -0.5 * data[1, t] * np.exp(-x[t]) - e * (1.0 if t == 0 or t == T - 1 else 1 + phi * phi)
        if t > 0:
            out[t, t - 1] = out[t - 1, t] = e * phi


@jit
def x_contraction(x: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    for t in range(x.shape[0]):
        out[t] = 0.5 * M[t, t] * data[1, t] * np.exp(-x[t])


@jit
def x_fisher(x: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    T = x.shape[0]
    phi, e = data[2, 0], data[2, 1]
    for t in range(T):
        out[t, t] = 0.5 + e * (1.0 if t == 0 or t == T - 1 else 1 + phi * phi)
        if t > 0:
            out[t, t - 1] = out[t - 1, t] = -e * phi


@jit
def x_fisher_contraction(x: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0


@jit
def x_fisher_bands(x: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Write the same metric as two bands: the diagonal and the off-diagonal."""
    T = x.shape[0]
    phi, e = data[2, 0], data[2, 1]
    for t in range(T):
        out[0, t] = 0.5 + e * (1 + phi * phi)
        out[1, t] = -e * phi
    out[0, 0] = out[0, T - 1] = 0.5 + e
    out[1, T - 1] = 0.0


@jit
def condition_x(q: np.ndarray, data: np.ndarray) -> None:
    T = q.shape[0] - 3
    precision = np.exp(-2 * q[T])
    for t in range(T):
        data[1, t] = data[0, t] * precision
    data[2, 0], data[2, 1] = np.tanh(q[T + 2]), np.exp(-2 * q[T + 1])


# ---------------------------------------------------------------------------------------------------- parameters given x


@jit
def parameter_value_and_gradient(p: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    W, A, B, C, T = data[0, 0], data[0, 1], data[0, 2], data[0, 3], data[0, 4]
    phi, s, prior = map_of_phi(p[2])
    e = np.exp(-2 * p[1])
    w = W * np.exp(-2 * p[0])
    R = A - 2 * phi * B + phi * phi * C + NU * SCALE
    out[0] = w - T
    out[1] = e * R - T - NU
    out[2] = prior_slope(p[2]) + e * s * (B - phi * C)
    return prior - T * p[0] - 0.5 * w - (T + NU) * p[1] - 0.5 * e * R


@jit_allocating
def parameter_log_density(p: np.ndarray, data: np.ndarray) -> float:
    return parameter_value_and_gradient(p, data, np.empty_like(p))


@jit
def parameter_second(p: np.ndarray, data: np.ndarray) -> tuple[float, float, float, float]:
    """Return uu, gg, ga and aa."""
    W, A, B, C, _ = data[0, 0], data[0, 1], data[0, 2], data[0, 3], data[0, 4]
    phi, s, _ = map_of_phi(p[2])
    e, D = np.exp(-2 * p[1]), B - phi * C
    R = A - 2 * phi * B + phi * phi * C + NU * SCALE
    aa = -(PRIOR_UP + PRIOR_DOWN) * s - e * (2 * phi * s * D + s * s * C)
    return -2 * W * np.exp(-2 * p[0]), -2 * e * R, -2 * e * s * D, aa


@jit
def parameter_third(p: np.ndarray, data: np.ndarray) -> tuple:
    """Return uuu, ggg, gga, gaa and aaa."""
    W, A, B, C, _ = data[0, 0], data[0, 1], data[0, 2], data[0, 3], data[0, 4]
    phi, s, _ = map_of_phi(p[2])
    e, D = np.exp(-2 * p[1]), B - phi * C
    R = A - 2 * phi * B + phi * phi * C + NU * SCALE
    gaa = 2 * e * (2 * phi * s * D + s * s * C)
    aaa = 2 * (PRIOR_UP + PRIOR_DOWN) * phi * s + e * (6 * phi * s * s * C - 2 * s * (1 - 3 * phi * phi) * D)
    return 4 * W * np.exp(-2 * p[0]), 4 * e * R, 4 * e * s * D, gaa, aaa


@jit
def parameter_hessian(p: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    out[0, 0], out[1, 1], ga, out[2, 2] = parameter_second(p, data)
    out[1, 2] = out[2, 1] = ga


@jit
def parameter_contraction(p: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    uuu, ggg, gga, gaa, aaa = parameter_third(p, data)
    out[0] = M[0, 0] * uuu
    out[1] = M[1, 1] * ggg + (M[1, 2] + M[2, 1]) * gga + M[2, 2] * gaa
    out[2] = M[1, 1] * gga + (M[1, 2] + M[2, 1]) * gaa + M[2, 2] * aaa


@jit
def parameter_fisher(p: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    T = data[0, 4]
    phi, s, _ = map_of_phi(p[2])
    out[:] = 0.0
    out[0, 0] = 2 * T
    out[1, 1] = 2 * T + 2 * NU * SCALE * np.exp(-2 * p[1])
    out[1, 2] = out[2, 1] = 2 * phi
    out[2, 2] = 2 * phi * phi + (T - 2 + PRIOR_UP + PRIOR_DOWN) * s


@jit
def fisher_slopes(p: np.ndarray, data: np.ndarray) -> tuple[float, float, float]:
    """Return dG_gg/dg, dG_ga/da and dG_aa/da."""
    phi, s, _ = map_of_phi(p[2])
    aa = 2 * phi * s * (4 - data[0, 4] - PRIOR_UP - PRIOR_DOWN)
    return -4 * NU * SCALE * np.exp(-2 * p[1]), 2 * s, aa


@jit
def parameter_fisher_contraction(p: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    gg, ga, aa = fisher_slopes(p, data)
    out[0] = 0.0
    out[1] = M[1, 1] * gg
    out[2] = (M[1, 2] + M[2, 1]) * ga + M[2, 2] * aa


@jit_sum
def condition_parameters(q: np.ndarray, data: np.ndarray) -> None:
    T = q.shape[0] - 3
    x = q[:T]
    W = 0.0 * q[0]
    for t in range(T):
        W += data[1, t] * np.exp(-x[t])
    data[0, 0] = W
    data[0, 1], data[0, 2], data[0, 3] = quadratics(x)
    data[0, 4] = T


# ------------------------------------------------------------------------------------------------------------------- joint


@jit_sum
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    T = q.shape[0] - 3
    x, u, g, a = q[:T], q[T], q[T + 1], q[T + 2]
    phi, s, prior = map_of_phi(a)
    e, precision = np.exp(-2 * g), np.exp(-2 * u)
    inner = 1 + phi * phi
    W = levels = Q = B = C = 0.0 * u + 0.0 * x[0]
    for t in range(T):
        w = data[0, t] * precision * np.exp(-x[t])
        out[t] = 0.5 * w - 0.5
        W += w
        levels += x[t]
    for t in range(1, T - 1):
        k = inner * x[t] - phi * (x[t - 1] + x[t + 1])
        out[t] -= e * k
        Q += x[t] * k
        B += x[t] * x[t - 1]
        C += x[t] * x[t]
    B += x[T - 1] * x[T - 2]
    first, last = x[0] - phi * x[1], x[T - 1] - phi * x[T - 2]
    out[0] -= e * first
    out[T - 1] -= e * last
    R = Q + x[0] * first + x[T - 1] * last + NU * SCALE
    out[T] = W - T
    out[T + 1] = e * R - T - NU
    out[T + 2] = prior_slope(a) + e * s * (B - phi * C)
    return prior - T * u - 0.5 * (levels + W) - (T + NU) * g - 0.5 * e * R


@jit_allocating
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    return value_and_gradient(q, data, np.empty_like(q))


@jit_allocating
def log_prior(q: np.ndarray, out: np.ndarray) -> float:
    """Return the log prior of path and parameters, and write its gradient.

    It is L with y = 0, without the terms -u - x_t/2 of log p(y_t | x_t).
    """
    T = q.shape[0] - 3
    total = value_and_gradient(q, np.zeros((1, T)), out) + T * q[T]
    out[T] += T
    for t in range(T):
        total += 0.5 * q[t]
        out[t] += 0.5
    return total


@jit
def part_value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    """Return a share of the log prior, and -u - x_t/2 - w_t/2 of some of the times."""
    T, share = q.shape[0] - 3, data[2, 0]
    total = share * log_prior(q, out)
    for i in range(T + 3):
        out[i] *= share
    for t in range(T):
        if data[1, t] > 0:
            w = data[0, t] * np.exp(-2 * q[T] - q[t])
            total -= q[T] + 0.5 * (q[t] + w)
            out[t] += 0.5 * (w - 1)
            out[T] += w - 1
    return total


@jit_allocating
def part_log_density(q: np.ndarray, data: np.ndarray) -> float:
    return part_value_and_gradient(q, data, np.empty_like(q))


@jit_allocating
def summary(q: np.ndarray, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the parameters, and write the row of data that their conditional uses."""
    T = q.shape[0] - 3
    row = np.zeros((1, 5), q.dtype)
    for t in range(T):
        row[0, 0] += data[0, t] * np.exp(-q[t])
    row[0, 1], row[0, 2], row[0, 3] = quadratics(q[:T])
    row[0, 4] = T
    return q[T:], row


@jit_allocating
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    T = q.shape[0] - 3
    x = q[:T]
    p, row = summary(q, data)
    phi, s, _ = map_of_phi(p[2])
    e, precision = np.exp(-2 * p[1]), np.exp(-2 * p[0])
    out[:] = 0.0
    parameter_hessian(p, row, out[T:, T:])
    for t in range(T):
        w = data[0, t] * precision * np.exp(-x[t])
        out[t, t] = -0.5 * w - e * (1.0 if t == 0 or t == T - 1 else 1 + phi * phi)
        if t > 0:
            out[t, t - 1] = out[t - 1, t] = e * phi
        out[t, T] = out[T, t] = -w
        out[t, T + 1] = out[T + 1, t] = 2 * e * precision_times(x, t, phi)
        out[t, T + 2] = out[T + 2, t] = -e * s * slope_times(x, t, phi)


@jit_allocating
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    # The third derivatives of the module's docstring are contracted entry by entry, without arrays as large as M.
    T = q.shape[0] - 3
    x, u, g, a = q[:T], T, T + 1, T + 2
    p, row = summary(q, data)
    phi, s, _ = map_of_phi(p[2])
    e, precision = np.exp(-2 * p[1]), np.exp(-2 * p[0])
    parameter_contraction(p, row, M[T:, T:], out[T:])
    with_g, with_a = M[:T, g] + M[g, :T], M[:T, a] + M[a, :T]
    both = M[g, a] + M[a, g]
    for t in range(T):
        w = data[0, t] * precision * np.exp(-x[t])
        end = t == 0 or t == T - 1
        k, slope = precision_times(x, t, phi), slope_times(x, t, phi)
        bend = 2 * phi * s * slope - s * s * curvature_times(x, t)
        with_u = M[t, u] + M[u, t]
        beside = M[t, t - 1] + M[t - 1, t] if t > 0 else 0.0
        out[t] = w * (0.5 * M[t, t] + with_u + 2 * M[u, u])
        out[t] += e * (2 * both * s * slope - 4 * M[g, g] * k + M[a, a] * bend)
        out[t] += e * (2 * precision_times(with_g, t, phi) - s * slope_times(with_a, t, phi))
        out[u] += w * (M[t, t] + 2 * with_u)
        out[g] += 2 * e * ((1.0 if end else 1 + phi * phi) * M[t, t] - phi * beside)
        out[g] += e * (2 * s * slope * with_a[t] - 4 * k * with_g[t])
        out[a] += e * (2 * s * slope * with_g[t] + bend * with_a[t])
        out[a] -= e * s * ((0.0 if end else 2 * phi) * M[t, t] - beside)


@jit
def mean_information(T: int) -> tuple[float, float, float]:
    """Return gg, ga and aa of the Fisher metric."""
    return 2 * (T + NU), 2 * MEAN_PHI, 2 - 2 * MEAN_S + (T - 2 + PRIOR_UP + PRIOR_DOWN) * MEAN_S


@jit
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    T = q.shape[0] - 3
    phi, e = np.tanh(q[T + 2]), np.exp(-2 * q[T + 1])
    out[:] = 0.0
    for t in range(T):
        out[t, t] = 0.5 + e * (1.0 if t == 0 or t == T - 1 else 1 + phi * phi)
        if t > 0:
            out[t, t - 1] = out[t - 1, t] = -e * phi
        out[t, T] = out[T, t] = 1.0
    out[T, T] = 2.0 * T
    out[T + 1, T + 1], ga, out[T + 2, T + 2] = mean_information(T)
    out[T + 1, T + 2] = out[T + 2, T + 1] = ga


@jit
def fisher_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    T = q.shape[0] - 3
    phi, s, _ = map_of_phi(q[T + 2])
    e = np.exp(-2 * q[T + 1])
    out[:] = 0.0
    for t in range(T):
        end, beside = t == 0 or t == T - 1, M[t, t - 1] + M[t - 1, t] if t > 0 else 0.0
        out[T + 1] -= 2 * e * ((1.0 if end else 1 + phi * phi) * M[t, t] - phi * beside)
        out[T + 2] += e * s * ((0.0 if end else 2 * phi) * M[t, t] - beside)


@jit
def bordered_fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    """Write the same metric as the bands of (x, g, a) and the row of u."""
    T = q.shape[0] - 3
    phi, e = np.tanh(q[T + 2]), np.exp(-2 * q[T + 1])
    out[:] = 0.0
    for t in range(T):
        out[0, t] = 0.5 + e * (1 + phi * phi)
        out[1, t] = -e * phi
        out[2, t] = 1.0
    out[0, 0] = out[0, T - 1] = 0.5 + e
    out[1, T - 1] = 0.0
    out[0, T] = 2.0 * T
    out[0, T + 1], out[1, T + 1], out[0, T + 2] = mean_information(T)


@jit_sum
def bordered_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    T = q.shape[0] - 3
    phi, s, _ = map_of_phi(q[T + 2])
    e = np.exp(-2 * q[T + 1])
    inner = beside = 0.0 * q[0]
    for t in range(1, T - 1):
        inner += M[0, t]
    for t in range(T - 1):
        beside += M[1, t]
    out[:] = 0.0
    out[T + 1] = -2 * e * (M[0, 0] + M[0, T - 1] + (1 + phi * phi) * inner - phi * beside)
    out[T + 2] = e * s * (2 * phi * inner - beside)


# ------------------------------------------------------------------------------------------------------------------- model


def levels(T: int) -> np.ndarray:
    """Return the levels of the Fisher metric: 0 for g and a, 1 for x and u."""
    return np.repeat([1, 0], [T + 1, 2])


def constrain(q: np.ndarray) -> dict:
    return {
        "beta": np.exp(q[..., -3]),
        "sigma": np.exp(q[..., -2]),
        "phi": np.tanh(q[..., -1]),
        "x": q[..., :-3],
    }


def log_likelihood(values: dict, y: np.ndarray) -> dict:
    """Return the log density of y_t given x_t."""
    return {"y": log_normal(y, 0.0, values["beta"][..., None] * np.exp(values["x"] / 2))}


def posterior_predictive(values: dict, rng: np.random.Generator) -> dict:
    sd = values["beta"][..., None] * np.exp(values["x"] / 2)
    return {"y": sd * rng.standard_normal(sd.shape)}


def simulate(
    T: int = 1000, seed: int = DATA_SEED, beta: float = 0.65, sigma: float = 0.15, phi: float = 0.98
) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y, (T,) each, drawn from the model at the given parameters with ``numpy.random.default_rng(seed)``."""
    rng = np.random.default_rng(seed)
    steps, noise = rng.standard_normal(T), rng.standard_normal(T)
    x = np.empty(T)
    x[0] = sigma / np.sqrt(1 - phi**2) * steps[0]
    for t in range(1, T):
        x[t] = phi * x[t - 1] + sigma * steps[t]
    return x, beta * np.exp(x / 2) * noise


def unconstrain(x: np.ndarray, beta: float, sigma: float, phi: float) -> np.ndarray:
    """Return the position q, (T + 3,), from the values of x and the parameters."""
    return np.concatenate([x, [np.log(beta), np.log(sigma), np.arctanh(phi)]])


def share_of(y_squared: np.ndarray, at: np.ndarray, before: float, rows: np.ndarray, share: float) -> Model:
    """Return the model of some of the times ``at``, with a ``share`` of the previous prior share, that of the whole path."""
    at, share, data = at[rows], before * share, np.zeros((2, len(y_squared)))
    data[0, at], data[1, at] = y_squared[at], 1.0
    return Model(
        len(y_squared) + 3,
        part_log_density,
        value_and_gradient=part_value_and_gradient,
        data=with_share(data, share),
        names=names_of(len(y_squared)),
        constrain=constrain,
        name="stochastic-volatility",
        n_rows=len(at),
        part=functools.partial(share_of, y_squared, at, share),
    )


def names_of(T: int) -> list[str]:
    return [*(f"x[{t}]" for t in range(T)), "log_beta", "log_sigma", "atanh_phi"]


@recreatable
def StochasticVolatility(y: ArrayLike | None = None, T: int = 1000) -> Model:
    """Return a stochastic volatility model.

    The log variance of the series is a hidden autoregression::

        y_t ~ N(0, beta^2 e^{x_t}),   x_t ~ N(phi x_{t-1}, sigma^2),   x_1 ~ N(0, sigma^2 / (1 - phi^2)),      t = 1 ... T
        p(beta) ~ 1/beta,   sigma^2 ~ Inv-chi^2(10, 0.05),   (phi + 1)/2 ~ Beta(20, 1.5)

    with variances as second arguments of N. The variables are ``beta``, ``sigma``, ``phi`` and ``x`` of shape (T,). The
    conditionals of ``x`` and of the parameters are hand-written for :class:`refhmc.Gibbs` and have Fisher metrics. The Fisher
    metric of the joint model is averaged over the prior of ``sigma`` and ``phi``, so that `BlockLeapfrog` works with it. The
    default kernel is ``HMC`` with this metric and integrator. A step costs O(T), except on arrays, where the default is `NUTS`.

    Parameters
    ----------
    y : array_like of shape (T,), optional
        The series. Defaults to values simulated with a fixed seed at beta = 0.65, sigma = 0.15, phi = 0.98.
    T : int, default 1000
        Length of the simulated series; ignored if `y` is given.

    Returns
    -------
    Model
        The model, with T + 3 coordinates.

    Raises
    ------
    refhmc.errors.ShapeError
        If `y` is not a vector of at least two values.
    ValueError
        If values are not finite or all are zero.

    References
    ----------
    J. A. Brofos and R. R. Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian manifold Hamiltonian
    Monte Carlo, eqs. 16-17.
    M. Girolami and B. Calderhead (2011), Riemann manifold Langevin and Hamiltonian Monte Carlo methods, sec. 8.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.StochasticVolatility(T=50)
    >>> model.dim, model.names[-3:]
    (53, ['log_beta', 'log_sigma', 'atanh_phi'])
    """
    y = simulate(T)[1] if y is None else vector("y", y, 2)
    if not y.any():
        raise ValueError("y must not be all zero; otherwise the scale beta has no proper posterior.")
    T, names, y_squared = len(y), names_of(len(y)), frozen(y**2)
    x_data, parameter_data = np.zeros((3, T)), np.zeros((2, max(T, 5)))
    x_data[0] = parameter_data[1, :T] = y_squared
    x_model = Model(
        T,
        x_log_density,
        value_and_gradient=x_value_and_gradient,
        hessian=x_hessian,
        hessian_contraction=x_contraction,
        fisher=x_fisher,
        fisher_contraction=x_fisher_contraction,
        data=x_data,
        names=names[:T],
        fisher_bands=x_fisher_bands,
        name="stochastic-volatility, x",
    )
    parameter_model = Model(
        3,
        parameter_log_density,
        value_and_gradient=parameter_value_and_gradient,
        hessian=parameter_hessian,
        hessian_contraction=parameter_contraction,
        fisher=parameter_fisher,
        fisher_contraction=parameter_fisher_contraction,
        data=parameter_data,
        names=names[T:],
        name="stochastic-volatility, parameters",
    )
    return Model(
        T + 3,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        hessian_contraction=hessian_contraction,
        fisher=fisher,
        fisher_contraction=fisher_contraction,
        fisher_levels=levels(T),
        bordered_fisher=bordered_fisher,
        bordered_contraction=bordered_contraction,
        fisher_border=T,
        data=y_squared[None, :],
        names=names,
        constrain=constrain,
        parents={"x": ["log_sigma", "atanh_phi"]},
        recommended=Recommended("hmc", "fisher", PATH, (("integrator", "block-leapfrog"),)),
        conditionals=(
            Conditional(np.arange(T), x_model, condition_x),
            Conditional(np.arange(T, T + 3), parameter_model, condition_parameters),
        ),
        name="stochastic-volatility",
        n_rows=T,
        part=functools.partial(share_of, y_squared, np.arange(T), 1.0),
        on_arrays=functools.partial(StochasticVolatilityOnArrays, y_squared),
        dims={"x": "time", "y": "time"},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, y=y),
            posterior_predictive=posterior_predictive,
            observed_data={"y": y},
        ),
    )
