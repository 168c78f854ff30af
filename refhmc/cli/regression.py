"""Of a network for regression: how it fits its data, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refhmc.plot.predictive import means_and_sds

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.result import Result


def fit_to_data(model: Model, result: Result, X: np.ndarray, y: np.ndarray) -> str:
    """The fit to the data that the model was made from, in a line."""
    from refhmc.uncertainty import coverage, gaussian_negative_log_likelihood, root_mean_squared_error

    mean, sd = means_and_sds(model, result, X)
    return (
        f"fit to its {len(y)} rows: RMSE {root_mean_squared_error(mean, y):.4f}, NLL "
        f"{gaussian_negative_log_likelihood(mean, sd, y):.4f}; {coverage(mean, sd, y, 1):.1%} within one predictive "
        f"standard deviation, {coverage(mean, sd, y, 2):.1%} within two"
    )
