"""Every metric at random places of random models: what must hold of H = -L + 1/2 p'G^-1 p + 1/2 log det G, whatever G.

    G = G' > 0;     dH/dp = G^-1 p;     H(q, p) - H(q, 0) = 1/2 p'G^-1 p;     H(q, 0) + L = 1/2 log det G
    p = R z with R R' = G: exactly, from the columns R e_k, and not by Monte Carlo
    dH/dq along u: extrapolated differences of H, with their measured error
    H(Qq, Qp) = H(q, p) of the rotated target: for any rotation Q, or for permutations where the metric is diagonal

G itself comes from its definition, by NumPy's eigenvalues of the model's Hessian; test_metrics.py has the same in many digits.
The tolerances are 1e-10 in units of sqrt(G_ii), where the condition number of G, in those units, is below 1e6.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

import refhmc
from refhmc.metrics import (
    Dense,
    Diagonal,
    DiagonalOuterProductSoftAbs,
    DiagonalSoftAbs,
    Fisher,
    Identity,
    OuterProductSoftAbs,
    SoftAbs,
    Tridiagonal,
)
from refhmc.numerics import differences
from tests.helpers.random_cases import cases
from tests.helpers.riemannian_cases import model_of

SEEDS = st.integers(0, 2**32 - 1)
ALPHAS = st.floats(-2, 6).map(lambda e: 10.0**e)
MODELS = ["funnel-3", "banana", "gaussian-3", "logistic", "eight-schools", "garch", "gaussian-mixture"]
EUCLIDEAN = ("identity", "diagonal", "dense", "tridiagonal")
DEPENDENT = ("fisher", "softabs", "diagonal-softabs", "outer", "diagonal-outer")
RELATIVE = 1e-10


def spread(rng, d: int) -> np.ndarray:
    """A positive definite matrix of moderate condition."""
    A = rng.standard_normal((d, d + 2))
    return A @ A.T / d + 0.1 * np.eye(d)


def tridiagonal_of(rng, d: int) -> Tridiagonal:
    beside = rng.uniform(-1, 1, d - 1)
    most = np.abs(np.append(beside, 0)) + np.abs(np.append(0, beside))
    return Tridiagonal(most + rng.uniform(0.1, 2, d), beside)


def metric_of(name: str, alpha: float, rng, d: int):
    """The metric; the outer products' alpha is made smaller below, where the gradient is known."""
    return {
        "identity": lambda: Identity(),
        "diagonal": lambda: Diagonal(rng.uniform(0.1, 3, d)),
        "dense": lambda: Dense(spread(rng, d)),
        "tridiagonal": lambda: tridiagonal_of(rng, d),
        "fisher": lambda: Fisher(),
        "softabs": lambda: SoftAbs(alpha=alpha),
        "diagonal-softabs": lambda: DiagonalSoftAbs(alpha=alpha),
        "outer": lambda: OuterProductSoftAbs(alpha=alpha),
        "diagonal-outer": lambda: DiagonalOuterProductSoftAbs(alpha=alpha),
    }[name]()


def soft(x, alpha):
    """x coth(alpha x)"""
    t = np.abs(alpha * x)
    return np.where(t > 1e-6, np.abs(x) / np.tanh(np.where(t > 1e-6, t, 1.0)), (1 + t * t / 3) / alpha)


def by_definition(metric, model, q) -> np.ndarray:
    if isinstance(metric, Tridiagonal):
        bands = metric.bands(model.dim)
        return np.diag(bands[0]) + np.diag(bands[1, :-1], 1) + np.diag(bands[1, :-1], -1)
    if isinstance(metric, Identity | Diagonal):
        return np.diag(1 / metric.inverse_mass(model.dim))
    if isinstance(metric, Dense):
        return np.linalg.inv(metric.inverse_mass(model.dim))
    if isinstance(metric, Fisher):
        return model.fisher(q)
    if isinstance(metric, DiagonalSoftAbs):
        return np.diag(soft(np.diag(model.hessian(q)), metric.alpha))
    g = model.gradient(q)
    if isinstance(metric, DiagonalOuterProductSoftAbs):
        return np.diag(soft(g * g, metric.alpha))
    if isinstance(metric, OuterProductSoftAbs):
        s, along = g @ g, soft(g @ g, metric.alpha)
        return np.eye(len(g)) / metric.alpha + (along - 1 / metric.alpha) * np.outer(g, g) / (s if s > 0 else 1.0)
    values, V = np.linalg.eigh(model.hessian(q))
    return (V * soft(values, metric.alpha)) @ V.T


def some_case(name: str, which: str, alpha: float, seed: int):
    """Model, Hamiltonian, q, p, G by definition and its units; assumes a moderate condition number."""
    model, rng = model_of(name), np.random.default_rng(seed)
    assume(which != "fisher" or model.has("fisher"))
    q = rng.uniform(-2, 2, model.dim)
    if which in ("outer", "diagonal-outer"):
        alpha = min(alpha, 10 / np.sum(model.gradient(q) ** 2))
    metric = metric_of(which, alpha, rng, model.dim)
    H, G = refhmc.Hamiltonian(model, metric), by_definition(metric, model, q)
    units = np.sqrt(np.diag(G))
    assume(np.linalg.cond(G / units / units[:, None]) < 1e6)
    return model, H, q, H.draw_momentum(q, rng), G, units, rng


ANY = {"name": st.sampled_from(MODELS), "alpha": ALPHAS, "seed": SEEDS}


@pytest.mark.sweep
@cases(150)
@given(which=st.sampled_from(EUCLIDEAN + DEPENDENT), **ANY)
def test_mass_velocity_energy_and_momentum_are_of_one_matrix(name, which, alpha, seed):
    model, H, q, p, G, units, rng = some_case(name, which, alpha, seed)
    d, condition = model.dim, np.linalg.cond(G / units / units[:, None])
    mass = H.mass(q)
    assert np.array_equal(mass, mass.T)
    assert np.linalg.eigvalsh(mass / units / units[:, None])[0] > 0
    np.testing.assert_allclose(mass / units / units[:, None], G / units / units[:, None], rtol=0, atol=RELATIVE)
    # The momentum: p = R z linear in z, R R' = G.
    R = np.stack([H._draw(q, unit) for unit in np.eye(d)], axis=1)
    np.testing.assert_allclose((R @ R.T) / units / units[:, None], G / units / units[:, None], rtol=0, atol=RELATIVE)
    z = rng.standard_normal(d)
    np.testing.assert_allclose(H._draw(q, z) / units, R @ z / units, rtol=0, atol=RELATIVE * np.abs(z).sum())
    # The velocity: G v = p.
    v = H.grad_p(q, p)
    np.testing.assert_allclose(G @ v / units, p / units, rtol=0, atol=RELATIVE * condition * np.abs(p / units).sum())
    # The energy: its kinetic part, and the log det.
    at_rest, kinetic = H.energy(q, np.zeros(d)), 0.5 * p @ v
    scale = abs(at_rest) + kinetic + abs(model.log_density(q))
    assert abs(H.energy(q, p) - at_rest - kinetic) <= RELATIVE * scale
    if which in DEPENDENT:
        half_log_det = 0.5 * np.linalg.slogdet(G).logabsdet
        assert abs(at_rest + model.log_density(q) - half_log_det) <= RELATIVE * (scale + condition * d * 1e-4)
    assert H.energy(q, -p) == H.energy(q, p)


@pytest.mark.sweep
@cases(60)
@given(which=st.sampled_from(DEPENDENT), **ANY)
def test_the_force_is_the_slope_of_the_energy(name, which, alpha, seed):
    """Along a random direction, in the metric's units; where the differences know the slope to 1e-6."""
    model, H, q, p, G, units, rng = some_case(name, which, min(alpha, 10.0), seed)
    u = rng.standard_normal(model.dim) / units
    found = differences.ridders(lambda s: np.array([H.energy(q + s * u, p)]), width=0.05, levels=7)
    assume(np.isfinite(found.value).all())
    slope = H.grad_q(q, p) @ u
    size = np.abs(H.grad_q(q, p)) @ np.abs(u) + abs(H.energy(q, p))
    assume(float(found.error) < 1e-6 * size)
    assert abs(slope - float(found.value[0])) <= 10 * float(found.error) + 1e-9 * size


# ------------------------------------------------------------------------------------------------ the target rotated


def rotated_logistic(Q: np.ndarray):
    """The logistic regression of the rows X Q': its density at Q q is that of X at q."""
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(12), rng.standard_normal((12, 2))])
    y = (rng.random(12) < 0.5).astype(float)
    return refhmc.models.LogisticRegression(X @ Q.T, y)


def rotated_gaussian(Q: np.ndarray):
    mean, covariance = np.array([1.0, -2.0, 0.5]), np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.4], [0.0, -0.4, 0.5]])
    return refhmc.models.Gaussian(Q @ mean, Q @ covariance @ Q.T)


def funnel_of_rotated_x(Q: np.ndarray):
    """The funnel is its own image, the x rotated."""
    return model_of("funnel-3")


@pytest.mark.sweep
@cases(60)
@given(
    target=st.sampled_from([rotated_logistic, rotated_gaussian, funnel_of_rotated_x]),
    which=st.sampled_from(DEPENDENT),
    alpha=st.floats(-2, 1).map(lambda e: 10.0**e),
    seed=SEEDS,
)
def test_rotations_and_permutations_change_nothing(target, which, alpha, seed):
    rng = np.random.default_rng(seed)
    diagonal = which.startswith("diagonal")
    Q = np.eye(3)[rng.permutation(3)] if diagonal else scipy.stats.special_ortho_group.rvs(3, random_state=rng)
    model, image = target(np.eye(3)), target(Q)
    if target is funnel_of_rotated_x:
        Q = np.block([[np.ones((1, 1)), np.zeros((1, 3))], [np.zeros((3, 1)), Q]])
    q = rng.uniform(-1.5, 1.5, model.dim)
    if which in ("outer", "diagonal-outer"):
        alpha = min(alpha, 10 / np.sum(model.gradient(q) ** 2))
    metric = metric_of(which, alpha, rng, model.dim)
    here, there = refhmc.Hamiltonian(model, metric), refhmc.Hamiltonian(image, metric)
    p = here.draw_momentum(q, rng)
    # Densities are known up to a constant, which the data may change.
    constant = image.log_density(Q @ q) - model.log_density(q)
    assert there.energy(Q @ q, Q @ p) + constant == pytest.approx(here.energy(q, p), rel=1e-10, abs=1e-10)
    for name in ("grad_q", "grad_p"):
        turned, straight = getattr(there, name)(Q @ q, Q @ p), Q @ getattr(here, name)(q, p)
        np.testing.assert_allclose(turned, straight, rtol=0, atol=1e-9 * (1 + np.abs(straight).max()))
    G = Q @ here.mass(q) @ Q.T
    np.testing.assert_allclose(there.mass(Q @ q), G, rtol=0, atol=1e-10 * np.abs(G).max())
