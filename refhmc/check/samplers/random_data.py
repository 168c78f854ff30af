"""``check.transition_with_data``: whether a transition preserves the posterior of a model, without exact posterior draws.

(theta, y) is drawn from the joint distribution, so that theta is an exact draw of the posterior given y. With K the transition
given y, L steps, and m uniform on 0, ..., L,

    X_m = theta,    X_(k+1) = K X_k  for k = m, ..., L - 1,    X_(k-1) = K X_k  for k = m, ..., 1

**Ranks.** If K is reversible with respect to the posterior, X_0, ..., X_L is a stationary path of K, and m is independent of
it. Therefore, for every quantity f(theta, y),

    r = number of k with f(X_k, y) < f(theta, y)   is uniform on 0 ... L   (ties broken at random).

This is exact for every L, however slowly K mixes (Gandy and Scott 2021). With u = (r + a uniform number) / (L + 1) and a score
g, D = g(u) - E g is bet against as in ``samplers/evidence.py``.

**Stationarity.** If K preserves the posterior, reversible or not, each X_k has the distribution of theta given y. Therefore

    D = mean over k != m of g(f(X_k, y)) - g(f(theta, y)),    E D = 0,

with g the scores of the rank among quantities drawn beforehand. Ranks often have more power, since they compare theta with the
posterior of its own data, and D also varies with the data.

The quantities are those of :func:`refhmc.check.sbc`: coordinates, coordinates with a sign that depends on the data, and the
user's. A kernel that ignores the data preserves the distribution of every quantity that does not see them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Examination, Rows
from refhmc.check.judging import causes, failed, passed
from refhmc.check.report import CALL_FAILED, FAIL, PASS, Report, Row
from refhmc.check.samplers import evidence
from refhmc.check.samplers.keyed_data import KeyedTransition, keyed_transition
from refhmc.check.samplers.simulations import data_statistics
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign, Inconclusive, NotApplicable, OutOfTime, SubjectError

PILOT = 400  # joint draws for the bins of the quantities and the centers of the data
FEWEST = 100  # simulations for a PASS
WIDTHS = np.diff(np.concatenate([[0.0], evidence.LEVELS, [1.0]]))
EXPECTED = evidence.SCORES @ WIDTHS  # E g(u)


class RandomDataExamination(Examination):
    """One transition given data under examination: its paths and the wealth of the bets."""

    def __init__(
        self,
        simulate: Foreign,
        given: Foreign,
        quantities: Foreign | None,
        reversible: bool | None,
        steps: int,
        simulations: int,
        alpha: float,
        seed: int,
    ) -> None:
        super().__init__(given.name, [f for f in (simulate, given, quantities) if f is not None], seed)
        self.simulate, self.given, self.quantities = simulate, given, quantities
        self.reversible, self.steps, self.simulations = reversible, steps, simulations
        self.limit = math.log(2 / alpha)  # for each of the two rows
        self.rng, self.own = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2))
        self.n, self.moves, self.moved, self.case = 0, 0, 0, ""
        self.names: list[str] = []
        self.logs: dict[str, np.ndarray] = {}
        self.best = {"ranks": -math.inf, "stationarity": -math.inf}  # log e-values
        self.squares: Any = 0.0
        self.keyed: KeyedTransition | None = None

    def pair(self) -> tuple[np.ndarray, Any]:
        """Return (theta, y) from the joint distribution."""
        try:
            theta, y = self.simulate.raw(self.rng)
        except (TypeError, ValueError):
            raise SubjectError(f"{self.simulate.name} must return the pair (theta, y)") from None
        return np.atleast_1d(self.simulate.array(theta, None, "theta").real), y

    def transition(self, y: Any) -> Callable[[np.ndarray], np.ndarray]:
        """Return one transition of theta given y."""
        if self.keyed is not None:
            return functools.partial(self.keyed, y, self.own)
        function = self.given.raw(y)
        if not callable(function):
            raise SubjectError(f"{self.given.name} must return a function of (rng, theta)")
        kernel = self.given.another(function)

        def moved(theta: np.ndarray) -> np.ndarray:
            after = kernel.vector(theta.shape, self.own, theta)
            self.given.mutated = self.given.mutated or kernel.mutated
            return after

        return moved

    def path(self, theta: np.ndarray, y: Any) -> tuple[np.ndarray, int]:
        """Return X_0, ..., X_L and m."""
        transition, m = self.transition(y), int(self.own.integers(self.steps + 1))
        path = np.empty((self.steps + 1, len(theta)))
        path[m] = theta
        for order in (range(m + 1, self.steps + 1), range(m - 1, -1, -1)):
            at = theta
            for k in order:
                path[k] = transition(at)
                self.moved += not np.array_equal(path[k], at)
                at = path[k].copy()
        self.moves += self.steps
        self.case = f"{self.given.name}(y)(rng, np.array({theta.tolist()}))"
        if not np.all(np.isfinite(path)):
            raise SubjectError(f"{self.given.name}: a state is NaN or infinite", self.case)
        return path, m

    def values(self, path: np.ndarray, y: Any) -> np.ndarray:
        """Return the quantities (n, F) of the states of a path."""
        columns = [path]
        if self.centers is not None:
            seen = data_statistics(y)
            above = np.zeros(2, dtype=bool) if seen is None else seen > self.centers
            columns += [path * (1.0 if high else -1.0) for high in above]
        if self.quantities is not None:
            columns.append(np.array([np.ravel(self.quantities.raw(x, y)) for x in path], dtype=float))
        return np.hstack(columns)

    def prepare(self) -> None:
        """Draw pairs for the centers of the data, and for the bins of the quantities."""
        pilot = [self.pair() for _ in range(PILOT)]
        seen = [data_statistics(y) for _, y in pilot]
        self.centers = None if any(s is None for s in seen) else np.median(np.array(seen), axis=0)
        values = np.array([self.values(theta[None], y)[0] for theta, y in pilot])
        d = len(pilot[0][0])
        self.names = [f"theta[{j}]" for j in range(d)]
        if self.centers is not None:
            self.names += [f"theta[{j}] sign({t})" for t in ("mean y", "spread y") for j in range(d)]
        self.names += [f"quantity {k}" for k in range(values.shape[1] - len(self.names))]
        self.edges = evidence.edges_of(values)
        shape = values.shape[1], len(evidence.SCORES), len(evidence.STAKES)
        self.logs = {row: np.zeros(shape) for row in self.best}

    def bet(self, f: np.ndarray, m: int) -> None:
        """Add the quantities (L + 1, F) of a path, in which theta is at m."""
        u = evidence.uniform_ranks(f, m, self.own)
        scores = evidence.SCORES[:, evidence.bins_of(f, self.edges)]  # (score, L + 1, F)
        gains = {
            "ranks": evidence.SCORES[:, np.searchsorted(evidence.LEVELS, u, side="right")].T - EXPECTED,
            "stationarity": (np.delete(scores, m, axis=1).mean(axis=1) - scores[:, m]).T,
        }
        for row, gain in gains.items():
            self.logs[row] += np.log1p(gain[:, :, None] * evidence.STAKES)
            self.best[row] = max(self.best[row], evidence.log_mean(self.logs[row]))
        self.squares = self.squares + gains["stationarity"] ** 2
        self.n += 1

    def decided(self) -> bool:
        """Return whether no further simulation is needed for a FAIL."""
        return self.best["stationarity"] >= self.limit or (self.reversible is True and self.best["ranks"] >= self.limit)

    def collect(self) -> Row:
        """Simulate until a bet is won, there are enough simulations, or the time is over."""
        try:
            self.prepare()
            while self.n < self.simulations and not self.decided():
                theta, y = self.pair()
                path, m = self.path(theta, y)
                self.bet(self.values(path, y), m)
        except OutOfTime:
            if not self.n:
                raise Inconclusive("no simulation was finished within the time limit") from None
        return passed(f"{self.n} simulations of {self.steps} transitions, {self.moved / self.moves:.0%} of which moved")

    def judge(self, row: str) -> Row:
        """Return the row of one of the bets."""
        if not self.n:
            raise NotApplicable("no simulation was completed")
        if not self.moved:
            raise Inconclusive("no transition moved")
        number, limit = math.exp(min(self.best[row], 700.0)), math.exp(self.limit)
        j, g, k = np.unravel_index(int(np.argmax(self.logs[row])), self.logs[row].shape)
        if number >= limit:
            size = "larger" if (evidence.STAKES[k] > 0) == (row == "stationarity") else "smaller"
            what = f"{evidence.SCORE_NAMES[g]} of {self.names[j]}"
            basis = f"e-value after {self.n} simulations; the {what} is {size} after the transitions than before"
            return failed(basis, self.case, number, limit, relation="<")
        if self.n < FEWEST:
            raise Inconclusive(f"{self.n} simulations are too few", number)
        spread = np.full(1, np.sqrt(1 / 12)) if row == "ranks" else np.sqrt(self.squares[:, 0] / self.n)
        least = evidence.least_detectable(spread, self.n, self.limit, self.logs[row].size).max()
        what = "the truth" if row == "ranks" else "a quantity among those of all data"
        basis = f"e-value of {self.n} simulations; a mean rank of {what} that is off by {least:.2g} would be found"
        return passed(f"{basis} with probability 0.99", number, limit, "<")

    def ranks(self) -> Row:
        """Judge the ranks, which are uniform for a reversible transition."""
        if self.reversible is False:
            raise NotApplicable("the transition is not reversible")
        row = self.judge("ranks")
        if row.status == PASS or self.reversible or self.best["stationarity"] >= self.limit:
            return row
        why = "ranks are not uniform: the transition is not reversible, or it is wrong. Give reversible=True or False"
        raise Inconclusive(f"{why} ({row.basis})", row.number)


ROWS: Rows = (
    ("answers", RandomDataExamination.collect),
    ("stationarity", lambda test: test.judge("stationarity")),
    ("ranks", RandomDataExamination.ranks),
)
TYPICAL = dict.fromkeys(
    ("stationarity", "ranks"),
    "the transition does not preserve the posterior given the data: does it use the data and the prior of the simulator?",
)


def transition_with_data(
    simulate: Callable,
    transition_given: Callable,
    *,
    reversible: bool | None = None,
    steps: int = 19,
    simulations: int = 2000,
    alpha: float = 1e-6,
    seconds: float | None = 60.0,
    quantities: Callable | None = None,
    like: Any = None,
    name: str | None = None,
    seed: int = 20261121,
    seconds_per_call: float | None = SECONDS_PER_CALL,
) -> Report:
    """Check that a transition preserves the posterior of a model, with random data and without exact posterior draws.

    (theta, y) is drawn from the joint distribution, so that theta is an exact draw of the posterior given y. The state theta is
    placed at a random position m of a path of `steps` transitions, whose earlier part is made by the same transition. For a
    reversible transition the rank ::

        r = number of k with f(X_k, y) < f(theta, y)

    is uniform on 0, ..., `steps`, for every quantity f and however slowly the chain mixes. A second row only needs
    stationarity: the other states of the path have the distribution of theta. Both are judged by bets, so that the check may
    stop at any time: a correct transition fails with probability at most `alpha`, whenever it ends.

    The check finds wrong priors, likelihoods, Jacobians and acceptance rules, and data that are ignored. It cannot find a
    transition that never moves (INCONCLUSIVE) or does not reach all states (use :func:`grid`), nor errors that leave the
    distribution of all tested quantities as it is; `quantities` such as the log likelihood find more of them.

    Parameters
    ----------
    simulate : callable
        ``simulate(rng)`` returns (theta, y): parameters from the prior, a number or an array of shape (dim,), and data of any
        type.
    transition_given : callable
        ``transition_given(y)`` returns the transition ``kernel(rng, theta) -> theta`` with a NumPy generator, or a kernel of
        JAX for one chain, in one of the forms of :func:`sampler`. The latter is compiled once, for all data.
    reversible : bool, optional
        Whether the transition satisfies detailed balance, as HMC and NUTS do and sweeps in a fixed order do not. By default it
        is unknown: ranks that are not uniform are then INCONCLUSIVE unless stationarity fails, too.
    steps : int, default 19
        Number of transitions of each path. Slow kernels need more, since a path must leave the neighbourhood of theta.
    simulations : int, default 2000
        Largest number of simulations.
    alpha : float, default 1e-6
        Probability that a correct transition fails.
    seconds : float or None, default 60.0
        Budget in processor seconds; the check also ends after five times this wall-clock time. None means no limit.
    quantities : callable, optional
        ``quantities(theta, y)`` returns further quantities, of shape (k,), such as the log likelihood.
    like : callable, module or array, optional
        Array type of theta in calls of the transition: a conversion function, a module with ``asarray``, or an example array.
        NumPy float64 by default.
    name : str, optional
        Name of the subject in the report.
    seed : int, default 20261121
        Seed of the simulations.
    seconds_per_call : float or None, default 30.0
        A call that takes longer is a FAIL. None means no limit.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    TypeError
        If `simulate` or `transition_given` is not callable.
    ValueError
        If `steps`, `simulations`, `alpha` or `seconds` is invalid.

    See Also
    --------
    sbc : The same question about a whole fit.
    transition : Exact checks of a transition on given randomness, for one density.

    References
    ----------
    Gandy and Scott (2021), "Unit testing for MCMC and other Monte Carlo methods", arXiv 2001.06465.

    Examples
    --------
    >>> import numpy as np
    >>> def simulate(rng):  # theta ~ N(0, 1), three observations of it with variance 1
    ...     theta = rng.standard_normal(1)
    ...     return theta, theta + rng.standard_normal(3)
    >>> def transition_given(y):  # a random walk with Metropolis' rule
    ...     def log_posterior(theta):
    ...         return -0.5 * theta[0] ** 2 - 0.5 * np.sum((y - theta) ** 2)
    ...     def kernel(rng, theta):
    ...         new = theta + rng.standard_normal(1)
    ...         return new if np.log(rng.random()) < log_posterior(new) - log_posterior(theta) else theta
    ...     return kernel
    >>> refhmc.check.transition_with_data(simulate, transition_given, reversible=True, simulations=300).status
    'PASS'
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1; got {alpha}.")
    require_counts(steps=steps, simulations=simulations)
    require_times(seconds=seconds)
    test = RandomDataExamination(
        Foreign(simulate, "simulate"),
        Foreign(transition_given, name, like),
        None if quantities is None else Foreign(quantities, "quantities"),
        *(reversible, steps, simulations, float(alpha), seed),
    )
    try:
        test.keyed = keyed_transition(test.given, functools.partial(simulate, np.random.default_rng([seed, 1])), like)
    except SubjectError as wrong:
        row = Row("answers", FAIL, basis=str(wrong), severity=CALL_FAILED, case=wrong.case)
        return Report("transition_with_data", test.title, {"steps": steps}, seed, (row,))
    if test.keyed is not None:
        test.foreign.append(test.keyed.step)
        test.notes.append(test.keyed.note)
    test.settings = {"steps": steps, "simulations": simulations}
    return test.report(
        "transition_with_data",
        ROWS,
        diagnose=lambda test, rows: causes({name for name, row in rows.items() if row.status == FAIL}, TYPICAL),
        seconds_per_call=seconds_per_call,
        seconds=seconds,
        share=0.9,
        false_alarm=f"at most {alpha:g} for both rows, whenever the check ends",
    )
