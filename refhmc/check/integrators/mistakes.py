"""Mistakes of a step that its initial velocity, or the order of its defects, shows, for the line "likely:".

With v the velocity of the step at small eps, z = (q, p) and the right field f = (dH/dp, -dH/dq):

    exchanged arguments      v(q, p) = -+(dH/dq, -dH/dp) at (p, q), and not +-f
    exchanged answers        the step tends to (p, q) as eps -> 0
    Laplace momentum         dH/dp = sign(p), and v_q = p
    missing log determinant  v_p - f_p is the derivative of 1/2 log det G(q), G^-1 = d2H/dp2
    averaged copies          J' Omega J - Omega is of order eps^6

The last holds for the mean of two copies of (q, p) in Tao's method (docs/book/tao.md). Let M be the symplectic derivative of a
step of both copies, and M_ds the derivative of their difference in the direction of their sum. The mean has the derivative M_ss
with M_ss' Omega M_ss = Omega - M_ds' Omega M_ds. A step of order 2 has M_ds = O(eps^3).
"""

from __future__ import annotations

import numpy as np

from refhmc.check.integrators.examination import IntegratorExamination
from refhmc.check.own import differences
from refhmc.check.subject.target import inverse_mass

EXCHANGED = "positions and momenta are exchanged: the step takes or returns (p, q), or H takes (p, q)"
LAPLACE = "the velocity of a Laplace momentum is p instead of sign(p)"
LOG_DET = "the force lacks the derivative of 1/2 log det G(q): the log determinant is missing"
AVERAGED = "two copies of the state are averaged (Tao's method): the mean of the copies is not a symplectic map"
ITERATED = "; or an implicit equation gets a fixed number of iterations"
TINY = 1e-4  # of eps, at which the velocity is measured
CLOSE = 0.02  # relative accuracy of a match
NOISE = 1e-12  # smallest symplectic defect that is compared
HALVINGS = 10


def recognised(test: IntegratorExamination, failed: set[str]) -> list[str]:
    """Return the mistake that the step has, or an empty list."""
    if test.energy is None or test.excluded or test.step.random or test.wrong_energy is not None:
        return []
    points, eps = test.points[:4], TINY * test.eps
    ends = [test.step.quiet(z, eps) for z in points]
    if not points or not np.isfinite(ends).all():
        return []
    pairs = list(zip(points, ends, strict=True))
    if all(_close(_as_answered(test, end), _swapped(z)) and not _close(end, z) for z, end in pairs):
        return [EXCHANGED]
    v = np.array([(end - z) / eps for z, end in pairs])
    f = np.array([test.energy.field(z) for z in points])
    if not np.isfinite(f).all():
        return []
    if _has_exchanged_arguments(test, points, v, f):
        return [EXCHANGED]
    if _has_velocity_p(test, points, v, f):
        return [LAPLACE]
    if failed & {"order", "small step"} and _lacks_log_det(test, points, v, f):
        return [LOG_DET]
    if failed & {"symplectic", "volume"} and "order" not in failed and not test.delta and _is_of_order_6(test):
        return [AVERAGED + ("" if test.delta == 0 else ITERATED)]
    return []


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.abs(a - b).max() <= CLOSE * np.abs(b).max())


def _swapped(z: np.ndarray) -> np.ndarray:
    return np.roll(z, len(z) // 2)


def _as_answered(test: IntegratorExamination, end: np.ndarray) -> np.ndarray:
    return test.flip(end) if test.step.flipped else end


def _has_exchanged_arguments(
    test: IntegratorExamination, points: list[np.ndarray], v: np.ndarray, f: np.ndarray
) -> bool:
    assert test.energy is not None
    if _close(v, f) or _close(v, -f):
        return False
    turned = np.array([test.flip(test.energy.gradient(_swapped(z))) for z in points])
    return _close(v, turned) or _close(v, -turned)


def _has_velocity_p(test: IntegratorExamination, points: list[np.ndarray], v: np.ndarray, f: np.ndarray) -> bool:
    d = test.d
    p = np.array([z[d:] for z in points])
    laplace = (np.abs(f[:, :d] - np.sign(p)) <= 1e-6).all(axis=0) & (np.abs(np.abs(p) - 1) > CLOSE).any(axis=0)
    return bool(laplace.any()) and _close(v[:, :d][:, laplace], p[:, laplace])


def _lacks_log_det(test: IntegratorExamination, points: list[np.ndarray], v: np.ndarray, f: np.ndarray) -> bool:
    d, energy = test.d, test.energy
    assert energy is not None
    gap = (v - f)[:, d:]
    if not _close(v[:, :d], f[:, :d]) or np.abs(gap).max() <= CLOSE * np.abs(f[:, d:]).max():
        return False

    def half_log_det(q: np.ndarray) -> np.ndarray:
        sign, value = np.linalg.slogdet(inverse_mass(lambda q, p: energy(np.concatenate([q, p])), q))
        return np.array([-0.5 * value if sign > 0 else np.nan])

    def slope(q: np.ndarray, u: np.ndarray) -> float:
        return float(differences.ridders(lambda t: half_log_det(q + t * u)).value[0])

    slopes = [[slope(z[:d], u) for u in np.eye(d)] for z in points]
    return bool(np.isfinite(slopes).all()) and _close(gap, np.array(slopes))


def _is_of_order_6(test: IntegratorExamination) -> bool:
    """Return whether the symplectic defect is of order eps^6, at the smallest steps at which it exceeds rounding."""
    d = test.d
    if test.wide or not test.points:
        return False
    omega = np.block([[np.zeros((d, d)), np.eye(d)], [-np.eye(d), np.zeros((d, d))]])
    sizes: list[float] = []
    for k in range(HALVINGS):
        J = test.jacobian(test.points[0], test.eps / 2**k, 1)
        if J is None or J.route != "complex step":
            return False
        size = float(np.abs(J.value.T @ omega @ J.value - omega).max())
        if size <= NOISE:
            break
        sizes.append(size)
    slopes = np.log2(np.array(sizes[:-1]) / np.array(sizes[1:]))
    return len(slopes) >= 2 and bool(np.abs(slopes[-2:] - 6).max() <= 0.5)
