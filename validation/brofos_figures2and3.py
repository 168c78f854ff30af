"""Figures 2, 3 and 4 of Brofos and Lederman (2021): how far the solves' tolerance spoils reversibility and volume.

For positions q drawn from the target and p ~ N(0, G(q)), with z' the end of a trajectory from z = (q, p):

    reversibility   |z - R z''|, where z'' is the end of the trajectory from R z', R the reversal of the momentum
    volume          |det dz'/dz - 1|, by the paper's central differences (width 1e-5; in figure 4, 1e-3), and by
                    extrapolated ones

A figure's point is the median over the draws of one trial. The paper draws q from its chains; here they are exact draws
(in figure 4 draws of NUTS), the same for both integrators. A solve that fails has no end here: its violation counts as
infinite. (The published code goes on with the last iterate.)
"""

from __future__ import annotations

import copy
import math
import time

import numpy as np

import refhmc
from refhmc.diagnostics import reversibility_violation, volume_violation
from validation import judging
from validation.brofos_table1 import banana
from validation.brofos_table2 import funnel
from validation.brofos_table4 import fitzhugh_nagumo
from validation.brofos_tables import UNCHECKED, integrator
from validation.common import command_line, in_processes, markdown, number, run_chains, save_figure, write_results

TOLERANCES = (1e-9, 1e-6, 1e-3)
METHODS = ("I.M.(a)", "G.L.F.(a)")
POINTS = ("points", "volume_points", "accurate_points")
MEASURES = ("reversibility", "volume", "volume_accurate")
IN_WORDS = {
    "reversibility": "reversibility",
    "volume": "volume (paper's width)",
    "volume_accurate": "volume (extrapolated)",
}
WIDTHS = {2: 1e-5, 3: 1e-5, 4: 1e-3}
MOST_ITERATIONS = {2: 1000, 3: 1000, 4: 200}  # a solve that fails takes seconds in figure 4
FIGURES = {
    2: ("banana", [(step, steps) for step in (0.01, 0.1) for steps in (5, 10, 50)]),
    3: ("funnel", [(step, 20) for step in (0.1, 0.2, 0.5)]),
    4: ("FitzHugh-Nagumo", [(1.0, steps) for steps in (1, 2, 5)]),
}
# Trials, and draws of a trial for reversibility, volume by the paper's width, volume by extrapolated differences (some 20
# times as dear). In figure 4 a trajectory takes seconds; the paper has ten trials there, too.
SIZES = {2: (10, 100, 100, 20), 3: (10, 100, 100, 20), 4: (2, 8, 4, 0)}
CAVEATS = {
    2: "At step 0.1 and fifty steps the extrapolated differences fail: the map there stretches by factors of 50 and more, the "
    "widths, from 0.2 of the local scale down, are too wide, and the extrapolation's own estimate of its error (which "
    "`volume_violation` does not look at) is as large as its result. Trust the width 1e-5 there.",
    3: "",
    4: "The ODE's solver has an error of about 1e-10 in what the map is made of, and a width of 1e-3 spans six of its last "
    "digits: a floor under every measure. The paper's exception at the smallest tolerance has a verdict of its own: "
    "`brofos_figure4_exception.md`.",
}
CLAIMS = {
    2: "the implicit midpoint integrator's median reversibility and volume preservation can be an order of magnitude, or "
    "more, better; at step 0.1 and fifty steps the generalized leapfrog diverges severely",
    3: "the implicit midpoint integrator exhibits better reversibility and volume preservation at the same tolerance",
    4: "the implicit midpoint integrator has better reversibility and volume preservation, except at the smallest tolerance, "
    "where the generalized leapfrog has slightly better volume preservation but worse reversibility",
}


def problem(figure: int, seed: int, trial: int):
    """The trial's Hamiltonian and generator."""
    if figure == 4:
        model, _ = fitzhugh_nagumo(seed, trial)
        return refhmc.Hamiltonian(model, refhmc.metrics.Fisher()), np.random.default_rng([seed, trial, figure])
    model, _ = (banana if figure == 2 else funnel)(seed, trial)
    metric = refhmc.metrics.Fisher() if figure == 2 else refhmc.metrics.SoftAbs(1e6)
    return refhmc.Hamiltonian(model, metric), np.random.default_rng([seed, trial, figure])


def positions(model, rng: np.random.Generator, n: int) -> np.ndarray:
    """Exact draws where the model gives them; else every fifth draw of a chain of NUTS, as the paper's come from a chain."""
    if model.reference is not None and model.reference.draw is not None:
        return model.reference.draw(rng, n)
    kernel = refhmc.NUTS(metric=refhmc.metrics.Dense())
    chains = run_chains(model, kernel, draws=5 * n, tune=200, chains=1, seed=int(rng.integers(2**32)), warm=False)
    return chains.draws[0, ::5]


def medians(figure: int, step: float, steps: int, seed: int, trial: int, points: tuple[int, int, int]) -> list[dict]:
    """One trial's medians for every tolerance and method; ``points``: how many draws each measure is taken at."""
    H, rng = problem(figure, seed, trial)
    q = positions(H.model, rng, max(points))
    p = [H.draw_momentum(x, rng) for x in q]
    out = []
    for tolerance in TOLERANCES:
        for method in METHODS:
            way = {"step_size": step, "n_steps": steps}
            I = integrator(method, tolerance, MOST_ITERATIONS[figure])  # noqa: E741
            found = {
                "reversibility": [
                    reversibility_violation(H, I, *z, **way) for z in zip(q[: points[0]], p, strict=False)
                ],
                "volume": [
                    volume_violation(H, I, *z, **way, increment=WIDTHS[figure])
                    for z in zip(q[: points[1]], p, strict=False)
                ],
                "volume_accurate": [volume_violation(H, I, *z, **way) for z in zip(q[: points[2]], p, strict=False)],
            }
            row = {"step_size": step, "n_steps": steps, "tolerance": tolerance, "method": method, "trial": trial}
            row["failed"] = float(np.mean(np.isnan(found["reversibility"])))
            out.append(row | {name: middle(values) for name, values in found.items()})
    return out


def middle(values) -> float:
    """The median, where no number counts as infinite."""
    return float(np.median(np.where(np.isfinite(values), values, np.inf))) if len(values) else math.nan


def gather(rows: list[dict]) -> list[dict]:
    """Over the trials, by step, steps and tolerance: both methods' medians and the factor by which I.M. is better."""
    out = []
    keys = dict.fromkeys((r["step_size"], r["n_steps"], r["tolerance"]) for r in rows)
    for key in keys:
        here = [r for r in rows if (r["step_size"], r["n_steps"], r["tolerance"]) == key]
        im, glf = ([r for r in here if r["method"] == method] for method in METHODS)
        cell = {"step_size": key[0], "n_steps": key[1], "tolerance": key[2]}
        cell["failed"] = [float(np.mean([r["failed"] for r in group])) for group in (im, glf)]
        for measure in MEASURES:
            a, b = (np.array([r[measure] for r in group]) for group in (im, glf))
            both = [float(np.median(a)), float(np.median(b))]  # NaN where nothing was measured
            cell[measure] = {"im": both[0], "glf": both[1], "factor": both[1] / both[0]}
            cell[measure]["trials_im_better"] = float(np.mean(b > a))
        out.append(cell)
    return out


def checks(cells: list[dict]) -> dict[str, dict]:
    """For each measure: in how many cells I.M. is better, the factor's median, and in how many it is ten or more."""
    out = {}
    for measure in MEASURES:
        factors = np.array([cell[measure]["factor"] for cell in cells])
        factors = factors[~np.isnan(factors)]
        out[measure] = {
            "cells": len(factors),
            "im_better": int(np.sum(factors > 1)),
            "factor_ten_or_more": int(np.sum(factors >= 10)),
            "median_factor": middle(factors),
        }
    return out


# ----------------------------------------------------------------------------------------------------------- writing


def scientific(x: float) -> str:
    """1.2e-03; "more than half failed" for a median that is infinite, a dash where nothing was measured."""
    if math.isnan(x):
        return "–"
    return f"{x:.1e}" if math.isfinite(x) else "more than half failed"


def text_of(figure: int, cells: list[dict], chosen) -> str:
    """The Markdown of a figure's results."""
    found = checks(cells)
    lines = [
        f"`python -m validation.brofos_figures2and3 --figure {figure}`: {chosen.trials} trials, seed {chosen.seed}; a trial's "
        f"median is over {chosen.points} draws for reversibility, {chosen.volume_points} for the volume by central "
        f"differences of width {WIDTHS[figure]:.0e}, {chosen.accurate_points} for the volume by extrapolated differences. "
        f"I.M.(a) and G.L.F.(a), the same draws for both. {UNCHECKED} In the table: the median over the trials. A failed "
        "solve counts as infinite, and an infinite median is not drawn.",
        f"The paper: {CLAIMS[figure]}.",
        "Found, over all cells: "
        + "; ".join(
            f"{IN_WORDS[name]}: I.M. better in {c['im_better']} of {c['cells']}, by a factor of ten or more in "
            f"{c['factor_ten_or_more']}, median factor {number(c['median_factor'])}"
            for name, c in found.items()
            if c["cells"]
        )
        + ".",
    ]
    header = ["step", "L", "tolerance"]
    header += [f"{IN_WORDS[m]}: {w}" for m in MEASURES for w in ("I.M.", "G.L.F.", "factor")]
    header += ["draws failed: I.M.", "G.L.F."]
    body = []
    for cell in cells:
        row = [cell["step_size"], cell["n_steps"], f"{cell['tolerance']:.0e}"]
        for measure in MEASURES:
            m = cell[measure]
            row += [scientific(m["im"]), scientific(m["glf"]), number(m["factor"])]
        body.append([*row, *[f"{share:.2f}" for share in cell["failed"]]])
    picture = f"![figure](brofos_figure{figure}.png)"
    caveat = [CAVEATS[figure]] if CAVEATS[figure] else []
    return "\n\n".join([*lines, *caveat, picture, markdown(header, body)])


def draw(figure: int, rows: list[dict], name: str) -> None:
    """A panel for every step and number of steps; above the paper's measure of volume, below the extrapolated one."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    cells, shown = FIGURES[figure][1], [m for m in MEASURES[1:] if not all(math.isnan(row[m]) for row in rows)]
    size = 3.1 * len(cells), 0.4 + 2.6 * len(shown)
    picture, axes = plt.subplots(len(shown), len(cells), figsize=size, squeeze=False, sharex="col")
    colours = dict(zip(TOLERANCES, ("tab:blue", "tab:orange", "tab:green"), strict=True))
    for column, (step, steps) in enumerate(cells):
        for axis, measure in zip(axes[:, column], shown, strict=True):
            for row in rows:
                if (row["step_size"], row["n_steps"]) == (step, steps):
                    symbol = "." if row["method"].startswith("I") else "+"
                    axis.plot(row["reversibility"], row[measure], symbol, color=colours[row["tolerance"]])
            axis.set(xscale="log", yscale="log", ylabel=IN_WORDS[measure] if column == 0 else "")
        axes[0, column].set_title(f"step {step}, {steps} steps", fontsize=9)
        axes[-1, column].set_xlabel("reversibility")
    for tolerance, colour in colours.items():
        axes[0, 0].plot([], [], "s", color=colour, label=f"tolerance {tolerance:.0e}")
    axes[0, 0].plot([], [], "k.", label="implicit midpoint")
    axes[0, 0].plot([], [], "k+", label="generalized leapfrog")
    axes[0, 0].legend(fontsize=6)
    picture.tight_layout()
    save_figure(picture, name)
    plt.close(picture)


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    verdicts = []
    for measure, found in data["checks"].items():
        better, cells = found["im_better"], found["cells"]
        volume = measure != "reversibility" and data["figure"] == 4
        apart = sum(cell["tolerance"] == min(TOLERANCES) for cell in data["cells"]) if volume and cells else 0
        verdicts += ["holds"] * (better - apart) + ["does not hold"] * (cells - better) + ["undecided"] * apart
    because = "Each claim is that the implicit midpoint's median is the smaller one, of one measure in one cell."
    if data["figure"] == 4:
        because += " The exception at the smallest tolerance is undecided (brofos_figure4_exception.md)."
    return judging.opening(verdicts, "claims", because)


def make(figure: int, chosen) -> None:
    """Run, draw and write one figure."""
    begin = time.perf_counter()
    for option, default in zip(("trials", *POINTS), SIZES[figure], strict=True):
        if getattr(chosen, option) is None:
            setattr(chosen, option, default)
    points = (chosen.points, chosen.volume_points, chosen.accurate_points)
    jobs = [
        (figure, step, steps, chosen.seed, trial, points)
        for step, steps in FIGURES[figure][1]
        for trial in range(chosen.trials)
    ]
    rows = [row for found in in_processes(medians, jobs, chosen.cores) for row in found]
    cells = gather(rows)
    name = f"brofos_figure{figure}" + ("_quick" if chosen.quick else "")
    draw(figure, rows, name)
    title = f"Figure {figure} of Brofos and Lederman (2021): reversibility and volume, {FIGURES[figure][0]}"
    data = {"figure": figure, "command": vars(chosen), "checks": checks(cells), "cells": cells, "trials": rows}
    write_results(name, title, text_of(figure, cells, chosen), data, opening)
    print(f"figure {figure}: {checks(cells)}, {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    options: dict = {"figure": {"type": int, "choices": (2, 3, 4), "nargs": "+", "default": [2, 3]}}
    for option in POINTS:
        options[option] = {"type": int, "help": "draws of a trial (default: by figure)"}
    chosen = command_line(__doc__, trials=None, **options)
    if chosen.quick:
        chosen.points, chosen.volume_points, chosen.accurate_points = 4, 3, 2
    for figure in chosen.figure:
        make(figure, copy.copy(chosen))
