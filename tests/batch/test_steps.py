"""A step of many chains and the way back, against the compiled core's step of each: the same verdicts, ends and iterations."""

import numpy as np
import pytest

import refhmc
from refhmc.batch.memory import Remembering
from refhmc.batch.steps import Mover
from refhmc.integrators import (
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    ProjectedTao,
    Suzuki,
    SymmetricSplit,
    Yoshida,
)
from refhmc.metrics import Dense, DiagonalSoftAbs, Fisher, SoftAbs
from refhmc.models.on_arrays import ModelOnArrays

N = 300
FUNNEL, BANANA = refhmc.models.Funnel(2), refhmc.models.Banana()
CASES = {
    "generalised": (FUNNEL, SoftAbs(), GeneralizedLeapfrog()),
    "midpoint": (FUNNEL, SoftAbs(), ImplicitMidpoint()),
    "midpoint's midpoint": (FUNNEL, SoftAbs(), ImplicitMidpoint(variant="midpoint")),
    "diagonal": (FUNNEL, DiagonalSoftAbs(alpha=2.0), ImplicitMidpoint()),
    "fisher": (BANANA, Fisher(), ImplicitMidpoint(max_iterations=40)),
    "composed": (BANANA, Fisher(), Suzuki(GeneralizedLeapfrog())),
    "projected": (FUNNEL, SoftAbs(), ProjectedTao(omega=0.5, solver="fixed point")),
    "unchecked": (FUNNEL, SoftAbs(), GeneralizedLeapfrog(reversibility_check=False)),
    "leapfrog": (FUNNEL, Dense(np.diag([1.0, 2, 3]) + 0.3), Yoshida(Leapfrog())),
}


def moved(model, metric, integrator, q, normals, eps):
    model = Remembering(ModelOnArrays(model))
    H = metric.on_arrays(model)
    mover = Mover(H, integrator)
    with np.errstate(all="ignore"):
        p = H.draw_momentum(q, normals)
        mover.record.start(0 * eps)
        begun = mover.at((q, p))
        return begun, mover(begun, eps), mover.record


@pytest.mark.parametrize("name", CASES)
def test_each_chains_step_is_the_compiled_one(name):
    """At random places and steps, of which a share fails. The core projects with the copies of the last iterate but one: its
    ends agree to the solver's tolerance."""
    model, metric, integrator = CASES[name]
    rng = np.random.default_rng(5)
    q, normals = rng.uniform(-2, 2, (N, model.dim)), rng.normal(size=(N, model.dim))
    eps = rng.uniform(0.05, 0.4, N) * rng.choice([-1, 1], N)
    begun, end, record = moved(model, metric, integrator, q, normals, eps)
    H = refhmc.Hamiltonian(model, metric)
    failures = 0
    for k in range(N):
        path = refhmc.integrate(H, integrator, q[k], begun.z[1][k], step_size=eps[k], n_steps=1)
        failed = not path.converged[0]
        assert failed == (record.failed[k] or record.not_reversed[k])
        assert np.isnan(end.energy[k]) >= failed
        failures += failed
        if not failed:
            scale = 1 + np.abs(path.q[-1]).max() + np.abs(path.p[-1]).max()
            bound = 1e-5 if name == "projected" else 1e-10
            assert np.abs(end.z[0][k] - path.q[-1]).max() <= bound * scale
            assert np.abs(end.z[1][k] - path.p[-1]).max() <= bound * scale
            assert end.energy[k] == pytest.approx(path.energy[-1], rel=bound, abs=bound * scale**2)
    assert (failures > 10) == (name not in ("leapfrog", "diagonal"))


def test_the_split_of_many_chains_is_the_compiled_one():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 3))
    model = refhmc.models.LogisticRegression(X, rng.integers(0, 2, 30)).split(3)
    q, normals, eps = rng.normal(size=(20, model.dim)), rng.normal(size=(20, model.dim)), np.full(20, 0.1)
    begun, end, _ = moved(model, refhmc.metrics.Identity(), SymmetricSplit(), q, normals, eps)
    H = refhmc.Hamiltonian(model, refhmc.metrics.Identity())
    for k in range(20):
        path = refhmc.integrate(H, SymmetricSplit(), q[k], begun.z[1][k], step_size=0.1, n_steps=1)
        assert np.abs(end.z[0][k] - path.q[-1]).max() < 1e-12
        assert end.energy[k] == pytest.approx(path.energy[-1], rel=1e-12)


def test_nothing_is_evaluated_twice_at_one_position():
    """A leapfrog step asks for one gradient of each chain; from a point whose gradient is known."""
    model = Remembering(ModelOnArrays(FUNNEL))
    mover = Mover(refhmc.metrics.Identity().on_arrays(model), Leapfrog())
    q = np.random.default_rng(0).normal(size=(7, 3))
    point = mover.at((q, q))
    before = model.counts["gradient"]
    for _ in range(5):
        point = mover(point, np.full(7, 0.1))
    assert model.counts["gradient"] - before == 5 * 7
