"""Array implementations of the models compared with the compiled ones, which other tests check with mpmath and complex steps.

**The bound.** Both add the same terms in different orders. The size of these terms is estimated from outside. Every input
number (coordinates, data and M) is changed by a relative 1e-8 of random sign, and ::

    size = |f| + the largest of ten such changes of f / 1e-8,    and 1e-6 of the largest size at that position.

The two may differ by 1e-12 of the size. This is 4,500 eps, because a size is an estimate from sums of random signs. The last
term is for entries close to zero, such as the probability of an unlikely class.
"""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest

import refhmc
from refhmc.errors import MissingArrayImplementationError, MissingDerivativeError
from refhmc.models.on_arrays import ArrayImplementation
from refhmc.numerics import batched
from tests.helpers.sweeps import every, representatives, swept

MATRICES = ("hessian", "fisher", "fisher_bands")
CONTRACTIONS = ("hessian_contraction", "fisher_contraction")
SMALL = 1e-8
LOG_5 = 1.6094379124341003


def covariance(d):
    A = np.random.default_rng(d).standard_normal((d, d))
    return A @ A.T + 0.1 * np.eye(d)


def regression(n, d):
    rng = np.random.default_rng(n)
    return refhmc.models.LogisticRegression(rng.standard_normal((n, d)), rng.random(n) < 0.4, prior_scale=10.0)


def network(widths, kind, activation="tanh", n=15, **options):
    """Return a network on random inputs and observations, or labels of ``kind``."""
    rng = np.random.default_rng(n)
    X, k = rng.standard_normal((n, widths[0])), widths[-1]
    y = {"gaussian": rng.standard_normal((n, k)), "bernoulli": rng.integers(0, 2, n), "softmax": rng.integers(0, k, n)}[
        kind
    ]
    return refhmc.models.MLP(widths, X, y, activation=activation, likelihood=kind, **options)


def images(n=4, shape=(6, 7), **options):
    rng = np.random.default_rng(n)
    options = {"channels": (2,), "dense": (3,), "side": 3, "n_classes": 3} | options
    return refhmc.models.CNN(rng.standard_normal((n, *shape)), rng.integers(0, 3, n), **options)


GROUPED = np.random.default_rng(6).standard_normal(5), np.random.default_rng(7).standard_normal((5, 3))
MODELS = {
    "gaussian-1": lambda: refhmc.models.Gaussian([2.0], [[0.5]]),
    "gaussian-7": lambda: refhmc.models.Gaussian(np.arange(7.0), covariance(7)),
    "gaussian-diagonal": lambda: refhmc.models.Gaussian(1.0, np.diag([1e-6, 1.0, 1e3, 2.0])),
    "banana": refhmc.models.Banana,
    "funnel-1": lambda: refhmc.models.Funnel(1),
    "funnel-10": lambda: refhmc.models.Funnel(10),
    "logistic-3": lambda: regression(12, 3),
    "logistic-30": lambda: regression(40, 30),
    "breast-cancer": refhmc.models.BreastCancer,
    "eight-schools": refhmc.models.EightSchools,
    "eight-schools-centered": lambda: refhmc.models.EightSchools(centered=True),
    "one-school": lambda: refhmc.models.EightSchools(y=[1.0], sigma=[2.0]),
    "radon": refhmc.models.VaryingIntercepts,
    "intercepts-centered": lambda: refhmc.models.VaryingIntercepts(
        True, y=GROUPED[0], group=[0, 1, 1, 2, 0], X=GROUPED[1]
    ),
    "horseshoe-noncentered": lambda: refhmc.models.Horseshoe(
        centered=False, X=GROUPED[1], y=GROUPED[0], global_scale=0.3
    ),
    "horseshoe": lambda: refhmc.models.Horseshoe(True, X=GROUPED[1][:2], y=GROUPED[0][:2]),
    "softmax": lambda: network([4, 3], "softmax"),
    "mlp-tanh": lambda: network([2, 3, 2], "gaussian", output_precision=7.0, prior_precision=[2.0, 0.5]),
    "mlp-relu": lambda: network([1, 4, 3, 1], "gaussian", "relu"),
    "mlp-selu": lambda: network([2, 4, 1], "bernoulli", "selu"),
    "cnn-one": lambda: images(channels=(2,), dense=(), side=4),
    "cnn-two": lambda: images(shape=(2, 7, 8), channels=(2, 1), side=2, activation="tanh"),
    "cnn-no-pooling": lambda: images(shape=(4, 5), channels=(1,), dense=(2,), pool=1, activation="selu"),
    "volatility-2": lambda: refhmc.models.StochasticVolatility([0.3, -1.0]),
    "volatility-50": lambda: refhmc.models.StochasticVolatility(T=50),
}
# Positions that are difficult for one model, (n, d).
HARD = {
    "banana": [[-1e4, 100.0], [1e8, 1e4], [0.0, 1e-12], [-9999.0, -100.0]],
    "eight-schools": [[*[1.0] * 8, 3.0, u] for u in (-300.0, -30.0, LOG_5, 30.0, 300.0)],
    "eight-schools-centered": [[*[1.0] * 8, 3.0, u] for u in (-300.0, -30.0, LOG_5, 30.0, 300.0)],
    "intercepts-centered": [
        [0.1, 0.2, 0.3, 0.2, 1.0, -1.0, 2.0, s, u] for s in (-300.0, -30.0, 30.0) for u in (-5.0, 5.0)
    ],
    "horseshoe": [[0.1, 0.2, 0.3, k, 0.0, -k, t, 0.0] for k in (-30.0, 30.0) for t in (-100.0, 3.0)],
    "volatility-50": [
        [*np.full(50, -60.0), 30.0, -2.0, 2.3],
        [*np.linspace(-1.0, 1.0, 50), 0.0, -12.0, 18.0],
        [*np.linspace(-1.0, 1.0, 50), 0.0, -2.0, -18.0],
        [*np.linspace(-1.0, 1.0, 50), 0.0, -2.0, 0.0],
    ],
    "funnel-10": [
        [12.0, *[1e-3] * 10],  # the neck
        [-25.0, *[3e5] * 10],
        [700.0, *[1e-150] * 10],
        [45.0, *[0.0] * 10],
        [800.0, *[1.0] * 10],  # e^v overflows
    ],
}
# Models whose sums over the data, or over the coordinates, are matrix products over the positions.
PRODUCTS = {"gaussian-1", "gaussian-7", "logistic-3", "logistic-30", "breast-cancer"} | {
    *("radon", "intercepts-centered", "horseshoe-noncentered", "horseshoe"),
    *("softmax", "mlp-tanh", "mlp-relu", "mlp-selu", "cnn-one", "cnn-two", "cnn-no-pooling"),
}
# e^(-2u - x) in one is finite if e^-2u overflows by itself.
REACHES_FURTHER = {"volatility-2", "volatility-50"}
# Command-line names of the models with an array implementation.
NAMES = {"funnel", "banana", "gaussian", "normal-100", "breast-cancer", "diabetes", "heart"} | {
    *("eight-schools", "eight-schools-centered", "stochastic-volatility"),
    *("radon", "radon-centered", "horseshoe-noncentered", "horseshoe"),
}
CASES = [(name, key) for name in MODELS for key in ("value_and_gradient", *MATRICES, *CONTRACTIONS)]


@functools.cache
def model_called(name):
    return MODELS[name]()


def positions(name):
    """Return positions (n, d): near the start, across the posterior, extreme ones, and the difficult ones of the model."""
    model, rng = model_called(name), np.random.default_rng(5)
    start = model.initial if isinstance(model.initial, np.ndarray) else np.zeros(model.dim)
    near = [start + scale * rng.standard_normal((4, model.dim)) for scale in (0.01, 0.3, 2.0, 30.0, 1e3)]
    return np.concatenate([start[None], *near, np.reshape(HARD.get(name, []), (-1, model.dim))])


def call(functions, key, q, M):
    """Return the results of a function; for ``value_and_gradient`` both, with L before the gradient."""
    if key == "value_and_gradient":
        L, gradient = functions.value_and_gradient(q)
        return batched.namespace(q).concat([L[..., None], gradient], axis=-1)
    return getattr(functions, key)(q, *((M,) if key in CONTRACTIONS else ()))


def keys_of(text):
    return ["value_and_gradient", *(key for key in (*MATRICES, *CONTRACTIONS) if text.has(key))]


def sizes(text, key, q, M):
    """Return |f| and its largest change relative to that of the inputs."""
    rng, f = np.random.default_rng(6), call(text, key, q, M)
    largest = np.zeros_like(f)

    def moved(x):
        return x * (1 + SMALL * rng.choice([-1.0, 1.0], x.shape))

    for _ in range(10):
        other = object.__new__(type(text))
        vars(other).update(
            {k: moved(x) if isinstance(x, np.ndarray) and x.dtype.kind == "f" else x for k, x in vars(text).items()}
        )
        change = np.abs(call(other, key, moved(q), moved(M)) - f) / SMALL
        largest = np.fmax(largest, np.where(np.isfinite(change), change, 0.0))
    size = np.abs(f) + largest
    return size + 1e-6 * np.max(size, axis=tuple(range(1, f.ndim)), keepdims=True)


# The contractions of the largest networks take seconds; those of a smaller one are tested.
# Compiling the matrices and contractions of these models takes seconds.
LONG = [
    (name, key)
    for name in MODELS
    if name.startswith(("cnn", "mlp-relu", "mlp-selu", "softmax", "volatility", "breast-cancer"))
    for key in (*MATRICES, *CONTRACTIONS)
]


@pytest.mark.parametrize(("name", "key"), representatives(CASES, [case for case in CASES if case not in LONG]))
def test_array_implementation_agrees_with_the_compiled_model(name, key):
    model, q = model_called(name), positions(name)
    text, compiled = model.on_arrays(), refhmc.array_api.ModelOnArrays(model)
    M = np.random.default_rng(7).standard_normal((*q.shape, model.dim))
    if key != "value_and_gradient" and not text.has(key):
        with pytest.raises(MissingDerivativeError, match=key):
            call(text, key, q, M)
        return
    with np.errstate(all="ignore"):
        mine, theirs, size = call(text, key, q, M), call(compiled, key, q, M), sizes(text, key, q, M)
    assert mine.shape == theirs.shape
    rows = np.isfinite(theirs.reshape(len(q), -1)).all(axis=-1)
    assert rows.sum() >= 0.7 * len(q)
    also = np.isfinite(mine.reshape(len(q), -1)).all(axis=-1)
    assert np.array_equal(rows, also & rows if name in REACHES_FURTHER else also)
    if key == "value_and_gradient":
        assert not np.any(mine[:, 0] == np.inf)
        with np.errstate(all="ignore"):
            assert np.array_equal(text.log_density(q), mine[:, 0], equal_nan=True)
            assert np.array_equal(text.gradient(q), mine[:, 1:], equal_nan=True)
    error = np.abs(mine[rows] - theirs[rows]) / np.fmax(1e-12 * size, np.finfo(float).tiny)[rows]
    assert error.max() <= 1, (error.max(), np.argwhere(error > 1)[:5])


@pytest.mark.parametrize("name", every(3, MODELS))
def test_leading_axes_and_neighbours_do_not_matter(name):
    """A position alone, in (1,), (5,) and (2, 3), next to positions that are not finite or overflow.

    Results are bit-identical for any neighbours. They also equal those of a single position if no matrix product runs over the
    positions.
    """
    model, rng = model_called(name), np.random.default_rng(8)
    text, d = model.on_arrays(), model.dim
    start = model.initial if isinstance(model.initial, np.ndarray) else np.zeros(d)
    q = start + 0.5 * rng.standard_normal((2, 3, d))
    M = rng.standard_normal((2, 3, d, d))
    spoilt, before = q.copy(), q.copy()
    spoilt[0, 1], spoilt[1, 0, 0], spoilt[1, 1], spoilt[1, 2, -1] = np.nan, np.inf, 1e200, -np.inf
    for key in keys_of(text):
        whole = call(text, key, q, M)
        assert np.isfinite(whole).all()
        with np.errstate(all="ignore"):
            beside = call(text, key, spoilt, M)
        for k in ((0, 0), (0, 2)):
            assert np.array_equal(beside[k], whole[k]), key
        for k in ((0, 1), (1, 0), (1, 2)):
            if key == "value_and_gradient":
                assert np.isnan(beside[k][0]) or beside[k][0] == -np.inf
            else:
                assert np.isnan(beside[k]).all(), key
        for few in (q[0, 0], q[0, :1], q.reshape(6, d)[:5]):
            answer = call(text, key, few, M.reshape(6, d, d)[: few.size // d].reshape(*few.shape, d))
            expected = whole.reshape(6, *whole.shape[2:])[: few.size // d].reshape(answer.shape)
            if name in PRODUCTS:
                size = np.abs(expected).max()
                assert np.abs(answer - expected).max() <= 1e-12 * size, key
            else:
                assert np.array_equal(answer, expected), (key, few.shape)
        assert call(text, key, q[:0], M[:0]).shape == (0, *whole.shape[1:])
    assert np.array_equal(q, before)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "namespace",
    [
        "array_api_strict",
        pytest.param("jax.numpy", marks=pytest.mark.sweep),
        pytest.param("array_api_compat.torch", marks=pytest.mark.sweep),
    ],
)
def test_on_another_namespace(namespace, name):
    """``array_api_strict`` rejects functions outside the standard; single precision stays single."""
    xp = pytest.importorskip(namespace)
    if namespace == "jax.numpy":
        pytest.importorskip("jax").config.update("jax_enable_x64", True)
    model, rng = model_called(name), np.random.default_rng(9)
    mine, theirs, d = model.on_arrays(), model.on_arrays(xp), model.dim
    start = model.initial if isinstance(model.initial, np.ndarray) else np.zeros(d)
    q, M = start + 0.5 * rng.standard_normal((2, 2, d)), rng.standard_normal((2, 2, d, d))
    for key in keys_of(mine):
        expected = call(mine, key, q, M)
        answer = call(theirs, key, xp.asarray(q), xp.asarray(M))
        assert np.abs(np.asarray(answer) - expected).max() <= 1e-13 * np.abs(expected).max(), key
        single = call(theirs, key, xp.asarray(q, dtype=xp.float32), xp.asarray(M, dtype=xp.float32))
        assert single.dtype == xp.float32, key
        assert np.abs(np.asarray(single) - expected).max() <= 1e-3 * np.abs(expected).max(), key


def test_missing_array_implementation_names_the_alternatives():
    with pytest.raises(MissingArrayImplementationError, match=r"'ar.*Funnel"):
        refhmc.models.AR().on_arrays()
    there = {name for name, make in refhmc.models.by_name().items() if make()._on_arrays is not None}
    assert there == {name for name in refhmc.models.by_name() if name in NAMES}


def test_user_array_implementation_and_its_copy():
    model = refhmc.Model(2, lambda q: -0.5 * float(q @ q), lambda q: -q, on_arrays=OfAUser)
    for each in (model.on_arrays(), refhmc.array_api.hamiltonian(model, refhmc.metrics.Identity(), np).model):
        assert each.log_density(np.ones((3, 2))).tolist() == [-1.0] * 3
    for made in (model_called("funnel-10"), model_called("gaussian-7")):
        q = np.ones((2, made.dim))
        copy = pickle.loads(pickle.dumps(made)).on_arrays()
        assert np.array_equal(copy.gradient(q), made.on_arrays().gradient(q))
    with pytest.raises(refhmc.errors.ModelError, match="on_arrays"):
        refhmc.Model(2, lambda q: 0.0, lambda q: q, on_arrays=3)


class OfAUser(ArrayImplementation):
    def __init__(self, xp):
        self.dim = 2

    def value_and_gradient(self, q):
        return -0.5 * (q * q).sum(axis=-1), -q


@pytest.mark.parametrize(
    "name", ["banana", swept("breast-cancer"), swept("softmax"), swept("mlp-tanh"), swept("cnn-two")]
)
def test_a_split_model_is_the_sum_of_its_parts(name):
    """The array implementations of the parts are in ``parts``; the sum is that of the whole, to rounding."""
    whole, rng = model_called(name), np.random.default_rng(10)
    split = whole.split(3, order="random")
    text, compiled, q = split.on_arrays(), refhmc.array_api.ModelOnArrays(split), rng.standard_normal((4, whole.dim))
    for mine, theirs in zip((text, *text.parts), (compiled, *compiled.parts), strict=True):
        for a, b in zip(mine.value_and_gradient(q), theirs.value_and_gradient(q), strict=True):
            assert np.abs(a - b).max() <= 1e-12 * np.abs(b).max()
    assert len(text.parts) == 3
    L, gradient = whole.on_arrays().value_and_gradient(q)
    assert np.abs(text.log_density(q) - L).max() <= 1e-12 * np.abs(L).max()
    assert np.abs(text.gradient(q) - gradient).max() <= 1e-12 * np.abs(gradient).max()
    with pytest.raises(MissingDerivativeError, match="hessian"):
        text.hessian(q)


@pytest.mark.parametrize("name", ["softmax", "mlp-selu", "cnn-two", "logistic-3"])
def test_data_are_taken_in_batches(name):
    """For any size of a batch, results equal those of all rows at once, to rounding."""
    model, rng = model_called(name), np.random.default_rng(11)
    whole, text = model.on_arrays(), model.on_arrays()
    q, M = 0.5 * rng.standard_normal((2, model.dim)), rng.standard_normal((2, model.dim, model.dim))
    for rows in (1, 5):
        text.largest = 2 * rows * getattr(text, "width", 1)
        for key in keys_of(text):
            expected = call(whole, key, q, M)
            assert np.abs(call(text, key, q, M) - expected).max() <= 1e-13 * np.abs(expected).max()


@pytest.mark.parametrize("make", [network, images], ids=["mlp", "cnn"])
def test_layers_in_single_precision(make):
    """The compiled model uses single precision, too: differences are single rounding errors; sums and the prior are double."""
    options = {"widths": [3, 20, 3], "kind": "softmax"} if make is network else {}
    model, double = make(dtype=np.float32, **options), make(dtype=np.float64, **options)
    q = 0.5 * np.random.default_rng(12).standard_normal((4, model.dim))
    text, compiled = model.on_arrays(), refhmc.array_api.ModelOnArrays(model)
    for key in ("value_and_gradient", "hessian", "fisher"):
        answer, exact = call(text, key, q, None), call(double.on_arrays(), key, q, None)
        size = np.abs(exact).max()
        assert answer.dtype == np.float64
        assert 1e-10 * size < np.abs(answer - exact).max() < 1e-5 * size, key
        assert np.abs(answer - call(compiled, key, q, None)).max() < 1e-5 * size, key
