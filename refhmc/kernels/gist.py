"""Gibbs self-tuning (GIST): a tuning parameter is drawn given (q, p), and its probability enters the acceptance.

Let z = (q, p) have density exp(-H(z)), and draw a parameter t, for example a number of steps, with probability P(t | z). Let
G(z, t) = (z', t') be its own inverse and keep volume in z. Then

    t ~ P(. | z),   (z', t') = G(z, t),   z <- z'  with probability  min(1, exp(H(z) - H(z')) P(t' | z') / P(t | z))

leaves exp(-H) invariant: it is a Metropolis step with a deterministic proposal for the joint density exp(-H(z)) P(t | z), of
which each transition draws p and t again. Bou-Rabee, Carpenter and Marsden (2024), arXiv 2404.15253. The frame is
:func:`self_tuning` on arrays and :func:`self_tuned` in compiled code. ``docs/guide/self_tuning.md`` has the proof, and NUTS
and the apogee-to-apogee path sampler as cases.

**The number of steps.** Let z_k be the state k steps after z. The number of steps to the U-turn is

    tau(z) = the smallest k <= max_steps with (q_k - q) . p_k <= 0,  or  abs(H(z_k) - H(z)) > 1000 or not finite.

(The derivative of the squared distance from q, in units of the mass matrix, is 2 (q_k - q) . p_k.) The parameter is t = L,

    L ~ uniform on {l, ..., tau(z)},   l = max(1, floor(fraction tau(z))),   G(z, L) = (F Psi^L z, L),

where Psi is one step and F reverses the momentum. Then tau(F Psi^L z) is the number of steps to the U-turn backward in time
from z_L, and the proposal is accepted with probability

    min(1, exp(H(z) - H(z_L)) (tau - l + 1) / (tau' - l' + 1))  if  l' <= L <= tau',   and otherwise 0.

``fraction=0`` is the uniform choice of the paper, and a larger one prefers the end of the path. The authors' program
leaves out the state at which the turn was found and uses {l, ..., tau - 1}.

The compiled implementation keeps the states of the path. The first L states backward from z_L are then known, so that a
transition costs tau(z) gradients, and one more for each state before z that the backward U-turn needs.

**Adaptation.** The acceptance probability does not tend to 1 for small steps, because L need not be possible at the other end.
Warm-up therefore adapts the step size to the average of min(1, exp(H(z) - H(z_L))).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.compiled import jit, jit_inline, jit_sum
from refhmc.core import sample_stats as S
from refhmc.core.arguments import share, whole_number
from refhmc.core.point import GRADIENT, LOG_DENSITY, VELOCITY, P, Q, copy_point, copy_row
from refhmc.core.randomness import bernoulli, uniform
from refhmc.core.types import as_points, as_work, as_workspace
from refhmc.integrators.defaults import resolve
from refhmc.integrators.step import integrator_step
from refhmc.kernels.drhmc import probability_of
from refhmc.kernels.ghmc import check_one_copy
from refhmc.kernels.hmc import (
    Energies,
    begin,
    end_with,
    flip_momentum,
    metropolis_probability,
    not_begun,
    trajectory,
    with_end,
)
from refhmc.kernels.options import check_options, solver_statistics, with_advice
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

LARGEST_DEPTH = 1_000_000  # steps of a path, whose states are kept


@with_advice
@dataclass(frozen=True, kw_only=True)
class GIST:
    """HMC with a number of steps that is drawn from those up to the U-turn (Gibbs self-tuning).

    One transition from q is::

        p ~ N(0, M)
        tau = number of steps from (q, p) to the U-turn:  the first k with  (q_k - q) . p_k <= 0
        L ~ uniform on {l, ..., tau},   l = max(1, floor(fraction * tau))
        q <- q_L  with probability  min(1, exp(H - H_L) (tau - l + 1) / (tau' - l' + 1))  if  l' <= L <= tau',  else 0

    Here tau' is the number of steps to the U-turn backward in time from (q_L, p_L), and l' its smallest choice. The ratio of
    the probabilities of L makes the transition exact.

    Parameters
    ----------
    step_size : float, optional
        Step size of the integrator. By default it is adapted in warm-up until the average of ``min(1, exp(H - H_L))`` is
        `target_accept`.
    fraction : float, default 0.5
        Fraction of the path, in [0, 1), before which no proposal is drawn. With 0, all states of the path are equally likely.
    max_steps : int, default 1024
        Largest number of steps to the U-turn, from 1 to 1,000,000. A chain keeps the states of its path, with five numbers for
        each step and coordinate.
    metric : object or str, optional
        A metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is :class:`refhmc.metrics.LowRank`. In
        a block of Gibbs, and with the backends ``"arrays"`` and ``"cupy"``, it is an adapted ``Diagonal()``.
    integrator : object or str, optional
        An explicit integrator of `refhmc.integrators`, or its name in lower case. Defaults to ``Leapfrog()``, or to
        ``BlockLeapfrog()`` for ``Hierarchical``.
    target_accept : float, optional
        Target of the adaptation, in (0, 1). Defaults to 0.8, or to 0.9 if the metric depends on the position.

    Raises
    ------
    ValueError
        If a number is out of range, if a name is unknown, or if the integrator is implicit, does not fit the metric, moves two
        copies of (q, p), or follows the parts of a split model.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    NUTS : Doubles the path in both directions of time, and accepts always.
    AutoStep : Draws the step size in the same frame.

    Notes
    -----
    The statistic ``chosen_steps`` is L, ``is_reversible`` whether L is possible at the other end, and ``n_steps`` counts all
    steps in both directions of time. ``acceptance_rate`` is ``min(1, exp(H - H_L))``, without the ratio of probabilities.

    References
    ----------
    - Bou-Rabee, Carpenter and Marsden (2024), GIST: Gibbs self-tuning for locally adaptive Hamiltonian Monte Carlo,
      arXiv 2404.15253.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 2.0]])
    >>> kernel = refhmc.GIST(step_size=0.3)
    >>> result = refhmc.sample(model, kernel, draws=100, tune=0, random_seed=1, progressbar=False, raw=True)
    >>> bool((result.sample_stats["n_steps"] >= result.sample_stats["chosen_steps"]).all())
    True
    """

    name = "gist"
    step_size: float | None = None
    fraction: float = 0.5
    max_steps: int = 1024
    metric: object = None
    integrator: object = None
    target_accept: float | None = None

    def __post_init__(self) -> None:
        check_options(self)
        share("fraction", self.fraction)
        whole_number("max_steps", self.max_steps, 1, LARGEST_DEPTH)
        check_explicit(self)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw."""
        return (*STATISTICS, "chosen_steps", "index_in_trajectory", *solver_statistics(self))

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return gist

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {"max_depth": self.max_steps, "fraction": self.fraction}


STATISTICS = (
    *("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "diverging", "step_size", "n_steps"),
    *("is_accepted", "is_reversible", "outcome"),
)


def check_explicit(kernel: Any) -> None:
    """Raise ValueError for an integrator that is implicit, moves two copies, or follows the parts of a split model."""
    check_one_copy(kernel)
    integrator = resolve(kernel.metric, kernel.integrator)[1]
    base, name = getattr(integrator, "base", integrator), type(kernel).__name__
    if integrator.implicit:
        raise ValueError(f"integrator must be explicit for {name}; got {type(base).__name__}. Use Leapfrog.")
    if getattr(base, "follows_parts", False):
        raise ValueError(
            f"integrator of {name} must not follow the parts of a split model; got {type(base).__name__}. Use Leapfrog()."
        )


# ----------------------------------------------------------------------------------------------------------- on arrays


class TunedMoves(NamedTuple):
    """Result of one transition with a drawn tuning parameter, on arrays.

    Parameters
    ----------
    q : array, shape (..., d)
        Positions after the transition.
    is_accepted : array, shape (...)
        Whether the proposals were accepted.
    probability : array, shape (...)
        Acceptance probabilities, with the ratio of the probabilities of the parameter.
    energy_error : array, shape (...)
        H - H0 of the proposals.
    parameter : object
        The parameter t that was drawn.
    is_reversible : array, shape (...)
        Whether the parameter t' has a positive probability at the other end.
    """

    q: Array
    is_accepted: Array
    probability: Array
    energy_error: Array
    parameter: Any
    is_reversible: Array


def self_tuning(
    H: Any, q: Array, p: Array, uniforms: Array, draw: Callable, log_probability: Callable, move: Callable
) -> TunedMoves:
    """Make one transition of Gibbs self-tuning, on arrays, for a parameter and a move of your own.

    The transition is::

        t ~ P(. | q, p),   (q', p', t') = G(q, p, t)
        q <- q'  with probability  min(1, exp(H(q, p) - H(q', p')) P(t' | q', p') / P(t | q, p))

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d)
        Momenta, which were just drawn.
    uniforms : array, shape (...)
        Uniform random numbers for the decisions.
    draw : callable
        ``draw(q, p)`` returns a parameter t, which may be any object.
    log_probability : callable
        ``log_probability(t, q, p)`` returns log P(t | q, p), (...), and -inf if `draw` cannot return t there.
    move : callable
        ``move(q, p, t)`` returns (q', p', t'). It must be its own inverse and keep volume.

    Returns
    -------
    TunedMoves
        Positions after the transition, acceptance, energy errors and parameters.
    """
    xp = batched.namespace(q)
    t = draw(q, p)
    new, end, back = move(q, p, t)
    error = H.energy(new, end) - H.energy(q, p)
    log_back = xp.asarray(log_probability(back, new, end))
    a = probability_of(log_back - log_probability(t, q, p) - error)
    accepted = uniforms < a
    possible = xp.isfinite(error) & (log_back > -xp.inf)
    return TunedMoves(xp.where(accepted[..., None], new, q), accepted, a, error, t, possible)


def transition(
    H: Any,
    step: Callable,
    q: Array,
    p: Array,
    uniforms: Array,
    *,
    step_size: float,
    fraction: float = 0.5,
    max_steps: int = 1024,
) -> TunedMoves:
    """Make one transition of GIST for each chain, on arrays.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
    step : callable
        One step of an integrator, from its ``on_arrays()``.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d)
        Momenta, which were just drawn.
    uniforms : array, shape (..., 2)
        Uniform random numbers for the number of steps and for the decision.
    step_size : float
        Step size.
    fraction : float, default 0.5
        Fraction of the path before which no proposal is drawn.
    max_steps : int, default 1024
        Largest number of steps to the U-turn.

    Returns
    -------
    TunedMoves
        Positions after the transition, acceptance, energy errors, and the numbers of steps as the parameter.
    """
    eps = step_size + 0.0 * q[..., 0]

    def range_of(q: Array, p: Array) -> tuple[Array, Array]:
        tau = steps_to_turn(H, step, q, p, eps, max_steps)
        return lowest_lengths(tau, fraction), tau

    def draw(q: Array, p: Array) -> Array:
        low, tau = range_of(q, p)
        return drawn_lengths(uniforms[..., 0], low, tau)

    def log_probability(L: Array, q: Array, p: Array) -> Array:
        low, tau = range_of(q, p)
        return log_probability_of(L, low, tau)

    def move(q: Array, p: Array, L: Array) -> tuple[Array, Array, Array]:
        (new, end), _, _ = trajectory(H, step, (q, p), eps, L)
        return new, -end, L

    return self_tuning(H, q, p, uniforms[..., 1], draw, log_probability, move)


def steps_to_turn(H: Any, step: Callable, q: Array, p: Array, eps: Array, max_steps: int) -> Array:
    """Return tau(q, p), (...)."""
    xp, z, H0 = batched.namespace(q), (q, p), H.energy(q, p)
    tau, moving = 0.0 * H0, xp.isfinite(H0)
    for _ in range(max_steps):
        end = step(H, *z, eps[..., None])
        z = tuple(xp.where(moving[..., None], new, old) for new, old in zip(end, z, strict=True))
        tau = xp.where(moving, tau + 1, tau)
        moving = moving & ~has_turned(q, *z, H.energy(*z) - H0)
        if not xp.any(moving):
            break
    return xp.where(xp.isfinite(H0), tau, 1.0)


def has_turned(start: Array, q: Array, p: Array, error: Array) -> Array:
    """Return whether a path from ``start`` ends at (q, p)."""
    xp = batched.namespace(q)
    return ~(batched.dot(q - start, p) > 0) | ~(xp.abs(error) <= S.MAX_ENERGY_SPREAD)


def lowest_lengths(tau: Array, fraction: float) -> Array:
    """Return l = max(1, floor(fraction tau))."""
    xp = batched.namespace(tau)
    return xp.clip(xp.floor(fraction * tau), 1.0, None)


def drawn_lengths(uniforms: Array, low: Array, tau: Array) -> Array:
    """Return L, uniform on {low, ..., tau}."""
    xp = batched.namespace(tau)
    return xp.minimum(low + xp.floor(uniforms * (tau - low + 1)), tau)


def log_probability_of(L: Array, low: Array, tau: Array) -> Array:
    """Return log P(L | z)."""
    xp, possible = batched.namespace(tau), (low <= L) & (tau >= L)
    return xp.where(possible, -xp.log(xp.where(possible, tau - low + 1, 1.0)), -xp.inf)


# ------------------------------------------------------------------------------------------------------------ compiled


class Tuned(NamedTuple):
    """A parameter t that was drawn at z, and its move, which the candidate has made.

    The numbers in ``t`` are for the kernel's own use. ``rate`` is the statistic ``acceptance_rate``.
    """

    t: tuple
    log_probability: float
    energies: Energies
    eps: float
    rate: float


@jit_inline
def self_tuned(
    draw_and_move: Callable,
    log_probability_back: Callable,
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: Any,
    stats: Any,
    control: Any,
) -> int:
    """Make one transition of Gibbs self-tuning from the state, with a fresh momentum, and return its outcome.

    ``draw_and_move`` returns :class:`Tuned`, and ``log_probability_back`` log P(t' | z'). Both count their steps in
    ``stats.n_steps``.
    """
    points, _, _, _, work = as_workspace(workspace)
    at, status = as_points(points), as_work(work).status
    H0 = begin(dynamics, model, workspace, randomness, settings)
    if not math.isfinite(H0):
        return not_begun(at.state, status, settings, stats)
    tuned = draw_and_move(dynamics, model, workspace, randomness, settings, H0, stats, control)
    H, back = tuned.energies.end, -math.inf
    if math.isfinite(H):
        back = log_probability_back(dynamics, model, workspace, settings, H0, tuned, stats, control)
    if control.stop:
        return S.INTERRUPTED
    accepted = bernoulli(randomness, metropolis_probability(back - tuned.log_probability - (H - H0)))
    flip_momentum(at.candidate)
    n = int(stats.n_steps)
    outcome = end_with(at, accepted, tuned.rate, tuned.energies, tuned.eps, settings.step_size, n, status, stats)
    stats.is_reversible = back > -math.inf
    return outcome


@jit_sum
def growth(start: np.ndarray, q: np.ndarray, p: np.ndarray) -> float:
    """Return (q - start) . p."""
    total = 0.0
    for i in range(q.shape[0]):
        total += (q[i] - start[i]) * p[i]
    return total


@jit_inline
def ends_path(start: np.ndarray, z: np.ndarray, sign: float, error: float) -> bool:
    """Return whether a path from the point ``start``, forward or backward in time, ends at the point ``z``."""
    return not (sign * growth(start[Q], z[Q], z[P]) > 0 and abs(error) <= S.MAX_ENERGY_SPREAD)


@jit_inline
def remember(row: np.ndarray, z: np.ndarray, H: float) -> None:
    """Copy the state of a point, its momentum and its energy, in the row of the velocity."""
    copy_row(row[Q], z[Q])
    copy_row(row[P], z[P])
    copy_row(row[GRADIENT], z[GRADIENT])
    row[VELOCITY, 0], row[LOG_DENSITY, 0] = H, z[LOG_DENSITY, 0]


@jit_inline
def lowest_length(tau: int, fraction: float) -> int:
    """Return l = max(1, floor(fraction tau))."""
    return max(1, math.floor(fraction * tau))


@jit
def draw_length(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: Any,
    H0: float,
    stats: Any,
    control: Any,
) -> Tuned:
    """Follow the path to the U-turn, draw L, and set the candidate to z_L."""
    points, path, _, own, work = as_workspace(workspace)
    at, eps = as_points(points), settings.step_size
    z, H, tau, energies = at.candidate, H0, 0, Energies(H0, H0, H0, H0, 0.0)
    copy_point(z, at.state)
    remember(path[0], z, H0)
    turned = False
    while not turned and tau < settings.max_depth and not control.stop:
        tau += 1
        H = integrator_step(dynamics, model, z, eps, work, own, True)
        remember(path[tau], z, H)
        energies = with_end(energies, H) if math.isfinite(H) else Energies(H0, H, energies.lowest, math.inf, math.inf)
        turned = ends_path(path[0], z, 1.0, H - H0)
    low = lowest_length(tau, settings.fraction)
    L = min(low + int(uniform(randomness) * (tau - low + 1)), tau)
    for row in (Q, P, GRADIENT):
        copy_row(z[row], path[L, row])
    z[LOG_DENSITY, 0], H = path[L, LOG_DENSITY, 0], path[L, VELOCITY, 0]
    energies = Energies(H0, H, energies.lowest, energies.highest, energies.worst)
    stats.n_steps, stats.chosen_steps = tau, L
    return Tuned((L,), -math.log(tau - low + 1), energies, eps, metropolis_probability(H0 - H))


@jit
def log_probability_of_length(
    dynamics: tuple, model: tuple, workspace: tuple, settings: Any, H0: float, tuned: Tuned, stats: Any, control: Any
) -> float:
    """Return log P(L | z_L with its momentum reversed), from the states of the path and those before it."""
    points, path, _, own, work = as_workspace(workspace)
    at, (L,), eps, H = as_points(points), tuned.t, tuned.eps, tuned.energies.end
    z, tau, turned = at.spare, 0, False
    copy_point(z, at.state)
    while not turned and tau < settings.max_depth and not control.stop:
        tau += 1
        if lowest_length(tau, settings.fraction) > L:
            return -math.inf
        if tau <= L:
            turned = ends_path(path[L], path[L - tau], -1.0, path[L - tau, VELOCITY, 0] - H)
        else:
            stats.n_steps += 1
            error = integrator_step(dynamics, model, z, -eps, work, own, True) - H
            turned = ends_path(path[L], z, -1.0, error)
    return -math.log(tau - lowest_length(tau, settings.fraction) + 1) if tau >= L else -math.inf


@jit
def gist(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make one transition from the state, with a fresh momentum, and return its outcome."""
    outcome = self_tuned(
        draw_length,
        log_probability_of_length,
        dynamics,
        model,
        workspace,
        randomness,
        settings,
        stats,
        control,
    )
    if stats.is_accepted:
        stats.index_in_trajectory = stats.chosen_steps
    return outcome
