"""A whole trajectory of an integrator, as the kernels make it: to plot, to teach, to hold another one against."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types as nb

from refhmc import compiled, types
from refhmc.chain import make_dynamics, metric_arrays
from refhmc.compiled import entry
from refhmc.hamiltonian import Hamiltonian
from refhmc.integrators.advance import advance
from refhmc.metrics import euclidean
from refhmc.point import GRADIENT, LOG_DENSITY, POINT_ROWS, P, Q


class Trajectory(NamedTuple):
    """Positions and momenta (n_steps + 1, d), energies (n_steps + 1,), and what the implicit solves did.

    ``converged`` and ``iterations`` are (n_steps,): True and 0 for an explicit integrator. ``evaluations`` counts
    gradients, the one at the start included.
    """

    q: np.ndarray
    p: np.ndarray
    energy: np.ndarray
    converged: np.ndarray
    iterations: np.ndarray
    evaluations: int


@entry(
    lambda: nb.void(
        types.DYNAMICS,
        types.MODEL,
        types.MATRIX,
        nb.float64,
        types.MATRIX,
        types.STACK,
        types.MATRIX,
        types.MATRIX,
        types.VECTOR,
    ),
    "the trajectory",
)
def run_trajectory(dynamics, model, z, eps, vecs, mats, q_out, p_out, energies):
    """Fill the rows after the first of ``q_out``, ``p_out`` and ``energies``."""
    for n in range(1, q_out.shape[0]):
        energies[n] = advance(dynamics, model, z, eps, vecs, mats)
        for i in range(z.shape[1]):
            q_out[n, i] = z[Q, i]
            p_out[n, i] = z[P, i]


def integrate(H: Hamiltonian, integrator, q, p, *, step_size: float, n_steps: int) -> Trajectory:
    """Follow ``integrator`` for ``n_steps`` steps of ``step_size`` (negative: backwards) from (q, p).

    The steps go on where the energy is not finite; such energies are in the result. Raises ShapeError on shapes,
    ValueError for a step that is zero or not finite or a negative number of steps.
    """
    if not math.isfinite(step_size) or step_size == 0:
        raise ValueError(f"step_size must be finite and not zero, got {step_size!r}")
    if isinstance(n_steps, bool) or int(n_steps) != n_steps or n_steps < 0:
        raise ValueError(f"n_steps must be a whole number of at least 0, got {n_steps!r}")
    model, n = H.model, int(n_steps)
    vecs, mats = metric_arrays(H.metric, model.dim)
    dynamics = make_dynamics(H.metric, integrator)
    compiled.compile_pointer(dynamics[1], types.REFRESH.signature, "the momentum draw")
    compiled.compile_pointer(dynamics[2], types.STEP.signature, "the integrator's step")
    z = np.zeros((POINT_ROWS, model.dim))
    z[Q], z[P] = model._position(q), H._momentum(p)
    z[LOG_DENSITY, 0], z[GRADIENT] = model.core.value_and_gradient(z[Q].copy())
    qs, ps, energies = np.zeros((n + 1, model.dim)), np.zeros((n + 1, model.dim)), np.zeros(n + 1)
    qs[0], ps[0], energies[0] = z[Q], z[P], euclidean.energy(z, vecs, mats)
    run_trajectory(dynamics, model.core.tuple, z, float(step_size), vecs, mats, qs, ps, energies)
    return Trajectory(qs, ps, energies, np.ones(n, bool), np.zeros(n, np.int64), n + 1)
