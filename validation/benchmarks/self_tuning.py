"""GIST and AutoStep next to NUTS: ``python -m validation.benchmarks.self_tuning``.

Five seeds. Each run has four chains of about 100,000 gradients each, after warm-up with 2,000 transitions, or 10,000 of
kernels with one step. All kernels learn a diagonal metric. The first two columns are medians over the seeds: the smallest
bulk effective sample size (ESS) of a parameter per 1,000 gradients, and that of the squared distances from the means. The next
ones are gradients per draw, the share of proposals that are accepted (NUTS: of draws that are not the start), the share that
could be proposed from the other end, the largest step size over the smallest one of a run, and divergences per 1,000 draws. The
last ones, for the funnel only, are mean and standard deviation of v over all five runs, with true values 0 and 3.
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
from refhmc import GIST, HMC, NUTS, AutoStep, diagnostics, models
from refhmc.metrics import Diagonal
from validation.benchmarks import common

SEEDS, GRADIENTS = range(5), 100_000
KERNELS = {
    "NUTS": NUTS(metric=Diagonal()),
    "GIST, fraction 0": GIST(metric=Diagonal(), fraction=0.0),
    "GIST, fraction 0.5": GIST(metric=Diagonal()),
    "GIST, fraction 0.7": GIST(metric=Diagonal(), fraction=0.7),
    "MALA: HMC with one step": HMC(metric=Diagonal(), n_steps=1, target_accept=0.57),
    "AutoStep": AutoStep(metric=Diagonal()),
    "AutoStep, 8 steps": AutoStep(metric=Diagonal(), n_steps=8),
}
PROBLEMS = {
    "eight schools, non-centred": models.EightSchools,
    "normal, 100 dimensions": lambda: models.Gaussian(np.zeros(100), np.diag(np.linspace(0.1, 1.0, 100) ** 2)),
    "funnel 10 + 1": lambda: models.Funnel(10),
}


def run(model: refhmc.Model, kernel: object, seed: int) -> tuple[list[float], np.ndarray]:
    """The columns of one run, and the draws of the first coordinate."""
    single = getattr(kernel, "n_steps", None) == 1
    options = {"tune": 10_000 if single else 2_000, "cores": 1, "raw": True, "progressbar": False, "generate": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)
        pilot = refhmc.sample(model, kernel, draws=200, random_seed=1000 + seed, **options)
        draws = int(GRADIENTS / pilot.sample_stats["n_steps"].mean())
        result = refhmc.sample(model, kernel, draws=draws, random_seed=seed, **options)
    x, stats = result.draws, result.sample_stats
    mean = x.mean((0, 1)) if model.reference is None else model.reference.mean
    thousands = stats["n_steps"].sum() / 1000
    rates = [diagnostics.ess(y).min() / thousands for y in (x, (x - mean) ** 2)]
    returns = stats["is_reversible"].mean() if "is_reversible" in stats else 1.0
    steps = stats["step_size"]
    rest = (steps.max(1) / steps.min(1)).mean(), 1000 * stats["diverging"].mean()
    return [*rates, stats["n_steps"].mean(), stats["is_accepted"].mean(), returns, *rest], x[:, :, 0].ravel()


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    common.pin_to_one_core()
    about, rows, figures = common.machine(["refhmc", "numba", "numpy"]), [], {}
    for name, make in PROBLEMS.items():
        model = make()
        rows.append([f"**{name}**", *[""] * 9])
        for title, kernel in KERNELS.items():
            runs = [run(model, kernel, seed) for seed in SEEDS]
            columns = np.array([each for each, _ in runs])
            ess, squares, cost, accepted, returns, ratio, divergences = np.median(columns, axis=0)
            row = [title, f"{ess:.2f}", f"{squares:.2f}", f"{cost:.1f}", f"{accepted:.2f}", f"{returns:.2f}"]
            row += [f"{ratio:.0f}", f"{divergences:.1f}"]
            v = np.concatenate([x for _, x in runs])
            row += [f"{v.mean():.3f}", f"{v.std():.3f}"] if name.startswith("funnel") else ["", ""]
            figures[f"{name}: {title}"] = {"columns": columns.tolist(), "mean": v.mean(), "sd": v.std()}
            rows.append(row)
            print(rows[-1], flush=True)
    header = [
        *("target and kernel", "ESS", "ESS of squares", "gradients", "accepted", "reversible", "step ratio"),
        *("divergences", "mean", "sd"),
    ]
    what = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    text = f"{what}\n\n{common.table(header, rows)}"
    common.report("self_tuning", "GIST and AutoStep next to NUTS", text, {"figures": figures}, about)


if __name__ == "__main__":
    main()
