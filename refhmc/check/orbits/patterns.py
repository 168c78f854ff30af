"""Notes of ``check.orbit``, and causes that a pattern of its rows is typical of.

If all weights are equal (flat orbits), only the shape of the tree can violate sum_i pi_i K(i -> j) = pi_j. If it holds there
but not for unequal weights, a weight is wrong. If it only fails at peaks and walls, divergences are handled wrongly.
Four faults show in K itself. If both directions are equally likely, K from (q, -p) is K from (q, p). A half that turns
inside must not be entered (``turning.py``). A choice that ignores the energies has sum_i K(i -> j) = 1.
If K(i -> j) > 0 and K(j -> i) = 0, the trajectories from i and j may differ, too.
"""

from __future__ import annotations

import math

from refhmc.check.orbits.examination import OrbitExamination
from refhmc.check.orbits.law import LEFT_OUT, Finding, Table
from refhmc.check.orbits.turning import ends_beyond_a_turn
from refhmc.check.report import FAIL, INCONCLUSIVE, WRONG_DISTRIBUTION, Row, not_run


def notes(test: OrbitExamination) -> list[str]:
    """Return the notes of the report."""
    said = list(dict.fromkeys(test.notes))
    if test.unit_mass:
        said.append("unit mass: H = |p|^2 / 2 - log density")
    seen = test.transition.momentum if test.transition is not None else {}
    if seen.get("turned") and not seen.get("kept"):
        said.append("it returns the momentum reversed")
    elif seen.get("another", 0) > 0.5 * max(1, sum(seen.values())):
        said.append("the momentum it returns is not that of its end state")
    if test.runs:
        kinds = {kind: sum(k == kind for k, _ in test.tables) for kind, _ in test.tables}
        said.append(f"{test.runs} runs on {', '.join(f'{n} {kind}' for kind, n in kinds.items())} orbits")
    return said


def diagnose(test: OrbitExamination, rows: dict[str, Row]) -> list[str]:
    """Return the causes that the failing rows are typical of."""
    failing = {name for name, row in rows.items() if row.status == FAIL}
    if "stays on the orbit" in failing and rows["stays on the orbit"].severity == WRONG_DISTRIBUTION:
        return [
            "the trajectory continues from the wrong state: mixed-up edges of the tree, or a step in the wrong direction"
        ]
    standing = test.pattern.get("invariance", [])
    if standing:
        if rows.get("reaches both directions", not_run("", "")).status == INCONCLUSIVE:
            return ["the tree grows in one direction only: every position in it must be possible for the start"]
        return [_mistake(test, standing)]
    if failing & {"invariance at large steps", "invariance across a wall"}:
        return [
            "only if trajectories diverge: the proposal of a diverging subtree is kept, its weight is not zero, or the "
            "rule depends on the start of the trajectory"
        ]
    if "divergence threshold" in failing:
        return [
            "the divergence rule uses the energy of the start: it must use the whole trajectory, such as its range of energies"
        ]
    return []


def _mistake(test: OrbitExamination, standing: list[Finding]) -> str:
    """Return what the distributions K that violate invariance have in common."""
    tables = [f.table for f in standing]
    if any(_one_sided(table) for table in tables):
        return (
            "forward and backward extensions differ: after an extension to one side an edge of the tree, or its "
            "momentum, is not updated, the halves are joined in the wrong order, or a U-turn is looked for at one end only"
        )
    if test.unit_mass and any(ends_beyond_a_turn(t, test.depth if t.depth is None else t.depth) for t in tables):
        return (
            "a new half that turns inside is used: it must be discarded, none of its states accepted, and the tree must not "
            "grow further; or the turn of the whole tree is not looked for between its two ends"
        )
    if all(_keeps_the_uniform_law(table, test.guard(test.depth)) for table in tables):
        return (
            "it leaves the uniform distribution on the orbit invariant: the choice ignores energies, that is the slice or the "
            "weights exp(-H) are missing"
        )
    if any(f.table.orbit.kind == "flat" and f.defect > 1e-3 for f in standing):
        return (
            "it fails with equal weights: the shape of the tree depends on its start (edge "
            "momenta, U-turn checks of merged subtrees), or a choice ignores the sizes of its alternatives"
        )
    said = (
        "it only fails with unequal weights: a state or a subtree is chosen with the wrong weight, or the weights are "
        "summed wrongly"
    )
    if any(_has_one_way(table) for table in tables):
        said += "; or a step, or the end of the trajectory, follows a rule that is not the same from both ends"
    return said


def _one_sided(table: Table) -> bool:
    """Return whether it ends elsewhere from (q, -p) than from (q, p)."""
    if table.turned is None:
        return False
    pairs = [(table.law(i), table.turned.law(i)) for i in table.rows if i in table.turned.rows]
    return any(abs(a.get(end, 0.0) - b.get(end, 0.0)) > 1e-6 for a, b in pairs for end in {*a, *b})


def _has_one_way(table: Table) -> bool:
    """Return whether K(i -> j) > 0 and K(j -> i) = 0 for two states.

    If a tree has the same shape from each of its states, the same joins lie between i and j as between j and i. Only a weight
    that excludes one half of a join then makes a way that does not lead back.
    """
    laws = {i: table.law(i) for i in table.rows}
    return any(
        p > 1e-6 and i not in laws[j] and not laws[j].get(LEFT_OUT)
        for i in laws
        for j, p in laws[i].items()
        if j in laws
    )


def _keeps_the_uniform_law(table: Table, guard: int) -> bool:
    """Return whether sum_i K(i -> j) = 1."""
    sums = [math.fsum(table.law(i).get(j, 0.0) for i in table.rows) for j in range(-guard, guard + 1)]
    return max(abs(total - 1) for total in sums) < 1e-6
