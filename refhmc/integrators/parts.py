"""Common code of the integrators that follow the parts of a split model: partial gradients, and the energy at the end.

With H = sum_m U_m(q) + K(p), the kick of part m is p <- p - h dU_m/dq. The last partial gradient is kept with its position.
If a method needs it again at the same position, as at the end of one step and the beginning of the next, it is not
evaluated again. It is a function of part and position only, so that the draws do not depend on whether it was kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.point import as_point, copy_row
from refhmc.core.protocols import Model
from refhmc.core.records import Layout
from refhmc.core.split_data import number_of_parts, part_of
from refhmc.core.types import as_model, as_work
from refhmc.metrics.base import Metric
from refhmc.metrics.euclidean import inverse_product
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

# The first entries of ``part`` and ``value`` have the number plus one (0: none) and L_m of the part evaluated last.
KNOWN = Layout("part value position gradient")
known = KNOWN.rows


class HasParts(Protocol):
    """Protocol of a split model, compiled or on arrays."""

    @property
    def parts(self) -> Sequence: ...


class SplitModel(Model, HasParts, Protocol):
    """Protocol of a compiled split model, from ``model.split(M)``."""


class FollowsParts:
    """Base class of these integrators: explicit, on Euclidean metrics, and only for split models."""

    symplectic = True
    exact = True
    approximation = ""
    implicit = False
    cost = None
    layout = KNOWN
    constant_metric = True
    follows_parts = True

    def rows_for(self, model: SplitModel, metric: Metric) -> np.ndarray:
        """Return the initial rows of the integrator.

        Parameters
        ----------
        model : SplitModel
            The model, from ``model.split(M)``.
        metric : object
            The metric.

        Returns
        -------
        ndarray, shape (k, d)
            The rows.

        Raises
        ------
        TypeError
            If the model is not split.
        """
        if not hasattr(model, "parts"):
            raise TypeError(f"model must be split for {type(self).__name__}; got {model!r}. Use model.split(M).")
        return np.zeros((KNOWN.n_vectors, model.dim))

    def drawn_parts(self, model: HasParts) -> int:
        """Return how many parts are put in a random order for each trajectory.

        Parameters
        ----------
        model : SplitModel
            The model.

        Returns
        -------
        int
            Number of parts; 0 if their order is fixed.
        """
        return 0

    def shared_part(self, M: int) -> int | None:
        """Return the part whose gradient the end of a step and the beginning of the next one share.

        Parameters
        ----------
        M : int
            Number of parts.

        Returns
        -------
        int or None
            Number of the part, from 0, or None if they share none.
        """
        return 0 if M == 1 else None

    def options(self) -> dict[str, float]:
        """Return the options of the compiled functions.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {"spares_energy": 1.0}


def gradients_of_part(parts: Sequence, m: Array, shape: tuple[int, ...]) -> Callable[[Array], Array]:
    """Return a function that returns dL_m/dq at q (..., d) of this shape, with the part m (...) of each row.

    Each part is evaluated for its rows only. Rows are sorted by their parts, so that Python waits for a device only once, for
    the numbers of rows of all parts.
    """
    xp = batched.namespace(m)
    m = xp.reshape(xp.broadcast_to(m, shape[:-1]), (-1,))
    counts = batched.to_host(xp.sum(xp.astype(m == xp.arange(len(parts))[:, None], xp.int64), axis=-1)).tolist()
    if max(counts) == m.shape[0]:
        return parts[counts.index(m.shape[0])].gradient
    order, stops = xp.argsort(m, stable=True), list(itertools.accumulate(counts))
    places = xp.argsort(order)

    def gradient(q: Array) -> Array:
        rows = xp.take(xp.reshape(q, (-1, shape[-1])), order, axis=0)
        found = [
            part.gradient(rows[stop - count : stop, :])
            for part, count, stop in zip(parts, counts, stops, strict=True)
            if count
        ]
        return xp.reshape(xp.take(xp.concat(found, axis=0), places, axis=0), shape)

    return gradient


@jit
def is_known(m: int, q: np.ndarray, own: np.ndarray) -> bool:
    """Return whether the part evaluated last is m, at q."""
    kept, i = known(own), 0
    while i < q.shape[0] and q[i] == kept.position[i]:
        i += 1
    return kept.part[0] == m + 1 and i == q.shape[0]


@jit
def kick(m: int, half_eps: float, model: tuple, z: np.ndarray, work: tuple, own: np.ndarray) -> None:
    """Set p <- p - eps/2 dU_m/dq."""
    f, point, kept = as_model(model), as_point(z), known(own)
    if not is_known(m, point.q, own):
        as_work(work).counters.gradients += 1
        kept.value[0] = f.value_and_gradient(point.q, part_of(f.data, m), kept.gradient)
        copy_row(kept.position, point.q)
        kept.part[0] = m + 1
    for i in range(z.shape[1]):
        point.p[i] += half_eps * kept.gradient[i]


@jit
def drift(h: float, z: np.ndarray, work: tuple) -> None:
    """Set q <- q + h M^-1 p."""
    point = as_point(z)
    inverse_product(point.p, work, point.velocity)
    for i in range(z.shape[1]):
        point.q[i] += h * point.velocity[i]


@jit
def energy(model: tuple, z: np.ndarray, work: tuple, own: np.ndarray) -> float:
    """Return H, evaluated part by part except for a part whose value is known; return K alone if the energy is not needed."""
    f, point, kept = as_model(model), as_point(z), known(own)
    _, _, _, _, counters, status = as_work(work)
    inverse_product(point.p, work, point.velocity)
    kinetic = 0.5 * dot(point.p, point.velocity)
    if status.energy_spared:
        return kinetic
    log_density = 0.0
    for m in range(number_of_parts(f.data)):
        if is_known(m, point.q, own):
            log_density += kept.value[0]
        else:
            counters.densities += 1
            log_density += f.change(point.q, part_of(f.data, m), -1, 0.0, 0.0)
    point.log_density[0] = log_density
    return kinetic - log_density
