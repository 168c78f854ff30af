"""The transforms of constrained parameters and their derivatives, in high precision and by complex steps."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

import refhmc.numerics.transforms as tr
from refhmc.compile.compiled import plain
from tests.helpers.sweeps import every, representatives

mp.mp.dps = 40

TAILS = [-600.0, -37.0, -5.0, -0.3, -1e-9, 0.0, 1e-9, 0.3, 5.0, 37.0, 600.0]


def scalar_maps():
    """Return (map, log-Jacobian, forward, inverse, the map in mpmath) of each scalar transform."""
    for bound, sign in ((0.0, 1.0), (-1.5, 1.0), (2.0, -1.0)):
        yield (
            lambda u, b=bound, s=sign: tr.half_line.py_func(u, b, s),
            lambda u: tr.half_line_log_jacobian.py_func(u),
            lambda u, b=bound, s=sign: tr.half_line_forward(u, b, s),
            lambda x, b=bound, s=sign: tr.half_line_inverse(x, b, s),
            lambda u, b=bound, s=sign: b + s * mp.exp(u),
        )
    for lower, upper in ((0.0, 1.0), (-2.0, 5.0)):
        yield (
            lambda u, a=lower, b=upper: plain(tr.interval)(u, a, b),
            lambda u, a=lower, b=upper: plain(tr.interval_log_jacobian)(u, a, b),
            lambda u, a=lower, b=upper: tr.interval_forward(u, a, b),
            lambda x, a=lower, b=upper: tr.interval_inverse(x, a, b),
            lambda u, a=lower, b=upper: a + (b - a) / (1 + mp.exp(-u)),
        )


MAPS = list(scalar_maps())
each_map = pytest.mark.parametrize("maps", MAPS, ids=["log", "lower", "upper", "logit", "interval"])


@each_map
@pytest.mark.parametrize("u", representatives(TAILS, [-600.0, 37.0]))
def test_scalar_transform_and_its_derivatives_in_high_precision(maps, u):
    derivatives, log_jacobian, forward, _, exact = maps
    with mp.workdps(1200):  # the tails differ from the ends of the interval by e^-600
        x = [mp.diff(exact, mp.mpf(u), n, h=mp.mpf(10) ** -200) for n in range(4)]
        J = [mp.log(abs(x[1])), x[2] / x[1], x[3] / x[1] - (x[2] / x[1]) ** 2]
    np.testing.assert_allclose(derivatives(u)[:3], [float(v) for v in x[:3]], rtol=1e-12, atol=1e-290)
    # x''' may have zeros: an error relative to x' is allowed
    assert derivatives(u)[3] == pytest.approx(float(x[3]), rel=1e-12, abs=1e-15 * abs(float(x[1])))
    assert forward(u) == pytest.approx(float(x[0]), rel=1e-13, abs=1e-300)
    np.testing.assert_allclose(log_jacobian(u)[:3], [float(v) for v in J], rtol=1e-12, atol=1e-290)


@each_map
@pytest.mark.parametrize("u", TAILS)
def test_scalar_transform_by_the_complex_step(maps, u):
    derivatives, log_jacobian, _, _, _ = maps
    stepped, stepped_J = derivatives(u + 1e-30j), log_jacobian(u + 1e-30j)
    size = abs(derivatives(u)[1])
    for n in range(3):
        assert np.imag(stepped[n]) / 1e-30 == pytest.approx(derivatives(u)[n + 1], rel=1e-12, abs=1e-14 * size)
        assert np.imag(stepped_J[n]) / 1e-30 == pytest.approx(log_jacobian(u)[n + 1], rel=1e-12, abs=1e-14)
    # the log-Jacobian is the log of the complex-step derivative
    assert np.log(abs(np.imag(stepped[0]) / 1e-30)) == pytest.approx(log_jacobian(u)[0], rel=1e-12, abs=1e-14)


@each_map
def test_scalar_round_trip(maps):
    _, _, forward, inverse, _ = maps
    u = np.linspace(-4, 4, 17).reshape(1, 17)
    np.testing.assert_allclose(inverse(forward(u)), u, rtol=1e-12, atol=1e-13)


def test_round_trips_in_the_tails():
    u = np.array([-600.0, -30.0, 30.0, 600.0])
    np.testing.assert_allclose(tr.half_line_inverse(tr.half_line_forward(u)), u, rtol=1e-14)
    low = np.array([-600.0, -30.0, -10.0])
    np.testing.assert_allclose(tr.interval_inverse(tr.interval_forward(low)), low, rtol=1e-13)


@pytest.mark.parametrize("u", every(3, TAILS))
def test_expit_and_softplus_in_both_tails(u):
    with mp.workdps(700):
        p, s = 1 / (1 + mp.exp(-mp.mpf(u))), mp.log(1 + mp.exp(mp.mpf(u)))
    assert tr.expit(u) == pytest.approx(float(p), rel=1e-15)
    assert tr.softplus(u) == pytest.approx(float(s), rel=1e-15)
    assert plain(tr.softplus)(u + 1e-30j).imag / 1e-30 == pytest.approx(float(p), rel=1e-14)


def test_ordered():
    u = np.array([[0.4, -1.0, 2.0, -30.0], [-3.0, 0.0, 0.0, 1.0]])
    x = tr.ordered_forward(u)
    assert (np.diff(x[1]) > 0).all()
    np.testing.assert_allclose(x[1], [-3.0, -2.0, -1.0, -1.0 + np.e])
    np.testing.assert_allclose(tr.ordered_inverse(x)[:, :3], u[:, :3], rtol=1e-12)
    for row in u:
        jacobian = np.empty((4, 4))
        for k in range(4):
            stepped = row.astype(complex)
            stepped[k] += 1e-30j
            jacobian[:, k] = tr.ordered_forward(stepped).imag / 1e-30
            expected = np.exp(row[k]) if k else 1.0
            np.testing.assert_allclose(jacobian[:, k], np.where(np.arange(4) >= k, expected, 0.0), rtol=1e-14)
        assert np.linalg.slogdet(jacobian)[1] == pytest.approx(tr.ordered_log_jacobian(row), rel=1e-12)


def test_chain_rule():
    """L(x) is a cubic form of x(u), for a map of each kind, compared with the complex step of each order."""
    rng = np.random.default_rng(8)
    W = rng.standard_normal((3, 3, 3))
    W = sum(W.transpose(p) for p in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))) / 6
    M = rng.standard_normal((3, 3))

    def all_orders(u):
        maps = [plain(tr.half_line)(u[0]), plain(tr.interval)(u[1], -2.0, 5.0), plain(tr.half_line)(u[2], 1.0, -1.0)]
        x, a, b, c = (np.array(v) for v in zip(*maps, strict=True))
        g, H = np.einsum("ijk,j,k->i", W, x, x) / 2, np.einsum("ijk,k->ij", W, x)
        H_u = H.copy()
        plain(tr.chain_hessian)(H_u, g, a, b)
        contraction = np.einsum("ij,i,j,ijk->k", M, a, a, W).astype(u.dtype)
        plain(tr.chain_contraction)(contraction, M, H, g, a, b, c)
        return np.einsum("ijk,i,j,k->", W, x, x, x) / 6, a * g, H_u, contraction

    u = rng.standard_normal(3)
    actual = all_orders(u)
    for k in range(3):
        stepped = u.astype(complex)
        stepped[k] += 1e-30j
        L, g, H, _ = (np.imag(order) / 1e-30 for order in all_orders(stepped))
        for found, derivative in ((actual[1], L), (actual[2], g), (actual[3], np.sum(M * H))):
            np.testing.assert_allclose(found[..., k], derivative, rtol=1e-12, atol=1e-12)
