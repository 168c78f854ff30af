"""SGD, SGLD and SGHMC: the updates of the papers, exact distributions at finite steps, minibatches."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

import refhmc
from refhmc.core.point import POINT_ROWS, P, Q
from refhmc.metrics import Diagonal, Fisher, Identity
from refhmc.sampling.chains.chain import Chain, make_plan
from refhmc.sampling.results.run_warnings import inexact_part
from tests.helpers.many_starts import from_each
from tests.helpers.sweeps import swept

D = 2
DECAY = {"decay": (7.0, 0.6)}
KERNELS = {
    "sgd": refhmc.SGD(step_size=0.004),
    "sgd, momentum": refhmc.SGD(step_size=0.003, momentum=0.8, n_steps=3, metric=Diagonal([0.3, 2.0])),
    "sgd, decaying": refhmc.SGD(step_size=0.003, momentum=0.8, **DECAY),
    "sgld": refhmc.SGLD(step_size=0.02, evaluate_lp=True),
    "sgld, decaying": refhmc.SGLD(step_size=0.02, n_steps=3, metric=Diagonal([0.3, 2.0]), **DECAY),
    "sghmc": refhmc.SGHMC(step_size=0.08, friction=0.3, noise_estimate=0.1, n_steps=7),
    "sghmc, cyclic": refhmc.SGHMC(step_size=0.1, friction=0.3, n_steps=3, cycle=5, metric=Diagonal([0.3, 2.0])),
    "sgld, cyclic, exploring": refhmc.SGLD(step_size=0.02, n_steps=7, cycle=5, exploration=0.4),
    "sghmc, cyclic, exploring": refhmc.SGHMC(step_size=0.1, friction=0.3, n_steps=3, cycle=5, exploration=0.2),
    "sghmc, all friction": refhmc.SGHMC(step_size=0.08, friction=1.0),
}


def quadratic(q, data):
    """b . q - q' A q / 2; data A, b"""
    total = 0.0
    for i in range(2):
        total += data[2, i] * q[i]
        for j in range(2):
            total -= 0.5 * q[i] * data[i, j] * q[j]
    return total


def quadratic_gradient(q, data):
    return data[2] - data[:2] @ q


@functools.cache
def numbers(M: int) -> np.ndarray:
    """A_m and b_m of M parts of a linear regression, (M, 3, 2)."""
    rng = np.random.default_rng(M)
    X, y = rng.normal(size=(M, 3, D)), rng.normal(size=(M, 3))
    A = np.einsum("mni,mnj->mij", X, X) + np.eye(D) / M
    return np.concatenate([A, np.einsum("mni,mn->mi", X, y)[:, None, :]], axis=1)


@functools.cache
def split(M: int):
    return refhmc.models.SplitModel([refhmc.Model(D, quadratic, quadratic_gradient, data=x) for x in numbers(M)])


def run(model, kernel, n: int, seed: int = 3, start=(0.4, -0.3)) -> tuple[np.ndarray, Chain]:
    chain = Chain(model, make_plan(model, kernel, 0), np.random.default_rng(seed))
    chain.start(np.array(start))
    draws, stats = np.zeros((n, model.dim)), np.zeros((n, chain.plan.n_stats))
    assert chain.run(draws, stats) == n
    return draws, chain


# ------------------------------------------------------------------------------------------------ updates


@pytest.mark.parametrize("M", [1, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_the_compiled_transition_is_that_of_the_text(name, M):
    kernel, model, rng = KERNELS[name], split(M), np.random.default_rng(1)
    n = kernel.n_steps or M
    noisy = [t for t in range(n) if not ("exploring" in name and t % 5 < 5 * kernel.exploration)]
    passes, normals = -(-n // M), 0 if name.startswith("sgd") else D * len(noisy)
    tape = np.concatenate([rng.random((3, passes * (M - 1))), rng.random((3, normals))], axis=1)
    q, p = rng.normal(size=(3, D)), rng.normal(size=(3, D))
    tape = tape if tape.shape[1] else np.full((3, 1), 0.5)
    mine = refhmc.array_api.stochastic_gradient(kernel, refhmc.array_api.hamiltonian(model, kernel.metric), q, p, tape)
    for k in range(3):
        core = refhmc.transition(model, kernel, q[k], momentum=p[k], uniforms=tape[k])
        assert core.uniforms_used == passes * (M - 1) + normals
        np.testing.assert_allclose(core.q, mine.q[k], rtol=1e-13, atol=1e-13)
        assert core.stats["n_steps"] == n
    assert not mine.diverging.any()


def as_in_the_papers(name: str, kernel, M: int, n: int, seed: int, q: np.ndarray) -> np.ndarray:
    """The draws of a chain, in the papers' own variables; random numbers in the order that refhmc.core.randomness states."""
    rng, parts, W = np.random.default_rng(seed), numbers(M), np.asarray(kernel.metric.inverse_mass(D))
    updates, v, before, draws, order = kernel.n_steps or M, np.zeros(D), None, [], []
    if name in ("sghmc", "sghmc, cyclic", "sghmc, cyclic, exploring"):
        v = kernel.step_size * W * (rng.standard_normal(D) / np.sqrt(W))  # eps M^-1 p, p ~ N(0, M)
    for t in range(n * updates):
        if not order:
            order = list(range(M))
            for k in range(M - 1, 0, -1):
                j = math.floor(rng.random() * (k + 1))
                order[j], order[k] = order[k], order[j]
        part = parts[order.pop(0)]
        g = M * (part[2] - part[:2] @ q)
        eps = kernel.step_size
        if "decaying" in name:  # a (b + t)^-gamma
            eps = kernel.step_size * 7.0**0.6 * (7.0 + t) ** -0.6
        if "cyclic" in name:
            eps = kernel.step_size / 2 * (math.cos(math.pi * (t % 5) / 5) + 1)
        h = math.sqrt(eps) if name.startswith("sgd") else eps
        v = v * (h / before if before else 1.0)  # v = h M^-1 p, and p is kept
        before = h
        silent = "exploring" in name and t % 5 < {"sgld": 2, "sghmc": 1}[name.partition(",")[0]]
        z = np.zeros(D) if silent or name.startswith("sgd") else rng.standard_normal(D)
        if name.startswith("sgld"):
            q = q + eps / 2 * W * g + np.sqrt(eps * W) * z
        elif name.startswith("sgd"):
            v = (0.8 if kernel.momentum else 0.0) * v + eps * W * g
            q = q + v
        else:
            alpha, eta = kernel.friction, eps**2 * W
            v = (1 - alpha) * v + eta * g + np.sqrt(2 * (alpha - kernel.noise_estimate) * eta) * z
            q = q + v
        if (t + 1) % updates == 0:
            draws.append(q)
    return np.array(draws)


@pytest.mark.parametrize("M", [1, 4])
@pytest.mark.parametrize("name", KERNELS)
def test_a_chain_is_as_the_papers_write_it(name, M):
    """Momentum, order of the parts and number of the update continue from one transition to the next."""
    q = np.array([0.4, -0.3])
    draws, _ = run(split(M), KERNELS[name], 9, start=q)
    np.testing.assert_allclose(draws, as_in_the_papers(name, KERNELS[name], M, 9, 3, q), rtol=1e-11, atol=1e-11)


def test_full_batches_of_a_model_that_is_not_split():
    whole = refhmc.Model(D, quadratic, quadratic_gradient, data=numbers(4).sum(axis=0))
    for name in ("sgd, momentum", "sgld", "sghmc"):
        one = refhmc.models.SplitModel([whole])
        np.testing.assert_array_equal(run(whole, KERNELS[name], 5)[0], run(one, KERNELS[name], 5)[0])


# --------------------------------------------------------------------------------------------------- laws

N = 4000  # independent coordinates, each a chain of its own
PRECISIONS = np.repeat([0.5, 2.0, 6.0, 9.0], N // 4)


def independent(q, data):
    total = 0.0
    for i in range(q.shape[0]):
        total -= 0.5 * data[i] * (q[i] - 1.0) ** 2
    return total


def independent_gradient(q, data):
    return -data * (q - 1.0)


@functools.cache
def many_normals():
    return refhmc.Model(N, independent, independent_gradient, data=PRECISIONS)


def assert_normal(z: np.ndarray, false_alarm: float) -> None:
    """Check independent standard normals (k, n) by the exact distributions of each row's mean and sum of squares."""
    k, n = z.shape
    for row in z:
        assert 2 * scipy.stats.norm.sf(abs(row.mean()) * math.sqrt(n)) > false_alarm / (2 * k)
        squares = scipy.stats.chi2(n)
        assert 2 * min(squares.cdf(row @ row), squares.sf(row @ row)) > false_alarm / (2 * k)


@pytest.mark.sweep
def test_sgld_with_full_batches_is_its_ar1():
    """Mean, variance and lag-1 correlation, 1,000 chains for each precision; a false alarm has probability 1e-6.

    A variance that is off by 25 % is detected in nine of ten runs, and the target's own, off by up to 61 %, is rejected.
    """
    eps = 0.17
    pairs, _ = run(many_normals(), refhmc.SGLD(step_size=eps, n_steps=150), 1, start=np.ones(N))
    last, chain = run(many_normals(), refhmc.SGLD(step_size=eps, n_steps=1), 150, start=np.ones(N))
    np.testing.assert_array_equal(last[-1], pairs[0])
    for A in np.unique(PRECISIONS):
        x, y = last[-2:, A == PRECISIONS] - 1.0
        phi, variance = 1 - eps * A / 2, 1 / (A * (1 - eps * A / 4))
        z = np.stack([(x + y) / math.sqrt(2 * variance * (1 + phi)), (x - y) / math.sqrt(2 * variance * (1 - phi))])
        assert abs(phi) ** 150 < 2e-3
        assert_normal(z, 1e-6 / 4)
    x = (last[-1] - 1.0)[PRECISIONS == 9.0]
    assert scipy.stats.chi2(len(x)).sf(9.0 * x @ x) < 1e-12


@pytest.mark.sweep
@pytest.mark.parametrize("friction", [0.2, 0.7])
def test_sghmc_with_full_batches_has_the_law_of_its_linear_map(friction):
    """Position and momentum together, whitened by the solution of S = B S B' + C C'; a false alarm is 1e-6."""
    eps = 0.5
    kernel = refhmc.SGHMC(step_size=eps, friction=friction, n_steps=300)
    _, chain = run(many_normals(), kernel, 1, start=np.ones(N))
    state = chain.blocks[0].state
    for A in np.unique(PRECISIONS):
        own = A == PRECISIONS
        B = np.array([[1 - eps**2 * A, eps * (1 - friction)], [-eps * A, 1 - friction]])
        noise = math.sqrt(2 * friction) * np.array([eps, 1.0])
        assert np.abs(np.linalg.eigvals(B)).max() ** 300 < 1e-5
        law = scipy.linalg.solve_discrete_lyapunov(B, np.outer(noise, noise))
        assert law[0, 0] == pytest.approx(1 / (A * (1 - eps**2 * A / (2 * (2 - friction)))), rel=1e-10)
        z = np.linalg.solve(np.linalg.cholesky(law), np.stack([state[Q, own] - 1.0, state[P, own]]))
        assert_normal(z, 1e-6 / 4)


def law_of(parts: np.ndarray, orders: list, h: float, a: float, c: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of (q, p) that p <- a p + h (b - A q) + c z, q <- q + h p keeps, if (A, b) goes through ``parts``
    in one of the ``orders``, all equally likely.
    """
    one, n, maps = np.eye(D), 2 * D, []
    for order in orders:
        F, f, C = np.eye(n), np.zeros(n), np.zeros((n, n))
        for A, b in ((parts[m, :D], parts[m, D]) for m in order):
            B = np.block([[one - h * h * A, h * a * one], [-h * A, a * one]])
            noise = np.vstack([h * c * one, c * one])
            F, f, C = B @ F, B @ f + np.concatenate([h * h * b, h * b]), B @ C @ B.T + noise @ noise.T
        maps.append((F, f, C))
    F, f, C = (np.array(each) for each in zip(*maps, strict=True))
    mean = np.linalg.solve(np.eye(n) - F.mean(axis=0), f.mean(axis=0))
    shift = f + F @ mean - mean  # about the mean
    kept = np.mean([np.kron(each, each) for each in F], axis=0)
    added = np.mean(C + shift[:, :, None] * shift[:, None, :], axis=0)
    return mean, np.linalg.solve(np.eye(n * n) - kept, added.ravel()).reshape(n, n)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [swept("sgld"), "sghmc"])
def test_the_bias_of_minibatches_is_what_the_theory_says(name):
    """Means and variances along four directions after passes through four parts, each pass in a new order, from 20,000 starts.

    Eight bounds of 5.5 standard errors give a false alarm of 1e-6 by the normal distribution of averages. A variance that
    is off by 8 % is detected. The distributions of full batches and of minibatches drawn independently, off by at least 15
    %, are rejected.
    """
    M, n, h, a, c = (
        (4, 20_000, math.sqrt(0.06 / 2), 0.0, math.sqrt(2)) if name == "sgld" else (4, 20_000, 0.15, 0.5, 1.0)
    )
    kernel = refhmc.SGLD(step_size=0.06) if name == "sgld" else refhmc.SGHMC(step_size=0.15, friction=0.5)
    parts, whole = M * numbers(M), numbers(M).sum(axis=0, keepdims=True)
    start = np.linalg.solve(whole[0, :D], whole[0, D])
    ends, _ = from_each(split(M), kernel, np.tile(start, (n, 1)), seed=5, n_transitions=40)
    directions = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, -1.0]])

    def most_standard_errors(parts: np.ndarray, orders: list) -> float:
        mean, covariance = law_of(parts, orders, h, a, c)
        found = []
        for u in directions:
            x, variance = (ends - mean[:D]) @ u, u @ covariance[:D, :D] @ u
            found += [x.mean() / x.std(), (np.mean(x**2) - variance) / np.std(x**2)]
        return math.sqrt(n) * np.abs(found).max()

    assert most_standard_errors(parts, list(itertools.permutations(range(M)))) < 5.5
    assert most_standard_errors(whole, [(0,)]) > 12
    assert most_standard_errors(parts, [(m,) for m in range(M)]) > 12


@pytest.mark.parametrize("name", ["sgld", "sghmc"])
def test_the_sampling_stage_of_a_cycle_has_the_law_of_its_linear_maps(name):
    """Two and a half cycles of 40 updates, 30 % of them exploring, from a point.

    The mean and covariance of (q, p) are those from the product of the updates' maps, with noise only while they sample; a
    false alarm has probability 1e-6. Noise throughout is rejected. At the end of the first exploration SGLD has nothing
    random.
    """
    T, explored, n, eps, a = 40, 12, 100, {"sgld": 0.2, "sghmc": 0.4}[name], {"sgld": 0.0, "sghmc": 0.7}[name]
    options = {"step_size": eps, "n_steps": 1, "cycle": T, "exploration": 0.3}
    kernel = refhmc.SGLD(**options) if name == "sgld" else refhmc.SGHMC(friction=0.3, **options)
    draws, chain = run(many_normals(), kernel, n, start=np.zeros(N))
    steps = eps / 2 * (np.cos(np.pi * (np.arange(n) % T) / T) + 1)
    h, c = (np.sqrt(steps / 2), math.sqrt(2)) if name == "sgld" else (steps, math.sqrt(2 * 0.3))

    def law_at(A: float, n: int, silent: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance after n updates, the first ``silent`` of a cycle without noise; SGHMC's p begins as N(0, 1)."""
        mean, covariance = np.array([-1.0, 0.0]), np.diag([0.0, float(a > 0)])
        for t in range(n):
            B = np.array([[1 - h[t] ** 2 * A, h[t] * a], [-h[t] * A, a]])
            noise = (c if t % T >= silent else 0.0) * np.array([h[t], 1.0])
            mean, covariance = B @ mean, B @ covariance @ B.T + np.outer(noise, noise)
        return mean, covariance

    for A in np.unique(PRECISIONS):
        own = A == PRECISIONS
        if name == "sgld":
            np.testing.assert_allclose(draws[explored - 1, own] - 1.0, law_at(A, explored, explored)[0][0], atol=1e-14)
        for k in (explored, 2 * T - 1, 2 * T + explored - 1, n - 1):
            mean, covariance = law_at(A, k + 1, explored)
            assert_normal((draws[k, own] - 1.0 - mean[0])[None] / math.sqrt(covariance[0, 0]), 1e-6 / 16)
    x = (draws[2 * T + explored - 1] - 1.0)[PRECISIONS == 2.0]
    mean, covariance = law_at(2.0, 2 * T + explored, 0)
    assert scipy.stats.chi2(len(x)).cdf((x - mean[0]) @ (x - mean[0]) / covariance[0, 0]) < 1e-12


@pytest.mark.sweep
@pytest.mark.parametrize("kernel", [refhmc.SGLD(step_size=0.5, n_steps=1), refhmc.SGHMC(step_size=0.9, n_steps=1)])
def test_the_kit_refuses_the_law_of_a_finite_step(kernel):
    report = refhmc.check.sampler(
        kernel, target=refhmc.models.Gaussian([0.5, -1.0], [[1.0, 0.5], [0.5, 2.0]]), seconds=60
    )
    assert "stationarity (e-value)" in {row.name for row in report.failures}, report


# -------------------------------------------------------------------------------------------- minibatches

WITH_DATA = {
    "logistic": lambda: refhmc.models.LogisticRegression(
        np.random.default_rng(1).normal(size=(11, 3)), np.arange(11) % 2.0
    ),
    "network": lambda: refhmc.models.MLP([2, 3, 1], np.random.default_rng(1).normal(size=(11, 2)), np.arange(11.0)),
}


@pytest.mark.parametrize("name", WITH_DATA)
def test_the_mean_of_the_minibatches_is_the_full_gradient(name):
    """For parts of unequal size: the first update's displacement, averaged over the first part."""
    whole, M = WITH_DATA[name](), 4
    q, kernel = np.random.default_rng(2).normal(size=whole.dim), refhmc.SGD(step_size=1.0, n_steps=1)
    model, seen = whole.split(M), []
    for order in itertools.product(*(range(k + 1) for k in range(M - 1, 0, -1))):
        uniforms = [(j + 0.5) / (k + 1) for j, k in zip(order, range(M - 1, 0, -1), strict=True)]
        seen.append(refhmc.transition(model, kernel, q, uniforms=uniforms).q - q)
    assert len(np.unique(np.round(seen, 9), axis=0)) == M
    np.testing.assert_allclose(np.mean(seen, axis=0), whole.gradient(q), rtol=1e-12, atol=1e-12)


@pytest.mark.sweep
def test_each_pass_has_a_new_uniform_order():
    """3,600 passes through four parts, chi-square over the 24 orders, and over the pairs of one pass's last part and the next
    one's first: a false alarm is 1e-6. An order that comes half again as often as it should is seen in nine of ten runs."""
    M, n = 4, 3600
    model, kernel = split(M), refhmc.SGD(step_size=1e-6)
    chain = Chain(model, make_plan(model, kernel, 0), np.random.default_rng(8))
    chain.start(np.zeros(D))
    draws, stats, seen = np.zeros((1, D)), np.zeros((1, chain.plan.n_stats)), []
    for _ in range(n):
        chain.run(draws, stats)
        seen.append(tuple(chain.blocks[0].state[POINT_ROWS:].ravel()[:M].astype(int)))
    places = {order: k for k, order in enumerate(itertools.permutations(range(M)))}
    counts = np.bincount([places[order] for order in seen], minlength=len(places))
    assert scipy.stats.chisquare(counts).pvalue > 5e-7
    pairs = np.bincount([M * a[-1] + b[0] for a, b in itertools.pairwise(seen)], minlength=M * M)
    assert scipy.stats.chisquare(pairs).pvalue > 5e-7


# -------------------------------------------------------------------------------------- as any other kernel


def test_a_run_is_resumed_from_its_checkpoint(tmp_path, sample):
    options = {"tune": 3, "chains": 2, "random_seed": 4}
    kernel, model = KERNELS["sghmc, cyclic"], split(4)
    sample(model, kernel, draws=7, checkpoint=tmp_path, **options)
    resumed = sample(model, kernel, draws=20, checkpoint=tmp_path, **options)
    unbroken = sample(model, kernel, draws=20, **options)
    np.testing.assert_array_equal(resumed.draws, unbroken.draws)
    t = 3 * (3 + np.arange(20)) + 2  # the last update of each draw
    np.testing.assert_allclose(resumed.sample_stats["step_size"][1], [kernel.step(k) for k in t], rtol=1e-15)


@pytest.mark.parametrize("name", ["sgd", "sgld", "sghmc"])
def test_the_result_says_that_it_is_approximate(name, sample):
    result = sample(split(4), KERNELS[name], draws=4, tune=2, chains=1, random_seed=1)
    assert result.attributes["exact"] is False
    assert any("approximate" in text and KERNELS[name].approximation in text for text in result.warnings)
    updates = KERNELS[name].n_steps or 4
    extra = 4 if name == "sgld" else 0
    assert (result.sample_stats["n_gradient_evaluations"] == updates + extra).all()
    assert ("lp" in result.sample_stats) == (name == "sgld")
    if name == "sgld":
        expected = [split(4).log_density(q) for q in result.draws[0]]
        np.testing.assert_allclose(result.sample_stats["lp"][0], expected, rtol=1e-12)
    assert inexact_part(refhmc.Gibbs({(0,): refhmc.HMC(), (1,): KERNELS[name]})) is KERNELS[name]


def test_draws_of_an_exploration_are_marked_and_told(sample):
    """7 updates per draw, warm-up included, cycles of 10 with 3 that explore: by the number of each draw's last update."""
    kernel = refhmc.SGLD(step_size=0.01, n_steps=7, cycle=10, exploration=0.3)
    result = sample(split(4), kernel, draws=20, tune=3, chains=2, random_seed=1)
    expected = [(7 * (3 + k) + 6) % 10 in (0, 1, 2) for k in range(20)]
    np.testing.assert_array_equal(result.sample_stats["exploring"], [expected, expected])
    assert any(f"{2 * sum(expected)} of 40 draws belong to the exploration" in text for text in result.warnings)
    without = sample(split(4), refhmc.SGLD(step_size=0.01, cycle=10), draws=4, tune=0, chains=1, random_seed=1)
    assert "exploring" not in without.sample_stats


@pytest.mark.parametrize("make", [refhmc.SGD, refhmc.SGLD, refhmc.SGHMC])
def test_a_step_far_too_large_diverges_and_leaves_a_finite_chain(make, sample):
    """The chain, which cannot continue from its position, is reported as stuck."""
    result = sample(split(4), make(step_size=1e200, n_steps=2), draws=120, tune=0, chains=4, random_seed=1)
    assert np.isfinite(result.draws).all()
    stats = result.sample_stats
    assert stats["diverging"].all()
    assert not stats["is_accepted"].any()
    said = " ".join(result.warnings)
    assert "480 of 480 transitions (100 %) diverged" in said
    assert "smaller step_size" in said
    assert "stood still for all of its 120 draws" in said


def half_line(q, data):
    return -q[0] if q[0] > 0 else -math.inf


def half_line_gradient(q, data):
    return np.array([-1.0])


@pytest.mark.sweep
def test_a_chain_that_leaves_the_support_goes_back_to_where_its_transition_began():
    model = refhmc.Model(1, half_line, half_line_gradient)
    # 3.5, 2.5, 1.5, .5, -.5; the density is asked for once more from there
    there = refhmc.transition(model, refhmc.SGD(step_size=1.0, n_steps=9), [3.5], uniforms=[0.5])
    assert there.q == [3.5]
    assert there.outcome == "diverged"
    assert there.stats["n_steps"] == 5


@pytest.mark.parametrize("given", [[10.0, 0.5], np.array([10.0, 0.5]), (np.float64(10.0), np.array(0.5))])
def test_decay_may_be_a_list_or_an_array(given):
    kernel = refhmc.SGHMC(step_size=0.1, decay=given)
    assert kernel == refhmc.SGHMC(step_size=0.1, decay=(10.0, 0.5))
    assert [type(x) for x in kernel.decay] == [float, float]
    assert kernel.settings()["decay_power"] == 0.5


def test_what_cannot_be_is_refused():
    for wrong in ({"step_size": None}, {"step_size": -1.0}, {"step_size": 0.1, "n_steps": 0}):
        with pytest.raises(ValueError, match="step"):
            refhmc.SGLD(**wrong)
    for name, wrong in (("cycle", 2.5), ("decay", (0.0, 1.0)), ("decay", (1.0,))):
        with pytest.raises(ValueError, match=name):
            refhmc.SGLD(step_size=0.1, **{name: wrong})
    for wrong in (0.5, np.array(0.5), ("a", 1), "ab", (True, 1.0), (np.nan, 1.0), np.ones((2, 2))):
        with pytest.raises(ValueError, match=r"decay must be \(b, gamma\)"):
            refhmc.SGLD(step_size=0.1, decay=wrong)
    with pytest.raises(ValueError, match="decay.*cycle"):
        refhmc.SGLD(step_size=0.1, cycle=3, **DECAY)
    for wrong in (1.0, -0.1):
        with pytest.raises(ValueError, match=f"exploration.*{wrong}"):
            refhmc.SGLD(step_size=0.1, cycle=3, exploration=wrong)
    with pytest.raises(ValueError, match="exploration.*cycle"):
        refhmc.SGHMC(step_size=0.1, exploration=0.5)
    with pytest.raises(ValueError, match="exploration.*SGD"):
        refhmc.SGD(step_size=0.1, cycle=3, exploration=0.5)
    with pytest.raises(ValueError, match="momentum"):
        refhmc.SGD(step_size=0.1, momentum=1.0)
    for wrong in ({"friction": 0.0}, {"friction": 1.5}, {"noise_estimate": 0.2}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            refhmc.SGHMC(step_size=0.1, **wrong)
    for metric in (Diagonal(), Fisher()):
        with pytest.raises((TypeError, ValueError), match="Diagonal|constant"):
            refhmc.SGLD(step_size=0.1, metric=metric)
    assert refhmc.SGLD(step_size=0.1).metric == Identity()
    jumps = refhmc.models.ChangePoint()
    with pytest.raises(ValueError, match=f"'{jumps.name}'.*(jump|discontinuous)"):
        refhmc.sample(jumps, refhmc.SGLD(step_size=0.1), draws=1)
