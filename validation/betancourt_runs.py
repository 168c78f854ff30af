"""What the commands on Betancourt (2013) share: the funnel's chains, and the effective sample size as the paper has it.

The paper's ESS is Geyer's initial monotone sequence (:func:`refhmc.diagnostics.geyer_ess`), of the values themselves; ArviZ's
bulk ESS splits the chain and replaces values by normal scores of their ranks. Both are reported, both capped at n log10 n:
where successive draws are nearly opposite the sum is near 0, and the ESS of v has no bound. ESS of v^2 stands beside it, since
such draws of v are good for E v and bad for var v.

A chain is made as the paper says: the start uniform on (-1, 1), warm-up, and then, timed by itself (the published program
starts its clock after warm-up), the draws. Time is the processor's, of one core.
"""

from __future__ import annotations

import dataclasses
import math
import os

import numpy as np

import refhmc
from refhmc.diagnostics import autocovariances, geyer_ess
from refhmc.integrators import GeneralizedLeapfrog
from refhmc.metrics import DiagonalOuterProductSoftAbs, DiagonalSoftAbs, Identity, SoftAbs
from validation import common

N = 50
ALPHA = 1e6
LENGTH = 15.0  # integration time of the published program
JITTER = 0.05
EMHMC_STEPS = 8000  # T/2 = 8 (figure 3) in steps of 0.001
VARIANCE = 9.0


def pin_to_one_core() -> None:
    """Run this process on one core (the last it may use), where the system allows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def emhmc(**more) -> refhmc.HMC:
    """Euclidean HMC by hand: step 0.001, 8,000 steps."""
    return refhmc.HMC(
        **{"step_size": 0.001, "n_steps": EMHMC_STEPS, "metric": Identity(), "step_jitter": JITTER, **more}
    )


def rmhmc(metric, integrator=None, **more) -> refhmc.HMC:
    """RMHMC as the published program: time 15, 5 % jitter, the step adapted to ``target_accept``, unchecked steps."""
    options = {"trajectory_length": LENGTH, "step_jitter": JITTER, "target_accept": 0.95, **more}
    return refhmc.HMC(metric=metric, integrator=integrator or GeneralizedLeapfrog(reversibility_check=False), **options)


def softabs(integrator=None, **more) -> refhmc.HMC:
    return rmhmc(SoftAbs(alpha=ALPHA), integrator, **more)


def diagonal(integrator=None, **more) -> refhmc.HMC:
    return rmhmc(DiagonalSoftAbs(alpha=ALPHA), integrator, **{"target_accept": 0.8, **more})


def outer_product(integrator=None, **more) -> refhmc.HMC:
    options = {"target_accept": 0.8, **more}
    return rmhmc(DiagonalOuterProductSoftAbs(alpha=1.0), integrator, **options)


def autocorrelations(v: np.ndarray, lags: int) -> np.ndarray:
    """rho_0 ... rho_lags of one chain; 1 of one that never moved."""
    gamma = autocovariances(np.asarray(v)[None])
    return gamma[: lags + 1] / gamma[0] if np.ptp(v) > 0 else np.ones(lags + 1)


# ------------------------------------------------------------------------------------------------------- one chain


@dataclasses.dataclass
class Run:
    """One chain's v, and what its table row says; the array stays out of the JSON."""

    v: np.ndarray
    facts: dict


def run(kernel, seed: int, tune: int, draws: int, n: int = N) -> Run:
    """Warm-up, then ``draws`` draws at the step it found, timed by themselves."""
    model = refhmc.models.Funnel(n)
    start = np.random.default_rng(seed).uniform(-1, 1, (1, n + 1))
    options = {"chains": 1, "starts": start, "seed": (seed, 1)}
    first = common.run_chains(model, kernel, draws=1, tune=tune, **options)
    name = "step_size_nom" if "step_size_nom" in first.stats else "step_size"
    step = float(first.stats[name][0, 0])
    fixed = dataclasses.replace(kernel, step_size=step)
    options |= {"starts": first.draws[:, -1], "seed": (seed, 2)}
    chains = common.run_chains(model, fixed, draws=draws, warm=True, **options)
    v = chains.draws[0, :, 0]
    return Run(v, {"seed": seed, "tune": tune, "draws": draws, **describe(v, chains, step, first.seconds)})


def describe(v: np.ndarray, chains: common.Chains, step: float, warm_seconds: float) -> dict:
    """The row of a chain: acceptance, step, time, both ESS of v, moments of v with their errors."""
    stats = chains.stats
    ess, square = geyer_ess(np.stack([v, v**2], axis=-1)[None])
    bulk = float(common.effective_sizes(v[None, :, None])[0, 0])
    failed = stats.get("solver_failed")
    return {
        "step_size": step,
        "steps": float(stats["n_steps"].mean()),
        "acceptance": float(stats["acceptance_rate"].mean()),
        "solver_failed": 0.0 if failed is None else float(failed.mean()),
        "cpu_seconds": chains.seconds,
        "cpu_seconds_warmup": warm_seconds,
        "ess": ess,
        "ess_arviz_bulk": bulk,
        "ess_of_square": square,
        "ess_per_second": ess / chains.seconds,
        "ess_of_square_per_second": square / chains.seconds,
        "ess_per_second_with_warmup": ess / (chains.seconds + warm_seconds),
        **moments(v),
    }


def moments(v: np.ndarray) -> dict:
    """Mean and variance of v about the true mean, standard errors from the paper's ESS, z against N(0, 9)."""
    mean, square = float(v.mean()), float(np.mean(v**2))
    ess, square_ess = geyer_ess(np.stack([v, v**2], axis=-1)[None])
    mean_error = float(v.std()) / math.sqrt(ess)
    square_error = float(np.std(v**2)) / math.sqrt(square_ess)
    return {
        "mean": mean,
        "mean_error": mean_error,
        "second_moment": square,
        "second_moment_error": square_error,
        "z_mean": mean / mean_error if mean_error > 0 else None,
        "z_second_moment": (square - VARIANCE) / square_error if square_error > 0 else None,
    }
