"""The median of independent figures of one median, and its interval by the sign test: the k-th least and the k-th greatest of n
enclose it unless fewer than k lie on one side, which has the probability 2 P(Binomial(n, 1/2) < k) at most."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable


def rank(n: int, confidence: float) -> int:
    """The largest k with 2 P(Binomial(n, 1/2) < k) <= 1 - confidence; 0 if there is none."""
    k, below = 0, 0.0
    while True:
        below += math.comb(n, k) / 2**n  # P(Binomial <= k) = P(Binomial < k + 1)
        if 2 * below > 1 - confidence + 1e-12:
            return k
        k += 1


def median_interval(values: Iterable[float], confidence: float) -> tuple[float, float, float]:
    """The median and its interval, 0 to infinity where there are too few."""
    ordered = sorted(values)
    k = rank(len(ordered), confidence)
    limits = (ordered[k - 1], ordered[-k]) if k else (0.0, math.inf)
    return statistics.median(ordered), *limits
