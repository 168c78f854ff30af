"""Exact distribution of a kernel's end point, from all answers to its random questions.

    K(end | start) = sum of P(answers) over the sequences of answers that lead from start to end

A kernel calls :class:`Answers` as it would call :class:`refhmc.check.Draws`, or NumPy's generator. Sequences are tried depth
first, and each question splits the rest:

    flip, choice, permutation    one branch per answer, with the requested probabilities
    uniform, exponential         an :class:`Uncertain` number (``undecided.py``), undecided until it is compared:
                                 ``u < t`` splits its interval at t, also through log, exp, sums and products with constants
    a number that is read        (``float(u)``, ``np.sin(u)``): the distribution of the rest is a piecewise constant function
                                 of the value. Its breakpoints are found by bisection between values that differ on some
                                 sequence of later answers, on that sequence; all are compared

K therefore only has rounding error, however the kernel uses its randomness. Sequences less probable than a stated limit
are left out, and their total probability is known.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from refhmc.check.subject.budget import Budget
from refhmc.check.subject.draws import MOST_LISTED, Draws, Unscripted
from refhmc.check.subject.foreign import Inconclusive, SubjectError
from refhmc.check.subject.undecided import Interval, Uncertain, log, names_from_math, undecided_in_math

LEFT_OUT = "left out"  # the end of a sequence with a probability below the limit
MOST_QUESTIONS = 300
MOST_PIECES = 100
MOST_PERMUTED = 6  # largest number of items of which all orders are tried
WITHIN = 0.618  # relative position of the first value that is tried in an interval


class OutOfBudget(Exception):
    """The distribution has more sequences than the time or the number of runs allows."""


class _Departed(BaseException):
    """A replayed sequence of answers at which the kernel now asks another question."""


class _LeftOut(BaseException):
    """The current sequence is less probable than the limit."""


class Node(NamedTuple):
    """A question with its ``kind``, the log probabilities of its answers, and the ``answer`` given.

    For a number that was read (``kind`` "value") the two numbers are the ends of its interval, and the answer is its value.
    """

    kind: str
    log_p: tuple[float, ...]
    answer: Any


class Answers(Draws):
    """Randomness that follows the answers of ``prefix`` and takes the most probable answer to every further question.

    ``trail`` has the questions, ``log_p`` the log probability of the answers so far. ``normals`` is the momentum of a kernel
    that draws its own. With ``symbolic=False``, uniforms are numbers from the start.
    """

    def __init__(
        self, prefix: Sequence = (), normals: Sequence[float] = (), floor: float = -math.inf, symbolic: bool = True
    ) -> None:
        super().__init__(None, {"normal": list(normals)})
        self.prefix, self.floor, self.symbolic = prefix, floor, symbolic
        self.trail: list[Node] = []
        self.log_p = 0.0
        self.refused = ""

    def split(self, kind: str, log_p: Sequence[float]) -> int:
        """Return the branch to take here; the others are left for later runs."""
        k = len(self.trail)
        if k < len(self.prefix):
            answer = self.prefix[k]
            if isinstance(answer, float) or answer >= len(log_p):
                raise _Departed
        else:
            answer = max(range(len(log_p)), key=log_p.__getitem__)
        self.trail.append(Node(kind, tuple(log_p), answer))
        self.log_p += log_p[answer]
        if self.log_p < self.floor or k > MOST_QUESTIONS:
            raise _LeftOut
        return answer

    def value(self, lo: float, hi: float) -> float:
        k = len(self.trail)
        if k < len(self.prefix):
            answer = self.prefix[k]
            if not isinstance(answer, float) or not lo <= answer < hi:
                raise _Departed
        else:
            answer = lo + WITHIN * (hi - lo)
        self.trail.append(Node("value", (lo, hi), answer))
        if k > MOST_QUESTIONS:
            raise _LeftOut
        return answer

    def _refuse(self, why: str) -> NoReturn:
        self.refused = why
        raise Inconclusive(why)

    def _vector(self, kind: str, n: Any, fresh: Callable) -> Any:
        if kind == "exponential":
            if n is None:
                return self._exponential()
            return np.array([float(self._exponential()) for _ in range(int(n))])
        if len(self.script["normal"]) < (1 if n is None else int(n)):
            self._refuse("the kernel draws normals in addition to the momentum, which cannot be enumerated")
        return super()._vector(kind, n, fresh)

    def _exponential(self) -> Any:
        # -log u, not -log(1 - u): exact far in the tail
        u = Uncertain(Interval(self))
        return -u.log() if self.symbolic else float(-u.log())

    def uniform(self) -> Any:
        """Return a uniform number in [0, 1) that stays undecided as long as possible."""
        u = Uncertain(Interval(self))
        return u if self.symbolic else float(u)

    def flip(self, log_p: float) -> bool:
        log_p = float(log_p)
        if math.isnan(log_p) or log_p == -math.inf:
            return False
        if log_p >= 0:
            return True
        rest = math.log(-math.expm1(log_p)) if log_p > -0.6931 else math.log1p(-math.exp(log_p))
        return self.split("flip", (log_p, rest)) == 0

    def choice(self, p: Any) -> int:
        if np.ndim(p) == 0 and int(p) > MOST_LISTED:
            self._refuse(f"the kernel draws one of {int(p)} integers, such as a seed: too many to enumerate")
        weights = np.full(int(p), 1.0) if np.ndim(p) == 0 else np.asarray(p, dtype=float)
        total = weights.sum()
        if not np.isfinite(weights).all() or (weights < 0).any() or not total > 0:
            raise ValueError(f"p of choice must be probabilities; got {weights.tolist()}.")
        if np.ndim(p) and abs(total - 1) > 1e-6:
            raise ValueError(f"p of choice must sum to 1; got a sum of {total:.9g}.")
        return self.split("choice", tuple(log(w / total) for w in weights))

    def permutation(self, n: int) -> np.ndarray:
        if n > MOST_PERMUTED:
            self._refuse(f"the kernel draws a permutation of {n} items: too many to enumerate")
        orders = list(itertools.permutations(range(int(n))))
        return np.array(orders[self.split("permutation", (-math.log(len(orders)),) * len(orders))])


class Run(NamedTuple):
    """One run of the kernel: its end and its questions."""

    end: Any
    trail: tuple[Node, ...]


class Leaf(NamedTuple):
    """The ``answers`` after some point of a sequence, the ``end`` they lead to, and their probability ``p`` from there on.

    For a number that was read the answer is the least value of its piece; ``upper`` are the answers with the largest value.
    ``seen`` is the :func:`_signature` of the run.
    """

    answers: tuple
    end: Any
    p: float
    upper: tuple = ()
    seen: tuple = ()


def _signature(run: Run) -> tuple:
    """Return the observable result of a run: its end, and all questions with their probabilities."""
    return run.end, tuple((node.kind, tuple(round(x, 7) for x in node.log_p)) for node in run.trail)


def law_of(leaves: Sequence[Leaf]) -> dict:
    """Return the probability of each end."""
    parts: dict[Any, list[float]] = {}
    for leaf in leaves:
        parts.setdefault(leaf.end, []).append(leaf.p)
    return {end: math.fsum(p) for end, p in parts.items()}


def _after(answer: Any, upper: Any, p: float, leaf: Leaf) -> Leaf:
    """Return the leaf with one more answer in front."""
    return leaf._replace(answers=(answer, *leaf.answers), upper=(upper, *leaf.upper), p=p * leaf.p)


class Enumerator:
    """Distributions of ``kernel(answers, start) -> end`` for comparable and hashable ends.

    ``floor`` is the log of the least probability that is followed. With ``thorough`` the pieces of a number that was
    read are compared in more places, which takes several times as many runs. ``subject`` is the author's function, if that is
    not ``kernel``.
    """

    def __init__(
        self,
        kernel: Callable,
        make: Callable = Answers,
        floor: float = -46.0,
        thorough: bool = False,
        subject: Callable | None = None,
    ) -> None:
        self.kernel, self.make, self.floor, self.thorough = kernel, make, floor, thorough
        self.names = names_from_math(subject or kernel)
        self.runs = 0
        self.budget = Budget()
        self.most_runs: float = math.inf
        self.breaks = [0.5]  # breakpoints of numbers read so far, which often recur
        self.read_values = False
        self.start: Any = None

    def law(self, start: Any) -> list[Leaf]:
        """Return all sequences from ``start``; OutOfBudget beyond ``budget`` or ``most_runs``."""
        self.start = start
        return self._leaves((), None)

    def run(self, start: Any, answers: tuple) -> Run:
        """Return one run on given answers."""
        if self.runs >= self.most_runs or self.budget.over():
            raise OutOfBudget
        self.runs += 1
        source = self.make(answers, floor=self.floor)
        try:
            with undecided_in_math(self.names):
                end = self.kernel(source, start)
        except SubjectError as wrong:
            cause = wrong.__cause__
            if isinstance(cause, _LeftOut):
                end = LEFT_OUT
            elif isinstance(cause, _Departed):
                end = "departed"
            elif source.refused:
                raise Inconclusive(source.refused) from None
            elif isinstance(cause, Unscripted):
                raise Inconclusive(
                    f"the kernel calls {cause} of NumPy's generator, which cannot be enumerated"
                ) from None
            else:
                raise
        return Run(end, tuple(source.trail))

    def _leaves(self, prefix: tuple, run: Run | None) -> list[Leaf]:
        run = self.run(self.start, prefix) if run is None else run
        k = len(prefix)
        if run.end == "departed" or len(run.trail) < k:
            raise Inconclusive("the same answers led to other questions: the kernel has randomness of its own")
        if len(run.trail) == k:
            return [Leaf((), run.end, 1.0, (), _signature(run))]
        node = run.trail[k]
        if node.kind == "value":
            self.read_values = True
            return self._pieces(prefix, *node.log_p)
        found = []
        for option, log_p in enumerate(node.log_p):
            if log_p == -math.inf:
                continue
            below = self._leaves((*prefix, option), run if option == node.answer else None)
            p = math.exp(log_p)
            found += [_after(option, option, p, leaf) for leaf in below]
        return found

    # ------------------------------------------------------------------------------------------ numbers that were read

    def _pieces(self, prefix: tuple, lo: float, hi: float) -> list[Leaf]:
        """Return the leaves below a number that was read, for each interval on which the distribution is constant."""
        first = lo if lo > 0 else 1e-18 * hi
        last = math.nextafter(hi, lo)
        at_first = self._leaves((*prefix, first), None)
        found = [(lo, first, at_first), *self._between(prefix, first, at_first, last, 0)]
        leaves = []
        for (begin, value, below), end in zip(found, [*(piece[0] for piece in found[1:]), hi], strict=True):
            p, upper = (end - begin) / (hi - lo), math.nextafter(end, lo)
            leaves += [_after(value, upper, p, leaf) for leaf in below]
        return leaves

    def _between(self, prefix: tuple, a: float, at_a: list[Leaf], b: float, count: int) -> list[tuple]:
        """Return the breakpoints in (a, b], each as (position, a value there, the leaves from there on)."""
        if count > MOST_PIECES:
            raise Inconclusive("the end point depends continuously on a uniform number: is the step size random?")
        path = self._told_apart(prefix, at_a, b)
        if path is None:
            for inside in self._places(a, b):
                if self._told_apart(prefix, at_a, inside) is not None:
                    left = self._between(prefix, a, at_a, inside, count + 1)
                    at_inside = left[-1][2] if left else at_a
                    return left + self._between(prefix, inside, at_inside, b, count + 1 + len(left))
            return []
        before, c = self._break(prefix, a, b, path)
        left = self._between(prefix, a, at_a, before, count + 1)
        at_c = self._leaves((*prefix, c), None)
        return [*left, (c, c, at_c), *self._between(prefix, c, at_c, b, count + 1 + len(left))]

    def _places(self, a: float, b: float) -> list[float]:
        inside = (0.47, 0.27, 0.81, 0.11, 0.93) if self.thorough else (0.47,)
        return [a + x * (b - a) for x in inside if a < a + x * (b - a) < b]

    def _seen(self, prefix: tuple, value: float, path: tuple) -> tuple:
        return _signature(self.run(self.start, (*prefix, value, *path)))

    def _told_apart(self, prefix: tuple, leaves: Sequence[Leaf], value: float) -> tuple | None:
        """Return later answers for which the run at ``value`` differs from that of the ``leaves``, or None.

        All sequences are tried, since the most probable ones often end at the start whatever the number is. A breakpoint of a
        later number that moved up shows at the least value of the piece above it; one that moved down shows at the largest
        value of the piece below.
        """
        for leaf in sorted(leaves, key=lambda leaf: -leaf.p):
            for path in dict.fromkeys((leaf.answers, leaf.upper)):
                if self._seen(prefix, value, path) != leaf.seen:
                    return path
        return None

    def _break(self, prefix: tuple, a: float, b: float, path: tuple) -> tuple[float, float]:
        """Return two neighbouring numbers between which the run on ``path`` starts to differ from the run at ``a``."""
        wanted = self._seen(prefix, a, path)

        @functools.cache
        def like_a(u: float) -> bool:
            return self._seen(prefix, u, path) == wanted

        known = self.breaks[bisect.bisect_right(self.breaks, a) : bisect.bisect_left(self.breaks, b)]
        lo, hi = a, b
        while known:
            k = len(known) // 2
            if like_a(known[k]):
                lo, known = known[k], known[k + 1 :]
            else:
                hi, known = known[k], known[:k]
        for below, above in ((math.nextafter(hi, 0), hi), (lo, math.nextafter(lo, 1))):
            if lo <= below and above <= hi and like_a(below) and not like_a(above):
                return below, above
        while True:
            middle = math.sqrt(lo * hi) if 0 < 4 * lo < hi else 0.5 * (lo + hi)
            if not lo < middle < hi:
                break
            if like_a(middle):
                lo = middle
            else:
                hi = middle
        bisect.insort(self.breaks, hi)
        return lo, hi
