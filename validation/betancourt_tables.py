"""Betancourt (2013), Tables I and II: ESS of v per second on the funnel 50 + 1, Euclidean against SoftAbs metrics.

    python -m validation.betancourt_tables [ROW ...]

Without names every row is made (some 25 minutes of one core); a row that is made anew replaces its old one in
results/betancourt_tables.json, and the report is written from all that are there. The process is pinned to one core.

The paper gives one run of each algorithm and no standard error, so its figure is set against our n runs by the t of a further
observation (comparing.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math

import numpy as np

from refhmc.integrators import GeneralizedLeapfrog, ImplicitMidpoint
from validation import betancourt_runs as runs
from validation import common
from validation.betancourt_report import COMPARISONS, opening, report
from validation.comparing import further_observation

NAME = "betancourt_tables"
LOOSE = GeneralizedLeapfrog(tolerance=1e-3, reversibility_check=False)
TUNED_DIAGONAL = runs.diagonal(LOOSE, trajectory_length=30.0)
# Near half the period of v: successive draws of v are almost opposite, which is good for E v and bad for E v^2.
OPPOSITE_DIAGONAL = runs.diagonal(LOOSE, trajectory_length=46.0, target_accept=0.88)
TUNED_SOFTABS = runs.softabs(LOOSE, trajectory_length=20.0, target_accept=0.9)


@dataclasses.dataclass
class Row:
    """What to run: kernel, warm-up, draws, seeds; ``paper``: the algorithm's name in the tables."""

    title: str
    kernel: object
    tune: int
    draws: int
    seeds: tuple[int, ...]
    paper: str | None = None
    note: str = ""


def rows() -> dict[str, Row]:
    """Every row by name. The integration time is 15 (published program) or 25 (the paper's T/2, figure 5)."""
    two, three, ten = (1, 2), (1, 2, 3), tuple(range(1, 11))
    midpoint = ImplicitMidpoint(reversibility_check=False)
    paper = {"full": "RMHMC (SoftAbs)", "diagonal": "RMHMC (Diag SoftAbs)"}
    return {
        "diagonal": Row("DiagonalSoftAbs, time 15", runs.diagonal(), 1000, 1000, ten, paper["diagonal"]),
        "diagonal_25": Row(
            "DiagonalSoftAbs, time 25", runs.diagonal(trajectory_length=25.0), 1000, 1000, ten, paper["diagonal"]
        ),
        "diagonal_midpoint_25": Row(
            "DiagonalSoftAbs, time 25, midpoint",
            runs.diagonal(midpoint, trajectory_length=25.0),
            1000,
            1000,
            ten,
            paper["diagonal"],
        ),
        "diagonal_tuned": Row("DiagonalSoftAbs, tuned by us", TUNED_DIAGONAL, 1000, 10_000, ten, paper["diagonal"]),
        "diagonal_opposite": Row(
            "DiagonalSoftAbs, time 46, for v alone", OPPOSITE_DIAGONAL, 1000, 10_000, ten, paper["diagonal"]
        ),
        "softabs": Row("SoftAbs, time 15", runs.softabs(), 1000, 1000, three, paper["full"]),
        "softabs_20": Row("SoftAbs, time 20", runs.softabs(trajectory_length=20.0), 200, 1000, (1,), paper["full"]),
        "softabs_25": Row("SoftAbs, time 25", runs.softabs(trajectory_length=25.0), 200, 1000, (1,), paper["full"]),
        "softabs_midpoint_20": Row(
            "SoftAbs, time 20, midpoint", runs.softabs(midpoint, trajectory_length=20.0), 200, 1000, (1,), paper["full"]
        ),
        "softabs_tuned": Row("SoftAbs, tuned by us", TUNED_SOFTABS, 200, 1000, two, paper["full"]),
        "outer": Row("diagonal outer product, alpha = 1", runs.outer_product(), 1000, 1000, two),
        "emhmc_adapted": Row(
            "EMHMC, step adapted to 0.65",
            runs.emhmc(step_size=None, n_steps=None, trajectory_length=8.0, target_accept=0.65),
            1000,
            10_000,
            ten,
        ),
        "emhmc": Row("EMHMC, step 0.001, 8,000 steps", runs.emhmc(), 1000, 100_000, two, "EMHMC"),
    }


# ----------------------------------------------------------------------------------------- the paper's figure and ours

COLUMNS = {
    "step_size": ("step_size", 0.005),
    "acceptance": ("accept_rate", 0.0005),
    "cpu_seconds": ("cpu_time_s", 0.5),
    "ess": ("ess_v", 0.5),
    "ess_per_second": ("ess_v_per_s", 0.0005),
}


def against(row: Row, facts: list[dict], table) -> dict:
    """For each column: our mean with its error, the paper's figure, ratio, t and p."""
    theirs = next((line for line in table or [] if line["algorithm"] == row.paper), None)
    found = {}
    for ours, (column, rounding) in COLUMNS.items():
        values = [fact[ours] for fact in facts]
        estimate = common.over_trials(values)
        found[ours] = {"ours": estimate.value, "error": estimate.error, "n": estimate.n}
        if theirs is not None:
            x0 = float(theirs[column])
            if column == "step_size" and row.paper == "EMHMC":
                rounding = 0.0
            found[ours] |= {"paper": x0, "ratio": estimate.value / x0}
            if ours in ("step_size", "acceptance", "ess"):
                beside = further_observation(values, x0, rounding)
                if beside is not None:
                    found[ours] |= {"t": beside.z, "p": beside.p, "told": beside.told(COMPARISONS)}
    return found


def moments_of(facts: list[dict]) -> dict:
    """E v = 0 and E v^2 = 9, each with z. Equal chains get equal weight: errors are averaged in quadrature."""
    out = {}
    for name, truth in (("mean", 0.0), ("second_moment", runs.VARIANCE)):
        value = float(np.mean([fact[name] for fact in facts]))
        error = math.sqrt(float(np.mean([fact[f"{name}_error"] ** 2 for fact in facts])) / len(facts))
        out[name] = {"value": value, "error": error, "z": (value - truth) / error if error > 0 else None}
    return out


# --------------------------------------------------------------------------------------------------- running, report


def load() -> dict:
    path = common.RESULTS / f"{NAME}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def make(name: str, row: Row) -> None:
    """Run a row and put it beside those that are there."""
    facts = []
    for seed in row.seeds:
        facts.append(runs.run(row.kernel, seed, row.tune, row.draws).facts)
        last = facts[-1]
        print(f"{name} seed {seed}: ESS {last['ess']:.1f} in {last['cpu_seconds']:.2f} s", flush=True)
        write({**load().get("runs", {}), name: facts})


def write(done: dict, made: dict | None = None) -> None:
    table = common.paper_table("betancourt_2013_table2")
    plan = rows()
    names = [name for name in plan if name in done]
    compared = {name: against(plan[name], done[name], table) for name in names}
    checks = {name: moments_of(done[name]) for name in names}
    text, verdicts = report(plan, done, compared, checks)
    data = {"compared": compared, "moments_of_v": checks, "verdicts": verdicts, "runs": done}
    common.write_results(
        NAME, "Betancourt (2013), Tables I and II: ESS of v per second on the funnel 50 + 1", text, data, opening, made
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("row", nargs="*", help=f"rows to make: {', '.join(rows())} (default: all)")
    parser.add_argument("--report", action="store_true", help="only write the report again, from the recorded runs")
    chosen = parser.parse_args()
    plan = rows()
    unknown = sorted(set(chosen.row) - set(plan))
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(plan)}")
    runs.pin_to_one_core()
    if chosen.report:
        stored = load()
        write(stored["runs"], stored["about"])
        return
    for name in chosen.row or plan:
        make(name, plan[name])


if __name__ == "__main__":
    main()
