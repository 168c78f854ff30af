"""Jolly-Seber: discontinuous HMC on the black-kneed capsid counts: ``python -m validation.jolly_seber [--quick]``.

1. The posterior of p, phi and log U by DHMC beside reference draws (component-wise Metropolis on the integers, no
   embedding): means, and the shares of our draws below their quantiles, with z-scores.
2. Effective draws for each evaluation of the density, of DHMC with several lengths and of plain Metropolis within Gibbs. A
   gradient counts as one evaluation, and so does the (cheap) change of the density by one coordinate, for both.

``python -m validation.discrete_peers`` has NumPyro's samplers on this and other models.
"""

from __future__ import annotations

import dataclasses
import time
import warnings

import numpy as np

import refhmc
from refhmc.models.datasets import load_json
from validation import judging, metropolis_within_gibbs
from validation.common import command_line, effective_sizes, markdown, save_figure, write_results
from validation.judging import POWER, Estimate, alarm_text, compare, number, over_trials, verdict

CHAINS = 4
LENGTHS = (10, 20, 50)
TABLE_LENGTH = 20
NAMES = [f"{base}[{i}]" for base, T in (("p", 13), ("phi", 12), ("log U", 13)) for i in range(1, T + 1)]
QUANTILES = {"q05": 0.05, "q50": 0.5, "q95": 0.95}


@dataclasses.dataclass
class Run:
    """Draws of p, phi, log U (chain, draw, 38); gradients and single-coordinate changes of a draw; seconds of all chains."""

    sampler: str
    values: np.ndarray
    gradients: float
    changes: float
    seconds: float
    note: str = ""

    def per_thousand(self, coordinates) -> Estimate:
        """Least effective sample size of some coordinates for 1,000 evaluations; chains are trials."""
        sizes = effective_sizes(self.values[..., coordinates]).min(axis=1)
        return over_trials(1000 * sizes / (self.values.shape[1] * (self.gradients + self.changes)))


def values_of(model, draws: np.ndarray) -> np.ndarray:
    """p, phi and log U of positions (chain, draw, 38)."""
    named = model.constrain(draws)
    return np.concatenate([named["p"], named["phi"], np.log(named["U"])], axis=2)


def by_dhmc(model, n_steps: int, draws: int, seed: int, cores: int) -> Run:
    kernel = refhmc.DHMC(n_steps=n_steps)
    options = {"chains": CHAINS, "cores": cores, "progressbar": False, "raw": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refhmc.sample(model, kernel, draws=10, tune=10, random_seed=0, **options)
        begin = time.process_time()
        result = refhmc.sample(model, kernel, draws=draws, tune=2000, random_seed=seed, **options)
    seconds = (time.process_time() - begin) * draws / (draws + 2000)
    stats = result.sample_stats
    gradients = float(np.mean(stats["n_gradient_evaluations"]))
    changes = float(np.mean(stats["n_density_evaluations"])) - gradients
    note = f"step {np.mean(stats['step_size_nom']):.3f}, accepted {np.mean(stats['acceptance_rate']):.2f}, "
    note += f"not turned back {np.mean(stats['no_flip_rate']):.2f}"
    return Run(f"DHMC, {n_steps} steps", values_of(model, result.draws), gradients, changes, seconds, note)


def by_metropolis(model, sweeps: int, seed: int) -> Run:
    starts = np.tile(model.initial, (CHAINS, 1))
    metropolis_within_gibbs.sample(model, sweeps=10, tune=10, starts=starts, seed=0)
    begin, tune = time.process_time(), max(sweeps // 10, 100)
    run = metropolis_within_gibbs.sample(model, sweeps=sweeps, tune=tune, starts=starts, seed=seed)
    seconds = (time.process_time() - begin) * sweeps / (sweeps + tune)
    note = f"accepted {run.accepted.min():.2f} to {run.accepted.max():.2f}"
    return Run("Metropolis within Gibbs", values_of(model, run.draws), 0, run.calls, seconds, note)


def share_below(x: np.ndarray, quantile: float, level: float) -> Estimate:
    """Share of draws (chain, draw) below a quantile of the reference, or up to it: of the two, which ties make, the nearer.

    Its error is that of a share which is ``level``.
    """
    shares, tie = (
        [],
        1e-6,
    )  # the reference's figures have eight digits; logs of neighbouring integers differ by 2e-4 and more
    for indicator in (x < quantile - tie, x <= quantile + tie):
        size = min(float(mean_sizes(indicator.astype(float)[..., None])[0]), x.size)
        shares.append(Estimate(float(indicator.mean()), float(np.sqrt(level * (1 - level) / size)), int(size)))
    low, high = shares
    if low.value <= level <= high.value:
        return dataclasses.replace(low, value=level)
    return low if low.value > level else high


def mean_sizes(draws: np.ndarray) -> np.ndarray:
    """ArviZ's effective sample size for the mean, not of ranks, of all chains together: (chain, draw, d) -> (d,)."""
    import arviz

    return np.array([float(arviz.ess(draws[..., k], method="mean")) for k in range(draws.shape[2])])


def posterior_rows(run: Run, summary: dict) -> list[dict]:
    """Each variable's mean and shares with their comparisons."""
    sizes = mean_sizes(run.values)
    rows = []
    for k, name in enumerate(NAMES):
        x, known = run.values[..., k], summary[name]
        ours = Estimate(float(x.mean()), float(x.std() / np.sqrt(sizes[k])), int(sizes[k]))
        theirs = Estimate(known["mean"], known["mcse_mean"], int(known["ess"]))
        row = {"name": name, "ours": ours, "theirs": theirs, "mean": compare(ours, theirs, 0.0)}
        for key, level in QUANTILES.items():
            published = Estimate(level, float(np.sqrt(level * (1 - level) / known["ess"])), int(known["ess"]))
            row[key] = share_below(x, known[key], level)
            row[f"{key} comparison"] = compare(row[key], published, 0.0)
        rows.append(row)
    return rows


def told_words(run: Run, rows: list[dict]) -> str:
    """What could have been told: of the means, in standard deviations of the posterior, and of the shares."""
    count, sd = len(rows) * (1 + len(QUANTILES)), run.values.std(axis=(0, 1))
    means = [row["mean"].told(count) / s for row, s in zip(rows, sd, strict=True)]
    shares = [row[f"{key} comparison"].told(count) for row in rows for key in QUANTILES]
    return (
        f"With probability {POWER:.0%} a difference would have been told of {np.median(means):.2g} standard deviations in a "
        f"mean (the least certain: {max(means):.2g}) and of {np.median(shares):.2g} in a share ({max(shares):.2g})."
    )


def posterior_table(rows: list[dict]) -> tuple[str, int, float]:
    """The table, how many of its comparisons differ, and the largest |z|."""
    count = len(rows) * (1 + len(QUANTILES))
    lines, differ, largest = [], 0, 0.0
    for row in rows:
        comparisons = [row["mean"], *(row[f"{key} comparison"] for key in QUANTILES)]
        verdicts = [verdict(c.p, count) for c in comparisons]
        differ += sum(v != "agrees" for v in verdicts)
        largest = max(largest, *(abs(c.z) for c in comparisons))
        line = [row["name"], f"{row['ours'].value:.4f} ± {row['ours'].error:.4f}"]
        line += [f"{row['theirs'].value:.4f} ± {row['theirs'].error:.4f}", f"{row['mean'].z:+.1f}"]
        line += [f"{row[key].value:.4f} ({row[f'{key} comparison'].z:+.1f})" for key in QUANTILES]
        lines.append([*line, "agrees" if all(v == "agrees" for v in verdicts) else "differs"])
    header = ["", "DHMC", "reference draws", "z", *(f"share below their {key} (z)" for key in QUANTILES), "verdict"]
    return markdown(header, lines), differ, largest


def efficiency_table(runs: list[Run]) -> tuple[str, list[dict]]:
    """ESS for 1,000 evaluations; seconds are the processor's, of a machine that did other things too."""
    first = NAMES.index("log U[1]")
    best = runs[-1].per_thousand([first]), runs[-1].per_thousand(slice(None))
    lines, data = [], []
    for run in runs:
        one, least = run.per_thousand([first]), run.per_thousand(slice(None))
        total = run.values.shape[0] * run.values.shape[1]
        second = effective_sizes(run.values).sum(axis=0).min() / run.seconds
        line = [run.sampler, f"{total:,}", f"{run.gradients:.1f} + {run.changes:.1f}", str(one), str(least)]
        line += [f"{one.value / best[0].value:.1f}", f"{least.value / best[1].value:.1f}", number(second), run.note]
        lines.append(line)
        data.append({"sampler": run.sampler, "draws": total, "gradients": run.gradients, "changes": run.changes})
        data[-1].update(ess_log_U1_per_1000=one, ess_least_per_1000=least, ess_least_per_second=second, note=run.note)
    header = ["sampler", "draws", "gradients + changes a draw", "ESS(log U_1) / 1,000", "least ESS / 1,000"]
    header += ["ratio, log U_1", "ratio, least", "least ESS / s", ""]
    return markdown(header, lines), data


def draw_figure(run: Run, summary: dict) -> None:
    """U by occasion, and how log U_1 mixes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    occasions, U = np.arange(1, 14), np.exp(run.values[..., -13:].reshape(-1, 13))
    low, middle, high = np.quantile(U, [0.05, 0.5, 0.95], axis=0)
    axes[0].vlines(occasions - 0.1, low, high, color="C0", label="DHMC, 5 to 95 %")
    axes[0].plot(occasions - 0.1, middle, "o", color="C0", markersize=4)
    known = np.array([[summary[f"U[{i}]"][key] for key in ("q05", "q50", "q95")] for i in occasions])
    axes[0].vlines(occasions + 0.1, known[:, 0], known[:, 2], color="C1", label="reference draws")
    axes[0].plot(occasions + 0.1, known[:, 1], "o", color="C1", markersize=4)
    axes[0].set(xlabel="occasion", ylabel="unmarked animals U", yscale="log")
    axes[0].legend()
    axes[1].plot(U[:2000, 0], linewidth=0.6)
    axes[1].set(xlabel="draw", ylabel="$U_1$", yscale="log", title=run.sampler)
    save_figure(figure, "jolly_seber")


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    n = len(NAMES) * (1 + len(QUANTILES))
    return judging.line(
        "Found",
        f"{n - data['differ']} of {n} comparisons with our reference draws agree; the largest |z| is {data['largest_z']:.1f}.",
    )


def main() -> None:
    chosen = command_line(__doc__, trials=CHAINS, draws=10_000)
    sweeps = 5 * chosen.draws
    model, summary = refhmc.models.JollySeber(), load_json("jolly_seber_posterior")["summary"]
    runs = []
    for k, n_steps in enumerate(LENGTHS):
        runs.append(by_dhmc(model, n_steps, chosen.draws, chosen.seed + k, chosen.cores))
        print(runs[-1].sampler, runs[-1].note, f"{runs[-1].seconds:.0f} s", flush=True)
    runs.append(by_metropolis(model, sweeps, chosen.seed + 9))
    shown = runs[LENGTHS.index(TABLE_LENGTH)]
    rows = posterior_rows(shown, summary)
    table, differ, largest = posterior_table(rows)
    text, data = efficiency_table(runs)
    comparisons = len(NAMES) * (1 + len(QUANTILES))
    words = told_words(shown, rows)
    parts = [
        f"DHMC of {TABLE_LENGTH} steps, {CHAINS} chains of {chosen.draws:,} draws, seed {chosen.seed}, beside draws by "
        "component-wise Metropolis on the integers themselves (`refhmc/data/jolly_seber_posterior.json`).",
        words,
        table,
        alarm_text(comparisons),
        "## Effective draws for each evaluation of the density",
        "ArviZ's bulk ESS of p, phi and log U, a chain by itself, with standard errors over the chains; ratios to plain "
        "Metropolis within Gibbs (each coordinate a normal step, tuned to 44 %, the same coordinates). A gradient counts as "
        "one evaluation, a change of the density by one coordinate as one, too, though it takes a tenth of the time of the "
        "density. Seconds are the processor's on a machine busy with other work; the Metropolis sampler evaluates the full "
        "density for p and phi.",
        text,
        "![U by occasion, and draws of U_1](jolly_seber.png)",
    ]
    print(table, words, text, sep="\n\n")
    if not chosen.quick:
        draw_figure(shown, summary)
        facts = {"draws": chosen.draws, "seed": chosen.seed, "largest_z": largest, "differ": differ, "efficiency": data}
        write_results("jolly_seber", "Jolly-Seber by discontinuous HMC", "\n\n".join(parts), facts, opening)


if __name__ == "__main__":
    main()
