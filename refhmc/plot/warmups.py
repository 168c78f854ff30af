"""The adaptation of step size and metric during warm-up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from refhmc.plot.canvas import BLACK, GREY, colour, legend, panels
from refhmc.plot.runs import Run, RunLike, of_few_chains, run_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AVERAGED = 50  # iterations of a running mean
NOT_SAVED = "No warm-up in the result.\nUse sample(..., save_warmup=True)."


def adaptation(result: RunLike, *, figure: Figure | None = None) -> Figure:
    """Plot the adaptation during warm-up in four panels, with one colour per chain.

    - Upper left: the step size of each warm-up iteration (dual averaging). Dashed lines are the adapted step sizes, which are
      its weighted means. Discs mark the ends of the windows.
    - Upper right: the running mean of the acceptance over 50 iterations. The dotted line is the target, if the kernel sets one.
    - Lower left: predicted steps per trajectory at the end of each window, relative to a distribution whose scales are all
      equal. Open discs are for the diagonal metric, full discs for the chosen metric, with its number of directions.
    - Lower right: the variances of the adapted metric by coordinate, which are the diagonal for a dense one.

    Parameters
    ----------
    result : Result, ArviZ object or path
        A :class:`refhmc.Result`, the ArviZ object of either version, or a netCDF file. The upper panels need a run with
        ``save_warmup=True``.
    figure : matplotlib.figure.Figure, optional
        Figure to draw on. Defaults to a new one.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. At most 16 chains are drawn. A panel without data contains a note.

    References
    ----------
    Hoffman and Gelman (2014), The No-U-Turn Sampler, eq. 6.

    Examples
    --------
    >>> import refhmc
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), refhmc.NUTS(), draws=50, tune=50, random_seed=1, save_warmup=True,
    ...     progressbar=False, raw=True,
    ... )
    >>> len(refhmc.plot.adaptation(result).axes)
    4
    """
    run = of_few_chains(run_of(result))
    figure, ((steps, accepted), (windows, variances)) = panels(figure, 2, 2, 10, 6.4)
    draw_step_sizes(steps, run)
    draw_acceptance(accepted, run)
    draw_windows(windows, run)
    draw_variances(variances, run)
    return figure


def draw_step_sizes(ax: Axes, run: Run) -> None:
    sizes = run.statistic("step_size", warmup=True)
    for chain, of_chain in enumerate(() if sizes is None else sizes):
        ax.plot(of_chain, lw=0.6, color=colour(chain))
    for chain, learned in enumerate(run.adapted):
        ax.plot(learned.column("iteration"), learned.column("step_size"), "o", color=colour(chain), ms=4)
    for chain, size in enumerate(adapted_steps(run)):
        ax.axhline(size, color=colour(chain), ls="--", lw=0.8)
    if ax.has_data():
        ax.set_yscale("log")
    ax.set(xlabel="warm-up iteration", ylabel="step size")
    if sizes is None or not sizes.size:
        note(ax, NOT_SAVED)


def adapted_steps(run: Run) -> list[float]:
    """Return the adapted step size of each chain, or that of its first draw."""
    if run.adapted:
        return [each.step_size for each in run.adapted]
    nominal = run.statistic("step_size_nom")
    sizes = run.statistic("step_size") if nominal is None else nominal
    return [] if sizes is None or not sizes.size else [float(of[0]) for of in sizes]


def draw_acceptance(ax: Axes, run: Run) -> None:
    rates = run.statistic("acceptance_rate", warmup=True)
    for chain, of_chain in enumerate(() if rates is None else rates):
        n = min(AVERAGED, len(of_chain))
        if n:
            mean = np.convolve(of_chain, np.ones(n) / n, "valid")
            ax.plot(np.arange(n - 1, len(of_chain)), mean, lw=1, color=colour(chain))
    target = target_of(run)
    if target is not None:
        ax.axhline(target, color=BLACK, ls=":", lw=1, label=f"target {target:g}")
    ax.set(xlabel="warm-up iteration", ylabel=f"mean acceptance ({AVERAGED} iterations)", ylim=(0, 1.02))
    if rates is None or not rates.size:
        note(ax, NOT_SAVED)
    legend(ax)


def target_of(run: Run) -> float | None:
    """Return the kernel's ``target_accept``, or None if it has none or uses the default."""
    try:
        target = json.loads(run.attributes["kernel"]).get("target_accept")
    except (KeyError, ValueError, AttributeError, RecursionError):
        return None
    return float(target) if isinstance(target, int | float) else None


def draw_windows(ax: Axes, run: Run) -> None:
    ax.set(xlabel="warm-up iteration", ylabel="predicted steps per trajectory\n(1: equal scales)")
    noted = [(chain, each) for chain, each in enumerate(run.adapted) if len(each.history)]
    for chain, learned in noted:
        iteration, steps, diagonal = map(learned.column, ("iteration", "steps", "steps_diagonal"))
        ax.plot(iteration, diagonal, "o", mfc="none", ls=":", lw=0.8, ms=6, color=colour(chain))
        ax.plot(iteration, steps, "o-", lw=1, ms=3.5, color=colour(chain))
        rank = f"{learned.column('rank')[-1]:.0f}"
        ax.annotate(rank, (iteration[-1], steps[-1]), xytext=(5, 0), textcoords="offset points")
    if noted:
        ax.plot([], [], "o:", mfc="none", color=GREY, label="diagonal metric")
        ax.plot([], [], "o-", color=GREY, ms=3.5, label="chosen metric, with its number of directions")
        ax.set_ylim(0, 1.3 * ax.get_ylim()[1])  # space for the legend
    else:
        note(ax, "No metric was adapted\nin windows of warm-up.")
    legend(ax)


def draw_variances(ax: Axes, run: Run) -> None:
    ax.set(xlabel="coordinate", ylabel="variance in the metric")
    for chain, learned in enumerate(run.adapted):
        values = variances_of(learned.metric)
        if values is not None:
            ax.plot(values, "o" if len(values) < 60 else ".", ms=4, color=colour(chain), alpha=0.7)
    if ax.has_data():
        ax.set_yscale("log")
    else:
        note(ax, "No variances: the metric is the identity,\nor it depends on the position.")


def variances_of(metric: object) -> np.ndarray | None:
    """Return the variances (d,) of a diagonal, low-rank or dense metric, or None for others."""
    covariance, variances = getattr(metric, "covariance", None), getattr(metric, "variances", None)
    if covariance is not None:
        return np.diag(covariance)
    return None if variances is None else np.atleast_1d(variances)


def note(ax: Axes, words: str) -> None:
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color=GREY, fontsize="small")
