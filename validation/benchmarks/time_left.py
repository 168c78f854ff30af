"""How well a run says what it still takes: ``python -m validation.benchmarks.time_left [--seeds 3] [--only schools ...]``.

NUTS, which is what `refhmc.sample(model)` takes for these models, with the default warm-up and with Stan's; four chains of
1,000 iterations of warm-up and 1,000 draws, all at the same time. A gradient waits for 0.2 ms, so that runs last for seconds.
At a tenth, a quarter, a half and three quarters of a run's time: what it says is left over what was left, the range over the
seeds, "-" where it says nothing yet; and the same of what was said before, the time so far for as many more iterations.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc import models
from validation.benchmarks import common
from validation.benchmarks.warmup import normal

SHARES, WAIT = (0.1, 0.25, 0.5, 0.75), 2e-4
PROBLEMS: dict[str, Callable[[], refhmc.Model]] = {
    "normal 100, condition 1e4": lambda: normal(100, 1e4),
    "eight schools": models.EightSchools,
    "logistic 277 x 10": lambda: models.by_name()["breast-cancer"](),
    "stochastic volatility, T = 100": lambda: models.StochasticVolatility(T=100),
}


def slow(model: refhmc.Model) -> refhmc.Model:
    """The model, with a wait before each gradient in which other chains run."""

    def value_and_gradient(q, data, out):
        time.sleep(WAIT)
        value, out[:] = model.core.value_and_gradient(q)
        return value

    return refhmc.Model(
        model.dim,
        lambda q, data: model.log_density(q),
        lambda q, data: model.gradient(q),
        value_and_gradient=value_and_gradient,
        initial=model.initial,
        in_python="it waits",
    )


def said(model: refhmc.Model, warmup: str | None, seed: int) -> tuple[float, list[float | None], list[float]]:
    """Seconds of a run, and at each of SHARES what is said over what is left, now and before; None where nothing is said."""
    reports: list = []
    refhmc.sample(model, random_seed=seed, warmup=warmup, cores=4, raw=True, progressbar=reports.append)
    end, now, before = reports[-1].seconds, [], []
    for share in SHARES:
        report = next(each for each in reports if each.seconds >= share * end)
        left, done = end - report.seconds, report.draws_done.sum()
        now.append(None if report.seconds_left is None else report.seconds_left / left)
        before.append(report.seconds * (len(report.draws_done) * report.draws_total - done) / done / left)
    return end, now, before


def in_a_cell(ratios: np.ndarray) -> str:
    """Their range, and a dash where some runs said nothing."""
    told = [f"{each:.2f}" for each in sorted(ratios[np.isfinite(ratios)])]
    return "..".join(dict.fromkeys(told[:1] + told[-1:])) + (" -" if len(told) < len(ratios) else "")


def page(figures: dict[str, list]) -> str:
    """The table, and in a sentence what is said from a quarter of the time on."""
    rows, all_of_them = [], []
    for title, runs in figures.items():
        seconds = f"{np.median([run[0] for run in runs]):.0f}"
        now, before = (np.array([run[k] for run in runs], dtype=float) for k in (1, 2))
        rows += [[title, seconds, *map(in_a_cell, now.T)], [f"{title}, *before*", "", *map(in_a_cell, before.T)]]
        all_of_them.append((now[:, 1:], before[:, 1:]))
    header = ["said / left", "seconds", *(f"at {100 * share:.0f} %" for share in SHARES)]
    now, before = (np.concatenate([each[k].ravel() for each in all_of_them]) for k in (0, 1))
    told = now[np.isfinite(now)]
    what = " ".join((__doc__ or "").split("\n\n", 1)[1].split())
    is_said = (
        f"From a quarter on, something is said in {len(told)} of {len(now)} cases: {told.min():.2f} to {told.max():.2f} times "
        f"what was left. Before, it was {before.min():.2f} to {before.max():.2f} times."
    )
    return f"{what}\n\n{common.table(header, rows)}\n\n{is_said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="words that a problem's name contains")
    options = parser.parse_args()
    common.pin_to_one_core()
    warnings.simplefilter("ignore")
    about = common.machine(["refhmc", "numba", "numpy"])
    figures: dict[str, list] = {}
    for name, make in PROBLEMS.items():
        if options.only and not any(word in name for word in options.only):
            continue
        model = slow(make())
        for warmup in (None, "stan"):
            runs = [said(model, warmup, seed) for seed in range(1, options.seeds + 1)]
            figures[name + (", Stan's warm-up" if warmup else "")] = runs
            print(runs, flush=True)
    common.report("time_left", "The time that is left", page(figures), {"figures": figures}, about)


if __name__ == "__main__":
    main()
