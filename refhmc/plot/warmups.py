"""What warm-up has adapted: the step size, what it was adapted to, the metric."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from refhmc.adaptation.from_pairs import HISTORY
from refhmc.plot.canvas import BLACK, GREY, colour, legend, panels
from refhmc.plot.runs import Run, of_few_chains, run_of

AVERAGED = 50  # iterations of a running mean
NOT_SAVED = "warm-up was not saved:\nsample(..., save_warmup=True)"


def adaptation(result: Any, *, figure: Any = None) -> Any:
    """Warm-up in four panels, a colour a chain: step size, acceptance, and the metric, at the end of each window and
    as adapted.

    Upper left: the step size of each iteration of warm-up (dual averaging, Hoffman and Gelman 2014, eq. 6), the adapted
    one, their weighted mean, dashed; discs are the ends of the windows. Upper right: the mean acceptance of 50 iterations
    at a time, which is driven to the target, dotted if the kernel says one.
    Lower left: at the end of each window the steps of a trajectory that the sampler predicts, in units of those on a
    distribution without spread: on the diagonal metric (open) and on the metric taken (full), with the number of its
    directions. Lower right: the variances of the adapted metric, the diagonal of a dense one, by coordinate.

    result : a :class:`refhmc.Result`, ArviZ's object, or a file of it, with ``save_warmup=True`` for the upper panels.

    A panel says so where there is nothing to draw. Of very many chains the first 16 are drawn. Returns the Figure, which is
    ``figure`` if one is given.
    """
    run = of_few_chains(run_of(result))
    figure, ((steps, accepted), (windows, variances)) = panels(figure, 2, 2, 10, 6.4)
    draw_step_sizes(steps, run)
    draw_acceptance(accepted, run)
    draw_windows(windows, run)
    draw_variances(variances, run)
    return figure


def draw_step_sizes(ax: Any, run: Run) -> None:
    sizes = run.statistic("step_size", warmup=True)
    for chain, of_chain in enumerate(() if sizes is None else sizes):
        ax.plot(of_chain, lw=0.6, color=colour(chain))
    for chain, learned in enumerate(run.adapted):
        windows = learned.history
        ax.plot(
            windows[:, HISTORY.index("iteration")],
            windows[:, HISTORY.index("step_size")],
            "o",
            color=colour(chain),
            ms=4,
        )
    for chain, size in enumerate(adapted_steps(run)):
        ax.axhline(size, color=colour(chain), ls="--", lw=0.8)
    if ax.has_data():
        ax.set_yscale("log")
    ax.set(xlabel="iteration of warm-up", ylabel="step size")
    if sizes is None or not sizes.size:
        say(ax, NOT_SAVED)


def adapted_steps(run: Run) -> list[float]:
    """Of each chain: as ``adapted`` says, else that of the first draw."""
    if run.adapted:
        return [each.step_size for each in run.adapted]
    nominal = run.statistic("step_size_nom")
    sizes = run.statistic("step_size") if nominal is None else nominal
    return [] if sizes is None or not sizes.size else [float(of[0]) for of in sizes]


def draw_acceptance(ax: Any, run: Run) -> None:
    rates = run.statistic("acceptance_rate", warmup=True)
    for chain, of_chain in enumerate(() if rates is None else rates):
        n = min(AVERAGED, len(of_chain))
        if n:
            ax.plot(
                np.arange(n - 1, len(of_chain)),
                np.convolve(of_chain, np.ones(n) / n, "valid"),
                lw=1,
                color=colour(chain),
            )
    target = target_of(run)
    if target is not None:
        ax.axhline(target, color=BLACK, ls=":", lw=1, label=f"target {target:g}")
    ax.set(xlabel="iteration of warm-up", ylabel=f"mean acceptance of {AVERAGED}", ylim=(0, 1.02))
    if rates is None or not rates.size:
        say(ax, NOT_SAVED)
    legend(ax)


def target_of(run: Run) -> float | None:
    """Return the kernel's ``target_accept``, or None if it has none or uses the default."""
    try:
        target = json.loads(run.attributes["kernel"]).get("target_accept")
    except (KeyError, ValueError, AttributeError, RecursionError):
        return None
    return float(target) if isinstance(target, int | float) else None


def draw_windows(ax: Any, run: Run) -> None:
    column = HISTORY.index
    ax.set(xlabel="iteration of warm-up", ylabel="predicted steps a trajectory\n(1: no spread)")
    noted = [(chain, each.history) for chain, each in enumerate(run.adapted) if len(each.history)]
    for chain, history in noted:
        iteration, rank = history[:, column("iteration")], history[:, column("rank")]
        ax.plot(
            iteration, history[:, column("steps_diagonal")], "o", mfc="none", ls=":", lw=0.8, ms=6, color=colour(chain)
        )
        ax.plot(iteration, history[:, column("steps")], "o-", lw=1, ms=3.5, color=colour(chain))
        ax.annotate(
            f"{rank[-1]:.0f}", (iteration[-1], history[-1, column("steps")]), xytext=(5, 0), textcoords="offset points"
        )
    if noted:
        ax.plot([], [], "o:", mfc="none", color=GREY, label="diagonal metric")
        ax.plot([], [], "o-", color=GREY, ms=3.5, label="metric taken; number: its directions")
        ax.set_ylim(0, 1.3 * ax.get_ylim()[1])  # room for the legend
    else:
        say(ax, "no metric was learned\nfrom windows of warm-up")
    legend(ax)


def draw_variances(ax: Any, run: Run) -> None:
    ax.set(xlabel="coordinate", ylabel="variance on the metric's diagonal")
    for chain, learned in enumerate(run.adapted):
        values = variances_of(learned.metric)
        if values is not None:
            ax.plot(values, "o" if len(values) < 60 else ".", ms=4, color=colour(chain), alpha=0.7)
    if ax.has_data():
        ax.set_yscale("log")
    else:
        say(ax, "the metric has no values of its own:\nit is the identity, or depends on the position")


def variances_of(metric: Any) -> np.ndarray | None:
    """(d,) of a diagonal, low-rank or dense metric with values."""
    covariance, variances = getattr(metric, "covariance", None), getattr(metric, "variances", None)
    if covariance is not None:
        return np.diag(covariance)
    return None if variances is None else np.atleast_1d(variances)


def say(ax: Any, words: str) -> None:
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center", color=GREY, fontsize="small")
