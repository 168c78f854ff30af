"""Generated groups: they do not depend on how a run is executed, never cost draws, and work in ArviZ."""

from __future__ import annotations

import concurrent.futures
import datetime
import functools
import pickle

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.core import arviz
from refhmc.errors import ModelError, ModelWarning, SamplingWarning, ShapeError
from refhmc.sampling.progress import Counter
from refhmc.sampling.results import generated_quantities
from tests.helpers.models import FEW_CALLS
from tests.helpers.sweeps import swept

RUN = {"draws": 60, "tune": 60, "chains": 2, "random_seed": 3, "progressbar": False}
Y = np.array([1.0, 2.5, -0.5])
FIELDS = ["north", "south", "west"]
ALPHA = 1e-6


def log_density(q, y):
    return -0.5 * np.sum((y - q[:3]) ** 2) - 0.5 * np.sum(q[:3] ** 2) / np.exp(2 * q[3]) - 3 * q[3] - 0.5 * q[3] ** 2


def gradient(q, y):
    precision = np.exp(-2 * q[3])
    out = np.empty(4)
    out[:3] = y - q[:3] - precision * q[:3]
    out[3] = precision * np.sum(q[:3] ** 2) - 3 - q[3]
    return out


def constrain(q):
    return {"yields": q[..., :3], "tau": np.exp(q[..., 3])}


def log_likelihood(values):
    return {"y": scipy.stats.norm.logpdf(Y, values["yields"], 1.0)}


def posterior_predictive(values, rng):
    return {"y": rng.normal(values["yields"], 1.0)}


def prior(rng):
    tau = np.exp(rng.normal())
    return {"yields": rng.normal(0.0, tau, 3), "tau": tau}


GENERATED = {
    "log_likelihood": log_likelihood,
    "posterior_predictive": posterior_predictive,
    "prior": prior,
    "observed_data": {"y": Y},
    "constant_data": {"sd": 1.0},
}
LABELS = {"dims": {"yields": "field", "y": ["field"]}, "coords": {"field": FIELDS}}


def model_with(generated=GENERATED, **labels):
    return refhmc.Model(
        4,
        log_density,
        gradient,
        data=Y,
        in_python=FEW_CALLS,
        constrain=constrain,
        generated=generated,
        names=["yields[0]", "yields[1]", "yields[2]", "log_tau"],
        **(labels or LABELS),
    )


@pytest.fixture(scope="module")
def model():
    return model_with()


@pytest.fixture(scope="module")
def result(model):
    return refhmc.sample(model, raw=True, **RUN)


def same_groups(one: refhmc.Result, other: refhmc.Result, names=("posterior", *generated_quantities.GROUPS)) -> bool:
    return all(
        one.groups[group].keys() == other.groups[group].keys()
        and all(np.array_equal(one.groups[group][name], other.groups[group][name]) for name in one.groups[group])
        for group in names
    )


def test_the_groups(result):
    groups = result.groups
    for i, j in ((0, 0), (1, 59)):
        for k in range(3):
            expected = scipy.stats.norm(groups["posterior"]["yields"][i, j, k]).logpdf(Y[k])
            assert groups["log_likelihood"]["y"][i, j, k] == pytest.approx(expected, rel=1e-14)
    assert groups["posterior_predictive"]["y"].shape == (2, 60, 3)
    assert groups["prior"]["yields"].shape == groups["prior_predictive"]["y"].shape == (1, 60, 3)
    assert groups["prior"]["tau"].shape == (1, 60)
    assert np.array_equal(groups["observed_data"]["y"], Y)
    assert groups["constant_data"]["sd"] == 1.0


def test_the_laws(result):
    """Residuals of predictive draws are independent standard normals; two checks at ALPHA each."""
    groups = result.groups
    for there, drawn in (("posterior", "posterior_predictive"), ("prior", "prior_predictive")):
        residuals = groups[drawn]["y"] - groups[there]["yields"]
        assert scipy.stats.kstest(residuals.ravel(), "norm").pvalue > ALPHA


def test_neither_the_draws_nor_the_groups_depend_on_the_others(model, result):
    assert np.array_equal(refhmc.sample(model, raw=True, generate=False, **RUN).draws, result.draws)
    some = refhmc.sample(model, raw=True, generate=["prior_predictive"], **RUN)
    assert set(some.groups) & set(generated_quantities.GROUPS) == {"prior", "prior_predictive"}
    assert same_groups(some, result, ["posterior", "prior", "prior_predictive"])
    one = refhmc.sample(model, raw=True, generate="posterior_predictive", **{**RUN, "chains": 1})
    assert np.array_equal(one.groups["posterior_predictive"]["y"][0], result.groups["posterior_predictive"]["y"][0])


def test_they_are_the_same_by_an_executor_a_checkpoint_and_later(model, result, tmp_path):
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        assert same_groups(refhmc.sample(model, raw=True, executor=executor, **RUN), result)
    bare = model_with(generated=None, dims={"yields": "field"})
    first = refhmc.sample(bare, raw=True, checkpoint=tmp_path, **{**RUN, "draws": 20})
    assert not set(first.groups) & set(generated_quantities.GROUPS)
    # Neither `generated` nor names of axes are parts of the run: the folder is not refused.
    assert same_groups(refhmc.sample(model, raw=True, checkpoint=tmp_path, **RUN), result)
    later = refhmc.generate(model, refhmc.sample(bare, raw=True, **RUN))
    assert same_groups(later, result)
    assert later.dims == {"yields": ("field",), "y": ("field",)}
    again = pickle.loads(pickle.dumps(model))
    assert same_groups(refhmc.generate(again, result), result)


@pytest.mark.sweep
def test_many_chains_at_once(model, result):
    many = refhmc.sample(model, raw=True, backend="arrays", **RUN)
    values = {name: value.reshape(-1, *value.shape[2:]) for name, value in many.posterior.items()}
    assert np.array_equal(many.groups["log_likelihood"]["y"].reshape(-1, 3), log_likelihood(values)["y"])
    assert same_groups(many, result, ["prior", "prior_predictive"])


def test_functions_of_one_draw_and_of_many_draws_give_the_same(model, result):
    """Functions that fail for many draws, that mix draws, and that use random numbers give the values of single calls."""

    def alone(values, rng):
        assert values["tau"].shape == ()
        return {"y": rng.normal(values["yields"], 1.0)}

    def mixes(values):
        assert values["yields"].shape[-1] == 3
        return {"y": scipy.stats.norm.logpdf(Y, values["yields"] + 0 * np.mean(values["tau"]), 1.0)}

    def centred(values):
        return {"y": values["yields"] - np.mean(values["yields"])}

    other = model_with({**GENERATED, "posterior_predictive": alone, "log_likelihood": mixes})
    made = refhmc.generate(other, result)
    assert same_groups(made, result, ["posterior_predictive", "prior_predictive"])
    assert made.groups["log_likelihood"]["y"] == pytest.approx(result.groups["log_likelihood"]["y"], rel=1e-12)
    made = refhmc.generate(model_with({**GENERATED, "log_likelihood": centred}), result, "log_likelihood")
    yields = result.posterior["yields"]
    assert np.array_equal(made.groups["log_likelihood"]["y"], yields - yields.mean(axis=2, keepdims=True))


def test_a_chain_that_does_not_move_does_not_hide_that_a_function_mixes_draws(result):
    """The first two draws are equal, so that their mean equals each of them."""
    values = {"x": np.array([1.0, 1.0, 1.0, 2.0, 5.0])}
    found = generated_quantities.over_draws(
        "g", lambda v: {"m": v["x"] * 0 + np.mean(v["x"])}, values, 5, lambda i, n: None
    )
    assert found["m"].tolist() == [1.0, 1.0, 1.0, 2.0, 5.0]


@pytest.mark.parametrize("batch", [1, 7, 10**6])
def test_how_many_draws_a_call_takes_does_not_show(model, result, batch, monkeypatch):
    monkeypatch.setattr(generated_quantities, "BATCH", batch)
    assert same_groups(refhmc.generate(model, result), result)


def test_types_that_grow():
    """Values that are integers only at the first draws are not truncated later."""
    values = {"x": np.array([1.0, 2.0, 2.5])}
    found = generated_quantities.over_draws(
        "g", lambda v: {"n": int(v["x"]) if v["x"] % 1 == 0 else v["x"]}, values, 3, print
    )
    assert found["n"].tolist() == [1.0, 2.0, 2.5]


class Stops:
    """A log likelihood that raises at one call."""

    def __init__(self, error: BaseException, at: int) -> None:
        self.error, self.left = error, at

    def __call__(self, values):
        self.left -= 1
        if self.left < 0:
            raise self.error
        assert values["tau"].shape == ()  # one draw at a time
        return log_likelihood(values)


def test_ctrl_c_leaves_out_unfinished_groups(result):
    stopped = model_with({**GENERATED, "log_likelihood": Stops(KeyboardInterrupt(), 30)})
    with pytest.warns(SamplingWarning, match=r"log_likelihood, posterior_predictive, .*refhmc.generate"):
        raw = refhmc.sample(stopped, raw=True, **RUN)
    assert np.array_equal(raw.draws, result.draws)
    assert "log_likelihood" not in raw.groups
    assert not raw.interrupted  # the draws are all there
    assert same_groups(refhmc.generate(model_with(), raw), result)


@pytest.mark.parametrize("backend", ["numba", swept("arrays")])
def test_large_groups_are_left_out_with_a_warning(model, result, backend, monkeypatch):
    """With 120 draws of 3 numbers and 60 prior draws, one large group fits and so do all small ones."""
    monkeypatch.setattr(generated_quantities, "DEFAULT_BYTES", 120 * 3 * 8 + 60 * 4 * 8)
    with pytest.warns(SamplingWarning, match="posterior_predictive, prior_predictive .* GiB"):
        raw = refhmc.sample(model, raw=True, backend=backend, **RUN)
    assert {"log_likelihood", "prior", "observed_data"} <= set(raw.groups)
    assert any("posterior_predictive, prior_predictive" in text for text in raw.warnings)
    asked = refhmc.sample(model, raw=True, backend=backend, generate=True, **RUN)
    assert set(asked.groups) == set(result.groups)


@pytest.mark.parametrize("backend", ["numba", swept("arrays")])
def test_an_exception_carries_the_draws(backend):
    stopped = model_with({**GENERATED, "log_likelihood": Stops(ZeroDivisionError("mine"), 30)})
    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        refhmc.sample(stopped, backend=backend, **RUN)
    partial = caught.value.partial
    assert partial.draws.shape == (2, 60, 4)
    assert partial.posterior["tau"].shape == (2, 60)
    assert any("log_likelihood" in note for note in caught.value.__notes__)
    assert "log_likelihood" in refhmc.generate(model_with(), partial).groups


@pytest.fixture(params=[swept("InferenceData"), "DataTree"])
def kind(request, monkeypatch):
    if request.param == "DataTree":
        monkeypatch.setattr(arviz, "arviz_0", lambda: None)
    elif arviz.arviz_0() is None:
        pytest.skip("ArviZ 0.x is not installed")
    return request.param


def test_axes_and_labels_in_the_object_of_arviz(model, result, kind, tmp_path):
    tree = result.to_arviz()
    assert type(tree).__name__ == kind
    for group in ("posterior", "prior"):
        assert tree[group]["yields"].dims == ("chain", "draw", "field")
        assert tree[group]["tau"].dims == ("chain", "draw")
    for group in ("log_likelihood", "posterior_predictive", "prior_predictive"):
        assert tree[group]["y"].dims == ("chain", "draw", "field")
    assert tree["observed_data"]["y"].dims == ("field",)
    assert tree["constant_data"]["sd"].dims == ()
    for group in ("posterior", "log_likelihood", "observed_data"):
        assert tree[group]["field"].values.tolist() == FIELDS
    south = tree["posterior"]["yields"].sel(field="south").values
    assert np.array_equal(south, result.posterior["yields"][:, :, 1])
    # To netCDF and back; what is generated from the file is what sample made.
    tree.to_netcdf(tmp_path / "result.nc")
    if kind == "DataTree":
        import xarray as xr

        back = xr.open_datatree(tmp_path / "result.nc")
    else:
        back = arviz.arviz_0().from_netcdf(tmp_path / "result.nc")
    for made in (refhmc.generate(model, back), refhmc.generate(model, tree, random_seed=3)):
        assert type(made) is type(tree)
        for group in generated_quantities.GROUPS:
            for name, values in result.groups[group].items():
                assert np.array_equal(made[group][name].values, values)
                assert made[group][name].dims == tree[group][name].dims
        assert made["prior"].attrs["entropy"] == 3
    assert not np.array_equal(
        refhmc.generate(model, tree, random_seed=4)["prior"]["tau"].values, made["prior"]["tau"].values
    )


def test_predictions_have_the_names_of_the_model():
    X = np.random.default_rng(1).normal(size=(12, 2))
    base = refhmc.models.LogisticRegression(X, (X[:, 0] > 0).astype(int))
    (keywords,) = base.__reduce__()[1]
    labels = {"dims": {"beta": ["input"], "probability": ["patient", "class"]}, "coords": {"class": ["no", "yes"]}}
    model = refhmc.Model(**{**keywords, "generated": None, "coords": None, **labels})
    raw = refhmc.sample(model, raw=True, **RUN)
    for tree in (
        refhmc.predict(model, raw, X[:5], thin=2).to_arviz(),
        refhmc.predict(model, raw.to_arviz(), X[:5], thin=2),
    ):
        assert tree["predictions"]["probability"].dims == ("chain", "draw", "patient", "class")
        assert tree["predictions"]["class"].values.tolist() == ["no", "yes"]
        assert tree["predictions"]["draw"].values.tolist() == list(range(0, 60, 2))


@pytest.mark.sweep
def test_functions_of_arviz(model, result):
    """LOO and model comparison, predictive checks, traces by labels and names in the summary work."""
    az = pytest.importorskip("arviz")
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    tree = result.to_arviz()
    wrong = {**GENERATED, "log_likelihood": lambda v: {"y": scipy.stats.norm.logpdf(Y, v["yields"] - 3.0, 1.0)}}
    other = refhmc.sample(model_with(wrong), **RUN)
    assert np.isfinite(az.loo(tree).elpd if hasattr(az.loo(tree), "elpd") else az.loo(tree).elpd_loo)
    assert az.compare({"right": tree, "wrong": other}).index[0] == "right"
    plot = getattr(az, "plot_ppc", None) or az.plot_ppc_dist
    assert plot(tree) is not None
    assert az.plot_trace(tree, var_names=["yields"], coords={"field": ["south"]}) is not None
    assert "yields[south]" in az.summary(tree).index
    matplotlib.pyplot.close("all")


BAD = {
    "an unknown group": (dict(generated={"loglik": log_likelihood}), "no group 'loglik'.*log_likelihood"),
    "no function": (dict(generated={"prior": 3.0}), "prior must .*got float"),
    "no dictionary": (dict(generated=[log_likelihood]), "generated must .*got list"),
    "data that are no dictionary": (dict(generated={"observed_data": Y}), "observed_data must"),
    "data of objects": (dict(generated={"constant_data": {"x": [None]}}), "'x'.*constant_data|constant_data.*'x'"),
    "predictive without prior": (
        dict(generated={"prior_predictive": posterior_predictive}),
        "prior_predictive.* prior",
    ),
    "dims of a list": (dict(dims=["field"]), "dims must .*got list"),
    "dims of numbers": (dict(dims={"yields": 3}), r"dims\['yields'\] must .*got 3"),
    "an axis called draw": (dict(dims={"yields": ["draw"]}), "'draw'.* axis|axis.*'draw'"),
    "an axis twice": (dict(dims={"yields": ["a", "a"]}), "yields.*(twice|different|unique|distinct)"),
    "coords of a list": (dict(dims={"yields": ["field"]}, coords=[1]), "coords must .*got list"),
    "coords of no axis": (dict(dims={"yields": ["field"]}, coords={"feild": FIELDS}), "coords .*field.*'feild'"),
    "coords of a matrix": (dict(dims={"yields": ["f"]}, coords={"f": np.eye(3)}), r"coords.*labels.*\(3, 3\)"),
    "coords of a word": (dict(dims={"yields": ["f"]}, coords={"f": "abc"}), "coords.*labels.*got 'abc'"),
    "coords of a number": (dict(dims={"yields": ["f"]}, coords={"f": 3}), "coords.*labels.*got 3"),
    "an axis with a slash": (dict(dims={"yields": ["a/b"]}), "'a/b'.*netCDF"),
    "data with a slash": (
        dict(generated={"observed_data": {"a/b": [1.0]}}),
        "generated.*observed_data.*'a/b'.*netCDF",
    ),
    "coords.*(twice|different|unique|distinct)": (
        dict(dims={"yields": ["f"]}, coords={"f": ["a", "a", "b"]}),
        "coords.*(twice|different|unique|distinct)",
    ),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_invalid_generated_quantities_are_rejected(case):
    options, words = BAD[case]
    with pytest.raises(ModelError, match=words):
        refhmc.Model(4, log_density, gradient, **options)


@pytest.mark.parametrize("name", ["a/b", "", "."])
def test_a_name_that_is_invalid_in_files_is_rejected_before_sampling(name):
    with pytest.raises(ShapeError, match=f"names.*{name!r}.*netCDF"):
        refhmc.Model(1, lambda q: -q @ q / 2, lambda q: -q, names=[name])
    model = refhmc.Model(1, lambda q: -q @ q / 2, lambda q: -q, constrain=lambda q: {name: q[..., 0]}, in_python="few")
    with pytest.raises(ModelError, match=f"constrain.*{name!r}.*netCDF"):
        refhmc.sample(model, progressbar=False)


def test_labels_of_other_kinds_are_strings_in_the_file(tmp_path):
    days = [datetime.date(2026, 1, day) for day in (1, 2, 3)]
    model = model_with(generated=None, dims={"yields": ["day"]}, coords={"day": days})
    assert model.coords["day"].tolist() == ["2026-01-01", "2026-01-02", "2026-01-03"]
    refhmc.sample(model, **RUN).to_netcdf(tmp_path / "r.nc")
    read = arviz.read_tree(tmp_path / "r.nc")
    assert read["posterior"]["day"].values.tolist() == model.coords["day"].tolist()
    read.close()


def raises(error):
    def function(values, rng=None):
        raise error

    return function


LATER = {
    "a shape": (dict(dims={"yields": ["a", "b"]}), ShapeError, r"dims\['yields'\].*(2 axes.*\(3,\)|\(3,\).*'a', 'b')"),
    "labels": (
        dict(dims={"yields": "f"}, coords={"f": [1, 2]}),
        ShapeError,
        r"coords\['f'\].*( 2 labels.* 3| 3 labels.*got 2)",
    ),
    "an axis of two sizes": (
        dict(
            dims={"yields": "f", "z": "f"},
            generated={"log_likelihood": lambda v: {"y": Y, "z": Y[:2]}, "observed_data": {"yields": Y, "z": Y[:2]}},
        ),
        ShapeError,
        "axis 'f'.* 2 entries in 'z' and 3 in 'yields'",
    ),
    "an axis of a variable's name": (
        dict(dims={"yields": "tau"}),
        ModelError,
        "'tau'.* axis of 'yields'",
    ),
    "no such variable": (dict(dims={"yeilds": "field"}), ModelError, "dims.*yields, tau.*'yeilds'"),
    "what it raises": (
        dict(generated={"log_likelihood": raises(KeyError("mu"))}),
        ModelError,
        "log_likelihood raised KeyError: 'mu'.*yields, tau",
    ),
    "an array": (
        dict(generated={"log_likelihood": lambda v: Y}),
        ModelError,
        "log_likelihood must .*ndarray",
    ),
    "a variable without a name": (
        dict(generated={"log_likelihood": lambda v: {"": 0.0}}),
        ModelError,
        "log_likelihood.*''.*netCDF",
    ),
    "strings": (dict(generated={"log_likelihood": lambda v: {"y": "a"}}), ModelError, "log_likelihood.*'y' must"),
    "a variable called chain": (
        dict(generated={"log_likelihood": lambda v: {"chain": 0.0}}),
        ModelError,
        "log_likelihood.*'chain'",
    ),
    "a prior of less": (
        dict(generated={"prior": lambda rng: {"tau": 1.0}}),
        ModelError,
        "prior must",
    ),
    "observations of another shape": (
        dict(generated={"posterior_predictive": lambda v, rng: {"y": Y[:2]}, "observed_data": {"y": Y}}),
        ModelError,
        r"posterior_predictive.*'y'.*\(2,\).*observed_data.*\(3,\)|posterior_predictive.*'y'.*\(3,\).*observed_data.*\(2,\)",
    ),
    "more of a likelihood than observations": (
        dict(generated={"log_likelihood": lambda v: {"y": Y}, "observed_data": {"y": Y[:2]}}),
        ModelError,
        r"log_likelihood.*'y'.*(\(2,\).*observed_data.*\(3,\)|\(3,\).*observed_data.*\(2,\))",
    ),
    "memory": (
        dict(generated={"log_likelihood": lambda v: {"y": np.broadcast_to(0.0, 10**12)}}),
        MemoryError,
        r"log_likelihood 960,000,000,000,000\).*generate=False",
    ),
}


@pytest.mark.parametrize("case", sorted(LATER))
@pytest.mark.parametrize("backend", ["numba", "arrays"])
def test_invalid_groups_are_rejected_before_the_first_draw(case, backend):
    """Memory is only checked with ``generate=True``; by default large groups are left out."""
    options, error, words = LATER[case]
    options = {"generated": None, "dims": None, "coords": None, **options}
    with pytest.raises(error, match=words) as caught:
        refhmc.sample(model_with(**options), backend=backend, generate=True if case == "memory" else None, **RUN)
    assert not hasattr(caught.value, "partial")


def test_one_likelihood_of_several_observations():
    """ArviZ accepts a log likelihood without the last axes of its observations."""
    of_vectors = {"log_likelihood": lambda v: {"y": np.sum(v["yields"])[None]}, "observed_data": {"y": Y[None]}}
    made = refhmc.sample(model_with(of_vectors, dims=None), raw=True, **RUN)
    assert made.groups["log_likelihood"]["y"].shape == (2, 60, 1)


def test_invalid_groups_are_rejected(model, result):
    with pytest.raises(ValueError, match="generate.*log_likelihood.*'loglik'"):
        refhmc.generate(model, result, "loglik")
    with pytest.raises(ValueError, match="generate.*'prior'"):
        refhmc.sample(model_with(generated=None, dims=None), generate="prior", **RUN)
    with pytest.raises(TypeError, match="result must .*got dict"):
        refhmc.generate(model, {})
    names = iter(["a", "a", "a", "a", "b"])
    with pytest.raises(ModelError, match="draw 1"):
        generated_quantities.over_draws("g", lambda v: {next(names): 0.0}, {"x": np.arange(3.0)}, 3, print)
    with pytest.raises(ModelError, match=r"'x'.*\(1,\).*\(2,\).*draw 2|'x'.*draw 2.*\(2,\).*\(1,\)"):
        generated_quantities.over_draws(
            "g", lambda v: {"x": np.ones(1 + (v["x"] == 2.0))}, {"x": np.arange(3.0)}, 3, print
        )


@pytest.mark.parametrize("raw", [True, False])
def test_generate_warns_of_a_result_of_another_model(model, result, raw, recwarn):
    given = result if raw else result.to_arviz()
    refhmc.generate(model, given, "log_likelihood", progressbar=False)
    assert not [each for each in recwarn if each.category is ModelWarning]
    other = refhmc.Model(
        4,
        log_density,
        gradient,
        data=Y + 1,
        in_python=FEW_CALLS,
        constrain=constrain,
        generated=GENERATED,
        name="other",
    )
    with pytest.warns(ModelWarning, match="model.*'other'.*'model'|'model'.*'other'") as caught:
        refhmc.generate(other, given, "log_likelihood", progressbar=False)
    assert caught[0].filename == __file__


def test_a_split_model_has_them():
    X = np.random.default_rng(1).normal(size=(12, 2))
    base = refhmc.models.LogisticRegression(X, (X[:, 0] > 0).astype(int))
    (keywords,) = base.__reduce__()[1]
    made = {"log_likelihood": functools.partial(lambda v: {"y": v["beta"]}), "constant_data": {"X": X}}
    whole = refhmc.Model(**{**keywords, "generated": made, "dims": {"beta": "input"}, "coords": None})
    split = whole.split(3)
    assert split.dims == {"beta": ("input",)}
    assert split.generated.made.keys() == {"log_likelihood"}
    assert refhmc.models.SplitModel(split.parts).generated.made == {}


def test_slow_ones_show_progress(monkeypatch, capsys):
    counter = Counter(True)
    report = counter.part("log_likelihood", 1, 4)
    report(10, 100)
    assert capsys.readouterr().err == ""
    counter.next = 0.0
    report(20, 100)
    counter.display.last = counter.next = 0.0
    report(30, 100)
    assert "log_likelihood: 130/400 draws" in capsys.readouterr().err
    silent = Counter(False)
    silent.next = 0.0
    silent.part("prior", 0, 1)(1, 2)
    assert capsys.readouterr().err == ""


def of_draws(function, values, rng=None):
    return generated_quantities.over_draws(
        "g", function, values, len(next(iter(values.values()))), lambda i, n: None, rng
    )


@pytest.mark.parametrize("random", [False, True])
def test_a_function_that_sees_all_draws_at_once_is_called_for_each(random):
    """A guard over all draws of a call must not change the others when it applies to one in a thousand, or raises."""
    values = {"x": np.random.default_rng(5).standard_normal((4000, 3))}
    values["x"][::1000, 1] = -9.0

    def guarded(values, *rng):
        x = values["x"]
        noise = rng[0].standard_normal(x.shape) if rng else 0.0
        return {"y": np.full(x.shape, -1e9) + noise if np.any(x < -8) else x + noise}

    def refuses_many(values, *rng):
        noise = rng[0].standard_normal(values["x"].shape) if rng else 0.0
        if values["x"].size > 6:
            raise MemoryError
        return {"y": values["x"] + noise}

    def of_another_shape(values, *rng):
        x = values["x"]
        noise = rng[0].standard_normal(x.shape) if rng else 0.0
        return {"y": np.zeros(3) if x.size > 6 else x + noise}

    for function in (guarded, refuses_many, of_another_shape):
        rngs = [np.random.default_rng(1) if random else None for _ in range(2)]
        own = (rngs[1],) if random else ()
        wanted = np.stack([function({"x": x}, *own)["y"] for x in values["x"]])
        assert np.array_equal(of_draws(function, values, rngs[0])["y"], wanted)


def of_chains(result, chains):
    """The result in ArviZ's form, with some chains; a tree is without the prior, which has one chain only."""
    whole = result.to_arviz()
    if hasattr(whole, "drop_nodes"):
        whole = whole.drop_nodes([name for name in whole.children if name.startswith("prior")])
    return whole.sel(chain=chains)


def test_some_chains_of_a_result(model, result):
    """Each group uses its own random stream, in any order of generation."""
    whole = refhmc.generate(model, result.to_arviz(), "posterior_predictive", random_seed=3)
    some = refhmc.generate(model, of_chains(result, [1, 0]), "posterior_predictive", random_seed=3)
    last = refhmc.generate(model, of_chains(result, [1]), "posterior_predictive", random_seed=3)
    of_all = whole["posterior_predictive"]["y"].values
    assert np.array_equal(some["posterior_predictive"]["y"].values, of_all[[1, 0]])
    assert np.array_equal(last["posterior_predictive"]["y"].values, of_all[[1]])
