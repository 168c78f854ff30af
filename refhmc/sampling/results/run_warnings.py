"""The warnings of a run: about its end, its engine, and its draws."""

from __future__ import annotations

from typing import Any

from refhmc.errors import DiscontinuityWarning, SamplingWarning, _see
from refhmc.integrators.defaults import resolve
from refhmc.kernels.blocks import blocks_of
from refhmc.kernels.options import AnyKernel
from refhmc.sampling.chains.engine import Chains
from refhmc.sampling.chains.initialization import given_starts, superchains_of
from refhmc.sampling.checks import discontinuity
from refhmc.sampling.progress import Progress, duration
from refhmc.sampling.results.result import Result
from refhmc.sampling.results.review import failed_evaluations, listed, review, some
from refhmc.sampling.results.tempering import warnings_of_tempering
from refhmc.sampling.spec import RunSpec


def put_warnings(result: Result, spec: RunSpec, chains: Chains, jumps: str | None) -> list[Warning]:
    """Put the warnings of the run into the result and return them.

    `jumps` is the warning about jumps from before the run, which is not repeated. Without it, the log density is searched for
    jumps. The attribute ``review_evaluations`` counts the evaluations of this search.
    """
    attributes, found, to_review = result.attributes, result.warnings, chains.to_review(result)
    if attributes["interrupted"]:
        found += cut_short(result, chains.progress)
    found += chains.remarks(result)
    found += not_met(result)
    if not attributes["exact"]:
        found.append(f"The chain is approximate: {inexact_part(spec.kernel).approximation} {_see('approximate-chain')}")
    found += warnings_of_tempering(attributes)
    starts = given_starts(spec.model, spec.initvals, spec.chains) if spec.init == "uniform" else None
    superchains = superchains_of(None if starts is None else starts[attributes["chains"]])
    found += review(spec.model.names, spec.kernel, to_review, attributes["tuning_steps"], superchains)
    found += failed_evaluations(attributes["evaluation_failures"])
    raised: list[Warning] = [SamplingWarning(text) for text in found]
    if jumps is None:
        seconds = chains.progress.seconds
        budget = discontinuity.Budget(seconds, seconds * chains.workers / max(attributes["n_gradient_evaluations"], 1))
        jumps = discontinuity.found(spec.model, spec.kernel, to_review, budget)
        attributes["review_evaluations"] = budget.made
        more = discontinuity.cut_off(budget) if jumps is None else []
        found += more
        raised += [SamplingWarning(text) for text in more]
        raised += [DiscontinuityWarning(jumps)] if jumps is not None else []
    if jumps is not None:
        found.insert(0, jumps)
    return raised


def not_met(result: Result) -> list[str]:
    """Return the warning of a run that ended before its stopping rule was met."""
    missing = result.attributes.get("until_unmet")
    if not missing or result.attributes["interrupted"]:
        return []
    return [
        f"The stopping rule was not met with {result.attributes['draws']:,} draws per chain ({'; '.join(missing)}). Increase "
        f"max_draws of until, unless other warnings state why the draws are so strongly correlated. {_see('stopping-rule')}"
    ]


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


def cut_short(result: Result, progress: Progress) -> list[str]:
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


def pace_of_warmup(progress: Progress) -> str:
    """Return a clause with the time and the iterations per second of a run that was stopped in warm-up."""
    if not progress.seconds_seen:
        return ""
    rate = progress.made / progress.seconds_seen
    return f" after {duration(progress.seconds_seen)}, at {rate:.3g} iterations per second in all chains together"


def what_to_do(result: Result, progress: Progress) -> str:
    """Return the advice for a run that was stopped in warm-up."""
    attributes, advice = result.attributes, ""
    seconds = progress.seconds_of_warmup()
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


def inexact_part(kernel: AnyKernel) -> Any:
    """Return the first of the kernel's blocks, or of their integrators, that is not exact; None if there is none."""
    for part in blocks_of(kernel).values():
        integrator = resolve(part.metric, part.integrator)[1]
        if not getattr(part, "exact", True):
            return part
        is_nuts = getattr(part, "name", "") in ("nuts", "walnuts")
        if not (integrator.exact or (is_nuts and getattr(integrator, "exact_in_nuts", False))):
            return integrator
    return None
