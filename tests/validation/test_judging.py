"""Verdicts on published figures: p against textbook tests, calibration and power by simulation, degrees of freedom."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.signal
import scipy.stats

pytest.importorskip("validation.judging", reason="validation/ is beside the tests in the repository only")

from tests.helpers.sweeps import swept
from validation.judging import (
    ALARM,
    POWER,
    Comparison,
    Estimate,
    above,
    alarm_text,
    compare,
    level,
    over_batches,
    over_trials,
    together,
    verdict,
)


def estimate(x) -> Estimate:
    return Estimate(np.mean(x), np.std(x, ddof=1) / math.sqrt(len(x)), len(x))


@pytest.mark.parametrize(("n", "m"), [(10, 10), (4, 10), (2, 10), (7, 3)])
def test_two_means_are_welchs(n, m):
    rng = np.random.default_rng(n)
    x, y = rng.normal(0.2, 1, n), rng.normal(0, 3, m)
    ours = compare(estimate(x), estimate(y), rounding=0.0)
    theirs = scipy.stats.ttest_ind(x, y, equal_var=False)
    assert ours.z == pytest.approx(theirs.statistic, rel=1e-12)
    assert ours.p == pytest.approx(theirs.pvalue, rel=1e-10)


def test_a_single_trial_is_one_more_observation():
    y = np.random.default_rng(0).normal(size=10)
    ours = compare(Estimate(1.7, math.nan, 1), estimate(y), rounding=0.0)
    t = (1.7 - y.mean()) / (y.std(ddof=1) * math.sqrt(1 + 1 / 10))
    assert ours.p == pytest.approx(2 * scipy.stats.t.sf(abs(t), 9), rel=1e-12)
    # A trial of half the length varies by sqrt 2 as much.
    t = (1.7 - y.mean()) / (y.std(ddof=1) * math.sqrt(2 + 1 / 10))
    short = compare(Estimate(1.7, math.nan, 1, length=0.5), estimate(y), rounding=0.0)
    assert short.p == pytest.approx(2 * scipy.stats.t.sf(abs(t), 9), rel=1e-12)


def test_an_error_printed_as_zero_is_ours_scaled_and_below_the_rounding():
    ours = Estimate(0.699, 0.0004, 10)
    found = compare(ours, Estimate(0.70, 0.0, 10))
    assert found.scale == pytest.approx(0.0004 * math.sqrt(2))
    assert found.freedom == 9
    assert found.p > 0.7
    # 0.70 is anything from 0.695 to 0.705, so that 0.694 is not among it, and 0.6952 is.
    assert compare(Estimate(0.692, 0.0004, 10), Estimate(0.70, 0.0, 10)).p < 1e-3
    assert compare(Estimate(0.6952, 0.0004, 10), Estimate(0.70, 0.0, 10)).p > 0.02
    # An error of ours of 0.03 does not make theirs larger than the rounding allows.
    assert compare(Estimate(0.7, 0.03, 10), Estimate(0.70, 0.0, 10)).scale == pytest.approx(
        math.hypot(0.03, 0.005 / 3**0.5)
    )


@pytest.mark.parametrize("rounding", [0.0, swept(0.5), swept(3.0)])
def test_agreeing_figures_have_uniform_p(rounding):
    """4 trials beside 10 printed ones, of one law; p below 0.01, 0.05, 0.3 as often as that, within 25 % (Welch's law is
    approximate, and the printed error rounded too) and 4.5 standard deviations: a false alarm in 1e-5."""
    rng = np.random.default_rng(5)
    p = []
    for _ in range(3000):
        x, y = rng.normal(0, 3.0, 4), estimate(rng.normal(0, 3.0, 10))
        if rounding:
            y.value, y.error = (2 * rounding * np.round(v / (2 * rounding)) for v in (y.value, y.error))
        p.append(compare(estimate(x), y, rounding).p)
    for at in (0.01, 0.05, 0.3):
        share, sd = np.mean(np.array(p) < at), math.sqrt(at * (1 - at) / len(p))
        assert share < 1.25 * at + 4.5 * sd
        if rounding <= 0.5:  # a rounding as large as the error makes p too large, never too small
            assert share > 0.75 * at - 4.5 * sd


def test_tails_with_rounding():
    """P(T + U > x) by simulation, 400,000 draws: 12 shares within 4.5 standard deviations, a false alarm in 1e-4."""
    rng = np.random.default_rng(8)
    n = 400_000
    for scale, freedom, rounding in ((1.0, 4, 0.5), (0.2, 9, 1.0), (0.0, 9, 1.0), (1.0, math.inf, 1.0)):
        T = rng.standard_normal(n) if math.isinf(freedom) else rng.standard_t(freedom, n)
        x = scale * T + rng.uniform(-rounding, rounding, n)
        for at in (0.0, 0.7, 0.95):
            share = above(at, scale, freedom, rounding)
            assert abs(np.mean(x > at) - share) < 4.5 * math.sqrt(share * (1 - share) / n)


def test_chance_of_any_false_alarm():
    for m in (1, 12, 90):
        assert 1 - (1 - level(m)) ** m == pytest.approx(ALARM)
        assert verdict(1.01 * level(m), m) == "agrees"
        assert verdict(0.99 * level(m), m) == "differs"
        assert f"1 - (1 - {ALARM})^(1/{m})" in alarm_text(m)


@pytest.mark.sweep
def test_difference_told_is_found_as_often_as_said():
    """Known errors, so that the power is exact: 4,000 tables each, 4.5 standard deviations, a false alarm in 2e-5."""
    rng = np.random.default_rng(3)
    for scale, rounding, m in ((1.0, 0.0, 1), (1.0, 2.0, 30), (0.0, 1.0, 10)):
        noise = scale, math.inf, rounding
        told = Comparison(0.0, 1.0, *noise).told(m)
        y = told + scale * rng.standard_normal(4000) + rng.uniform(-rounding, rounding, 4000)
        found = np.mean([2 * above(abs(d), *noise) < level(m) for d in y])
        assert abs(found - POWER) < 4.5 * math.sqrt(POWER * (1 - POWER) / 4000)


def test_few_trials_have_the_freedom_of_their_batches():
    """Table 7's acceptance of 0.452 +- 0.006 from two trials beside the printed 0.66 +- 0.00: 18 standard deviations."""
    rng = np.random.default_rng(1)
    found = over_batches(0.45 + 0.02 * rng.standard_normal((2, 20)))
    assert found.degrees == 38
    assert found.n == 2
    printed = Estimate(0.66, 0.0)
    assert compare(Estimate(0.452, 0.0062, 2, freedom=19), printed).p < 1e-10
    assert compare(Estimate(0.452, 0.0062, 2), printed).p > level(36)  # with one degree of freedom they would agree


@pytest.mark.sweep
def test_error_of_batches_covers():
    """AR(1) chains of 10,000 with autocorrelation 0.8, two to a figure: |t| > 2.024 (38 degrees of freedom) in 5 %.

    800 figures: within 4.5 standard deviations and 1.5 %, for what batches of 500 leave of the correlation.
    """
    rng = np.random.default_rng(2)
    x = scipy.signal.lfilter([1.0], [1.0, -0.8], rng.standard_normal((800, 2, 10_200)))[..., 200:]
    found = [over_batches(pair.reshape(2, 20, 500).mean(axis=2)) for pair in x]
    share = np.mean([abs(e.value / e.error) > scipy.stats.t.isf(0.025, 38) for e in found])
    assert abs(share - 0.05) < 0.015 + 4.5 * math.sqrt(0.05 * 0.95 / 800)


def test_trials_have_one_degree_less():
    found = over_trials([1.0, 2.0, 4.0])
    assert found.degrees == 2
    assert found.error == pytest.approx(np.std([1, 2, 4], ddof=1) / math.sqrt(3))
    assert math.isnan(over_trials([1.0]).error)


def rows_of(factor: float, rng: np.random.Generator, k: int = 4, shared: float = 0.0):
    """k rows of ours, 10 trials each with a common part of variance ``shared``, and printed figures of 10 trials."""
    common = math.sqrt(shared) * rng.standard_normal(10)
    ours = [estimate(100 * factor + 10 * (common + math.sqrt(1 - shared) * rng.standard_normal(10))) for _ in range(k)]
    theirs = [estimate(100 + 10 * rng.standard_normal(10)) for _ in range(k)]
    return ours, theirs, [compare(*pair) for pair in zip(ours, theirs, strict=True)]


@pytest.mark.sweep
def test_rows_together_are_calibrated_and_tell_a_common_factor():
    """Of 1,500 tables of four agreeing rows p < 0.05 in 5 % within a fifth and 4.5 standard deviations; with common data not
    more; a factor as large as told found in 90 % within 4.5 standard deviations and 3 % for Student's t in place of normal."""
    rng = np.random.default_rng(7)
    sd = math.sqrt(0.05 * 0.95 / 1500)

    def share(factor: float, shared: float, independent: bool, at: float) -> float:
        tables = (rows_of(factor, rng, shared=shared) for _ in range(1500))
        found = [together(*rows, independent=independent, comparisons=1).p for rows in tables]
        return float(np.mean(np.array(found) < at))

    assert abs(share(1.0, 0.0, True, 0.05) - 0.05) < 0.01 + 4.5 * sd
    assert share(1.0, 1.0, False, 0.05) < 0.05 + 4.5 * sd
    told = together(*rows_of(1.0, rng), independent=True, comparisons=1).told
    assert 0.05 < told < 0.1
    assert share(1.075, 0.0, True, ALARM) == pytest.approx(POWER, abs=0.06 + 4.5 * math.sqrt(0.09 / 1500))


def test_rows_together_find_a_factor_that_no_row_shows():
    ours = [Estimate(345.0, 36.0), Estimate(340.0, 50.0), Estimate(345.0, 37.0), Estimate(373.0, 44.0)]
    theirs = [Estimate(x, 9.0, 100) for x in (215.5, 216.2, 228.5, 222.9)]
    found = [compare(*pair) for pair in zip(ours, theirs, strict=True)]
    assert all(c.p > level(15) for c in found)
    jointly = together(ours, theirs, found, independent=True, comparisons=15)
    assert jointly.p < level(15)
    assert 1.5 < jointly.factor < 1.7
    assert together(ours, theirs, found, independent=False, comparisons=15).p > jointly.p
