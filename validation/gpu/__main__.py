"""Everything that needs a GPU, in one command and one report.

    python -m validation.gpu [--backend cupy] [--out FOLDER] [--quick] [--only PART ...]

1. **tests**: ``tests/batch/test_cupy.py``.
2. **limits**: bytes a second of a copy, floating-point operations a second of a matrix product, in float64.
3. **chains**: chain-steps a second at 1, 100, 10,000 and 100,000 chains, of the funnel 10 + 1 on SoftAbs (implicit midpoint,
   with the way back) and a logistic regression 569 x 31 (HMC, leapfrog, Identity), beside the compiled text on one core of the
   same machine and BlackJAX; and the regression's share of the device's operations: 4 x 569 x 31 a gradient.
4. **network**: the gradient of a CNN (37,316 weights, 48,000 images of 28 x 28 made at random) beside Torch's on the same
   device.

5. **streaming**: the gradient of a split logistic regression, 2^22 x 32 (1 GiB) in 16 parts, of 10 chains, with its data on the
   device and sent for each evaluation; the bytes sent a second beside those of a copy from page-locked memory alone.

Needs Python, NumPy, SciPy, Numba, CuPy, array-api-compat and pytest; BlackJAX and Torch are measured where they are there, and
named as missing where not. Results are written to ``validation/gpu/results/``. ``--backend arrays`` runs the same on NumPy, to
try the command where there is no GPU; its report says so. The exit status is 1 where a part or a test failed, and 2 where there
is no device.
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import platform
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import refhmc
from refhmc.batch import backends
from refhmc.batch.draw import Options, Run
from refhmc.errors import DeviceError
from refhmc.integrators import ImplicitMidpoint, Leapfrog
from refhmc.metrics import Identity, SoftAbs
from refhmc.models.streamed import pinned

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CHAINS, QUICK = (1, 100, 10_000, 100_000), (1, 100)


def wait(backend: str) -> None:
    if backend == "cupy":
        import cupy

        cupy.cuda.runtime.deviceSynchronize()


def seconds(call: Callable[[], object], backend: str, least: float = 0.3) -> float:
    """Of one call, from as many as take ``least`` seconds, after one that is not counted."""
    call()
    wait(backend)
    n = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < least or n == 0:
        call()
        n += 1
        wait(backend)
    return (time.perf_counter() - begin) / n


def tests(backend: str, quick: bool) -> dict[str, Any]:
    """How many passed, failed and were skipped."""
    import pytest

    counts: dict[str, int] = {}

    class Count:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                counts[report.outcome] = counts.get(report.outcome, 0) + 1

        def pytest_collectreport(self, report: Any) -> None:
            if report.outcome != "passed":
                counts[f"collection {report.outcome}"] = counts.get(f"collection {report.outcome}", 0) + 1

    code = pytest.main(
        ["-q", "-p", "no:cacheprovider", str(ROOT / "tests" / "batch" / "test_cupy.py")], plugins=[Count()]
    )
    return {"exit": int(code), **counts}


def limits(backend: str, quick: bool) -> dict[str, float]:
    """Measured on the device."""
    xp = backends.namespace_of(backend)
    n = 2**20 if quick else 2**27
    x = xp.zeros((n,), dtype=xp.float64)
    d = 512 if quick else 8192
    A = xp.ones((d, d), dtype=xp.float64)
    return {
        "bytes_a_second": 2 * 8 * n / seconds(lambda: x + 1.0, backend),
        "operations_a_second": 2 * d**3 / seconds(lambda: A @ A, backend),
    }


def regression() -> refhmc.Model:
    """569 x 31, as the breast cancer data, with covariates and labels made at random from the model."""
    rng = np.random.default_rng(0)
    X = np.hstack([np.ones((569, 1)), rng.normal(size=(569, 30))])
    y = (rng.random(569) < 1 / (1 + np.exp(-X @ rng.normal(size=31)))).astype(int)
    return refhmc.models.LogisticRegression(X, y)


def problems() -> dict[str, tuple]:
    """Model and kernel"""
    midpoint = ImplicitMidpoint(variant="midpoint")
    return {
        "funnel 10 + 1, SoftAbs, midpoint": (
            refhmc.models.Funnel(10),
            refhmc.HMC(step_size=0.1, n_steps=5, metric=SoftAbs(), integrator=midpoint),
        ),
        "logistic regression 569 x 31, leapfrog": (
            regression(),
            refhmc.HMC(step_size=0.05, n_steps=10, metric=Identity(), integrator=Leapfrog()),
        ),
    }


def rate(model: refhmc.Model, kernel: Any, chains: int, backend: str, quick: bool) -> float:
    """Chain-steps a second: of as many transitions as take a second, after one."""
    xp = backends.namespace_of(backend)
    starts = xp.asarray(0.3 * np.random.default_rng(1).normal(size=(chains, model.dim)))
    n, took, steps = 1, 0.0, 0.0
    while took < (0.1 if quick else 1.0) and n <= 4096:
        run = Run(model.on_arrays(xp), kernel, starts + 0.0, 1, Options(n, 0, False, False, lambda *_: False))
        with np.errstate(all="ignore"):
            wait(backend)
            begin = time.perf_counter()
            run.draw()
            wait(backend)
        took, steps, n = time.perf_counter() - begin, float(np.sum(run.made.stats["n_steps"])), 4 * n
    return steps / took


def core_rate(model: refhmc.Model, kernel: Any, quick: bool) -> float:
    """The same of the compiled text: one chain on one core."""
    draws = 200 if quick else 4000
    options = {"tune": 0, "chains": 1, "cores": 1, "initvals": np.zeros(model.dim) + 0.1, "raw": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (10, draws):
            found = refhmc.sample(model, kernel, draws=n, random_seed=1, progressbar=False, preflight=False, **options)
    return float(np.sum(found.sample_stats["n_steps"])) / found.attributes["sampling_time"]


def chains(backend: str, quick: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (model, kernel) in problems().items():
        rates = {str(n): rate(model, kernel, n, backend, quick) for n in (QUICK if quick else CHAINS)}
        found[name] = {"chain_steps_a_second": rates, "compiled_text_on_one_core": core_rate(model, kernel, quick)}
    of = found["logistic regression 569 x 31, leapfrog"]
    measured, best = limits(backend, quick), max(of["chain_steps_a_second"].values())
    of["share_of_operations"] = best * 4 * 569 * 31 / measured["operations_a_second"]
    found["peers"] = blackjax(quick)
    return found


def blackjax(quick: bool) -> Any:
    """BlackJAX's HMC on the regression, where it is installed, on JAX's default device."""
    try:
        import blackjax
        import jax
    except ImportError as error:
        return f"not measured: {error}"
    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    X, y = (jnp.asarray(x, dtype=float) for x in regression().data[:2])
    sign = (2 * y - 1)[:, None] * X
    kernel = blackjax.hmc(lambda q: jnp.sum(jax.nn.log_sigmoid(sign @ q)) - 0.5 * q @ q, 0.05, jnp.ones(31), 10)
    rates = {}
    for n in QUICK if quick else CHAINS:

        @jax.jit
        def transitions(states: Any, keys: Any, n: int = n) -> Any:
            def one(states: Any, key: Any) -> tuple:
                states, _ = jax.vmap(kernel.step)(jax.random.split(key, n), states)
                return states, states.position

            return jax.lax.scan(one, states, keys)[1]

        states = jax.vmap(kernel.init)(jnp.zeros((n, 31)))
        keys = jax.random.split(jax.random.key(0), 10)
        took = seconds(lambda states=states, keys=keys: transitions(states, keys).block_until_ready(), "arrays")
        rates[str(n)] = n * 10 * 10 / took
    return {"device": str(jax.devices()[0]), "chain_steps_a_second": rates}


def network(backend: str, quick: bool) -> dict[str, Any]:
    """Seconds of one gradient of the full batch, in float32."""
    xp, n = backends.namespace_of(backend), 500 if quick else 48_000
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(n, 28, 28)).astype(np.float32), rng.integers(0, 10, n)
    model = refhmc.models.CNN(images, labels, n_classes=10, channels=(16, 32), dense=(46,), dtype=np.float32)
    text, q = model.on_arrays(xp), xp.asarray(0.05 * rng.normal(size=(1, model.dim)).astype(np.float32))
    found: dict[str, Any] = {"weights": model.dim, "images": n}
    found["seconds"] = seconds(lambda: text.value_and_gradient(q), backend)
    found["torch_seconds"] = torch_gradient(images, labels)
    return found


def torch_gradient(images: np.ndarray, labels: np.ndarray) -> Any:
    try:
        import torch
    except ImportError as error:
        return f"not measured: {error}"
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = torch.nn
    net = layers.Sequential(
        *(layers.Conv2d(1, 16, 5), layers.MaxPool2d(2), layers.ReLU()),
        *(layers.Conv2d(16, 32, 5), layers.MaxPool2d(2), layers.ReLU()),
        *(layers.Flatten(), layers.Linear(512, 46), layers.ReLU(), layers.Linear(46, 10)),
    ).to(device)
    X, y = torch.as_tensor(images[:, None], device=device), torch.as_tensor(labels, device=device)

    def gradient() -> None:
        net.zero_grad()
        loss = layers.functional.cross_entropy(net(X), y, reduction="sum")
        loss.backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return {"device": device, "seconds": seconds(gradient, "arrays")}


def streaming(backend: str, quick: bool) -> dict[str, Any]:
    """Seconds of one gradient of all parts; bytes a second."""
    xp, (n, d, M) = backends.namespace_of(backend), (2**12 if quick else 2**22, 32, 16)
    rng = np.random.default_rng(0)
    split = refhmc.models.LogisticRegression(rng.normal(size=(n, d)), rng.integers(0, 2, n)).split(M)
    q, found = xp.asarray(0.1 * rng.normal(size=(10, d))), {}
    for name, streamed in (("seconds_kept", False), ("seconds_sent", True)):
        text = split.on_arrays(xp, streamed=streamed)
        found[name] = seconds(lambda text=text: text.value_and_gradient(q), backend)
        del text
    found["bytes_a_second"] = 8 * n * d / found["seconds_sent"]
    if backend == "cupy":
        rows = pinned(rng.normal(size=(n // M, d)))
        found["bytes_a_second_of_a_copy"] = rows.nbytes / seconds(lambda: xp.asarray(rows), backend)
    return found


PARTS: dict[str, Callable] = {
    "tests": tests,
    "limits": limits,
    "chains": chains,
    "network": network,
    "streaming": streaming,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m validation.gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--backend", choices=("arrays", "cupy"), default="cupy")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the command")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    try:
        backends.namespace_of(options.backend)
    except DeviceError as error:
        print(error, file=sys.stderr)
        return 2
    report: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": backends.describe(options.backend),
        "quick": options.quick,
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "versions": {"refhmc": refhmc.__version__, "numpy": np.__version__},
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.backend}{'_quick' if options.quick else ''}.json"
    for name in options.only:
        begin = time.perf_counter()
        try:
            report[name] = PARTS[name](options.backend, options.quick)
        except Exception as error:  # the other parts are still worth their time on a lent machine
            report[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(f"{name} ({time.perf_counter() - begin:.1f} s): {json.dumps(report[name])}", flush=True)
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(path)
    failed = [name for name in options.only if "failed" in report[name]]
    wrong_tests = options.backend == "cupy" and report.get("tests", {}).get("exit", 0) != 0
    return 1 if failed or wrong_tests else 0


if __name__ == "__main__":
    sys.exit(main())
