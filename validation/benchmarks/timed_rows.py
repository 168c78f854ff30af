"""What ``python -m validation.benchmarks.before_after`` times: a process that answers lines of JSON with seconds.

As in :mod:`validation.pinned_runs` there is nothing here but refhmc's public interface, so that one text runs on two commits.
The problems are those of the other benchmarks; the logistic regression has their shape, 569 x 31, and simulated data, so
that no other package is needed. Runs begin at exact draws of the funnel, the banana and the normal; the logistic regression's
at the coefficients that its data were simulated with; the others' near the origin, or at the model's own start.

``{"rows": true}`` -> names.   ``{"row": name, "seconds": s}`` -> ``{"amount": n}``, iterations that take about so long.
``{"row": name, "amount": n, "seed": k}`` -> seconds by two clocks and a hash of the draws.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
import pathlib
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np

import refhmc
from refhmc import models
from refhmc.integrators import GeneralizedLeapfrog, ImplicitMidpoint, Leapfrog
from refhmc.metrics import Diagonal, DiagonalSoftAbs, Fisher, Identity, SoftAbs, Tridiagonal

HMC, NUTS = refhmc.HMC, refhmc.NUTS
DRAWS = 10
SHORTEST = 0.05  # seconds that a run must take before its length is extrapolated


Run = Callable[[int, int], np.ndarray]  # (amount, seed) -> draws
Row = Callable[[], Run]  # makes model, kernel and what else is made once


@functools.cache
def logistic() -> tuple:
    """The model and the coefficients of its data."""
    rng = np.random.default_rng(569)
    X = np.hstack([np.ones((569, 1)), rng.standard_normal((569, 30))])
    beta = rng.standard_normal(31)
    return models.LogisticRegression(X, (rng.random(569) < 1 / (1 + np.exp(-X @ beta))).astype(float)), beta


@functools.cache
def problem(name: str) -> tuple:
    """The model and a function of a seed that gives a start, (d,)."""
    if name == "logistic":
        model, beta = logistic()
        return model, lambda seed: beta
    if name == "normal":
        model = models.Gaussian(np.zeros(100), np.eye(100))
        return model, lambda seed: np.random.default_rng(seed).standard_normal(100)
    if name.startswith("funnel"):
        model = models.Funnel(int(name.split()[1]))
    else:
        model = {"banana": models.Banana, "schools": models.EightSchools}[name]()
    if name == "schools":
        return model, lambda seed: 0.1 * np.random.default_rng(seed).standard_normal(model.dim)
    return model, lambda seed: model.reference.draw(np.random.default_rng(seed), 1)[0]


def sampled(name: str, kernel) -> Row:
    return lambda: iterations(*problem(name), kernel)


def iterations(model, start: Callable, kernel) -> Run:
    """``amount`` iterations of one chain as warm-up, and a few draws: too few of them for a diagnosis, which takes time."""
    options = {"draws": DRAWS, "chains": 1, "cores": 1, "raw": True, "progressbar": False, "preflight": False}
    if "warmup" in inspect.signature(refhmc.sample).parameters:
        options["warmup"] = "stan"  # the only warm-up of commits that have no such argument

    def run(amount: int, seed: int) -> np.ndarray:
        return refhmc.sample(model, kernel, tune=amount, random_seed=seed, initvals=start(seed), **options).draws

    return run


def integrated(name: str, eps: float) -> Row:
    """``amount`` leapfrog steps of ``integrate``, in one trajectory."""

    def prepare():
        model, start = problem(name)
        H = refhmc.Hamiltonian(model, Identity())

        def run(amount: int, seed: int) -> np.ndarray:
            p = np.random.default_rng(seed).standard_normal(model.dim)
            return refhmc.integrate(H, Leapfrog(), start(seed), p, step_size=eps, n_steps=amount).q

        return run

    return prepare


def blocks() -> Run:
    """Stochastic volatility by Gibbs sampling, in the blocks and with the steps of Brofos and Lederman's table 3."""
    model = models.StochasticVolatility(T=100)
    parameters = HMC(step_size=0.5, n_steps=6, metric=Fisher())
    latent = HMC(step_size=0.1, n_steps=50, metric=Tridiagonal())
    kernel = refhmc.Gibbs({("beta", "sigma", "phi"): parameters, "x": latent})
    return iterations(model, lambda seed: 0.1 * np.random.default_rng(seed).standard_normal(model.dim), kernel)


def jumps() -> Run:
    model = models.JollySeber()
    return iterations(model, lambda seed: model.initial, refhmc.DHMC(step_size=0.2, n_steps=10))


def every_row() -> dict[str, Row]:
    found: dict[str, Row] = {}
    for name, eps in {"banana": 0.01, "funnel 10": 0.05, "normal": 0.1, "logistic": 0.02}.items():
        found[f"leapfrog, {name}"] = sampled(name, HMC(step_size=eps, n_steps=1000, metric=Diagonal(1.0)))
    found["leapfrog by integrate, funnel 10"] = integrated("funnel 10", 0.05)
    for name in ("normal", "schools", "logistic", "funnel 10"):
        found[f"NUTS with warm-up, {name}"] = sampled(name, NUTS(metric=Diagonal()))
    settings = {"banana": (Fisher(), 0.1, 10), "funnel 10": (SoftAbs(1e6), 0.2, 20), "logistic": (Fisher(), 0.1, 10)}
    for name, (metric, eps, n) in settings.items():
        for word, method in {"midpoint": ImplicitMidpoint, "generalised leapfrog": GeneralizedLeapfrog}.items():
            for checked in (True, False):
                kernel = HMC(step_size=eps, n_steps=n, metric=metric, integrator=method(reversibility_check=checked))
                found[f"{word}, {name}, {'checked' if checked else 'unchecked'}"] = sampled(name, kernel)
    unchecked = ImplicitMidpoint(reversibility_check=False)
    for name, metric in {
        "funnel 24": SoftAbs(1e6),
        "funnel 100": SoftAbs(1e6),
        "funnel 199": DiagonalSoftAbs(1e6),
    }.items():
        kernel = HMC(step_size=0.05, n_steps=5, metric=metric, integrator=unchecked)
        found[f"midpoint, {name}, {type(metric).__name__}"] = sampled(name, kernel)
    found["DHMC, Jolly-Seber"] = jumps
    found["Gibbs, stochastic volatility"] = blocks
    return found


def timed(run: Run, amount: int, seed: int) -> dict[str, object]:
    begin, processor = time.perf_counter(), time.process_time()
    draws = run(amount, seed)
    seconds = {"wall": time.perf_counter() - begin, "processor": time.process_time() - processor}
    return {**seconds, "draws": hashlib.sha256(np.ascontiguousarray(draws).tobytes()).hexdigest()}


def calibrate(run: Run, seconds: float) -> int:
    """The amount that takes about so many seconds."""
    amount = 4
    run(amount, 0)
    while True:
        spent = timed(run, amount, 0)["processor"]
        if spent >= min(SHORTEST, seconds):
            return max(1, math.ceil(amount * seconds / spent))
        amount = math.ceil(amount * min(20.0, 1.5 * SHORTEST / max(spent, 1e-4)))


def main() -> None:
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    rows, ready = every_row(), {}
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked.get("row")
        try:
            if name is None:
                answer = {"rows": list(rows), "refhmc": str(pathlib.Path(refhmc.__file__).resolve().parent.parent)}
            else:
                if name not in ready:
                    ready[name] = rows[name]()
                    ready[name](4, 0)
                if "seconds" in asked:
                    answer = {"amount": calibrate(ready[name], asked["seconds"])}
                else:
                    answer = timed(ready[name], asked["amount"], asked["seed"])
        except Exception as error:  # told to the benchmark, which goes on with the other rows
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
