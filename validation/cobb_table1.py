"""Cobb, Baydin, Markham and Roberts (2019), Table 1: KL(p(v) || q(v)) on the funnel 10 + 1, four schemes and ours.

    python -m validation.cobb_table1 [ROW ...]

The paper gives one run of each scheme. Its log KL and its acceptance rate are set against ours by the t of a further
observation (comparing.py); how many of our runs have a smaller KL is counted beside it. The second part asks how far each
kernel is from keeping the funnel: runs start from exact draws of it, so that the mean of v and of v^2 over their draws
estimates 0 and 9 without bias if the kernel is exact.

Rows named "the program's chain" repeat what the published program does after a rejection and what it records
(cobb_program.py). Implicit steps are unchecked in all rows but "tolerance 1e-6, checked", as in the program
(reversibility_check=False).
"""

from __future__ import annotations

import argparse
import json
import math

import numpy as np

from validation import cobb_runs as runs
from validation import common
from validation.cobb_report import opening, report
from validation.comparing import further_observation

NAME = "cobb_table1"
SEED = 2019
BIAS = {"implicit": 100, "implicit_tight": 50, "published": 60, "explicit_small": 30, "projected_small": 10}


def summary(facts: list[dict]) -> dict:
    """Quantiles of KL over the runs, means with standard errors of the rest."""
    kl = np.array([fact["kl"] for fact in facts], dtype=float)
    means = {name: common.over_trials([fact[name] for fact in facts]) for name in facts[0] if name != "kl"}
    quantiles = dict(
        zip(
            ("5%", "25%", "50%", "75%", "95%"),
            np.quantile(kl, [0.05, 0.25, 0.5, 0.75, 0.95], method="higher"),
            strict=True,
        )
    )
    finite = common.over_trials(kl) if np.isfinite(kl).all() else common.Estimate(math.nan, math.nan, len(kl))
    rates = np.quantile([fact["acceptance"] for fact in facts], [0.05, 0.5, 0.95])
    return {"runs": len(facts), "kl_mean": finite, "kl_quantiles": quantiles, "acceptance_quantiles": rates, **means}


def against(facts: list[dict], line: dict, comparisons: int) -> dict:
    """The paper's row beside ours; log KL is much nearer to normal than KL. ``told_kl`` is a factor."""
    kl = np.array([fact["kl"] for fact in facts])
    theirs, rate = float(line["kl_p_v_q_v"]), float(line["acc_rate"])
    below, n = int(np.sum(kl <= theirs)), len(kl)
    size = further_observation(np.log(kl), math.log(theirs), 0.005 / theirs) if np.isfinite(kl).all() else None
    found = further_observation([fact["acceptance"] for fact in facts], rate, 0.005)
    return {
        "kl": theirs,
        "runs_of_ours_below": f"{below} of {n}",
        "p_kl": 0.0 if size is None else size.p,
        "told_kl": math.nan if size is None else math.exp(min(size.told(comparisons), 700.0)),
        "acceptance": rate,
        "t_acceptance": found.z,
        "p_acceptance": found.p,
        "told_acceptance": found.told(comparisons),
        "seconds": float(line["wall_time_s"]),
    }


def bias(facts: list[dict]) -> dict:
    """E v and E v^2 over runs from exact starts, each with z over the runs."""
    out = {}
    for name, truth in (("mean", 0.0), ("second_moment", runs.VARIANCE)):
        found = common.over_trials([fact[name] for fact in facts])
        out[name] = {"value": found.value, "error": found.error, "z": (found.value - truth) / found.error}
    rejected = float(np.mean([fact["solver_failed"] for fact in facts]))
    return {"runs": len(facts), **out, "solver_failed": rejected}


# ------------------------------------------------------------------------------------------------------------ report


def load() -> dict:
    path = common.RESULTS / f"{NAME}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def write(done: dict, biases: dict, made: dict | None = None) -> None:
    table = common.paper_table("cobb_2019_table1") or []
    lines = {line["scheme"]: line for line in table}
    plan = runs.schemes()
    names = [name for name in plan if name in done]
    for facts in done.values():
        for fact in facts:
            fact["kl"] = math.inf if fact["kl"] is None else fact["kl"]
    ours = {name: summary(done[name]) for name in names}
    compared = [name for name in names if plan[name].paper in lines]
    papers = {name: against(done[name], lines[plan[name].paper], 2 * len(compared)) for name in compared}
    text, verdicts = report(plan, ours, papers, {name: biases[name] for name in plan if name in biases})
    data = {"ours": ours, "paper": papers, "bias": biases, "verdicts": verdicts, "runs": done}
    common.write_results(NAME, "Cobb et al. (2019), Table 1: the funnel 10 + 1", text, data, opening, made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("row", nargs="*", help=f"rows to make: {', '.join(runs.schemes())} (default: all)")
    parser.add_argument("--report", action="store_true", help="only write the report again, from the recorded runs")
    chosen = parser.parse_args()
    plan, old = runs.schemes(), load()
    unknown = sorted(set(chosen.row) - set(plan))
    if unknown:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(plan)}")
    done, biases = old.get("runs", {}), old.get("bias", {})
    for name in [] if chosen.report else chosen.row or plan:

        def keep(made: list[dict], name=name) -> None:
            print(name, len(made), f"KL {made[-1]['kl']:.3f}, acceptance {made[-1]['acceptance']:.3f}", flush=True)
            if len(made) > 1:
                write({**done, name: made}, biases)

        done[name] = runs.run(plan[name], SEED, after_each=keep)
        print(name, f"median KL {np.median([fact['kl'] for fact in done[name]]):.3f}", flush=True)
        if name in BIAS:
            biases[name] = bias(runs.run(plan[name], SEED + 1, trials=BIAS[name], from_exact=True))
        write(done, biases)
    if chosen.report:
        write(done, biases, old["about"])


if __name__ == "__main__":
    main()
