"""Planted bugs in couplings of two chains, with corrected counterparts, in plain NumPy."""

from __future__ import annotations

import functools
import math

import numpy as np

import refhmc.check as rc

from . import Pair

PAIRS_OF_STATES = np.array([[[0.3, -0.2], [0.5, 0.1]], [[1.0, 0.5], [-0.5, 1.5]], [[2.0, -1.0], [1.5, 1.0]]])


def logp(q):
    return -0.5 * q[0] ** 2 - 0.5 * (q[1] - 0.3 * q[0]) ** 2


def grad(q):
    r = q[1] - 0.3 * q[0]
    return np.array([-q[0] + 0.3 * r, -r])


def trajectory(q, p, eps=1.4, n=2):
    start = logp(q) - 0.5 * p @ p
    for _ in range(n):
        p = p + 0.5 * eps * grad(q)
        q = q + eps * p
        p = p + 0.5 * eps * grad(q)
    return q, logp(q) - 0.5 * p @ p - start


def hmc(rng, x):
    new, log_ratio = trajectory(x, rng.standard_normal(2))
    return new if math.log(rng.random()) < log_ratio else x


def walk(rng, x, s=1.2):
    new = x + s * rng.standard_normal(2)
    return new if math.log(rng.random()) < logp(new) - logp(x) else x


def shifted_momenta(sign):
    """Momenta coupled by the shift (x - y) / T, so that the trajectories approach each other."""

    def coupled(rng, x, y):
        p, u, v = rng.standard_normal(2), rng.random(), rng.random()
        z = (x - y) / 2.8
        if math.log(u) < -sign * p @ z - 0.5 * z @ z:
            r = p + z
        else:
            r = p if z @ z == 0 else p - 2 * (p @ z) / (z @ z) * z
        (new_x, a), (new_y, b) = trajectory(x, p), trajectory(y, r)
        return (new_x if math.log(v) < a else x), (new_y if math.log(v) < b else y)

    return coupled


def common_numbers(second_accepts):
    def coupled(rng, x, y):
        p, u = rng.standard_normal(2), rng.random()
        (new_x, a), (new_y, b) = trajectory(x, p), trajectory(y, p)
        return (new_x if math.log(u) < a else x), (new_y if second_accepts(math.log(u), a, b) else y)

    return coupled


def reflected_walk(noise_of_equal):
    """Reflection coupling of the proposals: the direction x - y is undefined after the meeting."""

    def coupled(rng, x, y, s=1.2):
        xi, u, v = rng.standard_normal(2), rng.random(), rng.random()
        z = (x - y) / s
        if z @ z == 0:
            eta = noise_of_equal(rng, xi)
        elif math.log(u) < -xi @ z - 0.5 * z @ z:
            eta = xi + z
        else:
            eta = xi - 2 * (xi @ z) / (z @ z) * z
        met = z @ z > 0 and np.array_equal(eta, xi + z)
        new_x = x + s * xi
        new_y = new_x if met else y + s * eta
        accept = [math.log(v) < logp(new) - logp(old) for new, old in ((new_x, x), (new_y, y))]
        return (new_x if accept[0] else x), (new_y if accept[1] else y)

    return coupled


def walk_by_rejection(with_ratio):
    """Maximal coupling by rejection: outside the overlap, y* comes from what q(., x) does not cover."""

    def coupled(rng, x, y, s=1.2):
        def log_q(new, centre):
            return -0.5 * np.sum((new - centre) ** 2) / s**2

        new_x, v = x + s * rng.standard_normal(2), rng.random()
        new_y = new_x
        if math.log(rng.random()) >= log_q(new_x, y) - log_q(new_x, x):
            while True:
                new_y = y + s * rng.standard_normal(2)
                if not with_ratio or math.log(rng.random()) >= log_q(new_y, x) - log_q(new_y, y):
                    break
        accept = [math.log(v) < logp(new) - logp(old) for new, old in ((new_x, x), (new_y, y))]
        return (new_x if accept[0] else x), (new_y if accept[1] else y)

    return coupled


def pair(id, what, wrong, right, kernel, expected):
    def report(coupled, seed):
        return rc.coupling(coupled, kernel, PAIRS_OF_STATES, n=3000, seed=seed)

    report = functools.cache(report)
    return Pair(id, what, lambda seed: report(wrong, seed), lambda seed: report(right, seed), (expected,))


PAIRS = [
    pair(
        "shift",
        "momenta coupled by a shift, with its sign inverted in the ratio",
        shifted_momenta(-1),
        shifted_momenta(1),
        hmc,
        "second margin",
    ),
    pair(
        "one uniform",
        "the second chain moves only if the first one does",
        common_numbers(lambda log_u, a, b: log_u < min(a, b)),
        common_numbers(lambda log_u, a, b: log_u < b),
        hmc,
        "second margin",
    ),
    pair(
        "separate",
        "fresh noise for the second chain where the reflection is undefined",
        reflected_walk(lambda rng, xi: rng.standard_normal(2)),
        reflected_walk(lambda rng, xi: xi),
        walk,
        "stay together",
    ),
    pair(
        "rejection",
        "maximal coupling by rejection, without the ratio",
        walk_by_rejection(False),
        walk_by_rejection(True),
        walk,
        "second margin",
    ),
]
