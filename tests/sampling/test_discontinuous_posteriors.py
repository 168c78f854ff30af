"""Posteriors by discontinuous HMC: change points and classifier against exact sums, Jolly-Seber against long chains.

The seeds are fixed in advance. With m z-values in a test the bound is the normal quantile of alpha / (2 m), where the tests of
this file together have alpha = 1e-6 (:mod:`test_posteriors`). If a quantile of the reference is compared, so is the
share of our draws below it: its standard error comes from the effective sample size of that indicator, and from theirs.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc import diagnostics
from refhmc.models.change_point import ChangeLaw
from refhmc.models.datasets import load_json
from tests.helpers.posteriors import plain_ess, z_scores

TESTS = 8
SEED = 20261121
COUNTS = [3, 5, 2, 4, 6, 1, 0, 1, 2, 0, 0, 1]


def bound(comparisons: int) -> float:
    """Return the bound on |z| for all comparisons of a test, given its share of false alarms."""
    return scipy.stats.norm.isf(1e-6 / TESTS / comparisons / 2)


def z_of_shares(indicators: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Return z of the means of (chain, draw, k) indicators with expected probabilities ``levels``."""
    size = np.minimum(plain_ess(indicators.astype(float)), indicators[..., 0].size)
    return (indicators.mean(axis=(0, 1)) - levels) / np.sqrt(levels * (1 - levels) / size)


@pytest.mark.sweep
@pytest.mark.parametrize("changes", [1, 2])
def test_change_points(changes, sample):
    model = refhmc.models.ChangePoint() if changes == 1 else refhmc.models.ChangePoint(COUNTS, changes=2)
    result = sample(model, refhmc.DHMC(trajectory_length=3.0), draws=4000, random_seed=SEED)
    z = z_scores(model, result)
    assert np.abs(z).max() < bound(len(z)), f"z = {z}"
    assert (diagnostics.rhat(result.draws) < 1.02).all()


def test_law_of_the_year_of_the_change(sample):
    """P(year = t) for the years that matter, not only the moments; integers arrive in the result."""
    model = refhmc.models.ChangePoint()
    result = sample(model, refhmc.DHMC(trajectory_length=3.0), draws=4000, random_seed=SEED + 1)
    year = result.posterior["year"][..., 0]
    assert year.dtype == np.int64
    law = ChangeLaw(np.array(load_json("coal_mining_disasters")["counts"], dtype=float), 1, 1.0, 1.0, 1851).marginal(1)
    likely = np.flatnonzero(law > 0.01)
    z = z_of_shares(year[..., None] == 1851 + likely, law[likely])
    assert len(z) >= 8
    assert np.abs(z).max() < bound(len(z)), f"z = {z}"


def test_classifier_in_two_dimensions(sample):
    rng = np.random.default_rng(9)
    X = rng.standard_normal((40, 2)) + 0.4
    y = (X @ [1.0, -0.5] + rng.standard_normal(40) > 0).astype(float)
    model = refhmc.models.PACBayesClassifier(X, y, inverse_temperature=0.5)
    result = sample(model, refhmc.DHMC(n_steps=10), draws=4000, random_seed=SEED)
    z = z_scores(model, result)
    assert np.abs(z).max() < bound(len(z)), f"z = {z}"
    assert result.sample_stats["is_accepted"].all()  # the integrator keeps the energy


@pytest.mark.sweep
def test_classifier_of_heart_disease(sample):
    """|beta|^2 is chi-square with 14 degrees of freedom, for any data about the direction."""
    model = refhmc.models.PACBayesClassifier()
    result = sample(model, refhmc.DHMC(n_steps=20), draws=2000, random_seed=SEED)
    square = np.sum(result.draws**2, axis=2, keepdims=True)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    z = z_of_shares(square <= scipy.stats.chi2(14).ppf(levels), levels)
    z = np.append(z, (square.mean() - 14) / (square.std() / np.sqrt(plain_ess(square))))
    assert np.abs(z).max() < bound(len(z)), f"z = {z}"
    assert result.sample_stats["is_accepted"].all()
    data = refhmc.models.datasets.heart()
    right = np.mean((result.draws.reshape(-1, 14) @ data.X.T > 0) == (data.y == 1))
    assert right > 0.8  # the draws are classifiers, not the prior's, which are right in half of the cases


def jolly_seber(sample, draws: int, tune: int):
    model = refhmc.models.JollySeber()
    result = sample(model, refhmc.DHMC(n_steps=25), draws=draws, tune=tune, random_seed=SEED)
    values = result.posterior
    assert values["U"].dtype == np.int64
    assert np.all((values["U"] >= model.data[0]) & (values["U"] <= 5000))
    x = np.concatenate([values["p"], values["phi"], np.log(values["U"])], axis=2)
    names = [f"{base}[{i}]" for base, k in (("p", 13), ("phi", 12), ("log U", 13)) for i in range(1, k + 1)]
    summary = load_json("jolly_seber_posterior")["summary"]
    z = {}
    size = plain_ess(x)
    for k, name in enumerate(names):
        row, ours = summary[name], x[..., k]
        z[name] = (ours.mean() - row["mean"]) / np.hypot(ours.std() / np.sqrt(size[k]), row["mcse_mean"])
        for level, key in ((0.05, "q05"), (0.5, "q50"), (0.95, "q95")):
            # The logs of integers have ties: P(x < quantile) <= level <= P(x <= quantile).
            between = np.stack([ours < row[key] - 1e-6, ours <= row[key] + 1e-6], axis=2)  # the row has eight digits
            sizes = plain_ess(between.astype(float))
            below, up_to = z_of_shares(between, np.full(2, level)) / np.sqrt(1 + sizes / row["ess"])
            z[f"{name} {key}"] = max(below, 0.0) + min(up_to, 0.0)
    worst = max(z, key=lambda name: abs(z[name]))
    assert abs(z[worst]) < bound(len(z)), f"{worst}: z = {z[worst]:.2f}"
    assert len(z) == 4 * 38
    return result


@pytest.mark.sweep
def test_jolly_seber(sample):
    jolly_seber(sample, draws=1500, tune=1000)


@pytest.mark.slow
def test_jolly_seber_long(sample):
    result = jolly_seber(sample, draws=25_000, tune=3000)
    assert (diagnostics.rhat(result.draws) < 1.01).all()
