"""Metrics of class probabilities p_s (n, classes), one array for each draw s = 1, ..., S, and of labels y.

::

    mean                p = 1/S sum_s p_s                      the posterior predictive distribution
    predictive entropy  H[p] = -sum_k p_k log p_k
    expected entropy    1/S sum_s H[p_s]
    mutual information  H[p] - 1/S sum_s H[p_s] = 1/S sum_s KL(p_s | p)    between the label and the parameters

(Houlsby et al. 2011; Cobb and Jalaian 2021, section 6.4). Entropies are in nats, with 0 log 0 = 0. The predicted class is
the one with the largest p_k, the first of several. Over the rows ::

    accuracy     mean of [predicted = y]           NLL    mean of -log p_y           Brier    mean of sum_k (p_k - [k = y])^2

(Brier 1950; Cobb and Jalaian's table 4). With the rows in bins B of their confidence max_k p_k, equally wide and open below
(Guo et al. 2017) ::

    ECE = sum_B |B| / n |accuracy in B - mean confidence in B|.

In all functions, ``probability`` is (..., n, classes), where all axes in front are draws. ``y`` (n,) has the labels 0, ...,
classes - 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from refhmc.core.arguments import whole_number
from refhmc.errors import ShapeError
from refhmc.models.inputs import labels

SUM_TO_ONE = 1e-4  # tolerance for the sum of probabilities in single precision


class Calibration(NamedTuple):
    """A calibration curve, with one entry per bin.

    Parameters
    ----------
    upper : ndarray of shape (bins,)
        Upper ends of the bins.
    rows : ndarray of shape (bins,)
        Numbers of rows.
    confidence : ndarray of shape (bins,)
        Mean confidence, NaN in an empty bin.
    accuracy : ndarray of shape (bins,)
        Accuracy, NaN in an empty bin.
    """

    upper: np.ndarray
    rows: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray


class Confusion(NamedTuple):
    """Means by true class (first axis) and predicted class (second axis).

    Parameters
    ----------
    mean : ndarray of shape (classes, classes)
        Mean over the rows with these classes, NaN if there are none.
    rows : ndarray of shape (classes, classes)
        Numbers of rows.
    """

    mean: np.ndarray
    rows: np.ndarray


def draws_of(probability: ArrayLike) -> np.ndarray:
    """Return the probabilities as (S, n, classes), after checking them."""
    p = np.asarray(probability, dtype=float)
    if p.ndim < 2 or 0 in p.shape:
        raise ShapeError(f"probability must have the shape (..., n, classes), without empty axes; got {p.shape}.")
    wrong = np.argwhere(~((p >= 0).all(axis=-1) & (np.abs(p.sum(axis=-1) - 1) <= SUM_TO_ONE)))
    if len(wrong):
        at = wrong[0].tolist()
        raise ValueError(f"probability must be non-negative with sum 1 over the classes; got {p[tuple(at)]} at {at}.")
    return p.reshape(-1, *p.shape[-2:])


def mean_and_labels(probability: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over draws (n, classes) and the labels, after checking them."""
    p = draws_of(probability).mean(axis=0)
    if np.shape(y) != p.shape[:1]:
        raise ShapeError(
            f"y must have the shape ({len(p)},), with a label for each row of probability; got {np.shape(y)}."
        )
    return p, labels(y, p.shape[1])


def predictive_entropy(probability: ArrayLike) -> np.ndarray:
    """Return the entropy H[p] of the posterior predictive distribution, in nats.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.

    Returns
    -------
    ndarray of shape (n,)
        Entropy of each row.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.predictive_entropy(p).round(3).tolist()
    [0.693, 0.562]
    """
    return entr(draws_of(probability).mean(axis=0)).sum(axis=1)


def expected_entropy(probability: ArrayLike) -> np.ndarray:
    """Return the mean over draws of the entropy H[p_s], in nats.

    It is the uncertainty of the label that remains if the parameters are known.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.

    Returns
    -------
    ndarray of shape (n,)
        Expected entropy of each row.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes.

    Examples
    --------
    >>> import refhmc
    >>> p = [[[1.0, 0.0]], [[0.0, 1.0]]]
    >>> refhmc.uncertainty.expected_entropy(p).tolist()
    [0.0]
    """
    draws = draws_of(probability)
    return sum((entr(p).sum(axis=1) for p in draws), np.zeros(draws.shape[1])) / len(draws)


def mutual_information(probability: ArrayLike) -> np.ndarray:
    """Return the mutual information between label and parameters, in nats.

    It is H[p] - 1/S sum_s H[p_s], and at least 0 despite rounding.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.

    Returns
    -------
    ndarray of shape (n,)
        Mutual information of each row.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes.

    References
    ----------
    Houlsby et al. (2011), Bayesian active learning for classification and preference learning, arXiv:1112.5745.

    Examples
    --------
    >>> import refhmc
    >>> p = [[[1.0, 0.0]], [[0.0, 1.0]]]
    >>> refhmc.uncertainty.mutual_information(p).round(3).tolist()
    [0.693]
    """
    return np.maximum(predictive_entropy(probability) - expected_entropy(probability), 0.0)


def predicted_class(probability: ArrayLike) -> np.ndarray:
    """Return the most probable class of each row, the first of several.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.

    Returns
    -------
    ndarray of shape (n,)
        Class of each row.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.predicted_class(p).tolist()
    [0, 1]
    """
    return np.argmax(draws_of(probability).mean(axis=0), axis=1)


def accuracy(probability: ArrayLike, y: ArrayLike) -> float:
    """Return the share of rows whose predicted class is the label.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.

    Returns
    -------
    float
        Accuracy, from 0 to 1.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.accuracy(p, [1, 1])
    0.5
    """
    p, y = mean_and_labels(probability, y)
    return float(np.mean(np.argmax(p, axis=1) == y))


def negative_log_likelihood(probability: ArrayLike, y: ArrayLike) -> float:
    """Return the mean of -log p_y over the rows.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.

    Returns
    -------
    float
        Negative log-likelihood per row in nats, inf if a label has probability zero.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> round(refhmc.uncertainty.negative_log_likelihood(p, [1, 1]), 3)
    0.49
    """
    p, y = mean_and_labels(probability, y)
    with np.errstate(divide="ignore"):
        return float(0.0 - np.mean(np.log(p[np.arange(len(y)), y])))


def brier_score(probability: ArrayLike, y: ArrayLike) -> float:
    """Return the mean of sum_k (p_k - [k = y])^2 over the rows.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.

    Returns
    -------
    float
        Brier score, from 0 to 2.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label.

    References
    ----------
    Brier (1950), Verification of forecasts expressed in terms of probability, Monthly Weather Review 78, 1-3.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.brier_score(p, [1, 1])
    0.3125
    """
    p, y = mean_and_labels(probability, y)
    return float(np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1)))


def calibration_curve(probability: ArrayLike, y: ArrayLike, bins: int = 15) -> Calibration:
    """Return accuracy and mean confidence in bins of the confidence.

    The confidence is max_k p_k. The bins are equally wide and open below.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.
    bins : int, default 15
        Number of bins.

    Returns
    -------
    Calibration
        Upper ends, numbers of rows, mean confidence and accuracy of the bins.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label, or if `bins` is not a
        positive integer.

    References
    ----------
    Guo et al. (2017), On calibration of modern neural networks, arXiv:1706.04599.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.calibration_curve(p, [1, 1], bins=2).rows.tolist()
    [1, 1]
    """
    p, y = mean_and_labels(probability, y)
    bins = whole_number("bins", bins)
    upper = np.arange(1, bins + 1) / bins
    confidence, right = np.max(p, axis=1), np.argmax(p, axis=1) == y
    bin_of = np.minimum(np.searchsorted(upper, confidence), bins - 1)  # rounding may give a sum above 1
    rows, sums, hits = (np.bincount(bin_of, w, minlength=bins) for w in (None, confidence, right))
    with np.errstate(invalid="ignore"):
        return Calibration(upper, rows, sums / rows, hits / rows)


def expected_calibration_error(probability: ArrayLike, y: ArrayLike, bins: int = 15) -> float:
    """Return the expected calibration error (ECE).

    It is the mean over the rows of the distance between accuracy and mean confidence in the bin of the row ::

        ECE = sum_B |B| / n |accuracy in B - mean confidence in B|

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.
    bins : int, default 15
        Number of bins.

    Returns
    -------
    float
        ECE, from 0 to 1.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label, or if `bins` is not a
        positive integer.

    References
    ----------
    Guo et al. (2017), On calibration of modern neural networks, arXiv:1706.04599.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.expected_calibration_error(p, [1, 1], bins=2)
    0.375
    """
    _, rows, confidence, right = calibration_curve(probability, y, bins)
    return float(np.nansum(rows * np.abs(right - confidence)) / np.sum(rows))


def cumulative_entropy(probability: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the distribution function of the predictive entropy of misclassified rows.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.

    Returns
    -------
    entropy : ndarray of shape (m,)
        Predictive entropies of the m misclassified rows, in increasing order, in nats.
    share : ndarray of shape (m,)
        Share 1/m, ..., 1 of these rows up to each entropy.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label.

    References
    ----------
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo inference for Bayesian neural networks with symmetric splitting,
    fig. 2.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.cumulative_entropy(p, [1, 1])[1].tolist()
    [1.0]
    """
    p, y = mean_and_labels(probability, y)
    entropy = np.sort(entr(p).sum(axis=1)[np.argmax(p, axis=1) != y])
    return entropy, np.arange(1, len(entropy) + 1) / max(len(entropy), 1)


def mutual_information_matrix(probability: ArrayLike, y: ArrayLike) -> Confusion:
    """Return the mean mutual information by true and predicted class.

    Concatenate the arrays of several test sets along the rows to pool them.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.

    Returns
    -------
    Confusion
        Mean mutual information and number of rows by class.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label.

    References
    ----------
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo inference for Bayesian neural networks with symmetric splitting,
    fig. 3.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.mutual_information_matrix(p, [1, 1]).rows.tolist()
    [[0, 0], [1, 1]]
    """
    p, y = mean_and_labels(probability, y)
    k = p.shape[1]
    cell = k * y + np.argmax(p, axis=1)
    rows = np.bincount(cell, minlength=k * k)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(cell, mutual_information(probability), minlength=k * k) / rows
    return Confusion(mean.reshape(k, k), rows.reshape(k, k))
