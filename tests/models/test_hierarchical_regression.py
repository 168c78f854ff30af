"""Varying intercepts and the horseshoe: their Fisher metrics, and their posteriors by another method.

``tests/models/test_generated.py`` compares the densities with their definitions.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.errors import ShapeError
from refhmc.models.datasets import load_json
from tests.helpers import conjugate
from tests.helpers.posteriors import plain_ess

RNG = np.random.default_rng(8)
GROUP = np.array([0, 0, 1, 2, 2, 2, 1, 0])
X, Y = RNG.standard_normal((8, 2)), RNG.standard_normal(8) + np.array([1.0, -0.5, 0.5])[GROUP]
EXPLICIT = refhmc.HMC(metric="fisher", integrator="block-leapfrog")
RUN = {"draws": 3000, "chains": 4, "random_seed": 5, "progressbar": False, "raw": True}


def intercepts(centered, y=Y):
    return refhmc.models.VaryingIntercepts(centered, y=y, group=GROUP, X=X)


def horseshoe(centered, y=Y):
    return refhmc.models.Horseshoe(centered, X=X, y=y, global_scale=0.5)


def plus_and_minus(center, scale):
    """Return points with the given mean and covariance: averages of quadratic functions over them are expectations."""
    n = len(center)
    return [center + sign * np.sqrt(n) * scale * e for e in np.eye(n) for sign in (1, -1)]


@pytest.mark.parametrize(("make", "J", "curvature"), [(intercepts, 3, 2.0), (horseshoe, 2, 0.5)])
@pytest.mark.parametrize("centered", [False, True])
def test_fisher_metric_is_the_expected_hessian(make, J, curvature, centered):
    """The Hessian is quadratic in y and in the effects: averages over y, and over the effects of a centred prior, are exact."""
    model, rng = make(centered), np.random.default_rng(3)
    q = 0.5 * rng.standard_normal(model.dim)
    v, A = model.constrain(q), np.column_stack([np.eye(3)[GROUP], X])
    places = [q]
    if centered:
        mean, scale = (q[3], v["sigma_alpha"]) if make is intercepts else (0.0, v["tau"] * v["lambda"])
        places = [np.append(e, q[J:]) for e in plus_and_minus(mean + np.zeros(J), scale)]
    total, count = np.zeros((model.dim, model.dim)), 0
    for at in places:
        w = model.constrain(at)
        mean = A @ np.append(w["alpha"], w["beta"]) if make is intercepts else X @ w["beta"]
        for y in plus_and_minus(mean, w["sigma_y" if make is intercepts else "sigma"]):
            total, count = total - make(centered, y).hessian(at), count + 1
    expected, scales = total / count, slice(-2, None) if make is intercepts else slice(J, None)
    h = q[scales] - (0.0 if make is intercepts else np.r_[np.zeros(J), np.log(0.5), 0.0])
    here = 2 * np.exp(2 * h) if make is intercepts else np.cosh(h) ** -2.0
    expected[scales, scales] += np.diag(curvature - here)
    np.testing.assert_allclose(model.fisher(q), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_the_means_of_the_curvature_of_the_priors():
    normal = scipy.stats.halfnorm.expect(lambda s: 2 * s**2)
    cauchy = scipy.stats.halfcauchy.expect(lambda s: np.cosh(np.log(s)) ** -2.0)
    np.testing.assert_allclose([normal, cauchy], [2.0, 0.5], rtol=1e-8)


def z_scores(draws, mean, variance):
    """z of means and variances of draws (chains, draws, k) against exact ones."""
    squares = (draws - mean) ** 2
    pairs = [(draws, mean), (squares, variance)]
    return np.concatenate([(x.mean((0, 1)) - exact) / (x.std((0, 1)) / np.sqrt(plain_ess(x))) for x, exact in pairs])


@pytest.mark.parametrize("centered", [False, True])
def test_posterior_of_varying_intercepts(centered):
    """Explicit Riemannian steps on the centred form, NUTS on the other, with a false-alarm rate of 1e-7 each."""
    run = refhmc.sample(intercepts(centered), EXPLICIT if centered else refhmc.NUTS(target_accept=0.95), **RUN)
    names = ("alpha", "mu", "beta", "sigma_alpha", "sigma_y")
    draws = np.concatenate([run.posterior[name].reshape(4, 3000, -1) for name in names], axis=2)
    axes = np.arange(-16, 2, 0.15), np.arange(-2.5, 1.8, 0.1)
    z = z_scores(draws, *conjugate.varying_intercepts(Y, GROUP, X, conjugate.grid(*axes)))
    assert np.abs(z).max() < scipy.stats.norm.isf(1e-7 / len(z) / 2), z


@pytest.mark.parametrize("centered", [False, True])
def test_posterior_of_the_horseshoe(centered):
    """As above, with the logarithms of the scales, because tau has no mean."""
    run = refhmc.sample(horseshoe(centered), EXPLICIT if centered else refhmc.NUTS(target_accept=0.95), **RUN)
    logs = np.log(np.concatenate([run.posterior["lambda"], run.posterior["tau"][..., None]], axis=2))
    draws = np.concatenate([run.posterior["beta"], logs, np.log(run.posterior["sigma"])[..., None]], axis=2)
    wide = np.arange(-17, 17, 0.7)
    mean, variance = conjugate.horseshoe(X, Y, 0.5, conjugate.grid(wide, wide, wide, np.arange(-1.5, 2.2, 0.15)))
    z = z_scores(draws, mean, variance)
    assert np.abs(z).max() < scipy.stats.norm.isf(1e-7 / len(z) / 2), z


@pytest.mark.sweep
def test_the_reference_of_the_radon_model_is_its_posterior():
    radon = load_json("radon_mn")
    y, group = np.array(radon["log_radon"]), np.array(radon["county"])
    X = np.column_stack([np.array(radon["log_uppm"])[group], radon["floor_measure"]])
    grid = conjugate.grid(np.arange(-20, 1, 0.15), np.log(0.73) + 0.0235 * np.arange(-8, 9, 0.7))
    mean, variance = conjugate.varying_intercepts(y, group, X, grid)
    reference = refhmc.models.VaryingIntercepts().reference
    np.testing.assert_allclose(reference.mean, mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(reference.variance, variance, rtol=1e-7)


@pytest.mark.parametrize(("make", "effect"), [(intercepts, "alpha"), (horseshoe, "beta")])
def test_both_forms_have_the_same_variables(make, effect):
    one, other = make(False), make(True)
    q = np.random.default_rng(4).standard_normal(one.dim)
    values = one.constrain(q)
    q[: len(values[effect])] = values[effect]
    assert other.reference_names == one.reference_names
    for name, value in other.constrain(q).items():
        np.testing.assert_allclose(value, values[name], rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: refhmc.models.VaryingIntercepts(y=[1.0]), ValueError, "given together"),
        (lambda: refhmc.models.VaryingIntercepts(y=Y, group=GROUP, X=X[:3]), ShapeError, "one row per observation"),
        (lambda: refhmc.models.VaryingIntercepts(y=Y, group=GROUP[:3], X=X), ShapeError, "group"),
        (lambda: refhmc.models.VaryingIntercepts(y=Y, group=GROUP - 0.5, X=X), ValueError, "group"),
        (lambda: refhmc.models.VaryingIntercepts(y=Y, group=GROUP, X=X * np.nan), ValueError, "finite"),
        (lambda: refhmc.models.Horseshoe(X=X), ValueError, "given together"),
        (lambda: refhmc.models.Horseshoe(X=X, y=Y[:3]), ShapeError, "X must have shape"),
        (lambda: refhmc.models.Horseshoe(X=X, y=Y, global_scale=0.0), ValueError, "global_scale"),
        (lambda: refhmc.models.Horseshoe("yes"), TypeError, "centered"),
    ],
)
def test_invalid_arguments_are_rejected(make, error, words):
    with pytest.raises(error, match=words):
        make()
