"""The pictures of :mod:`validation.cobb_figures`."""

from __future__ import annotations

import numpy as np

from validation import common
from validation.betancourt_pictures import new_figure


def draw_sweep(sweep: dict) -> None:
    """Figure 7: paths in the plane, Tao's binding above and the published program's below, short and long."""
    figure, axes = new_figure(2, len(sweep), (6 * len(sweep), 9))
    for column, (steps, rows) in enumerate(sweep.items()):
        for row, kind in enumerate(("Tao", "program")):
            axis = axes[row, column]
            reference = rows["reference"]["path"]
            axis.plot(*reference.T, "k", lw=3, alpha=0.3, label="reference")
            axis.plot(*rows["implicit"]["path"].T, "r--", lw=1.5, label="implicit")
            for name, found in rows.items():
                if name.startswith(kind):
                    axis.plot(*found["path"].T, lw=1, label=name.split(", ")[1])
            low, high = reference.min(axis=0), reference.max(axis=0)
            margin = 0.3 * (high - low) + 1e-3
            axis.set_xlim(low[0] - margin[0], high[0] + margin[0])
            axis.set_ylim(low[1] - margin[1], high[1] + margin[1])
            axis.set(title=f"{kind}, {steps} steps", xlabel="w", ylabel="b")
            axis.legend(fontsize=7)
    figure.tight_layout()
    common.save_figure(figure, "cobb_figure7")


def draw_race(races: dict, mode: np.ndarray, covariance: np.ndarray) -> None:
    """Figure 1: the first 100 draws of each sampler; the ellipse of two standard deviations."""
    figure, axes = new_figure(1, len(races), (3.4 * len(races), 3.4))
    angle = np.linspace(0, 2 * np.pi, 100)
    ring = mode + 2 * np.c_[np.cos(angle), np.sin(angle)] @ np.linalg.cholesky(covariance).T
    for axis, (name, found) in zip(axes[0], races.items(), strict=True):
        path = np.vstack([[10.0, 0.0], found["path"][:100]])
        axis.plot(*path.T, ".-", lw=0.6, ms=3)
        axis.plot(*ring.T, "k", lw=0.8)
        axis.plot(2, 0, "rx")
        axis.set(title=name, xlabel="w", ylabel="b")
    figure.tight_layout()
    common.save_figure(figure, "cobb_figure1")
