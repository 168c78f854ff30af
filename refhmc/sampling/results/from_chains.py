"""Assembly of the result of a run, in steps, so that the draws are in it before anything that can fail.

1. :func:`begun`: the description of the run, before the first draw.
2. :func:`put_draws`: draws and statistics as arrays; no user code runs.
3. :func:`put_posterior`: the constrained values, computed by the model's ``constrain``.
4. :func:`put_warnings`: the warnings.

A first Ctrl-C during these steps ends the review of the draws; any other step is repeated
(:func:`refhmc.sampling.interruption.past_ctrl_c`). Any exception, whether raised by the model, ArviZ, a callback, a warning
that is an error or a second Ctrl-C, carries the result so far (:func:`attached`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.adaptation.adapted import Adapted, in_words
from refhmc.core.records import (
    CONTRACTIONS,
    DENSITIES,
    DIVERGENCES,
    DRAWS_DONE,
    FAR_START,
    GRADIENTS,
    METRICS,
    SEARCH_FAILED,
    WARMUP_DIVERGENCES,
)
from refhmc.core.sample_stats import N_STATS
from refhmc.errors import (
    CheckpointError,
    DiscontinuityWarning,
    SamplingError,
    SamplingWarning,
    SaveError,
    _see,
)
from refhmc.integrators.defaults import resolve
from refhmc.kernels.blocks import ALL, blocks_of, kernels_of, named_by_block
from refhmc.sampling.chains import chain_pool, far_start
from refhmc.sampling.chains.chain_run import ChainRun
from refhmc.sampling.checks import discontinuity
from refhmc.sampling.interruption import sigterm_as_ctrl_c
from refhmc.sampling.progress import duration
from refhmc.sampling.results.result import Result
from refhmc.sampling.results.review import failed_evaluations, listed, review, some
from refhmc.sampling.storage.in_memory import Memory, constrained
from refhmc.sampling.storage.store import Store, StoredGroup

if TYPE_CHECKING:
    from refhmc.models.base import Model
    from refhmc.sampling.progress import Progress


NO_STEP_SIZE = (
    "The energy error of one step does not depend on the step size, as for an improper density or a gradient of zeros. Check "
    f"that the density is proper and that its gradient is correct. {_see('step-size-search')}"
)
LOOKED_AT = 2**26  # bytes of a stored run that the review reads


def attached(error: BaseException, result: Result, put_together: Callable[[], None]) -> BaseException:
    """Return the exception with `result` as its attribute ``partial``, after ``put_together()`` if it has no draws yet.

    If the exception accepts no attribute, return a SamplingError to be raised from it.
    """
    carrier = with_partial(error, result)
    if not result.groups:
        with contextlib.suppress(BaseException), sigterm_as_ctrl_c():  # groups that cannot be assembled are left out
            put_together()
    return carrier


def with_partial(error: Any, result: Result) -> BaseException:
    """Return the exception with its attribute and a note about it, or a SamplingError if it accepts none."""
    try:
        error.partial = result
        if not isinstance(error, SamplingError):  # its own message mentions the attribute
            error.add_note("The draws so far are in this exception's attribute .partial, a refhmc.Result.")
        return error
    except Exception:
        return with_partial(
            SamplingError(f"{type(error).__name__}: {error}. The draws so far are in .partial."), result
        )


def begun(model: Model, kernel: Any, entropy: int, draws: int, tune: int, preflight: bool) -> Result:
    """Return a result without draws, with the attributes that describe the run."""
    import refhmc

    attributes = {
        "refhmc_version": refhmc.__version__,
        "inference_library": "refhmc",
        "kernel": kernel_as_json(kernel),
        "entropy": entropy,
        "model": model.name,
        "model_fingerprint": model.fingerprint(),
        "model_runs_as_python": model.runs_as_python or "",
        "draws": int(draws),
        "tuning_steps": int(tune),
        "preflight": bool(preflight),
        "exact": inexact_part(kernel) is None,
        "adaptation": "",
    }
    if approximate := getattr(model, "approximate", None):
        attributes["approximate_derivatives"] = [f"{name} {how}" for name, how in approximate.items()]
    return Result({}, attributes, dims=model.dims, coords=model.coords)


def put_draws(result: Result, memory: Memory, runs: list[ChainRun], stopped_by: str, save_warmup: bool) -> None:
    """Put draws, statistics and counts into the result: all of them, or the largest rectangle if some chains are shorter."""
    result.ragged.update(
        {k: run.draws for k, run in enumerate(runs)}
    )  # no copies, so that they exist even if memory is short
    lengths = np.array([len(run.draws) for run in runs])
    chosen, n = largest_rectangle(lengths)
    if save_warmup:
        m = min(len(runs[k].warmup_draws) for k in chosen)
        if not n:  # the run ended in warm-up
            chosen, m = largest_rectangle(np.array([len(run.warmup_draws) for run in runs]))
    tune = result.attributes["tuning_steps"]
    q, stats = memory.cut(chosen, tune, n)
    groups: dict[str, Any] = {"posterior": {}, "sample_stats": stats, "unconstrained_posterior": {"q": q}}
    if save_warmup:
        q, stats = memory.cut(chosen, 0, m)
        groups |= {"warmup_posterior": {}, "warmup_sample_stats": stats, "warmup_unconstrained_posterior": {"q": q}}
    result.attributes.update(counted(runs, stopped_by, tune), chains=chosen)
    result.attributes.update(learned_lengths(runs))
    result.groups.update(groups)
    put_learned(result, [runs[k].adapted for k in chosen])
    if len(set(lengths)) == 1:
        result.ragged.clear()


def put_learned(result: Result, learned: list[dict[str, Adapted] | None]) -> None:
    """Put into the result what warm-up of each chain adapted."""
    result.adapted[:] = [] if None in learned else [of.get(ALL, of) for of in learned if of is not None]
    if any(isinstance(each, Adapted) for each in result.adapted):
        result.attributes["adaptation"] = in_words(result.adapted)


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


def counted(runs: list[ChainRun], stopped_by: str, tune: int) -> dict[str, Any]:
    """Return the attributes that describe what happened in the run."""
    totals = np.sum([run.control for run in runs], axis=0)
    return {
        "draws_per_chain": [len(run.draws) for run in runs],
        "iterations_per_chain": [int(run.control[DRAWS_DONE]) for run in runs],
        "divergences_per_chain": [int(run.control[DIVERGENCES]) for run in runs],
        "warmup_divergences_per_chain": [int(run.control[WARMUP_DIVERGENCES]) for run in runs],
        "began_again_after": [max(int(run.control[FAR_START]), 0) for run in runs],
        "interrupted": bool(stopped_by),
        "stopped_by": stopped_by,
        "failed_chains": [k for k, run in enumerate(runs) if run.error is not None],
        "n_gradient_evaluations": int(totals[GRADIENTS]),
        "n_log_density_evaluations": int(totals[GRADIENTS] + totals[DENSITIES]),
        "n_metric_evaluations": int(totals[METRICS]),
        "n_contraction_evaluations": int(totals[CONTRACTIONS]),
        "step_size_searches_failed": int(totals[SEARCH_FAILED]),
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


def put_stored(result: Result, kernel: Any, runs: list[ChainRun], stopped_by: str, store: Store) -> None:
    """Do the same for a run with a store: groups are read on access, or held in memory if the disk could not be written."""
    tune = result.attributes["tuning_steps"]
    result.attributes.update(counted(runs, stopped_by, tune))
    lengths = np.array([max(int(run.control[DRAWS_DONE]) - tune, 0) for run in runs])
    result.attributes["draws_per_chain"] = lengths.tolist()
    chosen, n = largest_rectangle(lengths)
    m = min(int(runs[k].control[DRAWS_DONE]) for k in chosen)
    if not n and store.warmup:
        chosen, m = largest_rectangle(np.array([int(run.control[DRAWS_DONE]) for run in runs]))
    result.attributes.update(chains=chosen, store=str(store.path))
    result.attributes.update(learned_lengths(runs))
    left = {k: runs[k].rows for k in chosen if len(runs[k].rows.draws)}
    for name in store.arrays:
        length = min(m, store.warmup) if name.startswith("warmup_") else n
        stored = store.group(name, chosen, length)
        result.groups[name] = stored.with_rows(left, kernel, store) if left else stored
    put_learned(result, [runs[k].adapted for k in chosen])


def put_posterior(result: Result, model: Model) -> None:
    """Put the constrained values of all draws into the result."""
    if "store" in result.attributes:
        return
    for group in [name for name in result.groups if name.endswith("unconstrained_posterior")]:
        result.groups[group.replace("unconstrained_", "")] = constrained(model, result.groups[group]["q"])


class Seen(NamedTuple):
    """Input of the review: all draws or, for a store, the draws of each chain from index `first`.

    In that case `thinned` holds a thinned copy of all draws, for R-hat and effective sample size.
    """

    draws: np.ndarray
    stats: Mapping[str, np.ndarray]
    blocks: dict[str, dict[str, np.ndarray]]
    starts: np.ndarray
    first: int
    thinned: np.ndarray | None


def look_at(result: Result, kernel: Any, runs: list[ChainRun]) -> Seen:
    """Return the draws to review."""
    chosen, draws = result.attributes["chains"], result.groups["unconstrained_posterior"]
    starts = np.stack([runs[k].start for k in chosen])
    if not isinstance(draws, StoredGroup):
        q, stats = draws["q"], result.sample_stats
        return Seen(q, stats, named_by_block(kernel, stats), starts, 0, None)
    d, n = draws.arrays["q"].shape[2], draws.n
    most = max(1000, LOOKED_AT // (8 * len(chosen) * (d + N_STATS)))
    first, step = max(0, n - most), -(-n // most) or 1
    of_stats = result.groups["sample_stats"]
    stats = {name: of_stats.some(name, first) for name in of_stats}  # type: ignore[attr-defined]
    if first:
        starts = draws.some("q", first - 1, n)[:, 0]
    q = draws.some("q", first)
    return Seen(q, stats, named_by_block(kernel, stats), starts, first, draws.some("q", 0, step) if first else None)


def put_warnings(
    result: Result, model: Model, kernel: Any, runs: list[ChainRun], jumps: str | None, progress: Progress, workers: int
) -> list[Warning]:
    """Put the warnings of the run into the result and return them.

    `jumps` is the warning about jumps from before the run, which is not repeated. `workers` chains run at a time.
    """
    attributes, seen = result.attributes, look_at(result, kernel, runs)
    chosen, n, tune = attributes["chains"], seen.draws.shape[1], attributes["tuning_steps"]
    found = result.warnings
    if attributes["interrupted"]:
        found += cut_short(result, progress)
    found += [
        f"{chain_pool.hanging(k, run.error_position, chain_pool.GRACE)} Its thread keeps running, and the result holds the "
        f"{int(run.control[DRAWS_DONE])} iterations that the chain completed. Check why the model does not return there. "
        f"{_see('review-interrupted')}"
        for k, run in enumerate(runs)
        if run.left_behind
    ]
    found += without_pathfinder([run.no_pathfinder for run in runs])
    found += far_start.warnings_of([run.control for run in runs], tune)
    lost = [k for k in chosen if runs[k].control[SEARCH_FAILED]]
    if lost:
        found.append(
            f"The search for an initial step size did not converge in {len(lost)} of {len(chosen)} chains ({listed(lost)}). "
            f"{NO_STEP_SIZE}"
        )
    if not attributes["exact"]:
        found.append(f"The chain is approximate: {inexact_part(kernel).approximation} {_see('approximate-chain')}")
    unevaluated = np.zeros((len(chosen), n), bool)
    for row, k in enumerate(chosen):
        met = [i - tune - seen.first for failure in runs[k].failures for i in failure.iterations]
        unevaluated[row, [i for i in met if 0 <= i < n]] = True
    found += review(
        model.names, seen.draws, seen.blocks, kernels_of(kernel), seen.starts, tune, unevaluated, seen.thinned
    )
    found += failed_evaluations(attributes["evaluation_failures"])
    raised: list[Warning] = [SamplingWarning(text) for text in found]
    if jumps is None:
        jumps, more = searched(result, model, kernel, seen, progress.seconds, workers)
        raised += [SamplingWarning(text) for text in more]
        raised += [DiscontinuityWarning(jumps)] if jumps is not None else []
    if jumps is not None:
        found.insert(0, jumps)
    return raised


def searched(
    result: Result, model: Model, kernel: Any, seen: Seen, seconds: float, workers: int
) -> tuple[str | None, list[str]]:
    """Search for jumps of the log density; return the warning about a jump, and those about the search.

    In `seconds` of the run, `workers` threads evaluated the model. The attribute ``review_evaluations`` counts the evaluations
    of the search.
    """
    attributes = result.attributes
    budget = discontinuity.Budget(seconds, seconds * workers / max(attributes["n_gradient_evaluations"], 1))
    jumps = discontinuity.found(model, kernel, seen.draws, seen.stats, seen.starts, budget)
    attributes["review_evaluations"] = budget.made
    more = discontinuity.cut_off(budget) if jumps is None else []
    result.warnings.extend(more)
    return jumps, more


def review_cut_off(result: Result, jumps: str | None) -> list[Warning]:
    """Return the warnings of a review that Ctrl-C ended: those found before, and one that there may be more."""
    found = result.warnings
    found.append(
        "Ctrl-C or SIGTERM after the last draw ended the review of the draws. All draws are in the result, but problems may "
        "have gone unreported. Check divergences, R-hat and effective sample sizes yourself. "
        f"{_see('review-interrupted')}"
    )
    raised: list[Warning] = [SamplingWarning(text) for text in found if text != jumps]
    if jumps is not None and jumps not in found:
        found.insert(0, jumps)
    return raised


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


def cut_short(result: Result, progress: Progress | None) -> list[str]:
    """Return the warning of a run that was stopped without any draws, or without those of whole chains."""
    attributes = result.attributes
    names = "draws_per_chain", "chains", "iterations_per_chain", "tuning_steps"
    lengths, chosen, done, tune = (attributes[name] for name in names)
    by = {"interrupt": "Ctrl-C or SIGTERM", "time": "max_seconds", "stop": "stop()"}[attributes["stopped_by"]]
    if not any(lengths) and attributes["draws"]:
        reached = some([f"chain {k}: {n}" for k, n in enumerate(done)])
        return [
            f"The run has no draws, because {by} stopped the run in warm-up{pace_of_warmup(progress)} (iterations of {tune}: "
            f"{reached}).{what_to_do(result, progress)} {_see('review-interrupted')}"
        ]
    kept = set(chosen)
    left_out = {k: n for k, n in enumerate(lengths) if k not in kept}
    if not left_out:
        return []
    in_warmup = {k: f" (iteration {n} of {tune} of warm-up)" if n < tune else "" for k, n in enumerate(done)}
    which = some([f"chain {k}: {n}{in_warmup[k]}" for k, n in left_out.items()])
    return [
        f"{by} stopped the run when its chains had different lengths, so {len(left_out)} of {len(lengths)} chains are left out "
        f"(draws by {which}). The groups hold the largest rectangle of draws. Use raw=True to get every draw in .ragged. "
        f"{_see('review-interrupted')}"
    ]


def pace_of_warmup(progress: Progress | None) -> str:
    """Return a clause with the time and the iterations per second of a run that was stopped in warm-up."""
    if progress is None or not progress.seconds_seen:
        return ""
    rate = progress.looks.made.sum() / progress.seconds_seen
    return f" after {duration(progress.seconds_seen)}, at {rate:.3g} iterations per second in all chains together"


def what_to_do(result: Result, progress: Progress | None) -> str:
    """Return the advice for a run that was stopped in warm-up."""
    attributes, advice = result.attributes, ""
    seconds = None if progress is None else progress.seconds_of_warmup()
    if seconds is not None:
        advice = f" At the pace of the last iterations, warm-up of all chains takes about {duration(seconds)}"
        advice += "; raise max_seconds, or use a smaller tune." if attributes["stopped_by"] == "time" else "."
    warmup = result.groups.get("warmup_unconstrained_posterior")
    if warmup is None:
        advice += " Use save_warmup=True to keep the iterations of warm-up."
    else:
        n, whose = warmup["q"].shape[1], listed(attributes["chains"])
        advice += (
            f" The groups warmup_* hold the first {n} iterations of chains {whose}, which are not posterior draws."
        )
    if attributes.get("backend") == "numba":
        advice += " With checkpoint=FOLDER, the same call continues an interrupted run."
    return advice


def kernel_as_json(kernel: Any) -> str:
    """Return ``{"kernel": "NUTS", "step_size": null, "metric": {...}, ...}``, with arrays as lists."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {"name": type(value).__name__, **fields}
        if isinstance(value, Mapping):  # a list, since the order of the blocks matters
            return [[list(key) if isinstance(key, tuple) else key, plain(each)] for key, each in value.items()]
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

    return json.dumps(plain(kernel))


def inexact_part(kernel: Any) -> Any:
    """Return the first of the kernel's blocks, or of their integrators, that is not exact; None if there is none."""
    for part in blocks_of(kernel).values():
        integrator = resolve(part.metric, part.integrator)[1]
        if not getattr(part, "exact", True):
            return part
        if not (integrator.exact or (part.name == "nuts" and getattr(integrator, "exact_in_nuts", False))):
            return integrator
    return None


def largest_rectangle(lengths: np.ndarray) -> tuple[list[int], int]:
    """Return which chains to keep, and how many draws of each, so that as many draws as possible are kept."""
    order = np.argsort(-lengths, kind="stable")
    sizes = [(rank + 1) * int(lengths[k]) for rank, k in enumerate(order)]
    best = max(range(len(order)), key=lambda rank: (sizes[rank], rank))
    return sorted(int(k) for k in order[: best + 1]), int(lengths[order[best]])


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
        f"Chain {chain} stopped at iteration {int(run.control[DRAWS_DONE])}: {type(run.error).__name__}: {words}"
        + (f" (last position q = {np.array2string(run.error_position)})" if run.error_position is not None else "")
        + ". The draws so far, and the other chains, are in this exception's .partial."
    )
    error.__cause__ = run.error
    return error
