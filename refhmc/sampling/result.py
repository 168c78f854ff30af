"""The result of a run: plain arrays by group and name, and the ArviZ object made of them."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refhmc.adaptation.adapted import Adapted, as_dataset
from refhmc.core.arviz import import_arviz
from refhmc.sampling.progress import told_apart

Group = dict[str, np.ndarray]

# Of what ``refhmc.predict`` adds: the groups, and the axes of their variables after chain and draw.
PREDICTED = ("predictions", "posterior_predictive")
AXES = {
    "mean": ("observation", "output"),
    "outputs": ("observation", "output"),
    "probability": ("observation", "class"),
    "y": ("observation", "output"),
}


@dataclass(frozen=True, repr=False)
class Result:
    """What ``sample(..., raw=True)`` returns.

    ``groups[group][name]`` is an array (chain, draw, ...): groups ``posterior`` (constrained values), ``sample_stats``
    (:mod:`refhmc.core.sample_stats`), ``unconstrained_posterior`` (the position ``q``), and with ``save_warmup=True`` the
    same three with the prefix ``warmup_``. ``posterior`` is empty where ``constrain`` raised: ``model.constrain(result.draws)``
    can be tried again. :func:`refhmc.predict` adds ``predictions`` and ``posterior_predictive``. ``attributes`` holds how the
    run was made, ``warnings`` what deserves a look.
    ``ragged`` has each chain's own draws (n_k, d) when the run ended early and the chains are of different lengths;
    the groups then hold the largest rectangle that can be cut from them. ``adapted``: what each chain's warm-up has learned, an
    :class:`refhmc.adaptation.adapted.Adapted` (of several blocks a dictionary of these, by block); in ArviZ's object the group
    ``adaptation``.
    """

    groups: dict[str, Group]
    attributes: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    ragged: dict[int, np.ndarray] = field(default_factory=dict)
    adapted: list[Any] = field(default_factory=list)

    def __repr__(self) -> str:
        about, there = self.attributes, self.groups.get("unconstrained_posterior", {}).get("q", np.zeros((0, 0, 0)))
        shape = "{} chains of {} draws in {} dimensions".format(*there.shape)
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

        Raises ImportError, saying what to install, when neither ``arviz`` nor ``arviz-base`` is there.
        """
        az = import_arviz()
        there = [k for k, group in self.groups.items() if group]
        others = {k: az.dict_to_dataset(self.groups[k]) for k in there if "unconstrained" in k}
        for k in set(there) & set(PREDICTED):
            n = next(iter(self.groups[k].values())).shape[1]
            coordinates = {"draw": int(self.attributes["prediction_thin"]) * np.arange(n)}
            others[k] = predicted_dataset(az, self.groups[k], coordinates)
        if self.adapted and all(isinstance(each, Adapted) for each in self.adapted):
            learned = as_dataset(self.adapted, list(range(len(self.adapted))))
            others |= {} if learned is None else {"adaptation": learned}
        standard = {k: self.groups[k] for k in there if k not in others}
        warm = any(k.startswith("warmup_") for k in standard)
        if "data" in inspect.signature(az.from_dict).parameters:  # ArviZ 1.x: one nested dictionary
            tree = az.from_dict(standard, save_warmup=warm)
            import xarray as xr

            tree = tree.assign({k: xr.DataTree(v) for k, v in others.items()})
            groups = [tree[name] for name in there]
        else:
            tree = az.from_dict(**standard, save_warmup=warm)
            tree.add_groups(others)
            groups = [tree[name] for name in there]
        attributes = {**_plain(self.attributes), "warnings": json.dumps(self.warnings)}
        for group in groups:
            group.attrs.update(attributes)
        return tree


def predicted_dataset(az: Any, group: Group, coordinates: dict) -> Any:
    """A group of ``refhmc.predict`` as an xarray ``Dataset``; ``coordinates`` of its chains and draws."""
    dims = {name: list(AXES[name][: value.ndim - 2]) for name, value in group.items() if name in AXES}
    return az.dict_to_dataset(group, dims=dims, coords=coordinates)


def summary_table(result: Result) -> Any:
    """ArviZ's summary of the posterior, a pandas table, whichever version is installed."""
    az = import_arviz()
    if hasattr(az, "summary"):
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
