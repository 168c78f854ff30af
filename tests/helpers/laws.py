"""Exact laws, as functions between independent normals and draws, and the tests that a transition keeps them."""

from __future__ import annotations

import functools

import numpy as np
import scipy.integrate
import scipy.stats

import refhmc
from tests.helpers.leapfrog_cases import model
from tests.helpers.many_starts import from_each

JUST_BELOW_ONE = np.nextafter(1.0, 0.0)


def acceptance_by_bisection(accepts) -> float:
    """The a such that a uniform below a is accepted and one above is not."""
    if not accepts(0.0):
        return 0.0
    if accepts(JUST_BELOW_ONE):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(55):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if accepts(middle) else (low, middle)
    return high


def normal_with_a_wall(q, data):
    """A standard normal that ends at 1: ``data`` is what the log density loses beyond."""
    return -0.5 * q[0] * q[0] - (data if q[0] > 1 else 0.0)


def normal_gradient(q, data, out):
    out[0] = -q[0]


@functools.cache
def normals(d: int):
    return refhmc.models.Gaussian(np.zeros(d), np.eye(d))


def gaussian_law():
    m = model("gaussian")
    mean, L = m.reference.mean, np.linalg.cholesky(np.linalg.inv(-m.hessian(np.zeros(3))))
    return (lambda z: mean + z @ L.T), (lambda q: np.linalg.solve(L, (q - mean).T).T)


def funnel_law():
    def draw(z):
        return np.column_stack([3 * z[:, 0], np.exp(-1.5 * z[:, :1]) * z[:, 1:]])

    def back(q):
        return np.column_stack([q[:, 0] / 3, np.exp(q[:, :1] / 2) * q[:, 1:]])

    return draw, back


def banana_law():
    """t1 given t2 is normal with mean a + b t2^2; the law of t2 is found by quadrature of the density at that mean."""
    m = model("banana")
    precision = -m.hessian([0.0, 0.0])[0, 0]
    a = m.gradient([0.0, 0.0])[0] / precision
    b = m.gradient([0.0, 1.0])[0] / precision - a
    grid = np.linspace(-6, 6, 2001)
    density = np.exp([m.log_density([a + b * t * t, t]) for t in grid])
    cdf = scipy.integrate.cumulative_simpson(density, x=grid, initial=0)
    cdf = np.maximum.accumulate(cdf / cdf[-1])

    def draw(z):
        t2 = np.interp(scipy.stats.norm.cdf(z[:, 1]), cdf, grid)
        return np.column_stack([a + b * t2**2 + z[:, 0] / precision**0.5, t2])

    def back(q):
        z2 = scipy.stats.norm.ppf(np.interp(q[:, 1], grid, cdf))
        return np.column_stack([(q[:, 0] - a - b * q[:, 1] ** 2) * precision**0.5, z2])

    return draw, back


# Functions between independent standard normals (n, d) and independent draws; a step size for the metric 1.
LAWS = {"gaussian": (gaussian_law, 0.5), "funnel": (funnel_law, 0.25), "banana": (banana_law, 0.12)}


def assert_law_is_kept(name: str, kernel, n: int, false_alarm: float) -> None:
    """Independent exact draws, one transition each, and back to independent normals: Kolmogorov-Smirnov."""
    draw, back = LAWS[name][0]()
    z = np.random.default_rng(1).normal(size=(n, model(name).dim))
    starts = draw(z)
    np.testing.assert_allclose(back(starts), z, rtol=1e-9, atol=1e-9)
    ends, _ = from_each(model(name), kernel, starts, seed=2)
    assert np.mean(np.any(ends != starts, axis=1)) > 0.5
    for column in back(ends).T:
        assert scipy.stats.kstest(column, "norm").pvalue > false_alarm / z.shape[1]
