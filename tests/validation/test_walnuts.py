"""The benchmark of WALNUTS: its model of inflation."""

from __future__ import annotations

import numpy as np

from validation.benchmarks.walnuts import stock_watson

STEP = 1e-30  # of the complex step, whose error is of order STEP^2


def log_density(q, y):
    """The definition, with sums of the innovations."""
    T, s = len(y), np.exp(-0.5 * q[0])
    (z1, *e), (x1, *f), (tau1, *g) = q[1:T], q[T : 2 * T], q[2 * T :]
    z = z1 + s * np.cumsum([0, *e])
    x = x1 + s * np.cumsum([0, *f])
    tau = tau1 + np.cumsum([0, *(np.exp(0.5 * z) * g)])
    prior = 5 * q[0] - 0.5 * np.exp(q[0]) - 0.5 * np.sum(q[1:] ** 2)
    return prior - 0.5 * np.sum(x + (y - tau) ** 2 * np.exp(-x))


def test_the_model_of_inflation_is_its_definition():
    rng = np.random.default_rng(1)
    for T in (2, 3, 9):
        y, q, gradient = rng.normal(size=T), 0.5 * rng.normal(size=3 * T), np.empty(3 * T)
        value = stock_watson(q, y[None], gradient)
        assert abs(value - log_density(q, y)) < 1e-12 * (1 + abs(value))
        expected = [log_density(q + STEP * 1j * unit, y).imag / STEP for unit in np.eye(3 * T)]
        np.testing.assert_allclose(gradient, expected, rtol=1e-11, atol=1e-11)
