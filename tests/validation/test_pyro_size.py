"""The effective sample size of Pyro's formula: against sums written out, and on chains that do not mix."""

from __future__ import annotations

import numpy as np
import pytest

from validation.cobb_jalaian_sizes import autoregression
from validation.cobb_jalaian_table2_full import pyro_size


def written_out(draws: np.ndarray) -> float:
    """Return the effective sample size of one coordinate (C, n), with a loop for each sum."""
    C, n = draws.shape
    x = draws - draws.mean(axis=1, keepdims=True)
    g = [np.mean([np.sum(x[c, : n - k] * x[c, k:]) / n for c in range(C)]) for k in range(n)]
    W = np.mean([np.sum(x[c] ** 2) / (n - 1) for c in range(C)])
    total = W * (n - 1) / n + (np.var(draws.mean(axis=1), ddof=1) if C > 1 else 0.0)
    within = W if C > 1 else total
    rho = [1.0, *(1 - (within - g[k]) / total for k in range(1, n))]
    pairs = [rho[2 * k] + rho[2 * k + 1] for k in range(n // 2)]
    least, tau = np.inf, 2 * pairs[0] - 1
    for pair in pairs[1:]:
        least = min(least, max(pair, 0.0))
        tau += 2 * least
    return C * n / tau


@pytest.mark.parametrize(("C", "n"), [(1, 60), (1, 61), (4, 50)])
def test_the_formula_is_its_sums_written_out(C, n):
    draws = np.random.default_rng(C + n).normal(size=(C, n, 3)).cumsum(axis=1)
    expected = [written_out(draws[:, :, j]) for j in range(3)]
    np.testing.assert_allclose(pyro_size(draws), expected, rtol=1e-9)


def test_ten_chains_far_apart_have_few_effective_draws():
    """Ten chains of independent draws whose means differ by far more than their spread: about ten draws."""
    rng = np.random.default_rng(0)
    draws = 100 * rng.normal(size=(10, 1, 1)) + rng.normal(size=(10, 400, 1))
    assert 5 < pyro_size(draws)[0] < 15


def test_the_autoregression_has_its_variance_and_correlation_time():
    """Within 6 standard errors, with a fixed seed: exceeded with probability 2e-9 for each of the three figures."""
    n, time = 400, 5.0
    x = autoregression(np.random.default_rng(1), 2, n, time, True)
    columns = x.shape[0] * x.shape[2]
    assert abs(np.mean(x[:, -1] ** 2) - 1) < 6 * np.sqrt(2 / columns)
    phi = np.exp(-1 / time)
    assert abs(np.mean(x[:, -1] * x[:, -2]) - phi) < 6 * np.sqrt((1 + phi**2) / columns)
    assert np.all(autoregression(np.random.default_rng(1), 2, n, time, False)[:, 0] == 0)
    walk = autoregression(np.random.default_rng(1), 2, n, np.inf, False)
    assert abs(np.mean(walk[:, -1] ** 2) / n - 1) < 6 * np.sqrt(2 / columns)
