"""How long a run still takes, by what its last iterations took.

An iteration takes as long as its trajectory is, and in warm-up that falls as the metric is learned, twentyfold where scales
differ: "so long for so many, hence as long for as many more" is wrong there. Let a chain have made n of its N iterations, t(i)
be the time at which it had made i, and

    c(a, b) = (t(b) - t(a)) / (b - a)

what an iteration took between a and b. The rest then takes (N - n) c(m, n), m = 2n/3: the last third of the iterations stands
for those to come. Once there are 50 draws, those of warm-up do not count: m is at least ``tune``.

Before, nothing is said (``None``) until that third is known to stand for anything: for the first 225 iterations, since NUTS
grows shallow trees up to the 75th (:mod:`refhmc.adaptation.from_pairs`), and the last two thirds should come after it; and then
unless these agree, 4/5 <= c(2n/3, n) / c(n/3, 2n/3) <= 5/4, of all chains in warm-up together. Where warm-up learns the length
of HMC's trajectories it makes longer ones than the draws will be, and nothing is said until there are 50 draws.

A chain that has not begun, or of which nothing can be said, takes as long in all as the others do on average. Where such a
chain is slower already, and came to where it is in more than 5/4 of their time, nothing is said of the run. So many chains run
at a time as there are workers; the run is over when the last of them is.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from refhmc.adaptation.from_pairs import EARLY

QUIET, ENOUGH, ALIKE = 3 * EARLY, 50, 1.25
MOST_LOOKS, MOST_NUMBERS = 256, 2**16  # that are kept of a chain, and of all


class Looks:
    """What was seen of each chain and when: its iterations and its gradients, at most 256 times, evenly thinned.

    ``first`` (chains,): iterations that were there before, in a checkpoint.
    """

    def __init__(self, chains: int) -> None:
        self.most, self.every = int(np.clip(MOST_NUMBERS // chains, 32, MOST_LOOKS)), 0.0
        self.seconds = np.zeros(1)
        self.first = np.zeros(chains, np.int64)
        self.iterations, self.gradients = np.zeros((1, chains), np.int64), np.zeros((1, chains))

    def add(self, seconds: float, iterations: Any, gradients: Any, first: Any = 0) -> None:
        """The present look is the last, however soon it is after the one before: the next takes its place then."""
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
        """Iterations of this run (chains,)"""
        return self.iterations[-1] - self.first

    def at(self, i: Any) -> tuple[np.ndarray, np.ndarray]:
        """Seconds and gradients (chains,) of each chain when it had made ``i`` (chains,) iterations, between two looks in
        proportion; of a chain that stands there, as late as it was seen."""
        chain, last = np.arange(self.iterations.shape[1]), len(self.seconds) - 1
        j = np.maximum((self.iterations <= i).sum(axis=0) - 1, 0)
        k = np.minimum(j + 1, last)
        step = self.iterations[k, chain] - self.iterations[j, chain]
        share = np.where(step > 0, (i - self.iterations[j, chain]) / np.maximum(step, 1), 0.0)
        seconds = self.seconds[j] + share * (self.seconds[k] - self.seconds[j])
        gradients = self.gradients[j, chain] + share * (self.gradients[k, chain] - self.gradients[j, chain])
        return seconds, gradients

    def cost(self, a: Any, b: Any) -> np.ndarray:
        """c(a, b), seconds an iteration (chains,)"""
        return (self.at(b)[0] - self.at(a)[0]) / np.maximum(b - a, 1)

    def lately(self, tune: int) -> np.ndarray:
        """m (chains,): the iteration from which on the past stands for what is to come."""
        m, n = self.first + 2 * self.made // 3, self.iterations[-1]
        return np.where(n >= np.maximum(tune, self.first) + ENOUGH, np.maximum(m, tune), m)

    def gradients_an_iteration(self, tune: int) -> np.ndarray:
        """Of the same iterations (chains,); NaN of a chain without any."""
        m, n = self.lately(tune), self.iterations[-1]
        made = np.where(n > m, n - m, np.nan)
        return (self.gradients[-1] - self.at(m)[1]) / made


def seconds_left(looks: Looks, tune: int, total: int, workers: int, quiet: int = QUIET) -> float | None:
    """Until all chains have made ``total`` iterations, ``tune`` of them warm-up; None where nothing can be said.

    ``quiet``: for how many iterations nothing is said.
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
    """Whether an iteration of these ``chains`` takes as long in the last third of their iterations as in the one before."""
    n, m = looks.iterations[-1], looks.first + 2 * looks.made // 3
    late, before = looks.cost(m, n)[chains].sum(), looks.cost(looks.first + looks.made // 3, m)[chains].sum()
    return bool(before <= ALIKE * late and late <= ALIKE * before)


def last_end(running: np.ndarray, waiting: np.ndarray, workers: int) -> float:
    """When the last chain ends, of those ``running``, which still take so long, and those ``waiting`` for a worker."""
    free = sorted(running.tolist()) + [0.0] * max(workers - len(running), 0)
    heapq.heapify(free)
    last = max(free, default=0.0)
    for takes in waiting.tolist():
        end = heapq.heappop(free) + takes
        last = max(last, end)
        heapq.heappush(free, end)
    return last


def seconds_of_warmup(looks: Looks, tune: int, workers: int) -> float | None:
    """What the whole of warm-up takes at the pace of the last iterations, whether or not it still falls; None before there are
    any."""
    n, now = looks.iterations[-1], looks.seconds[-1]
    begun = looks.made > 0
    if not begun.any():
        return None
    left = np.maximum(tune - n, 0) * looks.cost(looks.lately(tune), n)
    whole = (now - looks.at(looks.first)[0] + left)[begun].mean()
    return float(now + last_end(left[begun], np.full((~begun).sum(), whole), workers))
