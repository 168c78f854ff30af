"""The Markdown of :mod:`validation.cobb_table1`."""

from __future__ import annotations

import math

from validation import common, judging
from validation.common import number
from validation.comparing import rule_text, verdict

EXPLAINED = """**The explicit scheme.** Tao's third flow turns the differences of the copies by 2 Ω ε = 2.8 in every step. So
close to π it is unstable together with the other flows on this funnel: from the paper's start nearly every trajectory ends in
a non-finite energy (row "Tao's binding, Omega = 10"), whatever the solver; at a fourth of the step (angle 0.7) it works. The
published program assigns the four lines one after the other, which is not a rotation: at this angle its determinant is 7e-7
(one coordinate), it all but sets the copies equal. The row "the program's binding" runs that map. Its median
acceptance is 0.88, printed 0.81, which is undecided, because single runs accept far less.

**The exact route.** The projected Tao map is reversible and keeps volume where its equations are solved
(cobb_violations.md), but at step 0.14 they are not solved anywhere (the column "solver failed" counts only those without
convergence; the others meet a metric that is not finite within the solve and count as divergences). At 0.035 they are,
except in the neck, where the binding, with the same unit for positions and momenta, fights scales of exp(-v/2) and exp(v/2).
Such proposals are rejected, and a run from v = 0 stays out of the neck. The implicit generalised leapfrog has no such
trouble.

**How biased the explicit kernels are.** cobb_violations.md: neither keeps volume (medians 0.6 to 4 % a step) nor reverses. In
E v and E v² that hides behind the noise of runs that stand still; "no bias seen" of those rows has little power.

**The published threshold.** At 0.001 on max(delta²), a tolerance of 0.0316, the implicit map does not reverse (median
distance 0.3 after 25 steps, cobb_violations.md): the second table shows the bias, beside a tolerance of 1e-6 that has none. At
that threshold a step takes 2.5 evaluations of the metric, fewer than the explicit map's four at least, so that in compiled
code, unlike in the authors' automatic differentiation, the explicit scheme is no faster than the implicit one; it is faster
than a solve to 1e-6.

**The chain of the program** (cobb_program.py) goes on from the rejected end after a rejection, and records all positions of
accepted trajectories only. Its authors mended the first in February 2020. Both HMC rows are figures of that chain: at step
0.3896 the median of our runs is KL 1.12 and acceptance 0.87 (printed 1.109, 0.87), at step 0.2 it is 0.250 and 0.967 (printed
0.270, 0.97); factors of 1.5 and 1.7 in KL would have been told. The recording by itself gives 0.42 and 0.11. Right HMC at these
settings has KL 0.125 and 0.030, and accepts 0.72 and 0.89, so that in 100,000 draws it is no worse than the printed Riemannian
rows in 1,000. Single runs stick where every trajectory fails (2 of 20 of the program's chain at step 0.3896), and the spread
that they give the mean acceptance is why so little would have been told of it.

**KL of the Riemannian rows.** Of n independent draws it is about 1/n: the paper's 0.130 and 0.142 of 1,000 draws are those
of 8 effective draws, and ours have many times that. Two things in the program raise it. The jitter: 0.01 (a default of its
integrators; the paper does not name it) times a uniform number added to the Hessian's diagonal at every evaluation. In the
mouth of the funnel it is larger than the Hessian: the energy is no function, proposals are rejected, and implicit equations
that do not converge run to the end of their 1,000 iterations and are used all the same. And the chain, which matters only
where something is rejected. Explicit scheme, medians (printed 0.142, 0.81): jitter alone 0.046 and 0.86, chain alone 0.094 and
0.87, both 0.176 and 0.82. Implicit scheme (printed 0.130, 0.93): jitter alone 0.022 and 0.91, chain alone 0.005 and 0.98. Of
both together there are seven runs, each of minutes, and they are of two kinds: five fall into the mouth, v = -17 and below,
where hardly a solve ends (15,000 to 23,000 evaluations a transition), and have KL 1 to 3 and acceptance 0.6 to 0.7; two do
not (1,100 and 2,000), and have 0.061 and 0.93, 0.013 and 0.91. So the explicit row's figures lie amid those of binding, chain
and jitter together; the implicit row's are near those of a run that does not fall, of which there are too few for a verdict."""


MATTERS_KL, MATTERS_ACCEPTANCE = 2.0, 0.05
MATTERS = f"a factor of {MATTERS_KL:g} in KL, {MATTERS_ACCEPTANCE:g} in acceptance"


def report(plan: dict, ours: dict, papers: dict, biases: dict) -> tuple[str, dict]:
    """The text, and the verdicts by row."""
    m = 2 * len(papers)
    verdicts = {name: verdict_of(ours[name], papers[name], m) for name in papers}
    base = ours.get("implicit", {}).get("seconds")
    lines = [line(plan[name], ours[name], papers.get(name), base) for name in ours]
    parts = [
        "Quantiles of KL over our runs beside the paper's one run, and p of its log KL and of its acceptance. "
        f"{rule_text(m, MATTERS)} Implicit steps are unchecked (reversibility_check=False), as in the program, in all rows but "
        "the one that says otherwise. Seconds are of one run, ours on a shared core; their ratio to the implicit scheme's is "
        "beside the paper's. In rows with the program's chain the draws are transitions, and ESS is of all positions recorded.",
        common.markdown(HEADER, lines),
        common.markdown(["row", "verdict"], [(plan[name].title, text) for name, text in verdicts.items()]),
        "## Does the kernel keep the funnel?",
        "Runs of 1,000 draws from exact draws: an exact kernel has E v = 0 and E v² = 9 at every draw.",
        common.markdown(
            ["row", "runs", "E v", "z", "E v²", "z", "solver failed", "verdict"],
            [bias_row(plan[name].title, found) for name, found in biases.items()],
        ),
        EXPLAINED,
    ]
    return "\n\n".join(parts), verdicts


HEADER = [
    "row",
    "runs",
    "draws",
    "KL, 5 %",
    "median",
    "95 %",
    "paper",
    "p",
    "acceptance, median (5 % to 95 %)",
    "paper",
    "p",
    "step",
    "ESS v",
    "highest v",
    "solver failed",
    "evaluations a draw",
    "seconds",
    "ratio",
    "paper's",
]
IMPLICIT_SECONDS = 11400.0


def line(scheme, ours: dict, paper: dict | None, base) -> list[str]:
    """One row: ours, and the paper's where it has one."""
    q = ours["kl_quantiles"]
    kl = [number(q[level]) if math.isfinite(q[level]) else "∞" for level in ("5%", "50%", "95%")]
    theirs = ["–", "–"] if paper is None else [number(paper["kl"]), f"{paper['p_kl']:.2g}"]
    rate = ["–", "–"] if paper is None else [f"{paper['acceptance']:.2f}", f"{paper['p_acceptance']:.2g}"]
    least, middling, most = ours["acceptance_quantiles"]
    seconds = ours["seconds"]
    ratio = "–" if base is None else f"{seconds.value / base.value:.2f}"
    paper_ratio = "–" if paper is None else f"{paper['seconds'] / IMPLICIT_SECONDS:.2f}"
    middle = [str(ours[name]) for name in ("step_size", "ess", "highest_v", "solver_failed")]
    return [
        scheme.title,
        ours["runs"],
        scheme.draws,
        *kl,
        *theirs,
        f"{middling:.3f} ({least:.3f} to {most:.3f})",
        *rate,
        *middle,
        f"{ours['evaluations'].value:.0f}",
        number(seconds.value),
        ratio,
        paper_ratio,
    ]


def verdict_of(ours: dict, paper: dict, comparisons: int) -> str:
    """KL and acceptance, each agreeing or not, with what would have been told."""
    kl, rate = paper["told_kl"], paper["told_acceptance"]
    size = verdict(paper["p_kl"], kl, MATTERS_KL, comparisons)
    accepts = verdict(paper["p_acceptance"], rate, MATTERS_ACCEPTANCE, comparisons)
    paper["verdicts"] = {"KL": size, "acceptance": accepts}
    words = [
        f"KL {size} (p = {paper['p_kl']:.2g}, told: {f'a factor of {kl:.3g}' if kl < 1e4 else 'nothing'})",
        f"acceptance {accepts} (p = {paper['p_acceptance']:.2g}, told: {f'±{rate:.2g}' if rate < 1 else 'nothing'})",
    ]
    side = "ours" if below(ours, paper) else "theirs"
    return f"{'; '.join(words)}; {paper['runs_of_ours_below']} KL of ours below, {side} is smaller"


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    rows = [row["verdicts"] for row in data["paper"].values()]
    if not rows:
        return judging.opening([], because="The paper's table was not available.")
    both = sum(set(row.values()) == {"agrees"} for row in rows)
    groups = {figure: [row[figure] for row in rows] for figure in ("KL", "acceptance")}
    because = (
        f"{judging.tallies(groups)} Both agree in {both} of {len(rows)} rows. The scatter of the runs "
        "leaves the rest undecided."
    )
    return judging.opening([word for words in groups.values() for word in words], because=because)


def below(ours: dict, paper: dict) -> bool:
    return ours["kl_quantiles"]["50%"] < paper["kl"]


def bias_row(title: str, found: dict) -> list[str]:
    cells, z = [], []
    for name in ("mean", "second_moment"):
        part = found[name]
        z.append(abs(part["z"]))
        cells += [f"{part['value']:.2f} ± {part['error']:.2f}", f"{part['z']:.1f}"]
    precise = found["second_moment"]["error"] < 0.3
    word = "biased" if max(z) >= 3 else "no bias seen" if precise else "no bias seen, little power"
    return [title, str(found["runs"]), *cells, f"{found['solver_failed']:.3f}", word]
