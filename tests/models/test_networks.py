"""Networks: every derivative by an independent method, on layers of every kind; invalid arguments."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest

import refhmc
from refhmc.errors import MissingDerivativeError, ModelError, ShapeError
from refhmc.models.networks.expansion import constant
from refhmc.models.networks.likelihoods import slope
from refhmc.models.networks.network import backward, forward, stacked
from tests.helpers.sweeps import representatives, swept

STEP = 1e-30
SCALE, ALPHA = 1.0507009873554805, 1.6732632423543772


def images(n: int, shape: tuple, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, *shape))


def mlp(widths, activation, likelihood, **options):
    X = images(6, (widths[0],))
    rng = np.random.default_rng(1)
    y = rng.normal(size=(6, widths[-1])) if likelihood == "gaussian" else rng.integers(0, max(widths[-1], 2), 6)
    return refhmc.models.MLP(widths, X, y, activation=activation, likelihood=likelihood, **options)


MODELS = {
    "tanh gaussian": lambda: mlp([1, 5, 1], "tanh", "gaussian", output_precision=2.5),
    "relu gaussian": lambda: mlp([2, 4, 3, 2], "relu", "gaussian", prior_precision=[0.5, 1.0, 2.0]),
    "selu bernoulli": lambda: mlp([3, 4, 1], "selu", "bernoulli"),
    "tanh softmax": lambda: mlp([2, 3, 3], "tanh", "softmax"),
    "softmax regression": lambda: refhmc.models.SoftmaxRegression(images(7, (2,)), [0, 1, 2, 2, 1, 0, 1]),
    "linear": lambda: mlp([3, 2], "tanh", "gaussian"),
    "cnn relu": lambda: refhmc.models.CNN(images(3, (6, 7)), [0, 1, 1], channels=[2], dense=[3], side=3),
    "cnn selu": lambda: refhmc.models.CNN(
        images(3, (2, 8, 8)), [2, 1, 0], channels=[2, 2], dense=[], side=2, activation="selu"
    ),
    "cnn tanh, no pooling": lambda: refhmc.models.CNN(
        images(2, (5, 5)), [0, 1], channels=[2], dense=[2], side=3, pool=1, activation="tanh"
    ),
}
any_network = pytest.mark.parametrize(
    "name", representatives(sorted(MODELS), ["cnn relu", "selu bernoulli", "tanh softmax"])
)


def layers_of(model) -> tuple:
    return model.functions.value_and_gradient.__self__.layers


def likelihood_of(model):
    return model.functions.value_and_gradient.__self__.likelihood


def written_out(model, w):
    """Return the log density at real or complex weights, layer by layer and place by place, without the layers of refhmc."""
    X, y = model.data
    arrays = model._constrain(w)
    total = 0.0
    for x, target in zip(X, y, strict=True):
        a, names = x, iter([key for key in arrays if key[0] in "WK"])
        for layer in layers_of(model):
            kind = type(layer).__name__
            if kind == "RowsLast":  # of an array of many images
                continue
            if kind in ("Dense", "Convolution"):
                key = next(names)
                W, b = arrays[key], arrays["b" + key[1:]]
            if kind == "Dense":
                a = W @ a + b
            elif kind == "Convolution":
                s = W.shape[-1]
                out = np.empty((a.shape[0] - s + 1, a.shape[1] - s + 1, W.shape[0]), W.dtype)
                for i, j, k in np.ndindex(out.shape):
                    out[i, j, k] = np.sum(W[k] * np.moveaxis(a[i : i + s, j : j + s], -1, 0)) + b[k]
                a = out
            elif kind == "MaxPooling":
                s = layer.side
                out = np.empty((a.shape[0] // s, a.shape[1] // s, a.shape[2]), a.dtype)
                for i, j, k in np.ndindex(out.shape):
                    square = a[i * s : (i + 1) * s, j * s : (j + 1) * s, k].ravel()
                    out[i, j, k] = square[np.argmax(square.real)]
                a = out
            elif kind == "Flattening":
                a = np.moveaxis(a, -1, 0).ravel()
            else:
                positive = a.real > 0
                a = {
                    "tanh": lambda a: np.tanh(a),
                    "relu": lambda a, positive=positive: np.where(positive, a, 0),
                    "selu": lambda a, positive=positive: SCALE * np.where(positive, a, ALPHA * (np.exp(a) - 1)),
                }[layer.f.__name__](a)
        total = total + log_likelihood(likelihood_of(model), a, target)
    precisions = model.functions.value_and_gradient.__self__.precisions
    return total - 0.5 * np.sum(precisions * w * w)


def log_likelihood(likelihood, f, y):
    kind = type(likelihood).__name__
    if kind == "Gaussian":
        return -0.5 * likelihood.precision * np.sum((y - f) ** 2)
    if kind == "Bernoulli":
        return y * f[0] - np.log(1 + np.exp(f[0]))
    return f[y] - np.log(np.sum(np.exp(f)))


def program(model, w, *directions):
    """Run the gradient program at complex weights, without the gradient of the prior."""
    order = len(directions)
    X, y = model.data
    expansion = (w, *directions, *[None] * (2**order - 1 - order))
    f, kept = forward(layers_of(model), expansion, constant(X, order))
    bars = backward(layers_of(model), kept, slope(likelihood_of(model), f, y))
    return stacked(bars, 2**order - 1)


def complex_steps(f, q):
    """Return df/dq, with the index of the derivative last."""
    columns = [np.imag(f(q + 1j * STEP * e)) / STEP for e in np.eye(len(q))]
    return np.stack(columns, axis=-1)


def assert_close(got, want, tolerance=1e-9):
    assert np.isfinite(got).all()
    scale = max(np.abs(got).max(), np.abs(want).max())
    assert np.abs(got - want).max() <= tolerance * scale + 1e-14


def a_place(model, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=model.dim) * (0.4 if model.dim > 40 else 0.8)


@any_network
def test_the_gradient_is_that_of_the_density_written_out(name):
    model = MODELS[name]()
    for seed in range(3):
        q = a_place(model, seed)
        assert model.log_density(q) == pytest.approx(float(written_out(model, q)), rel=1e-12)
        assert_close(model.gradient(q), complex_steps(lambda w: written_out(model, w), q))


@any_network
def test_hessian_third_derivative_and_contraction(name):
    """Each order by complex steps of the program of the one below it; the contraction compared with the tensor."""
    model, rng = MODELS[name](), np.random.default_rng(5)
    q = a_place(model, 7)
    posterior = model.functions.value_and_gradient.__self__
    assert_close(model.hessian(q), complex_steps(lambda w: program(model, w) - posterior.precisions * w, q))
    third = model.third_derivative(q)
    u = rng.normal(size=model.dim)
    along_u = complex_steps(lambda w: program(model, w, u + 0j), q)
    assert_close(np.einsum("i,ijk->jk", u, third), along_u)
    assert_close(third, np.transpose(third, (2, 0, 1)))
    M = rng.normal(size=(model.dim, model.dim))
    assert_close(model.hessian_contraction(q, M), np.einsum("ij,ijk->k", M, third))
    v = rng.normal(size=(2, 3, model.dim))
    assert_close(posterior.hessian_product(q, model.data, v), v @ model.hessian(q))


@any_network
def test_the_fisher_metric_is_the_expected_hessian(name):
    """The mean Hessian over observations drawn from the network itself.

    It comes from quadrature over labels, or is exact for a Gaussian, whose Hessian is linear in y. The derivative comes from
    complex steps of the metric with one direction.
    """
    model = MODELS[name]()
    q, X = a_place(model, 3), model.data[0]
    kind = type(likelihood_of(model)).__name__
    posterior = model.functions.value_and_gradient.__self__
    f = posterior.outputs(q, X)

    def hessian(y):
        out = np.zeros((model.dim, model.dim))
        posterior.hessian(q, (X, y), out)
        return out

    if kind == "Gaussian":
        expected = hessian(f)
    else:
        p = np.exp(f - f.max(1, keepdims=True))
        p = p / p.sum(1, keepdims=True) if kind == "Softmax" else np.hstack([1 / (1 + np.exp(f)), 1 / (1 + np.exp(-f))])
        whole = np.zeros(len(X), dtype=model.data[1].dtype)
        prior = hessian(whole) * 0 - np.diag(posterior.precisions)
        expected = prior.copy()
        for n in range(len(X)):
            for label, weight in enumerate(p[n]):
                row = (X[n : n + 1], np.array([label], dtype=whole.dtype))
                out = np.zeros((model.dim, model.dim))
                posterior.hessian(q, row, out)
                expected += weight * (out - prior)
    assert_close(model.fisher(q), -expected, 1e-10)

    def metric(w):
        f, J = forward(posterior.layers, (w, np.eye(model.dim)), constant(X, 1))[0]
        VJ = posterior.likelihood.information(posterior.likelihood.mean((f,)), (J,))[0]
        return np.einsum("ino,jno->ij", J, VJ)

    third = model.fisher_derivative(q)
    assert_close(third, complex_steps(metric, q))
    M = np.random.default_rng(2).normal(size=(model.dim, model.dim))
    assert_close(model.fisher_contraction(q, M), np.einsum("ij,ijk->k", M, third))


def test_softmax_regression_metric_is_minus_the_hessian():
    model = MODELS["softmax regression"]()
    q = a_place(model, 1)
    assert_close(model.fisher(q), -model.hessian(q), 1e-13)
    assert_close(model.fisher_derivative(q), -model.third_derivative(q), 1e-13)


def test_at_a_kink_the_derivatives_are_those_from_the_left():
    """With zero weights, every input of an activation and all values in a square of a pooling are equal."""
    for name in ("relu gaussian", "cnn relu"):
        model = MODELS[name]()
        zero = np.zeros(model.dim)
        for value in (model.gradient(zero), model.hessian(zero)):
            assert np.isfinite(value).all()
        below = complex_steps(lambda w: written_out(model, w), zero)  # noqa: B023  (its branches: x > 0)
        assert_close(model.gradient(zero), below)


@pytest.mark.parametrize("name", ["relu gaussian", "cnn relu", "tanh softmax"])
def test_batches_and_single_precision(name):
    """Sums in batches equal those of all rows; single precision is right to 24 bits, with a log density summed in double."""
    whole = MODELS[name]()
    q, v = a_place(whole, 2), a_place(whole, 3)
    X, y = whole.data
    options = {"n_classes": layers_of(whole)[-1].outputs} if name.startswith("cnn") else {}
    for batch in (1, 2, 5):
        posterior = whole.functions.value_and_gradient.__self__
        part = type(posterior)(*[getattr(posterior, f) for f in ("layers", "likelihood", "precisions", "dtype")], batch)
        out = np.zeros(whole.dim)
        assert part.value_and_gradient(q, (X, y), out) == pytest.approx(whole.log_density(q), rel=1e-13)
        assert_close(out, whole.gradient(q), 1e-13)
        assert_close(part.hessian_product(q, (X, y), v), posterior.hessian_product(q, (X, y), v), 1e-12)
    if options:
        single = refhmc.models.CNN(
            np.moveaxis(X, -1, 1), y, channels=[2], dense=[3], side=3, dtype=np.float32, **options
        )
        assert single.gradient(q).dtype == np.float64
        assert single.data[0].dtype == np.float32
        assert_close(single.gradient(q), whole.gradient(q), 1e-5)
        assert single.log_density(q) == pytest.approx(whole.log_density(q), rel=1e-6)


# ------------------------------------------------------------------------------------------------------------ splitting


SPLIT = {
    "logistic": lambda: refhmc.models.BreastCancer(),
    "banana": lambda: refhmc.models.Banana(images(11, ())),
    "mixture": lambda: refhmc.models.GaussianMixture(images(23, ())),
    "linear": lambda: refhmc.models.LinearRegression(images(23, (4,)), images(23, (), 1)),
    "ar": lambda: refhmc.models.AR(images(23, ()), K=3),
    "schools": lambda: refhmc.models.EightSchools(y=images(11, ()), sigma=1 + images(11, (), 1) ** 2),
    "centred schools": lambda: refhmc.models.EightSchools(True, y=images(11, ()), sigma=1 + images(11, (), 1) ** 2),
    "volatility": lambda: refhmc.models.StochasticVolatility(images(11, ())),
    "garch": lambda: refhmc.models.GARCH(images(23, ()), 1.1),
    "fitzhugh-nagumo": lambda: refhmc.models.FitzHughNagumo(images(11, (2,))),
    "mlp": lambda: refhmc.models.MLP([1, 8, 1], images(23, (1,)), images(23, ())),
    "cnn": lambda: refhmc.models.CNN(images(11, (6, 6)), np.arange(11) % 3, channels=[2], dense=[], side=3),
}


@pytest.mark.parametrize("M", [swept(1), swept(2), 4, swept(11)])
@pytest.mark.parametrize("name", representatives(sorted(SPLIT), ["cnn"]))
def test_a_split_model_is_the_sum_of_its_parts_and_the_whole(name, M):
    """Remainders are included; each part has its own rows and 1/M of the prior."""
    whole = SPLIT[name]()
    for order in ("given", "random", np.arange(whole.n_rows)[::-1]):
        model = whole.split(M, order)
        q = np.random.default_rng(M).normal(size=whole.dim) * 0.3
        sizes = [part.n_rows for part in model.parts]
        assert sum(sizes) == whole.n_rows
        assert max(sizes) - min(sizes) <= 1
        change, wanted = (each.log_density(q) - each.log_density(0 * q) for each in (model, whole))
        assert change == pytest.approx(wanted, rel=1e-11)  # the banana's parts leave out a constant
        assert model.log_density(q) == pytest.approx(sum(part.log_density(q) for part in model.parts), rel=1e-14)
        assert_close(model.gradient(q), whole.gradient(q), 1e-12)
        assert_close(model.gradient(q), sum(part.gradient(q) for part in model.parts), 1e-13)
        assert {k: v.shape for k, v in model.constrain(q).items()} == {
            k: v.shape for k, v in whole.constrain(q).items()
        }


@pytest.mark.parametrize("name", ["garch", *map(swept, sorted(set(SPLIT) - {"garch", "mlp", "cnn"}))])
def test_a_part_has_the_log_likelihood_of_its_own_rows_and_its_share_of_the_prior(name):
    """The pointwise log likelihood is an implementation independent of the density, up to a constant."""
    whole, M, rng = SPLIT[name](), 3, np.random.default_rng(4)
    order = rng.permutation(whole.n_rows)
    points = rng.normal(size=(4, whole.dim)) * 0.3 + (name == "fitzhugh-nagumo")  # c > 0
    pointwise = np.array([pointwise_log_likelihood(whole, q) for q in points])
    prior = np.array([whole.log_density(q) for q in points]) - pointwise.sum(axis=1)
    for part, rows in zip(whole.split(M, order).parts, np.array_split(order, M), strict=True):
        left = np.array([part.log_density(q) for q in points]) - pointwise[:, rows].sum(axis=1) - prior / M
        assert np.ptp(left) <= 1e-9 * max(1.0, np.abs(pointwise).max()), name


def pointwise_log_likelihood(model, q):
    if model.generated.log_likelihood is not None:
        (values,) = model.generated.log_likelihood({k: v[None] for k, v in model.constrain(q).items()}).values()
        return np.ravel(values)
    problem = model.data  # an ODE
    return -0.5 * (((problem.y - problem.solve(q, order=0).states) / problem.s) ** 2).sum(axis=1)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["linear", "mixture", "ar", "schools", "centred schools", "volatility", "garch"])
def test_split_model_with_an_overflowing_prior_agrees_with_the_whole(name):
    whole = SPLIT[name]()
    q = 0.1 * np.random.default_rng(0).normal(size=whole.dim)
    for far in (400.0, -400.0):
        q[{"mixture": 2, "volatility": -2, "garch": 1}.get(name, -1)] = far
        split = whole.split(3)
        for value in (split.log_density(q), split.core.value_and_gradient(q)[0]):
            assert value == pytest.approx(whole.log_density(q), rel=1e-12), far


@pytest.mark.parametrize("name", ["mlp", *map(swept, sorted(set(SPLIT) - {"mlp", "logistic", "cnn"}))])
def test_a_part_of_a_part(name):
    whole = SPLIT[name]()
    q = np.random.default_rng(0).normal(size=whole.dim) * 0.3
    for part in whole.split(2).parts:
        change, wanted = (each.log_density(q) - each.log_density(0 * q) for each in (part.split(3), part))
        assert change == pytest.approx(wanted, rel=1e-10)  # the banana's parts leave out a constant
        assert_close(part.split(3).gradient(q), part.gradient(q), 1e-12)
        again = pickle.loads(pickle.dumps(part))
        assert again.log_density(q) == pytest.approx(part.log_density(q), rel=1e-12)  # an ODE solved to another order


def test_split_models_can_be_pickled_and_have_different_fingerprints():
    whole = SPLIT["mlp"]()
    model, q = whole.split(3), np.full(whole.dim, 0.1)
    again = pickle.loads(pickle.dumps(model))
    assert again.log_density(q) == model.log_density(q)
    prints = {each.fingerprint() for each in (model, again, whole.split(2), whole.split(3, "random"), whole)}
    assert model.fingerprint() == again.fingerprint()
    assert len(prints) == 4
    assert not model.made_of().unknown


@pytest.mark.sweep
def test_parts_with_the_same_functions_are_compiled_once():
    """Users who split their own model usually create the functions again for each part."""

    def part(shift: float):
        def log_density(q, data):
            return -((q[0] - data[0]) ** 2)

        def gradient(q, data):
            return -2 * (q - data)

        def change(q, data, j, new_value):
            return (q[0] - data[0]) ** 2 - (new_value - data[0]) ** 2

        return (
            refhmc.Model(1, log_density, gradient, data=np.array([shift])),
            refhmc.Model(1, log_density, gradient, data=np.array([shift]), log_density_change=change),
        )

    for first, second in zip(part(0.0), part(1.0), strict=True):
        assert first.core.tuple_for_changes[4] is second.core.tuple_for_changes[4]
        assert first.core.tuple_for_changes[1] is second.core.tuple_for_changes[1]


@pytest.mark.sweep
def test_parts_of_several_kinds():
    """Built-in functions, functions compiled from user code, and Python, in one sum."""
    gaussian = refhmc.models.Gaussian(np.zeros(2), np.eye(2))
    names = gaussian.names
    options = {"names": names, "data": np.array([1.0, 2.0])}
    compiled = refhmc.Model(
        2,
        lambda q, data: -((q[0] - data[0]) ** 4),
        lambda q, data: np.array([-4 * (q[0] - data[0]) ** 3, 0.0]),
        **options,
    )
    python = refhmc.Model(
        2,
        lambda q, data: -np.cosh(q[1]),
        lambda q, data: np.array([0.0, -np.sinh(q[1])]),
        in_python="on purpose",
        **options,
    )
    model = refhmc.models.SplitModel([gaussian, compiled, python, gaussian])
    q = np.array([0.3, -0.7])
    want = 2 * gaussian.log_density(q) - (q[0] - 1) ** 4 - np.cosh(q[1])
    assert model.log_density(q) == pytest.approx(want, rel=1e-14)
    np.testing.assert_allclose(model.gradient(q), -2 * q + [-4 * (q[0] - 1) ** 3, -np.sinh(q[1])], rtol=1e-14)
    with pytest.raises(MissingDerivativeError, match="hessian.*split"):
        model.hessian(q)


def test_memory_is_that_of_a_batch():
    """The peak memory of one gradient and one log density is constant for 16 times the rows and grows for 8 times the batch."""

    def peak(n: int, batch: int) -> int:
        X = np.zeros((n, 12, 12))
        model = refhmc.models.CNN(X, np.arange(n) % 2, channels=[4], dense=[], side=3, batch=batch)
        q = model.initial(np.random.default_rng(0))
        model.core.value_and_gradient(q)
        tracemalloc.start()
        model.core.value_and_gradient(q)
        model.log_density(q)
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    small = peak(40, 10)
    assert peak(640, 10) < 1.2 * small
    assert peak(640, 80) > 4 * small


def peak_of(model, key, *arguments):
    """Return the peak memory of a derivative in bytes, as NumPy reports it."""
    tracemalloc.start()
    getattr(model, key)(*arguments)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return used


@pytest.mark.parametrize("key", ["fisher", "fisher_contraction"])
def test_the_memory_of_the_fisher_metric_is_bounded(key, monkeypatch):
    """961 weights: an array with a number for each pair of directions and each unit of a layer would take 220 MB."""
    monkeypatch.setattr("refhmc.models.networks.network.LARGEST", 2**16)
    model = refhmc.models.MLP([1, 30, 30, 1], images(2, (1,)), [0.5, 1.0], batch=1)
    q, d = a_place(model, 3), model.dim
    arguments = () if key == "fisher" else (np.eye(d),)
    matrix = 8 * d**2
    assert peak_of(model, key, q, *arguments) < 3 * matrix + 20 * 8 * 2**16


def test_the_memory_of_the_fisher_derivative_is_that_of_the_tensor_and_a_block(monkeypatch):
    monkeypatch.setattr("refhmc.models.networks.network.LARGEST", 2**14)
    model = refhmc.models.MLP([1, 40, 1], images(2, (1,)), [0.5, 1.0], batch=1)
    d = model.dim
    assert peak_of(model, "fisher_derivative", a_place(model, 3)) < 2 * 8 * d**3 + 20 * 8 * 2**14


@any_network
def test_the_fisher_metric_does_not_depend_on_the_blocks(name, monkeypatch):
    """One direction at a time gives the same, to rounding."""
    model = MODELS[name]()
    q, M = a_place(model, 3), np.random.default_rng(2).normal(size=(model.dim, model.dim))

    def values():
        return model.fisher(q), model.fisher_derivative(q), model.fisher_contraction(q, M)

    whole = values()
    monkeypatch.setattr("refhmc.models.networks.network.LARGEST", 1)
    for one, other in zip(values(), whole, strict=True):
        assert_close(one, other, 1e-12)


def test_a_derivative_that_is_too_large_is_rejected_with_its_memory():
    """A metric checks before it allocates its own matrices of 42 GiB."""
    cnn = refhmc.models.CNN(np.zeros((3, 28, 28)), [0, 1, 2])
    for ask in (
        lambda: cnn.require("fisher_contraction", "this"),
        lambda: refhmc.Hamiltonian(cnn, refhmc.metrics.Fisher()),
    ):
        with pytest.raises(MissingDerivativeError, match=r"37,683 weights.* 10\.6 GiB"):
            ask()
    mlp = refhmc.models.MLP([1, 60, 60, 1], np.zeros((3, 1)), np.zeros(3))
    assert mlp.has("fisher_contraction")
    with pytest.raises(MissingDerivativeError, match=r"3,841 weights.* 422\.2 GiB"):
        mlp.require("fisher_derivative", "this")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("activation", ["tanh", "relu", "selu"])
@pytest.mark.filterwarnings("error")
def test_overflow_is_not_finite_and_gives_no_warning(activation, dtype):
    """A diverging chain reaches such weights; with warnings as errors it would end."""
    model = refhmc.models.MLP([1, 3, 1], np.ones((4, 1)), np.ones(4), activation=activation, dtype=dtype)
    q = np.full(model.dim, 1e200)
    assert not np.isfinite(model.log_density(q))
    assert not np.isfinite(model.gradient(q)).all()
    assert not np.isfinite(model.hessian(q)).all()


# ------------------------------------------------------------------------------------------------------------ invalid input


X, Y = images(6, (2,)), np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: refhmc.models.MLP([2, 3], X, Y + 1, likelihood="softmax"), ValueError, r"y must.* 2\b.*y\[2\].* 3\b"),
        (lambda: refhmc.models.MLP([2, 3], X, Y - 0.5, likelihood="softmax"), ValueError, r"y\[0\].* -0\.5"),
        (lambda: refhmc.models.MLP([2, 3], X, Y[:5]), ShapeError, r"y must.*\(6,\).* got.*\(5,\)"),
        (lambda: refhmc.models.MLP([3, 3], X, Y), ShapeError, r"X must.* \(n, 3\)"),
        (lambda: refhmc.models.MLP([2, 1], np.where(X > 1, np.nan, X), X[:, 0]), ValueError, r"X must be finite.* X\["),
        (lambda: refhmc.models.MLP([2, 1], X, np.full(6, np.inf)), ValueError, "y must be finite"),
        (lambda: refhmc.models.MLP([2, 3], X, np.zeros((6, 2))), ShapeError, r"y must.* \(6, 3\)"),
        (lambda: refhmc.models.MLP([2, 1], X, Y % 2, likelihood="softmax"), ValueError, "softmax.* got 1"),
        (lambda: refhmc.models.MLP([2, 2], X, Y % 2, likelihood="bernoulli"), ValueError, "bernoulli.* one output.* got 2"),
        (lambda: refhmc.models.MLP([2, 1], X, Y, activation="gelu"), ValueError, "'tanh', 'relu', 'selu'.* 'gelu'"),
        (lambda: refhmc.models.MLP([2, 4, 1], X, X[:, 0], prior_precision=[1, 2, 3]), ValueError, "precision must.* 2 layers"),
        (lambda: refhmc.models.MLP([2], X, X[:, 0]), ValueError, r"widths must.* got \[2\]"),
        (lambda: refhmc.models.MLP([2, 1], X, X[:, 0], dtype=np.int64), ValueError, "dtype must.*int64"),
        (lambda: refhmc.models.CNN(images(2, (4, 4)), [0, 1]), ShapeError, r"\(4, 4, 1\)"),
        (lambda: refhmc.models.CNN(images(2, (4,)), [0, 1]), ShapeError, r"\(n, height, width\)"),
        (lambda: refhmc.models.CNN(np.full((2, 28, 28), np.nan), [0, 1]), ValueError, "X must be finite"),
        (lambda: refhmc.models.CNN(images(2, (28, 28)), [0, 10], n_classes=10), ValueError, r"y must.* 9\b.* 10\b"),
        (lambda: refhmc.models.CNN(images(2, (28, 28)), [0, -1]), ValueError, r"y must.* got .*\[0, -1\]"),
        (lambda: refhmc.models.CNN(images(2, (28, 28)), [0, 1, 1]), ShapeError, r"y must.* \(2,\)"),
        (lambda: refhmc.models.CNN(images(2, (28, 28)), np.eye(2)), ShapeError, r"y must.* \(2,\)"),
        (lambda: refhmc.models.CNN(images(2, (28, 28)), [0, np.nan]), ValueError, "y must.* float64"),
        (lambda: refhmc.models.CNN(images(2, (28, 28)), [0, np.nan], n_classes=3), ValueError, r"y\[1\].* nan"),
        (lambda: refhmc.models.CNN(images(2, (28, 28)), ["a", "b"]), ValueError, "y must.* <U1"),
        (lambda: refhmc.models.CNN(images(2, (28, 28)), [0, 1], n_classes=2.5), ValueError, "n_classes must.* 2\\.5"),
        (lambda: refhmc.models.CNN(images(2, (0, 28)), [0, 1]), ShapeError, r"\(0, 28, 1\)"),
        (lambda: refhmc.models.CNN(images(0, (28, 28)), []), ShapeError, "X must"),
        (lambda: refhmc.models.CNN([images(1, (28, 28))[0], images(1, (27, 28))[0]], [0, 1]), ValueError, "inhomogeneous"),
        (lambda: refhmc.models.SoftmaxRegression(X, Y - 1), ValueError, r"y must.* got .*\[-1, 0"),
        (lambda: refhmc.models.SoftmaxRegression(X, ["a"] * 6, n_classes=3), ValueError, "y must.* <U1"),
        (lambda: refhmc.models.SoftmaxRegression(X[0], Y), ShapeError, r"X must.* \(n, .* got.*\(2,\)"),
        (lambda: refhmc.models.SoftmaxRegression(X[:0], Y[:0]), ShapeError, r"X must.* got.*\(0, 2\)"),
        (lambda: refhmc.models.SoftmaxRegression(X, Y, batch=0), ValueError, "batch must.* got 0"),
        (lambda: refhmc.models.MLP([2, 1], X, Y, likelihood="bernoulli"), ValueError, r"y must.* 1\b.*y\[2\].* 2\b"),
        (lambda: SPLIT["mlp"]().split(2.5), ValueError, "parts.* got 2\\.5"),
        (lambda: SPLIT["logistic"]().split(201), ValueError, "200 rows.* 201"),
        (lambda: SPLIT["mlp"]().split(24), ValueError, "23 rows.* 24"),
        (lambda: SPLIT["mlp"]().split(0), ValueError, "parts.* got 0"),
        (lambda: SPLIT["mlp"]().split(2, np.zeros(23, int)), ValueError, "order must.* 22"),
        (lambda: refhmc.models.Funnel(3).split(2), NotImplementedError, "funnel.*n_rows=.*part="),
        (lambda: refhmc.models.SplitModel([]), ValueError, "parts must"),
        (lambda: refhmc.models.SplitModel([None]), ModelError, "part 0 must be a refhmc.Model.* NoneType"),
        (lambda: SPLIT["mlp"]().split(np.nan), ValueError, "parts.* must be .* got nan"),
        (lambda: SPLIT["mlp"]().split(2, np.arange(22.0, -1, -1)), ValueError, r"order must.* got array\(\[22\., "),
        (lambda: SPLIT["mlp"]().split(2).split(2), NotImplementedError, "split.*parts"),
        (lambda: SPLIT["mlp"]().split(2).require("fisher_contraction", "this"), MissingDerivativeError, "split model"),
        (lambda: refhmc.models.MLP([2, 1], X * 1e39, X[:, 0], dtype=np.float32), ValueError, r"X must be finite in float32"),
        (lambda: refhmc.models.MLP([2, 1], X, X[:, 0] - 1e39, dtype=np.float32), ValueError, r"y must be .* 1e\+39"),
        (lambda: refhmc.models.MLP([2, True, 1], X, X[:, 0]), ValueError, "widths must be .* got True"),
        (lambda: refhmc.models.CNN(images(2, (9, 9)), [0, 1], side=-1), ValueError, "side must be .* got -1"),
        (lambda: refhmc.models.CNN(images(2, (9, 9)), [0, 1], pool=1.5), ValueError, "pool must be .* got 1.5"),
        (lambda: refhmc.models.CNN(images(2, (9, 9)), [0, 1], channels=(2, 0)), ValueError, "channels must be .* got 0"),
        (lambda: refhmc.models.CNN(images(2, (9, 9)), [0, 1], channels=(2,), dense=(0,)), ValueError, "dense must be"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("dtype", [np.float64, swept(np.float32)])
@pytest.mark.parametrize("kernel", [refhmc.NUTS(max_treedepth=3), swept(refhmc.HMC(step_size=0.02, n_steps=4))])
def test_networks_are_sampled_and_resumed(kernel, dtype, tmp_path):
    model = mlp([1, 3, 1], "tanh", "gaussian", dtype=dtype)
    run = {"tune": 15, "chains": 2, "random_seed": 4, "progressbar": False, "raw": True}
    unbroken = refhmc.sample(model, kernel, draws=20, **run)
    refhmc.sample(model, kernel, draws=7, **run, checkpoint=tmp_path)
    longer = refhmc.sample(
        mlp([1, 3, 1], "tanh", "gaussian", dtype=dtype), kernel, draws=20, **run, checkpoint=tmp_path
    )
    assert np.array_equal(longer.draws, unbroken.draws)
    assert len(np.unique(unbroken.draws[..., 0])) > 20
    with pytest.raises(refhmc.errors.CheckpointError, match="layers"):
        refhmc.sample(mlp([1, 3, 1], "relu", "gaussian", dtype=dtype), kernel, draws=20, **run, checkpoint=tmp_path)
