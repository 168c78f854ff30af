"""Discontinuous Hamiltonian Monte Carlo: HMC for densities that jump in some coordinates, embedded integers among them.

    p_I ~ N(0, M_I), |p_j| / m_j ~ Exponential(1);  (q*, p*) = n steps from (q, p), each with the discontinuous coordinates
    in a fresh random order;   q <- q* with probability min(1, exp(H(q, p) - H(q*, p*)))

The step is :mod:`refhmc.integrators.discontinuous`, the momentum :mod:`refhmc.metrics.laplace`. Where all coordinates are
discontinuous the energy is exact and every proposal is accepted; where none is, this is HMC. The step is jittered,
eps (1 + j (2u - 1)): with a fixed one, a discontinuous coordinate would stay on a lattice. So is the number of steps.

**Warm-up.** A step that is too large is turned back by most jumps. Over the momentum and the target,

    P(no flip of j) = P(dU < |p_j| / m_j) = E min(1, exp(U(q) - U(q + eps/m_j sign(p_j) e_j)))                  eq. 28

(with its erratum), to be kept between .7 and .9; the average of the right-hand side over a trajectory's moves estimates it.
Where all coordinates are discontinuous the step size is adapted to that rate by dual averaging. Where some are smooth it is
adapted to their acceptance, as in HMC, and the factor r that all the masses m_j = 1 / (r s_j) have in common to the no-flip
rate, by a dual averaging of its own for the jump size eps r: one number could not serve both. The scales s are standard
deviations from the windows of warm-up.

Gram-Hansen's notes, secs. 2.4-2.6, after Nishimura, Dunson and Lu (2020), Biometrika 107.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refhmc.core import sample_stats as S
from refhmc.core.compiled import invariant, jit
from refhmc.core.point import as_point, copy_point
from refhmc.core.randomness import uniform
from refhmc.core.types import as_dynamics, as_model, as_points, as_work, as_workspace
from refhmc.integrators.discontinuous import step as discontinuous_step
from refhmc.kernels.hmc import Moves, accept, jittered, jittered_length, jittered_step, metropolis_accept, trajectory
from refhmc.kernels.options import check_jitter, check_length, check_options, with_advice
from refhmc.kernels.start import begin, not_begun
from refhmc.metrics import Diagonal, Identity
from refhmc.metrics.base import FROM_GRADIENTS
from refhmc.metrics.laplace import energy, views
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

DEFAULT_STEPS = 20


@with_advice
@dataclass(frozen=True, kw_only=True)
class DHMC:
    """Discontinuous HMC, for models with ``discontinuous`` coordinates.

    step_size : the step; ``None`` adapts it, and the masses' common factor, in warm-up.
    n_steps : steps of a trajectory. trajectory_length : n_steps * step_size, rounded to at least one step and at most
        1,024; give one of the two. Neither: 20 steps. (The step is as large as the jumps allow, and that is another share of
        a standard deviation for each model: the length pi/2 of a Gaussian is two steps of the change point, twenty of
        Jolly-Seber's.)
    step_jitter, length_jitter : relative half-widths in [0, 1) of the uniform jitters of the step and of n_steps.
    metric : ``Diagonal()``, adapted, by default, or ``Diagonal(variances)``, ``Identity()``: M_i^-1 is the variance of a
        smooth coordinate, 1/m_j the standard deviation of a discontinuous one.
    target_no_flip : share of moves of discontinuous coordinates that are not turned back. target_accept : of the trajectory;
        used where some coordinates are smooth.
    """

    name = "dhmc"
    step_size: float | None = None
    n_steps: int | None = None
    trajectory_length: float | None = None
    step_jitter: float = 0.2
    length_jitter: float = 0.2
    metric: object = None
    target_no_flip: float = 0.8
    target_accept: float | None = None

    jumping = True  # its momentum is Laplace's where a coordinate is discontinuous
    integrator = None

    def __post_init__(self) -> None:
        check_options(self)
        if not isinstance(self.metric, Identity | Diagonal | None):
            raise TypeError(
                f"DHMC takes Identity() or Diagonal(), got {type(self.metric).__name__}: its discontinuous coordinates are "
                "moved one at a time"
            )
        if self.metric is not None and self.metric.learns == FROM_GRADIENTS:
            raise ValueError("DHMC learns its metric from draws: a discontinuous coordinate has no gradient")
        check_length(self)
        check_jitter(self, "step_jitter", "length_jitter")
        if not 0 < self.target_no_flip < 1:
            raise ValueError(f"target_no_flip must lie between 0 and 1, got {self.target_no_flip!r}")

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics of a draw; ``step_size_nom`` only where the step is jittered."""
        names = ("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "diverging", "step_size")
        nominal = ("step_size_nom",) if self.step_jitter > 0 else ()
        moves = ("no_flip_rate", "no_flip_probability")
        counts = ("n_gradient_evaluations", "n_density_evaluations")
        return (*names, *nominal, "n_steps", "int_time", "is_accepted", "outcome", *moves, *counts)

    @property
    def transition(self) -> Callable:
        return dhmc

    def settings(self) -> dict[str, float]:
        neither = self.n_steps is None and self.trajectory_length is None
        return {
            "jitter": self.step_jitter,
            "length_jitter": self.length_jitter,
            "n_steps": DEFAULT_STEPS if neither else self.n_steps or 0,
            "trajectory_length": self.trajectory_length or 0.0,
        }


def transition(
    H: Any,
    q: Array,
    p: Array,
    uniforms: Array,
    *,
    step_size: float,
    n_steps: float,
    step_jitter: float = 0.0,
    length_jitter: float = 0.0,
) -> Moves:
    """One transition of each chain on arrays, as that of :mod:`refhmc.kernels.hmc`; H is ``laplace.LaplaceOnArrays``."""
    eps, n, used = jittered(q, uniforms, step_size, n_steps, step_jitter, length_jitter)
    J = [int(j) for j in H.model.discontinuous]
    a_step = max(len(J) - 1, 0)  # uniforms of a step
    orders = (batched.random_order(J, uniforms[..., k : k + a_step]) for k in itertools.count(used, max(a_step, 1)))

    def step(H: Any, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
        return discontinuous_step(H, q, p, eps, next(orders))

    z, energy, done = trajectory(H, step, (q, p), eps, n)
    u = batched.pick(uniforms, used + a_step * done)
    return accept(q, z[0], energy - H.energy(q, p), u, done)


@jit
def draw_order(randomness: tuple, work: tuple, n: int) -> None:
    """A uniformly random order of the n discontinuous coordinates (Fisher and Yates), into ``order``."""
    w, k = views(work), 0
    order = w.order
    for j in range(order.shape[0]):
        if w.jumps[j] != 0:
            order[k] = j
            k += 1
    invariant(k == n)
    for k in range(n - 1, 0, -1):
        other = int(uniform(randomness) * (k + 1))
        order[k], order[other] = order[other], order[k]


@jit
def dhmc(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """One transition from the state, with a fresh momentum; the outcome."""
    points, _, _, own, _, work = as_workspace(workspace)
    _, _, options, _, counters, status = as_work(work)
    at, dyn, f = as_points(points), as_dynamics(dynamics), as_model(model)
    H0 = begin(dynamics, model, workspace, randomness, settings)
    if not math.isfinite(H0):
        return not_begun(at.state, status, settings, stats)
    n_discontinuous = options.n_discontinuous
    counters.densities = counters.tries = counters.flips = 0
    counters.passing = 0.0
    eps = jittered_step(randomness, settings)
    n_steps = jittered_length(randomness, settings)

    z = at.candidate
    copy_point(z, at.state)
    H, lowest, highest, worst, done = H0, H0, H0, 0.0, 0
    while done < n_steps:
        if control.stop:
            return S.INTERRUPTED
        draw_order(randomness, work, n_discontinuous)
        H = dyn.step(model, dyn.metric, z, eps, work, own)
        done += 1
        if done == n_steps and n_discontinuous == z.shape[1] and math.isfinite(H):
            # Added up from changes so far; once a trajectory from the full density, so that no rounding piles up.
            point = as_point(z)
            point.log_density[0] = f.value_and_gradient(point.q, f.data, point.gradient)
            counters.gradients += 1
            H = energy(z, work)
        if not math.isfinite(H):
            break
        lowest, highest = min(lowest, H), max(highest, H)
        if abs(H - H0) > abs(worst):
            worst = H - H0

    invariant(0 <= counters.flips <= counters.tries <= done * n_discontinuous and counters.passing <= counters.tries)
    if counters.tries > 0:
        stats.no_flip_rate = 1 - counters.flips / counters.tries
        stats.no_flip_probability = counters.passing / counters.tries
    else:  # nothing that jumps, or a failure before the first move
        stats.no_flip_rate = stats.no_flip_probability = n_discontinuous == 0
    stats.n_density_evaluations = counters.densities + counters.gradients
    energies = (H0, H, lowest, highest, worst)
    return metropolis_accept(at, randomness, energies, eps, settings.step_size, done, status, stats)
