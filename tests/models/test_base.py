"""User-defined models: compiled from plain functions, from the in-place protocol, or run as Python."""

from __future__ import annotations

import collections
import inspect
import pickle

import numba
import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.errors import ModelError, PythonModelWarning
from refhmc.models.variables import gather_by_name
from tests.helpers.sweeps import swept

Data = collections.namedtuple("Data", "y X scale group")
rng = np.random.default_rng(8)
DATA = Data(rng.standard_normal(5), rng.standard_normal((5, 3)), 2.0, np.array([0, 2, 1, 1, 0]))


def log_density(q, data):
    total = 0.0
    for i in range(len(data.y)):
        eta = q[data.group[i]]
        for j in range(3):
            eta += data.X[i, j] * q[j]
        total -= 0.5 * (data.y[i] - eta) ** 2 / data.scale
    return total - 0.5 * np.sum(q * q)


def gradient(q, data):
    out = -q
    for i in range(len(data.y)):
        eta = q[data.group[i]]
        for j in range(3):
            eta += data.X[i, j] * q[j]
        slope = (data.y[i] - eta) / data.scale
        out[data.group[i]] += slope
        for j in range(3):
            out[j] += slope * data.X[i, j]
    return out


def gradient_in_place(q, data, out):
    out[:] = gradient_compiled(q, data)


def hessian(q, data):
    rows = data.X.copy()
    for i in range(len(data.y)):
        rows[i, data.group[i]] += 1.0
    return -np.eye(3) - rows.T.copy() @ rows / data.scale


gradient_compiled = numba.njit(gradient)
q0 = np.array([0.3, -1.0, 0.7])


@pytest.mark.sweep
def test_plain_functions_are_compiled_with_named_data():
    model = refhmc.Model(3, log_density, gradient, hessian, data=DATA)
    assert model.runs_as_python is None
    assert model.log_density(q0) == pytest.approx(log_density(q0, DATA), rel=1e-14)
    np.testing.assert_allclose(model.gradient(q0), gradient(q0, DATA), rtol=1e-14)
    np.testing.assert_allclose(model.hessian(q0), hessian(q0, DATA), rtol=1e-14)
    value, slope = model.core.value_and_gradient(q0)
    assert value == model.log_density(q0)
    assert np.array_equal(slope, model.gradient(q0))


@pytest.mark.sweep
def test_the_in_place_protocol_gives_the_same(sample):
    returning = refhmc.Model(3, log_density, gradient, data=DATA)
    in_place = refhmc.Model(3, log_density, gradient_in_place, data=DATA)
    assert in_place.runs_as_python is None
    assert np.array_equal(in_place.gradient(q0), returning.gradient(q0))
    few = {"draws": 100, "tune": 100, "random_seed": 1}
    assert np.array_equal(sample(in_place, **few).draws, sample(returning, **few).draws)


@pytest.mark.parametrize(
    ("data", "expression"),
    [
        (None, lambda data: data is None),
        swept(2.5, lambda data: data == 2.5),
        swept(3, lambda data: data + 1 == 4),
        swept([1.0, 2.0], lambda data: data[1] == 2.0 and data.shape == (2,)),
        swept(np.arange(6.0).reshape(2, 3), lambda data: data[1, 2] == 5.0 and data.ndim == 2),
        swept(np.arange(24).reshape(2, 3, 4), lambda data: data[1, 2, 3] == 23),
        swept((np.ones(2), np.eye(3), 7, 1.5), lambda data: data[1][2, 2] == 1.0 and data[2] == 7 and data[3] == 1.5),
    ],
)
def test_functions_get_data_of_every_kind_unchanged(data, expression):
    check = numba.njit(expression)

    def density(q, data):
        return -0.5 * q[0] ** 2 if check(data) else np.nan

    model = refhmc.Model(1, density, lambda q, data: -q, data=data)
    assert model.runs_as_python is None
    assert model.log_density([1.0]) == -0.5


def test_python_models_run_through_the_same_kernels(sample):
    def density(q, data):
        return float(scipy.stats.norm.logpdf(q, scale=data["scale"]).sum())

    def slope(q, data):
        return -q / data["scale"] ** 2

    python = refhmc.Model(2, density, slope, data={"scale": 1.5}, name="python")
    with pytest.warns(PythonModelWarning, match="'python' runs as Python.* dict"):
        assert python.runs_as_python.startswith("data of type dict cannot")
    compiled = refhmc.Model(
        2, lambda q, data: -0.5 * np.sum(q * q) / data**2, lambda q, data: -q / data**2, data=1.5, name="compiled"
    )
    few = {"draws": 300, "tune": 200, "chains": 2, "random_seed": 4}
    ours, theirs = sample(python, **few), sample(compiled, **few)
    # The densities differ by rounding. With the same random numbers the chain is the same until rounding errors grow.
    np.testing.assert_allclose(ours.draws[:, :5], theirs.draws[:, :5], rtol=1e-6)
    assert ours.attributes["model_runs_as_python"]
    with pytest.raises(refhmc.errors.MissingDerivativeError):
        python.hessian([0.0, 0.0])


def test_a_function_numba_cannot_compile_is_named():
    def density(q, data):
        return scipy.stats.norm.logpdf(q).sum()

    model = refhmc.Model(1, density, lambda q, data: -q)
    with pytest.warns(PythonModelWarning, match="Numba.* compile.*log density and gradient"):
        assert model.log_density([0.0]) == pytest.approx(-0.9189385332046727)


def test_contraction_uses_the_third_derivative_if_it_is_missing():
    def third(q, data):
        out = np.zeros((2, 2, 2))
        out[0, 0, 0], out[1, 1, 0] = 6.0 * q[0], 2.0
        return out

    model = refhmc.Model(2, lambda q, data: -np.sum(q**4), lambda q, data: -4 * q**3, third_derivative=third)
    M = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert model.has("hessian_contraction")
    np.testing.assert_allclose(model.hessian_contraction([2.0, 0.0], M), [12.0 + 8.0, 0.0])


@pytest.mark.parametrize("missing", ["dim", "log_density", "gradient"])
def test_missing_argument_names_the_alternatives(missing):
    given = {"dim": 2, "log_density": log_density, "gradient": gradient}
    given.pop(missing)
    with pytest.raises(TypeError, match=f"^{missing} must be given") as caught:
        refhmc.Model(**given)
    for name in ("from_jax", "from_sympy", "from_pymc", "Parameters(...).model"):
        assert f"refhmc.{name}" in str(caught.value)
    assert repr(inspect.signature(refhmc.Model).parameters[missing].default) == "<required>"


def test_names_become_variables(normal):
    assert set(normal.constrain(np.zeros(2))) == {"a", "b"}
    grouped = gather_by_name(["v", "x[0]", "x[1]", "y[1]"], np.arange(8.0).reshape(2, 4))
    assert {key: value.shape for key, value in grouped.items()} == {"v": (2,), "x": (2, 2), "y[1]": (2,)}
    plain = refhmc.Model(3, log_density, gradient, data=DATA)
    assert plain.constrain(np.zeros((4, 5, 3)))["q"].shape == (4, 5, 3)
    assert plain.reference_names == ["q[0]", "q[1]", "q[2]"]


@pytest.mark.parametrize(
    "constrain",
    [
        lambda q: {"s": np.exp(q[..., 0]), "ab": q[..., 1:]},
        lambda q: {"s": float(np.exp(q[0])), "ab": np.array([q[1], q[2]])},
    ],
)
def test_constrain_for_one_position_or_for_many(constrain):
    model = refhmc.Model(3, log_density, gradient, data=DATA, constrain=constrain)
    q = np.random.default_rng(1).standard_normal((2, 7, 3))
    values = model.constrain(q)
    assert {k: v.shape for k, v in values.items()} == {"s": (2, 7), "ab": (2, 7, 2)}
    np.testing.assert_array_equal(values["s"], np.exp(q[..., 0]))
    np.testing.assert_array_equal(values["ab"], q[..., 1:])
    assert model.constrain(np.zeros((0, 3)))["ab"].shape == (0, 2)


def normal_together(q, data, out):
    out[:] = -data * q
    return -0.5 * data * np.sum(q * q)


def normal_together_without_data(q, out):
    return normal_together(q, 1.0, out)


@pytest.mark.parametrize("in_python", ["", "for this test"])
def test_gradient_is_computed_from_value_and_gradient(in_python, sample):
    def log_density(q, data):
        return -0.5 * data * np.sum(q * q)

    model = refhmc.Model(2, log_density, value_and_gradient=normal_together, data=3.0, in_python=in_python)
    assert model.has("gradient")
    assert repr(model) == "<refhmc model 'model': 2 coordinates; gradient>"
    assert model.gradient([1.0, -2.0]).tolist() == [-3.0, 6.0]
    assert pickle.loads(pickle.dumps(refhmc.models.Banana())).has("gradient")
    few = {"draws": 20, "tune": 20, "chains": 1, "random_seed": 1}
    apart = refhmc.Model(2, log_density, lambda q, data: -data * q, data=3.0, in_python=in_python)
    assert np.array_equal(sample(model, **few).draws, sample(apart, **few).draws)


def test_gradient_is_computed_from_value_and_gradient_without_data():
    model = refhmc.Model(2, lambda q: -0.5 * np.sum(q * q), value_and_gradient=normal_together_without_data)
    assert model.gradient([1.0, -2.0]).tolist() == [-1.0, 2.0]


def test_gradient_or_value_and_gradient_must_be_given():
    with pytest.raises(
        ModelError, match=r"^gradient must be a function, unless value_and_gradient is given; got None\.$"
    ):
        refhmc.Model(2, log_density, None)


@pytest.mark.sweep
def test_models_can_be_pickled():
    for model in (refhmc.models.Funnel(4), refhmc.Model(3, log_density, gradient, data=DATA, names=["a", "b", "c"])):
        copy = pickle.loads(pickle.dumps(model))
        q = np.linspace(-1, 1, model.dim)
        assert copy.log_density(q) == model.log_density(q)
        assert copy.fingerprint() == model.fingerprint()
        assert copy.names == model.names


def scaled(scale):
    """Return a model whose functions close over ``scale`` and read a global when they are compiled."""

    def log_density(q, data):
        return -0.5 * scale * OFFSET[0] * np.sum(q * q)

    def gradient(q, data):
        return -scale * OFFSET[0] * q

    model = refhmc.Model(2, log_density, gradient)
    assert model.core.why_python is None
    return model


OFFSET = np.array([1.0])


@pytest.mark.sweep
def test_equal_functions_share_compiled_code(monkeypatch):
    """Other functions, or a changed global, are compiled again: values and gradients are those of the model."""
    q = np.array([0.5, -2.0])
    first, again, other = scaled(2.0), scaled(2.0), scaled(3.0)
    assert first.functions.log_density is not again.functions.log_density
    assert first.core.tuple[1] is again.core.tuple[1]
    monkeypatch.setitem(globals(), "OFFSET", np.array([7.0]))
    later = scaled(2.0)
    monkeypatch.undo()
    OFFSET[0], before = 5.0, OFFSET[0]
    try:
        written = scaled(2.0)
        for model, factor in ((first, 2.0), (again, 2.0), (other, 3.0), (later, 14.0), (written, 10.0)):
            value, gradient = model.core.value_and_gradient(q)
            assert value == -0.5 * factor * 4.25
            assert np.array_equal(gradient, -factor * q)
    finally:
        OFFSET[0] = before


@pytest.mark.parametrize("returned", [1, swept(3)])
def test_gradient_of_wrong_length_is_rejected(returned):
    model = refhmc.Model(2, lambda q, data: -0.5 * np.sum(q * q), lambda q, data: np.zeros(returned))
    with pytest.raises(ModelError, match=r"gradient must return.* shape \(2,\)"):
        refhmc.sample(model, refhmc.HMC(step_size=0.1, n_steps=1), draws=2, tune=0, chains=1, progressbar=False)


@pytest.mark.parametrize(
    "kind",
    [bool, np.uint8, np.int64, np.float64, *map(swept, [np.int16, np.int32, np.uint32, np.uint64, np.longlong])],
    ids=str,
)
def test_compiled_code_keeps_the_dtype_of_data(kind):
    """A mask selects, and integers wrap around, as in Python."""
    y, chosen = np.array([1.0, 20.0, 300.0]), np.array([0, 1, 1]).astype(kind)
    number = chosen[1]

    def log_density(q, data):
        y, chosen, number = data
        return -0.5 * q[0] * q[0] + np.sum(y[chosen]) + np.sum(-chosen) / 7 + number / 3

    def mask_density(q, data):
        y, chosen, number = data
        return -0.5 * q[0] * q[0] + np.sum(y[chosen]) + np.sum(y[~chosen]) / 7 + number / 3

    def floats_density(q, data):
        y, chosen, number = data
        return -0.5 * q[0] * q[0] + np.sum(y * chosen) + number / 3

    density = {bool: mask_density, np.float64: floats_density}.get(kind, log_density)
    model = refhmc.Model(1, density, lambda q, data: -q, data=(y, chosen, number))
    with np.errstate(over="ignore"):
        wanted = density(np.zeros(1), (y, chosen, number))
    assert not model.runs_as_python
    assert model.log_density(np.zeros(1)) == pytest.approx(wanted, rel=1e-14)
    alone = refhmc.Model(
        1, lambda q, chosen: -0.5 * q[0] ** 2 + np.sum(y[1:][chosen[1:] > 0]), lambda q, chosen: -q, data=chosen
    )
    assert alone.log_density(np.zeros(1)) == 320.0


def test_constrain_that_depends_on_all_rows_is_called_for_each_row():
    """A condition on all rows would give other values than calls for single rows."""

    def constrain(q):
        return {"x": np.where(np.any(q > 5), 0.0, 1.0) * q[..., 0]}

    model = refhmc.Model(3, log_density, gradient, data=DATA, constrain=constrain)
    q = np.random.default_rng(1).standard_normal((300, 3))
    q[200] = 9.0
    found = model.constrain(q)["x"]
    assert np.array_equal(found, np.where(np.arange(300) == 200, 0.0, q[:, 0]))
