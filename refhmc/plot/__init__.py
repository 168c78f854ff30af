"""Pictures, on matplotlib (the extra ``plot``): of trajectories, of metrics, of one transition, of integrators, and of
runs.

    t = refhmc.integrate(H, refhmc.integrators.ImplicitMidpoint(), q, p, step_size=0.1, n_steps=50)
    ax = refhmc.plot.trajectory(t, H=H)
    ax.figure.savefig("trajectory.png")

A function draws on ``ax``, or on the axes of a new figure, and returns the Axes; one of several panels draws on
``figure``, or on a new one, and returns the Figure. What it draws of a run it takes from a :class:`refhmc.Result`, from
ArviZ's object or from a netCDF file. pyplot is not used: nothing needs a display or has to be closed, and a notebook shows
a Figure that is the last value of a cell (``ax.figure``). Without matplotlib each raises ImportError, saying what to
install.
"""

from refhmc.plot.ellipses import metric_ellipses
from refhmc.plot.energies import energy_transitions
from refhmc.plot.overviews import overview
from refhmc.plot.reports import report
from refhmc.plot.scatter import pairs
from refhmc.plot.shadows import shadow_energy
from refhmc.plot.solves import solver_iterations
from refhmc.plot.step_sizes import energy_error
from refhmc.plot.traces import trace
from refhmc.plot.trajectories import energy, trajectory
from refhmc.plot.trees import Tree, nuts_tree, tree
from refhmc.plot.violations import violations
from refhmc.plot.warmups import adaptation

__all__ = [
    "Tree",
    "adaptation",
    "energy",
    "energy_error",
    "energy_transitions",
    "metric_ellipses",
    "nuts_tree",
    "overview",
    "pairs",
    "report",
    "shadow_energy",
    "solver_iterations",
    "trace",
    "trajectory",
    "tree",
    "violations",
]
