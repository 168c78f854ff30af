"""``check.grid``: whether a kernel reaches every state of a small grid, from every state.

K(i -> j) is the probability that a transition from state i ends nearest to state j. A chain converges to its stationary
distribution from every start only if the graph of K is

    irreducible     every state can be reached from every other one in some number of transitions
    aperiodic       the lengths of all cycles have greatest common divisor 1

Marginals can be right although the joint state space is not visited. The K of a kernel with finitely many outcomes is
enumerated (``subject/enumeration.py``), so that invariance, sum_i pi_i K(i -> j) = pi_j, can be judged too. Other kernels run
R times from each state. An edge of probability ``least`` or more is then missed with probability (1 - least)^R, and R is such
that the probability of missing any edge, of all pairs of states, is at most 1e-6.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components

from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Examination, Rows
from refhmc.check.judging import causes, failed, judged, passed
from refhmc.check.report import FAIL, Report, Row
from refhmc.check.subject.budget import Budget
from refhmc.check.subject.enumeration import LEFT_OUT, Answers, Enumerator, OutOfBudget, law_of
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign, Inconclusive, NotApplicable, call_text, text_of
from refhmc.check.subject.transition import DRAWS, GENERATOR, TransitionRunner, find_runner

ALPHA = 1e-6  # probability that sampling misses an edge
MOST_RUNS = 20_000  # of the enumeration from one state


@dataclasses.dataclass
class GridExamination(Examination):
    """One kernel under examination: the arguments of the check, and K."""

    kernel: Foreign
    states: np.ndarray
    log_pi: np.ndarray | None
    least: float
    seconds: float
    seed: int
    runner: TransitionRunner | None = None
    K: np.ndarray | None = None
    exact: bool = False
    off: str = ""  # a transition that ends on no state, if K is exact

    def __post_init__(self) -> None:
        super().__init__(self.kernel.name, [self.kernel], self.seed)

    def need(self) -> np.ndarray:
        """Return K; raise NotApplicable without."""
        if self.K is None:
            raise NotApplicable("the probabilities are not known")
        return self.K

    def nearest(self, q: np.ndarray) -> int:
        return int(np.abs(self.states - q).sum(axis=1).argmin())

    @property
    def how(self) -> str:
        rate = f"{self.runs} runs from each; edges of probability {self.least:g} are missed with probability {ALPHA:g}"
        return "enumerated" if self.exact else rate

    @property
    def runs(self) -> int:
        """Number of runs per state, at which no edge of probability ``least`` is missed."""
        return math.ceil(math.log(ALPHA / len(self.states) ** 2) / math.log1p(-self.least))


def answers(test: GridExamination) -> Row:
    """Find the signature, and compute K by enumeration or by runs."""
    test.runner = find_runner(test.kernel, test.states[0])
    if test.runner.keeps_momentum or test.runner.shape not in (DRAWS, GENERATOR):
        raise NotApplicable("the kernel must be kernel(draws, q) or kernel(rng, q)")
    test.notes.append(f"called as {test.runner.shape}")
    try:
        test.K, test.exact = _enumerated(test), True
    except (Inconclusive, OutOfBudget):
        test.K = _sampled(test)
    return passed(f"{len(test.states)} states, {test.how}")


def _enumerated(test: GridExamination) -> np.ndarray:
    """Return the exact K; Inconclusive if the kernel's randomness is not finite."""
    runner, K = test.runner, np.zeros((len(test.states),) * 2)
    assert runner is not None

    def end(source: Answers, i: int) -> tuple:
        return tuple(np.asarray(runner._run(source, test.states[i], None, None, []).q).tolist())

    ways = Enumerator(end, Answers, subject=test.kernel.function)
    ways.budget = Budget(test.seconds / 2)
    for i in range(len(K)):
        ways.most_runs = ways.runs + MOST_RUNS
        for q, p in law_of(ways.law(i)).items():
            if q == LEFT_OUT:
                continue
            j = test.nearest(np.array(q))
            K[i, j] += p
            if not np.allclose(test.states[j], q, rtol=1e-9, atol=1e-12):
                test.off = f"{call_text(test.kernel.name, [test.states[i]])}  # ends at {list(q)}"
    return K


def _sampled(test: GridExamination) -> np.ndarray:
    """Return the shares of the runs from each state that end nearest to each state."""
    K = np.zeros((len(test.states),) * 2)
    assert test.runner is not None
    for i, q in enumerate(test.states):
        rng = np.random.default_rng([test.seed, i])
        for _ in range(test.runs):
            K[i, test.nearest(test.runner.with_generator(rng, q).q)] += 1 / test.runs
    return K


def stays(test: GridExamination) -> Row:
    """Check that every transition ends on a state of the grid."""
    test.need()
    if not test.exact:
        raise NotApplicable("the outcomes are not finite: an end belongs to the nearest state")
    return failed("an end is not a state of the grid", test.off) if test.off else passed("all ends")


def invariance(test: GridExamination) -> Row:
    """Check sum_i pi_i K(i -> j) = pi_j."""
    K = test.need()
    if test.log_pi is None or not test.exact:
        raise NotApplicable("it needs log_density, and a kernel with finitely many outcomes")
    pi = np.exp(test.log_pi - test.log_pi.max())
    defect = np.abs(pi @ K - pi) / pi.sum()
    return judged(
        float(defect.max()), 1e-12, "largest |sum_i pi_i K(i -> j) - pi_j|; rounding", lambda: _start(test, defect)
    )


def _start(test: GridExamination, defect: np.ndarray) -> str:
    return call_text(test.kernel.name, [test.states[int(defect.argmax())]])


def irreducible(test: GridExamination) -> Row:
    """Check that the graph of K is strongly connected."""
    K = test.need()
    count, label = connected_components(K > 0, directed=True, connection="strong")
    if count == 1:
        return passed(f"one class of {len(K)} states; {test.how}", 1, 1)
    closed = [c for c in range(count) if not (K[label == c][:, label != c] > 0).any()]
    members = test.states[label == closed[0]]
    text = f"starts at {text_of(members[0])} stay within {len(members)} of {len(K)} states"
    case = f"{call_text(test.kernel.name, [members[0]])}  # {text}"
    return failed(f"number of classes; {test.how}", case, count, 1)


def aperiodic(test: GridExamination) -> Row:
    """Check that the cycles of each class have lengths without a common divisor."""
    K = test.need()
    _, label = connected_components(K > 0, directed=True, connection="strong")
    periods = {period(K[np.ix_(label == c, label == c)]): c for c in np.unique(label)}
    worst = max(periods)
    if worst <= 1:
        return passed(f"largest period of a class; {test.how}", worst, 1)
    q = test.states[label == periods[worst]][0]
    return failed(f"largest period of a class; {test.how}", call_text(test.kernel.name, [q]), worst, 1)


def period(K: np.ndarray) -> int:
    """Return the greatest common divisor of all cycle lengths of a strongly connected graph; 0 without cycles.

    With the distance t(i) from state 0, it is that of t(i) + 1 - t(j) over all edges i -> j.
    """
    distance, front = {0: 0}, [0]
    while front:
        i = front.pop(0)
        for j in np.flatnonzero(K[i] > 0).tolist():
            if j not in distance:
                distance[j] = distance[i] + 1
                front.append(j)
    return math.gcd(*(distance[i] + 1 - distance[j] for i, j in np.argwhere(K > 0).tolist()))


ROWS: Rows = (
    ("answers", answers),
    ("stays on the grid", stays),
    ("invariance", invariance),
    ("irreducible", irreducible),
    ("aperiodic", aperiodic),
)
TYPICAL = {
    "irreducible": "some states are never visited: is a proposal always made, or a trajectory half a period long?",
    "aperiodic": "the chain alternates between sets of states: add a chance to stay, or a random length of the trajectory",
}


def typical(test: GridExamination, rows: dict[str, Row]) -> list[str]:
    """Return the causes that the failed rows are typical of."""
    return causes({name for name, row in rows.items() if row.status == FAIL}, TYPICAL)


def grid(
    kernel: Any,
    states: Any,
    log_density: Any = None,
    *,
    least: float = 0.02,
    seconds: float | None = 60.0,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check that a kernel reaches every state of a small grid from every other state, without a period.

    K(i -> j) is the probability that a transition from state i ends nearest to state j. The rows check that its graph is
    strongly connected, and that its cycles have no common divisor. If the kernel has finitely many outcomes, such as a Gibbs
    sampler of binary variables, K is enumerated. Then the rows have no sampling error, and the invariance of the target,
    sum_i pi_i K(i -> j) = pi_j, is checked too. Other kernels run from each state. A kernel whose edges of probability `least`
    or more make the graph connected and aperiodic fails with probability at most 1e-6.

    The check finds chains that leave the right distribution invariant but do not converge to it. Examples are a trajectory of
    half a period on a normal, and proposals that always flip a binary variable. A grid is a coarse picture of a continuous
    distribution: a PASS does not show that all of its support is visited.

    Parameters
    ----------
    kernel : callable
        ``kernel(draws, q)`` with :class:`Draws`, or ``kernel(rng, q)`` with a NumPy generator; it returns q of shape (dim,).
    states : array_like, shape (n, dim)
        All states of a finite distribution, or a grid of points in the bulk of a continuous one.
    log_density : callable, optional
        Log density of a state, for the row "invariance".
    least : float, default 0.02
        Smallest probability of an edge that sampling must not miss.
    seconds : float or None, default 60.0
        Budget in processor seconds. None means no limit.
    seed : int, default 20261121
        Seed of the runs.
    like : callable, module or array, optional
        Array type of the arguments; NumPy float64 by default.
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
        If `kernel` is not callable.
    ValueError
        If `states`, `least` or `seconds` is invalid.

    References
    ----------
    Robert and Casella (2004), "Monte Carlo Statistical Methods", section 6.3.

    Examples
    --------
    >>> def flip_all(draws, q):  # two fair coins, each turned with certainty: the marginals are right
    ...     return 1 - q
    >>> coins = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> report = refhmc.check.grid(flip_all, coins, lambda q: 0.0)
    >>> [row.name for row in report.failures]
    ['irreducible', 'aperiodic']
    """
    require_times(seconds=seconds)
    points = np.asarray(states, dtype=float)
    if points.ndim != 2 or not 2 <= len(points) <= 1000 or not np.isfinite(points).all():
        raise ValueError(f"states must be 2 to 1000 finite points, shape (n, dim); got shape {points.shape}.")
    if not 0 < least < 1:
        raise ValueError(f"least must lie between 0 and 1; got {least!r}.")
    require_counts(dim=points.shape[1])
    log_pi = None if log_density is None else np.array([float(log_density(q.copy())) for q in points])
    part = math.inf if seconds is None else seconds
    test = GridExamination(Foreign(kernel, name, like), points, log_pi, float(least), part, seed)
    test.settings = {"states": len(points), "dim": points.shape[1]}
    return test.report(
        "grid",
        ROWS,
        diagnose=typical,
        seconds_per_call=seconds_per_call,
        seconds=seconds,
        share=0.9,
        false_alarm=f"enumerated rows: none; rows from runs: {ALPHA:g} for a graph that is connected and aperiodic by edges of "
        f"probability {least:g} or more",
    )
