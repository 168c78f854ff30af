"""Tao's integrator projected back onto the diagonal, symmetrically: exact where the explicit one is approximate.

With Phi the step of :mod:`refhmc.integrators.explicit_tao` on the doubled phase space (q, p, x, y), find the shift
mu = (mu_q, mu_p) that, applied before and after, takes the diagonal x = q, y = p to itself:

    (q', p', q', p') = Phi((q, p, q, p) + S mu) + S mu,        S mu = (mu_q, mu_p, -mu_q, -mu_p)

The symmetric projection of Hairer (2000) and, for extended phase spaces, of Jayawardana and Ohsawa (2023). Phi preserves
dq^dp + dx^dy, which the shifts change by 2 dmu_q^dmu_p at both ends alike, so that (q, p) -> (q', p') is symplectic;
the same mu solves the way back, so it is reversible. Order 2.

Solved for mu from 0 by x -> x - B F(x), where F(mu) is the difference of the two copies afterwards,
F = D Phi(z + S mu) + 2 mu, D(q, p, x, y) = (q - x, p - y), and B the inverse of its derivative at eps = 0 with the binding's
angle theta kept: dF = 2 (R(theta) + 1) = 4 cos(theta/2) R(theta/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from refhmc.core.compiled import jit, jit_part
from refhmc.core.point import P, Q
from refhmc.core.types import INTEGRATOR_ROWS, MAX_ITERATIONS, OMEGA
from refhmc.integrators.base import Implicit
from refhmc.integrators.explicit_tao import check_omega, tao
from refhmc.integrators.explicit_tao import step as doubled_step
from refhmc.integrators.solver import hopeless, improve, no_image, retreat, unsolved
from refhmc.metrics.base import energy
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@dataclass(frozen=True)
class ProjectedTao(Implicit):
    """Tao's integrator projected back onto (q, p), exact.

    The projection binds the copies, so that omega = 0 is as good as any. Its iteration converges at smaller steps than the
    other methods'; Anderson's acceleration, the default here, helps. omega * step_size = pi/2 is singular.
    """

    omega: float
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "anderson"
    reversibility_check: bool = True

    def __post_init__(self):
        check_omega(self.omega)
        super().__post_init__()

    def pointer(self, metric):
        return projected_tao

    def options(self) -> dict[int, float]:
        return {**super().options(), OMEGA: self.omega}

    def on_arrays(self) -> Callable:
        """Its step on arrays, (H, q, p, eps) -> (q', p')."""
        return partial(step, omega=self.omega, solve=self.fixed_point)


def step(
    H: Any, q: Array, p: Array, eps: Array, omega: float, solve: Callable = batched.fixed_point
) -> tuple[Array, Array]:
    """One step on arrays (..., d)"""
    xp, z = batched.namespace(q), batched.join(q, p)
    half = omega * xp.asarray(eps, dtype=q.dtype)
    c, s = xp.cos(half), xp.sin(half)

    def ends(mu: Array) -> tuple[Array, Array]:
        """Phi(z + S mu), the two copies of z"""
        q, p, x, y = doubled_step(H, *batched.split(z + mu), *batched.split(z - mu), eps, omega)
        return batched.join(q, p), batched.join(x, y)

    def image(mu: Array) -> Array:
        """mu - B F(mu)"""
        a, b = ends(mu)
        f_q, f_p = batched.split(a - b + 2 * mu)
        return mu - batched.join(c * f_q - s * f_p, c * f_p + s * f_q) / (4 * c)

    a, b = ends(solve(image, 0.0 * z))
    return batched.split((a + b) / 2)


# Rows of ``vecs`` (the first two are scratch of ``tao``): mu, its image, the doubled point (q, p, x, y).
MU, IMAGE, DOUBLED = (INTEGRATOR_ROWS + k for k in (2, 4, 6))


@jit_part
def shift_image(model, geometry, z, eps, mu, vecs, mats, notes, out):
    """out = mu - B F(mu); the doubled point after the step stays in ``vecs``."""
    q, p, x, y = vecs[DOUBLED], vecs[DOUBLED + 1], vecs[DOUBLED + 2], vecs[DOUBLED + 3]
    d = z.shape[1]
    for i in range(d):
        q[i], x[i] = z[Q, i] + mu[0, i], z[Q, i] - mu[0, i]
        p[i], y[i] = z[P, i] + mu[1, i], z[P, i] - mu[1, i]
    if not tao(model, geometry, eps, q, p, x, y, vecs, mats, notes):
        return False
    half = notes[OMEGA] * eps
    c, s = math.cos(half), math.sin(half)
    for i in range(d):
        fq, fp = q[i] - x[i] + 2 * mu[0, i], p[i] - y[i] + 2 * mu[1, i]
        out[0, i] = mu[0, i] - (c * fq - s * fp) / (4 * c)
        out[1, i] = mu[1, i] - (c * fp + s * fq) / (4 * c)
    return True


@jit_part
def projected(model, geometry, z, eps, vecs, mats, notes):
    """Solve for the shift; z becomes the mean of the copies, which differ by the solver's tolerance."""
    mu, image = vecs[MU : MU + 2], vecs[IMAGE : IMAGE + 2]
    mu[:] = 0.0
    for n in range(int(notes[MAX_ITERATIONS])):
        if not shift_image(model, geometry, z, eps, mu, vecs, mats, notes, image):
            if retreat(mu, vecs, notes):
                continue
            return no_image(notes)
        if improve(mu, image, n, vecs, notes):
            for i in range(z.shape[1]):
                z[Q, i] = 0.5 * (vecs[DOUBLED, i] + vecs[DOUBLED + 2, i])
                z[P, i] = 0.5 * (vecs[DOUBLED + 1, i] + vecs[DOUBLED + 3, i])
            return True
        if hopeless(mu):
            break
    return unsolved(notes)


@jit
def projected_tao(model, geometry, z, eps, vecs, mats, notes):
    """The step to be called through a pointer; returns H, NaN where it failed."""
    solved = projected(model, geometry, z, eps, vecs, mats, notes)
    return energy(model, geometry, z, vecs, mats, notes) if solved else math.nan
