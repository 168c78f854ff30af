"""What a pattern of rows of ``check.integrator`` is typical of: a sentence a cause, for the line "likely:".

The speeds at which positions and momenta set out, against the field of H, tell most faults of the force and the drift apart;
which of the geometric rows fail together tells the rest.
"""

from __future__ import annotations

from refhmc.check.integrators.examination import IntegratorExamination
from refhmc.check.report import FAIL, PASS, WRONG_LAW, Row


def typical(test: IntegratorExamination, rows: dict[str, Row]) -> list[str]:
    """What the pattern of rows is typical of, the surest first."""
    failed = {name for name, row in rows.items() if row.status == FAIL}
    said = []
    if "deterministic" in failed:
        kept = rows["deterministic"].severity == WRONG_LAW
        said.append(
            "something is kept from call to call, such as a gradient that is not renewed when the start is another"
            if kept
            else "the step draws from a generator of its own"
        )
    if "solver failure" in failed:
        said.append("the solver's iteration limit is met and its last iterate used as if it had converged")
    if "delta scaling" in failed:
        said.append("the defect does not fall with the solver's tolerance: the equation it solves is not the right one")
    if "composition" in failed:
        said.append(
            "n is ignored, or what is carried from step to step inside a call is not what a new call would find"
        )
    if "inverse" in failed:
        said.append("a step of -eps goes through its stages in the order of the step ahead, where it must be reversed")
    if "evaluations" in failed:
        said.append("what is evaluated at the end of one stage is evaluated again at the beginning of the next")
    if "gradient of H" in failed:
        said.append("the gradients given are not the derivatives of the energy given")
    said += _of_rates(failed, test) + _of_geometry(failed, rows, test)
    if "small step" in failed and (rows["small step"].number or 1) < 1e-6:
        said.append("coefficients rounded: what should cancel in the composition does not quite")
    return said


def _of_rates(failed: set[str], test: IntegratorExamination) -> list[str]:
    if test.rates is None or not failed & {"order", "elapsed time", "small step"}:
        return []
    drift, kick = test.rates

    def near(x: float, value: float) -> bool:
        return abs(x - value) < 0.02 * max(abs(value), 0.1)

    if test.exchanged and not near(drift, 1):
        return ["the drift uses the mass where its inverse is due, or the other way round"]
    if near(drift, 0) and near(kick, 0):
        return ["it does not move at first order in eps: eps squared in place of eps, or a step that does nothing"]
    if near(drift, 2) and near(kick, 2):
        return ["it advances twice the step that it is asked for"]
    if near(drift, kick) and not near(drift, 1):
        return [f"it advances {drift:.3g} times the step that it is asked for"]
    if near(kick, -1) or near(drift, -1):
        return ["the sign of the " + ("gradient" if near(kick, -1) else "velocity") + " is wrong"]
    if near(drift, 0.5) and near(kick, 1):
        return ["the drift uses eps/2 in place of eps"]
    if near(drift, 1) and near(kick, 0.5):
        return ["a half kick is missing, or kicks use eps/4 in place of eps/2"]
    if near(drift, 1) and near(kick, 1.5):
        return ["one of the two kicks uses eps in place of eps/2: momenta get 3/2 of the force"]
    if near(drift, 1) and near(kick, 2):
        return ["both kicks use eps in place of eps/2: momenta get twice the force"]
    if near(drift, 1) and near(kick, 1) and test.power != 1:
        return []
    if near(drift, 1):
        return ["the force is not -dH/dq: a term is missing or has another factor"]
    if near(kick, 1):
        return [f"the velocity is not dH/dp (along it, {drift:.3g} of it): the mass matrix, or the drift's step"]
    return ["the map follows another flow than that of H"]


def _of_geometry(failed: set[str], rows: dict[str, Row], test: IntegratorExamination) -> list[str]:
    reversible = rows["reversible"].status == PASS if "reversible" in rows else False
    symplectic = rows["symplectic"].status == PASS if "symplectic" in rows else False
    first = bool(test.orders) and 0.5 < min(test.orders) < 1.5  # below: another flow, which the rates tell of
    if "reversible" in failed and test.step.random:
        return ["an order that is not drawn anew for each step, or whose reverse is not as probable"]
    if "reversible" in failed and "symplectic" not in failed and symplectic:
        return [
            "one kick missing or at the wrong end (symplectic Euler), or parts in an order that does not read the same "
            "backwards: a symplectic map of order 1"
            if first
            else "a symplectic composition that does not read the same backwards"
        ]
    if failed >= {"reversible", "symplectic"}:
        if test.orders and min(test.orders) > 2.5:
            return ["a Runge-Kutta method, or too few iterations of an implicit one"]
        if first:
            return [
                "a stage evaluated at the old position or momentum, or an explicit stage where an implicit one is due"
            ]
        return ["too few iterations of an implicit equation, or a method that is not symplectic (explicit midpoint)"]
    if "symplectic" in failed and reversible:
        return ["the trapezoidal rule, or a force or metric derivative that is not the derivative of H"]
    if "reversible" in failed and "energy" in failed and "energy" in test.claims:
        return ["where the potential jumps, energy is not exchanged with the momentum in both directions"]
    if "reversible" in failed and "energy" in test.claims:
        return [
            "where it is turned back its momentum is not turned round, or coordinates are moved in an order that the way back "
            "does not take"
        ]
    if "reversible" in failed:
        return ["the momentum's sign, or a stage at the wrong end"]
    return []
