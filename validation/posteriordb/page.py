"""The page of :mod:`validation.posteriordb`: its tables and judgements, from the recorded runs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from types import ModuleType
from typing import Any

import scipy.stats

from validation.benchmarks.common import table
from validation.benchmarks.peers import number, spread
from validation.posteriordb.samplers import DEFAULTS, PEERS, SAMPLERS

NAME = "posteriordb"
FALSE_ALARM = (
    1e-3  # the chance that any z-score of a sampler on the page is above the critical value, if all draws are right
)
MOST_R_HAT = 1.01
LEAST_PER_GRADIENT, LEAST_PER_SECOND = 1.0, 2.0
LEVEL = 0.95  # of the interval of a median over posteriors
FEWEST = 50  # posteriors with a peer for which the wanted median is decided

KINDS = ("diverged", "max_treedepth", "R-hat is", "effective sample size", "far apart", "no progress")  # of warnings

Cell = dict[str, Any]
Cells = dict[str, dict[str, Cell]]

HEADER = """{count} posteriors of [posteriordb](https://github.com/stan-dev/posteriordb), each written in a file of
`validation/posteriordb/posteriors/` as a user of refhmc would write it. Four chains run one after another, with 1,000
iterations of warm-up and 1,000 draws. refhmc runs with its default options on every posterior. NumPyro, nutpie and Stan run
NUTS with target acceptance 0.8 and trees of depth 10 at most, on a diagonal metric or on their dense or low-rank one. nutpie
has refhmc's compiled density and gradient, or JAX's if the model of refhmc is in JAX. Stan runs posteriordb's own program, by
PyStan, and its R-hat is that of the parameters on their own scale.

- z: the largest |z| of mean and variance of all parameters over all seeds. Variances are mean squares about the mean of the
  reference. The critical value is {critical:.2f}, for a false alarm in any of the {tests:,} z-scores of a sampler with
  probability {alarm:g} (Bonferroni).
- reference: "draws" are posteriordb's 10,000 draws, "published means" are its published means and mean squares, "exact" is a
  closed form. posteriordb has no reference for the other posteriors. "long run" is then a run of NumPyro's NUTS with 10,000
  draws and target acceptance 0.95.
- ESS / 1,000: the smallest bulk ESS of the parameters per 1,000 gradients, of warm-up and draws.

Median and range over the seeds; {seeds}.{note}"""

SHARED = (
    " Seconds are processor time of the sampling, without compilation, in a process pinned to a core. Those of Stan are of the "
    "processes in which PyStan samples. They and their ratios are shown for {alone} only. The other runs were not pinned, and "
    "shared the processors with other programs."
)
WITHIN = "within the ranges over seeds"


def scores(cell: Cell) -> list[float]:
    return [z for run in cell["runs"] for pair in run["z"].values() for z in pair]


def critical_value(tests: int) -> float:
    """Return the |z| that one of so many exceeds with probability FALSE_ALARM at most."""
    return float(scipy.stats.norm.isf(FALSE_ALARM / (2 * max(tests, 1))))


def per_1000(run: dict[str, Any]) -> float:
    return 1000 * run["ess"] / run["gradients"]


def per_second(run: dict[str, Any]) -> float:
    return run["ess"] / run["seconds"]


def per_gradient(run: dict[str, Any]) -> float:
    """Return seconds per gradient."""
    return run["seconds"] / run["gradients"]


def timed(cells: Cells) -> Cells:
    """Return the cells whose processes were pinned to a core, the others left out."""
    return {name: {s: cell for s, cell in row.items() if not cell["shared"]} for name, row in cells.items()}


def median(cell: Cell | None, figure: Callable = per_1000) -> float | None:
    return statistics.median(map(figure, cell["runs"])) if cell and cell["runs"] else None


def summary(cell: Cell) -> str:
    """Return one line about a cell."""
    if not cell["runs"]:
        return f"none: {cell['why']}"
    worst = max(map(abs, scores(cell)), default=float("nan"))
    warned = sorted({text[:60] for run in cell["runs"] for text in run["warnings"]})
    return f"ESS / 1,000 {spread(map(per_1000, cell['runs']))}, |z| {worst:.2f} {cell['why']} {'; '.join(warned)}"


def fault_of(cell: Cell, critical: float) -> str:
    """Return what is wrong: z-scores above the critical value, largest first, and R-hat; or the empty string."""
    found: dict[str, float] = {}
    for run in cell["runs"]:
        for key, pair in run["z"].items():
            for what, z in zip(("mean", "variance"), pair, strict=True):
                if not abs(z) <= critical:
                    found[f"{what} of {key}"] = max(abs(z), found.get(f"{what} of {key}", 0.0))
    faults = [f"{key}, |z| {z:.1f}" for key, z in sorted(found.items(), key=lambda item: -item[1])[:4]]
    apart = [run for run in cell["runs"] if not run["r_hat"] <= MOST_R_HAT]
    if apart:
        warned = sum(any("R-hat" in text for text in run["warnings"]) for run in apart)
        worst = max(run["r_hat"] for run in apart)
        faults.append(f"R-hat up to {worst:.3f} in {len(apart)} of {len(cell['runs'])} runs, {warned} with a warning")
    return "; ".join(faults)


def row_of(name: str, cell: Cell, with_seconds: bool) -> list[str]:
    if not cell["runs"]:
        return [name, "", *[""] * (6 if with_seconds else 5), f"none: {cell['why']}"]
    runs, found = cell["runs"], scores(cell)
    known = all(run["divergences"] is not None for run in runs)
    return [
        name,
        cell["reference"],
        f"{max(map(abs, found)):.1f}" if found else "",
        spread(map(per_1000, runs)),
        *(["" if cell["shared"] else spread(map(per_second, runs))] if with_seconds else []),
        spread(run["gradients"] for run in runs),
        f"{max(run['r_hat'] for run in runs):.3f}",
        f"{sum(run['divergences'] for run in runs)}" if known else "",
        str(sum(bool(run["warnings"]) for run in runs)) + f" of {len(runs)}",
    ]


def ratios(cells: Cells, peers: list[str], figure: Callable = per_1000) -> dict[str, tuple[str, float]]:
    """Return the best peer of each posterior, and the ratio of refhmc's median to the peer's."""
    found = {}
    for name, row in cells.items():
        ours = median(row.get("refhmc"), figure)
        theirs = {peer: m for peer in peers if (m := median(row.get(peer), figure)) is not None}
        if ours is not None and theirs:
            best = max(theirs, key=lambda peer: theirs[peer])
            found[name] = best, ours / theirs[best]
    return found


def interval_of_median(values: list[float]) -> tuple[float, float]:
    """Return the order statistics between which the median lies with probability LEVEL at least, as far as there are any."""
    k = max(int(scipy.stats.binom.ppf((1 - LEVEL) / 2, len(values), 0.5)), 1)
    return sorted(values)[k - 1], sorted(values)[-k]


def reason(name: str, row: dict[str, Cell], peer: str, figure: Callable, why: dict[str, str]) -> str:
    """Return why a ratio is below 1: the overlap of the seeds, the time of a gradient, or what the posterior's file states."""
    ours, theirs = (list(map(figure, row[sampler]["runs"])) for sampler in ("refhmc", peer))
    known = why.get(name, WITHIN if max(ours) >= min(theirs) else "")
    if figure is not per_second:
        return known
    our_time, their_time = (statistics.median(map(per_gradient, row[sampler]["runs"])) for sampler in ("refhmc", peer))
    longer = our_time / their_time
    return "; ".join(filter(None, [f"{longer:.2g} times the seconds per gradient" if longer > 1 else "", known]))


def seeds_of(cells: Cells, names: list[str], samplers: list[str]) -> str:
    """Return how many seeds and posteriors each sampler has."""
    parts = []
    for sampler in samplers:
        numbers = [len(cells[n][sampler]["runs"]) for n in names if cells[n].get(sampler, {}).get("runs")]
        if numbers:
            few, many = min(numbers), max(numbers)
            seeds = f"{few}" if few == many else f"{few} to {many}"
            parts.append(f"{sampler} has {seeds} seed{'s' * (many > 1)} on {len(numbers)} posteriors")
    return ", ".join(parts)


def comparisons(cells: Cells, samplers: list[str], why: dict[str, str]) -> str:
    """Return the section about refhmc's ESS per gradient and per second, and those of the best peer."""
    peers = [s for s in samplers if s in PEERS]
    groups = {"default metric": [s for s in peers if s in DEFAULTS], "best metric": peers}
    figures = {
        "ESS per gradient": (per_1000, LEAST_PER_GRADIENT, cells),
        "ESS per second": (per_second, LEAST_PER_SECOND, timed(cells)),
    }
    summaries, parts = [], []
    for figure, (of, least, known) in figures.items():
        for metric, group in groups.items():
            measured = {
                n: row
                for n, row in known.items()
                if metric == "default metric" or set(row) & set(group) - set(DEFAULTS)
            }
            found = ratios(measured, group, of)
            if not found:
                continue
            values = [ratio for _, ratio in found.values()]
            low, high = interval_of_median(values)
            answer = "met" if low >= least else "not met" if high < least else "undecided by the interval"
            few = f"undecided with fewer than {FEWEST} posteriors"
            wanted = f"{least:g}, {answer if len(values) >= FEWEST else few}"
            middle = f"{statistics.median(values):.3g} ({low:.3g}..{high:.3g})"
            below = str(sum(value < 1 for value in values))
            summaries.append(
                [figure, metric, str(len(values)), middle, *map(number, (min(values), max(values))), below, wanted]
            )
            rows = [
                [name, peer, f"{ratio:.2f}", reason(name, cells[name], peer, of, why) if ratio < 1 else ""]
                for name, (peer, ratio) in sorted(found.items(), key=lambda item: item[1][1])
            ]
            parts.append(
                f"### {figure}, {metric} of the peers\n\n" + table(["posterior", "best peer", "ratio", "reason"], rows)
            )
    if not summaries:
        return ""
    middle = f"median ratio ({LEVEL:.0%} interval)"
    header = ["figure", "peers", "posteriors", middle, "least", "greatest", "below 1", "wanted median"]
    text = (
        "## refhmc and its peers\n\nThe ratio of refhmc's median to that of the best peer, on each posterior. The peers have "
        "their default, diagonal metric, or the best one of it and the dense or low-rank metric. The best is chosen by the "
        "same runs, so that chance favours it. Posteriors on which no such peer was measured are left out.\n\n"
    )
    return "\n\n".join([text + table(header, summaries), *parts])


def text_of(cells: Cells, posteriors: dict[str, ModuleType]) -> str:
    """Return the page."""
    names = [name for name in posteriors if name in cells]
    samplers = [s for s in SAMPLERS if any(s in cells[name] for name in names)]
    tests = max(
        (sum(len(scores(cells[n][s])) for n in names if s in cells[n]) for s in samplers),
        default=0,
    )
    critical = critical_value(tests)
    alone = [s for s in samplers if any(s in row for row in timed(cells).values())]
    note = SHARED.format(alone=", ".join(alone) or "no sampler") if timed(cells) != cells else ""
    options = {"critical": critical, "tests": tests, "alarm": FALSE_ALARM, "note": note}
    options["seeds"] = seeds_of(cells, names, samplers)
    parts = [HEADER.format(count=len(names), **options), judgement(cells, names, critical, posteriors)]
    why = {name: posteriors[name].WHY_NOT for name in names if hasattr(posteriors[name], "WHY_NOT")}
    parts.append(comparisons(cells, samplers, why))
    for sampler in samplers:
        seconds = ["ESS / s"] if sampler in alone else []
        header = ["posterior", "reference", "z", "ESS / 1,000", *seconds, "gradients", "R-hat"]
        rows = [row_of(name, cells[name][sampler], bool(seconds)) for name in names if sampler in cells[name]]
        parts.append(f"## {sampler}\n\n" + table([*header, "divergent", "runs that warn"], rows))
    parts.append(warned(cells, names))
    return "\n\n".join(part for part in parts if part)


def judgement(cells: Cells, names: list[str], critical: float, posteriors: dict[str, ModuleType]) -> str:
    """Return which posteriors refhmc's default has right."""
    ours = {name: cells[name]["refhmc"] for name in names if cells[name].get("refhmc", {}).get("runs")}
    compared = [name for name, cell in ours.items() if scores(cell)]
    faults = {name: fault for name in compared if (fault := fault_of(ours[name], critical))}
    warned = sum(any(run["warnings"] for run in cell["runs"]) for cell in ours.values())
    lines = [
        "## refhmc's default",
        f"All z-scores are below the critical value and all R-hat at most {MOST_R_HAT} on {len(compared) - len(faults)} of "
        f"{len(compared)} posteriors. There is a warning in some run on {warned} of {len(ours)}. The others:",
        "\n".join(
            f"- {name}: {fault}. {getattr(posteriors[name], 'HARD', '')}".strip() for name, fault in faults.items()
        ),
    ]
    return "\n\n".join(line for line in lines if line)


def warned(cells: Cells, names: list[str]) -> str:
    """Return the first sentence of each kind of warning of refhmc, with the number of runs."""
    lines = []
    for name in names:
        runs = cells[name].get("refhmc", {}).get("runs", [])
        kinds: dict[str, list[str]] = {}
        for text in (text for run in runs for text in run["warnings"]):
            kinds.setdefault(next((kind for kind in KINDS if kind in text), text[:40]), []).append(text)
        lines += [f"- {name}, {len(texts)} of {len(runs)} runs: {first_sentence(texts[0])}" for texts in kinds.values()]
    return "## Warnings of refhmc\n\n" + "\n".join(lines) if lines else ""


def first_sentence(text: str) -> str:
    """Return the text up to the first full stop that a space follows."""
    return text.partition(". ")[0] + "."
