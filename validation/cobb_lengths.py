"""How long a run has the figures of Cobb et al.'s Table 1: KL and acceptance of the first n draws from the paper's start.

    python -m validation.cobb_lengths

Fixed steps, no warm-up. A test of the explanation that the paper's KL are those of chains that have seen less of the funnel
than 100,000 draws of the kernels as printed see. (Those of the Riemannian rows have another reason, cobb_table1.md.)
"""

from __future__ import annotations

import numpy as np

import refhmc
from validation import cobb_runs as runs
from validation import common

NAME = "cobb_lengths"
TRIALS = 40
LENGTHS = {
    "hmc_0.3896": (100, 300, 1000, 3000, 10_000),
    "hmc_0.2": (100, 300, 1000, 3000, 10_000),
    "implicit": (20, 50, 100, 300, 1000),
}
ROWS = {"hmc_0.3896": "HMC-NUTS", "hmc_0.2": "HMC hand-tuned for KL"}


def prefixes(name: str) -> list[dict]:
    """For each length: quantiles of KL over the runs, and the acceptance rate."""
    options = {"chains": TRIALS, "seed": 7, "starts": np.tile(runs.start(), (TRIALS, 1)), "cores": 1}
    done = common.run_chains(
        refhmc.models.Funnel(runs.N), runs.schemes()[name].kernel, draws=max(LENGTHS[name]), **options
    )
    rows = []
    for n in LENGTHS[name]:
        kl = np.array([runs.divergence(done.draws[k, :n, 0]) for k in range(TRIALS)])
        rate = common.over_trials(done.stats["acceptance_rate"][:, :n].mean(axis=1))
        quantiles = np.quantile(kl, [0.05, 0.5, 0.95], method="higher")
        rows.append({"draws": n, "kl_quantiles": quantiles, "acceptance": rate})
    return rows


def main() -> None:
    papers = {line["scheme"]: line for line in common.paper_table("cobb_2019_table1") or []}
    found = {name: prefixes(name) for name in LENGTHS}
    lines = []
    for name, rows in found.items():
        paper = papers.get(ROWS.get(name, "Implicit RMHMC"))
        theirs = ["–", "–"] if paper is None else [paper["kl_p_v_q_v"], paper["acc_rate"]]
        for row in rows:
            kl = [common.number(x) if np.isfinite(x) else "∞" for x in row["kl_quantiles"]]
            lines.append([name, row["draws"], *kl, theirs[0], str(row["acceptance"]), theirs[1]])
    header = ["row", "first draws", "KL, 5 %", "median", "95 %", "paper", "acceptance", "paper"]
    text = (__doc__ or "").split("\n\n", 2)[2] + f"\n{TRIALS} runs each.\n\n" + common.markdown(header, lines)
    data = {"lengths": found}
    common.write_results(NAME, "How long a run has the figures of Cobb et al.'s Table 1", text, data)


if __name__ == "__main__":
    main()
