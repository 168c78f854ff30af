"""Stochastic gradients: SGD, SGLD and SGHMC, which follow one minibatch after another and accept every update.

**Minibatches.** With L = sum_m L_m, the M parts of a split model, each with 1/M of the prior (:mod:`refhmc.models.split`),

    g(q) = M dL_m/dq,       whose mean over m is dL/dq.

The parts are the minibatches. Each pass through the M of them has a fresh uniformly random order. A model that is not split,
and the conditional of a block under Gibbs, is one batch, g = dL/dq.

**One update.** With a constant mass M (the metric), a fresh standard normal z and a step h,

    p <- a p + h g(q) + c M^(1/2) z,        q <- q + h M^-1 p

    kernel   h              a                 c                        with v = h M^-1 p this is

    SGD      sqrt(eps)      the momentum mu   0                        v <- mu v + eps M^-1 g,   q <- q + v
    SGLD     sqrt(eps/2)    0                 sqrt(2)                  q <- q + eps/2 M^-1 g + sqrt(eps) M^(-1/2) z
    SGHMC    eps            1 - alpha         sqrt(2 (alpha - beta))   v <- (1 - alpha) v + eta g + N(0, 2 (alpha - beta) eta),
                                                                       q <- q + v,   eta = eps^2 M^-1

(SGLD: Welling and Teh 2011, eq. 4. SGHMC: Chen, Fox and Guestrin 2014, eq. 15; alpha is the friction.) SGLD is therefore SGHMC
that loses all of its momentum at each update. The momentum of SGD and SGHMC is kept from one transition to the next, as in the
program of Vadera et al. (2020), from which Cobb and Jalaian (2021) adapt how they tune their baselines. (At its commit 3bc179d
``optimSGHMC`` computes the noise and does not add it, so that SGLD and SGHMC are SGD there.)

**Steps.** The t-th update of a chain, t = 0, 1, ..., warm-up included, has the step

    eps_t = eps (1 + t/b)^-gamma                          decaying: Welling and Teh's a (b + t)^-gamma, a = eps b^gamma
    eps_t = eps/2 (cos(pi (t mod T) / T) + 1)             cyclic: Zhang et al. (2020), eq. 1, T = ceil(K/C) updates per cycle

or always eps. Averages over draws with decaying steps should be weighted by the statistic ``step_size``.

**Exploration** (Zhang et al. 2020, algorithm 1). In the first part of each cycle, while (t mod T)/T < beta, an update has no
noise, c = 0. With steps that are still large it climbs to a mode that may be a new one. Then the noise sets in, and only later
draws should be kept: the statistic ``exploring`` marks the draws to omit.

**Distribution of the draws.** Nothing is accepted or rejected, and with a finite step the stationary distribution is not the
target. On a Gaussian with precision A, with full batches, M = I and a constant step, the covariance of the draws is
A^-1 (I - eps A / 4)^-1 for SGLD, and A^-1 (I - eps^2 A / (2 (2 - alpha)))^-1 for SGHMC with beta = 0. The noise of minibatches
increases it further: ``tests/kernels/test_stochastic_gradient.py``.

A transition has n updates, by default one pass through the data. If a position, or the density of a minibatch, is not finite,
the chain returns to the start of the transition, with p = 0, and the draw is marked as diverging.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from refhmc.compile.compiled import jit
from refhmc.core import sample_stats as S
from refhmc.core.arguments import is_number, share, whole_number
from refhmc.core.point import POINT_ROWS, Q, as_point, copy_row
from refhmc.core.randomness import draw_order, next_normals
from refhmc.core.split_data import nth_part, part_of
from refhmc.core.types import as_model, as_points, as_work, as_workspace
from refhmc.kernels.options import check_options
from refhmc.metrics import Identity
from refhmc.metrics.base import NOTHING, Metric
from refhmc.metrics.euclidean import EuclideanOnArrays, diagonal, is_diagonal
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

IDENTITY = Identity()


@dataclass(frozen=True, kw_only=True)
class StochasticGradient:
    """Base class of the stochastic-gradient kernels, with their common options.

    Parameters
    ----------
    step_size : float
        Step size eps of the first update.
    n_steps : int, optional
        Number of updates per transition. By default one pass through the parts of the model.
    decay : tuple of float, optional
        ``(b, gamma)``, both positive, for decaying steps; b is a number of updates.
    cycle : int, optional
        Number T of updates per cycle, for cyclic steps.
    exploration : float, default 0.0
        Share beta of each cycle, in [0, 1), without noise.
    metric : Identity or Diagonal, default Identity()
        The constant metric M^-1. It is not adapted.
    evaluate_lp : bool, default False
        Evaluate the log density at each draw.

    Raises
    ------
    ValueError
        If a number is out of range.
    TypeError
        If `metric` is another metric, or one that is adapted.
    """

    step_size: float
    n_steps: int | None = None
    decay: tuple[float, float] | None = None
    cycle: int | None = None
    exploration: float = 0.0
    metric: Metric = IDENTITY
    evaluate_lp: bool = False

    integrator = None
    target_accept = None
    minibatches = True
    exact = False
    squared_by = 0.0  # h^2 = squared_by * eps; 0: h = eps

    def __post_init__(self) -> None:
        if self.step_size is None:
            raise ValueError(
                f"step_size must be given for {type(self).__name__}; got None. It is not adapted to minibatches."
            )
        check_options(self)
        if not is_diagonal(self.metric) or self.metric.learns != NOTHING:
            raise TypeError(
                f"metric must be Identity(), Diagonal(variances) or another diagonal one for {type(self).__name__}; got "
                f"{self.metric!r}. It is not adapted to minibatches."
            )
        for name in ("n_steps", "cycle"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name))
        if self.decay is not None:
            if self.cycle is not None:
                raise ValueError(
                    f"decay and cycle must not both be given; got {self.decay!r} and {self.cycle!r}. Remove one of them."
                )
            object.__setattr__(self, "decay", plain_decay(self.decay))
        if share("exploration", self.exploration) > 0 and self.cycle is None:
            raise ValueError(
                f"exploration must be 0 without cycle; got {self.exploration!r}. Give cycle, of which exploration is a share."
            )

    @property
    def a(self) -> float:
        """Share of the momentum that an update keeps."""
        return 0.0

    @property
    def c(self) -> float:
        """Size of the noise."""
        return 0.0

    @property
    def begins_at_rest(self) -> bool:
        """Whether the first momentum is zero instead of drawn."""
        return self.a == 0 or self.c == 0

    def step(self, t: int) -> float:
        """Return the step size of an update.

        Parameters
        ----------
        t : int
            Number of the update, from 0.

        Returns
        -------
        float
            The step size eps_t.
        """
        if self.decay is not None:
            b, gamma = self.decay
            return self.step_size * (1 + t / b) ** -gamma
        if self.cycle is not None:
            return self.step_size / 2 * (math.cos(math.pi * (t % self.cycle) / self.cycle) + 1)
        return self.step_size

    def explores(self, t: int) -> bool:
        """Return whether an update belongs to the exploration of its cycle, which has no noise.

        Parameters
        ----------
        t : int
            Number of the update, from 0.

        Returns
        -------
        bool
            Whether the update has no noise.
        """
        return self.cycle is not None and (t % self.cycle) / self.cycle < self.exploration

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics per draw; ``lp`` and ``exploring`` are included on request."""
        lp = ("lp",) if self.evaluate_lp else ()
        exploring = ("exploring",) if self.exploration > 0 else ()
        return (
            *lp,
            *exploring,
            "diverging",
            "step_size",
            "n_steps",
            "is_accepted",
            "outcome",
            "n_gradient_evaluations",
        )

    @property
    def transition(self) -> Callable:
        """Compiled function of one transition."""
        return stochastic_gradient

    def settings(self) -> dict[str, float]:
        """Return the options of the compiled transition.

        Returns
        -------
        dict of str to float
            The value of each option by its name.
        """
        b, gamma = self.decay or (1.0, 0.0)
        return {
            "n_steps": self.n_steps or 0,
            "momentum": self.a,
            "noise": self.c,
            "squared_by": self.squared_by,
            "decay_offset": b,
            "decay_power": gamma,
            "cycle": self.cycle or 0,
            "exploration": self.exploration,
            "evaluates_lp": self.evaluate_lp,
        }


@dataclass(frozen=True, kw_only=True)
class SGD(StochasticGradient):
    """Stochastic gradient ascent with momentum: an optimiser, for comparison.

    With the minibatch gradient g and the metric M, one update is::

        v <- mu v + eps_t M^-1 g(q),        q <- q + v

    Here ``g(q) = n dL_m/dq`` for one of the n parts L_m of a split model, or dL/dq if the model is not split. Every update is
    accepted. The draws do not have the posterior distribution: they are the iterates of an optimiser.

    Parameters
    ----------
    step_size : float
        Step size eps of the first update. It is the learning rate of the log density L, which is a sum over the data.
    n_steps : int, optional
        Number of updates per transition. By default a transition is one pass through the parts of the model.
    decay : tuple of float, optional
        ``(b, gamma)``, both positive, for the decaying steps ``eps_t = eps (1 + t/b)**-gamma``; b is a number of updates.
        Give `decay` or `cycle`, not both.
    cycle : int, optional
        Number T of updates per cycle, for the cyclic steps ``eps_t = eps/2 (cos(pi (t mod T)/T) + 1)``.
    exploration : float, default 0.0
        Must be 0: SGD has no noise.
    metric : Identity or Diagonal, default Identity()
        The constant metric M^-1. It is not adapted.
    evaluate_lp : bool, default False
        Evaluate the log density at each draw, for the statistic ``lp``. This costs one gradient of every part per draw.
    momentum : float, default 0.0
        Momentum mu, in [0, 1). If steps vary, ``p = v / sqrt(eps_t)`` is kept from one update to the next.

    Raises
    ------
    ValueError
        If `step_size` is missing, if a number is out of range, or if both `decay` and `cycle` are given.
    TypeError
        If `metric` is another metric, or one that is adapted.

    See Also
    --------
    SGLD : The same with noise and without momentum.
    SGHMC : The same with noise and friction.

    Notes
    -----
    Weight decay is the prior of the model and nothing else.

    Examples
    --------
    >>> import refhmc
    >>> kernel = refhmc.SGD(step_size=0.01, n_steps=100)
    >>> result = refhmc.sample(
    ...     refhmc.models.Gaussian([1.0], [[1.0]]), kernel, draws=100, tune=0, random_seed=1, progressbar=False, raw=True
    ... )
    >>> bool(abs(result.draws[:, -1] - 1).max() < 1e-3)
    True
    """

    name = "sgd"
    momentum: float = 0.0
    squared_by = 1.0
    approximation = (
        "SGD is an optimiser. Its draws are iterates that vary with the noise of the minibatches, and their distribution is "
        "not the posterior. Use HMC or NUTS for the posterior."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        share("momentum", self.momentum)
        if self.exploration > 0:
            raise ValueError(
                f"exploration must be 0 for SGD; got {self.exploration!r}. SGD has no noise, which exploration would omit."
            )

    @property
    def a(self) -> float:
        """Share of the momentum that an update keeps."""
        return self.momentum


@dataclass(frozen=True, kw_only=True)
class SGLD(StochasticGradient):
    """Stochastic gradient Langevin dynamics, which is approximate.

    With the minibatch gradient g, the metric M and a standard normal z, one update is::

        q <- q + eps_t/2 M^-1 g(q) + sqrt(eps_t) M^(-1/2) z

    Here ``g(q) = n dL_m/dq`` for one of the n parts L_m of a split model, or dL/dq if the model is not split. Every update is
    accepted, so that the stationary distribution is not the posterior. On a Gaussian with precision A, with full batches, M = I
    and a constant step, the covariance of the draws is ``A^-1 (I - eps A / 4)^-1``. The noise of minibatches increases it.

    Parameters
    ----------
    step_size : float
        Step size eps of the first update.
    n_steps : int, optional
        Number of updates per transition. By default a transition is one pass through the parts of the model.
    decay : tuple of float, optional
        ``(b, gamma)``, both positive, for the decaying steps ``eps_t = eps (1 + t/b)**-gamma``; b is a number of updates.
        Weight averages over the draws by the statistic ``step_size``. Give `decay` or `cycle`, not both.
    cycle : int, optional
        Number T of updates per cycle, for the cyclic steps ``eps_t = eps/2 (cos(pi (t mod T)/T) + 1)``.
    exploration : float, default 0.0
        Share beta of each cycle, in [0, 1), in which updates have no noise. The statistic ``exploring`` marks the draws from
        it, which should be omitted. Needs `cycle`.
    metric : Identity or Diagonal, default Identity()
        The constant metric M^-1. It is not adapted.
    evaluate_lp : bool, default False
        Evaluate the log density at each draw, for the statistic ``lp``. This costs one gradient of every part per draw.

    Raises
    ------
    ValueError
        If `step_size` is missing, if a number is out of range, if both `decay` and `cycle` are given, or if `exploration` is
        given without `cycle`.
    TypeError
        If `metric` is another metric, or one that is adapted.

    See Also
    --------
    SGHMC : Keeps a part of the momentum.

    References
    ----------
    - Welling and Teh (2011), Bayesian learning via stochastic gradient Langevin dynamics, equation 4. Their decaying step
      a (b + t)^-gamma is this one with a = eps b^gamma.
    - Zhang et al. (2020), Cyclical stochastic gradient MCMC, equation 1 and algorithm 1. T is ceil(K/C).

    Examples
    --------
    >>> import refhmc
    >>> kernel = refhmc.SGLD(step_size=0.1, n_steps=10)
    >>> result = refhmc.sample(
    ...     refhmc.models.Gaussian([1.0], [[1.0]]), kernel, draws=100, tune=10, random_seed=1, progressbar=False, raw=True
    ... )
    >>> result.draws.shape
    (4, 100, 1)
    >>> kernel.exact
    False
    """

    name = "sgld"
    squared_by = 0.5
    approximation = (
        "SGLD accepts every update. With a finite step its stationary distribution differs from the posterior, because of the "
        "step size and the noise of the minibatches. Decaying steps reduce both errors; use HMC or NUTS for the posterior."
    )

    @property
    def c(self) -> float:
        """Size of the noise."""
        return math.sqrt(2.0)


@dataclass(frozen=True, kw_only=True)
class SGHMC(StochasticGradient):
    """Stochastic gradient HMC with friction, which is approximate.

    With the minibatch gradient g and ``eta = eps_t^2 M^-1``, one update is::

        v <- (1 - alpha) v + eta g(q) + N(0, 2 (alpha - beta) eta),        q <- q + v

    Here ``g(q) = n dL_m/dq`` for one of the n parts L_m of a split model, or dL/dq if the model is not split. Every update
    is accepted, so that the stationary distribution is not the posterior. On a Gaussian with precision A, with full
    batches, M = I, beta = 0 and a constant step, the covariance of the draws is ``A^-1 (I - eps^2 A / (2 (2 -
    alpha)))^-1``. The noise of minibatches increases it. The momentum is drawn once, before the first update.

    Parameters
    ----------
    step_size : float
        Step size eps of the first update, a time like the step size of HMC. The learning rate of the paper is eta.
    n_steps : int, optional
        Number of updates per transition. By default a transition is one pass through the parts of the model.
    decay : tuple of float, optional
        ``(b, gamma)``, both positive, for the decaying steps ``eps_t = eps (1 + t/b)**-gamma``; b is a number of updates.
        Weight averages over the draws by the statistic ``step_size``. Give `decay` or `cycle`, not both.
    cycle : int, optional
        Number T of updates per cycle, for the cyclic steps ``eps_t = eps/2 (cos(pi (t mod T)/T) + 1)``.
    exploration : float, default 0.0
        Share of each cycle, in [0, 1), in which updates have no noise. The statistic ``exploring`` marks the draws from it,
        which should be omitted. Needs `cycle`.
    metric : Identity or Diagonal, default Identity()
        The constant metric M^-1. It is not adapted.
    evaluate_lp : bool, default False
        Evaluate the log density at each draw, for the statistic ``lp``. This costs one gradient of every part per draw.
    friction : float, default 0.1
        Friction alpha, in (0, 1]: the share of the momentum that an update loses.
    noise_estimate : float, default 0.0
        Estimate beta, in [0, alpha], of the share of the noise that the minibatches contribute.

    Raises
    ------
    ValueError
        If `step_size` is missing, if a number is out of range, if both `decay` and `cycle` are given, or if `exploration` is
        given without `cycle`.
    TypeError
        If `metric` is another metric, or one that is adapted.

    See Also
    --------
    SGLD : The same with friction 1.

    References
    ----------
    - Chen, Fox and Guestrin (2014), Stochastic gradient Hamiltonian Monte Carlo, equation 15.
    - Zhang et al. (2020), Cyclical stochastic gradient MCMC, equation 1 and algorithm 1. T is ceil(K/C).

    Examples
    --------
    >>> import refhmc
    >>> kernel = refhmc.SGHMC(step_size=0.1, n_steps=10, friction=0.2)
    >>> result = refhmc.sample(
    ...     refhmc.models.Gaussian([1.0], [[1.0]]), kernel, draws=100, tune=10, random_seed=1, progressbar=False, raw=True
    ... )
    >>> result.draws.shape
    (4, 100, 1)
    >>> kernel.exact
    False
    """

    name = "sghmc"
    friction: float = 0.1
    noise_estimate: float = 0.0
    approximation = (
        "SGHMC accepts every update. With a finite step its stationary distribution differs from the posterior, because of the "
        "step size and the noise of the minibatches, for which the friction compensates in part. Decaying steps reduce both "
        "errors; use HMC or NUTS for the posterior."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.friction <= 1:
            raise ValueError(f"friction must lie in (0, 1]; got {self.friction!r}.")
        if not 0 <= self.noise_estimate <= self.friction:
            raise ValueError(
                f"noise_estimate must lie in [0, friction], here [0, {self.friction}]; got {self.noise_estimate!r}."
            )

    @property
    def a(self) -> float:
        """Share of the momentum that an update keeps."""
        return 1 - self.friction

    @property
    def c(self) -> float:
        """Size of the noise."""
        return math.sqrt(2 * (self.friction - self.noise_estimate))


def plain_decay(given: object) -> tuple:
    """Return ``(b, gamma)``, also from a list or an array, as Python numbers. Raises ValueError for anything else."""
    both = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(both, tuple | list) or len(both) != 2 or not all(is_number(x) and 0 < x < math.inf for x in both):
        raise ValueError(f"decay must be (b, gamma), two positive and finite numbers; got {given!r}.")
    return tuple(x.item() if hasattr(x, "__array__") else x for x in both)


class Iterates(NamedTuple):
    """Result of one transition of many chains with stochastic gradients, on arrays.

    Parameters
    ----------
    q : array, shape (..., d)
        Positions after the transition.
    p : array, shape (..., d)
        Momenta after the transition.
    diverging : array, shape (...)
        Whether the chains diverged.
    """

    q: Array
    p: Array
    diverging: Array


def transition(kernel: StochasticGradient, H: EuclideanOnArrays, q: Array, p: Array, numbers: Array) -> Iterates:
    """Make the first transition of each chain of a stochastic-gradient kernel, on arrays.

    Parameters
    ----------
    kernel : SGD, SGLD or SGHMC
        The kernel.
    H : HamiltonianOnArrays
        The Hamiltonian, from :func:`refhmc.array_api.hamiltonian`.
    q : array, shape (..., d)
        Positions.
    p : array, shape (..., d)
        Momenta.
    numbers : array, shape (..., k)
        Random numbers, used in this order: before each pass through n parts, n - 1 uniforms for the order of the parts; for
        each update with noise, d standard normals.

    Returns
    -------
    Iterates
        Positions and momenta after the transition, and whether the chains diverged.
    """
    xp, parts, W = batched.namespace(q), H.model.parts or [H.model], H.inverse_mass(q)
    M, d, used, start = len(parts), q.shape[-1], 0, q
    for t in range(kernel.n_steps or M):
        if t % M == 0:
            order, used = batched.random_order(list(range(M)), numbers[..., used : used + M - 1]), used + M - 1
        eps = kernel.step(t)
        h = math.sqrt(kernel.squared_by * eps) if kernel.squared_by > 0 else eps
        p = kernel.a * p + h * minibatch_gradient(parts, order[..., t % M, None], q)
        if kernel.c > 0 and not kernel.explores(t):
            p, used = p + kernel.c * numbers[..., used : used + d] / W**0.5, used + d
        q = q + h * W * p
    finite = xp.all(xp.isfinite(q), axis=-1)
    return Iterates(xp.where(finite[..., None], q, start), xp.where(finite[..., None], p, 0.0), ~finite)


def minibatch_gradient(parts: list, m: Array, q: Array) -> Array:
    """Return M dL_m/dq for each chain's m, (..., 1)."""
    xp, g = batched.namespace(q), 0.0 * q
    for k, part in enumerate(parts):
        g = xp.where(m == k, len(parts) * part.gradient(q), g)
    return g


@jit
def step_of_update(settings: np.record) -> float:
    """Return eps_t."""
    eps, t = settings.step_size, settings.updates
    if settings.decay_power > 0:
        eps *= (1 + t / settings.decay_offset) ** -settings.decay_power
    if settings.cycle > 0:
        eps *= 0.5 * (math.cos(math.pi * (t % settings.cycle) / settings.cycle) + 1)
    return eps


@jit
def explores(settings: np.record) -> bool:
    """Return whether the next update belongs to the exploration of its cycle, which has no noise."""
    return settings.cycle > 0 and (settings.updates % settings.cycle) / settings.cycle < settings.exploration


@jit
def next_minibatch(model: tuple, state: np.ndarray, randomness: tuple, t: int, work: tuple) -> float:
    """Write M dL_m/dq at the state's position into its gradient, for the t-th update's m, and return L_m."""
    f, point = as_model(model), as_point(state)
    _, _, options, _, counters, _ = as_work(work)
    M, data = options.drawn_parts, f.data
    counters.gradients += 1
    if M == 0:  # not split
        return f.value_and_gradient(point.q, data, point.gradient)
    order = state[POINT_ROWS:]
    if t % M == 0:
        draw_order(randomness, M, order)
    value = f.value_and_gradient(point.q, part_of(data, nth_part(order, t % M)), point.gradient)
    for i in range(state.shape[1]):
        point.gradient[i] *= M
    return value


@jit
def update(state: np.ndarray, h: float, noise: np.ndarray, settings: np.record, work: tuple) -> bool:
    """Make one update from the state's position, momentum and gradient; return whether the new position is finite."""
    point, mass, a, c = as_point(state), diagonal(work), settings.momentum, settings.noise
    infinite = 0
    for i in range(state.shape[1]):
        p = a * point.p[i] + h * point.gradient[i] + c * mass.root[i] * noise[i]
        point.p[i] = p
        point.q[i] += h * mass.inverse_mass[i] * p
        infinite += not math.isfinite(point.q[i])
    return infinite == 0


@jit
def stochastic_gradient(
    dynamics: tuple,
    model: tuple,
    workspace: tuple,
    randomness: tuple,
    settings: np.record,
    stats: np.record,
    control: np.record,
) -> int:
    """Make one transition from the state, with the momentum and the order of the parts kept in it; return the outcome."""
    points, _, noise, _, work = as_workspace(workspace)
    at, f, M = as_points(points), as_model(model), max(as_work(work).options.drawn_parts, 1)
    point, before, noisy = as_point(at.state), at.candidate[Q], settings.noise > 0
    if noisy and settings.momentum > 0 and settings.updates == 0 and settings.keep_momentum == 0:
        next_normals(randomness, noise)
        for i in range(noise.shape[0]):
            point.p[i] = diagonal(work).root[i] * noise[i]
    copy_row(before, point.q)
    n_steps, done, eps, finite, exploring = settings.n_steps if settings.n_steps > 0 else M, 0, 0.0, True, False
    while finite and done < n_steps:
        if control.stop:
            return S.INTERRUPTED
        eps = step_of_update(settings)
        h = math.sqrt(settings.squared_by * eps) if settings.squared_by > 0 else eps
        finite, exploring = (
            math.isfinite(next_minibatch(model, at.state, randomness, settings.updates, work)),
            explores(settings),
        )
        if noisy and not exploring:
            next_normals(randomness, noise)
        else:
            noise[:] = 0.0
        finite = update(at.state, h, noise, settings, work) and finite
        settings.updates += 1
        done += 1
    if not finite:
        copy_row(point.q, before)
        point.p[:] = 0.0
    if settings.evaluates_lp > 0:
        stats.lp = f.value_and_gradient(point.q, f.data, as_point(at.spare).gradient)
        as_work(work).counters.gradients += M
    stats.step_size, stats.n_steps, stats.exploring = eps, done, exploring
    stats.is_accepted = stats.acceptance_rate = finite
    stats.diverging = not finite
    return S.ACCEPTED if finite else S.DIVERGED
