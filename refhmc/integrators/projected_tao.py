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

import numpy as np

from refhmc.core.compiled import jit, jit_part
from refhmc.core.point import as_point
from refhmc.core.records import Layout
from refhmc.core.types import as_work
from refhmc.integrators.base import Implicit
from refhmc.integrators.explicit_tao import LAYOUT as TAO
from refhmc.integrators.explicit_tao import check_omega, tao
from refhmc.integrators.explicit_tao import step as doubled_step
from refhmc.metrics.base import energy
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.fixed_point import HISTORY_ROWS, Outcome, fixed_point

# mu, its image, the doubled point after the step.
LAYOUT = Layout(f"mu[2] image[2] q p x y history[{HISTORY_ROWS}]", after=TAO)
rows = LAYOUT.rows


@dataclass(frozen=True)
class ProjectedTao(Implicit):
    """Tao's integrator projected back onto (q, p), exact.

    The projection binds the copies, so that omega = 0 is as good as any. Its iteration converges at smaller steps than the
    other methods'; Anderson's acceleration, the default here, helps. omega * step_size = pi/2 is singular.
    """

    name = "projected_tao"
    omega: float
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "anderson"
    reversibility_check: bool = True
    layout = LAYOUT

    def __post_init__(self) -> None:
        check_omega(self.omega)
        super().__post_init__()

    def pointer(self, metric: Any) -> Callable:
        return projected_tao

    def options(self) -> dict[str, float]:
        return {**super().options(), "omega": self.omega}

    def on_arrays(self) -> Callable:
        """Its step on arrays, (H, q, p, eps) -> (q', p')."""
        return partial(step, omega=self.omega, solve=self.fixed_point)


def step(
    H: Any, q: Array, p: Array, eps: Array, omega: float, solve: Callable = batched.fixed_point
) -> tuple[Array, Array]:
    """One step on arrays (..., d)"""
    xp, z = batched.namespace(q), batched.join(q, p)

    def ends(mu: Array, z: Array, eps: Array) -> tuple[Array, Array]:
        """Phi(z + S mu), the two copies of z"""
        q, p, x, y = doubled_step(H, *batched.split(z + mu), *batched.split(z - mu), eps, omega)
        return batched.join(q, p), batched.join(x, y)

    def image(mu: Array, z: Array, eps: Array) -> Array:
        """mu - B F(mu)"""
        half = omega * xp.asarray(eps, dtype=q.dtype)
        c, s = xp.cos(half), xp.sin(half)
        a, b = ends(mu, z, eps)
        f_q, f_p = batched.split(a - b + 2 * mu)
        return mu - batched.join(c * f_q - s * f_p, c * f_p + s * f_q) / (4 * c)

    a, b = ends(solve(image, 0.0 * z, z, eps), z, eps)
    return batched.split((a + b) / 2)


@jit_part
def shift_equation(
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    mu: np.ndarray,
    image: np.ndarray,
) -> bool:
    """image = mu - B F(mu); the doubled point after the step stays in ``own``."""
    w, point, d = rows(own), as_point(z), z.shape[1]
    q, p, x, y = w.q, w.p, w.x, w.y
    for i in range(d):
        q[i], x[i] = point.q[i] + mu[0, i], point.q[i] - mu[0, i]
        p[i], y[i] = point.p[i] + mu[1, i], point.p[i] - mu[1, i]
    if not tao(model, metric, eps, q, p, x, y, work, own):
        return False
    half = as_work(work).options.omega * eps
    c, s = math.cos(half), math.sin(half)
    for i in range(d):
        fq, fp = q[i] - x[i] + 2 * mu[0, i], p[i] - y[i] + 2 * mu[1, i]
        image[0, i] = mu[0, i] - (c * fq - s * fp) / (4 * c)
        image[1, i] = mu[1, i] - (c * fp + s * fq) / (4 * c)
    return True


@jit
def projected_tao(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """The step to be called through a pointer: z becomes the mean of the copies, which differ by the solver's tolerance.

    Returns H, NaN where it failed.
    """
    w, point = rows(own), as_point(z)
    w.mu[:] = 0.0
    if fixed_point(shift_equation, model, metric, z, eps, work, own, w.mu, w.image, w.history) != Outcome.CONVERGED:
        return math.nan
    for i in range(z.shape[1]):
        point.q[i] = 0.5 * (w.q[i] + w.x[i])
        point.p[i] = 0.5 * (w.p[i] + w.y[i])
    return energy(model, metric, z, work)
