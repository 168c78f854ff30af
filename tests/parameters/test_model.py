"""Models of named parameters: the chain rule, the distribution of draws, and agreement with models of coordinates."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.errors import (
    EvaluationError,
    InitError,
    MissingDerivativeError,
    ModelError,
    PythonModelWarning,
    ShapeError,
)
from refhmc.parameters import CholeskyCorrelation, Positive, Real
from refhmc.sampling.chains.initialization import given_starts
from tests.helpers.models import FEW_CALLS
from tests.helpers.named_models import (
    Y,
    eight_schools,
    laws,
    one_of_each,
    schools,
    schools_gradient,
    schools_log_density,
)
from tests.helpers.sweeps import swept

compiled = functools.cache(one_of_each)


def test_eight_schools_by_name_are_the_model_written_by_hand():
    by_hand, by_name = refhmc.models.EightSchools(centered=True), eight_schools(in_python=FEW_CALLS)
    order = [*range(2, 10), 0, 1]  # theta, mu, log tau
    rng = np.random.default_rng(8)
    offset = by_hand.log_density(np.zeros(10)) - by_name.log_density(np.zeros(10))
    for scale in (0.5, 2.0):
        q = scale * rng.normal(size=10)
        M = rng.normal(size=(10, 10))
        p = q[order]
        assert by_name.log_density(q) + offset == pytest.approx(by_hand.log_density(p), rel=1e-12)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
        close(by_name.gradient(q)[order], by_hand.gradient(p))
        close(by_name.hessian(q)[np.ix_(order, order)], by_hand.hessian(p))
        hessian_contraction = by_hand.hessian_contraction(p, M[np.ix_(order, order)])
        np.testing.assert_allclose(
            by_name.hessian_contraction(q, M)[order],
            hessian_contraction,
            rtol=1e-12,
            atol=1e-12 * abs(hessian_contraction).max(),
        )
        close(by_name.fisher(q)[np.ix_(order, order)], by_hand.fisher(p))
        hessian_contraction = by_hand.fisher_contraction(p, M[np.ix_(order, order)])
        np.testing.assert_allclose(
            by_name.fisher_contraction(q, M)[order],
            hessian_contraction,
            rtol=1e-12,
            atol=1e-12 * abs(hessian_contraction).max(),
        )


# At log_tau = -75 the kit's differences of the Hessian of eight schools are wrong by 30 %, so that it rejects the right tensor.
TENSOR = {"third_derivative": "checked by its contraction"}


@pytest.mark.sweep
@pytest.mark.parametrize(("make", "absent"), [(eight_schools, TENSOR), (one_of_each, {})])
def test_kit_finds_no_faults(make, absent):
    model = make(in_python=FEW_CALLS, absent=absent)
    report = refhmc.check.model(model, metric=model.fisher, metric_trace=model.fisher_contraction)
    assert report.ok, str(report)
    assert {"hessian", "trace", "metric trace"} <= {row.name for row in report.rows if row.status == "PASS"}, str(
        report
    )


@pytest.mark.sweep
def test_kit_confirms_the_jacobian():
    model = eight_schools(in_python=FEW_CALLS)

    def of_values(x):
        return schools_log_density(schools.Values(x[0], x[1], x[2:]), model.data)

    def values(q):
        return np.array([q[0], np.exp(q[1]), *q[2:]])

    report = refhmc.check.model(model, constrained=(of_values, values))
    assert next(row for row in report.rows if row.name == "normaliser" or "jacobian" in row.name).status == "PASS", str(
        report
    )


def test_third_derivative_gives_the_contraction():
    names = refhmc.Parameters(x=Positive(shape=2), L=CholeskyCorrelation(2))

    def log_density(values, data):
        return -np.sum(values.x**3) + np.log(values.L[1, 1])

    def gradient(values, data, out):
        out[:2] = -3 * values.x**2
        out[5] = 1 / values.L[1, 1]

    def hessian(values, data, out):
        out[0, 0], out[1, 1], out[5, 5] = -6 * values.x[0], -6 * values.x[1], -1 / values.L[1, 1] ** 2

    def third_derivative(values, data, out):
        out[0, 0, 0], out[1, 1, 1], out[5, 5, 5] = -6.0, -6.0, 2 / values.L[1, 1] ** 3

    model = names.model(log_density, gradient, hessian, third_derivative, in_python=FEW_CALLS)
    report = refhmc.check.model(model)
    assert report.ok, str(report)
    assert model.has("hessian_contraction")


@pytest.mark.sweep
def test_compiled_and_python_are_the_same():
    model, python = compiled(), one_of_each(in_python=FEW_CALLS)
    assert model.runs_as_python is None
    rng = np.random.default_rng(9)
    for q in rng.normal(size=(3, laws.dim)):
        assert model.log_density(q) == pytest.approx(python.log_density(q), rel=1e-14)
        np.testing.assert_allclose(model.core.value_and_gradient(q)[1], python.gradient(q), rtol=1e-12)


@pytest.mark.sweep
def test_compiled_second_and_third_derivatives_are_the_same():
    model, python = compiled(), one_of_each(in_python=FEW_CALLS)
    rng = np.random.default_rng(10)
    for q in rng.normal(size=(3, laws.dim)):
        M = rng.normal(size=(laws.dim, laws.dim))
        np.testing.assert_allclose(model.gradient(q), python.gradient(q), rtol=1e-12)
        np.testing.assert_allclose(model.hessian(q), python.hessian(q), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(model.fisher(q), python.fisher(q), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(
            model.fisher_contraction(q, M), python.fisher_contraction(q, M), rtol=1e-10, atol=1e-12
        )
        np.testing.assert_allclose(
            model.hessian_contraction(q, M), python.hessian_contraction(q, M), rtol=1e-10, atol=1e-12
        )


@pytest.mark.sweep
def test_draws_have_the_distribution_of_the_values():
    """23 z-scores exceed 5 with a joint probability of 1e-5; 4 standard errors are known to a few per cent."""
    result = refhmc.sample(compiled(), random_seed=20261123, draws=1500, raw=True, progressbar=False)
    x = laws.constrain(result.draws)
    R = x["L"] @ np.swapaxes(x["L"], -1, -2)
    a, t = scipy.stats.beta(2, 3), np.array([2.0, 3.0, 4.0]) / 9
    order = 3 / (2 * np.sqrt(np.pi))  # the mean of the largest of three normals
    expected = [
        (x["mu"], 0.0), (x["mu"] ** 2, 1.0), (x["tau"], 1.0), (x["tau"] < 1, 1 - np.exp(-1)), (x["p"], a.mean()),
        (x["p"] < 0.2, a.cdf(0.2)), *((x["o"][..., k], v) for k, v in enumerate((-order, 0.0, order))),
        *((x["w"][..., k], v) for k, v in enumerate(t)),
        *((x["w"][..., k] ** 2, v * (9 * v + 1) / 10) for k, v in enumerate(t)),
        *((x["w"][..., k] < 0.1, scipy.stats.beta(9 * v, 9 - 9 * v).cdf(0.1)) for k, v in enumerate(t)),
        *((R[..., i, j], 0.0) for i, j in ((1, 0), (2, 0), (2, 1))),
        *((R[..., i, j] ** 2, 1 / 6) for i, j in ((1, 0), (2, 0), (2, 1))),
    ]  # fmt: skip
    for k, (draws, mean) in enumerate(expected):
        ess = refhmc.diagnostics.geyer_ess(np.asarray(draws, dtype=float)[..., None]).sum()
        z = (np.mean(draws) - mean) / np.sqrt(np.var(draws) / ess)
        assert abs(z) < 5, (k, z)


@pytest.mark.sweep
def test_softabs_samples_named_parameters():
    kernel = refhmc.HMC(step_size=0.3, n_steps=4, metric=refhmc.metrics.SoftAbs(alpha=2.0))
    options = {"random_seed": 3, "draws": 400, "tune": 0, "chains": 2, "raw": True, "progressbar": False}
    result = refhmc.sample(compiled(), kernel, **options)
    mu, tau = result.posterior["mu"], result.posterior["tau"]
    for draws, mean in ((mu, 0.0), (tau, 1.0)):
        ess = refhmc.diagnostics.geyer_ess(draws[..., None]).sum()
        assert abs(draws.mean() - mean) < 5 * np.sqrt(draws.var() / ess)  # false alarm 1e-6


def test_a_result_has_the_names_of_parameters_and_axes():
    labels = list("ABCDEFGH")
    model = eight_schools(in_python=FEW_CALLS, coords={"school": labels})
    result = refhmc.sample(model, draws=3, tune=0, chains=1, random_seed=1, progressbar=False)
    posterior = result["posterior"]
    assert {name: posterior[name].dims[2:] for name in posterior.data_vars} == {
        "mu": (),
        "tau": (),
        "theta": ("school",),
    }
    assert posterior["school"].values.tolist() == labels


def test_starts_are_given_by_name_and_inverted_exactly():
    model = one_of_each(in_python=FEW_CALLS)
    q = np.random.default_rng(2).normal(size=(2, laws.dim))
    values = [{name: value for name, value in laws.constrain(row).items()} for row in q]
    np.testing.assert_allclose(given_starts(model, values, 2), q, rtol=1e-12, atol=1e-12)
    with pytest.raises(InitError, match="initvals: tau must be above 0.*-1"):
        given_starts(model, {**values[0], "tau": -1}, 1)
    with pytest.raises(InitError, match="initvals .*tau, p, o, w, L"):
        given_starts(model, {"mu": 0.0}, 1)
    start = {"mu": 1.0, "tau": 2.0, "theta": np.zeros(8)}
    np.testing.assert_allclose(eight_schools(in_python=FEW_CALLS, initial=start).initial[:2], [1.0, np.log(2)])


def test_copies_and_pickles_are_the_same_model():
    model = eight_schools(in_python=FEW_CALLS)
    q = np.linspace(-1, 1, 10)
    for again in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):
        assert again.fingerprint() == model.fingerprint()
        assert again.log_density(q) == model.log_density(q)
        assert (again.name, again.dims) == ("schools by name", {"theta": ("school",)})
    one = schools.model(schools_log_density, schools_gradient, data=(Y, Y), in_python=FEW_CALLS)
    other = refhmc.Parameters(mu=Real(), tau=refhmc.parameters.Above(1), theta=Real(shape=8))
    assert one.fingerprint() != model.fingerprint()
    assert (
        other.model(schools_log_density, schools_gradient, data=(Y, Y), in_python=FEW_CALLS).fingerprint()
        != one.fingerprint()
    )


@pytest.mark.sweep
def test_function_that_numba_cannot_compile_runs_as_python():
    def log_density(values, data):
        return -0.5 * {"x": values.x}["x"].__pow__(2)

    model = refhmc.Parameters(x=Real()).model(log_density, lambda values, data: (-values.x,))
    with pytest.warns(PythonModelWarning, match="runs as Python"):
        assert model.log_density(np.array([2.0])) == -2
    assert model.gradient(np.array([2.0])).tolist() == [-2]


def half_square(x):
    return 0.5 * square(x)


def square(x):
    return x * x


@pytest.mark.parametrize("further", [False, swept(True)], ids=["gradient", "all orders"])
def test_plain_helpers_and_functions_without_data_compile(further):
    parameters, derivatives = refhmc.Parameters(x=Real(), s=Positive()), {}
    if further:
        derivatives["hessian"] = lambda values: np.array([[-1.0, 0.0], [0.0, 0.0]])
        derivatives["third_derivative"] = lambda values: np.zeros((2, 2, 2))
    model = parameters.model(
        lambda values: -half_square(values.x) - values.s, lambda values: (-values.x, -1.0), **derivatives
    )
    q, M = np.array([0.3, 0.2]), np.array([[1.0, 2.0], [3.0, 4.0]])
    assert model.runs_as_python is None
    assert model.log_density(q) == pytest.approx(-0.5 * 0.3**2 - np.exp(0.2) + 0.2, rel=1e-14)
    np.testing.assert_allclose(model.gradient(q), [-0.3, 1 - np.exp(0.2)], rtol=1e-14)
    if further:
        np.testing.assert_allclose(model.hessian(q), [[-1, 0], [0, -np.exp(0.2)]], atol=1e-14)
        np.testing.assert_allclose(model.hessian_contraction(q, M), [0, -4 * np.exp(0.2)], atol=1e-13)


@pytest.mark.parametrize(
    ("log_density", "gradient", "words"),
    [
        (lambda v: 0.0, lambda v, data: (0.0,), "gradient.*data"),
        (
            lambda v, d: 0.0,
            lambda v: (0.0,),
            r"gradient must take \(values, data\) or \(values, data, out\).* takes 1",
        ),
        (lambda v, d, e: 0.0, lambda v, d: (0.0,), r"log_density must take \(values, data\).* takes 3"),
    ],
)
def test_other_arguments_are_named(log_density, gradient, words):
    with pytest.raises(ModelError, match=words):
        refhmc.Parameters(x=Real()).model(log_density, gradient)


def test_functions_get_their_own_copies():
    def log_density(values, data):
        values.x[:] = 0.0
        return -1.0

    def gradient(values, data, out):
        out[:] = values.x
        values.x[:] = 7.0

    model = refhmc.Parameters(x=Positive(shape=2)).model(log_density, gradient, in_python=FEW_CALLS)
    q = np.log([2.0, 3.0])
    out = np.zeros(2)
    assert model.core.tuple[1](q, model.core.data, out) == pytest.approx(np.log(6) - 1)
    np.testing.assert_allclose(out, [2 * 2 + 1, 3 * 3 + 1])


def test_evaluation_error_means_zero_density():
    def log_density(values, data):
        raise EvaluationError("no")

    model = refhmc.Parameters(x=Real()).model(log_density, log_density, in_python=FEW_CALLS)
    assert model.log_density(np.zeros(1)) == -np.inf


WRONG_RETURNS = [
    (lambda v, d: None, None, "log_density must return a real number.*NoneType"),
    (lambda v, d: v.x, None, r"log_density must return a real number.*ndarray.*\(2,\)"),
    (None, lambda v, d: -v.x, "gradient must return a tuple .* x, s.*ndarray"),
    (None, lambda v, d: (-v.x,), "gradient must return a tuple .* x, s.*1 entries"),
    (None, lambda v, d: (-v.x, -v.s, 0.0), "gradient must return a tuple .*3 entries"),
    (None, lambda v, d: (-v.s, -v.x), r"gradient.* x.* must return real numbers of shape \(2,\)"),
    (None, lambda v, d: (-v.x, 1j), "gradient.* s.* must return real numbers"),
    (None, lambda v, d: None, "gradient must return a tuple .*NoneType"),
]


@pytest.mark.parametrize(("log_density", "gradient", "words"), WRONG_RETURNS)
def test_wrong_return_values_are_named(log_density, gradient, words):
    parameters = refhmc.Parameters(x=Real(shape=2), s=Real())
    model = parameters.model(
        log_density or (lambda v, d: 0.0), gradient or (lambda v, d: (v.x, v.s)), in_python=FEW_CALLS
    )
    with pytest.raises(ModelError, match=words):
        model.core.value_and_gradient(np.zeros(3))


@pytest.mark.sweep
@pytest.mark.parametrize(("log_density", "gradient", "words"), WRONG_RETURNS)
@pytest.mark.filterwarnings("ignore::refhmc.errors.PythonModelWarning")
def test_wrong_return_values_of_compiled_functions_are_rejected(log_density, gradient, words):
    model = refhmc.Parameters(x=Real(shape=2), s=Real()).model(
        log_density or (lambda v, d: 0.0), gradient or (lambda v, d: (v.x, v.s))
    )
    with pytest.raises(ModelError):
        refhmc.sample(model, draws=2, tune=0, chains=1, progressbar=False)


def test_invalid_options_are_named():
    model = schools.model
    with pytest.raises(ModelError, match="gradient must be a function .*NoneType"):
        model(schools_log_density, None)
    with pytest.raises(ModelError, match="hessian_contraction must be a function"):
        model(schools_log_density, schools_gradient, hessian_contraction=3)
    with pytest.raises(ModelError, match="hessian_contraction must be given together with hessian"):
        model(schools_log_density, schools_gradient, hessian_contraction=schools_gradient)
    with pytest.raises(ModelError, match="names is not an option.* follows from the parameters"):
        model(schools_log_density, schools_gradient, names=["a"])
    with pytest.raises(ModelError, match="scratch_rows is not an option.* named parameters"):
        model(schools_log_density, schools_gradient, scratch_rows=2)
    with pytest.raises(ModelError, match="dims .*'theta'"):
        model(schools_log_density, schools_gradient, dims={"theta": "school"})
    assert model(schools_log_density, schools_gradient, dims={"y": "school"}).dims == {
        "y": ("school",),
        "theta": ("school",),
    }
    with pytest.raises(InitError, match="initial: tau must be above 0"):
        model(schools_log_density, schools_gradient, initial={"mu": 0.0, "tau": 0.0, "theta": Y})
    with pytest.raises(ShapeError, match=r"(?s)dim must be .*Parameters.*parameters.model"):
        refhmc.Model(schools, schools_log_density, schools_gradient)


@pytest.mark.parametrize(
    ("given", "metric", "words"),
    [
        (
            (),
            "SoftAbs",
            r"no hessian and no hessian_contraction.*\(..., hessian=..., hessian_contraction=...\), or third",
        ),
        (
            ("hessian",),
            "SoftAbs",
            r"no hessian_contraction.*\(..., hessian_contraction=...\), or third_derivative=..., ",
        ),
        ((), "Fisher", r"no fisher and no fisher_contraction.*\(..., fisher=..., fisher_contraction=...\)\. Write"),
        (("fisher",), "Fisher", r"no fisher_contraction.*\(..., fisher_contraction=...\)\. Write"),
        ((), "Tridiagonal", "no fisher_bands.*use a metric that needs only the gradient"),
    ],
)
def test_missing_derivatives_are_asked_for_as_arguments_of_parameters_model(given, metric, words):
    parameters = refhmc.Parameters(tau=Positive())
    further = {key: lambda values: np.eye(1) for key in given}
    model = parameters.model(lambda values: -values.tau, lambda values: (-1.0,), in_python=FEW_CALLS, **further)
    with pytest.raises(MissingDerivativeError, match=words) as caught:
        refhmc.Hamiltonian(model, getattr(refhmc.metrics, metric)())
    assert "refhmc.Model" not in str(caught.value)
    assert ("give parameters.model(" in str(caught.value)) is (metric != "Tridiagonal")
    assert ("by the values" in str(caught.value)) is (metric != "Tridiagonal")


def test_the_contraction_is_asked_for_together_with_the_hessian():
    parameters = refhmc.Parameters(tau=Positive())
    model = parameters.model(lambda values: -values.tau, lambda values: (-1.0,), in_python=FEW_CALLS)
    with pytest.raises(MissingDerivativeError, match=r"\(..., hessian=..., hessian_contraction=...\)"):
        model.hessian_contraction([0.0], np.eye(1))
    with pytest.raises(MissingDerivativeError, match=r"\(..., fisher=..., fisher_contraction=...\)"):
        model.fisher_derivative([0.0])


def test_missing_derivatives_of_a_block_are_asked_for_in_the_whole_model():
    parameters = refhmc.Parameters(mu=Real(), tau=Positive())
    model = parameters.model(
        lambda values: -(values.mu**2) - values.tau, lambda values: (-2 * values.mu, -1.0), in_python=FEW_CALLS
    )
    kernel = refhmc.Gibbs({"mu": refhmc.HMC(metric=refhmc.metrics.SoftAbs(), n_steps=1), "log_tau": refhmc.HMC()})
    with pytest.raises(MissingDerivativeError, match=r"1 of 2 coordinates.*give parameters.model\("):
        refhmc.sample(model, kernel, draws=1, tune=1, chains=1, progressbar=False)
