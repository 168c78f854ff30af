"""The result of a run: plain arrays by group and name, and their conversion to ArviZ."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.adaptation.adapted import FUNNEL, Adapted, as_dataset
from refhmc.core.arviz import arviz_0, as_arviz, dataset
from refhmc.core.named_axes import PREDICTED, Coords, Dims
from refhmc.sampling.progress import count, told_apart
from refhmc.sampling.storage.store import StoredGroup

if TYPE_CHECKING:
    import xarray

Group = dict[str, np.ndarray]

DATA = ("observed_data", "constant_data")


@dataclass(frozen=True, repr=False, eq=False)  # arrays have no single truth value: a result only equals itself
class Result:
    """Result of a run as NumPy arrays, as returned by ``sample(..., raw=True)``.

    Each of the `groups` is a dictionary of arrays (chain, draw, ...):

    - ``posterior``: constrained values of the variables. It is empty if ``constrain`` raised an exception; you can then try
      ``model.constrain(result.draws)``.
    - ``sample_stats``: statistics of each transition, such as ``diverging``, ``energy`` and ``n_steps``.
    - ``unconstrained_posterior``: the positions ``q``.
    - with ``save_warmup=True``, the same three groups of warm-up with the prefix ``warmup_``.
    - groups of the model's ``generated`` (:class:`refhmc.GeneratedQuantities`). ``observed_data`` and
      ``constant_data`` have no chains and draws, and ``prior`` and ``prior_predictive`` have one chain.
    - ``predictions`` and ``posterior_predictive``, which :func:`refhmc.predict` adds.

    Parameters
    ----------
    groups : dict of str to dict
        Arrays by group and name. With a ``store``, arrays are read from disk when they are accessed.
    attributes : dict
        Description of the run: versions, kernel, seed, counts of evaluations, and how it ended.
    warnings : list of str, optional
        Warnings about the draws, as text.
    ragged : dict of int to ndarray, optional
        Draws (n_k, d) of each chain, if the run ended early with chains of different lengths. The groups then hold the largest
        rectangle of chains and draws.
    adapted : list, optional
        What warm-up of each chain adapted: step size, metric and trajectory length; for a kernel with several blocks a
        dictionary of these by block. In ArviZ objects this is the group ``adaptation``, except
        for a kernel with several blocks, where it is missing.
    dims : dict of str to tuple of str, optional
        Names of the variables' axes.
    coords : dict of str to sequence, optional
        Labels along these axes.

    See Also
    --------
    sample : Draw from the distribution of a model.

    Examples
    --------
    >>> import refhmc
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), draws=100, tune=100, random_seed=1, progressbar=False, raw=True
    ... )
    >>> result.draws.shape, result.posterior["v"].shape, result.sample_stats["diverging"].shape
    ((4, 100, 3), (4, 100), (4, 100))
    >>> result.attributes["tuning_steps"], result.interrupted
    (100, False)
    """

    groups: dict[str, Any]  # or groups of a store (:class:`refhmc.sampling.storage.store.StoredGroup`)
    attributes: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    ragged: dict[int, np.ndarray] = field(default_factory=dict)
    adapted: list[Adapted | dict[str, Adapted]] = field(default_factory=list)
    dims: Dims = field(default_factory=dict)
    coords: Coords = field(default_factory=dict)

    def __repr__(self) -> str:
        about, there = self.attributes, self.groups.get("unconstrained_posterior", {"q": np.zeros((0, 0, 0))})
        sizes = there.shape("q") if isinstance(there, StoredGroup) else there["q"].shape
        shape = f"{count(sizes[0], 'chain')} of {count(sizes[1], 'draw')} in {count(sizes[2], 'dimension')}"
        diverged = f", {self.diverged}" if "divergences_per_chain" in about else ""
        learned = about.get("adaptation") or ""
        diverged += f"\n    {learned}" if learned.startswith(FUNNEL) else ""
        groups = ", ".join(f"{name} ({', '.join(group)})" for name, group in self.groups.items() if group)
        warned = "".join(f"\n    warning: {text}" for text in self.warnings)
        return f"Result of {about.get('model', 'a model')!r}: {shape}{diverged}\n    {groups}{warned}"

    @property
    def posterior(self) -> Group:
        """Constrained values by variable, arrays (chain, draw, ...)."""
        return self.groups["posterior"]

    @property
    def sample_stats(self) -> Group:
        """Statistics by name, arrays (chain, draw)."""
        return self.groups["sample_stats"]

    @property
    def draws(self) -> np.ndarray:
        """Unconstrained draws, an array (chain, draw, d)."""
        return self.groups["unconstrained_posterior"]["q"]

    @property
    def diverged(self) -> str:
        """Divergences in draws and in warm-up, as text."""
        names = "divergences_per_chain", "warmup_divergences_per_chain"
        return told_apart(*(sum(self.attributes[name]) for name in names))

    @property
    def interrupted(self) -> bool:
        """Whether the run was stopped before its last draw, or its review was."""
        return bool(self.attributes["interrupted"])

    def to_arviz(self) -> Any:
        """Convert to the type of the installed ArviZ.

        Returns
        -------
        InferenceData or DataTree
            An ``InferenceData`` with ArviZ 0.x, a ``DataTree`` with ArviZ 1.x or without ArviZ.

        Raises
        ------
        ImportError
            If xarray is not installed.
        """
        made = {name: self.as_dataset(name) for name, group in self.groups.items() if group}
        attributes = self.plain_attributes()
        for group in made.values():
            group.attrs.update(attributes)
        if alone := [each for each in self.adapted if isinstance(each, Adapted)]:
            made["adaptation"] = as_dataset(alone, list(range(len(alone))))
        return as_arviz(made)

    def plain_attributes(self) -> dict[str, int | float | str]:
        """Return the attributes in a form that files can hold.

        Returns
        -------
        dict of str to int, float or str
            Other values are encoded as JSON, flags as 0 or 1. ``warnings`` and ``created_at`` are added.
        """
        now = datetime.datetime.now(datetime.UTC).isoformat()
        return {**_plain(self.attributes), "warnings": json.dumps(self.warnings), "created_at": now}

    def as_dataset(self, name: str) -> xarray.Dataset:
        """Return one group as an xarray dataset with named axes.

        Parameters
        ----------
        name : str
            Name of the group.

        Returns
        -------
        xarray.Dataset
            The group's arrays.

        Raises
        ------
        KeyError
            If there is no such group.
        """
        group = self.groups[name]
        if isinstance(group, StoredGroup):
            return group.as_dataset()
        if name in DATA:
            return dataset(group, self.dims, self.coords, leading=())
        if name.removeprefix("warmup_") in (
            "sample_stats",
            "unconstrained_posterior",
        ):  # they hold no variables of the user
            return dataset(group)
        if name not in self.attributes.get("predicted", ()):
            return dataset(group, self.dims, self.coords)
        n = next(iter(group.values())).shape[1]
        draws = {"draw": int(self.attributes["prediction_thin"]) * np.arange(n)}
        return predicted_dataset(group, self.dims, {**self.coords, **draws})


def predicted_dataset(group: Group, dims: Dims, coords: Coords) -> xarray.Dataset:
    """Return a group of ``refhmc.predict`` as an xarray ``Dataset``."""
    enough = {name: axes for name, axes in dims.items() if name in group and len(axes) >= group[name].ndim - 2}
    return dataset(group, {**PREDICTED, **enough}, coords)


def summary_table(result: Result) -> Any:
    """Return ArviZ's summary of the posterior as a pandas table, for any version of ArviZ."""
    az = arviz_0()
    if az is not None:
        return az.summary(result.to_arviz(), group="posterior")
    from arviz_stats import summary

    return summary(result.to_arviz(), group="posterior")


def _plain(attributes: Mapping[str, object]) -> dict[str, int | float | str]:
    """Convert attributes for netCDF: numbers and strings unchanged, flags as 0 or 1, the rest as JSON."""
    plain: dict[str, int | float | str] = {}
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
