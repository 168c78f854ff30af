"""Distributions of observations given the outputs f (..., n, k) of a network: log p(y | f) and its derivatives in f.

They are ::

                log p(y | f), a row           mean of y, m(f)        Fisher information times a, V a
    gaussian    -t/2 |y - f|^2                f                      t a                          (t the precision)
    bernoulli   y f - log(1 + e^f)            s = 1 / (1 + e^-f)     s (1 - s) a                  one output, y 0 or 1
    softmax     f_y - log sum_j e^{f_j}       e^f / sum_j e^{f_j}    m * a - m (m . a)            y 0, ..., k - 1

Constants of the Gaussian are omitted. ``predicted`` returns the parameters of p(y | f): mean and sd, or the probabilities of
the classes. Each is an exponential family in its natural parameter, so that ::

    d log p / df = t (y - m(f))            E[-d^2 log p / df^2] = t dm/df = V

``means`` returns m(f) on expansions (:mod:`refhmc.models.networks.expansion`). For the softmax, with c_u = f_u - m . f_u, ::

    m_u = m * c_u        m_uv = m * (c_u c_v - m . (c_u c_v) + f_uv - m . f_uv)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from refhmc.models.networks.expansion import Expansion, add, function, linear, product
from refhmc.numerics.batched import Array, namespace


class Likelihood(Protocol):
    """The interface of a likelihood.

    ``log_density`` of y (n, k) or (n,) has shape (..., n); ``observed`` is y in the shape of the mean; ``information`` is V a.
    """

    @property
    def precision(self) -> float: ...
    def log_density(self, f: Array, y: Array) -> Array: ...
    def mean(self, f: Expansion) -> Expansion: ...
    def observed(self, y: Array, f: Array) -> Array: ...
    def information(self, m: Expansion, a: Expansion) -> Expansion: ...
    def predicted(self, f: np.ndarray) -> dict: ...


def slope(likelihood: Likelihood, f: Expansion, y: Array) -> Expansion:
    """Return d log p / df = t (y - m(f))."""
    t = likelihood.precision
    m, *more = linear(lambda m: -t * m if t != 1 else -m, likelihood.mean(f))
    return (m + (t * likelihood.observed(y, m) if t != 1 else likelihood.observed(y, m)), *more)


@dataclass(frozen=True)
class Gaussian:
    """The Gaussian distribution y ~ N(f, I / precision)."""

    precision: float = 1.0

    def log_density(self, f: Array, y: Array) -> Array:
        """Return one number per row, (..., n)."""
        return -0.5 * self.precision * namespace(f).sum((y - f) ** 2, axis=-1)

    def mean(self, f: Expansion) -> Expansion:
        return f

    def observed(self, y: Array, f: Array) -> Array:
        return y

    def information(self, m: Expansion, a: Expansion) -> Expansion:
        return linear(lambda a: self.precision * a, a)

    def predicted(self, f: np.ndarray) -> dict:
        return {"mean": f, "sd": np.array(self.precision**-0.5)}


@dataclass(frozen=True)
class Bernoulli:
    """The Bernoulli distribution P(y = 1) = 1 / (1 + e^-f)."""

    precision = 1.0

    def log_density(self, f: Array, y: Array) -> Array:
        xp = namespace(f)
        margin = (2 * y - 1) * f[..., 0]
        least = xp.where(margin < 0, margin, -margin)
        return xp.where(margin < 0, margin, xp.zeros_like(margin)) - xp.log1p(xp.exp(least))

    def mean(self, f: Expansion) -> Expansion:
        xp = namespace(f[0])
        e = xp.exp(xp.where(f[0] < 0, f[0], -f[0]))
        s = xp.where(f[0] > 0, xp.ones_like(e), e) / (1 + e)
        slope = e / (1 + e) ** 2
        return function([s, slope, slope * (1 - 2 * s)][: 1 + len(f) // 2], f)

    def observed(self, y: Array, f: Array) -> Array:
        return y[:, None]

    def information(self, m: Expansion, a: Expansion) -> Expansion:
        return product(mul, add(m, linear(lambda x: -x, product(mul, m, m))), a)

    def predicted(self, f: np.ndarray) -> dict:
        return {"probability": self.mean((np.concatenate([-f, f], axis=-1),))[0]}


@dataclass(frozen=True)
class Softmax:
    """The categorical distribution P(y = j) = e^{f_j} / sum_i e^{f_i}."""

    precision = 1.0

    def log_density(self, f: Array, y: Array) -> Array:
        xp = namespace(f)
        largest = xp.max(f, axis=-1, keepdims=True)
        log_sum = xp.log(xp.sum(xp.exp(f - largest), axis=-1))
        index = xp.broadcast_to(y[:, None], (*f.shape[:-1], 1))
        return xp.take_along_axis(f - largest, index, axis=-1)[..., 0] - log_sum

    def mean(self, f: Expansion) -> Expansion:
        xp = namespace(f[0])
        m = xp.exp(f[0] - xp.max(f[0], axis=-1, keepdims=True))
        m = m / xp.sum(m, axis=-1, keepdims=True)

        def centred(a: Array) -> Array:
            return a - xp.sum(m * a, axis=-1, keepdims=True)

        if len(f) == 1:
            return (m,)
        c = linear(centred, f[1:])
        times_m = linear(lambda a: m * a, c)
        if len(f) == 2 or c[0] is None or c[1] is None:
            return (m, *times_m)
        bent = m * centred(c[0] * c[1])
        return (m, times_m[0], times_m[1], bent if times_m[2] is None else bent + times_m[2])

    def observed(self, y: Array, f: Array) -> Array:
        xp = namespace(f)
        return xp.astype(y[:, None] == xp.arange(f.shape[-1]), f.dtype)

    def information(self, m: Expansion, a: Expansion) -> Expansion:
        inner = product(lambda m, a: namespace(m).sum(m * a, axis=-1, keepdims=True), m, a)
        return add(product(mul, m, a), linear(lambda x: -x, product(mul, m, inner)))

    def predicted(self, f: np.ndarray) -> dict:
        return {"probability": self.mean((f,))[0]}


def mul(a: Array, b: Array) -> Array:
    return a * b


LIKELIHOODS: dict[str, Callable] = {"gaussian": Gaussian, "bernoulli": Bernoulli, "softmax": Softmax}
