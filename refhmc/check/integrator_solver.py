"""The equation solver of an implicit step, for ``check.integrator``.

    delta scaling     for tolerances delta = 1e-4 ... 1e-10:    defect <= rounding + 10 delta (1 + |J|)^2
    solver failure    at steps up to 45 eps it says that it failed, or what it gives is still reversible

A last iterate that is used as if it had converged is neither reversible nor symplectic. One that is symplectic but does not
come back solves an equation with several solutions, which no solver can help.
"""

from __future__ import annotations

import numpy as np

from refhmc.check.foreign import NotApplicable, Undecided
from refhmc.check.integrator_examination import SMALL, Examination
from refhmc.check.integrator_geometry import reversal_defect, symplectic_defect
from refhmc.check.report import FAIL, PASS, Row, inconclusive, judged

LARGE_STEPS = (2.0, 3.0, 4.5, 6.0, 9.0, 13.0, 20.0, 30.0, 45.0)


def delta_scaling(test: Examination) -> Row:
    """With the solver ever tighter the defects of reversal and symplecticity fall with its tolerance."""
    test.need()
    name, z = "delta scaling", test.points[0]
    if test.tighter is None:
        raise NotApplicable("with_tolerance= was not given")
    measures = [m for k, m in (("reversible", reversal_defect), ("symplectic", symplectic_defect)) if k in test.claims]
    if not measures or test.step.random:
        raise NotApplicable("neither reversible nor symplectic is claimed, or the step draws")
    worst, seen = (0.0, 0.0, 1.0), 0
    for delta in (1e-4, 1e-6, 1e-8, 1e-10):
        step = test.tightened(delta)
        for measure in measures:
            defect = measure(test, z, test.eps, 1, step=step, how="wide")
            if defect is not None:
                seen += 1
                limit = defect.allowed(1, delta)
                worst = max(worst, (defect.size / limit, defect.size, limit))
    if not seen:
        raise Undecided("no finite answer with another tolerance")
    case = test.step.case(z, test.eps)
    return judged(
        name,
        worst[1],
        worst[2],
        "rounding + n delta |J|^2 times 10, of derivatives 300; delta 1e-4 ... 1e-10",
        case=case,
    )


def solver_failure(test: Examination) -> Row:
    """At steps too large for a solver: it says so, or what it gives is still reversible.

    Where it is not reversible but symplectic, the equation has several solutions, which no solver can help.
    """
    test.need()
    name = "solver failure"
    if test.delta == 0:
        raise NotApplicable("it solves nothing")
    if test.step.random or "reversible" not in test.claims:
        raise NotApplicable("the step draws, or does not claim to be reversible")
    ordinary = symplectic_defect(test, test.points[0], test.eps, 1)
    if test.failed or ordinary is None or ordinary.size > SMALL * (1 + ordinary.growth) ** 2:
        raise NotApplicable("not reversible, or not symplectic, at ordinary steps either")
    reported = fine = other = unclear = 0
    for z in test.points[: 5 if test.quick else 1]:
        for eps in [test.eps * factor for factor in LARGE_STEPS]:
            kind = _beyond(test, z, eps)
            if kind == "wrong":

                def fails(z, eps, n):
                    return _beyond(test, z, eps) == "wrong"

                z, eps, _ = test.shrunk(fails, z, eps, 1)
                why = "an answer that is neither reversible nor symplectic, as if it were solved; nothing reported"
                return Row(name, FAIL, basis=why, case=test.step.case(z, eps))
            reported += kind == "reported"
            fine += kind == "fine"
            other += kind == "other"
            unclear += kind == "unclear"
    if other:
        return inconclusive(
            name, f"symplectic but not reversible in {other} hard cases: its equation has several solutions there"
        )
    if not reported + fine:
        raise Undecided("no hard case could be judged")
    return Row(name, PASS, basis=f"hard cases: {reported} reported, {fine} reversible, {unclear} not clear")


def _beyond(test: Examination, z: np.ndarray, eps: float) -> str:
    """What a step does where a solver may fail."""
    end = test.step.quiet(z, eps)
    back = test.flip(test.step.quiet(test.flip(end), eps)) if np.isfinite(end).all() else end
    if not np.isfinite(back).all():
        return "reported"
    # Above what a solver's tolerance may leave, which is not known if it was not given.
    least = 0.03 if test.delta is None else max(SMALL, 100 * test.delta)
    if test.apart(back, z, z) < least:
        return "fine"
    defect = symplectic_defect(test, z, eps, 1, how="near")
    if defect is None or defect.growth > 1e3 or defect.limit > 0.01 * (1 + defect.growth) ** 2:
        return "unclear"
    if defect.size < least * (1 + defect.growth) ** 2:
        return "other" if defect.growth < 1e2 else "unclear"
    return "wrong" if defect.size > 10 * defect.limit else "unclear"
