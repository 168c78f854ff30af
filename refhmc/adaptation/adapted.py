"""What warm-up has learned, for the user: the step size, the metric, how they came about; and a warm-up that begins from it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.adaptation.from_pairs import HISTORY, rank_of
from refhmc.metrics.base import FROM_DRAWS
from refhmc.metrics.euclidean import FIRST_DIRECTION, LOW_RANK, STAN, Dense, Diagonal, Identity
from refhmc.metrics.low_rank import LowRank

if TYPE_CHECKING:
    import xarray

OF_METRICS: dict[type, tuple[str, ...]] = {
    Diagonal: ("variances",),
    Dense: ("covariance",),
    LowRank: ("variances", "directions", "eigenvalues"),
}


class Adapted(NamedTuple):
    """Of one chain. ``metric``: with its values, so that a kernel takes it as it is; None where it depends on the
    position or is somebody else's. ``history`` (windows, 6): the columns ``HISTORY`` of :mod:`refhmc.adaptation.from_pairs`."""

    step_size: float
    metric: Any
    history: np.ndarray


def adapted_of(block: Any) -> Adapted:
    """As the block stands."""
    kind: Any = block.plan.dynamics.metric
    metric: Any = None
    if isinstance(kind, Dense):
        metric = Dense(block.mats[0].copy())
    elif isinstance(kind, LowRank):
        k, variances = rank_of(block), block.vecs[0].copy()
        U = block.vecs[FIRST_DIRECTION : FIRST_DIRECTION + k] * block.vecs[1]
        metric = LowRank(variances, U, 1 + block.vecs[int(LOW_RANK.vectors["spread"]), :k])
    elif isinstance(kind, Diagonal):
        metric = Diagonal(block.vecs[0].copy())
    elif isinstance(kind, Identity):
        metric = kind
    done = block.history[:, 0] > 0
    return Adapted(float(block.settings[0].step_size), metric, block.history[done].copy())


def begin_from(block: Any, adapted: Adapted) -> None:
    """Let the block's step size, if it is adapted, and its metric, if it is learned, be these. Raises ValueError for a
    metric of another kind."""
    plan = block.plan
    if plan.warmup[0].adapt_step:
        block.settings[0].step_size = adapted.step_size
    block.progress[0].given = 1
    block.settings[0].max_depth = plan.max_depth  # the limit of early trees is of a warm-up that knows no metric
    kind = plan.dynamics.metric
    if not kind.learns:
        return
    fits = isinstance(adapted.metric, type(kind)) or (
        isinstance(kind, LowRank) and isinstance(adapted.metric, Diagonal)
    )
    if not fits:
        raise ValueError(
            f"warmup: the kernel learns a metric {type(kind).__name__}, and what was learned is {type(adapted.metric).__name__}"
        )
    vecs, mats = adapted.metric.stacks(plan.conditional.model, True)
    block.vecs[: len(vecs)], block.mats[: len(mats)] = vecs, mats


def as_dataset(chains: list[Adapted], numbers: list[int]) -> xarray.Dataset | None:
    """A group of the ArviZ object, the chains' ``numbers`` its coordinate: directions in rows, as many as the most that a chain
    has, NaN where it has fewer. None where the chains have no metric of refhmc's own to show."""
    import xarray as xr

    kind = type(chains[0].metric)
    if kind not in OF_METRICS:
        return None
    axes = {"variances": ("coordinate",), "covariance": ("coordinate", "coordinate_"), "eigenvalues": ("direction",)}
    axes |= {"directions": ("direction", "coordinate"), "history": ("window", "quantity")}
    of_chains = {name: [np.asarray(getattr(each.metric, name)) for each in chains] for name in OF_METRICS[kind]}
    of_chains["history"] = [each.history for each in chains]
    variables: dict[str, Any] = {"step_size": (("chain",), [each.step_size for each in chains])}
    for name, values in of_chains.items():
        rows = max(len(value) for value in values)
        whole = np.full((len(values), rows, *values[0].shape[1:]), np.nan)
        for k, value in enumerate(values):
            whole[k, : len(value)] = value
        variables[name] = (("chain", *axes[name]), whole)
    return xr.Dataset(variables, {"chain": numbers, "quantity": list(HISTORY)}, {"metric": kind.name})


def from_dataset(group: xarray.Dataset) -> list[Adapted]:
    """The chains of such a group."""
    kind = next(each for each in OF_METRICS if each.name == group.attrs["metric"])  # type: ignore[attr-defined]
    found = []
    for k in range(group.sizes["chain"]):
        values = {name: group[name].values[k] for name in (*OF_METRICS[kind], "history")}
        if kind is LowRank:
            there = np.isfinite(values["eigenvalues"])
            values |= {name: values[name][there] for name in ("eigenvalues", "directions")}
        history = values.pop("history")
        history = history[np.isfinite(history).all(axis=1)]
        found.append(Adapted(float(group["step_size"].values[k]), kind(**values), history))
    return found


def ends_of(warmup: Any, chains: int) -> np.ndarray:
    """The last draws of the chains of a result, (chains, d), over again if there are fewer."""
    groups = getattr(warmup, "groups", None)
    if isinstance(groups, dict):
        draws = groups["unconstrained_posterior"]["q"]
    else:
        draws = warmup["unconstrained_posterior"]["q"].values
    return draws[np.arange(chains) % len(draws), -1]


def as_stan(kernel: Any) -> Any:
    """The kernel, or each of its blocks, with what it learns of a metric learned as Stan does, and no trajectory length."""
    if hasattr(kernel, "blocks"):
        return replace(kernel, blocks={block: as_stan(each) for block, each in kernel.blocks.items()})
    if getattr(kernel, "learns_length", False):
        kernel = replace(kernel, trajectory_length=math.pi / 2)
    metric, part = kernel.metric, getattr(kernel.integrator, "base", kernel.integrator)
    if getattr(kernel, "minibatches", False) or (metric is None and getattr(part, "fixed_metric", False)):
        return kernel
    if metric is None:
        return replace(kernel, metric=Diagonal(learn_from=STAN))
    return replace(kernel, metric=type(metric)(learn_from=STAN)) if metric.learns == FROM_DRAWS else kernel


def chains_of(warmup: Any) -> list[Adapted]:
    """What the chains of a result, as ``raw=True`` or ArviZ's object, have learned. Raises ValueError where there is none."""
    known = getattr(warmup, "adapted", None)
    if known is None and not isinstance(warmup, str):
        groups = warmup.groups() if callable(getattr(warmup, "groups", None)) else getattr(warmup, "groups", ())
        if any(str(name).strip("/") == "adaptation" for name in groups):
            group = warmup["adaptation"]
            known = from_dataset(group.to_dataset() if hasattr(group, "to_dataset") else group)
    if not known or not all(isinstance(each, Adapted) for each in known):
        raise ValueError(
            'warmup must be None, "stan", or the result of a run of HMC or NUTS, whose adapted step sizes and metrics it '
            f"holds; got {warmup!r}"[:400]
        )
    return known


def in_words(chains: list[Adapted]) -> str:
    """What was chosen, why, and what it costs, of all chains in one line; "" where nothing was learned from draws and
    gradients."""
    notes = [each.history[-1] for each in chains if len(each.history)]
    if not notes:
        return ""
    column = {name: np.array([note[k] for note in notes]) for k, name in enumerate(HISTORY)}
    steps = f"trajectories of {np.mean(column['n_steps']):.0f} steps"
    ranks = column["rank"]
    if not ranks.any():
        spread = np.max(column["steps_diagonal"])
        why = f", and correlations cost {spread:.1f} times the steps, less than directions would" if spread > 1 else ""
        return f"metric: diagonal in all chains ({steps}{why})"
    some = f"{ranks.min():.0f} to {ranks.max():.0f}" if ranks.min() < ranks.max() else f"{ranks.max():.0f}"
    return (
        f"metric: {some} directions beside the diagonal, without which a trajectory would take "
        f"{np.median(column['steps_diagonal'] / column['steps']):.1f} times the steps; each direction costs 4 d "
        f"multiplications a step ({steps})"
    )
