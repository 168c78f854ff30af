"""Two scalars against each other, and where divergences start."""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.plot.canvas import BLACK, BLUE, RED, axes, legend, name_axes
from refhmc.plot.runs import before, run_of, scalars

SHOWN = 5000  # draws


def pairs(result: Any, x: str | None = None, y: str | None = None, *, ax: Any = None) -> Any:
    """Draws of two scalars as points, and the places where the transitions started that diverged.

    A divergence is where the energies of a trajectory spread by more than 1,000, or one is not finite: the curvature is
    too high for the step. Where their starts lie together, there the chain explores too little
    (:mod:`refhmc.core.sample_stats`).

    result : a :class:`refhmc.Result`, ArviZ's object, or a file of it; values (chain, draw, ...).
    x, y : names of scalars, "mu" or "theta[0]"; default the first and the second.

    Of very many draws every so many are shown, and every divergence. A transition of the first draws starts at warm-up's
    last, and is shown where ``save_warmup=True`` kept that. Of one scalar alone y is the draw's number. Returns the Axes.
    Raises ValueError for a name that the result has not.
    """
    run, ax = run_of(result), axes(ax, 5.6, 5.0)
    some = scalars(run, None, 2)
    names = [name for name in (x or next(iter(some), None), y or next(iter(list(some)[1:]), None)) if name is not None]
    found = scalars(run, names) if names else {}
    if any(name not in found for name in names):
        raise ValueError(f"x and y must be scalars, got {' and '.join(names)}; there are {', '.join(found)}")
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
