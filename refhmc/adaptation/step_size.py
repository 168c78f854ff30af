"""The first step size, and the first jump size of discontinuous HMC, for a metric.

Each is doubled or halved until the acceptance of a single step, or move, crosses its target (Hoffman and Gelman 2014,
Algorithm 4, with 0.8 instead of their 1/2).
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.point import as_point, copy_point
from refhmc.core.randomness import fill_normals
from refhmc.core.types import as_dynamics, as_points, as_work, as_workspace
from refhmc.integrators.discontinuous import density_change
from refhmc.integrators.step import integrator_step
from refhmc.metrics.laplace import scale_jumps, views

SEARCH_TARGET, MAX_DOUBLINGS = 0.8, 100
JUMP_SEARCH_TARGET = 0.5  # at the end of the support half of the jumps are turned back, however short they are


@jit
def search_step_size(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, start: float, control: np.record
) -> float:
    """Double or halve the step size until the acceptance of a single step crosses 0.8, with a fresh momentum each time.

    A stop ends the search; the state of the chain must not be continued from there.
    """
    points, _, normals, own, work = as_workspace(workspace)
    dyn, at = as_dynamics(dynamics), as_points(points)
    z, eps, direction = at.candidate, start, 0
    for _ in range(MAX_DOUBLINGS):
        if control.stop:
            return start
        copy_point(z, at.state)
        fill_normals(randomness[0], normals)
        H0 = dyn.refresh(model, dyn.metric, z, normals, True, work)
        H = integrator_step(dynamics, model, z, eps, work, own, True)
        as_work(work).status.failure = 0
        drop = H0 - H
        wanted = 1 if math.isfinite(drop) and drop > math.log(SEARCH_TARGET) else -1
        if direction == 0:
            direction = wanted
        elif wanted != direction:
            return eps
        eps *= 2.0 if direction == 1 else 0.5
    control.search_failed += 1
    return start


@jit
def search_jump_size(model: tuple, z: np.ndarray, work: tuple, start: float, control: np.record) -> float:
    """Double or halve the jump size until the average of min(1, exp(change of log density)) crosses 1/2.

    Each discontinuous coordinate is moved separately from the point ``z``, in both directions. A stop ends the search.
    """
    w, q, n, jump, direction = views(work), as_point(z).q, as_work(work).options.n_discontinuous, start, 0
    for _ in range(MAX_DOUBLINGS):
        total = 0.0
        for j in range(q.shape[0]):
            if control.stop:
                return start
            if w.jumps[j] != 0:
                for sign in (-1, 1):
                    change = density_change(model, z, j, q[j] + sign * jump * w.scale[j], work)
                    total += math.exp(min(change, 0.0)) if not math.isnan(change) else 0.0
        wanted = 1 if total >= 2 * JUMP_SEARCH_TARGET * n else -1
        if direction == 0:
            direction = wanted
        elif wanted != direction:
            return jump
        jump *= 2.0 if direction == 1 else 0.5
    control.search_failed += direction == 1
    return start


@jit
def set_jump_size(settings: np.record, work: tuple) -> None:
    """Set the masses of the discontinuous coordinates for the step size and the jump size in ``settings``."""
    scale_jumps(work, settings.jump_size / settings.step_size)
