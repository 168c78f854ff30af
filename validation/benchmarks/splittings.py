"""Splittings of several stages next to the leapfrog: ``python -m validation.benchmarks.splittings [PART]``.

`dimension`: HMC on normals with independent coordinates, the identity metric and trajectories of length 1 to 2 (the number of
steps is uniform), from exact draws. "standard": all scales are 1. "graded": frequencies from 1 to 10, evenly spaced in their
logarithm. The first table of each is at equal cost: all methods have the time per gradient at which the leapfrog accepts 80 %,
so that a step of s stages has s times the size of the leapfrog's. "theory" is the mean energy error, the sum over coordinates
of the mean over the lengths of sin^2(n theta) rho, and 2 Phi(-(mean/2)^(1/2)), the acceptance rate for many coordinates. The
second table has the longest time per gradient at which the theory gives 80 %, also in units of the leapfrog's, and the
acceptance rate measured there. A trajectory has at least one step. In the second table a step is at most 1.5 long, as the mean
trajectory. Standard errors of the measured rates are below 0.02.

`posteriors`: Four chains of 500 iterations of warm-up and 500 draws with the default metric. The figures are the least bulk
effective sample size of a coordinate, and that of a square (q_i - mean)^2, per 1,000 gradients, those of warm-up included. HMC
has learned lengths, and NUTS trees of at most 127 steps. Medians over three seeds, with the default target acceptance rate,
0.8, and with the one of 0.65, 0.8 and 0.95 for which the smaller of the two figures is largest. "steps" are per draw, at this
target.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import pathlib
import sys
import warnings

import numpy as np
import scipy.stats

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc.integrators import BCSS, Leapfrog, McLachlan, Omelyan
from refhmc.numerics.convergence import ess
from validation.benchmarks import common
from validation.benchmarks.posteriors import POSTERIORS, normal_along_axes

METHODS = {
    "leapfrog": Leapfrog(),
    "McLachlan, 2 stages": McLachlan(),
    "BCSS, 2 stages": BCSS(stages=2),
    "BCSS, 3 stages": BCSS(stages=3),
    "BCSS, 4 stages": BCSS(stages=4),
    "Omelyan, velocity": Omelyan(),
    "Omelyan, position": Omelyan("position"),
}
DIMENSIONS = (1, 10, 100, 1000, 10_000)
SHORTEST, LONGEST = 1.0, 2.0
WANTED = 0.8
TARGETS, SEEDS = (0.65, 0.8, 0.95), 3


class Normal:
    """A normal with independent coordinates, for :func:`refhmc.array_api.hamiltonian`."""

    name, discontinuous, fisher_levels, parts = "normal", (), None, ()

    def __init__(self, frequencies: np.ndarray) -> None:
        self.precision, self.dim = frequencies**2, len(frequencies)

    def value_and_gradient(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gradient = -self.precision * q
        return 0.5 * np.sum(q * gradient, axis=-1), gradient

    def log_density(self, q: np.ndarray) -> np.ndarray:
        return self.value_and_gradient(q)[0]

    def gradient(self, q: np.ndarray) -> np.ndarray:
        return -self.precision * q


TARGETS_BY_NAME = {
    "standard": np.ones,
    "graded": lambda d: np.geomspace(1.0, 10.0, d) if d > 1 else np.full(1, 10.0**0.5),
}


def coefficients(method: object) -> tuple[float, ...]:
    return getattr(method, "coefficients", (0.5, 1.0, 0.5))


def lengths(eps: float) -> tuple[np.ndarray, float, float]:
    """The numbers of steps, each as probable as the others, and the arguments of HMC that draw them."""
    first, last = max(round(SHORTEST / eps), 1), max(round(LONGEST / eps), 1)
    middle = (first + last) / 2
    return np.arange(first, last + 1), middle, (last - first + 1) / (2 * middle)


def mean_error(method: object, frequencies: np.ndarray, time: float) -> float:
    """The mean energy error with this time per gradient; infinite if a coordinate is unstable."""
    eps = method.cost * time
    h = eps * frequencies
    A, B, C, D = np.ones_like(h), 0 * h, 0 * h, np.ones_like(h)
    for k, size in enumerate(coefficients(method)):
        if k % 2:
            A, B = A + size * h * C, B + size * h * D
        else:
            C, D = C - size * h * A, D - size * h * B
    if not (np.abs(A) < 1).all():
        return np.inf
    n, middle, _ = lengths(eps)
    theta = np.arccos(A)
    cosines = np.cos(2 * middle * theta) * np.sin(len(n) * theta) / (len(n) * np.sin(theta))  # mean of cos(2 n theta)
    return float(np.sum((1 - cosines) / 2 * (B + C) ** 2 / (2 * (1 - A * A))))


def acceptance(error: float) -> float:
    return float(2 * scipy.stats.norm.cdf(-((error / 2) ** 0.5)))


def longest_time(method: object, frequencies: np.ndarray) -> float:
    """The time per gradient up to which the theory gives the acceptance rate WANTED."""
    times = np.geomspace(0.02, 2.0, 1000) / frequencies.max()
    fits = (
        method.cost * t <= (SHORTEST + LONGEST) / 2 and acceptance(mean_error(method, frequencies, t)) >= WANTED
        for t in times
    )
    return float(times[sum(itertools.takewhile(bool, fits)) - 1])


def measured(method: object, frequencies: np.ndarray, time: float) -> tuple[float, float]:
    """Return mean energy error and acceptance rate of one transition each from exact draws."""
    rng, d, eps = np.random.default_rng(1), len(frequencies), method.cost * time
    H = refhmc.array_api.hamiltonian(Normal(frequencies), refhmc.metrics.Identity())
    _, middle, jitter = lengths(eps)
    options = {"step_size": eps, "n_steps": middle, "length_jitter": jitter}
    errors, rates, chains = [], [], max(min(10_000, 200_000 // d), 20)
    for _ in range(min(10_000, 3_000_000 // d) // chains):
        q, p = rng.normal(size=(chains, d)) / frequencies, rng.normal(size=(chains, d))
        moves = refhmc.array_api.hmc(H, method.on_arrays(), q, p, rng.random((chains, 2)), **options)
        errors.append(moves.energy_error)
        rates.append(moves.acceptance_rate)
    return float(np.mean(errors)), float(np.mean(rates))


def by_dimension() -> tuple[list[str], dict]:
    tables, figures = [], {}
    for name, make in TARGETS_BY_NAME.items():
        at_equal_cost, at_equal_acceptance = [], []
        for d in DIMENSIONS:
            frequencies = make(d)
            of_leapfrog = longest_time(METHODS["leapfrog"], frequencies)
            for title, method in METHODS.items():
                error, time = mean_error(method, frequencies, of_leapfrog), longest_time(method, frequencies)
                found = measured(method, frequencies, of_leapfrog) if np.isfinite(error) else (np.nan, 0.0)
                there = measured(method, frequencies, time)
                figures[f"{name}, d = {d}: {title}"] = {
                    "time per gradient": of_leapfrog,
                    "mean energy error": {
                        "theory": error if np.isfinite(error) else None,
                        "measured": found[0] if np.isfinite(error) else None,
                    },
                    "acceptance rate": {"theory": acceptance(error), "measured": found[1]},
                    "longest time per gradient": time,
                    "acceptance rate there": there[1],
                }
                label = f"d = {d:,}: {title}"
                words = [f"{x:.3g}" if np.isfinite(x) else "unstable" for x in (error, found[0])]
                at_equal_cost.append(
                    [label, f"{of_leapfrog:.3f}", *words, f"{acceptance(error):.3f}", f"{found[1]:.3f}"]
                )
                at_equal_acceptance.append([label, f"{time:.3f}", f"{time / of_leapfrog:.2f}", f"{there[1]:.3f}"])
                print(" | ".join(at_equal_cost[-1] + at_equal_acceptance[-1][1:]), flush=True)
        header = [
            "method",
            "time per gradient",
            "mean energy error, theory",
            "measured",
            "acceptance, theory",
            "accepted",
        ]
        tables.append(f"## {name.capitalize()} normals at equal cost\n\n{common.table(header, at_equal_cost)}")
        header = ["method", "time per gradient", "of the leapfrog's", "accepted"]
        tables.append(
            f"## {name.capitalize()} normals at equal acceptance\n\n{common.table(header, at_equal_acceptance)}"
        )
    return tables, figures


PROBLEMS = {
    **{f"normal, d = {d:,}": (lambda d=d: normal_along_axes(d, 1.0)) for d in (10, 100, 1000)},
    "arK": POSTERIORS["arK"],
    "garch": POSTERIORS["garch"],
}
KERNELS = {"HMC": refhmc.HMC, "NUTS": functools.partial(refhmc.NUTS, max_treedepth=7)}


def run(model: refhmc.Model, kernel: object, seed: int) -> list[float]:
    """ESS of a coordinate and of a square per 1,000 gradients, steps per draw, acceptance rate."""
    result = refhmc.sample(model, kernel, tune=500, draws=500, random_seed=seed, cores=1, raw=True, progressbar=False)
    draws, stats = result.draws, result.sample_stats
    thousands = result.attributes["n_gradient_evaluations"] / 1000
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    sizes = [ess(x).min() / thousands for x in (draws, squares)]
    return [*sizes, stats["n_steps"].mean(), stats["acceptance_rate"].mean()]


def on_posteriors() -> tuple[list[str], dict]:
    rows, figures = {kernel: [] for kernel in KERNELS}, {}
    for name, make in PROBLEMS.items():
        model = make().model()
        for kernel, kind in KERNELS.items():
            for title, method in list(METHODS.items())[:-1]:
                found = {}
                for target in TARGETS:
                    runs = [run(model, kind(integrator=method, target_accept=target), seed) for seed in range(SEEDS)]
                    found[target] = np.median(runs, axis=0)
                    figures[f"{name}, {kernel}: {title}, target {target}"] = np.array(runs).tolist()
                best = max(found, key=lambda target: min(found[target][:2]))
                words = [f"{x:.3g}" for x in (*found[WANTED][:2], *found[best][:2])]
                row = [f"{name}: {title}", *words[:2], f"{best:g}", *words[2:], f"{found[best][2]:.1f}"]
                rows[kernel].append(row)
                print(kernel, " | ".join(row), flush=True)
    header = ["problem and method", "ESS at 0.8", "of a square", "best target", "ESS", "of a square there", "steps"]
    return [f"## {kernel} on posteriors\n\n{common.table(header, rows[kernel])}" for kernel in KERNELS], figures


PARTS = {"dimension": by_dimension, "posteriors": on_posteriors}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: both")
    options = parser.parse_args()
    common.pin_to_one_core()
    warnings.simplefilter("ignore")
    for part in options.parts or PARTS:
        about = common.machine(["refhmc", "numba", "numpy", "scipy"])
        tables, figures = PARTS[part]()
        (what,) = [each for each in (__doc__ or "").split("\n\n") if each.startswith(f"`{part}`")]
        text = "\n\n".join([what.partition(": ")[2].strip(), *tables])
        common.report(f"splittings_{part}", f"Splittings of several stages: {part}", text, {"figures": figures}, about)


if __name__ == "__main__":
    main()
