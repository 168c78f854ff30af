"""The eigendecomposition against 50-digit arithmetic, and its own properties on matrices of every kind.

Measured (worst of many): relative error of an eigenvalue of a funnel's Hessian 5e-15 (v from -30 to 30, n up to 50),
where the eigenvalues differ by up to 1e15; of graded matrices, eigenvalues from 1e-14 to 1e14, 4e-15;
of a matrix whose eigenvalues differ by 100, 5e-14. Orthogonality and A - V' diag V: 1e-14 |A| at d = 51.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refhmc.compile.compiled import plain
from refhmc.numerics.eigen import GRADED, eigen, jacobi, products
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import swept

EPSILON = 2.0**-52


def decomposed(A, function=eigen):
    d = len(A)
    A = np.ascontiguousarray(A, dtype=float)
    before = A.copy()
    values, vectors, work = np.full(d, np.nan), np.full((d, d), np.nan), np.full((2 * d + 3, d), np.nan)
    assert function(A, values, vectors, work)
    np.testing.assert_array_equal(A, before)
    return values, vectors


def exact_eigenvalues(A):
    with mpmath.workdps(50):
        return sorted(mpmath.eigsy(mpmath.matrix(A.tolist()), eigvals_only=True))


def relative_error(values, exact):
    with mpmath.workdps(50):
        return max(float(abs((mpmath.mpf(float(v)) - e) / e)) for v, e in zip(np.sort(values), exact, strict=True))


def random_symmetric(rng, d):
    A = rng.standard_normal((d, d))
    return A + A.T


def with_eigenvalues(rng, values):
    Q, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    A = (Q * values) @ Q.T
    return (A + A.T) / 2


def funnel_hessian(v, x):
    e = np.exp(v)
    H = np.diag(np.r_[-1 / 9 - e * (x @ x) / 2, np.full(len(x), -e)])
    H[0, 1:] = H[1:, 0] = -e * x
    return H


def funnel_eigenvalues(H):
    """The eigenvalues of [[a, |b|], [|b|, c]], and c, n - 1 times, in 50 digits; and the condition number of the 2 x 2 block.

    The last is (|a c| + b.b) / |a c - b.b|: a relative change of an entry moves the small eigenvalue by that factor.
    """
    with mpmath.workdps(50):
        a, c = mpmath.mpf(H[0, 0]), mpmath.mpf(H[1, 1])
        b2 = mpmath.fsum(mpmath.mpf(b) ** 2 for b in H[0, 1:])
        large = (a + c) / 2 - mpmath.sqrt(((a - c) / 2) ** 2 + b2)
        determinant = a * c - b2
        return sorted([large, determinant / large] + [c] * (len(H) - 2)), float((a * c + b2) / abs(determinant))


def check(A, orthogonal=4.0, reconstructed=8.0):
    """A = V' diag V and V V' = I to a few d epsilon."""
    d = len(A)
    values, vectors = decomposed(A)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(d), rtol=0, atol=orthogonal * d * EPSILON)
    largest = np.abs(A).max(initial=0.0)
    if largest > 0:
        scaled = A / largest
        np.testing.assert_allclose(
            (vectors.T * (values / largest)) @ vectors, scaled, rtol=0, atol=reconstructed * d * EPSILON
        )
        np.testing.assert_allclose(
            scaled @ vectors.T, vectors.T * (values / largest), rtol=0, atol=reconstructed * d * EPSILON
        )
    return values, vectors


# ------------------------------------------------------------------------------------------------- against many digits


@pytest.mark.parametrize("n", [1, 2, 3, 10, swept(50)])
def test_funnel(n):
    """Every eigenvalue of the funnel's Hessian to 1e-14 of itself (measured 1.1e-15 times the condition number)."""
    rng = np.random.default_rng(n)
    for v in np.linspace(-30, 30, 61):
        for size in (0.0, 0.1, 1.0, 10.0):
            H = funnel_hessian(v, size * rng.standard_normal(n) * np.exp(-v / 2))
            exact, condition = funnel_eigenvalues(H)
            values, _ = check(H)
            assert relative_error(values, exact) < 1e-14 * condition


def test_funnel_vectors():
    """The eigenvector of the isolated eigenvalue is (1, b / (value - c)), each of its entries to 1e-13 of itself."""
    rng = np.random.default_rng(5)
    for v in (-30.0, -12.0, 12.0, 30.0):
        H = funnel_hessian(v, rng.standard_normal(10) * np.exp(-v / 2))
        values, vectors = decomposed(H)
        k = np.argmax(np.abs(vectors[:, 0]))
        expected = np.r_[1.0, H[0, 1:] / (values[k] - H[1, 1])]
        np.testing.assert_allclose(vectors[k] / vectors[k, 0], expected, rtol=1e-13)


@pytest.mark.parametrize("d", [2, 3, 4, 5, 11])
def test_graded(d):
    """S A S with A well conditioned and S from 1e-7 to 1e7: 2e-14 (measured 4e-15); LAPACK's small ones are noise."""
    rng = np.random.default_rng(d)
    for _ in range(2 if d == 11 else 8):
        s = 10.0 ** rng.uniform(-7, 7, d)
        A = rng.standard_normal((d, d))
        definite = A @ A.T / d + np.eye(d)
        indefinite = A + A.T + 4 * np.sqrt(d) * np.diag(rng.choice([-1.0, 1.0], d))
        for B in (definite, indefinite):
            graded = B * np.outer(s, s)
            assert relative_error(decomposed(graded)[0], exact_eigenvalues(graded)) < 2e-14


@pytest.mark.parametrize("d", [3, 5, 11])
def test_not_graded(d):
    """Eigenvalues that differ by 100, just above the limit for steps 3 and 4: 5e-13 (measured 5e-14)."""
    rng = np.random.default_rng(d)
    for _ in range(3):
        values = 2.0 ** rng.uniform(-6.9, 0, d) * rng.choice([-1, 1], d)
        values[0], values[1] = 1.0, 2**-6.9
        assert values[1] > GRADED
        A = with_eigenvalues(rng, values)
        assert relative_error(decomposed(A)[0], exact_eigenvalues(A)) < 5e-13


# ----------------------------------------------------------------------------------------------------------- properties


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6, 11, 51, 120])
def test_dense(d):
    """Also that the eigenvalues are LAPACK's (both absolutely: d epsilon |A|)."""
    rng = np.random.default_rng(d)
    for _ in range(5):
        A = random_symmetric(rng, d)
        values, _ = check(A)
        np.testing.assert_allclose(
            np.sort(values), np.linalg.eigvalsh(A), rtol=0, atol=10 * d * EPSILON * np.abs(A).max()
        )


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 11, 51])
def test_special(d):
    """Zero, multiples of the identity, diagonal, all equal, low rank, arrows, tridiagonal, two blocks, an exchange."""
    rng = np.random.default_rng(d)
    np.testing.assert_array_equal(check(np.zeros((d, d)))[0], 0.0)
    np.testing.assert_array_equal(check(-3 * np.eye(d))[0], -3.0)
    diagonal = rng.standard_normal(d) * 10.0 ** rng.uniform(-12, 12, d)
    np.testing.assert_array_equal(np.sort(check(np.diag(diagonal))[0]), np.sort(diagonal))
    check(np.ones((d, d)))
    check(np.outer(diagonal, diagonal), orthogonal=8)
    low = rng.standard_normal((min(d, 3), d))
    check(low.T @ low, orthogonal=8)
    arrow = np.eye(d)
    arrow[0, :] = arrow[:, 0] = rng.standard_normal(d)
    check(arrow)
    check(arrow[::-1, ::-1])
    check(np.diag(np.full(d, 2.0)) - np.eye(d, k=1) - np.eye(d, k=-1))
    blocks = np.zeros((d, d))
    half = d // 2
    blocks[:half, :half] = random_symmetric(rng, half)
    blocks[half:, half:] = 1e-8 * random_symmetric(rng, d - half)
    check(blocks)
    exchange = np.eye(d)[::-1]
    np.testing.assert_allclose(np.abs(check(exchange)[0]), 1.0, rtol=1e-14)


@pytest.mark.parametrize("gap", [0.0, 1e-300, 1e-16, 1e-14, 1e-8])
@pytest.mark.parametrize("d", [2, 3, 5, 11])
def test_clusters(d, gap):
    rng = np.random.default_rng(d)
    values = np.repeat([1.0, -2.0], [d // 2, d - d // 2]) + gap * np.arange(d)
    found, _ = check(with_eigenvalues(rng, values))
    np.testing.assert_allclose(np.sort(found), np.sort(values), rtol=20 * d * EPSILON)


@st.composite
def symmetric(draw):
    """Random, with zeros, repeated entries and rows of very different sizes."""
    d = draw(st.integers(1, 12))
    entry = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 2.0]), st.floats(-10, 10))
    A = np.array(draw(st.lists(entry, min_size=d * d, max_size=d * d))).reshape(d, d)
    exponents = draw(st.lists(st.sampled_from([0, 0, 0, -9, 5]), min_size=d, max_size=d))
    s = 2.0 ** np.array(exponents)
    return (np.tril(A) + np.tril(A, -1).T) * np.outer(s, s)


@pytest.mark.sweep
@cases(300)
@given(symmetric(), st.randoms(use_true_random=False))
def test_properties(A, random):
    """Orthogonal, A = V' diag V; a permutation, a power of two and the sign change nothing else."""
    d = len(A)
    values, _ = check(A, orthogonal=8, reconstructed=16)
    atol = 20 * d * EPSILON * np.abs(A).max()
    order = random.sample(range(d), d)
    np.testing.assert_allclose(np.sort(decomposed(A[np.ix_(order, order)])[0]), np.sort(values), rtol=0, atol=atol)
    np.testing.assert_array_equal(decomposed(2.0**60 * A)[0], 2.0**60 * values)
    np.testing.assert_allclose(np.sort(-decomposed(-A)[0]), np.sort(values), rtol=0, atol=atol)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 11])
@pytest.mark.parametrize("size", [1e-320, 1e-300, 1e-200, 1e-150, 1e150, 1e200, 1e290])
def test_extreme_sizes(d, size):
    """No overflow and no underflow; below 1e-308 the entries themselves have few digits."""
    A = random_symmetric(np.random.default_rng(d), d)
    values, vectors = decomposed(size * A)
    expected = np.linalg.eigvalsh(A)
    np.testing.assert_allclose(np.sort(values) / size, expected, rtol=0, atol=1e-13 if size > 1e-307 else 0.05)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(d), rtol=0, atol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e305])
@pytest.mark.parametrize("d", [1, 2, 3, 5, 11, 51])
def test_not_finite(d, bad):
    A = random_symmetric(np.random.default_rng(d), d)
    for i, j in {(0, 0), (d - 1, 0), (d - 1, d - 1), (d // 2, d // 3)}:
        B = A.copy()
        B[i, j] = B[j, i] = bad
        assert not eigen(B, np.empty(d), np.empty((d, d)), np.empty((2 * d + 3, d)))
    assert not eigen(np.full((d, d), bad), np.empty(d), np.empty((d, d)), np.empty((2 * d + 3, d)))


def test_repeats():
    """Bit by bit the same, whatever lies in the scratch rows."""
    for d in (2, 4, 11, 51):
        A = random_symmetric(np.random.default_rng(d), d)
        first, second = decomposed(A), decomposed(A)
        values, vectors = np.empty(d), np.empty((d, d))
        assert eigen(A, values, vectors, np.ones((2 * d + 9, d)))
        for one, other, third in zip(first, second, (values, vectors), strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(one, third)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 11])
def test_as_plain_python(d):
    """The code as Python gives the same decomposition (sums in another order)."""
    A = random_symmetric(np.random.default_rng(d), d)
    for B in (A, A * np.outer(10.0 ** np.arange(d), 10.0 ** np.arange(d))):
        np.testing.assert_allclose(decomposed(B, plain(eigen))[0], decomposed(B)[0], rtol=1e-9)


def test_without_the_fast_start():
    """If the QL steps did not end, steps 3 and 4 do all the work: the same eigenvalues."""
    A = random_symmetric(np.random.default_rng(0), 11)
    without = plain(eigen, ql=lambda diagonal, off_diagonal, V: False)
    np.testing.assert_allclose(np.sort(decomposed(A, without)[0]), np.sort(decomposed(A)[0]), rtol=1e-12)


def test_jacobi_gives_up():
    """A NaN cannot get there through ``eigen``; if it does, the rotations still end."""
    B = np.full((3, 3), np.nan)
    jacobi(B, np.empty(3), np.eye(3))
    assert np.isnan(B).any()
    B = np.array([[0.0, np.inf], [np.inf, 1.0]])
    jacobi(B, np.empty(2), np.eye(2))
    assert not np.isfinite(B).all()


@pytest.mark.parametrize("d", [1, 2, 5, 6])
def test_products(d):
    rng = np.random.default_rng(d)
    X, out = rng.standard_normal((d, d)), np.empty((d, d))
    Y = rng.standard_normal((d, d))
    products(X, Y, 2.0, False, out)
    np.testing.assert_allclose(out, 2 * X @ Y.T, atol=1e-14)
    products(X, X, 1.0, True, out)
    np.testing.assert_allclose(out, X @ X.T, atol=1e-14)
    np.testing.assert_array_equal(out, out.T)
