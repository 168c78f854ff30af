"""The statistics behind the sampler check where the law is right: p-values, and the most that a bet comes to."""

from __future__ import annotations

import math

import numpy as np

from refhmc.check.samplers import evidence


def p_values(test: str, runs: int, rng) -> np.ndarray:
    """p-values of one of the tests where the law is right."""
    if test.startswith("two"):
        column = 0 if "KS" in test else 1
        return np.array(
            [evidence.two_sample(rng.standard_normal(250), rng.standard_normal(1000))[column] for _ in range(runs)]
        )
    function = evidence.uniform_kolmogorov if "KS" in test else evidence.uniform_anderson
    return np.array([function(u) for u in rng.random((runs, 200))])


def most_wealth(rng, pairs: int, functions: int = 2) -> float:
    """The most that the average wealth came to, looked at 12 times, for a kernel that forgets half of its starts."""
    x = rng.random((pairs, functions))
    y = np.where(rng.random((pairs, functions)) < 0.5, x, rng.random((pairs, functions)))
    a, b = (np.searchsorted(evidence.LEVELS, u, side="right") for u in (x, y))
    counts = np.zeros((functions, evidence.BINS, evidence.BINS), dtype=int)
    most = 0.0
    for part in np.array_split(np.arange(pairs), 12):
        counts += evidence.pair_counts(a[part], b[part])
        most = max(most, evidence.log_mean(evidence.log_wealths(counts)))
    return math.exp(most)
