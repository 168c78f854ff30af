"""The Hamiltonian of discontinuous HMC and one step of its integrator, as the kernel makes it: to teach, to test against.

    H(q, p) = -L(q) + 1/2 p_I' M_I^-1 p_I + sum_J |p_j| / m_j

with the masses fixed: M_i = 1/s_i^2 on the smooth coordinates I, m_j = 1/s_j on the discontinuous ones J.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types as nb

from refhmc.core import types
from refhmc.core.compiled import entry, plain
from refhmc.core.point import GRADIENT, LOG_DENSITY, POINT_ROWS, VELOCITY, P, Q
from refhmc.core.types import as_dynamics
from refhmc.dynamics.assemble import make_discontinuous_dynamics
from refhmc.errors import ShapeError
from refhmc.metrics import Identity, laplace
from refhmc.models.base import Model


class Step(NamedTuple):
    """Where a step arrives, ``q`` and ``p`` (d,), how many moves it tried, and how many were turned back (``flips``)."""

    q: np.ndarray
    p: np.ndarray
    tries: int
    flips: int


@entry(
    lambda: nb.float64(types.DYNAMICS, types.MODEL, types.MATRIX, nb.float64, types.WORK, types.MATRIX),
    "a single step",
)
def run_step(dynamics: Any, model: Any, z: np.ndarray, eps: float, work: np.ndarray, own: Any) -> Any:
    """The step, called from Python."""
    dyn = as_dynamics(dynamics)
    return dyn.step(model, dyn.metric, z, eps, work, own)


@entry(lambda: nb.float64(types.MATRIX, types.WORK), "the energy of discontinuous HMC")
def run_laplace(z: np.ndarray, work: np.ndarray) -> Any:
    """H of the point ``z``, with its velocity in ``z``."""
    return laplace.energy(z, work)


@entry(lambda: nb.void(types.VECTOR, types.WORK, types.VECTOR), "the momentum draw of discontinuous HMC")
def run_laplace_draw(normals: np.ndarray, work: np.ndarray, p: np.ndarray) -> None:
    """The momentum from standard normals, into ``p``."""
    laplace.draw(normals, work, p)


class DiscontinuousHamiltonian:
    """``DiscontinuousHamiltonian(model, metric)``: ``metric`` is ``Identity()``, the default, or ``Diagonal(variances)``, whose
    variances are the s^2 of the module's text.

    Positions and momenta are (d,). Raises ShapeError on other shapes, MetricError for variances that are not positive.
    """

    def __init__(self, model: Model, metric: Any = None) -> None:
        self._dynamics = make_discontinuous_dynamics(model, Identity() if metric is None else metric)
        self.model, self.metric = model, self._dynamics.metric

    def __repr__(self) -> str:
        names = ", ".join(self.model.names[j] for j in self.model.discontinuous)
        return f"<discontinuous Hamiltonian of {self.model.name!r}, jumps in {names or 'nothing'}>"

    def energy(self, q: np.ndarray, p: np.ndarray) -> float:
        """H(q, p)."""
        return float(run_laplace(self._point(q, p), self._dynamics.work()))

    def grad_p(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        """dH/dp, the velocity, (d,): p_i/M_i and sign(p_j)/m_j."""
        z = self._point(q, p)
        run_laplace(z, self._dynamics.work())
        return z[VELOCITY].copy()

    def draw_momentum(self, q: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A momentum from d standard normals of ``rng``, (d,); its law does not depend on ``q``."""
        return self._draw(q, rng.standard_normal(self.model.dim))

    def step(self, q: np.ndarray, p: np.ndarray, step_size: float, order: np.ndarray | None = None) -> Step:
        """One step of size ``step_size`` (negative: backwards), the discontinuous coordinates in the given ``order``.

        ``order`` is a permutation of the indices ``model.discontinuous``; default: in order of index. The step is undone by
        the same step from (q, -p), or with -step_size from (q, p), in the reverse order.
        Raises ValueError for another ``order``, a step size that is zero or not finite, or a log density that is no number.
        """
        if not math.isfinite(step_size) or step_size == 0:
            raise ValueError(f"step_size must be finite and not zero, got {step_size!r}")
        J = self.model.discontinuous
        order = J if order is None else np.asarray(order)
        if not np.array_equal(np.sort(order), J):
            raise ValueError(f"order must be a permutation of {J.tolist()}, got {order.tolist()}")
        dynamics = self._dynamics
        dynamics.compile(self.model.name)
        z, work = self._point(q, p), dynamics.work()
        vecs, _, _, _, counters, status = work
        plain(laplace.LAYOUT.rows)(vecs).order[: len(J)] = order
        run_step(dynamics.pointers, dynamics.model, z, float(step_size), work, dynamics.own())
        if status.failure != 0:
            raise ValueError(f"the log density is not a number on the way from q = {np.asarray(q)}")
        return Step(z[Q].copy(), z[P].copy(), int(counters.tries), int(counters.flips))

    def _draw(self, q: np.ndarray, normals: np.ndarray) -> np.ndarray:
        p = np.zeros(self.model.dim)
        run_laplace_draw(np.ascontiguousarray(normals), self._dynamics.work(), p)
        return p

    def _point(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        z = np.zeros((POINT_ROWS, self.model.dim))
        z[Q], z[P] = self.model._position(q), np.asarray(p, dtype=float)
        if np.shape(p) not in ((self.model.dim,), ()) or (np.shape(p) == () and self.model.dim > 1):
            raise ShapeError(f"momentum: expected ({self.model.dim},), got {np.shape(p)}")
        z[LOG_DENSITY, 0], z[GRADIENT] = self.model.core.value_and_gradient(z[Q].copy())
        return z
