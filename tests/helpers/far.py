"""A model whose parameters have units far from one."""

from __future__ import annotations

import numpy as np

import refhmc


def decay(spread: float) -> refhmc.Model:
    """y = A exp(-k t) + noise, with A near 5e9, k near 1.3e-9; q = log A, log k, log sigma.

    ``spread`` is the standard deviation of a normal prior on each; inf: none, and the posterior is improper.
    """
    unit = 1e9
    t, rng = np.linspace(0, 2 * unit, 40), np.random.default_rng(0)
    y = 5 * unit * np.exp(-1.3 / unit * t) + 0.04 * unit * rng.normal(size=40)
    mean = np.log([unit, 1 / unit, 0.01 * unit])

    def log_density(q):
        r = (y - np.exp(q[0]) * np.exp(-np.exp(q[1]) * t)) * np.exp(-q[2])
        return -0.5 * np.sum(r * r) - 40 * q[2] - 0.5 * np.sum(((q - mean) / spread) ** 2)

    def gradient(q):
        k, s = np.exp(q[1]), np.exp(-q[2])
        m = np.exp(q[0]) * np.exp(-k * t)
        r = (y - m) * s
        g = np.array([np.sum(r * s * m), np.sum(r * s * (-m * k * t)), np.sum(r * r) - 40])
        return g - (q - mean) / spread**2

    return refhmc.Model(3, log_density, gradient, name="decay")
