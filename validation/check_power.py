"""What the sampler check is worth: its false alarms, its power, and how long it takes to find each planted bug.

    python -m validation.check_power [--runs 2000] [--seeds 3]

Four tables: the p-values of its tests where the law is right, against the uniform law; how often the bets reach 20 and the
whole call FAILs where the kernel is right; how often a chain's law off by a known amount is found, against the bias that the
report says it would have found; and the seconds and starts to find each planted bug of ``refhmc/check/mutants/samplers.py`` at
alpha = 1e-6, with the rows that failed, and the FAILs of its correct twin.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import scipy.stats

import refhmc.check as rc
from refhmc.check import targets
from refhmc.check.mutants import samplers as planted
from refhmc.check.samplers import evidence
from tests.helpers.p_values import most_wealth, p_values
from validation import common, judging

NAME = "check_power"
TESTS = ("one-sample KS", "one-sample AD", "two-sample KS", "two-sample AD")


def lazy(by: float = 0.0, wider: float = 1.0):
    """Keeps half of the points and draws the others anew: its law is N(by, wider^2)."""

    def kernel(rng, q):
        return np.where(rng.random((len(q), 1)) < 0.5, q, by + wider * rng.standard_normal(q.shape))

    return kernel


def calibration(runs: int) -> list[dict]:
    """Uniformity of p, and how often it is below 1e-3."""
    rows = []
    for test in TESTS:
        p = p_values(test, runs, np.random.default_rng(2026))
        rows.append(
            {
                "test": test,
                "runs": runs,
                "p of uniformity": scipy.stats.kstest(p, "uniform").pvalue,
                "below 0.05": float(np.mean(p < 0.05)),
                "below 0.01": float(np.mean(p < 0.01)),
                "below 0.001": float(np.mean(p < 0.001)),
            }
        )
    return rows


def false_alarms(runs: int) -> list[dict]:
    """Of a right kernel: the bets alone, and whole calls."""
    rng = np.random.default_rng(2027)
    rich = np.array([most_wealth(rng, 1000) for _ in range(runs)])
    calls = max(runs // 5, 1)
    bad = sum(
        bool(rc.sampler(lazy(), "normal-2", 0.05, batched=True, draws=4100, seed=seed).failures)
        for seed in range(calls)
    )
    return [
        {"event": "e >= 20", "bound": 0.05, "runs": runs, "happened": int(np.sum(rich >= 20))},
        {"event": "e >= 1000", "bound": 0.001, "runs": runs, "happened": int(np.sum(rich >= 1000))},
        {"event": "any FAIL at alpha = 0.05", "bound": 0.05, "runs": calls, "happened": bad},
    ]


def power(seeds: int, draws: int = 8192) -> list[dict]:
    """Share of runs that find a shift, or a widening, of a multiple of what the report says it would find."""
    said = rc.sampler(lazy(), "normal-1", batched=True, draws=draws, transitions=1)
    text = said.row("stationarity (e-value)").basis
    shift = float(text.split("shift of ")[1].split(" sd")[0])
    widening = float(text.split("widening of ")[1].split(" %")[0]) / 100
    rows = []
    for factor in (0.25, 0.5, 0.75, 1.0, 1.25):
        row = {"multiple": factor, "runs": seeds}
        for what, least, options in (("shift", shift, "by"), ("widening", widening, "wider")):
            amount = factor * least
            kernel = lazy(**{options: amount if what == "shift" else 1 + amount})
            found = [
                rc.sampler(kernel, "normal-1", batched=True, draws=draws, transitions=1, seed=seed).failures
                for seed in range(seeds)
            ]
            row[what], row[f"{what} found"] = amount, float(np.mean([bool(f) for f in found]))
        rows.append(row)
    return rows


def detection(seeds: int) -> list[dict]:
    """Time to the first FAIL of each planted bug, and the FAILs of its twin."""
    rows = []
    for pair in planted.PAIRS:
        took, starts, names, hits = [], [], set(), 0
        for seed in range(1, seeds + 1):
            began = time.process_time()
            report = pair.wrong(seed)
            took.append(time.process_time() - began)
            starts.append(report.settings["pairs"])
            names |= {row.name for row in report.failures}
            hits += bool({row.name for row in report.failures} & set(pair.expected))
        twin = sum(bool(pair.right(seed).failures) for seed in range(1, seeds + 1))
        rows.append(
            {
                "bug": pair.id,
                "what": pair.what,
                "found": f"{hits} of {seeds}",
                "CPU seconds, median": float(np.median(took)),
                "longest": max(took),
                "starts, median": int(np.median(starts)),
                "rows": ", ".join(sorted(names)),
                "twin FAILs": f"{twin} of {seeds}",
            }
        )
        print(rows[-1], flush=True)
    return rows


def least_after(seconds: float = 30.0) -> str:
    """What the default budget says of a vectorised HMC kernel."""
    t = targets.from_name("gaussian")
    report = rc.sampler(planted.hmc(t.log_density, t.gradient, 0.7, 3), t, batched=True, seconds=seconds, name="hmc")
    return str(report)


def table(rows: list[dict]) -> str:
    """A Markdown table of dicts."""
    head = list(rows[0])
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        lines.append("| " + " | ".join(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row.values()) + " |")
    return "\n".join(lines)


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    found = [row["found"].split(" of ") for row in data["detection"]]
    alarms = data["false_alarms"][-1]
    return judging.line(
        "Found",
        f"{sum(one == runs for one, runs in found)} of {len(found)} planted bugs are found in every run, and correct kernels "
        f"fail {alarms['happened']} of {alarms['runs']} runs at alpha = {alarms['bound']:g}.",
    )


def main() -> None:
    """Run all and write ``results/check_power.md`` and ``.json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    parts = {
        "calibration": calibration(options.runs),
        "false_alarms": false_alarms(options.runs),
        "power": power(10 * options.seeds),
        "detection": detection(options.seeds),
    }
    example = least_after()
    allowed = [scipy.stats.binom.ppf(1 - 1e-6, row["runs"], row["bound"]) for row in parts["false_alarms"]]
    assert all(row["happened"] <= most for row, most in zip(parts["false_alarms"], allowed, strict=True))
    assert all(row["p of uniformity"] > 1e-6 for row in parts["calibration"])
    assert all(row["found"].split(" of ")[0] == str(options.seeds) for row in parts["detection"])
    text = f"""p-values where the law is right, against the uniform law:

{table(parts["calibration"])}

How often a right kernel raises an alarm; bets look at the wealth 12 times in 1000 pairs:

{table(parts["false_alarms"])}

A chain's law that is off by a multiple of what the report, after {8192} starts at alpha = 1e-6, says it would have found
with probability 0.99:

{table(parts["power"])}

Planted bugs at alpha = 1e-6 (a log e-value of {math.log(3e6):.1f} is wanted of {len(evidence.STAKES)} stakes on each score):

{table(parts["detection"])}

What the default budget prints for a right kernel:

```
{example}
```"""
    common.write_results(NAME, "Power and false alarms of the sampler check", text, parts, opening)


if __name__ == "__main__":
    main()
