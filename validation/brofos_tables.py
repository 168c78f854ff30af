"""What the commands for the tables of Brofos and Lederman (2021) share: the methods, a row's chains, the comparison.

Settings that the text leaves out and their published code has: a solve may take 1,000 iterations; the acceptance
probability is the fraction of proposals accepted; ArviZ is given the chain as two chains, its halves. Two that are *not*
taken over: both midpoint solves start from z + eps/2 f(z) there (here from z, as the paper has it), and a solve counts
as converged there once its changes are below the tolerance *with their sign*, so that a failed one passes by chance.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import refhmc
from refhmc.integrators import GeneralizedLeapfrog, ImplicitMidpoint
from validation.common import (
    RESULTS,
    Chains,
    Estimate,
    alarm_text,
    compare,
    effective_sizes,
    join,
    markdown,
    number,
    over_trials,
    paper_table,
    plain,
    run_chains,
    verdict,
    write_results,
)

METHODS = {
    "G.L.F.(a)": (GeneralizedLeapfrog, "naive"),
    "G.L.F.(b)": (GeneralizedLeapfrog, "cached"),
    "I.M.(a)": (ImplicitMidpoint, "endpoint"),
    "I.M.(b)": (ImplicitMidpoint, "midpoint"),
}
FIGURES = ("acceptance", "mean_ess", "min_ess")
IN_PAPER = {"acceptance": "acc_prob", "mean_ess": "mean_ess", "min_ess": "min_ess"}
IN_WORDS = {"acceptance": "acceptance", "mean_ess": "mean ESS", "min_ess": "least ESS"}
TOLERANCE, MAX_ITERATIONS, HALVES = 1e-6, 1000, 2
PAPER_DRAWS = 10_000
FEWEST = 4  # trials, for an error of their own


def integrator(method: str, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS):
    """The integrator of one of the paper's four labels."""
    kind, variant = METHODS[method]
    return kind(variant=variant, tolerance=tolerance, max_iterations=max_iterations)


@dataclasses.dataclass
class Table:
    """A table to be made. ``problem(seed, trial)``: model and start; ``same``: one model for all trials.

    ``varies``: our trials differ in their data, and the paper's have the data of one of them: its figure is compared with
    the spread of ours, not with the error of their mean.
    ``reasons``: why figures differ, by (step size, steps, method's first two letters, figure), found by running it.
    """

    name: str
    command: str
    title: str
    paper: str
    metric: Any
    rows: Sequence[tuple[float, int, str]]
    problem: Callable[[int, int], tuple[Any, np.ndarray]]
    same: bool
    varies: bool = False
    notes: str = ""
    paper_draws: int = PAPER_DRAWS
    pilot: int = 200  # draws from which ``--budget`` learns what a row costs
    reasons: dict[tuple, str] = dataclasses.field(default_factory=dict)

    def reason(self, step: float, steps: int, method: str, figure: str) -> str:
        """The explanation of a difference in one figure, empty where there is none."""
        return self.reasons.get((step, steps, method[:2], figure), "")


# ---------------------------------------------------------------------------------------------------- a row's chains


def row_chains(table: Table, row: tuple, trials: int, draws: int, seed: int, cores: int) -> Chains:
    """The chains of all trials of a row. Every row and trial has random numbers of its own."""
    step, steps, method = row
    kernel = refhmc.HMC(step_size=step, n_steps=steps, metric=table.metric, integrator=integrator(method))
    entropy = [seed, round(1000 * step), steps, sorted(METHODS).index(method)]
    problems = [table.problem(seed, trial) for trial in range(trials)]
    if table.same:
        starts = np.array([start for _, start in problems])
        return run_chains(
            problems[0][0], kernel, draws=draws, chains=trials, seed=entropy, starts=starts, cores=cores, warm=True
        )
    runs = []
    for trial, (model, start) in enumerate(problems):
        options = {"draws": draws, "chains": 1, "starts": start[None], "cores": 1, "warm": trial == 0}
        runs.append(run_chains(model, kernel, seed=[*entropy, trial], **options))
    return join(runs)


def plan(table: Table, row: tuple, chosen) -> tuple[int, int]:
    """Trials and draws of a row. With ``--budget``: what fits its processor seconds, trials first, then draws."""
    if not chosen.budget:
        return chosen.trials, chosen.draws
    pilot = min(table.pilot, chosen.draws)
    affordable = chosen.budget / (row_chains(table, row, 1, pilot, chosen.seed + 1, 1).seconds / pilot)
    trials = int(min(max(affordable // chosen.draws, 1), chosen.trials))
    return trials, chosen.draws if trials > 1 else int(min(max(affordable, chosen.least_draws), chosen.draws)) // 2 * 2


def batch_error(accepted: np.ndarray, batches: int = 20) -> float:
    """The standard error of the fraction accepted, from the means of twenty stretches of the chains."""
    means = [part.mean() for part in np.array_split(accepted.ravel(), batches)]
    return float(np.std(means, ddof=1) / math.sqrt(batches))


def row_figures(chains: Chains, paper_draws: int = PAPER_DRAWS, block: str = "") -> dict[str, Any]:
    """What a row reports; effective sizes and seconds are per ``paper_draws`` draws. ``block``: of Gibbs, ``_name``."""
    trials, draws = chains.draws.shape[:2]
    sizes = effective_sizes(chains.draws, HALVES) * paper_draws / draws
    accepted = chains.stats[f"is_accepted{block}"]
    figures = {
        "acceptance": over_trials(accepted.mean(axis=1)),
        "mean_ess": over_trials(sizes.mean(axis=1)),
        "min_ess": over_trials(sizes.min(axis=1)),
    }
    for name, figure in figures.items():
        figure.length = draws / paper_draws
        if trials < FEWEST:
            figure.error = batch_error(accepted) if name == "acceptance" else math.nan
    seconds = chains.seconds * paper_draws / draws
    return {
        "trials": trials,
        "draws": draws,
        **figures,
        "solver_failed": float(chains.stats[f"solver_failed{block}"].mean()),
        "iterations_per_transition": float(chains.stats[f"solver_iterations{block}"].mean()),
        f"seconds_per_{paper_draws}_draws": seconds,
        "mean_ess_per_second": figures["mean_ess"].value / seconds,
        "min_ess_per_second": figures["min_ess"].value / seconds,
    }


# -------------------------------------------------------------------------------------------------------- comparison


def against_paper(table: Table, row: tuple, ours: dict, printed: dict, comparisons: int) -> dict[str, Any]:
    """z, probability and verdict of each figure of a row, and the ratio of the speeds."""
    out: dict[str, Any] = {}
    for figure in FIGURES:
        theirs = Estimate(printed[IN_PAPER[figure]], printed[f"{IN_PAPER[figure]}_se"])
        spread = math.sqrt(ours[figure].n + 1) if table.varies else 1.0
        result = compare(dataclasses.replace(ours[figure], error=spread * ours[figure].error), theirs)
        most = 0.95 * table.paper_draws * math.log10(ours["draws"])
        capped = ours["draws"] < table.paper_draws and ours[figure].value > most
        reason = "at ArviZ's cap for our shorter chain" if capped else table.reason(*row, figure)
        word = verdict(result.p, comparisons, reason=reason)
        out[figure] = {"paper": theirs, "z": result.z, "p": result.p, "verdict": word}
    for figure in ("mean_ess", "min_ess"):
        theirs = printed[f"{figure}_per_sec"]
        speedup = ours[f"{figure}_per_second"] / theirs if theirs > 0 else math.nan
        out[f"{figure}_per_second"] = {"paper": theirs, "times_faster": speedup}
    return out


def compare_rows(table: Table, rows: list[dict]) -> None:
    """Adds ``comparison`` to every row the paper has, and ``relative_speed``, ESS/s in units of the first G.L.F."""
    printed = paper_table(table.paper) or []
    by_key = {(p["step_size"], int(p["num_steps"]), p["method"]): p for p in printed}
    for row in rows:
        key = (row["step_size"], row["n_steps"], row["method"])
        base = next((r for r in rows if (r["step_size"], r["n_steps"], r["method"]) == (*key[:2], "G.L.F.(a)")), None)
        if base is not None:
            row["relative_speed"] = row["mean_ess_per_second"] / base["mean_ess_per_second"]
        if key in by_key:
            row["comparison"] = against_paper(table, key, row, by_key[key], len(FIGURES) * len(table.rows))
            theirs = by_key.get((*key[:2], "G.L.F.(a)"))
            if theirs is not None and theirs["mean_ess_per_sec"] > 0:
                ratio = by_key[key]["mean_ess_per_sec"] / theirs["mean_ess_per_sec"]
                row["comparison"]["relative_speed_in_paper"] = ratio


def verdict_cell(row: dict) -> str:
    """The verdict of a row: "agrees", or which figures differ and why."""
    words = {IN_WORDS[f]: row["comparison"][f]["verdict"] for f in FIGURES if "comparison" in row}
    wrong = [f"{name} {word}" for name, word in words.items() if word != "agrees"]
    return "; ".join(wrong) or ("agrees" if words else "–")


def figure_cells(row: dict, figure: str) -> list[str]:
    """The paper's figure, ours, and z."""
    ours = row[figure]
    if "comparison" not in row:
        return ["–", str(ours), "–"]
    against = row["comparison"][figure]
    theirs = against["paper"]
    return [f"{theirs.value:.2f} ± {theirs.error:.2f}", str(ours), f"{min(max(against['z'], -999), 999):+.1f}"]


def result_table(rows: list[dict]) -> str:
    """The Markdown table of acceptance and effective sizes."""
    header = ["step", "L", "method", "trials × draws"]
    for figure in FIGURES:
        header += [f"{IN_WORDS[figure]}: paper", "ours", "z"]
    body = []
    for row in rows:
        cells = [row["step_size"], row["n_steps"], row["method"], f"{row['trials']} × {row['draws']:,}"]
        for figure in FIGURES:
            cells += figure_cells(row, figure)
        body.append([*cells, verdict_cell(row)])
    return markdown([*header, "verdict"], body)


def speed_table(rows: list[dict]) -> str:
    """The Markdown table of speeds."""
    header = ["step", "L", "method", "failed solves", "iterations", "ESS/s: paper", "ours", "times faster"]
    header += ["relative to G.L.F.(a): paper", "ours"]
    body = []
    for row in rows:
        against = row.get("comparison", {})
        speed = against.get("mean_ess_per_second", {"paper": math.nan, "times_faster": math.nan})
        body.append(
            [row["step_size"], row["n_steps"], row["method"], f"{row['solver_failed']:.3f}"]
            + [f"{row['iterations_per_transition']:.0f}", number(speed["paper"]), number(row["mean_ess_per_second"])]
            + [
                f"{speed['times_faster']:,.0f}".replace("nan", "–"),
                number(against.get("relative_speed_in_paper", math.nan)),
            ]
            + [number(row.get("relative_speed", math.nan))]
        )
    return markdown(header, body)


def summary(rows: list[dict]) -> dict[str, int]:
    """How many comparisons agree, differ for a reason found, and differ."""
    words = [row["comparison"][figure]["verdict"] for row in rows if "comparison" in row for figure in FIGURES]
    explained = sum(word.startswith("differs: ") for word in words)
    agree = sum(word == "agrees" for word in words)
    return {
        "compared": len(words),
        "agree": agree,
        "differ_explained": explained,
        "differ": len(words) - agree - explained,
    }


def speed_text(rows: list[dict]) -> str:
    """The range of the speed-up over the rows, and in how many the order of I.M. and G.L.F.(a) is the paper's."""
    found = [row["comparison"] for row in rows if "comparison" in row]
    times = [c["mean_ess_per_second"]["times_faster"] for c in found]
    times = [x for x in times if math.isfinite(x)]
    pairs = [
        (row["relative_speed"], row["comparison"]["relative_speed_in_paper"])
        for row in rows
        if row["method"].startswith("I") and "relative_speed_in_paper" in row.get("comparison", {})
    ]
    if not times or not pairs:
        return ""
    same = sum((ours > 1) == (theirs > 1) for ours, theirs in pairs)
    return (
        f"Times faster: median {np.median(times):,.0f}, from {min(times):,.0f} to {max(times):,.0f}. Whether I.M. is faster "
        f"than G.L.F.(a) is as in the paper in {same} of {len(pairs)} rows of I.M."
    )


def report(table: Table, rows: list[dict], chosen) -> None:
    """Write what there is; called again after every row."""
    compare_rows(table, rows)
    counts = summary(rows)
    text = [
        f"`python -m validation.{table.command}`: static HMC, tolerance 1e-6 on every coordinate, at most 1,000 iterations "
        f"a solve. {len(rows)} of {len(table.rows)} rows, seed {chosen.seed}.",
        alarm_text(len(FIGURES) * len(table.rows)),
        f"Of {counts['compared']} comparisons {counts['agree']} agree, {counts['differ_explained']} differ for a reason "
        f"given, {counts['differ']} differ."
        if counts["compared"]
        else "The paper's table was not at hand: our figures alone.",
        "Acceptance is the fraction of proposals accepted. ESS is ArviZ's bulk ESS of each coordinate, the chain given as "
        f"two halves; mean and least over the coordinates, per {table.paper_draws:,} draws, averaged over the trials. ArviZ "
        f"reports at most n log10 n, {table.paper_draws * math.log10(table.paper_draws):,.0f} for as many. ± is a standard "
        f"error; with fewer than {FEWEST} trials that of the ESS is not ours but the paper's, scaled to our number of draws. "
        "Seconds are processor seconds of one chain, taken on a machine with other work on it: compare the speeds roughly.",
        result_table(rows),
        f"Mean ESS per second, ours and the published. {speed_text(rows)}",
        speed_table(rows),
        *([table.notes.strip()] if table.notes else []),
    ]
    data = {"command": vars(chosen), "settings": {"tolerance": TOLERANCE, "max_iterations": MAX_ITERATIONS}}
    write_results(table.name, table.title, "\n\n".join(text), {**data, "summary": counts, "rows": rows})


def kept_rows(table: Table) -> list[dict]:
    """The rows of an earlier run, for ``--resume``."""
    path = RESULTS / f"{table.name}.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    for row in rows:
        row.pop("comparison", None)
        for figure in FIGURES:
            values = row[figure]
            row[figure] = Estimate(**{**values, "error": math.nan if values["error"] is None else values["error"]})
    return rows


def make(table: Table, chosen) -> None:
    """Run the rows in turn, writing the results after each; with ``--resume`` only those that are not there yet."""
    if chosen.quick:
        table.name += "_quick"
    rows = kept_rows(table) if chosen.resume else []
    done = {(row["step_size"], row["n_steps"], row["method"]) for row in rows}
    for row in table.rows:
        if row in done or (chosen.steps and row[1] not in chosen.steps):
            continue
        trials, draws = plan(table, row, chosen)
        figures = row_figures(row_chains(table, row, trials, draws, chosen.seed, chosen.cores), table.paper_draws)
        rows.append({"step_size": row[0], "n_steps": row[1], "method": row[2], **figures})
        rows.sort(key=lambda r: table.rows.index((r["step_size"], r["n_steps"], r["method"])))
        report(table, rows, chosen)
        shown = [f"{name} {figures[name]}" for name in FIGURES]
        print(
            *row,
            f"{trials} x {draws}",
            *shown,
            f"{figures[f'seconds_per_{table.paper_draws}_draws']:.2f} s",
            flush=True,
        )
    report(table, rows, chosen)
    print(plain(summary(rows)))


OPTIONS: dict[str, dict] = {
    "budget": {
        "type": float,
        "default": 0.0,
        "help": "processor seconds for a row; trials, then draws, are cut to fit",
    },
    "least_draws": {"type": int, "default": 1000, "help": "with --budget: draws below which no chain is cut"},
    "steps": {"type": int, "nargs": "*", "default": [], "help": "only the rows with these numbers of steps"},
    "resume": {"action": "store_true", "help": "keep the rows that results/ already has"},
}
