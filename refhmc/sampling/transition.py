"""One transition of a kernel on recorded randomness: to replay it in another implementation and compare."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types as nb

from refhmc.core import types
from refhmc.core.compiled import entry
from refhmc.core.point import POINT_ROWS, VELOCITY, P, Q
from refhmc.core.sample_stats import N_STATS, OUTCOME, OUTCOMES, named
from refhmc.core.types import N_CONTROL
from refhmc.dynamics.discontinuous import DiscontinuousHamiltonian
from refhmc.dynamics.hamiltonian import Hamiltonian
from refhmc.errors import ShapeError
from refhmc.kernels import Gibbs
from refhmc.sampling.chain import Chain, close_notes, make_plan


class Transition(NamedTuple):
    """Where a transition went: ``q`` (d,), the momentum it began with, its statistics and outcome.

    ``uniforms_used`` counts how many of the recorded uniforms were consumed.
    """

    q: np.ndarray
    momentum: np.ndarray
    stats: dict
    outcome: str
    uniforms_used: int


@entry(
    lambda: nb.int64(
        types.TRANSITION,
        types.DYNAMICS,
        types.MODEL,
        types.WORKSPACE,
        types.RANDOMNESS,
        nb.float64,
        types.VECTOR,
        types.VECTOR,
        types.INTEGERS,
    ),
    "a single transition",
)
def run_transition(transition, dynamics, model, workspace, randomness, H0, settings, stats, control):
    """The transition, called from Python."""
    return transition(dynamics, model, workspace, randomness, H0, settings, stats, control)


def transition(model, kernel, q, *, momentum=None, normals=None, uniforms=None, rng=None) -> Transition:
    """One transition of ``kernel`` from ``q``, with its step size and metric as they are (nothing is adapted).

    The momentum is ``momentum``, or made from the standard ``normals``, or drawn from ``rng``. Further randomness is
    read from ``uniforms``, in the order of :mod:`refhmc.core.randomness` (a direction is "forward" for u < 1/2), or drawn
    from ``rng`` when that is None.

    Raises ShapeError on shapes, ValueError when the kernel has no step size or there is no source of randomness,
    IndexError when ``uniforms`` is too short.
    """
    if isinstance(kernel, Gibbs):
        raise TypeError("a single transition is of one kernel: replay a block's on refhmc.conditional(model, block, q)")
    if kernel.step_size is None:
        raise ValueError("a single transition needs the kernel's step_size")
    if rng is None and (uniforms is None or (momentum is None and normals is None)):
        raise ValueError("give rng, or both uniforms and one of momentum and normals")
    if uniforms is not None and np.size(uniforms) == 0:
        raise ValueError("uniforms must not be empty; leave it out to draw from rng")
    rng = np.random.default_rng(0) if rng is None else rng
    chain = Chain(model, make_plan(model, kernel, 0), rng)
    chain.start(model._position(q))
    z, dynamics = chain.state, chain.plan.dynamics
    H = (DiscontinuousHamiltonian if dynamics.pointers[0] == types.JUMPING else Hamiltonian)(model, dynamics.metric)
    dynamics.compile(model.name)
    if momentum is not None:
        z[P] = _vector("momentum", momentum, model.dim)
    else:
        normals = rng.standard_normal(model.dim) if normals is None else _vector("normals", normals, model.dim)
        z[P] = H._draw(z[Q], normals)
    H0 = H.energy(z[Q], z[P])
    z[VELOCITY] = H.grad_p(z[Q], z[P])
    z[POINT_ROWS:] = z[[Q, P][: len(z) - POINT_ROWS]]
    begun_with = z[P].copy()
    tape = np.zeros(0) if uniforms is None else np.ascontiguousarray(uniforms, dtype=float).ravel()
    cursor, stats = np.zeros(1, np.int64), np.zeros(N_STATS)
    outcome = run_transition(
        chain.plan.transition,
        (*dynamics.pointers, chain.notes),
        dynamics.model,
        chain.workspace,
        (rng, tape, cursor),
        H0,
        chain.settings,
        stats,
        np.zeros(N_CONTROL, np.int64),
    )
    stats[OUTCOME] = outcome
    close_notes.py_func(chain.notes, stats, np.zeros(N_CONTROL, np.int64))
    by_name = {name: value[()] for name, value in named(stats, kernel.statistics).items()}
    return Transition(z[Q].copy(), begun_with, by_name, OUTCOMES[outcome], int(cursor[0]))


def _vector(name: str, value, dim: int) -> np.ndarray:
    array = np.ascontiguousarray(value, dtype=float)
    if array.shape != (dim,):
        raise ShapeError(f"{name}: expected ({dim},), got {array.shape}")
    return array
