"""The same PyMC models by refhmc, PyMC's NUTS and nutpie: ``python -m validation.benchmarks.pymc_models``.

Each sampler takes the model as PyMC has it: refhmc through ``from_pymc``. Four chains of 1,000 iterations of warm-up and 1,000
draws, one after another on one core, target acceptance 0.8, each sampler's own defaults otherwise; all samplers take a seed
in turn, five seeds, and as many as 25 while a sampler has run less than a minute. Compiled once before, in seconds of the
first call less those of a later one. Of each run: the least effective sample size of an entry of a free variable, for a
second of sampling, warm-up included (refhmc and PyMC say how long that took; of nutpie it is the whole call), and for a
second of the whole call as a user makes it. It needs the extra ``pymc`` and nutpie, so an older Numba.

A ratio is that of refhmc to the one of the other two with the best median, of each seed that both have; beside its median
stands an interval that holds the median in 94 of 100 cases at least.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from validation.benchmarks import common
from validation.benchmarks.median import median_interval

DRAWS, TUNE, CHAINS = 1000, 1000, 4
QUICK, CONFIDENCE = 60.0, 15 / 16


def schools() -> Any:
    import pymc as pm

    from refhmc.models.datasets import posteriordb

    data = posteriordb("eight_schools-eight_schools_noncentered")["data"]
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        z = pm.Normal("z", shape=len(data["y"]))
        pm.Normal("y", mu + tau * z, np.array(data["sigma"], dtype=float), observed=np.array(data["y"], dtype=float))
    return model


def radon() -> Any:
    """As the radon example: 919 houses in 85 counties of unequal size, made here; 175 coordinates."""
    import pymc as pm

    rng, n, counties = np.random.default_rng(1), 919, 85
    county = rng.choice(counties, size=n, p=rng.dirichlet(np.full(counties, 0.7)))
    floor = (rng.uniform(size=n) < 0.17).astype(float)
    level, slope = 1.5 + 0.35 * rng.standard_normal(counties), -0.7 + 0.3 * rng.standard_normal(counties)
    y = level[county] + slope[county] * floor + 0.75 * rng.standard_normal(n)
    with pm.Model() as model:
        mean, spread = pm.Normal("mean", 0, 10, shape=2), pm.Exponential("spread", 1, shape=2)
        z = pm.Normal("z", shape=(2, counties))
        noise = pm.Exponential("noise", 1)
        line = mean[0] + spread[0] * z[0][county] + (mean[1] + spread[1] * z[1][county]) * floor
        pm.Normal("y", line, noise, observed=y)
    return model


def kidscore() -> Any:
    import pymc as pm

    from refhmc.models.datasets import posteriordb

    data = {k: np.asarray(v, dtype=float) for k, v in posteriordb("kidiq-kidscore_interaction")["data"].items()}
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=4)
        sigma = pm.HalfCauchy("sigma", 2.5)
        hs, iq = data["mom_hs"], data["mom_iq"]
        pm.Normal("y", beta[0] + beta[1] * hs + beta[2] * iq + beta[3] * hs * iq, sigma, observed=data["kid_score"])
    return model


MODELS = {"eight schools": schools, "radon": radon, "kidscore": kidscore}


class Figures(NamedTuple):
    ess: float
    rhat: float
    seconds: float
    whole: float


def by_refhmc(model: Any) -> Callable:
    import refhmc

    made = refhmc.from_pymc(model)

    def run(seed: int) -> tuple[dict, float]:
        result = refhmc.sample(
            made, random_seed=seed, draws=DRAWS, tune=TUNE, chains=CHAINS, cores=1, progressbar=False, generate=False
        )
        return result.posterior, float(result.posterior.attrs["sampling_time"])

    return run


def by_pymc(model: Any) -> Callable:
    import pymc as pm

    def run(seed: int) -> tuple[dict, float]:
        result = pm.sample(
            DRAWS,
            tune=TUNE,
            chains=CHAINS,
            cores=1,
            random_seed=seed,
            progressbar=False,
            model=model,
            nuts_sampler="pymc",
        )
        return result.posterior, float(result.posterior.attrs["sampling_time"])

    return run


def by_nutpie(model: Any) -> Callable:
    import nutpie

    compiled = nutpie.compile_pymc_model(model)

    def run(seed: int) -> tuple[dict, float | None]:
        result = nutpie.sample(
            compiled, draws=DRAWS, tune=TUNE, chains=CHAINS, cores=1, seed=seed, progress_bar=False, target_accept=0.8
        )
        return result.posterior, None

    return run


SAMPLERS = {"refhmc": by_refhmc, "PyMC": by_pymc, "nutpie": by_nutpie}


def figures_of(run: Callable, seed: int, names: list[str]) -> Figures:
    from refhmc import diagnostics

    begin = time.perf_counter()
    posterior, seconds = run(seed)
    whole = time.perf_counter() - begin
    draws = np.concatenate([np.reshape(np.asarray(posterior[name]), (CHAINS, DRAWS, -1)) for name in names], axis=2)
    ess, rhat = float(diagnostics.ess(draws).min()), float(diagnostics.rhat(draws).max())
    return Figures(ess, rhat, whole if seconds is None else seconds, whole)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def ratio(found: dict[str, list[Figures]], clock: str) -> str:
    """Of refhmc's effective draws a second to the best other's, by that clock."""
    rates = {name: [each.ess / getattr(each, clock) for each in runs] for name, runs in found.items()}
    best = max((name for name in rates if name != "refhmc"), key=lambda name: statistics.median(rates[name]))
    pairs = [ours / theirs for ours, theirs in zip(rates["refhmc"], rates[best], strict=False)]
    middle, low, high = median_interval(pairs, CONFIDENCE)
    return f"{middle:.3g} ({low:.3g} to {high:.3g}), {best}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=25, help="seeds of a sampler whose runs are short")
    parser.add_argument("--only", nargs="+", choices=list(MODELS), default=list(MODELS))
    arguments = parser.parse_args()
    common.pin_to_one_core()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    about = common.machine(["refhmc", "numba", "numpy", "pymc", "pytensor", "nutpie"])
    rows, ratios, data = [], [], {}
    for problem in arguments.only:
        model = MODELS[problem]()
        names = [rv.name for rv in model.free_RVs]
        runs, compiling = {}, {}
        found: dict[str, list[Figures]] = {name: [] for name in SAMPLERS}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, make in SAMPLERS.items():
                begin = time.perf_counter()
                runs[name] = make(model)
                figures_of(runs[name], 0, names)
                compiling[name] = time.perf_counter() - begin
            for seed in range(1, max(arguments.seeds, arguments.most) + 1):
                for name, run in runs.items():
                    if seed <= arguments.seeds or sum(each.whole for each in found[name]) < QUICK:
                        found[name].append(figures_of(run, seed, names))
        for name, each in found.items():
            compiling[name] -= statistics.median(f.whole for f in each)
            per_second = [f.ess / f.seconds for f in each]
            whole = [f.ess / f.whole for f in each]
            worst = max(f.rhat for f in each)
            rows.append([problem, name, f"{compiling[name]:.1f}", spread(per_second), spread(whole), f"{worst:.3f}"])
        ratios.append([problem, ratio(found, "seconds"), ratio(found, "whole")])
        data[problem] = {"compiling": compiling, "runs": found}
    what = " ".join((__doc__ or "").split("\n\n")[1].split())
    text = "\n\n".join(
        [
            what,
            " ".join((__doc__ or "").split("\n\n")[2].split()),
            common.table(["refhmc / best of the others", "sampling", "whole call"], ratios),
            common.table(
                ["problem", "sampler", "compile, s", "ESS / s of sampling", "ESS / s of the call", "R-hat"], rows
            ),
        ]
    )
    common.report("pymc_models", "PyMC's models", text, {"figures": data}, about)


if __name__ == "__main__":
    main()
