"""Effective sample sizes of Cobb and Jalaian (2021), tables 1 to 3, beside those of processes with known correlation times.

    python -m validation.cobb_jalaian_sizes

The printed sizes are Pyro's, whose formula is that of cobb_jalaian_table2_full.py. It is never small: it counts several
effective draws of a chain that has hardly moved in comparison with the posterior, however long the chain is. Here it is applied
to chains of n draws of an autoregression with the correlation time T,

    x_i+1 = phi x_i + sqrt(1 - phi^2) z_i,      phi = exp(-1/T),      effective sample size n (1 - phi) / (1 + phi) ~ n / (2 T)

and to a random walk, x_i+1 = x_i + z_i, to which it tends for T much larger than n. Chains start at independent draws of the
stationary distribution, or all at its mean; those of a random walk start at zero or 10 sqrt(n) apart.
"""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

from validation import cobb_jalaian_schemes as schemes
from validation import common, judging
from validation.cobb_jalaian_table2_full import pyro_size

NAME = "cobb_jalaian_sizes"
TIMES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # in units of the length of a chain
LENGTHS = (800, 3000)  # of the chains of table 2 after burn-in, and of table 1
COLUMNS, TOGETHER, FAR = 400, {800: 10, 3000: 5}, 10.0
TABLES = ("cobb_jalaian_2021_table1", "cobb_jalaian_2021_table2", "cobb_jalaian_2021_table3")
NOTES = """Compare the printed sizes with these columns. Table 3 has 6.2 to 6.4, alike for acceptance rates from 0.66 to 0.89.
Single chains have such sizes if T is 0.5 to 1 of their length, and ten chains together if T is twice their length. Table 2 has
9.1 to 10: single chains with T of 0.1 to 0.15 of their length, or ten together with 0.5 to 2. Our chains of full HMC in table
2 have 5.9 each and 6.0 together ([cobb_jalaian_table2_full](cobb_jalaian_table2_full.md)); T is then at least their length.
Table 1 has 38 to 75 of 3,000 draws: single chains with T of 20 to 50 draws, or five together with 100 to 200. The paper does
not say which chains its sizes are of. Tables 1 and 3 were not run at full length here. From the time of 80 gradients, a chain
of table 1 would take about two hours of a core."""


def autoregression(rng: np.random.Generator, chains: int, n: int, time: float, apart: bool) -> np.ndarray:
    """Return draws (chains, n, COLUMNS) with a correlation time of ``time`` draws; infinite is a random walk."""
    noise = rng.standard_normal((chains, n, COLUMNS))
    first = rng.standard_normal((chains, COLUMNS)) if apart else np.zeros((chains, COLUMNS))
    if np.isinf(time):
        return np.cumsum(noise, axis=1) + FAR * np.sqrt(n) * first[:, None]
    phi = np.exp(-1 / time)
    noise *= np.sqrt(1 - phi**2)
    noise[:, 0] = first
    return lfilter([1.0], [1.0, -phi], noise, axis=1)


def sizes_of(n: int, share: float, seed: int) -> dict:
    """Return the mean sizes of one chain and of several together for the correlation time ``share`` n."""
    rng, together = np.random.default_rng(seed), TOGETHER[n]
    found = {"n": n, "share": share, "together": together, "exact": 0.0}
    if np.isfinite(share):
        phi = np.exp(-1 / (share * n))
        found["exact"] = n * (1 - phi) / (1 + phi)
    for name, apart in (("apart", True), ("common", False)):
        draws = autoregression(rng, together, n, share * n, apart)
        found[f"alone_{name}"] = float(np.mean([pyro_size(each[None]).mean() for each in draws]))
        found[f"together_{name}"] = float(pyro_size(draws).mean())
    return found


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    walk = next(row for row in data["rows"] if not row["exact"])
    return judging.line(
        "Undecided",
        f"the printed sizes of tables 2 and 3 are near that of a random walk, {walk['alone_apart']:.1f}. The paper does not "
        "say which chains they are of.",
    )


def main() -> None:
    chosen = common.command_line(__doc__, trials=1, draws=max(LENGTHS))
    lengths = LENGTHS[:1] if chosen.quick else LENGTHS
    rows = [sizes_of(n, share, chosen.seed) for n in lengths for share in (*TIMES, np.inf)]
    of_one, of_several = ("exact", "alone_apart", "alone_common"), ("together_apart", "together_common")
    table = [
        [row["n"], f"{row['share']:g}" if row["exact"] else "random walk", *(f"{row[key]:.1f}" for key in of_one)]
        + [row["together"], *(f"{row[key]:.1f}" for key in of_several)]
        for row in rows
    ]
    header = [
        "draws n",
        "T / n",
        "exact",
        "one chain",
        "one chain from the mean",
        "chains",
        "together",
        "from one start",
    ]
    found = {name[-1]: schemes.paper_rows(name) for name in TABLES}
    printed = [
        [which, *(f"{paper[scheme]['mean_ess']:g}" for scheme in schemes.INTEGRATORS)]
        for which, paper in found.items()
        if paper
    ]
    parts = [
        (__doc__ or "").split("\n\n", 2)[2].strip(),
        common.markdown(header, table),
        "Printed:",
        common.markdown(["table", *schemes.INTEGRATORS], printed),
        *([] if chosen.quick else [NOTES]),
    ]
    title = "Effective sample sizes of Cobb and Jalaian (2021), by Pyro's formula"
    data = {"command": vars(chosen), "rows": rows}
    common.write_results(NAME + ("_quick" if chosen.quick else ""), title, "\n\n".join(parts), data, opening)


if __name__ == "__main__":
    main()
