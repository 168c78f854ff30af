"""Posteriors of ODEs compared with SciPy's solver, scipy.stats, derivatives by differences, and a published posterior.

Compiling all functions of a model takes about ten seconds, so that tests which evaluate one are sweeps. The guide has
another model.
"""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import refhmc
from refhmc.errors import GradientError, InitError, ModelError, ShapeError
from refhmc.models import error_laws, priors
from refhmc.numerics import differences
from refhmc.parameters import Positive, Real
from tests.helpers.sweeps import swept

# ------------------------------------------------------------------------- a drug in two compartments, seen as a sum


def rhs(t, x, theta):
    """theta = (absorption, elimination, first, share); x: amounts in the gut and in the blood."""
    return np.array([-theta[0] * x[0], theta[0] * x[0] - theta[1] * x[1]])


def jacobian(t, x, theta, out):
    out[0, 0], out[0, 2] = -theta[0], -x[0]
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = theta[0], -theta[1], x[0], -x[1]


def hessian(t, x, theta, out):
    out[0, 0, 2] = out[0, 2, 0] = -1.0
    out[1, 0, 2] = out[1, 2, 0] = 1.0
    out[1, 1, 3] = out[1, 3, 1] = -1.0


def nothing(t, x, theta, out):
    pass


def dose(t, x, theta):
    """A share of one unit reaches the gut."""
    return np.array([x[0] + theta[5], x[1]])


def dose_jacobian(t, x, theta, out):
    out[0, 0] = out[1, 1] = out[0, 7] = 1.0


def seen(t, x, theta, out):
    """The blood's concentration at a volume theta[4], and the sum of both amounts."""
    out[0] = x[1] / theta[4]
    out[1] = x[0] + x[1]


def seen_jacobian(t, x, theta, out):
    out[0, 1], out[0, 6] = 1 / theta[4], -x[1] / theta[4] ** 2
    out[1, 0] = out[1, 1] = 1.0


def seen_hessian(t, x, theta, out):
    out[0, 1, 6] = out[0, 6, 1] = -1 / theta[4] ** 2
    out[0, 6, 6] = 2 * x[1] / theta[4] ** 3


def seen_third(t, x, theta, out):
    for a, b, c in ((1, 6, 6), (6, 1, 6), (6, 6, 1)):
        out[0, a, b, c] = 2 / theta[4] ** 3
    out[0, 6, 6, 6] = -6 * x[1] / theta[4] ** 4


TIMES = np.array([0.5, 1.0, 2.0, 3.5, 5.0, 8.0])
PARAMETERS = refhmc.Parameters(
    s=Positive(shape=2), ka=Positive(), ke=Positive(), start=Positive(), gut=Real(), volume=Positive(), share=Real()
)
AT = {"s": [0.8, 1.3], "ka": 1.1, "ke": 0.4, "start": 2.0, "gut": 0.1, "volume": 1.5, "share": 1.2}
PRIOR = {
    "s": priors.HalfNormal(1.0),
    "ka": priors.LogNormal(0.0, 0.5),
    "ke": priors.Gamma(2.0, 3.0),
    "start": priors.Normal(2.0, 0.7),
    "gut": priors.StudentT(4, 0.0, 1.0),
    "volume": priors.InverseGamma(3.0, 4.0),
    "share": priors.Flat(),
}
EVENTS = [(1.0, [0.5, 0.0]), (3.0, (dose, dose_jacobian, nothing, nothing))]
LAWS = {
    "normal": (error_laws.Normal("s"), lambda y, m, s: scipy.stats.norm.logpdf(y, m, s)),
    "log-normal": (error_laws.LogNormal("s"), lambda y, m, s: scipy.stats.lognorm.logpdf(y, s, scale=m)),
    "student": (error_laws.StudentT(5, "s"), lambda y, m, s: scipy.stats.t.logpdf(y, 5, m, s)),
    "negative": (error_laws.NegativeBinomial("s"), lambda y, m, s: scipy.stats.nbinom.logpmf(y, s, s / (m + s))),
    "poisson": (error_laws.Poisson(), lambda y, m, s: scipy.stats.poisson.logpmf(y, m)),
}


def observations(counts):
    y = np.array([[0.3, 2.6], [0.7, 2.2], [1.1, 2.5], [0.9, 2.0], [0.5, 1.4], [np.nan, 0.3]])
    return np.where(np.isnan(y), np.nan, np.round(3 * y)) if counts else y


def made(name="normal", **changes):
    law = LAWS[name][0]
    parameters, prior = PARAMETERS, PRIOR
    if law.name == "Poisson":  # which has no s
        kept = {key: support for key, support in PARAMETERS.supports.items() if key != "s"}
        parameters, prior = refhmc.Parameters(**kept), {key: PRIOR[key] for key in kept}
    arguments = {"parameters": parameters, "prior": prior, "errors": law, "times": TIMES, "start_time": 0.0}
    arguments |= {"y": observations(law.support == "counts"), "initial_state": ["gut", 0.3], "events": EVENTS}
    arguments |= {"observe": (seen, seen_jacobian, seen_hessian, seen_third), "tolerance": 1e-11}
    arguments |= {"initial": {key: AT[key] for key in parameters.supports}}
    return refhmc.models.ODE(rhs, jacobian, hessian, nothing, **{**arguments, **changes})


def position(model, shift=0.05):
    return model.initial + shift * np.cos(np.arange(model.dim))


def predicted(values):
    """Return the means (T, 2) by SciPy, from event to event."""
    theta = np.array([values[key] for key in ("ka", "ke", "start", "gut", "volume", "share")])
    x, start, found = np.array([theta[3], 0.3]), 0.0, []
    for stop, added in ((1.0, 0.5), (3.0, theta[5]), (8.0, 0.0)):
        within = TIMES[(start < TIMES) & (stop >= TIMES)]
        path = scipy.integrate.solve_ivp(
            lambda t, x: rhs(t, x, theta),
            (start, stop),
            x,
            "DOP853",
            np.unique([*within, stop]),
            rtol=1e-12,
            atol=1e-13,
        ).y.T
        found += list(path[: len(within)])
        x, start = path[-1] + [added, 0.0], stop
    found = np.array(found)
    return np.column_stack([found[:, 1] / theta[4], found.sum(axis=1)])


def by_hand(name, model, q):
    values = model.constrain(q)
    y, m = model.data.y, predicted(values)
    s = np.broadcast_to(values.get("s", 1.0), y.shape)
    there = ~np.isnan(y)
    likelihood = LAWS[name][1](y[there], m[there], s[there])
    laws = {
        "s": scipy.stats.halfnorm(scale=1.0),
        "ka": scipy.stats.lognorm(0.5),
        "ke": scipy.stats.gamma(2, scale=1 / 3),
        "start": scipy.stats.norm(2, 0.7),
        "gut": scipy.stats.t(4),
        "volume": scipy.stats.invgamma(3, scale=4),
    }
    total = np.sum(likelihood)
    for key, law in laws.items():
        if key in values:
            total += np.sum(law.logpdf(values[key]))
    return total + sum(np.sum(np.log(values[key])) for key in ("s", "ka", "ke", "start", "volume") if key in values)


@pytest.fixture(scope="module")
def models():
    found = {}

    def get(name):
        if name not in found:
            found[name] = made(name)
        return found[name]

    return get


@pytest.mark.sweep
@pytest.mark.parametrize("name", LAWS)
def test_the_density_is_that_of_scipy(name, models):
    model = models(name)
    assert model.runs_as_python is None
    q = position(model)
    other = position(model, -0.08)
    exact = by_hand(name, model, q) - by_hand(name, model, other)
    assert model.log_density(q) - model.log_density(other) == pytest.approx(exact, rel=1e-9, abs=1e-8)
    values = model.constrain(q)
    pointwise = model.generated.log_likelihood(values)["y"]
    assert pointwise.shape == (11,)  # one of twelve is missing
    there, s = ~np.isnan(model.data.y), np.broadcast_to(values.get("s", 1.0), (6, 2))
    expected = LAWS[name][1](model.data.y[there], predicted(values)[there], s[there])
    np.testing.assert_allclose(pointwise, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.sweep
@pytest.mark.parametrize("name", LAWS)
def test_every_derivative_is_that_of_the_one_below(name, models):
    model = models(name)
    q, rng = position(model), np.random.default_rng(1)
    M = rng.standard_normal((model.dim, model.dim))
    M = M + M.T
    gradient, hessian_at, hessian_contraction = model.gradient(q), model.hessian(q), model.hessian_contraction(q, M)
    fishers = [(model.fisher(q), model.fisher_contraction(q, M))] if model.has("fisher") else []
    assert bool(fishers) == (name != "negative")
    for k in range(model.dim):
        e = np.eye(model.dim)[k]
        one = float(differences.ridders(lambda h, e=e: np.array([model.log_density(q + h * e)]), 0.1, 6).value[0])
        assert gradient[k] == pytest.approx(one, rel=1e-6, abs=1e-6)
        two = differences.ridders(lambda h, e=e: model.gradient(q + h * e), 0.1, 6).value
        np.testing.assert_allclose(hessian_at[:, k], two, rtol=1e-6, atol=1e-6 * np.abs(hessian_at).max())
        three = differences.ridders(lambda h, e=e: np.array([np.sum(M * model.hessian(q + h * e))]), 0.1, 6).value
        assert hessian_contraction[k] == pytest.approx(three[0], rel=1e-6, abs=1e-6 * np.abs(hessian_contraction).max())
        for _, slopes in fishers:
            found = differences.ridders(lambda h, e=e: np.array([np.sum(M * model.fisher(q + h * e))]), 0.1, 6).value
            assert slopes[k] == pytest.approx(found[0], rel=1e-6, abs=1e-6 * np.abs(slopes).max())


@pytest.mark.sweep
def test_the_metric_is_the_information_of_new_observations(models):
    """For normal errors: the sum of M M' / s^2, and 2 / s^2 for each observation. The prior covers all but the share."""
    model = models("normal")
    q = position(model)
    values = model.constrain(q)
    there = ~np.isnan(model.data.y)
    s = np.broadcast_to(values["s"], there.shape)
    columns = []
    for k in range(2, model.dim):  # after both log s
        e = np.eye(model.dim)[k]
        found = differences.ridders(lambda h, e=e: predicted(model.constrain(q + h * e)).ravel(), 0.1, 6).value
        columns.append(found.reshape(there.shape)[there] / s[there])
    information = np.array(columns) @ np.array(columns).T
    G = model.fisher(q)
    difference = G[2:, 2:] - information
    assert np.abs(difference - np.diag(np.diag(difference))).max() < 1e-6 * np.abs(G).max()  # independent priors
    assert difference[-1, -1] == pytest.approx(0.0, abs=1e-6)  # flat
    assert difference[2, 2] == pytest.approx((values["start"] / 0.7) ** 2, rel=1e-5)
    np.testing.assert_allclose(np.diag(G)[:2], 2 * there.sum(axis=0) + values["s"] ** 2, rtol=1e-10)
    assert np.linalg.eigvalsh(G).min() > 0


@pytest.mark.sweep
def test_lsoda_compiled_functions_and_copies_agree(models):
    """SciPy's solver instead of the compiled one, and a pickled copy."""
    model = models("normal")
    other, copy, q = made(solver="lsoda"), pickle.loads(pickle.dumps(model)), position(model)
    assert other.runs_as_python == "its ODE is solved by SciPy"
    auto = made(solver="auto")  # the compiled solver, called from Python
    assert auto.runs_as_python == "its ODE may need SciPy's solver"
    assert auto.log_density(q) == pytest.approx(model.log_density(q), rel=1e-12)
    M = np.eye(model.dim)
    for f in ("log_density", "gradient", "hessian", "fisher"):
        np.testing.assert_allclose(getattr(other, f)(q), getattr(model, f)(q), rtol=1e-7, atol=1e-7)
        np.testing.assert_array_equal(getattr(copy, f)(q), getattr(model, f)(q))
    np.testing.assert_allclose(other.hessian_contraction(q, M), model.hessian_contraction(q, M), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(other.fisher_contraction(q, M), model.fisher_contraction(q, M), rtol=1e-6, atol=1e-6)
    assert copy.fingerprint() == model.fingerprint()
    assert other.fingerprint() != model.fingerprint()


@pytest.mark.sweep
def test_groups_of_a_result_and_error_at_a_start(sample):
    """With all values observed: axes by name, and medians of predictive draws (12 z-scores, 1e-6 each)."""
    y = np.abs(observations(False))
    y[-1, 0] = 0.2
    names = ["blood", "sum"]
    model = made(
        y=y,
        events=EVENTS[:1],
        tolerance=1e-8,
        states=names,
        prior={**PRIOR, "share": priors.Normal(0, 1)},
        initial=None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = sample(model, draws=200, tune=200, chains=2, random_seed=3)
        groups = result.to_arviz()
    assert groups["log_likelihood"]["y"].dims == ("chain", "draw", "time", "state")
    assert list(groups["posterior_predictive"]["y"].coords["state"].values) == names
    np.testing.assert_array_equal(groups["observed_data"]["y"].values, y)
    np.testing.assert_array_equal(groups["observed_data"]["y"].coords["time"].values, TIMES)
    assert set(groups["prior"]) == set(PARAMETERS.supports)
    values = model.constrain(model.initial(np.random.default_rng(5)))
    rng, generated = np.random.default_rng(6), model.generated
    drawn = np.array([generated.posterior_predictive(values, rng)["y"] for _ in range(400)])
    loglik = np.array([made_of_normal(values, x, model) for x in drawn])
    assert np.abs(loglik.mean(axis=0)).max() < 4.9 / 20  # standard normal
    with pytest.raises(InitError, match="(?s)log density.*-inf.*1 steps"):
        sample(made(max_steps=1), random_seed=1)


def made_of_normal(values, x, model):
    """Standardize by the means at these values, from the model's own solution."""
    theta = np.array([values[key] for key in ("ka", "ke", "start", "gut", "volume", "share")])
    states = model.solution.solve(theta, 0).states
    return (x - np.column_stack([states[:, 1] / theta[4], states.sum(axis=1)])) / values["s"]


# ------------------------------------------------------------------------------------------- one's own laws, two chains


def laplace(y, m, s, c, out):
    """The derivative is missing at y = m, where no observation is."""
    sign = 1.0 if y > m else -1.0
    out[0] = -np.log(2 * s) - abs(y - m) / s
    out[1], out[2] = sign / s, (abs(y - m) / s - 1) / s
    out[4], out[5] = -sign / s**2, (1 - 2 * abs(y - m) / s) / s**2


def own_log_prior(x):
    return -0.5 * np.sum((x - 1.0) ** 2)


def own_gradient(x):
    return 1.0 - x


def own_hessian(x):
    return -np.eye(len(x))


@pytest.mark.sweep
def test_user_defined_errors_and_prior(sample):
    law = error_laws.ErrorLaw("Laplace", laplace, None, "s")
    model = made(errors=law, prior=priors.Own(own_log_prior, own_gradient, own_hessian), tolerance=1e-8)
    assert not model.has("hessian_contraction")
    assert not model.has("fisher")
    q = position(model)
    for k in range(model.dim):
        e = np.eye(model.dim)[k]
        one = differences.ridders(lambda h, e=e: np.array([model.log_density(q + h * e)]), 0.02, 6).value
        assert model.gradient(q)[k] == pytest.approx(float(one[0]), rel=1e-4, abs=1e-4)
    fisher = made(prior=priors.Own(own_log_prior, own_gradient, own_hessian, lambda x: np.zeros((8, 8, 8))))
    q = position(fisher)
    values = np.concatenate([np.ravel(v) for v in fisher.constrain(q).values()])
    slopes = np.where(np.isin(np.arange(8), (5, 7)), 1.0, values)  # dx/du: gut and share are real
    named = made()
    difference = np.diag(fisher.fisher(q)) - slopes**2  # the information, and the own prior's precision of one
    assert difference[-1] == pytest.approx(named.fisher(q)[-1, -1], rel=1e-6)
    options = {"draws": 20, "tune": 20, "chains": 2, "random_seed": 4}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = [sample(model, cores=cores, **options).draws for cores in (1, 2)]
    np.testing.assert_array_equal(*runs)


# ----------------------------------------------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"parameters": ["ka"]}, ModelError, r"parameters must be .*list"),
        ({"errors": 0.1}, ModelError, "errors must be .*refhmc.models.error_laws.*0.1"),
        ({"errors": error_laws.Normal("sigma")}, ModelError, "errors .*s, ka.*'sigma'"),
        ({"errors": error_laws.Normal([1.0, 2.0, 3.0])}, ShapeError, r"errors: .* must broadcast .* y.*\(3,\)"),
        ({"errors": error_laws.Normal(0.0)}, ValueError, "errors.*Normal must be positive.*0.0"),
        ({"errors": error_laws.Poisson()}, ValueError, "y must be .*integers for Poisson"),
        ({"y": np.zeros((3, 2))}, ShapeError, r"y must have the shape \(6, number of states\).*\(3, 2\)"),
        ({"y": -np.ones((6, 2)), "errors": error_laws.LogNormal("s")}, ValueError, "y must be positive for LogNormal"),
        ({"prior": {"ka": priors.Flat()}}, ModelError, "prior .*s, ke, start, gut, volume, share"),
        ({"prior": {**PRIOR, "kb": priors.Flat()}}, ModelError, "prior .*'kb'"),
        ({"prior": {**PRIOR, "ka": 1.0}}, ModelError, "prior of ka must be .*refhmc.models.priors.*1.0"),
        ({"prior": None}, ModelError, "errors.*prior"),
        (
            {"observe": [0, 1]},
            refhmc.errors.ModelError,
            r"observe must be functions.*got 0.*NaN",
        ),
        (
            {"observe": (seen, seen_jacobian)},
            ModelError,
            r"observe must be .*3 derivatives.*2",
        ),
        swept(
            {"observe": (seen, nothing, nothing, nothing)},
            GradientError,
            r"jacobian of observe",
        ),
        ({"sigma": 1.0}, ModelError, "sigma.*parameters|parameters.*sigma"),
        ({"initial_state": ["gut", "blood"]}, ValueError, "initial_state.*'blood'"),
    ],
)
def test_invalid_arguments_are_rejected(changes, error, words):
    with pytest.raises(error, match=words):
        made(**changes)


def test_errors_and_prior_require_parameters():
    arguments = {"initial_state": [1.0, 1.0], "times": TIMES, "y": np.ones((6, 2))}
    with pytest.raises(ModelError, match=r"errors.*parameters"):
        refhmc.models.ODE(rhs, jacobian, hessian, errors=error_laws.Normal(1.0), **arguments)
    with pytest.raises(ModelError, match="parameters, errors and prior.*hessian, sigma and prior_mean"):
        refhmc.models.ODE(rhs, jacobian, hessian, **arguments)
