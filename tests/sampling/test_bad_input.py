"""Everything that cannot be is refused before sampling begins, with its name and its value."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.errors import GradientError, InitError, MetricError, MissingDerivativeError, ModelError, ShapeError
from tests.helpers.models import FEW_CALLS

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
        (
            {"target_accept": 0.9},
            TypeError,
            r"target_accept is the kernel's, as in sample\(model, NUTS\(target_accept=...\)\)",
        ),
        ({"adapt_delta": 0.9}, TypeError, "target_accept is the kernel's"),
        ({"n_steps": 3}, TypeError, r"sample\(model, HMC\(n_steps=...\)\); DHMC, HMC, .*have it"),
        ({"metric": "dense"}, TypeError, "metric is the kernel's"),
        ({"nuts_sampler": "x"}, TypeError, "no argument 'nuts_sampler'. It has model, kernel, draws"),
    ],
)
def test_arguments_of_sample(normal, sample, arguments, error, words):
    with pytest.raises(error, match=words):
        sample(normal, **arguments)


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


@pytest.mark.parametrize("kernel", [refhmc.NUTS, refhmc.HMC])
@pytest.mark.parametrize("step_size", [0.0, -0.1, NAN, INF])
def test_step_sizes(kernel, step_size):
    with pytest.raises(ValueError, match="step_size must be positive and finite, got"):
        kernel(step_size=step_size)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: refhmc.HMC(n_steps=0), "n_steps must be a whole number of at least 1, got 0"),
        (lambda: refhmc.HMC(n_steps=2.5), "n_steps must be a whole number of at least 1, got 2.5"),
        (lambda: refhmc.HMC(n_steps=2, trajectory_length=1.0), "n_steps or trajectory_length, not both"),
        (lambda: refhmc.HMC(trajectory_length=-1.0), "trajectory_length must be positive and finite, got -1.0"),
        (lambda: refhmc.HMC(step_jitter=1.0), r"step_jitter must lie in \[0, 1\), got 1.0"),
        (lambda: refhmc.HMC(length_jitter=-0.1), r"length_jitter must lie in \[0, 1\), got -0.1"),
        (lambda: refhmc.NUTS(target_accept=1.0), "target_accept must lie between 0 and 1, got 1.0"),
        (lambda: refhmc.NUTS(max_treedepth=0), "max_treedepth must be a whole number from 1 to 30, got 0"),
    ],
)
def test_options_of_the_kernels(make, words):
    with pytest.raises(ValueError, match=words):
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


def test_a_metric_or_integrator_that_is_none():
    with pytest.raises(TypeError, match="metric must be one of refhmc.metrics, got ndarray"):
        refhmc.NUTS(metric=np.eye(2))
    with pytest.raises(TypeError, match="integrator must be one of refhmc.integrators, got ndarray"):
        refhmc.HMC(integrator=np.eye(2))


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
@pytest.mark.parametrize("initvals", [[0.1, 0.2], None])
def test_functions_that_return_the_wrong_thing(sample, log_density, gradient, words, initvals):
    with pytest.raises(ModelError, match=words):
        sample(refhmc.Model(2, log_density, gradient), initvals=initvals)


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
    with pytest.raises(ShapeError, match=r"M of trace: expected \(3, 3\), got \(2, 2\)"):
        refhmc.models.Funnel(2).trace(np.zeros(3), np.eye(2))


def test_a_missing_derivative_is_named_when_it_is_needed(normal):
    for name in ("hessian", "third_derivative", "fisher", "fisher_derivative"):
        with pytest.raises(
            MissingDerivativeError, match=rf"model 'normal' has no {name}, .* refhmc.Model\(..., {name}=...\)"
        ):
            getattr(normal, name)([0.0, 0.0])
    with pytest.raises(MissingDerivativeError, match="no trace"):
        normal.trace([0.0, 0.0], np.eye(2))
