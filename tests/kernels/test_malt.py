"""Metropolis-adjusted Langevin trajectories: a chain against the definition, both implementations, exact distributions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.metrics import Diagonal
from refhmc.sampling.chains.chain import Chain, make_plan
from tests.helpers.array_cases import CASES, QUICK, begin
from tests.helpers.kept_momenta import leapfrog
from tests.helpers.laws import LAWS, assert_law_is_kept, normals
from tests.helpers.leapfrog_cases import METRICS, model
from tests.helpers.sweeps import representatives


@pytest.mark.parametrize("persistence", [None, 0.3])
def test_chain_follows_the_definition(persistence):
    """The same random numbers in the documented order, and the sum of the errors of the leapfrog's steps."""
    m, inverse_mass, eps, n = model("gaussian"), np.array([0.8, 0.3, 2.0]), 0.8, 4
    kernel = refhmc.MALT(step_size=eps, n_steps=n, persistence=persistence, metric=Diagonal(inverse_mass))
    chain = Chain(m, make_plan(m, kernel, 0), np.random.default_rng(3))
    chain.start(np.zeros(3))
    draws, stats = np.zeros((100, 3)), np.zeros((100, chain.plan.n_stats))
    chain.run(draws, stats)
    rng, q, a = np.random.default_rng(3), np.zeros(3), np.exp(-eps) if persistence is None else persistence
    accepted = 0
    for draw in draws:
        x, p, error = q, np.zeros(3), 0.0
        for i in range(n):
            noise = rng.standard_normal(3) / np.sqrt(inverse_mass)
            p = noise if i == 0 else a * p + np.sqrt(1 - a * a) * noise
            x, p, before, after = leapfrog(m, inverse_mass, x, p, eps, 1)
            error += after - before
        accepts = rng.random() < np.exp(-error)
        q, accepted = (x if accepts else q), accepted + accepts
        np.testing.assert_allclose(draw, q, rtol=0, atol=1e-9)
    assert 30 < accepted < 99


# Of the last bits, or counted for all chains together.
NOT_COMPARED = ("solver_iterations", "solver_residual", "reversibility_error")


@pytest.mark.parametrize("name", representatives([name for name in CASES if name != "explicit Tao"], QUICK))
def test_all_implementations_agree(name):
    """Compiled, many chains on arrays, and one transition on arrays."""
    m, metric, integrator, eps, T, q, xi, p, uniforms, _ = begin(name)
    d, n = m.dim, 3
    numbers = np.concatenate(
        [uniforms[:, :1], scipy.stats.norm.ppf(uniforms[:, 1 : 1 + (n - 1) * d]), uniforms[:, -1:]], axis=1
    )
    options = {"step_size": eps, "n_steps": n, "persistence": 0.6, "step_jitter": 0.2}
    with np.errstate(all="ignore"):
        mine = refhmc.array_api.malt(T, integrator.on_arrays(), q, p, numbers, **options)
    kernel = refhmc.MALT(metric=metric, integrator=integrator, **options)
    with np.errstate(all="ignore"):
        many = refhmc.array_api.transitions(m, kernel, q, xi, numbers)
    np.testing.assert_allclose(many.q, mine.q, rtol=0, atol=1e-9)
    for k in range(len(q)):
        core = refhmc.transition(m, kernel, q[k], momentum=p[k], uniforms=numbers[k])
        assert core.uniforms_used == many.uniforms_used[k] == numbers.shape[1]
        for key, value in core.stats.items():
            other = many.stats.get(key, np.full(len(q), value))[k]
            assert value == other or abs(value - other) <= 1e-7 * (1 + abs(value)) or key in NOT_COMPARED, (key, k)
        assert core.stats["is_accepted"] == mine.is_accepted[k]
        assert abs(core.stats["acceptance_rate"] - mine.acceptance_rate[k]) < 1e-8
        assert np.abs(core.q - mine.q[k]).max() < 1e-8 * (1 + np.abs(core.q).max())
        if core.stats["is_accepted"]:
            assert abs(core.stats["energy_error"] - mine.energy_error[k]) < 1e-8 * (1 + abs(core.stats["energy"]))


def test_one_step_is_hmc():
    m, metric, _, eps, _, q, xi, _, uniforms, _ = begin("leapfrog")
    for k in range(len(q)):
        of = [
            refhmc.transition(
                m, kind(step_size=eps, n_steps=1, metric=metric), q[k], normals=xi[k], uniforms=uniforms[k]
            )
            for kind in (refhmc.HMC, refhmc.MALT)
        ]
        assert np.array_equal(of[0].q, of[1].q)
        assert of[0].stats["acceptance_rate"] == of[1].stats["acceptance_rate"]


@pytest.mark.parametrize("metric", representatives(METRICS, ["dense"]))
@pytest.mark.parametrize("name", sorted(LAWS))
def test_transition_keeps_the_exact_distribution(name, metric):
    """Kolmogorov-Smirnov, 20,000 starts. False alarm of all cases: 1e-6."""
    kernel = refhmc.MALT(
        step_size=0.7 * LAWS[name][1], n_steps=4, persistence=0.5, metric=METRICS[metric](model(name).dim)
    )
    assert_law_is_kept(name, kernel, 20_000, 1e-6 / (len(METRICS) * len(LAWS)))


@pytest.mark.parametrize("bug", ["correct", "error of the ends only"])
def test_distribution_on_normals_finds_a_wrong_error(bug):
    """30,000 starts, 12 steps of 1.5. False alarm 1e-6; the refreshments' own change of energy must not be in the ratio."""
    rng, m = np.random.default_rng(4), normals(1)
    q, p = rng.normal(size=(2, 30_000, 1))
    T = refhmc.array_api.hamiltonian(m, refhmc.metrics.Identity())
    numbers = np.concatenate([rng.normal(size=(len(q), 11)), rng.random((len(q), 1))], axis=1)
    options = {"step_size": 1.5, "n_steps": 12, "persistence": 0.5}
    moves = refhmc.array_api.malt(T, refhmc.array_api.leapfrog, q, p, numbers, **options)
    end = moves.q
    if bug != "correct":
        numbers[:, -1] = 0.0  # always accepted: then decide by H at both ends
        there = refhmc.array_api.malt(T, refhmc.array_api.leapfrog, q, p, numbers, **options).q
        fresh = rng.normal(size=q.shape)
        ratio = np.exp(T.energy(q, p) - T.energy(there, fresh))
        end = np.where((rng.random(len(q)) < ratio)[:, None], there, q)
    assert (scipy.stats.kstest(end.ravel(), "norm").pvalue < 1e-6) == (bug != "correct")


@pytest.mark.parametrize("backend", ["numba", "arrays"])
def test_run_with_warm_up_recovers_the_target(backend):
    """Means and variances of a correlated normal, within 6 standard errors from the ESS: false alarm below 1e-7."""
    m = model("gaussian")
    options = {"draws": 3000, "tune": 500, "random_seed": 2, "raw": True, "progressbar": False, "backend": backend}
    result = refhmc.sample(m, refhmc.MALT(trajectory_length=3.0), **options)
    x = (result.draws - m.reference.mean) / np.sqrt(m.reference.variance)
    for moment, mean in ((x, 0.0), (x * x, 1.0)):
        error = moment.std(axis=(0, 1)) / np.sqrt(refhmc.diagnostics.ess(moment))
        assert (np.abs(moment.mean(axis=(0, 1)) - mean) < 6 * error).all()


def test_conformance_kit_passes_langevin_and_runs_longer_trajectories():
    """The kit's kernel(draws, q) reads the refreshments as normals, between the uniforms of the jitter and of the decision."""
    m, metric = normals(2), Diagonal([1.0, 0.5])
    one = refhmc.MALT(step_size=1.2, n_steps=1, metric=metric)
    report = refhmc.check.transition(one, refhmc.Hamiltonian(m, metric), n_points=4, seconds=None)
    assert report.row("detailed balance").status == report.row("acceptance").status == "PASS"
    kernel = refhmc.MALT(step_size=0.8, trajectory_length=2.4, persistence=0.6, step_jitter=0.2, metric=metric)
    draws, q = refhmc.check.Draws(np.random.default_rng(2)), np.array([0.3, -1.0])
    end = refhmc.check.adapters.refhmc_kernel(m, kernel)(draws, q)
    rng = np.random.default_rng(2)
    z, tape = rng.standard_normal(2), [rng.random(), *rng.standard_normal(4), rng.random()]
    assert [x.kind for x in draws.asked] == ["normal", "uniform", "normal", "normal", "uniform"]
    made = refhmc.transition(m, kernel, q, normals=z, uniforms=tape)
    assert made.uniforms_used == len(tape)
    assert np.array_equal(end["q"], made.q)
    assert end["path"].shape == (2, 2)
    assert not np.array_equal(end, q)


def test_conformance_kit_finds_no_wrong_distribution_of_a_chain():
    kernel = refhmc.MALT(step_size=1.2, n_steps=3, persistence=0.6, metric=Diagonal([1.0, 0.5]))
    assert refhmc.check.sampler(kernel, normals(2), draws=2000).status == "PASS"
