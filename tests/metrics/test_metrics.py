"""The Riemannian metrics: H, dH/dq, dH/dp and the momentum's distribution against their definitions in 60 to 100 digits.

Measured, relative to the size of the terms (worst of all cases below): dH/dq of Fisher 3e-16, SoftAbs 1e-14 (funnel, v
from -30 to 30, alpha from 1e-3 to 1e8, n = 10 and 50: 3e-14), diagonal SoftAbs 2e-16, the outer products 1e-13 if
alpha g.g <= 1e4; dH/dp 1e-14; H 1e-15. The tolerances are 1e-9 for the derivatives and 1e-11 for H.
"""

from __future__ import annotations

import functools
import re

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats

import refhmc
from refhmc.core.sample_stats import OUTCOMES
from refhmc.errors import MetricError, MissingDerivativeError
from refhmc.integrators import (
    ExplicitTao,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    ProjectedTao,
    Suzuki,
    Yoshida,
)
from refhmc.metrics import (
    Dense,
    Diagonal,
    DiagonalOuterProductSoftAbs,
    DiagonalSoftAbs,
    Fisher,
    Identity,
    OuterProductSoftAbs,
    SoftAbs,
)
from tests.helpers.models import FEW_CALLS
from tests.helpers.riemannian_cases import MODELS, RIEMANNIAN, Exact, funnel_exact, matrix_of, model_of, soft
from tests.helpers.sweeps import one_in, swept

DERIVATIVE, ENERGY = 1e-9, 1e-11
TOO_LARGE = {"normal-100"}  # its metrics are constant: a test of its own
# A density that jumps has no curvature where it does; the last has a test of its own, to the ODE solver's tolerance.
NOT_HERE = {"jolly-seber", "change-point", "pac-bayes", "cell-grid", "closed-population"}
NOT_HERE |= {"fitzhugh-nagumo"} | TOO_LARGE
SLOW = {"breast-cancer", "heart"}


def positions(d: int, rng) -> list[np.ndarray]:
    """Random, large, near zero, all equal, all but one zero, all zero; fewer in more dimensions."""
    near_zero = rng.choice([-1.0, 0.0, 1.0], d) * 10.0 ** rng.uniform(-16, -3, d)
    all_kinds = [rng.uniform(-2, 2, d), -2.0 * np.eye(d)[0], rng.uniform(-8, 8, d), near_zero, np.ones(d), np.zeros(d)]
    return all_kinds[: 6 if d < 6 else 3 if d < 9 else 2 if d < 12 else 1]


def tame(metric, model, q):
    """The outer products with alpha such that alpha g.g is at most 1e4, or as printed at most 2: see the tests below."""
    if not isinstance(metric, OuterProductSoftAbs | DiagonalOuterProductSoftAbs):
        return metric
    s = float(np.sum(model.gradient(q) ** 2))
    published = getattr(metric, "as_published", False)
    most = (2.0 if published else 1e4) / s if s > 0 else 1.0
    more = {"as_published": True} if published else {}
    return type(metric)(alpha=min(metric.alpha, most), **more)


def check_against_exact(model, metric, q, rng) -> None:
    metric = tame(metric, model, q)
    H = refhmc.Hamiltonian(model, metric)
    momenta = [H.draw_momentum(q, rng), np.zeros(model.dim)]
    for p in momenta if model.dim < 6 else momenta[:1]:
        exact, u = Exact(model, metric, q, p), rng.standard_normal(model.dim)
        energy, scale = exact.energy()
        assert abs(H.energy(q, p) - energy) <= ENERGY * scale
        slope, scale = exact.slope_along(u)
        assert abs(H.grad_q(q, p) @ u - slope) <= DERIVATIVE * scale + 1e-300
        if not p.any():
            continue
        velocity, scale = exact.velocity()
        assert np.all(np.abs(H.grad_p(q, p) - velocity) <= DERIVATIVE * scale)


QUICK = [name for name in MODELS if name not in NOT_HERE and name not in SLOW]
TAKE_LONG = [pytest.param(n, m, marks=pytest.mark.slow) for n in sorted(SLOW & set(MODELS)) for m in RIEMANNIAN]

SEEN = ["funnel-3", "banana", "gaussian", "eight-schools"]
CASES = [
    *one_in(4, SEEN, RIEMANNIAN),
    *(swept(name, metric) for name in QUICK if name not in SEEN for metric in RIEMANNIAN),
    *TAKE_LONG,
]


@pytest.mark.parametrize(("name", "metric"), CASES)
def test_energy_and_its_derivatives(name, metric):
    """Along a random direction, in which an error of a component almost surely shows."""
    model, chosen = model_of(name), RIEMANNIAN[metric]
    if isinstance(chosen, Fisher) and not model.has("fisher"):
        return
    rng = np.random.default_rng(1)
    for q in positions(model.dim, rng):
        check_against_exact(model, chosen, q, rng)


@pytest.mark.parametrize("metric", RIEMANNIAN)
@pytest.mark.parametrize("name", ["funnel-3", "banana"])
def test_each_component_of_the_force(name, metric):
    model, rng = model_of(name), np.random.default_rng(2)
    for q in rng.uniform(-1, 1, (2, model.dim)):
        chosen = tame(RIEMANNIAN[metric], model, q)
        H = refhmc.Hamiltonian(model, chosen)
        p = H.draw_momentum(q, rng)
        for k, value in enumerate(H.grad_q(q, p)):
            slope, scale = Exact(model, chosen, q, p).slope_along(np.eye(model.dim)[k])
            assert abs(value - slope) <= DERIVATIVE * scale


@pytest.mark.parametrize("name", ["fisher", "softabs-1", "diagonal-softabs-1"])
def test_a_hundred_normals_have_a_constant_metric(name):
    model, metric, rng = model_of("normal-100"), RIEMANNIAN[name], np.random.default_rng(3)
    G = 1.0 if isinstance(metric, Fisher) else 1 / np.tanh(1.0)
    H, (q, p) = refhmc.Hamiltonian(model, metric), rng.standard_normal((2, 100))
    np.testing.assert_allclose(H.grad_p(q, p), p / G, rtol=1e-14)
    np.testing.assert_allclose(H.grad_q(q, p), q, rtol=1e-14)
    assert H.energy(q, p) == pytest.approx(0.5 * q @ q + 0.5 * p @ p / G + 50 * np.log(G), rel=1e-14)
    np.testing.assert_allclose(H.mass(q), G * np.eye(100), atol=1e-13)


@pytest.mark.parametrize("metric", [Identity(), Diagonal([0.5, 2.0, 1.0, 3.0]), Dense(np.eye(4) + 0.3)])
def test_euclidean_metrics(metric):
    model, rng = model_of("funnel-3"), np.random.default_rng(4)
    H, inverse = refhmc.Hamiltonian(model, metric), metric.inverse_mass(4)
    inverse = np.diag(inverse) if inverse.ndim == 1 else inverse
    for q, p in rng.standard_normal((5, 2, 4)):
        np.testing.assert_allclose(H.grad_p(q, p), inverse @ p, rtol=1e-14)
        np.testing.assert_allclose(H.grad_q(q, p), -model.gradient(q), rtol=1e-15)
        assert H.energy(q, p) == pytest.approx(0.5 * p @ inverse @ p - model.log_density(q), rel=1e-14)
        np.testing.assert_allclose(H.mass(), np.linalg.inv(inverse), rtol=1e-13)


# ------------------------------------------------------------------------------- degenerate and extreme Hessians


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e6, 1e8])
@pytest.mark.parametrize("n", [10, swept(50)])
def test_softabs_on_the_whole_funnel(n, alpha):
    """v from -30 to 30; x as the target has it, of order one, tiny, or zero: n - 1 equal eigenvalues, or all n."""
    model, rng = model_of("funnel") if n == 10 else refhmc.models.Funnel(n), np.random.default_rng(5)
    H = refhmc.Hamiltonian(model, SoftAbs(alpha=alpha))
    for v in (-30.0, -5.0, 0.0, 5.0, 30.0):
        for size in (np.exp(-v / 2), 1.0, 1e-8, 0.0):
            q = np.concatenate([[v], size * rng.standard_normal(n)])
            p, u = H.draw_momentum(q, rng), rng.standard_normal(n + 1)
            slope, slope_scale, energy, energy_scale = funnel_exact(q, p, u, alpha)
            assert abs(H.energy(q, p) - energy) <= ENERGY * energy_scale
            assert abs(H.grad_q(q, p) @ u - slope) <= DERIVATIVE * slope_scale


def cubic_log_density(q, data):
    return 0.5 * (q[0] ** 2 + (1 + q[3]) * q[1] ** 2) + q[0] * q[1] * q[2] + q[0] ** 3 / 6


def cubic_gradient(q, data, out):
    out[0] = q[0] + q[1] * q[2] + 0.5 * q[0] ** 2
    out[1] = (1 + q[3]) * q[1] + q[0] * q[2]
    out[2] = q[0] * q[1]
    out[3] = 0.5 * q[1] ** 2


def cubic_hessian(q, data, out):
    out[:] = 0.0
    out[0, 0], out[1, 1] = 1 + q[0], 1 + q[3]
    out[0, 1] = out[1, 0] = q[2]
    out[0, 2] = out[2, 0] = q[1]
    out[1, 2] = out[2, 1] = q[0]
    out[1, 3] = out[3, 1] = q[1]


def cubic_third(q, data, out):
    out[:] = 0.0
    out[0, 0, 0] = 1.0
    out[0, 1, 2] = out[0, 2, 1] = out[1, 0, 2] = out[1, 2, 0] = out[2, 0, 1] = out[2, 1, 0] = 1.0
    out[1, 1, 3] = out[1, 3, 1] = out[3, 1, 1] = 1.0


@functools.cache
def cubic():
    """A user's model whose Hessian at (0, 0, 0, w) has the eigenvalues 1, 1 + w, 0, 0; it has no ``hessian_contraction``."""
    functions = (cubic_log_density, cubic_gradient, cubic_hessian, cubic_third)
    return refhmc.Model(4, *functions, name="cubic", in_python=FEW_CALLS)


@pytest.mark.parametrize("metric", [SoftAbs(alpha=2.0), SoftAbs(1e6), DiagonalSoftAbs(1e6)])
@pytest.mark.parametrize("gap", [0.0, swept(1e-15), swept(1e-9), 1e-4, swept(-2.0)])
def test_near_equal_opposite_and_zero_eigenvalues(gap, metric):
    """Eigenvalues 1 and 1 + gap: equal, near-equal, opposite (f agrees, f' does not); and a double zero."""
    rng = np.random.default_rng(6)
    for size in (0.0, 1e-12, 1e-5):
        check_against_exact(cubic(), metric, np.array([0.0, 0.0, 0.0, gap]) + size * rng.standard_normal(4), rng)


# ------------------------------------------------------------------------------------------------ the momentum


@pytest.mark.parametrize(
    ("name", "metric"),
    one_in(2, ["funnel", "banana"], RIEMANNIAN)
    + [swept(name, metric) for name in ["eight-schools", "gaussian-process"] for metric in RIEMANNIAN],
)
def test_momentum_has_the_covariance_of_the_metric(name, metric):
    """p = R z is linear in the normals z, and R R' = G."""
    model, rng = model_of(name), np.random.default_rng(7)
    for q in positions(model.dim, rng)[:3]:
        chosen = tame(RIEMANNIAN[metric], model, q)
        H, G = refhmc.Hamiltonian(model, chosen), Exact(model, chosen, q).mass()
        root = np.sqrt(np.diag(G))
        np.testing.assert_allclose(H.mass(q) / root / root[:, None], G / root / root[:, None], rtol=0, atol=1e-12)
        x, y = rng.standard_normal((2, model.dim))
        together = H._draw(q, 2 * x - 3 * y)
        apart = 2 * H._draw(q, x) - 3 * H._draw(q, y)
        np.testing.assert_allclose(together / root, apart / root, rtol=0, atol=1e-12)
        normals = np.random.default_rng(8).standard_normal(model.dim)
        assert np.array_equal(H.draw_momentum(q, np.random.default_rng(8)), H._draw(q, normals))


def test_drawn_momenta_have_the_normal_law():
    """With y = L^-1 p, L L' = G, all y_i and (y_i + y_j)/sqrt 2 are N(0, 1): Kolmogorov-Smirnov. False alarm: 1e-4."""
    model, n = model_of("funnel-3"), 250
    q, pairs = np.array([1.0, 0.5, -0.3, 0.0]), [(0, 1), (0, 2), (1, 2), (2, 3)]
    for k, metric in enumerate(RIEMANNIAN.values()):
        H, rng = refhmc.Hamiltonian(model, metric), np.random.default_rng([9, k])
        L = np.linalg.cholesky(Exact(model, metric, q).mass())
        y = np.linalg.solve(L, np.stack([H.draw_momentum(q, rng) for _ in range(n)]).T)
        columns = [*y, *((y[i] + y[j]) / 2**0.5 for i, j in pairs)]
        for column in columns:
            assert scipy.stats.kstest(column, "norm").pvalue > 1e-4 / len(RIEMANNIAN) / len(columns)


# ---------------------------------------------------------------------------------------------- outer products


def test_the_outer_product_metric_is_the_softabs_of_the_outer_product():
    """And ``as_published=True`` is the formula of Betancourt's appendix: at s = 5, alpha = 1, .067 where SoftAbs has 1."""
    model, rng = model_of("eight-schools"), np.random.default_rng(10)
    for scale in (1.0, 0.1, 1e-4):
        q = scale * rng.standard_normal(model.dim)
        g = model.gradient(q)
        s, d = g @ g, model.dim
        for alpha in (1.0 / s, 5.0 / s, 0.01):
            exact = Exact(model, OuterProductSoftAbs(alpha=alpha), q).mass()
            values, V = np.linalg.eigh(np.outer(g, g))
            again = (V * [float(soft(mpmath.mpf(float(x)), alpha)) for x in values]) @ V.T
            np.testing.assert_allclose(exact, again, rtol=1e-10, atol=1e-12 / alpha)
            H = refhmc.Hamiltonian(model, OuterProductSoftAbs(alpha=alpha))
            np.testing.assert_allclose(H.mass(q), exact, rtol=1e-12, atol=1e-13 / alpha)
            if alpha * s > 20:
                continue
            printed = s / np.sinh(alpha * s) * (np.eye(d) + (np.cosh(alpha * s) - 1) / s * np.outer(g, g))
            H = refhmc.Hamiltonian(model, OuterProductSoftAbs(alpha=alpha, as_published=True))
            np.testing.assert_allclose(H.mass(q), printed, rtol=1e-12, atol=1e-13 / alpha)
    across = 5 / np.sinh(5)
    assert across == pytest.approx(0.067, abs=5e-4)


@pytest.mark.parametrize("metric", [OuterProductSoftAbs(), OuterProductSoftAbs(as_published=True), SoftAbs(1e6)])
def test_where_the_gradient_is_zero(metric):
    """At the mode s = 0: G = I/alpha for either outer product."""
    model, q = model_of("gaussian-3"), np.array([1.0, -2.0, 0.5])
    H = refhmc.Hamiltonian(model, metric)
    p = np.array([0.3, -1.0, 2.0])
    assert np.isfinite(H.energy(q, p))
    if isinstance(metric, OuterProductSoftAbs):
        np.testing.assert_allclose(H.mass(q), np.eye(3), rtol=1e-15)
        np.testing.assert_allclose(H.grad_q(q, p), 0.0, atol=1e-15)


def test_outer_product_energy_does_not_cancel_for_large_gradients():
    """A rounding of p moves H by eps sqrt(s) only, and that is what an energy may be off by; s = g.g = 1e14 here."""
    model, metric = model_of("kidscore"), OuterProductSoftAbs()
    rng = np.random.default_rng(1)
    q = rng.uniform(-2, 2, model.dim)
    H, s = refhmc.Hamiltonian(model, metric), np.sum(model.gradient(q) ** 2)
    p = H.draw_momentum(q, rng)
    energy, scale = Exact(model, metric, q, p).energy()
    assert abs(H.energy(q, p) - energy) <= 1e-15 * (10 * scale + 100 * s**0.5)


def test_exact_reference_agrees_with_formulas_in_closed_form():
    """The oracle itself, on a Gaussian: G and H by hand."""
    model, q, p = model_of("gaussian-3"), np.array([0.3, 1.0, -1.0]), np.array([1.0, 2.0, -0.5])
    precision = -model.hessian(q)
    exact = Exact(model, Fisher(), q, p)
    _, log_det = np.linalg.slogdet(precision)
    want = 0.5 * log_det + 0.5 * p @ np.linalg.solve(precision, p) - model.log_density(q)
    assert exact.energy()[0] == pytest.approx(want, rel=1e-13)
    np.testing.assert_allclose(exact.mass(), precision, rtol=1e-14)
    assert exact.slope_along(np.eye(3)[1])[0] == pytest.approx(-model.gradient(q)[1], rel=1e-14)
    assert matrix_of([1.0, 2.0]).rows == 2


# ------------------------------------------------------------------------------------------- users' own models


def tilted_log_density(q, data):
    return -np.cosh(q[0] - data * q[1]) - 0.5 * q[1] ** 2


def tilted_gradient(q, data):
    s = np.sinh(q[0] - data * q[1])
    return np.array([-s, data * s - q[1]])


def tilted_fisher(q, data, out):
    c = np.cosh(q[0] - data * q[1])
    out[0, 0], out[1, 1] = c, data * data * c + 1.0
    out[0, 1] = out[1, 0] = -data * c


def tilted_fisher_derivative(q, data, out):
    s = np.sinh(q[0] - data * q[1])
    for n in range(8):
        i, j, k = n // 4, n // 2 % 2, n % 2
        out[i, j, k] = s * (-data) ** (i + j + k)


def tilted_hessian(q, data, out):
    c = -np.cosh(q[0] - data * q[1])
    out[0, 0], out[1, 1] = c, data * data * c - 1.0
    out[0, 1] = out[1, 0] = -data * c


def tilted_third_derivative(q, data, out):
    s = -np.sinh(q[0] - data * q[1])
    for n in range(8):
        i, j, k = n // 4, n // 2 % 2, n % 2
        out[i, j, k] = s * (-data) ** (i + j + k)


def log_density_through_scipy(q, data):
    return float(scipy.special.cosdg(0.0)) * tilted_log_density(q, data)


def hessian_through_scipy(q, data, out):
    tilted_hessian(q, data, out)
    out *= float(scipy.special.cosdg(0.0))


@functools.cache
def tilted(log_density=tilted_log_density, hessian=tilted_hessian):
    """No ``hessian_contraction`` and no ``fisher_contraction``: they are made from the full tensors."""
    return refhmc.Model(
        2,
        log_density,
        tilted_gradient,
        hessian,
        tilted_third_derivative,
        None,
        tilted_fisher,
        tilted_fisher_derivative,
        data=0.5,
        name="tilted",
    )


SOME = [Fisher(), SoftAbs(1e6)]
OTHERS = [DiagonalSoftAbs(1e6), OuterProductSoftAbs(), DiagonalOuterProductSoftAbs()]


@pytest.mark.sweep
@pytest.mark.parametrize("metrics", [SOME, swept(OTHERS)], ids=["full", "others"])
@pytest.mark.filterwarnings("ignore::refhmc.errors.PythonModelWarning", "ignore:overflow:RuntimeWarning")
def test_a_users_model_runs_compiled_or_as_python_with_the_same_draws(metrics, sample):
    options = {"draws": 20, "tune": 20, "chains": 1, "random_seed": 1, "initvals": [0.3, -0.2]}
    compiled_model, python_model = tilted(), tilted(log_density_through_scipy)
    assert compiled_model.runs_as_python is None
    assert python_model.runs_as_python is not None
    rng = np.random.default_rng(2)
    for metric in metrics:
        check_against_exact(compiled_model, metric, rng.standard_normal(2), rng)
        kernel = refhmc.NUTS(metric=metric)
        draws = sample(compiled_model, kernel, **options).draws
        assert np.isfinite(draws).all()
        np.testing.assert_allclose(sample(python_model, kernel, **options).draws, draws, rtol=1e-6, atol=1e-8)
    for q, p in rng.standard_normal((3, 2, 2)):  # G = -hessian in either
        fisher, softabs = (refhmc.Hamiltonian(compiled_model, metric) for metric in (Fisher(), SoftAbs(alpha=1e8)))
        assert fisher.energy(q, p) == pytest.approx(softabs.energy(q, p), rel=1e-12)
        np.testing.assert_allclose(fisher.grad_q(q, p), softabs.grad_q(q, p), rtol=1e-11, atol=1e-12)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::refhmc.errors.PythonModelWarning")
def test_a_hessian_alone_may_run_as_python():
    q, p = np.array([0.3, -0.2]), np.array([1.0, 0.5])
    mixed, whole = (refhmc.Hamiltonian(m, SoftAbs(1e6)) for m in (tilted(hessian=hessian_through_scipy), tilted()))
    assert mixed.energy(q, p) == pytest.approx(whole.energy(q, p), rel=1e-14)


@pytest.mark.sweep
def test_a_missing_derivative_is_named():
    bare = refhmc.Model(2, tilted_log_density, tilted_gradient, data=0.5, name="bare")
    half = refhmc.Model(2, tilted_log_density, tilted_gradient, tilted_hessian, data=0.5, name="half")
    for model, metric, missing in (
        (bare, Fisher(), "fisher"),
        (bare, SoftAbs(1e6), "hessian"),
        (bare, DiagonalSoftAbs(1e6), "hessian"),
        (bare, OuterProductSoftAbs(), "hessian"),
        (bare, DiagonalOuterProductSoftAbs(), "hessian"),
        (half, SoftAbs(1e6), "hessian_contraction"),
        (half, DiagonalSoftAbs(1e6), "hessian_contraction"),
    ):
        words = f"[mM]odel '{model.name}'.* {missing}\\b.*{type(metric).__name__}"
        with pytest.raises(MissingDerivativeError, match=words):
            refhmc.Hamiltonian(model, metric)
        with pytest.raises(MissingDerivativeError, match=words):
            refhmc.sample(model, refhmc.NUTS(metric=metric), draws=1, tune=0, chains=1, progressbar=False)
    assert refhmc.Hamiltonian(half, OuterProductSoftAbs()).metric.alpha == 1.0


def flat_log_density(q, data):
    return -0.5 * np.sum(q * q)


def flat_gradient(q, data):
    return -q


def indefinite_fisher(q, data):
    return np.array([[1.5 - q[0] ** 2, 0.0], [0.0, 1.0]])


def indefinite_fisher_derivative(q, data):
    T = np.zeros((2, 2, 2))
    T[0, 0, 0] = -2 * q[0]
    return T


@pytest.mark.sweep
@pytest.mark.parametrize("kernel", [refhmc.HMC(step_size=0.3, n_steps=5, metric=Fisher()),
                                    refhmc.NUTS(step_size=0.3, metric=Fisher())])  # fmt: skip
def test_a_metric_that_is_not_positive_definite(kernel, sample):
    """At the start it is rejected; during a run it is a divergence, recorded and never accepted."""
    with pytest.raises(MetricError, match=r"Fisher.*-2\.5.*SoftAbs\(\)"):
        refhmc.Hamiltonian(indefinite(), Fisher()).energy([2.0, 0.0], [1.0, 0.0])
    options = {"tune": 0, "chains": 2, "random_seed": 3}
    with pytest.raises(MetricError, match=r"[cC]hain 1.*Fisher.*not positive definite.*-2\.5"):
        sample(indefinite(), kernel, draws=10, initvals=[[0.0, 0.0], [2.0, 0.0]], **options)
    result = sample(indefinite(), kernel, draws=400, initvals=[0.0, 0.0], **options)
    stats = result.sample_stats
    diverged = stats["outcome"] == OUTCOMES.index("diverged")
    assert diverged.any()
    assert np.array_equal(diverged, stats["diverging"])
    assert np.all(result.draws[:, :, 0] ** 2 < 1.5)
    assert not stats["solver_failed"][diverged].any()
    if isinstance(kernel, refhmc.HMC):
        assert not stats["is_accepted"][diverged].any()
        assert np.all(stats["acceptance_rate"][diverged] == 0)


@functools.cache
def indefinite():
    functions = {"fisher": indefinite_fisher, "fisher_derivative": indefinite_fisher_derivative}
    return refhmc.Model(2, flat_log_density, flat_gradient, **functions, name="indefinite")


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *((lambda a=a, m=m: m(alpha=a), f"alpha must be.*{re.escape(repr(a))}")
          for a in (0, -1.0, NAN, INF, "1", True)
          for m in (SoftAbs, DiagonalSoftAbs, OuterProductSoftAbs, DiagonalOuterProductSoftAbs)),
        *((lambda t=t, m=m: m(tolerance=t), f"tolerance must be.*1e-14.*{re.escape(repr(t))}")
          for t in (1e-15, 0, -1e-6, NAN, INF, "1e-6", True)
          for m in (ImplicitMidpoint, GeneralizedLeapfrog, functools.partial(ProjectedTao, omega=1.0))),
        *((lambda n=n: ImplicitMidpoint(max_iterations=n), f"max_iterations must be.*{re.escape(repr(n))}")
          for n in (0, -1, 2.5, NAN, "9", True)),
        (lambda: ImplicitMidpoint(variant="naive"), r"variant must be.*'endpoint'.*'midpoint'.*'naive'"),
        (lambda: GeneralizedLeapfrog(variant="a"), r"variant must be.*'cached'.*'naive'.*'a'"),
        (lambda: GeneralizedLeapfrog(solver="newton"), "solver must be.*'fixed point'.*'anderson'.*'newton'"),
        *((lambda o=o, m=m: m(omega=o), f"omega must be.*{re.escape(repr(o))}")
          for o in (-1.0, NAN, INF, "1")
          for m in (ExplicitTao, ProjectedTao)),
        (lambda: refhmc.HMC(metric="soft"), "metric must be.* softabs.*'soft'"),
        (lambda: refhmc.HMC(integrator="mid"), "integrator must be.* auto, .*implicit-midpoint.*'mid'"),
        (lambda: refhmc.HMC(metric=Fisher(), integrator=Leapfrog()), "metric must be constant.*[lL]eapfrog.*Fisher"),
        (lambda: refhmc.NUTS(metric=SoftAbs(1e6), integrator=Yoshida(Leapfrog())), "metric must be constant.*SoftAbs"),
    ],
)  # fmt: skip
def test_options_that_cannot_be(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Yoshida(Yoshida(ImplicitMidpoint())), "base must be.*order 2.*Yoshida"),
        (lambda: Suzuki("leapfrog"), "base must be.*order 2.*'leapfrog'"),
    ],
)
def test_options_of_the_wrong_kind(make, words):
    with pytest.raises(TypeError, match=words):
        make()
