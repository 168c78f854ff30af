"""Stops at any time: the saved state lies between two iterations, and no lock stays held."""

from __future__ import annotations

import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import threadpoolctl

import refhmc
from refhmc.errors import SamplingWarning, WorkerDied
from refhmc.sampling.chains import chain_pool, chain_run, engine, executors
from refhmc.sampling.checks import discontinuity, main_guard
from refhmc.sampling.run import Run
from refhmc.sampling.storage.store import StoredGroup
from tests.helpers.executors import Losing
from tests.helpers.sweeps import representatives, swept

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of this kind are not sent on Windows")
pytestmark = [
    pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning"),
    pytest.mark.filterwarnings("ignore::refhmc.errors.CheckpointWarning"),
]

RUN = {"draws": 40, "tune": 60, "chains": 1, "random_seed": 1, "raw": True, "progressbar": False, "preflight": False}
SCALES = np.array([0.1, 1.0, 3.0])
KERNELS = {
    "nuts": lambda: refhmc.NUTS(metric=refhmc.metrics.Diagonal()),
    "hmc": lambda: refhmc.HMC(n_steps=3, metric=refhmc.metrics.Diagonal()),
    "gibbs": lambda: refhmc.Gibbs({"a": refhmc.HMC(n_steps=2), "b": refhmc.NUTS()}),
}


class Counting:
    """A normal model that runs as Python. It stops its run, ``run``, in the gradient number ``at`` of a chain's thread."""

    def __init__(self, at=0):
        self.calls, self.at, self.ready, self.run = 0, at, threading.Event(), None
        sys.counting = self  # where a checkpoint does not look for what has changed

    def count(self):
        if threading.current_thread().name.startswith("refhmc-chain"):
            self.ready.wait()
            self.calls += 1
            if self.calls == self.at:
                self.run.stop()

    def sample(self, kernel, **options):
        self.run = refhmc.start(model(), kernel, **RUN | options)
        self.ready.set()
        return self.run.wait()


def log_density(q):
    return -0.5 * float(np.sum((q / SCALES) ** 2))


def gradient(q):
    sys.counting.count()
    return -q / SCALES**2


def model(value=log_density):
    return refhmc.Model(3, value, gradient, names=["a[0]", "a[1]", "b"], in_python="a test")


@pytest.mark.parametrize("which", representatives(KERNELS, ["nuts", "hmc"]))
def test_no_evaluation_is_begun_after_a_stop(which):
    """Stops at the start, in the search for a step size, on a trajectory, and at the end of a window."""
    for at in [*range(1, 12), *range(30, 500, 31)]:
        counting = Counting(at)
        counting.sample(KERNELS[which]())
        # Of several blocks one more: the log density at the block's new place.
        assert counting.calls - at <= (which == "gibbs"), at


@pytest.mark.parametrize("which", representatives(KERNELS, ["nuts"]))
def test_a_run_that_is_stopped_in_any_evaluation_goes_on_as_if_unbroken(which, tmp_path, monkeypatch):
    monkeypatch.setattr(chain_run, "PAUSE_EVERY", 0.002)
    options = {"tune": 31, "draws": 5, "save_warmup": True}  # the last window ends where warm-up does
    unbroken = Counting()
    expected = unbroken.sample(KERNELS[which](), **options)
    for at in range(1, unbroken.calls, max(1, unbroken.calls // 25)):
        folder = tmp_path / str(at)
        Counting(at).sample(KERNELS[which](), **options, checkpoint=folder)
        result = Counting().sample(KERNELS[which](), **options, checkpoint=folder)
        for group in ("unconstrained_posterior", "warmup_unconstrained_posterior", "sample_stats"):
            for name, values in expected.groups[group].items():
                assert np.array_equal(values, result.groups[group][name], equal_nan=True), (at, name)


def test_the_state_of_a_stop_is_made_with_one_thread_of_linear_algebra(tmp_path):
    """A second Ctrl-C leaves the call at once. The state after the last draw is then recomputed with the same rounding."""
    seen, late, raised = set(), threading.Event(), []

    def gradient(q):
        if raised and threading.current_thread().name.startswith("refhmc-chain"):
            late.wait(10)
            # The number of OpenMP threads, if a test has loaded that library, belongs to the thread.
            seen.update(each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas")
        return -q

    def callback(report):
        if report.draws_done.max() >= 20:
            raised.append(True)
            raise KeyboardInterrupt

    model = refhmc.Model(2, lambda q: -0.5 * float(q @ q), gradient, in_python="a test")
    options = {**RUN, "draws": 10**6, "tune": 0, "progressbar": callback, "checkpoint": tmp_path}
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threadpoolctl.threadpool_info()
        with pytest.raises(KeyboardInterrupt):
            refhmc.sample(model, KERNELS["hmc"](), **options)
        late.set()
        for thread in threading.enumerate():
            if thread.name == "refhmc-run":
                thread.join()
        assert seen == {1}
        assert threadpoolctl.threadpool_info() == before


@pytest.mark.parametrize("at", ["before", "after"])
def test_ctrl_c_when_the_chains_are_begun_leaves_the_folder_to_the_next_call(at, tmp_path, monkeypatch):
    begin, left = Run._begin_drawing, [2]

    def interrupted(self):
        if left[0]:
            left[0] -= 1
            if at == "after":
                begin(self)
            raise KeyboardInterrupt
        return begin(self)

    monkeypatch.setattr(Run, "_begin_drawing", interrupted)
    counting = Counting()
    counting.ready.set()
    with pytest.raises(KeyboardInterrupt) as caught:
        refhmc.sample(model(), KERNELS["hmc"](), **RUN, checkpoint=tmp_path)
    for thread in threading.enumerate():
        if thread.name == "refhmc-run":
            thread.join()
    result = refhmc.sample(model(), KERNELS["hmc"](), **RUN, checkpoint=tmp_path)
    assert result.draws.shape[:2] == (1, RUN["draws"])
    assert caught.value.partial is not None  # which keeps the run that was interrupted


@posix
def test_ctrl_c_does_not_interrupt_zarr():
    """An interrupted call could leave a lock of Zarr held, so that the next call would wait forever."""
    whole = []

    class Array:
        chunks, shape = (1, 4, 1), (1, 4, 1)

        def __getitem__(self, place):
            os.kill(os.getpid(), signal.SIGINT)
            whole.append(sum(range(1000)))
            return np.zeros((4, 1))

    class Group(StoredGroup):
        def file_of(self, key, chain, j):
            return None

    with pytest.raises(KeyboardInterrupt):
        Group("folder", "posterior", {"q": Array()}, [0], 4).read("q", 0, slice(0, 4))
    assert whole


# ------------------------------------------------------------------------------------------------- time, and hanging


IMPORTS = """
import signal, sys
import refhmc

where, seen = sys.argv[1], []

class Interrupting:  # a finder that sends Ctrl-C in the middle of the imports
    def find_spec(self, name, path=None, target=None):
        if name == where:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

def look(report):
    seen.append(set(sys.modules))

sys.meta_path.insert(0, Interrupting())
options = {"draws": 200, "tune": 200, "random_seed": 1, "progressbar": look}
try:
    refhmc.sample(refhmc.models.EightSchools(), **options)
except KeyboardInterrupt:
    print("interrupted after", len(seen), "reports")
seen.clear()
tree = refhmc.sample(refhmc.models.EightSchools(), **options)
print(tree["posterior"]["tau"].shape, len(set(sys.modules) - seen[0]))
"""


@pytest.mark.parametrize("where", ["xarray", swept("pandas")])
def test_ctrl_c_while_packages_are_imported_leaves_them_whole(where):
    """All packages are imported before the first draw; Ctrl-C comes when they are complete, and the next call works."""
    told = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTS, where], capture_output=True, text=True, timeout=300, check=False
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.split("\n")[:2] == ["interrupted after 0 reports", "(4, 200) 0"]


def test_the_review_evaluates_the_model_at_most_100_times_and_counts_it():
    for kernel in (refhmc.NUTS(step_size=0.3), refhmc.HMC(n_steps=3, step_size=0.3)):
        calls = [0]

        def gradient(q, calls=calls):
            calls[0] += threading.current_thread() is threading.main_thread()
            return -q - 0.4 * q**3

        model = refhmc.Model(3, lambda q: -0.5 * float(q @ q) - 0.1 * float(np.sum(q**4)), gradient, in_python="a test")
        run = refhmc.start(model, kernel, **RUN | {"tune": 0, "draws": 300, "chains": 4})
        before = calls[0]
        result = run.wait()
        assert 0 < calls[0] - before <= 100
        assert result.attributes["review_evaluations"] == calls[0] - before


def spend_all(budget, evaluate):
    for _ in range(101):
        budget.spend(evaluate, 0.0)


def test_the_review_takes_at_most_a_twentieth_of_the_runs_time(monkeypatch):
    """An evaluation advances the clock of the test by two seconds."""
    now = [0.0]
    monkeypatch.setattr(discontinuity.time, "monotonic", lambda: now[0])
    budget = discontinuity.Budget(seconds=200.0, cost=2.0)

    def evaluate(q):
        now[0] += 2.0
        return q

    with pytest.raises(discontinuity.SpentError):
        spend_all(budget, evaluate)
    assert now[0] == 10.0
    assert re.search("5 evaluations.* 5 % of the run", discontinuity.cut_off(budget)[0])
    cheap = discontinuity.Budget(seconds=200.0, cost=0.0)
    with pytest.raises(discontinuity.SpentError):
        spend_all(cheap, lambda q: q)
    assert cheap.made == 100
    assert discontinuity.cut_off(cheap) == []


def test_a_model_that_hangs_after_a_stop_is_reported_with_its_position(monkeypatch):
    """The warning comes while the run is being waited for, before the chain is left behind."""
    monkeypatch.setattr(engine, "SILENT", 0.1)
    monkeypatch.setattr(chain_pool, "GRACE", 3.0)
    release, where, counting = threading.Event(), [], Counting()

    def log_density(q):
        if threading.current_thread().name == "refhmc-chain-0" and counting.calls == 50:
            where.append(q.copy())
            counting.run.stop()
            release.wait(60)
        return -0.5 * float(np.sum((q / SCALES) ** 2))

    counting.run = refhmc.start(model(log_density), KERNELS["hmc"](), **RUN)
    counting.ready.set()
    try:
        with pytest.warns(SamplingWarning) as seen:
            result = counting.run.wait()
    finally:
        release.set()
    texts = [str(each.message) for each in seen if "did not return" in str(each.message)]
    assert [re.search(r"within ([\d.]+) s", text)[1] for text in texts] == ["0.1", "3"]
    position = np.array2string(where[0], precision=6)
    assert all(text.startswith("Chain 0") and f"q = {position}" in text for text in texts)
    assert texts[0] not in result.warnings
    assert texts[1] in result.warnings


# --------------------------------------------------------------------------------------------------------- executors

SCRIPT = """
import concurrent.futures, multiprocessing, refhmc
with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
    refhmc.sample(refhmc.models.EightSchools(), draws=5, tune=5, chains=1, executor=pool, progressbar=False)
"""


@pytest.mark.sweep
def test_a_script_without_a_guard_is_told_what_to_write(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "WorkerDied: " in last
    assert str(script) in last
    assert 'if __name__ == "__main__":' in last


@pytest.mark.parametrize(
    ("text", "guarded"),
    [
        (SCRIPT, False),
        ('x = __name__\nif "__main__":\n    pass\n', False),
        ('if __name__ == "__main__":\n    main()\n', True),
        ('if "__main__" == __name__ and True:\n    main()\n', True),
        ("no python (", True),
    ],
)
def test_a_guard_is_found_in_the_script(text, guarded, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(text)
    assert main_guard.is_guarded(str(script)) is guarded


def test_a_pool_that_breaks_later_is_not_blamed_on_the_script(monkeypatch):
    """A worker that has answered before had started its process."""
    monkeypatch.setattr(executors, "without_guard", lambda executor: "the script has no guard")

    monkeypatch.setattr(executors, "LEAST", 0.001)
    options, schools = {**RUN, "draws": 10**5, "tune": 0}, refhmc.models.EightSchools()
    broken = concurrent.futures.BrokenExecutor("broken")
    for first, words in ((0, "the script has no guard"), (1, "was lost 2 times")):
        with pytest.raises(WorkerDied, match=words):
            refhmc.sample(
                schools,
                refhmc.HMC(n_steps=3, step_size=0.1),
                executor=Losing(lambda number, job, first=first: number > first, broken),
                **options,
            )


# ------------------------------------------------------------------------------------------------------------ arrays


@pytest.mark.parametrize("tune", [0, 40])
def test_ctrl_c_in_any_evaluation_of_many_chains_gives_a_result(tune):
    model = refhmc.models.Funnel()
    text = model.on_arrays(np)
    for at in [*range(1, 14), 40, 90]:
        calls = [0]

        class Interrupting:
            def __getattr__(self, name):
                return getattr(text, name)

            def value_and_gradient(self, q, calls=calls, at=at):
                calls[0] += 1
                if calls[0] == at:
                    raise KeyboardInterrupt
                return text.value_and_gradient(q)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(model), "on_arrays", lambda self, xp=np: Interrupting())
            try:
                result = refhmc.sample(
                    model, refhmc.HMC(n_steps=4), **RUN | {"draws": 5, "tune": tune, "chains": 3}, backend="arrays"
                )
            except KeyboardInterrupt:  # before the chains exist
                assert at <= 5
                continue
        assert result.attributes["stopped_by"] == ("interrupt" if calls[0] >= at else "")
        assert result.attributes["n_gradient_evaluations"] >= 0


@pytest.mark.parametrize("tune", [0, 40])
def test_a_time_limit_ends_many_chains_within_an_evaluation(tune, monkeypatch):
    """Each evaluation advances the clock of the test by a second."""
    from refhmc.batch import draw
    from refhmc.sampling import progress

    now, model = [0.0], refhmc.models.Funnel()
    text = model.on_arrays(np)

    class Slow:
        def __getattr__(self, name):
            return getattr(text, name)

        def value_and_gradient(self, q):
            now[0] += 1.0
            return text.value_and_gradient(q)

    monkeypatch.setattr(draw.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress.Progress, "seconds", property(lambda self: now[0]))
    monkeypatch.setattr(type(model), "on_arrays", lambda self, xp=np: Slow())
    for limit in (7.5, 20.5, 61.5):
        now[0] = 0.0
        options = {**RUN, "draws": 500, "tune": tune, "chains": 3, "max_seconds": limit, "backend": "arrays"}
        result = refhmc.sample(model, refhmc.HMC(n_steps=100), **options)
        assert result.attributes["stopped_by"] == "time"
        assert limit < now[0] <= limit + 1


# ------------------------------------------------------------------------------------------------------------- sweep


@posix
@pytest.mark.parametrize("stops", representatives([10, 100], []))
def test_runs_that_are_stopped_by_signals_at_random_times_are_unbroken(stops):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-m", "validation.stop_sweep", "--stops", str(stops), "--seed", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
