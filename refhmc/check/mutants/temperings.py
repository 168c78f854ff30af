"""Planted bugs in parallel tempering and in estimates of log Z, with corrected counterparts, in plain NumPy."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import logsumexp

import refhmc.check as rc

from . import Pair


def log_ratio(db, V, next_V):
    return db * (V - next_V)


def deterministic(change=log_ratio, parity=lambda rng, i: i % 2, keeps_level=False):
    """Swaps of even and odd pairs; with ``keeps_level`` the numbers V stay at the temperatures when replicas move."""

    def swaps(rng, b, V, n):
        order, level = list(range(len(b))), list(V)
        for i in range(n):
            for k in range(parity(rng, i), len(b) - 1, 2):
                if math.log(rng.random()) < change(b[k + 1] - b[k], level[k], level[k + 1]):
                    order[k], order[k + 1] = order[k + 1], order[k]
                    if not keeps_level:
                        level[k], level[k + 1] = level[k + 1], level[k]
        return np.array(order)

    return swaps


def whole_sweep(fresh):
    """All pairs in each iteration, from below, with V of the replicas that are there, or of those before the sweep."""

    def swaps(rng, b, V, n):
        order = list(range(len(b)))
        for _ in range(n):
            before = list(order)
            for k in range(len(b) - 1):
                there = order if fresh else before
                change = (b[k + 1] - b[k]) * (V[there[k]] - V[there[k + 1]])
                if math.log(rng.random()) < change:
                    order[k], order[k + 1] = order[k + 1], order[k]
        return np.array(order)

    return swaps


def stepping_stone(sign=1, of=slice(None, -1)):
    """log Z as the sum of log mean exp((b' - b) V), V at b, with its error from independent draws."""

    def log_z(b, V):
        u = sign * np.diff(b) * V[:, of]
        w = np.exp(u - logsumexp(u, axis=0)) * len(u)
        return sign * (logsumexp(u, axis=0) - math.log(len(u))).sum(), math.sqrt((w.var(axis=0) / len(u)).sum())

    return log_z


def incremental_weights(sign):
    """The update of an adaptive tempered SMC: weights exp(d loglik), here from exact draws at each temperature."""

    def log_z(b, V):
        total = 0.0
        for k in range(len(b) - 1):
            log_weights = sign * (b[k + 1] - b[k]) * V[:, k]
            total += logsumexp(log_weights) - math.log(len(V))
        return sign * total

    return log_z


def thermodynamic(weights):
    def log_z(b, V):
        return float(weights(b) @ V.mean(axis=0))

    return log_z


def trapezoid(b):
    steps = np.diff(b)
    return 0.5 * (np.append(steps, 0) + np.append(0, steps))


def with_error(factor):
    plain = stepping_stone()

    def log_z(b, V):
        found, error = plain(b, V)
        return found, factor(len(V)) * error

    return log_z


def pair(id, what, wrong, right, expected, severity="wrong distribution", of="swaps"):
    def report(subject, seed):
        if of == "swaps":
            return rc.tempering(subject, n=1000, seed=seed)
        return rc.tempering(deterministic(), subject, n=100, seed=seed)

    report = functools.cache(report)
    return Pair(id, what, lambda seed: report(wrong, seed), lambda seed: report(right, seed), (expected,), severity)


RIGHT = deterministic()

PAIRS = [
    pair(
        "sign",
        "the sign of the exponent",
        deterministic(lambda db, V, W: db * (W - V)),
        RIGHT,
        "stationary",
    ),
    pair(
        "one side",
        "the exponent has one replica only",
        deterministic(lambda db, V, W: db * V),
        RIGHT,
        "stationary",
    ),
    pair(
        "no difference of b",
        "the exponent lacks the difference of the inverse temperatures",
        deterministic(lambda db, V, W: V - W),
        RIGHT,
        "stationary",
    ),
    pair(
        "stale",
        "V stays at its temperature when replicas move",
        deterministic(keeps_level=True),
        RIGHT,
        "stationary",
    ),
    pair(
        "sweep",
        "even and odd pairs in one iteration, with V from before the sweep",
        whole_sweep(fresh=False),
        RIGHT,
        "stationary",
    ),
    pair(
        "random parity",
        "even or odd pairs at random, which is reversible",
        deterministic(parity=lambda rng, i: int(rng.integers(2))),
        RIGHT,
        "alternates",
        "inefficient",
    ),
    pair(
        "one parity",
        "even pairs only",
        deterministic(parity=lambda rng, i: 0),
        RIGHT,
        "alternates",
        "inefficient",
    ),
    pair(
        "blackjax#914",
        "the weights of tempered SMC with the reversed sign in one place",
        incremental_weights(-1),
        incremental_weights(1),
        "log Z",
        of="log_z",
    ),
    pair(
        "wrong end",
        "stepping stones with V of the higher temperature",
        stepping_stone(of=slice(1, None)),
        stepping_stone(),
        "log Z",
        of="log_z",
    ),
    pair(
        "rectangles",
        "thermodynamic integration with the value at the lower temperature only",
        thermodynamic(lambda b: np.append(np.diff(b), 0)),
        thermodynamic(trapezoid),
        "log Z",
        of="log_z",
    ),
    pair(
        "error",
        "the standard deviation of the weights for the standard error",
        with_error(lambda n: math.sqrt(n)),
        with_error(lambda n: 1.0),
        "error of log Z",
        of="log_z",
    ),
]
