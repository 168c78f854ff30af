"""Draws in a store equal those in memory; a store can be read while it is written, and resumed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import os
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import refhmc
from refhmc.errors import CheckpointError, SamplingError, SaveError
from refhmc.sampling.chains import chain_run, executors
from refhmc.sampling.storage import checkpoint, store, stored
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import every, swept

zarr = pytest.importorskip("zarr", minversion="3")
xarray = pytest.importorskip("xarray")

pytestmark = pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
RUN = {"draws": 300, "tune": 120, "chains": 2, "random_seed": 5, "progressbar": False, "raw": True, "generate": False}
KERNELS = {
    "nuts": refhmc.NUTS(metric=refhmc.metrics.Dense()),
    "gibbs": refhmc.Gibbs({"v": refhmc.NUTS(), "x": refhmc.HMC(n_steps=3, metric=refhmc.metrics.Dense())}),
}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Use chunks of at most 64 rows and save as often as possible."""
    monkeypatch.setattr(store, "CHUNK", 2**14)
    monkeypatch.setattr(chain_run, "PAUSE_EVERY", 0.001)
    monkeypatch.setattr(checkpoint, "SAVE_EVERY", 0.0)


@pytest.fixture(scope="module")
def model():
    return refhmc.models.Funnel(3)


@pytest.fixture(scope="module", params=["nuts", swept("gibbs")])
def expected(model, request):
    kernel = KERNELS[request.param]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kernel, refhmc.sample(model, kernel, **RUN, save_warmup=True)


def assert_same(result, expected):
    assert set(result.groups) == set(expected.groups)
    for group in expected.groups:
        assert set(result.groups[group]) == set(expected.groups[group])
        for name, values in expected.groups[group].items():
            there = result.groups[group][name]
            assert there.dtype == values.dtype
            assert np.array_equal(there, values, equal_nan=values.dtype.kind == "f"), (group, name)


def test_a_store_holds_the_same_as_memory(model, expected, tmp_path):
    kernel, whole = expected
    result = refhmc.sample(model, kernel, **RUN, save_warmup=True, store=tmp_path / "run")
    assert isinstance(result.groups["posterior"], store.StoredGroup)
    assert_same(result, whole)
    assert result.warnings == whole.warnings
    for name in ("n_gradient_evaluations", "divergences_per_chain", "draws_per_chain", "adaptation"):
        assert result.attributes[name] == whole.attributes[name], name
    assert "2 chains of 300 draws in 4 dimensions" in repr(result)


@pytest.mark.parametrize("stops", every(4, ["60 119 185", "0 1", "121 200 419", "64 120 184"]))
def test_stopped_and_taken_up_again_it_is_unbroken(model, expected, tmp_path, stops):
    kernel, whole = expected
    for stop in stops.split():
        options = {**RUN, "progressbar": stop_after(int(stop))}
        refhmc.sample(model, kernel, **options, save_warmup=True, store=tmp_path / "run", cores=1)
    resumed = refhmc.sample(model, kernel, **{**RUN, "random_seed": None}, save_warmup=True, store=tmp_path / "run")
    assert_same(resumed, whole)


@pytest.mark.sweep
def test_it_grows_with_the_draws(model, expected, tmp_path):
    kernel, whole = expected
    for draws in (0, 77, 300):
        result = refhmc.sample(model, kernel, **{**RUN, "draws": draws}, save_warmup=True, store=tmp_path / "run")
        assert result.draws.shape == (2, draws, 4)
    assert_same(result, whole)


@pytest.mark.sweep
def test_by_an_executor_it_is_the_same(model, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "LEAST", 0.0002)
    monkeypatch.setattr(executors, "SHARE", 10.0)
    kernel, whole = expected
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        options = {**RUN, "executor": pool}
        assert_same(refhmc.sample(model, kernel, **options, save_warmup=True, store=tmp_path / "run"), whole)


@pytest.mark.sweep
def test_xarray_reads_it_while_it_is_written(model, tmp_path, monkeypatch):
    """The draws that ``draws_done`` counts can be read, without warnings."""
    monkeypatch.setattr(stored, "STORE_EVERY", 0.05)
    path = tmp_path / "run"
    options = {**RUN, "draws": 10**6, "chains": 1}
    run = refhmc.start(model, refhmc.HMC(n_steps=200), **options, store=path)
    seen = 0
    while seen < 200:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = xarray.open_datatree(path, engine="zarr")
            seen = int(tree["draws_done"][0])
            q = tree["unconstrained_posterior/q"][0, :seen].to_numpy()
        assert np.all(np.isfinite(q))
    run.stop()
    result = run.wait()
    assert np.array_equal(q, result.draws[0, :seen])


@pytest.mark.sweep
def test_its_axes_have_names_and_labels(tmp_path):
    result = refhmc.sample(refhmc.models.EightSchools(), **{**RUN, "raw": False}, store=tmp_path / "run")
    theta = result["posterior"]["theta"]
    assert theta.dims == ("chain", "draw", "school")
    assert list(theta["school"].to_numpy()) == list(refhmc.models.EightSchools().coords["school"])
    assert theta.shape == (2, 300, 8)
    tree = xarray.open_datatree(tmp_path / "run", engine="zarr")
    assert np.array_equal(tree["posterior/theta"].to_numpy(), theta.to_numpy())
    assert tree["posterior"].attrs["entropy"] == 5
    made = [refhmc.generate(refhmc.models.EightSchools(), each, progressbar=False) for each in (result, tree)]
    of_result, of_store = (each["posterior_predictive"]["y"].to_numpy() for each in made)
    assert np.array_equal(of_result, of_store)


def test_a_stop_leaves_a_rectangle(model, tmp_path):
    options = {**RUN, "draws": 10**6, "progressbar": stop_after(300), "kernel": refhmc.HMC(n_steps=50)}
    result = refhmc.sample(model, **options, store=tmp_path / "run", cores=2)
    n = result.draws.shape[1]
    same = refhmc.sample(model, **{**options, "progressbar": False, "draws": n})
    assert 100 < n < 10**6
    for group, arrays in same.groups.items():
        for name, values in arrays.items():
            assert np.array_equal(result.groups[group][name], values[result.attributes["chains"]]), (group, name)


@pytest.mark.sweep
def test_a_long_run_is_reviewed_in_part(model, tmp_path, monkeypatch):
    """Only the last draws are reviewed, with a thinned selection for R-hat; problems are still reported."""
    from refhmc.sampling.chains import compiled_chains

    monkeypatch.setattr(compiled_chains, "LOOKED_AT", 1)
    result = refhmc.sample(model, KERNELS["nuts"], **{**RUN, "draws": 3000}, store=tmp_path / "run")
    assert any("R-hat" in text or "ffective sample size" in text for text in result.warnings)


@pytest.mark.parametrize(
    ("there", "words"),
    [("file", "is not a store"), ("other", "is not a store"), ("zarr", "has no checkpoint/run.json")],
)
def test_something_else_is_not_written_over(model, tmp_path, there, words):
    path = tmp_path / "run"
    if there == "file":
        path.write_text("mine")
    elif there == "other":
        path.mkdir()
        (path / "thesis.txt").write_text("mine")
    else:
        zarr.open_group(path, mode="w")
    with pytest.raises(CheckpointError, match=words):
        refhmc.sample(model, KERNELS["nuts"], **RUN, store=path)
    with pytest.raises(ValueError, match="checkpoint.*store|store.*checkpoint"):
        refhmc.sample(model, KERNELS["nuts"], **RUN, store=path, checkpoint=tmp_path / "other")


def test_a_store_is_rejected_as_checkpoint(model, tmp_path):
    refhmc.sample(model, KERNELS["nuts"], **RUN, store=tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError, match="checkpoint .*run.*store="):
        refhmc.sample(model, KERNELS["nuts"], **{**RUN, "random_seed": 6}, checkpoint=tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"checkpoint .*store .*run.*store="):
        refhmc.sample(model, KERNELS["nuts"], **RUN, checkpoint=tmp_path / "run" / "checkpoint")
    assert sorted(tmp_path.rglob("*")) == before


def test_generated_groups_are_rejected_with_a_store(model, tmp_path):
    with pytest.raises(ValueError, match=r"generate.*store.*refhmc.generate\(model, result\)"):
        refhmc.sample(model, **{**RUN, "generate": True}, store=tmp_path / "run")


def test_a_store_of_another_run_is_rejected(model, tmp_path):
    refhmc.sample(model, KERNELS["nuts"], **RUN, store=tmp_path / "run")
    with pytest.raises(CheckpointError, match="entropy: .*'6'.*'5'"):
        refhmc.sample(model, KERNELS["nuts"], **{**RUN, "random_seed": 6}, store=tmp_path / "run")


# ------------------------------------------------------------------------------------------------------ full disks


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.sweep
def test_a_disk_that_is_full_for_a_while_loses_nothing(model, expected, tmp_path, monkeypatch):
    kernel, whole = expected
    real, tries = store.Store.write, []

    def write(self, chain, rows):
        tries.append(chain)
        if len(tries) < 3:
            full()
        real(self, chain, rows)

    monkeypatch.setattr(stored, "TRY_AGAIN", 0.0)
    monkeypatch.setattr(store.Store, "write", write)
    assert_same(refhmc.sample(model, kernel, **RUN, save_warmup=True, store=tmp_path / "run"), whole)
    assert len(tries) > 3


@pytest.mark.sweep
@pytest.mark.parametrize("checkpoint_too", [True, swept(False)])
def test_a_disk_that_stays_full_is_said_and_the_draws_are_attached(
    model, expected, tmp_path, monkeypatch, checkpoint_too
):
    kernel, whole = expected
    real, tries = store.Store.write, []

    def write(self, chain, rows):
        tries.append(chain)
        if len(tries) > 3:
            full()
        real(self, chain, rows)

    with monkeypatch.context() as patch:
        patch.setattr(store.Store, "write", write)
        if checkpoint_too:
            patch.setattr(checkpoint.Checkpoint, "save", full)
        with pytest.raises(SaveError, match="store of chain 0.* could not be written .*No space left") as caught:
            refhmc.sample(model, kernel, **RUN, save_warmup=True, store=tmp_path / "run")
    assert_same(caught.value.partial, whole)
    resumed = refhmc.sample(model, kernel, **RUN, save_warmup=True, store=tmp_path / "run")
    assert_same(resumed, whole)


@pytest.mark.sweep
def test_a_constrain_that_raises_keeps_the_stored_draws(tmp_path):
    """A chain ends if its values cannot be computed; positions and statistics are kept."""

    def constrain(q):
        if np.any(np.abs(q) > 2.5):
            raise ValueError("too far")
        return {"x": q}

    model = refhmc.Model(
        2, lambda q, data: -0.5 * float(q @ q), lambda q, data: -q, in_python="a test", constrain=constrain
    )
    with pytest.raises(SamplingError, match="too far"):
        refhmc.sample(model, refhmc.HMC(n_steps=3), **RUN, store=tmp_path / "run")


# ------------------------------------------------------------------------------------------------------------ kills

KILLED = """
import hashlib, sys
import refhmc
from refhmc.sampling.chains import chain_run
from refhmc.sampling.storage import checkpoint, store, stored

chain_run.PAUSE_EVERY, checkpoint.SAVE_EVERY, stored.STORE_EVERY, store.CHUNK = 0.005, 0.01, 0.02, 2**15
kind, path = sys.argv[1:]
options = {"draws": 20_000, "tune": 2_000, "chains": 2, "random_seed": 4, "progressbar": False, "raw": True}
kernel = refhmc.NUTS(metric=refhmc.metrics.Dense())
result = refhmc.sample(refhmc.models.EightSchools(), kernel, **options, generate=False, save_warmup=True, **{kind: path})
digest = hashlib.sha256()
for group in sorted(result.groups):
    for name in sorted(result.groups[group]):
        digest.update(result.groups[group][name].tobytes())
print(digest.hexdigest())
"""
CUTS, RUNS = 50, 20


def run_for(script, kind, folder, seconds=None):
    """Return the output of the script, which is empty if it was killed after some seconds."""
    command = [sys.executable, "-W", "ignore", str(script), kind, str(folder)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, wrong = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return ""
    assert child.returncode == 0, wrong
    return said.strip()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["checkpoint", "store"])
def test_killed_at_any_time_and_run_again_it_is_unbroken(kind, tmp_path):
    """Runs are killed three to five times: at the start, in warm-up, during writing, and while the result is assembled.

    In total there are at least 50 kills for each kind of folder.
    """
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    run_for(script, kind, tmp_path / "warm")
    begin = time.monotonic()
    whole = run_for(script, kind, tmp_path / "unbroken")
    seconds, counts = time.monotonic() - begin, {"runs": 0, "kills": 0}

    @settings(max_examples=RUNS, deadline=None, database=None, phases=[Phase.generate])
    @given(shares=st.lists(st.floats(0.01, 0.95), min_size=3, max_size=5))
    def killed_and_run_again(shares):
        folder = tmp_path / f"broken {counts['runs']}"
        counts["runs"] += 1
        for share in shares:
            said = run_for(script, kind, folder, share * seconds)
            counts["kills"] += not said
            assert said in ("", whole)
        assert run_for(script, kind, folder) == whole

    killed_and_run_again()
    print(kind, counts)
    assert counts["kills"] >= CUTS


# ------------------------------------------------------------------------------------------------ kills at its creation


def kill_when(monkeypatch, name, call):
    """Fail once, at the ``call``-th call of a method of Zarr's local store, and leave files as after a crash."""
    from zarr.storage import LocalStore

    real, calls = getattr(LocalStore, name), []

    async def killed(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == call:
            raise OSError("killed")
        return await real(self, *args, **kwargs)

    monkeypatch.setattr(LocalStore, name, killed)


@pytest.mark.parametrize("how", ["the same call", "resume"])
@pytest.mark.parametrize("call", [1, 2, 3, swept(5), 8, swept(13), 21])
def test_a_store_whose_creation_was_interrupted_is_used_again(tmp_path, monkeypatch, call, how):
    options = {"draws": 30, "tune": 20, "chains": 2, "random_seed": 3, "progressbar": False, "raw": True, "cores": 1}
    starts = np.full((2, 2), 0.25)
    model, kernel = refhmc.models.Banana(), refhmc.NUTS()
    want = refhmc.sample(model, kernel, **options, initvals=starts).draws
    folder = tmp_path / "run"
    with monkeypatch.context() as patch, contextlib.suppress(OSError, CheckpointError):
        kill_when(patch, "set", call)
        refhmc.sample(model, kernel, **options, initvals=starts, store=folder)
        pytest.fail("the run was not interrupted")
    (folder / f"zarr.{'0' * 32}.partial").write_text("not renamed")
    if how == "resume":
        again = refhmc.resume(folder, progressbar=False, raw=True, cores=1)
    else:
        again = refhmc.sample(model, kernel, **options, initvals=starts, store=folder)
    assert np.array_equal(again.draws[:], want)
    assert not list(folder.rglob("*.partial"))


@pytest.mark.parametrize("chunk", [0, -1, "16", None, 2**50, 1.5])
def test_a_chunk_size_that_refhmc_does_not_write_is_rejected(tmp_path, chunk):
    import zarr

    options = {"draws": 30, "tune": 20, "chains": 1, "random_seed": 3, "progressbar": False, "raw": True}
    refhmc.sample(refhmc.models.Banana(), refhmc.NUTS(), **options, store=tmp_path)
    zarr.open_group(tmp_path, mode="a").update_attributes({"chunk": chunk})
    with pytest.raises(CheckpointError, match="chunk"):
        refhmc.resume(tmp_path, draws=40, progressbar=False, raw=True)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the sweep forks")
def test_runs_that_are_killed_at_any_file_operation_are_used_again():
    from validation.kill_sweep import KERNELS, KINDS, sweep

    found = sweep(1, [(kernel, kind) for kernel in KERNELS for kind in KINDS])
    assert all(set(tally) == {"the draws of the unbroken run"} for tally in found.values()), found
