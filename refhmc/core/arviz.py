"""Groups of arrays as the object that the installed ArviZ takes.

ArviZ 1.x takes an xarray ``DataTree``, which needs xarray alone; ArviZ 0.x has a class of its own, ``InferenceData``. Both are
imported when a result is made, since ArviZ 0.x takes seconds.
"""

from __future__ import annotations

import importlib
import pathlib
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from refhmc.core.named_axes import SAMPLES, Coords, Dims, axes_of

if TYPE_CHECKING:
    import xarray


def arviz_0() -> Any:
    """The module ``arviz`` where a version before 1 is installed, else None."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return _imported("arviz") if version("arviz").startswith("0.") else None
    except PackageNotFoundError:
        return None


def _imported(name: str) -> Any:
    """The module. Raises ImportError, saying what to install."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ArviZ 0.23 announces its successor at import
            return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise ImportError(
            "an ArviZ result needs ArviZ: pip install arviz (or take the arrays with raw=True)"
        ) from missing


def as_arviz(groups: Mapping[str, xarray.Dataset]) -> Any:
    """An ``InferenceData`` (ArviZ 0.x) or a ``DataTree`` of these groups. Raises ImportError, saying what to install."""
    az = arviz_0()
    if az is not None:
        return az.InferenceData(**groups)
    return _imported("xarray").DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


def read_tree(path: pathlib.Path) -> xarray.DataTree:
    """What a netCDF file holds that ``to_netcdf`` of an ArviZ object has written. Raises OSError, naming the file, and
    ImportError."""
    try:
        return _imported("xarray").open_datatree(path, engine="h5netcdf")
    except OSError as error:
        raise OSError(f"{path} cannot be read as netCDF: {error}") from error


def with_groups(tree: Any, groups: Mapping[str, xarray.Dataset]) -> Any:
    """A copy of an ArviZ object, with these groups added or in place of those of their names."""
    if hasattr(tree, "add_groups"):  # InferenceData
        kept = {name: tree[name] for name in tree.groups() if name not in groups}
        return type(tree)(attrs=tree.attrs, **kept, **groups)
    root = tree.to_dataset(inherit=False)
    if shared := set(SAMPLES) & set(root.dims):
        # Of a store, how far each chain is: no group below could have chains of its own, or labels.
        tree = tree.copy()
        tree.dataset = root.drop_dims(shared)
    return tree.assign({name: type(tree)(group) for name, group in groups.items()})


def dataset(
    group: Mapping[str, Any],
    dims: Dims | None = None,
    coords: Coords | None = None,
    leading: tuple[str, ...] = SAMPLES,
) -> xarray.Dataset:
    """Arrays by name with their axes named: ``leading`` first, then those of ``dims``; ``coords``: labels along them, where
    their number fits. Raises ImportError without xarray."""
    dims, coords = dims or {}, coords or {}
    variables: dict[str, Any] = {}
    sizes: dict[str, int] = {}
    for name, given in group.items():
        value = np.asarray(given)
        axes = (*leading, *axes_of(name, value.ndim - len(leading), dims))
        variables[name] = (axes, value)
        sizes |= dict(zip(axes, value.shape, strict=True))
    fitting = {axis: labels for axis, labels in coords.items() if len(labels) == sizes.get(axis)}
    labels = {axis: fitting.get(axis, np.arange(size)) for axis, size in sizes.items()}
    return _imported("xarray").Dataset(variables, labels)
