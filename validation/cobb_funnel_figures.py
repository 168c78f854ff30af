"""Cobb, Baydin, Markham and Roberts (2019), figures 2, 3 and 4: four samplers on the funnel 10 + 1.

    python -m validation.cobb_funnel_figures [--report]

Figure 2: KL(p(v) || q(v)) as the chain grows, and the autocorrelation of v. Figure 3: the draws in the plane of x_1 and v.
Figure 4: histograms of v. No number is printed in them, so the claims of the text are judged, each twice:

**as Metropolis and Hastings have it**: a rejected draw repeats the one before; the implicit steps are checked, to a tolerance
of 1e-6; the explicit scheme is the program's map, which is an approximation. Autocorrelations are of v after each transition.

**as the program has it**: its chain (cobb_program.py) with, for the Riemannian schemes, its jitter and its solves
(cobb_published.py), whose implicit steps are unchecked. Recorded are all positions of accepted trajectories, so that its
autocorrelations are per integrator step.

Lengths and steps are those of Table 1. The text does not say whether figure 2 is of one run, whether its horizontal axis is
transitions or recorded positions, or at which length the rates of convergence are to be compared: here after 1,000
transitions, the length of the Riemannian runs. Several runs of each are compared by Welch's t on the logarithm of KL, of the
number of transitions (ours) or steps (theirs) per effective draw, or of the share of draws in the neck, v > 3.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
import scipy.stats

import refhmc
from refhmc.diagnostics import geyer_ess
from validation import cobb_runs as runs
from validation import common, judging
from validation.betancourt_runs import autocorrelations
from validation.cobb_program import Rule, chain
from validation.comparing import smaller
from validation.judging import ALARM, POWER, level

NAME = "cobb_funnel_figures"
SEED, SHORT, LAGS, NECK = 2019, 1000, 100, 3.0
NECK_SHARE = float(scipy.stats.norm.sf(NECK / 3))
SIDES = {
    "Metropolis": {
        "HMC 0.3896": "hmc_0.3896",
        "HMC 0.2": "hmc_0.2",
        "implicit": "implicit_tight",
        "explicit": "published",
    },
    "program": {
        "HMC 0.3896": "hmc_0.3896_program",
        "HMC 0.2": "hmc_0.2_program",
        "implicit": "implicit_program_jittered",
        "explicit": "published_program_jittered",
    },
}
TRIALS = {"implicit_program_jittered": 2}
MOST_TRIALS = 6


def figures(name: str) -> dict:
    """Of each run: KL as it grows, effective draws, the neck; of the first also a picture's worth of draws."""
    scheme, model = runs.schemes()[name], refhmc.models.Funnel(runs.N)
    lengths = np.unique(np.geomspace(10, scheme.draws, 25).astype(int))
    found: dict = {"lengths": lengths, "draws": scheme.draws, "kl": [], "steps_per_draw": [], "neck": [], "highest": []}
    found |= {"lowest": [], "short": [], "acceptance": []}
    for k in range(TRIALS.get(name, MOST_TRIALS)):
        done = chain(model, scheme.kernel, scheme.rule or Rule(), runs.start(), scheme.draws, (SEED, k))
        v = done.recorded[:, 0]
        ends = (lengths * (len(v) / scheme.draws)).astype(int)
        found["kl"].append([runs.divergence(v[: max(end, 2)]) for end in ends])
        found["short"].append(runs.divergence(v[: SHORT * len(v) // scheme.draws]))
        found["steps_per_draw"].append(len(v) / float(geyer_ess(v[None])))
        found["neck"].append(max(float(np.mean(v > NECK)), 1 / len(v)))
        found["highest"].append(float(v.max()))
        found["lowest"].append(float(v.min()))
        found["acceptance"].append(done.acceptance)
        if k == 0:
            some = np.linspace(0, len(v) - 1, 500).astype(int)
            edges = np.linspace(-15, 15, 61)
            density = np.histogram(v, edges)[0] / (len(v) * np.diff(edges))
            found |= {
                "picture": np.round(done.recorded[some, :2], 3),
                "edges": edges,
                "histogram": density,
                "rho": autocorrelations(v, LAGS),
            }
        print(name, k, f"KL {found['kl'][-1][-1]:.3f}", flush=True)
    return found


# ------------------------------------------------------------------------------------------------------------ claims


PAIRS = [(r, h) for r in ("implicit", "explicit") for h in ("HMC 0.3896", "HMC 0.2")]


def claims(found: dict) -> list[list[str]]:
    """Figure, claim, and for each side the ratio and the verdict."""
    asked = [("2", f"KL after {SHORT} transitions: {r} below {h}", "short", r, h) for r, h in PAIRS]
    asked += [("2", f"autocorrelation: {r} shorter than {h}", "steps_per_draw", r, h) for r, h in PAIRS]
    asked += [("3", f"share of draws in the neck: {h} below {r}", "neck", h, r) for r, h in PAIRS]
    asked += [("3", f"highest v: {h} (100,000) below {r} (1,000)", "highest", h, r) for r, h in PAIRS]
    asked += [("4", f"KL of the whole run: {r} (1,000) below {h} (100,000)", "last", r, h) for r, h in PAIRS]
    rows = []
    for figure, claim, what, one, other in asked:
        cells = [figure, claim]
        for side in SIDES:
            if one in found[side] and other in found[side]:
                cells += smaller(found[side][one][what], found[side][other][what], 2 * len(asked))
            else:
                cells += ["–", "not run"]
        rows.append(cells)
    return rows


def table(found: dict) -> str:
    """Figures of each sampler, mean over the runs."""
    rows = []
    for side, samplers in found.items():
        for name, x in samplers.items():
            kl = np.quantile(x["last"], [0, 0.5, 1])
            cells = [side, name, len(x["last"]), x["draws"], f"{kl[1]:.3f} ({kl[0]:.3f} to {kl[2]:.3f})"]
            cells += [f"{np.median(x['short']):.3f}", str(common.over_trials(x["acceptance"]))]
            cells += [str(common.over_trials(x["steps_per_draw"])), str(common.over_trials(x["neck"]))]
            rows.append([*cells, f"{np.median(x['lowest']):.1f}", f"{np.median(x['highest']):.1f}"])
    header = [
        "chain",
        "sampler",
        "runs",
        "transitions",
        "KL, median (least to largest)",
        f"after {SHORT}",
        "acceptance",
    ]
    header += ["recorded per effective draw", f"share of v > 3 ({NECK_SHARE:.3f})", "lowest v", "highest"]
    return common.markdown(header, rows)


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    right, program = ([claim[k] for claim in data["claims"]] for k in (3, 5))
    groups = {"the chain of Metropolis and Hastings": right, "the published program's chain": program}
    because = f"{judging.tallies(groups, 'claims')} The runs scatter too much to decide the rest."
    return judging.opening([*right, *program], "claims", because)


def write(found: dict) -> None:
    from validation.cobb_pictures import draw_growth, draw_histograms, draw_planes

    for samplers in found.values():
        for x in samplers.values():
            x["last"] = [row[-1] for row in x["kl"]]
    checked = claims(found)
    draw_growth(found)
    draw_planes(found)
    draw_histograms(found)
    header = ["figure", "claim", "ratio", "Metropolis", "ratio", "the program's"]
    m = 2 * len(checked)
    rule = (
        f"A claim is decided if its p is below {level(m):.2g} = 1 - (1 - {ALARM})^(1/{m}). Told: the ratio that would have "
        f"been found with probability {POWER:.0%}."
    )
    parts = [(__doc__ or "").split("\n\n", 2)[2].strip(), table(found), rule, common.markdown(header, checked), MEANING]
    parts.append("Pictures: cobb_figure2.png, cobb_figure3.png, cobb_figure4.png.")
    common.write_results(
        NAME,
        "Cobb et al. (2019), figures 2, 3 and 4: the funnel",
        "\n\n".join(parts),
        {"claims": checked, "samplers": found},
        opening,
    )


MEANING = """**Metropolis.** The implicit scheme, checked, holds what the paper says of it: it needs 30 to 60 times fewer
transitions per effective draw than HMC, goes far higher up the neck in 1,000 transitions than HMC in 100,000, and has a smaller
KL in them. Of the explicit scheme little is decided: single runs of its map, which is an approximation, stand still for long.

**The program's chain.** Explicit RMHMC has a smaller KL than either HMC, as printed, but because the KL of HMC is about ten
times that of right HMC: the HMC rows record v down to -80, and hardly any above 3 (cobb_table1.md). Of implicit RMHMC little is
decided: most runs fall into the mouth and stay. What the histogram of right HMC has at its upper end are draws that repeat: the
chain stands still where its step is too large for the neck."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--report", action="store_true", help="only write the report and the pictures anew")
    parser.add_argument("--skip", nargs="*", default=[], help="rows of cobb_table1 that are not to be run")
    chosen = parser.parse_args()
    if chosen.report:
        stored = json.loads((common.RESULTS / f"{NAME}.json").read_text(encoding="utf-8"))["samplers"]
        write({side: {name: numbers(x) for name, x in samplers.items()} for side, samplers in stored.items()})
        return
    write(
        {
            side: {title: figures(name) for title, name in rows.items() if name not in chosen.skip}
            for side, rows in SIDES.items()
        }
    )


def numbers(x: dict) -> dict:
    """Lists of JSON as arrays; null as NaN."""
    return {key: np.array(value, dtype=float) if isinstance(value, list) else value for key, value in x.items()}


if __name__ == "__main__":
    main()
