"""Parents of the variables of PyMC models, compared with derivatives of the log densities; skipped without PyMC."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import refhmc
from refhmc.core.hierarchy import blocks_of, coordinates_of, variable_of
from refhmc.derived.from_pymc import parents_in

pm = pytest.importorskip("pymc", reason="PyMC is not installed (extra pymc)")
pytensor = pytest.importorskip("pytensor")
pt = pytensor.tensor

Y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
COUNTY, FLOOR = np.array([0, 0, 1, 2, 2, 2]), np.array([0.0, 1, 0, 1, 1, 0])


def centred_schools():
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
    theta = pm.Normal("theta", mu, tau, shape=8)
    pm.Normal("y", theta, SIGMA, observed=Y)


def non_centred_schools():
    mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
    theta = pm.Deterministic("theta", mu + tau * pm.Normal("theta_raw", shape=8))
    pm.Normal("y", theta, SIGMA, observed=Y)


def radon():
    mean, spread = pm.Normal("mean", shape=2), pm.Exponential("spread", 1, shape=2)
    centre = pm.Deterministic("centre", mean[0] + 1)
    level = pm.Normal("level", centre, spread[0], shape=3)
    slope = pm.Normal("slope", mean[1], spread[1], shape=3)
    noise = pm.HalfNormal("noise")
    pm.Normal("y", level[COUNTY] + slope[COUNTY] * FLOOR, noise, observed=np.arange(6.0))


def horseshoe():
    noise = pm.HalfNormal("noise")
    tau = pm.HalfCauchy("tau", noise / 10)
    scale = pm.HalfCauchy("lambda", 1, shape=4)
    beta = pm.Normal("beta", 0, tau * scale, shape=4)
    pm.Normal("y", pt.dot(np.eye(4), beta), noise, observed=np.arange(4.0))


def chain():
    spread = pm.HalfNormal("spread")
    x = [pm.Normal("x_0", 0, 1)]
    for t in range(1, 4):
        x.append(pm.Normal(f"x_{t}", 0.9 * x[-1], spread))
    pm.Normal("y", pt.stack(x), 1, observed=np.arange(4.0))


def chain_in_one_variable():
    spread = pm.HalfNormal("spread")
    x = [pm.Normal("x[0]", 0, 1)]
    for t in range(1, 4):
        x.append(pm.Normal(f"x[{t}]", 0.9 * x[-1], spread))


def autoregression():
    rho, spread = pm.Uniform("rho", -1, 1), pm.HalfNormal("spread")
    pm.AR("x", rho, sigma=spread, init_dist=pm.Normal.dist(0, 1), steps=5)


def scan():
    spread, start = pm.HalfNormal("spread"), pm.Normal("start")

    def walk(start, spread, size):
        def step(before, spread):
            after = pm.Normal.dist(before, spread)
            return after, pm.pytensorf.collect_default_updates([after])

        return pytensor.scan(step, outputs_info=[start], non_sequences=[spread], n_steps=4, strict=True)[0]

    pm.CustomDist("x", start, spread, dist=walk)


def flat():
    mu, noise = pm.Normal("mu", shape=2), pm.HalfNormal("noise")
    pm.Normal("y", mu, noise, observed=[0.1, 0.5])


def bounds():
    lower = pm.Normal("lower")
    top = pm.TruncatedNormal("top", 0, 1, lower=lower, upper=5)
    pm.Truncated("between", pm.Normal.dist(0, 1), lower=lower, upper=top)


def shapes():
    x = pm.Normal("x", shape=3)
    pm.Normal("z", shape=x.shape[0])


def missing():
    mu = pm.Normal("mu")
    pm.Normal("y", mu, 1, observed=np.ma.masked_invalid([0.1, np.nan, 0.3]))


def lagged():
    noise, mu = pm.HalfNormal("noise"), pm.Normal("mu")
    y = pm.Normal("y", mu, 1, observed=0.3)
    pm.Normal("after", y, noise)


def potential():
    x, tau = pm.Normal("x", shape=2), pm.HalfNormal("tau")
    pm.Potential("smooth", -((x[0] - x[1]) ** 2) / tau)


def correlated():
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1))
    pm.MvNormal("x", np.zeros(2), chol=chol)


def empty():
    nothing = pm.Normal("nothing", shape=0)
    pm.Normal("x", pm.Normal("mu", nothing.sum()), 1)


def interleaved():
    first = pm.Normal("a[0]")
    pm.Normal("a[1]", pm.Normal("b[0]", first))


CASES = {
    centred_schools: {"mu": (), "tau_log__": (), "theta": ("mu", "tau_log__")},
    non_centred_schools: {"mu": (), "tau_log__": (), "theta_raw": ()},
    radon: {
        "mean": (),
        "spread_log__": (),
        "level": ("mean", "spread_log__"),
        "slope": ("mean", "spread_log__"),
        "noise_log__": (),
    },
    horseshoe: {
        "noise_log__": (),
        "tau_log__": ("noise_log__",),
        "lambda_log__": (),
        "beta": ("tau_log__", "lambda_log__"),
    },
    chain: {
        "spread_log__": (),
        "x_0": (),
        "x_1": ("spread_log__", "x_0"),
        "x_2": ("spread_log__", "x_1"),
        "x_3": ("spread_log__", "x_2"),
    },
    chain_in_one_variable: {"spread_log__": (), "x": ("spread_log__",)},
    autoregression: {"rho_interval__": (), "spread_log__": (), "x": ("rho_interval__", "spread_log__")},
    scan: {"spread_log__": (), "start": (), "x": ("spread_log__", "start")},
    flat: {"mu": (), "noise_log__": ()},
    bounds: {"lower": (), "top_interval__": ("lower",), "between_interval__": ("lower", "top_interval__")},
    shapes: {"x": (), "z": ()},
    missing: {"mu": (), "y_unobserved": ("mu",)},
    lagged: {"noise_log__": (), "mu": (), "after": ("noise_log__",)},
    potential: {"x": (), "tau_log__": ()},
    empty: {"mu": (), "x": ("mu",)},
    correlated: {"chol_cholesky-cov-packed__": (), "x": ("chol_cholesky-cov-packed__",)},
}


def made(write):
    with pm.Model() as model:
        write()
    return model


def coordinates(model):
    """Return the names of values with entries; indices do not matter here."""
    return [name for name, value in model.initial_point().items() if np.size(value) > 0]


def parents_by_derivatives(model):
    """Find the values of which the log density of each free variable has a derivative, at a random point."""
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    rng = np.random.default_rng(1)
    point = {
        name: np.asarray(start) + rng.uniform(0.1, 0.5, np.shape(start))
        for name, start in model.initial_point().items()
    }
    found = {}
    for value, term in zip(values, model.logp(vars=model.free_RVs, sum=False), strict=True):
        slopes = pytensor.grad(term.sum(), values, disconnected_inputs="ignore", return_disconnected="zero")
        numbers = pytensor.function(values, slopes, mode="FAST_COMPILE", on_unused_input="ignore")(**point)
        own = variable_of(value.name)
        named = [variable_of(each.name) for each, slope in zip(values, numbers, strict=True) if np.any(slope != 0)]
        found.setdefault(own, []).extend(each for each in named if each != own)
    kept = {variable_of(name) for name in coordinates(model)}
    return {name: tuple(dict.fromkeys(each)) for name, each in found.items() if name in kept}


@pytest.mark.filterwarnings("ignore:Scan return signature:DeprecationWarning", "ignore:Data in y contains missing")
@pytest.mark.parametrize("write", CASES, ids=lambda write: write.__name__)
def test_parents_are_those_in_the_graph(write):
    model = made(write)
    assert parents_in(model, coordinates(model)) == CASES[write]
    assert parents_by_derivatives(model) == CASES[write]


def test_variables_that_form_a_cycle_have_no_known_parents():
    """The entries a[0] -> b[0] -> a[1] have an order, but their variables a and b do not."""
    model = made(interleaved)
    assert parents_in(model, coordinates(model)) is None


def test_models_state_their_parents():
    model = refhmc.from_pymc(made(centred_schools))
    assert model.parents == CASES[centred_schools]
    assert blocks_of(model) == [["mu", "tau_log__"], ["theta"]]
    assert coordinates_of(model, "tau") == coordinates_of(model, "tau_log__") == [1]
    again = pytest.importorskip("cloudpickle").dumps(model)
    assert pickle.loads(again).parents == model.parents
    assert pickle.loads(again).fingerprint() == model.fingerprint()
