"""One-page overview of a run: traces, histograms and energies, or the predictive band of a regression network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.plot.canvas import colour, legend, new_figure, panels, plain
from refhmc.plot.energies import energy_or_step, energy_transitions
from refhmc.plot.predictive import predictive_band, regression_data
from refhmc.plot.runs import Run, of_few_chains, run_of, scalars
from refhmc.plot.traces import MOST, draw_scalar, mark_divergences
from refhmc.sampling.progress import count

if TYPE_CHECKING:
    from refhmc.models.base import Model


def overview(result: Any, model: Model | None = None, *, figure: Any = None) -> Any:
    """Plot traces, histograms and the energies of a run in one figure.

    The figure shows up to six scalars, with their true means and standard deviations if they are known, and the energies below.

    Parameters
    ----------
    result : Result, ArviZ object or path
        A :class:`refhmc.Result`, the ArviZ object of either version, or a netCDF file.
    model : Model, optional
        Model with the true moments (``model.reference``). For a regression network with one input, the predictive band is drawn
        instead of the weights.
    figure : matplotlib.figure.Figure, optional
        Figure to draw on. Defaults to a new one.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. At most 16 chains are drawn as lines.

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
    if model is not None and data is not None and data[0].shape[1:] == (1,) and 0 not in run.shape:
        figure = new_figure(8, 7) if figure is None else figure
        band, below = figure.subplots(2, height_ratios=[3, 1])
        predictive_band(model, result, *data, ax=band)
        draw_energies(below, run)
    else:
        shown, truth = scalars(run, None, MOST), {} if model is None else truth_of(model)
        rows = len(shown) + 1
        figure, grid = panels(figure, rows, 2, 10, 1.8 * rows, gridspec_kw={"width_ratios": [3, 1]})
        for (name, values), row in zip(shown.items(), grid, strict=False):
            draw_scalar(row[0], row[1], name, values, truth.get(name), run)
        legend(grid[0, 1])
        draw_energies(grid[-1, 0], run)
        energy_transitions(whole, ax=grid[-1, 1])
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


def draw_energies(ax: Any, run: Run) -> None:
    """Draw the energy along each chain, with marks at the divergences."""
    what, energies = energy_or_step(run)
    for chain, of_chain in enumerate(() if energies is None else energies):
        ax.plot(np.where(np.isfinite(of_chain), of_chain, np.nan), lw=0.5, color=colour(chain))
    mark_divergences(ax, run)
    ax.set(xlabel="draw", ylabel=what)
