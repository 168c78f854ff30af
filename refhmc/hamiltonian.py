"""The Hamiltonian of a model on a metric: energy, its two gradients, and the momentum's law.

    H(q, p) = -L(q) + 1/2 p' M^-1 p        dH/dq = -dL/dq        dH/dp = M^-1 p        p ~ N(0, M)

Constants (log det M among them) are dropped.
"""

from __future__ import annotations

import numpy as np

from refhmc.errors import ShapeError
from refhmc.metrics import Dense, Diagonal, Identity
from refhmc.model import Model


class Hamiltonian:
    """``Hamiltonian(model, metric)``; the metric defaults to the identity.

    Positions and momenta are (d,). Raises ShapeError on other shapes, MetricError for a metric that is not positive
    definite, TypeError for a metric that is none.
    """

    def __init__(self, model: Model, metric: Identity | Diagonal | Dense | None = None):
        metric = Identity() if metric is None else metric
        if not isinstance(metric, Identity | Diagonal | Dense):
            raise TypeError(f"metric must be one of refhmc.metrics, got {type(metric).__name__}")
        self.model, self.metric = model, metric
        self._inverse_mass = metric.inverse_mass(model.dim)

    def __repr__(self) -> str:
        return f"<Hamiltonian of {self.model.name!r} on {type(self.metric).__name__}>"

    def energy(self, q, p) -> float:
        """H(q, p)."""
        p = self._momentum(p)
        return -self.model.log_density(q) + 0.5 * float(p @ self._times_inverse_mass(p))

    def grad_q(self, q, p) -> np.ndarray:
        """dH/dq, (d,)."""
        self._momentum(p)
        return -self.model.gradient(q)

    def grad_p(self, q, p) -> np.ndarray:
        """dH/dp = M^-1 p, the velocity, (d,)."""
        return self._times_inverse_mass(self._momentum(p))

    def mass(self, q=None) -> np.ndarray:
        """The mass matrix M at ``q`` (the same everywhere on a Euclidean metric), (d, d)."""
        if self._inverse_mass.ndim == 1:
            return np.diag(1 / self._inverse_mass)
        return np.linalg.inv(self._inverse_mass)

    def draw_momentum(self, q, rng: np.random.Generator) -> np.ndarray:
        """p ~ N(0, M) from d standard normals z of ``rng``: z (M^-1)^-1/2, or L^-T z with L L' = M^-1; (d,)."""
        normals = rng.standard_normal(self.model.dim)
        if self._inverse_mass.ndim == 1:
            return normals * (1 / np.sqrt(self._inverse_mass))
        return np.linalg.solve(np.linalg.cholesky(self._inverse_mass).T, normals)

    def _times_inverse_mass(self, p: np.ndarray) -> np.ndarray:
        return self._inverse_mass * p if self._inverse_mass.ndim == 1 else self._inverse_mass @ p

    def _momentum(self, p) -> np.ndarray:
        p = np.asarray(p, dtype=float)
        if p.ndim == 0 and self.model.dim == 1:
            p = p.reshape(1)
        if p.shape != (self.model.dim,):
            raise ShapeError(f"momentum: expected ({self.model.dim},), got {p.shape}")
        return p
