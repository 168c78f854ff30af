"""Whether adaptation ends with warm-up: the metric does not change afterwards, and the step only without memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.stats

from refhmc.check.adaptations.record import AdaptationExamination, after_warm_up, changes_of, record
from refhmc.check.judging import failed, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive

NEEDED_Z = 7.0  # two-sided below 3e-12 for each of the four statistics


def frozen_row(test: AdaptationExamination) -> Row:
    """Check for one metric after warm-up, and a step that is constant or varies without memory."""
    test.need()
    for name in ("inverse_metric", "metric"):
        if name in test.record:
            changes = changes_of(after_warm_up(test, test.record[name]))
            if len(changes) and changes.tolist() != [1]:
                why = f"{name} changes {len(changes)} times after warm-up, first at draw {changes[0]}"
                return failed(why, test.call, len(changes), 0.0)
            if len(changes):
                test.notes.append(f"{name}: the first draw still has the value of warm-up")
    if "final_metric" in test.record:
        if (row := _same_at_the_end(test)) is not None:
            return row
    elif "inverse_metric" not in test.record and "metric" not in test.record:
        test.notes.append("the metric is not recorded: only the step is judged")
    if "step_size" not in test.record:
        return passed("changes of the metric", 0.0, 0.0)
    steps = after_warm_up(test, test.record["step_size"])
    changes = changes_of(steps)
    if len(changes) == 0:
        return passed(f"changes of the step in {test.draws} draws", 0.0, 0.0)
    if changes.tolist() == [1]:
        test.notes.append("the first draw still has the last step of warm-up")
        return passed("change of the step, at the first draw", 1.0, 1.0)
    return _without_memory(test, steps, len(changes))


def _same_at_the_end(test: AdaptationExamination) -> Row | None:
    """Return a FAIL if the metric at the end of the run depends on the number of draws after warm-up."""

    def at_the_end(draws: int) -> Any:
        return record(test, draws, test.tune, test.seed).get("final_metric")

    few, last = max(1, test.draws // 10), test.record["final_metric"]
    if not np.array_equal(last, at_the_end(test.draws)):
        raise Inconclusive("the repeated run ends with another metric: the seed does not determine it")
    if not np.array_equal(last, at_the_end(few)):
        return failed(f"the metric after {few} draws differs from that after {test.draws}", test.call, 1.0, 0.0)
    test.notes.append(f"the metric is the same after {few} draws and after {test.draws}")
    return None


def _without_memory(test: AdaptationExamination, steps: np.ndarray, changes: int) -> Row:
    """Decide whether a step varies by jitter or in a cycle, or by adaptation."""
    other = after_warm_up(test, record(test, test.draws, test.tune, test.seed + 1)["step_size"])
    if len(other) == len(steps) and np.allclose(steps / steps[0], other / other[0], rtol=1e-9):
        test.notes.append("the step follows a cycle that does not depend on the chain")
        return passed("the step varies in the same way for every seed")
    n = len(steps)
    if n < 50:
        raise Inconclusive("the step varies; 50 draws or more are needed to find the reason")
    if len(np.unique(steps)) <= max(3, n // 50) and changes <= n // 20:
        why = f"the step changes {changes} times after warm-up and is constant in between"
        return failed(why, test.call, changes, 0.0)
    spread = np.abs(np.log(steps / np.median(steps)))
    beside = {
        "from draw to draw": (steps[1:], steps[:-1]),
        "with time": (steps, np.arange(n)),
        "of its deviation with time": (spread, np.arange(n)),
    }
    acceptances = test.record.get("acceptance_rate", np.zeros(0))
    if len(acceptances) >= n:
        beside["with the previous acceptance"] = (steps[1:], after_warm_up(test, acceptances)[:-1])
    varying = {what: pair for what, pair in beside.items() if all(np.ptp(x) > 0 for x in pair)}
    found = {what: _correlation(*pair) * math.sqrt(n - 1) for what, pair in varying.items()}
    what, number = max(found.items(), key=lambda item: item[1])
    if number > NEEDED_Z:
        return failed(f"z of the step's correlation {what}: it is still adapted", test.call, number, NEEDED_Z)
    test.notes.append("the step varies from draw to draw without memory: a jitter")
    if number > 4.0:
        raise Inconclusive(f"the step varies, z of its correlation {what}", number)
    return passed(f"largest z of the step's correlations ({what}); jitter has none", number, NEEDED_Z)


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return the absolute rank correlation."""
    return float(abs(np.corrcoef(scipy.stats.rankdata(x), scipy.stats.rankdata(y))[0, 1]))


def draw_count_row(test: AdaptationExamination) -> Row:
    """Check for one draw per iteration, repeated if the proposal was rejected."""
    (q,) = test.need("q")
    if len(q) not in (test.draws, test.draws + test.tune):
        why = f"{len(q)} draws recorded instead of {test.draws} (or {test.draws + test.tune})"
        return failed(why, test.call, len(q), test.draws)
    after = after_warm_up(test, q)
    repeats = len(after) - 1 - len(changes_of(after))
    test.notes.append(f"{repeats} of {len(after)} draws repeat the previous one")
    if repeats == 0 and "acceptance_rate" in test.record:
        rejected = float(np.sum(1 - np.clip(after_warm_up(test, test.record["acceptance_rate"]), 0, 1)))
        if rejected > 40:
            # A Metropolis chain repeats about as often as its acceptances imply; a tree sampler rarely does.
            why = f"no draw is repeated, although the acceptances imply {rejected:.0f} rejections: a tree sampler?"
            raise Inconclusive(why)
    return passed(f"draws, {repeats} of them repeated", len(after), test.draws, ">=")
