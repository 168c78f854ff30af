"""What the target acceptance makes of NUTS: ``python -m validation.benchmarks.target_acceptance [--seeds N] [--only NAME]``.

Four chains of 1,000 iterations of warm-up and 1,000 draws with the default metric; the last row of each problem is Stan's
warm-up, a dense metric from draws and the target 0.8. For 1,000 gradients, those of warm-up included, the least effective
sample size of a coordinate, and that of a square, (q_i - mean)^2; the acceptance that came of the target; steps a draw; how
many of 100,000 draws diverged. Medians over the seeds (of divergences the mean), in brackets the least and the largest.

Trees have 1, 3, 7, 15 steps. Where a metric leaves a posterior nearly round, a step in the middle of two of them makes draws of
both kinds, and a trajectory of one kind goes to the other side of the mean: its draws know the mean better than independent
ones do, the squares they do not. So the least effective size of a coordinate has peaks and a trough in the target, that
of a square has not. The warm-up of Stan ends with 50 iterations of a new dual averaging, and what comes of its target 0.8 is
near 0.89.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import warnings

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc.numerics.convergence import ess
from validation.benchmarks import common
from validation.benchmarks.posteriors import POSTERIORS

NAME = "target_acceptance"
TARGETS = (0.6, 0.7, 0.8, 0.9, 0.95)
PROBLEMS = (
    *("eight schools", "arK", "garch", "gaussian mixture", "gaussian process", "kidscore", "normal 100, condition 1"),
    *("logistic 277 x 10", "logistic 768 x 9", "24 collinear columns, N = 5000", "line on years"),
)
COLUMNS = ("of a coordinate", "of a square", "acceptance", "steps", "divergences")


def figures(model: refhmc.Model, kernel: refhmc.NUTS, seed: int, warmup: str | None) -> list[float]:
    """In the order of ``COLUMNS``."""
    options = {"cores": 1, "raw": True, "progressbar": False, "warmup": warmup}
    result = refhmc.sample(model, kernel, random_seed=seed, **options)
    draws, stats = result.draws, result.sample_stats
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    gradients = result.attributes["n_gradient_evaluations"]
    each = [1000 * ess(x).min() / gradients for x in (draws, squares)]
    return [*each, stats["acceptance_rate"].mean(), stats["n_steps"].mean(), 1e5 * stats["diverging"].mean()]


def in_words(found: np.ndarray) -> list[str]:
    """Of figures (seeds, columns)"""
    middle = np.median(found, axis=0)
    sizes = [f"{middle[j]:.3g} ({found[:, j].min():.3g}..{found[:, j].max():.3g})" for j in (0, 1)]
    return [*sizes, f"{middle[2]:.2f}", f"{middle[3]:.1f}", f"{found[:, 4].mean():.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=PROBLEMS)
    options = parser.parse_args()
    common.pin_to_one_core()
    warnings.simplefilter("ignore")
    about = common.machine(["refhmc", "numpy", "numba"])
    rows, data = [], {}
    for name in options.only:
        model = POSTERIORS[name]().model()
        dense = refhmc.NUTS(metric=refhmc.metrics.Dense())
        kernels = {f"{target}": (refhmc.NUTS(target_accept=target), None) for target in TARGETS}
        for target, (kernel, warmup) in {**kernels, "0.8, Stan's, dense": (dense, "stan")}.items():
            found = np.array([figures(model, kernel, seed, warmup) for seed in range(options.seeds)])
            data[f"{name}, {target}"] = dict(zip(COLUMNS, found.T.tolist(), strict=True))
            rows.append([name, target, *in_words(found)])
            print(" | ".join(rows[-1]), flush=True)
    header = ["problem", "target", *(f"ESS {each}" for each in COLUMNS[:2]), *COLUMNS[2:]]
    text = f"{__doc__}\n{common.table(header, rows)}"
    common.report(NAME, "The target acceptance", text, {"figures": data}, about)


if __name__ == "__main__":
    main()
