"""The implicit midpoint rule for any Hamiltonian.

    z' = z + eps f((z + z')/2),        z = (q, p),    f = (dH/dp, -dH/dq)

Order 2, symplectic, reversible; it conserves every quadratic invariant, so that on a Gaussian with a constant metric
no proposal is rejected at any step size. Two ways to solve it (Brofos and Lederman 2021):

    endpoint, I.M.(a), Algorithm 3     z' = z + eps f((z + z')/2)          for z', tolerance on z'
    midpoint, I.M.(b), Algorithm 5     m = z + eps/2 f(m)                  for m, tolerance on m;    z' = m + eps/2 f(m)

Both start from z, as the paper has it: its first image is z + eps f(z), or z + eps/2 f(z), and costs no metric, since
the last step ended there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refhmc.core.compiled import jit, jit_part
from refhmc.core.point import P, Q, as_point
from refhmc.core.records import Layout
from refhmc.integrators.base import CHECK, Implicit
from refhmc.metrics.base import energy, factorise, velocity_and_force
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.fixed_point import HISTORY_ROWS, Outcome, copy_rows, fixed_point

# The unknown (q, p), its image, the midpoint; dH/dp and dH/dq there.
LAYOUT = Layout(f"x[2] image[2] middle[2] v dH_dq history[{HISTORY_ROWS}]", after=CHECK)
rows = LAYOUT.rows


@dataclass(frozen=True)
class ImplicitMidpoint(Implicit):
    """The implicit midpoint rule, solved for the endpoint (I.M.(a)) or the midpoint (I.M.(b))."""

    name = "implicit_midpoint"
    variant: str = "endpoint"
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "fixed point"
    reversibility_check: bool = True
    variants = ("endpoint", "midpoint")
    layout = LAYOUT

    def pointer(self, metric: Any) -> Callable:
        return implicit_midpoint_endpoint if self.variant == "endpoint" else implicit_midpoint_midpoint

    def on_arrays(self) -> Callable:
        """Its step on arrays, (H, q, p, eps) -> (q', p')."""
        return partial(step if self.variant == "endpoint" else step_by_midpoint, solve=self.fixed_point)


def step(H: Any, q: Array, p: Array, eps: Array, solve: Callable = batched.fixed_point) -> tuple[Array, Array]:
    """One step on arrays (..., d), I.M.(a)"""
    z = batched.join(q, p)
    return batched.split(solve(lambda x, z, eps: z + eps * H.vector_field((z + x) / 2), z, z, eps))


def step_by_midpoint(
    H: Any, q: Array, p: Array, eps: Array, solve: Callable = batched.fixed_point
) -> tuple[Array, Array]:
    """One step on arrays (..., d), I.M.(b)"""
    z = batched.join(q, p)
    m = solve(lambda x, z, eps: z + eps / 2 * H.vector_field(x), z, z, eps)
    return batched.split(m + eps / 2 * H.vector_field(m))


@jit_part
def vector_field(model: tuple, metric: tuple, m: np.ndarray, work: tuple, own: np.ndarray) -> bool:
    """dH/dp and dH/dq at the point ``m`` (2, d), into ``own``; False where there is no metric."""
    if not factorise(model, metric, m[0], work):
        return False
    velocity_and_force(model, metric, m[1], 1.0, 1.0, work, rows(own).v, rows(own).dH_dq)
    return True


@jit_part
def endpoint_equation(
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    x: np.ndarray,
    image: np.ndarray,
) -> bool:
    """image = z + eps f((z + x)/2)"""
    w, point = rows(own), as_point(z)
    for i in range(x.shape[1]):
        w.middle[0, i] = 0.5 * (point.q[i] + x[0, i])
        w.middle[1, i] = 0.5 * (point.p[i] + x[1, i])
    if not vector_field(model, metric, w.middle, work, own):
        return False
    for i in range(x.shape[1]):
        image[0, i] = point.q[i] + eps * w.v[i]
        image[1, i] = point.p[i] - eps * w.dH_dq[i]
    return True


@jit_part
def midpoint_equation(
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    x: np.ndarray,
    image: np.ndarray,
) -> bool:
    """image = z + eps/2 f(x)"""
    w, point = rows(own), as_point(z)
    if not vector_field(model, metric, x, work, own):
        return False
    for i in range(x.shape[1]):
        image[0, i] = point.q[i] + 0.5 * eps * w.v[i]
        image[1, i] = point.p[i] - 0.5 * eps * w.dH_dq[i]
    return True


@jit_part
def leave_midpoint(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> bool:
    """z' = m + eps/2 f(m)"""
    w, point = rows(own), as_point(z)
    if not vector_field(model, metric, w.x, work, own):
        return False
    for i in range(z.shape[1]):
        point.q[i] = w.x[0, i] + 0.5 * eps * w.v[i]
        point.p[i] = w.x[1, i] - 0.5 * eps * w.dH_dq[i]
    return True


@jit
def implicit_midpoint_endpoint(
    model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray
) -> float:
    """I.M.(a), to be called through a pointer; returns H, NaN where it failed."""
    w = rows(own)
    copy_rows(w.x, z[Q : P + 1])
    solved = fixed_point(endpoint_equation, model, metric, z, eps, work, own, w.x, w.image, w.history, w.start)
    if solved != Outcome.CONVERGED:
        return math.nan
    copy_rows(z[Q : P + 1], w.x)
    return energy(model, metric, z, work)


@jit
def implicit_midpoint_midpoint(
    model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray
) -> float:
    """I.M.(b), to be called through a pointer; returns H, NaN where it failed."""
    w, point = rows(own), as_point(z)
    copy_rows(w.x, z[Q : P + 1])
    for i in range(z.shape[1]):  # of a way back
        w.middle[0, i] = 0.5 * (point.q[i] + w.start[0, i])
        w.middle[1, i] = 0.5 * (point.p[i] + w.start[1, i])
    solved = fixed_point(midpoint_equation, model, metric, z, eps, work, own, w.x, w.image, w.history, w.middle)
    if solved != Outcome.CONVERGED:
        return math.nan
    return energy(model, metric, z, work) if leave_midpoint(model, metric, z, eps, work, own) else math.nan
