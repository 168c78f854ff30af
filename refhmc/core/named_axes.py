"""Names of the axes of a result's variables, ``dims``, and labels along them, ``coords``, as ArviZ and PyMC have them:

    dims={"theta": ("school",)}      coords={"school": ["Choate", "Deerfield", ...]}

An axis without a name is ``theta_dim_0``; one without labels has 0, 1, 2, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from refhmc.errors import ModelError, ShapeError

SAMPLES = ("chain", "draw")
# Of what ``refhmc.predict`` adds: the axes of its variables after chain and draw.
PREDICTED = {
    "mean": ("observation", "output"),
    "outputs": ("observation", "output"),
    "probability": ("observation", "class"),
    "y": ("observation", "output"),
}

Dims = dict[str, tuple[str, ...]]
Coords = dict[str, np.ndarray]


def check_storable(what: str, name: Any, error: type = ModelError) -> None:
    """Raise ``error`` for what cannot be the name of a variable or an axis in a netCDF file or a Zarr store."""
    if not isinstance(name, str) or name in ("", ".") or "/" in name or "\0" in name:
        raise error(
            f"{what}: {name!r} cannot be a name in a netCDF file. Give a string that is not empty, not '.', and without '/'"
        )


def dims_of(given: Any) -> Dims:
    """``dims`` as a user gives them, each a tuple of names; a string is the name of one axis. Raises ModelError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ModelError(f"dims must be a dictionary, variable -> names of its axes, got {type(given).__name__}")
    found = {}
    for variable, names in given.items():
        names = (names,) if isinstance(names, str) else names
        if not isinstance(variable, str) or not isinstance(names, Iterable):
            raise ModelError(f"dims[{variable!r}] must be names of axes, got {names!r}")
        found[variable] = axes = tuple(names)
        for axis in axes:
            if not isinstance(axis, str) or not axis or axis in SAMPLES:
                raise ModelError(f"dims[{variable!r}]: {axis!r} cannot be the name of an axis")
            check_storable(f"dims[{variable!r}]", axis)
        if len(set(axes)) != len(axes):
            raise ModelError(f"dims[{variable!r}]: {axes} has a name twice")
    return found


def coords_of(given: Any, dims: Dims) -> Coords:
    """``coords`` as a user gives them, each a vector of labels of an axis in ``dims``: numbers, strings or ``datetime64``; of
    any other kind their strings. Raises ModelError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ModelError(f"coords must be a dictionary, axis -> labels, got {type(given).__name__}")
    axes = list(dict.fromkeys(axis for names in (*dims.values(), *PREDICTED.values()) for axis in names))
    found = {}
    for axis, labels in given.items():
        if axis not in axes:
            raise ModelError(f"coords: dims has no axis {axis!r}, it has {', '.join(axes)}")
        if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
            raise ModelError(f"coords[{axis!r}] must be a vector of labels, got {labels!r}")
        found[axis] = np.array(labels if hasattr(labels, "__array__") else list(labels))
        if found[axis].dtype.kind == "O":  # dates of datetime, and what else no file holds
            found[axis] = np.array([str(label) for label in found[axis]])
        if found[axis].ndim != 1:
            raise ModelError(f"coords[{axis!r}] must be a vector of labels, got the shape {found[axis].shape}")
        if len(set(found[axis].tolist())) < len(found[axis]):
            raise ModelError(f"coords[{axis!r}] has a label twice")
    return found


def axes_of(name: str, n: int, dims: Dims) -> tuple[str, ...]:
    """Names of the ``n`` axes of a variable: the first of those in ``dims``, where that has enough."""
    named = dims.get(name, ())
    return named[:n] if len(named) >= n else tuple(f"{name}_dim_{i}" for i in range(n))


def check_axes(group: str, shapes: Mapping[str, tuple[int, ...]], dims: Dims, coords: Coords) -> None:
    """Raise ShapeError unless each variable of a group has as many axes as ``dims`` names and as many entries as ``coords`` has
    labels, ModelError where an axis has the name of a variable."""
    sizes: dict[str, tuple[int, str]] = {}
    for name, shape in shapes.items():
        named = dims.get(name)
        # The log likelihood of observations that are vectors has an axis less.
        if named is not None and (len(named) < len(shape) or (len(named) > len(shape) and group != "log_likelihood")):
            raise ShapeError(
                f"dims[{name!r}] names {len(named)} axes, {named}, and {name!r} of {group} has the shape {shape}"
            )
        for axis, size in zip(axes_of(name, len(shape), dims), shape, strict=True):
            if axis in shapes:
                raise ModelError(f"a variable cannot be called {axis!r}: that is the name of an axis of {name!r}")
            if axis in coords and len(coords[axis]) != size:
                raise ShapeError(
                    f"coords[{axis!r}] has {len(coords[axis])} labels, and that axis of {name!r} has {size} entries"
                )
            first, other = sizes.setdefault(axis, (size, name))
            if first != size:
                raise ShapeError(f"dims: the axis {axis!r} has {size} entries in {name!r} and {first} in {other!r}")
