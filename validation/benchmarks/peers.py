"""NUTS side by side with its peers: ``python -m validation.benchmarks.peers [--rounds 3] [--only refhmc nutpie]``.

refhmc, nutpie, NumPyro and BlackJAX sample the problems of ``validation.benchmarks.problems`` as
``validation.benchmarks.samplers`` says: each measurement in a process of its own, pinned to one core, the libraries
alternating within a round so that drift hits all alike. A run whose chains are stuck or disagree is an error and gives no
figure: a chain that never moves has a perfect effective sample size.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import time

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common, problems, samplers

TIMEOUT = 900.0
PACKAGES = ["refhmc", "nutpie", "numpyro", "blackjax", "jax", "jaxlib", "numba", "numpy", "arviz", "scikit-learn"]
MEASURES = {
    "seconds": "sampling s",
    "gradients_per_second": "leapfrogs/s",
    "gradients": "leapfrogs",
    "ess_min_per_second": "min ESS/s",
    "ess_mean_per_second": "mean ESS/s",
    "ess_min_per_1000": "min ESS/1000 leapfrogs",
    "start_up": "start-up s",
}
OURS = ("refhmc", "refhmc-gradients")
WANTED_RATIO = 2.0


def measure(library: str, problem: str, seed: int) -> dict[str, object]:
    """One process: medians over its runs, or ``error``."""
    arguments = ["-W", "ignore", "-m", "validation.benchmarks.samplers", library, problem, "--seed", str(seed)]
    try:
        done = common.run_python([*arguments, "--started", repr(time.time())], TIMEOUT)
    except Exception as failure:  # a peer that hangs or is missing must not end the comparison
        return {"error": f"{type(failure).__name__}"}
    lines = [line for line in done.stdout.splitlines() if line.startswith(samplers.RESULT_MARK)]
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:200]}
    told = json.loads(lines[-1][len(samplers.RESULT_MARK) :])
    errors = [run["error"] for run in told["runs"] if run["error"]]
    if errors:
        return {"error": f"{len(errors)} of {len(told['runs'])} runs: {errors[0]}"}

    def median(of) -> float:
        return statistics.median(of(run) for run in told["runs"])

    return {
        "error": "",
        "runs": len(told["runs"]),
        "seconds": median(lambda r: r["seconds"]),
        "processor_share": median(lambda r: r["processor_seconds"] / r["wall_seconds"]),
        "gradients": median(lambda r: r["gradients"]),
        "gradients_per_second": median(lambda r: r["gradients"] / r["seconds"]),
        "ess_min_per_second": median(lambda r: r["ess_min"] / r["seconds"]),
        "ess_mean_per_second": median(lambda r: r["ess_mean"] / r["seconds"]),
        "ess_min_per_1000": median(lambda r: 1000 * r["ess_min"] / r["draw_gradients"]),
        "ess_mean_per_1000": median(lambda r: 1000 * r["ess_mean"] / r["draw_gradients"]),
        "max_r_hat": max(r["max_r_hat"] for r in told["runs"]),
        "start_up": told["start_up"],
    }


def number(x: float) -> str:
    """Three digits, thousands with commas."""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def spread(values) -> str:
    """Median (least..greatest)."""
    values = list(values)
    middle = number(statistics.median(values))
    return f"{middle} ({number(min(values))}..{number(max(values))})" if len(values) > 1 else middle


def rows_of(library: str, rounds: list[dict[str, object]]) -> list[str]:
    """A library's row in a problem's table."""
    good = [r for r in rounds if not r["error"]]
    if len(good) < len(rounds):
        bad = next(r["error"] for r in rounds if r["error"])
        return [library, f"ERROR in {len(rounds) - len(good)} of {len(rounds)} rounds: {bad}"] + [""] * len(MEASURES)
    return [library, *(spread(r[m] for r in good) for m in MEASURES), f"{max(r['max_r_hat'] for r in good):.3f}"]


def ratios(own: str, problem: str, outcome: dict[str, list[dict[str, object]]]) -> dict[str, object] | None:
    """refhmc's min ESS/s over that of the best peer, round by round.

    nutpie's logistic regression has refhmc's own gradient, so there the best of the others counts: with the gradient in
    common and nearly all of the time, the ratio would only tell the warm-ups apart.
    """
    ours = outcome.get(own)
    peers = [name for name in outcome if name not in OURS and (problem, name) != ("logistic", "nutpie")]
    against = [name for name in peers if not any(r["error"] for r in outcome[name])]
    if not ours or not against or any(r["error"] for r in ours):
        return None
    best = max(against, key=lambda name: statistics.median(r["ess_min_per_second"] for r in outcome[name]))
    paired = [a["ess_min_per_second"] / b["ess_min_per_second"] for a, b in zip(ours, outcome[best], strict=True)]
    return {"peer": best, "ratios": paired, "median": statistics.median(paired), "wanted": WANTED_RATIO}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds, each with seeds of its own (default 3)")
    parser.add_argument("--only", nargs="+", choices=samplers.LIBRARIES, default=list(samplers.LIBRARIES))
    parser.add_argument("--problems", nargs="+", choices=problems.DIMENSIONS, default=list(problems.DIMENSIONS))
    arguments = parser.parse_args()
    about = common.machine(PACKAGES)
    outcome = {p: {name: [] for name in arguments.only} for p in arguments.problems}
    for problem in arguments.problems if "refhmc" in arguments.only else []:
        measure("refhmc", problem, seed=0)  # fills refhmc's cache of compiled code
    for k in range(arguments.rounds):
        for problem in arguments.problems:
            order = arguments.only if k % 2 == 0 else arguments.only[::-1]
            for library in order:
                result = measure(library, problem, seed=1000 * (k + 1))
                outcome[problem][library].append(result)
                figure = result["error"] or f"{result['ess_min_per_second']:,.0f} min ESS/s"
                print(f"round {k + 1}, {problems.TITLES[problem]}, {library}: {figure}", file=sys.stderr, flush=True)
    parts = [
        'refhmc: the default warm-up, Stan\'s; refhmc-gradients: `Diagonal(learn_from="draws and gradients")`, an idea of\n'
        "nutpie's, which nutpie uses here too. "
        "NUTS, target acceptance 0.8, depth 10 at most, diagonal mass matrix adapted; 4 chains of 1,000 + 1,000, one\n"
        f"after another on one core; {arguments.rounds} rounds: median (least..greatest). Sampling seconds are warm-up "
        "and\ndraws, without compiling and without diagnostics or conversion of the draws; leapfrogs are gradients,\n"
        "warm-up included; ESS is ArviZ's bulk ESS over the unconstrained coordinates, per second of warm-up and draws,\n"
        "or per 1,000 leapfrogs after warm-up. Start-up: from the start of the process until compiled and ready to draw\n"
        "(refhmc: with a warm cache, one draw made; nutpie: its C functions compiled, one draw made)."
    ]
    header = ["library", *MEASURES.values(), "max R-hat"]
    summary = {}
    for problem, by_library in outcome.items():
        parts.append(f"## {problems.TITLES[problem]}")
        parts.append(common.table(header, [rows_of(name, rounds) for name, rounds in by_library.items()]))
        for own in OURS:
            ratio = summary[f"{problem}, {own}"] = ratios(own, problem, by_library)
            if ratio is None:
                continue
            met = "met" if ratio["median"] >= WANTED_RATIO else "MISSED"
            parts.append(
                f"{own} over {ratio['peer']}, min ESS/s, paired rounds: {spread(ratio['ratios'])}; "
                f"wanted >= {WANTED_RATIO:g}: {met}."
            )
    shares = [r["processor_share"] for rows in outcome.values() for rs in rows.values() for r in rs if not r["error"]]
    if shares:
        parts.append(f"The least share of the core that a measured process had: {100 * min(shares):.0f} %.")
    data = {"rounds": arguments.rounds, "problems": outcome, "ratios": summary}
    common.report("peers", "NUTS and its peers", "\n\n".join(parts), data, about)


if __name__ == "__main__":
    main()
