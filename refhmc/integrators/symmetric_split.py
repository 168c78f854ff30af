"""The symmetric split of Cobb and Jalaian (2021): through the parts of the data in order, then back in reverse order.

With H = sum_m U_m + K, M parts and D = 2 (M - 1), one step of size eps is their Algorithm 1:

    for m = 1, ..., M:     p <- p - eps/2 dU_m/dq;     if m < M:   q <- q + eps/D M^-1 p
    for m = M, ..., 1:     p <- p - eps/2 dU_m/dq;     if m > 1:   q <- q + eps/D M^-1 p

The step is symmetric, so that it is reversible (under p -> -p) and of order 2; it is symplectic and explicit. With one part,
for which these loops have no drift, it is the leapfrog.

The two kicks of part M are at one position, and so are the last kick of a step and the first of the next, both of part 1. Their
gradients are evaluated once (:mod:`refhmc.integrators.parts`). The cost is 2 M - 2 partial gradients per step, or one for
M = 1. The algorithm as printed has 2 M.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.split_data import number_of_parts
from refhmc.core.types import as_model
from refhmc.integrators.parts import FollowsParts, drift, energy, kick
from refhmc.metrics.base import HamiltonianOnArrays, Metric
from refhmc.numerics.batched import Array


@dataclass(frozen=True)
class SymmetricSplit(FollowsParts):
    """Symmetric split of the data into parts, a reversible method of order 2.

    With U = -L = sum_m U_m over the parts of ``model.split(M)`` and D = 2 (M - 1), one step of size eps is::

        for m = 1, ..., M:     p <- p - eps/2 dU_m/dq;     if m < M:   q <- q + eps/D M^-1 p
        for m = M, ..., 1:     p <- p - eps/2 dU_m/dq;     if m > 1:   q <- q + eps/D M^-1 p

    The method is of order 2, symplectic, reversible under p -> -p, explicit and exact. With one part it is the leapfrog.
    The metric is Euclidean. The cost is 2 M - 2 partial gradients per step, or one for M = 1. The algorithm as printed has
    2 M, but kicks at the same position share their gradient.

    See Also
    --------
    RandomizedSplit : The parts in a random order.
    NaiveSplit : The leapfrog on a split model.

    References
    ----------
    Cobb and Jalaian (2021), Scaling Hamiltonian Monte Carlo inference for Bayesian neural networks with symmetric splitting,
    Algorithm 1.

    Examples
    --------
    >>> import refhmc
    >>> method = refhmc.integrators.SymmetricSplit()
    >>> method.order, method.reversible, method.exact
    (2, True, True)
    """

    name = "symmetric-split"
    order = 2
    reversible = True

    def shared_part(self, M: int) -> int:
        return 0

    def pointer(self, metric: Metric) -> Callable:
        """Return the compiled step.

        Parameters
        ----------
        metric : object
            The metric.

        Returns
        -------
        callable
            The step for this metric.
        """
        return symmetric_split

    def on_arrays(self) -> Callable:
        """Return the step on arrays.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return step


def step(H: HamiltonianOnArrays, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
    """Make one step of the symmetric split on arrays.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian of a split model, from :func:`refhmc.array_api.hamiltonian`.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d)
        Momenta.
    eps : float or array, shape (..., 1)
        Step size.

    Returns
    -------
    q : array, shape (..., d)
        Positions after the step.
    p : array, shape (..., d)
        Momenta after the step.
    """
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
    """Make one step of the point ``z`` in place and return H there."""
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
