"""Runs in the background: progress, draws so far and stops; chains in executors by segments."""

from __future__ import annotations

import asyncio
import concurrent.futures
import multiprocessing
import multiprocessing.pool
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import numpy as np
import pytest

import refhmc
from refhmc.errors import SamplingError, SamplingWarning, WarmupError, WorkerDied
from refhmc.sampling.chains import chain_pool, executors
from tests.helpers.executors import Dying, Losing
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import swept

RUN = {"draws": 200, "tune": 150, "chains": 3, "random_seed": 20261123, "kernel": refhmc.HMC(n_steps=3000)}
LONG = {**RUN, "draws": 1_000_000, "kernel": refhmc.HMC(n_steps=1000)}  # minutes, if nothing stops it
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of this kind are not sent on Windows")


@pytest.fixture(scope="module")
def expected(normal):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return refhmc.sample(normal, progressbar=False, raw=True, **RUN)


@pytest.fixture
def short_segments(monkeypatch):
    """Make segments so short that a run of a tenth of a second has many."""
    monkeypatch.setattr(executors, "LEAST", 0.0002)
    monkeypatch.setattr(executors, "SHARE", 10.0)


# ------------------------------------------------------------------------------------------------- in the background


@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_start_gives_the_same_result_as_sample(normal, expected):
    run = refhmc.start(normal, progressbar=False, raw=True, **RUN)
    result = run.wait()
    assert np.array_equal(result.draws, expected.draws)
    assert result.warnings == expected.warnings
    assert run.wait() is result
    assert run.finished
    assert not run.stopped
    assert run.progress().finished
    assert "finished, 1050 of 1050 iterations" in repr(run)


def test_its_warnings_name_the_line_that_waits(normal):
    run = refhmc.start(normal, progressbar=False, raw=True, **RUN)
    with pytest.warns(SamplingWarning) as caught:
        run.wait()
    assert {each.filename for each in caught} == {__file__}


@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
@pytest.mark.parametrize("seconds", [np.float32(0.2), np.array(0.2)])
def test_a_limit_of_any_kind_of_number_is_kept(normal, seconds):
    result = refhmc.sample(normal, max_seconds=seconds, progressbar=False, raw=True, **LONG)
    assert result.attributes["stopped_by"] == "time"


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("seconds", [float("inf"), 1e12, np.float32(1e30)])
def test_a_limit_that_is_never_reached_is_none(normal, seconds):
    few = {**RUN, "kernel": refhmc.HMC(n_steps=3)}
    result = refhmc.sample(normal, max_seconds=seconds, progressbar=False, raw=True, **few)
    assert result.attributes["stopped_by"] == ""
    assert result.draws.shape[1] == RUN["draws"]


def wait_for(run, iterations):
    while run.progress().draws_done.min() < iterations:
        time.sleep(0.002)


def test_peek_returns_a_copy_of_the_first_draws(normal):
    run = refhmc.start(normal, progressbar=False, raw=True, cores=3, **LONG)
    wait_for(run, 160)
    peeked = run.peek()
    kept = peeked.draws.copy()
    assert "running" in repr(run)
    run.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run.wait()
    n = kept.shape[1]
    assert 10 <= n < LONG["draws"]
    assert np.array_equal(peeked.draws, kept)
    for row, chain in enumerate(peeked.attributes["chains"]):  # the result may be of other chains
        whole = result.ragged[chain] if result.ragged else result.draws[chain]
        assert np.array_equal(kept[row], whole[:n])
    assert set(peeked.posterior) == set(result.posterior)
    assert result.attributes["stopped_by"] == "stop"
    assert result.interrupted


def test_peeking_before_the_first_draw_is_empty(normal):
    run = refhmc.start(normal, progressbar=False, raw=True, cores=3, **{**LONG, "tune": 10**6})
    peeked = run.peek()
    run.stop()
    with pytest.warns(SamplingWarning, match=r"no draws.*stop\(\).*warm-up"):
        run.wait()
    assert peeked.draws.shape == (3, 0, 2)


def test_an_error_is_raised_whenever_it_is_waited_for():
    def log_density(q, data):
        if threading.current_thread() is not threading.main_thread() and abs(q[0]) > 1.0:
            raise OSError("the licence server is away")
        return -0.5 * float(q @ q)

    model = refhmc.Model(2, log_density, lambda q, data: -q, in_python="a test")
    run = refhmc.start(model, progressbar=False, **{**RUN, "kernel": refhmc.HMC(n_steps=2)})
    for _ in range(2):
        with pytest.raises(SamplingError, match="licence server") as caught:
            run.wait()
        assert caught.value.partial.attributes["failed_chains"]


def test_start_has_the_options_of_sample(normal):
    with pytest.raises(ValueError, match="streamed.*CuPy"):
        refhmc.start(normal, streamed=True)
    with pytest.raises(TypeError, match="draw"):
        refhmc.start(normal, draw=3)


def test_in_asyncio_other_tasks_go_on_and_stop_it(normal):
    async def main():
        run = refhmc.start(normal, progressbar=False, raw=True, cores=3, **LONG)
        waiting = asyncio.create_task(asyncio.to_thread(run.wait))
        ticks = 0
        while run.progress().draws_done.min() < 160:
            await asyncio.sleep(0.005)
            ticks += 1
        run.stop()
        return ticks, await waiting

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ticks, result = asyncio.run(main())
    assert ticks > 0
    assert 10 <= result.draws.shape[1] < LONG["draws"]


def in_a_process(text, *arguments, **options):
    script = textwrap.dedent(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", script, *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


HANGING = """
import sys, threading, time
import numpy as np
import refhmc
from refhmc.sampling.chains import chain_pool

chain_pool.GRACE = float(sys.argv[1])
calls = 0

def log_density(q, data):
    global calls
    calls += 1
    if calls == 300:
        print("hangs", flush=True)
        time.sleep(1e6)
    return -0.5 * float(q @ q)

model = refhmc.Model(2, log_density, lambda q, data: -q, in_python="a test")
options = {"draws": 1000, "tune": 0, "chains": 1, "random_seed": 1, "raw": True, "progressbar": False}
try:
    result = refhmc.sample(model, refhmc.HMC(step_size=0.3, n_steps=2), **options)
    print(result.draws.shape[1], any("did not return" in text for text in result.warnings), flush=True)
except KeyboardInterrupt as stopped:
    print("raised", stopped.partial.draws.shape[1], flush=True)
"""


@posix
@pytest.mark.sweep
@pytest.mark.parametrize(("grace", "signals"), [("0.5", 1), ("1000", 2)])
def test_a_model_that_hangs_in_a_call_loses_nothing_and_keeps_nothing_alive(grace, signals):
    """One Ctrl-C returns the draws after the grace period; a second one raises at once. The process ends by itself."""
    process = in_a_process(HANGING, grace)
    assert process.stdout.readline() == "hangs\n"
    for _ in range(signals):
        time.sleep(0.4)
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    words = out.split()
    assert words[-1:] == ["True"] if signals == 1 else words[0] == "raised"
    assert 50 <= int(words[0] if signals == 1 else words[1]) <= 150


@pytest.mark.sweep
def test_a_run_that_nobody_waits_for_does_not_keep_the_process(tmp_path):
    process = in_a_process(
        """
        import refhmc
        run = refhmc.start(refhmc.models.EightSchools(), refhmc.HMC(n_steps=10**5), draws=10**5, chains=2, progressbar=False)
        """
    )
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")


def test_a_hanging_model_is_left_behind_with_copies_of_its_draws(monkeypatch):
    """Iterations of a thread after its model returns late are not in the result."""
    monkeypatch.setattr(chain_pool, "GRACE", 0.2)
    hangs, release, calls = threading.Event(), threading.Event(), []

    def log_density(q, data):
        calls.append(1)
        if len(calls) == 400:
            hangs.set()
            release.wait(60)
        return -0.5 * float(q @ q)

    model = refhmc.Model(2, log_density, lambda q, data: -q, in_python="a test")
    kernel = refhmc.HMC(step_size=0.3, n_steps=2)
    run = refhmc.start(model, kernel, draws=10_000, tune=0, chains=1, random_seed=1, progressbar=False, raw=True)
    assert hangs.wait(60)
    run.stop()
    try:
        with pytest.warns(SamplingWarning, match="Chain 0 .*0.2 s"):
            result = run.wait()
    finally:
        release.set()
    n = result.draws.shape[1]
    assert 50 < n < 250
    assert np.all(np.isfinite(result.draws))


# ------------------------------------------------------------------------------------------------------- executors

GONE = ConnectionError("the worker is gone")


def of_chain_0(number, job):
    return job.chain == 0


@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
@pytest.mark.parametrize("lost", [swept({1}), {3, 11}, swept({1, 2, 3}), {1, 4}, swept({7})])
def test_a_segment_whose_worker_is_lost_is_drawn_again(normal, expected, short_segments, lost):
    executor = Losing(lambda number, job: number in lost, GONE)
    result = refhmc.sample(normal, executor=executor, progressbar=False, raw=True, **RUN)
    assert np.array_equal(result.draws, expected.draws)
    for name, values in expected.sample_stats.items():
        assert np.array_equal(result.sample_stats[name], values, equal_nan=True), name
    assert result.attributes["n_gradient_evaluations"] == expected.attributes["n_gradient_evaluations"]
    assert executor.sent >= 3 + sum(number <= executor.sent for number in lost)


@pytest.mark.sweep
def test_a_worker_lost_again_and_again_ends_its_chain_and_keeps_the_rest(normal, expected, short_segments):
    with pytest.raises(WorkerDied, match=r"chain 0 was lost 2 times.* ConnectionError: the worker is gone") as caught:
        refhmc.sample(normal, executor=Losing(of_chain_0, GONE), progressbar=False, raw=True, **RUN)
    assert caught.value.partial.attributes["chains"] == [1, 2]
    assert np.array_equal(caught.value.partial.draws, expected.draws[1:])


@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_a_stop_ends_a_chain_that_waits_to_go_on_alone(normal, short_segments):
    """The segment is lost twice while the other chains run without end."""
    run = {**RUN, "draws": 10**7, "tune": 0, "kernel": refhmc.HMC(step_size=0.5, n_steps=3), "max_seconds": 1.0}
    result = refhmc.sample(normal, executor=Losing(of_chain_0, GONE), progressbar=False, raw=True, **run)
    assert result.attributes["stopped_by"] == "time"
    drawn = result.ragged or dict(zip(result.attributes["chains"], result.draws, strict=True))
    assert len(drawn.get(0, [])) == 0
    assert all(len(drawn[chain]) > 0 for chain in (1, 2))


@posix
@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore")
def test_a_pool_that_breaks_is_replaced_by_the_function_that_made_it(tmp_path, short_segments):
    """A process ends as by ``kill -9``, which breaks the pool, and the function is called again."""
    context = multiprocessing.get_context("fork")
    made = []

    def pool():
        made.append(concurrent.futures.ProcessPoolExecutor(2, context))
        return made[-1]

    run = {**RUN, "kernel": refhmc.HMC(step_size=0.3, n_steps=2), "progressbar": False, "raw": True}
    model = Dying(tmp_path / "died").model()
    result = refhmc.sample(model, executor=pool, **run)
    assert len(made) == 2
    assert np.array_equal(result.draws, refhmc.sample(model, **run).draws)
    for each in made:
        each.shutdown()


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_a_pool_of_multiprocessing_and_its_kind_is_an_executor(normal, expected, short_segments):
    with multiprocessing.pool.ThreadPool(2) as pool:
        assert np.array_equal(
            refhmc.sample(normal, executor=pool, progressbar=False, raw=True, **RUN).draws, expected.draws
        )


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_an_executor_shows_progress_and_keeps_to_the_time(normal, short_segments):
    told = []
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        begin = time.monotonic()
        result = refhmc.sample(normal, executor=pool, progressbar=told.append, raw=True, max_seconds=0.5, **LONG)
    assert result.attributes["stopped_by"] == "time"
    assert time.monotonic() - begin < 30
    done = np.array([report.draws_done.sum() for report in told])
    assert len(set(done)) > 2
    assert np.all(np.diff(done) >= 0)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_ctrl_c_with_an_executor_keeps_whole_draws(normal, short_segments):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        stopped = refhmc.sample(normal, executor=pool, progressbar=stop_after(300), raw=True, **LONG)
        n = stopped.draws.shape[1]
        same = refhmc.sample(normal, progressbar=False, raw=True, **{**LONG, "draws": n})
    assert stopped.attributes["stopped_by"] == "interrupt"
    assert n > 0
    assert np.array_equal(stopped.draws, same.draws[stopped.attributes["chains"]])


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_a_model_that_cannot_be_sent_is_named():
    model = refhmc.Model(2, lambda q, data: -0.5 * float(q @ q), lambda q, data: -q, in_python="a test", name="mine")
    words = "'mine'.* workers.* module"
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool, pytest.raises(SamplingError, match=words):
        refhmc.sample(model, executor=pool, progressbar=False, **RUN)


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
def test_a_checkpoint_is_written_by_the_run_and_not_by_its_workers(normal, expected, short_segments, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        options = {**RUN, "progressbar": False, "raw": True, "checkpoint": tmp_path, "executor": pool}
        refhmc.sample(normal, **{**options, "draws": 77})
        assert np.array_equal(refhmc.sample(normal, **options).draws, expected.draws)
    assert np.array_equal(refhmc.sample(normal, **{**options, "executor": None}).draws, expected.draws)


# --------------------------------------------------------------------------------------------------------- Jupyter


@pytest.mark.sweep
def test_stop_and_interrupt_work_in_jupyter():
    """In a Jupyter kernel, interrupting a cell returns the draws so far, and a run in the background continues while other
    cells run, one of which stops it."""
    client = pytest.importorskip("jupyter_client", reason="needs jupyter_client and ipykernel")
    pytest.importorskip("ipykernel", reason="needs ipykernel")
    manager, kernel = client.manager.start_new_kernel(
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    )

    def run(text, during=lambda: None):
        told = []
        sent = kernel.execute(textwrap.dedent(text))
        during()
        while True:
            message = kernel.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != sent:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":
                told.append(content["text"])
            if kind == "error":
                raise AssertionError(content["traceback"])
            if kind == "status" and content["execution_state"] == "idle":
                return "".join(told)

    def interrupt():
        time.sleep(3.0)
        manager.interrupt_kernel()

    try:
        run(
            """
            import refhmc, time
            model, kernel = refhmc.models.Banana(), refhmc.HMC(n_steps=1000)
            options = dict(draws=10**6, chains=2, cores=2, random_seed=1, raw=True, progressbar=False)
            short = refhmc.sample(model, kernel, **{**options, "draws": 5})
            """
        )
        said = run(
            """
            result = refhmc.sample(model, kernel, **options)
            print(result.attributes["stopped_by"], 0 < result.draws.shape[1] < 10**6)
            """,
            interrupt,
        )
        assert said.split() == ["interrupt", "True"]
        assert run("run = refhmc.start(model, kernel, **options); print(run.finished)").split() == ["False"]
        assert run("time.sleep(1); print(run.peek().draws.shape[1] >= 0, run.finished)").split() == ["True", "False"]
        assert run("run.stop(); print(run.wait().attributes['stopped_by'])").split() == ["stop"]
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)


# ---------------------------------------------------------------------------------------------------------- warm-up


def test_a_warm_up_that_only_diverges_ends_the_chain():
    """The density is finite only at the starts of two of three chains."""

    def log_density(q, data):
        return -0.5 * float(q @ q) if abs(q[0]) > 5.0 or abs(q[0]) == 1.0 else -np.inf

    model = refhmc.Model(2, log_density, lambda q, data: -q, in_python="a test")
    options = {"tune": 60, "draws": 40, "chains": 3, "random_seed": 1, "progressbar": False, "preflight": False}
    starts = [[1.0, 0.0], [40.0, 0.0], [-1.0, 0.0]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(
            WarmupError, match="[Cc]hain 0.* 60 .*warm-up.*diverged|60 .*warm-up.*chain 0 diverged"
        ) as caught:
            refhmc.sample(model, refhmc.HMC(step_size=0.5, n_steps=3), initvals=starts, **options)
    assert caught.value.chain == 0
    assert caught.value.partial.attributes["failed_chains"] == [0, 2]
    assert caught.value.partial.attributes["chains"] == [1]
    assert caught.value.partial.draws.shape == (1, 40, 2)


@pytest.mark.parametrize("saved", [False, swept(True)])
def test_a_warm_up_mostly_without_a_metric_is_stopped_with_advice(saved, tmp_path):
    """G(q) = 1 - 4 q^2 under a standard normal: positive only between -1/2 and 1/2. The other kernel has SoftAbs. A run
    that was stopped in warm-up and taken up again has counted what came before."""
    normal = {"log_density": lambda q, data: -0.5 * float(q @ q), "gradient": lambda q, data: -q}

    def fisher(q, data):
        time.sleep(0.005 * saved)  # so that warm-up lasts until progress is looked at
        return np.array([[1.0 - 4.0 * q[0] ** 2]])

    model = refhmc.Model(
        1,
        **normal,
        in_python="a test",
        hessian=lambda q, data: -np.eye(1),
        hessian_contraction=lambda q, data, M: np.zeros(1),
        fisher=fisher,
        fisher_contraction=lambda q, data, M: np.array([-8.0 * q[0] * M[0, 0]]),
    )
    options = {
        "tune": 60,
        "draws": 5,
        "chains": 2,
        "random_seed": 1,
        "progressbar": False,
        "initvals": [0.0],
        "raw": True,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = refhmc.HMC(step_size=0.6, n_steps=4, metric=refhmc.metrics.Fisher())
        if saved:
            options["checkpoint"] = tmp_path / "run"
            refhmc.sample(model, kernel, **{**options, "progressbar": stop_after(5)})
        words = r"Fisher.*positive definite.* \d\d of 60 .*warm-up.*SoftAbs"
        with pytest.raises(WarmupError, match=words) as caught:
            refhmc.sample(model, kernel, **options)
        count = int(str(caught.value).split(" of 60")[0].split()[-1])
        assert 30 < count < 60
        assert caught.value.partial.attributes["warmup_divergences_per_chain"][caught.value.chain] >= count
        options.pop("checkpoint", None)
        soft = refhmc.HMC(step_size=0.6, n_steps=4, metric=refhmc.metrics.SoftAbs(1e6))
        assert refhmc.sample(model, soft, **options).draws.shape == (2, 5, 1)


def test_a_run_of_many_chains_in_the_background(normal):
    """The draws equal those of ``sample``; while the chains run, their draws can be seen."""
    more = {"progressbar": False, "raw": True, "backend": "arrays"}
    options = {"kernel": refhmc.HMC(n_steps=2), "tune": 50, "draws": 200, "chains": 3, "random_seed": 1, **more}
    expected = refhmc.sample(normal, **options)
    run = refhmc.start(normal, **options)
    result = run.wait()
    assert run.finished
    assert run.progress().draws_done.tolist() == [250] * 3
    assert np.array_equal(result.draws, expected.draws)
    endless = refhmc.start(normal, **{**options, "draws": 10**5, "tune": 0})
    while endless.progress().draws_done.min() < 20:
        time.sleep(0.01)
    seen = endless.peek().draws
    endless.stop()
    stopped = endless.wait()
    assert stopped.attributes["stopped_by"] == "stop"
    assert 20 <= seen.shape[1] <= stopped.draws.shape[1] < 10**5
    assert np.array_equal(stopped.draws[:, : seen.shape[1]], seen)
