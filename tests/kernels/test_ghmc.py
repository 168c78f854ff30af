"""Generalised HMC: a chain against the definition, both implementations, the joint distribution of what is kept, warm-up."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc.batch.streams import Purpose
from refhmc.metrics import Diagonal, Identity
from refhmc.sampling.chains.chain import Chain, make_plan
from tests.helpers.array_cases import CASES, QUICK, begin
from tests.helpers.batches import chains_at, made, normals_of_numpy, numbers_of_numpy
from tests.helpers.kept_momenta import assert_arrays_are_compiled, leapfrog
from tests.helpers.laws import JUST_BELOW_ONE, LAWS, normals
from tests.helpers.leapfrog_cases import ANY_CASE, METRICS, case, model
from tests.helpers.many_starts import from_each
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import representatives


def by_definition(m, q, rng, *, eps, n, a, inverse_mass, shift, draws):
    """Positions and slice variables of a chain, with the random numbers in the documented order."""
    p = u = None
    for _ in range(draws):
        noise = rng.standard_normal(len(q)) / np.sqrt(inverse_mass)
        p = noise if p is None else a * p + np.sqrt(1 - a * a) * noise
        new, end, H0, H1 = leapfrog(m, inverse_mass, q, p, eps, n)
        ratio = np.exp(H0 - H1)
        if shift:
            u = 2 * rng.random() - 1 if u is None else u
            u = (u + shift + 1) % 2 - 1
            accepts = abs(u) < ratio
            u = u / ratio if accepts else u
        else:
            accepts = rng.random() < ratio
        q, p = (new, end) if accepts else (q, -p)
        yield q, u, accepts


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("persistence", [None, 0.6])
def test_chain_follows_the_definition(shift, persistence):
    m, inverse_mass = model("gaussian"), np.array([0.8, 0.3, 2.0])
    kernel = refhmc.GHMC(
        step_size=0.9, n_steps=2, persistence=persistence, slice_shift=shift, metric=Diagonal(inverse_mass)
    )
    chain = Chain(m, make_plan(m, kernel, 0), np.random.default_rng(3))
    chain.start(np.zeros(3))
    draws, stats = np.zeros((200, 3)), np.zeros((200, chain.plan.n_stats))
    assert chain.run(draws, stats) == 200
    by_name = refhmc.core.sample_stats.named(stats, kernel.statistics)
    options = {"eps": 0.9, "n": 2, "a": np.exp(-1.8) if persistence is None else persistence, "shift": shift}
    chain = by_definition(m, np.zeros(3), np.random.default_rng(3), inverse_mass=inverse_mass, draws=200, **options)
    for k, (q, u, accepts) in enumerate(chain):
        np.testing.assert_allclose(draws[k], q, rtol=0, atol=1e-9)
        assert by_name["is_accepted"][k] == accepts
        if shift:
            assert by_name["slice_variable"][k] == pytest.approx(u, abs=1e-9)
    assert 0.3 < by_name["is_accepted"].mean() < 0.95


@pytest.mark.parametrize("name", representatives([name for name in CASES if name != "explicit Tao"], QUICK))
def test_both_implementations_agree(name):
    m, metric, integrator, eps, _, q, xi, p, uniforms, _ = begin(name)
    options = {"step_size": eps, "metric": metric, "integrator": integrator, "step_jitter": 0.2}
    u = 2 * uniforms[:, -1] - 1
    for kernel, momentum, level in (
        (refhmc.GHMC(n_steps=3, **options), p, None),
        (refhmc.GHMC(persistence=0.8, **options), None, None),
        (refhmc.GHMC(persistence=0.8, slice_shift=0.4, **options), p, u),
        (refhmc.GHMC(slice_shift=0.4, **options), None, None),
    ):
        assert_arrays_are_compiled(m, kernel, q, momentum, xi, uniforms[:, :4], level)


@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_array_transition_is_that_of_many_chains(shift):
    m, metric, integrator, eps, T, q, xi, p, uniforms, _ = begin("leapfrog")
    kernel = refhmc.GHMC(step_size=eps, n_steps=2, persistence=0.7, slice_shift=shift, step_jitter=0.3, metric=metric)
    u = 2 * uniforms[:, -1] - 1 if shift else None
    many = refhmc.array_api.transitions(m, kernel, q, xi, uniforms, momentum=p, slice_variable=u)
    options = {"step_size": eps, "n_steps": 2, "persistence": 0.7, "step_jitter": 0.3}
    one = refhmc.array_api.ghmc(
        T, integrator.on_arrays(), q, p, xi, uniforms, slice_shift=shift, slice_variable=u, **options
    )
    assert np.array_equal(one.is_accepted, many.stats["is_accepted"])
    np.testing.assert_allclose(one.q, many.q, rtol=0, atol=1e-12)
    np.testing.assert_allclose(one.p, many.momentum, rtol=0, atol=1e-12)
    if shift:
        np.testing.assert_allclose(one.slice_variable, many.stats["slice_variable"], rtol=0, atol=1e-12)


@cases(25)
@given(**ANY_CASE, a=st.floats(0.1, 0.95))
def test_accepted_move_reverses_and_a_rejection_turns_round(name, metric, seed, step, n_steps, a):
    """With zero noise the trajectory starts with a p, so that p / a makes any momentum the first one."""
    H, q, p, eps = case(name, metric, seed, step)
    kernel = refhmc.GHMC(step_size=eps, n_steps=n_steps, persistence=a, metric=H.metric)
    noise = {"normals": np.zeros(len(q))}
    there = refhmc.transition(H.model, kernel, q, momentum=p / a, uniforms=[0.0], **noise)
    size = 1 + np.abs(np.concatenate([q, p, there.q, there.kept_momentum])).max()
    back = refhmc.transition(H.model, kernel, there.q, momentum=-there.kept_momentum / a, uniforms=[0.0], **noise)
    np.testing.assert_allclose(back.q, q, rtol=0, atol=1e-9 * size**2)
    np.testing.assert_allclose(back.kept_momentum, -p, rtol=0, atol=1e-9 * size**2)
    log_ratio = H.energy(q, p) - H.energy(there.q, there.kept_momentum)
    near = 1e-10 * (1 + abs(H.energy(q, p)))
    assert there.stats["acceptance_rate"] == pytest.approx(min(1.0, np.exp(log_ratio)), abs=near)
    if there.stats["acceptance_rate"] < 0.999:
        left = refhmc.transition(H.model, kernel, q, momentum=p / a, uniforms=[JUST_BELOW_ONE], **noise)
        assert np.array_equal(left.q, q)
        np.testing.assert_allclose(left.kept_momentum, -p, rtol=1e-14)


def test_without_persistence_it_is_hmc():
    m, metric, _, eps, _, q, xi, p, uniforms, _ = begin("leapfrog")
    options = {"step_size": eps, "n_steps": 4, "metric": metric}
    for k in range(len(q)):
        hmc = refhmc.transition(m, refhmc.HMC(**options), q[k], normals=xi[k], uniforms=uniforms[k])
        kernel = refhmc.GHMC(persistence=0.0, **options)
        mine = refhmc.transition(m, kernel, q[k], momentum=p[k], normals=xi[k], uniforms=uniforms[k])
        assert np.array_equal(hmc.q, mine.q)
        assert hmc.stats["acceptance_rate"] == mine.stats["acceptance_rate"]


@pytest.mark.parametrize("kernel", [
    refhmc.GHMC(step_size=0.5, persistence=0.8, slice_shift=0.3, metric=Diagonal([0.5, 1.0, 1.5, 2.0])),
    refhmc.DRHMC(step_size=1.5, n_steps=1, persistence=0.8, max_stages=2, metric=Diagonal([0.5, 1.0, 1.5, 2.0])),
], ids=["ghmc", "drhmc"])  # fmt: skip
def test_many_chains_keep_momentum_and_slice_variable(kernel):
    """Six transitions of nine chains, against single transitions on the numbers of NumPy's Philox."""
    m, starts = model("funnel"), np.random.default_rng(3).normal(size=(9, 4))
    draws, stats = made(*chains_at(m, kernel, starts, entropy=7), 6)
    for k, q in enumerate(starts):
        p = u = None
        for t in range(6):
            numbers = {
                "normals": normals_of_numpy(7, k, t, Purpose.MOMENTUM, 4),
                "uniforms": numbers_of_numpy(7, k, t, Purpose.KERNEL, 8),
            }
            move = refhmc.transition(m, kernel, q, momentum=p, slice_variable=u, **numbers)
            q, p, u = move.q, move.kept_momentum, move.stats.get("slice_variable")
            np.testing.assert_allclose(draws[k, t], q, rtol=0, atol=1e-9)
            assert stats["is_accepted"][k, t] == move.stats["is_accepted"]
            assert stats["n_steps"][k, t] == move.stats["n_steps"]


# ------------------------------------------------------------------------------------------------- distributions


@pytest.mark.parametrize("shift", [0.0, 0.3])
@pytest.mark.parametrize("metric", representatives(METRICS, ["dense"]))
@pytest.mark.parametrize("name", sorted(LAWS))
def test_five_transitions_keep_the_exact_distribution(name, metric, shift):
    """Kolmogorov-Smirnov, 20,000 starts. False alarm of all cases: 1e-6."""
    draw, back = LAWS[name][0]()
    z = np.random.default_rng(1).normal(size=(20_000, model(name).dim))
    eps = 1.5 * LAWS[name][1]
    kernel = refhmc.GHMC(step_size=eps, persistence=0.7, slice_shift=shift, metric=METRICS[metric](model(name).dim))
    ends, stats = from_each(model(name), kernel, draw(z), seed=2, n_transitions=5)
    alarm = 1e-6 / (2 * len(METRICS) * len(LAWS)) / (z.shape[1] + 2)
    for column in back(ends).T:
        assert scipy.stats.kstest(column, "norm").pvalue > alarm
    if shift:  # the slice variable is uniform, and independent of the position
        u = stats["slice_variable"]
        assert scipy.stats.kstest(u, "uniform", args=(-1, 2)).pvalue > alarm
        far = np.sum(back(ends) ** 2, axis=1) > np.median(np.sum(back(ends) ** 2, axis=1))
        assert scipy.stats.ks_2samp(u[far], u[~far]).pvalue > alarm


BUGS = ("correct", "no flip", "flip after every move")


@pytest.mark.parametrize("bug", BUGS)
def test_joint_distribution_of_position_and_momentum(bug):
    """On normals, 50,000 starts: q, p and their angle. False alarm 1e-6; the same test finds both bugs of the flip."""
    rng, m = np.random.default_rng(5), normals(1)
    q, p = rng.normal(size=(2, 50_000, 1))
    T, options = refhmc.array_api.hamiltonian(m, Identity()), {"step_size": 1.6, "persistence": 0.9}
    for _ in range(3):
        noise, u = rng.normal(size=q.shape), rng.random(q.shape)
        moves = refhmc.array_api.ghmc(T, refhmc.array_api.leapfrog, q, p, noise, u, **options)
        wrong = {"correct": False, "no flip": ~moves.is_accepted, "flip after every move": moves.is_accepted}[bug]
        q, p = moves.q, np.where(np.broadcast_to(wrong, len(q))[:, None], -moves.p, moves.p)
    assert 0.5 < moves.is_accepted.mean() < 0.9
    angle = np.arctan2(p, q).ravel() / (2 * np.pi) + 0.5
    least = min(
        scipy.stats.kstest(q.ravel(), "norm").pvalue,
        scipy.stats.kstest(p.ravel(), "norm").pvalue,
        scipy.stats.kstest(angle, "uniform").pvalue,
    )
    assert (least < 1e-6 / 3) == (bug != "correct")


# ----------------------------------------------------------------------------------------------- warm-up and runs


@pytest.mark.parametrize("metric", [Diagonal(), refhmc.metrics.LowRank(), refhmc.metrics.Dense()])
def test_momentum_is_drawn_again_when_the_metric_changes(metric):
    m, kernel = refhmc.models.Gaussian(np.zeros(2), np.diag([1.0, 1e6])), refhmc.GHMC(metric=metric, persistence=0.99)
    chain = Chain(m, make_plan(m, kernel, 300), np.random.default_rng(1))
    chain.start(np.ones(2))
    (block,) = chain.blocks
    ends = [stop for slow, _, stop in block.plan.windows if slow]
    row, stats, redrawn = np.zeros((1, 2)), np.zeros((1, chain.plan.n_stats)), []
    for k in range(300):
        chain.run(row, stats)
        if not block.settings[0].keep_momentum:
            redrawn.append(k + 1)
    assert redrawn == ends


@pytest.mark.parametrize("backend", ["numba", "arrays"])
@pytest.mark.parametrize("shift", [0.0, 0.05])
def test_run_with_warm_up_recovers_the_target(backend, shift):
    """Means and variances of a correlated normal, within 6 standard errors from the ESS: false alarm below 1e-7."""
    m = model("gaussian")
    draws = 4000 if backend == "numba" else 400
    options = {"chains": 4 if backend == "numba" else 40, "tune": 1000, "random_seed": 2, "progressbar": False}
    kernel = refhmc.GHMC(slice_shift=shift, target_accept=0.9)
    result = refhmc.sample(m, kernel, draws=draws, backend=backend, raw=True, **options)
    x = (result.draws - m.reference.mean) / np.sqrt(m.reference.variance)
    for moment, mean in ((x, 0.0), (x * x, 1.0)):
        error = moment.std(axis=(0, 1)) / np.sqrt(refhmc.diagnostics.ess(moment))
        assert (np.abs(moment.mean(axis=(0, 1)) - mean) < 6 * error).all()
    assert abs(result.sample_stats["acceptance_rate"].mean() - 0.9) < 0.06
    assert not any("E-BFMI" in text for text in result.warnings)


def test_invalid_options_are_rejected():
    integrators, metrics = refhmc.integrators, refhmc.metrics
    for options, words in (
        ({"persistence": 1.0}, "persistence"),
        ({"slice_shift": -0.1}, "slice_shift"),
        ({"n_steps": 0}, "n_steps"),
        ({"metric": metrics.SoftAbs(1e6), "integrator": integrators.ExplicitTao(1.0)}, "two copies"),
    ):
        with pytest.raises(ValueError, match=words):
            refhmc.GHMC(**options)
    kernel = refhmc.Gibbs({"v": refhmc.GHMC(metric=metrics.SoftAbs(1e6)), "x": refhmc.NUTS()})
    with pytest.raises(ValueError, match="keeps its momentum while other blocks move"):
        refhmc.sample(refhmc.models.Funnel(2), kernel, draws=1, tune=0, progressbar=False)
    m, given = model("gaussian"), refhmc.GHMC(step_size=0.1, slice_shift=0.1)
    with pytest.raises(ValueError, match="uniforms must be given"):
        refhmc.transition(m, given, np.zeros(3), normals=np.zeros(3), rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="slice_variable"):
        refhmc.transition(m, given, np.zeros(3), rng=np.random.default_rng(1), slice_variable=1.5)


@pytest.mark.sweep  # some 7,000 transitions
@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_the_kit_passes_it(shift):
    m, metric = normals(2), Diagonal([0.7, 1.5])
    kernel = refhmc.GHMC(step_size=1.1, persistence=0.7, slice_shift=shift, metric=metric)
    H = refhmc.Hamiltonian(m, metric)
    report = refhmc.check.transition(kernel, H, n_points=4, seconds=None)
    assert report.status == "PASS", report
    for name in ("acceptance", "momentum refreshment", "volume", "momentum flip", "stationarity"):
        assert report.row(name).status == "PASS"
    assert refhmc.check.sampler(kernel, m, draws=2000).status == "PASS"
