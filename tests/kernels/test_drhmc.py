"""Delayed-rejection HMC: probabilities of all stages against the definition, detailed balance, both implementations."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc.metrics import Diagonal
from tests.helpers.array_cases import CASES, QUICK, begin
from tests.helpers.kept_momenta import assert_arrays_are_compiled, leapfrog
from tests.helpers.laws import JUST_BELOW_ONE, LAWS, normal_gradient, normals
from tests.helpers.leapfrog_cases import ANY_CASE, METRICS, case, model
from tests.helpers.many_starts import from_each
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import representatives


def probabilities(m, inverse_mass, z, stages, eps, n, r, same_length):
    """a_1, ..., a_K at z = (q, p) by the definition, ratio by ratio, without logarithms."""

    def proposal(z, k):
        steps = round(n * r ** (k - 1)) if same_length else n
        q, p, H0, H1 = leapfrog(m, inverse_mass, *z, eps / r ** (k - 1), steps)
        return (q, -p), np.exp(H0 - H1)

    found = []
    for k in range(1, stages + 1):
        there, ratio = proposal(z, k)
        ghosts = probabilities(m, inverse_mass, there, k - 1, eps, n, r, same_length)
        rejected = np.prod([1 - a for a in found])
        found.append(min(1.0, ratio * np.prod([1 - a for a in ghosts]) / rejected) if rejected > 0 else 0.0)
    return found


@pytest.mark.parametrize("same_length", [True, False])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_probabilities_of_all_stages_are_those_of_the_definition(stages, same_length):
    m, inverse_mass, rng, compared = model("funnel"), np.array([0.5, 1.0, 1.5, 2.0]), np.random.default_rng(stages), 0
    options = {"step_size": 1.3, "n_steps": 2, "max_stages": stages, "reduction": 2.0, "same_length": same_length}
    kernel = refhmc.DRHMC(metric=Diagonal(inverse_mass), **options)
    for _ in range(30):
        q, xi = rng.standard_normal((2, 4))
        z = q, xi / np.sqrt(inverse_mass)
        with np.errstate(all="ignore"):
            expected = probabilities(m, inverse_mass, z, stages, 1.3, 2, 2.0, same_length)
        got = refhmc.transition(m, kernel, q, normals=xi, uniforms=np.full(stages, JUST_BELOW_ONE)).probabilities
        np.testing.assert_allclose(got, expected[: len(got)], rtol=1e-7, atol=1e-9)
        assert len(got) == stages or got[-1] == 1
        compared += np.sum((got > 1e-6) & (got < 1))
    assert compared > 10


@cases(25)
@given(**ANY_CASE, stages=st.integers(1, 4), same_length=st.booleans())
def test_stages_are_in_detailed_balance(name, metric, seed, step, n_steps, stages, same_length):
    """exp(-H(z)) prod (1 - a_i(z)) a_k(z) is the same at both ends of each stage's move, from the compiled probabilities."""
    H, q, p, eps = case(name, metric, seed, 1.5 + step)
    kernel = refhmc.DRHMC(
        step_size=eps, n_steps=min(n_steps, 3), max_stages=stages, reduction=1.7, same_length=same_length,
        persistence=0.5, metric=H.metric,
    )  # fmt: skip

    def made(q, p, k):
        """Stage k is accepted, and the ones before are rejected; zero noise halves the momentum."""
        uniforms = np.append(np.full(k - 1, JUST_BELOW_ONE), 0.0)
        return refhmc.transition(
            H.model, kernel, q, momentum=2 * p, normals=np.zeros(len(q)), uniforms=np.append(uniforms, np.zeros(4))
        )

    def log_flow(q, p, a):
        with np.errstate(divide="ignore"):
            return -H.energy(q, p) + np.sum(np.log1p(-a[:-1])) + np.log(a[-1])

    for k in range(1, stages + 1):
        there = made(q, p, k)
        if there.stats["stage"] != k or there.probabilities[-1] < 1e-12:
            continue
        new, end = there.q, there.kept_momentum
        size = 1 + np.abs(np.concatenate([q, p, new, end])).max()
        back = made(new, -end, k)
        assert back.stats["stage"] == k
        np.testing.assert_allclose(back.q, q, rtol=0, atol=1e-8 * size**2)
        np.testing.assert_allclose(back.kept_momentum, -p, rtol=0, atol=1e-8 * size**2)
        scale = 1 + abs(H.energy(q, p)) + abs(H.energy(new, end))
        near = 1e-9 * scale / (1 - np.concatenate([there.probabilities[:-1], back.probabilities[:-1], [0.0]])).min()
        assert log_flow(q, p, there.probabilities) == pytest.approx(log_flow(new, end, back.probabilities), abs=near)


@pytest.mark.parametrize("name", representatives([name for name in CASES if name != "explicit Tao"], QUICK))
def test_both_implementations_agree(name):
    m, metric, integrator, eps, _, q, xi, p, uniforms, _ = begin(name)
    options = {"step_size": 2 * eps, "reduction": 2.0, "metric": metric, "integrator": integrator}
    reached = set()
    for kernel, momentum in (
        (refhmc.DRHMC(n_steps=2, step_jitter=0.2, length_jitter=0.5, **options), None),
        (refhmc.DRHMC(n_steps=1, same_length=False, persistence=0.8, max_stages=4, **options), p),
        (refhmc.DRHMC(trajectory_length=5 * eps, max_stages=2, **options), None),
    ):
        made = assert_arrays_are_compiled(m, kernel, q, momentum, xi, uniforms[:, :6], near=1e-7)
        reached |= set(made.stats["stage"].astype(int))
    assert len(reached) > 1 or name not in QUICK or name == "leapfrog, small"


def test_array_transition_is_that_of_many_chains():
    m, metric, integrator, eps, T, q, xi, p, uniforms, _ = begin("leapfrog")
    options = {
        "step_size": 3 * eps, "n_steps": 2, "max_stages": 3, "reduction": 2.0, "persistence": 0.6, "step_jitter": 0.2,
        "length_jitter": 0.4,
    }  # fmt: skip
    many = refhmc.array_api.transitions(m, refhmc.DRHMC(metric=metric, **options), q, xi, uniforms[:, :5], momentum=p)
    with np.errstate(all="ignore"):
        one = refhmc.array_api.drhmc(T, integrator.on_arrays(), q, p, xi, uniforms[:, :5], **options)
    assert np.array_equal(one.stage, many.stats["stage"])
    np.testing.assert_allclose(one.q, many.q, rtol=0, atol=1e-10)
    np.testing.assert_allclose(one.p, many.momentum, rtol=0, atol=1e-10)
    np.testing.assert_allclose(one.probabilities[:, 0], many.stats["acceptance_rate"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(one.energy_error, many.stats["energy_error"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("persistence", [0.0, 0.7])
@pytest.mark.parametrize("name", sorted(LAWS))
def test_three_transitions_keep_the_exact_distribution(name, persistence):
    """Kolmogorov-Smirnov, 20,000 starts, with most proposals of the first stage rejected. False alarm of all cases: 1e-6."""
    draw, back = LAWS[name][0]()
    m = model(name)
    z = np.random.default_rng(1).normal(size=(20_000, m.dim))
    kernel = refhmc.DRHMC(
        step_size=(2.4 if name == "gaussian" else 3.5) * LAWS[name][1],
        n_steps=2,
        reduction=2.0,
        persistence=persistence,
        metric=METRICS["diagonal"](m.dim),
    )
    ends, stats = from_each(m, kernel, draw(z), seed=2, n_transitions=3)
    for stage in (1, 2, 3):
        assert np.mean(stats["stage"] == stage) > 0.005
    for column in back(ends).T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-6 / (2 * len(LAWS) * z.shape[1])


@pytest.mark.parametrize("backend", ["numba", "arrays"])
@pytest.mark.parametrize("options", [{"n_steps": 3}, {"n_steps": 1, "same_length": False, "persistence": 0.8}])
def test_run_with_warm_up_recovers_the_target(backend, options):
    """Means and variances of a correlated normal, within 6 standard errors from the ESS: false alarm below 1e-7."""
    m = model("gaussian")
    draws, chains = (2000, 4) if backend == "numba" else (150, 20)
    result = refhmc.sample(
        m, refhmc.DRHMC(**options), draws=draws, tune=200, chains=chains, backend=backend, random_seed=2, raw=True,
        progressbar=False,
    )  # fmt: skip
    x = (result.draws - m.reference.mean) / np.sqrt(m.reference.variance)
    for moment, mean in ((x, 0.0), (x * x, 1.0)):
        error = moment.std(axis=(0, 1)) / np.sqrt(refhmc.diagnostics.ess(moment))
        assert (np.abs(moment.mean(axis=(0, 1)) - mean) < 6 * error).all()
    assert 0.65 < result.sample_stats["acceptance_rate"].mean() < 0.99  # coarse where few steps are made


def normal_in_a_box(q, data):
    return -0.5 * q[0] * q[0] if abs(q[0]) < 1 else -np.inf


def test_a_proposal_outside_the_support_is_retried_with_smaller_steps():
    m = refhmc.Model(1, normal_in_a_box, normal_gradient, name="box")
    kernel = refhmc.DRHMC(step_size=1.0, n_steps=1, same_length=False, reduction=4.0, metric=Diagonal(1.0))
    made = refhmc.transition(m, kernel, [-0.5], normals=[2.5], uniforms=[0.0, 0.0, 0.0])  # its ghost is outside, too
    assert made.stats["stage"] == 2
    assert made.probabilities[0] == 0.0
    assert made.probabilities[1] == pytest.approx(min(1.0, np.exp(-made.stats["energy_error"])), rel=1e-12)
    assert not made.stats["diverging"]
    back = refhmc.transition(
        m, kernel, [0.5], normals=[1.0], uniforms=[0.0, 0.0, 0.0]
    )  # the ghost of stage 2 is accepted
    assert list(back.probabilities[:2]) == [0.0, 0.0]
    out = refhmc.transition(m, kernel, [0.999], normals=[3.0], uniforms=[0.0, 0.0, 0.0])
    assert out.stats["stage"] == 0
    assert out.stats["diverging"]
    assert np.array_equal(out.kept_momentum, [-3.0])


def test_invalid_options_are_rejected():
    for options, words in (
        ({"max_stages": 5}, "max_stages"),
        ({"reduction": 1.0}, "reduction"),
        ({"n_steps": 2, "trajectory_length": 1.0}, "n_steps"),
        ({"integrator": refhmc.integrators.SymmetricSplit()}, "parts"),
        ({"metric": "softabs", "integrator": refhmc.integrators.ExplicitTao(1.0)}, "two copies"),
    ):
        with pytest.raises(ValueError, match=words):
            refhmc.DRHMC(**options)


@pytest.mark.sweep  # some 7,000 transitions
def test_the_kit_passes_it():
    """Its acceptance depends on ghosts, so that the outcomes of both stages are enumerated."""
    m = normals(2)
    kernel = refhmc.DRHMC(step_size=1.6, n_steps=1, max_stages=2, persistence=0.5, metric=Diagonal([1.0, 1.0]))
    report = refhmc.check.transition(kernel, refhmc.Hamiltonian(m, kernel.metric), n_points=4, seconds=None)
    assert report.status == "PASS", report
    assert "over all outcomes" in report.row("acceptance").basis
    for name in ("acceptance", "momentum refreshment", "volume", "momentum flip"):
        assert report.row(name).status == "PASS"
    assert refhmc.check.sampler(kernel, m, draws=2000).status == "PASS"
