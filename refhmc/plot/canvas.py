"""Shared parts of the plots: figures without pyplot, colours, axes and contours of a density.

The colours are those of Okabe and Ito (2008), which are distinguishable for colour-blind readers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.matplotlib import import_matplotlib
from refhmc.models.model_on_arrays import ModelOnArrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from refhmc.models.base import Model

BLUE, ORANGE, GREEN, RED, SKY, PURPLE, YELLOW, BLACK, GREY = (
    *("#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#000000", "#7f7f7f"),
)
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)  # colours of the chains, in turn
GRID = 61  # grid points of contours along each axis
LEVELS = (0.5, 2.0, 4.5, 8.0, 12.5)  # above the minimum of -L: 1, 2, ... standard deviations of a Gaussian


@functools.cache
def picture_class() -> type:
    """Return a subclass of Matplotlib's Figure that a notebook shows as the last value of a cell."""
    Figure: Any = import_matplotlib("matplotlib.figure").Figure
    Canvas = import_matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg

    class Picture(Figure):  # type: ignore[misc,valid-type]
        """A figure without a window: it needs no display and does not have to be closed."""

        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            Canvas(self)

        def _repr_png_(self) -> bytes:
            import io

            file = io.BytesIO()
            self.savefig(file, format="png")
            return file.getvalue()

    return Picture


def new_figure(width: float = 6.4, height: float = 4.8) -> Figure:
    """Return an empty figure with this size in inches."""
    return picture_class()(figsize=(width, height), layout="constrained")


def axes(ax: Axes | None, width: float = 6.4, height: float = 4.8) -> Axes:
    """Return `ax`, or the axes of a new figure. Raises ImportError without Matplotlib."""
    return new_figure(width, height).subplots() if ax is None else ax


def panels(
    figure: Figure | None, rows: int, columns: int, width: float, height: float, **given: Any
) -> tuple[Figure, np.ndarray]:
    """Return `figure`, or a new one, and its axes (rows, columns)."""
    figure = new_figure(width, height) if figure is None else figure
    return figure, figure.subplots(rows, columns, squeeze=False, **given)


def legend(ax: Axes, **given: Any) -> None:
    """Draw a legend if there are labels."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize="small", framealpha=0.85, **given)


def plain(name: str) -> str:
    """Escape a name so that Matplotlib does not read a dollar sign as mathematics."""
    return name.replace("$", r"\$")


def name_axes(ax: Axes, x: str | None = None, y: str | None = None) -> None:
    """Label axes with names from a file, which may be untrusted: never as TeX, whatever the user's settings are."""
    for set_label, name in ((ax.set_xlabel, x), (ax.set_ylabel, y)):
        if name is not None:
            set_label(plain(name), usetex=False)


def colour(k: int) -> str:
    return COLOURS[k % len(COLOURS)]


def limits(*values: ArrayLike, share: float = 0.15) -> tuple[float, float]:
    """Return a range that contains the finite values, with a margin."""
    finite = np.concatenate([np.ravel(np.asarray(each, dtype=float)) for each in values])
    finite = finite[np.isfinite(finite)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    room = share * (high - low) or 1.0
    return low - room, high + room


def plane(x: tuple[float, float], y: tuple[float, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the grid of a rectangle: its x (GRID,), its y (GRID,) and its points (GRID, GRID, 2), with rows along y."""
    xs, ys = np.linspace(*x, GRID), np.linspace(*y, GRID)
    return xs, ys, np.stack(np.meshgrid(xs, ys), axis=-1)


def contours(ax: Axes, xs: np.ndarray, ys: np.ndarray, surface: np.ndarray) -> None:
    """Draw contours of `surface` (len(ys), len(xs)) at 1/2, 2, 9/2, ... above its minimum.

    For -L or H of a Gaussian, these levels are 1, 2, 3, ... standard deviations.
    """
    finite = np.isfinite(surface)
    if not finite.any():
        return
    levels = np.min(surface[finite]) + np.array(LEVELS)
    ax.contour(xs, ys, np.ma.masked_invalid(surface), levels=levels, colors=GREY, linewidths=0.7, alpha=0.7, zorder=0)


def density_contours(
    ax: Axes, model: Model, pair: Sequence[int], at: np.ndarray, x: tuple[float, float], y: tuple[float, float]
) -> None:
    """Draw contours of -L over two coordinates within `x` and `y`, with the others fixed at `at` (d,)."""
    xs, ys, points = plane(x, y)
    q = np.broadcast_to(np.asarray(at, dtype=float), (*points.shape[:2], model.dim)).copy()
    q[..., list(pair)] = points
    with np.errstate(all="ignore"):
        L, _ = ModelOnArrays(model).value_and_gradient(q)
    contours(ax, xs, ys, -np.asarray(L))
