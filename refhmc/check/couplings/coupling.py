"""``check.coupling``: a coupled transition of two chains.

A coupled transition moves a pair, (x, y) -> (x', y'), with joint random numbers. Unbiased estimates and bounds from coupled
chains need two properties:

    margins        x' has the distribution K(x, .) of one kernel, whatever y is, and y' has the distribution K(y, .)
    faithfulness   x = y implies x' = y', bit for bit: chains that met stay together

The margins are tested at fixed pairs: n ends of the coupled transition and n of the kernel are compared by exact two-sample
tests, Kolmogorov-Smirnov for each coordinate, for the distance moved and for the direction x - y, and Fisher's test for the
share of ends that equal the start.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import scipy.stats

from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Examination, Rows
from refhmc.check.judging import causes, failed, judged, passed
from refhmc.check.report import FAIL, Report, Row
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign, SubjectError, call_text

MEETINGS = 200  # transitions from equal states
STEPS = 20  # transitions from one start; the next start follows then


@dataclasses.dataclass
class CouplingExamination(Examination):
    """One coupled transition under examination, and the arguments of the check."""

    coupled: Foreign
    kernel: Foreign
    pairs: np.ndarray
    n: int
    alpha: float
    seed: int

    def __post_init__(self) -> None:
        super().__init__(self.coupled.name, [self.coupled, self.kernel], self.seed)
        self._ends: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def move(self, rng: np.random.Generator, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the ends (x', y') of the coupled transition, (2, dim)."""
        ends: Any = self.coupled.raw(rng, x, y)
        try:
            first, second = ends
        except (TypeError, ValueError):
            raise SubjectError(f"{self.coupled.name} must return the pair (x, y)", self.case(x, y)) from None
        return np.array([self.coupled.array(end, x.shape, "a state", [x, y]) for end in (first, second)])

    def case(self, x: np.ndarray, y: np.ndarray) -> str:
        return call_text(self.coupled.name, ["rng", x, y])

    def ends(self, pair: int) -> tuple[np.ndarray, np.ndarray]:
        """Return n ends of the coupled transition and n of the kernel from a pair of states, (n, 2, dim) each."""
        if pair not in self._ends:
            rng, own = (np.random.default_rng([self.seed, k, pair]) for k in (1, 2))
            x, y = self.pairs[pair]
            together = np.array([self.move(rng, x, y) for _ in range(self.n)])
            alone = np.array([[self.kernel.vector(x.shape, own, q) for q in (x, y)] for _ in range(self.n)])
            self._ends[pair] = together, alone
        return self._ends[pair]


def answers(test: CouplingExamination) -> Row:
    """Check that both functions answer."""
    for k, (x, y) in enumerate(test.pairs):
        test.move(np.random.default_rng([test.seed, 0, k]), x, y)
        test.kernel.vector(x.shape, np.random.default_rng([test.seed, 0, k]), x)
    return passed(f"{len(test.pairs)} pairs")


def stay_together(test: CouplingExamination) -> Row:
    """Check that chains at one state move to one state."""
    starts = test.pairs.reshape(-1, test.pairs.shape[-1])
    for k in range(MEETINGS):
        if k % STEPS == 0:
            q = starts[k // STEPS % len(starts)]
        x, y = test.move(np.random.default_rng([test.seed, 3, k]), q, q)
        if not np.array_equal(x, y, equal_nan=True):
            case = f"rng = np.random.default_rng([{test.seed}, 3, {k}]); {test.case(q, q)}"
            return failed(
                "largest difference after a transition from equal states", case, float(np.abs(x - y).max()), 0
            )
        q = x
    return passed(f"{MEETINGS} transitions from equal states", 0, 0)


def margin(test: CouplingExamination, which: int) -> Row:
    """Compare the ends of one of the chains with those of the kernel."""
    found = [(p, pair) for pair in range(len(test.pairs)) for p in p_values(test, pair, which)]
    worst, pair = min(found)
    alpha = test.alpha / 2 / len(found)
    basis = f"least p-value of {len(found)} two-sample tests with n = {test.n}; alpha / {2 * len(found)}"
    return judged(worst, alpha, basis, test.case(*test.pairs[pair]), relation=">=")


def p_values(test: CouplingExamination, pair: int, which: int) -> list[float]:
    """Return the p-values of the tests of one margin at one pair."""
    (x, y), start = test.pairs[pair], test.pairs[pair, which]
    samples = []
    for ends in test.ends(pair):
        moved = ends[:, which] - start
        samples.append([*ends[:, which].T, np.linalg.norm(moved, axis=1), moved @ (x - y), np.all(moved == 0, axis=1)])
    *numbers, stays = zip(*samples, strict=True)
    table = [[np.count_nonzero(each), test.n - np.count_nonzero(each)] for each in stays]
    p = [float(scipy.stats.ks_2samp(*each, method="exact").pvalue) for each in numbers]
    return [*p, float(scipy.stats.fisher_exact(table).pvalue)]


ROWS: Rows = (
    ("answers", answers),
    ("stay together", stay_together),
    ("first margin", lambda test: margin(test, 0)),
    ("second margin", lambda test: margin(test, 1)),
)
TYPICAL = {
    "stay together": "chains separate after they met: is a direction undefined for x = y, or noise drawn separately?",
    "second margin": "the second chain is not the kernel's: is a ratio of the maximal coupling missing or inverted, or does "
    "the acceptance depend on the first chain?",
}


def typical(test: CouplingExamination, rows: dict[str, Row]) -> list[str]:
    """Return the causes that the failed rows are typical of."""
    return causes({name for name, row in rows.items() if row.status == FAIL}, TYPICAL)


def coupling(
    coupled: Any,
    kernel: Any,
    pairs: Any,
    *,
    n: int = 2000,
    alpha: float = 1e-6,
    seconds: float | None = 60.0,
    seed: int = 20261121,
    like: Any = None,
    name: str | None = None,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check that two coupled chains each have the distribution of a kernel, and stay together after they have met.

    From each pair of states, the ends of `coupled` are compared with those of `kernel` by exact two-sample tests: the
    coordinates, the distance moved, the direction x - y, and the share of ends that equal the start. The row "stay together"
    needs equal ends from equal states, bit for bit, and has no false alarms. The check does not show that `kernel` leaves a
    target invariant (use :func:`transition` or :func:`sampler`), nor that the chains meet soon.

    Parameters
    ----------
    coupled : callable
        ``coupled(rng, x, y) -> (x, y)`` with a NumPy generator; states have shape (dim,).
    kernel : callable
        ``kernel(rng, x) -> x``, the transition of one chain.
    pairs : array_like, shape (k, 2, dim)
        Pairs of states. Include near pairs, which may meet, and distant ones.
    n : int, default 2000
        Number of transitions from each pair, at least 100.
    alpha : float, default 1e-6
        Probability that correct code fails.
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
        If `coupled` or `kernel` is not callable.
    ValueError
        If `pairs`, `n`, `alpha` or `seconds` is invalid.

    References
    ----------
    Jacob, O'Leary and Atchade (2020), "Unbiased Markov chain Monte Carlo methods with couplings", JRSS B 82.

    Examples
    --------
    >>> def step(rng, x):  # an autoregressive process
    ...     return 0.5 * x + rng.standard_normal(len(x))
    >>> def common_numbers(rng, x, y):
    ...     z = rng.standard_normal(len(x))
    ...     return 0.5 * x + z, 0.5 * y + z
    >>> refhmc.check.coupling(common_numbers, step, [[[0.0], [1.0]]]).status
    'PASS'
    """
    require_times(seconds=seconds)
    require_counts(100, n=n)
    states = np.asarray(pairs, dtype=float)
    if states.ndim != 3 or states.shape[1] != 2 or states.size == 0 or not np.isfinite(states).all():
        raise ValueError(f"pairs must be finite pairs of states, shape (k, 2, dim); got shape {states.shape}.")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1; got {alpha!r}.")
    both = Foreign(coupled, name, like), Foreign(kernel, None, like)
    test = CouplingExamination(*both, states, int(n), float(alpha), seed)
    test.settings = {"pairs": len(states), "dim": states.shape[2], "n": n}
    return test.report(
        "coupling",
        ROWS,
        diagnose=typical,
        seconds_per_call=seconds_per_call,
        seconds=math.inf if seconds is None else seconds,
        share=0.9,
        false_alarm=f"at most {alpha:g} for both margins; the other rows are exact",
    )
