"""Tao's explicit integrator on a doubled phase space (Tao 2016; Cobb et al. 2019).

The Hamiltonian K(q, p, x, y) = H(q, y) + H(x, p) + omega/2 (|q - x|^2 + |p - y|^2) on two copies of phase space splits
into three flows with explicit solutions, since each moves only what it does not depend on:

    A:  p <- p - h dH/dq(q, y),    x <- x + h dH/dp(q, y)
    B:  q <- q + h dH/dp(x, p),    y <- y - h dH/dq(x, p)
    C:  the differences (q - x, p - y) turn by the angle 2 omega h, the sums stay

    one step:   A(eps/2) B(eps/2) C(eps) B(eps/2) A(eps/2)

Cobb's eqs. 10-13; C is written with the old values on the right throughout (the paper's Algorithm 2 overwrites them).
On the doubled space it is of order 2, symplectic and reversible. The map (q, p) -> (q', p') from the diagonal x = q, y = p,
with the copies dropped, is *neither*: a chain made with it is approximate (``exact`` is False).
:mod:`refhmc.integrators.projected_tao` repairs that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from refhmc.compile.compiled import jit, jit_part
from refhmc.core.arguments import is_number
from refhmc.core.point import COPY_P, COPY_Q, EXTENDED_ROWS, as_point
from refhmc.core.records import Layout
from refhmc.core.types import as_work
from refhmc.integrators.base import CHECK
from refhmc.metrics.base import HamiltonianOnArrays, Metric, energy, factorise, velocity_and_force
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

LAYOUT = Layout("v dH_dq", after=CHECK)
rows = LAYOUT.rows


@dataclass(frozen=True)
class ExplicitTao:
    """Tao's explicit integrator on two copies of phase space, which is approximate.

    The Hamiltonian of the doubled phase space, and one step, are::

        K(q, p, x, y) = H(q, y) + H(x, p) + omega/2 (|q - x|^2 + |p - y|^2)

        A(h):  p <- p - h dH/dq(q, y),    x <- x + h dH/dp(q, y)
        B(h):  q <- q + h dH/dp(x, p),    y <- y - h dH/dq(x, p)
        C(h):  the differences (q - x, p - y) turn by the angle 2 omega h, the sums stay

        one step:   A(eps/2) B(eps/2) C(eps) B(eps/2) A(eps/2)

    On the doubled space the method is of order 2, symplectic and reversible. A trajectory starts from x = q, y = p, and the
    copies are dropped at its end. This map (q, p) -> (q', p') neither keeps volume nor is reversible, so that a chain is
    approximate and ``exact`` is False. It costs four evaluations of (dH/dp, dH/dq) per step.

    Parameters
    ----------
    omega : float
        Strength of the binding between the copies, finite and not negative.

    Raises
    ------
    ValueError
        If `omega` is negative or not finite.

    See Also
    --------
    ProjectedTao : The exact form.
    refhmc.diagnostics.volume_violation : Measures the error.

    References
    ----------
    - Tao (2016), Explicit symplectic approximation of nonseparable Hamiltonians.
    - Cobb, Baydin, Markham and Roberts (2019), explicit RMHMC, equations 10 to 13. Erratum: Algorithm 2 overwrites values that
      later lines read; all new values are computed from the old ones here.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1), refhmc.metrics.SoftAbs())
    >>> method = refhmc.integrators.ExplicitTao(omega=10.0)
    >>> path = refhmc.integrate(H, method, [0.5, 0.1], [0.3, -0.2], step_size=0.05, n_steps=10)
    >>> path.q.shape, method.exact
    ((11, 2), False)
    """

    name = "explicit_tao"
    omega: float
    order = 2
    symplectic = False
    reversible = False
    exact = False
    implicit = False
    point_rows = EXTENDED_ROWS
    cost = 4
    layout = LAYOUT
    approximation = (
        "the map of ExplicitTao neither keeps volume nor is reversible, so that more draws do not remove the error. "
        "Use ProjectedTao, the exact form, or measure the error by refhmc.diagnostics.volume_violation."
    )

    def __post_init__(self) -> None:
        check_omega(self.omega)

    def pointer(self, metric: Metric) -> Callable:
        """Return the compiled step.

        Parameters
        ----------
        metric : object
            The metric.

        Returns
        -------
        callable
            The step for this metric.
        """
        return explicit_tao

    def options(self) -> dict[str, float]:
        """Return the options of the compiled functions.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {"omega": self.omega}

    def on_arrays(self) -> Callable:
        """Return the step of both copies on arrays.

        Returns
        -------
        callable
            ``step(H, q, p, x, y, eps)`` returns ``(q', p', x', y')``.
        """
        return partial(step, omega=self.omega)


def step(
    H: HamiltonianOnArrays, q: Array, p: Array, x: Array, y: Array, eps: Array, omega: float
) -> tuple[Array, Array, Array, Array]:
    """Make one step of Tao's explicit integrator on arrays.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d)
        Momenta.
    x : array, shape (..., d)
        Positions of the second copy.
    y : array, shape (..., d)
        Momenta of the second copy.
    eps : float or array, shape (..., 1)
        Step size.
    omega : float
        Strength of the binding between the copies.

    Returns
    -------
    q, p : array, shape (..., d)
        The first copy after the step.
    x, y : array, shape (..., d)
        The second copy after the step.
    """
    xp, h = batched.namespace(q), eps / 2
    v, force = H.velocity_and_force(q, y)
    p, x = p + h * force, x + h * v  # A
    v, force = H.velocity_and_force(x, p)
    q, y = q + h * v, y + h * force  # B
    angle = 2 * omega * xp.asarray(eps, dtype=q.dtype)
    c, s, dq, dp = xp.cos(angle), xp.sin(angle), q - x, p - y
    dq, dp = c * dq + s * dp, c * dp - s * dq
    q, p, x, y = (q + x + dq) / 2, (p + y + dp) / 2, (q + x - dq) / 2, (p + y - dp) / 2  # C
    v, force = H.velocity_and_force(x, p)
    q, y = q + h * v, y + h * force  # B
    v, force = H.velocity_and_force(q, y)
    return q, p + h * force, x + h * v, y  # A


def check_omega(omega: float) -> None:
    """Raise ValueError unless omega is finite and not negative."""
    if not (is_number(omega) and 0 <= omega < math.inf):
        raise ValueError(f"omega must be finite and not negative; got {omega!r}.")


@jit_part
def flow(
    model: tuple,
    metric: tuple,
    h: float,
    held_q: np.ndarray,
    held_p: np.ndarray,
    moving_q: np.ndarray,
    moving_p: np.ndarray,
    work: tuple,
    own: np.ndarray,
) -> bool:
    """Apply A, with (held_q, held_p) = (q, y) and (moving_q, moving_p) = (x, p), or B, with (x, p) and (q, y)."""
    w = rows(own)
    if not factorise(model, metric, held_q, work):
        return False
    velocity_and_force(model, metric, held_p, 1.0, 1.0, work, w.v, w.dH_dq)
    for i in range(held_q.shape[0]):
        moving_p[i] -= h * w.dH_dq[i]
        moving_q[i] += h * w.v[i]
    return True


@jit_part
def binding_rotation(angle: float, q: np.ndarray, p: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Apply C: turn the differences by ``angle`` = 2 omega h."""
    c, s = math.cos(angle), math.sin(angle)
    for i in range(q.shape[0]):
        sum_q, sum_p = q[i] + x[i], p[i] + y[i]
        dq, dp = q[i] - x[i], p[i] - y[i]
        turned_q, turned_p = c * dq + s * dp, c * dp - s * dq
        q[i], x[i] = 0.5 * (sum_q + turned_q), 0.5 * (sum_q - turned_q)
        p[i], y[i] = 0.5 * (sum_p + turned_p), 0.5 * (sum_p - turned_p)


@jit
def tao(
    model: tuple,
    metric: tuple,
    eps: float,
    q: np.ndarray,
    p: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    work: tuple,
    own: np.ndarray,
) -> bool:
    """Make one step on the doubled phase space; return False if the metric cannot be factorised."""
    h = 0.5 * eps
    if not flow(model, metric, h, q, y, x, p, work, own):
        return False
    if not flow(model, metric, h, x, p, q, y, work, own):
        return False
    binding_rotation(2 * as_work(work).options.omega * eps, q, p, x, y)
    if not flow(model, metric, h, x, p, q, y, work, own):
        return False
    return flow(model, metric, h, q, y, x, p, work, own)


@jit
def explicit_tao(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make one step of the point and its copies; return H of the point alone."""
    point = as_point(z)
    if not tao(model, metric, eps, point.q, point.p, z[COPY_Q], z[COPY_P], work, own):
        return math.nan
    return energy(model, metric, z, work)
