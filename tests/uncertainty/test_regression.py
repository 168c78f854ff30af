"""Metrics of normal predictive distributions compared with sums over the draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

import refhmc.uncertainty as u
from refhmc.errors import ShapeError

RNG = np.random.default_rng(0)
CASES = {
    "draws": (RNG.normal(size=(6, 9, 1)), RNG.uniform(0.2, 2, 6), RNG.normal(size=9)),
    "chains and draws": (RNG.normal(size=(2, 3, 9, 2)), RNG.uniform(0.2, 2, (2, 3)), RNG.normal(size=(9, 2))),
    "one draw": (RNG.normal(size=(9, 1)), 0.3, RNG.normal(size=(9, 1))),
    "far away": (RNG.normal(size=(6, 9, 1)), 1e-3, 5 + RNG.normal(size=9)),  # densities that underflow
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_agreement_with_a_loop(name):
    mean, sd, y = CASES[name]
    draws = mean.reshape(-1, *mean.shape[-2:])
    S, n, k = draws.shape
    sds = np.broadcast_to(sd, mean.shape[:-2]).ravel() if np.ndim(sd) else [sd] * S
    at = np.reshape(y, (n, k))
    losses, errors, inside = [], [], []
    for row in range(n):
        logs = [scipy.stats.norm.logpdf(at[row], draws[s, row], sds[s]).sum() for s in range(S)]
        top = max(logs)
        losses.append(math.log(S) - top - math.log(math.fsum(math.exp(each - top) for each in logs)))
        for j in range(k):
            values = draws[:, row, j].tolist()
            centre = math.fsum(values) / S
            second = math.fsum(v * v + s * s for v, s in zip(values, sds, strict=True)) / S  # E y^2
            errors.append((at[row, j] - centre) ** 2)
            inside.append(abs(at[row, j] - centre) <= 1.5 * math.sqrt(second - centre**2))
            low, high = u.band(mean, sd, 1.5)
            assert high[row, j] - low[row, j] == pytest.approx(3 * math.sqrt(second - centre**2), rel=1e-9)
            assert high[row, j] + low[row, j] == pytest.approx(2 * centre, rel=1e-9, abs=1e-12)
    assert u.gaussian_negative_log_likelihood(mean, sd, y) == pytest.approx(math.fsum(losses) / n, rel=1e-12)
    assert u.root_mean_squared_error(mean, y) == pytest.approx(math.sqrt(math.fsum(errors) / len(errors)), rel=1e-12)
    assert u.coverage(mean, sd, y, 1.5) == pytest.approx(np.mean(inside), abs=1e-15)


def test_coverage_of_correct_normal_predictions():
    """The share of 20,000 normal observations in a band is binomial; an error of 0.02 would be detected."""
    rng, n = np.random.default_rng(1), 20_000
    y = 2.0 + 0.7 * rng.standard_normal(n)
    for width in (1.0, 2.0):
        inside = round(n * u.coverage(np.full((1, n, 1), 2.0), [0.7], y, width))
        expected = scipy.stats.norm.cdf(width) - scipy.stats.norm.cdf(-width)
        assert scipy.stats.binomtest(inside, n, expected).pvalue > 5e-7


def test_band_includes_its_ends():
    assert u.coverage(np.zeros((1, 4, 1)), 1.0, [-2.0, 2.0, 2.0000001, 0.0]) == 0.75


M = np.zeros((3, 4, 1))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: u.band(M[0, 0], 1.0), ShapeError, r"\(..., n, outputs\)"),
        (lambda: u.band(M, [1.0, 1.0]), ShapeError, r"sd must be a number.*\(3,\)"),
        (lambda: u.band(M, 0.0), ValueError, "sd must be positive"),
        (lambda: u.band(M, 1.0, -1.0), ValueError, "width must be positive"),
        (lambda: u.band(M + np.nan, 1.0), ValueError, "mean must be finite"),
        (lambda: u.root_mean_squared_error(M, np.zeros(5)), ShapeError, r"y must .*\(4, 1\)"),
        (lambda: u.coverage(M, 1.0, [0, 0, np.inf, 0]), ValueError, r"y must be finite.*y\[2"),
    ],
)
def test_invalid_arguments_are_rejected(call, error, words):
    with pytest.raises(error, match=words):
        call()
