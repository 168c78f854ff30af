"""What the commands on Cobb, Baydin, Markham and Roberts (2019) share: the funnel 10 + 1, its schemes, KL(p(v) || q(v)).

q(v) is the normal with the first two moments of the draws of v, p = N(0, 9):

    KL = log(s / 3) + (9 + m^2) / (2 s^2) - 1/2,     m, s^2 mean and variance of the draws

Of n independent draws, KL is close to (m/3)^2/2 + (s^2/9 - 1)^2/4, with mean 1/n: a scheme with KL 0.13 made some eight
draws' worth. It is a very skewed figure of one run, so it is repeated, and its quantiles are given.

Every run starts where the authors' examples start, v = 0 and x = (1, ..., 1), without warm-up unless the step is adapted.
The authors' threshold 0.001 is on max(delta^2): our tolerance, on max |delta|, is sqrt(0.001) = 0.0316.
"""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

import refhmc
from refhmc.diagnostics import geyer_ess
from refhmc.integrators import ExplicitTao, GeneralizedLeapfrog, ProjectedTao
from refhmc.metrics import Identity, SoftAbs
from validation import cobb_program, common
from validation.cobb_program import Rule
from validation.cobb_published import JitteredSoftAbs, PublishedExplicit, PublishedImplicit

N = 10
L = 25
OMEGA = 10.0
ALPHA = 1e6
VARIANCE = 9.0
THRESHOLD = math.sqrt(1e-3)
MOST = 1000  # iterations of a solve


def start() -> np.ndarray:
    """v = 0, x = 1."""
    return np.r_[0.0, np.ones(N)]


@dataclasses.dataclass
class Scheme:
    """A row: kernel, warm-up, transitions of a run, runs; ``paper``: its name in the table. ``rule``: the program's chain."""

    title: str
    kernel: object
    draws: int
    trials: int
    paper: str | None = None
    tune: int = 0
    rule: Rule | None = None


def euclidean(step: float | None, **more) -> refhmc.HMC:
    return refhmc.HMC(step_size=step, n_steps=L, metric=Identity(), **more)


def riemannian(integrator, step: float, metric: SoftAbs | None = None) -> refhmc.HMC:
    metric = SoftAbs(alpha=ALPHA) if metric is None else metric
    return refhmc.HMC(step_size=step, n_steps=L, metric=metric, integrator=integrator)


def implicit(tolerance: float = THRESHOLD, most: int = MOST) -> GeneralizedLeapfrog:
    """As in the paper: no step is taken back."""
    return GeneralizedLeapfrog(tolerance=tolerance, max_iterations=most, reversibility_check=False)


def published_implicit(most: int = MOST) -> PublishedImplicit:
    return PublishedImplicit(tolerance=THRESHOLD, max_iterations=most, reversibility_check=False)


def schemes() -> dict[str, Scheme]:
    """The four rows of the paper, and ours beside them."""
    published, tao = PublishedExplicit(omega=OMEGA), ExplicitTao(omega=OMEGA)
    jittered = JitteredSoftAbs(alpha=ALPHA)
    projected = ProjectedTao(omega=OMEGA, tolerance=1e-6, reversibility_check=False)
    tight = GeneralizedLeapfrog(tolerance=1e-6, max_iterations=MOST, reversibility_check=True)
    program, double = Rule(restores=False, whole=True), Rule(restores=False, whole=True, weight=2.0)
    nuts, by_hand, implicitly, explicitly = "HMC-NUTS", "HMC hand-tuned for KL", "Implicit RMHMC", "Explicit RMHMC"
    return {
        "hmc_adapted": Scheme(
            "HMC, L = 25, step adapted to 0.75", euclidean(None, target_accept=0.75), 100_000, 20, nuts, 1000
        ),
        "hmc_0.3896": Scheme("HMC, L = 25, step 0.3896", euclidean(0.3896), 100_000, 20, nuts),
        "implicit": Scheme(
            "implicit RMHMC, threshold as published", riemannian(implicit(), 0.15), 1000, 40, implicitly
        ),
        "implicit_tight": Scheme("implicit RMHMC, tolerance 1e-6, checked", riemannian(tight, 0.15), 1000, 40),
        "implicit_jittered": Scheme(
            "implicit RMHMC, the program's jitter",
            riemannian(published_implicit(), 0.15, jittered),
            1000,
            40,
            implicitly,
        ),
        "published_jittered": Scheme(
            "explicit, the program's binding and jitter, Omega = 10",
            riemannian(published, 0.14, jittered),
            1000,
            40,
            explicitly,
        ),
        "published": Scheme(
            "explicit, the program's binding, Omega = 10", riemannian(published, 0.14), 1000, 40, explicitly
        ),
        "explicit": Scheme("explicit, Tao's binding, Omega = 10", riemannian(tao, 0.14), 1000, 40, explicitly),
        "explicit_small": Scheme("explicit, Tao's binding, step 0.035", riemannian(tao, 0.035), 1000, 20),
        "projected": Scheme("projected Tao, Omega = 10", riemannian(projected, 0.14), 1000, 40),
        "projected_small": Scheme("projected Tao, Omega = 10, step 0.035", riemannian(projected, 0.035), 1000, 5),
        "hmc_0.2": Scheme("HMC, L = 25, step 0.2", euclidean(0.2), 100_000, 20, by_hand),
        "hmc_0.3896_whole": Scheme(
            "HMC, L = 25, step 0.3896, whole accepted trajectories recorded",
            euclidean(0.3896),
            100_000,
            20,
            nuts,
            rule=Rule(whole=True),
        ),
        "hmc_0.3896_program": Scheme(
            "HMC, L = 25, step 0.3896, the program's chain", euclidean(0.3896), 100_000, 20, nuts, rule=program
        ),
        "hmc_0.2_whole": Scheme(
            "HMC, L = 25, step 0.2, whole accepted trajectories recorded",
            euclidean(0.2),
            100_000,
            20,
            by_hand,
            rule=Rule(whole=True),
        ),
        "hmc_0.2_program": Scheme(
            "HMC, L = 25, step 0.2, the program's chain", euclidean(0.2), 100_000, 20, by_hand, rule=program
        ),
        "implicit_program": Scheme(
            "implicit RMHMC, the program's chain", riemannian(implicit(), 0.15), 1000, 40, implicitly, rule=program
        ),
        "implicit_program_jittered": Scheme(
            "implicit RMHMC, the program's chain and jitter",
            riemannian(published_implicit(), 0.15, jittered),
            1000,
            8,
            implicitly,
            rule=program,
        ),
        "published_program": Scheme(
            "explicit, the program's binding and chain", riemannian(published, 0.14), 1000, 40, explicitly, rule=double
        ),
        "published_program_jittered": Scheme(
            "explicit, the program's binding, chain and jitter",
            riemannian(published, 0.14, jittered),
            1000,
            40,
            explicitly,
            rule=double,
        ),
    }


def divergence(v: np.ndarray) -> float:
    """KL(p(v) || N(mean, variance of v))."""
    m, square = float(v.mean()), float(v.var())
    if square == 0:
        return math.inf
    return 0.5 * math.log(square / VARIANCE) + (VARIANCE + m * m) / (2 * square) - 0.5


def run(scheme: Scheme, seed: int, trials: int | None = None, from_exact: bool = False, after_each=None) -> list[dict]:
    """The scheme's runs, one dict of figures each; the time is the processor's, shared equally between the runs.

    ``from_exact``: each run starts from a draw of the funnel itself, and an exact kernel's runs then have no bias at all.
    ``after_each``: called with the runs so far after each run of the program's chain, some of which take minutes.
    """
    model, n = refhmc.models.Funnel(N), trials or scheme.trials
    if scheme.rule is not None:
        made: list[dict] = []
        for k in range(n):
            made.append(run_program(scheme, (seed, k)))
            if after_each is not None:
                after_each(made)
        return made
    exact = model.reference.draw(np.random.default_rng(seed), n)
    done = common.run_chains(
        model,
        scheme.kernel,
        draws=scheme.draws,
        chains=n,
        seed=seed,
        starts=exact if from_exact else np.tile(start(), (n, 1)),
        tune=scheme.tune,
        cores=1,
    )
    return [facts(done.draws[k, :, 0], {name: x[k] for name, x in done.stats.items()}, done.seconds) for k in range(n)]


def run_program(scheme: Scheme, seed) -> dict:
    """One run of the program's chain. Its ESS is that of what it records, by Geyer's formula, for what it is worth."""
    begin = time.process_time()
    done = cobb_program.chain(refhmc.models.Funnel(N), scheme.kernel, scheme.rule, start(), scheme.draws, seed)
    seconds = time.process_time() - begin
    evaluations = done.evaluations if scheme.kernel.metric.position_dependent else L
    stats = {"acceptance_rate": np.array([done.acceptance]), "step_size": np.array([scheme.kernel.step_size])}
    stats |= {"n_metric_evaluations": np.array([evaluations]), "solver_failed": np.array([0.0])}
    return {**facts(done.recorded[:, 0], stats, seconds), "failed": done.failed}


def facts(v: np.ndarray, stats: dict[str, np.ndarray], seconds: float) -> dict:
    """What one run says."""
    failed = stats.get("solver_failed")
    ess, square = geyer_ess(np.stack([v, v**2], axis=-1)[None])
    return {
        "kl": divergence(v),
        "acceptance": float(stats["acceptance_rate"].mean()),
        "step_size": float(stats["step_size"][-1]),
        "solver_failed": 0.0 if failed is None else float(failed.mean()),
        "seconds": seconds,
        "evaluations": float(stats["n_metric_evaluations"].mean()) if "n_metric_evaluations" in stats else float(L),
        "ess": ess,
        "mean": float(v.mean()),
        "mean_error": float(v.std()) / math.sqrt(ess),
        "second_moment": float(np.mean(v**2)),
        "second_moment_error": float(np.std(v**2)) / math.sqrt(square),
        "highest_v": float(v.max()),
    }
