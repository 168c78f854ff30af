"""Step of an implicit integrator, acceptance and the solver's cost: ``python -m validation.benchmarks.riemannian_step``.

The solver's iterations for a step grow with the step, those for a unit of time fall while they grow slower than it. The
criterion in question: of all steps whose acceptance is at least the target of 0.95, the one with the fewest iterations for a
unit of time. The row "adapted" is the step of dual averaging for 0.95, which knows nothing of iterations; the others are
multiples of its median over chains and seeds, from the last draws of those runs. Three seeds, four chains of 1,000 draws, 500
iterations of warm-up for "adapted"; medians over the seeds. The last column is what is wanted in the end: the least bulk
effective sample size of a coordinate for 1,000 iterations of the solver.
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
from refhmc import HMC, diagnostics, metrics, models
from validation.benchmarks import common

SEEDS = range(3)
MULTIPLES = (0.5, 0.7, 1.0, 1.25, 1.5)
# About the lengths that warm-up learns.
PROBLEMS = {
    "heart, Fisher": (models.Heart, metrics.Fisher(), 1.75),
    "banana, Fisher": (models.Banana, metrics.Fisher(), 1.57),
    "funnel 10 + 1, SoftAbs": (models.Funnel, metrics.SoftAbs(alpha=1e6), 7.0),
}


def run(
    model: refhmc.Model, kernel: HMC, tune: int, seed: int, starts: np.ndarray | None
) -> tuple[list[float], np.ndarray]:
    """Step, acceptance, share of failed solves, iterations a step and a unit of time, ESS per 1,000 iterations; last draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)
        options = {"tune": tune, "random_seed": seed, "initvals": starts, "cores": 1, "raw": True, "progressbar": False}
        result = refhmc.sample(model, kernel, **options)
    stats = result.sample_stats
    iterations = stats["solver_iterations"].sum()
    figures = [
        float(np.median(stats["step_size"])),
        stats["acceptance_rate"].mean(),
        stats["solver_failed"].mean(),
        iterations / stats["n_steps"].sum(),
        iterations / stats["int_time"].sum(),
        1000 * diagnostics.ess(result.draws).min() / iterations,
    ]
    return figures, result.draws[:, -1]


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    common.pin_to_one_core()
    about, rows, figures = common.machine(["refhmc", "numba", "numpy"]), [], {}
    for name, (make, metric, length) in PROBLEMS.items():
        model, options, eps = make(), {"metric": metric, "trajectory_length": length, "length_jitter": 0.5}, 0.0
        starts: dict[int, np.ndarray] = {}
        for multiple in (None, *MULTIPLES):
            kernel = HMC(step_size=None if multiple is None else multiple * eps, **options)
            both = [run(model, kernel, 0 if multiple else 500, seed, starts.get(seed)) for seed in SEEDS]
            runs = [figures_of for figures_of, _ in both]
            if multiple is None:
                starts = {seed: last for seed, (_, last) in zip(SEEDS, both, strict=True)}
            step, accepted, failed, a_step, a_time, ess = np.median(runs, axis=0)
            eps = step if multiple is None else eps
            title = f"{name}: {'adapted' if multiple is None else f'times {multiple:g}'}"
            figures[title] = runs
            rows.append(
                [title, f"{step:.3f}", f"{accepted:.3f}", f"{100 * failed:.1f} %", f"{a_step:.1f}", f"{a_time:.1f}"]
                + [f"{ess:.2f}"]
            )
            print(rows[-1], flush=True)
    header = [
        "problem",
        "step",
        "acceptance",
        "failed",
        "iterations a step",
        "a unit of time",
        "ESS / 1,000 iterations",
    ]
    what = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    text = f"{what}\n\n{common.table(header, rows)}"
    common.report(
        "riemannian_step", "Step of an implicit integrator: acceptance and cost", text, {"figures": figures}, about
    )


if __name__ == "__main__":
    main()
