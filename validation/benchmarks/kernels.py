"""All smooth kernels on 18 posteriors: ``python -m validation.benchmarks.kernels [--seeds 3] [--only "arK:NUTS" ":GHMC" ...]
[--limit 100]``.

Each kernel runs with its defaults: four chains, one after another on one core, its default warm-up (5,000 iterations for a
kernel that makes a single step per transition), and about 20,000 gradients per chain after it, but between 1,000 and 20,000
draws. The posteriors are those of ``validation.benchmarks.warmup``. The columns are medians over the seeds:

- ESS per 1,000 gradients: the bulk effective sample size of the worst coordinate, and the worst of its squared distance from
  the mean. Gradients include those of warm-up.
- gradients to 10 %: the gradients of a chain, with its warm-up, after which two errors stay below 10 %: that of the means, in
  standard deviations of the posterior, and that of the variances, relative to the true ones. Both are root mean squares over
  the coordinates, against exact values or long runs. The median is taken over all chains. A dash: more than half of them do
  not get there.
- gradients per draw, the largest R-hat of all runs, and the share of divergent transitions.
- ESS per second: of the worst coordinate, by processor time of the whole run, with compiled code.

The last table has the medians, over the posteriors, of the ratios to NUTS. A kernel that needs more than 60 s for a run has no
further seed, and one that needs more than `--limit` seconds (100 by default) has no results. (MCLMC is not exact: its means and
variances have a bias.)

Most rows were measured on an AMD EPYC. Those of an Intel Xeon, which had other work, are: stochastic volatility and the last
normal; 200 collinear columns except for NUTS, HMC and MAMS; DRHMC, MCLMC, GIST and AutoStep on the other normals of 1,000
dimensions, and along the axes also GHMC and MALT. The limit was 200 or 400 s there, and NUTS and MAMS had none on the last
normal. Seconds of the two processors cannot be compared. Rows with the present warm-up, in which earlier draws complete the
directions of the metric, are HMC and MAMS on the last normal and stochastic volatility, and NUTS, HMC, WALNUTS, MAMS and GIST
on the normal of 100 dimensions and condition 1e6. (``mams.md`` has NUTS on the last normal: 5.8 effective draws per 1,000
gradients, with 5,000 draws.)

Results that ``--only TARGET:KERNEL`` does not select are kept; a name in full selects only itself. ``--references`` makes the
long runs.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc import diagnostics
from validation.benchmarks import common
from validation.benchmarks.explicit import selected
from validation.benchmarks.peers import number
from validation.benchmarks.posteriors import POSTERIORS

KERNELS: dict[str, tuple[Any, int]] = {  # with the gradients per step
    "NUTS": (refhmc.NUTS(), 1),
    "HMC": (refhmc.HMC(), 1),
    "WALNUTS": (refhmc.WALNUTS(), 1),
    "GHMC": (refhmc.GHMC(), 1),
    "MALT": (refhmc.MALT(), 1),
    "DRHMC": (refhmc.DRHMC(), 1),
    "MAMS": (refhmc.MAMS(), 2),
    "MCLMC": (refhmc.MCLMC(), 2),
    "GIST": (refhmc.GIST(), 1),
    "AutoStep": (refhmc.AutoStep(), 1),
}
GRADIENTS, DRAWS, TUNE, SINGLE_TUNE = 20_000, (1_000, 20_000), 1_000, 5_000
WANTED, ENOUGH = 0.1, 60.0
LONG, LONG_SEED = 10_000, 2026
NAME = "kernels"
PAGE_DATA, MOMENTS = common.RESULTS / f"{NAME}.json", common.RESULTS / f"{NAME}_references.json"
PACKAGES = ["refhmc", "numba", "numpy"]
# The derivative of the Poisson regression on a Gaussian process has too few correct digits for the check before sampling.
OPTIONS: dict[str, Any] = {"cores": 1, "raw": True, "progressbar": False, "generate": False, "preflight": False}
Figures = dict[str, Any]


def is_normal(problem: str) -> bool:
    return problem.startswith("normal ")


def moments_of(problem: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation of each coordinate, exact for normals."""
    if is_normal(problem):  # its gradient is -P q
        model = POSTERIORS[problem]().model()
        P = -np.array([model.gradient(row) for row in np.eye(model.dim)])
        return np.zeros(model.dim), np.sqrt(np.diag(np.linalg.inv(P)))
    mean, deviation = json.loads(MOMENTS.read_text(encoding="utf-8"))[problem]
    return np.array(mean), np.array(deviation)


def store_references(words: list[str]) -> None:
    """Make the long runs of the posteriors that are not normal."""
    stored = json.loads(MOMENTS.read_text(encoding="utf-8")) if MOMENTS.exists() else {}
    for problem in dict.fromkeys(p for p, _ in selected(words, list(POSTERIORS), ["NUTS"])):
        if is_normal(problem):
            continue
        model = POSTERIORS[problem]().model()
        kernel = refhmc.NUTS(metric=refhmc.metrics.LowRank(), target_accept=0.9)
        result = refhmc.sample(model, kernel, draws=LONG, tune=2 * TUNE, random_seed=LONG_SEED, **OPTIONS)
        x = result.draws.reshape(-1, model.dim)
        stored[problem] = [[float(f"{each:.6g}") for each in row] for row in (x.mean(axis=0), x.std(axis=0))]
        ess, r_hat = diagnostics.ess(result.draws).min(), diagnostics.rhat(result.draws).max()
        print(f"{problem}: ESS {ess:.0f}, R-hat {r_hat:.4f}", flush=True)
        MOMENTS.write_text(json.dumps(stored) + "\n", encoding="utf-8")


def draws_needed(draws: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> int | None:
    """Return the number of draws (n, d) after which both errors stay below ``WANTED``; None if the last ones are larger."""
    z = (draws - mean) / deviation
    count = np.arange(1, len(z) + 1)[:, None]
    running = np.cumsum(z, axis=0) / count
    variance = np.cumsum(z * z, axis=0) / count - running**2
    errors = np.sqrt(np.maximum(np.mean(running**2, axis=1), np.mean((variance - 1) ** 2, axis=1)))
    above = np.flatnonzero(~(errors < WANTED))
    needed = int(above[-1]) + 2 if above.size else 1
    return needed if needed <= len(z) else None


def run_of(problem: str, name: str, seed: int, limit: float) -> Figures:
    """Return the figures of one run."""
    (kernel, cost), model = KERNELS[name], POSTERIORS[problem]().model()
    tune = SINGLE_TUNE if getattr(kernel, "n_steps", None) == 1 else None
    pilot = refhmc.sample(model, kernel, draws=50, tune=tune, random_seed=1000 + seed, max_seconds=limit, **OPTIONS)
    if pilot.interrupted:
        return {}
    per_draw = cost * float(pilot.sample_stats["n_steps"].mean())
    draws = int(np.clip(GRADIENTS / per_draw, *DRAWS))
    begin = time.process_time()
    result = refhmc.sample(model, kernel, draws=draws, tune=tune, random_seed=seed, max_seconds=limit, **OPTIONS)
    seconds = time.process_time() - begin
    if result.interrupted:
        return {}
    each, total = cost * np.asarray(result.sample_stats["n_steps"]), result.attributes["n_gradient_evaluations"]
    warm = (total - each.sum()) / len(each)
    x, (mean, deviation) = result.draws, moments_of(problem)
    needed = [draws_needed(chain, mean, deviation) for chain in x]
    ess = float(diagnostics.ess(x).min())
    return {
        "ess": 1000 * ess / total,
        "squares": 1000 * float(diagnostics.ess((x - mean) ** 2).min()) / total,
        "to_10": [None if n is None else float(warm + steps[:n].sum()) for n, steps in zip(needed, each, strict=True)],
        "per_draw": float(each.mean()),
        "r_hat": float(diagnostics.rhat(x).max()),
        "diverging": float(result.sample_stats["diverging"].mean()),
        "by_second": ess / seconds,
        "seconds": seconds,
    }


def runs_of(problem: str, name: str, seeds: int, limit: float) -> list[Figures]:
    """Return the figures of a kernel on a posterior, for each seed that there is time for."""
    found: list[Figures] = []
    for seed in range(1, seeds + 1):
        found.append(run_of(problem, name, seed, limit))
        if not found[-1]:
            return []
        if found[-1]["seconds"] > ENOUGH:
            break
    return found


def median_of(runs: Sequence[Figures], key: str) -> float:
    """Return the median; for ``to_10`` over the chains, and NaN if more than half of them have no value."""
    if not runs:
        return float("nan")
    if key != "to_10":
        return statistics.median(run[key] for run in runs)
    values = [float("inf") if v is None else v for run in runs for v in run[key]]
    found = statistics.median(values)
    return found if np.isfinite(found) else float("nan")


COLUMNS = {
    "ess": "ESS / 1,000",
    "squares": "squares",
    "to_10": "gradients to 10 %",
    "per_draw": "gradients per draw",
    "by_second": "ESS / s",
}


def cell(value: float) -> str:
    return number(value) if np.isfinite(value) else "-"


def page(cells: dict[str, dict[str, list[Figures]]]) -> str:
    """Return the tables: one of each posterior, and the ratios."""
    parts = [(__doc__ or "").split("\n\n", 1)[1].strip()]
    ratios: dict[str, dict[str, list[float]]] = {name: {key: [] for key in COLUMNS} for name in KERNELS}
    reached = dict.fromkeys(KERNELS, 0)
    for problem, by_kernel in cells.items():
        rows = []
        for name in (each for each in KERNELS if each in by_kernel):
            runs, base = by_kernel[name], by_kernel.get("NUTS", [])
            values = {key: median_of(runs, key) for key in COLUMNS}
            for key, value in values.items():
                if np.isfinite(value / median_of(base, key)):
                    ratios[name][key].append(value / median_of(base, key))
            reached[name] += bool(np.isfinite(values["to_10"]))
            last = ["-", "-"]
            if runs:
                last = [f"{max(r['r_hat'] for r in runs):.3f}", f"{100 * median_of(runs, 'diverging'):.2g} %"]
            rows.append([name, *map(cell, values.values()), *last, str(len(runs))])
        parts += [f"## {problem}", common.table(["kernel", *COLUMNS.values(), "R-hat", "divergent", "seeds"], rows)]
    rows = []
    for name in KERNELS:
        medians = [statistics.median(v) if v else float("nan") for v in ratios[name].values()]
        rows.append([name, *map(cell, medians), str(reached[name])])
    header = ["kernel", *COLUMNS.values(), "posteriors to 10 %"]
    parts += ["## Median ratio to NUTS", common.table(header, rows)]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[":"])
    parser.add_argument("--limit", type=float, default=100.0, metavar="SECONDS", help="limit of a run (default 100)")
    parser.add_argument("--references", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    common.pin_to_one_core()
    if arguments.references:
        return store_references(arguments.only)
    about = common.machine(PACKAGES)
    cells = json.loads(PAGE_DATA.read_text(encoding="utf-8"))["cells"] if PAGE_DATA.exists() else {}
    for problem, name in selected(arguments.only, list(POSTERIORS), list(KERNELS)):
        runs = runs_of(problem, name, arguments.seeds, arguments.limit)
        cells.setdefault(problem, {})[name] = runs
        figures = [cell(median_of(runs, key)) for key in ("ess", "to_10")]
        print(
            f"{problem}, {name}: ESS / 1,000 {figures[0]}, gradients to 10 % {figures[1]}", file=sys.stderr, flush=True
        )
        ordered = {each: cells[each] for each in POSTERIORS if each in cells}
        common.report(NAME, "All kernels on 18 posteriors", page(ordered), {"cells": ordered}, about)
    return None


if __name__ == "__main__":
    main()
