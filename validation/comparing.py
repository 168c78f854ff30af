"""Figures of several runs of ours: beside the one run that a paper gives, and beside the runs of another sampler.

Could the paper's x0 be a further one of n runs with the mean m and the standard deviation s? With judging.py's T and U,

    x0 - m = T + U,     T / (s sqrt(1 + 1/n)) Student's t with n - 1 degrees of freedom

Is a figure smaller in one sampler than in another? Welch's t on the logarithms of the runs' figures. Where the runs of both
go in pairs that share what is random about them (the start, the data), Student's t of the differences.

Significance, what would have been told, and the meaning of "agrees" are judging.py's; where not even a difference that matters
would have been told, there is no verdict.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.stats

from validation.judging import ALARM, POWER, Comparison, above, compare, level, over_trials


def further_observation(values, theirs: float, rounding: float) -> Comparison | None:
    """``theirs`` as one more of ``values`` (n,); None for fewer than two."""
    x = np.asarray(values, dtype=float)
    n = len(x)
    if n < 2:
        return None
    scale, difference = float(x.std(ddof=1)) * math.sqrt(1 + 1 / n), float(theirs - x.mean())
    deviation = math.hypot(scale, rounding / math.sqrt(3))
    z = difference / deviation if deviation > 0 else 0.0 if difference == 0 else math.copysign(math.inf, difference)
    p = min(2 * above(abs(difference), scale, n - 1, rounding), 1.0)
    return Comparison(z, p, scale, n - 1, rounding)


def verdict(p: float, told: float, matters: float, comparisons: int) -> str:
    """ "differs", or "agrees" if a difference that ``matters`` would have been told, else "not decided"."""
    if p < level(comparisons):
        return "differs"
    return "agrees" if told <= matters else "not decided"


def paired(differences) -> float:
    """p, two-sided, of the mean of the pairs' differences (n,) being 0; NaN for fewer than two, or if they are all the same."""
    x = np.asarray(differences, dtype=float)
    return float(scipy.stats.ttest_1samp(x, 0).pvalue) if len(x) > 1 and np.ptp(x) > 0 else math.nan


def smaller(one, other, comparisons: int) -> tuple[str, str]:
    """Ratio of the geometric means of two samples, and whether it is below 1: holds, does not hold, or not decided.

    Nor is it decided where a figure is zero or not a number (a chain that did not move), or a sample has no spread.
    """
    one, other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if not all(np.isfinite(x).all() and (x > 0).all() and np.ptp(x) > 0 for x in (one, other)):
        return "–", "not decided: a run without a figure, or none that differ"
    found = compare(over_trials(np.log(one)), over_trials(np.log(other)), rounding=0.0)
    ratio = math.exp(np.mean(np.log(one)) - np.mean(np.log(other)))
    decided = "holds" if ratio < 1 else "does not hold"
    word = decided if found.p < level(comparisons) else "not decided"
    told = math.exp(min(found.told(comparisons), 700.0))
    return f"{ratio:.3g}", f"{word} (p = {found.p:.1g}; a factor of {told:.3g} would be told)"


def rule_text(comparisons: int, matters: str) -> str:
    """The rule of the verdicts in words."""
    return (
        f"Verdicts: the paper's one run is set beside ours as a further one of them (`validation/comparing.py`); a figure "
        f"differs if its p is below {level(comparisons):.2g} = 1 - (1 - {ALARM})^(1/{comparisons}), so that {comparisons} "
        f'comparisons of figures that agree give any false alarm with probability {ALARM:.0%}. "Told" is the difference that '
        f'would have been found with probability {POWER:.0%}; where it is larger than what matters ({matters}) the row is "not '
        'decided".'
    )
