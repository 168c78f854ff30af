"""Dual averaging (Hoffman and Gelman 2014), from the acceptances a_m since a start or restart with the step eps_0.

::

    log eps_m+1 = mu - sqrt(m) / (gamma (m + t0)) sum_{i <= m} (target - a_i),      mu = log(10 eps_0)
    log eps_bar_m = m^-kappa log eps_m+1 + (1 - m^-kappa) log eps_bar_m-1

Restarts are found where the recursion stops explaining the steps. After warm-up the step is eps_bar.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from refhmc.check.adaptations.record import AdaptationExamination, Constants, after_warm_up
from refhmc.check.judging import Cases, Measured, failed, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable

LAST_STEP = "the last step of warm-up is used instead of the average"
LEAST = 8  # least number of iterations of a segment that counts as explained


def recursion(first: float, acceptances: Sequence[float] | np.ndarray, c: Constants) -> tuple[np.ndarray, np.ndarray]:
    """Return (steps, averaged steps) after each of the acceptances, from a start at ``first``."""
    a = np.asarray(acceptances, dtype=float)
    m = np.arange(1, len(a) + 1)
    log_step = math.log(10 * first) - np.sqrt(m) / (c.gamma * (m + c.t0)) * np.cumsum(c.target - a)
    average, averages = 0.0, []
    for k, x in zip(m, log_step, strict=True):
        average += float(k) ** -c.kappa * (x - average)
        averages.append(average)
    with np.errstate(over="ignore"):
        return np.exp(log_step), np.exp(np.array(averages))


def _segments(test: AdaptationExamination) -> list[tuple[int, int]]:
    """Return (start, stop) of the parts of warm-up that one recursion explains, from its first step."""
    if test.segments is None:
        steps, a = test.whole("step_size", "acceptance_rate")

        def reach(start: int) -> int:
            """Return where the recursion from a start stops explaining the steps."""
            predicted, _ = recursion(steps[start], a[start : test.tune], test.constants)
            good = np.abs(np.log(steps[start + 1 : test.tune] / predicted[: test.tune - start - 1])) <= 1e-6
            return test.tune if good.all() else start + 1 + int(np.argmin(good))

        found, start = [], 0
        while start < test.tune:
            stop = reach(start)
            # A restart from the same step shows only one iteration later.
            early = stop < test.tune and stop - 1 > start and reach(stop - 1) > stop + 1
            found.append((start, stop - early))
            start = stop - early
        test.segments = found
    return test.segments


def acceptance_row(test: AdaptationExamination) -> Row:
    """Check that the acceptance statistic is an expected value: decisions are 0 or 1, and add noise to the recursion."""
    (a,) = test.need("acceptance_rate")
    between = int(np.sum((a > 0) & (a < 1)))
    basis = f"acceptance statistics between 0 and 1, of {len(a)}"
    if between == 0 and min(np.sum(a == 0), np.sum(a == 1)) >= LEAST:
        return test.mismatch("dual_averaging", 0.0, 1.0, f"{basis}: all are 0 or 1, as decisions are", ">=")
    return passed(basis, between, 1.0, ">=") if between else passed(f"{basis}: all are {a[0]:g}")


def dual_averaging_row(test: AdaptationExamination) -> Row:
    """Check that each step of warm-up follows from the previous acceptances by the recursion."""
    steps, _ = test.whole("step_size", "acceptance_rate")
    if test.tune < 3 * LEAST:
        raise NotApplicable(f"warm-up has fewer than {3 * LEAST} iterations")
    if np.all(steps[: test.tune] == steps[0]):
        if "dual_averaging" in test.claims:
            return failed("the step is the same in all iterations of warm-up", test.call)
        raise NotApplicable("the step is not adapted")
    parts = _segments(test)
    explained = sum(b - a for a, b in parts if b - a >= LEAST) / test.tune
    starts = [a for a, b in parts if b - a >= LEAST]
    c = test.constants
    basis = f"share of warm-up explained to 1e-6 with gamma {c.gamma:g}, t0 {c.t0:g}, kappa {c.kappa:g}, target {c.target:g}"
    if explained >= 0.9:
        test.notes.append(f"dual averaging starts at the iterations {starts}")
        return passed(basis, explained, 0.9, ">=")
    return test.mismatch("dual_averaging", explained, 0.9, basis)


def final_step_row(test: AdaptationExamination) -> Row:
    """Check that the step after warm-up is eps_bar of the last part, not the last eps."""
    steps, a = test.whole("step_size", "acceptance_rate")
    start, stop = _segments(test)[-1]
    if np.all(steps[: test.tune] == steps[0]):
        raise NotApplicable("the step is not adapted")
    if stop - start < LEAST or stop != test.tune:
        raise NotApplicable("the end of warm-up does not follow this recursion")
    raw, averaged = recursion(steps[start], a[start : test.tune], test.constants)
    after = float(np.median(after_warm_up(test, steps)))
    of_average, of_last = abs(math.log(after / averaged[-1])), abs(math.log(after / raw[-1]))
    before = recursion(steps[start], a[start : test.tune - 1], test.constants)[1]
    if min(of_average, abs(math.log(after / before[-1])) if len(before) else math.inf) <= 1e-6:
        return passed("|log| of its ratio to eps_bar; rounding of the recursion", of_average, 1e-6)
    is_last = min(of_last, abs(math.log(after / steps[test.tune - 1]))) <= 1e-6
    why = LAST_STEP if is_last else "the step is neither the averaged one nor the last"
    if is_last or "dual_averaging" in test.claims:
        return failed(why, test.call, of_average, 1e-6)
    raise Inconclusive(why, of_average)


def dual_averaging_function_row(test: AdaptationExamination) -> Cases:
    """Compare the caller's own recursion with the published one, on given acceptances."""
    f, target = test.function("dual_averaging"), test.constants.target
    rng = np.random.default_rng(test.seed)
    for first in (1e-3, 0.5, 20.0):
        for a in (np.clip(rng.normal(0.75, 0.2, 60), 0, 1), np.zeros(12), np.ones(12)):
            result = f.raw(first, a, target)
            pair = np.ndim(result) != 1 and len(result) == 2 and np.size(result[0]) == len(a)
            wanted = recursion(first, a, test.constants)
            words = ("the steps", "the averaged steps")
            for part, want, what in zip(result if pair else [result], wanted, words, strict=False):
                got = f.array(part, (len(a),), what, [first, a, target])
                gap = float(np.max(np.abs(np.log(got / want)))) if np.all(got > 0) else math.inf
                case = f"{f.name}({first}, {a.tolist()}, {target})  # {what}"
                yield Measured(gap, 1e-9 + 64 * f.epsilon * 60 * 60, case[:400])
    return "|log| of the ratio to the recursion; rounding of 60 iterations"
