"""Rows of ``check.batch`` for steps on arrays, and for kernels whose random numbers can be recorded.

For a step on arrays (chains, d), or a kernel that draws for all chains from one source,

    alone equals batch        chain k of the batch equals the chain alone, up to rounding of sums in another order
    order of chains           permuted chains give permuted answers
    divergent neighbour       a chain at NaN, inf or 1e150 does not change any other chain
    streams independent       chains from one point move to different ones; no two of them share noise
    decisions independent     no two chains always make equal decisions
    numbers scale             the number of random numbers grows with the number of chains

A kernel is compared on recorded numbers: "alone", the chain receives its own numbers of the batch, which are
found by changing one number at a time and observing which chains move.

Noise: each number is changed by a small amount, the root of the rounding tolerance, and the chains that move a little
share it. (Larger changes would change decisions, and with these the count of random numbers, so that others reach
other chains.) Sharing may be right, for a common step size. It is shared noise if one of these chains has fewer numbers of its
own than coordinates that it moved; for uniforms, only if more than two are shared, those of a step and a length.

Decisions: from one point, c chains are run n times. If each accepts with a frequency between 1/20 and 19/20, and two of
them decided equally every time, the probability for independent decisions is at most prod_i max(a_i, 1 - a_i), a_i
the chain's own frequency. Times the number of pairs, that is the probability of a false FAIL, which must be below 1e-9.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.examination import Examination, Rows
from refhmc.check.judging import Cases, Measured, causes, failed, passed
from refhmc.check.report import FAIL, Row
from refhmc.check.subject.answers import read_phase_point, read_position
from refhmc.check.subject.draws import Draws, Question, script_of
from refhmc.check.subject.foreign import Foreign, Inconclusive, NotApplicable, SubjectError, call_text
from refhmc.check.subject.shapes import CallShape, first_working, required
from refhmc.check.subject.transition import DRAWS, GENERATOR

FALSE_ALARM = 1e-9
TRIED = (3, 2, 4, 5, 1)  # dimensions, if none is given
ROUNDINGS = 256
ENDS = (1e-12, 1 - 1e-12)  # uniforms that decide
CALLS = 60
SHARED_TRIES = 200
STARTS = 20  # starting points of chains
COMMON = 2  # uniforms that all chains may share: for a step and a length
STEP = CallShape(("q", "p", "eps", "n"))
DRAWN, GENERATED = CallShape(("draws", "q")), CallShape(("draws", "q"), generator=True)


class BatchExamination(Examination):
    """One batched step or kernel under examination, and its signature."""

    def __init__(
        self,
        subject: Foreign,
        dim: int | None,
        chains: int,
        eps: float,
        n: int,
        points: Any,
        rounding: float | None,
        seed: int,
    ) -> None:
        super().__init__(subject.name, (subject,), seed)
        self.subject, self.eps, self.n = subject, eps, n
        self.given = None if points is None else np.asarray(points, dtype=float)
        self.chains = chains if self.given is None else len(self.given)
        self.dim = dim if self.given is None else self.given.shape[1]
        self.rounding = rounding
        self.call: CallShape | None = None  # unknown at first
        self.owners: list[tuple[str, int, tuple[int, ...]]] | None = None

    @property
    def is_step(self) -> bool:
        """Whether it is a step instead of a kernel."""
        return self.call == STEP

    def states(self, key: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([self.seed, key])
        q, p = 0.7 * rng.standard_normal((2, self.chains, self.dim or 1))
        return (q if self.given is None else self.given.copy()), p

    def tolerance(self, value: np.ndarray) -> float:
        unit = ROUNDINGS * self.subject.epsilon if self.rounding is None else self.rounding
        finite = np.abs(value[np.isfinite(value)])
        return float(unit * (1 + finite.max(initial=0.0)))

    def need(self, kernel: bool | None = None) -> None:
        if self.call is None:
            raise NotApplicable("it did not answer")
        if kernel is not None and kernel == self.is_step:
            raise NotApplicable("only for kernels" if kernel else "only for steps")

    def step(self, q: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the new positions and momenta, (chains, 2d)."""
        answer = STEP.call(self.subject, q=q, p=p, eps=self.eps, n=self.n)
        return np.hstack(read_phase_point(self.subject, answer, q.shape, [q, p])[:2])

    def kernel(self, q: np.ndarray, draws: Draws) -> np.ndarray:
        assert self.call is not None
        answer = self.call.call(self.subject, draws=draws, q=q)
        return read_position(self.subject, answer, q.shape, [q])[0]

    def ask(self, q: np.ndarray, p: np.ndarray, seed: int) -> tuple[np.ndarray, list]:
        """Return the answer, and the kinds and sizes of its random numbers."""
        if self.is_step:
            return self.step(q, p), []
        draws = Draws(np.random.default_rng(seed))
        return self.kernel(q, draws), _sizes(draws.asked)


def _answers(test: BatchExamination) -> Row:
    """Find out whether it is a step or a kernel, and its dimension; by the number of parameters, then by trying."""
    needed = required(test.subject.function)
    shapes = [STEP] if len(needed) >= 3 else [DRAWN, GENERATED] if len(needed) == 2 else [STEP, DRAWN, GENERATED]

    def works(attempt: tuple[int, CallShape]) -> np.ndarray:
        test.dim, test.call = attempt
        return test.ask(*test.states(0), 0)[0]

    try:
        attempts = itertools.product(TRIED if test.dim is None else (test.dim,), shapes)
        (dim, shape), answer = first_working(attempts, works, test.subject)
    except SubjectError:
        test.call = None
        raise
    called = "step(q, p, eps, n)" if test.is_step else GENERATOR if shape.generator else DRAWS
    test.notes.append(f"called as {called}, batched")
    if not np.isfinite(answer).all():
        return failed("not finite, from finite arguments", _text(test, test.states(0)[0]))
    return passed(f"({test.chains}, {dim})")


def _text(test: BatchExamination, q: np.ndarray) -> str:
    return call_text(test.subject.name, [q])


# ------------------------------------------------------------------------------------------------- numbers of each chain


def _recorded(test: BatchExamination, q: np.ndarray, seed: int) -> tuple[np.ndarray, list[Question]]:
    draws = Draws(np.random.default_rng(seed))
    answer = test.kernel(q, draws)
    if not draws.asked:
        raise NotApplicable("no random number could be recorded")
    return answer, draws.asked


def _owners(test: BatchExamination) -> list[tuple[str, int, tuple[int, ...]]]:
    """Return for each number (kind, place) the chains whose answers it can change, over several starts."""
    if test.owners is not None:
        return test.owners
    moved: dict[tuple[str, int], set[int]] = {}
    for key in range(4):
        q, _ = test.states(key)
        before, asked = _recorded(test, q, key)
        for kind, values in script_of(asked).items():
            if kind not in ("normal", "exponential", "uniform"):
                raise NotApplicable(f"it draws a {kind}, which cannot be assigned to a chain")
            for place, value in enumerate(values):
                for new in {"normal": (value + 1.5, -value), "exponential": (1e-9, 30.0)}.get(kind, ENDS):
                    after = test.kernel(q, Draws(np.random.default_rng(key), script_of(asked, **{kind: (place, new)})))
                    rows = np.flatnonzero(np.any(after != before, axis=1))
                    moved.setdefault((kind, place), set()).update(rows.tolist())
    test.owners = [(kind, place, tuple(sorted(rows))) for (kind, place), rows in moved.items()]
    return test.owners


def _alone(test: BatchExamination) -> Cases:
    test.need()
    if not test.is_step and any(len(rows) > 1 for _, _, rows in _owners(test)):
        raise NotApplicable("a number is shared by several chains (see 'streams independent')")
    for key in range(3):
        q, p = test.states(key)
        if test.is_step:
            together = test.step(q, p)
            singles = np.vstack([test.step(q[k : k + 1], p[k : k + 1]) for k in range(test.chains)])
        else:
            together, asked = _recorded(test, q, key)
            singles = np.vstack([_single(test, q, k, asked, key) for k in range(test.chains)])
        yield Measured(np.abs(together - singles).max(), test.tolerance(together), _text(test, q))
    return f"{ROUNDINGS} units of rounding, for sums in another order"


def _single(test: BatchExamination, q: np.ndarray, k: int, asked: list[Question], key: int) -> np.ndarray:
    """Return chain ``k`` alone, on its own numbers of the batch."""
    flat = script_of(asked)
    mine: dict[str, list] = {}
    for kind, place, rows in _owners(test):
        if k in rows or k == _by_place(test, flat, kind, place, rows):
            mine.setdefault(kind, []).append((place, flat[kind][place]))
    script = {kind: [value for _, value in sorted(items)] for kind, items in mine.items()}
    counts = {kind: len(values) for kind, values in flat.items()}
    if any(len(script.get(kind, [])) * test.chains != count for kind, count in counts.items()):
        raise NotApplicable("the random numbers cannot be assigned to chains")
    return test.kernel(q[k : k + 1], Draws(np.random.default_rng(key), script))


def _by_place(
    test: BatchExamination, flat: dict[str, list], kind: str, place: int, rows: tuple[int, ...]
) -> int | None:
    """Return the chain of a number that changed nothing in any start (a clear decision), by its position."""
    share = len(flat[kind]) // test.chains
    return place // share if share and not rows else None


def _order(test: BatchExamination) -> Cases:
    """Yield the effect of permuted chains, for a kernel with their numbers permuted too."""
    test.need()
    for key in range(3):
        q, p = test.states(key)
        order = np.random.default_rng([test.seed, 50, key]).permutation(test.chains)
        if np.array_equal(order, np.arange(test.chains)):
            order = order[::-1]
        if test.is_step:
            together, permuted = test.step(q, p), test.step(q[order], p[order])
        else:
            together, asked = _recorded(test, q, key)
            script = _permuted(test, script_of(asked), order)
            permuted = test.kernel(q[order], Draws(np.random.default_rng(key), script))
        yield Measured(np.abs(together[order] - permuted).max(), test.tolerance(together), _text(test, q))
    return f"{ROUNDINGS} units of rounding"


def _permuted(test: BatchExamination, flat: dict[str, list], order: np.ndarray) -> dict[str, list]:
    """Return the numbers, each at the place of its chain after the permutation."""
    places: dict[tuple[str, int], list[int]] = {}
    for kind, place, rows in _owners(test):
        chain = rows[0] if len(rows) == 1 else _by_place(test, flat, kind, place, rows)
        if chain is None or place >= len(flat[kind]):
            raise NotApplicable("the random numbers cannot be assigned to chains")
        places.setdefault((kind, chain), []).append(place)
    script = {kind: list(values) for kind, values in flat.items()}
    for kind in flat:
        mine = [sorted(places.get((kind, k), [])) for k in range(test.chains)]
        if len({len(x) for x in mine}) != 1:
            raise NotApplicable("the random numbers cannot be assigned to chains")
        for new, old in enumerate(order):
            for to, source in zip(mine[new], mine[old], strict=True):
                script[kind][to] = flat[kind][source]
    return script


def _neighbour(test: BatchExamination) -> Cases:
    """Yield the effect of one chain that is not finite on the others."""
    test.need()
    refused, tried = "", 0
    for key, bad in enumerate((np.nan, np.inf, 1e150, -1e8)):
        q, p = test.states(key)
        with np.errstate(all="ignore"):
            healthy, numbers = test.ask(q, p, key)
            try:
                at = key % test.chains
                got, used = test.ask(_with(q, at, bad), p, key)
                if used != numbers:
                    # It drew fewer numbers there, which shifts those of later chains: try again in the last place.
                    at = test.chains - 1
                    got, _ = test.ask(_with(q, at, bad), p, key)
            except SubjectError as wrong:
                refused = str(wrong)
                continue
        tried += 1
        gap = np.abs(got - healthy)[np.arange(test.chains) != at]
        yield Measured(np.max(gap, initial=0.0), test.tolerance(healthy), _text(test, _with(q, at, bad)))
    if not tried:
        raise Inconclusive(f"it stops: {refused}")
    if refused:
        test.notes.append(f"divergent neighbour: {refused}")
    return f"change of the other chains; {tried} kinds of bad values"


def _with(q: np.ndarray, at: int, bad: float) -> np.ndarray:
    spoilt = q.copy()
    spoilt[at] = bad
    return spoilt


def _numbers(test: BatchExamination) -> Row:
    """Check that twice the chains draw twice the numbers."""
    test.need(kernel=True)
    q, _ = test.states(0)
    counts = []
    for rows in (q, np.vstack([q, q])):
        _, asked = _recorded(test, rows, 0)
        counts.append({kind: len(values) for kind, values in script_of(asked).items()})
    short = [kind for kind in counts[0] if counts[1].get(kind, 0) < 2 * counts[0][kind] and kind != "permutation"]
    text = "; ".join(
        f"{counts[0][kind]} {kind}s for {test.chains} chains, {counts[1].get(kind, 0)} for twice as many"
        for kind in counts[0]
    )
    if short:
        raise Inconclusive(f"{text}: some are shared (which is right for a common step size)")
    return passed(text)


def _streams(test: BatchExamination) -> Row:
    """Check that equal starts lead to different points, and that no chain has another one's noise."""
    test.need(kernel=True)
    shared = _shared_noise(test)
    if isinstance(shared, Row):
        return shared
    equal = np.zeros((test.chains, test.chains), dtype=int)
    both = np.zeros_like(equal)
    for key in range(20):
        q, _ = test.states(key)
        q[:] = q[0]
        got = test.kernel(q, Draws(np.random.default_rng([test.seed, key])))
        moved = np.any(got != q, axis=1)
        for i, j in itertools.combinations(range(test.chains), 2):
            both[i, j] += moved[i] and moved[j]
            equal[i, j] += moved[i] and moved[j] and np.array_equal(got[i], got[j])
    if both.max() == 0:
        raise Inconclusive("no two chains moved in the same call")
    if equal.max() > 0:
        i, j = (int(x) for x in np.unravel_index(np.argmax(equal), equal.shape))
        why = f"chains {i} and {j}, from the same point, moved to the same one in {equal[i, j]} of {both[i, j]} calls"
        # Proposals with few values (a walk on a grid) can coincide; those with normals cannot.
        if equal[i, j] == both[i, j] and both[i, j] >= 3:
            return failed(why, _text(test, test.states(0)[0]), float(equal[i, j]), 0.0)
        raise Inconclusive(why)
    if shared:
        raise Inconclusive(f"{shared}: right for a common step size, wrong for noise")
    return passed(f"equal answers from equal starts, in {int(both.max())} calls", 0.0, 0.0)


class Shared(NamedTuple):
    """A number of one call, the chains that it moves, and the description of the case."""

    kind: str
    place: int
    chains: list[int]
    case: str

    def __str__(self) -> str:
        return f"one {self.kind} (number {self.place + 1} of its kind) moves the chains {self.chains}"


def _shared_noise(test: BatchExamination) -> Row | Shared | None:
    """Return a FAIL for shared noise, a shared number that may not be noise, or None if there is none or none recorded."""
    unseen = set(itertools.combinations(range(test.chains), 2))
    found = None
    for key in range(STARTS):
        q, _ = test.states(key)
        try:
            before, asked = _recorded(test, q, key)
        except NotApplicable:
            return None
        moved = np.count_nonzero(before != q, axis=1)
        pairs = unseen & set(itertools.combinations(np.flatnonzero(moved).tolist(), 2))
        if not pairs:
            continue
        unseen -= pairs
        reached = _reached(test, q, key, before, asked)
        own = [sum(shared.chains == [k] for shared in reached) for k in range(test.chains)]
        several = [shared for shared in reached if len(shared.chains) > 1]
        uniforms = sum(shared.kind == "uniform" for shared in several)
        for shared in several:
            lacking = any(own[k] < moved[k] for k in shared.chains)
            if lacking and (shared.kind != "uniform" or uniforms > COMMON):
                return failed(str(shared), shared.case, float(len(shared.chains)), 1.0)
        found = found or next(iter(several), None)
    return found


def _reached(
    test: BatchExamination, q: np.ndarray, key: int, before: np.ndarray, asked: list[Question]
) -> list[Shared]:
    """Return for each number that is not a decision the chains that a small change of it moves a little."""
    unit = ROUNDINGS * test.subject.epsilon if test.rounding is None else test.rounding
    change, sizes, reached = unit**0.5, _sizes(asked), []
    for kind, values in script_of(asked).items():
        if kind not in ("normal", "exponential", "uniform"):
            continue
        for place, value in enumerate(values):
            new = value - change if kind == "uniform" and value > 0.5 else value + change
            draws = Draws(np.random.default_rng(key), script_of(asked, **{kind: (place, new)}))
            distance = np.abs(test.kernel(q, draws) - before).max(axis=1)
            near = (distance > test.tolerance(before)) & (distance < change**0.5)
            if near.any() and _sizes(draws.asked) == sizes:
                case = f"{_text(test, q)}, {kind} {place + 1}: {value:.6g} changed by {new - value:.1g}"
                reached.append(Shared(kind, place, np.flatnonzero(near).tolist(), case))
    return reached


def _sizes(asked: list[Question]) -> list[tuple[str, int]]:
    return [(question.kind, np.size(question.answer)) for question in asked]


def _decisions(test: BatchExamination) -> Row:
    """Check that no two chains always make equal decisions."""
    test.need(kernel=True)
    calls = CALLS
    for _ in range(3):
        moved = np.zeros((calls, test.chains), dtype=bool)
        for key in range(calls):
            q, _ = test.states(0)
            q[:] = q[0]
            got = test.kernel(q, Draws(np.random.default_rng([test.seed, 7, key])))
            moved[key] = np.any(got != q, axis=1)
        rates = moved.mean(axis=0)
        if rates.min() >= 0.05 and rates.max() <= 0.95:
            break
        calls *= 2
    found = _shared_uniform(test)
    if found is not None:
        return found
    accepting = f"{rates.min():.2g} to {rates.max():.2g}"
    if rates.min() < 0.05 or rates.max() > 0.95:
        raise Inconclusive(f"chains accept in {accepting} of the calls")
    pairs = list(itertools.combinations(range(test.chains), 2))
    alike = [(np.mean(moved[:, i] == moved[:, j]), i, j) for i, j in pairs]
    share, i, j = max(alike)
    a = float(rates[i])
    chance = len(pairs) * max(a, 1 - a) ** calls
    if share == 1.0 and chance <= FALSE_ALARM:
        why = f"chains {i} and {j} make equal decisions in all {calls} calls; probability by chance {chance:.1g}"
        return failed(why, _text(test, test.states(0)[0]), share, 1.0, relation="<")
    return passed(f"largest share of equal decisions, {calls} calls, accepting {accepting}", share, 1.0, "<")


def _shared_uniform(test: BatchExamination) -> Row | None:
    """Return a FAIL if one uniform decides for several chains, without any other effect."""
    try:
        owners = _owners(test)
    except NotApplicable:
        return None
    for kind, place, rows in owners:
        if kind != "uniform" or len(rows) < 2:
            continue
        for key in range(SHARED_TRIES):  # until two chains are close enough to rejection in one call
            q, _ = test.states(key)
            before, asked = _recorded(test, q, key)
            stayed = np.all(before == q, axis=1)
            if place >= len(script_of(asked)[kind]):
                continue
            turned = np.zeros(test.chains, dtype=bool)
            shifted = np.zeros(test.chains, dtype=bool)
            for new in ENDS:
                after = test.kernel(q, Draws(np.random.default_rng(key), script_of(asked, **{kind: (place, new)})))
                stays = np.all(after == q, axis=1)
                turned |= stays != stayed
                shifted |= ~stays & ~stayed & np.any(after != before, axis=1)
            if turned.sum() >= 2 and not shifted.any():
                who = np.flatnonzero(turned).tolist()
                why = f"one uniform (number {place + 1} of the call) decides for the chains {who}"
                return failed(why, _text(test, q), float(len(who)), 1.0)
    return None


ONE_DRAW = "a random number is drawn once for all chains (a size= or a key without the chains)"
ALL_CHAINS = "a sum, a maximum, an early stop or a mask includes all chains"
TYPICAL = {
    "streams independent": ONE_DRAW,
    "decisions independent": ONE_DRAW,
    "divergent neighbour": ALL_CHAINS,
    "alone equals batch": ALL_CHAINS,
}


def diagnose(test: BatchExamination, rows: dict[str, Row]) -> list[str]:
    return causes({name for name, row in rows.items() if row.status == FAIL}, TYPICAL)


ROWS: Rows = [
    ("answers", _answers),
    ("alone equals batch", _alone),
    ("order of chains", _order),
    ("divergent neighbour", _neighbour),
    ("numbers scale", _numbers),
    ("streams independent", _streams),
    ("decisions independent", _decisions),
]
