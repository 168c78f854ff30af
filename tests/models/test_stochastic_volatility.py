"""Stochastic volatility.

The joint density is compared with its definition in many digits, both conditionals with the joint model and by complex steps,
their metrics with expectations without simulation, and Gibbs sampling with NUTS.
"""

from __future__ import annotations

import pickle

import mpmath as mp
import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.errors import ShapeError
from refhmc.integrators import BlockLeapfrog
from refhmc.metrics import Fisher, Tridiagonal
from refhmc.models.stochastic_volatility import StochasticVolatility, simulate, unconstrain
from tests.helpers.derivatives import SERIES, assert_close, call_plain, complex_step
from tests.helpers.posteriors import plain_ess

BLOCKS = {"x": ["x"], "parameters": ["beta", "sigma", "phi"]}
Y = SERIES[:6]


def definition(q, y):
    """Return log p(y | x, beta) p(x | sigma, phi) p(beta) p(sigma^2) p(phi) with the Jacobians, including constants."""
    x, u, g, a = [mp.mpf(v) for v in q[:-3]], *(mp.mpf(v) for v in q[-3:])
    beta, sigma, phi = mp.exp(u), mp.exp(g), mp.tanh(a)

    def normal(v, m, s):
        return -mp.log(s) - ((v - m) / s) ** 2 / 2

    total = sum(normal(mp.mpf(v), 0, beta * mp.exp(h / 2)) for v, h in zip(y, x, strict=True))
    total += normal(x[0], 0, sigma / mp.sqrt(1 - phi**2))
    total += sum(normal(x[t], phi * x[t - 1], sigma) for t in range(1, len(x)))
    total += -mp.log(beta) + u  # 1/beta, dbeta/du
    nu, scale = 10, mp.mpf("0.05")
    variance = sigma**2
    total += -(nu / 2 + 1) * mp.log(variance) - nu * scale / (2 * variance) + mp.log(2 * variance)  # dsigma^2/dg
    z = (phi + 1) / 2
    total += 19 * mp.log(z) + mp.mpf("0.5") * mp.log(1 - z) + mp.log((1 - phi**2) / 2)  # dz/da
    return total


def test_density_is_that_of_the_definition():
    model = StochasticVolatility(Y)
    rng = np.random.default_rng(1)
    points = [rng.normal(size=9) * scale for scale in (0.3, 1.0, 2.0, 3.0)]
    with mp.workdps(40):
        for q in points:
            want = definition(q, Y) - definition(points[0], Y)
            got = model.log_density(q) - model.log_density(points[0])
            assert abs(got - float(want)) < 1e-12 * (1 + abs(model.log_density(q)))


def position(rng):
    """Return a position of the joint model at which no term dominates."""
    return np.append(rng.normal(size=len(Y)), rng.normal(size=3) * [0.5, 0.5, 1.0])


@pytest.mark.sweep
@pytest.mark.parametrize("block", BLOCKS)
def test_conditionals_are_the_joint_model(block):
    model, rng = StochasticVolatility(Y), np.random.default_rng(2)
    for _ in range(5):
        q = position(rng)
        part = refhmc.conditional(model, BLOCKS[block], q)
        indices = [model.names.index(name) for name in part.names]
        a, b = q[indices], position(rng)[indices]
        moved = q.copy()
        moved[indices] = b
        scale = abs(model.log_density(q)) + abs(model.log_density(moved))
        change = part.log_density(b) - part.log_density(a)
        assert abs(change - (model.log_density(moved) - model.log_density(q))) < 1e-13 * scale
        assert_close(moved, part.gradient(b), model.gradient(moved)[indices], 1e-12, what="gradient")
        assert_close(moved, part.core.value_and_gradient(b)[1], part.gradient(b), 1e-12, what="value_and_gradient")
        assert_close(moved, part.hessian(b), model.hessian(moved)[np.ix_(indices, indices)], 1e-12, what="hessian")
        tensor = model.third_derivative(moved)[np.ix_(indices, indices, indices)]
        assert_close(moved, part.third_derivative(b), tensor, 1e-12, what="third")


@pytest.mark.sweep
@pytest.mark.parametrize("block", BLOCKS)
def test_conditionals_derivatives_are_complex_steps(block):
    model, rng = StochasticVolatility(Y), np.random.default_rng(3)
    for _ in range(5):
        q = position(rng)
        part = refhmc.conditional(model, BLOCKS[block], q)
        x, M = q[[model.names.index(name) for name in part.names]], rng.normal(size=(part.dim, part.dim))
        below = {"gradient": "log_density", "hessian": "gradient", "third_derivative": "hessian"}
        for key, lower in {**below, "fisher_derivative": "fisher"}.items():
            assert_close(x, getattr(part, key)(x), complex_step(part, lower, x), what=key, by_direction=True)
            if key in ("gradient", "hessian"):
                assert_close(x, getattr(part, key)(x), call_plain(part, key, x), 1e-12, what=key)
        for key, full in {"hessian_contraction": "third_derivative", "fisher_contraction": "fisher_derivative"}.items():
            tensor = getattr(part, full)(x)
            scale = np.abs(tensor).max()
            contraction = np.append(np.einsum("ij,ijk->k", M, tensor), scale)
            assert_close(x, np.append(getattr(part, key)(x, M), scale), contraction, what=key)


@pytest.mark.sweep
def test_contraction_at_the_published_length():
    """At T = 1,000 the third derivative has 10^9 entries; along a direction it is a difference of Hessians."""
    x, y = simulate(1000)
    model = StochasticVolatility(y)
    q = unconstrain(x, 0.65, 0.15, 0.98)
    rng = np.random.default_rng(4)
    u = rng.normal(size=model.dim)
    M = np.outer(u, u)
    h, v = 1e-5, rng.normal(size=model.dim)
    ahead, behind = (u @ model.hessian(q + s * h * v) @ u for s in (1, -1))
    ahead2, behind2 = (u @ model.hessian(q + s * 2 * h * v) @ u for s in (1, -1))
    slope = (8 * (ahead - behind) - (ahead2 - behind2)) / (12 * h)
    assert model.hessian_contraction(q, M) @ v == pytest.approx(slope, rel=1e-6)


def test_parameter_metric_is_the_expected_hessian():
    """The Fisher metric is linear in (W, A, B, C): with their expected values as data, minus the Hessian is the metric."""
    model, T = StochasticVolatility(Y), len(Y)
    for u, g, a in np.random.default_rng(5).normal(size=(5, 3)):
        part = refhmc.conditional(model, BLOCKS["parameters"], np.append(np.zeros(T), [u, g, a]))
        phi = np.tanh(a)
        V = np.exp(2 * g) / (1 - phi**2)
        part.data[0, :4] = T * np.exp(2 * u), T * V, (T - 1) * phi * V, (T - 2) * V
        assert_close(np.array([u, g, a]), part.fisher([u, g, a]), -part.hessian([u, g, a]), 1e-11, what="fisher")
        assert np.linalg.eigvalsh(part.fisher([u, g, a]))[0] > 0


def test_joint_metric_is_the_expected_hessian():
    """It is linear in w, W, R, D and C, whose expected values the values of the entries at x = 0 give.

    The prior of (g, a) is averaged by draws of SciPy's quantiles at equidistant probabilities.
    """
    model, T = StochasticVolatility(Y), len(Y)
    u, g, a = 0.3, -0.7, 1.1
    G, phi, e = model.fisher(np.append(np.zeros(T), [u, g, a])), np.tanh(a), np.exp(2 * 0.7)
    t = np.arange(T)
    covariance = phi ** np.abs(t - t[:, None]) / (e * (1 - phi**2))
    np.testing.assert_allclose(G[:T, :T], np.linalg.inv(covariance) + np.eye(T) / 2, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(G[:T, T:], np.outer(np.ones(T), [1, 0, 0]))
    parameters = refhmc.conditional(model, BLOCKS["parameters"], np.append(np.zeros(T), [u, g, a]))
    middle = (np.arange(20_000) + 0.5) / 20_000
    variance, slope = 10 * 0.05 / scipy.stats.chi2.ppf(middle, 10), 2 * scipy.stats.beta.ppf(middle, 20, 1.5) - 1
    means = [parameters.fisher([u, np.log(v) / 2, np.arctanh(s)]) for v, s in zip(variance, slope, strict=True)]
    np.testing.assert_allclose(G[T:, T:], np.mean(means, axis=0), rtol=1e-3)
    assert np.linalg.eigvalsh(G)[0] > 0


def test_explicit_riemannian_steps_find_the_posterior():
    """Two times, with x and beta integrated out: given y, the density of d = x_1 - x_2 does not depend on their mean.

    z-tests of means and variances of g and a against a sum over a grid, false-alarm rate 1e-7.
    """
    y, h = np.array([0.3, -1.0]), 0.05
    d, g, a = np.meshgrid(np.arange(-4, 4, h), np.arange(-3, 1.5, h), np.arange(-2.5, 6, h), indexing="ij")
    phi, sigma = np.tanh(a), np.exp(g)
    log_p = -np.log(y[0] ** 2 * np.exp(-d / 2) + y[1] ** 2 * np.exp(d / 2))  # beta is integrated out
    log_p += scipy.stats.norm.logpdf(d, 0, np.sqrt(2 / (1 + phi)) * sigma)  # so is the mean of x
    log_p += scipy.stats.chi2.logpdf(0.5 / sigma**2, 10) - 2 * g  # with the Jacobian
    log_p += scipy.stats.beta.logpdf((1 + phi) / 2, 20, 1.5) + np.log1p(-(phi**2))
    p = np.exp(log_p - log_p.max())
    kernel = refhmc.HMC(metric=Fisher(), integrator=BlockLeapfrog())
    run = refhmc.sample(
        StochasticVolatility(y), kernel, draws=3000, chains=4, random_seed=12, progressbar=False, raw=True
    )
    z = []
    for exact, draws in ((g, run.draws[..., 3]), (a, run.draws[..., 4])):
        mean = np.average(exact, weights=p)
        for f in (lambda x: x, lambda x, mean=mean: (x - mean) ** 2):
            x = f(draws)[..., None]
            z.append((x.mean() - np.average(f(exact), weights=p)) / (x.std() / np.sqrt(plain_ess(x)[0])))
    assert np.abs(z).max() < scipy.stats.norm.isf(1e-7 / 8), z


@pytest.mark.sweep
def test_latent_metric_is_the_prior_precision_and_half():
    """Minus the Hessian with w replaced by its expectation 1; also as bands for the tridiagonal metric."""
    model, rng = StochasticVolatility(Y), np.random.default_rng(6)
    q = position(rng)
    part = refhmc.conditional(model, "x", q)
    x = rng.normal(size=len(Y))
    part.data[1] = np.exp(x)
    G = part.fisher(x)
    assert_close(x, G, -part.hessian(x), 1e-12, what="fisher")
    t = np.arange(len(Y))
    covariance = np.exp(2 * q[-2]) / (1 - np.tanh(q[-1]) ** 2) * np.tanh(q[-1]) ** np.abs(t - t[:, None])
    np.testing.assert_allclose(np.linalg.inv(G - np.eye(len(t)) / 2), covariance, rtol=1e-9, atol=1e-12)
    H = refhmc.Hamiltonian(part, Tridiagonal())
    np.testing.assert_allclose(H.mass(x), G, rtol=1e-12, atol=1e-14)


@pytest.mark.sweep
def test_posterior_by_gibbs_is_that_by_nuts():
    """z-tests of the parameters, of some x, and of their squares, with a false alarm in 1e-4 for all of them."""
    model = StochasticVolatility(simulate(30, seed=7)[1])
    metric = Fisher()
    gibbs = refhmc.Gibbs(
        {
            ("beta", "sigma", "phi"): refhmc.HMC(step_size=0.5, n_steps=3, step_jitter=0.5, metric=metric),
            "x": refhmc.HMC(step_size=0.3, n_steps=6, step_jitter=0.5, metric=Tridiagonal()),
        }
    )
    options = {"progressbar": False, "raw": True, "random_seed": 8, "initvals": np.append(np.zeros(30), [0, -1, 1])}
    runs = [
        refhmc.sample(model, gibbs, draws=20_000, tune=500, **options),
        refhmc.sample(model, refhmc.NUTS(target_accept=0.9), draws=4_000, tune=1_000, **options),
    ]
    columns = [0, 14, 29, 30, 31, 32]
    z = []
    draws = [run.draws[:, :, columns] for run in runs]
    centre = draws[0].mean(axis=(0, 1))
    for power in (1, 2):
        values = [(part - centre) ** power for part in draws]
        errors = [v.std(axis=(0, 1)) / np.sqrt(plain_ess(v)) for v in values]
        z.append((values[0] - 0).mean(axis=(0, 1)) - values[1].mean(axis=(0, 1)))
        z[-1] /= np.hypot(*errors)
    bound = scipy.stats.norm.isf(1e-4 / (2 * len(columns)) / 2)
    assert np.abs(z).max() < bound, z
    for part in draws:  # by ranks: in 3 of 40 runs, rare values of x up to 25 leave 190 to 400 for its mean
        assert refhmc.diagnostics.ess(part).min() > 500


def test_the_constrained_values_and_the_simulation():
    x, y = simulate(50)
    model = StochasticVolatility(y)
    values = model.constrain(unconstrain(x, 0.65, 0.15, 0.98))
    assert [float(values[k]) for k in ("beta", "sigma", "phi")] == pytest.approx([0.65, 0.15, 0.98])
    assert np.array_equal(values["x"], x)
    assert StochasticVolatility().dim == 1003
    assert np.array_equal(StochasticVolatility(T=50).data, model.data)


def test_model_can_be_pickled():
    model, q = StochasticVolatility(Y), position(np.random.default_rng(9))
    copy = pickle.loads(pickle.dumps(model))
    assert copy.log_density(q) == model.log_density(q)
    assert copy.fingerprint() == model.fingerprint()
    parts = [refhmc.conditional(each, "x", q) for each in (model, copy)]
    assert parts[0].name == parts[1].name == "stochastic-volatility, x"
    assert np.array_equal(parts[0].gradient(q[: len(Y)]), parts[1].gradient(q[: len(Y)]))


@pytest.mark.parametrize(
    ("y", "error", "text"),
    [
        ([1.0], ShapeError, r"y must.* got shape \(1,\)"),
        (np.ones((2, 2)), ShapeError, r"y must.* got shape \(2, 2\)"),
        ([1.0, np.nan], ValueError, "finite"),
        ([0.0, 0.0], ValueError, "zero"),
    ],
)
def test_invalid_series_are_rejected(y, error, text):
    with pytest.raises(error, match=text):
        StochasticVolatility(y)
