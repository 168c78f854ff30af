"""A mixture of two Gaussians with ordered means (posteriordb's ``low_dim_gauss_mix``).

    y_n ~ theta N(mu1, sigma1) + (1 - theta) N(mu2, sigma2),   mu1 < mu2
    mu_k ~ N(0, 2),  sigma_k ~ N+(0, 2),  theta ~ Beta(5, 5)

Coordinates q = (mu1, log(mu2 - mu1), log sigma1, log sigma2, logit theta). With z_k = (y - mu_k) / sigma_k, one
observation's log density is log(e^A + e^B), up to a constant, where

    A = log theta - log sigma1 - z1^2/2        B = log(1 - theta) - log sigma2 - z2^2/2

Let r = expit(A - B), the probability of the first component; ' is its complement r' = expit(B - A), which is not
computed as 1 - r. Let d = grad(A - B) and D = hess(A - B). Since dr = r r' d,

    grad = r grad A + r' grad B
    hess = r hess A + r' hess B + r r' d d^T
    third_ijk = r A_ijk + r' B_ijk + r r' [d_i D_jk + d_j D_ik + d_k D_ij] + r r' (r' - r) d_i d_j d_k

These are taken in x = (mu1, delta = mu2 - mu1, log sigma1, log sigma2, logit theta) and brought to q, where only the
second coordinate differs, by the chain rule of :mod:`refhmc.transforms`. With tau_k = 1 / sigma_k, x's numbers 0..4 as
indices and delta entering only by mu2 = mu1 + delta:

    A:  0: tau1 z1,  2: z1^2 - 1,  4: 1 - theta        B:  0 and 1: tau2 z2,  3: z2^2 - 1,  4: -theta
    A: 00: -tau1^2,  02: -2 tau1 z1,  22: -2 z1^2,  44: -theta (1 - theta)
    B: 00, 01 and 11: -tau2^2,  03 and 13: -2 tau2 z2,  33: -2 z2^2,  44: as A
    A: 002: 2 tau1^2,  022: 4 tau1 z1,  222: 4 z1^2,  444: -theta (1 - theta)(1 - 2 theta)      B likewise

so that sums over n of r z1, r z1^2 ... suffice for all but the terms in d.

The priors and Jacobians add -mu_k^2/8, -sigma_k^2/8 + log sigma_k, 5 log theta + 5 log(1 - theta) and log delta. The
expected information has no closed form: no Fisher metric.

``data``: row 0 holds y.
"""

from __future__ import annotations

import numpy as np

from refhmc.compiled import jit, jit_allocating, jit_sum
from refhmc.datasets import posteriordb, posteriordb_reference
from refhmc.model import Model
from refhmc.models.logistic_regression import exponentials, log_product
from refhmc.transforms import (
    chain_hessian,
    chain_third_derivative,
    chain_trace,
    expit,
    half_line,
    half_line_forward,
    interval_forward,
    interval_log_jacobian,
    ordered_forward,
    softplus,
)


@jit
def parameters(q):
    """mu1, mu2, tau1, tau2, theta, 1 - theta"""
    return q[0], q[0] + np.exp(q[1]), np.exp(-q[2]), np.exp(-q[3]), expit(q[4]), expit(-q[4])


@jit
def log_weights(q):
    """A + z1^2/2 and B + z2^2/2"""
    return -softplus(-q[4]) - q[2], -softplus(q[4]) - q[3]


@jit
def standardised(x, y):
    return (y - x[0]) * x[2], (y - x[1]) * x[3]


@jit
def probabilities(odds, e):
    """r and r' from odds = A - B and e = e^-|A-B|"""
    large = 1 / (1 + e)
    small = e * large
    if odds.real >= 0:
        return large, small
    return small, large


@jit
def observation(x, c, y):
    """z1, z2, r, r' of one observation; x and c are the two tuples above."""
    z1, z2 = standardised(x, y)
    odds = c[0] - c[1] - 0.5 * (z1 * z1 - z2 * z2)
    r, s = probabilities(odds, np.exp(-odds if odds.real >= 0 else odds))
    return z1, z2, r, s


# The likelihood goes over the observations in passes, each of which runs in vector registers.


@jit_sum
def first_pass(x, c, y, odds, exponent):
    """odds = A - B of each observation and exponent = -|A - B|, held above -800; the sum of the larger of A and B."""
    total = 0.0 * x[0]
    for n in range(y.shape[0]):
        z1, z2 = standardised(x, y[n])
        A, B = c[0] - 0.5 * z1 * z1, c[1] - 0.5 * z2 * z2
        odds[n] = A - B
        total += A if odds[n].real >= 0 else B
        t = -odds[n] if odds[n].real >= 0 else odds[n]
        exponent[n] = -800.0 if t.real < -800.0 else t
    return total


@jit_sum
def last_pass(x, y, odds, e):
    """Sums of r, r z1, r z1^2, r', r' z2, r' z2^2."""
    r_1 = r_z = r_zz = s_1 = s_z = s_zz = 0.0 * x[0]
    for n in range(y.shape[0]):
        z1, z2 = standardised(x, y[n])
        r, s = probabilities(odds[n], e[n])
        r_1 += r
        r_z += r * z1
        r_zz += r * z1 * z1
        s_1 += s
        s_z += s * z2
        s_zz += s * z2 * z2
    return r_1, r_z, r_zz, s_1, s_z, s_zz


@jit_allocating
def likelihood(q, y):
    """The log likelihood and the sums of the last pass."""
    x = parameters(q)
    odds, e, power = np.empty(y.shape[0], q.dtype), np.empty(y.shape[0], q.dtype), np.empty(y.shape[0])
    L = first_pass(x, log_weights(q), y, odds, e)
    exponentials(e, power, power.view(np.int64))
    for n in range(y.shape[0]):
        e[n] = power[n] * (1 + e[n])
    w = last_pass(x, y, odds, e)
    return L + log_product(e), w


# The derivatives of A and B in x, weighted: w = (1, z1, z1^2, 0, 0, 0) gives those of A, (0, 0, 0, 1, z2, z2^2) those
# of B, and the difference of the two d and D.


@jit
def slopes(x, w):
    _, _, tau1, tau2, theta, rest = x
    second = tau2 * w[4]
    return tau1 * w[1] + second, second, w[2] - w[0], w[5] - w[3], rest * w[0] - theta * w[3]


@jit
def curvatures(x, w):
    """The entries 00, 01 (11 is the same), 02, 03 (also 13), 22, 33 and 44."""
    _, _, tau1, tau2, theta, rest = x
    second = -tau2 * tau2 * w[3]
    cross = -2 * tau2 * w[4]
    last = -theta * rest * (w[0] + w[3])
    return second - tau1 * tau1 * w[0], second, -2 * tau1 * w[1], cross, -2 * w[2], -2 * w[5], last


@jit
def fill(D, out):
    """out <- the matrix of these."""
    out[:] = 0.0
    out[0, 0] = D[0]
    out[0, 1] = out[1, 0] = out[1, 1] = D[1]
    out[0, 2] = out[2, 0] = D[2]
    out[0, 3] = out[3, 0] = out[1, 3] = out[3, 1] = D[3]
    out[2, 2], out[3, 3], out[4, 4] = D[4], D[5], D[6]


@jit
def times(D, v):
    """That matrix times v."""
    second = D[1] * v[1] + D[3] * v[3]
    return (
        D[0] * v[0] + D[2] * v[2] + second,
        D[1] * v[0] + second,
        D[2] * v[0] + D[4] * v[2],
        D[3] * (v[0] + v[1]) + D[5] * v[3],
        D[6] * v[4],
    )


@jit
def thirds(x, w, out):
    _, _, tau1, tau2, theta, rest = x
    out[:] = 0.0
    out[0, 0, 2] = out[0, 2, 0] = out[2, 0, 0] = 2 * tau1 * tau1 * w[0]
    out[0, 2, 2] = out[2, 0, 2] = out[2, 2, 0] = 4 * tau1 * w[1]
    out[2, 2, 2] = 4 * w[2]
    for i in range(2):
        for j in range(2):
            out[i, j, 3] = out[i, 3, j] = out[3, i, j] = 2 * tau2 * tau2 * w[3]
        out[i, 3, 3] = out[3, i, 3] = out[3, 3, i] = 4 * tau2 * w[4]
    out[3, 3, 3] = 4 * w[5]
    out[4, 4, 4] = -theta * rest * (rest - theta) * (w[0] + w[3])


@jit
def log_prior_and_jacobian(q):
    total = q[1] + q[2] + q[3] + 5 * interval_log_jacobian(q[4])[0]
    return total - 0.125 * (q[0] ** 2 + (q[0] + np.exp(q[1])) ** 2 + np.exp(2 * q[2]) + np.exp(2 * q[3]))


@jit
def gradient_x(q, w):
    """The gradient in x of all but log delta."""
    x = parameters(q)
    g = slopes(x, w)
    return (
        g[0] - 0.25 * (x[0] + x[1]),
        g[1] - 0.25 * x[1],
        g[2] - 0.25 * np.exp(2 * q[2]) + 1,
        g[3] - 0.25 * np.exp(2 * q[3]) + 1,
        g[4] + 5 * interval_log_jacobian(q[4])[1],
    )


@jit_allocating
def hessian_x(q, data, w, out):
    """The Hessian in x of the same."""
    x, c = parameters(q), log_weights(q)
    d = np.empty(5, q.dtype)  # in loops an array is faster than a tuple
    fill(curvatures(x, w), out)
    for n in range(data.shape[1]):
        z1, z2, r, s = observation(x, c, data[0, n])
        d[0], d[1], d[2], d[3], d[4] = slopes(x, (1.0, z1, z1 * z1, -1.0, -z2, -z2 * z2))
        for i in range(5):
            for j in range(5):
                out[i, j] += r * s * (d[i] * d[j])
    for i in range(2):
        for j in range(2):
            out[i, j] -= 0.25
    out[0, 0] -= 0.25
    out[2, 2] -= 0.5 * np.exp(2 * q[2])
    out[3, 3] -= 0.5 * np.exp(2 * q[3])
    out[4, 4] += 5 * interval_log_jacobian(q[4])[2]


@jit
def map_derivatives(q):
    """The first, second and third derivative of each x_i in q_i."""
    zero = 0.0 * q[0]
    one = 1.0 + zero
    delta = half_line(q[1])
    return (one, delta[1], one, one, one), (zero, delta[2], zero, zero, zero), (zero, delta[3], zero, zero, zero)


@jit
def prior_thirds(q):
    """The priors' third derivatives in x: they are diagonal."""
    zero = 0.0 * q[0]
    return zero, zero, -np.exp(2 * q[2]), -np.exp(2 * q[3]), 5 * interval_log_jacobian(q[4])[3]


@jit_allocating
def log_density(q, data):
    return likelihood(q, data[0])[0] + log_prior_and_jacobian(q)


@jit_allocating
def value_and_gradient(q, data, out):
    L, w = likelihood(q, data[0])
    g = gradient_x(q, w)
    for i in range(5):
        out[i] = g[i]
    out[1] = half_line(q[1])[1] * g[1] + 1
    return L + log_prior_and_jacobian(q)


@jit_allocating
def gradient(q, data, out):
    value_and_gradient(q, data, out)


@jit_allocating
def hessian(q, data, out):
    _, w = likelihood(q, data[0])
    a, b, _ = map_derivatives(q)
    hessian_x(q, data, w, out)
    chain_hessian(out, gradient_x(q, w), a, b)


@jit_allocating
def third_derivative(q, data, out):
    x, c = parameters(q), log_weights(q)
    D, d = np.empty((5, 5), q.dtype), np.empty(5, q.dtype)
    _, w = likelihood(q, data[0])
    thirds(x, w, out)
    for n in range(data.shape[1]):
        z1, z2, r, s = observation(x, c, data[0, n])
        wn = (1.0, z1, z1 * z1, -1.0, -z2, -z2 * z2)
        d[0], d[1], d[2], d[3], d[4] = slopes(x, wn)
        fill(curvatures(x, wn), D)
        for i in range(5):
            for j in range(5):
                for k in range(5):
                    dD = d[i] * D[j, k] + d[j] * D[i, k] + d[k] * D[i, j]
                    out[i, j, k] += r * s * (dD + (s - r) * d[i] * d[j] * d[k])
    prior = prior_thirds(q)
    for i in range(5):
        out[i, i, i] += prior[i]
    hessian_x(q, data, w, D)
    a, b, c = map_derivatives(q)
    chain_third_derivative(out, D, gradient_x(q, w), a, b, c)


@jit_allocating
def trace(q, data, M, out):
    # The third derivative contracted with the symmetric S, before the loop over the observations where it can be.
    x, c = parameters(q), log_weights(q)
    D, T = np.empty((5, 5), q.dtype), np.empty((5, 5, 5), q.dtype)
    S, Sd, d, DSd = np.empty((5, 5), q.dtype), np.empty(5, q.dtype), np.empty(5, q.dtype), np.empty(5, q.dtype)
    a1, a2, a3 = map_derivatives(q)
    _, w = likelihood(q, data[0])
    thirds(x, w, T)
    prior = prior_thirds(q)
    for i in range(5):
        out[i] = 0.0
        T[i, i, i] += prior[i]
        for j in range(5):
            S[i, j] = 0.5 * (M[i, j] + M[j, i]) * a1[i] * a1[j]
    for i in range(5):
        for j in range(5):
            for k in range(5):
                out[k] += S[i, j] * T[i, j, k]
    for n in range(data.shape[1]):
        z1, z2, r, s = observation(x, c, data[0, n])
        wn = (1.0, z1, z1 * z1, -1.0, -z2, -z2 * z2)
        d[0], d[1], d[2], d[3], d[4] = slopes(x, wn)
        Dn = curvatures(x, wn)
        S_D = S[0, 0] * Dn[0] + (2 * S[0, 1] + S[1, 1]) * Dn[1] + 2 * S[0, 2] * Dn[2]
        S_D += 2 * (S[0, 3] + S[1, 3]) * Dn[3] + S[2, 2] * Dn[4] + S[3, 3] * Dn[5]
        dSd = 0.0 * r
        for i in range(5):
            Sd[i] = 0.0
            for j in range(5):
                Sd[i] += S[i, j] * d[j]
            dSd += d[i] * Sd[i]
        DSd[0], DSd[1], DSd[2], DSd[3], DSd[4] = times(Dn, Sd)
        for k in range(5):
            out[k] += r * s * ((S_D + (s - r) * dSd) * d[k] + 2 * DSd[k])
    hessian_x(q, data, w, D)
    chain_trace(out, M, D, gradient_x(q, w), a1, a2, a3)


def constrain(q: np.ndarray) -> dict:
    return {
        "mu": ordered_forward(q[..., :2]),
        "sigma": half_line_forward(q[..., 2:4]),
        "theta": interval_forward(q[..., 4]),
    }


def GaussianMixture(y=None) -> Model:
    """Two Gaussians fitted to ``y``; posteriordb's low_dim_gauss_mix if none is given. Variables mu, sigma, theta."""
    reference = None
    if y is None:
        y = posteriordb("low_dim_gauss_mix-low_dim_gauss_mix")["data"]["y"]
        variables = ["mu[1]", "mu[2]", "sigma[1]", "sigma[2]", "theta"]
        reference = posteriordb_reference("low_dim_gauss_mix-low_dim_gauss_mix", variables)
    y = np.asarray(y, dtype=float)
    if y.ndim != 1 or len(y) < 1:
        raise ValueError(f"GaussianMixture needs observations (N,), got shape {y.shape}")
    return Model(
        5,
        log_density,
        gradient,
        hessian,
        third_derivative,
        trace,
        data=y.reshape(1, -1).copy(),
        names=["mu1", "log_gap", "log_sigma[0]", "log_sigma[1]", "logit_theta"],
        constrain=constrain,
        value_and_gradient=value_and_gradient,
        name="gaussian_mixture",
        reference=reference,
    )
