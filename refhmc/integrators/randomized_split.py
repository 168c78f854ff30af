"""The randomised split of Neal (1995; 2011, sec. 5.1): the parts of the data in an order drawn for each trajectory.

With H = sum_m U_m + K and M parts, one step of size eps in the order s_1, ..., s_M is (Cobb and Jalaian 2021, eq. 7)

    for m = s_1, ..., s_M:    p <- p - eps/2 dU_m/dq;    q <- q + eps/M M^-1 p;    p <- p - eps/2 dU_m/dq

Symplectic, explicit, of order 1. The step back, of size -eps and through the parts in the reversed order, undoes it exactly;
after p -> -p the same is the step of size eps in the reversed order. A trajectory in one order is so undone by one in the
reversed order, which is as likely to be drawn: the kernel is reversible in law, the map of one order is not.

The steps of a trajectory share one order, s, a permutation of the parts drawn uniformly before the first step; the leaves of a
NUTS tree that lie backward in time are made by the inverse of the same map. 2 M partial gradients a step, with M = 1 one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refhmc.core.compiled import jit
from refhmc.core.split_data import nth_part, number_of_parts, rows_of_order
from refhmc.core.types import as_model
from refhmc.integrators.parts import KNOWN, FollowsParts, drift, energy, gradient_of_part, kick
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

N_KNOWN = KNOWN.n_vectors


@dataclass(frozen=True)
class RandomizedSplit(FollowsParts):
    """The randomised split of ``model.split(M)`` on a Euclidean metric.

    Parameters
    ----------
    one_order : tuple of int, optional
        One order of the parts 0, ..., M - 1 for all trajectories. By default each trajectory draws its own.
        :func:`refhmc.integrate` draws nothing and uses this order, or the model's by default.

    Notes
    -----
    In one order, HMC does not keep the target, and ``exact`` is False. NUTS does keep it, since its leaves backward in time are
    those of the inverse map; its results are marked as exact.
    """

    name = "randomized-split"
    order = 1
    reversible = False
    exact_in_nuts = True  # a tree needs an inverse that keeps volume, and no reversibility
    one_order: tuple[int, ...] | None = None

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.one_order is None

    @property
    def approximation(self) -> str:  # type: ignore[override]
        """What makes a chain of HMC approximate, and the remedy; empty if nothing does."""
        if self.exact:
            return ""
        return (
            "RandomizedSplit(one_order=...) goes through the parts in one order, whose steps are not reversible: static HMC "
            "does not keep the target with them. one_order=None, the default, draws the order for each trajectory."
        )

    def pointer(self, metric: Any) -> Callable:
        return randomized_split

    def rows_for(self, model: Any, metric: Any) -> np.ndarray:
        """After the rows that all of them have, the order of the parts, d to a row. Raises ValueError for one that is none."""
        known = super().rows_for(model, metric)
        M = len(model.parts)
        order = range(M) if self.one_order is None else self.one_order
        if sorted(order) != list(range(M)):
            raise ValueError(f"one_order must have each of 0, ..., {M - 1} once, got {self.one_order!r}")
        return np.vstack([known, rows_of_order(order, model.dim)])

    def drawn_parts(self, model: Any) -> int:
        return len(model.parts) if self.one_order is None else 0

    def on_arrays(self) -> Callable:
        """Its step on arrays in its order, (H, q, p, eps) -> (q', p')."""
        return partial(step, order=self.one_order)


def step(H: Any, q: Array, p: Array, eps: Array, order: Any = None) -> tuple[Array, Array]:
    """One step on arrays (..., d), through the parts in that order, one for all (M,) or each row's own (..., M); where eps < 0
    in the reversed one"""
    xp, parts = batched.namespace(q), H.model.parts
    M = len(parts)
    order = xp.asarray(list(range(M)) if order is None else order)
    order = xp.where(xp.asarray(eps) < 0, xp.flip(order, axis=-1), order)
    for k in range(M):
        p = p + eps / 2 * gradient_of_part(parts, order[..., k], q)
        q = q + eps / M * H.inverse_product(q, p)
        p = p + eps / 2 * gradient_of_part(parts, order[..., k], q)
    return q, p


@jit
def randomized_split(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """One step of the point ``z`` in place; returns H there."""
    M = number_of_parts(as_model(model).data)
    for k in range(M):
        place = k if eps > 0 else M - 1 - k
        m = nth_part(own[N_KNOWN:], place)
        kick(m, 0.5 * eps, model, z, work, own)
        drift(eps / M, z, work)
        kick(m, 0.5 * eps, model, z, work, own)
    return energy(model, z, work, own)
