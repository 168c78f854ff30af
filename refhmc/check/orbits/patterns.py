"""What ``check.orbit`` says beside its rows: what was noticed on the way, and what a pattern of rows is typical of.

Where all weights are equal (flat orbits) only the shape of the tree can break sum_i pi_i K(i -> j) = pi_j; where that holds and
unequal weights do not, a weight is wrong; where only peaks and walls do not, what is done with a trajectory that diverges.
"""

from __future__ import annotations

from refhmc.check.orbits.examination import OrbitExamination
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
        flat = [f for f in standing if f.table.orbit.kind == "flat" and f.defect > 1e-3]
        if flat:
            return [
                "it fails where all weights are equal: the shape of the tree depends on where it was started (edge "
                "momenta, U-turn checks of joined subtrees, directions, what a turning subtree leaves behind), or a "
                "choice ignores the sizes of what it chooses from"
            ]
        return [
            "it fails with unequal weights only: a state or a subtree is taken with the wrong weight, or the weights are "
            "summed wrongly"
        ]
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
