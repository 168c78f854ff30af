"""Autoregression of order K, conditional on the first K values (posteriordb's ``arK``).

    y_t ~ N(alpha + sum_k beta_k y_{t-k}, sigma),  t = K+1..T;   alpha, beta_k ~ N(0, 10);   sigma ~ C+(2.5)

with q = (b, u), b = (alpha, beta), u = log sigma. Let X have the rows (1, y_{t-1}, ..., y_{t-K}), n = T - K, and let b0
be the least-squares fit, RSS its residual sum of squares and G = X'X. The residuals at b0 are orthogonal to X, so

    S(b) = sum_t (y_t - X_t b)^2 = RSS + (b - b0)' G (b - b0)

exactly and without cancellation: G, b0, RSS and n are all that the model keeps of the data. With w = expit(2u - 2 log
2.5), so that the half-Cauchy's log(1 + (sigma/2.5)^2) is softplus(2u - 2 log 2.5), and D = G (b - b0),

    L = -(n - 1) u - e^{-2u} S/2 - b'b/200 - softplus(2u - 2 log 2.5)         (+u of these is the Jacobian of log sigma)

    dL/db = -e^{-2u} D - b/100                    dL/du = -(n - 1) + e^{-2u} S - 2 w
    bb: -e^{-2u} G - I/100     bu: 2 e^{-2u} D    uu: -2 e^{-2u} S - 4 w (1 - w)
    bbu: 2 e^{-2u} G           buu: -4 e^{-2u} D  uuu: 4 e^{-2u} S - 8 w (1 - w)(1 - 2w)      bbb: 0

Fisher metric, with the regressors taken as given (the information of the conditional likelihood) and the priors' own
curvature added: bb: e^{-2u} G + I/100, uu: 2 n + 4 w (1 - w), bu: 0.

``data``: rows 0..K hold G, row K+1 holds b0, row K+2 holds n and RSS.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.compiled import jit
from refhmc.datasets import posteriordb, posteriordb_reference
from refhmc.errors import ShapeError
from refhmc.model import Model
from refhmc.transforms import expit, softplus

BETA_VARIANCE = 100.0
TWICE_LOG_SCALE = 2 * math.log(2.5)


@jit
def squares(q, data):
    """S(b)"""
    p = q.shape[0] - 1
    total = data[p + 1, 1]
    for i in range(p):
        row = 0.0
        for j in range(p):
            row += data[i, j] * (q[j] - data[p, j])
        total += (q[i] - data[p, i]) * row
    return total


@jit
def prior_and_jacobian(q):
    total = q[-1] - softplus(2 * q[-1] - TWICE_LOG_SCALE)
    for i in range(q.shape[0] - 1):
        total -= 0.5 * q[i] * q[i] / BETA_VARIANCE
    return total


@jit
def log_density(q, data):
    u = q[-1]
    return -data[q.shape[0], 0] * u - 0.5 * np.exp(-2 * u) * squares(q, data) + prior_and_jacobian(q)


@jit
def value_and_gradient(q, data, out):
    p = q.shape[0] - 1
    u, n, S = q[p], data[p + 1, 0], data[p + 1, 1]
    precision = np.exp(-2 * u)
    for i in range(p):
        D = 0.0
        for j in range(p):
            D += data[i, j] * (q[j] - data[p, j])
        S = S + (q[i] - data[p, i]) * D
        out[i] = -precision * D - q[i] / BETA_VARIANCE
    out[p] = 1 - n + precision * S - 2 * expit(2 * u - TWICE_LOG_SCALE)
    return -n * u - 0.5 * precision * S + prior_and_jacobian(q)


@jit
def gradient(q, data, out):
    value_and_gradient(q, data, out)


@jit
def hessian(q, data, out):
    p = q.shape[0] - 1
    precision = np.exp(-2 * q[p])
    v = 2 * q[p] - TWICE_LOG_SCALE
    for i in range(p):
        D = 0.0
        for j in range(p):
            D += data[i, j] * (q[j] - data[p, j])
            out[i, j] = -precision * data[i, j]
        out[i, i] -= 1 / BETA_VARIANCE
        out[i, p] = out[p, i] = 2 * precision * D
    out[p, p] = -2 * precision * squares(q, data) - 4 * expit(v) * expit(-v)


@jit
def third_in_log_sigma(q, data):
    v = 2 * q[-1] - TWICE_LOG_SCALE
    return 4 * np.exp(-2 * q[-1]) * squares(q, data) + 8 * expit(v) * expit(-v) * np.tanh(v / 2)


@jit
def third_derivative(q, data, out):
    p = q.shape[0] - 1
    precision = np.exp(-2 * q[p])
    out[:] = 0.0
    for i in range(p):
        D = 0.0
        for j in range(p):
            D += data[i, j] * (q[j] - data[p, j])
            out[i, j, p] = out[i, p, j] = out[p, i, j] = 2 * precision * data[i, j]
        out[i, p, p] = out[p, i, p] = out[p, p, i] = -4 * precision * D
    out[p, p, p] = third_in_log_sigma(q, data)


@jit
def trace(q, data, M, out):
    p = q.shape[0] - 1
    precision = np.exp(-2 * q[p])
    out[:] = 0.0
    for i in range(p):
        D = 0.0
        for j in range(p):
            D += data[i, j] * (q[j] - data[p, j])
            out[i] += 2 * precision * data[i, j] * (M[p, j] + M[j, p])
            out[p] += 2 * precision * data[i, j] * M[i, j]
        out[i] -= 4 * precision * D * M[p, p]
        out[p] -= 4 * precision * D * (M[i, p] + M[p, i])
    out[p] += M[p, p] * third_in_log_sigma(q, data)


@jit
def fisher(q, data, out):
    p = q.shape[0] - 1
    precision = np.exp(-2 * q[p])
    v = 2 * q[p] - TWICE_LOG_SCALE
    for i in range(p):
        for j in range(p):
            out[i, j] = precision * data[i, j]
        out[i, i] += 1 / BETA_VARIANCE
        out[i, p] = out[p, i] = 0.0
    out[p, p] = 2 * data[p + 1, 0] + 4 * expit(v) * expit(-v)


@jit
def fisher_derivative(q, data, out):
    p = q.shape[0] - 1
    v = 2 * q[p] - TWICE_LOG_SCALE
    out[:] = 0.0
    for i in range(p):
        for j in range(p):
            out[i, j, p] = -2 * np.exp(-2 * q[p]) * data[i, j]
    out[p, p, p] = -8 * expit(v) * expit(-v) * np.tanh(v / 2)


@jit
def fisher_trace(q, data, M, out):
    p = q.shape[0] - 1
    v = 2 * q[p] - TWICE_LOG_SCALE
    total = 0.0
    for i in range(p):
        for j in range(p):
            total += M[i, j] * data[i, j]
    out[:] = 0.0
    out[p] = -2 * np.exp(-2 * q[p]) * total - 8 * M[p, p] * expit(v) * expit(-v) * np.tanh(v / 2)


def constrain(q: np.ndarray) -> dict:
    return {"alpha": q[..., 0], "beta": q[..., 1:-1], "sigma": np.exp(q[..., -1])}


def pack(y: np.ndarray, K: int) -> np.ndarray:
    """The model's ``data`` for a series ``y``."""
    X = np.column_stack([np.ones(len(y) - K)] + [y[K - k : len(y) - k] for k in range(1, K + 1)])
    fit = np.linalg.lstsq(X, y[K:])[0]
    residuals = y[K:] - X @ fit
    last = np.zeros(K + 1)
    last[:2] = len(X), residuals @ residuals
    return np.vstack([X.T @ X, fit, last])


def AR(y=None, K: int | None = None) -> Model:
    """AR(K) of a series ``y``; posteriordb's arK-arK if no series is given. Variables alpha, beta, sigma."""
    reference = None
    if y is None:
        if K not in (None, 5):
            raise ShapeError(f"the posteriordb series comes with K=5, got K={K}: give y as well")
        y, K = posteriordb("arK-arK")["data"]["y"], 5
        reference = posteriordb_reference("arK-arK", ["alpha", *(f"beta[{k}]" for k in range(1, 6)), "sigma"])
    y, K = np.asarray(y, dtype=float), 5 if K is None else int(K)
    if y.ndim != 1 or not 1 <= K < len(y) or not np.isfinite(y).all():
        raise ShapeError(f"AR needs a finite series (T,) with T > K >= 1, got shape {y.shape} and K={K}")
    return Model(
        K + 2,
        log_density,
        gradient,
        hessian,
        third_derivative,
        trace,
        fisher,
        fisher_derivative,
        fisher_trace,
        data=pack(y, K),
        names=["alpha", *(f"beta[{k}]" for k in range(K)), "log_sigma"],
        constrain=constrain,
        value_and_gradient=value_and_gradient,
        name="ar",
        reference=reference,
    )
