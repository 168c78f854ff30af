"""RMHMC side by side with its peers: ``python -m validation.benchmarks.riemannian [--repeats 7] [--only refhmc BlackJAX]``.

Static HMC on a metric that depends on the position, with the implicit midpoint (refhmc, BlackJAX, mici) and the generalised
leapfrog (refhmc, mici), on the problems of ``validation.benchmarks.riemannian_peers``. Each library is compiled in a process
of its own, pinned to one core, checked against a step written out in NumPy, warmed up, and waits; then they take turns:
repeat k starts every chain from the same k-th position, and the ratios are those of the times of one repeat. A chain that
does not move, is not finite, or accepts otherwise than the others is an error and gives no figure.
"""

from __future__ import annotations

import argparse
import functools
import json
import pathlib
import statistics
import subprocess
import sys
import threading

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common
from validation.benchmarks import riemannian_peers as peers

SECONDS = 1.0  # of one timing
TIMEOUT = 600.0  # of one answer
COUNTED_DRAWS = 20  # of each start, for the iterations
PACKAGES = ["refhmc", "blackjax", "mici", "jax", "jaxlib", "numba", "numpy", "scipy", "scikit-learn"]


def prepare_refhmc(problem: str, integrator: str = "midpoint", checked: bool = True, fuse: bool = False) -> peers.Peer:
    """refhmc's static RMHMC, the model's derivatives written by hand; ``checked``: every step is taken back, the default."""
    import numpy as np

    import refhmc
    from refhmc.dynamics.trajectory import integrate
    from refhmc.models.banana import Banana
    from refhmc.models.funnel import Funnel
    from validation.benchmarks import problems

    setting = peers.PROBLEMS[problem]
    if problem == "logistic":
        model = problems.refhmc_model("logistic")
    else:
        model = Banana() if problem == "banana" else Funnel(peers.N_X)
    metric = refhmc.metrics.SoftAbs(alpha=peers.ALPHA) if problem == "funnel" else refhmc.metrics.Fisher()
    solver = {"tolerance": peers.TOLERANCE, "max_iterations": peers.MAX_ITERATIONS, "reversibility_check": checked}
    if integrator == "midpoint":
        method = refhmc.integrators.ImplicitMidpoint(variant="endpoint", **solver)
    else:
        method = refhmc.integrators.GeneralizedLeapfrog(variant="cached", **solver)
    kernel = refhmc.HMC(step_size=setting.step_size, n_steps=setting.n_steps, metric=metric, integrator=method)
    H = refhmc.Hamiltonian(model, metric)

    def step(q, p):
        path = integrate(H, method, q, p, step_size=setting.step_size, n_steps=1)
        return path.q[-1], path.p[-1]

    def sample(q, draws: int, seed: int):
        options = {
            "chains": 1,
            "cores": 1,
            "progressbar": False,
            "raw": True,
            "preflight": False,
            "backend": refhmc.Numba(fuse=fuse),
        }
        options["generate"] = False
        return refhmc.sample(model, kernel, draws=draws, tune=0, random_seed=seed, initvals=q, **options)

    def prepare(draws: int):
        return lambda q, seed: sample(q, draws, seed)

    def read(result):
        found = result.sample_stats
        return result.draws[0], found["acceptance_rate"][0], int(np.sum(found["n_steps"]))

    def count(q, draws: int) -> peers.Count:
        found = sample(q, draws, 1).sample_stats
        steps, failures = int(np.sum(found["n_steps"])), int(np.sum(found["solver_failed"]))
        return peers.Count(int(np.sum(found["solver_iterations"])), steps, failures, steps)

    return peers.Peer(integrator, step, prepare, read, count)


LIBRARIES = {
    "refhmc": prepare_refhmc,
    "refhmc unchecked": functools.partial(prepare_refhmc, checked=False),
    "refhmc fused": functools.partial(prepare_refhmc, fuse=True),
    "refhmc fused unchecked": functools.partial(prepare_refhmc, checked=False, fuse=True),
    "BlackJAX": peers.prepare_blackjax,
    "BlackJAX by hand": functools.partial(peers.prepare_blackjax, by_hand=True),
    "mici": peers.prepare_mici,
    "refhmc leapfrog": functools.partial(prepare_refhmc, integrator="leapfrog"),
    "refhmc leapfrog unchecked": functools.partial(prepare_refhmc, integrator="leapfrog", checked=False),
    "mici leapfrog": functools.partial(peers.prepare_mici, integrator="leapfrog"),
}
# (ours, theirs): the ratio of steps/s wanted on each problem, if any. BlackJAX never takes a step back, mici always does.
RATIOS = {
    ("refhmc unchecked", "BlackJAX"): {"banana": 10.0, "funnel": 8.0, "logistic": 3.0},
    ("refhmc", "BlackJAX"): {},
    ("refhmc unchecked", "BlackJAX by hand"): {},
    ("refhmc fused unchecked", "BlackJAX by hand"): {"banana": 1.0},
    ("refhmc fused", "BlackJAX by hand"): {},
    ("refhmc fused", "refhmc"): {"funnel": 1.0, "logistic": 1.0},
    ("refhmc fused unchecked", "refhmc unchecked"): {"funnel": 1.0, "logistic": 1.0},
    ("refhmc", "BlackJAX by hand"): {},
    ("refhmc", "mici"): {},
    ("refhmc leapfrog", "mici leapfrog"): {},
    ("refhmc unchecked", "refhmc"): {},
    ("refhmc leapfrog unchecked", "refhmc leapfrog"): {},
}
ACCEPTANCE_SLACK = 0.03  # and four standard errors


class Process:
    """A library on one problem, in a process of its own."""

    def __init__(self, library: str, problem: str):
        self.error = ""
        self.told: dict[str, object] = {}
        self.repeats: list[dict[str, object]] = []
        arguments = ["-W", "ignore", "-m", "validation.benchmarks.riemannian", "--process", library, problem]
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=common.ROOT,
            env=common.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, **command) -> dict[str, object]:
        """The answer to a command; an error in it, or none at all, is kept and ends the questions."""
        if self.error:
            return {}
        alarm = threading.Timer(TIMEOUT, self.process.kill)
        alarm.start()
        try:
            print(json.dumps(command), file=self.process.stdin, flush=True)
            lines = (line for line in self.process.stdout if line.startswith(peers.RESULT_MARK))
            answer = json.loads(next(lines)[len(peers.RESULT_MARK) :])
        except (OSError, StopIteration):
            answer = {"error": "the process ended, or gave no answer in time"}
        finally:
            alarm.cancel()
        self.error = answer.get("error", "")
        return answer

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def measure(problem: str, libraries: list[str], repeats: int, seconds: float) -> dict[str, dict[str, object]]:
    """All libraries on one problem."""
    processes = {}
    try:
        for name in libraries:
            processes[name] = Process(name, problem)
            processes[name].told = processes[name].ask(ready=seconds)
        for k in range(repeats):
            for name in libraries if k % 2 == 0 else libraries[::-1]:
                processes[name].repeats.append(processes[name].ask(repeat=k))
        for name, process in processes.items():
            process.told |= process.ask(count=[repeats, min(COUNTED_DRAWS, process.told.get("draws", 0))])
            if not process.error:
                rate = statistics.median(r["steps_per_second"] for r in process.repeats)
            print(f"{problem}, {name}: {process.error or f'{rate:,.0f} steps/s'}", file=sys.stderr, flush=True)
    finally:
        for process in processes.values():
            process.close()
    return {
        name: {"error": p.error, **({} if p.error else p.told | {"repeats": p.repeats})}
        for name, p in processes.items()
    }


def check_acceptance(outcome: dict[str, dict[str, object]]) -> None:
    """Turn into errors the figures of libraries whose acceptance rates differ from that of the first of their method."""
    for method in ("midpoint", "leapfrog"):
        names = [n for n in outcome if ("leapfrog" in n) == (method == "leapfrog") and not outcome[n]["error"]]
        rates = {name: [r["acceptance"] for r in outcome[name]["repeats"]] for name in names}
        for name in names:
            outcome[name]["acceptance"] = statistics.mean(rates[name])
        for name in names[1:]:
            differences = [a - b for a, b in zip(rates[name], rates[names[0]], strict=True)]
            error = statistics.stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 1.0
            if abs(statistics.mean(differences)) > ACCEPTANCE_SLACK + 4 * error:
                means = f"{statistics.mean(rates[name]):.3f}, {names[0]} {statistics.mean(rates[names[0]]):.3f}"
                outcome[name] = {"error": f"accepts {means}"}


def number(x: float) -> str:
    """Three digits, thousands with commas."""
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def rows(outcome: dict[str, dict[str, object]]) -> list[list[str]]:
    """The rows of a problem's table."""
    found = []
    for name, figures in outcome.items():
        if figures["error"]:
            found.append([name, "ERROR", *[""] * 6])
            continue
        rates = [r["steps_per_second"] for r in figures["repeats"]]
        times = [1e6 / rate for rate in rates]
        found.append(
            [
                name,
                number(statistics.median(rates)),
                number(max(rates)),
                number(statistics.median(times)),
                number(min(times)),
                f"{figures['evaluations_per_step']:.1f}",
                f"{100 * figures['failed_solves']:.2g} %",
                f"{figures['acceptance']:.3f}",
            ]
        )
    return found


def ratios(problem: str, outcome: dict[str, dict[str, object]]) -> list[dict[str, object]]:
    """The ratios of steps/s, repeat by repeat, of the pairs of ``RATIOS``."""
    found = []
    for (ours, theirs), wanted in RATIOS.items():
        both = [outcome.get(ours, {"error": "not run"}), outcome.get(theirs, {"error": "not run"})]
        if both[0]["error"] or both[1]["error"]:
            continue
        a, b = ([r["steps_per_second"] for r in figures["repeats"]] for figures in both)
        paired = [x / y for x, y in zip(a, b, strict=True)]
        found.append(
            {
                "ours": ours,
                "theirs": theirs,
                "ratios": paired,
                "median": statistics.median(paired),
                "of_best": max(a) / max(b),
                "wanted": wanted.get(problem),
            }
        )
    return found


def sentence(ratio: dict[str, object]) -> str:
    """A pair's ratios in words."""
    text = (
        f"{ratio['ours']} over {ratio['theirs']}: {number(ratio['median'])} "
        f"({number(min(ratio['ratios']))}..{number(max(ratio['ratios']))}; of the best repeats "
        f"{number(ratio['of_best'])})"
    )
    if ratio["wanted"]:
        text += f"; wanted >= {ratio['wanted']:g}: {'met' if ratio['median'] >= ratio['wanted'] else 'MISSED'}"
    return f"- {text}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="turns of each library on each problem (default 7)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of one turn (default {SECONDS:g})")
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--problems", nargs="+", choices=peers.PROBLEMS, default=list(peers.PROBLEMS))
    parser.add_argument("--dry", action="store_true", help="print, and leave the files of results as they are")
    parser.add_argument("--process", nargs=2, metavar=("LIBRARY", "PROBLEM"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.process:
        library, problem = arguments.process
        peers.serve(problem, functools.partial(LIBRARIES[library], problem))
        return
    about = common.machine(PACKAGES)
    outcome, summary = {}, {}
    parts = [
        "Static HMC on a metric that depends on the position; tolerance 1e-6 on the largest change of a coordinate, 100\n"
        f"iterations at most; one core, warm; {arguments.repeats} repeats of about {arguments.seconds:g} s, the libraries in "
        "turn, each repeat from a start common\nto all. Ratios are of steps/s, of one repeat: median (least..greatest). "
        "Before timing, single steps of every library\nagree with an implicit midpoint, or a generalised leapfrog, solved "
        "to rounding in NumPy, to 10 tolerances.\n\n"
        "BlackJAX: `blackjax.rmhmc` with its default solver and the metric as a function (the SoftAbs map with a\n"
        "derivative written by hand), all draws one compiled program; by hand: its `Metric` replaced by one with all\n"
        "derivatives written by hand. mici: metric and derivatives in NumPy; reversibility checks included.\n"
        "refhmc takes every step back by default, as mici does; unchecked: `reversibility_check=False`, as BlackJAX;\n"
        "fused: `fuse=True`, compiled for the problem, as BlackJAX is.\n"
        "Evaluations are those of the fixed-point map in a step, the checks' included; refhmc: the solver's iterations.\n"
        "Failed: solves that do not converge (refhmc: of the steps)."
    ]
    header = ["library", "steps/s", "best", "us/step", "least", "evaluations", "failed", "acceptance"]
    for problem in arguments.problems:
        setting = peers.PROBLEMS[problem]
        outcome[problem] = measure(problem, arguments.only, arguments.repeats, arguments.seconds)
        check_acceptance(outcome[problem])
        summary[problem] = ratios(problem, outcome[problem])
        parts.append(f"## {setting.title}, {setting.metric}, step {setting.step_size:g} x {setting.n_steps}")
        parts.append(common.table(header, rows(outcome[problem])))
        errors = [f"{name}: {figures['error']}." for name, figures in outcome[problem].items() if figures["error"]]
        if errors:
            parts.append("\n".join(errors))
        if summary[problem]:
            parts.append("\n".join(map(sentence, summary[problem])))
    good = [figures for by_library in outcome.values() for figures in by_library.values() if not figures["error"]]
    if good:
        least = min(r["processor_share"] for figures in good for r in figures["repeats"])
        farthest = max(figures["distance"] for figures in good)
        parts.append(
            f"The least share of the core that a timing had: {100 * least:.0f} %. "
            f"The largest distance of a step to that in NumPy: {farthest:.1e}."
        )
    if arguments.dry:
        print("\n\n".join(parts))
        return
    data = {"repeats": arguments.repeats, "seconds": arguments.seconds, "problems": outcome, "ratios": summary}
    common.report("riemannian", "RMHMC and its peers", "\n\n".join(parts), data, about)


if __name__ == "__main__":
    common.pin_to_one_core()
    main()
