"""A run, however it is held: a :class:`refhmc.Result`, ArviZ's object of either version, or a netCDF file of it."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from refhmc.adaptation.adapted import Adapted, chains_of
from refhmc.core.arviz import read_tree
from refhmc.plot.attributes import checked
from refhmc.sampling.result import Result

Group = Mapping[str, np.ndarray]
FEW_CHAINS = 16
OF_DRAWS = ("posterior", "sample_stats", "unconstrained_posterior")
READ = (*OF_DRAWS, *(f"warmup_{name}" for name in OF_DRAWS), "predictions")  # there may be others, and large ones


class Run(NamedTuple):
    """``groups[group][name]`` (chain, draw, ...), ``attributes``, ``warnings`` and what each chain has ``adapted``, as
    those of a :class:`refhmc.Result`."""

    groups: Mapping[str, Group]
    attributes: dict[str, Any]
    warnings: list[str]
    adapted: list[Adapted]

    @property
    def stats(self) -> Group:
        return self.groups.get("sample_stats", {})

    @property
    def values(self) -> Group:
        """The constrained values, or where there are none the positions."""
        return self.groups.get("posterior") or self.groups.get("unconstrained_posterior") or {}

    def statistic(self, name: str, warmup: bool = False) -> np.ndarray | None:
        """(chain, draw), None where the kernel has no such statistic."""
        stats = self.groups.get("warmup_sample_stats", {}) if warmup else self.stats
        return np.asarray(stats[name]) if name in stats else None

    @property
    def shape(self) -> tuple[int, int]:
        """Chains and draws."""
        for group in (self.values, self.stats):
            for value in group.values():
                return np.shape(value)[:2]  # type: ignore[return-value]
        return 0, 0

    @property
    def chains(self) -> list[int]:
        """Their numbers."""
        known = self.attributes.get("chains")
        return known if isinstance(known, list) and len(known) == self.shape[0] else list(range(self.shape[0]))


def run_of(result: Any) -> Run:
    """What there is to draw of it. Raises TypeError for what is no result, OSError for a file that cannot be read."""
    if isinstance(result, Run):
        return result
    if isinstance(result, Result):
        learned = [each for each in result.adapted if isinstance(each, Adapted)]
        return Run(result.groups, checked(result.attributes), list(result.warnings), learned)
    if isinstance(result, str | os.PathLike):
        with read_tree(pathlib.Path(result)) as tree:
            return run_of(tree)
    names = [name for name in group_names(result) if name in READ]
    if not names:
        raise TypeError(f"expected what refhmc.sample returns, or a netCDF file of it, got {type(result).__name__}")
    datasets = {name: as_dataset(result[name]) for name in names}
    groups = {
        name: {str(key): np.asarray(value.values) for key, value in data.data_vars.items()}
        for name, data in datasets.items()
    }
    said: dict[str, Any] = {}
    for data in datasets.values():
        said = dict(data.attrs) | said
    attributes = checked({key: unpacked(value) for key, value in said.items()})
    warnings = attributes.pop("warnings", [])
    try:
        learned = chains_of(result)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        learned = []
    return Run(groups, attributes, warnings if isinstance(warnings, list) else [], learned)


def of_few_chains(run: Run) -> Run:
    """The run with its first 16 chains at most: more lines than these nobody tells apart."""
    if run.shape[0] <= FEW_CHAINS:
        return run
    groups = {name: {key: value[:FEW_CHAINS] for key, value in group.items()} for name, group in run.groups.items()}
    return Run(groups, run.attributes, run.warnings, run.adapted[:FEW_CHAINS])


def group_names(result: Any) -> list[str]:
    """Of ArviZ's object, of 0.x, where ``groups`` is a method, or 1.x; none for another object."""
    groups = getattr(result, "groups", ())
    names = groups() if callable(groups) else groups
    return [name for name in (str(each).strip("/") for each in names) if name and "/" not in name]


def as_dataset(group: Any) -> Any:
    return group.to_dataset() if hasattr(group, "to_dataset") else group


def unpacked(value: Any) -> Any:
    """An attribute as it was before a file held it: lists come back from JSON, NumPy's numbers as Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and value.startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def names_of(key: str, value: np.ndarray) -> Iterator[str]:
    """Of the scalars of a variable (chain, draw, ...): ``theta[0]``, ``theta[1]``, ..."""
    for index in np.ndindex(*np.shape(value)[2:]):
        yield key + "".join(f"[{i}]" for i in index)


def scalars(run: Run, wanted: Any = None, most: int | None = None) -> dict[str, np.ndarray]:
    """Scalar values by name, each (chain, draw): those ``wanted``, by name or by their variable's, or all, the first
    ``most``.

    Raises ValueError for a name that there is not.
    """
    found: dict[str, np.ndarray] = {}
    asked = [wanted] if isinstance(wanted, str) else wanted
    for key, value in run.values.items():
        if asked is not None and not any(name == key or name.startswith(f"{key}[") for name in asked):
            continue
        chains, draws, *shape = np.shape(value)
        columns = np.asarray(value).reshape(chains, draws, math.prod(shape))
        for k, name in enumerate(names_of(key, value)):
            if most is not None and len(found) == most:
                return found
            if asked is None or name in asked or key in asked:
                found[name] = columns[:, :, k].astype(float)
    for name in asked or ():
        if not any(name == each or each.startswith(f"{name}[") for each in found):
            there = ", ".join(f"{key} {np.shape(value)[2:]}" for key, value in run.values.items())
            raise ValueError(f"the result has no value named {name!r}; it has {there}")
    return found


def before(run: Run, values: np.ndarray, name: str, which: np.ndarray) -> np.ndarray:
    """(k,): of a scalar (chain, draw) its value where the transitions started that are True in ``which`` (chain, draw).

    A transition starts at the draw before. That of the first draws is the last of warm-up, if it was saved; else they are
    NaN.
    """
    first = np.full(len(values), np.nan)
    warm = Run({"posterior": run.groups.get("warmup_" + group_of(run)) or {}}, {}, [], [])
    if warm.values and warm.shape[1]:
        first = scalars(warm, [name])[name][:, -1]
    chain, i = np.nonzero(which)
    return np.where(i == 0, first[chain], values[chain, i - 1])


def group_of(run: Run) -> str:
    return "posterior" if run.groups.get("posterior") else "unconstrained_posterior"
