"""Coupled HMC: margins, meetings, unbiased estimates and the bound on the total variation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.core.point import GRADIENT, Q
from refhmc.errors import SamplingWarning, ShapeError
from refhmc.sampling import coupled as module
from refhmc.sampling.chains.chain import make_plan

MEAN, COVARIANCE = np.array([0.5, -1.0]), np.array([[1.0, 0.6], [0.6, 2.0]])
NORMAL = refhmc.models.Gaussian(MEAN, COVARIANCE)
KERNEL = refhmc.HMC(
    step_size=0.6, trajectory_length=1.5, step_jitter=0.2, length_jitter=0.3, metric=refhmc.metrics.Diagonal([1.0, 2.0])
)
SEED = np.random.SeedSequence(5, spawn_key=(0,))


def generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


def pair_of(model, kernel, seed=SEED):
    plan = make_plan(model, kernel, 0)
    plan.blocks[0].compile(model.name)
    return module.Pair(model, plan, None, generator(seed))


def walk(model, q, proposal, u):
    return proposal if u < math.exp(min(model.log_density(proposal) - model.log_density(q), 0.0)) else q


@pytest.mark.parametrize(
    ("model", "kernel", "gamma"),
    [
        (NORMAL, KERNEL, 0.3),
        (refhmc.models.Funnel(2), refhmc.HMC(step_size=0.2, n_steps=3, metric=refhmc.metrics.SoftAbs(1e6)), 0.4),
    ],
    ids=["normal", "funnel with SoftAbs"],
)
def test_each_chain_makes_the_transitions_of_the_uncoupled_kernel(model, kernel, gamma):
    """Both chains equal `refhmc.transition`, or a random walk in NumPy, on the same random numbers."""
    together, moved, d = 0, 0, model.dim
    for seed in range(8):
        pair, twin = (each(np.random.SeedSequence(seed)) for each in (lambda s: pair_of(model, kernel, s), generator))
        scale, q = np.full(d, 0.8), [np.full(d, 0.7), np.full(d, -0.4)]
        pair.start(*q, 1, 30, 30)
        for t, ends in enumerate(zip(*pair.run(scale, gamma), strict=True)):
            if np.array_equal(*q):
                break
            walks, normals, uniforms = twin.random() < gamma, twin.standard_normal(d), twin.random(len(pair.uniforms))
            z = (q[0] - q[1]) / scale if t else np.zeros(d)
            meets = uniforms[0] < math.exp(-(z @ normals) - z @ z / 2)
            noises = normals, normals + z if meets else normals - 2 * (z @ normals) / (z @ z) * z
            for which, end in enumerate(ends if t else ends[:1]):  # before the lag, only the first chain moves
                if walks:
                    new = walk(model, q[which], q[which] + scale * noises[which], uniforms[1])
                    np.testing.assert_allclose(end, new, rtol=1e-12, atol=1e-13)
                else:
                    alone = refhmc.transition(model, kernel, q[which], normals=normals, uniforms=uniforms)
                    np.testing.assert_array_equal(end, alone.q)
                    moved += alone.outcome == "accepted"
            together += t > 0 and walks and meets
            q = list(ends)
    assert together > 0
    assert moved > 40


def test_chains_at_one_point_stay_together():
    """The flag of the meeting is reset after each iteration, so that both chains move."""
    pair = pair_of(NORMAL, KERNEL)
    pair.start(np.zeros(2), np.zeros(2), 1, 500, 500)
    places = set()
    for _ in range(300):
        pair.times[:3] = 1, 1, 0
        pair.run(np.full(2, 0.5), 0.3, rows=1)
        assert pair.times[2] == 2
        for row in (Q, GRADIENT):
            assert np.array_equal(pair.X.state[row], pair.Y.state[row])
        places.add(tuple(pair.Y.state[Q]))
    assert len(places) > 100


@pytest.mark.parametrize("distance", [0.3, 2.0])
def test_proposals_are_maximally_coupled(distance):
    """They are equal with probability erfc(|z| / sqrt 8), and the second one is normal; each alarm is false below 1e-7."""
    rng, n, scale = np.random.default_rng(3), 20_000, np.array([0.5, 2.0])
    x, y = np.zeros((2, n, 3, 2))
    y[:, 0] = y0 = distance * scale * np.array([0.6, 0.8])
    normals, uniforms = rng.standard_normal((n, 2)), rng.random(n)
    same = [module.propose_together(x[i], y[i], scale, normals[i], uniforms[i]) for i in range(n)]
    assert np.array_equal(same, np.all(x[:, 1] == y[:, 1], axis=1))
    expected = math.erfc(distance / math.sqrt(8))
    assert scipy.stats.binomtest(sum(same), n, expected).pvalue > 1e-7
    noise = (y[:, 1] - y0) / scale
    for column in (*noise.T, noise @ [0.6, 0.8], np.abs(noise @ [0.8, -0.6])):
        law = scipy.stats.halfnorm if column.min() >= 0 else scipy.stats.norm
        assert scipy.stats.kstest(column, law.cdf).pvalue > 1e-7


@pytest.mark.parametrize(("k", "m", "lag"), [(0, 0, 1), (2, 9, 1), (3, 3, 4), (2, 11, 3), (0, 5, 20)])
def test_weights_and_bound_count_pairs(k, m, lag):
    times = range(60)
    counted = [sum(k <= t - j * lag <= m for j in range(1, 61)) for t in times]
    np.testing.assert_array_equal(module.weights(np.array(times), k, m, lag), counted)
    met = np.arange(lag, 60)
    bound = module.bound_on_total_variation(met, lag, np.array(times))
    np.testing.assert_array_equal(bound, [[sum(tau > t + j * lag for j in range(1, 61)) for t in times] for tau in met])


def test_estimate_is_the_average_of_telescoping_sums():
    """H_{k:m} is computed again from whole trajectories: h(X_l) + sum_j (h(X_{l+jL}) - h(Y_{l+(j-1)L}))."""
    k, m, lag, gamma, scale = 2, 13, 3, 0.05, np.full(2, 0.01)
    pair = pair_of(NORMAL, KERNEL)
    starts = np.array([[4.0, 3.0], [-4.0, 1.0]])
    pair.start(*starts, lag, m, 10_000)
    made = module.estimate_of(pair, lambda: pair.run(scale, gamma, rows=7), lambda q: {"q": q}, k, m)["q"]
    again = pair_of(NORMAL, KERNEL)
    again.start(*starts, lag, 10_000, 10_000)
    xs, ys = again.run(scale, gamma)
    tau = int(again.times[2])
    assert tau == pair.times[2] > m
    X, Y = np.vstack([starts[:1], xs]), np.vstack([starts[1:], ys[lag:]])
    each = [
        X[k_:][0]
        + sum((X[k_ + j * lag] - Y[k_ + (j - 1) * lag] for j in range(1, tau) if k_ + j * lag < tau), np.zeros(2))
        for k_ in range(k, m + 1)
    ]
    np.testing.assert_allclose(made, np.mean(each, axis=0), rtol=1e-12)


def z_scores(**options):
    def moments(values):
        x = values["x"]
        return {"first": x, "second": np.stack([x[:, 0] ** 2, x[:, 1] ** 2, x[:, 0] * x[:, 1]], axis=1)}

    made = refhmc.coupled(
        NORMAL, KERNEL, pairs=3000, k=1, m=8, lag=3, function=moments, initvals=[6.0, 6.0], random_seed=1, **options
    )
    exact = {"first": MEAN, "second": (COVARIANCE + np.outer(MEAN, MEAN))[[0, 1, 0], [0, 1, 1]]}
    return np.concatenate([(made.mean[name] - exact[name]) / made.standard_error[name] for name in exact])


def test_estimates_are_unbiased(monkeypatch):
    """Five z-scores below 6 (false alarm below 1e-7); without the correction, the average from this start is biased."""
    assert np.abs(z_scores()).max() < 6
    monkeypatch.setattr(module, "weights", lambda t, *_: np.zeros(len(t), int))
    assert np.abs(z_scores()).min() > 10


def test_bound_holds_for_a_chain_from_far_away():
    """The share of chains beyond a half-plane differs from the target's by at most the bound (5 standard errors)."""
    n, lag, t = 2000, 50, 6
    made = refhmc.coupled(NORMAL, KERNEL, pairs=n, k=0, m=60, lag=lag, initvals=[6.0, 6.0], random_seed=2)
    assert made.total_variation[0] >= 1
    assert np.all(np.diff(made.total_variation) <= 0)
    assert made.total_variation[-1] == made.total_variation_error[-1] == 0
    ends = []
    for seed in range(400):
        pair = pair_of(NORMAL, KERNEL, seed)
        pair.start(np.full(2, 6.0), np.zeros(2), t, t, t)
        ends.append(pair.run(np.full(2, 0.01), 0.05)[0][-1])
    share = np.mean(np.array(ends)[:, 1] > MEAN[1])
    assert abs(share - 0.5) < made.total_variation[t] + 5 * (made.total_variation_error[t] + math.sqrt(0.25 / 400))


def test_result_does_not_depend_on_the_number_of_cores():
    one, two = (refhmc.coupled(NORMAL, KERNEL, pairs=6, k=50, m=200, lag=20, random_seed=3, cores=c) for c in (1, 3))
    for mine, other in zip(one[:2] + one[5:8], two[:2] + two[5:8], strict=True):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_array_equal(one.estimates["x"], two.estimates["x"])


def test_warmup_gives_step_size_metric_and_length():
    model = refhmc.models.EightSchools()
    result = refhmc.sample(
        model, refhmc.HMC(), chains=1, draws=10, tune=500, random_seed=1, progressbar=False, raw=True
    )
    made = refhmc.coupled(model, warmup=result, pairs=4, k=100, m=200, random_seed=1)
    assert made.met.all()
    (learned,) = result.adapted
    given = refhmc.HMC(
        step_size=learned.step_size,
        trajectory_length=learned.length,
        length_jitter=learned.jitter,
        metric=learned.metric,
    )
    again = refhmc.coupled(model, given, pairs=4, k=100, m=200, random_seed=1)
    np.testing.assert_array_equal(made.meeting_times, again.meeting_times)
    np.testing.assert_array_equal(made.estimates["tau"], again.estimates["tau"])


def test_pairs_that_do_not_meet_give_no_estimate():
    with pytest.warns(SamplingWarning, match=r"8 of 8 pairs did not meet within 25 iterations"):
        made = refhmc.coupled(NORMAL, KERNEL, pairs=8, lag=20, k=0, m=5, max_iterations=25, random_seed=1)
    assert not made.met.any()
    assert np.array_equal(made.meeting_times, np.full(8, 25))
    for value in (made.estimates["x"], made.mean["x"], made.standard_error["x"], made.total_variation):
        assert np.isnan(value).all()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"kernel": refhmc.NUTS(step_size=0.1)}, TypeError, "kernel must be a refhmc.HMC"),
        ({"kernel": refhmc.HMC()}, ValueError, "step_size of the kernel must be given without warmup"),
        ({"pairs": 1}, ValueError, "pairs must be a whole number of at least 2"),
        ({"lag": 0}, ValueError, "lag must be"),
        ({"k": 7, "m": 6}, ValueError, "m must be a whole number of at least 7"),
        ({"max_iterations": 99}, ValueError, "max_iterations must be"),
        ({"walk_probability": 1.0}, ValueError, "walk_probability must lie in"),
        ({"proposal_scale": 0.0}, ValueError, "proposal_scale must be positive"),
        ({"initvals": np.zeros((3, 2))}, ShapeError, "initvals must have shape"),
        ({"function": lambda values: {"one": 1.0}}, ShapeError, "function must return"),
        ({"warmup": 3}, ValueError, "warmup must be"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_invalid_arguments_are_rejected(options, error, words):
    with pytest.raises(error, match=words):
        refhmc.coupled(NORMAL, **{"kernel": KERNEL, "pairs": 2, **options})
