"""Invalid arguments are rejected before sampling, with their names and values."""

from __future__ import annotations

import functools
import re

import numba
import numpy as np
import pytest

import refhmc
from refhmc import models
from refhmc.errors import GradientError, InitError, MetricError, MissingDerivativeError, ModelError, ShapeError
from tests.helpers.models import FEW_CALLS
from tests.helpers.sweeps import swept

pytestmark = pytest.mark.filterwarnings("ignore::refhmc.errors.PythonModelWarning")
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"initvals": [0.0, NAN]}, InitError, "chain 0.* b = nan"),
        ({"initvals": [[0.0, 0.0], [INF, 0.0]], "chains": 2}, InitError, "chain 1.* a = inf"),
        ({"initvals": [0.0, 0.0, 0.0]}, ShapeError, r"initvals.*\(2,\) or \(4, 2\).*\(3,\)"),
        ({"initvals": np.zeros((3, 2))}, ShapeError, r"got \(3, 2\)"),
        ({"initvals": [[0.0], [0.0, 1.0]]}, ShapeError, "initvals"),
        ({"initvals": 1.0}, ShapeError, r"got \(\)"),
        ({"draws": -1}, ValueError, "draws must.*got -1"),
        ({"draws": 10.5}, TypeError, "draws must.*got 10.5"),
        ({"draws": True}, TypeError, "draws"),
        ({"tune": -1}, ValueError, "tune must.*got -1"),
        ({"chains": 0}, ValueError, "chains must.*got 0"),
        ({"cores": 0}, ValueError, "cores must.*got 0"),
        ({"max_seconds": 0}, ValueError, "max_seconds must.*got 0"),
        ({"backend": "opencl"}, ValueError, "backend must.*got 'opencl'"),
        ({"random_seed": 1.5}, TypeError, "random_seed must.*got 1.5"),
        ({"kernel": refhmc.NUTS}, TypeError, "kernel must be"),
        ({"kernel": "gibbs"}, ValueError, "kernel must.*got 'gibbs'"),
        ({"draws": 10**13}, MemoryError, "bytes"),
        ({"seed": 1}, TypeError, r"'seed'.*random_seed"),
        ({"num_warmup": 1}, TypeError, "'num_warmup'.* tune"),
        ({"Draws": 1}, TypeError, "'Draws'.* draws"),
        ({"drawz": 1}, TypeError, "'drawz'.* draws"),
        ({"draws": NAN}, TypeError, "draws must.*got nan"),
        ({"tune": "5"}, TypeError, "tune must.*got '5'"),
        ({"chains": True}, TypeError, "chains must.*got True"),
        ({"cores": 1.5}, TypeError, "cores must.*got 1.5"),
        ({"max_seconds": NAN}, ValueError, "max_seconds must.*got nan"),
        ({"max_seconds": "10"}, ValueError, "max_seconds must.*got '10'"),
        ({"max_seconds": True}, ValueError, "max_seconds must.*got True"),
        (
            {"random_seed": [1, -1]},
            ValueError,
            r"random_seed must.*got \[1, -1\]",
        ),
        ({"random_seed": NAN}, TypeError, "random_seed must.*got nan"),
        ({"progressbar": "yes"}, TypeError, "progressbar must.*got 'yes'"),
        ({"save_warmup": "no"}, TypeError, "save_warmup must.*got 'no'"),
        ({"preflight": "off"}, TypeError, "preflight must.*got 'off'"),
        ({"fuse": 2}, TypeError, "fuse must.*got 2"),
        ({"backend": 3}, TypeError, "backend must.*got 3"),
        ({"init": "advi"}, ValueError, "init must.*got 'advi'"),
        ({"warmup": "pymc"}, ValueError, "warmup must.*got 'pymc'"),
        ({"warmup": True}, ValueError, "warmup must.*got True"),
        ({"generate": "prior"}, ValueError, "generate.*'prior'"),
        ({"executor": "threads"}, TypeError, "executor must.*got 'threads'"),
        ({"checkpoint": 3}, TypeError, "checkpoint must.*got 3"),
        ({"shared_step_size": True}, ValueError, "shared_step_size .*refhmc.Arrays.*'numba'"),
        ({"initvals": "zero"}, ShapeError, r"initvals must .*\(2,\) or \(4, 2\).*could not convert"),
        ({"initvals": {"c": 1.0}}, ShapeError, "initvals.*'normal'.*'c'.* a, b"),
        ({"initvals": {"a": 1.0}}, InitError, "initvals: a .*b"),
        ({"initvals": {"a": NAN, "b": 0.0}}, InitError, "initvals: a must.*got nan"),
        ({"initvals": {"a": [1.0, 2.0], "b": 0.0}}, ShapeError, r"a must.*got \(2,\)"),
        ({"kernel": refhmc.metrics.Dense()}, TypeError, "kernel must.*got Dense"),
        (
            {"kernel": refhmc.NUTS(metric="softabs")},
            MissingDerivativeError,
            "'normal'.* hessian.*SoftAbs",
        ),
        ({"kernel": refhmc.NUTS(metric="fisher")}, MissingDerivativeError, "'normal'.* fisher"),
        (
            {"target_accept": 0.9},
            TypeError,
            r"target_accept.*sample\(model, (refhmc\.)?NUTS\(target_accept=...\)\)",
        ),
        ({"adapt_delta": 0.9}, TypeError, "'adapt_delta'.*target_accept.*NUTS"),
        ({"n_steps": 3}, TypeError, r"sample\(model, (refhmc\.)?HMC\(n_steps=...\)\).*DHMC, DRHMC, GHMC, HMC, "),
        ({"metric": "dense"}, TypeError, r"'metric'.*NUTS\(metric="),
        ({"checkpoint": ""}, ValueError, "checkpoint must.*got ''"),
        ({"store": ""}, ValueError, "store must.*got ''"),
        ({"thin": 2}, TypeError, "'thin'.*every k-th"),
        ({"coords": {}}, TypeError, "'coords'.* model"),
        ({"trace": "x"}, TypeError, "'trace'.*result.*store="),
        ({"discard_tuned_samples": False}, TypeError, "'discard_tuned_samples'.*opposite.*save_warmup=True"),
        ({"name": "x"}, TypeError, "'name'.* model, kernel"),
        ({"nuts_sampler": "x"}, TypeError, "'nuts_sampler'.* model, kernel, draws"),
    ],
)
def test_arguments_of_sample(normal, sample, arguments, error, words):
    with pytest.raises(error, match=words):
        sample(normal, **arguments)


def own(**parts):
    """A user-defined kernel: HMC with some parts replaced."""
    return type("Mine", (refhmc.HMC,), {name: property(lambda self, part=part: part) for name, part in parts.items()})()


@pytest.mark.parametrize(
    ("kernel", "error", "words"),
    [
        (own(transition=3), TypeError, "kernel Mine must.*got 3.*numba.njit"),
        (own(statistics="lp"), TypeError, "kernel Mine must.*got 'lp'"),
        (own(statistics=None), TypeError, "kernel Mine must.*got None"),
        (
            own(statistics=("lp", "acceptance")),
            ValueError,
            "Mine.* statistic.*'acceptance'.*'acceptance_rate'",
        ),
        (own(statistics=(3,)), ValueError, "Mine.* statistic.* 3.*energy"),
    ],
)
def test_invalid_user_kernels_are_rejected(normal, sample, kernel, error, words):
    with pytest.raises(error, match=words):
        sample(normal, kernel)
    with pytest.raises(error, match=rf"'a'.*{words}" if words.startswith("kernel") else words):
        refhmc.Gibbs({"a": kernel})


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="then none is compiled")
def test_a_transition_that_is_not_compiled_is_rejected(normal, sample):
    def plain(dynamics, model, workspace, randomness, settings, stats, control):
        return 0

    with pytest.raises(TypeError, match=r"Mine must.*got <function .*numba.njit"):
        sample(normal, own(transition=plain))


def test_words_for_kernels_metrics_and_integrators(normal, sample):
    few = {"draws": 20, "tune": 20, "chains": 1, "random_seed": 1}
    for words, objects in (
        ("hmc", refhmc.HMC()),
        ("NUTS", refhmc.NUTS()),
        (refhmc.NUTS(metric="dense"), refhmc.NUTS(metric=refhmc.metrics.Dense())),
        (refhmc.NUTS(metric="low_rank"), refhmc.NUTS(metric="auto")),
        (refhmc.HMC(n_steps=2, integrator="leapfrog", metric="Diagonal"), refhmc.HMC(n_steps=2, metric="diagonal")),
    ):
        assert np.array_equal(sample(normal, words, **few).draws, sample(normal, objects, **few).draws)
    assert refhmc.NUTS(metric="diagonal-softabs").metric == refhmc.metrics.DiagonalSoftAbs()


def test_the_model_must_be_a_model(sample):
    with pytest.raises(TypeError, match="model must .*refhmc.Model"):
        sample(lambda q: 0.0)


def of(make, **options):
    return lambda: make(**options)


def each(make, name, values, error, words):
    """Return one test case for each value of an argument."""
    return [(functools.partial(make, **{name: x}), error, f"{words}.* got {re.escape(repr(x))}") for x in values]


NUTS, HMC, DHMC, Model = refhmc.NUTS, refhmc.HMC, refhmc.DHMC, refhmc.Model
X, LABELS = np.arange(10.0).reshape(5, 2), np.array([0.0, 1.0, 0.0, 1.0, 1.0])


def density(q, data):
    return -0.5 * np.sum(q * q)


def slope(q, data):
    return -q


def of_data(q, data):
    return -0.5 * np.sum((np.asarray(data["y"]) - q[0]) ** 2)


def slope_of_data(q, data):
    return np.array([np.sum(np.asarray(data["y"]) - q[0])])


def made(dim=2, log_density=density, gradient=slope, **options):
    return lambda: Model(dim, log_density, gradient, **options)


def evaluated(method, *arguments):
    return lambda: getattr(Model(2, density, slope, name="normal", in_python=FEW_CALLS), method)(*arguments)


def followed(q=(0.0, 0.0), p=(1.0, 0.0), step_size=0.1, n_steps=2):
    def run():
        H = refhmc.Hamiltonian(Model(2, density, slope, in_python=FEW_CALLS))
        return refhmc.integrate(H, refhmc.integrators.Leapfrog(), q, p, step_size=step_size, n_steps=n_steps)

    return run


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        # counts of kernels: no fractions, words, nan or flags
        (of(HMC, n_steps=0), ValueError, "n_steps must.*got 0"),
        (of(HMC, n_steps=2.5), ValueError, "n_steps must.*got 2.5"),
        (of(HMC, n_steps=True), ValueError, "n_steps must.*got True"),
        (of(HMC, n_steps=NAN), ValueError, "n_steps must.*got nan"),
        (of(HMC, n_steps="5"), ValueError, "n_steps must.*got '5'"),
        (of(HMC, n_steps=[5]), ValueError, r"n_steps must.*got \[5\]"),
        (of(NUTS, max_treedepth=0), ValueError, "max_treedepth must.*got 0"),
        (of(NUTS, max_treedepth=31), ValueError, "max_treedepth must.*got 31"),
        (of(NUTS, max_treedepth=10.5), ValueError, "max_treedepth .* got 10.5"),
        (of(NUTS, max_treedepth=True), ValueError, "max_treedepth .* got True"),
        (of(NUTS, max_treedepth=NAN), ValueError, "max_treedepth .* got nan"),
        (of(NUTS, max_treedepth="10"), ValueError, "max_treedepth .* got '10'"),
        # numbers of kernels
        *[(of(kind, step_size=0.0), ValueError, "step_size must.*got 0.0") for kind in (HMC, NUTS, DHMC)],
        *each(NUTS, "step_size", (-0.1, NAN, INF, True, "0.1"), ValueError, "step_size must"),
        *each(NUTS, "target_accept", (0, 1.0, NAN, True, "0.9"), ValueError, "target_accept must"),
        (of(HMC, n_steps=2, trajectory_length=1.0), ValueError, "n_steps.*trajectory_length.* both"),
        *each(HMC, "trajectory_length", (-1.0, NAN, "1"), ValueError, "trajectory_length must"),
        *each(HMC, "step_jitter", (1.0, NAN, ".1", True), ValueError, r"step_jitter must"),
        (of(HMC, length_jitter=-0.1), ValueError, r"length_jitter must.*got -0.1"),
        # names of other libraries, and none
        (of(NUTS, adapt_delta=0.9), TypeError, r"NUTS.*'adapt_delta'.*target_accept"),
        (of(NUTS, max_depth=5), TypeError, "'max_depth'.*max_treedepth"),
        (of(HMC, num_steps=5), TypeError, "'num_steps'.* n_steps"),
        (of(HMC, step_sise=5), TypeError, "'step_sise'.*step_size"),
        (of(NUTS, n_steps=5), TypeError, "NUTS.*'n_steps'.*step_size, max_treedepth"),
        # words and objects of kernels
        (of(NUTS, metric="fishy"), ValueError, "metric must.*got 'fishy'"),
        (of(NUTS, metric=refhmc.metrics.Dense), TypeError, "metric must.*got the class Dense"),
        (of(NUTS, metric=np.eye(2)), TypeError, "metric must.*got ndarray"),
        (of(NUTS, integrator="verlet"), ValueError, "integrator must.*got 'verlet'"),
        (
            of(NUTS, integrator=refhmc.integrators.Leapfrog),
            TypeError,
            "integrator must.*got the class Leapfrog",
        ),
        (of(HMC, integrator=np.eye(2)), TypeError, "integrator must.*got ndarray"),
        (lambda: refhmc.Gibbs("a"), ValueError, "blocks must .*got 'a'"),
        # metrics and integrators
        (of(refhmc.metrics.Dense, learn_from="gradients"), ValueError, "learn_from must.*got 'gradients'"),
        (of(refhmc.metrics.Diagonal, learn_from=3), ValueError, "learn_from must.*got 3"),
        # trajectories and evaluations
        (followed(step_size="0.1"), ValueError, "step_size must.*got '0.1'"),
        (followed(n_steps=True), ValueError, "n_steps must.*got True"),
        (followed(n_steps=NAN), ValueError, "n_steps must.*got nan"),
        (followed(p="ab"), ShapeError, "momentum must.*got 'ab'"),
        (evaluated("log_density", [0.0, 0.0, 0.0]), ShapeError, r"position of 'normal'.*\(2,\).*got.*\(3,\)"),
        (evaluated("log_density", [[0.0, 0.0]]), ShapeError, r"position of 'normal'.*\(2,\).*got.*\(1, 2\)"),
        (evaluated("gradient", "ab"), ShapeError, "position of 'normal' must.*got 'ab'"),
        (evaluated("gradient", [1j, 0]), ShapeError, r"position of 'normal' must.*got.* \[1j, 0\]"),
        (
            evaluated("hessian", [0.0, 0.0]),
            MissingDerivativeError,
            "'normal'.* hessian.*refhmc.Model\\(..., hessian=",
        ),
        (
            lambda: models.Funnel(2).hessian_contraction(np.zeros(3), np.eye(2)),
            ShapeError,
            r"M must .*\(3, 3\) in hessian_contraction.*got.*\(2, 2\)",
        ),
        (lambda: refhmc.Hamiltonian("x"), TypeError, "model must.*got str"),
        # models: dimensions, names, functions
        *each(
            functools.partial(Model, log_density=density, gradient=slope),
            "dim",
            (0, -1, 2.5, NAN, True, "2", None),
            ShapeError,
            "dim must",
        ),
        (made(log_density=None), ModelError, "log_density must.*got None"),
        (made(log_density=3), ModelError, "log_density must.*got int"),
        (made(gradient=np.zeros(2)), ModelError, "gradient must.*got ndarray"),
        (made(hessian=np.eye(2)), ModelError, "hessian must.*got ndarray"),
        (made(constrain=3), ModelError, "constrain must.*got int"),
        (made(names=["a"]), ShapeError, r"names must.*got \['a'\]"),
        (made(names=["a", "a"]), ShapeError, "names must .*got"),
        (made(names="ab"), ShapeError, "names must.*got the string 'ab'"),
        (made(names=["x", "x[0]"]), ShapeError, "names.*'x'.*'x\\[0\\]'"),
        (made(names=["x[0]", "x"]), ShapeError, "names.*'x'.*'x\\[0\\]'"),
        (made(names=["x[0][1]", "x[0]"]), ShapeError, "names"),
        *((made(names=[name, "b"]), ShapeError, f"names must.*'{name}'") for name in ("chain", "draw")),
        (made(initial=[0.0]), ShapeError, r"initial of 'model'.*\(2,\).*got.*\(1,\)"),
        (made(initial=["a", "b"]), ShapeError, "initial of 'model' must"),
        (made(discontinuous=[2]), ModelError, "an index of discontinuous must.*got 2"),
        (made(discontinuous=["c"]), ModelError, "coordinate.*'c'"),
        (made(dims=3), ModelError, "dims must"),
        (made(coords={"year": [1]}), ModelError, "coords.*'year'"),
        (made(generated=3), ModelError, "generated must.*got int"),
        # built-in models: see also the tests of each
        (lambda: models.Funnel("3"), ValueError, "n must.*got '3'"),
        (lambda: models.EightSchools(centered="yes"), TypeError, "centered must.*got 'yes'"),
        *each(
            functools.partial(models.LogisticRegression, X, LABELS),
            "prior_scale",
            (0, "1", NAN),
            ValueError,
            "prior_scale must",
        ),
        (lambda: models.LinearRegression(X, LABELS * NAN), ValueError, "y must .*nan"),
        (
            lambda: models.MLP([2, "3", 1], X, LABELS),
            ValueError,
            "widths must.*got '3'",
        ),
        (lambda: models.SoftmaxRegression("x", LABELS), ValueError, "X must.*got 'x'"),
        (lambda: refhmc.Parameters(), ModelError, "at least one parameter"),
        (lambda: refhmc.generate(models.Funnel(1), 3), TypeError, "result must.*got int"),
    ],
)
def test_what_cannot_be_is_refused_with_its_name_and_value(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize(
    ("y", "where"),
    [
        (np.array([1.0, NAN]), r"data\['y'\]\[1\] is nan"),
        (np.array([[1.0, 2.0], [-INF, 0.0]]), r"data\['y'\]\[1, 0\] is -inf"),
        ([1.0, INF], r"data\['y'\]\[1\] is inf"),
    ],
)
@pytest.mark.parametrize("initvals", [None, [0.5]])
def test_data_that_are_not_finite_are_named(sample, y, where, initvals):
    model = Model(1, of_data, slope_of_data, data={"y": y}, in_python=FEW_CALLS)
    with pytest.raises(InitError, match=f"because {where}"):
        sample(model, initvals=initvals)


@pytest.mark.parametrize("initvals", [None, [-0.5]])
def test_missing_observations_that_the_model_allows_are_not_blamed(sample, initvals):
    """The log density sums over the finite observations, and is -inf below 3, where no start is."""
    y = np.array([4.0, NAN])
    model = Model(
        1,
        lambda q, data: -0.5 * np.nansum((data - q[0]) ** 2) if q[0] > 3 else -np.inf,
        lambda q, data: np.array([np.nansum(data - q[0])]),
        data=y,
        in_python=FEW_CALLS,
    )
    with pytest.raises(InitError, match="Give initvals") as caught:
        sample(model, initvals=initvals)
    assert "data" not in str(caught.value)


def test_data_are_blamed_if_they_are_the_cause_at_some_start_only(sample):
    """The log density is -inf below 1, and NaN above because of the data."""
    model = Model(
        1,
        lambda q, data: -0.5 * np.sum((data - q[0]) ** 2) if q[0] > 1 else -np.inf,
        slope_of_array,
        data=np.array([1.0, NAN]),
        in_python=FEW_CALLS,
    )
    with pytest.raises(InitError, match=r"because data\[1\] is nan. Remove or replace"):
        sample(model)
    with pytest.raises(InitError, match="outside the support.*Give initvals"):
        sample(model, initvals=[0.5])


def slope_of_array(q, data):
    return np.array([np.sum(data - q[0])])


def test_data_that_make_only_the_gradient_nan_are_named(sample):
    model = Model(1, lambda q, data: -0.5 * np.nansum((data - q[0]) ** 2), slope_of_array, data=np.array([1.0, NAN]))
    with pytest.raises(InitError, match=r"The gradient .*because data\[1\] is nan"):
        sample(model, initvals=[0.5])


def masked(values, where):
    """Return an array whose entries ``where`` are masked."""
    array = np.ma.array(values, mask=False)
    array[where] = np.ma.masked
    return array


@pytest.mark.parametrize(
    ("make", "error", "where"),
    [
        (made(data=masked([1.0, 2.0], 1)), ModelError, r"data\[1\]"),
        (made(data={"y": masked(np.ones((2, 2)), (1, 0))}), ModelError, r"data\['y'\]\[1, 0\]"),
        (made(data=(1.0, masked([1, 2, 3], 2))), ModelError, r"data\[1\]\[2\]"),
        (made(initial=masked([1.0, 2.0], 0)), ShapeError, r"initial of 'model'\[0\]"),
        (
            made(generated={"observed_data": {"y": masked([1.0, 2.0], 0)}}),
            ModelError,
            r"generated: observed_data\['y'\]\[0\]",
        ),
        (of(models.EightSchools, y=masked([1.0, 2.0], 1), sigma=[1.0, 1.0]), ValueError, r"y\[1\]"),
        (of(models.LogisticRegression, X=masked(X, (3, 1)), y=LABELS), ValueError, r"X\[3, 1\]"),
        (of(models.LogisticRegression, X=X, y=masked(LABELS, 2)), ValueError, r"y\[2\]"),
        (of(models.StochasticVolatility, y=masked([1.0, 2.0, 3.0], 2)), ValueError, r"y\[2\]"),
        (of(models.ChangePoint, y=masked([1, 2, 3, 4], 0)), ValueError, r"y\[0\]"),
        (lambda: models.MLP([2, 3, 1], masked(X, (0, 0)), LABELS), ValueError, r"X\[0, 0\]"),
        (lambda: models.SoftmaxRegression(X, masked(LABELS.astype(int), 4)), ValueError, r"y\[4\]"),
        (lambda: refhmc.sample(Model(2, density, slope), initvals=masked([0.0, 1.0], 1)), InitError, r"initvals\[1\]"),
        (
            lambda: refhmc.sample(Model(1, density, slope), initvals={"q": masked([0.0], 0)}),
            InitError,
            r"initvals\['q'\]\[0\]",
        ),
    ],
)
def test_masked_entries_are_rejected_with_their_index(make, error, where):
    with pytest.raises(error, match=f"{where}.* mask"):
        make()


def test_an_array_that_masks_nothing_is_taken():
    y = np.ma.array([1.0, 2.0], mask=False)
    assert np.array_equal(Model(2, density, slope, data=y).data, [1.0, 2.0])
    assert models.EightSchools(y=y, sigma=y).dim == 4


@pytest.mark.parametrize(
    ("make", "error", "what"),
    [
        (of(models.Gaussian, mean=np.ones(2) + 1j, covariance=np.eye(2)), ValueError, "mean"),
        (of(models.Gaussian, mean=[1 + 1j, 0.0], covariance=np.eye(2)), ValueError, "mean"),
        (of(models.LogisticRegression, X=X + 1j, y=LABELS), ValueError, "X"),
        (lambda: models.MLP([2, 3, 1], X + 1j, LABELS), ValueError, "X"),
        (lambda: refhmc.metrics.Diagonal(np.ones(2) + 1j).inverse_mass(2), MetricError, "variances"),
        (evaluated("log_density", np.ones(2) + 1j), ShapeError, "position of 'normal'"),
        (lambda: refhmc.sample(Model(2, density, slope), initvals=np.ones(2) + 1j), ShapeError, "initvals"),
    ],
)
def test_complex_numbers_are_rejected(make, error, what):
    with pytest.raises(error, match=f"{what} must.*got (?s:.)*complex"):
        make()


@pytest.mark.parametrize(
    ("metric", "error", "words"),
    [
        (refhmc.metrics.Diagonal([1.0, -2.0]), MetricError, "-2.0"),
        (refhmc.metrics.Diagonal([1.0, NAN]), MetricError, "positive.*finite|finite.*positive"),
        (refhmc.metrics.Diagonal([1.0, 1.0, 1.0]), ShapeError, r"variances.*\(2,\).*got.*\(3,\)"),
        (refhmc.metrics.Dense([[1.0, 2.0], [2.0, 1.0]]), MetricError, "eigenvalue.* -1"),
        (refhmc.metrics.Dense([[1.0, 0.5], [0.4, 1.0]]), MetricError, "symmetric"),
        (refhmc.metrics.Dense(np.ones((2, 2))), MetricError, "positive definite"),
        (refhmc.metrics.Dense(np.eye(3)), ShapeError, r"covariance.*\(2, 2\).*got.*\(3, 3\)"),
    ],
)
def test_metrics(normal, sample, metric, error, words):
    with pytest.raises(error, match=words):
        sample(normal, refhmc.NUTS(metric=metric))


@pytest.mark.parametrize(
    ("log_density", "gradient", "words"),
    [
        (lambda q, data: None, lambda q, data: -q, "log_density must .*NoneType"),
        (lambda q, data: -q, lambda q, data: -q, "log_density must .*ndarray"),
        (lambda q, data: 1j * q[0], lambda q, data: -q, "log_density must .*complex"),
        (lambda q, data: "x", lambda q, data: -q, "log_density must .*str"),
        (
            lambda q, data: -0.5 * np.sum(q * q),
            lambda q, data: -q[:1],
            r"gradient must .*\(2,\)",
        ),
        (lambda q, data: -0.5 * np.sum(q * q), lambda q, data: None, "gradient must"),
    ],
)
@pytest.mark.parametrize("initvals", [[0.1, 0.2], swept(None)])
def test_functions_that_return_the_wrong_thing(sample, log_density, gradient, words, initvals):
    with pytest.raises(ModelError, match=words):
        sample(refhmc.Model(2, log_density, gradient), initvals=initvals)


@pytest.mark.sweep
def test_a_function_that_changes_its_argument(sample):
    def log_density(q, data):
        q += 1.0
        return -0.5 * np.sum(q * q)

    with pytest.raises(ModelError, match="log_density.* in place"):
        sample(refhmc.Model(2, log_density, lambda q, data: -q), initvals=[0.1, 0.2])


def test_a_gradient_that_is_not_the_derivative(sample):
    calls = []

    def log_density(q, data):
        calls.append(1)
        return -0.5 * float(q @ q)

    wrong = refhmc.Model(2, log_density, lambda q, data: -1.01 * q, data={"python": True})
    with pytest.raises(GradientError, match="gradient.*log density"):
        sample(wrong, initvals=[1.0, 2.0])
    result = sample(wrong, draws=5, tune=0, chains=1, initvals=[1.0, 2.0], preflight=False)
    assert result.attributes["preflight"] is False
    good = refhmc.Model(2, log_density, lambda q, data: -q, data={"python": True})
    from refhmc.sampling.checks.preflight import check_gradient

    calls.clear()
    check_gradient(good, np.array([1.0, 2.0]))
    assert len(calls) < 10


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e3, 1e8])
def test_the_preflight_check_accepts_right_gradients_on_every_scale(scale):
    from refhmc.sampling.checks.preflight import check_gradient

    def log_density(q, data):
        return -0.5 * np.sum((q / data) ** 2)

    def gradient(q, data):
        return -q / data**2

    model = refhmc.Model(3, log_density, gradient, data=scale)
    check_gradient(model, scale * np.array([0.3, -1.0, 2.0]))
    assert model.runs_as_python is None


def test_starts_where_the_density_is_not_finite(sample):
    def log_density(q, data):
        return np.log(q[0])

    def gradient(q, data):
        return 1 / q

    few = {"in_python": FEW_CALLS}
    positive = refhmc.Model(1, log_density, gradient, name="positive", **few)
    with pytest.raises(InitError, match=r"log density.*\[-1.\].*chain 0.*nan"):
        sample(positive, initvals=[-1.0])
    nowhere = refhmc.Model(1, lambda q, data: -np.inf, lambda q, data: -q, name="nowhere", **few)
    with pytest.raises(InitError, match=r"100 .*log density 100"):
        sample(nowhere)
    improper = refhmc.Model(1, lambda q, data: np.inf, lambda q, data: -q, name="improper", **few)
    with pytest.raises(ModelError, match="improper"):
        sample(improper, initvals=[0.5])
    steep = refhmc.Model(1, lambda q, data: -q[0] * q[0], lambda q, data: np.array([np.nan]), name="steep", **few)
    with pytest.raises(InitError, match=r"gradient.*\[0.5\].*nan.*q\[0\]"):
        sample(steep, initvals=[0.5])


@pytest.mark.parametrize("bad", [NAN, -INF, INF])
@pytest.mark.parametrize("kernel", [refhmc.NUTS(step_size=0.5), refhmc.HMC(step_size=0.5, n_steps=4)])
def test_energies_that_are_not_finite_are_divergences_never_accepted(sample, kernel, bad):
    """At least 20 % of the 800 transitions diverge with 24 seeds; none does with a probability below 1e-70."""

    def log_density(q, data):
        return -0.5 * q[0] * q[0] if q[0] < 1 else data

    def gradient(q, data):
        return -q

    model = refhmc.Model(1, log_density, gradient, data=bad, name="half")
    with pytest.warns(refhmc.errors.SamplingWarning, match="diverged"):
        result = sample(model, kernel, draws=400, tune=0, chains=2, random_seed=1, initvals=[0.0])
    assert (result.draws < 1).all()
    diverging = result.sample_stats["diverging"]
    assert diverging.any()
    assert not diverging.all()
    nan = result.sample_stats["outcome"] == refhmc.core.sample_stats.OUTCOMES.index("nan")
    assert np.array_equal(nan, diverging)
    assert np.isfinite(result.sample_stats["energy"]).all()


@pytest.mark.sweep
def test_callers_arrays_are_converted_and_never_changed(normal, sample):
    start = np.array([1, 2])
    for initvals in (start, [1, 2], np.array([1.0, 2.0], dtype=np.float32), (1, 2.0)):
        result = sample(normal, draws=3, tune=0, chains=1, initvals=initvals, random_seed=1)
        assert result.draws.dtype == np.float64
    assert np.array_equal(start, [1, 2])
    one = refhmc.Model(1, lambda q, data: -0.5 * q[0] ** 2, lambda q, data: -q)
    assert sample(one, draws=3, tune=0, chains=1, initvals=0.5).draws.shape == (1, 3, 1)
    assert one.log_density(2.0) == -2.0


def test_a_missing_derivative_is_named_when_it_is_needed(normal):
    for name in ("hessian", "third_derivative", "fisher", "fisher_derivative"):
        with pytest.raises(MissingDerivativeError, match=rf"'normal'.* {name}.* refhmc.Model\(..., {name}=...\)"):
            getattr(normal, name)([0.0, 0.0])
    with pytest.raises(MissingDerivativeError, match="hessian_contraction"):
        normal.hessian_contraction([0.0, 0.0], np.eye(2))


def test_all_derivatives_that_a_metric_lacks_are_named_at_once(normal):
    with pytest.raises(MissingDerivativeError) as caught:
        refhmc.Hamiltonian(normal, refhmc.metrics.SoftAbs())
    assert str(caught.value) == (
        "Model 'normal' has no hessian and no hessian_contraction, which the metric SoftAbs needs: give refhmc.Model(..., "
        "hessian=..., hessian_contraction=...), or third_derivative=..., from which hessian_contraction is computed."
    )


def test_the_error_of_a_built_in_model_without_a_derivative_names_another_metric():
    with pytest.raises(MissingDerivativeError, match=r"not defined for refhmc.models.GARCH; use .*SoftAbs\(\)"):
        refhmc.Hamiltonian(models.GARCH(), refhmc.metrics.Fisher())


@pytest.mark.parametrize("backend", ["numba", "arrays"])
def test_what_is_not_a_model_is_named_with_every_backend(backend):
    with pytest.raises(TypeError, match="model must be a refhmc.Model .*; got int"):
        refhmc.sample(3, backend=backend)
