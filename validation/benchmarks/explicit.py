"""Hierarchical posteriors on learned metrics, and peers: ``python -m validation.benchmarks.explicit [--seeds 5]
[--only funnel ":nutpie" "eight schools:default" ...] [--peers /path/to/python]``.

Each sampler runs on each target with the same seeds, in a process of its own that is pinned to one core. A run has four chains,
one after another, with 1,000 iterations of warm-up and as many draws as stated above each table. The columns are:

- ESS of the scale parameter, and of the worst coordinate, per 1,000 gradients and per second of the whole call. Gradients and
  seconds include those of warm-up, except in the column "after warm-up". The smallest ESS of several scale parameters counts.
- seconds: processor time of the whole call, of all threads, with compiled code. start-up: seconds from the start of the process
  to the end of a first short call, for refhmc with a cache of compiled code.
- z: the largest |z| of mean and mean square of the scale parameters against the reference, pooled over the seeds. The critical
  value is for a false alarm in any row of the page with probability 1e-6.

Median and range over the seeds. A sampler that has run 300 s on a target takes no further seed, and a run ends after 300 s.
"default before" is the default of an earlier commit. If selected, it and the present default run in turn, in a new process
for each seed, because times of processes that run at different times, or of only one process each, are not comparable.
`--only TARGET:SAMPLER` selects by words in the names, and results that were not selected are kept. Peers run in the interpreter
of `--peers`, with refhmc from this tree and its dependencies.
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
import time
from collections.abc import Callable, Iterator
from typing import Any

import scipy.stats

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation import two_trees
from validation.benchmarks import common
from validation.benchmarks.peers import number, spread
from validation.benchmarks.samplers import CHAINS, RESULT_MARK

PROCESSOR = "AMD EPYC"  # of the cells that do not name theirs, and of most others
COMMIT_BEFORE = "34b412ff"  # the last one without a learned hierarchical metric
ENOUGH = 300.0  # seconds of sampling after which no further seed is taken
STARTING = 600.0
FALSE_ALARM = 1e-6
MOST_R_HAT = 1.01
NAME = "explicit"
PAGE_DATA, PARTIAL = (common.RESULTS / f"{NAME}.{end}" for end in ("json", "partial.json"))
PEERS = ("nutpie", "walnutpie", "NumPyro")
PACKAGES = ["nutpie", "walnutpie", "numpyro", "jax", "numba", "numpy"]
# Why a centred form costs more gradients than the non-centred one.
FUNNEL = (
    "v has the mass 1/9 + n/2, so that a trajectory must be about (1 + 9 n/2)^1/2 times as long as on the non-centred form, "
    "which is a normal distribution with independent coordinates"
)
WHY_NOT = dict.fromkeys(("funnel 2", "funnel 10", "funnel 100"), FUNNEL)

Cells = dict[str, dict[str, dict[str, Any]]]  # of each target and sampler: its runs, or why there are none

# ------------------------------------------------------------------------------------------------ in a process of its own


def say(**found: Any) -> None:
    print(RESULT_MARK + json.dumps(found), flush=True)


def measure(target_name: str, sampler_name: str, seeds: list[int], started: float) -> None:
    """Run a sampler on a target, and print a line when it is ready and one for each seed."""
    import numpy as np

    from refhmc import diagnostics
    from validation.benchmarks.explicit_samplers import SAMPLERS, Unavailable
    from validation.benchmarks.explicit_targets import TARGETS, statistics_of

    target, sampler = TARGETS[target_name], SAMPLERS[sampler_name]
    if sampler.funnels_only and target.non_centred is None:
        return say(why="not run without a funnel")
    try:
        run = sampler.prepare(target)
        say(start_up=time.time() - started)
        spent = 0.0
        for seed in seeds:
            begin = time.process_time()
            finish = run(seed)
            seconds = time.process_time() - begin
            found = finish()
            draws = np.asarray(found.draws)
            ess = diagnostics.ess(draws)
            say(
                seed=seed,
                seconds=seconds,
                gradients=found.gradients,
                draw_gradients=found.draw_gradients,
                draws=draws.shape[0] * draws.shape[1],
                ess_scale=float(ess[list(target.scales)].min()),
                ess_worst=float(ess.min()),
                r_hat=float(diagnostics.rhat(draws).max()),
                divergences=found.divergences,
                warnings=found.warnings,
                statistics=statistics_of(draws, target.scales),
            )
            spent += seconds
            if spent > ENOUGH:
                break
    except Unavailable as reason:
        say(why=str(reason))
    except ImportError as failure:
        say(why=f"not installed: {failure.name or failure}")


# ------------------------------------------------------------------------------------------------------------ measuring


def cell_of(
    target: str, sampler: str, seeds: list[int], interpreter: str, tree: two_trees.Tree | None
) -> dict[str, Any]:
    """Return the runs of a sampler on a target from a process of its own, or why there are none."""
    from validation.benchmarks.explicit_samplers import LIMIT

    begin = time.time()
    options = ["--measure", target, sampler, "--first", str(min(seeds, default=1)), "--seeds", str(len(seeds))]
    command = [interpreter, "-W", "ignore", "-P", __file__, *options, "--started", repr(begin)]
    environment, folder = common.environment(), common.ROOT
    if tree is not None:
        environment, folder = tree.environment() | common.ONE_THREAD, tree.cache
        command += ["--tree", str(tree.root)]
    cell: dict[str, Any] = {"start_up": None, "runs": [], "why": ""}
    limit = STARTING + ENOUGH + LIMIT
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit)
        output, error = done.stdout, (done.stderr.strip().splitlines() or [""])[-1] if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        output, error = (late.stdout or b"").decode(), f"no result in {LIMIT:.0f} s"
    for line in output.splitlines():
        if line.startswith(RESULT_MARK):
            found = json.loads(line[len(RESULT_MARK) :])
            if "seed" in found:
                cell["runs"].append(found)
            else:
                cell |= found
    cell["why"] = cell["why"] or error[:200]
    return cell | {"took": time.time() - begin}


def cells_in_turn(target: str, seeds: list[int], trees: dict[str, two_trees.Tree | None]) -> dict[str, dict[str, Any]]:
    """Return the cell of each sampler; for each seed, all of them run one after another, in new processes."""
    parts: dict[str, list] = {sampler: [] for sampler in trees}
    for k, seed in enumerate(seeds):
        for sampler in list(trees)[:: 1 if k % 2 else -1]:
            parts[sampler].append(cell_of(target, sampler, [seed], sys.executable, trees[sampler]))
        if any(sum(run["seconds"] for cell in cells for run in cell["runs"]) > ENOUGH for cells in parts.values()):
            break
    return {
        sampler: {
            "start_up": statistics.median([cell["start_up"] for cell in cells if cell["start_up"]] or [0.0]) or None,
            "runs": [run for cell in cells for run in cell["runs"]],
            "why": next((cell["why"] for cell in cells if cell["why"]), ""),
            "took": sum(cell["took"] for cell in cells),
        }
        for sampler, cells in parts.items()
    }


def selected(words: list[str], targets: list[str], samplers: list[str]) -> list[tuple[str, str]]:
    """Return the pairs that have both words of one of ``target:sampler``; a name in full selects only itself."""

    def matches(word: str, name: str, names: list[str]) -> bool:
        return name == word if word in names else word in name

    split = [word.partition(":")[::2] for word in words or [""]]
    return [
        (target, sampler)
        for target in targets
        for sampler in samplers
        if any(matches(t, target, targets) and matches(s, sampler, samplers) for t, s in split)
    ]


def merged(*parts: Cells) -> Cells:
    """Return the cells of all parts; later ones replace earlier ones."""
    cells: Cells = {}
    for part in parts:
        for target, row in part.items():
            cells.setdefault(target, {}).update(row)
    return cells


def read_cells(path: pathlib.Path) -> Cells:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def kept() -> Cells:
    """Return the cells of the last page, and those of a run that did not end."""
    return merged(*(read_cells(path) for path in (PAGE_DATA, PARTIAL) if path.exists()))


@contextlib.contextmanager
def tree_before(revision: str, wanted: bool) -> Iterator[two_trees.Tree | None]:
    """The tree of the earlier commit, if it is needed."""
    if not wanted:
        yield None
        return
    with two_trees.present_tree() as here, two_trees.commit_beside(here, revision) as tree:
        tree.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield tree


# -------------------------------------------------------------------------------------------------------------- figures


def per_1000(run: dict[str, Any], ess: str = "ess_scale") -> float:
    return 1000 * run[ess] / run["gradients"]


def after_warmup(run: dict[str, Any]) -> float:
    return 1000 * run["ess_scale"] / run["draw_gradients"]


def per_second(run: dict[str, Any]) -> float:
    return run["ess_scale"] / run["seconds"]


def z_scores(cell: dict[str, Any], reference: list[list[float]] | None) -> list[float]:
    """Return the z-score of each statistic: the mean over the runs minus the reference, in standard errors."""
    if not cell["runs"] or reference is None:
        return []
    n, scores = len(cell["runs"]), []
    for k, (expected, error) in enumerate(reference):
        each = [run["statistics"][k] for run in cell["runs"]]
        variance = sum(e * e for _, e in each) / n**2 + error**2
        scores.append((statistics.fmean(m for m, _ in each) - expected) / variance**0.5)
    return scores


def critical_value(cells: Cells, references: dict[str, Any]) -> float:
    """Return the |z| that some statistic of some run exceeds with probability FALSE_ALARM if all are right (Bonferroni).

    The statistics of each run are counted next to the pooled ones.
    """
    scored = [(cell, len(z_scores(cell, references.get(t)))) for t, row in cells.items() for cell in row.values()]
    m = sum(n * (1 + len(cell["runs"])) for cell, n in scored)
    return float(scipy.stats.norm.isf(FALSE_ALARM / (2 * max(m, 1))))


def fault_of(cell: dict[str, Any], reference: list[list[float]] | None, critical: float) -> str:
    """Return what is wrong with the draws of a cell, or the empty string."""
    scores, r_hat = z_scores(cell, reference), max((run["r_hat"] for run in cell["runs"]), default=0.0)
    faults = [f"|z| {max(map(abs, scores)):.1f}"] if scores and not max(map(abs, scores)) <= critical else []
    return ", ".join(faults + ([] if r_hat <= MOST_R_HAT else [f"R-hat {r_hat:.3f}"]))


HEADER = [
    "sampler",
    "ESS scale / 1,000",
    "after warm-up",
    "ESS worst / 1,000",
    "ESS scale / s",
    "seconds",
    "start-up s",
    "gradients",
    "divergent",
    "R-hat",
    "z",
    "seeds",
]


def row_of(sampler: str, cell: dict[str, Any], reference: list[list[float]] | None) -> list[str]:
    runs = cell["runs"]
    if not runs:
        return [sampler, *[""] * (len(HEADER) - 2), f"none: {cell['why'][:80]}"]
    scores = z_scores(cell, reference)
    known = all(run["divergences"] is not None for run in runs)
    divergent = (
        f"{100 * sum(run['divergences'] for run in runs) / sum(run['draws'] for run in runs):.2g} %" if known else ""
    )
    return [
        sampler,
        spread(per_1000(run) for run in runs),
        spread(after_warmup(run) for run in runs),
        spread(per_1000(run, "ess_worst") for run in runs),
        spread(per_second(run) for run in runs),
        spread(run["seconds"] for run in runs),
        number(cell["start_up"]),
        spread(run["gradients"] for run in runs),
        divergent,
        f"{max(run['r_hat'] for run in runs):.3f}",
        f"{max(map(abs, scores)):.1f}" if scores else "no reference",
        str(len(runs)) + (f"; then {cell['why']}" if cell["why"] else ""),
    ]


def draws_of(row: dict[str, dict[str, Any]]) -> str:
    """Return how many draws the chains of a target have."""
    found = sorted({run["draws"] // CHAINS for cell in row.values() for run in cell["runs"]})
    return f"{' or '.join(f'{n:,}' for n in found) or 'No'} draws of each chain."


# ----------------------------------------------------------------------------------------------------------- judgements


class Judge:
    """The conditions that must hold, decided from the cells. Each answer is "met", "not met" or "not measured", and why.

    A comparison with peers that is not won has the answer "no peer is right" if the draws of none of them are.
    """

    def __init__(
        self, cells: Cells, references: dict[str, Any], learned: tuple[str, ...], own: tuple[str, ...]
    ) -> None:
        self.cells, self.references, self.learned, self.own = cells, references, learned, own
        self.critical = critical_value(cells, references)

    def median(self, target: str, sampler: str, figure: Callable = per_1000) -> float | None:
        runs = self.cells.get(target, {}).get(sampler, {}).get("runs", [])
        return statistics.median(map(figure, runs)) if runs else None

    def best(self, target: str, samplers: tuple[str, ...], figure: Callable = per_1000) -> tuple[str, float] | None:
        """The sampler with the largest median."""
        found = [(name, self.median(target, name, figure)) for name in samplers]
        return max(((n, m) for n, m in found if m is not None), key=lambda pair: pair[1], default=None)

    def ratio(self, target: str, above: str, below: str, figure: Callable) -> float | None:
        """The median over common seeds of the ratio of two samplers."""
        runs = [{r["seed"]: r for r in self.cells.get(target, {}).get(s, {}).get("runs", [])} for s in (above, below)]
        ratios = [figure(runs[0][seed]) / figure(runs[1][seed]) for seed in runs[0].keys() & runs[1].keys()]
        return statistics.median(ratios) if ratios else None

    def fault(self, target: str, sampler: str) -> str:
        return fault_of(self.cells[target][sampler], self.references.get(target), self.critical)

    def correct(self) -> tuple[str, str]:
        there = [(t, s) for t, row in self.cells.items() for s in self.own if row.get(s, {}).get("runs")]
        faults = [f"{t}, {s}: {fault}" for t, s in there if (fault := self.fault(t, s))]
        said = "; ".join(faults) or f"{len(there)} rows, |z| at most {self.critical:.2f} and R-hat at most {MOST_R_HAT}"
        return ("not measured" if not there else "not met" if faults else "met"), said

    def at_least(self, target: str, least: float) -> tuple[str, str]:
        found = self.best(target, self.learned)
        if found is None:
            return "not measured", ""
        later = number(self.median(target, found[0], after_warmup) or 0.0)
        return ("met" if found[1] >= least else "not met"), f"{found[0]}: {number(found[1])}, after warm-up {later}"

    def against_softabs(self, target: str, least: float) -> tuple[str, str]:
        found = self.best(target, self.learned, per_second)
        ratio = found and self.ratio(target, found[0], "SoftAbs", per_second)
        if not ratio:
            return "not measured", ""
        return ("met" if ratio >= least else "not met"), f"{found[0]}: {number(ratio)} times"

    def divergences(self, target: str, most: float) -> tuple[str, str]:
        found = self.best(target, self.learned)
        if found is None:
            return "not measured", ""
        runs = self.cells[target][found[0]]["runs"]
        share = sum(run["divergences"] for run in runs) / sum(run["draws"] for run in runs)
        return ("met" if share < most else "not met"), f"{found[0]}: {100 * share:.2g} %"

    def every_seed(self, target: str) -> tuple[str, str]:
        """Whether the default gives no warning and the right posterior at each seed."""
        runs = self.cells.get(target, {}).get("default", {}).get("runs", [])
        reference = self.references.get(target)
        silent = sum(run["warnings"] == 0 for run in runs)
        right = sum(all(abs(z) <= self.critical for z in z_scores({"runs": [run]}, reference)) for run in runs)
        answer = "not measured" if not runs else "met" if silent == right == len(runs) else "not met"
        return answer, f"no warning at {silent} and right at {right} of {len(runs)} seeds"

    def against_non_centred(self, target: str, least: float) -> tuple[str, str]:
        """The best of refhmc's samplers on the centred form."""
        found, form = self.best(target, self.own), self.median(target, "non-centred NUTS")
        if found is None or form is None:
            return "not measured", ""
        return ("met" if found[1] >= least * form else "not met"), f"{found[0]}: {number(found[1] / form)}"

    def against_peers(self, target: str, least: float) -> tuple[str, str]:
        """The best of refhmc's samplers, and the best peer whose draws are right, or the best of all if there is none."""
        found = self.best(target, self.own)
        measured = tuple(peer for peer in PEERS if self.median(target, peer) is not None)
        if found is None or not measured:
            return "not measured", ""
        right = tuple(peer for peer in measured if not self.fault(target, peer))
        peer, figure = self.best(target, right or measured) or ("", 1.0)
        said = f"{found[0]}: {number(found[1] / figure)} times {peer}"
        if not right:
            said = f"{said}, but no peer is right ({peer}: {self.fault(target, peer)})"
        return ("met" if found[1] >= least * figure else "not met" if right else "no peer is right"), said

    def against_before(self, target: str, before: str, least: float) -> tuple[str, str]:
        ratios = [self.ratio(target, "default", before, figure) for figure in (per_1000, per_second)]
        if None in ratios:
            return "not measured", ""
        said = f"{ratios[0]:.3f} per gradient, {ratios[1]:.3f} per second"
        return ("met" if min(ratios) >= least else "not met"), said


def conditions(judge: Judge, funnels: list[str], others: list[str], before: str) -> list[list[str]]:
    """Return a row for each condition: the condition, the answer and the figures."""
    rows = [
        ["refhmc is correct everywhere, and no R-hat is above 1.01", *judge.correct()],
        ["funnel 10: learned, at least 20 per 1,000 gradients", *judge.at_least("funnel 10", 20.0)],
        ["funnel 10: learned, at least 10 times SoftAbs per second", *judge.against_softabs("funnel 10", 10.0)],
        ["eight schools: learned, at least 12 per 1,000 gradients", *judge.at_least("eight schools", 12.0)],
        ["eight schools: learned, less than 0.1 % divergent", *judge.divergences("eight schools", 0.001)],
        ["eight schools: default, no warning and right at every seed", *judge.every_seed("eight schools")],
    ]
    for name in funnels:
        answer, figures = judge.against_non_centred(name, 1 / 3)
        reason = f". {WHY_NOT[name]}" if answer == "not met" and name in WHY_NOT else ""
        rows.append([f"{name}: a third of the non-centred form's ESS per gradient", answer, figures + reason])
        rows.append([f"{name}: 5 times the best peer's ESS per gradient", *judge.against_peers(name, 5.0)])
    return rows + [[f"{name}: default, 0.97 of before", *judge.against_before(name, before, 0.97)] for name in others]


def of_chains_that_move(cells: Cells) -> Cells:
    """Return the cells without the runs of which a chain never moved: their R-hat is NaN, and their ESS means nothing."""
    found: Cells = {}
    for target, row in cells.items():
        for name, cell in row.items():
            moved = [run for run in cell["runs"] if math.isfinite(run["r_hat"])]
            still = len(cell["runs"]) - len(moved)
            why = f"in {still} more a chain never moved" if still else cell["why"]
            found.setdefault(target, {})[name] = cell | {"runs": moved, "why": why}
    return found


def of_other_processors(row: dict[str, dict[str, Any]]) -> list[str]:
    """Return a sentence for each processor but that of most cells, with the samplers that ran on it."""
    names: dict[str, list[str]] = {}
    for name, cell in row.items():
        if cell["runs"]:
            names.setdefault(cell.get("processor", PROCESSOR), []).append(name)
    return [
        f"On {processor}, so that seconds cannot be compared with other rows: {'; '.join(of)}."
        for processor, of in names.items()
        if processor != PROCESSOR
    ]


def page(cells: Cells, references: dict[str, Any], funnels: list[str], others: list[str]) -> str:
    """Return the tables of all targets and the conditions."""
    from validation.benchmarks.explicit_samplers import BEFORE, LEARNED, SAMPLERS

    cells = of_chains_that_move(cells)
    own = ("default", *LEARNED, "Fisher, HMC", "Fisher, NUTS", "graph, HMC")
    judge = Judge(cells, references, LEARNED, own)
    what = "\n\n".join(part.strip() for part in (__doc__ or "").split("\n\n")[1:])
    parts = [what, f"Critical |z|: {judge.critical:.2f}."]
    for target in [*funnels, *others]:
        if target in cells:
            rows = [
                row_of(name, cells[target][name], references.get(target)) for name in SAMPLERS if name in cells[target]
            ]
            parts += [f"## {target}", draws_of(cells[target]), common.table(HEADER, rows)]
            parts += of_other_processors(cells[target])
    table = common.table(["condition", "answer", "figures"], conditions(judge, funnels, others, BEFORE))
    took = sum(cell["took"] for row in cells.values() for cell in row.values())
    return "\n\n".join([*parts, "## What must hold", table, f"All cells together took {took / 60:.0f} minutes."])


# -------------------------------------------------------------------------------------------------------------- command


def versions_of(interpreter: str) -> dict[str, str]:
    """Return the versions of the peers in their interpreter."""
    code = (
        "import importlib.metadata as m, json\nfound = {}\n"
        f"for name in {PACKAGES}:\n    try: found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: found[name] = 'missing'\nprint(json.dumps(found))"
    )
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds (default 5)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="TARGET:SAMPLER", help="words in names; either may be empty"
    )
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="interpreter that has the peers")
    parser.add_argument("--before", default=COMMIT_BEFORE, help=f"commit of the default before ({COMMIT_BEFORE})")
    parser.add_argument(
        "--references", nargs="*", metavar="TARGET", help="make the long runs of targets, and measure nothing"
    )
    parser.add_argument(
        "--merge", nargs="+", default=[], type=pathlib.Path, metavar="JSON", help="results of other runs"
    )
    parser.add_argument("--page", action="store_true", help="write the page from the kept results, and measure nothing")
    for internal in ("--measure", "--started", "--tree"):
        parser.add_argument(internal, nargs=2 if internal == "--measure" else None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seeds = list(range(options.first, options.first + options.seeds))
    if options.measure:
        if options.tree:
            sys.path.insert(0, options.tree)
            import refhmc

            if not pathlib.Path(refhmc.__file__).is_relative_to(options.tree):
                raise SystemExit(f"refhmc is not that of {options.tree}: {refhmc.__file__}")
        common.pin_to_one_core()
        return measure(*options.measure, seeds, float(options.started))

    from validation.benchmarks.explicit_samplers import BEFORE, DEFAULT, SAMPLERS
    from validation.benchmarks.explicit_targets import TARGETS, reference_of, store_reference

    if options.references is not None:
        for name in options.references or [name for name, target in TARGETS.items() if target.exact is None]:
            store_reference(name)
            print(f"{name}: {reference_of(name)}", flush=True)
        return None
    about = common.machine(["refhmc"])
    about["versions"] |= versions_of(options.peers)
    measured: Cells = {}
    chosen = [] if options.page else selected(options.only, list(TARGETS), list(SAMPLERS))
    now = f"{about['date']} at {two_trees.git('describe', '--always', '--dirty')}"
    with tree_before(options.before, any(sampler == BEFORE for _, sampler in chosen)) as tree:
        for target, sampler in chosen:
            if sampler == DEFAULT and (target, BEFORE) in chosen:
                continue  # measured with the one before
            peer = SAMPLERS[sampler].peer
            trees = {BEFORE: tree, DEFAULT: None} if sampler == BEFORE else {sampler: None}
            for name, of in () if peer else trees.items():
                cell_of(target, name, [], sys.executable, of)  # fills the cache of compiled code
            if sampler == BEFORE:
                cells = cells_in_turn(target, seeds, trees)
            else:
                cells = {sampler: cell_of(target, sampler, seeds, options.peers if peer else sys.executable, None)}
            for name, cell in cells.items():
                measured.setdefault(target, {})[name] = cell | {"measured": now, "processor": about["processor"]}
                figure = spread(map(per_1000, cell["runs"])) if cell["runs"] else ""
                print(f"{target}, {name}: {figure} {cell['why']} ({cell['took']:.0f} s)", file=sys.stderr, flush=True)
            PARTIAL.write_text(json.dumps({"cells": merged(kept(), measured)}), encoding="utf-8")
    cells = merged(kept(), *map(read_cells, options.merge), measured)
    references = {name: reference_of(name) for name in TARGETS}
    funnels = [name for name, target in TARGETS.items() if target.non_centred is not None]
    text = page(cells, references, funnels, [name for name in TARGETS if name not in funnels])
    about["processor"] = PROCESSOR
    common.report(NAME, "Explicit geometry and its peers", text, {"references": references, "cells": cells}, about)
    PARTIAL.unlink(missing_ok=True)
    return None


if __name__ == "__main__":
    main()
