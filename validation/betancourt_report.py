"""The Markdown of :mod:`validation.betancourt_tables`."""

from __future__ import annotations

import math

from validation import common, judging
from validation.common import number
from validation.comparing import rule_text, verdict

RULE = """Each of our rows: warm-up, then draws timed by themselves, for each seed. Figures are means over the seeds with
standard errors. The paper's figures are of one run; t is that of one further observation beside ours (no p below two runs).
ESS is the paper's (Geyer's initial monotone sequence), capped like ArviZ's at n log10 n. Times are processor seconds of one
core, here shared with other work: only their ratio to the paper's is used, and the paper's machine is of 2013. Implicit steps
are unchecked in every row, as the paper's program takes them (reversibility_check=False): these chains are not exact."""

EXPLAINED = """Why our ESS at integration time 15 is far below the paper's: the text sets the number of steps by the half-period
T/2 ≈ 25 of its figure 5, the published program (which is not the version that made the tables) says 15, the half-period from
its own start (betancourt_figures.md: 15 from there, 30 from typical states). The ESS of v grows steeply with the integration
time. The paper's 633 of the diagonal metric is near our row at time 25; its 856 of the full one lies between 15 and 20, while
at 25 v nearly changes its sign at every draw and the ESS is at the cap. For EMHMC the text's T/2 ≈ 8 is 8,000 steps of 0.001.

The step: the full SoftAbs adapts to the paper's 0.21 and acceptance. The diagonal one adapts to a larger step than the
paper's 0.49, and accepts more there: the paper's acceptance at that step is what a loosely solved implicit map has
(betancourt_solver.md). Dual averaging is on log(step) here and on logit(step) there.

The ESS of v alone favours long trajectories that turn v nearly into its opposite (SoftAbs near time 30, diagonal near 50): its
ESS then has no bound but the cap, while that of v² falls. The rows tuned by us were chosen by the smaller of the two rates, on
seeds 31 to 34 with 500 warm-up iterations (diagonal: times 25, 30, 35, targets 0.65 and 0.8) and on seed 31 with 60 warm-up
iterations and 200 draws (SoftAbs: times 25 to 40; 20 was then taken, since the rate of v² still rose towards shorter
times), and measured on fresh seeds: time 30 and 20, targets 0.8 and 0.9, solver's tolerance 1e-3.

A loose tolerance is not free: the map is then neither symplectic nor reversible to better than that tolerance, and the chain is
biased by an amount that a run of 1,000 draws may not show. On the funnel 10 + 1 a tolerance of 0.03 lowers E v² by some 4 %
(cobb_table1.md). The rows with a tolerance of 1e-6 are the ones to be quoted."""


MATTERS_TEXT = "half the printed step or ESS, 0.05 in acceptance"
AIM = 100  # times the paper's ESS per second, which refhmc set itself
COMPARISONS = 18  # step, acceptance and ESS of the six rows of several runs that are not tuned by us


def report(plan: dict, done: dict, compared: dict, checks: dict) -> tuple[str, dict]:
    """The text, and the verdicts by row."""
    verdicts = {name: verdict_of(name, compared[name], checks[name], done[name]) for name in compared}
    parts = [
        f"{RULE} {rule_text(COMPARISONS, MATTERS_TEXT)}",
        common.markdown(HEADER, [line(plan[name], done[name], compared[name]) for name in compared]),
        "## The paper's figures beside ours",
        common.markdown(
            ["row", "figure", "paper", "ours", "ratio", "t", "p", "told"],
            [row for name in compared for row in beside(plan[name].title, compared[name])],
        ),
        EXPLAINED,
        "## Are the draws of v consistent with N(0, 9)?",
        common.markdown(
            ["row", "E v (0)", "z", "E v² (9)", "z"], [moment_row(plan[name].title, checks[name]) for name in compared]
        ),
        "## Verdicts",
        common.markdown(["row", "verdict"], [(plan[name].title, text) for name, text in verdicts.items()]),
    ]
    return "\n\n".join(parts), verdicts


OTHER_SETTINGS = ("diagonal_tuned", "diagonal_opposite", "softabs_tuned")
NOT_NORMAL = "v not consistent with N(0, 9)"
HEADER = [
    "row",
    "warm-up + draws × seeds",
    "step",
    "steps",
    "acceptance",
    "seconds",
    "ESS v",
    "ArviZ bulk",
    "ESS v²",
    "ESS v/s",
    "least of v, v² /s",
    "with warm-up",
]


def mean_of(facts: list[dict], name: str) -> common.Estimate:
    return common.over_trials([fact[name] for fact in facts if name in fact] or [math.nan])


def line(row, facts: list[dict], compared: dict) -> list[str]:
    """One row of ours."""
    for fact in facts:
        if "ess_of_square_per_second" in fact:
            fact["least_per_second"] = min(fact["ess_of_square_per_second"], fact["ess_per_second"])
    first = facts[0]
    names = ("step_size", "steps", "acceptance", "cpu_seconds", "ess", "ess_arviz_bulk", "ess_of_square")
    rates = ("ess_per_second", "least_per_second", "ess_per_second_with_warmup")
    length = f"{first['tune']} + {first['draws']} × {len(facts)}"
    return [row.title, length, *[str(mean_of(facts, name)) for name in names + rates]]


def beside(title: str, compared: dict) -> list[list[str]]:
    rows = []
    for name, found in compared.items():
        if "paper" not in found:
            continue
        ours = str(common.Estimate(found["ours"], found["error"] if found["error"] is not None else math.nan))
        t, p, told = (found.get(key) for key in ("t", "p", "told"))
        tested = [f"{t:.1f}", f"{p:.2g}", f"±{number(told)}"] if t is not None and math.isfinite(t) else ["–"] * 3
        rows.append([title, name.replace("_", " "), number(found["paper"]), ours, f"{found['ratio']:.3g}", *tested])
    return rows


def moment_row(title: str, check: dict) -> list[str]:
    cells = []
    for name in ("mean", "second_moment"):
        found = check[name]
        z = "–" if found["z"] is None else f"{found['z']:.1f}"
        cells += [f"{found['value']:.2f} ± {found['error']:.2f}", z]
    return [title, *cells]


COMPARED = {"step_size": "step size", "acceptance": "acceptance", "ess": "ESS"}


def word_of(figure: str, found: dict) -> str:
    """Return the verdict on one figure of a row, with the difference that would have been found."""
    if found.get("p") is None or not math.isfinite(found["p"]):
        return f"not decided (one run, {found['ratio']:.2f} times the paper's)"
    word = verdict(found["p"], found["told"], 0.05 if figure == "acceptance" else found["paper"] / 2, COMPARISONS)
    return f"{word} (p = {found['p']:.2g}; told: ±{number(found['told'])})"


def aim_of(speed: dict, at_cap: bool, consistent: bool) -> str:
    """Return whether the ESS per second is a hundred times the paper's, by two standard errors."""
    if speed["n"] < 2:
        return "not decided, one run" + (" at the cap" if at_cap else "")
    margin = 2 * speed["error"] / speed["ours"]
    if speed["ratio"] * (1 + margin) < AIM:
        return "not reached"
    if speed["ratio"] * (1 - margin) < AIM or at_cap or not consistent:
        return "not decided" + ("" if consistent else ", v is not consistent with N(0, 9)")
    return "reached"


def verdict_of(name: str, compared: dict, check: dict, facts: list[dict]) -> str:
    """Return in words: ESS/s against the aim, step, acceptance and ESS against the paper's, v against N(0, 9)."""
    words = []
    speed, z = compared["ess_per_second"], [found["z"] for found in check.values()]
    few = min(fact["ess"] for fact in facts) < 10 or any(x is None for x in z)
    consistent = not few and max(map(abs, z)) < 3
    if "ratio" in speed:
        at_cap = min(fact["ess"] / common.cap(fact["draws"]) for fact in facts) > 0.99
        aim = "" if name == "emhmc" else f" ({AIM} asked: {aim_of(speed, at_cap, consistent)})"
        words.append(f"ESS/s {speed['ratio']:.3g} times the paper's{aim}")
        if at_cap:
            words.append("the ESS of v is at the cap, a figure of the cap's")
        if name in OTHER_SETTINGS:
            words.append("other settings than the paper's")
        else:
            words += [f"{short} {word_of(figure, compared[figure])}" for figure, short in COMPARED.items()]
    if few:
        words.append("too few effective draws to test v")
    else:
        words.append(f"v consistent with N(0, 9) (z up to {max(map(abs, z)):.1f})" if consistent else NOT_NORMAL)
    return "; ".join(words)


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    rows = [row for name, row in data["compared"].items() if name not in OTHER_SETTINGS and "ratio" in row["ess"]]
    groups = {short: [word_of(figure, row[figure]) for row in rows] for figure, short in COMPARED.items()}
    if not rows:
        return judging.opening([], because="The paper's table was not available.")
    return judging.opening(
        [word for words in groups.values() for word in words],
        because=f"{judging.tallies(groups)} Undecided ones have few runs.",
    )
