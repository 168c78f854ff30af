"""How long a run has the figures of Cobb et al.'s Table 1: KL and acceptance of the first n draws from the paper's start.

    python -m validation.cobb_lengths

Fixed steps, no warm-up. A test of the explanation that the paper's KL are those of chains that have seen less of the funnel
than 100,000 (or 1,000) draws of the kernels as printed see; and of another, that the jitter which the published program adds to
the metric (0.01 times a uniform number on the diagonal) is felt in the mouth: SoftAbs with alpha = 100 has that
floor, 0.01.
"""

from __future__ import annotations

import dataclasses

import numpy as np

import refhmc
from refhmc.metrics import SoftAbs
from validation import cobb_runs as runs
from validation import common

NAME = "cobb_lengths"
TRIALS = 40
JITTER = 0.01
LENGTHS = {
    "hmc_0.3896": (100, 300, 1000, 3000, 10_000),
    "hmc_0.2": (100, 300, 1000, 3000, 10_000),
    "implicit": (20, 50, 100, 300, 1000),
    "implicit, alpha = 100": (20, 50, 100, 300, 1000),
}
ROWS = {"hmc_0.3896": "HMC-NUTS", "hmc_0.2": "HMC hand-tuned for KL"}


def kernel_of(name: str):
    kernel = runs.schemes()[name.split(",")[0]].kernel
    return dataclasses.replace(kernel, metric=SoftAbs(alpha=100.0)) if "alpha" in name else kernel


def prefixes(name: str) -> list[dict]:
    """For each length: quantiles of KL over the runs, and the acceptance rate."""
    options = {"chains": TRIALS, "seed": 7, "starts": np.tile(runs.start(), (TRIALS, 1)), "cores": 1}
    done = common.run_chains(refhmc.models.Funnel(runs.N), kernel_of(name), draws=max(LENGTHS[name]), **options)
    rows = []
    for n in LENGTHS[name]:
        kl = np.array([runs.divergence(done.draws[k, :n, 0]) for k in range(TRIALS)])
        rate = common.over_trials(done.stats["acceptance_rate"][:, :n].mean(axis=1))
        quantiles = np.quantile(kl, [0.05, 0.5, 0.95], method="higher")
        rows.append({"draws": n, "kl_quantiles": quantiles, "acceptance": rate})
    return rows


def jittered(H: np.ndarray, rng) -> np.ndarray:
    """The metric with the program's jitter: the Hessian of -L, 0.01 u_i added to its diagonal, eigenvalues made positive."""
    values, vectors = np.linalg.eigh(H + np.diag(JITTER * rng.random(len(H))))
    return (vectors * np.abs(values)) @ vectors.T


def jitter_alone(n: int = 4000) -> common.Estimate:
    """E min(1, exp(H1 - H2)) where H1 and H2 are the energies of one and the same exact draw, each with its own jitter.

    What the accept rate would be if the integrator made no error at all.
    """
    rng, model = np.random.default_rng(11), refhmc.models.Funnel(runs.N)
    rates = []
    for q in model.reference.draw(rng, n):
        hessian = -model.hessian(q)
        p = np.linalg.cholesky(jittered(hessian, rng)) @ rng.standard_normal(model.dim)
        energies = []
        for _ in range(2):
            G = jittered(hessian, rng)
            energies.append(0.5 * p @ np.linalg.solve(G, p) + 0.5 * np.linalg.slogdet(G)[1])
        rates.append(np.exp(min(0.0, energies[0] - energies[1])))
    return common.over_trials(rates)


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
    alone = jitter_alone()
    text += (
        "\n\nThe accept rate that the program's jitter alone allows, the integrator making no error (4,000 exact draws, the "
        f"energy of each taken twice): {alone}; the paper's implicit scheme 0.93, ours without jitter 0.98."
    )
    data = {"lengths": found, "acceptance_of_jitter_alone": alone}
    common.write_results(NAME, "How long a run has the figures of Cobb et al.'s Table 1", text, data)


if __name__ == "__main__":
    main()
