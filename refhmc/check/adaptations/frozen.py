"""Whether adaptation ends with warm-up: the metric does not change any more, the step only without memory."""

from __future__ import annotations

import math

import numpy as np
import scipy.stats

from refhmc.check.adaptations.record import AdaptationExamination, after_warm_up, record
from refhmc.check.report import FAIL, PASS, WRONG_LAW, Row, inconclusive

NEEDED_Z = 7.0  # two-sided below 3e-12 for each of the four statistics


def frozen_row(test: AdaptationExamination) -> Row:
    """After warm-up: one metric, and a step that is constant or varies without memory."""
    test.need()
    text = f"run({test.draws}, {test.tune}, {test.seed})"
    for name in ("inverse_metric", "metric"):
        if name in test.record:
            metric = after_warm_up(test, test.record[name])
            changes = np.flatnonzero(np.any((metric[1:] != metric[:-1]).reshape(len(metric) - 1, -1), axis=1))
            if len(changes) and changes.tolist() != [0]:
                why = f"{name} changes {len(changes)} times after warm-up, first at draw {changes[0] + 1}"
                return Row("frozen after warm-up", FAIL, len(changes), 0.0, why, WRONG_LAW, text)
            if len(changes):
                test.notes.append(f"{name}: the first draw still has that of warm-up")
    if "step_size" not in test.record:
        return Row("frozen after warm-up", PASS, 0.0, 0.0, "changes of the metric")
    steps = after_warm_up(test, test.record["step_size"])
    changes = np.flatnonzero(steps[1:] != steps[:-1])
    if len(changes) == 0:
        return Row("frozen after warm-up", PASS, 0.0, 0.0, f"changes of the step in {test.draws} draws")
    if changes.tolist() == [0]:
        test.notes.append("the first draw still has warm-up's last step")
        return Row("frozen after warm-up", PASS, 1.0, 1.0, "change of the step, at the first draw")
    return _without_memory(test, steps, len(changes), text)


def _without_memory(test: AdaptationExamination, steps: np.ndarray, changes: int, text: str) -> Row:
    """A step that varies: by jitter or in a cycle, or by adaptation?"""
    other = after_warm_up(test, record(test, test.draws, test.tune, test.seed + 1)["step_size"])
    if len(other) == len(steps) and np.allclose(steps / steps[0], other / other[0], rtol=1e-9):
        test.notes.append("the step runs through a cycle that does not depend on the chain")
        return Row("frozen after warm-up", PASS, basis="the step varies, in the same way for every seed")
    if len(steps) < 50:
        return inconclusive("frozen after warm-up", "the step varies; with 50 draws or more it could be told why")
    few = len(np.unique(steps)) <= max(3, len(steps) // 50) and changes <= len(steps) // 20
    if few:
        why = f"the step changes {changes} times after warm-up and stands still between"
        return Row("frozen after warm-up", FAIL, changes, 0.0, why, WRONG_LAW, text)
    n = len(steps)
    ranks = scipy.stats.rankdata(steps)
    found = {
        "from draw to draw": abs(np.corrcoef(ranks[1:], ranks[:-1])[0, 1]) * math.sqrt(n - 1),
        "with time": abs(np.corrcoef(ranks, np.arange(n))[0, 1]) * math.sqrt(n - 1),
    }
    spread = np.abs(np.log(steps / np.median(steps)))
    if np.ptp(spread) > 0:
        found["of its spread with time"] = abs(
            np.corrcoef(scipy.stats.rankdata(spread), np.arange(n))[0, 1]
        ) * math.sqrt(n - 1)
    if "acceptance_rate" in test.record and len(test.record["acceptance_rate"]) >= n:
        before = after_warm_up(test, test.record["acceptance_rate"])[:-1]
        if np.ptp(before) > 0:
            rank = scipy.stats.rankdata(before)
            found["with the acceptance before"] = abs(np.corrcoef(ranks[1:], rank)[0, 1]) * math.sqrt(n - 1)
    what = max(found, key=lambda key: found[key])
    number = found[what]
    if number > NEEDED_Z:
        why = f"z of the step's correlation {what}: it is adapted still"
        return Row("frozen after warm-up", FAIL, number, NEEDED_Z, why, WRONG_LAW, text)
    test.notes.append("the step varies from draw to draw without memory: a jitter")
    if number > 4.0:
        return inconclusive("frozen after warm-up", f"the step varies, z of its correlation {what}", number)
    return Row(
        "frozen after warm-up",
        PASS,
        number,
        NEEDED_Z,
        f"largest z of the step's correlations ({what}); jitter has none",
    )


def draw_count_row(test: AdaptationExamination) -> Row:
    """One draw an iteration, repeated where the proposal was rejected."""
    (q,) = test.need("q")
    text = f"run({test.draws}, {test.tune}, {test.seed})"
    if len(q) not in (test.draws, test.draws + test.tune):
        why = f"{len(q)} draws recorded where {test.draws} (or {test.draws + test.tune}) were asked"
        return Row("draw count", FAIL, len(q), test.draws, why, WRONG_LAW, text)
    after = after_warm_up(test, q)
    repeats = int(np.sum(np.all(after[1:] == after[:-1], axis=1))) if len(after) > 1 else 0
    rejected = None
    if "acceptance_rate" in test.record:
        rejected = float(np.sum(1 - np.clip(after_warm_up(test, test.record["acceptance_rate"]), 0, 1)))
    test.notes.append(f"{repeats} of {len(after)} draws repeat the one before")
    if repeats == 0 and rejected is not None and rejected > 40:
        # Metropolis's chain repeats about as many as the acceptances say; a tree sampler's seldom does.
        return inconclusive(
            "draw count", f"no draw is a repeat, though the acceptances say {rejected:.0f} rejections: a tree sampler?"
        )
    return Row("draw count", PASS, len(after), test.draws, f"draws, {repeats} of them repeats", relation=">=")
