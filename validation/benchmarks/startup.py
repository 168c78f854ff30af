"""How long refhmc takes to start: ``python -m validation.benchmarks.startup [--repeats 7]``.

Each figure is taken in new processes pinned to one core: ``import refhmc`` alone, over a bare interpreter; from the start
of the process to the first draw of a built-in model, with a warm cache; the same with an empty cache, when all of the sampler
is compiled; and to the finished result of eight schools, 4 x 1,000 draws, as arrays and as the object of the installed ArviZ.
With ArviZ 0.x that imports ArviZ itself, whose own time is in the table; with 1.x it does not.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import pathlib
import statistics
import sys
import tempfile
import time

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common

NOTHING = "import time; print(time.time())"
IMPORT = "import time; b = time.perf_counter(); import refhmc; print(time.perf_counter() - b)"
FIRST_DRAW = """
import time
import refhmc
from refhmc.models.funnel import Funnel
refhmc.sample(Funnel(), refhmc.NUTS(), draws=1, tune=0, chains=1, random_seed=1, raw=True, progressbar=False)
print(time.time())
"""
RESULT = """
import time
import refhmc
refhmc.sample(refhmc.models.EightSchools(), random_seed=1, progressbar=False, raw={})
print(time.time())
"""
ARVIZ = "import time; import arviz; print(time.time())"
ARRAYS, OBJECT, OF_ARVIZ = (
    "new process to eight schools, raw=True",
    "new process to eight schools, ArviZ's",
    "import arviz",
)
WANTED = {"import refhmc": 0.5, "new process to first draw, warm cache": 1.0, ARRAYS: 1.0}


def timed(text: str, since_start: bool, **environment: str) -> float:
    """Seconds that ``text`` prints, or from the start of its process to the time that it prints."""
    begin = time.time()
    done = common.run_python(["-W", "ignore", "-c", text], timeout=900, **environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    printed = float(done.stdout.split()[-1])
    return printed - begin if since_start else printed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="processes for each warm figure (default 7)")
    parser.add_argument("--cold", type=int, default=1, help="processes with an empty cache (default 1)")
    arguments = parser.parse_args()
    common.pin_to_one_core()
    about = common.machine(["refhmc", "numba", "numpy"])
    about["versions"]["arviz"] = version = importlib.metadata.version("arviz")
    names = ["bare interpreter", *WANTED, OBJECT, OF_ARVIZ, "new process to first draw, empty cache"]
    figures = {name: [] for name in names}
    for text in (FIRST_DRAW, RESULT.format(False)):
        timed(text, True)  # fills the cache
    for _ in range(arguments.repeats):
        figures["bare interpreter"].append(timed(NOTHING, True))
        figures["import refhmc"].append(timed(IMPORT, False))
        figures["new process to first draw, warm cache"].append(timed(FIRST_DRAW, True))
        figures[ARRAYS].append(timed(RESULT.format(True), True))
        figures[OBJECT].append(timed(RESULT.format(False), True))
        figures[OF_ARVIZ].append(timed(ARVIZ, True))
    for _ in range(arguments.cold):
        with tempfile.TemporaryDirectory() as empty:
            figures["new process to first draw, empty cache"].append(timed(FIRST_DRAW, True, REFHMC_CACHE_DIR=empty))
    of_arviz_0 = version.startswith("0.")
    limits = {**WANTED, OBJECT: 1.0 + statistics.median(figures[OF_ARVIZ]) if of_arviz_0 else 1.5}
    rows = []
    for name, values in figures.items():
        if not values:
            continue
        middle, wanted = statistics.median(values), limits.get(name)
        verdict = "" if wanted is None else f"<= {wanted:.3g} {'met' if middle <= wanted else 'MISSED'}"
        rows.append([name, f"{middle:.2f}", f"{min(values):.2f}..{max(values):.2f}", len(values), verdict])
    text = common.table(["seconds", "median", "range", "processes", "wanted"], rows)
    name = "startup" if of_arviz_0 else "startup_arviz_1"
    common.report(name, "Start-up", text, {"figures": figures}, about)


if __name__ == "__main__":
    main()
