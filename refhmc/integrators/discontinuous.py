"""One step of discontinuous HMC: the leapfrog on the smooth coordinates I, around the discontinuous ones J one at a time.

    p_I <- p_I + eps/2 dL/dq_I
    q_I <- q_I + eps/2 M_I^-1 p_I
    for j in J, in a given order:
        q* = q + eps/m_j sign(p_j) e_j,     dU = L(q) - L(q*)
        if |p_j| / m_j > dU:   q <- q*,  p_j <- p_j - sign(p_j) m_j dU       through the jumps, which cost kinetic energy
        else:                  p_j <- -p_j                                   back from them
    q_I <- q_I + eps/2 M_I^-1 p_I
    p_I <- p_I + eps/2 dL/dq_I

Algorithms 3 and 4 of Gram-Hansen's notes with their errata (sign(p_j) in the new momentum; the gradient is at the whole
of q), after Nishimura, Dunson and Lu (2020). Each move of J keeps H exactly, whatever lies between q and q*, and so does
the step where L is constant but for jumps. The map keeps volume, and given the order it is undone by the same map with the
momentum reversed and the order, too: a random order whose law is the same backwards makes a reversible kernel. Leaving the
support is dU = inf, a reflection. Without a discontinuous coordinate this is the leapfrog.

A move asks the model for L(q*) - L(q), or, where the model has only the full density, for L(q*).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from refhmc.core import sample_stats as S
from refhmc.core.binding import CHANGE_ROWS, COORDINATE, NEW_VALUE, PRESENT
from refhmc.core.compiled import jit
from refhmc.core.point import GRADIENT, LOG_DENSITY, P, Q
from refhmc.core.types import (
    FAILURE,
    FIRST_SUBSTEP,
    FLIPS,
    FULL_DENSITY,
    N_DENSITIES,
    N_DISCONTINUOUS,
    N_GRADIENTS,
    N_SUBSTEPS,
    PASSING,
    TRIES,
)
from refhmc.integrators.leapfrog import leapfrog
from refhmc.metrics.laplace import CALL, INVERSE_MASS, JUMPS, ORDER, ROOT, energy
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@dataclass(frozen=True)
class Discontinuous:
    """DHMC's own, not to be chosen for another kernel. ``reversible``: with the order
    of the coordinates reversed. It keeps volume; it is not symplectic, each coordinate being moved with the others held."""

    order = 2
    symplectic = False
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    cost = 1

    def pointer(self, metric):
        return discontinuous

    def options(self) -> dict[int, float]:
        return {N_SUBSTEPS: 1, FIRST_SUBSTEP: 1.0}


def step(H: Any, q: Array, p: Array, eps: Array, order: Array) -> tuple[Array, Array]:
    """One step on arrays (..., d), with J in the ``order`` (..., n) of each; H is ``laplace.LaplaceOnArrays``. NaN where the
    log density is not a number."""
    xp, L, jumps, W = batched.namespace(q), H.model.log_density, H.jumps(q), H.inverse_mass(q)
    force = lambda q: xp.where(jumps, 0.0, H.model.gradient(q))  # noqa: E731
    drift = lambda p: xp.where(jumps, 0.0, W * p)  # noqa: E731
    p = p + eps / 2 * force(q)
    q = q + eps / 2 * drift(p)
    for k in range(order.shape[-1]):
        j = xp.arange(q.shape[-1]) == order[..., k : k + 1]
        there = xp.where(j, q + eps * xp.copysign(W, p), q)
        dU = (L(q) - L(there))[..., None]
        through = j & (xp.abs(p) * W > dU)
        p_j = xp.where(through, p - xp.copysign(xp.ones_like(p), p) * dU / W, -p)
        q, p = xp.where(through, there, q), xp.where(j, xp.where(dU > -xp.inf, p_j, xp.nan), p)
    q = q + eps / 2 * drift(p)
    return q, p + eps / 2 * force(q)


@jit
def density_change(model, z, j, new_value, vecs, notes):
    """L(q with q_j = new_value) - L(q) at the point ``z``, whose own log density must be up to date; j = -1: see the core."""
    call = vecs[CALL : CALL + CHANGE_ROWS]
    call[COORDINATE, 0], call[NEW_VALUE, 0], call[PRESENT, 0] = j, new_value, z[LOG_DENSITY, 0]
    model[1](z[Q], model[3], call)
    notes[N_DENSITIES] += 1
    return call[COORDINATE, 0]


@jit
def coordinate_step(model, z, j, eps, vecs, notes):
    """Move one discontinuous coordinate, or turn its momentum round; False where the log density is not a number."""
    p = z[P, j]
    new_value = z[Q, j] + eps * math.copysign(vecs[INVERSE_MASS, j], p)
    change = density_change(model, z, j, new_value, vecs, notes)
    if math.isnan(change) or change == math.inf:
        notes[FAILURE] = S.NAN
        return False
    notes[TRIES] += 1
    notes[PASSING] += math.exp(min(change, 0.0))
    if abs(p) * vecs[INVERSE_MASS, j] > -change:
        z[Q, j] = new_value
        z[P, j] = math.copysign(abs(p) + vecs[ROOT, j] * change, p)
        z[LOG_DENSITY, 0] += change
    else:
        z[P, j] = -p
        notes[FLIPS] += 1
    return True


@jit
def kick(z, half_eps, vecs):
    """p_I <- p_I + eps/2 dL/dq_I"""
    for i in range(z.shape[1]):
        if vecs[JUMPS, i] == 0:
            z[P, i] += half_eps * z[GRADIENT, i]


@jit
def drift(z, half_eps, vecs):
    """q_I <- q_I + eps/2 M_I^-1 p_I"""
    for i in range(z.shape[1]):
        if vecs[JUMPS, i] == 0:
            z[Q, i] += half_eps * vecs[INVERSE_MASS, i] * z[P, i]


@jit
def discontinuous(model, geometry, z, eps, vecs, mats, notes):
    """The step of the point ``z`` in place, J in the order ``vecs[ORDER]``; returns H there, NaN on failure."""
    value_and_gradient, _, _, data = model
    d, n = z.shape[1], int(notes[N_DISCONTINUOUS])
    notes[N_GRADIENTS] += n < d
    if n == 0:
        return leapfrog(model, z, eps, vecs, mats)
    kick(z, 0.5 * eps, vecs)
    drift(z, 0.5 * eps, vecs)
    if n < d and notes[FULL_DENSITY] > 0:
        z[LOG_DENSITY, 0] = 0.0
        z[LOG_DENSITY, 0] = density_change(model, z, -1, 0.0, vecs, notes)
    for k in range(n):
        if not coordinate_step(model, z, int(vecs[ORDER, k]), eps, vecs, notes):
            return math.nan
    if n < d:
        drift(z, 0.5 * eps, vecs)
        z[LOG_DENSITY, 0] = value_and_gradient(z[Q], data, z[GRADIENT])
        kick(z, 0.5 * eps, vecs)
    return energy(z, vecs)
