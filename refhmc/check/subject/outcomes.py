"""Outcomes of a kernel on given normals: all results of its random decisions, with their probabilities.

On fixed normals a kernel's answer is a function of the uniforms (and flips, choices, single exponentials) that it draws. As a
function of one of them, with the others fixed, it is

    piecewise constant    a decision. Its jumps are found by bisection to 2^-60 in the uniform, so that an acceptance
                          probability is known to rounding although only the answers are observed
    not constant          a number that the move depends on, such as the jitter of a step: fixed at some value ("free")

A flip and a choice state their probabilities. The tree of decisions is searched depth first; its leaves are the outcomes.

If further questions follow a uniform, all outcomes below it must be the same within a cell, with the same probabilities. They
are compared at the ends of the cell and inside, with the least and the largest answers of later cells, and the cell is split
where they differ. So a step size that depends on two thresholds is enumerated too. That takes thousands of calls, so that
uniforms that decide together can also be ``held``: fixed like free numbers.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from refhmc.check.subject.draws import Question
from refhmc.check.subject.foreign import Inconclusive
from refhmc.check.subject.transition import TINY, Transition

LOWER, INSIDE, UPPER, WHOLE, FREE = "lower", "inside", "upper", "whole", "free"
GRID = np.array([TINY, 0.03, 0.11, 0.23, 0.37, 0.52, 0.61, 0.74, 0.88, 0.97, 1 - TINY])
HALVINGS = 60
MOST_CELLS, MOST_OUTCOMES, MOST_CHOICES, MOST_STEPS = 16, 256, 32, 6
PLACES = (1e-9, 0.3, 0.7, 1 - 1e-9)  # relative positions in a cell at which the outcomes below it are compared
ROUNDING = 2.0**-53
NARROW = 1e-11  # width of a cell that is not split


class PathStep(NamedTuple):
    """One question on the way to an outcome: its kind, the cell that was taken (``key``), and the answer that takes it.

    ``ends`` are the least and the largest answer of the cell.
    """

    kind: str
    key: Any
    answer: Any
    ends: tuple = ()


Path = tuple[PathStep, ...]  # the questions that lead to an outcome


class Outcome(NamedTuple):
    """An outcome: its path, its probability, the end of the kernel, and whether that differs from the start.

    ``error`` is the relative error of the probability. A cell of a uniform has an absolute error of 2^-53, and a probability
    that the kernel states only a relative one, however small it is.
    """

    path: Path
    probability: float
    transition: Transition
    moved: bool
    error: float = 0.0

    @property
    def decisions(self) -> int:
        """Number of steps that had an alternative."""
        return sum(step.key not in (FREE, WHOLE) for step in self.path)


def answers(path: Path, noise: np.ndarray | None = None) -> dict[str, list]:
    """Return the script that follows ``path``; standard normals z in ``noise`` replace its free numbers by u = Phi(z)."""
    script: dict[str, list] = {}
    left = None if noise is None else list(scipy.special.ndtr(noise))
    for kind, key, answer, _ in path:
        if key == FREE and left is not None and kind in ("uniform", "exponential"):
            answer = _as_answer(kind, left.pop(0))
        script.setdefault(kind, []).append(answer)
    return script


def _as_answer(kind: str, u: float) -> float:
    return -math.log(u) if kind == "exponential" else float(u)


def open_questions(transition: Transition) -> list[Question]:
    """Return all questions except normals, in order."""
    found = [x for x in transition.asked if x.kind != "normal"]
    if any(x.kind == "exponential" and x.argument is not None for x in found):
        raise Inconclusive("the kernel draws several exponentials at a time, which are not separated")
    return found


def outcomes(
    run: Callable[[dict], Transition],
    q: np.ndarray,
    free: Callable[[int], float],
    takes: float,
    rounding: float,
    held: bool = False,
) -> list[Outcome]:
    """Return every outcome of ``run(script)``; free numbers are fixed at ``free(k)``, decisions without a jump at ``takes``.

    With ``held``, uniforms that are followed by further questions are fixed too.
    A distance below ``rounding`` from ``q`` is not a move. Inconclusive if there are too many, as in a tree sampler.
    """
    return _Tree(run, q, free, takes, rounding, held).below(())


def decide_together(run: Callable[[dict], Transition], q: np.ndarray, takes: float) -> bool:
    """Return whether the decisions of a uniform depend on the value of another one, as for two thresholds."""
    tree = _Tree(run, q, lambda k: 0.5, takes, 0.0)
    tree.only_asked = True
    try:
        tree.below(())
    except _Together:
        return True
    except Inconclusive:
        pass
    return False


class _Together(Exception):
    """Two uniforms decide together."""


class _Tree:
    """The tree of a kernel's decisions, with the arguments of :func:`outcomes`."""

    def __init__(
        self, run: Callable, q: np.ndarray, free: Callable, takes: float, rounding: float, held: bool = False
    ) -> None:
        self.run, self.q, self.free, self.takes, self.rounding, self.held = run, q, free, takes, rounding, held
        self.only_asked = False  # whether uniforms decide together
        self.choices: set[tuple] = set()  # answers to the questions that state their probabilities
        self.jumps: list[float] = []  # found so far, which often recur
        self.known: dict[tuple, list[Outcome]] = {}

    def below(self, path: Path) -> list[Outcome]:
        """Return the outcomes whose paths begin with ``path``, with their probabilities given ``path``."""
        asked = tuple((step.kind, np.asarray(step.answer).tobytes()) for step in path)
        if asked not in self.known:
            self.known[asked] = self.explore(path)
        return [x._replace(path=(*path, *x.path[len(path) :])) for x in self.known[asked]]

    def explore(self, path: Path) -> list[Outcome]:
        transition = self.run(answers(path))
        questions = open_questions(transition)
        if len(path) >= len(questions):
            self.choices.add(tuple(step.key for step in path if step.kind in ("flip", "choice")))
            moved = not np.abs(transition.q - self.q).max() <= self.rounding
            return [Outcome(path, 1.0, transition, moved)]
        many = len(self.choices) > MOST_CHOICES or sum(s.key not in (FREE, WHOLE) for s in path) > MOST_STEPS
        if many:
            raise Inconclusive("the kernel has too many decisions to enumerate (for a tree sampler use check.orbit)")
        found: list[Outcome] = []
        for step, share in self.branches(path, questions[len(path)]):
            if share > 0:
                error = ROUNDING if step.kind in ("flip", "choice") else ROUNDING / share
                below = self.below((*path, step))
                found += [x._replace(probability=share * x.probability, error=error + x.error) for x in below]
        if len(found) > MOST_OUTCOMES:
            raise Inconclusive("the kernel has too many outcomes to enumerate (for a tree sampler use check.orbit)")
        return found

    def branches(self, path: Path, question: Question) -> list[tuple[PathStep, float]]:
        """Return the answers to a question as steps with their probabilities."""
        kind = question.kind
        if kind == "flip":
            p = 0.0 if math.isnan(question.argument) else math.exp(min(question.argument, 0.0))
            return [(PathStep(kind, True, True), p), (PathStep(kind, False, False), 1.0 - p)]
        if kind == "choice" and len(question.argument) <= MOST_CELLS:
            weights = question.argument / np.sum(question.argument)
            return [(PathStep(kind, k, k), float(w)) for k, w in enumerate(weights)]
        if kind in ("choice", "permutation"):
            return [(PathStep(kind, FREE, question.answer), 1.0)]
        return self.cells(path, kind)

    def cells(self, path: Path, kind: str) -> list[tuple[PathStep, float]]:
        """Return the cells of a uniform (or of an exponential E, by u = exp(-E)) on which the outcomes are constant."""

        def outcome(u: float) -> tuple:
            return self.seen((*path, PathStep(kind, WHOLE, _as_answer(kind, u))))

        seen = [outcome(u) for u in GRID]
        if self.held and any(sum(name != "normal" for name in x[1]) > len(path) + 1 for x in seen):
            return self.fixed(path, kind)
        if len({x[:2] for x in seen}) > 2:
            moving = sum(outcome(1.001 * u)[:2] != s[:2] for u, s in list(zip(GRID, seen, strict=True))[2:9:2])
            if moving >= 2:
                if any(step.key not in (FREE, WHOLE) for step in path):
                    raise Inconclusive("the kernel draws a number that determines the move after a random decision")
                return self.fixed(path, kind)
        edges = [0.0]
        for low, high, at_low, at_high in zip(GRID[:-1], GRID[1:], seen[:-1], seen[1:], strict=True):
            while at_low != at_high:
                low, at_low = self.jump(outcome, low, high, at_low)
                edges.append(low)
                if len(edges) > MOST_CELLS:
                    raise Inconclusive("a uniform number decides between too many outcomes to enumerate")
        edges.append(1.0)
        k = 0
        while k < len(edges) - 1:
            split = self.split(path, kind, edges[k], edges[k + 1])
            if split is None:
                k += 1
            else:
                if self.only_asked:
                    raise _Together
                edges.insert(k + 1, split)
                if len(edges) > MOST_CELLS + 1:
                    raise Inconclusive(
                        "several uniform numbers decide together, between too many outcomes to enumerate"
                    )
        cells = [(_cell(kind, a, b, self.takes), b - a) for a, b in pairwise(edges)]
        return [(step._replace(key=k) if step.key == INSIDE else step, p) for k, (step, p) in enumerate(cells)]

    def fixed(self, path: Path, kind: str) -> list[tuple[PathStep, float]]:
        value = self.free(sum(step.key == FREE for step in path))
        return [(PathStep(kind, FREE, _as_answer(kind, value)), 1.0)]

    def split(self, path: Path, kind: str, a: float, b: float) -> float | None:
        """Return a place in the cell [a, b) where an outcome of the later questions changes, or None."""
        here = _cell(kind, a, b, self.takes)
        if b - a <= NARROW:
            return None
        u = as_uniform(here)
        for leaf in self.below((*path, here)):
            later = leaf.path[len(path) + 1 :]
            if not later:
                continue
            for end in (0, 1) if any(step.ends for step in later) else (0,):
                ended = tuple(step._replace(answer=step.ends[end]) if step.ends else step for step in later)

                def outcome(u: float, ended: Path = ended) -> tuple:
                    return self.seen((*path, PathStep(kind, WHOLE, _as_answer(kind, u)), *ended))

                at_u = outcome(u)
                for place in (a + x * (b - a) for x in PLACES):
                    at_place = outcome(place)
                    if at_place != at_u:
                        low, high, at_low = (u, place, at_u) if u < place else (place, u, at_place)
                        jump = self.jump(outcome, low, high, at_low)[0]
                        if min(jump - a, b - jump) > NARROW:
                            return jump
        return None

    def seen(self, path: Path) -> tuple:
        """Return the end of a path, its questions, and the probabilities that they state."""
        script = answers(path)
        more = {k: [*script.get(k, [])] for k in {*script, "uniform", "exponential", "flip"}}
        # Later questions get the answers that usually accept a proposal.
        more["uniform"] += [self.takes] * 8
        more["exponential"] += [_as_answer("exponential", self.takes)] * 8
        more["flip"] += [True] * 8
        transition = self.run(more)
        kinds = tuple(x.kind for x in transition.asked)
        stating = (
            x.argument for x in transition.asked if x.kind in ("flip", "choice") and type(x.argument) is not range
        )
        stated = tuple(np.round(np.ravel(x), 7).tobytes() for x in stating)
        return transition.q.tobytes(), kinds, stated

    def jump(self, outcome: Callable[[float], tuple], low: float, high: float, at_low: Any) -> tuple[float, Any]:
        """Return the place where the outcome at ``low`` ends, and the next outcome."""
        for known in self.jumps[bisect.bisect_right(self.jumps, low) : bisect.bisect_left(self.jumps, high)]:
            beyond = outcome(known)
            if beyond != at_low and outcome(known * (1 - 2.0**-50)) == at_low:
                return known, beyond
        found = _jump(outcome, low, high, at_low)
        if found[0] not in self.jumps:
            bisect.insort(self.jumps, found[0])
        return found


def _cell(kind: str, a: float, b: float, takes: float) -> PathStep:
    """Return the step that takes the cell [a, b) of a uniform."""
    if (a, b) == (0.0, 1.0):
        key, u = WHOLE, takes
    else:
        key, u = (LOWER, TINY) if a == 0 else (UPPER, 1 - TINY) if b == 1 else (INSIDE, 0.5 * (a + b))
        u = u if a < u < b else 0.5 * (a + b)
    inside = 1e-9 * (b - a)
    ends = tuple(_as_answer(kind, x) for x in (max(a + inside, TINY), min(b - inside, 1 - TINY)))
    return PathStep(kind, key, _as_answer(kind, u), ends)


def as_uniform(step: PathStep) -> float:
    """Return the answer of a step as a uniform number."""
    return math.exp(-step.answer) if step.kind == "exponential" else float(step.answer)


def _jump(outcome: Callable[[float], tuple], low: float, high: float, at_low: Any) -> tuple[float, Any]:
    """Return the place where the outcome at ``low`` ends, and the next outcome."""
    beyond = None
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        found = outcome(middle)
        if found == at_low:
            low = middle
        else:
            high, beyond = middle, found
    return high, outcome(high) if beyond is None else beyond
