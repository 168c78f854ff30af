"""Supports: transforms and their inverses, and errors for invalid supports and values."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import refhmc
from refhmc.errors import InitError, ModelError, ShapeError
from refhmc.parameters import Above, Below, CholeskyCorrelation, Interval, Ordered, Positive, Real, Simplex

SUPPORTS = {
    "real": Real(shape=(2, 3)),
    "positive": Positive(shape=4),
    "above": Above(-2.5),
    "below": Below(7.0, shape=2),
    "interval": Interval(-1, 3, shape=3),
    "ordered": Ordered(4, shape=2),
    "simplex": Simplex(10),
    "simplex of 1": Simplex(1),
    "simplices": Simplex(3, shape=(2, 2)),
    "correlation": CholeskyCorrelation(5),
    "correlations": CholeskyCorrelation(2, shape=3),
}


@pytest.mark.parametrize("size", [1.0, 10.0])
@pytest.mark.parametrize("name", sorted(SUPPORTS))
def test_transform_and_inverse(name, size):
    parameters = refhmc.Parameters(x=SUPPORTS[name], y=Real())
    u = size * np.random.default_rng(5).normal(size=(3, parameters.dim))
    for row, x in zip(u, parameters.constrain(u)["x"], strict=True):
        assert x.shape == SUPPORTS[name].value_shape
        back = parameters.unconstrain({"x": x, "y": row[-1]})
        # Between two bounds, and where gaps are added to larger numbers, values lose what coordinates had.
        coarse = name in ("above", "below", "interval", "ordered")
        np.testing.assert_allclose(back, row, rtol=1e-5 if coarse else 1e-11, atol=1e-5 if coarse else 1e-11)
        again = parameters.constrain(back)["x"]
        np.testing.assert_allclose(again, x, rtol=1e-13, atol=1e-300)


def test_values_lie_in_their_supports():
    parameters = refhmc.Parameters(w=Simplex(4), L=CholeskyCorrelation(4), o=Ordered(3))
    x = parameters.constrain(3 * np.random.default_rng(6).normal(size=(200, parameters.dim)))
    assert (x["w"] > 0).all()
    np.testing.assert_allclose(x["w"].sum(-1), 1, rtol=1e-14)
    R = x["L"] @ np.swapaxes(x["L"], -1, -2)
    np.testing.assert_allclose(np.diagonal(R, axis1=-2, axis2=-1), 1, rtol=1e-13)
    assert (np.triu(x["L"], 1) == 0).all()
    assert (np.diff(x["o"]) > 0).all()


def test_names_of_coordinates_values_and_axes():
    parameters = refhmc.Parameters(
        mu=Real(),
        tau=Positive(),
        p=Interval(0, 1, shape=1),
        theta=Real(shape=(2, 2), dims=("a", "b")),
        w=Simplex(3, dims="k"),
    )
    theta = [f"theta[{i}]" for i in range(4)]
    assert parameters.names == ["mu", "log_tau", "logit_p[0]", *theta, "w_raw[0]", "w_raw[1]"]
    assert parameters.dims == {"theta": ("a", "b"), "w": ("k",)}
    assert (parameters.dim, parameters.count) == (9, 10)
    assert parameters.at._asdict() == {"mu": 0, "tau": 1, "p": 2, "theta": 3, "w": 7}
    again = pickle.loads(pickle.dumps(parameters))
    assert repr(again) == repr(parameters)
    assert again.Values is parameters.Values
    u = np.arange(9.0) / 9
    assert {k: v.tolist() for k, v in again.constrain(u).items()} == {
        k: v.tolist() for k, v in parameters.constrain(u).items()
    }
    assert parameters.constrain(np.zeros((0, 9)))["theta"].shape == (0, 2, 2)


WRONG_SUPPORTS = [
    (lambda: Real(shape=0), ShapeError, "Real: shape must be a whole number of at least 1.*0"),
    (lambda: Real(shape=(2, -1)), ShapeError, "Real: shape must be .* got -1"),
    (lambda: Real(shape=2.5), ShapeError, "Real: shape must be .* got 2.5"),
    (lambda: Real(shape=True), ShapeError, "Real: shape must be .* got True"),
    (lambda: Real(shape="8"), ShapeError, "Real: shape must be .* got '8'"),
    (lambda: Real(shape=None), ShapeError, "Real: shape must be .* got None"),
    (lambda: Real(shape=8, dims=("a", "b")), ShapeError, r"Real: dims must have one name .* 1 axes .*\(8,\).*'b'"),
    (lambda: Real(dims="school"), ShapeError, r"Real: dims must have one name .* 0 axes"),
    (lambda: CholeskyCorrelation(3, dims="k"), ShapeError, r"CholeskyCorrelation: dims must have one name .* 2 axes"),
    (lambda: CholeskyCorrelation(3, dims=("k", "k")), ModelError, "dims must be different names"),
    (lambda: Real(shape=2, dims=3), ModelError, "Real: dims must be a name or a tuple of names.*3"),
    (lambda: Real(shape=2, dims=("",)), ModelError, "Real: dims must be a name"),
    (lambda: Interval(1, 0), ModelError, r"lower must be below upper.*\(1, 0\)"),
    (lambda: Interval(1, 1), ModelError, "lower must be below upper"),
    (lambda: Interval(0, np.nan), ModelError, "Interval: upper must be a finite number.*nan"),
    (lambda: Interval(0, np.inf), ModelError, "Interval: upper must be a finite number.*inf.*Above"),
    (lambda: Interval(-1e308, 1e308), ModelError, "lower must be below upper"),
    (lambda: Interval("0", 1), ModelError, "Interval: lower must be a finite number.*'0'"),
    (lambda: Interval([0, 0], 1), ModelError, "Interval: lower must be a finite number"),
    (lambda: Interval(False, True), ModelError, "Interval: lower must be a finite number.*False"),
    (lambda: Interval(None, 1), ModelError, "Interval: lower must be a finite number.*None"),
    (lambda: Above(np.nan), ModelError, "Above: lower must be a finite number.*nan"),
    (lambda: Below(-np.inf), ModelError, "Below: upper must be a finite number.*-inf"),
    (lambda: Below(1j), ModelError, "Below: upper must be a finite number"),
    (lambda: Simplex(0), ShapeError, "Simplex: n must be .*0"),
    (lambda: Simplex(2.5), ShapeError, "Simplex: n must be .*2.5"),
    (lambda: CholeskyCorrelation(-1), ShapeError, "CholeskyCorrelation: n must be"),
    (lambda: Ordered(None), ShapeError, "Ordered: n must be"),
]

WRONG_PARAMETERS = [
    ({}, "at least one parameter"),
    ({"mu": 1.0}, "mu must be a support.*Above, Below, .* got 1.0"),
    ({"mu": Real}, r"mu must be a support.*class Real"),
    ({"mu": None}, "mu must be a support"),
    ({"mu": "real"}, "mu must be a support.* got 'real'"),
    ({"my mu": Real()}, "identifier, such as 'my_mu'.*'my mu'"),
    ({"2": Real()}, "identifier, such as 'x2'.*'2'"),
    ({"": Real()}, "identifier.*''"),
    ({"lambda": Real()}, "identifier, such as 'lambda_'.*'lambda'"),
    ({"_mu": Real()}, "underscore.*'_mu'"),
    ({"chain": Real()}, "axis of the result.*'chain'"),
    ({"tau": Positive(), "log_tau": Real()}, "log_tau and tau must .*'log_tau'"),
    (
        {"school": Real(), "x": Real(shape=2, dims="school")},
        "x: dims must not .* a parameter.*'school'",
    ),
    ({"x": Real(shape=2, dims="draw")}, "x: dims must not .* an axis of every result.*'draw'"),
    ({"w": Simplex(1)}, "at least one coordinate"),
]


@pytest.mark.parametrize(("make", "error", "words"), WRONG_SUPPORTS)
def test_invalid_supports_are_rejected(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize(("supports", "words"), WRONG_PARAMETERS)
def test_invalid_parameters_are_rejected(supports, words):
    with pytest.raises(ModelError, match=words):
        refhmc.Parameters(**supports)


WRONG_VALUES = [
    ({"tau": -1.0}, InitError, "values: tau must be above 0.*-1.0"),
    ({"tau": 0.0}, InitError, "values: tau must be above 0"),
    ({"tau": np.nan}, InitError, "values: tau must be finite.*nan"),
    ({"tau": np.inf}, InitError, "values: tau must be finite.*inf"),
    ({"tau": [1.0]}, ShapeError, r"values: tau must have the shape \(\).*\(1,\)"),
    ({"tau": "one"}, ShapeError, r"values: tau must be numbers of the shape \(\)"),
    ({"below": 2.0}, InitError, "values: below must be below 2"),
    ({"p": 1.0}, InitError, "values: p must be between 0 and 1"),
    ({"o": [1.0, 1.0]}, InitError, "values: o must increase along the last axis"),
    ({"w": [0.5, 0.5, 0.0]}, InitError, "values: w must be positive"),
    ({"w": [0.5, 0.5, 0.5]}, InitError, "values: w must sum to one along the last axis.*1.5"),
    ({"L": [[1.0, 0.5], [0.0, 1.0]]}, InitError, "values: L must be zero above the diagonal"),
    ({"L": [[1.0, 0.0], [1.0, 0.0]]}, InitError, "values: L must be positive on the diagonal"),
    ({"L": [[1.0, 0.0], [0.5, 0.5]]}, InitError, "values: L must have rows of length one"),
    ({"L": np.eye(3)}, ShapeError, r"values: L must have the shape \(2, 2\).*\(3, 3\)"),
    ({"sigma": 1.0}, ShapeError, "values .*tau, below, p, o, w, L.*'sigma'"),
]


@pytest.mark.parametrize(("values", "error", "words"), WRONG_VALUES)
def test_values_outside_their_support_are_rejected(values, error, words):
    parameters = refhmc.Parameters(
        tau=Positive(), below=Below(2), p=Interval(0, 1), o=Ordered(2), w=Simplex(3), L=CholeskyCorrelation(2)
    )
    inside = {"tau": 1.0, "below": 0, "p": 0.5, "o": [0, 1], "w": [0.2, 0.3, 0.5], "L": np.eye(2)}
    np.testing.assert_allclose(parameters.constrain(parameters.unconstrain(inside))["w"], inside["w"], rtol=1e-14)
    with pytest.raises(error, match=words):
        parameters.unconstrain({**inside, **values})
    with pytest.raises(InitError, match="values .*below, p, o, w, L"):
        parameters.unconstrain({"tau": 1.0})
