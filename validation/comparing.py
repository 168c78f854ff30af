"""Figures of several runs of ours: beside the one run that a paper gives, and beside the runs of another sampler.

Could the paper's x0 be a further one of n runs with the mean m and the standard deviation s?

    t = (x0 - m) / sqrt(s^2 (1 + 1/n) + r^2 / 3),     n - 1 degrees of freedom, r half a unit of the last printed digit

Is a figure smaller in one sampler than in another? Welch's t on the logarithms.

Of k comparisons one is significant if its p < 1 - (1 - 0.05)^(1/k) (Sidak), so that k without a difference give any false
alarm with probability 0.05. ``told`` is the difference that would have been found with probability 0.9. "Agrees" says no more
than that there is none as large; where not even a difference that matters would have been told, there is no verdict.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.stats

ALARM, POWER = 0.05, 0.9


class Further(NamedTuple):
    """``t`` and two-sided ``p`` of x0 as a further observation; ``scale`` of t, its degrees of freedom."""

    t: float
    p: float
    scale: float
    freedom: int

    def told(self, comparisons: int) -> float:
        """The difference that one of so many comparisons would have found with probability ``POWER``."""
        if not self.scale > 0:
            return math.nan
        reach = scipy.stats.t.isf([level(comparisons) / 2, 1 - POWER], self.freedom)
        return float(self.scale * reach.sum())


def level(comparisons: int) -> float:
    """The p below which one of so many comparisons differs."""
    return 1 - (1 - ALARM) ** (1 / comparisons)


def further_observation(values, theirs: float, rounding: float) -> Further:
    """``theirs`` as one more of ``values`` (n,); NaN for fewer than two."""
    x = np.asarray(values, dtype=float)
    n = len(x)
    variance = x.var(ddof=1) * (1 + 1 / n) + rounding**2 / 3 if n > 1 else math.nan
    scale = math.sqrt(variance)
    t = (theirs - x.mean()) / scale if scale > 0 else math.nan
    return Further(float(t), float(2 * scipy.stats.t.sf(abs(t), n - 1)) if n > 1 else math.nan, scale, n - 1)


def verdict(p: float, told: float, matters: float, comparisons: int) -> str:
    """ "differs", or "agrees" if a difference that ``matters`` would have been told, else "not decided"."""
    if p < level(comparisons):
        return "differs"
    return "agrees" if told <= matters else "not decided"


def smaller(one, other, comparisons: int) -> tuple[str, str]:
    """Ratio of the geometric means of two samples, and whether it is below 1: holds, does not hold, or not decided."""
    a, b = np.log(one), np.log(other)
    parts = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
    error, difference = math.sqrt(parts.sum()), float(a.mean() - b.mean())
    freedom = parts.sum() ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    p = 2 * scipy.stats.t.sf(abs(difference) / error, freedom)
    told = math.exp(error * scipy.stats.t.isf([level(comparisons) / 2, 1 - POWER], freedom).sum())
    decided = "holds" if difference < 0 else "does not hold"
    word = decided if p < level(comparisons) else "not decided"
    return f"{math.exp(difference):.3g}", f"{word} (p = {p:.1g}; a factor of {told:.3g} would be told)"


def rule_text(comparisons: int, matters: str) -> str:
    """The rule of the verdicts in words."""
    return (
        f"Verdicts: the paper's one run is set beside ours by the t of a further observation; a figure differs if its p is "
        f"below {level(comparisons):.2g} = 1 - (1 - {ALARM})^(1/{comparisons}), so that {comparisons} comparisons of figures "
        f'that agree give any false alarm with probability {ALARM:.0%}. "Told" is the difference that would have been found '
        f'with probability {POWER:.0%}; where it is larger than what matters ({matters}) the row is "not decided".'
    )
