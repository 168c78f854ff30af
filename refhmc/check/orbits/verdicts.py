"""From orbits that violate sum_i pi(z_i) K(i -> j) = pi(z_j) to a row: confirmation of failures.

A failing orbit is confirmed if a second, more thorough enumeration gives the same K; if the weaker condition for the
distribution of the position fails too (``orbits/orbit.py``); and if ordinary runs from its most probable states follow the
computed K: binomial counts n_j ~ B(200, K(i -> j)), fewer if the budget ends, each rejected at a tail below 1e-10.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import scipy.special

from refhmc.check.judging import failed, passed
from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.law import Finding, Table, worst_of
from refhmc.check.report import Row
from refhmc.check.subject.foreign import Inconclusive, text_of, time_left

SAMPLES = 200  # ordinary runs from a state, to confirm the enumerated distribution; fewer if the budget ends
ROUND = 20  # runs per round
REFUTED = 1e-10  # chance of a contradiction by accident


def row_of(test: OrbitExamination, name: str, found: list[Finding], what: str) -> Row:
    """Return the row of the worst confirmed finding."""
    failing = sorted((f for f in found if f.fails), key=lambda f: (f.table.depth or 0, f.table.enumerator.runs))
    runs = sum(f.table.enumerator.runs for f in found)
    standing = [f for f in failing if stands(test, f)]
    if test.contradicted:
        raise Inconclusive("ordinary runs do not follow the enumerated distribution")
    if standing:
        smallest = standing[0]
        worst = max(failing, key=lambda f: f.defect)
        test.pattern[name] = failing
        basis = f"|sum_i pi_i K(i -> j) / pi_j - 1|, {len(failing)} of {len(found)} {what}; rounding of the energies"
        return failed(basis, case_of(test, smallest), worst.defect, worst.tolerance)
    doubtful = [f for f in failing if f.table.stands != "weaker"]
    if doubtful:
        raise Inconclusive(str(doubtful[0].table.stands), doubtful[0].defect)
    sound = [f for f in found if not f.fails]
    if not sound:
        return passed(f"for the distribution of the position, {len(found)} {what}, {runs} runs")
    worst = max(sound, key=lambda f: f.defect / f.tolerance)
    basis = f"|sum_i pi_i K(i -> j) / pi_j - 1|, {len(found)} {what}, {runs} runs; rounding of the energies"
    return passed(basis, worst.defect, worst.tolerance)


def stands(test: OrbitExamination, finding: Finding) -> bool:
    """Return whether a failing orbit is confirmed: also in the weaker sense, with a new K, and by ordinary runs."""
    verdict = finding.table.stands
    if verdict is None:
        verdict = _confirmed(test, finding)
        finding.table.stands = verdict
    return verdict == ""


def _confirmed(test: OrbitExamination, finding: Finding) -> str:
    """Return "" if the failure is confirmed, otherwise the reason against it."""
    table = finding.table
    depth = test.depth if table.depth is None else table.depth
    guard = test.guard(depth)
    if table.enumerator.read_values:
        again = test.table("again", table.orbit, depth, thorough=True)
        if again is None:
            return "K could not be computed a second time, more thoroughly, within the budget"
        if not worst_of(again, guard).fails:
            return "a second, more thorough enumeration gave another K"
        table = again
    mirrored = finding.table.turned = test.table("mirrored", table.orbit, depth, mirrored=True)
    if mirrored is not None:
        weaker = [
            abs(0.5 * (table.flow(j) + mirrored.flow(j)) - 1) <= max(table.tolerance(j), mirrored.tolerance(j))
            for j in range(-guard, guard + 1)
            if table.weight(j) > math.exp(-4)
        ]
        if all(weaker):
            test.notes.append("invariant if the momentum is refreshed, or reversed, but not if the momentum is kept")
            return "weaker"
    test.contradicted |= not sampling_agrees(test, table)
    return "ordinary runs do not follow the enumerated distribution" if test.contradicted else ""


def sampling_agrees(test: OrbitExamination, table: Table) -> bool:
    """Compare ordinary runs from every start with the enumerated K, in rounds that end early if the budget does."""
    rng, least, tails = np.random.default_rng([test.seed, 7]), 1.0, 0
    counts: dict[int, Counter] = {i: Counter() for i in table.rows}
    kept, runs = 0.2 * time_left(), 0
    while runs < SAMPLES and (not runs or time_left() > kept):
        for i, count in counts.items():
            at = (*table.start(i), table.orbit.eps, table.depth)
            count.update(table.end_of(test.subject.sample(rng, *at), i) for _ in range(ROUND))
        runs += ROUND
    for i, count in counts.items():
        law = table.law(i)
        seen = [binomial_tail(count[end], runs, law.get(end, 0.0)) for end in {*law, *count}]
        least, tails = min(least, *seen), tails + 2 * len(seen)
    if least * tails < REFUTED:
        why = "it has randomness of its own, or a break that the enumeration missed"
        test.notes.append(f"ordinary runs do not follow the enumerated distribution: {why}")
    return least * tails >= REFUTED


def case_of(test: OrbitExamination, finding: Finding) -> str:
    """Return the call that shows the failure, and the pair of states with the largest one-way flow."""
    table, j = finding.table, finding.j
    k = table.orbit.n + j
    flows = {
        (i, e): table.weight(i, j) * p - table.weight(e, j) * table.law(e).get(i, 0.0)
        for i in table.rows
        for e, p in table.law(i).items()
        if isinstance(e, int) and e in table.rows
    }
    (i, e), _ = max(flows.items(), key=lambda item: abs(item[1]), default=((j, j), 0.0))
    leaf = max((x for x in table.rows.get(i, []) if x.end == e), key=lambda x: x.p, default=None)
    depth = test.depth if table.depth is None else table.depth
    q, p = (f"numpy.array({text_of(x[k])})" for x in (table.orbit.q, table.orbit.p))
    given = f"depth={depth}, eps={table.orbit.eps!r}, points=[({q}, {p})]"
    call = f"check.orbit({test.kernel.name}, leap, target, {given})"
    more = f"  # sum_i pi_i K(i -> 0) / pi_0 = {finding.flow:.12g}; least balanced: {i - j} -> {e - j}"
    return call + more + (f" on the answers {_rounded(leaf.answers)}" if leaf is not None else "")


def start_case(test: OrbitExamination, table: Table, i: int) -> str:
    q, p = table.start(i)
    return f"{test.kernel.name}(draws, {text_of(q)}, {text_of(p)})  # eps={table.orbit.eps!r}"


def _rounded(answers: tuple) -> list:
    return [float(f"{a:.6g}") if isinstance(a, float) else a for a in answers]


def binomial_tail(seen: int, n: int, p: float) -> float:
    """Return the smaller of P(X <= seen) and P(X >= seen), X binomial."""
    p = min(1.0, max(0.0, p))
    above = 1.0 if seen == 0 else float(scipy.special.bdtrc(seen - 1, n, p))
    return min(float(scipy.special.bdtr(seen, n, p)), above)
