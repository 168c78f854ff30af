"""A whole trajectory of an integrator, as the kernels make it, for plots, teaching and comparisons with other programs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import types as nb
from numpy.typing import ArrayLike

from refhmc.compile.compiled import Entry, jit_part
from refhmc.core import sample_stats as S
from refhmc.core import types
from refhmc.core.arguments import is_number, whole_number
from refhmc.core.point import GRADIENT, LOG_DENSITY, POINT_ROWS, P, Q, as_point, copy_row
from refhmc.core.types import Work, as_work
from refhmc.dynamics.assemble import make_dynamics
from refhmc.dynamics.fuse import with_fused_step
from refhmc.dynamics.hamiltonian import Hamiltonian
from refhmc.integrators.base import Integrator
from refhmc.integrators.leapfrog import leapfrog_diagonal
from refhmc.integrators.step import integrator_step


class Trajectory(NamedTuple):
    """A trajectory of an integrator, with its energies and counts.

    Parameters
    ----------
    q : ndarray, shape (n_steps + 1, d)
        Positions, including the start.
    p : ndarray, shape (n_steps + 1, d)
        Momenta, including the start.
    energy : ndarray, shape (n_steps + 1,)
        Energies.
    converged : ndarray of bool, shape (n_steps,)
        Whether each step was made; True for an explicit integrator. The trajectory ends at a step whose solve fails, or which
        meets a metric that is not finite and positive definite. This step and the later ones have False here, and NaN as their
        states.
    iterations : ndarray of int, shape (n_steps,)
        Iterations of the solver per step; 0 for an explicit integrator.
    evaluations : int
        Number of gradients, including that at the start. If the metric depends on the position or the method is implicit,
        number of evaluations of dH/dq.
    gradient_evaluations : int, default 0
        Number of gradients.
    metric_evaluations : int, default 0
        Number of evaluations of the metric.

    See Also
    --------
    integrate : Returns it.
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
    """Fill ``states`` (n + 1, 2, d) and ``history`` from row 1 on.

    A row of ``history`` has the energy, the iterations, and whether the state is missing.
    """
    _, _, _, cache, counters, status = as_work(work)
    point, done = as_point(z), 0
    for n in range(1, states.shape[0]):
        history[n, 0] = integrator_step(dynamics, model, z, eps, work, own, True)
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
    """Follow a trajectory of the diagonal leapfrog, whose step costs less than a call through a pointer."""
    kind, refresh, _, metric = dynamics
    follow_part((kind, refresh, leapfrog_diagonal, metric), model, z, eps, work, own, states, history)


def signature() -> nb.abstract.Type:
    """Return the signature of :func:`follow`."""
    return nb.void(
        types.DYNAMICS, types.MODEL, types.MATRIX, nb.float64, types.WORK, types.MATRIX, types.STACK, types.MATRIX
    )


run_trajectory = Entry(follow, signature, "the trajectory")
run_leapfrog = Entry(with_the_leapfrog, signature, "the trajectory of the leapfrog")


def integrate(
    H: Hamiltonian,
    integrator: Integrator,
    q: ArrayLike,
    p: ArrayLike,
    *,
    step_size: float,
    n_steps: int,
    fuse: bool = False,
) -> Trajectory:
    """Follow a trajectory of an integrator.

    The steps continue if the energy is not finite, and such energies are in the result.

    Parameters
    ----------
    H : Hamiltonian
        The Hamiltonian.
    integrator : object
        An integrator of `refhmc.integrators`, or your own.
    q : array_like, shape (d,)
        Position at the start.
    p : array_like, shape (d,)
        Momentum at the start.
    step_size : float
        Step size; negative for a trajectory backward in time.
    n_steps : int
        Number of steps, 0 or more.
    fuse : bool, default False
        Compile the step for this model and metric, as ``refhmc.Numba(fuse=True)`` does for a kernel.

    Returns
    -------
    Trajectory
        Positions, momenta and energies, and the work of the solver.

    Raises
    ------
    ValueError
        If `step_size` is zero or not finite, or `n_steps` is negative.
    refhmc.errors.ShapeError
        If `q` or `p` has another shape.
    refhmc.errors.MetricError
        If the metric is not positive definite at the start.

    See Also
    --------
    Hamiltonian : The Hamiltonian.
    transition : One transition of a kernel.

    Examples
    --------
    >>> import refhmc
    >>> H = refhmc.Hamiltonian(refhmc.models.Gaussian([0.0], [[1.0]]))
    >>> path = refhmc.integrate(H, refhmc.integrators.Leapfrog(), [1.0], [0.0], step_size=0.1, n_steps=100)
    >>> path.q.shape, path.evaluations
    ((101, 1), 101)
    >>> bool(abs(path.energy - path.energy[0]).max() < 0.002)
    True
    """
    if not is_number(step_size) or not math.isfinite(step_size) or step_size == 0:
        raise ValueError(f"step_size must be finite and not zero; got {step_size!r}.")
    model, n = H.model, whole_number("n_steps", n_steps, 0)
    q, p = model._position(q), H._momentum(p)
    energy, _, _ = H._evaluate(q, p)  # raises MetricError if the metric is not positive definite
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
