"""Quantiles of the normal distribution against 60 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from refhmc.numerics.normal_quantile import normal_quantile


def test_against_sixty_digits():
    """In all three ranges, on both sides of their ends, and far out; 1 - p is exact in these."""
    inner = np.array([0.075, np.nextafter(0.075, 0), 0.0750001, 0.3, 0.49999, 0.5 - 1e-12, 0.5])
    tail = np.array([1e-40, 1e-20, 1e-11, np.exp(-25.0), 1.4e-11, 1e-6, 1e-3])
    p = np.concatenate([inner, tail, 1 - inner[3:], 1 - 2.0 ** -np.arange(2, 53)])
    with mpmath.workdps(60):
        expected = [float(mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(float(each)) - 1)) for each in p]
    assert normal_quantile(p) == pytest.approx(expected, rel=2e-15, abs=0.0)
