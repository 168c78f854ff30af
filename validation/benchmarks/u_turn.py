"""NUTS's U-turn criterion on hierarchical metrics: ``python -m validation.benchmarks.u_turn``.

Five seeds, four chains of 1,000 iterations of warm-up and 1,000 draws each. The columns are the bulk effective sample size per
1,000 gradients, medians over the seeds: that of the hyperparameter (with its range) and of its squared distance from the mean,
and the least of all coordinates and of all such squares. Then the gradients per draw, the divergences of 4,000 draws, and the
R-hat of the hyperparameter. "all coordinates" is NUTS with the criterion of a constant metric; "hyperparameters" is what NUTS
does on a hierarchical metric.
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
from refhmc import HMC, NUTS, diagnostics, metrics, models
from validation.benchmarks import common

SEEDS = range(5)


class Unaware(metrics.Hierarchical):
    """The same metric, but NUTS does not know the hyperparameters."""

    def hyperparameters(self, model: refhmc.Model | None = None) -> np.ndarray:
        return np.zeros(np.shape(self.constants)[1], bool)


def funnel_with_normals(d: int) -> refhmc.Model:
    """Funnel with ten coordinates, and d independent normals."""

    def log_density(q: np.ndarray) -> float:
        v, x, y = q[0], q[1:11], q[11:]
        return -v * v / 18 + 5 * v - 0.5 * np.exp(v) * np.sum(x * x) - 0.5 * np.sum(y * y)

    def gradient(q: np.ndarray) -> np.ndarray:
        g = -q
        g[1:11] *= np.exp(q[0])
        g[0] = -q[0] / 9 + 5 - 0.5 * np.exp(q[0]) * np.sum(q[1:11] ** 2)
        return g

    return refhmc.Model(11 + d, log_density, gradient, name="funnel with normals")


def funnel_terms(n: int, others: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass 1/9 + n/2 of v, e^v of n coordinates, and 1 of the others."""
    d = 1 + n + others
    constants, slopes = np.zeros(d), np.zeros(d)
    constants[0], slopes[1 : n + 1] = np.log(1 / 9 + n / 2), 1.0
    return constants[None], np.zeros((1, d), int), slopes[None, None]


def schools_terms() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precisions of likelihood and prior, q = (theta, mu, log tau)."""
    sigma = models.EightSchools().generated.constant_data["sigma"]
    J = len(sigma)
    a, c = np.full((2, J + 2), -np.inf), np.zeros((2, 1, J + 2))
    a[0, :J], a[1, :J], c[1, 0, :J] = -2 * np.log(sigma), 0.0, -2.0
    a[0, J], a[1, J], c[1, 0, J] = np.log(1 / 25), np.log(J), -2.0
    a[0, J + 1] = np.log(2 * J + 0.5)
    return a, np.full((1, J + 2), J + 1), c


def problems() -> dict[str, tuple[refhmc.Model, tuple, int]]:
    """Model, terms of the metric, and the hyperparameter."""
    return {
        **{f"funnel {n} + 1": (models.Funnel(n), funnel_terms(n), 0) for n in (2, 10, 100)},
        "funnel 10 + 1 and 100 normals": (funnel_with_normals(100), funnel_terms(10, 100), 0),
        "eight schools, centred": (models.EightSchools(centered=True), schools_terms(), 9),
    }


def run(model: refhmc.Model, kernel: object, hyperparameter: int, seed: int) -> list[float]:
    """The columns of one run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)
        result = refhmc.sample(model, kernel, random_seed=seed, cores=1, raw=True, progressbar=False)
    q, stats = result.draws, result.sample_stats
    thousands = stats["n_gradient_evaluations"].sum() / 1000
    ess, squares = diagnostics.ess(q), diagnostics.ess((q - q.mean(axis=(0, 1))) ** 2)
    rates = [ess[hyperparameter], squares[hyperparameter], ess.min(), squares.min()] / thousands
    worst = diagnostics.rhat(q)[hyperparameter]
    return [*rates, stats["n_gradient_evaluations"].mean(), stats["diverging"].sum(), worst]


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    common.pin_to_one_core()
    about, rows, figures = common.machine(["refhmc", "numba", "numpy"]), [], {}
    for name, (model, terms, hyperparameter) in problems().items():
        kernels = {
            "NUTS, all coordinates": NUTS(metric=Unaware(*terms)),
            "NUTS, hyperparameters": NUTS(metric=metrics.Hierarchical(*terms)),
            "HMC, learned length": HMC(metric=metrics.Hierarchical(*terms)),
        }
        for title, kernel in kernels.items():
            runs = np.array([run(model, kernel, hyperparameter, seed) for seed in SEEDS])
            h, h2, least, least2, cost, divergences, rhat = np.median(runs, axis=0)
            figures[f"{name}: {title}"] = runs.tolist()
            spread = f"{runs[:, 0].min():.3g}..{runs[:, 0].max():.3g}"
            numbers = [f"{h:.3g}", spread, *(f"{x:.3g}" for x in (h2, least, least2)), f"{cost:.1f}"]
            rows.append([f"{name}: {title}", *numbers, f"{divergences:.0f}", f"{rhat:.3f}"])
            print(rows[-1], flush=True)
    header = [
        "model and kernel",
        "h",
        "range",
        "h squared",
        "least",
        "least squared",
        "gradients",
        "divergences",
        "R-hat",
    ]
    what = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    text = f"{what}\n\n{common.table(header, rows)}"
    common.report("u_turn", "U-turn criterion on hierarchical metrics", text, {"figures": figures}, about)


if __name__ == "__main__":
    main()
