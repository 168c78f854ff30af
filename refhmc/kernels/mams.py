"""The Metropolis-adjusted microcanonical sampler: trajectories of constant speed, and one Metropolis decision.

    u uniform on the sphere, or a part of the old u;   (q*, u*) = (one step)^n (q, u)
    (q, u) <- (q*, u*) with probability min(1, exp(L(q*) - L(q) - K)), else (q, -u)

The steps are those of :mod:`refhmc.integrators.microcanonical`. They turn the velocity u, which has a constant length, towards
the gradient. K is the sum of their changes dK, minus the log of the Jacobian of (q, u) -> (q*, u*). The proposal (q*, -u*) is
its own inverse. So the ratio of the densities of the two directions is exp(L(q*) - L(q)) times this Jacobian, and the test
keeps exp(L(q)) times the uniform distribution of u. Robnik, Cohn-Gordon and Seljak (2025), Metropolis adjusted microcanonical
Hamiltonian Monte Carlo, arXiv 2503.01707.

With a persistence a > 0 the velocity is kept in part, u <- a u + (1 - a^2)^(1/2) n with n uniform on the sphere, divided by its
length. The density of this move depends on the angle between the old and the new u only, so that it is reversible and keeps
the uniform distribution. The velocity is reversed after a rejection, as in :mod:`refhmc.kernels.ghmc`.

The number of steps is jittered, because trajectories of a fixed length are periodic on a normal.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refhmc.compile.compiled import jit, jit_inline
from refhmc.core import sample_stats as S
from refhmc.core.arguments import share
from refhmc.core.point import P, copy_row
from refhmc.core.randomness import bernoulli
from refhmc.core.types import as_points, as_work, as_workspace
from refhmc.integrators.defaults import resolve
from refhmc.integrators.microcanonical import projected
from refhmc.integrators.splitting import Splitting
from refhmc.kernels.ghmc import NOT_DRAWN, KeptMoves, begin_with_kept, refreshed
from refhmc.kernels.hmc import (
    MAX_STEPS,
    accept,
    begin,
    compiled_trajectory,
    end_with,
    flip_momentum,
    jittered,
    jittered_length,
    jittered_step,
    metropolis_probability,
    not_begun,
)
from refhmc.kernels.options import check_jitter, check_length, check_options, with_advice
from refhmc.metrics import Hierarchical
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@with_advice
@dataclass(frozen=True, kw_only=True)
class MAMS:
    """Metropolis-adjusted microcanonical sampler: trajectories of constant speed that the gradient turns, and one decision.

    One transition from the position q is as follows, with the velocity u on the sphere, in coordinates in which the metric is
    the identity::

        u <- a u + (1 - a^2)^(1/2) n  with n uniform on the sphere, divided by its length
        (q*, u*) = (one step of a splitting of  dq/ds = u,  du/ds = (I - u u') dL/dq / (d - 1))^n (q, u)
        (q, u) <- (q*, u*)  with probability  min(1, exp(L(q*) - L(q)) |det d(q*, u*) / d(q, u)|),  otherwise  (q, -u)

    The speed does not depend on the position, unlike that of HMC, which is high where the density is large. Step size and
    length have the units of :class:`HMC`: a step of size eps is one of d^(1/2) eps in the paper.

    Parameters
    ----------
    step_size : float, optional
        Step size of the integrator. By default it is adapted in warm-up until the acceptance rate is `target_accept`.
    n_steps : int, optional
        Number of steps per trajectory before jitter. Give `n_steps` or `trajectory_length`, not both. If neither is given,
        warm-up learns the trajectory length.
    trajectory_length : float, optional
        Length of a trajectory before jitter, ``n_steps * step_size``. The number of steps is rounded to a whole number from 1
        to 1,024.
    persistence : float, default 0.5
        Share a of the velocity that a transition keeps, in [0, 1). With 0, each transition draws a new velocity.
    step_jitter : float, default 0.0
        Relative half-width, in [0, 1), of the uniform jitter of the step size.
    length_jitter : float, optional
        Relative half-width, in [0, 1), of the uniform jitter of the number of steps, which is then rounded to at least 1.
        Defaults to 0.5 if the trajectory length is learned, and to 0 otherwise.
    metric : object or str, optional
        A constant metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is
        :class:`refhmc.metrics.LowRank`. In a block of Gibbs, and with the backends ``"arrays"`` and ``"cupy"``, it is an
        adapted ``Diagonal()``.
    integrator : object or str, optional
        ``BCSS()``, the default, ``McLachlan()``, which is that of the paper, or ``Omelyan()``, or the name in lower case. The
        kicks of the splitting become turns of the velocity. ``BCSS()`` allows steps that are half as long again.
    target_accept : float, default 0.9
        Target acceptance rate, in (0, 1).

    Raises
    ------
    ValueError
        If a number is out of range, if both `n_steps` and `trajectory_length` are given, if a name is unknown, if the metric
        depends on the position, or if the integrator is not one of the three. `refhmc.sample` raises it for models, or blocks
        of Gibbs, with fewer than two coordinates.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    MCLMC : The same dynamics without the decision.
    HMC : Trajectories whose speed depends on the density.

    Notes
    -----
    A trajectory ends at an energy that is not finite, and at a turn by delta > 12, which rounding makes irreversible. Both are
    counted as divergences. There is no statistic ``energy``: K is zero at the start of each trajectory, so that E-BFMI has no
    meaning. ``energy_error`` is L(q) - L(q*) + K.

    References
    ----------
    Robnik, Cohn-Gordon and Seljak (2025), Metropolis adjusted microcanonical Hamiltonian Monte Carlo, arXiv 2503.01707.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 2.0]])
    >>> kernel = refhmc.MAMS(step_size=0.5, n_steps=4, length_jitter=0.5)
    >>> result = refhmc.sample(model, kernel, draws=100, tune=0, random_seed=1, progressbar=False, raw=True)
    >>> int(result.sample_stats["n_steps"].max())
    6
    """

    name = "mams"
    microcanonical = True
    step_size: float | None = None
    n_steps: int | None = None
    trajectory_length: float | None = None
    persistence: float = 0.5
    step_jitter: float = 0.0
    length_jitter: float | None = None
    metric: object = None
    integrator: object = None
    target_accept: float | None = 0.9

    def __post_init__(self) -> None:
        check_options(self)
        check_length(self)
        share("persistence", self.persistence)
        check_jitter(self, "step_jitter", *([] if self.length_jitter is None else ["length_jitter"]))
        check_microcanonical(self)

    @property
    def keeps_momentum(self) -> bool:
        """Whether a part of the velocity is kept between transitions."""
        return self.persistence > 0

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw; ``step_size_nom`` is included if the step size is jittered."""
        names = ("lp", "energy_error", "max_energy_error", "acceptance_rate", "diverging", "step_size")
        nominal = ("step_size_nom",) if self.step_jitter > 0 else ()
        return (*names, *nominal, "n_steps", "int_time", "is_accepted", "outcome")

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return mams

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
            "length_jitter": 0.5 * self.learns_length if self.length_jitter is None else self.length_jitter,
            "n_steps": self.n_steps or 0,
            "trajectory_length": length or 0.0,
            "persistence": self.persistence,
            "max_depth": 0 if self.n_steps else int(math.log2(MAX_STEPS)),
        }


def check_microcanonical(kernel: Any) -> None:
    """Raise ValueError unless the metric is constant and the integrator is a splitting, or "auto"."""
    metric, kind = resolve(kernel.metric, kernel.integrator)[0], type(kernel).__name__
    if metric.position_dependent or isinstance(kernel.metric, Hierarchical):
        raise ValueError(
            f"metric of {kind} must be constant; got {type(kernel.metric).__name__}. Use LowRank(), Diagonal() or Dense()."
        )
    if not isinstance(kernel.integrator, Splitting | None):
        raise ValueError(
            f"integrator of {kind} must be BCSS(), McLachlan() or Omelyan(); got {type(kernel.integrator).__name__}. "
            "Omit it for BCSS()."
        )


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
    persistence: float = 0.0,
    step_jitter: float = 0.0,
    length_jitter: float = 0.0,
) -> KeptMoves:
    """Make one transition of the Metropolis-adjusted microcanonical sampler for each chain, on arrays.

    Parameters
    ----------
    H : HamiltonianOnArrays
        The Hamiltonian of a constant metric, from :func:`refhmc.array_api.hamiltonian`.
    step : callable
        One step, from :func:`refhmc.array_api.drifts_and_turns`.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d), or None
        Momenta after the last transition, with p' M^-1 p = d. None before the first one, which draws them.
    normals : array, shape (..., d)
        Standard normals, from which the refreshment of the momenta is made.
    uniforms : array, shape (..., k)
        Uniform random numbers, used in the order in which the transition needs them.
    step_size : float
        Step size before jitter.
    n_steps : float
        Number of steps before jitter and rounding.
    persistence : float, default 0.0
        Share of the momentum that is kept.
    step_jitter : float, default 0.0
        Relative half-width of the jitter of the step size.
    length_jitter : float, default 0.0
        Relative half-width of the jitter of the number of steps.

    Returns
    -------
    KeptMoves
        Positions and momenta after the transition, and acceptance, energy error and number of steps of each chain.
    """
    xp = batched.namespace(q)
    n = projected(H, q, H.draw_momentum(q, normals))
    p = projected(H, q, refreshed(n, p, persistence + 0.0 * q[..., :1]))
    eps, length, used = jittered(q, uniforms, step_size, n_steps, step_jitter, length_jitter)
    z, start, kinetic, done = (q, p), -H.model.log_density(q), 0.0 * eps, 0.0 * eps
    energy = start
    while xp.any(moving := xp.isfinite(energy) & (done < length)):
        *end, change = step(H, *z, eps[..., None])
        z = tuple(xp.where(moving[..., None], new, old) for new, old in zip(end, z, strict=True))
        kinetic = xp.where(moving, kinetic + change, kinetic)
        energy = xp.where(moving, kinetic - H.model.log_density(z[0]), energy)
        done = xp.where(moving, done + 1, done)
    moves = accept(q, z[0], energy - start, uniforms[..., used], done)
    p = xp.where(moves.is_accepted[..., None], z[1], -p)
    return KeptMoves(moves.q, p, NOT_DRAWN + 0.0 * eps, *moves[1:])


@jit_inline
def mams_with(
    record: Callable | None,
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: Any,
    stats: Any,
    control: Any,
) -> int:
    """Make one transition from the state, with a velocity that is new or kept in part, and return its outcome."""
    points, _, _, _, work = as_workspace(workspace)
    at, status = as_points(points), as_work(work).status
    if settings.persistence > 0:
        H0 = begin_with_kept(dynamics, model, workspace, randomness, settings, 1)
    else:
        H0 = begin(dynamics, model, workspace, randomness, settings)
    if not math.isfinite(H0):
        return not_begun(at.state, status, settings, stats)
    eps = jittered_step(randomness, settings)
    n_steps = jittered_length(randomness, settings)
    energies, done = compiled_trajectory(record, dynamics, model, workspace, settings, H0, eps, n_steps, control)
    if control.stop:
        return S.INTERRUPTED
    probability = metropolis_probability(H0 - energies.end)
    accepted = bernoulli(randomness, probability)
    if accepted:
        copy_row(at.state[P], at.candidate[P])
    else:
        flip_momentum(at.state)
    return end_with(at, accepted, probability, energies, eps, settings.step_size, done, status, stats)


@jit
def mams(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make one transition that records nothing (:func:`refhmc.adaptation.length.mams_recording` does)."""
    return mams_with(None, dynamics, model, workspace, randomness, settings, stats, control)
