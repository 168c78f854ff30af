"""``check.sbc``: whether a fit draws from the posterior of a model, by ranks of the truth in simulated data.

theta ~ prior, y ~ simulate(theta), and theta_1 ... theta_L are the fit's draws given y. If these are independent draws of the
posterior, then given y they and theta are exchangeable, and for every quantity f(theta, y)

    r = number of l with f(theta_l, y) < f(theta, y)   is uniform on 0 ... L   (ties broken at random),

so that u = (r + a uniform number) / (L + 1) is exactly uniform on (0, 1) (Cook, Gelman and Rubin 2006; Talts et al. 2018). The
check tests u, and |2u - 1| for widths, by Kolmogorov-Smirnov and Anderson-Darling tests, divided by the number of tests.

**Quantities that see the data.** A fit that returns prior draws has uniform ranks for every f(theta). Each coordinate is
therefore also multiplied by the sign of T(y) - c, T the mean or the log standard deviation of the data and c its median in data
simulated beforehand. ``quantities(theta, y)``, such as the log likelihood, are ranked too (Modrak et al. 2023).

**Autocorrelated draws** have ranks that are not uniform although each draw is exact. The draws are thinned by the least k at
which the autocorrelations at k, 2k and 3k, averaged over all fits, sum up to at most ``KEPT`` for the worst of the coordinates
and their distances from the median. If fewer than ``FEWEST_DRAWS`` remain there is no answer, but advice. Without
independence, each draw still has the prior's distribution when averaged over data:

    D = mean over l of g(f(theta_l)) - g(f(theta)),   E D = 0,

and this is bet against as in ``samplers/evidence.py``, with g the scores of the rank among prior draws.

Simulation takes long, so that this check is not part of other reports.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from refhmc.check.arguments import require_counts, require_times
from refhmc.check.examination import Examination
from refhmc.check.judging import failed, judged, passed
from refhmc.check.report import FAIL, PASS, Report, Row
from refhmc.check.samplers import evidence
from refhmc.check.subject.foreign import SECONDS_PER_CALL, Foreign, Inconclusive, NotApplicable, OutOfTime, SubjectError

KEPT = 0.05  # largest remaining sum of autocorrelations
FEWEST_DRAWS, FEWEST_SIMULATIONS = 10, 50
FEWEST_TIMES = 20  # least length of a fit in correlation times, below which these are not known
PILOT = 2000


def sbc(
    prior: Callable,
    simulate: Callable,
    fit: Callable,
    *,
    simulations: int = 500,
    draws: int | None = None,
    alpha: float = 1e-6,
    seconds: float | None = None,
    quantities: Callable | None = None,
    like: Any = None,
    name: str | None = None,
    seed: int = 20261121,
    seconds_per_call: float | None = 10 * SECONDS_PER_CALL,
) -> Report:
    """Check by simulation that a fit draws from the posterior of a model (simulation-based calibration).

    For theta ~ prior, y ~ simulate(theta) and independent posterior draws theta_1, ..., theta_L given y, the rank ::

        r = number of l with f(theta_l, y) < f(theta, y)

    is uniform on 0, ..., L. The check tests ranks of each coordinate, and of quantities that depend on the data, by
    Kolmogorov-Smirnov and Anderson-Darling tests. Draws are thinned until their autocorrelation is negligible; an e-value for
    averages of the posterior does not need that.

    The check finds wrong priors, likelihoods, transforms and samplers, and fits that ignore data. It cannot find errors that
    leave all tested ranks uniform; `quantities` such as the log likelihood find more of them. A correct fit, whose thinned
    draws are independent, fails with probability at most `alpha`. The check ends early after `seconds`, which does not change
    this probability, since nothing is tested before the end.

    Parameters
    ----------
    prior : callable
        ``prior(rng)`` returns theta, a number or an array of shape (dim,).
    simulate : callable
        ``simulate(rng, theta)`` returns data of any type.
    fit : callable
        ``fit(rng, y)`` returns posterior draws of shape (L, dim), with the same L each time.
    simulations : int, default 500
        Number of simulations.
    draws : int, optional
        Number of last draws of each fit to use; all by default.
    alpha : float, default 1e-6
        Probability that a correct fit fails any row.
    seconds : float, optional
        Budget in processor seconds; the check also ends after five times this wall-clock time. No limit by default.
    quantities : callable, optional
        ``quantities(theta, y)`` returns further quantities to rank, of shape (k,), such as the log likelihood.
    like : callable, module or array, optional
        Array type of the arguments of `fit`: a conversion function, a module with ``asarray``, or an example array. NumPy
        float64 by default.
    name : str, optional
        Name of the subject in the report.
    seed : int, default 20261121
        Seed of the simulations.
    seconds_per_call : float or None, default 300.0
        A call that takes longer is a FAIL. None means no limit.

    Returns
    -------
    Report
        The report.

    Raises
    ------
    ValueError
        If `alpha`, `simulations`, `draws` or `seconds` is invalid.

    References
    ----------
    Cook, Gelman and Rubin (2006), "Validation of software for Bayesian models using posterior quantiles".
    Talts et al. (2018), "Validating Bayesian inference algorithms with simulation-based calibration".
    Modrak et al. (2023), "Simulation-based calibration checking for Bayesian computation: the choice of test quantities shapes
    sensitivity".

    Examples
    --------
    >>> import numpy as np
    >>> def prior(rng):
    ...     return rng.normal()
    >>> def simulate(rng, theta):
    ...     return theta + rng.normal(size=3)
    >>> def fit(rng, y):  # exact draws of the posterior
    ...     return rng.normal(y.sum() / 4, 0.5, size=(50, 1))
    >>> refhmc.check.sbc(prior, simulate, fit, simulations=100).status
    'PASS'
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1; got {alpha}.")
    require_counts(simulations=simulations, draws=draws)
    require_times(seconds=seconds)
    test = FitExamination(
        Foreign(prior, "prior"), Foreign(simulate, "simulate"), Foreign(fit, name or "fit", like, in_dimensions=False),
        None if quantities is None else Foreign(quantities, "quantities", in_dimensions=False), simulations,
        draws, alpha, math.inf if seconds is None else seconds, seed,
    )  # fmt: skip
    report = test.report(
        "sbc",
        [
            ("conduct of the fit", FitExamination.collect),
            ("averages of the posterior", FitExamination.averages),
            ("autocorrelation", FitExamination.autocorrelation),
            ("ranks", lambda test: test.ranks(False)),
            ("ranks that see the data", lambda test: test.ranks(True)),
        ],
        diagnose=FitExamination.diagnose,
        seconds_per_call=seconds_per_call,
        seconds=seconds,
        false_alarm=f"a correct fit fails with probability at most {alpha:g} if its thinned draws are independent",
    )
    return report._replace(settings={"simulations": len(test.fits), "alpha": alpha})


class _Fit(NamedTuple):
    """One simulation: the truth (d,), the data, the draws (L, d)."""

    theta: np.ndarray
    y: object
    draws: np.ndarray


class FitExamination(Examination):
    """The simulations and their rows."""

    def __init__(
        self,
        prior: Foreign,
        simulate: Foreign,
        fit: Foreign,
        quantities: Foreign | None,
        simulations: int,
        draws: int | None,
        alpha: float,
        seconds: float | None,
        seed: int,
    ) -> None:
        super().__init__(fit.name, [f for f in (prior, simulate, fit, quantities) if f is not None], seed)
        self.prior, self.simulate, self.fit, self.quantities = prior, simulate, fit, quantities
        self.simulations, self.draws, self.share, self.seconds = simulations, draws, alpha / 2, seconds
        self.rng, self.rng_ties, self.rng_pilot = (
            np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3)
        )
        self.fits: list[_Fit] = []
        self.pilot = np.empty((0, 0))
        self.centres: np.ndarray | None = None
        self.lean: list[str] = []
        self.step: int | None = None

    def collect(self) -> Row:
        """Simulate and fit until there are enough simulations or the time is over."""
        began = time.monotonic()
        try:
            self._collect()
        except OutOfTime:
            if not self.fits:
                raise Inconclusive(f"no fit was finished within the time limit of {self.seconds:g} s") from None
        took = time.monotonic() - began
        return passed(f"{len(self.fits)} simulations in {took:.3g} s")

    def _collect(self) -> None:
        pilot = [self._theta(self.rng_pilot) for _ in range(PILOT)]
        self.pilot = np.array(pilot)
        seen = [data_statistics(self.simulate.raw(self.rng_pilot, theta)) for theta in pilot[:200]]
        if all(s is not None for s in seen):
            self.centres = np.median(np.array(seen), axis=0)
        while len(self.fits) < self.simulations:
            theta = self._theta(self.rng)
            y = self.simulate.raw(self.rng, theta)
            draws = self.fit.array(self.fit.raw(self.rng, y), None, "the draws", (y,)).real
            draws = draws[:, None] if draws.ndim == 1 and len(theta) == 1 else draws
            if draws.ndim != 2 or draws.shape[1] != len(theta) or len(draws) == 0:
                raise SubjectError(f"{self.fit.name}: draws have shape {draws.shape} instead of (L, {len(theta)})")
            if not np.all(np.isfinite(draws)):
                raise SubjectError(f"{self.fit.name}: draws are NaN or infinite")
            self.fits.append(_Fit(theta, y, draws[-self.draws :] if self.draws else draws))
            if len(self.fits[-1].draws) != len(self.fits[0].draws):
                raise SubjectError(
                    f"{self.fit.name}: {len(draws)} draws instead of {len(self.fits[0].draws)} as before"
                )

    def _theta(self, rng: np.random.Generator) -> np.ndarray:
        return np.atleast_1d(self.prior.array(self.prior.raw(rng), None, "theta").real)

    def averages(self) -> Row:
        """Check that the posterior draws, over all data, have the prior's distribution, even if autocorrelated."""
        self._enough()
        edges = evidence.edges_of(self.pilot)
        log_wealth = np.zeros((self.pilot.shape[1], len(evidence.SCORES), len(evidence.STAKES)))
        path = 0.0
        for one in self.fits:
            scores = evidence.SCORES[:, evidence.bins_of(one.draws, edges)].mean(axis=1)  # (score, d)
            gain = scores - evidence.SCORES[:, evidence.bins_of(one.theta[None], edges)[0]]
            log_wealth += np.log1p(gain.T[:, :, None] * evidence.STAKES)
            path = max(path, evidence.log_mean(log_wealth))
        number, limit = math.exp(min(path, 700.0)), 1 / self.share
        j, g, k = np.unravel_index(int(np.argmax(log_wealth)), log_wealth.shape)
        basis = f"e-value of {len(self.fits)} simulations: draws averaged over data have the prior's distribution"
        if number < limit:
            return passed(basis, number, limit, "<")
        size = "more" if evidence.STAKES[k] > 0 else "less"
        basis = f"{basis}; the {evidence.SCORE_NAMES[g]} of theta[{j}] is {size} than the prior's"
        return failed(basis, self._call(), number, limit, relation="<")

    def autocorrelation(self) -> Row:
        """Find the thinning that makes ranks valid."""
        self._enough()
        number = len(self.fits[0].draws)
        rho, time_scale = _autocorrelations(np.array([one.draws for one in self.fits]))
        if number < FEWEST_TIMES * time_scale:
            few = f"{number} draws per fit, with a correlation time of about {time_scale:.1f} draws, are too few"
            raise Inconclusive(f"{few}: let it return {math.ceil(2 * FEWEST_TIMES * time_scale)}, or thin them")
        lags = np.arange(1, (len(rho) - 1) // 3 + 1)
        left = 2 * np.abs(rho[lags] + rho[2 * lags] + rho[3 * lags]) if len(lags) else np.empty(0)
        # An estimate of a sum of three from this number of draws is off by a few of its standard errors.
        noise = 6 * math.sqrt(3.0 / (len(self.fits) * number))
        good = lags[left <= KEPT + noise]
        if len(good) == 0 or number // good[0] < FEWEST_DRAWS:
            raise Inconclusive(
                f"{number} draws per fit, thinned until they are independent, leave fewer than {FEWEST_DRAWS}"
            )
        self.step = int(good[0])
        basis = f"one in {self.step} draws is kept, {number // self.step} of {number}"
        return passed(basis, float(left[self.step - 1]), KEPT + noise)

    def ranks(self, with_data: bool) -> Row:
        """Check that the ranks are uniform."""
        self._enough()
        if self.step is None:
            raise Inconclusive("the draws are too autocorrelated")
        if with_data and self.centres is None and self.quantities is None:
            raise NotApplicable("the data are not an array of numbers; pass quantities, such as the log likelihood")
        names = self._names(with_data)
        u = np.array([self._uniforms(one, with_data) for one in self.fits])
        tests = []
        for name, column in zip(names, u.T, strict=True):
            for kind, v in (("ranks", column), ("widths", np.abs(2 * column - 1))):
                tests.append((evidence.uniform_kolmogorov(v), f"KS, {kind} of {name}"))
                tests.append((evidence.uniform_anderson(v), f"AD, {kind} of {name}"))
        count = 4 * (len(self._names(False)) + len(self._names(True)))
        least, which = min(tests)
        basis = f"least p times {count} tests: {which}, {len(self.fits)} simulations"
        p = min(1.0, least * count)
        if p >= self.share and len(self.fits) < FEWEST_SIMULATIONS:
            raise Inconclusive(f"{len(self.fits)} simulations are too few", p)
        if p < self.share:
            worst = which.split(" of ", 1)[1]
            self.lean.append(_lean(u[:, names.index(worst)], worst))
        return judged(p, self.share, basis, self._call(), relation=">=")

    def _names(self, with_data: bool) -> list[str]:
        d = self.pilot.shape[1]
        if not with_data:
            return [f"theta[{j}]" for j in range(d)]
        names = [f"theta[{j}] sign({t})" for t in ("mean y", "spread y") for j in range(d)] * (self.centres is not None)
        if self.quantities is not None:
            one = self.fits[0]
            names += [f"quantity {k}" for k in range(np.size(self.quantities.raw(one.theta, one.y)))]
        return names

    def _uniforms(self, one: _Fit, with_data: bool) -> list[float]:
        """Return u for each quantity."""
        step = self.step or 1
        draws = one.draws[step - 1 :: step]
        points = np.vstack([one.theta, draws])
        columns = [points]
        if with_data:
            columns = []
            if self.centres is not None:
                seen = data_statistics(one.y)
                above = np.zeros(2, dtype=bool) if seen is None else seen > self.centres
                columns = [points * (1.0 if high else -1.0) for high in above]
            if self.quantities is not None:
                columns.append(np.array([np.ravel(self.quantities.raw(x, one.y)) for x in points], dtype=float))
        f = np.hstack(columns)
        return list(evidence.uniform_ranks(f, 0, self.rng_ties))

    def diagnose(self, rows: dict[str, Row]) -> list[str]:
        """Return the causes that the shape of the ranks is typical of."""
        said = list(dict.fromkeys(self.lean))
        data = rows.get("ranks that see the data")
        plain = rows.get("ranks")
        if data is not None and plain is not None and data.status == FAIL and plain.status == PASS:
            said.append(
                "the ranks are only wrong if they see the data: typical of a fit that ignores (some of) the data"
            )
        return said

    def _call(self) -> str:
        return f"refhmc.check.sbc(prior, simulate, {self.fit.name}, simulations={len(self.fits)})"

    def _enough(self) -> None:
        if not self.fits:
            raise NotApplicable("no fit was completed")


def data_statistics(y: Any) -> np.ndarray | None:
    """Return mean and log standard deviation of data that are an array of numbers, else None."""
    try:
        flat = np.ravel(np.asarray(y, dtype=float))
    except (TypeError, ValueError):
        return None
    if flat.size == 0 or not np.all(np.isfinite(flat)):
        return None
    return np.array([flat.mean(), np.log(np.std(flat) + 1e-300) if flat.size > 1 else abs(flat[0])])


def _autocorrelations(draws: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the largest autocorrelations (lags,) of draws (S, L, d), averaged over the S fits, and the correlation time.

    The correlation time is the largest of 1 + 2 sum rho, up to the lag at which rho falls below 0.02.
    """
    ranks = draws.argsort(axis=1).argsort(axis=1) + 0.5
    x = ranks / draws.shape[1] - 0.5
    series = np.concatenate([x, np.abs(x) - 0.25], axis=2)
    n = series.shape[1]
    spectrum = np.abs(np.fft.rfft(series, 2 * n, axis=1)) ** 2
    covariance = np.fft.irfft(spectrum.mean(axis=0), axis=0)[: max(n // 2, 1)]
    rho = covariance / covariance[0] * (n / (n - np.arange(len(covariance))))[:, None]
    positive = np.logical_and.accumulate(rho > 0.02, axis=0)
    times = 2 * np.sum(rho * positive, axis=0) - 1
    # Each series had its mean subtracted, which reduces each correlation by about (its correlation time) / n.
    rho = rho + times / n
    rho[0] = 1.0
    return rho[np.arange(len(rho)), np.abs(rho).argmax(axis=1)], float(times.max())


def _lean(u: np.ndarray, name: str) -> str:
    """Return a sentence on the shape of the ranks ``u`` of a quantity."""
    shift, width = float(u.mean() - 0.5), float(np.abs(2 * u - 1).mean() - 0.5)
    if abs(width) * math.sqrt(12) > abs(shift) * math.sqrt(12):
        size = "too narrow (the truth lies in its tails)" if width > 0 else "too wide (the truth lies in its middle)"
        return f"the posterior of {name} is {size}"
    return f"the posterior of {name} is too {'small' if shift > 0 else 'large'}: the truth's rank is {u.mean():.2f} on average"
