"""Pathfinder's factors against dense BFGS, its normal against closed forms, its path if densities end or have no mode."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import refhmc
from refhmc.adaptation import pathfinder as text
from refhmc.adaptation.pathfinder import (
    FLATTER,
    SUFFICIENT,
    InverseHessian,
    Iterate,
    climb,
    factors,
    next_diagonal,
    normal_at,
    path,
    pathfinder,
)
from tests.helpers.sweeps import swept


def random_pairs(rng, d: int, m: int, condition: float) -> deque:
    """Steps with approximate gradient differences of a quadratic, so that no matrix fits them all."""
    U = np.linalg.qr(rng.normal(size=(d, d)))[0]
    A = U * np.logspace(0, np.log10(condition), d) @ U.T
    steps = rng.normal(size=(m, d)) * np.logspace(0, -3, m)[:, None]
    return deque((s, A @ s * (1 + 0.3 * rng.random())) for s in steps)


def dense(sigma: InverseHessian) -> np.ndarray:
    return np.stack([sigma.product(e) for e in np.eye(len(sigma.alpha))], axis=1)


@pytest.mark.parametrize(("d", "m"), [(1, 1), (3, 0), (3, 6), (12, 6), (40, 3)])
@pytest.mark.parametrize("condition", [1.0, 1e4])
def test_the_factors_are_the_dense_recursion(d, m, condition):
    rng = np.random.default_rng(d + m)
    pairs, alpha = random_pairs(rng, d, m, condition), rng.uniform(0.1, 10.0, d)
    H = np.diag(alpha)
    for s, y in pairs:
        rho = 1 / (y @ s)
        V = np.eye(d) - rho * np.outer(y, s)
        H = V.T @ H @ V + rho * np.outer(s, s)
    np.testing.assert_allclose(dense(factors(alpha, pairs)), H, rtol=1e-8, atol=1e-8 * np.abs(H).max())


@pytest.mark.parametrize("d", [1, 2, 9])
def test_the_diagonal_is_that_of_a_dense_update(d):
    rng = np.random.default_rng(d)
    alpha, ((s, y),) = rng.uniform(0.1, 10.0, d), random_pairs(rng, d, 1, 50.0)
    B = np.diag(1 / alpha) * (y @ (alpha * y)) / (y @ s)  # fits y: y' B^-1 y = y's
    assert y @ np.linalg.solve(B, y) == pytest.approx(y @ s)
    updated = B - np.outer(B @ s, B @ s) / (s @ B @ s) + np.outer(y, y) / (y @ s)
    np.testing.assert_allclose(next_diagonal(alpha, s, y), 1 / np.diag(updated), rtol=1e-10)


@pytest.mark.parametrize(("d", "m"), [(2, 6), (12, 6), (30, 4), (5, 0)])
def test_draws_and_density_are_those_of_the_normal(d, m):
    rng = np.random.default_rng(d)
    pairs, alpha, q, gradient = random_pairs(rng, d, m, 30.0), rng.uniform(0.1, 10.0, d), *rng.normal(size=(2, d))
    sigma = factors(alpha, pairs)
    normal = normal_at(Iterate(q, 0.0, gradient, sigma))
    assert normal is not None
    covariance = dense(sigma)
    mean = q + covariance @ gradient
    np.testing.assert_allclose(normal.mean, mean, rtol=1e-10, atol=1e-10)
    T = (normal.draw(np.eye(d)) - mean).T  # a draw is mean + T z
    np.testing.assert_allclose(T @ T.T, covariance, rtol=1e-7, atol=1e-9 * np.abs(covariance).max())
    z = rng.standard_normal((4, d))
    np.testing.assert_allclose(normal.draw(z), mean + z @ T.T, rtol=1e-9, atol=1e-9)
    expected = scipy.stats.multivariate_normal(mean, covariance, allow_singular=True).logpdf(normal.draw(z))
    np.testing.assert_allclose(normal.log_density(z), expected, rtol=1e-7)


class Gaussian:
    """d = 20, eigenvalues of the covariance from 0.01 to 100, rotated; log Z in closed form."""

    d = 20

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        U, variances = np.linalg.qr(self.rng.normal(size=(self.d, self.d)))[0], np.logspace(-2, 2, self.d)
        self.precision, self.mean = U / variances @ U.T, 5 * self.rng.normal(size=self.d)
        self.log_Z = 0.5 * float(np.sum(np.log(2 * math.pi * variances)))

    def log_density(self, q):
        return -0.5 * (q - self.mean) @ self.precision @ (q - self.mean)

    def both(self, q):
        return self.log_density(q), -self.precision @ (q - self.mean)

    def found(self):
        return pathfinder(self.log_density, self.both, self.rng.uniform(-2, 2, self.d), self.rng)

    def distance(self, normal) -> float:
        """Return the distance of the means, in standard deviations along their difference."""
        error = normal.mean - self.mean
        return float(np.sqrt(error @ self.precision @ error))

    def divergence(self, normal) -> float:
        """KL(normal || density), in closed form."""
        T = (normal.draw(np.eye(self.d)) - normal.mean).T
        product = self.precision @ T @ T.T
        return 0.5 * (np.trace(product) - self.d + self.distance(normal) ** 2 - np.linalg.slogdet(product)[1])


@pytest.mark.parametrize("seed", range(4))
def test_on_a_normal_the_elbo_is_log_z_less_the_divergence(seed):
    target = Gaussian(seed)
    found = target.found()
    assert found.normal is not None
    z = target.rng.standard_normal((4000, target.d))
    elbos = [target.log_density(q) for q in found.normal.draw(z)] - found.normal.log_density(z)
    error = np.std(elbos) / math.sqrt(len(z))
    # Five standard errors in four runs: a false alarm in 2e-6, were the mean of the draws normal.
    assert abs(np.mean(elbos) - (target.log_Z - target.divergence(found.normal))) < 5 * error
    assert target.distance(found.normal) < 1.0  # a typical draw of the density is at 4.5


@pytest.mark.parametrize("seed", range(4))
def test_with_all_of_the_path_it_is_near_log_z(seed, monkeypatch):
    """With as many pairs as dimensions the normal is the density, as well as the path has learned it."""
    monkeypatch.setattr(text, "HISTORY", 40)
    target = Gaussian(seed)
    found = target.found()
    assert found.normal is not None
    assert target.distance(found.normal) < 0.05
    assert target.divergence(found.normal) < 3.0
    assert abs(found.elbo - target.log_Z) < 4.0


def test_one_path_of_a_normal_that_is_not_turned_is_exact_in_it():
    """Equal scales are learned from one step: the normal is the density, each ELBO log Z, whatever the draws."""
    mean, sd, d = 1e3, 0.1, 10

    def both(q):
        return -0.5 * np.sum(((q - mean) / sd) ** 2), (mean - q) / sd**2

    found = pathfinder(lambda q: both(q)[0], both, np.full(d, -1.5), np.random.default_rng(1))
    assert found.normal is not None
    np.testing.assert_allclose(found.normal.mean, mean, rtol=1e-9)
    assert found.elbo == pytest.approx(d * math.log(sd * math.sqrt(2 * math.pi)), abs=1e-3)


@pytest.mark.parametrize("make", [swept(refhmc.models.EightSchools), swept(refhmc.models.GARCH), refhmc.models.Banana])
def test_steps_meet_their_conditions_and_end_at_a_mode(make):
    model = make()
    q = np.random.default_rng(3).uniform(-2, 2, model.dim)
    value, gradient = model.core.value_and_gradient(q)
    sigma = factors(np.ones(model.dim), deque())
    for iterate in path(model.core.value_and_gradient, q):
        step = iterate.q - q
        along = sigma.product(gradient)
        t = float(step @ along / (along @ along))
        np.testing.assert_allclose(step, t * along, rtol=1e-6, atol=1e-10)
        assert iterate.value >= value + SUFFICIENT * t * (gradient @ along) * (1 - 1e-9)
        assert iterate.gradient @ along <= FLATTER * (gradient @ along)
        q, value, gradient, sigma = iterate
    peer = scipy.optimize.minimize(
        lambda q: -model.log_density(q), q, jac=lambda q: -model.gradient(q), method="BFGS", options={"gtol": 1e-7}
    )
    assert value == pytest.approx(-peer.fun, abs=1e-5 * max(1, abs(peer.fun)))


@pytest.mark.parametrize("beyond", [-np.inf, np.nan])
def test_where_a_support_ends_the_path_stays_inside(beyond):
    """Independent gamma variables, shape 4 and rate 50, from where the first step leads out."""

    def both(q):
        if np.any(q <= 0):
            return beyond, np.full(2, np.nan)
        return float(np.sum(3 * np.log(q) - 50 * q)), 3 / q - 50

    iterates = list(path(both, np.array([1.9, 0.5])))
    assert all(np.all(each.q > 0) for each in iterates)
    np.testing.assert_allclose(iterates[-1].q, 3 / 50, rtol=1e-3)


def test_what_has_no_climb_and_what_has_no_elbo_say_so():
    rng = np.random.default_rng(1)
    flat = pathfinder(lambda q: 0.0, lambda q: (0.0, np.zeros(2)), np.ones(2), rng)
    assert flat == (None, -math.inf, 0, "its path has no step that climbs")
    downhill = climb(lambda q: (-q[0], np.array([1.0])), np.zeros(1), 0.0, np.ones(1), np.ones(1), 1.0)
    assert downhill is None  # the gradient is a lie
    nowhere = pathfinder(lambda q: -np.inf, lambda q: (-q @ q, -2 * q), np.ones(2), rng)
    assert nowhere.normal is None
    assert "has a finite ELBO" in nowhere.why


def test_a_density_without_a_mode_is_left_soon():
    """Along (0, -t) this one rises for ever, as a funnel does for long."""

    def both(q):
        return -0.5 * q[0] ** 2 * np.exp(-q[1]) - 0.5 * q[1], np.array(
            [-q[0] * np.exp(-q[1]), 0.5 * q[0] ** 2 * np.exp(-q[1]) - 0.5]
        )

    found = pathfinder(lambda q: both(q)[0], both, np.array([1.0, 1.0]), np.random.default_rng(1))
    assert found.iterates < 200
