"""The Hamiltonian of a model on a metric: energy, its two gradients, and the momentum's law.

    H(q, p) = -L(q) + 1/2 p' G(q)^-1 p + 1/2 log det G(q),        p ~ N(0, G(q))

Constants are dropped, the log det of a constant metric among them. Everything here is computed by the compiled functions
that the integrators call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types as nb

from refhmc.core import types
from refhmc.core.arguments import array_of_numbers
from refhmc.core.compiled import entry
from refhmc.core.point import POINT_ROWS, VELOCITY, P, Q, as_point
from refhmc.core.types import Work, as_metric, as_work
from refhmc.dynamics.assemble import make_dynamics
from refhmc.errors import MetricError, ShapeError
from refhmc.integrators import ImplicitMidpoint
from refhmc.metrics import Fisher, Identity, base
from refhmc.models.base import Model


@entry(lambda: nb.float64(types.MODEL, types.METRIC, types.MATRIX, types.WORK, types.VECTOR), "the Hamiltonian")
def run_energy(model: tuple, metric: tuple, z: np.ndarray, work: tuple, dH_dq: np.ndarray) -> float:
    """H of the point ``z``, with its velocity in ``z`` and dH/dq in ``dH_dq``."""
    energy = base.energy(model, metric, z, work)
    if as_work(work).cache.factorised > 0:
        point = as_point(z)
        as_metric(metric).velocity_and_force(model, point.p, 1.0, 1.0, work, point.velocity, dH_dq)
    return energy


@entry(lambda: nb.boolean(types.MODEL, types.METRIC, types.MATRIX, types.WORK, types.VECTOR), "the momentum draw")
def run_draw(model: tuple, metric: tuple, z: np.ndarray, work: tuple, normals: np.ndarray) -> bool:
    """The momentum of ``z`` from standard normals."""
    point = as_point(z)
    factorised = base.factorise(model, metric, point.q, work)
    if factorised:
        as_metric(metric).draw(normals, work, point.p)
    return factorised


class Hamiltonian:
    """``Hamiltonian(model, metric)``; the metric defaults to the identity.

    Positions and momenta are (d,). Raises ShapeError on other shapes; MetricError, naming the least eigenvalue, for a metric
    that is not positive definite (where it is evaluated, if it depends on the position); TypeError for a metric that is
    none; MissingDerivativeError for a derivative that the metric reads and the model lacks.
    """

    def __init__(self, model: Model, metric: Any = None) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"model must be a refhmc.Model, got {type(model).__name__}")
        # Whichever integrator: only the workspaces' size depends on it.
        self._dynamics = make_dynamics(model, Identity() if metric is None else metric, ImplicitMidpoint())
        self.model, self.metric = model, self._dynamics.metric

    def __repr__(self) -> str:
        return f"<Hamiltonian of {self.model.name!r} on {type(self.metric).__name__}>"

    def energy(self, q: np.ndarray, p: np.ndarray) -> float:
        """H(q, p)."""
        return self._evaluate(q, p)[0]

    def grad_q(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        """dH/dq, (d,)."""
        return self._evaluate(q, p)[2]

    def grad_p(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        """dH/dp = G^-1 p, the velocity, (d,)."""
        return self._evaluate(q, p)[1]

    def mass(self, q: np.ndarray | None = None) -> np.ndarray:
        """The mass matrix G(q), (d, d). ``q`` may be left out on a constant metric."""
        at: Any = np.zeros(self.model.dim) if q is None and not self.metric.position_dependent else q
        root = np.stack([self._draw(at, unit) for unit in np.eye(self.model.dim)])
        return root.T @ root  # row k is R e_k, with p = R z and R R' = G

    def draw_momentum(self, q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """p ~ N(0, G(q)) from d standard normals z of ``rng``, (d,): p = R z with R R' = G, R as the metric's text says."""
        return self._draw(q, rng.standard_normal(self.model.dim))

    def _evaluate(self, q: np.ndarray, p: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """H, dH/dp, dH/dq."""
        z, dH_dq = self._point(q), np.zeros(self.model.dim)
        z[P] = self._momentum(p)
        model, metric, work = self._core()
        energy = run_energy(model, metric, z, work, dH_dq)
        self._check(Work(*work).cache.factorised, z[Q])
        return float(energy), z[VELOCITY].copy(), dH_dq

    def _draw(self, q: np.ndarray, normals: np.ndarray) -> np.ndarray:
        z = self._point(q)
        model, metric, work = self._core()
        run_draw(model, metric, z, work, np.ascontiguousarray(normals))
        self._check(Work(*work).cache.factorised, z[Q])
        return z[P].copy()

    def _core(self) -> tuple:
        """What the entries take; fresh work, so that threads may share the Hamiltonian."""
        dynamics = self._dynamics
        dynamics.compile_metric(self.model.name)
        return dynamics.model, dynamics.pointers[3], dynamics.work()

    def _check(self, factorised: int, q: np.ndarray) -> None:
        if factorised > 0:
            return
        name = type(self.metric).__name__
        G = self.model._derivative(self.metric.reads[0], q)
        if not np.isfinite(G).all():
            raise MetricError(f"the metric {name} is not finite at q = {np.array2string(q, precision=6, threshold=8)}")
        if not isinstance(self.metric, Fisher):  # those of SoftAbs are positive definite wherever they can be computed
            raise MetricError(
                f"the metric {name} cannot be computed in double precision at q = "
                f"{np.array2string(q, precision=6, threshold=8)}: the derivatives that it is made of are too large"
            )
        least = np.linalg.eigvalsh(G)[0]
        raise MetricError(
            f"the metric {name} is not positive definite at q = {np.array2string(q, precision=6, threshold=8)}: its least "
            f"eigenvalue is {least:.6g}. refhmc.metrics.SoftAbs() is positive definite everywhere."
        )

    def _point(self, q: np.ndarray) -> np.ndarray:
        z = np.zeros((POINT_ROWS, self.model.dim))
        z[Q] = self.model._position(q)
        return z

    def _momentum(self, p: np.ndarray) -> np.ndarray:
        p = array_of_numbers("momentum", p, ShapeError)
        if p.ndim == 0 and self.model.dim == 1:
            p = p.reshape(1)
        if p.shape != (self.model.dim,):
            raise ShapeError(f"momentum: expected ({self.model.dim},), got {p.shape}")
        return p
