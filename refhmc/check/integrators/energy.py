"""Energy along the orbit of a step, for ``check.integrator``.

    energy           max_n |H(S^n z) - H(z)| over a time of 10 eps falls as eps^k, or is zero to rounding if that is claimed
    shadow energy    for a quadratic H with Hessian H'':  log(J)/eps - Omega H'' falls as eps^k

The second is Omega times the Hessian of H~ - H, where H~ is the energy that a symplectic step conserves to all orders in eps.
Both only fall this way if eps is small compared with the periods of H. The logarithm is one-to-one only if a step turns by less
than pi. Larger values of eps are therefore reduced (``IntegratorExamination.small``).
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import scipy.linalg

from refhmc.check.integrators.examination import IntegratorExamination
from refhmc.check.integrators.flow import Energy
from refhmc.check.judging import Cases, Measured, judged, passed
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, SubjectError


def energy_error(test: IntegratorExamination) -> Row | Cases:
    """Check that energy is conserved to rounding if that is claimed, else that its error on an orbit falls as eps^k."""
    H = test.need_energy()
    if "energy" in test.claims:
        return _energy_kept(test, H)
    if "order" not in test.claims:
        raise NotApplicable("neither order nor conservation is claimed")
    if test.step.random:
        raise NotApplicable("the step is random: each outcome has an order of its own")
    order, found, kept = test.claims["order"], [], 0
    for z in test.points[: 3 if test.quick else 1]:
        sizes = [_orbit_error(test, H, z, test.small / 2**k, 10 * 2**k) for k in range(3)]
        noise = 1e3 * max(test.unit, H.foreign.epsilon) * (1 + abs(H(z))) + 100 * (test.delta or test.floor)
        if not all(math.isfinite(x) for x in sizes):
            continue
        kept += sizes[0] <= noise
        if min(sizes[0], sizes[-1]) > noise:
            slopes = np.log2(np.array(sizes[:-1]) / np.array(sizes[1:]))
            if abs(slopes[0] - slopes[1]) < 0.35:
                found.append((float(2 * slopes[1] - slopes[0]), z))
    if not found and kept:
        if test.delta or test.floor:
            raise Inconclusive(
                "the energy error is below what the solver's tolerance, or the defect of the map, may cause"
            )
        return passed("conserved to rounding")
    if not found:
        raise Inconclusive("no clear slope: eps is too large, or the solver's error dominates")
    slope, z = min(found, key=lambda pair: pair[0])
    if slope < order - 0.4 and test.order_held:
        raise Inconclusive(f"slope {slope:.2f}, although the step has its order: H may not be smooth along the orbit")
    basis, case = "slope of the largest energy error on an orbit of time 10 eps", test.step.case(z, test.small, 10)
    return judged(slope, order - 0.4, basis, case, relation=">=")


def _orbit_error(test: IntegratorExamination, H: Energy, z: np.ndarray, eps: float, n: int) -> float:
    """Return the largest |H(z_k) - H(z)| of n steps, infinite if one is not finite."""
    here, worst = H(z), 0.0
    for _ in range(n):
        z = test.step.quiet(z, eps)
        if not np.isfinite(z).all():
            return math.inf
        worst = max(worst, abs(H(z) - here))
    return worst


def _energy_kept(test: IntegratorExamination, H: Energy) -> Cases:
    """Yield the energy error over 1 to 50 steps, with the rounding of its terms."""
    unit = max(test.unit, H.foreign.epsilon)

    def measure(z: np.ndarray, eps: float, n: int) -> Measured | None:
        end = test.step.quiet(z, eps, n)
        if not np.isfinite(end).all():
            return None
        before, after = H(z), H(end)
        rest = [abs(H(np.concatenate([x[: test.d], 0 * x[test.d :]]))) for x in (z, end)]
        terms = 1 + abs(before) + abs(after) + sum(rest)
        allowed = 64 * unit * (n + 1) * terms + 10 * n * (test.delta or 0.0) * terms
        return Measured(abs(after - before), allowed, lambda: test.simplest(measure, z, eps, n))

    yield from filter(None, (measure(z, test.eps, n) for z in test.points for n in (1, 3, 10, 50)))
    return "claimed to be conserved: rounding of the energy"


def shadow_energy(test: IntegratorExamination) -> Row:
    """Check for a quadratic H that the generator log(J)/eps of the step tends to that of the flow as eps^k."""
    H = test.need_energy()
    z, d = test.points[0], test.d
    if "order" not in test.claims or test.step.random or d > 20:
        raise NotApplicable("no order is claimed" if "order" not in test.claims else "the step is random, or d > 20")
    slope, zero = H.gradient, np.zeros(2 * d)
    if not _quadratic(H, test.points[:3]):
        raise NotApplicable("H is not quadratic")
    hessian = np.array([slope(e) - slope(zero) for e in np.eye(2 * d)])
    field = np.vstack([hessian[d:], -hessian[:d]])
    sizes = []
    for k in range(1, 5):
        eps = test.small / 2**k
        J = test.jacobian(z, eps, 1)
        if J is None:
            continue
        s = test.scale(z, test.step.quiet(z, eps))
        wanted = field * s / s[:, None]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "may be inaccurate" by far less than the measured differences
            generator = np.real(scipy.linalg.logm(J.value)) / eps
        blur = 20 * (J.error + 1e-15) / eps + 1e2 * H.error + 10 * (test.delta or test.floor) / eps
        largest = float(np.abs(wanted).max())
        sizes.append((float(np.abs(generator - wanted).max()) / largest, blur / largest))
    if len(sizes) < 2:
        raise Inconclusive("the step has no derivative")
    clear = [size for size, blur in sizes if size > 30 * blur]
    case = test.step.case(z, test.small)
    if len(clear) < 2:
        if sizes[0][0] < 1e-6:
            return passed("at rounding", sizes[0][0])
        raise Inconclusive("the difference is not above rounding or the solver's tolerance")
    fall = math.log2(clear[-2] / clear[-1])
    basis = f"slope of log(J)/eps minus the generator of H; difference {clear[-1]:.2g}"
    return judged(fall, test.claims["order"] - 0.25, basis, case, relation=">=")


def _quadratic(H: Energy, points: list[np.ndarray]) -> bool:
    """Return whether the gradient is linear, from the centre to far out; False if it raises."""
    zero = np.zeros(2 * H.dim)
    try:
        middle = H.gradient(zero)
        for a in points:
            for t in (-1.0, 0.1, 3.0, 30.0):
                straight = middle + t * (H.gradient(a) - middle)
                if not np.abs(H.gradient(t * a) - straight).max() < 1e-8 * np.abs(straight).max():
                    return False
    except SubjectError:
        return False
    return H.finite(zero)
