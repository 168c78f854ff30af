"""Every derivative of every model compared with the complex step of the order below it.

The complex step, Im f(q + i h e_k) / h with h = 1e-30, has no truncation and no cancellation error. It runs the Python code
of the model on complex numbers (``refhmc.compile.compiled.plain``). Each order is thus compared with the one below it, down to
the log density, which the tests of each model compare with independent implementations.

The tolerance is 1e-9 of the *scale*: the largest entry, by either computation, of the gradient, or of the slice [..., k] of a
higher tensor, where k is the direction of the step. A single entry may cancel, but the largest one has the size of its
terms. Two evaluations of the same order differ by rounding only. They must agree to 1e-12 of the largest entry of that order
and those below it, because these have the size of its terms: the third derivative in log x is x^3 L''' + 3 x^2 L'' + x L',
and the gradient is x L'. (For GARCH at a large alpha0 the three terms, of size 5 to 16, cancel to 2e-3: ``CANCELS``.)
Rounding errors of a Gaussian process are multiplied by the condition number of its covariance, so its positions are moved to
places with a moderate condition number (``MOVED``).
"""

from __future__ import annotations

import functools
import importlib
import itertools
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refhmc import models
from refhmc.errors import MissingDerivativeError
from tests.helpers.derivatives import SERIES, SIZES, assert_close, call_plain, complex_step
from tests.helpers.random_cases import cases
from tests.helpers.sweeps import every, one_in, swept

CAUGHT = {"n": [9, 12, 7, 5], "R": [9, 11, 7], "r": [5, 6, 2], "m": [0, 4, 5, 4]}


def normal_2d():
    return np.array([1.0, -2.0, 0.5]), np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.4], [0.0, -0.4, 0.5]])


def small_regression():
    rng = np.random.default_rng(1)
    X = np.column_stack([np.ones(12), rng.standard_normal((12, 3))])
    return X, (rng.random(12) < 0.5).astype(float)


def grouped():
    rng = np.random.default_rng(2)
    return {"y": rng.standard_normal(9), "group": [0, 0, 1, 2, 2, 2, 3, 1, 0], "X": rng.standard_normal((9, 2))}


def few_rows(n):
    rng = np.random.default_rng(n)
    return {"X": rng.standard_normal((n, 3)), "y": rng.standard_normal(n), "global_scale": 0.3}


# name -> (module, constructor, arguments, positional or by name). Data are small if the functions are slow as Python; the
# included data sets use the same functions.
MODELS = {
    "funnel": ("funnel", "Funnel", lambda: {"n": 3}),
    "gaussian": ("gaussian", "Gaussian", lambda: dict(zip(("mean", "covariance"), normal_2d(), strict=True))),
    "gaussian-diagonal": ("gaussian", "Gaussian", lambda: {"mean": 0.5, "covariance": np.diag([1.0, 4.0, 0.1])}),
    "banana": ("banana", "Banana", dict),
    "logistic-regression": (
        "logistic_regression",
        "LogisticRegression",
        lambda: dict(zip("Xy", small_regression(), strict=True)),
    ),
    "breast-cancer": ("logistic_regression", "BreastCancer", dict),
    "eight-schools-noncentred": ("eight_schools", "EightSchools", dict),
    "eight-schools-centred": ("eight_schools", "EightSchools", lambda: {"centered": True}),
    "linear-regression": ("linear_regression", "LinearRegression", dict),
    "varying-intercepts": ("hierarchical_regression", "VaryingIntercepts", grouped),
    "varying-intercepts-centred": (
        "hierarchical_regression",
        "VaryingIntercepts",
        lambda: {"centered": True, **grouped()},
    ),
    "horseshoe": ("hierarchical_regression", "Horseshoe", lambda: {"centered": False, **few_rows(2)}),
    "horseshoe-centred": ("hierarchical_regression", "Horseshoe", lambda: {"centered": True, **few_rows(5)}),
    "ar": ("ar", "AR", dict),
    "ar-2": ("ar", "AR", lambda: {"y": SERIES, "K": 2}),
    "garch": ("garch", "GARCH", lambda: {"y": SERIES, "sigma1": 0.8}),
    "gaussian-mixture": ("gaussian_mixture", "GaussianMixture", lambda: {"y": SERIES}),
    "gaussian-process": ("gaussian_process_regression", "GaussianProcessRegression", dict),
    "stochastic-volatility": ("stochastic_volatility", "StochasticVolatility", lambda: {"y": SERIES[:5]}),
    "jolly-seber": ("jolly_seber", "JollySeber", lambda: {**CAUGHT, "sigma_B": 20.0, "U_max": 300}),
    "change-point": ("change_point", "ChangePoint", lambda: {"y": [3, 5, 2, 4, 6, 1, 0, 1, 2, 0], "changes": 2}),
    "closed-population": ("closed_population", "ClosedPopulation", dict),
}
# Constructors that are not in the table, and the files that test their derivatives.
ELSEWHERE = {
    "Diabetes": "the functions of LogisticRegression",
    "Heart": "the functions of LogisticRegression",
    "ODE": "tests/models/test_models_ode.py",
    "FitzHughNagumo": "tests/models/test_models_ode.py",
    **dict.fromkeys(
        ("MLP", "SoftmaxRegression", "CNN", "RegressionNetwork", "SplitModel"), "tests/models/test_networks.py"
    ),
    "CellGrid": "no smooth coordinate",
    "PACBayesClassifier": "no smooth coordinate",
}
SLOW_AS_PYTHON = {"breast-cancer"}


def well_conditioned_process(q):
    """Increase log sigma until the condition number of K, at most 1 + 11 alpha^2 / sigma, is at most 1e3."""
    return np.array([q[0], q[1], max(q[2], 2 * q[1] - 4.5)])


def in_the_start_s_cell(name):
    """Move the smooth coordinates and keep the others in the cell of the start: derivatives are those at a fixed cell."""

    def moved(q):
        model = model_of(name)
        place, jumps = np.array(q), model.discontinuous
        place[jumps] = model.initial[jumps]
        return place

    return moved


MOVED = {"gaussian-process": well_conditioned_process}
MOVED |= {name: in_the_start_s_cell(name) for name in ("jolly-seber", "change-point", "closed-population")}


@functools.cache
def model_of(name):
    module, constructor, arguments = MODELS[name]
    return getattr(importlib.import_module(f"refhmc.models.{module}"), constructor)(**arguments())


# ----------------------------------------------------------------------------------------------------------- positions


def vectors(d, low, high):
    return st.lists(st.floats(low, high), min_size=d, max_size=d).map(np.array)


def near_zero(d):
    signed = st.builds(lambda sign, e: sign * 10.0**e, st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-16, -3))
    return st.lists(signed, min_size=d, max_size=d).map(np.array)


def degenerate(d):
    """Return positions with all coordinates equal, one non-zero, one zero, and two alternating values."""
    value = st.sampled_from([-6.0, -1.0, 0.0, 1.0, 6.0])
    index = st.integers(0, d - 1)
    return st.one_of(
        value.map(lambda c: np.full(d, c)),
        st.builds(lambda c, i: c * np.eye(d)[i], value, index),
        st.builds(lambda c, i: c * (1 - np.eye(d)[i]), value, index),
        st.builds(lambda a, b: np.where(np.arange(d) % 2 == 0, a, b), value, value),
    )


CANCELS = {"garch": [0.0, 9.5, 8.0, 0.0]}  # third derivatives whose terms are thousands of times as large

KINDS = {
    "random": lambda d: vectors(d, -2.0, 2.0),
    "large": lambda d: vectors(d, -15.0, 15.0),
    "near zero": near_zero,
    "degenerate": degenerate,
}


# By default, models that compile quickly.
SEEN = ["funnel", "banana", "eight-schools-noncentred", "eight-schools-centred", "linear-regression"]
SEEN += ["varying-intercepts-centred", "horseshoe", "change-point", "jolly-seber"]
CASES = [
    *one_in(4, SEEN, KINDS),
    *(swept(name, kind) for name in MODELS if name not in SEEN for kind in KINDS),
]


def at_positions(test):
    """Run ``test(model, q, rng)`` for every model at positions of all four kinds (by default some models, each at one)."""

    @pytest.mark.parametrize(("name", "kind"), CASES)
    def run(name, kind):
        model = model_of(name)

        @cases(3 if name in SLOW_AS_PYTHON else 12)
        @given(q=KINDS[kind](model.dim), seed=st.integers(0, 2**32 - 1))
        def check(q, seed):
            test(model, MOVED.get(name, np.array)(q), np.random.default_rng(seed))

        if name in CANCELS:
            check = example(q=np.array(CANCELS[name]), seed=0)(check)
        check()

    run.__doc__ = test.__doc__
    return run


# ---------------------------------------------------------------------------------------------------------- comparison


def compiled(model, key, q, *M):
    return getattr(model, key)(q, *M)


ORDERS = {
    "gradient": "log_density",
    "hessian": "gradient",
    "third_derivative": "hessian",
    "fisher_derivative": "fisher",
}


@at_positions
def test_each_order_is_the_complex_step_of_the_one_below(model, q, rng):
    for key, below in ORDERS.items():
        if model.has(key):
            assert_close(q, compiled(model, key, q), complex_step(model, below, q), what=key, by_direction=True)


@at_positions
def test_contractions_agree_with_full_derivatives(model, q, rng):
    M = rng.standard_normal((model.dim, model.dim))  # not symmetric
    for key, full in {"hessian_contraction": "third_derivative", "fisher_contraction": "fisher_derivative"}.items():
        if model.has(key):
            tensor = compiled(model, full, q)
            contraction = np.einsum("ij,ijk->k", M, tensor)
            scale = np.abs(tensor).max()
            hessian_contraction = compiled(model, key, q, M)
            # The sum may cancel; its terms are as large as the entries of the tensor.
            assert_close(q, np.append(hessian_contraction, scale), np.append(contraction, scale), what=key)


@at_positions
def test_symmetry(model, q, rng):
    for key in ("hessian", "fisher"):
        if model.has(key):
            H = compiled(model, key, q)
            assert_close(q, H, H.T, 1e-12, what=key)
    if model.has("third_derivative"):
        T = compiled(model, "third_derivative", q)
        for axes in itertools.permutations(range(3)):
            assert_close(q, T, T.transpose(axes), 1e-12, what="third_derivative")
    if model.has("fisher_derivative"):
        T = compiled(model, "fisher_derivative", q)
        assert_close(q, T, T.transpose(1, 0, 2), 1e-12, what="fisher_derivative")


@at_positions
def test_compiled_functions_agree_with_python_and_with_each_other(model, q, rng):
    M = rng.standard_normal((model.dim, model.dim))
    L, gradient = model.log_density(q), model.gradient(q)
    together = model.core.value_and_gradient(q)
    assert_close(q, together[0], L, 1e-12, what="value_and_gradient's value")
    assert_close(q, together[1], gradient, 1e-12, what="value_and_gradient's gradient")
    assert_close(q, L, call_plain(model, "log_density", q), 1e-12, what="log_density")
    scales = {}
    for key in SIZES:
        if not model.has(key):
            continue
        tensor = compiled(model, key, q)
        scale = scales[key] = max(np.abs(tensor).max(), scales.get(ORDERS.get(key), 0.0))
        if key == "gradient" or getattr(model.functions, key) is not None:
            assert_close(q, np.append(tensor, scale), np.append(call_plain(model, key, q), scale), 1e-12, what=key)
        contraction = {"third_derivative": "hessian_contraction", "fisher_derivative": "fisher_contraction"}.get(key)
        if contraction is not None and getattr(model.functions, contraction) is not None:
            actual, expected = compiled(model, contraction, q, M), call_plain(model, contraction, q, M)
            assert_close(q, np.append(actual, scale), np.append(expected, scale), 1e-12, what=contraction)


CONSTRUCTORS = [name for name in models.__all__ if name[0].isupper() and name != "ODESolution"]  # not a model
WITHOUT = {
    "SplitModel": ("hessian", "third_derivative", "hessian_contraction"),
    "CellGrid": ("hessian", "third_derivative", "hessian_contraction"),
    "PACBayesClassifier": ("hessian", "third_derivative", "hessian_contraction"),
    "ODE": (
        "third_derivative",
        "hessian_contraction",
    ),  # without the third derivatives of the right-hand side, which are an option
}


def decay():
    return {
        "rhs": lambda t, x, theta: -theta[0] * x,
        "jacobian": lambda t, x, theta: np.array([[-theta[0], -x[0]]]),
        "hessian": lambda t, x, theta: np.array([[[0.0, -1.0], [-1.0, 0.0]]]),
        "initial_state": [1.0],
        "times": [0.0, 1.0],
        "y": [[1.0], [0.5]],
        "sigma": 0.1,
        "prior_mean": [1.0],
    }


def rows():
    return {"X": np.random.default_rng(0).normal(size=(4, 2)), "y": [0, 1, 1, 0]}


# Arguments of the models without default data.
GIVEN = {
    "ODE": decay,
    "MLP": lambda: {"widths": [2, 3, 2], **rows()},
    "SoftmaxRegression": rows,
    "CNN": lambda: {"X": np.ones((2, 6, 6)), "y": [0, 1], "channels": [1], "dense": [], "side": 3},
    "RegressionNetwork": lambda: {"widths": [3]},
    "SplitModel": lambda: {"parts": [models.Funnel(2), models.Funnel(2)]},
}


@pytest.mark.parametrize("constructor", every(6, CONSTRUCTORS))
def test_every_model_has_every_order_or_a_reason(constructor):
    """Hessian, third derivative and contraction of each constructor in ``refhmc.models``; exceptions are listed here."""
    tried = {home: arguments for _, home, arguments in reversed(MODELS.values())}
    model = getattr(models, constructor)(**tried.get(constructor, GIVEN.get(constructor, dict))())
    q = model.initial if isinstance(model.initial, np.ndarray) else np.full(model.dim, 0.1)
    lacking = []
    for key in ("hessian", "third_derivative", "hessian_contraction"):
        arguments = (q, np.eye(model.dim)) if key == "hessian_contraction" else (q,)
        if model.has(key):
            assert model.why_absent(key) == ""
            assert np.isfinite(getattr(model, key)(*arguments)).all()
        else:
            lacking.append(key)
            assert model.why_absent(key)
            with pytest.raises(MissingDerivativeError, match=re.escape(model.why_absent(key))):
                getattr(model, key)(*arguments)
    assert tuple(lacking) == WITHOUT.get(constructor, ())
    if len(model.discontinuous) == model.dim:
        assert "all its coordinates are discontinuous" in model.why_absent("third_derivative")


def test_every_model_is_in_the_table_above():
    assert {home for _, home, _ in MODELS.values()} | set(ELSEWHERE) == set(CONSTRUCTORS)


@pytest.mark.parametrize("name", MODELS)
def test_the_fisher_metric_comes_with_its_derivatives(name):
    model = model_of(name)
    fisher = [model.has(key) for key in ("fisher", "fisher_derivative", "fisher_contraction")]
    assert all(fisher) or not any(fisher)
    # No closed form, or a density that jumps.
    without = {"garch", "gaussian-mixture"}
    assert any(fisher) != (name in without or len(model.discontinuous) > 0)


@pytest.mark.parametrize("name", every(3, MODELS))
def test_fisher_metric_is_positive_definite(name):
    model = model_of(name)
    if not model.has("fisher"):
        return
    rng = np.random.default_rng(3)
    for _ in range(20):
        eigenvalues = np.linalg.eigvalsh(model.fisher(rng.uniform(-2, 2, model.dim)))
        assert eigenvalues[0] > -1e-12 * eigenvalues[-1]
