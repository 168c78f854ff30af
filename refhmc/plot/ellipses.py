"""Ellipses of the inverse metric along a path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.matplotlib import import_matplotlib
from refhmc.errors import ShapeError
from refhmc.plot.canvas import BLUE, ORANGE, axes, density_contours, legend, limits, name_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from refhmc.dynamics.hamiltonian import Hamiltonian
    from refhmc.dynamics.trajectory import Trajectory


def metric_ellipses(
    H: Hamiltonian,
    path: ArrayLike | Trajectory,
    *,
    coordinates: Sequence[int] = (0, 1),
    every: int = 1,
    scale: float = 0.3,
    ax: Axes | None = None,
) -> Axes:
    """Draw ellipses of the inverse metric at positions along a path, over contours of the density.

    An ellipse is the boundary of ::

        {q + s u :  u' A^-1 u <= 1},     A = the block of G(q)^-1 of the two coordinates,     s = scale

    The velocity is v = G^-1 p with p ~ N(0, G), so v ~ N(0, G^-1). To first order, the ellipse is where the particle may be
    after a time s, at one standard deviation of v. For a good metric, it has the shape of the contours around it.

    Parameters
    ----------
    H : Hamiltonian
        Model and metric.
    path : array_like of shape (n, d), or Trajectory
        Positions, or a trajectory returned by :func:`refhmc.integrate`.
    coordinates : sequence of two ints, default (0, 1)
        Coordinates on the axes of the plot.
    every : int, default 1
        Draw an ellipse at every `every`-th position. Positions without a metric, or that are not finite, are skipped.
    scale : float, default 0.3
        Size s of the ellipses, in units of time.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the path, the ellipses and the contours.

    Raises
    ------
    ValueError
        If the model has fewer than two coordinates.
    refhmc.errors.ShapeError
        If `path` does not have the shape (n, d).

    References
    ----------
    Girolami and Calderhead (2011), Riemann manifold Langevin and Hamiltonian Monte Carlo methods, sec. 2, figs. 1 and 2.

    Examples
    --------
    >>> import numpy as np, refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1), refhmc.metrics.SoftAbs())
    >>> ax = refhmc.plot.metric_ellipses(H, np.array([[0.0, 0.0], [1.0, 0.5]]))
    >>> len(ax.patches)
    2
    """
    from refhmc.errors import MetricError

    q = np.atleast_2d(np.asarray(getattr(path, "q", path), dtype=float))
    if H.model.dim < 2:
        raise ValueError("H must have a model with at least two coordinates; got one with a single coordinate.")
    if q.ndim != 2 or q.shape[1] != H.model.dim or not len(q):
        raise ShapeError(f"path must have the shape (n, {H.model.dim}), with at least one position; got {q.shape}.")
    Ellipse, pair = import_matplotlib("matplotlib.patches").Ellipse, list(coordinates)
    ax, shown = axes(ax, 5.6, 5.0), []
    for at in q[::every]:
        if not np.isfinite(at).all():
            continue
        try:
            A = np.linalg.inv(H.mass(at))[np.ix_(pair, pair)]
        except (MetricError, np.linalg.LinAlgError):
            continue
        shown.append((at[pair], *half_axes(A, scale)))
    reach = [corner for centre, half, _ in shown for corner in (centre - half.max(), centre + half.max())]
    x, y = (limits(q[:, k], [corner[i] for corner in reach], share=0.05) for i, k in enumerate(pair))
    density_contours(ax, H.model, pair, q[0], x, y)
    for centre, half, angle in shown:
        ax.add_patch(Ellipse(centre, *(2 * half), angle=angle, fc=ORANGE, ec=ORANGE, alpha=0.35, lw=1))
    ax.plot(q[:, pair[0]], q[:, pair[1]], "-o", color=BLUE, ms=2.5, lw=1, label="path")
    ax.plot([], [], "-", color=ORANGE, lw=4, alpha=0.5, label=f"{scale:g} × ellipse of G⁻¹")
    name_axes(ax, H.model.names[pair[0]], H.model.names[pair[1]])
    ax.set(xlim=x, ylim=y)
    legend(ax)
    return ax


def half_axes(A: np.ndarray, scale: float) -> tuple[np.ndarray, float]:
    """Return the half axes (2,) of {s u: u' A^-1 u = 1} and the angle of the first from the x axis, in degrees."""
    values, vectors = np.linalg.eigh(A)
    return scale * np.sqrt(values), float(np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0])))
