"""Parents of the sites of NumPyro models, compared with derivatives of their log densities; skipped without NumPyro."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.core.hierarchy import blocks_of, coordinates_of, variable_of

jax = pytest.importorskip("jax", reason="JAX is not installed (extra jax)")
numpyro = pytest.importorskip("numpyro", reason="NumPyro is not installed (extra jax)")
control_flow = pytest.importorskip("numpyro.contrib.control_flow")
jnp = jax.numpy
dist = numpyro.distributions

Y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
SIGMA = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
COUNTY, FLOOR = np.array([0, 0, 1, 2, 2, 2]), np.array([0.0, 1, 0, 1, 1, 0])


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def sample(name, law, **options):
    return numpyro.sample(name, law, **options)


def centred_schools():
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        theta = sample("theta", dist.Normal(mu, tau))
        sample("y", dist.Normal(theta, SIGMA), obs=Y)


def non_centred_schools():
    mu, tau = sample("mu", dist.Normal(0, 5)), sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        theta = numpyro.deterministic("theta", mu + tau * sample("theta_raw", dist.Normal(0, 1)))
        sample("y", dist.Normal(theta, SIGMA), obs=Y)


def reparametrised(centred):
    rule = numpyro.infer.reparam.LocScaleReparam(centred)
    return numpyro.handlers.reparam(centred_schools, config={"theta": rule})


def radon():
    mean = sample("mean", dist.Normal(0, 1).expand([2]).to_event(1))
    spread = sample("spread", dist.Exponential(1).expand([2]).to_event(1))
    centre = numpyro.deterministic("centre", mean[0] + 1)
    with numpyro.plate("county", 3):
        level = sample("level", dist.Normal(centre, spread[0]))
        slope = sample("slope", dist.Normal(mean[1], spread[1]))
    noise = sample("noise", dist.HalfNormal(1))
    sample("y", dist.Normal(level[COUNTY] + slope[COUNTY] * FLOOR, noise), obs=np.arange(6.0))


def horseshoe():
    noise = sample("noise", dist.HalfNormal(1))
    tau = sample("tau", dist.HalfCauchy(noise / 10))
    scale = sample("lambda", dist.HalfCauchy(1).expand([4]))
    beta = sample("beta", dist.Normal(0, tau * scale))
    sample("y", dist.Normal(beta, noise), obs=np.arange(4.0))


def chain():
    spread, x = sample("spread", dist.HalfNormal(1)), [sample("x_0", dist.Normal(0, 1))]
    for t in range(1, 4):
        x.append(sample(f"x_{t}", dist.Normal(0.9 * x[-1], spread)))
    sample("y", dist.Normal(jnp.stack(x), 1), obs=np.arange(4.0))


def scan():
    spread, start = sample("spread", dist.HalfNormal(1)), sample("start", dist.Normal(0, 1))

    def step(before, y):
        x = sample("x", dist.Normal(0.9 * before, spread))
        sample("y", dist.Normal(x, 1), obs=y)
        return x, None

    control_flow.scan(step, start, np.arange(4.0))


def flat():
    with numpyro.plate("row", 2):
        mu = sample("mu", dist.Normal(0, 1))
        sample("y", dist.Normal(mu, sample("noise", dist.HalfNormal(1))), obs=np.array([0.1, 0.5]))


def factor():
    x, tau = sample("x", dist.Normal(0, 1).expand([2])), sample("tau", dist.HalfNormal(1))
    numpyro.factor("smooth", -((x[0] - x[1]) ** 2) / tau)
    sample("z", dist.Normal(x, tau).to_event(1))


def transformed():
    lower = sample("lower", dist.Normal(0, 1))
    law = dist.TransformedDistribution(dist.Normal(0, 1), dist.transforms.AffineTransform(lower, 2.0))
    top = sample("top", law)
    sample("between", dist.TruncatedNormal(0, 1, low=lower, high=lower + 3.0 + top**2))


def scoped():
    x = numpyro.handlers.scope(lambda: sample("x", dist.Normal(0, 1)), "arm")()
    sample("z", dist.Normal(x, 1))


CASES = {
    "centred schools": (centred_schools, {"mu": (), "tau": (), "theta": ("mu", "tau")}),
    "non-centred schools": (non_centred_schools, {"mu": (), "tau": (), "theta_raw": ()}),
    "reparametrised": (reparametrised(0.0), {"mu": (), "tau": (), "theta_decentered": ()}),
    "half centred": (reparametrised(0.5), {"mu": (), "tau": (), "theta_decentered": ("mu", "tau")}),
    "radon": (
        radon,
        {"level": ("mean", "spread"), "mean": (), "noise": (), "slope": ("mean", "spread"), "spread": ()},
    ),
    "horseshoe": (horseshoe, {"beta": ("lambda", "tau"), "lambda": (), "noise": (), "tau": ("noise",)}),
    "chain": (
        chain,
        {"spread": (), "x_0": (), "x_1": ("spread", "x_0"), "x_2": ("spread", "x_1"), "x_3": ("spread", "x_2")},
    ),
    "scan": (scan, {"spread": (), "start": (), "x": ("spread", "start")}),
    "flat": (flat, {"mu": (), "noise": ()}),
    "factor": (factor, {"tau": (), "x": (), "z": ("tau", "x")}),
    "transformed": (transformed, {"between": ("lower", "top"), "lower": (), "top": ("lower",)}),
    "scope": (scoped, {"arm.x": (), "z": ("arm.x",)}),
}


def parents_by_derivatives(model):
    """Find the sites of which the log density of each latent site has a derivative, at a random point."""
    trace = numpyro.handlers.trace(numpyro.handlers.seed(model, 1)).get_trace()
    sites = {n: s for n, s in trace.items() if s["type"] == "sample" and not s["is_observed"]}
    point = {n: jnp.asarray(site["value"]) for n, site in sites.items()}

    def terms(values):
        found = numpyro.handlers.trace(numpyro.handlers.seed(numpyro.handlers.substitute(model, values), 1)).get_trace()
        return {n: found[n]["fn"].log_prob(found[n]["value"]).sum() for n in sites}

    slopes = jax.jacrev(terms)(point)
    found = {n: [each for each in sorted(sites) if each != n and np.any(slopes[n][each] != 0)] for n in sorted(sites)}
    return {n.replace("/", "."): tuple(each.replace("/", ".") for each in found[n]) for n in found}


@pytest.mark.parametrize("case", CASES)
def test_parents_are_those_in_the_graph(case):
    model, expected = CASES[case]
    made = refhmc.from_numpyro(model)
    assert made.parents == expected
    assert list(made.parents) == list(dict.fromkeys(map(variable_of, made.names)))
    assert parents_by_derivatives(model) == expected


def test_blocks_and_coordinates_by_name():
    made = refhmc.from_numpyro(centred_schools)
    assert blocks_of(made) == [["mu", "tau"], ["theta"]]
    assert coordinates_of(made, "tau") == [1]
    assert coordinates_of(made, "theta") == list(range(2, 10))


def test_model_that_numpyro_cannot_trace_has_no_known_parents(monkeypatch):
    def fails(*arguments):
        raise NotImplementedError("no provenance")

    monkeypatch.setattr("numpyro.infer.inspect.get_dependencies", fails)
    made = refhmc.from_numpyro(centred_schools)
    assert made.parents is None
    assert np.isfinite(made.log_density(np.zeros(10)))


def test_parents_of_a_density_in_jax():
    made = refhmc.from_jax(lambda q: -0.5 * q @ q, 3, names=["v", "x[0]", "x[1]"], parents={"x": "v"})
    assert made.parents == {"v": (), "x": ("v",)}
    function, arguments = made.__reduce__()
    assert function(*arguments).parents == made.parents
    assert made.fingerprint() != refhmc.from_jax(lambda q: -0.5 * q @ q, 3, names=made.names).fingerprint()
