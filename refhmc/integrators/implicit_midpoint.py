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

from refhmc.core.compiled import jit, jit_part
from refhmc.core.point import P, Q
from refhmc.core.types import INTEGRATOR_ROWS, MAX_ITERATIONS
from refhmc.integrators.base import Implicit
from refhmc.integrators.solver import copy_rows, hopeless, improve, no_image, retreat, unsolved
from refhmc.metrics.base import energy, field, settle
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@dataclass(frozen=True)
class ImplicitMidpoint(Implicit):
    """The implicit midpoint rule, solved for the endpoint (I.M.(a)) or the midpoint (I.M.(b))."""

    variant: str = "endpoint"
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "fixed point"
    reversibility_check: bool = True
    variants = ("endpoint", "midpoint")

    def pointer(self, metric):
        return implicit_midpoint_endpoint if self.variant == "endpoint" else implicit_midpoint_midpoint

    def on_arrays(self) -> Callable:
        """Its step on arrays, (H, q, p, eps) -> (q', p')."""
        return partial(step if self.variant == "endpoint" else step_by_midpoint, solve=self.fixed_point)


def step(H: Any, q: Array, p: Array, eps: Array, solve: Callable = batched.fixed_point) -> tuple[Array, Array]:
    """One step on arrays (..., d), I.M.(a)"""
    z = batched.join(q, p)
    return batched.split(solve(lambda x: z + eps * H.vector_field((z + x) / 2), z))


def step_by_midpoint(
    H: Any, q: Array, p: Array, eps: Array, solve: Callable = batched.fixed_point
) -> tuple[Array, Array]:
    """One step on arrays (..., d), I.M.(b)"""
    z = batched.join(q, p)
    m = solve(lambda x: z + eps / 2 * H.vector_field(x), z)
    return batched.split(m + eps / 2 * H.vector_field(m))


# Rows of ``vecs``: the unknown (q, p), its image, the midpoint, dH/dp and dH/dq.
X, IMAGE, MIDDLE, V, SLOPE = (INTEGRATOR_ROWS + k for k in (0, 2, 4, 6, 7))


@jit_part
def field_at(model, geometry, m, vecs, mats, notes):
    """dH/dp and dH/dq at the point ``m`` (2, d), into ``vecs``; False where there is no metric."""
    if not settle(model, geometry, m[0], vecs, mats, notes):
        return False
    field(model, geometry, m[1], 1.0, 1.0, vecs, mats, notes, vecs[V], vecs[SLOPE])
    return True


@jit_part
def endpoint_image(model, geometry, z, eps, x, vecs, mats, notes, out):
    """out = z + eps f((z + x)/2)"""
    m = vecs[MIDDLE : MIDDLE + 2]
    for i in range(x.shape[1]):
        m[0, i] = 0.5 * (z[Q, i] + x[0, i])
        m[1, i] = 0.5 * (z[P, i] + x[1, i])
    if not field_at(model, geometry, m, vecs, mats, notes):
        return False
    for i in range(x.shape[1]):
        out[0, i] = z[Q, i] + eps * vecs[V, i]
        out[1, i] = z[P, i] - eps * vecs[SLOPE, i]
    return True


@jit_part
def midpoint_image(model, geometry, z, eps, x, vecs, mats, notes, out):
    """out = z + eps/2 f(x)"""
    if not field_at(model, geometry, x, vecs, mats, notes):
        return False
    for i in range(x.shape[1]):
        out[0, i] = z[Q, i] + 0.5 * eps * vecs[V, i]
        out[1, i] = z[P, i] - 0.5 * eps * vecs[SLOPE, i]
    return True


@jit_part
def endpoint(model, geometry, z, eps, vecs, mats, notes):
    """I.M.(a)"""
    x, image = vecs[X : X + 2], vecs[IMAGE : IMAGE + 2]
    copy_rows(x, z[Q : P + 1])
    for n in range(int(notes[MAX_ITERATIONS])):
        if not endpoint_image(model, geometry, z, eps, x, vecs, mats, notes, image):
            if retreat(x, vecs, notes):
                continue
            return no_image(notes)
        if improve(x, image, n, vecs, notes):
            copy_rows(z[Q : P + 1], x)
            return True
        if hopeless(x):
            break
    return unsolved(notes)


@jit_part
def midpoint(model, geometry, z, eps, vecs, mats, notes):
    """I.M.(b)"""
    m, image = vecs[X : X + 2], vecs[IMAGE : IMAGE + 2]
    copy_rows(m, z[Q : P + 1])
    for n in range(int(notes[MAX_ITERATIONS])):
        if not midpoint_image(model, geometry, z, eps, m, vecs, mats, notes, image):
            if retreat(m, vecs, notes):
                continue
            return no_image(notes)
        if improve(m, image, n, vecs, notes):
            return leave_midpoint(model, geometry, z, eps, m, vecs, mats, notes)
        if hopeless(m):
            break
    return unsolved(notes)


@jit_part
def leave_midpoint(model, geometry, z, eps, m, vecs, mats, notes):
    """z' = m + eps/2 f(m)"""
    if not field_at(model, geometry, m, vecs, mats, notes):
        return False
    for i in range(m.shape[1]):
        z[Q, i] = m[0, i] + 0.5 * eps * vecs[V, i]
        z[P, i] = m[1, i] - 0.5 * eps * vecs[SLOPE, i]
    return True


@jit
def implicit_midpoint_endpoint(model, geometry, z, eps, vecs, mats, notes):
    """The step to be called through a pointer; returns H, NaN where it failed."""
    solved = endpoint(model, geometry, z, eps, vecs, mats, notes)
    return energy(model, geometry, z, vecs, mats, notes) if solved else math.nan


@jit
def implicit_midpoint_midpoint(model, geometry, z, eps, vecs, mats, notes):
    """The step to be called through a pointer; returns H, NaN where it failed."""
    solved = midpoint(model, geometry, z, eps, vecs, mats, notes)
    return energy(model, geometry, z, vecs, mats, notes) if solved else math.nan
