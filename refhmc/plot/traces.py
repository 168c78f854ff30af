"""Draws along the chains, and their histograms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refhmc.core.arguments import is_number
from refhmc.plot.canvas import BLACK, RED, colour, legend, name_axes, panels
from refhmc.plot.runs import Run, names_of, of_few_chains, run_of, scalars

MOST = 6  # rows
MARKED = 200  # divergences that are marked
BINS = 40


def trace(result: Any, variables: Any = None, *, truth: Any = None, figure: Any = None) -> Any:
    """For each scalar its draws along each chain, and beside them each chain's histogram: chains that agree lie on each
    other.

    result : a :class:`refhmc.Result`, ArviZ's object, or a file of it; values (chain, draw, ...).
    variables : names of scalars, ``"theta[0]"``, or of variables, ``"theta"``; default the first six.
    truth : means and standard deviations by name, ``{"theta[0]": (mean, sd)}``: a line, and a band of one standard
        deviation to each side; or means alone, ``{"theta[0]": mean}``.

    Of very many chains the first 16 are drawn. Small red ticks are transitions that diverged. Returns the Figure, which is
    ``figure`` if one is given. Raises ValueError for a name that the result has not, TypeError for a truth of another kind.
    """
    run = of_few_chains(run_of(result))
    shown = scalars(run, variables, MOST if variables is None else None)
    known = {} if truth is None else checked_truth(truth, run)
    rows = max(1, len(shown))
    figure, grid = panels(figure, rows, 2, 10, 1.8 * rows + 0.6, gridspec_kw={"width_ratios": [3, 1]})
    for (name, values), row in zip(shown.items(), grid, strict=False):
        draw_scalar(row[0], row[1], name, values, known.get(name), run)
    legend(grid[0, 1])
    grid[-1, 0].set_xlabel("draw")
    return figure


def checked_truth(truth: Any, run: Run) -> dict[str, tuple[float, float | None]]:
    """Mean and standard deviation, None of a mean alone, by the scalar's name. Raises TypeError, ValueError."""
    how = 'a dictionary of means, or of (mean, sd), by name: {"theta[0]": (1.0, 0.5)}'
    if not isinstance(truth, Mapping):
        raise TypeError(f"truth must be {how}; got {type(truth).__name__}")
    there = [name for key, value in run.values.items() for name in names_of(key, value)]
    known: dict[str, tuple[float, float | None]] = {}
    for name, given in truth.items():
        if name not in there:
            raise ValueError(f"truth: the result has no scalar named {name!r}; it has {', '.join(there[:10])}")
        pair = (given, None) if np.ndim(given) == 0 else tuple(given)
        if len(pair) != 2 or not is_number(pair[0]) or not (pair[1] is None or is_number(pair[1])):
            raise TypeError(f"truth must be {how}; of {name!r} it is {given!r}")
        known[name] = (float(pair[0]), None if pair[1] is None else float(pair[1]))
    return known


def draw_scalar(along: Any, beside: Any, name: str, values: np.ndarray, truth: tuple | None, run: Run) -> None:
    """One row of :func:`trace`, of values (chain, draw)."""
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, [0.001, 0.999]) if finite.size else (0.0, 0.0)
    for chain, of_chain in enumerate(values):
        along.plot(of_chain, lw=0.5, marker="." if len(of_chain) == 1 else "", color=colour(chain))
        there = of_chain[(low <= of_chain) & (of_chain <= high)]
        if high > low and there.size:
            beside.hist(there, bins=BINS, range=(low, high), histtype="step", density=True, color=colour(chain))
    if truth is not None:
        mean, sd = truth
        along.axhline(mean, color=BLACK, lw=0.8)
        beside.axvline(mean, color=BLACK, lw=0.8, label="true mean")
        if sd is not None:
            beside.axvspan(mean - sd, mean + sd, color=BLACK, alpha=0.08, label="true sd")
    name_axes(along, y=name)
    beside.set_yticks([])
    mark_divergences(along, run)


def mark_divergences(ax: Any, run: Run) -> None:
    """Ticks below the draws whose transitions diverged; of very many the first."""
    diverging = run.statistic("diverging")
    if diverging is None or not diverging.any():
        return
    draws = np.nonzero(diverging)[1][:MARKED]
    ax.plot(draws, np.zeros(len(draws)), "|", color=RED, ms=8, transform=ax.get_xaxis_transform(), clip_on=False)
