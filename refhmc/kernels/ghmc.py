"""Generalised Hamiltonian Monte Carlo: a momentum that is kept in part, a few steps, and a flip on rejection.

    1.  p <- a p + sqrt(1 - a^2) n,   n ~ N(0, M)
    2.  (q*, p*) = (one step)^n (q, p)
    3.  (q, p) <- (q*, p*) with probability min(1, exp(H(q, p) - H(q*, p*))), else (q, -p)

The chain's state is (q, p). Part 1 keeps exp(-H), because a normal with covariance M goes into one with covariance
a^2 M + (1 - a^2) M. Parts 2 and 3 are a Metropolis test of the proposal (q*, -p*), which is its own inverse, followed by a flip
of the momentum, which keeps exp(-H) too. After an acceptance the two flips cancel, and the chain moves on in the same
direction. After a rejection it turns round, which is the price of a low acceptance rate. Horowitz (1991), eq. 14 to 19; Neal
(2011), sec. 5.3. With a = 0 this is HMC.

Neal's slice variable replaces the independent uniform numbers of part 3. The state has a number u in [-1, 1], which is uniform
and independent of (q, p). One transition is

    u <- u + delta  (u - 2 if that is 1 or more);     accept if |u| < r = exp(H(q, p) - H(q*, p*)), and then u <- u / r.

(q, p, |u| exp(-H)) is uniform below the density, and the move changes only (q, p) at the same height |u| exp(-H). So u / r is
again uniform. Since |u| changes slowly, acceptances and rejections come in runs, and the chain turns round less often. Neal
(2020), Non-reversibly updating a uniform [0,1] value for Metropolis accept/reject decisions, arXiv 2001.11950, sec. 3 and 4.

The momentum is a row of the chain's saved state, and u one of its settings. All of p is drawn again, p ~ N(0, M), when warm-up
changes M, and in the first transition.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refhmc.compile.compiled import jit, jit_inline
from refhmc.core import sample_stats as S
from refhmc.core.arguments import share, whole_number
from refhmc.core.point import POINT_ROWS, P, as_point, copy_row
from refhmc.core.randomness import bernoulli, draw_order, next_normals, uniform
from refhmc.core.types import as_dynamics, as_points, as_work, as_workspace
from refhmc.integrators.defaults import resolve
from refhmc.kernels.hmc import (
    accept,
    compiled_trajectory,
    end_with,
    flip_momentum,
    jittered,
    jittered_step,
    metropolis_probability,
    not_begun,
    trajectory,
)
from refhmc.kernels.options import check_jitter, check_options, solver_statistics, with_advice
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

DEFAULT = -1.0  # stands for the persistence exp(-n eps)
NOT_DRAWN = 2.0  # stands for a slice variable
LARGEST = 700.0  # logarithm of a ratio, so that the ratio is finite


@with_advice
@dataclass(frozen=True, kw_only=True)
class GHMC:
    """Generalised Hamiltonian Monte Carlo: keep a part of the momentum, make a few steps, and turn round on rejection.

    One transition from (q, p) is::

        p <- a p + sqrt(1 - a^2) n,   n ~ N(0, M)
        (q*, p*) = (one step of the integrator)^n (q, p)
        (q, p) <- (q*, p*)  with probability  min(1, exp(H(q, p) - H(q*, p*))),  else (q, -p)

    A transition costs as few as one gradient, and moves little. Take correspondingly more draws and more warm-up.

    Parameters
    ----------
    step_size : float, optional
        Step size of the integrator. By default it is adapted in warm-up until the acceptance rate is `target_accept`.
    n_steps : int, default 1
        Number of steps per transition.
    persistence : float, optional
        Share a of the momentum that a transition keeps, in [0, 1). Defaults to ``exp(-n_steps * step_size)``: the momentum is
        forgotten over a length of 1. On a standard normal this gives the least autocorrelation of q^2. With 0, this is HMC.
    slice_shift : float, default 0.0
        Shift delta of Neal's slice variable per transition, in [0, 1). With 0, each decision uses an independent uniform
        number. A small value such as 0.03 groups the rejections, so that a smaller `target_accept` is affordable.
    step_jitter : float, default 0.0
        Relative half-width, in [0, 1), of the uniform jitter of the step size.
    metric : object or str, optional
        A metric of `refhmc.metrics`, or its name in lower case. The default, ``"auto"``, is :class:`refhmc.metrics.LowRank`. In
        a block of Gibbs, and with the backends ``"arrays"`` and ``"cupy"``, it is an adapted ``Diagonal()``.
    integrator : object or str, optional
        An integrator of `refhmc.integrators`, or its name in lower case. Defaults to ``Leapfrog()``, or to
        ``ImplicitMidpoint()`` if the metric depends on the position, or to ``BlockLeapfrog()`` for ``Hierarchical``.
    target_accept : float, default 0.95
        Target acceptance rate, in (0, 1). It is high because each rejection reverses the chain.

    Raises
    ------
    ValueError
        If a number is out of range, if a name is unknown, if the integrator does not fit the metric, or if it moves two copies
        of (q, p), as ``ExplicitTao`` does. In a block of Gibbs, also if the metric depends on the position.
    TypeError
        If an option is unknown, or if `metric` or `integrator` is not a suitable object.

    See Also
    --------
    HMC : Draws a new momentum for each transition.
    DRHMC : Retries a rejected proposal with smaller steps.

    Notes
    -----
    The state of a chain includes the momentum and the slice variable, also in checkpoints and stores. If warm-up changes the
    metric, the next transition draws a new momentum. The E-BFMI of a kept momentum is low by construction, so that no warning
    is given for it.

    References
    ----------
    - Horowitz (1991), A generalized guided Monte Carlo algorithm, Physics Letters B 268.
    - Neal (2011), MCMC using Hamiltonian dynamics, section 5.3.
    - Neal (2020), Non-reversibly updating a uniform [0,1] value for Metropolis accept/reject decisions, arXiv 2001.11950.

    Examples
    --------
    >>> import refhmc
    >>> model = refhmc.models.Gaussian([0.0, 0.0], [[1.0, 0.5], [0.5, 2.0]])
    >>> kernel = refhmc.GHMC(step_size=0.3, persistence=0.7)
    >>> result = refhmc.sample(model, kernel, draws=1000, tune=0, random_seed=1, progressbar=False, raw=True)
    >>> int(result.sample_stats["n_steps"].sum())
    4000
    """

    name = "ghmc"
    keeps_momentum = True
    step_size: float | None = None
    n_steps: int = 1
    persistence: float | None = None
    slice_shift: float = 0.0
    step_jitter: float = 0.0
    metric: object = None
    integrator: object = None
    target_accept: float | None = 0.95

    def __post_init__(self) -> None:
        check_options(self)
        whole_number("n_steps", self.n_steps)
        if self.persistence is not None:
            share("persistence", self.persistence)
        share("slice_shift", self.slice_shift)
        check_jitter(self, "step_jitter")
        check_one_copy(self)

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw."""
        names = ("lp", "energy", "energy_error", "max_energy_error", "acceptance_rate", "diverging", "step_size")
        nominal = ("step_size_nom",) if self.step_jitter > 0 else ()
        of_slice = ("slice_variable",) if self.slice_shift > 0 else ()
        return (*names, *nominal, "n_steps", "int_time", "is_accepted", "outcome", *of_slice, *solver_statistics(self))

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return ghmc

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        return {
            "jitter": self.step_jitter,
            "length_jitter": 0.0,
            "n_steps": self.n_steps,
            "trajectory_length": 0.0,
            "persistence": DEFAULT if self.persistence is None else self.persistence,
            "slice_shift": self.slice_shift,
            "slice_variable": NOT_DRAWN,
        }


def check_one_copy(kernel: Any) -> None:
    """Raise ValueError for an integrator whose points have copies, which have no momentum of their own to keep."""
    _, integrator = resolve(kernel.metric, kernel.integrator)
    base = getattr(integrator, "base", integrator)
    if getattr(base, "point_rows", POINT_ROWS) > POINT_ROWS:
        raise ValueError(
            f"integrator of {type(kernel).__name__} must move a single (q, p); got {type(base).__name__}, which moves two "
            "copies. Use ImplicitMidpoint, GeneralizedLeapfrog or ProjectedTao."
        )


class KeptMoves(NamedTuple):
    """Result of one transition of many chains that keep their momenta, on arrays.

    Parameters
    ----------
    q : array, shape (..., d)
        Positions after the transition.
    p : array, shape (..., d)
        Momenta after the transition.
    slice_variable : array, shape (...)
        Slice variables after the transition, or 2 if there are none.
    is_accepted : array, shape (...)
        Whether the proposals were accepted.
    acceptance_rate : array, shape (...)
        min(1, exp(H0 - H)) of the proposals.
    energy_error : array, shape (...)
        H - H0 of the proposals.
    n_steps : array, shape (...)
        Numbers of steps.
    """

    q: Array
    p: Array
    slice_variable: Array
    is_accepted: Array
    acceptance_rate: Array
    energy_error: Array
    n_steps: Array


def transition(
    H: Any,
    step: Callable,
    q: Array,
    p: Array | None,
    normals: Array,
    uniforms: Array,
    *,
    step_size: float,
    n_steps: int = 1,
    persistence: float | None = None,
    slice_shift: float = 0.0,
    slice_variable: Array | None = None,
    step_jitter: float = 0.0,
) -> KeptMoves:
    """Make one transition of generalised HMC for each chain, on arrays.

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
        Step size before jitter.
    n_steps : int, default 1
        Number of steps.
    persistence : float, optional
        Share of the momentum that is kept. Defaults to ``exp(-n_steps * step_size)``.
    slice_shift : float, default 0.0
        Shift of the slice variable.
    slice_variable : array, shape (...), optional
        Slice variables after the last transition, if `slice_shift` is not 0. None before the first one, which draws them.
    step_jitter : float, default 0.0
        Relative half-width of the jitter of the step size.

    Returns
    -------
    KeptMoves
        Positions, momenta and slice variables after the transition, and acceptance, energy error and number of steps.
    """
    xp = batched.namespace(q)
    a = kept_share(DEFAULT if persistence is None else persistence, n_steps * step_size + 0.0 * q[..., :1])
    p = refreshed(H.draw_momentum(q, normals), p, a)
    eps, n, used = jittered(q, uniforms, step_size, n_steps, step_jitter, 0.0)
    (new, end), energy, done = trajectory(H, step, (q, p), eps, n)
    error = energy - H.energy(q, p)
    u = uniforms[..., used]
    variable = NOT_DRAWN + 0.0 * error
    if slice_shift > 0:
        u, variable = sliced(slice_variable, u, error, slice_shift)
    moves = accept(q, new, error, u, done)
    p = xp.where(moves.is_accepted[..., None], end, -p)
    return KeptMoves(moves.q, p, variable, *moves[1:])


def kept_share(persistence: float, length: Array) -> Array:
    """Return a, (..., 1), by default from the nominal length of the trajectories, (..., 1)."""
    return batched.namespace(length).exp(-length) if persistence < 0 else persistence + 0.0 * length


def refreshed(n: Array, p: Array | None, a: Array) -> Array:
    """Return a p + sqrt(1 - a^2) n with n ~ N(0, G(q)), and n where p is None or NaN."""
    return n if p is None else batched.namespace(n).where(p == p, a * p + (1 - a * a) ** 0.5 * n, n)


def sliced(variable: Array | None, v: Array, error: Array, shift: float) -> tuple[Array, Array]:
    """Return 0 where u accepts and else 1, and u after the decision; v draws a u that is None or NOT_DRAWN."""
    xp = batched.namespace(error)
    u = 2 * v - 1
    if variable is not None:
        u = xp.where(variable > 1, u, variable)
    u = u + shift
    u = xp.where(u >= 1, u - 2, u)
    finite = xp.isfinite(error)
    ratio = xp.exp(xp.clip(xp.where(finite, -error, 0.0), None, LARGEST))
    accepted = finite & (xp.abs(u) < ratio)
    below = xp.where(accepted, 0.0, 1.0)
    return below, xp.where(accepted, xp.clip(u / ratio, -1.0, 1.0), u)


@jit
def refresh_in_part(
    dynamics: tuple, model: tuple, z: np.ndarray, kept: np.ndarray, normals: np.ndarray, a: float, work: tuple
) -> float:
    """Set p <- a p + sqrt(1 - a^2) n at the point, with n from the normals, and return H; ``kept`` is workspace."""
    dyn, p, b = as_dynamics(dynamics), as_point(z).p, math.sqrt(1 - a * a)
    copy_row(kept, p)
    dyn.refresh(model, dyn.metric, z, normals, True, work)
    for i in range(p.shape[0]):
        p[i] = a * kept[i] + b * p[i]
    return dyn.refresh(model, dyn.metric, z, normals, False, work)


@jit
def begin_with_kept(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, n_steps: int
) -> float:
    """Refresh the state's momentum in part, or draw it if there is none, and return H0, which may be not finite."""
    points, _, normals, own, work = as_workspace(workspace)
    dyn, at = as_dynamics(dynamics), as_points(points)
    next_normals(randomness, normals)
    if as_work(work).options.drawn_parts > 0:
        draw_order(randomness, as_work(work).options.drawn_parts, own)
    if settings.keep_momentum > 0:
        a = settings.persistence if settings.persistence >= 0 else math.exp(-n_steps * settings.step_size)
        H0 = refresh_in_part(dynamics, model, at.state, as_point(at.spare).p, normals, a, work)
    else:
        H0 = dyn.refresh(model, dyn.metric, at.state, normals, True, work)
    settings.keep_momentum = int(math.isfinite(H0))
    return H0


@jit_inline
def slice_accepts(randomness: tuple, settings: Any, log_ratio: float) -> bool:
    """Move the slice variable, return whether it accepts, and divide it by exp(log_ratio) if it does."""
    u = settings.slice_variable
    if u > 1:
        u = 2 * uniform(randomness) - 1
    u += settings.slice_shift
    if u >= 1:
        u -= 2
    ratio = math.exp(min(log_ratio, LARGEST)) if math.isfinite(log_ratio) else 0.0
    accepted = abs(u) < ratio
    if accepted:
        u = min(max(u / ratio, -1.0), 1.0)
    settings.slice_variable = u
    return accepted


@jit
def ghmc(
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """Make one transition from the state and its momentum, and return its outcome."""
    points, _, _, _, work = as_workspace(workspace)
    at, status = as_points(points), as_work(work).status
    H0 = begin_with_kept(dynamics, model, workspace, randomness, settings, settings.n_steps)
    if not math.isfinite(H0):
        return not_begun(at.state, status, settings, stats)
    eps = jittered_step(randomness, settings)
    energies, done = compiled_trajectory(None, dynamics, model, workspace, settings, H0, eps, settings.n_steps, control)
    if control.stop:
        return S.INTERRUPTED
    probability = metropolis_probability(H0 - energies.end)
    if settings.slice_shift > 0:
        accepted = slice_accepts(randomness, settings, H0 - energies.end)
        stats.slice_variable = settings.slice_variable
    else:
        accepted = bernoulli(randomness, probability)
    if accepted:
        copy_row(at.state[P], at.candidate[P])
    else:
        flip_momentum(at.state)
    return end_with(at, accepted, probability, energies, eps, settings.step_size, done, status, stats)
