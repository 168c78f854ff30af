"""Put what compiled chains returned into a result: draws, counts, what they adapted, warnings and errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refhmc.adaptation.adapted import Adapted, in_words
from refhmc.core.sample_stats import N_STATS
from refhmc.errors import CheckpointError, SamplingError, SaveError, _see
from refhmc.kernels.blocks import ALL
from refhmc.sampling.chains import far_start
from refhmc.sampling.chains.task import ChainRun
from refhmc.sampling.results.rectangle import groups_of, put_rectangle
from refhmc.sampling.results.result import Result
from refhmc.sampling.results.review import DrawsToReview, listed, some
from refhmc.sampling.storage.in_memory import Memory
from refhmc.sampling.storage.store import GROUPS, Store, StoredGroup

NO_STEP_SIZE = (
    "The energy error of one step does not depend on the step size, as for an improper density or a gradient of zeros. Check "
    f"that the density is proper and that its gradient is correct. {_see('step-size-search')}"
)
COUNTED = "gradients", "densities", "metrics", "contractions", "search_failed"
LOOKED_AT = 2**26  # bytes of a stored run that the review reads


def put_draws(result: Result, memory: Memory, runs: list[ChainRun], stopped_by: str, save_warmup: bool) -> None:
    """Put draws, statistics and counts of chains in memory into the result."""
    # No copies, so that they exist even if memory is short.
    result.ragged.update({k: run.draws for k, run in enumerate(runs)})
    lengths, tune = [len(run.draws) for run in runs], result.attributes["tuning_steps"]

    def cut(chains: list[int], warmup: bool, n: int) -> dict[str, Any]:
        return groups_of(*memory.cut(chains, 0 if warmup else tune, n))

    put_rectangle(result, lengths, [len(run.warmup_draws) for run in runs] if save_warmup else None, cut)
    put_counts(result, runs, stopped_by)
    if len(set(lengths)) == 1:
        result.ragged.clear()


def put_stored(result: Result, store: Store, runs: list[ChainRun], stopped_by: str) -> None:
    """Put counts and groups of a run with a store into the result.

    The groups are read on access. Draws that could not be written to the disk are held in memory.
    """
    done, tune = [int(run.control.draws_done) for run in runs], result.attributes["tuning_steps"]

    def cut(chains: list[int], warmup: bool, n: int) -> dict[str, Any]:
        left = {k: runs[k].rows for k in chains if len(runs[k].rows.draws)}
        groups = {name: store.group(f"{'warmup_' * warmup}{name}", chains, n) for name in GROUPS}
        return {name: group.with_rows(left, store) if left else group for name, group in groups.items()}

    warmup_lengths = [min(n, store.warmup) for n in done] if store.warmup else None
    put_rectangle(result, [max(n - tune, 0) for n in done], warmup_lengths, cut)
    result.attributes["store"] = str(store.path)
    put_counts(result, runs, stopped_by)


def put_counts(result: Result, runs: list[ChainRun], stopped_by: str) -> None:
    """Put into the result what happened in the run, and what warm-up adapted."""
    result.attributes.update(counted(runs, stopped_by, result.attributes["tuning_steps"]))
    result.attributes.update(learned_lengths(runs))
    put_learned(result, [runs[k].adapted for k in result.attributes["chains"]])


def put_learned(result: Result, learned: list[dict[str, Adapted] | None]) -> None:
    """Put into the result what warm-up of each chain adapted."""
    result.adapted[:] = [] if None in learned else [of.get(ALL, of) for of in learned if of is not None]
    if alone := [each for each in result.adapted if isinstance(each, Adapted)]:
        result.attributes["adaptation"] = in_words(alone)


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


def draws_to_review(result: Result, runs: list[ChainRun]) -> DrawsToReview:
    """Return the draws of the chains to review."""
    chosen, draws = result.attributes["chains"], result.groups["unconstrained_posterior"]
    starts = np.stack([runs[k].start for k in chosen])
    if not isinstance(draws, StoredGroup):
        q = draws["q"]
        return DrawsToReview(q, result.sample_stats, starts, not_evaluated(result, runs, 0, q.shape[1]))
    d, n = draws.arrays["q"].shape[2], draws.n
    most = max(1000, LOOKED_AT // (8 * len(chosen) * (d + N_STATS)))
    first, step = max(0, n - most), -(-n // most) or 1
    of_stats = result.groups["sample_stats"]
    stats = {name: of_stats.some(name, first) for name in of_stats}  # type: ignore[attr-defined]
    if first:
        starts = draws.some("q", first - 1, n)[:, 0]
    q = draws.some("q", first)
    unevaluated = not_evaluated(result, runs, first, q.shape[1])
    return DrawsToReview(q, stats, starts, unevaluated, draws.some("q", 0, step) if first else None)


def not_evaluated(result: Result, runs: list[ChainRun], first: int, n: int) -> np.ndarray:
    """Return (chain, draw) whether the model could not be evaluated somewhere in the n transitions from draw `first` on."""
    chosen, tune = result.attributes["chains"], result.attributes["tuning_steps"]
    unevaluated = np.zeros((len(chosen), n), bool)
    for row, k in enumerate(chosen):
        met = [i - tune - first for failure in runs[k].failures for i in failure.iterations]
        unevaluated[row, [i for i in met if 0 <= i < n]] = True
    return unevaluated


def remarks(result: Result, runs: list[ChainRun], grace: float) -> list[str]:
    """Return the warnings about chains left behind, starts and step sizes; `grace` is the time that a chain has to stop."""
    chosen = result.attributes["chains"]
    found = [
        f"{hanging(k, run.error_position, grace)} Its thread keeps running, and the result holds the "
        f"{int(run.control.draws_done)} iterations that the chain completed. Check why the model does not return there. "
        f"{_see('review-interrupted')}"
        for k, run in enumerate(runs)
        if run.left_behind
    ]
    found += without_pathfinder([run.no_pathfinder for run in runs])
    found += far_start.warnings_of([run.control for run in runs], result.attributes["tuning_steps"])
    lost = [k for k in chosen if runs[k].control.search_failed]
    if lost:
        found.append(
            f"The search for an initial step size did not converge in {len(lost)} of {len(chosen)} chains ({listed(lost)}). "
            f"{NO_STEP_SIZE}"
        )
    return found


def hanging(chain: int, position: np.ndarray | None, seconds: float) -> str:
    """Return the sentence about a chain that does not return, with its position."""
    where = "" if position is None else f" at q = {np.array2string(position, precision=6, threshold=8)}"
    return (
        f"Chain {chain} did not return from a call of the model{where} within {seconds:g} s after it was asked to stop."
    )


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


def failure_of(runs: list[ChainRun], disk: str = "checkpoint") -> Exception | None:
    """Return the exception to raise for a run: refhmc's own unchanged, else a SamplingError; None if there is none.

    A SaveError means that the files on disk are older than the draws.
    """
    failed = [k for k, run in enumerate(runs) if run.error is not None]
    if not failed:
        unsaved = [k for k, run in enumerate(runs) if run.unsaved]
        if not unsaved:
            return None
        which = some([f"chain {k}" for k in unsaved])
        return SaveError(
            f"The {disk} of {which} could not be written at the end ({runs[unsaved[0]].unsaved}), so the files there are older "
            "than the draws. All draws are in this exception's .partial."
        )
    chain, run = failed[0], runs[failed[0]]
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
