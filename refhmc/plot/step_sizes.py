"""The energy error of an integrator by its step size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.dynamics.trajectory import integrate
from refhmc.plot.canvas import BLUE, GREY, RED, axes, legend

if TYPE_CHECKING:
    from refhmc.dynamics.hamiltonian import Hamiltonian

STEP_SIZES = tuple(0.02 * 2.0**k for k in range(6))


def energy_error(
    H: Hamiltonian,
    integrator: Any,
    q: Any,
    p: Any,
    *,
    time: float,
    step_sizes: Sequence[float] = STEP_SIZES,
    ax: Any = None,
    label: str | None = None,
) -> Any:
    """The largest |H - H_0| along a trajectory against the step size eps, both logarithmic, beside a line of slope r.

    A symplectic integrator of order r keeps a shadow Hamiltonian H + O(eps^r) (Leimkuhler and Reich 2004, ch. 5): the
    error is O(eps^r), whatever the time, until the step is unstable.

    q, p : the start, (d,). time : of the trajectory, of round(time / eps) steps, one at least. integrator : says its
        ``order``.
    A step size at which the energy ceases to be finite is a cross at the picture's top. Returns the Axes.
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
    ax.set(xlabel="step size", ylabel=f"largest |H − H₀| in time {time:g}")
    legend(ax)
    return ax


def largest_error(H: Hamiltonian, integrator: Any, q: Any, p: Any, step_size: float, time: float) -> float:
    """NaN where a state has no energy."""
    t = integrate(H, integrator, q, p, step_size=step_size, n_steps=max(1, round(time / step_size)))
    return float(np.max(np.abs(t.energy - t.energy[0])))
