"""The row "invariance, sampled" of ``check.orbit``, for an orbit whose K is too large to enumerate within the budget.

Starts i are drawn with probabilities pi(z_i) / sum pi on a section of the orbit, one ordinary transition each. At an inner
state j, all of whose starts are on the section, the number of ends is binomial with

    P(end = j) = pi(z_j) / sum pi

if pi is invariant. The least of the two-sided p-values, times their number, is compared with 1e-6.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.special

from refhmc.check.judging import judged
from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.law import OFF, Table
from refhmc.check.orbits.verdicts import binomial_tail, start_case
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, time_left

ALPHA = 1e-6  # false alarms of the sampled row


def sampled(test: OrbitExamination) -> Row:
    """Test the ends of ordinary transitions from starts with weights pi, if the enumeration was not completed."""
    test.require(sound=True)
    if not test.unfinished:
        raise NotApplicable("the enumerations were complete")
    rng = np.random.default_rng([test.seed, 8])
    orbit, reach = test.unfinished[0], 2**test.depth - 1
    table = Table(test.subject, orbit, test.depth if test.takes_depth else None)
    span = min(2 * reach, orbit.n)
    weight = np.array([table.weight(i) for i in range(-span, span + 1)])
    count, runs = np.zeros(2 * span + 1, dtype=int), 0
    kept = 0.2 * time_left()  # for the rows after this one
    while time_left() > kept and runs < 0.3 * test.most_runs:
        i = int(rng.choice(2 * span + 1, p=weight / weight.sum())) - span
        end = table.place(test.subject.sample(rng, *table.start(i), orbit.eps, table.depth), i)
        runs += 1
        if end == OFF:
            raise Inconclusive("it leaves the orbit")
        if isinstance(end, int) and abs(end) <= span:
            count[end + span] += 1
    if not runs:
        raise Inconclusive("there was no time left for a run")
    inner = range(reach + 1 - span - 1, span - reach + 1) if span > reach else range(0, 1)
    tested = [j for j in inner if weight[j + span] > 0]
    least, expected = 1.0, weight / weight.sum()
    for j in tested:
        seen, p = int(count[j + span]), float(expected[j + span])
        tail = binomial_tail(seen, runs, p)
        least = min(least, 2 * tail * len(tested))
    top = float(max(expected[j + span] for j in tested))
    shift = (-scipy.special.ndtri(ALPHA / 2 / len(tested)) + 2.33) * math.sqrt(top * (1 - top) / runs) / top
    found = f"a relative error of {shift:.2g} in its most probable state would be found with probability 0.99"
    basis = f"p-value of {runs} runs from pi on one orbit; {found}"
    return judged(min(1.0, least), ALPHA, basis, start_case(test, table, 0), relation=">=")
