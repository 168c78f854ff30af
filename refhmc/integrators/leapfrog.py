"""The leapfrog (Störmer-Verlet, kick-drift-kick) step on a Euclidean metric.

With H(q, p) = -L(q) + 1/2 p' M^-1 p, one step of size eps is

    p <- p + eps/2 dL/dq(q)
    q <- q + eps M^-1 p
    p <- p + eps/2 dL/dq(q)

Order 2, symplectic, reversible (under p -> -p), explicit; one gradient per step, since the gradient of the last kick is that of
the next step's first kick. Eqs. 10-12 of Gram-Hansen's notes with their erratum (the gradient of the second kick is
taken at the new position); Neal (2011), sec. 2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refhmc.compile.compiled import jit, jit_part, jit_part_sum
from refhmc.core.point import as_point
from refhmc.core.records import Layout
from refhmc.core.types import as_model, as_work
from refhmc.metrics.base import HamiltonianOnArrays, Metric
from refhmc.metrics.euclidean import diagonal, inverse_product, rank_of
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot

NO_ROWS = Layout("")


@dataclass(frozen=True)
class Leapfrog:
    """The leapfrog (Störmer-Verlet), the default for constant metrics.

    With ``H(q, p) = -L(q) + 1/2 p' M^-1 p``, one step of size eps is::

        p <- p + eps/2 dL/dq(q)
        q <- q + eps M^-1 p
        p <- p + eps/2 dL/dq(q)

    The method is of order 2, symplectic, reversible under p -> -p, explicit and exact. It costs one gradient per step,
    since the gradient of the last kick is that of the next step's first kick.

    See Also
    --------
    BCSS, McLachlan, Omelyan : Several stages, with a smaller energy error per gradient.
    Yoshida, Suzuki : Compositions of order 4.
    ImplicitMidpoint : For metrics that depend on the position.

    References
    ----------
    - Gram-Hansen, notes on HMC and discontinuous HMC, equations 10 to 12. Erratum: the gradient of the second kick is taken at
      the new position.
    - Neal (2011), MCMC using Hamiltonian dynamics, section 2.3.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]))
    >>> path = refhmc.integrate(H, refhmc.integrators.Leapfrog(), [1.0], [0.0], step_size=0.1, n_steps=1)
    >>> path.q[:, 0].round(4), path.p[:, 0].round(5)
    (array([1.   , 0.995]), array([ 0.     , -0.09975]))
    """

    name = "leapfrog"
    order = 2
    symplectic = True
    reversible = True
    exact = True
    approximation = ""
    implicit = False
    cost = 1
    layout = NO_ROWS
    constant_metric = True

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
        own = getattr(metric, "leapfrog", None)
        if own is not None:
            return own
        return leapfrog_by_products if metric.is_dense else leapfrog_diagonal

    def options(self) -> dict[str, float]:
        """Return the options of the compiled functions.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {}

    def on_arrays(self) -> Callable:
        """Return the step on arrays.

        Returns
        -------
        callable
            ``step(H, q, p, eps)`` returns ``(q', p')``.
        """
        return step


def step(H: HamiltonianOnArrays, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
    """Make one step of the leapfrog on arrays.

    One step of size eps is::

        p <- p + eps/2 dL/dq(q);     q <- q + eps M^-1 p;     p <- p + eps/2 dL/dq(q)

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

    Returns
    -------
    q : array, shape (..., d)
        Positions after the step.
    p : array, shape (..., d)
        Momenta after the step.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> H = refhmc.array_api.hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]), refhmc.metrics.Identity())
    >>> q, p = refhmc.array_api.leapfrog(H, np.ones((3, 1)), np.zeros((3, 1)), 0.1)
    >>> q.round(4)
    array([[0.995],
           [0.995],
           [0.995]])
    """
    p = p + eps / 2 * H.model.gradient(q)
    q = q + eps * H.inverse_product(q, p)
    return q, p + eps / 2 * H.model.gradient(q)


@jit
def leapfrog_by_products(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make the same step on a dense metric, or one of low rank."""
    as_work(work).counters.gradients += 1
    f, point = as_model(model), as_point(z)
    for i in range(z.shape[1]):
        point.p[i] += 0.5 * eps * point.gradient[i]
    inverse_product(point.p, work, point.velocity)
    for i in range(z.shape[1]):
        point.q[i] += eps * point.velocity[i]
    log_density = f.value_and_gradient(point.q, f.data, point.gradient)
    for i in range(z.shape[1]):
        point.p[i] += 0.5 * eps * point.gradient[i]
    inverse_product(point.p, work, point.velocity)
    point.log_density[0] = log_density
    return -log_density + 0.5 * dot(point.p, point.velocity)


@jit_part
def leapfrog_diagonal(model: tuple, metric: tuple, z: np.ndarray, eps: float, work: tuple, own: np.ndarray) -> float:
    """Make one leapfrog step of the point ``z`` in place, on a diagonal metric or one of low rank; return H there."""
    if rank_of(work) > 0:
        return leapfrog_by_products(model, metric, z, eps, work, own)
    as_work(work).counters.gradients += 1
    f, point, inverse_mass = as_model(model), as_point(z), diagonal(work).inverse_mass
    for i in range(z.shape[1]):
        p = point.p[i] + 0.5 * eps * point.gradient[i]
        point.p[i] = p
        point.q[i] += eps * inverse_mass[i] * p
    log_density = f.value_and_gradient(point.q, f.data, point.gradient)
    point.log_density[0] = log_density
    return 0.5 * last_kick(z, 0.5 * eps, inverse_mass) - log_density


@jit_part_sum
def last_kick(z: np.ndarray, half_eps: float, inverse_mass: np.ndarray) -> float:
    """Set p <- p + eps/2 dL/dq and v = M^-1 p; return p . v."""
    point, total = as_point(z), 0.0
    for i in range(z.shape[1]):
        p = point.p[i] + half_eps * point.gradient[i]
        v = inverse_mass[i] * p
        point.p[i] = p
        point.velocity[i] = v
        total += p * v
    return total
