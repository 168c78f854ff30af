"""Errors in the papers that no other test proves: the printed formula and the correct one (``docs/errata.md``).

``docs/errata.md`` defines the names of the papers. Nothing here is random.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

OMEGA = np.kron([[0.0, 1.0], [-1.0, 0.0]], np.eye(2))  # on (q, x, p, y), with a copy of q and of p


def linear(move):
    """Return the matrix of a linear map of four numbers."""
    return np.array([move(*column) for column in np.eye(4)]).T


def test_cobb_binding_is_simultaneous():
    """Algorithm 2, lines 7 to 10: with values that were overwritten the rotation is not symplectic."""
    c, s = np.cos(0.7), np.sin(0.7)

    def simultaneously(q, x, p, y):
        a, b, d, e = q + x, p + y, q - x, p - y
        return (a + c * d + s * e) / 2, (a - c * d - s * e) / 2, (b - s * d + c * e) / 2, (b + s * d - c * e) / 2

    def one_by_one(q, x, p, y):
        q = (q + x + c * (q - x) + s * (p - y)) / 2
        p = (p + y - s * (q - x) + c * (p - y)) / 2
        x = (q + x - c * (q - x) - s * (p - y)) / 2
        y = (p + y + s * (q - x) - c * (p - y)) / 2
        return q, x, p, y

    right, printed = linear(simultaneously), linear(one_by_one)
    np.testing.assert_allclose(right.T @ OMEGA @ right, OMEGA, atol=1e-15)
    assert np.linalg.det(right) == pytest.approx(1, abs=1e-14)
    assert np.abs(printed.T @ OMEGA @ printed - OMEGA).max() > 0.1
    assert abs(np.linalg.det(printed) - 1) > 0.1


def test_cobb_divergence_is_positive():
    """Eqs. 8 and 18: KL = + delta' G delta / 2, exact for a normal's mean, where G = -E d^2 log p is the precision."""
    G, delta = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([0.3, -0.2])
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    z = np.stack(np.meshgrid(points, points, indexing="ij"), -1).reshape(-1, 2)
    x = z @ np.linalg.inv(np.linalg.cholesky(G))
    w = np.outer(weights, weights).ravel() / weights.sum() ** 2
    log_p = lambda mean: -0.5 * np.einsum("ni,ij,nj->n", x - mean, G, x - mean)  # noqa: E731
    assert w @ (log_p(0 * delta) - log_p(delta)) == pytest.approx(0.5 * delta @ G @ delta, rel=1e-12)


def test_cobb_copies_in_sums_and_differences():
    """Eq. 21: with Q = q + x, a = q - x, P = p + y, b = p - y the states are halves: (Q + a)/2, (P - b)/2, ..."""
    q, x, p, y = 0.3, -0.8, 1.1, 0.4
    Q, P, a, b = q + x, p + y, q - x, p - y
    assert ((Q + a) / 2, (P - b) / 2) == pytest.approx((q, y))
    assert ((Q - a) / 2, (P + b) / 2) == pytest.approx((x, p))
    assert (Q + a / 2, P - a / 2) != pytest.approx((q, y), rel=1e-3)


def leapfrog(q, p, eps, n):  # of the quartic H = q^4/4 + p^2/2
    for _ in range(n):
        p = p - 0.5 * eps * q**3
        q = q + eps * p
        p = p - 0.5 * eps * q**3
    return np.array([q, p])


def test_notes_orders_of_the_leapfrog():
    """Below eq. 13: the error of a step is O(eps^3) and the error at a fixed time O(eps^2); the notes exchange them."""

    def error(eps, n):
        flow = scipy.integrate.solve_ivp(
            lambda t, z: [z[1], -(z[0] ** 3)], (0, n * eps), [1.0, 0.5], "DOP853", rtol=1e-13, atol=1e-14
        )
        return np.linalg.norm(leapfrog(1.0, 0.5, eps, n) - flow.y[:, -1])

    assert error(0.02, 1) / error(0.01, 1) == pytest.approx(2**3, rel=0.1)
    assert error(0.02, 50) / error(0.01, 100) == pytest.approx(2**2, rel=0.1)


def test_notes_last_kick():
    """Algorithm 2, line 21: p <- p - eps/2 grad U(q). As printed, without p, the step is not reversible."""
    q, p, eps = 1.0, 0.5, 0.1

    def printed(q, p):
        p = p - 0.5 * eps * q**3
        q = q + eps * p
        return q, 0.5 * eps * q**3

    end = leapfrog(q, p, eps, 1)
    np.testing.assert_allclose(leapfrog(end[0], -end[1], eps, 1), [q, -p], rtol=1e-14)
    q1, p1 = printed(q, p)
    assert abs(printed(q1, -p1)[0] - q) > 0.01


def test_notes_acceptance_ratio():
    """Algorithm 2, line 10: exp(-U' - K') / exp(-U - K), which is 1 if the move preserves the energy; as printed it is not."""
    U, K, U1, K1 = 1.3, 0.4, 0.9, 0.8  # the same energy
    assert np.exp(-U1 - K1) / np.exp(-U - K) == pytest.approx(1)
    assert np.exp(-U1 - K1) / np.exp(U - K) != pytest.approx(1, rel=0.5)


def test_notes_no_flip_probability():
    """Eq. 28: with |p|/m ~ Exponential(1) it is P(dU < |p|/m) that is E min(1, exp(-dU)); P(dU > |p|/m) is its complement."""
    U, step = lambda x: x * x / 2, 0.9
    density = scipy.stats.norm.pdf

    def mean(f):  # over theta and both directions
        return scipy.integrate.quad(
            lambda x: density(x) * np.mean([f(U(x + s) - U(x)) for s in (-step, step)]),
            -12,
            12,
            points=(-step / 2, step / 2),
        )[0]

    through = mean(lambda dU: scipy.stats.expon.sf(dU))  # P(dU < Exponential(1))
    assert through == pytest.approx(mean(lambda dU: min(1.0, np.exp(-dU))), abs=1e-10)
    flips = mean(lambda dU: scipy.stats.expon.cdf(dU))
    assert flips == pytest.approx(1 - through, abs=1e-10)
    assert abs(flips - through) > 0.1


def test_notes_mass_of_a_coordinate_that_jumps():
    """Sec. 2.6: a move is eps / m. It scales with the coordinate for m = 1/sd, and inversely for m = sd."""
    eps, sd = 0.3, np.array([0.1, 10.0])
    np.testing.assert_allclose(eps / sd**-1.0 / sd, eps)  # a move in standard deviations
    assert np.ptp(eps / sd / sd) > 10


def test_brofos_quadratic_energy():
    """Eqs. 33 to 38: z' = Omega grad H, and the gradient of z'Az is 2 A z: the printed J is that of z'Az / 2."""
    S, h = np.array([[2.0, 0.5], [0.5, 1.0]]), 1e-6
    A = np.kron(np.eye(2), S)
    z = np.array([0.3, -1.0, 0.7, 0.2])
    slope = np.array([((z + h * e) @ A @ (z + h * e) - (z - h * e) @ A @ (z - h * e)) / (2 * h) for e in np.eye(4)])
    printed = np.block([[np.zeros((2, 2)), S], [-S, np.zeros((2, 2))]]) @ z
    np.testing.assert_allclose(OMEGA @ slope, 2 * printed, rtol=1e-8)


def test_brofos_reversal_error():
    """Eq. 48: a reversible map returns to the initial momentum p, not to p'."""
    q, p = np.array([1.0, 0.5])
    q1, p1 = leapfrog(q, p, 0.1, 10)
    q2, p2 = leapfrog(q1, -p1, 0.1, 10) * [1, -1]
    assert np.hypot(q - q2, p - p2) < 1e-13
    assert np.hypot(q - q2, p1 - p2) > 0.1  # as printed


def test_betancourt_signs_of_the_flows():
    """Eq. 2 and below: p moves by -dphi/dq. With the printed sign the energy is not preserved, however small the step."""
    change = {}
    for sign in (-1.0, 1.0):
        q, p = 1.0, 0.5
        for _ in range(1000):
            p = p + sign * 0.0005 * q**3
            q = q + 0.001 * p
            p = p + sign * 0.0005 * q**3
        change[sign] = abs(q**4 / 4 + p**2 / 2 - 0.375)
    assert change[-1.0] < 1e-6
    assert change[1.0] > 0.1
