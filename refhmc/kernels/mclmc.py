"""Microcanonical Langevin Monte Carlo: steps of constant speed, a partial refreshment before each, and no decision.

    u <- a u + (1 - a^2)^(1/2) n,  divided by its length,   n uniform on the sphere;       (q, u) <- one step of (q, u)

The steps are those of :mod:`refhmc.integrators.microcanonical`, whose exact flow keeps exp(L(q)) times the uniform distribution
of u. Finite steps do not keep it, and each is accepted, so that the stationary distribution differs from the target.
Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo, arXiv 2212.08549. The
share a = exp(-eps / l) forgets the velocity over a length l. In their notation l d^(1/2) is L, and
(1 - a^2)^(1/2) / (a d^(1/2)) is nu.

**Bias on a normal.** For N(0, I) and d -> infinity, r^2 = |q|^2 / d and s = q.p / d are not random, and |p|^2 / d = 1. A step
maps (r^2, s) by

    drift of length h:  r^2 <- r^2 + 2 h s + h^2,  s <- s + h
    turn of length h:   s <- (s - r (sinh D + c (cosh D - 1))) / (cosh D + c sinh D),    D = h r,  c = -s / r

and the refreshment multiplies s by a. The map is reversible under s -> -s. It has a fixed point with s = 0, whatever a is: the
r^2 for which a step from (r^2, 0) ends with s = 0. The variance of the draws is this r^2. It is 1 for eps -> 0.
``validation/benchmarks/results/mclmc.md`` compares it with measurements.

**Step size.** Warm-up chooses it so that the energy error of a step, the change of H = -L + K, has the variance v d (v = 5e-4
in BlackJAX). Dual averaging makes the mean of exp(-(change of H)^2 / (v d)) equal to 3^(-1/2). This is its mean if the
change is normal with the variance v d. A single large error then moves the step size no more than any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from refhmc.compile.compiled import jit
from refhmc.core import sample_stats as S
from refhmc.core.arguments import positive, share, whole_number
from refhmc.core.point import as_point, copy_point
from refhmc.core.randomness import next_normals
from refhmc.core.types import as_points, as_work, as_workspace
from refhmc.integrators.microcanonical import projected
from refhmc.integrators.step import integrator_step
from refhmc.kernels.ghmc import DEFAULT, begin_with_kept, kept_share, refresh_in_part, refreshed
from refhmc.kernels.hmc import not_begun
from refhmc.kernels.mams import check_microcanonical
from refhmc.kernels.options import check_options, with_advice
from refhmc.numerics import batched
from refhmc.numerics.batched import Array


@with_advice
@dataclass(frozen=True, kw_only=True)
class MCLMC:
    """Microcanonical Langevin Monte Carlo, which is approximate.

    One step from the position q and the velocity u, a point of the sphere in coordinates in which the metric is the identity,
    is::

        u <- a u + (1 - a^2)^(1/2) n,  divided by its length,    n uniform on the sphere
        (q, u) <- one step of a splitting of  dq/ds = u,  du/ds = (I - u u') dL/dq / (d - 1)

    Every step is accepted, so that the stationary distribution is not the posterior. The bias decreases with the step size. On
    a normal of high dimension, steps of size 1, 1.5 and 2 make the variance 0.1, 0.7 and 2.5 % too small.

    Parameters
    ----------
    step_size : float, optional
        Step size of the integrator, in the units of :class:`HMC`: a step of size eps is one of d^(1/2) eps in the paper. By
        default it is adapted in warm-up until the energy error of a step has the variance `energy_variance` per coordinate.
    n_steps : int, default 1
        Number of steps per draw.
    persistence : float, optional
        Share a of the velocity that a step keeps, in [0, 1). Defaults to ``exp(-step_size)``: the velocity is forgotten over a
        length of 1, the L = d^(1/2) of the paper.
    energy_variance : float, default 5e-4
        Variance of the energy error of a step, divided by the number of coordinates, to which the step size is adapted.
    metric : object or str, optional
        A constant metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is
        :class:`refhmc.metrics.LowRank`. In a block of Gibbs, and with the backends ``"arrays"`` and ``"cupy"``, it is an
        adapted ``Diagonal()``.
    integrator : object or str, optional
        ``BCSS()``, the default, ``McLachlan()`` or ``Omelyan()``, or the name in lower case.

    Raises
    ------
    ValueError
        If a number is out of range, if a name is unknown, if the metric depends on the position, or if the integrator is not
        one of the three. `refhmc.sample` raises it for models, or blocks of Gibbs, with fewer than two coordinates.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    MAMS : The same dynamics with a Metropolis decision, which is exact.

    Notes
    -----
    A step without a finite energy ends a draw early. The chain then stays where it was before this step, draws a new velocity,
    and counts a divergence. ``energy_error`` is the sum of the errors of the steps.

    References
    ----------
    Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo, arXiv 2212.08549.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 2.0]])
    >>> kernel = refhmc.MCLMC(step_size=0.3, n_steps=5)
    >>> kernel.exact
    False
    >>> result = refhmc.sample(model, kernel, draws=200, tune=0, random_seed=1, progressbar=False, raw=True)
    >>> int(result.sample_stats["n_steps"].sum())
    4000
    """

    name = "mclmc"
    microcanonical = True
    keeps_momentum = True
    exact = False
    approximation = (
        "MCLMC accepts every step. With a finite step its stationary distribution differs from the posterior. Compare with "
        "half the step size, or use MAMS for the posterior."
    )
    target_accept = 3**-0.5
    step_size: float | None = None
    n_steps: int = 1
    persistence: float | None = None
    energy_variance: float = 5e-4
    metric: object = None
    integrator: object = None

    def __post_init__(self) -> None:
        check_options(self)
        whole_number("n_steps", self.n_steps)
        if self.persistence is not None:
            share("persistence", self.persistence)
        positive("energy_variance", self.energy_variance)
        check_microcanonical(self)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw."""
        return "lp", "energy_error", "diverging", "step_size", "n_steps", "int_time", "is_accepted", "outcome"

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return mclmc

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {
            "n_steps": self.n_steps,
            "persistence": DEFAULT if self.persistence is None else self.persistence,
            "energy_variance": self.energy_variance,
        }


def transition(
    H: Any,
    step: Callable,
    q: Array,
    p: Array | None,
    normals: Array,
    *,
    step_size: float,
    persistence: float | None = None,
) -> tuple[Array, Array, Array]:
    """Make steps of microcanonical Langevin Monte Carlo for each chain, on arrays.

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
    normals : array, shape (..., n, d)
        Standard normals for the n steps, from which the refreshment of the momenta is made.
    step_size : float
        Step size.
    persistence : float, optional
        Share of the momentum that a step keeps. Defaults to ``exp(-step_size)``.

    Returns
    -------
    q : array, shape (..., d)
        Positions. A chain that meets an energy that is not finite keeps the position before that step.
    p : array, shape (..., d)
        Momenta, NaN for such a chain.
    error : array, shape (...)
        Sum of the energy errors of the steps.
    """
    xp = batched.namespace(q)
    a = kept_share(DEFAULT if persistence is None else persistence, step_size + 0.0 * q[..., :1])
    total = 0.0 * q[..., 0]
    going = total == 0
    for i in range(normals.shape[-2]):
        n = projected(H, q, H.draw_momentum(q, normals[..., i, :]))
        start = projected(H, q, refreshed(n, p, a))
        there, end, change = step(H, q, start, step_size)
        error = change + H.model.log_density(q) - H.model.log_density(there)
        going = going & xp.isfinite(error)
        total = xp.where(going, total + error, total)
        q, p = xp.where(going[..., None], there, q), xp.where(going[..., None], end, xp.nan)
    return q, p, total


@jit
def mclmc(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make the steps of one draw from the state and its momentum, and return the outcome."""
    points, _, normals, own, work = as_workspace(workspace)
    at, status, eps = as_points(points), as_work(work).status, settings.step_size
    H = begin_with_kept(dynamics, model, workspace, randomness, settings, 1)
    if not math.isfinite(H):
        return not_begun(at.state, status, settings, stats)
    a = settings.persistence if settings.persistence >= 0 else math.exp(-eps)
    z, scale, done = at.candidate, settings.energy_variance * normals.shape[0], 0
    copy_point(z, at.state)
    while done < settings.n_steps:
        if control.stop:
            return S.INTERRUPTED
        if done > 0:
            next_normals(randomness, normals)
            H = refresh_in_part(dynamics, model, z, as_point(at.spare).p, normals, a, work)
        before = H
        H = integrator_step(dynamics, model, z, eps, work, own, True)
        if not math.isfinite(H):
            settings.keep_momentum = 0
            break
        done += 1
        stats.energy_error += H - before
        stats.acceptance_rate += math.exp(-((H - before) ** 2) / scale) / settings.n_steps
        copy_point(at.state, z)
    stats.lp = as_point(at.state).log_density[0]
    stats.step_size = stats.step_size_nom = eps
    stats.n_steps, stats.int_time = done, done * eps
    stats.diverging, stats.is_accepted = done < settings.n_steps, done > 0
    return S.reason(status) if stats.diverging else S.ACCEPTED
