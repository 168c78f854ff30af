"""Launches per step on a GPU: ``python -m validation.launches``.

A GPU runs one kernel for each array operation, whatever the number of chains. Starting one takes a few microseconds, so that
few chains cost as much as many. This counts the operations of a turn, in which each chain makes one step. It needs no GPU: the
stand-in of the tests counts the operations that the array implementation asks for. A turn also contains its share of what is
made once per transition, such as momenta and statistics.

If an operation takes t seconds to start, n chains make at most n / (operations t) steps per second. One core with compiled code
makes the number of steps in the next column. A GPU cannot be faster than the core with fewer chains than in the last column,
with t = 5 microseconds. The true number is larger: arithmetic, memory and waiting are left out. t is an assumption until it is
measured on a device (``python -m validation.gpu``, row "seconds of the smallest operation").

Waits are the times that Python asks for a number that is on the device, so that it cannot prepare the next operation.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pytest

import refhmc
from refhmc.batch import draw, steps
from tests.helpers import fake_device
from validation import common, judging
from validation.gpu.parts import PROBLEMS, rows_and_labels

NAME, START = "launches", 5e-6
CHAINS, SHORT, LONG = 16, 5, 45  # chains, and numbers of draws of two runs, whose difference is counted
SECONDS = 2.0  # of the run of one core
SPLIT = refhmc.models.LogisticRegression(*rows_and_labels()).split(4)
CASES: dict[str, tuple[refhmc.Model, Any]] = {
    **{name: make() for name, make in PROBLEMS.items()},
    "logistic regression 569 x 31, NUTS": (
        PROBLEMS["logistic regression 569 x 31, leapfrog"]()[0],
        refhmc.NUTS(step_size=0.05),
    ),
    "logistic regression 569 x 31 in 4 parts, symmetric split": (
        SPLIT,
        refhmc.HMC(step_size=0.05, n_steps=10, integrator=refhmc.integrators.SymmetricSplit()),
    ),
    "logistic regression 569 x 31 in 4 parts, randomised split": (
        SPLIT,
        refhmc.HMC(step_size=0.05, n_steps=10, integrator=refhmc.integrators.RandomizedSplit()),
    ),
    "eight schools, NUTS": (refhmc.models.EightSchools(), refhmc.NUTS(step_size=0.3)),
}


def counted(model: refhmc.Model, kernel: Any) -> tuple[float, float]:
    """Return operations and waits per turn."""
    found, call = [], steps.Mover.__call__
    with pytest.MonkeyPatch.context() as patch:
        turns: list[int] = []

        def counting(self: Any, *arguments: Any) -> Any:
            turns.append(0)
            return call(self, *arguments)

        fake_device.install(patch)
        patch.setattr(steps.Mover, "__call__", counting)
        patch.setattr(draw, "REPORT_EVERY", 1e9)
        options = {"tune": 0, "chains": CHAINS, "random_seed": 3, "backend": "cupy", "preflight": False, "raw": True}
        for draws in (1, SHORT, LONG):  # the first one fills caches
            turns.clear()
            fake_device.count.clear()
            refhmc.sample(model, kernel, draws=draws, progressbar=False, initvals=np.full(model.dim, 0.1), **options)
            found.append((len(turns), fake_device.count["launches"], fake_device.count["synchronisations"]))
    turns_more, operations, waits = np.subtract(found[2], found[1])
    return operations / turns_more, waits / turns_more


def steps_of_one_core(model: refhmc.Model, kernel: Any) -> float:
    """Return the steps per second of a compiled chain."""
    options = {"tune": 0, "chains": 1, "cores": 1, "initvals": np.full(model.dim, 0.1), "raw": True, "random_seed": 1}
    draws, took, steps_made = 10, 0.0, 0.0
    while took < SECONDS:
        found = refhmc.sample(model, kernel, draws=draws, progressbar=False, preflight=False, **options)
        took, steps_made = found.attributes["sampling_time"], float(np.sum(found.sample_stats["n_steps"]))
        draws *= 4
    return steps_made / took


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    least = [row["chains"] for row in data["rows"]]
    return judging.line(
        "Undecided",
        f"no GPU was at hand. If an operation takes {1e6 * START:.0f} microseconds to start, a GPU needs more than "
        f"{min(least):,} to {max(least):,} chains to be faster than one core on these {len(least)} problems.",
    )


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, (model, kernel) in CASES.items():
        (operations, waits), rate = counted(model, kernel), steps_of_one_core(model, kernel)
        chains = int(round(operations * START * rate, -1)) or 1
        rows.append(
            {"problem": name, "operations": float(operations), "waits": float(waits), "core": rate, "chains": chains}
        )
        print(rows[-1], flush=True)
    table = [
        [row["problem"], f"{row['operations']:.0f}", f"{row['waits']:.1f}", f"{row['core']:,.0f}", f"{row['chains']:,}"]
        for row in rows
    ]
    head = ["problem", "operations per turn", "waits per turn", "steps per second of one core", "chains"]
    text = "\n\n".join((__doc__ or "").split("\n\n")[1:])
    page = f"{CHAINS} chains, {SHORT} and {LONG} draws.\n\n{text}\n{common.markdown(head, table)}"
    common.write_results(NAME, "Launches per step", page, {"rows": rows}, opening)


if __name__ == "__main__":
    main()
