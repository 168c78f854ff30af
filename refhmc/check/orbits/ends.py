"""Ends of the transition's K(i -> j) on all enumerated orbits, for ``check.orbit``.

    stays on the orbit         sum of K(i -> j) over ends j that are not on the orbit = 0
    probabilities sum to one   sum_j K(i -> j) = 1
    depth                      |j - i| <= 2^depth - 1 if K(i -> j) > 0
    reaches both directions    K(i -> j) > 0 for some j > i and some j < i
    energy error               H(z_j) - H(z_i), if the answer has a field ``energy_error``

There is one row for each; that of the directions also reports the mean distance of a move.
"""

from __future__ import annotations

import math

from refhmc.check.judging import failed, judged, passed
from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.law import OFF, Table
from refhmc.check.orbits.verdicts import start_case
from refhmc.check.report import CALL_FAILED, Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, call_text


def stays(test: OrbitExamination) -> Row:
    """Check that every end is a state of the orbit of its start."""
    tables = test.enumerated()
    worst = max(tables, key=lambda table: table.mass_off())
    mass = worst.mass_off()
    if mass <= 1e-12:
        return passed(f"ends off the orbit; {len(tables)} orbits", 0.0, 0.0)
    if test.subject.draws_order and test.order is None:
        raise Inconclusive(
            "the transition draws an order, and so one of several maps: pass order=, and leap in that order"
        )
    i, distance, q = worst.stray or (0, math.nan, ())
    case = f"{start_case(test, worst, i)} ends at {list(q)}, {distance:.3g} from the nearest state"
    if _jittered(worst):
        raise Inconclusive(
            "the end changes continuously with a uniform number: is the step size random? Use a fixed one"
        )
    if any(isinstance(end, int) and end != i for t in tables for i in t.rows for end in t.law(i)):
        why = "probability of ending off the orbit, from some states; from others it stays on it"
        return failed(why, case, mass, 0.0)
    why = "it ends on no state of the orbit of this leap: another step size, or another map"
    return failed(why, case, mass, 0.0, severity=CALL_FAILED)


def _jittered(table: Table) -> bool:
    """Return whether an end off the orbit moves when a number that was read changes slightly."""
    for i, leaves in table.rows.items():
        for leaf in leaves:
            if leaf.end != OFF:
                continue
            for k, answer in enumerate(leaf.answers):
                if not isinstance(answer, float):
                    continue
                ends = []
                for value in (answer, answer + 1e-6 * (0.5 - answer)):
                    table.stray = None
                    run = table.enumerator.run(i, (*leaf.answers[:k], value, *leaf.answers[k + 1 :]))
                    ends.append((run.end, table.stray))
                if ends[0][0] == ends[1][0] == OFF and ends[0][1] != ends[1][1]:
                    return True
            return False
    return False


def sums(test: OrbitExamination) -> Row:
    worst = max(abs(math.fsum(t.law(i).values()) - 1) for t in test.enumerated() for i in t.rows)
    return judged(worst, 1e-12, "over all answers and starts")


def depths(test: OrbitExamination) -> Row:
    test.enumerated()
    reach = 2**test.depth - 1
    basis = f"steps from the start to the furthest end; 2^{test.depth} - 1"
    if test.furthest > reach and not test.takes_depth:
        raise Inconclusive(basis + ": it goes further than the stated depth", test.furthest)
    return judged(test.furthest, reach, basis + (", the depth it received" if test.furthest > reach else ""))


def energy_error(test: OrbitExamination) -> Row | list[Row]:
    """Check that the energy error of an answer is that of its end."""
    if not test.ready or not test.subject.energy_errors:
        return []
    found = test.subject.energy_errors
    gap, tolerance, ((q, p), wanted) = max(found, key=lambda x: x[0] / x[1] if math.isfinite(x[0]) else math.inf)
    case = f"{call_text(test.kernel.name, [q, p])}  # an answer whose energy error should be {wanted!r}"
    return judged(gap, tolerance, f"|energy_error - (H(end) - H(start))| of {len(found)} answers; rounding of H", case)


def directions(test: OrbitExamination) -> Row:
    """Check that the transition moves in both directions along the orbit."""
    laws = [(i, t.law(i)) for t in test.enumerated() for i in t.rows]
    moves = [(end - i, p) for i, law in laws for end, p in law.items() if isinstance(end, int)]
    if not moves:
        raise NotApplicable("no orbit was enumerated")
    ahead, behind = sum(p for k, p in moves if k > 0), sum(p for k, p in moves if k < 0)
    test.pattern["ahead"] = ahead / max(ahead + behind, 1e-300)
    mean = sum(abs(k) * p for k, p in moves) / sum(p for _, p in moves)
    share = f"{100 * test.pattern['ahead']:.0f} % of the moves forward"
    test.notes.append(f"mean distance of a move over the orbits: {mean:.2g} steps, {share}")
    if ahead > 0 and behind > 0:
        return passed()
    raise Inconclusive(f"only {'forward' if ahead else 'backward'} moves" if ahead or behind else "it never moved")
