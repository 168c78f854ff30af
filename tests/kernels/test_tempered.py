"""Parallel tempering: exact distributions, log Z with its error, the ladder, reproducibility, warnings and errors.

The statistical tests of this file raise a false alarm with probability 1e-6 at most, each with its share of it. The seeds are
fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from scipy.special import logsumexp

import refhmc
from refhmc import HMC, NUTS, Tempered
from refhmc.diagnostics import ess_of_mean
from refhmc.errors import CheckpointError
from refhmc.metrics import Dense, Identity, SoftAbs
from refhmc.sampling.chains.chain import Chain, make_plan
from refhmc.sampling.chains.task import chain_generator
from refhmc.sampling.results.tempering import (
    log_normalizer,
    log_ratio_of_constants,
    rejections,
    round_trips,
    series_of_leg,
)
from refhmc.sampling.storage.kernel_json import kernel_as_json, kernel_from_json
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import swept

ALPHA = 1e-7
QUIET = {"progressbar": False, "raw": True}
NORMAL = refhmc.models.Gaussian([1.0, -0.5], [[0.5, 0.0], [0.0, 2.0]])
LOG_Z = math.log(2 * math.pi) + 0.5 * math.log(0.5 * 2.0)
WEIGHT, HALF = 0.2, 5.0


def two_modes(d, scale=3.0):
    """0.2 N(-5 e_1, I) + 0.8 N(5 e_1, I), times `scale`, so that Z = scale."""
    constant = math.log(scale) - 0.5 * d * math.log(2 * math.pi)
    odds, half = math.log(WEIGHT / (1 - WEIGHT)), HALF

    def value_and_gradient(q, data, out):
        squares = 0.0
        for i in range(q.shape[0]):
            squares += q[i] * q[i]
            out[i] = -q[i]
        t = odds - 2 * half * q[0]
        in_left = 1 / (1 + math.exp(-t)) if t > 0 else math.exp(t) / (1 + math.exp(t))
        out[0] += half * (1 - 2 * in_left)
        more = t + math.log1p(math.exp(-t)) if t > 0 else math.log1p(math.exp(t))
        return constant - 0.5 * (squares + half * half) + half * q[0] + math.log(0.8) + more

    def log_density(q, data):
        return value_and_gradient(q, data, np.empty_like(q))

    return refhmc.Model(d, log_density, value_and_gradient=value_and_gradient, gradient=None, name=f"two modes {d}")


def spread_of(b, mean, variance, at, scale):
    """Mean and standard deviation of r^(1 - b) pi^b for two normals."""
    precision = (1 - b) / scale**2 + b / variance
    return ((1 - b) * at / scale**2 + b * mean / variance) / precision, precision**-0.5


# ------------------------------------------------------------------------------------------------ exact distributions


@pytest.mark.parametrize("kernel", [HMC(step_size=0.8, n_steps=2), NUTS(step_size=0.7)], ids=["hmc", "nuts"])
def test_iterations_keep_the_density_of_each_temperature(kernel):
    """Replicas that start with exact draws have exact draws after three iterations, and pairs of them are independent."""
    n, m, K = 3000, 2, 4
    plan = make_plan(NORMAL, Tempered(kernel, rungs=m, learned_rungs=K - m), 0)
    plan.compile("test")
    chain, rng = Chain(NORMAL, plan, chain_generator(11, 0)), np.random.default_rng(12)
    ladder = chain.ladder
    at, scale = np.repeat([[0.5], [-1.5]], [m + 1, K - m], axis=0), np.repeat([[2.0], [0.7]], [m + 1, K - m], axis=0)
    ladder.replicas[:, 2:4], ladder.replicas[:, 4:6] = at, scale
    b = ladder.replicas[:, -1, None]
    assert b[m] == 1
    mean, sd = spread_of(b, np.array([1.0, -0.5]), np.array([0.5, 2.0]), at, scale)
    draws, stats, ends = np.zeros((3, 2)), np.zeros((3, plan.n_stats)), np.empty((n, K + 1, 2))
    for k in range(n):
        chain.start(np.zeros(2))
        ladder.replicas[:, :2] = mean + sd * rng.standard_normal((K + 1, 2))
        assert chain.run(draws, stats) == 3
        ends[k] = ladder.replicas[:, :2]
        assert np.array_equal(draws[-1], ends[k, m])
    z = ((ends - mean) / sd).reshape(n, -1)
    sums = [(z[:, i] + s * z[:, j]) / 2**0.5 for i in range(z.shape[1]) for j in range(i) for s in (1, -1)]
    pvalues = [scipy.stats.kstest(each, "norm").pvalue for each in (*z.T, *sums)]
    assert min(pvalues) > ALPHA / len(pvalues)


def test_pairs_alternate_and_only_neighbours_move():
    kernel = Tempered("nuts", rungs=3, learned_rungs=2)
    result = refhmc.sample(NORMAL, kernel, draws=200, tune=50, chains=2, random_seed=4, **QUIET)
    replica = result.sample_stats["replica"]
    assert np.array_equal(np.sort(replica, axis=-1), np.broadcast_to(np.arange(6), replica.shape))
    for chain in replica:
        for t in range(1, len(chain)):
            first = (50 + t) % 2  # iteration t after warm-up
            here, before = chain[t], chain[t - 1].copy()
            for k in range(first, 5, 2):
                if here[k] != before[k]:
                    before[[k, k + 1]] = before[[k + 1, k]]
            assert np.array_equal(here, before)
    assert (np.diff(replica, axis=1) != 0).any()


@pytest.mark.parametrize(("d", "kernel"), [(2, NUTS()), swept((10, NUTS())), swept((2, HMC())), swept((2, "malt"))])
def test_two_modes_far_apart_have_their_weights_and_log_z(d, kernel):
    """NUTS never crosses here: its chains stay in their modes."""
    result = refhmc.sample(two_modes(d), Tempered(kernel), draws=1500, tune=1000, random_seed=5, **QUIET)
    left = (result.draws[:, :, :1] < 0).astype(float)
    error = left.std() / np.sqrt(ess_of_mean(left)[0])
    limit = scipy.stats.norm.isf(ALPHA / 2)
    assert error < 0.03
    assert abs(left.mean() - WEIGHT) < limit * error
    assert abs(result.attributes["log_z"] - math.log(3)) < limit * result.attributes["log_z_error"] < 0.3
    assert min(result.attributes["round_trips"]) > 10
    assert 0.5 < result.attributes["barrier"] < 5


def two_widths(d):
    """0.5 N(-5 e_1, I / 4) + 0.5 N(5 e_1, I)."""
    constant, narrow = -0.5 * d * math.log(2 * math.pi) + math.log(0.5), d * math.log(2.0)

    def value_and_gradient(q, data, out):
        left, right = 4 * (q[0] + HALF) ** 2, (q[0] - HALF) ** 2
        for i in range(1, q.shape[0]):
            left += 4 * q[i] ** 2
            right += q[i] ** 2
        t = narrow - 0.5 * (left - right)  # log odds of the narrow mode
        in_left = 1 / (1 + math.exp(-t)) if t > 0 else math.exp(t) / (1 + math.exp(t))
        for i in range(q.shape[0]):
            out[i] = -(1 + 3 * in_left) * q[i]
        out[0] = -4 * in_left * (q[0] + HALF) - (1 - in_left) * (q[0] - HALF)
        return constant - 0.5 * right + (t + math.log1p(math.exp(-t)) if t > 0 else math.log1p(math.exp(t)))

    def log_density(q, data):
        return value_and_gradient(q, data, np.empty_like(q))

    return refhmc.Model(d, log_density, value_and_gradient=value_and_gradient, gradient=None, name=f"two widths {d}")


def test_a_narrow_mode_is_not_lost_by_the_fitted_reference():
    """At small b, the wide mode has nearly all of the probability; a reference that is fitted there loses the narrow one."""
    result = refhmc.sample(two_widths(4), Tempered("nuts"), draws=1500, tune=1000, random_seed=5, **QUIET)
    left = (result.draws[:, :, :1] < 0).astype(float)
    error = left.std() / np.sqrt(ess_of_mean(left)[0])
    limit = 1.3 * scipy.stats.norm.isf(ALPHA / 2)  # standard errors are too small by up to a fifth (24 seeds)
    assert error < 0.05
    assert abs(left.mean() - 0.5) < limit * error
    assert abs(result.attributes["log_z"]) < limit * result.attributes["log_z_error"] < 0.3


def test_mixture_of_posteriordb_agrees_with_the_reference():
    from tests.helpers.posteriors import z_scores

    model = refhmc.models.GaussianMixture()
    result = refhmc.sample(model, Tempered("nuts"), draws=500, tune=500, random_seed=6, **QUIET)
    assert np.abs(z_scores(model, result)).max() < scipy.stats.norm.isf(ALPHA / 20)


# ---------------------------------------------------------------------------------------------------------- log Z


def independent(rng, n, b, offset=-2.0):
    """V of both replicas of each pair at independent draws, with exp(offset) N(1.5, 1) as the target.

    The first reference is N(0, 2^2), and the second N(1, 1.5^2).
    """
    m, K = int(b.argmax()), len(b) - 1
    at, scale = np.repeat([0.0, 1.0], [m + 1, K - m]), np.repeat([2.0, 1.5], [m + 1, K - m])
    mean, sd = spread_of(b, 1.5, 1.0, at, scale)
    q, k = mean + sd * rng.standard_normal((n, len(b))), np.arange(K)
    of = np.where(k < m, k, k + 1)  # whose reference is that of the pair
    return [
        offset + scipy.stats.norm.logpdf(x, 1.5, 1) - scipy.stats.norm.logpdf(x, at[of], scale[of])
        for x in (q[:, :-1], q[:, 1:])
    ]


@pytest.mark.parametrize("b", [[0, 0.3, 1.0], [0, 0.3, 1.0, 0.4, 0]], ids=["one leg", "two legs"])
def test_log_z_and_its_error_are_right_for_independent_draws(b):
    b, rng, runs = np.array([b] * 3), np.random.default_rng(7), 300
    z = []
    for _ in range(runs):
        V, next_V = np.moveaxis([independent(rng, 200, each) for each in b], 1, 0)
        found, error = log_normalizer(b, V, next_V)
        z.append((found + 2.0) / error)
    low, high = scipy.stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], runs)
    assert 0.9 * low < np.square(z).sum() < 1.1 * high  # the errors are themselves estimates
    assert abs(np.mean(z)) < scipy.stats.norm.isf(ALPHA / 2) * 1.1 / math.sqrt(runs)


def test_the_estimate_of_a_pair_is_the_root_of_bennett_s_equation():
    rng = np.random.default_rng(8)
    u, next_u = rng.normal(1, 2, 500), rng.normal(3, 2, 500)
    c = log_ratio_of_constants(u, next_u)
    left, right = -np.logaddexp(0, c - u), -np.logaddexp(0, next_u - c)
    assert abs(logsumexp(left) - logsumexp(right)) < 1e-9
    assert log_ratio_of_constants(u + 7, next_u + 7) == pytest.approx(c + 7)
    assert log_ratio_of_constants(np.full(3, 4.0), np.full(3, 4.0)) == pytest.approx(4.0)
    assert log_ratio_of_constants(np.full(3, -np.inf), next_u) == -math.inf
    assert log_ratio_of_constants(u, np.full(3, np.inf)) == math.inf
    some = np.where(rng.random(500) < 0.5, u, -np.inf)  # half of the reference is outside the support
    assert math.isfinite(log_ratio_of_constants(some, next_u))


def test_log_z_without_draws_of_a_reference_in_the_support():
    """The other leg is used; without it, log Z is -inf."""
    rng, b = np.random.default_rng(3), np.array([[0, 0.3, 1.0, 0.4, 0]])
    V, next_V = np.moveaxis([independent(rng, 200, b[0])], 1, 0)
    second = series_of_leg(b[:, 2:], V[..., 2:], next_V[..., 2:]).mean()
    V[..., 0] = -np.inf
    found, error = log_normalizer(b, V, next_V)
    assert found == pytest.approx(second, abs=1e-12)
    assert 0 < error < 0.5
    next_V[..., -1] = -np.inf
    assert log_normalizer(b, V, next_V) == (-math.inf, math.inf)


def test_log_z_of_a_target_with_bounded_support():
    """A half-normal: half of the draws of the reference have density zero."""
    model = refhmc.Model(
        1, lambda q: -0.5 * q[0] ** 2 if q[0] > 0 else -np.inf, lambda q: -q, initial=np.ones(1), name="half-normal"
    )
    kernel = Tempered(HMC(step_size=0.7, n_steps=2), rungs=4, learned_rungs=2)
    result = refhmc.sample(model, kernel, draws=1500, tune=500, random_seed=9, **QUIET)
    assert np.isneginf(result.sample_stats["log_ratio"][..., 0]).any()
    z = (result.attributes["log_z"] - 0.5 * math.log(math.pi / 2)) / result.attributes["log_z_error"]
    assert abs(z) < scipy.stats.norm.isf(ALPHA / 2)


def test_rejections_and_round_trips_by_hand():
    b, V = np.array([[0.0, 0.5, 1.0]]), np.array([[[0.0, 1.0, 0.0], [-np.inf, -np.inf, 3.0]]])
    np.testing.assert_allclose(rejections(b, V[..., :-1], V[..., 1:]), [[0.5 * (2 - math.exp(-0.5)), 0.5]])
    orders = np.array([[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0], [2, 0, 1], [0, 2, 1], [0, 1, 2]])
    # 0 goes up, 1 goes up and 2 goes up: the last two from the reference, where 0 was at the beginning, too.
    assert round_trips(orders) == 3


# ------------------------------------------------------------------------------------- the ladder and the reference


def test_temperatures_equalise_the_rejection_rates():
    """The first ladder is far from even."""
    kernel = Tempered("nuts", rungs=8, learned_rungs=3, reference_scale=20.0)
    result = refhmc.sample(NORMAL, kernel, draws=1000, tune=1000, random_seed=10, **QUIET)
    rejection = np.array(result.attributes["swap_rejection"])
    assert rejection[:8].max() < 1.6 * rejection[:8].min()
    assert rejection[:8].sum() == pytest.approx(result.attributes["barrier"])
    assert rejection[8:].sum() < 0.2  # a normal target is fitted by the second reference
    ladder = np.array(result.attributes["ladder"])
    assert ladder.shape == (4, 12)
    assert (ladder[:, [0, 8, 11]] == [0, 1, 0]).all()
    assert (np.diff(ladder[:, :9]) > 0).all()
    assert (np.diff(ladder[:, 8:]) < 0).all()
    assert np.array_equal(result.sample_stats["inverse_temperature"][:, 0], ladder)


def test_second_reference_is_learned_in_warm_up_and_kept_afterwards():
    far = refhmc.models.Gaussian([40.0, -3.0], [[0.01, 0.0], [0.0, 4.0]])
    plan = make_plan(far, Tempered("nuts", rungs=3, learned_rungs=3), 400)
    plan.compile("test")
    chain = Chain(far, plan, chain_generator(3, 0))
    chain.start(np.array([38.0, 0.0]))
    draws, stats = np.zeros((400, 2)), np.zeros((400, plan.n_stats))
    assert chain.run(draws, stats) == 400
    reference = chain.ladder.replicas[:, 2:-1].copy()
    assert (reference[:4] == [0.0, 0.0, 5.0, 5.0]).all()
    assert (reference[4:] == reference[4]).all()
    assert (np.abs(reference[4, :2] - [40.0, -3.0]) < [0.1, 2.0]).all()
    assert (reference[4, 2:] > [0.05, 1.0]).all()
    assert (reference[4, 2:] < [0.2, 4.0]).all()
    chain.run(draws, stats)
    assert np.array_equal(chain.ladder.replicas[:, 2:-1], reference)


def test_without_warm_up_the_ladder_and_the_reference_stay():
    kernel = Tempered(HMC(step_size=0.5, n_steps=3), rungs=4, learned_rungs=2, reference_mean=[1.0, 2.0])
    result = refhmc.sample(NORMAL, kernel, draws=20, tune=0, chains=1, random_seed=1, **QUIET)
    np.testing.assert_allclose(result.attributes["ladder"], [(np.array([0, 1, 2, 3, 4, 2, 0]) / 4) ** 3])


def test_without_learned_rungs_there_is_one_leg():
    kernel = Tempered(HMC(step_size=0.5, n_steps=3), rungs=4, learned_rungs=0)
    result = refhmc.sample(NORMAL, kernel, draws=1000, tune=300, random_seed=1, **QUIET)
    assert np.shape(result.attributes["ladder"]) == (4, 5)
    assert result.sample_stats["replica"].shape == (4, 1000, 5)
    assert result.sample_stats["log_ratio"].shape == (4, 1000, 4)
    z = (result.attributes["log_z"] - LOG_Z) / result.attributes["log_z_error"]
    assert abs(z) < scipy.stats.norm.isf(ALPHA / 2)


# -------------------------------------------------------------------------------------------------- reproducibility

KERNEL = Tempered(HMC(metric=Dense(), n_steps=4), rungs=2, learned_rungs=2)
RUN = {"draws": 400, "tune": 300, "random_seed": 9, **QUIET}


@pytest.fixture(scope="module")
def unbroken():
    return refhmc.sample(NORMAL, KERNEL, **RUN, chains=2, save_warmup=True)


def assert_same(one, two):
    for group in one.groups:
        for name, values in one.groups[group].items():
            assert np.array_equal(two.groups[group][name], values, equal_nan=True), (group, name)


@pytest.mark.parametrize("stops", [(130, 131), swept(((0,),)), swept(((250, 500),))])
def test_stopped_and_resumed_is_unbroken(stops, unbroken, tmp_path):
    options = {"chains": 2, "save_warmup": True, "checkpoint": tmp_path}
    stops = stops if isinstance(stops[0], int) else stops[0]
    for stop in stops:
        refhmc.sample(NORMAL, KERNEL, **{**RUN, "progressbar": stop_after(stop)}, **options, cores=1)
    resumed = refhmc.sample(NORMAL, KERNEL, **{**RUN, "random_seed": None}, **options)
    assert_same(unbroken, resumed)
    for name in ("log_z", "log_z_error", "round_trips", "n_gradient_evaluations"):
        assert resumed.attributes[name] == unbroken.attributes[name]
    with pytest.raises(CheckpointError, match="kernel"):
        refhmc.sample(NORMAL, Tempered(HMC(metric=Dense(), n_steps=4), rungs=4), **RUN, **options)


def test_draws_do_not_depend_on_the_other_chains(unbroken):
    more = refhmc.sample(NORMAL, KERNEL, **RUN, chains=3, cores=2)
    assert np.array_equal(more.draws[:2], unbroken.draws)


def test_a_store_holds_the_statistics_of_all_temperatures(unbroken, tmp_path):
    pytest.importorskip("zarr")
    stored = refhmc.sample(NORMAL, KERNEL, **RUN, chains=2, store=tmp_path / "store")
    assert np.array_equal(stored.sample_stats["log_ratio"], unbroken.sample_stats["log_ratio"])
    assert stored.attributes["log_z"] == unbroken.attributes["log_z"]


def test_arviz_has_the_statistics_with_an_axis_of_temperatures(unbroken):
    pytest.importorskip("xarray")
    converted = unbroken.to_arviz()
    assert converted["sample_stats"]["log_ratio"].shape == (2, 400, 4)
    assert converted["sample_stats"]["inverse_temperature"].shape == (2, 400, 5)
    assert converted["sample_stats"].attrs["log_z"] == unbroken.attributes["log_z"]


def test_log_density_is_that_of_the_draw(unbroken):
    lp = [NORMAL.log_density(q) for q in unbroken.draws[0, :50]]
    np.testing.assert_allclose(unbroken.sample_stats["lp"][0, :50], lp, rtol=1e-10, atol=1e-10)


@pytest.mark.sweep
def test_a_python_model_is_sampled_as_the_compiled_one():
    options = {"draws": 5, "tune": 20, "chains": 1, "random_seed": 3, **QUIET}
    of = [
        refhmc.Model(2, lambda q: -0.5 * (q @ q), lambda q: -q, name="normal", in_python=why)
        for why in ("", "for the comparison")
    ]
    kernel = Tempered(HMC(n_steps=3, metric=Identity()), rungs=2, learned_rungs=2)
    compiled, python = (refhmc.sample(model, kernel, **options) for model in of)
    np.testing.assert_allclose(python.draws, compiled.draws, rtol=1e-9)


# --------------------------------------------------------------------------------------------- warnings and errors


def test_too_few_rungs_are_warned_of():
    kernel = Tempered("nuts", rungs=2)
    result = refhmc.sample(two_modes(20), kernel, draws=200, tune=200, random_seed=2, **QUIET)
    assert any("Swaps of neighbouring temperatures are rejected" in text for text in result.warnings)
    assert any("Fewer than 10 round trips" in text for text in result.warnings)


def test_warnings_of_disagreeing_chains_advise_more_rungs():
    """With one rung, each chain keeps the mode of its start."""
    kernel = Tempered("nuts", rungs=1, learned_rungs=0)
    starts = [np.array([side] + [0.0] * 9) for side in (-5.0, 5.0)]
    result = refhmc.sample(
        two_modes(10), kernel, draws=200, tune=200, chains=2, initvals=starts, random_seed=2, **QUIET
    )
    apart = [text for text in result.warnings if "regions that are far apart" in text]
    assert len(apart) == 1
    assert "take more rungs" in apart[0]
    assert "Tempered" not in apart[0]
    assert any("more draws or more rungs." in text for text in result.warnings if "R-hat" in text)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rungs": 0}, ValueError, "rungs must be"),
        ({"rungs": 2.5}, ValueError, "rungs must be"),
        ({"reference_scale": 0.0}, ValueError, "reference_scale must be positive"),
        ({"reference_mean": np.inf}, ValueError, "reference_mean must be a finite number"),
        ({"learned_rungs": -1}, ValueError, "learned_rungs must be a whole number of at least 0"),
        ({"kernel": "nut"}, ValueError, "kernel must be"),
        ({"kernel": refhmc.DHMC()}, TypeError, "must follow the gradient"),
        ({"kernel": refhmc.SGLD(step_size=0.1)}, TypeError, "must follow the gradient"),
        ({"kernel": refhmc.NUTS}, TypeError, "Give an object"),
        ({"kernel": HMC(metric=SoftAbs(1e6))}, TypeError, "must have a metric that does not depend on the position"),
        ({"kernel": HMC(metric=refhmc.metrics.Hierarchical())}, TypeError, "must have a metric that does not depend"),
    ],
)
def test_invalid_options_are_rejected(options, error, text):
    with pytest.raises(error, match=text):
        Tempered(**{"kernel": "nuts", **options})


def test_invalid_combinations_are_rejected():
    with pytest.raises(ValueError, match="reference_mean must be a number or have shape"):
        refhmc.sample(NORMAL, Tempered("nuts", reference_mean=[0.0, 1.0, 2.0]), **QUIET)
    with pytest.raises(ValueError, match="warmup must be None"):
        refhmc.sample(NORMAL, Tempered("nuts"), warmup=refhmc.sample(NORMAL, draws=10, tune=10, **QUIET), **QUIET)
    with pytest.raises(ValueError, match="got one of Tempered"):
        refhmc.sample(NORMAL, warmup=refhmc.sample(NORMAL, KERNEL, draws=10, tune=10, **QUIET), **QUIET)
    with pytest.raises(TypeError, match="backend='arrays'"):
        refhmc.sample(NORMAL, Tempered("nuts"), backend="arrays", **QUIET)
    with pytest.raises(TypeError, match="several blocks"):
        refhmc.transition(NORMAL, Tempered("nuts"), [0.0, 0.0], rng=np.random.default_rng(1))


def test_a_kernel_is_described_as_json_and_back():
    kernel = Tempered("hmc", rungs=3, reference_scale=[1.0, 2.0])
    text = kernel_as_json(kernel)
    assert kernel_as_json(kernel_from_json(text)) == text
    assert type(kernel.kernel) is HMC
    assert type(Tempered("nuts").kernel) is NUTS
