"""The e-value of pairs that come in bit by bit: X_i an exact draw, Y_i where somebody's kernel took it.

The bets and the functions are those of ``samplers/evidence.py`` and ``samplers/sampler.py``; the value is

    E = the average over f, g, lambda of prod_i (1 + lambda D_i),      P(E >= 1/alpha at any time) <= alpha

if the kernel keeps the target, however many pairs come and whenever one stops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.check import targets
from refhmc.check.samplers.sampler import PILOT, evidence, functions_of

PILOT_SEED = 20261121


class PairEvidence:
    """``add`` pairs; ``log_value`` is the e-value's logarithm now, ``log_largest`` the largest it has been."""

    def __init__(self, target: Any) -> None:
        self.target = targets.resolve(target)
        points = np.asarray(self.target.draw(np.random.default_rng(PILOT_SEED), PILOT), dtype=float)
        self.functions = functions_of(self.target, points)
        self.edges = evidence.edges_of(self.functions.values(points))
        self.counts = np.zeros((len(self.functions.names), evidence.BINS, evidence.BINS), dtype=np.int64)
        self.pairs, self.log_value, self.log_largest = 0, 0.0, 0.0

    def add(self, starts: np.ndarray, ends: np.ndarray) -> None:
        """Take pairs, (m, d) each, into the evidence."""
        if len(starts) == 0:
            return
        with np.errstate(all="ignore"):
            bins = [evidence.bins_of(self.functions.values(points), self.edges) for points in (starts, ends)]
        self.counts += evidence.pair_counts(*bins)
        self.pairs += len(starts)
        self.log_value = evidence.log_mean(evidence.log_wealths(self.counts))
        self.log_largest = max(self.log_largest, self.log_value)
