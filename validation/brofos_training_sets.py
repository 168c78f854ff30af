"""Which rows of the data tables 5 to 7 of Brofos and Lederman (2021) were made with.

The paper's data are fold 0 of Raetsch's benchmarks. Its row numbers are known for the heart disease data (table 7 is that of
the 100 test rows, :mod:`validation.brofos_tables5to7`), not for the other two, nor is Raetsch's coding of the breast cancer
categories. This command draws sets of rows at random, as many as Raetsch's training sets have or as many as his test sets have,
and gives the acceptance at step 1 and 5 steps for each, beside the paper's. For the breast cancer data it also codes the
categories anew, alphabetically or at random.

I.M.(b): a chain of ``--draws`` from the posterior mode, without its first 50. G.L.F.(b): short chains from draws of that
chain, since from the mode the first steps are accepted more often than the later ones. The paper's figure is one more
observation beside our n: t = (paper - mean) / (sd sqrt(1 + 1/n)), Student's with n - 1 degrees of freedom. Of m p's together
those below 1 - (1 - ALARM)^(1/m) exclude a size (:mod:`validation.judging`).
"""

from __future__ import annotations

import math

import numpy as np
import scipy.stats

import refhmc
from validation import judging
from validation.brofos_sets import CODINGS, FILES, SIZES, mode_of, random_set
from validation.brofos_tables import UNCHECKED, integrator
from validation.common import command_line, markdown, run_chains, write_results
from validation.judging import ALARM, level

PAPER = {5: (0.20, 0.88), 6: (0.71, 0.97), 7: (0.05, 0.70)}  # G.L.F., I.M. at step 1, 5 steps
CASES = [(number, size, "rank") for number in FILES for size in SIZES]
CASES += [(5, "training", coding) for coding in CODINGS[1:]]
SHORT_CHAINS, SHORT = 20, 20


def acceptances(model, draws: int, seed) -> tuple[float, float]:
    """Fractions accepted of G.L.F.(b) and I.M.(b), step 1, 5 steps."""

    def chains(method: str, starts: np.ndarray, n: int):
        kernel = refhmc.HMC(
            step_size=1.0, n_steps=5, metric=refhmc.metrics.Fisher(), integrator=integrator(method, max_iterations=100)
        )
        return run_chains(model, kernel, draws=n, chains=len(starts), seed=seed, starts=starts, cores=1, warm=False)

    long = chains("I.M.(b)", mode_of(model)[None], draws)
    starts = long.draws[0, 50 :: max((draws - 50) // SHORT_CHAINS, 1)][:SHORT_CHAINS]
    short = chains("G.L.F.(b)", starts, SHORT)
    return float(short.stats["is_accepted"].mean()), float(long.stats["is_accepted"][0, 50:].mean())


def spread(values: np.ndarray, paper: float) -> dict:
    """Mean, standard deviation and range over the sets, and the paper's figure as one more observation."""
    n, mean, sd = len(values), float(values.mean()), float(values.std(ddof=1))
    t = (paper - mean) / math.hypot(sd * math.sqrt(1 + 1 / n), 0.005 / math.sqrt(3))
    p = float(2 * scipy.stats.t.sf(abs(t), n - 1))
    return {"paper": paper, "mean": mean, "sd": sd, "least": values.min(), "most": values.max(), "t": t, "p": p}


def make(chosen) -> None:
    """Run all sets and write what there is after each case."""
    out: list[dict] = []
    for number, size, coding in CASES:
        pairs = []
        for trial in range(chosen.trials):
            rng = np.random.default_rng([chosen.seed, number, CODINGS.index(coding), trial])
            pairs.append(acceptances(random_set(number, size, coding, rng), chosen.draws, [chosen.seed, trial]))
        both = np.array(pairs)
        row = {"table": number, "size": size, "n": SIZES[size][number], "coding": coding, "sets": chosen.trials}
        row |= {name: spread(both[:, k], PAPER[number][k]) for k, name in enumerate(("glf", "im"))}
        out.append(row)
        print(row, flush=True)
        report(out, chosen)


def excluded(row: dict) -> bool:
    """Whether sets like these do not have the paper's acceptance."""
    return min(row["glf"]["p"], row["im"]["p"]) < level(2 * len(CASES))


def found_text(out: list[dict]) -> str:
    """What the p's say of either size."""
    words = []
    for row in out:
        p = min(row["glf"]["p"], row["im"]["p"])
        coding = "" if row["coding"] == "rank" else f", coding {row['coding']}"
        word = "excluded" if excluded(row) else "not excluded"
        words.append(f"table {row['table']}, {row['n']} rows ({row['size']}{coding}): {word} (p = {p:.1g})")
    return (
        f"The smaller p of the two integrators excludes a case if it is below {level(2 * len(CASES)):.2g} = 1 - (1 - {ALARM})"
        f"^(1/{2 * len(CASES)}) (Sidak, all p's of this table). Case by case: {'; '.join(words)}. What is not excluded is not "
        "shown to be the paper's. Of table 7 it is known: the 100 test rows of Raetsch's first split (`brofos_table7.md`), one "
        "of the sets that are drawn at random here."
    )


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    words = []
    for size in ("training", "test"):
        rows = [row for row in data["rows"] if row["size"] == size]
        words.append(f"for {sum(map(excluded, rows))} of {len(rows)} cases of the {size} sets' size")
    return judging.line("Found", f"the printed acceptances are excluded {' and '.join(words)}.")


def report(out: list[dict], chosen) -> None:
    """The table of spreads."""
    body = []
    for row in out:
        cells = [row["table"], f"{row['n']} ({row['size']})", row["coding"], row["sets"]]
        for name in ("glf", "im"):
            r = row[name]
            cells += [f"{r['paper']:.2f}", f"{r['mean']:.3f} ± {r['sd']:.3f}", f"{r['least']:.3f} to {r['most']:.3f}"]
            cells += [f"{r['t']:+.1f}", f"{r['p']:.1g}"]
        body.append(cells)
    header = ["table", "rows", "coding", "sets"]
    header += [f"{m}: {w}" for m in ("G.L.F.", "I.M.") for w in ("paper", "ours, mean ± sd", "range", "t", "p")]
    text = [
        f"`python -m validation.brofos_training_sets`: acceptance at step 1 and 5 steps, {chosen.draws} draws of I.M.(b) and "
        f"{SHORT_CHAINS * SHORT} of G.L.F.(b) for each random set of rows, seed {chosen.seed}. {UNCHECKED} ± is the standard "
        "deviation "
        "over the sets; t sets the paper's figure beside them as one more observation.",
        found_text(out),
        markdown(header, body),
    ]
    name = "brofos_training_sets" + ("_quick" if chosen.quick else "")
    title = "Brofos and Lederman (2021), tables 5 to 7: which rows of the data"
    write_results(name, title, "\n\n".join(text), {"command": vars(chosen), "alarm": ALARM, "rows": out}, opening)


if __name__ == "__main__":
    make(command_line(__doc__, trials=20, draws=600))
