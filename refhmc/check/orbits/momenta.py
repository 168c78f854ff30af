"""The rows of ``check.orbit`` about a momentum that is kept, and about a change of units.

If the momentum (q', p') that a transition returns starts the next one, the position alone is not enough. With s = 1, -1 for the
momentum of a state of the orbit or its opposite, the transition must satisfy

    sum_i pi(z_i) (K(z_i -> (q_j, s p_j)) + K(F z_i -> (q_j, s p_j))) = pi(z_j)        for every j and both s

F(q, p) = (q, -p). Both sums are enumerated from (q_i, p_i) and (q_i, -p_i). Returning -p' after every transition, or after
none, are both correct; so is -p' after a move and p after a rejection, or the reverse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from refhmc.check import equivariance
from refhmc.check.equivariance import inverse, times
from refhmc.check.judging import failed, passed
from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.law import OrbitTransition, Table
from refhmc.check.orbits.verdicts import sampling_agrees, start_case
from refhmc.check.report import FAIL, Row
from refhmc.check.subject.draws import Draws
from refhmc.check.subject.foreign import Inconclusive, NotApplicable, call_text

MOST = 4  # number of orbits


def kept_momentum(test: OrbitExamination) -> Row:
    """Check that the distribution of position and returned momentum is that of the target, on enumerated orbits."""
    if not test.keeps_momentum:
        raise NotApplicable("pass keeps_momentum=True if the next transition starts from the returned momentum")
    test.require(sound=True)
    orbits = [(t.orbit, test.depth if t.depth is None else t.depth) for kind, t in test.tables if kind == "regular"]
    orbits.sort(key=lambda x: (x[0].kind != "given", -x[1]))  # the caller's points first, then the deepest trees
    found: list[tuple[float, float, Table, int]] = []
    for orbit, depth in orbits[:MOST]:
        both = [test.table("kept", orbit, depth, signed=True, mirrored=m, thorough=True) for m in (False, True)]
        tables = [table for table in both if table is not None]
        if len(tables) < 2:
            continue
        for start in tables:
            for i in start.rows:
                lost = math.fsum(p for end, p in start.law(i).items() if isinstance(end, tuple) and end[1] == 0)
                if lost > 1e-12:
                    why = "probability that the returned momentum is neither that of the end state nor its opposite"
                    return failed(why, start_case(test, start, i), lost, 0.0)
        guard = test.guard(depth)
        for j in (j for j in range(-guard, guard + 1) if tables[0].weight(j) > math.exp(-4) and j in tables[0].rows):
            for s in (1, -1):
                flow = sum(math.fsum(t.weight(i, j) * t.law(i).get((j, s), 0.0) for i in t.rows) for t in tables)
                found.append((abs(flow - 1), sum(t.tolerance(j) for t in tables), tables[0], j))
    if not found:
        raise Inconclusive("no orbit could be enumerated from both signs of the momentum within the budget")
    defect, tolerance, table, j = max(found, key=lambda x: x[0] / x[1])
    basis = (
        f"|sum_i pi_i K(i -> (q_j, s p_j)) / pi_j - 1| from both signs, {len(found)} states; rounding of the energies"
    )
    if defect <= tolerance:
        return passed(basis, defect, tolerance)
    if not sampling_agrees(test, table):
        raise Inconclusive("ordinary runs do not follow the enumerated distribution", defect)
    return failed(basis, start_case(test, table, j), defect, tolerance)


def change_of_units(test: OrbitExamination) -> Row:
    """Check that the transition ends at the same state of the orbit in other units (``check/equivariance.py``)."""
    test.require()
    rows = [_in_units(test, a) for a in equivariance.changes(test.subject.dim, test.dense)]
    return next((row for row in rows if row.status == FAIL), rows[-1])


def _in_units(test: OrbitExamination, a: np.ndarray) -> Row:
    """Return the row for one change of units A."""
    subject, d = test.subject, test.subject.dim
    pair = [equivariance.made(test.make, test.log_density, test.gradient, x) for x in (np.ones(d), a)]
    if {"leap", "target"} & set(subject.shape.named):
        raise NotApplicable("the transition receives leap or target, which have other units")
    plain, scaled = (OrbitTransition(test.kernel.another(f), d, test.leap.foreign, {}, test.order) for f in pair)
    plain.shape = scaled.shape = subject.shape

    def ends() -> Iterator[tuple[np.ndarray, np.ndarray, str]]:
        phase_map, rng = test.prepare(), np.random.default_rng([test.seed, 9])
        depth = test.depth if test.takes_depth else None
        given = "p" in subject.shape.order
        if a.ndim == 2 and not given:
            raise NotApplicable("the transition draws its momentum, by a root of the mass that is not known")
        for k in range(equivariance.RUNS):
            q = phase_map.centre + 0.7 * phase_map.scale * rng.standard_normal(d)
            p = phase_map.momentum * rng.standard_normal(d)
            eps = test.list_of_eps[k % len(test.list_of_eps)]
            found = []
            in_units = times(inverse(a).T, p) if given else p
            for one, x, y in ((plain, q, p), (scaled, times(a, q), in_units)):
                answer = one.call(Draws(np.random.default_rng([test.seed, k])), x, y, eps, depth)
                where, _, offset = one.read(answer)
                found.append(np.full(d, float(offset or 0)) if where is None else where)
                if where is None and one is scaled:
                    found[-1] = times(a, found[-1])  # a number of steps has no units
            yield found[0], found[1], call_text(test.kernel.name, [q, p])

    return equivariance.equivariant(ends(), a)
