"""The Hamiltonian of a model on a metric: energy, its two gradients, and the distribution of the momentum.

    H(q, p) = -L(q) + 1/2 p' G(q)^-1 p + 1/2 log det G(q),        p ~ N(0, G(q))

Constants are dropped, including the log det of a constant metric. All values are computed by the compiled functions that the
integrators call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types as nb
from numpy.typing import ArrayLike

from refhmc.compile.compiled import entry
from refhmc.core import types
from refhmc.core.arguments import array_of_numbers
from refhmc.core.point import POINT_ROWS, VELOCITY, P, Q, as_point
from refhmc.core.types import Work, as_metric, as_work
from refhmc.dynamics.assemble import make_dynamics
from refhmc.errors import MetricError, ShapeError
from refhmc.integrators import ImplicitMidpoint
from refhmc.metrics import Fisher, Identity, base
from refhmc.metrics.base import Metric
from refhmc.models.base import Model


@entry(lambda: nb.float64(types.MODEL, types.METRIC, types.MATRIX, types.WORK, types.VECTOR), "the Hamiltonian")
def run_energy(model: tuple, metric: tuple, z: np.ndarray, work: tuple, dH_dq: np.ndarray) -> float:
    """Return H of the point ``z``, and write its velocity to ``z`` and dH/dq to ``dH_dq``."""
    energy = base.energy(model, metric, z, work)
    if as_work(work).cache.factorised > 0:
        point = as_point(z)
        as_metric(metric).velocity_and_force(model, point.p, 1.0, 1.0, work, point.velocity, dH_dq)
    return energy


@entry(lambda: nb.boolean(types.MODEL, types.METRIC, types.MATRIX, types.WORK, types.VECTOR), "the momentum draw")
def run_draw(model: tuple, metric: tuple, z: np.ndarray, work: tuple, normals: np.ndarray) -> bool:
    """Set the momentum of ``z`` from standard normals."""
    point = as_point(z)
    factorised = base.factorise(model, metric, point.q, work)
    if factorised:
        as_metric(metric).draw(normals, work, point.p)
    return factorised


class Hamiltonian:
    """The Hamiltonian of a model on a metric: energy, gradients and momentum.

    For a metric G, which may be constant, and the log density L::

        H(q, p) = -L(q) + 1/2 p' G(q)^-1 p + 1/2 log det G(q),        p ~ N(0, G(q))

    Constants are dropped, including the log det of a constant metric. All values are computed by the compiled functions
    that the integrators call. Positions and momenta are (d,).

    Parameters
    ----------
    model : Model
        The model.
    metric : object, optional
        A metric of `refhmc.metrics`, or your own. Defaults to ``Identity()``.

    Raises
    ------
    TypeError
        If `model` or `metric` is not such an object.
    refhmc.errors.MissingDerivativeError
        If the metric reads a derivative that the model does not have.
    refhmc.errors.MetricError
        If the metric is not positive definite. The message has the least eigenvalue. For a metric that depends on the position,
        the methods raise it.
    refhmc.errors.ShapeError
        If the metric does not fit the model. The methods raise it for positions and momenta.

    See Also
    --------
    integrate : Follow a trajectory.
    DiscontinuousHamiltonian : For densities with jumps.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, 4.0]])
    >>> H = refhmc.Hamiltonian(model, refhmc.metrics.Diagonal([1.0, 4.0]))
    >>> H.grad_p([0.0, 0.0], [1.0, 1.0])
    array([1., 4.])
    >>> H.grad_q([0.0, 2.0], [1.0, 1.0])
    array([0. , 0.5])
    """

    def __init__(self, model: Model, metric: Metric | None = None) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model must be a refhmc.Model; got {type(model).__name__}.")
        # Any integrator will do: only the size of the workspaces depends on it.
        self._dynamics = make_dynamics(model, Identity() if metric is None else metric, ImplicitMidpoint())
        self.model, self.metric = model, self._dynamics.metric

    def __repr__(self) -> str:
        return f"<Hamiltonian of {self.model.name!r} on {type(self.metric).__name__}>"

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
        return self._evaluate(q, p)[0]

    def grad_q(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the gradient with respect to the position.

        Parameters
        ----------
        q : array_like, shape (d,)
            Position.
        p : array_like, shape (d,)
            Momentum.

        Returns
        -------
        ndarray, shape (d,)
            The derivative dH/dq.
        """
        return self._evaluate(q, p)[2]

    def grad_p(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the velocity, the gradient with respect to the momentum.

        Parameters
        ----------
        q : array_like, shape (d,)
            Position.
        p : array_like, shape (d,)
            Momentum.

        Returns
        -------
        ndarray, shape (d,)
            The derivative dH/dp = G(q)^-1 p.
        """
        return self._evaluate(q, p)[1]

    def mass(self, q: np.ndarray | None = None) -> np.ndarray:
        """Return the mass matrix.

        Parameters
        ----------
        q : array_like, shape (d,), optional
            Position. Not needed for a constant metric.

        Returns
        -------
        ndarray, shape (d, d)
            G(q).
        """
        at: Any = np.zeros(self.model.dim) if q is None and not self.metric.position_dependent else q
        root = np.stack([self._draw(at, unit) for unit in np.eye(self.model.dim)])
        return root.T @ root  # row k is R e_k, with p = R z and R R' = G

    def draw_momentum(self, q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw a momentum p ~ N(0, G(q)).

        Parameters
        ----------
        q : array_like, shape (d,)
            Position.
        rng : numpy.random.Generator
            Source of d standard normals z.

        Returns
        -------
        ndarray, shape (d,)
            The momentum R z, with R R' = G. The metric decides which root R is used.
        """
        return self._draw(q, rng.standard_normal(self.model.dim))

    def _evaluate(self, q: np.ndarray, p: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return H, dH/dp and dH/dq."""
        z, dH_dq = self._point(q), np.zeros(self.model.dim)
        z[P] = self._momentum(p)
        model, metric, work = self._core()
        energy = run_energy(model, metric, z, work, dH_dq)
        self._check(Work(*work).cache.factorised, z[Q])
        return float(energy), z[VELOCITY].copy(), dH_dq

    def _draw(self, q: np.ndarray, normals: np.ndarray) -> np.ndarray:
        """Return the momentum made from standard normals."""
        z = self._point(q)
        model, metric, work = self._core()
        run_draw(model, metric, z, work, np.ascontiguousarray(normals))
        self._check(Work(*work).cache.factorised, z[Q])
        return z[P].copy()

    def _core(self) -> tuple:
        """Return the arguments of the compiled functions, with new workspaces, so that threads may share the Hamiltonian."""
        dynamics = self._dynamics
        dynamics.compile_metric(self.model.name)
        return dynamics.model, dynamics.pointers[3], dynamics.work()

    def _check(self, factorised: int, q: np.ndarray) -> None:
        """Raise MetricError unless the metric was factorised at q."""
        if factorised > 0:
            return
        name = type(self.metric).__name__
        read = self.metric.reads[0]
        if read is None:
            raise MetricError(
                f"The metric {name} cannot be factorised at q = {np.array2string(q, precision=6, threshold=8)}."
            )
        G = self.model._derivative(read, q)
        if not np.isfinite(G).all():
            raise MetricError(
                f"The metric {name} is not finite at q = {np.array2string(q, precision=6, threshold=8)}. "
                "Check the derivatives of the model there."
            )
        if not isinstance(self.metric, Fisher):  # SoftAbs metrics are positive definite if they can be computed
            raise MetricError(
                f"The metric {name} cannot be computed in double precision at q = "
                f"{np.array2string(q, precision=6, threshold=8)}. The derivatives of the model there are too large."
            )
        least = np.linalg.eigvalsh(G)[0]
        raise MetricError(
            f"The metric {name} is not positive definite at q = {np.array2string(q, precision=6, threshold=8)}. Its least "
            f"eigenvalue is {least:.6g}. Use refhmc.metrics.SoftAbs(), which is positive definite everywhere."
        )

    def _point(self, q: np.ndarray) -> np.ndarray:
        """Return a point with the position q."""
        z = np.zeros((POINT_ROWS, self.model.dim))
        z[Q] = self.model._position(q)
        return z

    def _momentum(self, p: ArrayLike) -> np.ndarray:
        """Return the momentum as an array (d,). Raises ShapeError for another shape."""
        p = array_of_numbers("momentum", p, ShapeError)
        if p.ndim == 0 and self.model.dim == 1:
            p = p.reshape(1)
        if p.shape != (self.model.dim,):
            raise ShapeError(f"momentum p must have shape ({self.model.dim},); got {p.shape}.")
        return p
