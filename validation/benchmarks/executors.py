"""What a segment costs by each executor, and what 10,000 workers would need: ``python -m validation.benchmarks.executors``.

Two workers, two chains, NUTS on eight schools (d = 10) and on a logistic regression of 5,000 rows (d = 24); segments of a tenth
of a second. Given is what a segment takes from when it is sent to when it is back, beside sampling: medians over the
segments, with the 90th percentile after a slash. Bytes are those of the pickled messages. Then a thousand chains of
eight schools on this machine, 1,000 draws each after 1,000 iterations of warm-up; and how many CPU seconds the process where
the run is takes for a segment, from which follows, by count, what it takes for workers by the thousand.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import pathlib
import pickle
import shutil
import statistics
import subprocess
import sys
import time
import warnings

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import refhmc
from refhmc import models
from refhmc.sampling.chains import executors
from validation.benchmarks import common

WORKERS = 2
RUN = {"chains": WORKERS, "tune": 300, "random_seed": 20261125, "raw": True, "progressbar": False, "generate": False}
SEGMENT = 0.1  # seconds
MPI = ["mpiexec", "-n", str(WORKERS + 1), sys.executable, "-m", "mpi4py.futures", __file__, "--mpi"]


def problems() -> dict[str, refhmc.Model]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(5000, 24))
    y = (rng.random(5000) < 1 / (1 + np.exp(-X @ rng.normal(size=24) / 5))).astype(float)
    return {"eight schools": models.EightSchools(), "logistic, 5,000 x 24": models.LogisticRegression(X, y)}


# ------------------------------------------------------------------------------------------------------- executors


@contextlib.contextmanager
def threads():
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        yield pool


@contextlib.contextmanager
def processes():
    with concurrent.futures.ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
        yield pool


@contextlib.contextmanager
def loky():
    import loky

    pool = loky.get_reusable_executor(max_workers=WORKERS)
    try:
        yield pool
    finally:
        pool.shutdown()


@contextlib.contextmanager
def dask():
    import distributed

    cluster = distributed.LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None)
    with cluster, distributed.Client(cluster) as client:
        yield client


@contextlib.contextmanager
def ray():
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, object_store_memory=2 * 10**8, log_to_driver=False)

    class Tasks:
        def submit(self, function, *arguments):
            return ray.remote(function).remote(*arguments).future()

    try:
        yield Tasks()
    finally:
        ray.shutdown()


@contextlib.contextmanager
def mpi():
    from mpi4py.futures import MPIPoolExecutor

    with MPIPoolExecutor() as pool:
        yield pool


KINDS = {"threads": threads, "processes": processes, "loky": loky, "dask": dask, "ray": ray}


class Timed:
    """Notes of each segment that has come back what it took beside sampling, and which part of that in its worker."""

    def __init__(self, executor):
        self.send, self.costs, self.in_worker = executors.as_submit(executor), [], []

    def submit(self, function, *arguments):
        begin, future = time.perf_counter(), self.send(function, *arguments)
        future.add_done_callback(lambda future: self.note(time.perf_counter() - begin, future))
        return future

    def note(self, took, future):
        try:
            answer = future.result()
        except Exception:  # cancelled by the stop
            return
        if answer.segment is not None:
            self.costs.append(took - answer.segment.seconds)
            self.in_worker.append(answer.seconds - answer.segment.seconds)


def measured(make, seconds: float) -> dict[str, list]:
    """By problem: costs of the segments, and parts of them in workers; the first of each chain aside."""
    executors.LEAST, executors.SHARE, found = SEGMENT, 1e9, {}
    with make() as executor:
        for name, model in problems().items():
            refhmc.sample(model, executor=executor, draws=10, **RUN)  # compiles
            timed = Timed(executor)
            refhmc.sample(model, executor=timed, draws=10**6, max_seconds=seconds, **RUN)
            found[name] = [timed.costs[WORKERS:], timed.in_worker[WORKERS:]]
    return found


class Weighed:
    """Threads that are told that they are of another process; the bytes there and back."""

    def __init__(self, pool):
        self.pool, self.there, self.back, self.models = pool, [], [], []

    def submit(self, function, job, *shared):
        def work():
            answer = function(job._replace(process=-1), *shared)
            if answer.segment is not None:
                self.there.append(len(pickle.dumps(job)))
                self.back.append(len(pickle.dumps(answer)) - len(pickle.dumps(answer.segment.run.rows)))
            return answer

        self.models += [len(pickle.dumps(each)) for each in shared]
        return self.pool.submit(work)


def weighed(model: refhmc.Model) -> list[int]:
    """Bytes of the model, of a segment after warm-up, and of what comes back with it beside its rows."""
    executors.LEAST, executors.SHARE = 0.02, 1e9
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        scales = Weighed(pool)
        refhmc.sample(model, executor=scales, draws=1000, **RUN)
    return [max(scales.models), max(scales.there), max(scales.back), len(scales.models), len(scales.there)]


def cpu_of_a_segment() -> list[float]:
    """CPU seconds of this process for a segment, and seconds a segment, with short ones by processes."""
    executors.LEAST, executors.SHARE = 1e-4, 1e9
    model = models.EightSchools()
    with processes() as pool:
        refhmc.sample(model, executor=pool, draws=10, **RUN)
        timed = Timed(pool)
        cpu, begin = time.process_time(), time.perf_counter()
        refhmc.sample(model, executor=timed, draws=2_000_000, max_seconds=10.0, **RUN)
        n = len(timed.costs)
        return [(time.process_time() - cpu) / n, (time.perf_counter() - begin) / n, n]


def thousand() -> dict[str, float]:
    """Seconds of a thousand chains of eight schools: threads, an executor of threads, processes."""
    executors.LEAST, executors.SHARE = 1.0, 0.02
    options = {**RUN, "chains": 1000, "tune": 1000, "draws": 1000}
    model, found = models.EightSchools(), {}

    def run(name, **more):
        begin = time.perf_counter()
        result = refhmc.sample(model, **{**options, **more})
        found[name] = time.perf_counter() - begin, result.attributes["sampling_time"]
        print(name, found[name], flush=True)
        return result.draws

    whole = run("cores=2", cores=WORKERS)
    for name, make in {"threads": threads, "processes": processes}.items():
        with make() as pool:
            refhmc.sample(model, executor=pool, draws=10, **RUN)
            assert np.array_equal(run(name, executor=pool), whole)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="for each executor and problem (default 5)")
    parser.add_argument("--mpi", action="store_true", help="as a program of mpiexec: print the figures of MPI as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.mpi:
        print("\n" + json.dumps(measured(mpi, arguments.seconds)))
        return
    about = common.machine(["refhmc", "numba", "numpy", "loky", "distributed", "ray", "mpi4py"])
    about["cores_used"] = WORKERS
    os.environ.update(common.environment())
    bytes_of = {name: weighed(model) for name, model in problems().items()}
    costs, missing = {}, []
    for name, make in KINDS.items():
        try:
            costs[name] = measured(make, arguments.seconds)
        except ImportError as error:
            missing.append(f"{name} ({error})")
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    more = {**os.environ, **as_root, "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    if shutil.which("mpiexec"):
        done = subprocess.run([*MPI, "--seconds", str(arguments.seconds)], env=more, capture_output=True, text=True)
        if done.returncode == 0:
            costs["MPI"] = json.loads(done.stdout.strip().splitlines()[-1])
    if "MPI" not in costs:
        missing.append("MPI")
    cpu, wall, n = cpu_of_a_segment()
    chains = thousand()
    write(about, bytes_of, costs, missing, (cpu, wall, n), chains)


def write(about, bytes_of, costs, missing, segment, chains) -> None:
    def both(values):
        return f"{1e3 * statistics.median(values):.1f} / {1e3 * np.percentile(values, 90):.1f}"

    rows = [
        [f"{kind}: {name}", both(of[0]), both(of[1]), len(of[0])]
        for kind, by_name in costs.items()
        for name, of in by_name.items()
    ]
    text = [" ".join((__doc__ or "").split("\n\n", 1)[1].split())]
    text.append(common.table(["ms a segment, beside sampling", "in all", "in the worker", "segments"], rows))
    text.append(f"Other work ran beside it: the load was {about['load_at_start']:.1f} at the start.")
    if missing:
        text.append("Not measured: " + ", ".join(missing) + ".")
    sizes = [
        [name, f"{model:,}", f"{there:,}", f"{back:,}", f"{sent} of {segments}"]
        for name, (model, there, back, sent, segments) in bytes_of.items()
    ]
    header = ["bytes", "model, once a worker", "segment", "back, beside rows", "models sent of segments"]
    text.append(common.table(header, sizes))
    text.append(
        common.table(
            ["1,000 chains of eight schools", "seconds", "of them sampling"],
            [[name, f"{took:.1f}", f"{sampling:.1f}"] for name, (took, sampling) in chains.items()],
        )
    )
    cpu, wall, n = segment
    model, there, back = bytes_of["logistic, 5,000 x 24"][:3]
    rate = 10_000 / executors.MOST
    text.append(
        f"**10,000 workers, on paper.** The process where the run is takes {1e3 * cpu:.2f} ms of CPU for a segment ({n:,} "
        f"of them, processes, {1e3 * wall:.2f} ms each by the clock). With a chain to each worker and segments of "
        f"{executors.MOST:.0f} s, the longest, {rate:.0f} come back a second: {rate * cpu:.2f} cores of it, and of the "
        f"scheduler as many tasks. One process is full at {executors.MOST / cpu:,.0f} workers. The logistic regression's "
        f"messages are then {rate * (there + back) / 1e6:.0f} MB/s beside draws; its model goes out once to each, "
        f"{1e4 * model / 1e9:.0f} GB in all (with every segment it would be {rate * model / 1e6:,.0f} MB/s). A scheduler "
        f"that takes 1 ms a task is busy for {100 * rate * 1e-3:.0f} % of the time. Segments of one second would need "
        f"{1e4 * cpu:.0f} cores: they are that short only where a segment costs less than 20 ms."
    )
    data = {"bytes": bytes_of, "costs": costs, "cpu_of_a_segment": segment, "thousand_chains": chains}
    common.report("executors", "Executors", "\n\n".join(text), data, about)


if __name__ == "__main__":
    main()
