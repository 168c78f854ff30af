"""The hierarchical metric, compared with its definition in multi-precision arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refhmc
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics import Fisher, Hierarchical
from refhmc.sampling.storage.kernel_json import kernel_as_json, kernel_from_json
from tests.helpers.hierarchical_cases import (
    DIGITS,
    FISHER_MODELS,
    Definition,
    funnel_metric,
    random_metric,
    schools_metric,
)


def normal(d: int):
    return refhmc.models.Gaussian(np.zeros(d), np.eye(d))


def normal_log_density(q):
    return -mpmath.fsum(x * x for x in q) / 2


CASES = {"seed": st.integers(0, 2**32 - 1), "d": st.integers(1, 5), "K": st.integers(1, 3), "P": st.integers(0, 3)}


@settings(max_examples=25, deadline=None)
@given(**CASES, size=st.sampled_from([0.5, 5.0]))
def test_energy_velocity_and_forces_are_those_of_the_definition(seed, d, K, P, size):
    rng = np.random.default_rng(seed)
    metric = random_metric(rng, d, K, P)
    q, p = size * rng.normal(size=d), rng.normal(size=d)
    exact = Definition(metric, normal_log_density)
    H, on_arrays = refhmc.Hamiltonian(normal(d), metric), refhmc.array_api.hamiltonian(normal(d), metric)
    with mpmath.workdps(DIGITS):
        x, y = [mpmath.mpf(float(each)) for each in q], [mpmath.mpf(float(each)) for each in p]
        M = np.array([float(m) for m in exact.masses(x)])
        energy = float(exact.phi(x) + exact.kinetic(x, y))
        velocity = np.array([float(v) for v in exact.slope(lambda z: exact.kinetic(x, z), y)])
        phi = np.array([float(f) for f in exact.slope(exact.phi, x)])
        tau = np.array([float(f) for f in exact.slope(lambda z: exact.kinetic(z, y), x)])
    # Each force is a sum over children; the rounding of the exponents is relative to their size.
    size_of_exponents = 1 + np.abs(metric.exponents[2]).sum() * np.abs(q).max() + np.abs(energy)
    tolerance = {
        "rtol": 1e-14 * size_of_exponents,
        "atol": 1e-14 * size_of_exponents * (1 + np.abs(p * velocity).sum()),
    }
    np.testing.assert_array_equal(metric.levels(), exact.levels)
    np.testing.assert_allclose(np.diag(H.mass(q)), M, rtol=1e-14 * size_of_exponents)
    np.testing.assert_allclose(H.energy(q, p), energy, **tolerance)
    for v, force in ((H.grad_p(q, p), -H.grad_q(q, p)), on_arrays.velocity_and_force(q, p)):
        np.testing.assert_allclose(v, velocity, **tolerance)
        np.testing.assert_allclose(force, -phi - tau, **tolerance)
    np.testing.assert_allclose(on_arrays.potential_force(q), -phi, **tolerance)
    np.testing.assert_allclose(on_arrays.kinetic_force(q, p), -tau, **tolerance)


def test_momenta_have_the_mass_as_variance():
    H, q = refhmc.Hamiltonian(refhmc.models.Funnel(3), funnel_metric(3)), np.array([1.5, 0.1, -0.3, 0.2])
    drawn = H.draw_momentum(q, np.random.default_rng(7))
    normals = np.random.default_rng(7).standard_normal(4)
    np.testing.assert_allclose(drawn, normals * np.sqrt([1 / 9 + 1.5, *[np.exp(1.5)] * 3]), rtol=1e-15)


@pytest.mark.parametrize(
    ("model", "metric"),
    [(refhmc.models.Funnel(4), funnel_metric(4)), (refhmc.models.EightSchools(centered=True), schools_metric())],
)
def test_masses_are_the_diagonal_of_the_fisher_metric(model, metric):
    q = np.random.default_rng(2).normal(size=model.dim)
    np.testing.assert_allclose(np.diag(refhmc.Hamiltonian(model, metric).mass(q)), np.diag(model.fisher(q)), rtol=1e-14)


@pytest.mark.parametrize("model", FISHER_MODELS.values(), ids=FISHER_MODELS)
def test_declared_levels_of_a_fisher_metric_are_true(model):
    """No entry between levels, and no derivative by a coordinate of the same or a higher level, at random positions."""
    level, rng = Fisher().levels(model), np.random.default_rng(5)
    for _ in range(5):
        q = rng.normal(size=model.dim)
        G, dG = model.fisher(q), model.fisher_derivative(q)
        assert not np.any(G[level[:, None] != level])
        for i, j, k in np.argwhere(dG != 0):
            assert level[k] < level[i] == level[j]
    assert np.any(dG != 0)


def test_a_mass_that_overflows_is_a_divergence_and_not_an_error():
    metric = Hierarchical([[0.0, 0.0]], [[0, 0]], [[[0.0, 1.0]]])
    H = refhmc.Hamiltonian(normal(2), metric)
    path = refhmc.integrate(H, refhmc.integrators.BlockLeapfrog(), [700.0, 1.0], [1e3, 0.0], step_size=0.1, n_steps=3)
    assert not np.isfinite(path.energy[-1])


@pytest.mark.parametrize("metric", [schools_metric(), Hierarchical(np.zeros((1, 3)))])
def test_a_description_gives_the_metric_back(metric):
    again = kernel_from_json(kernel_as_json(refhmc.HMC(metric=metric))).metric
    for one, other in zip(metric.exponents, again.exponents, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([0.0, 1.0],), ShapeError, "shape"),
        (([[0.0, np.nan]],), MetricError, "finite"),
        (([[0.0, np.inf]],), MetricError, "finite"),
        (([[0.0, -np.inf]],), MetricError, "got none for 1"),
        (([[0.0, 0.0]], [[0, 0]]), MetricError, "both"),
        (([[0.0, 0.0]], [[0, 0, 0]], [[[0.0, 1.0]]]), ShapeError, "parents"),
        (([[0.0, 0.0]], [[0, 2]], [[[0.0, 1.0]]]), MetricError, "indices"),
        (([[0.0, 0.0]], [[0.0, 0.5]], [[[0.0, 1.0]]]), MetricError, "indices"),
        (([[0.0, 0.0]], [[0, 0]], [[[0.0, 1.0, 2.0]]]), ShapeError, "coefficients"),
        (([[0.0, 0.0]], [[0, 0]], [[[0.0, np.inf]]]), MetricError, "coefficients"),
        (([[0.0, 0.0]], [[0, 0]], [[[1.0, 1.0]]]), MetricError, "cycle"),
        (([[0.0, 0.0]], [[1, 0]], [[[1.0, 1.0]]]), MetricError, "cycle"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, error, words):
    with pytest.raises(error, match=words):
        Hierarchical(*arguments)


def test_a_metric_of_another_dimension_is_rejected():
    with pytest.raises(ShapeError, match="one column per coordinate"):
        refhmc.Hamiltonian(normal(3), funnel_metric(3))


@pytest.mark.parametrize(
    ("levels", "error"),
    [([0, 1], ShapeError), ([0.5, 1, 1], refhmc.errors.ModelError), ([-1, 0, 1], refhmc.errors.ModelError)],
)
def test_invalid_levels_of_a_model_are_rejected(levels, error):
    with pytest.raises(error, match="fisher_levels"):
        refhmc.Model(3, lambda q: -0.5 * q @ q, lambda q: -q, fisher_levels=levels)
