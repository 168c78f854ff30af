"""The metric of warm-up: its draws, its estimate, and its direction (mass or inverse mass).

**Variances** (Stan): n / (n + 5) S + 10^-3 5 / (n + 5) I for the (co)variance S of a window of n draws.

**Windows** (Stan): 75, then 25, 50, 100, ... (the last one stretched), then 50; below 150 iterations 15 %, 75 % and 10 %.
"""

from __future__ import annotations

import math

import numpy as np

from refhmc.check.adaptations.record import AdaptationExamination, after_warm_up, changes_of
from refhmc.check.judging import Cases, Measured, failed, judged, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, SubjectError

NOT_RESTARTED = "the sums also contain draws of earlier windows; they are not reset after a window"
LENGTHS = (150, 200, 300, 400, 500, 750, 1000, 1500, 2000, 5000)


def stan_windows(tune: int) -> list[tuple[int, int]]:
    """Return (start, stop) of the windows in which Stan adapts a metric, for tune >= 20."""
    first, window, last = 75, 25, 50
    if tune < 150:
        first, last = int(0.15 * tune), int(0.1 * tune)
        window = tune - first - last
    end, windows, start = tune - last, [], first
    while start < end:
        stop = start + window
        # Stan extends a window to the end if the next but one would not fit.
        stop = end if stop == end or stop + 2 * window > end else stop
        windows.append((start, stop))
        start, window = stop, 2 * window
    return windows


def _allowed_windows(tune: int) -> list[list[tuple[int, int]]]:
    """Return Stan's windows, and for 151 to 199 iterations also Stan's literal short second window."""
    windows = [stan_windows(tune)]
    if 150 < tune < 200:
        windows.append([(75, 100), (100, tune - 50)])
    return windows


def windows_row(test: AdaptationExamination) -> Row:
    """Compare changes of the metric during warm-up with Stan's windows."""
    if "schedule" in test.functions:
        return schedule_function_row(test)
    _, changes = _recorded_metric(test)
    wanted = [stop for _, stop in stan_windows(test.tune)]
    if _ends_of_stan(test, changes):
        return passed(f"a new metric after {wanted} iterations, as in Stan")
    why = f"the metric changes after {changes[:8].tolist()} iterations, in Stan after {wanted}"
    return test.mismatch("windows", float(len(changes)), float(len(wanted)), why)


def _ends_of_stan(test: AdaptationExamination, changes: np.ndarray) -> bool:
    """Return whether the metric changes at the ends of Stan's windows: after the last iteration, or the next."""
    wanted = [stop for _, stop in stan_windows(test.tune)]
    return any(changes.tolist() == [w + late for w in wanted] for late in (0, -1, 1))


def schedule_function_row(test: AdaptationExamination) -> Row:
    """Compare the caller's own schedule with Stan's, for several lengths of warm-up."""
    f = test.function("schedule")
    for tune in LENGTHS:
        phases = f.raw(tune)
        try:
            learnt = [x for x in phases if len(x) == 2 or str(x[0]).lower() in ("slow", "1", "true")]
            slow = [(int(x[-2]), int(x[-1])) for x in learnt]
        except Exception as error:
            raise SubjectError(
                f"{f.name}: phases (kind, start, stop) expected: {error}", f"{f.name}({tune})"
            ) from error
        if slow not in _allowed_windows(tune):
            return failed(f"for {tune}: {slow[:8]}, in Stan {stan_windows(tune)}", f"{f.name}({tune})")
    return passed(f"Stan's windows, for {', '.join(map(str, LENGTHS))} iterations")


def _recorded_metric(test: AdaptationExamination) -> tuple[np.ndarray, np.ndarray]:
    """Return M^-1 at each iteration, and where it changes in warm-up."""
    if "inverse_metric" in test.record:
        (metric,) = test.whole("inverse_metric")
    else:
        metric = _inverse(*test.whole("metric"))
    changes = changes_of(metric)
    changes = changes[changes <= test.tune]
    if len(changes) == 0:
        raise NotApplicable("the metric does not change in warm-up")
    return metric, changes


def _inverse(metric: np.ndarray) -> np.ndarray:
    return 1 / metric if metric.ndim == 2 else np.linalg.inv(metric)


def shrunk(draws: np.ndarray) -> np.ndarray:
    """Return Stan's estimate of the covariance of a window, (d, d)."""
    n, d = draws.shape
    return n / (n + 5) * np.cov(draws, rowvar=False).reshape(d, d) + 1e-3 * 5 / (n + 5) * np.eye(d)


def _close(metric: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference in units of the standard deviations; a diagonal metric is compared with the diagonal."""
    scale = np.sqrt(np.diag(wanted))
    if metric.ndim == 1:
        return float(np.max(np.abs(metric / np.diag(wanted) - 1)))
    return float(np.max(np.abs(metric - wanted) / np.outer(scale, scale)))


def _worst_window(
    test: AdaptationExamination, q: np.ndarray, metric: np.ndarray, changes: np.ndarray, restarted: bool = False
) -> tuple[float, int]:
    """Return the largest difference between a metric and the best estimate from a window that ends there, and its place.

    With ``restarted`` a window other than the first must begin at the end of the previous one.
    """
    worst, at = 0.0, 0
    for k, change in enumerate(changes):
        starts = {0, *(a for a, _ in stan_windows(test.tune)), *(int(c) for c in changes[:k])}
        starts = {int(changes[k - 1])} if restarted and k else starts
        options = [(a + da, change + db) for a in starts for da in (-1, 0, 1) for db in (-1, 0, 1)]
        gaps = [_close(metric[change], shrunk(q[a:b])) for a, b in options if a >= 0 and b - a >= 3]
        if min(gaps, default=math.inf) > worst:
            worst, at = min(gaps, default=math.inf), int(change)
    return worst, at


def variance_row(test: AdaptationExamination) -> Row:
    """Compare each new metric with the draws of the window that ends there."""
    (q,) = test.whole("q")
    metric, changes = _recorded_metric(test)
    worst, at = _worst_window(test, q, metric, changes, restarted=True)
    basis = f"relative difference to n/(n+5) S + 1e-3 5/(n+5) I, worst at iteration {at}"
    if worst <= 1e-8:
        return passed(basis + "; rounding of the sums", worst, 1e-8)
    if _worst_window(test, q, metric, changes)[0] > 1e-8:
        return test.mismatch("variance", worst, 1e-8, basis)
    why = f"{basis}: {NOT_RESTARTED}"
    if _ends_of_stan(test, changes):
        return failed(why, test.call, worst, 1e-8)
    return test.mismatch("variance", worst, 1e-8, why)


def variance_function_row(test: AdaptationExamination) -> Cases:
    """Yield differences from Stan's numbers, also far from the origin and for two draws."""
    f = test.function("variance")
    rng = np.random.default_rng(test.seed)
    for n, offset in ((2, 0.0), (3, 0.0), (25, 0.0), (500, 0.0), (100, 1e6)):
        draws = rng.standard_normal((n, 3)) @ np.array([[1.0, 0.4, 0.0], [0.0, 3.0, 0.1], [0.0, 0.0, 0.05]]) + offset
        got = f.array(f.raw(draws), None, "the estimate", [draws])
        if got.shape not in ((3,), (3, 3)):
            why = f"{f.name}: shape (3,) or (3, 3) expected, got {got.shape}"
            raise SubjectError(why, f"{f.name}(draws of shape {draws.shape})")
        tolerance = 1e-10 + 64 * f.epsilon * (1 + offset) / 0.05
        gap = _close(got, shrunk(draws - draws.mean(axis=0)))
        yield Measured(gap / tolerance, 1.0, f"{f.name}(draws)  # {n} draws about {offset:g}")
    return "in units of 1e-10 + 64 units of rounding of the draws; n/(n+5) S + 1e-3 5/(n+5) I"


def direction_row(test: AdaptationExamination) -> Row:
    """Check that M^-1 increases with the variances of the draws, not with their inverses."""
    test.need()
    if "q" not in test.record or not {"inverse_metric", "metric"} & set(test.record):
        raise NotApplicable("the run does not record q and a metric")
    if _is_exchanged(test):
        return failed("M^-1 is the inverse of the variances of its window's draws", test.call)
    name = "inverse_metric" if "inverse_metric" in test.record else "metric"
    last = test.record[name][-1]
    diagonal = np.diag(last) if last.ndim == 2 else np.atleast_1d(last)
    diagonal = 1 / diagonal if name == "metric" else diagonal
    variances = after_warm_up(test, test.record["q"]).var(axis=0)
    if len(variances) != len(diagonal) or np.any(variances <= 0) or np.ptp(np.log(variances)) < math.log(9):
        raise NotApplicable("needs coordinates of different scales (a factor of 3 or more) in the run's target")
    slope = float(np.polyfit(np.log(variances), np.log(diagonal), 1)[0])
    basis = "slope of log M^-1 over the log variances of the draws; 1 if right, -1 if exchanged"
    if abs(slope) <= 0.4:
        raise Inconclusive(basis, slope)
    return judged(slope, 0.4 if slope > 0 else 0.0, basis, test.call, relation=">")


def _is_exchanged(test: AdaptationExamination) -> bool:
    """Return whether each new M^-1 is the inverse of the estimate from its window's draws."""
    try:
        (q,) = test.whole("q")
        metric, changes = _recorded_metric(test)
    except NotApplicable:
        return False
    return len(q) == len(metric) and _worst_window(test, q, _inverse(metric), changes)[0] <= 1e-8
