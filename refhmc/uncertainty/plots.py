"""Pictures of uncertainty. Each function draws on ``ax``, or on a new one, and returns it. They need the extra ``plot``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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


def axes(ax: Any) -> Any:
    return import_matplotlib("matplotlib.pyplot").subplots()[1] if ax is None else ax


def plot_calibration_curve(
    probability: Any, y: Any, bins: int = 15, *, ax: Any = None, label: str | None = None
) -> Any:
    """Accuracy against confidence, and the diagonal of perfect calibration."""
    ax = axes(ax)
    _, rows, confidence, right = calibration_curve(probability, y, bins)
    ax.axline((0, 0), slope=1, color="black", lw=0.8, ls=":")
    ece = f"ECE {expected_calibration_error(probability, y, bins):.3f}"
    ax.plot(confidence[rows > 0], right[rows > 0], marker="o", label=f"{label}, {ece}" if label else ece)
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(-0.02, 1.02))
    ax.legend()
    return ax


def plot_cumulative_entropy(probability: Any, y: Any, *, ax: Any = None, label: str | None = None) -> Any:
    """Figure 2 of Cobb and Jalaian (2021): the distribution function of the entropy of misclassified rows. Low is good."""
    ax = axes(ax)
    entropy, share = cumulative_entropy(probability, y)
    classes = np.shape(probability)[-1]
    ends = [0.0, *entropy, np.log(classes)]
    ax.step(ends, [0.0, *share, share[-1] if len(share) else 0.0], where="post", label=label)
    ax.set(xlabel="predictive entropy (nats)", ylabel="share of the misclassified", ylim=(0, 1.02))
    if label:
        ax.legend()
    return ax


def plot_mutual_information_matrix(
    probability: Any, y: Any, *, names: Sequence[str] | None = None, ax: Any = None, vmax: float | None = None
) -> Any:
    """Figure 3 of Cobb and Jalaian (2021): mean mutual information by class, blank without rows, the diagonal framed."""
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
    x: Any, mean: Any, sd: Any, *, data: tuple | None = None, widths: Sequence[float] = (1.0, 2.0), ax: Any = None
) -> Any:
    """Mean and bands against x (n,) or (n, 1), of the first output; ``data`` = (x, y) are put in as points."""
    ax = axes(ax)
    m, _ = draws_of(mean, sd)
    n = m.shape[1]
    if np.shape(x) not in ((n,), (n, 1)):
        raise ShapeError(f"x must be ({n},) or ({n}, 1), as the rows of mean, got {np.shape(x)}")
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
