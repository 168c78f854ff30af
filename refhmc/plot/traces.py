"""Trace plots and histograms of the draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refhmc.core.arguments import is_number
from refhmc.plot.canvas import BLACK, RED, colour, legend, name_axes, panels
from refhmc.plot.runs import Run, names_of, of_few_chains, run_of, scalars

MOST = 6  # default number of rows
MARKED = 200  # most divergences that are marked
BINS = 40


def trace(result: Any, variables: Any = None, *, truth: Any = None, figure: Any = None) -> Any:
    """Plot the draws of each chain and their histograms, with one row per scalar.

    The histograms of chains that agree coincide. Small red ticks mark divergent transitions.

    Parameters
    ----------
    result : Result, ArviZ object or path
        A :class:`refhmc.Result`, the ArviZ object of either version, or a netCDF file.
    variables : str or list of str, optional
        Names of scalars, ``"theta[0]"``, or of variables, ``"theta"``. Defaults to the first six scalars.
    truth : dict, optional
        True values by name of the scalar: a mean, ``{"theta[0]": mean}``, drawn as a line, or mean and standard deviation,
        ``{"theta[0]": (mean, sd)}``, drawn with a band of one standard deviation on each side.
    figure : matplotlib.figure.Figure, optional
        Figure to draw on. Defaults to a new one.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. At most 16 chains are drawn.

    Raises
    ------
    ValueError
        If the result does not have a value of that name.
    TypeError
        If `truth` has another form.

    Examples
    --------
    >>> import refhmc
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), refhmc.NUTS(), draws=50, tune=50, random_seed=1, progressbar=False, raw=True
    ... )
    >>> figure = refhmc.plot.trace(result, ["v"], truth={"v": (0.0, 3.0)})
    >>> len(figure.axes)
    2
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
    """Return mean and standard deviation (None if not given) by scalar name. Raises TypeError or ValueError."""
    how = 'a dictionary of means or of pairs (mean, sd) by name, such as {"theta[0]": (1.0, 0.5)}'
    if not isinstance(truth, Mapping):
        raise TypeError(f"truth must be {how}; got {type(truth).__name__}.")
    there = [name for key, value in run.values.items() for name in names_of(key, value)]
    known: dict[str, tuple[float, float | None]] = {}
    for name, given in truth.items():
        if name not in there:
            raise ValueError(f"truth must name scalars of the result; got {name!r}. It has {', '.join(there[:10])}.")
        pair = (given, None) if np.ndim(given) == 0 else tuple(given)
        if len(pair) != 2 or not is_number(pair[0]) or not (pair[1] is None or is_number(pair[1])):
            raise TypeError(f"truth must be {how}; got {given!r} for {name!r}.")
        known[name] = (float(pair[0]), None if pair[1] is None else float(pair[1]))
    return known


def draw_scalar(along: Any, beside: Any, name: str, values: np.ndarray, truth: tuple | None, run: Run) -> None:
    """Draw one row of :func:`trace` for values (chain, draw)."""
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
    """Mark at most 200 divergent transitions by ticks below the draws."""
    diverging = run.statistic("diverging")
    if diverging is None or not diverging.any():
        return
    draws = np.nonzero(diverging)[1][:MARKED]
    ax.plot(draws, np.zeros(len(draws)), "|", color=RED, ms=8, transform=ax.get_xaxis_transform(), clip_on=False)
