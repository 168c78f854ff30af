"""Posteriors against published reference draws and against importance sampling: z-tests of every mean and variance.

The seeds are fixed in advance. For each scalar, z = (ours - theirs) / sqrt(our standard error^2 + theirs^2), ours from
the effective sample size of the draws (and of their squared deviations for the variance). With m z-values in a test of
this file the bound is the normal quantile of alpha / (2 m), where all tests together have alpha = 1e-6: that is the
probability that any of them fails by chance.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import refhmc
from refhmc import diagnostics
from tests.helpers.posteriors import z_scores
from tests.helpers.sweeps import representatives

FAMILY_ALPHA = 1e-6
SEED = 20261121
FROM_GRADIENTS = refhmc.metrics.Diagonal(learn_from="draws and gradients")
CASES = {
    "eight-schools": (refhmc.NUTS(target_accept=0.95), 4000),
    "ar": (refhmc.NUTS(), 3000),
    "garch": (refhmc.NUTS(target_accept=0.9, metric=FROM_GRADIENTS), 3000),
    "gaussian-mixture": (refhmc.NUTS(), 3000),
    "gaussian-process": (refhmc.NUTS(target_accept=0.9), 4000),
    "radon": (refhmc.NUTS(), 4000),
    "kidscore": (refhmc.NUTS(metric=refhmc.metrics.Dense()), 3000),
    "breast-cancer": (refhmc.NUTS(), 3000),
    "diabetes": (refhmc.NUTS(), 3000),
    "heart": (refhmc.HMC(trajectory_length=1.5, step_jitter=0.1), 4000),
    "banana": (refhmc.NUTS(target_accept=0.95, metric="low-rank"), 4000),
    "gaussian": (refhmc.HMC(), 4000),
}


SOME = ["eight-schools", "banana", "gaussian"]


@pytest.mark.parametrize("name", representatives(CASES, SOME))
def test_means_and_variances(name, sample):
    model = refhmc.models.by_name()[name]()
    kernel, draws = CASES[name]
    result = sample(model, kernel, draws=draws, random_seed=SEED)
    z = z_scores(model, result)
    assert len(z) == 2 * len(model.reference_names)
    assert np.isfinite(z).all()
    bound = scipy.stats.norm.isf(FAMILY_ALPHA / len(CASES) / len(z) / 2)
    worst = int(np.argmax(np.abs(z)))
    label = (2 * model.reference_names)[worst] + (" variance" if worst >= len(z) // 2 else " mean")
    assert np.abs(z).max() < bound, f"{label}: z = {z[worst]:.2f}, bound {bound:.2f}"
    rhat = diagnostics.rhat(result.draws)
    assert (rhat < 1.02).all()


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["diabetes", "gaussian-mixture"])
def test_the_z_test_sees_a_posterior_that_is_a_little_wrong(name, sample):
    """Power: the same draws scaled by a tenth about their mean, or shifted by a tenth of a standard deviation, fail."""
    model = refhmc.models.by_name()[name]()
    result = sample(model, draws=3000, random_seed=SEED)
    bound = scipy.stats.norm.isf(FAMILY_ALPHA / len(CASES) / 60)
    for change in (lambda v: v.mean() + 1.1 * (v - v.mean()), lambda v: v + 0.1 * v.std()):
        bent = {}
        for key, value in result.posterior.items():
            flat = value.reshape(*value.shape[:2], -1)
            bent[key] = np.stack([change(flat[:, :, j]) for j in range(flat.shape[2])], axis=2).reshape(value.shape)
        wrong = refhmc.Result({**result.groups, "posterior": bent}, result.attributes)
        assert np.abs(z_scores(model, wrong)).max() > bound
