"""A step of many chains and its reverse step, against the compiled core's step of each: equal verdicts, ends and iterations."""

import numpy as np
import pytest

import refhmc
from refhmc.batch.memory import Remembering
from refhmc.batch.steps import Mover
from refhmc.integrators import (
    BCSS,
    GeneralizedLeapfrog,
    ImplicitMidpoint,
    Leapfrog,
    ProjectedTao,
    RandomizedSplit,
    Suzuki,
    SymmetricSplit,
    Yoshida,
)
from refhmc.metrics import Dense, DiagonalSoftAbs, Fisher, SoftAbs
from refhmc.models.model_on_arrays import ModelOnArrays
from tests.helpers.batches import chains_at, made
from tests.helpers.sweeps import representatives

N = 300
FUNNEL, BANANA = refhmc.models.Funnel(2), refhmc.models.Banana()
CASES = {
    "generalised": (FUNNEL, SoftAbs(1e6), GeneralizedLeapfrog()),
    "midpoint": (FUNNEL, SoftAbs(1e6), ImplicitMidpoint()),
    "midpoint's midpoint": (FUNNEL, SoftAbs(1e6), ImplicitMidpoint(variant="midpoint")),
    "diagonal": (FUNNEL, DiagonalSoftAbs(alpha=2.0), ImplicitMidpoint()),
    "fisher": (BANANA, Fisher(), ImplicitMidpoint(max_iterations=40)),
    "composed": (BANANA, Fisher(), Suzuki(GeneralizedLeapfrog())),
    "projected": (FUNNEL, SoftAbs(1e6), ProjectedTao(omega=0.5, solver="fixed point")),
    "projected, accelerated": (BANANA, SoftAbs(alpha=1.0), ProjectedTao(omega=0.5)),
    "midpoint, accelerated": (FUNNEL, SoftAbs(1e6), ImplicitMidpoint(solver="anderson")),
    "generalised, accelerated": (FUNNEL, SoftAbs(1e6), GeneralizedLeapfrog(solver="anderson")),
    "accelerated, unchecked": (BANANA, Fisher(), ImplicitMidpoint(solver="anderson", reversibility_check=False)),
    "unchecked": (FUNNEL, SoftAbs(1e6), GeneralizedLeapfrog(reversibility_check=False)),
    "splitting": (FUNNEL, Dense(np.diag([1.0, 2, 3]) + 0.3), BCSS(stages=3)),
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


@pytest.mark.parametrize("name", representatives(CASES, ["midpoint", "projected, accelerated"]))
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
            bound = 1e-5 if isinstance(integrator, ProjectedTao) else 1e-10
            assert np.abs(end.z[0][k] - path.q[-1]).max() <= bound * scale
            assert np.abs(end.z[1][k] - path.p[-1]).max() <= bound * scale
            assert end.energy[k] == pytest.approx(path.energy[-1], rel=bound, abs=bound * scale**2)
    assert (failures > 10) == (name not in ("leapfrog", "splitting", "diagonal"))


@pytest.mark.sweep
def test_the_split_of_many_chains_is_the_compiled_one():
    rng, model = np.random.default_rng(2), split(3)
    q, normals, eps = rng.normal(size=(20, model.dim)), rng.normal(size=(20, model.dim)), np.full(20, 0.1)
    begun, end, _ = moved(model, refhmc.metrics.Identity(), SymmetricSplit(), q, normals, eps)
    H = refhmc.Hamiltonian(model, refhmc.metrics.Identity())
    for k in range(20):
        path = refhmc.integrate(H, SymmetricSplit(), q[k], begun.z[1][k], step_size=0.1, n_steps=1)
        assert np.abs(end.z[0][k] - path.q[-1]).max() < 1e-12
        assert end.energy[k] == pytest.approx(path.energy[-1], rel=1e-12)


def split(M):
    rng = np.random.default_rng(2)
    return refhmc.models.LogisticRegression(rng.normal(size=(30, 3)), rng.integers(0, 2, 30)).split(M)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["numpy", "array_api_strict", "torch"])
def test_each_row_goes_through_the_parts_in_its_own_order(name):
    """Forward, and backward in the reversed order, against the compiled step in that order."""
    xp = pytest.importorskip(name)
    rng, model = np.random.default_rng(8), split(4)
    q, p = rng.normal(size=(2, 12, model.dim))
    orders, eps = np.array([rng.permutation(4) for _ in range(12)]), 0.2 * rng.choice([-1, 1], 12)
    H = refhmc.array_api.hamiltonian(model, refhmc.metrics.Identity(), xp)
    there = refhmc.array_api.randomized_split(H, *map(xp.asarray, (q, p, eps[:, None], orders)))
    for k, order in enumerate(orders):
        compiled = refhmc.Hamiltonian(model, refhmc.metrics.Identity())
        one = RandomizedSplit(one_order=tuple(int(m) for m in order))
        path = refhmc.integrate(compiled, one, q[k], p[k], step_size=eps[k], n_steps=1)
        assert np.allclose(np.asarray(there[0])[k], path.q[-1], rtol=0, atol=1e-13)
        assert np.allclose(np.asarray(there[1])[k], path.p[-1], rtol=0, atol=1e-13)


@pytest.mark.sweep
@pytest.mark.parametrize("M", [1, 4])
@pytest.mark.parametrize("jitter", [0.0, 0.8])
def test_partial_gradients_of_splits_are_evaluated_once(M, jitter):
    """2 M - 2 for a symmetric step (one with M = 1), 2 M for a randomised one.

    HMC needs M more per trajectory, for the energy at its end and for the part with which it starts. NUTS, for which each
    state has an energy, needs the other parts, M - 1 or M, per step. (If all randomised rows end with the same part, that
    one is not evaluated for the energy again.)
    """
    starts = np.random.default_rng(1).normal(size=(9, 3))
    for integrator, each in {SymmetricSplit(): max(2 * M - 2, 1), RandomizedSplit(): 2 * M if M > 1 else 1}.items():
        common = {"step_size": 0.2, "metric": refhmc.metrics.Identity(), "integrator": integrator}
        shared = integrator.shared_part(M) is not None
        for kernel in (refhmc.HMC(n_steps=10, length_jitter=jitter, **common), refhmc.NUTS(**common)):
            chains, transitions = chains_at(split(M), kernel, starts, 3)
            counts = transitions.mover.H.model.counts
            counts["gradient"] = 0
            _, stats = made(chains, transitions, 5)
            steps, begun = stats["n_steps"].sum(), 9 * 5
            more = begun * M if kernel.name == "hmc" else steps * (M - shared) + begun * shared
            evaluated = counts["gradient"] - steps * each
            assert evaluated == more if shared else 0 < evaluated <= more


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
