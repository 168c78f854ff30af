"""The coordinates of named parameters, and the transforms between coordinates and values."""

from __future__ import annotations

import collections
import functools
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from refhmc.core.arguments import refuse_complex, refuse_masked
from refhmc.core.hierarchy import Parents, parents_of
from refhmc.core.named_axes import SAMPLES
from refhmc.errors import InitError, ModelError, ShapeError
from refhmc.numerics.constraining import values_at
from refhmc.parameters.supports import Support


class Coordinates:
    """Supports by name, and the coordinates that follow from them; :class:`refhmc.Parameters` describes the attributes."""

    def __init__(self, /, *, parents: Mapping[str, str | Sequence[str]] | None = None, **supports: Support) -> None:
        if isinstance(parents, Support):
            raise ModelError("The name of a parameter must not be 'parents', which states the hierarchy. Rename it.")
        if not supports:
            raise ModelError(
                "Parameters must have at least one parameter; got none. Write Parameters(mu=Real()), for example."
            )
        for name, support in supports.items():
            _check_name(name)
            if isinstance(support, type) and issubclass(support, Support):
                raise ModelError(
                    f"{name} must be a support; got the class {support.__name__}. Write {support.__name__}(...)."
                )
            if not isinstance(support, Support):
                known = ", ".join(cls.__name__ for cls in _known())
                raise ModelError(f"{name} must be a support ({known} of refhmc.parameters); got {support!r}.")
        self.supports = dict(supports)
        self.parents = None if parents is None else parents_of(parents, supports)
        self.dims = {name: support.dims for name, support in supports.items() if support.dims}
        for name, dims in self.dims.items():
            for axis in dims:
                if axis in supports or axis in SAMPLES:
                    taken = "a parameter" if axis in supports else "an axis of every result"
                    raise ModelError(f"{name}: dims must not contain the name of {taken}; got {axis!r}.")
        self.names = self._coordinate_names()
        self.dim = len(self.names)
        if self.dim == 0:
            raise ModelError(
                "Parameters must have at least one coordinate; Simplex(1) and CholeskyCorrelation(1) have none."
            )
        firsts = np.cumsum([0] + [support.value_count for support in supports.values()])
        self.count = int(firsts[-1])
        self.at = values_class(tuple(supports), "At")(*(int(first) for first in firsts[:-1]))
        self.Values = values_class(tuple(supports))
        rows, coordinate = [], 0
        for support, first in zip(supports.values(), self.at, strict=True):
            rows += list(support.segments(coordinate, first))
            coordinate += support.coordinate_count
        self.segments = np.array(rows, dtype=float)

    def __repr__(self) -> str:
        given = [f"{name}={support}" for name, support in self.supports.items()]
        given += [] if self.parents is None else [f"parents={self.parents}"]
        return f"{type(self).__name__}({', '.join(given)})"

    def __reduce__(self) -> tuple[Callable, tuple[type, dict[str, Support], Parents | None]]:
        return _rebuild, (type(self), self.supports, self.parents)

    def _coordinate_names(self) -> list[str]:
        owners: dict[str, str] = {}
        names = []
        for name, support in self.supports.items():
            base = support.coordinate_name(name)
            if base in owners:
                raise ModelError(
                    f"{name} and {owners[base]} must have different coordinate names; both have {base!r}. Rename one of them."
                )
            owners[base] = name
            number = support.coordinate_count
            names += [base] if support.value_shape == () else [f"{base}[{i}]" for i in range(number)]
        return names

    @property
    def parents_of_coordinates(self) -> Parents | None:
        """The parents by names of coordinates, without parameters that have no coordinates."""
        if self.parents is None:
            return None
        called = {name: s.coordinate_name(name) for name, s in self.supports.items() if s.coordinate_count > 0}
        return {called[name]: tuple(called[each] for each in self.parents[name] if each in called) for name in called}

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of the values of each parameter."""
        return tuple(support.value_shape for support in self.supports.values())

    def constrain(self, u: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values at given coordinates.

        Parameters
        ----------
        u : array_like of shape (..., dim)
            Coordinates.

        Returns
        -------
        dict of str to ndarray
            Values by name, each with the shape ``u.shape[:-1]`` followed by its own.

        Raises
        ------
        refhmc.errors.ShapeError
            If the last axis of `u` does not have `dim` entries.
        """
        u = np.asarray(u, dtype=float)
        if u.shape[-1:] != (self.dim,):
            raise ShapeError(f"u must have the shape (..., {self.dim}); got {u.shape}.")
        rows = np.ascontiguousarray(u).reshape(-1, self.dim)
        x = values_at(rows, self.segments, self.count)
        named = {}
        for name, first, shape in zip(self.supports, self.at, self.shapes, strict=True):
            size = int(np.prod(shape, dtype=int))
            named[name] = x[:, first : first + size].reshape(u.shape[:-1] + shape)
        return named

    def unconstrain(self, values: Mapping[str, ArrayLike], what: str = "values") -> np.ndarray:
        """Return the coordinates of given values.

        Parameters
        ----------
        values : dict of str to array_like
            Values by name, one entry for each parameter.
        what : str, default "values"
            Name of the argument in error messages.

        Returns
        -------
        ndarray of shape (dim,)
            Coordinates.

        Raises
        ------
        refhmc.errors.ShapeError
            If a name or a shape is not that of a parameter.
        refhmc.errors.InitError
            If a value is missing or outside its support.
        """
        for name in values:
            if name not in self.supports:
                raise ShapeError(
                    f"{what} must be given by names of parameters ({', '.join(self.supports)}); got {name!r}."
                )
        missing = [name for name in self.supports if name not in values]
        if missing:
            raise InitError(f"{what} must have a value for every parameter; got none for {', '.join(missing)}.")
        parts = [_coordinates(what, name, support, values[name]) for name, support in self.supports.items()]
        return np.concatenate(parts)


def values_class(names: tuple[str, ...], title: str = "Values") -> Any:
    """Return the named tuple with these fields, which is the same object for the same names."""
    return _values_class(names, title)


@functools.lru_cache(maxsize=256)
def _values_class(names: tuple[str, ...], title: str) -> type[tuple]:
    return collections.namedtuple(title, names, module=__name__)


def _rebuild(cls: type[Coordinates], supports: dict[str, Support], parents: Parents | None) -> Coordinates:
    return cls(parents=parents, **supports)


def _known() -> list[type[Support]]:
    found, waiting = [], list(Support.__subclasses__())
    while waiting:
        cls = waiting.pop(0)
        waiting += cls.__subclasses__()
        if not cls.__name__.startswith("_"):
            found.append(cls)
    return sorted(found, key=lambda cls: cls.__name__)


def _check_name(name: str) -> None:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ModelError(f"The name of a parameter must be an identifier, such as {_identifier(name)!r}; got {name!r}.")
    if name.startswith("_"):
        raise ModelError(f"The name of a parameter must not start with an underscore; got {name!r}.")
    if name in SAMPLES:
        raise ModelError(f"The name of a parameter must not be that of an axis of the result; got {name!r}.")


def _identifier(name: str) -> str:
    letters = "".join(c if c.isalnum() else "_" for c in name).strip("_")
    return letters + "_" if keyword.iskeyword(letters) else letters if letters.isidentifier() else f"x{letters}"


def _coordinates(what: str, name: str, support: Support, value: ArrayLike) -> np.ndarray:
    refuse_masked(f"{what}: {name}", value, InitError)
    refuse_complex(f"{what}: {name}", value, ShapeError)
    try:
        x = np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ShapeError(
            f"{what}: {name} must be numbers of the shape {support.value_shape}; got {value!r} ({error})."
        ) from error
    if x.shape != support.value_shape:
        raise ShapeError(f"{what}: {name} must have the shape {support.value_shape}; got {x.shape}.")
    if not np.isfinite(x).all():
        raise InitError(f"{what}: {name} must be finite; got {value!r}.")
    wrong = support.outside(x)
    if wrong:
        raise InitError(f"{what}: {name} {wrong}; got {value!r}.")
    return support.inverse(x)
