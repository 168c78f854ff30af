"""Warm-up of many chains: a step size for each, or one for all, and one metric learned from all.

The windows are those of :mod:`refhmc.adaptation.windows`, and dual averaging is that of
:mod:`refhmc.adaptation.dual_averaging`. A shared step size is adapted to the mean acceptance of all chains after each
iteration, which they start together. With separate step sizes each chain adapts its own, and the chains only meet at the
ends of the windows.

The metric is the (co)variance of the draws of all chains in a window, about their common mean. It is shrunk as for one chain
with the same number of draws (:mod:`refhmc.adaptation.welford`), which is n w for n chains and a window of w iterations.

A chain whose start was hopeless (:mod:`refhmc.adaptation.symptoms`) spoils the metric of the others. The run ends if at least
half of the chains are lost, without a second attempt, since Pathfinder is a part of the compiled core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.adaptation.dual_averaging import GAMMA, KAPPA, T0, target_acceptance
from refhmc.adaptation.fisher_divergence import LARGEST, SMALLEST
from refhmc.adaptation.step_size import JUMP_SEARCH_TARGET, MAX_DOUBLINGS, SEARCH_TARGET
from refhmc.adaptation.symptoms import (
    FEWEST,
    WHAT_TO_DO,
    are_frozen,
    are_unresolved,
    frozen,
    typical_step,
    unresolved,
)
from refhmc.adaptation.welford import SHRINK_COUNT, SHRINK_TO
from refhmc.batch.chains import ALL, Chains, batches
from refhmc.batch.steps import StepMaker
from refhmc.batch.streams import Purpose, Rows
from refhmc.batch.table import pick_point
from refhmc.errors import WarmupError
from refhmc.metrics.base import FROM_GRADIENTS, ArrayModel, ConstantMetric, Metric
from refhmc.numerics import batched
from refhmc.numerics.batched import Array, to_host

FIRST_LOOK = 250  # iterations of warm-up before chains are first looked at


class DualAveraging:
    """The recursion on arrays (n,), one row per chain, or (1,), for the mean acceptance of all chains."""

    def __init__(self, step_size: Array, target: float) -> None:
        self.target = target
        self.restart(step_size)

    def restart(self, step_size: Array) -> None:
        """Restart at these step sizes."""
        xp = batched.namespace(step_size)
        self.log_step, self.log_step_bar = xp.log(step_size), xp.log(step_size)
        self.mu = xp.log(10.0 * step_size)
        self.h_bar, self.count = 0.0 * step_size, 0.0 * step_size

    def update(self, rows: Rows, acceptance: Array) -> Array:
        """Make one step of the recursion for the rows; return their new step sizes."""
        m = self.count[rows] + 1
        weight, eta = 1.0 / (m + T0), m**-KAPPA
        self.count[rows] = m
        self.h_bar[rows] = (1 - weight) * self.h_bar[rows] + weight * (self.target - acceptance)
        self.log_step[rows] = self.mu[rows] - m**0.5 / GAMMA * self.h_bar[rows]
        self.log_step_bar[rows] = eta * self.log_step[rows] + (1 - eta) * self.log_step_bar[rows]
        return batched.namespace(acceptance).exp(self.log_step[rows])


class Moments:
    """Mean and scatter of added values, (r, d) at a time, about a given center (d,); the scatter is (d,) or (d, d)."""

    def __init__(self, center: Array, dense: bool) -> None:
        xp, d = batched.namespace(center), center.shape[0]
        self.center, self.dense, self.n = center, dense, 0
        self.first = xp.zeros((d,), dtype=center.dtype)
        self.second = xp.zeros((d, d) if dense else (d,), dtype=center.dtype)

    def add(self, q: Array) -> None:
        """Add values (r, d)."""
        xp, x = batched.namespace(q), q - self.center
        self.n += q.shape[0]
        self.first = self.first + xp.sum(x, axis=0)
        self.second = self.second + (x.T @ x if self.dense else xp.sum(x**2, axis=0))

    def covariance(self) -> Array:
        """Return the covariance or the variances, of at least two draws."""
        shift = self.first[:, None] * self.first if self.dense else self.first**2
        return (self.second - shift / self.n) / (self.n - 1)


def learned_metric(
    metric: ConstantMetric, positions: Moments, gradients: Moments | None, as_stan: bool = False
) -> ConstantMetric:
    """Return the metric of a window, as in :mod:`refhmc.adaptation.welford`.

    If there are too few draws, return the previous ``metric``.
    """
    n = positions.n
    if n < 2:
        return metric
    W = to_host(positions.covariance())
    if gradients is not None:
        with np.errstate(all="ignore"):
            ratio = np.sqrt(W / to_host(gradients.covariance()))
        before = metric.inverse_mass(len(ratio))
        return with_inverse_mass(metric, np.where((ratio > SMALLEST) & (ratio < LARGEST), ratio, before))
    keep, add = n / (n + SHRINK_COUNT), SHRINK_TO * SHRINK_COUNT / (n + SHRINK_COUNT)
    variances = np.diag(W) if positions.dense else W
    if as_stan:
        to = np.ones(len(variances))
    elif np.all(variances > 0):
        to = variances
    else:  # a constant coordinate keeps its variance
        before = metric.inverse_mass(len(variances))
        to = np.where(variances > 0, variances, (np.diag(before) if positions.dense else before) / add)
    if positions.dense:
        W = (W + W.T) / 2
        return with_inverse_mass(metric, keep * W + add * np.diag(to))
    return with_inverse_mass(metric, keep * W + add * to)


def with_inverse_mass(metric: Any, W: np.ndarray) -> Any:
    """Return the metric with M^-1 = W, (d, d), or (d,) if it is diagonal."""
    d = len(W)
    return (
        metric.from_rows(np.diag(W)[None], W[None]) if W.ndim == 2 else metric.from_rows(W[None], np.zeros((0, d, d)))
    )


def moments_for(metric: Metric, q: Array) -> tuple[Moments, Moments | None]:
    """Return empty moments for a window that starts at q (n, d)."""
    xp = batched.namespace(q)
    positions = Moments(xp.mean(q, axis=0), metric.is_dense)
    return positions, Moments(xp.zeros_like(positions.center), False) if metric.learns == FROM_GRADIENTS else None


def statistics_of_sizes(kernel: Any, metric: Metric, text: ArrayModel) -> dict[str, tuple[str, float]]:
    """Return which of ``step_size`` and ``jump_size`` warm-up adapts, to which statistic, and its target."""
    if kernel.step_size is not None:
        return {}
    target = target_acceptance(kernel, metric)
    n = len(text.discontinuous) if getattr(kernel, "jumping", False) else 0
    if n == 0:
        return {"step_size": ("acceptance_rate", target)}
    flips = ("no_flip_probability", kernel.target_no_flip)
    return {"step_size": flips} if n == text.dim else {"step_size": ("acceptance_rate", target), "jump_size": flips}


def search(start: Array, acceptance: Callable, target: float, shared: bool, at_once: int, first_try: int = 0) -> tuple:
    """Double or halve sizes (n,) from ``start`` until acceptance(rows, sizes, try) (r,) crosses the target.

    This is done for each chain, or for the mean of all if ``shared``. ``acceptance`` is called for at most ``at_once`` rows.
    Return the sizes, the number of the next try, the rows whose search found no end, which keep their sizes, and which of these
    were doubled.
    """
    xp, size, direction = batched.namespace(start), start + 0.0, 0.0 * start
    rows: Array = xp.arange(start.shape[0])
    for tried in range(first_try, first_try + MAX_DOUBLINGS):
        parts = [rows[each] for each in batches(rows.shape[0], at_once)]
        reached = xp.concat([acceptance(part, size[part], tried) for part in parts])
        if shared:
            reached = 0.0 * reached + xp.mean(reached)
        wanted = xp.where(reached >= target, 1.0, -1.0)
        goes_on = (direction[rows] == 0) | (wanted == direction[rows])
        rows, wanted = rows[goes_on], wanted[goes_on]
        if not rows.shape[0]:
            return size, tried + 1, rows, direction[rows] > 0
        direction[rows] = wanted
        size[rows] = size[rows] * 2.0**wanted
    size[rows] = start[rows]
    return size, first_try + MAX_DOUBLINGS, rows, direction[rows] > 0


def search_step_size(
    chains: Chains, mover: StepMaker, shared: bool, first_try: int, at_once: int
) -> tuple[Array, int, int]:
    """Search first step sizes (n,), by the acceptance of a single step with a fresh momentum.

    Return them, the number of the next try, and the number of searches that found no end.
    """
    xp = batched.namespace(chains.q)

    def acceptance(rows: Array, eps: Array, tried: int) -> Array:
        number = xp.full(rows.shape, tried, dtype=xp.int64)
        begun = chains.with_momentum(rows, mover, Purpose.STEP_SIZE, number)
        drop = begun.energy - mover.of(chains, rows)(pick_point(begun, ALL), eps).energy
        return xp.where(xp.isfinite(drop), xp.exp(xp.where(drop < 0, drop, 0.0)), 0.0)

    sizes, tried, lost, _ = search(chains.step_size, acceptance, SEARCH_TARGET, shared, at_once, first_try)
    return sizes, tried, int(lost.shape[0])


def search_jump_size(chains: Chains, mover: StepMaker, start: Array, shared: bool, at_once: int) -> tuple[Array, int]:
    """Search first jump sizes (n,), by the mean of min(1, exp(change of L)) over moves of one discontinuous coordinate.

    The moves go in both directions from the present positions. Return the sizes, and the number of searches in which they grew
    without end.
    """
    xp, model, d = batched.namespace(chains.q), mover.H.model, chains.q.shape[1]
    s = xp.asarray(mover.H.metric.inverse_mass(d), dtype=chains.q.dtype) ** 0.5

    def acceptance(rows: Array, sizes: Array, tried: int) -> Array:
        total = 0.0 * sizes
        for j in (int(j) for j in model.discontinuous):
            for sign in (-1, 1):
                step = xp.where(xp.arange(d) == j, sign * sizes[:, None] * s, 0.0)
                change = model.log_density(chains.q[rows] + step) - chains.log_density[rows]
                total = total + xp.where(xp.isnan(change), 0.0, xp.exp(xp.where(change < 0, change, 0.0)))
        return total / (2 * len(model.discontinuous))

    sizes, _, _, grew = search(start, acceptance, JUMP_SEARCH_TARGET, shared, at_once)
    model.forget()
    return sizes, int(xp.sum(xp.astype(grew, xp.int64)))


def is_time(stop: int, tune: int) -> bool:
    """Return whether chains are looked at after the phase of warm-up that ends at iteration ``stop``."""
    return stop >= FIRST_LOOK or stop == tune >= FEWEST


def refuse_hopeless(chains: Chains, metric: ConstantMetric, leapfrog: bool, done: int, tune: int) -> None:
    """Raise WarmupError if at least half of the chains are lost. ``leapfrog``: their steps are those of a constant metric."""
    q, g, L, step_size = (to_host(each) for each in (chains.q, chains.gradient, chains.log_density, chains.step_size))
    lost, step = are_unresolved(L) & (done >= tune), np.full(q.shape, np.inf)
    if leapfrog:
        inverse_mass = metric.inverse_mass(q.shape[1])
        variances = np.diag(inverse_mass) if inverse_mass.ndim == 2 else inverse_mass
        step = typical_step(variances, step_size[:, None], g)
        still = are_frozen(q, step)
        lost = lost | still.all(axis=1) | (still.any(axis=1) & (done >= tune))
    if 2 * lost.sum() < len(q):
        return
    k = int(np.flatnonzero(lost)[0])
    symptom = frozen([f"q[{i}]" for i in range(q.shape[1])], q[k], step[k]) or unresolved(float(L[k]))
    assert symptom is not None
    raise WarmupError(
        f"{lost.sum()} of {len(q)} chains are lost after {done} iterations of warm-up: in chain {k}, {symptom.text}. "
        f"{WHAT_TO_DO}.",
        k,
    )
