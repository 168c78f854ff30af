"""Starts of chains: exactly at given values, by Pathfinder on request, and without it if it fails."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import re
import threading
import time

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.core.records import CONTROL, one
from refhmc.errors import CheckpointError, PythonModelWarning, SamplingWarning
from refhmc.sampling.chains.chain import make_plan
from refhmc.sampling.chains.chain_run import run_chain
from refhmc.sampling.chains.initialization import Stopped, pathfinder_start
from refhmc.sampling.chains.task import ChainTask, chain_generator
from refhmc.sampling.storage import checkpoint
from refhmc.sampling.storage.chain_storage import Checkpointed
from refhmc.sampling.storage.in_memory import Memory
from tests.helpers.models import FEW_CALLS
from tests.helpers.sweeps import swept

STILL = refhmc.HMC(step_size=1e8, n_steps=1)  # every proposal is rejected: the first draw is the start
FIRST = {"draws": 1, "tune": 0, "random_seed": 5, "raw": True, "progressbar": False}
RUN = {"draws": 40, "tune": 60, "chains": 3, "random_seed": 5, "raw": True, "progressbar": False}


def far_normal(d: int = 8) -> refhmc.Model:
    """N(1000, 0.1^2), independent."""

    def log_density(q, data):
        return -50.0 * np.sum((q - 1000.0) ** 2)

    return refhmc.Model(d, log_density, lambda q, data: -100.0 * (q - 1000.0), name="far")


@pytest.fixture(scope="module")
def far():
    return far_normal()


@pytest.mark.parametrize("backend", ["numba", "arrays"])
def test_given_starts_have_no_jitter(backend):
    model, rng = refhmc.models.Funnel(2), np.random.default_rng(1)
    q = rng.normal(size=(3, 3))
    result = refhmc.sample(model, STILL, chains=3, initvals=q, backend=backend, **FIRST)
    assert np.array_equal(result.draws[:, 0], q)
    assert result.attributes["starts"] == ["initvals"] * 3
    values = {"v": 0.5, "x": [1.25, -3.0]}
    result = refhmc.sample(model, STILL, chains=2, initvals=values, backend=backend, **FIRST)
    np.testing.assert_allclose(result.posterior["v"][:, 0], 0.5, rtol=1e-8)
    np.testing.assert_allclose(result.posterior["x"][:, 0], [[1.25, -3.0]] * 2, rtol=1e-8)
    assert np.array_equal(result.draws[0], result.draws[1])


def test_constrained_values_are_met_without_jitter():
    model = refhmc.models.EightSchools()
    values = {name: value[3] for name, value in model.constrain(np.random.default_rng(2).normal(size=(4, 10))).items()}
    result = refhmc.sample(model, STILL, chains=1, initvals=values, **FIRST)
    for name, value in values.items():
        np.testing.assert_allclose(result.posterior[name][0, 0], value, rtol=1e-7)


@pytest.mark.sweep
def test_starts_of_a_far_density_are_draws_of_it(far):
    """Pathfinder's normal is exact here, so that the sum of (q - mean)^2/sd^2 is chi-squared; false alarms 1e-6."""
    result = refhmc.sample(far, STILL, chains=4, init="pathfinder", **FIRST)
    assert result.attributes["starts"] == ["pathfinder"] * 4
    sums = np.sum(((result.draws[:, 0] - 1000) / 0.1) ** 2, axis=1)
    low, high = scipy.stats.chi2(far.dim).ppf([1e-6 / 8, 1 - 1e-6 / 8])
    assert np.all((low < sums) & (sums < high))
    assert len(np.unique(result.draws)) == result.draws.size
    plain = refhmc.sample(far, STILL, chains=4, **FIRST)
    assert np.all(np.abs(plain.draws) < 2)
    assert plain.attributes["starts"] == ["uniform"] * 4
    assert result.attributes["n_gradient_evaluations"] > plain.attributes["n_gradient_evaluations"]


def test_draws_are_the_same_for_any_number_of_chains_cores_and_executors():
    model = refhmc.models.EightSchools()
    whole = refhmc.sample(model, init="pathfinder", cores=1, **RUN)
    assert np.array_equal(whole.draws, refhmc.sample(model, init="pathfinder", cores=2, **RUN).draws)
    one = refhmc.sample(model, init="pathfinder", **{**RUN, "chains": 1})
    assert np.array_equal(whole.draws[:1], one.draws)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        assert np.array_equal(whole.draws, refhmc.sample(model, init="pathfinder", executor=executor, **RUN).draws)


@pytest.mark.slow
def test_draws_are_the_same_in_other_processes():
    model = refhmc.models.EightSchools()
    here = refhmc.sample(model, init="pathfinder", **RUN)
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        there = refhmc.sample(model, init="pathfinder", executor=executor, **RUN)
    assert np.array_equal(here.draws, there.draws)
    assert there.attributes["starts"] == ["pathfinder"] * 3


@pytest.mark.sweep
def test_paths_start_at_initvals():
    """Chains find the nearer one of two modes, whatever their number."""
    model = two_modes()
    q = np.array([[40.0], [-40.0], [-45.0]])
    result = refhmc.sample(model, STILL, chains=3, initvals=q, init="pathfinder", **FIRST)
    # Standard normals about +-50: a false alarm in 3e-8.
    assert np.all(np.abs(result.draws[:, 0] - [[50.0], [-50.0], [-50.0]]) < 5.7)


def two_modes() -> refhmc.Model:
    def log_density(q, data):
        return np.logaddexp(-0.5 * (q[0] - 50) ** 2, -0.5 * (q[0] + 50) ** 2)

    def gradient(q, data):
        return 50 * np.tanh(50 * q) - q

    return refhmc.Model(1, log_density, gradient, name="two modes")


@pytest.mark.parametrize(
    ("make", "kernel"),
    [
        (lambda: refhmc.models.Funnel(2), refhmc.HMC(n_steps=3, metric=refhmc.metrics.SoftAbs(1e6))),
        (lambda: refhmc.models.Funnel(2), refhmc.Gibbs({"v": refhmc.NUTS(), "x": refhmc.HMC(n_steps=3)})),
        (lambda: refhmc.models.EightSchools(), refhmc.NUTS(metric=refhmc.metrics.Dense())),
    ],
    ids=["position-dependent", "gibbs", "dense"],
)
def test_every_kind_of_chain_starts_at_pathfinders_draw(make, kernel):
    result = refhmc.sample(make(), kernel, init="pathfinder", **{**RUN, "chains": 2})
    assert result.attributes["starts"] == ["pathfinder"] * 2
    assert np.all(np.isfinite(result.draws))


def leaving(what: str) -> refhmc.Model:
    """Return a normal that raises beyond a distance of 3, or whose gradient is finite only at the start or on a line."""

    def log_density(q, start):
        if what == "raises" and abs(q[0]) > 3:
            raise OverflowError("too far")
        return -0.5 * float(q @ q) / 100

    def gradient(q, start):
        lost = {
            "raises": False,
            "gradient at the start": np.any(q != start),
            "gradient on a line": abs(q[0] * start[1] - q[1] * start[0]) > 1e-6,
        }
        return np.full(2, np.nan) if lost[what] else -q / 100

    in_python = (
        {} if what == "raises" else {"in_python": FEW_CALLS}
    )  # where an OverflowError would be a value of infinity
    return refhmc.Model(2, log_density, gradient, data=np.array([1.0, -1.0]), name="leaving", **in_python)


@pytest.mark.filterwarnings("ignore::refhmc.errors.PythonModelWarning")
@pytest.mark.parametrize(
    ("what", "words"),
    [
        swept("raises", "OverflowError: too far"),
        ("gradient at the start", "path"),
        swept("gradient on a line", "none of 100 draws"),
    ],
)
def test_chains_start_without_pathfinder_if_it_fails_and_the_result_warns(what, words):
    model, kernel = leaving(what), refhmc.HMC(step_size=1e-3, n_steps=1)
    options = {"chains": 2, "initvals": np.array([1.0, -1.0]), "preflight": False, **FIRST}
    plain = refhmc.sample(model, kernel, **options)
    with pytest.warns(SamplingWarning, match=rf"Pathfinder .*2 of 2 chains \(\[0, 1\]\).*{words}"):
        result = refhmc.sample(model, kernel, init="pathfinder", **options)
    assert np.array_equal(result.draws, plain.draws)
    assert result.attributes["starts"] == ["initvals"] * 2
    assert any(words in warning for warning in result.warnings)


def test_a_chain_without_a_path_draws_as_if_pathfinder_had_not_been_asked_for():
    """Pathfinder uses a child stream, so that the chain's own stream is unchanged."""
    model = refhmc.models.Gaussian(np.zeros(3), np.eye(3))
    plain = refhmc.sample(model, initvals=np.zeros(3), **RUN)  # at the mode nothing climbs
    result = refhmc.sample(model, initvals=np.zeros(3), init="pathfinder", **RUN)
    assert np.array_equal(plain.draws, result.draws)
    assert result.attributes["starts"] == ["initvals"] * 3


@pytest.mark.parametrize("init", ["jitter", None, 3, np.zeros(2)])
def test_an_unknown_init_is_rejected(init):
    with pytest.raises(ValueError, match="init must be 'uniform' or 'pathfinder'.*got .*initvals"):
        refhmc.sample(refhmc.models.Funnel(2), init=init, **FIRST)


def test_pathfinder_is_rejected_for_discontinuous_models_and_other_backends():
    with pytest.raises(ValueError, match="init='pathfinder'.*discontinuous.*initvals"):
        refhmc.sample(refhmc.models.ChangePoint(), init="pathfinder", **FIRST)
    with pytest.raises(ValueError, match="init='pathfinder'.*backend='numba'.*'arrays'"):
        refhmc.sample(refhmc.models.Funnel(2), init="pathfinder", backend="arrays", **FIRST)


def test_a_run_from_a_checkpoint_keeps_how_its_chains_began(tmp_path):
    model = refhmc.models.Gaussian(np.zeros(3), np.eye(3))
    starts = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    options = {"initvals": starts, "init": "pathfinder", "checkpoint": tmp_path / "run"}
    whole = refhmc.sample(model, **{**options, "checkpoint": None}, **RUN)
    refhmc.sample(model, **options, **{**RUN, "draws": 15})
    resumed = refhmc.sample(model, **options, **RUN)
    assert np.array_equal(resumed.draws, whole.draws)
    assert resumed.attributes["starts"] == ["initvals", "pathfinder", "pathfinder"]
    assert resumed.attributes["n_gradient_evaluations"] == whole.attributes["n_gradient_evaluations"]
    assert any(re.search(r"Pathfinder .*1 of 3 chains \(\[0\]\)", each) for each in resumed.warnings)
    with pytest.raises(CheckpointError, match="init: .*'uniform'.*'pathfinder'"):
        refhmc.sample(model, **{**options, "init": "uniform"}, **RUN)


@pytest.mark.sweep
def test_a_time_limit_ends_the_path():
    """The path has hundreds of iterates with 26 evaluations each, and the time ends at the first ones."""
    covariance = np.diag(np.geomspace(1e-2, 1e2, 20))

    def log_density(q, data):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.005)
        return -0.5 * float(q @ np.linalg.solve(covariance, q))

    def gradient(q, data):
        return -np.linalg.solve(covariance, q)

    with pytest.warns(PythonModelWarning):
        model = refhmc.Model(20, log_density, gradient, name="slow")
        result = refhmc.sample(model, STILL, init="pathfinder", max_seconds=1e-3, **{**RUN, "preflight": False})
    assert result.attributes["stopped_by"] == "time"
    assert result.draws.shape[1] == 0
    assert not any("Pathfinder" in each for each in result.warnings)


@pytest.mark.sweep
def test_a_chain_that_is_stopped_on_its_path_leaves_nothing_to_go_on_from(tmp_path, far):
    kernel, control = refhmc.NUTS(), one(CONTROL)[0]
    control.stop = 1
    store = checkpoint.Checkpoint(tmp_path, {"chains": 1, "tune": 5, "format": checkpoint.FORMAT})
    store.open()
    plan, task = make_plan(far, kernel, 5), ChainTask(far, kernel, 0, 9, None, 5, 5, init="pathfinder")
    run = run_chain(
        task, plan, Checkpointed(task, plan, Memory(kernel, 1, far.dim, plan.n_stats, 5, 10), store), control
    )
    store.close()
    assert run.error is None
    assert len(run.draws) == 0
    assert not (tmp_path / "chain-0.npz").exists()
    start = np.zeros(far.dim)
    with pytest.raises(Stopped):
        pathfinder_start(far, plan, start, chain_generator(9, 0, 0), 0, control)
