"""The batch on a GPU against the batch on NumPy. Skipped without CuPy and a working GPU.

Stated bounds: uniforms are equal; normals 8 units in the last place, and 2^-50 near zero; densities and derivatives 1e-10 of
their size, steps after a fixed number of iterations 1e-9 (sums are added in another order, exp and log are another
library's).
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import refhmc
from refhmc import HMC, NUTS
from refhmc.batch.backends import namespace_of
from refhmc.batch.draw import Options, Run
from refhmc.batch.streams import Purpose, Streams, keys_of
from refhmc.errors import DeviceError
from refhmc.integrators import GeneralizedLeapfrog, ImplicitMidpoint, Leapfrog, Yoshida
from refhmc.metrics import Dense, DiagonalSoftAbs, Fisher, Identity, SoftAbs
from refhmc.models.streamed import pinned
from refhmc.numerics import batched

cuda = pytest.importorskip("cupy", reason="CuPy is not installed: what needs a GPU is not tested here").cuda.runtime
try:
    xp = namespace_of("cupy")
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

RNG = np.random.default_rng(20261123)
MODELS = {
    "gaussian": refhmc.models.Gaussian(np.arange(4.0), np.diag([1.0, 4.0, 9.0, 0.25])),
    "banana": refhmc.models.Banana(),
    "funnel": refhmc.models.Funnel(5),
    "logistic": refhmc.models.LogisticRegression(RNG.normal(size=(60, 4)), RNG.integers(0, 2, 60)),
    "schools": refhmc.models.EightSchools(),
    "softmax": refhmc.models.SoftmaxRegression(RNG.normal(size=(40, 3)), RNG.integers(0, 3, 40), n_classes=3),
}
STEPS = [
    ("funnel", Identity(), Leapfrog()),
    ("funnel", Dense(np.eye(6) + 0.2), Yoshida(Leapfrog())),
    ("funnel", SoftAbs(alpha=2.0), GeneralizedLeapfrog()),
    ("funnel", DiagonalSoftAbs(alpha=2.0), ImplicitMidpoint()),
    ("banana", Fisher(), ImplicitMidpoint(variant="midpoint")),
    ("logistic", Fisher(), GeneralizedLeapfrog()),
]


def near(found, expected, bound=1e-10) -> bool:
    found, size = batched.to_host(found), 1 + np.max(np.abs(expected))
    return bool(np.all(np.abs(found - expected) <= bound * size))


def positions(model, n=50):
    return np.random.default_rng(1).normal(size=(n, model.dim))


def test_numbers_are_the_cpus():
    keys, t = keys_of(9, 1000), np.arange(1000)
    here, there = Streams(keys), Streams(xp.asarray(keys))
    first = np.zeros(1000, np.int64)
    u = there.uniforms(slice(None), xp.asarray(t), Purpose.KERNEL, xp.asarray(first), 7)
    assert np.array_equal(batched.to_host(u), here.uniforms(slice(None), t, Purpose.KERNEL, first, 7))
    z, expected = there.normals(slice(None), xp.asarray(t), 1, 5), here.normals(slice(None), t, 1, 5)
    assert np.all(np.abs(batched.to_host(z) - expected) <= 8 * np.spacing(np.abs(expected)) + 2**-50)


@pytest.mark.parametrize("name", MODELS)
def test_densities_and_derivatives(name):
    model = MODELS[name]
    here, there, q = model.on_arrays(np), model.on_arrays(xp), positions(MODELS[name])
    for found, expected in zip(there.value_and_gradient(xp.asarray(q)), here.value_and_gradient(q), strict=True):
        assert near(found, expected)
    M = np.eye(model.dim) + 0.1
    for matrix, hessian_contraction in (("hessian", "hessian_contraction"), ("fisher", "fisher_contraction")):
        if here.has(matrix) and here.has(hessian_contraction):
            assert near(getattr(there, matrix)(xp.asarray(q)), getattr(here, matrix)(q))
            stack = np.broadcast_to(M, (len(q), *M.shape))
            assert near(
                getattr(there, hessian_contraction)(xp.asarray(q), xp.asarray(stack)),
                getattr(here, hessian_contraction)(q, stack),
            )


@pytest.mark.parametrize(("name", "metric", "integrator"), STEPS)
def test_steps_after_so_many_iterations(name, metric, integrator):
    model, q = MODELS[name], positions(MODELS[name])
    step = integrator.on_arrays()
    if integrator.implicit:
        step = functools.partial(step, solve=functools.partial(batched.iterate, iterations=8))
    ends = []
    for of in (np, xp):
        H = refhmc.array_api.hamiltonian(model, metric, of)
        at = of.asarray(q)
        p = H.draw_momentum(at, of.asarray(np.random.default_rng(2).normal(size=q.shape)))
        ends.append(step(H, at, p, of.asarray(np.full((len(q), 1), 0.05))))
    for found, expected in zip(ends[1], ends[0], strict=True):
        assert near(found, expected, 1e-9)


KERNELS = [HMC(step_size=0.1, n_steps=5, step_jitter=0.3, metric=Identity()), NUTS(step_size=0.2, metric=Identity())]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["gaussian", "schools"])
def test_draws_are_the_cpus_while_no_decision_differs(name, kernel):
    """Three transitions: rounding could turn a decision in one chain of many millions; none of 200 may differ here."""
    options = {"draws": 3, "tune": 0, "chains": 200, "random_seed": 4, "initvals": 0.1 * positions(MODELS[name], 200)}
    here, there = (
        refhmc.sample(MODELS[name], kernel, backend=backend, raw=True, progressbar=False, **options)
        for backend in ("arrays", "cupy")
    )
    assert near(there.draws, here.draws, 1e-8)
    assert np.array_equal(there.sample_stats["n_steps"], here.sample_stats["n_steps"])


def test_a_chain_alone_is_the_chain_in_the_batch():
    model, kernel = MODELS["schools"], NUTS(step_size=0.2, metric=Identity())
    starts, draws = 0.1 * positions(model, 64), []
    starts[5] = np.nan
    for chosen in (slice(None), slice(0, 1)):
        options = Options(10, 0, False, False, lambda *_: False)
        run = Run(model.on_arrays(xp), kernel, xp.asarray(starts[chosen]), 4, options)
        run.draw()
        draws.append(run.made.draws)
    assert near(draws[0][:1], draws[1], 1e-9)
    assert np.isnan(draws[0][5]).all()


def test_draws_that_are_streamed_are_those_that_stay():
    model, kernel, found = MODELS["funnel"], HMC(step_size=0.1, n_steps=3, metric=Identity()), []
    for budget in (2**30, 40_000):
        options = Options(20, 0, False, False, lambda *_: False, budget)
        run = Run(model.on_arrays(xp), kernel, xp.asarray(0.1 * positions(model, 16)), 4, options)
        run.draw()
        found.append(run.made)
    assert found[1].room < found[0].room
    assert np.array_equal(found[0].draws, found[1].draws)


def test_data_that_are_sent_are_those_that_stay():
    """A split model's data, from page-locked memory, with the next part copied while the present one is evaluated."""
    parts = refhmc.models.LogisticRegression(RNG.normal(size=(4096, 8)), RNG.integers(0, 2, 4096)).split(8)
    kept, sent = parts.on_arrays(xp), parts.on_arrays(xp, streamed=True)
    memory = pinned(np.arange(10.0))
    assert cuda.pointerGetAttributes(memory.ctypes.data).type == cuda.memoryTypeHost
    q = xp.asarray(positions(MODELS["logistic"], 20)[:, [0, 1, 2, 3] * 2])
    for _ in range(20):
        for a, b in zip(sent.parts, kept.parts, strict=True):
            for found, expected in zip(a.value_and_gradient(q), b.value_and_gradient(q), strict=True):
                assert near(found, batched.to_host(expected))
