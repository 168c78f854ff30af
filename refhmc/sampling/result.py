"""The result of a run: plain arrays by group and name, and the ArviZ object made of them."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refhmc.adaptation.adapted import Adapted, as_dataset
from refhmc.core.arviz import arviz_0, as_arviz, dataset
from refhmc.core.named_axes import PREDICTED, Coords, Dims
from refhmc.sampling.progress import count, told_apart
from refhmc.sampling.store import StoredGroup

Group = dict[str, np.ndarray]

DATA = ("observed_data", "constant_data")


@dataclass(frozen=True, repr=False, eq=False)  # arrays have no one truth value: a result is equal to itself alone
class Result:
    """What ``sample(..., raw=True)`` returns.

    ``groups[group][name]`` is an array (chain, draw, ...): groups ``posterior`` (constrained values), ``sample_stats``
    (:mod:`refhmc.core.sample_stats`), ``unconstrained_posterior`` (the position ``q``), and with ``save_warmup=True`` the
    same three with the prefix ``warmup_``. ``posterior`` is empty where ``constrain`` raised: ``model.constrain(result.draws)``
    can be tried again. Those of the model's ``generated`` (:class:`refhmc.GeneratedQuantities`) are beside them, ``observed_data`` and
    ``constant_data`` without chains and draws, ``prior`` and ``prior_predictive`` with one chain. :func:`refhmc.predict` adds
    ``predictions`` and ``posterior_predictive``. ``attributes`` holds how the run was made, ``warnings`` what deserves a look.
    ``dims`` and ``coords``: names of the variables' axes and labels along them, as the model has them.
    ``ragged`` has each chain's own draws (n_k, d) when the run ended early and the chains are of different lengths;
    the groups then hold the largest rectangle that can be cut from them. ``adapted``: what each chain's warm-up has learned, an
    :class:`refhmc.adaptation.adapted.Adapted` (of several blocks a dictionary of these, by block); in ArviZ's object the group
    ``adaptation``.
    """

    groups: dict[str, Any]  # of groups, and of those of a store (:class:`refhmc.sampling.store.StoredGroup`)
    attributes: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    ragged: dict[int, np.ndarray] = field(default_factory=dict)
    adapted: list[Any] = field(default_factory=list)
    dims: Dims = field(default_factory=dict)
    coords: Coords = field(default_factory=dict)

    def __repr__(self) -> str:
        about, there = self.attributes, self.groups.get("unconstrained_posterior", {"q": np.zeros((0, 0, 0))})
        sizes = there.shape("q") if isinstance(there, StoredGroup) else there["q"].shape
        shape = f"{count(sizes[0], 'chain')} of {count(sizes[1], 'draw')} in {count(sizes[2], 'dimension')}"
        diverged = f", {self.diverged}" if "divergences_per_chain" in about else ""
        groups = ", ".join(f"{name} ({', '.join(group)})" for name, group in self.groups.items() if group)
        warned = "".join(f"\n    warning: {text}" for text in self.warnings)
        return f"Result of {about.get('model', 'a model')!r}: {shape}{diverged}\n    {groups}{warned}"

    @property
    def posterior(self) -> Group:
        return self.groups["posterior"]

    @property
    def sample_stats(self) -> Group:
        return self.groups["sample_stats"]

    @property
    def draws(self) -> np.ndarray:
        """Unconstrained draws, (chain, draw, d)."""
        return self.groups["unconstrained_posterior"]["q"]

    @property
    def diverged(self) -> str:
        """How many divergences there were in draws and in warm-up, in words."""
        names = "divergences_per_chain", "warmup_divergences_per_chain"
        return told_apart(*(sum(self.attributes[name]) for name in names))

    @property
    def interrupted(self) -> bool:
        return bool(self.attributes["interrupted"])

    def to_arviz(self) -> Any:
        """An ``InferenceData`` (ArviZ 0.x) or a ``DataTree`` (ArviZ 1.x), whichever is installed.

        A ``DataTree``, too, where there is no ArviZ. Raises ImportError, saying what to install, without xarray.
        """
        made = {name: self.as_dataset(name) for name, group in self.groups.items() if group}
        attributes = self.plain_attributes()
        for group in made.values():
            group.attrs.update(attributes)
        if self.adapted and all(isinstance(each, Adapted) for each in self.adapted):
            made["adaptation"] = as_dataset(self.adapted, list(range(len(self.adapted))))
        return as_arviz(made)

    def plain_attributes(self) -> dict[str, Any]:
        """``attributes`` as files can hold them."""
        now = datetime.datetime.now(datetime.UTC).isoformat()
        return {**_plain(self.attributes), "warnings": json.dumps(self.warnings), "created_at": now}

    def as_dataset(self, name: str) -> Any:
        """One group as an xarray ``Dataset``, its axes named."""
        group = self.groups[name]
        if isinstance(group, StoredGroup):
            return group.as_dataset()
        if name in DATA:
            return dataset(group, self.dims, self.coords, leading=())
        if name.removeprefix("warmup_") in ("sample_stats", "unconstrained_posterior"):  # no variables of the user's
            return dataset(group)
        if name not in self.attributes.get("predicted", ()):
            return dataset(group, self.dims, self.coords)
        n = next(iter(group.values())).shape[1]
        draws = {"draw": int(self.attributes["prediction_thin"]) * np.arange(n)}
        return predicted_dataset(group, self.dims, {**self.coords, **draws})


def predicted_dataset(group: Group, dims: Dims, coords: Coords) -> Any:
    """A group of ``refhmc.predict`` as an xarray ``Dataset``."""
    enough = {name: axes for name, axes in dims.items() if name in group and len(axes) >= group[name].ndim - 2}
    return dataset(group, {**PREDICTED, **enough}, coords)


def summary_table(result: Result) -> Any:
    """ArviZ's summary of the posterior, a pandas table, whichever version is installed."""
    az = arviz_0()
    if az is not None:
        return az.summary(result.to_arviz(), group="posterior")
    from arviz_stats import summary

    return summary(result.to_arviz(), group="posterior")


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    """Values that netCDF can hold: numbers and strings; the rest as JSON, flags as 0 or 1."""
    plain: dict[str, Any] = {}
    for key, value in attributes.items():
        if isinstance(value, bool):
            plain[key] = int(value)
        elif isinstance(value, int) and abs(value) >= 2**63:
            plain[key] = str(value)
        elif isinstance(value, int | float | str):
            plain[key] = value
        else:
            plain[key] = json.dumps(value)
    return plain
