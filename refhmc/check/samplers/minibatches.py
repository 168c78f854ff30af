"""``refhmc.check.minibatch``: is a stochastic gradient unbiased, and is the noise of its sampler the one that fits its drift?

A minibatch gradient g(q, B) is an estimate of the full gradient G(q) whose mean over all batches is G(q). Where there are too
many batches, and g is a constant and a sum over the batch, the mean over any *balanced* set of batches (every index in as many
of them) is the same number: consecutive indices around a random circle, n batches of them.

A sampler's step with exact gradients on a Gaussian, G(q) = -P (q - m), is linear in its state x and in the normals w it asks:

    x' = A x + B w + b        whose stationary covariance S solves    S = A S A' + B B'

and the block of q in S must become P^-1 as eps becomes 0 (at a finite eps it is off by the bias of the discretisation). For
Langevin steps q' = q + C G(q) + B w that says B B' = 2 C: drift eps/2 with noise of variance eps, or eps with 2 eps. With a
friction, p' = p + eps G - eps F p + B w, that B B' = 2 eps F. Welling and Teh (2011); Chen, Fox and Guestrin (2014).

Of a split posterior the parts: :mod:`refhmc.check.samplers.parts`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from refhmc.check.arguments import require_counts
from refhmc.check.examination import Examination
from refhmc.check.judging import Cases, Measured, judged, passed
from refhmc.check.report import FAIL, Report, Row
from refhmc.check.samplers import parts as of_parts
from refhmc.check.subject.answers import read_phase_point
from refhmc.check.subject.draws import Draws
from refhmc.check.subject.foreign import (
    SECONDS_PER_CALL,
    Foreign,
    Inconclusive,
    NotApplicable,
    SubjectError,
    call_text,
    text_of,
)
from refhmc.check.subject.shapes import CallShape, first_working, wants_generator

MOST_BATCHES = 2_000
SHRINK = 4.0  # of the step size, from one look at the stationary law to the next
LOOKS = 4


def minibatch(
    gradient: Callable | None = None,
    full: Callable | None = None,
    n: int | None = None,
    batch_size: int | None = None,
    *,
    parts: Any = None,
    dim: int | None = None,
    step: Callable | None = None,
    eps: float = 0.02,
    precision: Any = None,
    points: Sequence | None = None,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Whether the mean of ``gradient`` over the batches is ``full``, whether ``parts`` add up to it, and whether ``step`` has
    the right noise.

    gradient : ``gradient(q, indices) -> (dim,)``, the estimate from the data ``indices`` (batch_size,), whole numbers.
    full : ``full(q) -> (dim,)``, the gradient of the log posterior, or what has it as ``gradient``. n, batch_size : numbers of
        data, of a batch's.
    parts : of a split posterior, in sum ``full``: a list, what has one as ``parts`` (``model.split(5)``), or a function of
        their number (``model.split``), of which the sums must not depend on it. A part is a function q -> (dim,), the gradient
        of its log density; a pair (log density, gradient); or what has both by these names.
    step : ``step(draws, q, eps) -> q`` with exact gradients of a Gaussian, its normals asked from draws
        (:class:`refhmc.check.Draws`, or NumPy's generator); ``step(draws, q, p, eps) -> (q, p)`` for one with momentum. The
        Gaussian's precision is ``precision`` (dim, dim), or read off ``full``.
    dim : left out, it is that of ``points`` or ``precision``, or found by trying. eps : the largest step looked at.

    Raises TypeError if there is nothing to check, ValueError on impossible sizes.
    """
    require_counts(dim=dim)
    if gradient is None and step is None and parts is None:
        raise TypeError("minibatch: gradient, parts or step must be given")
    if gradient is not None and (full is None or n is None or batch_size is None):
        raise TypeError("minibatch: gradient needs full, n and batch_size")
    if gradient is not None and not 1 <= int(batch_size or 0) <= int(n or 0):
        raise ValueError(f"batch_size must be from 1 to n, got {batch_size!r} of {n!r}")
    test = MinibatchExamination(
        gradient, full, n, batch_size, parts, dim, step, eps, precision, points, seed, like, name
    )
    given = {"n": n, "batch_size": batch_size, "dim": dim}
    test.settings = {key: value for key, value in given.items() if value is not None}
    return test.report(
        "minibatch",
        [
            ("answers", MinibatchExamination.answers),
            ("no memory", MinibatchExamination.no_memory),
            ("mean over batches", MinibatchExamination.mean),
            ("the whole as one batch", MinibatchExamination.of_all),
            ("sum of the parts", MinibatchExamination.sum_of_parts),
            ("sum of the potentials", MinibatchExamination.sum_of_potentials),
            ("gradients of the parts", MinibatchExamination.gradients_of_parts),
            ("linear in state and noise", MinibatchExamination.linear),
            ("stationary law as eps -> 0", MinibatchExamination.stationary),
        ],
        diagnose=MinibatchExamination.diagnose,
        seconds_per_call=seconds_per_call,
    )


class Recursion(NamedTuple):
    """x' = A x + B w + b."""

    A: np.ndarray
    B: np.ndarray


def all_batches(n: int, size: int) -> Iterator[np.ndarray]:
    """Every batch once."""
    return (np.array(batch) for batch in itertools.combinations(range(n), size))


def balanced_batches(n: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """n batches in which every index is ``size`` times: neighbours on a random circle."""
    circle = rng.permutation(n)
    return (circle[(k + np.arange(size)) % n] for k in range(n))


def _name(given: Any) -> str:
    """What a subject is called."""
    return str(getattr(given, "name", None) or getattr(given, "__qualname__", type(given).__name__))


class MinibatchExamination(Examination):
    """One stochastic gradient, the parts of a split, one step, or several of these, under examination."""

    def __init__(
        self,
        gradient: Any,
        full: Any,
        n: Any,
        batch_size: Any,
        parts: Any,
        dim: int | None,
        step: Any,
        eps: Any,
        precision: Any,
        points: Any,
        seed: int,
        like: Any,
        name: Any,
    ) -> None:
        self.gradient = None if gradient is None else Foreign(gradient, name, like)
        self.whole = None if full is None else of_parts.part_of(full, _name(full), like)
        self.full = None if self.whole is None else self.whole.gradient
        refusals: list[str] = []
        self.splits = [] if parts is None else of_parts.splits_of(parts, n, like, refusals)
        self.off: dict[int, list[np.ndarray]] = {}  # by how much the sums of M parts are off
        self.excluded = ""  # why its values say nothing, if not empty
        self.step = None if step is None else Foreign(step, name if gradient is None else None, like)
        self.n, self.size = (0 if n is None else int(n)), (0 if gradient is None else int(batch_size))
        first = self.gradient or self.step
        title = (name or f"the split of {_name(parts)}") if first is None else first.name
        of_splits = [f for split in self.splits for part in split.parts for f in part if f is not None]
        ours = [self.gradient, self.full, self.whole and self.whole.density, self.step]
        super().__init__(title, [*(f for f in ours if f is not None), *of_splits], seed)
        self.notes += refusals
        self.eps = float(eps)
        self.precision = None if precision is None else np.atleast_2d(np.asarray(precision, dtype=float))
        self.points = [] if points is None else [np.atleast_1d(np.asarray(q, dtype=float)) for q in points]
        self.dim: int | None = dim if dim is not None else len(self.points[0]) if self.points else None
        if self.dim is None and self.precision is not None:
            self.dim = len(self.precision)
        if self.dim is None:
            self.dim = getattr(parts, "dim", None) or getattr(getattr(parts, "__self__", None), "dim", None)
        self.generator = False
        self.ratio: float | None = None
        self.noise: float | None = None

    def _dim(self) -> int:
        if self.dim is None:
            functions = [f for f in (self.full, self.gradient) if f is not None]
            functions += [part.gradient for split in self.splits[:1] for part in split.parts]
            try:
                self.dim = first_working(range(1, 33), self._answers_in, *functions)[0]
            except SubjectError:
                raise Inconclusive("the dimension is not known: give dim") from None
        return int(self.dim)

    def _answers_in(self, d: int) -> None:
        """SubjectError unless both gradients answer in ``d`` dimensions."""
        if self.full is not None:
            self.full.vector((d,), np.full(d, 0.3))
        if self.gradient is not None:
            self.gradient.vector((d,), np.full(d, 0.3), np.arange(self.size))
        for split in self.splits[:1]:
            of_parts.answered(split, np.full(d, 0.3))

    def _test_points(self) -> list[np.ndarray]:
        rng, d = np.random.default_rng([self.seed, 1]), self._dim()
        return [*self.points, *(np.round(s * rng.standard_normal(d), 3) for s in (0.3, 1.0, 2.0))][:4]

    # ---- the gradient

    def _need(self) -> None:
        if self.gradient is None:
            raise NotApplicable("no stochastic gradient was given")
        if self.excluded:
            raise NotApplicable(self.excluded)

    def _estimate(self, q: np.ndarray, batch: np.ndarray) -> np.ndarray:
        assert self.gradient is not None
        return self.gradient.vector((self._dim(),), q, batch)

    def _truth(self, q: np.ndarray) -> np.ndarray:
        if self.full is None:
            raise NotApplicable("no full gradient was given")
        return self.full.vector((self._dim(),), q)

    @property
    def unit(self) -> float:
        """The unit of rounding of the gradients."""
        return max((f.epsilon for f in (self.gradient, self.full) if f is not None), default=2.0**-52)

    def answers(self) -> Row:
        if self.gradient is None and not self.splits:
            raise NotApplicable("no stochastic gradient was given")
        batch = np.arange(self.size)
        for q in self._test_points():
            for split in self.splits:
                of_parts.answered(split, q)
            if self.gradient is not None and not np.isfinite(self._estimate(q, batch)).all():
                raise SubjectError(f"{self.title}: not finite", call_text(self.title, [q, batch]))
        return passed()

    def no_memory(self) -> Row:
        """A function of q and the batch, or of q: whatever was asked in between."""
        d, rng = self._dim(), np.random.default_rng([self.seed, 5])
        asked = []

        def question(f: Foreign, shape: tuple[int, ...], *arguments: np.ndarray) -> of_parts.Question:
            return of_parts.Question(call_text(f.name, arguments), functools.partial(f.vector, shape, *arguments), f)

        for q in self._test_points()[:3]:
            if self.gradient is not None:
                batches = [rng.permutation(self.n)[: self.size] for _ in range(3)]
                asked += [question(self.gradient, (d,), q, batch) for batch in batches]
            for part in (part for split in self.splits[-2:] for part in split.parts):
                asked.append(question(part.gradient, (d,), q))
                if part.density is not None:
                    asked.append(question(part.density, (), q))
        if not asked:
            raise NotApplicable("no stochastic gradient was given")
        try:
            row = of_parts.memory(asked, not self.splits, self.seed)
        except Inconclusive:
            self.excluded = "it is not the same twice"
            raise
        self.excluded = "its answer depends on more than its arguments" if row.status == FAIL else ""
        return row

    # ---- the parts

    def _need_parts(self) -> None:
        if not self.splits:
            raise NotApplicable("no parts were given")
        if self.excluded:
            raise NotApplicable(self.excluded)

    def sum_of_parts(self) -> Cases:
        self._need_parts()
        return of_parts.sums(self.splits, self.whole, self._test_points(), self.off)

    def sum_of_potentials(self) -> Cases:
        self._need_parts()
        return of_parts.sums_of_potentials(self.splits, self.whole, self._test_points())

    def gradients_of_parts(self) -> Row:
        self._need_parts()
        return of_parts.of_their_own(self.splits, self._test_points(), self.seed)

    # ---- a batch's estimate

    def _mean(self, q: np.ndarray, batches: Iterable[np.ndarray]) -> tuple[np.ndarray, float]:
        """Mean, and the size of what was summed."""
        values = np.array([self._estimate(q, batch) for batch in batches])
        return values.mean(axis=0), float(np.abs(values).max())

    def mean(self) -> Cases:
        """Over all batches, or over balanced sets of them, the mean gradient is the whole one."""
        self._need()
        rng = np.random.default_rng([self.seed, 2])
        number = math.comb(self.n, self.size)
        for q in self._test_points():
            truth = self._truth(q)
            sets = [all_batches(self.n, self.size)]
            if number > MOST_BATCHES:
                sets = [balanced_batches(self.n, self.size, rng) for _ in range(2)]
            means, sizes = zip(*(self._mean(q, batches) for batches in sets), strict=True)
            tolerance = 16 * self.unit * math.sqrt(self.n) * (max(sizes) + float(np.abs(truth).max()))
            if np.abs(means[0] - means[-1]).max() > tolerance:
                why = "balanced sets of batches have different means, and there are too many batches to try all"
                raise Inconclusive(
                    f"it is no sum over the batch, what a datum gives depending on the others: {why} {number:.3g}; "
                    "give a smaller n, or batch_size"
                )
            error = float(np.abs(means[0] - truth).max())
            if error > tolerance and np.abs(truth).max() > 0:
                ratio = float(means[0] @ truth / (truth @ truth))
                same = np.abs(means[0] - ratio * truth).max() <= 1e-6 * np.abs(means[0]).max()
                self.ratio = ratio if same else self.ratio
            case = f"mean of {self.title}({text_of(q)}, batch): {means[0].tolist()}, full: {truth.tolist()}"
            yield Measured(error, tolerance, case)
        which = "all" if number <= MOST_BATCHES else f"{self.n} balanced"
        return f"{which} batches against full; 16 sqrt(n) units of rounding"

    def _additive(self) -> bool:
        """Whether to exchange one datum for another changes the gradient by the same, whatever else is in the batch."""
        if self.size < 2 or self.n < self.size + 2:
            return True
        q, others = self._test_points()[0], np.arange(2, self.n)
        changes = [
            self._estimate(q, np.append(rest, 0)) - self._estimate(q, np.append(rest, 1))
            for rest in (others[: self.size - 1], others[1 - self.size :])
        ]
        size = max(float(np.abs(change).max()) for change in changes)
        return float(np.abs(changes[0] - changes[1]).max()) <= 1e-6 * size

    def of_all(self) -> Row:
        """A batch of all the data gives the gradient itself."""
        self._need()
        q = self._test_points()[-1]
        try:
            value, truth = self._estimate(q, np.arange(self.n)), self._truth(q)
        except SubjectError:
            raise NotApplicable("it takes batches of one size only") from None
        allowed = 16 * self.unit * self.n * float(np.abs(truth).max() + np.abs(value).max())
        error = float(np.abs(value - truth).max())
        if error > allowed:
            raise NotApplicable("it is scaled for batches of batch_size")
        return passed("rounding", error, allowed)

    # ---- the step

    def _precision(self) -> np.ndarray:
        d = self._dim()
        if self.precision is not None:
            return self.precision
        zero = self._truth(np.zeros(d))
        columns = np.array([self._truth(e) - zero for e in np.eye(d)]).T
        rng = np.random.default_rng([self.seed, 3])
        x = rng.standard_normal(d)
        size = np.abs(columns).max() * np.abs(x).max() + np.abs(zero).max()
        if np.abs(self._truth(x) - zero - columns @ x).max() > 1e-9 * size:
            why = "full is not the gradient of a Gaussian"
            raise Inconclusive(f"{why}: give precision, that of the Gaussian that step samples")
        if np.abs(columns - columns.T).max() > 1e-9 * np.abs(columns).max() or np.linalg.eigvalsh(-columns)[0] <= 0:
            raise Inconclusive("full is not the gradient of a proper Gaussian: give precision")
        return -0.5 * (columns + columns.T)

    def _move(self, x: np.ndarray, w: np.ndarray, eps: float) -> tuple[np.ndarray, int]:
        """One step from the state x on the normals w, and how many it asked for."""
        if self.step is None:
            raise NotApplicable("no step was given")
        d = self._dim()
        draws = Draws(np.random.default_rng(self.seed), {"normal": w})
        q, p = x[:d], x[d:] if len(x) > d else None
        answer = CallShape(("draws", "q", "p", "eps"), generator=self.generator).call(
            self.step, draws=draws, q=q, p=p, eps=eps
        )
        if p is None:
            return self.step.array(answer, (d,), "the answer", (q, eps)), draws.count("normal")
        return np.concatenate(read_phase_point(self.step, answer, (d,), (q, p, eps))[:2]), draws.count("normal")

    def _states(self) -> int:
        """1, or 2 for a step with momentum."""
        if self.step is None:
            raise NotApplicable("no step was given")
        d, wants = self._dim(), wants_generator(self.step.function)

        def works(attempt: tuple[bool, int]) -> None:
            self.generator, count = attempt
            self._move(np.zeros(count * d), np.zeros(64 * d), self.eps)

        (_, count), _ = first_working(itertools.product((wants, not wants), (1, 2)), works, self.step)
        return count

    def _recursion(self, eps: float) -> tuple[Recursion, float]:
        """A and B at this step size, and how far the step is from linear, in units of what it moves."""
        m = self._states() * self._dim()
        still, asked = self._move(np.zeros(m), np.zeros(64 * m), eps)
        w0 = np.zeros(64 * m)
        A = np.array([self._move(e, w0, eps)[0] - still for e in np.eye(m)]).T
        B = np.array([self._move(np.zeros(m), e, eps)[0] - still for e in np.eye(64 * m)[:asked]]).reshape(asked, m).T
        rng = np.random.default_rng([self.seed, 4])
        x, w = rng.standard_normal(m), rng.standard_normal(64 * m)
        miss = np.abs(self._move(x, w, eps)[0] - still - A @ x - B @ w[:asked]).max()
        return Recursion(A, B), float(miss / (1 + np.abs(B).max(initial=0.0)))

    def linear(self) -> Row:
        recursion, miss = self._recursion(self.eps)
        tolerance = 2.0**12 * (self.step.epsilon if self.step is not None else 2.0**-52)
        if not miss <= tolerance:
            why = f"the step is not linear in its state and its normals, by {miss:.2g}"
            raise Inconclusive(f"{why}: no exact law to compare with")
        if recursion.B.shape[1] == 0:
            raise Inconclusive("the step asks for no normals")
        return passed("2^12 units of rounding", miss, tolerance)

    def stationary(self) -> Row:
        """S at eps, eps/4, ...: its relative error must go to zero with eps."""
        d, P = self._dim() if self.step is not None else 0, None
        self.linear()
        P = self._precision()
        found: list[tuple[float, np.ndarray, float, Recursion]] = []
        eps = self.eps
        for _ in range(12):
            if len(found) == LOOKS:
                break
            recursion, _ = self._recursion(eps)
            radius = float(np.abs(np.linalg.eigvals(recursion.A)).max())
            if radius < 1:
                S = scipy.linalg.solve_discrete_lyapunov(recursion.A, recursion.B @ recursion.B.T)[:d, :d]
                root = np.linalg.cholesky(P)
                found.append((eps, root.T @ S @ root, 2.0**-52 / (1 - radius), recursion))
            elif found:
                break
            eps /= SHRINK
        if len(found) < 3:
            raise Inconclusive("the step has no stationary law at the step sizes tried: give a smaller eps")
        # Polynomial extrapolation to eps = 0; the last two extrapolates bound what is left of it.
        rows = [[f[1] for f in found]]
        for order in range(1, len(found)):
            last = rows[-1]
            rows.append([last[k + 1] + (last[k + 1] - last[k]) / (SHRINK**order - 1) for k in range(len(last) - 1)])
        limit = rows[-1][0]
        left = float(np.abs(limit - rows[-2][-1]).max()) + float(np.abs(limit - rows[-2][0]).max())
        unit = (self.step.epsilon if self.step is not None else 2.0**-52) / 2.0**-52
        rounding = 64 * unit * d * found[-1][2] * (1 + float(np.abs(limit).max()))
        error = float(np.abs(limit - np.eye(d)).max())
        self._say(found, P, d)
        tolerance = 10 * left + rounding
        if tolerance > 0.05:
            raise Inconclusive(f"the extrapolation to eps = 0 is good to {tolerance:.2g} only: give a smaller eps")
        self.noise = float(np.trace(limit) / d)
        basis = "covariance x precision - 1, from the exact recursion at four step sizes; ten times the extrapolation's error"
        seen = f"covariance {np.round(limit, 6).tolist()} in units of the target's"
        return judged(error, tolerance, basis, f"{self.step.name if self.step else ''}: {seen}")

    def _say(self, found: list[tuple[float, np.ndarray, float, Recursion]], P: np.ndarray, d: int) -> None:
        eps, S, _, recursion = found[0]
        self.notes.append(f"at eps = {eps:g} the covariance is off by {np.abs(S - np.eye(d)).max():.2g}, relative")
        if recursion.A.shape == (d, d):
            drift = (np.eye(d) - recursion.A) @ np.linalg.inv(P)
            noise = recursion.B @ recursion.B.T
            of_drift, of_noise = (f"{np.trace(x) / d / eps:.4g} eps" for x in (drift, noise))
            self.notes.append(f"drift {of_drift}, noise of variance {of_noise}")

    def diagnose(self, rows: dict[str, Row]) -> list[str]:
        """What the failures are typical of, in words."""
        notes = []
        if rows["mean over batches"].status == FAIL:
            what = {
                "it is scaled by n / N where N / n belongs": (self.size / self.n) ** 2,
                "it is not scaled up from the batch to the data": self.size / self.n,
                "it is a mean over the data where the sum belongs": 1 / self.n,
                "it is scaled by N where N / n belongs": float(self.size),
            }
            close = [t for t, r in what.items() if self.ratio is not None and abs(self.ratio / r - 1) < 1e-4]
            other = "the sum over the batch is scaled wrongly, or the prior is scaled with it or counted twice"
            alone = (
                "what a datum gives depends on the others of its batch, as it does with a normalisation over the batch"
            )
            notes.append(close[0] if close else other if self._additive() else alone)
        if rows["sum of the parts"].status == FAIL:
            notes.append(of_parts.typical(self.off, self.n or None))
        if rows["stationary law as eps -> 0"].status == FAIL:
            notes.append(
                f"the variance is {self.noise:.3g} times the target's: the noise must have the variance of twice the drift's "
                "coefficient (drift eps/2 and noise sqrt(eps), or eps and sqrt(2 eps); twice friction times eps)"
            )
        return notes
