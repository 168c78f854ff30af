"""Parts of a split posterior, and whether parts and minibatch gradients only depend on their arguments.

With the data in M batches the potential is a sum of M parts, each with its share of the prior (Neal 1995; Cobb and Jalaian
2021, eq. 6):

    U = sum_m U_m        U_m(q) = -log p(q) / M - log p(y_m | q)

For every M and every q the gradients of the parts add up to the full one, and the potentials to U up to a constant.
A prior that is complete in each part is in the sum M times. A batch used instead of another is in it twice, and the other
never. Rows that remain if M does not divide n must be in one of the batches. A normalisation within the batch gives another
sum for each M. Each part has one value at q, whatever was called before.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.derivatives.claims import claim_at, row_of
from refhmc.check.derivatives.slopes import NOISE_MARGIN, noise_along
from refhmc.check.judging import Cases, Measured, failed, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Foreign, Inconclusive, NotApplicable, SubjectError, call_text, first_line

SPLITS = (1, 2, 3, 5, 7)  # values of M for a function of M
ROUNDING = 2.0**10  # units, relative to the terms of the sum
REPEATS = 24  # of one question


class Part(NamedTuple):
    """The gradient of a log density, and the log density itself if it was given."""

    gradient: Foreign
    density: Foreign | None


class Split(NamedTuple):
    """A split into M parts."""

    M: int
    parts: list[Part]


def part_of(given: Any, name: str, like: Any = None) -> Part:
    """Return a part from a gradient, a pair (log density, gradient), or an object with ``gradient``."""
    if isinstance(given, tuple) and len(given) == 2:
        density, gradient = given
    else:
        density, gradient = getattr(given, "log_density", None), getattr(given, "gradient", given)
    return Part(
        Foreign(gradient, name, like), None if density is None else Foreign(density, f"{name}'s log density", like)
    )


def splits_of(given: Any, n: int | None, like: Any, notes: list[str]) -> list[Split]:
    """Return one split (a sequence, or an object with ``parts``), or those of a function of M; notes on exceptions.

    Raises TypeError for other objects, and ValueError or the function's exception if there is no split at all.
    """
    if callable(given) and not hasattr(given, "parts"):
        made: list[Split] = []
        for M in SPLITS:
            if n is not None and n < M:
                break
            try:
                made += splits_of(given(M), n, like, notes)
            except Exception as error:
                if not made:
                    raise
                notes.append(f"not split in {M}: {type(error).__name__}: {first_line(error)}")
        return made
    parts = getattr(given, "parts", given)
    if not isinstance(parts, Sequence) or isinstance(parts, str):
        raise TypeError(
            "parts must be a sequence of parts, an object with parts, or a function of their number M; "
            f"got {type(parts).__name__}."
        )
    if not parts:
        raise ValueError("parts must contain at least one part; got none.")
    M = len(parts)
    return [Split(M, [part_of(part, f"part {m} of {M}", like) for m, part in enumerate(parts)])]


# ------------------------------------------------------------------------------------------------- dependence on calls


class Question(NamedTuple):
    """A call as a line to paste, and the call."""

    text: str
    ask: Callable[[], np.ndarray]
    foreign: Foreign


def memory(questions: Sequence[Question], may_draw: bool, seed: int) -> Row:
    """Check that calls give the same answers in any order; with ``may_draw``, random answers are INCONCLUSIVE.

    A memory either settles when one question is repeated, or fades (12 changes, each smaller than the last), or
    is periodic. A random answer seems to fade by accident once in 12! = 5e8 cases.
    """
    rng, first = np.random.default_rng([seed, 6]), [question.ask() for question in questions]
    worst, apart, allowed = None, 0.0, 0.0
    orders = (range(len(questions)), range(len(questions) - 1, -1, -1), rng.permutation(len(questions)))
    for k in (int(k) for order in orders for k in order):
        limit = 64 * questions[k].foreign.epsilon * float(np.abs(first[k]).max(initial=0.0))
        gap = float(np.abs(questions[k].ask() - first[k]).max(initial=0.0))
        allowed = max(allowed, limit)
        if not gap <= limit and (worst is None or gap > apart):
            worst, apart = k, gap
    if worst is None:
        return passed(f"{len(questions)} calls, each repeated in three orders", apart, allowed)
    again = [questions[worst].ask() for _ in range(REPEATS)]
    moves = [float(np.abs(b - a).max(initial=0.0)) for a, b in itertools.pairwise(again)]
    settles = max(moves[-3:]) <= 1e-3 * apart
    fades = all(later < earlier for earlier, later in itertools.pairwise(moves[-12:]))
    rounds = [P for P in range(2, REPEATS // 2 + 1) if all(map(np.array_equal, again[:-P], again[P:]))]
    if may_draw and not (settles or fades or rounds):
        raise Inconclusive("the same batch gave two different gradients: the function has randomness of its own")
    why = "the answer depends on earlier calls: something is kept between calls"
    if rounds:
        why = f"equal calls have {rounds[0]} answers in turn: each call uses the next batch, or the like"
    elif not settles and not fades:
        why = "two equal calls differ: it is not a function of q"
    return failed(why, questions[worst].text, apart, allowed)


# ------------------------------------------------------------------------------------------------------------ the sums


def sums(splits: Sequence[Split], whole: Part | None, points: Sequence[np.ndarray], off: dict) -> Cases:
    """Yield for each M the error of the gradients' sum, compared with the full one or that of M = 1, and fill ``off``."""
    truths, seen = [_single(splits, whole).gradient.vector((len(q),), q) for q in points], 0.0
    for M, parts in splits:
        for q, truth in zip(points, truths, strict=True):
            values = np.array([part.gradient.vector((len(q),), q) for part in parts])
            unit = max([part.gradient.epsilon for part in parts] + ([whole.gradient.epsilon] if whole else []))
            allowed = ROUNDING * unit * float(np.abs(values).sum(axis=0).max() + np.abs(truth).max())
            gap = values.sum(axis=0) - truth
            if np.abs(gap).max() > allowed:
                allowed += noise(q, *(part.gradient for part in parts), _single(splits, whole).gradient)
            seen = max(seen, allowed / float(np.abs(truth).max() or 1.0))
            off.setdefault(M, []).append(gap if np.abs(gap).max() > allowed else 0 * gap)
            case = f"sum of {M} parts at q={q.tolist()}: {values.sum(axis=0).tolist()}, whole: {truth.tolist()}"
            yield Measured(float(np.abs(gap).max()), allowed, case)
    allowing = "2^10 units of rounding, or 64 x noise"
    return f"{_in_words(splits)}, at {len(points)} points; resolution {seen:.1g} of the gradient; {allowing}"


def sums_of_potentials(splits: Sequence[Split], whole: Part | None, points: Sequence[np.ndarray]) -> Cases:
    """Yield the same for the log densities, as differences between two points, which cancel constants."""
    complete = [split for split in splits if all(part.density is not None for part in split.parts)]
    if not complete:
        raise NotApplicable("no log densities were given")
    first, single = (
        points[0],
        _single(complete, whole if whole is not None and whole.density is not None else None).density,
    )
    assert single is not None
    for M, parts in complete:
        for q in points[1:]:
            here, there = (np.array([part.density.number(x) for part in parts if part.density]) for x in (first, q))
            truth = single.number(q) - single.number(first)
            allowed = ROUNDING * max(part.density.epsilon for part in parts if part.density)
            allowed *= float(np.abs(here).sum() + np.abs(there).sum() + abs(truth))
            gap = float(abs((there - here).sum() - truth))
            if gap > allowed:
                allowed += sum(noise(x, single, *(part.density for part in parts if part.density)) for x in (first, q))
            case = f"L(q) - L({first.tolist()}) at q={q.tolist()}, {M} parts: {(there - here).sum()}, whole: {truth}"
            yield Measured(gap, allowed, case)
    return f"{_in_words(complete)}; differences between {len(points)} points"


def noise(q: np.ndarray, *functions: Foreign) -> float:
    """Return the effect of the functions' noise near q on their sum, such as float32 inside float64 answers."""
    u = 0.1 * np.where(np.arange(len(q)) % 2, -1.0, 1.0) / np.sqrt(len(q))
    found = [noise_along(functools.partial(f.vector, None), q, u, f.epsilon) for f in functions]
    return NOISE_MARGIN * float(sum(np.max(x) for x in found))


def of_their_own(splits: Sequence[Split], points: Sequence[np.ndarray], seed: int) -> Row:
    """Compare each part's gradient with differences of its own log density."""
    parts = [part for split in splits[-1:] for part in split.parts if part.density is not None]
    if not parts:
        raise NotApplicable("no log densities were given")
    rng, claims, names = np.random.default_rng([seed, 7]), [], []
    for part in parts:
        for q in points[1:3]:
            assert part.density is not None
            along = rng.choice([-1.0, 1.0], (2, len(q)))
            gradient = functools.partial(part.gradient.vector, (len(q),))
            units: dict[str, Any] = {"epsilon": part.density.epsilon, "claim_epsilon": part.gradient.epsilon}
            claims.append(claim_at(part.density.number, gradient, q, along, np.ones(len(q)), least=1.0, **units))
            names.append(part.gradient.name)
    of = {id(claim): name for claim, name in zip(claims, names, strict=True)}
    return row_of(claims, lambda claim, index: call_text(of[id(claim)], [claim.q]))


def _single(splits: Sequence[Split], whole: Part | None) -> Part:
    """Return the part with which the sums are compared."""
    if whole is not None:
        return whole
    for M, parts in splits:
        if M == 1:
            return parts[0]
    raise Inconclusive("there is nothing to compare the sum with; pass full, or a function of M that accepts M = 1")


def _in_words(splits: Sequence[Split]) -> str:
    return f"M = {', '.join(str(split.M) for split in splits)}"


def typical(off: dict[int, list[np.ndarray]], n: int | None) -> str:
    """Return the causes of sums with errors ``off[M]``, one array per point."""
    by_M = {M: np.concatenate(gaps) for M, gaps in off.items()}
    wrong = {M: gap for M, gap in by_M.items() if np.abs(gap).max() > 0}

    def alike(gaps: Sequence[np.ndarray]) -> bool:
        size = max(np.abs(gap).max() for gap in gaps)
        return len(gaps) > 1 and all(np.abs(gap - gaps[0]).max() <= 1e-6 * size for gap in gaps)

    if alike([gap / (M - 1) for M, gap in wrong.items() if M > 1]) and len(wrong) == len(set(by_M) - {1}):
        return "the error is M - 1 times the same number: each part has a complete prior instead of 1/M of it"
    if len(wrong) == len(by_M) and alike(list(wrong.values())):
        return "the error is the same for every M: a term of the whole, such as the prior, is missing or has another factor"
    if n is not None and len(wrong) < len(by_M) - 1 and set(wrong) == {M for M in by_M if n % M}:
        return f"only if M does not divide n = {n}: the remaining rows are dropped"
    return (
        "a batch is in the sum twice or not at all, or the contribution of a row depends on the other rows of its batch, "
        "for example by a normalisation in the batch"
    )


def answered(split: Split, q: np.ndarray) -> None:
    """Raise SubjectError unless every part answers with a finite gradient."""
    for part in split.parts:
        value = part.gradient.vector((len(q),), q)
        if not np.isfinite(value).all():
            raise SubjectError(f"{part.gradient.name}: not finite", call_text(part.gradient.name, [q]))
