"""``check.stopping``: whether a stopping rule lets chains end when their draws are good enough, and no earlier.

A rule is a function of draws and limits, ``rule(x, limits) -> bool``. For given draws its answer changes at one value of a
limit. Bisection finds that value, which is the rule's own measure of the draws. So no access to the measure is needed.

The draws are of processes whose measures are known exactly. An AR(1) process with coefficient a and variance s^2 has the
integrated autocorrelation time tau, and m chains of n draws have

    tau = (1 + a) / (1 - a),    ESS = m n / tau,    standard error of the mean = s / sqrt(ESS)

Chains of independent N(+-c, 1) draws, half of them with each sign, have R-hat = sqrt(1 + B/W) with W = 1 and
B = c^2 M / (M - 1), where M is the number of chains, or of their halves. There are two coordinates with different measures, in
either order, and the worst one decides.

A measure may differ from the exact one by the factor ``ALLOWED`` (for R-hat, R - 1 may). Other estimators pass with this:
split or not, of ranks or values, from autocovariances or from means of batches.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.signal

from refhmc.check.arguments import require_times
from refhmc.check.examination import Examination, Rows
from refhmc.check.judging import Cases, Measured, causes, failed, passed
from refhmc.check.report import FAIL, INEFFICIENT, Report, Row
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign, NotApplicable, SubjectError

CONDITIONS = ("ess", "rhat", "mcse")
EASY = {"ess": 10.0, "rhat": 10.0, "mcse": 1e6}  # limits that all valid draws meet
CHAINS, DRAWS = 4, 5000
COEFFICIENT, SD = 0.8, 5.0
APART = 0.5  # c
ALLOWED = 1.6
FACTOR, HALVINGS = 64.0, 9  # a measure is sought within this factor of the exact one
MEETS = 1000.0  # least ESS, and
AGREES = 1.05  # largest R-hat, of draws that must not meet it
# The run: AR(1) chains whose first TUNE draws are far away, and the ESS at which they shall end.
TUNE, ESS, FAR = 200, 400.0, 50.0
SOONER, LATER = 0.5, 4.0  # times the number of draws that have this ESS
MOST, FEW = 12_000, 137  # draws per chain


@dataclasses.dataclass
class StoppingExamination(Examination):
    """A rule and a run under examination, and the arguments of the check."""

    rule: Foreign
    run: Foreign | None
    conditions: tuple[str, ...]
    seed: int

    def __post_init__(self) -> None:
        super().__init__(self.rule.name, [self.rule] + ([] if self.run is None else [self.run]), self.seed)
        self._ended: tuple[np.ndarray, Stream] | None = None

    def met(self, x: np.ndarray, limits: dict[str, float]) -> bool:
        """Return the rule's answer for draws (chain, draw, d)."""
        answer = self.rule.array(self.rule.raw(x, dict(limits)), (), "the answer")
        if answer not in (0, 1):
            raise SubjectError(f"{self.rule.name} must return True or False; got {answer}", case(self.rule, x, limits))
        return bool(answer)

    def needs(self, *conditions: str) -> None:
        """Raise NotApplicable unless the rule has the conditions."""
        missing = [name for name in conditions if name not in self.conditions]
        if missing:
            raise NotApplicable(f"the rule has no condition {', '.join(missing)}")

    def measure(self, condition: str, x: np.ndarray, exact: float) -> float:
        """Return the value of a condition at which the rule changes its answer for draws x, within FACTOR of `exact`.

        The value is an effective sample size, R-hat - 1, or a standard error.
        """

        def met(limit: float) -> bool:
            return self.met(x, {condition: 1 + limit if condition == "rhat" else limit})

        hard, easy = exact * FACTOR, exact / FACTOR
        if condition != "ess":
            hard, easy = easy, hard
        if met(hard):
            return hard
        if not met(easy):
            return easy
        for _ in range(HALVINGS):
            middle = math.sqrt(easy * hard)
            easy, hard = (middle, hard) if met(middle) else (easy, middle)
        return math.sqrt(easy * hard)

    def ended(self) -> tuple[np.ndarray, Stream]:
        """Return the draws of a run that shall end with the effective sample size ESS, and the chains that it drew from."""
        self.needs("ess")
        if self._ended is None:
            self._ended = self.drawn({"ess": ESS}, MOST)
        return self._ended

    def drawn(self, limits: dict[str, float], most: int) -> tuple[np.ndarray, Stream]:
        """Return the draws of a run, and the chains that it has drawn from."""
        if self.run is None:
            raise NotApplicable("no run was given")
        chains = Stream(np.random.default_rng([self.seed, 5]))
        found = self.run.raw(chains.draw, CHAINS, TUNE, dict(limits), most)
        return self.run.array(found, None, "the draws").real, chains


class Stream:
    """AR(1) chains of two coordinates, whose first TUNE draws are FAR from the others, and the number of draws made of each."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.x = autoregressive(rng, MOST + TUNE + 1000, COEFFICIENT, COEFFICIENT)
        self.x[:, :TUNE] += FAR * np.arange(1, CHAINS + 1)[:, None, None]
        self.counts = [0] * CHAINS

    def draw(self, chain: int) -> np.ndarray:
        """Return the next draw (2,) of a chain."""
        if self.counts[chain] == self.x.shape[1]:
            raise SubjectError(f"the run makes more than {MOST} draws per chain")
        self.counts[chain] += 1
        return self.x[chain, self.counts[chain] - 1].copy()


def autoregressive(rng: np.random.Generator, n: int, *coefficients: float) -> np.ndarray:
    """Return stationary AR(1) chains (chain, draw, d) with variance 1, one coefficient for each coordinate."""
    x = rng.standard_normal((CHAINS, n, len(coefficients)))
    for k, a in enumerate(coefficients):
        x[:, 1:, k] *= math.sqrt(1 - a * a)
        x[:, :, k] = scipy.signal.lfilter([1.0], [1.0, -a], x[:, :, k], axis=1)
    return x


def case(rule: Foreign, x: np.ndarray, limits: dict[str, float]) -> str:
    """Return the call in words, since draws are too many to print."""
    return f"{rule.name}(x, {limits}) with x of shape {x.shape}"


def compared(test: StoppingExamination, condition: str, x: np.ndarray, exact: float, what: str) -> Cases:
    """Compare the rule's measure of draws with the exact one, with the two coordinates in either order."""
    test.needs(condition)
    found = [test.measure(condition, x[:, :, order], exact) for order in ([0, 1], [1, 0])]
    for each in found:
        yield Measured(
            max(each / exact, exact / each), ALLOWED, case(test.rule, x, {condition: each + (condition == "rhat")})
        )
    return f"{what} is {exact:.4g}; the rule's is {' and '.join(f'{each:.4g}' for each in found)}"


def answers(test: StoppingExamination) -> Row:
    """Check that the rule answers, twice the same, and that it accepts independent draws with easy limits."""
    x = autoregressive(np.random.default_rng([test.seed, 0]), 1000, 0.0, 0.0)
    limits = {name: EASY[name] for name in test.conditions}
    first, again = test.met(x, limits), test.met(x, limits)
    if first != again:
        return failed("two answers to one question", case(test.rule, x, limits))
    return passed() if first else failed("independent draws do not meet easy limits", case(test.rule, x, limits))


def effective_sample_size(test: StoppingExamination) -> Cases:
    """Compare the effective sample size of AR(1) chains with the exact one."""
    x = autoregressive(np.random.default_rng([test.seed, 1]), DRAWS, COEFFICIENT, 0.0)
    return compared(test, "ess", x, effective(DRAWS), "the effective sample size")


def effective(n: int) -> float:
    """Return the effective sample size of n draws of each AR(1) chain."""
    return CHAINS * n * (1 - COEFFICIENT) / (1 + COEFFICIENT)


def chains_apart(rng: np.random.Generator, c: float) -> np.ndarray:
    """Return independent draws, with mean c or -c of each chain in the first coordinate."""
    x = autoregressive(rng, DRAWS, 0.0, 0.0)
    x[:, :, 0] += c * np.array([1, -1, 1, -1])[:, None]
    return x


def r_hat(test: StoppingExamination) -> Cases:
    """Compare R-hat - 1 of chains with known means with the exact one."""
    x = chains_apart(np.random.default_rng([test.seed, 2]), APART)
    whole, halves = (math.sqrt(1 + APART**2 * M / (M - 1)) - 1 for M in (CHAINS, 2 * CHAINS))
    return compared(test, "rhat", x, math.sqrt(whole * halves), "R-hat - 1")


def standard_error(test: StoppingExamination) -> Cases:
    """Compare the standard error of the mean of AR(1) chains with the exact one."""
    x = SD * autoregressive(np.random.default_rng([test.seed, 3]), DRAWS, COEFFICIENT, 0.0)
    return compared(test, "mcse", x, SD / math.sqrt(effective(DRAWS)), "the standard error")


def rejects(test: StoppingExamination, kinds: dict[str, np.ndarray], *limits: dict[str, float]) -> Row:
    """Check that draws do not meet any of the limits that the rule has."""
    usable = [each for each in limits if set(each) <= set(test.conditions)]
    if not usable:
        raise NotApplicable("the rule has no such condition")
    for what, x in kinds.items():
        for each in usable:
            if test.met(x, each):
                return failed(f"{what} meet the rule", case(test.rule, x, each))
    return passed(f"{len(kinds) * len(usable)} calls")


def disagreeing(test: StoppingExamination) -> Row:
    """Check that chains in different places, and chains with one that stands still, do not meet the rule."""
    rng = np.random.default_rng([test.seed, 4])
    still = chains_apart(rng, 0.0)
    still[1, :, 0] = 3.0
    kinds = {"chains with different means": chains_apart(rng, 5.0), "chains of which one stands still": still}
    return rejects(test, kinds, {"ess": MEETS}, {"rhat": AGREES})


def drifting(test: StoppingExamination) -> Row:
    """Check that chains that drift from -1 to 1 together do not meet a limit of R-hat."""
    x = chains_apart(np.random.default_rng([test.seed, 6]), 0.0)
    x[:, :, 0] += np.linspace(-1, 1, DRAWS)
    return rejects(test, {"chains that drift together": x}, {"rhat": AGREES})


def undefined(test: StoppingExamination) -> Row:
    """Check that draws without a measure, because they are too few or not finite, do not meet the rule."""
    kinds = {"single draws": np.arange(2.0 * CHAINS).reshape(CHAINS, 1, 2)}
    for value in (math.nan, math.inf):
        x = autoregressive(np.random.default_rng([test.seed, 7]), 1000, 0.0, 0.0)
        x[2, 500, 1] = value
        kinds[f"draws with {value}"] = x
    return rejects(test, kinds, *({name: EASY[name]} for name in test.conditions))


def all_conditions(test: StoppingExamination) -> Row:
    """Check that one condition that is not met is enough to continue."""
    x = chains_apart(np.random.default_rng([test.seed, 8]), 0.2)  # R-hat is 1.02
    hard = {"ess": 1e6, "rhat": 1.002, "mcse": 1e-9}
    if len(test.conditions) < 2:
        raise NotApplicable("the rule has one condition")
    easy = {name: EASY[name] for name in test.conditions}
    return rejects(test, {"draws": x}, *({**easy, name: hard[name]} for name in test.conditions))


def draws_of_run(test: StoppingExamination) -> Row:
    """Check that a run returns equally many draws of all chains, in order, without those of the warm-up."""
    found, chains = test.ended()
    if found.ndim != 3 or found.shape[0] != CHAINS or found.shape[2] != 2:
        return failed(f"draws of shape {found.shape} instead of ({CHAINS}, n, 2)", run_case(test))
    if len(set(chains.counts)) > 1:
        return failed(f"chains of different lengths: {chains.counts}", run_case(test))
    n = found.shape[1]
    if n and np.array_equal(found[:, 0], chains.x[:, 0]):
        return failed("the draws of the warm-up are among the draws", run_case(test))
    if not np.array_equal(found, chains.x[:, TUNE : TUNE + n]):
        return failed("other draws than those made after the warm-up, in order", run_case(test))
    if chains.counts[0] != TUNE + n:
        return failed(f"{n} draws of {chains.counts[0] - TUNE} made after the warm-up", run_case(test))
    return passed(f"{CHAINS} chains of {n} draws")


def end_of_run(test: StoppingExamination) -> Row:
    """Check that a run ends at about the number of draws that have the wanted effective sample size."""
    found, _ = test.ended()
    n, wanted = found.shape[1], math.ceil(ESS / effective(1))
    basis = f"{n} draws per chain; {wanted} have the ESS {ESS:g}; allowed {SOONER:g} to {LATER:g} times as many"
    fine = SOONER * wanted <= n <= LATER * wanted
    return passed(basis) if fine else failed(basis, run_case(test))


def most_draws(test: StoppingExamination) -> Row:
    """Check that a run whose rule is never met ends at the largest number of draws."""
    test.needs("ess")
    found, chains = test.drawn({"ess": 1e9}, FEW)
    n = found.shape[1] if found.ndim > 1 else 0
    made = max(chains.counts) - TUNE
    if n == made == FEW:
        return passed(f"{FEW} draws")
    return failed(f"{n} draws per chain, {made} made; the most are {FEW}", run_case(test))


def run_case(test: StoppingExamination) -> str:
    return f"{test.run.name if test.run else ''}(draw, {CHAINS}, {TUNE}, limits, max_draws)"


ROWS: Rows = (
    ("answers", answers, INEFFICIENT),
    ("effective sample size", effective_sample_size, INEFFICIENT),
    ("R-hat", r_hat, INEFFICIENT),
    ("standard error", standard_error, INEFFICIENT),
    ("chains that disagree", disagreeing, INEFFICIENT),
    ("drift", drifting, INEFFICIENT),
    ("undefined measures", undefined, INEFFICIENT),
    ("all conditions", all_conditions, INEFFICIENT),
    ("draws of the run", draws_of_run),
    ("end of the run", end_of_run, INEFFICIENT),
    ("most draws", most_draws, INEFFICIENT),
)
TYPICAL = {
    "effective sample size": "the effective sample size is wrong: is it that of all chains, with the autocorrelations "
    "twice, and of the worst coordinate?",
    "R-hat": "R-hat is wrong: is the square root taken, and does the worst coordinate decide?",
    "standard error": "the standard error is wrong: is it the standard deviation over the root of the effective sample size?",
    "chains that disagree": "the rule does not compare the chains: are effective sample sizes added, or NaN left out?",
    "drift": "R-hat is taken of whole chains: split them into halves",
    "undefined measures": "a comparison with NaN is False: the rule must continue unless its conditions are true",
    "all conditions": "one condition is enough to end: all must hold",
    "draws of the run": "chains must end together, and warm-up does not count",
    "end of the run": "the rule is not checked on all draws after the warm-up",
}


def typical(test: StoppingExamination, rows: dict[str, Row]) -> list[str]:
    """Return the causes that the failed rows are typical of."""
    return causes({name for name, row in rows.items() if row.status == FAIL}, TYPICAL)


def stopping(
    rule: Any,
    run: Any = None,
    *,
    conditions: Sequence[str] = CONDITIONS,
    seconds: float | None = 60.0,
    seed: int = 20261121,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check a rule that ends chains when their effective sample size, R-hat and standard errors are good enough.

    The rows "effective sample size", "R-hat" and "standard error" find by bisection at which limit the rule changes its answer,
    and compare this limit with the exact value of the process that the draws are from. The factor 1.6 is allowed in either
    direction, so that the check accepts other estimators than refhmc's, but no formula without a factor 2 or a root. Further
    rows need the rule to continue for chains that disagree, drift together, or have no measure. The rows on a run examine which
    draws it counts and when it ends. The check does not measure the bias of stopping at a favourable moment.

    Parameters
    ----------
    rule : callable
        ``rule(x, limits) -> bool``: whether the draws x, of shape (chain, draw, d), meet all of the limits. `limits` is a dict
        with some of the `conditions`.
    run : callable, optional
        ``run(draw, chains, tune, limits, max_draws) -> x``: make `tune` iterations of warm-up with each chain, then draw until
        the rule is met or each chain has `max_draws`, and return the draws after the warm-up, (chain, draw, d).
        ``draw(chain)`` returns the next position (d,) of a chain, which is counted from 0.
    conditions : sequence of str, default ("ess", "rhat", "mcse")
        The limits that the rule knows: "ess" is the least effective sample size of all chains together, "rhat" the largest
        R-hat and "mcse" the largest standard error of a mean, each over the coordinates.
    seconds : float or None, default 60.0
        Budget in processor seconds. None means no limit.
    seed : int, default 20261121
        Seed of the draws.
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
        If `rule` or `run` is not callable.
    ValueError
        If `conditions` or `seconds` is invalid.

    See Also
    --------
    refhmc.Until : The rule that `refhmc.sample` takes.

    References
    ----------
    Vehtari, Gelman, Simpson, Carpenter and Buerkner (2021), Bayesian Analysis 16, 667-718.

    Examples
    --------
    >>> import refhmc
    >>> def rule(x, limits):
    ...     return bool((refhmc.diagnostics.ess(x) >= limits["ess"]).all())
    >>> refhmc.check.stopping(rule, conditions=["ess"]).status
    'PASS'
    """
    require_times(seconds=seconds)
    known = tuple(conditions)
    if not known or not set(known) <= set(CONDITIONS):
        raise ValueError(f"conditions must be some of {', '.join(CONDITIONS)}; got {conditions!r}.")
    test = StoppingExamination(Foreign(rule, name), None if run is None else Foreign(run, None), known, seed)
    test.settings = {"conditions": ", ".join(known), "chains": CHAINS, "draws": DRAWS}
    return test.report(
        "stopping",
        ROWS,
        diagnose=typical,
        seconds_per_call=seconds_per_call,
        seconds=math.inf if seconds is None else seconds,
        share=0.9,
        false_alarm="below 1e-6 per row for a measure whose relative standard error is below 8 % on these draws",
    )
