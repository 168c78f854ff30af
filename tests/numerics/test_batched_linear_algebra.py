"""Linear algebra with free leading axes: rows without a result, and the number of operations on arrays."""

import numpy as np
import pytest
import scipy.linalg

from refhmc.batch import backends
from refhmc.numerics import batched
from tests.helpers import fake_device

RNG = np.random.default_rng(20261129)


def positive(*shape):
    A = RNG.normal(size=(*shape, shape[-1]))
    return A @ np.swapaxes(A, -1, -2) + 0.1 * np.eye(shape[-1])


@pytest.mark.parametrize("shape", [(1,), (5,), (4, 5), (2, 3, 6)])
def test_cholesky_factors_as_lapack(shape):
    G = positive(*shape)
    L = batched.cholesky(G)
    for found, matrix in zip(L.reshape(-1, *G.shape[-2:]), G.reshape(-1, *G.shape[-2:]), strict=True):
        expected = scipy.linalg.cholesky(matrix, lower=True)
        assert np.abs(found - expected).max() <= 1e-13 * np.abs(expected).max() * np.linalg.cond(matrix) ** 0.5
        assert np.all(np.triu(found, 1) == 0)


@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan])
def test_a_matrix_without_a_cholesky_factor_is_nan_in_its_row_only(bad):
    G = positive(3, 4)
    G[1, 2, 2] = bad
    with np.errstate(all="ignore"):
        L = batched.cholesky(G)
    assert np.isnan(L[1, 2, 2]) or np.isnan(L[1]).any()
    assert np.array_equal(L[[0, 2]], batched.cholesky(G[[0, 2]]))


def test_cholesky_needs_operations_in_proportion_to_the_dimension(monkeypatch):
    """A device starts one kernel per operation; a loop over pairs of columns would need d^2 of them."""
    fake_device.install(monkeypatch)
    xp, counts = backends.namespace_of("cupy"), []
    for d in (10, 20, 40):
        fake_device.count.clear()
        batched.cholesky(xp.asarray(positive(2, d)))
        counts.append(fake_device.count["launches"])
    assert counts[2] - counts[1] == 2 * (counts[1] - counts[0])
    assert counts[2] < 20 * 40


def test_eigenvectors_that_do_not_solve_their_equation_are_nan(monkeypatch):
    """CuPy returns numbers if the iteration has not converged."""
    fake_device.install(monkeypatch)
    H = positive(3, 4)
    xp = batched.namespace(backends.namespace_of("cupy").asarray(H))
    right = xp.linalg.eigh

    def unconverged(H):
        values, vectors = right(H)
        values.values[1] *= 1.01
        return values, vectors

    monkeypatch.setattr(xp.linalg, "eigh", unconverged)
    values = batched.to_host(batched.eigh(xp.asarray(H))[0])
    assert np.isnan(values[1]).all()
    assert np.allclose(values[[0, 2]], np.linalg.eigvalsh(H)[[0, 2]], rtol=1e-12)


def test_free_memory_includes_what_cupy_keeps(monkeypatch):
    fake_device.install(monkeypatch)
    assert backends.memory_there("cupy") == 2**30 + fake_device.POOL
