"""Starts by Pathfinder beside the usual ones: ``python -m validation.benchmarks.starts``.

Twenty-four chains of NUTS each, with 1,000 iterations of warm-up. A chain has arrived where its log density is for the first
time, at its start or after a transition, within three standard deviations of the mean of the log density in a run of another
seed. Given are how many of these standard deviations the start is off, the gradients of Pathfinder's path and its evaluations
of the density, the gradients from the start to the arrival, and those of all of warm-up: medians over the chains, of the first
and third with the worst chain after a slash; of the path, means.
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
from refhmc import models
from validation.benchmarks import common

RUN = {"chains": 24, "random_seed": 3, "raw": True, "progressbar": False}
STILL = refhmc.HMC(step_size=1e12, n_steps=1)  # every proposal is rejected: its draw is the start
ARRIVED = 3.0


def normal(d: int, mean: float, condition: float) -> refhmc.Model:
    """Variances from condition^-1/2 to condition^1/2, along axes that are turned."""
    axes = np.linalg.qr(np.random.default_rng(5).normal(size=(d, d)))[0]
    return models.Gaussian(np.full(d, mean), (axes * np.geomspace(condition**-0.5, condition**0.5, d)) @ axes.T)


def problems() -> dict[str, refhmc.Model]:
    return {
        "normal, mean 1,000, d = 100": normal(100, 1000.0, 1.0),
        "normal of condition 1e4, mean 100, d = 20": normal(20, 100.0, 1e4),
        "normal of condition 1e4, mean 0, d = 100": normal(100, 0.0, 1e4),
        "eight schools": models.EightSchools(),
        "garch": models.GARCH(),
        "autoregression": models.AR(),
        "mixture": models.GaussianMixture(),
        "linear regression, from its own start": models.LinearRegression(),
        "gaussian process regression": models.GaussianProcessRegression(),
        "heart, logistic regression": models.Heart(),
        "stochastic volatility, T = 100": models.StochasticVolatility(T=100),
        "banana": models.Banana(),
    }


def evaluations(model: refhmc.Model, init: str) -> tuple[np.ndarray, np.ndarray]:
    """The starts (chains, d), and the gradients and densities that they and one step took, a chain."""
    there = refhmc.sample(model, STILL, draws=1, tune=0, init=init, **RUN)
    gradients, densities = (there.attributes[f"n_{name}_evaluations"] for name in ("gradient", "log_density"))
    return there.draws[:, 0], np.array([gradients, densities - gradients]) / RUN["chains"]


def run(model: refhmc.Model, init: str, mean: float, sd: float) -> tuple[np.ndarray, ...]:
    """Of each chain: standard deviations off at the start, gradients to the arrival, and of warm-up."""
    starts, _ = evaluations(model, init)
    result = refhmc.sample(model, refhmc.NUTS(), draws=1, init=init, save_warmup=True, **RUN)
    stats = result.groups["warmup_sample_stats"]
    first = np.array([[model.log_density(q)] for q in starts])
    off = np.abs(np.concatenate([first, stats["lp"]], axis=1) - mean) / sd
    gradients = np.pad(np.cumsum(stats["n_steps"], axis=1), ((0, 0), (1, 0)))
    arrived = [spent[near][0] if near.any() else np.inf for spent, near in zip(gradients, off < ARRIVED, strict=True)]
    return off[:, 0], np.array(arrived), gradients[:, -1]


def both(values: np.ndarray) -> str:
    return f"{np.median(values):.3g} / {np.max(values):.3g}"


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)
    common.pin_to_one_core()
    about, rows, figures = common.machine(["refhmc", "numba", "numpy"]), [], {}
    for name, model in problems().items():
        lp = refhmc.sample(model, refhmc.NUTS(), **{**RUN, "chains": 4, "random_seed": 77}).sample_stats["lp"]
        path = evaluations(model, "pathfinder")[1] - evaluations(model, "uniform")[1]
        for init in ("uniform", "pathfinder"):
            found = run(model, init, lp.mean(), lp.std())
            figures[f"{name}: {init}"] = [each.tolist() for each in found]
            cost = f"{path[0]:.0f} + {path[1]:.0f}" if init == "pathfinder" else "0"
            rows.append([f"{name}: {init}", both(found[0]), cost, both(found[1]), f"{np.median(found[2]):.0f}"])
            print(rows[-1], flush=True)
    header = ["init", "start off by, sd", "path: gradients + densities", "gradients to arrive", "warm-up"]
    what = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    common.report(
        "starts", "Starts by Pathfinder", f"{what}\n\n{common.table(header, rows)}", {"figures": figures}, about
    )


if __name__ == "__main__":
    main()
