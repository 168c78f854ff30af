"""One-page overview of a run: traces, histograms and energies, or the predictive band of a regression network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refhmc.diagnostics import e_bfmi
from refhmc.plot.canvas import BLACK, RED, colour, legend, name_axes, new_figure, panels, plain
from refhmc.plot.predictive import predictive_band, regression_data
from refhmc.plot.runs import Run, RunLike, of_few_chains, run_of, scalars
from refhmc.sampling.progress import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from refhmc.models.base import Model

MOST = 6  # scalars of the figure
MARKED = 200  # most divergences that are marked
BINS = 40


def overview(result: RunLike, model: Model | None = None, *, figure: Figure | None = None) -> Figure:
    """Plot traces, histograms and the energies of a run in one figure.

    The figure shows up to six scalars, with their true means and standard deviations if they are known, and the energies below.
    The histograms of chains that agree coincide. Small red ticks mark divergent transitions. The title of the last histogram
    has the range of the E-BFMI of the chains.

    Parameters
    ----------
    result : Result, ArviZ object or path
        A :class:`refhmc.Result`, the ArviZ object of either version, or a netCDF file. If the kernel has no energy (SGLD),
        the log density or the step size is plotted instead.
    model : Model, optional
        Model with the true moments (``model.reference``). For a regression network with one input, the predictive band is drawn
        instead of the weights.
    figure : matplotlib.figure.Figure, optional
        Figure to draw on. Defaults to a new one.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. At most 16 chains are drawn as lines.

    Notes
    -----
    For other scalars, use ArviZ's ``plot_trace`` (``plot_trace_dist`` in ArviZ 1.x). Its ``plot_energy`` shows the changes of
    the energy between draws.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Funnel(1)
    >>> result = refhmc.sample(model, refhmc.NUTS(), draws=50, tune=50, random_seed=1, progressbar=False, raw=True)
    >>> figure = refhmc.plot.overview(result, model)
    >>> [ax.get_ylabel() for ax in figure.axes[::2]]
    ['v', 'x[0]', 'energy']
    """
    whole, data = run_of(result), None if model is None else regression_data(model)
    run = of_few_chains(whole)
    what, energies = energy_or_step(run)
    if model is not None and data is not None and data[0].shape[1:] == (1,) and 0 not in run.shape:
        figure = new_figure(8, 7) if figure is None else figure
        band, below = figure.subplots(2, height_ratios=[3, 1])
        predictive_band(model, result, *data, ax=band)
        draw_chains(below, what, energies, run)
    else:
        shown, truth = scalars(run, None, MOST), {} if model is None else truth_of(model)
        rows = len(shown) + 1
        figure, grid = panels(figure, rows, 2, 10, 1.8 * rows, gridspec_kw={"width_ratios": [3, 1]})
        for (name, values), (along, beside) in zip(shown.items(), grid, strict=False):
            draw_chains(along, name, values, run)
            draw_histograms(beside, values)
            draw_truth(along, beside, *truth.get(name, (None, None)))
        legend(grid[0, 1])
        below, beside = grid[-1]
        draw_chains(below, what, energies, run)
        draw_histograms(beside, energies)
        if what == "energy" and energies.shape[1] > 1:
            fractions = e_bfmi(energy_or_step(whole)[1])
            beside.set_title(f"E-BFMI {np.nanmin(fractions):.2f} to {np.nanmax(fractions):.2f}", fontsize="small")
    below.set_xlabel("draw")
    diverged = whole.statistic("diverging")
    words = "" if diverged is None else f"; {count(int(np.sum(diverged)), 'divergence')} (red)"
    name = run.attributes.get("model", "" if model is None else model.name)
    chains, draws = whole.shape
    some = f" ({run.shape[0]} are drawn)" if run.shape[0] < chains else ""
    figure.suptitle(plain(f"{name}: {count(chains, 'chain')}{some} of {count(draws, 'draw')}{words}"), usetex=False)
    return figure


def truth_of(model: Model) -> dict[str, tuple[float, float | None]]:
    """Return true means and standard deviations (None if unknown) of the constrained scalars, by name."""
    known = model.reference
    if known is None or known.mean is None:
        return {}
    sd = [None] * len(known.mean) if known.variance is None else np.sqrt(known.variance)
    rows = zip(model.reference_names, known.mean, sd, strict=True)
    return {name: (float(mean), None if each is None else float(each)) for name, mean, each in rows}


def energy_or_step(run: Run) -> tuple[str, np.ndarray]:
    """Return label and values (chain, draw) of the energy, or else of the log density or of the step size."""
    for name in ("energy", "lp", "step_size"):
        found = run.statistic(name)
        if found is not None:
            return name.replace("_", " "), found
    return "energy", np.empty((0, 0))


def draw_chains(ax: Axes, name: str, values: np.ndarray, run: Run) -> None:
    """Draw the values (chain, draw) along each chain, and ticks at the divergent transitions."""
    for chain, of_chain in enumerate(np.where(np.isfinite(values), values, np.nan)):
        ax.plot(of_chain, lw=0.5, marker="." if len(of_chain) == 1 else "", color=colour(chain))
    name_axes(ax, y=name)
    diverging = run.statistic("diverging")
    if diverging is not None and diverging.any():
        draws = np.nonzero(diverging)[1][:MARKED]
        ax.plot(draws, np.zeros(len(draws)), "|", color=RED, ms=8, transform=ax.get_xaxis_transform(), clip_on=False)


def draw_histograms(ax: Axes, values: np.ndarray) -> None:
    """Draw the histogram of each chain without the outermost 1/1000 on each side."""
    ax.set_yticks([])
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, [0.001, 0.999]) if finite.size else (0.0, 0.0)
    for chain, of_chain in enumerate(values):
        there = of_chain[(low <= of_chain) & (of_chain <= high)]
        if high > low and there.size:
            ax.hist(there, bins=BINS, range=(low, high), histtype="step", density=True, color=colour(chain))


def draw_truth(along: Axes, beside: Axes, mean: float | None, sd: float | None) -> None:
    """Draw the true mean as a line, and one standard deviation on each side as a band."""
    if mean is not None:
        along.axhline(mean, color=BLACK, lw=0.8)
        beside.axvline(mean, color=BLACK, lw=0.8, label="true mean")
    if mean is not None and sd is not None:
        beside.axvspan(mean - sd, mean + sd, color=BLACK, alpha=0.08, label="true sd")
