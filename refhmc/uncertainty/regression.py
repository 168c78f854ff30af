"""Metrics of normal predictive distributions N(m_s, sd_s^2 I), one for each draw s = 1, ..., S, and of observations y.

::

    p(y | x) = 1/S sum_s N(y | m_s(x), sd_s^2 I)           the posterior predictive distribution, a mixture
    mean     m = 1/S sum_s m_s
    variance v = 1/S sum_s sd_s^2 + 1/S sum_s (m_s - m)^2  noise, and disagreement of the draws

    RMSE     root of the mean of (y - m)^2                 NLL    mean over rows of -log p(y | x)

In all functions, ``mean`` is (..., n, outputs), where all axes in front are draws. ``sd`` is a number, or one per draw
(...). ``y`` is (n, outputs), or (n,) for one output.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from refhmc.errors import ShapeError
from refhmc.models.inputs import finite


def draws_of(mean: ArrayLike, sd: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return means (S, n, outputs) and standard deviations (S, 1, 1), after checking them."""
    m, s = finite("mean", mean), finite("sd", sd)
    if m.ndim < 2 or 0 in m.shape:
        raise ShapeError(f"mean must have the shape (..., n, outputs), without empty axes; got {m.shape}.")
    if s.shape not in ((), m.shape[:-2]):
        raise ShapeError(
            f"sd must be a number, or have the shape {m.shape[:-2]} with one for each draw; got {s.shape}."
        )
    if not (s > 0).all():
        raise ValueError(f"sd must be positive; got {s.min()}.")
    return m.reshape(-1, *m.shape[-2:]), np.broadcast_to(s, m.shape[:-2]).reshape(-1, 1, 1)


def observations(y: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    y = finite("y", y)
    y = y[:, None] if y.ndim == 1 else y
    if y.shape != shape:
        raise ShapeError(f"y must have the shape {shape}, the rows and outputs of mean; got {y.shape}.")
    return y


def root_mean_squared_error(mean: ArrayLike, y: ArrayLike) -> float:
    """Return the root mean squared error of the predictive mean.

    Parameters
    ----------
    mean : array_like of shape (..., n, outputs)
        Means m_s of the predictions. All axes in front are axes of draws.
    y : array_like of shape (n, outputs), or (n,) for one output
        Observations.

    Returns
    -------
    float
        RMSE over rows and outputs.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If a number is not finite.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.uncertainty.root_mean_squared_error([[0.0], [1.0]], [0.0, 3.0]) ** 2 < 2.01
    True
    """
    m, _ = draws_of(mean, 1.0)
    return math.sqrt(np.mean((observations(y, m.shape[1:]) - m.mean(axis=0)) ** 2))


def gaussian_negative_log_likelihood(mean: ArrayLike, sd: ArrayLike, y: ArrayLike) -> float:
    """Return the mean over rows of -log p(y | x), with p the mixture over the draws.

    The outputs of a row enter jointly.

    Parameters
    ----------
    mean : array_like of shape (..., n, outputs)
        Means m_s of the predictions. All axes in front are axes of draws.
    sd : float or array_like of shape (...)
        Standard deviation of the noise, or one for each draw.
    y : array_like of shape (n, outputs), or (n,) for one output
        Observations.

    Returns
    -------
    float
        Negative log-likelihood per row, in nats.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If a number is not finite, or if `sd` is not positive.

    Examples
    --------
    >>> import refhmc
    >>> round(refhmc.uncertainty.gaussian_negative_log_likelihood([[0.0]], 1.0, [0.0]), 3)
    0.919
    """
    m, s = draws_of(mean, sd)
    y = observations(y, m.shape[1:])
    log_p = np.sum(-0.5 * ((y - m) / s) ** 2 - np.log(s) - 0.5 * math.log(2 * math.pi), axis=2)
    return float(np.mean(math.log(len(m)) - logsumexp(log_p, axis=0)))


def band(mean: ArrayLike, sd: ArrayLike, width: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Return the predictive band m - width sqrt(v), m + width sqrt(v).

    Parameters
    ----------
    mean : array_like of shape (..., n, outputs)
        Means m_s of the predictions. All axes in front are axes of draws.
    sd : float or array_like of shape (...)
        Standard deviation of the noise, or one for each draw.
    width : float, default 2.0
        Half width of the band, in standard deviations.

    Returns
    -------
    low : ndarray of shape (n, outputs)
        Lower ends.
    high : ndarray of shape (n, outputs)
        Upper ends.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If a number is not finite, or if `sd` or `width` is not positive.

    Examples
    --------
    >>> import refhmc
    >>> low, high = refhmc.uncertainty.band([[0.0], [1.0]], 0.5)
    >>> low.tolist(), high.tolist()
    ([[-1.0], [0.0]], [[1.0], [2.0]])
    """
    m, s = draws_of(mean, sd)
    if not width > 0:
        raise ValueError(f"width must be positive; got {width!r}.")
    half = width * np.sqrt(np.mean(s**2) + m.var(axis=0))
    return m.mean(axis=0) - half, m.mean(axis=0) + half


def coverage(mean: ArrayLike, sd: ArrayLike, y: ArrayLike, width: float = 2.0) -> float:
    """Return the share of observations inside the predictive band, ends included.

    For a correct normal p(y | x), it is 0.683 at width 1 and 0.954 at width 2.

    Parameters
    ----------
    mean : array_like of shape (..., n, outputs)
        Means m_s of the predictions. All axes in front are axes of draws.
    sd : float or array_like of shape (...)
        Standard deviation of the noise, or one for each draw.
    y : array_like of shape (n, outputs), or (n,) for one output
        Observations.
    width : float, default 2.0
        Half width of the band, in standard deviations.

    Returns
    -------
    float
        Coverage, from 0 to 1.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If a number is not finite, or if `sd` or `width` is not positive.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.uncertainty.coverage([[0.0], [1.0]], 0.5, [0.5, 3.0])
    0.5
    """
    low, high = band(mean, sd, width)
    y = observations(y, low.shape)
    return float(np.mean((low <= y) & (y <= high)))
