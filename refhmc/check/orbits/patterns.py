"""What ``check.orbit`` says beside its rows: what was noticed on the way, and what a pattern of rows is typical of.

Where all weights are equal (flat orbits) only the shape of the tree can break sum_i pi_i K(i -> j) = pi_j; where that holds and
unequal weights do not, a weight is wrong; where only peaks and walls do not, what is done with a trajectory that diverges.
Three mistakes show in K itself: both directions are a fair coin's, so that K from (q, -p) is K from (q, p); a half that turns
inside is not to be entered (``turning.py``); and a choice that forgets the energies keeps sum_i K(i -> j) = 1.
"""

from __future__ import annotations

import math

from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.law import Finding, Table
from refhmc.check.orbits.turning import ends_beyond_a_turn
from refhmc.check.report import FAIL, INCONCLUSIVE, WRONG_LAW, Row, not_run


def notes(test: OrbitExamination) -> list[str]:
    """What was detected on the way."""
    said = list(dict.fromkeys(test.notes))
    if test.unit_mass:
        said.append("unit mass: H = |p|^2 / 2 - log density")
    seen = test.transition.momentum if test.transition is not None else {}
    if seen.get("turned") and not seen.get("kept"):
        said.append("it answers with the momentum turned about")
    elif seen.get("another", 0) > 0.5 * max(1, sum(seen.values())):
        said.append("the momentum it answers with is not the one of that state")
    if test.runs:
        kinds = {kind: sum(k == kind for k, _ in test.tables) for kind, _ in test.tables}
        said.append(f"{test.runs} runs on {', '.join(f'{n} {kind}' for kind, n in kinds.items())} orbits")
    return said


def diagnose(test: OrbitExamination, rows: dict[str, Row]) -> list[str]:
    """What the failing rows are typical of."""
    failing = {name for name, row in rows.items() if row.status == FAIL}
    if "stays on the orbit" in failing and rows["stays on the orbit"].severity == WRONG_LAW:
        return [
            "it goes on from the wrong state: the edges of the tree are mixed up, or a step is taken in the wrong direction"
        ]
    standing = test.pattern.get("invariance", [])
    if standing:
        if rows.get("reaches both directions", not_run("", "")).status == INCONCLUSIVE:
            return ["the tree is grown in one direction only: the start must be able to be anywhere in it"]
        return [_mistake(test, standing)]
    if failing & {"invariance at large steps", "invariance across a wall"}:
        return [
            "only where trajectories diverge: the proposal of a diverging subtree is kept, its weight is not zero, or the "
            "rule depends on where the trajectory was started"
        ]
    if "divergence threshold" in failing:
        return [
            "the divergence rule compares with the start's energy: it must look at the whole trajectory, as its spread does"
        ]
    return []


def _mistake(test: OrbitExamination, standing: list[Finding]) -> str:
    """What the laws K that do not keep pi have in common."""
    tables = [f.table for f in standing]
    if any(_one_sided(table) for table in tables):
        return (
            "forwards and backwards are not treated alike: after an extension to one side an edge of the tree, or its "
            "momentum, is not renewed, or the halves are joined in the wrong order"
        )
    if test.unit_mass and any(ends_beyond_a_turn(t, test.depth if t.depth is None else t.depth) for t in tables):
        return (
            "a new half that turns inside is used: it must be thrown away, none of its states taken, and the tree grown no "
            "further"
        )
    if all(_keeps_the_uniform_law(table, test.guard(test.depth)) for table in tables):
        return (
            "what it keeps is the uniform law on the orbit: energies have no part in its choice, the slice or the weights "
            "exp(-H) are left out"
        )
    if any(f.table.orbit.kind == "flat" and f.defect > 1e-3 for f in standing):
        return (
            "it fails where all weights are equal: the shape of the tree depends on where it was started (edge "
            "momenta, U-turn checks of joined subtrees), or a choice ignores the sizes of what it chooses from"
        )
    return (
        "it fails with unequal weights only: a state or a subtree is taken with the wrong weight, or the weights are "
        "summed wrongly"
    )


def _one_sided(table: Table) -> bool:
    """Whether it goes elsewhere from (q, -p) than from (q, p)."""
    if table.turned is None:
        return False
    pairs = [(table.law(i), table.turned.law(i)) for i in table.rows if i in table.turned.rows]
    return any(abs(a.get(end, 0.0) - b.get(end, 0.0)) > 1e-6 for a, b in pairs for end in {*a, *b})


def _keeps_the_uniform_law(table: Table, guard: int) -> bool:
    """sum_i K(i -> j) = 1"""
    sums = [math.fsum(table.law(i).get(j, 0.0) for i in table.rows) for j in range(-guard, guard + 1)]
    return max(abs(total - 1) for total in sums) < 1e-6
