"""Logarithms of probability densities, constants included, for pointwise log likelihoods.

Arguments broadcast, and 0 log 0 = 0::

    N(m, s)      -(y - m)^2 / (2 s^2) - log s - log(2 pi)/2          Poisson(r)      y log r - r - log y!
    Bin(n, p)    log C(n, y) + y log p + (n - y) log(1 - p)
"""

from __future__ import annotations

import math

import numpy as np

Numbers = float | np.ndarray

HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def log_normal(y: Numbers, mean: Numbers, sd: Numbers) -> np.ndarray:
    """Return the log density of N(mean, sd) at y."""
    return -0.5 * ((y - mean) / sd) ** 2 - np.log(sd) - HALF_LOG_TWO_PI


def log_poisson(y: Numbers, rate: Numbers) -> np.ndarray:
    """Return the log probability of y under Poisson(rate)."""
    from scipy.special import gammaln, xlogy  # imported here: models with normal errors only do not need it

    return xlogy(y, rate) - rate - gammaln(np.add(y, 1.0))


def log_binomial(y: Numbers, n: Numbers, p: Numbers) -> np.ndarray:
    """Return the log probability of y under Bin(n, p)."""
    from scipy.special import gammaln, xlog1py, xlogy

    choose = gammaln(np.add(n, 1.0)) - gammaln(np.add(y, 1.0)) - gammaln(np.subtract(n, y) + 1.0)
    return choose + xlogy(y, p) + xlog1py(np.subtract(n, y), np.negative(p))
