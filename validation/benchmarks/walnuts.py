"""WALNUTS, NUTS and walnutpie: ``python -m validation.benchmarks.walnuts [--seeds 5] [--only funnel ...]
[--peers /path/to/python] [--stock-watson swdata.json]``.

The targets are the examples of the authors of WALNUTS (the funnel, a normal distribution with standard deviations 1, ..., 250,
Stock and Watson's model of inflation) and six posteriors of posteriordb. A run has four chains, one after another, with 1,000
iterations of warm-up. There are 20,000 draws per chain on the funnel, 4,000 on Stock and Watson's model, and 1,000 elsewhere.
The columns are medians and ranges over the seeds:

- ESS per 1,000 gradients of the worst coordinate, and of the worst square of a coordinate, centred at its mean. Gradients are
  those of the whole run, with warm-up, trials and reversibility checks.
- gradients of the whole run, divergences in percent of the draws, and the largest R-hat of all seeds.
- the number of runs that ended with a result. A run has none if the sampler fails, if a chain does not move, or after 300 s.

The second table has the effective draws of v in the funnel by its true errors. They are var f over the mean squared error of a
chain's mean of f, for f = v and f = v^2, per 1,000 gradients of a chain. In brackets are 95 % bootstrap intervals over the
seeds.

walnutpie runs with its defaults in the interpreter of `--peers`. A log density that counts its calls gives its gradients. The
chains of "walnutpie, started at draws" start at draws of a run of NUTS whose gradients are not counted. The data of Stock and
Watson's model are in the authors' repository, ``WALNUTSpy_examples/StockWatson/swdata.json``. Results that were not selected by
`--only` are kept.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc import WALNUTS, diagnostics
from refhmc.compile.compiled import jit_allocating
from validation.benchmarks import common, samplers
from validation.benchmarks.explicit import versions_of
from validation.benchmarks.explicit_samplers import Unavailable, run_of_refhmc, walnutpie
from validation.benchmarks.explicit_targets import Target, funnel
from validation.benchmarks.peers import number, spread
from validation.benchmarks.posteriors import POSTERIORS, axes_value_and_gradient, model_of
from validation.benchmarks.samplers import RESULT_MARK

NAME = "walnuts"
SIX = ("eight schools", "arK", "garch", "gaussian mixture", "gaussian process", "kidscore")
FUNNEL, STOCK_WATSON = "funnel 10", "Stock and Watson"
DRAWS = {FUNNEL: 20_000, STOCK_WATSON: 4_000}  # and 1,000 elsewhere
PACKAGES = ["refhmc", "numba", "numpy"]


@jit_allocating
def stock_watson(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    """Return the log density of the model of inflation y_1, ..., y_T and its gradient.

    With s = exp(-u / 2), gamma = exp(u) and standard normal innovations, z, x and tau are random walks::

        z_t = z_{t-1} + s e_t,   x_t = x_{t-1} + s f_t,   tau_t = tau_{t-1} + exp(z_{t-1} / 2) g_t
        y_t ~ N(tau_t, exp(x_t)),   log p(u) = 5 u - exp(u) / 2,   q = (u, z_1, e, x_1, f, tau_1, g)

    z_1, x_1 and tau_1 are standard normal. The authors' program has these priors in comments. Without them the posterior is
    improper, because the density tends to a positive constant for z_1 -> -inf.
    """
    y, T = data[0], data.shape[1]
    s = math.exp(-0.5 * q[0])
    at_z, at_x, at_tau = 1, T, 2 * T
    z, x, tau = np.empty(T - 1), np.empty(T), np.empty(T)
    z[0], x[0], tau[0] = q[at_z], q[at_x], q[at_tau]
    value = 5 * q[0] - 0.5 * (math.exp(q[0]) + z[0] ** 2 + x[0] ** 2 + tau[0] ** 2)
    for t in range(1, T):
        if t < T - 1:
            z[t] = z[t - 1] + s * q[at_z + t]
            value -= 0.5 * q[at_z + t] ** 2
        x[t] = x[t - 1] + s * q[at_x + t]
        tau[t] = tau[t - 1] + math.exp(0.5 * z[t - 1]) * q[at_tau + t]
        value -= 0.5 * (q[at_x + t] ** 2 + q[at_tau + t] ** 2)
    out[:] = 0.0
    of_z = of_x = of_tau = of_s = 0.0  # derivatives by z_t, x_t, tau_t and s, of all that depends on them
    for t in range(T - 1, -1, -1):
        r = (y[t] - tau[t]) * math.exp(-x[t])
        value -= 0.5 * (x[t] + r * (y[t] - tau[t]))
        of_x += 0.5 * (r * (y[t] - tau[t]) - 1)
        of_tau += r
        if t == 0:
            break
        if t < T - 1:
            out[at_z + t] = of_z * s - q[at_z + t]
            of_s += of_z * q[at_z + t]
        out[at_x + t] = of_x * s - q[at_x + t]
        of_s += of_x * q[at_x + t]
        g = math.exp(0.5 * z[t - 1])
        out[at_tau + t] = of_tau * g - q[at_tau + t]
        of_z += 0.5 * of_tau * g * q[at_tau + t]
    out[at_z], out[at_x], out[at_tau] = of_z - z[0], of_x - x[0], of_tau - tau[0]
    out[0] = 5 - 0.5 * math.exp(q[0]) - 0.5 * s * of_s
    return value


def targets(data: str | None) -> dict[str, Target]:
    """Return the targets by name; `data` is the file of Stock and Watson's model, or None."""

    def unused() -> Callable:
        raise NotImplementedError("the density in jax.numpy is not used")

    def target(make: Callable[[], refhmc.Model]) -> Target:
        return Target(make, unused, ())

    precisions = np.arange(1.0, 251.0) ** -2
    found = {
        FUNNEL: funnel(10),
        "normal 250": target(functools.partial(model_of, 250, axes_value_and_gradient, precisions[None])),
        **{name: target(POSTERIORS[name]().model) for name in SIX},
    }
    if data is not None:
        y = np.array(json.loads(pathlib.Path(data).read_text(encoding="utf-8"))["y"], float)
        found[STOCK_WATSON] = target(functools.partial(model_of, 3 * len(y), stock_watson, y[None]))
    return {name: each._replace(draws=DRAWS.get(name, 1_000)) for name, each in found.items()}


def refhmc_kernel(kernel: Any) -> Callable[[Target], Callable]:
    return lambda target: run_of_refhmc(target, target.model(), kernel)


OWN_NUTS = refhmc.NUTS(metric=refhmc.metrics.LowRank())
OWN: dict[str, Callable[[Target], Callable]] = {
    "WALNUTS": refhmc_kernel(WALNUTS()),
    "WALNUTS, R2P": refhmc_kernel(WALNUTS(extra_halving=1 / 3)),
    "NUTS": refhmc_kernel(OWN_NUTS),
}


def started_at_draws(target: Target) -> Callable:
    options: dict[str, Any] = {"draws": 100, "cores": 1, "raw": True, "progressbar": False, "generate": False}
    return walnutpie(target, refhmc.sample(target.model(), OWN_NUTS, random_seed=2026, **options).draws[:, -1])


STARTED = "walnutpie, started at draws"
SAMPLERS = {**OWN, "walnutpie": walnutpie, STARTED: started_at_draws}


def measure(name: str, target: Target, sampler: str, seeds: list[int]) -> list[dict[str, Any]]:
    """Return the figures of a sampler on a target, or why there are none, for each seed."""
    run = SAMPLERS[sampler](target)
    found: list[dict[str, Any]] = []
    for seed in seeds:
        try:
            found.append(figures_of(run(seed)(), target.scales if name == FUNNEL else ()))
        except (Unavailable, ValueError, refhmc.errors.SamplingError) as reason:
            found.append({"failed": str(reason)})
    return found


def figures_of(run: Any, scales: tuple[int, ...]) -> dict[str, Any]:
    """Return the figures of a run; ``scales`` is the index of v in the funnel."""
    draws = np.asarray(run.draws)
    if np.ptp(draws, axis=1).min() == 0:
        raise Unavailable("a chain did not move")
    worst, worst_square = diagnostics.ess(draws).min(), diagnostics.ess((draws - draws.mean(axis=(0, 1))) ** 2).min()
    return {
        "ess": float(worst),
        "ess_square": float(worst_square),
        "gradients": run.gradients,
        "divergent": None if run.divergences is None else 100 * run.divergences / (draws.shape[0] * draws.shape[1]),
        "r_hat": float(diagnostics.rhat(draws).max()),
        "errors": [squared_errors(draws[:, :, i]) for i in scales],
    }


def squared_errors(v: np.ndarray) -> list[float]:
    """Return the mean squared errors of the chains' means of v and v^2, in units of their variances 9 and 162."""
    return [float(np.mean(v.mean(axis=1) ** 2) / 9), float(np.mean(((v**2).mean(axis=1) - 9) ** 2) / 162)]


def by_peer(arguments: argparse.Namespace, target: str, sampler: str) -> list[dict[str, Any]]:
    """Return the figures of a sampler that runs in the interpreter of the peers."""
    command = [arguments.peers, "-W", "ignore", "-P", __file__, "--measure", target, sampler]
    command += ["--seeds", str(arguments.seeds)]
    if arguments.stock_watson:
        command += ["--stock-watson", str(pathlib.Path(arguments.stock_watson).resolve())]
    done = subprocess.run(command, cwd=common.ROOT, env=common.environment(), capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(RESULT_MARK)]
    if not lines:
        print(f"{target}, {sampler}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return []
    return json.loads(lines[-1][len(RESULT_MARK) :])


HEADER = ["target and sampler", "ESS / 1,000", "ESS of squares / 1,000", "gradients", "divergent", "R-hat", "runs"]
TRUE_HEADER = ["sampler", "v", "v^2", "seeds"]


def row_of(name: str, found: list[dict[str, Any]]) -> list[str]:
    runs = [run for run in found if "failed" not in run]
    count = f"{len(runs)} of {len(found)}"
    if not runs:
        return [name, "-", "-", "-", "", "-", count]
    divergent = [run["divergent"] for run in runs if run["divergent"] is not None]
    return [
        name,
        spread(1000 * run["ess"] / run["gradients"] for run in runs),
        spread(1000 * run["ess_square"] / run["gradients"] for run in runs),
        spread(run["gradients"] for run in runs),
        f"{number(float(np.mean(divergent)))} %" if divergent else "",
        f"{max(run['r_hat'] for run in runs):.3f}",
        count,
    ]


def true_row_of(name: str, found: list[dict[str, Any]]) -> list[str]:
    """Return the effective draws of v and v^2 by their true errors, with a bootstrap interval."""
    runs = [run for run in found if run.get("errors")]
    gradients = np.array([run["gradients"] for run in runs]) / samplers.CHAINS
    errors = np.array([run["errors"][0] for run in runs])
    again = np.random.default_rng(1).integers(len(runs), size=(2_000, len(runs)))
    whole = 1000 / (gradients.mean() * errors.mean(axis=0))
    low, high = np.quantile(
        1000 / (gradients[again].mean(axis=1)[:, None] * errors[again].mean(axis=1)), [0.025, 0.975], axis=0
    )
    values = [f"{number(x)} ({number(a)}..{number(b)})" for x, a, b in zip(whole, low, high, strict=True)]
    return [name, *values, str(len(runs))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default 5)")
    parser.add_argument("--only", nargs="+", default=[], help="words in the names of targets")
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="interpreter that has walnutpie")
    parser.add_argument("--stock-watson", metavar="FILE", help="data of Stock and Watson's model")
    parser.add_argument("--measure", nargs=2, metavar=("TARGET", "SAMPLER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    known, seeds = targets(arguments.stock_watson), list(range(1, arguments.seeds + 1))
    if arguments.measure:
        name, sampler = arguments.measure
        print(RESULT_MARK + json.dumps(measure(name, known[name], sampler, seeds)))
        return
    common.pin_to_one_core()
    stored = common.RESULTS / f"{NAME}.json"
    cells = json.loads(stored.read_text(encoding="utf-8"))["cells"] if stored.exists() else {}
    about: dict[str, Any] = common.machine(PACKAGES)
    about["versions"]["walnutpie"] = versions_of(arguments.peers)["walnutpie"]
    for name, target in known.items():
        if arguments.only and not any(word in name for word in arguments.only):
            continue
        for sampler in SAMPLERS:
            if sampler == STARTED and name != STOCK_WATSON:
                continue
            runs = measure(name, target, sampler, seeds) if sampler in OWN else by_peer(arguments, name, sampler)
            if runs:
                cells.setdefault(name, {})[sampler] = runs
                print(*row_of(f"{name}: {sampler}", runs), flush=True)
    names = [name for name in (*known, STOCK_WATSON) if name in cells]
    rows = [row_of(f"{n}: {s}", cells[n][s]) for n in dict.fromkeys(names) for s in SAMPLERS if s in cells[n]]
    what = "\n\n".join(part.strip() for part in (__doc__ or "").split("\n\n")[1:])
    tables = [common.table(HEADER, rows)]
    if FUNNEL in cells:
        true_rows = [true_row_of(s, cells[FUNNEL][s]) for s in SAMPLERS if s in cells[FUNNEL]]
        tables.append(common.table(TRUE_HEADER, true_rows))
    common.report(NAME, "WALNUTS and walnutpie", "\n\n".join([what, *tables]), {"cells": cells}, about)


if __name__ == "__main__":
    main()
