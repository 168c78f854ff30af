"""The result of a run: what its chains brought back, put together, described and reviewed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from refhmc.chain_run import ChainRun
from refhmc.dynamics import resolve
from refhmc.errors import SamplingError
from refhmc.kernels import Gibbs
from refhmc.results import Group, Result
from refhmc.sample_stats import named
from refhmc.sampling_warnings import failed_evaluations, review
from refhmc.types import DENSITIES, DRAWS_DONE, GRADIENTS, METRICS, SEARCH_FAILED, TRACES


def describe(model, kernel, entropy, draws, tune, runs, stopped_by, preflight) -> dict[str, Any]:
    """The attributes of a result."""
    import refhmc

    totals = np.sum([run.control for run in runs], axis=0)
    return {
        "refhmc_version": refhmc.__version__,
        "inference_library": "refhmc",
        "kernel": kernel_as_json(kernel),
        "entropy": entropy,
        "model": model.name,
        "model_fingerprint": model.fingerprint(),
        "model_runs_as_python": model.runs_as_python or "",
        "draws": int(draws),
        "tuning_steps": int(tune),
        "draws_per_chain": [len(run.draws) for run in runs],
        "interrupted": stopped_by is not None,
        "stopped_by": stopped_by or "",
        "preflight": bool(preflight),
        "failed_chains": [k for k, run in enumerate(runs) if run.error is not None],
        "n_gradient_evaluations": int(totals[GRADIENTS]),
        "n_log_density_evaluations": int(totals[GRADIENTS] + totals[DENSITIES]),
        "n_metric_evaluations": int(totals[METRICS]),
        "n_trace_evaluations": int(totals[TRACES]),
        "exact": inexact_part(kernel) is None,
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


def kernel_as_json(kernel) -> str:
    """``{"kernel": "NUTS", "step_size": null, "metric": {...}, ...}``; arrays as lists."""

    def plain(value):
        if dataclasses.is_dataclass(value):
            fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return {"name": type(value).__name__, **fields}
        if isinstance(value, Mapping):  # a list, since the order of the blocks matters
            return [[list(key) if isinstance(key, tuple) else key, plain(each)] for key, each in value.items()]
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

    return json.dumps(plain(kernel))


def assemble(model, kernel, runs: list[ChainRun], save_warmup: bool, attributes: dict) -> Result:
    """The result of the chains: all of them, or the largest rectangle when some are shorter."""
    lengths = np.array([len(run.draws) for run in runs])
    kept, n = largest_rectangle(lengths)
    whole = len(set(lengths)) == 1
    groups: dict[str, Group] = {}
    draws = np.stack([runs[k].draws[:n] for k in kept])
    rows = np.stack([runs[k].stats[:n] for k in kept])
    stats = statistics(kernel, rows)
    groups["posterior"] = model.constrain(draws)
    groups["sample_stats"] = stats
    groups["unconstrained_posterior"] = {"q": draws}
    if save_warmup:
        m = min(len(runs[k].warmup_draws) for k in kept)
        warm = np.stack([runs[k].warmup_draws[:m] for k in kept])
        groups["warmup_posterior"] = model.constrain(warm)
        groups["warmup_sample_stats"] = statistics(kernel, np.stack([runs[k].warmup_stats[:m] for k in kept]))
        groups["warmup_unconstrained_posterior"] = {"q": warm}
    attributes = {**attributes, "chains": [int(k) for k in kept]}
    blocks = kernel.split(rows) if isinstance(kernel, Gibbs) else {"": stats}
    tune = int(attributes["tuning_steps"])
    unevaluated = np.zeros((len(kept), n), bool)
    for row, k in enumerate(kept):
        met = [i - tune for failure in runs[k].failures for i in failure.iterations]
        unevaluated[row, [i for i in met if 0 <= i < n]] = True
    found = review(model.names, draws, blocks, np.stack([runs[k].start for k in kept]), unevaluated)
    found += failed_evaluations(attributes["evaluation_failures"])
    if not attributes["exact"]:
        found.insert(0, approximate(inexact_part(kernel)))
    lost = [k for k in kept if runs[k].control[SEARCH_FAILED]]
    if lost:
        found.insert(
            0,
            f"The search for a first step size found no end in {len(lost)} of {len(kept)} chains ({lost}): the energy "
            "error of one step does not depend on its size there. Is the density proper, and its gradient right?",
        )
    ragged = {} if whole else {k: run.draws for k, run in enumerate(runs)}
    return Result(groups, attributes, found, ragged)


def statistics(kernel, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Typed statistics by name from the core's rows."""
    return kernel.named(rows) if isinstance(kernel, Gibbs) else named(rows, kernel.statistics)


def inexact_part(kernel):
    """The kernel, or the first of its blocks', whose integrator is not exact; None if there is none."""
    parts = kernel.kernels if isinstance(kernel, Gibbs) else [kernel]
    return next((part for part in parts if not resolve(part.metric, part.integrator)[1].exact), None)


def approximate(kernel) -> str:
    """The warning that goes with every result of an integrator that is not exact."""
    return (
        f"The chain is approximate: the map that {type(kernel.integrator).__name__} makes of (q, p) neither keeps volume nor "
        "reverses, so accepting on its energy error does not keep the target, however many draws are taken. ProjectedTao is "
        "the exact form; refhmc.diagnostics.volume_violation measures the error."
    )


def largest_rectangle(lengths: np.ndarray) -> tuple[list[int], int]:
    """Which chains to keep, and how many draws of each, so that the most draws are kept."""
    order = np.argsort(-lengths, kind="stable")
    sizes = [(rank + 1) * int(lengths[k]) for rank, k in enumerate(order)]
    best = max(range(len(order)), key=lambda rank: (sizes[rank], rank))
    return sorted(int(k) for k in order[: best + 1]), int(lengths[order[best]])


def raise_failure(chain: int, run: ChainRun, result: Result) -> None:
    done = int(run.control[DRAWS_DONE])
    error = SamplingError(
        f"chain {chain} stopped at iteration {done}: {type(run.error).__name__}: {run.error}"
        + (f" (last position q = {np.array2string(run.error_position)})" if run.error_position is not None else "")
        + ". The draws so far, and the other chains, are in this exception's .partial"
    )
    error.partial = result
    raise error from run.error
