"""Static Hamiltonian Monte Carlo: a fresh momentum, a fixed number of steps, one Metropolis decision.

    p ~ N(0, M);   (q*, p*) = (one step)^n (q, p);   q <- q* with probability min(1, exp(H(q, p) - H(q*, p*)))

Gram-Hansen's notes, Algorithm 2 with its errata: the denominator is exp(-U - K). The reversed momentum -p* makes the proposal
symmetric and is not needed afterwards, since the next transition draws a new momentum. Neal (2011), sec. 3.2.

The step size may be jittered, eps (1 + j (2u - 1)) with u uniform, against periodic orbits. The number of steps may be
jittered too, from n to round(n (1 + l (2u - 1))). Both are drawn before the trajectory and do not depend on the state. Each
value gives a kernel that keeps the target, and so does their mixture. A trajectory is never cut short because its energy error
is large, which would not be reversible. Only a non-finite energy ends it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from refhmc.compile.compiled import invariant, jit, jit_inline
from refhmc.core import sample_stats as S
from refhmc.core.point import as_point, copy_point, copy_state
from refhmc.core.randomness import bernoulli, draw_order, fill_normals, uniform
from refhmc.core.types import as_dynamics, as_points, as_work, as_workspace
from refhmc.integrators.step import integrator_step
from refhmc.kernels.options import check_jitter, check_length, check_options, solver_statistics, with_advice
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

if TYPE_CHECKING:
    from refhmc.core.types import Points

MAX_STEPS = 1024  # when a trajectory length is given and the step size is tiny


@with_advice
@dataclass(frozen=True, kw_only=True)
class HMC:
    """Static Hamiltonian Monte Carlo: a fixed number of steps, then one Metropolis decision.

    One transition from the position q is::

        p ~ N(0, M)
        (q*, p*) = (one step of the integrator)^n (q, p)
        q <- q*  with probability  min(1, exp(H(q, p) - H(q*, p*)))

    The step size and the number of steps may be jittered. Both are drawn before the trajectory and do not depend on the state.
    Each value therefore gives a kernel that keeps the target distribution, and so does the mixture. Only a non-finite energy
    ends a trajectory early.

    Parameters
    ----------
    step_size : float, optional
        Step size of the integrator. By default it is adapted in warm-up until the acceptance rate is `target_accept`.
    n_steps : int, optional
        Number of steps per trajectory. Give `n_steps` or `trajectory_length`, not both.
    trajectory_length : float, optional
        Length of a trajectory, ``n_steps * step_size``. The number of steps is rounded to a whole number from 1 to 1,024. If
        neither `n_steps` nor `trajectory_length` is given, each chain learns the length in warm-up. The result has it in its
        attribute ``trajectory_length`` (``trajectory_length_x`` for the block ``x`` of Gibbs). In a single transition, without
        warm-up, and with the backends ``"arrays"`` and ``"cupy"``, nothing can be learned. The length is pi/2 then, which
        decorrelates the draws of a standard normal target.
    step_jitter : float, default 0.0
        Relative half-width, in [0, 1), of the uniform jitter of the step size.
    length_jitter : float, optional
        Relative half-width, in [0, 1), of the uniform jitter of the number of steps, which is then rounded to at least 1.
        Defaults to 0, or to 0.5 if the trajectory length is adapted.
    metric : object or str, optional
        A metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is :class:`refhmc.metrics.LowRank`,
        which starts diagonal and adds directions in warm-up if they reduce the cost. If `integrator` is not given and warm-up
        detects a funnel, the metric becomes :class:`refhmc.metrics.Hierarchical`, with explicit Riemannian steps. In a block of
        Gibbs, and with the backends ``"arrays"`` and ``"cupy"``, ``"auto"`` is an adapted ``Diagonal()``.
    integrator : object or str, optional
        An integrator of `refhmc.integrators`, or its name in lower case. Defaults to ``Leapfrog()``, or to
        ``ImplicitMidpoint()`` if the metric depends on the position, or to ``BlockLeapfrog()`` for ``Hierarchical``.
    target_accept : float, optional
        Target acceptance rate, in (0, 1). Defaults to 0.8. If the metric depends on the position, the default is 0.9, and 0.98
        if the integrator is implicit or approximate.

    Raises
    ------
    ValueError
        If a number is out of range, if both `n_steps` and `trajectory_length` are given, if a name is unknown, or if the
        integrator does not fit the metric.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    NUTS : Chooses the length of each trajectory by itself.
    DHMC : For densities with jumps.

    Notes
    -----
    To draw the number of steps uniformly from 1, ..., L, give ``trajectory_length=step_size * (L + 1) / 2`` and
    ``length_jitter=L / (L + 1)``. The program of Brofos and Lederman (2021) does this by default, but not in the runs of
    their tables. The programs of Betancourt (2013) and of Cobb et al. (2019) use a fixed number of steps. Betancourt's
    program jitters the step size by 5 %.

    References
    ----------
    - Gram-Hansen, notes on HMC and discontinuous HMC, Algorithm 2. Errata: the denominator of the acceptance probability is
      exp(-U - K). The reversed momentum -p* makes the proposal symmetric and is not needed afterwards.
    - Neal (2011), MCMC using Hamiltonian dynamics, section 3.2.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 2.0]])
    >>> kernel = refhmc.HMC(step_size=0.5, n_steps=5)
    >>> result = refhmc.sample(model, kernel, draws=100, tune=0, random_seed=1, progressbar=False, raw=True)
    >>> result.draws.shape
    (4, 100, 2)
    >>> int(result.sample_stats["n_steps"].max())
    5
    """

    name = "hmc"
    step_size: float | None = None
    n_steps: int | None = None
    trajectory_length: float | None = None
    step_jitter: float = 0.0
    length_jitter: float | None = None
    metric: object = None
    integrator: object = None
    target_accept: float | None = None

    def __post_init__(self) -> None:
        check_options(self)
        check_length(self)
        check_jitter(self, "step_jitter", *([] if self.length_jitter is None else ["length_jitter"]))

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw; ``step_size_nom`` is included if the step size is jittered."""
        names = ("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "diverging", "step_size")
        nominal = ("step_size_nom",) if self.step_jitter > 0 else ()
        return (*names, *nominal, "n_steps", "int_time", "is_accepted", "outcome", *solver_statistics(self))

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return hmc

    @property
    def learns_length(self) -> bool:
        """Whether warm-up learns the trajectory length."""
        return self.n_steps is None and self.trajectory_length is None

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        length = math.pi / 2 if self.learns_length else self.trajectory_length
        return {
            "jitter": self.step_jitter,
            "length_jitter": self.length_jitter or 0.0,
            "n_steps": self.n_steps or 0,
            "trajectory_length": length or 0.0,
        }


class Moves(NamedTuple):
    """Result of one transition of many chains on arrays.

    Parameters
    ----------
    q : array, shape (..., d)
        Positions after the transition.
    is_accepted : array, shape (...)
        Whether the proposals were accepted.
    acceptance_rate : array, shape (...)
        Acceptance probabilities of the proposals.
    energy_error : array, shape (...)
        H - H0 of the proposals.
    n_steps : array, shape (...)
        Numbers of steps of the trajectories.
    """

    q: Array
    is_accepted: Array
    acceptance_rate: Array
    energy_error: Array
    n_steps: Array


def transition(
    H: Any,
    step: Callable,
    q: Array,
    p: Array,
    uniforms: Array,
    *,
    step_size: float,
    n_steps: float,
    step_jitter: float = 0.0,
    length_jitter: float = 0.0,
    copies: int = 1,
) -> Moves:
    """Make one transition of static HMC for each chain, on arrays.

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
    uniforms : array, shape (..., k)
        Uniform random numbers, used in the order in which the transition needs them.
    step_size : float
        Step size before jitter.
    n_steps : float
        Number of steps before jitter and rounding.
    step_jitter : float, default 0.0
        Relative half-width of the jitter of the step size.
    length_jitter : float, default 0.0
        Relative half-width of the jitter of the number of steps.
    copies : int, default 1
        2 for a `step` that moves two copies of (q, p), as that of ``ExplicitTao`` does.

    Returns
    -------
    Moves
        Positions after the transition, and acceptance, energy error and number of steps of each chain.
    """
    eps, n, used = jittered(q, uniforms, step_size, n_steps, step_jitter, length_jitter)
    z, energy, done = trajectory(H, step, (q, p) * copies, eps, n)
    return accept(q, z[0], energy - H.energy(q, p), uniforms[..., used], done)


def jittered(
    q: Array, uniforms: Array, step_size: float, n_steps: float, step_jitter: float, length_jitter: float
) -> tuple[Array, Array, int]:
    """Return the step sizes and the whole numbers of steps, (...), and how many uniforms they used."""
    xp, used = batched.namespace(q), 0
    eps, n = step_size + 0.0 * q[..., 0], n_steps + 0.0 * q[..., 0]
    if step_jitter > 0:
        eps, used = eps * (1 + step_jitter * (2 * uniforms[..., used] - 1)), used + 1
    if length_jitter > 0:
        n, used = n * (1 + length_jitter * (2 * uniforms[..., used] - 1)), used + 1
    n = xp.round(n)
    return eps, xp.where(n < 1, 1.0, n), used


def trajectory(H: Any, step: Callable, z: tuple, eps: Array, n: Array) -> tuple[tuple, Array, Array]:
    """Make n steps for each chain and return the ends, the energies there and the steps made.

    A chain that has finished, or has no finite energy, waits for the others.
    """
    xp, energy, done = batched.namespace(n), H.energy(z[0], z[1]), 0.0 * n
    while xp.any(moving := xp.isfinite(energy) & (done < n)):
        end = step(H, *z, eps[..., None])
        z = tuple(xp.where(moving[..., None], new, old) for new, old in zip(end, z, strict=True))
        energy = xp.where(moving, H.energy(z[0], z[1]), energy)
        done = xp.where(moving, done + 1, done)
    return z, energy, done


def accept(q: Array, proposal: Array, energy_error: Array, uniforms: Array, n_steps: Array) -> Moves:
    """Take the proposal where u < min(1, exp(-(H - H0)))."""
    xp = batched.namespace(q)
    down = xp.where(energy_error > 0, -energy_error, 0.0)
    probability = xp.where(xp.isfinite(energy_error), xp.exp(down), 0.0)
    accepted = uniforms < probability
    return Moves(xp.where(accepted[..., None], proposal, q), accepted, probability, energy_error, n_steps)


@jit
def begin(dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any) -> float:
    """Draw the momentum of the state, unless ``settings.keep_momentum``, and return H0, which may be not finite.

    An integrator that follows the parts of a split model in a random order also gets that order here.
    """
    points, _, normals, own, work = as_workspace(workspace)
    dyn, draws = as_dynamics(dynamics), settings.keep_momentum == 0
    if draws:
        fill_normals(randomness[0], normals)
    if as_work(work).options.drawn_parts > 0:
        draw_order(randomness, as_work(work).options.drawn_parts, own)
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


@jit
def jittered_step(randomness: tuple, settings: Any) -> float:
    """Return the step size of this trajectory."""
    eps = settings.step_size
    if settings.jitter > 0:
        eps *= 1 + settings.jitter * (2 * uniform(randomness) - 1)
    return eps


@jit
def jittered_length(randomness: tuple, settings: Any) -> int:
    """Return the number of steps of this trajectory.

    This is the requested number, from the step size before jitter, times 1 + l (2u - 1), rounded.
    """
    length = float(settings.n_steps)
    if settings.n_steps == 0:
        length = settings.trajectory_length / settings.step_size
    if settings.length_jitter > 0:
        length *= 1 + settings.length_jitter * (2 * uniform(randomness) - 1)
    if settings.n_steps > 0:
        return int(max(round(length), 1))
    return int(min(max(round(length), 1), MAX_STEPS if settings.max_depth == 0 else 2**settings.max_depth))


class Energies(NamedTuple):
    """Energies of a trajectory: at its start and end, the least and the largest, and the error H - H0 of largest magnitude.

    The last is of finite energies only. The least and the largest are used only if the end is finite.
    """

    start: float
    end: float
    lowest: float
    highest: float
    worst: float


@jit_inline
def with_end(energies: Energies, H: float) -> Energies:
    """Return the energies of a trajectory that has moved on to a state of energy ``H``."""
    H0, _, lowest, highest, worst = energies
    # Not one `if` for all: LLVM then compiles selects instead of a branch that is often mispredicted.
    error = H - H0 if math.isfinite(H) else 0.0
    return Energies(H0, H, min(lowest, H), max(highest, H), error if abs(error) > abs(worst) else worst)


@jit_inline
def compiled_trajectory(
    record: Callable | None,
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    settings: Any,
    H0: float,
    eps: float,
    n_steps: int,
    control: Any,
) -> tuple[Energies, int]:
    """Move the candidate by n steps from the state; return the energies and the number of steps made.

    A stop or an energy that is not finite ends the trajectory early. Unless ``record`` is None, the function is called
    after each step.
    """
    points, path, _, own, work = as_workspace(workspace)
    z, energies, done = as_points(points).candidate, Energies(H0, H0, H0, H0, 0.0), 0
    copy_point(z, as_points(points).state)
    all_energies = settings.watched > 0 or as_work(work).options.spares_energy == 0
    while done < n_steps and math.isfinite(energies.end) and not control.stop:
        done += 1
        needs_energy = all_energies or done == n_steps
        H = integrator_step(dynamics, model, z, eps, work, own, needs_energy)
        if needs_energy or not math.isfinite(H):
            energies = with_end(energies, H)
        if record is not None:
            record(path, settings, as_point(z).q, H0 - H, done if math.isfinite(H) else n_steps)
    return energies, done


@jit_inline
def flip_momentum(z: np.ndarray) -> None:
    """Set p <- -p, which makes the proposal symmetric."""
    point = as_point(z)
    for i in range(z.shape[1]):
        point.p[i] = -point.p[i]


@jit_inline
def metropolis_probability(log_ratio: float) -> float:
    """Return min(1, exp(log_ratio)), and 0 if it is not finite."""
    return min(1.0, math.exp(min(log_ratio, 0.0))) if math.isfinite(log_ratio) else 0.0


@jit
def metropolis_accept(
    at: Points, randomness: tuple, energies: tuple, eps: float, nominal: float, done: int, status: Any, stats: Any
) -> int:
    """Take the candidate with probability min(1, exp(H0 - H)), fill in the statistics and return the outcome.

    ``energies`` are :class:`Energies`, or a tuple of these five numbers. A candidate whose energy is not finite is rejected.
    """
    accept_probability = metropolis_probability(energies[0] - energies[1])
    accepted = bernoulli(randomness, accept_probability)
    return end_with(at, accepted, accept_probability, energies, eps, nominal, done, status, stats)


@jit
def end_with(
    at: Points,
    accepted: bool,
    accept_probability: float,
    energies: tuple,
    eps: float,
    nominal: float,
    done: int,
    status: Any,
    stats: Any,
) -> int:
    """Take the candidate if it is accepted, fill in the statistics and return the outcome."""
    H0, H, lowest, highest, worst = energies
    finite = math.isfinite(H)
    if accepted:
        copy_state(at.state, at.candidate)
    invariant(0 <= accept_probability <= 1 and done >= 1)
    invariant(not finite or lowest <= min(H0, H) <= max(H0, H) <= highest)

    stats.lp = as_point(at.state).log_density[0]
    stats.energy = H if accepted else H0
    stats.energy_error = H - H0 if accepted else 0.0
    stats.acceptance_rate = accept_probability
    reason = S.reason(status) if not finite else S.DIVERGED
    stats.max_energy_error = worst if finite else S.error_without_energy(H, H0, worst, reason)
    diverging = S.is_divergence(reason) if not finite else highest - lowest > S.MAX_ENERGY_SPREAD
    stats.diverging = diverging
    stats.step_size, stats.step_size_nom = eps, nominal
    stats.n_steps, stats.int_time = done, done * eps
    stats.index_in_trajectory = done if accepted else 0
    stats.is_accepted = accepted
    if accepted:
        return S.ACCEPTED
    return reason if not finite or diverging else S.REJECTED


@jit_inline
def hmc_with(
    record: Callable | None,
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: Any,
    stats: Any,
    control: Any,
) -> int:
    """Make one transition from the state, with a fresh momentum, and return its outcome."""
    points, _, _, _, work = as_workspace(workspace)
    at, status = as_points(points), as_work(work).status
    H0 = begin(dynamics, model, workspace, randomness, settings)
    if not math.isfinite(H0):
        return not_begun(at.state, status, settings, stats)
    eps = jittered_step(randomness, settings)
    n_steps = jittered_length(randomness, settings)

    energies, done = compiled_trajectory(record, dynamics, model, workspace, settings, H0, eps, n_steps, control)
    if control.stop:
        return S.INTERRUPTED
    flip_momentum(at.candidate)
    return metropolis_accept(at, randomness, energies, eps, settings.step_size, done, status, stats)


@jit
def hmc(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make one transition that records nothing (:func:`refhmc.adaptation.length.hmc_recording` does)."""
    return hmc_with(None, dynamics, model, workspace, randomness, settings, stats, control)
