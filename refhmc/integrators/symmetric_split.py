"""The symmetric split of Cobb and Jalaian (2021): one part of the data after another, and back again.

With H = sum_m U_m + K, M parts and D = 2 (M - 1), one step of size eps is their Algorithm 1:

    for m = 1, ..., M:     p <- p - eps/2 dU_m/dq;     if m < M:   q <- q + eps/D M^-1 p
    for m = M, ..., 1:     p <- p - eps/2 dU_m/dq;     if m > 1:   q <- q + eps/D M^-1 p

Symmetric, so reversible (under p -> -p) and of order 2; symplectic; explicit. With one part, where no room is left for a drift,
it is the leapfrog.

The kicks of part M stand at one position, and so do the last kick of a step and the first of the next, both of part 1. Their
gradients are evaluated once (:mod:`refhmc.integrators.parts`): 2 M - 2 partial gradients a step, one with M = 1; 2 M when they
are evaluated as printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.core.compiled import jit
from refhmc.core.split_data import number_of_parts
from refhmc.core.types import as_model
from refhmc.integrators.parts import FollowsParts, drift, energy, kick
from refhmc.numerics.batched import Array


@dataclass(frozen=True)
class SymmetricSplit(FollowsParts):
    """The symmetric split of ``model.split(M)`` on a Euclidean metric."""

    name = "symmetric-split"
    order = 2
    reversible = True

    def shared_part(self, M: int) -> int:
        return 0

    def pointer(self, metric: Any) -> Callable:
        return symmetric_split

    def on_arrays(self) -> Callable:
        """Its step on arrays, (H, q, p, eps) -> (q', p')."""
        return step


def step(H: Any, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
    """One step on arrays (..., d)"""
    parts = H.model.parts
    M = len(parts)
    D = max(2 * (M - 1), 1)
    for m in range(M):
        p = p + eps / 2 * parts[m].gradient(q)
        if m < M - 1 or M == 1:
            q = q + eps / D * H.inverse_product(q, p)
    for m in reversed(range(M)):
        p = p + eps / 2 * parts[m].gradient(q)
        if m > 0:
            q = q + eps / D * H.inverse_product(q, p)
    return q, p


@jit
def symmetric_split(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """One step of the point ``z`` in place; returns H there."""
    M = number_of_parts(as_model(model).data)
    D = max(2 * (M - 1), 1)
    for m in range(M):
        kick(m, 0.5 * eps, model, z, work, own)
        if m < M - 1 or M == 1:
            drift(eps / D, z, work)
    for m in range(M - 1, -1, -1):
        kick(m, 0.5 * eps, model, z, work, own)
        if m > 0:
            drift(eps / D, z, work)
    return energy(model, z, work, own)
