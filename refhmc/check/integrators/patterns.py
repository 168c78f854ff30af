"""Causes that a pattern of rows of ``check.integrator`` is typical of, one sentence per cause, for the line "likely:".

The initial speeds of positions and momenta, relative to the field of H, distinguish most faults of force and drift. The
geometric rows that fail together distinguish the rest.
"""

from __future__ import annotations

from refhmc.check.integrators.examination import IntegratorExamination
from refhmc.check.integrators.mistakes import recognised
from refhmc.check.judging import causes
from refhmc.check.report import FAIL, PASS, WRONG_DISTRIBUTION, Row

TYPICAL = {
    "solver failure": "the solver reaches its iteration limit, and its last iterate is used as if it had converged",
    "delta scaling": "the defect does not fall with the solver's tolerance: the solved equation is not the right one",
    "composition": "n is ignored, or values carried from step to step inside a call differ from those at a new call",
    "inverse": "a step of -eps uses the stages in the order of a forward step; it must reverse the order",
    "evaluations": "a quantity from the end of one stage is evaluated again at the beginning of the next",
    "gradient of H": "the given gradients are not the derivatives of the given energy",
}


def typical(test: IntegratorExamination, rows: dict[str, Row]) -> list[str]:
    """Return the causes that the pattern of rows is typical of, the most certain first."""
    failed = {name for name, row in rows.items() if row.status == FAIL}
    said: list[str] = []
    if not failed:
        return said
    if "deterministic" in failed:
        kept = rows["deterministic"].severity == WRONG_DISTRIBUTION
        said.append(
            "the step keeps something from call to call, such as a gradient that is not updated for another start"
            if kept
            else "the step uses a random generator of its own"
        )
    said += recognised(test, failed) or (
        causes(failed, TYPICAL) + _of_rates(failed, test) + _of_geometry(failed, rows, test)
    )
    if "small step" in failed and (rows["small step"].number or 1) < 1e-6:
        said.append("rounded coefficients: terms that should cancel in the composition do not quite cancel")
    return said


def _of_rates(failed: set[str], test: IntegratorExamination) -> list[str]:
    if test.rates is None or not failed & {"order", "elapsed time", "small step"}:
        return []
    drift, kick = test.rates

    def near(x: float, value: float) -> bool:
        return abs(x - value) < 0.02 * max(abs(value), 0.1)

    if test.exchanged and not near(drift, 1):
        return ["the drift uses the mass matrix instead of its inverse, or the other way round"]
    if test.astray[0] and near(kick, 1):
        return ["the velocity has another direction than dH/dp: check the mass matrix"]
    if test.astray[1] and near(drift, 1):
        return ["the force is not -dH/dq: a term is missing or has a wrong factor or sign"]
    if near(drift, 0) and near(kick, 0):
        return ["the step does not move at first order in eps: eps squared instead of eps, or a step that does nothing"]
    if near(drift, 2) and near(kick, 2):
        return ["the step advances by twice the requested time"]
    if near(drift, kick) and not near(drift, 1):
        return [f"the step advances by {drift:.3g} times the requested time"]
    if near(kick, -1) or near(drift, -1):
        return ["the sign of the " + ("gradient" if near(kick, -1) else "velocity") + " is wrong"]
    if near(drift, 0.5) and near(kick, 1):
        return ["the drift uses eps/2 instead of eps"]
    if near(drift, 1) and near(kick, 0.5):
        return ["a half kick is missing, or kicks use eps/4 instead of eps/2"]
    if near(drift, 1) and near(kick, 1.5):
        return ["one of the two kicks uses eps instead of eps/2: momenta get 3/2 of the force"]
    if near(drift, 1) and near(kick, 2):
        return ["both kicks use eps instead of eps/2: momenta get twice the force"]
    if near(drift, 1) and near(kick, 1) and test.power != 1:
        return []
    if near(drift, 1):
        return ["the force is not -dH/dq: a term is missing or has a wrong factor or sign"]
    if near(kick, 1):
        return [
            f"the velocity is not dH/dp ({drift:.3g} of it in its direction): check the mass matrix and the drift's step"
        ]
    return [
        "the map follows the flow of another energy than H: for example, a part of a splitting takes another time than eps"
    ]


def _of_geometry(failed: set[str], rows: dict[str, Row], test: IntegratorExamination) -> list[str]:
    reversible = rows["reversible"].status == PASS if "reversible" in rows else False
    symplectic = rows["symplectic"].status == PASS if "symplectic" in rows else False
    first = bool(test.orders) and 0.5 < min(test.orders) < 1.5  # below: another flow, which the rates show
    if "reversible" in failed and test.step.random:
        return ["an order that is not drawn for each step, or whose reverse does not have the same probability"]
    if "reversible" in failed and "symplectic" not in failed and symplectic:
        return [
            "one kick missing or at the wrong end (symplectic Euler), or parts in an order that is not a palindrome: "
            "a symplectic map of order 1"
            if first
            else "a symplectic composition that is not a palindrome"
        ]
    if failed >= {"reversible", "symplectic"}:
        if test.orders and min(test.orders) > 2.5:
            return ["a Runge-Kutta method, or too few iterations of an implicit one"]
        if first:
            return [
                "a stage evaluated at the old position or momentum, or an explicit stage instead of an implicit one"
            ]
        return [
            "too few iterations of an implicit equation, copies of a doubled state that differ at the end of the step, or a "
            "method that is not symplectic (explicit midpoint)"
        ]
    if "symplectic" in failed and reversible:
        return ["the trapezoidal rule, or a force or metric derivative that is not the derivative of H"]
    if "reversible" in failed and "energy" in failed and "energy" in test.claims:
        return ["at jumps of the potential, energy is not exchanged with the momentum in both directions"]
    if "reversible" in failed and "energy" in test.claims:
        return [
            "the momentum is not reversed when a jump is rejected, or coordinates are moved in an order that the "
            "reverse step does not use"
        ]
    if "reversible" in failed:
        return ["the momentum's sign, or a stage at the wrong end"]
    return []
