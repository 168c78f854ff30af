"""Stop runs by signals at random times, resume them, and compare each with the unbroken run bit for bit.

    python -m validation.stop_sweep --stops 1000 --seed 1

Each case draws a run from the seed: a kernel (NUTS, HMC, Gibbs), a model that runs as Python or is compiled, a checkpoint or
a store, one to three threads. Sessions of the run are ended by one or two signals (Ctrl-C, SIGTERM) at random times, until
the run is complete. Its draws, its warm-up and its statistics are then compared with those of a run without stops. Some
sessions end the process after the second signal. A session that does not end within ``PATIENCE`` seconds is a failure.

``--case K`` repeats one case. The times of signals come from the seed, but where a signal arrives depends on the machine:
repeat a case several times (``--repeat``).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import json
import os
import platform
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import refhmc
from refhmc.sampling.chains import chain_run
from refhmc.sampling.storage import checkpoint

PATIENCE = 120.0  # seconds without a word from a process, which compiles for half a minute when it begins
MOST_STOPS = 8  # of one case, after which it is left to end
ROWS, DIM = 40, 6
SETTINGS = {"draws": 120, "tune": 90, "chains": 3, "save_warmup": True, "raw": True}


class Case(NamedTuple):
    """What is drawn for one case."""

    number: int
    kernel: str
    model: str
    keep: str
    cores: int
    often: bool  # whether states are kept and written more often than by default


def logistic(pause: float = 0.0) -> refhmc.Model:
    """Return a logistic regression that runs as Python; each gradient sleeps for ``pause`` seconds."""
    rng = np.random.default_rng(20261127)
    X, y = rng.standard_normal((ROWS, DIM)) * np.geomspace(0.3, 3, DIM), rng.random(ROWS) < 0.5

    def log_density(q: np.ndarray) -> float:
        z = X @ q
        return float(y @ z - np.sum(np.logaddexp(0.0, z)) - 0.5 * (q @ q))

    def gradient(q: np.ndarray) -> np.ndarray:
        if pause:
            time.sleep(pause)
        return X.T @ (y - 1 / (1 + np.exp(-(X @ q)))) - q

    return refhmc.Model(DIM, log_density, gradient, names=names(), in_python="the sweep", name="logistic")


def names() -> list[str]:
    return [f"a[{i}]" for i in range(DIM // 2)] + [f"b[{i}]" for i in range(DIM - DIM // 2)]


def quartic() -> refhmc.Model:
    """Return a model that runs as Python and has the derivatives that SoftAbs reads."""

    def log_density(q: np.ndarray) -> float:
        return float(-0.5 * (q @ q) - 0.1 * np.sum(q**4) - 0.1 * q[0] * q[1] ** 2)

    def gradient(q: np.ndarray) -> np.ndarray:
        g = -q - 0.4 * q**3
        g[0] -= 0.1 * q[1] ** 2
        g[1] -= 0.2 * q[0] * q[1]
        return g

    def hessian(q: np.ndarray) -> np.ndarray:
        H = np.diag(-1 - 1.2 * q**2)
        H[0, 1] = H[1, 0] = -0.2 * q[1]
        H[1, 1] -= 0.2 * q[0]
        return H

    def third_derivative(q: np.ndarray) -> np.ndarray:
        T = np.zeros((DIM, DIM, DIM))
        T[range(DIM), range(DIM), range(DIM)] = -2.4 * q
        T[0, 1, 1] = T[1, 0, 1] = T[1, 1, 0] = -0.2
        return T

    functions: Any = (log_density, gradient, hessian, third_derivative)
    return refhmc.Model(DIM, *functions, names=names(), in_python="the sweep", name="quartic")


MODELS = {
    "python": logistic,
    "python, slow": lambda: logistic(0.0003),
    "python, quartic": quartic,
    "compiled": lambda: refhmc.models.EightSchools(),
}
KERNELS = {
    "NUTS": lambda: refhmc.NUTS(),
    "NUTS, dense": lambda: refhmc.NUTS(metric=refhmc.metrics.Dense()),
    "HMC": lambda: refhmc.HMC(n_steps=4, step_jitter=0.1),
    "HMC, learned length": lambda: refhmc.HMC(),
    "HMC, SoftAbs": lambda: refhmc.HMC(n_steps=2, metric=refhmc.metrics.SoftAbs()),
    "Gibbs": lambda: refhmc.Gibbs({"a": refhmc.NUTS(), "b": refhmc.HMC(n_steps=3)}),
}
OF_EIGHT_SCHOOLS = {"Gibbs": lambda: refhmc.Gibbs({(0, 1): refhmc.HMC(n_steps=3), tuple(range(2, 10)): refhmc.NUTS()})}


def draw_case(seed: int, number: int) -> Case:
    """Return the case with this number."""
    rng = np.random.default_rng([seed, number])
    kernel = str(rng.choice(list(KERNELS), p=[0.25, 0.1, 0.15, 0.1, 0.1, 0.3]))
    model = str(rng.choice(["python", "python, slow", "python, quartic", "compiled"], p=[0.4, 0.3, 0.2, 0.1]))
    if kernel == "HMC, SoftAbs":
        model = "python, quartic"
    keep = str(rng.choice(["checkpoint", "store"], p=[0.6, 0.4]))
    return Case(number, kernel, model, keep, int(rng.integers(1, 4)), bool(rng.random() < 0.5))


# ------------------------------------------------------------------------------------------- in the process that samples


class Signals:
    """Signals that a thread sends to this process, each after some seconds, until :meth:`end`."""

    def __init__(self, plan: list[tuple[float, int]]) -> None:
        self.plan, self.over, self.sent = plan, threading.Event(), 0
        self.thread = threading.Thread(target=self.send, daemon=True)

    def send(self) -> None:
        for seconds, number in self.plan:
            if self.over.wait(seconds):
                return
            self.sent += 1
            os.kill(os.getpid(), number)

    def end(self) -> None:
        """Send no more. A signal that was sent may still raise KeyboardInterrupt here."""
        self.over.set()
        self.thread.join()


def interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


class Sweep:
    """The sessions of cases in this process; it prints a line of JSON for each."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.models: dict[str, refhmc.Model] = {}
        self.whole: dict[tuple[str, str], dict[str, np.ndarray]] = {}
        self.seconds: dict[tuple[str, str], float] = {}

    def sample(self, case: Case, **options: Any) -> refhmc.Result:
        if case.model not in self.models:
            self.models[case.model] = MODELS[case.model]()
        kernels = {**KERNELS, **OF_EIGHT_SCHOOLS} if case.model == "compiled" else KERNELS
        return refhmc.sample(
            *(self.models[case.model], kernels[case.kernel]()),
            **(SETTINGS | {"draws": 20_000 if case.model == "compiled" else SETTINGS["draws"]}),
            **options,
            random_seed=3,
            progressbar=False,
        )

    def unbroken(self, case: Case) -> dict[str, np.ndarray]:
        """Return the arrays of the run without stops."""
        key = case.kernel, case.model
        if key not in self.whole:
            self.sample(case)  # compiles
            begin = time.perf_counter()
            self.whole[key] = arrays_of(self.sample(case))
            self.seconds[key] = time.perf_counter() - begin
        return self.whole[key]

    def run_case(self, case: Case, first: int = 0) -> None:
        """Take a case from its session ``first`` to its end."""
        unbroken = self.unbroken(case)
        rng = np.random.default_rng([self.seed, case.number, 1 + first])
        chain_run.PAUSE_EVERY, checkpoint.SAVE_EVERY = (0.003, 0.01) if case.often else (0.5, 3.0)
        place = self.folder / f"case-{case.number}"
        result = None
        for session in range(first, 1000):
            plan = self.plan(case, rng) if session < MOST_STOPS else []
            leaves = bool(rng.random() < 0.05)
            begin = time.perf_counter()
            how, result = self.session(case, place, plan)
            said = {"case": case.number, "session": session, "plan": plan, "how": how}
            say(said | {"seconds": round(time.perf_counter() - begin, 3)})
            if how.startswith("failed"):
                break
            if how == "complete":
                break
            if how == "raised" and leaves:  # as a script ends that does not catch it
                say({"case": case.number, "session": session, "leaves": True})
                sys.exit(3)
        differ = [] if result is None else differences(unbroken, arrays_of(result))
        if result is not None:
            say({"case": case.number, "done": True, "differ": differ})
        else:
            say({"case": case.number, "done": True, "differ": [], "failed": how})
        shutil.rmtree(place, ignore_errors=True)

    def plan(self, case: Case, rng: np.random.Generator) -> list[tuple[float, int]]:
        """Return one or two signals, and the seconds before each."""
        numbers = [int(n) for n in rng.choice([signal.SIGINT, signal.SIGTERM], size=2, p=[0.75, 0.25])]
        first = rng.uniform(0, 1.1) * self.seconds[case.kernel, case.model] * rng.choice([0.3, 1.0])
        second = rng.choice([rng.uniform(0, 0.003), rng.exponential(0.03)])
        return [(float(first), numbers[0]), (float(second), numbers[1])][: int(rng.integers(1, 3))]

    def session(self, case: Case, place: Path, plan: list) -> tuple[str, refhmc.Result | None]:
        """Return how a call of ``sample`` ended, and its result if the run is complete."""
        how, result, signals = "raised", None, Signals(plan)
        options: dict[str, Any] = {case.keep: place, "cores": case.cores}
        try:
            try:
                wait_for_folder(place / "checkpoint" if case.keep == "store" else place)
                signals.thread.start()
                result = self.sample(case, **options)
                how = "stopped" if result.attributes["interrupted"] else "complete"
                signals.end()
            except KeyboardInterrupt:
                how = "raised" if result is None else how
            except BaseException as error:
                how = f"failed: {type(error).__name__}: {error}"
        finally:
            while signals.thread.is_alive():
                with contextlib.suppress(KeyboardInterrupt):
                    signals.end()
        if result is not None and how == "complete" and not result.attributes["interrupted"]:
            return how, result
        return how, None


def wait_for_folder(folder: Path) -> None:
    """Wait until no earlier session of this process writes there."""
    begin = time.perf_counter()
    while any(each.name == "refhmc-run" and each.is_alive() for each in threading.enumerate()):
        time.sleep(0.001)
        if time.perf_counter() > begin + PATIENCE / 2:
            raise TimeoutError(f"threads of an earlier session are still there, and write to {folder}")


def arrays_of(result: refhmc.Result) -> dict[str, np.ndarray]:
    """Return all draws and statistics, by group and name."""
    groups = ("unconstrained_posterior", "sample_stats", "warmup_unconstrained_posterior", "warmup_sample_stats")
    return {f"{group}/{name}": np.array(values) for group in groups for name, values in result.groups[group].items()}


def differences(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    """Return what differs: the array, and where it does first."""
    found = [f"{name} is in one of them only" for name in one.keys() ^ other.keys()]
    for name in sorted(one.keys() & other.keys()):
        a, b = one[name], other[name]
        if a.shape != b.shape:
            found.append(f"{name}: {a.shape} and {b.shape}")
        elif a.tobytes() != b.tobytes():
            places = np.argwhere(~((a == b) | ((a != a) & (b != b))))
            where = places[0].tolist() if len(places) else "bits of NaN"
            found.append(f"{name}: {len(places)} of {a.size} numbers, first at {where}")
    return found


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def work(seed: int, first: int, session: int, last: int, folder: Path) -> None:
    """Run the cases from ``first`` to ``last``, the first one from ``session`` on."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interrupt)
    warnings.simplefilter("ignore")
    sweep = Sweep(seed, folder)
    for number in range(first, last):
        sweep.run_case(draw_case(seed, number), session if number == first else 0)


# --------------------------------------------------------------------------------------------------------- the command


class Count:
    """What has been seen so far."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []

    def take(self, seed: int, line: dict[str, Any]) -> None:
        case = draw_case(seed, line["case"])
        if "how" in line:
            how = line["how"].split(":")[0]
            self.counts[f"sessions {how}"] += 1
            if how in ("stopped", "raised"):
                self.counts["stops"] += 1
                self.counts[f"stops of {case.kernel}"] += 1
                self.counts[f"stops with a {case.keep}"] += 1
                self.counts[f"stops by {len(line['plan'])} signals"] += 1
        if line.get("done"):
            self.counts["cases"] += 1
            if line["differ"] or "failed" in line:
                self.fail(seed, case, "; ".join(line["differ"]) or line["failed"])

    def fail(self, seed: int, case: Case, what: str) -> None:
        repeat = f"python -m validation.stop_sweep --seed {seed} --case {case.number} --repeat 20"
        self.failures.append(f"{case}: {what}\n    repeat: {repeat}")
        print("FAILED", self.failures[-1], flush=True)


def sweep(seed: int, stops: int, cases: list[int] | None = None) -> Count:
    """Run cases until so many stops have been made, or these cases."""
    count = Count()
    todo = collections.deque(cases if cases is not None else range(10**6))
    with tempfile.TemporaryDirectory() as folder:
        session = 0
        while todo and (cases is not None or count.counts["stops"] < stops):
            last = todo[0] + 1 if cases is not None else 10**6
            todo_next = run_process(
                count, seed, stops if cases is None else 10**9, todo[0], session, last, Path(folder)
            )
            if todo_next is None:
                break
            number, session = todo_next
            while todo and todo[0] < number:
                todo.popleft()
            if cases is not None and todo and todo[0] != number:
                session = 0
    return count


def run_process(
    count: Count, seed: int, stops: int, first: int, session: int, last: int, folder: Path
) -> tuple[int, int] | None:
    """Run one process until it ends, hangs or enough stops are made; return the case and session that come next."""
    command = [
        sys.executable,
        "-m",
        "validation.stop_sweep",
        "--worker",
        str(seed),
        str(first),
        str(session),
        str(last),
    ]
    process = subprocess.Popen([*command, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines: queue.Queue[str | None] = queue.Queue()
    errors: list[str] = []
    threading.Thread(target=lambda: ([lines.put(x) for x in process.stdout], lines.put(None)), daemon=True).start()
    threading.Thread(target=lambda: errors.extend(process.stderr), daemon=True).start()
    at, leaves = (first, session), False
    try:
        while True:
            line = lines.get(timeout=PATIENCE)
            if line is None:
                break
            said = json.loads(line)
            count.take(seed, said)
            leaves = said.get("leaves", False)
            at = (said["case"] + 1, 0) if said.get("done") else (said["case"], said["session"] + 1)
            if said.get("done") and (count.counts["stops"] >= stops or said["case"] + 1 >= last):
                break
        if line is None:
            process.wait(timeout=PATIENCE)
    except (queue.Empty, subprocess.TimeoutExpired):
        process.send_signal(signal.SIGABRT)
        process.wait()
        time.sleep(0.2)
        what = "did not end" if leaves else "hung"
        count.fail(seed, draw_case(seed, at[0]), f"the process {what} in session {at[1]}\n{''.join(errors)}")
        return at[0] + 1, 0
    finally:
        process.kill()
    if line is not None:
        return at
    count.counts[f"processes that ended by themselves with {process.returncode}"] += 1
    if process.returncode not in (0, 3):
        text = f"the process ended with {process.returncode} in session {at[1]}\n{''.join(errors)[-4000:]}"
        count.fail(seed, draw_case(seed, at[0]), text)
        return at[0] + 1, 0
    return at if leaves else None


def versions() -> str:
    import numba

    system = f"{platform.system()} {platform.release()}, {os.cpu_count()} cores"
    packages = f"refhmc {refhmc.__version__}, NumPy {np.__version__}, Numba {numba.__version__}"
    return f"{packages}, Python {platform.python_version()}, {system}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stops", type=int, default=1000, help="run cases until so many stops have been made")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this case alone")
    parser.add_argument("--repeat", type=int, default=1, help="how often")
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        seed, first, session, last = map(int, asked.worker[:4])
        work(seed, first, session, last, Path(asked.worker[4]))
        return 0
    begin = time.perf_counter()
    print(f"seed {asked.seed}; {versions()}", flush=True)
    counts: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    for _ in range(asked.repeat if asked.case is not None else 1):
        found = sweep(asked.seed, asked.stops, None if asked.case is None else [asked.case])
        counts += found.counts
        failures += found.failures
    print(f"{time.perf_counter() - begin:.0f} s; {len(failures)} failures")
    for name in sorted(counts):
        print(f"  {name}: {counts[name]}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
