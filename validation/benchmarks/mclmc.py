"""Bias of MCLMC on normals next to the predicted one: ``python -m validation.benchmarks.mclmc [--draws 20000]``.

Every step of MCLMC is accepted, so that its stationary distribution is not the target. For a normal with independent
coordinates of variance 1 and d -> infinity, the variance of the draws is the fixed point of a map of (|q|^2 / d, q.p / d)
(``refhmc/kernels/mclmc.py``). Four chains start from exact draws. The table has, for each splitting, dimension and step size:

- the mean of q_i^2 over all coordinates, less 1, with its standard error from the effective sample size, and its prediction;
- the variance of the energy error of a step, divided by d, which is what warm-up adapts the step size to. Its default is 5e-4.

The last table has runs whose step size was adapted in 1,000 iterations of warm-up.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import sys
from typing import Any

import numpy as np
import scipy.optimize

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc import diagnostics
from refhmc.integrators import BCSS, McLachlan
from validation.benchmarks import common

DIMENSIONS, STEPS = (10, 100, 1000), (0.5, 1.0, 1.5, 2.0)
SPLITTINGS = {"BCSS": BCSS(), "McLachlan": McLachlan()}
HEADER = ["splitting", "d", "step size", "measured", "standard error", "predicted", "energy variance / d"]


def after_step(coefficients: tuple[float, ...], eps: float, square: float) -> tuple[float, float]:
    """Return r^2 and s after a step from r^2 = `square` and s = 0."""

    def turned(s: float, h: float) -> float:
        r = square**0.5
        c, sinh, cosh = -s / r, math.sinh(h * r), math.cosh(h * r)
        return (s - r * (sinh + c * (cosh - 1))) / (cosh + c * sinh)

    first, *rest = coefficients
    s = turned(0.0, first * eps)
    for a, b in zip(rest[::2], rest[1::2], strict=True):
        square, s = square + 2 * a * eps * s + (a * eps) ** 2, s + a * eps
        s = turned(s, b * eps)
    return square, s


def predicted(coefficients: tuple[float, ...], eps: float) -> float:
    """Return the variance of the draws for d -> infinity, less 1."""
    return scipy.optimize.brentq(lambda square: after_step(coefficients, eps, square)[1], 0.5, 2.0, xtol=1e-14) - 1


def measured(d: int, kernel: Any, draws: int, tune: int = 0) -> dict[str, float]:
    """Return the mean of q^2 - 1, its standard error, the variance of the energy error per coordinate, and the step size."""
    model = refhmc.models.Gaussian(np.zeros(d), np.eye(d))
    starts = np.random.default_rng(1).normal(size=(4, d))
    options: dict[str, Any] = {"cores": 1, "raw": True, "progressbar": False, "initvals": starts, "random_seed": 1}
    result = refhmc.sample(model, kernel, draws=draws, tune=tune, **options)
    square = np.mean(np.asarray(result.draws) ** 2, axis=-1)
    ess = float(diagnostics.ess(square[..., None]).item())
    return {
        "bias": float(square.mean() - 1),
        "error": float(square.std() / np.sqrt(ess)),
        "energy": float(np.mean(np.asarray(result.sample_stats["energy_error"]) ** 2) / d),
        "step_size": float(np.mean(result.sample_stats["step_size"])),
    }


def row_of(name: str, d: int, found: dict[str, float], expected: float) -> list[str]:
    figures = [f"{found['bias']:+.4f}", f"{found['error']:.4f}", f"{expected:+.4f}", f"{found['energy']:.2g}"]
    return [name, str(d), f"{found['step_size']:.3g}", *figures]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=20_000, help="draws per chain, fewer in 1,000 dimensions")
    arguments = parser.parse_args()
    common.pin_to_one_core()
    about, cells, fixed, adapted = common.machine(["refhmc", "numba", "numpy"]), {}, [], []
    identity = refhmc.metrics.Identity()
    for name, splitting in SPLITTINGS.items():
        for d in DIMENSIONS:
            draws = min(arguments.draws, 10**7 // d)
            for eps in (*STEPS, None):
                kernel = refhmc.MCLMC(step_size=eps, integrator=splitting, metric=identity)
                found = measured(d, kernel, draws, tune=1000 if eps is None else 0)
                expected = predicted(splitting.coefficients, found["step_size"])
                cells[f"{name}, {d}, {eps or 'adapted'}"] = found | {"predicted": expected}
                (adapted if eps is None else fixed).append(row_of(name, d, found, expected))
                print(" | ".join(row_of(name, d, found, expected)), flush=True)
    what = "\n\n".join((__doc__ or "").split("\n\n")[1:])
    text = "\n\n".join([what, common.table(HEADER, fixed), common.table(HEADER, adapted)])
    common.report("mclmc", "Bias of MCLMC on normals", text, {"cells": cells}, about)


if __name__ == "__main__":
    main()
