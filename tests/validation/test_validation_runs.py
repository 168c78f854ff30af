"""What the commands on Cobb et al. (2019) rest on: the program's chain, and a published run beside several of ours."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.integrators import GeneralizedLeapfrog
from refhmc.metrics import Identity, SoftAbs
from tests.helpers.sweeps import swept
from validation.cobb_program import HIGHEST, LARGEST, Rule, chain
from validation.comparing import further_observation, smaller, verdict
from validation.judging import POWER, level


def chain_in_python(model, kernel, rule: Rule, start, draws: int, seed) -> tuple[np.ndarray, int, int]:
    """The rules of :mod:`validation.cobb_program` with ``refhmc.integrate``: recorded positions, accepted, failed."""
    rng, H = np.random.default_rng(seed), refhmc.Hamiltonian(model, kernel.metric)
    q, recorded, accepted, failed = np.array(start, dtype=float), [np.array(start, dtype=float)], 0, 0
    for _ in range(draws):
        before = q
        z = rng.standard_normal(model.dim)
        p = z if isinstance(kernel.metric, Identity) else momentum(model, kernel, q, z)
        options = {"step_size": kernel.step_size, "n_steps": kernel.n_steps}
        with np.errstate(all="ignore"):
            path = refhmc.integrate(H, kernel.integrator or refhmc.integrators.Leapfrog(), q, p, **options)
        if not (np.all(np.abs(path.energy) < LARGEST) and np.all(np.abs(path.q[1:, 0]) < HIGHEST)):
            failed += 1
            q = before if rule.restores else recorded[-1]
            recorded += [] if rule.whole else [q]
            continue
        accept = math.log(1 - rng.random()) <= rule.weight * (path.energy[0] - path.energy[-1])
        accepted += accept
        q = path.q[-1] if accept or not rule.restores else before
        if rule.whole:
            recorded += list(path.q[1:]) if accept else []
        else:
            recorded.append(q)
    return np.array(recorded[1:]), accepted, failed


def momentum(model, kernel, q, normals):
    return refhmc.transition(model, kernel, q, normals=normals, uniforms=[0.5]).momentum


@pytest.mark.sweep
@pytest.mark.parametrize("rule", [Rule(), swept((Rule(whole=True),)), Rule(restores=False, whole=True, weight=2.0)])
@pytest.mark.parametrize("which", ["euclidean", "riemannian"])
def test_the_program_s_chain_against_its_text_in_python(which, rule):
    """Draw by draw, with rejected and with failed trajectories among them."""
    model = refhmc.models.Funnel(3)
    if which == "euclidean":
        kernel, draws = refhmc.HMC(step_size=0.7, n_steps=5, metric=Identity()), 400
    else:
        integrator = GeneralizedLeapfrog(tolerance=0.03, max_iterations=1000, reversibility_check=False)
        kernel, draws = refhmc.HMC(step_size=0.5, n_steps=4, metric=SoftAbs(1e6), integrator=integrator), 60
    start = np.array([2.0, 1.0, 1.0, 1.0])
    got = chain(model, kernel, rule, start, draws, 5)
    recorded, accepted, failed = chain_in_python(model, kernel, rule, start, draws, 5)
    assert got.acceptance == accepted / draws
    assert got.failed == failed / draws
    assert 0 < accepted < draws
    if which == "euclidean":
        assert failed > 0
        assert accepted + failed < draws
    np.testing.assert_allclose(got.recorded, recorded, rtol=1e-6, atol=1e-6)


@pytest.mark.sweep
def test_only_the_restored_chain_keeps_the_funnel():
    """Step 0.39: restored, v stays within 7 standard deviations; not restored, it is recorded far outside."""
    model, kernel = refhmc.models.Funnel(10), refhmc.HMC(step_size=0.3896, n_steps=25, metric=Identity())
    start = np.r_[0.0, np.ones(10)]
    right = chain(model, kernel, Rule(), start, 20_000, 1).recorded[:, 0]
    program = chain(model, kernel, Rule(restores=False, whole=True), start, 20_000, 1).recorded[:, 0]
    assert right.min() > -21
    assert program.min() < -30


@pytest.mark.sweep
def test_a_further_observation_by_the_closed_form_and_by_simulation():
    """Without rounding p is Student's. P(p < level) and, at the difference told, the power. False alarm: 2e-6."""
    x, x0 = np.array([1.0, 2.0, 4.0, 3.5]), 5.0
    t = (x0 - x.mean()) / (x.std(ddof=1) * math.sqrt(1 + 1 / 4))
    assert further_observation(x, x0, 0.0).p == pytest.approx(2 * scipy.stats.t.sf(t, 3), rel=1e-9)
    assert further_observation([1.0], 1.0, 0.0) is None
    assert further_observation([1.0, 1.0], 2.0, 0.0).p == 0
    rng, trials, n = np.random.default_rng(1), 4000, 6
    runs, noise = rng.normal(size=(trials, n)), rng.normal(size=trials)
    alarms = sum(further_observation(x, x0, 0.0).p < level(2) for x, x0 in zip(runs, noise, strict=True))
    assert scipy.stats.binomtest(alarms, trials, level(2)).pvalue > 1e-6
    # A difference of told = c s is found with the chance of T > limit - c, whatever s is.
    found = 0
    for x, x0 in zip(runs[:400], noise[:400], strict=True):
        beside = further_observation(x, x0, 0.0)
        found += further_observation(x, x0 + beside.told(2), 0.0).p < level(2)
    assert scipy.stats.binomtest(found, 400, POWER).pvalue > 1e-6


def test_verdicts_of_one_run_and_of_two_samplers():
    assert verdict(0.001, 10.0, 0.1, 2) == "differs"
    assert verdict(0.5, 0.05, 0.1, 2) == "agrees"
    assert verdict(0.5, 10.0, 0.1, 2) == "not decided"
    one, other = np.array([1.0, 1.1, 0.9, 1.05]), np.array([2.0, 2.2, 1.8, 2.1])
    ratio, word = smaller(one, other, 4)
    assert ratio == "0.5"
    assert word.startswith("holds")
    assert smaller(other, one, 4)[1].startswith("does not hold")
    assert smaller(one, one * np.array([1.1, 0.9, 1.0, 1.0]), 4)[1].startswith("not decided")
