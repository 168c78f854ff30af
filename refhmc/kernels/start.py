"""Start of every transition: a fresh momentum at the state, p ~ N(0, G), and the energy H0 there.

An integrator that follows the parts of a split model in a random order also gets that order here.
"""

from __future__ import annotations

import math
from typing import Any

from refhmc.compile.compiled import jit
from refhmc.core import sample_stats as S
from refhmc.core.point import as_point
from refhmc.core.randomness import fill_normals
from refhmc.core.split_data import draw_order
from refhmc.core.types import as_dynamics, as_points, as_work, as_workspace
from refhmc.integrators.randomized_split import N_KNOWN


@jit
def begin(dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any) -> float:
    """Draw the momentum of the state, unless ``settings.keep_momentum``, and return H0, which may be not finite."""
    points, _, normals, own, work = as_workspace(workspace)
    dyn, draws = as_dynamics(dynamics), settings.keep_momentum == 0
    if draws:
        fill_normals(randomness[0], normals)
    draw_order(randomness, as_work(work).options.drawn_parts, own[N_KNOWN:])
    return dyn.refresh(model, dyn.metric, as_points(points).state, normals, draws, work)


@jit
def not_begun(state: Any, status: Any, settings: Any, stats: Any) -> int:
    """Fill in the statistics of a transition whose state has no finite energy H0, and return the outcome."""
    outcome = S.reason(status)
    stats.lp = as_point(state).log_density[0]
    stats.energy = stats.max_energy_error = math.inf
    stats.diverging = S.is_divergence(outcome)
    stats.step_size = stats.step_size_nom = settings.step_size
    return outcome
