"""The energy error of an integrator as a function of its step size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from refhmc.dynamics.trajectory import integrate
from refhmc.plot.canvas import BLUE, GREY, RED, axes, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from refhmc.dynamics.hamiltonian import Hamiltonian
    from refhmc.integrators.base import Integrator

STEP_SIZES = tuple(0.02 * 2.0**k for k in range(6))


def energy_error(
    H: Hamiltonian,
    integrator: Integrator,
    q: ArrayLike,
    p: ArrayLike,
    *,
    time: float,
    step_sizes: Sequence[float] = STEP_SIZES,
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    """Plot the largest energy error along a trajectory against the step size, on logarithmic axes.

    A symplectic integrator of order r conserves a shadow Hamiltonian H + O(eps^r). The error ``|H - H_0|`` is O(eps^r)
    for any trajectory length, until the step becomes unstable. A line of slope r is drawn for comparison.

    Parameters
    ----------
    H : Hamiltonian
        Model and metric.
    integrator : Integrator
        Integrator with an attribute ``order``.
    q : array_like of shape (d,)
        Initial position.
    p : array_like of shape (d,)
        Initial momentum.
    time : float
        Length of the trajectory, which has max(1, round(time / eps)) steps.
    step_sizes : sequence of float, default (0.02, 0.04, ..., 0.64)
        Step sizes eps. Crosses at the top mark step sizes at which the energy is not finite.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.
    label : str, optional
        Label in the legend. Defaults to the name of the integrator and its order.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the errors and the line.

    References
    ----------
    Leimkuhler and Reich (2004), Simulating Hamiltonian Dynamics, ch. 5.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1))
    >>> ax = refhmc.plot.energy_error(H, refhmc.integrators.Leapfrog(), [0.5, 0.1], [1.0, -0.5], time=1.0)
    >>> ax.get_legend_handles_labels()[1]
    ['Leapfrog, order 2', 'slope 2']
    """
    ax, sizes = axes(ax), np.asarray(step_sizes, dtype=float)
    errors = np.array([largest_error(H, integrator, q, p, size, time) for size in sizes])
    there = np.isfinite(errors) & (errors > 0)
    name = label or f"{type(integrator).__name__}, order {integrator.order}"
    (line,) = ax.plot(sizes[there], errors[there], "-o", color=None if label else BLUE, ms=4, label=name)
    broken = ~np.isfinite(errors)
    if broken.any():
        ax.plot(sizes[broken], np.ones(broken.sum()), "X", color=RED, transform=ax.get_xaxis_transform(), clip_on=False)
        ax.plot([], [], "X", color=RED, label="not finite")
    if there.any():
        k = int(np.flatnonzero(there)[np.argmin(sizes[there])])
        slope = errors[k] * (sizes / sizes[k]) ** integrator.order
        ax.plot(sizes, slope, "--", color=GREY, lw=0.8, label=f"slope {integrator.order}")
    ax.set(xscale="log", yscale="log")
    ax.set_xticks(sizes, [f"{size:.3g}" for size in sizes], minor=False)
    ax.set_xticks([], minor=True)
    ax.set(xlabel="step size", ylabel=f"largest |H − H₀| for trajectory length {time:g}")
    legend(ax)
    return ax


def largest_error(
    H: Hamiltonian, integrator: Integrator, q: ArrayLike, p: ArrayLike, step_size: float, time: float
) -> float:
    """Return the largest |H - H_0|, or NaN if a state has no energy."""
    t = integrate(H, integrator, q, p, step_size=step_size, n_steps=max(1, round(time / step_size)))
    return float(np.max(np.abs(t.energy - t.energy[0])))
