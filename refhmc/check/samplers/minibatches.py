"""``check.minibatch``: whether a stochastic gradient is unbiased, and a sampler's noise fits its drift.

A minibatch gradient g(q, B) is an estimate of the full gradient G(q). Its mean over all batches must be G(q). If there are too
many batches, and g is a constant plus a sum over the batch, the mean over any *balanced* set of batches (every index in equally
many of them) is the same number: consecutive indices around a random circle, n batches of them.

A sampler's step with exact gradients of a Gaussian, G(q) = -P (q - m), is linear in its state x and its normal numbers w:

    x' = A x + B w + b        whose stationary covariance S solves    S = A S A' + B B'

and the block of q in S must become P^-1 as eps becomes 0 (at a finite eps it is off by the bias of the discretisation). For
Langevin steps q' = q + C G(q) + B w this means B B' = 2 C: drift eps/2 with noise of variance eps, or eps with 2 eps. With
friction, p' = p + eps G - eps F p + B w, it means B B' = 2 eps F. Welling and Teh (2011); Chen, Fox and Guestrin (2014).

The parts of a split posterior are examined in :mod:`refhmc.check.samplers.parts`.
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
SHRINK = 4.0  # factor of the step size between two computations of the stationary distribution
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
    """Check stochastic gradients, the parts of a split posterior, and the noise of stochastic-gradient samplers.

    The main rows of the report verify::

        mean over batches            E g(q, B) = G(q), exactly, over all batches or balanced sets of them
        sum of the parts             sum_m grad log p_m(q) = G(q), for every number M of parts
        stationary as eps -> 0       the covariance S = A S A' + B B' of x' = A x + B w + b tends to P^-1

    The last row is for a step with exact gradients of a Gaussian with precision P. Langevin steps need noise of variance twice
    the drift's coefficient: drift eps/2 and noise sqrt(eps), or eps and sqrt(2 eps). With friction F the variance is 2 eps F.

    The check finds wrong scales of batch or prior, dropped or repeated rows, a normalisation within the batch, state between
    calls, and wrong noise. It does not examine the discretisation bias at finite eps, nor noise of the minibatch gradients. All
    rows are deterministic: correct code passes with every seed. Give `gradient`, `parts`, `step` or several of them.

    Parameters
    ----------
    gradient : callable, optional
        ``gradient(q, indices)`` returns the estimate of shape (dim,) from the data `indices`, an integer array of shape
        (batch_size,). Needs `full`, `n` and `batch_size`.
    full : callable or object, optional
        ``full(q)`` returns the gradient of the log posterior, of shape (dim,); or an object with ``gradient``.
    n : int, optional
        Number of data.
    batch_size : int, optional
        Number of data per batch.
    parts : sequence, object or callable, optional
        Parts whose sum is `full`: a sequence, an object with ``parts`` (``model.split(5)``), or a function of their number
        (``model.split``), whose sums must not depend on it. A part is a function q -> (dim,), the gradient of its log density;
        a pair (log density, gradient); or an object with ``log_density`` and ``gradient``.
    dim : int, optional
        Dimension of q; by default taken from `points` or `precision`, or found by trying.
    step : callable, optional
        ``step(draws, q, eps) -> q`` with exact gradients of a Gaussian, or ``step(draws, q, p, eps) -> (q, p)`` with momentum.
        It takes normal numbers from `draws`, a :class:`Draws` or a NumPy generator.
    eps : float, default 0.02
        Largest step size of `step`.
    precision : array_like, shape (dim, dim), optional
        Precision of the Gaussian; by default computed from `full`.
    points : sequence of array_like, shape (dim,), optional
        Points of the examination, in addition to random ones.
    seed : int, default 20261121
        Seed of points and batches.
    like : callable, module or array, optional
        Array type of the arguments: a conversion function, a module with ``asarray``, or an example array. NumPy float64 by
        default.
    name : str, optional
        Name of the subject in the report.
    seconds_per_call : float or None, default 30.0
        A call that takes longer is a FAIL. None means no limit.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    TypeError
        If there is nothing to check, or `gradient` is given without `full`, `n` and `batch_size`.
    ValueError
        If `batch_size`, `dim` or `parts` is invalid.

    References
    ----------
    Welling and Teh (2011), "Bayesian learning via stochastic gradient Langevin dynamics".
    Chen, Fox and Guestrin (2014), "Stochastic gradient Hamiltonian Monte Carlo".
    Cobb and Jalaian (2021), "Scaling Hamiltonian Monte Carlo inference for Bayesian neural networks with symmetric splitting",
    eq. (6).

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([0.3, -1.2, 0.8, 0.1, 2.0])
    >>> def full(q):  # y_i ~ N(q, 1), q ~ N(0, 1)
    ...     return np.sum(y - q, keepdims=True) - q
    >>> def estimate(q, indices):
    ...     return len(y) / len(indices) * np.sum(y[indices] - q, keepdims=True) - q
    >>> refhmc.check.minibatch(estimate, full, 5, 2, dim=1).status
    'PASS'
    """
    require_counts(dim=dim)
    if gradient is None and step is None and parts is None:
        raise TypeError("gradient, parts or step must be given; got none of them.")
    if gradient is not None and (full is None or n is None or batch_size is None):
        raise TypeError("full, n and batch_size must be given if gradient is.")
    if gradient is not None and not 1 <= int(batch_size or 0) <= int(n or 0):
        raise ValueError(f"batch_size must be from 1 to n = {n!r}; got {batch_size!r}.")
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
            ("stationary as eps -> 0", MinibatchExamination.stationary),
        ],
        diagnose=MinibatchExamination.diagnose,
        seconds_per_call=seconds_per_call,
    )


class Recursion(NamedTuple):
    """Coefficients of x' = A x + B w + b."""

    A: np.ndarray
    B: np.ndarray


def all_batches(n: int, size: int) -> Iterator[np.ndarray]:
    """Return every batch once."""
    return (np.array(batch) for batch in itertools.combinations(range(n), size))


def balanced_batches(n: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Return n batches, neighbours on a random circle, in which every index occurs ``size`` times."""
    circle = rng.permutation(n)
    return (circle[(k + np.arange(size)) % n] for k in range(n))


def _name(given: Any) -> str:
    """Return the name of a subject."""
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
        self.off: dict[int, list[np.ndarray]] = {}  # errors of the sums of M parts
        self.excluded = ""  # reason why its values cannot be judged, if not empty
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
                raise Inconclusive("the dimension is unknown; pass dim") from None
        return int(self.dim)

    def _answers_in(self, d: int) -> None:
        """Raise SubjectError unless both gradients answer in ``d`` dimensions."""
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
        """Rounding unit of the gradients."""
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
        """Check that answers only depend on q and the batch, or on q, whatever was called in between."""
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
            self.excluded = "equal calls give different answers"
            raise
        self.excluded = "the answer does not only depend on the arguments" if row.status == FAIL else ""
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
        """Return the mean, and the size of the terms."""
        values = np.array([self._estimate(q, batch) for batch in batches])
        return values.mean(axis=0), float(np.abs(values).max())

    def mean(self) -> Cases:
        """Compare the mean gradient over all batches, or over balanced sets of them, with the full one."""
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
                    f"the gradient is not a sum over the batch, since the contribution of a datum depends on the others: {why} "
                    f"{number:.3g}; use a smaller n, or batch_size"
                )
            error = float(np.abs(means[0] - truth).max())
            if error > tolerance and np.abs(truth).max() > 0:
                ratio = float(means[0] @ truth / (truth @ truth))
                same = np.abs(means[0] - ratio * truth).max() <= 1e-6 * np.abs(means[0]).max()
                self.ratio = ratio if same else self.ratio
            case = f"mean of {self.title}({text_of(q)}, batch): {means[0].tolist()}, full: {truth.tolist()}"
            yield Measured(error, tolerance, case)
        which = "all" if number <= MOST_BATCHES else f"{self.n} balanced"
        return f"{which} batches compared with full; 16 sqrt(n) units of rounding"

    def _additive(self) -> bool:
        """Return whether exchanging one datum for another changes the gradient equally, whatever else is in the batch."""
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
        """Check that a batch of all data gives the full gradient."""
        self._need()
        q = self._test_points()[-1]
        try:
            value, truth = self._estimate(q, np.arange(self.n)), self._truth(q)
        except SubjectError:
            raise NotApplicable("it only accepts batches of one size") from None
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
            raise Inconclusive(f"{why}; pass precision, that of the Gaussian that step samples")
        if np.abs(columns - columns.T).max() > 1e-9 * np.abs(columns).max() or np.linalg.eigvalsh(-columns)[0] <= 0:
            raise Inconclusive("full is not the gradient of a proper Gaussian; pass precision")
        return -0.5 * (columns + columns.T)

    def _move(self, x: np.ndarray, w: np.ndarray, eps: float) -> tuple[np.ndarray, int]:
        """Return one step from the state x on the normals w, and the number of normals used."""
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
        """Return 1, or 2 for a step with momentum."""
        if self.step is None:
            raise NotApplicable("no step was given")
        d, wants = self._dim(), wants_generator(self.step.function)

        def works(attempt: tuple[bool, int]) -> None:
            self.generator, count = attempt
            self._move(np.zeros(count * d), np.zeros(64 * d), self.eps)

        (_, count), _ = first_working(itertools.product((wants, not wants), (1, 2)), works, self.step)
        return count

    def _recursion(self, eps: float) -> tuple[Recursion, float]:
        """Return A and B at this step size, and the deviation of the step from linearity, relative to its motion."""
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
            raise Inconclusive(f"{why}: there is no exact distribution to compare with")
        if recursion.B.shape[1] == 0:
            raise Inconclusive("the step draws no normal numbers")
        return passed("2^12 units of rounding", miss, tolerance)

    def stationary(self) -> Row:
        """Check that the relative error of S at eps, eps/4, ... tends to zero with eps."""
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
            raise Inconclusive("the step has no stationary distribution at the step sizes tried; pass a smaller eps")
        # Polynomial extrapolation to eps = 0; the last two extrapolates bound the remainder.
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
            raise Inconclusive(f"the extrapolation to eps = 0 is only accurate to {tolerance:.2g}; pass a smaller eps")
        self.noise = float(np.trace(limit) / d)
        basis = (
            "covariance x precision - 1, from the exact recursion at four step sizes; 10 x error of the extrapolation"
        )
        seen = f"covariance {np.round(limit, 6).tolist()} in units of the target's"
        return judged(error, tolerance, basis, f"{self.step.name if self.step else ''}: {seen}")

    def _say(self, found: list[tuple[float, np.ndarray, float, Recursion]], P: np.ndarray, d: int) -> None:
        eps, S, _, recursion = found[0]
        self.notes.append(f"at eps = {eps:g} the relative error of the covariance is {np.abs(S - np.eye(d)).max():.2g}")
        if recursion.A.shape == (d, d):
            drift = (np.eye(d) - recursion.A) @ np.linalg.inv(P)
            noise = recursion.B @ recursion.B.T
            of_drift, of_noise = (f"{np.trace(x) / d / eps:.4g} eps" for x in (drift, noise))
            self.notes.append(f"drift {of_drift}, noise of variance {of_noise}")

    def diagnose(self, rows: dict[str, Row]) -> list[str]:
        """Return the causes that the failures are typical of."""
        notes = []
        if rows["mean over batches"].status == FAIL:
            what = {
                "it is scaled by n / N instead of N / n": (self.size / self.n) ** 2,
                "it is not scaled from the batch to all data": self.size / self.n,
                "it is a mean over the data instead of a sum": 1 / self.n,
                "it is scaled by N instead of N / n": float(self.size),
            }
            close = [t for t, r in what.items() if self.ratio is not None and abs(self.ratio / r - 1) < 1e-4]
            other = "the sum over the batch has a wrong scale, or the prior is scaled with it or counted twice"
            alone = "the contribution of a datum depends on the others of its batch, such as by a normalisation in the batch"
            notes.append(close[0] if close else other if self._additive() else alone)
        if rows["sum of the parts"].status == FAIL:
            notes.append(of_parts.typical(self.off, self.n or None))
        if rows["stationary as eps -> 0"].status == FAIL:
            notes.append(
                f"the variance is {self.noise:.3g} times the target's: the variance of the noise must be twice the drift's "
                "coefficient (drift eps/2 and noise sqrt(eps), or eps and sqrt(2 eps); twice friction times eps)"
            )
        return notes
