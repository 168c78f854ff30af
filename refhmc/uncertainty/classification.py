"""Of class probabilities p_s (n, classes), one array for each draw s = 1, ..., S, and labels y.

    mean                p = 1/S sum_s p_s                      the posterior predictive distribution
    predictive entropy  H[p] = -sum_k p_k log p_k
    expected entropy    1/S sum_s H[p_s]
    mutual information  H[p] - 1/S sum_s H[p_s] = 1/S sum_s KL(p_s | p)    between the label and the parameters

(Houlsby et al. 2011; Cobb and Jalaian 2021, section 6.4). Entropies are in nats, 0 log 0 = 0. The predicted class is the first
of the largest p_k. Over the rows,

    accuracy     mean of [predicted = y]           NLL    mean of -log p_y           Brier    mean of sum_k (p_k - [k = y])^2

(Brier 1950; Cobb and Jalaian's table 4), and with the rows in bins B of their confidence max_k p_k, equally wide, open below
(Guo et al. 2017),

    ECE = sum_B |B| / n |accuracy in B - mean confidence in B|.

In all functions ``probability`` is (..., n, classes), all axes in front being draws, and ``y`` (n,) has the labels 0, ...,
classes - 1. Raised are ShapeError for other shapes, ValueError for what is not a distribution or not a label.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr

from refhmc.core.arguments import whole_number
from refhmc.errors import ShapeError
from refhmc.models.inputs import labels

SUM_TO_ONE = 1e-4  # what probabilities of single precision may miss it by


class Calibration(NamedTuple):
    """For each bin, (bins,): upper end, rows in it, their mean confidence and accuracy (NaN in an empty bin)."""

    upper: np.ndarray
    rows: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray


class Confusion(NamedTuple):
    """[true class, predicted class], (classes, classes): the mean over the rows there, NaN where there are none; how many."""

    mean: np.ndarray
    rows: np.ndarray


def draws_of(probability: Any) -> np.ndarray:
    """(S, n, classes), checked."""
    p = np.asarray(probability, dtype=float)
    if p.ndim < 2 or 0 in p.shape:
        raise ShapeError(f"probability must be (..., n, classes), none of them 0, got {p.shape}")
    wrong = np.argwhere(~((p >= 0).all(axis=-1) & (np.abs(p.sum(axis=-1) - 1) <= SUM_TO_ONE)))
    if len(wrong):
        at = wrong[0].tolist()
        raise ValueError(
            f"probability must not be negative, and its sum over the classes must be 1; probability{at} is {p[tuple(at)]}"
        )
    return p.reshape(-1, *p.shape[-2:])


def mean_and_labels(probability: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The mean over draws (n, classes), and y, checked."""
    p = draws_of(probability).mean(axis=0)
    if np.shape(y) != p.shape[:1]:
        raise ShapeError(f"y must be ({len(p)},), a label for each row of probability, got {np.shape(y)}")
    return p, labels(y, p.shape[1])


def predictive_entropy(probability: Any) -> np.ndarray:
    """H[p], (n,)"""
    return entr(draws_of(probability).mean(axis=0)).sum(axis=1)


def expected_entropy(probability: Any) -> np.ndarray:
    """The mean over draws of H[p_s], (n,): what would be left if the parameters were known."""
    draws = draws_of(probability)
    return sum((entr(p).sum(axis=1) for p in draws), np.zeros(draws.shape[1])) / len(draws)


def mutual_information(probability: Any) -> np.ndarray:
    """Between label and parameters, (n,); not below 0, where rounding could put it."""
    return np.maximum(predictive_entropy(probability) - expected_entropy(probability), 0.0)


def predicted_class(probability: Any) -> np.ndarray:
    """(n,), the first of several that are equally probable."""
    return np.argmax(draws_of(probability).mean(axis=0), axis=1)


def accuracy(probability: Any, y: Any) -> float:
    """The share of rows whose predicted class is y."""
    p, y = mean_and_labels(probability, y)
    return float(np.mean(np.argmax(p, axis=1) == y))


def negative_log_likelihood(probability: Any, y: Any) -> float:
    """Mean of -log p_y; inf where a label had no probability."""
    p, y = mean_and_labels(probability, y)
    with np.errstate(divide="ignore"):
        return float(0.0 - np.mean(np.log(p[np.arange(len(y)), y])))


def brier_score(probability: Any, y: Any) -> float:
    """Mean of sum_k (p_k - [k = y])^2, from 0 to 2."""
    p, y = mean_and_labels(probability, y)
    return float(np.mean(np.sum((p - np.eye(p.shape[1])[y]) ** 2, axis=1)))


def calibration_curve(probability: Any, y: Any, bins: int = 15) -> Calibration:
    """Accuracy against confidence in ``bins`` of equal width."""
    p, y = mean_and_labels(probability, y)
    bins = whole_number("bins", bins)
    upper = np.arange(1, bins + 1) / bins
    confidence, right = np.max(p, axis=1), np.argmax(p, axis=1) == y
    bin_of = np.minimum(np.searchsorted(upper, confidence), bins - 1)  # a sum of floats may lie above 1
    rows, sums, hits = (np.bincount(bin_of, w, minlength=bins) for w in (None, confidence, right))
    with np.errstate(invalid="ignore"):
        return Calibration(upper, rows, sums / rows, hits / rows)


def expected_calibration_error(probability: Any, y: Any, bins: int = 15) -> float:
    """ECE, from 0 to 1."""
    _, rows, confidence, right = calibration_curve(probability, y, bins)
    return float(np.nansum(rows * np.abs(right - confidence)) / np.sum(rows))


def cumulative_entropy(probability: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Predictive entropies of the m misclassified rows in order, and the share 1/m, ..., 1 of them up to there (figure 2)."""
    p, y = mean_and_labels(probability, y)
    entropy = np.sort(entr(p).sum(axis=1)[np.argmax(p, axis=1) != y])
    return entropy, np.arange(1, len(entropy) + 1) / max(len(entropy), 1)


def mutual_information_matrix(probability: Any, y: Any) -> Confusion:
    """Mean mutual information by true and predicted class (figure 3).

    Several test sets are pooled by putting their arrays together along the rows.
    """
    p, y = mean_and_labels(probability, y)
    k = p.shape[1]
    cell = k * y + np.argmax(p, axis=1)
    rows = np.bincount(cell, minlength=k * k)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(cell, mutual_information(probability), minlength=k * k) / rows
    return Confusion(mean.reshape(k, k), rows.reshape(k, k))
