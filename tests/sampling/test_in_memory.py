"""A run without a store needs little more memory than its result, which does not depend on windows of rows."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest

import refhmc
from refhmc.core.sample_stats import COUNTS, FLAGS, N_STATS, STATS
from refhmc.kernels.blocks import rows_of, statistics
from refhmc.sampling.chains import chain_run
from refhmc.sampling.results import position_changes
from refhmc.sampling.storage import checkpoint, in_memory
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import representatives, swept

pytestmark = pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
RUN = {"draws": 400, "tune": 120, "chains": 3, "random_seed": 5, "progressbar": False, "raw": True, "save_warmup": True}
KERNELS = {
    "nuts": refhmc.NUTS(metric=refhmc.metrics.Dense()),
    "gibbs": refhmc.Gibbs({"v": refhmc.NUTS(), "x": refhmc.HMC(n_steps=3, metric=refhmc.metrics.Dense())}),
}


@pytest.fixture(scope="module")
def model():
    return refhmc.models.Funnel(3)


@pytest.fixture(scope="module", params=representatives(KERNELS, ["nuts"]))
def expected(model, request):
    kernel = KERNELS[request.param]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kernel, refhmc.sample(model, kernel, **RUN)


def assert_same(result, expected):
    for group in expected.groups:
        for name, values in expected.groups[group].items():
            assert result.groups[group][name].dtype == values.dtype
            assert np.array_equal(result.groups[group][name], values), (group, name)
    assert result.warnings == expected.warnings


@pytest.mark.parametrize("bytes_of_window", [1, swept(8 * 2 * N_STATS * 7), swept(8 * 2 * N_STATS * 130)])
def test_the_size_of_windows_and_blocks_is_in_no_result(model, expected, monkeypatch, bytes_of_window):
    """Results agree for windows of one row, of seven, and across the end of warm-up, and for small blocks of draws."""
    monkeypatch.setattr(in_memory, "WINDOW", bytes_of_window)
    monkeypatch.setattr(in_memory, "BLOCK", bytes_of_window)
    monkeypatch.setattr(position_changes, "BLOCK", bytes_of_window)
    kernel, whole = expected
    assert_same(refhmc.sample(model, kernel, **RUN), whole)


def test_a_checkpoint_has_the_rows_of_windows_that_are_gone(model, expected, monkeypatch, tmp_path):
    monkeypatch.setattr(in_memory, "WINDOW", 5000)
    monkeypatch.setattr(chain_run, "PAUSE_EVERY", 0.001)
    monkeypatch.setattr(checkpoint, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "BLOCK", 7)
    kernel, whole = expected
    for stop in (50, 121, 300):
        options = {**RUN, "progressbar": stop_after(stop)}
        refhmc.sample(model, kernel, **options, checkpoint=tmp_path / "run", cores=1)
    assert_same(refhmc.sample(model, kernel, **RUN, checkpoint=tmp_path / "run"), whole)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_rows_are_made_of_statistics(kernel):
    """Rows made from columns give the same columns again, for any numbers."""
    rng = np.random.default_rng(3)
    blocks = len(getattr(kernel, "blocks", [0]))
    rows = rng.normal(size=(50, blocks, N_STATS))
    for names, values in ((COUNTS, rng.integers(-9, 9, rows.shape)), (FLAGS, rng.integers(0, 2, rows.shape))):
        for name in names:
            i = STATS.names.index(name)
            rows[..., i] = values[..., i]
    named = statistics(kernel, rows.reshape(50, -1))
    again = statistics(kernel, rows_of(kernel, named))
    assert again.keys() == named.keys()
    assert all(np.array_equal(again[name], named[name]) for name in named)


@pytest.mark.sweep
def test_the_peak_is_at_most_one_and_a_half_results(monkeypatch):
    """NumPy's memory is compared with windows as small, relative to the result, as in a large run."""
    monkeypatch.setattr(in_memory, "WINDOW", 2**14)
    monkeypatch.setattr(in_memory, "BLOCK", 2**17)
    model, kernel = refhmc.models.EightSchools(), refhmc.HMC(step_size=0.2, n_steps=1)
    options = {"tune": 0, "chains": 2, "random_seed": 1, "progressbar": False, "raw": True, "generate": False}
    refhmc.sample(model, kernel, draws=10, **options)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = refhmc.sample(model, kernel, draws=100_000, **options)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    size = sum(values.nbytes for group in result.groups.values() for values in group.values())
    assert size <= peak <= 1.5 * size
