"""``Diagonal(learn_from="draws and gradients")``: M^-1 = sqrt(var q / var dL/dq)."""

from __future__ import annotations

import numpy as np
import pytest

import refhmc
from refhmc.adaptation.welford import learn_from_gradients
from refhmc.compile import compiled
from tests.helpers.core_records import work_of

learn = compiled.plain(learn_from_gradients)
METRIC = refhmc.metrics.Diagonal(learn_from="draws and gradients")


def test_it_is_exact_for_independent_normals_whatever_the_draws():
    sd = np.array([1e-3, 0.1, 1.0, 30.0, 1e4])
    model = refhmc.models.Gaussian(np.arange(5.0), np.diag(sd**2))
    from refhmc.core.sample_stats import N_STATS
    from refhmc.sampling.chains.chain import Chain, make_plan

    chain = Chain(model, make_plan(model, refhmc.NUTS(metric=METRIC), 120), np.random.default_rng(3))
    chain.start(np.arange(5.0) + sd)
    chain.run(np.zeros((120, 5)), np.zeros((120, N_STATS)))
    np.testing.assert_allclose(chain.blocks[0].vecs[0], sd**2, rtol=1e-6)
    np.testing.assert_allclose(chain.blocks[0].vecs[1], 1 / sd, rtol=1e-6)


def test_the_formula_on_given_draws():
    rng = np.random.default_rng(1)
    draws, gradients = rng.standard_normal((2, 40, 3)) * [1.0, 5.0, 0.2]
    vecs = np.ones((2, 3))
    learn(40 * draws.var(0)[None], 40 * gradients.var(0)[None], work_of(vecs, np.zeros((0, 3, 3))))
    np.testing.assert_allclose(vecs[0], np.sqrt(draws.var(0) / gradients.var(0)), rtol=1e-12)
    np.testing.assert_allclose(vecs[0] * vecs[1] ** 2, 1.0, rtol=1e-12)


@pytest.mark.parametrize(("q", "g"), [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (np.nan, 1.0), (1e300, 1e-300)])
def test_a_coordinate_that_tells_nothing_keeps_what_it_had(q, g):
    vecs = np.full((2, 1), 2.0)
    with np.errstate(all="ignore"):
        learn(np.array([[q]]), np.array([[g]]), work_of(vecs, np.zeros((0, 1, 1))))
    assert np.array_equal(vecs, np.full((2, 1), 2.0))


@pytest.mark.parametrize("sd", [1e-70, 1e-12, 1e12, 1e70])
def test_no_scale_is_too_small_or_large(sd):
    vecs = np.ones((2, 1))
    learn(np.array([[sd**2]]), np.array([[sd**-2]]), work_of(vecs, np.zeros((0, 1, 1))))
    np.testing.assert_allclose(vecs[:, 0], [sd**2, 1 / sd], rtol=1e-12)


def test_the_realised_acceptance_is_near_its_target(sample):
    # 4 x 1,000 acceptance rates of sd about 0.15 average to within 0.01; the bound is for the adaptation's own error.
    result = sample(refhmc.models.by_name()["normal-100"](), refhmc.NUTS(metric=METRIC), random_seed=1)
    assert abs(result.sample_stats["acceptance_rate"].mean() - 0.8) < 0.05


def test_another_word_is_refused():
    with pytest.raises(ValueError, match="learn_from must be.*'draws and gradients'.*'gradients'"):
        refhmc.metrics.Diagonal(learn_from="gradients")
