"""Named parameters, each with its support: the coordinates of a model, and the way between these and the values."""

from __future__ import annotations

import collections
import functools
import keyword
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refhmc._deprecated import renamed_arguments
from refhmc.core.arguments import refuse_complex, refuse_masked
from refhmc.core.named_axes import SAMPLES
from refhmc.errors import InitError, ModelError, ShapeError
from refhmc.numerics.constraining import values_at
from refhmc.parameters.model import Functions, ParametersModel
from refhmc.parameters.supports import Support


class Parameters:
    """Parameters by name and support: ``Parameters(mu=Real(), tau=Positive(), theta=Real(shape=8, dims="school"))``.

    The *values* of all of them, in the order in which they are given, are a named tuple, ``Values``: a float for a parameter of
    shape (), else an array of its shape. In one row, as second derivatives need them, they are flat, one after another, entries
    of an array in the order of C: ``count`` of them, of which ``at.theta`` is the first that belongs to ``theta``.

    The *coordinates* (:mod:`refhmc.parameters.supports`) are what a chain moves in: ``dim`` of them, with ``names``.

    Raises ModelError for what is no support, and for names that cannot be fields of a named tuple or variables of a result, or
    that collide.
    """

    def __init__(self, /, **supports: Support) -> None:
        if not supports:
            raise ModelError("Parameters needs at least one parameter, as in Parameters(mu=Real())")
        for name, support in supports.items():
            _check_name(name)
            if isinstance(support, type) and issubclass(support, Support):
                raise ModelError(f"{name}: give a support, {support.__name__}(...), not the class")
            if not isinstance(support, Support):
                known = ", ".join(cls.__name__ for cls in _known())
                raise ModelError(f"{name} must be a support, one of {known} of refhmc.parameters, got {support!r}")
        self.supports = dict(supports)
        self.dims = {name: support.dims for name, support in supports.items() if support.dims}
        for name, dims in self.dims.items():
            for axis in dims:
                if axis in supports or axis in SAMPLES:
                    taken = "a parameter" if axis in supports else "an axis of every result"
                    raise ModelError(f"{name}: dims must not be the name of {taken}, got {axis!r}")
        self.names = self._coordinate_names()
        self.dim = len(self.names)
        if self.dim == 0:
            raise ModelError(
                "Parameters needs at least one coordinate: a Simplex(1) and a CholeskyCorrelation(1) have none"
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
        return f"Parameters({', '.join(f'{name}={support}' for name, support in self.supports.items())})"

    def __reduce__(self) -> tuple[Callable, tuple[dict[str, Support]]]:
        return _parameters, (self.supports,)

    def _coordinate_names(self) -> list[str]:
        owners: dict[str, str] = {}
        names = []
        for name, support in self.supports.items():
            base = support.coordinate_name(name)
            if base in owners:
                raise ModelError(
                    f"{name}: its coordinates are called {base!r}, and so are those of {owners[base]}; rename one of the two"
                )
            owners[base] = name
            number = support.coordinate_count
            names += [base] if support.value_shape == () else [f"{base}[{i}]" for i in range(number)]
        return names

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shape of each parameter's values."""
        return tuple(support.value_shape for support in self.supports.values())

    def constrain(self, u: np.ndarray) -> dict[str, np.ndarray]:
        """The values by name at coordinates u, (d,) or (..., d): each of shape (..., *its own)."""
        u = np.asarray(u, dtype=float)
        if u.shape[-1:] != (self.dim,):
            raise ShapeError(f"coordinates: expected (..., {self.dim}), got {u.shape}")
        rows = np.ascontiguousarray(u).reshape(-1, self.dim)
        x = values_at(rows, self.segments, self.count)
        named = {}
        for name, first, shape in zip(self.supports, self.at, self.shapes, strict=True):
            size = int(np.prod(shape, dtype=int))
            named[name] = x[:, first : first + size].reshape(u.shape[:-1] + shape)
        return named

    def unconstrain(self, values: Mapping[str, Any], what: str = "values") -> np.ndarray:
        """The coordinates (d,) of values by name, one for each parameter; ``what`` they are is said by errors.

        Raises ShapeError for names and shapes that are not those of the parameters, InitError for values outside of a support.
        """
        for name in values:
            if name not in self.supports:
                raise ShapeError(f"{what}: there is no parameter {name!r}; there are {', '.join(self.supports)}")
        missing = [name for name in self.supports if name not in values]
        if missing:
            raise InitError(f"{what}: give {', '.join(missing)} too; each of {', '.join(self.supports)} needs a value")
        parts = [_coordinates(what, name, support, values[name]) for name, support in self.supports.items()]
        return np.concatenate(parts)

    @renamed_arguments(trace="hessian_contraction", fisher_trace="fisher_contraction")
    def model(
        self,
        log_density: Callable,
        gradient: Callable,
        hessian: Callable | None = None,
        third_derivative: Callable | None = None,
        hessian_contraction: Callable | None = None,
        fisher: Callable | None = None,
        fisher_contraction: Callable | None = None,
        data: Any = None,
        *,
        value_and_gradient: Callable | None = None,
        **options: Any,
    ) -> ParametersModel:
        """The model whose density, of the values, is given by plain functions of ``(values, data)``, or of the values alone.

        Parameters
        ----------
        log_density : the logarithm of the density of the values with respect to the measures in
            :mod:`refhmc.parameters.supports`, up to a constant: a float. Log-Jacobians are added.
        gradient : by the values, each taken as free: a tuple with one entry for each parameter, a number or an array of the
            parameter's shape, in their order or as ``parameters.Values(mu=..., tau=...)``. A function with a third argument
            ``out`` (count,), which holds zeros, writes them there instead: ``out[at.mu] = ...``, with ``at = parameters.at``.
        hessian : a new array (count, count), or written to ``out``: ``out[at.mu, at.theta + j] = ...``; symmetric.
        trace : ``(values, data, M)`` with a symmetric M (count, count): sum_ab M[a, b] d hessian[a, b] / dx_c, returned or
            written (``out`` after ``M``) as a gradient is. third_derivative : in its place, the tensor (count, count, count),
            returned or written as a Hessian is. They need ``hessian``.
        fisher, fisher_contraction : a positive definite matrix (count, count) and its contraction, as ``hessian`` and ``hessian_contraction``: the
            metric of :class:`refhmc.metrics.Fisher`, carried over to the coordinates as a tensor.
        data, options : as those of :class:`refhmc.Model`, lists and tables as arrays; ``initial`` may also be values by name;
            ``dims`` are those of other variables, which ``generated`` makes.
        value_and_gradient : ``(values, data, out) -> log density``, where the two share work.

        Functions are given copies of the values, which they may spoil. Raises ModelError for what is no function, and for
        options that follow from the parameters; what a function returns wrongly is said at its first call.
        """
        derivatives = (hessian, third_derivative, hessian_contraction, fisher, fisher_contraction)
        functions = Functions(log_density, gradient, value_and_gradient, *derivatives)
        return ParametersModel(self, functions, data, options)

    def ode(self, functions: tuple, **arguments: Any) -> Any:
        """The posterior of an ODE whose parameters these are: for :func:`refhmc.models.ODE`."""
        from refhmc.parameters.ode import model_of

        return model_of(functions, parameters=self, **arguments)


def values_class(names: tuple[str, ...], title: str = "Values") -> Any:
    """The named tuple of these fields, one and the same for the same names."""
    return _values_class(names, title)


@functools.lru_cache(maxsize=256)
def _values_class(names: tuple[str, ...], title: str) -> Any:
    return collections.namedtuple(title, names, module=__name__)


def _parameters(supports: dict[str, Support]) -> Parameters:
    return Parameters(**supports)


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
        raise ModelError(f"parameter {name!r}: a name must be an identifier, such as {_identifier(name)!r}")
    if name.startswith("_"):
        raise ModelError(
            f"parameter {name!r}: a name must not begin with an underscore, as no field of a named tuple does"
        )
    if name in SAMPLES:
        raise ModelError(f"a parameter cannot be called {name!r}: that is the name of an axis of the result")


def _identifier(name: str) -> str:
    letters = "".join(c if c.isalnum() else "_" for c in name).strip("_")
    return letters + "_" if keyword.iskeyword(letters) else letters if letters.isidentifier() else f"x{letters}"


def _coordinates(what: str, name: str, support: Support, value: Any) -> np.ndarray:
    refuse_masked(f"{what}: {name}", value, InitError)
    refuse_complex(f"{what}: {name}", value, ShapeError)
    try:
        x = np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{what}: {name} must be numbers of the shape {support.value_shape}: {error}") from error
    if x.shape != support.value_shape:
        raise ShapeError(f"{what}: {name} must have the shape {support.value_shape}, got {x.shape}")
    if not np.isfinite(x).all():
        raise InitError(f"{what}: {name} must be finite, got {value!r}")
    wrong = support.outside(x)
    if wrong:
        raise InitError(f"{what}: {name} {wrong}, got {value!r}")
    return support.inverse(x)
