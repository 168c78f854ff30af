"""The trajectory length that warm-up learns: its windows, its data, its criterion, and its result."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest

import refhmc
from refhmc.adaptation.length import (
    AN_OCTAVE,
    DEFAULT_JITTER,
    FEWEST,
    KEPT,
    LEAST_TAU,
    LENGTH,
    LOOK_AHEAD,
    MOMENTS,
    N_LENGTHS,
    N_SUMS,
    SHORTEST_TUNE,
    SLOWNESS,
    WATCHED_ROWS,
    adapt_length,
    autocorrelation_time,
    begin_length,
    begin_window,
    best_length,
    length_windows,
    slowness_of,
    take_path,
)
from refhmc.adaptation.windows import warmup_schedule
from refhmc.core.records import SETTINGS, one
from refhmc.core.sample_stats import N_STATS, STATS
from refhmc.kernels.hmc import MAX_STEPS
from refhmc.metrics import Dense, Fisher, Hierarchical, Identity, SoftAbs
from refhmc.sampling.chains.chain import Chain, make_plan
from tests.helpers.sweeps import swept

QUIET = {"progressbar": False, "raw": True, "cores": 1}
N_STEPS, STEP_SIZE = STATS.names.index("n_steps"), STATS.names.index("step_size")


def normal(scales) -> refhmc.Model:
    return refhmc.models.Gaussian(0.0, np.diag(np.square(scales)))


def chain_of(model, kernel, tune: int, seed: int) -> Chain:
    chain = Chain(model, make_plan(model, kernel, tune), np.random.default_rng(seed))
    chain.start(np.random.default_rng(seed + 1000).standard_normal(model.dim))
    return chain


def run(chain: Chain, n: int) -> tuple[np.ndarray, np.ndarray]:
    draws, stats = np.zeros((n, chain.model.dim)), np.zeros((n, N_STATS))
    assert chain.run(draws, stats) == n
    return draws, stats


def test_windows_follow_each_other_and_leave_the_last_phase_to_the_step():
    for tune in range(3001):
        windows = length_windows(tune)
        assert (len(windows) == 0) == (tune < SHORTEST_TUNE)
        if len(windows):
            assert np.array_equal(windows[1:, 0], windows[:-1, 1])
            assert windows[0, 0] >= 3
            assert np.all(windows[:, 1] - windows[:, 0] >= min(25, tune // 2))
            assert windows[-1, 1] == warmup_schedule(tune)[-1][1]


@pytest.mark.parametrize("jitter", [None, 0.0, 0.3])
def test_it_looks_at_the_states_that_shorter_trajectories_would_have_proposed(jitter):
    """Against trajectories with the momentum that the chain's own generator would give."""
    model = refhmc.models.Banana()
    chain = chain_of(model, refhmc.HMC(metric=Identity(), step_size=0.02, length_jitter=jitter), 400, 3)
    run(chain, 150)
    (block,), H = chain.blocks, refhmc.Hamiltonian(model, Identity())
    j, reached, ahead = DEFAULT_JITTER if jitter is None else jitter, [], []
    for iteration in range(150, 180):
        q, p, settings = chain.position.copy(), copy.deepcopy(chain.rng).standard_normal(2), block.settings[0].copy()
        L, eps = block.length.length[0], settings.step_size
        longer = max(LOOK_AHEAD * L, L + eps)
        assert settings.longest == pytest.approx(longer * (1 + j), rel=1e-15)
        start, stop = next(w for w in block.plan.length_windows if w[0] <= iteration < w[1])
        looks = (iteration - start) % max(1, min((stop - start) // 25, block.length.apart[0])) == 0
        assert settings.trajectory_length == pytest.approx(longer if looks else L, rel=1e-15)
        ahead.append(looks)
        _, stats = run(chain, 1)
        path = refhmc.integrate(H, refhmc.integrators.Leapfrog(), q, p, step_size=eps, n_steps=int(stats[0, N_STEPS]))
        assert np.array_equal(block.tree[N_LENGTHS, 0], q)
        for k in range(N_LENGTHS):
            n = max(1, round(settings.longest * 2.0 ** ((k - N_LENGTHS + 1) / AN_OCTAVE) / eps))
            there, acceptance, n_steps = block.tree[k, 0], block.tree[k, 1, 0], block.tree[k, 2, 0]
            assert n_steps == (n if n <= stats[0, N_STEPS] else 0)
            if n_steps:
                np.testing.assert_allclose(there, path.q[n], rtol=1e-12, atol=1e-13)
                assert acceptance == pytest.approx(math.exp(min(0.0, path.energy[0] - path.energy[n])), rel=1e-9)
        reached.append(np.count_nonzero(block.tree[:N_LENGTHS, 2, 0]))
    assert any(ahead)
    of_those = [count for count, looks in zip(reached, ahead, strict=True) if looks]
    assert (min(of_those) < max(of_those)) == (j > 0)


def test_more_trajectories_look_ahead_after_a_window_in_which_the_length_grew():
    chain = chain_of(refhmc.models.Gaussian(0.0, [[1.0, 0.0], [0.0, 900.0]]), refhmc.HMC(metric=Identity()), 600, 2)
    (block,) = chain.blocks
    assert block.length.apart[0] == 4
    done, before = 0, block.length.length[0]
    for _, stop in block.plan.length_windows:
        run(chain, int(stop) - done)
        done, after = int(stop), block.length.length[0]
        assert block.length.apart[0] == (4 if after > before else 16)
        before = after


@pytest.mark.sweep
def test_a_trajectory_that_breaks_off_counts_as_rejected_at_the_lengths_beyond():
    """A wall at q = 1, with no density behind it."""

    def density(q, data):
        return -0.5 * q @ q if q[0] < 1 else -math.inf

    model = refhmc.Model(1, density, lambda q, data: -q, name="wall")
    chain = chain_of(model, refhmc.HMC(metric=Identity(), step_size=0.05), 200, 1)
    chain.start(np.zeros(1))
    run(chain, 25)
    broken = 0
    for _ in range(60):
        _, stats = run(chain, 1)
        n, acceptance, n_steps = int(stats[0, N_STEPS]), *chain.blocks[0].tree[:N_LENGTHS, 1:, 0].T
        beyond = n_steps > n
        assert np.all(acceptance[beyond] == 0)
        assert np.all(acceptance[(n_steps > 0) & (n_steps < n)] > 0)
        broken += np.any(beyond)
    assert broken > 5


def time_by_matrices(R: float, w: float, a: float, even: bool) -> float:
    """2 sum_k rho_k - 1 of q, or of q^2 if ``even``, from the means of (q, u), or of (q^2, q u, u^2), after a transition."""
    c = 1 - R / w if not even else math.sqrt(max(1 - R / w, 0.0))
    s = math.sqrt(max(1 - c * c, 0.0))
    turn, flip, keep = np.array([[c, s], [-s, c]]), np.diag([1.0, -1.0]), np.diag([1.0, a])
    if even:
        turn = np.array([[c * c, 2 * c * s, s * s], [-c * s, c * c - s * s, c * s], [s * s, -2 * c * s, c * c]])
        flip, keep = np.diag([1.0, -1.0, 1.0]), np.diag([1.0, a, a * a])
    return 2 * np.linalg.inv(np.eye(len(turn)) - keep @ (w * turn + (1 - w) * flip))[0, 0] - 1


@pytest.mark.parametrize("a", [0.0, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("w", [1.0, 0.9, 0.4])
def test_the_times_with_a_kept_velocity_are_those_of_the_matrices(a, w):
    for share in (0.01, 0.2, 0.7, 1.0):
        for even in (False, True):
            expected = time_by_matrices(share * w, w, a, even)
            assert autocorrelation_time(share * w, w, a, even) == pytest.approx(expected, rel=1e-11)
    assert autocorrelation_time(0.4, w, 0.0, False) == pytest.approx(4.0, rel=1e-15)


def best_by_numpy(q0, path, w, n_steps, center, rate, settings) -> float:
    """The docstring's argmin, written on arrays (trajectory, length, coordinate)."""

    def functions(q):
        u = (q - center) / (1 + rate * abs(q - center))
        return np.concatenate([u, abs(u)], axis=-1)

    d, reached, a = q0.shape[1], n_steps > 0, settings.persistence
    lengths = settings.longest * 2.0 ** ((np.arange(N_LENGTHS) - N_LENGTHS + 1) / AN_OCTAVE)
    f0 = functions(q0)
    jumps = np.where(reached[..., None], w[..., None] * (functions(path) - f0[:, None]) ** 2, 0).sum(axis=0)
    count, accepted = reached.sum(axis=0), np.where(reached, w, 0).sum(axis=0)
    costs = {}
    for L in settings.trajectory_length * 2.0 ** (-np.arange(2 * AN_OCTAVE + 1) / AN_OCTAVE):
        j = settings.length_jitter
        taken = (lengths >= 0.999 * L * (1 - j)) & (lengths <= 1.001 * L * (1 + j)) & (count >= FEWEST)
        if taken.any():
            weights = lengths[taken] / lengths[taken].sum()
            R = weights @ (jumps[taken] / count[taken, None]) / (2 * f0.var(axis=0, ddof=1))
            mean = weights @ (accepted[taken] / count[taken])
            tau = np.array([time_by_matrices(R_f, mean, a, k >= d) for k, R_f in enumerate(R)])
            tau = np.maximum(tau, LEAST_TAU) / np.repeat([1.0, 2.0], d)
            costs[L] = tau.max() * (weights @ (n_steps.sum(axis=0)[taken] / count[taken]))
    return min(costs, key=costs.get)


@pytest.mark.parametrize("persistence", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(6))
def test_the_best_length_is_that_of_the_criterion(seed, persistence):
    rng = np.random.default_rng(seed)
    d, n = 3, 40
    settings, known = one(SETTINGS)[0], one(LENGTH)[0]
    settings.step_size, settings.trajectory_length, settings.length_jitter = 0.1, 4.0, rng.choice([0.0, 0.5])
    settings.longest, settings.persistence = 4.0 * (1 + settings.length_jitter), persistence
    moments, sums = np.zeros((MOMENTS.n_vectors, d)), np.zeros((N_LENGTHS, N_SUMS, d))
    moments[:KEPT] = rng.standard_normal(d), rng.uniform(0, 2, d), rng.uniform(0, 2, d)
    center, rate, slowness = moments[:KEPT].copy()
    lengths = settings.longest * 2.0 ** ((np.arange(N_LENGTHS) - N_LENGTHS + 1) / AN_OCTAVE)
    scales = np.array([1.0, 1.5, 0.5])
    q0, p = scales * rng.standard_normal((n, d)), rng.standard_normal((n, d))
    phase = lengths[:, None] / scales
    path = q0[:, None] * np.cos(phase) + (scales * p)[:, None] * np.sin(phase)
    w = rng.uniform(0, 1, (n, N_LENGTHS))
    n_steps = np.round(lengths / 0.1).clip(1) * (lengths <= rng.uniform(2, 6, n)[:, None])
    for i in range(n):
        record = np.zeros((N_LENGTHS + 1, WATCHED_ROWS, d))
        record[:-1, 0], record[:-1, 1, 0], record[:-1, 2, 0], record[-1, 0] = path[i], w[i], n_steps[i], q0[i]
        take_path(known, moments, sums, record)
    expected = best_by_numpy(q0, path, w, n_steps, center, rate, settings)
    assert best_length(known, moments, sums, settings) == pytest.approx(expected, rel=1e-12)
    # The next window's center and scale are those of this one.
    begin_window(known, moments, sums)
    np.testing.assert_allclose(moments[0], q0.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(1 / moments[1], abs(q0 - center).mean(axis=0), rtol=1e-12)
    assert known.count == 0
    assert not sums.any()
    np.testing.assert_array_equal(moments[SLOWNESS], slowness)
    assert not moments[KEPT:].any()


def test_what_says_nothing_changes_nothing():
    """No coordinate moved; or the longest trajectories were cut at their bound."""
    settings, known = one(SETTINGS)[0], one(LENGTH)[0]
    settings.step_size, settings.trajectory_length, settings.longest, known.length = 0.1, 3.0, 3.0, 2.0
    moments, sums = np.zeros((MOMENTS.n_vectors, 2)), np.zeros((N_LENGTHS, N_SUMS, 2))
    record = np.zeros((N_LENGTHS + 1, WATCHED_ROWS, 2))
    record[:-1, 1:, 0] = 1.0
    for _ in range(10):
        take_path(known, moments, sums, record)
    assert best_length(known, moments, sums, settings) == 2.0
    rng = np.random.default_rng(1)
    for _ in range(10):
        record[:, 0] = rng.standard_normal((N_LENGTHS + 1, 2))
        take_path(known, moments, sums, record)
    assert best_length(known, moments, sums, settings) != 2.0
    settings.step_size = 3.0 / MAX_STEPS
    assert best_length(known, moments, sums, settings) == 2.0


def optimum(scales, jitter: float) -> float:
    """The criterion's best length of normals on exact trajectories, with squares for distances: E cos and E cos^2 are the
    autocorrelations, averaged over l on L (1 - j), ..., L (1 + j)."""
    L = np.geomspace(0.1, 4, 400)[:, None] * max(scales)
    x = L / np.asarray(scales)
    rho = np.cos(x) * np.sinc(jitter * x / np.pi)
    rho_of_squares = (1 + np.cos(2 * x) * np.sinc(2 * jitter * x / np.pi)) / 2
    tau = np.maximum((1 + rho) / (1 - rho), (1 + rho_of_squares) / (1 - rho_of_squares) / 2)
    return L[np.argmin(tau.max(axis=1) * L[:, 0]), 0]


@pytest.mark.parametrize(("scales", "jitter"), [((1.0,) * 5, None), ((10.0,) * 5, 0.0), (np.geomspace(1, 10, 5), None)])
def test_normals_get_the_length_of_the_closed_form(scales, jitter):
    """On the identity, so that the metric does not provide the scale. In 200 other chains each, the largest ratio was 1.36 (the
    logarithm of the ratio has a standard deviation of 0.06, 0.06 and 0.09).
    """
    chain = chain_of(normal(scales), refhmc.HMC(metric=Identity(), length_jitter=jitter), 1000, 7)
    run(chain, 1000)
    ((_, learned),) = chain.lengths()
    assert abs(math.log(learned / optimum(scales, 0.5 if jitter is None else jitter))) < math.log(1.6)


@pytest.mark.sweep
def test_the_funnel_gets_a_long_length():
    """v moves by the width of its distribution in a time of about 8, not of pi/2."""
    chain = chain_of(refhmc.models.Funnel(), refhmc.HMC(metric=SoftAbs(alpha=1e6)), 600, 2)
    run(chain, 600)
    ((_, learned),) = chain.lengths()
    assert 4 < learned < 16


@pytest.mark.parametrize("metric", [None, Dense(), Fisher()], ids=["diagonal", "dense", "fisher"])
def test_where_the_metric_sets_the_scale_it_is_no_shorter_than_at_first(metric):
    chain = chain_of(refhmc.models.Banana(), refhmc.HMC(metric=metric), 200, 4)
    run(chain, 200)
    assert chain.lengths()[0][1] >= math.pi / 2


def constant_hierarchy(d: int, rng: np.random.Generator) -> Hierarchical:
    """A random metric whose last coordinate has the first as its parent; the others are level 0, with two directions."""
    parents, coefficients = np.zeros((1, d), int), np.zeros((1, 1, d))
    coefficients[0, 0, -1] = 1.0
    U = np.zeros((2, d))
    U[:, :-1] = np.linalg.qr(rng.normal(size=(d - 1, 2)))[0].T
    return Hierarchical(rng.normal(size=(1, d)), parents, coefficients, U, np.array([0.1, 8.0]))


@pytest.mark.parametrize("name", ["funnel", "eight schools", "radon", "horseshoe", "given"])
def test_the_longest_period_of_hyperparameters_is_at_least_that_along_an_axis(name):
    """The block of level 0 from all of the mass matrix, and the eigenvalues of M_0 C_0 for random covariances C_0."""
    rng, models = np.random.default_rng(7), refhmc.models
    model = {
        "funnel": lambda: models.Funnel(5),
        "eight schools": lambda: models.EightSchools(centered=True),
        "radon": lambda: models.VaryingIntercepts(centered=True),
        "horseshoe": lambda: models.Horseshoe(centered=True),
        "given": lambda: models.Gaussian(np.zeros(6), np.eye(6)),
    }[name]()
    metric = constant_hierarchy(6, rng) if name == "given" else Fisher()
    q = 0.1 * rng.standard_normal(model.dim)
    slowness, of = slowness_of(metric, model, q), np.flatnonzero(metric.levels(model) == 0)
    M = refhmc.Hamiltonian(model, metric).mass(q)[np.ix_(of, of)]
    np.testing.assert_allclose(slowness[of], np.diag(np.linalg.inv(M)) ** -0.5, rtol=1e-9)
    np.testing.assert_allclose(slowness, slowness_of(metric, model, q + rng.standard_normal(model.dim)), rtol=1e-9)
    assert not np.delete(slowness, of).any()
    for _ in range(20):
        A = rng.standard_normal((len(of), len(of) + 2))
        longest = np.linalg.eigvals(M @ A @ A.T).real.max()
        assert (np.sum(A**2, axis=1) * slowness[of] ** 2).max() <= longest * (1 + 1e-9)


def test_metrics_without_levels_have_no_slow_coordinates():
    for model, metric in ((refhmc.models.Banana(), Fisher()), (refhmc.models.Funnel(2), SoftAbs(1e6))):
        assert not slowness_of(metric, model, np.zeros(model.dim)).any()


@pytest.mark.parametrize("factor", [1.0, 1.2, 5.0])
def test_the_least_length_is_a_quarter_of_the_period_of_each_window_but_the_first(factor):
    """Recorded starts, of which nothing is accepted, so that only the least length changes the length, to at most 2 L."""
    rng, d, settings = np.random.default_rng(3), 3, one(SETTINGS)[0]
    settings.step_size, settings.trajectory_length = 0.3, math.pi / 2
    windows = np.array([[0, 40], [40, 100], [100, 200]])
    known, moments, sums = begin_length(d, settings, windows, True)
    moments[SLOWNESS] = 1.1 * factor, 0.3 * factor, 0.0
    q, learner = rng.standard_normal((200, d)) * [1.0, 3.0, 50.0] + 1.0, (known[0], moments, sums, windows)
    center = q[0]
    before = math.pi / 2
    for i in range(200):
        record = np.zeros((N_LENGTHS + 1, WATCHED_ROWS, d))
        record[-1, 0] = q[i]
        adapt_length(learner, record, i, settings)
        if i == 39:
            assert known[0].least == known[0].length == math.pi / 2
        for start, stop in windows[1:]:
            if i == stop - 1:
                s = math.sqrt(math.pi / 2) * abs(q[start:stop] - center).mean(axis=0)
                expected = math.pi / 2 * max(1.1 * factor * s[0], 0.3 * factor * s[1])
                assert known[0].least == pytest.approx(min(expected, 2 * before), rel=1e-12)
                assert known[0].length == max(before, known[0].least)
                before = known[0].length
        if i in windows[:, 1] - 1:
            start = windows[windows[:, 1] == i + 1][0, 0]
            center = q[start : i + 1].mean(axis=0)


def test_a_given_hierarchy_and_a_fisher_metric_with_levels_have_a_least_length():
    """The mass of v is 1/9 + 10/2 in the funnel, and its standard deviation 3: a quarter of the period is 10.7."""
    constants = np.r_[np.log(1 / 9 + 5), np.zeros(10)]
    metric = Hierarchical(constants[None], np.zeros((1, 11), int), np.r_[0.0, np.ones(10)][None, None])
    for each in (metric, Fisher()):
        chain = chain_of(refhmc.models.Funnel(10), refhmc.HMC(metric=each, integrator="block_leapfrog"), 100, 1)
        np.testing.assert_allclose(chain.blocks[0].length_moments[SLOWNESS], [(1 / 9 + 5) ** 0.5] + [0.0] * 10)


@pytest.mark.sweep
def test_a_funnel_of_100_coordinates_gets_a_long_length():
    """A quarter of the period of v is 33. The last window has about 90 effective draws, so that its least length has a
    standard error of 8 %. Without the mass of v, the length would be 2 to 5.
    """
    kernel = refhmc.HMC(metric=Fisher(), integrator="block_leapfrog")
    chain = chain_of(refhmc.models.Funnel(100), kernel, 1000, 1)
    run(chain, 1000)
    assert 33 * (1 - 6 * 0.08) < chain.blocks[0].length[0].least < 33 * (1 + 6 * 0.08)
    assert chain.lengths()[0][1] >= chain.blocks[0].length[0].least


def best_number_of_steps(angle: float, a: float) -> int:
    """Number of steps with the least criterion on a standard normal that a step turns by an angle."""
    costs = {}
    for n in range(1, 8):
        R = 1 - np.cos(n * angle) ** np.array([1, 2])
        costs[n] = n * max(autocorrelation_time(R[0], 1.0, a, False), autocorrelation_time(R[1], 1.0, a, True) / 2)
    return min(costs, key=costs.get)


def test_a_kept_velocity_needs_one_step_per_trajectory():
    assert all(best_number_of_steps(angle, 0.5) == 1 for angle in np.arange(0.9, 2.41, 0.1))
    assert best_number_of_steps(0.8, 0.5) == 2
    assert [best_number_of_steps(angle, 0.0) for angle in (0.7, 0.9, 1.1)] == [3, 2, 2]


@pytest.mark.parametrize(("persistence", "least"), [(0.0, math.pi / 2), (0.5, 0.0)])
def test_only_a_new_velocity_needs_a_least_length(persistence, least):
    chain = chain_of(normal((1.0,) * 20), refhmc.MAMS(persistence=persistence, step_size=1.2), 400, 1)
    _, stats = run(chain, 600)
    assert chain.blocks[0].length[0].least == least
    assert (stats[400:, N_STEPS].max() > 1) or persistence > 0


def test_after_warm_up_the_length_stands_still_and_is_in_the_result():
    model, kernel = normal([1.0, 3.0]), refhmc.HMC(metric=Identity())
    options = {"tune": 200, "draws": 300, "random_seed": 5, **QUIET}
    result = refhmc.sample(model, kernel, chains=3, **options)
    lengths, stats = np.array(result.attributes["trajectory_length"]), result.sample_stats
    assert len(set(lengths)) == 3
    steps = lengths / stats["step_size"][:, 0]
    for k in range(3):
        assert np.all(stats["step_size"][k] == stats["step_size"][k, 0])
        assert stats["n_steps"][k].min() >= max(round(0.5 * steps[k]), 1)
        assert stats["n_steps"][k].max() <= max(round(1.5 * steps[k]), 1)
    # A chain learns from itself.
    fewer = refhmc.sample(model, kernel, chains=2, **options)
    assert np.array_equal(fewer.draws, result.draws[:2])
    assert fewer.attributes["trajectory_length"] == lengths[:2].tolist()
    assert refhmc.check.adaptation(kernel, model=model, draws=100, tune=200).status == "PASS"


@pytest.mark.sweep
def test_gibbs_learns_a_length_for_each_block():
    kernel = refhmc.Gibbs({"v": refhmc.HMC(), "x": refhmc.HMC(n_steps=3)})
    result = refhmc.sample(refhmc.models.Funnel(2), kernel, tune=100, draws=10, chains=2, random_seed=1, **QUIET)
    assert len(result.attributes["trajectory_length_v"]) == 2
    assert "trajectory_length_x" not in result.attributes


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (refhmc.HMC(step_size=0.1), {"tune": 0}),
        swept(refhmc.HMC(step_size=0.1), {"tune": SHORTEST_TUNE - 1}),
        swept(refhmc.HMC(step_size=0.1), {"tune": 50, "backend": "arrays", "cores": None}),
        (refhmc.HMC(step_size=0.1, trajectory_length=math.pi / 2), {"tune": 50}),
    ],
)
def test_where_nothing_is_learned_the_length_is_half_of_pi(kernel, options):
    result = refhmc.sample(normal([1.0, 2.0]), kernel, draws=5, chains=2, random_seed=1, **{**QUIET, **options})
    assert np.all(result.sample_stats["n_steps"] == 16)
    assert "trajectory_length" not in result.attributes
