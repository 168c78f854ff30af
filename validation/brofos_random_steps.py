"""Brofos and Lederman (2021), Table 1: were the runs made with a fixed or with a random number of steps?

    python -m validation.brofos_random_steps

Their program draws the number of steps of each trajectory uniformly from 1, ..., L unless it is told not to, and its list of
jobs has every setting both ways; the paper does not say which of them its tables show. Here both are run on the banana of
Table 1, step 0.1 (``HMC(trajectory_length=step * (L + 1) / 2, length_jitter=L / (L + 1))`` for the random one), and set beside
the printed mean effective sample size and acceptance.
"""

from __future__ import annotations

import numpy as np

import refhmc
from refhmc.metrics import Fisher
from validation import common, judging
from validation.brofos_table1 import banana
from validation.brofos_tables import integrator
from validation.judging import alarm_text, compare, level, over_trials, verdict

NAME = "brofos_random_steps"
STEP, TRIALS, DRAWS, SEED = 0.1, 6, 10_000, 2021
METHODS, LENGTHS = ("I.M.(a)", "G.L.F.(b)"), (5, 10, 50)
FIGURES = {"mean_ess": "mean_ess_se", "acceptance": "acc_prob_se"}


def kernel(method: str, L: int, random: bool) -> refhmc.HMC:
    """L steps, or as many as the program draws."""
    more = {"trajectory_length": STEP * (L + 1) / 2, "length_jitter": L / (L + 1)} if random else {"n_steps": L}
    return refhmc.HMC(step_size=STEP, metric=Fisher(), integrator=integrator(method), **more)


def figures(method: str, L: int, random: bool) -> dict:
    """Mean effective sample size over the coordinates, acceptance and steps of each trial."""
    found: dict = {"mean_ess": [], "acceptance": [], "steps": []}
    for trial in range(TRIALS):
        model, start = banana(SEED, trial)
        options = {"draws": DRAWS, "chains": 1, "seed": (SEED, trial), "starts": start[None], "cores": 1, "warm": False}
        chains = common.run_chains(model, kernel(method, L, random), **options)
        found["mean_ess"].append(float(np.mean(common.effective_sizes(chains.draws)[0])))
        found["acceptance"].append(float(chains.stats["is_accepted"].mean()))
        found["steps"].append(float(chains.stats["n_steps"].mean()))
    return found


def main() -> None:
    table = common.paper_table("brofos_lederman_2021_table1") or []
    printed = {(row["method"], int(row["num_steps"])): row for row in table}
    m = len(METHODS) * len(LENGTHS) * 2 * len(FIGURES)
    rows, lines = [], []
    for method in METHODS:
        for L in LENGTHS:
            for random in (False, True):
                found = figures(method, L, random)
                theirs, cells = printed.get((method, L)), []
                for figure, error in FIGURES.items():
                    ours = over_trials(found[figure])
                    cells.append(str(ours))
                    if theirs is None:
                        cells += ["–"] * 3
                        continue
                    value = theirs["mean_ess" if figure == "mean_ess" else "acc_prob"]
                    beside = compare(ours, common.Estimate(value, theirs[error]))
                    word = verdict(beside.p, m)
                    found |= {f"{figure}_p": beside.p, f"{figure}_verdict": word, f"{figure}_told": beside.told(m)}
                    cells += [
                        common.number(value),
                        f"{beside.p:.1g}",
                        f"{word} (told: ±{common.number(beside.told(m))})",
                    ]
                law = f"uniform on 1 to {L}" if random else str(L)
                steps = f"{np.mean(found['steps']):.2f}"
                lines.append([method, law, steps, *cells])
                rows.append({"method": method, "L": L, "random": random, **found})
                print(*lines[-1], flush=True)
    header = [
        "method",
        "steps",
        "their mean",
        "mean ESS",
        "paper",
        "p",
        "verdict",
        "acceptance",
        "paper",
        "p",
        "verdict",
    ]
    text = (__doc__ or "").split("\n\n", 2)[2].strip() + "\n\n" + common.markdown(header, lines) + "\n\n"
    text += f"{TRIALS} trials of {DRAWS} draws. {alarm_text(m)}\n\n{conclusion(rows)}"
    common.write_results(
        NAME, "Table 1 of Brofos and Lederman (2021): fixed or random numbers of steps", text, {"rows": rows}, opening
    )


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    by_law: dict[bool, list[str]] = {False: [], True: []}
    for row in data["rows"]:
        by_law[row["random"]] += [row[f"{figure}_verdict"] for figure in FIGURES if f"{figure}_verdict" in row]
    because = f"With a random number of steps: {judging.tally(by_law[True])}." if by_law[True] else ""
    return judging.opening(by_law[False], because=f"These are with a fixed number of steps. {because}")


def conclusion(rows: list[dict]) -> str:
    """Of either law, how many figures differ from the printed ones."""
    if "mean_ess_p" not in rows[0]:
        return "The paper's table is not here."
    words = []
    for random, law in ((False, "fixed"), (True, "random")):
        those = [row for row in rows if row["random"] is random]
        differ = sum(row[f"{figure}_p"] < level(2 * len(FIGURES) * len(those)) for row in those for figure in FIGURES)
        words.append(
            f"with a {law} number of steps {differ} of {len(FIGURES) * len(those)} figures differ from the printed ones"
        )
    return f"{words[0][0].upper()}{words[0][1:]}, {words[1]}."


if __name__ == "__main__":
    main()
