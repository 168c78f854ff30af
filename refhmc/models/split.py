"""A model as the sum of parts, each on its own share of the data.

With the data in M parts and the prior shared out among them,

    L = sum_m L_m        L_m(q) = log p(q) / M + log p(y_m | q)          U_m = -L_m

(Cobb and Jalaian 2021, eq. 6; Neal 1995). Each L_m is a model of its own; the integrators that follow one part after another
(:mod:`refhmc.integrators.symmetric_split`) never need more than one of them at a time.

How the parts lie in the data of the compiled core: :mod:`refhmc.core.split_data`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from refhmc.core.compiled import jit_anew
from refhmc.core.fingerprint import Fingerprint
from refhmc.core.point import add_row
from refhmc.core.split_data import HEAD, number_of_parts, part_of, stacked
from refhmc.models.base import Model

ONE_GRADIENT = (
    "a split model has its log density and its gradient; take the model that was split for further derivatives"
)


@functools.lru_cache(maxsize=64)
def by_kind(functions: tuple) -> Callable:
    """(k, q, data, out): the k-th of the functions (q, data, out) -> L."""
    first = functions[0]
    if len(functions) == 1:
        return jit_anew(lambda k, q, data, out: first(q, data, out))
    others = by_kind(functions[1:])

    def one(k: int, q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        return first(q, data, out) if k == 0 else others(k - 1, q, data, out)

    return jit_anew(one)


@functools.lru_cache(maxsize=64)
def of_part(functions: tuple) -> Callable:
    """(q, part, out): that of the functions (q, data, out) -> L which the part has, on its data."""
    chosen = by_kind(functions)

    def value(q: np.ndarray, part: np.ndarray, out: np.ndarray) -> float:
        own = part[HEAD:].reshape((int(part[1, 0]), int(part[2, 0])))
        return chosen(int(-part[0, 0]), q, own, out)

    return jit_anew(value)


@functools.lru_cache(maxsize=64)
def sum_of_gradients(functions: tuple) -> Callable:
    """``value_and_gradient`` of a split model, or of one of its parts."""
    one = of_part(functions)

    def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
        if data[0, 0] <= 0:
            return one(q, data, out)
        total, partial = 0.0, np.empty_like(out)
        out[:] = 0.0
        for m in range(number_of_parts(data)):
            total += one(q, part_of(data, m), partial)
            add_row(out, partial)
        return total

    return jit_anew(value_and_gradient)


@functools.lru_cache(maxsize=64)
def sum_of_densities(changes: tuple) -> Callable:
    """``log_density`` of a split model, or of one of its parts; ``changes`` are the parts' (:mod:`refhmc.core.types`)."""

    def density_by(change: Callable) -> Callable:
        return jit_anew(lambda q, data, out: change(q, data, -1, 0.0, 0.0))

    one = of_part(tuple(map(density_by, changes)))

    def log_density(q: np.ndarray, data: np.ndarray) -> float:
        if data[0, 0] <= 0:
            return one(q, data, q)
        total = 0.0
        for m in range(number_of_parts(data)):
            total += one(q, part_of(data, m), q)
        return total

    return jit_anew(log_density)


def gradient_from(value_and_gradient: Callable) -> Callable:
    """``gradient`` alone."""

    def gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
        value_and_gradient(q, data, out)

    return jit_anew(gradient)


class SplitModel(Model):
    """The sum of ``parts``, models of the same coordinates; made by :meth:`refhmc.Model.split`, or of your own models.

    It has a log density and a gradient: those of the parts, one after another, added up. Raises ValueError without parts, or
    where their coordinates differ.
    """

    def __init__(self, parts: Sequence[Model], whole: Model | None = None) -> None:
        self.parts = tuple(parts)
        if not self.parts:
            raise ValueError("a split model has at least one part")
        whole = self.parts[0] if whole is None else whole
        for m, part in enumerate(self.parts):
            if part.names != whole.names:
                raise ValueError(f"part {m} has other coordinates than the first: {part!r} and {whole!r}")
            if len(part.discontinuous):
                raise ValueError(f"part {m} is discontinuous: its parts cannot be followed by their gradients")
        pointers = [part.core.tuple_for_changes for part in self.parts]
        kinds = list(dict.fromkeys((pointer[1], pointer[4]) for pointer in pointers))
        gradients, changes = zip(*kinds, strict=True)
        value_and_gradient = sum_of_gradients(gradients)
        self.whole = whole
        super().__init__(
            whole.dim,
            sum_of_densities(changes),
            gradient_from(value_and_gradient),
            data=stacked([pointer[0] for pointer in pointers], [kinds.index((p[1], p[4])) for p in pointers]),
            names=whole.names,
            constrain=whole.constrain,
            value_and_gradient=value_and_gradient,
            reference=whole.reference,
            initial=whole.initial,
            name=f"{whole.name} in {len(self.parts)} parts",
            noise=max(part.noise for part in self.parts),
            absent=dict.fromkeys(("hessian", "third_derivative", "trace", "fisher", "fisher_derivative"), ONE_GRADIENT),
        )

    def __reduce__(self) -> tuple[Callable, tuple]:
        return SplitModel, (self.parts, self.whole)

    def made_of(self) -> Fingerprint:
        """What its parts are made of."""
        found = [part.made_of() for part in self.parts]
        labelled = {f"part {m}: {label}": text for m, each in enumerate(found) for label, text in each.parts.items()}
        packages = tuple(dict.fromkeys(package for each in found for package in each.packages))
        unknown = tuple(f"part {m}: {label}" for m, each in enumerate(found) for label in each.unknown)
        return Fingerprint(labelled, packages, unknown)


def shares(n: int, M: int, order: Any, what: str) -> list[np.ndarray]:
    """The rows 0, ..., n - 1 in M parts whose sizes differ by at most one.

    ``order``: "given"; "random", always the same; or an order of the rows of one's own.
    """
    if isinstance(M, bool) or int(M) != M or M < 1:
        raise ValueError(f"the number of parts must be a whole number of at least 1, got {M!r}")
    if n < M:
        raise ValueError(f"{what} has {n} rows of data: they cannot be split into {M} parts")
    if isinstance(order, str):
        if order not in ("given", "random"):
            raise ValueError(f"order must be 'given', 'random' or an order of the rows, got {order!r}")
        rows = np.arange(n) if order == "given" else np.random.default_rng(0).permutation(n)
    else:
        rows = np.asarray(order)
        if rows.shape != (n,) or not np.array_equal(np.sort(rows), np.arange(n)):
            raise ValueError(f"order must have each of the rows 0, ..., {n - 1} once")
    return np.array_split(rows, int(M))


def split(model: Model, M: int, order: Any = "given") -> SplitModel:
    """:meth:`refhmc.Model.split`"""
    if model.part is None:
        raise NotImplementedError(
            f"model {model.name!r} does not say how its data are split: give refhmc.Model(..., n_rows=, part=)"
        )
    return SplitModel([model.part(rows, 1 / M) for rows in shares(model.n_rows, M, order, repr(model.name))], model)
