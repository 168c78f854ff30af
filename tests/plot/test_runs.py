"""A run is the same from a Result, an ArviZ object of either version, and a file."""

from __future__ import annotations

import numpy as np
import pytest
import xarray

from refhmc.plot.runs import before, run_of, scalars
from tests.helpers.made_runs import made_run

RESULT = made_run(chains=3, draws=12, d=2, warmup=9, warnings=["one <thing>", "another"])


@pytest.fixture(scope="module", params=["raw", "ArviZ", "DataTree", "file"])
def held(request, tmp_path_factory):
    if request.param == "raw":
        return RESULT
    if request.param == "ArviZ":
        return RESULT.to_arviz()
    path = tmp_path_factory.mktemp("run") / "run.nc"
    RESULT.to_arviz().to_netcdf(str(path))
    return str(path) if request.param == "file" else xarray.open_datatree(path, engine="h5netcdf")


def test_all_parts_of_a_run_are_read(held):
    run = run_of(held)
    assert run.shape == (3, 12)
    assert run.chains == [0, 1, 2]
    assert run.warnings == RESULT.warnings
    for group, values in RESULT.groups.items():
        for name, value in values.items():
            np.testing.assert_array_equal(run.groups[group][name], value)
    assert run.attributes["draws_per_chain"] == [12, 12, 12]
    assert int(run.attributes["entropy"]) == 2**70 + 1
    assert [each.step_size for each in run.adapted] == [each.step_size for each in RESULT.adapted]
    for mine, theirs in zip(run.adapted, RESULT.adapted, strict=True):
        np.testing.assert_array_equal(mine.metric.variances, theirs.metric.variances)
        np.testing.assert_array_equal(mine.history, theirs.history)


def test_scalars_by_name_and_by_variable():
    run = run_of(RESULT)
    x = RESULT.posterior["x"]
    assert list(scalars(run)) == ["x[0]", "x[1]"]
    assert list(scalars(run, "x")) == ["x[0]", "x[1]"]
    assert list(scalars(run, most=1)) == ["x[0]"]
    np.testing.assert_array_equal(scalars(run, ["x[1]"])["x[1]"], x[:, :, 1])
    for name in ("y", "x[2]", "x["):
        with pytest.raises(ValueError, match="must be the name of a value"):
            scalars(run, [name])


def test_a_transition_starts_at_the_draw_before():
    run, x = run_of(RESULT), RESULT.posterior["x"][:, :, 1]
    which = np.zeros((3, 12), bool)
    which[0, 0] = which[1, 7] = True
    last = RESULT.groups["warmup_posterior"]["x"][0, -1, 1]
    assert before(run, x, "x[1]", which).tolist() == [last, x[1, 6]]
    bare = run_of(made_run(chains=3, draws=12))
    assert np.isnan(before(bare, x, "x[1]", which)[0])


def test_other_objects_are_rejected():
    for wrong in (None, 3, np.zeros((2, 3)), {"posterior": 1}):
        with pytest.raises(TypeError, match=r"result must be a refhmc\.Result"):
            run_of(wrong)
    with pytest.raises(OSError, match="nowhere"):
        run_of("nowhere.nc")
