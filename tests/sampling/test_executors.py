"""Executors that lose segments, are silent or have long queues; what is sent to them; they are not closed."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import multiprocessing.pool
import warnings

import numpy as np
import pytest

import refhmc
from refhmc.errors import WorkerDied
from refhmc.sampling.chains import chain_run, executors
from tests.helpers.executors import OneThread, Workers, threads_of_linear_algebra
from tests.helpers.sweeps import one_in, representatives, swept

pytestmark = pytest.mark.filterwarnings("ignore")
RUN = {"draws": 60, "tune": 60, "chains": 12, "random_seed": 20261125, "raw": True, "progressbar": False}
SCHOOLS = refhmc.models.EightSchools()


@pytest.fixture(scope="module")
def expected():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return refhmc.sample(SCHOOLS, **RUN)


@pytest.fixture
def short_segments(monkeypatch):
    """Make segments so short that a chain of milliseconds has several: at most some ten draws, on any machine."""
    monkeypatch.setattr(chain_run, "SEGMENT", 3000)
    monkeypatch.setattr(executors, "LEAST", 0.001)
    monkeypatch.setattr(executors, "SHARE", 1e9)


@pytest.fixture
def simulated(monkeypatch, short_segments):
    """Run ``sample`` with simulated workers in simulated time."""

    def sample(workers, model=SCHOOLS, **options):
        monkeypatch.setattr(executors, "time", workers.time())
        monkeypatch.setattr(executors, "queue", workers.queue())
        return refhmc.sample(model, executor=workers, **{**RUN, **options})

    return sample


# ------------------------------------------------------------------------------------------------------ what is lost

LASTS = 9.0  # seconds of a task: as long as a segment may take where an iteration takes ten


@pytest.mark.parametrize(("own_queues", "tells"), one_in(4, [False, True], [False, True]))
def test_to_wait_behind_the_run_s_own_segments_is_not_loss(simulated, expected, own_queues, tells):
    """Twelve chains on one or two workers wait for minutes, longer than the timeout of a lost segment."""
    for n in (1, 2):
        workers = Workers(n, LASTS, own_queues=own_queues, tells=tells)
        result = simulated(workers)
        assert np.array_equal(result.draws, expected.draws)
        assert workers.copies() == 0
        assert workers.now > 12 / n * LASTS > executors.HEARTBEAT + 2 * LASTS


@pytest.mark.parametrize("own_queues", [False, swept(True)])
@pytest.mark.parametrize("at", representatives([1.0, 20.0, 40.0], [20.0]))
def test_a_worker_that_takes_its_task_with_it_loses_that_segment_only(simulated, expected, own_queues, at):
    """One of three workers becomes silent. The tasks in its queue are also lost, some of them twice."""
    workers = Workers(3, LASTS, own_queues=own_queues, gone_at={1: at})
    try:
        result = simulated(workers)
    except WorkerDied as died:
        assert own_queues
        result = died.partial
        assert 0 < len(result.attributes["chains"]) < 12
    else:
        assert workers.copies() >= 1
    assert own_queues or workers.copies() == 1
    n = result.draws.shape[1]  # a chain that was lost may have come nearly to its end
    assert own_queues or n == 60
    assert np.array_equal(result.draws, expected.draws[result.attributes["chains"], :n])


@pytest.mark.parametrize("n", representatives([2, 3, 5], [2, 3]))
@pytest.mark.parametrize("at", representatives([0.0, 12.0, 20.0, 40.0], [20.0]))
def test_a_dead_worker_that_still_receives_tasks_loses_nothing(simulated, expected, n, at):
    """Every n-th segment is reported as lost; two of them in a row may belong to one chain."""
    workers = Workers(n, LASTS, own_queues=True, gone_at={1: at}, says_so=True)
    result = simulated(workers)
    assert np.array_equal(result.draws, expected.draws)
    assert workers.copies() >= 1


@pytest.mark.parametrize("n", [2, swept(3), swept(12)])
def test_a_chain_that_ends_its_worker_ends_alone(simulated, expected, n):
    """All segments in flight are lost with it, also those sent again; alone, these chains complete."""
    workers = Workers(n, LASTS, deadly=3)
    with pytest.raises(WorkerDied, match="the worker is dead") as caught:
        simulated(workers)
    assert caught.value.chain == 3
    assert sum(job.chain == 3 for job in workers.jobs) == 2 * executors.TRIES
    partial = caught.value.partial
    drawn = partial.ragged or dict(zip(partial.attributes["chains"], partial.draws, strict=True))
    drawn = {chain: drawn.get(chain, []) for chain in range(12)}
    assert {chain: len(draws) for chain, draws in drawn.items()} == {chain: 60 * (chain != 3) for chain in range(12)}
    assert all(np.array_equal(draws, expected.draws[chain, : len(draws)]) for chain, draws in drawn.items())


@pytest.mark.parametrize("chains", [1, swept(4)])
@pytest.mark.parametrize("at", [0.0, 25.0])
def test_an_executor_that_goes_silent_is_not_waited_for_without_end(simulated, expected, chains, at):
    """As in a closed cluster or one without workers, each chain is sent again once and then ends with its draws."""
    workers = Workers(4, LASTS, gone_at=dict.fromkeys(range(4), at))
    with pytest.raises(WorkerDied, match="lost 2 times.* TimeoutError: .* 3") as caught:
        simulated(workers, chains=chains, draws=200_000)
    assert workers.now < at + LASTS + 2 * (executors.SILENCE + 2 * (executors.MOST + 10.0)) + 10
    drawn = caught.value.partial.ragged or dict(enumerate(caught.value.partial.draws))
    for chain, draws in drawn.items():
        assert np.array_equal(draws[:60], expected.draws[chain][: len(draws)])


@pytest.mark.sweep
def test_to_wait_behind_the_tasks_of_others_is_not_loss(simulated, expected):
    """The run waits five minutes for silent futures, and without limit for futures that report when they start."""
    workers = Workers(2, LASTS, busy=(0.0, 250.0))
    assert np.array_equal(simulated(workers, chains=4).draws, expected.draws[:4])
    assert workers.copies() == 0
    workers = Workers(1, LASTS, busy=(12.0, 5000.0), tells=True)
    assert np.array_equal(simulated(workers, chains=4).draws, expected.draws[:4])
    assert workers.copies() == 0
    assert workers.now > 5000.0


@pytest.mark.parametrize("copy_first", [False, swept(True)])
def test_a_segment_that_was_only_late_changes_nothing(monkeypatch, short_segments, expected, copy_first):
    """It returns before or after its copy; the later answer is discarded."""
    monkeypatch.setattr(executors, "HEARTBEAT", 0.05)
    monkeypatch.setattr(executors, "SILENCE", 0.05)
    monkeypatch.setattr(executors, "LONGEST_ITERATION", 0.0)
    monkeypatch.setattr(executors, "CLOCKS_EVERY", 0.01)

    class Late(Workers):
        """An executor that runs tasks at once, but returns the fourth one after or before its copy."""

        def __init__(self):
            super().__init__(1, 0.0)
            self.held = None

        def submit(self, function, job, *shared):
            future, self.jobs = concurrent.futures.Future(), [*self.jobs, job]
            answer = function(job._replace(process=-1), *shared)
            if self.held is None and len(self.jobs) == 8:
                self.held = job, future, answer
            elif self.held is not None and (job.chain, job.turn) == (self.held[0].chain, self.held[0].turn):
                _, first, its_answer = self.held
                both = [(first, its_answer), (future, answer)]
                for each, given in reversed(both) if copy_first else both:
                    each.set_result(given)
            else:
                future.set_result(answer)
            return future

    workers = Late()
    result = refhmc.sample(SCHOOLS, executor=workers, **{**RUN, "chains": 3, "draws": 300})
    assert workers.held is not None
    assert np.array_equal(result.draws[:, :60], expected.draws[:3])
    assert np.array_equal(result.draws, refhmc.sample(SCHOOLS, **{**RUN, "chains": 3, "draws": 300}).draws)


def test_an_iteration_that_exceeds_its_time_is_repeated_with_more_time(monkeypatch, short_segments):
    """A worker answers within a time that does not depend on the model."""
    monkeypatch.setattr(executors, "LONGEST_ITERATION", 0.0005)
    workers, times = concurrent.futures.ThreadPoolExecutor(1), []

    class Elsewhere:
        def submit(self, function, job, *shared):
            times.append(job.patience)
            return workers.submit(function, job._replace(process=-1), *shared)

    options = {**RUN, "chains": 1, "draws": 12, "tune": 6, "kernel": refhmc.HMC(n_steps=100_000)}
    result = refhmc.sample(SCHOOLS, executor=Elsewhere(), **options)
    workers.shutdown()
    assert max(times) > 0.0005
    whole = refhmc.sample(SCHOOLS, **options)
    assert np.array_equal(result.draws, whole.draws)
    assert result.attributes["n_gradient_evaluations"] == whole.attributes["n_gradient_evaluations"]


# ----------------------------------------------------------------------------------------------------- what is sent


@pytest.mark.parametrize(("n", "chains"), representatives([(1, 8), (3, 3), (3, 8)], [(3, 8)]))
@pytest.mark.parametrize("own_queues", [False, swept(True)])
def test_the_model_is_sent_once_to_each_worker(simulated, n, chains, own_queues):
    rng = np.random.default_rng(1)
    model = refhmc.models.LogisticRegression(rng.normal(size=(2000, 6)), (rng.random(2000) < 0.5).astype(float))
    workers = Workers(n, 1.0, own_queues=own_queues)
    options = {"chains": chains, "draws": 20, "tune": 30}
    result = simulated(workers, model, **options)
    assert np.array_equal(result.draws, refhmc.sample(model, **{**RUN, **options}).draws)
    assert 1 <= workers.models <= (n if not own_queues else 3 * n)
    large = np.array(workers.bytes) > 96_000  # the data's
    assert np.sum(large) == workers.models
    assert len(large) >= 2 * chains


def test_a_worker_that_forgets_the_run_is_sent_the_model_again(simulated, expected):
    """A worker keeps the models of four runs; here it forgets a model that is not sent with the task."""

    class Forgetful(Workers):
        def submit(self, function, job, *shared):
            def after_forgetting(job, *shared):
                if not shared:
                    self.kept[0].clear()
                return function(job, *shared)

            return super().submit(after_forgetting, job, *shared)

    workers = Forgetful(1, 1.0)
    assert np.array_equal(simulated(workers, chains=3).draws, expected.draws[:3])
    assert workers.models > 1


def test_threads_of_this_process_are_sent_nothing(short_segments, expected):
    class Counting(concurrent.futures.ThreadPoolExecutor):
        models = 0

        def submit(self, function, job, *shared):
            self.models += len(shared)
            return super().submit(function, job, *shared)

    with Counting(2) as pool:
        assert np.array_equal(refhmc.sample(SCHOOLS, executor=pool, **RUN).draws, expected.draws)
    assert pool.models == 0


# ------------------------------------------------------------------------------------------------- what is left alone


@pytest.mark.sweep
def test_an_executor_that_was_given_is_neither_closed_nor_entered_nor_made_again(short_segments, expected):
    """Only ``submit`` or ``apply_async`` of an executor is used, and it can be used afterwards."""
    used = set()

    class Watched:
        def __init__(self, pool, name):
            self._pool, self._name = pool, name

        def __getattribute__(self, name):
            if name.startswith("_"):
                return object.__getattribute__(self, name)
            used.add(name)
            if name != self._name:
                raise AttributeError(name)
            return getattr(self._pool, name)

        def __enter__(self):
            raise AssertionError("entered")

        def __call__(self):
            raise AssertionError("made again")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert np.array_equal(refhmc.sample(SCHOOLS, executor=Watched(pool, "submit"), **RUN).draws, expected.draws)
        assert pool.submit(abs, -1).result() == 1
    with multiprocessing.pool.ThreadPool(2) as pool:
        assert np.array_equal(
            refhmc.sample(SCHOOLS, executor=Watched(pool, "apply_async"), **RUN).draws, expected.draws
        )
        assert pool.apply(abs, (-1,)) == 1
    assert used == {"submit", "apply_async"}


@pytest.mark.sweep
@pytest.mark.parametrize("threads", [1, 2])
def test_workers_have_one_thread_of_linear_algebra(threads):
    """This holds even if the environment requests two threads; the model counts them in its worker."""
    options = {**RUN, "chains": 2, "kernel": refhmc.HMC(n_steps=3), "draws": 20, "tune": 20}
    model = OneThread().model()
    context = multiprocessing.get_context("spawn")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            patch.setenv(name, str(threads))
        with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            before = pool.submit(threads_of_linear_algebra).result()
            there = refhmc.sample(model, executor=pool, **options)
            assert pool.submit(threads_of_linear_algebra).result() == before
    assert max(before) == threads
    assert np.array_equal(there.draws, refhmc.sample(model, **options).draws)
