"""Estimate of the remaining time of a run, from the time of its last iterations.

The time of an iteration is proportional to the length of its trajectory. In warm-up this falls as the metric adapts, twentyfold
if scales differ, so that the mean over all iterations is misleading. Let a chain have made n of its N iterations, let t(i) be
the time of iteration i, and

    c(a, b) = (t(b) - t(a)) / (b - a)

the time per iteration between a and b. The rest then takes (N - n) c(m, n), m = 2n/3: the last third of the iterations
represents those to come. Once there are 50 draws, warm-up does not count: m is at least ``tune``.

Before that, there is no estimate (``None``) until the last third is representative:

- not in the first 225 iterations, because NUTS grows shallow trees up to the 75th (:mod:`refhmc.adaptation.from_pairs`), and
  the last two thirds should come after it;
- not unless 4/5 <= c(2n/3, n) / c(n/3, 2n/3) <= 5/4 for all chains in warm-up together;
- not before there are 50 draws if warm-up adapts the length of HMC's trajectories, which are then longer than those of the
draws.

A chain that has not started, or without an estimate, is assumed to take as long in total as the others do on average. If such a
chain is already slower, with more than 5/4 of their time for its iterations, there is no estimate for the run. As many chains
run at a time as there are workers; the run ends with the last of them.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from refhmc.adaptation.from_pairs import EARLY

QUIET, ENOUGH, ALIKE = 3 * EARLY, 50, 1.25
MOST_LOOKS, MOST_NUMBERS = 256, 2**16  # kept per chain, and in total


class Looks:
    """Iterations and gradients of each chain at up to 256 times, evenly thinned.

    ``first`` (chains,) are the iterations from a checkpoint.
    """

    def __init__(self, chains: int) -> None:
        self.most, self.every = int(np.clip(MOST_NUMBERS // chains, 32, MOST_LOOKS)), 0.0
        self.seconds = np.zeros(1)
        self.first = np.zeros(chains, np.int64)
        self.iterations, self.gradients = np.zeros((1, chains), np.int64), np.zeros((1, chains))

    def add(self, seconds: float, iterations: Any, gradients: Any, first: Any = 0) -> None:
        """Add the present look; if it follows the last one too soon, the next look replaces it."""
        if len(self.seconds) > self.most:
            self.keep(np.arange(0, len(self.seconds), 2))
            self.every = 2 * self.seconds[-1] / self.most
        if len(self.seconds) > 1 and self.seconds[-1] - self.seconds[-2] < self.every:
            self.keep(np.arange(len(self.seconds) - 1))
        taken_up = self.first != first
        self.first = np.where(taken_up, first, self.first)
        self.seconds = np.append(self.seconds, seconds)
        self.iterations = np.vstack([self.iterations, np.maximum(iterations, self.first)])
        self.gradients = np.vstack([self.gradients, gradients])
        for seen, now in ((self.iterations, self.first), (self.gradients, self.gradients[-1])):
            seen[:-1, taken_up] = now[taken_up]

    def keep(self, looks: np.ndarray) -> None:
        seen = self.seconds, self.iterations, self.gradients
        self.seconds, self.iterations, self.gradients = (each[looks] for each in seen)

    @property
    def made(self) -> np.ndarray:
        """Iterations of this session, (chains,)."""
        return self.iterations[-1] - self.first

    def at(self, i: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds and gradients (chains,) at which each chain had made `i` (chains,) iterations, interpolated.

        For a chain that has made exactly `i` iterations, this is the time of its last look.
        """
        chain, last = np.arange(self.iterations.shape[1]), len(self.seconds) - 1
        j = np.maximum((self.iterations <= i).sum(axis=0) - 1, 0)
        k = np.minimum(j + 1, last)
        step = self.iterations[k, chain] - self.iterations[j, chain]
        share = np.where(step > 0, (i - self.iterations[j, chain]) / np.maximum(step, 1), 0.0)
        seconds = self.seconds[j] + share * (self.seconds[k] - self.seconds[j])
        gradients = self.gradients[j, chain] + share * (self.gradients[k, chain] - self.gradients[j, chain])
        return seconds, gradients

    def cost(self, a: Any, b: Any) -> np.ndarray:
        """Return c(a, b), the seconds per iteration, (chains,)."""
        return (self.at(b)[0] - self.at(a)[0]) / np.maximum(b - a, 1)

    def lately(self, tune: int) -> np.ndarray:
        """Return m (chains,), the iteration from which on the past represents the future."""
        m, n = self.first + 2 * self.made // 3, self.iterations[-1]
        return np.where(n >= np.maximum(tune, self.first) + ENOUGH, np.maximum(m, tune), m)

    def gradients_an_iteration(self, tune: int) -> np.ndarray:
        """Return the gradients per iteration since m, (chains,); NaN for a chain without iterations."""
        m, n = self.lately(tune), self.iterations[-1]
        made = np.where(n > m, n - m, np.nan)
        return (self.gradients[-1] - self.at(m)[1]) / made


def seconds_left(looks: Looks, tune: int, total: int, workers: int, quiet: int = QUIET) -> float | None:
    """Return the seconds until all chains have made `total` iterations, `tune` of them warm-up; None if unknown.

    There is no estimate in the first `quiet` iterations.
    """
    n = looks.iterations[-1]
    over, drawing = n >= total, n >= np.maximum(tune, looks.first) + ENOUGH
    if over.all():
        return 0.0
    warm = ~over & ~drawing & (looks.made >= quiet)
    known = (looks.made > 0) & (over | drawing | (warm & has_settled(looks, warm)))
    if not known.any():
        return None
    left = np.where(over, 0.0, (total - n) * looks.cost(looks.lately(tune), n))
    until = looks.seconds[np.minimum((looks.iterations < total).sum(axis=0), len(looks.seconds) - 1)]  # its end, or now
    spent = until - looks.at(looks.first)[0]
    begun = looks.made > 0
    if (begun & ~known).any():
        slowest = np.where(begun & ~known, spent, -1.0).argmax()
        of_others = looks.at(np.maximum(n[slowest], looks.first))[0] - looks.at(looks.first)[0]
        if spent[slowest] > ALIKE * of_others[known].mean():
            return None
    left = np.where(known | over, left, np.maximum((spent + left)[known].mean() - spent, 0.0))
    return last_end(left[begun & ~over], left[~begun & ~over], workers)


def has_settled(looks: Looks, chains: np.ndarray) -> bool:
    """Return whether the last third of the iterations of these `chains` takes as long as the third before."""
    n, m = looks.iterations[-1], looks.first + 2 * looks.made // 3
    late, before = looks.cost(m, n)[chains].sum(), looks.cost(looks.first + looks.made // 3, m)[chains].sum()
    return bool(before <= ALIKE * late and late <= ALIKE * before)


def last_end(running: np.ndarray, waiting: np.ndarray, workers: int) -> float:
    """Return when the last chain ends, from the times of those `running` and of those `waiting` for a worker."""
    free = sorted(running.tolist()) + [0.0] * max(workers - len(running), 0)
    heapq.heapify(free)
    last = max(free, default=0.0)
    for takes in waiting.tolist():
        end = heapq.heappop(free) + takes
        last = max(last, end)
        heapq.heappush(free, end)
    return last


def seconds_of_warmup(looks: Looks, tune: int, workers: int) -> float | None:
    """Return the time of all of warm-up at the pace of the last iterations; None before there are any."""
    n, now = looks.iterations[-1], looks.seconds[-1]
    begun = looks.made > 0
    if not begun.any():
        return None
    left = np.maximum(tune - n, 0) * looks.cost(looks.lately(tune), n)
    whole = (now - looks.at(looks.first)[0] + left)[begun].mean()
    return float(now + last_end(left[begun], np.full((~begun).sum(), whole), workers))
