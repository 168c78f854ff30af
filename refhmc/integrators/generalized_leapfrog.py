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

import numpy as np

from refhmc.core.compiled import jit, jit_part
from refhmc.core.point import as_point, copy_row
from refhmc.core.records import Layout
from refhmc.core.types import as_metric, as_work
from refhmc.integrators.base import CHECK, Implicit
from refhmc.metrics.base import energy, factorise, velocity_and_force
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.fixed_point import HISTORY_ROWS, Outcome, fixed_point

# The unknown, its image, p+, dH/dp at q, dphi/dq at q, dH/dp and dH/dq where they are wanted.
LAYOUT = Layout(f"x[1] image[1] p_half v_start phi v dH_dq history[{HISTORY_ROWS}]", after=CHECK)
rows = LAYOUT.rows


@dataclass(frozen=True)
class GeneralizedLeapfrog(Implicit):
    """The generalised leapfrog, naive (G.L.F.(a)) or cached (G.L.F.(b))."""

    name = "generalized_leapfrog"
    variant: str = "cached"
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "fixed point"
    reversibility_check: bool = True
    variants = ("cached", "naive")
    layout = LAYOUT

    def pointer(self, metric: Any) -> Callable:
        return generalized_leapfrog

    def options(self) -> dict[str, float]:
        return {**super().options(), "cached": self.variant == "cached"}

    def on_arrays(self) -> Callable:
        """Its step on arrays, (H, q, p, eps) -> (q', p')."""
        return partial(step, solve=self.fixed_point)


def step(H: Any, q: Array, p: Array, eps: Array, solve: Callable = batched.fixed_point) -> tuple[Array, Array]:
    """One step on arrays (..., d), with the parts kept that do not change, as G.L.F.(b)"""

    def momentum(x: Array, q: Array, p: Array, phi: Array, eps: Array) -> Array:
        return p + eps / 2 * (phi + H.kinetic_force(q, x))

    def position(x: Array, q: Array, half: Array, v: Array, eps: Array) -> Array:
        return q + eps / 2 * (v + H.inverse_product(x, half))

    half = solve(momentum, p, q, p, H.potential_force(q), eps)
    q = solve(position, q, q, half, H.inverse_product(q, half), eps)
    return q, half + eps / 2 * H.velocity_and_force(q, half)[1]


@jit_part
def momentum_equation(
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    x: np.ndarray,
    image: np.ndarray,
) -> bool:
    """image = p - eps/2 dH/dq(q, x); cached: with dphi/dq(q) and the metric at q as they are at hand."""
    w, point = rows(own), as_point(z)
    if as_work(work).options.cached:
        velocity_and_force(model, metric, x[0], 0.0, 1.0, work, w.v, w.dH_dq)
    else:
        as_work(work).cache.factorised = 0
        if not factorise(model, metric, point.q, work):
            return False
        velocity_and_force(model, metric, x[0], 1.0, 1.0, work, w.v, w.dH_dq)
    for i in range(x.shape[1]):
        image[0, i] = point.p[i] - 0.5 * eps * (w.phi[i] + w.dH_dq[i])
    return True


@jit_part
def position_equation(
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    x: np.ndarray,
    image: np.ndarray,
) -> bool:
    """image = q + eps/2 (dH/dp(q, p+) + dH/dp(x, p+)); cached: with the first one at hand."""
    w, point, inverse_product = rows(own), as_point(z), as_metric(metric).inverse_product
    if not as_work(work).options.cached:
        as_work(work).cache.factorised = 0
        if not factorise(model, metric, point.q, work):
            return False
        inverse_product(w.p_half, work, w.v_start)
        as_work(work).cache.factorised = 0
    if not factorise(model, metric, x[0], work):
        return False
    inverse_product(w.p_half, work, w.v)
    for i in range(x.shape[1]):
        image[0, i] = point.q[i] + 0.5 * eps * (w.v_start[i] + w.v[i])
    return True


@jit_part
def last_kick(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> bool:
    """The third line, with p+ and q' at hand: z is (q', p')."""
    w, point = rows(own), as_point(z)
    copy_row(point.q, w.x[0])
    if not factorise(model, metric, point.q, work):
        return False
    velocity_and_force(model, metric, w.p_half, 1.0, 1.0, work, w.v, w.dH_dq)
    for i in range(z.shape[1]):
        point.p[i] = w.p_half[i] - 0.5 * eps * w.dH_dq[i]
    return True


@jit
def generalized_leapfrog(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """The step to be called through a pointer; returns H, NaN where it failed."""
    w, point, cached = rows(own), as_point(z), as_work(work).options.cached
    w.phi[:] = 0.0
    if cached:
        if not factorise(model, metric, point.q, work):
            return math.nan
        velocity_and_force(model, metric, point.p, 1.0, 0.0, work, w.v, w.phi)
    copy_row(w.x[0], point.p)
    solved = fixed_point(momentum_equation, model, metric, z, eps, work, own, w.x, w.image, w.history)
    if solved != Outcome.CONVERGED:
        return math.nan
    copy_row(w.p_half, w.x[0])
    if cached:
        as_metric(metric).inverse_product(w.p_half, work, w.v_start)
    copy_row(w.x[0], point.q)
    solved = fixed_point(position_equation, model, metric, z, eps, work, own, w.x, w.image, w.history)
    if solved != Outcome.CONVERGED:
        return math.nan
    return energy(model, metric, z, work) if last_kick(model, metric, z, eps, work, own) else math.nan
