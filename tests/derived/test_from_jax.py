"""JAX densities and NumPyro models compared with hand-written models, SciPy and NumPyro's sampler; skipped without JAX."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc import check, diagnostics
from tests.helpers.agreement import assert_same_means
from tests.helpers.sweeps import swept
from validation.posteriordb.posteriors import hudson_lynx_hare_lotka_volterra

jax = pytest.importorskip("jax", reason="JAX is not installed (extra jax)")
jnp = jax.numpy

Y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def centred(q):
    """The centred schools in refhmc's order: theta, mu, log tau."""
    theta, mu, u = q[:8], q[8], q[9]
    tau = jnp.exp(u)
    prior = -0.5 * (mu / 5) ** 2 - jnp.log1p((tau / 5) ** 2) + u - 8 * u - 0.5 * jnp.sum(((theta - mu) / tau) ** 2)
    return prior - 0.5 * jnp.sum(((Y - theta) / SIGMA) ** 2)


@pytest.mark.parametrize("log_tau", [-6.0, 0.3, 5.0])
def test_derivatives_of_eight_schools_agree_with_those_by_hand(log_tau):
    """Agreement to 1e-10 of the largest entry, and of density differences between positions."""
    model, ours = refhmc.from_jax(centred, 10), refhmc.models.EightSchools(centered=True)
    rng = np.random.default_rng(1)
    q, M = rng.normal(0, 3, 10), rng.standard_normal((10, 10))
    q[9] = log_tau
    origin = np.zeros(10)
    change = model.log_density(q) - model.log_density(origin)
    np.testing.assert_allclose(change, ours.log_density(q) - ours.log_density(origin), rtol=1e-12)
    for key, arguments in {"gradient": (), "hessian": (), "third_derivative": (), "hessian_contraction": (M,)}.items():
        by_hand = getattr(ours, key)(q, *arguments)
        theirs = getattr(model, key)(q, *arguments)
        np.testing.assert_allclose(theirs, by_hand, rtol=0, atol=1e-10 * abs(by_hand).max())


def test_model_passes_the_kit_and_draws_agree():
    """Three means within the normal quantile of 1e-5 / 6 standard errors: false alarm 1e-5."""
    model = refhmc.from_jax(lambda q: -0.5 * jnp.sum(q**2 / jnp.arange(1.0, 4.0)), 3, names=["a", "b[0]", "b[1]"])
    check.model(model).assert_ok()
    result = refhmc.sample(model, random_seed=1, progressbar=False, raw=True)
    assert {name: value.shape for name, value in result.posterior.items()} == {"a": (4, 1000), "b": (4, 1000, 2)}
    error = np.sqrt(np.arange(1.0, 4.0) / diagnostics.ess(result.draws))
    assert (abs(result.draws.mean(axis=(0, 1))) < scipy.stats.norm.isf(1e-5 / 6) * error).all()


def test_wrong_rule_of_differentiation_is_an_error_unless_a_solver_has_it():
    """The rule is wrong by 1e-4 of the derivative. A solver's rule is right only to its tolerance, which is a warning."""

    def density(solve):
        f = jax.custom_vjp(solve)
        f.defvjp(lambda q: (solve(q), q), lambda q, g: (-(1 + 1e-4) * g * q,))
        return refhmc.from_jax(f, 2)

    def iterated(q):
        return jax.lax.while_loop(lambda v: v < -0.5 * q @ q, lambda v: -0.5 * q @ q, -jnp.inf)

    def run(model):
        return refhmc.sample(model, draws=5, tune=5, chains=1, random_seed=1, progressbar=False, raw=True)

    with pytest.raises(refhmc.errors.GradientError, match="must be the derivative"):
        run(density(lambda q: -0.5 * q @ q))
    with pytest.warns(refhmc.errors.PrecisionWarning, match=r"differs by 1e-04 of its size .* rtol and atol"):
        result = run(density(iterated))
    assert "solver" in result.attributes["approximate_derivatives"][0]


def test_fingerprint_depends_on_the_density_and_its_data():
    def of(y):
        y = jnp.asarray(y)
        return refhmc.from_jax(lambda q: -0.5 * jnp.sum((q - y) ** 2), 2)

    assert of([1.0, 2.0]).fingerprint() == of([1.0, 2.0]).fingerprint()
    assert of([1.0, 2.0]).fingerprint() != of([1.0, 2.5]).fingerprint()


def test_single_precision_and_vector_densities_are_rejected():
    with pytest.raises(refhmc.errors.ModelError, match=r"log_density must return .*float64.*\(3,\)"):
        refhmc.from_jax(lambda q: q, 3)
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(refhmc.errors.ModelError, match="jax_enable_x64"):
            refhmc.from_jax(lambda q: -jnp.sum(q**2), 3)
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize("dim", ["3", np.nan, 0, 2.5, True])
def test_invalid_dim_is_rejected(dim):
    with pytest.raises(refhmc.errors.ShapeError, match="dim must be .*at least 1"):
        refhmc.from_jax(lambda q: -jnp.sum(q**2), dim)


def test_fisher_metric_is_used_if_given_and_another_one_is_named_if_not():
    plain = refhmc.from_jax(lambda q: -0.5 * q @ q, 2)
    with pytest.raises(refhmc.errors.MissingDerivativeError, match=r"no fisher and .*SoftAbs\(\)") as caught:
        refhmc.Hamiltonian(plain, refhmc.metrics.Fisher())
    assert "refhmc.Model" not in str(caught.value)
    functions = {"fisher": lambda q, data: 3.0 * np.eye(2), "fisher_contraction": lambda q, data, M: np.zeros(2)}
    model = refhmc.from_jax(lambda q: -0.5 * q @ q, 2, **functions)
    assert model.fisher([0.0, 0.0]).tolist() == [[3.0, 0.0], [0.0, 3.0]]
    assert model.has("fisher_derivative")


def test_unknown_options_are_rejected():
    """Other options of refhmc.Model are accepted."""
    for name, words in {
        "nam": r"from_jax\(\) has no argument 'nam'.* name\?",
        "coordinates": r"from_jax\(\) has no argument 'coordinates'.* coords\?",
        "data": r"from_jax\(\) has no argument 'data'.*closure",
        "hessian": r"from_jax\(\) has no argument 'hessian'.*log_density",
    }.items():
        with pytest.raises(TypeError, match=words):
            refhmc.from_jax(lambda q: -jnp.sum(q**2), 2, **{name: 3})
    model = refhmc.from_jax(lambda q: -jnp.sum(q**2), 2.0, initial=[0.0, 1.0], dims={"q": ("x",)}, noise=1e-9)
    assert (model.dim, model.dims, model.noise) == (2, {"q": ("x",)}, 1e-9)


# ------------------------------------------------------------------------------------------------------------- NumPyro


def schools(numpyro):
    dist = numpyro.distributions

    def schools(sigma, y=None):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        with numpyro.plate("school", 8):
            theta = numpyro.sample("theta", dist.Normal(mu, tau))
            numpyro.sample("y", dist.Normal(theta, sigma), obs=y)
        numpyro.deterministic("difference", theta[0] - theta[1])

    return schools


@pytest.fixture(scope="module")
def numpyro():
    return pytest.importorskip("numpyro", reason="NumPyro is not installed (extra jax)")


def test_a_numpyro_model_is_that_by_hand(numpyro):
    model, ours = refhmc.from_numpyro(schools(numpyro), SIGMA, y=Y), refhmc.models.EightSchools(centered=True)
    assert model.names == ["mu", "tau", *(f"theta[{j}]" for j in range(8))]
    rng = np.random.default_rng(1)
    q, M = rng.normal(0, 2, 10), rng.standard_normal((10, 10))
    order = np.r_[2:10, 0:2]
    change = model.log_density(q) - model.log_density(np.zeros(10))
    np.testing.assert_allclose(change, ours.log_density(q[order]) - ours.log_density(np.zeros(10)), rtol=1e-12)
    by_hand = ours.hessian_contraction(q[order], M[np.ix_(order, order)])
    np.testing.assert_allclose(model.hessian_contraction(q, M)[order], by_hand, rtol=0, atol=1e-10 * abs(by_hand).max())
    values = model.constrain(rng.standard_normal((3, 10)))
    assert {name: value.shape for name, value in values.items()} == {
        "mu": (3,),
        "tau": (3,),
        "theta": (3, 8),
        "difference": (3,),
    }
    assert model.dims == {"theta": ("school",), "y": ("school",)}


def test_generated_groups_of_a_numpyro_model(numpyro):
    """Log densities by SciPy; 400 x 8 predictive draws by the Kolmogorov-Smirnov test: false alarm 1e-4."""
    model = refhmc.from_numpyro(schools(numpyro), SIGMA, y=Y)
    values = model.constrain(np.linspace(-1, 1, 10))
    found = model.generated.log_likelihood(values)["y"]
    np.testing.assert_allclose(found, scipy.stats.norm.logpdf(Y, values["theta"], SIGMA), rtol=1e-12)
    rng = np.random.default_rng(3)
    drawn = np.array([model.generated.posterior_predictive(values, rng)["y"] for _ in range(400)])
    assert scipy.stats.kstest(((drawn - values["theta"]) / SIGMA).ravel(), "norm").pvalue > 1e-4
    np.testing.assert_array_equal(model.generated.data["observed_data"]["y"], Y)
    many = model.constrain(rng.standard_normal((5, 10)))
    together = model.generated.posterior_predictive(many, np.random.default_rng(1))["y"]
    one_by_one, again = [{n: v[i] for n, v in many.items()} for i in range(5)], np.random.default_rng(1)
    np.testing.assert_allclose(together, [model.generated.posterior_predictive(v, again)["y"] for v in one_by_one])
    each = [model.generated.log_likelihood(v)["y"] for v in one_by_one]
    np.testing.assert_allclose(model.generated.log_likelihood(many)["y"], each, rtol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_factor_is_part_of_the_posterior_but_not_an_observation(numpyro, masked):
    dist = numpyro.distributions

    def penalised(y):
        mu = numpyro.sample("mu", dist.Normal())
        with numpyro.plate("row", 3), numpyro.handlers.mask(mask=True if not masked else jnp.ones(3, bool)):
            numpyro.factor("penalty", -(mu**2))
            numpyro.sample("y", dist.Normal(mu, 1), obs=y)

    model, y = refhmc.from_numpyro(penalised, np.arange(3.0)), np.arange(3.0)
    assert list(model.generated.observed_data) == ["y"]
    assert model.dims == {"y": ("row",)}
    at = model.constrain(np.array([0.5]))
    assert list(model.generated.log_likelihood(at)) == ["y"]
    assert list(model.generated.posterior_predictive(at, np.random.default_rng(1))) == ["y"]
    law = scipy.stats.norm.logpdf(0.5) + scipy.stats.norm.logpdf(y, 0.5).sum() - 3 * 0.25
    assert model.log_density(np.array([0.5])) == pytest.approx(law, rel=1e-12)


def test_the_names_of_a_scope_can_be_stored(numpyro, tmp_path):
    from numpyro import distributions as dist

    def effects():
        with numpyro.plate("group", 2):
            return numpyro.sample("x", dist.Normal(0, 1))

    def model():
        x = numpyro.handlers.scope(effects, "arm")()
        with numpyro.plate("group", 2):
            numpyro.handlers.scope(lambda: numpyro.sample("y", dist.Normal(x, 1), obs=np.array([1.0, -1.0])), "arm")()

    made = refhmc.from_numpyro(model)
    assert made.names == ["arm.x[0]", "arm.x[1]"]
    result = refhmc.sample(made, draws=20, tune=20, chains=2, random_seed=1, progressbar=False)
    result.to_netcdf(tmp_path / "result.nc")
    x, term = result.posterior["arm.x"], result.log_likelihood["arm.y"]
    expected = scipy.stats.norm.logpdf(np.array([1.0, -1.0]), x.values, 1.0)
    np.testing.assert_allclose(term.values, expected, rtol=1e-12)
    assert result.observed_data["arm.y"].values.tolist() == [1.0, -1.0]


def test_imputed_values_are_not_data(numpyro):
    """Observed and imputed values share one site; data with a nan in a separate site are data."""
    dist = numpyro.distributions

    def imputed(y, x):
        mu = numpyro.sample("mu", dist.Normal())
        missing = numpyro.sample("missing", dist.Normal(mu, 1).mask(False))
        with numpyro.plate("row", 4):
            numpyro.sample("all", dist.Normal(mu, 1), obs=jnp.append(y, missing))
        numpyro.sample("x", dist.Normal(mu, 1).mask(~np.isnan(x)), obs=x)

    y, x = np.arange(3.0), np.array([1.0, np.nan])
    with pytest.warns(refhmc.errors.ModelWarning, match="from_numpyro leaves all out of the log likelihood") as caught:
        model = refhmc.from_numpyro(imputed, y, x)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(model.generated.observed_data["x"], x)
    assert list(model.generated.observed_data) == ["x"]
    assert model.dims == {}
    assert list(model.generated.log_likelihood(model.constrain(np.zeros(2)))) == ["x"]
    law = scipy.stats.norm.logpdf(np.append(y, 0.5), 0.25).sum() + scipy.stats.norm.logpdf([0.25, 1 - 0.25]).sum()
    assert model.log_density(np.array([0.5, 0.25])) == pytest.approx(law, rel=1e-12)  # missing, mu


def test_a_flat_prior_with_a_moving_support_is_refused(numpyro):
    """NumPyro 0.22 transforms its values by the support at its own start: the mean of b would be 0.03 and not 0.3."""
    dist = numpyro.distributions

    def moving(fixed):
        a = numpyro.sample("a", dist.Gamma(3.0, 1.0))
        b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.interval(0.0, 2.0 if fixed else a), (), ()))
        numpyro.factor("near", -50 * (b - 0.3) ** 2)

    assert refhmc.from_numpyro(moving, True).names == ["a", "b"]
    with pytest.raises(refhmc.errors.ModelError, match="support depends on other sites; b has one"):
        refhmc.from_numpyro(moving, False)


def test_a_flat_prior_of_numpyro_is_allowed(numpyro):
    """With y ~ N(b, 1) and p(b) constant on b > 0, u = log b has the density N(y | e^u, 1) e^u."""
    dist = numpyro.distributions

    def flat():
        b = numpyro.sample("b", dist.ImproperUniform(dist.constraints.positive, (), ()))
        numpyro.sample("y", dist.Normal(b, 1), obs=2.0)

    model, u = refhmc.from_numpyro(flat), np.array([[0.3], [-1.2]])
    found = model.log_density(u[0]) - model.log_density(u[1])
    expected = scipy.stats.norm.logpdf(2, np.exp(u[:, 0])) + u[:, 0]
    assert found == pytest.approx(expected[0] - expected[1], rel=1e-12)


@pytest.mark.parametrize("name", ["LogNormal", swept("Normal"), swept("MultivariateNormal")])
def test_positions_with_invalid_parameters_are_rejected(numpyro, name):
    """With x below 1, NumPyro raises an error except in compiled code; three of four starts are there."""
    dist = numpyro.distributions
    parameters = {
        "Normal": lambda x: (jnp.zeros(2), x - 1),
        "LogNormal": lambda x: (jnp.log(x - 1), jnp.ones(2)),
        "MultivariateNormal": lambda x: (jnp.zeros(2), jnp.eye(2) * (x - 1)),
    }[name]

    def model():
        x = numpyro.sample("x", dist.Normal(2, 1))
        numpyro.sample("y", getattr(dist, name)(*parameters(x)), obs=jnp.array([0.5, 0.7]))

    with numpyro.validation_enabled():
        made = refhmc.from_numpyro(model)
        result = refhmc.sample(made, draws=50, tune=50, chains=2, random_seed=1, progressbar=False, raw=True)
        assert not np.isfinite(made.log_density(np.array([0.5])))
        x = result.posterior["x"].ravel()
        assert np.isfinite(made.generated.log_likelihood({"x": x})["y"]).all()
    assert (x > 1).all()
    assert len(np.unique(x)) > 20


def test_observation_outside_the_support_has_no_density(numpyro):
    """NumPyro's validation gives y <= width its log density -log width, and y > width the value -inf."""
    dist = numpyro.distributions

    def model():
        width = numpyro.sample("width", dist.LogNormal())
        numpyro.sample("y", dist.Uniform(0, width), obs=jnp.ones(()))

    made, u = refhmc.from_numpyro(model), 0.3
    assert made.log_density(np.array([u])) == pytest.approx(scipy.stats.norm.logpdf(u) - u, rel=1e-12)
    assert made.log_density(np.array([-u])) == -np.inf


def test_odeint_and_the_closed_form_of_its_solution_have_one_posterior(numpyro):
    """All means of logistic growth, dz/dt = r z (1 - z / c), by both: false alarm 1e-7."""
    from jax.experimental.ode import odeint

    dist, times = numpyro.distributions, jnp.arange(8.0)

    def by_odeint(r, c, z):
        return odeint(lambda x, t: r * x * (1 - x / c), z, times, rtol=1e-4, atol=1e-4, mxstep=1000)

    def in_closed_form(r, c, z):
        return c / (1 + (c / z - 1) * jnp.exp(-r * times))

    def growth(solve, y):
        medians = {"r": 1.0, "c": 8.0, "z": 1.0}
        values = [numpyro.sample(name, dist.LogNormal(np.log(m), 0.5)) for name, m in medians.items()]
        scale = numpyro.sample("scale", dist.LogNormal(-1, 1))
        numpyro.sample("y", dist.LogNormal(jnp.log(solve(*values)), scale), obs=y)

    y = in_closed_form(0.9, 8.0, 1.2) * np.exp(0.2 * np.random.default_rng(1).standard_normal(8))
    models = [refhmc.from_numpyro(growth, solve, y) for solve in (by_odeint, in_closed_form)]
    assert [list(model.approximate) for model in models] == [["gradient"], []]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", refhmc.errors.SamplingWarning)
        options = {"draws": 500, "tune": 500, "progressbar": False, "raw": True, "generate": False}
        runs = [refhmc.sample(model, random_seed=seed, **options).posterior for seed, model in enumerate(models)]
    assert_same_means(runs, list(runs[0]), alarm=1e-7)


def test_lotka_volterra_by_odeint_is_sampled_by_default(numpyro):
    """Gradients differ by more than 1e-6 at all random starts, because of odeint's tolerance."""
    pelts = np.array([[30, 4], [47.2, 6.1], [70.2, 9.8], [77.4, 35.2], [36.3, 59.4], [20.6, 41.7], [18.1, 19]])
    data = {"ts": np.arange(1, len(pelts)), "y_init": pelts[0], "y": pelts[1:]}
    with numpyro.validation_enabled():
        model = refhmc.from_numpyro(hudson_lynx_hare_lotka_volterra.in_numpyro(data))
        with pytest.warns(refhmc.errors.PrecisionWarning, match="a solver such as odeint") as caught:
            result = refhmc.sample(model, draws=20, tune=100, chains=2, random_seed=1, progressbar=False, raw=True)
    assert result.warnings[0] == str(caught[0].message)
    assert model.parents == dict.fromkeys(["alpha", "beta", "delta", "gamma", "hares", "lynxes", "sigma"], ())
    assert len(np.unique(result.posterior["alpha"])) > 20


def test_numpyro_model_without_continuous_latents_is_rejected(numpyro):
    dist = numpyro.distributions

    def counted():
        numpyro.sample("n", dist.Poisson(3.0))

    with pytest.raises(refhmc.errors.ModelError, match="n are discrete"):
        refhmc.from_numpyro(counted)
    with pytest.raises(refhmc.errors.ModelError, match="no latent variables"):
        refhmc.from_numpyro(lambda: None)


@pytest.mark.sweep
def test_the_posterior_is_that_of_numpyro_and_rmhmc_samples_it(numpyro):
    """Means of all variables by NumPyro's NUTS, by refhmc's and by SoftAbs RMHMC: false alarm 3e-5."""
    model = refhmc.from_numpyro(schools(numpyro), SIGMA, y=Y)
    kernel = numpyro.infer.NUTS(schools(numpyro), target_accept_prob=0.99)
    theirs = numpyro.infer.MCMC(kernel, num_warmup=1000, num_samples=1000, num_chains=4, progress_bar=False)
    theirs.run(jax.random.PRNGKey(1), SIGMA, y=Y)
    softabs = refhmc.NUTS(metric=refhmc.metrics.SoftAbs(alpha=10.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = refhmc.sample(
            model, refhmc.NUTS(target_accept=0.99), random_seed=2, progressbar=False, raw=True, generate=False
        )
        riemann = refhmc.sample(
            model, softabs, tune=150, draws=150, random_seed=3, progressbar=False, raw=True, generate=False
        )
    runs = [theirs.get_samples(group_by_chain=True), ours.posterior, riemann.posterior]
    assert_same_means(runs, list(ours.posterior))
