"""The pins: one changed bit of one statistic is found, and named."""

from __future__ import annotations

import json

import numpy as np
import pytest

import refhmc
from validation import pinned_runs, pins


@pytest.fixture(scope="module")
def arrays():
    """Draw from a funnel with small steps: twenty rejections in a row have a probability below 1e-20."""
    options = {"chains": 1, "draws": 20, "tune": 20, "random_seed": 1, "raw": True, "progressbar": False}
    return pinned_runs.arrays_of(
        refhmc.sample(
            refhmc.models.Funnel(2), refhmc.HMC(step_size=0.1, n_steps=3, metric=refhmc.metrics.Identity()), **options
        )
    )


def taken(arrays, name="funnel"):
    return {"about": {"refhmc": "here", "numpy": np.__version__}, "runs": {name: pinned_runs.pin(lambda: arrays)}}


def with_bit_changed(arrays, name, place):
    changed = np.array(arrays[name])
    changed.reshape(-1).view(np.uint8)[place] ^= 1
    return {**arrays, name: changed}


@pytest.mark.parametrize(
    "name", ["unconstrained_posterior/q", "sample_stats/energy_error", "sample_stats/n_steps", "sample_stats/diverging"]
)
@pytest.mark.parametrize("place", [0, -1])
def test_one_changed_bit_is_found_and_named(arrays, name, place):
    before = taken(arrays)
    assert pins.differences(before, taken(dict(arrays))) == []
    assert pins.differences(before, taken(with_bit_changed(arrays, name, place))) == [f"funnel: {name}"]


def test_type_shape_and_name_count_and_the_kind_of_nan_does_not(arrays):
    before, lp = taken(arrays), "sample_stats/lp"
    changes = {
        "type": ({**arrays, "sample_stats/n_steps": arrays["sample_stats/n_steps"].astype(np.uint64)}, "n_steps"),
        "shape": ({**arrays, lp: arrays[lp].T}, "lp"),
        "sign of zero": ({**arrays, "exact": -np.zeros(1)}, "exact"),
        "name": ({("sample_stats/LP" if name == lp else name): a for name, a in arrays.items()}, "lp (only before)"),
    }
    for what, (changed, said) in changes.items():
        (line,) = pins.differences(before, taken(changed))
        assert said in line, what
    one, other = np.array([np.nan, 1.0]), np.array([-np.nan, 1.0])
    other.view(np.uint64)[0] |= 5  # payload and sign, which no operation promises
    assert one.tobytes() != other.tobytes()
    assert pinned_runs.hash_of("x", one) == pinned_runs.hash_of("x", other)
    assert pinned_runs.hash_of("x", np.array([0.0])) != pinned_runs.hash_of("x", np.array([-0.0]))


def test_the_command_names_the_run_and_fails(arrays, tmp_path, monkeypatch, capsys):
    """Also for a run that raises, and for one that only one side has."""
    file = tmp_path / "pins.json"
    monkeypatch.setattr(pins, "take", lambda *_: taken(arrays))
    assert pins.main(["--out", str(file)]) == 0
    assert pins.main(["--against", str(file)]) == 0
    assert "1 runs, 0 of them differ." in capsys.readouterr().out
    monkeypatch.setattr(pins, "take", lambda *_: taken(with_bit_changed(arrays, "sample_stats/lp", 7)))
    assert pins.main(["--against", str(file)]) == 1
    assert "funnel: sample_stats/lp" in capsys.readouterr().out
    assert pins.main(["--against", str(file), "--only", "banana"]) == 1
    assert "funnel: only now" in capsys.readouterr().out

    def wrong():
        raise ZeroDivisionError("here")

    broken = taken(arrays)
    broken["runs"]["funnel"] = pinned_runs.pin(wrong)
    monkeypatch.setattr(pins, "take", lambda *_: broken)
    assert pins.main([]) == 1
    assert pins.main(["--against", str(file)]) == 1
    assert "funnel: before ran; now ZeroDivisionError: here" in capsys.readouterr().out
    assert json.loads(file.read_text())["runs"]["funnel"]["outcomes"]["accepted"] > 0


def test_the_runs_are_there_and_reach_the_failures():
    """One of each kind of run is made twice and is the same; steps are rejected and solves fail in it."""
    runs = pinned_runs.every_run(cores=1)
    assert len(pinned_runs.sampled()) >= 40
    for name, expected in {"nuts funnel large steps": "diverged", "transition nuts fisher": "solver_failed"}.items():
        first, second = pinned_runs.pin(runs[name]), pinned_runs.pin(runs[name])
        assert first["outcomes"][expected] > 0
        assert first["sha256"] == second["sha256"]
