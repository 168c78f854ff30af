"""Violations of reversibility and volume by an implicit integrator, as functions of its solver's tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refhmc.diagnostics import reversibility_violation, volume_violation
from refhmc.errors import ShapeError
from refhmc.plot.canvas import BLUE, GREY, ORANGE, axes, legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from refhmc.dynamics.hamiltonian import Hamiltonian

TOLERANCES = tuple(10.0**-k for k in range(1, 13))


def violations(
    H: Hamiltonian,
    integrator: Any,
    q: ArrayLike,
    p: ArrayLike,
    *,
    step_size: float,
    n_steps: int,
    tolerances: Sequence[float] = TOLERANCES,
    increment: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the violations of reversibility and volume against the solver tolerance, on logarithmic axes.

    With Phi the map of `n_steps` steps and F (q, p) = (q, -p), the violations are ::

        reversibility   |(q, p) - F Phi F Phi (q, p)|
        volume          |det D Phi (q, p) - 1|

    Both are zero for exact solves. Points are single states, lines their medians, and the grey line is the tolerance itself.
    A state whose solve fails has no point, and the legend counts these.

    Parameters
    ----------
    H : Hamiltonian
        Model and metric.
    integrator : Integrator
        Implicit integrator. It runs at each tolerance with ``reversibility_check=False``, because the check would hide the
        violations.
    q : array_like of shape (d,) or (n, d)
        Positions of one state, or of n states.
    p : array_like of shape (d,) or (n, d)
        Momenta.
    step_size : float
        Step size, in units of time.
    n_steps : int
        Number of steps.
    tolerances : sequence of float, default (1e-1, 1e-2, ..., 1e-12)
        Tolerances of the solver.
    increment : float, optional
        Width of the differences in :func:`refhmc.diagnostics.jacobian`. The paper uses 1e-5, which is inaccurate below 1e-8.
        Defaults to Ridders' extrapolation.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the two curves.

    Raises
    ------
    ValueError
        If the integrator is explicit.
    refhmc.errors.ShapeError
        If `q` and `p` do not have the same shape, (d,) or (n, d).

    References
    ----------
    Brofos and Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian Hamiltonian
    Monte Carlo, eq. 48 with its erratum, and eq. 50.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1), refhmc.metrics.SoftAbs())
    >>> integrator = refhmc.integrators.ImplicitMidpoint()
    >>> ax = refhmc.plot.violations(
    ...     H, integrator, [0.5, 0.1], [1.0, -0.5], step_size=0.1, n_steps=2, tolerances=[1e-3, 1e-6]
    ... )
    >>> ax.get_legend_handles_labels()[1]
    ['reversibility', 'volume', 'tolerance']
    """
    names = {field.name for field in fields(integrator)}
    if "tolerance" not in names:
        raise ValueError(
            f"integrator must be implicit, with a solver tolerance; got {type(integrator).__name__}, which has no solver."
        )
    q, p = np.atleast_2d(np.asarray(q, dtype=float)), np.atleast_2d(np.asarray(p, dtype=float))
    if q.shape != p.shape or q.shape[1] != H.model.dim:
        raise ShapeError(
            f"q and p must have the shape (n, {H.model.dim}) or ({H.model.dim},); got {q.shape} and {p.shape}."
        )
    unchecked = {"reversibility_check": False} if "reversibility_check" in names else {}
    back, volume = np.full((2, len(tolerances), len(q)), np.nan)
    for i, tolerance in enumerate(tolerances):
        at = replace(integrator, tolerance=float(tolerance), **unchecked)
        for k in range(len(q)):
            back[i, k] = reversibility_violation(H, at, q[k], p[k], step_size=step_size, n_steps=n_steps)
            if np.isfinite(back[i, k]):
                volume[i, k] = volume_violation(
                    H, at, q[k], p[k], step_size=step_size, n_steps=n_steps, increment=increment
                )
    ax = axes(ax)
    for values, name, shade, marker in ((back, "reversibility", BLUE, "o"), (volume, "volume", ORANGE, "s")):
        failed = int(np.isnan(values).sum())
        label = f"{name}{f' ({failed} of {values.size} not solved)' if failed else ''}"
        ax.plot(tolerances, medians(values), "-", color=shade, marker=marker, ms=4, lw=1.2, label=label)
        if len(q) > 1:
            ax.plot(tolerances, values, marker, color=shade, ms=2, alpha=0.4)
    ax.plot(tolerances, tolerances, "--", color=GREY, lw=0.8, label="tolerance")
    ax.set(xscale="log", yscale="log", xlabel="solver tolerance", ylabel="violation")
    legend(ax)
    return ax


def medians(values: np.ndarray) -> np.ndarray:
    """Return the median of the finite values in each row of (n, k), NaN if there are none."""
    return np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in values])
