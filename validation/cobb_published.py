"""The explicit integrator as its authors' program has it, to find where the published figures come from. Not to be used.

Tao's third flow turns the differences (q - x, p - y) by 2 Omega eps, all four right-hand sides from the old values. The
paper's Algorithm 2 and the program assign one after the other, so that later lines read what earlier ones have written:

    q <- 1/2 (q + x + c (q - x) + s (p - y))        p <- 1/2 (p + y - s (q - x) + c (p - y))
    x <- 1/2 (q + x - c (q - x) - s (p - y))        y <- 1/2 (p + y + s (q - x) - c (p - y))

This is no rotation. On the differences d = q - x, e = p - y of old values, with mean position and momentum 0 and one
coordinate, it is the linear map of :func:`binding_matrix`: it does not keep volume, and it damps the differences where the
rotation by an angle near pi, reflecting them in every step, is unstable together with the other flows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from refhmc.compiled import jit, jit_part
from refhmc.integrators import ExplicitTao
from refhmc.integrators.explicit_tao import flow
from refhmc.metrics.riemannian import energy
from refhmc.point import COPY_P, COPY_Q, P, Q
from refhmc.types import OMEGA


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
