"""One line on how well a regression network fits its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refhmc.plot.predictive import means_and_sds

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.results.result import Result


def fit_to_data(model: Model, result: Result, X: np.ndarray, y: np.ndarray) -> str:
    """Return a line with errors and coverage of the predictions for the data of the model."""
    from refhmc.uncertainty import coverage, gaussian_negative_log_likelihood, root_mean_squared_error

    mean, sd = means_and_sds(model, result, X)
    return (
        f"Fit to the {len(y)} rows of data: RMSE {root_mean_squared_error(mean, y):.4f}, NLL "
        f"{gaussian_negative_log_likelihood(mean, sd, y):.4f}; {coverage(mean, sd, y, 1):.1%} within one predictive "
        f"standard deviation, {coverage(mean, sd, y, 2):.1%} within two"
    )
