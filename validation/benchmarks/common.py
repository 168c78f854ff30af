"""What the benchmarks share: one pinned core, the machine's description, tables and result files."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Sequence

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = HERE / "results"

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_X64": "1",
}


def pin_to_one_core() -> None:
    """Run this process, and those it starts, on one core (the last it may use), where the system allows it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def environment(**more: str) -> dict[str, str]:
    """The environment of a measuring process: one thread everywhere, this source tree importable."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths), **more}


def run_python(arguments: Sequence[str], timeout: float, **more: str) -> subprocess.CompletedProcess:
    """Run this interpreter in a process of its own, in the source tree; output is captured."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment(**more), capture_output=True, text=True, timeout=timeout, check=False
    )


def processor() -> str:
    """The processor's name as the system gives it."""
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine(packages: Sequence[str]) -> dict[str, object]:
    """Where and with what the figures were taken."""
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "source tree" if name == "refhmc" else "missing"
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores_used": 1,
        "cores_of_machine": os.cpu_count(),
        "load_at_start": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "versions": versions,
    }


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned, first column to the left and the others to the right."""
    cells = [list(header), *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row):
        padded = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def report(
    name: str,
    title: str,
    text: str,
    data: dict[str, object],
    about: dict[str, object],
    folder: pathlib.Path = RESULTS,
) -> None:
    """Print a benchmark's outcome and write it to ``name.md`` and ``name.json`` in the folder of results."""
    versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    cores = "one core" if about["cores_used"] == 1 else f"{about['cores_used']} cores, a problem on each"
    footer = f"{about['date']}; {about['processor']}, {about['system']}, {cores}; Python {about['python']}; {versions}."
    whole = f"# {title}\n\n{text}\n\n{footer}\n"
    print(whole)
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.md").write_text(whole, encoding="utf-8")
    (folder / f"{name}.json").write_text(json.dumps({"machine": about, **data}, indent=1) + "\n", encoding="utf-8")
