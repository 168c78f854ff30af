"""Everything that cannot be is refused before sampling begins, with its name and its value."""

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
        ({"initvals": [0.0, NAN]}, InitError, "chain 0: the start has b = nan"),
        ({"initvals": [[0.0, 0.0], [INF, 0.0]], "chains": 2}, InitError, "chain 1: the start has a = inf"),
        ({"initvals": [0.0, 0.0, 0.0]}, ShapeError, r"initvals: expected \(2,\) or \(4, 2\), got \(3,\)"),
        ({"initvals": np.zeros((3, 2))}, ShapeError, r"got \(3, 2\)"),
        ({"initvals": [[0.0], [0.0, 1.0]]}, ShapeError, "initvals"),
        ({"initvals": 1.0}, ShapeError, r"got \(\)"),
        ({"draws": -1}, ValueError, "draws must be at least 0, got -1"),
        ({"draws": 10.5}, TypeError, "draws must be a whole number, got 10.5"),
        ({"draws": True}, TypeError, "draws"),
        ({"tune": -1}, ValueError, "tune must be at least 0, got -1"),
        ({"chains": 0}, ValueError, "chains must be at least 1, got 0"),
        ({"cores": 0}, ValueError, "cores must be at least 1, got 0"),
        ({"max_seconds": 0}, ValueError, "max_seconds must be positive, got 0"),
        ({"backend": "opencl"}, ValueError, "backend must be 'numba', 'arrays' or 'cupy', got 'opencl'"),
        ({"random_seed": 1.5}, TypeError, "random_seed must be an int, got 1.5"),
        ({"kernel": refhmc.NUTS}, TypeError, "kernel must be"),
        ({"kernel": "gibbs"}, ValueError, "kernel must be .* one of the words .*hmc, .*nuts.*; got 'gibbs'"),
        ({"draws": 10**13}, MemoryError, "bytes"),
        ({"seed": 1}, TypeError, r"sample\(\) has no argument 'seed': it is called random_seed"),
        ({"num_warmup": 1}, TypeError, "no argument 'num_warmup': it is called tune"),
        ({"Draws": 1}, TypeError, "no argument 'Draws': it is called draws"),
        ({"drawz": 1}, TypeError, "did you mean draws"),
        ({"draws": NAN}, TypeError, "draws must be a whole number, got nan"),
        ({"tune": "5"}, TypeError, "tune must be a whole number, got '5'"),
        ({"chains": True}, TypeError, "chains must be a whole number, got True"),
        ({"cores": 1.5}, TypeError, "cores must be a whole number, got 1.5"),
        ({"max_seconds": NAN}, ValueError, "max_seconds must be positive, got nan"),
        ({"max_seconds": "10"}, ValueError, "max_seconds must be positive, got '10'"),
        ({"max_seconds": True}, ValueError, "max_seconds must be positive, got True"),
        (
            {"random_seed": [1, -1]},
            ValueError,
            r"random_seed must be whole numbers that are not negative, got \[1, -1\]",
        ),
        ({"random_seed": NAN}, TypeError, "random_seed must be an int, got nan"),
        ({"progressbar": "yes"}, TypeError, "progressbar must be True or False, got 'yes'"),
        ({"save_warmup": "no"}, TypeError, "save_warmup must be True or False, got 'no'"),
        ({"preflight": "off"}, TypeError, "preflight must be True or False, got 'off'"),
        ({"fuse": 2}, TypeError, "fuse must be True or False, got 2"),
        ({"backend": 3}, TypeError, "backend must be .*'cupy'.* got 3"),
        ({"init": "advi"}, ValueError, "init must be 'uniform' or 'pathfinder', got 'advi'"),
        ({"warmup": "pymc"}, ValueError, "warmup must be None, .*got 'pymc'"),
        ({"warmup": True}, ValueError, "warmup must be None, .*got True"),
        ({"generate": "prior"}, ValueError, "model 'normal' generates no group 'prior'"),
        ({"executor": "threads"}, TypeError, "executor must have a method submit, .*got 'threads'"),
        ({"checkpoint": 3}, TypeError, "checkpoint must be the path of a folder, got 3"),
        ({"shared_step_size": True}, ValueError, "shared_step_size .*refhmc.Arrays.*'numba'"),
        ({"initvals": "zero"}, ShapeError, r"initvals must be \(2,\) or \(4, 2\) numbers: could not convert"),
        ({"initvals": {"c": 1.0}}, ShapeError, "model 'normal' has no variable 'c'; it has a, b"),
        ({"initvals": {"a": 1.0}}, InitError, "initvals: a leaves b open"),
        ({"initvals": {"a": NAN, "b": 0.0}}, InitError, "initvals: a must be finite, got nan"),
        ({"initvals": {"a": [1.0, 2.0], "b": 0.0}}, ShapeError, r"a must have the shape \(\), got \(2,\)"),
        ({"kernel": refhmc.metrics.Dense()}, TypeError, "kernel must be refhmc.HMC.*, got Dense"),
        (
            {"kernel": refhmc.NUTS(metric="softabs")},
            MissingDerivativeError,
            "'normal' has no hessian, .*SoftAbs needs it",
        ),
        ({"kernel": refhmc.NUTS(metric="fisher")}, MissingDerivativeError, "'normal' has no fisher"),
        (
            {"target_accept": 0.9},
            TypeError,
            r"target_accept is the kernel's, as in sample\(model, NUTS\(target_accept=...\)\)",
        ),
        ({"adapt_delta": 0.9}, TypeError, "target_accept is the kernel's"),
        ({"n_steps": 3}, TypeError, r"sample\(model, HMC\(n_steps=...\)\); DHMC, HMC, .*have it"),
        ({"metric": "dense"}, TypeError, "metric is the kernel's"),
        ({"checkpoint": ""}, ValueError, "checkpoint must be the path of a folder, got ''; '.' is the current one"),
        ({"store": ""}, ValueError, "store must be the path of a folder, got ''"),
        ({"thin": 2}, TypeError, "no argument 'thin': all draws are kept; take every k-th of the result"),
        ({"coords": {}}, TypeError, "no argument 'coords': labels of axes belong to the model"),
        ({"trace": "x"}, TypeError, "no argument 'trace': draws are in the result; store= a folder"),
        ({"discard_tuned_samples": False}, TypeError, "the opposite meaning of save_warmup: save_warmup=True keeps"),
        ({"name": "x"}, TypeError, "no argument 'name'. It has model, kernel"),
        ({"nuts_sampler": "x"}, TypeError, "no argument 'nuts_sampler'. It has model, kernel, draws"),
    ],
)
def test_arguments_of_sample(normal, sample, arguments, error, words):
    with pytest.raises(error, match=words):
        sample(normal, **arguments)


def own(**parts):
    """A kernel of one's own, HMC but for some of its parts."""
    return type("Mine", (refhmc.HMC,), {name: property(lambda self, part=part: part) for name, part in parts.items()})()


@pytest.mark.parametrize(
    ("kernel", "error", "words"),
    [
        (own(transition=3), TypeError, "kernel Mine must have a transition that Numba compiles, got 3: decorate"),
        (own(statistics="lp"), TypeError, "kernel Mine must have statistics, a tuple of names, got 'lp'"),
        (own(statistics=None), TypeError, "kernel Mine must have statistics, a tuple of names, got None"),
        (
            own(statistics=("lp", "acceptance")),
            ValueError,
            "statistic that there is not, 'acceptance'; is it 'acceptance_rate'",
        ),
        (own(statistics=(3,)), ValueError, "Mine names a statistic that there is not, 3. There are .*energy"),
    ],
)
def test_kernels_of_one_s_own_that_cannot_be(normal, sample, kernel, error, words):
    with pytest.raises(error, match=words):
        sample(normal, kernel)
    with pytest.raises(error, match=f"block 'a': the {words}" if words.startswith("kernel") else words):
        refhmc.Gibbs({"a": kernel})


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="then none is compiled")
def test_a_transition_that_is_not_compiled_is_refused(normal, sample):
    def plain(dynamics, model, workspace, randomness, settings, stats, control):
        return 0

    with pytest.raises(TypeError, match=r"Mine must have a transition that Numba compiles, got <function .*numba.njit"):
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
    with pytest.raises(TypeError, match="model must be a refhmc.Model"):
        sample(lambda q: 0.0)


def of(make, **options):
    return lambda: make(**options)


def each(make, name, values, error, words):
    """A case for each of the values of one argument."""
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
        (of(HMC, n_steps=0), ValueError, "n_steps must be a whole number of at least 1, got 0"),
        (of(HMC, n_steps=2.5), ValueError, "n_steps must be a whole number of at least 1, got 2.5"),
        (of(HMC, n_steps=True), ValueError, "n_steps must be a whole number of at least 1, got True"),
        (of(HMC, n_steps=NAN), ValueError, "n_steps must be a whole number of at least 1, got nan"),
        (of(HMC, n_steps="5"), ValueError, "n_steps must be a whole number of at least 1, got '5'"),
        (of(HMC, n_steps=[5]), ValueError, r"n_steps must be a whole number of at least 1, got \[5\]"),
        (of(NUTS, max_treedepth=0), ValueError, "max_treedepth must be a whole number from 1 to 30, got 0"),
        (of(NUTS, max_treedepth=31), ValueError, "max_treedepth must be a whole number from 1 to 30, got 31"),
        (of(NUTS, max_treedepth=10.5), ValueError, "max_treedepth .* got 10.5"),
        (of(NUTS, max_treedepth=True), ValueError, "max_treedepth .* got True"),
        (of(NUTS, max_treedepth=NAN), ValueError, "max_treedepth .* got nan"),
        (of(NUTS, max_treedepth="10"), ValueError, "max_treedepth .* got '10'"),
        # numbers of kernels
        *[
            (of(kind, step_size=0.0), ValueError, "step_size must be positive and finite, got 0.0")
            for kind in (HMC, NUTS, DHMC)
        ],
        *each(NUTS, "step_size", (-0.1, NAN, INF, True, "0.1"), ValueError, "step_size must be positive and finite"),
        *each(NUTS, "target_accept", (0, 1.0, NAN, True, "0.9"), ValueError, "target_accept must lie between 0 and 1"),
        (of(HMC, n_steps=2, trajectory_length=1.0), ValueError, "n_steps or trajectory_length, not both"),
        *each(HMC, "trajectory_length", (-1.0, NAN, "1"), ValueError, "trajectory_length must be positive and finite"),
        *each(HMC, "step_jitter", (1.0, NAN, ".1", True), ValueError, r"step_jitter must lie in \[0, 1\)"),
        (of(HMC, length_jitter=-0.1), ValueError, r"length_jitter must lie in \[0, 1\), got -0.1"),
        # names of other libraries, and none
        (of(NUTS, adapt_delta=0.9), TypeError, r"NUTS\(\) has no option 'adapt_delta': it is called target_accept"),
        (of(NUTS, max_depth=5), TypeError, "no option 'max_depth': it is called max_treedepth"),
        (of(HMC, num_steps=5), TypeError, "no option 'num_steps': it is called n_steps"),
        (of(HMC, step_sise=5), TypeError, "no option 'step_sise': it is called step_size"),
        (of(NUTS, n_steps=5), TypeError, "NUTS.. has no option 'n_steps'. It has step_size, max_treedepth"),
        # words and objects of kernels
        (of(NUTS, metric="fishy"), ValueError, "metric must be .* one of the words auto, .*softabs.*; got 'fishy'"),
        (of(NUTS, metric=refhmc.metrics.Dense), TypeError, "metric must be .*, got the class Dense: call it"),
        (of(NUTS, metric=np.eye(2)), TypeError, "metric must be one of refhmc.metrics, got ndarray"),
        (of(NUTS, integrator="verlet"), ValueError, "integrator must be .* leapfrog, .*; got 'verlet'"),
        (
            of(NUTS, integrator=refhmc.integrators.Leapfrog),
            TypeError,
            "integrator must be .* got the class Leapfrog: call it",
        ),
        (of(HMC, integrator=np.eye(2)), TypeError, "integrator must be one of refhmc.integrators, got ndarray"),
        (lambda: refhmc.Gibbs("a"), ValueError, "blocks must map names or indices to kernels, got 'a'"),
        # metrics and integrators
        *each(
            refhmc.metrics.SoftAbs, "alpha", (0, -1.0, NAN, "1", True), ValueError, "alpha must be positive and finite"
        ),
        (of(refhmc.metrics.Dense, learn_from="gradients"), ValueError, "learn_from must be 'draws', .*got 'gradients'"),
        (of(refhmc.metrics.Diagonal, learn_from=3), ValueError, "learn_from must be 'draws', .*got 3"),
        *each(
            refhmc.integrators.ImplicitMidpoint,
            "tolerance",
            (0, NAN, "1", True),
            ValueError,
            "tolerance must be at least 1e-14, .*",
        ),
        *each(
            refhmc.integrators.ImplicitMidpoint,
            "max_iterations",
            (0, True, NAN, 2.5, "9"),
            ValueError,
            "max_iterations must be a whole number of at least 1",
        ),
        (
            of(refhmc.integrators.ImplicitMidpoint, solver="newton"),
            ValueError,
            "solver must be 'fixed point' or 'anderson', got 'newton'",
        ),
        (of(refhmc.integrators.ExplicitTao, omega=NAN), ValueError, "omega must be finite and not negative, got nan"),
        # trajectories and evaluations
        (followed(step_size=NAN), ValueError, "step_size must be finite and not zero, got nan"),
        (followed(step_size="0.1"), ValueError, "step_size must be finite and not zero, got '0.1'"),
        (followed(n_steps=True), ValueError, "n_steps must be a whole number of at least 0, got True"),
        (followed(n_steps=NAN), ValueError, "n_steps must be a whole number of at least 0, got nan"),
        (followed(p=(0.0,)), ShapeError, r"momentum: expected \(2,\), got \(1,\)"),
        (followed(p="ab"), ShapeError, "momentum must be real numbers, got 'ab'"),
        (evaluated("log_density", [0.0, 0.0, 0.0]), ShapeError, r"position of 'normal': expected \(2,\), got \(3,\)"),
        (evaluated("log_density", [[0.0, 0.0]]), ShapeError, r"position of 'normal': expected \(2,\), got \(1, 2\)"),
        (evaluated("gradient", "ab"), ShapeError, "position of 'normal' must be real numbers, got 'ab'"),
        (evaluated("gradient", [1j, 0]), ShapeError, r"position of 'normal' must be real numbers, got \[1j, 0\]"),
        (
            evaluated("hessian", [0.0, 0.0]),
            MissingDerivativeError,
            "'normal' has no hessian, .*refhmc.Model\\(..., hessian=",
        ),
        (lambda: refhmc.Hamiltonian("x"), TypeError, "model must be a refhmc.Model, got str"),
        # models: dimensions, names, functions
        *each(
            functools.partial(Model, log_density=density, gradient=slope),
            "dim",
            (0, -1, 2.5, NAN, True, "2", None),
            ShapeError,
            "dim must be a whole number of at least 1",
        ),
        (made(log_density=None), ModelError, "log_density must be a function, got None"),
        (made(log_density=3), ModelError, "log_density must be a function, got int"),
        (made(gradient=np.zeros(2)), ModelError, "gradient must be a function, got ndarray"),
        (made(hessian=np.eye(2)), ModelError, "hessian must be a function, got ndarray"),
        (made(constrain=3), ModelError, "constrain must be a function, got int"),
        (made(names=["a"]), ShapeError, r"names must be 2 different names, got \['a'\]"),
        (made(names=["a", "a"]), ShapeError, "names must be 2 different names, got"),
        (made(names="ab"), ShapeError, "names must be a sequence of 2 names, got the string 'ab'"),
        (made(names=["x", "x[0]"]), ShapeError, "'x\\[0\\]' is an entry of the variable 'x'"),
        (made(names=["draw", "b"]), ShapeError, "a coordinate cannot be called 'draw'"),
        (made(initial=[0.0]), ShapeError, r"initial of 'model': expected \(2,\), got \(1,\)"),
        (made(initial=["a", "b"]), ShapeError, "initial of 'model' must be real numbers"),
        (made(discontinuous=[2]), ModelError, "an index of discontinuous must be a whole number from 0 to 1, got 2"),
        (made(discontinuous=["c"]), ModelError, "no coordinate is named 'c'"),
        (made(dims=3), ModelError, "dims must be a dictionary"),
        (made(coords={"year": [1]}), ModelError, "coords: dims has no axis 'year'"),
        (made(generated=3), ModelError, "generated must be a refhmc.GeneratedQuantities or a dictionary, got int"),
        # built-in models: ranks, lengths, labels, data that are not finite
        (lambda: models.Funnel("3"), ValueError, "n must be a whole number of at least 0, got '3'"),
        (lambda: models.EightSchools(centered="yes"), TypeError, "centered must be True or False, got 'yes'"),
        (lambda: models.Gaussian(np.zeros(2), np.eye(3)), ShapeError, "mean must be a number or"),
        (lambda: models.Gaussian([NAN, 0.0], np.eye(2)), MetricError, "mean and covariance must be finite"),
        (lambda: models.Gaussian(np.zeros(2), -np.eye(2)), MetricError, "covariance must be positive definite"),
        (lambda: models.LogisticRegression(X, LABELS + 1), ValueError, "y must be zeros and ones, got"),
        (lambda: models.LogisticRegression(X * NAN, LABELS), ValueError, "X must be finite"),
        (lambda: models.LogisticRegression(LABELS, LABELS), ShapeError, r"X must be \(n, d\)"),
        (
            lambda: models.LogisticRegression(X, LABELS[:4]),
            ShapeError,
            r"y must be \(5,\) like the rows of X, got \(4,\)",
        ),
        *each(
            functools.partial(models.LogisticRegression, X, LABELS),
            "prior_scale",
            (0, "1", NAN),
            ValueError,
            "prior_scale must be positive",
        ),
        (lambda: models.LinearRegression(X, LABELS * NAN), ValueError, "X and y must be finite"),
        (lambda: models.MLP([2], X, LABELS), ValueError, "widths must be two or more, got"),
        (
            lambda: models.MLP([2, "3", 1], X, LABELS),
            ValueError,
            "widths must be a whole number of at least 1, got '3'",
        ),
        (lambda: models.MLP([2, 3, 1], X, LABELS[:3]), ShapeError, r"y must be \(5, 1\), a row for each of X, got"),
        (lambda: models.SoftmaxRegression(X, LABELS + 0.5), ValueError, r"labels are 0, .*; y\[0\] is 0.5"),
        (lambda: models.SoftmaxRegression("x", LABELS), ValueError, "X must be real numbers, got 'x'"),
        (lambda: refhmc.Parameters(), ModelError, "Parameters needs at least one parameter"),
        (lambda: refhmc.generate(models.Funnel(1), 3), TypeError, "result must be what sample returned, got int"),
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
    with pytest.raises(InitError, match=f"of the model's data, {where}"):
        sample(model, initvals=initvals)


def masked(values, where):
    """An array whose entries ``where`` are masked."""
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
def test_masked_entries_are_refused_where_they_stand(make, error, where):
    with pytest.raises(error, match=f"{where} is masked, and masks are not read"):
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
def test_complex_numbers_are_refused(make, error, what):
    with pytest.raises(error, match=f"{what} must be real numbers, got (?s:.)*: these are complex"):
        make()


@pytest.mark.parametrize(
    ("metric", "error", "words"),
    [
        (refhmc.metrics.Diagonal([1.0, -2.0]), MetricError, "the least is -2.0"),
        (refhmc.metrics.Diagonal([1.0, NAN]), MetricError, "positive and finite"),
        (refhmc.metrics.Diagonal([1.0, 1.0, 1.0]), ShapeError, r"variances: expected \(2,\), got \(3,\)"),
        (refhmc.metrics.Dense([[1.0, 2.0], [2.0, 1.0]]), MetricError, "least eigenvalue is -1"),
        (refhmc.metrics.Dense([[1.0, 0.5], [0.4, 1.0]]), MetricError, "not symmetric"),
        (refhmc.metrics.Dense(np.ones((2, 2))), MetricError, "not positive definite"),
        (refhmc.metrics.Dense(np.eye(3)), ShapeError, r"covariance: expected \(2, 2\), got \(3, 3\)"),
    ],
)
def test_metrics(normal, sample, metric, error, words):
    with pytest.raises(error, match=words):
        sample(normal, refhmc.NUTS(metric=metric))


@pytest.mark.parametrize(
    ("log_density", "gradient", "words"),
    [
        (lambda q, data: None, lambda q, data: -q, "log_density must return a real number, it returned NoneType"),
        (lambda q, data: -q, lambda q, data: -q, "log_density must return a real number, it returned ndarray of shape"),
        (lambda q, data: 1j * q[0], lambda q, data: -q, "log_density must return a real number, it returned complex"),
        (lambda q, data: "x", lambda q, data: -q, "log_density must return a real number, it returned str"),
        (
            lambda q, data: -0.5 * np.sum(q * q),
            lambda q, data: -q[:1],
            r"gradient must return real numbers of shape \(2,\)",
        ),
        (lambda q, data: -0.5 * np.sum(q * q), lambda q, data: None, "gradient must return real numbers"),
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

    with pytest.raises(ModelError, match="changed its argument q in place"):
        sample(refhmc.Model(2, log_density, lambda q, data: -q), initvals=[0.1, 0.2])


def test_a_gradient_that_is_not_the_derivative(sample):
    calls = []

    def log_density(q, data):
        calls.append(1)
        return -0.5 * float(q @ q)

    wrong = refhmc.Model(2, log_density, lambda q, data: -1.01 * q, data={"python": True})
    with pytest.raises(GradientError, match="the gradient says .* differences of the log density"):
        sample(wrong, initvals=[1.0, 2.0])
    result = sample(wrong, draws=5, tune=0, chains=1, initvals=[1.0, 2.0], preflight=False)
    assert result.attributes["preflight"] is False
    good = refhmc.Model(2, log_density, lambda q, data: -q, data={"python": True})
    from refhmc.sampling.initialization import check_gradient

    calls.clear()
    check_gradient(good, np.array([1.0, 2.0]))
    assert len(calls) < 10


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1.0, 1e3, 1e8])
def test_the_preflight_check_accepts_right_gradients_on_every_scale(scale):
    from refhmc.sampling.initialization import check_gradient

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
    with pytest.raises(InitError, match=r"chain 0: the log density at the start \[-1.\] is nan"):
        sample(positive, initvals=[-1.0])
    nowhere = refhmc.Model(1, lambda q, data: -np.inf, lambda q, data: -q, name="nowhere", **few)
    with pytest.raises(InitError, match=r"no start found in 100 tries.*log density 100 times"):
        sample(nowhere)
    improper = refhmc.Model(1, lambda q, data: np.inf, lambda q, data: -q, name="improper", **few)
    with pytest.raises(ModelError, match="improper"):
        sample(improper, initvals=[0.5])
    steep = refhmc.Model(1, lambda q, data: -q[0] * q[0], lambda q, data: np.array([np.nan]), name="steep", **few)
    with pytest.raises(InitError, match=r"the gradient at the start \[0.5\] is nan for q\[0\]"):
        sample(steep, initvals=[0.5])


@pytest.mark.parametrize("bad", [NAN, -INF, INF])
@pytest.mark.parametrize("kernel", [refhmc.NUTS(step_size=0.5), refhmc.HMC(step_size=0.5, n_steps=4)])
def test_energies_that_are_not_finite_are_divergences_never_accepted(sample, kernel, bad):
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


def test_shapes_at_the_model(normal):
    with pytest.raises(ShapeError, match=r"position of 'normal': expected \(2,\), got \(3,\)"):
        normal.log_density([1.0, 2.0, 3.0])
    with pytest.raises(ShapeError, match="dim must be a whole number of at least 1, got 0"):
        refhmc.Model(0, lambda q, data: 0.0, lambda q, data: q)
    with pytest.raises(ShapeError, match="names must be 2 different names"):
        refhmc.Model(2, lambda q, data: 0.0, lambda q, data: q, names=["a", "a"])
    with pytest.raises(ModelError, match="gradient must be a function, got float"):
        refhmc.Model(2, lambda q, data: 0.0, 1.0)
    with pytest.raises(ShapeError, match=r"M of hessian_contraction: expected \(3, 3\), got \(2, 2\)"):
        refhmc.models.Funnel(2).hessian_contraction(np.zeros(3), np.eye(2))


def test_a_missing_derivative_is_named_when_it_is_needed(normal):
    for name in ("hessian", "third_derivative", "fisher", "fisher_derivative"):
        with pytest.raises(
            MissingDerivativeError, match=rf"model 'normal' has no {name}, .* refhmc.Model\(..., {name}=...\)"
        ):
            getattr(normal, name)([0.0, 0.0])
    with pytest.raises(MissingDerivativeError, match="no hessian_contraction"):
        normal.hessian_contraction([0.0, 0.0], np.eye(2))
