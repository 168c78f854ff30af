"""Of normal predictive distributions N(m_s, sd_s^2 I), one for each draw s = 1, ..., S, and observations y.

    p(y | x) = 1/S sum_s N(y | m_s(x), sd_s^2 I)           the posterior predictive distribution, a mixture
    mean     m = 1/S sum_s m_s
    variance v = 1/S sum_s sd_s^2 + 1/S sum_s (m_s - m)^2  noise, and what the draws do not agree on

    RMSE     root of the mean of (y - m)^2                 NLL    mean over rows of -log p(y | x)

In all functions ``mean`` is (..., n, outputs), all axes in front being draws, ``sd`` a number or one for each draw (...), ``y``
(n, outputs), or (n,) for one output. Raised are ShapeError for other shapes, ValueError for numbers that cannot be.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import logsumexp

from refhmc.errors import ShapeError
from refhmc.models.inputs import finite


def draws_of(mean: Any, sd: Any) -> tuple[np.ndarray, np.ndarray]:
    """(S, n, outputs) and (S, 1, 1), checked."""
    m, s = finite("mean", mean), finite("sd", sd)
    if m.ndim < 2 or 0 in m.shape:
        raise ShapeError(f"mean must be (..., n, outputs), none of them 0, got {m.shape}")
    if s.shape not in ((), m.shape[:-2]):
        raise ShapeError(f"sd must be a number or {m.shape[:-2]}, one for each draw, got {s.shape}")
    if not (s > 0).all():
        raise ValueError("sd must be positive")
    return m.reshape(-1, *m.shape[-2:]), np.broadcast_to(s, m.shape[:-2]).reshape(-1, 1, 1)


def observations(y: Any, shape: tuple[int, ...]) -> np.ndarray:
    y = finite("y", y)
    y = y[:, None] if y.ndim == 1 else y
    if y.shape != shape:
        raise ShapeError(f"y must be {shape}, as the rows and outputs of mean, got {y.shape}")
    return y


def root_mean_squared_error(mean: Any, y: Any) -> float:
    """RMSE of the mean over draws."""
    m, _ = draws_of(mean, 1.0)
    return math.sqrt(np.mean((observations(y, m.shape[1:]) - m.mean(axis=0)) ** 2))


def gaussian_negative_log_likelihood(mean: Any, sd: Any, y: Any) -> float:
    """NLL of the mixture; the outputs of a row together."""
    m, s = draws_of(mean, sd)
    y = observations(y, m.shape[1:])
    log_p = np.sum(-0.5 * ((y - m) / s) ** 2 - np.log(s) - 0.5 * math.log(2 * math.pi), axis=2)
    return float(np.mean(math.log(len(m)) - logsumexp(log_p, axis=0)))


def band(mean: Any, sd: Any, width: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """m - width sqrt(v) and m + width sqrt(v), (n, outputs) each."""
    m, s = draws_of(mean, sd)
    if not width > 0:
        raise ValueError(f"width must be positive, got {width!r}")
    half = width * np.sqrt(np.mean(s**2) + m.var(axis=0))
    return m.mean(axis=0) - half, m.mean(axis=0) + half


def coverage(mean: Any, sd: Any, y: Any, width: float = 2.0) -> float:
    """The share of observations in the band, ends included: were p(y | x) normal and right, 0.683 at width 1, 0.954 at 2."""
    low, high = band(mean, sd, width)
    y = observations(y, low.shape)
    return float(np.mean((low <= y) & (y <= high)))
