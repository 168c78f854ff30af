"""A trajectory in phase space, and the energy along it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.models.model_on_arrays import ModelOnArrays
from refhmc.plot.canvas import (
    BLACK,
    BLUE,
    GREEN,
    RED,
    axes,
    contours,
    density_contours,
    legend,
    limits,
    name_axes,
    plane,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from refhmc.dynamics.hamiltonian import Hamiltonian
    from refhmc.dynamics.trajectory import Trajectory


def trajectory(
    t: Trajectory, x: str | None = None, y: str | None = None, *, H: Hamiltonian | None = None, ax: Axes | None = None
) -> Axes:
    """Plot the states of a trajectory in a plane of phase space, from the start (disc) to the end (square).

    If `H` is given, contours are drawn. In a plane of two positions they are those of -L(q), with the other coordinates
    fixed at the start. In one dimension they are those of H(q, p), along which the exact flow moves (dH/dt = 0). The
    contours are 1/2, 2, 9/2, ... above the least value in the plot. A trajectory that ended early because a solve failed
    ends in a cross.

    Parameters
    ----------
    t : Trajectory
        Return value of :func:`refhmc.integrate`, with positions and momenta (n_steps + 1, d).
    x : str, optional
        Coordinate on the horizontal axis: "q0", "q1", ... for positions, "p0", "p1", ... for momenta. Defaults to "q0".
    y : str, optional
        Coordinate on the vertical axis. Defaults to "q1", or to "p0" in one dimension.
    H : Hamiltonian, optional
        Hamiltonian for the contours.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the trajectory.

    Raises
    ------
    ValueError
        If a coordinate does not exist.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1))
    >>> t = refhmc.integrate(H, refhmc.integrators.Leapfrog(), [0.5, 0.1], [1.0, -0.5], step_size=0.1, n_steps=20)
    >>> ax = refhmc.plot.trajectory(t, H=H)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('q0  (v)', 'q1  (x[0])')
    """
    d = t.q.shape[1]
    first, second = coordinate(x or "q0", d), coordinate(y or ("q1" if d > 1 else "p0"), d)
    ax, there = axes(ax, 5.6, 5.0), np.isfinite(t.q).all(axis=1) & np.isfinite(t.p).all(axis=1)
    xs, ys = along(t, *first), along(t, *second)
    if H is not None:
        beneath(ax, H, t, first, second, limits(xs), limits(ys))
    ax.plot(xs[there], ys[there], "-o", color=BLUE, ms=3, lw=1, label="steps")
    ax.plot(xs[:1], ys[:1], "o", color=GREEN, ms=8, label="start")
    last = int(np.flatnonzero(there)[-1])
    if there.all():
        ax.plot(xs[-1:], ys[-1:], "s", color=BLACK, ms=7, label="end")
    else:
        ax.plot(xs[last : last + 1], ys[last : last + 1], "X", color=RED, ms=9, label=f"no state after step {last}")
    name_axes(ax, name_of(*first, H), name_of(*second, H))
    ax.set(xlim=limits(xs), ylim=limits(ys))
    legend(ax)
    return ax


def energy(t: Trajectory, *, ax: Axes | None = None, label: str | None = None) -> Axes:
    """Plot the energy error H(q_n, p_n) - H(q_0, p_0) against the step n.

    It is zero for the exact flow, and bounded for a symplectic integrator. A symplectic method of order r conserves a
    Hamiltonian that differs from H by O(eps^r). The error therefore stays of that order for very long times. Steps without a
    state are left out, and the first of them is marked.

    Parameters
    ----------
    t : Trajectory
        Return value of :func:`refhmc.integrate`, with energies (n_steps + 1,).
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.
    label : str, optional
        Label in the legend, for several trajectories on the same axes.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the energy error.

    References
    ----------
    Leimkuhler and Reich (2004), Simulating Hamiltonian Dynamics, ch. 5.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1))
    >>> t = refhmc.integrate(H, refhmc.integrators.Leapfrog(), [0.5, 0.1], [1.0, -0.5], step_size=0.1, n_steps=20)
    >>> refhmc.plot.energy(t).get_xlabel()
    'step'
    """
    ax, error = axes(ax), t.energy - t.energy[0]
    there = np.isfinite(error)
    (line,) = ax.plot(np.flatnonzero(there), error[there], "-o", ms=2.5, lw=1, label=label)
    ax.axhline(0, color=BLACK, lw=0.6)
    if not there.all():
        ax.axvline(int(np.flatnonzero(~there)[0]), color=RED, ls="--", lw=1, label="no energy from here")
    ax.set(xlabel="step", ylabel="energy error  H − H₀")
    legend(ax)
    return ax


def coordinate(name: str, d: int) -> tuple[str, int]:
    """Return kind and index of a coordinate: ("q", 3) for "q3". Raises ValueError if a state (q, p) does not have it."""
    found = re.fullmatch(r"([qp])(\d+)", name)
    if found is None or int(found[2]) >= d:
        raise ValueError(f"x and y must be coordinates q0 to q{d - 1} or p0 to p{d - 1}; got {name!r}.")
    return found[1], int(found[2])


def along(t: Trajectory, of: str, k: int) -> np.ndarray:
    return getattr(t, of)[:, k]


def name_of(of: str, k: int, H: Hamiltonian | None) -> str:
    name = f"{of}{k}"
    if H is None:
        return name
    named = H.model.names[k]
    return (
        name if named in (name, f"q[{k}]") else f"{name}  ({named})" if of == "q" else f"{name}  (momentum of {named})"
    )


def beneath(
    ax: Axes, H: Hamiltonian, t: Trajectory, first: tuple, second: tuple, x: tuple[float, float], y: tuple[float, float]
) -> None:
    """Draw contours of -L over two positions, or of H in one dimension, and none in other planes."""
    (of_x, j), (of_y, k) = first, second
    if of_x == of_y == "q":
        density_contours(ax, H.model, (j, k), t.q[0], x, y)
    elif H.model.dim == 1 and of_x != of_y:
        xs, ys, points = plane(x, y)
        state = {of_x: points[..., :1], of_y: points[..., 1:]}
        with np.errstate(all="ignore"):
            metric: Any = H.metric
            surface = metric.on_arrays(ModelOnArrays(H.model)).energy(state["q"], state["p"])
        contours(ax, xs, ys, surface)
