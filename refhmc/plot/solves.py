"""Iterations and failures of the solves of an implicit integrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from refhmc.core.sample_stats import NOT_REVERSIBLE, SOLVER_FAILED
from refhmc.plot.canvas import BLUE, PURPLE, RED, colour, legend, panels
from refhmc.plot.runs import FEW_CHAINS, RunLike, run_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FAILURES = ((SOLVER_FAILED, "solver failed", "X", RED), (NOT_REVERSIBLE, "not reversible", "v", PURPLE))


def solver_iterations(result: RunLike, *, figure: Figure | None = None) -> Figure:
    """Plot the iterations of the implicit solves per step, along the draws and as a histogram.

    The plot shows ``solver_iterations / n_steps`` (chain, draw). All solves of a transition count, including failed ones and
    those of the reversibility check. Crosses are transitions in which a solve did not converge (outcome ``solver_failed``).
    Triangles are transitions in which a step was not reversible (outcome ``not_reversible``). Both kinds were rejected.

    Parameters
    ----------
    result : Result, ArviZ object or path
        A :class:`refhmc.Result`, the ArviZ object of either version, or a netCDF file.
    figure : matplotlib.figure.Figure, optional
        Figure to draw on. Defaults to a new one.

    Returns
    -------
    matplotlib.figure.Figure
        The figure. Points of at most 16 chains are drawn; the histogram and the marks of failures are of all chains.

    Raises
    ------
    ValueError
        If the integrator is explicit.

    Examples
    --------
    >>> import refhmc
    >>> kernel = refhmc.HMC(n_steps=5, metric=refhmc.metrics.SoftAbs(), integrator=refhmc.integrators.ImplicitMidpoint())
    >>> result = refhmc.sample(refhmc.models.Funnel(2), kernel, draws=30, tune=30, random_seed=1, progressbar=False, raw=True)
    >>> refhmc.plot.solver_iterations(result).axes[0].get_ylabel()
    'solver iterations per step'
    """
    run = run_of(result)
    iterations, steps = run.statistic("solver_iterations"), run.statistic("n_steps")
    if iterations is None or steps is None:
        raise ValueError("result must be a run with an implicit integrator; got one without solver_iterations.")
    outcome = run.statistic("outcome")
    a_step = iterations / np.maximum(steps, 1)
    figure, ((along, beside),) = panels(figure, 1, 2, 10, 3.6, gridspec_kw={"width_ratios": [3, 1]}, sharey=True)
    for chain, of_chain in enumerate(a_step[:FEW_CHAINS]):
        along.plot(of_chain, ".", ms=2, color=colour(chain), alpha=0.6)
    for code, words, marker, shade in FAILURES if outcome is not None else ():
        chains, draws = np.nonzero(np.asarray(outcome) == code)
        if len(draws):
            along.plot(draws, a_step[chains, draws], marker, color=shade, ms=6, label=f"{words}: {len(draws)}")
    if a_step.size:
        edges = np.linspace(a_step.min(), max(a_step.max(), a_step.min() + 1), 41)
        beside.hist(a_step.ravel(), bins=edges, orientation="horizontal", color=BLUE, alpha=0.6)
    along.set(xlabel="draw", ylabel="solver iterations per step")
    beside.set(xlabel="transitions")
    legend(along)
    return figure
