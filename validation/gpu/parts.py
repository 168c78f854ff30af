"""What ``python -m validation.gpu`` measures: for each part its rows in their order, ``(name, function)``.

A function takes no arguments and returns numbers or words for the report. Each is measured by itself, so that one that fails,
or takes too long, costs no other. The rows that matter most come first.
"""

from __future__ import annotations

import functools
import importlib.metadata
import pathlib
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

import refhmc
from refhmc.batch import backends
from refhmc.batch.draw import Options, Run
from refhmc.batch.streams import keys_of, uniforms
from refhmc.integrators import ImplicitMidpoint, Leapfrog
from refhmc.metrics import Identity, SoftAbs
from refhmc.metrics.softabs_function import divided_differences
from refhmc.models.streamed import pinned
from refhmc.numerics import batched
from refhmc.numerics.batched import Array

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES, QUICK_SIZES = (10_000, 100_000, 100, 1), (100, 1)
PACKAGES = (
    "numpy",
    "scipy",
    "numba",
    "cupy-cuda13x",
    "array-api-compat",
    "jax",
    "blackjax",
    "torch",
    "pytest",
    "hypothesis",
)
ALPHA = 1e6  # of SoftAbs, as BlackJAX's
Rows = Iterator[tuple[str, Callable[[], Any]]]


def wait(backend: str) -> None:
    """Wait until the device has finished."""
    if backend == "cupy":
        import cupy

        cupy.cuda.runtime.deviceSynchronize()


def seconds(call: Callable[[], object], backend: str, least: float = 0.3) -> float:
    """Return the seconds of one call: the mean of as many as take ``least`` seconds, after one that is not counted."""
    call()
    wait(backend)
    n, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < least or n == 0:
        call()
        n += 1
        wait(backend)
    return (time.perf_counter() - begin) / n


# ------------------------------------------------------------------------------------------------------------- smoke


def smoke(backend: str, quick: bool) -> Rows:
    """Yield versions and device, then linear algebra, indexing and a few transitions, compared with NumPy."""
    yield "versions", lambda: versions(backend)
    yield "free bytes", lambda: backends.memory_there(backend)
    for name, function in ALGEBRA.items():
        yield name, functools.partial(difference, function, backend)
    yield "rows without a result", lambda: rows_without_a_result(backend)
    for kernel in (refhmc.HMC(step_size=0.2, n_steps=4), refhmc.NUTS(step_size=0.2, max_treedepth=4)):
        yield f"transitions of {type(kernel).__name__}", functools.partial(same_draws, kernel, backend)
    yield "sample", lambda: sampled(backend)


def versions(backend: str) -> dict[str, str]:
    """Return the versions of Python, of the packages, and of CUDA."""
    found = {"python": platform.python_version(), "refhmc": refhmc.__version__}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "missing"
    if backend == "cupy":
        import cupy

        runtime = cupy.cuda.runtime
        found |= {"cuda": str(runtime.runtimeGetVersion()), "driver": str(runtime.driverGetVersion())}
    return found


def matrices(n: int = 50, d: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Return symmetric positive matrices (n, d, d), and vectors (n, d)."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(n, d, d))
    return A @ np.swapaxes(A, -1, -2) + np.eye(d), rng.normal(size=(n, d))


ALGEBRA: dict[str, Callable] = {
    "product": lambda xp, A, b: A @ A,
    "Cholesky": lambda xp, A, b: xp.linalg.cholesky(A),
    "solve": lambda xp, A, b: batched.solve(A, b),
    "eigenvalues": lambda xp, A, b: xp.linalg.eigh(A)[0],
    "inverse": lambda xp, A, b: xp.linalg.inv(A),
    "sorted rows": lambda xp, A, b: xp.take(b, xp.argsort(xp.astype(b[:, 0] > 0, xp.int64), stable=True), axis=0),
    "sorted entries": lambda xp, A, b: xp.take_along_axis(b, xp.argsort(b, axis=-1), axis=-1),
    "masked rows": lambda xp, A, b: batched.in_place_of(b[:, 0] > 0, 2 * b[b[:, 0] > 0], b),
    "written rows": lambda xp, A, b: with_rows_written(xp, b),
    "divided differences": lambda xp, A, b: divided_differences(b, 1.0),
    "random numbers": lambda xp, A, b: uniforms(
        xp.asarray(KEYS), xp.asarray(KEYS[:, 0] % 100), 1, xp.asarray(KEYS[:, 0] % 7), 9
    ),
    "running counts": lambda xp, A, b: xp.cumulative_sum(xp.astype(b[:, 0] > 0, xp.int64)) / 2,
}


KEYS = keys_of(1, 50)


def with_rows_written(xp: ModuleType, b: Array) -> Array:
    """Return a copy of b with every third row doubled and counted, by an index of integers."""
    out, counts = xp.asarray(b, copy=True), xp.zeros((b.shape[0],), dtype=xp.int64)
    rows = xp.arange(0, b.shape[0], 3)
    out[rows] = 2 * b[rows]
    counts[rows] += 1
    return out + counts[:, None]


def difference(function: Callable, backend: str) -> float:
    """Return the largest difference from NumPy, relative to the largest number; RuntimeError if it is above 1e-10."""
    xp, (A, b) = backends.namespace_of(backend), matrices()
    expected = function(np, A, b)
    gap = float(np.abs(batched.to_host(function(xp, xp.asarray(A), xp.asarray(b))) - expected).max())
    gap /= float(np.abs(expected).max())
    if not gap <= 1e-10:
        raise RuntimeError(f"differs from NumPy by {gap:.1e}")
    return gap


def rows_without_a_result(backend: str) -> str:
    """Check that a matrix without a factor, or with NaN, gives NaN in its row and leaves the others alone."""
    xp, (A, _) = backends.namespace_of(backend), matrices(3)
    A[1] = -A[1]
    with_nan = np.where(np.arange(3)[:, None, None] == 1, np.nan, A)
    for bad in (A, with_nan):
        L = batched.to_host(batched.cholesky(xp.asarray(bad)))
        if not np.isnan(L[1]).any() or not np.isfinite(L[[0, 2]]).all():
            raise RuntimeError("a matrix without a Cholesky factor does not give NaN in its row only")
    values, _ = batched.eigh(xp.asarray(with_nan))
    values = batched.to_host(values)
    if np.isfinite(values[1]).any() or not np.isfinite(values[[0, 2]]).all():
        raise RuntimeError("a matrix of NaN does not give NaN eigenvalues in its row only")
    return "NaN, and the other rows are right"


def draws_of(model: refhmc.Model, kernel: Any, backend: str, chains: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return draws and numbers of steps of chains without warm-up."""
    xp = backends.namespace_of(backend)
    starts = xp.asarray(0.3 * np.random.default_rng(1).normal(size=(chains, model.dim)))
    run = Run(model.on_arrays(xp), kernel, starts, 1, Options(draws, 0, False, False, lambda *_: False))
    with np.errstate(all="ignore"):
        run.draw()
    return run.made.draws, run.made.stats["n_steps"]


def same_draws(kernel: Any, backend: str) -> dict[str, float]:
    """Return how many of 100 chains are those of NumPy after 10 draws; RuntimeError if fewer than 90 are.

    Rounding may change a decision, and the chain is another one afterwards.
    """
    model = refhmc.models.Funnel(5)
    (x, steps), (there, steps_there) = (draws_of(model, kernel, each, 100, 10) for each in (backend, "arrays"))
    same = np.all(steps == steps_there, axis=1) & (np.abs(x - there).max(axis=(1, 2)) < 1e-6)
    if same.sum() < 90:
        raise RuntimeError(f"only {same.sum()} of 100 chains are those of NumPy")
    return {"chains": int(same.sum()), "largest difference": float(np.abs(x - there)[same].max())}


def sampled(backend: str) -> str:
    """Make a short run by the public function, without the packages that only assemble its result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"draws": 100, "tune": 100, "chains": 50, "random_seed": 1, "progressbar": False, "raw": True}
        found = refhmc.sample(refhmc.models.EightSchools(), refhmc.HMC(n_steps=8), backend=backend, **options)
    if not np.isfinite(found.draws).all():
        raise RuntimeError("draws are not finite")
    return str(found.attributes["device"])


# ------------------------------------------------------------------------------------------------------------- tests


def tests(backend: str, quick: bool) -> Rows:
    """Yield one row per test of ``tests/batch/test_cupy.py``; each is run by itself."""
    import pytest

    found: dict[str, str] = {}

    class Names:
        def pytest_collection_modifyitems(self, items: list) -> None:
            found.update({item.name: "not run" for item in items})

    class Each:
        def pytest_runtest_logreport(self, report: Any) -> None:
            name = report.nodeid.partition("::")[2]
            if report.when == "call" or report.outcome != "passed":
                found[name] = (
                    report.outcome if report.outcome != "failed" else f"failed: {str(report.longrepr)[-2000:]}"
                )

    file = str(ROOT / "tests" / "batch" / "test_cupy.py")
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore"]
    pytest.main([*options, "--collect-only", file], plugins=[Names()])
    if not found:
        yield "collection", lambda: "skipped: without a GPU there are no tests"

    def run(name: str) -> str:
        pytest.main([*options, f"{file}::{name}"], plugins=[Each()])
        if found[name].startswith("failed"):
            raise RuntimeError(found[name])
        return found[name]

    for name in list(found):
        yield name, functools.partial(run, name)


# ------------------------------------------------------------------------------------------------------------ chains


def rows_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """Return 569 rows of 31 random covariates, and labels drawn from a logistic regression on them."""
    rng = np.random.default_rng(0)
    X = np.hstack([np.ones((569, 1)), rng.normal(size=(569, 30))])
    return X, (rng.random(569) < 1 / (1 + np.exp(-X @ rng.normal(size=31)))).astype(int)


PROBLEMS: dict[str, Callable[[], tuple[refhmc.Model, Any]]] = {
    "logistic regression 569 x 31, leapfrog": lambda: (
        refhmc.models.LogisticRegression(*rows_and_labels()),
        refhmc.HMC(step_size=0.05, n_steps=10, metric=Identity(), integrator=Leapfrog()),
    ),
    "funnel 10 + 1, SoftAbs, midpoint": lambda: (
        refhmc.models.Funnel(10),
        refhmc.HMC(
            step_size=0.1, n_steps=5, metric=SoftAbs(alpha=ALPHA), integrator=ImplicitMidpoint(variant="midpoint")
        ),
    ),
}


def chains(backend: str, quick: bool) -> Rows:
    """Yield the limits of the device, chain-steps per second at each number of chains, one core's, and BlackJAX's."""
    yield "bytes per second of a copy", lambda: bytes_per_second(backend, 2**20 if quick else 2**27)
    yield "operations per second of a product", lambda: operations_per_second(backend, 512 if quick else 8192)
    yield "seconds of the smallest operation", lambda: smallest_operation(backend)
    sizes, least = (QUICK_SIZES, 0.1) if quick else (SIZES, 1.0)
    for n in sizes:
        for name in PROBLEMS:
            yield f"{name}, {n} chains", functools.partial(rate, name, n, backend, least)
            yield f"{name}, {n} chains, BlackJAX", functools.partial(rate_of_blackjax, name, n)
        if n == sizes[0]:
            yield f"NUTS on eight schools, {n} chains", functools.partial(whole_call, backend, n)
        if n == sizes[1]:
            for name in PROBLEMS:
                yield f"{name}, one core", functools.partial(rate_of_one_core, name, 200 if quick else 4000)
            yield "NUTS on eight schools, one core", functools.partial(whole_call, "numba", 1)


def bytes_per_second(backend: str, n: int) -> float:
    x = backends.namespace_of(backend).zeros((n,))
    return 2 * 8 * n / seconds(lambda: x + 1.0, backend)


def operations_per_second(backend: str, d: int) -> float:
    A = backends.namespace_of(backend).ones((d, d))
    return 2 * d**3 / seconds(lambda: A @ A, backend)


def smallest_operation(backend: str) -> float:
    """Return the seconds of an operation on one number, in a row of a thousand: what Python and a launch cost."""
    x = backends.namespace_of(backend).zeros((1,))

    def thousand() -> None:
        for _ in range(1000):
            x + 1.0

    return seconds(thousand, backend) / 1000


def rate(name: str, n: int, backend: str, least: float) -> float:
    """Return chain-steps per second of transitions that take ``least`` seconds, after one transition."""
    (model, kernel), draws, took, steps = PROBLEMS[name](), 1, 0.0, 0.0
    while took < least and draws <= 4096:
        wait(backend)
        begin = time.perf_counter()
        _, made = draws_of(model, kernel, backend, n, draws)
        wait(backend)
        took, steps, draws = time.perf_counter() - begin, float(np.sum(made)), 4 * draws
    return steps / took


def rate_of_one_core(name: str, draws: int) -> float:
    """Return chain-steps per second of a compiled chain on one core."""
    model, kernel = PROBLEMS[name]()
    options = {"tune": 0, "chains": 1, "cores": 1, "initvals": np.zeros(model.dim) + 0.1, "raw": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in (10, draws):
            found = refhmc.sample(model, kernel, draws=n, random_seed=1, progressbar=False, preflight=False, **options)
    return float(np.sum(found.sample_stats["n_steps"])) / found.attributes["sampling_time"]


def whole_call(backend: str, chains: int) -> dict[str, float]:
    """Return seconds, draws per second and largest R-hat of NUTS with warm-up, by the public function."""
    options = {"draws": 200, "tune": 300, "random_seed": 1, "progressbar": False, "raw": True, "cores": 1}
    if backend != "numba":
        options |= {"cores": None, "backend": backend}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = refhmc.models.EightSchools()
        for n in (min(chains, 10), chains):
            begin = time.perf_counter()
            found = refhmc.sample(model, refhmc.NUTS(), chains=n, **options)
            took = time.perf_counter() - begin
        nested = refhmc.diagnostics.rhat(found.draws[:50]).max() if chains > 1 else np.nan
    return {"seconds": took, "draws per second": found.draws[..., 0].size / took, "R-hat of 50 chains": float(nested)}


def rate_of_blackjax(name: str, n: int) -> dict[str, Any]:
    """Return chain-steps per second of BlackJAX on JAX's default device, with compiled code."""
    import blackjax
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    from validation.benchmarks.riemannian_peers import blackjax_functions

    model, kernel = PROBLEMS[name]()
    if name.startswith("logistic"):
        X, y = (jnp.asarray(x, dtype=float) for x in rows_and_labels())
        sign = (2 * y - 1)[:, None] * X
        peer = blackjax.hmc(
            lambda q: jnp.sum(jax.nn.log_sigmoid(sign @ q)) - 0.5 * q @ q,
            kernel.step_size,
            jnp.ones(31),
            kernel.n_steps,
        )
    else:
        log_density, metric = blackjax_functions("funnel")
        peer = blackjax.rmhmc(log_density, kernel.step_size, metric, kernel.n_steps)

    @jax.jit
    def transitions(states: Any, keys: Any) -> Any:
        def one(states: Any, key: Any) -> tuple:
            states, _ = jax.vmap(peer.step)(jax.random.split(key, n), states)
            return states, states.position[0]

        return jax.lax.scan(one, states, keys)[1]

    starts = 0.3 * np.random.default_rng(1).normal(size=(n, model.dim))
    states, keys = jax.vmap(peer.init)(jnp.asarray(starts)), jax.random.split(jax.random.key(0), 10)
    took = seconds(lambda: transitions(states, keys).block_until_ready(), "arrays")
    return {"device": str(jax.devices()[0]), "chain-steps per second": n * 10 * kernel.n_steps / took}


# --------------------------------------------------------------------------------------------- network and streaming


def images(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return 48,000 random images of 28 x 28, and their labels."""
    n, rng = 500 if quick else 48_000, np.random.default_rng(0)
    return rng.normal(size=(n, 28, 28)).astype(np.float32), rng.integers(0, 10, n)


def network(backend: str, quick: bool) -> Rows:
    """Yield the seconds of one gradient of a CNN with 37,316 weights on the full batch, in float32, and Torch's."""
    yield "gradient", lambda: seconds_of_gradient(backend, quick)
    yield "gradient, Torch", lambda: seconds_of_torch(quick)


def seconds_of_gradient(backend: str, quick: bool) -> float:
    xp, (x, labels) = backends.namespace_of(backend), images(quick)
    model = refhmc.models.CNN(x, labels, n_classes=10, channels=(16, 32), dense=(46,), dtype=np.float32)
    there = model.on_arrays(xp)
    q = xp.asarray(0.05 * np.random.default_rng(1).normal(size=(1, model.dim)).astype(np.float32))
    return seconds(lambda: there.value_and_gradient(q), backend)


def seconds_of_torch(quick: bool) -> dict[str, Any]:
    import torch

    device, layers, (x, labels) = "cuda" if torch.cuda.is_available() else "cpu", torch.nn, images(quick)
    net = layers.Sequential(
        *(layers.Conv2d(1, 16, 5), layers.MaxPool2d(2), layers.ReLU()),
        *(layers.Conv2d(16, 32, 5), layers.MaxPool2d(2), layers.ReLU()),
        *(layers.Flatten(), layers.Linear(512, 46), layers.ReLU(), layers.Linear(46, 10)),
    ).to(device)
    X, y = torch.as_tensor(x[:, None], device=device), torch.as_tensor(labels, device=device)

    def gradient() -> None:
        net.zero_grad()
        layers.functional.cross_entropy(net(X), y, reduction="sum").backward()
        if device == "cuda":
            torch.cuda.synchronize()

    return {"device": device, "seconds": seconds(gradient, "arrays")}


def streaming(backend: str, quick: bool) -> Rows:
    """Yield the seconds of one gradient of a split regression of 1 GiB, kept on the device and sent, and the rate of a copy."""
    n, d, M = 2**12 if quick else 2**22, 32, 16

    @functools.cache
    def split() -> refhmc.Model:
        rng = np.random.default_rng(0)
        return refhmc.models.LogisticRegression(rng.normal(size=(n, d)), rng.integers(0, 2, n)).split(M)

    def took(streamed: bool) -> dict[str, float]:
        xp = backends.namespace_of(backend)
        q, there = (
            xp.asarray(0.1 * np.random.default_rng(1).normal(size=(10, d))),
            split().on_arrays(xp, streamed=streamed),
        )
        found = seconds(lambda: there.value_and_gradient(q), backend)
        return {"seconds": found, "bytes per second": 8 * n * d / found}

    def copied() -> float:
        xp, rows = backends.namespace_of(backend), pinned(np.zeros((n // M, d)))
        return rows.nbytes / seconds(lambda: xp.asarray(rows), backend)

    yield "gradient, data sent", functools.partial(took, True)
    yield "gradient, data kept", functools.partial(took, False)
    if backend == "cupy":
        yield "bytes per second of a pinned copy", copied
