"""Plots of uncertainty. Each function draws on ``ax``, or on a new one, and returns it. They require the extra ``plot``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.matplotlib import import_matplotlib
from refhmc.errors import ShapeError
from refhmc.models.inputs import finite
from refhmc.uncertainty.classification import (
    calibration_curve,
    cumulative_entropy,
    expected_calibration_error,
    mutual_information_matrix,
)
from refhmc.uncertainty.regression import band, draws_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes(ax: Axes | None) -> Axes:
    return import_matplotlib("matplotlib.pyplot").subplots()[1] if ax is None else ax


def plot_calibration_curve(
    probability: ArrayLike, y: ArrayLike, bins: int = 15, *, ax: Axes | None = None, label: str | None = None
) -> Axes:
    """Plot accuracy against confidence, with the diagonal of perfect calibration.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.
    bins : int, default 15
        Number of bins.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.
    label : str, optional
        Label of the curve in the legend.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label.

    See Also
    --------
    calibration_curve : Return the numbers of this plot.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.plot_calibration_curve(p, [1, 1], bins=2).get_xlabel()
    'confidence'
    """
    ax = axes(ax)
    _, rows, confidence, right = calibration_curve(probability, y, bins)
    ax.axline((0, 0), slope=1, color="black", lw=0.8, ls=":")
    ece = f"ECE {expected_calibration_error(probability, y, bins):.3f}"
    ax.plot(confidence[rows > 0], right[rows > 0], marker="o", label=f"{label}, {ece}" if label else ece)
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(-0.02, 1.02))
    ax.legend()
    return ax


def plot_cumulative_entropy(
    probability: ArrayLike, y: ArrayLike, *, ax: Axes | None = None, label: str | None = None
) -> Axes:
    """Plot the distribution function of the predictive entropy of misclassified rows.

    A good classifier has a low curve: its errors are uncertain.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.
    label : str, optional
        Label of the curve in the legend.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label.

    See Also
    --------
    cumulative_entropy : Return the numbers of this plot.

    References
    ----------
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo inference for Bayesian neural networks with symmetric splitting,
    fig. 2.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.plot_cumulative_entropy(p, [1, 1]).get_xlabel()
    'predictive entropy (nats)'
    """
    ax = axes(ax)
    entropy, share = cumulative_entropy(probability, y)
    classes = np.shape(probability)[-1]
    ends = [0.0, *entropy, np.log(classes)]
    ax.step(ends, [0.0, *share, share[-1] if len(share) else 0.0], where="post", label=label)
    ax.set(xlabel="predictive entropy (nats)", ylabel="share of misclassified rows", ylim=(0, 1.02))
    if label:
        ax.legend()
    return ax


def plot_mutual_information_matrix(
    probability: ArrayLike,
    y: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
    vmax: float | None = None,
) -> Axes:
    """Plot the mean mutual information by true and predicted class.

    Pairs of classes without rows are blank, and the diagonal is framed.

    Parameters
    ----------
    probability : array_like of shape (..., n, classes)
        Probabilities of the classes for n rows. All axes in front are axes of draws.
    y : array_like of shape (n,)
        Labels 0, ..., classes - 1.
    names : sequence of str, optional
        Names of the classes. Defaults to their numbers.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.
    vmax : float, optional
        Upper end of the colour scale, in nats. Defaults to the largest value.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If `probability` is not a probability distribution over the classes, or if `y` is not a label.

    See Also
    --------
    mutual_information_matrix : Return the numbers of this plot.

    References
    ----------
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo inference for Bayesian neural networks with symmetric splitting,
    fig. 3.

    Examples
    --------
    >>> import refhmc
    >>> p = [[0.5, 0.5], [0.25, 0.75]]
    >>> refhmc.uncertainty.plot_mutual_information_matrix(p, [1, 1]).get_ylabel()
    'true class'
    """
    ax = axes(ax)
    mean, _ = mutual_information_matrix(probability, y)
    k = len(mean)
    image = ax.imshow(np.ma.masked_invalid(mean), cmap="viridis", vmin=0, vmax=vmax)
    ax.figure.colorbar(image, ax=ax, label="mutual information (nats)")
    Rectangle = import_matplotlib("matplotlib.patches").Rectangle
    for i in range(k):
        ax.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor="red"))
        for j in range(k):
            if np.isfinite(mean[i, j]):
                ax.text(j, i, f"{mean[i, j]:.2f}", ha="center", va="center", color="white", fontsize=7)
    ticks = [str(i) for i in range(k)] if names is None else list(names)
    ax.set_xticks(range(k), ticks, rotation=0 if names is None else 90)
    ax.set_yticks(range(k), ticks)
    ax.set(xlabel="predicted class", ylabel="true class")
    return ax


def plot_band(
    x: ArrayLike,
    mean: ArrayLike,
    sd: ArrayLike,
    *,
    data: tuple | None = None,
    widths: Sequence[float] = (1.0, 2.0),
    ax: Axes | None = None,
) -> Axes:
    """Plot predictive mean and bands of the first output against one input.

    Parameters
    ----------
    x : array_like of shape (n,) or (n, 1)
        Inputs.
    mean : array_like of shape (..., n, outputs)
        Means m_s of the predictions. All axes in front are axes of draws.
    sd : float or array_like of shape (...)
        Standard deviation of the noise, or one for each draw.
    data : tuple of two array_like, optional
        Observations (x, y), drawn as points.
    widths : sequence of float, default (1.0, 2.0)
        Half widths of the bands, in standard deviations.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. Defaults to those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.

    Raises
    ------
    refhmc.errors.ShapeError
        If the shapes do not agree.
    ValueError
        If a number is not finite, or if `sd` or a width is not positive.

    See Also
    --------
    band : Return the numbers of this plot.

    Examples
    --------
    >>> import refhmc
    >>> len(refhmc.uncertainty.plot_band([0.0, 1.0], [[0.0], [1.0]], 0.5).collections)
    2
    """
    ax = axes(ax)
    m, _ = draws_of(mean, sd)
    n = m.shape[1]
    if np.shape(x) not in ((n,), (n, 1)):
        raise ShapeError(f"x must have the shape ({n},) or ({n}, 1), the rows of mean; got {np.shape(x)}.")
    x = finite("x", x).ravel()
    order = np.argsort(x, kind="stable")
    for shade, width in enumerate(sorted(widths, reverse=True), 1):
        low, high = band(mean, sd, width)
        ax.fill_between(
            x[order], low[order, 0], high[order, 0], color="C0", alpha=0.2 * shade, lw=0, label=f"{width:g} sd"
        )
    ax.plot(x[order], m.mean(axis=0)[order, 0], color="C0", label="mean")
    if data is not None:
        ax.plot(np.ravel(data[0]), np.ravel(data[1]), ".", color="black", ms=3, label="data")
    ax.set(xlabel="x", ylabel="y")
    ax.legend()
    return ax
