"""Isokinetic dynamics: a velocity of constant length, which the gradient turns.

Write x for the position in coordinates in which the metric is the identity (q = S x, M^-1 = S S'), g = dL/dx for the gradient
and u for the velocity, a unit vector. The dynamics are

    dx/ds = u,        du/ds = (I - u u') g / (d - 1)

A splitting solves the two parts in turn, each exactly. A drift is x <- x + h u. A turn with delta = h |g| / (d - 1) and
e = g / |g| is

    u <- (u + e (sinh delta + (e.u)(cosh delta - 1))) / (cosh delta + (e.u) sinh delta)

(Ver Steeg and Galstyan 2021; Robnik, De Luca, Silverstein and Seljak 2023, arXiv 2212.08549; Robnik, Cohn-Gordon and Seljak
2025, arXiv 2503.01707). A turn does not preserve volume on the sphere. Its Jacobian in the tangent space is
(cosh delta + (e.u) sinh delta)^-(d-1) = exp(-dK), where

    dK = (d - 1) log(cosh delta + (e.u) sinh delta)

is called the change of the kinetic energy. The exact flow keeps H = -L + K constant, where K is the sum of all dK. Therefore it
keeps the density exp(L) on positions times the uniform distribution on the sphere. A splitting is reversible under u -> -u, and
the Metropolis test of its end uses the change of H, which contains the log Jacobian.

**In the code** the velocity is a momentum p = d^(1/2) S^-T u, so that p' M^-1 p = d. Then M^-1 p = d^(1/2) S u, and

    |g|^2 = dL/dq' M^-1 dL/dq,       e.u = dL/dq' M^-1 p / (d^(1/2) |g|),       S^-T e = dL/dq / |g|

need M^-1 only, and no root of it. Every constant metric therefore serves, and a linear change of coordinates that is also made
in the metric changes nothing. The time is that of HMC, whose velocity has the length d^(1/2) on average: a step of size eps is
one of d^(1/2) eps in the papers, and lengths such as pi/2 mean the same in both.

With z = exp(-delta) and c = e.u, the turn is  u <- (2 z u + (1 - z)(1 + c + (1 - c) z) e) / (1 + c + (1 - c) z^2)  and
dK = (d - 1)(delta + log of half that denominator). Nothing overflows, and no terms cancel. A turn by a large delta makes almost
every u almost e. Rounding then loses u, and the step back does not return. A step with a turn by more than ``LARGEST_TURN``
therefore has no energy. The step back has the same turns, so that this decision is reversible, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.point import as_point
from refhmc.core.records import Layout
from refhmc.core.types import as_metric, as_model, as_work
from refhmc.integrators.splitting import BCSS, Splitting
from refhmc.integrators.splitting import kick as add
from refhmc.metrics.base import HamiltonianOnArrays
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

LARGEST_TURN = 12.0  # with errors of rounding of about exp(24) 1e-16 = 3e-6 after the step back
LAYOUT = Layout("natural_gradient")
rows = LAYOUT.rows


def check_dimension(d: int) -> None:
    """Raise ValueError for fewer than two coordinates, in which a velocity cannot turn."""
    if d < 2:
        raise ValueError(
            f"model must have at least two coordinates for the microcanonical samplers; got {d}, and a velocity cannot turn in "
            "one dimension. Use NUTS or HMC."
        )


def splitting_of(integrator: Splitting | None) -> Splitting:
    """Return a kernel's splitting, by default BCSS with two stages."""
    return BCSS() if integrator is None else integrator


def projected(H: HamiltonianOnArrays, q: Array, p: Array) -> Array:
    """Return p times a number, so that p' M^-1 p = d."""
    return p * (q.shape[-1] / batched.dot(p, H.inverse_product(q, p)))[..., None] ** 0.5


def turned(H: HamiltonianOnArrays, q: Array, p: Array, h: Array) -> tuple[Array, Array]:
    """Return the momenta after a turn of duration h (..., 1), and dK (...), for momenta with p' M^-1 p = d.

    dK is NaN if delta exceeds ``LARGEST_TURN``.
    """
    xp, d = batched.namespace(q), q.shape[-1]
    L, g = H.model.value_and_gradient(q)
    g = xp.where(xp.isfinite(L)[..., None], xp.where(h < 0, -g, g), xp.nan)  # away from the gradient if h < 0
    natural = H.inverse_product(q, g)
    length = batched.dot(g, natural) ** 0.5
    delta = xp.abs(h)[..., 0] * d**0.5 / (d - 1) * length
    inverse = 1 / xp.where(length == 0, 1.0, length)
    c = xp.clip(batched.dot(natural, p) * inverse / d**0.5, -1.0, 1.0)
    z = xp.exp(-delta)
    towards = (1 - z) * (1 + c + (1 - c) * z) * d**0.5 * inverse
    change = (d - 1) * (delta + xp.log((1 + c + (1 - c) * z * z) / 2))
    p = projected(H, q, 2 * z[..., None] * p + towards[..., None] * g)
    return p, xp.where(delta <= LARGEST_TURN, change, xp.nan)


def drifts_and_turns(coefficients: Sequence[float]) -> Callable:
    """Return the step on arrays of a splitting of the isokinetic dynamics.

    With the coefficients b_1, a_1, b_2, ..., a_s, b_{s+1} one step of size eps is::

        turn of duration b_1 eps
        q <- q + a_k eps M^-1 p,    turn of duration b_{k+1} eps,    k = 1, ..., s

    A turn of duration h changes u, the direction of p. With the gradient g in coordinates in which the metric is the identity,
    ``e = g / |g|`` and ``delta = d^(1/2) h |g| / (d - 1)``, it is::

        u <- (u + e (sinh delta + (e.u)(cosh delta - 1))) / (cosh delta + (e.u) sinh delta)

    Parameters
    ----------
    coefficients : sequence of float
        The coefficients of turns and drifts, a turn first and last, such as ``McLachlan().coefficients``.

    Returns
    -------
    callable
        ``step(H, q, p, eps)`` with ``p' M^-1 p = d`` returns ``(q', p', dK)``. The sum dK of
        ``(d - 1) log(cosh delta + (e.u) sinh delta)`` over the turns, (...), is minus the log of the Jacobian of
        (q, p) -> (q', p'), with p on the ellipsoid. It is NaN if the density is not finite at a position on the way, or if
        delta exceeds 12.

    References
    ----------
    Robnik, Cohn-Gordon and Seljak (2025), Metropolis adjusted microcanonical Hamiltonian Monte Carlo, arXiv 2503.01707.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> H = refhmc.array_api.hamiltonian(refhmc.models.Gaussian([0.0, 0.0], np.eye(2)), refhmc.metrics.Identity())
    >>> step = refhmc.array_api.drifts_and_turns(refhmc.integrators.McLachlan().coefficients)
    >>> q, p, change = step(H, np.ones((3, 2)), np.ones((3, 2)), 0.1)
    >>> bool(np.allclose((p * p).sum(axis=-1), 2))
    True
    """
    first, *pairs = coefficients

    def step(H: HamiltonianOnArrays, q: Array, p: Array, eps: Array) -> tuple[Array, Array, Array]:
        eps = eps + 0.0 * q[..., :1]
        p, change = turned(H, q, p, first * eps)
        for a, b in zip(pairs[::2], pairs[1::2], strict=True):
            q = q + a * eps * H.inverse_product(q, p)
            p, more = turned(H, q, p, b * eps)
            change = change + more
        return q, p, change

    return step


@jit
def refresh(model: tuple, metric: tuple, z: np.ndarray, normals: np.ndarray, draws: bool, work: tuple) -> float:
    """Draw a momentum from standard normals, if ``draws`` is True, project it, and return H with K = 0."""
    G, point = as_metric(metric), as_point(z)
    if draws:
        G.draw(normals, work, point.p)
    G.inverse_product(point.p, work, point.velocity)
    project(z)
    as_work(work).status.kinetic = 0.0
    return -point.log_density[0]


@jit
def project(z: np.ndarray) -> None:
    """Multiply the momentum and the velocity M^-1 p by the number for which p' M^-1 p = d."""
    point = as_point(z)
    factor = math.sqrt(z.shape[1] / dot(point.p, point.velocity))
    for i in range(z.shape[1]):
        point.p[i] *= factor
        point.velocity[i] *= factor


@jit
def turn(metric: tuple, z: np.ndarray, h: float, natural: np.ndarray, work: tuple) -> tuple[float, float]:
    """Turn the momentum and the velocity by the gradient for the duration h; return dK and delta."""
    point, d = as_point(z), z.shape[1]
    as_metric(metric).inverse_product(point.gradient, work, natural)
    length = math.sqrt(dot(point.gradient, natural))
    if length == 0:
        return 0.0, 0.0
    sign, root = math.copysign(1.0, h), math.sqrt(d)
    delta = abs(h) * root / (d - 1) * length
    c = min(max(sign * dot(natural, point.p) / (length * root), -1.0), 1.0)
    x = math.exp(-delta)
    kept, towards = 2 * x, sign * (1 - x) * (1 + c + (1 - c) * x) * root / length
    for i in range(d):
        point.p[i] = kept * point.p[i] + towards * point.gradient[i]
        point.velocity[i] = kept * point.velocity[i] + towards * natural[i]
    project(z)
    return (d - 1) * (delta + math.log((1 + c + (1 - c) * x * x) / 2)), delta


@jit
def step(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make one step of the point ``z``, whose velocity is M^-1 p, in place; return H there, or NaN.

    The sum K of the changes since the last refreshment is ``status.kinetic``.
    """
    _, _, options, _, counters, status = as_work(work)
    f, point, natural = as_model(model), as_point(z), rows(own).natural_gradient
    change, largest = turn(metric, z, options.kicks_and_drifts[0] * eps, natural, work)
    for k in range(options.n_stages):
        add(point.q, options.kicks_and_drifts[2 * k + 1] * eps, point.velocity)
        counters.gradients += 1
        log_density = f.value_and_gradient(point.q, f.data, point.gradient)
        if not math.isfinite(log_density):
            return math.nan
        point.log_density[0] = log_density
        more, delta = turn(metric, z, options.kicks_and_drifts[2 * k + 2] * eps, natural, work)
        change, largest = change + more, max(largest, delta)
    status.kinetic += change
    return status.kinetic - point.log_density[0] if largest <= LARGEST_TURN else math.nan
