"""Groups of arrays as the object of the installed ArviZ version.

ArviZ 1.x uses an xarray ``DataTree``, which requires only xarray. ArviZ 0.x has its own class, ``InferenceData``. Both are
imported only if a run needs them, because importing ArviZ 0.x takes seconds, and before its first draw (:func:`prepare`).
"""

from __future__ import annotations

import importlib
import pathlib
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.named_axes import SAMPLES, Coords, Dims, axes_of
from refhmc.core.signals import held_back

if TYPE_CHECKING:
    import xarray


def arviz_0() -> ModuleType | None:
    """Return the module ``arviz`` if a version below 1 is installed, and otherwise None."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return _imported("arviz") if version("arviz").startswith("0.") else None
    except PackageNotFoundError:
        return None


def _imported(name: str) -> ModuleType:
    """Return the module. Raises ImportError with installation instructions."""
    try:
        with warnings.catch_warnings(), held_back():  # an interrupted import would leave a broken package
            warnings.simplefilter("ignore")  # ArviZ 0.23 warns of its successor at import
            return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise ImportError(
            "An ArviZ result requires ArviZ. Install it with: pip install arviz. Or use raw=True for plain arrays."
        ) from missing


def prepare() -> None:
    """Import what :func:`as_arviz` needs. Raises ImportError."""
    arviz_0()
    _imported("xarray")


def as_arviz(groups: Mapping[str, xarray.Dataset]) -> Any:
    """Return an ``InferenceData`` (ArviZ 0.x) or a ``DataTree`` of these groups. Raises ImportError."""
    az = arviz_0()
    if az is not None:
        return az.InferenceData(**groups)
    return _imported("xarray").DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


def read_tree(path: pathlib.Path) -> xarray.DataTree:
    """Return the contents of a netCDF file written by ``to_netcdf`` of an ArviZ object. Raises OSError or ImportError."""
    try:
        return _imported("xarray").open_datatree(path, engine="h5netcdf")
    except OSError as error:
        raise OSError(f"{path} cannot be read as netCDF: {error}.") from error


def group_names(result: Any) -> list[str]:
    """Return the group names of an ArviZ object, 0.x (where ``groups`` is a method) or 1.x, or of a raw result; else []."""
    groups = getattr(result, "groups", ())
    names = (str(each).strip("/") for each in (groups() if callable(groups) else groups))
    return [name for name in names if name and "/" not in name]


def dataset_of(group: Any) -> Any:
    """Return a group of an ArviZ object as a Dataset."""
    return group.to_dataset() if hasattr(group, "to_dataset") else group


def with_groups(tree: Any, groups: Mapping[str, xarray.Dataset]) -> Any:
    """Return a copy of an ArviZ object with these groups added or replaced."""
    if hasattr(tree, "add_groups"):  # InferenceData
        kept = {name: tree[name] for name in tree.groups() if name not in groups}
        return type(tree)(attrs=tree.attrs, **kept, **groups)
    root = tree.to_dataset(inherit=False)
    if shared := set(SAMPLES) & set(root.dims):
        # In a store, the root has the progress of each chain; groups below could not have other chains or labels.
        tree = tree.copy()
        tree.dataset = root.drop_dims(shared)
    return tree.assign({name: type(tree)(group) for name, group in groups.items()})


def dataset(
    group: Mapping[str, ArrayLike],
    dims: Dims | None = None,
    coords: Coords | None = None,
    leading: tuple[str, ...] = SAMPLES,
) -> xarray.Dataset:
    """Return arrays by name as a Dataset with named axes: `leading` first, then those of `dims`.

    `coords` are labels along axes, used if their number fits. Raises ImportError without xarray.
    """
    dims, coords = dims or {}, coords or {}
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {}
    sizes: dict[str, int] = {}
    for name, given in group.items():
        value = np.asarray(given)
        axes = (*leading, *axes_of(name, value.ndim - len(leading), dims))
        variables[name] = (axes, value)
        sizes |= dict(zip(axes, value.shape, strict=True))
    fitting = {axis: labels for axis, labels in coords.items() if len(labels) == sizes.get(axis)}
    labels = {axis: fitting.get(axis, np.arange(size)) for axis, size in sizes.items()}
    return _imported("xarray").Dataset(variables, labels)
