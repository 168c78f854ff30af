"""AR, GARCH, Gaussian mixture and Gaussian process.

The densities are compared with independent implementations in high precision, and the posteriors with the published draws.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from refhmc.models.ar import AR
from refhmc.models.datasets import posteriordb
from refhmc.models.garch import GARCH
from refhmc.models.gaussian_mixture import GaussianMixture
from refhmc.models.gaussian_process_regression import GaussianProcessRegression
from tests.helpers.sweeps import representatives

mp.mp.dps = 40

# ----------------------------------------- definitions of the models


def normal(y, m, s):
    return -mp.log(s) - ((y - m) / s) ** 2 / 2


def half_cauchy(x, s):
    return -mp.log(1 + (x / s) ** 2)


def sigmoid(u):
    return 1 / (1 + mp.exp(-u))


def ar_text(q, known):
    y, (alpha, *beta, u) = [mp.mpf(v) for v in known["y"]], q
    K, sigma = len(beta), mp.exp(u)
    total = sum(normal(b, 0, 10) for b in (alpha, *beta)) + half_cauchy(sigma, mp.mpf(2.5)) + u
    for t in range(K, len(y)):
        total += normal(y[t], alpha + sum(beta[k] * y[t - 1 - k] for k in range(K)), sigma)
    return total, [alpha, *beta, sigma]


def garch_text(q, known):
    y, mu = [mp.mpf(v) for v in known["y"]], q[0]
    alpha0, alpha1, r = mp.exp(q[1]), sigmoid(q[2]), sigmoid(q[3])
    beta1 = r * (1 - alpha1)
    total = q[1] + mp.log(alpha1 * (1 - alpha1)) + mp.log(1 - alpha1) + mp.log(r * (1 - r))
    variance = mp.mpf(known["sigma1"]) ** 2
    for t in range(len(y)):
        if t > 0:
            variance = alpha0 + alpha1 * (y[t - 1] - mu) ** 2 + beta1 * variance
        total += normal(y[t], mu, mp.sqrt(variance))
    return total, [mu, alpha0, alpha1, beta1]


def mixture_text(q, known):
    mu, sigma, theta = (q[0], q[0] + mp.exp(q[1])), (mp.exp(q[2]), mp.exp(q[3])), sigmoid(q[4])
    total = q[1] + q[2] + q[3] + mp.log(theta) + mp.log(1 - theta)
    total += 4 * mp.log(theta) + 4 * mp.log(1 - theta)  # Beta(5, 5)
    total += sum(normal(m, 0, 2) for m in mu) - (sigma[0] ** 2 + sigma[1] ** 2) / 8
    for y in known["y"]:
        first, second = (mp.exp(normal(mp.mpf(y), mu[k], sigma[k])) for k in (0, 1))
        total += mp.log(theta * first + (1 - theta) * second)
    return total, [*mu, *sigma, theta]


def process_text(q, known):
    rho, alpha, sigma = (mp.exp(u) for u in q)
    x, y = known["x"], mp.matrix([mp.mpf(v) for v in known["y"]])
    n = len(x)
    K = mp.matrix(n, n)
    for i in range(n):
        for j in range(n):
            K[i, j] = alpha**2 * mp.exp(-(mp.mpf(x[i] - x[j]) ** 2) / (2 * rho**2)) + (sigma if i == j else 0)
    total = -(y.T * mp.lu_solve(K, y))[0] / 2 - mp.log(mp.det(K)) / 2
    total += 24 * mp.log(rho) - 4 * rho - alpha**2 / 8 - sigma**2 / 2 + sum(q)
    return total, [rho, alpha, sigma]


TEXTS = {
    "arK-arK": (AR, ar_text),
    "garch-garch11": (GARCH, garch_text),
    "low_dim_gauss_mix-low_dim_gauss_mix": (GaussianMixture, mixture_text),
    "gp_pois_regr-gp_regr": (GaussianProcessRegression, process_text),
}
named = pytest.mark.parametrize("name", TEXTS)


def positions(d):
    rng = np.random.default_rng(11)
    yield from rng.uniform(-2, 2, (3, d))
    yield from rng.uniform(-6, 6, (2, d))
    yield 1e-9 * rng.standard_normal(d)
    yield np.ones(d)


@named
def test_log_density_and_constrained_values_are_those_of_the_definition(name):
    constructor, text = TEXTS[name]
    model, known = constructor(), posteriordb(name)["data"]
    origin = np.zeros(model.dim)
    expected_0, actual_0 = text([mp.mpf(0)] * model.dim, known)[0], model.log_density(origin)
    for q in positions(model.dim):
        expected, values = text([mp.mpf(v) for v in q], known)
        difference = model.log_density(q) - actual_0  # the constant is free
        assert difference == pytest.approx(float(expected - expected_0), rel=1e-11, abs=1e-9)
        flat = np.concatenate([np.ravel(v) for v in model.constrain(q).values()])
        np.testing.assert_allclose(flat, [float(v) for v in values], rtol=1e-13)


@named
def test_constrain_broadcasts_and_names_agree_with_the_reference(name):
    model = TEXTS[name][0]()
    q = np.random.default_rng(0).uniform(-2, 2, (3, 4, model.dim))
    for key, value in model.constrain(q).items():
        assert value.shape[:2] == (3, 4)
        np.testing.assert_array_equal(value[1, 2], model.constrain(q[1, 2])[key])
    published = [v.replace("[", " ").replace("]", "").split() for v in posteriordb(name)["names"]]
    ours = [v[0] if len(v) == 1 else f"{v[0]}[{int(v[1]) - 1}]" for v in published]
    assert model.reference_names == ours
    assert model.reference.mean.shape == model.reference.variance.shape == (len(ours),)


@pytest.mark.parametrize("name", representatives(TEXTS, ["arK-arK"]))
def test_posterior_agrees_with_the_published_draws(name):
    """Importance sampling from a t distribution at the mode, with the Hessian of the model for its shape."""
    model, rng = TEXTS[name][0](), np.random.default_rng(5)
    start = {"garch-garch11": np.array([5.0, 0.4, 0.3, 0.0])}.get(name, np.zeros(model.dim))
    found = scipy.optimize.minimize(lambda q: -model.log_density(q), start, jac=lambda q: -model.gradient(q))
    mode, shape = found.x, np.linalg.inv(-model.hessian(found.x))
    law = scipy.stats.multivariate_t(mode, 1.3 * (shape + shape.T) / 2, df=5, seed=rng)
    q = law.rvs(20_000)
    log_weights = np.array([model.log_density(row) for row in q]) - law.logpdf(q)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    assert 1 / np.sum(weights**2) > 2_000
    values = np.column_stack([v.reshape(len(q), -1) for v in model.constrain(q).values()])
    reference = model.reference
    mean = weights @ values
    mean_se = np.sqrt(weights**2 @ (values - mean) ** 2)
    assert np.all(np.abs(mean - reference.mean) < 4.5 * np.hypot(mean_se, reference.mean_se))
    squares = (values - mean) ** 2
    variance = weights @ squares
    variance_se = np.sqrt(weights**2 @ (squares - variance) ** 2)
    assert np.all(np.abs(variance - reference.variance) < 4.5 * np.hypot(variance_se, reference.variance_se))


@pytest.mark.parametrize("name", representatives(TEXTS, ["arK-arK", "garch-garch11"]))
def test_finite_at_usual_starts(name):
    model = TEXTS[name][0]()
    for q in np.random.default_rng(2).uniform(-2, 2, (200, model.dim)):
        assert np.isfinite(model.log_density(q))
        assert np.isfinite(model.gradient(q)).all()


# ------------------------------------------------------------------------------------------------------ special cases


def test_extreme_positions_do_not_overflow():
    mixture = GaussianMixture()
    far = np.array([-40.0, 4.0, -3.0, -3.0, 30.0])  # no observation near either component
    expected, _ = mixture_text([mp.mpf(v) for v in far], posteriordb("low_dim_gauss_mix-low_dim_gauss_mix")["data"])
    near = np.zeros(5)
    expected -= mixture_text([mp.mpf(v) for v in near], posteriordb("low_dim_gauss_mix-low_dim_gauss_mix")["data"])[0]
    assert mixture.log_density(far) - mixture.log_density(near) == pytest.approx(float(expected), rel=1e-12)
    garch = GARCH()
    for q in ([0.0, 300.0, 0.0, 0.0], [0.0, -300.0, -5.0, -5.0], [5.0, 0.0, 600.0, 600.0], [5.0, 0.0, -600.0, -600.0]):
        assert np.isfinite(garch.log_density(q))
        assert np.isfinite(garch.gradient(q)).all()
    # log h summed through products: each h here is out of the range of the product
    wide = GARCH(y=np.full(5, 1.0), sigma1=1e120)
    q = np.array([0.0, 550.0, -3.0, -3.0])
    expected = garch_text([mp.mpf(v) for v in q], {"y": [1.0] * 5, "sigma1": 1e120})[0]
    assert wide.log_density(q) == pytest.approx(float(expected), rel=1e-13)


@pytest.mark.sweep
def test_process_with_singular_covariance():
    model = GaussianProcessRegression(x=np.zeros(8), y=np.arange(8.0))
    q = np.array([0.0, 3.0, -60.0])
    assert model.log_density(q) == -np.inf
    assert model.core.value_and_gradient(q)[0] == -np.inf
    for key in ("gradient", "hessian", "third_derivative", "fisher", "fisher_derivative"):
        assert not getattr(model, key)(q).any()
    assert not model.hessian_contraction(q, np.ones((3, 3))).any()


@pytest.mark.sweep
def test_process_with_length_scale_whose_square_underflows():
    """K is diagonal to rounding below rho = e^-30. At e^-500 1 / rho^2 overflows, and the derivatives must be the same."""
    model = GaussianProcessRegression()
    near, far = np.array([-30.0, 0.3, -0.4]), np.array([-500.0, 0.3, -0.4])
    assert model.gradient(far)[0] == 25.0
    for key in ("gradient", "hessian", "third_derivative", "fisher", "fisher_derivative"):
        np.testing.assert_allclose(getattr(model, key)(far), getattr(model, key)(near), rtol=1e-9, atol=1e-11)
    M = np.array([[1.0, 2.0, 0.0], [2.0, 3.0, 1.0], [0.0, 1.0, 4.0]])
    np.testing.assert_allclose(
        model.hessian_contraction(far, M), model.hessian_contraction(near, M), rtol=1e-9, atol=1e-11
    )


def test_ar_with_a_singular_design():
    """A constant series: its lags repeat the constant, and only the sum of squares matters."""
    model = AR(y=np.full(9, 2.0), K=2)
    q, known = np.array([0.3, 0.5, -0.2, 0.1]), {"y": [2.0] * 9}
    difference = model.log_density(q) - model.log_density(np.zeros(4))
    expected = ar_text([mp.mpf(v) for v in q], known)[0] - ar_text([mp.mpf(0)] * 4, known)[0]
    assert difference == pytest.approx(float(expected), rel=1e-11)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AR(y=np.zeros(5), K=5),
        lambda: AR(y=np.zeros((5, 2)), K=1),
        lambda: AR(K=3),
        lambda: AR(y=[0.0, np.nan, 1.0, 2.0], K=1),
        lambda: GARCH(y=np.zeros(5)),
        lambda: GARCH(y=np.zeros(5), sigma1=0.0),
        lambda: GaussianMixture(y=[]),
        lambda: GaussianProcessRegression(x=[1.0, 2.0], y=[1.0]),
        lambda: GaussianProcessRegression(x=[1.0, 2.0]),
    ],
)
def test_bad_data(make):
    with pytest.raises(ValueError):
        make()
