"""Change of the energy by one momentum draw, compared with the range of the energy."""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.diagnostics import e_bfmi
from refhmc.plot.canvas import BLUE, ORANGE, axes, legend
from refhmc.plot.runs import Run, run_of

BINS = 40
NAMED = 8  # most chains whose E-BFMI are listed one by one


def energy_transitions(result: Any, *, ax: Any = None) -> Any:
    """Plot histograms of the marginal energy and of its changes between draws.

    The histograms are those of E_n - mean(E), the marginal energy, and of E_n - E_{n-1}, the transitions. The legend gives
    the E-BFMI of each chain::

        E-BFMI = sum_n (E_n - E_{n-1})^2 / sum_n (E_n - mean(E))^2

    If the transitions are much narrower than the marginal (E-BFMI below 0.3), the momentum draws do not move the chain
    between energies, and the tails are explored slowly.

    Parameters
    ----------
    result : Result, ArviZ object or path
        A :class:`refhmc.Result`, the ArviZ object of either version, or a netCDF file. If the kernel has no energy (SGLD),
        the log density or the step size is plotted instead.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the two histograms.

    References
    ----------
    Betancourt (2016), Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo, arXiv:1604.00695.

    Examples
    --------
    >>> import refhmc
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), refhmc.NUTS(), draws=50, tune=50, random_seed=1, progressbar=False, raw=True
    ... )
    >>> refhmc.plot.energy_transitions(result).get_xlabel()
    'energy'
    """
    ax, (what, energies) = axes(ax, 5.6, 4.2), energy_or_step(run_of(result))
    ax.set(xlabel=what, yticks=[])
    if energies is None or energies.shape[1] < 2:
        return ax
    centred = energies - np.array([[of[np.isfinite(of)].mean() if np.isfinite(of).any() else 0.0] for of in energies])
    changes = np.diff(energies, axis=1)
    for values, name, shade in ((centred, "marginal", BLUE), (changes, "transition", ORANGE)):
        there = values[np.isfinite(values)]
        if there.size and np.ptp(there) > 0:
            ax.hist(
                there, bins=BINS, density=True, histtype="stepfilled", alpha=0.45, color=shade, label=f"{what}, {name}"
            )
    if what == "energy":
        with np.errstate(all="ignore"):
            fractions = e_bfmi(energies)
        each = ", ".join(f"{one:.2f}" for one in fractions)
        words = each if len(fractions) <= NAMED else f"{np.nanmin(fractions):.2f} to {np.nanmax(fractions):.2f}"
        ax.plot([], [], " ", label=f"E-BFMI {words}")
    ax.set_ylim(top=1.4 * ax.get_ylim()[1])  # space for the legend
    legend(ax, loc="upper right")
    return ax


def energy_or_step(run: Run) -> tuple[str, np.ndarray | None]:
    """Return label and values (chain, draw) of the energy, or else of the log density or of the step size."""
    for name, words in (("energy", "energy"), ("lp", "lp"), ("step_size", "step size")):
        found = run.statistic(name)
        if found is not None:
            return words, found
    return "energy", None
