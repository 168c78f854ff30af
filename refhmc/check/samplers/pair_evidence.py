"""E-value of pairs that arrive in portions: X_i an exact draw, Y_i the end of a foreign kernel's transitions.

The bets and the functions are those of ``samplers/evidence.py`` and ``samplers/sampler.py``. The value is

    E = the average over f, g, lambda of prod_i (1 + lambda D_i),      P(E >= 1/alpha at any time) <= alpha

if the kernel preserves the target, for any number of pairs and any stopping rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refhmc.check import targets
from refhmc.check.samplers.sampler import PILOT, evidence, functions_of

PILOT_SEED = 20261121


class PairEvidence:
    """Evidence of the pairs added so far; ``log_value`` is the log e-value, ``log_largest`` the largest so far."""

    def __init__(self, target: Any) -> None:
        self.target = targets.resolve(target)
        points = np.asarray(self.target.draw(np.random.default_rng(PILOT_SEED), PILOT), dtype=float)
        self.functions = functions_of(self.target, points)
        self.edges = evidence.edges_of(self.functions.values(points))
        self.counts = np.zeros((len(self.functions.names), evidence.BINS, evidence.BINS), dtype=np.int64)
        self.pairs, self.log_value, self.log_largest = 0, 0.0, 0.0

    def add(self, starts: np.ndarray, ends: np.ndarray) -> None:
        """Add pairs, (m, d) each, to the evidence."""
        if len(starts) == 0:
            return
        with np.errstate(all="ignore"):
            bins = [evidence.bins_of(self.functions.values(points), self.edges) for points in (starts, ends)]
        self.counts += evidence.pair_counts(*bins)
        self.pairs += len(starts)
        self.log_value = evidence.log_mean(evidence.log_wealths(self.counts))
        self.log_largest = max(self.log_largest, self.log_value)
