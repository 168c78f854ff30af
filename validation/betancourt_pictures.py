"""The pictures of :mod:`validation.betancourt_figures`."""

from __future__ import annotations

import numpy as np

from validation import common

TITLES = {
    "emhmc": "EMHMC",
    "emhmc_adapted": "EMHMC, step adapted",
    "softabs": "SoftAbs",
    "diagonal": "DiagonalSoftAbs",
    "outer": "diagonal outer product",
}
COLOURS = {"V": "C3", "T": "C0", "half_log_det": "C2", "H": "k"}
LABELS = {"V": "V", "T": "T", "half_log_det": "½ log det G", "H": "H"}


def new_figure(rows: int, columns: int, size: tuple[float, float]):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(rows, columns, figsize=size, squeeze=False)


def draw_trajectories(paths: dict) -> None:
    """Figures 3, 5, 7, 9: v above, the energies below."""
    figure, axes = new_figure(2, len(paths), (4 * len(paths), 6))
    for column, (name, path) in enumerate(paths.items()):
        upper, lower = axes[:, column]
        upper.plot(path["time"], path["v"], lw=1)
        upper.set(title=TITLES[name], ylabel="v")
        for part, colour in COLOURS.items():
            lower.plot(path["time"], path[part], colour, lw=1, label=LABELS[part])
        lower.set(xlabel="time", ylabel="energy")
        lower.legend(fontsize=7)
    figure.tight_layout()
    common.save_figure(figure, "betancourt_trajectories")


def draw_chains(chains: dict) -> None:
    """Figures 2, 4, 6, 8, 10: trace, autocorrelation, histogram against N(0, 9)."""
    figure, axes = new_figure(3, len(chains), (4 * len(chains), 8))
    grid = np.linspace(-12, 12, 200)
    density = np.exp(-(grid**2) / 18) / np.sqrt(18 * np.pi)
    for column, (name, found) in enumerate(chains.items()):
        trace, lags, histogram = axes[:, column]
        trace.plot(found["v"], lw=0.3)
        trace.set(title=TITLES[name], ylabel="v", ylim=(-13, 13))
        shown = found["rho"] if name.startswith("emhmc") else found["rho"][:51]
        lags.plot(shown, lw=1)
        lags.set(ylabel="autocorrelation of v", xlabel="lag", ylim=(-0.6, 1.05))
        lags.axhline(0, color="k", lw=0.5)
        histogram.hist(found["v"], bins=np.linspace(-12, 12, 49), density=True, alpha=0.6)
        histogram.plot(grid, density, "r", lw=1)
        histogram.set(xlabel="v")
    figure.tight_layout()
    common.save_figure(figure, "betancourt_chains")
