"""Data given as lists, tuples of lists or tables of pandas become arrays; strings are rejected by name."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

import refhmc
from refhmc.core.data import as_data
from refhmc.errors import ModelError, PythonModelWarning, ShapeError
from refhmc.parameters import Real

pd = pytest.importorskip("pandas")
X, Y = np.array([[1.5, 2.0], [3.0, 4.0], [5.0, 7.0]]), np.array([0, 1, 1])
FRAME, SERIES = pd.DataFrame({"a": X[:, 0], "b": X[:, 1].astype(int)}), pd.Series(Y, name="y")


class Named(NamedTuple):
    X: object
    y: object


def log_density(q, data):
    X, y = data
    r = X @ q - y
    return -0.5 * np.sum(r * r)


def gradient(q, data):
    X, y = data
    return X.T @ (y - X @ q)


FORMS = {
    "lists": (X.tolist(), Y.tolist()),
    "a list of lists": [X.tolist(), Y.tolist()],
    "a list of arrays": [X, Y],
    "frame and series": (FRAME, SERIES),
    "nullable types": (FRAME.convert_dtypes(), SERIES.convert_dtypes()),
    "a named tuple": Named(FRAME, Y.tolist()),
    "an index": (X, pd.Index(Y)),
}


@pytest.mark.parametrize("python", [False, True], ids=["compiled", "as Python"])
@pytest.mark.parametrize("data", FORMS.values(), ids=FORMS)
def test_functions_get_arrays_for_lists_and_tables(data, python):
    model = refhmc.Model(2, log_density, gradient, data=data, in_python="for the test" if python else "")
    q = np.array([0.3, -0.2])
    assert all(isinstance(each, np.ndarray) for each in model.data)
    assert model.log_density(q) == pytest.approx(log_density(q, (X, Y)), rel=1e-14)
    np.testing.assert_allclose(model.gradient(q), gradient(q, (X, Y)), rtol=1e-14)
    assert type(model.data) is (Named if isinstance(data, Named) else tuple)


def test_a_list_or_a_frame_becomes_an_array():
    for data in (X.tolist(), FRAME, pd.DataFrame(X)):
        model = refhmc.Model(2, lambda q, X: -np.sum((X @ q) ** 2), lambda q, X: -2 * X.T @ (X @ q), data=data)
        np.testing.assert_array_equal(model.data, X)
        assert model.gradient(np.ones(2)).shape == (2,)


def test_lists_in_a_dictionary_become_arrays():
    data = {"X": X.tolist(), "y": SERIES, "kinds": ["probit", "logit"], "n": 3}
    with pytest.warns(PythonModelWarning):
        model = refhmc.Model(
            2,
            lambda q, data: log_density(q, (data["X"], data["y"])),
            lambda q, data: data["X"].T @ (data["y"] - data["X"] @ q),
            data=data,
        )
        assert np.isfinite(model.core.log_density(np.ones(2)))
    assert model.data["kinds"] == ["probit", "logit"]
    assert isinstance(data["X"], list)  # the dictionary of the user is not changed


def test_data_without_need_of_conversion_are_unchanged():
    for data in (X, (X, Y), Named(X, Y), {"X": X}, 3.0, (X, 2), None, "word"):
        assert as_data("data", data) is data


def test_dtypes_are_kept():
    assert as_data("data", [1, 2]).dtype == np.int64
    assert as_data("data", [True, False]).dtype == bool
    assert as_data("data", pd.DataFrame({"a": [1, 2], "b": [True, False]})).dtype.kind == "i"
    assert as_data("data", pd.DataFrame({"a": [True], "b": [False]})).dtype == bool
    assert as_data("data", pd.DataFrame(index=[1, 2])).shape == (2, 0)
    missing = as_data("data", pd.Series([1, None], dtype="Int64"))
    assert missing[0] == 1
    assert np.isnan(missing[1])
    twice = pd.DataFrame(X, columns=["a", "a"])
    np.testing.assert_array_equal(as_data("data", twice), X)


WORDS = pd.DataFrame({"age": [1.0, 2.0], "city": ["Bonn", "Ulm"]})
REJECTED = {
    r"data\['city'\] must.* numbers": WORDS,
    r"data\[1\]\['city'\] must.* numbers": ([1.0, 2.0], WORDS),
    r"data\.X\['city'\] must.* numbers": Named(WORDS, Y),
    r"data\['X'\]\['city'\] must.* numbers": {"X": WORDS},
    r"data must.* numbers.* got .*'Bonn'": WORDS["city"],
    r"data must.* numbers.*data\[1\].* 'b'": [1.0, "b"],
    r"data must.* numbers.*data\[1\].* None": [1.0, None],
    r"data\[0\] must.* numbers.*data\[0\]\[0\].* 'a'": (["a", "b"], [1, 2]),
    r"data must.* numbers.* got.* <U1": np.array(["a", "b"]),
    r"data\['when'\] must.* numbers": pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}),
}


@pytest.mark.parametrize("words", REJECTED)
def test_strings_are_rejected_by_name(words):
    with pytest.raises(ModelError, match=words):
        refhmc.Model(2, log_density, gradient, data=REJECTED[words])


def test_built_in_models_take_lists_and_tables():
    q, by_arrays = np.array([0.1, -0.3]), refhmc.models.LogisticRegression(X, Y)
    for x, y in ((X.tolist(), Y.tolist()), (FRAME, SERIES), (FRAME.convert_dtypes(), SERIES.convert_dtypes())):
        assert refhmc.models.LogisticRegression(x, y).log_density(q) == by_arrays.log_density(q)
        assert refhmc.models.LinearRegression(x, y).dim == 3
    for make in (refhmc.models.LogisticRegression, refhmc.models.LinearRegression):
        with pytest.raises(ValueError, match=r"X\['city'\] must.* numbers"):
            make(WORDS, [0, 1])
        with pytest.raises(ValueError, match="y must"):
            make([[1.0], [2.0]], ["0", "1"])
    with pytest.raises(ValueError, match=r"X\['city'\] must.* numbers"):
        refhmc.models.MLP([2, 3, 1], WORDS, [0.0, 1.0])


REGRESSIONS = {
    "logistic": (refhmc.models.LogisticRegression, {"y": Y}, "input"),
    "linear": (refhmc.models.LinearRegression, {"y": [0.1, 1.2, 0.7]}, "coefficient"),
    "varying": (refhmc.models.VaryingIntercepts, {"y": [0.1, 1.2, 0.7], "group": [0, 0, 1]}, "coefficient"),
    "horseshoe": (refhmc.models.Horseshoe, {"y": [0.1, 1.2, 0.7]}, "coefficient"),
}


def names(model, axis):
    return None if axis not in (model.coords or {}) else list(model.coords[axis])


@pytest.mark.parametrize("which", REGRESSIONS)
def test_coefficients_have_the_names_of_the_columns(which, tmp_path):
    make, rest, axis = REGRESSIONS[which]
    x = np.array([[1.5, 2.0], [3.0, 4.0], [5.0, 7.0], [1.0, -2.0]])
    rest = {name: [*values, 1] for name, values in rest.items()}
    frame = pd.DataFrame(x, columns=["a", "b"])
    assert names(make(X=frame, **rest), axis) == ["a", "b"]
    assert names(make(X=frame, inputs=["c", "d"], **rest), axis) == ["c", "d"]
    assert names(make(X=x, **rest), axis) is None
    with pytest.raises(ShapeError, match="inputs must name the 2 columns of X; got 1 names"):
        make(X=x, inputs=["c"], **rest)
    options = {"draws": 20, "tune": 20, "chains": 1, "random_seed": 1, "progressbar": False, "preflight": False}
    refhmc.sample(make(X=frame, **rest), refhmc.HMC(n_steps=3), checkpoint=tmp_path / "run", **options)
    again = refhmc.resume(tmp_path / "run", progressbar=False)  # without the model
    assert list(again["posterior"]["beta"].coords[axis].values) == ["a", "b"]


@pytest.mark.parametrize("which", ["logistic", "linear"])
def test_an_intercept_is_a_column_of_ones(which):
    make, rest, axis = REGRESSIONS[which]
    x, whole = FRAME[["a"]], np.column_stack([np.ones(3), FRAME["a"]])
    model, same = make(X=x, intercept=True, **rest), make(X=whole, **rest)
    q = np.array([0.3, -0.2, 0.1])[: model.dim]
    assert model.log_density(q) == same.log_density(q)
    np.testing.assert_array_equal(model.gradient(q), same.gradient(q))
    assert names(model, axis) == ["intercept", "a"]
    assert names(make(X=x.to_numpy(), intercept=True, **rest), axis) == ["intercept", "x0"]
    np.testing.assert_array_equal(model.outputs(q, [[2.0], [5.5]]), same.outputs(q, [[1.0, 2.0], [1.0, 5.5]]))
    with pytest.raises(ShapeError, match=r"X must have shape \(n, 1\)"):
        model.outputs(q, whole)
    with pytest.raises(TypeError, match="intercept must be True or False"):
        make(X=x, intercept="yes", **rest)


def test_named_parameters_take_lists():
    parameters = refhmc.Parameters(beta=Real(shape=2))
    model = parameters.model(
        lambda values, data: -np.sum((data @ values.beta) ** 2),
        lambda values, data: -2 * data.T @ (data @ values.beta),
        data=FRAME,
    )
    np.testing.assert_array_equal(model.data, X)
    with pytest.raises(ModelError, match=r"data\['city'\]"):
        parameters.model(lambda values, data: 0.0, lambda values, data: values.beta, data=WORDS)


def test_derived_models_take_lists_and_series():
    sympy = pytest.importorskip("sympy")
    mu, y, (i, n) = sympy.Symbol("mu"), sympy.IndexedBase("y"), sympy.symbols("i n", integer=True)
    L = -sympy.Sum((y[i] - mu) ** 2, (i, 0, n - 1))
    values = [refhmc.from_sympy(L, [mu], data={"y": each}).log_density(np.ones(1)) for each in (Y, Y.tolist(), SERIES)]
    assert values[0] == values[1] == values[2]
    with pytest.raises(ModelError, match="y must.* numbers"):
        refhmc.from_sympy(L, [mu], data={"y": WORDS["city"]})


def test_pandas_is_not_imported():
    code = "import sys, refhmc; refhmc.models.LogisticRegression([[1.0], [2.0]], [0, 1]); assert 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
