"""``check.tempering``: the swaps of parallel tempering, and an estimate of log Z from its replicas.

Replicas at 0 = b_0 < ... < b_K = 1 have densities proportional to r^(1 - b) pi^b, and swaps depend on V = log pi - log r only.
If replicas do not move between swaps, the state is the permutation s of K + 1 given numbers V_i. The product of the densities
gives it the exact probability

    P(s)  proportional to  exp(sum_k b_k V_{s(k)})

Permutations drawn from P must have the distribution P after any number of iterations of swaps. Each of the (K + 1)! frequencies
is compared with its probability by an exact binomial test.

If all V are equal, every swap is accepted. Alternating even and odd pairs then moves each replica one temperature per iteration
in one direction, up to the end of the ladder. This is compared with the exact permutations.

For log Z, reference and target are normals of one dimension, so that all draws are independent and exact, and log Z is known.
V is not symmetric there, because an estimate with reversed weights can be right for a symmetric V.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import scipy.stats

from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Examination, Rows
from refhmc.check.judging import causes, failed, judged, passed
from refhmc.check.report import FAIL, INEFFICIENT, Report, Row
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign, NotApplicable, SubjectError, call_text

B = np.array([0.0, 0.2, 0.55, 1.0])
V = np.array([-1.1, 0.3, 0.9, 2.2])
ITERATIONS = (1, 2, 3, 6)
LADDERS = (4, 5)  # numbers of replicas for the alternation
# log r is that of N(0, SCALE^2), log pi = LOG_Z + log N(q; MEAN, 1).
SCALE, MEAN, LOG_Z = 2.0, 1.5, -3.0
RUNGS, RUNS, DRAWS = 20, 100, 400
QUADRATURE = 0.01  # allowed error of the trapezoidal rule over the temperatures
COARSE = 1.5  # allowed ratio of stated and true standard errors


@dataclasses.dataclass
class TemperingExamination(Examination):
    """Swaps and an estimate under examination, and the arguments of the check."""

    swaps: Foreign
    log_z: Foreign | None
    n: int
    alpha: float
    seed: int

    def __post_init__(self) -> None:
        super().__init__(self.swaps.name, [self.swaps] + ([] if self.log_z is None else [self.log_z]), self.seed)
        self._estimates: tuple[np.ndarray, np.ndarray] | None = None

    def order(self, rng: np.random.Generator, b: np.ndarray, V: np.ndarray, n: int) -> np.ndarray:
        """Return the replica at each temperature after n iterations of swaps."""
        given = [rng, b, V, n]
        case = self.case(b, V, n)
        found = self.swaps.array(self.swaps.raw(*given), V.shape, "an order", given)
        if sorted(found.tolist()) != list(range(len(V))):
            raise SubjectError(f"{self.swaps.name} must return a permutation of 0, ..., {len(V) - 1}", case)
        return found.astype(int)

    def case(self, b: np.ndarray, V: np.ndarray, n: int) -> str:
        return call_text(self.swaps.name, ["rng", b, V, n])

    def estimates(self) -> tuple[np.ndarray, np.ndarray]:
        """Return estimates of log Z and their stated standard errors, NaN if there are none."""
        if self.log_z is None:
            raise NotApplicable("no estimate of log Z was given")
        if self._estimates is None:
            rng, found = np.random.default_rng([self.seed, 9]), []
            for _ in range(RUNS):
                b, values = independent_draws(rng)
                made = np.ravel(np.asarray(self.log_z.raw(b, values), dtype=float))
                if made.size not in (1, 2):
                    raise SubjectError(f"{self.log_z.name} must return log Z, or (log Z, standard error)", "")
                found.append([made[0], made[1] if made.size == 2 else math.nan])
            self._estimates = np.array(found)[:, 0], np.array(found)[:, 1]
        return self._estimates


def independent_draws(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return a ladder b (K + 1,), and V (draw, K + 1) at independent draws from each density."""
    b = (np.arange(RUNGS + 1) / RUNGS) ** 1.5
    precision = (1 - b) / SCALE**2 + b
    q = b * MEAN / precision + rng.standard_normal((DRAWS, RUNGS + 1)) / np.sqrt(precision)
    log_reference = -0.5 * (q / SCALE) ** 2 - math.log(SCALE)
    return b, LOG_Z - 0.5 * (q - MEAN) ** 2 - log_reference


def answers(test: TemperingExamination) -> Row:
    """Check that the swaps return permutations."""
    for k, n in enumerate((0, *ITERATIONS)):
        rng = np.random.default_rng([test.seed, 0, k])
        if n == 0 and not np.array_equal(test.order(rng, B, V, 0), np.arange(len(V))):
            return failed("replicas moved in 0 iterations", test.case(B, V, 0))
        test.order(rng, B, V, n)
    return passed(f"{len(ITERATIONS) + 1} calls")


def alternating(replicas: int, n: int, first: int) -> np.ndarray:
    """Return the order after n iterations in which all swaps are accepted; those of parity `first` come first."""
    order = np.arange(replicas)
    for i in range(n):
        for k in range((i + first) % 2, replicas - 1, 2):
            order[[k, k + 1]] = order[[k + 1, k]]
    return order


def alternates(test: TemperingExamination) -> Row:
    """Check that even and odd pairs alternate, where all swaps are accepted."""
    for replicas in LADDERS:
        b, equal = np.linspace(0, 1, replicas), np.zeros(replicas)
        numbers = range(1, 2 * replicas + 1)
        found = [test.order(np.random.default_rng([test.seed, 1, n]), b, equal, n) for n in numbers]
        agree = [
            [np.array_equal(order, alternating(replicas, n, first)) for n, order in zip(numbers, found, strict=True)]
            for first in (0, 1)
        ]
        if not any(all(each) for each in agree):
            n = min(numbers[each.index(False)] for each in agree)
            return failed("another order than that of alternating even and odd pairs", test.case(b, equal, n))
    return passed(f"ladders of {' and '.join(map(str, LADDERS))} replicas, up to two round trips")


def stationary(test: TemperingExamination) -> Row:
    """Compare the frequencies of permutations after swaps with the product of the densities."""
    orders = list(itertools.permutations(range(len(V))))
    weights = np.exp([B @ V[list(order)] for order in orders])
    probabilities, worst, at = weights / weights.sum(), 1.0, ITERATIONS[0]
    for n in ITERATIONS:
        rng = np.random.default_rng([test.seed, 2, n])
        counts = dict.fromkeys(orders, 0)
        for start in rng.choice(len(orders), size=test.n, p=probabilities):
            there = np.array(orders[start])
            counts[tuple(there[test.order(rng, B, V[there], n)].tolist())] += 1
        for order, probability in zip(orders, probabilities, strict=True):
            p = float(scipy.stats.binomtest(counts[order], test.n, probability).pvalue)
            if p < worst:
                worst, at = p, n
    tests = len(orders) * len(ITERATIONS)
    basis = f"least p-value of {tests} binomial tests with n = {test.n}; alpha / {3 * tests}"
    return judged(worst, test.alpha / 3 / tests, basis, test.case(B, V, at), relation=">=")


def log_z_right(test: TemperingExamination) -> Row:
    """Compare the mean estimate of log Z with the exact value."""
    found, _ = test.estimates()
    sd = float(found.std(ddof=1))
    quantile = float(scipy.stats.t.ppf(1 - test.alpha / 6, RUNS - 1))
    # The logarithm of an unbiased estimate of Z is too small by half its variance.
    allowed = quantile * sd / math.sqrt(RUNS) + sd**2 + QUADRATURE
    basis = f"mean of {RUNS} estimates from {DRAWS} draws; t quantile, plus {QUADRATURE} for quadrature"
    return judged(abs(float(found.mean()) - LOG_Z), allowed, basis, f"{test.log_z.name if test.log_z else ''}(b, V)")


def error_right(test: TemperingExamination) -> Row:
    """Compare the stated standard errors with the spread of the estimates."""
    found, stated = test.estimates()
    if np.isnan(stated).all():
        raise NotApplicable("the estimate has no standard error")
    ratio = float(np.sum((found - found.mean()) ** 2) / np.mean(stated**2))
    low, high = scipy.stats.chi2.ppf([test.alpha / 6, 1 - test.alpha / 6], RUNS - 1)
    allowed = low / COARSE**2, high * COARSE**2
    basis = f"sum of {RUNS} squared errors / stated variance in [{allowed[0]:.0f}, {allowed[1]:.0f}]"
    if allowed[0] <= ratio <= allowed[1]:
        return passed(f"{basis}; found {ratio:.0f}")
    return failed(f"{basis}; found {ratio:.0f}", f"{test.log_z.name if test.log_z else ''}(b, V)")


ROWS: Rows = (
    ("answers", answers),
    ("alternates", alternates, INEFFICIENT),
    ("stationary", stationary),
    ("log Z", log_z_right),
    ("error of log Z", error_right),
)
TYPICAL = {
    "alternates": "pairs do not alternate: is the parity drawn at random, or are all pairs tried in each iteration?",
    "stationary": "swaps do not keep the product of the densities: does the exponent have the sign of "
    "(b_{k+1} - b_k) (V_k - V_{k+1}), are both replicas in it, and do V move with their replicas?",
    "log Z": "log Z is wrong: are the weights exp((b_{k+1} - b_k) V) with V at the lower b?",
}


def typical(test: TemperingExamination, rows: dict[str, Row]) -> list[str]:
    """Return the causes that the failed rows are typical of."""
    return causes({name for name, row in rows.items() if row.status == FAIL}, TYPICAL)


def tempering(
    swaps: Any,
    log_z: Any = None,
    *,
    n: int = 2000,
    alpha: float = 1e-6,
    seconds: float | None = 60.0,
    seed: int = 20261121,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check the swaps of non-reversible parallel tempering, and an estimate of log Z.

    Swaps only depend on the inverse temperatures b and on V = log target - log reference of the replicas. Without moves between
    them, the distribution of the order of the replicas is known exactly. The row "stationary" compares frequencies with it by
    exact binomial tests. The row "alternates" needs the exact order where all swaps are accepted. The rows of log Z use
    independent draws from normals. The check does not show that replicas move correctly between swaps (use :func:`transition`).

    Parameters
    ----------
    swaps : callable
        ``swaps(rng, b, V, n) -> order``: make n iterations of swaps, without moves between them, with a NumPy generator. ``b``
        and ``V``, of shape (replicas,), are in the order of the temperatures. ``order[k]`` is the index in ``V`` of the replica
        that is at temperature k afterwards.
    log_z : callable, optional
        ``log_z(b, V) -> float``, or a pair with the standard error, for V of shape (draw, replicas), with a normalised
        reference at b = 0.
    n : int, default 2000
        Number of runs of swaps for each of four numbers of iterations, at least 100.
    alpha : float, default 1e-6
        Probability that correct code fails.
    seconds : float or None, default 60.0
        Budget in processor seconds. None means no limit.
    seed : int, default 20261121
        Seed of the runs.
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
        If `swaps` or `log_z` is not callable.
    ValueError
        If `n`, `alpha` or `seconds` is invalid.

    References
    ----------
    Syed, Bouchard-Cote, Deligiannidis and Doucet (2022), "Non-reversible parallel tempering: a scalable highly parallel MCMC
    scheme", JRSS B 84.

    Examples
    --------
    >>> import numpy as np
    >>> def swaps(rng, b, V, n):
    ...     order = np.arange(len(b))
    ...     for i in range(n):
    ...         for k in range(i % 2, len(b) - 1, 2):
    ...             change = (b[k + 1] - b[k]) * (V[order[k]] - V[order[k + 1]])
    ...             if np.log(rng.random()) < change:
    ...                 order[[k, k + 1]] = order[[k + 1, k]]
    ...     return order
    >>> refhmc.check.tempering(swaps, n=500).status
    'PASS'
    """
    require_times(seconds=seconds)
    require_counts(100, n=n)
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1; got {alpha!r}.")
    estimate = None if log_z is None else Foreign(log_z, None, None)
    test = TemperingExamination(Foreign(swaps, name, None), estimate, int(n), float(alpha), seed)
    test.settings = {"replicas": len(B), "n": n}
    return test.report(
        "tempering",
        ROWS,
        diagnose=typical,
        seconds_per_call=seconds_per_call,
        seconds=math.inf if seconds is None else seconds,
        share=0.9,
        false_alarm=f"at most {alpha:g} for the rows with numbers; the other rows are exact",
    )
