"""Kept momentum and delayed rejection on two funnels: ``python -m validation.benchmarks.kept_momentum``.

Five seeds. Each run has four chains of about 100,000 gradients each, after warm-up with 5,000 transitions of a single step, or
2,000 longer ones. The first four columns are medians over the seeds: the bulk effective sample size (ESS) of the scale
parameter per 1,000 gradients, that of its squared distance from the true mean, the R-hat, and the divergences per 1,000 draws.
The next two are the mean and the standard deviation of the scale parameter over all five runs. The first row of each target has
their true values. The last columns are gradients per draw, and the error of the mean over all runs, in standard deviations of
the target. All kernels learn a diagonal metric, except the first one, which has the default metric.
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
from refhmc import DRHMC, GHMC, NUTS, diagnostics, models
from refhmc.metrics import Diagonal
from validation.benchmarks import common
from validation.benchmarks.explicit_targets import schools_reference

SEEDS, GRADIENTS, TUNE = range(5), 100_000, {True: 5_000, False: 2_000}
KERNELS = {
    "NUTS, default metric": NUTS(),
    "NUTS": NUTS(metric=Diagonal()),
    "NUTS, target 0.95": NUTS(metric=Diagonal(), target_accept=0.95),
    "GHMC": GHMC(metric=Diagonal()),
    "GHMC, target 0.99": GHMC(metric=Diagonal(), target_accept=0.99),
    "GHMC, slice variable, target 0.9": GHMC(metric=Diagonal(), slice_shift=0.03, target_accept=0.9),
    "DRHMC": DRHMC(metric=Diagonal()),
    "DRHMC, target 0.6": DRHMC(metric=Diagonal(), target_accept=0.6),
    "DR-G-HMC, persistence 0.98": DRHMC(metric=Diagonal(), n_steps=1, same_length=False, persistence=0.98),
}


def problems() -> dict[str, tuple[refhmc.Model, int, float, float]]:
    """Model, scale parameter, its mean and its standard deviation."""
    mean, square = (each.value for each in schools_reference())
    return {
        "funnel 10 + 1": (models.Funnel(10), 0, 0.0, 3.0),
        "eight schools, centred": (models.EightSchools(centered=True), 9, mean, (square - mean**2) ** 0.5),
    }


def run(model: refhmc.Model, kernel: object, scale: int, mean: float, seed: int) -> tuple[list[float], np.ndarray]:
    """The columns of one run, and the draws of the scale parameter."""
    single = getattr(kernel, "n_steps", None) == 1
    options = {"tune": TUNE[single], "cores": 1, "raw": True, "progressbar": False, "generate": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)
        pilot = refhmc.sample(model, kernel, draws=200, random_seed=1000 + seed, **options)
        draws = int(GRADIENTS / pilot.sample_stats["n_steps"].mean())
        result = refhmc.sample(model, kernel, draws=draws, random_seed=seed, **options)
    x, stats = result.draws[:, :, [scale]], result.sample_stats
    thousands = stats["n_steps"].sum() / 1000
    rates = [diagnostics.ess(y)[0] / thousands for y in (x, (x - mean) ** 2)]
    divergences = 1000 * stats["diverging"].mean()
    return [*rates, diagnostics.rhat(x)[0], divergences, stats["n_steps"].mean()], x.ravel()


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    common.pin_to_one_core()
    about, rows, figures = common.machine(["refhmc", "numba", "numpy"]), [], {}
    for name, (model, scale, mean, deviation) in problems().items():
        rows.append([f"**{name}**", "", "", "", "", f"{mean:.3f}", f"{deviation:.3f}", "", ""])
        for title, kernel in KERNELS.items():
            runs = [run(model, kernel, scale, mean, seed) for seed in SEEDS]
            columns, moments = np.array([each for each, _ in runs]), np.array([(x.mean(), x.std()) for _, x in runs])
            ess, squares, rhat, divergences, cost = np.median(columns, axis=0)
            centre = moments[:, 0].mean()
            spread = np.sqrt(np.mean(moments[:, 1] ** 2 + (moments[:, 0] - centre) ** 2))
            figures[f"{name}: {title}"] = {"columns": columns.tolist(), "moments": moments.tolist()}
            row = [title, f"{ess:.2f}", f"{squares:.2f}", f"{rhat:.3f}", f"{divergences:.1f}"]
            rows.append([*row, f"{centre:.3f}", f"{spread:.3f}", f"{cost:.1f}", f"{(centre - mean) / deviation:+.2f}"])
            print(rows[-1], flush=True)
    header = [
        "target and kernel",
        "ESS",
        "ESS of the square",
        "R-hat",
        "divergences",
        "mean",
        "sd",
        "gradients",
        "error",
    ]
    what = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    text = f"{what}\n\n{common.table(header, rows)}"
    common.report("kept_momentum", "Kept momentum and delayed rejection", text, {"figures": figures}, about)


if __name__ == "__main__":
    main()
