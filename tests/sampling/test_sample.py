"""``refhmc.sample``: seeds, threads, progress, interruption, results."""

from __future__ import annotations

import concurrent.futures
import re
import warnings

import numpy as np
import pytest

import refhmc
from refhmc.errors import SamplingError, SamplingWarning
from refhmc.sampling.checks.arguments import default_tune
from refhmc.sampling.results.rectangle import largest_rectangle
from tests.helpers.kinds_of_chains import KINDS
from tests.helpers.models import FEW_CALLS
from tests.helpers.sweeps import representatives

SHORT = {"draws": 60, "tune": 100, "random_seed": 20261121}


def test_draws_do_not_depend_on_cores_chains_progress_or_executor(normal, sample, capfd):
    expected = sample(normal, chains=4, cores=1, **SHORT).draws
    assert np.array_equal(sample(normal, chains=4, cores=2, **SHORT).draws, expected)
    assert np.array_equal(sample(normal, chains=2, cores=2, **SHORT).draws, expected[:2])
    assert np.array_equal(sample(normal, chains=6, cores=3, **SHORT).draws[:4], expected)
    reports = []
    assert np.array_equal(sample(normal, progressbar=reports.append, **SHORT).draws, expected)
    assert np.array_equal(sample(normal, progressbar=True, **SHORT).draws, expected)
    assert np.array_equal(sample(normal, save_warmup=True, **SHORT).draws, expected)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert np.array_equal(sample(normal, executor=pool, **SHORT).draws, expected)
    assert reports[-1].finished
    assert list(reports[-1].draws_done) == [160] * 4
    assert "4 chains: 640/640 draws" in capfd.readouterr().err


@pytest.mark.parametrize("kind", representatives(KINDS, ["dhmc", "dhmc, all jump", "gibbs"]))
def test_draws_and_statistics_of_any_kernel_do_not_depend_on_cores_or_chains(kind, sample):
    model, kernel = KINDS[kind]()
    options = {"draws": 40, "tune": 60, "random_seed": 4}
    one, two = (sample(model, kernel, chains=3, cores=cores, **options) for cores in (1, 3))
    kept = sample(model, kernel, chains=2, save_warmup=True, **options)
    assert np.array_equal(one.draws, two.draws)
    assert np.array_equal(one.draws[:2], kept.draws)
    assert all(values.shape == (2, 60) for values in kept.groups["warmup_sample_stats"].values())
    for key, value in one.sample_stats.items():
        assert np.array_equal(value, two.sample_stats[key], equal_nan=True), key


def test_same_seed_same_draws_and_no_two_chains_share_one(sample):
    model = refhmc.models.Funnel(3)
    first = sample(model, refhmc.NUTS(), chains=6, **SHORT).draws
    assert np.array_equal(sample(model, refhmc.NUTS(), chains=6, **SHORT).draws, first)
    rows = first.reshape(-1, model.dim)
    moved = [tuple(row) for chain in first for row in np.unique(chain, axis=0)]
    assert len(set(moved)) == len(moved)
    assert len(np.unique(rows, axis=0)) == len(moved)
    other = sample(model, refhmc.NUTS(), chains=6, **{**SHORT, "random_seed": 20261122}).draws
    assert not np.intersect1d(other.ravel(), first.ravel()).size


def test_seeds_of_every_kind(normal, sample):
    few = {"draws": 5, "tune": 0, "chains": 2}
    first = sample(normal, **few)
    again = sample(normal, random_seed=first.attributes["entropy"], **few)
    assert np.array_equal(first.draws, again.draws)
    generator = np.random.default_rng(3)
    one, two = (sample(normal, random_seed=generator, **few).draws for _ in range(2))
    assert not np.array_equal(one, two)
    assert np.array_equal(one, sample(normal, random_seed=np.random.default_rng(3), **few).draws)
    sequence = [sample(normal, random_seed=s, **few).draws for s in ([1, 2], np.random.SeedSequence([1, 2]))]
    assert np.array_equal(*sequence)
    with pytest.raises(TypeError, match="RandomState"):
        sample(normal, random_seed=np.random.RandomState(1))
    with pytest.raises(ValueError, match="random_seed must .*got -1"):
        sample(normal, random_seed=-1)


def test_warm_up_is_kept_when_asked_for(sample):
    result = sample(refhmc.models.Funnel(2), refhmc.NUTS(), save_warmup=True, chains=2, **SHORT)
    shapes = {name: group["v"].shape for name, group in result.groups.items() if "v" in group}
    assert shapes == {"posterior": (2, 60), "warmup_posterior": (2, 100)}
    assert result.groups["warmup_sample_stats"]["lp"].shape == (2, 100)
    assert len(np.unique(result.groups["warmup_sample_stats"]["step_size"][0])) > 50
    assert len(np.unique(result.sample_stats["step_size"][0])) == 1


DIAGONAL, DENSE = refhmc.metrics.Diagonal(), refhmc.metrics.Dense(learn_from="draws and gradients")


@pytest.mark.parametrize(
    ("kernel", "learned", "tunes"),  # with 10, 501, 1,000, 1,600 and 100,000 coordinates
    [
        (refhmc.NUTS(), False, [1000, 1000, 1000, 1000, 1000]),
        (refhmc.HMC(), False, [1000, 1002, 2000, 1250, 1000]),
        (refhmc.MAMS(), False, [1000, 1002, 2000, 1250, 1000]),
        (refhmc.HMC(metric=DENSE), False, [1000, 1002, 2000, 1250, 1000]),
        (refhmc.HMC(metric=DIAGONAL), False, [1000, 1000, 1000, 1000, 1000]),
        (refhmc.MAMS(n_steps=3), False, [1000, 1000, 1000, 1000, 1000]),
        (refhmc.MAMS(), True, [1000, 1000, 1000, 1000, 1000]),
        (refhmc.Gibbs({"x": refhmc.HMC()}), False, [1000, 1000, 1000, 1000, 1000]),
    ],
)
def test_the_default_length_of_warm_up(kernel, learned, tunes):
    assert [default_tune(dim, kernel, learned) for dim in (10, 501, 1000, 1600, 100_000)] == tunes


def test_the_length_of_warm_up_is_the_default_or_as_given(sample):
    model = refhmc.models.Gaussian(np.zeros(501), np.eye(501))
    by_default = sample(model, "mams", draws=1, chains=1)
    assert by_default.attributes["tuning_steps"] == 1002
    assert sample(model, "mams", draws=1, chains=1, warmup=by_default).attributes["tuning_steps"] == 1000
    assert sample(model, "mams", draws=1, chains=1, tune=30).attributes["tuning_steps"] == 30
    arrays = {"draws": 1, "chains": 2, "backend": "arrays"}
    assert sample(refhmc.models.Gaussian(np.zeros(2), np.eye(2)), "hmc", **arrays).attributes["tuning_steps"] == 1000


def test_no_draws_give_an_empty_valid_result(normal, sample):
    result = sample(normal, draws=0, tune=30, chains=3)
    assert result.draws.shape == (3, 0, 2)
    assert result.posterior["a"].shape == (3, 0)
    assert result.sample_stats["diverging"].shape == (3, 0)


def test_a_keyboard_interrupt_gives_the_draws_so_far(normal, sample):
    def interrupt(report):
        if report.draws_done.min() > 200 and not report.finished and not told:
            told.append(True)
            raise KeyboardInterrupt

    told = []
    whole = {"tune": 100, "chains": 2, "cores": 2, "random_seed": 5}
    result = sample(normal, refhmc.HMC(n_steps=20), draws=3_000_000, progressbar=interrupt, **whole)
    assert result.interrupted
    assert result.attributes["stopped_by"] == "interrupt"
    per_chain = result.attributes["draws_per_chain"]
    assert all(0 < n < 3_000_000 for n in per_chain)
    kept, n = largest_rectangle(np.array(per_chain))
    assert result.attributes["chains"] == kept
    assert result.draws.shape == (len(kept), n, 2)
    few = min(*per_chain, 500)
    expected = sample(normal, refhmc.HMC(n_steps=20), draws=few, **whole).draws
    assert np.array_equal(result.draws[:, :few], expected[kept])
    for chain, draws in result.ragged.items():
        assert len(draws) == per_chain[chain]
        assert np.array_equal(draws[:few], expected[chain])


def test_a_time_limit_gives_the_draws_so_far(normal, sample):
    result = sample(normal, draws=5_000_000, tune=50, chains=2, cores=2, max_seconds=0.3)
    assert result.attributes["stopped_by"] == "time"
    assert 0 < result.draws.shape[1] < 5_000_000


def test_the_largest_rectangle_of_unequal_chains():
    assert largest_rectangle(np.array([10, 10, 10])) == ([0, 1, 2], 10)
    assert largest_rectangle(np.array([100, 3, 0])) == ([0], 100)
    assert largest_rectangle(np.array([100, 60, 0])) == ([0, 1], 60)
    assert largest_rectangle(np.array([0, 0])) == ([0, 1], 0)


@pytest.mark.parametrize("action", ["ignore", "error"])
def test_an_exception_of_the_model_carries_the_draws(action, sample):
    """Also if warnings are errors.

    Chain 1 begins four standard deviations below a position that it reaches later: false alarms below 1e-10.
    """

    def log_density(q, data):
        if q[0] > 50.1:
            raise RuntimeError("my own bug")
        return -0.5 * float((abs(q[0]) - 50.0) ** 2 + q[1] ** 2)

    def gradient(q, data):
        return -np.array([q[0] - np.copysign(50.0, q[0]), q[1]])

    with pytest.warns(refhmc.errors.PythonModelWarning):
        model = refhmc.Model(2, log_density, gradient, data={"python": True})
        kernel = refhmc.HMC(step_size=0.5, n_steps=1)
        starts = [[-50.0, 0.2], [46.0, 0.2]]  # chain 0 would have to climb to 50 standard deviations
        model.log_density(np.zeros(2))
        warnings.simplefilter(action, SamplingWarning)
        with pytest.raises(
            SamplingError, match=r"[Cc]hain 1 stopped at iteration \d+.* RuntimeError: my own bug"
        ) as caught:
            sample(model, kernel, draws=400, tune=0, chains=2, cores=2, random_seed=3, initvals=starts)
    partial = caught.value.partial
    assert partial.attributes["failed_chains"] == [1]
    assert len(partial.ragged[0]) == 400
    assert 0 < len(partial.ragged[1]) < 400
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_healthy_run_warns_of_nothing(normal, sample):
    # R-hat exceeds 1.01 by chance in 3e-3 of coordinates with 1,100 effective draws and in 2e-4 with 1,500. Extrapolated to the
    # 5,000 or more of this run, false alarms have a rate below 1e-10.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = sample(normal, draws=4000, random_seed=1)
    assert result.warnings == []


def test_warnings_report_counts_place_and_advice(sample):
    """Two chains start in the neck of a funnel, where a step is unstable, so that they diverge and never move.

    A transition that starts there does not diverge with a probability below 1e-9.
    """
    starts = np.zeros((4, 11))
    starts[:, 0] = [-6.0, -6.0, 6.0, 6.0]
    with pytest.warns(SamplingWarning) as caught:
        result = sample(
            refhmc.models.Funnel(10), refhmc.NUTS(step_size=1.0), draws=250, tune=0, initvals=starts, random_seed=3
        )
    texts = [str(w.message) for w in caught]
    assert texts == result.warnings
    diverged = int(result.sample_stats["diverging"].sum())
    assert 500 <= diverged < 1000
    first = next(t for t in texts if "diverged" in t)
    assert first.startswith(
        f"{diverged} of 1000 transitions ({100 * diverged / 1000:.2g} %) diverged after warm-up (chain"
    )
    assert re.search(r"near (v|x\[\d\]) = ", first)  # the coordinate that differs most from all draws
    assert "step_size" in first
    assert any("R-hat" in t and "1.01" in t for t in texts)


def test_the_remaining_warnings(normal, sample):
    with pytest.warns(SamplingWarning) as caught:
        sample(normal, refhmc.NUTS(step_size=1e-4, max_treedepth=3), draws=150, tune=0, chains=2, random_seed=1)
        sample(normal, refhmc.HMC(step_size=50.0, n_steps=1), draws=150, tune=0, chains=2, random_seed=1)
        sample(normal, draws=20, random_seed=1)
    texts = "\n".join(str(w.message) for w in caught)
    for words in (
        "300 of 300 trajectories (chain 0: 150, chain 1: 150) reached max_treedepth",
        "effective sample size is below 100 per chain",
        "Chain 0 is stuck: it stood still for all of its 150 draws",
        "Only 20 draws per chain",
    ):
        assert words in texts


def test_a_flat_density_is_reported(sample):
    flat = refhmc.Model(1, lambda q, data: 0.0, lambda q, data: 0.0 * q, name="flat", in_python=FEW_CALLS)
    with pytest.warns(SamplingWarning, match=r"step size.* 2 of 2 chains \(\[0, 1\]\)"):
        result = sample(flat, refhmc.HMC(n_steps=2), draws=10, tune=10, chains=2, random_seed=1)
    assert result.attributes["step_size_searches_failed"] == 2


def test_result_attributes_tell_how_the_run_was_made(normal, sample):
    result = sample(normal, refhmc.NUTS(metric=refhmc.metrics.Diagonal([1.0, 2.0])), **SHORT)
    attributes = result.attributes
    assert attributes["refhmc_version"] == refhmc.__version__
    assert '"variances": [1.0, 2.0]' in attributes["kernel"]
    assert attributes["entropy"] == SHORT["random_seed"]
    assert attributes["model"] == "normal"
    assert len(attributes["model_fingerprint"]) == 64
    assert attributes["n_gradient_evaluations"] >= result.sample_stats["n_steps"].sum()
    assert attributes["sampling_time"] > 0
    other = refhmc.models.Funnel(2).fingerprint()
    assert other != refhmc.models.Funnel(3).fingerprint()
    assert other == refhmc.models.Funnel(2).fingerprint()
