"""Kill short runs at each of their file operations, and use the folder again.

    python -m validation.kill_sweep                every operation of every case
    python -m validation.kill_sweep --every 25     every 25th

A case is a kernel with a checkpoint or a store. A forked process makes the run and kills itself (SIGKILL) at its n-th
operation on a file of the run. The same call, or ``refhmc.resume`` if the folder says that it holds a run, must then give
the draws of the unbroken run bit for bit, and leave no temporary file. Exit status 1 if one does not. Needs ``os.fork``.
"""

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import platform
import shutil
import signal
import sys
import tempfile
import warnings
from typing import Any

import numpy as np

import refhmc

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "shutil.rmtree"}
KERNELS = {
    "NUTS": refhmc.NUTS(),
    "HMC, SoftAbs": refhmc.HMC(n_steps=3, metric=refhmc.metrics.SoftAbs(1e6)),
    "Gibbs": refhmc.Gibbs({(0,): refhmc.NUTS(), tuple(range(1, 11)): refhmc.HMC(n_steps=3)}),
}
KINDS = ("checkpoint", "store")
OPTIONS = {"draws": 20, "tune": 20, "chains": 2, "random_seed": 3, "cores": 1, "progressbar": False, "raw": True}


def draws_of(result: Any) -> bytes:
    q = result.groups["unconstrained_posterior"]["q"][:]
    return bytes(np.ascontiguousarray(q).tobytes())


def run(kernel: str, kind: str, folder: pathlib.Path) -> bytes:
    """Make the run, from where it is."""
    model, starts = refhmc.models.Funnel(), np.full((2, 11), 0.25)
    options: dict[str, Any] = {**OPTIONS, "initvals": starts, kind: folder}
    return draws_of(refhmc.sample(model, KERNELS[kernel], **options))


def resumed(folder: pathlib.Path) -> bytes:
    """Continue the run from its folder alone."""
    return draws_of(refhmc.resume(folder, cores=1, progressbar=False, raw=True))


def killed_at(n: int, kernel: str, kind: str, folder: pathlib.Path) -> bool:
    """Make the run in a forked process that kills itself at its n-th file operation; whether it came so far."""
    child = os.fork()
    if child == 0:
        count = 0

        def hook(event: str, args: tuple) -> None:
            nonlocal count
            path = args[0] if args and event in EVENTS else None
            if isinstance(path, str | bytes | os.PathLike) and str(folder) in os.fsdecode(path):
                count += 1
                if count == n:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            run(kernel, kind, folder)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def used_again(n: int, kernel: str, kind: str, folder: pathlib.Path, want: bytes) -> str:
    """Use the folder that a killed run has left; what came of it."""
    state = folder / "checkpoint" if kind == "store" else folder
    by_folder = n % 2 == 0 and (state / "run.json").exists()
    try:
        draws = resumed(folder) if by_folder else run(kernel, kind, folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:160]
    if draws != want:
        return "other draws"
    left = [path.name for path in folder.rglob("*") if path.name.endswith((".partial", ".tmp"))]
    return f"left over: {left[0]}" if left else "the draws of the unbroken run"


def sweep(every: int, cases: list[tuple[str, str]]) -> dict[str, collections.Counter[str]]:
    """Return for each case how many kills had which end."""
    found = {}
    for kernel, kind in cases:
        tally: collections.Counter[str] = collections.Counter()
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = pathlib.Path(place) / "run"
            want, n = run(kernel, kind, folder), 1
            while True:
                shutil.rmtree(folder, ignore_errors=True)
                if not killed_at(n, kernel, kind, folder):
                    break
                end = used_again(n, kernel, kind, folder, want)
                tally[end] += 1
                if "unbroken" not in end:
                    print(f"{kernel}, {kind}, killed at operation {n}: {end}", flush=True)
                n += every
        found[f"{kernel}, {kind}"] = tally
        print(f"{kernel}, {kind}: {sum(tally.values())} kills, {dict(tally)}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=1)
    every = parser.parse_args().every
    found = sweep(every, [(kernel, kind) for kernel in KERNELS for kind in KINDS])
    kills = sum(sum(tally.values()) for tally in found.values())
    good = sum(n for tally in found.values() for end, n in tally.items() if "unbroken" in end)
    print(f"refhmc {refhmc.__version__}, NumPy {np.__version__}, Python {platform.python_version()}: {good} of {kills}")
    return int(good != kills)


if __name__ == "__main__":
    sys.exit(main())
