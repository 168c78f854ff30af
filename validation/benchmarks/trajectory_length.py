"""The length of HMC's trajectories that warm-up learns, beside pi/2: ``python -m validation.benchmarks.trajectory_length``.

Five seeds, four chains of 1,000 iterations of warm-up and 1,000 draws each. Of each run: the least bulk effective sample size
of a coordinate, for 1,000 evaluations of the gradient in the draws; the least of those and twice that of a squared distance
from the mean, which is what warm-up maximises; medians over the seeds, and the range of the first. The gradients of warm-up
are given for each gradient of the draws.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import sys
import warnings

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc import HMC, NUTS, diagnostics, metrics, models
from validation.benchmarks import common

SEEDS = range(5)


def normal(d: int, condition: float, rotated: bool = False) -> refhmc.Model:
    """Variances spread evenly in their logarithm from 1 to ``condition``"""
    axes = np.linalg.qr(np.random.default_rng(5).normal(size=(d, d)))[0] if rotated else np.eye(d)
    return models.Gaussian(0.0, (axes * np.geomspace(1, condition, d)) @ axes.T)


def problems() -> dict[str, tuple[refhmc.Model, dict, dict]]:
    """Model, options of HMC, kernels beside it."""
    identity, softabs = {"metric": metrics.Identity()}, {"metric": metrics.SoftAbs(alpha=1e6)}
    beside = {"NUTS": NUTS(**identity)}
    return {
        "standard normal, d = 2": (normal(2, 1), {}, {}),
        "standard normal, d = 10": (normal(10, 1), {}, {}),
        "standard normal, d = 100": (normal(100, 1), {}, {}),
        "normal of condition 100, d = 10, Identity": (normal(10, 100, True), identity, beside),
        "normal of condition 100, d = 100, Identity": (normal(100, 100, True), identity, beside),
        "heart, logistic regression": (models.Heart(), {}, {}),
        "heart, Fisher": (models.Heart(), {"metric": metrics.Fisher()}, {}),
        "banana, Fisher": (models.Banana(), {"metric": metrics.Fisher()}, {}),
        "funnel 10 + 1, SoftAbs": (models.Funnel(), softabs, {"15": HMC(trajectory_length=15.0, **softabs)}),
    }


def run(model: refhmc.Model, kernel: object, seed: int) -> list[float]:
    """Least ESS and least of it and twice the squares', for 1,000 gradients; both ESS; length; gradients of warm-up."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)
        result = refhmc.sample(model, kernel, random_seed=seed, cores=1, raw=True, progressbar=False)
    q, stats = result.draws, result.sample_stats
    gradients = stats.get("n_gradient_evaluations", stats["n_steps"]).sum()
    ess, of_squares = diagnostics.ess(q).min(), diagnostics.ess((q - q.mean(axis=(0, 1))) ** 2).min()
    of_warm_up = result.attributes["n_gradient_evaluations"] / gradients - 1
    rates = [1000 * ess / gradients, 1000 * min(ess, 2 * of_squares) / gradients]
    return [*rates, ess, of_squares, float(stats["int_time"].mean()), of_warm_up]


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    common.pin_to_one_core()
    about, rows, figures = common.machine(["refhmc", "numba", "numpy"]), [], {}
    for name, (model, options, beside) in problems().items():
        kernels = {"pi/2": HMC(trajectory_length=math.pi / 2, **options), "learned": HMC(**options), **beside}
        for title, kernel in kernels.items():
            runs = np.array([run(model, kernel, seed) for seed in SEEDS])
            rate, criterion, ess, of_squares, length, of_warm_up = np.median(runs, axis=0)
            figures[f"{name}: {title}"] = runs.tolist()
            spread = f"{runs[:, 0].min():.3g}..{runs[:, 0].max():.3g}"
            sizes = [f"{rate:.3g}", spread, f"{criterion:.3g}", f"{ess:.0f}", f"{of_squares:.0f}"]
            rows.append([f"{name}: {title}", *sizes, f"{length:.2f}", f"{of_warm_up:.1f}"])
            print(rows[-1], flush=True)
    header = [
        "least ESS",
        "q / 1,000 gradients",
        "range",
        "q, 2 sq. / 1,000",
        "q of 4,000",
        "squares",
        "length",
        "warm-up",
    ]
    what = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    text = f"{what}\n\n{common.table(header, rows)}"
    common.report("trajectory_length", "Length of trajectories learned in warm-up", text, {"figures": figures}, about)


if __name__ == "__main__":
    main()
