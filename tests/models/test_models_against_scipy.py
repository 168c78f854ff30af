"""Gaussian, banana, logistic and linear regression, eight schools: densities, references, data, invalid input."""

from __future__ import annotations

import math
import pickle

import mpmath
import numpy as np
import pytest
import scipy.integrate
from scipy import stats

import refhmc
from refhmc import HMC
from refhmc.compile.compiled import plain
from refhmc.core.sample_stats import N_STATS
from refhmc.dynamics.assemble import functions_for
from refhmc.errors import MetricError, ShapeError
from refhmc.metrics import Fisher
from refhmc.models import datasets, logistic_regression
from refhmc.models.banana import Banana
from refhmc.models.eight_schools import EightSchools
from refhmc.models.gaussian import Gaussian
from refhmc.models.linear_regression import LinearRegression
from refhmc.models.logistic_regression import BreastCancer, Diabetes, Heart, LogisticRegression
from refhmc.sampling.chains.chain import Chain, make_plan

# 16 digits of 40-digit quadrature: mean of theta[0], variances of theta[0] and theta[1], two quantiles
BANANA = {
    0.8: (-0.2433433056867719, 1.250127586150467, 1.04577673874364, -2.523179148585428, -1.626886837652494),
    1.0: (-0.1083513606495465, 1.351558202667602, 1.109434874256042, -2.469022213350908, -1.66747919595361),
    1.2: (0.02136152303758148, 1.461347048481115, 1.178424861732043, -2.421203832954408, -1.709198296534504),
}


def dense(d, seed=0):
    A = np.random.default_rng(seed).standard_normal((d, d))
    return A @ A.T / d + np.eye(d)


def assert_same_up_to_a_constant(model, log_density, scale=1.0, center=0.0, rtol=1e-11):
    """Compare differences between random points with those of the independent ``log_density``."""
    rng = np.random.default_rng(1)
    points = [center + scale * rng.standard_normal(model.dim) for _ in range(8)]
    mine = np.array([model.log_density(q) for q in points])
    other = np.array([log_density(q) for q in points])
    np.testing.assert_allclose(mine - mine[0], other - other[0], rtol=rtol, atol=1e-9)


# --------------------------------------------------------------------------------------------------------- Gaussian


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("diagonal", [True, False])
def test_gaussian_density_and_gradient(d, diagonal):
    S = np.diag(np.arange(1.0, d + 1)) if diagonal else dense(d)
    mean = np.linspace(-1, 2, d)
    model = Gaussian(mean, S)
    assert model.data.shape == (2 if diagonal or d == 1 else d + 1, d)
    assert_same_up_to_a_constant(model, stats.multivariate_normal(mean, S).logpdf)
    x = np.random.default_rng(3).standard_normal(d)
    np.testing.assert_allclose(model.gradient(x), -np.linalg.solve(S, x - mean), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.fisher(x), np.linalg.inv(S), rtol=1e-12, atol=1e-13)


def test_gaussian_dense_and_diagonal_functions_agree():
    S = np.diag([0.5, 2.0, 3.0])
    nearly = S.copy()
    nearly[0, 1] = nearly[1, 0] = 1e-300  # enough to be treated as a dense covariance
    x = np.array([1.0, -2.0, 0.3])
    for derivative in ("log_density", "gradient", "hessian", "third_derivative", "fisher", "fisher_derivative"):
        a, b = (getattr(Gaussian(1.0, matrix), derivative)(x) for matrix in (S, nearly))
        np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-299)


def test_gaussian_reference_and_draws():
    S = dense(4)
    reference = Gaussian([1, 2, 3, 4], S).reference
    x = reference.draw(np.random.default_rng(0), 200_000)
    np.testing.assert_array_equal(reference.mean, [1, 2, 3, 4])
    np.testing.assert_array_equal(reference.variance, np.diag(S))
    np.testing.assert_allclose(x.mean(axis=0), reference.mean, atol=0.015)
    np.testing.assert_allclose(np.cov(x.T), S, atol=0.03)
    y = Gaussian(2, np.diag([4.0, 9.0])).reference.draw(np.random.default_rng(0), 200_000)
    np.testing.assert_allclose(y.var(axis=0), [4, 9], rtol=0.02)


@pytest.mark.parametrize(
    ("mean", "covariance", "error", "words"),
    [
        (0, [[1, 2], [2, 1]], MetricError, r"covariance must be positive definite.* -1\b"),
        (0, [[1, 0], [0, -3]], MetricError, r"covariance must be positive definite.* -3\b"),
        (0, [[1, 0], [0, 0]], MetricError, r"covariance must be positive definite.* 0\b"),
        (0, [[1, 0.5], [0.4, 1]], MetricError, "symmetric"),
        (0, [[1, math.nan], [math.nan, 1]], MetricError, "finite"),
        ([0, math.inf], np.eye(2), MetricError, "finite"),
        (0, [1, 2], ShapeError, r"\(2,\)"),
        (0, np.ones((2, 3)), ShapeError, r"\(2, 3\)"),
        ([0, 0, 0], np.eye(2), ShapeError, r"\(3,\)"),
        (0, np.zeros((0, 0)), ShapeError, r"\(0, 0\)"),
    ],
)
def test_gaussian_bad_input(mean, covariance, error, words):
    with pytest.raises(error, match=words):
        Gaussian(mean, covariance)


# ----------------------------------------------------------------------------------------------------------- banana


def test_banana_density():
    y = np.random.default_rng(0).normal(1, 2, 30)

    def log_density(theta):
        prior = stats.norm(0, 1.5).logpdf(theta).sum()
        return prior + stats.norm(theta[0] + theta[1] ** 2, 0.7).logpdf(y).sum()

    assert_same_up_to_a_constant(Banana(y, sigma_y=0.7, sigma_theta=1.5), log_density)


@pytest.mark.parametrize("ybar", BANANA)
def test_banana_reference(ybar):
    mean, variance1, variance2, quantile1, quantile2 = BANANA[ybar]
    model = Banana(np.full(100, ybar))
    np.testing.assert_allclose(model.reference.mean, [mean, 0.0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(model.reference.variance, [variance1, variance2], rtol=1e-12)
    draws = model.reference.draw(np.random.default_rng(0), 100_000)
    assert draws.shape == (100_000, 2)
    for column, quantile in zip(draws.T, (quantile1, quantile2), strict=True):
        assert abs(np.mean(column < quantile) - 0.05) < 4 * math.sqrt(0.05 * 0.95 / len(draws))


@pytest.mark.parametrize(("ybar", "n", "sigma_y", "sigma_theta"), [(-3, 10, 1, 1), (30, 50, 2, 3), (0, 1, 10, 0.1)])
def test_banana_draws_with_other_data(ybar, n, sigma_y, sigma_theta):
    reference = Banana(np.full(n, float(ybar)), sigma_y, sigma_theta).reference
    draws = reference.draw(np.random.default_rng(0), 50_000)
    z = (draws.mean(axis=0) - reference.mean) / np.sqrt(reference.variance / len(draws))
    assert np.abs(z).max() < 4
    np.testing.assert_allclose(draws.var(axis=0), reference.variance, rtol=0.05)


def test_banana_bad_input():
    with pytest.raises(ValueError, match="y must be.*finite"):
        Banana([])
    with pytest.raises(ValueError, match="y must be.*finite"):
        Banana([1.0, math.nan])
    with pytest.raises(ValueError, match="positive"):
        Banana(sigma_y=0)


# --------------------------------------------------------------------------------------------- logistic regression


@pytest.mark.parametrize(("n", "d"), [(1, 1), (3, 4), (511, 3), (512, 5), (1025, 6), (40, 31)])
def test_logistic_density(n, d):
    rng = np.random.default_rng(n)
    X, y = rng.standard_normal((n, d)), rng.integers(0, 2, n)

    def log_density(beta):
        eta = X @ beta
        return stats.norm(0, 1.7).logpdf(beta).sum() - np.logaddexp(0, np.where(y == 1, -eta, eta)).sum()

    model = LogisticRegression(X, y, 1.7)
    assert_same_up_to_a_constant(model, log_density)
    assert_same_up_to_a_constant(model, log_density, scale=1000)
    assert model.log_density(np.zeros(d)) == pytest.approx(-n * math.log(2), rel=1e-13)
    beta = rng.standard_normal(d)
    p = 1 / (1 + np.exp(-X @ beta))
    np.testing.assert_allclose(model.gradient(beta), X.T @ (y - p) - beta / 1.7**2, rtol=1e-10, atol=1e-11)
    curvature = X.T @ ((p * (1 - p))[:, None] * X) + np.eye(d) / 1.7**2
    np.testing.assert_allclose(model.fisher(beta), curvature, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(model.hessian(beta), -curvature, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("margin", [1e-12, 0.3, 30.0, 200.0, 700.0, 705.0])
def test_logistic_likelihood_keeps_all_digits(margin):
    # a prior so wide that only the likelihood of correctly classified observations matters
    model = LogisticRegression([[1.0], [-1.0]], [1, 0], prior_scale=1e170)
    assert model.log_density([margin]) == pytest.approx(-2 * float(mpmath.log1p(mpmath.exp(-margin))), rel=1e-13)
    assert model.log_density([-margin]) == pytest.approx(-2 * float(mpmath.log1p(mpmath.exp(margin))), rel=1e-13)
    assert model.gradient([margin])[0] == pytest.approx(2 / float(1 + mpmath.exp(margin)), rel=1e-12)
    v = mpmath.exp(-margin) / (1 + mpmath.exp(-margin)) ** 2
    assert -model.hessian([margin])[0, 0] == pytest.approx(2 * float(v), rel=1e-12)
    third = 2 * float(v * mpmath.tanh(margin / 2))
    assert model.third_derivative([margin])[0, 0, 0] == pytest.approx(third, rel=1e-12)


def evaluate_in_order(pointers, order, q, M):
    """Return L, its gradient, the metric and the contraction at q, called in the given order."""
    data, value_and_gradient, metric, hessian_contraction, _ = pointers
    d = len(q)
    value, gradient, G, contraction = np.zeros(1), np.zeros(d), np.zeros((d, d)), np.zeros(d)
    for which in order:
        if which == 0:
            value[0] = value_and_gradient(q, data, gradient)
        elif which == 1:
            metric(q, data, G)
        else:
            hessian_contraction(q, data, M, contraction)
    return np.concatenate([value, gradient, G.ravel(), contraction])


def test_logistic_terms_are_stored_in_the_copy_of_a_chain():
    rng = np.random.default_rng(8)
    model = LogisticRegression(rng.standard_normal((40, 5)), rng.uniform(size=40) < 0.4)
    M, shared = dense(5), functions_for(model, Fisher())
    own = model.core.with_room(shared)
    assert [len(shared[0]), len(own[0])] == [6, 6 + model.scratch_rows]
    first, second = rng.standard_normal((2, 5))
    for q in (np.zeros(5), first, second, first, first, np.full(5, np.nan), first, np.zeros(5)):
        for order in rng.permutation(3), rng.permutation(3):
            np.testing.assert_array_equal(*(evaluate_in_order(pointers, order, q, M) for pointers in (shared, own)))
    assert pickle.loads(pickle.dumps(model)).scratch_rows == model.scratch_rows
    assert LogisticRegression(np.ones((3, 2)), [1, 0, 1]).scratch_rows == 0  # a position does not fit into a row


def test_logistic_chains_do_not_share_stored_terms():
    model = Heart()
    kernel = HMC(step_size=0.2, n_steps=3, metric=Fisher())
    options = {"draws": 40, "tune": 0, "chains": 4, "progressbar": False, "raw": True, "random_seed": 3}
    in_turn, at_once = (refhmc.sample(model, kernel, cores=cores, **options).draws for cores in (1, 4))
    np.testing.assert_array_equal(in_turn, at_once)
    chain = Chain(model, make_plan(model, kernel, 0), np.random.default_rng(1))
    without = Chain(model, chain.plan, np.random.default_rng(1))
    with_room, alone = (each.blocks[0] for each in (chain, without))
    alone.pointers = alone.plan.dynamics.model
    chain.plan.compile(model.name)
    draws = []
    for each in (chain, without):
        each.start(in_turn[0, -1])
        draws.append(np.zeros((10, model.dim)))
        assert each.run(draws[-1], np.zeros((10, N_STATS))) == 10
    assert not np.shares_memory(with_room.pointers[0], alone.pointers[0])
    np.testing.assert_array_equal(*draws)


def test_logistic_beyond_the_range_of_exp():
    model = LogisticRegression([[1.0], [1.0]], [1, 0])
    for q in (800.0, -1e5, 1e150):
        assert model.log_density([q]) == pytest.approx(-abs(q) - q * q / 2)
        assert model.gradient([q])[0] == pytest.approx(-np.sign(q) - q)
        np.testing.assert_array_equal(model.hessian([q]), [[-1]])
    assert np.isnan(model.log_density([math.nan]))
    assert np.isnan(model.gradient([math.nan])).all()
    assert not np.isfinite(model.log_density([math.inf]))


def test_exponentials():
    rng = np.random.default_rng(0)
    x = -np.concatenate(
        [[0.0, 1e-300, 708.0], 700 * rng.random(500), rng.random(500), 10.0 ** -rng.uniform(0, 20, 500)]
    )
    f, power = x.copy(), np.empty(len(x))
    logistic_regression.exponentials(f, power, power.view(np.int64))
    exact = [mpmath.exp(mpmath.mpf(t)) for t in x]
    less_one = [mpmath.expm1(mpmath.mpf(t)) for t in x]
    errors = [float(abs(e - t)) / np.spacing(float(t)) for e, t in zip(power * (1 + f), exact, strict=True)]
    assert max(errors) < 1.5
    np.testing.assert_allclose((power - 1) + power * f, np.array(less_one, dtype=float), rtol=1e-15)
    plain_f, plain_power = x + 0j, np.empty(len(x))
    plain(logistic_regression.exponentials)(plain_f, plain_power, plain_power.view(np.int64))
    np.testing.assert_array_equal(power, plain_power)
    np.testing.assert_allclose(f, plain_f.real, rtol=1e-15)
    far = np.array([-709.0, -745.0, -800.0, math.nan])
    power = np.empty(4)
    logistic_regression.exponentials(far, power, power.view(np.int64))
    np.testing.assert_array_equal(power * (1 + far), [0, 0, 0, math.nan])


@pytest.mark.parametrize(
    ("make", "load", "key", "shape", "ones"),
    [
        (BreastCancer, datasets.breast_cancer, "breast_cancer_ljubljana", (200, 10), 59),
        (Diabetes, datasets.diabetes, "diabetes_pima", (468, 9), 167),
        (Heart, datasets.heart, "heart_statlog", (170, 14), 68),
    ],
)
def test_classification_data_and_references(make, load, key, shape, ones):
    X, y, names, description = load()
    assert X.shape == shape
    assert y.shape == shape[:1]
    assert y.sum() == ones
    assert set(y) == {0.0, 1.0}
    assert len(names) == shape[1]
    assert names[0] == "intercept"
    assert str(shape[0]) in description
    np.testing.assert_array_equal(X[:, 0], 1)
    np.testing.assert_allclose(X[:, 1:].mean(axis=0), 0, atol=1e-14)
    np.testing.assert_allclose(X[:, 1:].std(axis=0), 1, rtol=1e-13)
    model, answer = make(), datasets.load_json("logistic_posteriors")[key]
    assert answer["n"] == shape[0]
    assert model.dim == answer["d"] == shape[1]
    for field, name in (("mean", "mean"), ("variance", "var"), ("mean_se", "mean_se"), ("variance_se", "var_se")):
        np.testing.assert_array_equal(getattr(model.reference, field), answer[name])
    assert model.reference_names == [f"beta[{j}]" for j in range(model.dim)]
    mode = np.array(answer["map"])
    assert model.log_density(mode) == pytest.approx(-answer["neg_log_post_at_map"], rel=1e-10)
    # one Newton step from the published mode moves nothing
    np.testing.assert_allclose(np.linalg.solve(model.fisher(mode), model.gradient(mode)), 0, atol=1e-6)
    # the second-order expansion of the mean about the mode comes near the published mean
    covariance = np.linalg.inv(model.fisher(mode))
    correction = covariance @ model.hessian_contraction(mode, covariance) / 2
    np.testing.assert_allclose(mode + correction, answer["mean"], atol=0.1 * np.max(answer["sd"]))


@pytest.mark.parametrize(
    ("X", "y", "options", "error", "words"),
    [
        ([1, 2], [0, 1], {}, ShapeError, r"\(2,\)"),
        ([[1], [2]], [0, 1, 1], {}, ShapeError, r"\(2,\).*\(3,\)"),
        (np.zeros((0, 2)), [], {}, ShapeError, r"\(0, 2\)"),
        ([[1], [math.nan]], [0, 1], {}, ValueError, "X must be finite"),
        ([[1], [2]], [1, 2], {}, ValueError, "y must.* (0|zeros?) (and|or) (1|ones?)"),
        ([[1], [2]], [1, math.nan], {}, ValueError, "y must.* (0|zeros?) (and|or) (1|ones?)"),
        ([[1], [2]], [1, 0], {"prior_scale": 0.0}, ValueError, "positive"),
        ([[1], [2]], [1, 0], {"prior_scale": [1.0, 1.0]}, ValueError, "positive"),
    ],
)
def test_logistic_bad_input(X, y, options, error, words):
    with pytest.raises(error, match=words):
        LogisticRegression(X, y, **options)


# ----------------------------------------------------------------------------------------------------- eight schools


SCHOOLS = np.array([28, 8, -3, 7, -1, 1, 18, 12.0]), np.array([15, 10, 16, 11, 9, 11, 10, 18.0])


def schools_log_density(theta, mu, tau, y, sigma):
    prior = stats.norm(mu, tau).logpdf(theta).sum() + stats.norm(0, 5).logpdf(mu) + stats.halfcauchy(0, 5).logpdf(tau)
    return prior + stats.norm(theta, sigma).logpdf(y).sum()


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("data", [SCHOOLS, (np.array([1.0, 2.5, -4.0]), np.array([1.0, 0.3, 2.0]))])
def test_eight_schools_density(centered, data):
    model = EightSchools(centered, y=data[0], sigma=data[1])

    def log_density(q):
        tau = math.exp(q[-1])
        if centered:
            return schools_log_density(q[:-2], q[-2], tau, *data) + q[-1]
        theta = q[-2] + tau * q[:-2]  # d theta / d e = tau, for every school
        return schools_log_density(theta, q[-2], tau, *data) + (len(theta) + 1) * q[-1]

    assert_same_up_to_a_constant(model, log_density)
    assert_same_up_to_a_constant(model, log_density, scale=4)
    assert model.reference is None


def test_eight_schools_far_out():
    model = EightSchools()
    for u in (-700.0, -30.0, 30.0, 340.0):
        q = np.append(np.zeros(9), u)
        assert model.log_density(q) - model.log_density(np.zeros(10)) == pytest.approx(
            float(-mpmath.log(mpmath.cosh(u - mpmath.log(5))) + mpmath.log(mpmath.cosh(mpmath.log(5)))), rel=1e-12
        )
        assert model.gradient(q)[-1] == pytest.approx(-math.tanh(u - math.log(5)), rel=1e-14)


def test_eight_schools_variables_and_reference():
    rng = np.random.default_rng(0)
    q = rng.standard_normal((5, 3, 10))
    for model in (EightSchools(), EightSchools(centered=True)):
        values = model.constrain(q)
        assert list(values) == ["theta", "mu", "tau"]
        assert values["theta"].shape == (5, 3, 8)
        np.testing.assert_array_equal(values["tau"], np.exp(q[..., -1]))
        assert model.reference_names == [f"theta[{j}]" for j in range(8)] + ["mu", "tau"]
        summary = datasets.posteriordb("eight_schools-eight_schools_noncentered")["summary"]
        assert model.reference.mean[0] == summary["theta[1]"]["mean"]
        assert model.reference.mean[9] == summary["tau"]["mean"]
        assert model.reference.variance[8] == summary["mu"]["sd"] ** 2
        assert model.reference.mean_se[7] == summary["theta[8]"]["mcse_mean"]
        assert model.reference.variance_se[8] == 2 * summary["mu"]["sd"] * summary["mu"]["mcse_sd"]
    np.testing.assert_allclose(
        EightSchools().constrain(q)["theta"], q[..., 8:9] + np.exp(q[..., 9:]) * q[..., :8], rtol=1e-15
    )


def test_eight_schools_reference_is_the_posterior():
    # mu and tau with the school effects integrated out: y_j ~ N(mu, s_j^2 + tau^2), and mu given tau is normal
    y, sigma = SCHOOLS
    tau = np.exp(np.linspace(-12, 7, 20_001))[:, None]
    w = 1 / (sigma**2 + tau**2)
    precision = w.sum(axis=1) + 1 / 25
    mu = (w * y).sum(axis=1) / precision
    log_p = 0.5 * (np.log(w).sum(axis=1) - np.log(precision) - (w * y**2).sum(axis=1) + precision * mu**2)
    log_p += stats.halfcauchy(0, 5).logpdf(tau[:, 0]) + np.log(tau[:, 0])
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    shrink = sigma**2 * w
    theta = (shrink * mu[:, None] + (1 - shrink) * y) * p[:, None]
    exact = np.concatenate([theta.sum(axis=0), [p @ mu, p @ tau[:, 0]]])
    reference = EightSchools().reference
    assert np.max(np.abs(exact - reference.mean) / reference.mean_se) < 4


def test_eight_schools_bad_input():
    with pytest.raises(ValueError, match="together|both"):
        EightSchools(y=[1.0])
    with pytest.raises(ShapeError, match=r"sigma must.* \(1,\)"):
        EightSchools(y=[1.0, 2.0], sigma=[1.0])
    with pytest.raises(ValueError, match="positive"):
        EightSchools(y=[1.0, 2.0], sigma=[1.0, 0.0])


# ------------------------------------------------------------------------------------------------- linear regression


@pytest.mark.parametrize(("n", "d"), [(3, 1), (20, 2), (30, 5)])
def test_linear_regression_density(n, d):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)

    def log_density(q):
        sigma = math.exp(q[-1])
        likelihood = stats.norm(X @ q[:-1], sigma).logpdf(y).sum()
        return likelihood + stats.halfcauchy(0, 2.5).logpdf(sigma) + q[-1]

    assert_same_up_to_a_constant(LinearRegression(X, y), log_density)


def test_kidscore_density_and_reference():
    kids = datasets.posteriordb("kidiq-kidscore_interaction")["data"]
    y, school, iq = (np.array(kids[key], dtype=float) for key in ("kid_score", "mom_hs", "mom_iq"))
    model = LinearRegression()

    def log_density(q):
        mean = q[0] + q[1] * school + q[2] * iq + q[3] * school * iq
        sigma = math.exp(q[-1])
        return stats.norm(mean, sigma).logpdf(y).sum() + stats.halfcauchy(0, 2.5).logpdf(sigma) + q[-1]

    assert_same_up_to_a_constant(model, log_density, center=model.initial, scale=0.1)
    assert_same_up_to_a_constant(model, log_density, scale=1.0)
    assert model.reference_names == [*(f"beta[{j}]" for j in range(4)), "sigma"]
    # the mean of beta is the least-squares solution; sigma by quadrature of its marginal
    reference, (n, S0) = model.reference, model.data[-1, :2]
    u = np.linspace(2, 4, 4001)
    log_p = -(n - 4) * u - S0 * np.exp(-2 * u) / 2 + stats.halfcauchy(0, 2.5).logpdf(np.exp(u)) + u
    p = np.exp(log_p - log_p.max())
    sigma = scipy.integrate.trapezoid(p * np.exp(u), u) / scipy.integrate.trapezoid(p, u)
    exact = np.append(model.initial[:4], sigma)
    assert np.max(np.abs(exact - reference.mean) / reference.mean_se) < 4
    np.testing.assert_allclose(model.gradient(model.initial)[:4], 0, atol=1e-9)


def test_linear_regression_bad_input():
    with pytest.raises(ValueError, match="together|both"):
        LinearRegression(X=[[1.0]])
    with pytest.raises(ShapeError, match=r"\(2, 1\).*\(3,\)"):
        LinearRegression([[1.0], [2.0]], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="independent"):
        LinearRegression([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], [1.0, 2.0, 4.0])
    with pytest.raises(ValueError, match="more rows"):
        LinearRegression([[1.0]], [1.0])
    with pytest.raises(ValueError, match="exactly"):
        LinearRegression([[1.0], [2.0]], [2.0, 4.0])
    with pytest.raises(ValueError, match="finite"):
        LinearRegression([[1.0], [math.inf]], [2.0, 4.0])
