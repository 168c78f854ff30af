"""SymPy's derivatives of built-in models against those by hand, errors, and what the generated text is.

Every model whose log density is a formula of few lines is here. Not here: those whose density jumps (JollySeber, ChangePoint,
PACBayesClassifier), is the solution of a differential equation (ODE, FitzHughNagumo) or of linear equations in the
coordinates (GaussianProcessRegression), and the convolutional network. GARCH's variance is a recursion, which is written out
here for a series of four; an MLP has two hidden units. Skipped without SymPy.
"""

from __future__ import annotations

import inspect
import math
import os
import pickle
import re
import subprocess
import sys
import traceback

import mpmath
import numpy as np
import pytest

import refhmc
from refhmc import check
from tests.helpers.places import ROOT

sympy = pytest.importorskip("sympy", reason="SymPy is not installed (extra sympy)")

from refhmc.derived.from_sympy import functions_of  # noqa: E402
from refhmc.derived.stable import expit, logaddexp, softplus, stable  # noqa: E402

i, j, k, n = sympy.symbols("i j k n", integer=True)
X, y = sympy.IndexedBase("X"), sympy.IndexedBase("y")
exp, log, Sum, Symbol = sympy.exp, sympy.log, sympy.Sum, sympy.Symbol
rng = np.random.default_rng(1)
INPUTS = rng.standard_normal((30, 3))
LABELS = (rng.random(30) < 0.5).astype(int)


def vector(name, d):
    return sympy.IndexedBase(name, shape=(d,))


# --------------------------------------------------------------------------------------------- models, here and there


def banana():
    t1, t2 = sympy.symbols("theta_1 theta_2")
    L = -Sum((y[i] - t1 - t2**2) ** 2, (i, 0, n - 1)) / 8 - (t1**2 + t2**2) / 8
    observed = rng.normal(1, 2, 20)
    return refhmc.from_sympy(L, data={y: observed}), refhmc.models.Banana(observed)


def schools(centered=True):
    mu, u, theta, sigma = Symbol("mu"), Symbol("u"), vector("theta", 8), sympy.IndexedBase("sigma")
    school = theta[j] if centered else mu + exp(u) * theta[j]
    of_school = -((theta[j] - mu) ** 2) * exp(-2 * u) / 2 - u if centered else -(theta[j] ** 2) / 2
    L = Sum(of_school - ((y[j] - school) / sigma[j]) ** 2 / 2, (j, 0, 7)) - mu**2 / 50 - log(2 * sympy.cosh(u - log(5)))
    data = {"y": [28.0, 8, -3, 7, -1, 1, 18, 12], "sigma": [15.0, 10, 16, 11, 9, 11, 10, 18]}
    return refhmc.from_sympy(L, [theta, mu, u], data=data), refhmc.models.EightSchools(centered=centered)


def logistic(inputs=INPUTS, labels=LABELS):
    d = inputs.shape[1]
    beta = vector("beta", d)
    eta = Sum(X[i, j] * beta[j], (j, 0, d - 1))
    L = Sum(y[i] * eta - log(1 + exp(eta)), (i, 0, n - 1)) - Sum(beta[j] ** 2, (j, 0, d - 1)) / 2
    return refhmc.from_sympy(L, data={"X": inputs, "y": labels}), refhmc.models.LogisticRegression(inputs, labels)


def funnel():
    v, x = Symbol("v"), vector("x", 10)
    return refhmc.from_sympy(-(v**2) / 18 + 5 * v - exp(v) * Sum(x[i] ** 2, (i, 0, 9)) / 2), refhmc.models.Funnel(10)


def gaussian():
    """Each pair of coordinates, in a nested loop."""
    mean, root = rng.standard_normal(4), rng.standard_normal((4, 4))
    P, m, x = sympy.IndexedBase("P"), sympy.IndexedBase("m"), vector("x", 4)
    covariance = root @ root.T + np.eye(4)
    L = -Sum(P[i, j] * (x[i] - m[i]) * (x[j] - m[j]), (j, 0, 3), (i, 0, 3)) / 2
    data = {"P": np.linalg.inv(covariance), "m": mean}
    return refhmc.from_sympy(L, data=data), refhmc.models.Gaussian(mean, covariance)


def half_cauchy(u):
    return -log(2 * sympy.cosh(u - log(sympy.Rational(5, 2))))


def linear():
    beta, u = vector("beta", 3), Symbol("u")
    r = y[i] - Sum(X[i, j] * beta[j], (j, 0, 2))
    L = half_cauchy(u) - n * u - exp(-2 * u) / 2 * Sum(r**2, (i, 0, n - 1))
    observed = rng.standard_normal(30)
    return refhmc.from_sympy(L, data={"X": INPUTS, "y": observed}), refhmc.models.LinearRegression(INPUTS, observed)


def autoregression():
    alpha, beta, u = Symbol("alpha"), vector("beta", 5), Symbol("u")
    r = y[i] - alpha - Sum(y[i - k] * beta[k - 1], (k, 1, 5))
    L = Sum(-u - r**2 * exp(-2 * u) / 2, (i, 5, n - 1)) - alpha**2 / 200 - Sum(beta[k] ** 2, (k, 0, 4)) / 200
    series = rng.standard_normal(40).cumsum()
    return refhmc.from_sympy(L + half_cauchy(u), data={"y": series}), refhmc.models.AR(series, 5)


def mixture():
    q = mu, gap, s1, s2, t = sympy.symbols("mu gap s1 s2 t")
    means, scales, weights = (mu, mu + exp(gap)), (s1, s2), (-softplus(-t), -softplus(t))
    one, other = (w - s - ((y[i] - m) * exp(-s)) ** 2 / 2 for m, s, w in zip(means, scales, weights, strict=True))
    prior = sum(-(m**2) / 8 - exp(2 * s) / 8 + s for m, s in zip(means, scales, strict=True)) + gap
    L = Sum(log(exp(one) + exp(other)), (i, 0, n - 1)) + prior + 5 * (weights[0] + weights[1])
    observed = np.r_[rng.normal(-2, 1, 20), rng.normal(2, 0.5, 30)]
    return refhmc.from_sympy(L, q, data={"y": observed}), refhmc.models.GaussianMixture(observed)


def volatility():
    T = 12
    x, (u, g, a) = vector("x", T), sympy.symbols("u g a")
    phi = sympy.tanh(a)
    L = Sum(-u - x[i] / 2 - y[i] ** 2 * exp(-x[i] - 2 * u) / 2, (i, 0, n - 1))
    L += Sum(-g - (x[i] - phi * x[i - 1]) ** 2 * exp(-2 * g) / 2, (i, 1, n - 1))
    L += -g + log(1 - phi**2) / 2 - x[0] ** 2 * (1 - phi**2) * exp(-2 * g) / 2
    L += -10 * g - exp(-2 * g) / 4 + 20 * log(1 + phi) + sympy.Rational(3, 2) * log(1 - phi)
    series = rng.standard_normal(T)
    return refhmc.from_sympy(L, [x, u, g, a], data={"y": series}), refhmc.models.StochasticVolatility(series)


def softmax():
    W, b = vector("W", 9), vector("b", 3)
    hits = sympy.IndexedBase("hits")
    f = [b[c] + Sum(X[i, j] * W[3 * c + j], (j, 0, 2)) for c in range(3)]
    row = sum(hits[i, c] * f[c] for c in range(3)) - log(sum(map(exp, f)))
    L = Sum(row, (i, 0, n - 1)) - Sum(W[j] ** 2, (j, 0, 8)) / 2 - Sum(b[j] ** 2, (j, 0, 2)) / 2
    labels = rng.integers(3, size=30)
    labels[:3] = range(3)
    model = refhmc.from_sympy(L, [W, b], data={"X": INPUTS, "hits": np.eye(3)[labels]})
    return model, refhmc.models.SoftmaxRegression(INPUTS, labels)


def network():
    q = w1, w2, b1, b2, v1, v2, c = sympy.symbols("w1 w2 b1 b2 v1 v2 c")
    x = sympy.IndexedBase("x")
    f = v1 * sympy.tanh(w1 * x[i] + b1) + v2 * sympy.tanh(w2 * x[i] + b2) + c
    L = -Sum((y[i] - f) ** 2, (i, 0, n - 1)) / 2 - sum(each**2 for each in q) / 2
    observed = rng.standard_normal(15)
    model = refhmc.from_sympy(L, q, data={"x": INPUTS[:15, 0], "y": observed})
    return model, refhmc.models.MLP([1, 2, 1], INPUTS[:15, :1], observed)


def garch():
    """The recursion written out for four values, without vectors, at known places."""
    q = mu, a, s, t = sympy.symbols("mu a s t")
    series, sigma1 = np.array([0.4, -1.1, 0.7, 2.0]), 0.9
    alpha1, r = 1 / (1 + exp(-s)), 1 / (1 + exp(-t))
    h, L = sigma1**2, a + log(alpha1) + 2 * log(1 - alpha1) + log(r) + log(1 - r)
    for m in range(4):
        L += -log(h) / 2 - (Symbol(f"y{m}") - mu) ** 2 / (2 * h)
        h = exp(a) + alpha1 * (Symbol(f"y{m}") - mu) ** 2 + r * (1 - alpha1) * h
    data = {f"y{m}": value for m, value in enumerate(series)}
    return refhmc.from_sympy(L, q, data=data), refhmc.models.GARCH(series, sigma1)


SOME = {"banana": banana}
OTHERS = {
    **{"eight schools": schools, "logistic regression": logistic},
    **{"funnel": funnel, "eight schools, non-centred": lambda: schools(False), "gaussian": gaussian},
    **{"linear regression": linear, "autoregression": autoregression, "gaussian mixture": mixture},
    **{"stochastic volatility": volatility, "softmax regression": softmax, "network": network, "garch": garch},
}
CASES = [*SOME.items(), *(pytest.param(*each, marks=pytest.mark.sweep, id=each[0]) for each in OTHERS.items())]


@pytest.mark.parametrize(("name", "make"), CASES)
def test_the_derivatives_by_hand_are_those_of_sympy(name, make):
    """Agreement to 1e-10 of the largest entry, at four points of the bulk and three towards the edge."""
    derived, by_hand = make()
    assert derived.dim == by_hand.dim
    assert derived.runs_as_python is None
    d, points = derived.dim, np.random.default_rng(2)
    origin = np.full(d, 0.1)
    far = [points.normal(0, 1, d) + c for c in (3.0, -3.0)] + [points.normal(0, 4, d)]
    for q in [*points.normal(0, 1, (4, d)), *far]:
        M = points.standard_normal((d, d))
        change = derived.log_density(q) - derived.log_density(origin)
        scale = max(abs(by_hand.log_density(q)), abs(by_hand.log_density(origin)), 1.0)
        assert change == pytest.approx(by_hand.log_density(q) - by_hand.log_density(origin), abs=1e-11 * scale)
        for key, arguments in {
            "gradient": (),
            "hessian": (),
            "third_derivative": (),
            "hessian_contraction": (M,),
        }.items():
            theirs, ours = getattr(derived, key)(q, *arguments), getattr(by_hand, key)(q, *arguments)
            np.testing.assert_allclose(
                theirs, ours, rtol=0, atol=1e-10 * abs(ours).max() + 1e-300, err_msg=f"{key} at {q}"
            )


@pytest.mark.sweep
def test_it_passes_the_kit_and_rmhmc_runs_on_it():
    """Means and variances of a skewed density of one coordinate by quadrature: false alarm 4e-5 (two z's below 4.3)."""
    x = Symbol("x")
    model = refhmc.from_sympy(x - exp(x) / 2 - x**2 / 8)
    check.model(model).assert_ok()
    softabs = refhmc.HMC(metric=refhmc.metrics.SoftAbs(alpha=10.0), step_size=0.3, n_steps=5)
    draws = refhmc.sample(model, softabs, random_seed=1, progressbar=False, raw=True).draws[..., 0]
    grid = np.linspace(-30, 10, 200_001)
    weights = np.exp(grid - np.exp(grid) / 2 - grid**2 / 8)
    mean = weights @ grid / weights.sum()
    for values, exact in ((draws, mean), ((draws - mean) ** 2, weights @ (grid - mean) ** 2 / weights.sum())):
        error = values.std() / np.sqrt(refhmc.diagnostics.ess(values[..., None])[0])
        assert abs(values.mean() - exact) < 4.3 * error


def assert_written_out(model, L, q, at):
    """Compare gradient, Hessian, third derivative and contraction with SymPy's of the expression L in symbols q."""
    values, M = dict(zip(q, at, strict=True)), np.random.default_rng(3).standard_normal((len(q), len(q)))
    g = np.array([L.diff(a).subs(values) for a in q], dtype=float)
    H = np.array([[L.diff(a, b).subs(values) for b in q] for a in q], dtype=float)
    T = np.array([[[L.diff(a, b, c).subs(values) for c in q] for b in q] for a in q], dtype=float)
    np.testing.assert_allclose(model.gradient(at), g, rtol=1e-12)
    np.testing.assert_allclose(model.hessian(at), H, rtol=1e-12)
    np.testing.assert_allclose(model.third_derivative(at), T, rtol=1e-12)
    np.testing.assert_allclose(model.hessian_contraction(at, M), np.einsum("ij,ijk->k", M, T), rtol=1e-11)


@pytest.mark.sweep
def test_entries_that_may_be_the_same_place_are_added_twice():
    """x[a[i]] x[b[i]] with a = b in a row."""
    x, a, b = vector("x", 3), sympy.IndexedBase("a"), sympy.IndexedBase("b")
    places = np.array([[0, 0, 1, 2], [0, 1, 1, 0]])
    model = refhmc.from_sympy(-Sum(exp(x[a[i]] * x[b[i]]), (i, 0, n - 1)), data={"a": places[0], "b": places[1]})
    q = [Symbol(f"q{m}") for m in range(3)]
    assert_written_out(model, -sum(exp(q[p] * q[r]) for p, r in places.T), q, np.array([0.3, -0.8, 0.5]))


@pytest.mark.sweep
def test_linear_forms_with_entries_of_their_vectors():
    """Two forms of one vector, an entry of it, and scalars at lower and higher places, in two kinds of rows."""
    x, (s, t), m = vector("x", 3), sympy.symbols("s t"), Symbol("m", integer=True)
    weights, z = sympy.IndexedBase("weights"), sympy.IndexedBase("z")
    rows, others, more = rng.standard_normal((4, 3)), rng.standard_normal(3), rng.standard_normal(2)

    def density(x, X, weights, y, z, form, over_rows, over_others):
        same, of_row = form(lambda j: weights[j] * x[j]), lambda i: form(lambda j: X(i, j) * x[j])
        L = over_rows(lambda i: sympy.sin(of_row(i) * same) * s + t * of_row(i) ** 2 * x[1] * y[i])
        return L - over_others(lambda i: exp(same * z[i] + s * t)) - s**2

    def total(first, last, index):
        return lambda term: Sum(term(index), (index, first, last))

    given = density(x, lambda i, j: X[i, j], weights, y, z, total(0, 2, j), total(0, n - 1, i), total(0, m - 1, i))
    data = {"X": rows, "weights": others, "y": rows[:, 0], "z": more}
    model = refhmc.from_sympy(given, [s, x, t], data=data)
    q = [Symbol(f"q{each}") for each in range(3)]

    def sums(count):
        return lambda term: sum(term(index) for index in range(count))

    L = density(q, lambda i, j: rows[i, j], others, rows[:, 0], more, sums(3), sums(4), sums(2))
    assert_written_out(model, L, [s, *q, t], np.array([0.4, 0.3, -0.8, 0.5, -0.3]))


@pytest.fixture(scope="module")
def logistic_and_exponential():
    x = Symbol("x")
    return refhmc.from_sympy(x / 3 - log(1 + exp(x)) + log(exp(-x) + 2 * exp(x / 2)) - x**2 / 10**6)


@pytest.mark.sweep
@pytest.mark.parametrize("at", [-800.0, -30.0, 0.0, 1e-9, 30.0, 800.0])
def test_no_overflow_far_out(logistic_and_exponential, at):
    """Plain exp and log agree to 1e-13 with mpmath's derivatives in 60 digits."""
    model = logistic_and_exponential

    def exact(t):
        return t / 3 - mpmath.log(1 + mpmath.exp(t)) + mpmath.log(mpmath.exp(-t) + 2 * mpmath.exp(t / 2)) - t**2 / 10**6

    q, M = np.array([at]), np.ones((1, 1))
    with mpmath.workdps(60):
        orders = [float(mpmath.diff(exact, mpmath.mpf(at), m)) for m in range(4)]
    found = [model.log_density(q), *(f(q).item() for f in (model.gradient, model.hessian, model.third_derivative))]
    np.testing.assert_allclose(found, orders, rtol=1e-13, atol=1e-17)
    assert model.hessian_contraction(q, M)[0] == pytest.approx(orders[3], rel=1e-13, abs=1e-17)


def test_stable_forms_are_the_same_functions():
    x, z = sympy.symbols("x z", real=True)
    for plain, form in {
        1 / (1 + exp(-x)): expit(x),
        exp(2 * x) / (1 + exp(x)) ** 3: expit(x) ** 2 * expit(-x),
        log(1 + 3 * exp(x)): softplus(x + log(3)),
        log(exp(x) + exp(z)): logaddexp(x, z),
        log(1 - 1 / (1 + exp(-x))): -softplus(x),
        1 - sympy.tanh(x) ** 2: 4 * expit(2 * x) * expit(-2 * x),
    }.items():
        assert sympy.expand(stable(plain) - form) == 0
        at = {x: 0.3, z: -1.2}
        assert float(plain.subs(at)) == pytest.approx(float(form.subs(at)), rel=1e-14)


@pytest.mark.sweep
def test_gamma_functions_and_counts():
    """A negative binomial's derivatives by its size, against mpmath's."""
    u, counts = Symbol("u"), np.array([0.0, 3, 7])
    row = sympy.loggamma(y[i] + exp(u)) - log(sympy.gamma(exp(u))) + exp(u) * u - (y[i] + exp(u)) * log(4 + exp(u))
    model = refhmc.from_sympy(Sum(row, (i, 0, n - 1)), data={"y": counts})

    def exact(t):
        r = mpmath.exp(t)
        return sum(mpmath.loggamma(c + r) - mpmath.loggamma(r) + r * t - (c + r) * mpmath.log(4 + r) for c in counts)

    for at in (-3.0, 0.4, 6.0):
        with mpmath.workdps(40):
            orders = [float(mpmath.diff(exact, at, m)) for m in range(4)]
        q = np.array([at])
        found = [model.log_density(q), *(f(q).item() for f in (model.gradient, model.hessian, model.third_derivative))]
        np.testing.assert_allclose(found, orders, rtol=1e-9)


# ------------------------------------------------------------------------------------------------------- the text


def test_code_has_loops_and_is_reproducible():
    one, other = logistic()[0], logistic(np.tile(INPUTS, (40, 1)), np.tile(LABELS, 40))[0]
    assert one.source == other.source == logistic()[0].source
    assert one.fingerprint() != other.fingerprint()
    assert len(one.source.splitlines()) < 140
    assert max(map(len, one.source.splitlines())) <= 120
    for key in ("log_density", "gradient", "hessian", "third_derivative", "hessian_contraction"):
        text = re.search(rf"def {key}\(.*?(?=\ndef |\Z)", one.source, re.DOTALL)[0]
        assert "for i in range(n):" in text
        assert "X[i, j]*beta[j]" in text


def test_inspect_and_tracebacks_show_the_code():
    functions = functions_of(banana()[0].source)
    assert inspect.getsource(functions["hessian_contraction"]) in banana()[0].source
    with pytest.raises(ValueError, match="unpack") as caught:
        functions["gradient"](np.zeros(3), (np.zeros(2),), np.zeros(3))
    assert "theta_1, theta_2 = q" in "".join(traceback.format_exception(caught.value))


def test_constants_are_numbers_that_numba_knows():
    x = Symbol("x")
    constants = sympy.E, sympy.pi, sympy.EulerGamma, sympy.Catalan, sympy.GoldenRatio, sympy.TribonacciConstant
    model = refhmc.from_sympy(-sum(c * x ** (2 * m + 2) for m, c in enumerate(constants)) - x**2 * sympy.E**sympy.E)
    at, values = 0.7, [float(c) for c in constants]
    expected = -sum(c * at ** (2 * m + 2) for m, c in enumerate(values)) - at**2 * math.e**math.e
    slope = -sum((2 * m + 2) * c * at ** (2 * m + 1) for m, c in enumerate(values)) - 2 * at * math.e**math.e
    assert model.log_density(np.array([at])) == pytest.approx(expected, rel=1e-14)
    assert model.gradient(np.array([at])) == pytest.approx(slope, rel=1e-14)


def test_invalid_python_names_stay_in_the_result():
    """Also in starts and axes by name, and in messages."""
    q, L_vector = sympy.symbols("gamma pi lambda"), vector("L", 2)
    L = -sum(each**2 for each in q) / 2 - Sum((L_vector[i] - 1) ** 2, (i, 0, 1)) / 2
    model = refhmc.from_sympy(L, [*q, L_vector], dims={"L": ("side",)}, coords={"side": ["left", "right"]})
    assert model.names == ["gamma", "pi", "lambda", "L[0]", "L[1]"]
    assert "lambda_" in model.source
    start = {"gamma": 0.1, "pi": 0.2, "lambda": 0.3, "L": [0.4, 0.5]}
    options = {"draws": 5, "tune": 50, "chains": 1, "random_seed": 1, "progressbar": False, "raw": True}
    result = refhmc.sample(model, initvals=start, **options)
    assert {name: value.shape for name, value in result.posterior.items()} == {
        **dict.fromkeys(["gamma", "pi", "lambda"], (1, 5)),
        "L": (1, 5, 2),
    }
    assert pickle.loads(pickle.dumps(model)).names == model.names
    with pytest.raises(refhmc.errors.ModelError, match=r"coordinates \(L, gamma\).*lambda, pi"):
        refhmc.from_sympy(L, [q[0], L_vector])


def test_data_may_be_declared_positive_and_coordinates_real():
    x, scale = Symbol("x", real=True), Symbol("scale", positive=True)
    model = refhmc.from_sympy(-((x / sympy.sqrt(scale**2)) ** 2), data={scale: 2.0})
    assert model.log_density(np.array([3.0])) == -2.25


def test_names_reserved_in_python_are_renamed_in_the_code():
    """Greek in LaTeX, a keyword, a name used by the code, and an index like a vector's."""
    q = sympy.symbols(r"lambda \mu out x_i")
    x = vector("x", 2)
    L = -sum(each**2 for each in q) / 2 - Sum((x[i] - q[3]) ** 2, (i, 0, 1))
    model = refhmc.from_sympy(L, [*q, x])
    assert model.names == ["lambda", r"\mu", "out", "x_i", "x[0]", "x[1]"]
    assert "lambda_, mu, out_, x_i" in model.source
    at = np.arange(6.0)
    expected = -at + 2 * np.array([0, 0, 0, at[4] + at[5] - 2 * at[3], 0, 0])
    expected[4:] = -2 * (at[4:] - at[3])
    np.testing.assert_allclose(model.gradient(at), expected)


def test_models_in_other_processes_and_by_fingerprint():
    model = banana()[0]
    again = pickle.loads(pickle.dumps(model))
    q = np.array([0.3, -1.2])
    assert again.source == model.source
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(again.hessian(q), model.hessian(q))


@pytest.mark.sweep
def test_code_does_not_depend_on_the_order_of_sets():
    program = "from tests.derived.test_from_sympy import *; print(softmax()[0].source, mixture()[0].source)"
    texts = set()
    for seed in "0123":
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        texts.add(found.stdout)
    assert len(texts) == 1


@pytest.mark.sweep
def test_another_process_needs_no_sympy():
    model, q = logistic()[0], [0.3, -1.2, 0.5]
    program = (
        "import sys, pickle; sys.modules['sympy'] = None; "
        f"print(pickle.loads(sys.stdin.buffer.read()).gradient({q}).tolist())"
    )
    found = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(model), capture_output=True, check=True)
    assert found.stdout.decode().strip() == str(model.gradient(q).tolist())


# --------------------------------------------------------------------------------------------------------- errors

a, b = sympy.symbols("a b")
ROWS = Sum((y[i] - a) ** 2, (i, 0, n - 1))
THREE = [1.0, 2.0, 3.0]
REJECTED = {
    "no expression": (("-a**2", None, {}), "expression must be a scalar SymPy expression.*str"),
    "a relation": ((a < b, None, {}), "expression must be a scalar SymPy expression"),
    "complex": ((sympy.I * a, None, {}), "finite real number"),
    "unknown": ((-(a**2) * b, [a], {}), r"coordinates \(a\) .*none given.* b is neither"),
    "nothing to sample": ((-ROWS, None, {"y": THREE, "a": 1.0}), "coordinate to sample"),
    "data not named": ((-ROWS, [a], {}), "y is neither"),
    "data not there": ((-ROWS, None, {"y": THREE, "z": 1.0}), "expression must contain all data.* z"),
    "a flat coordinate": ((-ROWS, [a, b], {"y": THREE}), "expression must contain all coordinates.* b"),
    "both": ((-ROWS, [a], {"y": THREE, "a": 1.0}), "data must not contain coordinates.* a"),
    "twice": ((-ROWS, [a, a], {"y": THREE}), "coordinates must be different"),
    "lengths": (
        (-Sum((y[i] - a * X[i]) ** 2, (i, 0, n - 1)), None, {"y": THREE, "X": [1.0]}),
        r"n must be the same .*X.shape\[0\] is 1, y.shape\[0\] is 3",
    ),
    "an unknown length": ((-Sum((y[i] - a) ** 2, (i, 0, n)), None, {"y": THREE}), "sum run to n - 1"),
    "beyond the end": (
        (-Sum((y[i + 1] - a) ** 2, (i, 0, n - 1)), None, {"y": THREE, "n": 3}),
        r"y\[i \+ 1\] reads y\[3\]",
    ),
    "before the start": ((-Sum((y[i - 1] - a) ** 2, (i, 0, 2)), None, {"y": THREE}), r"reads y\[-1\]"),
    "axes": ((-Sum((y[i, 0] - a) ** 2, (i, 0, 2)), None, {"y": THREE}), "y must have one index per axis.* 2 .* 1 axes"),
    "not finite": ((-ROWS, None, {"y": [1.0, math.nan, 2.0]}), "y must be finite"),
    "no index": ((-((Symbol("y") - a) ** 2), None, {"y": THREE}), r"y must have an index.*\(3,\)"),
    "no sum": ((-((y[i] - a) ** 2), None, {"y": THREE}), "the index or limit i must"),
    "no names": ((-ROWS, None, THREE), "data must be a dictionary"),
    "no numbers": ((-ROWS, None, {"y": ["a", "b"]}), "y must be a real number or an array"),
    "no length": ((-(y[0] ** 2), None, {}), r"IndexedBase\('y', shape=\(8,\)\)"),
    "kinks": ((-abs(Symbol("x", real=True)), None, {}), "must be smooth; Abs of a coordinate"),
    "cases": ((-sympy.Piecewise((a**2, a > 0), (0, True)), None, {}), "Piecewise of a coordinate"),
    "an unknown function": ((-sympy.Function("f")(a), None, {}), "the function f must be one of"),
    "a function of rows": ((-log(ROWS), None, {"y": THREE}), "a function of a sum over rows"),
    "indices": ((-Sum((y[i + k] - a) ** 2, (i, 0, 1)), None, {"y": THREE, "k": 0.5}), "k must be integers"),
    "one index twice": (
        (-Sum(y[j] * exp(Sum(X[j, j] * vector("w", 3)[j], (j, 0, 2))), (j, 0, 2)), None, {"y": THREE, "X": np.eye(3)}),
        "must have its own index",
    ),
    "declared positive": (
        (-Symbol("tau", positive=True), None, {}),
        r"(?i)tau is declared positive.* tau = exp\(log_tau\) .*log_tau.*refhmc.Parameters",
    ),
    "a vector declared positive": (
        (-(sympy.IndexedBase("s", shape=(1,), positive=True)[0] ** 2), None, {}),
        "s is declared positive",
    ),
    "declared so where it is listed": ((-(a**2), [Symbol("a", negative=True)], {}), "a is declared negative"),
    "declared whole": ((-(Symbol("m", integer=True) ** 2), None, {}), "m is declared integer.* `discontinuous`"),
    "declared no zero": ((-(Symbol("m", zero=False) ** 2), None, {}), "m is declared not zero"),
    "an index outside": ((-ROWS - i**2, None, {"y": THREE}), "index i of a Sum"),
    "an index in a factor outside": ((-ROWS * (1 + i), None, {"y": THREE}), "index i of a Sum"),
    "an entry outside": ((-ROWS - a * y[i], None, {"y": THREE}), "index i of a Sum"),
    "two symbols": ((-(a**2) - Symbol("a", integer=True) ** 2, None, {}), "two symbols named a"),
}


@pytest.mark.parametrize("case", REJECTED)
def test_invalid_expressions_are_rejected_with_the_reason(case):
    (expression, coordinates, data), words = REJECTED[case]
    with pytest.raises(refhmc.errors.ModelError, match=words):
        refhmc.from_sympy(expression, coordinates, data=data)


def test_options_that_follow_from_the_expression_are_rejected():
    with pytest.raises(refhmc.errors.ModelError, match="names is not an option"):
        refhmc.from_sympy(-(a**2), names=["b"])


def test_the_error_without_fisher_metric_names_another_metric():
    model = refhmc.from_sympy(-(a**2))
    with pytest.raises(refhmc.errors.MissingDerivativeError, match=r"no fisher and .*SoftAbs\(\)") as caught:
        refhmc.Hamiltonian(model, refhmc.metrics.Fisher())
    assert "refhmc.Model" not in str(caught.value)
    assert model.has("hessian_contraction")


def test_missing_sympy_is_reported(monkeypatch):
    for name in [m for m in sys.modules if m.startswith("refhmc.derived.")]:
        if name.rpartition(".")[2] in ("separable", "source", "stable"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sympy", None)
    with pytest.raises(ImportError, match=r"refhmc\[sympy\]"):
        refhmc.from_sympy(a)
