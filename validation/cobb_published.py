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

from refhmc.compile.compiled import jit, jit_part
from refhmc.core.point import COPY_P, COPY_Q, P, Q, as_point, copy_row
from refhmc.core.types import as_metric, as_model, as_work
from refhmc.integrators import ExplicitTao, GeneralizedLeapfrog
from refhmc.integrators.explicit_tao import flow
from refhmc.integrators.generalized_leapfrog import rows
from refhmc.metrics import SoftAbs, softabs
from refhmc.metrics.base import energy, factorise, velocity_and_force
from refhmc.metrics.softabs_function import soft_all
from refhmc.numerics.eigen import eigen_with
from refhmc.numerics.fixed_point import largest_change, not_finite

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
def published_step(model, metric, z, eps, work, own):
    """One step of the point and its copies; returns H of the point alone."""
    h, q, p, x, y = 0.5 * eps, z[Q], z[P], z[COPY_Q], z[COPY_P]
    if not flow(model, metric, h, q, y, x, p, work, own):
        return math.nan
    if not flow(model, metric, h, x, p, q, y, work, own):
        return math.nan
    bind_in_turn(2 * as_work(work).options.omega * eps, q, p, x, y)
    if not flow(model, metric, h, x, p, q, y, work, own):
        return math.nan
    if not flow(model, metric, h, q, y, x, p, work, own):
        return math.nan
    return energy(model, metric, z, work)


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
def factorise_jittered(model, work):
    """:func:`refhmc.metrics.softabs.factorise` of the jittered Hessian; the generator is Numba's own."""
    _, _, options, cache, _, _ = as_work(work)
    f, w = as_model(model), softabs.views(work)
    f.metric(w.position, f.data, w.hessian)
    for i in range(w.hessian.shape[0]):
        w.hessian[i, i] -= JITTER * np.random.random()  # noqa: NPY002
    if not eigen_with(w.hessian, w.eigenvalues, w.Q, w.J, w.product, w.scratch):
        return False
    soft_all(w.eigenvalues, options.alpha, w.scales)
    cache.log_det_weight = 0.5
    return True


@jit_part
def forget(work):
    """The metric stands nowhere: the next use at this position has another one."""
    softabs.views(work).position[0] = np.nan


@jit
def inverse_product_once(p, work, out):
    """G^-1 p, and the metric is not kept."""
    softabs.inverse_product(p, work, out)
    forget(work)


@jit
def velocity_and_force_once(model, p, phi, tau, work, v, dH_dq):
    """dH/dp and dH/dq, and the metric is not kept."""
    softabs.velocity_and_force(model, p, phi, tau, work, v, dH_dq)
    forget(work)


@jit
def draw_once(normals, work, p):
    """p ~ N(0, G), and the metric is not kept."""
    softabs.draw(normals, work, p)
    forget(work)


@dataclass(frozen=True)
class JitteredSoftAbs(SoftAbs):
    """SoftAbs of the Hessian with new noise at every evaluation: a run cannot be repeated by its seed."""

    @property
    def geometry(self) -> tuple:
        return factorise_jittered, inverse_product_once, velocity_and_force_once, draw_once


@jit_part
def counted_factorise(model, metric, q, work):
    """Factorise at ``q``, which counts as an iteration; False, and noted, where a number is not finite."""
    as_work(work).counters.iterations += 1
    return factorise(model, metric, q, work)


@jit
def published_implicit_step(model, metric, z, eps, work, own):
    """The generalised leapfrog, each equation iterated to the threshold or to the end of its iterations; H at the end."""
    w, point, d, inverse_product = rows(own), as_point(z), z.shape[1], as_metric(metric).inverse_product
    options = as_work(work).options
    x, image = w.x, w.image
    copy_row(x[0], point.p)
    for _ in range(options.max_iterations):
        if not counted_factorise(model, metric, point.q, work):
            return math.nan
        velocity_and_force(model, metric, x[0], 1.0, 1.0, work, w.v, w.dH_dq)
        for i in range(d):
            image[0, i] = point.p[i] - 0.5 * eps * w.dH_dq[i]
        change = largest_change(image, x)
        copy_row(x[0], image[0])
        if change < options.tolerance or not_finite(x):
            break
    copy_row(w.p_half, x[0])
    copy_row(x[0], point.q)
    if not counted_factorise(model, metric, point.q, work):
        return math.nan
    inverse_product(w.p_half, work, w.v_start)
    for _ in range(options.max_iterations):
        if not counted_factorise(model, metric, x[0], work):
            return math.nan
        inverse_product(w.p_half, work, w.v)
        for i in range(d):
            image[0, i] = point.q[i] + 0.5 * eps * (w.v_start[i] + w.v[i])
        change = largest_change(image, x)
        copy_row(x[0], image[0])
        if change < options.tolerance or not_finite(x):
            break
    copy_row(point.q, x[0])
    if not counted_factorise(model, metric, point.q, work):
        return math.nan
    velocity_and_force(model, metric, w.p_half, 1.0, 1.0, work, w.v, w.dH_dq)
    for i in range(d):
        point.p[i] = w.p_half[i] - 0.5 * eps * w.dH_dq[i]
    return energy(model, metric, z, work)


@dataclass(frozen=True)
class PublishedImplicit(GeneralizedLeapfrog):
    """The program's implicit integrator: what is not solved is used all the same."""

    exact = False

    def pointer(self, metric):
        return published_implicit_step
