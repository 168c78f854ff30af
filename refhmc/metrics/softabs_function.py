"""SoftAbs (Betancourt 2013): G = f(H), f(x) = x coth(alpha x), a smooth |x| that is never below 1/alpha.

With t = alpha x:

    f(x)  = t coth(t) / alpha                                       even, 1/alpha at 0, |x| for large |t|
    f'(x) = (sinh 2t - 2t) / (cosh 2t - 1)                          odd, 2t/3 at 0, +-1 for large |t|
    J(x, y) = (f(x) - f(y)) / (x - y),    J(x, x) = f'(x)

The derivative of f(H) = sum_k f(l_k) v_k v_k' in the direction D is sum_kl J(l_k, l_l) (v_k'D v_l) v_k v_l'.

The quotient J cancels for x near y. With M = alpha (x + y) and D = alpha (x - y) the addition theorems give

    J = (sinh M - M sinh(D)/D) / (cosh M - cosh D).

Expanded with a_k = (M^2k - D^2k) / (M^2 - D^2), that is a_1 = 1 and a_k+1 = M^2 a_k + D^2k, this is

    J = M (a_1/3! + a_2/5! + a_3/7! + ...) / (a_1/2! + a_2/4! + a_3/6! + ...).

Every term is positive, and nothing cancels. D = 0 is the derivative. Since f(-x) = f(x), J(-x, y) reduces to positive
arguments.
"""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

ALPHA = 10.0  # the default
LARGE = 20.0  # above this, coth t and f' are 1 to within 3e-16


def soft_on_arrays(xp: ModuleType, x: Array, alpha: float) -> Array:
    """Return f(x) by the functions of a namespace."""
    t = xp.abs(alpha * x)
    middle = xp.where((t < 1e-4) | (t > LARGE), 1.0, t)
    return xp.where(t > LARGE, xp.abs(x), xp.where(t < 1e-4, 1 + t * t / 3, middle / xp.tanh(middle)) / alpha)


@batched.elementwise
def softabs(xp: ModuleType, x: Array, alpha: float) -> Array:
    """Return f(x) on arrays."""
    return soft_on_arrays(xp, x, alpha)


@batched.elementwise
def softabs_derivative(xp: ModuleType, x: Array, alpha: float) -> Array:
    """Return f'(x) on arrays.

    For small t the series sinh 2t - 2t = (2t)^3/3! + (2t)^5/5! + ... is summed, which does not cancel.
    """
    large = xp.abs(alpha * x) > LARGE
    t = xp.where(large, 1.0, alpha * x)
    y, series = (2 * t) ** 2, 1.0
    for k in range(15, 3, -2):
        series = 1 + series * y / (k * (k - 1))
    above = xp.where(xp.abs(t) < 0.3, 2 * t * y / 6 * series, xp.sinh(2 * t) - 2 * t)
    below = 2 * xp.sinh(xp.where(t == 0, 1.0, t)) ** 2
    return xp.where(large & (x < 0), -1.0, xp.where(large, 1.0, above / below))


def divided_differences(x: Array, alpha: float) -> Array:
    """Return J(x_i, x_j), (..., d, d)."""
    return divided_difference_on_arrays(x[..., :, None], x[..., None, :], alpha)


@batched.elementwise
def divided_difference_on_arrays(xp: ModuleType, x: Array, y: Array, alpha: float) -> Array:
    """Return J(x, y), in the cases of :func:`divided_difference_of` and :func:`of_sum_and_difference`."""
    a, b = xp.abs(x), xp.abs(y)
    M, D = alpha * (a + b), alpha * (a - b)
    small, close, same = M <= 2.0, xp.abs(D) <= 0.5, (x < 0) == (y < 0)
    apart = ~close & (alpha * xp.where(D > 0, a, b) > 1.0)
    M2, D2 = xp.where(small, M, 0.0) ** 2, xp.where(small | close, D, 0.0) ** 2

    a_k, power, factor = 1.0, D2, 0.5
    below, above = factor, factor / 3
    for k in range(2, 14):
        a_k = M2 * a_k + power
        power = D2 * power
        factor /= (2 * k - 1) * (2 * k)
        below = below + factor * a_k
        above = above + factor / (2 * k + 1) * a_k

    E, sinhc, cosh = xp.exp(-xp.where(small, 3.0, M)), 1.0, 1.0
    for k in range(6, 0, -1):
        sinhc = 1 + D2 / (2 * k * (2 * k + 1)) * sinhc
        cosh = 1 + D2 / (2 * k * (2 * k - 1)) * cosh
    large = (1 - E * E - 2 * M * E * sinhc) / (1 + E * E - 2 * E * cosh)

    quotient = (soft_on_arrays(xp, a, alpha) - soft_on_arrays(xp, b, alpha)) / xp.where(apart, a - b, 1.0)
    value = xp.where(apart, quotient, xp.where(small, M * above / below, large))
    return xp.where(same, xp.where(x < 0, -value, value), value * ((a - b) / xp.where(same, 1.0, x - y)))


@jit
def soft(x: float, alpha: float) -> float:
    """Return x coth(alpha x)."""
    t = abs(alpha * x)
    if t > LARGE:
        return abs(x)
    if t < 1e-4:
        return (1 + t * t / 3) / alpha
    return abs(x) * (1 + 2 / math.expm1(2 * t))


@jit
def soft_derivative(x: float, alpha: float) -> float:
    """Return d/dx of x coth(alpha x)."""
    t = alpha * x
    if abs(t) > LARGE:
        return math.copysign(1.0, x)
    return math.copysign(of_sum_and_difference(2 * abs(t), 0.0), x)


@jit
def soft_all(x: np.ndarray, alpha: float, out: np.ndarray) -> None:
    """Set out[i] = soft(x[i], alpha): |x| first, in vector registers, then the few entries for which that is not accurate."""
    small = 0
    for i in range(x.shape[0]):
        out[i] = abs(x[i])
        small += not alpha * abs(x[i]) > LARGE  # also a NaN
    if small > 0:
        for i in range(x.shape[0]):
            if not alpha * abs(x[i]) > LARGE:
                out[i] = soft(x[i], alpha)


@jit
def soft_derivatives(x: np.ndarray, alpha: float, out: np.ndarray) -> None:
    """Set out[i] = soft_derivative(x[i], alpha), in the same way."""
    small = 0
    for i in range(x.shape[0]):
        out[i] = 1.0 if x[i] > 0 else -1.0
        small += not alpha * abs(x[i]) > LARGE
    if small > 0:
        for i in range(x.shape[0]):
            if not alpha * abs(x[i]) > LARGE:
                out[i] = soft_derivative(x[i], alpha)


@jit
def divided_difference(x: float, y: float, alpha: float) -> float:
    """Return (f(x) - f(y)) / (x - y), or the derivative if x = y."""
    return divided_difference_of(x, y, soft(x, alpha), soft(y, alpha), alpha)


@jit
def divided_difference_of(x: float, y: float, fx: float, fy: float, alpha: float) -> float:
    """Return the same, given fx = soft(x, alpha) and fy = soft(y, alpha), which are computed once instead of d times."""
    a, b = abs(x), abs(y)  # J(x, y) = J(a, b) (a - b) / (x - y)
    if alpha * a > LARGE and alpha * b > LARGE:
        value = 1.0
    elif alpha * max(a, b) > 1.0 and alpha * abs(a - b) > 0.5:
        value = (fx - fy) / (a - b)
    else:
        value = of_sum_and_difference(alpha * (a + b), alpha * (a - b))
    if (x < 0) == (y < 0):
        return -value if x < 0 else value
    return value * ((a - b) / (x - y))


@jit
def of_sum_and_difference(M: float, D: float) -> float:
    """Return J from M and D for 0 <= |D| <= M, with M up to 2 or |D| up to 1/2."""
    if M <= 2.0:
        M2, D2 = M * M, D * D
        a, power = 1.0, 1.0  # a_k and D^2(k-1)
        factor = 0.5  # 1 / (2k)!
        above, below = 0.0, 0.0
        for k in range(1, 14):
            below += a * factor
            above += a * factor / (2 * k + 1)
            power *= D2
            a = M2 * a + power
            factor /= (2 * k + 1) * (2 * k + 2)
        return M * above / below
    # Both divided by e^M / 2; sinh(D)/D and cosh D by their series.
    D2 = D * D
    sinhc = 1 + D2 / 6 * (1 + D2 / 20 * (1 + D2 / 42 * (1 + D2 / 72 * (1 + D2 / 110 * (1 + D2 / 156)))))
    cosh = 1 + D2 / 2 * (1 + D2 / 12 * (1 + D2 / 30 * (1 + D2 / 56 * (1 + D2 / 90 * (1 + D2 / 132)))))
    E = math.exp(-M)
    return (1 - E * E - 2 * M * E * sinhc) / (1 + E * E - 2 * E * cosh)
