"""Models as users of PyMC bring them: the kinds of its example gallery and of forum threads, on real data where there are some.

Each function returns a PyMC model. Its docstring says in one line what it is. ``SOURCE`` names the page of PyMC's example
gallery (www.pymc.io/projects/examples), or of Stan's user's guide, that treats the kind of model; the models are our own. Data
are those of ``refhmc/data`` (``LICENSES.md``) and of Efron and Morris (1975), simulated ones have a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from refhmc.models.datasets import posteriordb

DATA = files("refhmc") / "data"
HITS = [
    18,
    17,
    16,
    15,
    14,
    14,
    13,
    12,
    11,
    11,
    10,
    10,
    10,
    10,
    10,
    9,
    8,
    7,
]  # of 45 at bats, Efron and Morris (1975), table 1
MODELS: dict[str, tuple[Callable[[], pm.Model], str]] = {}


def case(source: str) -> Callable:
    """Register a model with the page that treats its kind."""

    def register(function: Callable[[], pm.Model]) -> Callable[[], pm.Model]:
        MODELS[function.__name__] = function, source
        return function

    return register


def data(name: str) -> dict[str, Any]:
    """Return the data of a posterior of posteriordb that refhmc includes."""
    found = posteriordb(name)["data"]
    return {key: np.array(value, float) if isinstance(value, list) else value for key, value in found.items()}


def radon() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return county, floor, log radon of 919 houses, and log uranium of 85 counties."""
    import json

    found = json.loads((DATA / "radon_mn.json").read_text())
    names = ("county", "floor_measure", "log_radon", "log_uppm")
    county, floor, level, uranium = (np.array(found[name]) for name in names)
    return county.astype(int), floor.astype(float), level, uranium


def disasters() -> np.ndarray:
    """Return the number of coal-mining disasters by year."""
    import json

    return np.array(json.loads((DATA / "coal_mining_disasters.json").read_text())["counts"])


def heart() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the columns of the heart data by name, and seven standardised predictors."""
    header, *_ = (DATA / "heart_statlog.csv").read_text().splitlines()
    values = np.loadtxt(DATA / "heart_statlog.csv", delimiter=",", skiprows=1)
    columns = dict(zip(header.split(","), values.T, strict=True))
    names = ("age", "sex", "rest_bp", "cholesterol", "max_heart_rate", "exercise_angina", "oldpeak")
    X = np.column_stack([columns[name] for name in names])
    return columns, (X - X.mean(axis=0)) / X.std(axis=0)


# ------------------------------------------------------------------------------------------------------------ regressions


@case("GLM: Robust linear regression")
def robust_regression() -> pm.Model:
    """Linear regression with Student-t errors: kidiq, 434 children."""
    kids = data("kidiq-kidscore_interaction")
    z = (kids["mom_iq"] - 100) / 15
    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 90, 30), pm.Normal("beta", 0, 30)
        nu, sigma = pm.Gamma("nu", 2, 0.1), pm.HalfNormal("sigma", 30)
        pm.StudentT("y", nu=nu, mu=alpha + beta * z, sigma=sigma, observed=kids["kid_score"])
    return model


@case("Stan user's guide: linear regression")
def unscaled_interaction() -> pm.Model:
    """Linear regression with an interaction, inputs not centred or scaled, flat priors: kidiq."""
    kids = data("kidiq-kidscore_interaction")
    X = np.column_stack([np.ones(434), kids["mom_hs"], kids["mom_iq"], kids["mom_hs"] * kids["mom_iq"]])
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=4)
        pm.Normal("y", X @ beta, pm.HalfCauchy("sigma", 2.5), observed=kids["kid_score"])
    return model


@case("GLM: logistic regression")
def logistic_regression() -> pm.Model:
    """Logistic regression: heart, 270 patients."""
    columns, X = heart()
    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 2.5), pm.Normal("beta", 0, 1, shape=7)
        pm.Bernoulli("y", logit_p=alpha + X @ beta, observed=columns["y"])
    return model


@case("GLM: ordinal regression")
def ordinal_regression() -> pm.Model:
    """Ordered logistic regression with ordered cut points: number of coloured vessels, heart."""
    columns, X = heart()
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=7)
        cuts = pm.Normal("cuts", 0, 3, shape=3, transform=ordered, initval=np.array([-1.0, 0, 1]))
        pm.OrderedLogistic("y", eta=X @ beta, cutpoints=cuts, observed=columns["n_vessels"].astype(int))
    return model


@case("Stan user's guide: multi-logit regression")
def softmax_regression() -> pm.Model:
    """Softmax regression with one class as reference: kind of chest pain, heart."""
    columns, X = heart()
    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 2.5, shape=3), pm.Normal("beta", 0, 1, shape=(7, 3))
        eta = pt.concatenate([pt.zeros((270, 1)), alpha + X @ beta], axis=1)
        pm.Categorical("y", logit_p=eta, observed=columns["chest_pain"].astype(int) - 1)
    return model


@case("GLM: negative binomial regression")
def negative_binomial() -> pm.Model:
    """Counts with overdispersion and a trend: coal-mining disasters, 112 years."""
    counts = disasters()
    t = np.linspace(-1, 1, len(counts))
    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 2), pm.Normal("beta", 0, 2)
        pm.NegativeBinomial("y", mu=pm.math.exp(alpha + beta * t), alpha=pm.Exponential("phi", 0.1), observed=counts)
    return model


@case("Stan user's guide: zero-inflated models")
def zero_inflated() -> pm.Model:
    """Zero-inflated Poisson counts with a trend: coal-mining disasters."""
    counts = disasters()
    t = np.linspace(-1, 1, len(counts))
    with pm.Model() as model:
        alpha, beta, psi = pm.Normal("alpha", 0, 2), pm.Normal("beta", 0, 2), pm.Beta("psi", 2, 1)
        pm.ZeroInflatedPoisson("y", psi=psi, mu=pm.math.exp(alpha + beta * t), observed=counts)
    return model


@case("Bayesian regression with truncated or censored data")
def censored() -> pm.Model:
    """Regression on right-censored scores: kidiq, scores above 110 known as such only."""
    kids = data("kidiq-kidscore_interaction")
    z, limit = (kids["mom_iq"] - 100) / 15, 110.0
    with pm.Model() as model:
        alpha, beta, sigma = pm.Normal("alpha", 90, 30), pm.Normal("beta", 0, 30), pm.HalfNormal("sigma", 30)
        law = pm.Normal.dist(alpha + beta * z, sigma)
        pm.Censored("y", law, lower=None, upper=limit, observed=np.minimum(kids["kid_score"], limit))
    return model


@case("Bayesian missing data imputation")
def missing_inputs() -> pm.Model:
    """Regression with 43 of 434 inputs missing, which become unknowns: kidiq."""
    kids = data("kidiq-kidscore_interaction")
    z = (kids["mom_iq"] - 100) / 15
    hidden = np.random.default_rng(1).uniform(size=len(z)) < 0.1
    with pm.Model() as model:
        mean, spread = pm.Normal("mean", 0, 1), pm.HalfNormal("spread", 2)
        known = pm.Normal("z_known", mean, spread, observed=z[~hidden])
        unknown = pm.Normal("z_unknown", mean, spread, shape=int(hidden.sum()))
        inputs = pt.set_subtensor(pt.set_subtensor(pt.zeros(len(z))[~hidden], known)[hidden], unknown)
        alpha, beta = pm.Normal("alpha", 90, 30), pm.Normal("beta", 0, 30)
        pm.Normal("y", alpha + beta * inputs, pm.HalfNormal("sigma", 30), observed=kids["kid_score"])
    return model


@case("Regularised horseshoe; Stan forum")
def regularised_horseshoe() -> pm.Model:
    """Logistic regression on 35 inputs and products with the regularised horseshoe of Piironen and Vehtari: heart."""
    columns, X = heart()
    pairs = [(i, j) for i in range(7) for j in range(i, 7) if (i, j) not in ((1, 1), (5, 5))]
    products = np.column_stack([X[:, i] * X[:, j] for i, j in pairs])
    Z = np.column_stack([X, (products - products.mean(axis=0)) / products.std(axis=0)])
    scale = 3 / (Z.shape[1] - 3) * 2 / np.sqrt(len(Z))
    with pm.Model() as model:
        tau, lam = pm.HalfCauchy("tau", scale), pm.HalfCauchy("lam", 1, shape=Z.shape[1])
        c2, z = pm.InverseGamma("c2", 2, 8), pm.Normal("z", 0, 1, shape=Z.shape[1])
        beta = pm.Deterministic("beta", z * tau * lam * pt.sqrt(c2 / (c2 + tau**2 * lam**2)))
        pm.Bernoulli("y", logit_p=pm.Normal("alpha", 0, 2.5) + Z @ beta, observed=columns["y"])
    return model


# ------------------------------------------------------------------------------------------------------ hierarchical models


@case("Diagnosing biased inference with divergences")
def eight_schools_centred() -> pm.Model:
    """Eight schools, centred: divergences with other libraries' defaults."""
    schools = data("eight_schools-eight_schools_noncentered")
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        pm.Normal("y", pm.Normal("theta", mu, tau, shape=8), schools["sigma"], observed=schools["y"])
    return model


@case("Hierarchical partial pooling")
def batting_averages() -> pm.Model:
    """Beta-binomial batting averages with a Pareto prior: 18 players, Efron and Morris (1975)."""
    with pm.Model() as model:
        phi, log_kappa = pm.Uniform("phi", 0, 1), pm.Exponential("log_kappa", 1.5)
        kappa = pt.exp(log_kappa)
        theta = pm.Beta("theta", phi * kappa, (1 - phi) * kappa, shape=len(HITS))
        pm.Binomial("y", 45, theta, observed=HITS)
    return model


@case("A primer on Bayesian methods for multilevel modeling")
def radon_intercepts() -> pm.Model:
    """Varying intercepts with a predictor by county, centred: radon, 919 houses in 85 counties."""
    county, floor, level, uranium = radon()
    with pm.Model() as model:
        gamma, tau = pm.Normal("gamma", 0, 2, shape=2), pm.HalfNormal("tau", 1)
        alpha = pm.Normal("alpha", gamma[0] + gamma[1] * uranium, tau, shape=85)
        beta, sigma = pm.Normal("beta", 0, 2), pm.HalfNormal("sigma", 1)
        pm.Normal("y", alpha[county] + beta * floor, sigma, observed=level)
    return model


@case("A primer on Bayesian methods for multilevel modeling")
def radon_correlated() -> pm.Model:
    """Correlated varying intercepts and slopes with an LKJ prior, non-centred: radon."""
    county, floor, level, _ = radon()
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
        mu, z = pm.Normal("mu", 0, 2, shape=2), pm.Normal("z", 0, 1, shape=(85, 2))
        effects = mu + z @ chol.T
        line = effects[county, 0] + effects[county, 1] * floor
        pm.Normal("y", line, pm.Exponential("sigma", 1), observed=level)
    return model


@case("LKJ Cholesky covariance priors for multivariate normal models")
def covariance() -> pm.Model:
    """Multivariate normal with an LKJ prior: four measurements of 270 patients, heart."""
    columns, _ = heart()
    Y = np.column_stack([columns[name] for name in ("age", "rest_bp", "cholesterol", "max_heart_rate")])
    Y = (Y - Y.mean(axis=0)) / Y.std(axis=0)
    with pm.Model() as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=4, eta=2, sd_dist=pm.Exponential.dist(1, shape=4))
        pm.MvNormal("y", pm.Normal("mu", 0, 1, shape=4), chol=chol, observed=Y)
    return model


@case("Stan user's guide: item-response theory models")
def item_response() -> pm.Model:
    """Two-parameter logistic item response, 100 persons and 20 items, simulated."""
    rng = np.random.default_rng(2)
    ability, difficulty, slope = rng.normal(size=100), rng.normal(size=20), np.exp(0.3 * rng.normal(size=20))
    y = rng.uniform(size=(100, 20)) < 1 / (1 + np.exp(-slope * (ability[:, None] - difficulty)))
    with pm.Model() as model:
        theta, b = pm.Normal("theta", 0, 1, shape=(100, 1)), pm.Normal("b", 0, 2, shape=20)
        pm.Bernoulli("y", logit_p=pm.LogNormal("a", 0, 0.5, shape=20) * (theta - b), observed=y.astype(int))
    return model


@case("Bayesian estimation supersedes the t-test")
def two_groups() -> pm.Model:
    """Two groups with means, spreads and common tails of their own: kidiq, by the mother's school."""
    kids = data("kidiq-kidscore_interaction")
    group = kids["mom_hs"].astype(int)
    with pm.Model() as model:
        mean, spread = pm.Normal("mean", 90, 40, shape=2), pm.Uniform("spread", 1, 60, shape=2)
        nu = pm.Exponential("nu_less_one", 1 / 29) + 1
        pm.StudentT("y", nu=nu, mu=mean[group], sigma=spread[group], observed=kids["kid_score"])
        pm.Deterministic("difference", mean[1] - mean[0])
    return model


@case("Stan user's guide: Dirichlet priors")
def shares() -> pm.Model:
    """Shares of four kinds of chest pain, by sex, with a common Dirichlet prior: heart."""
    columns, _ = heart()
    counts = np.array(
        [[np.sum((columns["chest_pain"] == k) & (columns["sex"] == s)) for k in range(1, 5)] for s in (0, 1)]
    )
    with pm.Model() as model:
        base, size = pm.Dirichlet("base", np.ones(4)), pm.Exponential("size", 0.1)
        p = pm.Dirichlet("p", base * size + 1e-3, shape=(2, 4))
        pm.Multinomial("y", counts.sum(axis=1), p, observed=counts)
    return model


# ------------------------------------------------------------------------------------------- mixtures, series, processes


@case("Marginalized Gaussian mixture model")
def ordered_mixture() -> pm.Model:
    """Mixture of two normals with ordered means: posteriordb's low_dim_gauss_mix, 1,000 values."""
    y = data("low_dim_gauss_mix-low_dim_gauss_mix")["y"]
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2, shape=2, transform=ordered, initval=np.array([-1.0, 1.0]))
        pm.NormalMixture("y", pm.Dirichlet("w", np.full(2, 5.0)), mu, pm.HalfNormal("sigma", 2, shape=2), observed=y)
    return model


@case("Stan user's guide: change point models")
def change_point() -> pm.Model:
    """Two rates with the year of the change summed out: coal-mining disasters."""
    counts = disasters()
    before = np.concatenate([[0], np.cumsum(counts)[:-1]])  # of the years before a change in each year
    years = np.arange(len(counts))
    with pm.Model() as model:
        early, late = pm.Exponential("early", 1), pm.Exponential("late", 1)
        first = before * pt.log(early) - years * early
        second = (counts.sum() - before) * pt.log(late) - (len(counts) - years) * late
        pm.Potential("y", pm.math.logsumexp(first + second))
    return model


@case("Gaussian random walk")
def random_walk() -> pm.Model:
    """Poisson counts with a random walk of the log rate: coal-mining disasters."""
    counts = disasters()
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 0.5)
        log_rate = pm.GaussianRandomWalk("log_rate", sigma=sd, init_dist=pm.Normal.dist(0, 2), shape=len(counts))
        pm.Poisson("y", pt.exp(log_rate), observed=counts)
    return model


@case("Analysis of an AR(1) model")
def autoregression() -> pm.Model:
    """Autoregression of order 5: posteriordb's arK, 200 values."""
    y = data("arK-arK")["y"]
    lags = np.column_stack([y[5 - k - 1 : len(y) - k - 1] for k in range(5)])
    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 10), pm.Normal("beta", 0, 10, shape=5)
        pm.Normal("y", alpha + lags @ beta, pm.HalfCauchy("sigma", 2.5), observed=y[5:])
    return model


@case("Stochastic volatility model")
def stochastic_volatility() -> pm.Model:
    """Random walk of the log volatility and Student-t returns: the 200 returns of posteriordb's garch."""
    y = data("garch-garch11")["y"]
    with pm.Model() as model:
        step, nu = pm.Exponential("step", 10), pm.Exponential("nu", 0.1)
        volatility = pm.GaussianRandomWalk("volatility", sigma=step, init_dist=pm.Normal.dist(0, 2), shape=len(y))
        pm.StudentT("y", nu=nu, mu=0, sigma=pt.exp(volatility), observed=y)
    return model


@case("Marginal likelihood implementation of Gaussian processes")
def gaussian_process() -> pm.Model:
    """Gaussian process with length scale, amplitude and noise unknown: posteriordb's gp_regr, 11 points."""
    points = data("gp_pois_regr-gp_regr")
    with pm.Model() as model:
        rho, amplitude = pm.Gamma("rho", 25, 4), pm.HalfNormal("amplitude", 2)
        process = pm.gp.Marginal(cov_func=amplitude**2 * pm.gp.cov.ExpQuad(1, rho))
        process.marginal_likelihood("y", points["x"][:, None], points["y"], sigma=pm.HalfNormal("sigma", 1))
    return model
