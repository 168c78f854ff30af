"""Of a network for regression: its data, what it predicts, and its predictive band."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.plot.canvas import axes
from refhmc.plot.runs import run_of

if TYPE_CHECKING:
    from refhmc.models.base import Model

DRAWS = 200  # predicted from, of each chain, or up to twice as many
OUTSIDE = 0.25  # the picture goes beyond the data by so much of their range


def regression_data(model: Model) -> tuple[np.ndarray, np.ndarray] | None:
    """X (n, inputs) and y (n, outputs) of a network with a Gaussian likelihood, whole or split."""
    from refhmc.models.networks.likelihoods import Gaussian

    whole = getattr(model, "whole", model)
    return whole.data if isinstance(whole.likelihood, Gaussian) and isinstance(whole.data, tuple) else None


def means_and_sds(model: Model, result: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each draw the mean and the standard deviation of the outputs at X, as :func:`refhmc.predict` has them."""
    from refhmc.sampling.prediction import predict

    predicted = predict(model, result, X, thin=max(1, run_of(result).shape[1] // DRAWS))
    group = run_of(predicted).groups["predictions"]
    return group["mean"], group["sd"]


def predictive_band(model: Model, result: Any, x: np.ndarray, y: np.ndarray, *, ax: Any = None) -> Any:
    """Mean and bands of one and two standard deviations of what a network on one input predicts, beside its data x (n, 1),
    y (n, 1), and beyond them by a quarter of their range. Returns the Axes."""
    from refhmc.uncertainty import plot_band

    low, high = float(x.min()), float(x.max())
    beyond = OUTSIDE * (high - low)
    places = np.linspace(low - beyond, high + beyond, 300)[:, None]
    return plot_band(places, *means_and_sds(model, result, places), data=(x, y), ax=axes(ax))
