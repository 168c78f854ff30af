"""Warm-up: the schedule, dual averaging, Welford's sums, the learned metric, the search for a step, the freeze."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc.adaptation.dual_averaging import (
    AIM,
    DUAL,
    GAMMA,
    SETTLED_GAMMA,
    continue_dual_averaging,
    restart_dual_averaging,
    update_dual_averaging,
)
from refhmc.adaptation.step_size import MAX_DOUBLINGS, search_step_size
from refhmc.adaptation.welford import learn_from_gradients, learn_metric, update_welford
from refhmc.adaptation.windows import growing_windows, schedule_array, warmup_schedule
from refhmc.compile import compiled
from refhmc.core.point import P, Q
from refhmc.core.records import one
from refhmc.core.sample_stats import N_STATS, STATS
from refhmc.core.types import SMOOTH, Points
from refhmc.integrators.leapfrog import leapfrog_diagonal
from refhmc.metrics import euclidean
from refhmc.sampling.chains.chain import BlockState, Chain, make_plan
from tests.helpers.core_records import control_row, counters_of, plain_dynamics, plain_model, work_of
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import one_in, representatives, swept

ACCEPTANCE_RATE, STEP_SIZE = (STATS.names.index(name) for name in ("acceptance_rate", "step_size"))

LEAPFROG = refhmc.integrators.Leapfrog()

# ------------------------------------------------------------------------------------------------------ schedule


def test_the_schedule_covers_every_length_exactly():
    for tune in range(3001):
        phases = warmup_schedule(tune)
        at = 0
        for kind, start, stop in phases:
            assert kind in ("fast", "slow")
            assert start == at
            assert stop > start
            at = stop
        assert at == tune


def lengths(tune: int) -> tuple[int, list[int], int]:
    """Lengths of the first phase, of the windows, of the last phase."""
    (first, _, end), *windows, (last, start, stop) = warmup_schedule(tune)
    assert (first, last) == ("fast", "fast")
    assert all(kind == "slow" for kind, _, _ in windows)
    return end, [b - a for _, a, b in windows], stop - start


def stan_windows(tune: int) -> list[int]:
    """Lengths of the windows by the loop of Stan's ``windowed_adaptation``, iteration by iteration."""
    end, size, last_of_window, lengths, before = tune - 50 - 1, 25, 75 + 25 - 1, [], 75
    for iteration in range(75, end + 1):
        if iteration != last_of_window:
            continue
        lengths.append(iteration + 1 - before)
        before = iteration + 1
        if last_of_window == end:
            break
        size *= 2
        last_of_window = iteration + size
        if last_of_window != end and last_of_window + 2 * size >= tune - 50:
            last_of_window = end
    return lengths


def test_the_schedule_is_stan_s():
    assert lengths(1000) == (75, [25, 50, 100, 200, 500], 50)
    for tune in (150, *range(200, 3001)):
        assert lengths(tune) == (75, stan_windows(tune), 50)


def test_one_window_where_stan_would_make_a_short_second_one():
    """Stan's second window then has 1 to 49 iterations, which does not improve on the first."""
    for tune in range(151, 200):
        assert stan_windows(tune) == [25, tune - 150]
        assert lengths(tune) == (75, [tune - 125], 50)


def test_the_schedule_doubles_its_windows_and_stretches_the_last():
    for tune in range(150, 3001):
        first, windows, last = lengths(tune)
        assert (first, last) == (75, 50)
        assert windows[:-1] == [25 * 2**k for k in range(len(windows) - 1)]
        assert windows[-1] >= 25 * 2 ** (len(windows) - 1)  # stretched, never cut
        assert windows[-1] < 3 * 25 * 2 ** (len(windows) - 1)  # two windows would have fitted


def test_short_schedules():
    assert warmup_schedule(0) == []
    for tune in range(1, 20):
        assert warmup_schedule(tune) == [("fast", 0, tune)]
    for tune in range(20, 150):
        first, last = tune * 15 // 100, tune // 10
        assert lengths(tune) == (first, [tune - first - last], last)


def test_nothing_is_learned_for_a_fixed_metric():
    assert schedule_array(1000, False).tolist() == [[0, 0, 1000]]
    assert schedule_array(0, False).shape == schedule_array(0, True).shape == (0, 3)
    table = schedule_array(1000, True)
    assert [("slow" if slow else "fast", start, stop) for slow, start, stop in table.tolist()] == warmup_schedule(1000)


# ------------------------------------------------------------------------------------------------ dual averaging


def dual_averaging(
    first: float, acceptances, target: float, gamma: float = 0.05, aim: float = 10.0
) -> tuple[np.ndarray, np.ndarray]:
    """Steps and averaged steps after each acceptance statistic, as Hoffman and Gelman (2014) write it, with sums."""
    a, m = np.asarray(acceptances), np.arange(1, len(acceptances) + 1)
    # (m + t0) h_m = (m - 1 + t0) h_{m-1} + target - a_m telescopes.
    h = np.cumsum(target - a) / (m + 10)
    log_step = math.log(aim * first) - np.sqrt(m) / gamma * h
    average, averages = math.log(first), []
    for k, x in zip(m, log_step, strict=True):
        average += k**-0.75 * (x - average)
        averages.append(average)
    return np.exp(log_step), np.exp(averages)


@cases(60)
@given(
    first=st.floats(1e-4, 10.0),
    acceptances=st.lists(st.floats(0, 1), min_size=1, max_size=200),
    target=st.floats(0.05, 0.99),
    constants=st.sampled_from([(GAMMA, AIM), (SETTLED_GAMMA, 1.0)]),
)
def test_dual_averaging_is_the_published_recursion(first, acceptances, target, constants):
    gamma, aim = constants
    dual = one(DUAL)[0]
    dual.log_step = dual.log_step_bar = dual.h_bar = dual.mu = dual.count = (
        99.0  # what was there before a restart must not matter
    )
    restart_dual_averaging(dual, first, aim)
    assert math.exp(dual.log_step) == pytest.approx(first, rel=1e-14)
    steps, averages = dual_averaging(first, acceptances, target, gamma, aim)
    for a, step, average in zip(acceptances, steps, averages, strict=True):
        update_dual_averaging(dual, a, target, gamma)
        assert dual.log_step == pytest.approx(math.log(step), rel=1e-11, abs=1e-11)
        assert dual.log_step_bar == pytest.approx(math.log(average), rel=1e-11, abs=1e-11)
    assert dual.count == len(acceptances)


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_a_known_step_size_stays_where_it_meets_the_target_and_is_left_where_not(factor):
    dual = one(DUAL)[0]
    continue_dual_averaging(dual, 0.3)
    for _ in range(20):
        update_dual_averaging(dual, 0.8, 0.8)
        assert [dual.log_step, dual.log_step_bar] == pytest.approx([math.log(0.3)] * 2, rel=1e-14)
    continue_dual_averaging(dual, 0.3 * factor)
    for _ in range(500):
        update_dual_averaging(dual, math.exp(-((math.exp(dual.log_step) / 0.3) ** 2)), 0.8)
    assert math.exp(-((math.exp(dual.log_step_bar) / 0.3) ** 2)) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("target", [0.6, 0.8, 0.95])
@pytest.mark.parametrize("first", [1e-3, 1.0, 30.0])
def test_dual_averaging_finds_its_target(first, target):
    """On a known curve of acceptance against step, without noise and with bounded noise."""

    def curve(step):
        return math.exp(-((step / 0.3) ** 2))

    rng = np.random.default_rng(1)
    for noise in (0.0, 0.05):
        dual = one(DUAL)[0]
        restart_dual_averaging(dual, first)
        for _ in range(2000):
            step = math.exp(dual.log_step)
            update_dual_averaging(dual, curve(step) + noise * rng.uniform(-1, 1), target)
        assert curve(math.exp(dual.log_step_bar)) == pytest.approx(target, abs=0.01)


@pytest.mark.parametrize("target", [0.6, 0.8, 0.95])
def test_the_larger_gamma_fluctuates_less(target):
    """On the same curve with the noise of acceptances, the same numbers for both."""
    spread, acceptance = {}, {}
    for gamma, aim in ((GAMMA, AIM), (SETTLED_GAMMA, 1.0)):
        dual, rng, steps = one(DUAL)[0], np.random.default_rng(1), []
        restart_dual_averaging(dual, 0.1, aim)
        for _ in range(1000):
            steps.append(dual.log_step)
            a = math.exp(-((math.exp(dual.log_step) / 0.3) ** 2)) + rng.uniform(-0.3, 0.3)
            update_dual_averaging(dual, min(max(a, 0.0), 1.0), target, gamma)
        spread[gamma], acceptance[gamma] = np.std(steps[200:]), math.exp(-((math.exp(dual.log_step_bar) / 0.3) ** 2))
    assert spread[SETTLED_GAMMA] < 0.5 * spread[GAMMA]
    assert abs(acceptance[SETTLED_GAMMA] - target) < 0.06


def test_steps_of_the_default_warm_up_settle_after_75_iterations():
    """Every step follows from the acceptances, except after a metric that changed much, where a search finds it."""
    tune, options = 400, {"chains": 2, "cores": 1, "raw": True, "progressbar": False, "preflight": False}
    result = refhmc.sample(gaussian(3), refhmc.NUTS(), tune=tune, draws=100, random_seed=1, save_warmup=True, **options)
    warmup = result.groups["warmup_sample_stats"]
    stops = {stop for kind, _, stop in growing_windows(tune) if kind == "slow"}
    for chain in range(2):
        steps, a = (np.asarray(warmup[name])[chain] for name in ("step_size", "acceptance_rate"))
        x = bar = math.log(steps[0])
        mu, h, m = x + math.log(10), 0.0, 0
        for i in range(tune):
            if i in stops and abs(math.log(steps[i]) - x) > 1e-9:
                x = bar = math.log(steps[i])
                mu, h, m = x + (math.log(10) if i < 75 else 0.0), 0.0, 0
            assert math.log(steps[i]) == pytest.approx(x, abs=1e-9)
            if i == 75:
                mu, h, m = bar, 0.0, 50
            m += 1
            h += (0.8 - a[i] - h) / (m + 10)
            x = mu - math.sqrt(m) / (0.3 if i >= 75 else 0.05) * h
            bar += m**-0.75 * (x - bar)
        np.testing.assert_allclose(result.sample_stats["step_size"][chain], math.exp(bar), rtol=1e-9)


# ------------------------------------------------------------------------------------------------------- Welford


def welford(draws: np.ndarray, dense: bool) -> tuple[np.ndarray, np.ndarray]:
    n, d = draws.shape
    mean, scatter = np.zeros(d), np.zeros((d if dense else 1, d))
    for k in range(n):
        update_welford(mean, scatter, draws[k], k + 1)
    return mean, scatter


@cases(40)
@given(
    n=st.integers(2, 80), d=st.integers(1, 6), seed=st.integers(0, 2**32), offset=st.sampled_from([0.0, 1.0, -1e3, 1e6])
)
def test_welford_is_the_covariance(n, d, seed, offset):
    rng = np.random.default_rng(seed)
    draws = rng.normal(size=(n, d)) @ (np.eye(d) + 0.5 * rng.normal(size=(d, d))) + offset
    centred = draws - draws.mean(axis=0)  # two passes; the draws themselves carry round-off of the offset
    covariance = np.atleast_2d(np.cov(centred, rowvar=False))
    variance = np.var(centred, axis=0, ddof=1)
    units = np.sqrt(np.outer(variance, variance))
    tolerance = 1e-12 + 1e-15 * n * abs(offset) / np.sqrt(variance).min()
    mean, scatter = welford(draws, dense=False)
    assert np.abs(mean - draws.mean(axis=0)).max() <= 1e-13 * np.abs(draws).max()
    assert np.abs(scatter[0] / (n - 1) / variance - 1).max() <= tolerance
    mean, scatter = welford(draws, dense=True)
    assert np.abs(mean - draws.mean(axis=0)).max() <= 1e-13 * np.abs(draws).max()
    assert np.abs((scatter / (n - 1) - covariance) / units).max() <= tolerance


learn = compiled.plain(learn_metric)


@pytest.mark.parametrize("d", [1, 3])
def test_the_learned_metric(d):
    """n/(n + 5) C + 5/(n + 5) 10^-3 diag(C), with what is computed from it, and I for diag(C) as Stan has it; fewer than
    two draws change nothing."""
    draws = np.random.default_rng(d).normal(size=(40, d)) @ np.tri(d) * 1e-4 + 3
    C = np.atleast_2d(np.cov(draws, rowvar=False))
    for dense, as_stan in itertools.product((False, True), repeat=2):
        want = 40 / 45 * C + 5 / 45 * 1e-3 * (np.eye(d) if as_stan else np.diag(np.diag(C)))
        vecs, mats = np.ones((2, d)), np.stack([np.eye(d), np.eye(d)])[: 2 * dense]
        _, scatter = welford(draws, dense)
        learn(scatter, len(draws), as_stan, work_of(vecs, mats))
        np.testing.assert_allclose(vecs[0], np.diag(want), rtol=1e-12)
        np.testing.assert_allclose(vecs[1], np.diag(want) ** -0.5, rtol=1e-12)
        if dense:
            np.testing.assert_allclose(mats[0], want, rtol=1e-12, atol=1e-13)
            np.testing.assert_allclose(mats[1], np.linalg.cholesky(want), rtol=1e-12, atol=1e-13)
        before = vecs.copy(), mats.copy()
        learn(welford(draws[:1], dense)[1], 1, as_stan, work_of(vecs, mats))
        assert np.array_equal(before[0], vecs)
        assert np.array_equal(before[1], mats)


def test_the_learned_metric_is_positive_where_the_draws_are_not():
    """Two equal draws in five dimensions: Stan's rule leaves what it adds, the other one the previous variances."""
    _, scatter = welford(np.full((2, 5), 3.0), dense=True)
    for as_stan, want in ((True, 5 / 7 * 1e-3), (False, 4.0)):
        vecs, mats = np.full((2, 5), 4.0), np.stack([4 * np.eye(5), 2 * np.eye(5)])
        learn(scatter, 2, as_stan, work_of(vecs, mats))
        np.testing.assert_allclose(mats[0], want * np.eye(5), rtol=1e-12)
        np.testing.assert_allclose(mats[1] @ mats[1].T, mats[0], rtol=1e-12)


@pytest.mark.parametrize("dense", [False, True])
def test_the_learned_metric_does_not_see_units(dense):
    """Draws in other units, by powers of two from 2^-40 to 2^40: the metric in these units, to the last bit."""
    rng, units = np.random.default_rng(8), 2.0 ** np.array([-40, -3, 0, 7, 40])
    draws, found = rng.normal(size=(30, 5)) @ rng.normal(size=(5, 5)), []
    for unit in (np.ones(5), units):
        vecs, mats = np.ones((2, 5)), np.stack([np.eye(5), np.eye(5)])[: 2 * dense]
        learn(welford(draws * unit, dense)[1], 30, False, work_of(vecs, mats))
        found.append(mats[0] if dense else np.diag(vecs[0]))
    assert np.array_equal(found[0] * np.outer(units, units), found[1])


def test_a_metric_from_gradients():
    """sqrt(var q / var dL/dq): exact for independent normals from two draws on; nothing is learned where none moved."""
    variances, rng = np.array([1e-4, 1.0, 1e6, 1.0]), np.random.default_rng(1)
    for n in (2, 10):
        draws = np.sqrt(variances) * rng.normal(size=(n, 4))
        gradients = -draws / variances
        draws[:, 3] = 1.0  # has not moved
        vecs = np.stack([np.full(4, 0.5), np.full(4, 0.5**-0.5)])
        compiled.plain(learn_from_gradients)(
            welford(draws, False)[1], welford(gradients, False)[1], work_of(vecs, np.zeros((0, 4, 4)))
        )
        np.testing.assert_allclose(vecs[0], [1e-4, 1.0, 1e6, 0.5], rtol=1e-12)
        np.testing.assert_allclose(vecs[1], vecs[0] ** -0.5, rtol=1e-12)


# -------------------------------------------------------------------------------------------- the first step size


def gaussian(d: int):
    return refhmc.models.Gaussian(np.zeros(d), np.diag(np.logspace(-2, 2, d)))


def search(model, metric, q, normals, start: float) -> tuple[float, np.ndarray]:
    """The code of the search as Python, with the same normals for each step it tries; the step, and the counts."""
    block = BlockState(make_plan(model, refhmc.NUTS(metric=metric), 0).blocks[0])
    block.start(q)

    def fill(rng, out):
        out[:] = normals

    dynamics, core = plain_dynamics(block.plan.dynamics), plain_model(model.core.tuple)
    control = control_row()
    text = compiled.plain(search_step_size, fill_normals=fill)
    state = block.state.copy()
    eps = text(dynamics, core, block.workspace, (None,), start, control)
    assert np.array_equal(block.state, state)
    control.gradients = counters_of(block).gradients
    return eps, control


@pytest.mark.parametrize(("start", "metric"), one_in(4, [1e-6, 0.01, 1.0, 1e5], ["diagonal", "dense"]))
def test_the_search_straddles_its_target(start, metric):
    d = 20
    model, rng = gaussian(d), np.random.default_rng(4)
    metric = refhmc.metrics.Dense() if metric == "dense" else refhmc.metrics.Diagonal()
    H = refhmc.Hamiltonian(model, metric)
    for _ in range(3):
        q, normals = np.sqrt(np.logspace(-2, 2, d)) * rng.normal(size=d), rng.normal(size=d)

        def excess(step, q=q, normals=normals):
            path = refhmc.integrate(H, LEAPFROG, q, normals, step_size=step, n_steps=1)
            return path.energy[0] - path.energy[1] - math.log(0.8)

        eps, control = search(model, metric, q, normals, start)
        wanted_more = excess(start) > 0
        before = eps / 2 if wanted_more else eps * 2
        assert (excess(before) > 0) == wanted_more
        assert (excess(eps) > 0) != wanted_more
        exact = scipy.optimize.brentq(excess, min(before, eps), max(before, eps))
        assert 0.5 <= eps / exact <= 2
        tries = round(abs(math.log2(eps / start))) + 1
        assert control.gradients == tries
        assert control.search_failed == 0


def test_the_compiled_search_tries_fresh_momenta():
    """In 1,000 dimensions the energy error of a step varies little, and neither does the step found."""
    d = 1000
    model = refhmc.models.Gaussian(np.zeros(d), np.eye(d))
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        block = BlockState(make_plan(model, refhmc.NUTS(), 0).blocks[0])
        block.start(np.random.default_rng(100 + seed).normal(size=d))
        control = control_row()
        randomness = (rng, np.zeros(0), np.zeros(1, np.int64))
        text = compiled.plain(search_step_size)
        core = plain_model(model.core.tuple)
        dynamics = (SMOOTH, compiled.plain(euclidean.refresh), compiled.plain(leapfrog_diagonal), None)
        found.append(text(dynamics, core, block.workspace, randomness, 1.0, control))
        assert not np.array_equal(Points(*block.points).candidate[P], np.zeros(d))
        again = np.random.default_rng(seed)
        for _ in range(counters_of(block).gradients):
            last = again.standard_normal(d)
        assert np.array_equal(block.normals, last)  # fresh ones for each step tried
    assert set(found) <= {0.25, 0.5}


def flat_log_density(q, data):
    return 0.0


def flat_gradient(q, data, out):
    out[:] = 0.0


def test_a_search_without_end_keeps_the_start():
    flat = refhmc.Model(2, flat_log_density, flat_gradient, name="flat")
    block = BlockState(make_plan(flat, refhmc.NUTS(), 0).blocks[0])
    block.start(np.zeros(2))
    control = control_row()
    data, density, *rest = flat.core.tuple
    core = (data, lambda q, data, out: density(q, data, out), *rest)
    text = compiled.plain(search_step_size)
    randomness = (np.random.default_rng(1), np.zeros(0), np.zeros(1, np.int64))
    dynamics = (SMOOTH, compiled.plain(euclidean.refresh), compiled.plain(leapfrog_diagonal), None)
    assert text(dynamics, core, block.workspace, randomness, 0.3, control) == 0.3
    assert control.search_failed == 1
    assert counters_of(block).gradients == MAX_DOUBLINGS


# ----------------------------------------------------------------------------------------------- warm-up as a whole

GRADIENTS_TOO = refhmc.metrics.Diagonal(learn_from="draws and gradients")
KERNELS = {
    "nuts-diagonal": refhmc.NUTS(metric=refhmc.metrics.Diagonal()),
    "stan": refhmc.NUTS(metric=refhmc.metrics.Diagonal(regularization="stan")),
    "nuts-gradients": refhmc.NUTS(metric=GRADIENTS_TOO),
    "nuts-dense": refhmc.NUTS(metric=refhmc.metrics.Dense()),
    "hmc-diagonal": refhmc.HMC(n_steps=4, metric=refhmc.metrics.Diagonal()),
    "hmc-dense": refhmc.HMC(trajectory_length=1.5, metric=refhmc.metrics.Dense()),
}


def run(model, kernel, tune: int, draws: int, seed: int = 1):
    """The block's state after warm-up and draws; warm-up's draws and statistics, and the metric at the end of each phase."""
    chain = Chain(model, make_plan(model, kernel, tune), np.random.default_rng(seed))
    chain.start(np.full(model.dim, 0.1))
    q, stats = np.zeros((tune + draws, model.dim)), np.zeros((tune + draws, N_STATS))
    ends = [stop for _, _, stop in warmup_schedule(tune)] + [tune + draws]
    at, metrics, (block,) = 0, [], chain.blocks
    for end in ends:
        chain.run(q[at:end], stats[at:end])
        metrics.append((block.mats[0] if len(block.mats) else block.vecs[0]).copy())
        at = end
    return block, q, stats, metrics


@pytest.mark.parametrize("name", representatives(sorted(KERNELS), ["hmc-diagonal", "nuts-dense"]))
def test_warm_up_learns_from_its_windows_and_then_stands_still(name):
    kernel, tune = KERNELS[name], 400
    dense, from_gradients = name.endswith("dense"), kernel.metric is GRADIENTS_TOO
    model = gaussian(3)
    _, q, stats, metrics = run(model, kernel, tune, 200)
    phases = warmup_schedule(tune)
    current = np.eye(3) if dense else np.ones(3)
    for (kind, start, stop), metric in zip(phases, metrics, strict=False):
        n, window = stop - start, q[start:stop]
        if kind == "slow" and from_gradients:
            gradients = np.array([model.gradient(x) for x in window])
            current = np.sqrt(window.var(axis=0) / gradients.var(axis=0))
        elif kind == "slow":
            C = np.cov(window, rowvar=False)
            learned = n / (n + 5) * C + 5 / (n + 5) * 1e-3 * (np.eye(3) if name == "stan" else np.diag(np.diag(C)))
            current = learned if dense else np.diag(learned)
        np.testing.assert_allclose(metric, current, rtol=1e-11, atol=1e-12)
    # The steps are those of dual averaging on the acceptances, started anew with each metric learned from draws.
    begins = [0] + [stop for kind, _, stop in phases if kind == "slow" and not from_gradients]
    for start, stop in zip(begins, [*begins[1:], tune], strict=True):
        steps, averages = dual_averaging(stats[start, STEP_SIZE], stats[start:stop, ACCEPTANCE_RATE], 0.8)
        np.testing.assert_allclose(stats[start + 1 : stop, STEP_SIZE], steps[:-1], rtol=1e-10)
    # After warm-up: the averaged step, and nothing moves any more.
    after = stats[tune:, STEP_SIZE]
    assert after[0] == pytest.approx(averages[-1], rel=1e-10)
    assert np.all(after == after[0])
    assert np.array_equal(metrics[-1], metrics[-2])
    assert not np.all(stats[:tune, STEP_SIZE] == stats[0, STEP_SIZE])


@pytest.mark.parametrize("tune", [0, swept(1), swept(19), swept(20), swept(149), 150])
def test_short_warm_ups_stand_still_too(tune):
    model = gaussian(3)
    _, _, stats, metrics = run(model, refhmc.NUTS(), tune, 50)
    after = stats[tune:, STEP_SIZE]
    assert np.all(after == after[0])
    assert np.all(np.isfinite(after))
    if tune < 20:
        assert np.array_equal(metrics[-1], np.ones(3))


def test_what_is_given_is_not_adapted():
    model = gaussian(3)
    variances = np.array([0.5, 1.0, 2.0])
    kernel = refhmc.NUTS(step_size=0.05, metric=refhmc.metrics.Diagonal(variances))
    _, _, stats, metrics = run(model, kernel, 200, 50)
    assert np.all(stats[:, STEP_SIZE] == 0.05)
    assert all(np.array_equal(metric, variances) for metric in metrics)
    kernel = refhmc.NUTS(metric=refhmc.metrics.Identity())
    block, _, stats, metrics = run(model, kernel, 200, 50)
    assert all(np.array_equal(metric, np.ones(3)) for metric in metrics)
    assert len(np.unique(stats[:200, STEP_SIZE])) > 100
    assert block.progress.in_window[0] == 0


@pytest.mark.parametrize(
    "metric", [refhmc.metrics.Diagonal(), refhmc.metrics.Dense(), GRADIENTS_TOO], ids=["diagonal", "dense", "gradients"]
)
def test_adapted_variances(metric):
    """On sd 0.1 .. 10. False alarm: the log of a learned variance has a standard error of 0.1 here (60 seeds), the mean
    acceptance of 200 draws one of 0.02 about 0.89, the log of the step one of 0.1; all bounds are 8 or more of them
    away, so that it is below 1e-6 for the whole even if the tails are far from normal.
    """
    d = 5
    truth = np.logspace(-2, 2, d)
    model = refhmc.models.Gaussian(np.zeros(d), np.diag(truth))
    for seed in range(3):
        block, _, stats, _ = run(model, refhmc.NUTS(metric=metric), 1000, 200, seed)
        learned = np.diag(block.mats[0]) if metric.is_dense else block.vecs[0]
        assert np.abs(np.log(learned / truth)).max() < (1e-9 if metric is GRADIENTS_TOO else 0.8)
        assert 0.3 < stats[-1, STEP_SIZE] < 1.8  # that of a standard normal
        assert stats[1000:, ACCEPTANCE_RATE].mean() > 0.7


def test_a_dense_metric_in_one_dimension():
    """The dense sums in one dimension are the diagonal ones; so are the draws."""
    model = refhmc.models.Gaussian([3.0], [[4.0]])
    runs = [run(model, refhmc.NUTS(metric=m), 400, 100) for m in (refhmc.metrics.Dense(), refhmc.metrics.Diagonal())]
    (dense, q_dense, _, _), (diagonal, q_diagonal, _, _) = runs
    assert dense.mats.shape == (2, 1, 1)
    np.testing.assert_allclose(dense.mats[0, 0, 0], diagonal.vecs[0, 0], rtol=1e-6)
    np.testing.assert_allclose(dense.mats[1] ** 2, dense.mats[0], rtol=1e-14)
    np.testing.assert_allclose(q_dense[:20], q_diagonal[:20], rtol=1e-8)
    # False alarm below 1e-6: the standard error of its log is 0.18 (100 seeds), log 4 is more than 7 of them.
    assert 1 < diagonal.vecs[0, 0] < 16
    assert np.array_equal(dense.state[Q], Points(*dense.points).state[Q])
