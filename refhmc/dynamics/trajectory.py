"""A whole trajectory of an integrator, as the kernels make it: to plot, to teach, to hold another one against."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import types as nb

from refhmc.core import sample_stats as S
from refhmc.core import types
from refhmc.core.arguments import is_number, whole_number
from refhmc.core.compiled import Entry, jit_part
from refhmc.core.point import GRADIENT, LOG_DENSITY, POINT_ROWS, P, Q, as_point, copy_row
from refhmc.core.types import Work, as_work
from refhmc.dynamics.assemble import make_dynamics
from refhmc.dynamics.fuse import with_fused_step
from refhmc.dynamics.hamiltonian import Hamiltonian
from refhmc.integrators.leapfrog import leapfrog_diagonal
from refhmc.integrators.step import integrator_step


class Trajectory(NamedTuple):
    """Positions and momenta (n_steps + 1, d), energies (n_steps + 1,), and what the implicit solves did.

    ``converged`` and ``iterations`` are (n_steps,): of an explicit integrator True and 0. A step whose solve failed, or that
    met a metric that is not finite and positive definite, ends the trajectory: it and those after it have ``converged``
    False and NaN for their states. ``evaluations`` counts gradients, the one at the start included, or where the
    metric depends on the position (or the method is implicit) evaluations of dH/dq.
    ``metric_evaluations`` and ``gradient_evaluations`` count those parts by themselves.
    """

    q: np.ndarray
    p: np.ndarray
    energy: np.ndarray
    converged: np.ndarray
    iterations: np.ndarray
    evaluations: int
    gradient_evaluations: int = 0
    metric_evaluations: int = 0


def follow(
    dynamics: tuple,
    model: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    states: np.ndarray,
    history: np.ndarray,
) -> None:
    """Fill ``states`` (n + 1, 2, d) and ``history``, rows (energy, iterations, whether there is no state), from row 1 on."""
    _, _, _, cache, counters, status = as_work(work)
    point, done = as_point(z), 0
    for n in range(1, states.shape[0]):
        history[n, 0] = integrator_step(dynamics, model, z, eps, work, own)
        history[n, 1] = counters.iterations - done
        no_state = status.failure != 0 and (status.failure != S.NAN or cache.factorised < 0)
        history[n, 2] = no_state
        done = counters.iterations
        if no_state:
            break
        copy_row(states[n, 0], point.q)
        copy_row(states[n, 1], point.p)


follow_part = jit_part(follow)


def with_the_leapfrog(
    dynamics: tuple,
    model: tuple,
    z: np.ndarray,
    eps: float,
    work: tuple,
    own: np.ndarray,
    states: np.ndarray,
    history: np.ndarray,
) -> None:
    """The same with the diagonal leapfrog, whose step costs less than a call through a pointer."""
    kind, refresh, _, metric = dynamics
    follow_part((kind, refresh, leapfrog_diagonal, metric), model, z, eps, work, own, states, history)


def signature() -> Any:
    return nb.void(
        types.DYNAMICS, types.MODEL, types.MATRIX, nb.float64, types.WORK, types.MATRIX, types.STACK, types.MATRIX
    )


run_trajectory = Entry(follow, signature, "the trajectory")
run_leapfrog = Entry(with_the_leapfrog, signature, "the trajectory of the leapfrog")


def integrate(
    H: Hamiltonian,
    integrator: Any,
    q: np.ndarray,
    p: np.ndarray,
    *,
    step_size: float,
    n_steps: int,
    fuse: bool = False,
) -> Trajectory:
    """Follow ``integrator`` for ``n_steps`` steps of ``step_size`` (negative: backwards) from (q, p).

    ``fuse``: compile the step for this model and metric, as :func:`refhmc.sample` does the kernel.

    The steps go on where the energy is not finite; such energies are in the result. Raises ShapeError on shapes,
    ValueError for a step that is zero or not finite or a negative number of steps.
    """
    if not is_number(step_size) or not math.isfinite(step_size) or step_size == 0:
        raise ValueError(f"step_size must be finite and not zero, got {step_size!r}")
    model, n = H.model, whole_number("n_steps", n_steps, 0)
    q, p = model._position(q), H._momentum(p)
    energy, _, _ = H._evaluate(q, p)  # raises where there is no metric
    dynamics = make_dynamics(model, H.metric, integrator)
    if fuse:
        dynamics = with_fused_step(dynamics, model)
    dynamics.compile(model.name)
    z = np.zeros((dynamics.point_rows, model.dim))
    z[Q], z[P] = q, p
    z[LOG_DENSITY, 0], z[GRADIENT] = model.core.value_and_gradient(q.copy())
    z[POINT_ROWS:] = z[[Q, P][: len(z) - POINT_ROWS]]
    states, history = np.full((n + 1, 2, model.dim), np.nan), np.full((n + 1, 3), np.nan)
    states[0, 0], states[0, 1], history[0] = q, p, (energy, 0, 0)
    work = dynamics.work()
    run = run_leapfrog if dynamics.pointers[2] is leapfrog_diagonal else run_trajectory
    run(dynamics.pointers, dynamics.model, z, float(step_size), work, dynamics.own(), states, history)
    counters = Work(*work).counters
    reached = history[1:, 2] == 0
    gradients, metrics = int(counters.gradients), int(counters.metrics)
    explicit = not dynamics.integrator.implicit and not dynamics.metric.position_dependent
    return Trajectory(
        states[:, 0].copy(),
        states[:, 1].copy(),
        history[:, 0].copy(),
        reached,
        np.nan_to_num(history[1:, 1]).astype(np.int64),
        gradients + 1 if explicit else int(counters.fields),
        gradients,
        metrics,
    )
