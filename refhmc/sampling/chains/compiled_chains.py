"""The chains of a compiled run: how they are drawn, and what they put into a result, with warnings and errors."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np

from refhmc.adaptation.adapted import Adapted, in_words
from refhmc.core.linear_algebra import one_thread
from refhmc.core.sample_stats import N_STATS
from refhmc.errors import CheckpointError, SamplingError, SaveError, _see
from refhmc.kernels.blocks import ALL
from refhmc.sampling.chains import chain_pool, far_start
from refhmc.sampling.chains.chain_pool import ChainPool, draw_in_threads, hanging_at
from refhmc.sampling.chains.chain_run import after
from refhmc.sampling.chains.engine import numbers_of_draws
from refhmc.sampling.chains.executors import in_executor
from refhmc.sampling.chains.task import ChainRun
from refhmc.sampling.results.rectangle import groups_of, put_rectangle
from refhmc.sampling.results.result import Result
from refhmc.sampling.results.review import DrawsToReview, listed, some
from refhmc.sampling.storage.store import GROUPS, StoredGroup
from refhmc.sampling.until import Drawn, in_memory

NO_STEP_SIZE = (
    "The energy error of one step does not depend on the step size, as for an improper density or a gradient of zeros. Check "
    f"that the density is proper and that its gradient is correct. {_see('step-size-search')}"
)
COUNTED = "gradients", "densities", "metrics", "contractions", "search_failed"
LOOKED_AT = 2**26  # bytes of a stored run that the review reads


class CompiledChains(ChainPool):
    """The chains of a compiled run (:class:`refhmc.sampling.chains.engine.Chains`)."""

    def limits(self) -> AbstractContextManager[None]:
        return one_thread()

    def draw(self) -> None:
        with one_thread(), in_threads(self) if self.spec.executor is None else in_executor(self) as run:
            for draws in numbers_of_draws(self.spec, self.missing, self.drawn):
                self.set_draws(draws)
                run()
                if self.stopped_by or any(chain.error is not None for chain in self.finished.values()):
                    return
        if self.store is not None and not any(chain.unsaved for chain in self.finished.values()):
            self.store.shorten(int(self.control.draws_done.max()) - self.spec.tune)

    def drawn(self, n: int) -> Drawn:
        """Return the first n draws of all chains."""
        chains, model, store = list(range(self.spec.chains)), self.spec.model, self.store
        if store is None:
            return in_memory(model, self.memory.cut(chains, self.spec.tune, n)[0])
        left = {k: run.rows for k, run in self.finished.items()}
        q, variables = (store.group(name, chains, n) for name in ("unconstrained_posterior", "posterior"))
        return Drawn(
            q.shape("q"),
            lambda columns: q.columns(columns, left, store),
            lambda name: variables.of(name).with_rows(left, store)[name],
        )

    def put_draws(self, result: Result) -> None:
        runs, tune, store = self.runs(), self.spec.tune, self.store
        done = [min(int(run.control.draws_done), self.tasks[0].total) for run in runs]
        lengths = [max(n - tune, 0) for n in done]
        keeps_warmup = self.spec.save_warmup if store is None else store.warmup > 0
        if store is None:  # no copies, so that they exist even if memory is short
            result.ragged.update({k: run.draws for k, run in enumerate(runs)})
        else:
            result.attributes["store"] = str(store.path)

        def cut(chains: list[int], warmup: bool, n: int) -> dict[str, Any]:
            if store is None:
                return groups_of(*self.memory.cut(chains, 0 if warmup else tune, n))
            # The groups are read on access. Draws that could not be written to the disk are held in memory.
            left = {k: runs[k].rows for k in chains if len(runs[k].rows.draws)}
            groups = {name: store.group(f"{'warmup_' * warmup}{name}", chains, n) for name in GROUPS}
            return {name: group.with_rows(left, store) if left else group for name, group in groups.items()}

        put_rectangle(result, lengths, [min(n, tune) for n in done] if keeps_warmup else None, cut)
        result.attributes.update(counted(runs, self.stopped_by, tune))
        result.attributes.update(learned_lengths(runs))
        put_learned(result, [runs[k].adapted for k in result.attributes["chains"]], self.spec.model.names)
        usual, init = self.spec.start_origin, self.spec.init
        result.attributes["starts"] = [usual if init == "uniform" or run.no_pathfinder else init for run in runs]
        if len(set(lengths)) == 1:
            result.ragged.clear()

    def to_review(self, result: Result) -> DrawsToReview:
        runs, chosen, draws = self.runs(), result.attributes["chains"], result.groups["unconstrained_posterior"]
        starts = np.stack([runs[k].start for k in chosen])
        if not isinstance(draws, StoredGroup):
            q = draws["q"]
            return DrawsToReview(q, result.sample_stats, starts, not_evaluated(result, runs, 0, q.shape[1]))
        d, n = draws.arrays["q"].shape[2], draws.n
        most = max(1000, LOOKED_AT // (8 * len(chosen) * (d + N_STATS)))
        first, step = max(0, n - most), -(-n // most) or 1
        of_stats = result.groups["sample_stats"]
        stats = {name: of_stats.some(name, first) for name in of_stats}
        if first:
            starts = draws.some("q", first - 1, n)[:, 0]
        q = draws.some("q", first)
        unevaluated = not_evaluated(result, runs, first, q.shape[1])
        return DrawsToReview(q, stats, starts, unevaluated, draws.some("q", 0, step) if first else None)

    def remarks(self, result: Result) -> list[str]:
        """Return the warnings about chains left behind, starts and step sizes."""
        runs, chosen = self.runs(), result.attributes["chains"]
        found = [
            f"{hanging_at(k, run.error_position, chain_pool.GRACE)} Its thread keeps running, and the result holds the "
            f"{int(run.control.draws_done)} iterations that the chain completed. Check why the model does not return there. "
            f"{_see('review-interrupted')}"
            for k, run in enumerate(runs)
            if run.left_behind
        ]
        found += without_pathfinder([run.no_pathfinder for run in runs])
        found += far_start.warnings_of([run.control for run in runs], self.spec.tune)
        lost = [k for k in chosen if runs[k].control.search_failed]
        if lost:
            found.append(
                f"The search for an initial step size did not converge in {len(lost)} of {len(chosen)} chains "
                f"({listed(lost)}). {NO_STEP_SIZE}"
            )
        return found

    def failure(self) -> Exception | None:
        """Return the exception to raise: refhmc's own unchanged, else a SamplingError; None if there is none.

        A SaveError means that the files on disk are older than the draws.
        """
        runs = self.runs()
        chain, run = next(((k, run) for k, run in enumerate(runs) if run.error is not None), (0, runs[0]))
        if run.error is None:
            unsaved = [k for k, run in enumerate(runs) if run.unsaved]
            if not unsaved:
                return None
            disk, which = "checkpoint" if self.store is None else "store", some([f"chain {k}" for k in unsaved])
            return SaveError(
                f"The {disk} of {which} could not be written at the end ({runs[unsaved[0]].unsaved}), so the files there are "
                "older than the draws. All draws are in this exception's .partial."
            )
        if isinstance(run.error, CheckpointError | SamplingError):
            return run.error
        words = str(run.error).rstrip(".")
        error = SamplingError(
            f"Chain {chain} stopped at iteration {int(run.control.draws_done)}: {type(run.error).__name__}: {words}"
            + (f" (last position q = {np.array2string(run.error_position)})" if run.error_position is not None else "")
            + ". The draws so far, and the other chains, are in this exception's .partial."
        )
        error.__cause__ = run.error
        return error

    def put_attributes(self, result: Result) -> bool:
        if self.store is not None:
            self.store.put_attributes(result.plain_attributes())
        return self.store is not None

    def close(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.close()


@contextlib.contextmanager
def in_threads(pool: ChainPool) -> Iterator[Callable[[], None]]:
    """Run the chains in threads of this process, with the run's time limit.

    The context is a function that runs all chains to their ends, from where they are.
    """
    with after(pool.spec.max_seconds, partial(pool.stop, "time")):
        yield partial(draw_in_threads, pool)


def put_learned(result: Result, learned: list[dict[str, Adapted] | None], names: list[str]) -> None:
    """Put into the result what warm-up of each chain adapted."""
    result.adapted[:] = [] if None in learned else [of.get(ALL, of) for of in learned if of is not None]
    if alone := [each for each in result.adapted if isinstance(each, Adapted)]:
        result.attributes["adaptation"] = in_words(alone, names)


def learned_lengths(runs: list[ChainRun]) -> dict[str, list[float]]:
    """Return the attribute ``trajectory_length`` if HMC adapted it: one number per chain, NaN for a chain left behind.

    For a block, the block's name is appended to the attribute's name.
    """
    learned = [dict(run.lengths) for run in runs]
    blocks = dict.fromkeys(name for each in learned for name in each)
    return {
        f"trajectory_length{'_' * (name != '')}{name}": [each.get(name, math.nan) for each in learned]
        for name in blocks
    }


def counted(runs: list[ChainRun], stopped_by: str, tune: int) -> dict[str, object]:
    """Return the attributes that describe what happened in the run."""
    total = {name: sum(int(run.control[name]) for run in runs) for name in COUNTED}
    return {
        "iterations_per_chain": [int(run.control.draws_done) for run in runs],
        "divergences_per_chain": [int(run.control.divergences) for run in runs],
        "warmup_divergences_per_chain": [int(run.control.warmup_divergences) for run in runs],
        "began_again_after": [max(int(run.control.far_start), 0) for run in runs],
        "interrupted": bool(stopped_by),
        "stopped_by": stopped_by,
        "failed_chains": [k for k, run in enumerate(runs) if run.error is not None],
        "n_gradient_evaluations": total["gradients"],
        "n_log_density_evaluations": total["gradients"] + total["densities"],
        "n_metric_evaluations": total["metrics"],
        "n_contraction_evaluations": total["contractions"],
        "step_size_searches_failed": total["search_failed"],
        "evaluation_failures": [
            {
                "chain": k,
                "message": failure.message,
                "evaluations": failure.count,
                "warmup_transitions": sum(i < tune for i in failure.iterations),
                "transitions": sum(i >= tune for i in failure.iterations),
                "first_position": failure.first.tolist(),
            }
            for k, run in enumerate(runs)
            for failure in run.failures
        ],
    }


def not_evaluated(result: Result, runs: list[ChainRun], first: int, n: int) -> np.ndarray:
    """Return (chain, draw) whether the model could not be evaluated somewhere in the n transitions from draw `first` on."""
    chosen, tune = result.attributes["chains"], result.attributes["tuning_steps"]
    unevaluated = np.zeros((len(chosen), n), bool)
    for row, k in enumerate(chosen):
        met = [i - tune - first for failure in runs[k].failures for i in failure.iterations]
        unevaluated[row, [i for i in met if 0 <= i < n]] = True
    return unevaluated


def without_pathfinder(reasons: list[str]) -> list[str]:
    """Return the warning about chains for which Pathfinder found no start; `reasons` has one text per chain, "" if it did."""
    lost = [k for k, why in enumerate(reasons) if why]
    if not lost:
        return []
    return [
        f"Pathfinder found no start in {len(lost)} of {len(reasons)} chains ({listed(lost)}); the reason in chain {lost[0]}: "
        f"{reasons[lost[0]]}. These chains started as with init='uniform', so they may need a longer warm-up. Check R-hat, and "
        f"give initvals if it is too high. {_see('pathfinder')}"
    ]
