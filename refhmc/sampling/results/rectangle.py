"""Put draws into a result: all of them, or the largest rectangle if chains have different lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.models.base import Model
from refhmc.sampling.results.result import Result
from refhmc.sampling.storage.in_memory import constrained


def groups_of(q: np.ndarray, stats: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the groups of iterations whose constrained values are not known yet."""
    return {"posterior": {}, "sample_stats": stats, "unconstrained_posterior": {"q": q}}


def put_rectangle(
    result: Result,
    lengths: list[int],
    warmup_lengths: list[int] | None,
    cut: Callable[[list[int], bool, int], dict[str, Any]],
) -> None:
    """Put draws and statistics into the groups of the result, and the chains that are kept into its attributes.

    `lengths` are the numbers of draws of the chains, `warmup_lengths` those of warm-up if it is kept.
    ``cut(chains, warmup, n)`` returns the groups of n iterations.
    """
    chosen, n = largest_rectangle(np.array(lengths))
    warm: dict[str, Any] = {}
    if warmup_lengths is not None:
        m = min(warmup_lengths[k] for k in chosen)
        if not n:  # the run ended in warm-up
            chosen, m = largest_rectangle(np.array(warmup_lengths))
        warm = {f"warmup_{name}": group for name, group in cut(chosen, True, m).items()}
    groups = cut(chosen, False, n) | warm
    result.attributes.update(draws_per_chain=list(lengths), chains=chosen)
    result.groups.update(groups)


def largest_rectangle(lengths: np.ndarray) -> tuple[list[int], int]:
    """Return which chains to keep, and how many draws of each, so that as many draws as possible are kept."""
    order = np.argsort(-lengths, kind="stable")
    sizes = [(rank + 1) * int(lengths[k]) for rank, k in enumerate(order)]
    best = max(range(len(order)), key=lambda rank: (sizes[rank], rank))
    return sorted(int(k) for k in order[: best + 1]), int(lengths[order[best]])


def put_posterior(result: Result, model: Model) -> None:
    """Put the constrained values of all draws into the result."""
    if "store" in result.attributes:
        return
    for group in [name for name in result.groups if name.endswith("unconstrained_posterior")]:
        result.groups[group.replace("unconstrained_", "")] = constrained(model, result.groups[group]["q"])
