"""Of a network for regression: how it fits its data, and its predictive band."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.result import Result

DRAWS = 200  # predicted from, of each chain, or up to twice as many
OUTSIDE = 0.25  # the picture goes beyond the data by so much of their range


def regression_data(model: Model) -> tuple[np.ndarray, np.ndarray] | None:
    """X (n, inputs) and y (n, outputs) of a network with a Gaussian likelihood, whole or split."""
    from refhmc.models.networks.likelihoods import Gaussian

    whole = getattr(model, "whole", model)
    return whole.data if isinstance(whole.likelihood, Gaussian) and isinstance(whole.data, tuple) else None


def means_and_sds(model: Model, result: Result, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from refhmc.sampling.prediction import predict

    group = predict(model, result, X, thin=max(1, result.draws.shape[1] // DRAWS)).groups["predictions"]
    return group["mean"], group["sd"]


def fit_to_data(model: Model, result: Result, X: np.ndarray, y: np.ndarray) -> str:
    """The fit to the data that the model was made from, in a line."""
    from refhmc.uncertainty import coverage, gaussian_negative_log_likelihood, root_mean_squared_error

    mean, sd = means_and_sds(model, result, X)
    return (
        f"fit to its {len(y)} rows: RMSE {root_mean_squared_error(mean, y):.4f}, NLL "
        f"{gaussian_negative_log_likelihood(mean, sd, y):.4f}; {coverage(mean, sd, y, 1):.1%} within one predictive "
        f"standard deviation, {coverage(mean, sd, y, 2):.1%} within two"
    )


def energy_or_step(result: Result) -> tuple[str, np.ndarray]:
    """What is drawn below the draws, (chain, draw): a kernel of minibatches has no energy, but a step, which may vary."""
    what = next(name for name in ("energy", "lp", "step_size") if name in result.sample_stats)
    return {"step_size": "step size"}.get(what, what), result.sample_stats[what]


def plot_predictive_band(model: Model, result: Result, x: np.ndarray, y: np.ndarray, path: pathlib.Path) -> None:
    """Write a PNG: mean and bands beside the data x (n, 1), and the energies. Raises ImportError without matplotlib."""
    from refhmc.core.matplotlib import import_matplotlib
    from refhmc.uncertainty import plot_band

    Figure = import_matplotlib("matplotlib.figure").Figure
    band, energy = (figure := Figure(figsize=(8, 7), layout="constrained")).subplots(2, height_ratios=[3, 1])
    low, high = float(x.min()), float(x.max())
    beyond = OUTSIDE * (high - low)
    places = np.linspace(low - beyond, high + beyond, 300)[:, None]
    plot_band(places, *means_and_sds(model, result, places), data=(x, y), ax=band)
    what, energies = energy_or_step(result)
    energy.plot(energies.T, lw=0.5)
    energy.set(xlabel="draw", ylabel=what)
    figure.suptitle(f"{model.name}: {len(result.draws)} chains of {result.draws.shape[1]} draws")
    figure.savefig(path, dpi=120, format="png")
