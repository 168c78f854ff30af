"""Tao's integrator projected symmetrically onto the diagonal: exact, unlike the explicit one.

With Phi the step of :mod:`refhmc.integrators.explicit_tao` on the doubled phase space (q, p, x, y), find the shift
mu = (mu_q, mu_p) that, applied before and after, maps the diagonal x = q, y = p to itself:

    (q', p', q', p') = Phi((q, p, q, p) + S mu) + S mu,        S mu = (mu_q, mu_p, -mu_q, -mu_p)

This is the symmetric projection of Hairer (2000) and, for extended phase spaces, of Jayawardana and Ohsawa (2023). Phi
preserves dq^dp + dx^dy, which the shifts change by 2 dmu_q^dmu_p at both ends, so that (q, p) -> (q', p') is symplectic.
The shift -mu solves the reverse step, so that the map is reversible. Order 2.

The equation is solved for mu, starting from 0, by x -> x - B F(x). Here F(mu) = D Phi(z + S mu) + 2 mu is the difference of the
two copies afterwards, with D(q, p, x, y) = (q - x, p - y). B is the inverse of its derivative at eps = 0 with the binding's
angle theta kept: dF = 2 (R(theta) + 1) = 4 cos(theta/2) R(theta/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from refhmc.compile.compiled import jit, jit_part
from refhmc.core.point import as_point
from refhmc.core.records import Layout
from refhmc.core.types import as_work
from refhmc.integrators.base import Implicit
from refhmc.integrators.explicit_tao import LAYOUT as TAO
from refhmc.integrators.explicit_tao import check_omega, tao
from refhmc.integrators.explicit_tao import step as doubled_step
from refhmc.metrics.base import HamiltonianOnArrays, Metric, energy
from refhmc.numerics import batched
from refhmc.numerics.batched import Array
from refhmc.numerics.fixed_point import HISTORY_ROWS, Outcome, fixed_point

# mu, its image, the doubled point after the step.
LAYOUT = Layout(f"mu[2] image[2] q p x y history[{HISTORY_ROWS}]", after=TAO)
rows = LAYOUT.rows


@dataclass(frozen=True)
class ProjectedTao(Implicit):
    """Tao's integrator projected onto the original phase space, which is exact.

    With the step Phi of ``ExplicitTao`` on the doubled phase space, one step finds the shift mu = (mu_q, mu_p) that maps the
    diagonal x = q, y = p to itself::

        (q', p', q', p') = Phi((q, p, q, p) + S mu) + S mu,        S mu = (mu_q, mu_p, -mu_q, -mu_p)

    The method is of order 2, symplectic and reversible to the tolerance of the solver. A chain is exact if the
    reversibility check is on.

    Parameters
    ----------
    omega : float
        Strength of the binding between the copies, finite and not negative. The projection binds the copies by itself, so that
        0 is as good as any value. ``omega * step_size = pi/2`` is singular.
    tolerance : float, default 1e-6
        Largest change of a coordinate, in absolute terms, at which the iteration stops. At least 1e-14.
    max_iterations : int, default 100
        Maximum number of iterations per solve. A solve that has not converged by then is a rejection with the outcome
        ``solver_failed``.
    solver : {"anderson", "fixed point"}, default "anderson"
        Anderson's acceleration, which is limited to 25 iterations by the reversibility check, or plain fixed-point iteration.
    reversibility_check : bool, default True
        Follow each step by its reverse step, and reject it if that does not return to within 100 tolerances. Without the check
        ``exact`` is False.

    Raises
    ------
    ValueError
        If an option is out of range or unknown.

    See Also
    --------
    ExplicitTao : The same without projection, explicit and approximate.

    Notes
    -----
    The iteration needs smaller steps to converge than those of the other implicit methods. Anderson's acceleration helps.

    References
    ----------
    - Hairer (2000), Symmetric projection methods for differential equations on manifolds.
    - Jayawardana and Ohsawa (2023), Semiexplicit symplectic integrators for non-separable Hamiltonian systems.
    - Tao (2016), Explicit symplectic approximation of nonseparable Hamiltonians.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Funnel(1), refhmc.metrics.SoftAbs())
    >>> method = refhmc.integrators.ProjectedTao(omega=0.0)
    >>> path = refhmc.integrate(H, method, [0.5, 0.1], [0.3, -0.2], step_size=0.05, n_steps=10)
    >>> bool(path.converged.all()), method.exact
    (True, True)
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
        return projected_tao

    def options(self) -> dict[str, float]:
        return {**super().options(), "omega": self.omega}

    def on_arrays(self) -> Callable:
        """Return the step on arrays.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return partial(step, omega=self.omega, solve=self.fixed_point)


def step(
    H: HamiltonianOnArrays, q: Array, p: Array, eps: Array, omega: float, solve: Callable = batched.fixed_point
) -> tuple[Array, Array]:
    """Make one step of Tao's projected integrator on arrays.

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
    omega : float
        Strength of the binding between the copies.
    solve : callable, default fixed_point
        Solver of the implicit equation, such as :func:`refhmc.array_api.fixed_point`.

    Returns
    -------
    q : array, shape (..., d)
        Positions after the step; NaN if the solve failed.
    p : array, shape (..., d)
        Momenta after the step.
    """
    xp, z = batched.namespace(q), batched.join(q, p)

    def ends(mu: Array, z: Array, eps: Array) -> tuple[Array, Array]:
        """Return Phi(z + S mu), the two copies of z."""
        q, p, x, y = doubled_step(H, *batched.split(z + mu), *batched.split(z - mu), eps, omega)
        return batched.join(q, p), batched.join(x, y)

    def image(mu: Array, z: Array, eps: Array) -> Array:
        """Return mu - B F(mu)."""
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
    """Set image = mu - B F(mu); the doubled point after the step stays in ``own``."""
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
    """Make the step, as a function to be called through a pointer; return H, NaN if the step failed.

    z becomes the mean of the copies, which differ by the tolerance of the solver.
    """
    w, point = rows(own), as_point(z)
    w.mu[:] = 0.0
    if fixed_point(shift_equation, model, metric, z, eps, work, own, w.mu, w.image, w.history) != Outcome.CONVERGED:
        return math.nan
    for i in range(z.shape[1]):
        point.q[i] = 0.5 * (w.q[i] + w.x[i])
        point.p[i] = 0.5 * (w.p[i] + w.y[i])
    return energy(model, metric, z, work)
