"""Scatter plot of two scalars, with the starts of divergent transitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refhmc.plot.canvas import BLACK, BLUE, RED, axes, legend, name_axes
from refhmc.plot.runs import RunLike, before, run_of, scalars

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 5000  # draws of the plot, at most about twice as many


def pairs(result: RunLike, x: str | None = None, y: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Plot the draws of two scalars and the starts of divergent transitions.

    A transition diverges if the energies along its trajectory differ by more than 1,000, or if one is not finite. The curvature
    is then too high for the step size. The chain explores too little where the starts of divergences cluster. Long runs are
    thinned, but every divergence is shown. The first transition starts at the last draw of warm-up, which is shown if
    ``save_warmup=True`` kept it.

    Parameters
    ----------
    result : Result, ArviZ object or path
        A :class:`refhmc.Result`, the ArviZ object of either version, or a netCDF file.
    x : str, optional
        Name of the scalar on the horizontal axis, such as "mu" or "theta[0]". Defaults to the first scalar.
    y : str, optional
        Name of the scalar on the vertical axis. Defaults to the second scalar, or to the draw number if there is only one.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the draws and the divergences.

    Raises
    ------
    ValueError
        If the result does not have a scalar `x` or `y`.

    Examples
    --------
    >>> import refhmc
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), refhmc.NUTS(), draws=50, tune=50, random_seed=1, progressbar=False, raw=True
    ... )
    >>> ax = refhmc.plot.pairs(result, "x[0]", "v")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x[0]', 'v')
    """
    run, ax = run_of(result), axes(ax, 5.6, 5.0)
    some = scalars(run, None, 2)
    names = [name for name in (x or next(iter(some), None), y or next(iter(list(some)[1:]), None)) if name is not None]
    found = scalars(run, names) if names else {}
    if any(name not in found for name in names):
        raise ValueError(
            f"x and y must be names of scalars; got {' and '.join(names)}. Choose from {', '.join(found)}."
        )
    if not names or not found[names[0]].size:
        return ax
    count = np.broadcast_to(np.arange(run.shape[1], dtype=float), run.shape)
    xs, ys = found[names[0]], found[names[1]] if len(names) > 1 else count
    every = max(1, xs.size // SHOWN)
    ax.plot(xs.ravel()[::every], ys.ravel()[::every], ".", color=BLUE, ms=3, alpha=0.4, mew=0, label="draws")
    diverging = run.statistic("diverging")
    if diverging is not None and diverging.any():
        start_x = before(run, xs, names[0], diverging)
        start_y = before(run, ys, names[1], diverging) if len(names) > 1 else np.nonzero(diverging)[1] - 1.0
        label = f"starts of divergences: {int(diverging.sum())}"
        ax.plot(start_x, start_y, "X", color=RED, mec=BLACK, mew=0.4, ms=6, label=label)
    name_axes(ax, names[0], names[1] if len(names) > 1 else "draw")
    legend(ax)
    return ax
