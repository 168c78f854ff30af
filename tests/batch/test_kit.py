"""The conformance kit on the kernels of many chains, through ``refhmc.array_api.transitions``, and on planted faults."""

from types import SimpleNamespace

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc import DHMC, HMC, NUTS
from refhmc.batch.memory import Remembering
from refhmc.batch.recorded import Recorded
from refhmc.batch.steps import Mover
from refhmc.check.orbits.shapes import tape_transition
from refhmc.integrators import ImplicitMidpoint, RandomizedSplit
from refhmc.metrics import Diagonal, Identity, SoftAbs
from refhmc.models.model_on_arrays import ModelOnArrays
from refhmc.numerics import batched
from tests.helpers.discontinuous_cases import draw_switch, switch
from tests.helpers.sweeps import representatives, swept

FUNNEL = refhmc.models.Funnel(2)
SPLIT = refhmc.models.LogisticRegression(np.random.default_rng(6).normal(size=(30, 3)), np.arange(30) % 2).split(3)
BOTH = {"step_jitter": 0.3, "length_jitter": 0.6}
SOLVED = {"metric": SoftAbs(alpha=2.0), "integrator": ImplicitMidpoint(tolerance=1e-4)}


def kernel_of(model, kernel, k):
    """As the kit calls it: (rng, q) to q, for all chains; ``k`` uniforms each."""

    def move(rng, q):
        normals, uniforms = rng.standard_normal(q.shape), rng.random((len(q), k))
        with np.errstate(all="ignore"):
            return refhmc.array_api.transitions(model, kernel, q, normals, uniforms).q

    return move


JITTERED = HMC(step_size=0.6, n_steps=5, metric=Identity(), **BOTH)
CASES = {
    "hmc": (FUNNEL, JITTERED, 3),
    "hmc, implicit": (FUNNEL, HMC(step_size=0.8, n_steps=4, **SOLVED), 1),
    "nuts": (FUNNEL, NUTS(step_size=0.9, max_treedepth=2, metric=Identity()), 5),
    "nuts, randomised split": (
        SPLIT,
        NUTS(step_size=0.6, max_treedepth=2, metric=Identity(), integrator=RandomizedSplit()),
        7,
    ),
    "dhmc": (switch(), DHMC(step_size=0.9, n_steps=4, metric=Diagonal([1.0, 0.5])), 3),
}


def examined(name):
    model, kernel, k = CASES[name]
    points = draw_switch(np.random.default_rng(1), 4) if name == "dhmc" else None
    return rc.batch(kernel_of(model, kernel, k), dim=model.dim, chains=4, points=points, name=name)


def statuses(report):
    return {row.name: row.status for row in report.rows}


@pytest.mark.parametrize("name", representatives(CASES, ["nuts"]))
def test_batch(name):
    """Chains alone, in another order, beside NaN, and their numbers; none of it left out."""
    report = examined(name)
    assert report.status == "PASS", report
    assert set(statuses(report).values()) == {"PASS"}, report


def one_uniform(monkeypatch):
    """All chains have the first one's uniforms."""
    own = Recorded.uniforms
    monkeypatch.setattr(Recorded, "uniforms", lambda self, *a: own(self, *a)[:1] + 0 * own(self, *a))


def goes_on(monkeypatch):
    """A chain whose solve has converged continues as long as another's does."""

    def together(equation, x, known, tolerance, most, *_):
        for _ in range(most):
            image = equation(x, *known)
            change, x = np.max(np.abs(image - x), axis=-1), image
            if (change <= tolerance).all():
                break
        return x, change <= tolerance, 0 * change + most, change, change < 0

    monkeypatch.setattr(batched, "iterated", together)


def spreads(monkeypatch):
    """The moving chains are selected by a matrix product, in which 0 NaN is NaN."""
    own = Mover.__call__

    def move(self, point, *others):
        chosen = np.eye(len(point.energy))
        return own(self, point._replace(z=tuple(chosen @ x for x in point.z)), *others)

    monkeypatch.setattr(Mover, "__call__", move)


def by_place(monkeypatch):
    """A chain's momentum depends on its place in the batch."""
    own = Recorded.normals

    def normals(self, rows, *others):
        return own(self, rows, *others) * (1 + np.arange(len(self.given))[rows, None] / 10)

    monkeypatch.setattr(Recorded, "normals", normals)


def midpoint(q, p, eps, n):
    """Steps of the batch's mover, by solves to a tolerance of 1e-4."""
    mover = Mover(SoftAbs(alpha=2.0).on_arrays(Remembering(ModelOnArrays(FUNNEL))), ImplicitMidpoint(tolerance=1e-4))
    with np.errstate(all="ignore"):
        mover.record.start(0 * q[:, 0])
        point = mover.at((q, p))
        for _ in range(n):
            point = mover(point, np.full(len(q), eps))
    return point.z


@pytest.mark.parametrize(
    ("plant", "subject", "row"),
    [
        (one_uniform, "hmc", "decisions independent"),
        swept(goes_on, midpoint, "alone equals batch"),
        swept(spreads, "hmc", "divergent neighbour"),
        swept(by_place, "nuts", "order of chains"),
    ],
)
def test_faults_planted_in_the_batch_are_found(plant, subject, row, monkeypatch):
    """Without faults the checks pass: see above, and here for the steps."""

    def look():
        return rc.batch(subject, dim=3, chains=4) if callable(subject) else examined(subject)

    if callable(subject):
        assert look().status == "PASS", look()
    plant(monkeypatch)
    assert statuses(look())[row] == "FAIL", look()


@pytest.mark.sweep
@pytest.mark.parametrize("name", representatives(["hmc", "nuts", "dhmc"], ["hmc"]))
def test_sampler(name):
    """The kit's own false alarm: one in a million per report."""
    model, target = refhmc.models.Funnel(10), "funnel"
    if name == "hmc":
        kernel, k = HMC(step_size=0.4, n_steps=8, metric=Identity(), **BOTH), 3
    elif name == "nuts":
        kernel, k = NUTS(step_size=0.4, max_treedepth=4, metric=Identity()), 40
    else:
        model, kernel, k = switch(), DHMC(step_size=0.6, n_steps=5, metric=Diagonal([1.0, 0.5])), 3
        target = SimpleNamespace(draw=draw_switch, log_density=model.log_density)
    move = kernel_of(model, kernel, k)
    report = rc.sampler(move, target=target, batched=True, draws=4000, seconds=None, name=name)
    assert report.status == "PASS", str(report)[:3000]


@pytest.mark.parametrize(("depth", "most"), [(1, 2), swept(2, 5)])
def test_orbit(depth, most):
    """NUTS in a batch, between a chain that is not a number and one far away: its distribution on enumerated orbits.

    The depth of the trees bounds the number of uniforms.
    """
    kernel = NUTS(step_size=0.5, max_treedepth=depth, metric=Identity())

    def run(q, p, tape):
        beside = np.stack([np.full(3, np.nan), q, np.full(3, 4.0)])
        with np.errstate(all="ignore"):
            end = refhmc.array_api.transitions(FUNNEL, kernel, beside, np.tile(p, (3, 1)), np.tile(tape[:most], (3, 1)))
        return end.q[1], end.probabilities[1, : int(end.uniforms_used[1])]

    def leap(q, p, eps):
        half = p + eps / 2 * FUNNEL.gradient(q)
        new = q + eps * half
        return new, half + eps / 2 * FUNNEL.gradient(new)

    report = rc.orbit(
        tape_transition(run, most), leap, FUNNEL, depth, eps=0.5, dim=3, seconds=None, most_runs=4000, name="batch"
    )
    assert report.status == "PASS", report
    assert statuses(report)["invariance"] == "PASS", report


@pytest.mark.sweep
def test_what_is_recorded_is_what_the_compiled_kernel_does():
    """On one tape the compiled kernel compares the same uniforms with the same numbers; NUTS and HMC."""
    rng = np.random.default_rng(3)
    q, normals, uniforms = rng.normal(size=(6, 3)), rng.normal(size=(6, 3)), rng.random((6, 70))
    for kernel in (JITTERED, NUTS(step_size=0.3, max_treedepth=5, metric=Identity())):
        moved = refhmc.array_api.transitions(FUNNEL, kernel, q, normals, uniforms)
        for k in range(6):
            core = refhmc.transition(FUNNEL, kernel, q[k], normals=normals[k], uniforms=uniforms[k])
            assert moved.uniforms_used[k] == core.uniforms_used
            assert np.allclose(moved.q[k], core.q, rtol=1e-10)
            compared = np.flatnonzero(np.isfinite(moved.probabilities[k]))
            decisions = compared[moved.probabilities[k][compared] != 0.5]  # in the place of a direction is the uniform
            assert len(decisions) > 0
            assert np.allclose(moved.probabilities[k][decisions], core.probabilities[decisions], rtol=1e-8)


def test_what_cannot_be_is_said():
    q, u = np.zeros((2, 3)), np.full((2, 1), 0.5)
    with pytest.raises(TypeError, match="kernel must be.*HMC, NUTS, DHMC.*SGLD"):
        refhmc.array_api.transitions(FUNNEL, refhmc.SGLD(step_size=0.1), q, q, u)
    with pytest.raises(ValueError, match="step_size of HMC"):
        refhmc.array_api.transitions(FUNNEL, HMC(), q, q, u)
    with pytest.raises(ValueError, match=r"uniforms must have \d+.*got 1\."):
        refhmc.array_api.transitions(FUNNEL, NUTS(step_size=0.1), q, q + 1, u)
    with pytest.raises(refhmc.errors.ShapeError, match=r"uniforms must have.*\(3,\)"):
        refhmc.array_api.transitions(FUNNEL, JITTERED, q[0], q[0], u)
