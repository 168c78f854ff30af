"""A picture of a run: traces, marginals beside the known truth, energies. Needs matplotlib (``refhmc[plot]``)."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

import numpy as np

from refhmc.cli.regression import energy_or_step, plot_predictive_band, regression_data
from refhmc.core.matplotlib import import_matplotlib

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.result import Result

MAX_ROWS = 6


def plot_result(model: Model, result: Result, path: pathlib.Path) -> None:
    """Write a PNG: for up to six scalars the trace of each chain and its histogram, and the energies below.

    For a regression network on one input: its predictive band. Raises ImportError, saying what to install, without matplotlib.
    """
    data = regression_data(model)
    if data is not None and data[0].shape[1:] == (1,) and result.draws.size:
        return plot_predictive_band(model, result, *data, path)
    matplotlib = import_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    chains = result.draws.shape[0]
    scalars = np.concatenate([v.reshape(*v.shape[:2], -1) for v in result.posterior.values()], axis=2)
    names = model.reference_names[:MAX_ROWS]
    truth = model.reference
    figure = Figure(figsize=(10, 1.8 * (len(names) + 1)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(names) + 1, 2, gridspec_kw={"width_ratios": [3, 1]})
    colours = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.9, chains))
    for row, name in enumerate(names):
        trace, marginal = axes[row]
        low, high = np.quantile(scalars[:, :, row], [0.001, 0.999]) if scalars.size else (0.0, 1.0)
        for chain in range(chains):
            trace.plot(scalars[chain, :, row], lw=0.5, color=colours[chain])
            if high > low:
                marginal.hist(
                    scalars[chain, :, row],
                    bins=40,
                    range=(low, high),
                    histtype="step",
                    density=True,
                    color=colours[chain],
                )
        trace.set_ylabel(name)
        if truth is not None and truth.mean is not None:
            mean = truth.mean[row]
            trace.axhline(mean, color="black", lw=0.8)
            marginal.axvline(mean, color="black", lw=0.8, label="true mean")
            if truth.variance is not None:
                sd = np.sqrt(truth.variance[row])
                marginal.axvspan(mean - sd, mean + sd, color="black", alpha=0.08, label="true sd")
            if row == 0:
                marginal.legend(fontsize=7)
    energy, change = axes[-1]
    what, energies = energy_or_step(result)
    for chain in range(chains):
        energy.plot(energies[chain], lw=0.5, color=colours[chain])
    energy.set_ylabel(what)
    energy.set_xlabel("draw")
    if scalars.size:
        change.hist((energies - energies.mean()).ravel(), bins=40, histtype="step", density=True, label=what)
        steps = np.diff(energies, axis=1)
        change.hist(steps.ravel(), bins=40, histtype="step", density=True, label="change")
        change.legend(fontsize=7)
    diverging = np.argwhere(result.sample_stats["diverging"])
    for _, draw in diverging[:200]:
        energy.axvline(draw, color="red", lw=0.3, alpha=0.5)
    figure.suptitle(
        f"{model.name}: {chains} chains of {result.draws.shape[1]} draws; {len(diverging)} divergences (red)"
    )
    figure.savefig(path, dpi=120, format="png")
