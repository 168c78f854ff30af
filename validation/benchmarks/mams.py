"""MAMS next to NUTS and BlackJAX: ``python -m validation.benchmarks.mams [--seeds 5] [--only normal ...]
[--peers /path/to/python] [--only-own] [--limit 300]``.

The targets are those of ``validation.benchmarks.warmup``. A run has four chains, one after another on one core, with 5,000
draws. MAMS and NUTS run with their defaults: 1,000 iterations of warm-up, and 2,000 for MAMS in 1,000 dimensions. BlackJAX's
Metropolis-adjusted microcanonical sampler is that of ``validation.benchmarks.warmup``: its own tuning, 5,000 draws, two
gradients per step, the log density in jax.numpy, compiled before. The columns are medians and ranges over the seeds:

- ESS per 1,000 gradients of the worst coordinate, and of the worst square of a coordinate, centred at its mean. Gradients are
  those of the whole run, with warm-up.
- The same for the run that ends after 1,000 draws.
- ESS of the worst coordinate per processor second of sampling, with warm-up, without compilation, R-hat and ESS.
- Gradients per iteration of warm-up and per draw, and the largest R-hat of all seeds.

A ratio is that of the medians. Transitions of MAMS are shorter than those of NUTS, so that with equally many draws its warm-up
is a larger part of a run. BlackJAX runs in the interpreter of `--peers`. Results that were not selected by `--only` are kept.
MAMS and NUTS have no results (a dash) if a run takes longer than `--limit` seconds. The limit was 300 s. On a busy machine, it
was 400 s for stochastic volatility. The normal of 1,000 dimensions and condition 1e6 had no limit.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc import diagnostics
from validation.benchmarks import common, samplers
from validation.benchmarks.peers import number, spread
from validation.benchmarks.posteriors import POSTERIORS
from validation.benchmarks.samplers import RESULT_MARK
from validation.benchmarks.warmup import is_meant, microcanonical_chain, of_jax

NAME, BLACKJAX = "mams", "BlackJAX"
FEW, MANY = 1000, 5000
PACKAGES = ["refhmc", "numba", "numpy"]
Figures = dict[str, float]


def of_refhmc(problem: str, kernel: Any, gradients_per_step: int, limit: float) -> Callable[[int], Figures]:
    """Return a function of the seed that samples, and returns the figures."""
    model = POSTERIORS[problem]().model()
    options: dict[str, Any] = {"cores": 1, "raw": True, "progressbar": False, "max_seconds": limit}
    refhmc.sample(model, kernel, draws=1, tune=100, random_seed=0, **options)  # compiles

    def run(seed: int) -> Figures:
        begin, wall = time.process_time(), time.perf_counter()
        result = refhmc.sample(model, kernel, draws=MANY, random_seed=seed, **options)
        share = result.attributes["sampling_time"] / (time.perf_counter() - wall)  # the rest is R-hat and ESS
        seconds = share * (time.process_time() - begin)
        if result.interrupted:
            raise TimeoutError
        each = gradients_per_step * np.asarray(result.sample_stats["n_steps"])
        warm = result.attributes["n_gradient_evaluations"] - each.sum()
        return figures_of(result.draws, warm, each, seconds)

    return run


def of_blackjax(problem: str) -> Callable[[int], Figures]:
    """Return the same for BlackJAX. Gradients per draw are an average."""
    run = of_jax(POSTERIORS[problem](), microcanonical_chain)
    run(0)

    def timed(seed: int) -> Figures:
        begin = time.process_time()
        found = run(seed)
        draws, seconds = np.asarray(found.draws), time.process_time() - begin
        each = np.full(draws.shape[:2], found.draw_gradients / (draws.shape[0] * draws.shape[1]))
        return figures_of(draws, found.gradients - found.draw_gradients, each, seconds)

    return timed


def figures_of(draws: np.ndarray, warm: float, each: np.ndarray, seconds: float) -> Figures:
    """Return the figures of draws (chain, draw, d), with the gradients of warm-up and of each draw."""
    figures = {"r_hat": float(diagnostics.rhat(draws).max()), "warm": warm / (len(draws) * samplers.TUNE)}
    for name, n in (("few", FEW), ("many", MANY)):
        if n > draws.shape[1]:
            continue
        x, gradients = draws[:, :n], warm + each[:, :n].sum()
        figures[f"ess_{name}"] = 1000 * float(diagnostics.ess(x).min()) / gradients
        figures[f"square_{name}"] = 1000 * float(diagnostics.ess((x - x.mean(axis=(0, 1))) ** 2).min()) / gradients
    return figures | {"per_draw": float(each.mean()), "by_second": float(diagnostics.ess(draws).min()) / seconds}


SAMPLERS: dict[str, Callable[[str, float], Callable[[int], Figures]]] = {
    "MAMS": lambda problem, limit: of_refhmc(problem, refhmc.MAMS(), 2, limit),
    "NUTS": lambda problem, limit: of_refhmc(problem, refhmc.NUTS(), 1, limit),
    BLACKJAX: lambda problem, limit: of_blackjax(problem),
}


def measure(problem: str, sampler: str, seeds: list[int], limit: float) -> list[Figures]:
    """Return the figures of a sampler on a problem, for each seed."""
    warnings.simplefilter("ignore")
    run, found = SAMPLERS[sampler](problem, limit), []
    for seed in seeds:
        try:
            found.append(run(seed))
        except TimeoutError:
            return []
    return found


def by_peer(arguments: argparse.Namespace, problem: str) -> list[Figures]:
    """Return the figures of BlackJAX in the interpreter of the peers."""
    command = [arguments.peers, "-W", "ignore", "-P", __file__, "--measure", problem, BLACKJAX]
    command += ["--seeds", str(arguments.seeds)]
    limit = arguments.limit * (arguments.seeds + 1)
    try:
        done = subprocess.run(
            command, cwd=common.ROOT, env=common.environment(), capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return []
    lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT_MARK)]
    if not lines:
        print(f"{problem}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return []
    return json.loads(lines[-1][len(RESULT_MARK) :])


HEADER = ["problem and sampler", "ESS / 1,000", "squares", "ESS / 1,000, 1,000 draws", "squares", "ESS / s"]
HEADER += ["gradients: warm-up, draw", "R-hat"]
COLUMNS = ("ess_many", "square_many", "ess_few", "square_few", "by_second")
RATIOS = {
    "MAMS / BlackJAX": ("ess_many", BLACKJAX),
    "per second": ("by_second", BLACKJAX),
    "MAMS / NUTS": ("ess_many", "NUTS"),
    "squares": ("square_many", "NUTS"),
    "1,000 draws": ("ess_few", "NUTS"),
    "squares, 1,000 draws": ("square_few", "NUTS"),
}


def median(runs: list[Figures], name: str) -> float:
    return float(np.median([run.get(name, np.nan) for run in runs])) if runs else float("nan")


def ratios(cells: dict[str, list[Figures]]) -> list[float]:
    """Return MAMS's median over another sampler's, for each of ``RATIOS``."""
    mine = cells.get("MAMS", [])
    return [median(mine, name) / median(cells.get(other, []), name) for name, other in RATIOS.values()]


def row_of(name: str, runs: list[Figures]) -> list[str]:
    if not runs:
        return [name, *["-"] * (len(HEADER) - 1)]
    gradients = f"{number(median(runs, 'warm'))}, {number(median(runs, 'per_draw'))}"
    worst = f"{max(run['r_hat'] for run in runs):.3f}"
    shown = (spread(run[column] for run in runs) if column in runs[0] else "-" for column in COLUMNS)
    return [name, *shown, gradients, worst]


def write(cells: dict[str, dict[str, list[Figures]]], about: dict[str, Any]) -> None:
    """Write the page: the ratios, with their median and the least, and all figures."""
    cells = {problem: cells[problem] for problem in POSTERIORS if problem in cells}
    each = {problem: ratios(found) for problem, found in cells.items()}
    shown = [[problem, *("" if np.isnan(x) else f"{x:.2f}" for x in found)] for problem, found in each.items()]
    known = [[x for x in column if not np.isnan(x)] for column in zip(*each.values(), strict=True)]
    shown.append(["*median; least*", *(f"{np.median(x):.2f}; {min(x):.2f}" if x else "" for x in known)])
    rows = [
        row_of(f"{problem}: {name}", runs)
        for problem, found in cells.items()
        for name, runs in found.items()
        if runs or name != BLACKJAX
    ]
    what = "\n\n".join((__doc__ or "").split("\n\n")[1:])
    text = "\n\n".join([what, common.table(["problem", *RATIOS], shown), common.table(HEADER, rows)])
    common.report(NAME, "MAMS next to NUTS and BlackJAX", text, {"cells": cells}, about)


def version_of_blackjax(interpreter: str) -> str:
    """Return the version of BlackJAX in an interpreter, or "missing"."""
    code = "import importlib.metadata as m; print(m.version('blackjax'))"
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() or "missing"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default 5)")
    parser.add_argument("--only", nargs="+", default=[], help="problems, by their names or by words in them")
    parser.add_argument("--only-own", action="store_true", help="keep the results of BlackJAX")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="interpreter that has BlackJAX")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="limit of a run (default 300)")
    parser.add_argument("--measure", nargs=2, metavar=("PROBLEM", "SAMPLER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    seeds = list(range(1, arguments.seeds + 1))
    if arguments.measure:
        print(RESULT_MARK + json.dumps(measure(*arguments.measure, seeds, arguments.limit)))
        return
    common.pin_to_one_core()
    stored = common.RESULTS / f"{NAME}.json"
    before = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    cells, about = before.get("cells", {}), common.machine(PACKAGES)
    if arguments.only_own and before:
        about["versions"]["blackjax"] = before["machine"]["versions"]["blackjax"]
    else:
        about["versions"]["blackjax"] = version_of_blackjax(arguments.peers)
    for problem in POSTERIORS:
        if arguments.only and not any(is_meant(problem, word) for word in arguments.only):
            continue
        found = cells.setdefault(problem, {})
        for name in SAMPLERS:
            if name == BLACKJAX:
                found[name] = found.get(name, []) if arguments.only_own else by_peer(arguments, problem)
            else:
                found[name] = measure(problem, name, seeds, arguments.limit)
            print(" | ".join(row_of(f"{problem}: {name}", found[name])), flush=True)
        write(cells, about)


if __name__ == "__main__":
    main()
