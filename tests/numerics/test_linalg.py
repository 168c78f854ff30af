"""The factorisation G = L D L' and the inverse from it, for dense matrices and for those with zeros that are skipped."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refhmc.numerics.linalg import factorise_ldl, invert_ldl, solve_ldl


def arrow(d, full, rng):
    """A diagonal and a few full rows at the end."""
    G = np.diag(rng.uniform(0.5, 2.0, d))
    G[d - full :] = rng.standard_normal((full, d)) / d
    return G


def tridiagonal(d, full, rng):
    return arrow(d, full, rng) + np.diag(np.full(d - 1, -0.2), -1)


def blocks(d, full, rng):
    """Two dense blocks, in a random order of the coordinates."""
    dense, order = rng.standard_normal((d, d)) / d, rng.permutation(d)
    dense[full:, :full] = dense[:full, full:] = 0.0
    return (dense + np.eye(d))[np.ix_(order, order)]


def dense(d, full, rng):
    return rng.standard_normal((d, d)) / d + np.eye(d)


@pytest.mark.parametrize("shape", [arrow, tridiagonal, blocks, dense])
@settings(max_examples=30, deadline=None)
@given(d=st.integers(1, 23), full=st.integers(0, 4), seed=st.integers(0, 2**32 - 1))
def test_factors_and_inverse_are_those_of_numpy(shape, d, full, seed):
    rng = np.random.default_rng(seed)
    lower = np.tril(shape(d, min(full, d), rng))
    G = lower + np.tril(lower, -1).T
    G += np.eye(d) * max(0.0, 0.1 - np.linalg.eigvalsh(G)[0])
    L, r, inverse = np.full((d, d), np.nan), np.empty(d), np.full((d, d), np.nan)
    assert factorise_ldl(G, L, r)
    unit = np.tril(L, -1) + np.eye(d)
    np.testing.assert_allclose(unit / r @ unit.T, G, rtol=0, atol=1e-13)
    invert_ldl(L, r, inverse)
    exact = np.linalg.inv(G)
    np.testing.assert_allclose(inverse, exact, rtol=0, atol=1e-11 * np.abs(exact).max())
    x = rng.standard_normal(d)
    solved = x.copy()
    solve_ldl(L, r, solved)
    np.testing.assert_allclose(solved, exact @ x, rtol=0, atol=1e-11 * np.abs(exact).max() * d)
