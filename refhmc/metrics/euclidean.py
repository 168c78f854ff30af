"""Euclidean metrics: a constant mass matrix M, stored as its inverse (the covariance it should imitate).

    v = M^-1 p          velocity
    p ~ N(0, M)         momentum; with M^-1 = L L', p = L^-T z has covariance (L L')^-1 = M
    K = 1/2 p' M^-1 p   kinetic energy (log det M is constant and dropped)

``vecs[0]`` is the diagonal of M^-1, ``vecs[1]`` one over its root. ``mats`` is empty for a diagonal metric; for a dense one
``mats[0]`` is M^-1 and ``mats[1]`` its lower Cholesky factor L.
"""

from __future__ import annotations

from refhmc.core.compiled import jit
from refhmc.core.point import LOG_DENSITY, VELOCITY, P
from refhmc.core.types import GRADIENT_HERE, LOG_DET_WEIGHT
from refhmc.metrics.base import put_copies, value_here
from refhmc.numerics.linalg import dot, solve_lower_transposed, symmetric_times


@jit
def velocity(p, vecs, mats, notes, out):
    """out = M^-1 p"""
    if mats.shape[0] == 0:
        for i in range(p.shape[0]):
            out[i] = vecs[0, i] * p[i]
    else:
        symmetric_times(mats[0], p, out)


@jit
def energy(z, vecs, mats, notes):
    """H of the point ``z``, whose velocity is set from its momentum."""
    velocity(z[P], vecs, mats, notes, z[VELOCITY])
    return -z[LOG_DENSITY, 0] + 0.5 * dot(z[P], z[VELOCITY])


@jit
def draw(normals, vecs, mats, notes, p):
    """p ~ N(0, M) from standard normals."""
    if mats.shape[0] == 0:
        for i in range(p.shape[0]):
            p[i] = normals[i] * vecs[1, i]
    else:
        for i in range(p.shape[0]):
            p[i] = normals[i]
        solve_lower_transposed(mats[1], p)


@jit
def refresh(model, geometry, z, normals, vecs, mats, notes):
    """A momentum made from standard normals, with its velocity, into the point ``z``; returns H there."""
    draw(normals, vecs, mats, notes, z[P])
    put_copies(z)
    return energy(z, vecs, mats, notes)


# For the integrators that take any metric: nothing depends on the position but the gradient.
@jit
def settle(model, vecs, mats, notes):
    notes[LOG_DET_WEIGHT] = 0.0
    return True


@jit
def field(model, p, phi, tau, vecs, mats, notes, v, slope):
    velocity(p, vecs, mats, notes, v)
    if phi != 0:
        value_here(model, vecs, notes)
    for i in range(p.shape[0]):
        slope[i] = -phi * vecs[GRADIENT_HERE, i] if phi != 0 else 0.0
