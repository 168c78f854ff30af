"""One step of discontinuous HMC: the leapfrog for the smooth coordinates I, around single moves of the others, J.

    p_I <- p_I + eps/2 dL/dq_I
    q_I <- q_I + eps/2 M_I^-1 p_I
    for j in J, in a given order:
        q* = q + eps/m_j sign(p_j) e_j,     dU = L(q) - L(q*)
        if |p_j| / m_j > dU:   q <- q*,  p_j <- p_j - sign(p_j) m_j dU       through the jumps, which cost kinetic energy
        else:                  p_j <- -p_j                                   back from them
    q_I <- q_I + eps/2 M_I^-1 p_I
    p_I <- p_I + eps/2 dL/dq_I

Algorithms 3 and 4 of Gram-Hansen's notes with their errata (sign(p_j) in the new momentum; the gradient is at the whole of
q), after Nishimura, Dunson and Lu (2020). Each move of J keeps H exactly, whatever lies between q and q*. So does the step
if L is constant except for jumps. The map keeps volume. For a given order, the same map with reversed momentum and reversed
order is its inverse. A random order whose distribution is the same in both directions therefore makes a reversible kernel.
Outside the support dU = inf, a reflection. Without a discontinuous coordinate this is the leapfrog.

A move asks the model for L(q*) - L(q), or for L(q*) if the model has only the full density.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core import sample_stats as S
from refhmc.core.point import as_point
from refhmc.core.types import as_model, as_work
from refhmc.integrators.leapfrog import NO_ROWS, leapfrog_diagonal
from refhmc.metrics.base import Metric
from refhmc.metrics.laplace import LaplaceOnArrays, energy, views
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@dataclass(frozen=True)
class Discontinuous:
    """Integrator of DHMC, which no other kernel can use.

    It is reversible together with the reversed order of the coordinates. It keeps volume but is not symplectic, since each
    coordinate is moved while the others are fixed.
    """

    order = 2
    symplectic = False
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    cost = 1
    layout = NO_ROWS

    def pointer(self, metric: Metric) -> Callable:
        """Return the compiled step."""
        return discontinuous

    def options(self) -> dict[str, float]:
        """Return the options of the compiled functions."""
        return {}


def step(H: LaplaceOnArrays, q: Array, p: Array, eps: Array, order: Array) -> tuple[Array, Array]:
    """Make one step of discontinuous HMC on arrays.

    For the smooth coordinates I and the discontinuous coordinates J, one step is::

        p_I <- p_I + eps/2 dL/dq_I;     q_I <- q_I + eps/2 M_I^-1 p_I
        for j in J, in the given order:
            q* = q + eps/m_j sign(p_j) e_j,     dU = L(q) - L(q*)
            if |p_j| / m_j > dU:   q <- q*,  p_j <- p_j - sign(p_j) m_j dU
            else:                  p_j <- -p_j
        q_I <- q_I + eps/2 M_I^-1 p_I;     p_I <- p_I + eps/2 dL/dq_I

    Each move of J keeps H exactly. The map keeps volume, and its inverse is the same map with reversed momentum and order.

    Parameters
    ----------
    H : LaplaceOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.discontinuous_hamiltonian`.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d)
        Momenta.
    eps : float or array, shape (..., 1)
        Step size.
    order : array of int, shape (..., n)
        Order in which the n discontinuous coordinates are moved.

    Returns
    -------
    q : array, shape (..., d)
        Positions after the step; NaN if the log density is not a number.
    p : array, shape (..., d)
        Momenta after the step.

    References
    ----------
    Gram-Hansen, notes on HMC and discontinuous HMC, Algorithms 3 and 4. Errata: the new momentum has
    the factor sign(p_j), and the gradient is taken at the whole of q.
    """
    p = kicked(H, q, p, eps / 2)
    q = drifted(H, q, p, eps / 2)
    q, p, _ = jumped(H, q, p, eps, order)
    q = drifted(H, q, p, eps / 2)
    return q, kicked(H, q, p, eps / 2)


def kicked(H: LaplaceOnArrays, q: Array, p: Array, h: Array) -> Array:
    """Return p_I + h dL/dq_I, or the same array if all coordinates are discontinuous."""
    if len(H.model.discontinuous) == q.shape[-1]:
        return p
    return p + h * batched.namespace(q).where(H.jumps(q), 0.0, H.model.gradient(q))


def drifted(H: LaplaceOnArrays, q: Array, p: Array, h: Array) -> Array:
    """Return q_I + h M_I^-1 p_I, or the same array if all coordinates are discontinuous."""
    if len(H.model.discontinuous) == q.shape[-1]:
        return q
    return q + h * batched.namespace(q).where(H.jumps(q), 0.0, H.inverse_mass(q) * p)


def jumped(
    H: LaplaceOnArrays, q: Array, p: Array, eps: Array, order: Array, record: Callable | None = None
) -> tuple[Array, Array, Array | None]:
    """Move the coordinates of J; return q and p after the moves, and L there, (...).

    The latter is None if L was not needed, because the model computes changes and has smooth coordinates too, or because J is
    empty. ``record(change, through)`` is called for each move with its change of L and whether each chain (...) made it.
    """
    xp, W, change = batched.namespace(q), H.inverse_mass(q), getattr(H.model, "log_density_change", None)
    asked = order.shape[-1] > 0 and (change is None or order.shape[-1] == q.shape[-1])
    here = H.model.log_density(q) if asked else None
    for k in range(order.shape[-1]):
        j = xp.arange(q.shape[-1]) == order[..., k : k + 1]
        target = xp.where(j, q + eps * xp.copysign(W, p), q)
        dL = H.model.log_density(target) - here if change is None else change(q, order[..., k], target)
        dU = -dL[..., None]
        through = j & (xp.abs(p) * W > dU)
        p_j = xp.where(through, p - xp.copysign(xp.ones_like(p), p) * dU / W, -p)
        q, p = xp.where(through, target, q), xp.where(j, xp.where(dU > -xp.inf, p_j, xp.nan), p)
        made = xp.any(through, axis=-1)
        here = None if here is None else xp.where(made, here + dL, here)
        if record is not None:
            record(dL, made)
    return q, p, here


@jit
def density_change(model: tuple, z: np.ndarray, j: int, new_value: float, work: tuple) -> float:
    """Return L(q with q_j = new_value) - L(q) at the point ``z``, whose own log density must be up to date.

    For j = -1, return L minus that log density.
    """
    f, point = as_model(model), as_point(z)
    as_work(work).counters.densities += 1
    return f.change(point.q, f.data, j, new_value, point.log_density[0])


@jit
def coordinate_step(model: tuple, z: np.ndarray, j: int, eps: float, work: tuple) -> bool:
    """Move one discontinuous coordinate or reverse its momentum; return False if the log density is not a number."""
    _, _, _, _, counters, status = as_work(work)
    point, w = as_point(z), views(work)
    p = point.p[j]
    new_value = point.q[j] + eps * math.copysign(w.inverse_mass[j], p)
    change = density_change(model, z, j, new_value, work)
    if math.isnan(change) or change == math.inf:
        status.failure = S.NAN
        return False
    counters.tries += 1
    counters.passing += math.exp(min(change, 0.0))
    if abs(p) * w.inverse_mass[j] > -change:
        point.q[j] = new_value
        point.p[j] = math.copysign(abs(p) + w.root[j] * change, p)
        point.log_density[0] += change
    else:
        point.p[j] = -p
        counters.flips += 1
    return True


@jit
def kick(z: np.ndarray, half_eps: float, jumps: np.ndarray) -> None:
    """Set p_I <- p_I + eps/2 dL/dq_I."""
    point = as_point(z)
    for i in range(z.shape[1]):
        if jumps[i] == 0:
            point.p[i] += half_eps * point.gradient[i]


@jit
def drift(z: np.ndarray, half_eps: float, jumps: np.ndarray, inverse_mass: np.ndarray) -> None:
    """Set q_I <- q_I + eps/2 M_I^-1 p_I."""
    point = as_point(z)
    for i in range(z.shape[1]):
        if jumps[i] == 0:
            point.q[i] += half_eps * inverse_mass[i] * point.p[i]


@jit
def discontinuous(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make the step of the point ``z`` in place, with J in the order ``order``; return H there, NaN on failure."""
    _, _, options, _, counters, _ = as_work(work)
    f, point, w = as_model(model), as_point(z), views(work)
    d, n = z.shape[1], options.n_discontinuous
    if n == 0:
        return leapfrog_diagonal(model, metric, z, eps, work, own)
    counters.gradients += n < d
    kick(z, 0.5 * eps, w.jumps)
    drift(z, 0.5 * eps, w.jumps, w.inverse_mass)
    if n < d and options.reads_density > 0:
        point.log_density[0] = 0.0
        point.log_density[0] = density_change(model, z, -1, 0.0, work)
    for k in range(n):
        if not coordinate_step(model, z, int(w.order[k]), eps, work):
            return math.nan
    if n < d:
        drift(z, 0.5 * eps, w.jumps, w.inverse_mass)
        point.log_density[0] = f.value_and_gradient(point.q, f.data, point.gradient)
        kick(z, 0.5 * eps, w.jumps)
    return energy(z, work)
