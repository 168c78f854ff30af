"""Constraining transforms against their definitions at 250 digits: values, log-Jacobian, three derivatives by differences."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest

from refhmc.numerics.constraining import (
    CORRELATION,
    HALF_LINE,
    INTERVAL,
    LINE,
    ORDERED,
    ROWS,
    SIMPLEX,
    contraction_in_u,
    forward,
    gradient_in_u,
    hessian_in_u,
    pushed,
)

STEP = mpmath.mpf(10) ** -40  # of the differences: at 250 digits three of them lose 120 and are cut off at 80

# name -> (segments, number of values, values that are free: dx/du is square for these)
CORRELATION_5 = [(CORRELATION, row * (row - 1) // 2, row, 5 * row, 0, 0) for row in range(5)]
CASES = {
    "numbers": ([(LINE, 0, 2, 0, 0, 0), (HALF_LINE, 2, 1, 2, 1.5, -1), (INTERVAL, 3, 2, 3, -2, 5)], 5, range(5)),
    "ordered": ([(ORDERED, 0, 4, 0, 0, 0)], 4, range(4)),
    "simplex of 2": ([(SIMPLEX, 0, 1, 0, 0, 0)], 2, range(1)),
    "simplex of 10": ([(SIMPLEX, 0, 9, 0, 0, 0)], 10, range(9)),
    "correlations of 2": ([(CORRELATION, 0, 0, 0, 0, 0), (CORRELATION, 0, 1, 2, 0, 0)], 4, [2]),
    "correlations of 5": (CORRELATION_5, 25, [5 * i + j for i in range(5) for j in range(i)]),
    "several": (
        [(SIMPLEX, 0, 2, 1, 0, 0), (HALF_LINE, 2, 1, 0, 0, 1), (ORDERED, 3, 2, 4, 0, 0), (CORRELATION, 5, 2, 6, 0, 0)],
        9,
        [1, 2, 0, 4, 5, 6, 7],
    ),
}
PLACES = ("middle", "-30", "30 and -30")


def place(name: str, d: int) -> np.ndarray:
    rng = np.random.default_rng(20261123)
    signs = {"middle": 0, "-30": -1, "30 and -30": (-1.0) ** np.arange(d)}[name]
    return rng.normal(size=d) + 30 * np.asarray(signs)


def values(u, segments, n):
    """x(u) as in Stan's manual: the rest of the stick by subtraction, which needs the digits."""
    x, log_jacobian = [mpmath.mpf(0)] * n, mpmath.mpf(0)
    for kind, i, m, k, first, second in segments:
        rest = mpmath.mpf(1)
        for j in range(m):
            v = u[i + j]
            if kind == LINE:
                x[k + j] = v
            elif kind == HALF_LINE:
                x[k + j] = first + second * mpmath.exp(v)
                log_jacobian += v
            elif kind == INTERVAL:
                p = 1 / (1 + mpmath.exp(-v))
                x[k + j] = first + (second - first) * p
                log_jacobian += mpmath.log((second - first) * p * (1 - p))
            elif kind == ORDERED:
                x[k + j] = v if j == 0 else x[k + j - 1] + mpmath.exp(v)
                log_jacobian += 0 if j == 0 else v
            elif kind == SIMPLEX:
                z = 1 / (1 + mpmath.exp(-v) * (m - j))
                x[k + j] = rest * z
                log_jacobian += mpmath.log(z * (1 - z) * rest)
                rest -= x[k + j]
            else:
                z = mpmath.tanh(v)
                x[k + j] = mpmath.sqrt(rest) * z
                log_jacobian += mpmath.log(mpmath.sqrt(rest) * (1 - z**2))
                rest -= x[k + j] ** 2
        if kind >= SIMPLEX:
            x[k + m] = rest if kind == SIMPLEX else mpmath.sqrt(rest)
    return x, log_jacobian


def along(f, u, *directions):
    """The derivative of f along the directions, one after another, by central differences."""
    total = mpmath.mpf(0)
    for signs in itertools.product((-1, 1), repeat=len(directions)):
        steps = [mpmath.fdot(signs, [mpmath.mpf(float(v[i])) for v in directions]) for i in range(len(u))]
        moved = [a + STEP * step for a, step in zip(u, steps, strict=True)]
        total += mpmath.fprod(signs) * f(moved)
    return total / (2 * STEP) ** len(directions)


class Density:
    """L(x) = sum_r f_r(w_r . x), f_r(s) = a_r s + b_r s^2 / 2 + c_r s^3 / 6, with w_r of the size of 1 / x."""

    def __init__(self, x):
        rng = np.random.default_rng(7)
        self.w = rng.normal(size=(4, len(x))) / np.maximum(1.0, np.abs(x))
        self.a, self.b, self.c = rng.normal(size=(3, 4))

    def __call__(self, x):
        s = [mpmath.fdot(w.tolist(), x) for w in self.w]
        return mpmath.fsum(
            a * t + b * t**2 / 2 + c * t**3 / 6 for a, b, c, t in zip(self.a, self.b, self.c, s, strict=True)
        )

    def derivatives(self, x):
        s = self.w @ x
        slope, curvature = self.a + self.b * s + self.c * s * s / 2, self.b + self.c * s
        third = np.einsum("r,ra,rb,rc->abc", self.c, self.w, self.w, self.w)
        return slope @ self.w, np.einsum("r,ra,rb->ab", curvature, self.w, self.w), third


def kept(i, j):
    return () if (i + 2 * j) % 5 == 3 else pytest.mark.sweep


@pytest.fixture(
    params=[pytest.param((a, b), marks=kept(i, j)) for i, a in enumerate(CASES) for j, b in enumerate(PLACES)],
    ids=lambda p: f"{p[0]}, {p[1]}",
)
def problem(request):
    case, where = request.param
    segments, n, free = CASES[case]
    d = len(free)
    u, table = place(where, d), np.array(segments, dtype=float)
    x, rows = np.zeros(n), np.zeros((ROWS, d))
    log_jacobian = forward(u, table, x, rows)
    with mpmath.workdps(250):
        yield [mpmath.mpf(float(a)) for a in u], segments, list(free), table, x, rows, log_jacobian


def test_values_and_log_jacobian(problem):
    u, segments, free, _, x, _, log_jacobian = problem
    exact, expected = values(u, segments, len(x))
    np.testing.assert_allclose(x, np.array(exact, dtype=float), rtol=4e-15)
    np.testing.assert_allclose(log_jacobian, float(expected), rtol=1e-14)
    columns = [
        [along(lambda v, a=a: values(v, segments, len(x))[0][a], u, [int(i == j) for i in range(len(u))]) for a in free]
        for j in range(len(u))
    ]
    determinant = abs(mpmath.det(mpmath.matrix(columns)))
    np.testing.assert_allclose(float(mpmath.log(determinant)), float(expected), rtol=1e-12)


def test_three_derivatives(problem):
    u, segments, _, table, x, rows, _ = problem
    d, n = len(u), len(x)
    L = Density(x)
    g, H, T = L.derivatives(x)

    def density(v):
        x, log_jacobian = values(v, segments, n)
        return L(x) + log_jacobian

    rng = np.random.default_rng(3)
    v = rng.normal(size=d)
    units = np.eye(d)
    gradient, hessian, hessian_contraction = np.zeros(d), np.zeros((d, d)), np.zeros(d)
    gradient_in_u(g, table, x, rows, gradient)
    hessian_in_u(H, g, table, x, rows, hessian)
    MX, N = pushed(np.outer(v, v), table, x, rows)
    contraction_in_u(np.einsum("ab,abc->c", N, T), H, g, np.outer(v, v), MX, table, x, rows, hessian_contraction)

    def close(actual, expected):
        expected = np.array([float(e) for e in expected])
        np.testing.assert_allclose(actual, expected, rtol=1e-10, atol=1e-13 * abs(expected).max(initial=0))

    close(gradient, [along(density, u, e) for e in units])
    close(hessian @ v, [along(density, u, v, e) for e in units])
    close(hessian_contraction, [along(density, u, v, v, e) for e in units])
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10, atol=1e-13 * abs(hessian).max(initial=0))
