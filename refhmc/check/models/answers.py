"""Does a model answer at all: in the right shapes, finite where its density is, the same each time, in arrays of its own?

Here the dimension is found, and the places at which the other rows look.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from refhmc.check.derivatives.claims import ALL_COORDINATES
from refhmc.check.derivatives.points import (
    LARGEST_TRIED,
    as_points,
    ascending,
    find_frame,
    infer_dim,
    inside_test,
    place,
    short,
)
from refhmc.check.models.examination import ModelExamination
from refhmc.check.report import FAIL, INCONCLUSIVE, INEFFICIENT, MISCONDUCT, PASS, WRONG_LAW, Row, judged
from refhmc.check.subject.foreign import Foreign, NotApplicable, SubjectError, elsewhere

SECONDS_IN_ALL = 20.0  # beyond about so much fewer places are looked at


def answers_row(s: ModelExamination):
    """Finds the dimension and the places to look at; every function answers there in its shape."""
    s.dim = _dimension(s)
    s.settings["dim"] = s.dim
    s.leave_out_large_tensors()
    _split_pair(s)
    points = as_points(s.points, s.dim)
    logp = s.at("logp")
    s.frame = find_frame(lambda q: float(np.real(logp(q))), s.dim, s.support, points, s.rng)
    if s.frame is None:
        q = points[0] if len(points) else np.zeros(s.dim)
        try:
            value = s.strictly("logp", q)  # raises what it has to say
        except SubjectError as wrong:
            raise elsewhere(wrong, s.dim, lambda d: s.functions["logp"].vector((), np.full(d, 0.25))) from None
        return Row(
            "answers",
            FAIL,
            float(value),
            basis="logp is finite nowhere it was tried",
            severity=MISCONDUCT,
            case=s.call("logp", q),
        )
    unknown, positive = _look_around(s, points)
    odd = _answers_at_test_points(s)
    if odd is not None:
        return odd
    if positive:
        case = s.call("logp", positive[0])
        return Row("answers", FAIL, basis="logp is +inf: no density", severity=WRONG_LAW, case=case)
    if unknown:
        why = f"logp is NaN at {len(unknown)} of the ordinary places, e.g. {s.call('logp', unknown[0])}"
        return Row("answers", INCONCLUSIVE, basis=why, severity=MISCONDUCT)
    return Row("answers", PASS, basis=f"finite, of the right shapes at {len(s.ordinary) + len(s.asymmetric)} places")


def _dimension(s: ModelExamination) -> int:
    if s.dim is not None:
        return int(s.dim)
    if s.points is not None:
        return int(np.shape(s.points)[-1])
    if s.support is not None and not callable(s.support):
        sizes = [np.size(x) for x in s.support if np.ndim(x) == 1]
        if sizes:
            return int(sizes[0])
    keys = [k for k in ("grad", "hess", "metric", "third") if k in s.functions]
    complaint: list[SubjectError] = []

    def tried(d: int, keys: Sequence[str]):
        """The shapes that the functions answer with in ``d`` dimensions; None where one refuses."""
        q = 0.125 + np.arange(d) / (4.0 * d)
        try:
            value = Foreign(s.functions["logp"].function, s.names["logp"], s.like).raw(q)
            pair = isinstance(value, tuple | list) and len(value) == 2 and np.ndim(value[0]) == 0
            s.functions["logp"].array(value[0] if pair else value, (), "the answer", [q])
            shapes = [np.shape(value[1])] if pair else []
            for key in keys:
                answer = np.shape(Foreign(s.functions[key].function, s.names[key], s.like).raw(q))
                rank = len(s.shape(key)) if s.dim else {"grad": 1, "hess": 2, "metric": 2, "third": 3}[key]
                shapes.append(answer if len(answer) == rank else (-1,))
            return shapes
        except SubjectError as wrong:
            complaint.append(wrong)
            return None

    for tries in (range(1, LARGEST_TRIED + 1), range(LARGEST_TRIED + 1, 513)):
        for some in (keys, list[str]()):
            found = infer_dim(partial(tried, keys=some), tries)
            if found is not None:
                s.notes.append(f"looked at in {found} dimensions (found by trial; dim= says otherwise)")
                return found
    first = complaint[0]
    raise SubjectError(f"no dimension up to 512 is accepted; give dim=. In one dimension: {first}", first.case)


def _split_pair(s: ModelExamination) -> None:
    """A logp that answers (value, gradient) as two functions."""
    if "grad" in s.functions:
        return
    both = s.functions["logp"].function
    try:
        answer = s.functions["logp"].raw(np.full(s.dim or 1, 0.25))
    except SubjectError:
        return
    if isinstance(answer, tuple | list) and len(answer) == 2:
        s.notes.append("logp answers with a pair: taken as (value, gradient)")
        s.names["grad"] = s.names["logp"]
        for key, part in (("logp", 0), ("grad", 1)):
            s.functions[key] = Foreign(lambda q, part=part: both(q)[part], s.names[key], s.like)
            s.foreign.append(s.functions[key])


def _look_around(s: ModelExamination, points: np.ndarray) -> tuple[list, list]:
    """Choose the ordinary and the asymmetric places; those at which logp is NaN, and those at which it is +inf."""
    assert s.frame is not None
    assert s.dim is not None
    unknown, positive, inside = [], [], inside_test(s.support)
    few = _how_many_test_points(s)
    sizes = [1.0] * few + [0.03, 2.0][: max(0, few - 2)]
    for size in sizes:
        z = size * s.rng.standard_normal(s.dim)
        q = short(s.frame.centre + s.frame.scales * z)
        value = float(np.real(s.at("logp")(q))) if inside(q) else -np.inf
        if np.isnan(value):
            s.strictly("logp", q)  # a function that raises among ordinary places says so
            unknown.append(q)
        elif value == np.inf:
            positive.append(q)
        found = place(s.frame, z, s.good)
        if found is not None:
            s.ordinary.append(found)
    s.ordinary += [q for q in points if s.good(q)][:10]
    if not s.ordinary:
        s.ordinary.append(s.frame.centre)
    simple = [np.zeros(s.dim), np.ones(s.dim), 2.0 * np.eye(s.dim)[0]]
    s.ordinary += [q for q in simple[: max(1, few - 2)] if s.good(q)]
    for _ in range(max(2, few - 1)):
        found = place(s.frame, ascending(s.dim, s.rng), s.good)
        if found is not None:
            s.asymmetric.append(found)
    return unknown, positive


def _how_many_test_points(s: ModelExamination) -> int:
    """Four of each kind; fewer where the functions are so slow that it would take too long."""
    assert s.frame is not None
    costs = []
    for _ in range(2):  # the first call may compile
        started = time.monotonic()
        for key in [k for k in ("logp", "grad") if k in s.functions]:
            s.at(key)(s.frame.centre)
        costs.append(time.monotonic() - started)
    of_a_place = min(costs) * 35 * min(len(s.frame.centre), ALL_COORDINATES)
    few = max(1, min(4, int(SECONDS_IN_ALL / 8 / max(of_a_place, 1e-9))))
    if few < 4:
        s.notes.append(f"slow functions: {few} places of each kind in place of 4")
    return few


def _answers_at_test_points(s: ModelExamination) -> Row | None:
    """None if every function answers in its shape, and finite, at a few places; those that do not are not run any more."""
    wrong: Row | None = None
    for key in [k for k in ("logp", "grad", "hess", "third", "metric", "metric_derivative") if k in s.functions]:
        for q in [*s.ordinary[:2], *s.asymmetric[:1]]:
            try:
                finite, why = np.isfinite(s.strictly(key, q)).all(), f"{s.names[key]} is not finite where logp is"
            except SubjectError as misconduct:
                finite, why = False, str(misconduct)
            if not finite:
                s.broken.add(key)
                wrong = wrong or Row("answers", FAIL, basis=why, severity=MISCONDUCT, case=s.call(key, q))
                break
    return wrong


def deterministic_row(s: ModelExamination) -> Row:
    """The same question gets the same answer, whatever was asked before."""
    s.need()
    A, B = (
        (*s.asymmetric, *s.ordinary)[:1] * 2
        if len(s.ordinary) + len(s.asymmetric) < 2
        else (
            *s.asymmetric,
            *s.ordinary,
        )[:2]
    )
    number, case, of = 0.0, "", "logp"
    for key in [k for k in ("logp", "grad", "hess", "metric", "third") if k in s.functions]:
        s.strictly("logp", A)
        first = s.strictly(key, A)
        s.strictly("logp", B)
        after_move = s.strictly(key, A)  # what logp left behind at B must not matter
        s.strictly(key, B)
        again = s.strictly(key, A)
        scale = np.maximum(1.0, np.abs(first).max(initial=0.0)) * s.epsilon(key)
        differ = max(float(np.abs(x - first).max(initial=0.0)) for x in (after_move, again)) / scale
        if not differ <= number:
            number, case, of = differ, s.call(key, A) + f"  # before and after {s.call(key, B)}", key
    severity = INEFFICIENT if of in ("grad", "hess") else WRONG_LAW
    basis = "units of rounding; sums in another order may differ"
    return judged("deterministic", number, 4096.0, basis, severity=severity, case=case)


def answers_stay_row(s: ModelExamination) -> Row:
    """An answer does not change when the next one is asked for: no view of an internal buffer."""
    s.need()
    test_points = [*s.asymmetric, *s.ordinary]
    if len(test_points) < 2:
        raise NotApplicable("only one place is known")
    A, B = test_points[:2]
    for key in [k for k in ("grad", "hess", "third", "metric", "metric_derivative") if k in s.functions]:
        kept = s.functions[key].raw(A)
        before = np.array(s.functions[key].array(kept, s.shape(key), "the answer"))
        s.functions[key].raw(B)
        after = s.functions[key].array(kept, s.shape(key), "the answer")
        if not np.array_equal(before, after, equal_nan=True):
            case = f"g = {s.call(key, A)}; {s.call(key, B)}; g  # has changed"
            why = f"{s.names[key]} answers with its own working array"
            return Row("earlier answers stay", FAIL, basis=why, severity=MISCONDUCT, case=case)
    return Row("earlier answers stay", PASS)
