"""Kernels that keep a unit velocity u from transition to transition, as microcanonical ones do with a persistence.

Let v = R(u, z) be the velocity before the move T, with noise z, and (q', v') = T(q, v). The kernel leaves pi(q) times the
uniform distribution of u invariant if

    on the sphere          |u| = 1 after each transition
    momentum refreshment   R(A u, A z) = A R(u, z) for rotations and reflections A: then R(u, z) is uniform if u is uniform
                           and z standard normal, since no other distribution is the same after every rotation
    reversible             T leads from (q', -v') to (q, -v)
    acceptance             P = min(1, pi(q') J / pi(q)), with the Jacobian J of T on the tangent spaces of the sphere
    momentum flip          an accepted move keeps the velocity's direction and a rejected one reverses it, or the reverse
    stationarity           the distribution of q and u afterwards (``transitions/stationarity.py``)

A rejection returns v or -v. Transitions with any other velocity before the move follow from equivariance: those on A u and A z
have A v. The Jacobian's columns are therefore derivatives along q, and along rotations of u and z that turn v.

Uniforms before the decision, such as those of a jittered length, choose a branch. P is the probability given the branch, and
the branches must have the same probabilities everywhere.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg

from refhmc.check.judging import Cases, Measured, failed, passed
from refhmc.check.own import differences
from refhmc.check.report import PASS, Row, inconclusive
from refhmc.check.subject.foreign import Inconclusive, SubjectError, call_text
from refhmc.check.subject.outcomes import Outcome, answers
from refhmc.check.subject.transition import Transition
from refhmc.check.transitions.examination import CLEAR, TransitionExamination
from refhmc.check.transitions.momentum import in_time
from refhmc.check.transitions.stationarity import stationarity_of_both

ROTATIONS, MOST_TRIES = 4, 40  # of each call, and tries for one that can be both accepted and rejected
PUSH = 1e-6
WIDTH, LEVELS = 0.05, 14  # of differences; far from the mean a move can be a thousand times as sensitive
FAR = np.geomspace(1.5, 30.0, 10)  # factors by which points are moved from their mean, for improbable moves
UNLIKELY, MOST_UNLIKELY = 0.5, 12
OF_EACH_POINT = 6  # number of calls with any probability
COARSE, FAR_ERROR = 0.05, 1e-4  # largest error of a log Jacobian, and of one far out
SAME_SHARE = 1e-9  # of the probabilities of a branch
LIKELY = 0.999  # a proposal that is accepted with a larger probability is not surely rejected nearby


class Call(NamedTuple):
    """A transition from (q, u) on normals z (k, d), whose proposal can be ``taken`` or ``left``, or is always taken.

    ``share`` is the probability of the branch of the two, and ``branch`` the answers that lead to it. ``v`` is the velocity
    before the move up to its sign: that of the rejection, or what equivariance makes of that of another call.
    """

    q: np.ndarray
    u: np.ndarray
    z: np.ndarray
    v: np.ndarray
    taken: Outcome
    left: Outcome | None
    branch: tuple
    share: float

    @property
    def probability(self) -> float:
        """Probability of acceptance, given the branch."""
        return self.taken.probability / self.share

    @property
    def after(self) -> np.ndarray:
        return velocity_of(self.taken.transition)


Check = Callable[[TransitionExamination, list[Call]], Row | Cases]


def velocity_of(transition: Transition) -> np.ndarray:
    """Return the velocity in an answer; Inconclusive without."""
    if transition.p is None:
        raise Inconclusive("the kernel does not return a velocity")
    return transition.p


def kept_velocity(test: TransitionExamination) -> list[Row]:
    """Return the rows of a kernel that keeps a unit velocity; stationarity can only PASS if the exact rows do."""
    first: dict[str, Check] = {"on the sphere": on_the_sphere, "momentum refreshment": refreshment}
    then: dict[str, Check] = {"reversible": reversible, "acceptance": acceptance, "momentum flip": flip}
    try:
        calls = calls_of(test)
        rows = [in_time(name, functools.partial(row, test, calls)) for name, row in first.items()]
        if any(row.status != PASS for row in rows):
            rows += [inconclusive(name, "the velocity before the move is not known") for name in then]
        else:
            rows += [in_time(name, functools.partial(row, test, calls)) for name, row in then.items()]
    except Inconclusive as reason:
        rows = [inconclusive(name, str(reason)) for name in (*first, *then)]
    wanting = [row.name for row in rows if row.status != PASS]
    return [*rows, in_time("stationarity", functools.partial(stationarity_of_both, test, wanting))]


def calls_of(test: TransitionExamination) -> list[Call]:
    """Return the calls at ``n_points`` points at which a proposal can be accepted and rejected."""
    found, points = list[Call](), 0
    for k in range(MOST_TRIES * test.n_points):
        q, rng = test.points[k % len(test.points)], test.rng(31, k)
        new = calls_at(test, q, unit(rng.standard_normal(len(q))), rng.standard_normal((8, len(q))))
        found, points = found + new, points + bool(new)
        if points >= test.n_points:
            break
    if points < min(CLEAR, test.n_points):
        raise Inconclusive(f"a proposal could be both accepted and rejected at {points} points only")
    shares: dict[tuple, float] = {}
    if any(abs(shares.setdefault(x.branch, x.share) - x.share) > SAME_SHARE for x in found):
        raise Inconclusive("uniforms before the decision have other probabilities at other points: see check.sampler")
    return found


def unlikely_calls(test: TransitionExamination, calls: list[Call]) -> Iterator[Call]:
    """Yield calls with improbable moves, where a lower bound of a rule shows: the reverse of moves from far away."""
    centre = test.points.mean(axis=0)
    for x, far, sign in itertools.product(calls[:MOST_UNLIKELY], FAR, (1.0, -1.0)):
        # Far out the kernel may raise, and energies may be too rough for their decisions to be known.
        with contextlib.suppress(SubjectError, Inconclusive):
            end = gone(test, x, x.taken, centre + far * (x.q - centre), np.eye(len(x.q)))
            A = reflection(x.v, sign * velocity_of(end))
            if np.array_equal(gone(test, x, at_most_sometimes(x.taken), end.q, A).q, end.q):
                yield from (y for y in calls_at(test, end.q, A @ x.u, x.z @ A.T) if y.probability < UNLIKELY)


def at_most_sometimes(outcome: Outcome) -> Outcome:
    """Return an accepted outcome with the number ``UNLIKELY`` for its decision."""
    *before, last = outcome.path
    answer = {"uniform": UNLIKELY, "exponential": -math.log(UNLIKELY)}.get(last.kind, last.answer)
    return outcome._replace(path=(*before, last._replace(answer=answer)))


def likely_calls(test: TransitionExamination, calls: list[Call]) -> Iterator[Call]:
    """Yield calls at all points with any probability, also 1; a rule may accept too much where it never rejects."""
    for k in range(OF_EACH_POINT * len(test.points)):
        q, x = test.points[k % len(test.points)], calls[k % len(calls)]
        A = next(rotations(test, 100 + k, len(q)))
        with contextlib.suppress(SubjectError):
            yield from calls_at(test, q, A @ x.u, x.z @ A.T, A @ x.v)


def calls_at(
    test: TransitionExamination, q: np.ndarray, u: np.ndarray, normals: np.ndarray, v: np.ndarray | None = None
) -> list[Call]:
    """Return the calls from (q, u) on the first of the normals (k, d), at most one of each branch.

    Proposals that are always, or almost always, accepted are among them only if the velocity before the move is known: ``v``.
    """
    (runner, setting), d = test.need(), len(q)
    if not math.isfinite(test.target.log_pi(q)):
        return []
    run = setting._replace(run=lambda q, script, seed: runner.run(q, script, seed, u))
    branches: dict[tuple, list[Outcome]] = {}
    for outcome in run.outcomes(q, normals.ravel()):
        branches.setdefault(tuple(step[:2] for step in outcome.path[:-1]), []).append(outcome)
    found = []
    for branch, both in branches.items():
        taken, left = ([x for x in both if x.moved is way] for way in (True, False))
        share = sum(x.probability for x in both)
        if len(taken) != 1 or len(left) > 1:
            continue
        used = len(taken[0].transition.numbers("normal"))
        if used % d:
            raise Inconclusive(f"the kernel draws {used} normals in {d} dimensions, which no rotation changes")
        rejected = bool(left) and taken[0].probability < LIKELY * share
        if rejected or v is not None:
            before = velocity_of(left[0].transition) if rejected else v
            assert before is not None
            z = normals[: used // d]
            found.append(Call(q, u, z, before, taken[0], left[0] if rejected else None, branch, share))
            require_no_late_noise(test, found[-1])
    return found


def require_no_late_noise(test: TransitionExamination, x: Call) -> None:
    """Raise Inconclusive if the proposal does not depend on some of the normals: a rejection then returns another velocity."""
    assert test.runner is not None
    z, script = x.z.ravel(), answers(x.taken.path)
    for k in range(z.size):
        pushed = test.runner.run(x.q, {**script, "normal": list(z + 1e-3 * (np.arange(z.size) == k))}, test.seed, x.u)
        if np.array_equal(pushed.q, x.taken.transition.q):
            raise Inconclusive(
                "the velocity is refreshed after the move, and is not known at its start: see check.sampler"
            )


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x)


def gone(test: TransitionExamination, x: Call, outcome: Outcome, q: np.ndarray, A: np.ndarray) -> Transition:
    """Return the transition along ``outcome`` from q, with A u and A z, and therefore A v."""
    assert test.runner is not None
    script = {**answers(outcome.path), "normal": list((x.z @ A.T).ravel())}
    return test.runner.run(q, script, test.seed, A @ x.u)


def exactness(test: TransitionExamination, size: float) -> float:
    """Return the error that rounding, and a solver, may leave in a number of this size."""
    return (1e3 * test.kernel.epsilon + 10 * test.delta) * (1 + size)


def on_the_sphere(test: TransitionExamination, calls: list[Call]) -> Cases:
    """Yield | |u| - 1 | of the velocities after acceptances and rejections."""
    for x in calls:
        for u in (x.v, x.after):
            yield Measured(abs(float(np.linalg.norm(u)) - 1), exactness(test, 0.0), text_of(test, x))
    return f"| |u| - 1 | after {2 * len(calls)} transitions; rounding"


def text_of(test: TransitionExamination, x: Call) -> str:
    return call_text(test.kernel.name, [x.q, x.u])


def refreshment(test: TransitionExamination, calls: list[Call]) -> Row | Cases:
    """Check R(A u, A z) = A R(u, z) on rejections; without it the row is Inconclusive, since R may still be right."""
    gaps, tolerance = [], exactness(test, 1.0)
    for k, x in enumerate(calls):
        found: list[float] = []
        for A in itertools.islice(rotations(test, k, len(x.q)), MOST_TRIES):
            assert x.left is not None
            turned = gone(test, x, x.left, x.q, A)
            if np.abs(turned.q - x.q).max() <= exactness(test, float(np.abs(x.q).max())):
                found.append(float(np.abs(velocity_of(turned) - A @ x.v).max()))
            if len(found) == ROTATIONS:
                break
        gaps += found
    if len(gaps) < min(CLEAR, len(calls)):
        raise Inconclusive(f"only {len(gaps)} calls on turned velocities were rejected")
    if max(gaps) > tolerance:
        raise Inconclusive(
            "rotations of the velocity and of the normals do not rotate the new velocity, so that its distribution is left "
            "to stationarity",
            max(gaps),
        )
    return passed(f"|R(A u, A z) - A R(u, z)| for {len(gaps)} rotations and reflections", max(gaps), tolerance)


def rotations(test: TransitionExamination, key: int, d: int) -> Iterator[np.ndarray]:
    """Yield uniformly distributed orthogonal matrices (d, d), whose determinants have either sign."""
    rng = test.rng(32, key)
    while True:
        Q, R = np.linalg.qr(rng.standard_normal((d, d)))
        yield Q * np.sign(np.diagonal(R))


def reversible(test: TransitionExamination, calls: list[Call]) -> Cases:
    """Yield the distance by which the move back from (q', -v') misses q, and -v up to its sign."""
    yield from (misses(test, x) for x in calls)
    return f"distance from the start after the move back, {len(calls)} moves; 1e-6 of the move"


def misses(test: TransitionExamination, x: Call) -> Measured:
    """Return the distance by which the move back misses the start."""
    gap, size = min(returns(test, x, sign) for sign in (1.0, -1.0)), float(np.abs(x.taken.transition.q - x.q).max())
    return Measured(gap, 1e-6 * (1 + size) + 100 * test.delta, text_of(test, x))


def returns(test: TransitionExamination, x: Call, sign: float) -> float:
    """Return the distance from (q, v) or (q, -v) at which the move from (q', sign u') ends."""
    back = gone(test, x, x.taken, x.taken.transition.q, reflection(x.v, sign * x.after))
    u = velocity_of(back)
    return float(np.abs(back.q - x.q).max() + min(np.abs(u - x.v).max(), np.abs(u + x.v).max()))


def reflection(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the reflection that takes the unit vector a to b."""
    w = a - b
    size = float(w @ w)
    return np.eye(len(a)) - (2 / size * np.outer(w, w) if size > 0 else 0.0)


def acceptance(test: TransitionExamination, calls: list[Call]) -> Cases:
    """Yield |P - min(1, e^r)|, r = log pi(q') - log pi(q) + log J, or the same for Barker's rule."""
    test.decides = True
    measured = [(x, *volume(test, x)) for x in (*calls, *likely_calls(test, calls))]
    usual = len(measured)
    for x in unlikely_calls(test, calls):
        with contextlib.suppress(SubjectError, Inconclusive):
            measured.append((x, *volume_both_ways(test, x)))
        if len(measured) >= usual + MOST_UNLIKELY:
            break
    for x, log_jacobian, error in measured:
        before, after = test.target.log_pi(x.q), test.target.log_pi(x.taken.transition.q)
        error *= 1 + max(abs(before), abs(after))
        low, high = (after - before + log_jacobian + sign * error for sign in (-1, 1))
        gaps = [(abs(x.probability - 0.5 * (f(low) + f(high))), 0.5 * (f(high) - f(low))) for f in (metropolis, barker)]
        gap, allowed = min(gaps, key=lambda pair: pair[0] - pair[1])
        yield Measured(gap, allowed + 1e-10 + 1e-15 / x.share, text_of(test, x))
    return f"by bisection, {len(measured)} moves, with the Jacobian on the sphere by differences; their errors"


def metropolis(r: float) -> float:
    return math.exp(min(r, 0.0))


def barker(r: float) -> float:
    return 1 / (1 + math.exp(min(-r, 700.0)))


def volume(test: TransitionExamination, x: Call) -> tuple[float, float]:
    """Return log J of the move, and its error."""
    d, across = len(x.q), scipy.linalg.null_space(x.after[None])

    def end(dq: np.ndarray, A: np.ndarray) -> np.ndarray:
        got = gone(test, x, x.taken, x.q + dq, A)
        return np.concatenate([got.q, across.T @ velocity_of(got)])

    def along(e: np.ndarray, t: float) -> np.ndarray:
        return end(t * e, np.eye(d))

    def turned(e: np.ndarray, t: float) -> np.ndarray:
        return end(np.zeros(d), turn(x.v, e, t))

    paths = [functools.partial(along, e) for e in np.eye(d)]
    paths += [functools.partial(turned, e) for e in scipy.linalg.null_space(x.v[None]).T]
    slopes = [differences.ridders(path, WIDTH, LEVELS) for path in paths]
    J = np.stack([np.broadcast_to(slope.value, 2 * d - 1) for slope in slopes], axis=-1)
    sizes = np.linalg.svd(J, compute_uv=False) if np.isfinite(J).all() else np.zeros(1)
    if sizes[-1] <= 1e-9 * sizes[0]:
        raise Inconclusive("the derivative of the move cannot be determined: pass other points")
    condition = float(sizes[0] / sizes[-1])  # also that of rounding in the move
    error = 1e-9 + exactness(test, condition) + 20 * d * max(float(np.max(s.error)) for s in slopes) / float(sizes[-1])
    if error > COARSE:
        raise Inconclusive("the derivative of the move is too inaccurate")
    return float(np.log(sizes).sum()), error


def volume_both_ways(test: TransitionExamination, x: Call) -> tuple[float, float]:
    """Return log J of a move from far away, and its error; Inconclusive unless the move back has the inverse Jacobian.

    Far out, a turn may depend so strongly on the velocity that no difference resolves it, and rounding may make a correct move
    irreversible.
    """
    if misses(test, x).ratio > 1:
        raise Inconclusive("rounding makes the move irreversible")
    sign = min((1.0, -1.0), key=lambda sign: returns(test, x, sign))
    q, A = x.taken.transition.q, reflection(x.v, sign * x.after)
    taken = x.taken._replace(transition=gone(test, x, x.taken, q, A))
    back_from = Call(q, A @ x.u, x.z @ A.T, sign * x.after, taken, None, x.branch, x.share)
    there, back = volume(test, x), volume(test, back_from)
    error = there[1] + back[1]
    if not abs(there[0] + back[0]) <= error <= FAR_ERROR:
        raise Inconclusive("the derivative of the move is too inaccurate")
    return there[0], error


def turn(v: np.ndarray, e: np.ndarray, t: float) -> np.ndarray:
    """Return the rotation that takes v to v cos t + e sin t, for orthonormal v and e."""
    plane = np.outer(e, v) - np.outer(v, e)
    return np.eye(len(v)) + math.sin(t) * plane + (1 - math.cos(t)) * plane @ plane


def flip(test: TransitionExamination, calls: list[Call]) -> Row:
    """Check that accepted moves keep the direction and rejected ones reverse it, or vice versa.

    Let a rejection return s v and an acceptance t v', with signs s and t. The move back needs the velocity -v' before it. This
    is A v if A turns s v to -s t times the velocity t v', so that the sign with which the move leads back is -s t.
    """
    decided = []
    for x in calls:
        slope, gaps = own_part(test, x), {sign: returns(test, x, sign) for sign in (1.0, -1.0)}
        small = misses(test, x).allowed
        if abs(slope) <= 1e-6:
            return passed("the velocity is fully refreshed each time, so that its sign does not matter")
        if min(gaps.values()) < small < max(gaps.values()):
            left = math.copysign(1.0, slope)
            decided.append((left, -left * min(gaps, key=gaps.__getitem__)))
    if len(decided) < min(CLEAR, len(calls)):
        raise Inconclusive(f"the directions could be determined in {len(decided)} moves only")
    how = {1.0: "keeps", -1.0: "reverses"}
    left, taken = decided[0]
    text = f"an accepted move {how[taken]} the velocity's direction, a rejection {how[left]} it"
    test.notes.append(text)
    if all(left == taken for left, taken in decided):
        return failed(f"{text}: one of the two must reverse it", text_of(test, calls[0]))
    if any(left == taken for left, taken in decided):
        raise Inconclusive("the directions are inconsistent")
    return passed(text)


def own_part(test: TransitionExamination, x: Call) -> float:
    """Return the trace of the derivative by u of the velocity after a rejection: its sign is s, and it is 0 if v is all new."""
    assert test.runner is not None
    assert x.left is not None
    total, script = 0.0, {**answers(x.left.path), "normal": list(x.z.ravel())}
    for e in scipy.linalg.null_space(x.u[None]).T:
        ends = [velocity_of(test.runner.run(x.q, script, test.seed, x.u + sign * PUSH * e)) for sign in (1.0, -1.0)]
        total += float(e @ (ends[0] - ends[1])) / (2 * PUSH)
    return total
