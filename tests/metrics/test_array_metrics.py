"""The metrics' array implementations: on stacks of positions equal to the compiled metrics, one position at a time.

Rounding. Both add up the same terms in another order and factorise in different ways (the array implementation by LAPACK's
``eigh`` and a Cholesky factor, the core by Jacobi's rotations and L D L'). The error of a velocity or a force is a few eps
times the condition of G, which here is at most 10^5, and of the sums that the model computes. The bound is 1e-14 (1 + cond
G), relative to the largest entry; at most 2e-4 of it were used.
"""

from __future__ import annotations

import itertools
import tracemalloc

import mpmath
import numpy as np
import pytest
import scipy.linalg

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
from refhmc.metrics.softabs_function import (
    divided_difference_on_arrays,
    divided_differences,
    softabs,
    softabs_derivative,
)
from refhmc.numerics import batched
from tests.helpers.hierarchical_cases import chain_metric
from tests.helpers.low_rank_metrics import low_rank_metric
from tests.helpers.models import FEW_CALLS
from tests.helpers.riemannian_cases import model_of, soft, soft_quotient
from tests.helpers.sweeps import one_in

METRICS = {
    "identity": lambda d: Identity(),
    "diagonal": lambda d: Diagonal(np.linspace(0.5, 2.0, d)),
    "dense": lambda d: Dense(np.eye(d) + 0.5 ** np.abs(np.subtract.outer(np.arange(d), np.arange(d)))),
    "low-rank": low_rank_metric,
    "tridiagonal": lambda d: Tridiagonal(np.full(d, 2.0), np.full(d - 1, -0.7)),
    "hierarchical": chain_metric,
    "fisher": lambda d: Fisher(),
    "softabs": lambda d: SoftAbs(1e6),
    "softabs-1": lambda d: SoftAbs(alpha=1.0),
    "diagonal-softabs": lambda d: DiagonalSoftAbs(1e6),
    "diagonal-softabs-1": lambda d: DiagonalSoftAbs(alpha=1.0),
    "outer": lambda d: OuterProductSoftAbs(),
    "outer-published": lambda d: OuterProductSoftAbs(alpha=1e-4, as_published=True),
    "diagonal-outer": lambda d: DiagonalOuterProductSoftAbs(),
}
MODELS = ("banana", "funnel-3", "gaussian-3", "logistic")


def close(a, b, condition):
    return np.max(np.abs(a - b)) <= 1e-14 * (1 + condition) * np.max(np.abs(b), initial=1e-300)


@pytest.mark.parametrize(("metric", "name"), one_in(2, METRICS, MODELS))
def test_a_stack_is_each_of_them(metric, name):
    model, rng = model_of(name), np.random.default_rng(7)
    metric = METRICS[metric](model.dim)
    H, T = refhmc.Hamiltonian(model, metric), refhmc.array_api.hamiltonian(model, metric)
    q, normals = 0.7 * rng.standard_normal((2, 3, model.dim)), rng.standard_normal((2, 3, model.dim))
    p = T.draw_momentum(q, normals)
    G, energy, (v, force) = T.mass(q), T.energy(q, p), T.velocity_and_force(q, p)
    parts, velocity = T.potential_force(q) + T.kinetic_force(q, p), T.inverse_product(q, p)
    assert energy.shape == T.half_log_det(q).shape == (2, 3)
    for k in itertools.product(range(2), range(3)):
        mass = H.mass(q[k])
        condition = np.linalg.cond(mass)
        assert condition < 1e10
        assert close(p[k], H._draw(q[k], normals[k]), condition)
        assert close(G[k], mass, condition)
        assert close(energy[k], H.energy(q[k], p[k]), condition)
        for each in (v[k], velocity[k]):
            assert close(each, H.grad_p(q[k], p[k]), condition)
        for each in (force[k], parts[k]):
            assert close(each, -H.grad_q(q[k], p[k]), condition)
        if metric.position_dependent:
            assert close(T.half_log_det(q[k]), 0.5 * np.linalg.slogdet(mass)[1], condition)


@pytest.mark.sweep
def test_bands_that_the_model_gives():
    volatility = refhmc.models.StochasticVolatility(T=5)
    block = refhmc.conditional(volatility, "x", 0.1 * np.ones(volatility.dim))
    H, T = (make(block, Tridiagonal()) for make in (refhmc.Hamiltonian, refhmc.array_api.hamiltonian))
    rng = np.random.default_rng(3)
    q, normals = rng.standard_normal((4, block.dim)), rng.standard_normal((4, block.dim))
    p = T.draw_momentum(q, normals)
    for k in range(4):
        assert close(p[k], H._draw(q[k], normals[k]), 100.0)
        assert close(T.inverse_product(q, p)[k], H.grad_p(q[k], p[k]), 100.0)


# ------------------------------------------------------------------------------------ f, f' and J, equal eigenvalues


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6])
def test_divided_differences_against_many_digits(alpha):
    """J, f and f' are right to a few eps of themselves."""
    t = np.concatenate([[0.0], np.geomspace(1e-12, 60, 13)])
    gaps = np.array([0.0, 1e-15, 1e-9, 1e-4, 0.3, 0.599, 0.601, 1.0, 5.0])
    x, gap, sign = (a.ravel() for a in np.meshgrid(np.concatenate([t, -t]), gaps, [1.0, -1.0]))
    y = sign * x + gap
    x, y = x / alpha, y / alpha
    J, f, slope = divided_difference_on_arrays(x, y, alpha), softabs(x, alpha), softabs_derivative(x, alpha)
    with mpmath.workdps(60):
        for k in range(len(x)):
            a, b = mpmath.mpf(float(x[k])), mpmath.mpf(float(y[k]))
            exact = soft_quotient(a, b, alpha)
            assert abs(J[k] - exact) <= 4e-15 * abs(exact)
            assert abs(f[k] - soft(a, alpha)) <= 2e-15 * f[k]
            assert abs(slope[k] - soft_quotient(a, a, alpha)) <= 1e-14 * abs(slope[k])


def test_the_force_where_eigenvalues_are_equal():
    """The Hessian -e^v I of the funnel at x = 0 has an eigenvalue as often as x has entries; J is not its diagonal there."""
    model = model_of("funnel-3")
    H, T = (make(model, SoftAbs(alpha=1.0)) for make in (refhmc.Hamiltonian, refhmc.array_api.hamiltonian))
    q = np.array([[0.3, 0.0, 0.0, 0.0], [0.3, 1e-9, 0.0, 0.0], [0.3, 1e-4, -2e-4, 0.0]])
    p = np.array([[1.0, -0.5, 0.7, 2.0]] * 3)
    v, force = T.velocity_and_force(q, p)
    values, _, _ = T.spectrum(q)
    assert np.ptp(values[0, :3]) < 1e-15
    assert np.abs(divided_differences(values, 1.0)[0, 0, 1]) > 0.1
    for k in range(3):
        assert close(v[k], H.grad_p(q[k], p[k]), 10.0)
        assert close(force[k], -H.grad_q(q[k], p[k]), 10.0)


# ------------------------------------------------------------------------------- no metric: NaN, in that row alone


def test_a_metric_that_is_not_positive_leaves_the_others_alone():
    model = refhmc.Model(
        2,
        lambda q, data: -0.5 * np.sum(q * q),
        lambda q, data: -q,
        fisher=lambda q, data: np.array([[1.0, q[0]], [q[0], 1.0]]),
        fisher_derivative=lambda q, data: np.array([[[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 0.0]]]),
        in_python=FEW_CALLS,
    )
    T = refhmc.array_api.hamiltonian(model, Fisher())
    q = np.array([[0.5, 0.1], [2.0, 0.1], [1.0, 0.1], [np.nan, 0.0], [-0.5, 0.3]])  # definite, not, singular, none
    p = np.ones((5, 2))
    with np.errstate(all="ignore"):
        for answers in (*T.velocity_and_force(q, p), T.draw_momentum(q, p), T.energy(q, p)[:, None]):
            assert np.isfinite(answers).all(axis=-1).tolist() == [True, False, False, False, True]
        alone = T.velocity_and_force(q[4], p[4])
        assert all(np.array_equal(a, b[4]) for a, b in zip(alone, T.velocity_and_force(q, p), strict=True))


def test_a_hessian_that_overflows_leaves_the_others_alone():
    T = refhmc.array_api.hamiltonian(model_of("funnel-3"), SoftAbs(1e6))
    q, p = np.array([[0.1, 0.2, 0.3, 0.4], [800.0, 1.0, 1.0, 1.0]]), np.ones((2, 4))
    with np.errstate(all="ignore"):
        v, force = T.velocity_and_force(q, p)
    assert np.isfinite(v[0]).all()
    assert np.isfinite(force[0]).all()
    assert np.isnan(v[1]).all()


def test_cholesky_is_numpys():
    rng = np.random.default_rng(1)
    A = rng.standard_normal((3, 2, 5, 5))
    G = A @ A.mT + 0.1 * np.eye(5)
    assert np.abs(batched.cholesky(G) - np.linalg.cholesky(G)).max() < 1e-13


def test_a_tridiagonal_metric_of_many_coordinates_needs_no_matrix():
    """Products and momenta with d = 1,000 against SciPy's banded solver; a full matrix of each chain would take 8 MB."""
    d, rng = 1000, np.random.default_rng(4)
    a, b = 2.5 + rng.random(d), rng.uniform(-1, 1, d - 1)
    H = refhmc.array_api.hamiltonian(refhmc.models.Funnel(d - 1), Tridiagonal(a, b))
    q, p = rng.normal(size=(20, d)), rng.normal(size=(20, d))
    tracemalloc.start()
    v = H.inverse_product(q, p)
    momenta = H.draw_momentum(q, p)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * d * d
    bands = np.stack([a, np.append(b, 0.0)])
    assert np.abs(v - scipy.linalg.solveh_banded(bands, p.T, lower=True).T).max() < 1e-12
    factor = scipy.linalg.cholesky_banded(bands, lower=True)
    assert np.abs(momenta - (factor[0] * p + np.pad(factor[1, :-1] * p[:, :-1], ((0, 0), (1, 0))))).max() < 1e-12


def test_a_tridiagonal_mass_that_is_not_positive_definite_is_nan_in_its_row_only():
    class Bands(refhmc.array_api.ArrayImplementation):
        dim = 3

        def value_and_gradient(self, q):
            return -0.5 * (q * q).sum(axis=-1), -q

        def fisher_bands(self, q):
            a = np.where(q[..., :1] > 0, 2.0, 0.1) + 0.0 * q
            return np.stack([a, np.ones_like(a)], axis=-2)

    H = Tridiagonal().on_arrays(Bands())
    v = H.inverse_product(np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]), np.ones((2, 3)))
    assert np.isfinite(v[0]).all()
    assert np.isnan(v[1]).all()


def test_momenta_of_a_dense_metric_do_not_copy_it_for_each_chain():
    d, n = 100, 1000  # copies would take 80 MB
    A, rng = np.random.default_rng(5).normal(size=(d, d)), np.random.default_rng(6)
    W = A @ A.T + 0.1 * np.eye(d)
    H, q, z = (
        refhmc.array_api.hamiltonian(refhmc.models.Funnel(d - 1), Dense(W)),
        np.zeros((n, d)),
        rng.normal(size=(n, d)),
    )
    tracemalloc.start()
    p = H.draw_momentum(q, z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * z.nbytes
    expected = scipy.linalg.solve_triangular(np.linalg.cholesky(W).T, z.T).T
    assert np.abs(p - expected).max() < 1e-12 * np.linalg.cond(W)
