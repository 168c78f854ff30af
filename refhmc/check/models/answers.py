"""Basic conduct of a model: right shapes, finite values, equal answers to equal questions, arrays of its own.

These rows also find the dimension and the points of the other rows.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from refhmc.check.derivatives.claims import ALL_COORDINATES
from refhmc.check.derivatives.points import find_frame, short
from refhmc.check.judging import failed, judged, passed
from refhmc.check.models.examination import ModelExamination
from refhmc.check.report import CALL_FAILED, INEFFICIENT, WRONG_DISTRIBUTION, Row
from refhmc.check.subject.foreign import Foreign, Inconclusive, NotApplicable, SubjectError

SECONDS_IN_ALL = 20.0  # for slower functions, fewer points are examined


def answers_row(s: ModelExamination) -> Row:
    """Find the dimension and the points, and check that every function returns its shape there."""
    if s.support is not None and not callable(s.support) and s.points is None and not s.dim:
        s.dim = next((np.size(x) for x in s.support if np.ndim(x) == 1), 0)
    keys = [k for k in ("grad", "hess", "metric", "third") if k in s.functions]
    points = s.find_dimension(partial(_shapes, s, keys), partial(_shapes, s, []))
    s.leave_out_large_tensors()
    _split_pair(s)
    logp = s.at("logp")
    s.known_frame = find_frame(lambda q: float(np.real(logp(q))), s.dim, s.support, points, s.rng)
    if s.known_frame is None:
        return s.finite_nowhere("logp", "logp", points)
    unknown, positive = _look_around(s, points)
    odd = _answers_at_test_points(s)
    if odd is not None:
        return odd
    if positive:
        return failed("logp is +inf, which is not a density", s.call("logp", positive[0]))
    if unknown:
        raise Inconclusive(f"logp is NaN at {len(unknown)} of the ordinary points, e.g. {s.call('logp', unknown[0])}")
    return passed(f"finite, of the right shapes at {len(s.ordinary) + len(s.asymmetric)} points")


def _shapes(s: ModelExamination, keys: Sequence[str], d: int) -> list[tuple[int, ...]]:
    """Return the shapes of the answers in ``d`` dimensions."""
    q = 0.125 + np.arange(d) / (4.0 * d)
    value = s.again("logp").raw(q)
    pair = isinstance(value, tuple | list) and len(value) == 2 and np.ndim(value[0]) == 0
    s.functions["logp"].array(value[0] if pair else value, (), "the answer", [q])
    shapes = [np.shape(value[1])] if pair else []
    for key in keys:
        answer = np.shape(s.again(key).raw(q))
        shapes.append(answer if len(answer) == s.ranks[key] else (-1,))
    return shapes


def _split_pair(s: ModelExamination) -> None:
    """Split a logp that returns (value, gradient) into two functions."""
    if "grad" in s.functions:
        return
    both = s.functions["logp"].function
    try:
        answer = s.functions["logp"].raw(np.full(s.dim, 0.25))
    except SubjectError:
        return
    if isinstance(answer, tuple | list) and len(answer) == 2:
        s.notes.append("logp returns a pair, taken as (value, gradient)")
        s.names["grad"] = s.names["logp"]
        for key, part in (("logp", 0), ("grad", 1)):
            s.functions[key] = Foreign(lambda q, part=part: both(q)[part], s.names[key], s.like)
            s.foreign.append(s.functions[key])


def _look_around(s: ModelExamination, points: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Choose the ordinary and the asymmetric points; return points where logp is NaN, and where it is +inf."""
    few = _how_many_test_points(s)
    offsets = s.offsets([1.0] * few + [0.03, 2.0][: max(0, few - 2)])
    places = [short(s.frame.centre + s.frame.scales * z) for z in offsets]
    values = [float(np.real(s.at("logp")(q))) if s.inside(q) else -np.inf for q in places]
    unknown = [q for q, value in zip(places, values, strict=True) if np.isnan(value)]
    for q in unknown:
        s.strictly("logp", q)  # reports a function that raises at ordinary points
    s.look_around(offsets, points, max(2, few - 1))
    simple = [np.zeros(s.dim), np.ones(s.dim), 2.0 * np.eye(s.dim)[0]]
    s.ordinary += [q for q in simple[: max(1, few - 2)] if s.good(q)]
    return unknown, [q for q, value in zip(places, values, strict=True) if value == np.inf]


def _how_many_test_points(s: ModelExamination) -> int:
    """Return the number of points of each kind, at most four; fewer for slow functions."""
    costs = []
    for _ in range(2):  # the first call may compile
        started = time.monotonic()
        for key in [k for k in ("logp", "grad") if k in s.functions]:
            s.at(key)(s.frame.centre)
        costs.append(time.monotonic() - started)
    of_a_place = min(costs) * 35 * min(len(s.frame.centre), ALL_COORDINATES)
    few = max(1, min(4, int(SECONDS_IN_ALL / 8 / max(of_a_place, 1e-9))))
    if few < 4:
        s.notes.append(f"slow functions: {few} points of each kind instead of 4")
    return few


def _answers_at_test_points(s: ModelExamination) -> Row | None:
    """Return None if all functions return finite values of their shapes at a few points; exclude the others."""
    wrong: Row | None = None
    for key in [k for k in ("logp", "grad", "hess", "third", "metric", "metric_derivative") if k in s.functions]:
        for q in [*s.ordinary[:2], *s.asymmetric[:1]]:
            try:
                finite, why = np.isfinite(s.strictly(key, q)).all(), f"{s.names[key]} is not finite where logp is"
            except SubjectError as wrong_call:
                finite, why = False, str(wrong_call)
            if not finite:
                s.broken.add(key)
                wrong = wrong or failed(why, s.call(key, q), severity=CALL_FAILED)
                break
    return wrong


def deterministic_row(s: ModelExamination) -> Row:
    """Check that equal calls give equal answers, whatever was called before."""
    s.need()
    places = [*s.asymmetric, *s.ordinary]
    A, B = (places * 2)[:2]
    number, case, of = 0.0, "", "logp"
    for key in [k for k in ("logp", "grad", "hess", "metric", "third") if k in s.functions]:
        s.strictly("logp", A)
        first = s.strictly(key, A)
        s.strictly("logp", B)
        after_move = s.strictly(key, A)  # state that logp kept at B must not matter
        s.strictly(key, B)
        again = s.strictly(key, A)
        scale = np.maximum(1.0, np.abs(first).max(initial=0.0)) * s.epsilon(key)
        differ = max(float(np.abs(x - first).max(initial=0.0)) for x in (after_move, again)) / scale
        if not differ <= number:
            number, case, of = differ, s.call(key, A) + f"  # before and after {s.call(key, B)}", key
    severity = INEFFICIENT if of in ("grad", "hess") else WRONG_DISTRIBUTION
    return judged(number, 4096.0, "in units of rounding; sums in another order may differ", case, severity=severity)


def answers_stay_row(s: ModelExamination) -> Row:
    """Check that an answer does not change at the next call, as a view of an internal buffer would."""
    s.need()
    test_points = [*s.asymmetric, *s.ordinary]
    if len(test_points) < 2:
        raise NotApplicable("only one point is known")
    A, B = test_points[:2]
    for key in [k for k in ("grad", "hess", "third", "metric", "metric_derivative") if k in s.functions]:
        kept, shape = s.functions[key].raw(A), (s.dim,) * s.ranks[key]
        before = np.array(s.functions[key].array(kept, shape, "the answer"))
        s.functions[key].raw(B)
        after = s.functions[key].array(kept, shape, "the answer")
        if not np.array_equal(before, after, equal_nan=True):
            case = f"g = {s.call(key, A)}; {s.call(key, B)}; g  # has changed"
            return failed(f"{s.names[key]} returns its own working array", case, severity=CALL_FAILED)
    return passed()
