"""Distributions of observations and priors: values compared with scipy.stats, derivatives with extrapolated differences.

The Fisher information is compared with sums and integrals of minus the second derivatives. The probability that any test of
the draws in this file fails by chance is below 1e-4 (distribution functions, Kolmogorov-Smirnov or chi-square).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from refhmc.models import error_laws, priors
from refhmc.models.error_laws import DERIVATIVES, INFORMATION
from refhmc.numerics import differences
from tests.helpers.sweeps import representatives

LAWS = {
    "normal": (error_laws.Normal(0.7), lambda m, s: scipy.stats.norm(m, s), [0.3, 2.0, -1.5]),
    "log-normal": (error_laws.LogNormal(0.7), lambda m, s: scipy.stats.lognorm(s, scale=m), [0.3, 2.0, 40.0]),
    "student": (error_laws.StudentT(3.5, 0.7), lambda m, s: scipy.stats.t(3.5, m, s), [0.3, 9.0, -1.5]),
    "poisson": (error_laws.Poisson(), lambda m, s: scipy.stats.poisson(m), [0.0, 3.0, 17.0]),
    "negative": (
        error_laws.NegativeBinomial(2.5),
        lambda m, s: scipy.stats.nbinom(s, s / (m + s)),
        [0.0, 3.0, 170.0],
    ),
}
PLACES = [(1.7, 0.6), (0.4, 3.0), (25.0, 8.0)]


def numbers(function, *arguments, count=10):
    out = np.zeros(count)
    function(*arguments, out)
    return out


def slope(f, at):
    return float(
        differences.ridders(lambda h: np.array([f(at + h)]), width=0.05 * max(abs(at), 0.4), levels=8).value[0]
    )


@pytest.mark.parametrize("name", representatives(LAWS, ["normal"]))
def test_derivatives_of_an_error_distribution(name):
    law, exact, ys = LAWS[name]
    for m, s in PLACES:
        frozen = exact(m, s)
        for y in ys:
            found = dict(zip(DERIVATIVES, numbers(law.derivatives, y, m, s, law.constant), strict=True))
            log_density = frozen.logpmf(y) if law.support == "counts" else frozen.logpdf(y)
            assert found[""] == pytest.approx(log_density, rel=1e-12, abs=1e-12)
            for key in DERIVATIVES[1:]:
                below, by_s = DERIVATIVES.index(key[:-1]), key[-1] == "s"

                def lower(z, below=below, by_s=by_s, m=m, s=s, y=y):
                    place = (m, z) if by_s else (z, s)
                    return numbers(law.derivatives, y, *place, law.constant)[below]

                size = abs(found[key[:-1]]) + abs(found[key]) + 1
                assert found[key] == pytest.approx(slope(lower, s if by_s else m), rel=1e-7, abs=1e-8 * size), key


@pytest.mark.parametrize("name", representatives(LAWS, ["normal"]))
def test_fisher_information_of_an_error_distribution(name):
    law, exact, _ = LAWS[name]
    for m, s in PLACES:
        frozen = exact(m, s)
        found = dict(zip(INFORMATION, numbers(law.information, m, s, law.constant, count=6), strict=True))
        for key in ("mm", "ms", "ss"):
            at = DERIVATIVES.index(key)
            if name in ("poisson", "negative") and key == "ss":
                continue  # no parameter, or one that must be known

            def second(y, at=at, m=m, s=s):
                return -numbers(law.derivatives, y, m, s, law.constant)[at]

            if law.support == "counts":
                y = np.arange(0, 3000)
                expected = float(np.sum(frozen.pmf(y) * [second(float(each)) for each in y]))
            else:  # by the distribution function
                expected = scipy.integrate.quad(lambda u: second(frozen.ppf(u)), 0, 1, limit=400)[0]  # noqa: B023
            assert expected == pytest.approx(found.get(key, 0.0), rel=1e-4, abs=1e-5 * abs(found["mm"])), key
        for key in INFORMATION[2:]:
            of, by = key.split(" by ")
            if name == "negative" and of == "ss":
                continue

            def information(z, of=of, by=by, m=m, s=s):
                place = (m, z) if by == "s" else (z, s)
                return numbers(law.information, *place, law.constant, count=6)[INFORMATION.index(of)]

            assert found[key] == pytest.approx(slope(information, s if by == "s" else m), rel=1e-8, abs=1e-9), key


@pytest.mark.parametrize("name", LAWS)
def test_draws_of_an_error_distribution(name):
    """One test at 1e-5 for each of five distributions."""
    law, exact, _ = LAWS[name]
    m, s = 3.0, 0.8
    y = law.draw(np.random.default_rng(8), np.full(4000, m), np.full(4000, s), law.constant)
    if law.support == "counts":
        edges = np.arange(9)
        seen = np.append([np.sum(y == k) for k in edges], np.sum(y > 8))
        p = np.append(exact(m, s).pmf(edges), exact(m, s).sf(8))
        assert scipy.stats.chisquare(seen, 4000 * p).pvalue > 1e-5
    else:
        assert scipy.stats.kstest(y, exact(m, s).cdf).pvalue > 1e-5


@pytest.mark.sweep
def test_impossible_observations_have_density_zero():
    for law in (error_laws.LogNormal(1.0), error_laws.Poisson(), error_laws.NegativeBinomial(1.0)):
        assert numbers(law.derivatives, 1.0, -0.5, 1.0, 0.0)[0] == -math.inf
    with pytest.raises(ValueError, match=r"df must be.* 0\b"):
        error_laws.StudentT(0, 1.0)
    assert error_laws.NegativeBinomial("phi").information is None


PRIORS = {
    "normal": (priors.Normal(1, 0.5), scipy.stats.norm(1, 0.5)),
    "half-normal": (priors.HalfNormal(2.0), scipy.stats.halfnorm(scale=2)),
    "log-normal": (priors.LogNormal(-1, 0.8), scipy.stats.lognorm(0.8, scale=math.exp(-1))),
    "gamma": (priors.Gamma(2.5, 1.5), scipy.stats.gamma(2.5, scale=1 / 1.5)),
    "exponential": (priors.Exponential(0.7), scipy.stats.expon(scale=1 / 0.7)),
    "inverse gamma": (priors.InverseGamma(3.0, 2.0), scipy.stats.invgamma(3, scale=2)),
    "student": (priors.StudentT(4, 1.0, 2.0), scipy.stats.t(4, 1, 2)),
    "half-cauchy": (priors.HalfCauchy(2.5), scipy.stats.halfcauchy(scale=2.5)),
    "beta": (priors.Beta(2.0, 3.5), scipy.stats.beta(2, 3.5)),
}
# The coordinate in which minus the second derivative of the log density is the precision: x(u) and dx/du.
COORDINATES = {
    "log": (np.exp, np.exp),
    "logit": (lambda u: 1 / (1 + np.exp(-u)), lambda u: np.exp(-u) / (1 + np.exp(-u)) ** 2),
}
IN_LOG = ("log-normal", "gamma", "exponential", "inverse gamma")


@pytest.mark.parametrize("name", PRIORS)
def test_a_prior(name):
    """The draws: one test at 1e-6 for each of nine distributions."""
    prior, exact = PRIORS[name]
    row = np.array(prior[:4], dtype=float)

    def at(x):
        return numbers(priors.log_prior, x, row, count=6)

    for x in (0.2, 0.55, 0.9):
        found = at(x)
        constant = at(0.5)[0] - exact.logpdf(0.5)
        assert found[0] == pytest.approx(exact.logpdf(x) + constant, rel=1e-12, abs=1e-12)
        for k in (1, 2, 3, 5):
            below = k - 1
            assert found[k] == pytest.approx(slope(lambda z, b=below: at(z)[b], x), rel=1e-7, abs=1e-8), k
        if name in (*IN_LOG, "beta"):
            to_x, jacobian = COORDINATES["logit" if name == "beta" else "log"]
            u = math.log(x / (1 - x)) if name == "beta" else math.log(x)
            first = lambda u: at(to_x(u))[1] * jacobian(u) + slope(lambda v: np.log(jacobian(v)), u)  # noqa: E731, B023
            assert found[4] == pytest.approx(-slope(first, u) / jacobian(u) ** 2, rel=1e-5)
        elif name in ("normal", "half-normal"):
            assert found[4] == pytest.approx(-found[2])
        else:
            nu, scale = prior.c, prior.b
            assert found[4] == pytest.approx((nu + 1) / (nu + 3) / scale**2)
    draws = prior.draw(np.random.default_rng(3), (3000,))
    assert scipy.stats.kstest(draws, exact.cdf).pvalue > 1e-6


def test_a_flat_prior_and_bad_numbers():
    assert not numbers(priors.log_prior, 3.0, np.array(priors.Flat()[:4], dtype=float), count=6).any()
    with pytest.raises(ValueError, match="(?i)flat prior"):
        priors.Flat().draw(np.random.default_rng())
    with pytest.raises(ValueError, match=r"sd must be.* got 0\b"):
        priors.Normal(1, 0)
