"""Kernels that keep a momentum from transition to transition: p <- A p + B xi, followed by the move of (q, p).

    refreshment      A M A' + B B' = M, the covariance of p in exp(-H(q, .)); M = 1 if only a log density is given
    volume           |det d(q', p')/d(q, p)| = 1 for the move alone
    acceptance       P = min(1, exp(H(q, p) - H(q', p'))) with the momenta of the move; H is even in p. With several
                     proposals, as with delayed rejection: sum_z pi(z) P(z -> w) = pi(w) over all outcomes of all stages
    momentum flip    an accepted move keeps p's direction and a rejected one reverses it, or the other way round
    stationarity     from q and p of the target, the distribution of both afterwards (``transitions/stationarity.py``)

Horowitz (1991) has A = alpha, B = sqrt(1 - alpha^2) for M = 1. A rejection returns s (A p + B xi), s = 1 or -1, which gives A
and B exactly. Some or all noise may come after the move: the part on which q' does not depend. With that part zero, a
transition returns A_2 p' with A_2 M A_2' = M - B_2 B_2' = a^2 M, so that H(q', p'/a) is the energy after the move. The
direction of a returned momentum is found by starting from there: one of p and -p leads back.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from refhmc.check.examination import rows_of
from refhmc.check.judging import Cases, Measured, failed, passed, worst_of
from refhmc.check.own import differences
from refhmc.check.report import FAIL, PASS, Row, inconclusive
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, OutOfTime, SubjectError, call_text
from refhmc.check.subject.outcomes import FREE, Outcome, answers
from refhmc.check.subject.target import momentum_root
from refhmc.check.subject.transition import MOMENTUM, Transition
from refhmc.check.transitions.balance import on_line
from refhmc.check.transitions.examination import CLEAR, TransitionExamination
from refhmc.check.transitions.stationarity import stationarity_of_both

LATE = 1e-9  # largest dependence of q' on noise that comes after the move
PUSH = 1e-3
SIZES = (1.0, 1.6, 1.0, 2.5)  # of the given momenta
UNLIKELY, MOST_UNLIKELY = 0.1, 6


class Call(NamedTuple):
    """A transition on given ``p`` and noise ``z`` whose proposal can be ``taken`` or ``left``.

    ``by_p`` and ``by_z``: dp/dp and dp/dz of the momentum that a rejection returns. ``late`` (n,): the noise after the move,
    which is zero in ``z``. ``a``: the factor by which that shrinks a momentum, NaN if it is not one number. ``several``: there
    are other proposals, as with delayed rejection.
    """

    q: np.ndarray
    p: np.ndarray
    z: np.ndarray
    taken: Outcome
    left: Outcome
    by_p: np.ndarray
    by_z: np.ndarray
    late: np.ndarray
    a: float
    several: bool = False

    @property
    def before(self) -> np.ndarray:
        """Momentum at the start of the move, up to its sign."""
        return _known(self.left) / self.a

    @property
    def after(self) -> np.ndarray:
        """Momentum at the end of the move, up to its sign."""
        return _known(self.taken) / self.a


def kept_momentum(test: TransitionExamination) -> list[Row]:
    """Return the rows of a kernel that keeps its momentum; stationarity can only PASS if the exact rows do."""
    exact: dict[str, Callable[[TransitionExamination, list[Call]], Row | Cases]] = {
        "acceptance": extended_acceptance,
        "momentum refreshment": refreshment,
        "volume": volume,
        "momentum flip": momentum_flip,
    }
    try:
        calls = _calls(test)
        rows = [in_time(name, functools.partial(row, test, calls)) for name, row in exact.items()]
    except Inconclusive as reason:
        rows = [inconclusive(name, str(reason)) for name in exact]
    wanting = [row.name for row in rows if row.status != PASS]
    return [*rows, in_time("stationarity", functools.partial(stationarity_of_both, test, wanting))]


def in_time(name: str, row: Callable[[], Row | Cases]) -> Row:
    """Return one of several rows, or INCONCLUSIVE if there was no time left for it."""
    try:
        return rows_of(name, row)[0]
    except OutOfTime:
        return inconclusive(name, "there was no time left for it")


def _calls(test: TransitionExamination) -> list[Call]:
    """Return calls with both outcomes at up to ``n_points`` points; rejections, which are needed, may be rare.

    If a rejection takes several decisions, there may be several proposals, of which some can rarely be accepted. Further points
    are then tried until half of ``n_points`` have several.
    """
    found: list[list[Call]] = []
    for k in range(8 * test.n_points):
        if len(found) >= test.n_points and 2 * sum(map(_complete, found)) >= test.n_points:
            break
        new = _call(test, k, SIZES[k % len(SIZES)])
        if new and (len(found) < test.n_points or _complete(new)):
            found.append(new)
    if len(found) < CLEAR:
        raise Inconclusive(f"the proposal could be both accepted and rejected at {len(found)} points only")
    return [x for at_a_point in found for x in at_a_point]


def _complete(calls: list[Call]) -> bool:
    """Return whether the calls at a point have several proposals, if a rejection there takes several decisions."""
    return calls[0].several or sum(step.key != FREE for step in calls[0].left.path) < 2


def _unlikely_calls(test: TransitionExamination) -> list[Call]:
    """Return calls on larger and larger momenta with improbable moves, where a lower bound of a rule shows."""
    found: list[Call] = []
    for k, size in itertools.product(range(6), np.geomspace(1.5, 10.0, 9)):
        if len(found) < MOST_UNLIKELY:
            # Far out the kernel may raise, and energies may be too rough for their decisions to be known.
            with contextlib.suppress(SubjectError, Inconclusive):
                found += [x for x in _call(test, 1000 + k, size) if x.taken.probability < UNLIKELY]
    return found


def _call(test: TransitionExamination, key: int, size: float) -> list[Call]:
    """Return the calls on a momentum of this size, one per proposal; none if it is always accepted, or never."""
    q, rng = test.points[key % len(test.points)], test.rng(9, key)
    p, z = size * rng.standard_normal(len(q)), rng.standard_normal(8 * len(q))
    first = _one_call(test, q, p, z, 0)
    if first is None or not first.several:
        return [] if first is None else [first]
    others = itertools.takewhile(lambda x: x is not None, (_one_call(test, q, p, z, k) for k in itertools.count(1)))
    return [first, *(x for x in others if x is not None)]


def _one_call(test: TransitionExamination, q: np.ndarray, p: np.ndarray, z: np.ndarray, which: int) -> Call | None:
    """Return the call whose accepted proposal is number ``which`` of those that can be accepted; None if there is none."""
    for _ in range(2):  # again once the late noise is known
        found = _two_ways(test, q, p, z, which)
        if found is None:
            return None
        taken, left, several = found
        z = z[: max(len(outcome.transition.numbers("normal")) for outcome in (taken, left))]
        pushed = [np.abs(_ended(test, q, p, z + e, taken).q - taken.transition.q).max() for e in PUSH * np.eye(len(z))]
        late = np.array(pushed) <= LATE * (1 + float(np.abs(taken.transition.q).max()))
        z = np.where(late, 0.0, z)
    by_p = [(_returned(_ended(test, q, p + e, z, left)) - _known(left)) / PUSH for e in PUSH * np.eye(len(p))]
    by_z = [(_returned(_ended(test, q, p, z + e, left)) - _known(left)) / PUSH for e in PUSH * np.eye(len(z))]
    A, B = np.stack(by_p, axis=-1), np.stack(by_z, axis=-1) if by_z else np.zeros((len(p), 0))
    return Call(q, p, z, taken, left, A, B, late, _shrinking(test, q, B[:, late]), several)


def _shrinking(test: TransitionExamination, q: np.ndarray, B: np.ndarray) -> float:
    """Return a in M - B B' = a^2 M; NaN if there is none."""
    W = np.linalg.solve(momentum_root(test.target.energy, q), B)
    rest = np.eye(len(q)) - W @ W.T
    square = float(np.trace(rest)) / len(q)
    same = square > 1e-12 and np.abs(rest - square * np.eye(len(q))).max() <= 1e-8
    return math.sqrt(square) if same else math.nan


def _ended(test: TransitionExamination, q: np.ndarray, p: np.ndarray, z: np.ndarray, outcome: Outcome) -> Transition:
    """Return the transition along ``outcome`` with other p and z."""
    assert test.runner is not None
    return test.runner.run(q, {**answers(outcome.path), "normal": list(z)}, test.seed, p)


def _returned(got: Transition) -> np.ndarray:
    """Return the momentum in an answer; NaN without."""
    return np.full(len(got.q), np.nan) if got.p is None else got.p


def refreshment(test: TransitionExamination, calls: list[Call]) -> Row:
    """Check A M A' + B B' = M, from the results of rejections."""
    row = worst_of(_refreshments(test, calls))
    if row.status == FAIL and test.target.energy is None:
        raise Inconclusive("it does not preserve N(0, 1); pass H if that is not the momentum distribution", row.number)
    return row


def _refreshments(test: TransitionExamination, calls: list[Call]) -> Cases:
    for x in calls:
        returned = _known(x.left)
        if not np.abs(returned - x.by_p @ x.p - x.by_z @ x.z).max() <= 1e-7 * (1 + np.abs(returned).max()):
            raise Inconclusive("the momentum that a rejection returns is not linear in p and the normals")
        L = momentum_root(test.target.energy, x.q)
        W = np.hstack([np.linalg.solve(L, x.by_p @ L), np.linalg.solve(L, x.by_z)])
        tolerance = 1e-9 + 1e4 / PUSH * test.kernel.epsilon * (1 + float(np.abs(x.p).max()))
        gap = np.abs(W @ W.T - np.eye(len(L))).max()
        yield Measured(gap, tolerance, call_text(test.kernel.name, [x.q]))
    return "|L^-1 (A M A' + B B') L^-T - 1|, M = L L'; A and B from rejections"


def volume(test: TransitionExamination, calls: list[Call]) -> Cases:
    """Yield log |det d(q', p')/d(q, p)| by q and the noise before the move (by q and p without any), over dp/dnoise."""
    for x in calls:
        early, d = np.flatnonzero(~x.late), len(x.q)
        if len(early) not in (0, d):
            raise Inconclusive(f"the move depends on {len(early)} normals in {d} dimensions")

        def ended(y: np.ndarray, x: Call = x, early: np.ndarray = early, d: int = d) -> np.ndarray:
            p, z = (x.p, x.z.copy()) if len(early) else (y[d:], x.z)
            if len(early):
                z[early] = y[d:]
            got = _ended(test, y[:d], p, z, x.taken)
            return np.concatenate([got.q, _returned(got)])

        start = np.concatenate([x.q, x.z[early] if len(early) else x.p])
        slopes = [differences.ridders(on_line(ended, start, e), 0.05, 6) for e in np.eye(2 * d)]
        J = np.stack([slope.value for slope in slopes], axis=-1)
        own = float(np.linalg.slogdet(x.by_z[:, early] if len(early) else x.by_p)[1])
        sizes = np.linalg.svd(J, compute_uv=False) if np.isfinite(J).all() else np.zeros(1)
        if not math.isfinite(own) or sizes[-1] <= 1e-9 * sizes[0]:
            raise Inconclusive("the derivative of the move cannot be determined")
        tolerance = 1e-7 + 100 * test.delta + 20 * d * max(float(np.max(s.error)) for s in slopes) / float(sizes[-1])
        if tolerance > 0.05:
            raise Inconclusive("the derivative of the move is too inaccurate")
        yield Measured(abs(float(np.log(sizes).sum()) - own), tolerance, call_text(test.kernel.name, [x.q]))
    return "log |det d(q', p')/d(q, p)|, extrapolated differences and their errors"


def extended_acceptance(test: TransitionExamination, calls: list[Call]) -> Row:
    """Check P = min(1, exp(H(q, p) - H(q', p'))) with the momenta of the move, or balance if there are several proposals."""
    test.several = any(x.several for x in calls)
    if not test.several and not all(_complete([x]) for x in calls):
        raise Inconclusive("a rejection takes several decisions, but only one proposal was accepted: pass other points")
    row = worst_of(_balances(test, calls) if test.several else _acceptances(test, [*calls, *_unlikely_calls(test)]))
    if row.status == FAIL and test.target.energy is None:
        raise Inconclusive("it does not leave exp(-H) invariant with the kinetic energy p'p/2; pass H", row.number)
    return row


def _energy(test: TransitionExamination) -> Callable[[np.ndarray, np.ndarray], float]:
    return test.target.energy or (lambda q, p: -test.target.log_pi(q) + 0.5 * p @ p)


def _acceptances(test: TransitionExamination, calls: list[Call]) -> Cases:
    energy = _energy(test)
    for x in calls:
        if x.several:  # on a larger momentum only
            continue
        if math.isnan(x.a):
            raise Inconclusive("the momentum is refreshed after the move, and not by one number in all directions")
        test.decides = True
        before = energy(x.q, x.before)
        r, size = before - energy(x.taken.transition.q, x.after), 1 + abs(before)
        rules = (min(1.0, math.exp(min(r, 0.0))), 1 / (1 + math.exp(min(-r, 700.0))))
        gap = min(abs(x.taken.probability - rule) for rule in rules)
        tolerance = 1e-10 + 256 * test.kernel.epsilon * size + 10 * test.delta * size
        yield Measured(gap, tolerance, call_text(test.kernel.name, [x.q]))
    return f"by bisection, at {len(calls)} points; rounding of H"


def _balances(test: TransitionExamination, calls: list[Call]) -> Cases:
    """Yield |sum_z pi(z) P(z -> w) / pi(w) - 1| over all z from which an outcome leads to w, for moves without refreshment.

    Each w is the start of a call or an end of it. Its z are searched among w, F w, the start and, with either sign of the
    momentum, the ends of the moves from there. If some are missed the sum is too small, so that only sums that are too large
    show that the kernel is wrong.
    """
    energy, found = _energy(test), list[tuple[float, float, Call]]()
    first = [x for k, x in enumerate(calls) if not any(x.p is other.p for other in calls[:k])]
    for x in first:
        if math.isnan(x.a) or abs(np.trace(x.by_p)) < 1e-6:
            raise Inconclusive(
                "there are several proposals, and the momentum is not refreshed by one number: see check.sampler"
            )
        states = [(x.q, math.copysign(1.0, float(np.trace(x.by_p))) * x.before)]
        moves: dict[int, list[tuple[int, float]]] = {}  # by state: the ends of its outcomes, and their probabilities

        def index(q: np.ndarray, p: np.ndarray, states: list = states) -> int:
            k = next((k for k, z in enumerate(states) if _near((q, p), z)), len(states))
            states += [(q, p)] if k == len(states) else []
            return k

        def ends(k: int, x: Call = x, states: list = states, moves: dict = moves, index: Callable = index) -> list:
            if k not in moves:
                outcomes = _from(test, x, *states[k])
                moves[k] = [(index(o.transition.q, _known(o) / x.a), o.probability) for o in outcomes]
            return moves[k]

        def turned(k: int, states: list = states, index: Callable = index) -> int:
            return index(states[k][0], -states[k][1])

        for w in dict.fromkeys((0, *(k for k, _ in ends(0)))):
            near = {0, turned(0), w, turned(w)}
            sources = near | {j for k in (w, turned(w)) for end, _ in ends(k) for j in (end, turned(end))}
            weights = {k: math.exp(min(energy(*states[w]) - energy(*states[k]), 700.0)) for k in sources}
            flow = math.fsum(weights[k] * chance for k in sources for end, chance in ends(k) if end == w)
            size = (1e-7 + 10 * test.delta) * (1 + abs(energy(*states[w]))) * (1 + sum(weights.values()))
            found.append((flow - 1, size, x))
        test.decides = True
    if max(gap / size for gap, size, _ in found) <= 1 < max(-gap / size for gap, size, _ in found):
        raise Inconclusive("a state is reached too rarely from the states found: others may lead to it")
    for gap, size, x in found:
        yield Measured(abs(gap), size, call_text(test.kernel.name, [x.q, x.p]))
    return f"|sum_z pi(z) P(z -> w) / pi(w) - 1| over all outcomes, {len(found)} states w; rounding of H"


def _from(test: TransitionExamination, x: Call, q: np.ndarray, momentum: np.ndarray) -> list[Outcome]:
    """Return the outcomes from ``q`` with this momentum before the move."""
    early, p, z = np.flatnonzero(~x.late), momentum, x.z.copy()
    if len(early):  # a rejection gives s a p, s = sign(alpha), linear in p and z
        p = x.p
        wanted = math.copysign(x.a, float(np.trace(x.by_p))) * momentum - _known(x.left)
        z[early] += np.linalg.lstsq(x.by_z[:, early], wanted, rcond=None)[0]
    return _outcomes(test, q, p, z)


def _near(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> bool:
    """Return whether two states are the same, to the accuracy of the linear refreshment."""
    return all(np.abs(u - v).max() <= 1e-7 * (1 + np.abs(v).max()) for u, v in zip(a, b, strict=True))


def _two_ways(
    test: TransitionExamination, q: np.ndarray, p: np.ndarray, z: np.ndarray, which: int = 0
) -> tuple[Outcome, Outcome, bool] | None:
    """Return (accepted, rejected, whether there are other proposals), with proposal number ``which`` accepted.

    Return None if only one of them occurs, or if the answer has no momentum.
    """
    found = _outcomes(test, q, p, z)
    left, taken = next((outcome for outcome in found if not outcome.moved), None), list[Outcome]()
    for outcome in found:
        known = any(np.array_equal(outcome.transition.q, x.transition.q) for x in taken)
        taken += [outcome] if outcome.moved and not known else []
    if len(taken) <= which or left is None or taken[which].transition.p is None or left.transition.p is None:
        return None
    return taken[which], left, len(taken) > 1


def _outcomes(test: TransitionExamination, q: np.ndarray, p: np.ndarray, z: np.ndarray) -> list[Outcome]:
    """Return all outcomes from (q, p) on the normals ``z``."""
    runner, setting = test.need()
    return setting._replace(run=lambda q, script, seed: runner.run(q, script, seed, p)).outcomes(q, z)


def _known(outcome: Outcome) -> np.ndarray:
    assert outcome.transition.p is not None
    return outcome.transition.p


def momentum_flip(test: TransitionExamination, calls: list[Call]) -> Row:
    """Check that accepted moves keep the direction and rejected ones reverse it, or vice versa; see Horowitz (1991)."""
    d = len(test.points[0])
    alphas = [float(np.trace(x.by_p)) / d for x in calls]
    if max(np.abs(alphas)) < 1e-6:
        return passed("the momentum is fully refreshed each time, so that its sign does not matter")
    turning = [(x, a) for x, a in zip(calls, alphas, strict=True) if abs(a) > 1e-6]
    decided = [(math.copysign(1.0, a), way) for x, a in turning if (way := _direction(test, x, a))]
    if len(decided) < CLEAR:
        raise Inconclusive(f"the directions could be determined at {len(decided)} points only")
    wrong = [left == taken for left, taken in decided]
    how = {True: "keeps", False: "reverses"}
    text = (
        f"an accepted move {how[decided[0][1] > 0]} the momentum's direction, a rejection {how[decided[0][0] > 0]} it"
    )
    test.notes.append(text)
    if all(wrong):
        return failed(f"{text}: one of the two must reverse it", call_text(test.kernel.name, [test.points[0]]))
    if any(wrong):
        raise Inconclusive("the directions are inconsistent")
    return passed(text)


def _direction(test: TransitionExamination, x: Call, alpha: float) -> float:
    """Return +1 if the momentum of an accepted move points along the move, -1 if against it, 0 if unknown.

    Start from its end so that the momentum before the move is minus (or plus) the one after it: one of them leads back.
    """
    to, early = x.taken.transition.q, np.flatnonzero(~x.late)
    gaps = []
    for goal in (-x.after, x.after):
        p, z = goal, x.z.copy()
        if len(early):  # a rejection gives s a p, s = sign(alpha), linear in p and z
            p = _known(x.taken)
            wanted = math.copysign(x.a, alpha) * goal - _known(x.left) - x.by_p @ (p - x.p)
            z[early] += np.linalg.lstsq(x.by_z[:, early], wanted, rcond=None)[0]
        gaps.append(np.abs(_ended(test, to, p, z, x.taken).q - x.q).max())
    small = 1e-6 * (1 + np.abs(to - x.q).max())
    return 1.0 if gaps[0] < small < gaps[1] else -1.0 if gaps[1] < small < gaps[0] else 0.0


def returned_momentum(test: TransitionExamination) -> Row | list[Row]:
    """Report which momentum a kern(q, p0=, u=) returns."""
    runner, setting = test.need()
    if runner.keeps_momentum:
        return []  # kept_momentum has the row
    if runner.shape != MOMENTUM:
        raise NotApplicable("the kernel does not keep a momentum")
    for k, q in enumerate(test.points):
        z = test.rng(10, k).standard_normal(len(q))
        p0 = setting.normals(z)
        stay = next((x for x in setting.outcomes(q, z) if not x.moved), None)
        if stay is None or stay.transition.p is None:
            continue
        same, turned = (np.array_equal(stay.transition.p, s * p0) for s in (1, -1))
        text = "p0" if same else "-p0" if turned else "neither p0 nor -p0"
        test.notes.append(f"after a rejection the kernel returns {text} as the momentum")
        return passed(f"returns {text} after a rejection; each call receives a new p0, so that it does not matter")
    raise NotApplicable("the kernel does not return a momentum")
