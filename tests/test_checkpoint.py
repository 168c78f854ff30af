"""A run stopped anywhere and taken up again from its folder is bit for bit the unbroken run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refhmc
from refhmc.errors import CheckpointError

KERNEL = refhmc.NUTS(metric=refhmc.metrics.Dense())
RUN = {"draws": 700, "tune": 600, "chains": 2, "random_seed": 9, "progressbar": False, "raw": True}


def stop_after(iterations):
    """A progress callback that plays Ctrl-C once."""
    told = []

    def callback(report):
        if not told and not report.finished and report.draws_done.max() >= iterations:
            told.append(True)
            raise KeyboardInterrupt

    return callback


@pytest.fixture(scope="module")
def unbroken():
    return refhmc.sample(refhmc.models.Funnel(3), KERNEL, **RUN, save_warmup=True)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(stops=st.lists(st.integers(0, 1300), min_size=1, max_size=3))
def test_stopped_and_resumed_is_unbroken(stops, unbroken, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    model = refhmc.models.Funnel(3)
    for stop in stops:
        refhmc.sample(
            model, KERNEL, **{**RUN, "progressbar": stop_after(stop)}, save_warmup=True, checkpoint=folder, cores=1
        )
    resumed = refhmc.sample(model, KERNEL, **{**RUN, "random_seed": None}, save_warmup=True, checkpoint=folder)
    assert resumed.attributes["entropy"] == RUN["random_seed"]
    for group in unbroken.groups:
        for name, values in unbroken.groups[group].items():
            assert np.array_equal(resumed.groups[group][name], values, equal_nan=True), (group, name)
    assert resumed.attributes["n_gradient_evaluations"] == unbroken.attributes["n_gradient_evaluations"]


def test_a_finished_run_can_be_given_more_draws(unbroken, tmp_path):
    model = refhmc.models.Funnel(3)
    refhmc.sample(model, KERNEL, **{**RUN, "draws": 300}, save_warmup=True, checkpoint=tmp_path)
    longer = refhmc.sample(model, KERNEL, **RUN, save_warmup=True, checkpoint=tmp_path)
    assert np.array_equal(longer.draws, unbroken.draws)
    with pytest.raises(CheckpointError, match="chain 0 of the checkpoint has 700 draws, asked for 100"):
        refhmc.sample(model, KERNEL, **{**RUN, "draws": 100}, save_warmup=True, checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": refhmc.models.Funnel(4)}, "model_fingerprint: here .* there"),
        ({"kernel": refhmc.NUTS()}, "kernel: here"),
        ({"random_seed": 10}, "entropy: here '10', there '9'"),
        ({"tune": 599}, "tune: here 599, there 600"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(tmp_path, change, words):
    few = {**RUN, "draws": 5}
    refhmc.sample(refhmc.models.Funnel(3), KERNEL, **few, checkpoint=tmp_path)
    arguments = {"model": refhmc.models.Funnel(3), "kernel": KERNEL, **few, **change}
    with pytest.raises(CheckpointError, match=words):
        refhmc.sample(**arguments, checkpoint=tmp_path)


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "json"])
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path, damage):
    model, few = refhmc.models.Funnel(3), {**RUN, "draws": 20}
    refhmc.sample(model, KERNEL, **few, checkpoint=tmp_path)
    path = tmp_path / ("run.json" if damage == "json" else "chain-1.npz")
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 3] ^= 0xFF
    path.write_bytes(bytes(content[: {"truncate": len(content) // 2, "flip": None, "empty": 0, "json": 9}[damage]]))
    with pytest.raises(CheckpointError, match=path.name):
        refhmc.sample(model, KERNEL, **few, checkpoint=tmp_path)


def test_run_json_says_which_run_it_is(tmp_path):
    refhmc.sample(refhmc.models.Funnel(3), KERNEL, **{**RUN, "draws": 5}, checkpoint=tmp_path / "new" / "folder")
    run = json.loads((tmp_path / "new" / "folder" / "run.json").read_text())
    assert run["model"] == "funnel"
    assert run["entropy"] == "9"
    assert not list((tmp_path / "new" / "folder").glob("*.tmp"))
