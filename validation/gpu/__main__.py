"""Everything that needs a GPU, in one command and one report.

    python -m validation.gpu [--backend cupy] [--out FOLDER] [--quick] [--only PART ...] [--again]

The parts, in this order, each in a process of its own with a time limit:

1. **smoke** (60 s): versions, free memory, linear algebra and transitions compared with NumPy, a short run of ``sample``. If a
   row of it fails, nothing else is started.
2. **tests** (180 s): ``tests/batch/test_cupy.py``.
3. **chains** (180 s): chain-steps per second at 10,000, 100,000, 100 and 1 chains, of a logistic regression 569 x 31 (HMC,
   leapfrog) and of the funnel 10 + 1 (SoftAbs, implicit midpoint), next to one core of the same machine and to BlackJAX; NUTS
   on the eight schools; the limits of the device.
4. **network** (60 s): the gradient of a CNN (37,316 weights, 48,000 random images of 28 x 28) next to Torch's.
5. **streaming** (60 s): the gradient of a split logistic regression of 1 GiB in 16 parts with its data on the device, and sent
   for each evaluation; the bytes per second next to those of a copy from page-locked memory.

Every row is written to FOLDER as soon as it is known. The same command continues a run that was ended: it measures what has no
row yet, and what has failed. Rows of another state of refhmc's code are measured again (``--again``: all rows).

It needs Python, NumPy, SciPy, Numba, pytest, Hypothesis, CuPy and array-api-compat. If a machine cannot install packages, put
wheels that contain only Python into ``validation/gpu/wheels``; they are unpacked and used after what is installed::

    python -m pip download --no-deps -d validation/gpu/wheels array-api-compat threadpoolctl typing-extensions \\
        blackjax optax chex absl-py

JAX with BlackJAX, and Torch, are measured if they can be imported. ``--backend arrays`` runs the same on NumPy, to try the
command without a GPU. The exit status is 1 if a part has failed or took too long, and 2 if there is no device.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
import zipfile
from typing import Any

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NOT_MEASURED = "not measured"
LIMITS = {"smoke": 60.0, "tests": 180.0, "chains": 180.0, "network": 60.0, "streaming": 60.0}  # seconds


def unpacked_wheels() -> list[str]:
    """Return the folder with the content of the wheels beside this file, in a list; an empty list without wheels."""
    wheels, folder = sorted((HERE / "wheels").glob("*.whl")), pathlib.Path(tempfile.gettempdir()) / "refhmc-gpu-wheels"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            file.extractall(folder)
    return [str(folder)] if wheels else []


class Report:
    """The rows of a report in a file of JSON lines, and the same by part in one JSON file.

    A row has ``part``, ``name``, ``value`` and ``source``, a hash of refhmc's code. A later row replaces an earlier one of the
    same name.
    """

    def __init__(self, path: pathlib.Path, source: str) -> None:
        self.path, self.source = path, source

    def rows(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line]

    def add(self, part: str, name: str, value: Any) -> None:
        row = {"part": part, "name": name, "value": value, "source": self.source}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def found(self, part: str) -> dict[str, Any]:
        """Return the values of a part by name, of the present source."""
        return {
            row["name"]: row["value"] for row in self.rows() if row["part"] == part and row["source"] == self.source
        }

    def write(self, about: dict[str, Any]) -> None:
        """Write all rows by part as JSON; rows of another source are marked."""
        parts: dict[str, dict[str, Any]] = {}
        for row in self.rows():
            value = row["value"] if row["source"] == self.source else {"of an earlier state of the code": row["value"]}
            parts.setdefault(row["part"], {})[row["name"]] = value
        text = json.dumps({**about, "parts": parts}, indent=1)
        self.path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


def has_failed(value: Any) -> bool:
    return isinstance(value, dict) and "failed" in value


def is_known(value: Any) -> bool:
    return not has_failed(value) and not (isinstance(value, str) and value.startswith(NOT_MEASURED))


def measure(part: str, backend: str, quick: bool, report: Report) -> None:
    """Measure the rows of a part that are missing or have failed, and add them to the report."""
    from validation.gpu import parts

    known = report.found(part)
    for name, function in getattr(parts, part)(backend, quick):
        if name in known and is_known(known[name]):
            continue
        begin = time.perf_counter()
        try:
            with np.errstate(all="ignore"):
                value = function()
        except ImportError as error:
            value = f"{NOT_MEASURED}: {error}"
        except Exception as error:  # the other rows are still worth their time
            value = {"failed": f"{type(error).__name__}: {error}"}
        report.add(part, name, value)
        print(f"{part}: {name}: {json.dumps(value)} ({time.perf_counter() - begin:.1f} s)", flush=True)


def run_part(part: str, arguments: argparse.Namespace, report: Report, limit: float) -> str:
    """Measure a part in a process of its own; return "complete", or why it is not."""
    command = [sys.executable, "-m", "validation.gpu", "--part", part, "--backend", arguments.backend]
    command += ["--out", str(arguments.out), *(["--quick"] if arguments.quick else [])]
    path = os.pathsep.join([str(ROOT), *arguments.path, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    environment.setdefault("REFHMC_CACHE_DIR", str(pathlib.Path(tempfile.gettempdir()) / "refhmc-gpu"))
    try:
        code = subprocess.run(command, cwd=ROOT, env=environment, timeout=limit, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"ended after {limit:g} s"
    if code:
        return f"ended with the exit status {code}"
    failed = [name for name, value in report.found(part).items() if has_failed(value)]
    return f"failed: {', '.join(failed)}" if failed else "complete"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m validation.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--backend", choices=("arrays", "cupy"), default="cupy")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the command")
    parser.add_argument("--only", nargs="*", choices=LIMITS, default=list(LIMITS))
    parser.add_argument("--again", action="store_true", help="forget the rows that are known")
    parser.add_argument("--part", choices=LIMITS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.out, arguments.path = arguments.out.resolve(), []
    if not arguments.part:
        arguments.path = unpacked_wheels()
        sys.path += arguments.path  # after what is installed

    from refhmc.batch import backends
    from refhmc.compile.compile_cache import source_hash
    from refhmc.errors import DeviceError

    name = f"{arguments.backend}{'_quick' if arguments.quick else ''}.jsonl"
    report = Report(arguments.out / name, source_hash())
    if arguments.part:
        measure(arguments.part, arguments.backend, arguments.quick, report)
        return 0
    try:
        backends.namespace_of(arguments.backend)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 2
    about = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": backends.describe(arguments.backend),
        "quick": arguments.quick,
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "source": report.source,
    }
    print(json.dumps(about), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.again:
        report.path.unlink(missing_ok=True)
    states: dict[str, str] = {}
    for part in arguments.only:
        states[part] = run_part(part, arguments, report, LIMITS[part])
        report.write({**about, "states": states})
        print(f"{part}: {states[part]}", flush=True)
        if part == "smoke" and states[part] != "complete":
            break
    return 0 if all(state == "complete" for state in states.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
