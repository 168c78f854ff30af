"""Properties of the steps on arrays, at many places: volume and symplectic form, reverse step, order of the energy error.

Jacobians are differences of the step itself, all of a batch in one call; the bound is that of the differences, 1e-6 of their
size. Hypothesis draws the places, the step sizes and the metric's parameter. A step that does not converge is left out, and
counted.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refhmc
from refhmc.integrators import (
    ExplicitTao,
    GaussianSplit,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    ProjectedTao,
    RandomizedSplit,
    Suzuki,
    SymmetricSplit,
    Yoshida,
)
from refhmc.metrics import Dense, DiagonalSoftAbs, Fisher, Identity, OuterProductSoftAbs, SoftAbs
from refhmc.numerics import batched
from tests.helpers.sweeps import representatives

RNG = np.random.default_rng(3)
REGRESSION = refhmc.models.LogisticRegression(RNG.normal(size=(40, 3)), RNG.integers(0, 2, 40))
MODELS = {
    "funnel": refhmc.models.Funnel(2),
    "banana": refhmc.models.Banana(),
    "regression": REGRESSION,
    "parts": REGRESSION.split(4),
}
SOLVE = functools.partial(batched.fixed_point, tolerance=1e-13, max_iterations=200)
J = np.linalg.inv(np.cov(RNG.normal(size=(3, 9))))
CASES = {
    "leapfrog": ("funnel", lambda a: Dense(np.eye(3) + a * 0.2), Leapfrog()),
    "yoshida": ("regression", lambda a: Identity(), Yoshida(Leapfrog())),
    "generalised": ("funnel", lambda a: SoftAbs(alpha=a), GeneralizedLeapfrog()),
    "generalised fisher": ("banana", lambda a: Fisher(), GeneralizedLeapfrog()),
    "midpoint": ("funnel", lambda a: DiagonalSoftAbs(alpha=a), ImplicitMidpoint()),
    "midpoint's midpoint": ("banana", lambda a: Fisher(), ImplicitMidpoint(variant="midpoint")),
    "midpoint, outer": ("funnel", lambda a: OuterProductSoftAbs(alpha=0.1 * a), ImplicitMidpoint()),
    "suzuki": ("funnel", lambda a: SoftAbs(alpha=a), Suzuki(ImplicitMidpoint())),
    "projected": ("funnel", lambda a: SoftAbs(alpha=a), ProjectedTao(omega=0.5)),
    "two copies": ("funnel", lambda a: SoftAbs(alpha=a), ExplicitTao(omega=2.0)),
    "symmetric split": ("parts", lambda a: Identity(), SymmetricSplit()),
    "one order": ("parts", lambda a: Identity(), RandomizedSplit(one_order=(2, 0, 3, 1))),
    "gaussian split": ("regression", lambda a: Identity(), GaussianSplit(np.zeros(3), J)),
}
KEPT = ("leapfrog", "generalised", "midpoint's midpoint", "two copies", "symmetric split", "one order")
ORDERS = {name: getattr(case[2], "order", 2) for name, case in CASES.items()}


def made(name: str, alpha: float):
    """Hamiltonian and step with solves to 1e-13."""
    key, metric, integrator = CASES[name]
    base = getattr(integrator, "base", integrator)
    step = base.on_arrays()
    if base.implicit:
        step = functools.partial(step, solve=SOLVE)
    if hasattr(integrator, "parts") and base is not integrator:
        step = refhmc.array_api.composed(step, integrator.parts)
    return refhmc.array_api.hamiltonian(MODELS[key], metric(alpha)), step


def begun(H, name: str, seed: int, n: int) -> np.ndarray:
    """States (n, k d) of moderate size; two copies a little apart."""
    rng, d = np.random.default_rng(seed), H.model.dim
    q = 0.5 * rng.normal(size=(n, d))
    with np.errstate(all="ignore"):
        p = H.draw_momentum(q, rng.normal(size=(n, d)))
    z = np.concatenate([q, p], axis=-1)
    return np.concatenate([z, z + 1e-3], axis=-1) if name == "two copies" else z


def moved(H, step, z: np.ndarray, eps) -> np.ndarray:
    parts = np.split(z, z.shape[-1] // H.model.dim, axis=-1)
    with np.errstate(all="ignore"):
        return np.concatenate(step(H, *parts, eps), axis=-1)


def jacobians(H, step, z: np.ndarray, eps: float) -> np.ndarray:
    """[..., j, i] = dz'_i / dz_j, fourth-order differences"""
    h = 1e-3 * np.eye(z.shape[-1])
    f = [moved(H, step, z[..., None, :] + k * h, eps) for k in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / 12e-3


SEEDS, STEPS, ALPHAS = st.integers(0, 10**6), st.floats(0.01, 0.05), st.floats(0.5, 4.0)


@pytest.mark.parametrize("name", representatives(CASES, KEPT))
@settings(max_examples=4, deadline=None)
@given(seed=SEEDS, eps=STEPS, alpha=ALPHAS)
def test_steps_are_symplectic(name, seed, eps, alpha):
    """M' S M = S, of two copies with the form of both."""
    H, step = made(name, alpha)
    z = begun(H, name, seed, 12)
    M = jacobians(H, step, z, eps)
    d, copies = H.model.dim, z.shape[-1] // (2 * H.model.dim)
    S = np.kron(np.eye(copies), np.kron([[0.0, 1.0], [-1.0, 0.0]], np.eye(d)))
    solved = np.isfinite(M).all(axis=(-2, -1))
    assert solved.mean() > 0.6
    M = M[solved]
    error = np.abs(M @ S @ np.swapaxes(M, -2, -1) - S).max(axis=(-2, -1))
    size = np.abs(M).max(axis=(-2, -1)) ** 2
    # Differences lose where the step bends within 2e-3; the narrow places of the funnel do.
    assert np.quantile(error / size, 0.75) <= 1e-6


REVERSIBLE = [name for name in CASES if name != "one order"]


@pytest.mark.parametrize("name", representatives(CASES, KEPT))
@settings(max_examples=4, deadline=None)
@given(seed=SEEDS, eps=STEPS, alpha=ALPHAS)
def test_a_step_back_returns(name, seed, eps, alpha):
    """With -eps, and with p -> -p and eps, except for the split in one order, whose inverse is another map."""
    H, step = made(name, alpha)
    z = begun(H, name, seed, 30)
    end = moved(H, step, z, eps)
    solved = np.isfinite(end).all(axis=-1)
    assert solved.mean() > 0.6
    bound = 1e-9 * (1 + np.abs(z).max(axis=-1))[solved]
    assert np.quantile(np.abs(moved(H, step, end, -eps) - z).max(axis=-1)[solved] / bound, 0.9) <= 1
    flip = np.tile(np.repeat([1.0, -1.0], H.model.dim), z.shape[-1] // (2 * H.model.dim))
    mirrored = flip * moved(H, step, flip * end, eps)
    far = np.abs(mirrored - z).max(axis=-1)[solved] / bound
    assert (np.quantile(far, 0.9) <= 1) == (name in REVERSIBLE)


@pytest.mark.parametrize("name", representatives(CASES, KEPT))
def test_the_energy_error_is_of_its_order(name):
    """Over a trajectory of length 0.4 with steps eps and eps / 2: 2^order times smaller, in the median of 40 chains, within a
    factor 1.5."""
    H, step = made(name, 1.0)
    z, errors = begun(H, name, 1, 40), []
    d = H.model.dim
    with np.errstate(all="ignore"):
        if name == "two copies":
            z = np.concatenate([z[:, : 2 * d]] * 2, axis=-1)
        start = H.energy(z[:, :d], z[:, d : 2 * d])
        for n in (20, 40):
            end = z
            for _ in range(n):
                end = moved(H, step, end, 0.4 / n)
            errors.append(np.abs(H.energy(end[:, :d], end[:, d : 2 * d]) - start))
    ratio = np.nanmedian(errors[0] / np.maximum(errors[1], 1e-15))
    assert 2 ** ORDERS[name] / 1.5 <= ratio <= 1.5 * 2 ** ORDERS[name], ratio
