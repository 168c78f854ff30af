"""The pictures of :mod:`validation.cobb_figures`, :mod:`validation.cobb_funnel_figures` and :mod:`validation.cobb_logistic`."""

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


def draw_growth(found: dict) -> None:
    """Figure 2: KL as the chain grows, each run and their median, above; autocorrelation of v below."""
    figure, axes = new_figure(2, len(found), (6 * len(found), 8))
    for column, (side, samplers) in enumerate(found.items()):
        upper, lower = axes[:, column]
        for k, (name, x) in enumerate(samplers.items()):
            for run in x["kl"]:
                upper.loglog(x["lengths"], run, f"C{k}", lw=0.4, alpha=0.4)
            upper.loglog(x["lengths"], np.median(x["kl"], axis=0), f"C{k}", lw=2, label=name)
            lower.plot(x["rho"], f"C{k}", lw=1.5, label=name)
        upper.set(title=f"chain: {side}", xlabel="transitions", ylabel="KL(p(v) || q(v))", ylim=(1e-4, 30))
        lower.set(xlabel="lag", ylabel="autocorrelation of v", ylim=(-0.3, 1.05))
        lower.axhline(0, color="k", lw=0.5)
        upper.legend(fontsize=8)
    figure.tight_layout()
    common.save_figure(figure, "cobb_figure2")


def draw_planes(found: dict) -> None:
    """Figure 3: draws of one run in the plane of x_1 and v, and the funnel's 2.5 % and 97.5 % points of x_1."""
    v = np.linspace(-12, 10, 200)
    figure, axes = new_figure(len(found), 4, (16, 4 * len(found)))
    for row, (side, samplers) in enumerate(found.items()):
        for axis in axes[row, len(samplers) :]:
            axis.axis("off")
        for axis, (name, x) in zip(axes[row], samplers.items(), strict=False):
            axis.plot(*np.asarray(x["picture"])[:, 1::-1].T, ".", ms=2, alpha=0.4)
            for sign in (-1.96, 1.96):
                axis.plot(sign * np.exp(-v / 2), v, "r", lw=0.8)
            axis.set(title=f"{name}, chain: {side}", xlabel="x_1", ylabel="v", xlim=(-15, 15), ylim=(-12, 10))
    figure.tight_layout()
    common.save_figure(figure, "cobb_figure3")


def draw_histograms(found: dict) -> None:
    """Figure 4: the histogram of v of one run, and N(0, 9)."""
    v = np.linspace(-12, 12, 200)
    density = np.exp(-(v**2) / 18) / np.sqrt(18 * np.pi)
    figure, axes = new_figure(len(found), 4, (16, 3 * len(found)))
    for row, (side, samplers) in enumerate(found.items()):
        for axis in axes[row, len(samplers) :]:
            axis.axis("off")
        for axis, (name, x) in zip(axes[row], samplers.items(), strict=False):
            axis.stairs(x["histogram"], x["edges"], fill=True, alpha=0.5)
            axis.plot(v, density, "r", lw=1)
            axis.set(title=f"{name}, chain: {side}, KL {x['last'][0]:.3f}", xlabel="v", xlim=(-12, 12), ylim=(0, 0.3))
    figure.tight_layout()
    common.save_figure(figure, "cobb_figure4")


def draw_memory(memories: dict) -> None:
    """Figure 5: autocorrelation of the recorded positions with 30 steps a trajectory, and with the printed number."""
    figure, axes = new_figure(1, 2, (12, 4))
    for axis, title, which in zip(axes[0], ("L = 30", "L = 1 (HMC), 3"), (0, 1), strict=True):
        for name, found in memories.items():
            axis.plot(list(found.values())[which]["rho"], label=name)
        axis.axhline(0, color="k", lw=0.5)
        axis.set(title=title, xlabel="lag, integrator steps", ylabel="autocorrelation", ylim=(-1, 1.05))
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    common.save_figure(figure, "cobb_figure5")


def draw_priors(posteriors: dict, m: np.ndarray) -> None:
    """Figure 6: draws of five parameters at each beta, HMC and the explicit scheme, either chain; the line is m."""
    samplers = ("HMC", "explicit, G / N")
    betas = list(posteriors["HMC"])
    figure, axes = new_figure(2, len(betas), (4 * len(betas), 7))
    for column, beta in enumerate(betas):
        for row, rule in enumerate(posteriors["HMC"][beta]):
            axis = axes[row, column]
            for k, name in enumerate(samplers):
                draws = np.asarray(posteriors[name][beta][rule]["draws"])
                for j in range(draws.shape[1]):
                    across = j + 0.3 * k - 0.15 + 0.1 * np.linspace(-1, 1, len(draws))
                    axis.plot(across, draws[:, j], f"C{k}.", ms=1.5, alpha=0.4, label=name if j == 0 else None)
                    axis.plot([j - 0.4, j + 0.4], [m[j], m[j]], "r", lw=0.8)
            axis.set(title=f"beta = {beta}, chain: {rule}", xlabel="parameter", ylim=(-1, 4))
            axis.legend(fontsize=7, markerscale=5)
    figure.tight_layout()
    common.save_figure(figure, "cobb_figure6")
