"""The leapfrog (Störmer-Verlet, kick-drift-kick) step on a Euclidean metric.

With H(q, p) = -L(q) + 1/2 p' M^-1 p, one step of size eps is

    p <- p + eps/2 dL/dq(q)
    q <- q + eps M^-1 p
    p <- p + eps/2 dL/dq(q)

Order 2, symplectic, reversible (under p -> -p), explicit; one gradient a step, since the last kick's gradient
is the next one's first. Eqs. 10-12 of Gram-Hansen's notes with their erratum (the gradient of the second kick is
taken at the new position); Neal (2011), sec. 2.3.
"""

from __future__ import annotations

from refhmc.compiled import jit
from refhmc.linalg import dot
from refhmc.metrics.euclidean import velocity
from refhmc.types import GRADIENT, LOG_DENSITY, VELOCITY, P, Q


@jit
def leapfrog(model, z, eps, vecs, mats):
    """One leapfrog step of the point ``z`` in place; returns H there."""
    value_and_gradient, _, _, data = model
    q, p, gradient, v = z[Q], z[P], z[GRADIENT], z[VELOCITY]
    half = 0.5 * eps
    for i in range(q.shape[0]):
        p[i] += half * gradient[i]
    velocity(p, vecs, mats, v)
    for i in range(q.shape[0]):
        q[i] += eps * v[i]
    log_density = value_and_gradient(q, data, gradient)
    for i in range(q.shape[0]):
        p[i] += half * gradient[i]
    velocity(p, vecs, mats, v)
    z[LOG_DENSITY, 0] = log_density
    return -log_density + 0.5 * dot(p, v)
