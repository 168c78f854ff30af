"""The tridiagonal metric against the dense one of the same matrix, and against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.errors import MetricError, MissingDerivativeError, ShapeError
from refhmc.metrics import Dense, Tridiagonal
from tests.helpers.sweeps import swept

D = 7


def bands(seed: int = 0, d: int = D):
    rng = np.random.default_rng(seed)
    beside = rng.standard_normal(d - 1)
    diagonal = np.abs(np.append(beside, 0)) + np.abs(np.append(0, beside)) + rng.uniform(0.1, 2, d)
    return diagonal, beside


def matrix(diagonal, beside):
    return np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)


def gaussian(d: int = D):
    A = np.random.default_rng(1).standard_normal((d, d))
    return refhmc.models.Gaussian(np.arange(d) / d, A @ A.T + np.eye(d))


@pytest.mark.parametrize("d", [2, 3, D])
def test_the_hamiltonian_is_that_of_the_matrix(d):
    diagonal, beside = bands(2, d)
    M, model = matrix(diagonal, beside), gaussian(d)
    H = refhmc.Hamiltonian(model, Tridiagonal(diagonal, beside))
    q, p = np.random.default_rng(3).standard_normal((2, d))
    v = np.linalg.solve(M, p)
    np.testing.assert_allclose(H.grad_p(q, p), v, rtol=1e-12)
    assert H.energy(q, p) == pytest.approx(-model.log_density(q) + 0.5 * p @ v, rel=1e-13)
    np.testing.assert_allclose(H.grad_q(q, p), -model.gradient(q), rtol=1e-13)
    # R R' = M for the root R of the momentum draw, so that p = R z has covariance M.
    np.testing.assert_allclose(H.mass(), M, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    "integrator",
    [
        refhmc.integrators.Leapfrog(),
        swept(refhmc.integrators.Yoshida(refhmc.integrators.Leapfrog())),
        swept(refhmc.integrators.ImplicitMidpoint(tolerance=1e-13)),
    ],
)
def test_trajectories_are_those_of_the_dense_metric(integrator):
    diagonal, beside = bands()
    model, (q, p) = gaussian(), np.random.default_rng(4).standard_normal((2, D))
    metrics = Tridiagonal(diagonal, beside), Dense(np.linalg.inv(matrix(diagonal, beside)))
    ours, theirs = (
        refhmc.integrate(refhmc.Hamiltonian(model, metric), integrator, q, p, step_size=0.2, n_steps=20)
        for metric in metrics
    )
    assert ours.converged.all()
    np.testing.assert_allclose(ours.q, theirs.q, atol=1e-11)
    np.testing.assert_allclose(ours.p, theirs.p, atol=1e-11)
    np.testing.assert_allclose(ours.energy, theirs.energy, rtol=1e-12)


@pytest.mark.parametrize("kernel", [refhmc.HMC, refhmc.NUTS])
def test_a_transition_is_that_of_the_dense_metric(kernel):
    """The same momentum and uniforms lead to the same place, turning criterion and statistics included."""
    diagonal, beside = bands()
    model, (q, p) = gaussian(), np.random.default_rng(5).standard_normal((2, D))
    options = {"n_steps": 9} if kernel is refhmc.HMC else {}
    u = np.random.default_rng(6).random(400)
    ours, theirs = (
        refhmc.transition(model, kernel(step_size=0.3, metric=metric, **options), q, momentum=p, uniforms=u)
        for metric in (Tridiagonal(diagonal, beside), Dense(np.linalg.inv(matrix(diagonal, beside))))
    )
    np.testing.assert_allclose(ours.q, theirs.q, atol=1e-11)
    assert ours.stats["n_steps"] == theirs.stats["n_steps"] > 3
    assert ours.stats["acceptance_rate"] == pytest.approx(theirs.stats["acceptance_rate"], abs=1e-11)


def test_bad_bands_are_refused():
    diagonal, beside = bands()
    model = gaussian()
    with pytest.raises(ValueError, match="diagonal and off_diagonal"):
        Tridiagonal(diagonal)
    with pytest.raises(ShapeError, match=r"off_diagonal.*\(6,\).*\(7,\)"):
        refhmc.Hamiltonian(model, Tridiagonal(diagonal, diagonal))
    with pytest.raises(MetricError, match="least eigenvalue is -"):
        refhmc.Hamiltonian(model, Tridiagonal(diagonal, 10 + beside))
    with pytest.raises(MetricError, match=r"\bdiagonal.*finite"):
        refhmc.Hamiltonian(model, Tridiagonal(np.full(D, np.nan), beside))
    with pytest.raises(MissingDerivativeError, match="fisher_bands"):
        refhmc.Hamiltonian(model, Tridiagonal())
