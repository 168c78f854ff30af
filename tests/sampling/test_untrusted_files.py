"""Checkpoints and stores from untrusted sources cannot change other files or crash compiled code."""

from __future__ import annotations

import io
import json
import os
import pathlib
import shutil

import numpy as np
import pytest

import refhmc
from refhmc.adaptation.adapted import adapted_of
from refhmc.core.records import CONTROL, one
from refhmc.core.sample_stats import N_STATS
from refhmc.errors import CheckpointError, CheckpointWarning
from refhmc.sampling.chains.chain import make_plan
from refhmc.sampling.chains.live_chain import LiveChain
from refhmc.sampling.chains.task import ChainTask
from refhmc.sampling.storage import append_only
from refhmc.sampling.storage.files import checksum_of_run
from refhmc.sampling.storage.saved_state import check_saved
from tests.helpers.crafted import craft, read_state
from tests.helpers.far import decay
from tests.helpers.sweeps import representatives, swept

pytestmark = pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
RUN = {"chains": 1, "random_seed": 1, "progressbar": False, "raw": True, "generate": False}
QUIET = {"progressbar": False, "raw": True, "generate": False}
posix = pytest.mark.skipif(os.name != "posix", reason="symbolic links need privileges on Windows")


def sample(kernel, folder, *, model=None, draws=20, tune=30, **options):
    model = model if model is not None else refhmc.models.Funnel()
    return refhmc.sample(model, kernel, draws=draws, tune=tune, **RUN, checkpoint=folder, **options)


# ------------------------------------------------------------------------------------------------------------- links


@posix
@pytest.mark.parametrize("how", [os.symlink, os.link])
@pytest.mark.parametrize(
    "name", ["writer.lock", "chain-0.npz", "run.json", "starts.npz", "chain-0.from-30.rows", "other"]
)
def test_resume_rejects_a_link_and_leaves_its_target_alone(tmp_path, name, how):
    folder, victim = tmp_path / "run", tmp_path / "thesis.tex"
    sample(refhmc.NUTS(), folder)
    victim.write_text("ten years of work\n" * 100)
    (folder / name).unlink(missing_ok=True)
    how(victim, folder / name)
    for call in (
        lambda: refhmc.resume(folder, draws=40, **QUIET),
        lambda: refhmc.resume(folder, draws=40, recover=True, **QUIET),
        lambda: sample(refhmc.NUTS(), folder),
    ):
        with pytest.raises(CheckpointError, match=name):
            call()
    assert victim.read_text() == "ten years of work\n" * 100


@posix
@pytest.mark.parametrize("place", ["posterior", "sample_stats/lp", "checkpoint", "unconstrained_posterior/q/c"])
def test_a_store_with_a_linked_folder_is_rejected(tmp_path, place):
    pytest.importorskip("zarr")
    store, outside = tmp_path / "store", tmp_path / "outside"
    options = {"draws": 20, "tune": 30, **RUN, "store": store}
    refhmc.sample(refhmc.models.Banana(), refhmc.NUTS(), **options)
    shutil.move(store / place, outside)
    (store / place).symlink_to(outside, target_is_directory=True)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    for call in (
        lambda: refhmc.resume(store, draws=40, **QUIET),
        lambda: refhmc.sample(refhmc.models.Banana(), refhmc.NUTS(), **options),
    ):
        with pytest.raises(CheckpointError, match=place):
            call()
    assert before == {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}


# ------------------------------------------------------------------------------------------------------------- states

METRICS = refhmc.metrics
KERNELS = {
    "NUTS": refhmc.NUTS(),
    "NUTS, dense": refhmc.NUTS(metric=METRICS.Dense()),
    "NUTS, diagonal": refhmc.NUTS(metric=METRICS.Diagonal(), max_treedepth=3),
    "NUTS, shallow": refhmc.NUTS(step_size=1e-3, max_treedepth=1),
    "HMC, learned length": refhmc.HMC(),
    "HMC, given": refhmc.HMC(n_steps=4, step_size=0.1, metric=METRICS.Diagonal(np.ones(11)), step_jitter=0.1),
    "SoftAbs": refhmc.HMC(n_steps=3, metric=METRICS.SoftAbs(1e6)),
    "Tao": refhmc.HMC(n_steps=3, metric=METRICS.SoftAbs(1e6), integrator=refhmc.integrators.ExplicitTao(10.0)),
    "Gibbs": refhmc.Gibbs({(0,): refhmc.NUTS(), tuple(range(1, 11)): refhmc.HMC(n_steps=3)}),
    "SGLD": refhmc.SGLD(step_size=0.01),
    "SGHMC": refhmc.SGHMC(step_size=0.01),
}


def setting(name, value):
    def change(state, outer):
        state["settings"][name] = value

    return change


def field(record, name, value):
    def change(state, outer):
        state[record][name] = value

    return change


def entry(array, place, value):
    def change(state, outer):
        state[array][place] = value

    return change


def outer_field(name, value):
    def change(state, outer):
        outer[name] = np.asarray(value, outer[name].dtype) if not isinstance(value, np.ndarray) else value

    return change


def of_generator(**values):
    def change(state, outer):
        saved = json.loads(str(state["generator"]))
        for name, value in values.items():
            (saved["state"] if name in ("state", "inc") else saved)[name] = value
        state["generator"] = np.array(json.dumps(saved))

    return change


def replaced(name, made):
    def change(state, outer):
        state[name] = made(state[name])

    return change


def removed(name):
    return lambda state, outer: state.pop(name)


def added(state, outer):
    state["another"] = np.zeros(3)


def count(place, value):
    def change(state, outer):
        control = outer["control"].copy()
        control[place] = value
        outer["control"] = control

    return change


# A change of the state of a chain after 50 iterations, and what the message must name.
CRAFTED = {
    "deeper trees": ("NUTS, shallow", setting("max_depth", 12), "settings.max_depth"),
    "negative depth": ("NUTS", setting("max_depth", -1), "settings.max_depth"),
    "no step": ("NUTS", setting("step_size", 0.0), "settings.step_size"),
    "NaN for a step": ("NUTS", setting("step_size", np.nan), "settings.step_size"),
    "another step": ("NUTS", setting("step_size", 1e-7), "settings.step_size"),
    "another given step": ("HMC, given", setting("step_size", 1e-7), "settings.step_size"),
    "steps of HMC": ("HMC, given", setting("n_steps", 2**40), "settings.n_steps"),
    "jitter": ("HMC, given", setting("jitter", 0.9), "settings.jitter"),
    "watched without room": ("HMC, given", setting("watched", 1), "settings.watched"),
    "watched after warm-up": ("HMC, learned length", setting("watched", 1), "settings.watched"),
    "a long trajectory": ("HMC, learned length", setting("trajectory_length", 1e9), "settings.trajectory_length"),
    "a kept momentum": ("NUTS", setting("keep_momentum", 1), "settings.keep_momentum"),
    "updates": ("SGLD", setting("updates", -7), "settings.updates"),
    "a second attempt that was not due": ("NUTS", count(14, 2**62), "control"),
    "updates of NUTS": ("NUTS", setting("updates", 3), "settings.updates"),
    "iteration": ("NUTS", field("progress", "iteration", -5), "progress.iteration"),
    "a window that is due": ("NUTS", field("progress", "due", 99), "progress.due"),
    "given": ("NUTS", field("progress", "given", 1), "progress.given"),
    "in a window": ("NUTS, dense", field("progress", "in_window", 7), "progress.in_window"),
    "dual averaging": ("NUTS", field("dual", "log_step_bar", np.inf), "dual.log_step_bar"),
    "counters": ("NUTS", field("counters", "gradients", -1), "counters.gradients"),
    "Anderson's pairs": ("SoftAbs", field("cache", "pairs", -3), "cache.pairs"),
    "weight of log det": ("SoftAbs", field("cache", "log_det_weight", np.nan), "cache.log_det_weight"),
    "position NaN": ("NUTS", entry("position", 0, np.nan), "position"),
    "position elsewhere": ("NUTS", entry("position", 0, 5.0), "position"),
    "positions of Gibbs": ("Gibbs", entry("position", 0, 5.0), "position"),
    "log density": ("NUTS", entry("state", (4, 0), 100.0), "log density"),
    "gradient": ("NUTS", entry("state", (2, 0), 100.0), "gradient"),
    "rank beyond the rows": ("NUTS", entry("vecs", (7, 0), 1e6), "vecs"),
    "rank that is no number": ("NUTS", entry("vecs", (7, 0), np.nan), "vecs"),
    "negative mass": ("NUTS", entry("vecs", (0, 0), -1.0), "vecs"),
    "another root": ("NUTS, diagonal", entry("vecs", (1, 0), 3.0), "vecs"),
    "a mass that was given": ("HMC, given", entry("vecs", (0, 0), 3.0), "vecs"),
    "a factor of another matrix": ("NUTS, dense", entry("mats", (1, 0, 0), 3.0), "mats"),
    "sums of squares": ("NUTS, diagonal", entry("scatter", (0, 0), -1.0), "scatter"),
    "kept draws": ("NUTS", entry("kept", (0, 0), np.inf), "kept"),
    "momentum of SGHMC": ("SGHMC", entry("state", (1, 0), np.nan), "state"),
    "another stream": ("NUTS", of_generator(inc=5), "generator"),
    "a generator out of range": ("NUTS", of_generator(state=-1), "generator"),
    "a generator of text": ("NUTS", of_generator(state="1"), "generator"),
    "another generator": ("NUTS", of_generator(bit_generator="MT19937"), "generator"),
    "shape": ("NUTS", replaced("position", lambda q: q[:-1]), "position"),
    "type": ("NUTS", replaced("position", lambda q: q.astype(np.float32)), "position"),
    "records as bytes": ("NUTS", replaced("settings", lambda s: s.view(np.uint8)), "settings"),
    "missing": ("NUTS", removed("dual"), "dual"),
    "added": ("NUTS", added, "another"),
    "iterations": ("NUTS", outer_field("done", 10**9), "rows|draws"),
    "iterations backwards": ("NUTS", outer_field("done", 41), "rows|iterations"),
    "negative iterations": ("NUTS", outer_field("done", -3), "rows|done"),
    "two numbers of iterations": ("NUTS", lambda state, outer: outer.update(done=np.array([50, 50])), "done"),
    "a fraction of an iteration": ("NUTS", lambda state, outer: outer.update(done=np.array(50.5)), "done"),
    "no reason": ("NUTS", lambda state, outer: outer.pop("no_pathfinder"), "no_pathfinder"),
    "count of draws": ("NUTS", count(2, 10**12), "control"),
    "a second attempt": ("NUTS", count(14, 25), "control"),
    "more divergences than draws": ("NUTS", count(3, 10**12), "control"),
    "length of rows": ("NUTS", outer_field("length", 10**12), "rows"),
    "first row": ("NUTS", outer_field("first", 50), "rows"),
    "no rows": ("NUTS", lambda state, outer: outer.update(first=np.asarray(50), length=np.asarray(0)), "rows"),
    "start of the draws": ("NUTS", outer_field("start_of_draws", np.full(11, np.inf)), "start_of_draws"),
    "shape of the start": ("NUTS", outer_field("start_of_draws", np.zeros(3)), "start_of_draws"),
}
HEAVY = "SoftAbs", "Gibbs", "SGLD", "SGHMC", "NUTS, dense"  # what the default run need not compile


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders of finished runs by kernel."""
    root, made = tmp_path_factory.mktemp("saved"), {}

    def folder(kernel):
        if kernel not in made:
            made[kernel] = root / str(len(made))
            sample(KERNELS[kernel], made[kernel])
        return made[kernel]

    return folder


@pytest.mark.parametrize("name", [swept(name) if of[0] in HEAVY else name for name, of in CRAFTED.items()])
def test_a_crafted_state_is_rejected_with_the_field(saved, tmp_path, name):
    kernel, change, message = CRAFTED[name]
    folder = tmp_path / "run"
    shutil.copytree(saved(kernel), folder)
    craft(folder, change)
    with pytest.raises(CheckpointError, match=message):
        refhmc.resume(folder, refhmc.models.Funnel(), KERNELS[kernel], draws=60, **QUIET)


JUMPING = refhmc.DHMC()
MORE = {
    **{name: (refhmc.models.Funnel(), kernel) for name, kernel in KERNELS.items()},
    "NUTS, without warm-up of the metric": (refhmc.models.Funnel(), refhmc.NUTS(metric=METRICS.Identity())),
    "NUTS, draws and gradients": (
        refhmc.models.Banana(),
        refhmc.NUTS(metric=METRICS.Dense(learn_from="draws and gradients")),
    ),
    "NUTS, gradients": (refhmc.models.Banana(), refhmc.NUTS(metric=METRICS.Diagonal(learn_from="draws and gradients"))),
    "HMC, Fisher": (refhmc.models.Banana(), refhmc.HMC(metric=METRICS.Fisher())),
    "DHMC": (refhmc.models.ChangePoint(), JUMPING),
    "DHMC, all coordinates": (refhmc.models.CellGrid(), JUMPING),
    "SGLD, parts": (refhmc.models.Heart().split(5), refhmc.SGLD(step_size=1e-3)),
    "SGHMC, parts, decay": (refhmc.models.Heart().split(5), refhmc.SGHMC(step_size=1e-3, decay=(10, 0.5))),
    "split": (
        refhmc.models.Heart().split(4),
        refhmc.HMC(n_steps=3, metric=METRICS.Diagonal(), integrator=refhmc.integrators.SymmetricSplit()),
    ),
}


def check_all_states(model, kernel, tune, total, **options):
    """Make ``total`` iterations and validate the state after each."""
    plan = make_plan(model, kernel, tune)
    plan.compile(model.name)
    start = np.full(model.dim, 0.1) if model.initial is None else np.array(model.initial, float)
    task = ChainTask(model, kernel, 0, 7, start, total - tune, tune, **options)
    live = LiveChain(task, plan, one(CONTROL)[0])
    assert live.begin()
    for done in range(total + 1):
        rows = append_only.Rows(
            max(done - 1, 0), np.zeros((min(done, 1), model.dim)), np.zeros((min(done, 1), plan.n_stats))
        )
        live.advance(rows)
        assert live.done == done
        check_saved(live.saved(), rows, task, plan, same_code=True)
    return live


@pytest.mark.parametrize(
    "name", representatives(MORE, ("NUTS", "HMC, learned length", "HMC, given", "DHMC, all coordinates"))
)
def test_every_state_of_a_run_is_accepted(name):
    """States that occur in a run are never rejected."""
    check_all_states(*MORE[name], tune=100, total=120)


@pytest.mark.parametrize("tune", [swept(0), 1, swept(2), swept(19), 20, swept(29), swept(30), swept(75), swept(151)])
def test_every_state_of_a_short_warm_up_is_accepted(tune):
    for name in ("NUTS", "NUTS, dense", "HMC, learned length"):
        check_all_states(*MORE[name], tune=tune, total=tune + 3)


@pytest.mark.parametrize("name", ["NUTS", swept("NUTS, dense"), swept("HMC, learned length")])
def test_every_state_of_a_run_that_begins_from_another_warm_up_is_accepted(name):
    model, kernel = MORE[name]
    adapted = adapted_of(check_all_states(model, kernel, 100, 100).chain.blocks[0])
    for tune in (0, 60, 100):
        check_all_states(model, kernel, tune, tune + 3, adapted=adapted)


@pytest.mark.parametrize("kernel", [refhmc.NUTS(), swept(refhmc.HMC())])
def test_every_state_of_a_chain_that_began_again_is_accepted(kernel):
    live = check_all_states(decay(2.0), kernel, tune=420, total=430, free_start=True)
    assert live.control.far_start == 105


def test_recover_draws_a_chain_with_a_crafted_state_again(saved, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(saved("NUTS"), folder)
    craft(folder, setting("max_depth", 12))
    with pytest.warns(CheckpointWarning, match="settings.max_depth"):
        again = refhmc.resume(folder, recover=True, **QUIET)
    assert np.array_equal(again.draws, sample(KERNELS["NUTS"], tmp_path / "new").draws)


def test_a_density_that_has_changed_is_no_reason_to_reject_a_forced_resume(tmp_path):
    def model(scale):
        return refhmc.Model(
            2, lambda q, data: -0.5 * scale * float(q @ q), lambda q, data: -scale * q, in_python="a test"
        )

    sample(refhmc.NUTS(), tmp_path, model=model(1.0))
    assert refhmc.resume(tmp_path, model(9.0), draws=30, force=True, **QUIET).draws.shape[1] == 30


# -------------------------------------------------------------------------------------------------- run.json and rows


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tune", -1),
        ("tune", 1.5),
        ("tune", "30"),
        ("chains", None),
        ("chains", [1]),
        ("draws", -5),
        ("entropy", "1e5"),
        ("entropy", 1),
        ("model", 3),
        ("kernel", {}),
        ("save_warmup", 1),
        ("parts", []),
        ("packages", "numpy"),
    ],
)
def test_a_field_of_run_json_of_another_type_is_rejected_by_name(saved, tmp_path, name, value):
    folder = tmp_path / "run"
    shutil.copytree(saved("NUTS"), folder)
    run = {**json.loads((folder / "run.json").read_text()), name: value}
    run["checksum"] = checksum_of_run(run)
    (folder / "run.json").write_text(json.dumps(run))
    with pytest.raises(CheckpointError, match=name):
        refhmc.resume(folder, **QUIET)


def rewrite_rows(folder, change):
    """Change the draws and statistics on disk, with valid checksums."""
    [path] = folder.glob("chain-0.*.rows")
    rows = append_only.read(path, path.stat().st_size, 11, N_STATS)
    draws, stats = rows.draws.copy(), rows.stats.copy()
    change(draws, stats)
    path.unlink()
    length = append_only.append(path, 0, [append_only.Rows(rows.first, draws, stats)])
    craft(folder, outer_field("length", length))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda draws, stats: draws.__setitem__((3, 2), np.nan), "draws"),
        (lambda draws, stats: draws.__setitem__((-1, 2), 0.5), "position"),
        (lambda draws, stats: stats.__setitem__((3, slice(None)), 0.5), "stats"),
        (lambda draws, stats: stats.__setitem__((3, slice(None)), 1e300), "stats"),
    ],
)
def test_crafted_rows_are_rejected_with_the_field(saved, tmp_path, change, message):
    folder = tmp_path / "run"
    shutil.copytree(saved("NUTS"), folder)
    rewrite_rows(folder, change)
    with pytest.raises(CheckpointError, match=message):
        refhmc.resume(folder, draws=60, **QUIET)


def test_a_compressed_archive_is_rejected(saved, tmp_path):
    """A small file could fill the memory."""
    folder = tmp_path / "run"
    shutil.copytree(saved("NUTS"), folder)
    path = pathlib.Path(folder / "chain-0.npz")
    state, outer = read_state(path)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **outer)
    path.write_bytes(buffer.getvalue())
    with pytest.raises(CheckpointError, match="compressed"):
        refhmc.resume(folder, draws=60, **QUIET)


@pytest.mark.parametrize(
    ("name", "value"),
    [("step_size", 0.0), ("step_size", np.nan), ("step_size", -1.0), ("length", np.inf), ("jitter", 7.0)],
)
def test_a_result_with_numbers_that_no_warm_up_learns_is_rejected(tmp_path, name, value):
    model, kernel = refhmc.models.Funnel(), refhmc.HMC()
    result = sample(kernel, tmp_path)
    result.adapted[:] = [each._replace(**{name: value}) for each in result.adapted]
    with pytest.raises(ValueError, match=f"{name} of warmup must .*got {value}"):
        refhmc.sample(model, kernel, draws=5, tune=0, warmup=result, **RUN)


@pytest.mark.slow
def test_states_that_are_changed_at_random_are_rejected_or_harmless(tmp_path):
    from validation.state_fuzz import prepare_all, run_cases

    prepare_all(tmp_path)
    found = run_cases(tmp_path, seed=1, cases=list(range(100)))
    assert not [each for each in found if each["outcome"] == "failed"]
