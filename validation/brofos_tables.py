"""What the commands for the tables of Brofos and Lederman (2021) share: the methods, a row's chains, the comparison.

Settings that the text leaves out and their published code has: a solve may take 1,000 iterations; steps are taken without a
check of their reversibility (``reversibility_check=False``); the acceptance probability is the fraction of proposals
accepted; ArviZ is given the chain as two chains, its halves. Two that are *not* taken over: both midpoint solves start from
z + eps/2 f(z) there (here from z, as the paper has it), and a solve counts as converged there once its changes are below
the tolerance *with their sign*, so that a failed one passes by chance.

A figure agrees if it does not differ (:mod:`validation.judging`) and the row could have told a difference of half the
printed ESS, or of 0.05 or half of the printed acceptance, whichever is less; otherwise it is undecided. A setting's rows are
also judged together.
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
from validation import judging
from validation.common import (
    RESULTS,
    Chains,
    about,
    effective_sizes,
    join,
    markdown,
    paper_table,
    plain,
    run_chains,
    write_results,
)
from validation.judging import (
    ALARM,
    PAPER_TRIALS,
    POWER,
    Estimate,
    alarm_text,
    compare,
    level,
    number,
    over_batches,
    over_trials,
    together,
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
FEWEST = 4  # trials, for an error from their spread
BATCHES = 20  # of a trial, for an error of the acceptance from fewer
UNCHECKED = "Steps are taken as the paper's programs take them, without a check of their reversibility."


def integrator(method: str, tolerance: float = TOLERANCE, max_iterations: int = MAX_ITERATIONS):
    """The integrator of one of the paper's four labels."""
    kind, variant = METHODS[method]
    return kind(variant=variant, tolerance=tolerance, max_iterations=max_iterations, reversibility_check=False)


def not_explained(row: dict, figure: str) -> str:
    """Of a difference of which nothing is known."""
    theirs = row["comparison"][figure]["paper"]
    return f"ours is {number(row[figure].value)}, published {number(theirs.value)}: not explained"


@dataclasses.dataclass
class Table:
    """A table to be made. ``problem(seed, trial)``: model and start; ``same``: one model for all trials.

    ``varies``: our trials differ in their data, and the paper's have the data of one of them: its figure is compared with
    the spread of ours, not with the error of their mean.
    ``common_data``: trial k of every row has the same data, so that the rows are not independent.
    ``reason``: what is known of one difference, (row, figure) -> a sentence.
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
    common_data: bool = False
    notes: str = ""
    paper_draws: int = PAPER_DRAWS
    paper_trials: int = PAPER_TRIALS
    pilot: int = 200  # draws from which ``--budget`` learns what a row costs
    reason: Callable[[dict, str], str] = not_explained


# ---------------------------------------------------------------------------------------------------- a row's chains


def row_chains(table: Table, row: tuple, trials: int, draws: int, seed: int, cores: int) -> Chains:
    """The chains of all trials of a row. Every row and trial has random numbers of its own."""
    step, steps, method = row
    kernel = refhmc.HMC(step_size=step, n_steps=steps, metric=table.metric, integrator=integrator(method))
    entropy = [seed, round(1000 * step), steps, sorted(METHODS).index(method)]
    first = 0 if table.same or table.common_data or table.varies else 1000 * table.rows.index(row)
    problems = [table.problem(seed, first + trial) for trial in range(trials)]
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
    fewest = max(chosen.least_trials, 1)
    trials = int(min(max(affordable // chosen.draws, fewest), chosen.trials))
    draws = int(min(max(affordable / trials, chosen.least_draws), chosen.draws)) // 2 * 2
    return trials, draws if trials == fewest else chosen.draws


def estimates(of_each_trial: dict[str, Any], length: float, varies: bool) -> dict[str, Estimate]:
    """A row's figures from those of its trials. Of few trials with the same data the acceptance's error is from batches."""
    batches = np.array(of_each_trial["acceptance_batches"], dtype=float)
    few = len(batches) < FEWEST and not varies
    figures = {"acceptance": over_batches(batches) if few else over_trials(batches.mean(axis=1))}
    for name in ("mean_ess", "min_ess"):
        figures[name] = over_trials(of_each_trial[name])
        if few:
            figures[name].error = math.nan
    for figure in figures.values():
        figure.length = length
    return figures


def row_figures(
    chains: Chains, paper_draws: int = PAPER_DRAWS, block: str = "", varies: bool = False
) -> dict[str, Any]:
    """What a row reports; effective sizes and seconds are per ``paper_draws`` draws. ``block``: of Gibbs, ``_name``."""
    trials, draws = chains.draws.shape[:2]
    sizes = effective_sizes(chains.draws, HALVES) * paper_draws / draws
    accepted = chains.stats[f"is_accepted{block}"]
    of_each_trial = {
        "acceptance_batches": [[part.mean() for part in np.array_split(chain, BATCHES)] for chain in accepted],
        "mean_ess": sizes.mean(axis=1),
        "min_ess": sizes.min(axis=1),
    }
    figures = estimates(of_each_trial, draws / paper_draws, varies)
    seconds = chains.seconds * paper_draws / draws
    return {
        "made": about()["date"],
        "trials": trials,
        "draws": draws,
        **figures,
        "of_each_trial": of_each_trial,
        "solver_failed": float(chains.stats[f"solver_failed{block}"].mean()),
        "iterations_per_transition": float(chains.stats[f"solver_iterations{block}"].mean()),
        f"seconds_per_{paper_draws}_draws": seconds,
        "mean_ess_per_second": figures["mean_ess"].value / seconds,
        "min_ess_per_second": figures["min_ess"].value / seconds,
    }


# -------------------------------------------------------------------------------------------------------- comparison


def enough(figure: str, published: float) -> float:
    """The difference that a row must be able to tell, so that its figure can be said to agree."""
    return min(0.05, published / 2) if figure == "acceptance" else published / 2


def judge(table: Table, figure: str, ours: Estimate, theirs: Estimate, draws: int, comparisons: int) -> dict[str, Any]:
    """One figure of a row: z, p, the difference told, the verdict; ``set_aside``, with the reason, where p does not decide."""
    if table.varies:
        ours = dataclasses.replace(ours, error=math.sqrt(ours.n + 1) * ours.error)
    result = compare(ours, theirs)
    told = result.told(comparisons)
    out = {"paper": theirs, "z": result.z, "p": result.p, "told": told, "set_aside": False, "comparison": result}
    aside = {**out, "set_aside": True, "verdict": "undecided"}
    cap = table.paper_draws * math.log10(draws)
    if table.varies and ours.n < FEWEST:
        return {**aside, "reason": f"{ours.n} sets of rows do not give their spread"}
    if figure != "acceptance" and ours.value > 0.95 * cap:
        if draws < table.paper_draws:
            return {**aside, "reason": "at ArviZ's cap for our shorter chain"}
        if theirs.value > 0.95 * cap:
            return {**aside, "verdict": "agrees", "reason": "both at ArviZ's cap: nothing above it is told"}
    if result.p < level(comparisons):
        return {**out, "verdict": "differs"}
    return {**out, "verdict": "agrees" if told <= enough(figure, theirs.value) else "undecided"}


def judge_together(table: Table, rows: list[dict], comparisons: int) -> list[dict]:
    """The rows of each step and number of steps, figure by figure, without those whose p does not decide. A figure that differs
    in all together agrees in none of them."""
    out = []
    for key in dict.fromkeys((row["step_size"], row["n_steps"]) for row in rows):
        for figure in FIGURES:
            here = [row for row in rows if (row["step_size"], row["n_steps"]) == key]
            here = [row for row in here if not row["comparison"][figure]["set_aside"]]
            if not here:
                continue
            found = [row["comparison"][figure] for row in here]
            result = together(
                [row[figure] for row in here],
                [each["paper"] for each in found],
                [each["comparison"] for each in found],
                independent=not (table.varies or any(row["common_data"] for row in here)),
                comparisons=comparisons,
            )
            word = "differs" if result.p < level(comparisons) else "agrees" if result.told <= 0.5 else "undecided"
            out.append({"step_size": key[0], "n_steps": key[1], "figure": figure, **plain(result), "verdict": word})
            for each in found:
                if word == "differs" and each["verdict"] != "differs":
                    each["verdict"] = "differs together"
    return out


def compare_rows(table: Table, rows: list[dict], printed: dict[tuple, dict]) -> list[dict]:
    """Adds ``comparison`` to every row the paper has, and ``relative_speed``, ESS/s in units of the first G.L.F.; returns the
    judgements of the rows together."""
    comparisons = comparisons_of(table)
    for row in rows:
        key = (row["step_size"], row["n_steps"], row["method"])
        base = next((r for r in rows if (r["step_size"], r["n_steps"], r["method"]) == (*key[:2], "G.L.F.(a)")), None)
        if base is not None:
            row["relative_speed"] = row["mean_ess_per_second"] / base["mean_ess_per_second"]
        if key not in printed:
            continue
        row["comparison"] = against = {}
        for figure in FIGURES:
            value, error = printed[key][IN_PAPER[figure]], printed[key][f"{IN_PAPER[figure]}_se"]
            theirs = Estimate(value, error, table.paper_trials)
            against[figure] = judge(table, figure, row[figure], theirs, row["draws"], comparisons)
        for figure in ("mean_ess", "min_ess"):
            speed = printed[key][f"{figure}_per_sec"]
            speedup = row[f"{figure}_per_second"] / speed if speed > 0 else math.nan
            against[f"{figure}_per_second"] = {"paper": speed, "times_faster": speedup}
        theirs = printed.get((*key[:2], "G.L.F.(a)"))
        if theirs is not None and theirs["mean_ess_per_sec"] > 0:
            against["relative_speed_in_paper"] = printed[key]["mean_ess_per_sec"] / theirs["mean_ess_per_sec"]
    compared = [row for row in rows if "comparison" in row]
    jointly = judge_together(table, compared, comparisons)
    for row in compared:
        for figure in FIGURES:
            if row["comparison"][figure]["verdict"].startswith("differs"):
                row["comparison"][figure]["reason"] = table.reason(row, figure)
    return jointly


def published(table: Table) -> dict[tuple, dict]:
    """The paper's rows by step size, number of steps and method."""
    return {(p["step_size"], int(p["num_steps"]), p["method"]): p for p in paper_table(table.paper) or []}


def verdict_cell(row: dict) -> str:
    """The verdict of a row: "agrees", or which figures do not."""
    words = {IN_WORDS[f]: row["comparison"][f]["verdict"] for f in FIGURES if "comparison" in row}
    wrong = [f"{name} {word}" for name, word in words.items() if word != "agrees"]
    return "; ".join(wrong) or ("agrees" if words else "–")


def told_in_words(figure: str, against: dict) -> str:
    """The difference a row could have told: of the acceptance itself, of ESS as a share of the published."""
    if "cap" in against.get("reason", ""):
        return "–"
    told = against["told"]
    return f"{told:.3f}" if figure == "acceptance" else f"{told / against['paper'].value:.0%}"


def figure_cells(row: dict, figure: str) -> list[str]:
    """The paper's figure, ours, z, and the difference told."""
    ours = row[figure]
    if "comparison" not in row:
        return ["–", str(ours), "–", "–"]
    against = row["comparison"][figure]
    theirs = against["paper"]
    z = f"{min(max(against['z'], -999), 999):+.1f}"
    return [f"{theirs.value:.2f} ± {theirs.error:.2f}", str(ours), z, told_in_words(figure, against)]


def result_table(rows: list[dict]) -> str:
    """The Markdown table of acceptance and effective sizes."""
    header = ["step", "L", "method", "trials × draws"]
    for figure in FIGURES:
        header += [f"{IN_WORDS[figure]}: paper", "ours", "z", "told"]
    body = []
    for row in rows:
        cells = [row["step_size"], row["n_steps"], row["method"], f"{row['trials']} × {row['draws']:,}"]
        for figure in FIGURES:
            cells += figure_cells(row, figure)
        body.append([*cells, verdict_cell(row)])
    return markdown([*header, "verdict"], body)


def together_table(jointly: list[dict]) -> str:
    """The Markdown table of the rows of a setting together."""
    body = []
    for each in jointly:
        cells = [each["step_size"], each["n_steps"], IN_WORDS[each["figure"]], each["rows"], f"× {each['factor']:.3f}"]
        body.append([*cells, f"{each['z']:+.1f}", f"{each['p']:.2g}", f"{each['told']:.1%}", each["verdict"]])
    return markdown(["step", "L", "figure", "rows", "ours to the paper's", "z", "p", "told", "verdict"], body)


def explanations(rows: list[dict]) -> str:
    """A line for every figure that does not agree."""
    lines = []
    for row in rows:
        for figure in FIGURES:
            against = row.get("comparison", {}).get(figure, {"verdict": "agrees"})
            if against["verdict"] == "agrees":
                continue
            why = against.get("reason", "")
            if not why and against["verdict"] == "undecided":
                asked, told = enough(figure, against["paper"].value), against["told"]
                share = 1 if figure == "acceptance" else against["paper"].value
                form = ".4f" if figure == "acceptance" else ".0%"
                why = f"the row tells {told / share:{form}}, {asked / share:{form}} is asked"
            setting = f"step {row['step_size']}, {row['n_steps']} steps, {row['method']}"
            lines.append(f"- {setting}, {IN_WORDS[figure]} {against['verdict']} (p = {against['p']:.2g}): {why}.")
    return "\n".join(lines)


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
    """How many figures were compared, and with which verdict."""
    words = [row["comparison"][figure]["verdict"] for row in rows if "comparison" in row for figure in FIGURES]
    kinds = ("agrees", "undecided", "differs", "differs together")
    return {"compared": len(words), **{kind: words.count(kind) for kind in kinds}}


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


def comparisons_of(table: Table) -> int:
    """How many verdicts a table has: three figures of every row and of every setting's rows together."""
    return len(FIGURES) * (len(table.rows) + len({row[:2] for row in table.rows}))


def rule_text(table: Table) -> str:
    """The rule of the verdicts in words."""
    return (
        f"{alarm_text(comparisons_of(table))} Told: the true difference that the row would have found with probability "
        f"{POWER:.0%}, of ESS in per cent of the published. A figure agrees only if that is at most half the printed ESS, or "
        "0.05 and half the printed acceptance; else it is undecided. It differs together if the rows of its setting differ "
        "together."
    )


def counts_text(counts: dict[str, int]) -> str:
    """The summary in words."""
    if not counts["compared"]:
        return "The paper's table was not at hand: our figures alone."
    return (
        f"Of {counts['compared']} comparisons {counts['agrees']} agree, {counts['undecided']} are undecided, "
        f"{counts['differs']} differ, {counts['differs together']} differ together."
    )


def comparison_texts(table: Table, rows: list[dict], jointly: list[dict]) -> list[str]:
    """The rows beside the paper's, the rows of a setting together, and what does not agree."""
    if not jointly:
        return [result_table(rows)]
    shared = table.varies or any(row["common_data"] for row in rows)
    how = "whatever their dependence (they share data)" if shared else "as independent ones"
    return [
        result_table(rows),
        f"The rows of a setting together, {how} (Stouffer); told is a common factor's distance from 1:",
        together_table(jointly),
        "Figures that do not agree:",
        explanations(rows) or "none.",
    ]


def verdict_data(table: Table, rows: list[dict], jointly: list[dict]) -> dict[str, Any]:
    """What the JSON of a table has beside its rows."""
    rule = {"alarm": ALARM, "power": POWER, "comparisons": comparisons_of(table), "rows_wanted": len(table.rows)}
    rule["settings_wanted"] = len({row[:2] for row in table.rows})
    settings = {"tolerance": TOLERANCE, "max_iterations": MAX_ITERATIONS, "reversibility_check": False}
    return {"settings": settings, **rule, "summary": summary(rows), "together": jointly, "rows": rows}


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    counts, reasons = data["summary"], []
    verdicts = [word for word in ("agrees", "undecided", "differs", "differs together") for _ in range(counts[word])]
    if not verdicts:
        reasons.append("The paper's table was not available.")
    if counts["differs together"]:
        reasons.append(
            f"Of those that differ, {counts['differs together']} do so only together with others of their setting."
        )
    if counts["undecided"]:
        reasons.append("Undecided ones could not have shown a difference that matters.")
    if len(data["rows"]) < data["rows_wanted"]:
        reasons.append(f"{len(data['rows'])} of {data['rows_wanted']} rows were run.")
    return judging.opening(verdicts, because=" ".join(reasons))


def report(table: Table, rows: list[dict], chosen, printed: dict[tuple, dict]) -> None:
    """Write what there is; called again after every row."""
    jointly = compare_rows(table, rows, printed)
    dates = sorted(row["made"] for row in rows)
    few = (
        f"; with fewer than {FEWEST} trials that of the ESS is the paper's, scaled to our number of draws, and that "
        f"of the acceptance is from the means of {BATCHES} stretches a chain"
    )
    text = [
        f"`python -m validation.{table.command}`: static HMC, tolerance 1e-6 on every coordinate, at most 1,000 iterations "
        f"a solve. {UNCHECKED} {len(rows)} of {len(table.rows)} rows, seed {chosen.seed}, "
        f"made {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}.",
        rule_text(table),
        counts_text(summary(rows)),
        "Acceptance is the fraction of proposals accepted. ESS is ArviZ's bulk ESS of each coordinate, the chain given as "
        f"two halves; mean and least over the coordinates, per {table.paper_draws:,} draws, averaged over the trials. ArviZ "
        f"reports at most n log10 n, {table.paper_draws * math.log10(table.paper_draws):,.0f} for as many. ± is a standard "
        f"error{'' if table.varies else few}. Seconds are processor seconds of one chain, taken on a machine with other work "
        "on it: compare the speeds roughly.",
        *comparison_texts(table, rows, jointly),
    ]
    text += [f"Mean ESS per second, ours and the published. {speed_text(rows)}", speed_table(rows)]
    text += [table.notes.strip()] if table.notes else []
    data = {"command": vars(chosen), **verdict_data(table, rows, jointly)}
    write_results(table.name, table.title, "\n\n".join(text), data, opening)


def estimate(values: dict[str, Any], **more: Any) -> Estimate:
    """An estimate as JSON has it."""
    return Estimate(**{**values, **more, "error": math.nan if values["error"] is None else values["error"]})


def kept_rows(table: Table) -> list[dict]:
    """The rows of an earlier run."""
    path = RESULTS / f"{table.name}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"rows": []}
    for row in kept["rows"]:
        row.pop("comparison", None)
        row.setdefault("made", kept["about"]["date"])
        row.setdefault("common_data", not table.same)  # so it was in earlier versions
        if "of_each_trial" in row:
            row |= estimates(row["of_each_trial"], row["draws"] / table.paper_draws, table.varies)
            continue
        few = row["trials"] < FEWEST  # then rows of earlier versions have the error of BATCHES stretches of all chains
        for figure in FIGURES:
            batches = {"freedom": BATCHES - 1} if few and figure == "acceptance" else {}
            row[figure] = estimate(row[figure], **batches)
    return kept["rows"]


def make(table: Table, chosen) -> None:
    """Run the rows in turn, writing the results after each; with ``--resume`` only those that are not there yet, or that
    have fewer than ``--least-trials`` trials; with ``--judge`` none."""
    if chosen.quick:
        table.name += "_quick"
    printed = published(table)
    rows = kept_rows(table) if chosen.resume or chosen.judge else []
    done = {(r["step_size"], r["n_steps"], r["method"]) for r in rows if r["trials"] >= chosen.least_trials}
    for row in () if chosen.judge else table.rows:
        if row in done or (chosen.steps and row[1] not in chosen.steps):
            continue
        rows = [r for r in rows if (r["step_size"], r["n_steps"], r["method"]) != row]
        trials, draws = plan(table, row, chosen)
        figures = row_figures(
            row_chains(table, row, trials, draws, chosen.seed, chosen.cores), table.paper_draws, varies=table.varies
        )
        key = {"step_size": row[0], "n_steps": row[1], "method": row[2]}
        rows.append({**key, "common_data": table.common_data, **figures})
        rows.sort(key=lambda r: table.rows.index((r["step_size"], r["n_steps"], r["method"])))
        report(table, rows, chosen, printed)
        shown = [f"{name} {figures[name]}" for name in FIGURES]
        print(
            *row,
            f"{trials} x {draws}",
            *shown,
            f"{figures[f'seconds_per_{table.paper_draws}_draws']:.2f} s",
            flush=True,
        )
    report(table, rows, chosen, printed)
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
    "least_trials": {"type": int, "default": 0, "help": "trials of a row at least; with --resume: which rows are kept"},
    "judge": {"action": "store_true", "help": "run nothing: judge the rows that results/ has again"},
}
