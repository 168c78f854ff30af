"""Plots of trajectories, metrics, transitions, integrators and runs, with Matplotlib (the extra ``plot``).

::

    t = refhmc.integrate(H, refhmc.integrators.ImplicitMidpoint(), q, p, step_size=0.1, n_steps=50)
    ax = refhmc.plot.trajectory(t, H=H)
    ax.figure.savefig("trajectory.png")

A function with one panel draws on `ax`, or on a new figure, and returns the Axes. A function with several panels draws on
`figure`, or on a new one, and returns the Figure. Functions that plot a run accept a :class:`refhmc.Result`, an ArviZ object
or a netCDF file. The functions do not use pyplot: they need no display, and no figure has to be closed. A notebook shows a
Figure that is the last value of a cell (``ax.figure``). Without Matplotlib, every function raises ImportError.
"""

from typing import NoReturn

from refhmc._deprecated import removed
from refhmc.plot.ellipses import metric_ellipses
from refhmc.plot.overviews import overview
from refhmc.plot.reports import report
from refhmc.plot.scatter import pairs
from refhmc.plot.shadows import shadow_energy
from refhmc.plot.solves import solver_iterations
from refhmc.plot.step_sizes import energy_error
from refhmc.plot.trajectories import energy, trajectory
from refhmc.plot.trees import Tree, nuts_tree, tree
from refhmc.plot.violations import violations
from refhmc.plot.warmups import adaptation

_IN_ARVIZ = {
    "trace": "arviz.plot_trace(result), or arviz.plot_trace_dist(result) in ArviZ 1.x",
    "energy_transitions": "arviz.plot_energy(result)",
}
__all__ = [
    "Tree",
    "adaptation",
    "energy",
    "energy_error",
    "metric_ellipses",
    "nuts_tree",
    "overview",
    "pairs",
    "report",
    "shadow_energy",
    "solver_iterations",
    "trajectory",
    "tree",
    "violations",
]


def __getattr__(name: str) -> NoReturn:
    if name in _IN_ARVIZ:
        raise removed(f"refhmc.plot.{name}", _IN_ARVIZ[name])
    raise AttributeError(f"module 'refhmc.plot' has no attribute {name!r}")
