"""SoftAbs' scalar functions against many digits.

Measured, relative to the exact value: f 3.4e-16, f' 8.3e-16, the divided difference 7e-15, for alpha from 1e-3 to 1e8
and arguments from 1e-300 to 1e300 of any two signs. The bounds here are about twice that.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refhmc.compile.compiled import plain
from refhmc.metrics.softabs_function import divided_difference, divided_difference_of, soft, soft_derivative
from tests.helpers.random_cases import cases

DIGITS = 120


def exact_soft(x, alpha):
    x, alpha = mpmath.mpf(x), mpmath.mpf(alpha)
    t = abs(alpha * x)
    if t > 400:
        return abs(x)
    if t < mpmath.mpf(10) ** -50:
        return 1 / alpha
    return x * mpmath.coth(alpha * x)


def exact_derivative(x, alpha):
    t = mpmath.mpf(x) * mpmath.mpf(alpha)
    if abs(t) > 400:
        return mpmath.sign(t)
    if abs(t) < mpmath.mpf(10) ** -30:
        return 2 * t / 3
    return (mpmath.sinh(2 * t) / 2 - t) / mpmath.sinh(t) ** 2


def exact_quotient(x, y, alpha):
    if x == y:
        return exact_derivative(x, alpha)
    x, y, alpha = mpmath.mpf(x), mpmath.mpf(y), mpmath.mpf(alpha)
    if alpha * max(abs(x), abs(y)) < mpmath.mpf(10) ** -20:
        return alpha * (x + y) / 3
    return (exact_soft(x, alpha) - exact_soft(y, alpha)) / (x - y)


def relative_error(value, exact):
    return float(abs((mpmath.mpf(value) - exact) / exact)) if exact != 0 else abs(value)


signs = st.sampled_from([-1.0, 1.0])
alphas = st.floats(-3, 8).map(lambda e: 10.0**e)
any_size = st.builds(lambda sign, e: sign * 10.0**e, signs, st.floats(-290, 290))
moderate = st.builds(lambda sign, e: sign * 10.0**e, signs, st.floats(-4, 1.7))
arguments = st.one_of(st.just(0.0), any_size, moderate)


@st.composite
def pairs(draw):
    """alpha and two arguments times alpha: any, nearly equal, nearly opposite, one tiny."""
    alpha, t = draw(alphas), draw(arguments)
    near = draw(st.floats(-16.5, 0))
    other = draw(
        st.one_of(
            arguments,
            st.sampled_from([t, -t]),
            st.builds(lambda s, r: s * t * (1 + r * 10.0**near), signs, signs),
            st.floats(-1, 1).map(lambda step: t + step),
        )
    )
    return alpha, t / alpha, other / alpha


@pytest.mark.sweep
@cases(500)
@given(alphas, arguments)
def test_soft(alpha, t):
    x = t / alpha
    with mpmath.workdps(DIGITS):
        assert relative_error(soft(x, alpha), exact_soft(x, alpha)) < 6e-16
        assert relative_error(soft_derivative(x, alpha), exact_derivative(x, alpha)) < 1.2e-15
    assert soft(-x, alpha) == soft(x, alpha)
    assert soft_derivative(-x, alpha) == -soft_derivative(x, alpha)


def test_soft_on_a_grid():
    """Across every switch of formula."""
    with mpmath.workdps(40):
        for t in np.r_[np.linspace(1e-5, 1.5, 600), np.linspace(1.5, 23, 200)]:
            assert relative_error(soft(t, 1.0), exact_soft(t, 1.0)) < 6e-16
            assert relative_error(soft_derivative(t, 1.0), exact_derivative(t, 1.0)) < 1.2e-15


@pytest.mark.sweep
@cases(1000)
@given(pairs())
@example((1.0, 15.85, 16.64))
@example((1.0, -18.48, 19.03))
@example((1.0, 1e-200, 3e-200))
@example((1e8, 1e300, 1e-300))
@example((1.0, -1e290, 1e290))
def test_divided_difference(case):
    alpha, x, y = case
    value = divided_difference(x, y, alpha)
    with mpmath.workdps(DIGITS):
        exact = exact_quotient(x, y, alpha)
        assert abs(value - exact) < 2e-14
        if abs(exact) > 1e-290:
            assert relative_error(value, exact) < 2e-14
    assert divided_difference(y, x, alpha) == value
    assert divided_difference(-x, -y, alpha) == -value
    assert divided_difference_of(x, y, soft(x, alpha), soft(y, alpha), alpha) == value


def test_divided_difference_on_a_grid():
    """Both arguments through every switch of formula, and their difference too."""
    with mpmath.workdps(60):
        for a in np.linspace(0.05, 23, 60):
            for step in (0.0, 1e-15, 1e-9, 1e-3, 0.1, 0.49, 0.4999, 0.5001, 0.51, 1.0, 5.0):
                for x, y in ((a, a + step), (a, -a - step)):
                    assert relative_error(divided_difference(x, y, 1.0), exact_quotient(x, y, 1.0)) < 2e-14


def test_near_zero():
    """J ~ alpha (x + y) / 3, relatively, down to 1e-300."""
    for x, y in ((1e-12, 1e-12), (1e-12, 3e-12), (1e-12, -3e-12), (1e-300, 2e-300), (0.0, 1e-9)):
        assert divided_difference(x, y, 2.0) == pytest.approx(2 * (x + y) / 3, rel=1e-14, abs=0)


def test_limits():
    assert soft(0.0, 1e6) == 1e-6
    assert soft(5e-324, 2.0) == 0.5
    assert soft(1e300, 1e100) == 1e300
    assert soft(-1e300, 1e8) == 1e300
    assert soft_derivative(0.0, 1e6) == 0.0
    assert soft_derivative(1e300, 1e100) == 1.0
    assert soft_derivative(-1e300, 1e100) == -1.0
    assert divided_difference(0.0, 0.0, 1.0) == 0.0
    assert divided_difference(1e300, 1e300, 1e100) == 1.0
    assert divided_difference(1e300, 1e-300, 1e8) == 1.0
    assert divided_difference(-1e300, 1e-300, 1e8) == -1.0
    assert divided_difference(2.0, -2.0, 1.0) == 0.0


def test_nan():
    assert math.isnan(soft(math.nan, 1.0))
    assert math.isnan(soft_derivative(math.nan, 1.0))
    assert math.isnan(divided_difference(math.nan, 1.0, 1.0))
    assert math.isnan(divided_difference(1.0, math.nan, 1.0))


def test_as_plain_python():
    for x in (0.0, 1e-9, 0.4, -3.0, 1e5):
        assert plain(soft)(x, 2.0) == pytest.approx(soft(x, 2.0), rel=1e-15)
        assert plain(soft_derivative)(x, 2.0) == pytest.approx(soft_derivative(x, 2.0), rel=1e-15)
        for y in (x, 0.5, -0.5, 40.0):
            expected = divided_difference(x, y, 2.0)
            assert plain(divided_difference)(x, y, 2.0) == pytest.approx(expected, rel=1e-14)


def test_derivative_of_the_matrix_function():
    """d/dh f(A + h D) = sum_kl J(l_k, l_l) (v_k' D v_l) v_k v_l', by central differences in 40 digits."""
    rng = np.random.default_rng(0)
    A, D = rng.standard_normal((2, 4, 4))
    A, D = A + A.T, D + D.T
    alpha = 1.5

    def f(M):
        values, V = mpmath.eigsy(M)
        return V * mpmath.diag([exact_soft(v, alpha) for v in values]) * V.T

    values, V = np.linalg.eigh(A)
    J = np.array([[divided_difference(x, y, alpha) for y in values] for x in values])
    ours = V @ (J * (V.T @ D @ V)) @ V.T
    with mpmath.workdps(40):
        h = mpmath.mpf(10) ** -12
        A, D = mpmath.matrix(A.tolist()), mpmath.matrix(D.tolist())
        slope = (f(A + h * D) - f(A - h * D)) / (2 * h)
        expected = np.array(slope.tolist(), dtype=float)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-13)
