"""Full HMC of Table 2 of Cobb and Jalaian (2021): acceptance of 30 chains, and the printed effective sample size.

    python -m validation.cobb_jalaian_table2_full

The setting is that of cobb_jalaian_table2.py. The first ten chains are those of its page (``--full``), and the others are new.

The paper's effective sample size is Pyro's, and its table does not say of which chains. Here Pyro's formula is applied to each
chain, and to ten chains together. With x_ci, draw i of chain c of C chains of n draws, W the mean of the chains' variances
(divisor n - 1), B the variance of their means and g_k the mean of their autocovariances (divisor n),

    rho_k = 1 - (W - g_k) / (W (n - 1) / n + B),     ESS = C n / (2 sum_k P_k - 1),     P_k = rho_2k + rho_2k+1

where rho_k = g_k / g_0 for one chain, and the P_k after the first are replaced by their least value so far, at least 0. (The
same as NumPyro's effective_sample_size, to the last digits.) The mean is over 1,041 of the weights.
"""

from __future__ import annotations

import json

import numpy as np
from scipy import signal

from validation import cobb_jalaian_schemes as schemes
from validation import common, judging
from validation.cobb_jalaian_sets import regression_network
from validation.cobb_jalaian_table2 import FULL, SETTING
from validation.cobb_jalaian_table2 import NAME as TABLE

NAME = "cobb_jalaian_table2_full"
SEED, CHAINS, EVERY = 2027, 20, 10
PRINTED_SIZE = 9.3


def pyro_size(draws: np.ndarray) -> np.ndarray:
    """Return the effective sample size (d,) of draws (C, n, d) by the formula above."""
    C, n, _ = draws.shape
    x = draws - draws.mean(axis=1, keepdims=True)
    sums = [signal.correlate(each[:, j], each[:, j], method="fft")[n - 1 :] for each in x for j in range(x.shape[2])]
    g = np.reshape(sums, (C, x.shape[2], n)).mean(axis=0) / n
    W = draws.var(axis=1, ddof=1).mean(axis=0)
    rho = g / g[:, :1]
    if C > 1:
        B = draws.mean(axis=1).var(axis=0, ddof=1)
        rho = 1 - (W[:, None] - g) / (W * (n - 1) / n + B)[:, None]
        rho[:, 0] = 1.0
    pairs = rho[:, : n // 2 * 2 : 2] + rho[:, 1::2]
    pairs[:, 1:] = np.minimum.accumulate(np.maximum(pairs[:, 1:], 0.0), axis=1)
    return C * n / (2 * pairs.sum(axis=1) - 1)


def job(k: int, draws: int, burn: int, seed: int) -> dict:
    """Return the acceptance of a chain and some of its weights after the first draws."""
    run = schemes.chain(regression_network(), SETTING, schemes.FULL, draws, (seed, k), schemes.RIGHT)
    return {"acceptance": float(run.accepted.mean()), "draws": run.draws[burn:, ::EVERY].astype(np.float32)}


def shown(values: list[float]) -> str:
    """Return a mean with its standard error."""
    found = judging.over_trials(values)
    return f"{found.value:.3f} ± {found.error:.3f}"


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    return judging.opening([data["verdict"]])


def main() -> None:
    chosen = common.command_line(__doc__, trials=CHAINS, draws=FULL["draws"], seed=SEED)
    if chosen.quick:
        chosen.draws = 20
    jobs = [(k, chosen.draws, chosen.draws // 5, chosen.seed) for k in range(chosen.trials)]
    runs = list(common.in_processes(job, jobs, chosen.cores))
    with open(common.RESULTS / f"{TABLE}.json", encoding="utf-8") as file:
        stored = json.load(file)
    rates = [run["acceptance"] for run in stored["runs"][schemes.FULL]] + [run["acceptance"] for run in runs]
    table = schemes.paper_rows("cobb_jalaian_2021_table2")
    if table is None:
        raise SystemExit("the printed table is missing")
    judged = schemes.beside({schemes.FULL: rates}, table)[schemes.FULL]
    draws = np.stack([run["draws"] for run in runs]).astype(float)
    alone = [float(pyro_size(each[None]).mean()) for each in draws]
    tens = [float(pyro_size(draws[k : k + 10]).mean()) for k in range(0, len(draws) // 10 * 10, 10)]
    rows = [
        ["acceptance", len(rates), shown(rates), f"{judged['paper'].value:.3f} ± {judged['paper'].error:.3f}"],
        ["ESS of one chain", len(alone), shown(alone), PRINTED_SIZE],
        ["ESS of ten chains together", 10 * len(tens), ", ".join(f"{x:.1f}" for x in tens), PRINTED_SIZE],
    ]
    text = (__doc__ or "").split("\n\n", 2)[2].strip() + "\n\n"
    text += common.markdown(["figure", "chains", "ours", "printed"], rows)
    text += (
        f"\n\nAcceptance: p = {judged['p']:.2g} ({judged['verdict']}); a difference of {judged['told']:.2g} would have been "
        "found. The effective sample sizes are not judged."
    )
    data = {"rates": rates, "verdict": judged["verdict"], "alone": alone, "together": tens, "command": vars(chosen)}
    title = "Table 2 of Cobb and Jalaian (2021): full HMC with 30 chains"
    common.write_results(NAME + ("_quick" if chosen.quick else ""), title, text, data, opening)


if __name__ == "__main__":
    main()
