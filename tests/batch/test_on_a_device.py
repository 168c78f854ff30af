"""``sample(backend="cupy")`` on a device without a GPU (:mod:`tests.helpers.fake_device`): nothing is mixed with the host's
arrays, the draws are those of ``backend="arrays"`` bit for bit, and how often Python waits for the device is counted."""

import numpy as np
import pytest

import refhmc
from refhmc import HMC, NUTS
from refhmc.integrators import ExplicitTao, GeneralizedLeapfrog, ProjectedTao, RandomizedSplit, SymmetricSplit
from refhmc.metrics import Dense, Diagonal, Fisher, SoftAbs, Tridiagonal
from tests.helpers import fake_device

FUNNEL, BANANA = refhmc.models.Funnel(2), refhmc.models.Banana()
RUN = {"draws": 3, "tune": 5, "chains": 4, "random_seed": 3}
SHALLOW = {"max_treedepth": 3}
RNG = np.random.default_rng(8)
X, Y = RNG.normal(size=(30, 3)), RNG.integers(0, 2, 30)
LOGISTIC = refhmc.models.LogisticRegression(X, Y)

CASES = {
    "nuts": (FUNNEL, NUTS(**SHALLOW)),
    "nuts, dense": (FUNNEL, NUTS(**SHALLOW, metric=Dense())),
    "nuts, from gradients": (BANANA, NUTS(**SHALLOW, metric=Diagonal(learn_from="draws and gradients"))),
    "nuts, fisher": (BANANA, NUTS(max_treedepth=2, metric=Fisher())),
    "nuts, logistic": (LOGISTIC, NUTS(**SHALLOW)),
    "hmc, jitters": (FUNNEL, HMC(step_jitter=0.2, length_jitter=0.5)),
    "hmc, softabs": (FUNNEL, HMC(n_steps=2, metric=SoftAbs())),
    "hmc, generalised": (LOGISTIC, HMC(n_steps=2, metric=Fisher(), integrator=GeneralizedLeapfrog())),
    "hmc, two copies": (FUNNEL, HMC(n_steps=2, metric=SoftAbs(), integrator=ExplicitTao(omega=3.0))),
    "hmc, projected": (FUNNEL, HMC(n_steps=2, metric=SoftAbs(), integrator=ProjectedTao(omega=0.5))),
    "hmc, split": (LOGISTIC.split(3), HMC(n_steps=3, integrator=SymmetricSplit())),
    "hmc, random split": (LOGISTIC.split(3), HMC(n_steps=3, integrator=RandomizedSplit())),
    "hmc, schools": (refhmc.models.EightSchools(), HMC(n_steps=3)),
    "hmc, volatility": (
        refhmc.models.StochasticVolatility(RNG.normal(size=6)),
        HMC(n_steps=2, metric=Tridiagonal(np.full(9, 2.0), np.full(8, 0.3))),
    ),
    "hmc, softmax": (refhmc.models.SoftmaxRegression(X, Y), HMC(n_steps=3)),
    "hmc, network": (refhmc.models.MLP([3, 4, 2], X, Y), HMC(n_steps=3)),
    "hmc, gaussian": (refhmc.models.Gaussian(np.zeros(2), np.array([[1.0, 0.5], [0.5, 2.0]])), HMC(n_steps=3)),
}


@pytest.fixture
def device(monkeypatch):
    """The device; and x'y is summed in the same order on NumPy, where numpy.vecdot has another (:func:`batched.dot`)."""
    monkeypatch.setattr(np, "vecdot", lambda x, y: np.sum(x * y, axis=-1))
    return fake_device.install(monkeypatch)


def equal(a, b):
    """All groups of two results, bit for bit."""
    assert a.groups.keys() == b.groups.keys()
    for group in a.groups:
        for name, values in a.groups[group].items():
            assert values.dtype == b.groups[group][name].dtype, (group, name)
            assert np.array_equal(values, b.groups[group][name], equal_nan=True), (group, name)


@pytest.mark.parametrize("name", CASES)
def test_the_draws_are_those_of_numpy(name, sample, device):
    model, kernel = CASES[name]
    for shared in (True, False) if name == "nuts" else (True,):
        options = {**RUN, "save_warmup": True, "shared_step_size": shared}
        here = sample(model, kernel, backend="arrays", **options)
        there = sample(model, kernel, backend="cupy", **options)
        equal(here, there)
        assert there.attributes["device"] == "FakeDevice, CuPy 0.0, CUDA 13000"
        assert there.attributes["backend"] == "cupy"
