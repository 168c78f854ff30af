"""The shadow Hamiltonian of the leapfrog: what it keeps while the energy oscillates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.dynamics.trajectory import Trajectory, integrate
from refhmc.integrators import Leapfrog
from refhmc.plot.canvas import BLACK, BLUE, ORANGE, axes, legend

if TYPE_CHECKING:
    from refhmc.dynamics.hamiltonian import Hamiltonian

SAME = 1e-8  # of a Hessian, relative: it does not change along the trajectory


def shadow_energy(H: Hamiltonian, q: Any, p: Any, *, step_size: float, n_steps: int, ax: Any = None) -> Any:
    """Along a leapfrog trajectory the energy error H - H_0, and that of the shadow Hamiltonian, which the leapfrog keeps.

    With U = -L, a constant metric M, and half steps of the momentum first and last,

        H_4 = H + eps^2 (1/12 v' U'' v - 1/24 g' M^-1 g),      v = M^-1 p,  g = dU/dq

    is kept to O(eps^4) (Leimkuhler and Reich 2004, ch. 5; Hairer, Lubich and Wanner 2006, IX.3). Of a Gaussian, U''
    constant,

        H - eps^2/8 g' M^-1 g

    is kept exactly: a rotation by one step of the harmonic oscillator of frequency w has the invariant
    p^2 + w^2 (1 - (eps w)^2 / 4) q^2. It is drawn where U'' is the same at all states.

    q, p : the start, (d,). Returns the Axes. Raises ValueError where the metric depends on the position,
        MissingDerivativeError
    for a model without a Hessian.
    """
    if H.metric.position_dependent:
        raise ValueError(
            f"the leapfrog needs a constant mass matrix, and {type(H.metric).__name__} depends on the position"
        )
    t = integrate(H, Leapfrog(), q, p, step_size=step_size, n_steps=n_steps)
    name, shadow = shadow_along(H, t, step_size)
    ax = axes(ax)
    ax.plot(t.energy - t.energy[0], "-o", color=BLUE, ms=2.5, lw=1, label="H − H₀")
    ax.plot(shadow - shadow[0], "-", color=ORANGE, lw=1.8, label=f"shadow Hamiltonian, {name}")
    ax.axhline(0, color=BLACK, lw=0.6)
    ax.set(xlabel="step", ylabel="change since the start")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.25 * (high - low))  # room for the legend
    legend(ax, loc="upper right")
    return ax


def shadow_along(H: Hamiltonian, t: Trajectory, step_size: float) -> tuple[str, np.ndarray]:
    """Whether it is exact or to which order, and its values at the states, (n_steps + 1,), NaN where one is not finite."""
    there = np.flatnonzero(np.isfinite(t.q).all(axis=1) & np.isfinite(t.energy))
    g, inverse = np.full_like(t.q, np.nan), np.linalg.inv(H.mass())
    hessian = np.full((*t.q.shape, t.q.shape[1]), np.nan)
    for n in there:
        g[n], hessian[n] = -H.model.gradient(t.q[n]), -H.model.hessian(t.q[n])
    force = np.einsum("ni,ij,nj->n", g, inverse, g)
    change = np.abs(hessian[there] - hessian[there[0]]).max()
    if change <= SAME * np.abs(hessian[there[0]]).max():
        return "exact for a Gaussian", t.energy - step_size**2 / 8 * force
    v = t.p @ inverse
    bent = np.einsum("ni,nij,nj->n", v, hessian, v)
    return "to order 4", t.energy + step_size**2 * (bent / 12 - force / 24)
