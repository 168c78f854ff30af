"""What a pattern of rows of ``check.transition`` is typical of: a sentence a cause, for the line "likely:".

Where the acceptance is wrong, the probabilities P that were found are compared with those of rules that are common slips, such
as min(1, exp(+dH)): with r the log ratio that should decide, one formula of r and of the energies' parts each.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from refhmc.check.report import FAIL, Row
from refhmc.check.transitions.balance import Pairing
from refhmc.check.transitions.detailed_balance import fits
from refhmc.check.transitions.examination import TransitionExamination


def typical(test: TransitionExamination, rows: dict[str, Row]) -> list[str]:
    """What the rows that failed are typical of, in words."""
    failed = {name for name, row in rows.items() if row.status == FAIL}
    said = []
    if "stateless" in failed:
        said.append("an energy, gradient or momentum of an earlier transition is used in this one")
    if "nan energy" in failed or "overflow" in failed:
        said.append("the acceptance lets NaN through: compare so that a NaN rejects, and do not clamp it to 1")
    if "rejection returns the start" in failed:
        said.append("a rejection must give the start of the trajectory, not a state of it")
    if "shift invariance" in failed:
        said.append("it exponentiates a log density before it takes the difference of two")
    if "momentum flip" in failed:
        said.append("with a momentum that is kept, a rejection must turn it round")
    if "momentum refreshment" in failed:
        said.append("the momentum that is kept does not get back its law: p <- A p + B xi needs A M A' + B B' = M")
    if "volume" in failed:
        said.append("the move changes the volume of (q, p), as where its step depends on the position")
    if "acceptance" in failed and test.runner is not None and test.runner.keeps_momentum:
        said.append("it does not accept by the energies of the momenta between which it moves")
    known = [x for x in test.pairs if math.isfinite(x.r) and x.state != "open"]
    if failed & {"detailed balance", "acceptance", "stationarity"} and known:
        said += _pattern(test, known)
    return said


def _pattern(test: TransitionExamination, known: list[Pairing]) -> list[str]:
    """Which wrong rule gives the probabilities that were found."""
    log_pi = test.target.log_pi

    def clipped(value: float) -> float:
        return min(1.0, math.exp(min(value, 0.0)))

    def downhill(x: Pairing) -> float:
        return max(0.0, 1 - math.exp(min(-x.r, 0.0)))

    def target_only(x: Pairing) -> float:
        return clipped(log_pi(x.outcome.transition.q) - log_pi(x.q))

    def of_the_position(x: Pairing) -> float:
        return clipped(x.r + 0.5 * float(x.q @ x.q) - 0.5 * float(x.z @ x.z))

    formulas: list[tuple[str, Callable[[Pairing], float]]] = [
        ("it always accepts", lambda x: 1.0),
        ("the sign of the energy difference is wrong: it accepts with min(1, exp(+dH))", lambda x: clipped(-x.r)),
        ("the logarithm of the uniform lacks its minus: only downhill moves are taken", downhill),
        ("only the target's ratio decides: the kinetic energy, or the proposal's density, is left out", target_only),
        ("the initial energy has the kinetic energy of the position in place of the momentum", of_the_position),
        ("the initial energy lacks its kinetic energy", lambda x: clipped(x.r - 0.5 * float(x.z @ x.z))),
        ("half of the energy difference decides", lambda x: clipped(0.5 * x.r)),
        ("twice the energy difference decides", lambda x: clipped(2 * x.r)),
        ("it accepts downhill moves only", lambda x: float(x.r >= 0)),
        ("it takes half of the moves, whatever their energy", lambda x: 0.5),
    ]
    fitting = [text for text, formula in formulas if fits(known, formula)]
    return fitting[:1] or [
        "the ratio of the acceptance does not belong to the proposal that is made, or to this target"
    ]
