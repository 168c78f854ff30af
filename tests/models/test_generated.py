"""Generated quantities of the built-in models compared with the distributions of SciPy.

The distribution of the observations and the prior of each model are written independently with SciPy. They give the
pointwise log likelihood. Log likelihood, log prior and log Jacobian add up to the log density of the model, up to a
constant. The probability integral transform of the draws, randomised if they are discrete, is uniform.
"""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest
import scipy.stats as st

import refhmc
from refhmc.models.densities import log_binomial, log_normal, log_poisson
from tests.helpers.sweeps import every, representatives

ALPHA = 1e-6 / 80  # level of each of the 80 random checks below
N = 1500  # draws per check


class Mixture:
    """theta N(mu_1, sigma_1) + (1 - theta) N(mu_2, sigma_2)"""

    def __init__(self, v):
        self.parts = [st.norm(v["mu"][k], v["sigma"][k]) for k in (0, 1)]
        self.theta = v["theta"]

    def logpdf(self, y):
        return np.log(self.theta * self.parts[0].pdf(y) + (1 - self.theta) * self.parts[1].pdf(y))

    def cdf(self, y):
        return self.theta * self.parts[0].cdf(y) + (1 - self.theta) * self.parts[1].cdf(y)


@functools.cache
class Captures:
    """The sum of M binomial numbers that are not zero, by convolution."""

    def __init__(self, M, T, p):
        one = st.binom.pmf(np.arange(T + 1), T, p)
        one[0] = 0
        self.pmf_ = np.ones(1)
        for _ in range(int(M)):
            self.pmf_ = np.convolve(self.pmf_, one / one.sum())

    def logpmf(self, n):
        return np.log(self.pmf_[int(n)])

    def pmf(self, n):
        return self.pmf_[int(n)]

    def cdf(self, n):
        return self.pmf_[: int(n) + 1].sum()


def garch_sd(v, y, sigma1):
    h = [sigma1**2]
    for before in y[:-1]:
        h.append(v["alpha0"] + v["alpha1"] * (before - v["mu"]) ** 2 + v["beta1"] * h[-1])
    return np.sqrt(h)


def gp_covariance(v, x):
    return v["alpha"] ** 2 * np.exp(-((x[:, None] - x) ** 2) / (2 * v["rho"] ** 2)) + v["sigma"] * np.eye(len(x))


def seen_again(v):
    """Return the probabilities from that of never being seen after occasion i, as in the notes."""
    p, phi = v["p"], v["phi"]
    chi = np.ones(len(p))
    for i in range(len(phi) - 1, -1, -1):
        chi[i] = 1 - phi[i] + phi[i] * (1 - p[i + 1]) * chi[i + 1]
    return 1 - chi


def jolly_seber_law(v, data, drawn):
    again, R = seen_again(v), data["R"]
    marked = [drawn["r"][0]]
    for k in range(1, len(drawn["m"])):
        marked.append(marked[-1] - drawn["m"][k - 1] + drawn["r"][k])
    p = v["p"][1:-1]
    now = p / (p + (1 - p) * again[1:-1])
    return {"u": st.binom(v["U"], v["p"]), "r": st.binom(R, again[:-1]), "m": st.binom(marked, now)}


def jolly_seber_prior(v, u, sigma_B=500.0):
    V = (v["U"] - u)[:-1]
    sd = np.sqrt(sigma_B**2 + v["phi"] * (1 - v["phi"]) * V)
    return -np.log(v["U"][0]) + st.norm.logpdf(v["U"][1:], v["phi"] * V, sd).sum()


def logit_jacobian(p):
    return np.sum(np.log(p * (1 - p)))


def log_width(n):
    return np.sum(np.log(np.log((n + 1) / n)))


def sv_prior(v):
    x, sd = v["x"], v["sigma"]
    of_path = (
        st.norm.logpdf(x[0], 0, sd / np.sqrt(1 - v["phi"] ** 2)) + st.norm.logpdf(x[1:], v["phi"] * x[:-1], sd).sum()
    )
    of_sigma = st.invgamma.logpdf(sd**2, 5, scale=0.25) + np.log(2 * sd)
    return of_path + of_sigma + st.beta.logpdf((v["phi"] + 1) / 2, 20, 1.5) - np.log(v["beta"])


def regression_law(v, data, drawn):
    return {"y": st.norm(data["X"] @ v["beta"], v["sigma"])}


def ar_law(v, data, drawn):
    """Return the distribution of each value given the observed values before it."""
    y = np.concatenate([data["y_before"], data["y"]])
    K = len(v["beta"])
    mean = [v["alpha"] + sum(v["beta"][k] * y[t - 1 - k] for k in range(K)) for t in range(K, len(y))]
    return {"y": st.norm(np.array(mean), v["sigma"])}


def schools_priors(v):
    effects = st.norm(v["mu"][..., None], v["tau"][..., None])
    return [(st.norm(0, 5), v["mu"]), (st.halfcauchy(0, 5), v["tau"]), (effects, v["theta"])]


def intercepts_law(v, data, drawn):
    return {"y": st.norm(v["alpha"][data["group"]] + data["X"] @ v["beta"], v["sigma_y"])}


def intercepts_priors(v):
    effects = st.norm(v["mu"][..., None], v["sigma_alpha"][..., None])
    scales = [(st.halfnorm(), v["sigma_alpha"]), (st.halfnorm(), v["sigma_y"])]
    return [(effects, v["alpha"]), (st.norm(0, 10), v["mu"]), (st.norm(0, 10), v["beta"]), *scales]


def horseshoe_priors(v):
    effects = st.norm(0, v["tau"][..., None] * v["lambda"])
    scales = [(st.halfcauchy(0, 1), v["lambda"]), (st.halfcauchy(0, 1), v["tau"]), (st.halfcauchy(0, 1), v["sigma"])]
    return [(effects, v["beta"]), *scales]


def change_rates(v, data, drawn):
    years = np.arange(1851, 1851 + len(data["y"]))
    return {"y": st.poisson([v["rate"][sum(year >= v["year"])] for year in years])}


# Model; distribution of the observations, given the values, the data and the draws; prior, as pairs of a distribution and
# values, or the log of an improper prior; log Jacobian.
MODELS = {
    "eight schools": (
        refhmc.models.EightSchools,
        lambda v, data, drawn: {"y": st.norm(v["theta"], data["sigma"])},
        schools_priors,
        lambda v: 9 * np.log(v["tau"]),
    ),
    "eight schools, centred": (
        functools.partial(refhmc.models.EightSchools, centered=True),
        lambda v, data, drawn: {"y": st.norm(v["theta"], data["sigma"])},
        schools_priors,
        lambda v: np.log(v["tau"]),
    ),
    "varying intercepts": (
        refhmc.models.VaryingIntercepts,
        intercepts_law,
        intercepts_priors,
        lambda v: 86 * np.log(v["sigma_alpha"]) + np.log(v["sigma_y"]),
    ),
    "varying intercepts, centred": (
        functools.partial(
            refhmc.models.VaryingIntercepts, True, y=[0.3, 1.0, -2.0], group=[0, 1, 1], X=[[0.0], [1.0], [2.0]]
        ),
        intercepts_law,
        intercepts_priors,
        lambda v: np.log(v["sigma_alpha"] * v["sigma_y"]),
    ),
    "horseshoe": (
        functools.partial(refhmc.models.Horseshoe, False, X=[[0.3, 1.0], [1.0, -2.0], [0.5, 0.1]], y=[1.0, 2.0, 0.3]),
        lambda v, data, drawn: {"y": st.norm(data["X"] @ v["beta"], v["sigma"])},
        horseshoe_priors,
        lambda v: 2 * np.log(v["lambda"]).sum() + 3 * np.log(v["tau"]) + np.log(v["sigma"]),
    ),
    "banana": (
        functools.partial(refhmc.models.Banana, np.arange(7.0), sigma_y=3.0),
        lambda v, data, drawn: {"y": st.norm(np.full(7, v["theta"][0] + v["theta"][1] ** 2), 3.0)},
        lambda v: [(st.norm(0, 2), v["theta"])],
        lambda v: 0.0,
    ),
    "logistic": (
        refhmc.models.Heart,
        lambda v, data, drawn: {"y": st.bernoulli(1 / (1 + np.exp(-data["X"] @ v["beta"])))},
        lambda v: [(st.norm(0, 1), v["beta"])],
        lambda v: 0.0,
    ),
    "linear": (
        refhmc.models.LinearRegression,
        regression_law,
        lambda v: st.halfcauchy(0, 2.5).logpdf(v["sigma"]),
        lambda v: np.log(v["sigma"]),
    ),
    "ar": (
        refhmc.models.AR,
        ar_law,
        lambda v: [(st.norm(0, 10), v["alpha"]), (st.norm(0, 10), v["beta"]), (st.halfcauchy(0, 2.5), v["sigma"])],
        lambda v: np.log(v["sigma"]),
    ),
    "garch": (
        refhmc.models.GARCH,
        lambda v, data, drawn: {"y": st.norm(v["mu"], garch_sd(v, data["y"], data["sigma1"]))},
        lambda v: 0.0,
        lambda v: (
            np.log(v["alpha0"] * v["alpha1"] * (1 - v["alpha1"]) ** 2) + logit_jacobian(v["beta1"] / (1 - v["alpha1"]))
        ),
    ),
    "mixture": (
        refhmc.models.GaussianMixture,
        lambda v, data, drawn: {"y": Mixture(v)},
        lambda v: [(st.norm(0, 2), v["mu"]), (st.halfnorm(0, 2), v["sigma"]), (st.beta(5, 5), v["theta"])],
        lambda v: np.log(v["mu"][1] - v["mu"][0]) + np.log(v["sigma"]).sum() + logit_jacobian(v["theta"]),
    ),
    "gaussian process": (
        refhmc.models.GaussianProcessRegression,
        lambda v, data, drawn: {"y": st.multivariate_normal(np.zeros(11), gp_covariance(v, data["x"]))},
        lambda v: [(st.gamma(25, scale=1 / 4), v["rho"]), (st.halfnorm(0, 2), v["alpha"]), (st.halfnorm(), v["sigma"])],
        lambda v: np.log(v["rho"] * v["alpha"] * v["sigma"]),
    ),
    "change point": (
        functools.partial(refhmc.models.ChangePoint, changes=2),
        change_rates,
        lambda v: [(st.gamma(1.0, scale=1.0), v["rate"])],
        lambda v: np.log(v["rate"]).sum(),
    ),
    "stochastic volatility": (
        functools.partial(refhmc.models.StochasticVolatility, T=20),
        lambda v, data, drawn: {"y": st.norm(0, v["beta"] * np.exp(v["x"] / 2))},
        sv_prior,
        lambda v: np.log(v["beta"] * v["sigma"] * (1 - v["phi"] ** 2)),
    ),
    "closed population": (
        refhmc.models.ClosedPopulation,
        lambda v, data, drawn: {
            "distinct": st.binom(v["N"], 1 - (1 - v["p"]) ** 5),
            "captures": Captures(int(drawn["distinct"]), 5, float(v["p"])),
        },
        lambda v: -np.log(v["N"]),
        lambda v: logit_jacobian(v["p"]) - log_width(v["N"]),
    ),
    "jolly-seber": (
        refhmc.models.JollySeber,
        jolly_seber_law,
        lambda v: jolly_seber_prior(v, jolly_seber_data()["u"]),
        lambda v: logit_jacobian(v["p"]) + logit_jacobian(v["phi"]) - log_width(v["U"]),
    ),
}
CONDITIONAL = "gaussian process"  # models whose pointwise log likelihoods are not factors of the likelihood


@functools.cache
def model_of(name):
    return MODELS[name][0]()


def jolly_seber_data():
    return model_of("jolly-seber").generated.observed_data


def data_of(model):
    return {**model.generated.observed_data, **model.generated.constant_data}


def positions(model, n=4):
    """Return positions near the start of the model, with other integers in the discontinuous coordinates."""
    rng = np.random.default_rng(7)
    start = np.zeros(model.dim) if model.initial is None or callable(model.initial) else model.initial
    found = start + rng.normal(0.0, 0.3, (n, model.dim))
    jumping = model.discontinuous
    reach = 8.0 if "year" in model.dims else 0.4
    found[:, jumping] = start[jumping] + rng.uniform(0.0, reach, (n, len(jumping)))
    return found


def log_of(law, y):
    return law.logpmf(y) if hasattr(law, "logpmf") else law.logpdf(y)


@pytest.mark.parametrize("name", every(3, sorted(MODELS)))
def test_pointwise_log_likelihoods_and_the_log_density(name):
    _, law_of, prior_of, jacobian_of = MODELS[name]
    model = model_of(name)
    data, rest = data_of(model), []
    for q in positions(model):
        v = model.constrain(q)
        found, laws = model.generated.log_likelihood(v), law_of(v, data, data)
        assert found.keys() == laws.keys() == model.generated.observed_data.keys()
        total = 0.0
        for each, law in laws.items():
            expected = log_of(law, data[each])
            total += np.sum(expected)
            if name != CONDITIONAL:
                assert np.shape(found[each]) == np.shape(data[each])
                assert found[each] == pytest.approx(expected, rel=1e-9, abs=1e-10)
        prior = prior_of(v)
        prior = sum(np.sum(law.logpdf(value)) for law, value in prior) if isinstance(prior, list) else prior
        density = model.log_density(q)
        assert np.isfinite(density)
        rest.append(total + prior + jacobian_of(v) - density)
    assert np.ptp(rest) <= 1e-10 * max(1.0, abs(density))


def test_gaussian_process_log_likelihood_is_leave_one_out():
    model = model_of(CONDITIONAL)
    x, y = (data_of(model)[name] for name in "xy")
    for q in positions(model):
        v = model.constrain(q)
        K = gp_covariance(v, x)
        joint = st.multivariate_normal(np.zeros(11), K).logpdf(y)
        for i, found in enumerate(model.generated.log_likelihood(v)["y"]):
            others = np.delete(np.arange(11), i)
            without = st.multivariate_normal(np.zeros(10), K[np.ix_(others, others)]).logpdf(y[others])
            assert found == pytest.approx(joint - without, rel=1e-8)


def uniform_of(law, y, u):
    """Return the probability integral transform, randomised by the uniform u for discrete distributions."""
    below = law.cdf(y)
    return below - u * law.pmf(y) if hasattr(law, "pmf") else below


@pytest.mark.parametrize("name", representatives(sorted(MODELS), ["ar", "linear"]))
def test_predictive_draws_have_the_right_distribution(name):
    """Kolmogorov-Smirnov, 16 checks at ALPHA."""
    law_of, model = MODELS[name][1], model_of(name)
    rng, data = np.random.default_rng(11), data_of(model)
    v = model.constrain(positions(model, 1)[0])
    sizes = [np.size(value) for value in model.generated.observed_data.values()]
    transformed = {each: [] for each in model.generated.observed_data}
    for _ in range(max(N // max(sizes), N // 10)):
        drawn = model.generated.posterior_predictive(v, rng)
        assert drawn.keys() == transformed.keys()
        for each, law in law_of(v, data, drawn).items():
            if name == CONDITIONAL:  # L^-1 y, which is standard normal
                z = np.linalg.solve(np.linalg.cholesky(law.cov), drawn[each])
                transformed[each].append(st.norm.cdf(z))
            else:
                transformed[each].append(np.atleast_1d(uniform_of(law, drawn[each], rng.random(np.shape(drawn[each])))))
    for each, values in transformed.items():
        assert st.kstest(np.concatenate(values), "uniform").pvalue > ALPHA, each


@pytest.mark.parametrize("name", [name for name in sorted(MODELS) if model_of(name).generated.prior is not None])
def test_prior_draws_have_the_right_distribution(name):
    """Kolmogorov-Smirnov for each variable, 20 checks at ALPHA; the year of the change by frequencies."""
    prior_of, model = MODELS[name][2], model_of(name)
    rng, there = np.random.default_rng(12), model.constrain(positions(model, 1)[0])
    draws = [model.generated.prior(rng) for _ in range(3 * N)]
    assert {each: np.shape(value) for each, value in draws[0].items()} == {k: np.shape(x) for k, x in there.items()}
    for law, values in prior_of({each: np.stack([v[each] for v in draws]) for each in there}):
        assert st.kstest(np.ravel(law.cdf(values)), "uniform").pvalue > ALPHA
    if "year" in there:  # two of the 111 years after the first
        years = np.concatenate([v["year"] for v in draws])
        assert all(np.diff(v["year"]) > 0 for v in draws)
        assert st.chisquare(np.bincount(years - 1852, minlength=111)).pvalue > ALPHA


@pytest.mark.parametrize("name", sorted(MODELS))
def test_functions_of_many_draws_agree_with_those_of_one(name):
    """All functions of draws accept many; those with one call of the generator give the same random numbers, too."""
    model = model_of(name)
    q = positions(model)
    together = model.generated.log_likelihood(model.constrain(q))
    drawn = model.generated.posterior_predictive(model.constrain(q), np.random.default_rng(1))
    for i, row in enumerate(q):
        for each, value in model.generated.log_likelihood(model.constrain(row)).items():
            assert together[each][i] == pytest.approx(value, rel=1e-9, abs=1e-9)
            assert drawn[each].shape == (len(q), *np.shape(value))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "eight schools" else pytest.mark.sweep) for name in sorted(MODELS)],
)
def test_result_has_all_groups_with_names(name):
    model = pickle.loads(pickle.dumps(model_of(name)))
    run = {"draws": 30, "tune": 30, "chains": 1, "random_seed": 1, "progressbar": False, "preflight": False}
    raw = refhmc.sample(model, raw=True, **run)
    groups = set(model.generated.made) | set(model.generated.data)
    assert groups <= set(raw.groups)
    tree = raw.to_arviz()
    for group in groups | {"posterior"}:
        for each, value in raw.groups[group].items():
            lead = 0 if group in model.generated.data else 2
            named = model.dims.get(each, ())[: np.ndim(value) - lead]
            assert tree[group][each].dims[lead:] == named or each not in model.dims
            assert np.isfinite(value).all() or group == "prior_predictive"


def test_names_of_schools_years_and_inputs():
    assert model_of("eight schools").coords["school"].tolist()[:3] == ["Choate", "Deerfield", "Phillips Andover"]
    assert model_of("change point").coords["year"].tolist() == list(range(1851, 1963))
    assert model_of("logistic").coords["input"].tolist()[:3] == refhmc.datasets.heart().names[:3]
    assert model_of("linear").coords["coefficient"].tolist()[3] == "mom_hs:mom_iq"
    assert model_of("ar").coords["lag"].tolist() == [1, 2, 3, 4, 5]
    assert refhmc.models.EightSchools(y=[1.0, 2.0], sigma=[1.0, 1.0]).coords == {}


def test_densities():
    y, mean, sd = np.linspace(-40, 40, 9), np.linspace(-1, 1, 9), np.geomspace(1e-3, 1e3, 9)
    assert log_normal(y, mean, sd) == pytest.approx(st.norm.logpdf(y, mean, sd), rel=1e-13)
    counts, rates = np.array([0, 1, 3, 50, 0]), np.array([1e-3, 2.0, 3.0, 40.0, 0.0])
    assert log_poisson(counts, rates) == pytest.approx(st.poisson.logpmf(counts, rates), rel=1e-12, abs=1e-14)
    n, k, p = np.array([5, 5, 5, 3000, 0]), np.array([0, 5, 2, 70, 0]), np.array([0.0, 1.0, 0.3, 0.02, 0.5])
    assert log_binomial(k, n, p) == pytest.approx(st.binom.logpmf(k, n, p), rel=1e-10, abs=1e-12)
