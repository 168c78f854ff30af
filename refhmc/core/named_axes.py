"""Names of the axes of a result's variables, ``dims``, and labels along them, ``coords``, as in ArviZ and PyMC.

::

    dims={"theta": ("school",)}      coords={"school": ["Choate", "Deerfield", ...]}

An axis without name is ``theta_dim_0``; an axis without labels has 0, 1, 2, ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from refhmc.errors import ModelError, ShapeError

SAMPLES = ("chain", "draw")
# Axes of the variables that ``refhmc.predict`` adds, after chain and draw.
PREDICTED = {
    "mean": ("observation", "output"),
    "outputs": ("observation", "output"),
    "probability": ("observation", "class"),
    "y": ("observation", "output"),
}

Dims = dict[str, tuple[str, ...]]
Coords = dict[str, np.ndarray]


def check_storable(what: str, name: object, error: type = ModelError) -> None:
    """Raise `error` unless `name` is a valid name of a variable or axis in a netCDF file or a Zarr store."""
    if not isinstance(name, str) or name in ("", ".") or "/" in name or "\0" in name:
        raise error(
            f"{what}: {name!r} cannot be a name in a netCDF file. Use a non-empty string other than '.', without '/'."
        )


def check_variables(what: str, values: Mapping[str, np.ndarray]) -> None:
    """Raise ModelError unless a user's function returned numbers under names that a result can have."""
    for name, value in values.items():
        if not isinstance(name, str):
            raise ModelError(f"{what} must return names of variables that are strings; got {name!r}.")
        check_storable(what, name)
        if name in SAMPLES:
            raise ModelError(
                f"{what}: a variable must not be called {name!r}, which is an axis of the result. Rename it."
            )
        if value.dtype.kind not in "fiubc":
            raise ModelError(f"{what}: {name!r} must be numbers; got {value.dtype}.")


def dims_of(given: object) -> Dims:
    """Return a user's ``dims`` as tuples of names; a string is the name of one axis. Raises ModelError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ModelError(f"dims must be a dictionary of axis names by variable; got {type(given).__name__}.")
    found = {}
    for variable, names in given.items():
        names = (names,) if isinstance(names, str) else names
        if not isinstance(variable, str) or not isinstance(names, Iterable):
            raise ModelError(f"dims[{variable!r}] must be names of axes; got {names!r}.")
        found[variable] = axes = tuple(names)
        for axis in axes:
            if not isinstance(axis, str) or not axis or axis in SAMPLES:
                raise ModelError(f"dims[{variable!r}]: {axis!r} cannot be the name of an axis. Use another string.")
            check_storable(f"dims[{variable!r}]", axis)
        if len(set(axes)) != len(axes):
            raise ModelError(f"dims[{variable!r}] must be different names; got {axes}.")
    return found


def coords_of(given: object, dims: Dims) -> Coords:
    """Return a user's ``coords`` as vectors of labels: numbers, strings or ``datetime64``, and strings of other objects.

    Raises ModelError.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ModelError(f"coords must be a dictionary of labels by axis; got {type(given).__name__}.")
    axes = list(dict.fromkeys(axis for names in (*dims.values(), *PREDICTED.values()) for axis in names))
    found = {}
    for axis, labels in given.items():
        if axis not in axes:
            raise ModelError(f"coords must be given by names of axes in dims ({', '.join(axes)}); got {axis!r}.")
        if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
            raise ModelError(f"coords[{axis!r}] must be a vector of labels; got {labels!r}.")
        found[axis] = np.array(labels if hasattr(labels, "__array__") else list(labels))
        if found[axis].dtype.kind == "O":  # datetime objects, and others that files cannot store
            found[axis] = np.array([str(label) for label in found[axis]])
        if found[axis].ndim != 1:
            raise ModelError(f"coords[{axis!r}] must be a vector of labels; got the shape {found[axis].shape}.")
        if len(set(found[axis].tolist())) < len(found[axis]):
            raise ModelError(f"coords[{axis!r}] must be different labels; one occurs twice.")
    return found


def axes_of(name: str, n: int, dims: Dims) -> tuple[str, ...]:
    """Return the names of the `n` axes of a variable: the first `n` in ``dims``, if there are enough."""
    named = dims.get(name, ())
    return named[:n] if len(named) >= n else tuple(f"{name}_dim_{i}" for i in range(n))


def check_axes(group: str, shapes: Mapping[str, tuple[int, ...]], dims: Dims, coords: Coords) -> None:
    """Raise ShapeError or ModelError unless the variables of a group agree with ``dims`` and ``coords``.

    Each needs as many axes as ``dims`` has names, and as many entries as ``coords`` has labels. An axis must not have the
    name of a variable.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, shape in shapes.items():
        named = dims.get(name)
        # The log likelihood of vector observations has one axis less.
        if named is not None and (len(named) < len(shape) or (len(named) > len(shape) and group != "log_likelihood")):
            raise ShapeError(
                f"dims[{name!r}] must name the axes of {name!r} in {group}, of shape {shape}; got {len(named)} names, {named}."
            )
        for axis, size in zip(axes_of(name, len(shape), dims), shape, strict=True):
            if axis in shapes:
                raise ModelError(
                    f"{axis!r} must not be the name of both a variable and an axis of {name!r}. Rename one of them."
                )
            if axis in coords and len(coords[axis]) != size:
                raise ShapeError(
                    f"coords[{axis!r}] must have {size} labels, the entries of that axis in {name!r}; got {len(coords[axis])}."
                )
            first, other = sizes.setdefault(axis, (size, name))
            if first != size:
                raise ShapeError(
                    f"dims: the axis {axis!r} must have one length; it has {size} entries in {name!r} and {first} in {other!r}."
                )
