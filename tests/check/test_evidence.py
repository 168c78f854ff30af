"""Statistics of ``check.sampler``: accurate extreme tails, uniform p-values, fair bets.

Each statistical assertion here has a false-alarm rate of at most 1e-6 over seeds; the seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from refhmc.check.samplers import evidence
from tests.helpers.p_values import most_wealth, p_values
from tests.helpers.sweeps import swept

ALARM = 1e-6


def uniform_p(p) -> float:
    """Return the p-value of the hypothesis that p-values are uniform."""
    return scipy.stats.kstest(p, "uniform").pvalue


@pytest.mark.parametrize(("p", "critical"), [(0.1, 1.9329578), (0.05, 2.4923672), (0.01, 3.8781250)])
def test_anderson_and_darlings_tail_has_the_known_quantiles(p, critical):
    assert abs(evidence.anderson_tail(critical) - p) < 1e-7


@pytest.mark.sweep
def test_anderson_darling_tail_is_that_of_its_sum_of_squares():
    rng = np.random.default_rng(1)
    j = np.arange(1, 400)
    rest = 1 - np.sum(1 / (j * (j + 1)))  # the expectation of the terms left out
    draws = rng.standard_normal((20000, len(j))) ** 2 @ (1 / (j * (j + 1))) + rest
    p = np.array([evidence.anderson_tail(z) for z in draws[:5000]])
    assert uniform_p(p) > ALARM
    far = 30.0  # one term rules, with the product of the others' moments
    assert abs(evidence.anderson_tail(far) / (math.sqrt(3 / (math.pi * far)) * math.exp(-far)) - 1) < 0.02


@pytest.mark.parametrize(
    "test", [swept("one-sample KS"), "one-sample AD", swept("two-sample KS"), swept("two-sample AD")]
)
def test_p_values_of_the_right_distribution_are_uniform(test):
    assert uniform_p(p_values(test, 500, np.random.default_rng(2))) > ALARM


def test_two_samples_of_different_distributions_differ_and_nan_counts_as_large():
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal(2000), rng.standard_normal(8000)
    assert max(evidence.two_sample(x + 0.3, y)) < 1e-10
    assert evidence.two_sample(1.3 * x, y)[1] < 1e-10
    x[:200] = np.nan
    assert max(evidence.two_sample(x, y)) < 1e-5


def test_two_samples_with_ties_raise_no_alarm():
    rng = np.random.default_rng(4)
    p = np.array([evidence.two_sample(rng.integers(4, size=300), rng.integers(4, size=1200)) for _ in range(300)])
    for q in (0.01, 0.05, 0.2):
        assert (p < q).sum(axis=0).max() <= scipy.stats.binom.ppf(1 - ALARM, 300, q)


def test_the_joint_counts_give_the_product_of_the_bets():
    rng = np.random.default_rng(5)
    a, b = rng.integers(evidence.BINS, size=(2, 40, 3))
    wealth = evidence.log_wealths(evidence.pair_counts(a, b))
    for f, g, k in ((0, 0, 0), (1, 2, 5), (2, 3, 17)):
        D = evidence.SCORES[g][b[:, f]] - evidence.SCORES[g][a[:, f]]
        assert abs(wealth[f, g, k] - np.sum(np.log1p(evidence.STAKES[k] * D))) < 1e-11


def test_the_scores_keep_every_wealth_positive():
    assert np.abs(evidence.GAINS).max() <= 1.0
    assert np.abs(evidence.STAKES).max() < 1.0


@pytest.mark.sweep
def test_fair_bets_rarely_gain_wealth():
    rng = np.random.default_rng(6)
    rich = sum(most_wealth(rng, 400) >= 20 for _ in range(200))
    assert rich <= scipy.stats.binom.ppf(1 - ALARM, 200, 1 / 20)


def test_the_least_detectable_bias_is_detected():
    """For ranks of a normal shifted by the stated power, at least 99 % of the runs exceed the threshold."""
    rng = np.random.default_rng(7)
    n, limit, runs, found = 4000, math.log(1e6), 60, 0
    gamblers = len(evidence.SCORES) * len(evidence.STAKES)
    least = evidence.least_detectable(math.sqrt(1 / 6), n, limit, gamblers)  # D of two independent uniform numbers
    shift = least * 2 * math.sqrt(math.pi)  # d/ds E Phi(Z + s) = 1 / (2 sqrt(pi))
    for _ in range(runs):
        x, y = scipy.stats.norm.cdf(rng.standard_normal((2, n, 1)) + np.array([0.0, shift])[:, None, None])
        a, b = (np.searchsorted(evidence.LEVELS, u, side="right") for u in (x, y))
        found += evidence.log_mean(evidence.log_wealths(evidence.pair_counts(a, b))) > limit
    assert found >= scipy.stats.binom.ppf(ALARM, runs, 0.99)


def test_bets_on_signs_win_if_signs_agree_and_lose_if_fair():
    rng = np.random.default_rng(8)
    assert evidence.log_mean(evidence.log_pair_wealths(np.ones((60, 4)))) > math.log(1e6)
    fair = rng.choice([-1, 0, 1], size=(1000, 4))
    assert evidence.log_mean(evidence.log_pair_wealths(fair)) < math.log(1e6)


@pytest.mark.slow
@pytest.mark.parametrize("test", ["one-sample KS", "one-sample AD", "two-sample KS", "two-sample AD"])
def test_p_values_of_the_right_distribution_are_uniform_in_2000_runs(test):
    assert uniform_p(p_values(test, 2000, np.random.default_rng(12))) > ALARM


@pytest.mark.slow
def test_fair_bets_rarely_gain_wealth_in_2000_runs():
    rng = np.random.default_rng(16)
    rich = sum(most_wealth(rng, 1000) >= 20 for _ in range(2000))
    assert rich <= scipy.stats.binom.ppf(1 - ALARM, 2000, 1 / 20)


def test_path_sums_bound_the_wealth_from_below():
    """log(1 + x) >= x - x^2/2 - 2|x|^3/3 for |x| <= 1/2, summed over gains and for every stake."""
    gains = np.linspace(-1.0, 1.0, 4001)
    promised = evidence.log_path_wealths(evidence.path_sums(gains[None]))
    assert np.abs(evidence.PATH_STAKES).max() <= 0.5
    assert (promised <= np.log1p(np.outer(gains, evidence.PATH_STAKES)) + 1e-15).all()
    several = np.random.default_rng(3).uniform(-1, 1, (50, 2, 3))
    wealth = np.log1p(several[..., None] * evidence.PATH_STAKES).sum(axis=0)
    found = evidence.log_path_wealths(evidence.path_sums(several))
    assert found.shape == wealth.shape
    assert (found <= wealth).all()
    assert (
        found[..., np.abs(evidence.PATH_STAKES) < 0.02] > wealth[..., np.abs(evidence.PATH_STAKES) < 0.02] - 1e-3
    ).all()


@pytest.mark.sweep
def test_bets_on_paths_are_fair():
    """Means of five dependent scores minus those of four fresh ones and the start: at most one run in 20 reaches 20."""
    rng, runs, reached = np.random.default_rng(4), 400, 0
    for _ in range(runs):
        start = rng.random((600, 3))
        path = [start]
        for _ in range(5):
            path.append(np.where(rng.random(start.shape) < 0.6, path[-1], rng.random(start.shape)))
        gains = np.mean(path[1:], axis=0) - (start + rng.random((4, *start.shape)).sum(axis=0)) / 5
        looks = [evidence.log_path_wealths(evidence.path_sums(gains[:n])) for n in range(50, 601, 50)]
        reached += max(evidence.log_mean(look) for look in looks) >= math.log(20)
    assert reached <= scipy.stats.binom.ppf(1 - ALARM, runs, 0.05)
