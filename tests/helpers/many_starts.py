"""Transitions from many starts in one compiled call."""

from __future__ import annotations

import numpy as np

from refhmc.compile import compiled
from refhmc.core import sample_stats as S
from refhmc.core import types
from refhmc.core.point import as_point, copy_row
from refhmc.core.records import CONTROL, one, records
from refhmc.core.types import as_model, as_points, as_work, as_workspace
from refhmc.sampling.chains.chain import BlockState, make_plan, record_counters, reset_counters


@compiled.entry(
    lambda: types.nb.void(
        types.TRANSITION,
        types.DYNAMICS,
        types.MODEL,
        types.WORKSPACE,
        types.RANDOMNESS,
        types.SETTINGS,
        types.MATRIX,
        types.nb.Array(types.STATS_ROW, 1, "C"),
        types.CONTROL,
        types.nb.int64,
    ),
    "transitions from many starts on any metric",
)
def run_from_each(transition, dynamics, model, workspace, randomness, settings, starts, stats, control, n):
    """Replace each row of ``starts`` by where ``n`` transitions take it; the last one's statistics."""
    points, _, _, _, work = as_workspace(workspace)
    _, _, _, _, counters, status = as_work(work)
    f, state = as_model(model), as_point(as_points(points).state)
    for k in range(starts.shape[0]):
        copy_row(state.q, starts[k])
        settings.keep_momentum, settings.slice_variable = 0, 2.0  # nothing from the start before
        state.log_density[0] = f.value_and_gradient(state.q, f.data, state.gradient)
        for _ in range(n):
            reset_counters(counters, status, control)
            stats[k].outcome = transition(dynamics, model, workspace, randomness, settings, stats[k], control)
            record_counters(counters, status, stats[k], control)
        copy_row(starts[k], state.q)


def from_each(model, kernel, starts: np.ndarray, seed: int, n_transitions: int = 1) -> tuple[np.ndarray, dict]:
    """Where ``n_transitions`` take each of the starts (n, d), and the last one's statistics."""
    (block,) = make_plan(model, kernel, 0).blocks
    block.compile(model.name)
    q, stats, own = np.array(starts), np.zeros((len(starts), S.N_STATS)), BlockState(block)
    randomness = (np.random.default_rng(seed), np.zeros(0), np.zeros(1, np.int64))
    run_from_each(
        block.transition,
        block.dynamics.pointers,
        block.dynamics.model,
        own.workspace,
        randomness,
        own.settings[0],
        q,
        records(stats, S.STATS),
        one(CONTROL)[0],
        n_transitions,
    )
    return q, S.named(stats, kernel.statistics)
