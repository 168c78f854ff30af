"""Data, predictions and predictive band of a regression network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refhmc.plot.canvas import axes
from refhmc.plot.runs import RunLike, run_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from refhmc.models.base import Model

DRAWS = 200  # predictions use at least this many draws per chain, and less than twice as many
OUTSIDE = 0.25  # margin of the plot on each side of the data, relative to their range


def regression_data(model: Model) -> tuple[np.ndarray, np.ndarray] | None:
    """Return X (n, inputs) and y (n, outputs) of a network with a Gaussian likelihood, or None for other models."""
    from refhmc.models.networks.likelihoods import Gaussian

    whole = getattr(model, "whole", model)
    return whole.data if isinstance(whole.likelihood, Gaussian) and isinstance(whole.data, tuple) else None


def means_and_sds(model: Model, result: RunLike, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the outputs at X for each draw, as :func:`refhmc.predict` does."""
    from refhmc.sampling.results.prediction import predict

    predicted = predict(model, result, X, thin=max(1, run_of(result).shape[1] // DRAWS))
    group = run_of(predicted).groups["predictions"]
    return group["mean"], group["sd"]


def predictive_band(model: Model, result: RunLike, x: np.ndarray, y: np.ndarray, *, ax: Axes | None = None) -> Axes:
    """Draw the predictive mean of a one-input network with bands of one and two standard deviations.

    The data x (n, 1), y (n, 1) are shown, too. The band extends beyond the data by a quarter of their range. Returns the Axes.
    """
    from refhmc.uncertainty import plot_band

    low, high = float(x.min()), float(x.max())
    beyond = OUTSIDE * (high - low)
    places = np.linspace(low - beyond, high + beyond, 300)[:, None]
    return plot_band(places, *means_and_sds(model, result, places), data=(x, y), ax=axes(ax))
