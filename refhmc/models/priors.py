"""Independent prior laws of one number x, by name, for models that put densities together: a text for each.

    l(x) = log p(x), up to a constant, with three derivatives; and a precision P(x), with its derivative, for the Fisher metric

P is minus the second derivative of the log density in a coordinate where it is concave: x itself, or u = log x for laws of
positive numbers, whose density in u is l + u and whose tensor is P = -(d^2 l/du^2) / x^2 in x; Student's t has its Fisher
information about the location. A number that must be positive is so by its support (:mod:`refhmc.parameters`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.core.compiled import jit, jit_part

FLAT, NORMAL, LOG_NORMAL, GAMMA, INVERSE_GAMMA, STUDENT_T, BETA = range(7)


class Prior(NamedTuple):
    """A law: which, and its three numbers; ``folded``: of |x|, for what is positive."""

    kind: int
    a: float = 0.0
    b: float = 1.0
    c: float = 1.0
    folded: bool = False

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...] = ()) -> Any:
        """Independent draws; ValueError for a flat prior."""
        a, b, c = self.a, self.b, self.c
        draws: dict[int, Callable] = {
            NORMAL: lambda: rng.normal(a, b, shape),
            LOG_NORMAL: lambda: rng.lognormal(a, b, shape),
            GAMMA: lambda: rng.gamma(a, 1 / b, shape),
            INVERSE_GAMMA: lambda: b / rng.gamma(a, size=shape),
            STUDENT_T: lambda: a + b * rng.standard_t(c, shape),
            BETA: lambda: rng.beta(a, b, shape),
        }
        if self.kind not in draws:
            raise ValueError("a flat prior has no draws")
        return abs(draws[self.kind]()) if self.folded else draws[self.kind]()


class Own(NamedTuple):
    """A prior of your own for all parameters together: functions of their values x in one row, (count,), in order.

    ``log_density(x)``; ``gradient(x)``, ``hessian(x)`` and ``third_derivative(x)`` return arrays. All compiled by Numba.
    Its part of the Fisher metric is minus the Hessian.
    """

    log_density: Callable
    gradient: Callable
    hessian: Callable | None = None
    third_derivative: Callable | None = None


@jit_part
def normal(x: float, a: float, b: float, out: np.ndarray) -> None:
    z = (x - a) / b
    out[0], out[1], out[2], out[3] = -0.5 * z * z, -z / b, -1 / b**2, 0.0
    out[4], out[5] = 1 / b**2, 0.0


@jit_part
def log_normal(x: float, a: float, b: float, out: np.ndarray) -> None:
    """z the standardized logarithm: dz/dx = 1 / (b x)."""
    z = (math.log(x) - a) / b
    w = 1 / b**2
    out[0] = -0.5 * z * z - math.log(x)
    out[1] = -(1 + z / b) / x
    out[2] = (1 + z / b - w) / x**2
    out[3] = (3 * w - 2 - 2 * z / b) / x**3
    out[4], out[5] = w / x**2, -2 * w / x**3


@jit_part
def gamma(x: float, a: float, b: float, out: np.ndarray) -> None:
    """Shape a, rate b."""
    out[0] = (a - 1) * math.log(x) - b * x
    out[1], out[2], out[3] = (a - 1) / x - b, -(a - 1) / x**2, 2 * (a - 1) / x**3
    out[4], out[5] = b / x, -b / x**2


@jit_part
def inverse_gamma(x: float, a: float, b: float, out: np.ndarray) -> None:
    """Shape a, scale b."""
    out[0] = -(a + 1) * math.log(x) - b / x
    out[1] = -(a + 1) / x + b / x**2
    out[2] = (a + 1) / x**2 - 2 * b / x**3
    out[3] = -2 * (a + 1) / x**3 + 6 * b / x**4
    out[4], out[5] = b / x**3, -3 * b / x**4


@jit_part
def student_t(x: float, a: float, b: float, c: float, out: np.ndarray) -> None:
    """Location a, scale b, c degrees of freedom."""
    z = (x - a) / b
    w = c + z * z
    out[0] = -0.5 * (c + 1) * math.log1p(z * z / c)
    out[1] = -(c + 1) * z / (w * b)
    out[2] = -(c + 1) * (c - z * z) / (w * b) ** 2
    out[3] = (c + 1) * 2 * z * (3 * c - z * z) / (w * b) ** 3
    out[4], out[5] = (c + 1) / (c + 3) / b**2, 0.0


@jit_part
def beta(x: float, a: float, b: float, out: np.ndarray) -> None:
    """P: minus the second derivative in the logit, (a + b) x (1 - x), over (dx/dlogit)^2."""
    y = 1 - x
    out[0] = (a - 1) * math.log(x) + (b - 1) * math.log(y)
    out[1] = (a - 1) / x - (b - 1) / y
    out[2] = -(a - 1) / x**2 - (b - 1) / y**2
    out[3] = 2 * (a - 1) / x**3 - 2 * (b - 1) / y**3
    out[4] = (a + b) / (x * y)
    out[5] = -(a + b) * (1 - 2 * x) / (x * y) ** 2


@jit
def log_prior(x: float, law: np.ndarray, out: np.ndarray) -> None:
    """l, l', l'', l''', P and P' of the law (kind, a, b, c) at x, the six first entries of ``out``."""
    kind, a, b, c = int(law[0]), law[1], law[2], law[3]
    if kind == NORMAL:
        normal(x, a, b, out)
    elif kind == LOG_NORMAL:
        log_normal(x, a, b, out)
    elif kind == GAMMA:
        gamma(x, a, b, out)
    elif kind == INVERSE_GAMMA:
        inverse_gamma(x, a, b, out)
    elif kind == STUDENT_T:
        student_t(x, a, b, c, out)
    elif kind == BETA:
        beta(x, a, b, out)
    else:
        for i in range(6):
            out[i] = 0.0


# ------------------------------------------------------------------------------------------------- for the user


def positive(law: str, **numbers: Any) -> None:
    """Raise ValueError for a number that is not positive and finite."""
    for name, value in numbers.items():
        if not isinstance(value, int | float | np.integer | np.floating) or not 0 < value < math.inf:
            raise ValueError(f"{law}: {name} must be a positive number, got {value!r}")


def Flat() -> Prior:
    """A density of one, over the whole support."""
    return Prior(FLAT)


def Normal(mean: float, sd: float) -> Prior:
    """N(mean, sd)."""
    positive("Normal", sd=sd)
    return Prior(NORMAL, mean, sd)


def HalfNormal(sd: float) -> Prior:
    """|N(0, sd)|, for what is positive."""
    positive("HalfNormal", sd=sd)
    return Prior(NORMAL, 0.0, sd, folded=True)


def LogNormal(mean: float, sd: float) -> Prior:
    """log x ~ N(mean, sd)."""
    positive("LogNormal", sd=sd)
    return Prior(LOG_NORMAL, mean, sd)


def Gamma(shape: float, rate: float) -> Prior:
    """Of mean shape / rate."""
    positive("Gamma", shape=shape, rate=rate)
    return Prior(GAMMA, shape, rate)


def Exponential(rate: float) -> Prior:
    """Of mean 1 / rate."""
    return Gamma(1.0, rate)


def InverseGamma(shape: float, scale: float) -> Prior:
    """1 / x ~ Gamma(shape, rate=scale)."""
    positive("InverseGamma", shape=shape, scale=scale)
    return Prior(INVERSE_GAMMA, shape, scale)


def StudentT(df: float, mean: float, scale: float) -> Prior:
    """(x - mean) / scale ~ Student's t."""
    positive("StudentT", df=df, scale=scale)
    return Prior(STUDENT_T, mean, scale, df)


def HalfCauchy(scale: float) -> Prior:
    """|Cauchy| of that scale, for what is positive."""
    positive("HalfCauchy", scale=scale)
    return Prior(STUDENT_T, 0.0, scale, 1.0, folded=True)


def Beta(a: float, b: float) -> Prior:
    """For what lies between 0 and 1."""
    positive("Beta", a=a, b=b)
    return Prior(BETA, a, b)
