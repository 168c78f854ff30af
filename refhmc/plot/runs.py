"""A run read from a :class:`refhmc.Result`, from an ArviZ object of either version, or from a netCDF file."""

from __future__ import annotations

import json
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.adaptation.adapted import Adapted, chains_of
from refhmc.core.arviz import dataset_of, group_names, read_tree
from refhmc.sampling.results.result import Result

Group = Mapping[str, np.ndarray]
FEW_CHAINS = 16
DIGITS = 1000  # longest seed: int() of a longer string is slow or rejected by Python
OF_DRAWS = ("posterior", "sample_stats", "unconstrained_posterior")
READ = (*OF_DRAWS, *(f"warmup_{name}" for name in OF_DRAWS), "predictions")  # groups to read; others may be large


class Run(NamedTuple):
    """``groups[group][name]`` (chain, draw, ...), ``attributes``, ``warnings`` and ``adapted`` of a :class:`refhmc.Result`."""

    groups: Mapping[str, Group]
    attributes: dict[str, Any]
    warnings: list[str]
    adapted: list[Adapted]

    @property
    def stats(self) -> Group:
        return self.groups.get("sample_stats", {})

    @property
    def values(self) -> Group:
        """The constrained values, or the positions if there are none."""
        return self.groups.get("posterior") or self.groups.get("unconstrained_posterior") or {}

    def statistic(self, name: str, warmup: bool = False) -> np.ndarray | None:
        """Return a statistic (chain, draw), or None if the kernel does not have it."""
        stats = self.groups.get("warmup_sample_stats", {}) if warmup else self.stats
        return np.asarray(stats[name]) if name in stats else None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of chains and draws."""
        for group in (self.values, self.stats):
            for value in group.values():
                return np.shape(value)[:2]  # type: ignore[return-value]
        return 0, 0

    @property
    def chains(self) -> list[int]:
        """The numbers of the chains."""
        known = self.attributes.get("chains")
        return known if isinstance(known, list) and len(known) == self.shape[0] else list(range(self.shape[0]))


RunLike = Run | Result | str | os.PathLike | Mapping  # the last for ArviZ objects


def run_of(result: RunLike) -> Run:
    """Return the run. Raises TypeError if `result` is not one, and OSError if a file cannot be read."""
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
        raise TypeError(
            f"result must be a refhmc.Result, an ArviZ object or a netCDF file; got {type(result).__name__}."
        )
    datasets = {name: dataset_of(result[name]) for name in names}
    groups = {
        name: {str(key): np.asarray(value.values) for key, value in data.data_vars.items()}
        for name, data in datasets.items()
    }
    stored: dict[str, Any] = {}
    for data in datasets.values():
        stored = dict(data.attrs) | stored
    attributes = checked({key: unpacked(value) for key, value in stored.items()})
    warnings = attributes.pop("warnings", [])
    try:
        learned = chains_of(result)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        learned = []
    return Run(groups, attributes, warnings if isinstance(warnings, list) else [], learned)


def of_few_chains(run: Run) -> Run:
    """Return the run with its first 16 chains at most: more lines cannot be distinguished in a plot."""
    if run.shape[0] <= FEW_CHAINS:
        return run
    groups = {name: {key: value[:FEW_CHAINS] for key, value in group.items()} for name, group in run.groups.items()}
    return Run(groups, run.attributes, run.warnings, run.adapted[:FEW_CHAINS])


def unpacked(value: Any) -> Any:
    """Return an attribute as before it was written to a file: lists from JSON, Python numbers from NumPy's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and value.startswith("["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def names_of(key: str, value: np.ndarray) -> Iterator[str]:
    """Yield the names of the scalars of a variable (chain, draw, ...): ``theta[0]``, ``theta[1]``, ..."""
    for index in np.ndindex(*np.shape(value)[2:]):
        yield key + "".join(f"[{i}]" for i in index)


def scalars(run: Run, wanted: str | Sequence[str] | None = None, most: int | None = None) -> dict[str, np.ndarray]:
    """Return scalar values (chain, draw) by name: those `wanted`, by scalar or variable name, or all, at most `most`.

    Raises ValueError if a name does not exist.
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
            raise ValueError(f"{name!r} must be the name of a value in the result; it has {there}.")
    return found


def before(run: Run, values: np.ndarray, name: str, which: np.ndarray) -> np.ndarray:
    """Return the values (k,) of a scalar (chain, draw) at which the transitions marked in `which` (chain, draw) started.

    A transition starts at the previous draw. The first transition starts at the last draw of warm-up if that was saved; its
    value is NaN otherwise.
    """
    first = np.full(len(values), np.nan)
    warm = Run({"posterior": run.groups.get("warmup_" + group_of(run)) or {}}, {}, [], [])
    if warm.values and warm.shape[1]:
        first = scalars(warm, [name])[name][:, -1]
    chain, i = np.nonzero(which)
    return np.where(i == 0, first[chain], values[chain, i - 1])


def group_of(run: Run) -> str:
    return "posterior" if run.groups.get("posterior") else "unconstrained_posterior"


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_whole(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def is_number(value: object) -> bool:
    return isinstance(value, int | float)


def is_flag(value: object) -> bool:
    return value in (0, 1) if isinstance(value, int | float) else False


def is_seed(value: object) -> bool:
    """Return whether it is a whole number or its digits: a file holds a large one as text."""
    digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= DIGITS
    return digits or is_whole(value)


def is_list_of(each: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(each, value))


# Of the attributes that reports and plots use. A file may come from an untrusted source.
TYPES: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("model", "model_fingerprint", "kernel", "adaptation", "backend", "device"), is_text),
    **dict.fromkeys(("stopped_by", "refhmc_version", "created_at"), is_text),
    **dict.fromkeys(("draws", "tuning_steps", "n_gradient_evaluations"), is_whole),
    **dict.fromkeys(("sampling_time", "compilation_time"), is_number),
    **dict.fromkeys(("exact", "fused"), is_flag),
    **dict.fromkeys(("chains", "iterations_per_chain"), is_list_of(is_whole)),
    **dict.fromkeys(("divergences_per_chain", "warmup_divergences_per_chain"), is_list_of(is_whole)),
    "starts": is_list_of(is_text),
    "entropy": is_seed,
}


def checked(attributes: Mapping[str, object]) -> dict[str, Any]:
    """Return the attributes without those of ``TYPES`` that have another type."""
    return {key: value for key, value in attributes.items() if key not in TYPES or TYPES[key](value)}
