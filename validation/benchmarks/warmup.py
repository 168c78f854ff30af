"""What warm-up makes of real geometries, beside nutpie: ``python -m validation.benchmarks.warmup [--seeds 5] [--only
years ...]``.

NUTS, target acceptance 0.8, trees of depth 10 at most, four chains of 1,000 iterations of warm-up and 1,000 draws, one after
another on one core; nutpie takes the same compiled functions of the same model. refhmc by default (metric "auto"), with Stan's
warm-up, and with a dense metric from draws and gradients; nutpie with its diagonal and its low-rank metric. Of each run: the
least effective sample size of a coordinate for 1,000 gradients, those of warm-up included, and for a second of sampling,
warm-up included; medians over the seeds and their range; steps a draw; the largest R-hat. A run is stopped after 120 s, and has
no figure then; where one took 30 s there is one seed.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc import NUTS, diagnostics, metrics, models
from validation.benchmarks import common
from validation.benchmarks.nutpie_models import nutpie_model, read_trace

DRAWS, TUNE, CHAINS = 1000, 1000, 4
CAP, LONG = 120.0, 30.0


def normal(d: int, condition: float) -> refhmc.Model:
    """Eigenvalues spread evenly in their logarithm, in directions at random."""
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0]
    return models.Gaussian(np.zeros(d), (Q * np.geomspace(condition**-0.5, condition**0.5, d)) @ Q.T)


def line_on_years() -> refhmc.Model:
    """71 years from 1950 on, not centred."""
    t = 1950.0 + np.arange(71)
    y = 3 + 0.02 * (t - 1985) + 0.3 * np.random.default_rng(0).normal(size=71)
    return models.LinearRegression(np.stack([np.ones(71), t], axis=1), y)


def collinear(n: int, p: int, factors: int, own: float) -> refhmc.Model:
    """n rows of p columns that a few factors make, and something of their own."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, factors)) @ rng.normal(size=(factors, p)) + own * rng.normal(size=(n, p))
    return models.LinearRegression(X, X @ rng.normal(size=p) * 0.1 + rng.normal(size=n))


def problems() -> dict[str, Callable[[], refhmc.Model]]:
    known = models.by_name()
    return {
        "normal 100, condition 1": lambda: normal(100, 1.0),
        "normal 100, condition 1e6": lambda: normal(100, 1e6),
        "normal 1000, condition 1": lambda: models.Gaussian(np.zeros(1000), np.eye(1000)),
        "eight schools": known["eight-schools"],
        "arK": known["ar"],
        "garch": known["garch"],
        "gaussian mixture": known["gaussian-mixture"],
        "gaussian process": known["gaussian-process"],
        "kidscore": known["kidscore"],
        "logistic 277 x 10": known["breast-cancer"],
        "logistic 768 x 9": known["diabetes"],
        "line on years": line_on_years,
        "24 collinear columns, N = 5000": lambda: collinear(5000, 24, 1, 0.02),
        "200 collinear columns": lambda: collinear(400, 200, 5, 0.05),
    }


class Run(NamedTuple):
    draws: np.ndarray  # (chain, draw, d)
    gradients: int
    steps: float  # a draw
    seconds: float


def of_refhmc(model: refhmc.Model, warmup: Any = None, metric: Any = None) -> Callable[[int], Run | None]:
    options = {"cores": 1, "raw": True, "progressbar": False, "warmup": warmup}

    def run(seed: int, **more: int) -> Run | None:
        result = refhmc.sample(model, NUTS(metric=metric), random_seed=seed, max_seconds=CAP, **options, **more)
        if not result.draws.size or result.interrupted:
            return None
        about = result.attributes
        steps = float(result.sample_stats["n_steps"].mean())
        return Run(result.draws, about["n_gradient_evaluations"], steps, about["sampling_time"])

    run(0, draws=1, tune=30)
    return run


def of_nutpie(model: refhmc.Model, low_rank: bool) -> Callable[[int], Run | None]:
    """The model's own compiled value and gradient, in nutpie."""
    import nutpie

    compiled = nutpie_model(model.core.tuple[1], model.core.tuple[0], model.dim)
    options = {"cores": 1, "progress_bar": False, "target_accept": 0.8, "maxdepth": 10, "return_raw_trace": True}
    options |= {"low_rank_modified_mass_matrix": True} if low_rank else {}

    def run(seed: int, draws: int = DRAWS, tune: int = TUNE, chains: int = CHAINS) -> Run | None:
        begin = time.perf_counter()
        sampler = nutpie.sample(compiled, draws=draws, tune=tune, chains=chains, seed=seed, blocking=False, **options)
        try:
            trace = sampler.wait(timeout=CAP)
        except TimeoutError:
            sampler.abort()
            return None
        seconds = time.perf_counter() - begin
        found, steps, gradients = read_trace(trace)
        return Run(found, gradients, steps / (draws * chains), seconds)

    run(0, 1, 1, 1)
    return run


SAMPLERS: dict[str, Callable[[refhmc.Model], Callable[[int], Run | None]]] = {
    "refhmc": of_refhmc,
    "refhmc, Stan's warm-up": lambda model: of_refhmc(model, warmup="stan"),
    "refhmc, dense from gradients": lambda model: of_refhmc(
        model, metric=metrics.Dense(learn_from="draws and gradients")
    ),
    "nutpie": lambda model: of_nutpie(model, False),
    "nutpie, low rank": lambda model: of_nutpie(model, True),
}


def measured(make: Callable[[int], Run | None], seeds: int) -> list[list[float]]:
    """Of each seed: least ESS for 1,000 gradients, for a second, steps a draw, largest R-hat."""
    found = []
    for seed in range(1, seeds + 1):
        run = make(seed)
        if run is None:
            break
        ess = float(diagnostics.ess(run.draws).min())
        rhat = float(diagnostics.rhat(run.draws).max())
        found.append([1000 * ess / run.gradients, ess / run.seconds, run.steps, rhat])
        if run.seconds > LONG:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="*", help="words that a problem's name contains")
    options = parser.parse_args()
    common.pin_to_one_core()
    warnings.simplefilter("ignore")
    about = common.machine(["refhmc", "nutpie", "numba", "numpy"])
    rows, figures = [], {}
    for name, make in problems().items():
        if options.only and not any(word in name for word in options.only):
            continue
        model, best = make(), {}
        for sampler, prepare in SAMPLERS.items():
            runs = measured(prepare(model), options.seeds)
            figures[f"{name}: {sampler}"] = runs
            if not runs:
                rows.append([name, sampler, f"none in {CAP:.0f} s", "", "", "", "", ""])
                continue
            each = np.array(runs)
            rate, per_second, steps, rhat = np.median(each, axis=0)
            best[sampler] = rate, per_second
            spread = [f"{each[:, k].min():.3g}..{each[:, k].max():.3g}" for k in (0, 1)]
            rows.append(
                [name, sampler, f"{rate:.3g}", spread[0], f"{per_second:.3g}", spread[1], f"{steps:.1f}", f"{rhat:.3f}"]
            )
            print(rows[-1], flush=True)
        peers = [best[s] for s in ("nutpie", "nutpie, low rank") if s in best]
        if "refhmc" in best and peers:
            ratios = [best["refhmc"][k] / max(peer[k] for peer in peers) for k in (0, 1)]
            figures[f"{name}: refhmc over the best of nutpie"] = ratios
            rows.append([name, "*refhmc / best of nutpie*", f"{ratios[0]:.2f}", "", f"{ratios[1]:.2f}", "", "", ""])
            print(rows[-1], flush=True)
    header = ["problem", "sampler", "ESS / 1,000 gradients", "range", "ESS / s", "range", "steps", "R-hat"]
    what = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    text = f"{what}\n\n{common.table(header, rows)}"
    common.report("warmup", "Warm-up beside nutpie's", text, {"figures": figures}, about)


if __name__ == "__main__":
    main()
