"""Split steps and kernels under check.integrator, check.transition and check.orbit: planted bugs, and refhmc's own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check import adapters
from refhmc.check.mutants import splits as cases
from refhmc.integrators import NaiveSplit, RandomizedSplit, SymmetricSplit
from refhmc.metrics import Identity


@pytest.mark.sweep
def test_missing_or_constant_counter_is_not_judged():
    step = cases.symmetric(cases.Parts())
    given = {"dim": 2, "eps": 0.3, "tolerance": 0.0, "claims": "evaluations=4"}
    assert rc.integrator(step, **given, counter=lambda: 7).row("evaluations").status == "INCONCLUSIVE"
    assert rc.integrator(step, **given).row("evaluations").status == "NOT RUN"


@pytest.mark.sweep
def test_tree_with_random_order_does_not_fail_on_another_orbit():
    """Without ``order=`` the orbit of ``leap`` is one of six possible ones, which is not a fault."""
    report = rc.orbit(cases.SplitNUTS(True, max_depth=1), cases.both_ways(True), cases.logp, depth=1, eps=0.7, dim=2)
    assert not report.failures, report
    assert "pass order=" in report.row("stays on the orbit").basis
    with pytest.raises(ValueError, match="each of 0, 1"):
        rc.orbit(cases.SplitNUTS(True), cases.both_ways(True), cases.logp, order=(0, 2), eps=0.7, dim=2)


@pytest.mark.parametrize("claims", ["evaluations", "inverse=1", "evaluations=many"])
def test_invalid_claims_are_rejected(claims):
    with pytest.raises(ValueError):
        rc.integrator(cases.both_ways(True), dim=2, claims=claims)


# ------------------------------------------------------------------------------------------------------------- refhmc's


@pytest.fixture(scope="module")
def model():
    """Return logistic regression on the seven rows, in three parts."""
    return refhmc.models.LogisticRegression(cases.X, cases.Y).split(3)


@pytest.mark.sweep
def test_independent_parts_equal_those_of_refhmc(model):
    """The two sets of cases have equal parts, so that results carry over."""
    q, p = np.array([0.3, -0.8]), np.array([1.1, 0.4])
    for m, part in enumerate(model.parts):
        np.testing.assert_allclose(part.gradient(q), cases.Parts()(m, q), rtol=1e-13)
    path = refhmc.integrate(refhmc.Hamiltonian(model), SymmetricSplit(), q, p, step_size=0.3, n_steps=4)
    np.testing.assert_allclose((path.q[-1], path.p[-1]), cases.symmetric(cases.Parts())(q, p, 0.3, 4), rtol=1e-12)


OWN = {
    "naive": (NaiveSplit(), "symplectic reversible inverse order=2"),
    "symmetric": (SymmetricSplit(), "symplectic reversible inverse order=2"),
    "randomised": (RandomizedSplit(one_order=(2, 0, 1)), "symplectic inverse order=1"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", list(OWN))
def test_integrators_of_refhmc_pass_with_their_claims(name, model):
    step, claims = OWN[name]
    assert (step.symplectic, step.reversible, step.order) == (True, "reversible" in claims, int(claims[-1]))
    report = rc.integrator(step, refhmc.Hamiltonian(model), claims=claims, eps=0.3)
    assert report.ok, report
    judged = {row.name for row in report.rows if row.status == "PASS"}
    assert judged >= {"inverse", "symplectic", "volume", "order", "small step", "elapsed time"}


def test_uniforms_of_an_order_reproduce_it_in_refhmc(model):
    kernel = refhmc.HMC(step_size=0.4, n_steps=2, integrator=RandomizedSplit(), metric=Identity())
    q, p = np.array([0.2, 0.5]), np.array([-0.3, 0.9])
    H = refhmc.Hamiltonian(model, Identity())
    ends = set()
    for order in itertools.permutations(range(3)):
        moved = refhmc.transition(model, kernel, q, momentum=p, uniforms=[*adapters.uniforms_of(order), 0.0])
        path = refhmc.integrate(H, RandomizedSplit(one_order=order), q, p, step_size=0.4, n_steps=2)
        assert np.array_equal(moved.q, path.q[-1])
        ends.add(tuple(moved.q))
    assert len(ends) == 6


KERNELS = [
    pytest.param(RandomizedSplit(), marks=pytest.mark.sweep, id="randomised"),
    pytest.param(SymmetricSplit(), marks=pytest.mark.slow, id="symmetric"),
    pytest.param(NaiveSplit(), marks=pytest.mark.slow, id="naive"),
]


@pytest.mark.parametrize("integrator", KERNELS)
def test_hmc_on_a_split_is_in_detailed_balance(integrator, model):
    """With a random order per trajectory the reverse move uses the reversed order."""
    kernel = refhmc.HMC(step_size=0.5, n_steps=2, integrator=integrator, metric=Identity())
    report = rc.transition(kernel, model, n_points=4, seconds=None)
    assert report.row("detailed balance").status == report.row("acceptance").status == "PASS", report
    assert report.ok


@pytest.mark.slow
def test_hmc_in_one_order_is_not(model):
    kernel = refhmc.HMC(step_size=0.5, n_steps=2, integrator=RandomizedSplit(one_order=(2, 0, 1)), metric=Identity())
    report = rc.transition(kernel, model, n_points=4, seconds=None)
    assert report.row("detailed balance").status == "FAIL", report


@pytest.mark.sweep
@pytest.mark.parametrize("integrator", [RandomizedSplit(), SymmetricSplit()], ids=["randomised", "symmetric"])
def test_nuts_on_a_split_is_exact_on_enumerated_orbits(integrator, model):
    """A given order replaces the uniforms from which it is drawn."""
    kernel = refhmc.NUTS(step_size=0.6, max_treedepth=1, integrator=integrator, metric=Identity())
    report = rc.orbit(kernel, target=model, depth=1, most_runs=400, seconds=None)
    assert report.row("invariance").status == "PASS", report
    assert report.row("stays on the orbit").status == "PASS"
    assert report.ok
