"""Runs that last: ``python -m validation.benchmarks.long_runs [--quick]``.

A soak: 10^7 draws of eight schools, four chains, into a store, in a process of its own that says every half second how much
memory it holds (:func:`soak`); how fast the disk is written, and how long the store takes to open and to read. And what a
store, a checkpoint and progress cost: ratios of processor time and of time to the plain run, all interleaved, by NUTS with
gradients of about a tenth of a microsecond, a microsecond and a millisecond (:func:`overhead`). The least that anything could
cost that keeps every draw is in the row "bytes": a plain run, and then as many bytes as the checkpoint has, given to the
system by ``write`` and no more.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time
import warnings

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common

CHAINS, EVERY = 4, 0.5
AS_FLAT = 50e6  # bytes by which memory may grow after the first minute
WANTED = 1.02
KINDS = ("plain", "store", "checkpoint", "progress", "bytes")
LONGER = {"0.1 us": 1.0, "1 us": 1.0, "1 ms": 4.0}  # how many times as long as asked for runs of each model are


def say(text: str) -> None:
    """Progress, beside the report."""
    print(text, file=sys.stderr, flush=True)


def resident() -> float:
    """Bytes of this process in memory (Linux), or the most so far."""
    with contextlib.suppress(OSError):
        pages = pathlib.Path("/proc/self/statm").read_text().split()[1]

        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    import resource

    return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def soak(draws: int) -> dict:
    """In this process: the run, memory with time, the size of the store, opening and reading."""
    import refhmc

    found: dict = {"draws": CHAINS * draws}
    kernel = refhmc.NUTS()
    options = {"chains": CHAINS, "random_seed": 1, "raw": True, "generate": False, "progressbar": False}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refhmc.sample(refhmc.models.EightSchools(), kernel, draws=10, tune=10, store=f"{folder}/compiled", **options)
        path, begin, cpu = pathlib.Path(folder) / "run", time.perf_counter(), time.process_time()
        run = refhmc.start(refhmc.models.EightSchools(), kernel, draws=draws, tune=1000, store=path, **options)
        held = []
        while not run.finished:
            held.append((time.perf_counter() - begin, resident()))
            time.sleep(EVERY)
        found["seconds of chains"], found["processor seconds of chains"] = (
            time.perf_counter() - begin,
            time.process_time() - cpu,
        )
        result = run.wait()
        found["seconds"] = time.perf_counter() - begin
        found["memory"] = held
        found["memory at the end"] = resident()
        found["bytes of the store"] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        assert result.attributes["draws_per_chain"] == [draws] * CHAINS
        begin = time.perf_counter()
        import xarray

        tree = xarray.open_datatree(path, engine="zarr", chunks=None)
        found["seconds to open"] = time.perf_counter() - begin
        begin = time.perf_counter()
        size = sum(each.to_numpy().nbytes for each in tree["posterior"].data_vars.values())
        found["seconds to read the posterior"], found["bytes of the posterior"] = time.perf_counter() - begin, size
        tree.close()
    return found


def sum_of_terms(seconds: float):
    """A normal of ten dimensions whose gradient is a sum of so many terms that it takes about this long, compiled."""
    import refhmc

    def log_density(q, data):
        s = 0.0
        for i in range(data.shape[0]):
            s += np.log(1.0 + data[i] * q[0] * q[0])
        return -0.5 * np.sum(q * q) - 1e-30 * s

    def gradient(q, data):
        s = 0.0
        for i in range(data.shape[0]):
            s += 2.0 * data[i] * q[0] / (1.0 + data[i] * q[0] * q[0])
        g = -q
        g[0] -= 1e-30 * s
        return g

    def made(n: int):
        return refhmc.Model(10, log_density, gradient, data=np.ones(n), name="a sum")

    # A density and a gradient of few terms and of many tell what a term takes, on this processor.
    took = {n: seconds_of_a_gradient(made(n)) for n in (100, 10_100)}
    each = (took[10_100] - took[100]) / 10_000
    return made(max(1, int((seconds - took[100]) / each) + 100))


def seconds_of_a_gradient(model) -> float:
    """What a leapfrog step takes in compiled code: a density and a gradient, and little besides."""
    import refhmc

    H, n = refhmc.Hamiltonian(model, refhmc.metrics.Identity()), 20_000
    q, p = np.zeros(model.dim), np.full(model.dim, 0.1)
    took = []
    for _ in range(4):
        begin = time.process_time()
        refhmc.integrate(H, refhmc.integrators.Leapfrog(), q, p, step_size=0.1, n_steps=n)
        took.append((time.process_time() - begin) / n)
    return min(took)


def overhead(seconds_each: float, rounds: int) -> dict:
    """Per model and kind: seconds and processor seconds of each round, all kinds in each round in turn; and of a run of 100
    draws, which is what any run of the kind takes besides its draws."""
    import refhmc

    found: dict = {}
    models = {
        "eight schools, 0.1 us": refhmc.models.EightSchools(),
        "a sum, 1 us": sum_of_terms(1e-6),
        "a sum, 1 ms": sum_of_terms(1e-3),
    }
    kernel = refhmc.NUTS(step_size=0.4, metric=refhmc.metrics.Identity())
    options = {
        "tune": 0,
        "chains": 1,
        "cores": 1,
        "random_seed": 1,
        "raw": True,
        "generate": False,
        "progressbar": False,
    }
    rows_each = 0  # bytes of a checkpoint a draw

    def run(model, draws: int, kind: str) -> tuple[float, float]:
        nonlocal rows_each
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
            path = pathlib.Path(folder) / "run"
            more = {kind: path} if kind in ("store", "checkpoint") else {}
            begin = time.perf_counter(), time.process_time()
            refhmc.sample(model, kernel, draws=draws, **{**options, **more, "progressbar": kind == "progress"})
            if kind == "bytes":
                block = bytes(rows_each * 10_000)
                with open(path, "wb") as file:
                    for _ in range(draws // 10_000):
                        file.write(block)
                    file.write(block[: rows_each * (draws % 10_000)])
            took = time.perf_counter() - begin[0], time.process_time() - begin[1]
            if kind == "checkpoint":
                rows_each = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) // draws
            return took

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in models.items():
            run(model, 100, "plain")
            few = 20_000 if "us" in name else 200
            each = LONGER[name.split(", ")[1]] * seconds_each
            draws = max(few, int(few * each / max(run(model, few, "plain")[0], 1e-3)))
            few_draws = {kind: [run(model, 100, kind) for _ in range(3)][-1] for kind in KINDS if kind != "bytes"}
            few_draws["bytes"] = few_draws["plain"]
            run(model, draws, "checkpoint")
            say(f"{name}: {draws:,} draws a run, {rows_each} bytes each")
            times: dict = {kind: [] for kind in KINDS}
            for k in range(rounds):
                at = k % len(KINDS)
                for kind in KINDS[at:] + KINDS[:at]:
                    times[kind].append(run(model, draws, kind))
                say(
                    f"{name}: round {k + 1} of {rounds}, "
                    + ", ".join(f"{n} {t[-1][0]:.2f} s" for n, t in times.items())
                )
            took = 1e6 * seconds_of_a_gradient(model)
            found[name] = {"draws": draws, "times": times, "100 draws": few_draws, "step us": took, "bytes": rows_each}
    return found


def in_words(ratios: dict) -> list[str]:
    """What each kind adds to a draw, a sentence each where that is above what is wanted."""
    found = []
    for name, of_model in ratios.items():
        times = {kind: statistics.median(t[1] for t in of) for kind, of in of_model["times"].items()}
        for kind in ("store", "checkpoint", "progress"):
            if times[kind] > WANTED * times["plain"]:
                more, once = (
                    times[kind] - times["plain"],
                    of_model["100 draws"][kind][1] - of_model["100 draws"]["plain"][1],
                )
                each, plain = (1e6 * seconds / of_model["draws"] for seconds in (more - once, times["plain"]))
                found.append(
                    f"- {name}: {kind} takes {100 * more / times['plain']:.0f} % more of the processor than a plain run, where "
                    f"{100 * (WANTED - 1):.0f} % is wanted: {once:.2f} s a run and {each:.2g} us a draw, "
                    f"where a plain draw takes {plain:.3g} us."
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the draws, two short rounds")
    parser.add_argument("--soak", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.soak:
        print(json.dumps(soak(arguments.soak)))
        return
    about = common.machine(["refhmc", "numba", "numpy", "zarr", "xarray"])
    about["cores_used"] = 2
    ratios = overhead(0.5 if arguments.quick else 4.0, 2 if arguments.quick else 5)
    say("the soak")
    draws = 10**7 // CHAINS // (20 if arguments.quick else 1)
    done = common.run_python(
        ["-W", "ignore", "-m", "validation.benchmarks.long_runs", "--soak", str(draws)], timeout=1800
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    of_soak = json.loads(done.stdout.splitlines()[-1])
    rows = []
    for name, of_model in ratios.items():
        plain = of_model["times"]["plain"]
        for kind, times in of_model["times"].items():
            wall, cpu = (statistics.median(a[i] / b[i] for a, b in zip(times, plain, strict=True)) for i in (0, 1))
            each = 1e6 * statistics.median(t[1] for t in times) / of_model["draws"]
            verdict = "" if kind in ("plain", "bytes") else f"<= {WANTED} {'met' if cpu <= WANTED else 'MISSED'}"
            rows.append([f"{name}: {kind}", of_model["draws"], f"{each:.3g}", f"{cpu:.3f}", f"{wall:.3f}", verdict])
            rows[-1].insert(3, f"{1e3 * of_model['100 draws'][kind][1]:.0f}")
    heads = [
        "run",
        "draws",
        "processor us a draw",
        "processor ms of 100 draws",
        "processor ratio",
        "time ratio",
        "wanted",
    ]
    known = [
        f"- {name}: a leapfrog step takes {of['step us']:.2g} us, and a draw is {of['bytes']} bytes in a checkpoint."
        for name, of in ratios.items()
    ]
    text = common.table(heads, rows) + "\n\n" + "\n".join([*known, *in_words(ratios)])
    held = of_soak["memory"]
    first = [size for at, size in held if at >= min(60.0, held[-1][0] / 3)]
    grown = max(first) - first[0]
    lines = [
        ["draws", f"{of_soak['draws']:,}"],
        ["seconds (processor)", f"{of_soak['seconds of chains']:.1f} ({of_soak['processor seconds of chains']:.1f})"],
        ["seconds of the review after them", f"{of_soak['seconds'] - of_soak['seconds of chains']:.1f}"],
        ["MB in memory at the first minute, or a third", f"{first[0] / 1e6:.0f}"],
        ["MB in memory when the last draw is made", f"{first[-1] / 1e6:.0f}"],
        ["MB in memory at the end", f"{of_soak['memory at the end'] / 1e6:.0f}"],
        ["the most it grew in between, MB", f"{grown / 1e6:.0f} <= 50 {'met' if grown <= AS_FLAT else 'MISSED'}"],
        ["MB of the store", f"{of_soak['bytes of the store'] / 1e6:.0f}"],
        ["MB to the disk a second", f"{of_soak['bytes of the store'] / of_soak['seconds of chains'] / 1e6:.0f}"],
        ["seconds to open", f"{of_soak['seconds to open']:.2f}"],
        [
            "seconds to read the posterior",
            f"{of_soak['seconds to read the posterior']:.2f} ({of_soak['bytes of the posterior'] / 1e6:.0f} MB)",
        ],
    ]
    text += "\n\nA run into a store, eight schools, NUTS, four chains:\n\n" + common.table(["", ""], lines)
    common.report("long_runs", "Runs that last", text, {"overhead": ratios, "soak": of_soak}, about)


if __name__ == "__main__":
    main()
