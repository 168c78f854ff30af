"""One transition of a kernel with recorded random numbers, to compare it with another implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import types as nb

from refhmc.compile.compiled import entry
from refhmc.core import types
from refhmc.core.point import P, Q
from refhmc.core.records import CONTROL, one
from refhmc.core.sample_stats import N_STATS, OUTCOMES, STATS, named
from refhmc.core.types import as_work, as_workspace
from refhmc.dynamics.discontinuous import DiscontinuousHamiltonian
from refhmc.dynamics.hamiltonian import Hamiltonian
from refhmc.errors import ShapeError
from refhmc.kernels.blocks import ALL, blocks_of
from refhmc.kernels.options import Kernel
from refhmc.sampling.chains.chain import BlockState, make_plan, record_counters

if TYPE_CHECKING:
    from refhmc.models.base import Model


class Transition(NamedTuple):
    """Outcome of :func:`transition`.

    Parameters
    ----------
    q : ndarray of shape (d,)
        Position after the transition.
    momentum : ndarray of shape (d,)
        Momentum at its start.
    stats : dict of str to scalar
        Statistics of the transition, such as ``energy_error``.
    outcome : str
        One of :data:`refhmc.diagnostics.OUTCOMES`, such as "accepted".
    uniforms_used : int
        Number of recorded uniforms that were used.
    probabilities : ndarray of shape (uniforms_used,)
        Probability that each uniform was compared with, or the uniform itself if it was not compared (a direction, a jitter).
    kept_momentum : ndarray of shape (d,), or None
        Momentum after it, of a kernel that keeps its momentum: GHMC, DRHMC and SGHMC.
    """

    q: np.ndarray
    momentum: np.ndarray
    stats: dict
    outcome: str
    uniforms_used: int
    probabilities: np.ndarray
    kept_momentum: np.ndarray | None = None


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
    settings: np.record,
    stats: np.record,
    control: np.record,
) -> int:
    """Run a transition from Python and write its counts into `stats`."""
    work = as_work(as_workspace(workspace).work)
    outcome = transition(dynamics, model, workspace, randomness, settings, stats, control)
    stats.outcome = outcome
    record_counters(work.counters, work.status, stats, control)
    return outcome


def transition(
    model: Model,
    kernel: Kernel,
    q: np.ndarray,
    *,
    momentum: np.ndarray | None = None,
    normals: np.ndarray | None = None,
    uniforms: np.ndarray | None = None,
    rng: np.random.Generator | None = None,
    slice_variable: float | None = None,
) -> Transition:
    """Make one transition of a kernel, with given random numbers if you like.

    Use this to replay a transition in another implementation and compare. Nothing is adapted. Random decisions use `uniforms`
    in the order of :mod:`refhmc.core.randomness`: a direction is forward for u < 1/2, and a proposal is accepted for u below
    its probability.

    Parameters
    ----------
    model : Model
        The model.
    kernel : kernel
        A kernel with a step size, such as ``HMC(step_size=0.1, n_steps=10)``, but not ``Gibbs``.
    q : array_like of shape (d,)
        Position at which the transition starts.
    momentum : array_like of shape (d,), optional
        Momentum at the start. Defaults to a draw from its distribution, or to zero for SGD and SGLD. GHMC, DRHMC, MCLMC and
        MAMS with a `persistence` keep a share of it and refresh the rest.
    normals : array_like of shape (d,), optional
        Standard normal numbers from which the momentum is computed, if `momentum` is None. GHMC and DRHMC refresh the momentum
        with them in any case.
    uniforms : array_like, optional
        Uniform numbers for the random decisions. For MALT and MCLMC, also the standard normals of the later refreshments, in
        their places. By default they are drawn from `rng`.
    rng : numpy.random.Generator, optional
        Source of all numbers that are not given. It is required unless `uniforms` and the momentum are given, or for GHMC and
        DRHMC `uniforms` and `normals`.
    slice_variable : float, optional
        Slice variable of GHMC with a `slice_shift`, in [-1, 1]. By default it is drawn with the first of the uniforms.

    Returns
    -------
    Transition
        A named tuple of the new position ``q``, the initial ``momentum``, the statistics ``stats``, the ``outcome``, the number
        ``uniforms_used``, the ``probabilities`` with which the uniforms were compared, and the ``kept_momentum``.

    Raises
    ------
    ValueError
        If the kernel has no step size, if random numbers are missing, or if `slice_variable` is outside [-1, 1].
    ShapeError
        If `q`, `momentum` or `normals` has the wrong shape.
    IndexError
        If `uniforms` is too short.
    TypeError
        If the kernel has several blocks.

    Examples
    --------
    >>> import numpy as np
    >>> import refhmc
    >>> model, kernel = refhmc.models.Funnel(2), refhmc.HMC(step_size=0.1, n_steps=5)
    >>> made = refhmc.transition(model, kernel, [0.1, 0.2, 0.3], normals=[1.0, -1.0, 0.5], uniforms=[0.3])
    >>> made.outcome, made.uniforms_used, made.q.shape
    ('accepted', 1, (3,))
    """
    if ALL not in blocks_of(kernel):
        raise TypeError(
            "kernel must not have several blocks. Make a block's transition on refhmc.conditional(model, block, q)."
        )
    if kernel.step_size is None:
        raise ValueError("step_size of the kernel must be given for a single transition; got None.")
    if momentum is None and normals is None and getattr(kernel, "begins_at_rest", False):
        momentum = np.zeros(model.dim)
    keeps_momentum = getattr(kernel, "keeps_momentum", False)
    if rng is None and (uniforms is None or ((momentum is None or keeps_momentum) and normals is None)):
        raise ValueError("rng must be given unless both uniforms and one of momentum and normals are given.")
    if uniforms is not None and np.size(uniforms) == 0:
        raise ValueError("uniforms must not be empty. Omit it to draw from rng.")
    if keeps_momentum and normals is not None and uniforms is None:
        raise ValueError(f"uniforms must be given with normals for {type(kernel).__name__}; got None.")
    if slice_variable is not None and not -1 <= slice_variable <= 1:
        raise ValueError(f"slice_variable must lie in [-1, 1]; got {slice_variable!r}.")
    rng = np.random.default_rng(0) if rng is None else rng
    (block,) = make_plan(model, kernel, 0).blocks
    own = BlockState(block)
    own.start(model._position(q))
    z, dynamics = own.state, block.dynamics
    metric: Any = dynamics.metric
    H = (DiscontinuousHamiltonian if dynamics.pointers[0] == types.JUMPING else Hamiltonian)(model, metric)
    dynamics.compile(model.name)
    own.settings.keep_momentum = 1
    if momentum is not None:
        z[P] = _vector("momentum", momentum, model.dim)
    else:
        normals = rng.standard_normal(model.dim) if normals is None else _vector("normals", normals, model.dim)
        z[P] = H._draw(z[Q], normals)
        own.settings.keep_momentum = int(not keeps_momentum or uniforms is None)
    initial = z[P].copy()
    if slice_variable is not None:
        own.settings.slice_variable = slice_variable
    tape = np.zeros(0) if uniforms is None else np.array(uniforms, dtype=float, order="C").ravel()
    first = 0
    if keeps_momentum and uniforms is not None:  # its normals precede the uniforms
        normals = rng.standard_normal(model.dim) if normals is None else _vector("normals", normals, model.dim)
        tape, first = np.concatenate([normals, tape]), model.dim
    cursor, stats = np.zeros(1, np.int64), one(STATS)
    outcome = run_transition(
        block.transition,
        dynamics.pointers,
        dynamics.model,
        own.workspace,
        (rng, tape, cursor),
        own.settings[0],
        stats[0],
        one(CONTROL)[0],
    )
    by_name = {name: value[()] for name, value in named(stats.view(float).reshape(N_STATS), kernel.statistics).items()}
    used = int(cursor[0])
    kept = z[P].copy() if keeps_momentum or block.minibatches else None
    return Transition(z[Q].copy(), initial, by_name, OUTCOMES[outcome], max(used - first, 0), tape[first:used], kept)


def _vector(name: str, value: np.ndarray, dim: int) -> np.ndarray:
    array = np.ascontiguousarray(value, dtype=float)
    if array.shape != (dim,):
        raise ShapeError(f"{name} must have shape ({dim},); got {array.shape}.")
    return array
