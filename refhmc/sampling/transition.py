"""One transition of a kernel on recorded randomness: to replay it in another implementation and compare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types as nb

from refhmc.core import types
from refhmc.core.compiled import entry
from refhmc.core.point import P, Q
from refhmc.core.records import one
from refhmc.core.sample_stats import N_STATS, OUTCOMES, STATS, named
from refhmc.core.types import as_work, as_workspace
from refhmc.dynamics.discontinuous import DiscontinuousHamiltonian
from refhmc.dynamics.hamiltonian import Hamiltonian
from refhmc.errors import ShapeError
from refhmc.kernels.blocks import ALL, blocks_of
from refhmc.sampling.chain import BlockState, control_record, make_plan, record_counters

if TYPE_CHECKING:
    from refhmc.models.base import Model


class Transition(NamedTuple):
    """Where a transition went: ``q`` (d,), the momentum it began with, its statistics and outcome.

    ``uniforms_used`` counts how many of the recorded uniforms were consumed. ``probabilities`` (uniforms_used,): what each
    was compared with to decide something; where it was not (a direction, a jitter), the uniform itself.
    """

    q: np.ndarray
    momentum: np.ndarray
    stats: dict
    outcome: str
    uniforms_used: int
    probabilities: np.ndarray


@entry(
    lambda: nb.int64(
        types.TRANSITION,
        types.DYNAMICS,
        types.MODEL,
        types.WORKSPACE,
        types.RANDOMNESS,
        types.SETTINGS,
        types.STATS_ROW,
        types.CONTROL,
    ),
    "a single transition",
)
def run_transition(
    transition: Callable,
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: Any,
    stats: Any,
    control: Any,
) -> int:
    """The transition, called from Python, with its counts in ``stats``."""
    work = as_work(as_workspace(workspace).work)
    outcome = transition(dynamics, model, workspace, randomness, settings, stats, control)
    stats.outcome = outcome
    record_counters(work.counters, work.status, stats, control)
    return outcome


def transition(
    model: Model,
    kernel: Any,
    q: np.ndarray,
    *,
    momentum: np.ndarray | None = None,
    normals: Any = None,
    uniforms: np.ndarray | None = None,
    rng: Any = None,
) -> Transition:
    """One transition of ``kernel`` from ``q``, with its step size and metric as they are (nothing is adapted).

    The momentum is ``momentum``, or made from the standard ``normals``, or drawn from ``rng``; of SGD and SGLD it is zero
    unless given. Further randomness is read from ``uniforms``, in the order of :mod:`refhmc.core.randomness` (a direction is
    "forward" for u < 1/2), or drawn from ``rng`` when that is None.

    Raises ShapeError on shapes, ValueError when the kernel has no step size or there is no source of randomness,
    IndexError when ``uniforms`` is too short.
    """
    if ALL not in blocks_of(kernel):
        raise TypeError("a single transition is of one kernel: replay a block's on refhmc.conditional(model, block, q)")
    if kernel.step_size is None:
        raise ValueError("a single transition needs the kernel's step_size")
    if momentum is None and normals is None and getattr(kernel, "begins_at_rest", False):
        momentum = np.zeros(model.dim)
    if rng is None and (uniforms is None or (momentum is None and normals is None)):
        raise ValueError("give rng, or both uniforms and one of momentum and normals")
    if uniforms is not None and np.size(uniforms) == 0:
        raise ValueError("uniforms must not be empty; leave it out to draw from rng")
    rng = np.random.default_rng(0) if rng is None else rng
    (block,) = make_plan(model, kernel, 0).blocks
    own = BlockState(block)
    own.start(model._position(q))
    z, dynamics = own.state, block.dynamics
    H = (DiscontinuousHamiltonian if dynamics.pointers[0] == types.JUMPING else Hamiltonian)(model, dynamics.metric)
    dynamics.compile(model.name)
    if momentum is not None:
        z[P] = _vector("momentum", momentum, model.dim)
    else:
        normals = rng.standard_normal(model.dim) if normals is None else _vector("normals", normals, model.dim)
        z[P] = H._draw(z[Q], normals)
    begun_with = z[P].copy()
    own.settings.keep_momentum = 1
    tape = np.zeros(0) if uniforms is None else np.array(uniforms, dtype=float, order="C").ravel()
    cursor, stats = np.zeros(1, np.int64), one(STATS)
    outcome = run_transition(
        block.transition,
        dynamics.pointers,
        dynamics.model,
        own.workspace,
        (rng, tape, cursor),
        own.settings[0],
        stats[0],
        control_record(None),
    )
    by_name = {name: value[()] for name, value in named(stats.view(float).reshape(N_STATS), kernel.statistics).items()}
    return Transition(z[Q].copy(), begun_with, by_name, OUTCOMES[outcome], int(cursor[0]), tape[: cursor[0]])


def _vector(name: str, value: np.ndarray, dim: int) -> np.ndarray:
    array = np.ascontiguousarray(value, dtype=float)
    if array.shape != (dim,):
        raise ShapeError(f"{name}: expected ({dim},), got {array.shape}")
    return array
