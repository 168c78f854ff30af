"""What the program of Cobb et al. (2019) does, to find where the published figures come from. Not to be used.

**Binding.** Tao's third flow turns the differences (q - x, p - y) by 2 Omega eps, all four right-hand sides from the old
values. The paper's Algorithm 2 and the program assign one after the other, so that later lines read what earlier ones have
written:

    q <- 1/2 (q + x + c (q - x) + s (p - y))        p <- 1/2 (p + y - s (q - x) + c (p - y))
    x <- 1/2 (q + x - c (q - x) - s (p - y))        y <- 1/2 (p + y + s (q - x) - c (p - y))

This is no rotation. On the differences d = q - x, e = p - y of old values, with mean position and momentum 0 and one
coordinate, it is the linear map of :func:`binding_matrix`: it does not keep volume, and it damps the differences where the
rotation by an angle near pi, reflecting them in every step, is unstable together with the other flows.

**Jitter.** Every evaluation of the metric adds JITTER u_i, u_i uniform on (0, 1) and new each time, to the diagonal of the
Hessian of -L before SoftAbs. H is no function then: its value at the start is that of other numbers than those the momentum is
drawn with, and every force, velocity and energy has its own. In the mouth of the funnel, where the Hessian is below 0.01, the
noise is most of G.

**Solves that do not end.** The implicit equations are iterated until max(delta^2) < 0.001, at most 1,000 times, and the last
iterate is used even if it has not converged, as it does not where the noise of the jitter exceeds that threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from refhmc.core.compiled import jit, jit_part
from refhmc.core.point import COPY_P, COPY_Q, P, Q, copy_row
from refhmc.core.types import ALPHA, HERE, ITERATIONS, LOG_DET_WEIGHT, MAX_ITERATIONS, OMEGA, TOLERANCE
from refhmc.integrators import ExplicitTao, GeneralizedLeapfrog
from refhmc.integrators.explicit_tao import flow
from refhmc.integrators.generalized_leapfrog import IMAGE, P_HALF, SLOPE, V_START, V, X
from refhmc.integrators.solver import hopeless, largest_change
from refhmc.metrics import SoftAbs, softabs
from refhmc.metrics.base import energy, field, settle
from refhmc.metrics.softabs_function import soft_all
from refhmc.numerics.eigen import eigen_with

JITTER = 0.01


@jit_part
def bind_in_turn(angle, q, p, x, y):
    """The four lines above, in place."""
    c, s = math.cos(angle), math.sin(angle)
    for i in range(q.shape[0]):
        q[i] = 0.5 * (q[i] + x[i] + c * (q[i] - x[i]) + s * (p[i] - y[i]))
        p[i] = 0.5 * (p[i] + y[i] - s * (q[i] - x[i]) + c * (p[i] - y[i]))
        x[i] = 0.5 * (q[i] + x[i] - c * (q[i] - x[i]) - s * (p[i] - y[i]))
        y[i] = 0.5 * (p[i] + y[i] + s * (q[i] - x[i]) - c * (p[i] - y[i]))


@jit
def published_step(model, geometry, z, eps, vecs, mats, notes):
    """One step of the point and its copies; returns H of the point alone."""
    h, q, p, x, y = 0.5 * eps, z[Q], z[P], z[COPY_Q], z[COPY_P]
    if not flow(model, geometry, h, q, y, x, p, vecs, mats, notes):
        return math.nan
    if not flow(model, geometry, h, x, p, q, y, vecs, mats, notes):
        return math.nan
    bind_in_turn(2 * notes[OMEGA] * eps, q, p, x, y)
    if not flow(model, geometry, h, x, p, q, y, vecs, mats, notes):
        return math.nan
    if not flow(model, geometry, h, q, y, x, p, vecs, mats, notes):
        return math.nan
    return energy(model, geometry, z, vecs, mats, notes)


@dataclass(frozen=True)
class PublishedExplicit(ExplicitTao):
    """The program's map: an approximation of an approximation."""

    def pointer(self, metric):
        return published_step


def binding_matrix(angle: float) -> np.ndarray:
    """The linear map of (q, p, x, y), one coordinate, that the four lines make; a rotation has determinant 1."""
    columns = []
    for unit in np.eye(4):
        q, p, x, y = (unit[k : k + 1].copy() for k in range(4))
        bind_in_turn.py_func(angle, q, p, x, y)
        columns.append([q[0], p[0], x[0], y[0]])
    return np.array(columns).T


# ------------------------------------------------------------------------------------------------------------ the jitter


@jit
def settle_jittered(model, vecs, mats, notes):
    """:func:`refhmc.metrics.softabs.settle` of the jittered Hessian; the generator is Numba's own."""
    _, hessian, _, data = model
    H, work = mats[softabs.H], vecs[softabs.WORK : softabs.WORK + 3]
    hessian(vecs[HERE], data, H)
    for i in range(H.shape[0]):
        H[i, i] -= JITTER * np.random.random()  # noqa: NPY002
    if not eigen_with(
        H, vecs[softabs.LAMBDA], mats[softabs.EIGENVECTORS], mats[softabs.J], mats[softabs.PRODUCT], work
    ):
        return False
    soft_all(vecs[softabs.LAMBDA], notes[ALPHA], vecs[softabs.F])
    notes[LOG_DET_WEIGHT] = 0.5
    return True


@jit_part
def forget(vecs):
    """The metric stands nowhere: the next use at this position has another one."""
    vecs[HERE, 0] = np.nan


@jit
def velocity_once(p, vecs, mats, notes, out):
    """G^-1 p, and the metric is not kept."""
    softabs.velocity(p, vecs, mats, notes, out)
    forget(vecs)


@jit
def field_once(model, p, phi, tau, vecs, mats, notes, v, slope):
    """dH/dp and dH/dq, and the metric is not kept."""
    softabs.field(model, p, phi, tau, vecs, mats, notes, v, slope)
    forget(vecs)


@jit
def draw_once(normals, vecs, mats, notes, p):
    """p ~ N(0, G), and the metric is not kept."""
    softabs.draw(normals, vecs, mats, notes, p)
    forget(vecs)


@dataclass(frozen=True)
class JitteredSoftAbs(SoftAbs):
    """SoftAbs of the Hessian with new noise at every evaluation: a run cannot be repeated by its seed."""

    @property
    def geometry(self) -> tuple:
        return settle_jittered, velocity_once, field_once, draw_once


@jit_part
def settled_or_failed(model, geometry, q, vecs, mats, notes):
    """Settle at ``q``; False, and noted, where a number is not finite."""
    notes[ITERATIONS] += 1
    return settle(model, geometry, q, vecs, mats, notes)


@jit
def published_implicit_step(model, geometry, z, eps, vecs, mats, notes):
    """The generalised leapfrog, each equation iterated to the threshold or to the end of its iterations; H at the end."""
    x, image, d = vecs[X : X + 1], vecs[IMAGE : IMAGE + 1], z.shape[1]
    copy_row(x[0], z[P])
    for _ in range(int(notes[MAX_ITERATIONS])):
        if not settled_or_failed(model, geometry, z[Q], vecs, mats, notes):
            return math.nan
        field(model, geometry, x[0], 1.0, 1.0, vecs, mats, notes, vecs[V], vecs[SLOPE])
        for i in range(d):
            image[0, i] = z[P, i] - 0.5 * eps * vecs[SLOPE, i]
        change = largest_change(image, x)
        copy_row(x[0], image[0])
        if change < notes[TOLERANCE] or hopeless(x):
            break
    copy_row(vecs[P_HALF], x[0])
    copy_row(x[0], z[Q])
    if not settled_or_failed(model, geometry, z[Q], vecs, mats, notes):
        return math.nan
    geometry[1](vecs[P_HALF], vecs, mats, notes, vecs[V_START])
    for _ in range(int(notes[MAX_ITERATIONS])):
        if not settled_or_failed(model, geometry, x[0], vecs, mats, notes):
            return math.nan
        geometry[1](vecs[P_HALF], vecs, mats, notes, vecs[V])
        for i in range(d):
            image[0, i] = z[Q, i] + 0.5 * eps * (vecs[V_START, i] + vecs[V, i])
        change = largest_change(image, x)
        copy_row(x[0], image[0])
        if change < notes[TOLERANCE] or hopeless(x):
            break
    copy_row(z[Q], x[0])
    if not settled_or_failed(model, geometry, z[Q], vecs, mats, notes):
        return math.nan
    field(model, geometry, vecs[P_HALF], 1.0, 1.0, vecs, mats, notes, vecs[V], vecs[SLOPE])
    for i in range(d):
        z[P, i] = vecs[P_HALF, i] - 0.5 * eps * vecs[SLOPE, i]
    return energy(model, geometry, z, vecs, mats, notes)


@dataclass(frozen=True)
class PublishedImplicit(GeneralizedLeapfrog):
    """The program's implicit integrator: what is not solved is used all the same."""

    exact = False

    def pointer(self, metric):
        return published_implicit_step
