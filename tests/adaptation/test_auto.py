"""The default metric of HMC and NUTS, a result as the start of a warm-up, and Stan's warm-up by name."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import scipy.linalg
import threadpoolctl

import refhmc
from refhmc.adaptation.adapted import adapted_of, as_stan
from refhmc.adaptation.fisher_divergence import Learned
from refhmc.adaptation.from_pairs import cholesky_factor, put
from refhmc.adaptation.windows import growing_windows
from refhmc.core.arviz import read_tree
from refhmc.core.sample_stats import N_STATS, STATS
from refhmc.integrators import ExplicitTao, Leapfrog, Yoshida
from refhmc.metrics import Dense, Diagonal, Identity, LowRank, SoftAbs, Tridiagonal
from refhmc.sampling.chains.chain import Chain, make_plan
from tests.helpers.low_rank_metrics import low_rank_metric
from tests.helpers.sweeps import swept

QUIET = {"progressbar": False, "raw": True}


def years(n: int = 71):
    """A straight line on years that are not centred: intercept and slope have the correlation -0.99995."""
    t = 1950.0 + np.arange(n)
    y = 3 + 0.02 * (t - 1985) + 0.3 * np.random.default_rng(0).normal(size=n)
    return refhmc.models.LinearRegression(np.stack([np.ones(n), t], axis=1), y)


def covariance(d: int, condition: float = 1e6) -> np.ndarray:
    Q = np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0]
    return Q * np.geomspace(condition**-0.5, condition**0.5, d) @ Q.T


def gaussian(d: int, condition: float = 1e6):
    return refhmc.models.Gaussian(np.zeros(d), covariance(d, condition))


def warmed(model, kernel, tune: int, seed: int = 1):
    """The block after warm-up."""
    chain = Chain(model, make_plan(model, kernel, tune), np.random.default_rng(seed))
    chain.start(np.full(model.dim, 0.5))
    chain.run(np.zeros((tune, model.dim)), np.zeros((tune, N_STATS)))
    return chain.blocks[0]


@pytest.mark.parametrize("tune", [*range(20, 60), 99, 100, 150, 333, 1000, 5000])
def test_the_windows_grow(tune):
    *slow, (last, start, stop) = growing_windows(tune)
    assert (last, stop) == ("fast", tune)
    assert start == slow[-1][2]
    ends = [end for _, _, end in slow]
    assert ends == sorted(set(ends))
    assert all(kind == "slow" and begin == end // 2 for kind, begin, end in slow)
    assert all(b >= 1.25 * a for a, b in itertools.pairwise(ends))


def test_word_and_none_are_the_same():
    assert refhmc.NUTS(metric="auto") == refhmc.NUTS()
    assert refhmc.HMC(metric="auto", n_steps=3) == refhmc.HMC(n_steps=3)
    with pytest.raises(ValueError, match=r"metric must be.* auto, .*diagonal, .*'diag'"):
        refhmc.NUTS(metric="diag")


@pytest.mark.parametrize("d", [2, 10, 40])
def test_a_normal_is_learned(d):
    """The metric of a chain is the covariance, up to the cost of its directions (condition 10^6 before): every half of
    the last window has more draws than dimensions, so that the rule is exact whatever the draws.
    """
    model = gaussian(d)
    for metric in (LowRank(), Dense(learn_from="draws and gradients")):
        block = warmed(model, refhmc.NUTS(metric=metric), 400)
        M_inverse = adapted_of(block).metric.inverse_mass(d)
        e = scipy.linalg.eigvalsh(covariance(d), M_inverse if M_inverse.ndim == 2 else np.diag(M_inverse))
        assert e[-1] / e[0] < (1.5 if metric.is_dense else 8)


def test_directions_of_a_hierarchical_normal_are_found_where_trajectories_are_short():
    """A common mean and 85 observed ones, with a condition of 6 after scaling; trajectories have 7 steps with any metric.

    Half of the last window has more draws than dimensions, so that the rule is exact up to the scales. The condition was 1.034
    to 1.053 with twelve seeds.
    """
    precision = np.diag(np.append(85.01, np.full(85, 2.0)))
    precision[0, 1:] = precision[1:, 0] = -1.0
    model = refhmc.models.Gaussian(np.zeros(86), np.linalg.inv(precision))
    for seed in (1, 2):
        metric = adapted_of(warmed(model, refhmc.NUTS(), 1000, seed)).metric
        e = scipy.linalg.eigvalsh(np.linalg.inv(precision), metric.inverse_mass(86))
        assert e[-1] / e[0] < 1.5


@pytest.mark.parametrize("k", [0, 2, 6])
def test_the_factor_of_a_dense_metric(k):
    """Lower, with a positive diagonal, of S (I + U' (Lambda - I) U) S computed directly, whatever the scales."""
    rng = np.random.default_rng(k)
    U, eigenvalues = np.linalg.qr(rng.normal(size=(6, 6)))[0][:k], np.geomspace(1e-2, 50, k)
    for scales in (np.ones(6), np.geomspace(1e-12, 1e12, 6)):
        L = cholesky_factor(Learned(scales**2, U, eigenvalues, 1.0, 1.0))
        wanted = np.linalg.cholesky(np.eye(6) + (U.T * (eigenvalues - 1)) @ U)
        np.testing.assert_allclose(L / scales[:, None], wanted, atol=1e-13)
        assert np.array_equal(L, np.tril(L))


@pytest.mark.parametrize(("e", "seed"), [(1e-6, 1), (1e-8, 2), (1e-8, 3), (1e-9, 3)])
def test_a_dense_metric_of_a_normal_that_is_nearly_flat(e, seed):
    """Variances 1 and e^2 across the axes.

    The momenta L^-T z have the energy z'z / 2 by M^-1, since otherwise the draws would have another distribution.
    """
    D = np.array([[1 / e, 1 / e], [1, -1]]) / 2**0.5
    model = refhmc.Model(
        2, lambda q, D: -0.5 * np.sum((D @ q) ** 2), lambda q, D: -D.T @ (D @ q), data=D, name="nearly flat"
    )
    block = warmed(model, refhmc.NUTS(metric=Dense(learn_from="draws and gradients")), 300, seed)
    M_inverse, L = block.mats
    half = scipy.linalg.solve_triangular(L, M_inverse, lower=True)
    law = scipy.linalg.solve_triangular(L, half.T, lower=True)
    assert np.abs(law - np.eye(2)).max() < 1e-3
    sizes = np.linalg.svd(D @ L, compute_uv=False)  # 1 and 1, but for what M^-1 cannot hold
    np.testing.assert_allclose(sizes, [max(1.0, 1e-6 / e), 1.0], rtol=1e-2)


def test_a_dense_metric_that_is_no_number_is_not_taken():
    block = warmed(gaussian(3), refhmc.NUTS(metric=Dense(learn_from="draws and gradients")), 100)
    before = block.mats.copy()
    for variances in (np.array([1.0, np.inf, 1.0]), np.array([1.0, 0.0, 1.0]), np.array([1.0, np.nan, 1.0])):
        with np.errstate(all="ignore"):
            put(block, Learned(variances, np.eye(3), np.ones(3), 1.0, 1.0))
        assert np.array_equal(block.mats, before)


@pytest.mark.parametrize(
    "metric", [LowRank(), Diagonal(learn_from="draws and gradients"), Dense(learn_from="draws and gradients")]
)
@pytest.mark.parametrize("sd", [(1e-12, 1.0), (1.0, 1e12), (1e-12, 1.0, 1e12), (1e-12,)])
def test_scales_far_from_one_are_learned(metric, sd):
    """The 576 standard deviations of 12 seeds are within 22 % of the exact ones, with a standard deviation of 7.4 %.

    50 % are 6.8 of those, so that the rate of a false alarm is below 1e-8 for all 46. No seed needs more than 4 steps.
    """
    model = normal_of(sd)
    for initvals in (np.array(sd), None):
        options = {"tune": 600, "draws": 200, "chains": 1, "initvals": initvals, "preflight": False, **QUIET}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)  # one chain
            result = refhmc.sample(model, refhmc.NUTS(metric=metric), random_seed=1, **options)
        assert result.sample_stats["n_steps"].mean() < 8
        np.testing.assert_allclose(result.draws[0].std(axis=0) / sd, 1.0, atol=0.5)


def test_a_dense_metric_of_such_scales_is_taken_over_and_given():
    model, kernel = normal_of((1e-12, 1.0, 1e12)), refhmc.NUTS(metric=Dense(learn_from="draws and gradients"))
    options = {"chains": 4, "initvals": [1e-12, 1.0, 1e12], "preflight": False, "random_seed": 1, **QUIET}
    first = refhmc.sample(model, kernel, tune=300, draws=100, **options)
    for same in (kernel, refhmc.NUTS(metric=first.adapted[0].metric)):
        again = refhmc.sample(model, same, warmup=first, tune=0, draws=100, **options)
        assert again.sample_stats["n_steps"].mean() < 8


def test_in_one_dimension_hmc_learns_the_scale_and_keeps_its_length():
    model, options = normal_of((1e-12,)), {"tune": 200, "draws": 50, "chains": 2, "initvals": [1e-12], **QUIET}
    result = refhmc.sample(model, refhmc.HMC(), random_seed=1, preflight=False, **options)
    assert result.sample_stats["n_steps"].mean() < 8


def normal_of(sd):
    """Independent coordinates. (The built-in model has a matrix, which overflows.)"""
    scales = np.array(sd)
    return refhmc.Model(
        len(scales), lambda q, s: -0.5 * np.sum((q / s) ** 2), lambda q, s: -q / s**2, data=scales, name="normal"
    )


@pytest.mark.sweep
def test_where_a_diagonal_needs_long_trajectories_it_is_left():
    """Steps per draw after warm-up, on the same seed: a count, not a time."""
    model = years()
    auto = refhmc.sample(model, random_seed=1, **QUIET)
    stan = refhmc.sample(model, random_seed=1, warmup="stan", draws=200, max_seconds=60, **QUIET)
    assert auto.sample_stats["n_steps"].mean() < 6
    assert stan.sample_stats["n_steps"].mean() > 50
    assert auto.warnings == []
    assert all(len(each.metric.eigenvalues) >= 1 for each in auto.adapted)


def test_independent_coordinates_stay_diagonal():
    """Trajectories have 7 steps, too few for a search. R-hat exceeds 1.01 by chance with a probability below 1e-10.

    That is extrapolated from its rates with 1,100 and 1,500 effective draws, 3e-3 and 2e-4 per coordinate.
    """
    result = refhmc.sample(refhmc.models.by_name()["normal-100"](), random_seed=1, draws=4000, **QUIET)
    assert all(len(each.metric.eigenvalues) == 0 for each in result.adapted)
    assert result.warnings == []
    assert "diagonal" in result.attributes["adaptation"]


def test_chains_do_not_depend_on_their_number_or_threads():
    """Learning is between transitions, in each chain's own thread."""
    model, options = gaussian(20), {"random_seed": 3, "draws": 30, "tune": 120, **QUIET}
    with pytest.warns(refhmc.errors.SamplingWarning):
        one, four = refhmc.sample(model, chains=1, **options), refhmc.sample(model, chains=4, cores=2, **options)
    assert np.array_equal(one.draws[0], four.draws[0])


def test_after_warm_up_nothing_moves():
    block = warmed(gaussian(5), refhmc.NUTS(), 100)
    before = block.vecs.copy()
    chain = Chain(gaussian(5), make_plan(gaussian(5), refhmc.NUTS(), 100), np.random.default_rng(1))
    chain.start(np.full(5, 0.5))
    stats = np.zeros((300, N_STATS))
    chain.run(np.zeros((300, 5)), stats)
    assert np.array_equal(chain.blocks[0].vecs, before)
    steps = stats.view(STATS)["step_size"][100:]
    assert np.all(steps == steps[0])


@pytest.mark.parametrize("tune", [20, 50, 83, 84])
def test_the_limit_of_early_trees_ends_with_warm_up(tune):
    """The step is so small that every tree grows to its limit: that of warm-up until a metric is learned, then the user's."""
    kernel, options = refhmc.NUTS(step_size=0.002, max_treedepth=11), {"tune": tune, "draws": 5, "chains": 1, **QUIET}
    with pytest.warns(refhmc.errors.SamplingWarning):
        result = refhmc.sample(
            refhmc.models.Gaussian(0.0, np.eye(3)), kernel, random_seed=1, save_warmup=True, **options
        )
    assert result.groups["warmup_sample_stats"]["tree_depth"][0, :10].max() == 6
    assert result.sample_stats["tree_depth"].max() > 8


# ------------------------------------------------------------------------------------------- begun from a result


def learned_model():
    return refhmc.models.by_name()["kidscore"]()


@pytest.fixture(scope="module")
def learned():
    return refhmc.sample(learned_model(), random_seed=1, **QUIET)


def test_a_result_is_taken_as_it_is(learned):
    """With ``tune=0``: the draws are those of a kernel that is given the step and the metric, from where the result ended."""
    model, first = learned_model(), learned.adapted[0]
    again = refhmc.sample(model, warmup=learned, tune=0, draws=200, random_seed=2, **QUIET)
    kernel = refhmc.NUTS(step_size=first.step_size, metric=first.metric)
    given = refhmc.sample(model, kernel, tune=0, draws=200, initvals=learned.draws[0, -1], random_seed=2, **QUIET)
    assert np.array_equal(again.draws[0], given.draws[0])
    assert [each.step_size for each in again.adapted] == [each.step_size for each in learned.adapted]
    assert not np.array_equal(again.draws[1], given.draws[1])  # chain 1 has its own


@pytest.mark.sweep
def test_the_group_in_arviz_holds_the_same(learned, tmp_path):
    model = learned_model()
    tree = learned.to_arviz()
    options = {"tune": 0, "draws": 100, "random_seed": 2, **QUIET}
    wanted = refhmc.sample(model, warmup=learned, **options).draws
    assert np.array_equal(refhmc.sample(model, warmup=tree, **options).draws, wanted)
    assert tree["adaptation"].attrs["metric"] == "low-rank"
    assert tree["adaptation"]["history"].sizes["quantity"] == 6
    tree.to_netcdf(tmp_path / "result.nc")


def test_a_warm_up_that_begins_with_a_metric_keeps_it_for_its_first_draws(learned):
    model = learned_model()
    again = refhmc.sample(model, warmup=learned, tune=200, draws=100, random_seed=2, save_warmup=True, **QUIET)
    assert np.all(again.adapted[0].history[:, 0] > 75)
    early = again.groups["warmup_sample_stats"]["n_steps"][:, :40]
    assert early.mean() < 10  # a kernel that has learned nothing needs more than 30


@pytest.mark.parametrize("tune", [0, 30, 100])
def test_a_warm_up_that_begins_with_a_metric_has_no_limit_of_early_trees(learned, tune):
    model, kernel = learned_model(), refhmc.NUTS(step_size=0.002)
    options = {"tune": tune, "draws": 5, "chains": 1, "save_warmup": True, "random_seed": 2, **QUIET}
    with pytest.warns(refhmc.errors.SamplingWarning):
        again = refhmc.sample(model, kernel, warmup=learned, **options)
    first = again.groups["warmup_sample_stats"] if tune else again.sample_stats
    assert first["tree_depth"][0, :5].max() > 8
    assert again.sample_stats["tree_depth"].max() > 8


def test_few_iterations_keep_a_step_size_that_is_given(learned):
    """The first iteration is made with it, and the last is near it.

    From one iteration, dual averaging would otherwise make 1/4 to 3/2 of ten times that. After 5 iterations, the log ratio has
    a standard deviation of 0.053 about -0.048 with 8 seeds, 6.7 of which are inside the bound: false-alarm rate below 1e-9.
    """
    model = learned_model()
    for tune in (1, 3, 5):
        options = {"tune": tune, "draws": 20, "random_seed": 2, "save_warmup": True, **QUIET}
        again = refhmc.sample(model, warmup=learned, **options)
        given = np.array([each.step_size for each in learned.adapted])
        assert np.array_equal(again.groups["warmup_sample_stats"]["step_size"][:, 0], given)
        ratios = np.array([each.step_size for each in again.adapted]) / given
        assert np.all(np.abs(np.log(ratios)) < np.log(1.5))
        assert not np.any(ratios == 1)


@pytest.fixture(scope="module")
def riemannian():
    """HMC on SoftAbs, which learns a length."""
    kernel = refhmc.HMC(metric=SoftAbs(1e6))
    return refhmc.sample(refhmc.models.Funnel(), kernel, tune=150, draws=20, chains=2, random_seed=1, **QUIET)


def test_what_depends_on_the_position_is_taken_over_from_any_kind_of_result(riemannian, tmp_path):
    """Raw, ArviZ's, from a file, by one chain, and each chain in its turn: step size, length, jitter. With ``tune=0`` the draws
    are those of a kernel with these values.
    """
    model, tree = refhmc.models.Funnel(), riemannian.to_arviz()
    tree.to_netcdf(tmp_path / "result.nc")
    options = {"tune": 0, "draws": 20, "chains": 3, "random_seed": 2, **QUIET}

    def taken(warmup):
        again = refhmc.sample(model, refhmc.HMC(metric=SoftAbs(1e6)), warmup=warmup, **options)
        return again, [(each.step_size, each.metric, each.length, each.jitter) for each in again.adapted]

    raw, of_chains = taken(riemannian)
    first, second = ((each.step_size, SoftAbs(1e6), each.length, 0.5) for each in riemannian.adapted)
    assert of_chains == [first, second, first]
    assert raw.attributes["trajectory_length"] == [first[2], second[2], first[2]]
    for same in (tree, read_tree(tmp_path / "result.nc")):
        again, learned = taken(same)
        assert learned == of_chains
        assert np.array_equal(again.draws, raw.draws)
    assert taken(tree.sel(chain=[1]))[1] == [second] * 3
    kernel = refhmc.HMC(step_size=second[0], trajectory_length=second[2], length_jitter=0.5, metric=SoftAbs(1e6))
    given = refhmc.sample(model, kernel, initvals=riemannian.draws[[0, 1, 0], -1], **options)
    assert np.array_equal(given.draws[1], raw.draws[1])


def test_learning_a_length_goes_on_from_the_one_that_is_given(riemannian):
    model, first = refhmc.models.Funnel(), riemannian.adapted[0]
    options = {"draws": 5, "chains": 1, "random_seed": 2, "save_warmup": True, **QUIET}
    short = refhmc.sample(model, refhmc.HMC(metric=SoftAbs(1e6)), warmup=riemannian, tune=20, **options)
    assert (short.adapted[0].length, short.adapted[0].jitter) == (first.length, first.jitter)
    long = refhmc.sample(model, refhmc.HMC(metric=SoftAbs(1e6)), warmup=riemannian, tune=60, **options)
    lengths = long.groups["warmup_sample_stats"]["int_time"][0, :5]
    assert np.all(np.abs(lengths / first.length - 1) < 0.6)  # the jitter, and a step
    assert long.adapted[0].length != first.length


def test_what_the_kernel_says_of_the_length_stays(riemannian):
    model, options = refhmc.models.Funnel(), {"tune": 0, "draws": 5, "chains": 1, "random_seed": 2, **QUIET}
    kernel = refhmc.HMC(metric=SoftAbs(1e6), length_jitter=0.1)
    own = refhmc.sample(model, kernel, warmup=riemannian, **options).adapted[0]
    assert (own.length, own.jitter) == (riemannian.adapted[0].length, 0.1)
    fixed = refhmc.sample(model, refhmc.HMC(metric=SoftAbs(1e6), n_steps=3), warmup=riemannian, **options)
    assert np.all(fixed.sample_stats["n_steps"] == 3)
    assert fixed.adapted[0].length is None


@pytest.mark.parametrize("metric", [Identity(), Diagonal(np.ones(3)), Tridiagonal(np.ones(3), np.full(2, 0.1))])
def test_a_metric_that_is_given_is_the_same_in_a_file(metric, tmp_path):
    model, kernel = gaussian(3, 4.0), refhmc.NUTS(metric=metric)
    options = {"tune": 30, "draws": 10, "chains": 2, "random_seed": 2, **QUIET}
    result = refhmc.sample(model, kernel, **options)
    result.to_arviz().to_netcdf(tmp_path / "result.nc")
    tree = read_tree(tmp_path / "result.nc")
    assert tree["adaptation"].attrs["metric"] == metric.name
    raw, stored = (refhmc.sample(model, kernel, warmup=each, **{**options, "tune": 0}) for each in (result, tree))
    assert np.array_equal(raw.draws, stored.draws)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (refhmc.NUTS(metric=Identity()), "Identity; got LowRank"),
        (refhmc.NUTS(metric=Diagonal(1.0)), "Diagonal; got LowRank"),
        (refhmc.NUTS(metric=Dense(np.eye(5))), "Dense; got LowRank"),
        (refhmc.NUTS(metric=LowRank(np.ones(5))), "LowRank; got LowRank with other values"),
        (refhmc.HMC(metric=SoftAbs(1e6), trajectory_length=1.0), "SoftAbs; got LowRank"),
    ],
)
def test_a_step_size_of_another_metric_is_refused(learned, kernel, words):
    with pytest.raises(ValueError, match=f"warmup must have the metric.*{words}.*[sS]tep size"):
        refhmc.sample(learned_model(), kernel, warmup=learned, **QUIET)


@pytest.mark.parametrize(
    ("integrator", "name"), [(Yoshida(Leapfrog()), "Yoshida of Leapfrog"), (ExplicitTao(1.0), "ExplicitTao")]
)
def test_a_step_size_of_another_integrator_is_refused(learned, integrator, name, tmp_path):
    model, metric = learned_model(), learned.adapted[0].metric
    learned.to_arviz().to_netcdf(tmp_path / "result.nc")
    for warmup in (learned, read_tree(tmp_path / "result.nc")):
        with pytest.raises(ValueError, match=f"warmup must have the integrator.*{name}; got Leapfrog"):
            refhmc.sample(
                model, refhmc.HMC(metric=metric, integrator=integrator, trajectory_length=1.0), warmup=warmup, **QUIET
            )
    kernel = refhmc.HMC(metric=metric, integrator=integrator, trajectory_length=1.0, step_size=0.1)
    result = refhmc.sample(model, kernel, warmup=learned, tune=0, draws=5, **QUIET)
    assert np.all(result.sample_stats["step_size"] == 0.1)


def test_a_step_size_goes_with_its_metric_however_that_is_written(learned):
    """All chains take the metric of one, from which others differ by chance; it may be given as a dense one.

    Any metric is accepted with the kernel's own step size.
    """
    model, options, metric = (
        learned_model(),
        {"tune": 0, "draws": 5, "random_seed": 2, **QUIET},
        learned.adapted[0].metric,
    )
    dense = Dense(metric.inverse_mass(5) if metric.inverse_mass(5).ndim == 2 else np.diag(metric.inverse_mass(5)))
    for kernel in (refhmc.NUTS(metric=metric), refhmc.NUTS(metric=dense)):
        again = refhmc.sample(model, kernel, warmup=learned, chains=1, **options)
        assert again.adapted[0].step_size == learned.adapted[0].step_size
    own = refhmc.sample(model, refhmc.NUTS(metric=Identity(), step_size=0.01), warmup=learned, **options)
    assert np.all(own.sample_stats["step_size"] == 0.01)


def test_another_softabs_is_refused(riemannian):
    model = refhmc.models.Funnel()
    with pytest.raises(ValueError, match="warmup.*metric.*SoftAbs; got SoftAbs with other values"):
        refhmc.sample(model, refhmc.HMC(metric=SoftAbs(2.0)), warmup=riemannian, **QUIET)
    with pytest.raises(ValueError, match="warmup.*metric.*learns, LowRank; got SoftAbs"):
        refhmc.sample(model, refhmc.NUTS(), warmup=riemannian, **QUIET)


def test_a_result_without_draws_begins_where_it_is_told():
    model, options = gaussian(3, 4.0), {"chains": 2, "random_seed": 2, **QUIET}
    empty = refhmc.sample(model, tune=30, draws=0, **options)
    for warmup in (empty, empty.to_arviz()):
        with pytest.raises(ValueError, match="warmup must have draws.*initvals"):
            refhmc.sample(model, warmup=warmup, **options)
        again = refhmc.sample(model, warmup=warmup, tune=0, draws=5, initvals=np.zeros(3), **options)
        assert again.adapted[0].step_size == empty.adapted[0].step_size


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    ("kernel", "options", "words"),
    [
        (None, {"max_seconds": 0.2, "tune": 10**7}, "warm-up has ended"),
        swept(
            refhmc.Gibbs({(0, 1): refhmc.NUTS(), (2,): refhmc.NUTS()}),
            {"tune": 20},
            "Gibbs",
        ),
        (None, {"tune": 20, "backend": "arrays"}, "backend='arrays'"),
    ],
)
def test_why_a_result_is_not_taken(kernel, options, words, raw):
    model, common = gaussian(3, 4.0), {"draws": 5, "chains": 2, "random_seed": 2, "progressbar": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)
        result = refhmc.sample(model, kernel, raw=raw, **{**common, **options})
    with pytest.raises(ValueError, match=f"^warmup must.*{words}"):
        refhmc.sample(model, warmup=result, **common)


def test_what_cannot_be_taken_over_is_said(learned):
    model = learned_model()
    for wrong in (3, "Stan", refhmc.models.Banana(), {}):
        with pytest.raises(ValueError, match='warmup must be None, "stan"'):
            refhmc.sample(model, warmup=wrong, **QUIET)
    with pytest.raises(ValueError, match="warmup.*metric.*learns, Dense; got LowRank"):
        refhmc.sample(model, refhmc.NUTS(metric=Dense()), warmup=learned, **QUIET)
    for given in ({}, {"initvals": np.zeros(2)}):
        with pytest.raises(refhmc.errors.ShapeError, match="warmup must.*dimension 2.*dimension 5"):
            refhmc.sample(refhmc.models.Banana(), warmup=learned, **given, **QUIET)
    with pytest.raises(ValueError, match="warmup.*backend.*numba"):
        refhmc.sample(model, warmup=learned, backend="arrays", **QUIET)


# ----------------------------------------------------------------------------------------------------- Stan's warm-up


@pytest.mark.parametrize("metric", [None, Diagonal(), Dense(), Identity(), LowRank()])
def test_stans_warm_up_by_name(metric):
    """It uses the metric that learns as Stan does; one that learns nothing, or from gradients, stays."""
    named = {Diagonal: Diagonal(regularization="stan"), Dense: Dense(regularization="stan")}
    same = named.get(Diagonal if metric is None else type(metric), metric)
    model, options = refhmc.models.EightSchools(), {"random_seed": 4, "draws": 100, "tune": 200, **QUIET}
    one = refhmc.sample(model, refhmc.NUTS(metric=metric), warmup="stan", **options)
    two = refhmc.sample(model, refhmc.NUTS(metric=same), **options)
    assert np.array_equal(one.draws, two.draws)


def test_stans_warm_up_in_blocks_and_for_jumps():
    gibbs = as_stan(refhmc.Gibbs({"v": refhmc.NUTS(), "x": refhmc.HMC(n_steps=2, metric=Dense())}))
    assert [each.metric.regularization for each in gibbs.blocks.values()] == ["stan"] * 2
    assert as_stan(refhmc.DHMC()).metric.regularization == "stan"
    from_gradients = refhmc.NUTS(metric=Dense(learn_from="draws and gradients"))
    assert as_stan(from_gradients) == from_gradients


# ------------------------------------------------------------------------------------------------- where it cannot be


def test_in_a_block_the_metric_is_diagonal():
    """A conditional's gradient changes with the other blocks."""
    model = refhmc.models.Funnel(3)
    plan = make_plan(model, refhmc.Gibbs({"v": refhmc.NUTS(), "x": refhmc.HMC(n_steps=3)}), 100)
    assert all(isinstance(block.dynamics.metric, Diagonal) for block in plan.blocks)
    for metric in (LowRank(), Dense(learn_from="draws and gradients")):
        with pytest.raises(ValueError, match=f"metric of block 'x'.*gradients.*got {type(metric).__name__}"):
            make_plan(model, refhmc.Gibbs({"v": refhmc.NUTS(), "x": refhmc.HMC(n_steps=3, metric=metric)}), 100)


@pytest.mark.sweep
def test_many_chains_at_once_learn_a_diagonal():
    model, options = gaussian(3, 4.0), {"backend": "arrays", "draws": 120, "tune": 60, "random_seed": 1, **QUIET}
    auto = refhmc.sample(model, refhmc.NUTS(), **options)
    assert np.array_equal(auto.draws, refhmc.sample(model, refhmc.NUTS(metric=Diagonal()), **options).draws)
    with pytest.raises(ValueError, match="LowRank.*backend='numba'"):
        refhmc.sample(model, refhmc.NUTS(metric=LowRank()), **options)
    given = refhmc.sample(model, refhmc.NUTS(metric=low_rank_metric(3)), **options)
    assert given.draws.shape == (4, 120, 3)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        (
            (np.ones(3), np.eye(4)[:2], np.ones(2)),
            refhmc.errors.ShapeError,
            r"directions.*\(k, 3\) and \(k,\).*\(2, 4\)",
        ),
        ((np.ones(3), np.eye(3)[:2], np.ones(1)), refhmc.errors.ShapeError, r"eigenvalues.*\(2, 3\) and \(1,\)"),
        (
            (np.ones(3), np.ones((1, 3)), np.ones(1)),
            refhmc.errors.MetricError,
            "directions must be orthonormal.* 2",
        ),
        (
            (np.ones(3), np.eye(3)[:1], np.zeros(1)),
            refhmc.errors.MetricError,
            r"eigenvalues must.* 0\.0",
        ),
        ((np.ones(3), np.eye(3)[:1], np.full(1, np.nan)), refhmc.errors.MetricError, "eigenvalues must.* nan"),
        ((-np.ones(3), np.eye(3)[:1], np.ones(1)), refhmc.errors.MetricError, r"variances must.* -1\.0"),
        ((np.ones(3), "a", [2.0]), refhmc.errors.MetricError, "directions must.*'a'"),
        ((np.ones(3), np.eye(3)[:1], "b"), refhmc.errors.MetricError, "eigenvalues must.*'b'"),
        ((None, np.eye(3)[:1], np.ones(1)), ValueError, "variances, directions and eigenvalues"),
    ],
)
def test_values_that_cannot_be(values, error, words):
    with pytest.raises(error, match=words):
        refhmc.sample(gaussian(3), refhmc.NUTS(metric=LowRank(*values)), **QUIET)


def test_a_chain_has_one_thread_of_linear_algebra(monkeypatch):
    """Several threads wait for each other if cores are few or busy, and round differently."""
    from refhmc.adaptation import from_pairs

    seen, learn = [], from_pairs.least_divergence

    def noting(*arguments, **options):
        seen.append(max(library["num_threads"] for library in threadpoolctl.threadpool_info()))
        return learn(*arguments, **options)

    monkeypatch.setattr(from_pairs, "least_divergence", noting)
    with threadpoolctl.threadpool_limits(2):
        refhmc.sample(refhmc.models.by_name()["kidscore"](), tune=200, draws=10, random_seed=1, **QUIET)
    assert set(seen) == {1}
