"""A run that is stopped anywhere and resumed equals the uninterrupted run; another run is rejected."""

from __future__ import annotations

import ast
import concurrent.futures
import errno
import gc
import io
import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc.compile import file_lock
from refhmc.core.records import CONTROL, one
from refhmc.core.sample_stats import N_STATS
from refhmc.errors import CheckpointError, CheckpointWarning, SamplingError, SaveError
from refhmc.sampling.chains import chain_run
from refhmc.sampling.chains.chain import make_plan
from refhmc.sampling.chains.task import ChainTask
from refhmc.sampling.storage import append_only, checkpoint, files
from refhmc.sampling.storage.append_only import Rows
from refhmc.sampling.storage.chain_storage import Checkpointed
from refhmc.sampling.storage.in_memory import InMemory, Memory
from tests.helpers.kinds_of_chains import KINDS
from tests.helpers.random_cases import cases
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import every, representatives

KERNEL = refhmc.NUTS(metric=refhmc.metrics.Dense())
RUN = {"draws": 700, "tune": 600, "chains": 2, "random_seed": 9, "progressbar": False, "raw": True}
FEW = {**RUN, "draws": 20}
FILES = {"run.json", *(f"chain-{k}.{end}" for k in range(2) for end in ("npz", "from-0.rows", "from-600.rows"))}


def run_there(folder) -> dict:
    return json.loads((folder / "run.json").read_text())


def done_there(folder, chain: int) -> int:
    with np.load(folder / f"chain-{chain}.npz") as archive:
        return int(archive["done"])


def write_run(folder, run: dict) -> None:
    """Write a file with a valid checksum, as an adversary would."""
    run = {**run, "checksum": checkpoint.checksum_of_run(run)}
    (folder / "run.json").write_text(json.dumps(run))


@pytest.fixture(scope="module")
def unbroken():
    return refhmc.sample(refhmc.models.Funnel(3), KERNEL, **RUN, save_warmup=True)


def assert_same(result, unbroken):
    for group in unbroken.groups:
        for name, values in unbroken.groups[group].items():
            assert np.array_equal(result.groups[group][name], values, equal_nan=True), (group, name)
    for name in ("gradient", "log_density", "metric", "contraction"):
        name = f"n_{name}_evaluations"
        assert result.attributes[name] == unbroken.attributes[name], name


@cases(6)
@given(stops=st.lists(st.integers(0, 1300), min_size=1, max_size=3))
def test_stopped_and_resumed_is_unbroken(stops, unbroken, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    model = refhmc.models.Funnel(3)
    for stop in stops:
        stopped = refhmc.sample(
            model, KERNEL, **{**RUN, "progressbar": stop_after(stop)}, save_warmup=True, checkpoint=folder, cores=1
        )
        for chain in stopped.attributes["chains"]:  # all that was drawn is saved
            drawn = stopped.groups["warmup_unconstrained_posterior"]["q"].shape[1] + stopped.draws.shape[1]
            assert drawn == 0 or done_there(folder, chain) >= drawn
        assert {path.name for path in folder.iterdir()} <= FILES
    resumed = refhmc.sample(model, KERNEL, **{**RUN, "random_seed": None}, save_warmup=True, checkpoint=folder)
    assert resumed.attributes["entropy"] == RUN["random_seed"]
    assert_same(resumed, unbroken)


def test_a_finished_run_can_be_given_more_draws(unbroken, tmp_path):
    model = refhmc.models.Funnel(3)
    refhmc.sample(model, KERNEL, **{**RUN, "draws": 300}, save_warmup=True, checkpoint=tmp_path)
    longer = refhmc.sample(model, KERNEL, **RUN, save_warmup=True, checkpoint=tmp_path)
    assert np.array_equal(longer.draws, unbroken.draws)
    with pytest.raises(CheckpointError, match="draws must.* 700.* 100"):
        refhmc.sample(model, KERNEL, **{**RUN, "draws": 100}, save_warmup=True, checkpoint=tmp_path)


@pytest.mark.parametrize("which", representatives(KINDS, ["softabs", "dhmc", "sghmc, cyclic"]))
def test_every_kind_of_chain_is_resumed_bit_for_bit(which, tmp_path, monkeypatch):
    """All draws, statistics and counts agree, for pieces that end in warm-up, at its end, and after it."""
    monkeypatch.setattr(chain_run, "PAUSE_EVERY", 0.001)
    model, kernel = KINDS[which]()
    options = {**RUN, "tune": 60, "chains": 1, "save_warmup": True}
    unbroken = refhmc.sample(model, kernel, **{**options, "draws": 60})
    for draws in (0, 1, 25):
        refhmc.sample(model, kernel, **{**options, "draws": draws}, checkpoint=tmp_path)
    assert_same(refhmc.sample(model, kernel, **{**options, "draws": 60}, checkpoint=tmp_path), unbroken)


def test_warm_up_without_saved_rows_is_resumed_bit_for_bit(tmp_path, monkeypatch):
    """The run stops in warm-up, at its end and after it; only the last position of warm-up is kept."""
    monkeypatch.setattr(chain_run, "PAUSE_EVERY", 0.001)
    model = refhmc.models.Funnel(3)

    plan = make_plan(model, KERNEL, 600)

    def run(control, store=None):
        task = ChainTask(model, KERNEL, 0, 9, None, 700, 600)
        memory = Memory(KERNEL, 1, model.dim, plan.n_stats, 600, 1300)
        storage = InMemory(task, memory) if store is None else Checkpointed(task, plan, memory, store)
        return chain_run.run_chain(task, plan, storage, control)

    store = checkpoint.Checkpoint(tmp_path, {"chains": 1, "tune": 600, "format": checkpoint.FORMAT})
    store.open()
    for iterations in (0, 100, 599, 600, 700):
        control = one(CONTROL)[0]
        stopping = threading.Thread(target=stop_at, args=(control, iterations))
        stopping.start()
        run(control, store)
        stopping.join()
    resumed, unbroken = run(one(CONTROL)[0], store), run(one(CONTROL)[0])
    store.close()
    assert resumed.control.first >= 700
    resumed.control.first = 0
    for name in ("draws", "stats", "start", "control"):
        assert np.array_equal(getattr(resumed, name), getattr(unbroken, name)), name
    assert resumed.warm == 0


def stop_at(control, iterations):
    """Ask a chain to stop after some iterations, or when it has ended."""
    while control.draws_done < min(iterations, 1300):
        time.sleep(0.0005)
    control.stop = 1


# ------------------------------------------------------------------------------------------------ when it is saved

SLOW = {
    "draws": 120,
    "tune": 0,
    "chains": 1,
    "random_seed": 3,
    "progressbar": False,
    "raw": True,
    "initvals": [1.0, 2.0],
}
STEPS = refhmc.HMC(step_size=0.5, n_steps=3)


def python_model(before=lambda: None, **options):
    """A normal that runs as Python and calls ``before`` at each evaluation."""

    def log_density(q, data):
        before()
        return -0.5 * float(np.sum(q * q))

    def gradient(q, data):
        return -q

    return refhmc.Model(2, log_density, gradient, in_python="a test", **options)


@pytest.mark.sweep
def test_a_slow_chain_is_saved_by_time_not_by_the_number_of_its_draws(tmp_path, monkeypatch):
    """Each evaluation waits until a file with draws exists."""
    monkeypatch.setattr(chain_run, "PAUSE_EVERY", 0.05)
    monkeypatch.setattr(checkpoint, "SAVE_EVERY", 0.1)
    seen = []

    def look():
        if seen or not (tmp_path / "chain-0.npz").exists():
            time.sleep(0.0 if seen else 0.05)
        elif (done := done_there(tmp_path, 0)) > 0:
            seen.append(done)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # ``seen`` changes
        slow = refhmc.sample(python_model(look), STEPS, **SLOW, checkpoint=tmp_path)
    assert seen
    assert seen[0] < SLOW["draws"]
    assert np.array_equal(slow.draws, refhmc.sample(python_model(), STEPS, **SLOW).draws)


# Its count of evaluations is a part that changes.
counts = pytest.mark.filterwarnings("ignore::refhmc.errors.CheckpointWarning")


def fails_where(where):
    """Raise if ``where(q, count)``, where count is the number of evaluations, and if an environment variable is set."""
    count = 0

    def log_density(q, data):
        nonlocal count
        count += 1
        if "REFHMC_TEST_FAILS" in os.environ and where(q, count):
            raise OSError("the licence server is away")
        return -0.5 * float(np.sum(q * q))

    return refhmc.Model(2, log_density, lambda q, data: -q, in_python="a test")


@counts
@pytest.mark.parametrize(
    "where", [*(lambda q, count, n=n: count == n for n in range(60, 64)), lambda q, count: q[0] > 1.5]
)
def test_an_exception_of_the_model_leaves_every_whole_draw_saved(where, tmp_path, monkeypatch):
    monkeypatch.setenv("REFHMC_TEST_FAILS", "yes")
    with pytest.raises(SamplingError, match="licence server") as caught:
        refhmc.sample(fails_where(where), STEPS, **SLOW, checkpoint=tmp_path)
    assert done_there(tmp_path, 0) == caught.value.partial.draws.shape[1] > 0
    monkeypatch.delenv("REFHMC_TEST_FAILS")
    resumed = refhmc.sample(fails_where(where), STEPS, **SLOW, checkpoint=tmp_path)
    assert_same(resumed, refhmc.sample(python_model(), STEPS, **SLOW))


@counts
def test_a_model_that_fails_for_good_leaves_an_earlier_state_and_all_draws(tmp_path, monkeypatch):
    """The state after the last draw is recomputed from an earlier one, which needs evaluations."""
    monkeypatch.setenv("REFHMC_TEST_FAILS", "yes")
    with pytest.raises(SamplingError, match="licence server") as caught:
        refhmc.sample(fails_where(lambda q, count: count >= 100), STEPS, **SLOW, checkpoint=tmp_path)
    unbroken = refhmc.sample(python_model(), STEPS, **SLOW)
    made = caught.value.partial.draws.shape[1]
    assert 0 <= done_there(tmp_path, 0) <= made
    assert np.array_equal(caught.value.partial.draws, unbroken.draws[:, :made])
    monkeypatch.delenv("REFHMC_TEST_FAILS")
    assert_same(refhmc.sample(fails_where(lambda q, count: count >= 100), STEPS, **SLOW, checkpoint=tmp_path), unbroken)


def test_a_time_limit_leaves_every_whole_draw_saved(tmp_path):
    """Evaluations take 5 ms, so that a stop interrupts one."""
    model = python_model(lambda: time.sleep(0.005))
    stopped = refhmc.sample(model, STEPS, **SLOW, checkpoint=tmp_path, max_seconds=0.3)
    assert stopped.attributes["stopped_by"] == "time"
    assert done_there(tmp_path, 0) == stopped.draws.shape[1]


@pytest.mark.sweep
def test_draws_are_not_lost_to_a_full_disk(tmp_path, monkeypatch, unbroken):
    def full(path, content):
        if path.name.startswith("chain"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        (tmp_path / "run.json").write_bytes(content)

    monkeypatch.setattr(chain_run, "PAUSE_EVERY", 0.001)
    monkeypatch.setattr(checkpoint, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "write_atomically", full)
    monkeypatch.setattr(files, "write_atomically", full)
    with pytest.raises(
        SaveError, match=r"chain 0(, | and )chain 1 could not be written.* \(OSError: \[Errno 28\]"
    ) as caught:
        refhmc.sample(refhmc.models.Funnel(3), KERNEL, **RUN, save_warmup=True, checkpoint=tmp_path)
    assert_same(caught.value.partial, unbroken)


CHILD = """
import os, pathlib, sys
import numpy as np
import refhmc
from refhmc.sampling.chains import chain_run
from refhmc.sampling.chains.task import ChainTask
from refhmc.sampling.storage import checkpoint

chain_run.PAUSE_EVERY, checkpoint.SAVE_EVERY = 0.001, 0.0
calls = 0

def log_density(q, data):
    global calls
    calls += 1
    if calls >= int(os.environ["KILL_AT"]) and all(pathlib.Path(sys.argv[1], f"chain-{k}.npz").exists() for k in range(2)):
        os._exit(9)
    return -0.5 * sum([v * v * (1 + v * v) for v in q.tolist()])

def gradient(q, data):
    return np.array([-v - 2 * v**3 for v in q])

if os.environ["KILL_AT"] == "in a write":
    os.environ["KILL_AT"] = "1000000"
    replace, left = os.replace, [12]
    def dying(*names):
        left[0] -= 1
        os._exit(9) if left[0] == 0 else replace(*names)
    os.replace = dying

model = refhmc.Model(3, log_density, gradient, in_python="a test")
options = {"draws": 150, "tune": 120, "chains": 2, "random_seed": 4, "progressbar": False, "raw": True}
result = refhmc.sample(model, refhmc.NUTS(), **options, save_warmup=True, checkpoint=sys.argv[1])
warm = result.groups["warmup_unconstrained_posterior"]["q"]
np.save(sys.argv[2], np.concatenate([warm, result.draws], axis=1))
"""


@pytest.mark.sweep
def test_killed_at_any_evaluation_and_run_again_is_unbroken(tmp_path):
    """``os._exit`` in the middle of a draw runs no handlers and writes nothing, like kill -9."""
    script = tmp_path / "script.py"
    script.write_text(CHILD)

    def run(folder, kill_at):
        environment = {**os.environ, "KILL_AT": str(kill_at), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-W", "ignore", str(script), str(folder), str(tmp_path / f"{folder.name}.npy")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 9), done.stderr
        return done.returncode

    rng = np.random.default_rng(12)
    ends = [run(tmp_path / "broken", kill_at) for kill_at in (int(rng.integers(50, 900)), "in a write")]
    assert ends[0] == 9
    assert 0 < done_there(tmp_path / "broken", 0) <= 270
    assert run(tmp_path / "broken", 10**6) == 0
    assert run(tmp_path / "unbroken", 10**6) == 0
    assert np.array_equal(*(np.load(tmp_path / f"{name}.npy") for name in ("broken", "unbroken")))
    assert {path.name for path in (tmp_path / "broken").iterdir()} <= FILES


# ------------------------------------------------------------------------------------------------ which run it is


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": refhmc.models.Funnel(4)}, "dim.* 5.* 4"),
        ({"kernel": refhmc.NUTS()}, "kernel: "),
        ({"kernel": refhmc.NUTS(metric=refhmc.metrics.Dense(), target_accept=0.7)}, "kernel: "),
        ({"kernel": refhmc.HMC()}, "class of the kernel.*HMC.*NUTS"),
        ({"random_seed": 10}, "entropy: .*'10'.*'9'"),
        ({"tune": 599}, "tune: .*599.*600"),
        ({"chains": 3}, "chains: .*3.*2"),
        ({"save_warmup": True}, "save_warmup: .*True.*False"),
        ({"initvals": np.ones(4)}, r"initvals: .*'float64 array of shape \(2, 4\), \w+'.*'random'"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(tmp_path, change, words):
    refhmc.sample(refhmc.models.Funnel(3), KERNEL, **FEW, checkpoint=tmp_path)
    arguments = {"model": refhmc.models.Funnel(3), "kernel": KERNEL, **FEW, **change}
    with pytest.raises(CheckpointError, match=words):
        refhmc.sample(**arguments, checkpoint=tmp_path)


def test_other_starts_are_rejected(tmp_path):
    model, starts = refhmc.models.Funnel(3), np.arange(8.0).reshape(2, 4) / 10
    refhmc.sample(model, KERNEL, **FEW, checkpoint=tmp_path, initvals=starts)
    refhmc.sample(model, KERNEL, **FEW, checkpoint=tmp_path, initvals=starts.tolist())
    for other in (starts[::-1], starts[0], None):
        with pytest.raises(CheckpointError, match="initvals: "):
            refhmc.sample(model, KERNEL, **FEW, checkpoint=tmp_path, initvals=other)


SCRIPT = """
    import numpy as np
    scale = 1.0
    def square(x):
        return x * x
    def log_density(q, data):
        return -0.5 * sum([square(v) for v in q]) / scale**2 - (lambda z: 0.0 * z)(q[0])
    def gradient(q, data):
        return np.array([-v for v in q]) / scale**2
    def constrain(q):
        return {"x": q * 1.0}
"""


def script(text=SCRIPT, **options):
    namespace = {"__name__": "a_script"}
    exec(textwrap.dedent(text), namespace)
    names = ("log_density", "gradient", "constrain")
    return refhmc.Model(2, **{name: namespace[name] for name in names}, in_python="a test", name="a script", **options)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("scale = 1.0", "scale = 10.0", "`scale`.*log_density.* 10.0.* 1.0"),
        ("x * x", "x * x * x", "code of square"),
        ("0.0 * z", "1e-9 * z", "code of log_density"),
        ("q * 1.0", "q * 2.0", "code of constrain"),
        ("return x * x", "'What it is.'\n    return x * x  # the square", None),
        ("import numpy as np", "# nothing but a comment\nimport numpy as np", None),
    ],
)
def test_a_changed_script_is_rejected_and_an_unchanged_one_is_resumed(old, new, words, tmp_path):
    few = {**SLOW, "draws": 30, "preflight": False}
    refhmc.sample(script(), STEPS, **{**few, "draws": 10}, checkpoint=tmp_path)
    changed = script(textwrap.dedent(SCRIPT).replace(old, new))
    if words is None:
        resumed = refhmc.sample(changed, STEPS, **few, checkpoint=tmp_path)
        assert np.array_equal(resumed.draws, refhmc.sample(script(), STEPS, **few).draws)
    else:
        with pytest.raises(CheckpointError, match=words):
            refhmc.sample(changed, STEPS, **few, checkpoint=tmp_path)


def test_a_model_that_ran_as_python_is_not_gone_on_with_as_compiled_code(tmp_path):
    """Draws may differ in their last bits."""
    namespace = {}
    exec("import numpy as np\ndef f(q, data): return -0.5 * np.sum(q * q)\ndef g(q, data): return -q", namespace)
    functions = (namespace["f"], namespace["g"])
    refhmc.sample(refhmc.Model(2, *functions), STEPS, **SLOW, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="compiled: .*False.*True"):
        refhmc.sample(refhmc.Model(2, *functions, in_python="a test"), STEPS, **SLOW, checkpoint=tmp_path)


def test_data_of_another_shape_are_rejected(tmp_path):
    few = {**SLOW, "draws": 10}
    refhmc.sample(script(data=(1.0, np.zeros(4))), STEPS, **few, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match=r"data\[1\].* float64 array of shape \(2, 2\)"):
        refhmc.sample(script(data=(1.0, np.zeros((2, 2)))), STEPS, **few, checkpoint=tmp_path)


class CachingNormal:
    """A model with a cache of its values, and an open file."""

    def __init__(self, scale, file):
        self.scale, self.file, self.values = scale, file, {}

    def log_density(self, q, data):
        self.values.setdefault(q.tobytes(), -0.5 * float(np.sum(q * q)) / self.scale**2)
        return self.values[q.tobytes()]

    def gradient(self, q, data):
        return -q / self.scale**2


def test_a_cache_is_no_difference_and_parts_that_cannot_be_compared_are_reported(tmp_path):
    few = {**SLOW, "draws": 10}
    with open(os.devnull) as file:
        normal = CachingNormal(1.0, file)
        model = refhmc.Model(2, normal.log_density, normal.gradient, in_python="a test")
        words = r"`file` of log_density.* \(_io.TextIOWrapper; .*`values` of .*\(change"
        for draws in (10, 20):  # in one process: the cache is full when the run is taken up again
            with pytest.warns(CheckpointWarning, match=words):
                refhmc.sample(model, STEPS, **{**few, "draws": draws}, checkpoint=tmp_path)
        fresh = CachingNormal(1.0, file)
        again = refhmc.Model(2, fresh.log_density, fresh.gradient, in_python="a test")
        with pytest.warns(CheckpointWarning):
            refhmc.sample(again, STEPS, **{**few, "draws": 20}, checkpoint=tmp_path)
        with warnings.catch_warnings():
            warnings.simplefilter("error", CheckpointWarning)
            with pytest.raises(CheckpointWarning):
                refhmc.sample(again, STEPS, **few, checkpoint=tmp_path / "another")
        there = {path.name for path in (tmp_path / "another").iterdir()}
        assert there == {"run.json", "starts.npz"}  # and no lock
        other = CachingNormal(2.0, file)
        another = refhmc.Model(2, other.log_density, other.gradient, in_python="a test")
        with pytest.raises(CheckpointError, match="`scale` of .* 2.0.* 1.0"):
            refhmc.sample(another, STEPS, **few, checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ({"python": "3.1"}, "python: .*'3.1'.* functions .*versions of Python"),
        ({"packages": {"numba": "0.1, files 0"}}, "numba: .* 0.1, files 0"),
        ({"packages": {"refhmc": "0.1.0, files 0"}}, "refhmc: .* 0.1.0, files 0"),
        ({"refhmc_version": "7"}, "refhmc_version: .*'7'"),
        ({"format": 4, "refhmc_version": "7"}, "run.json .*refhmc 7.* format 4"),
    ],
)
def test_a_run_of_other_versions_is_refused(edit, words, tmp_path):
    refhmc.sample(script(), STEPS, **SLOW, checkpoint=tmp_path)
    run = run_there(tmp_path)
    packages = {**run["packages"], **edit.pop("packages", {})}
    write_run(tmp_path, {**run, **edit, "packages": packages})
    with pytest.raises(CheckpointError, match=words):
        refhmc.sample(script(), STEPS, **SLOW, checkpoint=tmp_path)


def test_a_checkpoint_of_the_first_format_is_rejected(tmp_path):
    """Folders of the first format have no format number."""
    run = {"refhmc_version": "0.1.0", "model": "a script", "model_fingerprint": "0" * 64, "kernel": "{}", "tune": 0}
    (tmp_path / "run.json").write_text(json.dumps({**run, "chains": 1, "entropy": "3", "save_warmup": False}))
    for seed in (3, None):
        with pytest.raises(CheckpointError, match="run.json .*refhmc 0.1.0.* format 1"):
            refhmc.sample(script(), STEPS, **{**SLOW, "random_seed": seed}, checkpoint=tmp_path)


# ---------------------------------------------------------------------------------------------------- damaged files


def edited(path, **changes):
    """Replace arrays in the file and keep the others."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    buffer = io.BytesIO()
    np.savez(buffer, **{**arrays, **changes})
    path.write_bytes(buffer.getvalue())


def copied_from_another_run(folder):
    other = folder.parent / "other"
    refhmc.sample(refhmc.models.Funnel(3), KERNEL, **{**FEW, "random_seed": 77}, checkpoint=other)
    shutil.copy(other / "chain-1.npz", folder / "chain-1.npz")


def without_last_byte(path):
    path.write_bytes(path.read_bytes()[:-1])


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(bytes(content))


def block(first, n):
    """Return a complete block of rows of other iterations, with the same length."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows"
        append_only.append(path, 0, [Rows(first, np.zeros((n, 4)), np.zeros((n, N_STATS)))])
        return path.read_bytes()


def test_a_failed_write_of_blocks_keeps_earlier_rows(tmp_path):
    """The first of two blocks is on disk behind the valid length, and is overwritten by the next one."""
    path, rng = tmp_path / "rows", np.random.default_rng(1)
    q, stats = rng.normal(size=(9, 4)), rng.normal(size=(9, N_STATS))
    first, second, third = (Rows(3 * k, q[3 * k : 3 * k + 3], stats[3 * k : 3 * k + 3]) for k in range(3))

    def then_full():
        yield second
        raise OSError(errno.ENOSPC, "No space left on device")

    length = append_only.append(path, 0, [first])
    with pytest.raises(OSError, match="No space"):
        append_only.append(path, length, then_full())
    assert path.stat().st_size > length
    assert np.array_equal(append_only.read(path, length, 4, N_STATS).draws, q[:3])
    kept = append_only.read(path, append_only.append(path, length, [second, third]), 4, N_STATS)
    assert kept.first == 0
    assert np.array_equal(kept.draws, q)
    assert np.array_equal(kept.stats, stats)


DAMAGES = {
    "a chain, cut": (lambda f: without_last_byte(f / "chain-1.npz"), "chain-1.npz cannot be read"),
    "a chain, one byte": (lambda f: flipped(f / "chain-1.npz"), "chain-1.npz"),
    "a chain, empty": (lambda f: (f / "chain-1.npz").write_bytes(b""), "chain-1.npz cannot be read"),
    "a chain, another's": (lambda f: shutil.copy(f / "chain-0.npz", f / "chain-1.npz"), "chain-1.npz .*chain 0"),
    "a chain, of another run": (copied_from_another_run, "chain-1.npz .*another run"),
    "a chain, one draw less": (lambda f: edited(f / "chain-1.npz", done=np.array(619)), "chain-1.npz is damaged"),
    "rows, cut": (lambda f: without_last_byte(f / "chain-1.from-600.rows"), "chain-1.from-600.rows is damaged"),
    "rows, one byte": (lambda f: flipped(f / "chain-1.from-600.rows"), "chain-1.from-600.rows is damaged"),
    "rows, gone": (lambda f: (f / "chain-1.from-600.rows").unlink(), "chain-1.from-600.rows is damaged"),
    "rows, another's": (lambda f: (f / "chain-1.from-600.rows").write_bytes(block(0, 20)),
                        "chain-1.from-600.rows is damaged"),
    "a chain, state": (lambda f: edited(f / "chain-1.npz", state=np.zeros(9, np.uint8)), "chain-1.npz is damaged"),
    "a chain, renumbered": (lambda f: (shutil.copy(f / "chain-0.npz", f / "chain-1.npz"),
                                       edited(f / "chain-1.npz", chain=np.array(1))), "chain-1.npz is damaged"),
    "the run, cut": (lambda f: without_last_byte(f / "run.json"), "run.json cannot be read"),
    "the run, empty": (lambda f: (f / "run.json").write_bytes(b""), "run.json cannot be read"),
    "the run, bytes": (lambda f: (f / "run.json").write_bytes(b"\xff\x00"), "run.json cannot be read"),
    "the run, deep": (lambda f: (f / "run.json").write_text("[" * 100_000), "run.json cannot be read"),
    "the run, a list": (lambda f: (f / "run.json").write_text("[1]"), "run.json does not describe a run"),
    "the run, of something else": (lambda f: (f / "run.json").write_text("{}"), "run.json does not describe a run"),
    "the run, without its parts": (lambda f: (f / "run.json").write_text(json.dumps({**run_there(f), "parts": {}})),
                                   "run.json is damaged"),
    "the run, seed": (lambda f: (f / "run.json").write_text(json.dumps({**run_there(f), "entropy": "x"})),
                      "run.json is damaged"),
    "the run, missing": (lambda f: (f / "run.json").unlink(), "run.json is missing.* chain-0.npz"),
    "the run, a folder": (lambda f: ((f / "run.json").unlink(), (f / "run.json").mkdir()), "run.json cannot be read"),
}  # fmt: skip


def test_several_threads_read_at_once():
    """CPython before 3.11.8 raised SystemError if the garbage collector let another thread run during parsing."""
    buffer, threshold = io.BytesIO(), gc.get_threshold()
    np.savez(buffer, **{f"array {k}": np.full((3, 2), k) for k in range(10)})

    def give_way(phase, info):
        if sys._getframe(1).f_code is ast.parse.__code__:
            time.sleep(1e-3)

    def read(_):
        return [int(array.mean()) for array in checkpoint.read_arrays(io.BytesIO(buffer.getvalue())).values()]

    gc.callbacks.append(give_way)
    gc.set_threshold(5, 10**6, 10**6)
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            assert list(pool.map(read, range(20))) == 20 * [list(range(10))]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(give_way)


@pytest.mark.parametrize("damage", every(4, DAMAGES))
def test_a_damaged_checkpoint_is_rejected_with_the_name_of_the_file(damage, tmp_path):
    model, folder = refhmc.models.Funnel(3), tmp_path / "run"
    refhmc.sample(model, KERNEL, **FEW, checkpoint=folder)
    make, words = DAMAGES[damage]
    make(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    for seed in (RUN["random_seed"], None):
        if seed is None and damage == "the run, missing":
            continue  # then there is no seed to take
        with pytest.raises(CheckpointError, match=words):
            refhmc.sample(model, KERNEL, **{**FEW, "random_seed": seed}, checkpoint=folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_left_over_temporary_files_are_removed_and_others_are_not(tmp_path):
    ours = ["chain-0.npz.123.tmp", "chain-11.npz.7.tmp", "run.json.5.tmp", "chain-3.from-0.rows"]
    others = ["notes.tmp", "chain-0.npz.tmp", "chain-x.npz.1.tmp", "my.run.json.5.tmp"]
    for name in (*ours, *others):
        (tmp_path / name).write_text("x")
    refhmc.sample(script(), STEPS, **SLOW, checkpoint=tmp_path)
    made = {"run.json", "starts.npz", "chain-0.npz", "chain-0.from-0.rows"}
    assert {path.name for path in tmp_path.iterdir()} == {*made, *others}


def test_a_folder_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="file.* cannot be written"):
        refhmc.sample(script(), STEPS, **SLOW, checkpoint=tmp_path / "file" / "folder")


# -------------------------------------------------------------------------------------------------------- two writers


@pytest.mark.sweep
def test_a_second_writer_is_rejected_and_removes_nothing(tmp_path):
    refused = []

    def second():
        if not refused:
            (tmp_path / "chain-0.npz.123.tmp").write_text("being written")
            with pytest.raises(CheckpointError, match=rf"process {os.getpid()} on .*writer.lock"):
                refhmc.sample(script(), STEPS, **SLOW, checkpoint=tmp_path)
            refused.append((tmp_path / "chain-0.npz.123.tmp").exists())

    model = python_model(lambda: time.sleep(0.002))
    refhmc.sample(model, STEPS, **{**SLOW, "progressbar": lambda report: second()}, checkpoint=tmp_path)
    assert refused == [True]
    refhmc.sample(model, STEPS, **{**SLOW, "draws": 130}, checkpoint=tmp_path)


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch):
    def none(file):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(file_lock, "_lock", none)
    with pytest.warns(CheckpointWarning, match="cannot be locked .*Operation not supported"):
        refhmc.sample(script(), STEPS, **SLOW, checkpoint=tmp_path)


def test_after_a_run_is_given_up_its_threads_write_no_more(tmp_path):
    store = checkpoint.Checkpoint(tmp_path, {"chains": 1, "tune": 0, "format": checkpoint.FORMAT})
    store.open()
    saved = checkpoint.Saved(b"state", 1, np.zeros(1), one(CONTROL)[0])
    rows = Rows(0, *(np.zeros((2, 1)),) * 2)
    assert store.save(0, saved, rows, now=True)
    store.close()
    assert not store.save(0, saved._replace(done=2), rows, now=True)
    assert done_there(tmp_path, 0) == 1


@pytest.mark.slow
def test_chains_in_other_processes_are_saved_and_resumed(unbroken, tmp_path):
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as executor:
        for draws in (300, 700):
            arguments = {**RUN, "draws": draws, "executor": executor, "save_warmup": True, "checkpoint": tmp_path}
            result = refhmc.sample(refhmc.models.Funnel(3), KERNEL, **arguments)
    assert_same(result, unbroken)
    assert {path.name for path in tmp_path.iterdir()} <= FILES
