"""Memory is estimated before it is allocated; runs that do not fit are rejected with numbers and advice."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest

import refhmc
from refhmc.metrics import Dense, SoftAbs
from refhmc.sampling.checks import memory_estimate
from tests.helpers.specs import spec
from tests.helpers.sweeps import swept

QUIET = {"progressbar": False, "raw": True, "generate": False, "random_seed": 1}


def plain(d):
    return refhmc.Model(d, lambda q, data: -0.5 * np.sum(q * q), lambda q, data: -q, in_python="a test")


@pytest.fixture
def there(monkeypatch):
    """Return a function that sets the available memory."""
    return lambda size: monkeypatch.setattr(memory_estimate, "available", lambda: size)


@pytest.mark.sweep
def test_a_dense_metric_of_a_million_coordinates_is_refused_at_once():
    """The run is rejected before any array of that size is allocated, on every machine."""
    model = plain(10**6)
    tracemalloc.start()
    try:
        for kernel in (refhmc.NUTS(metric=Dense()), refhmc.HMC(n_steps=2, metric=Dense(np.eye(2)))):
            with pytest.raises(MemoryError) as caught:
                refhmc.sample(model, kernel, draws=10, chains=2, **QUIET)
            needed, available = numbers(str(caught.value))
            assert needed > 2 * 8 * 10**12 > available
            assert "diagonal metric" in str(caught.value)
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


def numbers(text):
    """Return the bytes needed and available from a message."""
    needed, there = re.search(r"about ([\d,]+) bytes.*? ([\d,]+) (?:bytes )?are available", text).groups()
    return int(needed.replace(",", "")), int(there.replace(",", ""))


@pytest.mark.parametrize("backend", ["numba", "arrays"])
def test_draws_that_do_not_fit_are_refused(there, backend):
    there(10**9)
    options = {**QUIET, "backend": backend, "tune": 10, "chains": 2}
    with pytest.raises(MemoryError, match=r"bytes.* 1,000,000,000 .*available.*store=") as caught:
        refhmc.sample(plain(100), refhmc.HMC(n_steps=2), draws=10**6, **options)
    needed, available = numbers(str(caught.value))
    assert available == 10**9
    assert 2 * 2 * 10**6 * 8 * 100 < needed < 1.3 * 2 * 2 * 10**6 * 8 * 100
    assert refhmc.sample(plain(100), refhmc.HMC(n_steps=2), draws=3, **options).draws.shape == (2, 3, 100)


def test_with_a_store_they_do(there, tmp_path):
    """Draws that do not fit go to disk, and warm-up only counts if it is kept."""
    pytest.importorskip("zarr")
    there(10**9)
    model, kernel = plain(100), refhmc.HMC(n_steps=2)
    count = {"draws": 10**6, "tune": 10**6, "chains": 2, "cores": 2}

    def room(**options):
        return memory_estimate.room_for(spec(model, kernel, **count, **options))

    assert room().needed > 10**9
    assert room(store=tmp_path / "run", save_warmup=True).needed < 10**9
    both, one = (room(save_warmup=kept).draws for kept in (True, False))
    assert both > 1.9 * one
    with pytest.raises(MemoryError, match="save_warmup=False"):
        refhmc.sample(model, kernel, draws=10, tune=10**6, chains=2, save_warmup=True, **QUIET)


def test_memory_of_constrained_values_counts(there):
    """Each draw has a covariance matrix, whose size is known at the first start."""

    def constrain(q):
        q = np.asarray(q)
        return {"x": q, "C": q[..., :, None] * q[..., None, :]}

    model = refhmc.Model(
        60, lambda q, data: -0.5 * float(q @ q), lambda q, data: -q, in_python="a test", constrain=constrain
    )
    there(10**8)
    with pytest.raises(MemoryError) as caught:
        refhmc.sample(model, refhmc.HMC(n_steps=2), draws=2_000, tune=0, chains=2, **QUIET)
    assert numbers(str(caught.value))[0] > 2 * 2000 * 8 * 60**2


def test_groups_that_are_generated_count(there):
    """Eight schools generates 16 numbers per draw, and 18 per draw of one chain for prior and predictions."""
    there(150 * 10**6)
    model, options = refhmc.models.EightSchools(), {"chains": 4, "draws": 100_000, "tune": 0, "progressbar": False}
    with pytest.raises(MemoryError, match="generate=False") as caught:
        refhmc.sample(model, refhmc.NUTS(), **options)
    draws = memory_estimate.room_for(spec(model, refhmc.NUTS(), **options, cores=2)).draws
    groups = 8 * 100_000 * (4 * 16 + 18)
    assert draws + groups < numbers(str(caught.value))[0] < draws + 1.5 * groups


@pytest.mark.parametrize(
    ("d", "kernel", "draws"),
    [
        (3, refhmc.HMC(n_steps=1, step_size=0.2), 30_000),
        swept(100, refhmc.HMC(n_steps=1, step_size=0.1), 3_000),
        swept(300, refhmc.HMC(n_steps=1, step_size=0.1, metric=Dense()), 500),
        swept(300, refhmc.HMC(n_steps=1, step_size=0.1, metric=SoftAbs(1e6)), 10),
    ],
)
def test_the_peak_memory_is_as_estimated(d, kernel, draws):
    """The peak of NumPy's memory is as estimated."""
    model = refhmc.models.Funnel(d - 1)
    options = {**QUIET, "chains": 2, "tune": 100, "initvals": np.zeros(d)}
    refhmc.sample(model, kernel, draws=10, **options)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = refhmc.sample(model, kernel, draws=draws, **options)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert result.draws.shape == (2, draws, d)
    counted = memory_estimate.room_for(spec(model, kernel, draws=draws, tune=100, chains=2, cores=2)).needed
    assert 0.9 * peak < counted < 1.8 * peak
