"""No draws are lost: however a run ends, its draws are in the result or in the exception's ``partial``."""

from __future__ import annotations

import concurrent.futures
import errno
import importlib
import itertools
import json
import linecache
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import refhmc
from refhmc.errors import SamplingError, SamplingWarning, SaveError, WorkerDied
from refhmc.sampling import interruption, run
from refhmc.sampling.chains import chain_run
from refhmc.sampling.progress import Progress
from refhmc.sampling.results import rectangle, run_warnings
from refhmc.sampling.storage import checkpoint, files
from tests.helpers.executors import Losing
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import one_in, swept

RUN = {"draws": 120, "tune": 100, "chains": 4, "random_seed": 20261122}
LONG = {**RUN, "draws": 1_000_000, "cores": 4, "kernel": refhmc.HMC(n_steps=1000)}  # minutes, if nothing stops it
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of this kind are not sent on Windows")


class Injected(Exception):
    pass


def raising(error):
    def function(*arguments, **options):
        raise error

    return function


@pytest.fixture(scope="module")
def expected(normal):
    return refhmc.sample(normal, progressbar=False, raw=True, **RUN)


@pytest.fixture
def constrained(normal, monkeypatch):
    """The model ``normal`` with a ``constrain`` that works for one position and raises for the draws of a run."""

    def made(error):
        ended = []

        def constrain(q):
            ended.extend([True] * (q.ndim == 2 and len(q) > 10))
            if ended:
                raise error
            return {"a": q[..., 0], "b": q[..., 1]}

        monkeypatch.setattr(normal, "_constrain", constrain)
        return normal

    return made


# --------------------------------------------------------------------------------------------- after the last draw


@pytest.mark.parametrize("error", [Injected("no"), KeyboardInterrupt(), SystemExit(3), MemoryError()])
@pytest.mark.parametrize("raw", [True, False])
def test_a_constrain_that_raises_at_the_end(constrained, sample, expected, error, raw):
    model = constrained(error)
    with pytest.raises(type(error)) as caught:
        sample(model, **RUN, save_warmup=True, **({} if raw else {"raw": False}))
    partial = caught.value.partial
    assert np.array_equal(partial.draws, expected.draws)
    assert partial.posterior == {}
    for name, values in expected.sample_stats.items():
        assert np.array_equal(partial.sample_stats[name], values), name
    assert partial.groups["warmup_unconstrained_posterior"]["q"].shape == (4, 100, 2)
    attributes = json.loads(json.dumps(partial.attributes))
    assert (attributes["entropy"], attributes["draws_per_chain"]) == (RUN["random_seed"], [120] * 4)
    assert any("partial" in note for note in caught.value.__notes__)
    assert partial.to_arviz()["unconstrained_posterior"]["q"].shape == (4, 120, 2)


STEPS_AFTER_THE_LAST_DRAW = [
    (run, "put_posterior"),
    (run_warnings, "review"),
    (run_warnings, "failed_evaluations"),
    (run_warnings.discontinuity, "found"),
    (refhmc.sampling.results.result.Result, "to_arviz"),
]


@pytest.mark.parametrize(
    "error", [swept(Injected()), KeyboardInterrupt(), swept(MemoryError()), OSError(errno.ENOSPC, "full")]
)
@pytest.mark.parametrize(("owner", "name"), STEPS_AFTER_THE_LAST_DRAW, ids=lambda x: getattr(x, "__name__", x))
def test_every_step_after_the_last_draw_may_fail(normal, sample, expected, monkeypatch, owner, name, error):
    monkeypatch.setattr(owner, name, raising(error))
    if isinstance(error, KeyboardInterrupt) and name in ("review", "failed_evaluations", "found"):  # one, in the review
        with pytest.warns(SamplingWarning, match="ended the review"):
            whole = sample(normal, **RUN)
        assert np.array_equal(whole.draws, expected.draws)
        assert whole.attributes["stopped_by"] == "interrupt"
        return
    with pytest.raises(type(error)) as caught:
        refhmc.sample(normal, progressbar=False, **RUN)
    assert np.array_equal(caught.value.partial.draws, expected.draws)


def test_arrays_that_do_not_fit_leave_the_chains_themselves(normal, sample, expected, monkeypatch):
    monkeypatch.setattr(rectangle, "largest_rectangle", raising(MemoryError()))
    with pytest.raises(MemoryError) as caught:
        sample(normal, **RUN)
    assert caught.value.partial.groups == {}
    assert np.array_equal(np.stack(list(caught.value.partial.ragged.values())), expected.draws)


@pytest.mark.parametrize("backend", ["numba", swept("arrays")])
def test_each_warning_may_be_an_error(sample, backend):
    model, run = refhmc.models.Funnel(3), {**RUN, "draws": 300, "backend": backend}
    with pytest.warns(SamplingWarning):
        whole = sample(model, refhmc.NUTS(), **run)
    assert len(whole.warnings) >= 3
    for text in whole.warnings:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("error", message=text[:12].replace("(", r"\("))
            with pytest.raises(SamplingWarning) as caught:
                sample(model, refhmc.NUTS(), **run)
        assert np.array_equal(caught.value.partial.draws, whole.draws)
        assert caught.value.partial.warnings == whole.warnings
        assert caught.value.partial.posterior["v"].shape == (4, 300)


@pytest.mark.sweep
def test_a_jump_that_is_found_may_be_an_error(sample):
    model = refhmc.Model(
        1, lambda q, data: -0.5 * q[0] ** 2 - (2.0 if q[0] > 0.3 else 0.0), lambda q, data: -q, name="step"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", refhmc.errors.DiscontinuityWarning)
        with pytest.raises(refhmc.errors.DiscontinuityWarning) as caught:
            sample(model, **RUN)
    assert caught.value.partial.draws.shape == (4, 120, 1)


def refuse_arviz(monkeypatch):
    real = importlib.import_module

    def refuse(name, *arguments):
        if name.startswith(("arviz", "xarray")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", refuse)
    for name in [name for name in sys.modules if name.split(".")[0] in ("arviz", "arviz_base", "arviz_stats")]:
        monkeypatch.setitem(sys.modules, name, None)


def test_without_arviz_a_run_that_needs_it_does_not_begin(normal, sample, expected, monkeypatch):
    refuse_arviz(monkeypatch)
    assert np.array_equal(sample(normal, **RUN).draws, expected.draws)
    reports = []
    with pytest.raises(ImportError, match="pip install arviz"):
        refhmc.sample(normal, progressbar=reports.append, **RUN)
    assert not reports


def test_an_exception_that_takes_no_attribute_is_the_cause_of_one_that_does(constrained, sample, expected):
    class Closed(Exception):
        partial = property(lambda self: None)

    with pytest.raises(SamplingError, match="Closed: no") as caught:
        sample(constrained(Closed("no")), **RUN)
    assert isinstance(caught.value.__cause__, Closed)
    assert np.array_equal(caught.value.partial.draws, expected.draws)


ASSEMBLY = {
    *(f"sampling/{name}.py" for name in ("sample", "run", "interruption")),
    *(f"results/{name}.py" for name in ("rectangle", "run_warnings", "review", "result")),
    "chains/compiled_chains.py",
    "models/base.py",
}


def interrupted_at(line, run):
    """Call ``run(callback)`` with KeyboardInterrupt at the ``line``-th line of :data:`ASSEMBLY` after the last report.

    Return its result, or the one attached to its exception, and whether that line was reached.
    """
    passed = itertools.count(1)
    after = threading.Event()

    def trace(frame, event, argument):
        if "/".join(pathlib.Path(frame.f_code.co_filename).parts[-2:]) not in ASSEMBLY:
            return None
        if event == "line" and after.is_set():
            text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            if (
                text != "try:" and next(passed) == line
            ):  # Python looks for signals at calls, jumps and returns, not at "try:"
                raise KeyboardInterrupt
        return trace

    def callback(report):
        if report.finished:
            after.set()

    before, handler = sys.gettrace(), signal.getsignal(signal.SIGTERM)
    sys.settrace(trace)
    try:
        result = run(callback)
    except KeyboardInterrupt as stopped:
        result = stopped.partial
    finally:
        sys.settrace(before)
        signal.signal(signal.SIGTERM, handler)  # the line that puts it back may be the one that is interrupted
    return result, next(passed) > line


@pytest.mark.sweep
@pytest.mark.parametrize("every", [17, 1])
def test_ctrl_c_at_any_line_after_the_last_draw(normal, sample, expected, every):
    """Each run is interrupted at one line of the end of ``sample``, ``every`` lines after that of the run before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lines, more = 0, True
        while more:
            lines += every
            result, more = interrupted_at(lines, lambda callback: sample(normal, **RUN, progressbar=callback))
            assert np.array_equal(result.draws, expected.draws), lines
            if not more:
                assert np.array_equal(result.posterior["a"], expected.posterior["a"])
    assert lines > 60


# ------------------------------------------------------------------------------------------- the progress callback


@pytest.mark.parametrize(
    ("error", "when"), one_in(9, [Injected("no"), SystemExit(1), GeneratorExit()], ["first", "middle", "last"])
)
def test_a_progress_callback_that_raises(normal, sample, when, error):
    run = RUN if when == "last" else LONG

    def callback(report):
        if when == "first" or (when == "middle" and report.draws_done.min() > 200) or report.finished:
            raise error

    with pytest.raises(type(error)) as caught:
        sample(normal, **run, progressbar=callback)
    partial = caught.value.partial
    counts, chosen = (partial.attributes[name] for name in ("draws_per_chain", "chains"))
    assert partial.draws.shape == (len(chosen), min(counts[k] for k in chosen), 2)
    if when == "middle":
        assert all(100 < n < LONG["draws"] for n in counts)
        assert partial.attributes["stopped_by"] == "error"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            same = sample(normal, **{**LONG, "draws": 100})
        assert np.array_equal(partial.draws[:, :100], same.draws[chosen])
    if when == "last":
        assert counts == [120] * 4


def test_a_display_that_raises_when_it_is_closed(normal, sample, expected, monkeypatch):
    display = refhmc.sampling.progress.make_display(False)
    monkeypatch.setattr(display, "close", raising(Injected()), raising=False)
    monkeypatch.setattr(refhmc.sampling.begin, "make_display", lambda progressbar: display)
    with pytest.raises(Injected) as caught:
        sample(normal, **RUN)
    assert np.array_equal(caught.value.partial.draws, expected.draws)


def test_a_second_ctrl_c_has_the_draws_so_far_of_chains_that_do_not_return(sample):
    release = threading.Event()

    def log_density(q, data):
        if release is not None and log_density.calls > 400:
            release.wait(60)
        log_density.calls += 1
        return -0.5 * float(q @ q)

    log_density.calls = 0

    def twice(report):
        if report.draws_done.sum() > 20 and log_density.calls > 400:
            raise KeyboardInterrupt

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = refhmc.Model(2, log_density, lambda q, data: -q, data={"python": True})
        try:
            with pytest.raises(KeyboardInterrupt) as caught:
                sample(
                    model,
                    refhmc.HMC(step_size=0.3, n_steps=2),
                    draws=10_000,
                    tune=0,
                    chains=2,
                    cores=1,
                    random_seed=1,
                    progressbar=twice,
                )
        finally:
            release.set()
    partial = caught.value.partial
    assert partial.attributes["stopped_by"] == "interrupt"
    assert partial.attributes["chains"] == [0]
    assert 20 < partial.draws.shape[1] < 10_000
    assert np.all(np.isfinite(partial.draws))
    assert partial.sample_stats["lp"].shape == partial.draws.shape[:2]
    assert np.allclose(partial.sample_stats["lp"], -0.5 * np.sum(partial.draws**2, axis=2))


# ------------------------------------------------------------------------------------------------ checkpoint, disk


def test_a_full_disk_in_the_last_save(normal, sample, expected, tmp_path, monkeypatch):
    real = files.write_atomically

    def full(path, content):
        if path.name.startswith("chain"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomically", full)
        with pytest.raises(
            SaveError,
            match="checkpoint of chain 0, chain 1, chain 2(,| and) chain 3 could not be written.*No space left",
        ) as caught:
            sample(normal, **RUN, checkpoint=tmp_path)
    assert np.array_equal(caught.value.partial.draws, expected.draws)
    again = sample(normal, **RUN, checkpoint=tmp_path)
    assert np.array_equal(again.draws, expected.draws)


def test_a_disk_that_is_full_for_a_while_does_not_stop_the_run(sample, tmp_path, monkeypatch):
    """Evaluations wait, for at most a minute in total, until writing has been tried three times."""
    real, tries = files.write_atomically, []

    def full_at_first(path, content):
        if path.name.startswith("chain"):
            tries.append(path.name)
            if len(tries) <= 2:
                raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    def log_density(q, data):
        time.sleep(0.05 if len(tries) < 3 else 0.0)
        return -0.5 * float(np.sum(q * q))

    monkeypatch.setattr(chain_run, "PAUSE_EVERY", 0.01)
    monkeypatch.setattr(checkpoint, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(files, "write_atomically", full_at_first)
    model = refhmc.Model(2, log_density, lambda q, data: -q, in_python="a test")
    kernel = refhmc.HMC(step_size=0.5, n_steps=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", refhmc.errors.CheckpointWarning)  # ``tries`` changes
        result = sample(model, kernel, draws=400, tune=0, chains=1, random_seed=1, checkpoint=tmp_path)
    assert result.draws.shape == (1, 400, 2)
    assert len(tries) > 3
    assert not any("checkpoint" in text for text in result.warnings)


@pytest.mark.parametrize("error", [MemoryError("no"), refhmc.errors.CheckpointError("chain-2.npz: no")])
def test_another_error_in_a_save_has_the_draws(normal, sample, expected, tmp_path, monkeypatch, error):
    real = checkpoint.Checkpoint.save

    def save(self, chain, *arguments, **options):
        if chain == 2:
            raise error
        return real(self, chain, *arguments, **options)

    monkeypatch.setattr(checkpoint.Checkpoint, "save", save)
    with pytest.raises((SamplingError, refhmc.errors.CheckpointError), match="no") as caught:
        sample(normal, **RUN, checkpoint=tmp_path)
    partial = caught.value.partial
    assert partial.attributes["failed_chains"] == [2]
    for chain in (0, 1, 3):
        draws = partial.ragged[chain] if partial.ragged else partial.draws[chain]
        assert np.array_equal(draws, expected.draws[chain])


# ------------------------------------------------------------------------------------------------------- executors


@pytest.mark.parametrize("bad", [0, 2, 3])
@pytest.mark.parametrize("error", [Injected("no"), concurrent.futures.BrokenExecutor("no"), MemoryError("no")])
def test_a_task_that_is_lost_does_not_take_the_others_with_it(normal, sample, expected, bad, error):
    words = f"chain {bad} was lost 2 times.*iteration 0.*{type(error).__name__}: no"
    with pytest.raises(WorkerDied, match=words) as caught:
        sample(normal, **RUN, executor=Losing(lambda number, job: job.chain == bad, error))
    assert caught.value.__cause__ is error
    assert (caught.value.chain, caught.value.last_iteration) == (bad, 0)
    partial = caught.value.partial
    assert partial.attributes["chains"] == [k for k in range(4) if k != bad]
    assert np.array_equal(partial.draws, expected.draws[partial.attributes["chains"]])


def test_an_executor_that_takes_no_tasks(normal, sample):
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="shutdown") as caught:
        sample(normal, **RUN, executor=pool)
    assert caught.value.partial.draws.shape == (4, 0, 2)


def test_ctrl_c_stops_chains_in_an_executor_of_threads(normal, sample):
    """The executor is closed during the first chain."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        result = sample(normal, **LONG, executor=pool, progressbar=stop_after(200))
    assert result.attributes["stopped_by"] == "interrupt"
    assert result.attributes["chains"] == [0]
    assert 100 < result.draws.shape[1] < LONG["draws"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same = sample(normal, **{**LONG, "draws": 100, "chains": 1})
    assert np.array_equal(result.draws[:, :100], same.draws)


# --------------------------------------------------------------------------------------------------------- SIGTERM


def stop_by(number, after=200):
    """Return a callback that sends this process a signal once."""
    told = []

    def callback(report):
        if not told and report.draws_done.min() > after:
            told.append(True)
            os.kill(os.getpid(), number)

    return callback


@posix
@pytest.mark.parametrize("handler", [swept(signal.SIG_DFL), "own"])
def test_sigterm_acts_as_ctrl_c(normal, sample, handler):
    called = []
    own = signal.SIG_DFL if handler is signal.SIG_DFL else lambda number, frame: called.append(number)
    before = signal.signal(signal.SIGTERM, own)
    try:
        result = sample(normal, **LONG, progressbar=stop_by(signal.SIGTERM))
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.attributes["stopped_by"] == "interrupt"
    assert 0 < result.draws.shape[1] < LONG["draws"]
    assert called == ([] if handler is signal.SIG_DFL else [signal.SIGTERM])


@posix
def test_sigterm_during_assembly_has_the_draws(normal, sample, expected, monkeypatch):
    def terminated(*arguments):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr(run_warnings, "review", terminated)
    with pytest.warns(SamplingWarning, match="ended the review"):
        result = sample(normal, **RUN)
    assert np.array_equal(result.draws, expected.draws)
    assert np.array_equal(result.posterior["a"], expected.posterior["a"])
    assert (result.interrupted, result.attributes["stopped_by"]) == (True, "interrupt")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
@pytest.mark.parametrize("backend", ["numba", "arrays"])
@pytest.mark.parametrize("step", ["put_posterior", "review"])
def test_the_first_ctrl_c_after_the_last_draw_gives_the_result_and_the_second_raises(
    normal, sample, monkeypatch, backend, step
):
    module = run if step == "put_posterior" else run_warnings
    own, sent = getattr(module, step), []

    def interrupted(*arguments):
        if len(sent) < most:
            sent.append(True)
            raise KeyboardInterrupt
        return own(*arguments)

    monkeypatch.setattr(module, step, interrupted)
    most, few = 1, {"draws": 120, "tune": 100, "chains": 2, "random_seed": 1, "backend": backend}
    result = sample(normal, **few)
    assert result.attributes["stopped_by"] == "interrupt"
    assert result.posterior["a"].shape == (2, 120)
    if step == "review":  # of the second one there is none
        return
    most = 3
    with pytest.raises(KeyboardInterrupt) as caught:
        sample(normal, **few)
    assert caught.value.partial.draws.shape == (2, 120, 2)


def test_a_callback_that_raises_leaves_no_chain_running_and_puts_the_handler_back(normal, sample):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Injected):
        sample(normal, **LONG, progressbar=raising(Injected()))
    assert not [t for t in threading.enumerate() if t.name.startswith("refhmc-chain") and t.is_alive()]
    assert signal.getsignal(signal.SIGTERM) is before


@posix
def test_sigterm_that_is_ignored_stays_ignored(normal, sample):
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        result = sample(normal, **{**RUN, "draws": 2000}, progressbar=stop_by(signal.SIGTERM, after=0))
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.draws.shape == (4, 2000, 2)


def test_in_another_thread_sigterm_is_left_alone(normal, sample, expected):
    before = signal.getsignal(signal.SIGTERM)
    seen, drawn = [], []

    def work():
        callback = lambda report: seen.append(signal.getsignal(signal.SIGTERM))  # noqa: E731
        drawn.append(sample(normal, **RUN, progressbar=callback).draws)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert np.array_equal(drawn[0], expected.draws)
    assert set(seen) == {before}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on Windows")
@pytest.mark.filterwarnings("ignore:This process")
def test_a_forked_child_is_ended_by_sigterm_as_ever():
    with interruption.sigterm_as_ctrl_c():
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_sigterm_inside_sigterm_is_put_back_in_order():
    before = signal.getsignal(signal.SIGTERM)
    with interruption.sigterm_as_ctrl_c():
        outer = signal.getsignal(signal.SIGTERM)
        with interruption.sigterm_as_ctrl_c():
            assert signal.getsignal(signal.SIGTERM) not in (before, outer)
        assert signal.getsignal(signal.SIGTERM) is outer
    assert signal.getsignal(signal.SIGTERM) is before


# ----------------------------------------------------------------------------------------------------- stopped early


@pytest.mark.parametrize("stop", ["interrupt", "time"])
def test_a_run_stopped_before_its_first_draw_says_so(sample, stop):
    def callback(report):
        if stop == "interrupt" and not report.finished and not told:
            told.append(True)
            raise KeyboardInterrupt

    told = []
    limit = {"max_seconds": 0.05} if stop == "time" else {}
    model = refhmc.models.Funnel(3)
    with pytest.warns(SamplingWarning, match="no draws.* warm-up"):
        result = sample(model, refhmc.NUTS(), **{**RUN, "tune": 3_000_000}, progressbar=callback, **limit)
    assert result.draws.shape == (4, 0, 4)
    assert result.attributes["stopped_by"] == stop
    done = result.attributes["iterations_per_chain"]
    (text,) = result.warnings
    assert f"chain 0: {done[0]}, chain 1: {done[1]}, chain 2: {done[2]}, chain 3: {done[3]}" in text
    assert "3000000" in text
    assert "save_warmup=True" in text
    assert "checkpoint=" in text
    result.to_arviz()


@pytest.mark.parametrize("backend", ["numba", "arrays"])
def test_of_a_run_stopped_in_warm_up_its_iterations_are_kept(sample, backend):
    """Chains run one after another; those that have not started do not remove the iterations of the others."""
    more = {"cores": 1} if backend == "numba" else {"backend": backend}
    run = {**RUN, **more, "tune": 100_000, "save_warmup": True}
    with pytest.warns(SamplingWarning, match="no draws.*Ctrl-C"):
        result = sample(refhmc.models.Funnel(3), refhmc.HMC(n_steps=100), **run, progressbar=stop_after(20))
    attributes, kept = result.attributes, result.groups["warmup_unconstrained_posterior"]["q"]
    done = np.array(attributes["iterations_per_chain"])
    assert done.max() >= 20
    assert attributes["chains"] == [0] if backend == "numba" else len(attributes["chains"]) > 0
    assert kept.shape == (len(attributes["chains"]), done[attributes["chains"]].min(), 4)
    assert np.all(np.any(np.diff(kept, axis=1) != 0, axis=(1, 2)))
    assert f"first {kept.shape[1]} iterations of chains {attributes['chains']}" in result.warnings[0]
    assert ("checkpoint" in result.warnings[0]) == (backend == "numba")
    result.to_arviz()


def test_the_warning_of_a_run_that_was_stopped_in_warm_up(monkeypatch):
    """Two chains take 10 ms and 20 ms per iteration and are stopped after 3 s."""
    progress = Progress(2, tune=1000, total=2000, workers=2)
    now, none = [0.0], np.zeros(2)
    monkeypatch.setattr(Progress, "seconds", property(lambda self: now[0]))
    for now[0] in np.arange(0.02, 3.001, 0.02).round(9):
        progress.report(np.array([round(now[0] / 0.01), round(now[0] / 0.02)]), none, none, none, none)
    about = {"draws_per_chain": [0, 0], "chains": [0, 1], "iterations_per_chain": [300, 150], "tuning_steps": 1000}
    about |= {"draws": 1000, "stopped_by": "time", "backend": "arrays"}
    result = refhmc.Result({}, about)
    (text,) = run_warnings.cut_short(result, progress)
    for words in (
        "no draws, because max_seconds stopped the run in warm-up after 3.0 s, at 150 iterations per second",
        "iterations of 1000: chain 0: 300, chain 1: 150",
        "takes about 20 s; raise max_seconds",
        "save_warmup=True",
    ):
        assert words in text
    result.groups["warmup_unconstrained_posterior"] = {"q": np.zeros((2, 150, 3))}
    kept = "first 150 iterations of chains [0, 1]"
    (text,) = run_warnings.cut_short(result, progress)
    assert kept in text
    assert "save_warmup" not in text
    about |= {"stopped_by": "interrupt", "backend": "numba"}
    (text,) = run_warnings.cut_short(result, Progress(2, tune=1000, total=2000, workers=2))
    assert "no draws, because Ctrl-C or SIGTERM stopped the run in warm-up (iterations of 1000: chain 0: 300" in text
    assert kept in text
    assert "checkpoint=FOLDER" in text
    assert "per second" not in text


def test_no_draws_that_were_asked_for_are_not_missed(normal, sample):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sample(normal, **{**RUN, "draws": 0}).warnings == []


@pytest.mark.sweep
def test_chains_left_out_are_named(normal, sample):
    told = []

    def callback(report):
        if not told and report.draws_done[0] > 5000:
            told.append(True)
            raise KeyboardInterrupt

    with pytest.warns(
        SamplingWarning,
        match=r"3 of 4 chains.*chain 1: 0 \(iteration 0 of 100 of warm-up\), chain 2: 0 \(it",
    ):
        result = sample(normal, **{**LONG, "cores": 1}, progressbar=callback)
    assert result.attributes["chains"] == [0]


# ------------------------------------------------------------------------------------------------- the command line

COMMAND = [sys.executable, "-m", "refhmc"]
SLOW = ["sample", "funnel", "--kernel", "hmc", "--n-steps", "100000", "--draws", "20000", "--tune", "10", "--seed", "1"]


@pytest.mark.parametrize(("stop", "status"), [swept("time", 1), ("interrupt", 130)])
def test_the_command_says_that_it_ended_in_warm_up(stop, status, monkeypatch, capsys, tmp_path):
    from refhmc.cli.main import main

    more = ["--max-seconds", "0.05"] if stop == "time" else []
    if stop == "interrupt":
        real = refhmc.sample
        monkeypatch.setattr(refhmc, "sample", lambda *given, **o: real(*given, **{**o, "progressbar": stop_after(1)}))
    out = tmp_path / "r.nc"
    assert main(["sample", "eight-schools", "--tune", "3000000", "--quiet", "--out", str(out), *more]) == status
    printed = capsys.readouterr()
    by = {"time": "max_seconds", "interrupt": "Ctrl-C or SIGTERM"}[stop]
    assert re.search(rf"warning: .*no draws.*{re.escape(by)}.* warm-up", printed.out)
    assert "divergences: 0 in draws, " in printed.out
    assert re.search("^refhmc: No draws.*--max-seconds" if stop == "time" else "^$", printed.err)
    assert out.stat().st_size > 0


@pytest.mark.sweep
@posix
@pytest.mark.parametrize("arguments", [["--help"], swept(["sample", "funnel", "--draws", "100", "--quiet"])])
def test_a_reader_who_goes_away_is_no_fault(arguments, tmp_path):
    out = tmp_path / "r.nc"
    more = ["--out", str(out)] if arguments[0] == "sample" else []
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [*COMMAND, *arguments, *more], stdout=write, stderr=subprocess.PIPE, text=True, timeout=300, check=False
    )
    os.close(write)
    assert process.stderr == ""
    assert process.returncode == 0
    assert not more or out.stat().st_size > 0


def test_the_command_writes_the_draws_of_a_run_that_failed(tmp_path, monkeypatch, capsys):
    from refhmc.cli.main import main

    monkeypatch.setattr(run_warnings, "review", raising(RuntimeError("of the review")))
    out = tmp_path / "r.nc"
    assert main(["sample", "funnel", "--draws", "100", "--tune", "50", "--quiet", "--out", str(out)]) == 1
    printed = capsys.readouterr()
    assert "true mean" in printed.out
    assert "RuntimeError: of the review" in printed.err
    assert out.stat().st_size > 0
