"""Discontinuous Hamiltonian Monte Carlo: HMC for densities that jump in some coordinates, including embedded integers.

    p_I ~ N(0, M_I), |p_j| / m_j ~ Exponential(1);  (q*, p*) = n steps from (q, p), each with the discontinuous coordinates
    in a fresh random order;   q <- q* with probability min(1, exp(H(q, p) - H(q*, p*)))

The step is :mod:`refhmc.integrators.discontinuous`, the momentum :mod:`refhmc.metrics.laplace`. If all coordinates are
discontinuous, the energy is exact and every proposal is accepted. If none is, this is HMC. The step size is jittered,
eps (1 + j (2u - 1)): with a fixed one, a discontinuous coordinate would stay on a lattice. The number of steps is jittered too.

**Warm-up.** If the step size is too large, most jumps are turned back. Over the momentum and the target,

    P(no flip of j) = P(dU < |p_j| / m_j) = E min(1, exp(U(q) - U(q + eps/m_j sign(p_j) e_j)))                  eq. 28

(with its erratum), to be kept between .7 and .9. The average of the right-hand side over a trajectory's moves estimates it. If
all coordinates are discontinuous, dual averaging adapts the step size to that rate. If some are smooth, the step size is
adapted to their acceptance, as in HMC. A second dual averaging then adapts the jump size eps r to the no-flip rate, where r is
the factor common to all masses m_j = 1 / (r s_j). One number could not serve both purposes. The scales s are standard
deviations from the windows of warm-up.

Gram-Hansen's notes, secs. 2.4-2.6, after Nishimura, Dunson and Lu (2020), Biometrika 107.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refhmc.compile.compiled import invariant, jit
from refhmc.core import sample_stats as S
from refhmc.core.point import as_point, copy_point
from refhmc.core.randomness import uniform
from refhmc.core.types import as_dynamics, as_model, as_points, as_work, as_workspace
from refhmc.integrators.discontinuous import step as discontinuous_step
from refhmc.kernels.hmc import (
    Energies,
    Moves,
    accept,
    begin,
    jittered,
    jittered_length,
    jittered_step,
    metropolis_accept,
    not_begun,
    trajectory,
    with_end,
)
from refhmc.kernels.options import check_jitter, check_length, check_options, with_advice
from refhmc.metrics.base import FROM_GRADIENTS, FROM_PAIRS, NOTHING
from refhmc.metrics.euclidean import is_diagonal
from refhmc.metrics.laplace import LaplaceOnArrays, energy, views
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

DEFAULT_STEPS = 20


@with_advice
@dataclass(frozen=True, kw_only=True)
class DHMC:
    """Discontinuous HMC, for models whose density jumps in some coordinates.

    With smooth coordinates I and discontinuous coordinates j in J, one transition from q is::

        p_I ~ N(0, M_I),    |p_j| / m_j ~ Exponential(1)  with a random sign
        (q*, p*) = n steps from (q, p), each with the coordinates of J in a fresh random order
        q <- q*  with probability  min(1, exp(H(q, p) - H(q*, p*)))

    If all coordinates are discontinuous, the energy is exact and every proposal is accepted. If none is, this is HMC. In
    warm-up the step size is adapted to the no-flip rate of the moves of J. If some coordinates are smooth, it is adapted to
    the acceptance rate instead, and the factor that all masses m_j have in common is adapted to the no-flip rate.

    Parameters
    ----------
    step_size : float, optional
        Step size. By default it is adapted in warm-up, together with the common factor of the masses.
    n_steps : int, optional
        Number of steps per trajectory. Give `n_steps` or `trajectory_length`, not both. If neither is given, a trajectory
        has 20 steps.
    trajectory_length : float, optional
        Length of a trajectory, ``n_steps * step_size``. The number of steps is rounded to a whole number from 1 to 1,024.
    step_jitter : float, default 0.2
        Relative half-width, in [0, 1), of the uniform jitter of the step size. Without it a discontinuous coordinate stays on a
        lattice.
    length_jitter : float, default 0.2
        Relative half-width, in [0, 1), of the uniform jitter of the number of steps.
    metric : Diagonal or Identity, optional
        Scales of the coordinates. ``M_i**-1`` is the variance of a smooth coordinate, and ``1 / m_j`` the standard deviation of
        a discontinuous one. Defaults to an adapted ``Diagonal()``.
    target_no_flip : float, default 0.8
        Target share, in (0, 1), of the moves of discontinuous coordinates that are not turned back. The notes recommend values
        between 0.7 and 0.9.
    target_accept : float, optional
        Target acceptance rate of the trajectories, in (0, 1). It is used if some coordinates are smooth. Defaults to 0.8.

    Raises
    ------
    ValueError
        If a number is out of range, if both `n_steps` and `trajectory_length` are given, or if `metric` learns from gradients.
    TypeError
        If an option is unknown, or if `metric` is neither diagonal nor the identity.

    See Also
    --------
    Gibbs : Combines DHMC for some coordinates with another kernel for the others.
    refhmc.DiscontinuousHamiltonian : The Hamiltonian and its step by themselves.

    Notes
    -----
    The default is a number of steps and not a length, because the step size is as large as the jumps allow. That is a different
    fraction of a standard deviation for each model: the length pi/2 is two steps for ``ChangePoint`` and twenty for
    ``JollySeber``.

    References
    ----------
    - Gram-Hansen, notes on HMC and discontinuous HMC, sections 2.4 to 2.6. Erratum of equation 28: the no-flip probability is
      ``P(dU < |p_j| / m_j) = E min(1, exp(U(q) - U(q + eps/m_j sign(p_j) e_j)))``.
    - Nishimura, Dunson and Lu (2020), Discontinuous Hamiltonian Monte Carlo for discrete parameters, Biometrika 107.

    Examples
    --------
    >>> import refhmc
    >>> kernel = refhmc.DHMC(n_steps=5)
    >>> result = refhmc.sample(
    ...     refhmc.models.ChangePoint(), kernel, draws=100, tune=200, random_seed=1, progressbar=False, raw=True
    ... )
    >>> result.draws.shape
    (4, 100, 3)
    >>> bool((result.sample_stats["no_flip_rate"] <= 1).all())
    True
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

    jumping = True  # the momentum of a discontinuous coordinate has a Laplace distribution
    integrator = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.metric is not None and not is_diagonal(self.metric):
            raise TypeError(
                f"metric must be diagonal and Euclidean for DHMC, such as Diagonal(); got {type(self.metric).__name__}. "
                "Discontinuous coordinates are moved one at a time."
            )
        if getattr(self.metric, "learns", NOTHING) in (FROM_GRADIENTS, FROM_PAIRS):
            raise ValueError(
                f"metric must learn from draws for DHMC; got {self.metric!r}. A discontinuous "
                "coordinate has no gradient. Use Diagonal()."
            )
        check_length(self)
        check_jitter(self, "step_jitter", "length_jitter")
        if not 0 < self.target_no_flip < 1:
            raise ValueError(
                f"target_no_flip must lie between 0 and 1; got {self.target_no_flip!r}. Values from 0.7 to 0.9 work well."
            )

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw; ``step_size_nom`` is included if the step size is jittered."""
        names = ("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "diverging", "step_size")
        nominal = ("step_size_nom",) if self.step_jitter > 0 else ()
        moves = ("no_flip_rate", "no_flip_probability")
        counts = ("n_gradient_evaluations", "n_density_evaluations")
        return (*names, *nominal, "n_steps", "int_time", "is_accepted", "outcome", *moves, *counts)

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return dhmc

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        neither = self.n_steps is None and self.trajectory_length is None
        return {
            "jitter": self.step_jitter,
            "length_jitter": self.length_jitter,
            "n_steps": DEFAULT_STEPS if neither else self.n_steps or 0,
            "trajectory_length": self.trajectory_length or 0.0,
        }


def transition(
    H: LaplaceOnArrays,
    q: Array,
    p: Array,
    uniforms: Array,
    *,
    step_size: float,
    n_steps: float,
    step_jitter: float = 0.0,
    length_jitter: float = 0.0,
) -> Moves:
    """Make one transition of discontinuous HMC for each chain, on arrays.

    Parameters
    ----------
    H : LaplaceOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.discontinuous_hamiltonian`.
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

    Returns
    -------
    Moves
        Positions after the transition, and acceptance, energy error and number of steps of each chain.
    """
    eps, n, used = jittered(q, uniforms, step_size, n_steps, step_jitter, length_jitter)
    J = [int(j) for j in H.model.discontinuous]
    a_step = max(len(J) - 1, 0)  # uniforms per step
    orders = (batched.random_order(J, uniforms[..., k : k + a_step]) for k in itertools.count(used, max(a_step, 1)))

    def step(H: LaplaceOnArrays, q: Array, p: Array, eps: Array) -> tuple[Array, Array]:
        return discontinuous_step(H, q, p, eps, next(orders))

    z, energy, done = trajectory(H, step, (q, p), eps, n)
    u = batched.pick(uniforms, used + a_step * done)
    return accept(q, z[0], energy - H.energy(q, p), u, done)


@jit
def draw_order(randomness: tuple, work: tuple, n: int) -> None:
    """Write a uniformly random order of the n discontinuous coordinates into ``order`` (Fisher and Yates)."""
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
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: np.record,
    stats: np.record,
    control: np.record,
) -> int:
    """Make one transition from the state, with a fresh momentum, and return its outcome."""
    points, _, _, own, work = as_workspace(workspace)
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

    z, energies, done = at.candidate, Energies(H0, H0, H0, H0, 0.0), 0
    copy_point(z, at.state)
    while done < n_steps and math.isfinite(energies.end):
        if control.stop:
            return S.INTERRUPTED
        draw_order(randomness, work, n_discontinuous)
        H = dyn.step(model, dyn.metric, z, eps, work, own)
        done += 1
        if done == n_steps and n_discontinuous == z.shape[1] and math.isfinite(H):
            # So far a sum of changes. One full density per trajectory keeps rounding errors from accumulating.
            point = as_point(z)
            point.log_density[0] = f.value_and_gradient(point.q, f.data, point.gradient)
            counters.gradients += 1
            H = energy(z, work)
        energies = with_end(energies, H)

    invariant(0 <= counters.flips <= counters.tries <= done * n_discontinuous and counters.passing <= counters.tries)
    if counters.tries > 0:
        stats.no_flip_rate = 1 - counters.flips / counters.tries
        stats.no_flip_probability = counters.passing / counters.tries
    else:  # no discontinuous coordinate, or a failure before the first move
        stats.no_flip_rate = stats.no_flip_probability = n_discontinuous == 0
    stats.n_density_evaluations = counters.densities + counters.gradients
    return metropolis_accept(at, randomness, energies, eps, settings.step_size, done, status, stats)
