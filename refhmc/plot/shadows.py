"""The shadow Hamiltonian of the leapfrog, which is conserved while the energy oscillates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from refhmc.dynamics.trajectory import Trajectory, integrate
from refhmc.integrators import Leapfrog
from refhmc.plot.canvas import BLACK, BLUE, ORANGE, axes, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from refhmc.dynamics.hamiltonian import Hamiltonian

SAME = 1e-8  # largest relative change of a Hessian that counts as constant


def shadow_energy(
    H: Hamiltonian, q: ArrayLike, p: ArrayLike, *, step_size: float, n_steps: int, ax: Axes | None = None
) -> Axes:
    """Plot the energy error along a leapfrog trajectory and that of the shadow Hamiltonian.

    With U = -L, a constant metric M, and half steps of the momentum first and last, the leapfrog conserves ::

        H_4 = H + eps^2 (1/12 v' U'' v - 1/24 g' M^-1 g),      v = M^-1 p,  g = dU/dq

    to O(eps^4). For a Gaussian, where U'' is constant, it conserves ::

        H - eps^2/8 g' M^-1 g

    exactly: one step of the harmonic oscillator of frequency w is a rotation with the invariant
    p^2 + w^2 (1 - (eps w)^2 / 4) q^2. The exact form is drawn if U'' is the same at all states.

    Parameters
    ----------
    H : Hamiltonian
        Model with a Hessian, and a constant metric.
    q : array_like of shape (d,)
        Initial position.
    p : array_like of shape (d,)
        Initial momentum.
    step_size : float
        Step size eps, in units of time.
    n_steps : int
        Number of leapfrog steps.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the two curves.

    Raises
    ------
    ValueError
        If the metric depends on the position.
    refhmc.errors.MissingDerivativeError
        If the model has no Hessian.

    References
    ----------
    Leimkuhler and Reich (2004), Simulating Hamiltonian Dynamics, ch. 5; Hairer, Lubich and Wanner (2006), Geometric Numerical
    Integration, IX.3.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1))
    >>> ax = refhmc.plot.shadow_energy(H, [0.5, 0.1], [1.0, -0.5], step_size=0.1, n_steps=20)
    >>> ax.get_legend_handles_labels()[1]
    ['H − H₀', 'shadow Hamiltonian, to order 4']
    """
    if H.metric.position_dependent:
        raise ValueError(
            f"H must have a constant mass matrix for the leapfrog; got {type(H.metric).__name__}, which depends on the "
            "position. Use refhmc.metrics.Diagonal, for example."
        )
    t = integrate(H, Leapfrog(), q, p, step_size=step_size, n_steps=n_steps)
    name, shadow = shadow_along(H, t, step_size)
    ax = axes(ax)
    ax.plot(t.energy - t.energy[0], "-o", color=BLUE, ms=2.5, lw=1, label="H − H₀")
    ax.plot(shadow - shadow[0], "-", color=ORANGE, lw=1.8, label=f"shadow Hamiltonian, {name}")
    ax.axhline(0, color=BLACK, lw=0.6)
    ax.set(xlabel="step", ylabel="change from the start")
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.25 * (high - low))  # space for the legend
    legend(ax, loc="upper right")
    return ax


def shadow_along(H: Hamiltonian, t: Trajectory, step_size: float) -> tuple[str, np.ndarray]:
    """Return the order of the shadow Hamiltonian, or that it is exact, and its values (n_steps + 1,), NaN if not finite."""
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
