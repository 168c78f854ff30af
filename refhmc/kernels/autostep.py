"""AutoStep: HMC whose step size is doubled or halved at each state until the acceptance ratio is in a random band.

Let Psi_j be n steps of size 2^j eps, and let the thresholds (a, b) be uniform on 0 < a < b < 1, drawn for each transition. The
ratio of a step at z is

    r_j(z) = exp(-abs(H(Psi_j z) - H(z))),   or exp(H(z) - H(Psi_j z)) if ``symmetric=False``,   0 if it is not finite.

The exponent j(z) is chosen as follows, with 0 <= abs(j) <= J, J = ``max_doublings``:

    r_0 > b:   double the step until r_j <= b; j(z) is the last j with r_j > b
    r_0 < a:   halve it until r_j >= a; j(z) is that j
    otherwise  j(z) = 0

The proposal F Psi_{j(z)} z, with the momentum reversed by F, is accepted with probability min(1, exp(H(z) - H(z'))) if
j(z') = j(z), and otherwise 0. This is the frame of :mod:`refhmc.kernels.gist` with the parameter t = (a, b, j). Its
probability given z is that of (a, b), which cancels, times 1 if j = j(z) and else 0. So the thresholds must be the same at both
ends.

Liu, Surjanovic, Biron-Lattes, Bouchard-Cote and Campbell (2025), AutoStep: locally adaptive involutive MCMC, arXiv 2410.18929,
Algorithms 1 and 2, with the symmetric rule. The asymmetric rule with n = 1 is autoMALA, Biron-Lattes et al. (2024),
arXiv 2310.16782. The papers have no bound J, and a random preconditioner, which is left out here.

The compiled implementation does not repeat the step from z' to z, whose ratio is known, and ends the search at z' as soon as
j(z') cannot be j(z).

**Adaptation.** The papers set eps to the average step size of a round. Here dual averaging adapts eps to the average of
min(1, exp(H(z) - H(Psi_0 z))), the acceptance probability of the first trial. Both settle where the exponents are near 0: the
step is doubled about as often as halved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core.arguments import flag, whole_number
from refhmc.core.point import copy_point
from refhmc.core.randomness import uniform
from refhmc.core.types import as_points, as_work, as_workspace
from refhmc.integrators.step import integrator_step
from refhmc.kernels.drhmc import probability_of
from refhmc.kernels.gist import STATISTICS, Tuned, TunedMoves, check_explicit, self_tuned, self_tuning
from refhmc.kernels.hmc import Energies, metropolis_probability, trajectory
from refhmc.kernels.options import check_options, solver_statistics, with_advice
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@with_advice
@dataclass(frozen=True, kw_only=True)
class AutoStep:
    """HMC or MALA with a step size that is chosen at each state.

    One transition from q, with z = (q, p), is::

        p ~ N(0, M),   (a, b) ~ uniform on 0 < a < b < 1
        j = 0;  double the step while its ratio exceeds b, or halve it while its ratio is below a
        z' = n_steps of size  2^j step_size  from z, with its momentum reversed
        q <- q'  with probability  min(1, exp(H(z) - H(z')))  if the same j is chosen at z' with the same a and b,  else 0

    The ratio of a step is ``exp(-abs(H' - H))``. With one step this is Metropolis-adjusted Langevin. The step size follows the
    scale of the density, such as that of a funnel, and needs little tuning.

    Parameters
    ----------
    step_size : float, optional
        Step size of the first trial. By default it is adapted in warm-up until the average acceptance probability of the first
        trial is `target_accept`.
    n_steps : int, default 1
        Number of steps of a trajectory.
    max_doublings : int, default 10
        Largest number of doublings or halvings, from 0 to 30.
    symmetric : bool, default True
        Whether the ratio is ``exp(-abs(H' - H))``. If not, it is ``exp(H - H')``, as in autoMALA. A chain that starts far out
        may then stay there, because the step size that is chosen where the energy falls is not chosen where it rises.
    metric : object or str, optional
        A metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is :class:`refhmc.metrics.LowRank`. In
        a block of Gibbs, and with the backends ``"arrays"`` and ``"cupy"``, it is an adapted ``Diagonal()``.
    integrator : object or str, optional
        An explicit integrator of `refhmc.integrators`, or its name in lower case. Defaults to ``Leapfrog()``, or to
        ``BlockLeapfrog()`` for ``Hierarchical``.
    target_accept : float, default 0.5
        Target of the adaptation, in (0, 1).

    Raises
    ------
    ValueError
        If a number is out of range, if a name is unknown, or if the integrator is implicit, does not fit the metric, moves two
        copies of (q, p), or follows the parts of a split model.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    GIST : Draws the number of steps in the same frame.
    WALNUTS : Chooses the step size within the trajectories of NUTS.
    DRHMC : Retries a rejected proposal with smaller steps.

    Notes
    -----
    The statistic ``step_size`` is the step size that was chosen, ``step_size_nom`` that of the first trial, ``n_steps`` counts
    the steps of all trials, and ``is_reversible`` is whether the same exponent is chosen at the other end. ``acceptance_rate``
    is the acceptance probability of the first trial.

    References
    ----------
    - Liu, Surjanovic, Biron-Lattes, Bouchard-Cote and Campbell (2025), AutoStep: locally adaptive involutive MCMC,
      arXiv 2410.18929, Algorithms 1 and 2.
    - Biron-Lattes, Surjanovic, Syed, Campbell and Bouchard-Cote (2024), autoMALA: locally adaptive Metropolis-adjusted Langevin
      algorithm, arXiv 2310.16782.

    Examples
    --------
    >>> import refhmc
    >>> model, kernel = refhmc.models.Funnel(3), refhmc.AutoStep()
    >>> result = refhmc.sample(model, kernel, draws=500, tune=500, random_seed=1, progressbar=False, raw=True)
    >>> steps = result.sample_stats["step_size"]
    >>> int(result.sample_stats["diverging"].sum()), bool(steps.max() > 8 * steps.min())
    (0, True)
    """

    name = "autostep"
    step_size: float | None = None
    n_steps: int = 1
    max_doublings: int = 10
    symmetric: bool = True
    metric: object = None
    integrator: object = None
    target_accept: float | None = 0.5

    def __post_init__(self) -> None:
        check_options(self)
        whole_number("n_steps", self.n_steps)
        whole_number("max_doublings", self.max_doublings, 0, 30)
        flag("symmetric", self.symmetric)
        check_explicit(self)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw."""
        return (*STATISTICS, "step_size_nom", *solver_statistics(self))

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return autostep

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {"n_steps": self.n_steps, "max_doublings": self.max_doublings, "symmetric": self.symmetric}


def transition(
    H: Any,
    step: Callable,
    q: Array,
    p: Array,
    uniforms: Array,
    *,
    step_size: float,
    n_steps: int = 1,
    max_doublings: int = 10,
    symmetric: bool = True,
) -> TunedMoves:
    """Make one transition of AutoStep for each chain, on arrays.

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
    uniforms : array, shape (..., 3)
        Uniform random numbers: two for the thresholds and one for the decision.
    step_size : float
        Step size of the first trial.
    n_steps : int, default 1
        Number of steps of a trajectory.
    max_doublings : int, default 10
        Largest number of doublings or halvings.
    symmetric : bool, default True
        Whether the ratio is that of the absolute energy error.

    Returns
    -------
    TunedMoves
        Positions after the transition, acceptance, energy errors, and the exponents of the step sizes as the parameter.
    """
    xp = batched.namespace(q)
    low, high = thresholds(uniforms[..., 0], uniforms[..., 1])

    def after(q: Array, p: Array, j: Array) -> tuple[Array, Array]:
        return trajectory(H, step, (q, p), 2.0**j * step_size, n_steps + 0.0 * j)[0]

    def exponent(q: Array, p: Array) -> Array:
        H0 = H.energy(q, p)
        return chosen_exponent(
            lambda j, _: ratio_of(H.energy(*after(q, p, j)) - H0, symmetric), 0.0 * H0, low, high, max_doublings
        )

    def log_probability(j: Array, q: Array, p: Array) -> Array:
        return xp.where(exponent(q, p) == j, 0.0, -xp.inf)

    def move(q: Array, p: Array, j: Array) -> tuple[Array, Array, Array]:
        new, end = after(q, p, j)
        return new, -end, j

    return self_tuning(H, q, p, uniforms[..., 2], exponent, log_probability, move)


def thresholds(u: Array, v: Array) -> tuple[Array, Array]:
    """Return a and b."""
    xp = batched.namespace(u)
    return xp.minimum(u, v), xp.maximum(u, v)


def ratio_of(error: Array, symmetric: bool) -> Array:
    """Return the ratio of a step from its energy error; above 1, it is used without its excess."""
    return probability_of(-batched.namespace(error).abs(error) if symmetric else -error)


def chosen_exponent(
    ratio: Callable, zero: Array, low: Array, high: Array, max_doublings: int, wanted: Array | None = None
) -> Array:
    """Return j(z), (...), or with ``wanted`` any other number than this where j(z) is not ``wanted``.

    ``ratio(j, asked)`` returns the ratios r_j, (...), of which only those in the mask ``asked`` are used.
    """
    xp, first = batched.namespace(zero), ratio(zero, zero == 0)
    grows, shrinks, j = first > high, first < low, zero
    for k in range(1, max_doublings + 1):
        if wanted is not None:
            grows, shrinks = grows & (k - 1 <= wanted), shrinks & (1 - k >= wanted)
        if not xp.any(grows | shrinks):
            break
        known = grows | (shrinks if wanted is None else shrinks & (-k >= wanted))
        r = ratio(xp.where(grows, float(k), -float(k)), known)
        grows = grows & (r > high)
        j = xp.where(grows, float(k), xp.where(shrinks, -float(k), j))
        shrinks = shrinks & (r < low)
    return j


@jit
def trial(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    settings: Any,
    start: np.ndarray,
    z: np.ndarray,
    eps: float,
    H0: float,
    stats: Any,
) -> tuple[float, float]:
    """Move the point ``z`` from ``start`` by n steps; return the energy there and the ratio of the step."""
    _, _, _, own, work = as_workspace(workspace)
    as_work(work).status.failure = 0
    copy_point(z, start)
    H, done = H0, 0
    while done < settings.n_steps and math.isfinite(H):
        done += 1
        H = integrator_step(dynamics, model, z, eps, work, own, True)
    stats.n_steps += done
    return H, ratio_of_error(H - H0, settings)


@jit
def ratio_of_error(error: float, settings: Any) -> float:
    """Return the ratio of a step from its energy error."""
    return metropolis_probability(-abs(error) if settings.symmetric > 0 else -error)


@jit
def draw_step_size(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: Any,
    H0: float,
    stats: Any,
    control: Any,
) -> Tuned:
    """Draw the thresholds, choose the exponent, and move the candidate."""
    points, _, _, _, _ = as_workspace(workspace)
    at, eps, most, j = as_points(points), settings.step_size, settings.max_doublings, 0
    u, v = uniform(randomness), uniform(randomness)
    low, high = min(u, v), max(u, v)
    H, r = trial(dynamics, model, workspace, settings, at.state, at.candidate, eps, H0, stats)
    rate = metropolis_probability(H0 - H)
    if r > high:
        while j < most:
            next_H, r = trial(dynamics, model, workspace, settings, at.state, at.trial, eps * 2.0 ** (j + 1), H0, stats)
            if not r > high:
                break
            j += 1
            H = next_H
            copy_point(at.candidate, at.trial)
    else:
        while j > -most and r < low:
            j -= 1
            H, r = trial(dynamics, model, workspace, settings, at.state, at.candidate, eps * 2.0**j, H0, stats)
    error = H - H0 if math.isfinite(H) else 0.0
    return Tuned((j, low, high), 0.0, Energies(H0, H, min(H0, H), max(H0, H), error), eps * 2.0**j, rate)


@jit
def log_probability_of_step_size(
    dynamics: tuple, model: tuple, workspace: tuple, settings: Any, H0: float, tuned: Tuned, stats: Any, control: Any
) -> float:
    """Return 0 if the candidate with its momentum reversed chooses the same exponent, and else -inf.

    Steps backward in time have a negative size. The one of exponent j leads to the state.
    """
    points, _, _, _, _ = as_workspace(workspace)
    at, (j, low, high), H = as_points(points), tuned.t, tuned.energies.end
    eps, most, known = -settings.step_size, settings.max_doublings, ratio_of_error(H0 - H, settings)
    r, k = known, 0
    if j != 0:
        _, r = trial(dynamics, model, workspace, settings, at.candidate, at.trial, eps, H, stats)
    if r > high:
        while k < most and k <= j and r > high:
            k += 1
            r = known
            if k != j:
                _, r = trial(dynamics, model, workspace, settings, at.candidate, at.trial, eps * 2.0**k, H, stats)
        if not r > high:
            k -= 1
    else:
        while k > -most and k >= j and r < low:
            k -= 1
            r = known
            if k > j:
                _, r = trial(dynamics, model, workspace, settings, at.candidate, at.trial, eps * 2.0**k, H, stats)
    return 0.0 if k == j else -math.inf


@jit
def autostep(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make one transition from the state, with a fresh momentum, and return its outcome."""
    return self_tuned(
        draw_step_size,
        log_probability_of_step_size,
        dynamics,
        model,
        workspace,
        randomness,
        settings,
        stats,
        control,
    )
