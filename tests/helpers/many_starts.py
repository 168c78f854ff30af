"""Transitions from many starts in one compiled call."""

from __future__ import annotations

import numpy as np

from refhmc.core import compiled, types
from refhmc.core import sample_stats as S
from refhmc.core.point import GRADIENT, LOG_DENSITY, Q
from refhmc.core.randomness import fill_normals
from refhmc.core.types import STATE
from refhmc.sampling.chain import Chain, close_notes, make_plan, open_notes


@compiled.entry(
    lambda: types.nb.void(
        types.TRANSITION,
        types.DYNAMICS,
        types.MODEL,
        types.WORKSPACE,
        types.RANDOMNESS,
        types.VECTOR,
        types.VECTOR,
        types.MATRIX,
        types.MATRIX,
        types.INTEGERS,
        types.nb.int64,
    ),
    "transitions from many starts on any metric",
)
def run_from_each(transition, dynamics, model, workspace, randomness, normals, settings, starts, stats, control, n):
    """Replace each row of ``starts`` by where ``n`` transitions take it; the last one's statistics."""
    points, _, vecs, mats, _ = workspace
    z, notes = points[STATE], dynamics[4]
    for k in range(starts.shape[0]):
        for i in range(starts.shape[1]):
            z[Q, i] = starts[k, i]
        z[LOG_DENSITY, 0] = model[0](z[Q], model[3], z[GRADIENT])
        for _ in range(n):
            fill_normals(randomness[0], normals)
            open_notes(notes, control)
            H0 = dynamics[1](model, dynamics[3], z, normals, vecs, mats, notes)
            stats[k, S.OUTCOME] = transition(dynamics, model, workspace, randomness, H0, settings, stats[k], control)
            close_notes(notes, stats[k], control)
        for i in range(starts.shape[1]):
            starts[k, i] = z[Q, i]


def from_each(model, kernel, starts: np.ndarray, seed: int, n_transitions: int = 1) -> tuple[np.ndarray, dict]:
    """Where ``n_transitions`` take each of the starts (n, d), and the last one's statistics."""
    chain = Chain(model, make_plan(model, kernel, 0), np.random.default_rng(seed))
    chain.plan.dynamics.compile(model.name)
    q, stats, plan = np.array(starts), np.zeros((len(starts), S.N_STATS)), chain.plan
    randomness, control = (chain.rng, np.zeros(0), np.zeros(1, np.int64)), np.zeros(types.N_CONTROL, np.int64)
    run_from_each(
        plan.transition,
        (*plan.dynamics.pointers, chain.notes),
        plan.dynamics.model,
        chain.workspace,
        randomness,
        chain.normals,
        chain.settings,
        q,
        stats,
        control,
        n_transitions,
    )
    return q, S.named(stats, kernel.statistics)
