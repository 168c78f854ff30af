"""Functions as users write them: helpers without decorators, partials, methods, objects, densities of q alone."""

from __future__ import annotations

import functools
import importlib
import math
import sys
import warnings

import numpy as np
import pytest

import refhmc
from refhmc import check
from refhmc.errors import ModelError, PythonModelWarning
from tests.helpers.sweeps import one_in

Y = np.array([1.0, 2.0, 4.0])


def square(x):
    return x * x


def residuals(q, y):
    return y - level(q)


def level(q):
    return q[0]


def helped_density(q, y):
    return -0.5 * np.sum(square(residuals(q, y))) - half_of(factorial(3)) * square(q[1])


def helped_gradient(q, y):
    return np.array([np.sum(residuals(q, y)), -2 * half_of(factorial(3)) * q[1]])


def half_of(n):
    return n / 2


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def density_at_scale(q, y, scale):
    return -0.5 * np.sum((y - q[0]) ** 2) / scale**2


def gradient_at_scale(q, y, scale):
    return np.array([np.sum(y - q[0]) / scale**2])


class Line:
    def __init__(self, scale):
        self.scale = scale

    def log_density(self, q, y):
        return density_at_scale(q, y, self.scale)

    def __call__(self, q, y):
        return gradient_at_scale(q, y, self.scale)


Q = np.array([0.3, -1.2])


@pytest.mark.sweep
def test_helpers_need_no_decorator():
    """Through several functions, one of them recursive."""
    model = refhmc.Model(2, helped_density, helped_gradient, data=Y)
    assert model.runs_as_python is None
    assert model.log_density(Q) == pytest.approx(helped_density(Q, Y), rel=1e-15)
    np.testing.assert_allclose(model.gradient(Q), helped_gradient(Q, Y), rtol=1e-15)


def test_helpers_in_a_closure_and_beside_functions_that_numba_knows():
    def cube(x):
        return x * square(x)

    def density(q):
        return -0.25 * q[0] * cube(q[0]) + math.erf(0.0)

    def gradient(q):
        return np.array([-cube(q[0])])

    model = refhmc.Model(1, density, gradient)
    assert model.runs_as_python is None
    check.model(model).assert_ok()


def density_first(scale, q, y):
    return density_at_scale(q, y, scale)


def gradient_first(scale, q, y):
    return gradient_at_scale(q, y, scale)


@pytest.mark.sweep
@pytest.mark.parametrize("words", [True, False])
def test_a_partial_is_compiled_with_what_it_binds(words):
    density = functools.partial(density_at_scale, scale=0.5) if words else functools.partial(density_first, 0.5)
    gradient = functools.partial(gradient_at_scale, scale=0.5) if words else functools.partial(gradient_first, 0.5)
    model = refhmc.Model(1, density, gradient, data=Y)
    assert model.runs_as_python is None
    assert model.log_density(Q[:1]) == pytest.approx(density_at_scale(Q, Y, 0.5), rel=1e-15)
    np.testing.assert_allclose(model.gradient(Q[:1]), gradient_at_scale(Q, Y, 0.5), rtol=1e-15)


@pytest.mark.sweep
def test_a_helper_called_within_a_comprehension():
    def log_density(q, y):
        return -sum([square(each - q[0]) for each in y]) / 2

    def gradient(q, y):
        return np.array([sum([residual for residual in residuals(q, y)])])

    model = refhmc.Model(1, log_density, gradient, data=Y)
    assert model.runs_as_python is None
    assert model.log_density(Q[:1]) == pytest.approx(log_density(Q, Y), rel=1e-15)


def keyword_density(q, y, *, scale):
    return density_at_scale(q, y, scale)


@pytest.mark.parametrize(
    "density", [functools.partial(keyword_density, scale=0.5), functools.partial(Line(0.5).log_density)]
)
def test_a_partial_that_cannot_be_compiled_runs_as_python(density):
    gradient = functools.partial(gradient_at_scale, scale=0.5)
    with pytest.warns(PythonModelWarning):
        model = refhmc.Model(1, density, gradient, data=Y)
        assert model.log_density(Q[:1]) == pytest.approx(density_at_scale(Q, Y, 0.5), rel=1e-15)


def test_methods_and_objects_run_as_python():
    line = Line(0.5)
    model = refhmc.Model(1, line.log_density, line, data=Y)
    with pytest.warns(PythonModelWarning, match="(?s)bound method.*python-models"):
        assert model.log_density(Q[:1]) == density_at_scale(Q, Y, 0.5)
    np.testing.assert_array_equal(model.gradient(Q[:1]), gradient_at_scale(Q, Y, 0.5))


@pytest.mark.sweep
@pytest.mark.parametrize(("in_python", "in_place"), one_in(2, ["", "to be seen"], [False, True]))
def test_a_model_without_data_needs_no_argument_for_them(in_python, in_place):
    """The standard normal in two dimensions, with everything that a metric reads, to third order."""

    def density(q):
        return -0.5 * np.sum(q * q) - 0.1 * q[0] ** 3

    def gradient(q):
        return -q - np.array([0.3 * q[0] ** 2, 0.0])

    def hessian(q):
        return np.array([[-1 - 0.6 * q[0], 0.0], [0.0, -1.0]])

    def hessian_contraction(q, M):
        return np.array([-0.6 * M[0, 0], 0.0])

    def gradient_into(q, out):
        out[0], out[1] = -q[0] - 0.3 * q[0] ** 2, -q[1]

    def hessian_into(q, out):
        out[0, 0], out[1, 1] = -1 - 0.6 * q[0], -1.0

    def trace_into(q, M, out):
        out[0] = -0.6 * M[0, 0]

    functions = (
        (gradient_into, hessian_into, None, trace_into) if in_place else (gradient, hessian, None, hessian_contraction)
    )
    model = refhmc.Model(2, density, *functions, in_python=in_python)
    assert (model.runs_as_python is None) == (not in_python)
    check.model(model).assert_ok()
    softabs = refhmc.metrics.SoftAbs(alpha=1.0)
    kernel = refhmc.HMC(metric=softabs, step_size=0.1, n_steps=2)
    result = refhmc.sample(
        model, kernel, draws=5, tune=0, chains=1, random_seed=1, raw=True, progressbar=False, initvals=[[0.1, 0.2]]
    )
    assert np.isfinite(result.draws).all()


@pytest.mark.sweep
def test_arguments_with_defaults_do_not_change_the_protocol():
    def density(q, y, scale=2.0):
        return density_at_scale(q, y, scale)

    def gradient(q, y, scale=2.0):
        return np.array([np.sum(y - q[0]) / scale**2])

    model = refhmc.Model(1, density, gradient, data=Y)
    assert model.runs_as_python is None
    np.testing.assert_allclose(model.gradient(Q[:1]), gradient(Q, Y), rtol=1e-15)


def test_data_must_be_taken_by_all_functions_or_none():
    def density(q):
        return -0.5 * q[0] ** 2

    def gradient(q, data):
        return -q

    with pytest.raises(ModelError, match="data.* log_density takes q"):
        refhmc.Model(1, density, lambda q: -q, data=Y)
    with pytest.raises(ModelError, match="gradient takes data|gradient.*data"):
        refhmc.Model(1, density, gradient)


@pytest.mark.parametrize(
    ("functions", "words"),
    [
        (
            {"gradient": lambda q: -q},
            r"gradient must take \(q, data\) or \(q, data, out\).*log_density takes \(q, data\)",
        ),
        (
            {"hessian_contraction": lambda q, data: -q},
            r"hessian_contraction must take \(q, data, M\) or \(q, data, M, out\).* takes 2",
        ),
        ({"value_and_gradient": lambda q, data: 0.0}, r"value_and_gradient must take \(q, data, out\)"),
        ({"log_density": lambda q, data, more: 0.0}, r"log_density must take \(q, data\).* takes 3"),
        ({"log_density": lambda q: 0.0, "gradient": lambda q, M, out: None}, r"gradient must take \(q\) or \(q, out\)"),
    ],
)
def test_wrong_arguments_are_reported_when_the_model_is_created(functions, words):
    given = {"log_density": lambda q, data: 0.0, "gradient": lambda q, data: -q, **functions}
    with pytest.raises(ModelError, match=words):
        refhmc.Model(2, **given)
    any_number = {"log_density": lambda *arguments: 0.0, "gradient": lambda *arguments: -arguments[0]}
    assert refhmc.Model(2, **any_number).dim == 2


def test_gradient_returned_by_an_in_place_function_is_rejected(sample):
    """A gradient of (q, y) with a density of q: y is the array to write to."""
    model = refhmc.Model(1, lambda q: -0.5 * q[0] ** 2, lambda q, y: -q)
    with pytest.raises(ModelError, match="gradient.*ndarray"):
        sample(model, draws=2, tune=2)


def test_helpers_in_the_users_modules_compile(tmp_path, monkeypatch):
    """Called through a module or a package with circular imports; changed code is compiled again."""
    package = tmp_path / "helpers_of_a_test"
    (package / "deeper").mkdir(parents=True)
    (package / "__init__.py").write_text("from helpers_of_a_test import deeper\n")
    (package / "deeper" / "__init__.py").write_text(
        "import helpers_of_a_test\nfrom helpers_of_a_test.deeper import normal\n"
    )
    text = "SCALE = 2.0\ndef scaled(x):\n    return x * SCALE\ndef lp(x):\n    return -0.5 * scaled(x) ** 2\n"
    (package / "deeper" / "normal.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("helpers_of_a_test")]:
        monkeypatch.delitem(sys.modules, name)
    helpers = importlib.import_module("helpers_of_a_test")
    normal = helpers.deeper.normal

    def density(q):
        return helpers.deeper.normal.lp(q[0]) + normal.lp(q[1]) + math.log(2.0)

    def gradient(q):
        return -q * normal.SCALE**2

    model = refhmc.Model(2, density, gradient)
    assert model.runs_as_python is None
    assert model.log_density(np.array([0.3, 0.2])) == pytest.approx(density(np.array([0.3, 0.2])), rel=1e-15)
    normal.SCALE = 3.0
    changed = refhmc.Model(2, density, gradient)
    assert changed.log_density(np.array([0.3, 0.2])) == pytest.approx(math.log(2.0) - 4.5 * 0.13, rel=1e-14)
    np.testing.assert_allclose(changed.gradient(np.array([0.3, 0.2])), [-2.7, -1.8], rtol=1e-14)


@pytest.mark.parametrize("error", [ZeroDivisionError, OverflowError])
def test_arithmetic_errors_are_divergences_as_in_compiled_code(error):
    def density(q):
        if q[0] > 1.0:
            return 1.0 / (q[0] - q[0]) if error is ZeroDivisionError else math.exp(1e3 + q[0])
        return -0.5 * float(q[0]) ** 2

    model = refhmc.Model(1, lambda q: density([float(q[0])]), lambda q: -q, in_python="to be seen")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = refhmc.sample(
            model, draws=200, tune=50, chains=1, random_seed=1, raw=True, progressbar=False, initvals=[[0.0]]
        )
    assert result.draws.max() <= 1.0
    (failure,) = result.attributes["evaluation_failures"]
    assert failure["message"].startswith(error.__name__)
    assert failure["first_position"][0] > 1.0
