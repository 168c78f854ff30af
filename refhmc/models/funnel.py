"""Neal's funnel, in the orientation of the papers: v ~ N(0, 9), x_i | v ~ N(0, exp(-v)), i = 1..n.

With S = sum_i x_i^2, ::

    L(v, x) = -v^2/18 + n v/2 - e^v S/2

The variance of x_i is e^{-v}, so that the neck is at large v. With q = (v, x), ::

    dL/dv  = -v/9 + n/2 - e^v S/2             dL/dx_i = -e^v x_i
    d2L/dv2 = -1/9 - e^v S/2                  d2L/dv dx_i = -e^v x_i           d2L/dx_i dx_j = -e^v [i = j]
    third:  vvv: -e^v S/2    vvx_i: -e^v x_i  v x_i x_j: -e^v [i = j]          xxx: 0

The model has no likelihood. The Fisher metric is E[-hessian] over x given v, which Betancourt contrasts with SoftAbs. It is
diag(1/9 + n/2, e^v, ..., e^v), because E[e^v S | v] = n.

In the plane of v and abs(x) the Hessian has the determinant e^v (1/9 - e^v S/2). An eigenvalue changes its sign at
e^v S = 2/9, and e^v S is chi^2 with n degrees of freedom. For n = 10 one draw in 10^7 lies below, for n = 2 one in ten. For
small n trajectories cross this surface, where SoftAbs with a large alpha is nearly singular. For n up to 5, SoftAbs with the
default, alpha = 10, is therefore recommended. (With the Fisher metric and explicit steps, 1 % of the transitions diverge for
n = 2.)

Exact moments: v ~ N(0, 9) for all n, E x = 0, var x = e^{9/2}.
"""

from __future__ import annotations

import functools
import math
from types import ModuleType

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.arguments import whole_number
from refhmc.models.base import Model
from refhmc.models.on_arrays import ArrayImplementation, where_finite
from refhmc.models.recipe import recreatable
from refhmc.models.recommended import Recommended
from refhmc.models.reference import Reference
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, namespace
from refhmc.numerics.linalg import dot, total

WHY = "the scale of x is e^(-v/2), so that no constant metric fits it"
FEW = 5
FISHER = Recommended("hmc", "fisher", WHY, (("integrator", "block-leapfrog"),))


class FunnelOnArrays(ArrayImplementation):
    """The array implementation for positions (v, x) of shape (..., 1 + n)."""

    name = "funnel"

    def __init__(self, n: int, xp: ModuleType = np) -> None:
        self.dim, self.fisher_levels = 1 + n, levels(n)

    def value_and_gradient(self, q: Array) -> tuple[Array, Array]:
        n, v, x = self.dim - 1, q[..., 0], q[..., 1:]
        e = namespace(q).exp(v)
        half_eS = 0.5 * e * batched.dot(x, x)
        along_v = -v / 9 + 0.5 * n - half_eS
        L = (0.5 * n - v / 18) * v - half_eS
        return L, namespace(q).concat([along_v[..., None], -e[..., None] * x], axis=-1)

    def hessian(self, q: Array) -> Array:
        xp, e, x = namespace(q), namespace(q).exp(q[..., :1]), q[..., 1:]
        vv = -1 / 9 - 0.5 * e * batched.dot(x, x)[..., None]
        row = xp.concat([vv, -e * x], axis=-1)
        below = xp.concat([(-e * x)[..., None], batched.diagonal_matrix(-e + xp.zeros_like(x))], axis=-1)
        return where_finite(q, xp.concat([row[..., None, :], below], axis=-2), 2)

    def hessian_contraction(self, q: Array, M: Array) -> Array:
        xp, e, x = namespace(q), namespace(q).exp(q[..., :1]), q[..., 1:]
        M_vv, M_vx, M_xx = M[..., 0, :1], M[..., 0, 1:] + M[..., 1:, 0], xp.linalg.diagonal(M[..., 1:, 1:])
        along_v = -e * (xp.sum(M_vx * x + M_xx, axis=-1) + 0.5 * M_vv[..., 0] * batched.dot(x, x))[..., None]
        return where_finite(q, xp.concat([along_v, -e * (M_vv * x + M_vx)], axis=-1), 1)

    def fisher(self, q: Array) -> Array:
        xp, e = namespace(q), namespace(q).exp(q[..., :1])
        first = xp.full_like(e, 1 / 9 + 0.5 * (self.dim - 1))
        diagonal = xp.concat([first, e + xp.zeros_like(q[..., 1:])], axis=-1)
        return where_finite(q, batched.diagonal_matrix(diagonal), 2)

    def fisher_contraction(self, q: Array, M: Array) -> Array:
        xp, e = namespace(q), namespace(q).exp(q[..., :1])
        along_v = e * xp.sum(xp.linalg.diagonal(M[..., 1:, 1:]), axis=-1)[..., None]
        return where_finite(q, xp.concat([along_v, xp.zeros_like(q[..., 1:])], axis=-1), 1)


@jit
def log_density(q: np.ndarray, data: np.ndarray) -> float:
    v, x = q[0], q[1:]
    return -v * v / 18 + 0.5 * x.shape[0] * v - 0.5 * np.exp(v) * dot(x, x)


@jit
def value_and_gradient(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> float:
    v, x = q[0], q[1:]
    e = np.exp(v)
    half_eS = 0.5 * e * dot(x, x)
    out[0] = -v / 9 + 0.5 * x.shape[0] - half_eS
    for i in range(x.shape[0]):
        out[1 + i] = -e * x[i]
    return -v * v / 18 + 0.5 * x.shape[0] * v - half_eS


@jit
def hessian(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    v, x = q[0], q[1:]
    e = np.exp(v)
    out[:] = 0.0
    out[0, 0] = -1 / 9 - 0.5 * e * dot(x, x)
    for i in range(1, q.shape[0]):
        out[0, i] = out[i, 0] = -e * q[i]
        out[i, i] = -e


@jit
def hessian_diagonal(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    v, x = q[0], q[1:]
    e = np.exp(v)
    out[0, 0] = -1 / 9 - 0.5 * e * dot(x, x)
    for i in range(1, q.shape[0]):
        out[0, i] = -e


@jit
def diagonal_contraction(q: np.ndarray, data: np.ndarray, m: np.ndarray, out: np.ndarray) -> None:
    v, x = q[0], q[1:]
    e = np.exp(v)
    for i in range(1, q.shape[0]):
        out[i] = -e * m[0, 0] * q[i]
    out[0] = -e * (0.5 * m[0, 0] * dot(x, x) + total(m[0, 1:]))


@jit
def third_derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    v, x = q[0], q[1:]
    e = np.exp(v)
    out[:] = 0.0
    out[0, 0, 0] = -0.5 * e * dot(x, x)
    for i in range(1, q.shape[0]):
        out[0, 0, i] = out[0, i, 0] = out[i, 0, 0] = -e * q[i]
        out[0, i, i] = out[i, 0, i] = out[i, i, 0] = -e


@jit
def hessian_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    v, x = q[0], q[1:]
    e = np.exp(v)
    out[0] = -0.5 * M[0, 0] * e * dot(x, x)
    for i in range(1, q.shape[0]):
        out[0] -= e * (q[i] * (M[0, i] + M[i, 0]) + M[i, i])
        out[i] = -e * (M[0, 0] * q[i] + M[0, i] + M[i, 0])


@jit
def fisher(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    out[0, 0] = 1 / 9 + 0.5 * (q.shape[0] - 1)
    for i in range(1, q.shape[0]):
        out[i, i] = np.exp(q[0])


@jit
def fisher_derivative(q: np.ndarray, data: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    for i in range(1, q.shape[0]):
        out[i, i, 0] = np.exp(q[0])


@jit
def fisher_contraction(q: np.ndarray, data: np.ndarray, M: np.ndarray, out: np.ndarray) -> None:
    out[:] = 0.0
    for i in range(1, q.shape[0]):
        out[0] += M[i, i] * np.exp(q[0])


def levels(n: int) -> np.ndarray:
    """Return the levels of the Fisher metric: 0 for v, 1 for x."""
    return np.minimum(np.arange(1 + n), 1)


def draw(rng: np.random.Generator, n_draws: int, n: int) -> np.ndarray:
    """Return (n_draws, 1 + n) independent draws: v first, then x given v."""
    v = 3.0 * rng.standard_normal((n_draws, 1))
    return np.hstack([v, np.exp(-v / 2) * rng.standard_normal((n_draws, n))])


@recreatable
def Funnel(n: int = 10) -> Model:
    """Return Neal's funnel.

    The model is ::

        v ~ N(0, 9),      x_i | v ~ N(0, exp(-v)),      i = 1..n

    with variances as second arguments, so that the neck is at large v. The variables are ``v`` and ``x`` of shape (n,). The
    model has all derivatives and a Fisher metric.

    Parameters
    ----------
    n : int, default 10
        Number of x_i, at least 0. The dimension is 1 + n.

    Returns
    -------
    Model
        The model, with exact moments and draws in ``reference``.

    Raises
    ------
    ValueError
        If `n` is not a whole number of at least 0.

    References
    ----------
    R. M. Neal (2003), Slice sampling.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Funnel(2)
    >>> model.dim, model.names
    (3, ['v', 'x[0]', 'x[1]'])
    """
    n = whole_number("n", n, 0)
    return Model(
        1 + n,
        log_density,
        value_and_gradient=value_and_gradient,
        hessian=hessian,
        third_derivative=third_derivative,
        hessian_contraction=hessian_contraction,
        fisher=fisher,
        fisher_derivative=fisher_derivative,
        fisher_contraction=fisher_contraction,
        fisher_levels=levels(n),
        parents={"x": "v"} if n > 0 else {},
        names=["v"] + [f"x[{i}]" for i in range(n)],
        hessian_diagonal=hessian_diagonal,
        diagonal_contraction=diagonal_contraction,
        name="funnel",
        recommended=Recommended("hmc", "softabs", WHY) if n <= FEW else FISHER,
        reference=Reference(
            source="closed form (v ~ N(0, 9); var x = exp(9/2))",
            mean=np.zeros(1 + n),
            variance=np.array([9.0] + [math.exp(4.5)] * n),
            draw=functools.partial(draw, n=n),
        ),
        on_arrays=functools.partial(FunnelOnArrays, n),
    )
