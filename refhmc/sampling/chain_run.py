"""One chain of a run: iterations at a time, state in, state out, in whatever thread or process.

A :class:`LiveChain` is a chain in the memory of this process. It makes iterations into rows until these are full, or until it
is asked to pause or to stop, and then says its state as plain data (:class:`refhmc.sampling.checkpoint.Saved`), from which
another, here or elsewhere, goes on bit for bit. :func:`run_chain` takes one through a whole run; :func:`run_segment` for some
seconds, as a task of an executor.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.adaptation import symptoms
from refhmc.adaptation.adapted import Adapted, adapted_of, begin_from
from refhmc.core.failures import Failure, FailureLog
from refhmc.core.records import (
    DRAWS_DONE,
    FAR_START,
    FIRST,
    LOOKED,
    N_CONTROL,
    PAUSE,
    STEP_SIZE,
    STOP,
    WARMUP_DIVERGENCES,
    WITHOUT_METRIC,
    records,
)
from refhmc.core.sample_stats import STATS, met_no_metric
from refhmc.errors import WarmupError
from refhmc.metrics import DiagonalSoftAbs, SoftAbs
from refhmc.models.base import Model
from refhmc.sampling import far_start
from refhmc.sampling.chain import Chain, Plan
from refhmc.sampling.checkpoint import Saved
from refhmc.sampling.initialization import Stopped, pathfinder_start, random_start
from refhmc.sampling.journal import Rows

if TYPE_CHECKING:
    from refhmc.sampling.keeper import Keeper

FEWEST_DIVERGENT = 50  # iterations of a warm-up of which all diverging is no chance
SCRATCH = 2**20  # bytes of iterations that are not kept, made at a time
SEGMENT = 2**26  # bytes of rows that a segment brings back at most
LONGEST_ITERATION = 10.0  # seconds of an iteration in a segment, until one has taken longer
PAUSE_EVERY = 0.5  # seconds between two states that are kept for a checkpoint


class ChainTask(NamedTuple):
    """What a chain is to do; picklable where its model is. ``adapted``: what its warm-up begins from. ``init``: as ``sample``
    has it. ``free_start``: the start is the default one, which may be replaced (:mod:`refhmc.sampling.far_start`)."""

    model: Model
    kernel: Any
    chain: int
    entropy: int
    start: np.ndarray | None
    draws: int
    tune: int
    keep_warmup: bool = False
    fuse: bool = False
    init: str = "uniform"
    adapted: Any = None
    free_start: bool = False

    @property
    def first(self) -> int:
        """The first iteration whose row is kept."""
        return 0 if self.keep_warmup else self.tune

    @property
    def total(self) -> int:
        return self.tune + self.draws


class ChainRun(NamedTuple):
    """What one chain brings back: plain arrays, so that it can come from another process."""

    rows: Rows  # of the iterations that were made and are in memory
    tune: int
    start: np.ndarray  # the position after warm-up
    control: np.ndarray
    error: BaseException | None = None
    error_position: np.ndarray | None = None
    failures: tuple[Failure, ...] = ()  # of this session, where the chain comes from a checkpoint
    unsaved: str = ""  # why what is on the disk is older than the rows
    lengths: tuple[tuple[str, float], ...] = ()  # trajectory lengths that warm-up learned: block, length
    adapted: dict[str, Adapted] | None = None  # of each block, where warm-up came to its end
    no_pathfinder: str = ""  # why the chain did not begin where Pathfinder, asked for, would have it
    left_behind: bool = False  # it did not come back from a call of the model

    @property
    def warm(self) -> int:
        """How many of the rows are of warm-up."""
        return min(max(self.tune - self.rows.first, 0), len(self.rows.draws))

    @property
    def draws(self) -> np.ndarray:
        return self.rows.draws[self.warm :]

    @property
    def stats(self) -> np.ndarray:
        return self.rows.stats[self.warm :]

    @property
    def warmup_draws(self) -> np.ndarray:
        return self.rows.draws[: self.warm]

    @property
    def warmup_stats(self) -> np.ndarray:
        return self.rows.stats[: self.warm]


def chain_generator(entropy: int, chain: int, *child: int) -> np.random.Generator:
    """The generator of chain k: PCG64(SeedSequence(entropy, spawn_key=(k,))), whatever else is run; that of Pathfinder, its
    first child: spawn_key=(k, 0)."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy, spawn_key=(chain, *child))))


class LiveChain:
    """A chain in this process; ``plan``: what all chains of the run need, ``control``: its counters."""

    def __init__(self, task: ChainTask, plan: Plan, control: np.ndarray) -> None:
        self.task, self.plan, self.control = task, plan, control
        self.whole_plan = plan  # that of the first attempt; ``plan`` is shorter in a second one
        self.rng = chain_generator(task.entropy, task.chain)
        self.chain = Chain(task.model, plan, self.rng)
        self.done, self.no_pathfinder = 0, ""
        self.start_of_draws = np.full(task.model.dim, np.nan)
        self.failures = FailureLog()

    def begin(self, saved: Saved | None = None) -> bool:
        """Put the chain where it was saved, or at its start; False if a stop came before that was found: it has no state then.

        Raises CheckpointError if what was saved is not this model's and kernel's.
        """
        if saved is None:
            self.control[DRAWS_DONE:] = 0
            if not self._find_start():
                return False
        else:
            self.done, self.start_of_draws, self.no_pathfinder = saved.done, saved.start_of_draws, saved.no_pathfinder
            self.control[DRAWS_DONE:] = saved.control[DRAWS_DONE:]
            if self.control[FAR_START] > 0 or self.plan is not self.whole_plan:
                self._make_chain()
            self.chain.restore(saved.state)
        self.failures = self.task.model.core.begin_failures(self.control)  # the tries for a start do not count
        return True

    def _find_start(self) -> bool:
        task = self.task
        try:
            q = self._own_start(self.rng)
        except Stopped:
            return False
        if task.init == "pathfinder":
            child = chain_generator(task.entropy, task.chain, 0)
            found, self.no_pathfinder = pathfinder_start(task.model, self.plan, q, child, task.chain, self.control)
            if found is None:
                return False
            q = found
        if self.control[STOP]:
            return False
        self.chain.start(q)
        if task.adapted is not None:
            begin_from(self.chain.blocks[0], task.adapted)
        if task.tune == 0:
            self.start_of_draws = self.chain.position.copy()
        return True

    def _own_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return the start that was given or, from ``rng``, a random one. Raises Stopped."""
        task = self.task
        return random_start(task.model, self.plan, rng, task.chain, self.control) if task.start is None else task.start

    @property
    def _next_look(self) -> int:
        """The iteration of warm-up after which the chain is looked at, in its first or its second attempt; 0: none."""
        restarted = max(int(self.control[FAR_START]), 0)
        after = far_start.look_after(self.task.tune - restarted)
        return restarted + after if after else 0

    def _look(self) -> bool:
        """Begin again if the start was hopeless, or raise WarmupError; False if a stop came before that was decided."""
        task, control = self.task, self.control
        symptom, tried, q = far_start.symptom_of(self.chain, control), "", None
        first_attempt = control[FAR_START] == 0 and task.init == "uniform"
        if symptom is not None and first_attempt and not len(task.model.discontinuous):
            child = chain_generator(task.entropy, task.chain, 0)
            try:
                begin = self._own_start(chain_generator(task.entropy, task.chain))
            except Stopped:
                return False
            q, tried = far_start.far_better(
                task.model, self.plan, begin, self.chain.position, child, task.chain, control
            )
            if q is None and not tried:
                return False
        control[LOOKED] = self.done
        if q is not None and task.free_start:
            control[FAR_START] = self.done
            self._make_chain()
            self.chain.start(q)
            self.failures = task.model.core.begin_failures(control)
            return True
        if q is not None:
            control[FAR_START] = -self.done
        if symptom is not None and symptom.ends(self.done, task.tune, better=q is not None):
            raise self._hopeless(symptom, tried)
        return True

    def _hopeless(self, symptom: symptoms.Symptom, tried: str = "") -> WarmupError:
        """The error that ends a chain; ``tried``: what became of the search for another start."""
        task, restarted = self.task, int(self.control[FAR_START])
        if restarted > 0:
            tried = f", though it began again after {restarted} where Pathfinder found a far higher log density"
        suggest = task.init == "uniform" and not len(task.model.discontinuous) and (restarted < 0 or not tried)
        text = far_start.error_text(symptom, self.done, tried, suggest)
        return WarmupError(f"chain {task.chain}: {text}", task.chain)

    def _make_chain(self) -> None:
        """Make the chain of the present attempt; a second attempt has what the first has left of warm-up."""
        restarted, plan = max(int(self.control[FAR_START]), 0), self.whole_plan
        self.plan = far_start.shortened(plan, self.task.tune - restarted) if restarted else plan
        self.chain = Chain(self.task.model, self.plan, self.rng)

    def advance(self, rows: Rows) -> bool:
        """Iterations until the end of ``rows``, into them from their first one on; False if a pause or a stop came before."""
        dim, n_stats = self.task.model.dim, self.plan.n_stats
        n = min(max(SCRATCH // (8 * (dim + n_stats)), 1), max(rows.first - self.done, 0))
        scratch = Rows(0, np.empty((n, dim)), np.empty((n, n_stats)))
        while self.done < rows.end:
            if 0 < self.done == self._next_look != self.control[LOOKED] and not self._look():
                return False
            end = rows.end if self.done >= rows.first else min(self.done + n, rows.first)
            if self.done < self.task.tune:
                look = self._next_look
                end = min(end, look if self.done < look else self.task.tune)
            into = rows if self.done >= rows.first else scratch._replace(first=self.done)
            into = into.between(self.done, end)
            made = self.chain.run(into.draws, into.stats, self.control)
            if self.done < self.task.tune:
                self.control[WITHOUT_METRIC] += self._without_metric(into.stats[:made])
            self.done += made
            if self.done == self.task.tune:
                self.start_of_draws = self.chain.position.copy()
                self._refuse_warmup_without_metric()
                self._refuse_divergent_warmup()
                self._refuse_hopeless_warmup()
            if self.done < end:
                return False
        return True

    def _without_metric(self, rows: np.ndarray) -> int:
        """In how many of the iterations a metric that depends on the position was not positive definite where it was asked for;
        0 for one that is so everywhere."""
        metric = self.plan.blocks[0].dynamics.metric
        if not (self.chain.alone and metric.position_dependent) or isinstance(metric, SoftAbs | DiagonalSoftAbs):
            return 0
        return int(met_no_metric(records(rows, STATS)).sum())

    def _refuse_warmup_without_metric(self) -> None:
        """After the last iteration of warm-up: raise WarmupError if in more than half of it there was no metric."""
        tune, count = self.task.tune, int(self.control[WITHOUT_METRIC])
        if tune < FEWEST_DIVERGENT or 2 * count <= tune:
            return
        name = type(self.plan.blocks[0].dynamics.metric).__name__
        raise WarmupError(
            f"chain {self.task.chain}: {name} was not positive definite in {count} of {tune} transitions of warm-up, each of "
            "which diverged. Take refhmc.metrics.SoftAbs(), which is positive definite everywhere, or start elsewhere",
            self.task.chain,
        )

    def _refuse_divergent_warmup(self) -> None:
        """After the last iteration of warm-up: raise WarmupError if each one has diverged."""
        tune = self.task.tune
        alone = self.chain.alone  # of several blocks others may move
        if not alone or tune < FEWEST_DIVERGENT or self.control[WARMUP_DIVERGENCES] < tune:
            return
        step = float(self.control.view(float)[STEP_SIZE])
        raise WarmupError(
            f"chain {self.task.chain}: all {tune} transitions of warm-up diverged (the step size came to {step:.3g}), so that "
            "its draws would all be its start. Is the gradient right, and the density finite around the start? A metric "
            "that is not positive definite there diverges, too: SoftAbs always is",
            self.task.chain,
        )

    def _refuse_hopeless_warmup(self) -> None:
        """After the last iteration of warm-up: raise WarmupError if no draw can be of use."""
        if self.task.tune < symptoms.FEWEST or self.task.draws == 0:
            return
        symptom = far_start.symptom_of(self.chain, self.control)
        if symptom is not None and symptom.ends(self.done, self.task.tune):
            raise self._hopeless(symptom)

    def saved(self) -> Saved:
        """The state, between two iterations: not after a stop, which may come in the middle of one."""
        return Saved(self.chain.to_bytes(), self.done, self.start_of_draws, self.control.copy(), self.no_pathfinder)

    def saved_after(self, done: int, earlier: Saved) -> Saved:
        """The state after so many iterations, made anew from an earlier one. The chain's own counters stay as they are."""
        own, self.control = self.control, earlier.control.copy()
        self.control[[STOP, PAUSE]] = 0
        failures = self.failures
        try:
            self.begin(earlier)
            nothing = np.empty((0, self.task.model.dim)), np.empty((0, self.plan.n_stats))
            self.advance(Rows(done, *nothing))
            return self.saved()
        finally:
            self.control, self.failures = own, failures

    def brought_back(self, rows: Rows, error: BaseException | None, position: np.ndarray | None) -> ChainRun:
        """After ``control[DRAWS_DONE]`` iterations, of which ``rows`` are in memory."""
        at_draws = int(self.control[DRAWS_DONE]) >= self.task.tune
        return ChainRun(
            rows,
            self.task.tune,
            self.start_of_draws,
            self.control,
            error,
            position,
            tuple(self.failures.found.values()),
            "",
            self.chain.lengths(),
            {block.plan.name: adapted_of(block) for block in self.chain.blocks} if at_draws else None,
            self.no_pathfinder,
        )


def run_chain(task: ChainTask, plan: Plan, keeper: Keeper, control: np.ndarray) -> ChainRun:
    """One chain from its start, or from where it was saved, to its last draw, in this thread. What the model raises is brought
    back.

    Where something is kept on the disk the loop pauses twice a second, after an iteration; the state there is kept, and is
    written every few seconds. A stop may come in the middle of an iteration: then the state after the one before it is made
    anew from the one kept last.
    """
    live = LiveChain(task, plan, control)
    saved, error, position = keeper.saved, None, None
    try:
        if live.begin(saved):
            control[FIRST] = live.done
            saved = live.saved() if keeper.on_disk else None
            with pausing(control) if keeper.on_disk else contextlib.nullcontext():
                while live.done < task.total and not control[STOP]:
                    if keeper.make_room(live.done):
                        saved = live.saved()
                        keeper.save(saved)
                    whole = live.advance(keeper.rows)
                    control[PAUSE] = 0
                    # Not wherever the rows are full, which is every few milliseconds: when asked to pause, and at the end.
                    occasion = not whole or live.done >= task.total
                    # A stop may have cut off the search for a step size with which an iteration of warm-up ends.
                    if keeper.on_disk and occasion and not control[STOP]:
                        saved = live.saved()
                        keeper.save(saved)
    except BaseException as caught:  # brought to the caller, who raises it with the draws attached
        error, position = caught, task.model.core.last_position.get(threading.get_ident())
    made = int(control[DRAWS_DONE])
    run = live.brought_back(keeper.made(made), error, position)
    try:
        if saved is not None and keeper.on_disk:
            if saved.done < made:
                # Should the model raise where it did not before, the older state stays.
                with contextlib.suppress(Exception):
                    saved = live.saved_after(made, saved)
            keeper.close(saved)
    except BaseException as caught:
        run = run._replace(error=error or caught)
    return run._replace(rows=keeper.made(made), unsaved=keeper.unsaved or keeper.unstored)


class Segment(NamedTuple):
    """Some iterations of a chain as they come back from an executor: the run so far, with the rows of these alone; the state
    after them, None where the chain has none yet; how long they took, and all beside them: to make the chain from its state and
    the state from the chain."""

    run: ChainRun
    saved: Saved | None
    seconds: float
    beside: float


def run_segment(
    task: ChainTask,
    plan: Plan,
    saved: Saved | None,
    seconds: float,
    control: np.ndarray | None = None,
    patience: float = LONGEST_ITERATION,
) -> Segment:
    """Some iterations of a chain, for about so many seconds: state in, state out.

    The iteration that is under way then ends first, if it does so within ``patience`` seconds; if it does not, it is given up,
    and begins anew with the next segment. So a segment comes back after ``seconds + patience`` and an evaluation of the model,
    whatever the model does. ``control``: counters that the chain shares with its run in this process, which needs none of that.
    """
    begin = time.perf_counter()
    shared = control is not None
    control = np.zeros(N_CONTROL, np.int64) if control is None else control
    live = LiveChain(task, plan, control)
    error, position, before, sampled = None, None, saved, 0.0
    first = max(task.first, saved.done if saved else 0)
    n = min(task.total - first, max(1, SEGMENT // (8 * (task.model.dim + plan.n_stats))))
    rows = Rows(first, np.zeros((n, task.model.dim)), np.zeros((n, plan.n_stats)))
    try:
        with contextlib.nullcontext() if shared else after(seconds + patience, control, STOP):
            if live.begin(saved):
                before, since = live.saved(), time.perf_counter()
                with after(seconds, control, PAUSE):
                    live.advance(rows)
                if live.done == before.done:  # one iteration, where the time was over before the first had restarted
                    control[PAUSE] = 0
                    not_kept = Rows(live.done + 1, rows.draws[:0], rows.stats[:0])
                    live.advance(not_kept if live.done < first else rows.between(first, first + 1))
                sampled = time.perf_counter() - since
                paused = not control[STOP]
                control[PAUSE] = 0
                if paused:
                    before = live.saved()
    except BaseException as caught:
        error, position = caught, task.model.core.last_position.get(threading.get_ident())
    made = int(control[DRAWS_DONE])
    run = live.brought_back(rows.between(first, max(made, first)), error, position)
    if before is not None and before.done < made:
        with contextlib.suppress(Exception):
            before = live.saved_after(made, before)
    return Segment(run, before, sampled, time.perf_counter() - begin - sampled)


@contextlib.contextmanager
def after(seconds: float, control: np.ndarray, what: int) -> Iterator[None]:
    """Ask the chain once, so many seconds from now, to pause or to stop; never after this is left."""
    alarm = threading.Timer(seconds, control.__setitem__, (what, 1))
    alarm.daemon = True
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()
        alarm.join()


@contextlib.contextmanager
def pausing(control: np.ndarray) -> Iterator[None]:
    """Ask the chain, every half second, to come out of the core after its present draw."""
    over = threading.Event()

    def ask() -> None:
        while not over.wait(PAUSE_EVERY):
            control[PAUSE] = 1

    asking = threading.Thread(target=ask, name="refhmc-pause", daemon=True)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
        control[PAUSE] = 0
