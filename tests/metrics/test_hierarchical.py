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
        M = np.diag([float(m) for m in exact.masses(x)])
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
    inverse = np.eye(d) + metric.low_rank(d)[0].T * (metric.low_rank(d)[1] - 1) @ metric.low_rank(d)[0]
    whole = M**0.5 @ np.linalg.inv(inverse) @ M**0.5
    np.testing.assert_allclose(H.mass(q), whole, rtol=0, atol=1e-11 * size_of_exponents * M.max())
    np.testing.assert_allclose(on_arrays.mass(q), whole, rtol=0, atol=1e-11 * size_of_exponents * M.max())
    np.testing.assert_allclose(H.energy(q, p), energy, **tolerance)
    for v, force in ((H.grad_p(q, p), -H.grad_q(q, p)), on_arrays.velocity_and_force(q, p)):
        np.testing.assert_allclose(v, velocity, **tolerance)
        np.testing.assert_allclose(force, -phi - tau, **tolerance)
    np.testing.assert_allclose(on_arrays.potential_force(q), -phi, **tolerance)
    np.testing.assert_allclose(on_arrays.kinetic_force(q, p), -tau, **tolerance)


@settings(max_examples=25, deadline=None)
@given(**CASES)
def test_momenta_have_the_mass_as_covariance(seed, d, K, P):
    """A p = L z with L L' = M: the columns of L are the momenta of unit vectors."""
    rng = np.random.default_rng(seed)
    metric, q = random_metric(rng, d, K, P), rng.normal(size=d)
    H, on_arrays = refhmc.Hamiltonian(normal(d), metric), refhmc.array_api.hamiltonian(normal(d), metric)
    L = np.array([H._draw(q, row) for row in np.eye(d)])
    np.testing.assert_allclose(L.T @ L, H.mass(q), rtol=0, atol=1e-11 * np.abs(H.mass(q)).max())
    np.testing.assert_allclose(
        on_arrays.draw_momentum(np.tile(q, (d, 1)), np.eye(d)), L, rtol=0, atol=1e-12 * np.abs(L).max()
    )


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


METRICS = [
    schools_metric(),
    Hierarchical(np.zeros((1, 3))),
    Hierarchical(np.zeros((1, 3)), directions=[[0.6, 0.8, 0.0]], eigenvalues=[3.0]),
]


@pytest.mark.parametrize("metric", METRICS)
def test_a_description_gives_the_metric_back(metric):
    again = kernel_from_json(kernel_as_json(refhmc.HMC(metric=metric))).metric
    for one, other in zip(metric.exponents, again.exponents, strict=True):
        assert np.array_equal(one, other)
    for one, other in zip(metric.low_rank(3), again.low_rank(3), strict=True) if metric.directions is not None else ():
        assert np.array_equal(one, other)


def test_a_description_has_the_blocks():
    for blocks in (None, [["v"], ["x", "y"]]):
        kernel = refhmc.NUTS(metric=Hierarchical(blocks=blocks))
        assert kernel_from_json(kernel_as_json(kernel)).metric.blocks == blocks


@pytest.mark.parametrize("metric", METRICS)
def test_rows_give_the_metric_back(metric):
    vecs, mats = metric.stacks(normal(np.shape(metric.constants)[1]), False)
    again = metric.from_rows(vecs, mats)
    for one, other in zip(metric.exponents, again.exponents, strict=True):
        assert np.array_equal(one, other)
    for one, other in zip(metric.low_rank(vecs.shape[1]), again.low_rank(vecs.shape[1]), strict=True):
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
        ((None, [[0, 0]], [[[0.0, 1.0]]]), MetricError, "constants"),
        (([[0.0, 0.0]], [[0, 0]], [[[0.0, 1.0]]], [[0.6, 0.8]], [2.0]), MetricError, "one level"),
        (([[0.0, 0.0]], None, None, [[0.6, 0.6]], [2.0]), MetricError, "orthonormal"),
        (([[0.0, 0.0]], None, None, [[0.6, 0.8]], [0.0]), MetricError, "eigenvalues"),
        (([[0.0, 0.0]], None, None, [[0.6, 0.8]], None), ValueError, "all be given"),
        (([[0.0, 0.0]], None, None, None, None, [["a"]]), MetricError, "blocks"),
        ((None, None, None, None, None, ["theta"]), MetricError, "lists of names"),
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
