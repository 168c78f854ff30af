"""Geyer's initial monotone sequence compared with its definition, by loops, and with AR(1) exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from refhmc.diagnostics import autocovariances, ess, geyer_ess


def covariances_by_loops(chains: list[list[float]]) -> list[float]:
    n = len(chains[0])
    mean = math.fsum(math.fsum(c) for c in chains) / (len(chains) * n)
    return [
        math.fsum((c[i] - mean) * (c[i + t] - mean) for c in chains for i in range(n - t)) / (len(chains) * n)
        for t in range(n)
    ]


def ess_by_loops(chains: list[list[float]]) -> float:
    """Geyer (1992), sec. 3.3: the largest run of positive pairs, then each no larger than the one before."""
    total, gamma = len(chains) * len(chains[0]), covariances_by_loops(chains)
    variance, last, k = -gamma[0], math.inf, 0
    while 2 * k + 1 < len(gamma):
        pair = gamma[2 * k] + gamma[2 * k + 1]
        if pair <= 0:
            break
        last = min(last, pair)
        variance += 2 * last
        k += 1
    return min(total * gamma[0] / variance, total * math.log10(total)) if variance > 0 else total * math.log10(total)


@pytest.mark.sweep
@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(2, 41), st.floats(-0.95, 0.95), st.floats(0, 3), st.integers(0, 2**32 - 1))
def test_the_initial_monotone_sequence_by_loops(m, n, phi, apart, seed):
    """Few and many draws; persistent, independent and alternating chains; and chains that disagree."""
    rng = np.random.default_rng(seed)
    x = autoregression(phi, m, n, rng) + apart * rng.normal(size=(m, 1))
    chains = x.tolist()
    np.testing.assert_allclose(autocovariances(x), covariances_by_loops(chains), rtol=0, atol=1e-12 * (x**2).mean())
    assert geyer_ess(x) == pytest.approx(ess_by_loops(chains), rel=1e-9)
    three = np.stack([x, 2 * x - 5, rng.normal(size=x.shape)], axis=-1)
    assert geyer_ess(three) == pytest.approx([ess_by_loops(three[:, :, j].tolist()) for j in range(3)], rel=1e-9)


def autoregression(phi: float, m: int, n: int, rng) -> np.ndarray:
    """Return x_i = phi x_{i-1} + N(0, 1 - phi^2) from the stationary distribution N(0, 1), (m, n)."""
    noise = math.sqrt(1 - phi * phi) * rng.normal(size=(m, n))
    noise[:, 0] = rng.normal(size=m)
    return scipy.signal.lfilter([1.0], [1.0, -phi], noise, axis=1)


CASES = [(0.9, 1, 200_000), (0.5, 4, 20_000), (0.0, 2, 20_000), (-0.5, 1, 40_000)]
WITHIN = 0.1  # of 2,000 estimates of each case 8, 1, 0 and 15 were off by more


@pytest.mark.parametrize(("phi", "m", "n"), CASES)
def test_an_autoregression_has_the_ess_of_the_closed_form(phi, m, n):
    """rho_t = phi^t, so that ESS = m n (1 - phi) / (1 + phi).

    The median of nine estimates is off by more than ``WITHIN`` only if five are. If one is with probability below 0.015,
    false alarm is below C(9, 5) 0.015^5 = 1e-7 a case.
    """
    rng = np.random.default_rng(CASES.index((phi, m, n)))
    truth = m * n * (1 - phi) / (1 + phi)
    estimates = [geyer_ess(autoregression(phi, m, n, rng)) for _ in range(9)]
    assert abs(np.median(estimates) / truth - 1) < WITHIN


def test_chains_that_disagree_have_few_draws():
    """Four chains ten standard deviations apart are worth about four draws, each chain alone about 1,000."""
    x = np.random.default_rng(1).normal(size=(4, 1000))
    apart = x + 10 * np.arange(4)[:, None]
    assert geyer_ess(apart) < 10
    assert ess(apart[:, :, None])[0] < 10  # ArviZ's


def test_ess_of_constant_nan_and_invalid_input():
    x = np.random.default_rng(2).normal(size=(2, 50, 4))
    x[:, :, 1] = 3.0
    x[0, 7, 2] = np.nan
    x[1, :, 3] = np.inf
    sizes = geyer_ess(x)
    assert sizes[0] > 10
    assert sizes[1] == 1
    assert np.isnan(sizes[2:]).all()
    alternating = np.tile([1.0, -1.0], (1, 50))
    assert geyer_ess(alternating) == 100 * math.log10(100)
    for shape in ((5,), (2, 1), (2, 1, 3), (2, 3, 4, 5)):
        with pytest.raises(ValueError, match=r"\(chain, draw\)"):
            geyer_ess(np.zeros(shape))
