"""The implicit midpoint rule for any Hamiltonian.

    z' = z + eps f((z + z')/2),        z = (q, p),    f = (dH/dp, -dH/dq)

Order 2, symplectic, reversible. It conserves every quadratic invariant: on a Gaussian with a constant metric the energy
is conserved at every step size at which the solver converges. There are two ways to solve it (Brofos and Lederman 2021):

    endpoint, I.M.(a), Algorithm 3     z' = z + eps f((z + z')/2)          for z', tolerance on z'
    midpoint, I.M.(b), Algorithm 5     m = z + eps/2 f(m)                  for m, tolerance on m;    z' = m + eps/2 f(m)

Both start from z, as in the paper. The first image is z + eps f(z), or z + eps/2 f(z), and needs no evaluation of the metric,
since the last step ended there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from refhmc.compile.compiled import jit, jit_part
from refhmc.core.point import P, Q, as_point
from refhmc.core.records import Layout
from refhmc.integrators.base import CHECK, Implicit
from refhmc.metrics.base import HamiltonianOnArrays, Metric, energy, factorise, velocity_and_force
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.fixed_point import HISTORY_ROWS, Outcome, copy_rows, fixed_point

# The unknown (q, p), its image, the midpoint; dH/dp and dH/dq there.
LAYOUT = Layout(f"x[2] image[2] middle[2] v dH_dq history[{HISTORY_ROWS}]", after=CHECK)
rows = LAYOUT.rows


@dataclass(frozen=True)
class ImplicitMidpoint(Implicit):
    """The implicit midpoint rule, the default for metrics that depend on the position.

    One step of size eps solves, for any Hamiltonian::

        z' = z + eps f((z + z')/2),        z = (q, p),    f = (dH/dp, -dH/dq)

    The method is of order 2, symplectic and reversible to the tolerance of the solver. A chain is exact if the
    reversibility check is on. The method conserves every quadratic invariant. On a Gaussian with a constant metric the
    energy is conserved to the tolerance, at every step size at which the solver converges.

    Parameters
    ----------
    variant : {"endpoint", "midpoint"}, default "endpoint"
        "endpoint", I.M.(a), solves ``z' = z + eps f((z + z')/2)`` for z', with the tolerance on z'. "midpoint", I.M.(b), solves
        ``m = z + eps/2 f(m)`` for m, with the tolerance on m, and then sets ``z' = m + eps/2 f(m)``.
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
    GeneralizedLeapfrog : Solves for momentum and position one after the other.

    Notes
    -----
    Both variants start from z, as in the paper. The published code starts from ``z + eps/2 f(z)``.

    References
    ----------
    Brofos and Lederman (2021), Evaluating the implicit midpoint integrator for Riemannian manifold HMC, Algorithms 3 and 5.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1), refhmc.metrics.SoftAbs())
    >>> method = refhmc.integrators.ImplicitMidpoint(tolerance=1e-9)
    >>> path = refhmc.integrate(H, method, [0.5, 0.1], [0.3, -0.2], step_size=0.1, n_steps=10)
    >>> bool(path.converged.all()), method.exact
    (True, True)
    """

    name = "implicit_midpoint"
    variant: str = "endpoint"
    tolerance: float = 1e-6
    max_iterations: int = 100
    solver: str = "fixed point"
    reversibility_check: bool = True
    variants = ("endpoint", "midpoint")
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
        return implicit_midpoint_endpoint if self.variant == "endpoint" else implicit_midpoint_midpoint

    def on_arrays(self) -> Callable:
        """Return the step on arrays.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return partial(step if self.variant == "endpoint" else step_by_midpoint, solve=self.fixed_point)


def step(
    H: HamiltonianOnArrays, q: Array, p: Array, eps: Array, solve: Callable = batched.fixed_point
) -> tuple[Array, Array]:
    """Make one step of the implicit midpoint rule on arrays, solved for the endpoint, I.M.(a).

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
        Solver of the implicit equation, such as :func:`refhmc.array_api.fixed_point`.

    Returns
    -------
    q : array, shape (..., d)
        Positions after the step; NaN if the solve failed.
    p : array, shape (..., d)
        Momenta after the step.
    """
    z = batched.join(q, p)
    return batched.split(solve(lambda x, z, eps: z + eps * H.vector_field((z + x) / 2), z, z, eps))


def step_by_midpoint(
    H: HamiltonianOnArrays, q: Array, p: Array, eps: Array, solve: Callable = batched.fixed_point
) -> tuple[Array, Array]:
    """Make one step of the implicit midpoint rule on arrays, solved for the midpoint, I.M.(b).

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
        Solver of the implicit equation, such as :func:`refhmc.array_api.fixed_point`.

    Returns
    -------
    q : array, shape (..., d)
        Positions after the step; NaN if the solve failed.
    p : array, shape (..., d)
        Momenta after the step.
    """
    z = batched.join(q, p)
    m = solve(lambda x, z, eps: z + eps / 2 * H.vector_field(x), z, z, eps)
    return batched.split(m + eps / 2 * H.vector_field(m))


@jit_part
def vector_field(model: tuple, metric: tuple, m: np.ndarray, work: tuple, own: np.ndarray) -> bool:
    """Write dH/dp and dH/dq at the point ``m`` (2, d) to ``own``; return False if the metric cannot be factorised."""
    if not factorise(model, metric, m[0], work):
        return False
    velocity_and_force(model, metric, m[1], 1.0, 1.0, work, rows(own).v, rows(own).dH_dq)
    return True


@jit_part
def endpoint_equation(
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    x: np.ndarray,
    image: np.ndarray,
) -> bool:
    """Set image = z + eps f((z + x)/2)."""
    w, point = rows(own), as_point(z)
    for i in range(x.shape[1]):
        w.middle[0, i] = 0.5 * (point.q[i] + x[0, i])
        w.middle[1, i] = 0.5 * (point.p[i] + x[1, i])
    if not vector_field(model, metric, w.middle, work, own):
        return False
    for i in range(x.shape[1]):
        image[0, i] = point.q[i] + eps * w.v[i]
        image[1, i] = point.p[i] - eps * w.dH_dq[i]
    return True


@jit_part
def midpoint_equation(
    model: tuple,
    metric: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    x: np.ndarray,
    image: np.ndarray,
) -> bool:
    """Set image = z + eps/2 f(x)."""
    w, point = rows(own), as_point(z)
    if not vector_field(model, metric, x, work, own):
        return False
    for i in range(x.shape[1]):
        image[0, i] = point.q[i] + 0.5 * eps * w.v[i]
        image[1, i] = point.p[i] - 0.5 * eps * w.dH_dq[i]
    return True


@jit_part
def leave_midpoint(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> bool:
    """Set z' = m + eps/2 f(m)."""
    w, point = rows(own), as_point(z)
    if not vector_field(model, metric, w.x, work, own):
        return False
    for i in range(z.shape[1]):
        point.q[i] = w.x[0, i] + 0.5 * eps * w.v[i]
        point.p[i] = w.x[1, i] - 0.5 * eps * w.dH_dq[i]
    return True


@jit
def implicit_midpoint_endpoint(
    model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray
) -> float:
    """Make the step I.M.(a), as a function to be called through a pointer; return H, NaN if the step failed."""
    w = rows(own)
    copy_rows(w.x, z[Q : P + 1])
    solved = fixed_point(endpoint_equation, model, metric, z, eps, work, own, w.x, w.image, w.history, w.start)
    if solved != Outcome.CONVERGED:
        return math.nan
    copy_rows(z[Q : P + 1], w.x)
    return energy(model, metric, z, work)


@jit
def implicit_midpoint_midpoint(
    model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray
) -> float:
    """Make the step I.M.(b), as a function to be called through a pointer; return H, NaN if the step failed."""
    w, point = rows(own), as_point(z)
    copy_rows(w.x, z[Q : P + 1])
    for i in range(z.shape[1]):  # for a reverse step
        w.middle[0, i] = 0.5 * (point.q[i] + w.start[0, i])
        w.middle[1, i] = 0.5 * (point.p[i] + w.start[1, i])
    solved = fixed_point(midpoint_equation, model, metric, z, eps, work, own, w.x, w.image, w.history, w.middle)
    if solved != Outcome.CONVERGED:
        return math.nan
    return energy(model, metric, z, work) if leave_midpoint(model, metric, z, eps, work, own) else math.nan
