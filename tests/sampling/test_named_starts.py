"""Starts given by name in constrained values: the position yields them, and invalid values are rejected by name."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.errors import InitError, ShapeError
from refhmc.sampling.chains.initialization import given_starts

MODELS = {
    "eight schools": refhmc.models.EightSchools,
    "funnel": lambda: refhmc.models.Funnel(3),
    "stochastic volatility": lambda: refhmc.models.StochasticVolatility(np.array([0.3, -1.2, 0.5, 0.1])),
    "mixture": refhmc.models.GaussianMixture,
    "garch": refhmc.models.GARCH,
    "fitzhugh-nagumo": refhmc.models.FitzHughNagumo,
}


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_position_is_that_of_the_values(name):
    model, rng = MODELS[name](), np.random.default_rng(1)
    q = rng.uniform(-1.5, 1.5, (3, model.dim))
    values = [{key: np.array(value) for key, value in model.constrain(row).items()} for row in q]
    np.testing.assert_allclose(given_starts(model, values, 3), q, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(given_starts(model, values[0], 2), q[[0, 0]], rtol=1e-6, atol=1e-6)


def scales() -> refhmc.Model:
    """A location far from zero, a positive scale of any size, a share between zero and one."""

    def log_density(q, data):
        return -0.5 * np.sum(q * q)

    def constrain(q):
        return {"mu": q[..., 0], "sigma": np.exp(q[..., 1]), "p": 1 / (1 + np.exp(-q[..., 2]))}

    return refhmc.Model(3, log_density, lambda q, data: -q, constrain=constrain, name="scales")


@pytest.mark.parametrize("sigma", [1e-9, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("p", [1e-4, 0.5, 0.9999])
def test_values_of_any_size_are_reached(sigma, p):
    start = given_starts(scales(), {"p": p, "mu": 1980.0, "sigma": sigma}, 1)[0]
    np.testing.assert_allclose(start, [1980.0, np.log(sigma), np.log(p / (1 - p))], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"mu": 1.0, "tau": 2.0}, ShapeError, "initvals.*'tau'.*mu, sigma, p"),
        ({"mu": [1.0, 2.0]}, ShapeError, r"initvals: mu must .*\(\).*got \(2,\)"),
        ({"mu": "x"}, ShapeError, "initvals: mu must"),
        ({"mu": np.nan}, InitError, "initvals: mu must .*got nan"),
        ({"mu": 0.0, "sigma": -1.0, "p": 0.5}, InitError, "initvals: sigma = -1 "),
        ({"mu": 0.0, "sigma": 1.0, "p": 1.5}, InitError, "initvals: p = 1.5 "),
        ({"mu": 0.0, "sigma": 1.0}, InitError, r"initvals: mu, sigma .*\[2\].*mu, sigma, p"),
        ({}, InitError, "initvals: .*mu, sigma, p"),
        ([{"mu": 0.0}] * 3, ShapeError, "initvals.*2 chains.*got 3"),
    ],
)
def test_invalid_named_starts_are_rejected(values, error, words):
    with pytest.raises(error, match=words):
        given_starts(scales(), values, 2)


def test_a_whole_number_is_named():
    model = refhmc.models.JollySeber()
    values = model.constrain(model.initial)
    with pytest.raises(InitError, match="initvals.*U .*Give the unconstrained position"):
        given_starts(model, values, 2)


def test_a_run_starts_there():
    model, values = refhmc.models.Funnel(2), {"v": 1.5, "x": [0.25, -0.5]}
    options = {"draws": 5, "tune": 0, "chains": 2, "random_seed": 1, "raw": True, "progressbar": False}
    kernel = refhmc.HMC(step_size=1e-8, n_steps=1)
    for backend in ("numba", "arrays"):
        result = refhmc.sample(model, kernel, initvals=values, backend=backend, **options)
        np.testing.assert_allclose(result.draws[:, 0], [[1.5, 0.25, -0.5]] * 2, rtol=1e-6)
