"""Causes that a pattern of rows of ``check.transition`` is typical of, one sentence per cause, for the line "likely:".

If the acceptance is wrong, the observed probabilities P are compared with those of common wrong rules, such
as min(1, exp(+dH)), each a formula of the log ratio r and the parts of the energies.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable

import numpy as np

from refhmc.check.judging import causes
from refhmc.check.report import FAIL, Row
from refhmc.check.subject.foreign import Inconclusive, SubjectError
from refhmc.check.subject.transition import MOMENTUM
from refhmc.check.transitions.balance import Pairing, Setting
from refhmc.check.transitions.detailed_balance import fits
from refhmc.check.transitions.examination import TransitionExamination, noise_size
from refhmc.check.transitions.refusals import NONE

NAN = "the acceptance rule accepts NaN: compare such that NaN rejects, and do not clamp it to 1"
NO_MINUS = "the logarithm of the uniform lacks its minus sign: only downhill moves are accepted"
GREEDY = "greedy acceptance: every downhill move is accepted, and no other"
NO_EXP = "the exponential is missing: the uniform is compared with -dH instead of exp(-dH)"
IGNORED = "the uniform is ignored: each proposal is accepted or rejected with certainty"
CHOOSES = "the uniform that decides also chooses among several proposals: the choice needs a number of its own"
FEWEST = 3  # moves, and rejections, that show a rule
TYPICAL = {
    "stateless": "an energy, gradient or momentum of an earlier transition is used in this one",
    "nan energy": NAN,
    "overflow": NAN,
    "rejection returns the start": "a rejection must return the start of the trajectory, not another state of it",
    "shift invariance": "the kernel exponentiates log densities before it takes their difference",
    "momentum flip": "with a momentum that is kept, a rejection must reverse it",
    "momentum refreshment": (
        "the refreshment does not preserve the momentum distribution: p <- A p + B xi needs A M A' + B B' = M"
    ),
    "on the sphere": "the velocity is not divided by its length",
    "reversible": "the steps of the move are not symmetric, or their number or size is another one in reverse",
    "volume": "the move changes the volume of (q, p), for example by a step that depends on the position",
}


def typical(test: TransitionExamination, rows: dict[str, Row]) -> list[str]:
    """Return the causes that the failed rows are typical of."""
    failed = {name for name, row in rows.items() if row.status == FAIL}
    said = causes(failed, TYPICAL)
    if "acceptance" in failed and test.runner is not None and test.runner.keeps_momentum:
        rule = "the acceptance rule does not use the energies of the momenta of the move"
        if test.sphere:
            rule = "the acceptance ratio is not pi(q') J / pi(q) with the Jacobian J of the move on the sphere"
        late = (
            "a later proposal's ratio must contain the probabilities that the earlier ones are rejected, from both ends"
        )
        said.append(late if test.several else rule)
    known = [x for x in test.pairs if math.isfinite(x.r) and x.state != "open"]
    if failed & {"detailed balance", "acceptance", "stationarity"}:
        said += _pattern(test, known) if known else _without_reverse(test)
    return said


def _without_reverse(test: TransitionExamination) -> list[str]:
    """Return the wrong rule if all moves go downhill: no move has a reverse, and some are rejected with certainty.

    With r = -dH the probability P of a downhill move is 1 if the rule is r > 0, min(1, r) if it is u < r, and 1 - e^-r if it is
    log(1/u) < r. 0.9 < P < 1 needs 0.9 < r < 1 or 2.3 < r < 20, so that it is rare next to P = 1, or frequent.
    """
    if len(test.pairs) < FEWEST or _refused(test) < FEWEST or test.one_way or test.setting is None:
        return []
    if not test.decides:
        return [GREEDY]
    P = np.array(_probabilities(test, test.setting))
    certain, likely = np.sum(P > 1 - 1e-9), np.sum((P > 0.9) & (P <= 1 - 1e-9))
    if max(certain, likely) < FEWEST:
        return []
    return [NO_EXP if likely < 0.25 * certain else NO_MINUS]


def _probabilities(test: TransitionExamination, setting: Setting) -> list[float]:
    """Return the probabilities of moves on noise of increasing size."""
    found = []
    for k, scale in enumerate(np.geomspace(1.0, 6.0, 400)):
        q = test.points[k % len(test.points)]
        noise = scale * test.rng(21, k).standard_normal(noise_size(setting, q))
        with contextlib.suppress(SubjectError, Inconclusive):
            found += [x.probability for x in setting.outcomes(q, noise) if x.moved]
    return found


def _refused(test: TransitionExamination) -> int:
    """Return the number of noises on which the kernel always stays, other than those that lead out of the support."""
    return sum(test.refused.values()) - test.refused[NONE]


def _pattern(test: TransitionExamination, known: list[Pairing]) -> list[str]:
    """Return the wrong rule that gives the observed probabilities."""
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
        (IGNORED if _refused(test) else "the kernel always accepts: the uniform is ignored", lambda x: 1.0),
        ("the sign of the energy difference is wrong: it accepts with min(1, exp(+dH))", lambda x: clipped(-x.r)),
        (NO_MINUS, downhill),
        ("only the target's ratio decides: the kinetic energy, or the proposal's density, is missing", target_only),
        ("the initial energy has the kinetic energy of the position instead of the momentum", of_the_position),
        ("the initial energy lacks its kinetic energy", lambda x: clipped(x.r - 0.5 * float(x.z @ x.z))),
        ("half of the energy difference decides", lambda x: clipped(0.5 * x.r)),
        ("the size of the energy difference decides, without its sign", lambda x: clipped(-abs(x.r))),
        ("twice the energy difference decides", lambda x: clipped(2 * x.r)),
        (GREEDY, lambda x: float(x.r >= 0)),
        (NO_EXP, lambda x: min(1.0, max(0.0, x.r))),
        ("the kernel accepts half of the moves, whatever their energy", lambda x: 0.5),
    ]
    fitting = [text for text, formula in formulas if fits(known, formula)]
    if not fitting and _chooses_by_the_uniform(test, known):
        return [CHOOSES]
    return fitting[:1] or ["the acceptance ratio does not belong to the proposal, or not to this target"]


def _chooses_by_the_uniform(test: TransitionExamination, known: list[Pairing]) -> bool:
    """Return whether a kern(q, p0, u) has several proposals from one q and p0."""
    if test.runner is None or test.runner.shape != MOMENTUM:
        return False
    ends: dict[tuple[bytes, bytes], set[bytes]] = {}
    for x in known:
        ends.setdefault((x.q.tobytes(), x.z.tobytes()), set()).add(x.outcome.transition.q.tobytes())
    return any(len(each) > 1 for each in ends.values())
