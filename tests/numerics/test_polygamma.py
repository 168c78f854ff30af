"""Derivatives of log Gamma against mpmath, to 40 digits there."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from refhmc.numerics.polygamma import polygamma


@pytest.mark.parametrize("n", range(4))
def test_polygamma_is_that_of_mpmath(n):
    """To 1e-14 of its value; near the root of the digamma function at 1.4616 to 1e-15 by itself."""
    with mpmath.workdps(40):
        for x in (1e-3, 0.1, 0.9, 1.4616321449683622, 2.5, 7.0, 19.999, 20.0, 33.3, 1e3, 1e8):
            exact = float(mpmath.polygamma(n, mpmath.mpf(x)))
            assert polygamma(n, x) == pytest.approx(exact, rel=1e-14, abs=1e-15)


def test_outside_of_what_a_density_has_it_is_nan():
    assert np.isnan(polygamma(0, 0.0))
    assert np.isnan(polygamma(1, -2.5))
