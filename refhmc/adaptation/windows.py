"""The schedule of warm-up: phases of step size alone, and windows in which the metric is learned (Stan's).

75 iterations of step size alone, then windows of 25, 50, 100, ... in which the metric is learned (the last one stretched to
fit; for 151 to 199 iterations that is the first, where Stan has a second one of 1 to 49 draws), then 50 of step size
alone. Below 150 iterations the parts are 15 %, 75 % and 10 %; below 20 only the step size is adapted.
"""

from __future__ import annotations

import numpy as np

FIRST_FAST, FIRST_WINDOW, LAST_FAST = 75, 25, 50


def warmup_schedule(tune: int) -> list[tuple[str, int, int]]:
    """Phases ``(kind, start, stop)`` covering 0 .. tune: "fast" adapts the step size, "slow" the metric as well.

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


def schedule_array(tune: int, adapts_metric: bool) -> np.ndarray:
    """(k, 3) integers for the core: learns the metric (1) or not, start, stop."""
    phases = warmup_schedule(tune) if adapts_metric else ([("fast", 0, tune)] if tune else [])
    return np.array([(kind == "slow", start, stop) for kind, start, stop in phases], dtype=np.int64).reshape(-1, 3)
