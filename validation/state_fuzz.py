"""Change saved states at random, with valid checksums, and resume each in another process.

    python -m validation.state_fuzz --states 2000 --seed 1

Each case takes the checkpoint of a chain during or after warm-up, changes one number, array or field of its state, and writes
it with the checksums that belong to it. A resume must end in one of four ways:

===============  ==========================================================================================
rejected         CheckpointError, with the field
without effect   the draws of the unchanged state, bit for bit: the number is not read again
another state    other, finite draws; the number belongs to ``OPEN``, fields that have no second source
failed           anything else: a crash, another exception, a hang, or other draws by a field not in ``OPEN``
===============  ==========================================================================================

Exit status 1 if any case failed; ``--case K`` repeats one.
"""

from __future__ import annotations

import argparse
import collections
import copy
import io
import json
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import warnings
from typing import Any

import numpy as np

import refhmc
from refhmc.core.records import CONTROL, one
from refhmc.sampling.chains.chain import make_plan
from refhmc.sampling.chains.live_chain import LiveChain
from refhmc.sampling.chains.task import ChainTask
from refhmc.sampling.storage import append_only
from refhmc.sampling.storage.append_only import Rows
from refhmc.sampling.storage.files import read_arrays
from tests.helpers.crafted import Arrays, read_state, write_state

TUNE, DRAWS, MORE = 100, 20, 10
PATIENCE = 120.0  # seconds without an answer from a process, which may compile when it begins
IN_ONE_PROCESS = 100
metrics = refhmc.metrics
RUNS = {
    "NUTS": (refhmc.models.Funnel, refhmc.NUTS()),
    "NUTS, shallow": (refhmc.models.Funnel, refhmc.NUTS(step_size=1e-3, max_treedepth=1)),
    "NUTS, dense": (refhmc.models.Banana, refhmc.NUTS(metric=metrics.Dense())),
    "NUTS, diagonal": (refhmc.models.EightSchools, refhmc.NUTS(metric=metrics.Diagonal())),
    "HMC, learned length": (refhmc.models.Funnel, refhmc.HMC()),
    "HMC, SoftAbs": (refhmc.models.Banana, refhmc.HMC(n_steps=3, metric=metrics.SoftAbs())),
    "Gibbs": (refhmc.models.EightSchools, refhmc.Gibbs({(0, 1): refhmc.HMC(), tuple(range(2, 10)): refhmc.NUTS()})),
    "DHMC": (refhmc.models.CellGrid, refhmc.DHMC()),
    "SGHMC, parts": (lambda: refhmc.models.Heart().split(5), refhmc.SGHMC(step_size=1e-4)),
}
STAGES = {"warm-up": 60, "draws": TUNE + 10}
# Fields without a second source: draws and sums that warm-up learns from, the metric learned so far or held at the position,
# the adaptation of the step size, how far the generator is, and a momentum that is kept.
OPEN = (
    *("kept", "kept_gradients", "mean", "scatter", "gradient_scatter", "vecs", "mats", "dual", "jump_dual", "length"),
    *("length_moments", "length_sums", "progress", "generator", "state"),
)


def prepare_all(base: pathlib.Path) -> None:
    """Write the checkpoints of all runs and stages, and the draws that a resume of each must give."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in RUNS:
            for stage in STAGES:
                source, copied = base / f"{name}, {stage}", base / "copy"
                prepare(source, name, stage)
                shutil.copytree(source, copied)
                np.save(base / f"{name}, {stage}.npy", resume(copied, name))
                shutil.rmtree(copied)


def prepare(folder: pathlib.Path, name: str, stage: str) -> None:
    """Write the checkpoint of one chain of a run at a stage of it."""
    make, kernel = RUNS[name]
    model = make()
    options: dict[str, Any] = {"tune": TUNE, "chains": 1, "random_seed": 7, "save_warmup": True, "progressbar": False}
    done = STAGES[stage]
    refhmc.sample(model, kernel, draws=0 if done < TUNE else done - TUNE, raw=True, checkpoint=folder, **options)
    if done >= TUNE:
        return
    plan = make_plan(model, kernel, TUNE)
    task = ChainTask(model, kernel, 0, 7, None, DRAWS, TUNE, keep_warmup=True)
    live = LiveChain(task, plan, one(CONTROL)[0])
    live.begin()
    rows = Rows(0, np.zeros((done, model.dim)), np.zeros((done, plan.n_stats)))
    live.advance(rows)
    saved, path = live.saved(), folder / "chain-0.npz"
    outer = read_state(path)[1] | {
        "done": np.asarray(done),
        "control": np.frombuffer(saved.control.tobytes(), np.int64),
    }
    outer["start_of_draws"] = saved.start_of_draws
    [of_rows] = folder.glob("chain-0.*.rows")
    of_rows.unlink()
    outer["length"] = np.asarray(append_only.append(of_rows, 0, [rows]))
    write_state(path, read_arrays(io.BytesIO(saved.state)), outer)


def mutate(state: Arrays, outer: Arrays, rng: np.random.Generator) -> str:
    """Change one thing; what, in words."""
    places = [("state", name) for name in state] + [("outer", name) for name in outer if name not in ("state", "run")]
    where, name = places[rng.integers(len(places))]
    arrays = state if where == "state" else outer
    array = arrays[name]
    if name == "generator":
        arrays[name] = np.array(mutated_text(str(array), rng))
        return name
    if rng.random() < 0.1:
        change = str(rng.choice(["shape", "type", "removed", "doubled"]))
        if change == "removed":
            del arrays[name]
        elif change == "shape":
            arrays[name] = array.reshape(1, *array.shape)
        elif change == "type":
            arrays[name] = np.zeros(array.shape, "i2")
        else:
            arrays[name] = np.concatenate([np.atleast_1d(array)] * 2)
        return f"{name}: {change}"
    if array.size == 0 or array.dtype.kind == "U":
        arrays[name] = np.zeros(3)
        return f"{name}: an array of 3"
    array = arrays[name] = np.array(copy.deepcopy(array))
    if array.dtype.names:
        field = str(rng.choice(array.dtype.names))
        old = array[field][0]
        array[field][0] = new = mutated_number(old, array.dtype[field].kind, rng)
        return f"{name}.{field}: {old} -> {new}"
    place = tuple(int(rng.integers(n)) for n in array.shape)
    old = array[place]
    array[place] = new = mutated_number(old, array.dtype.kind, rng)
    return f"{name}{list(place)}: {old} -> {new}"


def mutated_number(old: Any, kind: str, rng: np.random.Generator) -> Any:
    """Return another number of the same type: special, near, far, or with another bit."""
    if kind != "f":
        near = [int(old) + 1, int(old) - 1, -1, 0, 1, 2, 60, 2**31, 2**62, -(2**62), int(rng.integers(-1000, 1000))]
        return int(rng.choice(np.array(near, np.int64))) if kind == "i" else int(rng.integers(256))
    old = float(old)
    flipped = np.array(old).view(np.int64) ^ np.int64(1) << np.int64(rng.integers(63))
    choices = [
        np.nan,
        np.inf,
        -np.inf,
        0.0,
        -1.0,
        1e6,
        1e-300,
        1e300,
        -old,
        1.5 * old + 0.1,
        float(flipped.view(float)),
    ]
    return choices[rng.integers(len(choices))]


def mutated_text(text: str, rng: np.random.Generator) -> str:
    saved = json.loads(text)
    name = str(rng.choice(["state", "inc", "has_uint32", "uinteger", "bit_generator", "broken"]))
    values = [-1, 0, 1, 2**32, 2**64, 2**128, "5", None, 1.5, [], int(rng.integers(2**62))]
    value = values[rng.integers(len(values))]
    if name == "broken":
        return text[: rng.integers(len(text))]
    if name in ("state", "inc"):
        saved["state"][name] = value
    else:
        saved[name] = value
    return json.dumps(saved)


def resume(folder: pathlib.Path, name: str) -> np.ndarray:
    """Resume a copy and return its draws, warm-up included."""
    make, kernel = RUNS[name]
    draws = max(DRAWS, 10) + MORE
    result = refhmc.resume(folder, make(), kernel, draws=draws, raw=True, progressbar=False, generate=False)
    both = result.groups["warmup_unconstrained_posterior"]["q"], result.groups["unconstrained_posterior"]["q"]
    return np.concatenate(both, axis=1)


def answer(base: pathlib.Path, seed: int, case: int) -> dict[str, Any]:
    """Change a state and resume it; what came of it."""
    rng = np.random.default_rng([seed, case])
    name, stage = str(rng.choice(list(RUNS))), str(rng.choice(list(STAGES)))
    source = base / f"{name}, {stage}"
    found: dict[str, Any] = {"case": case, "run": f"{name}, {stage}"}
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place) / "run"
        shutil.copytree(source, folder)
        state, outer = read_state(folder / "chain-0.npz")
        found["change"] = mutate(state, outer, rng)
        print(json.dumps(found), flush=True)  # a crash is told by the case that has no answer
        write_state(folder / "chain-0.npz", state, outer)
        want = np.load(base / f"{name}, {stage}.npy")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                draws = resume(folder, name)
        except refhmc.errors.CheckpointError as error:
            return {**found, "outcome": "rejected", "message": str(error)[:200]}
        except Exception as error:
            return {**found, "outcome": "failed", "message": f"{type(error).__name__}: {error}"[:300]}
    if np.array_equal(draws, want):
        return {**found, "outcome": "without effect"}
    field = found["change"].partition(":")[0].partition("[")[0].partition(".")[0]
    good = draws.shape == want.shape and np.all(np.isfinite(draws)) and field.rstrip("1") in OPEN
    return {**found, "outcome": "another state" if good else "failed", "message": f"other draws by {field}"}


def work(base: pathlib.Path, seed: int, cases: list[int]) -> None:
    for case in cases:
        print(json.dumps(answer(base, seed, case)), flush=True)


def run_cases(base: pathlib.Path, seed: int, cases: list[int]) -> list[dict[str, Any]]:
    """Run the cases in a process, and the remaining ones in another if it ends early."""
    answers: dict[int, dict[str, Any]] = {}
    waiting = list(cases)
    while waiting:
        command = [sys.executable, "-m", "validation.state_fuzz", "--work", str(base), "--seed", str(seed)]
        command += ["--cases", ",".join(map(str, waiting))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            out, err = process.communicate(timeout=PATIENCE + 2.0 * len(waiting))
            how = f"the process ended with {process.returncode}: {err[-300:]}"
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            how = "no answer in time"
        for line in out.splitlines():
            if line.startswith("{"):
                found = json.loads(line)
                answers[found["case"]] = found
        begun = [case for case in waiting if case in answers]
        for case in begun:
            if "outcome" not in answers[case]:
                answers[case] |= {"outcome": "failed", "message": how}
        if not begun:
            raise SystemExit(f"no case was begun: {how}")
        waiting = waiting[len(begun) :]
    return [answers[case] for case in cases]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--states", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int)
    parser.add_argument("--work", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--cases", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        work(given.work, given.seed, [int(case) for case in given.cases.split(",")])
        return 0
    tally: collections.Counter[str] = collections.Counter()
    opened: collections.Counter[str] = collections.Counter()
    failed = []
    with tempfile.TemporaryDirectory() as place:
        base = pathlib.Path(place)
        prepare_all(base)
        cases = [given.case] if given.case is not None else list(range(given.states))
        for first in range(0, len(cases), IN_ONE_PROCESS):
            for found in run_cases(base, given.seed, cases[first : first + IN_ONE_PROCESS]):
                tally[found["outcome"]] += 1
                if found["outcome"] == "another state":
                    opened[found["message"]] += 1
                if found["outcome"] == "failed" or given.case is not None:
                    failed += [found] if found["outcome"] == "failed" else []
                    print(json.dumps(found, indent=1))
    print(f"refhmc {refhmc.__version__}, NumPy {np.__version__}, Python {platform.python_version()}, seed {given.seed}")
    print(f"{sum(tally.values())} states: {dict(tally)}")
    print(f"other states: {dict(opened)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
