"""The randomised split of Neal (1995; 2011, sec. 5.1): the parts of the data in a random order for each trajectory.

With H = sum_m U_m + K and M parts, one step of size eps in the order s_1, ..., s_M is (Cobb and Jalaian 2021, eq. 7)

    for m = s_1, ..., s_M:    p <- p - eps/2 dU_m/dq;    q <- q + eps/M M^-1 p;    p <- p - eps/2 dU_m/dq

Symplectic, explicit, of order 1. The step of size -eps through the parts in the reversed order is its exact inverse. After
p -> -p the inverse is the step of size eps in the reversed order. A trajectory in one order is therefore undone by one in the
reversed order, which is drawn with the same probability. The kernel with random orders is reversible, although the map of one
order is not.

All steps of a trajectory have the same order s, a uniformly random permutation of the parts drawn before the first step. The
leaves of a NUTS tree that are backward in time are made by the inverse of the same map. The cost is 2 M partial gradients per
step, or one for M = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.split_data import nth_part, number_of_parts, rows_of_order
from refhmc.core.types import as_model
from refhmc.integrators.parts import KNOWN, FollowsParts, HasParts, SplitModel, drift, energy, gradients_of_part, kick
from refhmc.metrics.base import HamiltonianOnArrays, Metric
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

N_KNOWN = KNOWN.n_vectors  # the order is in the other rows


@dataclass(frozen=True)
class RandomizedSplit(FollowsParts):
    """Split of the data into parts, which follow each other in a random order.

    With U = -L = sum_m U_m over the parts of ``model.split(M)``, one step of size eps in the order s_1, ..., s_M is::

        for m = s_1, ..., s_M:    p <- p - eps/2 dU_m/dq;    q <- q + eps/M M^-1 p;    p <- p - eps/2 dU_m/dq

    The method is of order 1, symplectic and explicit. The map of one order is not reversible: its inverse has the reversed
    order. Each trajectory draws an order, and the reversed one has the same probability, so that the kernel is exact. The
    metric is Euclidean. The cost is 2 M partial gradients per step, or one for M = 1.

    Parameters
    ----------
    one_order : tuple of int, optional
        One order of the parts 0, ..., M - 1 for all trajectories. By default each trajectory draws its own.
        :func:`refhmc.integrate` draws nothing and uses this order, or the model's by default.

    See Also
    --------
    SymmetricSplit : Reversible and of order 2.
    NaiveSplit : The leapfrog on a split model.

    Notes
    -----
    With one order, HMC does not keep the target, and ``exact`` is False. NUTS still keeps it, since its leaves backward in time
    are those of the inverse map. Its results are marked as exact.

    References
    ----------
    - Neal (1995), Bayesian learning for neural networks; Neal (2011), section 5.1.
    - Cobb and Jalaian (2021), equation 7.

    Examples
    --------
    >>> import refhmc
    >>> refhmc.integrators.RandomizedSplit().exact, refhmc.integrators.RandomizedSplit(one_order=(1, 0)).exact
    (True, False)
    """

    name = "randomized-split"
    order = 1
    reversible = False
    exact_in_nuts = True  # a tree needs an inverse that keeps volume, and no reversibility
    one_order: tuple[int, ...] | None = None

    @property
    def exact(self) -> bool:  # type: ignore[override]
        """Whether a chain of HMC keeps the target: True if each trajectory draws an order."""
        return self.one_order is None

    @property
    def approximation(self) -> str:  # type: ignore[override]
        """Why a chain of HMC is approximate, and the remedy; empty if it is exact."""
        if self.exact:
            return ""
        return (
            "RandomizedSplit(one_order=...) follows the parts in one order. Its steps are not reversible, so that HMC does not "
            "keep the target distribution. Use one_order=None, the default, which draws an order for each trajectory."
        )

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
        return randomized_split

    def rows_for(self, model: SplitModel, metric: Metric) -> np.ndarray:
        """Return the initial rows of the integrator, followed by rows with the order of the parts.

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
        ValueError
            If `one_order` is not an order of its parts.
        """
        known = super().rows_for(model, metric)
        M = len(model.parts)
        order = range(M) if self.one_order is None else self.one_order
        if sorted(order) != list(range(M)):
            raise ValueError(
                f"one_order must have each of 0, ..., {M - 1} once, for the {M} parts; got {self.one_order!r}."
            )
        return np.vstack([known, rows_of_order(order, model.dim)])

    def drawn_parts(self, model: HasParts) -> int:
        return len(model.parts) if self.one_order is None else 0

    def on_arrays(self) -> Callable:
        """Return the step on arrays in its order.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return partial(step, order=self.one_order)


def step(H: HamiltonianOnArrays, q: Array, p: Array, eps: Array, order: Array | None = None) -> tuple[Array, Array]:
    """Make one step of the randomised split on arrays.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian of a split model, from :func:`refhmc.array_api.hamiltonian`.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d)
        Momenta.
    eps : float or array, shape (..., 1)
        Step size. If it is negative, the order is reversed.
    order : array of int, shape (M,) or (..., M), optional
        Order of the parts, one for all rows or one for each. Defaults to 0, ..., M - 1.

    Returns
    -------
    q : array, shape (..., d)
        Positions after the step.
    p : array, shape (..., d)
        Momenta after the step.
    """
    xp, parts = batched.namespace(q), H.model.parts
    M = len(parts)
    order = xp.asarray(list(range(M)) if order is None else order)
    order = xp.where(xp.asarray(eps) < 0, xp.flip(order, axis=-1), order)
    for k in range(M):
        gradient = gradients_of_part(parts, order[..., k], q.shape)
        p = p + eps / 2 * gradient(q)
        q = q + eps / M * H.inverse_product(q, p)
        p = p + eps / 2 * gradient(q)
    return q, p


@jit
def randomized_split(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make one step of the point ``z`` in place and return H there."""
    M = number_of_parts(as_model(model).data)
    for k in range(M):
        place = k if eps > 0 else M - 1 - k
        m = nth_part(own[N_KNOWN:], place)
        kick(m, 0.5 * eps, model, z, work, own)
        drift(eps / M, z, work)
        kick(m, 0.5 * eps, model, z, work, own)
    return energy(model, z, work, own)
