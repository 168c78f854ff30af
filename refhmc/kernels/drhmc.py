"""Delayed-rejection Hamiltonian Monte Carlo: a rejected proposal is followed by others with smaller steps.

Stage k = 1, ..., K proposes z_k = F Psi_k(z) from the same z = (q, p): n_k steps of size eps / r^(k-1), and a flip F of the
momentum. F Psi_k is its own inverse and keeps volume. The stage is reached if all earlier ones were rejected, and accepts with
probability

    a_k(z) = min(1, exp(H(z) - H(z_k)) prod_{i<k} (1 - a_i(z_k)) / prod_{i<k} (1 - a_i(z))).

The a_i(z_k) belong to *ghost* proposals F Psi_i(z_k): those that a chain at z_k would have had to reject before it could
propose z. Each needs ghosts of its own for i > 1, so that stage k makes 2^(k-1) trajectories. Both sides of

    exp(-H(z)) prod_{i<k} (1 - a_i(z)) a_k(z) = exp(-H(z_k)) prod_{i<k} (1 - a_i(z_k)) a_k(z_k)

are equal, since the minimum of the two factors is symmetric. Modi, Barnett and Carpenter (2021), Delayed rejection Hamiltonian
Monte Carlo for sampling multiscale distributions, arXiv 2110.00610, sec. 3.1, after Tierney and Mira (1999). They take a fresh
momentum, and n_k = n r^(k-1), so that all trajectories have the same length.

The momentum may be kept in part (:mod:`refhmc.kernels.ghmc`): p <- a p + sqrt(1 - a^2) n before the first stage, and a flip
after the last decision. So the accepted state is Psi_k(z), and if all stages are rejected it is F z. With n_k = n = 1 this is
delayed-rejection generalised HMC: Turok, Modi and Carpenter (2024), arXiv 2406.02741, Algorithm 1.

Ghosts with a_i(z_k) = 1 make a_k(z) = 0, and the other ghosts of that stage are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.compiled import jit, jit_inline
from refhmc.core import sample_stats as S
from refhmc.core.arguments import flag, positive, share, whole_number
from refhmc.core.point import VELOCITY, P, as_point, copy_point, copy_row, copy_state
from refhmc.core.randomness import bernoulli
from refhmc.core.types import as_points, as_work, as_workspace
from refhmc.integrators.step import integrator_step
from refhmc.kernels.ghmc import begin_with_kept, check_one_copy, kept_share, refreshed
from refhmc.kernels.hmc import (
    flip_momentum,
    jittered,
    jittered_length,
    jittered_step,
    metropolis_probability,
    not_begun,
    trajectory,
)
from refhmc.kernels.options import check_jitter, check_length, check_options, solver_statistics, with_advice
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

ENERGY, LOG_REJECTION, STAGE = range(3)
MOST_STAGES = 4  # stage k compares k states of a chain of ghosts, for which the workspace has points


@with_advice
@dataclass(frozen=True, kw_only=True)
class DRHMC:
    """Delayed-rejection HMC: retry a rejected proposal with smaller steps, up to `max_stages` times.

    One transition from (q, p), with z = (q, p), is::

        p <- a p + sqrt(1 - a^2) n,   n ~ N(0, M)
        for k = 1, ..., max_stages:
            z_k = n_k steps of size  step_size / reduction^(k-1)  from z, with its momentum reversed
            with probability  min(1, exp(H(z) - H(z_k)) prod_{i<k} (1 - a_i(z_k)) / prod_{i<k} (1 - a_i(z))):
                take z_k, with its momentum reversed again, and stop
        else reverse the momentum of z

    Here a_i is the acceptance probability of stage i. Large steps are used where they work, and small ones where the density is
    narrow, such as in the neck of a funnel.

    Parameters
    ----------
    step_size : float, optional
        Step size of the first stage. By default it is adapted in warm-up until the acceptance rate of the first stage is
        `target_accept`.
    n_steps : int, optional
        Number of steps of the first stage. Give `n_steps` or `trajectory_length`, not both.
    trajectory_length : float, optional
        Length of a trajectory of the first stage. The number of steps is rounded to a whole number from 1 to 1,024. Defaults to
        pi/2, which decorrelates the draws of a standard normal target.
    max_stages : int, default 3
        Largest number of proposals, from 1 to 4. Stage k makes 2^(k-1) trajectories.
    reduction : float, default 4.0
        Factor, larger than 1, by which the step size is reduced from stage to stage.
    same_length : bool, default True
        Whether later stages make `reduction` times more steps each, so that all trajectories have the same length. If not, all
        stages make the same number of steps.
    persistence : float, default 0.0
        Share a of the momentum that a transition keeps, in [0, 1). With 0, each transition draws a new momentum.
    step_jitter : float, default 0.0
        Relative half-width, in [0, 1), of the uniform jitter of the step size, which is the same for all stages.
    length_jitter : float, default 0.0
        Relative half-width, in [0, 1), of the uniform jitter of the number of steps, which is then rounded to at least 1.
    metric : object or str, optional
        A metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is :class:`refhmc.metrics.LowRank`. In
        a block of Gibbs, and with the backends ``"arrays"`` and ``"cupy"``, it is an adapted ``Diagonal()``.
    integrator : object or str, optional
        An integrator of `refhmc.integrators`, or its name in lower case. Defaults to ``Leapfrog()``, or to
        ``ImplicitMidpoint()`` if the metric depends on the position, or to ``BlockLeapfrog()`` for ``Hierarchical``.
    target_accept : float, optional
        Target acceptance rate of the first stage, in (0, 1). The default is that of :class:`HMC`.

    Raises
    ------
    ValueError
        If a number is out of range, if both `n_steps` and `trajectory_length` are given, if a name is unknown, or if the
        integrator does not fit the metric, moves two copies of (q, p), or follows the parts of a split model. In a block of
        Gibbs, also if the metric depends on the position.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    HMC : One proposal per transition.
    GHMC : One proposal, and a momentum that is kept in part.

    Notes
    -----
    ``DRHMC(n_steps=1, same_length=False, persistence=0.9)`` is delayed-rejection generalised HMC (DR-G-HMC). The statistic
    ``stage`` is the accepted stage, ``n_steps`` counts the steps of all proposals and ghosts, and ``diverging`` means that the
    last stage was rejected and that its energy error was above 1,000 or not finite.

    References
    ----------
    - Modi, Barnett and Carpenter (2021), Delayed rejection Hamiltonian Monte Carlo for sampling multiscale distributions,
      arXiv 2110.00610.
    - Turok, Modi and Carpenter (2024), Sampling from multiscale densities with delayed rejection generalized Hamiltonian Monte
      Carlo, arXiv 2406.02741.

    Examples
    --------
    >>> import refhmc
    >>> kernel = refhmc.DRHMC(step_size=1.0, n_steps=3, max_stages=2)
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), kernel, draws=200, tune=0, random_seed=1, progressbar=False, raw=True
    ... )
    >>> int(result.sample_stats["stage"].max())
    2
    """

    name = "drhmc"
    keeps_momentum = True
    step_size: float | None = None
    n_steps: int | None = None
    trajectory_length: float | None = None
    max_stages: int = 3
    reduction: float = 4.0
    same_length: bool = True
    persistence: float = 0.0
    step_jitter: float = 0.0
    length_jitter: float = 0.0
    metric: object = None
    integrator: object = None
    target_accept: float | None = None

    def __post_init__(self) -> None:
        check_options(self)
        check_length(self)
        whole_number("max_stages", self.max_stages, 1, MOST_STAGES)
        if positive("reduction", self.reduction) <= 1:
            raise ValueError(
                f"reduction must be larger than 1; got {self.reduction!r}. Values from 2 to 10 are common."
            )
        flag("same_length", self.same_length)
        share("persistence", self.persistence)
        check_jitter(self, "step_jitter", "length_jitter")
        check_one_copy(self)
        base: Any = getattr(self.integrator, "base", self.integrator)
        if getattr(base, "follows_parts", False):
            raise ValueError(
                f"integrator of DRHMC must not follow the parts of a split model; got {type(base).__name__}. Use Leapfrog()."
            )

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw."""
        names = ("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "diverging", "step_size")
        nominal = ("step_size_nom",) if self.step_jitter > 0 else ()
        return (*names, *nominal, "n_steps", "is_accepted", "outcome", "stage", *solver_statistics(self))

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return drhmc

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        length = math.pi / 2 if self.n_steps is None and self.trajectory_length is None else self.trajectory_length
        return {
            "jitter": self.step_jitter,
            "length_jitter": self.length_jitter,
            "n_steps": self.n_steps or 0,
            "trajectory_length": length or 0.0,
            "max_stages": self.max_stages,
            "reduction": self.reduction,
            "same_length": self.same_length,
            "persistence": self.persistence,
        }


class StagedMoves(NamedTuple):
    """Result of one transition of delayed-rejection HMC of many chains, on arrays.

    Parameters
    ----------
    q : array, shape (..., d)
        Positions after the transition.
    p : array, shape (..., d)
        Momenta after the transition.
    stage : array, shape (...)
        Accepted stages, 0 where all were rejected.
    probabilities : array, shape (..., max_stages)
        Acceptance probabilities of the stages, also of those that were not reached.
    energy_error : array, shape (...)
        H - H0 of the accepted proposals, 0 where all were rejected.
    """

    q: Array
    p: Array
    stage: Array
    probabilities: Array
    energy_error: Array


def transition(
    H: Any,
    step: Callable,
    q: Array,
    p: Array | None,
    normals: Array,
    uniforms: Array,
    *,
    step_size: float,
    n_steps: float,
    max_stages: int = 3,
    reduction: float = 4.0,
    same_length: bool = True,
    persistence: float = 0.0,
    step_jitter: float = 0.0,
    length_jitter: float = 0.0,
) -> StagedMoves:
    """Make one transition of delayed-rejection HMC for each chain, on arrays.

    All stages and ghosts of all chains are computed, needed or not.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
    step : callable
        One step of an integrator, from its ``on_arrays()``.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d), or None
        Momenta after the last transition. None before the first one, which draws them.
    normals : array, shape (..., d)
        Standard normals, from which the refreshment of the momenta is made.
    uniforms : array, shape (..., k)
        Uniform random numbers, used in the order in which the transition needs them.
    step_size : float
        Step size of the first stage before jitter.
    n_steps : float
        Number of steps of the first stage before jitter and rounding.
    max_stages : int, default 3
        Number of stages.
    reduction : float, default 4.0
        Factor by which the step size is reduced.
    same_length : bool, default True
        Whether later stages make more steps.
    persistence : float, default 0.0
        Share of the momentum that is kept.
    step_jitter : float, default 0.0
        Relative half-width of the jitter of the step size.
    length_jitter : float, default 0.0
        Relative half-width of the jitter of the number of steps.

    Returns
    -------
    StagedMoves
        Positions and momenta after the transition, accepted stages, their probabilities and energy errors.
    """
    xp = batched.namespace(q)
    p = refreshed(H.draw_momentum(q, normals), p, kept_share(persistence, 0.0 * q[..., :1]))
    eps, n, used = jittered(q, uniforms, step_size, n_steps, step_jitter, length_jitter)

    def proposal(z: tuple, k: int) -> tuple[tuple, Array]:
        """Return F Psi_k(z) and the energy there."""
        steps = xp.round(n * reduction ** (k - 1)) if same_length else n
        (new, end), energy, _ = trajectory(H, step, z, eps / reduction ** (k - 1), steps)
        return (new, -end), energy

    def stages(z: tuple, energy: Array, K: int) -> tuple[list, list, Array]:
        """Return the proposals of the stages 1, ..., K from z, their probabilities, and log prod_k (1 - a_k(z))."""
        proposals, probabilities, log_rejection = [], [], 0.0 * energy
        for k in range(1, K + 1):
            there, energy_there = proposal(z, k)
            ratio = energy - energy_there + stages(there, energy_there, k - 1)[2] - log_rejection
            a = probability_of(ratio)
            proposals.append((*there, energy_there))
            probabilities.append(a)
            log_rejection = log_rejection + log_complement(a)
        return proposals, probabilities, log_rejection

    H0 = H.energy(q, p)
    proposals, probabilities, _ = stages((q, p), H0, max_stages)
    end, end_p, stage, error = q, -p, 0.0 * H0, 0.0 * H0
    for k in range(max_stages, 0, -1):  # the first accepted stage is written last
        new, new_p, energy = proposals[k - 1]
        accepted = uniforms[..., used + k - 1] < probabilities[k - 1]
        end, end_p = xp.where(accepted[..., None], new, end), xp.where(accepted[..., None], -new_p, end_p)
        stage, error = xp.where(accepted, float(k), stage), xp.where(accepted, energy - H0, error)
    return StagedMoves(end, end_p, stage, xp.stack(probabilities, axis=-1), error)


def probability_of(log_ratio: Array) -> Array:
    """Return min(1, exp(log_ratio)), and 0 where it is not finite."""
    xp = batched.namespace(log_ratio)
    finite = xp.isfinite(log_ratio)
    return xp.where(finite, xp.exp(xp.where(finite & (log_ratio < 0), log_ratio, 0.0)), 0.0)


def log_complement(a: Array) -> Array:
    """Return log(1 - a), which is -inf for 1."""
    xp = batched.namespace(a)
    return xp.where(a < 1, xp.log1p(-xp.where(a < 1, a, 0.0)), -xp.inf)


@jit_inline
def turn_round(z: np.ndarray) -> None:
    """Set p <- -p with its velocity, so that steps can be made from there."""
    flip_momentum(z)
    for i in range(z.shape[1]):
        z[VELOCITY, i] = -z[VELOCITY, i]


@jit
def propose(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    settings: Any,
    depth: int,
    stage: int,
    eps: float,
    n: int,
    stats: Any,
) -> float:
    """Write the proposal of a stage from the point at ``depth`` to the next point; return the energy there."""
    points, _, _, own, work = as_workspace(workspace)
    z, factor = points[depth + 1], settings.reduction ** (stage - 1)
    n_steps = round(n * factor) if settings.same_length else n
    copy_point(z, points[depth])
    H, done = 0.0, 0
    while done < n_steps and math.isfinite(H):
        H = integrator_step(dynamics, model, z, eps / factor, work, own, True)
        done += 1
    stats.n_steps += done
    turn_round(z)
    return H


@jit
def drhmc(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make one transition from the state and its momentum, and return its outcome.

    Point ``depth + 1`` is a proposal from point ``depth``; point 0 is the state. Each has numbers in the workspace of trees:
    its energy, the log of the probability that all stages so far reject, and the stage that is tried.
    """
    points, numbers, _, _, work = as_workspace(workspace)
    at, status = as_points(points), as_work(work).status
    H0 = begin_with_kept(dynamics, model, workspace, randomness, settings, 1)
    if not math.isfinite(H0):
        return not_begun(at.state, status, settings, stats)
    eps, n = jittered_step(randomness, settings), jittered_length(randomness, settings)
    energy, log_rejection, stage = numbers[:, ENERGY, 0], numbers[:, LOG_REJECTION, 0], numbers[:, STAGE, 0]
    energy[0], log_rejection[0], stage[0] = H0, 0.0, 0
    depth, accepted, worst = 0, False, 0.0
    while not accepted:
        if control.stop:
            return S.INTERRUPTED
        last = settings.max_stages if depth == 0 else stage[depth - 1] - 1
        if stage[depth] < last and log_rejection[depth] > -math.inf and math.isfinite(energy[depth]):
            stage[depth] += 1
            if depth == 0:
                status.failure = 0
            energy[depth + 1] = propose(dynamics, model, workspace, settings, depth, int(stage[depth]), eps, n, stats)
            depth += 1
            log_rejection[depth], stage[depth] = 0.0, 0
            continue
        if depth == 0:
            break
        depth -= 1
        error = energy[depth + 1] - energy[depth]
        a = metropolis_probability(log_rejection[depth + 1] - log_rejection[depth] - error)
        log_rejection[depth] += math.log1p(-a) if a < 1 else -math.inf
        if depth == 0:
            accepted = bernoulli(randomness, a)
            if stage[0] == 1:
                stats.acceptance_rate = a
            if abs(error) > abs(worst) or not math.isfinite(error):
                worst = error if math.isfinite(error) else math.inf
    H, failed = energy[1], not math.isfinite(energy[1])
    if accepted:
        copy_state(at.state, points[1])
        copy_row(at.state[P], points[1][P])
    flip_momentum(at.state)
    outcome = S.reason(status) if failed else S.DIVERGED if abs(H - H0) > S.MAX_ENERGY_SPREAD else S.REJECTED
    stats.lp = as_point(at.state).log_density[0]
    stats.energy = H if accepted else H0
    stats.energy_error = H - H0 if accepted else 0.0
    stats.max_energy_error = worst
    stats.diverging = S.is_divergence(outcome) and not accepted
    stats.step_size, stats.step_size_nom = eps, settings.step_size
    stats.is_accepted = accepted
    stats.stage = stage[0] if accepted else 0
    return S.ACCEPTED if accepted else outcome
