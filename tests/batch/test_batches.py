"""Chains that make their transitions in batches draw what they draw together."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refhmc
from refhmc import DHMC, DRHMC, GHMC, GIST, HMC, MALT, MAMS, MCLMC, NUTS, AutoStep
from refhmc.batch.chains import batches
from refhmc.batch.draw import AT_A_TIME
from refhmc.errors import SamplingWarning
from refhmc.metrics import Identity, SoftAbs
from refhmc.sampling.checks import memory_estimate
from tests.helpers.discontinuous_cases import switch
from tests.helpers.places import ROOT
from tests.helpers.specs import spec
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import representatives

CHAINS = 7
RUN = {
    "chains": CHAINS,
    "draws": 13,
    "tune": 40,
    "random_seed": 4,
    "progressbar": False,
    "raw": True,
    "preflight": False,
}
KERNELS = {
    "hmc": HMC(n_steps=3),
    "hmc, SoftAbs": HMC(n_steps=1, metric=SoftAbs()),
    "nuts": NUTS(max_treedepth=4),
    "ghmc": GHMC(slice_shift=0.1),
    "drhmc": DRHMC(n_steps=2, persistence=0.3),
    "malt": MALT(n_steps=3),
    "mams": MAMS(n_steps=3, persistence=0.3),
    "mclmc": MCLMC(n_steps=2),
    "gist": GIST(max_steps=8),
    "autostep": AutoStep(),
    "dhmc": DHMC(n_steps=3),
}


@given(n=st.integers(1, 10_000), size=st.integers(1, 10_000))
def test_batches_are_the_rows_in_their_order(n, size):
    rows = batches(n, size)
    lengths = [each.stop - each.start for each in rows]
    assert [each.start for each in rows] == [0, *(each.stop for each in rows[:-1])]
    assert rows[-1].stop == n
    assert len(rows) == -(-n // size)
    assert max(lengths) <= size
    assert max(lengths) - min(lengths) <= 1


def sampled(model, kernel, size, **options):
    return refhmc.sample(model, kernel, **RUN, backend=refhmc.Arrays(chains_at_once=size, **options))


def assert_equal(run, other):
    assert np.array_equal(run.draws, other.draws)
    for name, values in other.sample_stats.items():
        assert np.array_equal(values, run.sample_stats[name], equal_nan=True), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", representatives(KERNELS, ["nuts", "dhmc", "mams"]))
def test_draws_do_not_depend_on_the_batches(name):
    """These models have no products of matrices, so that draws are equal bit for bit, after a shared warm-up, too."""
    model = switch() if name == "dhmc" else refhmc.models.Funnel(2)
    together = sampled(model, KERNELS[name], CHAINS)
    assert together.draws.std() > 0
    for size in (1, 2, 5):
        assert_equal(sampled(model, KERNELS[name], size), together)


@given(size=st.integers(1, CHAINS + 2))
@settings(max_examples=5)
def test_draws_do_not_depend_on_the_batches_if_each_chain_adapts_its_step_size(size):
    """The metric is fixed, since its sums over chains would be in another order."""
    kernel = HMC(n_steps=3, metric=Identity())
    runs = [sampled(refhmc.models.Funnel(2), kernel, each, shared_step_size=False) for each in (size, None)]
    assert_equal(*runs)
    assert len(np.unique(runs[0].sample_stats["step_size"])) == CHAINS


@given(size=st.integers(1, CHAINS + 2), seed=st.integers(0, 2**32))
@settings(max_examples=10)
def test_products_of_matrices_are_equal_to_rounding(size, seed):
    """Two steps of a logistic regression, whose gradients are products with its 40 x 3 data."""
    X = np.random.default_rng(seed).normal(size=(40, 3))
    model, kernel = refhmc.models.LogisticRegression(X, X[:, 0] > 0), HMC(step_size=0.1, n_steps=2, metric=Identity())
    options = RUN | {"draws": 1, "tune": 0, "random_seed": seed}
    one, other = (
        refhmc.sample(model, kernel, backend=refhmc.Arrays(chains_at_once=k), **options) for k in (size, None)
    )
    assert np.abs(one.draws - other.draws).max() < 1e-13


def test_a_run_that_is_stopped_has_draws_of_every_batch():
    many = RUN | {"tune": 0, "draws": 10**5, "progressbar": stop_after(200)}
    with pytest.warns(SamplingWarning):
        run = refhmc.sample(
            refhmc.models.Funnel(2),
            HMC(step_size=0.3, n_steps=2, metric=Identity()),
            backend=refhmc.Arrays(chains_at_once=3),
            **many,
        )
    lengths = run.attributes["draws_per_chain"]
    assert run.attributes["stopped_by"] == "interrupt"
    assert max(lengths) - min(lengths) <= AT_A_TIME
    assert min(lengths) > 100


def test_the_number_of_chains_at_once_does_not_depend_on_the_machine(monkeypatch):
    model, options = refhmc.models.Funnel(30), {"draws": 1, "tune": 0, "chains": 10**5, "backend": "arrays"}
    kernels = HMC(n_steps=3), NUTS(), HMC(n_steps=3, metric=SoftAbs())
    wanted = [memory_estimate.chains_at_once(spec(model, kernel, **options)) for kernel in kernels]
    assert 10**5 > wanted[0] > wanted[1] > wanted[2] > 1000
    monkeypatch.setattr(memory_estimate, "available", lambda: 2**40)
    assert [memory_estimate.chains_at_once(spec(model, kernel, **options)) for kernel in kernels] == wanted
    fifty = options | {"backend": refhmc.Arrays(chains_at_once=50)}
    assert memory_estimate.chains_at_once(spec(model, NUTS(), **fifty)) == 50


def test_only_the_transitions_of_a_batch_must_fit(monkeypatch):
    """A million chains with 31 x 31 matrices would need 190 GB together; their states and draws need 5 GB."""
    run = {"draws": 1, "tune": 0, "chains": 10**6, "backend": "arrays"}
    softabs = spec(refhmc.models.Funnel(30), HMC(n_steps=3, metric=SoftAbs()), **run)
    monkeypatch.setattr(memory_estimate, "available", lambda: 6 * 10**9)
    memory_estimate.check_memory(softabs)
    together = softabs._replace(backend=refhmc.Arrays(chains_at_once=10**6))
    with pytest.raises(MemoryError, match=r"chains_at_once=N\) with N below 1,000,000"):
        memory_estimate.check_memory(together)


PEAK = """
import re, sys, warnings
import numpy as np
import refhmc
from refhmc.sampling.checks.memory_estimate import room_for
from tests.helpers.specs import spec
warnings.simplefilter("ignore")
kernels = {
    "nuts": refhmc.NUTS(step_size=0.05, max_treedepth=8),
    "softabs": refhmc.HMC(step_size=0.1, n_steps=1, metric=refhmc.metrics.SoftAbs()),
}
model, kernel = refhmc.models.Funnel(30), kernels[sys.argv[1]]
run = {"draws": 2, "tune": 0, "random_seed": 1, "progressbar": False, "raw": True, "generate": False}
run |= {"backend": refhmc.Arrays(chains_at_once=int(sys.argv[2]))}
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
refhmc.sample(model, kernel, chains=2, **run)
before = peak()
refhmc.sample(model, kernel, chains=int(sys.argv[3]), **run)
print(peak() - before, room_for(spec(model, kernel, chains=int(sys.argv[3]), **run)).needed)
"""


@pytest.mark.sweep
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("kernel", "at_once", "chains"), [("nuts", 2000, 10_000), ("softabs", 300, 600)])
def test_the_peak_memory_is_as_estimated(kernel, at_once, chains):
    """In a process of its own, since the peak of a process never falls."""
    command = [sys.executable, "-c", PEAK, kernel, str(at_once), str(chains)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    peak, counted = map(int, made.stdout.split())
    assert peak > 2**25
    assert 0.8 * peak < counted < 2.5 * peak
