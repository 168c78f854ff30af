"""The hierarchical metric that warm-up learns: what it finds in exact draws, and how a chain changes to it and back."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.stats

import refhmc
from refhmc.adaptation import hierarchy
from refhmc.adaptation.adapted import adapted_of, as_dataset, begin_from, chains_of, from_dataset
from refhmc.adaptation.fisher_divergence import least_divergence
from refhmc.adaptation.hierarchy import learn_hierarchy
from refhmc.core.records import CONTROL, one
from refhmc.core.sample_stats import N_STATS
from refhmc.errors import MetricError
from refhmc.integrators import BlockLeapfrog, ImplicitMidpoint, Leapfrog
from refhmc.metrics import Hierarchical, LowRank
from refhmc.metrics.base import HIERARCHY
from refhmc.metrics.hierarchical import FIRST, PARENTS, TERMS
from refhmc.sampling.chains.chain import Chain, make_plan
from refhmc.sampling.chains.task import ChainTask, Saved, chain_generator
from refhmc.sampling.storage.saved_state import check_saved

QUIET = {"progressbar": False, "raw": True}
WINDOW = 244  # a window of a warm-up of 500 iterations ends here


def exact(model, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Exact draws and their scores."""
    draws = model.reference.draw(np.random.default_rng(seed), n)
    return draws, np.array([model.gradient(q) for q in draws])


def sums(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws and scores of v ~ N(0, 9), x_i | v ~ N(0, 1 / (4 + e^v)), i = 1, ..., 12, in the order x, v."""
    rng = np.random.default_rng(seed)
    v = 3 * rng.normal(size=(n, 1))
    M = 4 + np.exp(v)
    x = rng.normal(size=(n, 12)) / np.sqrt(M)
    s_v = -v / 9 + np.sum(0.5 * np.exp(v) / M - 0.5 * np.exp(v) * x**2, axis=1, keepdims=True)
    return np.concatenate([x, v], axis=1), np.concatenate([-M * x, s_v], axis=1)


@pytest.mark.parametrize(("n", "d"), [(200, 10), (475, 10), (475, 100), (475, 2)])
def test_the_metric_of_the_funnel_is_learned(n, d):
    """The masses are 1/9 + d/2 and e^v. Six standard errors: c has the error (2/n)^1/2 / 3 (v has the standard deviation 3),
    and log M_v has at most (14/n)^1/2 for d = 2 (the variance of s_v^2 is at most 14 M_v^2).
    """
    metric = learn_hierarchy(*exact(refhmc.models.Funnel(d), n))
    a, parents, c = metric.exponents
    assert metric.levels().tolist() == [0] + [1] * d
    assert np.all(parents[0, 1:] == 0)
    np.testing.assert_allclose(c[1, 0, 1:], 1.0, atol=6 * np.sqrt(2 / n) / 3)
    np.testing.assert_allclose(a[1, 0], np.log(1 / 9 + d / 2), atol=6 * np.sqrt(14 / n))
    assert not np.any(c[:, 1:])


def test_a_sum_of_a_constant_and_a_scaled_precision_is_learned():
    """M = 4 + e^v from 2,000 draws; the loss prefers two terms by far more than its limit."""
    metric = learn_hierarchy(*sums(2000, seed=1))
    a, parents, c = metric.exponents
    assert np.all(parents[0, :12] == 12)
    assert np.all(np.isfinite(a[0, :12]))
    v = np.zeros((5, 13))
    v[:, 12] = [-4.0, -1.0, 0.0, 1.0, 4.0]
    error = np.log(metric.masses(v)[:, :12] / (4 + np.exp(v[:, 12:])))
    assert np.abs(error).max() < 6 * np.sqrt(2 / 2000) * 3  # the largest leverage, at the end of the range, is below 3


@pytest.mark.parametrize("d", [2, 10, 100])
def test_nothing_is_learned_from_a_normal(d):
    """In fixed draws. A false alarm needs a correlation of 5 standard errors: 10^-6 for each of d (d - 1) pairs."""
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=(475, d))
        assert learn_hierarchy(x, -x) is None


def slow(rng: np.random.Generator, shape: tuple[int, int], rho: float) -> np.ndarray:
    """Standard normal series with the autocorrelations rho^k along the first axis."""
    series = rng.normal(size=shape)
    for t in range(1, len(series)):
        series[t] = rho * series[t - 1] + (1 - rho**2) ** 0.5 * series[t]
    return series


def test_the_errors_of_correlations_are_those_of_autoregressive_series():
    """The standard deviation of correlations of 400 pairs is the stated error, within six of its standard errors, 1/sqrt(800).

    Fixed draws. The factor without autocorrelations would be 1, here it is (1.72 / 0.28)^1/2 = 2.5 for a = b = 0.85.
    """
    rng, n, pairs = np.random.default_rng(3), 2000, 400
    x, y = slow(rng, (n, pairs), 0.85), slow(rng, (n, pairs), 0.85)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    y -= y.mean(axis=0)
    w, size = hierarchy.covariances(x, y)
    r = np.diag(w / size)
    stated = np.diag(hierarchy.errors(w / size, hierarchy.autocorrelations(x), y))
    assert np.sqrt(np.mean((r / stated) ** 2)) == pytest.approx(1.0, abs=6 / np.sqrt(2 * pairs))


@pytest.mark.parametrize("seed", range(5))
def test_slow_draws_are_not_taken_for_hyperparameters(seed):
    """Fixed normal draws with slow masses of their own, so that the kurtosis excludes no coordinate; they do not depend on x.

    With errors of 1 / sqrt(n), 2 to 4 coordinates are hyperparameters, and with the stated ones at most one.
    """
    rng = np.random.default_rng(seed)
    x, log_mass = slow(rng, (475, 20), 0.9), 0.8 * slow(rng, (475, 20), 0.9)
    scores = np.exp(log_mass) * rng.normal(size=(475, 20))
    metric = learn_hierarchy(x, scores)
    assert metric is None or np.unique(metric.parents[metric.coefficients[1] != 0]).size <= 1


def test_the_mean_divergence_is_that_of_normal_log_densities():
    """-2 log N(s; 0, M) - d log 2 pi by SciPy, on each draw of a hierarchical metric with directions."""
    draws, scores = np.random.default_rng(0).normal(size=(2, 40, 10))
    U = np.zeros((1, 10))
    U[0, :8] = 8**-0.5
    c, parents, a = np.zeros((2, 1, 10)), np.full((1, 10), 9), np.full((2, 10), -np.inf)
    c[1, 0, :8], a[1], a[0, :8] = -2.0, 0.3, -4.0
    metric = Hierarchical(a, parents, c, directions=U, eigenvalues=[1.7])
    D, expected = metric.masses(draws), []
    for mass, s in zip(D, scores, strict=True):
        root = np.sqrt(mass)
        M = np.linalg.inv((np.eye(10) + 0.7 * U.T @ U) / root / root[:, None])
        expected.append(-2 * scipy.stats.multivariate_normal(np.zeros(10), M).logpdf(s) - 10 * np.log(2 * np.pi))
    found = hierarchy.mean_divergence(D, *metric.low_rank(10), scores)
    assert found == pytest.approx(np.mean(expected), rel=1e-10)


def test_a_hierarchy_must_describe_the_scores_better_than_a_constant_metric():
    """Ten x2 have a funnel on x1, while four others have the correlation 1 - 1e-6: their directions matter more.

    On their own, without the correlation, the hierarchy is chosen.
    """
    rng, n = np.random.default_rng(0), 1000
    x1 = rng.normal(size=(n, 1))
    x2 = np.exp(-0.5 * x1) * rng.normal(size=(n, 10))
    s1, s2 = -x1 + 0.5 * np.sum(1 - np.exp(x1) * x2**2, axis=1, keepdims=True), -np.exp(x1) * x2
    for rho, expected in ((0.0, True), (1 - 1e-6, False)):
        C = np.full((4, 4), rho) + (1 - rho) * np.eye(4)
        rest = rng.multivariate_normal(np.zeros(4), C, size=n)
        # The correlation changes with x1, which a hierarchy without directions above level 0 cannot have.
        scales_of = np.exp(-0.3 * x1)
        x = np.concatenate([x1, x2, scales_of * rest], axis=1)
        of_rest = -np.linalg.solve(C, rest.T).T
        s1_all = s1 + 0.3 * np.sum(1 + rest * of_rest, axis=1, keepdims=True)
        s = np.concatenate([s1_all, s2, of_rest / scales_of], axis=1)
        assert learn_hierarchy(x, s) is not None
        constant = least_divergence(x, s, np.ones(15), None, True)
        assert (learn_hierarchy(x, s, constant=lambda constant=constant: constant) is not None) == expected


@pytest.mark.parametrize(("w", "m", "is_held"), [(0.55, 8, False), (0.55, 32, True), (1.0, 2, False), (1.0, 10, True)])
def test_a_hyperparameter_must_be_held_by_its_children(w, m, is_held):
    """x has m children with log M_i = w x: their information on it is m w^2/2 = 1.2, 4.8, 1 and 5, and 3 is needed.

    Ten fixed sets of 475 draws each.
    """
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(475, 1))
        M = np.exp(w * x)
        y = rng.normal(size=(475, m)) / np.sqrt(M)
        s_x = -x + 0.5 * w * np.sum(1 - M * y**2, axis=1, keepdims=True)
        metric = learn_hierarchy(np.concatenate([x, y], axis=1), np.concatenate([s_x, -M * y], axis=1))
        assert (metric is not None) == is_held


@pytest.mark.parametrize("w", [0.5, 1.0])
def test_the_predicted_divergence_is_the_exact_one_of_a_normal_log_mass(w):
    """x1 is normal, log M_2 = w x1, and s3, s4 have a correlation: the mean is 4 + log det C - w^2 / 2, here by simulation.

    The standard error of the simulated mean is below 0.004, so that 0.04 is more than ten standard errors.
    """
    rng, n = np.random.default_rng(5), 400_000
    x1, z = rng.normal(size=n), rng.normal(size=(n, 4))
    C = np.eye(4)
    C[2, 3] = C[3, 2] = 0.8
    s = z @ np.linalg.cholesky(C).T
    s[:, 1] *= np.exp(0.5 * (w * x1 - 0.5 * w**2))  # E[s2^2] = 1
    D = np.ones((n, 4))
    D[:, 1] = np.exp(w * x1 - 0.5 * w**2)
    r = np.zeros((4, 4))
    r[0, 1] = w / np.sqrt(w**2 + np.pi**2 / 2)
    found = hierarchy.predicted_divergence(s, r, np.array([0, 1, 0, 0]))
    e, U = np.linalg.eigh(C)
    assert found == pytest.approx(hierarchy.mean_divergence(D, U.T, 1 / e, s), abs=0.04)
    assert found == pytest.approx(4 + np.log(1 - 0.8**2) - 0.5 * w**2, abs=0.04)


def test_nothing_is_learned_from_few_draws_or_constant_columns():
    draws, scores = exact(refhmc.models.Funnel(5), 400)
    assert learn_hierarchy(draws[:49], scores[:49]) is None
    still = np.zeros_like(draws)
    assert learn_hierarchy(still, scores) is None
    assert learn_hierarchy(draws, still) is None
    odd = scores.copy()
    odd[3, 2] = np.nan
    assert learn_hierarchy(draws, odd) is None
    assert learn_hierarchy(draws[:, :1], scores[:, :1]) is None


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_fit_is_the_minimum_that_scipy_finds(two, seed):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(2, 300))
    e = (0.3 * two + np.exp(0.5 + np.array([1.0, -0.6]) @ u)) * rng.normal(size=300) ** 2
    aim, penalty, low = np.array([0.2, 0.0]), np.array([1.0, 5.0]), np.log(0.2)

    def loss(theta):
        eta = theta[1] + theta[2:] @ u
        held = 0.0
        if two:
            eta, held = np.logaddexp(theta[0], eta), 0.5 * hierarchy.RIDGE_OF_CONSTANT * (theta[0] - low) ** 2
        return np.sum(e * np.exp(-eta) + eta) + 0.5 * penalty @ (theta[2:] - aim) ** 2 + held

    theta = np.array([low if two else -np.inf, 0.0, 0.0, 0.0])
    found = hierarchy.fit(e, u, theta, aim, penalty, np.zeros((4, 4)), np.zeros((8, 4)))
    assert found == pytest.approx(loss(theta), rel=1e-12)
    free = slice(0 if two else 1, None)

    def of_free(x):
        whole = theta.copy()
        whole[free] = x
        return loss(whole)

    best = scipy.optimize.minimize(of_free, theta[free] + 0.1, method="BFGS", options={"gtol": 1e-8})
    assert found - best.fun < 1e-3 * len(e) * hierarchy.ENOUGH / 1e-5  # the last gain was below ENOUGH n


def test_children_of_one_parent_share_what_they_have_in_common(monkeypatch):
    """The spread of 100 equal coefficients is less than a third of that of separate fits."""
    draws, scores = exact(refhmc.models.Funnel(100), 300)
    together = learn_hierarchy(draws, scores).exponents[2][1, 0, 1:]
    alone = []
    monkeypatch.setattr(hierarchy, "HELD", 0.0)  # one child is worth less
    for i in range(1, 101):
        pair = [0, i]
        alone.append(learn_hierarchy(draws[:, pair], scores[:, pair]).exponents[2][1, 0, 1])
    assert np.std(together) < np.std(alone) / 3


def test_correlations_are_learned_within_levels():
    """x_1, ..., x_4 | v have the precision e^2v R; the eigenvalues of R^-1 are learned to within six standard errors."""
    n, d, rng = 8000, 4, np.random.default_rng(3)
    R = np.full((d, d), 0.5) + 0.5 * np.eye(d)
    v = rng.normal(size=(n, 1))
    x = rng.multivariate_normal(np.zeros(d), np.linalg.inv(R), size=n) / np.exp(v)
    s = -np.exp(2 * v) * (x @ R)
    s_v = -v + d - np.exp(2 * v) * np.sum(x * (x @ R), axis=1, keepdims=True)
    metric = learn_hierarchy(np.concatenate([v, x], axis=1), np.concatenate([s_v, s], axis=1))
    U, eigenvalues = metric.low_rank(d + 1)
    assert not np.any(U[:, 0])
    M_inverse = np.eye(d) + U[:, 1:].T * (eigenvalues - 1) @ U[:, 1:]
    relative = scipy.linalg.eigvalsh(M_inverse, np.linalg.inv(R))
    assert np.abs(np.log(relative)).max() < 6 * np.sqrt(2 / (n / 2)) * np.sqrt(d)


def test_directions_above_level_0_are_limited():
    """The eigenvalue 19.5 of R^-1 at level 0 is learned, and that of the same coordinates at level 1 is 2."""
    n, rng = 2000, np.random.default_rng(4)
    R = np.array([[1.0, 0.95], [0.95, 1.0]])
    v = rng.normal(size=(n, 1))
    x = rng.multivariate_normal(np.zeros(2), np.linalg.inv(R), size=n) / np.exp(1.5 * v)
    y = rng.multivariate_normal(np.zeros(2), np.linalg.inv(R), size=n)
    s_v = -v + 3 - 1.5 * np.exp(3 * v) * np.sum(x * (x @ R), axis=1, keepdims=True)
    metric = learn_hierarchy(np.hstack([v, x, y]), np.hstack([s_v, -np.exp(3 * v) * (x @ R), -y @ R]))
    U, eigenvalues = metric.low_rank(5)
    within = np.abs(U[:, 1:3]).max(axis=1) > 0
    assert eigenvalues[within].max() == 2.0
    assert eigenvalues[~within].max() > 10.0


def test_the_coordinates_of_a_variable_are_found_together():
    """60 masses e^(0.6 u), in fixed draws: the mean of log s^2 has the correlation 0.90 with u, a single one 0.26. The limit is
    0.71.
    """
    n, m, rng = 50, 60, np.random.default_rng(5)
    u = rng.normal(size=(n, 1))
    x = rng.normal(size=(n, m)) * np.exp(-0.3 * u)
    s_u = -u + 0.3 * m - 0.3 * np.exp(0.6 * u) * np.sum(x**2, axis=1, keepdims=True)
    draws, scores = np.hstack([u, x]), np.hstack([s_u, -np.exp(0.6 * u) * x])
    together = learn_hierarchy(draws, scores, variables=np.r_[0, np.ones(m, int)])
    assert together.levels().tolist() == [0] + [1] * m
    assert learn_hierarchy(draws, scores) is None


@pytest.mark.parametrize(("w", "is_found"), [(0.35, True), (0.03, False)])
def test_many_coordinates_with_a_weak_dependence_are_found(w, is_found):
    """200 masses e^(w u), in fixed draws: the error of w is 2.2 (200 n)^-1/2 = 0.007, and the limit
    is (2/200)^1/2 = 0.1.

    For w = 0.35 the ratio var u E[s_u^2] is 1 + m w^2/2 = 13. Alone, a coordinate has the correlation 0.16 with u.
    """
    n, m, rng = 475, 200, np.random.default_rng(6)
    u = rng.normal(size=(n, 1))
    x = rng.normal(size=(n, m)) * np.exp(-0.5 * w * u)
    s_u = -u + 0.5 * w * m - 0.5 * w * np.exp(w * u) * np.sum(x**2, axis=1, keepdims=True)
    draws, scores = np.hstack([u, x]), np.hstack([s_u, -np.exp(w * u) * x])
    metric = learn_hierarchy(draws, scores, variables=np.r_[0, np.ones(m, int)])
    assert (metric is not None) == is_found
    if is_found:
        assert metric.levels().tolist() == [0] + [1] * m
        assert metric.exponents[2][1, 0, 1:].mean() == pytest.approx(w, abs=6 * np.sqrt(2 / (n * m)))
    assert learn_hierarchy(draws, scores) is None


def test_a_coordinate_without_scores_does_not_hide_the_others():
    """The funnel's 60 coordinates are found as a variable although the score of another variable is always zero."""
    draws, scores = exact(refhmc.models.Funnel(60), 100)
    draws, scores = np.column_stack([draws, draws[:, :3]]), np.column_stack([scores, np.zeros((100, 3))])
    metric = learn_hierarchy(draws, scores, variables=np.r_[0, np.ones(60, int), [2, 2, 2]])
    assert metric.levels().tolist() == [0] + [1] * 60 + [0] * 3


@pytest.mark.parametrize("changes", [False, True])
def test_directions_of_a_wide_level_are_limited_if_they_change_with_a_hyperparameter(changes):
    """300 coordinates with the precision e^v, and the precision e^v / 100 along one direction; or with e^(-v) / 100 there.

    Fixed draws. The eigenvalue 100 of least divergence has the relative error 400^-1/2 for 400 held-out draws; the draws
    scaled by e^(v/2) have no other error than that of the fitted c.
    """
    n, m, rng = 800, 300, np.random.default_rng(7)
    v, z = rng.normal(size=(n, 1)), rng.normal(size=(n, m))
    u = np.full((m, 1), m**-0.5)
    along = np.exp(-v) / 100 if changes else np.exp(v) / 100
    part = z @ u
    x = (z - part * u.T) * np.exp(-v / 2) + part * u.T / np.sqrt(along)
    s = -(np.exp(v) * (x - (x @ u) * u.T) + along * (x @ u) * u.T)
    s_v = -v + 0.5 * (m - 1) - 0.5 * np.sum((z - part * u.T) ** 2, axis=1, keepdims=True)
    metric = learn_hierarchy(np.hstack([v, x]), np.hstack([s_v, s]), variables=np.r_[0, np.ones(m, int)])
    U, eigenvalues = metric.low_rank(m + 1)
    k = np.argmax(np.abs(U[:, 1:] @ u))
    assert abs(float(U[k, 1:] @ u[:, 0])) > 0.9
    if changes:
        assert eigenvalues[k] == 2.0
    else:
        assert np.log(eigenvalues[k] / 100) == pytest.approx(0, abs=6 / np.sqrt(n / 2))


def test_the_first_look_excludes_nothing_that_the_search_finds(monkeypatch):
    """For 300 random dependences of random strengths, with zeros among the scores, variables, and forbidden pairs."""
    rng, first_look, ended, found = np.random.default_rng(0), hierarchy.may_be_found, 0, 0
    for k in range(300):
        n, d = int(rng.integers(50, 300)), int(rng.integers(3, 15 if k % 4 else 60))
        draws = slow(rng, (n, d), 0.5)
        C = rng.uniform(0, 2.5) * rng.normal(size=(d, d)) * (rng.random((d, d)) < 0.1)
        C[0] += rng.uniform(0, 0.5)
        scores = np.exp(0.5 * draws @ C) * rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.98)
        draws = 1e3 + rng.uniform(0.1, 10.0, d) * draws
        earlier = None if k % 2 else rng.random((d, d)) < 0.7
        variables = None if k % 3 else np.sort(rng.integers(0, 3, d))
        looks = []
        monkeypatch.setattr(hierarchy, "may_be_found", lambda *args, of=looks: of.append(first_look(*args)) or of[-1])
        short = learn_hierarchy(draws, scores, earlier, variables)
        monkeypatch.setattr(hierarchy, "may_be_found", lambda *args: True)
        assert (short is None) == (learn_hierarchy(draws, scores, earlier, variables) is None)
        ended, found = ended + looks.count(False), found + (short is not None)
    assert ended > 50
    assert found > 50


def test_blocks_restrict_the_parents():
    model = refhmc.models.EightSchools(centered=True)
    for blocks, parents in (([["log_tau"], ["theta", "mu"]], {9}), ([["theta", "mu"], ["log_tau"]], set())):
        plan = make_plan(model, refhmc.HMC(metric=Hierarchical(blocks=blocks)), 100).blocks[0].hierarchical
        assert plan.earlier[9, 0] == (9 in parents)
        assert plan.earlier.sum() == 9
    partly = make_plan(model, refhmc.HMC(metric=Hierarchical(blocks=[["tau"], []])), 100).blocks[0].hierarchical
    assert partly.earlier[9, :9].all()
    assert partly.earlier.sum() == 9
    with pytest.raises(ValueError, match="has no variable 'sigma'"):
        make_plan(model, refhmc.HMC(metric=Hierarchical(blocks=[["sigma"], ["theta"]])), 100)


def test_the_parents_of_a_model_exclude_its_descendants():
    parents = {"x": ["v"]}
    funnel = refhmc.models.Funnel(3)
    model = refhmc.Model(4, funnel.log_density, funnel.gradient, names=["v", "x[0]", "x[1]", "x[2]"], parents=parents)
    for kernel in (refhmc.HMC(), refhmc.HMC(metric=Hierarchical())):
        earlier = make_plan(model, kernel, 100).blocks[0].hierarchical.earlier
        assert earlier[0, 1:].all()  # x may depend on v
        assert not earlier[1:, 0].any()  # and v not on x
        assert earlier[1:, 1:].all()
    free = refhmc.HMC(metric=Hierarchical(blocks=[["x"], ["v"]]))
    assert make_plan(model, free, 100).blocks[0].hierarchical.earlier[1:, 0].all()


@pytest.mark.parametrize(
    ("kernel", "looks"),
    [
        (refhmc.NUTS(), True),
        (refhmc.HMC(), True),
        (refhmc.NUTS(metric=Hierarchical()), True),
        (refhmc.HMC(metric=Hierarchical(), integrator=ImplicitMidpoint()), True),
        (refhmc.NUTS(metric=LowRank()), False),
        (refhmc.NUTS(integrator=Leapfrog()), False),
        (refhmc.HMC(metric="diagonal"), False),
    ],
)
def test_which_kernels_look_for_a_hierarchy(kernel, looks):
    assert (make_plan(refhmc.models.Funnel(2), kernel, 100).blocks[0].hierarchical is not None) == looks


def test_the_leapfrog_does_not_fit():
    with pytest.raises(ValueError, match="constant for the leapfrog"):
        refhmc.HMC(metric=Hierarchical(), integrator=Leapfrog())


def test_blocks_of_gibbs_and_arrays_cannot_learn_it():
    kernel = refhmc.HMC(metric=Hierarchical())
    with pytest.raises(ValueError, match="block 'x' must not be adapted from gradients.*got Hierarchical"):
        make_plan(refhmc.models.Funnel(2), refhmc.Gibbs({"v": refhmc.HMC(), "x": kernel}), 100)
    with pytest.raises(ValueError, match="got Hierarchical, which is adapted from gradients"):
        refhmc.sample(refhmc.models.Funnel(2), kernel, backend="arrays", draws=2, tune=2, **QUIET)


def test_a_metric_of_another_kind_has_no_blocks():
    with pytest.raises(MetricError, match="learned"):
        Hierarchical(np.zeros((1, 2)), blocks=[["a"]])


def run(chain: Chain, n: int) -> np.ndarray:
    draws = np.zeros((n, chain.model.dim))
    chain.run(draws, np.zeros((n, N_STATS)))
    return draws


def chain_of(kernel, tune: int, seed: int = 1) -> Chain:
    model = refhmc.models.Funnel(10)
    chain = Chain(model, make_plan(model, kernel, tune), np.random.default_rng(seed))
    chain.start(np.full(model.dim, 0.1))
    return chain


def put_exact_draws(chain: Chain, seed: int = 5) -> None:
    """Replace the draws that a chain has kept by exact ones, so that the result does not depend on its course."""
    block = chain.blocks[0]
    block.kept[:], block.kept_gradients[:] = exact(refhmc.models.Funnel(10), len(block.kept), seed)


def make_hierarchical(chain: Chain) -> np.ndarray:
    """Run a new chain to the end of a window, with exact draws for all of the window but the last iteration."""
    before = run(chain, WINDOW - 1)
    put_exact_draws(chain)
    draws = np.concatenate([before, run(chain, 1)])
    assert chain.blocks[0].progress[0].hierarchical
    return draws


def shorten(block) -> None:
    """Set the trajectory length to that of a normal, so that the learned one does not depend on the course of the chain."""
    settings = block.settings[0]
    block.length[0].length = settings.trajectory_length = np.pi / 2
    settings.longest = settings.trajectory_length * (1 + settings.length_jitter)


@pytest.mark.parametrize("kernel", [refhmc.HMC(), refhmc.NUTS(), refhmc.HMC(metric=Hierarchical())])
def test_a_chain_changes_to_the_hierarchical_metric_and_back(kernel):
    chain = chain_of(kernel, 500)
    block = chain.blocks[0]
    last = int(block.plan.windows[-1, 1])
    run(chain, last - 1)
    put_exact_draws(chain)
    shorten(block)
    run(chain, 1)
    assert block.progress[0].hierarchical
    assert isinstance(block.dynamics.integrator, BlockLeapfrog)
    assert block.own[0].tolist() == [0] + [1] * 10
    assert block.vecs[int(HIERARCHY.vectors["ignored"])].tolist() == [0] + [1] * 10
    assert block.warmup[0].target == 0.9
    metric = block.dynamics.metric.from_rows(block.vecs, block.mats)
    np.testing.assert_allclose(metric.masses(np.zeros(11))[1:], 1.0, rtol=0.8)  # six standard errors of 225 draws
    if kernel.name == "hmc":
        # A quarter of the period of v: 3 (1/9 + 5)^1/2 pi/2 = 10.7
        assert 6 < block.length[0].least < 18
        assert block.length[0].length >= block.length[0].least
    run(chain, 30)
    # A window of a normal: the metric is of low rank again.
    again = chain_of(kernel, 500, seed=2)
    block = again.blocks[0]
    before = int(block.plan.windows[block.plan.windows[:, 0] == 1][-2, 2])
    run(again, before - 1)
    put_exact_draws(again)
    run(again, 1)
    assert block.progress[0].hierarchical
    run(again, last - before - 1)
    x = np.random.default_rng(1).normal(size=block.kept.shape)
    block.kept[:], block.kept_gradients[:] = x, -x
    run(again, 1)
    assert not block.progress[0].hierarchical
    assert isinstance(block.dynamics.integrator, Leapfrog)
    assert isinstance(block.dynamics.metric, LowRank)
    assert block.warmup[0].target == 0.8
    if kernel.name == "hmc":
        assert block.length[0].least == np.pi / 2
    run(again, 30)


@pytest.mark.parametrize("kernel", [refhmc.HMC(), refhmc.NUTS(metric=Hierarchical())])
def test_a_saved_chain_continues_bit_for_bit(kernel):
    whole, parts = chain_of(kernel, 500), chain_of(kernel, 500)
    expected, here = [], []
    for chain, into in ((whole, expected), (parts, here)):
        into.append(make_hierarchical(chain))
        into.append(run(chain, 56))
    other = chain_of(kernel, 500).restore(parts.to_bytes())
    assert np.array_equal(other.blocks[0].own[0], parts.blocks[0].own[0])
    for chain, into in ((whole, expected), (other, here)):
        into.append(run(chain, 300))
    assert np.array_equal(np.concatenate(expected), np.concatenate(here))


def test_what_was_learned_is_stored_and_starts_another_warm_up():
    """One chain has a hierarchical metric, the other one of low rank."""
    kernel, learned_by = refhmc.HMC(), []
    for seed, is_funnel in ((1, True), (2, False)):
        chain = chain_of(kernel, 500, seed)
        run(chain, int(chain.blocks[0].plan.windows[-1, 1]) - 1)
        if is_funnel:
            put_exact_draws(chain)
        else:
            x = np.random.default_rng(1).normal(size=chain.blocks[0].kept.shape)
            chain.blocks[0].kept[:], chain.blocks[0].kept_gradients[:] = x, -x
        run(chain, 1)
        learned_by.append(adapted_of(chain.blocks[0]))
    assert [type(each.metric) for each in learned_by] == [Hierarchical, LowRank]
    assert [each.integrator for each in learned_by] == ["BlockLeapfrog", "Leapfrog"]
    group = as_dataset(learned_by, [0, 1])
    again = from_dataset(group)
    assert [type(each.metric) for each in again] == [Hierarchical, LowRank]
    assert [each.integrator for each in again] == ["BlockLeapfrog", "Leapfrog"]
    for first, other in zip(learned_by[0].metric.exponents, again[0].metric.exponents, strict=True):
        assert np.array_equal(first, other)
    np.testing.assert_allclose(again[1].metric.inverse_mass(11), learned_by[1].metric.inverse_mass(11), rtol=1e-14)
    for each in again:
        chain = chain_of(kernel, 0, 3)
        begin_from(chain.blocks[0], each)
        assert chain.blocks[0].progress[0].hierarchical == isinstance(each.metric, Hierarchical)
        assert np.all(np.isfinite(run(chain, 20)))


def test_a_run_reports_the_funnel_and_starts_the_next_one():
    """All of this holds whether or not a chain finds the hierarchy in its own draws."""
    model = refhmc.models.Funnel(10)
    with pytest.warns(refhmc.errors.SamplingWarning):  # few draws
        result = refhmc.sample(model, refhmc.HMC(), draws=50, tune=400, random_seed=1, **QUIET)
    found = sum(isinstance(each.metric, Hierarchical) for each in result.adapted)
    said = result.attributes["adaptation"].startswith("funnel detected: hierarchical metric on v")
    assert said == (found > 0)
    assert ("funnel detected" in repr(result)) == said
    with pytest.warns(refhmc.errors.SamplingWarning):
        more = refhmc.sample(model, refhmc.HMC(), draws=50, tune=0, warmup=result, random_seed=2, **QUIET)
    assert [type(each.metric) for each in more.adapted] == [type(each.metric) for each in result.adapted]
    assert [each.step_size for each in chains_of(more)] == [each.step_size for each in result.adapted]


@pytest.mark.parametrize(
    ("row", "column", "value", "words"),
    [
        (FIRST + TERMS, 3, 99.0, "indices"),  # a parent
        (FIRST + 1, 3, np.nan, "finite"),  # a constant
        (FIRST + TERMS + 2 * PARENTS + PARENTS, 0, np.inf, "finite"),  # a coefficient
        (FIRST + TERMS + 2 * PARENTS + TERMS * PARENTS + 3, 0, 99.0, "directions"),  # the number of directions
    ],
)
def test_an_invalid_saved_metric_is_rejected(row, column, value, words):
    chain = chain_of(refhmc.HMC(), 500)
    make_hierarchical(chain)
    run(chain, 56)
    chain.blocks[0].vecs[row, column] = value
    with pytest.raises(refhmc.errors.CheckpointError, match=words):
        chain_of(refhmc.HMC(), 500).restore(chain.to_bytes())


def checked(chain: Chain, kernel, done: int) -> None:
    """Check the saved state as a run does that resumes."""
    task = ChainTask(chain.model, kernel, 0, 1, np.full(chain.model.dim, 0.1), 500, 500)
    chain.rng = chain_generator(1, 0)
    saved = Saved(chain.to_bytes(), done, np.full(chain.model.dim, np.nan), one(CONTROL)[0])
    saved.control.draws_done = done
    check_saved(saved, None, task, make_plan(task.model, kernel, 500), same_code=True)


@pytest.mark.parametrize("kernel", [refhmc.HMC(), refhmc.NUTS()])
def test_states_after_the_change_are_accepted_unless_they_are_altered(kernel):
    chain = chain_of(kernel, 500)
    make_hierarchical(chain)
    for done in range(WINDOW, 310):
        if done % 10 == 0 or done < WINDOW + 5:
            checked(chain, kernel, done)
        run(chain, 1)
    block = chain.blocks[0]
    kept = block.vecs.copy()
    shrink = FIRST + TERMS + 2 * PARENTS + TERMS * PARENTS + 2
    for row, value in ((FIRST + TERMS, 0.5), (shrink, 0.3)):
        block.vecs[row, 0] += value
        with pytest.raises(refhmc.errors.CheckpointError, match="not a hierarchical metric"):
            checked(chain, kernel, 310)
        block.vecs[:] = kept
    checked(chain, kernel, 310)


def heavy_tails(chain: Chain) -> None:
    """Replace the draws that a chain has kept by exact ones of independent Student t with three degrees of freedom."""
    block = chain.blocks[0]
    x = block.kept[:] = np.random.default_rng(2).standard_t(3, size=block.kept.shape)
    block.kept_gradients[:] = -4 * x / (3 + x**2)


@pytest.mark.parametrize(("divergences", "from_draws"), [(3, False), (5, True), (40, True)])
@pytest.mark.parametrize("kernel", [refhmc.NUTS(), refhmc.HMC(), refhmc.NUTS(metric=LowRank())])
def test_scales_come_from_the_draws_if_transitions_diverge_often(kernel, divergences, from_draws):
    """At least 5 of the 206 iterations from 244 to 450, where the last one may add to them. Only the default does this."""
    chain = chain_of(kernel, 500)
    block = chain.blocks[0]
    run(chain, 449)
    heavy_tails(chain)
    block.progress[0].divergences = divergences
    run(chain, 1)
    found = bool(block.progress[0].from_draws)
    assert found == (from_draws and kernel.metric is None)
    of_draws = block.kept.var(axis=0, ddof=1)  # the rows are those of the last window, 225 to 450
    assert np.allclose(block.vecs[0], of_draws, rtol=1e-12) == found
    if found:
        assert block.history[:, 3][block.history[:, 0] == 450].tolist() == [-1]
    checked(chain, kernel, 450)
    run(chain, 30)
    checked(chain, kernel, 480)


def test_a_saved_state_of_a_kernel_without_the_metric_is_rejected():
    chain = chain_of(refhmc.NUTS(metric=LowRank()), 500)
    run(chain, 100)
    checked(chain, refhmc.NUTS(metric=LowRank()), 100)
    for value in (1, 7):
        chain.blocks[0].progress[0].hierarchical = value
        with pytest.raises(refhmc.errors.CheckpointError, match=r"progress\.hierarchical"):
            checked(chain, refhmc.NUTS(metric=LowRank()), 100)
