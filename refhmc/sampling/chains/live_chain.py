"""A chain in the memory of this process, advanced by some iterations at a time.

It fills rows with iterations until they are full, or until it is asked to pause or to stop. It can then return its state as
plain data (:class:`~refhmc.sampling.chains.task.Saved`), from which another process continues bit for bit.
"""

from __future__ import annotations

import numpy as np

from refhmc.adaptation import symptoms
from refhmc.adaptation.adapted import adapted_of, begin_from
from refhmc.core.failures import FailureLog
from refhmc.core.point import LOG_DENSITY
from refhmc.core.records import CONTROL, one, records, set_counts
from refhmc.core.sample_stats import STATS, met_no_metric
from refhmc.errors import WarmupError
from refhmc.metrics import DiagonalSoftAbs, SoftAbs
from refhmc.sampling.chains import far_start
from refhmc.sampling.chains.chain import Chain, Plan
from refhmc.sampling.chains.initialization import Stopped, pathfinder_start, random_start
from refhmc.sampling.chains.task import ChainRun, ChainTask, Saved, chain_generator
from refhmc.sampling.storage.append_only import Rows

FEWEST_DIVERGENT = 50  # warm-up iterations; if all of so many diverge, this is not chance
SCRATCH = 2**20  # bytes of a buffer for iterations that are not kept


class LiveChain:
    """Chain in this process: `plan` is shared by all chains of the run, `control` holds the chain's counters."""

    def __init__(self, task: ChainTask, plan: Plan, control: np.record) -> None:
        self.task, self.plan, self.control = task, plan, control
        self.whole_plan = plan  # plan of the first attempt; ``plan`` is shorter after a restart
        self.rng = chain_generator(task.entropy, task.chain)
        self.chain = Chain(task.model, plan, self.rng)
        self.done, self.no_pathfinder = 0, ""
        self.start_of_draws = np.full(task.model.dim, np.nan)
        self.failures = FailureLog()

    def begin(self, saved: Saved | None = None) -> bool:
        """Put the chain at its saved state, or at its start; return False if it was stopped before a start was found.

        Raises CheckpointError if the saved state does not fit the model and kernel.
        """
        if saved is None:
            set_counts(self.control, one(CONTROL)[0])
            try:
                self._find_start()
            except Stopped:
                return False
        else:
            self.done, self.start_of_draws, self.no_pathfinder = saved.done, saved.start_of_draws, saved.no_pathfinder
            set_counts(self.control, saved.control)
            if self.control.far_start > 0 or self.plan is not self.whole_plan:
                self._make_chain()
            self.chain.restore(saved.state)
        self.failures = self.task.model.core.begin_failures(self.control)  # attempts to find a start do not count
        return True

    def _find_start(self) -> None:
        """Put the chain at its start. Raises Stopped."""
        task, q = self.task, self._own_start(self.rng)
        if task.init == "pathfinder":
            q, self.no_pathfinder = self._pathfinder(q)
        if self.control.stop:
            raise Stopped
        self.chain.start(q)
        if self.chain.alone:
            self.control.start_level = self.chain.blocks[0].state[LOG_DENSITY, 0]
        if task.adapted is not None:
            begin_from(self.chain.blocks[0], task.adapted)
        if task.tune == 0:
            self.start_of_draws = self.chain.position.copy()

    def _own_start(self, rng: np.random.Generator) -> np.ndarray:
        """Return the given start, or a random one drawn from `rng`. Raises Stopped."""
        task = self.task
        return random_start(task.model, self.plan, rng, task.chain, self.control) if task.start is None else task.start

    def _pathfinder(self, q: np.ndarray) -> tuple[np.ndarray, str]:
        """Return the start that Pathfinder finds from `q`, or `q` and the reason. Raises Stopped."""
        task, child = self.task, chain_generator(self.task.entropy, self.task.chain, 0)
        return pathfinder_start(task.model, self.plan, q, child, task.chain, self.control)

    @property
    def _next_look(self) -> int:
        """Iteration of warm-up after which the chain is checked, in its first or second attempt; 0 if there is none."""
        restarted = max(int(self.control.far_start), 0)
        after = far_start.look_after(self.task.tune - restarted)
        return restarted + after if after else 0

    def _look(self) -> None:
        """Restart if the start was hopeless, or raise WarmupError. Raises Stopped if stopped before that was decided."""
        task, control = self.task, self.control
        symptom, tried, q = far_start.symptom_of(self.chain, control), "", None
        first_attempt = control.far_start == 0 and task.init == "uniform"
        if symptom is not None and first_attempt and not len(task.model.discontinuous):
            found, why = self._pathfinder(self._own_start(chain_generator(task.entropy, task.chain)))
            has_risen = far_start.rise_of(self.chain, control) is not None
            q, tried = far_start.far_better(task.model, found, why, self.chain.position, control, has_risen)
        control.looked = self.done
        if q is not None and task.free_start:
            control.far_start = self.done
            self._make_chain()
            self.chain.start(q)
            self.failures = task.model.core.begin_failures(control)
            return
        if q is not None:
            control.far_start = -self.done
        if symptom is not None and symptom.ends(self.done, task.tune, better=q is not None):
            raise self._hopeless(symptom, tried)

    def _hopeless(self, symptom: symptoms.Symptom, tried: str = "") -> WarmupError:
        """Return the error that ends a chain; `tried` is a clause about the search for another start."""
        task, restarted = self.task, int(self.control.far_start)
        if restarted > 0:
            tried = (
                f", although it restarted after {restarted} iterations where Pathfinder found a far higher log density"
            )
        suggest = task.init == "uniform" and not len(task.model.discontinuous) and (restarted < 0 or not tried)
        more = ", or try init='pathfinder'" if suggest else ""
        return WarmupError(
            f"Chain {task.chain} cannot be used. After {self.done} iterations of warm-up {symptom.text}{tried}. "
            f"{symptoms.WHAT_TO_DO}{more}.",
            task.chain,
        )

    def _make_chain(self) -> None:
        """Create the chain of the present attempt; a second attempt has the rest of warm-up."""
        restarted, plan = max(int(self.control.far_start), 0), self.whole_plan
        self.plan = far_start.shortened(plan, self.task.tune - restarted) if restarted else plan
        self.chain = Chain(self.task.model, self.plan, self.rng)

    def advance(self, rows: Rows) -> bool:
        """Iterate until `rows` are full; return False if a pause or a stop came before."""
        dim, n_stats = self.task.model.dim, self.plan.n_stats
        n = min(max(SCRATCH // (8 * (dim + n_stats)), 1), max(rows.first - self.done, 0))
        scratch = Rows(0, np.empty((n, dim)), np.empty((n, n_stats)))
        while self.done < rows.end:
            if 0 < self.done == self._next_look != self.control.looked:
                try:
                    self._look()
                except Stopped:
                    return False
            end = rows.end if self.done >= rows.first else min(self.done + n, rows.first)
            if self.done < self.task.tune:
                look = self._next_look
                end = min(end, look if self.done < look else self.task.tune)
            into = rows if self.done >= rows.first else scratch._replace(first=self.done)
            into = into.between(self.done, end)
            made = self.chain.run(into.draws, into.stats, self.control)
            if self.done < self.task.tune:
                self.control.without_metric += self._without_metric(into.stats[:made])
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
        """Return the number of iterations in which a position-dependent metric was not positive definite."""
        metric = self.plan.blocks[0].dynamics.metric
        if not (self.chain.alone and metric.position_dependent) or isinstance(metric, SoftAbs | DiagonalSoftAbs):
            return 0
        return int(met_no_metric(records(rows, STATS)).sum())

    def _refuse_warmup_without_metric(self) -> None:
        """Raise WarmupError if the metric was not positive definite in more than half of warm-up."""
        tune, count = self.task.tune, int(self.control.without_metric)
        if tune < FEWEST_DIVERGENT or 2 * count <= tune:
            return
        name = type(self.plan.blocks[0].dynamics.metric).__name__
        raise WarmupError(
            f"In chain {self.task.chain}, {name} was not positive definite in {count} of {tune} transitions of warm-up, each "
            "of which diverged. Use refhmc.metrics.SoftAbs(), which is positive definite everywhere, or start elsewhere.",
            self.task.chain,
        )

    def _refuse_divergent_warmup(self) -> None:
        """Raise WarmupError if every transition of warm-up diverged."""
        tune = self.task.tune
        alone = self.chain.alone  # otherwise other blocks may move
        if not alone or tune < FEWEST_DIVERGENT or self.control.warmup_divergences < tune:
            return
        step = float(self.control.step_size)
        raise WarmupError(
            f"All {tune} transitions of the warm-up of chain {self.task.chain} diverged (final step size {step:.3g}), so all "
            "of its draws would equal its start. Check that the gradient is correct, that the density is finite around the "
            "start, and that the metric is positive definite there, as refhmc.metrics.SoftAbs() always is.",
            self.task.chain,
        )

    def _refuse_hopeless_warmup(self) -> None:
        """Raise WarmupError after warm-up if no draw would be useful."""
        if self.task.tune < symptoms.FEWEST or self.task.draws == 0:
            return
        symptom = far_start.symptom_of(self.chain, self.control)
        if symptom is not None and symptom.ends(self.done, self.task.tune):
            raise self._hopeless(symptom)

    def saved(self) -> Saved:
        """Return the state between two iterations; not valid after a stop, which may interrupt an iteration."""
        return Saved(self.chain.to_bytes(), self.done, self.start_of_draws, self.control.copy(), self.no_pathfinder)

    def saved_after(self, done: int, earlier: Saved) -> Saved:
        """Return the state after `done` iterations, recomputed from an earlier state; the counters do not change."""
        own, self.control = self.control, earlier.control.copy()
        self.control.stop = self.control.pause = 0
        failures = self.failures
        try:
            self.begin(earlier)
            nothing = np.empty((0, self.task.model.dim)), np.empty((0, self.plan.n_stats))
            self.advance(Rows(done, *nothing))
            return self.saved()
        finally:
            self.control, self.failures = own, failures

    def brought_back(self, rows: Rows, error: BaseException | None, position: np.ndarray | None) -> ChainRun:
        """Return the run after ``control.draws_done`` iterations, with the rows in memory."""
        at_draws = int(self.control.draws_done) >= self.task.tune
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
