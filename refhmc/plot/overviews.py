"""A run on one page: draws, histograms beside the known truth, energies; of a regression network its predictive band."""

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
    """For up to six scalars the draws of each chain and their histograms, beside the known truth; the energies below.

    result : a :class:`refhmc.Result`, ArviZ's object, or a file of it.
    model : for the truth (``model.reference``), and for a regression network on one input, of which the predictive band is
        drawn in place of its weights.

    Of very many chains the first 16 are lines. Returns the Figure, which is ``figure`` if one is given.
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
    """Means and standard deviations (None where they are not known) of the constrained scalars, by name; {} if not
    known."""
    known = model.reference
    if known is None or known.mean is None:
        return {}
    sd = [None] * len(known.mean) if known.variance is None else np.sqrt(known.variance)
    rows = zip(model.reference_names, known.mean, sd, strict=True)
    return {name: (float(mean), None if each is None else float(each)) for name, mean, each in rows}


def draw_energies(ax: Any, run: Run) -> None:
    """Along each chain, with a mark where a transition diverged."""
    what, energies = energy_or_step(run)
    for chain, of_chain in enumerate(() if energies is None else energies):
        ax.plot(np.where(np.isfinite(of_chain), of_chain, np.nan), lw=0.5, color=colour(chain))
    mark_divergences(ax, run)
    ax.set(xlabel="draw", ylabel=what)
