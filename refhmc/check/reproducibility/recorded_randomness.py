"""Rows of ``check.randomness`` for kernels whose random numbers can be recorded.

Many transitions are run on recorded draws (``subject/transition.py``). Then one number at a time is changed:

    respects the generator     the same generator gives the same answer; the global generators are neither read nor changed
    fresh every call           two calls from the same q on different numbers give different answers
    kinds and counts           the number of normals, uniforms, ... per transition, and whether it is constant
    momentum                   enough fresh noise to reach every direction: dq'/d(normals), or d(uniforms), has full rank
    depends on every draw      which numbers change neither the end nor its probability
    one use of each number     a number that decides does not also move the proposal; no number moves several coordinates
                               alone; the numbers of a call are not used in the next one
    sense of the uniform       which end of [0, 1) accepts a proposal (reported, not judged)

Compiled code that reads a generator's bit stream cannot be recorded: rows that need it are NOT RUN.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from refhmc.check.examination import Examination, Rows
from refhmc.check.judging import causes, failed, passed
from refhmc.check.report import FAIL, INEFFICIENT, Row
from refhmc.check.subject.draws import script_of
from refhmc.check.subject.foreign import Foreign, Inconclusive, NotApplicable, call_text
from refhmc.check.subject.outcomes import GRID
from refhmc.check.subject.target import TargetDensity, typical_points
from refhmc.check.subject.transition import MOMENTUM, Transition, TransitionRunner, find_dimension

KINDS = ("normal", "exponential", "uniform")
USED = (1e-6, 0.2, 0.4, 0.6, 0.8, 0.95, 1 - 1e-9)
NOTHING = "no random number could be recorded (compiled code that reads the bit stream, or a generator of its own)"


class RandomnessExamination(Examination):
    """One kernel under examination: its starts, its random numbers, and its results."""

    def __init__(
        self, kernel: Foreign, target: TargetDensity | None, dim: int | None, points: Any, n: int, seed: int
    ) -> None:
        super().__init__(kernel.name, (kernel, *(target.foreign if target else ())), seed)
        self.kernel, self.target, self.n = kernel, target, max(int(n), 4)
        self.dim = dim if dim is not None or target is None else target.dim
        self.points = None if points is None else np.atleast_2d(np.asarray(points, dtype=float))
        if self.points is not None:
            self.dim = self.points.shape[1]
        self.runner: TransitionRunner | None = None
        self.recorded: list[Transition] = []
        self.shared = ""  # reason if numbers move more coordinates than there are numbers
        self.idle: set[str] = set()  # kinds of numbers without effect

    def need(self) -> Any:
        if self.runner is None or self.points is None:
            raise NotApplicable("it did not answer")
        return self.runner

    def choose_starts(self, dim: int) -> None:
        """Choose starting points if none are given."""
        rng = np.random.default_rng([self.seed, 1])
        if self.points is None and self.target is None:
            self.points = 0.5 * rng.standard_normal((8, dim))
        elif self.points is None and self.target is not None:
            self.points = typical_points(self.target.log_pi, dim, 8, rng)

    def starts(self) -> np.ndarray:
        assert self.points is not None
        return self.points

    @property
    def text(self) -> str:
        """Call from the first start, as text."""
        return call_text(self.kernel.name, [self.starts()[0]])

    @property
    def kinds(self) -> set[str]:
        """Kinds of random numbers that it draws."""
        return {x.kind for transition in self.recorded for x in transition.asked}

    def _momentum(self) -> np.ndarray | None:
        return np.ones(self.dim or 1) if self.need().keeps_momentum else None

    def run(self, seed: int, q: np.ndarray, script: dict | None = None) -> Transition:
        """Return a transition on the numbers of ``script``, then those of the seed."""
        return self.need().run(q, script, seed, self._momentum())

    def again(self, q: np.ndarray, seed: int) -> np.ndarray:
        """Return the answer with a generator created from a seed, NumPy's own if the kernel takes one."""
        runner = self.need()
        if runner.shape == MOMENTUM:
            return runner.run(q, seed=seed).q
        return runner.with_generator(np.random.default_rng([self.seed, seed]), q, self._momentum()).q

    def need_recorded(self) -> TransitionRunner:
        runner = self.need()
        if runner.shape == MOMENTUM:
            raise NotApplicable(f"a {MOMENTUM} receives its numbers as arguments")
        if not self.recorded:
            raise NotApplicable(NOTHING)
        return runner


def _answers(test: RandomnessExamination) -> Row:
    given = test.points

    def start(dim: int) -> np.ndarray:
        return 0.1 + 0.1 * np.arange(dim) if given is None or dim != given.shape[1] else given[0]

    dim, runner = find_dimension(test.kernel, test.dim, start)
    test.dim, test.runner = dim, runner
    test.choose_starts(dim)
    test.notes.append(f"called as {runner.shape}")
    starts = [q for _, q in zip(range(test.n), itertools.cycle(test.starts()), strict=False)]
    transitions = [test.run(k, q) for k, q in enumerate(starts)]
    if runner.shape != MOMENTUM:
        test.recorded = transitions if any(got.asked for got in transitions) else []
    bad = next((q for q, got in zip(starts, transitions, strict=True) if not np.isfinite(got.q).all()), None)
    if bad is not None:
        return failed("the new position is not finite", call_text(test.kernel.name, [bad]))
    return passed(f"positions ({test.dim},), {test.n} times")


def _respects(test: RandomnessExamination) -> Row:
    """Check that equal generators give equal answers, whatever the state of the global ones."""
    runner = test.need()

    def asked_again(k: int, q: np.ndarray, state: int) -> np.ndarray:
        _set_global(state)
        return test.again(q, k)

    for k, q in enumerate(test.starts()[:6]):
        if np.array_equal(asked_again(k, q, 1), asked_again(k, q, 2), equal_nan=True):
            continue
        text = f"{call_text(test.kernel.name, [q])}  # twice, each time with default_rng({[test.seed, k]})"
        why = "the same generator gives another answer"
        third, fourth, other = (asked_again(k, q, state) for state in (1, 1, 2))
        # The last one excludes that only the previous call matters.
        if np.array_equal(third, fourth) and not np.array_equal(fourth, other):
            return failed(f"{why} after np.random.seed or random.seed: it reads a global generator", text)
        if runner.shape != MOMENTUM and not test.recorded:
            return failed(f"{why}: it uses a generator of its own", text)
        raise Inconclusive(
            f"{why}: it remembers earlier calls (a momentum kept inside?) or also uses another generator"
        )
    return passed("the same generator gives the same answer, bit for bit")


def _set_global(seed: int) -> None:
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


def _state() -> tuple:
    kind, keys, place, *rest = np.random.get_state()  # noqa: NPY002
    return (kind, np.asarray(keys).tobytes(), place, *rest), random.getstate()


def _global(test: RandomnessExamination) -> Row:
    test.need()

    def calls() -> None:
        for k, q in enumerate(test.starts()[:6]):
            test.again(q, k)

    return unchanged(calls, test.text)


def unchanged(calls: Callable[[], Any], text: str) -> Row:
    """Check that the global generators are unchanged by ``calls()``."""
    _set_global(123456789)
    before = _state()
    calls()
    changed = [name for name, a, b in zip(("np.random", "random"), before, _state(), strict=True) if a != b]
    if changed:
        return failed(f"the state of the global {changed[0]} has changed after its calls", text)
    return passed("np.random and random are unchanged")


def _fresh(test: RandomnessExamination) -> Row:
    """Check that different numbers give different answers: at least one of 20 calls moves, and two moves differ."""
    test.need()
    moves = 0
    for q in test.starts()[:4]:
        seen = set()
        for k in range(20):
            got = test.again(q, 1000 + k)
            if not np.array_equal(got, q):
                seen.add(got.tobytes())
                moves += 1
            if len(seen) > 1:
                return passed("different numbers lead to different points")
    if moves > 3:
        return failed(f"{moves} calls with different generators moved, to the same point from each start", test.text)
    raise Inconclusive(f"it moved {moves} times in 80 calls")


def _counts(test: RandomnessExamination) -> Row:
    test.need_recorded()
    totals: list[Counter] = [Counter() for _ in test.recorded]
    for total, transition in zip(totals, test.recorded, strict=True):
        for question in transition.asked:
            total[question.kind] += np.size(question.answer)
    parts = []
    for kind in sorted({kind for total in totals for kind in total}):
        counts = [total[kind] for total in totals]
        spread = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        parts.append(f"{spread} {kind}{'s' if spread != '1' else ''}")
    constant = all(total == totals[0] for total in totals)
    text = ", ".join(parts)
    test.notes.append(f"draws {text} per transition{'' if constant else ' (not constant)'}")
    empty = sum(not transition.asked for transition in test.recorded)
    if empty:
        raise Inconclusive(f"{text}; no random numbers in {empty} of {test.n} transitions")
    return passed(text)


def _moving(test: RandomnessExamination) -> list[tuple[int, np.ndarray, Transition]]:
    """Return recorded transitions that moved."""
    starts = test.starts()
    found = [(k, starts[k % len(starts)], transition) for k, transition in enumerate(test.recorded)]
    return [x for x in found if not np.array_equal(x[2].q, x[1]) and np.isfinite(x[2].q).all()]


def _responses(test: RandomnessExamination, k: int, q: np.ndarray, transition: Transition, kind: str) -> np.ndarray:
    """Return dq' for a small change of each of the numbers of a kind, (d, count)."""
    h = 1e-4 if test.kernel.epsilon < 1e-10 else 1e-2
    columns = [np.zeros((len(q), 0))]
    for place, value in enumerate(transition.numbers(kind)):
        got = test.run(k, q, script_of(transition.asked, **{kind: (place, value + _inward(kind, value) * h)})).q
        columns.append((np.zeros(len(q)) if np.array_equal(got, q) else (got - transition.q) / h)[:, None])
    return np.hstack(columns)


def _inward(kind: str, value: float) -> float:
    """Return 1 or -1, the direction in which a change is possible."""
    return 1.0 if kind == "normal" or value < 0.5 else -1.0


def _rank(test: RandomnessExamination) -> Row:
    """Check that the noise reaches every direction, at each step or over several (one coordinate at a time)."""
    runner = test.need_recorded()
    directions, most, shared = [], 0, 0
    for k, q, transition in _moving(test)[:12]:
        J = np.hstack([_responses(test, k, q, transition, kind) for kind in KINDS])
        sizes = np.linalg.norm(J, axis=0)
        J = J[:, sizes > 1e-9 * max(sizes.max(initial=0.0), 1e-300)]
        if J.size:
            left, values, _ = np.linalg.svd(J, full_matrices=False)
            rank = int(np.sum(values > 1e-6 * values[0]))
            most = max(most, rank)
            directions.append(left[:, :rank])
            rest = (transition.q - q) - left[:, :rank] @ (left[:, :rank].T @ (transition.q - q))
            shared += np.linalg.norm(rest) > 1e-6 * np.linalg.norm(transition.q - q)
    if not directions:
        raise Inconclusive(f"no move depends smoothly on its numbers ({len(_moving(test))} moves)")
    values = np.linalg.svd(np.hstack(directions), compute_uv=False)
    spanned = int(np.sum(values > 1e-6 * values[0]))
    d = len(test.starts()[0])
    discrete = {"choice", "permutation", "flip"} & test.kinds
    if 2 * shared > len(directions) and most < d and spanned == d and not discrete and not runner.keeps_momentum:
        # Some coordinates, or one direction, move no further than their noise, unlike a deterministic move.
        test.shared = f"{most} numbers move it at a time, in {d} dimensions, and it moves outside their span"
        raise Inconclusive(f"{test.shared}: is one number used for several coordinates?")
    if spanned == d:
        return passed(f"its numbers move it in {most} directions at a time, in all {d} over several moves")
    if test.kinds & {"choice", "permutation"} or spanned > most or runner.keeps_momentum:  # some coordinates at a time
        raise Inconclusive(f"its numbers move it in {most} directions at a time, {spanned} of {d} so far")
    kinds = sum(len(transition.numbers("normal")) for transition in test.recorded) / len(test.recorded)
    why = f"its numbers only move it in {spanned} of {d} directions: {kinds:g} normals per transition"
    return failed(why, test.text, spanned, d, relation=">=")


def _used(test: RandomnessExamination) -> Row:
    """Report numbers without effect; they are a fault only if no number decides or moves."""
    test.need_recorded()
    idle: Counter = Counter()
    seen: Counter = Counter()
    for k, q, transition in _moving(test)[:8]:
        for kind in KINDS:
            for place, value in enumerate(transition.numbers(kind)):
                seen[kind, place + 1] += 1
                idle[kind, place + 1] += not _matters(test, k, q, transition, kind, place, value)
    if not seen:
        raise Inconclusive("no move was recorded")
    unused = [name for name in seen if idle[name] == seen[name]]
    test.idle = {kind for kind, _ in unused} - {name[0] for name in seen if name not in unused}
    if len(unused) == len(seen) and "flip" not in test.kinds:
        raise Inconclusive(f"none of its random numbers affects the end: {test.text}")
    if unused:
        shown = ", ".join(f"{kind} {place}" for kind, place in unused[:6]) + (" ..." if len(unused) > 6 else "")
        test.notes.append(f"numbers without effect in {len(_moving(test)[:8])} moves: {shown}")
        raise Inconclusive(f"without effect: {shown}")
    return passed(f"{len(seen)} numbers, each with an effect")


def _matters(
    test: RandomnessExamination, k: int, q: np.ndarray, transition: Transition, kind: str, place: int, value: float
) -> bool:
    of_kind = {
        "normal": (value + 0.05, value + 0.5, value - 2.0, 10 * value + 5),
        "uniform": (0.5 * value, *GRID),
        "exponential": tuple(-math.log(u) for u in GRID),
    }
    scripts = (script_of(transition.asked, **{kind: (place, float(new))}) for new in of_kind[kind])
    return any(not np.array_equal(test.run(k, q, script).q, transition.q) for script in scripts)


def _one_use(test: RandomnessExamination) -> Row:
    """Check that a number that decides does not also move, and that the numbers of a call are not in the next one."""
    test.need_recorded()
    if test.shared:
        raise Inconclusive(test.shared)
    if not (test.kinds - {"normal"} - test.idle) and _rejects(test):
        why = "it rejects, and only the numbers of the proposal decide that: right only for a locally constant density"
        raise Inconclusive(why)
    again = _comes_back(test)
    if again:
        why = f"another {again} in a call that ends at the same point changes the answer of the next call"
        raise Inconclusive(why + ": it is used again, or a momentum is kept inside")
    double: dict[int, int] = {}
    decides_only = False
    for k, q, transition in _moving(test)[:6]:
        uniforms = transition.numbers("uniform")
        if len(uniforms) > 16:
            raise NotApplicable("more than 16 uniforms per transition")
        for place, _ in enumerate(uniforms):
            tried = (script_of(transition.asked, uniform=(place, float(u))) for u in np.linspace(0.02, 0.98, 33))
            answers = [test.run(k, q, script).q for script in tried]
            stays = [np.array_equal(a, q) for a in answers]
            places = {a.tobytes() for a, s in zip(answers, stays, strict=True) if not s}
            changes = sum(a != b for a, b in pairwise(stays))
            if any(stays) and changes <= 2 and len(places) > 8 and len(places) >= 0.9 * (len(stays) - sum(stays)):
                double[place] = double.get(place, 0) + 1
            elif len(places) == 1 and any(stays) and changes == 1:
                decides_only = True
                test.notes.append("the uniform accepts a proposal near " + ("one" if stays[0] else "zero"))
    test.notes[:] = list(dict.fromkeys(test.notes))
    if double and not decides_only:
        place = max(double, key=lambda x: double[x])
        why = f"uniform {place + 1} decides whether it moves, and also moves the proposal ({double[place]} moves)"
        raise Inconclusive(why + ": right only if it is rescaled after the decision")
    return passed("no number that decides also moves the proposal, or is used in the next call")


def _rejects(test: RandomnessExamination) -> bool:
    """Return whether some noise, perhaps large, is rejected."""
    for k, (q, transition) in enumerate(zip(test.starts(), test.recorded, strict=False)):
        for size in (1.0, 2.0, 4.0, 8.0):
            script = {"normal": list(size * transition.numbers("normal"))}
            if np.array_equal(test.run(k, q, script).q, q):
                return True
    return False


def _comes_back(test: RandomnessExamination) -> str:
    """Return which number of a call affects the next one although the call ends at the same point, or "".

    Large noise is rejected, or a move is accepted, whatever the uniform; the next call is always the same.
    """
    rng = np.random.default_rng([test.seed, 2])
    count = max(len(transition.numbers("normal")) for transition in test.recorded)
    for k, q in enumerate(test.starts()[:6]):
        after = {"normal": list(1.5 * rng.standard_normal(count)), "uniform": [float(rng.random())] * 8}
        for size in (0.1, 1.0, 3.0, 6.0):
            z = size * rng.standard_normal(count)
            ends: dict[bytes, tuple[str, bytes]] = {}
            calls = [("uniform", z, u) for u in USED] + [("normal", s * z, 0.9) for s in (0.9, 1.0, 1.2)]
            for what, noise, u in calls:
                script = {"normal": list(noise), "uniform": [u] * 8, "exponential": [-math.log(u)] * 8}
                end = test.run(k, q, script).q
                then = test.run(k, end, after).q.tobytes()
                if ends.setdefault(end.tobytes(), (what, then))[1] != then:
                    return what
    return ""


OTHER_GENERATOR = "it uses a generator that it was not given: seeds have no effect, parallel chains may repeat"
TYPICAL = {
    "respects the generator": OTHER_GENERATOR,
    "global state": OTHER_GENERATOR,
    "fresh every call": "the noise is drawn once (at construction, or with a fixed seed inside) and used repeatedly",
    "key reuse": "numbers that should be independent follow from one key: split it, and use each part once",
    "momentum": "one number is used for several coordinates, or a coordinate gets no noise",
}


def diagnose(test: RandomnessExamination, rows: dict[str, Row]) -> list[str]:
    return causes({name for name, row in rows.items() if row.status == FAIL}, TYPICAL)


ROWS: Rows = [
    ("answers", _answers),
    ("respects the generator", _respects, INEFFICIENT),
    ("global state", _global, INEFFICIENT),
    ("fresh every call", _fresh),
    ("kinds and counts", _counts),
    ("momentum", _rank),
    ("depends on every draw", _used),
    ("one use of each number", _one_use),
]
