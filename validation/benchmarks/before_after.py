"""The speed of the present tree beside that of another commit: ``python -m validation.benchmarks.before_after REV``.

In each of ``--pairs`` rounds (default 30) a new process of each tree does every row, the two in turn on one core, in an
order that alternates from round to round. The processes are new in each round because two processes of one commit can
differ for their whole life (one such pair, 10 times in turn: 0.94, interval 0.90 to 0.97; where code and arrays lie may be the
reason), which repeated pairs of the same two processes cannot tell from a difference of the text. The rows are those
of :mod:`validation.benchmarks.timed_rows`, and start-up. Before anything is timed, each tree's core is compiled; the
processes that are timed load it.

The figure is the median over the pairs of time now / time before, with its interval by the sign test at 95 % (n = 30:
k = 10, 95.7 %; :mod:`validation.benchmarks.median`). It assumes nothing of the noise's law, and single disturbed pairs do not
move it. "below 1.03": all of the interval is; "above 1.03": all of it is not; "undecided" otherwise, and with fewer than six
pairs always.

The clock is the time of the processor that the process used, since other work on the machine lengthens the wall's;
``--clock wall`` decides by that one. The file of results has the summary of each row by both.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import pathlib
import statistics
import subprocess
import sys
import threading
import time

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common
from validation.benchmarks.median import median_interval, rank
from validation.two_trees import Tree, commit_beside, git, present_tree

WORKER = pathlib.Path(__file__).resolve().with_name("timed_rows.py")
LIMIT = 1.03
CONFIDENCE = 0.95
TIMEOUT = 900.0  # of one answer
MOST_ROUNDS = 3
AT_END = "; import time; print(time.process_time())"
START_UP = {
    "import refhmc": "import refhmc" + AT_END,
    "new process to first draw": "import refhmc; refhmc.sample(refhmc.models.Funnel(), refhmc.NUTS(), draws=1, tune=0, "
    "chains=1, random_seed=1, raw=True, progressbar=False)" + AT_END,
}
CLOCKS = ("processor", "wall")


class Worker:
    """A process with the refhmc of a tree."""

    def __init__(self, tree: Tree):
        command = [sys.executable, "-P", str(WORKER)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, cwd=tree.cache, env=environment(tree), text=True, **pipes)
        told = self.ask(rows=True)
        if told.get("refhmc") != str(tree.root):
            raise SystemExit(f"no process with the refhmc of {tree.root}: {told}")
        self.rows = told["rows"]

    def ask(self, **question) -> dict:
        """The answer; one with ``error`` if the process gives none in time."""
        alarm = threading.Timer(TIMEOUT, self.process.kill)
        alarm.start()
        try:
            print(json.dumps(question), file=self.process.stdin, flush=True)
            return json.loads(self.process.stdout.readline() or '{"error": "the process ended"}')
        except OSError as error:
            return {"error": str(error)}
        finally:
            alarm.cancel()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()


def environment(tree: Tree) -> dict[str, str]:
    """One thread, and bytecode kept as of an installed package: else each process compiles the sources that it imports."""
    given = {**tree.environment(), **common.ONE_THREAD, "PYTHONPYCACHEPREFIX": str(tree.cache / "bytecode")}
    return {name: value for name, value in given.items() if name != "PYTHONDONTWRITEBYTECODE"}


def compile_all(tree: Tree, rows: list[str]) -> None:
    """Run every row briefly, in a process of its own, until one has compiled nothing."""
    tree.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for _ in range(MOST_ROUNDS):
        there = tree.compiled()
        for text in [START_UP[row] for row in rows if row in START_UP]:
            started(tree, text)
        with contextlib.closing(Worker(tree)) as worker:
            for row in rows:
                if row not in START_UP:
                    worker.ask(row=row, amount=4, seed=0)
        if tree.compiled() == there:
            return


def started(tree: Tree, text: str) -> dict:
    """Seconds of a new process that runs ``text``, which prints its processor's."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", text],
        cwd=tree.cache,
        env=environment(tree),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    wall = time.perf_counter() - begin
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return {"wall": wall, "processor": float(done.stdout.split()[-1])}


def calibrate(tree: Tree, rows: list[str], seconds: float) -> dict[str, dict]:
    """``amount`` of each row's work, the same for both trees; or ``error``."""
    with contextlib.closing(Worker(tree)) as worker:
        return {row: {"amount": 1} if row in START_UP else worker.ask(row=row, seconds=seconds) for row in rows}


def take_round(k: int, before: Tree, now: Tree, results: dict[str, dict]) -> None:
    """Add the k-th pair to each row of ``results`` that is without error."""
    first = "now" if k % 2 else "before"
    with contextlib.ExitStack() as stack:
        trees = {"before": before, "now": now}
        order = [first, *(when for when in trees if when != first)]
        workers = {when: stack.enter_context(contextlib.closing(Worker(trees[when]))) for when in order}
        for row, found in results.items():
            pair = {"first": first}
            for when in order:
                if row in START_UP:
                    pair[when] = started(trees[when], START_UP[row])
                else:
                    pair[when] = workers[when].ask(row=row, amount=found["amount"], seed=k)
                if "error" in pair[when]:
                    found["error"] = f"{when}: {pair[when]['error']}"
            if "error" not in found:
                found.setdefault("pairs", []).append(pair)
                found["same_draws"] = all(p["before"].get("draws") == p["now"].get("draws") for p in found["pairs"])


def verdict(low: float, high: float) -> str:
    if high < LIMIT:
        return f"below {LIMIT}"
    return f"above {LIMIT}" if low > LIMIT else "undecided"


def summary(measured: dict, clock: str) -> dict:
    """Median ratio, interval, verdict and median milliseconds by one clock."""
    pairs = measured["pairs"]
    middle, low, high = median_interval((pair["now"][clock] / pair["before"][clock] for pair in pairs), CONFIDENCE)
    times = {when: statistics.median(pair[when][clock] for pair in pairs) * 1e3 for when in ("before", "now")}
    return {"ratio": middle, "low": low, "high": high, "verdict": verdict(low, high), "milliseconds": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="the commit before")
    parser.add_argument("--pairs", type=int, default=30, help="pairs of each row (default 30)")
    parser.add_argument("--seconds", type=float, default=0.3, help="of one run (default 0.3)")
    parser.add_argument(
        "--rows", nargs="+", default=[""], metavar="WORD", help="rows whose name has one of these words"
    )
    parser.add_argument("--clock", choices=CLOCKS, default=CLOCKS[0])
    parser.add_argument("--dry", action="store_true", help="print, and leave the files of results as they are")
    chosen = parser.parse_args()
    common.pin_to_one_core()
    about = common.machine(["refhmc", "numba", "numpy"])
    with contextlib.ExitStack() as stack:
        here = stack.enter_context(present_tree())
        here.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        other = stack.enter_context(commit_beside(here, chosen.revision))
        other.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.closing(Worker(here)) as worker:
            rows = [row for row in [*worker.rows, *START_UP] if any(word in row for word in chosen.rows)]
        if not rows:
            raise SystemExit(f"no row has any of the words {chosen.rows}")
        for tree in (other, here):
            compile_all(tree, rows)
        commits = {
            "before": git("rev-parse", "--short=12", chosen.revision),
            "now": git("describe", "--always", "--dirty"),
        }
        results = calibrate(here, rows, chosen.seconds)
        for k in range(chosen.pairs):
            take_round(k, other, here, {row: found for row, found in results.items() if "error" not in found})
            print(f"round {k + 1} of {chosen.pairs}", file=sys.stderr, flush=True)
    for found in results.values():
        if "error" not in found:
            found |= {clock: summary(found, clock) for clock in CLOCKS}
    lines = []
    for row, found in results.items():
        if "error" in found:
            lines.append([row, "", "", "", "", f"ERROR {found['error']}"])
            continue
        by = found[chosen.clock]
        times = [f"{by['milliseconds'][when]:.1f}" for when in ("before", "now")]
        word = by["verdict"] + ("" if found["same_draws"] else ", other draws")
        lines.append([row, *times, f"{by['ratio']:.3f}", f"{by['low']:.3f}..{by['high']:.3f}", word])
    coverage = 1 - 2 * sum(math.comb(chosen.pairs, j) for j in range(rank(chosen.pairs, CONFIDENCE))) / 2**chosen.pairs
    text = (
        f"Milliseconds ({chosen.clock}) for the same work at {commits['before']} and now ({commits['now']}), medians of "
        f"{chosen.pairs} pairs in alternating order; the\nmedian of now / before in one pair, its interval of "
        f"{100 * coverage:.1f} % by the sign test, and whether that lies below {LIMIT}.\n\n"
        + common.table(["row", "before", "now", "now / before", "interval", "verdict"], lines)
    )
    summaries = {row: {key: value for key, value in found.items() if key != "pairs"} for row, found in results.items()}
    data = {"commits": commits, "pairs": chosen.pairs, "clock": chosen.clock, "rows": summaries}
    if chosen.dry:
        print(text)
    else:
        common.report("before_after", "Before and after", text, data, about)


if __name__ == "__main__":
    main()
