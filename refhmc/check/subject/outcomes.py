"""Outcomes of a kernel on given normals: all results of its random decisions, with their probabilities.

On fixed normals a kernel's answer is a function of the uniforms (and flips, choices, single exponentials) that it draws. As a
function of one of them, with the others fixed, it is

    piecewise constant    a decision. Its jumps are found by bisection to 2^-60 in the uniform, so that an acceptance
                          probability is known to rounding although only the answers are observed
    not constant          a number that the move depends on, such as the jitter of a step: fixed at some value ("free")

A flip and a choice state their probabilities. The tree of decisions is searched depth first; its leaves are the outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from refhmc.check.subject.draws import Question
from refhmc.check.subject.foreign import Inconclusive
from refhmc.check.subject.transition import TINY, Transition

LOWER, UPPER, WHOLE, FREE = "lower", "upper", "whole", "free"
GRID = np.array([TINY, 0.03, 0.11, 0.23, 0.37, 0.52, 0.61, 0.74, 0.88, 0.97, 1 - TINY])
HALVINGS = 60
MOST_CELLS, MOST_OUTCOMES, MOST_STEPS = 16, 32, 6


class PathStep(NamedTuple):
    """One question on the way to an outcome: its kind, the cell that was taken (``key``), and the answer that takes it."""

    kind: str
    key: Any
    answer: Any


Path = tuple[PathStep, ...]  # the questions that lead to an outcome


class Outcome(NamedTuple):
    """An outcome: its path, its probability, the end of the kernel, and whether that differs from the start."""

    path: Path
    probability: float
    transition: Transition
    moved: bool

    @property
    def decisions(self) -> int:
        """Number of steps that had an alternative."""
        return sum(step.key not in (FREE, WHOLE) for step in self.path)


def answers(path: Path, noise: np.ndarray | None = None) -> dict[str, list]:
    """Return the script that follows ``path``; standard normals z in ``noise`` replace its free numbers by u = Phi(z)."""
    script: dict[str, list] = {}
    left = None if noise is None else list(scipy.special.ndtr(noise))
    for kind, key, answer in path:
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
    run: Callable[[dict], Transition], q: np.ndarray, free: Callable[[int], float], takes: float, rounding: float
) -> list[Outcome]:
    """Return every outcome of ``run(script)``; free numbers are fixed at ``free(k)``, decisions without a jump at ``takes``.

    A distance below ``rounding`` from ``q`` is not a move. Inconclusive if there are too many, as in a tree sampler.
    """
    found: list[Outcome] = []
    waiting: list[tuple[Path, float]] = [((), 1.0)]
    while waiting:
        path, probability = waiting.pop()
        transition = run(answers(path))
        questions = open_questions(transition)
        if len(path) >= len(questions):
            found.append(Outcome(path, probability, transition, not np.abs(transition.q - q).max() <= rounding))
        elif len(found) + len(waiting) > MOST_OUTCOMES or sum(s.key not in (FREE, WHOLE) for s in path) > MOST_STEPS:
            raise Inconclusive("the kernel has too many decisions to enumerate (for a tree sampler use check.orbit)")
        else:
            question = questions[len(path)]
            for step, share in _branches(run, path, question, free, takes):
                if share > 0:
                    waiting.append(((*path, step), probability * share))
    return found


def _branches(
    run: Callable[[dict], Transition], path: Path, question: Question, free: Callable[[int], float], takes: float
) -> list[tuple[PathStep, float]]:
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
    return _cells(run, path, kind, free, takes)


def _cells(
    run: Callable[[dict], Transition], path: Path, kind: str, free: Callable[[int], float], takes: float
) -> list[tuple[PathStep, float]]:
    """Return the cells of a uniform (or of an exponential E, by u = exp(-E)) on which the answer is constant."""
    script = answers(path)

    def outcome(u: float) -> tuple:
        more = {k: [*script.get(k, [])] for k in {*script, "uniform", "exponential", "flip"}}
        more[kind].append(_as_answer(kind, u))
        # Later questions get the answers that usually accept a proposal.
        more["uniform"] += [takes] * 8
        more["exponential"] += [_as_answer("exponential", takes)] * 8
        more["flip"] += [True] * 8
        transition = run(more)
        return transition.q.tobytes(), tuple(x.kind for x in transition.asked)

    seen = [outcome(u) for u in GRID]
    if len(set(seen)) > 2:
        moving = sum(outcome(1.001 * u) != s for u, s in list(zip(GRID, seen, strict=True))[2:9:2])
        if moving >= 2:
            if any(step.key not in (FREE, WHOLE) for step in path):
                raise Inconclusive("the kernel draws a number that determines the move after a random decision")
            value = free(sum(step.key == FREE for step in path))
            return [(PathStep(kind, FREE, _as_answer(kind, value)), 1.0)]
    jumps: list[float] = []
    for low, high, at_low, at_high in zip(GRID[:-1], GRID[1:], seen[:-1], seen[1:], strict=True):
        while at_low != at_high:
            low, at_low = _jump(outcome, low, high, at_low)
            jumps.append(low)
            if len(jumps) > MOST_CELLS:
                raise Inconclusive("a uniform number decides between too many outcomes to enumerate")
    if not jumps:
        return [(PathStep(kind, WHOLE, _as_answer(kind, takes)), 1.0)]
    edges = [0.0, *jumps, 1.0]
    steps = []
    for k, (a, b) in enumerate(pairwise(edges)):
        key, u = (LOWER, TINY) if k == 0 else (UPPER, 1 - TINY) if k == len(jumps) else (k, 0.5 * (a + b))
        steps.append((PathStep(kind, key, _as_answer(kind, u)), b - a))
    return steps


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
