"""A model's conformance: is each derivative that of the one below it, and is it the density it is meant to be?

    gradient[i] = dL/dq_i      hess[i, j] = d gradient[i] / dq_j      third[i, j, k] = d hess[i, j] / dq_k

Differences of the caller's own functions are the truth, with an error that is measured where it is used
(:mod:`refhmc.check.slopes`, :mod:`refhmc.check.claims`): in float32 for a subject that answers in it.

What no derivative can show is a density that is consistently another one: :mod:`refhmc.check.densities`.

How grave a failure is. A leapfrog whose force is *any* function of q preserves volume and can be reversed: a wrong gradient
under a Metropolis step leaves the law right and rejects more (inefficient), and so does a wrong Hessian as the raw material
of a metric. A third derivative, or a metric's, that is not the derivative of what it belongs to makes a step on a metric that
depends on the position non-symplectic, so that its acceptance probability is not the right one: wrong law. So is a wrong
density.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from refhmc.check.claims import ALL_COORDINATES, Claim, claim_at, quietly, row_of
from refhmc.check.densities import STEIN_RATE, exact_draws_row, normaliser_row
from refhmc.check.edges import smooth_row, support_row
from refhmc.check.foreign import SECONDS_PER_CALL, Foreign, Misconduct, NotApplicable, Undecided, examine, text_of
from refhmc.check.model_subject import Subject, functions_of, noise_of_logp, places_of, warm_up, widths_at
from refhmc.check.patterns import clipped, pattern_far_out, pattern_of_gradient, pattern_of_tensor
from refhmc.check.places import (
    LARGEST_TRIED,
    as_points,
    ascending,
    find_frame,
    infer_dim,
    inside_test,
    place,
    short,
    simplest,
)
from refhmc.check.report import FAIL, INCONCLUSIVE, INEFFICIENT, MISCONDUCT, PASS, WRONG_LAW, Report, Row, judged
from refhmc.check.slopes import noise_along, second_along, width_along

FINE_TIER = 2.0**-40  # below it nothing is said of a derivative's precision
SECONDS_IN_ALL = 20.0  # beyond about so much fewer places are looked at
OVERFLOWING = 1e30  # with numbers of that size, squares and products overflow in honest code


def model(
    logp,
    grad=None,
    hess=None,
    third=None,
    metric=None,
    support=None,
    *,
    dim: int | None = None,
    metric_derivative=None,
    trace=None,
    metric_trace=None,
    reference=None,
    constrained: tuple[Callable, Callable] | None = None,
    normalised: bool = False,
    discontinuous: Sequence[int] | None = None,
    points=None,
    seed: int = 20261121,
    like=None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Hold a log density and its derivatives against each other, and against what is known of it.

    Parameters
    ----------
    logp : q (d,) -> a number, -inf outside the support; or -> (number, gradient) with ``grad`` left out; or a
        :class:`refhmc.Model`, or any object with ``log_density`` and ``gradient``, which brings its other functions along.
    grad, hess, third : q -> (d,), (d, d), (d, d, d): the derivatives of L itself, not of -L.
    metric, metric_derivative : q -> (d, d) and (d, d, d), [i, j, k] = d metric[i, j] / dq_k.
    trace, metric_trace : (q, M) -> (d,): sum_ij M[i, j] third[i, j, k], and the same of the metric's derivative.
    support : where L is finite: q -> bool, or a pair (low, high) of numbers or (d,) arrays.
    dim : d; found by trial where it is left out.
    reference : what is known: a function (or an object with ``log_density``) that L should equal up to a constant, and/or an
        object with ``draw(rng, n)``, exact draws (n, d) of q.
    constrained : (log density of x, q -> x): L should be that density carried over to q.
    normalised : L claims to integrate to one (d <= 2).
    discontinuous : indices of the coordinates in which L jumps (needs ``dim``): derivatives are taken along the others only.
    points : further places (n, d) to look at; the first is where the search for a centre begins.

    A :class:`refhmc.Model` brings its ``dim``, ``reference``, ``discontinuous`` and ``initial`` along.

    Returns a :class:`Report`. TypeError for a subject that is not callable, ValueError for points of another shape and for
    indices of no coordinate.
    """
    if discontinuous is None:
        discontinuous = getattr(logp, "discontinuous", ())
    if points is None:
        points = getattr(logp, "initial", None)
    s = Subject(
        functions_of(logp, grad, hess, third, metric, metric_derivative, trace, metric_trace),
        support,
        points,
        seed,
        like,
        discontinuous,
    )
    s.dim = dim if dim is not None else getattr(logp, "dim", None)
    if s.discontinuous:
        if s.dim is None:
            raise ValueError("discontinuous= needs dim=")
        if not all(0 <= k < s.dim for k in s.discontinuous):
            raise ValueError(f"discontinuous: indices are whole numbers from 0 to {s.dim - 1}, got {s.discontinuous}")
    s.leave_out_large_tensors()
    if hasattr(logp, "core"):  # one of ours: what it compiles at its first calls is not the subject's time
        warm_up(s.functions, s.dim or 1)
    s.reference = reference if reference is not None else getattr(logp, "reference", None)
    s.settings = {} if s.dim is None else {"dim": s.dim}
    checks = [
        ("answers", lambda: _answers(s)),
        ("deterministic", lambda: _deterministic(s)),
        ("earlier answers stay", lambda: _answers_stay(s)),
        ("gradient", lambda: _gradient(s, "gradient", s.ordinary)),
        ("gradient at asymmetric points", lambda: _gradient(s, "gradient at asymmetric points", s.asymmetric)),
        ("gradient at large points", lambda: _large(s)),
        ("gradient precision", lambda: _precision(s)),
        ("hessian", lambda: _hessian(s)),
        ("hessian symmetric", lambda: _symmetric(s, "hessian symmetric", "hess", INEFFICIENT)),
        ("third derivative", lambda: _above(s, "third derivative", "hess", "third")),
        ("third derivative symmetric", lambda: _symmetric(s, "third derivative symmetric", "third", WRONG_LAW)),
        ("trace", lambda: _trace(s, "trace", "third", "hess")),
        ("metric", lambda: _metric(s)),
        ("metric derivative", lambda: _above(s, "metric derivative", "metric", "metric_derivative")),
        ("metric trace", lambda: _trace(s, "metric trace", "metric_derivative", "metric")),
        ("smooth", lambda: smooth_row(s)),
        ("support", lambda: support_row(s)),
        ("normaliser", lambda: normaliser_row(s, constrained, normalised)),
        ("exact draws", lambda: exact_draws_row(s)),
    ]
    return examine(
        "model",
        name or s.names["logp"],
        quietly(checks),
        settings=s.settings,
        seed=seed,
        foreign=s.foreign,
        notes=lambda: s.notes,
        diagnose=lambda rows: _diagnose(s, rows),
        seconds_per_call=seconds_per_call,
        false_alarm=f"deterministic checks: none; exact draws: at most {STEIN_RATE:g} (all its tests together)",
    )


# ----------------------------------------------------------------------------------------------------- what it answers


def _answers(s: Subject):
    s.dim = _dimension(s)
    s.settings["dim"] = s.dim
    s.leave_out_large_tensors()
    _split_pair(s)
    points = as_points(s.points, s.dim)
    logp = s.at("logp")
    s.frame = find_frame(lambda q: float(np.real(logp(q))), s.dim, s.support, points, s.rng)
    if s.frame is None:
        q = points[0] if len(points) else np.zeros(s.dim)
        value = s.strictly("logp", q)  # raises what it has to say
        return Row(
            "answers",
            FAIL,
            float(value),
            basis="logp is finite nowhere it was tried",
            severity=MISCONDUCT,
            case=s.call("logp", q),
        )
    unknown, positive = _look_around(s, points)
    odd = _answers_at_places(s)
    if odd is not None:
        return odd
    if positive:
        case = s.call("logp", positive[0])
        return Row("answers", FAIL, basis="logp is +inf: no density", severity=WRONG_LAW, case=case)
    if unknown:
        why = f"logp is NaN at {len(unknown)} of the ordinary places, e.g. {s.call('logp', unknown[0])}"
        return Row("answers", INCONCLUSIVE, basis=why, severity=MISCONDUCT)
    return Row("answers", PASS, basis=f"finite, of the right shapes at {len(s.ordinary) + len(s.asymmetric)} places")


def _dimension(s: Subject) -> int:
    if s.dim is not None:
        return int(s.dim)
    if s.points is not None:
        return int(np.shape(s.points)[-1])
    if s.support is not None and not callable(s.support):
        sizes = [np.size(x) for x in s.support if np.ndim(x) == 1]
        if sizes:
            return int(sizes[0])
    keys = [k for k in ("grad", "hess", "metric", "third") if k in s.functions]
    complaint: list[Misconduct] = []

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
        except Misconduct as wrong:
            complaint.append(wrong)
            return None

    for tries in (range(1, LARGEST_TRIED + 1), range(LARGEST_TRIED + 1, 513)):
        for some in (keys, list[str]()):
            found = infer_dim(partial(tried, keys=some), tries)
            if found is not None:
                s.notes.append(f"looked at in {found} dimensions (found by trial; dim= says otherwise)")
                return found
    first = complaint[0]
    raise Misconduct(f"no dimension up to 512 is accepted; give dim=. In one dimension: {first}", first.case)


def _split_pair(s: Subject) -> None:
    """A logp that answers (value, gradient) as two functions."""
    if "grad" in s.functions:
        return
    both = s.functions["logp"].function
    try:
        answer = s.functions["logp"].raw(np.full(s.dim or 1, 0.25))
    except Misconduct:
        return
    if isinstance(answer, tuple | list) and len(answer) == 2:
        s.notes.append("logp answers with a pair: taken as (value, gradient)")
        s.names["grad"] = s.names["logp"]
        for key, part in (("logp", 0), ("grad", 1)):
            s.functions[key] = Foreign(lambda q, part=part: both(q)[part], s.names[key], s.like)
            s.foreign.append(s.functions[key])


def _look_around(s: Subject, points: np.ndarray) -> tuple[list, list]:
    """Choose the ordinary and the asymmetric places; those at which logp is NaN, and those at which it is +inf."""
    assert s.frame is not None
    assert s.dim is not None
    unknown, positive, inside = [], [], inside_test(s.support)
    few = _how_many_places(s)
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


def _how_many_places(s: Subject) -> int:
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


def _answers_at_places(s: Subject) -> Row | None:
    """None if every function answers in its shape, and finite, at a few places; those that do not are not run any more."""
    wrong: Row | None = None
    for key in [k for k in ("logp", "grad", "hess", "third", "metric", "metric_derivative") if k in s.functions]:
        for q in [*s.ordinary[:2], *s.asymmetric[:1]]:
            try:
                finite, why = np.isfinite(s.strictly(key, q)).all(), f"{s.names[key]} is not finite where logp is"
            except Misconduct as misconduct:
                finite, why = False, str(misconduct)
            if not finite:
                s.broken.add(key)
                wrong = wrong or Row("answers", FAIL, basis=why, severity=MISCONDUCT, case=s.call(key, q))
                break
    return wrong


def _deterministic(s: Subject) -> Row:
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


def _answers_stay(s: Subject) -> Row:
    """An answer does not change when the next one is asked for: no view of an internal buffer."""
    s.need()
    places = [*s.asymmetric, *s.ordinary]
    if len(places) < 2:
        raise NotApplicable("only one place is known")
    A, B = places[:2]
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


# -------------------------------------------------------------------------------------------------------- the gradient


def _gradient_claim(s: Subject, q: np.ndarray, directions: np.ndarray | None = None) -> Claim:
    assert s.frame is not None
    key = (q.tobytes(), None if directions is None else directions.tobytes())
    if key not in s.seen:
        rng = np.random.default_rng([s.seed, 1])
        u = s.directions(rng) if directions is None else directions
        starts = np.where(np.count_nonzero(u, axis=1) == 1, np.abs(u) @ s.frame.scales, 1.0)
        s.seen[key] = claim_at(
            s.at("logp"),
            s.at("grad"),
            q,
            u,
            starts,
            epsilon=s.epsilon("logp"),
            claim_epsilon=s.epsilon("grad"),
            least=1.0,  # a log density is summed from terms of order one
        )
    return s.seen[key]


def _gradient(s: Subject, name: str, places: Sequence[np.ndarray], said: str = "") -> Row:
    s.need("grad")
    found = [_gradient_claim(s, q) for q in places]
    s.claims[name] = found
    row = row_of(name, found, INEFFICIENT, lambda c, i: _gradient_case(s, c, i), said=said)
    if row.status == FAIL:
        s.failed.add("gradient")
    return row


def _gradient_case(s: Subject, claim: Claim, index: tuple[int, ...]) -> str:
    u = claim.directions[index[-1]]
    if np.count_nonzero(u) != 1:  # of many coordinates: find one that is wrong
        every = _gradient_claim(s, claim.q, s.directions())
        if not (every.excess() > 1).any():
            numbers = f"{claim.value[index]:.9g}; differences of {s.names['logp']}: {claim.truth[index]:.9g}"
            return f"{s.call('grad', claim.q)} @ np.array({text_of(u)})  # {numbers}"
        u = s.directions()[int(np.argmax(every.excess()))]

    def fails(q):
        return s.good(q) and bool((_gradient_claim(s, q, u[None]).excess() > 1).any())

    q = simplest(claim.q, fails)
    final = _gradient_claim(s, q, u[None])
    k = int(np.argmax(np.abs(u)))
    return f"{s.call('grad', q)}[{k}]  # {final.value[0]:.9g}; differences of {s.names['logp']}: {final.truth[0]:.9g}"


def _large(s: Subject) -> Row:
    """Out to a thousand scales, where a clipped or saturated gradient shows."""
    s.need("grad")
    s.directions()
    assert s.frame is not None
    assert s.dim is not None
    rng, places = np.random.default_rng([s.seed, 2]), []
    rays = [rng.standard_normal(s.dim), ascending(s.dim, rng), np.eye(s.dim)[int(rng.integers(s.dim))]]
    for n, size in enumerate((5.0, 20.0, 60.0, 200.0, 600.0, 2000.0)):
        for ray in (rays[n % 3], -rays[n % 3]):
            q = short(s.frame.centre + s.frame.scales * size * ray)
            if s.good(q):
                places.append(q)
    # Where the numbers themselves overflow, a gradient that does so too is no error.
    tame = [q for q in places if np.isfinite(s.at("grad")(q)).all() or _largest_number(s, q) < OVERFLOWING]
    if not tame:
        raise Undecided("logp and the gradient are finite at no large place")
    met = max(float(np.nan_to_num(np.abs(_gradient_claim(s, q).truth)).max(initial=0.0)) for q in tame)
    lost = f"; overflows at {len(places) - len(tame)} others" if len(tame) < len(places) else ""
    return _gradient(s, "gradient at large points", tame, said=f"|gradient| up to {met:.2g} met{lost}")


def _largest_number(s: Subject, q: np.ndarray) -> float:
    """Of log density and slopes at q."""
    truth = _gradient_claim(s, q).truth
    slopes = float(np.abs(truth).max(initial=0.0)) if np.isfinite(truth).all() else np.inf
    return max(slopes, abs(float(np.real(s.at("logp")(q)))))


def _precision(s: Subject) -> Row:
    """A float64 answer that is good to eight digits only: the same coordinate is off in most places, by more than our error."""
    name = "gradient precision"
    s.need("grad")
    s.directions()
    if "gradient" in s.failed:
        raise NotApplicable("the gradient itself is wrong")
    found = [c for key in ("gradient", "gradient at asymmetric points") for c in s.claims.get(key, ())]
    found = [c for c in found if not c.kinks.any()]
    if len(found) < 3:
        raise Undecided("fewer than three places to judge by")
    excess = np.array([c.excess(FINE_TIER) for c in found])
    relative = np.array([np.abs(c.value - c.truth) / np.maximum(c.size, 1e-300) for c in found])
    allowed = np.array([c.own / np.maximum(c.size, 1e-300) + FINE_TIER for c in found])
    decided = np.array([c.decided for c in found])
    off = ((excess > 1) & decided).sum(axis=0)
    k = int(np.argmax(off / np.maximum(decided.sum(axis=0), 1)))
    basis = f"relative; median over {len(found)} places of the worst coordinate; differences' own error + noise"
    at = decided[:, k]
    if at.sum() < 3:
        raise Undecided("fewer than three places to judge by")
    number, tolerance = float(np.median(relative[at, k])), float(np.median(allowed[at, k]))
    if off[k] > 0.5 * at.sum() and off[k] >= 3:
        claim = found[int(np.argmax(excess[:, k]))]
        q = claim.q
        case = f"{s.call('grad', q)}  # component {k}: {claim.value[k]:.16g}; differences: {claim.truth[k]:.16g}"
        s.failed.add("precision")
        return Row(name, FAIL, number, min(tolerance, number), basis, INEFFICIENT, case)
    # A gradient that is rounded to float32 on its way has noise of that size, everywhere, where logp has none.
    noise = float(np.median([np.max(c.noise / np.maximum(c.size, 1e-300)) for c in found]))
    quiet = noise_of_logp(s) < 2.0**-44
    if noise > 2.0**-30 and quiet and s.epsilon("grad") <= 2.0**-52:
        s.failed.add("precision")
        why = "relative noise of the gradient; logp has none of that size"
        return Row(name, FAIL, noise, 2.0**-30, why, INEFFICIENT, s.call("grad", found[0].q))
    return Row(name, PASS, min(number, tolerance), tolerance, basis, INEFFICIENT)


# ---------------------------------------------------------------------------------------- second and third derivatives


def _tensor_claims(s: Subject, lower: str, higher: str, most: int = 6) -> list[Claim]:
    """Claims of a derivative of a vector or matrix, in units of the lengths on which logp bends."""
    return [_tensor_claim(s, lower, higher, q) for q in places_of(s, most)]


def _tensor_claim(s: Subject, lower: str, higher: str, q: np.ndarray, directions: np.ndarray | None = None) -> Claim:
    assert s.frame is not None
    widths = widths_at(s, q)
    unit = 1.0 / widths
    if lower != "grad":
        unit = np.maximum(np.outer(unit, unit), 1e-300)
        if lower == "metric":
            diagonal = np.sqrt(np.abs(np.diag(s.at("metric")(q))))
            unit = np.maximum(np.outer(diagonal, diagonal), unit)
    rng = np.random.default_rng([s.seed, 3])
    u = s.directions(rng) if directions is None else directions
    starts = np.where(np.count_nonzero(u, axis=1) == 1, np.abs(u) @ widths, 0.1)
    return claim_at(
        s.at(lower),
        s.at(higher),
        q,
        u,
        starts,
        unit=unit,
        epsilon=s.epsilon(lower),
        claim_epsilon=s.epsilon(higher),
        growth=4.0,
    )


def _tensor_case(s: Subject, lower: str, higher: str, claim: Claim, index: tuple[int, ...]) -> str:
    u = claim.directions[index[-1]]
    if np.count_nonzero(u) != 1:
        return f"{s.call(higher, claim.q)} @ np.array({text_of(u)})"

    def entry(q):
        return _tensor_claim(s, lower, higher, q, u[None])

    q = simplest(claim.q, lambda q: s.good(q) and bool(entry(q).excess()[index[:-1]][0] > 1), most=25)
    final, k = entry(q), int(np.argmax(np.abs(u)))
    at = ", ".join(map(str, (*index[:-1], k)))
    said, truth = final.value[index[:-1]][0], final.truth[index[:-1]][0]
    return f"{s.call(higher, q)}[{at}]  # {said:.9g}; differences of {s.names[lower]}: {truth:.9g}"


def _hessian(s: Subject) -> Row:
    s.need("hess")
    if "grad" in s.functions and "gradient" not in s.failed:
        return _above(s, "hessian", "grad", "hess")
    return _hessian_of_logp(s)


def _hessian_of_logp(s: Subject) -> Row:
    """Against second differences of logp itself, along the coordinates and in pairs of them."""
    number, tolerance, case, places = 0.0, np.inf, "", places_of(s, 5)
    for q in places:
        widths, said = widths_at(s, q), s.strictly("hess", q)
        noise = noise_along(s.at("logp"), q, widths * s.smooth / np.sqrt(len(q)), s.epsilon("logp"), 1.0)
        unit = np.eye(len(q)) * widths
        pairs = [(i, j) for i in np.flatnonzero(s.smooth) for j in np.flatnonzero(s.smooth[: i + 1])]
        for i, j in pairs if len(pairs) <= 100 else [pairs[n] for n in s.rng.choice(len(pairs), 100, replace=False)]:
            u = unit[i] + unit[j] if i != j else unit[i]
            truth, error = second_along(s.at("logp"), q, u, width_along(s.at("logp"), q, u, start=0.5), noise)
            bound = error + 1e-5 * max(abs(float(truth)), 1.0)
            if error > 0.1 * max(abs(float(truth)), 1.0):
                continue
            off = abs(u @ said @ u - truth)
            if not off / bound <= number:
                number, tolerance = float(off / bound), 1.0
                case = f"{s.call('hess', q)}[{i}, {j}]  # u'Hu is {u @ said @ u:.9g}, second differences of logp {truth:.9g}"
    if tolerance == np.inf and number == 0.0:
        tolerance = 1.0
    return judged(
        "hessian",
        number,
        tolerance,
        "second differences of logp, in units of their error",
        severity=INEFFICIENT,
        case=case,
    )


def _above(s: Subject, name: str, lower: str, higher: str) -> Row:
    """A tensor against the differences of the one below it."""
    if lower not in s.functions and higher in s.functions:
        raise NotApplicable(f"no {lower} was given to compare it with")
    s.need(higher, lower)
    severity = INEFFICIENT if higher == "hess" else WRONG_LAW
    found = _tensor_claims(s, lower, higher)
    s.claims[name] = found
    return row_of(name, found, severity, lambda c, i: _tensor_case(s, lower, higher, c, i))


def _symmetric(s: Subject, name: str, key: str, severity: str) -> Row:
    """Derivatives of one function do not depend on the order of their indices."""
    s.need(key)
    number, case = 0.0, ""
    for q in places_of(s, 8):
        widths, T = widths_at(s, q), s.strictly(key, q)
        scaled = T
        for axis in range(T.ndim):
            scaled = scaled * widths.reshape([-1 if a == axis else 1 for a in range(T.ndim)])
        noise = noise_along(s.at(key), q, widths * s.smooth / np.sqrt(len(q)), s.epsilon(key))
        weight = np.abs(scaled).max(initial=1.0) / np.maximum(np.abs(T).max(initial=0.0), 1e-300)
        allowed = 64 * s.epsilon(key) * np.abs(scaled).max(initial=1.0)
        if np.isfinite(noise).all():
            allowed += 64 * float(noise.max(initial=0.0)) * weight
        for order in [(1, 0)] if T.ndim == 2 else [(1, 0, 2), (0, 2, 1)]:
            off = float(np.abs(scaled - np.transpose(scaled, order)).max(initial=0.0))
            if not off / allowed <= number:
                number = off / allowed
                gap = np.abs(scaled - np.transpose(scaled, order))
                at = tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), T.shape))
                other = tuple(at[order.index(a)] for a in range(T.ndim))
                case = f"T = {s.call(key, q)}; T[{at}], T[{other}]  # {T[at]:.9g}, {T[other]:.9g}"
    return judged(name, number, 1.0, "in units of rounding and measured noise", severity=severity, case=case)


def _trace(s: Subject, name: str, tensor: str, lower: str) -> Row:
    """sum_ij M[i, j] T[i, j, k] against the tensor, or against differences of sum_ij M[i, j] lower[i, j]."""
    key = {"third": "trace", "metric_derivative": "metric_trace"}[tensor]
    s.need(key)
    if lower not in s.functions:
        raise NotApplicable(f"no {lower} was given to compare it with")
    assert s.dim is not None
    assert s.frame is not None
    rng = np.random.default_rng([s.seed, 4])
    found = []
    for q in places_of(s, 5):
        widths = widths_at(s, q)
        M = rng.standard_normal((s.dim, s.dim))
        M = (M + M.T) * np.outer(widths, widths)  # symmetric: that is what it is used for
        value, contract = s.at(lower), s.functions[key]

        def contracted(x, value=value, M=M):
            return np.einsum("ij,ij->", M, value(x))

        def claimed(x, contract=contract, M=M):
            return contract.vector((len(x),), x, M)

        u = s.directions(rng)
        starts = np.where(np.count_nonzero(u, axis=1) == 1, np.abs(u) @ widths, 0.1)
        size = float(np.abs(M * value(q)).sum())
        found.append(
            claim_at(
                contracted,
                claimed,
                q,
                u,
                starts,
                unit=max(size, 1.0),
                epsilon=s.epsilon(lower),
                claim_epsilon=contract.epsilon,
                least=size,
                growth=4.0,
            )
        )
    return row_of(name, found, WRONG_LAW, lambda c, i: f"{s.names[key]}(np.array({text_of(c.q)}), M)")


def _metric(s: Subject) -> Row:
    """Symmetric, positive definite at the places; :func:`refhmc.check.metric` looks closer."""
    s.need("metric")
    worst, case = np.inf, ""
    for q in places_of(s, 20):
        G = s.strictly("metric", q)
        if not np.isfinite(G).all():
            return Row("metric", FAIL, basis="not finite", severity=WRONG_LAW, case=s.call("metric", q))
        rounding = 64 * s.epsilon("metric") * len(q)
        root = np.sqrt(np.abs(np.diag(G))) + 1e-300
        scaled = G / np.outer(root, root)
        if np.abs(scaled - scaled.T).max() > rounding * max(1.0, np.abs(scaled).max()):
            return Row(
                "metric",
                FAIL,
                float(np.abs(scaled - scaled.T).max()),
                rounding,
                "not symmetric",
                WRONG_LAW,
                s.call("metric", q),
            )
        least = float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[0])
        if least < worst:
            worst, case = least, s.call("metric", q)
    rounding = 64 * s.epsilon("metric") * (s.dim or 1)
    if abs(worst) <= rounding:
        raise Undecided(f"singular to rounding at {case}")
    basis = "least eigenvalue with a unit diagonal; 64 units of rounding times d"
    return judged("metric", worst, rounding, basis, relation=">", severity=WRONG_LAW, case=case)


# ----------------------------------------------------------------------------------------------------------- diagnosis


def _diagnose(s: Subject, rows: dict[str, Row]) -> list[str]:
    failed = {name for name, row in rows.items() if row.status == FAIL and row.severity != MISCONDUCT}
    said = []
    ordinary = [c for n in ("gradient", "gradient at asymmetric points") for c in s.claims.get(n, ())]
    every = [*ordinary, *s.claims.get("gradient at large points", ())]
    clip = clipped(every) if failed & {"gradient", "gradient at large points"} else ""
    if clip:
        said.append(clip)
    elif failed & {"gradient", "gradient at asymmetric points"} and ordinary:
        said.append(pattern_of_gradient(ordinary))
    elif "gradient at large points" in failed:
        said.append(pattern_far_out(s.claims["gradient at large points"]))
    if "gradient precision" in failed:
        digits = f"good to {rows['gradient precision'].number:.0e} only, everywhere"
        said.append(f"the gradient is {digits}: a constant or a part in float32, or a difference quotient")
    for name in ("hessian", "third derivative", "metric derivative"):
        if name in failed and name in s.claims:
            text = pattern_of_tensor(s.claims[name])
            said += [f"{name}: {text}"] if text else []
    if "third derivative symmetric" in failed and "third derivative" not in failed:
        said.append("third derivative: its indices do not commute")
    said += sorted(text for text in s.failed if " " in text)
    return [text for text in said if text]
