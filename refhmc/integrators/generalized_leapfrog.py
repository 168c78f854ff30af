"""The generalised leapfrog for a Hamiltonian that does not separate: two implicit half steps and an explicit one.

    p+ = p - eps/2 dH/dq(q, p+)                                  implicit in p+
    q' = q + eps/2 (dH/dp(q, p+) + dH/dp(q', p+))                implicit in q'
    p' = p+ - eps/2 dH/dq(q', p+)                                explicit

Order 2, symplectic, reversible; it conserves every invariant q'Ap; on a constant metric it is the leapfrog. Girolami and
Calderhead (2011), sec. 6.1; Betancourt (2013), Algorithm 1 with its errata (both last half kicks); Brofos and Lederman
(2021), Algorithms 2 and 4 with their errata (the sign of dL/dq).

    naive, G.L.F.(a)     evaluates the right-hand sides anew in every iteration
    cached, G.L.F.(b)    keeps what does not change: G(q) and the force of phi at q, the velocity G(q)^-1 p+

The two make the same numbers but for rounding. The solves start from p and from q.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from refhmc.core.compiled import jit, jit_part
from refhmc.core.point import P, Q, copy_row
from refhmc.core.types import INTEGRATOR_ROWS, MAX_ITERATIONS, SETTLED
from refhmc.integrators.base import Implicit
from refhmc.integrators.solver import hopeless, improve, no_image, retreat, unsolved
from refhmc.metrics.base import energy, field, settle
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@dataclass(frozen=True)
class GeneralizedLeapfrog(Implicit):
    """The generalised leapfrog, naive (G.L.F.(a)) or cached (G.L.F.(b))."""

    variant: str = "cached"
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "fixed point"
    reversibility_check: bool = True
    variants = ("cached", "naive")

    def pointer(self, metric):
        return generalized_leapfrog_cached if self.variant == "cached" else generalized_leapfrog_naive

    def on_arrays(self) -> Callable:
        """Its step on arrays, (H, q, p, eps) -> (q', p')."""
        return partial(step, solve=self.fixed_point)


def step(H: Any, q: Array, p: Array, eps: Array, solve: Callable = batched.fixed_point) -> tuple[Array, Array]:
    """One step on arrays (..., d), with the parts kept that do not change, as G.L.F.(b)"""
    phi = H.potential_force(q)
    half = solve(lambda x: p + eps / 2 * (phi + H.kinetic_force(q, x)), p)
    v = H.inverse_product(q, half)
    q = solve(lambda x, q=q: q + eps / 2 * (v + H.inverse_product(x, half)), q)
    return q, half + eps / 2 * H.velocity_and_force(q, half)[1]


# Rows of ``vecs``: the unknown, its image, p+, dH/dp at q, dphi/dq at q, dH/dp and dH/dq where they are wanted.
X, IMAGE, P_HALF, V_START, PHI, V, SLOPE = (INTEGRATOR_ROWS + k for k in range(7))


@jit_part
def momentum_image(cached, model, geometry, z, eps, x, vecs, mats, notes, out):
    """out = p - eps/2 dH/dq(q, x); ``cached``: with dphi/dq(q) and the metric at q as they are at hand."""
    if cached:
        field(model, geometry, x[0], 0.0, 1.0, vecs, mats, notes, vecs[V], vecs[SLOPE])
    else:
        notes[SETTLED] = 0
        if not settle(model, geometry, z[Q], vecs, mats, notes):
            return False
        field(model, geometry, x[0], 1.0, 1.0, vecs, mats, notes, vecs[V], vecs[SLOPE])
    for i in range(x.shape[1]):
        out[0, i] = z[P, i] - 0.5 * eps * (vecs[PHI, i] + vecs[SLOPE, i])
    return True


@jit_part
def position_image(cached, model, geometry, z, eps, x, vecs, mats, notes, out):
    """out = q + eps/2 (dH/dp(q, p+) + dH/dp(x, p+)); ``cached``: with the first one at hand."""
    if not cached:
        notes[SETTLED] = 0
        if not settle(model, geometry, z[Q], vecs, mats, notes):
            return False
        geometry[1](vecs[P_HALF], vecs, mats, notes, vecs[V_START])
        notes[SETTLED] = 0
    if not settle(model, geometry, x[0], vecs, mats, notes):
        return False
    geometry[1](vecs[P_HALF], vecs, mats, notes, vecs[V])
    for i in range(x.shape[1]):
        out[0, i] = z[Q, i] + 0.5 * eps * (vecs[V_START, i] + vecs[V, i])
    return True


@jit_part
def solve_momentum(cached, model, geometry, z, eps, vecs, mats, notes):
    """The first line, from p; p+ into ``vecs``."""
    x, image = vecs[X : X + 1], vecs[IMAGE : IMAGE + 1]
    copy_row(x[0], z[P])
    vecs[PHI, :] = 0.0
    if cached:
        if not settle(model, geometry, z[Q], vecs, mats, notes):
            return False
        field(model, geometry, z[P], 1.0, 0.0, vecs, mats, notes, vecs[V], vecs[PHI])
    for n in range(int(notes[MAX_ITERATIONS])):
        if not momentum_image(cached, model, geometry, z, eps, x, vecs, mats, notes, image):
            if retreat(x, vecs, notes):
                continue
            return no_image(notes)
        if improve(x, image, n, vecs, notes):
            copy_row(vecs[P_HALF], x[0])
            return True
        if hopeless(x):
            break
    return unsolved(notes)


@jit_part
def solve_position(cached, model, geometry, z, eps, vecs, mats, notes):
    """The second line, from q; q' into ``vecs[X]``."""
    x, image = vecs[X : X + 1], vecs[IMAGE : IMAGE + 1]
    copy_row(x[0], z[Q])
    if cached:
        geometry[1](vecs[P_HALF], vecs, mats, notes, vecs[V_START])
    for n in range(int(notes[MAX_ITERATIONS])):
        if not position_image(cached, model, geometry, z, eps, x, vecs, mats, notes, image):
            if retreat(x, vecs, notes):
                continue
            return no_image(notes)
        if improve(x, image, n, vecs, notes):
            return True
        if hopeless(x):
            break
    return unsolved(notes)


@jit_part
def last_kick(model, geometry, z, eps, vecs, mats, notes):
    """The third line: z is (q', p')."""
    for i in range(z.shape[1]):
        z[Q, i] = vecs[X, i]
    if not settle(model, geometry, z[Q], vecs, mats, notes):
        return False
    field(model, geometry, vecs[P_HALF], 1.0, 1.0, vecs, mats, notes, vecs[V], vecs[SLOPE])
    for i in range(z.shape[1]):
        z[P, i] = vecs[P_HALF, i] - 0.5 * eps * vecs[SLOPE, i]
    return True


@jit_part
def generalized_leapfrog(cached, model, geometry, z, eps, vecs, mats, notes):
    """One step of the point ``z`` in place; returns H there, NaN where it failed."""
    if not solve_momentum(cached, model, geometry, z, eps, vecs, mats, notes):
        return math.nan
    if not solve_position(cached, model, geometry, z, eps, vecs, mats, notes):
        return math.nan
    if not last_kick(model, geometry, z, eps, vecs, mats, notes):
        return math.nan
    return energy(model, geometry, z, vecs, mats, notes)


@jit
def generalized_leapfrog_naive(model, geometry, z, eps, vecs, mats, notes):
    """G.L.F.(a), to be called through a pointer."""
    return generalized_leapfrog(False, model, geometry, z, eps, vecs, mats, notes)


@jit
def generalized_leapfrog_cached(model, geometry, z, eps, vecs, mats, notes):
    """G.L.F.(b), to be called through a pointer."""
    return generalized_leapfrog(True, model, geometry, z, eps, vecs, mats, notes)
