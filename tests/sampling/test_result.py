"""The ArviZ object: ArviZ 0.23's InferenceData, and the DataTree of ArviZ 1.x."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys

import numpy as np
import pytest

import refhmc
from refhmc.core import arviz

FLAGS = ("diverging", "reached_max_treedepth", "is_accepted")
COUNTS = ("n_steps", "tree_depth", "index_in_trajectory", "outcome")


@pytest.fixture(scope="module")
def raw():
    model = refhmc.models.Funnel(3)
    with pytest.warns(refhmc.errors.SamplingWarning):
        return refhmc.sample(
            model,
            refhmc.NUTS(),
            draws=120,
            tune=100,
            chains=2,
            random_seed=1,
            save_warmup=True,
            progressbar=False,
            raw=True,
        )


@pytest.fixture(params=["InferenceData", "DataTree"])
def kind(request, monkeypatch):
    """The type of the object: that of the installed ArviZ, or with ArviZ 0.x also that of 1.x."""
    if request.param == "DataTree":
        monkeypatch.setattr(arviz, "arviz_0", lambda: None)
    elif arviz.arviz_0() is None:
        pytest.skip("ArviZ 0.x is not installed")
    return request.param


def test_groups_dimensions_types_and_attributes(raw, kind):
    tree = raw.to_arviz()
    assert type(tree).__name__ == kind
    names = (
        set(tree.groups()) if hasattr(tree, "groups") and callable(tree.groups) else {g.strip("/") for g in tree.groups}
    )
    expected = {"posterior", "sample_stats", "unconstrained_posterior"}
    assert expected | {f"warmup_{name}" for name in expected} <= {name.strip("/") for name in names}
    assert tree["posterior"]["x"].shape == (2, 120, 3)
    assert tree["posterior"]["v"].dims == ("chain", "draw")
    assert tree["warmup_posterior"]["v"].shape == (2, 100)
    assert tree["unconstrained_posterior"]["q"].shape == (2, 120, 4)
    assert np.array_equal(tree["posterior"]["x"].values, raw.posterior["x"])
    stats = tree["sample_stats"]
    for name in refhmc.NUTS().statistics:
        kind = "b" if name in FLAGS else "i" if name in COUNTS else "f"
        assert stats[name].dtype.kind == kind, name
        assert stats[name].dtype.itemsize == (1 if kind == "b" else 8), name
        assert stats[name].shape == (2, 120)
    for name in raw.groups:
        attributes = tree[name].attrs
        assert attributes["refhmc_version"] == refhmc.__version__
        assert json.loads(attributes["kernel"])["name"] == "NUTS"
        assert attributes["entropy"] == 1
        assert json.loads(attributes["warnings"]) == raw.warnings


def test_net_cdf_round_trip(raw, kind, tmp_path):
    tree = raw.to_arviz()
    tree.to_netcdf(tmp_path / "result.nc")
    if kind == "DataTree":
        import xarray as xr

        back = xr.open_datatree(tmp_path / "result.nc")
    else:
        back = arviz.arviz_0().from_netcdf(tmp_path / "result.nc")
    for group in ("posterior", "unconstrained_posterior"):
        for name, values in raw.groups[group].items():
            assert np.array_equal(back[group][name].values, values)
    assert back["sample_stats"]["diverging"].values.dtype == bool
    assert back["posterior"].attrs["model"] == "funnel"


@pytest.mark.parametrize("draws", [120, 3, 0])
def test_a_partial_result_can_be_converted(raw, kind, draws):
    """A result whose ``constrain`` raised, and one that was stopped early."""
    cut = {name: {k: v[:, :draws] for k, v in group.items()} for name, group in raw.groups.items()}
    for left in (cut, {**cut, "posterior": {}, "warmup_posterior": {}}):
        tree = dataclasses.replace(raw, groups=left).to_arviz()
        assert np.array_equal(tree["unconstrained_posterior"]["q"].values, raw.draws[:, :draws])
        assert tree["sample_stats"]["lp"].shape == (2, draws)
        assert json.loads(tree["sample_stats"].attrs["warnings"]) == raw.warnings


def test_arviz_functions_take_it(raw):
    az = pytest.importorskip("arviz")
    tree = raw.to_arviz()
    import matplotlib

    matplotlib.use("Agg")
    assert np.isfinite(float(az.rhat(tree)["v"]))
    assert np.isfinite(
        np.asarray(az.bfmi(tree)["energy"] if not isinstance(az.bfmi(tree), np.ndarray) else az.bfmi(tree))
    ).all()
    assert len(az.summary(tree)) == 4
    for plot in ("plot_trace", "plot_energy", "plot_pair"):
        if hasattr(az, plot):
            assert getattr(az, plot)(tree) is not None


def test_every_axis_has_labels_so_that_a_table_can_be_made(raw):
    made = raw.to_arviz()
    names = made.groups() if hasattr(made, "groups") and callable(made.groups) else list(made.children)
    for name in names:
        assert set(made[name].sizes) <= set(made[name].coords), name
    if hasattr(made, "to_dataframe") and hasattr(made, "add_groups"):  # ArviZ 0.x
        assert len(made.to_dataframe()) == raw.draws.shape[0] * raw.draws.shape[1]


def test_one_chain_is_reported_in_the_singular(raw):
    assert ": 2 chains of 120 draws in 4 dimensions" in repr(raw)
    groups = {"unconstrained_posterior": {"q": np.zeros((1, 1, 1))}}
    assert ": 1 chain of 1 draw in 1 dimension" in repr(refhmc.Result(groups, {}))


def test_results_are_equal_to_themselves_alone(raw):
    assert raw == raw
    assert raw != dataclasses.replace(raw)
    assert len({raw, raw}) == 1


def test_a_run_imports_few_modules():
    """With raw=True nothing of ArviZ, xarray, pandas, matplotlib or scipy.stats; a ``DataTree`` needs xarray and its pandas."""
    program = """
import sys
import refhmc
from refhmc.core import arviz
arviz.arviz_0 = lambda: None
sys.modules["dask.array"] = None
heavy = {"arviz", "arviz_base", "arviz_stats", "xarray", "pandas", "matplotlib", "scipy.stats"}
result = refhmc.sample(refhmc.models.EightSchools(), draws=100, tune=100, random_seed=1, progressbar=False, raw=True)
print(sorted(heavy & set(sys.modules)))
result.to_arviz()
print(sorted(heavy & set(sys.modules)))
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["[]", "['pandas', 'xarray']"]


def test_without_arviz_the_error_names_the_package_to_install(raw, monkeypatch):
    def refuse(name, *arguments):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(ImportError, match="pip install arviz"):
        raw.to_arviz()


def test_sample_returns_the_installed_arviz_object(normal):
    az = pytest.importorskip("arviz")
    tree = refhmc.sample(normal, draws=120, tune=50, random_seed=2, progressbar=False)
    assert tree["posterior"]["a"].shape == (4, 120)
    kind = "InferenceData" if az.__version__.startswith("0.") else "DataTree"
    assert type(tree).__name__ == kind
