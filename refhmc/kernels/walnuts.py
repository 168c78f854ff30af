"""WALNUTS: NUTS with a step size that is chosen in each interval of time.

The trajectory consists of *macro steps* of length h. A macro step of *level* l makes 2^l steps of the integrator of size
h / 2^l. Let E_l(z) be the largest minus the smallest energy along it, both ends included. The level is

    l(z) = the smallest l <= l_max with E_l(z) <= delta.

Let z' be the state after this step. The step of length -h from z' returns to z only if it has the same level. The macro step is
therefore a partial map. It is defined at z if z' chooses l(z) for the step back. There it is reversible and preserves volume,
as a composition of steps of the integrator. Elsewhere the trajectory ends, and the new half is discarded, as after a U-turn.
This rule depends on the interval of states but not on its starting point, so that the transition leaves exp(-H) invariant. At
l = 0 the macro step is always defined, so that the step back is tried only after halvings. (The authors' first program
continues with states of weight zero, which are never drawn. Their second one ends the trajectory.)

The randomised choice ("R2P") takes level l(z) with probability 1 - r, and l(z) + 1 with probability r. The authors use r = 1/3.
Let p(l | z) be these probabilities. If z_{k+1} follows z_k by a macro step of level l, their ratio enters the weights:

    w_{k+1} / w_k = exp(H(z_k) - H(z_{k+1})) p(l | z_{k+1}, backwards) / p(l | z_k, forwards).

The trajectory ends only if the backward probability is zero. The deterministic choice is r = 0.

A trajectory *diverges* if E_l > delta at l_max, too, or if the energies of its states differ by more than 1,000.

Bou-Rabee, Carpenter, Kleppe and Liu (2025), The within-orbit adaptive leapfrog no-U-turn sampler, arXiv 2506.18746. The trees
and the U-turn criterion are those of :mod:`refhmc.kernels.nuts`.

**Adaptation.** Dual averaging adapts h to the average of min(1, exp(H - H')) over the macro steps, where H' is the energy after
a single step of length h. Halvings do not hide a macro step that is too long from this statistic. With the target 0.8, h is
about the step size of NUTS. The authors' first program adapts to the share of macro steps of level 0, their second one to the
average of exp(-abs(H' - H)). With the default delta of 2, few macro steps are halved on ordinary posteriors. The authors'
values from 0.3 to 0.5 took two to three times as many gradients per effective draw of posteriors from posteriordb.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refhmc.compile.compiled import jit, jit_part
from refhmc.core.arguments import positive, share, whole_number
from refhmc.core.point import as_point, copy_point
from refhmc.core.randomness import bernoulli
from refhmc.core.types import as_points, as_work, as_workspace
from refhmc.integrators.defaults import resolve
from refhmc.integrators.step import integrator_step
from refhmc.kernels.nuts import (
    LARGEST_LOG_WEIGHT,
    Ended,
    Extension,
    Leaf,
    State,
    spread,
    state_at,
    trajectory,
    trajectory_of,
)
from refhmc.kernels.options import check_options, with_advice
from refhmc.metrics.base import HamiltonianOnArrays
from refhmc.numerics.batched import Array
from refhmc.numerics.linalg import dot


@with_advice
@dataclass(frozen=True, kw_only=True)
class WALNUTS:
    """NUTS with a step size that is chosen in each interval of time.

    A trajectory consists of macro steps of length h. A macro step of level l makes 2^l steps of the integrator of size
    h / 2^l, with the smallest l for which the energy varies by at most `max_error` within it::

        l(z) = min { l : max H - min H <= max_error  along the 2^l steps from z }

    The macro step z -> z' is defined if the same level is chosen from z' backwards. If it is not, the trajectory ends, as after
    a U-turn. Everything else is as in :class:`NUTS`. The transition leaves exp(-H) exactly invariant.

    Use it for densities with narrow parts that one step size cannot resolve, such as funnels. It needs no smaller step
    elsewhere and has no divergences there.

    Parameters
    ----------
    step_size : float, optional
        Length h of the macro steps. By default it is adapted in warm-up until the average over the macro steps of
        ``min(1, exp(-dH))`` is `target_accept`, where dH is the change of energy in a single step of length h.
    max_error : float, default 2.0
        Largest difference of energies within a macro step.
    max_halvings : int, default 12
        Largest level, from 0 to 20. A trajectory diverges if a macro step with ``2**max_halvings`` steps exceeds `max_error`.
    extra_halving : float, default 0.0
        Probability, in [0, 1), of one halving more than needed. The default 0 is the deterministic choice, and 1/3 the paper's
        randomised choice R2P. Fewer trajectories then end early, but each macro step costs more gradients.
    max_treedepth : int, default 10
        Maximum number of doublings, from 1 to 30. A draw takes at most ``2**max_treedepth - 1`` macro steps.
    metric : object or str, optional
        A constant metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is
        :class:`refhmc.metrics.LowRank`, which starts diagonal and adds directions in warm-up if they reduce the cost. In a
        block of Gibbs, ``"auto"`` is an adapted ``Diagonal()``.
    integrator : object or str, optional
        An explicit integrator of `refhmc.integrators`, or its name in lower case. Defaults to ``Leapfrog()``.
    target_accept : float, optional
        Target of the adaptation, in (0, 1). Defaults to 0.8.

    Raises
    ------
    ValueError
        If a number is out of range, if a name is unknown, if the metric depends on the position, or if the integrator is
        implicit or does not fit the metric.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    NUTS : One step size for all states.

    Notes
    -----
    The backends ``"arrays"`` and ``"cupy"`` do not run this kernel, and raise TypeError.

    References
    ----------
    - Bou-Rabee, Carpenter, Kleppe and Liu (2025), The within-orbit adaptive leapfrog no-U-turn sampler, arXiv 2506.18746.

    Examples
    --------
    >>> import refhmc
    >>> model, kernel = refhmc.models.Funnel(3), refhmc.WALNUTS()
    >>> result = refhmc.sample(model, kernel, draws=100, tune=200, random_seed=1, progressbar=False, raw=True)
    >>> int(result.sample_stats["diverging"].sum()), bool(result.sample_stats["n_halvings"].max() >= 1)
    (0, True)
    """

    name = "walnuts"
    step_size: float | None = None
    max_error: float = 2.0
    max_halvings: int = 12
    extra_halving: float = 0.0
    max_treedepth: int = 10
    metric: object = None
    integrator: object = None
    target_accept: float | None = None

    def __post_init__(self) -> None:
        check_options(self)
        positive("max_error", self.max_error)
        whole_number("max_halvings", self.max_halvings, 0, 20)
        share("extra_halving", self.extra_halving)
        whole_number("max_treedepth", self.max_treedepth, 1, 30)
        metric, integrator = resolve(self.metric, self.integrator)  # type: ignore[arg-type]
        if getattr(self.metric, "position_dependent", False) or metric.position_dependent:
            raise ValueError(
                f"metric must be constant for WALNUTS; got {type(self.metric or metric).__name__}, which depends on the "
                "position. Use NUTS or HMC with it."
            )
        if integrator.implicit:
            raise ValueError(f"integrator must be explicit for WALNUTS; got {type(integrator).__name__}. Use Leapfrog.")

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw."""
        return (
            *(
                "lp",
                "energy",
                "energy_error",
                "max_energy_error",
                "acceptance_rate",
                "diverging",
                "step_size",
                "n_steps",
            ),
            *("n_micro_steps", "n_halvings", "n_gradient_evaluations", "int_time", "tree_depth"),
            *("reached_max_treedepth", "index_in_trajectory", "is_accepted", "outcome"),
        )

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return walnuts

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {
            "max_depth": self.max_treedepth,
            "max_error": self.max_error,
            "max_halvings": self.max_halvings,
            "extra_halving": self.extra_halving,
        }

    def macro_step(self, H: HamiltonianOnArrays, q: Array, p: Array, eps: float) -> tuple[Array, Array]:
        """Return the end of the macro step of length `eps` with the deterministic choice, on arrays.

        Parameters
        ----------
        H : HamiltonianOnArrays
            The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
        q : array, shape (d,)
            Position.
        p : array, shape (d,)
            Momentum.
        eps : float
            Length of the macro step, which may be negative.

        Returns
        -------
        q : array, shape (d,)
            Position after the macro step; NaN if it is not defined.
        p : array, shape (d,)
            Momentum after the macro step; NaN if it is not defined.
        """
        step = resolve(self.metric, self.integrator)[1].on_arrays()  # type: ignore[arg-type]
        steps = MacroSteps(H, step, [], self.max_error, self.max_halvings, 0.0, [])
        try:
            return steps(state_at(H, (q, p), 0), eps).z
        except Ended:
            return q * math.nan, p * math.nan


# ------------------------------------------------------------------------------------- recursive implementation, on arrays


class Path(NamedTuple):
    """A macro step: its level, its end, the energy there, the range of its energies, and H' - H of a single step."""

    level: int
    z: tuple
    energy: float
    spread: float
    error: float


@dataclass
class MacroSteps:
    """The macro steps of one transition on arrays, with their counts."""

    H: HamiltonianOnArrays
    step: Callable
    tape: list[float]
    max_error: float
    max_halvings: int
    extra_halving: float
    accepted: list[float]
    n_micro_steps: int = 0
    n_halvings: int = 0
    n_gradient_evaluations: int = 0

    def path(self, z: tuple, eps: float, level: int, H0: float, limit: float) -> tuple[tuple, float, float]:
        """Make 2^level steps, or fewer if their energies exceed the limit; return the end, its energy and the range."""
        energies = [H0]
        for _ in range(2**level):
            z = self.step(self.H, *z, eps / 2**level)
            self.n_gradient_evaluations += 1
            energies.append(float(self.H.energy(*z[:2])))
            if not math.isfinite(energies[-1]):
                return z, energies[-1], math.inf
            if spread(energies) > limit:
                break
        return z, energies[-1], spread(energies)

    def smallest(self, z: tuple, eps: float, H0: float, n_levels: int) -> Path:
        """Return the macro step of the smallest level below `n_levels`, or with level `n_levels` if there is none."""
        end, energy, width, error = z, H0, math.inf, math.inf
        for level in range(n_levels):
            end, energy, width = self.path(z, eps, level, H0, self.max_error)
            if level == 0 and math.isfinite(energy):
                error = energy - H0
            if width <= self.max_error:
                return Path(level, end, energy, width, error)
        return Path(n_levels, end, energy, width, error)

    def chance(self, halvings: int) -> float:
        """Return the probability of this number of halvings more than needed."""
        return {0: 1 - self.extra_halving, 1: self.extra_halving}.get(halvings, 0.0)

    def __call__(self, edge: State, eps: float) -> State:
        """Return the state after ``edge``. Raises Ended if the macro step is not defined there."""
        there = self.smallest(edge.z, eps, edge.energy, self.max_halvings + 1)
        self.accepted.append(math.exp(-max(there.error, 0.0)))
        if there.level > self.max_halvings:
            raise Ended("diverged" if math.isfinite(there.energy) else "no energy")
        level, z, energy, width, _ = there
        if self.extra_halving > 0 and self.tape.pop() < self.extra_halving:
            level += 1
            z, energy, width = self.path(edge.z, eps, level, edge.energy, math.inf)
            if not math.isfinite(energy):
                raise Ended("no energy")
        back = self.smallest(z, -eps, energy, min(level, self.max_halvings + 1)).level
        chosen = back < level or (level <= self.max_halvings and width <= self.max_error)
        ratio = self.chance(level - back) / self.chance(level - there.level) if chosen else 0.0
        if ratio == 0:
            raise Ended("not reversible")
        self.n_micro_steps += 2**level
        self.n_halvings = max(self.n_halvings, level)
        state = state_at(self.H, z, edge.time + (1 if eps > 0 else -1))
        return state._replace(log_ratio=edge.log_ratio + math.log(ratio))


class Move(NamedTuple):
    """Result of one transition of WALNUTS on arrays.

    Parameters
    ----------
    q : array, shape (d,)
        Position after the transition.
    index_in_trajectory : int
        Position of the draw on the trajectory, in signed macro steps from its start.
    energy_error : float
        H - H0 of the draw.
    acceptance_rate : float
        Mean over the macro steps of min(1, exp(H - H')), with H' the energy after a single step of their length.
    tree_depth : int
        Number of doublings whose new half was kept.
    n_steps : int
        Number of macro steps, including one that is not defined.
    n_micro_steps : int
        Number of steps of the integrator in the macro steps that are defined.
    n_halvings : int
        Largest level of these macro steps.
    n_gradient_evaluations : int
        Number of all steps of the integrator, including the trials and the reversibility checks.
    uniforms_used : int
        How many of the uniform random numbers were used.
    ended : str
        Why the trajectory ended: "turned", "full" at the greatest depth, "not reversible", "diverged" or "no energy".
    """

    q: Array
    index_in_trajectory: int
    energy_error: float
    acceptance_rate: float
    tree_depth: int
    n_steps: int
    n_micro_steps: int
    n_halvings: int
    n_gradient_evaluations: int
    uniforms_used: int
    ended: str


def transition(
    H: HamiltonianOnArrays,
    step: Callable,
    q: Array,
    p: Array,
    uniforms: Sequence[float],
    *,
    step_size: float,
    max_error: float = 2.0,
    max_halvings: int = 12,
    extra_halving: float = 0.0,
    max_treedepth: int = 10,
) -> Move:
    """Make one transition of WALNUTS for one chain, on arrays, by recursion.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`, with a constant metric.
    step : callable
        One step of an explicit integrator, from its ``on_arrays()``.
    q : array, shape (d,)
        Position.
    p : array, shape (d,)
        Momentum, which was just drawn.
    uniforms : sequence of float
        Uniform random numbers, used in the order in which the transition needs them.
    step_size : float
        Length of the macro steps.
    max_error : float, default 2.0
        Largest difference of energies within a macro step.
    max_halvings : int, default 12
        Largest level of a macro step.
    extra_halving : float, default 0.0
        Probability of one halving more than needed.
    max_treedepth : int, default 10
        Maximum number of doublings.

    Returns
    -------
    Move
        Position after the transition, its statistics, and why the trajectory ended.
    """
    tape = [float(u) for u in uniforms][::-1]
    recorded, start = len(tape), state_at(H, (q, p), 0)
    macro_step = MacroSteps(H, step, tape, max_error, max_halvings, extra_halving, [])
    drawn, depth, _, ended = trajectory(macro_step, start, step_size, max_treedepth, tape)
    accepted = macro_step.accepted
    return Move(
        drawn.z[0],
        drawn.time,
        drawn.energy - start.energy,
        sum(accepted) / len(accepted),
        depth,
        len(accepted),
        macro_step.n_micro_steps,
        macro_step.n_halvings,
        macro_step.n_gradient_evaluations,
        recorded - len(tape),
        ended,
    )


# ------------------------------------------------------------------------------------------------- compiled implementation


class Level(NamedTuple):
    """A macro step: its level, the energy at its end, the range of its energies, and H' - H of a single step."""

    level: int
    energy: float
    spread: float
    error: float


@jit
def micro_steps(
    dynamics: tuple, model: tuple, workspace: tuple, eps: float, level: int, z: np.ndarray, H0: float, limit: float
) -> tuple[float, float]:
    """Move ``z`` by 2^level steps, or fewer if their energies exceed the limit; return the energy and the range."""
    _, _, _, own, work = as_workspace(workspace)
    H = lowest = highest = H0
    for _ in range(1 << level):
        H = integrator_step(dynamics, model, z, eps / (1 << level), work, own, True)
        if not math.isfinite(H):
            return H, math.inf
        lowest, highest = min(lowest, H), max(highest, H)
        if highest - lowest > limit:
            break
    return H, highest - lowest


@jit
def smallest_level(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    eps: float,
    start: np.ndarray,
    z: np.ndarray,
    H0: float,
    n_levels: int,
    max_error: float,
) -> Level:
    """Move ``z`` from ``start`` by the macro step of the smallest level below ``n_levels``, the level if there is none."""
    H, width, error = H0, math.inf, math.inf
    for level in range(n_levels):
        copy_point(z, start)
        H, width = micro_steps(dynamics, model, workspace, eps, level, z, H0, max_error)
        if level == 0 and math.isfinite(H):
            error = H - H0
        if width <= max_error:
            return Level(level, H, width, error)
    return Level(n_levels, H, width, error)


@jit_part
def chance(halvings: int, extra_halving: float) -> float:
    """Return the probability of this number of halvings more than needed."""
    if halvings == 0:
        return 1 - extra_halving
    return extra_halving if halvings == 1 else 0.0


@jit
def macro_step(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    eps: float,
    z: np.ndarray,
    H0: float,
    settings: np.record,
    stats: np.record,
) -> Leaf:
    """Move ``z`` to the next state of WALNUTS, by a macro step."""
    points, _, _, _, work = as_workspace(workspace)
    at, status, parts = as_points(points), as_work(work).status, (dynamics, model, workspace)
    max_error, n_levels = settings.max_error, settings.max_halvings + 1
    copy_point(at.start, z)
    here = 0.5 * dot(as_point(z).p, as_point(z).velocity) - as_point(z).log_density[0]
    level, H, width, error = smallest_level(*parts, eps, at.start, z, here, n_levels, max_error)
    accept, needed = math.exp(-max(error, 0.0)), level
    if level == n_levels:
        return Leaf(Extension.DIVERGING if math.isfinite(H) else Extension.NO_ENERGY, H, 0.0, accept)
    if settings.extra_halving > 0 and bernoulli(randomness, settings.extra_halving):
        level += 1
        copy_point(z, at.start)
        H, width = micro_steps(*parts, eps, level, z, here, math.inf)
        if not math.isfinite(H):
            return Leaf(Extension.NO_ENERGY, H, 0.0, accept)
    back = smallest_level(*parts, -eps, z, at.trial, H, min(level, n_levels), max_error).level
    ratio = 0.0
    if back < level or (level < n_levels and width <= max_error):
        ratio = chance(level - back, settings.extra_halving) / chance(level - needed, settings.extra_halving)
    if ratio == 0:
        return Leaf(Extension.NOT_REVERSIBLE, H, 0.0, accept)
    stats.n_micro_steps += 1 << level
    stats.n_halvings = max(stats.n_halvings, level)
    if eps > 0:
        status.log_ratio_after += math.log(ratio)
    else:
        status.log_ratio_before += math.log(ratio)
    log_ratio = status.log_ratio_after if eps > 0 else status.log_ratio_before
    return Leaf(Extension.VALID, H, math.exp(min(H0 - H + log_ratio, LARGEST_LOG_WEIGHT)), accept)


@jit
def walnuts(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: np.record,
    stats: np.record,
    control: np.record,
) -> int:
    """Make one transition of WALNUTS."""
    status = as_work(as_workspace(workspace).work).status
    status.log_ratio_before = status.log_ratio_after = 0.0
    return trajectory_of(macro_step, dynamics, model, workspace, randomness, settings, stats, control)
