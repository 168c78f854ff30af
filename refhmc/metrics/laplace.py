"""The kinetic energy of discontinuous HMC: a Gaussian momentum on the smooth coordinates I, a Laplace one on the others, J.

    K(p) = 1/2 p_I' M_I^-1 p_I + sum_J |p_j| / m_j             eq. 26 of Gram-Hansen's notes, M_I diagonal
    v_i = p_i / M_i,    v_j = sign(p_j) / m_j                  eq. 20
    p_i ~ N(0, M_i),    |p_j| / m_j ~ Exponential(1) with a fair sign

The speed of a discontinuous coordinate does not depend on the size of its momentum: that is what lets the integrator cross
any number of jumps at the price of one density. Both momenta are made from standard normals z, the second by

    p_j = m_j sign(z) (-log P(|Z| > |z|)),     P(|Z| > |z|) = erfc(|z| / sqrt 2)

The masses imitate the scales s of the coordinates: M_i = s_i^-2 and, the steps being eps / m_j, m_j = 1 / (r s_j) with one
factor r for all of J (the notes' m = var^{1/2} has the sign of the exponent wrong: ERRATA of its sec. 2.6).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from refhmc.core.compiled import jit
from refhmc.core.point import as_point
from refhmc.core.records import Layout
from refhmc.metrics.base import EUCLIDEAN
from refhmc.metrics.euclidean import factorise, velocity_and_force
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


class LaplaceOnArrays(NamedTuple):
    """H(q, p) = -L(q) + K(p) on arrays (..., d): M_i = s_i^-2, m_j = 1/(r s_j), with the ``factor`` r, a number or (..., 1)."""

    model: Any
    metric: Any
    factor: Any = 1.0

    @batched.kept
    def jumps(self, q: Array) -> Array:
        """Which coordinates are discontinuous, (d,)"""
        return batched.namespace(q).asarray(np.isin(np.arange(q.shape[-1]), self.model.discontinuous))

    @batched.kept
    def variances(self, q: Array) -> Array:
        """Those of the metric, (d,)"""
        return batched.namespace(q).asarray(self.metric.inverse_mass(q.shape[-1]), dtype=q.dtype)

    def inverse_mass(self, q: Array) -> Array:
        """M_i^-1 and 1/m_j, (d,), or (..., d) where each chain has its own factor"""
        variances = self.variances(q)
        return batched.namespace(q).where(self.jumps(q), self.factor * variances**0.5, variances)

    def inverse_product(self, q: Array, p: Array) -> Array:
        """v = dK/dp"""
        W = self.inverse_mass(q)
        return batched.namespace(q).where(self.jumps(q), batched.namespace(q).copysign(W, p), W * p)

    def energy(self, q: Array, p: Array) -> Array:
        """(...)"""
        K = batched.namespace(q).where(self.jumps(q), p, 0.5 * p) * self.inverse_product(q, p)
        return batched.namespace(q).sum(K, axis=-1) - self.model.log_density(q)

    def draw_momentum(self, q: Array, normals: Array) -> Array:
        """From standard normals z (..., d)"""
        from scipy import special  # which takes longer to import than all of refhmc

        xp, W = batched.namespace(q), self.inverse_mass(q)
        on_host = normals.get() if hasattr(normals, "get") else np.asarray(normals)  # the array API has no erfc
        x = np.abs(on_host) / 2**0.5
        sizes = np.where(x < 0.5, -np.log1p(-special.erf(x)), -np.log(special.erfc(x)))
        laplace = xp.copysign(xp.asarray(sizes, dtype=q.dtype), normals) / W
        return xp.where(self.jumps(q), laplace, normals / W**0.5)


# ``inverse_mass``: M_i^-1 and 1/m_j; ``root``: M_i^{1/2} and m_j; ``scale``: s; ``jumps``: 1 where the coordinate is
# discontinuous; ``order``: in which order the discontinuous ones are moved, as many entries as there are.
LAYOUT = Layout("scale jumps order", after=EUCLIDEAN)
views = LAYOUT.views


@jit
def inverse_product(p: np.ndarray, work: tuple, out: np.ndarray) -> None:
    """dK/dp"""
    w = views(work)
    for i in range(p.shape[0]):
        out[i] = w.inverse_mass[i] * p[i] if w.jumps[i] == 0 else math.copysign(w.inverse_mass[i], p[i])


@jit
def energy(z: np.ndarray, work: tuple) -> float:
    """H = -L + K of the point ``z``, whose velocity is set from its momentum."""
    point, jumps = as_point(z), views(work).jumps
    inverse_product(point.p, work, point.velocity)
    kinetic = 0.0
    for i in range(z.shape[1]):
        kinetic += (0.5 if jumps[i] == 0 else 1.0) * point.p[i] * point.velocity[i]
    return kinetic - point.log_density[0]


@jit
def exponential(z: float) -> float:
    """-log P(|Z| > |z|) of a standard normal Z: exponential if z is standard normal."""
    x = abs(z) / math.sqrt(2.0)
    return -math.log1p(-math.erf(x)) if x < 0.5 else -math.log(math.erfc(x))


@jit
def draw(normals: np.ndarray, work: tuple, p: np.ndarray) -> None:
    """The momentum from standard normals."""
    w = views(work)
    for i in range(p.shape[0]):
        size = normals[i] if w.jumps[i] == 0 else math.copysign(exponential(normals[i]), normals[i])
        p[i] = size * w.root[i]


@jit
def refresh(model: tuple, metric: tuple, z: np.ndarray, normals: np.ndarray, draws: bool, work: tuple) -> float:
    """A momentum made from standard normals, unless it ``draws`` none, with its velocity, into the point ``z``; returns H."""
    if draws:
        draw(normals, work, as_point(z).p)
    return energy(z, work)


@jit
def scale_jumps(work: tuple, factor: float) -> None:
    """m_j = 1 / (factor s_j)"""
    w = views(work)
    for j in range(w.jumps.shape[0]):
        if w.jumps[j] != 0:
            w.inverse_mass[j] = factor * w.scale[j]
            w.root[j] = 1.0 / w.inverse_mass[j]


@jit
def take_scales(work: np.ndarray) -> None:
    """After a new diagonal metric, the estimated variances, was put in ``inverse_mass``: s_j is their root."""
    w = views(work)
    for j in range(w.scale.shape[0]):
        w.scale[j] = math.sqrt(w.inverse_mass[j])


# The step takes none from here: nothing but the momentum's law is asked of this metric.
geometry = (factorise, inverse_product, velocity_and_force, draw)
