"""The interval by which two commits' speeds are compared."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from validation.benchmarks.before_after import LIMIT, verdict
from validation.benchmarks.median import median_interval, rank


@pytest.mark.parametrize("n", range(1, 61))
def test_the_rank_is_the_largest_that_the_binomial_law_allows(n):
    k, law = rank(n, 0.95), scipy.stats.binom(n, 0.5)
    assert k == 0 or 2 * law.cdf(k - 1) <= 0.05 + 1e-9
    assert 2 * law.cdf(k) > 0.05
    assert rank(30, 0.95) == 10
    assert rank(5, 15 / 16) == 1


def test_the_interval_covers_the_median_as_often_as_said():
    """Of a skewed law with outliers. 95.72 % of 20,000 by the binomial law; false alarm 1e-6."""
    rng, trials = np.random.default_rng(1), 20_000
    samples = np.exp(0.02 * rng.standard_normal((trials, 30)) + (rng.random((trials, 30)) < 0.1))
    # P(X < m) = 1/2 of 0.9 Phi(log(m)/s) + 0.1 Phi((log(m) - 1)/s), where the second term is nil
    median = math.exp(0.02 * scipy.stats.norm.ppf(0.5 / 0.9))
    covered = sum(low <= median <= high for _, low, high in (median_interval(each, 0.95) for each in samples.tolist()))
    expected = 1 - 2 * scipy.stats.binom(30, 0.5).cdf(9)
    assert scipy.stats.binomtest(covered, trials, expected).pvalue > 1e-6


def test_verdicts():
    assert verdict(0.9, LIMIT - 1e-9) == "below 1.03"
    assert verdict(LIMIT + 1e-9, 2.0) == "above 1.03"
    assert verdict(0.99, LIMIT) == verdict(LIMIT, 1.1) == "undecided"
    assert verdict(*median_interval([0.5] * 5, 0.95)[1:]) == "undecided"  # five pairs say nothing
    assert verdict(*median_interval([0.5] * 6, 0.95)[1:]) == "below 1.03"
