"""Planted bugs of integrators for split posteriors, and of HMC and NUTS with them, in plain NumPy.

Logistic regression on 7 rows, in 3 different batches; H is that of the whole posterior.
"""

from __future__ import annotations

import numpy as np

import refhmc.check as rc

from . import Pair
from .orbits import MultinomialNUTS

X = np.array([[1.5, 0.2], [-0.7, 1.1], [0.3, -1.9], [2.0, 0.6], [-1.2, -0.4], [0.8, 1.7], [-0.5, 0.9]])
Y = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0])
M = 3
BATCHES = np.array_split(np.arange(7), M)


def logp(q):
    z = X @ q
    return -0.5 * q @ q + (Y * z - np.log(1 + np.exp(z))).sum()


def energy(q, p):
    return 0.5 * p @ p - logp(q)


def gradient(q, rows, share):
    return -share * q + (Y[rows] - 1 / (1 + np.exp(-X[rows] @ q))) @ X[rows]


class Parts:
    """Partial gradients; ``calls`` counts the evaluations. ``whole_prior``, ``dropped``: bugs."""

    def __init__(self, whole_prior=False, dropped=False):
        self.calls = 0
        self.share = 1.0 if whole_prior else 1.0 / M
        self.batches = [np.arange(2 * m, 2 * m + 2) for m in range(M)] if dropped else BATCHES

    def __call__(self, m, q):
        self.calls += 1
        return gradient(q, self.batches[m], self.share)


class Remembers:
    """Parts that reuse the last partial gradient; ``where``: only at the position where it was evaluated."""

    def __init__(self, where=True):
        self.parts, self.where, self.m, self.q, self.last = Parts(), where, None, None, None

    def __call__(self, m, q):
        if m != self.m or (self.where and not np.array_equal(q, self.q)):
            self.m, self.q, self.last = m, q.copy(), self.parts(m, q)
        return self.last


class RemembersEach(Remembers):
    """Parts that reuse each gradient of the forward sweep in the backward sweep, at any position."""

    def __init__(self):
        super().__init__()
        self.known = {}

    def __call__(self, m, q):
        if m in self.known:
            return self.known.pop(m)
        self.known[m] = self.parts(m, q)
        return self.known[m]


# -------------------------------------------------------------------------------------------------------------- steps


def symmetric(of, drifts=2 * (M - 1), back=True):
    """Symmetric split step; ``drifts``: its number of drifts; ``back``: whether the second sweep reverses the first."""

    def step(q, p, eps, n):
        for _ in range(n):
            for m in range(M):
                p = p + eps / 2 * of(m, q)
                if m < M - 1:
                    q = q + eps / drifts * p
            for k, m in enumerate(reversed(range(M)) if back else range(M)):
                p = p + eps / 2 * of(m, q)
                if k < M - 1:
                    q = q + eps / drifts * p
        return q, p

    return step


def merged_too_early(of):
    """Merge the two kicks of the last part, with the gradient at the start of the drift before them."""

    def step(q, p, eps):
        for m in range(M - 1):
            p = p + eps / 2 * of(m, q)
            ready, q = of(M - 1, q), q + eps / (2 * (M - 1)) * p
        p = p + eps * ready
        for m in reversed(range(M - 1)):
            q = q + eps / (2 * (M - 1)) * p
            p = p + eps / 2 * of(m, q)
        return q, p

    return step


def through(order, of, q, p, eps):
    for m in order:
        p = p + eps / 2 * of(m, q)
        q = q + eps / M * p
        p = p + eps / 2 * of(m, q)
    return q, p


def randomised(draws, q, p, eps):
    return through(draws.permutation(M), Parts(), q, p, eps)


def one_way_or_the_other(rng, q, p, eps):
    """Correct: the given order or its reverse."""
    return through(range(M) if rng.random() < 0.5 else range(M)[::-1], Parts(), q, p, eps)


class OnceAChain:
    def __init__(self):
        self.order = None

    def step(self, draws, q, p, eps):
        if self.order is None:
            self.order = draws.permutation(M)
        return through(self.order, Parts(), q, p, eps)


def turned_round(draws, q, p, eps):
    """Cyclic orders with equal probabilities; the reverse of a cyclic order is not one of them."""
    return through(np.roll(range(M), draws.choice([1 / M] * M)), Parts(), q, p, eps)


def both_ways(reverses, order=range(M)):
    """Step backward with -eps and the parts in reversed order (correct) or in the same order."""

    def step(q, p, eps):
        return through(order[::-1] if reverses and eps < 0 else order, Parts(), q, p, eps)

    return step


# ------------------------------------------------------------------------------------------------------------- kernels


class SplitHMC:
    """HMC with a random order of the parts, drawn "anew" for each trajectory or "once"."""

    def __init__(self, order, eps=0.6, n=2):
        self.order, self.eps, self.n, self.known = order, eps, n, None

    def __call__(self, draws, q):
        p = draws.normal(len(q))
        if self.known is None or self.order == "anew":
            self.known = draws.permutation(M)
        new_q, new_p = q, p
        for _ in range(self.n):
            new_q, new_p = through(self.known, Parts(), new_q, new_p, self.eps)
        return new_q if draws.uniform() < np.exp(energy(q, p) - energy(new_q, new_p)) else q


class SplitNUTS(MultinomialNUTS):
    """NUTS with one order of the parts for each tree; ``reverses``: backward steps use the reversed order."""

    def __init__(self, reverses, eps=0.7, max_depth=2):
        super().__init__(logp, None, eps, max_depth)
        self.reverses = reverses

    def __call__(self, draws, q, p):
        self.leap = both_ways(self.reverses, draws.permutation(M))
        return super().__call__(draws, q, p)


# --------------------------------------------------------------------------------------------------------------- pairs

SECOND, FIRST = "symplectic reversible order=2", "symplectic reversible order=1"
BACKWARD = "symplectic inverse order=1"


def of_step(make, claims=SECOND, **more):
    """Examine a step; ``make()`` returns a new step, and optionally its counter."""

    def examine(seed):
        step, *counter = make()
        given = {"counter": counter[0]} if counter else {}
        return rc.integrator(step, energy, dim=2, eps=0.3, claims=claims, tolerance=0.0, seed=seed, **given, **more)

    return examine


def counted(of, parts):
    return lambda: (symmetric(known := of()), lambda: parts(known).calls)


def of_hmc(order):
    return lambda seed: rc.transition(SplitHMC(order), logp, dim=2, n_points=4, seconds=240.0, seed=seed)


ONE_ORDER = np.array([2, 0, 1])


def of_nuts(reverses, order=ONE_ORDER):
    """Examine NUTS in one of its orders; the orbit is that of the correct step."""
    leap = both_ways(True, ONE_ORDER)
    return lambda seed: rc.orbit(
        SplitNUTS(reverses), leap, logp, depth=2, eps=0.7, dim=2, order=order, seed=seed, seconds=None
    )


MERGED = of_step(lambda: (symmetric(Remembers()),))
PAIRS = [
    Pair(
        "split-drift",
        "symmetric split: drift eps/M instead of eps/(2 (M - 1))",
        of_step(lambda: (symmetric(Parts(), drifts=M),)),
        of_step(lambda: (symmetric(Parts()),)),
        ("order", "elapsed time"),
        "inefficient",
    ),
    Pair(
        "split-sweep",
        "symmetric split: the same sweep twice",
        of_step(lambda: (symmetric(Parts(), back=False),)),
        MERGED,
        ("reversible",),
    ),
    Pair(
        "split-stale",
        "gradient of a part used again although q has moved",
        of_step(lambda: (symmetric(RemembersEach()),)),
        MERGED,
        ("reversible", "symplectic"),
    ),
    Pair(
        "split-kept",
        "first gradient of a trajectory is the last of the previous one",
        of_step(lambda: (symmetric(Remembers(where=False)),)),
        MERGED,
        ("deterministic",),
    ),
    Pair(
        "split-early",
        "kicks merged at the position before the drift",
        of_step(lambda: (merged_too_early(Parts()),)),
        MERGED,
        ("reversible", "symplectic"),
    ),
    Pair(
        "split-unmerged",
        "2 M partial gradients per step instead of 2 M - 2",
        of_step(counted(Parts, lambda of: of), f"{SECOND} evaluations={2 * M - 2}"),
        of_step(counted(Remembers, lambda of: of.parts), f"{SECOND} evaluations={2 * M - 2}"),
        ("evaluations",),
        "inefficient",
    ),
    Pair(
        "split-prior",
        "whole prior in each part of the step",
        of_step(lambda: (symmetric(Parts(whole_prior=True)),)),
        of_step(lambda: (symmetric(Parts()),)),
        ("order",),
        "inefficient",
    ),
    Pair(
        "split-remainder",
        "remaining row dropped from the step",
        of_step(lambda: (symmetric(Parts(dropped=True)),)),
        of_step(lambda: (symmetric(Parts()),)),
        ("order",),
        "inefficient",
    ),
    Pair(
        "P22b",
        "order of the parts drawn once per chain",
        of_step(lambda: (OnceAChain().step,), FIRST),
        of_step(lambda: (randomised,), FIRST),
        ("reversible", "deterministic"),
    ),
    Pair(
        "split-cyclic",
        "orders drawn whose reverses are never drawn",
        of_step(lambda: (turned_round,), FIRST),
        of_step(lambda: (one_way_or_the_other,), FIRST),
        ("reversible",),
    ),
    Pair(
        "split-backward",
        "step back through the parts in the same order",
        of_step(lambda: (both_ways(False),), BACKWARD),
        of_step(lambda: (both_ways(True),), BACKWARD),
        ("inverse",),
    ),
    Pair(
        "split-hmc",
        "HMC: order of the parts drawn once per chain",
        of_hmc("once"),
        of_hmc("anew"),
        ("detailed balance",),
    ),
    Pair(
        "split-tree",
        "NUTS: leaves backward in time through the parts in the same order",
        of_nuts(False),
        of_nuts(True),
        ("invariance", "stays on the orbit"),
    ),
]
