"""The results of warm-up (step size, metric, trajectory length of HMC, and their history), and a warm-up that starts from them.

A step size, and a length, belong to the metric and the integrator with which they were learned. A run takes them only if it has
the same integrator and the same metric, up to the random differences between two chains.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from refhmc.adaptation.dual_averaging import continue_dual_averaging
from refhmc.adaptation.from_pairs import HISTORY, change, put_hierarchy, rows_of
from refhmc.core.arviz import dataset_of, group_names
from refhmc.errors import ShapeError
from refhmc.metrics import METRICS
from refhmc.metrics.base import FROM_DRAWS, NOTHING
from refhmc.metrics.euclidean import Diagonal, Euclidean, is_plain
from refhmc.metrics.hierarchical import PARENTS, TERMS, Hierarchical, without_parents
from refhmc.metrics.low_rank import LowRank

if TYPE_CHECKING:
    import xarray

FUNNEL = "funnel detected"
MOST_NAMED = 5  # coordinates in a line
SAME = 1.5  # factor of a variance: a metric that differs by less hardly changes the step size (by a factor of 1.2)


class Adapted(NamedTuple):
    """Values that one chain has learned in warm-up.

    ``metric`` has its values, so that a kernel can use it; it is None for a user's own metric without
    ``learned_values``. ``history`` (windows, 6) has the columns ``HISTORY`` of :mod:`refhmc.adaptation.from_pairs`. ``length``
    and ``jitter`` describe HMC's trajectories if the kernel gives no length; otherwise they are None and 0. ``integrator`` is
    its name, "" if unknown.
    """

    step_size: float
    metric: Any
    history: np.ndarray
    length: float | None = None
    jitter: float = 0.0
    integrator: str = ""

    def column(self, name: str) -> np.ndarray:
        """Return a column of the history, (windows,)."""
        return self.history[:, HISTORY.index(name)]


def adapted_of(block: Any) -> Adapted:
    """Return the present values of a block."""
    kind: Any = block.dynamics.metric
    metric: Any = kind if is_known(kind) and kind.learns == NOTHING else None
    if values_of(kind):
        metric = kind.from_rows(block.vecs, block.mats)
    done, settings = block.history[:, 0] > 0, block.settings[0]
    steps = integrator_of(block.dynamics.integrator)
    learned = Adapted(float(settings.step_size), metric, block.history[done].copy(), integrator=steps)
    if not block.plan.learns_length:
        return learned
    return learned._replace(length=float(settings.trajectory_length), jitter=float(settings.length_jitter))


def integrator_of(integrator: Any) -> str:
    """Return the integrator's class, and for a composition also its base.

    The options of the solver are not included, since they do not change the step size.
    """
    base, name = getattr(integrator, "base", None), type(integrator).__name__
    return name if base is None else f"{name} of {integrator_of(base)}"


def is_learned_hierarchy(metric: Any) -> bool:
    """Return whether a metric has the terms and parents of a hierarchical one that warm-up learns."""
    return isinstance(metric, Hierarchical) and metric.exponents[2].shape[:2] == (TERMS, PARENTS)


def is_known(metric: Any) -> bool:
    """Return whether the metric is one of refhmc's own."""
    return type(metric) in METRICS.values()


def values_of(metric: Any) -> tuple[str, ...]:
    """Return the names of a metric's values that warm-up can learn; () if it has none."""
    return metric.learned_values if isinstance(metric, Euclidean | Hierarchical) else ()


def begin_from(block: Any, adapted: Adapted) -> None:
    """Set the block's metric (if learned), step size (if adapted) and trajectory length (if the kernel gives none) to these.

    Raises ValueError for those of another metric or integrator, and for invalid numbers.
    """
    plan, settings = block.plan, block.settings[0]
    if plan.hierarchical is not None:
        block.change_metric(is_learned_hierarchy(adapted.metric))
    length = 1.0 if adapted.length is None else adapted.length
    for name, value in {"step_size": adapted.step_size, "trajectory_length": length}.items():
        if not 0 < value < math.inf:
            raise ValueError(f"{name} of warmup must be positive and finite; got {value}. Give another result.")
    if not 0 <= adapted.jitter < 1:
        raise ValueError(f"length_jitter of warmup must lie in [0, 1); got {adapted.jitter}. Give another result.")
    adapts, takes_length = bool(plan.warmup[0].adapt_step), plan.learns_length and adapted.length is not None
    if plan.dynamics.metric.learns:
        take_metric(block, adapted.metric)
    elif adapts or takes_length:
        check_metric(plan.dynamics.metric, adapted.metric, plan.conditional.model.dim)
    if adapts or takes_length:
        check_integrator(integrator_of(block.dynamics.integrator), adapted.integrator)
    block.progress[0].given = 1
    settings.max_depth = plan.max_depth  # early trees are limited only if no metric is known
    if adapts:
        settings.step_size = adapted.step_size
        continue_dual_averaging(block.dual[0], adapted.step_size)
    if takes_length:
        settings.trajectory_length = block.length[0].length = adapted.length
        if plan.learns_jitter:
            settings.length_jitter = adapted.jitter or settings.length_jitter


def take_metric(block: Any, metric: Any) -> None:
    """Set the start of the metric that the block learns. Raises ValueError for a metric of another kind."""
    kind = block.dynamics.metric
    if metric is None and not values_of(kind):
        raise ValueError(
            f"warmup must have the values that {name_of(kind)} has learned; got a result without them. Name them in its "
            "attribute learned_values (docs/how_to_add.md), or omit warmup."
        )
    if isinstance(kind, Hierarchical):
        put_hierarchy(block, metric)
        return
    if not isinstance(metric, type(kind)) and not (isinstance(kind, LowRank) and isinstance(metric, Diagonal)):
        raise ValueError(
            f"warmup must have the metric that the kernel learns, {name_of(kind)}; got {name_of(metric)}. "
            "Use a kernel with the metric of the result, or omit warmup."
        )
    vecs, mats = metric.stacks(block.plan.conditional.model, True)
    block.vecs[: len(vecs)], block.mats[: len(mats)] = vecs, mats


def check_metric(kind: Any, metric: Any, d: int) -> None:
    """Raise ValueError unless values learned with ``metric`` are suitable for the kernel's ``kind``, which learns nothing."""
    if is_same(kind, metric, d):
        return
    other = " with other values" if type(kind) is type(metric) else ""
    raise ValueError(
        f"warmup must have the metric of the kernel, {name_of(kind)}; got {name_of(metric)}{other}. Its step size may be far "
        "from a suitable one. Use a kernel with the metric of the result, or omit warmup."
    )


def check_integrator(kinds: str, learned: str) -> None:
    """Raise ValueError if a step size was ``learned`` by another integrator than the kernel's."""
    if learned not in ("", kinds):
        raise ValueError(
            f"warmup must have the integrator of the kernel, {kinds}; got {learned}. Its step size may be far from a suitable "
            "one. Use a kernel with the integrator of the result, or omit warmup and use metric=result.adapted[0].metric."
        )


def is_same(kind: Any, metric: Any, d: int) -> bool:
    """Return whether both metrics are the same: constant ones if M^-1 agrees within the factor ``SAME``, others by options.

    A user's own metric without ``learned_values`` is not stored, and is assumed to be the kernel's.
    """
    if has_constant_rows(kind) and has_constant_rows(metric):
        return change(as_rows(metric, d), as_rows(kind, d)) <= SAME
    if metric is None or type(kind) is not type(metric):
        return metric is None and not is_known(kind)
    return all(np.array_equal(getattr(kind, each.name), getattr(metric, each.name)) for each in fields(kind))


def has_constant_rows(metric: Any) -> bool:
    """Return whether ``as_rows`` describes the metric."""
    return is_plain(metric) or isinstance(metric, LowRank)


def as_rows(metric: Any, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a constant metric M^-1 = S^2 + sum_j x_j v_j v_j' as S^2 (d,), the rows v_j (k, d) and x (k,)."""
    if isinstance(metric, LowRank):
        V, eigenvalues = metric.low_rank(d)
        return metric.scales(d), V, eigenvalues - 1
    inverse_mass = metric.inverse_mass(d)
    return rows_of(inverse_mass) if inverse_mass.ndim == 2 else (inverse_mass, np.zeros((0, d)), np.zeros(0))


def name_of(metric: Any) -> str:
    """Return the class of a metric, or a note that it is not stored."""
    return "(your own)" if metric is None else type(metric).__name__


def label_of(metric: Any) -> str:
    """Return the name of a metric in a result: refhmc's own, or the class of a user's."""
    return metric.name if is_known(metric) else type(metric).__name__


def options_of(metric: Any) -> dict[str, Any]:
    """Return the options of one of refhmc's metrics, by name; those that are not the defaults if it has learned values."""
    names, found = values_of(metric), {}
    for each in fields(metric):
        value, default = getattr(metric, each.name), cast(Any, each.default)
        if not names or (each.name not in names and not np.array_equal(value, default)):
            found[each.name] = np.asarray(value).tolist()
    return found


def as_dataset(chains: list[Adapted], numbers: list[int]) -> xarray.Dataset:
    """Return a group of the ArviZ object, with the chains' ``numbers`` as its coordinate.

    Directions are rows, padded with NaN to the largest number that a chain has. The attribute ``metric`` is the metric's name,
    the class of a user's own, or "none" if its values are not known. ``options`` has, as JSON, those of a metric that was not
    learned, and is empty for a user's. ``integrator`` is its class, or those of all chains, separated by commas.
    """
    import xarray as xr

    chains = alike(chains)
    metric = chains[0].metric
    names, options = values_of(metric), options_of(metric) if is_known(metric) else {}
    axes: dict[str, tuple[str, ...]]
    axes = {"variances": ("coordinate",), "covariance": ("coordinate", "coordinate_"), "eigenvalues": ("direction",)}
    axes |= {"directions": ("direction", "coordinate"), "history": ("window", "quantity")}
    axes |= {"constants": ("term", "coordinate"), "parents": ("parent", "coordinate")}
    axes |= {"coefficients": ("term", "parent", "coordinate")}
    of_chains = {name: [np.asarray(getattr(each.metric, name)) for each in chains] for name in names}
    of_chains["history"] = [each.history for each in chains]
    variables: dict[str, Any] = {"step_size": (("chain",), [each.step_size for each in chains])}
    if chains[0].length is not None:
        variables["trajectory_length"] = (("chain",), [each.length for each in chains])
        variables["length_jitter"] = (("chain",), [each.jitter for each in chains])
    for name, values in of_chains.items():
        rows = max(len(value) for value in values)
        whole = np.full((len(values), rows, *values[0].shape[1:]), np.nan)
        for k, value in enumerate(values):
            whole[k, : len(value)] = value
        if len(axes.get(name, ())) != whole.ndim - 1:
            axes[name] = tuple(f"{name}_dim_{k}" for k in range(whole.ndim - 1))
        variables[name] = (("chain", *axes[name]), whole)
    about = {"metric": "none" if metric is None else label_of(metric), "options": json.dumps(options)}
    integrators = [each.integrator for each in chains]
    about["integrator"] = integrators[0] if len(set(integrators)) == 1 else ",".join(integrators)
    made = xr.Dataset(variables, {"chain": numbers, "quantity": list(HISTORY)}, about)
    # ArviZ 0.23's to_dataframe needs labels for every axis.
    return made.assign_coords({axis: np.arange(n) for axis, n in made.sizes.items() if axis not in made.coords})


def alike(chains: list[Adapted]) -> list[Adapted]:
    """Return the chains with hierarchical metrics for those of low rank, if some of the others have one.

    Each chain decides by itself whether its metric becomes hierarchical.
    """
    if not any(is_learned_hierarchy(each.metric) for each in chains):
        return chains
    return [
        each._replace(metric=without_parents(each.metric)) if isinstance(each.metric, LowRank) else each
        for each in chains
    ]


def from_dataset(group: xarray.Dataset, own: Any = None) -> list[Adapted]:
    """Return the values of the chains in such a group, for a kernel with the metric ``own``.

    Values of a user's metric become values of ``own`` if it is of the same class; otherwise the metric is None.
    """
    kind: Callable | None = METRICS.get(group.attrs["metric"])
    options = json.loads(group.attrs.get("options", "{}"))
    if kind is None and values_of(own) and label_of(own) == group.attrs["metric"]:
        kind = partial(replace, own)
    names = values_of(own) if isinstance(kind, partial) else getattr(kind, "learned_values", ())
    found = []
    for k in range(group.sizes["chain"]):
        values = {name: group[name].values[k] for name in (*names, "history")}
        if kind in (LowRank, Hierarchical):
            there = np.isfinite(values["eigenvalues"])
            values |= {name: values[name][there] for name in ("eigenvalues", "directions")}
        if "parents" in values:  # they were padded, as floats
            values["parents"] = values["parents"].astype(int)
        history = values.pop("history")
        history = history[np.isfinite(history).all(axis=1)]
        metric: Any = None if kind is None else kind(**options, **values)
        if is_learned_hierarchy(metric) and not np.any(metric.coefficients):
            metric = LowRank(1 / metric.constant_masses(), metric.directions, metric.eigenvalues)
        integrators = group.attrs.get("integrator", "").split(",")
        integrator = integrators[k % len(integrators)]
        learned = Adapted(float(group["step_size"].values[k]), metric, history, integrator=integrator)
        if "trajectory_length" in group:
            length, jitter = (float(group[name].values[k]) for name in ("trajectory_length", "length_jitter"))
            learned = learned._replace(length=length, jitter=jitter)
        found.append(learned)
    return found


def positions_of(warmup: Any) -> Any:
    """Return the group of a result that has its positions, raw or ArviZ's; None if it does not exist."""
    if "unconstrained_posterior" not in group_names(warmup):
        return None
    return (warmup.groups if isinstance(warmup.groups, dict) else warmup)["unconstrained_posterior"]


def shape_of(warmup: Any) -> tuple[int, ...]:
    """Return the numbers of chains, draws and dimensions, for a store without reading it; () if the result has no positions."""
    group = positions_of(warmup)
    if group is None:
        return ()
    return group.shape("q") if hasattr(group, "shape") else group["q"].shape


def ends_of(warmup: Any, chains: int) -> np.ndarray:
    """Return the last draws of the chains of a result, (chains, d), repeated if there are fewer.

    Raises ValueError for a result without draws.
    """
    if not all(shape_of(warmup)[:2] or (0,)):
        raise ValueError(
            "warmup must have draws, from the last of which the chains start; got a result without draws. Give initvals."
        )
    draws = np.asarray(positions_of(warmup)["q"])
    return draws[np.arange(chains) % len(draws), -1]


def check_dimension(warmup: Any, d: int) -> None:
    """Raise ShapeError for a result of a model of another dimension than ``d``."""
    found = shape_of(warmup)[2:]
    if found and found != (d,):
        raise ShapeError(
            f"warmup must be the result of a model of dimension {d}; got dimension {found[0]}. Give a result of this model."
        )


def as_stan(kernel: Any) -> Any:
    """Return the kernel, or the Gibbs kernel of such blocks, that learns as Stan does, from draws and without a length.

    ``Diagonal()`` and ``Dense()`` use Stan's rule, and "auto" becomes Stan's diagonal. A metric that learns from gradients,
    such as ``LowRank()``, keeps its windows, since Stan has no counterpart. A metric that learns nothing does not change.
    """
    if hasattr(kernel, "rungs"):
        return replace(kernel, kernel=as_stan(kernel.kernel))
    if hasattr(kernel, "blocks"):
        return replace(kernel, blocks={block: as_stan(each) for block, each in kernel.blocks.items()})
    if getattr(kernel, "learns_length", False):
        kernel = replace(kernel, trajectory_length=math.pi / 2)
    metric, part = kernel.metric, getattr(kernel.integrator, "base", kernel.integrator)
    if getattr(kernel, "minibatches", False) or (metric is None and getattr(part, "fixed_metric", False)):
        return kernel
    if metric is None:
        return replace(kernel, metric=Diagonal(regularization="stan"))
    if metric.learns != FROM_DRAWS:
        return kernel
    if not hasattr(metric, "regularization"):
        raise ValueError(
            f"metric must have the argument regularization for warmup='stan'; got {name_of(metric)}, which has none. "
            "Define it as in Diagonal, use Diagonal() or Dense(), or omit warmup."
        )
    return replace(kernel, metric=replace(metric, regularization="stan"))


def chains_of(warmup: Any, metric: Any = None) -> list[Adapted]:
    """Return the values that the chains of a result, raw or ArviZ's, have learned, for a kernel with this ``metric``.

    Raises ValueError if it has none.
    """
    known = getattr(warmup, "adapted", None)
    if known is None and "adaptation" in group_names(warmup):
        known = from_dataset(dataset_of(warmup["adaptation"]), metric)
    if not known or not all(isinstance(each, Adapted) for each in known):
        raise ValueError(
            why_not(attributes_of(warmup))
            or f'warmup must be None, "stan", or the result of a run of HMC, NUTS or DHMC; got {warmup!r}'[:400]
        )
    return known


def attributes_of(warmup: Any) -> dict[str, Any]:
    """Return the attributes of the run that made the result."""
    about = getattr(warmup, "attributes", None)
    if about is None and "unconstrained_posterior" in group_names(warmup):
        about = warmup["unconstrained_posterior"].attrs
    return dict(about or {})


def why_not(about: dict[str, Any]) -> str:
    """Return why the result of a run with these attributes cannot be used; "" if they are not those of a result."""
    if about.get("inference_library") != "refhmc":
        return ""
    if about["backend"] != "numba":
        return (
            f"warmup must be a result of backend='numba'; got one of backend={about['backend']!r}, whose chains learn "
            "together. Omit warmup."
        )
    if (name := json.loads(about["kernel"])["name"]) in ("Gibbs", "Tempered"):
        return f"warmup must be a result of HMC, NUTS or DHMC; got one of {name}, whose parts adapt separately. Omit warmup."
    return (
        "warmup must be a result whose warm-up has ended; got one that stopped before. Resume that run, or omit warmup."
    )


def funnel_in_words(metrics: list[Hierarchical], chains: int, names: list[str]) -> str:
    """Return one line on the hierarchical metrics of some of the ``chains``."""
    parents: set[int] = set()
    for metric in metrics:
        _, of, c = metric.exponents
        parents |= set(of[np.any(c != 0, axis=0)].tolist())
    said = [names[i] for i in sorted(parents)]
    on = ", ".join(said[:MOST_NAMED]) + (f" and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else "")
    some = "" if len(metrics) == chains else f" in {len(metrics)} of {chains} chains"
    return f"{FUNNEL}: hierarchical metric on {on}{some}"


def in_words(chains: list[Adapted], names: list[str]) -> str:
    """Return one line on the metric that was chosen, why, and its cost; "" unless it was learned from draws and gradients.

    ``names`` are those of the coordinates.
    """
    noted = [each for each in chains if len(each.history)]
    if not noted:
        return ""
    hierarchical = [each.metric for each in noted if is_learned_hierarchy(each.metric)]
    if hierarchical:
        return funnel_in_words(hierarchical, len(noted), names)
    column = {name: np.array([each.column(name)[-1] for each in noted]) for name in HISTORY}
    steps = f"trajectories of {np.mean(column['n_steps']):.0f} steps"
    ranks, by_draws = np.maximum(column["rank"], 0), int(np.sum(column["rank"] < 0))
    if by_draws:
        steps += f"; scales from the draws alone in {by_draws} of {len(noted)} chains, because transitions diverged"
    if not ranks.any():
        spread = np.max(column["steps_diagonal"])
        why = f"; correlations cost {spread:.1f} times the steps, less than directions would" if spread > 1 else ""
        return f"metric: diagonal in all chains ({steps}{why})"
    some = f"{ranks.min():.0f} to {ranks.max():.0f}" if ranks.min() < ranks.max() else f"{ranks.max():.0f}"
    return (
        f"metric: diagonal and {some} directions ({steps}). Without the directions a trajectory would take "
        f"{np.median(column['steps_diagonal'] / column['steps']):.1f} times the steps; each direction costs 4 d "
        "multiplications per step"
    )
