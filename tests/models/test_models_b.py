"""AR, GARCH, Gaussian mixture and Gaussian process, and the transforms that they use.

The densities are compared with independent implementations in high precision, and the posteriors with the published draws.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import refhmc.numerics.transforms as tr
from refhmc.compile.compiled import plain
from refhmc.models.ar import AR
from refhmc.models.datasets import posteriordb
from refhmc.models.garch import GARCH
from refhmc.models.gaussian_mixture import GaussianMixture
from refhmc.models.gaussian_process_regression import GaussianProcessRegression
from tests.helpers.sweeps import every, representatives

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


# ---------------------------------------------------------------------------------------------------------- transforms

TAILS = [-600.0, -37.0, -5.0, -0.3, -1e-9, 0.0, 1e-9, 0.3, 5.0, 37.0, 600.0]


def scalar_maps():
    """Return (map, log-Jacobian, forward, inverse, the map in mpmath) of each scalar transform."""
    for bound, sign in ((0.0, 1.0), (-1.5, 1.0), (2.0, -1.0)):
        yield (
            lambda u, b=bound, s=sign: tr.half_line.py_func(u, b, s),
            lambda u: tr.half_line_log_jacobian.py_func(u),
            lambda u, b=bound, s=sign: tr.half_line_forward(u, b, s),
            lambda x, b=bound, s=sign: tr.half_line_inverse(x, b, s),
            lambda u, b=bound, s=sign: b + s * mp.exp(u),
        )
    for lower, upper in ((0.0, 1.0), (-2.0, 5.0)):
        yield (
            lambda u, a=lower, b=upper: plain(tr.interval)(u, a, b),
            lambda u, a=lower, b=upper: plain(tr.interval_log_jacobian)(u, a, b),
            lambda u, a=lower, b=upper: tr.interval_forward(u, a, b),
            lambda x, a=lower, b=upper: tr.interval_inverse(x, a, b),
            lambda u, a=lower, b=upper: a + (b - a) / (1 + mp.exp(-u)),
        )


MAPS = list(scalar_maps())
each_map = pytest.mark.parametrize("maps", MAPS, ids=["log", "lower", "upper", "logit", "interval"])


@each_map
@pytest.mark.parametrize("u", representatives(TAILS, [-600.0, 37.0]))
def test_scalar_transform_and_its_derivatives_in_high_precision(maps, u):
    derivatives, log_jacobian, forward, _, exact = maps
    with mp.workdps(1200):  # the tails differ from the ends of the interval by e^-600
        x = [mp.diff(exact, mp.mpf(u), n, h=mp.mpf(10) ** -200) for n in range(4)]
        J = [mp.log(abs(x[1])), x[2] / x[1], x[3] / x[1] - (x[2] / x[1]) ** 2]
    np.testing.assert_allclose(derivatives(u)[:3], [float(v) for v in x[:3]], rtol=1e-12, atol=1e-290)
    # x''' may have zeros: an error relative to x' is allowed
    assert derivatives(u)[3] == pytest.approx(float(x[3]), rel=1e-12, abs=1e-15 * abs(float(x[1])))
    assert forward(u) == pytest.approx(float(x[0]), rel=1e-13, abs=1e-300)
    np.testing.assert_allclose(log_jacobian(u)[:3], [float(v) for v in J], rtol=1e-12, atol=1e-290)


@each_map
@pytest.mark.parametrize("u", TAILS)
def test_scalar_transform_by_the_complex_step(maps, u):
    derivatives, log_jacobian, _, _, _ = maps
    stepped, stepped_J = derivatives(u + 1e-30j), log_jacobian(u + 1e-30j)
    size = abs(derivatives(u)[1])
    for n in range(3):
        assert np.imag(stepped[n]) / 1e-30 == pytest.approx(derivatives(u)[n + 1], rel=1e-12, abs=1e-14 * size)
        assert np.imag(stepped_J[n]) / 1e-30 == pytest.approx(log_jacobian(u)[n + 1], rel=1e-12, abs=1e-14)
    # the log-Jacobian is the log of the complex-step derivative
    assert np.log(abs(np.imag(stepped[0]) / 1e-30)) == pytest.approx(log_jacobian(u)[0], rel=1e-12, abs=1e-14)


@each_map
def test_scalar_round_trip(maps):
    _, _, forward, inverse, _ = maps
    u = np.linspace(-4, 4, 17).reshape(1, 17)
    np.testing.assert_allclose(inverse(forward(u)), u, rtol=1e-12, atol=1e-13)


def test_round_trips_in_the_tails():
    u = np.array([-600.0, -30.0, 30.0, 600.0])
    np.testing.assert_allclose(tr.half_line_inverse(tr.half_line_forward(u)), u, rtol=1e-14)
    low = np.array([-600.0, -30.0, -10.0])
    np.testing.assert_allclose(tr.interval_inverse(tr.interval_forward(low)), low, rtol=1e-13)


@pytest.mark.parametrize("u", every(3, TAILS))
def test_expit_and_softplus_in_both_tails(u):
    with mp.workdps(700):
        p, s = 1 / (1 + mp.exp(-mp.mpf(u))), mp.log(1 + mp.exp(mp.mpf(u)))
    assert tr.expit(u) == pytest.approx(float(p), rel=1e-15)
    assert tr.softplus(u) == pytest.approx(float(s), rel=1e-15)
    assert plain(tr.softplus)(u + 1e-30j).imag / 1e-30 == pytest.approx(float(p), rel=1e-14)


def test_ordered():
    u = np.array([[0.4, -1.0, 2.0, -30.0], [-3.0, 0.0, 0.0, 1.0]])
    x = tr.ordered_forward(u)
    assert (np.diff(x[1]) > 0).all()
    np.testing.assert_allclose(x[1], [-3.0, -2.0, -1.0, -1.0 + np.e])
    np.testing.assert_allclose(tr.ordered_inverse(x)[:, :3], u[:, :3], rtol=1e-12)
    for row in u:
        jacobian = np.empty((4, 4))
        for k in range(4):
            stepped = row.astype(complex)
            stepped[k] += 1e-30j
            jacobian[:, k] = tr.ordered_forward(stepped).imag / 1e-30
            expected = np.exp(row[k]) if k else 1.0
            np.testing.assert_allclose(jacobian[:, k], np.where(np.arange(4) >= k, expected, 0.0), rtol=1e-14)
        assert np.linalg.slogdet(jacobian)[1] == pytest.approx(tr.ordered_log_jacobian(row), rel=1e-12)


def test_chain_rule():
    """L(x) is a cubic form of x(u), for a map of each kind, compared with the complex step of each order."""
    rng = np.random.default_rng(8)
    W = rng.standard_normal((3, 3, 3))
    W = sum(W.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))) / 6
    M = rng.standard_normal((3, 3))

    def all_orders(u):
        maps = [plain(tr.half_line)(u[0]), plain(tr.interval)(u[1], -2.0, 5.0), plain(tr.half_line)(u[2], 1.0, -1.0)]
        x, a, b, c = (np.array(v) for v in zip(*maps, strict=True))
        g, H = np.einsum("ijk,j,k->i", W, x, x) / 2, np.einsum("ijk,k->ij", W, x)
        H_u = H.copy()
        plain(tr.chain_hessian)(H_u, g, a, b)
        contraction = np.einsum("ij,i,j,ijk->k", M, a, a, W).astype(u.dtype)
        plain(tr.chain_contraction)(contraction, M, H, g, a, b, c)
        return np.einsum("ijk,i,j,k->", W, x, x, x) / 6, a * g, H_u, contraction

    u = rng.standard_normal(3)
    actual = all_orders(u)
    for k in range(3):
        stepped = u.astype(complex)
        stepped[k] += 1e-30j
        L, g, H, _ = (np.imag(order) / 1e-30 for order in all_orders(stepped))
        for found, derivative in ((actual[1], L), (actual[2], g), (actual[3], np.sum(M * H))):
            np.testing.assert_allclose(found[..., k], derivative, rtol=1e-12, atol=1e-12)
