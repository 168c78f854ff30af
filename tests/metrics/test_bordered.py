"""The Fisher metric that is tridiagonal except for one row and column, compared with NumPy on full matrices.

The factorisation is checked for random matrices, and the metric for `StochasticVolatility`, whose dense implementation is
that of a subclass of `Fisher`.
"""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

import refhmc
from refhmc.adaptation.length import slowness_of
from refhmc.core import sample_stats as S
from refhmc.core.records import CACHE, COUNTERS, OPTIONS, STATUS, one
from refhmc.dynamics.assemble import make_dynamics
from refhmc.errors import GradientError, MetricError
from refhmc.integrators import BlockLeapfrog, GeneralizedLeapfrog, ImplicitMidpoint
from refhmc.metrics import Fisher, bordered
from refhmc.metrics.bordered import draw as DRAW
from refhmc.metrics.fisher import BorderedFisher
from refhmc.models.stochastic_volatility import StochasticVolatility, simulate, unconstrain
from refhmc.models.stochastic_volatility import bordered_contraction as CONTRACTION
from tests.helpers.derivatives import STEP, plain

# log sigma and atanh phi: usual ones, a path without noise or memory, and a precision of the path of up to 10^13.
SCALES = {
    "usual": (-1.9, 2.3),
    "none": (0.0, 0.0),
    "wide": (3.0, -3.0),
    "narrow": (-9.0, 5.0),
    "extreme": (-15.0, 12.0),
}


class DenseFisher(Fisher):
    """`Fisher` on full matrices: subclasses keep their functions."""


def matrix_of(bands, j):
    """The full matrix of the rows a, b and c."""
    G = np.diag(bands[0]) + np.diag(bands[1, :-1], 1) + np.diag(bands[1, :-1], -1)
    G[j] += bands[2]
    G[:, j] += bands[2]
    return G


def rows_of(A, j):
    """The rows a, b and c of a full matrix, whose entries outside the pattern are left out."""
    c, b = A[j].copy(), np.append(np.diagonal(A, 1), 0.0)
    c[j] = b[j] = b[j - 1] = 0.0
    return np.stack([np.diagonal(A), b, c])


def random_rows(rng, d, j):
    """A positive definite matrix: diagonally dominant by a random factor."""
    bands = rows_of(rng.normal(size=(d, d)), j)
    G = matrix_of(bands, j)
    bands[0] = np.abs(G - np.diag(np.diagonal(G))).sum(axis=1) * rng.uniform(1, 3, d) + rng.uniform(0.01, 1, d)
    return bands


def factors(bands, j):
    d = bands.shape[1]
    r, l, f = np.zeros((3, d))  # noqa: E741
    return bordered.factorise_bordered(bands, j, r, l, f), r, l, f


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), d=st.integers(2, 12), at=st.integers(0, 11))
def test_factors_solutions_and_inverse_are_those_of_full_matrices(seed, d, at):
    rng, j = np.random.default_rng(seed), at % d
    bands = random_rows(rng, d, j)
    G, (found, r, l, f) = matrix_of(bands, j), factors(bands, j)  # noqa: E741
    assert found == d
    np.testing.assert_allclose(-np.log(r).sum(), np.linalg.slogdet(G)[1], rtol=0, atol=1e-12 * d)
    p, x, entries = rng.normal(size=d), np.zeros(d), np.zeros((3, d))
    bordered.solve_bordered(j, r, l, f, p, x)
    np.testing.assert_allclose(x, np.linalg.solve(G, p), rtol=0, atol=1e-10 * np.abs(x).max())
    bordered.invert_bordered(j, r, l, f, entries)
    inverse = np.linalg.inv(G)
    np.testing.assert_allclose(entries, rows_of(inverse, j), rtol=0, atol=1e-10 * np.abs(inverse).max())


def work_of(bands, j):
    """The memory of the metric with these factors."""
    d = bands.shape[1]
    vecs = np.zeros((bordered.LAYOUT.n_vectors, d))
    w = plain(bordered.rows)(vecs)
    w.bands[:], w.border[0] = bands, j
    assert bordered.factorise_bordered(w.bands, j, w.scales, w.l, w.f) == d
    return vecs, np.zeros((0, d, d)), *(one(kind)[0] for kind in (OPTIONS, CACHE, COUNTERS, STATUS))


@pytest.mark.parametrize("j", [0, 3, 6])
def test_momenta_have_the_covariance_of_the_matrix(j):
    bands = random_rows(np.random.default_rng(j), 7, j)
    work, root = work_of(bands, j), np.zeros((7, 7))
    for k in range(7):
        bordered.draw(np.eye(7)[k], work, root[k])
    np.testing.assert_allclose(root.T @ root, matrix_of(bands, j), rtol=0, atol=1e-13 * np.abs(bands).max())


@pytest.mark.parametrize("j", [0, 2, 4])
@pytest.mark.parametrize("bad", range(5))
def test_the_first_pivot_that_is_not_positive_is_reported(j, bad):
    """A pivot is the Schur complement of its entry. That of the border is its entry as long as the border is not eliminated."""
    bands = random_rows(np.random.default_rng(5), 5, j)
    before = [i for i in range(bad) if i != j and bad != j]
    bands[0, bad] *= -1
    found, r, *_ = factors(bands, j)
    G = matrix_of(bands, j)
    schur = G[bad, bad] - G[bad, before] @ np.linalg.solve(G[np.ix_(before, before)], G[before, bad])
    assert found == bad
    np.testing.assert_allclose(r[bad], schur, rtol=1e-12)
    for value in (np.nan, np.inf):
        bands[0, bad] = value
        assert factors(bands, j)[0] == bad


def start_of(T, scales, seed=1):
    model, rng = StochasticVolatility(T=T), np.random.default_rng(seed)
    q = rng.normal(size=model.dim)
    q[-2:] = SCALES[scales]
    return model, q, rng


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("T", [2, 3, 5, 40])
def test_the_metric_is_the_dense_one(T, scales):
    """Energy, both gradients and the momentum, to rounding times the condition number of G or, for a root of G, its root."""
    model, q, rng = start_of(T, scales)
    H, dense = (refhmc.Hamiltonian(model, metric) for metric in (Fisher(), DenseFisher()))
    G, z = model.fisher(q), rng.normal(size=model.dim)
    p = dense._draw(q, z)
    condition = np.linalg.cond(G)
    rounding = 1e-15 * condition**0.5
    np.testing.assert_allclose(H._draw(q, z), p, rtol=0, atol=(1e-14 + rounding) * np.abs(p).max())
    np.testing.assert_allclose(H.mass(q), G, rtol=0, atol=1e-14 * np.abs(G).max())
    assert H.energy(q, p) == pytest.approx(dense.energy(q, p), rel=1e-13)
    v, force = dense.grad_p(q, p), dense.grad_q(q, p)
    np.testing.assert_allclose(H.grad_p(q, p), v, rtol=0, atol=(1e-14 + 1e-16 * condition) * np.abs(v).max())
    np.testing.assert_allclose(H.grad_q(q, p), force, rtol=0, atol=(1e-13 + rounding) * np.abs(force).max())


@pytest.mark.parametrize("method", [BlockLeapfrog(), ImplicitMidpoint(), GeneralizedLeapfrog()])
@pytest.mark.parametrize("T", [2, 40])
def test_trajectories_are_those_of_the_dense_metric(T, method):
    model, q, rng = start_of(T, "usual")
    H, dense = (refhmc.Hamiltonian(model, metric) for metric in (Fisher(), DenseFisher()))
    p = H.draw_momentum(q, rng)
    ours, theirs = (refhmc.integrate(each, method, q, p, step_size=0.05, n_steps=10) for each in (H, dense))
    assert ours.converged.all()
    np.testing.assert_allclose(ours.q, theirs.q, rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.p, theirs.p, rtol=0, atol=1e-9 * np.abs(theirs.p).max())
    np.testing.assert_allclose(ours.energy, theirs.energy, rtol=1e-11)


@pytest.mark.parametrize("kernel", [refhmc.HMC(step_size=0.3, n_steps=7), refhmc.NUTS(step_size=0.3)])
def test_a_transition_is_that_of_the_dense_metric(kernel):
    """The same momentum and uniforms lead to the same place, with the same statistics."""
    model, q, rng = start_of(12, "usual")
    p = refhmc.Hamiltonian(model, Fisher()).draw_momentum(q, rng)
    ours, theirs = (
        refhmc.transition(
            model,
            dataclasses.replace(kernel, metric=metric, integrator=BlockLeapfrog()),
            q,
            momentum=p,
            uniforms=np.random.default_rng(6).random(400),
        )
        for metric in (Fisher(), DenseFisher())
    )
    np.testing.assert_allclose(ours.q, theirs.q, rtol=0, atol=1e-10)
    assert ours.stats["n_steps"] == theirs.stats["n_steps"] > 1
    assert ours.stats["metric_cond"] == pytest.approx(theirs.stats["metric_cond"], rel=1e-12)


@pytest.mark.parametrize("T", [2, 3, 6])
def test_rows_and_their_contraction_are_those_of_the_matrix(T):
    """The contraction is also compared with complex steps of the rows."""
    model, q, rng = start_of(T, "usual")
    f, data, d, j = model.functions, model.core.data, model.dim, model.fisher_border
    bands, M, contracted = np.zeros((3, d)), rng.normal(size=(3, d)), np.zeros(d)
    f.bordered_fisher(q, data, bands)
    np.testing.assert_array_equal(matrix_of(bands, j), model.fisher(q))
    assert not bands[[1, 1, 2], [j - 1, j, j]].any()
    f.bordered_contraction(q, data, M, contracted)
    for k in range(d):
        shifted, out = q + 1j * STEP * (np.arange(d) == k), np.zeros((3, d), complex)
        plain(f.bordered_fisher)(shifted, data, out)
        np.testing.assert_allclose(contracted[k], np.sum(M * out.imag) / STEP, rtol=1e-12, atol=1e-15)


@njit(nogil=True, error_model="numpy")
def draw_half_of_the_border(normals, work, p):
    DRAW(normals, work, p)
    p[p.shape[0] - 3] *= 0.5


@njit(nogil=True, error_model="numpy")
def count_neighbours_once(q, data, M, out):
    CONTRACTION(q, data, M * np.array([[1.0], [0.5], [1.0]]), out)


class HalfOfTheBorder(Fisher):
    """A planted error: the momentum of the border is halved."""

    def for_model(self, model):
        return WithHalfOfTheBorder()


class WithHalfOfTheBorder(BorderedFisher):
    @property
    def geometry(self):
        return *super().geometry[:3], draw_half_of_the_border


def test_the_conformance_kit_passes_and_finds_planted_errors():
    y = [0.3, -1.0, 2.0, 0.1]
    model, wrong = StochasticVolatility(y), StochasticVolatility(y)
    wrong.functions = wrong.functions._replace(bordered_contraction=count_neighbours_once)
    report = refhmc.check.metric(refhmc.Hamiltonian(model, Fisher()))
    assert report.ok, str(report)
    for H, row in (
        (refhmc.Hamiltonian(model, HalfOfTheBorder()), "kinetic energy"),
        (refhmc.Hamiltonian(wrong, Fisher()), "force"),
    ):
        report = refhmc.check.metric(H)
        assert report.row(row).status == "FAIL", str(report)


def test_sampling_checks_the_contraction_first():
    wrong = StochasticVolatility([0.3, -1.0, 2.0, 0.1])
    wrong.functions = wrong.functions._replace(bordered_contraction=count_neighbours_once)
    kernel = refhmc.HMC(metric=Fisher(), integrator=BlockLeapfrog())
    with pytest.raises(GradientError, match="bordered_contraction"):
        refhmc.sample(wrong, kernel, draws=2, tune=2, progressbar=False)


def test_a_step_of_a_long_series_needs_no_matrix():
    """A full matrix of this length takes 3 GB, and a step with it minutes."""
    T = 20_000
    x, y = simulate(T)
    model = StochasticVolatility(y)
    dynamics = make_dynamics(model, Fisher(), BlockLeapfrog())
    assert dynamics.mats.size == 0
    H, q = refhmc.Hamiltonian(model, Fisher()), unconstrain(x, 0.65, 0.15, 0.98)
    p = H.draw_momentum(q, np.random.default_rng(1))
    there = refhmc.integrate(H, BlockLeapfrog(), q, p, step_size=0.05, n_steps=20)
    back = refhmc.integrate(H, BlockLeapfrog(), there.q[-1], -there.p[-1], step_size=0.05, n_steps=20)
    np.testing.assert_allclose(back.q[-1], q, rtol=0, atol=1e-10)
    assert np.abs(there.energy - there.energy[0]).max() < 5


@pytest.mark.parametrize(("g", "text"), [(400.0, "positive definite|double precision"), (-400.0, "not finite")])
def test_a_position_without_a_metric_is_reported(g, text):
    model, q, _ = start_of(5, "usual")
    q[-2] = g
    for metric in (Fisher(), DenseFisher()):
        with pytest.raises(MetricError, match=text):
            refhmc.Hamiltonian(model, metric).mass(q)


@pytest.mark.parametrize(
    ("at", "change", "failure"),
    [(1, -3.0, S.DIVERGED), (2, -0.5, S.DIVERGED), (1, np.nan, 0), (2, np.nan, 0), (2, 0.0, 0)],
)
def test_only_a_matrix_that_is_indefinite_by_more_than_rounding_is_a_divergence(at, change, failure):
    """The matrix is singular, and its last pivot is 0 or rounding. The caller notes S.NAN if nothing is noted here."""
    bands = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
    bands[0, at] += change

    def metric(q, data, out):
        out[:] = bands

    vecs, mats, *records = work_of(np.array([np.ones(3), np.zeros(3), np.zeros(3)]), 2)
    assert not plain(bordered.factorise)((None, None, metric, None, None), (vecs, mats, *records))
    assert records[3].failure == failure


@pytest.mark.parametrize("of", [[42, 41], [0, 1, 2], [40], [39, 40, 41, 42], [5, 40, 7, 6], []])
def test_a_block_is_that_of_the_full_matrix(of):
    model, rng = StochasticVolatility(T=40), np.random.default_rng(3)
    q = rng.normal(size=model.dim)
    at = np.array(of, dtype=int)
    assert bordered.block_of(model, q, at) == pytest.approx(model.fisher(q)[np.ix_(at, at)], rel=1e-14)


def test_the_slowness_of_hyperparameters_takes_no_full_matrix():
    """G has 3.2 GB here; the two hyperparameters are constant, so that the block of a short series differs only in T."""
    model = StochasticVolatility(T=20_000)
    q = np.zeros(model.dim)
    tracemalloc.start()
    found = slowness_of(Fisher(), model, q)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 8 * model.dim
    short = StochasticVolatility(T=30)
    block = short.fisher(np.zeros(33))[31:, 31:] + np.diag(
        [
            2 * 19_970.0,
            19_970 * (short.fisher(np.zeros(33))[32, 32] - StochasticVolatility(T=29).fisher(np.zeros(32))[31, 31]),
        ]
    )
    assert found[-2:] == pytest.approx(np.diag(np.linalg.inv(block)) ** -0.5, rel=1e-10)
    assert not found[:-2].any()
