"""Planted bugs of kernels that do not visit all states, with corrected counterparts, in plain NumPy."""

from __future__ import annotations

import functools
import itertools

import numpy as np

import refhmc.check as rc

from . import Pair

COINS = np.array(list(itertools.product((0.0, 1.0), repeat=3)))
LINE = np.linspace(-2.0, 2.0, 8)[:, None]


def fair(q):
    return 0.0


def linked(q):
    """Log density of three dependent binary variables."""
    return 0.4 * q[0] - 0.7 * q[0] * q[1] + 0.5 * q[1] * q[2]


def binary_gibbs(log_density, chance, temperature=1.0):
    """Metropolis on one binary variable after the other; a flip is proposed with probability ``chance``."""

    def kernel(draws, q):
        for i in range(len(q)):
            new = q.copy()
            new[i] = 1 - new[i]
            if chance == 1 or draws.flip(np.log(chance)):
                ratio = (log_density(new) - log_density(q)) / temperature
                q = new if draws.flip(ratio) else q
        return q

    return kernel


def rotation(q, p, angle):
    return q * np.cos(angle) + p * np.sin(angle), p * np.cos(angle) - q * np.sin(angle)


def exact_hmc(length):
    """HMC on a standard normal with the exact flow, which is always accepted, and a length of ``length(draws)``."""

    def kernel(draws, q):
        return rotation(q, draws.normal(len(q)), length(draws))[0]

    return kernel


def leapfrog_hmc(steps):
    """HMC on a standard normal with leapfrog steps of size sqrt(2): four are a period, two are half a period."""
    eps = np.sqrt(2.0)

    def kernel(draws, q):
        p = draws.normal(len(q))
        x, r = q, p
        for _ in range(steps(draws)):
            r = r - 0.5 * eps * x
            x = x + eps * r
            r = r - 0.5 * eps * x
        return x if draws.flip(0.5 * (q @ q + p @ p - x @ x - r @ r)) else q

    return kernel


def pair(id, what, wrong, right, states, log_density, expected):
    def report(kernel, seed):
        return rc.grid(kernel, states, log_density, seed=seed, least=0.02)

    report = functools.cache(report)
    return Pair(id, what, lambda seed: report(wrong, seed), lambda seed: report(right, seed), expected)


BOTH = ("irreducible", "aperiodic")
PAIRS = [
    pair(
        "pymc#2866",
        "fair binary variables are always flipped",
        binary_gibbs(fair, 1),
        binary_gibbs(fair, 0.8),
        COINS,
        fair,
        BOTH,
    ),
    pair(
        "binary temperature",
        "binary variables accepted with another ratio",
        binary_gibbs(linked, 0.8, 1.01),
        binary_gibbs(linked, 1),
        COINS,
        linked,
        ("invariance",),
    ),
    pair(
        "half period",
        "HMC with a fixed trajectory of half a period",
        exact_hmc(lambda draws: np.pi),
        exact_hmc(lambda draws: np.pi * (0.1 + 0.9 * draws.uniform())),
        LINE,
        None,
        BOTH,
    ),
    pair(
        "half period of leapfrog",
        "HMC with leapfrog steps of half a period",
        leapfrog_hmc(lambda draws: 2),
        leapfrog_hmc(lambda draws: 1 + draws.choice(2)),
        LINE,
        None,
        BOTH,
    ),
]
