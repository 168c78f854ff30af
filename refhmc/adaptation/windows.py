"""The schedule of warm-up: phases of step size alone, and windows in which the metric is learned (Stan's).

75 iterations of step size alone are followed by windows of 25, 50, 100, ... in which the metric is learned, and by 50
iterations of step size alone. The last window is stretched to fit. (For 151 to 199 iterations that is the first one; Stan
has a second window of 1 to 49 draws there.) Below 150 iterations the parts are 15 %, 75 % and 10 %. Below 20 only the step
size is adapted.

A metric that is learned from draws and gradients is exact for a normal after a few draws, and is learned from iteration 10 on,
and then whenever warm-up is 3/2 as long. Each window is the later half of the iterations so far. (Earlier draws may also
serve to find directions: :mod:`refhmc.adaptation.fisher_divergence`.) The last window ends 50 iterations (10 %) before the end.
"""

from __future__ import annotations

import numpy as np

from refhmc.metrics.base import FROM_PAIRS, NOTHING

FIRST_FAST, FIRST_WINDOW, LAST_FAST, FIRST_GROWING = 75, 25, 50, 10


def warmup_schedule(tune: int) -> list[tuple[str, int, int]]:
    """Return phases ``(kind, start, stop)`` covering 0 .. tune: "fast" adapts the step size, "slow" the metric as well.

    Each slow phase ends with a new metric. Defined for every ``tune >= 0``.
    """
    if tune < 20:
        return [("fast", 0, tune)] if tune else []
    first, window, last = FIRST_FAST, FIRST_WINDOW, LAST_FAST
    if tune < first + window + last:
        first, last = int(0.15 * tune), int(0.1 * tune)
        window = tune - first - last
    phases = [("fast", 0, first)]
    start, end_slow = first, tune - last
    while start < end_slow:
        stop = start + window
        if stop + 2 * window > end_slow:  # the next, doubled, would not fit
            stop = end_slow
        phases.append(("slow", start, stop))
        start, window = stop, 2 * window
    phases.append(("fast", end_slow, tune))
    return phases


def growing_windows(tune: int) -> list[tuple[str, int, int]]:
    """Return phases ``(kind, start, stop)``; "slow" ones overlap, each the later half of the iterations up to its end."""
    last = min(LAST_FAST, int(0.1 * tune))
    if tune < 20:
        return [("fast", 0, tune)] if tune else []
    phases, stop = [], FIRST_GROWING
    while stop < tune - last:
        phases.append(("slow", stop // 2, stop))
        stop = int(1.5 * stop)
    if phases and phases[-1][2] > 0.8 * (tune - last):  # the last two would see nearly the same
        phases.pop()
    return [*phases, ("slow", (tune - last) // 2, tune - last), ("fast", tune - last, tune)]


def schedule_array(tune: int, learns: int) -> np.ndarray:
    """Return (k, 3) integers for the core: learns the metric (1) or not, start, stop.

    ``learns`` is how the metric learns (:mod:`refhmc.metrics.base`).
    """
    if learns == NOTHING:
        phases = [("fast", 0, tune)] if tune else []
    else:
        phases = growing_windows(tune) if learns == FROM_PAIRS else warmup_schedule(tune)
    return np.array([(kind == "slow", start, stop) for kind, start, stop in phases], dtype=np.int64).reshape(-1, 3)
