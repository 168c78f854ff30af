"""A run is resumed from its folder; damage raises an error with file and remedy, or is drawn again."""

from __future__ import annotations

import json
import pathlib
import shutil
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc.core.sample_stats import N_STATS
from refhmc.errors import CheckpointError, CheckpointWarning
from refhmc.models.recipe import model_of_recipe, recipe_of
from refhmc.sampling.storage import append_only, store
from refhmc.sampling.storage.files import checksum_of_run, read_arrays
from tests.helpers.random_cases import cases
from tests.helpers.stopping import stop_after
from tests.helpers.sweeps import swept

pytestmark = pytest.mark.filterwarnings("ignore::refhmc.errors.SamplingWarning")
RUN = {"draws": 200, "tune": 120, "chains": 2, "random_seed": 5, "progressbar": False, "raw": True, "generate": False}
KERNEL = refhmc.NUTS(metric=refhmc.metrics.Dense())
QUIET = {"progressbar": False, "raw": True, "generate": False}
KINDS = ["checkpoint", "store"]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(store, "CHUNK", 2**14)


@pytest.fixture(scope="module")
def whole():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return refhmc.sample(refhmc.models.Funnel(), KERNEL, **RUN, save_warmup=True)


def folder_of(path, kind):
    return path / "checkpoint" if kind == "store" else path


def assert_same(result, whole):
    for group in whole.groups:
        for name, values in whole.groups[group].items():
            there = result.groups[group][name]
            assert np.array_equal(there, values, equal_nan=values.dtype.kind == "f"), (group, name)


@pytest.mark.parametrize("kind", ["checkpoint", swept("store")])
def test_a_run_is_resumed_from_its_folder(whole, tmp_path, kind):
    if kind == "store":
        pytest.importorskip("zarr")
    options = {**RUN, "progressbar": stop_after(150), kind: tmp_path / "run"}
    refhmc.sample(refhmc.models.Funnel(), KERNEL, **options, save_warmup=True, cores=1)
    assert_same(refhmc.resume(tmp_path / "run", **QUIET), whole)
    longer = refhmc.resume(tmp_path / "run", draws=260, **QUIET)
    same = refhmc.sample(refhmc.models.Funnel(), KERNEL, **{**RUN, "draws": 260}, save_warmup=True)
    assert_same(longer, same)
    assert refhmc.resume(tmp_path / "run", **QUIET).draws.shape[1] == 260
    with pytest.raises(CheckpointError, match="draws must.* 260.* 100"):
        refhmc.resume(tmp_path / "run", draws=100, **QUIET)
    assert refhmc.resume(tmp_path / "run", **QUIET).draws.shape[1] == 260


KERNELS = [
    refhmc.NUTS(metric=refhmc.metrics.Diagonal(variances=np.arange(1.0, 12.0))),
    refhmc.HMC(
        n_steps=4, metric=refhmc.metrics.SoftAbs(1e3), integrator=refhmc.integrators.ImplicitMidpoint(tolerance=1e-9)
    ),
    refhmc.Gibbs({(0,): refhmc.NUTS(), tuple(range(1, 11)): refhmc.HMC(n_steps=3)}),
    refhmc.HMC(trajectory_length=1.5, length_jitter=0.1, step_size=0.2),
    refhmc.SGLD(step_size=0.1, decay=(10, 0.5)),
]


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_of_refhmc_s_own_is_made_again(kernel):
    from refhmc.sampling.resume import own_kernel
    from refhmc.sampling.storage.kernel_json import kernel_as_json

    text = kernel_as_json(kernel)
    assert kernel_as_json(own_kernel({"kernel": text}, "folder")) == text
    assert type(own_kernel({"kernel": text}, "folder")) is type(kernel)


def test_starts_that_were_given_are_kept(tmp_path):
    model, starts = refhmc.models.Funnel(), np.full((2, refhmc.models.Funnel().dim), 0.25)
    options = {**RUN, "initvals": starts}
    whole = refhmc.sample(model, KERNEL, **options)
    refhmc.sample(model, KERNEL, **{**options, "progressbar": stop_after(20)}, checkpoint=tmp_path, cores=1)
    assert_same(refhmc.resume(tmp_path, **QUIET), whole)


class Mine(refhmc.NUTS):
    """A user-defined kernel."""


def test_resume_asks_for_a_model_or_kernel_that_the_folder_lacks(tmp_path):
    model = refhmc.Model(2, lambda q, data: -0.5 * float(q @ q), lambda q, data: -q, in_python="a test", name="mine")
    refhmc.sample(model, refhmc.HMC(n_steps=3), **RUN, checkpoint=tmp_path / "one")
    with pytest.raises(CheckpointError, match="'mine'.* model="):
        refhmc.resume(tmp_path / "one", **QUIET)
    assert refhmc.resume(tmp_path / "one", model, draws=210, **QUIET).draws.shape[1] == 210
    refhmc.sample(refhmc.models.Funnel(7), Mine(metric=KERNEL.metric), **RUN, checkpoint=tmp_path / "other")
    with pytest.raises(CheckpointError, match='kernel .*"Mine".* kernel='):
        refhmc.resume(tmp_path / "other", refhmc.models.Funnel(7), **QUIET)
    mine = Mine(metric=KERNEL.metric)
    with pytest.raises(CheckpointError, match="dim"):
        refhmc.resume(tmp_path / "other", refhmc.models.Funnel(6), mine, **QUIET)
    with pytest.raises(CheckpointError, match="belongs to another run.*dim"):
        refhmc.resume(tmp_path / "other", refhmc.models.Funnel(6), mine, force=True, recover=True, **QUIET)
    assert refhmc.resume(tmp_path / "other", kernel=mine, **QUIET).draws.shape[2] == 8
    with pytest.raises(CheckpointError, match="nowhere.*run.json"):
        refhmc.resume(tmp_path / "nowhere", **QUIET)


def test_other_code_is_gone_on_with_if_it_is_forced(tmp_path):
    def model(scale):
        return refhmc.Model(
            2, lambda q, data: -0.5 * scale * float(q @ q), lambda q, data: -scale * q, in_python="a test"
        )

    kernel = refhmc.HMC(n_steps=3, step_size=0.3)
    refhmc.sample(model(1.0), kernel, **{**RUN, "draws": 50}, checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="scale"):
        refhmc.resume(tmp_path, model(2.0), draws=60, **QUIET)
    forced = refhmc.resume(tmp_path, model(2.0), draws=60, force=True, **QUIET)
    assert any("scale" in text for text in forced.attributes["forced"])
    assert forced.draws.shape == (2, 60, 2)
    with pytest.raises(CheckpointError, match="kernel: "):
        refhmc.resume(tmp_path, model(2.0), refhmc.HMC(n_steps=4, step_size=0.3), force=True, **QUIET)


# ---------------------------------------------------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return stopped runs of each kind, whose copies are damaged by tests."""
    made = {}
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setattr(store, "CHUNK", 2**14)
        for kind in KINDS:
            if kind == "store":
                pytest.importorskip("zarr")
            made[kind] = tmp_path_factory.mktemp("saved") / kind
            options = {**RUN, "draws": 150, kind: made[kind]}
            refhmc.sample(refhmc.models.Funnel(), KERNEL, **options, save_warmup=True)
    return made


def damaged(path, choose, how, at):
    """Damage one file of a folder (a byte changed, cut, emptied or removed) and return it."""
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.stat().st_size)
    file = files[choose % len(files)]
    content = bytearray(file.read_bytes())
    place = at % len(content)
    if how == "byte":
        content[place] ^= 1 + at % 255
    elif how == "cut":
        content = content[:place]
    elif how == "empty":
        content = bytearray()
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(bytes(content))
    return file


damages = {
    "choose": st.integers(0, 10**6),
    "how": st.sampled_from(["byte", "cut", "empty", "gone"]),
    "at": st.integers(0, 10**9),
}


@pytest.mark.parametrize("kind", ["checkpoint", swept("store")])
@cases(15)
@given(**damages)
def test_damage_is_an_error_or_nothing(kind, choose, how, at, saved, whole, tmp_path_factory):
    """For any damage to one file, the resumed run is right or an error names the file. With ``recover`` chains are restored,
    unless the file identifies the run or describes an array."""
    for recover in (False, True):
        path = tmp_path_factory.mktemp("damaged") / "run"
        shutil.copytree(saved[kind], path)
        file = damaged(path, choose, how, at)
        refused = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckpointWarning)
            try:
                assert_same(refhmc.resume(path, recover=recover, draws=200, **QUIET), whole)
            except CheckpointError as error:
                refused = str(error)
        assert refused is None or str(path) in refused
        assert refused is None or not recover or file.name in ("run.json", "zarr.json"), (file, refused)
        shutil.rmtree(path.parent)


@pytest.mark.parametrize("kind", ["checkpoint", swept("store")])
def test_a_damaged_chain_is_drawn_again(kind, saved, whole, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(saved[kind], path)
    file = folder_of(path, kind) / "chain-1.npz"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(CheckpointError, match=r"chain-1.npz cannot be read"):
        refhmc.resume(path, draws=200, **QUIET)
    with pytest.warns(CheckpointWarning, match=r"Chain 1 .*again from its start.*chain-1.npz cannot be read"):
        result = refhmc.resume(path, draws=200, recover=True, **QUIET)
    assert_same(result, whole)


@pytest.mark.parametrize("kind", ["checkpoint", swept("store")])
def test_without_run_json_nothing_is_recovered(kind, saved, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(saved[kind], path)
    file = folder_of(path, kind) / "run.json"
    for content, words in (
        (b"{", "cannot be read"),
        (b"{}", "does not describe"),
        (None, "is missing"),
    ):
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(CheckpointError, match=rf"run.json {words}.* recover=True"):
            refhmc.resume(path, refhmc.models.Funnel(), KERNEL, recover=True, **QUIET)


def test_recover_keeps_more_draws_than_are_requested(tmp_path):
    """Too few draws are an error in the arguments and not damage."""
    refhmc.sample(refhmc.models.Funnel(), KERNEL, **{**RUN, "draws": 20, "tune": 10}, checkpoint=tmp_path)
    before = {each: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(CheckpointError, match="draws must be at least 20"):
        refhmc.resume(tmp_path, draws=10, recover=True, **QUIET)
    assert {each: each.read_bytes() for each in tmp_path.iterdir()} == before


def test_a_damaged_chunk_that_is_written_to_is_drawn_again(saved, whole, tmp_path):
    """Zarr reads a partial chunk before it writes to it. A rejected resume does not make the store longer."""
    zarr = pytest.importorskip("zarr")
    path = tmp_path / "run"
    shutil.copytree(saved["store"], path)
    file = max(path.glob("unconstrained_posterior/q/c/0/*/0"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    before = {each: each.read_text() for each in path.rglob("*.json")}
    with pytest.raises(CheckpointError, match=r"unconstrained_posterior/q.*chain 0.* cannot be read.*recover=True"):
        refhmc.resume(path, draws=200, **QUIET)
    assert {each: each.read_text() for each in path.rglob("*.json")} == before
    with pytest.warns(CheckpointWarning, match="Chain 0 .*again from its start.*chain 0.* cannot be read"):
        refhmc.resume(path, draws=200, recover=True, **{**QUIET, "progressbar": stop_after(150)})
    assert_same(refhmc.resume(path, **QUIET), whole)
    assert zarr.open_group(path, mode="r")["unconstrained_posterior/q"].shape[1] == 200


def test_a_damaged_chunk_is_rewritten_or_reported(tmp_path):
    """Rows that start a chunk replace its content, because no state counts it."""
    pytest.importorskip("zarr")
    model, tune, n = refhmc.models.Funnel(), 120, 20
    there = store.Store(tmp_path / "run", model, KERNEL, np.zeros(model.dim), N_STATS, 1, 300, tune, 0)
    rows = append_only.Rows(tune, np.random.default_rng(1).normal(size=(n, model.dim)), np.zeros((n, N_STATS)))
    assert n < there.chunk
    chunk = tmp_path / "run" / "unconstrained_posterior" / "q" / "c" / "0" / "0" / "0"
    chunk.parent.mkdir(parents=True)
    chunk.write_bytes(b"damaged")
    there.write(0, rows)
    assert np.array_equal(there.group("unconstrained_posterior", [0], n)["q"][0], rows.draws)
    chunk.write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=r"unconstrained_posterior/q.*chain 0.* cannot be read.*recover=True"):
        there.write(0, rows._replace(first=tune + n, draws=rows.draws[:1], stats=rows.stats[:1]))
    there.discard(0)
    assert not chunk.exists()
    assert there.done[0] == 0


def test_code_in_a_folder_is_never_run(saved, tmp_path):
    """Files hold objects that would run code if they were unpickled."""
    path, ran = tmp_path / "run", tmp_path / "ran"
    shutil.copytree(saved["checkpoint"], path)

    class Evil:
        def __reduce__(self):
            return pathlib.Path.touch, (ran,)

    arrays = read_arrays(path / "chain-0.npz")
    for name in ("state", "control", "checksum"):
        with open(path / "chain-0.npz", "wb") as file:
            np.savez(file, **{**arrays, name: np.array([Evil()], dtype=object)})
        ran.unlink(missing_ok=True)
        with pytest.raises(CheckpointError, match="chain-0.npz cannot be read"):
            refhmc.resume(path, **QUIET)
        assert not ran.exists()


# ------------------------------------------------------------------------------------------- models made by their recipe


def test_no_two_built_in_models_share_a_name():
    names = [make().name for make in refhmc.models.by_name().values()]
    assert len(set(names)) == len(names)


def test_every_built_in_model_has_a_recipe_that_makes_the_same_model():
    for name, make in refhmc.models.by_name().items():
        model = make()
        recipe = json.loads(json.dumps(recipe_of(model)))
        assert model_of_recipe(recipe).fingerprint() == model.fingerprint(), name


RECREATED = {
    "normal-100": lambda: refhmc.models.by_name()["normal-100"](),
    "another normal": lambda: refhmc.models.Gaussian(np.arange(3.0), np.diag([1.0, 4.0, 9.0])),
    "smaller funnel": lambda: refhmc.models.Funnel(3),
    "centred schools": lambda: refhmc.models.EightSchools(centered=True),
    "own data": lambda: refhmc.models.LogisticRegression(
        np.array([[1.0, 0.1], [1.0, 1 / 3], [1.0, -2.0]]), np.array([0, 1, 1]), prior_scale=np.float64(2.5)
    ),
    "own series": lambda: refhmc.models.AR(np.sin(np.arange(30.0)), K=2),
}


@pytest.mark.parametrize("name", RECREATED)
def test_a_model_of_refhmc_is_recreated_with_its_arguments(tmp_path, name):
    options = {**RUN, "draws": 5, "tune": 5, "chains": 1}
    kernel = refhmc.NUTS(metric=refhmc.metrics.Identity())
    refhmc.sample(RECREATED[name](), kernel, **options, checkpoint=tmp_path)
    longer = refhmc.resume(tmp_path, draws=8, **QUIET)
    assert np.array_equal(longer.draws, refhmc.sample(RECREATED[name](), kernel, **{**options, "draws": 8}).draws)


@pytest.mark.parametrize(
    "recipe",
    [
        {"constructor": "ODE", "arguments": {}},
        {"constructor": "by_name", "arguments": {}},
        {"constructor": "__getattr__", "arguments": {"name": "Funnel"}},
        {"constructor": "importlib", "arguments": {}},
        {"constructor": ["Funnel"], "arguments": {}},
        {"constructor": "Funnel", "arguments": {"n": 10**12}},
        {"constructor": "Funnel", "arguments": {"n": {"a": 1}}},
        {"constructor": "Funnel", "arguments": {"m": 3}},
        {"constructor": "Funnel", "arguments": [3]},
        {"constructor": "Funnel"},
        {"constructor": "Gaussian", "arguments": {"mean": [0.0], "covariance": [[-1.0]]}},
        "Funnel()",
    ],
)
def test_a_recipe_that_refhmc_does_not_write_is_rejected(tmp_path, recipe):
    refhmc.sample(refhmc.models.Funnel(3), KERNEL, **{**RUN, "draws": 5, "tune": 5}, checkpoint=tmp_path)
    run = {**json.loads((tmp_path / "run.json").read_text()), "recipe": recipe}
    run["checksum"] = checksum_of_run(run)
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(CheckpointError, match="recipe"):
        refhmc.resume(tmp_path, **QUIET)
