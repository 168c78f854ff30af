"""Does a short run have the figures of Cobb et al.'s Table 1? KL and acceptance of n transitions from the paper's start.

    python -m validation.cobb_lengths

Of the chain of Metropolis and Hastings, and of the program's own (cobb_program.py), which is not restored after a rejection and
records whole accepted trajectories. Fixed steps, no warm-up, no jitter. KL falls as a chain grows, so that some length of any
chain has the printed KL: a length explains a row only if the acceptance at that length is the printed one too, and if it is the
printed length, 100,000 transitions of HMC and 1,000 of the implicit scheme.
"""

from __future__ import annotations

import numpy as np

import refhmc
from validation import cobb_runs as runs
from validation import common, judging
from validation.cobb_program import Rule, chain

NAME = "cobb_lengths"
TRIALS = 10
HMC = (100, 300, 1000, 10_000, 100_000)
LENGTHS = {"hmc_0.3896": HMC, "hmc_0.2": HMC, "implicit": (20, 50, 100, 300, 1000)}
RULES = {"Metropolis": Rule(), "program": Rule(restores=False, whole=True)}


def prefixes(name: str, rule: str) -> list[dict]:
    """For each length: quantiles of KL over the runs, and the acceptance rate."""
    scheme, model, rows = runs.schemes()[name], refhmc.models.Funnel(runs.N), []
    for n in LENGTHS[name]:
        done = [chain(model, scheme.kernel, RULES[rule], runs.start(), n, (7, k)) for k in range(TRIALS)]
        kl = [runs.divergence(one.recorded[:, 0]) for one in done]
        quantiles = np.quantile(kl, [0.05, 0.5, 0.95], method="higher")
        rates = [one.acceptance for one in done]
        rows.append({"draws": n, "kl_quantiles": quantiles, "acceptance": np.quantile(rates, [0.05, 0.5, 0.95])})
    return rows


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    last = {rule: [rows[rule][-1] for rows in data["lengths"].values()] for rule in ("Metropolis", "program")}
    right, program = (sum(all(row["contains_the_printed"]) for row in rows) for rows in last.values())
    return judging.line(
        "Found",
        f"at the printed lengths both printed figures are within the range of the program's chain in {program} of "
        f"{len(last['program'])} rows, and of the correct chain in {right}.",
    )


def main() -> None:
    write({name: {rule: prefixes(name, rule) for rule in RULES} for name in LENGTHS})


def write(found: dict) -> None:
    papers = {line["scheme"]: line for line in common.paper_table("cobb_2019_table1") or []}
    lines = []
    for name, by_rule in found.items():
        paper = papers.get(runs.schemes()[name].paper)
        theirs = [np.nan, np.nan] if paper is None else [paper["kl_p_v_q_v"], paper["acc_rate"]]
        for rule, rows in by_rule.items():
            for row in rows:
                spans = ((row["kl_quantiles"], 0.0005), (row["acceptance"], 0.005))
                inside = [low - r <= x <= high + r for ((low, _, high), r), x in zip(spans, theirs, strict=True)]
                row["contains_the_printed"] = None if paper is None else inside
                words = (
                    "–"
                    if paper is None
                    else "both"
                    if all(inside)
                    else "KL"
                    if inside[0]
                    else "acceptance"
                    if inside[1]
                    else "none"
                )
                kl = [common.number(x) if np.isfinite(x) else "∞" for x in row["kl_quantiles"]]
                rate = [f"{x:.3f}" for x in row["acceptance"]]
                shown = [common.number(theirs[0]), common.number(theirs[1])]
                lines.append([name, rule, row["draws"], *kl, shown[0], *rate, shown[1], words])
    header = [
        "row",
        "chain",
        "transitions",
        "KL, 5 %",
        "median",
        "95 %",
        "paper",
        "acceptance, 5 %",
        "median",
        "95 %",
        "paper",
    ]
    text = (__doc__ or "").split("\n\n", 2)[
        2
    ] + f'\n{TRIALS} runs each; "within": which printed figures lie between the 5 % and '
    text += "the 95 % points.\n\n" + common.markdown([*header, "within"], lines) + "\n\n" + CONCLUSION
    common.write_results(
        NAME, "How long a run has the figures of Cobb et al.'s Table 1", text, {"lengths": found}, opening
    )


CONCLUSION = """At the printed length the program's chain has both figures of either HMC row, and the right chain has none of
them. The right chain has both only in its first 100 to 1,000 transitions, where KL is scattered over a factor of three to
twelve. (An earlier version of this page took that for the explanation.) No length of the implicit scheme has both, with either
chain: its acceptance needs the program's jitter (cobb_table1.md)."""


if __name__ == "__main__":
    main()
