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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refhmc.core.compiled import jit
from refhmc.core.randomness import uniform
from refhmc.core.records import Layout
from refhmc.core.types import as_model
from refhmc.integrators.parts import KNOWN, FollowsParts, drift, energy, kick
from refhmc.models.split import number_of_parts
from refhmc.numerics.batched import Array

N_KNOWN = KNOWN.n_vectors


@dataclass(frozen=True)
class RandomizedSplit(FollowsParts):
    """The randomised split of ``model.split(M)`` on a Euclidean metric.

    :func:`refhmc.integrate`, which draws nothing, takes the parts in the order given.
    """

    name = "randomized-split"
    order = 1
    reversible = False

    def pointer(self, metric: Any) -> Callable:
        return randomized_split

    def layout_for(self, model: Any) -> Layout:
        """The order of the parts comes after the rows that all of them have, d to a row."""
        rows = super().layout_for(model)
        return Layout(f"order[{-(-len(model.parts) // model.dim)}]", after=rows)

    def drawn_parts(self, model: Any) -> int:
        return len(model.parts)

    def on_arrays(self, order: Sequence[int]) -> Callable:
        """Its step on arrays in one order, (H, q, p, eps) -> (q', p')."""
        return partial(step, order=order)


def step(H: Any, q: Array, p: Array, eps: Array, order: Sequence[int]) -> tuple[Array, Array]:
    """One step forward on arrays (..., d), through the parts in that order (backward: the reversed one)"""
    for m in order:
        p = p + eps / 2 * H.model.parts[m].gradient(q)
        q = q + eps / len(order) * H.inverse_product(q, p)
        p = p + eps / 2 * H.model.parts[m].gradient(q)
    return q, p


@jit
def draw_order(randomness: tuple, M: int, own: np.ndarray) -> None:
    """A uniform permutation of M parts (Fisher and Yates), one uniform for each k = M - 1, ..., 1: entry floor(u (k + 1)) changes
    places with entry k. Kept plus one, since 0 stands for no order drawn."""
    d = own.shape[1]
    for k in range(M):
        own[N_KNOWN + k // d, k % d] = k + 1
    for k in range(M - 1, 0, -1):
        j = min(int(uniform(randomness) * (k + 1)), k)
        a, b = N_KNOWN + j // d, N_KNOWN + k // d
        own[a, j % d], own[b, k % d] = own[b, k % d], own[a, j % d]


@jit
def randomized_split(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """One step of the point ``z`` in place; returns H there."""
    M, d = number_of_parts(as_model(model).data), z.shape[1]
    for k in range(M):
        place = k if eps > 0 else M - 1 - k
        drawn = int(own[N_KNOWN + place // d, place % d])
        m = drawn - 1 if drawn > 0 else place
        kick(m, 0.5 * eps, model, z, work, own)
        drift(eps / M, z, work)
        kick(m, 0.5 * eps, model, z, work, own)
    return energy(model, z, work, own)
