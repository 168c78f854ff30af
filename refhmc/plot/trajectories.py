"""A trajectory in phase space, and its energy along the way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.models.on_arrays import ModelOnArrays
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
    from refhmc.dynamics.hamiltonian import Hamiltonian
    from refhmc.dynamics.trajectory import Trajectory


def trajectory(
    t: Trajectory, x: str | None = None, y: str | None = None, *, H: Hamiltonian | None = None, ax: Any = None
) -> Any:
    """The states of a trajectory in a plane of phase space, from the start (disc) to the end (square).

    t : what :func:`refhmc.integrate` returns, positions and momenta (n_steps + 1, d).
    x, y : a coordinate of the position or of the momentum, "q0", "p0", ...; default the plane (q0, q1), of one dimension
        (q0, p0).
    H : the Hamiltonian. Contours are drawn beneath: over two positions those of -L(q), what is not shown held as at the
        start; of one dimension those of H(q, p), on which the exact flow stays (dH/dt = 0). They lie 1/2, 2, 9/2, ...
        above the least value in the picture.

    A trajectory that ended early, since a solve failed, ends in a cross. Returns the Axes. Raises ValueError for a
    coordinate that there is not.
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


def energy(t: Trajectory, *, ax: Any = None, label: str | None = None) -> Any:
    """H(q_n, p_n) - H(q_0, p_0) against the step n: zero for the exact flow, bounded for a symplectic integrator.

    t : what :func:`refhmc.integrate` returns, energies (n_steps + 1,). ``label``: in the legend, where several are drawn on
    one ``ax``. Steps without a state are left out, and the first of them is marked. Returns the Axes.

    Leimkuhler and Reich (2004), Simulating Hamiltonian Dynamics, ch. 5: a symplectic method of order r keeps a Hamiltonian
    that differs from H by O(eps^r), so that the error stays of that order for very long.
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
    """("q", 3) of "q3". Raises ValueError for what a state (q, p) of d dimensions has not."""
    found = re.fullmatch(r"([qp])(\d+)", name)
    if found is None or int(found[2]) >= d:
        raise ValueError(f"a coordinate is q0 to q{d - 1} or p0 to p{d - 1}, got {name!r}")
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
    ax: Any, H: Hamiltonian, t: Trajectory, first: tuple, second: tuple, x: tuple[float, float], y: tuple[float, float]
) -> None:
    """Contours of -L over two positions, of one dimension those of H; of other planes none."""
    (of_x, j), (of_y, k) = first, second
    if of_x == of_y == "q":
        density_contours(ax, H.model, (j, k), t.q[0], x, y)
    elif H.model.dim == 1 and of_x != of_y:
        xs, ys, points = plane(x, y)
        state = {of_x: points[..., :1], of_y: points[..., 1:]}
        with np.errstate(all="ignore"):
            surface = H.metric.on_arrays(ModelOnArrays(H.model)).energy(state["q"], state["p"])
        contours(ax, xs, ys, surface)
