"""Uncertainty and accuracy of predictions, from :func:`refhmc.predict` or from other arrays.

:mod:`refhmc.uncertainty.classification` takes probabilities (..., n, classes). :mod:`refhmc.uncertainty.regression` takes
means (..., n, outputs) and standard deviations (...). The axes in front are those of the draws: none, one, or chain and
draw. :mod:`refhmc.uncertainty.plots` plots both.
"""

from __future__ import annotations

from refhmc.uncertainty.classification import (
    Calibration,
    Confusion,
    accuracy,
    brier_score,
    calibration_curve,
    cumulative_entropy,
    expected_calibration_error,
    expected_entropy,
    mutual_information,
    mutual_information_matrix,
    negative_log_likelihood,
    predicted_class,
    predictive_entropy,
)
from refhmc.uncertainty.plots import (
    plot_band,
    plot_calibration_curve,
    plot_cumulative_entropy,
    plot_mutual_information_matrix,
)
from refhmc.uncertainty.regression import band, coverage, gaussian_negative_log_likelihood, root_mean_squared_error

__all__ = [
    "Calibration",
    "Confusion",
    "accuracy",
    "band",
    "brier_score",
    "calibration_curve",
    "coverage",
    "cumulative_entropy",
    "expected_calibration_error",
    "expected_entropy",
    "gaussian_negative_log_likelihood",
    "mutual_information",
    "mutual_information_matrix",
    "negative_log_likelihood",
    "plot_band",
    "plot_calibration_curve",
    "plot_cumulative_entropy",
    "plot_mutual_information_matrix",
    "predicted_class",
    "predictive_entropy",
    "root_mean_squared_error",
]
