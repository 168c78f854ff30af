"""Bayesian logistic regression: y_i ~ Bernoulli(sigma(x_i . beta)), beta ~ N(0, s^2 I), sigma(t) = 1/(1 + e^-t).

With the signed rows z_i = (2 y_i - 1) x_i and the margins m_i = z_i . beta, both classes have the same terms:

    L(beta) = sum_i log sigma(m_i) - |beta|^2 / (2 s^2)         log sigma(m) = min(m, 0) - log(1 + e^-|m|)
    dL/dbeta = sum_i sigma(-m_i) z_i - beta / s^2
    hessian  = -sum_i v_i z_i z_i' - I / s^2                    v = sigma(m) sigma(-m)
    third    = sum_i v_i tanh(m_i / 2) z_i z_i z_i              (dv/dm = -v tanh(m/2))
    trace(M) = sum_i v_i tanh(m_i / 2) (z_i' M z_i) z_i

The second derivatives do not contain y, so the Fisher metric is minus the Hessian (Girolami and Calderhead 2011, sec. 7).
Nothing cancels at large margins of either sign: no sum has terms of both signs that are larger than the result.

Data: the d columns of the signed rows as rows of length n, so that every loop runs over the observations, then a row with
1/s^2 in front.

Speed. Each observation costs one exponential and no logarithm. The exponentials are computed here, in vector registers,
in a third of the time of calls to the mathematical library; the factors 1 + e_i are multiplied as (1+a)(1+b) - 1 = a + b
+ ab, which keeps the digits of small e_i, and a logarithm is taken once for 512 of them.
"""

from __future__ import annotations

import numpy as np

from refhmc import datasets
from refhmc.compiled import jit, jit_allocating, jit_sum
from refhmc.errors import ShapeError
from refhmc.linalg import dot
from refhmc.model import Model
from refhmc.reference import Reference

# ------------------------------------------------------------------------------------------- sums over observations


@jit_sum
def combine(z, a, out):
    """out[i] = sum_j a[j] z[j, i]"""
    n, d = z.shape[1], z.shape[0]
    out[:] = 0.0
    for j in range(0, d - 3, 4):  # four rows for each pass over out
        for i in range(n):
            out[i] += a[j] * z[j, i] + a[j + 1] * z[j + 1, i] + a[j + 2] * z[j + 2, i] + a[j + 3] * z[j + 3, i]
    for j in range(d - d % 4, d):
        for i in range(n):
            out[i] += a[j] * z[j, i]


@jit_sum
def project(z, w, out):
    """out[j] = sum_i z[j, i] w[i]"""
    n, d = z.shape[1], z.shape[0]
    for j in range(0, d - 3, 4):  # four rows for each pass over w
        t0 = t1 = t2 = t3 = 0.0
        for i in range(n):
            t0 += z[j, i] * w[i]
            t1 += z[j + 1, i] * w[i]
            t2 += z[j + 2, i] * w[i]
            t3 += z[j + 3, i] * w[i]
        out[j], out[j + 1], out[j + 2], out[j + 3] = t0, t1, t2, t3
    for j in range(d - d % 4, d):
        out[j] = dot(z[j], w)


LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01  # 33 bits: its multiples by whole numbers up to 2^20 are exact
LN2_LOW = 1.90821492927058770002e-10  # log 2 - LN2_HIGH
ROUND = 1.5 * 2.0**52  # x + ROUND has a whole number k = round(x) in its last bits


@jit_allocating
def exponentials(x):
    """x <- exp(x) for -708 <= x <= 0, to 1.3 units in the last place; loops that run in vector registers.

    exp(x) = 2^k exp(r), |r| <= log(2)/2, and exp(r) = (even + odd)/(even - odd), the [6/6] Pade approximant (error 1e-18).
    """
    n = x.shape[0]
    power = np.empty(n)
    bits = power.view(np.int64)
    for i in range(n):
        power[i] = x[i].real * LOG2_E + ROUND
    for i in range(n):
        k = power[i] - ROUND
        r = (x[i] - k * LN2_HIGH) - k * LN2_LOW
        r2 = r * r
        odd = r * (332640 + r2 * (10080 + r2 * 42))
        even = 665280 + r2 * (75600 + r2 * (840 + r2))
        x[i] = 1 + 2 * odd / (even - odd)
    for i in range(n):
        bits[i] = (bits[i] + 1023) << 52  # now power[i] is 2^k
    for i in range(n):
        x[i] *= power[i]


@jit_sum
def split_margins(m, e):
    """e = -|m|, held above -708; returns sum_i min(m_i, 0)."""
    total = 0.0
    for i in range(m.shape[0]):
        total += m[i] if m[i].real < 0 else 0.0
        x = -m[i] if m[i].real > 0 else m[i]
        e[i] = -708.0 if x.real < -708.0 else x
    return total


@jit
def log_product(e):
    """sum_i log(1 + e_i) for 0 <= e_i <= 1; e is used up."""
    total = 0.0
    for start in range(0, e.shape[0], 512):  # a product of at most 2^512
        part = e[start : start + 512]
        left = part.shape[0]
        while left > 1:
            half = left // 2
            for i in range(half):
                part[i] += part[left - half + i] * (1 + part[i])
            left -= half
        total += np.log1p(part[0])
    return total


@jit_allocating
def margins(q, data, m, e):
    """m_i = z_i . beta and e_i = exp(-|m_i|); returns sum_i min(m_i, 0)."""
    combine(data[: q.shape[0]], q, m)
    total = split_margins(m, e)
    exponentials(e)
    return total


# ----------------------------------------------------------------------------------------------------------- model


@jit_allocating
def log_density(q, data):
    m, e = np.empty((2, data.shape[1]), q.dtype)
    total = margins(q, data, m, e)
    return total - log_product(e) - 0.5 * data[-1, 0] * dot(q, q)


@jit_allocating
def value_and_gradient(q, data, out):
    d, precision = q.shape[0], data[-1, 0]
    m, e = np.empty((2, data.shape[1]), q.dtype)
    total = margins(q, data, m, e)
    for i in range(m.shape[0]):
        m[i] = (1.0 if m[i].real < 0 else e[i]) / (1 + e[i])
    project(data[:d], m, out)
    for j in range(d):
        out[j] -= precision * q[j]
    return total - log_product(e) - 0.5 * precision * dot(q, q)
