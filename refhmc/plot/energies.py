"""How far one draw of the momentum changes the energy, against how far the energy ranges."""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.diagnostics import e_bfmi
from refhmc.plot.canvas import BLUE, ORANGE, axes, legend
from refhmc.plot.runs import Run, run_of

BINS = 40
NAMED = 8  # chains whose E-BFMI are said one by one


def energy_transitions(result: Any, *, ax: Any = None) -> Any:
    """Histograms of E_n - mean(E), the marginal energy, and of E_n - E_{n-1}, the transitions; each chain's E-BFMI in the
    legend.

        E-BFMI = sum_n (E_n - E_{n-1})^2 / sum_n (E_n - mean(E))^2

    (Betancourt 2016, Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo, arXiv:1604.00695). Where
    the transitions are much narrower than the marginal (below 0.3), the momentum draws do not carry the chain from energy
    to energy, and tails are explored slowly.

    result : a :class:`refhmc.Result`, ArviZ's object, or a file of it; energies (chain, draw), of a kernel that has none
        (SGLD and its like) the log density or the step size.

    Returns the Axes.
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
    ax.set_ylim(top=1.4 * ax.get_ylim()[1])  # room for the legend
    legend(ax, loc="upper right")
    return ax


def energy_or_step(run: Run) -> tuple[str, np.ndarray | None]:
    """What a chain is followed by, (chain, draw): a kernel of minibatches has no energy, but a step, which may vary."""
    for name, words in (("energy", "energy"), ("lp", "lp"), ("step_size", "step size")):
        found = run.statistic(name)
        if found is not None:
            return words, found
    return "energy", None
