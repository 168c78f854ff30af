"""Metropolis-adjusted Langevin trajectories: partial refreshments of the momentum between steps, and one decision at the end.

    p ~ N(0, M);   error = 0
    for i = 1, ..., n:
        p <- a p + sqrt(1 - a^2) n_i,   n_i ~ N(0, M)                (not for i = 1)
        (q', p') = step(q, p);   error <- error + H(q', p') - H(q, p);   (q, p) <- (q', p')
    keep the end with probability min(1, exp(-error)), otherwise stay at the start

The steps are those of Langevin dynamics with friction: O B A B O with a = exp(-friction * step_size). Two half refreshments O
between steps are joined into one. At a fixed q the refreshment is reversible with respect to exp(-H). It has therefore no part
in the ratio of the densities of a trajectory and of the same one backwards, and only the errors of the steps remain.
Riou-Durand and Vogrinc (2022), Metropolis Adjusted Langevin Trajectories: a robust alternative to Hamiltonian Monte Carlo,
arXiv 2202.13230, Algorithm 1 and eq. 9 to 11. With a = 1 this is HMC, and with n = 1 it is MALA.

Each transition draws a new momentum. The one at the end is not needed, since the decision concerns the whole trajectory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refhmc.compile.compiled import jit
from refhmc.core import sample_stats as S
from refhmc.core.arguments import share
from refhmc.core.point import as_point, copy_point
from refhmc.core.randomness import next_normals
from refhmc.core.types import as_points, as_work, as_workspace
from refhmc.integrators.step import integrator_step
from refhmc.kernels.ghmc import DEFAULT, check_one_copy, kept_share, refresh_in_part, refreshed
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
    with_end,
)
from refhmc.kernels.options import check_jitter, check_length, check_options, solver_statistics, with_advice
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@with_advice
@dataclass(frozen=True, kw_only=True)
class MALT:
    """Metropolis-adjusted Langevin trajectories: refresh the momentum in part after each step, and decide once at the end.

    One transition from the position q is::

        p ~ N(0, M);   error = 0;   q0 = q
        repeat n times:
            p <- a p + sqrt(1 - a^2) n,   n ~ N(0, M)   (not before the first step)
            (q', p') = one step of the integrator from (q, p)
            error <- error + H(q', p') - H(q, p);   (q, p) <- (q', p')
        return q with probability min(1, exp(-error)), else q0

    Its efficiency depends less on the trajectory length than that of HMC, because the refreshments damp periodic motion.

    Parameters
    ----------
    step_size : float, optional
        Step size of the integrator. By default it is adapted in warm-up until the acceptance rate is `target_accept`.
    n_steps : int, optional
        Number of steps per trajectory. Give `n_steps` or `trajectory_length`, not both.
    trajectory_length : float, optional
        Length of a trajectory, ``n_steps * step_size``. The number of steps is rounded to a whole number from 1 to 1,024. The
        default is pi/2.
    persistence : float, optional
        Share a of the momentum that is kept between two steps, in [0, 1). Defaults to ``exp(-step_size)``, a friction of 1.
        Near 1 this is HMC.
    step_jitter : float, default 0.0
        Relative half-width, in [0, 1), of the uniform jitter of the step size.
    metric : object or str, optional
        A metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is :class:`refhmc.metrics.LowRank`. In
        a block of Gibbs, and with the backends ``"arrays"`` and ``"cupy"``, it is an adapted ``Diagonal()``.
    integrator : object or str, optional
        An integrator of `refhmc.integrators`, or its name in lower case. Defaults to ``Leapfrog()``, or to
        ``ImplicitMidpoint()`` if the metric depends on the position, or to ``BlockLeapfrog()`` for ``Hierarchical``.
    target_accept : float, optional
        Target acceptance rate, in (0, 1). The default is that of :class:`HMC`.

    Raises
    ------
    ValueError
        If a number is out of range, if both `n_steps` and `trajectory_length` are given, if a name is unknown, or if the
        integrator does not fit the metric, moves two copies of (q, p), or follows the parts of a split model.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    GHMC : Decides after each refreshment, and keeps its momentum.

    Notes
    -----
    Each transition draws a new momentum. ``energy_error`` is the sum of the errors of the steps, and ``energy`` is the energy
    at the start plus this sum.

    References
    ----------
    Riou-Durand and Vogrinc (2022), Metropolis Adjusted Langevin Trajectories: a robust alternative to Hamiltonian Monte Carlo,
    arXiv 2202.13230, Algorithm 1.

    Examples
    --------
    >>> import refhmc
    >>> kernel = refhmc.MALT(step_size=0.4, n_steps=5)
    >>> result = refhmc.sample(
    ...     refhmc.models.Funnel(2), kernel, draws=100, tune=0, random_seed=1, progressbar=False, raw=True
    ... )
    >>> int(result.sample_stats["n_steps"].max())
    5
    """

    name = "malt"
    step_size: float | None = None
    n_steps: int | None = None
    trajectory_length: float | None = None
    persistence: float | None = None
    step_jitter: float = 0.0
    metric: object = None
    integrator: object = None
    target_accept: float | None = None

    def __post_init__(self) -> None:
        check_options(self)
        check_length(self)
        if self.persistence is not None:
            share("persistence", self.persistence)
        check_jitter(self, "step_jitter")
        check_one_copy(self)
        base: Any = getattr(self.integrator, "base", self.integrator)
        if getattr(base, "follows_parts", False):
            raise ValueError(
                f"integrator of MALT must not follow the parts of a split model; got {type(base).__name__}. Use Leapfrog()."
            )

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw."""
        names = ("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "diverging", "step_size")
        nominal = ("step_size_nom",) if self.step_jitter > 0 else ()
        return (*names, *nominal, "n_steps", "int_time", "is_accepted", "outcome", *solver_statistics(self))

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return malt

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
            "n_steps": self.n_steps or 0,
            "trajectory_length": length or 0.0,
            "persistence": DEFAULT if self.persistence is None else self.persistence,
        }


def transition(
    H: Any,
    step: Callable,
    q: Array,
    p: Array,
    numbers: Array,
    *,
    step_size: float,
    n_steps: int,
    persistence: float | None = None,
    step_jitter: float = 0.0,
) -> Moves:
    """Make one transition of MALT for each chain, on arrays.

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
    numbers : array, shape (..., k)
        Random numbers in this order: a uniform for the jitter, if there is one; d standard normals for each of the ``n_steps -
        1`` refreshments; a uniform for the decision.
    step_size : float
        Step size before jitter.
    n_steps : int
        Number of steps.
    persistence : float, optional
        Share of the momentum that is kept between two steps. Defaults to ``exp(-step_size)``.
    step_jitter : float, default 0.0
        Relative half-width of the jitter of the step size.

    Returns
    -------
    Moves
        Positions after the transition, and acceptance, sum of the energy errors and number of steps of each chain.
    """
    d, start = q.shape[-1], q
    eps, n, used = jittered(q, numbers, step_size, n_steps, step_jitter, 0.0)
    a = kept_share(DEFAULT if persistence is None else persistence, step_size + 0.0 * q[..., :1])
    error = 0.0 * q[..., 0]
    for i in range(n_steps):
        if i > 0:
            p, used = refreshed(H.draw_momentum(q, numbers[..., used : used + d]), p, a), used + d
        before = H.energy(q, p)
        q, p = step(H, q, p, eps[..., None])
        error = error + H.energy(q, p) - before
    xp = batched.namespace(q)
    return accept(start, xp.where(xp.isfinite(error)[..., None], q, start), error, numbers[..., used], n)


@jit
def malt(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make one transition from the state, with a fresh momentum, and return its outcome."""
    points, _, normals, own, work = as_workspace(workspace)
    at, status = as_points(points), as_work(work).status
    H0 = begin(dynamics, model, workspace, randomness, settings)
    if not math.isfinite(H0):
        return not_begun(at.state, status, settings, stats)
    eps, n_steps = jittered_step(randomness, settings), jittered_length(randomness, settings)
    a = settings.persistence if settings.persistence >= 0 else math.exp(-settings.step_size)
    z, done, H, condition = at.candidate, 0, H0, status.condition
    energies = Energies(H0, H0, H0, H0, 0.0)  # with the errors of the steps only
    copy_point(z, at.state)
    while done < n_steps and math.isfinite(energies.end):
        if control.stop:
            return S.INTERRUPTED
        if done > 0:
            next_normals(randomness, normals)
            H = refresh_in_part(dynamics, model, z, as_point(at.spare).p, normals, a, work)
        before = H
        H = integrator_step(dynamics, model, z, eps, work, own, True)
        energies = with_end(energies, energies.end + (H - before))
        done += 1
    for _ in range(
        n_steps - done
    ):  # numbers of a broken trajectory, so that the decision's place on a tape is the same
        next_normals(randomness, normals)
    status.condition = condition  # that of the start, which later draws of a momentum have overwritten
    return metropolis_accept(at, randomness, energies, eps, settings.step_size, done, status, stats)
