"""Runs with a stopping rule equal runs without one bit for bit, and end at the first check that ArviZ's diagnostics meet."""

from __future__ import annotations

import concurrent.futures
import errno
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc import Until
from refhmc.errors import CheckpointError, EvaluationError, SamplingWarning, SaveError
from refhmc.sampling import until
from refhmc.sampling.storage import store
from tests.helpers.diagnostics_of_arviz import by_arviz
from tests.helpers.kinds_of_chains import KINDS
from tests.helpers.random_cases import cases
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import representatives

RUN = {"tune": 100, "chains": 3, "random_seed": 5, "progressbar": False, "raw": True}
RULE = Until(ess=300, mcse={"tau": 0.3}, max_draws=3000)
FIRST = 40


def schools():
    return refhmc.models.EightSchools()


def unmet(rule, model, q):
    return until.unmet(rule, model.names, until.in_memory(model, q))


@pytest.fixture(scope="module")
def ended():
    return refhmc.sample(schools(), "nuts", draws=FIRST, until=RULE, **RUN)


def same(one, other):
    both = one.groups.keys() & other.groups.keys()  # a store has neither observed data nor generated quantities
    assert both >= {"posterior", "sample_stats", "unconstrained_posterior"}
    for group in both:
        for name, values in one.groups[group].items():
            assert np.array_equal(other.groups[group][name], values, equal_nan=True), (group, name)
    for name in (
        "n_gradient_evaluations",
        "iterations_per_chain",
        "divergences_per_chain",
        "evaluation_failures",
        "draws",
    ):
        assert one.attributes[name] == other.attributes[name], name


def test_a_run_with_a_rule_is_a_run_without_one_bit_for_bit(ended):
    n = ended.draws.shape[1]
    assert FIRST < n < RULE.max_draws
    assert ended.attributes["until_unmet"] == []
    same(ended, refhmc.sample(schools(), "nuts", draws=n, **RUN))


@pytest.mark.parametrize("which", representatives(KINDS, ["dhmc", "ghmc", "gibbs", "sghmc, cyclic"]))
def test_every_kind_of_chain_continues_from_check_to_check_bit_for_bit(which):
    model, kernel = KINDS[which]()
    options = {**RUN, "tune": 60, "chains": 2, "save_warmup": True}
    rule = Until(ess=1e5, max_draws=60)  # out of reach
    parts = refhmc.sample(model, kernel, draws=5, until=rule, **options)
    assert parts.attributes["until_unmet"]
    same(parts, refhmc.sample(model, kernel, draws=60, **options))


@pytest.mark.parametrize("cores", [1, 2])
def test_the_draws_do_not_depend_on_cores_and_executors(ended, cores):
    model, options = schools(), {**RUN, "draws": FIRST, "until": RULE}
    same(ended, refhmc.sample(model, "nuts", cores=cores, **options))
    with concurrent.futures.ThreadPoolExecutor(cores) as executor:
        same(ended, refhmc.sample(model, "nuts", executor=executor, **options))


@pytest.mark.parametrize("kernel", ["nuts", "hmc", "ghmc"])
@pytest.mark.parametrize("shared", [True, False])
def test_many_chains_on_arrays_end_together(kernel, shared):
    options = {**RUN, "chains": 40, "backend": refhmc.Arrays(shared_step_size=shared)}
    parts = refhmc.sample(schools(), kernel, draws=5, until=Until(ess=2000, rhat=None, max_draws=300), **options)
    n = parts.draws.shape[1]
    assert 5 < n <= 300
    assert parts.attributes["draws"] == n
    whole = refhmc.sample(schools(), kernel, draws=n, **options)
    for name, values in parts.sample_stats.items():
        assert np.array_equal(whole.sample_stats[name], values, equal_nan=True), name
    assert np.array_equal(whole.draws, parts.draws)
    assert whole.attributes["n_gradient_evaluations"] == parts.attributes["n_gradient_evaluations"]


# -------------------------------------------------------------------------------------------------- when it stops


def met_by_arviz(model, rule, q):
    """Whether the draws meet the rule, by ArviZ's diagnostics."""
    bulk, tail = by_arviz("ess", q), by_arviz("ess", q, method="tail", prob=(0.05, 0.95))
    good = [] if rule.ess is None else [np.minimum(bulk, tail).min() >= rule.ess]
    good += [] if rule.rhat is None else [by_arviz("rhat", q).max() <= rule.rhat]
    for name, most in (rule.mcse or {}).items():
        x = model.constrain(q)[name].reshape(*q.shape[:2], -1)
        good.append((x.std(axis=(0, 1), ddof=1) / np.sqrt(by_arviz("ess", x, method="mean"))).max() <= most)
    return all(good)


@cases(8)
@given(
    seed=st.integers(0, 2**32),
    ess=st.sampled_from([None, 100.0, 400.0]),
    rhat=st.sampled_from([None, 1.01, 1.05]),
    mcse=st.sampled_from([None, {"tau": 0.25}, {"theta": 0.5, "mu": 0.4}]),
)
def test_it_stops_at_the_first_check_that_arviz_finds_met(seed, ess, rhat, mcse):
    if ess is None and rhat is None and not mcse:
        ess = 200.0
    model, rule = schools(), Until(ess=ess, rhat=rhat, mcse=mcse, max_draws=900)
    ended = refhmc.sample(model, draws=25, until=rule, **{**RUN, "random_seed": seed})
    n, whole = ended.draws.shape[1], refhmc.sample(model, draws=900, **{**RUN, "random_seed": seed}).draws
    assert np.array_equal(whole[:, :n], ended.draws)
    checked, draws = [], 25
    while draws < n:
        checked.append(draws)
        draws = until.next_number(draws, unmet(rule, model, whole[:, :draws]), 900)
    assert draws == n
    assert not any(met_by_arviz(model, rule, whole[:, :draws]) for draws in checked)
    assert met_by_arviz(model, rule, ended.draws) == (not ended.attributes["until_unmet"])
    assert n == 900 or not ended.attributes["until_unmet"]
    assert all(b / a >= 1.2 for a, b in zip(checked, [*checked[1:], n], strict=True) if b < 900)
    assert all(b <= math.ceil(2 * a) for a, b in zip(checked, [*checked[1:], n], strict=True))


@pytest.mark.parametrize(
    ("missing", "number"),
    [
        ([until.Shortfall("", 1.01)], 120),
        ([until.Shortfall("", 1.4), until.Shortfall("", 1.5)], 165),
        ([until.Shortfall("", 30.0)], 200),
        ([until.Shortfall("", math.nan)], 200),
        ([until.Shortfall("", -3.0)], 200),
        ([until.Shortfall("", math.inf)], 200),
    ],
)
def test_next_check_comes_where_the_rule_should_be_met(missing, number):
    assert until.next_number(100, missing, 1000) == number
    assert until.next_number(100, missing, 110) == 110


def test_a_chain_that_stands_still_or_is_not_finite_never_meets_a_rule():
    rule, model = Until(ess=10), refhmc.models.Funnel(1)
    q = np.random.default_rng(1).normal(size=(2, 100, 2))
    assert unmet(rule, model, q) == []
    for at in (np.nan, np.inf):
        bad = q.copy()
        bad[0, 3, 1] = at
        assert len(unmet(rule, model, bad)) == 3
    one_still = q.copy()
    one_still[0] = 0.0
    assert unmet(rule, model, one_still)
    assert unmet(rule, model, q[:, :3])[0].factor == until.MOST_GROWTH


def test_more_than_2000_coordinates_are_checked_by_an_even_selection():
    d = 4001
    model = refhmc.Model(d, lambda q: -0.5 * q @ q, lambda q: -q)
    q = np.random.default_rng(1).normal(size=(2, 50, d))
    q[:, :, 1] = 0.0  # not in the selection
    assert unmet(Until(ess=1, rhat=10.0), model, q) == []
    q[:, 7, -1] = np.nan
    assert len(unmet(Until(ess=1, rhat=10.0), model, q)) == 3


# -------------------------------------------------------------------------------------------------- stops and folders


@pytest.mark.parametrize("kept", ["checkpoint", "store"])
@cases(6)
@given(stops=st.lists(st.integers(0, 700), min_size=1, max_size=3), cores=st.integers(1, 3))
def test_stopped_and_resumed_is_unbroken(kept, stops, cores, ended, tmp_path_factory):
    folder, model = tmp_path_factory.mktemp("run") / kept, schools()
    options = {**RUN, "draws": FIRST, "until": RULE, kept: folder}
    for stop in stops:
        refhmc.sample(model, "nuts", cores=cores, **{**options, "progressbar": stop_after(stop)})
    same(ended, refhmc.sample(model, "nuts", **options))
    same(ended, refhmc.sample(model, "nuts", **options))


@pytest.mark.parametrize("kept", ["checkpoint", "store"])
def test_resume_reads_the_rule_from_the_folder(kept, ended, tmp_path):
    options = {"progressbar": False, "raw": True}
    run = {**RUN, "draws": FIRST, "until": RULE, kept: tmp_path}
    states = tmp_path / "checkpoint" if kept == "store" else tmp_path
    refhmc.sample(schools(), "nuts", **{**run, "progressbar": stop_after(150)})
    same(ended, refhmc.resume(tmp_path, **options))
    n = ended.draws.shape[1]
    longer = refhmc.resume(tmp_path, until=Until(ess=3 * RULE.ess, max_draws=6000), **options)
    assert longer.draws.shape[1] > n
    assert np.array_equal(longer.draws[:, :n], ended.draws)
    assert json.loads((states / "run.json").read_text())["until"]["ess"] == 3 * RULE.ess
    m = longer.draws.shape[1]
    fixed = refhmc.resume(tmp_path, draws=m + 7, **options)
    assert fixed.draws.shape[1] == m + 7
    assert json.loads((states / "run.json").read_text())["until"] is None
    again = refhmc.sample(schools(), "nuts", **run)  # the folder has more draws than the rule needs
    assert np.array_equal(again.draws, ended.draws)


@pytest.mark.parametrize("executor", [False, True])
def test_a_store_ends_with_the_draws_that_the_rule_needs(executor, tmp_path, monkeypatch):
    """One chunk has 32 draws: the first check reads a part of one, later ones more. Of 4,001 coordinates 2,000 are read."""
    zarr = pytest.importorskip("zarr")
    d = 4001
    model = refhmc.Model(d, lambda q: -0.5 * q @ q, lambda q: -q, in_python="a test")
    monkeypatch.setattr(store, "LEAST_CHUNK", 1)
    monkeypatch.setattr(store, "CHUNK", 8 * 33 * d)
    rule, options = Until(ess=15, rhat=None, mcse={"q": 0.3}, max_draws=400), {**RUN, "tune": 30, "draws": 25}
    kernel = refhmc.HMC(n_steps=8, step_size=0.2, metric="identity")
    expected = refhmc.sample(model, kernel, until=rule, **options)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = refhmc.sample(model, kernel, until=rule, store=tmp_path, executor=pool if executor else None, **options)
    n = expected.draws.shape[1]
    assert 25 < n < 400
    same(expected, found)
    root = zarr.open_group(tmp_path, mode="r")
    for group in ("posterior", "sample_stats", "unconstrained_posterior"):
        assert {array.shape[1] for _, array in root[group].arrays() if array.ndim > 1} == {n}
    assert np.array_equal(root["unconstrained_posterior/q"][:], expected.draws)
    more = refhmc.resume(tmp_path, model=model, draws=n + 40, progressbar=False, raw=True)
    assert np.array_equal(more.draws[:, :n], expected.draws)
    assert zarr.open_group(tmp_path, mode="r")["unconstrained_posterior/q"].shape[1] == n + 40


def test_a_rule_reads_the_draws_that_a_full_disk_left_in_memory(ended, tmp_path, monkeypatch):
    """The first four writes of the three chains succeed; the draws and the moment of the stop are those in memory."""
    pytest.importorskip("zarr")
    writes, write = [], store.Store.write

    def full(self, chain, rows):
        writes.append(chain)
        if len(writes) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, chain, rows)

    monkeypatch.setattr(store.Store, "write", full)
    with pytest.raises(SaveError) as error:
        refhmc.sample(schools(), "nuts", draws=FIRST, until=RULE, store=tmp_path, **RUN)
    assert len(writes) > 4
    same(ended, error.value.partial)


def test_a_damaged_rule_in_a_folder_is_refused(tmp_path):
    run = {**RUN, "draws": FIRST, "until": RULE, "checkpoint": tmp_path}
    refhmc.sample(schools(), "nuts", **run)
    there = json.loads((tmp_path / "run.json").read_text())
    there["until"]["ess"] = -1
    (tmp_path / "run.json").write_text(json.dumps(there))
    with pytest.raises(CheckpointError, match="ess must be a number above 0"):
        refhmc.resume(tmp_path, progressbar=False)


def test_a_stop_and_a_time_limit_end_a_run_with_a_rule():
    rule, model = Until(ess=1e9, max_draws=10**7), refhmc.models.Gaussian(np.zeros(2), np.eye(2))
    stopped = refhmc.sample(model, draws=50, until=rule, **{**RUN, "progressbar": stop_after(400)})
    assert stopped.attributes["stopped_by"] == "interrupt"
    assert 50 <= stopped.draws.shape[1] < 10**7
    timed = refhmc.sample(model, draws=50, until=rule, max_seconds=0.5, **RUN)
    assert timed.attributes["stopped_by"] == "time"


def test_evaluations_that_fail_are_counted_in_all_parts():
    def log_density(q):
        if q[0] > 1.5:
            raise EvaluationError("q is too large")
        return -0.5 * float(q @ q)

    model = refhmc.Model(1, log_density, lambda q: -q, in_python="a test")
    options = {**RUN, "chains": 2, "tune": 50, "initvals": [0.0]}
    parts = refhmc.sample(model, draws=20, until=Until(ess=1e5, max_draws=100), **options)
    whole = refhmc.sample(model, draws=100, **options)
    same(parts, whole)
    (failure, *_) = whole.attributes["evaluation_failures"]
    assert failure["transitions"] > 0
    assert failure["first_position"][0] > 1.5


# -------------------------------------------------------------------------------------------------- what users see


def test_a_rule_that_is_not_met_is_reported():
    rule = Until(ess=1e5, rhat=1.0001, mcse={"theta": 1e-3}, max_draws=120)
    with pytest.warns(
        SamplingWarning, match=r"stopping rule was not met with 120 draws per chain \(bulk ESS .* of 100000 "
    ):
        result = refhmc.sample(schools(), draws=60, until=rule, **RUN)
    assert len(result.attributes["until_unmet"]) == 4
    assert result.attributes["until"] == {"ess": 1e5, "rhat": 1.0001, "mcse": {"theta": 1e-3}, "max_draws": 120}
    assert result.attributes["draws"] == 120
    tree = refhmc.sample(schools(), draws=60, until=rule, **{**RUN, "raw": False})
    assert "theta" in str(tree.posterior.attrs["until"])


def test_one_chain_has_no_r_hat():
    result = refhmc.sample(schools(), draws=50, until=Until(ess=50), **{**RUN, "chains": 1})
    assert result.attributes["until_unmet"] == []


def test_background_runs_take_a_rule():
    run = refhmc.start(schools(), draws=50, until=Until(ess=200), **RUN)
    result = run.wait()
    assert result.attributes["until_unmet"] == []
    assert run.progress().draws_total == 100 + result.draws.shape[1]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"until": 400}, TypeError, "until must be a refhmc.Until"),
        ({"until": Until(max_draws=10)}, ValueError, "max_draws of until must be at least draws, 100; got 10"),
        ({"until": Until(mcse={"sigma": 0.1})}, ValueError, r"variables of the model \(.*tau.*\); got 'sigma'"),
    ],
)
def test_rules_that_do_not_fit_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        refhmc.sample(schools(), draws=100, **options, **RUN)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"ess": 0}, ValueError, "ess must be a number above 0, or None; got 0"),
        ({"ess": math.nan}, ValueError, "ess must be"),
        ({"rhat": 1.0}, ValueError, "rhat must be a number above 1"),
        ({"max_draws": 2.5}, ValueError, "max_draws must be a whole number"),
        ({"mcse": 0.1}, TypeError, "mcse must map names"),
        ({"mcse": {"mu": -1}}, ValueError, "positive numbers; got 'mu': -1"),
        ({"ess": None, "rhat": None}, ValueError, "needs a condition"),
        ({"ess": None, "rhat": None, "mcse": {}}, ValueError, "needs a condition"),
    ],
)
def test_invalid_rules_are_refused(options, error, words):
    with pytest.raises(error, match=words):
        Until(**options)
