"""The Hamiltonian of discontinuous HMC and one step of its integrator, as the kernel makes it, for teaching and tests.

    H(q, p) = -L(q) + 1/2 p_I' M_I^-1 p_I + sum_J |p_j| / m_j

with fixed masses: M_i = 1/s_i^2 on the smooth coordinates I, m_j = 1/s_j on the discontinuous ones J.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types as nb

from refhmc.compile.compiled import entry, plain
from refhmc.core import types
from refhmc.core.point import GRADIENT, LOG_DENSITY, POINT_ROWS, VELOCITY, P, Q
from refhmc.core.types import as_dynamics
from refhmc.dynamics.assemble import make_discontinuous_dynamics
from refhmc.errors import ShapeError
from refhmc.metrics import Diagonal, Identity, laplace
from refhmc.models.base import Model


class Step(NamedTuple):
    """Result of one step of discontinuous HMC.

    Parameters
    ----------
    q : ndarray, shape (d,)
        Position after the step.
    p : ndarray, shape (d,)
        Momentum after the step.
    tries : int
        Number of moves of discontinuous coordinates that were tried.
    flips : int
        Number of moves that were turned back.
    """

    q: np.ndarray
    p: np.ndarray
    tries: int
    flips: int


@entry(
    lambda: nb.float64(types.DYNAMICS, types.MODEL, types.MATRIX, nb.float64, types.WORK, types.MATRIX),
    "a single step",
)
def run_step(dynamics: Any, model: Any, z: np.ndarray, eps: float, work: np.ndarray, own: Any) -> Any:
    """Make the step, called from Python."""
    dyn = as_dynamics(dynamics)
    return dyn.step(model, dyn.metric, z, eps, work, own)


@entry(lambda: nb.float64(types.MATRIX, types.WORK), "the energy of discontinuous HMC")
def run_laplace(z: np.ndarray, work: np.ndarray) -> Any:
    """Return H of the point ``z``, and write its velocity to ``z``."""
    return laplace.energy(z, work)


@entry(lambda: nb.void(types.VECTOR, types.WORK, types.VECTOR), "the momentum draw of discontinuous HMC")
def run_laplace_draw(normals: np.ndarray, work: np.ndarray, p: np.ndarray) -> None:
    """Write the momentum made from standard normals to ``p``."""
    laplace.draw(normals, work, p)


class DiscontinuousHamiltonian:
    """The Hamiltonian of discontinuous HMC, its derivatives and one step of its integrator.

    With smooth coordinates I, discontinuous coordinates J and the scales s of the metric, the Hamiltonian is::

        H(q, p) = -L(q) + 1/2 p_I' M_I^-1 p_I + sum_J |p_j| / m_j,      M_i = 1/s_i^2,      m_j = 1/s_j

    All values are computed by the compiled functions that the kernel :class:`refhmc.DHMC` uses. Positions and momenta are (d,).

    Parameters
    ----------
    model : Model
        The model.
    metric : Identity or Diagonal, optional
        The metric, whose variances are s^2. Defaults to the identity.

    Raises
    ------
    refhmc.errors.MetricError, refhmc.errors.ShapeError
        If the variances are not positive, or do not fit the model.

    See Also
    --------
    DHMC : The kernel.
    Hamiltonian : The Hamiltonian of HMC and NUTS.

    References
    ----------
    Gram-Hansen, notes on HMC and discontinuous HMC, equation 26.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.DiscontinuousHamiltonian(refhmc.models.ChangePoint())
    >>> q, p = [1.1, -0.1, 40.5], [0.3, 0.2, -2.0]
    >>> there = H.step(q, p, 0.01)
    >>> there.tries, bool(abs(H.energy(there.q, there.p) - H.energy(q, p)) < 0.1)
    (1, True)
    >>> back = H.step(there.q, -there.p, 0.01)
    >>> bool(abs(back.q - q).max() < 1e-9)
    True
    """

    def __init__(self, model: Model, metric: Identity | Diagonal | None = None) -> None:
        self._dynamics = make_discontinuous_dynamics(model, Identity() if metric is None else metric)
        self.model, self.metric = model, self._dynamics.metric

    def __repr__(self) -> str:
        names = ", ".join(self.model.names[j] for j in self.model.discontinuous)
        return f"<discontinuous Hamiltonian of {self.model.name!r}, jumps in {names or 'nothing'}>"

    def energy(self, q: np.ndarray, p: np.ndarray) -> float:
        """Return the energy.

        Parameters
        ----------
        q : array_like, shape (d,)
            Position.
        p : array_like, shape (d,)
            Momentum.

        Returns
        -------
        float
            H(q, p).
        """
        return float(run_laplace(self._point(q, p), self._dynamics.work()))

    def grad_p(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the velocity, dH/dp.

        Parameters
        ----------
        q : array_like, shape (d,)
            Position.
        p : array_like, shape (d,)
            Momentum.

        Returns
        -------
        ndarray, shape (d,)
            Velocities p_i/M_i of the smooth and sign(p_j)/m_j of the discontinuous coordinates.
        """
        z = self._point(q, p)
        run_laplace(z, self._dynamics.work())
        return z[VELOCITY].copy()

    def draw_momentum(self, q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a momentum, whose distribution does not depend on the position.

        Parameters
        ----------
        q : array_like, shape (d,)
            Position, which is not used.
        rng : numpy.random.Generator
            Source of d standard normals.

        Returns
        -------
        ndarray, shape (d,)
            The momentum.
        """
        return self._draw(q, rng.standard_normal(self.model.dim))

    def step(self, q: np.ndarray, p: np.ndarray, step_size: float, order: np.ndarray | None = None) -> Step:
        """Make one step of the integrator.

        The same step from (q, -p), or with ``-step_size`` from (q, p), in the reverse order, undoes the step.

        Parameters
        ----------
        q : array_like, shape (d,)
            Position.
        p : array_like, shape (d,)
            Momentum.
        step_size : float
            Step size; negative for a step backward in time.
        order : array_like of int, optional
            Order in which the discontinuous coordinates are moved, a permutation of ``model.discontinuous``. Defaults to
            the order of their indices.

        Returns
        -------
        Step
            Position and momentum after the step, ``q`` and ``p``, the number of moves that were tried, ``tries``, and of
            those that were turned back, ``flips``.

        Raises
        ------
        ValueError
            If `order` is not such a permutation, if `step_size` is zero or not finite, or if the log density is not a
            number on the way.
        """
        if not math.isfinite(step_size) or step_size == 0:
            raise ValueError(f"step_size must be finite and not zero; got {step_size!r}.")
        J = self.model.discontinuous
        order = J if order is None else np.asarray(order)
        if not np.array_equal(np.sort(order), J):
            raise ValueError(
                f"order must be a permutation of {J.tolist()}, the discontinuous coordinates; got {order.tolist()}."
            )
        dynamics = self._dynamics
        dynamics.compile(self.model.name)
        z, work = self._point(q, p), dynamics.work()
        vecs, _, _, _, counters, status = work
        plain(laplace.LAYOUT.rows)(vecs).order[: len(J)] = order
        run_step(dynamics.pointers, dynamics.model, z, float(step_size), work, dynamics.own())
        if status.failure != 0:
            raise ValueError(
                f"log_density must return a number or -inf; got NaN within the step from q = {np.asarray(q)}. "
                "Return -inf outside the support."
            )
        return Step(z[Q].copy(), z[P].copy(), int(counters.tries), int(counters.flips))

    def _draw(self, q: np.ndarray, normals: np.ndarray) -> np.ndarray:
        p = np.zeros(self.model.dim)
        run_laplace_draw(np.ascontiguousarray(normals), self._dynamics.work(), p)
        return p

    def _point(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        z = np.zeros((POINT_ROWS, self.model.dim))
        z[Q], z[P] = self.model._position(q), np.asarray(p, dtype=float)
        if np.shape(p) not in ((self.model.dim,), ()) or (np.shape(p) == () and self.model.dim > 1):
            raise ShapeError(f"momentum p must have shape ({self.model.dim},); got {np.shape(p)}.")
        z[LOG_DENSITY, 0], z[GRADIENT] = self.model.core.value_and_gradient(z[Q].copy())
        return z
