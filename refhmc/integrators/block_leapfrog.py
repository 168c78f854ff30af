"""The explicit leapfrog for a hierarchical metric: kicks by the potential, and the exact flows of the kinetic energies.

The coordinates have levels 0, ..., B - 1. The mass matrix is block diagonal, and block M_b depends on earlier levels only:

    H(q, p) = phi(q) + sum_b tau_b(q, p),     phi = -L(q) + 1/2 sum_b log det M_b,     tau_b = 1/2 p_b' M_b(q_<b)^-1 p_b

tau_b contains q_<b and p_b, and its flow leaves both as they are. Its velocity and force are therefore constant, and the flow
for time t is

    F_b(t):   q_b <- q_b + t v,     p_<b <- p_<b + t/2 v' dM_b/dq_<b v,     v = M_b^-1 p_b

One step of size eps is the palindrome

    p <- p - eps/2 dphi/dq
    F_{B-1}(eps/2), ..., F_1(eps/2);   F_0(eps);   F_1(eps/2), ..., F_{B-1}(eps/2)
    p <- p - eps/2 dphi/dq

Each part is the exact flow of a Hamiltonian. It is symplectic, and p -> -p reverses it. A palindrome of such flows is
symplectic, reversible and of even order, 2. No equation is solved, and a step costs one gradient. With B = 1 it is the
leapfrog. Kailas, Vihola and Wallin (2026), arXiv 2604.09832.

In the second half, M_b is needed at the new q_<b, which are final when F_b begins. The first half uses the matrices of the last
step. M is therefore computed B - 1 times per step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refhmc.compile.compiled import jit, jit_part
from refhmc.core.point import as_point
from refhmc.core.protocols import Model
from refhmc.core.records import Layout
from refhmc.metrics.base import (
    HamiltonianOnArrays,
    Metric,
    energy,
    factorise,
    keep_gradient,
    move_last_level,
    velocity_and_force,
)
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

LAYOUT = Layout("level momentum velocity slope")
rows = LAYOUT.rows


@dataclass(frozen=True)
class BlockLeapfrog:
    """The explicit leapfrog for hierarchical metrics, whose blocks depend on earlier coordinates only.

    With ``tau_b = 1/2 p_b' M_b(q_<b)^-1 p_b``, let F_b(t) be the exact flow of tau_b::

        q_b <- q_b + t v,    p_<b <- p_<b + t/2 v' dM_b/dq_<b v,    v = M_b^-1 p_b

    One step of size eps is, with ``phi = -L + 1/2 log det M``::

        p <- p - eps/2 dphi/dq
        F_{B-1}(eps/2), ..., F_1(eps/2);  F_0(eps);  F_1(eps/2), ..., F_{B-1}(eps/2)
        p <- p - eps/2 dphi/dq

    The method is of order 2, symplectic, reversible under p -> -p, explicit and exact. It costs one gradient per step. On a
    constant metric it is the leapfrog.

    See Also
    --------
    refhmc.metrics.Hierarchical : Metrics for it.
    ImplicitMidpoint, GeneralizedLeapfrog : For other metrics that depend on the position.

    References
    ----------
    Kailas, Vihola and Wallin (2026), arXiv 2604.09832.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> metric = refhmc.metrics.Hierarchical([[0.0, 0.0]], [[0, 0]], [[[0.0, 1.0]]])
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1), metric)
    >>> path = refhmc.integrate(H, refhmc.integrators.BlockLeapfrog(), [1.0, 0.5], [0.3, -0.2], step_size=0.1, n_steps=5)
    >>> back = refhmc.integrate(H, refhmc.integrators.BlockLeapfrog(), path.q[-1], -path.p[-1], step_size=0.1, n_steps=5)
    >>> bool(np.allclose(back.q[-1], [1.0, 0.5], rtol=0, atol=1e-14))
    True
    """

    name = "block_leapfrog"
    order = 2
    symplectic = True
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    cost = 1
    layout = LAYOUT

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
        return block_leapfrog

    def rows_for(self, model: Model, metric: Metric) -> np.ndarray:
        """Return the initial rows of the integrator, with the level of each coordinate.

        Parameters
        ----------
        model : Model
            The model.
        metric : object
            The metric.

        Returns
        -------
        ndarray, shape (4, d)
            The rows; the first contains the levels.

        Raises
        ------
        ValueError
            If the metric depends on the position and is not hierarchical.
        """
        own = np.zeros((LAYOUT.n_vectors, model.dim))
        own[0] = levels_of(metric, model)
        return own

    def options(self) -> dict[str, float]:
        """Return the options of the compiled step.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {}

    def on_arrays(self) -> Callable:
        """Return the step on arrays.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return step


def levels_of(metric: Metric, model: Model) -> np.ndarray:
    """Return the level of each coordinate, (d,); 0 for all on a constant metric. Raises ValueError for other metrics."""
    if not metric.position_dependent:
        return np.zeros(model.dim, int)
    if not hasattr(metric, "levels"):
        raise ValueError(
            f"metric must be hierarchical for BlockLeapfrog; got {type(metric).__name__}. Use refhmc.metrics.Hierarchical, "
            "or the integrator ImplicitMidpoint."
        )
    return np.asarray(metric.levels(model))


def step(H: HamiltonianOnArrays, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
    """Make one step on arrays.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
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

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> metric = refhmc.metrics.Hierarchical([[0.0, 0.0]], [[0, 0]], [[[0.0, 1.0]]])
    >>> H = refhmc.array_api.hamiltonian(refhmc.models.Funnel(1), metric)
    >>> q, p = refhmc.array_api.block_leapfrog(H, np.zeros((3, 2)), np.ones((3, 2)), 0.1)
    >>> q.shape
    (3, 2)
    """
    level = levels_of(H.metric, H.model)
    top = int(level.max())
    p = p + eps / 2 * H.potential_force(q)
    for b in range(top, 0, -1):
        q, p = flow(H, q, p, eps / 2, level == b)
    q, p = flow(H, q, p, eps, level == 0)
    for b in range(1, top + 1):
        q, p = flow(H, q, p, eps / 2, level == b)
    return q, p + eps / 2 * H.potential_force(q)


def flow(H: HamiltonianOnArrays, q: Array, p: Array, t: Array, chosen: np.ndarray) -> tuple[Array, Array]:
    """Return the flow of the kinetic energy of the chosen coordinates for time t."""
    part = p * batched.namespace(q).asarray(chosen, dtype=q.dtype)
    return q + t * H.inverse_product(q, part), p + t * H.kinetic_force(q, part)


@jit_part
def kick(model: tuple, metric: tuple, z: np.ndarray, t: float, work: tuple, own: np.ndarray) -> None:
    """Set p <- p - t dphi/dq at the metric's position."""
    w, point = rows(own), as_point(z)
    velocity_and_force(model, metric, point.p, 1.0, 0.0, work, w.velocity, w.slope)
    for i in range(z.shape[1]):
        point.p[i] -= t * w.slope[i]


@jit
def follow(model: tuple, metric: tuple, z: np.ndarray, t: float, b: int, work: tuple, own: np.ndarray) -> None:
    """Follow the flow of tau_b for time t; the metric's position has the same q_<b."""
    w, point = rows(own), as_point(z)
    for i in range(z.shape[1]):
        w.momentum[i] = point.p[i] if w.level[i] == b else 0.0
    velocity_and_force(model, metric, w.momentum, 0.0, 1.0, work, w.velocity, w.slope)
    for i in range(z.shape[1]):
        point.q[i] += t * w.velocity[i]
        point.p[i] -= t * w.slope[i]


@jit
def block_leapfrog(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make one step of the point ``z`` in place and return H there, NaN if M is not positive definite."""
    point, level, top = as_point(z), rows(own).level, 0
    for i in range(z.shape[1]):
        top = max(top, int(level[i]))
    if not factorise(model, metric, point.q, work):
        return math.nan
    keep_gradient(z, work)
    kick(model, metric, z, 0.5 * eps, work, own)
    for b in range(top, 0, -1):
        follow(model, metric, z, 0.5 * eps, b, work, own)
    follow(model, metric, z, eps, 0, work, own)
    for b in range(1, top + 1):
        if not factorise(model, metric, point.q, work):
            return math.nan
        follow(model, metric, z, 0.5 * eps, b, work, own)
    if top > 0:
        move_last_level(point.q, work)
    elif not factorise(model, metric, point.q, work):
        return math.nan
    kick(model, metric, z, 0.5 * eps, work, own)
    return energy(model, metric, z, work)
