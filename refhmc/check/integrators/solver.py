"""The equation solver of an implicit step, for ``check.integrator``.

    delta scaling     for tolerances delta = 1e-4 ... 1e-10:    defect <= rounding + 10 delta (1 + |J|)^2
    solver failure    the solver reports a failure, or its answer is still reversible: at eps, and at steps up to 45 eps

A last iterate that is used as if it had converged is neither reversible nor symplectic. One that is symplectic but not
reversible solves an equation with several solutions, which is not the solver's fault.

At eps itself an unconverged iterate changes the distribution. The tolerance there is 100 delta (1 + |J|)^2 if delta is
declared, and otherwise 1e-3, since the remaining error is delta over one minus the rate of the iteration. The points are n
points of the target, so that a failure at a fraction f of the points is missed with probability (1 - f)^n,
and points further out, with an energy up to ``ABOVE`` higher, which long chains reach. A failure only at 2 eps
is a fault of the code, not of a chain with step eps. For failures only at longer steps the row is INCONCLUSIVE: a correct
solver that returns its last iterate is not responsible for an equation without solution.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator

import numpy as np

from refhmc.check.integrators.examination import SMALL, IntegratorExamination
from refhmc.check.integrators.geometry import reversal_defect, symplectic_defect
from refhmc.check.integrators.points import candidate
from refhmc.check.judging import Cases, Measured, failed, passed, simplest
from refhmc.check.report import INEFFICIENT, WRONG_DISTRIBUTION, Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, OutOfTime, SubjectError

MULTIPLES = (2.0, 3.0, 4.5, 6.0, 9.0, 13.0, 20.0, 30.0, 45.0)  # of eps
FAILS_TO = 2.0  # multiple of eps: at longer steps an unreported failure is INCONCLUSIVE
AT_EPS, FURTHER_OUT, AT_MULTIPLE = 300, 150, 20  # points
STRETCHES = ((1.0, 2.0), (1.0, 3.0), (1.5, 1.5), (1.0, 4.5), (2.0, 2.0))  # of q from the mean, of p
ABOVE = 12.0  # reached by a chain of e^12 = 160,000 states
ENOUGH = 5  # unconverged iterates
LEAST = 1e-9  # a defect below this is rounding


def delta_scaling(test: IntegratorExamination) -> Cases:
    """Yield the defects of reversal and symplecticity for decreasing tolerances of the solver."""
    test.need()
    z = test.points[0]
    if test.tighter is None:
        raise NotApplicable("with_tolerance was not given")
    measures = [m for k, m in (("reversible", reversal_defect), ("symplectic", symplectic_defect)) if k in test.claims]
    if not measures or test.step.random:
        raise NotApplicable("neither reversible nor symplectic is claimed, or the step is random")
    for delta in (1e-4, 1e-6, 1e-8, 1e-10):
        step = test.tightened(delta)
        for measure in measures:
            defect = measure(test, z, test.eps, 1, step=step, how="wide")
            if defect is not None:
                yield Measured(defect.size, defect.allowed(1, delta), test.step.case(z, test.eps))
    return "rounding + 10 n delta |J|^2 (300 for derivatives); delta 1e-4 ... 1e-10"


def solver_failure(test: IntegratorExamination) -> Row:
    """Check that a solver reports its failures or that its answers are reversible; the step size decides the severity."""
    test.need()
    if test.delta == 0:
        raise NotApplicable("the step solves no equation")
    if test.step.random or "reversible" not in test.claims:
        raise NotApplicable("the step is random, or does not claim to be reversible")
    ordinary = symplectic_defect(test, test.points[0], test.eps, 1)
    if test.failed or ordinary is None or ordinary.size > SMALL * (1 + ordinary.growth) ** 2:
        raise NotApplicable("not reversible, or not symplectic, at ordinary steps either")
    points = list(_points_of_the_law(test))
    groups = [(1.0, "points of the target", points), (1.0, "points further out", list(_further_out(test, points)))]
    groups += [(m, "points", points[:AT_MULTIPLE]) for m in MULTIPLES]
    clear: list[str] = []  # cases without a fault
    total: collections.Counter[str] = collections.Counter()
    at_eps = 0
    for multiple, what, test_points in groups:
        kinds: collections.Counter[str] = collections.Counter()
        first = None
        try:
            for z in test_points:
                kind = _beyond(test, z, multiple * test.eps)
                kinds[kind] += 1
                first = z if kind == "wrong" and first is None else first
                if kinds["wrong"] == ENOUGH:
                    break
        except OutOfTime:
            if first is None and not total:
                raise
        looked = sum(kinds.values())
        if first is not None:
            why = (
                f"at {_step_of(multiple)}: {kinds['wrong']} of {looked} {what} get an answer that is neither reversible nor "
                f"symplectic, without a report of failure{_before(clear, at_eps) if multiple > 1 else ''}"
            )
            eps = multiple * test.eps
            if multiple > FAILS_TO:
                raise Inconclusive(f"{why}; at a step so much longer than eps the equation may have no solution")
            shown = simplest(first, functools.partial(_is_wrong, test, eps), test.tries)
            return failed(
                why, test.step.case(shown, eps), severity=WRONG_DISTRIBUTION if multiple == 1 else INEFFICIENT
            )
        if kinds["other"] and multiple == 1:
            why = f"symplectic but not reversible at {kinds['other']} of {looked} {what}"
            raise Inconclusive(f"{why}: the equation has several solutions there, or was not solved")
        at_eps += looked * (what == "points of the target")
        total += kinds
        if looked:
            clear.append(f"{looked} {what}" if multiple == 1 else f"{_step_of(multiple)}")
    if not total["reported"] + total["one way"] + total["fine"]:
        raise Inconclusive("no case could be judged")
    said = [f"{total[kind]} {word}" for kind, word in WORDS.items() if total[kind]]
    return passed(f"{', '.join(said)}{_before(clear, at_eps)}")


WORDS = {
    "fine": "reversible",
    "reported": "reported",
    "one way": "solved forward and reported in the reverse step, which only a reversibility check finds",
    "other": "symplectic but not reversible at a multiple of eps (several solutions, or not solved)",
    "unclear": "not clear",
}


def _step_of(multiple: float) -> str:
    return "eps" if multiple == 1 else f"{multiple:g} eps"


def _before(clear: list[str], at_eps: int) -> str:
    """Return the cases without a fault, and the chance of having missed one."""
    if not clear:
        return ""
    multiples = [x for x in clear if x.endswith("eps")]
    test_points = [x for x in clear if not x.endswith("eps")]
    far = f", to {multiples[-1]}" if multiples else ""
    chance = f"; a failure at 1 % of the points would be missed with probability {0.99**at_eps:.2g}" if at_eps else ""
    return f"; no fault at eps at {' and '.join(test_points)}{far}{chance}"


def _points_of_the_law(test: IntegratorExamination) -> Iterator[np.ndarray]:
    """Yield ``AT_EPS`` points of the target; if points were given, those with other momenta."""
    rng = np.random.default_rng([test.seed, 5])
    d, found = test.d, 0
    for k in range(2 * AT_EPS):
        if test.given:
            q, p = np.split(test.given[k % len(test.given)], 2)
            z = np.concatenate([q, np.sqrt(np.mean(p**2)) * rng.standard_normal(d)])
        else:
            z = candidate(test, rng, k)
        if np.isfinite(_energy(test, z)):
            found += 1
            yield z
        if found == AT_EPS:
            return


def _further_out(test: IntegratorExamination, points: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the same points, stretched, if their energy is not too high."""
    if not points:
        return
    mean = np.concatenate([np.mean(points, axis=0)[: test.d], np.zeros(test.d)])
    highest = max(_energy(test, z) for z in points) + ABOVE
    found = 0
    for k, z in enumerate(points * 2):
        of_q, of_p = STRETCHES[k % len(STRETCHES)]
        if test.given:
            of_q = 1.0
        there = mean + np.repeat([of_q, of_p], test.d) * (z - mean)
        if _energy(test, there) <= highest:
            found += 1
            yield there
        if found == FURTHER_OUT:
            return


def _energy(test: IntegratorExamination, z: np.ndarray) -> float:
    """Return H(z), 0 if it is not known, NaN if it raises."""
    try:
        return 0.0 if test.energy is None else test.energy(z)
    except SubjectError:
        return np.nan


def _is_wrong(test: IntegratorExamination, eps: float, z: np.ndarray) -> bool:
    return _beyond(test, z, eps) == "wrong"


def _beyond(test: IntegratorExamination, z: np.ndarray, eps: float) -> str:
    """Classify the answer of a step that a solver may fail to solve."""
    end = test.step.quiet(z, eps)
    if not np.isfinite(end).all():
        return "reported"
    back = test.flip(test.step.quiet(test.flip(end), eps))
    if not np.isfinite(back).all():
        return "one way"
    # Above the error that a solver's tolerance may leave, which is unknown if it was not given.
    declared = test.delta is not None and eps == test.eps
    least = 0.03 if test.delta is None else max(LEAST if declared else SMALL, 100 * test.delta)
    apart = test.apart(back, z, z)
    if apart < least:
        return "fine"
    defect = symplectic_defect(test, z, eps, 1, how="near")
    if defect is None or defect.growth > 1e3 or defect.limit > 0.01 * (1 + defect.growth) ** 2:
        return "unclear"
    if declared and apart < least * (1 + defect.growth) ** 2:
        return "fine"
    if defect.size < least * (1 + defect.growth) ** 2:
        return "other" if defect.growth < 1e2 else "unclear"
    return "wrong" if defect.size > 10 * defect.limit else "unclear"
