"""What the validation commands share: the command line, chains, their effective sample sizes, result files."""

from __future__ import annotations

import argparse
import concurrent.futures
import csv
import dataclasses
import datetime
import importlib.metadata
import json
import math
import multiprocessing
import os
import pathlib
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import refhmc
from validation.judging import Estimate, number, over_trials

__all__ = ["Estimate", "number", "over_trials"]  # of judging, for the commands that compare nothing

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = pathlib.Path(__file__).resolve().parent / "results"
TABLES = ROOT.parent / "shared" / "papers" / "tables"


# ------------------------------------------------------------------------------------------------- the command line


def command_line(
    doc: str | None, trials: int | None = 10, draws: int = 10_000, seed: int = 2021, **more: Any
) -> argparse.Namespace:
    """Options every command has. ``more``: further options by name, each a dict for ``add_argument``."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n\n")[0])
    parser.add_argument("--trials", type=int, default=trials, help="independent repetitions (default %(default)s)")
    parser.add_argument("--draws", type=int, default=draws, help="draws of a trial (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="two short trials: shows that the command runs")
    parser.add_argument("--cores", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=seed)
    for name, options in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **options)
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.trials, chosen.draws = min(chosen.trials or 2, 2), min(chosen.draws, 500)
    return chosen


# ------------------------------------------------------------------------------------------------------------ chains


@dataclasses.dataclass
class Chains:
    """``draws`` (chain, draw, d), ``stats`` of each draw by name (chain, draw), processor seconds of one chain."""

    draws: np.ndarray
    stats: dict[str, np.ndarray]
    seconds: float


def run_chains(
    model, kernel, *, draws: int, chains: int, seed, starts=None, tune: int = 0, cores: int = 2, warm: bool = True
) -> Chains:
    """Chains of one model, a thread each. ``warm``: a first run of ten draws, so that no compilation is timed."""
    options = {"chains": chains, "raw": True, "progressbar": False, "initvals": starts, "cores": cores}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if warm:
            refhmc.diagnostics.ess(np.random.default_rng(0).random((1, 10, 1)))  # imports ArviZ
            first = None if starts is None else np.atleast_2d(starts)[:1]
            refhmc.sample(model, kernel, draws=10, tune=0, random_seed=0, **{**options, "chains": 1, "initvals": first})
        begin = time.process_time()
        result = refhmc.sample(model, kernel, draws=draws, tune=tune, random_seed=seed, **options)
        seconds = (time.process_time() - begin) / chains
    stats = {name: np.asarray(values) for name, values in result.sample_stats.items()}
    return Chains(result.draws, stats, seconds)


def join(runs: Sequence[Chains]) -> Chains:
    """The chains of several runs as one, for trials whose models differ."""
    names = set.intersection(*[set(run.stats) for run in runs])
    stats = {name: np.concatenate([run.stats[name] for run in runs]) for name in sorted(names)}
    seconds = float(np.mean([run.seconds for run in runs]))
    return Chains(np.concatenate([run.draws for run in runs]), stats, seconds)


def in_processes(function: Callable, jobs: Sequence[tuple], workers: int = 2):
    """``function(*job)`` for each job, in fresh processes, in the order of the jobs. ``function`` must be importable."""
    if workers <= 1:
        yield from (function(*job) for job in jobs)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        futures = [pool.submit(function, *job) for job in jobs]
        yield from (future.result() for future in futures)


def effective_sizes(draws: np.ndarray, parts: int = 1) -> np.ndarray:
    """ArviZ's bulk effective sample size, a chain by itself: (chain, draw, d) -> (chain, d).

    ``parts``: ArviZ is told that the chain is so many chains, one after the other. A coordinate that never moved has 1
    draw's worth, where ArviZ has a number of no meaning.
    """
    length = draws.shape[1] // parts
    sizes = np.array([refhmc.diagnostics.ess(c[: parts * length].reshape(parts, length, -1)) for c in draws])
    still = np.ptp(draws, axis=1) == 0
    return np.where(still, 1.0, sizes)


def cap(draws: int) -> float:
    """ArviZ reports no effective sample size above n log10 n."""
    return draws * math.log10(draws)


# ------------------------------------------------------------------------------------------------------ result files


_missing: set[str] = set()


def paper_table(name: str) -> list[dict[str, Any]] | None:
    """The rows of a paper's table, numbers as floats, from ``../shared/papers/tables`` beside the repository.

    None, with a word, where that folder is absent.
    """
    path = TABLES / f"{name}.csv"
    if not path.exists():
        if name not in _missing:
            print(f"The paper's table {name} is not here (../shared/papers/tables): our figures are given alone.")
        _missing.add(name)
        return None
    with path.open(encoding="utf-8", newline="") as file:
        return [{key: as_number(text) for key, text in row.items()} for row in csv.DictReader(file)]


def as_number(text: str) -> float | str:
    """A float where the text is one."""
    try:
        return float(text)
    except ValueError:
        return text


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [header, *rows]]
    lines.insert(1, "|" + "---|" * len(header))
    return "\n".join(lines)


def about() -> dict[str, Any]:
    """When and with what the figures were made."""
    packages = ("numpy", "numba", "arviz", "arviz-stats")
    versions = {"refhmc": refhmc.__version__}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": versions,
    }


def write_results(
    name: str,
    title: str,
    text: str,
    data: dict[str, Any],
    opening: Callable[[dict[str, Any]], str],
    facts: dict[str, Any] | None = None,
) -> None:
    """Write ``results/<name>.md`` and ``.json``. May be called again as rows arrive.

    Parameters
    ----------
    name : str
        Name of the files.
    title, text : str
        Heading and body of the page.
    data : dict
        Contents of the JSON file, in which NaN becomes null.
    opening : callable
        Returns the first line of the page for the contents of the JSON file.
    facts : dict, optional
        When and with what the figures were made. Defaults to now and this machine.
    """
    facts = facts or about()
    versions = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
    foot = f"{facts['date']}; {facts['machine']}; Python {facts['python']}; {versions}."
    RESULTS.mkdir(exist_ok=True)
    clean = plain({"about": facts, **data})
    page = f"# {title}\n\n{opening(clean)}\n\n{text}\n\n{foot}\n"
    (RESULTS / f"{name}.md").write_text(page, encoding="utf-8")
    (RESULTS / f"{name}.json").write_text(json.dumps(clean, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def plain(x: Any) -> Any:
    """What JSON can hold: dataclasses as dicts, arrays as lists, no NaN; floats to eight digits."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return plain(dataclasses.asdict(x))
    if isinstance(x, dict):
        return {str(key): plain(value) for key, value in x.items()}
    if isinstance(x, np.ndarray | list | tuple):
        return [plain(value) for value in x]
    if isinstance(x, bool | np.bool_):
        return bool(x)
    if isinstance(x, int | np.integer):
        return int(x)
    if isinstance(x, float | np.floating):
        return float(f"{x:.8g}") if math.isfinite(x) else None
    return x


def save_figure(figure, name: str) -> None:
    """``results/<name>.png``, without the date and the program's version inside, so that equal figures are equal files."""
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"{name}.png", dpi=110, bbox_inches="tight", metadata={"Software": None})
