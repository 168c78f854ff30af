"""``check.sampler``: whether a kernel preserves its target, by statistics, for kernels that cannot be opened.

From independent exact draws X_i the kernel makes m transitions, Y_i = K^m(X_i). If K preserves the target then Y_i has the
distribution of X_i. Bets against this (``samplers/evidence.py``) use many functions f of the position,

    each coordinate, the principal directions, products of pairs, the log density, the radius, and the caller's functions,

of Y compared with X, and of all points on the way to Y compared with X and fresh exact draws. The distribution of Y is also
compared with fresh exact draws by Kolmogorov-Smirnov and Anderson-Darling tests at fixed numbers of draws (500, 1000,
2000, ...). There are m transitions instead of one, so that the bias of a slow kernel adds up. A correct kernel FAILs any row
with probability at most ``alpha``, a third of it each for the bets; the two tests, divided by their number; and the
independence of a batch's chains, or that a kernel which moves at least once in a hundred transitions never did.

In a batch, the Y of the chains must be independent, as their X are. (Chains may share random numbers that preserve the target
whatever they are, such as a random step size, but not a momentum or a uniform.) Let a be the mean of g(f(Y)) over the even
chains of one batch minus that of the next, b the same over the odd chains. If chains are independent, a and -a are equally
likely whatever b is, so that E[sign(a) sign(b)] = 0. A random number that the chains share makes it positive. Bets on that give
another e-value.

The bias of K^m is only a part of the bias of the chain's own distribution: if K^m keeps a correlation r with its start, a shift
of the chain's distribution by s is seen as s (1 - r). The least detectable shift in the rows is corrected for this.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from refhmc.check import adapters, own, targets
from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Examination
from refhmc.check.judging import failed, judged, passed
from refhmc.check.report import CALL_FAILED, FAIL, INEFFICIENT, Report, Row
from refhmc.check.samplers import evidence
from refhmc.check.subject.budget import Budget
from refhmc.check.subject.foreign import (
    SECONDS_PER_CALL,
    Foreign,
    Inconclusive,
    NotApplicable,
    OutOfTime,
    SubjectError,
    quiet,
)
from refhmc.check.subject.keyed import keyed_operator, keyed_or_none
from refhmc.check.subject.operator import NOT_STORED, Iterates, TransitionOperator, make_operator

PILOT = 8192
LOOKS = 500 * 2 ** np.arange(9)  # numbers of pairs at which the distribution of Y is tested
REFERENCE = 4  # exact draws per tested draw
TAIL_ERROR = 1.1  # tails are those of many draws: for 500 and 2000, Kolmogorov's is 7 % too small at p = 2e-9
FEWEST = 200  # least number of pairs for a PASS
MOST_COORDINATES, MOST_PAIRS, MOST_IN_LAW = 10, 12, 10
ENOUGH_BATCHES = 40  # least number of pairs of batches for a PASS of their independence
RARELY = 0.01  # a kernel that moves less often may be reported as not moving
POWER = 0.99


class Functions(NamedTuple):
    """Functions f: ``names`` (F,), ``values(Q)`` (n, F) of points (n, d); the first ``in_law`` have distribution tests."""

    names: tuple[str, ...]
    values: Callable[[np.ndarray], np.ndarray]
    in_law: int


def sampler(
    kernel: Any = None,
    target: Any = "funnel",
    alpha: float = 1e-6,
    seconds: float | None = 30.0,
    *,
    transitions: int | None = None,
    draws: int | None = None,
    make: Callable | None = None,
    run: Callable | None = None,
    init: Callable | None = None,
    read: Callable | None = None,
    batched: bool = False,
    chains: int = 128,
    ensemble: bool = False,
    functions: dict[str, Callable] | Sequence[Callable] | None = None,
    like: Any = None,
    name: str | None = None,
    seed: int = 20261121,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check statistically that a kernel preserves its target.

    From independent exact draws X_i the kernel makes m transitions, Y_i = K^m(X_i). If K preserves the target, Y_i has the
    distribution of X_i. The check bets against this with many functions of the position, an e-value::

        E = average over f, g, lambda of prod_i (1 + lambda D_i),    D_i = g(f(Y_i)) - g(f(X_i))

    and compares Y with fresh exact draws by Kolmogorov-Smirnov and Anderson-Darling tests. Further rows examine the support,
    the number of stored draws, whether the kernel moves, and the independence of the chains of a batch.

    It needs no access to the kernel's random numbers, and finds biases of location, scale, tails and dependence. The report
    states the least shift and widening that would have been found with probability 0.99. Smaller biases, and biases that need
    much more than m transitions to show, are not found. By Ville's inequality a correct kernel fails with probability at most
    `alpha`, whenever the check is stopped. Give exactly one of `kernel`, `make` and `run`.

    Parameters
    ----------
    kernel : callable, object or refhmc kernel, optional
        ``kernel(rng, q) -> q`` with a NumPy generator and q of shape (dim,), ``kernel(draws, q) -> q`` with a :class:`Draws`,
        ``kernel(rng, state) -> state`` with `init` and `read`, an object with methods ``init`` and ``step``, or a kernel of
        refhmc with fixed settings, if `target` is a model of refhmc. Kernels of JAX with keys are taken as they are: algorithms
        of BlackJAX, kernels of NumPyro, or ``kernel(key, state) -> (state, info)``, for one chain or for a batch.
    target : str, refhmc.Model or object, default "funnel"
        A name (see :func:`refhmc.check.targets.names`), or an object with ``draw(rng, n)`` and ``log_density(q)``.
    alpha : float, default 1e-6
        Probability that a correct kernel fails any row.
    seconds : float or None, default 30.0
        Budget in processor seconds; the check also ends after five times this wall-clock time. None, without limit, needs
        `draws`.
    transitions : int, optional
        Number m of transitions per start; by default 5, or 10 with `run`.
    draws : int, optional
        Largest number of starts. With it the results do not depend on the machine, unless `seconds` end first.
    make : callable, optional
        ``make(log_density, gradient)`` or ``make(target)`` returns the kernel; it is called once.
    run : callable, optional
        ``run(rng, q, n)`` returns `n` stored draws, of shape (n, dim), of a chain that starts at `q`. The number of draws is
        examined too.
    init : callable, optional
        ``init(rng, q)`` returns the state of a kernel with a state; for a kernel of JAX ``init(q)`` or ``init(key, q)``.
    read : callable, optional
        ``read(state)`` returns the position. In a state of JAX it is found by default, and named in the report.
    batched : bool, default False
        Whether q has shape (chains, dim).
    chains : int, default 128
        Number of chains of a batch, at least 4.
    ensemble : bool, default False
        Whether the chains of a batch interact on purpose.
    functions : dict of str to callable or sequence of callable, optional
        Further functions f(q), of one point or of points (n, dim).
    like : callable, module or array, optional
        Array type of the arguments: a conversion function, a module with ``asarray``, or an example array. NumPy float64 by
        default. For a kernel of JAX also an example of a position that is a pytree.
    name : str, optional
        Name of the subject in the report.
    seed : int, default 20261121
        Seed of starts and random numbers.
    seconds_per_call : float or None, default 30.0
        A call that takes longer is a FAIL. None means no limit.

    Returns
    -------
    Report
        The report. Its ``settings["log_e"]`` is the log of the e-value at the end, which can be added to those of independent
        runs.

    Raises
    ------
    TypeError
        If not exactly one of `kernel`, `make` and `run` is given, or `target` has no exact draws.
    ValueError
        If `alpha`, `seconds`, `draws`, `transitions`, `chains` or `target` is invalid.

    References
    ----------
    Vovk and Wang (2021), "E-values: calibration, combination and applications".

    Examples
    --------
    >>> import numpy as np
    >>> def metropolis(rng, q, scale=1.0):  # random walk on the standard normal distribution
    ...     new = q + rng.normal(size=q.shape)
    ...     return new if np.log(rng.random()) < (q @ q - new @ new) / 2 / scale**2 else q
    >>> refhmc.check.sampler(metropolis, "normal-1", draws=500).status
    'PASS'
    >>> wrong = lambda rng, q: metropolis(rng, q, scale=1.3)
    >>> refhmc.check.sampler(wrong, "normal-1", draws=2000).severity
    'wrong distribution'
    """
    if sum(x is not None for x in (kernel, make, run)) != 1:
        raise TypeError("Exactly one of kernel, make and run must be given; got none or several.")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1; got {alpha}.")
    require_counts(transitions=transitions, draws=draws)
    require_counts(4, chains=chains)
    require_times(seconds=seconds)
    if seconds is None and draws is None:
        raise ValueError(
            "draws must be given if seconds is None, since a correct kernel would run without end; got None."
        )
    m = int(transitions if transitions is not None else (10 if run is not None else 5))
    made, exact = kernel, targets.resolve(target)
    if make is not None:
        try:
            made = _made(Foreign(make, name), exact)
        except SubjectError as wrong:
            return _refused(name or "make", exact, seed, wrong)
    elif own.is_kernel(kernel):
        keeps = getattr(kernel, "keeps_momentum", False)
        made = (adapters.refhmc_chain if keeps else adapters.refhmc_kernel)(target, kernel)
        name = name or repr(kernel)
    more = _more(functions)
    theirs: tuple[Foreign, ...] = ()
    if not isinstance(target, str):
        theirs = Foreign(exact.draw, "draw"), Foreign(exact.log_density, "log_density")
        exact = exact._replace(draw=theirs[0].raw, log_density=theirs[1].raw)
    options = {"init": init, "read": read, "batched": batched or ensemble, "chains": chains, "like": like, "name": name}
    try:
        keyed = keyed_or_none(made, _draws(exact, seed), **options)
        operator = make_operator(made, run=run, **options) if keyed is None else keyed_operator(keyed)
    except SubjectError as wrong:
        return _refused(name or "kernel", exact, seed, wrong)
    try:
        with quiet():
            test = SamplerExamination(
                operator, exact, m, alpha, seconds, draws, ensemble, [(f.name, f.raw) for f in more], seed
            )
            densities = exact.log_density(test.pilot_points[:100])
            for f in more:
                f.forget()  # it was tried with many points, and with one
    except SubjectError as wrong:
        return _refused(operator.name, exact, seed, wrong)
    if not np.all(np.isfinite(densities)):
        raise ValueError(f"target must have a finite log density at its own exact draws; {exact.name} has not.")
    if keyed is not None:
        test.notes.append(keyed.note)
    if exact.formula:
        test.notes.append(f"target: {exact.formula}")
    test.foreign = [*operator.foreign, *theirs, *more]
    report = test.report(
        "sampler",
        [
            ("conduct of the kernel", SamplerExamination.collect),
            ("support", SamplerExamination.support),
            ("draw count", SamplerExamination.draw_count),
            ("moves", SamplerExamination.moves, INEFFICIENT),
            ("distinct answers", SamplerExamination.distinct),
            ("chains independent", SamplerExamination.independent),
            ("stationarity (e-value)", SamplerExamination.stationarity),
            ("distribution (KS/AD)", SamplerExamination.law),
        ],
        diagnose=SamplerExamination.diagnose,
        seconds_per_call=seconds_per_call,
        seconds=seconds,
        false_alarm=f"a correct kernel fails a row of this report with probability at most {alpha:g}, whenever it is stopped",
    )
    settings = {"target": exact.name, "transitions": m, "pairs": test.n, "alpha": alpha}
    if test.n:  # the wealth at the end: an e-value, which may be multiplied by those of other runs
        settings["log_e"] = test.log_e_now
    return report._replace(settings=settings)


def _draws(target: targets.Target, seed: int) -> np.ndarray:
    """Return a few exact draws, (4, dim)."""
    return np.asarray(target.draw(np.random.default_rng([seed, 1]), 4), dtype=float)


def _refused(subject: str, target: Any, seed: int, wrong: SubjectError) -> Report:
    """Return the report of a kernel that could not be started."""
    row = Row("conduct of the kernel", FAIL, basis=str(wrong), severity=CALL_FAILED, case=wrong.case)
    return Report("sampler", subject, {"target": target.name}, seed, (row,))


class SamplerExamination(Examination):
    """Results collected so far; each method that returns a row judges them."""

    def __init__(
        self,
        operator: TransitionOperator,
        target: Any,
        m: int,
        alpha: float,
        seconds: float | None,
        draws: int | None,
        ensemble: bool,
        more: Sequence[tuple[str, Callable]],
        seed: int,
    ) -> None:
        super().__init__(operator.name, operator.foreign, seed)
        self.operator, self.target, self.m, self.ensemble = operator, target, m, ensemble
        self.seconds = math.inf if seconds is None else seconds
        self.most = math.inf if draws is None else draws
        self.log_limit = math.log(3 / alpha)
        self.share = alpha / 3
        streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(6)]
        self.rng_start, self.rng_kernel, self.rng_exact, self.rng_repeat, pilot, self.rng_halves = streams
        self.pilot_points = np.asarray(target.draw(pilot, PILOT), dtype=float)
        self.functions = functions_of(target, self.pilot_points, more)
        self.pilot = self.functions.values(self.pilot_points)
        self.edges = evidence.edges_of(self.pilot)
        self.counts = np.zeros((len(self.functions.names), evidence.BINS, evidence.BINS), dtype=np.int64)
        of_scores = (len(self.functions.names), len(evidence.SCORES))
        self.path_sums = np.zeros((3, *of_scores))
        self.start_and_path = np.zeros((4, *of_scores))  # sums of g(X), its square, the path's mean of g, their product
        self.gamblers = 2 * math.prod(of_scores) * len(evidence.PATH_STAKES)
        self.log_e = self.log_e_now = self.log_e_chains = 0.0  # largest wealth so far; current one
        self.n = self.n_moves = self.n_transitions = 0
        self.p_law, self.law_name, self.looks = 1.0, "", 0
        self.outside: tuple[np.ndarray, np.ndarray] | None = None
        self.short: tuple[np.ndarray, int] | None = None
        self.answers: list[tuple[bool, bool, bool]] = []
        self.batches: list[np.ndarray] = []  # scores of batches without a partner, (unit, functions x scores)
        self.pair_signs: list[np.ndarray] = []
        self.seen: list[np.ndarray] = []
        self.exact: list[np.ndarray] = []

    # ------------------------------------------------------------------------------------------------------ collecting

    def collect(self) -> Row:
        """Apply the kernel to exact starts until the evidence, the count or the time is sufficient."""
        budget = Budget(self.seconds)
        with contextlib.suppress(OutOfTime):  # the results so far are judged
            self._ask_twice(budget)
            target_n = 16
            while self.n < self.most and not self._decided(budget.spent()):
                target_n = int(min(self._next_stop(target_n), self.most))
                if not self._block(target_n - self.n, budget):
                    break
        return passed(f"{self.n} starts, {self.n_transitions} transitions")

    def _next_stop(self, n: int) -> int:
        """Return the next number of pairs to examine: a quarter more, or that of the next test if it comes first."""
        return min([int(look) for look in LOOKS if look > self.n] + [max(self.n + 1, int(1.25 * n))])

    def _decided(self, elapsed: float) -> bool:
        if self.log_e >= self.log_limit or self.p_law < self.share:
            # Both assume independent chains in a batch: leave time to test that.
            looking = self.operator.unit > 1 and not self.ensemble and len(self.pair_signs) < ENOUGH_BATCHES
            return not looking or elapsed > 0.3 * self.seconds
        stuck = self.n_moves == 0 and self.n_transitions >= self._enough_to_say_stuck()
        odd = self.outside is not None or self.short is not None
        return odd or self.log_e_chains >= self.log_limit or (stuck and elapsed > 0.3 * self.seconds)

    def _enough_to_say_stuck(self) -> float:
        return math.log(self.share) / math.log(1 - RARELY)

    def _block(self, size: int, budget: Budget) -> bool:
        """Apply the kernel to about ``size`` starts; False if the time is over. Results before an error are kept."""
        unit, at_once = self.operator.unit, max(self.operator.unit, self.operator.at_once)
        X = np.asarray(self.target.draw(self.rng_start, -(-size // unit) * unit), dtype=float)
        applied: list[tuple[np.ndarray, Iterates]] = []
        try:
            for start in np.split(X, range(at_once, len(X), at_once)):
                if budget.over():
                    return False
                applied.append((start, self.operator.apply(self.rng_kernel, start, self.m)))
            return True
        finally:
            if applied:
                self._add(applied)

    def _add(self, applied: list[tuple[np.ndarray, Iterates]]) -> None:
        """Add pairs to the evidence."""
        X = np.concatenate([start for start, _ in applied])
        paths = np.concatenate([found.path for _, found in applied], axis=1)
        Y = paths[-1]
        moves = np.concatenate([found.moves for _, found in applied])
        self.n_moves += int(moves.sum())
        self.n_transitions += self.m * len(moves)
        if self.short is None:
            self.short = next(((x[0], w.stored) for x, w in applied if w.stored not in (self.m, NOT_STORED)), None)
        with np.errstate(all="ignore"):
            inside = self._inside(X, Y)
            f_X, f_Y = self.functions.values(X), self.functions.values(Y)
        from_bins, to_bins = evidence.bins_of(f_X, self.edges), evidence.bins_of(f_Y, self.edges)
        if not inside.all() and self.outside is None:
            worst = int(np.argmin(inside))
            self.outside = (X[worst], Y[worst])
        if self.operator.unit > 1 and not self.ensemble:
            self._look_at_chains(to_bins)
        if self.ensemble:  # one chain per batch, since the others may depend on it
            unit, number = self.operator.unit, len(applied)
            one = np.arange(number) * unit + self.rng_repeat.integers(unit, size=number)
            from_bins, to_bins, f_Y, paths = from_bins[one], to_bins[one], f_Y[one], paths[:, one]
        self.counts += evidence.pair_counts(from_bins, to_bins)
        self.n += len(f_Y)
        self._look_at_paths(from_bins, to_bins, paths[:-1])
        pairs, along = evidence.log_wealths(self.counts), evidence.log_path_wealths(self.path_sums)
        self.log_e_now = float(np.logaddexp(evidence.log_mean(pairs), evidence.log_mean(along)) - math.log(2))
        self.log_e = max(self.log_e, self.log_e_now)
        self.seen.append(f_Y[:, : self.functions.in_law])
        while self.looks < len(LOOKS) and self.n >= LOOKS[self.looks]:
            self._look_at_law(int(LOOKS[self.looks]))

    def _look_at_paths(self, from_bins: np.ndarray, to_bins: np.ndarray, between: np.ndarray) -> None:
        """Update the bets on paths, with fresh exact draws of their own."""
        n = len(from_bins)
        fresh = self.functions.values(np.asarray(self.target.draw(self.rng_exact, REFERENCE * n), dtype=float))
        if self.looks < len(LOOKS):
            self.exact.append(fresh[:, : self.functions.in_law])
        with np.errstate(all="ignore"):
            on_the_way = evidence.bins_of(self.functions.values(between.reshape(-1, between.shape[-1])), self.edges)
        bins = [x.reshape(-1, n, x.shape[-1]) for x in (on_the_way, evidence.bins_of(fresh, self.edges))]
        start, end = (_scores(x) for x in (from_bins, to_bins))
        along = (_scores(bins[0]).sum(axis=0) + end) / (len(bins[0]) + 1)
        exact = (_scores(bins[1]).sum(axis=0) + start) / (len(bins[1]) + 1)
        self.path_sums += evidence.path_sums(along - exact)
        self.start_and_path += np.stack([start, start**2, along, start * along]).sum(axis=1)

    def _inside(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        """Return which Y have a density; on the edge, where rounding may put a point, the side of X counts."""
        precision = max(f.epsilon for f in self.operator.foreign)
        nearer = Y + 4 * precision * np.maximum(np.abs(Y), 1e-30) * np.sign(X - Y)
        dense = [np.asarray(self.target.log_density(points)) > -np.inf for points in (Y, nearer)]
        return np.all(np.isfinite(Y), axis=-1) & (dense[0] | dense[1])

    def _look_at_law(self, n: int) -> None:
        drawn = np.concatenate(self.seen)
        self.exact = [np.concatenate(self.exact)]
        exact = self.exact[0][: REFERENCE * n]
        tests = TAIL_ERROR * 2 * self.functions.in_law * len(LOOKS)
        for j in range(self.functions.in_law):
            for p, test in zip(evidence.two_sample(drawn[:n, j], exact[:, j]), ("KS", "AD"), strict=True):
                if p * tests < self.p_law:
                    self.p_law, self.law_name = p * tests, f"{test} of {self.functions.names[j]} at {n} draws"
        self.looks += 1
        self.seen = [drawn]

    def _look_at_chains(self, bins: np.ndarray) -> None:
        """Pair up batches, and split the chains of each pair at random: chains that share anything are often separated."""
        unit = self.operator.unit
        self.batches += list(_scores(bins).reshape(-1, unit, bins.shape[1] * len(evidence.SCORES)))
        while len(self.batches) >= 2:
            difference = self.batches.pop(0) - self.batches.pop(0)
            one, other = np.split(self.rng_halves.permutation(unit), [(unit + 1) // 2])
            self.pair_signs.append(np.sign(difference[one].mean(axis=0)) * np.sign(difference[other].mean(axis=0)))
        if self.pair_signs:
            wealth = evidence.log_mean(evidence.log_pair_wealths(np.array(self.pair_signs)))
            self.log_e_chains = max(self.log_e_chains, wealth)

    def _ask_twice(self, budget: Budget) -> None:
        """Call the same start with the same stream twice, and with another one; record whether answers agree and move."""
        for tried in range(8):
            # A slow kernel makes one transition; if that is rejected, more the next time.
            m = self.m if self.operator.stores else min(self.m, 1 + tried)
            start = np.asarray(self.target.draw(self.rng_repeat, self.operator.unit), dtype=float)
            first, second = (int(s) for s in self.rng_repeat.integers(2**32, size=2))
            ends = [self.operator.apply(np.random.default_rng(s), start, m).end for s in (first, first, second)]
            same, other = (np.array_equal(ends[0], end, equal_nan=True) for end in ends[1:])
            self.answers.append((same, other, not np.array_equal(ends[0], start)))
            if budget.spent() > 0.02 * self.seconds:
                break

    # --------------------------------------------------------------------------------------------------------- judging

    def support(self) -> Row:
        """Check that every Y is finite and has a positive density."""
        self._need(1)
        if self.outside is None:
            return passed(f"none of {self.n} answers is NaN, infinite or off the support", 0.0, 0.0)
        X, Y = self.outside
        case = f"q = {X.tolist()} moved to {Y.tolist()} within {self.m} transitions: {self._call()}"
        return failed("an answer is NaN, infinite, or of density zero", case, 1.0, 0.0)

    def draw_count(self) -> Row:
        """Check that a run gives the requested number of draws."""
        if not self.operator.stores:
            raise NotApplicable("only run= stores draws")
        self._need(1)
        if self.short is None:
            return passed("rows of each run", float(self.m), float(self.m), ">=")
        start, rows = self.short
        why = f"a run of {self.m} draws stored {rows}"
        case = f"{self.operator.name}(rng, {start.tolist()}, {self.m}) has {rows} rows"
        if rows < self.m:
            return failed(why, case, float(rows), float(self.m), relation=">=")
        return failed(why, case, float(rows), float(self.m), severity=CALL_FAILED)

    def moves(self) -> Row:
        """Check that the kernel moves at all, since one that never does preserves every distribution."""
        self._need(1)
        rate = self.n_moves / max(self.n_transitions, 1)
        if self.n_moves:
            return passed(f"share of {self.n_transitions} transitions that moved", rate, 0.0, ">")
        if self.n_transitions < self._enough_to_say_stuck():
            raise Inconclusive(f"it did not move, but made only {self.n_transitions} transitions", rate)
        why = f"it did not move once in {self.n_transitions} transitions from exact draws"
        return failed(why, self._call(), 0.0, 0.0, relation=">")

    def distinct(self) -> Row:
        """Check that other random numbers give other answers, and equal ones equal answers."""
        if not self.answers:
            raise NotApplicable("the kernel was not called")
        repeats, agree, moved = (sum(column) for column in zip(*self.answers, strict=True))
        tries = len(self.answers)
        own = "" if repeats == tries else "; not repeatable: it has a state or randomness of its own"
        if moved and agree == tries:
            raise Inconclusive(f"the answer does not depend on the given generator{own}")
        if not moved:
            raise Inconclusive(f"it did not move in {tries} tries")
        return passed(f"equal answers of two streams{own}", float(agree), float(tries), "<")

    def independent(self) -> Row:
        """Check that the chains of a batch are independent."""
        if self.operator.unit == 1:
            raise NotApplicable("one chain at a time")
        if self.ensemble:
            raise NotApplicable("the chains interact on purpose")
        self._need(1)
        number, limit = math.exp(min(self.log_e_chains, 700.0)), math.exp(self.log_limit)
        basis = f"e-value from {len(self.pair_signs)} pairs of batches of {self.operator.unit} chains"
        if self.log_e_chains >= self.log_limit:
            agree = np.mean(np.array(self.pair_signs) > 0, axis=0)
            f, g = divmod(int(np.argmax(agree)), len(evidence.SCORES))
            found = f"two halves of the chains agree {100 * agree.max():.0f} % of the time instead of 50 %"
            case = f"{self._call()}  # {self._score(g)} of {self._f(f)}: {found}"
            return failed(basis, case, number, limit, relation="<")
        if len(self.pair_signs) < ENOUGH_BATCHES:
            raise Inconclusive(f"{basis}: too few", number)
        return passed(basis, number, limit, "<")

    def stationarity(self) -> Row:
        """Judge the bets."""
        self._need(1)
        number, limit = math.exp(min(self.log_e, 700.0)), math.exp(self.log_limit)
        if self.log_e >= self.log_limit:
            self._need_independent_chains("bets")
            f, g, along = self._winner()
            mean, deviation = (x[f, g] for x in (self._path_moments() if along else evidence.gain_moments(self.counts)))
            found = f"E D = {mean:+.3g} +- {deviation / math.sqrt(self.n):.1g}, {self._score(g)} of {self._f(f)}"
            basis = f"{self.n} pairs, {f'K to K^{self.m}' if along else f'K^{self.m}'}: {found}"
            return failed(basis, f"{self._call()}  # {found}", number, limit, relation="<")
        if not self.n_moves:
            raise Inconclusive("it did not move, which preserves every distribution")
        if self.n < FEWEST:
            raise Inconclusive(f"{self.n} pairs in {self.seconds:g} s are too few", number)
        return passed(self.power(), number, limit, "<")

    def law(self) -> Row:
        """Judge the tests of the distribution of Y against exact draws."""
        self._need(1)
        if self.looks == 0:
            raise Inconclusive(f"{self.n} draws; the first test is at {LOOKS[0]}")
        if self.p_law < self.share:
            self._need_independent_chains("tests")
        worst = f"least p times {2 * self.functions.in_law * len(LOOKS)} tests: {self.law_name or 'none below 1'}"
        return judged(self.p_law, self.share, worst, f"{self._call()}  # {self.law_name}", relation=">=")

    def _need_independent_chains(self, what: str) -> None:
        if self.log_e_chains >= self.log_limit:
            raise Inconclusive(f"the chains of a batch are not independent, which the {what} assume")

    def power(self) -> str:
        """Return in words the least shift and widening of the first coordinate that would have been found."""
        shift, widening = self.least_bias()
        if not (math.isfinite(shift) and math.isfinite(widening)):
            return f"{self.n} pairs, K^{self.m}; the power is unknown"
        return (
            f"{self.n} pairs, K^{self.m}; would have found a shift of {shift:.2g} sd of the chain's {self._f(0)}, or a "
            f"widening of {100 * widening:.2g} %, with probability {POWER:g}"
        )

    def least_bias(self) -> tuple[float, float]:
        """Return the least shift (in sd, by the quartiles) and relative widening of f_0 found with probability ``POWER``."""
        x = self.pilot[:, 0]
        middle, unit = np.median(x), np.subtract(*np.quantile(x, [0.75, 0.25])) / 1.349
        slopes = (self._slope(x, x + 0.1 * unit, 0) / 0.1, self._slope(x, middle + 1.1 * (x - middle), 1) / 0.1)
        answer = [math.inf, math.inf]
        ways = ((evidence.gain_moments(self.counts)[1][0], self._kept), (self._path_moments()[1][0], self._kept_along))
        for deviation, kept in ways:
            least = evidence.least_detectable(deviation, self.n, self.log_limit, self.gamblers, POWER)
            for s, slope in enumerate(slopes):
                if slope > 0 and kept(s) < 1:
                    answer[s] = min(answer[s], float(least[s] / slope / (1 - kept(s))))
        return answer[0], answer[1]

    def _slope(self, before: np.ndarray, after: np.ndarray, score: int) -> float:
        bins = [np.searchsorted(self.edges[0], x, side="right") for x in (before, after)]
        return float(evidence.SCORES[score][bins[1]].mean() - evidence.SCORES[score][bins[0]].mean())

    def _kept(self, score: int) -> float:
        """Return the correlation of a score of f_0(Y) with that of f_0(X), at least 0."""
        N, g = self.counts[0], evidence.SCORES[score]
        x, y = g[:, None] - (N.sum(1) @ g) / self.n, g - (N.sum(0) @ g) / self.n
        variance = math.sqrt(float(np.sum(N * x * x)) * float(np.sum(N * y * y)))
        return max(0.0, float(np.sum(N * x * y)) / variance) if variance > 0 else 0.0

    def _kept_along(self, score: int) -> float:
        """Return the regression slope of the path's mean of a score of f_0 on that of f_0(X), at least 0."""
        x, xx, y, xy = self.start_and_path[:, 0, score] / self.n
        return max(0.0, float((xy - x * y) / (xx - x * x))) if xx > x * x else 0.0

    def _path_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of D for each f and g, of the bets on paths."""
        mean, square = self.path_sums[:2] / self.n
        return mean, np.sqrt(np.maximum(square - mean**2, 0.0))

    def diagnose(self, rows: dict[str, Row]) -> list[str]:
        """Return the causes that the failing rows are typical of."""
        failed = {name for name, row in rows.items() if row.status == FAIL and row.severity != CALL_FAILED}
        said = []
        rate = self.n_moves / max(self.n_transitions, 1)
        if "support" in failed:
            said.append(
                "points of density zero are accepted: typical of a NaN or infinite energy error that is accepted"
            )
        if "draw count" in failed and self.short is not None and self.short[1] < self.m:
            said.append(
                "fewer draws than transitions: typical of a chain that does not store the old draw after a rejection"
            )
        if "moves" in failed:
            said.append(
                "every proposal is rejected, or the start is returned: a step size far too large, or a wrong sign"
            )
        if "chains independent" in failed:
            said.append("the chains of a batch move together: typical of one uniform or one stream for all of them")
        if failed & {"stationarity (e-value)", "distribution (KS/AD)"}:
            said += self._shape()
            if rate == 1.0:
                said.append("no transition was rejected: the Metropolis test is missing, or always accepts")
        return said

    def _shape(self) -> list[str]:
        """Return sentences on how Y differs from the exact distribution, for the f of the best bet."""
        f, g, _ = self._winner()
        exact, to = (self.counts[f].sum(axis=axis) / self.n for axis in (1, 0))
        middle = evidence.SCORES[0]
        inner = np.abs(middle - 0.5) < 0.25
        shift, width = float(to @ middle - exact @ middle), float((exact - to)[inner].sum() / exact[inner].sum())
        name = self._f(f)
        where = "large" if shift > 0 else "small"
        said = [f"the values of {name} are too {where}: their mean rank is off by {shift:+.3f}"] * (g != 1)
        if g == 1:
            spread = "too widely" if width > 0 else "too narrowly"
            held = f"the middle half of the distribution contains {50 * (1 - width):.1f} % of them"
            said.append(f"the values of {name} are spread {spread}: {held}")
        tails = [(to[k], exact[k], side) for k, side in ((slice(0, 6), "lower"), (slice(-6, None), "upper"))]
        for seen, wanted, side in tails:
            if not wanted.any():
                continue
            ratio = float(seen.sum() / wanted.sum())
            if abs(ratio - 1) > 0.1 and abs(ratio - 1) * math.sqrt(self.n * float(wanted.sum())) > 4:
                share = 100 * float(wanted.sum())
                said.append(
                    f"the {side} {share:.1f} % of {name} are visited {ratio:.2f} times as often as they should be"
                )
        return said

    def _winner(self) -> tuple[int, int, bool]:
        """Return the f and g of the richest gambler, and whether it bet on paths."""
        wealths = [evidence.log_wealths(self.counts), evidence.log_path_wealths(self.path_sums)]
        along = bool(wealths[1].max() > wealths[0].max())
        f, g, _ = np.unravel_index(int(np.argmax(wealths[along])), wealths[along].shape)
        return int(f), int(g), along

    def _f(self, j: int) -> str:
        return self.functions.names[j]

    def _score(self, g: int) -> str:
        return evidence.SCORE_NAMES[g]

    def _call(self) -> str:
        what = "run=" * self.operator.stores
        return (
            f"refhmc.check.sampler({what}{self.operator.name}, target={self.target.name!r}, transitions={self.m}, "
            f"draws={self.n}, seed={self.seed})"
        )

    def _need(self, pairs: int) -> None:
        if self.n < pairs:
            raise NotApplicable("no transition was completed")


def _scores(bins: np.ndarray) -> np.ndarray:
    """Return g (..., F, score) of each bin (..., F)."""
    return np.moveaxis(evidence.SCORES[:, bins], 0, -1)


def functions_of(target: targets.Target, points: np.ndarray, more: Sequence[tuple[str, Callable]] = ()) -> Functions:
    """Return the functions f for ``target``, adapted to exact draws ``points`` (n, d)."""
    d = points.shape[1]
    chosen = np.unique(np.linspace(0, d - 1, min(d, MOST_COORDINATES)).astype(int))
    low, middle, high = np.quantile(points, [0.25, 0.5, 0.75], axis=0)
    unit = np.where(high > low, high - low, 1.0)
    axes = np.empty((0, d))
    if d > 1:
        clipped = np.clip(points, *np.quantile(points, [0.01, 0.99], axis=0))
        vectors = np.linalg.eigh(np.cov(clipped.T))[1].T
        axes = vectors[[0, -1]] if d == 2 else vectors[[0, 1, -1]]
    pairs = [(i, j) for lag in range(1, len(chosen)) for i, j in zip(chosen, chosen[lag:], strict=False)][:MOST_PAIRS]
    left, right = ([pair[side] for pair in pairs] for side in (0, 1))
    extra = [(name, targets.for_many(f, points[:3])) for name, f in more]
    first = chosen[: MOST_IN_LAW - 2 - len(axes)]
    rest = chosen[len(first) :]

    def values(Q: np.ndarray) -> np.ndarray:
        z = (Q - middle) / unit
        columns = [
            Q[:, first],
            np.asarray(target.log_density(Q), dtype=float)[:, None],
            np.sum(z * z, axis=1)[:, None],
            (Q - middle) @ axes.T,
            *(np.asarray(f(Q), dtype=float)[:, None] for _, f in extra),
            Q[:, rest],
            z[:, left] * z[:, right],
        ]
        return np.concatenate(columns, axis=1)

    names = [
        *(f"q[{i}]" for i in first),
        "the log density",
        "the radius",
        *(f"q . {np.round(axis, 3).tolist() if d < 5 else f'principal direction {k}'}" for k, axis in enumerate(axes)),
        *(name for name, _ in extra),
        *(f"q[{i}]" for i in rest),
        *(f"q[{i}] q[{j}]" for i, j in pairs),
    ]
    return Functions(tuple(names), values, len(first) + 2 + len(axes) + len(extra))


def _more(functions: Any) -> list[Foreign]:
    """Return the caller's functions with their names."""
    if functions is None:
        return []
    if isinstance(functions, dict):
        return [Foreign(f, name) for name, f in functions.items()]
    return [Foreign(f, getattr(f, "__name__", f"f{k}")) for k, f in enumerate(functions)]


def _made(make: Foreign, target: targets.Target) -> Any:
    """Return the kernel of ``make(log_density, gradient)``, or of ``make(target)`` if it takes one argument."""
    try:
        wanted = [p for p in inspect.signature(make.function).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):
        wanted = []
    return make.raw(target) if len(wanted) == 1 else make.raw(target.log_density, target.gradient)
