"""Invariance of pi under K on single orbits, one row per kind of orbit (``orbits/states.py``).

    invariance                   states z_i of ordinary energies, equal or different by some nats; at every depth from 1 on
    at large steps               low states on both sides of a peak of tens to thousands of nats, where trajectories diverge
    across a wall                states of density zero among others; ending on one is a failure by itself
    divergence threshold         a peak just above and just below the limit at which a trajectory counts as divergent

Each row checks sum_i pi(z_i) K(i -> j) = pi(z_j) (``orbits/law.py``), and is judged in ``orbits/verdicts.py``. The
later rows only run if ordinary orbits pass.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from refhmc.check.judging import failed
from refhmc.check.orbits import states
from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.law import Finding, worst_of
from refhmc.check.orbits.shapes import is_pair
from refhmc.check.orbits.verdicts import case_of, row_of, stands, start_case
from refhmc.check.report import FAIL, INCONCLUSIVE, Row
from refhmc.check.subject.foreign import Inconclusive, NotApplicable


def invariance(test: OrbitExamination) -> Row:
    """Check sum_i pi_i K(i -> j) = pi_j on orbits of ordinary states, from small depths up to the first that fails."""
    phase_map = test.require()
    found: list[Finding] = []
    depths = range(1, test.depth + 1) if test.takes_depth else [test.depth]
    for depth in depths:
        reach, rng = 2**depth - 1, np.random.default_rng([test.seed, 3, depth])
        supply = states.ordinary(phase_map, 2 * reach + 2, reach + test.guard(depth), test.list_of_eps, rng)
        count = {1: 4, 2: 8, 3: 10}.get(depth, 2)
        orbits = [*_own_points(test, depth, rng), *states.varied(supply, count)]
        found += test.examined("regular", orbits, depth, 0.6 if depth == test.depth else 0.2, stands)
        if any(stands(test, f) for f in found if f.fails):
            break  # the smallest depth at which it fails
    if not found:
        _nothing(test, "of ordinary states", "flat", "uneven", "given")
    return row_of(test, "invariance", found, "orbits of ordinary states")


def _own_points(test: OrbitExamination, depth: int, rng: np.random.Generator) -> list[states.Orbit]:
    phase_map, found = test.prepare(), []
    for number, point in enumerate(test.points):
        q, p = point if is_pair(point) else (point, test.p0 if number == 0 else None)
        p = phase_map.momentum * rng.standard_normal(np.size(q)) if p is None else p
        z = np.array(q, dtype=float), np.array(p, dtype=float)
        found += [states.orbit_through(phase_map, *z, 2 * 2**depth, eps, "given") for eps in test.list_of_eps]
    return found


def large_steps(test: OrbitExamination) -> Row:
    """Check invariance across peaks of energy, where a trajectory diverges or must continue."""
    phase_map, rng = test.require(sound=True), np.random.default_rng([test.seed, 4])
    depth, reach = test.depth, 2**test.depth - 1
    orbits = states.barriers(phase_map, 2 * reach + 2, reach, test.list_of_eps, rng)
    orbits = [*orbits[::-1], *states.designs(phase_map, 2 * reach + 2, reach, test.list_of_eps, rng)]
    found = test.examined("barrier", orbits, depth, 0.25)
    if not found:
        _nothing(test, "across a barrier, within reach, at this step size,", "barrier")
    failing = [f for f in found if f.fails and stands(test, f)]
    if len(failing) == 1 and test.threshold is None and not _persists(test, failing[0]):
        peak = states.height(failing[0].table.orbit, reach)
        does = "a divergence rule that depends on the start of the trajectory does this"
        why = f"on one orbit only, with a peak of {peak:.0f} nats: {does}; pass threshold to have it judged"
        case, (_, _, _, tolerance) = case_of(test, failing[0]), failing[0]
        return Row("", INCONCLUSIVE, failing[0].defect, tolerance, why, case=case)
    peaks = [states.height(f.table.orbit, reach) for f in found]
    words = f"energy peaks of {min(peaks):.0f} to {max(peaks):.0f} nats"
    return row_of(test, "invariance at large steps", found, words)


def _persists(test: OrbitExamination, finding: Finding) -> bool:
    """Return whether it also fails on slightly larger and smaller orbits, whose peaks differ by some per cent."""
    phase_map, orbit = test.prepare(), finding.table.orbit
    depth, reach = test.depth, 2**test.depth - 1
    for factor in (1.02, 0.98, 1.05, 0.95):
        q = phase_map.centre + factor * (orbit.q[orbit.n] - phase_map.centre)
        near = states.from_lowest(phase_map, q, factor * orbit.p[orbit.n], orbit.eps, reach, 2 * reach + 2, "barrier")
        table = test.table("barrier", near, depth, 0.1 * test.most_runs)
        if table is not None and table.mass_off() <= 1e-12:
            other = worst_of(table, test.guard(depth))
            moved = abs(states.height(table.orbit, reach) - states.height(orbit, reach))
            if moved > 15 and other.fails and stands(test, other):
                return True
    return False


def wall(test: OrbitExamination) -> Row:
    """Check invariance next to states of density zero, at which no transition may end."""
    phase_map, rng = test.require(sound=True), np.random.default_rng([test.seed, 5])
    depth, reach = test.depth, 2**test.depth - 1
    orbits = states.walls(phase_map, 2 * reach + 2, reach, test.list_of_eps, rng)
    found = test.examined("wall", orbits, depth, 0.15)
    if not found:
        _nothing(test, "with states of density zero", "wall")
    forbidden = [(f.table.mass_forbidden(), f) for f in found]
    (mass, start), worst = max(forbidden, key=lambda pair: pair[0][0])
    if mass > 1e-14:
        why = "probability of ending at density zero or NaN"
        return failed(why, start_case(test, worst.table, start), mass, 0.0)
    return row_of(test, "invariance across a wall", found, "orbits with states of density zero")


def limit(test: OrbitExamination) -> Row:
    """Check invariance with a peak above the divergence threshold from one state and below it from another."""
    phase_map, rng = test.require(sound=True), np.random.default_rng([test.seed, 6])
    limit = 1000.0 if test.threshold is None else float(test.threshold)
    name, reach = "divergence threshold", 2**test.depth - 1
    orbits = states.at_the_limit(phase_map, 2 * reach + 2, reach, test.list_of_eps, limit, rng)
    if not orbits:
        raise NotApplicable(f"no orbit within reach rises by {limit:g} nats and comes back, at this step size")
    found = test.examined("limit", orbits, test.depth, 0.15)
    if not found:
        _nothing(test, f"with a rise of {limit:g} nats", "limit")
    row = row_of(test, name, found, f"with a peak {limit:g} + 2 and {limit:g} - 2 nats above two likely states")
    if row.status == FAIL:
        test.pattern["one-sided"] = limit
        if test.threshold is None:
            rare = "which is rare (the usual rule, H - H(start) > 1000, has this property too)"
            where = f"not invariant if the energy jumps by about {limit:g} nats, {rare}"
            test.notes.append(f"its divergence rule depends on the start of the trajectory: {where}")
            return row._replace(status=INCONCLUSIVE, basis=row.basis + "; pass threshold to have it judged")
    return row


def _nothing(test: OrbitExamination, which: str, *kinds: str) -> NoReturn:
    """Raise the reason why no orbit of these kinds was judged."""
    off = [t for _, t in test.tables if t.mass_off() > 1e-12]
    if off:
        raise NotApplicable("it leaves the orbit; see 'stays on the orbit'")
    if any(orbit.kind in kinds for orbit in test.unfinished):
        raise Inconclusive(
            f"no orbit {which} fitted into the budget ({test.runs} runs): use a smaller depth, or more seconds"
        )
    raise NotApplicable(f"no orbit {which} was found")
