"""One posterior in five implementations: ``python -m validation.benchmarks.five_ways [--python by_jax=PATH ...]``.

*Ready* is the time from the start of a process until density, gradient, Hessian and its contraction have been evaluated
once. It includes imports and compilation: *cold* with empty caches, *warm* with those of the process before. Microseconds
per call are those of the function pointers that samplers call, in a compiled loop. ESS/s of NUTS is the least effective
sample size of eta, mu and tau over the seconds of `sample`. These runs have 4 x 1,000 draws and as many iterations of warm-
up, one chain after another.

The implementations are the files of ``docs/five_ways``. If the library of one is not installed, it is measured by the
interpreter that ``--python`` names for it (with refhmc's dependencies and refhmc from this tree), or left out. The page
``docs/five_ways.md`` is written from these files and the table.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common

TEXTS = common.ROOT / "docs" / "five_ways"
PAGE = common.ROOT / "docs" / "five_ways.md"
WAYS = {
    "by_hand": (
        "By hand: `refhmc.Model`",
        (),
        "Derivatives on paper; functions of the unconstrained coordinates.",
    ),
    "by_parameters": (
        "By hand, with named parameters: `refhmc.Parameters`",
        (),
        "Derivatives with respect to eta, mu and tau. refhmc supplies the logarithm of tau, its Jacobian and the chain rule.",
    ),
    "by_sympy": (
        "SymPy: `refhmc.from_sympy`",
        ("sympy",),
        "The formula. `print(model.source)` shows the generated functions.",
    ),
    "by_pymc": (
        "PyMC: `refhmc.from_pymc`",
        ("pymc", "pytensor"),
        "The generative model. PyTensor differentiates and compiles it.",
    ),
    "by_jax": (
        "JAX: `refhmc.from_jax`",
        ("jax",),
        "The density as an array program. JAX differentiates it and XLA compiles it. A single call of JAX is "
        "expensive on the machine of the benchmark.",
    ),
}
WHAT = " ".join((__doc__ or "").split("\n\n")[1].split())
CALLS = ("density and gradient", "Hessian", "hessian_contraction")


# ------------------------------------------------------------------------------------------------ in a process of its own


def model_of(way: str):
    """The model of a text, by importing it."""
    specification = importlib.util.spec_from_file_location(way, TEXTS / f"{way}.py")
    module = sys.modules[way] = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.model


def ready(way: str):
    """The model, evaluated once as the samplers do, and the pointers that they take."""
    import numpy as np

    model = model_of(way)
    pointers = model.core.tuple_reading(("hessian", "hessian_contraction"))
    d = model.dim
    q, M = np.linspace(-0.5, 0.5, d), np.eye(d)
    model.core.value_and_gradient(q)
    model.hessian(q), model.hessian_contraction(q, M)
    return model, pointers, q, M


def microseconds(pointers, q, M, seconds: float) -> list[float]:
    """Of a density with gradient, a Hessian and a trace: the least of five rounds of the given length."""
    import numba
    import numpy as np

    data, both, hessian, hessian_contraction, _ = pointers
    d = len(q)
    vector, matrix = np.zeros(d), np.zeros((d, d))

    @numba.njit
    def of_three(f, q, data, out, n):
        for _ in range(n):
            f(q, data, out)

    @numba.njit
    def of_four(f, q, data, M, out, n):
        for _ in range(n):
            f(q, data, M, out)

    found = []
    for f, arguments in ((both, (vector,)), (hessian, (matrix,)), (hessian_contraction, (M, vector))):
        loop = of_four if len(arguments) == 2 else of_three
        loop(f, q, data, *arguments, 1)  # compiles
        n, taken = 1, 0.0
        while taken < seconds:
            n *= 2
            begin = time.perf_counter()
            loop(f, q, data, *arguments, n)
            taken = time.perf_counter() - begin
        rounds = []
        for _ in range(5):
            begin = time.perf_counter()
            loop(f, q, data, *arguments, n)
            rounds.append(time.perf_counter() - begin)
        found.append(1e6 * min(rounds) / n)
    return found


def ess_a_second(model, draws: int) -> tuple[float, float]:
    """Of NUTS: the least effective sample size a second, and the seconds."""
    import numpy as np

    import refhmc

    options = {"chains": 4, "cores": 1, "raw": True, "progressbar": False, "generate": False}
    refhmc.sample(model, refhmc.NUTS(), draws=10, tune=10, random_seed=1, **options)
    begin = time.perf_counter()
    result = refhmc.sample(model, refhmc.NUTS(), draws=draws, tune=draws, random_seed=2, **options)
    seconds = time.perf_counter() - begin
    values = [np.reshape(result.posterior[name], (4, draws, -1)) for name in ("eta", "mu", "tau")]
    return float(refhmc.diagnostics.ess(np.concatenate(values, axis=-1)).min()) / seconds, seconds


def measure(way: str, what: str, draws: int) -> dict:
    warnings.simplefilter("ignore")
    model, pointers, q, M = ready(way)
    found: dict = {"ready": time.time(), "value": model.log_density(q) - model.log_density(0 * q)}
    if what == "all":
        packages = ("numba", *WAYS[way][1])
        found["versions"] = {name: importlib.metadata.version(name) for name in packages}
        found["microseconds"] = dict(zip(CALLS, microseconds(pointers, q, M, 0.05), strict=True))
        found["ess a second"], found["seconds of NUTS"] = ess_a_second(model, draws)
    return found


# ------------------------------------------------------------------------------------------------ the command


def process(way: str, what: str, interpreter: str, cache: str, draws: int) -> dict:
    """What :func:`measure` finds in a new process, ``ready`` being the seconds since its start."""
    places = {"REFHMC_CACHE_DIR": cache, "PYTENSOR_FLAGS": f"base_compiledir={os.path.join(cache, 'pytensor')}"}
    arguments = ["-m", "validation.benchmarks.five_ways", "--measure", way, what, "--draws", str(draws)]
    begin = time.time()
    done = subprocess.run(
        [interpreter, *arguments],
        cwd=common.ROOT,
        env=common.environment(**places),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{way} by {interpreter}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return found | {"ready": found["ready"] - begin}


def figures_of(way: str, interpreter: str, repeats: int, draws: int, compiled: str) -> dict:
    """``compiled``: a folder for the sampler's code, which is not what is measured."""
    with tempfile.TemporaryDirectory() as cache:
        cold = process(way, "ready", interpreter, cache, draws)
        warm = [process(way, "ready", interpreter, cache, draws)["ready"] for _ in range(repeats)]
    found = process(way, "all", interpreter, compiled, draws)
    return {**found, "lines": lines_of(way), "cold": cold["ready"], "warm": statistics.median(warm)}


def text_of(way: str) -> str:
    return (TEXTS / f"{way}.py").read_text(encoding="utf-8")


def lines_of(way: str) -> int:
    """Those that are not blank."""
    return sum(bool(line.strip()) for line in text_of(way).splitlines())


def installed(packages: tuple[str, ...]) -> bool:
    try:
        return all(importlib.metadata.version(name) for name in packages)
    except importlib.metadata.PackageNotFoundError:
        return False


def table_of(figures: dict[str, dict]) -> str:
    header = ["", "lines", "ready, cold, s", "warm, s", *(f"{call}, us" for call in CALLS), "NUTS, ESS/s", "with"]
    rows = []
    for way, f in figures.items():
        calls = [f"{f['microseconds'][call]:.3g}" for call in CALLS]
        versions = ", ".join(f"{name} {version}" for name, version in f["versions"].items())
        ess = f"{f['ess a second']:,.0f}"
        rows.append([WAYS[way][0], f["lines"], f"{f['cold']:.1f}", f"{f['warm']:.1f}", *calls, ess, versions])
    return common.table(header, rows)


def page(table: str) -> str:
    """The five texts and the table."""
    parts = [
        "# One posterior, five ways",
        "This page writes one posterior in five ways, so that you can compare them. The posterior is eight schools, "
        "non-centred: y_j ~ N(mu + tau eta_j, sigma_j), eta_j ~ N(0, 1), mu ~ N(0, 5), tau ~ C+(0, 5). All five have "
        "derivatives to third order on the same coordinates (eta, mu, log tau), so every kernel runs on each of them.",
        "The files are in `docs/five_ways`. `tests/validation/test_five_ways.py` checks that they agree. "
        "`python -m validation.benchmarks.five_ways` writes this page.",
        "## Cost",
        table,
        WHAT,
        "The built-in `refhmc.models.EightSchools()` is a sixth implementation, optimised for speed.",
    ]
    for way, (title, _, says) in WAYS.items():
        parts += [f"## {title}", says, f"```python\n{text_of(way).strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--python", nargs="*", default=[], metavar="WAY=PATH", help="interpreters by the name of a text"
    )
    parser.add_argument("--only", nargs="*", choices=list(WAYS))
    parser.add_argument("--repeats", type=int, default=3, help="warm processes (default 3)")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "WHAT"), help="in a process that the command starts")
    options = parser.parse_args()
    common.pin_to_one_core()
    if options.measure:
        print(json.dumps(measure(*options.measure, options.draws)))
        return
    interpreters = dict(each.split("=", 1) for each in options.python)
    about = common.machine(["refhmc", "numpy"])
    figures = {}
    with tempfile.TemporaryDirectory() as compiled:
        for way in options.only or WAYS:
            if way not in interpreters and not installed(WAYS[way][1]):
                print(f"{way}: {', '.join(WAYS[way][1])} is not installed here; give --python {way}=PATH")
                continue
            interpreter = interpreters.get(way, sys.executable)
            figures[way] = figures_of(way, interpreter, options.repeats, options.draws, compiled)
            print(way, figures[way], flush=True)
    table = table_of(figures)
    common.report("five_ways", "One posterior, five ways", f"{WHAT}\n\n{table}", {"figures": figures}, about)
    if len(figures) == len(WAYS):
        PAGE.write_text(page(table), encoding="utf-8")


if __name__ == "__main__":
    main()
