"""Bayesian logistic regression: y_i ~ Bernoulli(sigma(x_i . beta)), beta ~ N(0, s^2 I), sigma(t) = 1/(1 + e^-t).

With the signed rows z_i = (2 y_i - 1) x_i and the margins m_i = z_i . beta, both classes have the same terms::

    L(beta) = sum_i log sigma(m_i) - |beta|^2 / (2 s^2)         log sigma(m) = min(m, 0) - log(1 + e^-|m|)
    dL/dbeta = sum_i sigma(-m_i) z_i - beta / s^2
    hessian  = -sum_i v_i z_i z_i' - I / s^2                    v = sigma(m) sigma(-m)
    third    = sum_i v_i tanh(m_i / 2) z_i z_i z_i              (dv/dm = -v tanh(m/2))
    hessian_contraction(M) = sum_i v_i tanh(m_i / 2) (z_i' M z_i) z_i

The second derivatives do not contain y, so the Fisher metric is minus the Hessian (Girolami and Calderhead 2011). Every term
of the log likelihood is negative, so that nothing cancels for large margins.

The data are one row for each column of the signed x's, so that all loops run over the n observations, then
[1/s^2, 0, 0, ...]. The copy of a chain has more rows. They store the terms of the sums while gradient, metric and
contraction are evaluated at the same position.

Each observation costs one exponential and no logarithm. The exponentials are computed here, in vector registers, in a third
of the time of the mathematical library. The factors 1 + e_i are multiplied as (1+a)(1+b) - 1 = a + b + ab, which keeps the
digits of small e_i, and one logarithm serves 512 of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy import typing as npt

from refhmc.compile.compiled import jit, jit_allocating, jit_products, jit_sum
from refhmc.core.arguments import array_of_numbers, flag, positive
from refhmc.core.data import from_table
from refhmc.core.point import copy_row
from refhmc.errors import ShapeError
from refhmc.models import datasets
from refhmc.models.base import Model
from refhmc.models.generated import GeneratedQuantities, frozen
from refhmc.models.inputs import design, finite, in_rows, rows_of
from refhmc.models.networks.likelihoods import Bernoulli
from refhmc.models.on_arrays import ArrayImplementation, in_dtype_of, where_finite
from refhmc.models.recipe import recreatable
from refhmc.models.reference import Reference
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, namespace
from refhmc.numerics.linalg import dot

# ---------------------------------------------------------------------------------------------------- text on arrays


# Limit of the numbers in the products of pairs of columns.
MOST_PAIRS = 2**24


class LogisticRegressionOnArrays(ArrayImplementation):
    """The array implementation. ``rows`` are the signed rows z_i, (n, d), and ``precision`` is 1 / s^2.

    A sum over the rows is one matrix product for all positions. log sigma(m) = min(m, 0) - log(1 + e^-|m|), and sigma(-m) is
    the exponential of log sigma(-m). The Fisher metric of many positions is their v (..., n) times ``pairs``, the products
    z_ij z_ik with j <= k, (n, d (d + 1) / 2), if these fit into memory.

    ``largest`` limits the numbers in the margins of a gradient, which uses as many rows of the data at a time.
    """

    name = "logistic regression"

    def __init__(self, rows: np.ndarray, precision: float, xp: ModuleType = np) -> None:
        self.dim, self.rows, self.precision, self.xp = rows.shape[1], xp.asarray(rows), precision, xp
        self.largest = 2**19 if xp is np else 2**26  # fits into the cache of a processor, or occupies a GPU
        self.room = len(rows) * self.dim * (self.dim + 1) / 2 <= MOST_PAIRS

    @functools.cached_property
    def columns(self) -> tuple:
        """Return index tables for the pairs j <= k.

        They are the places of (j, k) and of (k, j) in a matrix in one row, weights 1/2 if j = k and 1 otherwise, and the pair
        of each entry of such a matrix.
        """
        j, k = np.triu_indices(self.dim)
        pair = np.zeros((self.dim, self.dim), dtype=int)
        pair[j, k] = pair[k, j] = np.arange(len(j))
        here = self.dim * j + k, self.dim * k + j, np.where(j == k, 0.5, 1.0), pair.ravel()
        return tuple(map(self.xp.asarray, here))

    @functools.cached_property
    def pairs(self) -> Array:
        """The products of pairs of columns, computed when first needed: a single gradient does not use them."""
        j, k = (self.xp.asarray(each) for each in np.triu_indices(self.dim))
        return self.xp.take(self.rows, j, axis=1) * self.xp.take(self.rows, k, axis=1)

    def margins(self, beta: Array) -> tuple[Array, Array, Array]:
        """Return z, (n, d), and m = z beta and e^-|m|, (..., n)."""
        xp, (z,) = namespace(beta), in_dtype_of(beta, self.rows)
        m = batched.rows_times(beta, batched.transpose(z))
        return z, m, xp.exp(-xp.abs(m))

    def value_and_gradient(self, beta: Array) -> tuple[Array, Array]:
        xp, (rows,) = namespace(beta), in_dtype_of(beta, self.rows)
        gradient = -self.precision * beta
        L = 0.5 * batched.dot(beta, gradient)
        n, at_once = rows.shape[0], max(1, self.largest // max(1, math.prod(beta.shape[:-1])))
        for start in range(0, n, at_once):
            z = rows[start : min(start + at_once, n), :]
            m = batched.rows_times(beta, batched.transpose(z))
            least = xp.minimum(m, 0.0)
            other = least - m  # min(-m, 0)
            log = xp.log1p(xp.exp(least + other))
            L = L + xp.sum(least - log, axis=-1)
            gradient = gradient + batched.rows_times(xp.exp(other - log), z)
        return L, gradient

    def fisher(self, beta: Array) -> Array:
        xp, (z, _, e) = namespace(beta), self.margins(beta)
        v = e / (1 + e) ** 2
        if few(beta) or not self.room:
            G = (batched.transpose(z) * v[..., None, :]) @ z
        else:
            G = batched.rows_times(v, *in_dtype_of(beta, self.pairs))
            G = xp.reshape(xp.take(G, self.columns[3], axis=-1), (*beta.shape, self.dim))
        return where_finite(beta, G + self.precision * xp.eye(self.dim, dtype=beta.dtype), 2)

    def fisher_contraction(self, beta: Array, M: Array) -> Array:
        xp, (z, m, e) = namespace(beta), self.margins(beta)
        if few(beta) or not self.room:
            forms = xp.sum((z @ M) * z, axis=-1)
        else:
            above, below, once, _ = self.columns
            pairs, once = in_dtype_of(beta, self.pairs, once)
            flat = xp.reshape(M, (*beta.shape[:-1], self.dim**2))
            both = once * (xp.take(flat, above, axis=-1) + xp.take(flat, below, axis=-1))
            forms = batched.rows_times(both, batched.transpose(pairs))
        weights = -e / (1 + e) ** 2 * xp.tanh(0.5 * m) * forms
        return where_finite(beta, batched.rows_times(weights, z), 1)

    def hessian(self, beta: Array) -> Array:
        return -self.fisher(beta)

    def hessian_contraction(self, beta: Array, M: Array) -> Array:
        return -self.fisher_contraction(beta, M)


def few(beta: Array) -> bool:
    """Return whether there are fewer positions than coordinates, so that v_i z_i of each is not larger than the pairs."""
    return math.prod(beta.shape[:-1]) < beta.shape[-1]


# ------------------------------------------------------------------------------------------- sums over observations


@jit_sum
def combine(rows: np.ndarray, weights: np.ndarray, out: np.ndarray) -> None:
    """Write out[i] = sum_j weights[j] rows[j, i] for all entries of ``out``, four rows per pass."""
    d = weights.shape[0]
    out[:] = 0.0
    for j in range(0, d - 3, 4):
        w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        r0, r1, r2, r3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        for i in range(out.shape[0]):
            out[i] += w0 * r0[i] + w1 * r1[i] + w2 * r2[i] + w3 * r3[i]
    for j in range(d - d % 4, d):
        w, r = weights[j], rows[j]
        for i in range(out.shape[0]):
            out[i] += w * r[i]


@jit_sum
def project(z: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """Write out[j] = sum_i z[j, i] w[i]."""
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
LN2_HIGH = 6.93147180369123816490e-01  # its last 21 bits are 0: k LN2_HIGH is exact for whole k up to 2^21
LN2_LOW = 1.90821492927058770002e-10  # log 2 - LN2_HIGH
ROUND = 1.5 * 2.0**52  # x + ROUND has the integer nearest to x in its last bits
LEAST = 0x4338000000000000 - 1022  # the bits of ROUND - 1022


@jit
def exponentials(x: np.ndarray, power: np.ndarray, bits: np.ndarray) -> None:
    """Compute exp(x) = power (1 + x), with the new x on the right, for x in [-800, 0], to 1.3 units in the last place.

    exp(x) = 2^k exp(r) with |r| <= log(2)/2, and exp(r) = (even + odd)/(even - odd), its [6/6] Pade approximant, to 1e-18.
    The separate factors also give exp(x) - 1 = (power - 1) + power x without cancellation. ``bits`` is ``power`` seen as whole
    numbers. Below exp(-708) the result is 0.
    """
    n = x.shape[0]
    for i in range(n):
        power[i] = x[i].real * LOG2_E + ROUND
    for i in range(n):
        k = power[i] - ROUND
        r = (x[i] - k * LN2_HIGH) - k * LN2_LOW
        r2 = r * r
        odd = r * (332640 + r2 * (10080 + r2 * 42))
        even = 665280 + r2 * (75600 + r2 * (840 + r2))
        x[i] = 2 * odd / (even - odd)
    for i in range(n):
        bits[i] = (bits[i] + 1023) << 52 if bits[i] >= LEAST else 0  # power[i] = 2^k


@jit_sum
def split_margins(m: np.ndarray, x: np.ndarray) -> float:
    """Write x = -|m|, at least -800, and return sum_i min(m_i, 0)."""
    total = 0.0
    for i in range(m.shape[0]):
        t = -m[i] if m[i].real > 0 else m[i]
        x[i] = -800.0 if t.real < -800.0 else t
        total += m[i] + t
    return 0.5 * total


@jit
def log_product(e: np.ndarray) -> float:
    """Return sum_i log(1 + e_i) for 0 <= e_i <= 1; e is overwritten."""
    total = 0.0
    for start in range(0, e.shape[0], 512):  # a product of at most 2^512
        part = e[start : start + 512]
        left = part.shape[0]
        while left > 1:
            half = left // 2
            upper = part[left - half : left]
            for i in range(half):
                part[i] += upper[i] * (1 + part[i])
            left -= half
        total += np.log1p(part[0])
    return total


@jit_allocating
def margins(q: np.ndarray, data: np.ndarray, m: np.ndarray, x: np.ndarray, power: np.ndarray) -> float:
    """Compute m_i = z_i . beta and exp(-|m_i|) = power_i (1 + x_i), and return sum_i min(m_i, 0)."""
    combine(data[: q.shape[0]], q, m)
    total = split_margins(m, x)
    exponentials(x, power, power.view(np.int64))
    return total


@jit_allocating
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    n = data.shape[1]
    m, e, power = np.empty(n, q.dtype), np.empty(n, q.dtype), np.empty(n)
    total = margins(q, data, m, e, power)
    for i in range(n):
        e[i] = power[i] * (1 + e[i])
    return total - log_product(e) - 0.5 * data[q.shape[0], 0] * dot(q, q)


# Terms that depend on the position only, for gradient, metric and contraction: rows [1, log likelihood, q], sigma(-m), v,
# dv/dm.
KEY, SIGMA, CURVATURE, SLOPE = range(4)
N_TERMS = 4


@jit
def has_room(q: np.ndarray, data: np.ndarray) -> bool:
    """Return whether this is the copy of a chain, which has additional rows for the terms."""
    return data.shape[0] > q.shape[0] + 1


@jit
def is_key(q: np.ndarray, key: np.ndarray) -> bool:
    """Return whether the terms are those at ``q``."""
    j = 0
    while j < q.shape[0] and q[j] == key[2 + j]:
        j += 1
    return key[0] == 1 and j == q.shape[0]


@jit_allocating
def terms_at(q: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Return the rows of terms at ``q``, from the additional rows of the data or newly computed."""
    if not has_room(q, data):
        terms = np.empty((N_TERMS, data.shape[1]), q.dtype)
        make_terms(q, data, terms)
        return terms
    room = data[q.shape[0] + 1 :]
    if not is_key(q, room[KEY]):
        room[KEY, 1] = make_terms(q, data, room)
        copy_row(room[KEY, 2:], q)
        room[KEY, 0] = 1.0
    return room


@jit_allocating
def make_terms(q: np.ndarray, data: np.ndarray, terms: np.ndarray) -> float:
    """Write sigma(-m_i), v_i = sigma(m_i) sigma(-m_i) and dv_i/dm_i = -v_i tanh(m_i/2), and return the log likelihood."""
    n = data.shape[1]
    sigma, v, slope = terms[SIGMA], terms[CURVATURE], terms[SLOPE]
    e, power = np.empty(n, q.dtype), np.empty(n)
    total = margins(q, data, slope, v, power)
    for i in range(n):
        e[i] = power[i] * (1 + v[i])
        sigma[i] = (e[i] if slope[i].real > 0 else 1.0) / (1 + e[i])
        t = -((power[i] - 1) + power[i] * v[i]) / (1 + e[i])  # tanh |m/2|, accurate for small arguments
        v[i] = (
            e[i] / (1 + e[i]) ** 2 if t.real > 0.5 else 0.25 - 0.25 * t * t
        )  # each in the range in which its derivative is exact
        slope[i] = -v[i] * t if slope[i].real > 0 else v[i] * t
    return total - log_product(e)


@jit_allocating
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    n, d, precision = data.shape[1], q.shape[0], data[q.shape[0], 0]
    if has_room(q, data):
        terms = terms_at(q, data)
        likelihood = terms[KEY, 1]
        project(data[:d], terms[SIGMA], out)
    else:
        m, e, power = np.empty(n, q.dtype), np.empty(n, q.dtype), np.empty(n)
        total = margins(q, data, m, e, power)
        for i in range(n):
            e[i] = power[i] * (1 + e[i])
            m[i] = (e[i] if m[i].real > 0 else 1.0) / (1 + e[i])  # sigma(-m)
        project(data[:d], m, out)
        likelihood = total - log_product(e)
    for j in range(d):
        out[j] -= precision * q[j]
    return likelihood - 0.5 * precision * dot(q, q)


@jit_products
def sixteen_products(x: np.ndarray, z: np.ndarray, j: int, k: int, out: np.ndarray) -> None:
    """Write out[j + g, k + h] = x[g] . z[k + h] for g, h = 0 ... 3, so that each loaded number is used four times."""
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    z0, z1, z2, z3 = z[k], z[k + 1], z[k + 2], z[k + 3]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = d0 = d1 = d2 = d3 = 0.0
    for i in range(z.shape[1]):
        a0 += x0[i] * z0[i]
        a1 += x0[i] * z1[i]
        a2 += x0[i] * z2[i]
        a3 += x0[i] * z3[i]
        b0 += x1[i] * z0[i]
        b1 += x1[i] * z1[i]
        b2 += x1[i] * z2[i]
        b3 += x1[i] * z3[i]
        c0 += x2[i] * z0[i]
        c1 += x2[i] * z1[i]
        c2 += x2[i] * z2[i]
        c3 += x2[i] * z3[i]
        d0 += x3[i] * z0[i]
        d1 += x3[i] * z1[i]
        d2 += x3[i] * z2[i]
        d3 += x3[i] * z3[i]
    out[j, k], out[j, k + 1], out[j, k + 2], out[j, k + 3] = a0, a1, a2, a3
    out[j + 1, k], out[j + 1, k + 1], out[j + 1, k + 2], out[j + 1, k + 3] = b0, b1, b2, b3
    out[j + 2, k], out[j + 2, k + 1], out[j + 2, k + 2], out[j + 2, k + 3] = c0, c1, c2, c3
    out[j + 3, k], out[j + 3, k + 1], out[j + 3, k + 2], out[j + 3, k + 3] = d0, d1, d2, d3


@jit
def weigh(v: np.ndarray, z: np.ndarray, out: np.ndarray) -> None:
    """Write out_i = v_i z_i."""
    for i in range(v.shape[0]):
        out[i] = v[i] * z[i]


@jit
def weighted_gram(z: np.ndarray, v: np.ndarray, work: np.ndarray, out: np.ndarray) -> None:
    """Write out[j, k] = sum_i v_i z[j, i] z[k, i], four rows by four at a time; ``work`` has shape (4, n)."""
    d = z.shape[0]
    for t in range(0, d if d >= 4 else 0, 4):
        j = min(t, d - 4)  # the last four rows may overlap earlier ones
        for h in range(4):
            weigh(v, z[j + h], work[h])
        for k in range(0, j + 4, 4):
            sixteen_products(work, z, j, min(k, d - 4), out)
    for j in range(d if d < 4 else 0):
        weigh(v, z[j], work[0])
        project(z, work[0], out[j])
    for j in range(d):
        for k in range(j):
            out[k, j] = out[j, k]


@jit_products
def add_sixteen_products(z: np.ndarray, j: int, k: int, c: np.ndarray, form: np.ndarray) -> None:
    """Add sum_gh c[g, k + h] z[j + g, i] z[k + h, i], g, h = 0 ... 3, to form_i; rows beyond the last (c = 0) are the last."""
    last = z.shape[0] - 1
    x0, x1, x2, x3 = z[j], z[min(j + 1, last)], z[min(j + 2, last)], z[min(j + 3, last)]
    z0, z1, z2, z3 = z[k], z[min(k + 1, last)], z[min(k + 2, last)], z[min(k + 3, last)]
    a0, a1, a2, a3 = c[0, k], c[0, k + 1], c[0, k + 2], c[0, k + 3]
    b0, b1, b2, b3 = c[1, k], c[1, k + 1], c[1, k + 2], c[1, k + 3]
    c0, c1, c2, c3 = c[2, k], c[2, k + 1], c[2, k + 2], c[2, k + 3]
    d0, d1, d2, d3 = c[3, k], c[3, k + 1], c[3, k + 2], c[3, k + 3]
    for i in range(z.shape[1]):
        form[i] += (
            x0[i] * (a0 * z0[i] + a1 * z1[i] + a2 * z2[i] + a3 * z3[i])
            + x1[i] * (b0 * z0[i] + b1 * z1[i] + b2 * z2[i] + b3 * z3[i])
            + x2[i] * (c0 * z0[i] + c1 * z1[i] + c2 * z2[i] + c3 * z3[i])
            + x3[i] * (d0 * z0[i] + d1 * z1[i] + d2 * z2[i] + d3 * z3[i])
        )


@jit
def quadratic_forms(z: np.ndarray, M: np.ndarray, c: np.ndarray, form: np.ndarray) -> None:
    """Write form_i = z_i' M z_i, with z_i the columns of ``z``, from the lower triangle of M + M', four rows by four at a time.

    ``c``, of shape (4, d + 3), holds four rows of the triangle.
    """
    d, zero = z.shape[0], 0.0 * M[0, 0]
    form[:] = 0.0
    for j in range(0, d, 4):
        c[:] = zero
        for h in range(min(4, d - j)):
            for k in range(j + h):
                c[h, k] = M[j + h, k] + M[k, j + h]
            c[h, j + h] = M[j + h, j + h]
        for k in range(0, j + 1, 4):
            add_sixteen_products(z, j, k, c, form)


@jit_allocating
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    n, d = data.shape[1], q.shape[0]
    weighted_gram(data[:d], terms_at(q, data)[CURVATURE], np.empty((4, n), q.dtype), out)
    for j in range(d):
        out[j, j] += data[d, 0]


@jit_allocating
def fisher_derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    n, d = data.shape[1], q.shape[0]
    w, slope = np.empty(n, q.dtype), terms_at(q, data)[SLOPE]
    for j in range(d):
        for k in range(j + 1):
            for i in range(n):
                w[i] = slope[i] * data[j, i] * data[k, i]
            project(data[: k + 1], w, out[j, k])
            for h in range(k + 1):
                t = out[j, k, h]
                out[j, h, k] = out[k, j, h] = out[k, h, j] = out[h, j, k] = out[h, k, j] = t


@jit_allocating
def fisher_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    n, d = data.shape[1], q.shape[0]
    form, slope = np.empty(n, q.dtype), terms_at(q, data)[SLOPE]
    quadratic_forms(data[:d], M, np.empty((4, d + 3), q.dtype), form)
    for i in range(n):
        form[i] *= slope[i]
    project(data[:d], form, out)


@jit_allocating
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    fisher(q, data, out)
    for j in range(q.shape[0]):
        for k in range(q.shape[0]):
            out[j, k] = -out[j, k]


@jit_allocating
def third_derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    fisher_derivative(q, data, out)
    for j in range(q.shape[0]):
        for k in range(q.shape[0]):
            for h in range(q.shape[0]):
                out[j, k, h] = -out[j, k, h]


@jit_allocating
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    fisher_contraction(q, data, M, out)
    for k in range(q.shape[0]):
        out[k] = -out[k]


def signed_rows(X: object, y: object) -> np.ndarray:
    """Return the rows of X (n, d), with the opposite sign for labels y (n,) of zero. Raises ShapeError or ValueError."""
    X, y = finite("X", X), array_of_numbers("y", y)
    if X.ndim != 2 or 0 in X.shape:
        raise ShapeError(f"X must have shape (n, d) with n and d at least 1; got {X.shape}.")
    if y.shape != X.shape[:1]:
        raise ShapeError(f"y must have shape ({X.shape[0]},), one entry per row of X; got {y.shape}.")
    if not np.isin(y, (0, 1)).all():
        raise ValueError(f"y must be zeros and ones; got {np.unique(y)[:5]}.")
    return (2 * y - 1)[:, None] * X


@recreatable
def LogisticRegression(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    prior_scale: float = 1.0,
    *,
    reference: Reference | None = None,
    name: str = "logistic regression",
    inputs: Sequence[str] | None = None,
    intercept: bool = False,
) -> Model:
    """Return a Bayesian logistic regression.

    The model is ::

        y_i ~ Bernoulli(1 / (1 + exp(-x_i . beta))),      beta ~ N(0, prior_scale^2 I)

    The variable is ``beta``, of shape (d,). The model has all derivatives. Its Fisher metric is minus the Hessian. It has no
    intercept unless `X` has a column of ones or `intercept` is True.

    Parameters
    ----------
    X : array_like of shape (n, d)
        Inputs, used without change. Lists and data frames are accepted. The columns of a data frame name the coefficients.
    y : array_like of shape (n,)
        Labels, zeros and ones.
    prior_scale : float, default 1.0
        Standard deviation of the prior of each coefficient.
    reference : Reference, optional
        Known moments of the posterior.
    name : str, default "logistic regression"
        Name in messages and results.
    inputs : sequence of str, optional
        Names of the columns, for the result. Defaults to those of a data frame.
    intercept : bool, default False
        Whether the model has an intercept, the first entry of ``beta``, with the prior of the others.

    Returns
    -------
    Model
        The model.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not fit.
    ValueError
        If entries are not finite, labels are not 0 and 1, or `prior_scale` is not positive.

    References
    ----------
    M. Girolami and B. Calderhead (2011), Riemann manifold Langevin and Hamiltonian Monte Carlo methods, sec. 7.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.LogisticRegression([[1.0, 0.2], [1.0, -1.0], [1.0, 0.9]], [1, 0, 1])
    >>> model.gradient([0.0, 0.0]).round(3).tolist()
    [0.5, 1.05]

    The same with an intercept:

    >>> model = refhmc.models.LogisticRegression([[0.2], [-1.0], [0.9]], [1, 0, 1], intercept=True, inputs=["age"])
    >>> model.gradient([0.0, 0.0]).round(3).tolist(), model.coords["input"].tolist()
    ([0.5, 1.05], ['intercept', 'age'])
    """
    flag("intercept", intercept)
    (X, inputs), y = design(X, inputs, intercept), from_table("y", y)
    rows = signed_rows(X, y)
    X, y = frozen(X), frozen(np.asarray(y))
    prior_scale = positive("prior_scale", prior_scale)
    n, d = rows.shape
    return Model(
        d,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        third_derivative=third_derivative,
        hessian_contraction=hessian_contraction,
        fisher=fisher,
        fisher_derivative=fisher_derivative,
        fisher_contraction=fisher_contraction,
        data=in_rows(*rows.T, [prior_scale**-2.0]),
        names=[f"beta[{j}]" for j in range(d)],
        scratch_rows=N_TERMS if n >= d + 2 else 0,
        name=name,
        reference=reference,
        n_rows=n,
        part=functools.partial(share_of, X, y, prior_scale, name),
        outputs=functools.partial(outputs, intercept=intercept),
        likelihood=Bernoulli(),
        on_arrays=functools.partial(LogisticRegressionOnArrays, rows, prior_scale**-2.0),
        dims={"beta": "input", "y": "observation", "X": ("observation", "input")},
        coords=None if inputs is None else {"input": inputs},
        generated=GeneratedQuantities(
            log_likelihood=functools.partial(log_likelihood, rows=rows),
            posterior_predictive=functools.partial(posterior_predictive, X=X),
            prior=functools.partial(prior, d=d, scale=prior_scale),
            observed_data={"y": y},
            constant_data={"X": X},
        ),
    )


def log_likelihood(values: dict, rows: np.ndarray) -> dict:
    """Return log sigma(m_i)."""
    return {"y": -np.logaddexp(0.0, -(values["beta"] @ rows.T))}


def posterior_predictive(values: dict, rng: np.random.Generator, X: np.ndarray) -> dict:
    f = values["beta"] @ X.T
    return {"y": (np.log(rng.random(f.shape)) < -np.logaddexp(0.0, -f)).astype(int)}


def prior(rng: np.random.Generator, d: int, scale: float) -> dict:
    return {"beta": rng.normal(0.0, scale, d)}


def outputs(beta: np.ndarray, X: npt.ArrayLike, intercept: bool) -> np.ndarray:
    """Return x . beta, of shape (n, 1)."""
    return rows_of(X, len(beta), intercept) @ beta[:, None]


def share_of(
    X: npt.ArrayLike, y: npt.ArrayLike, prior_scale: float, name: str, rows: np.ndarray, share: float
) -> Model:
    """Return the regression of some of the rows, with a ``share`` of the log prior."""
    return LogisticRegression(np.asarray(X)[rows], np.asarray(y)[rows], prior_scale / math.sqrt(share), name=name)


@recreatable
def BreastCancer() -> Model:
    """Return the logistic regression of the breast cancer data of Ljubljana.

    The model is that of :func:`LogisticRegression` with d = 10 and ``prior_scale=1``.

    Returns
    -------
    Model
        The model, with moments by importance sampling in ``reference``.

    References
    ----------
    J. A. Brofos and R. R. Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian manifold Hamiltonian
    Monte Carlo, appendix F.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.BreastCancer().dim
    10
    """
    X, y, inputs, _ = datasets.breast_cancer()
    reference = datasets.logistic_reference("breast_cancer_ljubljana")
    return LogisticRegression(X, y, reference=reference, name="breast cancer", inputs=inputs)


@recreatable
def Diabetes() -> Model:
    """Return the logistic regression of the diabetes data of Pima women.

    The model is that of :func:`LogisticRegression` with d = 9 and ``prior_scale=1``.

    Returns
    -------
    Model
        The model, with moments by importance sampling in ``reference``.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.Diabetes().dim
    9
    """
    X, y, inputs, _ = datasets.diabetes()
    reference = datasets.logistic_reference("diabetes_pima")
    return LogisticRegression(X, y, reference=reference, name="diabetes", inputs=inputs)


@recreatable
def Heart() -> Model:
    """Return the logistic regression of the Statlog heart disease data.

    The model is that of :func:`LogisticRegression` with d = 14 and ``prior_scale=1``.

    Returns
    -------
    Model
        The model, with moments by importance sampling in ``reference``.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.models.Heart().dim
    14
    """
    X, y, inputs, _ = datasets.heart()
    reference = datasets.logistic_reference("heart_statlog")
    return LogisticRegression(X, y, reference=reference, name="heart", inputs=inputs)
