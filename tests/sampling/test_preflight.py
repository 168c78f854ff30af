"""Checks before the first draw: derivatives, return values, and that arguments are not changed.

Nothing here is random from run to run: the checks draw their directions from a fixed seed.
"""

from __future__ import annotations

import functools
import pickle

import mpmath
import numba
import numpy as np
import pytest

import refhmc
from refhmc.dynamics.assemble import functions_for
from refhmc.errors import GradientError, MetricError, MissingDerivativeError, ModelError, PrecisionWarning
from refhmc.sampling.chains.chain import make_plan
from refhmc.sampling.checks.preflight import check_derivatives, check_gradient
from refhmc.sampling.checks.user_functions import check_variables
from tests.helpers.sweeps import swept

PYTHON = "it is short"  # why these models are not compiled

# ------------------------------------------------------------------------- a straight line on years that are not centred

YEARS = np.arange(1950.0, 2020.0)
PRIOR = np.array([1e4, 1.0, 9.0])  # variances of intercept, slope and log sigma


def years(seed):
    """Return log density, gradients of likelihood and prior, and the posterior's mean up to terms of order 1/n."""
    noise = np.random.default_rng(seed).standard_normal(len(YEARS))
    y = 3 + 0.01 * (YEARS - 1985) + 0.3 * noise

    def log_density(q, data):
        r = (y - q[0] - q[1] * YEARS) * np.exp(-q[2])
        return -0.5 * np.sum(r * r) - len(y) * q[2] - 0.5 * np.sum(q * q / PRIOR)

    def likelihood(q):
        w = np.exp(-q[2])
        r = (y - q[0] - q[1] * YEARS) * w
        return np.array([np.sum(r) * w, np.sum(r * YEARS) * w, np.sum(r * r) - len(y)])

    slope, there = np.polyfit(YEARS - 1985, y, 1)
    mean = np.array([there - 1985 * slope, slope, np.log(np.std(y - there - slope * (YEARS - 1985)))])
    return log_density, likelihood, lambda q: -q / PRIOR, mean, y


def total(likelihood, prior):
    return lambda q, data: likelihood(q) + prior(q)


def logistic(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 4))
    y = (rng.uniform(size=60) < 1 / (1 + np.exp(-X @ [0.5, 1.0, -1.0, 0.2]))).astype(float)

    def log_density(q, data):
        return float(y @ (X @ q) - np.logaddexp(0, X @ q).sum() - 0.125 * q @ q)

    return log_density, lambda q: X.T @ (y - 1 / (1 + np.exp(-X @ q))), lambda q: -q / 4, rng.standard_normal(4), None


def wide(seed, d=60):
    """Sixty coordinates whose scales span six decades, neighbours correlated."""
    rng = np.random.default_rng(seed)
    s = 10 ** rng.uniform(-3, 3, d)

    def log_density(q, data):
        z = q / s
        return float(-0.5 * z @ z - 0.25 * np.sum(z**4) - np.log(np.cosh(np.diff(z))).sum())

    def likelihood(q):
        z = q / s
        t = np.tanh(np.diff(z))
        return (-(z**3) + np.append(t, 0.0) - np.append(0.0, t)) / s

    return log_density, likelihood, lambda q: -q / s**2, s * rng.standard_normal(d), None


def test_a_right_gradient_of_a_stiff_density_passes():
    """The curvature along the direction of an earlier check is 1e9, which led to false rejections."""
    for seed in range(40):
        log_density, likelihood, prior, mean, y = years(seed)
        model = refhmc.Model(3, log_density, total(likelihood, prior), in_python=PYTHON)
        assert check_gradient(model, mean) is None
        assert check_gradient(model, mean + np.array([1.0, 1e-3, 0.5])) is None
        if seed:
            continue
        w = np.exp(-2 * mean[2])
        assert np.sum(YEARS**2) * w > 1e9
        information = np.array([[len(y), YEARS.sum()], [YEARS.sum(), YEARS @ YEARS]])
        covariance = np.linalg.inv(information)
        assert covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]) < -0.9999
        with mpmath.workdps(60):  # the gradient is right, to twelve digits of its terms
            exact = [mpmath.diff(functools.partial(_in_mpmath, y, mean, j), 0) for j in range(3)]
        terms = np.array([np.exp(-mean[2]) * 3.0 * len(y), np.exp(-mean[2]) * 3.0 * YEARS.sum(), len(y)])
        assert np.all(np.abs(np.array(exact, dtype=float) - likelihood(mean) - prior(mean)) < 1e-12 * terms)


def _in_mpmath(y, q, j, t):
    q = [mpmath.mpf(x) + (t if k == j else 0) for k, x in enumerate(q.tolist())]
    r = [
        (mpmath.mpf(v) - q[0] - q[1] * mpmath.mpf(x)) * mpmath.exp(-q[2])
        for v, x in zip(y.tolist(), YEARS, strict=True)
    ]
    prior = sum(x**2 / mpmath.mpf(v) for x, v in zip(q, PRIOR.tolist(), strict=True))
    return -sum(x**2 for x in r) / 2 - len(y) * q[2] - prior / 2


def test_of_a_split_model_one_part_is_looked_at():
    """At kinks of ReLU the check takes about a hundred gradients, but not of all data."""
    looked_at = []

    def part(rows, share, wrong=0.0):
        def log_density(q, data):
            looked_at.append(tuple(rows))
            return -0.5 * len(rows) * float(q @ q)

        return refhmc.Model(2, log_density, lambda q, data: (wrong - len(rows)) * q, in_python="it counts its calls")

    def whole(wrong):
        parts = functools.partial(part, wrong=wrong)
        return refhmc.Model(2, lambda q, data: -3.0 * (q @ q), lambda q, data: -6.0 * q, n_rows=6, part=parts)

    check_gradient(whole(0.0).split(3), np.ones(2))
    assert set(looked_at) == {(0, 1)}
    by_hand = refhmc.models.SplitModel([part([0], 1.0), part([1], 1.0, wrong=0.1)])
    for wrong in (by_hand, whole(0.1).split(2)):
        with pytest.raises(GradientError):
            check_gradient(wrong, np.ones(2))
    travelled = pickle.loads(pickle.dumps(refhmc.models.BreastCancer().split(2)))
    assert travelled.made_alike
    assert not by_hand.made_alike


@pytest.mark.parametrize("problem", [years, swept(logistic), swept(wide)])
@pytest.mark.parametrize("seed", [0, swept(1), swept(2)])
def test_wrong_gradients_are_found(problem, seed):
    log_density, likelihood, prior, q, _ = problem(seed)
    rng, d = np.random.default_rng(seed), len(q)

    def found(wrong):
        model = refhmc.Model(d, log_density, lambda q, data: wrong(likelihood(q) + prior(q)), in_python=PYTHON)
        try:
            check_gradient(model, q)
        except GradientError:
            return True
        return False

    assert not found(lambda g: g)
    for j in range(d) if d < 10 else rng.permutation(d)[:2]:
        one = np.eye(d)[j]
        assert found(lambda g, one=one: g * (1 + 0.01 * one))
        assert found(lambda g, one=one: g * (1 - 2 * one))
        assert found(lambda g, one=one: g * (1 - one))
        swap = np.arange(d)
        swap[[j, (j + 1) % d]] = swap[[(j + 1) % d, j]]
        assert found(lambda g, swap=swap: g[swap])
    assert found(lambda g: 1.001 * g)
    assert found(lambda g: -g)
    no_prior = refhmc.Model(d, log_density, lambda q, data: likelihood(q), in_python=PYTHON)
    with pytest.raises(GradientError, match="gradient .*derivative of the log density"):
        check_gradient(no_prior, q)


def test_the_coordinate_that_is_wrong_is_named():
    log_density, likelihood, prior, mean, _ = years(1)
    names = ["intercept", "slope", "log_sigma"]
    model = refhmc.Model(
        3, log_density, lambda q, data: (likelihood(q) + prior(q)) * [1, 1.01, 1], names=names, in_python=PYTHON
    )
    with pytest.raises(GradientError, match=r"at q = .*slope"):
        check_gradient(model, mean)


def test_few_evaluations():
    """The check takes seven densities and 13 + min(d, 16) gradients."""
    for d in (1, 3, 16, 17, 1000):
        calls = {"log_density": 0, "gradient": 0}

        def log_density(q, data):
            data["log_density"] += 1
            return -0.5 * float(q @ q)

        def gradient(q, data):
            data["gradient"] += 1
            return -q

        q = np.random.default_rng(d).standard_normal(d)
        check_gradient(refhmc.Model(d, log_density, gradient, data=calls, in_python=PYTHON), q)
        assert calls["log_density"] <= 1 + 2 * min(d, 3)
        assert calls["gradient"] <= 13 + min(d, 16)


@pytest.mark.parametrize("q", [[1e-9, 0.7], [0.3, -1e-12], [5.0, 0.1]])
def test_edges_of_the_support_kinks_and_jumps_are_not_wrong_gradients(q):
    """A boundary, a kink and a jump nearer than the width of the density."""

    def on_half_line(q, data):
        return 2 * np.log(q[0]) - q[0] - 0.5 * q[1] ** 2 if q[0] > 0 else -np.inf

    def with_kink(q, data):
        return -3 * np.sum(np.abs(q)) - 0.5 * float(q @ q)

    def with_jumps(q, data):
        return -0.5 * float(q @ q) - 0.3 * np.floor(3 * q[1] + 0.2)

    for log_density, gradient in (
        (on_half_line, lambda q, data: np.array([2 / q[0] - 1, -q[1]])),
        (with_kink, lambda q, data: -3 * np.sign(q) - q),
        (with_jumps, lambda q, data: -q),
    ):
        model = refhmc.Model(2, log_density, gradient, in_python=PYTHON)
        assert check_gradient(model, np.array(q)) is None
        wrong = refhmc.Model(2, log_density, scaled(gradient, slice(None), -1.0), in_python=PYTHON)
        with pytest.raises(GradientError):
            check_gradient(wrong, np.array(q))


# ------------------------------------------------------------------------------------------------ single precision


def single(q, data):
    """Sums of 50 terms, as a JAX function in its default precision gives them."""
    x = np.asarray(q, dtype=np.float32)
    terms = np.float32(-0.5) * (x - np.linspace(-3, 3, 50, dtype=np.float32)[:, None]) ** 2
    return float(terms.sum(dtype=np.float32))


def single_gradient(q, data):
    x = np.asarray(q, dtype=np.float32)
    return -(x - np.linspace(-3, 3, 50, dtype=np.float32)[:, None]).sum(axis=0).astype(float)


def test_a_density_of_single_precision_is_a_warning(sample):
    model = refhmc.Model(2, single, single_gradient, in_python=PYTHON, name="single")
    with pytest.warns(PrecisionWarning, match=r"'single'.* 7 digits.*float32"):
        result = sample(model, draws=20, tune=20, chains=1, random_seed=1, initvals=[0.1, 0.2])
    assert any("float32" in text for text in result.warnings)
    flat = refhmc.Model(2, lambda q, data: float(np.float32(single(q, data) - 3e7)), single_gradient, in_python=PYTHON)
    assert "float32" in check_gradient(flat, np.array([0.1, 0.2]))  # where rounding is as large as the density's change
    for wrong in (
        lambda q, data: 1.05 * single_gradient(q, data),
        lambda q, data: single_gradient(q, data)[::-1].copy(),
    ):
        with pytest.raises(GradientError):
            check_gradient(refhmc.Model(2, single, wrong, in_python=PYTHON), np.array([0.1, 0.2]))


@pytest.mark.parametrize("offset", [0.0, 3e3])
@pytest.mark.parametrize("seed", range(10))
def test_single_precision_inside_is_seen_by_its_noise(offset, seed):
    """The likelihood is in float32, the prior in float64."""

    def log_density(q, data):
        return float(np.float32(single(q, data) - offset)) - 0.005 * float(q @ q)

    def gradient(q, data):
        return single_gradient(q, data) - 0.01 * q

    q = np.random.default_rng(seed).standard_normal(2)
    assert "float32" in check_gradient(refhmc.Model(2, log_density, gradient, in_python=PYTHON), q)


def test_a_gradient_of_single_precision_beside_a_density_of_double():
    model = refhmc.Model(
        2, lambda q, data: -0.5 * float(q @ q), lambda q, data: np.float32(-q).astype(float), in_python=PYTHON
    )
    assert "The gradient of" in check_gradient(model, np.array([0.3, -1.2]))
    whole = refhmc.Model(2, lambda q, data: -2.0 * float(np.sum(q)), lambda q, data: np.full(2, -2.0), in_python=PYTHON)
    assert check_gradient(whole, np.array([0.3, -1.2])) is None  # short numbers are not single precision


# ------------------------------------------------------------------------------- derivatives that a metric reads


def log_density(q, data):
    x, y, z = q
    return -0.5 * x * x - 0.5 * np.exp(x) * y * y - 0.25 * z**4 - 0.5 * z * z + 0.2 * x * y * z


def gradient(q, data):
    x, y, z = q
    e = np.exp(x)
    return np.array([-x - 0.5 * e * y * y + 0.2 * y * z, -e * y + 0.2 * x * z, -(z**3) - z + 0.2 * x * y])


def hessian(q, data):
    x, y, z = q
    e = np.exp(x)
    xy, xz, yz = -e * y + 0.2 * z, 0.2 * y, 0.2 * x
    return np.array([[-1 - 0.5 * e * y * y, xy, xz], [xy, -e, yz], [xz, yz, -3 * z * z - 1]])


def third_derivative(q, data):
    x, y, z = q
    e = np.exp(x)
    T = np.full((3, 3, 3), 0.0)
    T[0, 0, 0] = -0.5 * e * y * y
    T[0, 0, 1] = T[0, 1, 0] = T[1, 0, 0] = -e * y
    T[0, 1, 1] = T[1, 0, 1] = T[1, 1, 0] = -e
    T[0, 1, 2] = T[0, 2, 1] = T[1, 0, 2] = T[1, 2, 0] = T[2, 0, 1] = T[2, 1, 0] = 0.2
    T[2, 2, 2] = -6 * z
    return T


def hessian_contraction(q, data, M):
    return np.einsum("ij,ijk->k", M, third_derivative(q, data))


def fisher(q, data):
    x, _, z = q
    return np.array([[1 + np.exp(x), 0.1 * z, 0.0], [0.1 * z, 2.0 + z * z, 0.0], [0.0, 0.0, 1.0]])


def fisher_derivative(q, data):
    x, _, z = q
    T = np.zeros((3, 3, 3))
    T[0, 0, 0], T[0, 1, 2], T[1, 0, 2], T[1, 1, 2] = np.exp(x), 0.1, 0.1, 2 * z
    return T


def fisher_contraction(q, data, M):
    return np.einsum("ij,ijk->k", M, fisher_derivative(q, data))


RIGHT = {
    "hessian": hessian,
    "third_derivative": third_derivative,
    "hessian_contraction": hessian_contraction,
    "fisher": fisher,
    "fisher_derivative": fisher_derivative,
    "fisher_contraction": fisher_contraction,
}
HERE = np.array([0.4, -0.8, 0.6])
SOFTABS, FISHER = refhmc.metrics.SoftAbs(1e6), refhmc.metrics.Fisher()


def preflight(metric, q=HERE, **functions):
    """The checks of what ``metric`` reads of a model with these derivatives."""
    model = refhmc.Model(3, log_density, gradient, **functions, in_python=PYTHON, name="three")
    check_derivatives(make_plan(model, refhmc.HMC(n_steps=1, metric=metric), 0), q)


def scaled(function, entry, by=1.02):
    """``function`` with one entry of its result off by 2 %."""

    def wrong(q, data, *M):
        out = function(q, data, *M)
        out[entry] *= by
        return out

    return wrong


def symmetric(function):
    return lambda q, data: 0.5 * (function(q, data) + function(q, data).T)


@pytest.mark.parametrize(
    ("metric", "names"),
    [
        (SOFTABS, ("hessian", "hessian_contraction")),
        swept(SOFTABS, ("hessian", "third_derivative")),
        (refhmc.metrics.DiagonalSoftAbs(1e6), ("hessian", "third_derivative")),
        (refhmc.metrics.OuterProductSoftAbs(), ("hessian",)),
        (refhmc.metrics.DiagonalOuterProductSoftAbs(), ("hessian",)),
        (FISHER, ("fisher", "fisher_contraction")),
        (FISHER, ("fisher", "fisher_derivative")),
    ],
)
def test_an_error_in_any_entry_that_a_metric_reads_is_found(metric, names):
    functions = {name: RIGHT[name] for name in names}
    preflight(metric, **functions)
    preflight(metric, np.zeros(3), **functions)  # where much vanishes
    for name in names:
        if name == "fisher":  # an expectation: what it is the derivative of is not known, only what is its derivative
            with pytest.raises(GradientError, match=f"{names[1]} .*derivative of the fisher"):
                preflight(metric, **{**functions, name: scaled(fisher, (0, 0))})
            continue
        arguments = (HERE, None, np.eye(3) + 0.5) if "contraction" in name else (HERE, None)
        size = np.abs(RIGHT[name](*arguments))
        for entry in zip(*np.nonzero(size), strict=True):
            off = scaled(RIGHT[name], entry)
            off = symmetric(off) if name == "hessian" else off
            with pytest.raises(GradientError, match=f"{name} .*derivative of the (gradient|hessian|fisher)"):
                preflight(metric, **{**functions, name: off})


def test_a_metric_that_is_not_symmetric():
    with pytest.raises(MetricError, match=r"hessian .*symmetric.*\[0, 1\].*\[1, 0\]"):
        preflight(SOFTABS, hessian=lambda q, data: np.triu(hessian(q, data)), third_derivative=third_derivative)
    with pytest.raises(MetricError, match="fisher .*symmetric"):
        preflight(FISHER, fisher=lambda q, data: np.tril(fisher(q, data)), fisher_derivative=fisher_derivative)


compiled_third_derivative = numba.njit(third_derivative)


def wrong_third_derivative(q, data):
    return 1.5 * compiled_third_derivative(q, data)


@pytest.mark.parametrize("in_python", [PYTHON, swept("")])
def test_sample_refuses_a_wrong_third_derivative(sample, in_python):
    """An error in a derivative of the metric is rejected by ``sample``."""
    kernel = refhmc.HMC(step_size=0.2, n_steps=2, metric=SOFTABS)
    options = {"draws": 5, "tune": 0, "chains": 1, "random_seed": 1}
    functions = (log_density, gradient, hessian)
    wrong = refhmc.Model(3, *functions, wrong_third_derivative, in_python=in_python)
    with pytest.raises(GradientError, match="third_derivative .*derivative of the hessian"):
        sample(wrong, kernel, **options)
    assert sample(wrong, kernel, preflight=False, **options).draws.shape == (1, 5, 3)
    right = refhmc.Model(3, *functions, compiled_third_derivative, in_python=in_python)
    assert right.runs_as_python == (in_python or None)
    assert sample(right, kernel, **options).draws.shape == (1, 5, 3)


@pytest.mark.sweep
def test_each_block_of_gibbs_sampling():
    blocks = refhmc.Gibbs({(0, 2): refhmc.HMC(n_steps=1, metric=SOFTABS), (1,): refhmc.NUTS()})
    right = refhmc.Model(3, log_density, gradient, hessian, third_derivative, in_python=PYTHON)
    check_derivatives(make_plan(right, blocks, 0), HERE)
    wrong = refhmc.Model(3, log_density, gradient, hessian, scaled(third_derivative, (0, 0, 0)), in_python=PYTHON)
    with pytest.raises(
        GradientError, match="hessian_contraction of model .*coordinates' must be the derivative of the hessian"
    ):
        check_derivatives(make_plan(wrong, blocks, 0), HERE)


@pytest.mark.sweep
def test_a_hessian_of_the_wrong_number_of_axes():
    model = refhmc.Model(2, lambda q, data: -0.5 * np.sum(q * q), lambda q, data: -q, lambda q, data: -np.ones(2))
    with pytest.raises(ModelError, match="hessian must"):
        make_plan(model, refhmc.HMC(n_steps=1, metric=refhmc.metrics.OuterProductSoftAbs()), 0)


@pytest.mark.sweep
def test_the_value_and_the_gradient_that_the_core_calls_are_those_checked():
    def both(q, data, out):
        for i in range(2):
            out[i] = -1.1 * q[i]
        return -0.5 * np.sum(q * q)

    model = refhmc.Model(2, lambda q, data: -0.5 * np.sum(q * q), lambda q, data: -q, value_and_gradient=both)
    with pytest.raises(GradientError, match="gradient .*derivative"):
        check_gradient(model, np.array([0.5, 1.0]))


def test_a_missing_contraction_names_its_alternatives():
    with pytest.raises(
        MissingDerivativeError,
        match=r"hessian_contraction.*hessian_contraction=\.\.\..*third_derivative=\.\.\.",
    ):
        preflight(SOFTABS, hessian=hessian)
    with pytest.raises(MissingDerivativeError, match=r"fisher_contraction.*fisher_derivative=\.\.\."):
        preflight(FISHER, fisher=fisher)


def stairs(q, data):
    return -0.5 * q[0] ** 2 - 0.3 * np.abs(np.floor(q[1]) - 2) if 0 <= q[1] < 6 else -np.inf


def stairs_change(q, data, j, new_value):
    there = q.copy()
    there[j] = new_value
    return stairs(there, data) - stairs(q, data)


def test_the_change_that_dhmc_reads(sample):
    def checked(change):
        model = refhmc.Model(
            2,
            stairs,
            lambda q, data: np.array([-q[0], 0.0]),
            discontinuous=[1],
            log_density_change=change,
            in_python=PYTHON,
        )
        check_gradient(model, np.array([0.3, 2.5]))
        check_derivatives(make_plan(model, refhmc.DHMC(), 0), np.array([0.3, 2.5]))

    checked(stairs_change)
    with pytest.raises(GradientError, match=r"log_density_change .* q\[1\]"):
        checked(lambda q, data, j, new_value: 0.5 * stairs_change(q, data, j, new_value))


# ---------------------------------------------------------------------------------------- positions and data are kept


def to_zero(q, data):
    value = -0.5 * np.sum(q * q)
    q[:] = 0.0
    return value


def doubling(q, data):
    g = -q
    q *= 2.0
    return g


def normal(q, data):
    return -0.5 * np.sum(q * q)


def normal_gradient(q, data):
    return -q


def doubling_in_place(q, data, out):
    q *= 2.0
    out[:] = -0.5 * q


def data_written(q, data):
    data[0] += 1.0
    return -0.5 * np.sum(q * q)


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("log_density", (to_zero, normal_gradient)),
        swept("log_density", (numba.njit(to_zero), normal_gradient)),
        ("gradient", (normal, doubling)),
        swept("gradient", (normal, doubling_in_place)),
    ],
)
@pytest.mark.parametrize("initvals", [None, swept([0.0, 0.0])])
@pytest.mark.parametrize("in_python", ["", PYTHON])
def test_a_function_that_writes_to_its_position_is_rejected(sample, name, functions, initvals, in_python):
    """Compiled, these functions gave draws with wrong standard deviations. They do not change a position of zeros."""
    model = refhmc.Model(2, *functions, in_python=in_python)
    with pytest.raises(ModelError, match=rf"^{name} .*in place"):
        sample(model, initvals=initvals, draws=5, tune=0, chains=1, random_seed=1, preflight=False)
    assert model.runs_as_python is None or in_python


def spoiling(function):
    def wrong(q, data):
        out = function(q, data)
        q[1] = 7.0
        return out

    return wrong


@pytest.mark.parametrize("name", ["hessian", "third_derivative"])
def test_derivatives_that_write_to_their_position_are_rejected(sample, name):
    functions = {**{k: RIGHT[k] for k in ("hessian", "third_derivative")}, name: spoiling(RIGHT[name])}
    model = refhmc.Model(3, log_density, gradient, **functions, in_python=PYTHON)
    kernel = refhmc.HMC(step_size=0.2, n_steps=2, metric=SOFTABS)
    with pytest.raises(ModelError, match=f"^{name} .*q.*in place"):
        sample(model, kernel, draws=5, tune=0, chains=1, random_seed=1)


@pytest.mark.parametrize(
    ("data", "density"),
    [
        (np.ones(2), data_written),
        swept((np.ones(2), 1.0), lambda q, data: data_written(q, data[0])),
        swept({"y": [np.ones(2)]}, lambda q, data: data_written(q, data["y"][0])),
    ],
)
def test_a_function_that_writes_to_its_data_is_rejected(sample, data, density):
    density = data_written if isinstance(data, np.ndarray) else density
    model = refhmc.Model(
        2, density, normal_gradient, data=data, in_python="" if isinstance(data, np.ndarray) else PYTHON
    )
    with pytest.raises(ModelError, match="^log_density .*data.*in place"):
        sample(model, draws=5, tune=0, chains=1, random_seed=1)


@pytest.mark.parametrize(
    ("functions", "words", "in_python"),
    [
        swept((to_zero, normal_gradient), ".*q.* in place", ""),
        swept((data_written, normal_gradient), ".*data.* in place", ""),
        swept((to_zero, normal_gradient), ".*q.* in place", PYTHON),
        ((data_written, normal_gradient), ".*data.* in place", PYTHON),
    ],
)
def test_the_functions_of_a_part_are_checked_as_those_of_a_model(sample, functions, words, in_python):
    """Functions of the first part are right. A model of parts that run as Python also runs as Python."""
    parts = [
        refhmc.Model(2, *each, data=np.ones(2), in_python=in_python) for each in ((normal, normal_gradient), functions)
    ]
    model = refhmc.models.SplitModel(parts)
    for each in (model, refhmc.models.SplitModel(parts[1:] * 2, parts[1])):
        with pytest.raises(ModelError, match=f"^log_density{words}"):
            sample(each, initvals=[0.0, 0.0], draws=5, tune=0, chains=1, random_seed=1, preflight=False)
    assert model.runs_as_python == (in_python or parts[0].runs_as_python)


def far_out_spoiled(q, data):
    value = -0.5 * np.sum(q * q)
    if q[0] > 0.5:
        q[0] = 0.5
    return value


def far_out_spoiled_gradient(q, data, out):
    out -= q
    if q[1] > 0.5:
        q[:] = 0.0


@pytest.mark.parametrize("in_python", [swept(""), PYTHON])
def test_functions_cannot_change_positions_that_were_not_checked(sample, in_python):
    """Kernels pass copies, so that draws equal those of functions that write nowhere. ``out`` holds zeros."""
    options = {"draws": 60, "tune": 20, "chains": 1, "random_seed": 3, "initvals": [-1.0, -1.0]}
    kernel = refhmc.HMC(step_size=0.5, n_steps=4)
    spoiled = sample(refhmc.Model(2, far_out_spoiled, far_out_spoiled_gradient, in_python=in_python), kernel, **options)
    honest = sample(refhmc.Model(2, normal, normal_gradient, in_python=in_python), kernel, **options)
    assert (honest.draws > 0.5).any(axis=1).all()
    assert np.array_equal(spoiled.draws, honest.draws)


def test_the_callers_own_position_is_kept():
    for in_python in ("", PYTHON):
        model = refhmc.Model(2, to_zero, doubling, in_python=in_python, constrain=lambda q: {"x": doubling(q, None)})
        q = np.array([1.0, 2.0])
        assert model.log_density(q) == -2.5
        np.testing.assert_array_equal(model.gradient(q), [-1.0, -2.0])
        np.testing.assert_array_equal(model.constrain(np.stack([q, q, q]))["x"], -np.stack([q, q, q]))
        np.testing.assert_array_equal(q, [1.0, 2.0])


@pytest.mark.sweep
def test_a_matrix_written_in_place_is_initialized_with_zeros():
    """A Hessian that only writes its diagonal leaves zeros elsewhere."""

    def diagonal(q, data, out):
        for i in range(2):
            out[i, i] = -1.0

    model = refhmc.Model(2, normal, normal_gradient, diagonal, third_derivative=lambda q, data, out: None)
    metric = functions_for(model, refhmc.metrics.SoftAbs(1e6))[2]
    out = np.full((2, 2), np.nan)
    metric(np.ones(2), model.core.data, out)
    np.testing.assert_array_equal(out, -np.eye(2))


# --------------------------------------------------------------------------------------------- names and constrain


def test_names_of_axes_of_a_result_are_rejected(sample):
    names = ["x_dim_0", "x[0]"]
    model = refhmc.Model(2, normal, normal_gradient, names=names, in_python=PYTHON)
    with pytest.raises(ModelError, match=f"{names[0]!r} must.*variable"):
        sample(model, draws=5, tune=0, chains=1)


def raising(q):
    raise KeyError("sigma")


def spoiling_constrain(q):
    q[..., 0] = np.exp(q[..., 0])
    return {"s": q[..., 0].copy()}


@pytest.mark.parametrize(
    ("constrain", "words"),
    [
        (raising, "constrain raised KeyError .*sigma"),
        (spoiling_constrain, "constrain .*q.* in place"),
        (lambda q: np.exp(q), "constrain must .*ndarray"),
        (lambda q: {"s": q[q > 0.3]}, r"constrain.*'s'.*shape.*\(\d,\).*\(\d,\)"),
        (lambda q: {"s" if q[0] > 0.3 else "t": q}, "constrain .*names"),
        (lambda q: {"s": "high" if q[0] > 0 else "low"}, "constrain.*'s'.*<U4"),
        (lambda q: {"s": None}, "constrain.*'s'.*object"),
        (lambda q: {1: q}, "constrain.*names.*got 1"),
        (lambda q: {"chain": q}, "variable.*'chain'"),
        (lambda q: {"draw": q}, "variable.*'draw'"),
        (lambda q: {"s": q, "s_dim_0": q[..., 0]}, "'s_dim_0'.*variable.*'s'"),
    ],
)
def test_an_invalid_constrain_is_rejected(sample, constrain, words):
    """Before sampling, and with ``preflight=False`` too: the draws would be lost at the end."""
    model = refhmc.Model(2, normal, normal_gradient, constrain=constrain, in_python=PYTHON)
    with pytest.raises(ModelError, match=words):
        sample(model, draws=5, tune=0, chains=1, initvals=[0.3, 0.3], preflight=False)


@pytest.mark.parametrize(
    "constrain",
    [
        lambda q: {"s": np.exp(q[..., 0]), "t": q[..., 1:]},
        lambda q: {"s": float(np.exp(q[0])), "n": int(q[1]), "flag": q[0] > 0},
        lambda q: {"m": np.outer(q, q)},
        lambda q: {},
    ],
)
def test_a_constrain_that_is_right_passes(constrain):
    check_variables(
        refhmc.Model(2, normal, normal_gradient, constrain=constrain, in_python=PYTHON), np.array([0.3, -0.2])
    )


def positive_only(q):
    if q[0] < 0:
        raise ValueError("negative")
    return {"root": np.sqrt(q[0])}


def test_constrain_is_checked_at_positions_with_positive_density():
    model = refhmc.Model(
        1,
        lambda q, data: -q[0] if q[0] > 0 else -np.inf,
        lambda q, data: -np.ones(1),
        constrain=positive_only,
        in_python=PYTHON,
    )
    check_variables(model, np.array([1e-3]))
