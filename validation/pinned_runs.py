"""The runs whose draws must not change: each makes arrays, of which ``python -m validation.pins`` compares SHA-256 hashes.

``python validation/pinned_runs.py [--out FILE] [--only WORD] [--cores N]`` hashes the runs of the refhmc that is importable.
Nothing of refhmc but its public interface is used, and nothing else of this repository, so that one text runs on two
commits whose modules lie elsewhere. The runs are short, and many of them have steps that are too large: rejections,
divergences, solvers that fail and steps that do not reverse are among what is kept. ``outcomes`` counts them.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import inspect
import json
import math
import pathlib
import platform
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import scipy.special

import refhmc
from refhmc import models
from refhmc.core.sample_stats import OUTCOMES
from refhmc.integrators import (
    ExplicitTao,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    ProjectedTao,
    Suzuki,
    Yoshida,
)
from refhmc.metrics import (
    Dense,
    DiagonalOuterProductSoftAbs,
    DiagonalSoftAbs,
    Fisher,
    Identity,
    OuterProductSoftAbs,
    SoftAbs,
    Tridiagonal,
)
from refhmc.metrics import Diagonal as DiagonalMetric

HMC, NUTS, DHMC, Gibbs = refhmc.HMC, refhmc.NUTS, refhmc.DHMC, refhmc.Gibbs

Arrays = dict[str, np.ndarray]

SEED = 13
LENGTH = {"chains": 2, "tune": 60, "draws": 60}
OPTIONS = {**LENGTH, "random_seed": SEED, "save_warmup": True, "raw": True, "progressbar": False}
if "warmup" in inspect.signature(refhmc.sample).parameters:  # the commit that is compared may know no other than Stan's
    OPTIONS["warmup"] = "stan"


# ------------------------------------------------------------------------------------------------- the users' models


def quartic() -> refhmc.Model:
    """L = -(w_0 x^2 + w_1 y^2)/2 - x^2 y^2/2, compiled; the trace follows from the tensor of third derivatives."""

    def log_density(q, w):
        return -0.5 * (w[0] * q[0] ** 2 + w[1] * q[1] ** 2 + (q[0] * q[1]) ** 2)

    def gradient(q, w):
        return np.array([-w[0] * q[0] - q[0] * q[1] ** 2, -w[1] * q[1] - q[0] ** 2 * q[1]])

    def hessian(q, w):
        beside = -2 * q[0] * q[1]
        return np.array([[-w[0] - q[1] ** 2, beside], [beside, -w[1] - q[0] ** 2]])

    def third_derivative(q, w, out):
        out[0, 1, 1] = out[1, 0, 1] = out[1, 1, 0] = -2 * q[0]
        out[1, 0, 0] = out[0, 1, 0] = out[0, 0, 1] = -2 * q[1]

    weights = np.array([1.0, 0.3])
    return refhmc.Model(2, log_density, gradient, hessian, third_derivative, data=weights, names=["x", "y"])


def gamma_in_python() -> refhmc.Model:
    """q_i = log of a Gamma(a_i) variable, its Fisher metric diag(e^q) + 1. Numba cannot compile it; above 2.3 it says that it
    cannot be evaluated."""

    def log_density(q, shape):
        if np.max(q) > 2.3:
            raise refhmc.errors.EvaluationError("above 2.3")
        return float(np.sum(shape * q - np.exp(q) - scipy.special.gammaln(shape)))

    def gradient(q, shape):
        return shape - np.exp(q) + 0 * scipy.special.gammaln(shape)

    def fisher(q, shape):
        return np.diag(np.exp(q) + 1) + 0 * scipy.special.gammaln(1.0)

    def fisher_derivative(q, shape):
        derivative = np.zeros((3, 3, 3))
        derivative[range(3), range(3), range(3)] = np.exp(q)
        return derivative + 0 * scipy.special.gammaln(1.0)

    options = {"names": ["a", "b[0]", "b[1]"], "initial": [0.1, 0.2, 0.3], "data": np.array([1.0, 2.0, 3.0])}
    return refhmc.Model(3, log_density, gradient, fisher=fisher, fisher_derivative=fisher_derivative, **options)


def animals(with_change: bool) -> refhmc.Model:
    """20 caught of N animals, each with probability logistic(q_0); N ~ 1/N embedded by its logarithm. The change is by hand, or
    follows from the density."""
    embedding = refhmc.Embedding(range(20, 400), a="log n")
    to_integer, log_width = embedding.to_integer, embedding.log_width

    @numba.njit
    def joint(s, x, y):
        n = to_integer(x)
        if n < 20 or n >= 400:
            return -np.inf
        log_choose = math.lgamma(n + 1) - math.lgamma(n - y + 1)
        return -np.log(n) + log_choose + (y + 1) * s - (n + 2) * np.log1p(np.exp(s)) - log_width(n)

    def log_density(q, y):
        return joint(q[0], q[1], y)

    def gradient(q, y):
        return np.array([y + 1 - (to_integer(q[1]) + 2) / (1 + np.exp(-q[0])), 0.0])

    def log_density_change(q, y, j, new_value):
        return joint(q[0], new_value, y) - joint(q[0], q[1], y)

    options = {"data": 20, "discontinuous": [1], "initial": [0.0, embedding.embed(40)], "names": ["s", "N"]}
    change = {"log_density_change": log_density_change} if with_change else {}
    return refhmc.Model(2, log_density, gradient, **options, **change)


def logistic_growth() -> refhmc.Model:
    """dx/dt = r x (1 - x/K), theta = (r, K), by sensitivities."""

    def rhs(t, x, theta):
        return np.array([theta[0] * x[0] * (1 - x[0] / theta[1])])

    def jacobian(t, x, theta):
        x, r, K = x[0], theta[0], theta[1]
        return np.array([[r - 2 * r * x / K, x - x * x / K, r * x * x / K**2]])

    def hessian(t, x, theta, out):
        x, r, K = x[0], theta[0], theta[1]
        out[0, 0, 0] = -2 * r / K
        out[0, 0, 1] = out[0, 1, 0] = 1 - 2 * x / K
        out[0, 0, 2] = out[0, 2, 0] = 2 * r * x / K**2
        out[0, 1, 2] = out[0, 2, 1] = x * x / K**2
        out[0, 2, 2] = -2 * r * x * x / K**3

    y = np.array([[0.12], [0.28], [0.52], [0.71], [0.93]])
    options = {"initial_state": [0.1], "times": range(5), "y": y, "sigma": 0.05, "prior_mean": [1, 1]}
    return models.ODE(rhs, jacobian, hessian, **options)


def normal(dim: int) -> refhmc.Model:
    """Standard deviations 1, ..., dim, neighbours correlated by 0.4."""
    scale = np.arange(1.0, dim + 1)
    distance = np.abs(np.subtract.outer(np.arange(dim), np.arange(dim)))
    return models.Gaussian(
        np.linspace(-1, 1, dim), np.where(distance == 1, 0.4, distance == 0) * np.outer(scale, scale)
    )


# --------------------------------------------------------------------------------------------------------- the runs


def sampled() -> dict[str, Callable[[], tuple]]:
    """Name -> (model, kernel) or (model, kernel, more options of ``sample``)."""
    volatility = functools.partial(models.StochasticVolatility, T=30)
    bands = {"diagonal": np.linspace(1, 0.2, 5), "off_diagonal": np.full(4, -0.1)}
    covariance = np.array([[0.04, 0.01], [0.01, 0.3]])

    def hmc(step_size, n_steps, metric, integrator=None, **more):
        return HMC(step_size=step_size, n_steps=n_steps, metric=metric, integrator=integrator, **more)

    return {
        # Euclidean
        "hmc gaussian identity jitters": lambda: (
            normal(5),
            hmc(1.1, 6, Identity(), step_jitter=0.3, length_jitter=0.8),
        ),
        "hmc gaussian tridiagonal": lambda: (normal(5), hmc(1.6, 4, Tridiagonal(**bands), step_jitter=0.1)),
        "hmc funnel diagonal fixed": lambda: (models.Funnel(10), hmc(0.9, 8, DiagonalMetric(np.linspace(0.5, 3, 11)))),
        "hmc logistic diagonal adapted": lambda: (models.Heart(), HMC(trajectory_length=1.2)),
        "hmc eight schools dense adapted": lambda: (
            models.EightSchools(),
            HMC(trajectory_length=math.pi / 2, metric=Dense(), length_jitter=0.5),
        ),
        "hmc centred schools diagonal": lambda: (models.EightSchools(centered=True), HMC(n_steps=7)),
        "hmc banana dense fixed yoshida": lambda: (
            models.Banana(),
            hmc(0.1, 5, Dense(covariance), Yoshida(Leapfrog())),
        ),
        "hmc user's compiled suzuki": lambda: (quartic(), hmc(1.1, 4, Identity(), Suzuki(Leapfrog()))),
        "hmc user's python": lambda: (gamma_in_python(), hmc(0.7, 4, DiagonalMetric(), step_jitter=0.2)),
        "hmc conditional": lambda: (
            refhmc.conditional(models.Funnel(4), "x", [1.5, 0, 0, 0, 0]),
            hmc(0.6, 3, DiagonalMetric()),
        ),
        "hmc over jumps": lambda: (models.ChangePoint(), hmc(0.1, 5, DiagonalMetric())),
        "nuts funnel diagonal adapted": lambda: (models.Funnel(10), NUTS()),
        "nuts logistic diagonal gradients": lambda: (
            models.Heart(),
            NUTS(metric=DiagonalMetric(learn_from="draws and gradients")),
        ),
        "nuts eight schools dense adapted": lambda: (models.EightSchools(), NUTS(metric=Dense(), target_accept=0.6)),
        "nuts gaussian tridiagonal shallow": lambda: (
            normal(5),
            NUTS(step_size=0.4, max_treedepth=2, metric=Tridiagonal(**bands)),
        ),
        "nuts volatility": lambda: (volatility(), NUTS(max_treedepth=5)),
        "nuts user's compiled yoshida": lambda: (quartic(), NUTS(integrator=Yoshida(Leapfrog()))),
        "nuts user's python": lambda: (gamma_in_python(), NUTS(max_treedepth=3)),
        "nuts funnel large steps": lambda: (models.Funnel(3), NUTS(step_size=1.7, metric=Identity())),
        # Riemannian
        "hmc banana fisher midpoint endpoint": lambda: (models.Banana(), hmc(0.22, 6, Fisher())),
        "hmc banana fisher midpoint anderson unchecked": lambda: (
            models.Banana(),
            hmc(0.25, 6, Fisher(), ImplicitMidpoint("midpoint", solver="anderson", reversibility_check=False)),
        ),
        "hmc banana fisher projected tao": lambda: (models.Banana(), hmc(0.12, 5, Fisher(), ProjectedTao(0.0))),
        "hmc banana fisher projected fixed point": lambda: (
            models.Banana(),
            hmc(0.03, 5, Fisher(), ProjectedTao(5.0, solver="fixed point", reversibility_check=False)),
        ),
        "hmc banana fisher suzuki midpoint": lambda: (
            models.Banana(),
            hmc(0.6, 3, Fisher(), Suzuki(ImplicitMidpoint("midpoint", tolerance=1e-9))),
        ),
        "hmc logistic fisher": lambda: (models.Heart(), hmc(0.35, 3, Fisher(), GeneralizedLeapfrog())),
        "hmc user's python fisher": lambda: (gamma_in_python(), hmc(0.6, 3, Fisher(), step_jitter=0.2)),
        "hmc ode fisher": lambda: (
            logistic_growth(),
            hmc(0.9, 2, Fisher()),
            {"initvals": [1.0, 1.0], "draws": 20, "tune": 20},
        ),
        "hmc funnel softabs cached": lambda: (
            models.Funnel(5),
            hmc(0.5, 6, SoftAbs(1e6), GeneralizedLeapfrog(tolerance=1e-8)),
        ),
        "hmc funnel softabs naive unchecked": lambda: (
            models.Funnel(5),
            hmc(0.3, 6, SoftAbs(10.0), GeneralizedLeapfrog("naive", solver="anderson", reversibility_check=False)),
        ),
        "hmc funnel softabs midpoint anderson": lambda: (
            models.Funnel(5),
            hmc(0.5, 6, SoftAbs(1e6), ImplicitMidpoint(solver="anderson")),
        ),
        "hmc funnel softabs explicit tao": lambda: (models.Funnel(5), hmc(0.25, 6, SoftAbs(1e6), ExplicitTao(15.0))),
        "hmc funnel diagonal softabs": lambda: (
            models.Funnel(10),
            hmc(0.35, 6, DiagonalSoftAbs(1e6), GeneralizedLeapfrog(), step_jitter=0.3, length_jitter=0.5),
        ),
        "hmc eight schools diagonal softabs": lambda: (
            models.EightSchools(),
            HMC(n_steps=3, metric=DiagonalSoftAbs(1.0), integrator=ImplicitMidpoint("midpoint")),
        ),
        "hmc banana outer product": lambda: (models.Banana(), hmc(0.15, 6, OuterProductSoftAbs())),
        "hmc funnel outer product as published": lambda: (
            models.Funnel(1),
            hmc(0.3, 6, OuterProductSoftAbs(0.5, as_published=True), GeneralizedLeapfrog()),
        ),
        "hmc banana diagonal outer product": lambda: (models.Banana(), hmc(0.15, 6, DiagonalOuterProductSoftAbs())),
        "hmc user's compiled softabs yoshida": lambda: (
            quartic(),
            hmc(0.35, 4, SoftAbs(1e6), Yoshida(GeneralizedLeapfrog("naive"))),
        ),
        "nuts banana fisher adapted": lambda: (models.Banana(), NUTS(metric=Fisher(), max_treedepth=6)),
        "nuts logistic fisher leapfrog": lambda: (
            models.Heart(),
            NUTS(step_size=0.6, max_treedepth=4, metric=Fisher(), integrator=GeneralizedLeapfrog("naive")),
        ),
        "nuts funnel softabs large steps": lambda: (
            models.Funnel(3),
            NUTS(step_size=0.6, max_treedepth=5, metric=SoftAbs(1e6), integrator=GeneralizedLeapfrog()),
        ),
        "nuts funnel diagonal softabs tao": lambda: (
            models.Funnel(3),
            NUTS(step_size=0.3, max_treedepth=4, metric=DiagonalSoftAbs(1e6), integrator=ExplicitTao(10.0)),
        ),
        # Densities that jump
        "dhmc change point": lambda: (models.ChangePoint(changes=2), DHMC()),
        "dhmc jolly-seber": lambda: (models.JollySeber(), DHMC(n_steps=6, metric=DiagonalMetric(0.3))),
        "dhmc all coordinates jump": lambda: (models.PACBayesClassifier(), DHMC(step_jitter=0.0, length_jitter=0.0)),
        "dhmc user's density": lambda: (animals(False), DHMC(step_size=0.5, n_steps=5, metric=Identity())),
        "dhmc user's change": lambda: (animals(True), DHMC(trajectory_length=2.0)),
        # Blocks
        "gibbs volatility": lambda: (
            volatility(),
            Gibbs(
                {
                    ("beta", "sigma", "phi"): hmc(0.8, 4, Fisher()),
                    "x": hmc(0.4, 8, Tridiagonal(), step_jitter=0.1),
                }
            ),
        ),
        "gibbs funnel": lambda: (
            models.Funnel(3),
            Gibbs(
                {"v": NUTS(metric=SoftAbs(1e6), max_treedepth=3), ("x[0]", "x[2]"): NUTS(metric=Dense()), (2,): HMC()}
            ),
        ),
        "gibbs jumps": lambda: (models.ChangePoint(changes=2), Gibbs({"change": DHMC(n_steps=3), "log_rate": NUTS()})),
        "gibbs user's python": lambda: (
            gamma_in_python(),
            Gibbs({"b": hmc(0.5, 2, Fisher()), "a": HMC(n_steps=2, metric=Dense())}),
        ),
    }


def arrays_of(result) -> Arrays:
    """All arrays of a result, warm-up included, and the counts among its attributes. No figure of time is in them."""
    found = {f"{group}/{name}": values for group, named in result.groups.items() for name, values in named.items()}
    counts = [name for name in result.attributes if name.startswith("n_") and name.endswith("_evaluations")]
    kept = [*counts, "step_size_searches_failed", "draws_per_chain", "exact"]
    return found | {name: np.array(result.attributes[name]) for name in kept}


def sample(make: Callable[[], tuple], **more) -> Arrays:
    model, kernel, *own = make()
    return arrays_of(refhmc.sample(model, kernel, **{**OPTIONS, **(own[0] if own else {}), **more}))


class Cut:
    """A progress callback that plays Ctrl-C once, after the first draws."""

    told = False

    def __call__(self, report) -> None:
        if not self.told and not report.finished and report.draws_done.max() > 0:
            self.told = True
            raise KeyboardInterrupt


def resumed(cut: dict[str, Any], *, cores: int) -> Arrays:
    """A run cut short by options of ``sample`` and taken up again from its folder; without any, the unbroken run."""
    kernel = HMC(n_steps=20, metric=SoftAbs(1e6), integrator=GeneralizedLeapfrog(tolerance=1e-8))
    whole = {**OPTIONS, "draws": 150, "cores": cores}
    if not cut:
        return arrays_of(refhmc.sample(models.Funnel(5), kernel, **whole))
    with tempfile.TemporaryDirectory() as folder:
        first = refhmc.sample(models.Funnel(5), kernel, **{**whole, **cut}, checkpoint=folder)
        if not first.interrupted and "draws" not in cut:
            raise RuntimeError("the run was over before it was cut: make it longer")
        return arrays_of(refhmc.sample(models.Funnel(5), kernel, **whole, checkpoint=folder))


# ---------------------------------------------------------------------- trajectories, Hamiltonians, single transitions


def point(dim: int) -> tuple[np.ndarray, np.ndarray]:
    """A position and a momentum."""
    k = np.arange(1.0, dim + 1)
    return 0.6 * np.cos(k), np.sin(2 * k + 1)


EUCLIDEAN = {
    "leapfrog": Leapfrog(),
    "yoshida": Yoshida(Leapfrog()),
    "suzuki": Suzuki(Leapfrog()),
    "midpoint": ImplicitMidpoint(),
}


def riemannian() -> Iterator[tuple[str, Any]]:
    """Every implicit integrator with each variant, solver and check; Tao's; compositions."""
    for solver in ("fixed point", "anderson"):
        for checked in (True, False):
            options = {"solver": solver, "reversibility_check": checked}
            named = f"{solver}, {'checked' if checked else 'unchecked'}"
            for variant in ("cached", "naive"):
                yield f"leapfrog {variant}, {named}", GeneralizedLeapfrog(variant, **options)
            for variant in ("endpoint", "midpoint"):
                yield f"midpoint {variant}, {named}", ImplicitMidpoint(variant, tolerance=1e-9, **options)
            yield f"projected tao, {named}", ProjectedTao(2.0, **options)
    yield "explicit tao", ExplicitTao(4.0)
    yield "yoshida", Yoshida(GeneralizedLeapfrog())
    yield "suzuki", Suzuki(ImplicitMidpoint("midpoint", max_iterations=20))


HAMILTONIANS: dict[str, Callable[[], tuple]] = {
    "identity": lambda: (models.Banana(), Identity()),
    "diagonal": lambda: (models.Funnel(3), DiagonalMetric(np.array([0.5, 1.0, 2.0, 4.0]))),
    "dense": lambda: (normal(2), Dense([[2.0, 0.3], [0.3, 1.0]])),
    "tridiagonal": lambda: (normal(5), Tridiagonal(np.linspace(2, 1, 5), np.full(4, -0.4))),
    "fisher": lambda: (models.Banana(), Fisher()),
    "fisher in python": lambda: (gamma_in_python(), Fisher()),
    "softabs": lambda: (models.Funnel(3), SoftAbs(1e6)),
    "softabs from the tensor": lambda: (quartic(), SoftAbs(3.0)),
    "diagonal softabs": lambda: (models.Funnel(3), DiagonalSoftAbs(5.0)),
    "outer product": lambda: (models.Banana(), OuterProductSoftAbs()),
    "outer product as published": lambda: (models.Funnel(1), OuterProductSoftAbs(0.5, as_published=True)),
    "diagonal outer product": lambda: (models.Banana(), DiagonalOuterProductSoftAbs()),
}
STEPS = (0.05, -0.15, 0.9)  # that succeeds, backwards, and that some solves fail at


def hamiltonian(make: Callable[[], tuple]) -> Arrays:
    """Energy, its derivatives, mass and momentum, and the trajectories of every integrator for the metric."""
    model, metric = make()
    H, (q, p) = refhmc.Hamiltonian(model, metric), point(model.dim)
    found = {"energy": H.energy(q, p), "grad_q": H.grad_q(q, p), "grad_p": H.grad_p(q, p), "mass": H.mass(q)}
    found["draw_momentum"] = H.draw_momentum(q, np.random.default_rng(SEED))
    constant = isinstance(metric, Identity | DiagonalMetric | Dense | Tridiagonal)
    for name, integrator in EUCLIDEAN.items() if constant else riemannian():
        for eps in STEPS:
            path = refhmc.integrate(H, integrator, q, p, step_size=eps, n_steps=6)
            found |= {f"{name}, step {eps}/{field}": value for field, value in path._asdict().items()}
    return {name: np.asarray(value) for name, value in found.items()}


def transitions() -> dict[str, Callable[[], tuple]]:
    """Name -> (model, kernel), single transitions on recorded randomness."""

    kernels: dict[str, Callable] = {
        "hmc": functools.partial(HMC, step_size=0.2, n_steps=5, step_jitter=0.6, length_jitter=0.4),
        "nuts": functools.partial(NUTS, step_size=0.2, max_treedepth=4),
    }

    def pair(make, kernel):
        model, metric = make()
        return model, kernel(metric=metric)

    found: dict[str, Callable[[], tuple]] = {}
    for name, make in HAMILTONIANS.items():
        for kernel_name, kernel in kernels.items():
            found[f"{kernel_name} {name}"] = functools.partial(pair, make, kernel)
    found["dhmc change point"] = lambda: (models.ChangePoint(), DHMC(step_size=0.1, n_steps=4))
    found["dhmc all coordinates jump"] = lambda: (models.PACBayesClassifier(), DHMC(step_size=0.1, n_steps=3))
    return found


def replayed(make: Callable[[], tuple], n: int = 8) -> Arrays:
    """``n`` transitions, each from where the last one ended; momenta given, made from normals, or drawn in turn."""
    model, kernel = make()
    rng = np.random.default_rng(SEED)
    q = point(model.dim)[0] if model.initial is None else model.initial
    found: Arrays = {}
    for k in range(n):
        source: dict[str, Any]
        if k % 3 < 2:
            source = {("momentum", "normals")[k % 3]: rng.standard_normal(model.dim), "uniforms": rng.random(2000)}
        else:
            source = {"rng": rng}
        step = refhmc.transition(model, kernel, q, **source)
        q = step.q
        found |= {f"{k}/q": q, f"{k}/momentum": step.momentum, f"{k}/outcome": np.array(step.outcome)}
        found |= {f"{k}/{name}": np.asarray(value) for name, value in step.stats.items()}
        found[f"{k}/uniforms_used"] = np.array(step.uniforms_used)
    return found


def every_run(cores: int) -> dict[str, Callable[[], Arrays]]:
    """Name -> the run. ``cores``: threads of the chains, which must not make a difference."""
    found: dict[str, Callable[[], Arrays]] = {}
    for name, make in sampled().items():
        found[name] = functools.partial(sample, make, cores=cores)
    found["threads"] = functools.partial(
        sample, lambda: (models.Funnel(10), NUTS(metric=Dense())), chains=5, cores=3 - cores
    )
    cuts = {
        "unbroken": {},
        "resumed after a cut by draws": {"draws": 40},
        "resumed after a cut by Ctrl-C": {"progressbar": Cut()},
        "resumed after a cut by max_seconds": {"max_seconds": 0.02},
    }
    for name, cut in cuts.items():
        found[name] = functools.partial(resumed, cut, cores=cores)
    for name, make in HAMILTONIANS.items():
        found[f"hamiltonian {name}"] = functools.partial(hamiltonian, make)
    for name, make in transitions().items():
        found[f"transition {name}"] = functools.partial(replayed, make)
    return found


# --------------------------------------------------------------------------------------------------------- the hashes


def hash_of(name: str, array: np.ndarray) -> str:
    """SHA-256 over name, type, shape and bytes. Every NaN counts as the same one: its sign and payload mean nothing."""
    array = np.array(array, order="C")
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    head = f"{name}\n{array.dtype.str}\n{array.shape}\n".encode()
    return hashlib.sha256(head + array.tobytes()).hexdigest()


def current_name(name: str) -> str:
    """Return the present name of an array whose statistic an older commit called otherwise."""
    return name.replace("n_trace_evaluations", "n_contraction_evaluations")


def outcomes(arrays: Arrays) -> dict[str, int]:
    """How often transitions ended how, warm-up included, or steps of trajectories gave no state."""
    codes = [
        a.ravel() for name, a in arrays.items() if name.split("/")[-1].startswith("outcome") and a.dtype.kind == "i"
    ]
    words = [np.array(OUTCOMES)[a] for a in codes]
    words += [a.ravel() for name, a in arrays.items() if name.endswith("/outcome") and a.dtype.kind == "U"]
    words += [np.where(a, "solved", "no state") for name, a in arrays.items() if name.endswith("/converged")]
    names, counts = np.unique(np.concatenate([*words, np.zeros(0, "U1")]), return_counts=True)
    return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


def pin(run: Callable[[], Arrays]) -> dict[str, Any]:
    """``sha256`` of a run, the hash of each of its arrays, ``outcomes``, seconds; ``error`` for one that raises."""
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            arrays = {current_name(name): array for name, array in run().items()}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    parts = {name: hash_of(name, array) for name, array in sorted(arrays.items())}
    whole = hashlib.sha256("\n".join(parts.values()).encode()).hexdigest()
    return {"sha256": whole, "seconds": time.perf_counter() - begin, "outcomes": outcomes(arrays), "arrays": parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="the file of JSON (default: standard output)")
    parser.add_argument("--only", default="", help="runs whose name has this word")
    parser.add_argument("--cores", type=int, choices=(1, 2), default=1, help="threads of the chains (default 1)")
    arguments = parser.parse_args()
    about = {
        "refhmc": str(pathlib.Path(refhmc.__file__).resolve().parent.parent),
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "processor": llvmlite.binding.get_host_cpu_name(),
    }
    runs = {}
    for name, run in every_run(arguments.cores).items():
        if arguments.only in name:
            runs[name] = pin(run)
            told = runs[name].get("error") or f"{runs[name]['seconds']:.2f} s"
            print(f"{name}: {told}", file=sys.stderr, flush=True)
    text = json.dumps({"about": about, "runs": runs}, indent=1) + "\n"
    if arguments.out is None:
        sys.stdout.write(text)
    else:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
