"""Stochastic gradients: SGD, SGLD and SGHMC, which follow one minibatch after another and accept every update.

**Minibatches.** With L = sum_m L_m, the M parts of a split model, each with 1/M of the prior (:mod:`refhmc.models.split`),

    g(q) = M dL_m/dq,       whose mean over m is dL/dq.

The parts are the minibatches. Each pass through the M of them has a fresh uniformly random order. A model that is not split is
one batch, g = dL/dq; so is the conditional of a block under Gibbs.

**One update.** With a mass M (the metric, constant), a fresh standard normal z and a step h,

    p <- a p + h g(q) + c M^(1/2) z,        q <- q + h M^-1 p

    kernel   h              a                 c                        with v = h M^-1 p this is

    SGD      sqrt(eps)      the momentum mu   0                        v <- mu v + eps M^-1 g,   q <- q + v
    SGLD     sqrt(eps/2)    0                 sqrt(2)                  q <- q + eps/2 M^-1 g + sqrt(eps) M^(-1/2) z
    SGHMC    eps            1 - alpha         sqrt(2 (alpha - beta))   v <- (1 - alpha) v + eta g + N(0, 2 (alpha - beta) eta),
                                                                       q <- q + v,   eta = eps^2 M^-1

(SGLD: Welling and Teh 2011, eq. 4. SGHMC: Chen, Fox and Guestrin 2014, eq. 15; alpha is the friction.) So SGLD is SGHMC that
loses all of its momentum at each update. The momentum of SGD and SGHMC is never drawn anew: it is kept from one transition to
the next, as by the program of Vadera et al. (2020), from which Cobb and Jalaian (2021) adapt how they tune their baselines. (At
its commit 3bc179d ``optimSGHMC`` computes the noise and does not add it: there SGLD and SGHMC are SGD.)

**Steps.** The t-th update of a chain, t = 0, 1, ..., warm-up included, has the step

    eps_t = eps (1 + t/b)^-gamma                          decaying: Welling and Teh's a (b + t)^-gamma, a = eps b^gamma
    eps_t = eps/2 (cos(pi (t mod T) / T) + 1)             cyclic: Zhang et al. (2020), eq. 1, T = ceil(K/C) updates to a cycle

or always eps. Averages over draws of decaying steps are to be weighted by the statistic ``step_size``.

**Exploration** (Zhang et al. 2020, algorithm 1). In the first part of each cycle, while (t mod T)/T < beta, an update has no
noise, c = 0: it ascends, with steps that are still large, to a mode that it may not have been at. Then the noise sets in, and
only what comes after it is kept as a draw: the statistic ``exploring`` marks the draws to be left out.

**What the draws are.** Nothing is accepted or rejected, and at a finite step their law is not the target. On a Gaussian with
precision A, with full batches, M = I and a constant step, their covariance is A^-1 (I - eps A / 4)^-1 for SGLD, and
A^-1 (I - eps^2 A / (2 (2 - alpha)))^-1 for SGHMC with beta = 0. The noise of minibatches widens it further:
``tests/kernels/test_stochastic_gradient.py``.

A transition is n updates, by default one pass through the data. Where a position, or the density of a minibatch, is not finite,
the chain goes back to where the transition began, with p = 0, and the draw is diverging.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from refhmc.core import sample_stats as S
from refhmc.core.arguments import is_number, share, whole_number
from refhmc.core.compiled import jit
from refhmc.core.point import POINT_ROWS, Q, as_point, copy_row
from refhmc.core.randomness import next_normals
from refhmc.core.split_data import draw_order, nth_part, part_of
from refhmc.core.types import as_model, as_points, as_work, as_workspace
from refhmc.kernels.options import check_options
from refhmc.metrics import Diagonal, Identity
from refhmc.metrics.base import NOTHING
from refhmc.metrics.euclidean import diagonal
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

IDENTITY = Identity()


@dataclass(frozen=True, kw_only=True)
class StochasticGradient:
    """The options that the three have in common.

    step_size : eps, the first step. n_steps : updates of a transition; ``None``: M of them, one pass through the parts.
    decay : ``(b, gamma)``, both positive, for steps that decay; b in updates. cycle : T, for cyclic steps; give one of the two.
    exploration : beta in [0, 1), the share of each cycle that has no noise, and whose draws are ``exploring``.
    metric : ``Identity()`` or ``Diagonal(variances)``, M^-1: nothing is adapted in warm-up, whose draws are thrown away.
    evaluate_lp : evaluate the log density at each draw, for the statistic ``lp``; costs the gradient of every part once.

    Raises ValueError, or TypeError for another metric.
    """

    step_size: float
    n_steps: int | None = None
    decay: tuple[float, float] | None = None
    cycle: int | None = None
    exploration: float = 0.0
    metric: Any = IDENTITY
    evaluate_lp: bool = False

    integrator = None
    target_accept = None
    minibatches = True
    exact = False
    squared_by = 0.0  # h^2 = squared_by * eps; 0: h = eps

    def __post_init__(self) -> None:
        if self.step_size is None:
            raise ValueError(f"{type(self).__name__} needs a step_size: none is adapted to minibatches")
        check_options(self)
        if not isinstance(self.metric, Identity | Diagonal) or self.metric.learns != NOTHING:
            raise TypeError(
                f"{type(self).__name__} takes Identity() or Diagonal(variances), which are not adapted, got {self.metric!r}"
            )
        for name in ("n_steps", "cycle"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name))
        if self.decay is not None:
            if self.cycle is not None:
                raise ValueError("give decay or cycle, not both")
            object.__setattr__(self, "decay", plain_decay(self.decay))
        if share("exploration", self.exploration) > 0 and self.cycle is None:
            raise ValueError("exploration is a share of a cycle: give cycle, too")

    @property
    def a(self) -> float:
        """The share of p that an update keeps."""
        return 0.0

    @property
    def c(self) -> float:
        """The size of the noise."""
        return 0.0

    @property
    def begins_at_rest(self) -> bool:
        """Whether the first p is 0, and not drawn."""
        return self.a == 0 or self.c == 0

    def step(self, t: int) -> float:
        """eps_t"""
        if self.decay is not None:
            b, gamma = self.decay
            return self.step_size * (1 + t / b) ** -gamma
        if self.cycle is not None:
            return self.step_size / 2 * (math.cos(math.pi * (t % self.cycle) / self.cycle) + 1)
        return self.step_size

    def explores(self, t: int) -> bool:
        """Whether the t-th update has no noise, for it belongs to the exploration of its cycle."""
        return self.cycle is not None and (t % self.cycle) / self.cycle < self.exploration

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics of a draw; ``lp`` and ``exploring`` only where they are asked for."""
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
        return stochastic_gradient

    def settings(self) -> dict[str, float]:
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
    """Stochastic gradient ascent of L with momentum: v <- mu v + eps M^-1 g(q), q <- q + v. An optimiser, for comparison.

    momentum : mu in [0, 1). step_size is eps, the learning rate of L, a sum over the data. Weight decay is the model's prior,
    and nothing else. Where steps vary, p = v / sqrt(eps_t) is kept. The other options are those of
    :class:`StochasticGradient`, and so is what is raised.
    """

    name = "sgd"
    momentum: float = 0.0
    squared_by = 1.0
    approximation = (
        "SGD is an optimiser. Its draws are the iterates of an ascent, spread by the noise of the minibatches and not as the "
        "posterior is. HMC and NUTS keep the posterior."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        share("momentum", self.momentum)
        if self.exploration > 0:
            raise ValueError("exploration is the part of a cycle without noise, and SGD has no noise at all")

    @property
    def a(self) -> float:
        return self.momentum


@dataclass(frozen=True, kw_only=True)
class SGLD(StochasticGradient):
    """Stochastic gradient Langevin dynamics: q <- q + eps/2 M^-1 g(q) + sqrt(eps) M^(-1/2) z.

    Options, and what is raised: those of :class:`StochasticGradient`.
    """

    name = "sgld"
    squared_by = 0.5
    approximation = (
        "SGLD takes every update without an acceptance. At a finite step its draws have another law than the posterior, by the "
        "step and by the noise of the minibatches. Steps that decay lessen both; HMC and NUTS keep the posterior."
    )

    @property
    def c(self) -> float:
        return math.sqrt(2.0)


@dataclass(frozen=True, kw_only=True)
class SGHMC(StochasticGradient):
    """Stochastic gradient HMC: v <- (1 - alpha) v + eta g(q) + N(0, 2 (alpha - beta) eta), q <- q + v, eta = eps^2 M^-1.

    friction : alpha in (0, 1], the share of the momentum that an update loses. noise_estimate : beta in [0, alpha], the share
    of the noise that minibatches are taken to bring themselves. step_size is eps, a time as that of HMC; the paper's learning
    rate is eta. The momentum is drawn once, before the first update. The other options are those of
    :class:`StochasticGradient`, and so is what is raised.
    """

    name = "sghmc"
    friction: float = 0.1
    noise_estimate: float = 0.0
    approximation = (
        "SGHMC takes every update without an acceptance. At a finite step its draws have another law than the posterior, by "
        "the step and by the noise of the minibatches, for which its friction makes up in part. Steps that decay lessen both; "
        "HMC and NUTS keep the posterior."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.friction <= 1:
            raise ValueError(f"friction must lie in (0, 1], got {self.friction!r}")
        if not 0 <= self.noise_estimate <= self.friction:
            raise ValueError(f"noise_estimate must lie in [0, friction], got {self.noise_estimate!r}")

    @property
    def a(self) -> float:
        return 1 - self.friction

    @property
    def c(self) -> float:
        return math.sqrt(2 * (self.friction - self.noise_estimate))


def plain_decay(given: Any) -> tuple:
    """``(b, gamma)``, of a list or an array too, as Python's numbers. Raises ValueError for anything else."""
    both = given.tolist() if isinstance(given, np.ndarray) else given
    if not isinstance(both, tuple | list) or len(both) != 2 or not all(is_number(x) and 0 < x < math.inf for x in both):
        raise ValueError(f"decay must be (b, gamma), two numbers, both positive and finite, got {given!r}")
    return tuple(x.item() if hasattr(x, "__array__") else x for x in both)


class Iterates(NamedTuple):
    """Where each chain is after a transition, ``q`` and ``p`` (..., d), and whether it diverged, (...,)."""

    q: Array
    p: Array
    diverging: Array


def transition(kernel: StochasticGradient, H: Any, q: Array, p: Array, numbers: Array) -> Iterates:
    """The first transition of each chain on arrays: q, p (..., d) and the numbers (..., k) that it asks for, in their order:
    before each pass the M - 1 uniforms of its order; for each update that has noise d standard normals."""
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
    """M dL_m/dq of each chain's m, (..., 1)."""
    xp, g = batched.namespace(q), 0.0 * q
    for k, part in enumerate(parts):
        g = xp.where(m == k, len(parts) * part.gradient(q), g)
    return g


@jit
def step_of_update(settings: Any) -> float:
    """eps_t"""
    eps, t = settings.step_size, settings.updates
    if settings.decay_power > 0:
        eps *= (1 + t / settings.decay_offset) ** -settings.decay_power
    if settings.cycle > 0:
        eps *= 0.5 * (math.cos(math.pi * (t % settings.cycle) / settings.cycle) + 1)
    return eps


@jit
def explores(settings: Any) -> bool:
    """Whether the next update has no noise, for it belongs to the exploration of its cycle."""
    return settings.cycle > 0 and (settings.updates % settings.cycle) / settings.cycle < settings.exploration


@jit
def next_minibatch(model: tuple, state: np.ndarray, randomness: tuple, t: int, work: tuple) -> float:
    """M dL_m/dq at the state's position into its gradient, for the t-th update's m; L_m."""
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
def update(state: np.ndarray, h: float, noise: np.ndarray, settings: Any, work: tuple) -> bool:
    """One update from the state's position, momentum and gradient; whether it arrives at a finite position."""
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
    dynamics: tuple, model: tuple, workspace: tuple, randomness: tuple, settings: Any, stats: Any, control: Any
) -> int:
    """One transition from the state, with the momentum and the order of the parts that are kept in it; the outcome."""
    points, _, noise, _, _, work = as_workspace(workspace)
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
