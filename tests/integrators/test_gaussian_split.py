"""Shahbaba's split: exact on a Gaussian, a correct integrator for other densities, and its mode.

The grid of properties is in ``tests/integrators/test_splits.py``.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import refhmc
from refhmc.errors import MetricError, ShapeError
from refhmc.integrators import GaussianSplit, Leapfrog, Yoshida
from refhmc.integrators.defaults import resolve
from refhmc.metrics import Dense, Diagonal, Fisher, Identity, Tridiagonal
from tests.helpers.models import FEW_CALLS
from tests.helpers.riemannian_cases import model_of
from tests.helpers.sweeps import representatives

METRICS = {
    "identity": Identity(),
    "diagonal": Diagonal([0.5, 1.0, 30.0]),
    "dense": Dense([[1.0, 0.3, 0.0], [0.3, 0.7, -0.2], [0.0, -0.2, 2.0]]),
}


@pytest.mark.parametrize("eps", [0.01, 1.0, 40.0])
@pytest.mark.parametrize("metric", METRICS)
def test_a_step_of_any_size_is_exact_on_the_gaussian(metric, eps):
    """Against the exponential of the linear vector field, by SciPy; the leapfrog's energy explodes at the larger steps."""
    model, rng = model_of("gaussian-3"), np.random.default_rng(4)
    m, J = model.reference.mean, -model.hessian(np.zeros(3))
    H = refhmc.Hamiltonian(model, METRICS[metric])
    q, p = rng.normal(size=3), H.draw_momentum(np.zeros(3), rng)
    path = refhmc.integrate(H, GaussianSplit(m, J), q, p, step_size=eps, n_steps=25)
    assert np.ptp(path.energy) < 1e-11 * (1 + abs(path.energy[0])) * (1 + eps)
    W, zero = np.linalg.inv(H.mass()), np.zeros((3, 3))
    one_step = scipy.linalg.expm(eps * np.block([[zero, W], [-J, zero]]))
    z = np.concatenate([q - m, p])
    for _ in range(25):
        z = one_step @ z
    size = 1e-10 * (1 + eps) * np.linalg.cond(one_step)
    np.testing.assert_allclose(np.concatenate([path.q[-1] - m, path.p[-1]]), z, rtol=0, atol=size)
    assert path.evaluations == 26
    if eps >= 1:
        leapfrog = refhmc.integrate(H, Leapfrog(), q, p, step_size=eps, n_steps=25)
        assert not np.ptp(leapfrog.energy) < 1


KIT = {
    "dense": (lambda split: split, METRICS["dense"], 0.6, 2),
    "diagonal": (lambda split: split, METRICS["diagonal"], 0.6, 2),
    "identity": (lambda split: split, METRICS["identity"], 0.6, 2),
    "composed": (Yoshida, METRICS["identity"], 0.3, 4),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", representatives(KIT, ["dense"]))
def test_the_kit_finds_what_it_claims(name):
    make, metric, eps, order = KIT[name]
    model = model_of("logistic")
    split = GaussianSplit.at_mode(model)
    H, rng = refhmc.Hamiltonian(model, metric), np.random.default_rng(2)
    points = [(split.mean + 0.7 * rng.normal(size=3), H.draw_momentum(split.mean, rng)) for _ in range(2)]
    claims = f"symplectic reversible order={order}"
    report = refhmc.check.integrator(make(split), H, eps=eps, claims=claims, points=points, seconds=None)
    assert report.ok, report
    status = {row.name: row.status for row in report.rows}
    assert status["symplectic"] == status["reversible"] == status["order"] == "PASS", report


def test_it_goes_on_where_the_leapfrog_is_unstable():
    """The diabetes regression it was made for, at 1.5 times the leapfrog's limit 2 / omega, from 40 draws of the Gaussian."""
    model = refhmc.models.Diabetes()
    split, rng = GaussianSplit.at_mode(model), np.random.default_rng(1)
    limit = 2 / np.sqrt(np.linalg.eigvalsh(split.precision)[-1])
    H, root = refhmc.Hamiltonian(model), np.linalg.cholesky(np.linalg.inv(split.precision))
    errors: dict = {split: [], Leapfrog(): []}
    for _ in range(40):
        q, p = split.mean + root @ rng.normal(size=model.dim), rng.normal(size=model.dim)
        for integrator, found in errors.items():
            path = refhmc.integrate(H, integrator, q, p, step_size=1.5 * limit, n_steps=3)
            found.append(abs(path.energy[-1] - path.energy[0]))
    of_split, of_leapfrog = np.median(list(errors.values()), axis=1)
    assert of_split < 0.5
    assert of_leapfrog > 50


def two_hills(q, data):
    return 0.5 * q[0] ** 2 - 0.25 * q[0] ** 4


def two_hills_gradient(q, data):
    return q - q**3


def two_hills_hessian(q, data):
    return np.array([[1 - 3 * q[0] ** 2]])


def test_the_mode():
    model = model_of("logistic")
    split = GaussianSplit.at_mode(model, start=[3.0, -3.0, 2.0])
    np.testing.assert_allclose(model.gradient(split.mean), 0, atol=1e-6)
    np.testing.assert_allclose(split.precision, -model.hessian(split.mean), rtol=1e-12, atol=1e-12)
    gaussian = model_of("gaussian-3")
    np.testing.assert_allclose(GaussianSplit.at_mode(gaussian).mean, gaussian.reference.mean, atol=1e-10)
    saddle = refhmc.Model(1, two_hills, two_hills_gradient, hessian=two_hills_hessian, in_python=FEW_CALLS)
    with pytest.raises(ValueError, match="mode.*start.*0"):
        GaussianSplit.at_mode(saddle, [0.0])
    assert abs(GaussianSplit.at_mode(saddle, [0.5]).mean[0]) == pytest.approx(1.0, abs=1e-6)


def test_what_cannot_be_is_refused():
    for mean, J, error in (
        ([0.0], np.eye(2), ShapeError),
        (np.zeros((2, 2)), np.eye(2), ShapeError),
        ([0.0, 0.0], [[1.0, 0.5], [0.4, 1.0]], MetricError),
        ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], MetricError),
        ([0.0, np.nan], np.eye(2), MetricError),
    ):
        with pytest.raises(error):
            GaussianSplit(mean, J)
    model, split = model_of("logistic"), GaussianSplit(np.zeros(3), np.eye(3))
    assert resolve(None, split)[0] == resolve(None, Yoshida(split))[0] == Identity()
    for metric in (Diagonal(), Dense(), Tridiagonal([1.0, 1.0, 1.0], [0.1, 0.1])):
        with pytest.raises(MetricError, match=f"metric must.*GaussianSplit.*{type(metric).__name__}"):
            refhmc.sample(model, refhmc.HMC(n_steps=2, integrator=split, metric=metric), draws=1, tune=1)
    with pytest.raises(ValueError, match="metric must be constant.*GaussianSplit.*Fisher"):
        refhmc.HMC(integrator=split, metric=Fisher())
    with pytest.raises(ShapeError, match=r"mean.*\(3,\).*\(1,\)"):
        refhmc.sample(model, refhmc.NUTS(integrator=GaussianSplit([0.0], [[1.0]])), draws=1, tune=1)
