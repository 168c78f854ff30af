"""The generalised leapfrog for a Hamiltonian that does not separate: two implicit half steps and an explicit one.

    p+ = p - eps/2 dH/dq(q, p+)                                  implicit in p+
    q' = q + eps/2 (dH/dp(q, p+) + dH/dp(q', p+))                implicit in q'
    p' = p+ - eps/2 dH/dq(q', p+)                                explicit

Order 2, symplectic, reversible; it conserves every invariant q'Ap; on a constant metric it is the leapfrog. Girolami and
Calderhead (2011), sec. 6.1; Betancourt (2013), Algorithm 1 with its errata (both last half kicks); Brofos and Lederman
(2021), Algorithms 2 and 4 with their errata (the sign of dL/dq).

    naive, G.L.F.(a)     evaluates the right-hand sides again in every iteration
    cached, G.L.F.(b)    keeps what does not change: G(q) and the force of phi at q, the velocity G(q)^-1 p+

Both give the same numbers up to rounding. The solves start from p and from q.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from refhmc.compile.compiled import jit, jit_part
from refhmc.core.point import as_point, copy_row
from refhmc.core.records import Layout
from refhmc.core.types import as_metric, as_work
from refhmc.integrators.base import CHECK, Implicit
from refhmc.metrics.base import HamiltonianOnArrays, Metric, energy, factorise, velocity_and_force
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.fixed_point import HISTORY_ROWS, Outcome, fixed_point

# The unknown, its image, p+, dH/dp at q, dphi/dq at q, dH/dp and dH/dq at the position of the equation.
LAYOUT = Layout(f"x[1] image[1] p_half v_start phi v dH_dq history[{HISTORY_ROWS}]", after=CHECK)
rows = LAYOUT.rows


@dataclass(frozen=True)
class GeneralizedLeapfrog(Implicit):
    """The generalised leapfrog, an implicit method for metrics that depend on the position.

    One step of size eps is::

        p+ = p - eps/2 dH/dq(q, p+)                                  implicit in p+
        q' = q + eps/2 (dH/dp(q, p+) + dH/dp(q', p+))                implicit in q'
        p' = p+ - eps/2 dH/dq(q', p+)                                explicit

    The method is of order 2, symplectic and reversible to the tolerance of the solver. A chain is exact if the
    reversibility check is on. The method conserves every invariant q'Ap. On a constant metric it is the leapfrog.

    Parameters
    ----------
    variant : {"cached", "naive"}, default "cached"
        "naive", G.L.F.(a), evaluates the right-hand sides again in every iteration. "cached", G.L.F.(b), keeps what does not
        change: G(q) and the force of phi at q, and the velocity G(q)^-1 p+. Both give the same numbers up to rounding.
    tolerance : float, default 1e-6
        Largest change of a coordinate, in absolute terms, at which the iteration stops. At least 1e-14.
    max_iterations : int, default 100
        Maximum number of iterations per solve. A solve that has not converged by then is a rejection with the outcome
        ``solver_failed``.
    solver : {"fixed point", "anderson"}, default "fixed point"
        Plain fixed-point iteration, or Anderson's acceleration, which is limited to 25 iterations by the reversibility check.
    reversibility_check : bool, default True
        Follow each step by its reverse step, and reject it if that does not return to within 100 tolerances. Without the check
        ``exact`` is False.

    Raises
    ------
    ValueError
        If an option is out of range or unknown.

    See Also
    --------
    ImplicitMidpoint : Solves for position and momentum together.

    Notes
    -----
    The solves start from p and from q. The equation for q has the units of q, so that the coordinates should be scaled to order
    one.

    References
    ----------
    - Girolami and Calderhead (2011), section 6.1.
    - Betancourt (2013), Algorithm 1. Erratum: the step ends with the half kicks of both tau and phi.
    - Brofos and Lederman (2021), Algorithms 2 and 4. Erratum: the sign of dL/dq.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1), refhmc.metrics.SoftAbs())
    >>> method = refhmc.integrators.GeneralizedLeapfrog()
    >>> path = refhmc.integrate(H, method, [0.5, 0.1], [0.3, -0.2], step_size=0.1, n_steps=10)
    >>> bool(path.converged.all()), method.exact
    (True, True)
    """

    name = "generalized_leapfrog"
    variant: str = "cached"
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "fixed point"
    reversibility_check: bool = True
    variants = ("cached", "naive")
    layout = LAYOUT

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
        return generalized_leapfrog

    def options(self) -> dict[str, float]:
        return {**super().options(), "cached": self.variant == "cached"}

    def on_arrays(self) -> Callable:
        """Return the step on arrays.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return partial(step, solve=self.fixed_point)


def step(
    H: HamiltonianOnArrays, q: Array, p: Array, eps: Array, solve: Callable = batched.fixed_point
) -> tuple[Array, Array]:
    """Make one step of the generalised leapfrog on arrays, in the cached form G.L.F.(b).

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d)
        Momenta.
    eps : float or array, shape (..., 1)
        Step size.
    solve : callable, default fixed_point
        Solver of the implicit equations, such as :func:`refhmc.array_api.fixed_point`.

    Returns
    -------
    q : array, shape (..., d)
        Positions after the step; NaN if a solve failed.
    p : array, shape (..., d)
        Momenta after the step.
    """

    def momentum(x: Array, q: Array, p: Array, phi: Array, eps: Array) -> Array:
        return p + eps / 2 * (phi + H.kinetic_force(q, x))

    def position(x: Array, q: Array, half: Array, v: Array, eps: Array) -> Array:
        return q + eps / 2 * (v + H.inverse_product(x, half))

    half = solve(momentum, p, q, p, H.potential_force(q), eps)
    q = solve(position, q, q, half, H.inverse_product(q, half), eps)
    return q, half + eps / 2 * H.velocity_and_force(q, half)[1]


@jit_part
def momentum_equation(
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    x: np.ndarray,
    image: np.ndarray,
) -> bool:
    """Set image = p - eps/2 dH/dq(q, x); the cached variant uses dphi/dq(q) and the metric at q from before."""
    w, point = rows(own), as_point(z)
    if as_work(work).options.cached:
        velocity_and_force(model, metric, x[0], 0.0, 1.0, work, w.v, w.dH_dq)
    else:
        as_work(work).cache.factorised = 0
        if not factorise(model, metric, point.q, work):
            return False
        velocity_and_force(model, metric, x[0], 1.0, 1.0, work, w.v, w.dH_dq)
    for i in range(x.shape[1]):
        image[0, i] = point.p[i] - 0.5 * eps * (w.phi[i] + w.dH_dq[i])
    return True


@jit_part
def position_equation(
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    x: np.ndarray,
    image: np.ndarray,
) -> bool:
    """Set image = q + eps/2 (dH/dp(q, p+) + dH/dp(x, p+)); the cached variant uses the first velocity from before."""
    w, point, inverse_product = rows(own), as_point(z), as_metric(metric).inverse_product
    if not as_work(work).options.cached:
        as_work(work).cache.factorised = 0
        if not factorise(model, metric, point.q, work):
            return False
        inverse_product(w.p_half, work, w.v_start)
        as_work(work).cache.factorised = 0
    if not factorise(model, metric, x[0], work):
        return False
    inverse_product(w.p_half, work, w.v)
    for i in range(x.shape[1]):
        image[0, i] = point.q[i] + 0.5 * eps * (w.v_start[i] + w.v[i])
    return True


@jit_part
def last_kick(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> bool:
    """Apply the third equation, given p+ and q': z becomes (q', p')."""
    w, point = rows(own), as_point(z)
    copy_row(point.q, w.x[0])
    if not factorise(model, metric, point.q, work):
        return False
    velocity_and_force(model, metric, w.p_half, 1.0, 1.0, work, w.v, w.dH_dq)
    for i in range(z.shape[1]):
        point.p[i] = w.p_half[i] - 0.5 * eps * w.dH_dq[i]
    return True


@jit
def generalized_leapfrog(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make the step, as a function to be called through a pointer; return H, NaN if the step failed."""
    w, point, cached = rows(own), as_point(z), as_work(work).options.cached
    w.phi[:] = 0.0
    if cached:
        if not factorise(model, metric, point.q, work):
            return math.nan
        velocity_and_force(model, metric, point.p, 1.0, 0.0, work, w.v, w.phi)
    copy_row(w.x[0], point.p)
    solved = fixed_point(momentum_equation, model, metric, z, eps, work, own, w.x, w.image, w.history)
    if solved != Outcome.CONVERGED:
        return math.nan
    copy_row(w.p_half, w.x[0])
    if cached:
        as_metric(metric).inverse_product(w.p_half, work, w.v_start)
    copy_row(w.x[0], point.q)
    solved = fixed_point(position_equation, model, metric, z, eps, work, own, w.x, w.image, w.history)
    if solved != Outcome.CONVERGED:
        return math.nan
    return energy(model, metric, z, work) if last_kick(model, metric, z, eps, work, own) else math.nan
