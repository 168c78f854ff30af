"""The change of a log density when one coordinate moves, as used by discontinuous HMC.

::

    change(q, j, x) = L(q with q_j = x) - L(q),      -inf where the support ends before x

It is compared with the two values of L at some points, for short and long moves to both sides. The energy of discontinuous HMC
is a sum of such changes, so that a wrong one samples another density.
"""

from __future__ import annotations

import itertools

import numpy as np

from refhmc.check.derivatives.points import short
from refhmc.check.judging import Cases, Measured
from refhmc.check.models.examination import ModelExamination, noise_of_logp
from refhmc.check.subject.foreign import text_of

MOVES = (0.3, -1.0, 3.0, -10.0)  # in units of the coordinate's scale, and absolute
MOST_COORDINATES = 8


def change_row(s: ModelExamination) -> Cases:
    """Yield the error of a given change relative to the rounding of the two log densities."""
    s.need("change")
    rng, logp, change = np.random.default_rng([s.seed, 11]), s.at("logp"), s.functions["change"]
    among = np.array(s.discontinuous) if s.discontinuous else np.arange(s.dim)
    if len(among) > MOST_COORDINATES:
        among = rng.choice(among, MOST_COORDINATES, replace=False)
    unit, moves = 256 * max(noise_of_logp(s), s.epsilon("change")), 0
    for q, j in itertools.product(s.test_points(6), map(int, among)):
        before = float(logp(q))
        for new in short(np.concatenate([q[j] + np.multiply(MOVES, s.frame.scales[j]), q[j] + np.array(MOVES)])):
            moved = q.copy()
            moved[j] = new
            after, said = float(logp(moved)), change.number(q, j, float(new))
            if np.isnan(after) or after == np.inf:
                continue
            moves += 1
            gap = abs(said - (after - before)) if np.isfinite(after) else (0.0 if said == -np.inf else np.inf)
            allowed = unit * (abs(before) + abs(after) + 1.0) if np.isfinite(after) else unit
            call = f"{s.names['change']}(np.array({text_of(q)}), {j}, {float(new)!r})"
            yield Measured(gap, allowed, f"{call}  # {said:.9g}; {s.names['logp']} changes by {after - before:.9g}")
    return f"|change - (L' - L)| for {moves} moves; 256 units of rounding of the terms"
