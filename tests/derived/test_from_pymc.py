"""PyMC models compared with hand-written models, the kit, SciPy and PyMC's sampler; skipped without PyMC."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import scipy.special
import scipy.stats

import refhmc
from refhmc import check
from refhmc.compile.compile_cache import cache_directory
from refhmc.compile.identity import identity_of
from tests.helpers.agreement import assert_same_means

pm = pytest.importorskip("pymc", reason="PyMC is not installed (extra pymc)")
pytensor = pytest.importorskip("pytensor")

Y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
SCHOOLS = list("ABCDEFGH")


def schools(y=Y):
    with pm.Model(coords={"school": SCHOOLS}) as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfCauchy("tau", 5)
        sigma = pm.Data("sigma", SIGMA, dims="school")
        theta = pm.Normal("theta", mu, tau, dims="school")
        pm.Deterministic("difference", theta[0] - theta[1])
        pm.Normal("y", theta, sigma, observed=y, dims="school")
    return model


def radon(n=120, counties=9):
    """A line in each county: slopes and intercepts with a common prior, a floor indicator, unequal counts."""
    rng = np.random.default_rng(3)
    county = rng.choice(counties, size=n, p=np.arange(1, counties + 1) / sum(range(1, counties + 1)))
    floor = rng.integers(2, size=n).astype(float)
    y = 1.3 + 0.3 * rng.standard_normal(counties)[county] - 0.7 * floor + 0.8 * rng.standard_normal(n)
    with pm.Model(coords={"county": [f"county {k}" for k in range(counties)], "obs": np.arange(n)}) as model:
        mean = pm.Normal("mean", 0, 10, shape=2)
        spread = pm.Exponential("spread", 1, shape=2)
        z = pm.Normal("z", dims=("county",))
        slope = pm.Normal("slope", mean[1], spread[1], dims="county")
        level = pm.Deterministic("level", mean[0] + spread[0] * z, dims="county")
        share = pm.Beta("share", 2, 2)
        noise = pm.Uniform("noise", 0.01, 100)
        line = level[county] + slope[county] * floor + share
        pm.Normal("y", line, noise, observed=y, dims="obs")
    return model


@pytest.fixture(scope="module")
def eight_schools():
    return refhmc.from_pymc(schools())


@pytest.fixture(scope="module")
def eight_schools_by_differences():
    return refhmc.from_pymc(schools(), differences=True)


def as_ours(q):
    """Reorder PyMC's mu, log tau, theta to refhmc's order of the centred schools."""
    return np.concatenate([q[2:], q[:2]])


@pytest.mark.parametrize("log_tau", [-6.0, 0.3, 5.0])
def test_the_schools_derivatives_are_those_by_hand(eight_schools, log_tau):
    """Agreement to 1e-10 of the largest entry, and of density differences between positions."""
    ours = refhmc.models.EightSchools(centered=True)
    rng = np.random.default_rng(1)
    q, M = rng.normal(0, 3, 10), rng.standard_normal((10, 10))
    q[1] = log_tau
    order = as_ours(np.arange(10))
    x, origin = q[order], np.zeros(10)
    change = eight_schools.log_density(q) - eight_schools.log_density(origin)
    np.testing.assert_allclose(change, ours.log_density(x) - ours.log_density(origin), rtol=1e-12)
    pairs = [
        (eight_schools.gradient(q)[order], ours.gradient(x)),
        (eight_schools.hessian(q)[np.ix_(order, order)], ours.hessian(x)),
        (eight_schools.hessian_contraction(q, M)[order], ours.hessian_contraction(x, M[np.ix_(order, order)])),
    ]
    for theirs, by_hand in pairs:
        np.testing.assert_allclose(theirs, by_hand, rtol=0, atol=1e-10 * abs(by_hand).max())


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("log_tau", [-3.0, 0.3, 5.0])
def test_contraction_by_differences_agrees_with_that_by_hand(eight_schools_by_differences, log_tau, size):
    """Agreement to 1e-10 of the Hessian's largest entry times the weights, also far out and with a row of zero weights."""
    ours = refhmc.models.EightSchools(centered=True)
    rng = np.random.default_rng(2)
    q, M = rng.normal(0, 3, 10), size * rng.standard_normal((10, 10))
    M[3] = 0.0
    q[1], q[5] = log_tau, 300.0
    order = as_ours(np.arange(10))
    by_hand = ours.hessian_contraction(q[order], M[np.ix_(order, order)])
    found = eight_schools_by_differences.hessian_contraction(q, M)[order]
    H = abs(ours.hessian(q[order])).max()
    np.testing.assert_allclose(found, by_hand, rtol=0, atol=1e-10 * H * abs(M).max())


@pytest.mark.filterwarnings("ignore:from_pymc leaves out:refhmc.errors.ModelWarning")
@pytest.mark.parametrize("differences", [False, True])
def test_contraction_of_a_graph_with_scratch_memory(differences):
    """L = -sum (A x)^4 - sum x^4: matrix products use memory of x's size, which must not be that of x."""
    A = np.random.default_rng(1).standard_normal((6, 6))
    with pm.Model() as given:
        x = pm.Flat("x", shape=6)
        pm.Potential("p", -((A @ x) ** 4).sum() - (x**4).sum())
    model = refhmc.from_pymc(given, differences=differences)
    rng = np.random.default_rng(2)
    for _ in range(5):
        q, M = rng.standard_normal(6), rng.standard_normal((6, 6))
        expected = -24 * A.T @ ((A @ q) * np.diag(A @ M @ A.T)) - 24 * q * np.diag(M)
        np.testing.assert_allclose(model.hessian_contraction(q, M), expected, rtol=0, atol=1e-9 * abs(expected).max())


def test_contraction_by_differences_is_labelled(eight_schools_by_differences):
    model = eight_schools_by_differences
    assert list(model.approximate) == ["hessian_contraction"]
    assert model.fingerprint() != refhmc.from_pymc(schools()).fingerprint()
    softabs = refhmc.NUTS(metric=refhmc.metrics.SoftAbs(alpha=10.0))
    options = {"draws": 4, "tune": 4, "chains": 1, "random_seed": 1, "progressbar": False, "raw": True}
    with warnings.catch_warnings(action="ignore"):
        result = refhmc.sample(model, softabs, generate=False, **options)
    assert "hessian_contraction by differences of the Hessian" in result.attributes["approximate_derivatives"][0]
    again = pytest.importorskip("cloudpickle").loads(pytest.importorskip("cloudpickle").dumps(model))
    assert again.fingerprint() == model.fingerprint()
    assert again.approximate == model.approximate


def test_names_axes_and_data_are_taken_from_the_model(eight_schools):
    assert eight_schools.names == ["mu", "tau_log__", *(f"theta[{j}]" for j in range(8))]
    assert eight_schools.dims == {"sigma": ("school",), "theta": ("school",), "y": ("school",)}
    assert list(eight_schools.coords["school"]) == SCHOOLS
    values = eight_schools.constrain(np.arange(30.0).reshape(3, 10) / 10)
    assert {name: value.shape for name, value in values.items()} == {
        "mu": (3,),
        "tau": (3,),
        "theta": (3, 8),
        "difference": (3,),
    }
    np.testing.assert_allclose(values["tau"], np.exp([0.1, 1.1, 2.1]))
    np.testing.assert_allclose(values["difference"], values["theta"][:, 0] - values["theta"][:, 1], atol=1e-14)
    data = eight_schools.generated.data
    np.testing.assert_array_equal(data["observed_data"]["y"], Y)
    np.testing.assert_array_equal(data["constant_data"]["sigma"], SIGMA)


def test_generated_groups_of_a_pymc_model(eight_schools):
    """Log densities by SciPy; 2,000 predictive draws per school by the Kolmogorov-Smirnov test: false alarm 1e-4."""
    values = eight_schools.constrain(np.random.default_rng(2).standard_normal((2000, 10)))
    found = eight_schools.generated.log_likelihood(values)["y"]
    np.testing.assert_allclose(found, scipy.stats.norm.logpdf(Y, values["theta"], SIGMA), rtol=1e-12)
    one = {name: value[0] for name, value in values.items()}
    np.testing.assert_allclose(eight_schools.generated.log_likelihood(one)["y"], found[0], rtol=1e-14)
    drawn = eight_schools.generated.posterior_predictive(values, np.random.default_rng(5))["y"]
    again = eight_schools.generated.posterior_predictive(values, np.random.default_rng(5))["y"]
    np.testing.assert_array_equal(drawn, again)
    for j in range(8):
        standard = (drawn[:, j] - values["theta"][:, j]) / SIGMA[j]
        assert scipy.stats.kstest(standard, "norm").pvalue > 1e-4 / 10
    rng = np.random.default_rng(7)
    prior = [eight_schools.generated.prior(rng) for _ in range(500)]
    assert scipy.stats.kstest([each["mu"] / 5 for each in prior], "norm").pvalue > 1e-4 / 10
    assert scipy.stats.kstest([each["tau"] / 5 for each in prior], "halfcauchy").pvalue > 1e-4 / 10


def test_a_hierarchical_model_passes_the_kit():
    """Derivatives to third order by differences, at random positions."""
    model = refhmc.from_pymc(radon())
    report = check.model(model)
    report.assert_ok()
    assert {"gradient", "hessian", "trace"} <= {row.name for row in report.rows if row.status == "PASS"}


def test_values_that_depend_on_each_other():
    """To third order, by SymPy: PyTensor's ``Rop`` loses terms if the derivative of one value depends on another's."""
    sympy = pytest.importorskip("sympy")
    with pm.Model() as model:
        a = pm.Normal("a")
        b = pm.Normal("b", a, pm.math.exp(a), shape=2)
        pm.Normal("c", b.sum(), pm.math.exp(b[0]), shape=(2, 1))
    made = refhmc.from_pymc(model)
    q = sympy.symbols("q0:5")

    def normal(x, mean, log_scale):
        return -(((x - mean) * sympy.exp(-log_scale)) ** 2) / 2 - log_scale

    text = normal(q[0], 0, 0) + sum(normal(x, q[0], q[0]) for x in q[1:3])
    exact = refhmc.from_sympy(text + sum(normal(x, q[1] + q[2], q[1]) for x in q[3:]), list(q))
    rng = np.random.default_rng(1)
    for _ in range(3):
        x, M = rng.standard_normal(5), rng.standard_normal((5, 5))
        for name, arguments in {"gradient": (x,), "hessian": (x,), "hessian_contraction": (x, M)}.items():
            expected = getattr(exact, name)(*arguments)
            found = getattr(made, name)(*arguments)
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * abs(expected).max(), err_msg=name)


def test_derivatives_of_probabilities_near_0_and_1():
    """log(1 - sigmoid z) is differentiated as -softplus z; otherwise gradients are nan from z = 37 on.

    2 log s(z) + 2 log s(-z) has the gradient -2 tanh(z / 2); an outcome y with p = s(2 z) has 2 (y - p).
    """
    with pm.Model() as model:
        pm.Beta("p", 2, 2)
        slope = pm.Flat("slope")
        pm.Bernoulli("y", pm.math.sigmoid(np.array([2.0, 2.0, 2.0]) * slope), observed=[0, 0, 1])
    with warnings.catch_warnings(action="ignore", category=refhmc.errors.ModelWarning):  # Flat has no prior draws
        made = refhmc.from_pymc(model)
    for z in (-700.0, -40.0, -3.0, 0.0, 3.0, 40.0, 700.0):
        p, t = scipy.special.expit(2 * z), np.tanh(z / 2)
        np.testing.assert_allclose(made.gradient(np.full(2, z)), [-2 * t, 2 - 6 * p], rtol=1e-12)
        expected = np.diag([-(1 - t**2), -12 * p * scipy.special.expit(-2 * z)])
        np.testing.assert_allclose(made.hessian(np.full(2, z)), expected, rtol=1e-11, atol=1e-15)


def test_counts_of_classes():
    """Dirichlet and Multinomial, whose second order PyTensor rewrote forever.

    The density is sum_k (n_k + 1) log w_k with w's Jacobian; its derivatives are by differences.
    """
    n = np.array([4, 5, 6, 5])
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(4, 2.0))
        pm.Multinomial("n", n.sum(), w, observed=n)
    made = refhmc.from_pymc(model)
    x, M, h = np.array([0.3, -0.2, 0.5]), np.arange(9.0).reshape(3, 3), 1e-5
    change = made.log_density(x) - made.log_density(np.zeros(3))
    power = n + 2.0  # n + 1 of the densities, and 1 of the Jacobian
    assert change == pytest.approx(power @ np.log(made.constrain(x)["w"] / 0.25), rel=1e-12)
    sides = [(x + h * e, x - h * e) for e in np.eye(3)]
    slopes = [(made.gradient(up) - made.gradient(down)) / (2 * h) for up, down in sides]
    np.testing.assert_allclose(made.hessian(x), slopes, atol=1e-8)
    slopes = [np.sum(M * (made.hessian(up) - made.hessian(down))) / (2 * h) for up, down in sides]
    np.testing.assert_allclose(made.hessian_contraction(x, M), slopes, atol=1e-8)


def test_fingerprint_depends_on_the_density_and_its_data(eight_schools):
    assert refhmc.from_pymc(schools()).fingerprint() == eight_schools.fingerprint()
    assert refhmc.from_pymc(schools(Y + 1)).fingerprint() != eight_schools.fingerprint()


def identity(model):
    """Return the name under which the compiled value and gradient are cached."""
    return model.functions.value_and_gradient.identity


def small(y=1.0, scale=2.0, law=pm.Normal, shift=None, n=5):
    with pm.Model() as model:
        mu = law("mu", 0, scale)
        pm.Normal("y", mu if shift is None else shift(mu), 1.0, observed=np.full(n, y))
    return refhmc.from_pymc(model)


def test_cached_code_has_a_name_per_model():
    """Data, their number, a constant, a distribution, an operation and its arguments change the name; equal models share it."""
    known = [
        identity(each)
        for each in (
            small(),
            small(y=1.0 + 1e-15),
            small(scale=2.5),
            small(law=pm.Laplace),
            small(shift=pm.math.sin),
            small(shift=pm.math.cos),
            small(shift=lambda mu: mu**3),
            small(shift=lambda mu: mu**5),
            small(n=6),
        )
    ]
    assert None not in known
    assert len(set(known)) == len(known)
    assert identity(small()) == known[0]
    assert len({identity_of((small(y=y).functions.value_and_gradient,)) for y in (1.0, 2.0)}) == 2  # fused


def test_cached_code_is_loaded(tmp_path, monkeypatch):
    """No second file is written, and the loaded code is that of the requested model."""
    monkeypatch.setenv("REFHMC_CACHE_DIR", str(tmp_path))
    cache_directory.cache_clear()
    try:
        values = {y: small(y).log_density(np.array([0.3])) for y in (1.0, 2.0)}
        files = sorted(tmp_path.rglob("*.nbc"))
        assert len(files) == 2
        for y, value in values.items():
            assert small(y).log_density(np.array([0.3])) == value
            law = scipy.stats.norm(0.3).logpdf(np.full(5, y)).sum() + scipy.stats.norm(0, 2).logpdf(0.3)
            assert value == pytest.approx(law, rel=1e-8)
        assert sorted(tmp_path.rglob("*.nbc")) == files
    finally:
        cache_directory.cache_clear()


def test_code_that_factors_a_matrix_is_cached(tmp_path, monkeypatch):
    """PyTensor looks up LAPACK's routines as Python, once in each process."""
    monkeypatch.setenv("REFHMC_CACHE_DIR", str(tmp_path))
    cache_directory.cache_clear()
    pt, at, far = pytensor.tensor, np.array([0.3]), np.array([-2.0])

    def model(scale=1.0):
        with pm.Model() as model:
            rho = pm.Normal("rho")
            L = pt.linalg.cholesky(pm.math.exp(rho) * np.eye(2) + np.array([[scale, 0.3], [0.3, scale]]))
            pm.MvNormal("y", np.zeros(2), chol=L, observed=np.array([0.4, -1.0]))
        return refhmc.from_pymc(model)

    def exact(rho, scale):
        law = scipy.stats.multivariate_normal(np.zeros(2), np.exp(rho) * np.eye(2) + [[scale, 0.3], [0.3, scale]])
        return law.logpdf([0.4, -1.0]) + scipy.stats.norm.logpdf(rho)

    try:
        first = {scale: (model(scale).log_density(at), model(scale).gradient(at)) for scale in (1.0, 2.0)}
        files = sorted(tmp_path.rglob("*.nbc"))
        assert len(files) == 2
        for scale, (value, gradient) in first.items():
            loaded = model(scale)
            assert loaded.log_density(at) == value == pytest.approx(exact(0.3, scale), rel=1e-12)
            np.testing.assert_array_equal(loaded.gradient(at), gradient)
            assert loaded.log_density(far) == pytest.approx(exact(-2.0, scale), rel=1e-12)
        assert sorted(tmp_path.rglob("*.nbc")) == files
    finally:
        cache_directory.cache_clear()


def test_operation_that_runs_as_python_is_not_cached():
    """Its callees are unknown."""
    from pytensor.graph.basic import Apply
    from pytensor.graph.op import Op

    class Doubled(Op):
        __props__ = ()

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            outputs[0][0] = 2.0 * inputs[0]

        def L_op(self, inputs, outputs, cotangents):
            return [2.0 * cotangents[0]]

    model = small(shift=Doubled())
    assert not hasattr(model.functions.value_and_gradient, "identity")


def test_user_defined_operation_is_compiled_in_each_process():
    """Its version is unknown."""
    from pytensor.scalar.basic import Sin
    from pytensor.tensor.elemwise import Elemwise

    class Own(Sin):
        """The same operation, defined in this file."""

    model = small(shift=lambda mu: Elemwise(Own(pytensor.scalar.upgrade_to_float))(mu))
    assert not hasattr(model.functions.value_and_gradient, "identity")
    assert np.isfinite(model.log_density(np.array([0.3])))


@pytest.mark.sweep
def test_fused_kernels_belong_to_their_model():
    """Means of two posteriors 3 apart with standard deviation 0.5; draws agree with those by pointer up to rounding."""
    for y in (0.0, 3.0):
        options = {"draws": 100, "tune": 100, "chains": 1, "random_seed": 1, "progressbar": False, "raw": True}
        fused, by_pointer = (
            refhmc.sample(small(y), backend=refhmc.Numba(fuse=f), generate=False, **options) for f in (True, False)
        )
        np.testing.assert_allclose(fused.draws[0, :5], by_pointer.draws[0, :5], rtol=1e-6)


def test_a_model_of_the_context_and_another_process():
    cloudpickle = pytest.importorskip("cloudpickle")
    with schools():
        model = refhmc.from_pymc()
    again = cloudpickle.loads(cloudpickle.dumps(model))
    q = np.linspace(-1, 1, 10)
    assert again.log_density(q) == model.log_density(q)
    np.testing.assert_array_equal(again.gradient(q), model.gradient(q))


def test_a_copy_has_the_data_and_labels_that_the_model_had():
    """After pm.set_data of other rows: density, data, and a copy of the copy; PyMC's own model keeps the new ones."""
    cloudpickle = pytest.importorskip("cloudpickle")
    with pm.Model(coords={"row": ["a", "b"]}) as given:
        x = pm.Data("x", [0.5, -0.5], dims="row")
        scale = pytensor.shared(2.0)  # without a name
        mu = pm.Normal("mu", 0, scale)
        line = pm.Deterministic("line", mu * x, dims="row")
        pm.Normal("y", line, 1, observed=pm.Data("observed", [0.0, 1.0], dims="row"), dims="row")
    model, q = refhmc.from_pymc(given), np.array([0.3])
    expected = scipy.stats.norm.logpdf([0.0, 1.0], [0.15, -0.15]).sum() + scipy.stats.norm(0, 2).logpdf(0.3)
    with given:
        pm.set_data({"x": [1.0, 2.0, 3.0], "observed": [4.0, 5.0, 6.0]}, coords={"row": ["c", "d", "e"]})
    scale.set_value(7.0)
    once = cloudpickle.loads(cloudpickle.dumps(model))
    for each in (model, copy.copy(model), once, cloudpickle.loads(cloudpickle.dumps(once))):
        assert each.log_density(q) == pytest.approx(expected, rel=1e-14)
        assert each.fingerprint() == model.fingerprint()
        assert each.coords["row"].tolist() == ["a", "b"]
        np.testing.assert_array_equal(each.constrain(q)["line"], [0.15, -0.15])
        np.testing.assert_array_equal(each.generated.observed_data["y"], [0.0, 1.0])
        np.testing.assert_array_equal(each.generated.constant_data["x"], [0.5, -0.5])
    assert given["x"].get_value().tolist() == [1.0, 2.0, 3.0]
    assert scale.get_value() == 7.0
    assert refhmc.from_pymc(given).fingerprint() != model.fingerprint()


def groups_of(model):
    options = {"draws": 5, "tune": 50, "chains": 1, "random_seed": 1, "progressbar": False, "raw": True}
    return set(refhmc.sample(model, **options).groups)


def test_axes_are_those_of_the_variables_in_the_result():
    """Observed data with their own names and potentials have no axes in it, nor do unused labels."""
    with pm.Model(coords={"row": [0, 1], "other": [2, 3]}) as model:
        mu = pm.Normal("mu")
        pm.Potential("p", -(mu**2) * np.ones(2), dims="other")
        pm.Normal("y", mu, 1, observed=pm.Data("d", [0.0, 0.0], dims="row"), dims="row")
    made = refhmc.from_pymc(model)
    assert made.dims == {"y": ("row",)}
    assert list(made.coords) == ["row"]
    assert {"log_likelihood", "observed_data", "prior_predictive"} <= groups_of(made)


def test_group_that_pymc_cannot_draw_is_left_out():
    """Other groups are kept, and a copy of the model does not warn again."""
    with pm.Model() as flat:
        pm.Normal("sd")
        mu = pm.Flat("mu")
        pm.Normal("y", mu, 1, observed=[0.0, 1.0])
    with pytest.warns(refhmc.errors.ModelWarning, match=r"group prior.* mu \(Cannot sample from flat") as caught:
        model = refhmc.from_pymc(flat)
    assert [each.category for each in caught].count(refhmc.errors.ModelWarning) == 1
    assert caught[0].filename == __file__
    assert list(model.generated.made) == ["log_likelihood", "posterior_predictive"]
    assert {"log_likelihood", "posterior_predictive", "observed_data"} <= groups_of(model)
    with pm.Model() as custom:
        mu = pm.Normal("mu")
        pm.Normal("x", mu, 1, observed=[0.0])
        pm.CustomDist("y", mu, logp=lambda v, m: -((v - m) ** 2), observed=[0.0, 1.0])
    with pytest.warns(refhmc.errors.ModelWarning, match="group posterior_predictive.* cannot draw y"):
        model = refhmc.from_pymc(custom)
    assert list(model.generated.made) == ["log_likelihood", "prior"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", refhmc.errors.ModelWarning)
        assert list(copy.copy(model).generated.made) == ["log_likelihood", "prior"]


def test_models_that_cannot_be_sampled_are_rejected():
    with pm.Model() as discrete:
        k = pm.Poisson("k", 3)
        pm.Normal("x", k)
    with pytest.raises(refhmc.errors.ModelError, match="k are discrete"):
        refhmc.from_pymc(discrete)
    with pytest.raises(refhmc.errors.ModelError, match="no free variables"):
        refhmc.from_pymc(pm.Model())


@pytest.mark.parametrize("text", ["simplex", "ordered", "correlation"])
def test_transforms_of_vectors(text):
    """Derivatives by differences, and values within their support."""
    with pm.Model() as model:
        if text == "simplex":
            pm.Dirichlet("x", np.array([0.5, 2.0, 3.0]))
        elif text == "ordered":
            pm.Normal("x", 0, 2, shape=3, transform=pm.distributions.transforms.ordered, initval=[-1.0, 0.0, 1.0])
        else:
            pm.LKJCholeskyCov("x", n=2, eta=2.0, sd_dist=pm.Exponential.dist(1.0))
    made = refhmc.from_pymc(model)
    failed = {row.name for row in check.model(made).rows if row.status == "FAIL"}
    assert failed <= ({"gradient at large points"} if text == "correlation" else set())  # PyMC's overflows there
    values = made.constrain(np.random.default_rng(1).standard_normal((50, made.dim)))
    if text == "simplex":
        np.testing.assert_allclose(values["x"].sum(axis=1), 1.0, rtol=1e-12)
    elif text == "ordered":
        assert (np.diff(values["x"], axis=1) > 0).all()
    else:
        assert (abs(values["x_corr"][:, 0, 1]) < 1).all()


def test_a_scale_that_underflows_is_a_density_that_is_not_finite(eight_schools):
    """PyMC's check ``sigma > 0`` would raise there, and end the chain of a trial step."""
    q = np.zeros(10)
    q[1] = -800.0
    assert not np.isfinite(eight_schools.log_density(q))
    assert not np.isfinite(eight_schools.gradient(q)).all()


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("make", "alpha", "depth"), [(schools, 10.0, 10), (lambda: radon(60, 4), 1.0, 5)], ids=["schools", "radon"]
)
def test_the_posterior_is_that_of_pymc_and_rmhmc_samples_it(make, alpha, depth):
    """Means of all variables by PyMC's NUTS, by refhmc's and by SoftAbs RMHMC: false alarm 3e-5."""
    model = refhmc.from_pymc(make())
    softabs = refhmc.NUTS(max_treedepth=depth, metric=refhmc.metrics.SoftAbs(alpha=alpha))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pm.sample(
            1000, tune=1000, chains=4, cores=1, target_accept=0.99, random_seed=1, progressbar=False, model=make()
        )
        ours = refhmc.sample(
            model, refhmc.NUTS(target_accept=0.99), random_seed=2, progressbar=False, raw=True, generate=False
        )
        riemann = refhmc.sample(
            model, softabs, tune=150, draws=150, random_seed=3, progressbar=False, raw=True, generate=False
        )
    assert_same_means([theirs.posterior, ours.posterior, riemann.posterior], list(ours.posterior))


def test_warnings_of_pytensor_reach_the_user_once():
    """An operation that runs as Python is in the graphs of the gradient, of the Hessian and of the third derivative."""
    import pytensor.tensor as pt
    from pytensor.graph.op import Op

    class Exponential(Op):
        __props__ = ()
        itypes = (pt.dscalar,)
        otypes = (pt.dscalar,)

        def perform(self, node, inputs, outputs):
            outputs[0][0] = np.asarray(np.exp(inputs[0]))

        def grad(self, inputs, gradients):
            return [gradients[0] * Exponential()(inputs[0])]

    with pm.Model() as given:
        x = pm.Normal("x")
        pm.Potential("p", -Exponential()(x))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = refhmc.from_pymc(given)
        at_once = [str(each.message) for each in caught if "object mode" in str(each.message)]
        q = np.array([0.5])
        assert model.hessian(q) == pytest.approx(-1 - np.exp(0.5), rel=1e-12)
        assert model.hessian_contraction(q, np.eye(1)) == pytest.approx(-np.exp(0.5), rel=1e-12)
        copy.copy(model).log_density(q)
    assert len(at_once) == 1
    assert [str(each.message) for each in caught if "object mode" in str(each.message)] == at_once
