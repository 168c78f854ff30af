"""Derivatives of log Gamma: psi_n(x) = d^(n+1)/dx^(n+1) log Gamma(x), x > 0 (Abramowitz and Stegun 1964, 6.3.18, 6.4.11).

The recurrence psi_n(x) = psi_n(x + 1) - (-1)^n n! / x^(n+1) leads to an argument of at least 20, for which the asymptotic
series is accurate to rounding; with Bernoulli's numbers B,

    psi_0(x) = log x - 1/(2x) - sum_k B_2k / (2k x^2k)
    psi_n(x) = (-1)^(n+1) [ (n-1)!/x^n + n!/(2 x^(n+1)) + sum_k B_2k (2k+n-1)! / ((2k)! x^(2k+n)) ]
"""

from __future__ import annotations

import numpy as np

from refhmc.compile.compiled import jit

ENOUGH = 20.0
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)  # B_2, B_4, ... B_16


@jit
def polygamma(n: int, x: float) -> float:
    """Return psi_n(x), the digamma function for n = 0, the trigamma for n = 1; NaN for x <= 0, outside any support."""
    if not x > 0:
        return np.nan
    factorial = 1.0
    for k in range(2, n + 1):
        factorial *= k
    sign = 1.0 if n % 2 else -1.0  # (-1)^(n+1)
    total = 0.0
    while x < ENOUGH:
        total += sign * factorial / x ** (n + 1)
        x += 1.0
    if n == 0:
        series = -np.log(x) + 0.5 / x
        power = 1.0
    else:
        series = factorial / n / x**n + factorial / (2 * x ** (n + 1))
        power = factorial / x**n
    # power = (2k + n - 1)! / ((2k)! x^(2k + n)), for n = 0 with 1/2k instead of the factorials
    for k in range(1, len(BERNOULLI) + 1):
        if n == 0:
            power /= x * x
            series += BERNOULLI[k - 1] * power / (2 * k)
        else:
            power *= 1 / (x * x)
            ratio = 1.0
            for m in range(2 * k + 1, 2 * k + n):  # (2k + n - 1)! / (2k)!
                ratio *= m
            series += BERNOULLI[k - 1] * ratio * power / factorial
    return total + sign * series
