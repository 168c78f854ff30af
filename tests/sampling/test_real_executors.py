"""Chains in loky, process pools, Dask, Ray and MPI: the same draws, progress, stops, and killed workers."""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest

import refhmc
from refhmc.errors import WorkerDied
from refhmc.sampling.chains import executors
from tests.helpers.executors import Dying
from tests.helpers.stopping import stop_after

pytestmark = [pytest.mark.sweep, pytest.mark.filterwarnings("ignore")]
ROOT = pathlib.Path(refhmc.__file__).parents[1]
QUIET = {"raw": True, "progressbar": False, "random_seed": 20261125}
RUN = {"draws": 3000, "tune": 500, "chains": 3, **QUIET}
SHORT = {"draws": 200, "tune": 150, "chains": 3, "kernel": refhmc.HMC(n_steps=3), **QUIET}
SCHOOLS = refhmc.models.EightSchools()


@pytest.fixture(scope="module")
def expected():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return refhmc.sample(SCHOOLS, **RUN)


@pytest.fixture(autouse=True)
def short_segments(monkeypatch):
    monkeypatch.setattr(executors, "LEAST", 0.005)
    monkeypatch.setattr(executors, "SHARE", 1e9)


# Each gives the executor, a function that gives one where an executor whose worker is killed is broken for good, and what shows
# that an executor is still open.


@contextlib.contextmanager
def processes():
    made = []

    def make():
        made.append(concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")))
        return made[-1]

    try:
        yield make(), make, lambda pool: pool.submit(abs, -1).result()
    finally:
        for each in made:
            each.shutdown()


@contextlib.contextmanager
def pool():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        yield pool, None, lambda pool: pool.apply(abs, (-1,))


@contextlib.contextmanager
def loky():
    loky = pytest.importorskip("loky", reason="needs loky")

    def make():
        return loky.get_reusable_executor(max_workers=2)

    try:
        yield make(), make, lambda pool: pool.submit(abs, -1).result()
    finally:
        make().shutdown(kill_workers=True)


@contextlib.contextmanager
def dask():
    distributed = pytest.importorskip("distributed", reason="needs distributed, Dask's cluster")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL}
    cluster = distributed.LocalCluster(**options)
    with cluster, distributed.Client(cluster) as client:
        yield client, None, lambda client: client.submit(abs, -1).result()


@contextlib.contextmanager
def ray_itself():
    ray = pytest.importorskip("ray", reason="needs ray")
    options = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": 10**8, "log_to_driver": False}
    ray.init(**options)
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def ray_pool():
    with ray_itself():
        from ray.util.multiprocessing import Pool

        pool = Pool(2)
        try:
            yield pool, None, lambda pool: pool.apply(abs, (-1,))
        finally:
            pool.terminate()


@contextlib.contextmanager
def ray_tasks():
    with ray_itself() as ray:

        class Tasks:
            def submit(self, function, *arguments):
                return ray.remote(function).remote(*arguments).future()

        yield Tasks(), None, lambda tasks: tasks.submit(lambda x: -x, -1).result()


KINDS = {each.__name__: each for each in (processes, pool, loky, dask, ray_pool, ray_tasks)}


@pytest.fixture(scope="module", params=list(KINDS))
def library(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
        patch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        with KINDS[request.param]() as given:
            yield given


def test_draws_are_those_of_threads_and_progress_is_shown(library, expected):
    executor, _, is_open = library
    told = []
    result = refhmc.sample(SCHOOLS, executor=executor, **{**RUN, "progressbar": told.append})
    assert np.array_equal(result.draws, expected.draws)
    for name, values in expected.sample_stats.items():
        assert np.array_equal(result.sample_stats[name], values, equal_nan=True), name
    assert result.attributes["n_gradient_evaluations"] == expected.attributes["n_gradient_evaluations"]
    done = np.array([report.draws_done.sum() for report in told])
    assert len(set(done)) > 2
    assert np.all(np.diff(done) >= 0)
    assert is_open(executor) == 1


@pytest.mark.parametrize("how", ["time", "interrupt", "stop"])
def test_it_stops(library, expected, how):
    executor, _, is_open = library
    options = {**RUN, "draws": 10**5, "executor": executor}
    if how == "time":
        result = refhmc.sample(SCHOOLS, max_seconds=0.1, **options)  # a warm worker draws all in less than two
    elif how == "interrupt":
        result = refhmc.sample(SCHOOLS, **{**options, "progressbar": stop_after(600)})
    else:
        run = refhmc.start(SCHOOLS, **options)
        while run.progress().draws_done.max() < 600:
            time.sleep(0.01)
        run.stop()
        result = run.wait()
    assert result.attributes["stopped_by"] == how
    drawn = result.ragged or dict(zip(result.attributes["chains"], result.draws, strict=True))
    for chain, draws in drawn.items():
        n = min(len(draws), 3000)
        assert np.array_equal(draws[:n], expected.draws[chain, :n])
    assert is_open(executor) == 1


def test_a_worker_that_is_killed_costs_no_draw(library, tmp_path, monkeypatch, request):
    """The worker ends by SIGKILL in a segment. Some libraries report this, some repeat the task, and one is silent.

    Ray's pool keeps giving every second task to the dead actor.
    """
    if sys.platform == "win32":
        pytest.skip("there is no SIGKILL on Windows")
    executor, make, _ = library
    if request.node.callspec.params["library"] == "pool":  # which says nothing
        monkeypatch.setattr(executors, "HEARTBEAT", 10.0)
        monkeypatch.setattr(executors, "LONGEST_ITERATION", 2.0)
    model = Dying(tmp_path / "killed").model()
    whole = refhmc.sample(model, **SHORT)
    result = refhmc.sample(model, executor=make or executor, **SHORT)
    assert (tmp_path / "killed").exists()
    assert np.array_equal(result.draws, whole.draws)


def test_a_closed_cluster_ends_the_run_and_keeps_its_draws(expected):
    distributed = pytest.importorskip("distributed", reason="needs distributed, Dask's cluster")
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        run = refhmc.start(SCHOOLS, executor=client, **{**RUN, "draws": 10**6})
        while run.progress().draws_done.max() < 600:
            time.sleep(0.01)
        cluster.close()
        with pytest.raises(WorkerDied) as died:
            run.wait()
    partial = died.value.partial
    drawn = partial.ragged or dict(zip(partial.attributes["chains"], partial.draws, strict=True))
    assert max(map(len, drawn.values())) > 50
    for chain, draws in drawn.items():
        assert np.array_equal(draws[:3000], expected.draws[chain, : len(draws)])


# -------------------------------------------------------------------------------------------------------------- MPI

SCRIPT = """
import pathlib, sys
import numpy as np
import refhmc
from mpi4py.futures import MPIPoolExecutor
from refhmc.sampling.chains import executors
from tests.helpers.executors import Dying
from tests.sampling import test_real_executors as tests

if __name__ == "__main__":
    executors.LEAST, executors.SHARE = 0.005, 1e9
    what, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    with MPIPoolExecutor() as pool:
        if what == "same":
            told = []
            result = refhmc.sample(tests.SCHOOLS, executor=pool, **{**tests.RUN, "progressbar": told.append})
            assert len({int(report.draws_done.sum()) for report in told}) > 2
        if what == "time":
            result = refhmc.sample(tests.SCHOOLS, executor=pool, max_seconds=2.0, **{**tests.RUN, "draws": 10**6})
            assert result.attributes["stopped_by"] == "time"
        if what == "killed":
            model = Dying(folder / "killed").model()
            result = refhmc.sample(model, executor=pool, checkpoint=folder / "run", **tests.SHORT)
        assert pool.submit(abs, -1).result() == 1
    np.save(folder / "draws.npy", result.draws)
"""


def by_mpi(script, folder, *arguments):
    pytest.importorskip("mpi4py", reason="needs mpi4py")
    if shutil.which("mpiexec") is None:
        pytest.skip("needs mpiexec, of Open MPI or MPICH")
    return run_script(
        ["mpiexec", "-n", "2", sys.executable, "-W", "ignore", "-m", "mpi4py.futures"], script, folder, *arguments
    )


def run_script(command, script, folder, *arguments):
    (folder / "script.py").write_text(script)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    program = [*command, str(folder / "script.py"), *arguments]
    return subprocess.run(program, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("what", ["same", "time"])
def test_mpi(expected, tmp_path, what):
    done = by_mpi(SCRIPT, tmp_path, what, str(tmp_path))
    assert done.returncode == 0, done.stderr
    draws = np.load(tmp_path / "draws.npy")
    n = min(draws.shape[1], 3000)
    assert n > 0 or what == "time"  # a worker may not have begun by then
    assert np.array_equal(draws[:, :n], expected.draws[: len(draws), :n])


def test_a_killed_mpi_process_ends_the_job_and_the_checkpoint_can_be_resumed(tmp_path):
    """MPI ends all processes if one is lost, so that the next job resumes the run."""
    done = by_mpi(SCRIPT, tmp_path, "killed", str(tmp_path))
    assert done.returncode != 0
    assert (tmp_path / "killed").exists()
    done = by_mpi(SCRIPT, tmp_path, "killed", str(tmp_path))
    assert done.returncode == 0, done.stderr
    whole = refhmc.sample(Dying(tmp_path / "killed").model(), **SHORT)
    assert np.array_equal(np.load(tmp_path / "draws.npy"), whole.draws)


# --------------------------------------------------------------------------------------------------- the documentation


@pytest.mark.parametrize("library", ["loky", "distributed", "ray", "mpi4py"])
def test_the_example_of_the_documentation_runs(library, tmp_path):
    pytest.importorskip(library, reason=f"needs {library}")
    page = (ROOT / "docs" / "executors.md").read_text(encoding="utf-8")
    (example,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if f"{library}" in each]
    script = example.replace(
        "EightSchools(),", "EightSchools(), draws=100, tune=100, random_seed=1, progressbar=False,"
    )
    script += '    open("shape", "w").write(str(result.posterior["mu"].shape))\n'
    done = (
        by_mpi(script, tmp_path)
        if library == "mpi4py"
        else run_script([sys.executable, "-W", "ignore"], script, tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shape").read_text() == "(4, 100)"
