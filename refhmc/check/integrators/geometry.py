"""Geometric properties of a step: properties of the map S of n steps for any H, for ``check.integrator``.

    reversible      F S F S = 1, F(q, p) = (q, -p)
    inverse         S(-eps) S(eps) = 1, with the same random numbers if the step is random
    symplectic      J' Omega J = Omega, Omega = [[0, 1], [-1, 0]], J the Jacobian of S; in many dimensions
                    (J v)' Omega J w = v' Omega w for a few random v, w
    volume          log |det J| = 0
    composition     S of n steps is n times S of one

A defect is compared with rounding times the growth |J|, the error of the derivatives, and the error that the solver's
tolerance delta may leave. A larger defect is accepted as such if other differences see it too. If delta is not
known, the dependence of the defect on eps decides: it is a power of eps for a map that is not symplectic, but not for a solver.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from refhmc.check.integrators.examination import NEAR, SMALL, Defect, IntegratorExamination
from refhmc.check.integrators.reversal import reversible_in_law
from refhmc.check.judging import Measured, failed, judged, passed
from refhmc.check.report import NOT_RUN, Row, inconclusive
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, OutOfTime
from refhmc.check.subject.step import Step

OF_DERIVATIVES = 300.0  # multiple of the solver's tolerance that a derivative may contain
Measure = Callable[..., Defect | None]  # of (test, z, eps, n)
TIGHT = 1e-11  # tolerance of a solver to find out whether it causes a defect


def reversal_defect(
    test: IntegratorExamination, z: np.ndarray, eps: float, n: int, step: Step | None = None, how: str = ""
) -> Defect | None:
    """Return |F S F S z - z|, the largest entry in scaled coordinates; ``how`` has no effect."""
    step = step or test.step
    return _distance(test, z, eps, n, step, lambda end: test.flip(step.quiet(test.flip(end), eps, n)))


def inverse_defect(
    test: IntegratorExamination, z: np.ndarray, eps: float, n: int, step: Step | None = None, how: str = ""
) -> Defect | None:
    """Return |S(-eps) S(eps) z - z|; for a random step of one step only, with the same random numbers."""
    step = step or test.step
    return None if step.random and n > 1 else _distance(test, z, eps, n, step, lambda end: step.quiet(end, -eps, n))


def _distance(
    test: IntegratorExamination, z: np.ndarray, eps: float, n: int, step: Step, back: Callable
) -> Defect | None:
    """Return the distance of ``back(end)`` from z, where ``end`` is the end of n steps."""
    end = step.quiet(z, eps, n)
    there = back(end) if np.isfinite(end).all() else end
    J = test.jacobian(z, eps, n, step)
    if not np.isfinite(there).all() or J is None:
        return None
    size = float(np.abs((there - z) / test.scale(z, end)).max())
    return Defect(size, test.rounding(z, eps, n, J.growth, step), J.growth, "rounding x |J|")


def symplectic_defect(
    test: IntegratorExamination, z: np.ndarray, eps: float, n: int, step: Step | None = None, how: str = ""
) -> Defect | None:
    """Return |J' Omega J - Omega|, the largest entry; None if there is no derivative."""
    J = test.jacobian(z, eps, n, step, how)
    if J is None:
        return None
    d = test.d

    def two_form(V: np.ndarray) -> np.ndarray:
        return V[:d].T @ V[d:] - V[d:].T @ V[:d]

    size = float(np.abs(two_form(J.value) - two_form(J.along)).max())
    limit = (1e-10 * (1 + J.growth) ** 2 + 20 * math.sqrt(2 * d) * J.error * (1 + J.growth)) * J.length
    return Defect(size, limit, J.growth, J.route, OF_DERIVATIVES * J.length, J.error / J.length)


def volume_defect(
    test: IntegratorExamination, z: np.ndarray, eps: float, n: int, step: Step | None = None, how: str = ""
) -> Defect | None:
    """Return |log |det J||."""
    J = test.jacobian(z, eps, n, step, how, full=True)
    if J is None:
        return None
    _, log_det = np.linalg.slogdet(J.value)
    if test.wide:  # the singular values would dominate the cost
        u = np.random.default_rng(test.seed).standard_normal((2 * test.d, 4))
        inverse = float(np.sqrt(((np.linalg.solve(J.value, u) ** 2).sum(axis=0) / (u**2).sum(axis=0)).max()))
    else:
        inverse = float(np.linalg.norm(np.linalg.pinv(J.value), 2))
    limit = 2 * test.d * (1e-10 * (1 + J.growth) ** 2 + 10 * J.error * (1 + inverse))
    return Defect(abs(float(log_det)), limit, J.growth, J.route, OF_DERIVATIVES, J.error)


def reversible(test: IntegratorExamination) -> Row:
    test.need()
    if test.step.random:
        return reversible_in_law(test)
    return _geometric(test, "reversible", reversal_defect)


def inverse(test: IntegratorExamination) -> Row:
    if "inverse" not in test.claims:
        raise NotApplicable("not claimed")
    return _geometric(test, "inverse", inverse_defect)


def symplectic(test: IntegratorExamination) -> Row:
    return _geometric(test, "symplectic", symplectic_defect)


def volume(test: IntegratorExamination) -> Row:
    if test.costly and "symplectic" in test.held:
        raise NotApplicable("det J = 1 follows from 'symplectic'; computing all of J takes too long")
    return _geometric(test, "volume", volume_defect)


class Seen(NamedTuple):
    """A defect, its limit with the solver's part, and the case at which it was found."""

    defect: Defect
    allowed: float
    z: np.ndarray
    eps: float
    n: int
    stream: int = 0

    @property
    def holds(self) -> bool:
        return self.defect.size <= self.allowed


def _met(test: IntegratorExamination, measure: Measure, cases: Iterable[tuple]) -> list[Seen]:
    """Return the defects of the cases (z, eps, n, stream), the worst first, as time allows."""
    found: list[Seen] = []
    for z, eps, n, test.step.stream in cases:
        try:
            defect = measure(test, z, eps, n)
        except OutOfTime:
            if not found:
                raise
            break
        if defect is not None:
            found.append(Seen(defect, defect.allowed(n, test.delta), z, eps, n, test.step.stream))
    test.step.stream = 0
    return sorted(found, key=lambda seen: -seen.defect.size / seen.allowed)


def _geometric(test: IntegratorExamination, name: str, measure: Measure) -> Row:
    """Judge the worst case, and whether it is a fault of the map or may be caused by the solver."""
    test.need()
    places = _places(test)[: 1 if test.wide and measure is volume_defect else None]
    found = _met(test, measure, [(*x, stream) for stream in ((0, 1, 2) if test.step.random else (0,)) for x in places])
    worst = _believed(test, measure, found)
    if name not in test.claims:
        how = "holds" if worst.holds else "does not hold"
        return Row(name, NOT_RUN, worst.defect.size, basis=f"not claimed; {how} at the measured points")
    basis = worst.defect.route + (", solver's tolerance" if test.delta else "")
    if not worst.holds:
        test.step.stream = worst.stream
        try:
            return _at_fault(test, name, measure, worst, basis)
        finally:
            test.step.stream = 0
    if name == "reversible":
        test.floor = worst.defect.size
    test.held.add(name)
    return judged(worst.defect.size, worst.allowed, basis)


def _places(test: IntegratorExamination) -> list[tuple[np.ndarray, float, int]]:
    """Return the cases at which geometric defects are measured."""
    some = 2 if test.quick else 1
    found = [(z, test.eps, n) for z in test.points for n in ((1, 3) if some == 2 else (1,))]
    found += [(z, test.eps, 10) for z in test.points[:some]] if test.d <= 30 else []
    return found + [(z, test.eps / 3, 1) for z in test.points[:some]]


def _believed(test: IntegratorExamination, measure: Measure, found: list[Seen]) -> Seen:
    """Return the worst of the cases found, without those that other differences contradict."""
    for k, seen in enumerate(found):
        if seen.holds:
            return seen
        if k == 8:
            raise Inconclusive("derivatives by different methods disagree")
        test.step.stream = seen.stream
        contradicted = _contradicted(test, measure, seen)
        test.step.stream = 0
        if not contradicted:
            return seen
    raise Inconclusive("not measurable at any of the points: no reliable derivative, or |J| above 1e6")


def _contradicted(test: IntegratorExamination, measure: Measure, seen: Seen) -> bool:
    """Return whether other differences do not see the defect; derivatives are trusted if they agree.

    The derivative of an iterate that stopped at a tolerance has a larger error than the iterate. A map with
    jumps only has good differences within a piece. At a jump, differences of width w are wrong by
    jump / w, so that the error of those of width ``NEAR`` is above jump / ``NEAR``. Wide ones may agree by accident
    if the jumps that they cross are in proportion to their widths.
    """
    defect = seen.defect
    if test.coarse or not defect.route.startswith(("complex step", "Ridders")):
        return False
    for how in ("wide", "near") if defect.route.startswith("complex step") else ("near",):
        other = measure(test, seen.z, seen.eps, seen.n, how=how)
        if other is None:
            continue
        if how == "near" and defect.route.startswith("Ridders") and other.error * NEAR > SMALL:
            return True  # too large for a solver's tolerance: a jump
        allowed = other.allowed(seen.n, test.delta)
        if other.size <= allowed and allowed < max(4 * seen.allowed, 0.1 * defect.size):
            return True
    return False


def _at_fault(test: IntegratorExamination, name: str, measure: Measure, seen: Seen, basis: str) -> Row:
    """Return a FAIL with a smaller case, or PASS or INCONCLUSIVE if the solver causes the defect, or may cause it."""
    defect, _, z, eps, n, _ = seen
    excused: Row | None = None
    if test.tighter is not None and not test.delta:
        tight = measure(test, z, eps, n, step=test.tightened(TIGHT), how="wide")
        if tight is not None and tight.size <= tight.allowed(n, TIGHT):
            excused = passed(f"caused by the solver: {tight.size:.2g} with tolerance {TIGHT:g}", defect.size)
    elif test.delta is None and defect.size < SMALL * n * (1 + defect.growth) ** 2:
        smooth = any(_power_law(test, measure, x) for x in [z, *test.points[:5]])
        why = "perhaps a solver's tolerance; pass tolerance (0 if nothing is solved) or with_tolerance"
        excused = None if smooth else inconclusive("", f"above rounding, but not a power of eps: {why}", defect.size)
    if excused is not None:
        test.floor = defect.size if name == "reversible" else test.floor
        return excused
    test.failed.add(name)
    return failed(basis, _smaller(test, measure, seen), defect.size, seen.allowed)


def _smaller(test: IntegratorExamination, measure: Measure, seen: Seen) -> str:
    def measured(z: np.ndarray, eps: float, n: int) -> Measured | None:
        found = measure(test, z, eps, n)
        return None if found is None else Measured(found.size, found.allowed(n, test.delta))

    return test.simplest(measured, *seen[2:5])


def _power_law(test: IntegratorExamination, measure: Measure, z: np.ndarray) -> bool:
    """Return whether the defect of one step grows smoothly with eps, with slope above 0.8 in log-log, to 0.005.

    The error of an iteration that stops at a tolerance jumps with the number of iterations, and stays below about the
    tolerance at any eps. Six sizes in a row must lie on a parabola.
    """
    x, y = math.log2(1.5) * np.arange(-4, 15), np.full(19, np.nan)
    for k in range(len(x)):
        defect = measure(test, z, float(test.eps * 2 ** x[k]), 1)
        if defect is None or defect.size > 0.1 * (1 + defect.growth) ** 2:
            break
        if defect.size > 10 * defect.limit:
            y[k] = math.log2(defect.size)
    for k in range(len(x) - 5):
        here, sizes = x[k : k + 6], y[k : k + 6]
        if not sizes.max() > math.log2(5e-3):  # NaN too
            continue
        curve = np.polyfit(here, sizes, 2)
        smooth = np.abs(np.polyval(curve, here) - sizes).max() < 0.3
        if smooth and np.polyval(np.polyder(curve), here).min() > 0.8:
            return True
    return False


def composition(test: IntegratorExamination) -> Row:
    """Compare n steps in one call with n calls."""
    test.need()
    if not test.step.counts:
        raise NotApplicable("the step does not take n")
    if test.step.random:
        raise NotApplicable("the step is random: n steps in one call may use other random numbers than n calls")
    counts = (2, 3, 10, 50) if test.quick else (2, 3)
    found = _met(test, composition_defect, [(z, test.eps, n, 0) for z in test.points[:3] for n in counts])
    if not found:
        raise Inconclusive("not measurable at any of the points")
    worst = found[0]
    size = worst.defect.size
    if not worst.holds and test.delta is None and size < SMALL * worst.n * (1 + worst.defect.growth) ** 2:
        raise Inconclusive("above rounding; perhaps a solver's tolerance: pass tolerance", size)
    return judged(size, worst.allowed, worst.defect.route, lambda: _smaller(test, composition_defect, worst))


def composition_defect(test: IntegratorExamination, z: np.ndarray, eps: float, n: int) -> Defect | None:
    """Return the difference between n steps in one call and n calls."""
    J = test.jacobian(z, eps, n)
    ends = test.step.quiet(z, eps, n), test.step.one_at_a_time(z, eps, n)
    if J is None or not np.isfinite(ends).all():
        return None
    return Defect(test.apart(*ends, z), test.rounding(z, eps, n, J.growth), J.growth, "rounding x |J|")
