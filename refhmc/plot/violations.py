"""How far an implicit integrator is from reversible and from keeping volume, by its solver's tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.diagnostics import reversibility_violation, volume_violation
from refhmc.errors import ShapeError
from refhmc.plot.canvas import BLUE, GREY, ORANGE, axes, legend

if TYPE_CHECKING:
    from refhmc.dynamics.hamiltonian import Hamiltonian

TOLERANCES = tuple(10.0**-k for k in range(1, 13))


def violations(
    H: Hamiltonian,
    integrator: Any,
    q: Any,
    p: Any,
    *,
    step_size: float,
    n_steps: int,
    tolerances: Sequence[float] = TOLERANCES,
    increment: float | None = None,
    ax: Any = None,
) -> Any:
    """Violation of reversibility and of volume against the tolerance of the solver, both logarithmic.

        reversibility   |(q, p) - F Phi F Phi (q, p)|,   F (q, p) = (q, -p)     Brofos and Lederman (2021), eq. 48, erratum
        volume          |det D Phi (q, p) - 1|                                 the same, eq. 50

    Phi is ``n_steps`` steps of ``step_size``; with an exact solve both are zero. Points are single states, lines their
    medians, the grey line is the tolerance itself. Where a solve fails there is no point, and the legend counts them.

    q, p : (d,), or (n, d) for n states. integrator : an implicit one; it is tried at each tolerance without its way back
        (``reversibility_check=False``), which would hide what is measured.
    increment : of :func:`refhmc.diagnostics.jacobian`; 1e-5 for the paper's differences, which are rough below 1e-8.

    Returns the Axes. Raises ValueError for an explicit integrator, ShapeError.
    """
    names = {field.name for field in fields(integrator)}
    if "tolerance" not in names:
        raise ValueError(
            f"violations are drawn against a solver's tolerance, and {type(integrator).__name__} has no solver"
        )
    q, p = np.atleast_2d(np.asarray(q, dtype=float)), np.atleast_2d(np.asarray(p, dtype=float))
    if q.shape != p.shape or q.shape[1] != H.model.dim:
        raise ShapeError(f"q and p: expected (n, {H.model.dim}) or ({H.model.dim},), got {q.shape} and {p.shape}")
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
    ax.plot(tolerances, tolerances, "--", color=GREY, lw=0.8, label="the tolerance")
    ax.set(xscale="log", yscale="log", xlabel="tolerance of the solver", ylabel="violation")
    legend(ax)
    return ax


def medians(values: np.ndarray) -> np.ndarray:
    """Of each row of (n, k), its finite values alone; NaN where there is none."""
    return np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in values])
