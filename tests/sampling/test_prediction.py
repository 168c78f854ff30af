"""Predictions at new inputs: they agree with the log density, work in both versions of ArviZ, and need bounded memory."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc.core import arviz
from refhmc.errors import ModelError, ShapeError
from refhmc.models.networks.likelihoods import Gaussian
from tests.helpers.sweeps import representatives

ALPHA = 1e-6 / 8  # of each random check below


def numbers(*shape, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


X3, Y3 = numbers(14, 3), np.arange(14) % 3
IMAGES = numbers(14, 2, 6, 7)
MODELS = {
    "gaussian": (lambda: refhmc.models.MLP([3, 4, 2], X3, X3[:, :2], output_precision=2.5), X3, X3[:, :2]),
    "bernoulli": (lambda: refhmc.models.MLP([3, 4, 1], X3, Y3 % 2, likelihood="bernoulli"), X3, Y3 % 2),
    "softmax": (lambda: refhmc.models.SoftmaxRegression(X3, Y3), X3, Y3),
    "cnn": (lambda: refhmc.models.CNN(IMAGES, Y3, channels=[2], dense=[3], side=3), IMAGES, Y3),
    "cnn, single": (
        lambda: refhmc.models.CNN(IMAGES, Y3, channels=[2], dense=[], side=3, dtype=np.float32),
        IMAGES,
        Y3,
    ),
    "logistic": (lambda: refhmc.models.LogisticRegression(X3, Y3 % 2), X3, Y3 % 2),
    "linear": (lambda: refhmc.models.LinearRegression(X3, X3[:, 0] + Y3), X3, X3[:, 0] + Y3),
}


def result_of(model, chains: int = 2, draws: int = 5) -> refhmc.Result:
    """Return a result of random positions about zero, without a run."""
    q = numbers(chains, draws, model.dim, seed=3) * 0.3
    posterior = {key: value for key, value in model.constrain(q).items()}
    stats = {"lp": np.zeros((chains, draws)), "energy": np.zeros((chains, draws))}
    groups = {"posterior": posterior, "sample_stats": stats, "unconstrained_posterior": {"q": q}}
    return refhmc.Result(groups, {"interrupted": False, "model": model.name})


@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_log_density_agrees_with_the_predictions(name):
    """sum_n log p(y_n | predicted) differs from the model's log density by the prior and a constant: the same at all draws
    once -lambda/2 |q|^2, known beforehand, is taken away."""
    make, X, y = MODELS[name]
    model = make()
    result = result_of(model)
    predictions = refhmc.predict(model, result, X, batch=4).groups["predictions"]
    rest = []
    for index in np.ndindex(result.draws.shape[:2]):
        q = result.draws[index]
        if "mean" in predictions:
            mean, sd = predictions["mean"][index], predictions["sd"][index]
            at = y if np.ndim(y) == 2 else y[:, None]
            likelihood = scipy.stats.norm.logpdf(at, mean, sd).sum()
        else:
            p = predictions["probability"][index]
            assert p.sum(axis=1) == pytest.approx(np.ones(14), abs=1e-6 if "single" in name else 1e-14)
            likelihood = sum(np.log(p[n, y[n]]) for n in range(14))
        prior = -np.log(np.cosh(q[-1] - np.log(2.5))) if name == "linear" else -0.5 * q @ q
        rest.append(model.log_density(q) - likelihood - prior)
    assert np.ptp(rest) <= (1e-5 if "single" in name else 1e-11)


@pytest.mark.parametrize("name", representatives(["gaussian", "cnn", "logistic", "linear"], ["gaussian", "logistic"]))
def test_split_models_batches_and_thinning(name):
    make, X, _ = MODELS[name]
    model = make()
    result = result_of(model)
    options = {"observations": True, "random_seed": 4}
    whole = refhmc.predict(model, result, X, **options)
    for other in (
        refhmc.predict(model.split(3), result, X, **options),
        refhmc.predict(pickle.loads(pickle.dumps(model)), result, X, **options),
        refhmc.predict(model, result, X, batch=5, **options),
    ):
        for group in ("predictions", "posterior_predictive"):
            assert whole.groups[group].keys() == other.groups[group].keys()
            for key, value in whole.groups[group].items():
                np.testing.assert_allclose(other.groups[group][key], value, rtol=1e-13, atol=1e-15)
    thinned = refhmc.predict(model, result, X, thin=2).groups["predictions"]
    for key, value in thinned.items():
        assert np.array_equal(value, whole.groups["predictions"][key][:, ::2])
    assert whole.posterior is result.posterior
    assert "predictions" not in result.groups


@pytest.mark.sweep
def test_drawn_observations_have_the_predicted_law():
    """Draws of y have the predicted distribution.

    With 4,000 values each, a chi-square test nearly always detects an error of 0.06 in a probability, and a Kolmogorov test
    one of 0.1 sd in a mean, at the given false-alarm rate.
    """
    beta, sigma = np.array([0.7, -1.2]), 0.4
    linear = refhmc.models.LinearRegression(numbers(9, 2), numbers(9, seed=1))
    result = result_of(linear, 1, 4000)
    result.groups["unconstrained_posterior"]["q"][:] = [*beta, np.log(sigma)]
    x = np.array([[1.0, 2.0]])
    y = refhmc.predict(linear, result, x, observations=True, random_seed=1).groups["posterior_predictive"]["y"]
    assert y.shape == (1, 4000, 1, 1)
    assert scipy.stats.kstest((y.ravel() - float(x[0] @ beta)) / sigma, "norm").pvalue > ALPHA

    softmax = refhmc.models.SoftmaxRegression(X3, Y3)
    result = result_of(softmax, 1, 4000)
    result.groups["unconstrained_posterior"]["q"][:] = numbers(softmax.dim, seed=8)
    predicted = refhmc.predict(softmax, result, X3[:2], observations=True, random_seed=2)
    p, y = predicted.groups["predictions"]["probability"][0, 0], predicted.groups["posterior_predictive"]["y"][0]
    assert y.dtype.kind == "i"
    for n in range(2):
        counts = np.bincount(y[:, n], minlength=3)
        assert scipy.stats.chisquare(counts, 4000 * p[n]).pvalue > ALPHA


def test_a_class_without_probability_is_never_drawn():
    """Probabilities of 0, 1 and less than the rounding of a sum, at the first, a middle and the last class."""
    model = refhmc.models.SoftmaxRegression(np.eye(3), [0, 1, 2])
    result = result_of(model, 1, 300)
    q = result.groups["unconstrained_posterior"]["q"]
    q[:] = 0.0
    q[:, :, :9] = np.ravel([[0.0, -800.0, -800.0], [-800.0, 0.0, 0.0], [-800.0, 0.0, 0.0]])  # W, a row for each class
    predicted = refhmc.predict(model, result, np.eye(3)[:2], observations=True, random_seed=0)
    p, y = predicted.groups["predictions"]["probability"], predicted.groups["posterior_predictive"]["y"]
    assert np.array_equal(p[0, 0], [[1, 0, 0], [0, 0.5, 0.5]])
    assert (y[0, :, 0] == 0).all()
    assert set(y[0, :, 1]) == {1, 2}


@pytest.mark.parametrize("kind", ["InferenceData", "DataTree"])
def test_arviz_objects_come_back_with_the_groups(kind, monkeypatch):
    if kind == "DataTree":
        monkeypatch.setattr(arviz, "arviz_0", lambda: None)
    elif arviz.arviz_0() is None:
        pytest.skip("ArviZ 0.x is not installed")
    make, X, _ = MODELS["cnn"]
    model = make()
    result = result_of(model)
    options = {"observations": True, "random_seed": 2**100 + 1, "thin": 2}
    raw = refhmc.predict(model, result, X[:4], **options)
    before = result.to_arviz()
    tree = refhmc.predict(model, before, X[:4], **options)
    assert type(tree) is type(before)
    assert type(tree).__name__ == kind
    for each in (tree, raw.to_arviz()):
        assert each["predictions"]["probability"].dims == ("chain", "draw", "observation", "class")
        assert each["posterior_predictive"]["y"].dims == ("chain", "draw", "observation")
        assert each["predictions"]["draw"].values.tolist() == [0, 2, 4]
        assert np.array_equal(each["predictions"]["probability"].values, raw.groups["predictions"]["probability"])
        assert np.array_equal(each["posterior_predictive"]["y"].values, raw.groups["posterior_predictive"]["y"])
        assert each["predictions"].attrs["prediction_entropy"] == str(2**100 + 1)
        assert np.array_equal(each["unconstrained_posterior"]["q"].values, result.draws)
    again = refhmc.predict(model, tree, X[:3])  # replaces
    assert again["predictions"]["probability"].shape == (2, 5, 3, 3)
    assert tree["predictions"]["probability"].shape == (2, 3, 4, 3)
    assert again["sample_stats"]["lp"].shape == (2, 5)
    gaussian = MODELS["gaussian"][0]()
    tree = refhmc.predict(gaussian, result_of(gaussian), X3, observations=True, random_seed=1).to_arviz()
    assert tree["predictions"]["mean"].dims == tree["posterior_predictive"]["y"].dims
    assert tree["predictions"]["mean"].dims == ("chain", "draw", "observation", "output")
    assert tree["predictions"]["sd"].dims == ("chain", "draw")
    assert float(tree["predictions"]["sd"].values[0, 0]) == 2.5**-0.5


@pytest.mark.sweep
def test_memory_beside_the_result_is_that_of_a_batch():
    """NumPy's additional memory grows with the batch, but not with 16 times the rows or 4 times the draws.

    (Batches are so large that Python's own lists of freed tuples, 100 kB at most, do not matter.)
    """
    model = refhmc.models.CNN(IMAGES, Y3, channels=[4], dense=[], side=3)

    def beside(n: int, draws: int, batch: int) -> int:
        result, X = result_of(model, 1, draws), np.zeros((n, *IMAGES.shape[1:]))
        refhmc.predict(model, result, X[:2])
        tracemalloc.start()
        groups = refhmc.predict(model, result, X, batch=batch).groups
        used = tracemalloc.get_traced_memory()[1] - groups["predictions"]["probability"].nbytes
        tracemalloc.stop()
        return used

    small = beside(160, 3, 80)
    assert beside(2560, 12, 80) < 1.2 * small
    assert beside(2560, 3, 640) > 4 * small


def outputs(q, X):
    return X[:, :1] * q[0]


def of_ones_own(**options):
    return refhmc.Model(1, lambda q, data: -0.5 * q[0] ** 2, lambda q, data: -q, **options)


def test_a_model_of_ones_own():
    model = of_ones_own(outputs=outputs, likelihood=lambda q: Gaussian(4.0 + q[0] ** 2))
    result = result_of(model)
    predictions = refhmc.predict(model, result, X3).groups["predictions"]
    assert np.array_equal(predictions["mean"], X3[:, :1] * result.draws[..., None])
    np.testing.assert_allclose(predictions["sd"], (4 + result.draws[..., 0] ** 2) ** -0.5, rtol=1e-15)
    model = of_ones_own(outputs=outputs)
    assert np.array_equal(refhmc.predict(model, result, X3).groups["predictions"]["outputs"], predictions["mean"])
    with pytest.raises(NotImplementedError, match="likelihood="):
        refhmc.predict(model, result, X3, observations=True)


@pytest.mark.parametrize(
    ("name", "X", "options", "error", "words"),
    [
        ("softmax", X3[:, :2], {}, ShapeError, r"X must .*\(n, 3\).*got.*\(14, 2\)"),
        ("softmax", X3[:0], {}, ShapeError, "X must"),
        ("softmax", np.where(X3 > 1, np.nan, X3), {}, ValueError, "X must .*finite"),
        ("softmax", X3 + 1j, {}, ValueError, "X must .*real(?s:.)*complex"),
        ("softmax", np.ma.masked_greater(X3, X3.max() - 1e-9), {}, ValueError, r"X\[\d+, \d\].* mask"),
        ("softmax", np.vstack([X3, [[0, 0, np.inf]]]), {"batch": 5}, ValueError, r"X\[14, 2\].* inf"),
        ("logistic", X3[:, :2], {}, ShapeError, r"X must .*\(n, 3\)"),
        ("linear", X3[0], {}, ShapeError, r"X must .*\(n, 3\)"),
        ("cnn", IMAGES[:, :1], {}, ShapeError, r"\(6, 7, 2\).*\(height, width, channels\)"),
        ("cnn", IMAGES[:, :, :5], {}, ShapeError, r"got.*\(5, 7, 2\)"),
        ("cnn", X3, {}, ShapeError, r"\(n, height, width\)"),
        ("softmax", X3, {"thin": 0}, ValueError, "thin must .*got 0"),
        ("softmax", X3, {"batch": 2.5}, ValueError, "batch must .*got 2.5"),
    ],
)
def test_invalid_arguments_are_rejected(name, X, options, error, words):
    model = MODELS[name][0]()
    with pytest.raises(error, match=words):
        refhmc.predict(model, result_of(model), X, **options)


def test_other_peoples_mistakes_are_named():
    funnel = refhmc.models.Funnel(2)
    with pytest.raises(NotImplementedError, match=r"'funnel'.*outputs="):
        refhmc.predict(funnel, result_of(funnel), X3)
    model = MODELS["softmax"][0]()
    with pytest.raises(ShapeError, match=r"\(chain, draw, 12\).*got.*\(2, 5, 3\)"):
        refhmc.predict(model, result_of(funnel), X3)
    flat = of_ones_own(outputs=lambda q, X: X[:, 0] * q[0], name="flat")
    with pytest.raises(ModelError, match=r"outputs of 'flat' must .*\(14, k\).*got.*\(14,\)"):
        refhmc.predict(flat, result_of(flat), X3)
    for nothing in (None, result_of(model).draws, {"posterior": {}}):
        with pytest.raises(TypeError, match="result must .*got"):
            refhmc.predict(model, nothing, X3)
    with pytest.raises(TypeError, match="model must .*refhmc.Model"):
        refhmc.predict("softmax", result_of(model), X3)
